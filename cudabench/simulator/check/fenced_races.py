"""Races between blocks over global memory in kernels with fences, or with accesses that have an order of their own.

There every pair of accesses of two blocks to a granule is held against the chains of fences and flags (`check.chains`).
Volatile and ordered accesses do not race, nor do atomics among themselves: they are flags. So is a plain
store over what an atomic has updated, which gives a lock back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.chains import Chains
from cudabench.simulator.check.grid_races import MANY, GridRaces, Trail
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.races import idles
from cudabench.simulator.memory import Region, flat, folded
from cudabench.simulator.values import Affine, Array, Chunk, Value, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


# What a plain access of each kind races with. That an atomic comes after a plain read is not held against anyone: so
# atomics are spared that the value need not get.
AGAINST = {"load": ("store", "atomic"), "store": ("store", "load", "load before"), "atomic": ("store",)}


class FencedRaces(GridRaces):
    """Looks for races between the blocks of one launch of a kernel with fences."""

    def __init__(self, machine: Machine, width: int) -> None:
        super().__init__(machine, width)
        self.chains = Chains(len(self.free) - 1)

    def fence(self, chunk: Chunk, mask: Array | None) -> None:
        """Note a fence of the active lanes."""
        super().fence(chunk, mask)
        if self.looks:
            self.chains.fence(self.numbers(chunk)[self.rows(chunk, mask)])

    def barrier(self) -> None:
        """Note that threads of blocks have met."""
        if self.looks:
            self.chains.barrier()

    def cluster_barrier(self, chunk: Chunk, mask: Array | None, waited: Array) -> None:
        """Note that the active lanes have passed a barrier of their cluster; waited: as there."""
        super().cluster_barrier(chunk, mask, waited)
        if self.looks:
            assert self.cluster is not None
            self.chains.meet(self.numbers(chunk)[self.rows(chunk, mask)], self.cluster)

    def search(
        self,
        access: MemoryOp,
        region: Region,
        address: Value,
        offset: int,
        mask: Array | None,
        data: Sequence[Value],
    ) -> None:
        """Examine and note one access, before it is carried out."""
        chunk, trail, each = self.machine.chunk, self.trail(region), access.size // self.width
        self.chains.now += 1
        places = folded(address, offset, mask, chunk) if access.kind == "load" and type(address) is Affine else None
        if places is not None:
            start, rows = places
            granules, owners = self.granules(start - region.base, self.numbers(chunk)[rows], each)
            if self.load(access, region, trail, granules, owners, None):
                return
        chosen, blocks = self.chosen(chunk, chunk.root if mask is None else mask)
        if not chosen.size:
            return
        start = broadcast(flat(address, offset, chunk), chunk.shape).reshape(-1)[chosen] - region.base
        granules, owners = self.granules(start, blocks, each)
        if access.kind == "load":
            self.load(access, region, trail, granules, owners, chosen)
        elif access.kind == "store":
            self.store(access, region, trail, start, granules, owners, chosen, data)
        else:
            self.atomic(access, region, trail, granules, owners, chosen, data)
        if self.chains.lost and not self.told:
            self.told = True
            self.machine.hazards.unsearched(
                access.location,
                f"races between blocks were not looked for from line {access.location.line} on: {self.chains.lost}: "
                "take a smaller problem",
            )

    def load(
        self, access: MemoryOp, region: Region, trail: Trail, granules: Array, owners: Array, chosen: Array | None
    ) -> bool:
        """Note a load of lanes, and report its races; where lanes are not chosen, return whether there are none."""
        if access.ordered:
            self.look(trail, granules, owners)
            self.chains.hear(region.base, granules, owners, access.acquires)
        lacking = self.lacking(trail, granules, owners)
        bad = {} if access.ordered else self.unordered(access, trail, granules, owners)
        if chosen is None:
            if bad or lacking:
                return False
        else:
            for sign, lanes in lacking.items():
                self.missing_fence(access, region, chosen, granules, lanes, trail, sign)
                for kind in bad:
                    bad[kind] &= ~lanes
            if "store" in bad:
                bad["store"] &= ~self.too_early(access, region, trail, granules, owners, chosen, bad["store"])
            for kind, lanes in bad.items():
                if lanes.any():
                    self.report(access, region, chosen, granules, lanes, kind, trail)
        if access.ordered:
            trail.leave("look", granules, owners, access.numbers["global"], None)
        else:
            self.leave_load(trail, granules, owners, access.numbers["global"])
        return True

    def look(self, trail: Trail, granules: Array, owners: Array) -> None:
        """Note that blocks read flags, and who wrote them."""
        for kind in ("store", "atomic"):
            others = trail.others(kind, granules, owners)
            if others is None:
                continue
            times = trail.at(kind)[granules]
            others &= (times < 0) | (kind == "atomic")
            self.chains.see(owners[others], trail.kinds[kind][0][granules[others]], np.abs(times[others]))

    def too_early(
        self, access: MemoryOp, region: Region, trail: Trail, granules: Array, owners: Array, chosen: Array, bad: Array
    ) -> Array:
        """Report those bad reads that come behind the right flag, and lack but the reader's own fence; return them."""
        at = np.flatnonzero(bad)
        writers, what, _ = (array[granules[at]] for array in trail.kinds["store"])
        early = self.chains.before(owners[at], writers, trail.at("store")[granules[at]], True)
        found: Array = np.zeros(bad.shape, bool)
        found[at[early]] = True
        if early.any():
            chunk, first = self.machine.chunk, int(np.argmax(early))
            lane = int(chosen[at[first] // (granules.size // chosen.size)])
            index, thread = chunk.block_index(lane // chunk.threads), chunk.thread_index(lane % chunk.threads)
            store = self.machine.code.accesses[int(what[first])][0]
            spot = in_region(region, int(granules[at[first]]) * self.width, access.width)
            self.machine.hazards.add(
                "missing-fence", access.location, int(early.sum()), index, thread,
                f"thread {thread} of block {index} reads {spot}, which {self.party(int(writers[first]))} writes in "
                f"line {store.line} and then announces by a flag. The thread has read the flag, but without "
                "__threadfence() before this read: it may get what was there before.",
            )  # fmt: skip
        return found

    def leave_load(self, trail: Trail, granules: Array, owners: Array, number: int) -> None:
        """Note a load: of each granule the block that reads it last, and the one before that."""
        others = trail.others("load", granules, owners)
        if others is not None and others.any():
            places = granules[others]
            last, what, passed = (array[places] for array in trail.kinds["load"])
            times = trail.at("load")[places]
            trail.leave("load before", places, last, 0, self.passed, latest=True)
            trail.kinds["load before"][1][places] = what
            trail.at("load before")[places] = times
            if self.passed is not None:
                trail.kinds["load before"][2][places] = passed
        if trail.leave("load", granules, owners, number, self.passed, latest=True):
            met = trail.kinds["load"][0][granules] != owners
            trail.leave("load before", granules[met], owners[met], number, self.passed, latest=True)
            trail.at("load before")[granules[met]] = self.chains.now
        trail.at("load")[granules] = self.chains.now

    def store(
        self, access: MemoryOp, region: Region, trail: Trail, start: Array, granules: Array, owners: Array,
        chosen: Array, data: Sequence[Value],
    ) -> None:  # fmt: skip
        """Note a store of lanes, and report its races."""
        flags: Array = np.full(granules.shape, access.ordered)
        if not access.ordered and "atomic" in trail.kinds:
            flags = trail.kinds["atomic"][0][granules] != 0
        number, values = access.numbers["global"], None
        if not flags.all():
            values = self.values(access, data, chosen)
            bad = self.unordered(access, trail, granules, owners)
            if self.chains.lost and "store" in trail.kinds:
                writers = trail.kinds["store"][0][granules]
                quiet = (writers > 0) & (writers != owners) & (self.signs[writers] == trail.stamps[2, granules])
                bad = {"store": quiet}
            if bad:
                loud = self.changes(access, region, start, values) & ~flags
                lacking = self.lacking(trail, granules, owners)
                for unfenced in lacking.values():
                    if self.told_of(trail, granules[unfenced & loud]):
                        loud &= ~unfenced
                for kind, lanes in bad.items():
                    if (lanes & loud).any():
                        self.report(access, region, chosen, granules, lanes & loud, kind, trail)
        if self.signed:  # before that all of them are 0
            for stamps, own in zip(trail.stamps, (self.fences, self.atomics, self.signs), strict=True):
                stamps[granules] = own[owners]
        if access.ordered:
            self.signs[different(owners)] += 1
            self.signed = True
        if flags.any():
            self.chains.write(region.base, trail.granules, granules[flags], owners[flags])
        met = trail.leave("store", granules, owners, number, self.passed)
        trail.at("store")[granules] = np.where(flags, -self.chains.now, self.chains.now)
        if met and values is not None:
            each = access.size // self.width // access.count
            self.written_twice(access, region, chosen, granules, owners, np.repeat(values, each, axis=1).reshape(-1))

    def atomic(
        self, access: MemoryOp, region: Region, trail: Trail, granules: Array, owners: Array, chosen: Array,
        data: Sequence[Value],
    ) -> None:  # fmt: skip
        """Note an atomic of lanes, and report its races."""
        mine = different(owners)
        self.atomics[mine] += 1
        self.fenced[mine] = self.fences[mine]
        self.signs[mine] += 1
        self.free[mine] = self.any_free = self.signed = True
        for kind, lanes in self.unordered(access, trail, granules, owners).items():
            self.report(access, region, chosen, granules, lanes, kind, trail)
        if not access.ordered:
            return
        self.look(trail, granules, owners)
        returns = access.target is not None and access.target in self.machine.code.read
        if returns and self.in_vain(access, region, granules, chosen, data):
            self.chains.hear(region.base, granules, owners, True)
        else:
            self.chains.update(region.base, trail.granules, granules, owners, returns)
            trail.leave("atomic", granules, owners, access.numbers["global"], self.passed, latest=True)
            trail.at("atomic")[granules] = self.chains.now
        if returns:
            trail.leave("look", granules, owners, access.numbers["global"], None)

    def add(
        self, access: MemoryOp, region: Region, chosen: Array, granules: Array, place: int, count: int, other: int,
        kind: str, what: Any,
    ) -> None:  # fmt: skip
        """Record the race of one access with another block's."""
        super().add(access, region, chosen, granules, place, count, other, kind.partition(" ")[0], what)

    def in_vain(self, access: MemoryOp, region: Region, granules: Array, chosen: Array, data: Sequence[Value]) -> bool:
        """Return whether an atomic leaves all as it is: one that only reads, or a swap for what is nowhere found."""
        chunk = self.machine.chunk
        operands = [as_array(value, access.dtype, chunk) for value in data]
        if idles(access, operands):
            return True
        if access.update != "cas":
            return False
        places = granules[:: access.size // self.width] * self.width // access.size
        found = region.view(access.dtype)[places]
        return not (found == broadcast(operands[0], chunk.shape).reshape(-1)[chosen]).any()

    def unordered(self, access: MemoryOp, trail: Trail, granules: Array, owners: Array) -> dict[str, Array]:
        """Return by the kind of an earlier access where another block did that, and nothing orders it before this."""
        found: dict[str, Array] = {}
        for kind in AGAINST[access.kind]:
            others = trail.others(kind, granules, owners)
            if others is None or not others.any():
                continue
            at = np.flatnonzero(others)
            places, mine = granules[at], owners[at]
            last = trail.kinds[kind][0][places]
            ordered = self.chains.before(mine, last, trail.at(kind)[places], access.kind != "load")
            if self.passed is not None:
                ordered |= np.asarray(self.before_a_barrier(trail, kind, places, mine))
            if kind == "atomic" and "look" in trail.kinds:
                looked = trail.kinds["look"][0][places]
                ordered |= (looked == mine) | (looked == MANY)
            others[at[ordered]] = False
            if others.any():
                found[kind] = others
        return found

    def lacking(self, trail: Trail, granules: Array, owners: Array) -> dict[str, Array]:
        """Return by what made it known what other blocks wrote and then made known without a fence.

        By an atomic: to blocks that may have waited for that by an atomic of their own. By a flag: to those that have
        seen it.
        """
        if "store" not in trail.kinds:
            return {}
        found: dict[str, Array] = {}
        if self.any_free:
            found["an atomic"] = self.free[owners] & self.without_fence(trail, granules, owners)
        others = trail.others("store", granules, owners)
        if others is not None and self.chains.seen is not None:
            writers, times = trail.kinds["store"][0][granules], trail.at("store")[granules]
            found["a flag"] = others & (times > 0) & self.chains.announced(owners, writers, times)
            if self.any_free:
                found["a flag"] &= ~found["an atomic"]
        for bad in found.values():
            at = np.flatnonzero(bad)
            writers, times = trail.kinds["store"][0][granules[at]], np.abs(trail.at("store")[granules[at]])
            bad[at[self.chains.before(owners[at], writers, times, True)]] = bool(self.chains.lost)
        return {sign: bad for sign, bad in found.items() if bad.any()}

    def told_of(self, trail: Trail, granules: Array) -> bool:
        """Return whether it is told of all stores to some granules that the fence behind them is missing."""
        accesses = self.machine.code.accesses
        stores = different(trail.kinds["store"][1][granules]).tolist()
        return all(self.machine.hazards.known("missing-fence", accesses[number][0]) for number in stores)
