"""Races between blocks over global memory.

Blocks run in any order and at once, and nothing in a launch orders them but what they do to each other: atomics, fences
and accesses that are volatile or have an order of their own. Kernels with fences or such accesses are examined by
`check.fenced_races`. In the others a block is left alone from its first atomic on, since it may then have waited for
another: but not where a block overwrites with another value what the other wrote last of all, since nothing that this
did afterwards can have been waited for. So what is reported is a race, and not every race is found.

A block that counts itself by an atomic, so that the last one may read what all have written, needs a fence between
writing and counting (CUDA C++ Programming Guide, "Memory Fence Functions"): whether it had one is looked for in every
kernel.

A barrier of a cluster orders its blocks (PTX ISA, "barrier.cluster": arrive releases and wait acquires, unless told
otherwise): what one did before is no race with what another does behind.

Each granule of a region that the kernel writes remembers the last block that wrote, read and updated it. Two blocks
that write the same value do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.hazards import VERBS
from cudabench.simulator.check.places import in_region
from cudabench.simulator.memory import Region, flat, folded
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Affine, Array, Chunk, Value, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MOST_LANES = 1 << 20  # of a launch that is examined; the time of an access grows with them
MOST_GRANULES = 1 << 24  # of a region
MANY = np.int32(-1)  # blocks
BETWEEN_BLOCKS = 4  # how far the cure of such a race has to reach: see `races`
# What an access of each kind races with
AGAINST = {"load": ("store", "atomic"), "store": ("store", "load", "atomic"), "atomic": ("store", "load")}


class Trail:
    """For each granule of a region the last block, as its number from 1 on, that accessed it, and with what."""

    def __init__(self, granules: int) -> None:
        self.granules = granules
        # By kind of access: the block, the access, how many barriers of its cluster the block had passed.
        self.kinds: dict[str, tuple[Array, Array, Array]] = {}
        self.times: dict[str, Array] = {}

    @cached_property
    def stamps(self) -> Array:
        """Of the last store of each granule: how many fences, atomics and signs its block had behind it."""
        return np.zeros((3, self.granules), np.int32)

    def at(self, kind: str) -> Array:
        """Return when each granule was accessed so last, as of `Chains`; negative for what does not race."""
        if kind not in self.times:
            self.times[kind] = np.zeros(self.granules, np.int32)
        return self.times[kind]

    def others(self, kind: str, granules: Array, blocks: Array) -> Array | None:
        """Return whether another block did this to each granule, or None where none did."""
        found = self.kinds.get(kind)
        if found is None:
            return None
        last = found[0][granules]
        return (last != 0) & (last != blocks)

    def leave(
        self, kind: str, granules: Array, blocks: Array, access: int, passed: Array | None, latest: bool = False
    ) -> bool:
        """Note who accessed what, and return whether blocks met in this one access.

        passed: how many barriers of its cluster each block has passed; None for none. latest: whether the last block
        alone is kept, as it is of stores.
        """
        if kind not in self.kinds:
            last, what = np.zeros((2, self.granules), np.int32)
            never = np.int32(0)
            self.kinds[kind] = (last, what, np.broadcast_to(never, self.granules))
        last, what, when = self.kinds[kind]
        if passed is not None:
            if not when.flags.writeable:  # the first since a block passed a barrier of its cluster
                when = when.copy()
                self.kinds[kind] = (last, what, when)
            when[granules] = passed[blocks]
        before = None if latest or kind == "store" else last[granules]
        last[granules] = blocks
        meeting = last[granules] != blocks
        met = bool(meeting.any())
        if before is None:
            what[granules] = access
            return met
        several = (before != 0) & (before != blocks)
        what[granules[~several]] = access  # what another block did before stays
        if met:
            several |= meeting
        last[granules[several]] = MANY
        return met


class GridRaces:
    """Looks for races between the blocks of one launch."""

    def __init__(self, machine: Machine, width: int) -> None:
        x, y, z = machine.grid
        bx, by, bz = machine.block
        self.machine, self.width = machine, width
        blocks = x * y * z
        lanes = blocks * bx * by * bz
        self.looks = blocks > 1 and lanes <= MOST_LANES
        self.told = False  # whether it is told where the search ends
        self.large: set[int] = set()  # regions that are too large
        if blocks > 1 and lanes > MOST_LANES and machine.code.written:
            machine.hazards.unsearched(
                machine.code.accesses[0][0],
                f"races between blocks are looked for in at most {MOST_LANES} threads: take a smaller problem",
                "too-large",
            )
        self.free = np.zeros(blocks + 1 if self.looks else 0, dtype=bool)  # which may have waited for others
        self.any_free = False
        self.origin: Any = None  # of the chunk whose blocks have these numbers:
        self.numbered: Array = None
        # The mask of the latest access, its lanes and their blocks: the next one's is often the same.
        self.latest: tuple[Any, Array, Array] | None = None
        self.trails: dict[int, Trail] = {}
        # Of each block: its fences, its atomics, the fences before its last atomic, and all that another may wait for.
        self.fences, self.atomics, self.fenced, self.signs = np.zeros((4, blocks + 1 if self.looks else 0), np.int32)
        self.signed = False  # whether any block has any of these
        self.updated: set[int] = set()  # regions with an atomic, such as those of locks
        self.passed: Array | None = None  # by block the barriers of its cluster that it has passed, once there are any
        self.cluster: Array = None  # by block the number of its cluster

    def barrier(self) -> None:
        """Note that threads of blocks have met: of what other blocks did it tells nothing."""

    def fence(self, chunk: Chunk, mask: Array | None) -> None:
        """Note a fence of the active lanes."""
        if self.looks:
            mine = self.numbers(chunk)[self.rows(chunk, mask)]
            self.fences[mine] += 1
            self.signs[mine] += 1
            self.signed = True

    def cluster_barrier(self, chunk: Chunk, mask: Array | None, waited: Array) -> None:
        """Note that the active lanes have passed a barrier of their cluster.

        waited: how many each lane of the chunk has passed by now.
        """
        if not self.looks:
            return
        self.fence(chunk, mask)
        if self.passed is None:
            x, y, _ = self.machine.grid
            wide, high, deep = self.machine.plan.cluster or (1, 1, 1)
            place = np.arange(-1, len(self.fences) - 1)
            across = -(-x // wide)
            self.cluster = place % x // wide + across * (
                place // x % y // high + -(-y // high) * (place // (x * y) // deep)
            )
            self.passed = np.zeros(len(self.fences), np.int32)
        rows = self.rows(chunk, mask)
        self.passed[self.numbers(chunk)[rows]] = broadcast(waited, chunk.shape).max(axis=1)[rows]

    def before_a_barrier(self, trail: Trail, kind: str, granules: Array, blocks: Array) -> Array | bool:
        """Return whether a barrier of the cluster stands between the last access of each granule and its block.

        Where several blocks accessed it last, they may all be of the cluster: so they count as such.
        """
        if self.passed is None:
            return False
        last, _, when = (array[granules] for array in trail.kinds[kind])
        ordered: Array = (self.cluster[last] == self.cluster[blocks]) & (when < self.passed[blocks])
        return ordered | (last == MANY)

    def rows(self, chunk: Chunk, mask: Array | None) -> Array:
        """Return which blocks of a chunk have an active lane."""
        every: Array = np.ones((1, 1), dtype=bool)
        return broadcast(every if mask is None else mask, chunk.shape).any(axis=1)

    def log(
        self,
        access: MemoryOp,
        region: Region,
        address: Value,
        offset: int,
        mask: Array | None,
        data: Sequence[Value],
    ) -> None:
        """Examine and note one access, before it is carried out."""
        if not self.looks:
            return
        if region.size > MOST_GRANULES * self.width:
            if region.base not in self.large:
                self.large.add(region.base)
                self.machine.hazards.unsearched(
                    access.location,
                    f"races between blocks are looked for in arrays of at most {MOST_GRANULES * self.width} bytes, and "
                    f"'{region.name}' has {region.size}: take a smaller problem",
                    "too-large",
                )
            return
        self.search(access, region, address, offset, mask, data)

    def search(
        self,
        access: MemoryOp,
        region: Region,
        address: Value,
        offset: int,
        mask: Array | None,
        data: Sequence[Value],
    ) -> None:
        """Examine and note one access of a launch that is not too large, before it is carried out."""
        chunk = self.machine.chunk
        if access.kind == "load" and self.alone(access, region, address, offset, mask):
            return
        lanes = chunk.root if mask is None else mask
        chosen, blocks = self.chosen(chunk, lanes)
        if access.kind == "atomic":
            mine = self.numbers(chunk)[self.rows(chunk, lanes)]
            self.atomics[mine] += 1
            self.fenced[mine] = self.fences[mine]
            self.signs[mine] += 1
            self.signed = True
            self.updated.add(region.base)
        held: Array = None  # the lanes whose blocks cannot have waited for others: all, unless told
        if self.any_free:
            held = ~self.free[blocks]
        if access.kind == "atomic":
            self.free[blocks] = self.any_free = True
        elif access.kind == "load" and held is not None:
            self.unfenced(access, region, address, offset, chosen[~held], blocks[~held])
            chosen, blocks = chosen[held], blocks[held]
            held = None
        if not chosen.size:
            return
        start = broadcast(flat(address, offset, chunk), chunk.shape).reshape(-1)[chosen] - region.base
        each = access.size // self.width
        granules, owners = self.granules(start, blocks, each)
        trail = self.trail(region)
        values: Array = None
        free: Array = None  # lanes whose blocks may have waited for others, None for none
        if access.kind == "store":
            plain = region.base not in self.updated
            if self.any_free:
                free = self.free[blocks]
                free = free if free.any() else None
            if plain and free is not None:
                self.overwrites(access, region, start, chosen, granules, owners, data, trail)
            if self.signed:  # before that all of them are 0
                for stamps, own in zip(trail.stamps, (self.fences, self.atomics, self.signs), strict=True):
                    stamps[granules] = own[owners]
        if free is not None:
            # Who may have waited for others races with no more than that, but what it writes is noted.
            inner = np.repeat(free, each)
            met = trail.leave("store", granules[inner], owners[inner], access.numbers["global"], self.passed)
            if met and plain:
                values = np.repeat(self.values(access, data, chosen[free]), each // access.count, axis=1).reshape(-1)
                self.written_twice(access, region, chosen[free], granules[inner], owners[inner], values)
            chosen, blocks, start = chosen[~free], blocks[~free], start[~free]
            held = held if held is None else held[~free]
            if not chosen.size:
                return
            granules, owners = granules[np.repeat(~free, each)], owners[np.repeat(~free, each)]
        loud: Array = True if held is None else np.repeat(held, each)
        if access.kind == "store":
            values = self.values(access, data, chosen)
            loud = loud & self.changes(access, region, start, values)
            values = np.repeat(values, each // access.count, axis=1).reshape(-1)
        for kind in AGAINST[access.kind]:
            others = trail.others(kind, granules, owners)
            if others is not None:
                others = others & ~np.asarray(self.before_a_barrier(trail, kind, granules, owners))
            if others is not None and (others & loud).any():
                self.report(access, region, chosen, granules, others & loud, kind, trail)
        met = trail.leave(access.kind, granules, owners, access.numbers["global"], self.passed)
        if met and values is not None:
            self.written_twice(access, region, chosen, granules, owners, values)

    def alone(self, access: MemoryOp, region: Region, address: Value, offset: int, mask: Array | None) -> bool:
        """Note a load of lanes that share places, and return whether that is done: not where it may be a race."""
        if self.any_free or type(address) is not Affine:
            return False
        chunk = self.machine.chunk
        found = folded(address, offset, mask, chunk)
        if found is None:
            return False
        places, rows = found
        granules, owners = self.granules(places - region.base, self.numbers(chunk)[rows], access.size // self.width)
        trail = self.trail(region)
        for kind in AGAINST["load"]:
            others = trail.others(kind, granules, owners)
            if others is not None and others.any():
                return False
        trail.leave("load", granules, owners, access.numbers["global"], self.passed)
        return True

    def trail(self, region: Region) -> Trail:
        """Return who accessed a region."""
        found = self.trails.get(region.base)
        if found is None:
            found = self.trails[region.base] = Trail(-(-region.size // self.width))
        return found

    def granules(self, start: Array, blocks: Array, each: int) -> tuple[Array, Array]:
        """Return the granules of accesses from bytes on, so many each, and the blocks that they are of."""
        granules = start // self.width
        if each > 1:
            return (granules[:, None] + np.arange(each)).reshape(-1), np.repeat(blocks, each)
        return granules, blocks

    def overwrites(
        self,
        access: MemoryOp,
        region: Region,
        start: Array,
        chosen: Array,
        granules: Array,
        owners: Array,
        data: Sequence[Value],
        trail: Trail,
    ) -> None:
        """Report another value in the place of what another block wrote and has given no sign of since."""
        if "store" not in trail.kinds:
            return
        writers = trail.kinds["store"][0][granules]
        bad = (writers > 0) & (writers != owners) & (self.signs[writers] == trail.stamps[2, granules])
        if bad.any():
            bad &= self.changes(access, region, start, self.values(access, data, chosen))
        if bad.any():
            self.report(access, region, chosen, granules, bad, "store", trail)

    def changes(self, access: MemoryOp, region: Region, start: Array, values: Array) -> Array:
        """Return for each granule of a store whether its element gets another value than it has."""
        place = (start // access.width)[:, None] + np.arange(access.count)
        changed = region.view(values.dtype)[place] != values
        return np.repeat(changed, access.size // self.width // access.count, axis=1).reshape(-1)

    def unfenced(
        self, access: MemoryOp, region: Region, address: Value, offset: int, chosen: Array, blocks: Array
    ) -> None:
        """Report reads of what another block wrote and then made known by an atomic without a fence in between."""
        trail = self.trails.get(region.base)
        if not chosen.size or trail is None or "store" not in trail.kinds:
            return
        chunk = self.machine.chunk
        start = broadcast(flat(address, offset, chunk), chunk.shape).reshape(-1)[chosen] - region.base
        each = access.size // self.width
        granules = ((start // self.width)[:, None] + np.arange(each)).reshape(-1)
        bad = self.without_fence(trail, granules, np.repeat(blocks, each))
        if bad.any():
            self.missing_fence(access, region, chosen, granules, bad, trail)

    def without_fence(self, trail: Trail, granules: Array, owners: Array) -> Array:
        """Return what other blocks wrote and then made known by an atomic without a fence in between."""
        writers = trail.kinds["store"][0][granules]
        fences, atomics = trail.stamps[:2, granules]
        bad: Array = (writers > 0) & (writers != owners)
        return bad & (self.atomics[writers] > atomics) & (self.fenced[writers] <= fences)

    def missing_fence(
        self, access: MemoryOp, region: Region, chosen: Array, granules: Array, bad: Array, trail: Trail,
        sign: str = "an atomic",
    ) -> None:  # fmt: skip
        """Record reads of what was made known without a fence."""
        chunk, place = self.machine.chunk, int(np.argmax(bad))
        writers, what, _ = (array[granules] for array in trail.kinds["store"])
        lane = int(chosen[place // (granules.size // chosen.size)])
        index, thread = chunk.block_index(lane // chunk.threads), chunk.thread_index(lane % chunk.threads)
        store = self.machine.code.accesses[int(what[place])][0]
        spot = in_region(region, int(granules[place]) * self.width, access.width)
        self.machine.hazards.add(
            "missing-fence", store, int(different(granules[bad]).size), index, thread,
            f"{self.party(int(writers[place]))} writes {spot} and then {sign}, without __threadfence() in between; "
            f"thread {thread} of block {index} reads it in line {access.location.line} and may get what was there "
            "before. Put __threadfence() between the write and the atomic.",
        )  # fmt: skip

    def party(self, number: int) -> str:
        """Return what messages call a block, by its number from 1 on."""
        x, y, _ = self.machine.grid
        return f"block {((number - 1) % x, (number - 1) // x % y, (number - 1) // (x * y))}"

    def chosen(self, chunk: Chunk, mask: Array | None) -> tuple[Array, Array]:
        """Return the lanes of a mask, and the number of the block that each of them is in."""
        if self.latest is None or self.latest[0] is not mask or self.origin != (chunk.origin, chunk.extent):
            every: Array = np.ones((1, 1), dtype=bool)
            lanes = np.flatnonzero(broadcast(every if mask is None else mask, chunk.shape))
            self.latest = mask, lanes, self.numbers(chunk)[lanes // chunk.threads]
        return self.latest[1:]

    def numbers(self, chunk: Chunk) -> Array:
        """Return the number of each block of a chunk in the grid, from 1 on."""
        place = chunk.origin, chunk.extent
        if self.origin != place:
            x, y, _ = self.machine.grid
            own = chunk.block_indices()
            self.origin, self.latest = place, None
            self.numbered = (own[0] + x * (own[1] + y * own[2]) + 1).astype(np.int32)
        return self.numbered

    def values(self, access: MemoryOp, data: Sequence[Value], chosen: Array) -> Array:
        """Return the bits that lanes store, (lanes, elements)."""
        chunk = self.machine.chunk
        bits = np.dtype(f"u{access.width}")
        columns = [broadcast(as_array(value, bits, chunk), chunk.shape).reshape(-1)[chosen] for value in data]
        return np.stack(columns, axis=1)

    def written_twice(
        self, access: MemoryOp, region: Region, chosen: Array, granules: Array, owners: Array, values: Array
    ) -> None:
        """Report granules that blocks give different values with one and the same store."""
        order = np.argsort(granules, kind="stable")
        later, earlier = order[1:], order[:-1]
        bad = (granules[later] == granules[earlier]) & (owners[later] != owners[earlier])
        bad &= values[later] != values[earlier]
        if bad.any():
            place, other = int(later[bad][0]), int(earlier[bad][0])
            self.add(access, region, chosen, granules, place, int(bad.sum()), int(owners[other]), "store", access)

    def report(
        self, access: MemoryOp, region: Region, chosen: Array, granules: Array, bad: Array, kind: str, trail: Trail
    ) -> None:
        """Report an access to what other blocks accessed."""
        place = int(np.argmax(bad))
        last, what, _ = (array[granules[place]] for array in trail.kinds[kind])
        lanes = bad.reshape(chosen.size, -1).any(axis=1)
        self.add(access, region, chosen, granules, place, int(lanes.sum()), int(last), kind, int(what))

    def add(
        self,
        access: MemoryOp,
        region: Region,
        chosen: Array,
        granules: Array,
        place: int,
        count: int,
        other: int,
        kind: str,
        what: Any,
    ) -> None:
        """Record the race of one access with another block's."""
        machine, chunk = self.machine, self.machine.chunk
        lane = int(chosen[place // (granules.size // chosen.size)])
        block, thread = chunk.block_index(lane // chunk.threads), chunk.thread_index(lane % chunk.threads)
        location = access.location if what is access else machine.code.accesses[what][0]
        line = "the same line" if location.line == access.location.line else f"line {location.line}"
        party = "another block" if other == MANY else self.party(other)
        spot = in_region(region, int(granules[place]) * self.width, access.width)
        text = (
            f"thread {thread} of block {block} {VERBS[access.kind]} {spot}, which {party} {VERBS[kind]} in {line}; "
            f"blocks run in any order: {self.cure(access, kind, location)}."
        )
        machine.hazards.add("race", access.location, count, block, thread, text, BETWEEN_BLOCKS)

    def cure(self, access: MemoryOp, kind: str, location: Location) -> str:
        """Return what mends the race of an access with one of a kind by another block."""
        if {access.location.ptx_line, location.ptx_line} <= self.machine.global_races.updated:
            return "they update one element, which takes an atomic, such as atomicAdd() or atomicMax()"
        kinds = {access.kind, kind}
        if kinds == {"store"}:
            return "let each of them write to places of its own, or use an atomic"
        if "atomic" in kinds:
            return "use an atomic in both lines, or another launch"
        return "read it in another launch, or, where the old value is meant, write to another array"
