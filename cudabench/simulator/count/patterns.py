"""Access patterns of a warp's lanes in one memory instruction: contiguous, strided, broadcast, scattered.

The pattern of an execution of an instruction is the pattern that most of the examined warps have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from cudabench.simulator.memory import HALF_SLOT
from cudabench.simulator.values import Array

Kind = Literal["single", "broadcast", "contiguous", "rows", "stride", "permutation", "gather"]
SECTOR_SHIFT, LINE_SHIFT = 5, 7
SECTOR, LINE = 1 << SECTOR_SHIFT, 1 << LINE_SHIFT  # bytes
MOST_WARPS = 32  # if there are more warps than this, only about SOME_WARPS are examined
SOME_WARPS = 8


class Pattern(NamedTuple):
    """How the addresses of a warp's active lanes relate to each other, in the order of the lanes.

    `kind`: "single", one active lane; "broadcast", all lanes, or groups of lanes, at one address; "contiguous",
    neighbouring elements; "rows", runs of neighbouring elements with gaps between them; "stride", a constant step of
    more than an element; "permutation", neighbouring elements in another order; "gather", anything else.
    """

    kind: Kind
    stride: int = 0  # bytes from a lane to the next, within a run
    run: int = 32  # how many successive lanes have this stride
    # Bytes from the start of one run to the start of the next; 0 if there is one run, or if the distance varies.
    jump: int = 0
    offset: int = 0  # the lowest address in the first warp, modulo 128 bytes
    varies: bool = False  # whether other warps begin at a different offset within a sector
    lanes: int = 32  # the number of active lanes
    axes: tuple[int, int, int] | None = None  # `requests.Steps`; None if the address is not linear in threadIdx
    gaps: bool = False  # whether there are inactive lanes between active lanes


@dataclass(frozen=True)
class PatternExample:
    """A pattern with an example. Two are equal if they have the same pattern.

    `example`: the byte address of each lane of one warp with this pattern, None for inactive lanes; may be empty.
    """

    pattern: Pattern
    example: tuple[int | None, ...] = field(default=(), compare=False)

    @property
    def least(self) -> int | None:
        """The lowest address in the example, None if it is empty."""
        return min((place for place in self.example if place is not None), default=None)


def shape(addresses: list[int], size: int, lanes: Sequence[int] = ()) -> Pattern:
    """Return how the addresses of a warp's active lanes relate to each other, as the first four fields of a pattern.

    addresses: one byte address per active lane; size: bytes per lane; lanes: the numbers of the active lanes, if there
    are inactive lanes between them.
    """
    count = len(addresses)
    if count == 1:
        return Pattern("single", 0, 1, 0)
    if max(addresses) - min(addresses) >= HALF_SLOT:  # the lanes access several arrays
        return Pattern("gather", 0, 32, 0)
    if lanes:
        # If addresses grow by a constant step per lane, the pattern is regular, even if some lanes are inactive.
        step, rest = divmod(addresses[1] - addresses[0], lanes[1] - lanes[0])
        if not rest and all(a - addresses[0] == step * (b - lanes[0]) for a, b in zip(addresses, lanes, strict=True)):
            return Pattern(_kind(step, size), step, 32, 0)
    steps = [after - before for before, after in pairwise(addresses)]
    first = steps[0]
    run = next((lane for lane, step in enumerate(steps, 1) if step != first), count)
    if run == count:
        return Pattern(_kind(first, size), first, 32, 0)
    different = set(addresses)
    if len(different) == count and max(different) - min(different) == (count - 1) * size:
        return Pattern("permutation", 0, 32, 0)
    step, times = Counter(steps).most_common(1)[0]
    if 2 * times < count:
        # Perhaps the lanes form pairs: then one step is constant within pairs, and another from pair to pair.
        pairs = [after - before for before, after in zip(addresses[::2], addresses[2::2], strict=False)]
        inner = set(steps[::2])
        if len(inner) == 1 and len(set(pairs)) == 1:
            kind = _kind(first, size)
            return Pattern("rows" if kind == "contiguous" else kind, first, 2, pairs[0])
        return Pattern("gather", 0, 32, 0)
    breaks = [lane for lane, current in enumerate(steps, 1) if current != step]
    starts = [0, *breaks, count]
    lengths = [after - before for before, after in pairwise(starts)]
    run = max(lengths)
    # A jump is measured from the start of a full run, since a warp may begin and end within a run.
    jumps = {steps[lane - 1] + step * (run - 1) for lane in breaks}
    regular = len(jumps) == 1 and all(length == run for length in lengths[1:-1])
    jump = jumps.pop() if regular else 0
    kind = _kind(step, size)
    if kind == "stride" and not regular and 4 * run < count:
        return Pattern("gather", 0, 32, 0)  # irregular, such as two different steps along a diagonal
    if kind == "contiguous" and not (regular and jump == 0):  # with jump 0, all runs are at the same addresses
        kind = "rows"
    return Pattern(kind, step, run, jump)


def _kind(step: int, size: int) -> Kind:
    return "broadcast" if step == 0 else "contiguous" if abs(step) == size else "stride"


ONE_PLACE = {
    1: PatternExample(Pattern("single", lanes=1)),
    **{n: PatternExample(Pattern("broadcast", lanes=n)) for n in range(2, 33)},
}
NEIGHBOURS = {size: PatternExample(Pattern("contiguous", size)) for size in (1, 2, 4, 8, 16)}
UNKNOWN = PatternExample(Pattern("gather"))


def most_common_pattern(
    rows: Array, mask: Array, size: int, axes: tuple[int, int, int] | None = None
) -> PatternExample:
    """Return the pattern that most warps have, with an example.

    rows: byte addresses, of shape (warps, 32); mask: the active lanes, of the same shape, at least one for each warp;
    size: bytes per lane; axes: as in `Pattern`.
    """
    first = rows[mask[:, 0], 0]
    varies = len(first) > 1 and bool(((first - first[0]) % SECTOR).any())
    # An odd step, so that even and odd warps occur.
    step = 1 if len(rows) <= MOST_WARPS else -(-len(rows) // SOME_WARPS) | 1
    warps: dict[tuple[Pattern, int, bool], list[int]] = {}
    for warp in range(0, len(rows), step):
        on = np.flatnonzero(mask[warp]).tolist()
        # `shape` needs the numbers of the active lanes only if there are gaps between them.
        gapped = on if on[-1] - on[0] >= len(on) else []
        warps.setdefault((shape(rows[warp, on].tolist(), size, gapped), len(on), bool(gapped)), []).append(warp)
    commonest = max(warps, key=lambda pattern: len(warps[pattern]))
    chosen, lanes, gaps = commonest
    warp = warps[commonest][0]
    example = tuple(place if on else None for place, on in zip(rows[warp].tolist(), mask[warp].tolist(), strict=True))
    offset = int(rows[0, mask[0]].min())
    if chosen.kind == "gather":
        offset, varies = 0, True
    return PatternExample(Pattern(*chosen[:4], offset % LINE, varies, lanes, axes, gaps), example)
