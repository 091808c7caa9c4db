"""Loops that ptxas unrolled further than the PTX: how often each of their bodies runs, by the trips of the lanes."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from cudabench.compile.sass import Function
from cudabench.explain.code_copies import Copies
from cudabench.explain.lane_equations import System


class _Trips(NamedTuple):
    """Trips through a loop that differ by one at most.

    lanes: (trips, lanes that have as many); warps: (trips of the lanes of a warp, such warps), empty where not known.
    """

    lanes: tuple[tuple[int, int], ...]
    warps: tuple[tuple[tuple[int, ...], int], ...] = ()

    def run(self, number: int, size: int, function: Function, system: System) -> _Trips:
        """Note how often a block that is a body of `size` trips runs; return the trips that are left behind it."""
        system.enter(number, sum(left // size * lanes for left, lanes in self.lanes))
        if number in function.blocks[number].successors:
            again = sum(max(left // size - 1, 0) * lanes for left, lanes in self.lanes)
            system.set(("edge", number, number), again)
        if self.warps:
            system.warps[number] = sum(max(left) // size * warps for left, warps in self.warps)
        return _Trips(
            tuple((left % size, lanes) for left, lanes in self.lanes),
            tuple((tuple(one % size for one in left), warps) for left, warps in self.warps),
        )


def _trips(copies: Copies, line: int) -> _Trips | None:
    """Return how often lanes and warps go through the innermost loop around a PTX line; None outside of loops."""
    executions, ran = copies.executions, copies.ran
    around = [loop for loop in copies.text.loops if loop.first <= line <= loop.last]
    if not around:
        return None
    loop = min(around, key=lambda loop: loop.last - loop.first)
    place = bisect_left(ran, loop.first)
    back = [executions[number] for number in loop.back if number in executions]
    entered = executions[ran[place]].lanes - sum(branch.taken for branch in back)
    if not entered:
        return None
    here = executions[line]
    least, more = divmod(here.lanes, entered)
    trips = _Trips(((least, entered - more), (least + 1, more)))
    # A warp has as many trips as the lane with most. Those with lanes of both kinds part once, at the loop's end.
    before = executions[ran[place - 1]] if place else None
    if before is None or before.lanes != entered:
        return trips
    both, longer = sum(branch.parted for branch in back), here.warps - least * before.warps
    if not 0 <= both <= longer <= before.warps:
        return trips
    warps = ((least,), before.warps - longer), ((least, least + 1), both), ((least + 1,), longer - both)
    return trips._replace(warps=warps)


def tell(function: Function, copies: Copies, system: System) -> None:
    """Tell the bodies of a function's unrolled loops from their rests."""
    for line, places in copies.bodies.items():
        # The rest's copies are guarded in blocks that all lanes pass: those of the body that repeats itself are left.
        repeated = {
            number: times
            for (name, number), times in places.items()
            if name == function.name and times > 1 and number in function.blocks[number].successors
        }
        trips = _trips(copies, line)
        if trips and len(repeated) == 1:
            ((number, size),) = repeated.items()
            trips.run(number, size, function, system)
            system.solve()
    for group in (copies.fixed, copies.loads, copies.arithmetic):
        for line, places in group.items():
            bodies = {
                number: times
                for (name, number), times in places.items()
                if name == function.name and system.lanes(number) is None
            }
            trips = _trips(copies, line)
            if trips is None or len(bodies) < (1 if group is copies.arithmetic else 2):
                continue
            ones = [number for number, size in bodies.items() if size == 1]
            largest = max(bodies, key=lambda number: bodies[number])
            if len(ones) == 2 and ones[0] < largest < ones[1]:
                # The first is for lanes that come in with the loop's condition false: a `while` or `for` lacks it.
                system.enter(ones[0], 0)
                del bodies[ones[0]]
            sizes = list(bodies.values())
            for number, size in sorted(bodies.items(), key=lambda body: -body[1]):
                if sizes.count(size) > 1 and any(left and lanes for left, lanes in trips.lanes):
                    break  # which of the two runs is not to be told
                trips = trips.run(number, size, function, system)
            system.solve()
