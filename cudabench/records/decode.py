"""Turns JSON values into records. Raises DecodeError for a value whose type differs from the annotation of its field.

Unknown keys are ignored. For a missing key the field gets its default or an empty value (None, 0, '', an empty list);
if the key is in ESSENTIAL, DecodeError is raised.
"""

from __future__ import annotations

import functools
import json
import types
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cudabench.cards import Ceiling
from cudabench.records.fleet import Card, Group, SlowCard
from cudabench.records.launch import Dim
from cudabench.records.results import DeviceInfo, Result, Timing
from cudabench.records.revisions import Ab, CodeDifference

# The keys that must exist in each kind of record. Every other missing key gets an empty value.
ESSENTIAL: dict[type, frozenset[str]] = {
    Result: frozenset({"operation", "kernel", "status"}),
    Timing: frozenset({"median_s"}),
    DeviceInfo: frozenset({"name", "kind"}),
    CodeDifference: frozenset({"kernel", "arch", "verdict"}),
    Ceiling: frozenset({"name", "group", "unit"}),
    Ab: frozenset({"old", "new", "verdict"}),
    Card: frozenset({"id", "status"}),
    Group: frozenset({"kind", "name"}),
    SlowCard: frozenset({"id", "cause"}),
}
_NAMES = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


class DecodeError(Exception):
    """A JSON value has the wrong type; the message names the key and shows the value."""


def decode(hint: Any, value: Any, where: str) -> Any:
    """Return a JSON value as a Python value of the annotated type `hint`.

    `where`: the value's name in errors, such as 'results[0].time'. Raises DecodeError if the types differ.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is types.UnionType or type(None) in inner:
        return None if value is None else decode(next(a for a in inner if a is not type(None)), value, where)
    if is_dataclass(hint) and isinstance(hint, type):
        return _record(hint, _typed(dict, value, where), where)
    if origin is Literal:
        if value not in inner:
            raise DecodeError(f"{where} is {_shortened(value)}, not one of {', '.join(inner)}")
        return value
    if origin in (tuple, list, frozenset):
        items = _typed(list, value, where)
        if hint == Dim:
            items = [*items, 1, 1, 1][:3]
        kinds = inner if origin is tuple and inner[-1] is not Ellipsis else inner[:1] * len(items)
        if len(items) != len(kinds):
            raise DecodeError(f"{where} is {_shortened(value)}, not a list of {len(kinds)}")
        return origin(
            decode(kind, item, f"{where}[{at}]") for at, (kind, item) in enumerate(zip(kinds, items, strict=True))
        )
    if hint == Mapping[str, float]:
        # `size` contains whole numbers, which stay ints. For a user's kernel it also contains scalar arguments, which
        # may be floats.
        entries = _typed(dict, value, where).items()
        return {key: _scalar(int if isinstance(item, int) else float, item, f"{where}.{key}") for key, item in entries}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {str(key): decode(inner[1], item, f"{where}.{key}") for key, item in _typed(dict, value, where).items()}
    return b64decode(value, validate=True) if hint is bytes else _scalar(hint, value, where)


def _typed(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise DecodeError(f"{where} is {_shortened(value)}, not {'a list' if kind is list else 'an object'}")
    return value


def _scalar(hint: type, value: Any, where: str) -> Any:
    """Return `value` as a number, text or bool of the type `hint`, also a NaN or infinity given as text. Raises
    DecodeError for a value of another type."""
    if hint is float and (isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")):
        if not isinstance(value, bool):
            return float(value)
    elif hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise DecodeError(f"{where} is {_shortened(value)}, not {_NAMES.get(hint, hint.__name__)}")


def _record(kind: type, value: dict[str, Any], where: str) -> Any:
    values: dict[str, Any] = {}
    for spec, hint in _fields(kind):
        if spec.name in value:
            values[spec.name] = decode(hint, value[spec.name], f"{where}.{spec.name}")
            continue
        required = spec.default is MISSING and spec.default_factory is MISSING
        # A `Literal` has no empty value, so the key must exist.
        if spec.name in ESSENTIAL.get(kind, ()) or (required and get_origin(hint) is Literal):
            raise DecodeError(f'{where} lacks "{spec.name}"')
        if required:
            values[spec.name] = _empty(hint)
    if kind is Timing:
        _check_times(values, where)
    return kind(**values)


@functools.cache
def _fields(kind: type) -> list[tuple[Field[Any], Any]]:
    """Return each field of a record class with its evaluated type; cached, because a file has thousands of records."""
    hints = get_type_hints(kind)
    return [(spec, hints[spec.name]) for spec in fields(kind)]


def _check_times(values: Mapping[str, Any], where: str) -> None:
    """Raise DecodeError for an impossible time: negative, infinite or NaN."""
    samples = values.get("samples_s", ())
    for name, value in [*values.items(), *(("samples_s", sample) for sample in samples)]:
        if name.endswith("_s") and isinstance(value, float) and not 0 <= value < float("inf"):
            raise DecodeError(f"{where}.{name} is {value:g}, not a time")


def _empty(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    if hint == Dim:
        return (0, 0, 0)
    return (get_origin(hint) or hint)() if get_origin(hint) is not Mapping else {}


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
