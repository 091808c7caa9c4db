"""Reads single values of a result by their keys in the results file, such as `bandwidth_gbps` or `time.median_s`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from cudabench import text
from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.records.results import Result

# The simulator never has a value for a key that begins with one of these names.
MEASURED = ("time", "bandwidth_gbps", "gflops", "copy_gbps", "copy_fraction", "peak_fraction", "speedup_vs_cpu")
# Means any name in a mapping, in a key such as size.*.
ANY = "*"


@cache
def keys() -> tuple[str, ...]:
    """Return all keys that have a single value. For a mapping the last name is `ANY`, as in 'size.*'."""
    return tuple(_keys(Result, ""))


def _keys(record: type, prefix: str) -> Iterator[str]:
    hints = get_type_hints(record)
    for spec in fields(record):
        hint, name = hints[spec.name], f"{prefix}{spec.name}"
        alternatives = [kind for kind in get_args(hint) or () if kind is not type(None)]
        if type(None) in get_args(hint) and len(alternatives) == 1:
            hint = alternatives[0]
        if is_dataclass(hint) and isinstance(hint, type):
            yield from _keys(hint, f"{name}.")
        elif (origin := get_origin(hint)) is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            yield f"{name}.{ANY}"
        elif origin is None or not (isinstance(origin, type) and issubclass(origin, tuple)):
            yield name


def check_key(key: str) -> None:
    """Raise UsageError for a key that is not a single value."""
    known = keys()
    if key in known or f"{key.rpartition('.')[0]}.{ANY}" in known:
        return
    members = [name for name in known if name.startswith(f"{key}.")]
    refuse(
        (members, f"--print {key} is several values: name a single value, such as {', '.join(members[:3])}."),
        (key in {spec.name for spec in fields(Result)}, f"--print {key} is a list; --json writes it whole."),
    )
    raise UsageError(
        f"--print {key} is not a key of a result.{did_you_mean(key, known)} Use bandwidth_gbps, time.median_s, "
        "status or another: 'cudabench schema --markdown' shows all."
    )


def value(result: Result, key: str) -> Any:
    """Return the value of a key such as 'time.median_s', or None if it was not measured.

    Raises UsageError for a name that a mapping lacks.
    """
    current: Any = asdict(result)
    for name in key.split("."):
        if current is None:
            return None
        if name not in current:
            raise UsageError(
                f"--print {key}: '{name}' is unknown; use one of {', '.join(current)}.{did_you_mean(name, current)}"
            )
        current = current[name]
    return current


def written(content: Any) -> str:
    """Return a value as text for a script: numbers with all digits, text on one line."""
    if isinstance(content, bool):
        return str(content).lower()
    return repr(content) if isinstance(content, (int, float)) else text.no_commands(text.line(str(content)))
