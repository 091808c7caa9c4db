"""The space of a sweep: axes, the values of each axis, combinations of values (points), and the points' launches."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.occupancy import MAX_BLOCK, MAX_THREADS_PER_BLOCK
from cudabench.plan.series import Series
from cudabench.records.launch import WARP, Dim, dim3
from cudabench.records.plan import Case
from cudabench.source.brackets import split

MOST = 64  # a command may have at most this many sizes
DIGITS = 18  # a number may have at most this many digits


# Values: sizes and blocks --------------------------------------------------------------------------------------------


def sizes(text: str) -> tuple[int, ...]:
    """Return the sizes for a text of --sizes: 'A,B,C' means A, B and C; 'A..B*2' means A, 2 A, 4 A, ... up to B;
    'A..B+S' means A, A + S, A + 2 S, ... up to B."""
    option = f"--sizes {text}"
    number = rf"\d{{1,{DIGITS}}}"
    if re.fullmatch(rf"{number}(,{number})*", text, re.ASCII):
        numbers = list(dict.fromkeys(map(int, text.split(","))))
    else:
        match = re.fullmatch(rf"({number})\.\.({number})(?:([*+])({number}))?", text, re.ASCII)
        if not match:
            raise UsageError(f"{option} is not a range: write A..B*2, as in 1024..1048576*2, A..B+STEP, or A,B,C.")
        first, last = int(match[1]), int(match[2])
        sign, step = match[3] or "*", int(match[4] or 2)
        refuse(
            (first > last, f"{option} is empty: {first} is beyond {last}."),
            (
                (sign == "*" and (step < 2 or first == 0)) or step == 0,
                f"{option} never ends: multiply a number of at least 1 by 2 or more, or add 1 or more.",
            ),
        )
        numbers = [first]
        while len(numbers) <= MOST and (size := numbers[-1] * step if sign == "*" else numbers[-1] + step) <= last:
            numbers.append(size)
    if len(numbers) > MOST:
        raise UsageError(f"{option} means more than {MOST} sizes: take larger steps.")
    return tuple(numbers)


SENSIBLE_X = (4, 8, 16, 32, 64, 128, 256, 512)
SENSIBLE_Y = (1, 2, 4, 8, 16, 32, 64)
SENSIBLE_LINE = (32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
# Two warps per block. An SM can hold 64 warps but at most 32 blocks, so smaller blocks cannot fill it with warps.
FEWEST_THREADS = 64


def block_range(text: str) -> tuple[int, ...]:
    """Return the numbers of a range: 32, 8:64 (doubling), 8:64:8 (in steps of 8), or several ranges with commas."""
    numbers: set[int] = set()
    for item in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9})(?::(\d{1,9}))?)?", item.strip(), re.ASCII)
        if not match:
            raise UsageError(f"--block '{text}' is not a range: write 32, 8:64 (doubling), 8:64:8 (steps), or 8,16,32.")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or -1)
        refuse(
            (
                not 1 <= first <= last or step == 0,
                f"--block '{text}' is not a range: it must start at 1 or more, rise, and have a step.",
            ),
            (
                last > MAX_BLOCK[0],
                f"--block '{text}' is out of range: CUDA allows at most {MAX_BLOCK[0]} threads a block.",
            ),
        )
        while first <= last:
            numbers.add(first)
            first = first + step if step > 0 else first * 2
    return tuple(sorted(numbers))


def blocks(dimensions: int, axes: Sequence[Sequence[int]] = ()) -> list[Dim]:
    """Return all blocks with the given values of x (`axes[0]`) and y (`axes[1]`) that CUDA allows.

    Without axes, return the usual blocks: whole warps, at least FEWEST_THREADS threads.
    """
    if axes:
        ys = axes[1] if len(axes) > 1 else (1,)
        return [dim3((x, y)) for y in ys for x in axes[0] if x * y <= MAX_THREADS_PER_BLOCK]
    if dimensions == 1:
        return [dim3((x,)) for x in SENSIBLE_LINE]
    return [
        dim3((x, y))
        for y in SENSIBLE_Y
        for x in SENSIBLE_X
        if FEWEST_THREADS <= x * y <= MAX_THREADS_PER_BLOCK and x * y % WARP == 0
    ]


# A sweep with more points is not measured completely: the user must choose a search.
MOST_POINTS = 2000
# --where may choose from at most this many combinations.
MOST_COMBINATIONS = 1_000_000

Values = Mapping[str, str]
Kind = Literal["define", "parameter", "argument", "block", "kernel"]


# Axes and points -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep: its name, its values as text, and its kind.

    `problem`: whether each value is another problem (such as a size); the sweep then finds the best point for each
    value. Otherwise the values are alternatives for one problem, and the sweep finds the fastest value.
    """

    name: str
    values: tuple[str, ...]
    kind: Kind
    problem: bool = False


@dataclass(frozen=True)
class Point:
    """A combination of values that can be launched: its case, and the series of cases with the same arguments."""

    values: Values
    series: Series
    case: Case


@dataclass(frozen=True)
class Refusal:
    """A combination of values that cannot be launched, and the reason."""

    block: Dim
    reason: str
    values: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep: the points to measure, and the combinations that cannot be launched."""

    points: tuple[Point, ...]
    refused: tuple[Refusal, ...]
    axes: tuple[Axis, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """The cases of all points."""
        return tuple(point.case for point in self.points)

    def settings_record(self, fixed: Mapping[str, Any], *, searched: bool = False) -> dict[str, Any]:
        """Return the sweep's record for the results file: its axes or blocks, and the fixed options (`fixed`).

        `searched`: whether a search chose the points.
        """
        # Convert the values to those that are read from a JSON file, so that both compare as equal.
        as_read = json.loads(json.dumps(fixed, default=os.fspath))
        record: dict[str, Any] = {"axes": {axis.name: list(axis.values) for axis in self.axes}, "fixed": as_read}
        if not searched and not any(axis.kind == "block" for axis in self.axes):
            record["blocks"] = list(dict.fromkeys(",".join(map(str, case.block)) for case in self.cases))
        return record


def values_of(text: str, option: str) -> tuple[str, ...]:
    """Return the values for a text: A,B,C, or a range of whole numbers, A..B*2 or A..B+STEP (see `sizes`)."""
    if re.fullmatch(r"\d+\.\.\d+([*+]\d+)?", text, re.ASCII):
        try:
            return tuple(map(str, sizes(text)))
        except UsageError as error:
            raise UsageError(str(error).replace("--sizes", option, 1)) from None
    values = split(text)
    for value in values:
        refuse(
            (not value, f"{option} '{text}' has an empty value: write A,B,C."),
            (values.count(value) > 1, f"{option} '{text}' has {value} twice: keep one."),
        )
    return tuple(values)


def axis_groups(axes: Sequence[Axis], zips: Sequence[str]) -> list[tuple[Axis, ...]]:
    """Return the axes in groups. The axes that a --zip names, as in 'A,B', are a group: they take their first values
    together, then their second values, and so on. Each other axis forms its own group."""
    by_name = {axis.name: axis for axis in axes}
    group_of: dict[str, tuple[Axis, ...]] = {}
    for text in zips:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            swept = ", ".join(by_name) or "nothing"
            refuse(
                (name not in by_name, f"--zip {text}: {name} is not swept; use {swept}.{did_you_mean(name, by_name)}"),
                (name in group_of or names.count(name) > 1, f"--zip {text}: {name} is in two --zip options: keep one."),
            )
        group = tuple(by_name[name] for name in names)
        counts = ", ".join(f"{axis.name} {len(axis.values)}" for axis in group)
        refuse(
            (len(group) < 2, f"--zip {text} names one axis: write A,B."),
            (
                len({len(axis.values) for axis in group}) > 1,
                f"--zip {text}: the axes have different numbers of values, {counts}: give equally many.",
            ),
        )
        group_of |= dict.fromkeys(names, group)
    groups = [group_of.get(axis.name, (axis,)) for axis in axes]
    return list({id(group): group for group in groups}.values()) if group_of else groups


def combinations(groups: Sequence[Sequence[Axis]]) -> Iterator[dict[str, str]]:
    """Yield every combination of values as a dict by axis name; the last group varies fastest."""
    rows = [[dict(zip([axis.name for axis in group], row, strict=True))
             for row in zip(*(axis.values for axis in group), strict=True)] for group in groups]  # fmt: skip
    for chosen in product(*rows):
        yield {name: value for row in chosen for name, value in row.items()}


def combination_count(groups: Sequence[Sequence[Axis]]) -> int:
    """Return the number of combinations."""
    return math.prod(len(group[0].values) for group in groups)


def text_of(values: Values) -> str:
    """Return a point's values as text, such as 'TILE=8 bx=64'."""
    return " ".join(f"{name}={value}" for name, value in values.items())
