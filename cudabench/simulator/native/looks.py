"""Converts the counts of the native engine to those of `count.counters`, with the access patterns of sampled warps.

A look is a record of an access pattern with an example (`layout.LOOK`). A turn is one execution of an instruction by a
block (`layout.TURN`). A visit is where a warp of the first block went in one turn (`layout.VISIT`).
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.count.counters import ALWAYS_SEEN, NOWHERE, Place, Row
from cudabench.simulator.count.patterns import (
    BROADCAST,
    LINE,
    NEIGHBOURS,
    ONE_PLACE,
    UNKNOWN,
    Look,
    Pattern,
    Shape,
    look,
    shape,
)
from cudabench.simulator.count.requests import LANES, Steps
from cudabench.simulator.native import layout
from cudabench.simulator.values import Array, Index3, Key

if TYPE_CHECKING:
    from cudabench.simulator.plan import Plan

MOST_SEEN = 8  # this many sampled launches may wait before their rows are computed
_BITS = np.arange(LANES, dtype=np.uint32)


class Seen(NamedTuple):
    """What the sampled blocks of a launch did: arrays of LOOK, TURN and VISIT records of `layout`."""

    looks: Array
    turns: Array
    visits: Array

    def by_number(self) -> Mapping[int, Seen]:
        """Return the turns and visits of each memory instruction, sorted by turn, keyed by the instruction's number.

        An instruction without records gets an empty `Seen`.
        """
        looks, turns, visits = self
        turns = turns[np.lexsort((turns["look"], turns["turn"], looks["number"][turns["look"]]))]
        visits = visits[np.lexsort((visits["turn"], visits["number"]))]
        apart = looks["number"][turns["look"]], visits["number"]
        numbers = np.unique(np.concatenate(apart))
        starts, ends = ([own.searchsorted(numbers, side).tolist() for own in apart] for side in ("left", "right"))
        by_number = {
            number: Seen(looks, turns[starts[0][at] : ends[0][at]], visits[starts[1][at] : ends[1][at]])
            for at, number in enumerate(numbers.tolist())
        }
        return defaultdict(lambda: Seen(looks, turns[:0], visits[:0]), by_number)


class Rows:
    """The rows of a kernel's memory instructions as they were sampled last; they are computed when `made` is called.

    `seen`: how many sampled launches wait for this.
    """

    def __init__(self, before: Rows | None = None, counts: LaneCounts | None = None) -> None:
        self._before, self._counts = before, counts
        self._made: Mapping[tuple[int, Place, int], Row] = {}
        self.seen: int = 0 if before is None else before.seen + 1
        if self.seen > MOST_SEEN:
            self.made()

    def made(self) -> Mapping[tuple[int, Place, int], Row]:
        """Return the rows, keyed by (memory instruction, array, bytes per lane); they must not be changed."""
        if self._before is not None and self._counts is not None:
            self._made = {**self._before.made(), **self._counts.looked_at()}
            self._before = self._counts = None
            self.seen = 0
        return self._made


@dataclass
class Known:
    """What is known from the earlier launches of a kernel with one block size.

    `launches`: how many there were; `strayed`: how many launches in succession had an instruction that accessed an
    array which it had not accessed before; `went`: keys that tell which instructions accessed which arrays; `rows`:
    the rows as they were sampled last.
    """

    launches: int = 0
    strayed: int = 0
    went: set[Key] = field(default_factory=set)
    rows: Rows = field(default_factory=Rows)


class LaneCounts(NamedTuple):
    """The counts of a launch for each memory instruction and array, and the access patterns of its lanes.

    Patterns are sampled in the first launches of a kernel, and then in fewer and fewer of them, as the NumPy engine
    does with the executions of an instruction. Other launches get the patterns that were sampled last.
    """

    counts: Array  # records of `layout.COUNTS`, of shape (memory instructions, arrays)
    plan: Plan
    issued: Mapping[int, tuple[int, int]]  # see `Counters`
    seen: Seen | None  # what was sampled in this launch; None if it was not sampled
    last: Rows  # the rows of the last sampled launch, whose patterns a launch that was not sampled gets

    def rows(self) -> dict[tuple[int, Place], Row]:
        """Return the rows, keyed by (memory instruction, array).

        If the lanes of an instruction accessed several arrays, it has one row, whose array is a tuple.
        """
        return {(number, place): row for (number, place, _), row in self.looked_at().items()}

    def looked_at(self) -> dict[tuple[int, Place, int], Row]:
        """Return the rows, keyed by (memory instruction, array, bytes per lane)."""
        each = {} if self.seen is None else self.seen.by_number()
        sums = (
            self.counts.view(np.int64).reshape(*self.counts.shape, len(layout.COUNTS.names or ())).sum(axis=1).tolist()
        )
        arrays: dict[int, list[int]] = {}
        for number, at in np.argwhere(_went(self.counts)).tolist():
            arrays.setdefault(number, []).append(at)
        rows = {}
        for number, places in arrays.items():
            access = self.plan.code.accesses[number]
            place: Place = NOWHERE if access.space == "local" else places[0] if len(places) == 1 else tuple(places)
            size = self.issued.get(number, (0, access.size))[1]
            row = rows[number, place, size] = Row(number, place)
            *totals, _, row.reloads, _ = sums[number]
            if self.seen is not None:
                _Looked(row, self.plan, size, each[number]).fill(totals)
            else:
                last = self.last.made()[number, place, size]
                row.looks = dict(zip(last.looks, _parts(totals, [*last.looks.values()]), strict=True))
                row.first, row.step = last.first, last.step
        return rows


def due(plan: Plan) -> bool:
    """Count the next launch of a plan; return whether it must be sampled, as far as this is known before the launch."""
    known = plan.code.looked.setdefault(plan.block, Known())
    known.launches += 1
    return known.strayed > 2 or known.launches <= ALWAYS_SEEN or not known.launches & (known.launches - 1)


def lane_counts(
    library: Any, handle: Any, counts: Array, plan: Plan, issued: Mapping[int, tuple[int, int]], looked: bool
) -> LaneCounts | None:
    """Return the `LaneCounts` of a launch that has ended.

    counts: as in `LaneCounts`; looked: whether the launch was sampled. Return None if it was not, but accessed arrays
    that no sampled launch has accessed: then it must run again with sampling.
    """
    known = plan.code.looked[plan.block]
    there = _went(counts)
    exact = there.tobytes(), *issued.items()
    went = {exact}
    if looked or exact not in known.went:  # a key that stays equal for the same regions when the address space grows
        went.add((*(indices.tobytes() for indices in np.nonzero(there)), *issued.items()))
    strays = went.isdisjoint(known.went)
    known.strayed = known.strayed + 1 if strays else 0
    if not looked and strays:
        return None
    known.went |= went
    if not looked:
        return LaneCounts(counts, plan, issued, None, known.rows)
    seen = LaneCounts(counts, plan, issued, _seen(library, handle), known.rows)
    known.rows = Rows(known.rows, seen)
    return seen._replace(seen=None, last=known.rows)


def _went(counts: Array) -> Array:
    """Return a mask of shape (memory instructions, arrays): whether lanes of the instruction accessed the array."""
    return (counts["requests"] | counts["beside"]) != 0


def _seen(library: Any, handle: Any) -> Seen:
    """Return what was sampled in a launch that has ended."""
    counts = ctypes.c_int64(), ctypes.c_int64()
    library.cudabench_looks(handle, None, ctypes.byref(counts[0]), None, ctypes.byref(counts[1]))
    looks, turns = np.zeros(counts[0].value, layout.LOOK), np.zeros(counts[1].value, layout.TURN)
    into, beside = (ctypes.c_void_p(array.ctypes.data) for array in (looks, turns))
    library.cudabench_looks(handle, into, ctypes.byref(counts[0]), beside, ctypes.byref(counts[1]))
    library.cudabench_visits.restype = ctypes.c_int64
    visits = np.zeros(library.cudabench_visits(handle, None, ctypes.c_int64(0)), layout.VISIT)
    library.cudabench_visits(handle, ctypes.c_void_p(visits.ctypes.data), ctypes.c_int64(len(visits)))
    return Seen(looks, turns, visits)


class _Looked:
    """Fills one row from what was sampled: the looks of its warps, and where those of the first block went."""

    def __init__(self, row: Row, plan: Plan, size: int, seen: Seen) -> None:
        access = plan.code.accesses[row.number]
        self.row, self.space, self.size = row, access.space, size
        self.by_data = access.location.ptx_line in plan.ways.led_by_data
        self.atomic = access.kind == "atomic"
        self.looks, self.turns, self.visits = seen
        self.threads = _threads(plan.block)
        self.axes = None if self.by_data else _axes(self.visits[self.visits["turn"] == 0], self.threads)

    def fill(self, totals: Sequence[int]) -> None:
        """Fill in the row's looks with their counts, and the addresses of its executions.

        totals: the row's requests, pieces and ideal pieces, which are divided among the looks.
        """
        counted: dict[Any, list[int]] = {}  # [requests, pieces, ideal pieces], by the key of a look
        numbers = dict.fromkeys(self.turns["look"].tolist())
        keys = {number: self.key(self.looks[number]) for number in numbers}
        of: dict[Any, list[int]] = {}  # the numbers of the looks with each key
        for number, key in keys.items():
            of.setdefault(key, []).append(number)
        for number, group in groupby(self.turns.tolist(), itemgetter(1)):
            turn = [(keys[look], many) for look, _, *many in group]
            for key, many in turn if number == layout.MOST_TURNS else [_as_most(turn)]:
                own = counted.setdefault(key, [0, 0, 0])
                own[:] = map(add, own, many)
        looks = [*map(self.look, (self.looks[of[key]] for key in counted))] or [UNKNOWN]
        for each, many in zip(looks, _parts(totals, [*counted.values()] or [[1, 1, 1]]), strict=True):
            own = self.row.looks.setdefault(each, [0, 0, 0])
            own[:] = map(add, own, many)
        if self.space == "global" and not self.atomic:
            self.follow()

    def key(self, record: Any) -> Any:
        """Return a key for a look record; looks with equal keys count as one pattern."""
        if record["kind"] != layout.WARP or self.space == "local":
            return int(record["kind"]), int(record["mask"]) if record["kind"] == layout.ONE_PLACE else 0
        on, addresses = _lanes(record["mask"]), record["addresses"]
        apart = on.tolist() if on[-1] - on[0] >= len(on) else []
        return shape(addresses[on].tolist(), self.size, apart), len(on), bool(apart)

    def look(self, records: Array) -> Look:
        """Return the `Look` for all look records with one key."""
        first = records[0]
        lanes = int(first["mask"])
        if first["kind"] == layout.REST:
            return UNKNOWN
        if self.space == "local":
            uniform = first["kind"] == layout.ONE_PLACE and lanes == LANES
            return NEIGHBOURS.get(self.size, UNKNOWN) if uniform else UNKNOWN
        if first["kind"] == layout.ONE_PLACE:
            moves = bool(first["varies"]) and self.space == "global"
            if not (moves or (self.space == "shared" and self.size > 4)) or self.atomic or self.by_data:
                return BROADCAST if lanes == LANES else ONE_PLACE[lanes]
            start = int(first["addresses"][0])
            same = Shape("broadcast", 0, 32, 0) if lanes > 1 else Shape("single", 0, 1, 0)
            moved = moves and bool((records["addresses"][:, 0] - start).any())
            return Look(
                Pattern(*same, start % LINE, moved, lanes, (0, 0, 0)), (start,) * lanes + (None,) * (LANES - lanes)
            )
        on = (records["mask"][:, None] >> _BITS & 1).astype(np.bool_)
        looked = look(
            records["addresses"], on, self.size, None if self.atomic or self.space == "constant" else self.axes
        )
        varies = looked.pattern.varies or bool(records["varies"].any())
        return Look(looked.pattern._replace(varies=varies), looked.example)

    def follow(self) -> None:
        """Record the addresses of the first block's executions in the row, from which it gets its step."""
        looked = self.looks[self.turns["look"]]
        if ((looked["kind"] == layout.ONE_PLACE) & (looked["varies"] == 0)).any():
            return  # if all lanes access one address, this row has no step, as on the NumPy engine
        for visit in self.visits[self.visits["warp"] == 0]:
            on = _lanes(visit["mask"])
            if self.axes is None:
                mask = np.zeros(LANES, np.bool_)
                mask[on] = True
                self.row.sent(visit["addresses"], mask)
            else:
                thread = self.threads[int(on[0])]
                self.row.went(int(visit["addresses"][on[0]]) - int(np.dot(self.axes, thread)))


def _as_most(turn: list[tuple[Any, list[int]]]) -> tuple[Any, list[int]]:
    """Return the key that most requests of a turn have, and the sums of all counts of the turn.

    The NumPy engine also gives each execution only one pattern.
    """
    requests: dict[Any, int] = {}
    for key, many in turn:
        requests[key] = requests.get(key, 0) + many[0]
    return max(requests, key=lambda key: requests[key]), [*map(sum, zip(*(many for _, many in turn), strict=True))]


def _lanes(mask: Any) -> Array:
    return np.flatnonzero(np.uint32(mask) >> _BITS & 1)


@lru_cache(64)
def _threads(block: Index3) -> Array:
    """Return threadIdx of all threads of a block, of shape (threads, 3)."""
    number = np.arange(block[0] * block[1] * block[2])
    return np.stack([number % block[0], number // block[0] % block[1], number // (block[0] * block[1])], axis=1)


def _axes(visits: Array, threads: Array) -> Steps | None:
    """Return by how many bytes the address grows if threadIdx.x, y or z grows by 1; None if it is not linear in them.

    visits: the first visit of each warp; threads: from `_threads`.
    """
    if not len(visits):
        return None
    warp, lane = np.nonzero(visits["mask"][:, None] >> _BITS & 1)
    index, places = threads[visits["warp"][warp] * LANES + lane], visits["addresses"][warp, lane]
    index, places = index - index[0], places - places[0]
    steps = [0, 0, 0]
    for axis in range(3):
        # Find threads that differ from the first one along this axis, and otherwise only along axes before it.
        steps_along = np.flatnonzero((index[:, axis] != 0) & (index[:, axis + 1 :] == 0).all(axis=1))
        if len(steps_along):
            at = steps_along[0]
            steps[axis], rest = divmod(int(places[at] - index[at] @ np.array(steps)), int(index[at, axis]))
            if rest:
                return None
    return None if (index @ np.array(steps) != places).any() else (steps[0], steps[1], steps[2])


def _parts(totals: Sequence[int], weights: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return [requests, pieces, ideal pieces] of each look: the totals, divided in proportion to the looks' weights."""
    if len(weights) == 1:
        return [[*totals]]
    each = [_shared_out(total, [weight[place] for weight in weights]) for place, total in enumerate(totals)]
    return [[*many] for many in zip(*each, strict=True)]


def _shared_out(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole numbers with sum `total`, in proportion to the weights (largest remainder method)."""
    if not sum(weights):
        return [total, *[0] * (len(weights) - 1)]
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    most_left = sorted(range(len(weights)), key=lambda place: -(total * weights[place] % whole))
    for place in most_left[: total - sum(parts)]:
        parts[place] += 1
    return parts
