"""Races between blocks over global memory, in kernels that have fences or accesses with a memory order.

For each access to a granule and the last accesses of other blocks to it, `check.chains` tells whether fences and flags
order them. Accesses that are flags do not race: volatile accesses, accesses with a memory order, and two atomics. A
plain store over a value that an atomic has updated counts as a flag, too, because it releases a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.check.grid_races import MANY, GridRaces, Touch, Trail
from cudabench.simulator.check.races import idles
from cudabench.simulator.values import Array, Chunk, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

# For each kind of access: the kinds of earlier accesses that it races with. An atomic after a plain read is not
# reported, because the read does not need the value that the atomic writes.
AGAINST = {"load": ("store", "atomic"), "store": ("store", "load", "load before"), "atomic": ("store",)}
MOST_UNFENCED = 1 << 20  # more stores than this are not followed until their thread executes a fence


class Unfenced(NamedTuple):
    """Stores of threads that have executed no fence or barrier since.

    With an element for each granule: its number, the number of the block, and the lane's index in the chunk. time: when
    they were made.
    """

    trail: Trail
    granules: Array
    owners: Array
    lanes: Array
    time: int

    def only(self, chosen: Array, time: int) -> Unfenced:
        """Return some of the stores; `chosen`: a bool for each granule, `time`: their new time."""
        return Unfenced(self.trail, self.granules[chosen], self.owners[chosen], self.lanes[chosen], time)


class FencedRaces(GridRaces):
    """Looks for races between the blocks of one launch of a kernel with fences."""

    def __init__(self, machine: Machine, width: int) -> None:
        super().__init__(machine, width)
        self.unfenced: list[Unfenced] = []
        self.alone: set[int] = set()  # numbers of the stores that only other threads of the block followed by a fence

    def fence(self, chunk: Chunk, mask: Array | None) -> None:
        """Record a fence that the lanes of `mask` execute.

        It does not order what other threads of the block have stored since their last barrier: these stores count as
        made after the fence.
        """
        super().fence(chunk, mask)
        if not self.unfenced:
            return
        fencing = chunk.lanes(mask)
        concerned = np.zeros(self.chains.blocks + 1, bool)
        concerned[self.numbers(chunk)[fencing.any(axis=1)]] = True
        self.chains.now += 1
        later = []
        for stores in self.unfenced:
            others = ~fencing.reshape(-1)[stores.lanes]
            late = others & concerned[stores.owners]
            last, numbers, _, times = stores.trail.kinds["store"]
            late &= (last[stores.granules] == stores.owners) & (times[stores.granules] == stores.time)
            times[stores.granules[late]] = self.chains.now
            self.alone.update(different(numbers[stores.granules[late]]).tolist())
            later += [stores.only(late, self.chains.now), stores.only(others & ~concerned[stores.owners], stores.time)]
        self.unfenced = [stores for stores in later if stores.granules.size]

    def synchronize(self) -> None:
        """Record that threads of a block may have synchronized: a later fence of one orders the stores of all."""
        self.unfenced.clear()

    def fence_cure(self, touch: Touch, place: int, sign: str) -> str:
        """Return where to put a fence after the last store to a granule; `sign`: "atomic" or "flag"."""
        if int(touch.trail.kinds["store"][1][touch.granules[place]]) not in self.alone:
            return super().fence_cure(touch, place, sign)
        return (
            "The __threadfence() of another thread does not order this write, since no barrier stands between them: "
            "execute __threadfence() in every thread that writes, or after the barrier."
        )

    def search(self, touch: Touch) -> None:
        """Report the races of an access with earlier ones and record it, before it is executed."""
        if not touch.start.size:
            return
        {"load": self.load, "store": self.store, "atomic": self.atomic}[touch.access.kind](touch)
        if self.chains.lost and not self.told:
            self.told = True
            location = touch.access.location
            self.machine.hazards.unsearched(
                location,
                f"races between blocks were not looked for from line {location.line} on: {self.chains.lost}: "
                "take a smaller problem",
            )

    def load(self, touch: Touch) -> None:
        """Report the races of a load, and record it."""
        access = touch.access
        if access.ordered:
            self.look(touch)
            self.chains.hear(touch.region.base, touch.granules, touch.owners, access.acquires)
        unfenced = self.lacking(touch)
        bad = {} if access.ordered else self.unordered(touch)
        for sign, lanes in unfenced.items():
            self.missing_fence(touch, lanes, sign)
            for kind in bad:
                bad[kind] &= ~lanes
        if "store" in bad:
            bad["store"] &= ~self.too_early(touch, bad["store"])
        for kind, lanes in bad.items():
            self.report(touch, lanes, kind)
        if access.ordered:
            self.leave(touch, "look")
            return
        # For each granule, keep the last block that read it ("load") and the last other block before that one ("load
        # before").
        trail, granules, owners = touch.trail, touch.granules, touch.owners
        others = touch.others("load")
        if others is not None and others.any():
            places = granules[others]
            trail.kinds["load before"][:, places] = trail.kinds["load"][:, places]
        if self.leave(touch, "load", latest=True):
            replaced = touch.last("load") != owners
            number = access.numbers["global"]
            trail.leave(
                "load before", granules[replaced], owners[replaced], number, self.passed, self.chains.now, latest=True
            )

    def look(self, touch: Touch) -> None:
        """Record in `chains` which blocks read flags, and which other blocks wrote these flags."""
        for kind in ("store", "atomic"):
            others = touch.others(kind)
            if others is not None:
                times = touch.times(kind)
                others &= (times < 0) | (kind == "atomic")
                self.chains.see(touch.owners[others], touch.last(kind)[others], np.abs(times[others]))

    def too_early(self, touch: Touch, bad: Array) -> Array:
        """Report the reads that follow the correct flag, but lack the reader's own fence; return which these are.

        bad: whether each granule's read races with a store; the result has the same shape.
        """
        early = self.earlier(touch, bad)
        if early.any():
            place = int(np.argmax(early))
            block, thread, spot = self.told_place(touch, place)
            party, location = self.party(touch, place, "store")
            self.machine.hazards.add(
                "missing-fence", touch.access.location, int(early.sum()), block, thread,
                f"thread {thread} of block {block} reads {spot}, which {party} writes in line {location.line} and then "
                "announces by a flag. The thread has read the flag, but without __threadfence() before this read: it "
                "may get what was there before.",
            )  # fmt: skip
        return early

    def earlier(self, touch: Touch, chosen: Array) -> Array:
        """Return for each granule whether its last store would be ordered before the read if the reader had a fence.

        chosen: the granules to examine; the others get False.
        """
        ordered: Array = np.zeros(chosen.shape, bool)
        indices = np.flatnonzero(chosen)
        last, _, _, times = touch.trail.kinds["store"][:, touch.granules[indices]]
        ordered[indices] = self.chains.before(touch.owners[indices], last, np.abs(times), True)
        return ordered

    def flag_is_early(self, touch: Touch, place: int) -> bool:
        """Return whether the reader of a granule has read a flag that its last writer wrote before the granule."""
        last, _, _, time = touch.trail.kinds["store"][:, touch.granules[place]].tolist()
        seen = self.chains.seen
        return seen is not None and last != MANY and 0 < int(seen[touch.owners[place], last]) < time

    def store(self, touch: Touch) -> None:
        """Report the races of a store, and record it."""
        access, trail, granules, owners = touch.access, touch.trail, touch.granules, touch.owners
        hazards, accesses = self.machine.hazards, self.machine.code.accesses
        flags: Array = np.full(granules.shape, access.ordered)
        if not access.ordered and "atomic" in trail.kinds:
            flags = touch.last("atomic") != 0
        plain = not flags.all()
        if plain:
            bad = self.unordered(touch)
            if self.chains.lost and "store" in trail.kinds:
                bad = {"store": self.quiet(touch)}
            if bad:
                reportable = self.changes(touch) & ~flags
                for unfenced in self.lacking(touch).values():
                    # If a missing fence is already reported for all these earlier stores, report no race as well.
                    stores = different(trail.kinds["store"][1][granules[unfenced & reportable]]).tolist()
                    if all(hazards.known("missing-fence", accesses[number].location) for number in stores):
                        reportable &= ~unfenced
                for kind, lanes in bad.items():
                    self.report(touch, lanes & reportable, kind)
        if flags.any():
            self.chains.write(touch.region.base, trail.granules, granules[flags], owners[flags])
        overlap = self.leave(touch, "store")
        trail.kinds["store"][3][granules[flags]] = -self.chains.now
        if plain:
            if sum(stores.granules.size for stores in self.unfenced) > MOST_UNFENCED:
                self.unfenced.clear()
            lanes = np.repeat(touch.chosen, granules.size // touch.chosen.size)
            self.unfenced.append(
                Unfenced(trail, granules, owners, lanes, self.chains.now).only(~flags, self.chains.now)
            )
        if access.ordered:
            self.chains.now += 1
            self.signs[owners] = self.chains.now
        if overlap and plain:
            self.written_twice(touch)

    def atomic(self, touch: Touch) -> None:
        """Report the races of an atomic, and record it."""
        access, base, owners = touch.access, touch.region.base, touch.owners
        self.sign(owners)
        for kind, lanes in self.unordered(touch).items():
            self.report(touch, lanes, kind)
        if access.narrow:  # for other blocks it is a plain access
            self.leave(touch, "store")
        if not access.ordered:
            return
        self.look(touch)
        returns = access.target is not None and access.target in self.machine.code.read
        if returns and self.in_vain(touch):
            self.chains.hear(base, touch.granules, owners, True)
        else:
            self.chains.update(base, touch.trail.granules, touch.granules, owners, returns)
            self.leave(touch, "atomic", latest=True)
        if returns:
            self.leave(touch, "look")

    def in_vain(self, touch: Touch) -> bool:
        """Return whether an atomic changes no value.

        It is one like `atomicAdd(p, 0)`, or a compare-and-swap in which no lane finds its expected value.
        """
        access, chunk = touch.access, self.machine.chunk
        operands = [as_array(value, access.dtype, chunk) for value in touch.data]
        if idles(access, operands):
            return True
        if access.update != "cas":
            return False
        places = touch.granules[:: access.size // self.width] * self.width // access.size
        current = touch.region.view(access.dtype)[places]
        return not (current == broadcast(operands[0], chunk.shape).reshape(-1)[touch.chosen]).any()

    def unordered(self, touch: Touch) -> dict[str, Array]:
        """Return the races of an access: by the kind of the earlier access, a mask of the granules.

        A granule is in the mask if another block made the earlier access and nothing orders the two. Kinds without
        races are left out.
        """
        races: dict[str, Array] = {}
        for kind in AGAINST[touch.access.kind]:
            others = touch.others(kind)
            if others is None or not others.any():
                continue
            indices = np.flatnonzero(others)
            places, owners = touch.granules[indices], touch.owners[indices]
            last, _, _, times = touch.trail.kinds[kind][:, places]
            ordered = self.chains.before(owners, last, times, touch.access.kind != "load")
            ordered |= self.before_a_barrier(touch.trail, kind, places, owners)
            if kind == "atomic" and "look" in touch.trail.kinds:
                readers = touch.trail.kinds["look"][0][places]
                ordered |= (readers == owners) | (readers == MANY)
            others[indices[ordered]] = False
            if others.any():
                races[kind] = others
        return races

    def lacking(self, touch: Touch) -> dict[str, Array]:
        """Return masks of the granules that other blocks wrote and then announced without a fence in between.

        The keys are "an atomic" (the reading block has executed an atomic, so it may have waited for the writer's) and
        "a flag" (the reading block has read a flag that the writer wrote later). Empty masks are left out.
        """
        if "store" not in touch.trail.kinds:
            return {}
        unfenced: dict[str, Array] = {}
        if self.any_free:
            unfenced["an atomic"] = self.free[touch.owners] & self.without_fence(touch)
        others = touch.others("store")
        if others is not None and self.chains.seen is not None:
            times = touch.times("store")
            unfenced["a flag"] = others & (times > 0) & (self.chains.seen[touch.owners, touch.last("store")] > times)
            if self.any_free:
                unfenced["a flag"] &= ~unfenced["an atomic"]
        if not self.chains.lost:
            unfenced = {sign: bad & ~self.earlier(touch, bad) for sign, bad in unfenced.items()}
        return {sign: bad for sign, bad in unfenced.items() if bad.any()}
