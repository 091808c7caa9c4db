"""The points of a sweep: what is varied, which values, how they go together, and what a point plans."""

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
from cudabench.plan.series import Series
from cudabench.plan.sizes import sizes
from cudabench.records.launch import Dim
from cudabench.records.planned import Case
from cudabench.source.brackets import split

MOST_POINTS = 2000  # that are measured one after the other; a larger space is searched
MOST_COMBINATIONS = 1_000_000  # that --where may choose from

Values = Mapping[str, str]
Kind = Literal["define", "parameter", "argument", "block", "kernel"]


@dataclass(frozen=True)
class Axis:
    """What is varied: its name, its values as text, and what it is. `problem`: each value is a problem of its own, with
    a best of its own; values of other axes compete."""

    name: str
    values: tuple[str, ...]
    kind: Kind
    problem: bool = False


@dataclass(frozen=True)
class Point:
    """One combination of values, planned: its launch, and the series of those on the same arguments."""

    values: Values
    series: Series
    case: Case


@dataclass(frozen=True)
class Refusal:
    """A combination that cannot be launched, and why."""

    block: Dim
    reason: str
    values: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The points to measure and those that were refused."""

    points: tuple[Point, ...]
    refused: tuple[Refusal, ...]
    axes: tuple[Axis, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """The launches of all points."""
        return tuple(point.case for point in self.points)

    def noted(self, fixed: Mapping[str, Any], *, searched: bool = False) -> dict[str, Any]:
        """Return what the results file says of the sweep: its axes or blocks, and what no point varies (`fixed`)."""
        as_read = json.loads(json.dumps(fixed, default=os.fspath))  # so that it equals what a file has
        told: dict[str, Any] = {"axes": {axis.name: list(axis.values) for axis in self.axes}, "fixed": as_read}
        if not searched and not any(axis.kind == "block" for axis in self.axes):
            told["blocks"] = list(dict.fromkeys(",".join(map(str, case.block)) for case in self.cases))
        return told


def values_of(text: str, option: str) -> tuple[str, ...]:
    """Return the values that a text lists: A,B,C, or the range A..B*2 or A..B+STEP of whole numbers."""
    if re.fullmatch(r"\d+\.\.\d+([*+]\d+)?", text, re.ASCII):
        try:
            return tuple(map(str, sizes(text)))
        except UsageError as error:
            raise UsageError(str(error).replace("--sizes", option, 1)) from None
    found = split(text)
    for value in found:
        refuse(
            (not value, f"{option} '{text}' has an empty value: write A,B,C."),
            (found.count(value) > 1, f"{option} '{text}' has {value} twice: keep one."),
        )
    return tuple(found)


def zipped(axes: Sequence[Axis], zips: Sequence[str]) -> list[tuple[Axis, ...]]:
    """Return the axes in groups: those of one --zip, 'A,B', go together value by value, each other one by itself."""
    by_name = {axis.name: axis for axis in axes}
    group_of: dict[str, tuple[Axis, ...]] = {}
    for text in zips:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            swept = ", ".join(by_name) or "nothing"
            refuse(
                (
                    name not in by_name,
                    f"--zip {text}: {name} is not swept, but {swept}.{did_you_mean(name, by_name)}",
                ),
                (
                    name in group_of or names.count(name) > 1,
                    f"--zip {text}: {name} can go together with others once only.",
                ),
            )
        group = tuple(by_name[name] for name in names)
        counts = ", ".join(f"{axis.name} {len(axis.values)}" for axis in group)
        refuse(
            (len(group) < 2, f"--zip {text} names one: write A,B."),
            (
                len({len(axis.values) for axis in group}) > 1,
                f"--zip {text}: they have different numbers of values, {counts}.",
            ),
        )
        group_of |= dict.fromkeys(names, group)
    groups = [group_of.get(axis.name, (axis,)) for axis in axes]
    return list({id(group): group for group in groups}.values()) if group_of else groups


def combinations(groups: Sequence[Sequence[Axis]]) -> Iterator[dict[str, str]]:
    """Yield every combination of values, the last axis fastest."""
    rows = [[dict(zip([axis.name for axis in group], row, strict=True))
             for row in zip(*(axis.values for axis in group), strict=True)] for group in groups]  # fmt: skip
    for chosen in product(*rows):
        yield {name: value for row in chosen for name, value in row.items()}


def count(groups: Sequence[Sequence[Axis]]) -> int:
    """Return how many combinations there are."""
    return math.prod(len(group[0].values) for group in groups)


def text_of(values: Values) -> str:
    """Return a point as 'TILE=8 bx=64'."""
    return " ".join(f"{name}={value}" for name, value in values.items())
