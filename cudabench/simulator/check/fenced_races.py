"""Races between blocks over global memory in kernels with fences, or with accesses that have an order of their own.

There every pair of accesses of two blocks to a granule is held against the chains of fences and flags (`check.chains`).
Volatile and ordered accesses are no party of a race, nor are atomics among themselves: they are flags. So is a plain
store over what an atomic has updated, which gives a lock back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.chains import Chains
from cudabench.simulator.check.grid_races import MANY, GridRaces, Trail
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
                f"races between blocks were not looked for from line {access.location.line} on: {self.chains.lost}",
            )

    def load(
        self, access: MemoryOp, region: Region, trail: Trail, granules: Array, owners: Array, chosen: Array | None
    ) -> bool:
        """Note a load of lanes, and report its races; where lanes are not chosen, return whether there are none."""
        if access.ordered:
            self.chains.hear(region.base, granules, owners, access.acquires)
        lacking = self.lacking(trail, granules, owners)
        bad = {} if access.ordered else self.unordered(access, trail, granules, owners)
        if chosen is None:
            if bad or lacking is not None:
                return False
        elif lacking is not None:
            self.missing_fence(access, region, chosen, granules, lacking, trail)
        if chosen is not None:
            for kind, lanes in bad.items():
                lanes = lanes if lacking is None else lanes & ~lacking
                if lanes.any():
                    self.report(access, region, chosen, granules, lanes, kind, trail)
        if access.ordered:
            trail.leave("look", granules, owners, access.numbers["global"], None)
        else:
            self.leave_load(trail, granules, owners, access.numbers["global"])
        return True

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
                if lacking is not None and self.told_of(trail, granules[lacking & loud]):
                    loud &= ~lacking
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

    def lacking(self, trail: Trail, granules: Array, owners: Array) -> Array | None:
        """Return what other blocks wrote and then made known by an atomic without a fence; None where there is none.

        Only blocks count that may have waited for that by an atomic of their own.
        """
        if not self.any_free or "store" not in trail.kinds:
            return None
        bad = self.free[owners] & self.without_fence(trail, granules, owners)
        if bad.any():
            at = np.flatnonzero(bad)
            writers = trail.kinds["store"][0][granules[at]]
            times = np.abs(trail.at("store")[granules[at]])
            bad[at[self.chains.before(owners[at], writers, times, True)]] = bool(self.chains.lost)
        return bad if bad.any() else None

    def told_of(self, trail: Trail, granules: Array) -> bool:
        """Return whether it is told of all stores to some granules that the fence behind them is missing."""
        accesses = self.machine.code.accesses
        stores = different(trail.kinds["store"][1][granules]).tolist()
        return all(self.machine.hazards.known("missing-fence", accesses[number][0]) for number in stores)
