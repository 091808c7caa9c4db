"""What lanes did, from the warps that the native engine looked at: the counts as `count.counters` has them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.count.counters import NOWHERE, Place, Row
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
from cudabench.simulator.values import Array, Index3

if TYPE_CHECKING:
    from cudabench.simulator.plan import Plan

_BITS = np.arange(LANES, dtype=np.uint32)


def looks(library: Any, handle: Any) -> tuple[Array, Array]:
    """Return what warps of a launch that has ended did, and where those of its first block went."""
    found = []
    for read, record in ((library.cudabench_looks, layout.LOOK), (library.cudabench_visits, layout.VISIT)):
        read.restype = ctypes.c_int64
        count = read(handle, None, ctypes.c_int64(0))
        rows = np.zeros(count, record)
        read(handle, ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(count))
        found.append(rows)
    return found[0], found[1]


def rows(
    counts: Array, seen: Array, visits: Array, plan: Plan, issued: Mapping[int, tuple[int, int]]
) -> dict[tuple[int, Place], Row]:
    """Return the counts by memory instruction and array; of one whose lanes went to several arrays, one row for all.

    counts: by memory instruction and array; seen, visits: of `looks`; issued: see `Counters`.
    """
    found: dict[tuple[int, Place], Row] = {}
    for number, access in enumerate(plan.code.accesses):
        places = counts["requests"][number].nonzero()[0].tolist()
        if not places:
            continue
        place: Place = NOWHERE if access.space == "local" else places[0] if len(places) == 1 else tuple(places)
        row = found[number, place] = Row(number, place)
        totals = [int(counts[name][number].sum()) for name in ("requests", "pieces", "ideal")]
        row.reloads = int(counts["reloads"][number].sum())
        mine = seen[seen["number"] == number], visits[visits["number"] == number]
        _Told(row, plan, issued.get(number, (0, access.size))[1], *mine).fill(totals)
    return found


class _Told:
    """What is known of one row: the looks of its warps, and where the first block's went."""

    def __init__(self, row: Row, plan: Plan, size: int, seen: Array, visits: Array) -> None:
        access = plan.code.accesses[row.number]
        self.row, self.space, self.size, self.seen = row, access.space, size, seen
        self.by_data = access.location.ptx_line in plan.ways.led_by_data
        self.atomic = access.kind == "atomic"
        self.visits = visits[np.argsort(visits["turn"], kind="stable")]
        self.threads = _threads(plan.block)
        self.axes = None if self.by_data else _axes(self.visits[self.visits["turn"] == 0], self.threads)

    def fill(self, totals: Sequence[int]) -> None:
        """Give the row its looks, whose counts come to the totals, and where its executions went."""
        groups: dict[Any, list[int]] = {}
        for place, one in enumerate(self.seen):
            groups.setdefault(self.key(one), []).append(place)
        counted = [self.seen[places] for places in groups.values()] or [None]
        parts = [
            _shared_out(total, [1 if some is None else int(some[name].sum()) for some in counted])
            for total, name in zip(totals, ("requests", "pieces", "ideal"), strict=True)
        ]
        for some, *many in zip(counted, *parts, strict=True):
            found = UNKNOWN if some is None else self.look(some)
            mine = self.row.looks.setdefault(found, [0, 0, 0])
            for place, more in enumerate(many):
                mine[place] += more
        if self.space == "global" and not self.atomic:
            self.follow()

    def key(self, one: Any) -> Any:
        """Return what tells the look of some warps from others."""
        if one["kind"] != layout.WARP or self.space == "local":
            return int(one["kind"]), int(one["mask"]) if one["kind"] == layout.ONE_PLACE else 0
        on, addresses = _lanes(one["mask"]), one["addresses"]
        apart = on.tolist() if on[-1] - on[0] >= len(on) else []
        return shape(addresses[on].tolist(), self.size, apart), len(on), bool(apart)

    def look(self, some: Array) -> Look:
        """Return the look of warps that have one key."""
        first = some[0]
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
            one = Shape("broadcast", 0, 32, 0) if lanes > 1 else Shape("single", 0, 1, 0)
            moved = moves and bool((some["addresses"][:, 0] - start).any())
            return Look(
                Pattern(*one, start % LINE, moved, lanes, (0, 0, 0)), (start,) * lanes + (None,) * (LANES - lanes)
            )
        on = (some["mask"][:, None] >> _BITS & 1).astype(np.bool_)
        found = look(some["addresses"], on, self.size, None if self.atomic or self.space == "constant" else self.axes)
        varies = found.pattern.varies or bool(some["varies"].any())
        return Look(found.pattern._replace(varies=varies), found.example)

    def follow(self) -> None:
        """Note where the executions of the first block went."""
        if any(one["kind"] == layout.ONE_PLACE and not one["varies"] for one in self.seen):
            return  # one place for all has no step, as the NumPy engine has it
        for visit in self.visits[self.visits["warp"] == 0]:
            on = _lanes(visit["mask"])
            if self.axes is None:
                mask = np.zeros(LANES, np.bool_)
                mask[on] = True
                self.row.sent(visit["addresses"], mask)
            else:
                thread = self.threads[int(on[0])]
                self.row.went(int(visit["addresses"][on[0]]) - int(np.dot(self.axes, thread)))


def _lanes(mask: Any) -> Array:
    return np.flatnonzero(np.uint32(mask) >> _BITS & 1)


def _threads(block: Index3) -> Array:
    """Return threadIdx of all threads of a block: (threads, 3)."""
    number = np.arange(block[0] * block[1] * block[2])
    return np.stack([number % block[0], number // block[0] % block[1], number // (block[0] * block[1])], axis=1)


def _axes(visits: Array, threads: Array) -> Steps | None:
    """Return the bytes that a step of threadIdx.x, y and z makes where addresses are linear in them, else None.

    visits: the first of each warp.
    """
    if not len(visits):
        return None
    number = [int(visit["warp"]) * LANES + _lanes(visit["mask"]) for visit in visits]
    places = np.concatenate([visit["addresses"][_lanes(visit["mask"])] for visit in visits])
    index = threads[np.concatenate(number)]
    index, places = index - index[0], places - places[0]
    steps = [0, 0, 0]
    for axis in range(3):
        # A thread that differs from the first one along this axis, and else along those that are known.
        some = np.flatnonzero((index[:, axis] != 0) & (index[:, axis + 1 :] == 0).all(axis=1))
        if len(some):
            at = some[0]
            steps[axis], rest = divmod(int(places[at] - index[at] @ np.array(steps)), int(index[at, axis]))
            if rest:
                return None
    return None if (index @ np.array(steps) != places).any() else (steps[0], steps[1], steps[2])


def _shared_out(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole numbers of a sum that are as the weights are, by largest remainder."""
    if not sum(weights):
        return [total, *[0] * (len(weights) - 1)]
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    most_left = sorted(range(len(weights)), key=lambda place: -(total * weights[place] % whole))
    for place in most_left[: total - sum(parts)]:
        parts[place] += 1
    return parts
