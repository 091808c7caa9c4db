"""Numbers as text for people, with digits and units. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cudabench.records.results import Access, MachineCode, Result


class Located(Protocol):
    """A record that names a line of the source or of a header."""

    @property
    def file(self) -> str:
        """The header's name; empty for the source itself."""

    @property
    def line(self) -> int:
        """The line, from 1."""


TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds(value: float, count: int = 4) -> str:
    """Return a time with `count` digits and a unit: 36.42 µs."""
    factor, unit = next(((f, u) for f, u in TIME_UNITS if value >= f), TIME_UNITS[-1])
    return f"{digits(value / factor, count)} {unit}"


def digits(value: float, count: int = 4) -> str:
    """Return a number with `count` significant digits and without an exponent. All digits before the point are kept."""
    if value == 0:
        return "0"
    before = len(str(int(abs(value))))
    return f"{value:.{max(count - before, 0)}f}"


def percent(fraction: float) -> str:
    """Return a fraction as a percentage with three digits: 98.3%, 104%, 4.21%."""
    return f"{digits(fraction * 100, 3)}%"


def spread(fraction: float) -> str:
    """Return half a relative spread as text: 0.003 as '±0.3%'."""
    return f"±{fraction * 100:.1f}%"


def count(value: int) -> str:
    """Return a count with a space between groups of three digits: 16 777 216."""
    return f"{value:,}".replace(",", " ")


def place_of(row: Located) -> str:
    """Return a record's line number as text, after the header's name if there is one: '31', 'vectors.cuh:31'."""
    return f"{row.file}:{row.line}" if row.file else str(row.line)


def about(value: Access | MachineCode | None) -> str:
    """Return '~' if hardware may count differently than the simulator, to be written before the count; else ''."""
    return "~" if value is not None and value.inexact else ""


def nbytes(value: float) -> str:
    """Return a number of bytes in decimal units: 134 MB."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{digits(value / factor, 3)} {unit}"
    return f"{int(value)} B"


def size(result: Result) -> str:
    """Return the size of a problem, such as '4096 x 4096'; for a user's own kernel 'n=64, a=2.5'."""
    return size_text(result.operation, result.size.items())


def size_text(operation: str, size: Iterable[tuple[str, object]]) -> str:
    """Return a size, given as pairs of name and number, as text; see `size`."""
    if operation == "run":
        return ", ".join(f"{name}={value}" for name, value in size)
    return " x ".join(str(value) for _, value in size)


def variant(result: Result) -> str:
    """Return the parameters of a sweep's point, except block and size, as 'TILE=8 VEC=2'; '' for other results."""
    shown = {**result.size, "bx": 0, "by": 0, "bz": 0}
    return " ".join(f"{name}={value}" for name, value in result.parameters.items() if name not in shown)
