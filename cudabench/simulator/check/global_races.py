"""Races within a block over global memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.fenced_races import FencedRaces
from cudabench.simulator.check.grid_races import GridRaces
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.races import (
    LOG_BYTES,
    LOG_LENGTH,
    Conflict,
    Fence,
    LogEntry,
    Races,
    WarpSync,
    narrow_all,
    narrow_any,
    uniform,
    widest,
)
from cudabench.simulator.check.releases import WORD
from cudabench.simulator.check.shadow import Shadow, WarpOrder
from cudabench.simulator.memory import SLOT_BITS, Region, flat, folded
from cudabench.simulator.program.code import SYMBOL_BIT
from cudabench.simulator.values import INT64, Affine, Array, Chunk, Key, Value, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MOST_MARKED = 1 << 20  # granules whose writers are marked all at once
BLOCK_BITS = 44  # granules of a region
LEAST_SPAN = 1 << 15  # granules that a shadow has room for without being asked which of them are touched


class GlobalRaces(Races):
    """Races between threads of one block over global memory."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.width = min(machine.code.granule["global"], 8)
        self.clean = machine.plan.clean_global
        self.written = written_regions(machine, machine.code.written)
        self.by_region: dict[int, list[LogEntry | WarpSync]] = {}
        self.order = 0
        self.grid_races = (FencedRaces if machine.code.orders else GridRaces)(machine, self.width)

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        self.chunk = chunk
        self.by_region = {}
        self.bytes = 0
        self.count = 0
        self.writes: set[int] = set()

    def log(
        self,
        access: MemoryOp,
        region: Region,
        address: Value,
        offset: int,
        mask: Array | None,
        data: Sequence[Value],
    ) -> None:
        """Log an access to a region that some access of the kernel may write."""
        if self.written is not None and region.base not in self.written:
            return
        if access.polls:
            self.machine.departures.wait(self.machine.lanes())
        if self.machine.stale.used:
            self.machine.stale.note(access, region, address, offset, mask)
        if access.guess:
            return
        polls, heard = False, None
        if self.machine.releases is not None:
            words = -(-region.size >> WORD)
            polls, heard = self.note_strong(region.base, words, access, address, offset - region.base, mask, data)
        self.grid_races.log(access, region, address, offset, mask, data)
        if self.machine.locks is not None and access.kind != "atomic":
            mask = self.machine.locks.outside(mask)
            if not mask.any():
                return
        if type(address) is Affine:
            active: Hashable = True  # threads that differ from block to block: known where the log is examined
            if mask is None or mask is self.chunk.root:
                active = None
            elif mask.shape[0] == 1:
                active = mask.tobytes()
            key: Key | None = (access.number, active, uniform(data) if access.kind == "store" else None)
        else:
            key = None
            self.bytes += address.nbytes
        if mask is not None:
            self.bytes += mask.nbytes
        entries = self.by_region.get(region.base)
        if entries is None:
            entries = self.by_region[region.base] = []
        if access.kind != "load":
            self.writes.add(region.base)
        entry = LogEntry(access, address, offset, mask, data if access.kind == "store" else (), key)
        if self.machine.locks is not None:
            self.machine.locks.note(entry, access.numbers["global"])
        entries.append(entry)
        self.count += 1
        if polls:
            entry.role = "poll"
            entry.key = None if key is None else (*key[:2], "poll")
            if heard is not None:
                self.bytes += heard.nbytes
                self.machine.acquire(mask, heard)
        if self.bytes > LOG_BYTES or self.count > LOG_LENGTH:
            self.flush()

    def warp_sync(self, mask: Array | None, named: Array | None) -> None:
        """Log a warp-wide synchronisation for every region that has accesses."""
        for entries in self.by_region.values():
            entries.append(WarpSync(mask, named))

    def acquire(self, mask: Array | None, fences: Array | None = None) -> None:
        """Log for every region that has accesses that lanes have polled; fences: as of `Acquire`."""
        for entries in self.by_region.values():
            self.note_acquire(entries, mask, fences)

    def fence(self, number: int) -> None:
        """Log a fence for every region that has accesses."""
        for entries in self.by_region.values():
            entries.append(Fence(number))

    def barrier(self) -> None:
        """End the interval."""
        self.grid_races.barrier()
        if self.count:
            self.flush()

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.barrier()

    def flush(self) -> None:
        """Examine the log of each region, then forget it."""
        for base in self.writes:
            entries = self.by_region[base]
            while entries and isinstance(entries[-1], WarpSync):
                entries.pop()
            kinds = {entry.access.kind for entry in entries if isinstance(entry, LogEntry)}
            if kinds - {"load"} and kinds - {"atomic"}:
                self.examine(base, entries)
        self.by_region = {}
        self.writes = set()
        self.bytes = self.count = 0

    def examine(self, base: int, entries: list[LogEntry | WarpSync]) -> None:
        """Look for races in one region's log: for one block if all are alike, else for each."""
        chunk = self.chunk
        parts = self.alike(entries)
        if parts is not None:
            start, key = parts
            if key is not None and key in self.clean:
                return
            if self.one_block(entries, start):
                if key is not None:
                    self.clean.add(key)
                    self.machine.plan.remembered += 128 * len(entries)
                return
        rows = self.suspects(entries)
        if (rows is not None and not rows.any()) or self.apart(base, entries):
            return
        events = []
        for entry in entries:
            mask = entry.mask
            if rows is not None:
                mask = rows if mask is None else mask & rows
                if chunk.root is not None:
                    mask = mask & chunk.root
            events.append(self.expand(entry, chunk.shape, mask))
        self.shadow(base, entries, events, True)

    def alike(self, entries: list[LogEntry | WarpSync]) -> tuple[int, Key | None] | None:
        """Return (base address of block 0, memo key) if all entries move alike from block to block, else None."""
        blocks: tuple[int, ...] = ()
        start = None
        keys: list[Key] = []
        for entry in entries:
            if isinstance(entry, WarpSync):
                keys.append(entry.key)
                continue
            if type(entry.address) is not Affine:
                return self.separable(entries)
            c = entry.address.coefficients or (0, 0, 0, 0, 0, 0)
            part = c[3:]
            if start is None:
                start, blocks = entry.address.base + entry.offset, part
            elif part != blocks:
                return None
            assert entry.key is not None
            number, active, value = entry.key
            if active is True:
                assert entry.mask is not None
                active = entry.mask.any(axis=0).tobytes()
            keys.append((number, entry.address.base + entry.offset - start, c[:3], active, value))
        if start is None:
            return None
        return start, (blocks == (0, 0, 0), chunk_key(self.chunk), tuple(keys))

    def suspects(self, entries: list[LogEntry | WarpSync]) -> Array | None:
        """Return the blocks (blocks, 1) in which a write may meet another address pattern; None where that is unknown.

        A pattern that gives each thread bytes of its own cannot race with itself, and patterns whose ranges of bytes in
        a block do not overlap cannot race with each other.
        """
        chunk = self.chunk
        patterns: dict[Any, tuple[Array, Array, bool]] = {}
        shared: set[Any] = set()  # patterns in which threads share bytes
        for entry in entries:
            if isinstance(entry, WarpSync):
                continue
            address = entry.address
            if type(address) is not Affine or address.coefficients is None:
                return None
            size = entry.access.size
            key = (address.base + entry.offset, address.coefficients, size)
            writes = entry.access.kind != "load"
            if key in patterns:
                low, high, written = patterns[key]
                patterns[key] = (low, high, written or writes)
                continue
            own = Affine(0, (*address.coefficients[:3], 0, 0, 0)).array(chunk, INT64)
            own = np.sort(np.broadcast_to(own, (1, chunk.threads))[:, : chunk.real_threads], axis=1)
            if chunk.real_threads > 1 and int(np.diff(own).min()) < size:
                shared.add(key)
            start = Affine(key[0], (0, 0, 0, *address.coefficients[3:])).array(chunk, INT64)
            start = np.broadcast_to(start, (chunk.blocks, 1))
            patterns[key] = (start + own[0, 0], start + own[0, -1] + size, writes)
        if any(patterns[key][2] for key in shared):
            return None
        rows: Array = np.zeros((chunk.blocks, 1), dtype=bool)
        for key, (low, high, written) in patterns.items():
            for other, (least, most, _) in patterns.items():
                if written and other != key:
                    rows |= (low < most) & (least < high)
        return rows

    def apart(self, base: int, entries: list[LogEntry | WarpSync]) -> bool:
        """Return whether no lane of the chunk touches what another one writes: then nobody has to be in order."""
        chunk, width = self.chunk, self.width
        written: list[tuple[Array, Array]] = []
        touched: list[tuple[Array, Array]] = []
        shared: list[Array] = []  # read by several lanes, as far as is known
        active: dict[int, Array] = {}  # by mask
        least, most = self.machine.space.slots[base >> SLOT_BITS].size // width, 0
        for entry in entries:
            if isinstance(entry, WarpSync):
                continue
            mask = chunk.root if entry.mask is None else entry.mask
            if entry.access.kind == "load" and type(entry.address) is Affine:
                several = folded(entry.address, entry.offset, mask, chunk)
                if several is not None:
                    shared.append(self.granules((several[0] - base), entry.access.size))
                    continue
            lanes = active.get(id(mask))
            if lanes is None:
                every: Array = np.ones((1, 1), dtype=bool)
                lanes = np.flatnonzero(broadcast(every if mask is None else mask, chunk.shape)).astype(np.int32)
                active[id(mask)] = lanes
            if not lanes.size:
                continue
            address = flat(entry.address, entry.offset, chunk)
            places = self.granules(broadcast(address, chunk.shape).reshape(-1)[lanes] - base, entry.access.size)
            if places.size > lanes.size:
                lanes = np.repeat(lanes, places.size // lanes.size)
            least, most = min(least, int(places.min())), max(most, int(places.max()))
            (touched if entry.access.kind == "load" else written).append((places, lanes))
        if most - least >= MOST_MARKED:
            return False
        marks: Array = np.full(max(0, most - least) + 1, -1, np.int32)
        for number, (places, lanes) in enumerate((*written, *touched)):
            places = places - least
            found = marks[places]
            if ((found != lanes) & (found >= 0)).any():
                return False
            if number < len(written):
                marks[places] = lanes
                if (marks[places] != lanes).any():
                    return False
        for places in shared:
            inside = places[(places >= least) & (places <= most)] - least
            if (marks[inside] >= 0).any():
                return False
        return True

    def granules(self, start: Array, size: int) -> Array:
        """Return the granules of accesses from bytes on, lane by lane."""
        first = start // self.width
        count = size // self.width
        return first if count <= 1 else (first[:, None] + np.arange(count)).reshape(-1)

    def separable(self, entries: list[LogEntry | WarpSync]) -> tuple[int, Key | None] | None:
        """Do the same for address arrays whose rows differ by a constant that is the same for all entries."""
        column: Array | None = None
        start = 0
        for entry in entries:
            if isinstance(entry, WarpSync):
                continue
            address = flat(entry.address, entry.offset, self.chunk)
            if entry.mask is not None and entry.mask is not self.chunk.root:
                return None
            if address.shape[0] == 1 and self.chunk.blocks > 1:
                return None
            shifted = address - address[:, :1]
            if self.chunk.root is not None:
                shifted = np.where(self.chunk.root, shifted, 0) if shifted.shape[1] > 1 else shifted
            if not (shifted == shifted[0]).all():
                return None
            own = address[:, 0] - address[0, 0]
            if column is None:
                column, start = own, int(address[0, 0])
            elif not np.array_equal(own, column):
                return None
        return start, None

    def expand(
        self, entry: LogEntry | WarpSync, shape: tuple[int, int], mask: Array | None
    ) -> tuple[Array, Array, Array] | None:
        """Return (byte addresses, blocks, threads) of an entry's active lanes."""
        if isinstance(entry, WarpSync):
            return None
        chunk = self.chunk
        address = flat(entry.address, entry.offset, chunk)
        if shape[0] == 1:
            address = address[:1]
        address = broadcast(address, shape)
        if mask is None:
            mask = chunk.root
        if mask is None:
            lanes = np.arange(shape[0] * shape[1])
            address = address.reshape(-1)
        else:
            chosen = broadcast(mask, shape)
            lanes = np.flatnonzero(chosen)
            address = address[chosen]
        return address, lanes // shape[1], (lanes % shape[1]).astype(np.int32)

    def one_block(self, entries: list[LogEntry | WarpSync], start: int) -> bool:
        """Examine the log of the first block as if it did what any block does."""
        shape = (1, self.chunk.threads)
        for entry in entries:
            if isinstance(entry, LogEntry) and entry.access.kind == "store":
                events = self.expand(entry, shape, narrow_any(entry.mask))
                assert events is not None
                if (
                    different(events[0]).size != events[0].size
                    and self.lane_values(entry, self.chunk.shape) is not None
                ):
                    return False
        events_ = [self.expand(entry, shape, narrow_any(entry.mask)) for entry in entries]
        return self.shadow(0, entries, events_, False)

    def shadow(
        self,
        base: int,
        entries: list[LogEntry | WarpSync],
        events: Sequence[tuple[Array, Array, Array] | None],
        exact: bool,
    ) -> bool:
        """Run the log through a shadow of the bytes that it touches; report (exact) or return whether it is clean."""
        width = self.width
        places, counts = [], []
        for entry, event in zip(entries, events, strict=True):
            if isinstance(entry, WarpSync) or event is None:
                places.append(np.empty(0, dtype=np.int64))
                counts.append(1)
                continue
            address, blocks, _ = event
            count = max(1, entry.access.size // width)
            granule = (address - base) // width
            if count > 1:
                granule = (granule[:, None] + np.arange(count)).reshape(-1)
                blocks = np.repeat(blocks, count)
            # Blocks are told apart by a number above all addresses' bits.
            places.append((granule & ((1 << BLOCK_BITS) - 1)) + (blocks << BLOCK_BITS))
            counts.append(count)
        index = dense(np.concatenate(places))
        self.cuts.clear()
        while True:
            faults = self.run_through(base, entries, events, counts, places, index, exact)
            if faults is None or not self.cuts.news:
                break
            self.cuts.clear()  # what the barrier orders that was advised is not told
        for record in faults or ():
            record()
        return faults == []

    def run_through(
        self,
        base: int,
        entries: list[LogEntry | WarpSync],
        events: Sequence[tuple[Array, Array, Array] | None],
        counts: list[int],
        places: list[Array],
        index: Array,
        exact: bool,
    ) -> list[Callable[[], None]] | None:
        """Apply the log to a shadow; return what records the races, None where it is not exact and has any."""
        chunk, width = self.chunk, self.width
        shadow = Shadow(int(index.max()) + 1 if index.size else 0)
        shadow.several, known = self.several, len(self.several)
        order = WarpOrder(chunk.blocks if exact else 1, chunk.threads)
        position = 0
        faults: list[Callable[[], None]] = []
        for time, (entry, event, count, part) in enumerate(zip(entries, events, counts, places, strict=True), 1):
            if isinstance(entry, WarpSync) or event is None:
                assert isinstance(entry, WarpSync)
                self.order_by(order, time, entry, entry.mask if exact else narrow_all(entry.mask))
                continue
            _, blocks, threads = event
            granules = index[position : position + part.size]
            position += part.size
            values = None
            if exact and entry.access.kind == "store":
                values = self.lane_values(entry, chunk.shape)
                if values is not None:
                    values = np.repeat(values[blocks, threads], count)
            lanes = threads if count == 1 else np.repeat(threads, count)
            rows = blocks if count == 1 else np.repeat(blocks, count)
            flat_lanes = rows * chunk.threads + lanes if exact else lanes
            number, value = entry.access.numbers["global"], self.value_name(entry.data)
            step = entry.access, granules, lanes, flat_lanes, order
            found = shadow.conflicts(*step, number, value, values, entry.role, self.cuts.of(entry.access, time))
            if found is None:
                shadow.note(*step, time, number, value, entry.role, self.cuts.times)
                continue
            if not exact:
                return None
            bad, others, numbers = found
            place = widest(bad, lanes, others)
            region = self.machine.space.slots[base >> SLOT_BITS]
            offset = int(part[place] & ((1 << BLOCK_BITS) - 1)) * width
            conflict = Conflict(
                entry,
                int(bad.reshape(-1, count).any(axis=1).sum()),
                int(lanes[place]),
                0,
                int(numbers[place]),
                int(others[place]),
                order.has_heard(int(flat_lanes[place])),
            )
            spot = in_region(region, offset, entry.access.width)
            faults.append(self.judge(conflict, spot, int(rows[place]), time - 1, entries, 1))
            if self.cuts.news:
                break
            shadow.note(*step, time, number, value, entry.role, self.cuts.times)
        self.cuts.news |= len(self.several) > known
        return faults


def dense(places: Array) -> Array:
    """Return numbers from 0 on in the place of granules of blocks: equal for equal ones, in their order."""
    if places.size:
        granules, blocks = places & ((1 << BLOCK_BITS) - 1), places >> BLOCK_BITS
        least, first = granules.min(), blocks.min()
        width = int(granules.max() - least) + 1
        if width * (int(blocks.max() - first) + 1) <= max(LEAST_SPAN, 2 * places.size):
            return (granules - least) + (blocks - first) * width
    return np.unique(places, return_inverse=True)[1].reshape(-1)


def written_regions(machine: Machine, bits: int) -> set[int] | None:
    """Return the bases of the regions that the kernel may write, or None for all; bits: of `flow.points_to`."""
    if bits & 1:
        return None
    found: set[int] = set()
    for slot in range(1, len(machine.space.slots)):
        if bits >> (SYMBOL_BIT + slot) & 1:
            found.add(slot << SLOT_BITS)
    raw = machine.parameters.bytes
    for offset in range(raw.size - 7):
        if bits >> (1 + offset) & 1:
            value = int(raw[offset : offset + 8].view(np.int64)[0])
            surface = machine.textures.get(value)
            region = machine.space.nearest(value if surface is None else surface.base)
            if region is not None:
                found.add(region.base)
    return found


def chunk_key(chunk: Chunk) -> Any:
    """Return what a remembered examination depends on besides the log."""
    return chunk.block
