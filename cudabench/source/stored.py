"""Readings as they are kept on disk: the fields of the records as JSON."""

from __future__ import annotations

import functools
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Union, cast, get_args, get_origin

from cudabench.source.records import Reading, Task


def stored(reading: Reading) -> bytes:
    """Return a reading as bytes, without what its task says."""
    return json.dumps(_plain(replace(reading, file=replace(reading.file, text="", task=None)))).encode()


def loaded(body: bytes, task: Task) -> Reading | None:
    """Return the reading of a task that was stored, None where it cannot be one."""
    try:
        reading = _record(Reading, json.loads(body))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    assert isinstance(reading, Reading)
    return replace(reading, file=replace(reading.file, text=task.text, task=task))


def _plain(value: Any) -> Any:
    """Return records as lists of their fields."""
    if is_dataclass(value):
        return [_plain(getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (tuple, frozenset)):
        return [_plain(one) for one in value]
    return value


@functools.cache
def _types(record: Any) -> tuple[Any, ...]:
    hints = typing.get_type_hints(record)
    return tuple(hints[one.name] for one in fields(record))


def _record(kind: Any, value: Any) -> Any:
    """Return a value of a type; ValueError for another's."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _record(get_args(kind)[0], value)
    if isinstance(kind, type) and is_dataclass(kind):
        own = _types(cast(Any, kind))
        if not isinstance(value, list) or len(value) != len(own):
            raise ValueError
        return kind(*(_record(one, part) for one, part in zip(own, value, strict=True)))
    if origin is tuple and get_args(kind)[-1:] == (Ellipsis,):
        return tuple(_record(get_args(kind)[0], part) for part in value)
    if origin is tuple:
        return tuple(_record(one, part) for one, part in zip(get_args(kind), value, strict=True))
    if origin is frozenset:
        return frozenset(_record(str, part) for part in value)
    if origin is Mapping:
        return {str(name): _record(get_args(kind)[1], part) for name, part in value.items()}
    if not isinstance(value, kind):
        raise ValueError
    return value
