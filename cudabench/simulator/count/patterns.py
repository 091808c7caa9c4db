"""What the lanes of a warp do with one memory instruction: side by side, in steps, all at one place, anywhere.

A pattern is that of most warps which were looked at: of an address that is linear in threadIdx all warps of a block, of
others some, in the first executions of the instruction and then ever more rarely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from cudabench.simulator.memory import HALF_SLOT
from cudabench.simulator.values import Array

Kind = Literal["single", "broadcast", "contiguous", "rows", "stride", "permutation", "gather"]
SECTOR_SHIFT, LINE_SHIFT = 5, 7
SECTOR, LINE = 1 << SECTOR_SHIFT, 1 << LINE_SHIFT  # bytes
MOST_WARPS = 32  # a block's; of more, SOME_WARPS are looked at
SOME_WARPS = 8


class Pattern(NamedTuple):
    """How the active lanes of a warp's request lie to each other, in the order of the lanes.

    kind: one lane alone; all or groups of lanes at one place; neighbours; rows of neighbours that lie apart; a step of
    more than an element; neighbours in another order; anything else. stride: bytes from a lane to the next, in a run;
    run: lanes until the stride breaks; jump: bytes from the start of a run to that of the next, 0 where that varies or
    there is one run. offset: of the lowest address after a multiple of 128 bytes, in the first warp; varies: whether
    other warps start elsewhere in their sector. lanes: active ones. axes: bytes that a step of threadIdx.x, y and z
    makes, or None for an address that is not linear in them. gaps: whether lanes between the active ones are off.
    """

    kind: Kind
    stride: int = 0
    run: int = 32
    jump: int = 0
    offset: int = 0
    varies: bool = False
    lanes: int = 32
    axes: tuple[int, int, int] | None = None
    gaps: bool = False


class Look:
    """A pattern that was looked at, and the addresses of one warp that has it: bytes, None for inactive lanes.

    least: the lowest of them, None without any.
    """

    __slots__ = ("example", "least", "pattern")

    def __init__(self, pattern: Pattern, example: tuple[int | None, ...] = ()) -> None:
        self.pattern, self.example = pattern, example
        self.least = min((place for place in example if place is not None), default=None)


class Shape(NamedTuple):
    """The part of a pattern that one warp shows."""

    kind: Kind
    stride: int
    run: int
    jump: int


def shape(addresses: list[int], size: int, lanes: Sequence[int] = ()) -> Shape:
    """Return how a warp's active lanes lie to each other.

    addresses: theirs, in bytes; size: bytes of a lane; lanes: which they are, where there are others between them.
    """
    count = len(addresses)
    if count == 1:
        return Shape("single", 0, 1, 0)
    if max(addresses) - min(addresses) >= HALF_SLOT:  # in several arrays
        return Shape("gather", 0, 32, 0)
    if lanes:
        # Neighbours of which some are off are neighbours, whatever lies between the others.
        step, rest = divmod(addresses[1] - addresses[0], lanes[1] - lanes[0])
        if not rest and all(a - addresses[0] == step * (b - lanes[0]) for a, b in zip(addresses, lanes, strict=True)):
            return Shape(_named(step, size), step, 32, 0)
    steps = [after - before for before, after in pairwise(addresses)]
    first = steps[0]
    run = next((lane for lane, step in enumerate(steps, 1) if step != first), count)
    if run == count:
        return Shape(_named(first, size), first, 32, 0)
    different = set(addresses)
    if len(different) == count and max(different) - min(different) == (count - 1) * size:
        return Shape("permutation", 0, 32, 0)
    step, times = Counter(steps).most_common(1)[0]
    if 2 * times < count:
        # Pairs of lanes have one step within and one between them.
        pairs = [after - before for before, after in zip(addresses[::2], addresses[2::2], strict=False)]
        inner = set(steps[::2])
        if len(inner) == 1 and len(set(pairs)) == 1:
            kind = _named(first, size)
            return Shape("rows" if kind == "contiguous" else kind, first, 2, pairs[0])
        return Shape("gather", 0, 32, 0)
    breaks = [lane for lane, one in enumerate(steps, 1) if one != step]
    starts = [0, *breaks, count]
    lengths = [after - before for before, after in pairwise(starts)]
    run = max(lengths)
    # Runs that follow a whole one begin where it would go on, so that a warp may begin and end within a run.
    jumps = {steps[at - 1] + step * (run - 1) for at in breaks}
    regular = len(jumps) == 1 and all(length == run for length in lengths[1:-1])
    jump = jumps.pop() if regular else 0
    kind = _named(step, size)
    if kind == "stride" and not regular and 4 * run < count:
        return Shape("gather", 0, 32, 0)  # steps of two kinds in no order, as on a slanting line
    if kind == "contiguous" and not (regular and jump == 0):  # the same run again and again is one run
        kind = "rows"
    return Shape(kind, step, run, jump)


def _named(step: int, size: int) -> Kind:
    return "broadcast" if step == 0 else "contiguous" if abs(step) == size else "stride"


BROADCAST = Look(Pattern("broadcast"))
ONE_PLACE = {1: Look(Pattern("single", lanes=1)), **{n: Look(Pattern("broadcast", lanes=n)) for n in range(2, 33)}}
NEIGHBOURS = {size: Look(Pattern("contiguous", size)) for size in (1, 2, 4, 8, 16)}
UNKNOWN = Look(Pattern("gather"))


def look(
    rows: Array, mask: Array | None, size: int, axes: tuple[int, int, int] | None = None, starts: Array = None
) -> Look:
    """Return the pattern of most warps, and an example.

    rows: byte addresses (warps, 32); mask: active lanes, same shape, or None; size: bytes of a lane; axes: see
    `Pattern`; starts: what blocks add to the addresses, or None for nothing.
    """
    first = rows[:, 0] if mask is None else rows[mask[:, 0], 0]
    varies = len(first) > 1 and bool(((first - first[0]) % SECTOR).any())
    if len(rows) > MOST_WARPS:
        some = slice(0, None, -(-len(rows) // SOME_WARPS) | 1)  # odd, to meet all residues
        rows, mask = rows[some], None if mask is None else mask[some]
    if mask is None:
        mask = np.ones(rows.shape, np.bool_)
    else:
        some_on = mask.any(axis=1)
        rows, mask = rows[some_on], mask[some_on]
    if not len(rows):
        return UNKNOWN
    steps = np.where(mask, rows - np.take_along_axis(rows, mask.argmax(axis=1)[:, None], axis=1), 0)
    known: dict[tuple[bytes, bytes], tuple[Shape, int, bool]] = {}  # by what is told of a warp
    places: dict[tuple[Shape, int, bool], list[int]] = {}
    for place in range(len(rows)):
        key = steps[place].tobytes(), mask[place].tobytes()
        if key not in known:
            on = np.flatnonzero(mask[place]).tolist()
            apart = on if on[-1] - on[0] >= len(on) else []  # the active lanes, where others between them are off
            known[key] = shape(rows[place, on].tolist(), size, apart), len(on), bool(apart)
        places.setdefault(known[key], []).append(place)
    told = max(places, key=lambda each: len(places[each]))
    chosen, lanes, gaps = told
    place = places[told][0]
    example = tuple(at if on else None for at, on in zip(rows[place].tolist(), mask[place].tolist(), strict=True))
    offset = int(rows[0, mask[0]].min())
    if starts is not None:
        offset += int(starts.flat[0])
        varies = varies or bool(((starts - starts.flat[0]) % SECTOR).any())
    if chosen.kind == "gather":
        offset, varies = 0, True
    return Look(Pattern(*chosen, offset % LINE, varies, lanes, axes, gaps), example)
