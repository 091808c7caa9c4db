"""Races within a block over global memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.fenced_races import FencedRaces
from cudabench.simulator.check.grid_races import GridRaces
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.races import (
    LOG_BYTES,
    LOG_LENGTH,
    LogEntry,
    Races,
    WarpSync,
    uniform,
)
from cudabench.simulator.check.releases import WORD
from cudabench.simulator.check.shadow import Event, Shadow, WarpOrder
from cudabench.simulator.memory import SLOT_BITS, Region, flat, folded
from cudabench.simulator.program.code import SYMBOL_BIT
from cudabench.simulator.values import Affine, Array, Chunk, Key, Value, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MOST_MARKED = 1 << 22  # granules whose writers are marked all at once
BLOCK_BITS = 44  # granules of a region
LEAST_SPAN = 1 << 15  # granules that a shadow has room for without being asked which of them are touched


class GlobalRaces(Races):
    """Races between threads of one block over global memory."""

    memory = "global"

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
        self, access: MemoryOp, region: Region, address: Value, offset: int, mask: Array | None, data: Sequence[Value]
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
        words = -(-region.size >> WORD)
        polled = self.note_strong(region.base, words, access, address, offset - region.base, mask, data)
        self.grid_races.log(access, region, address, offset, mask, data)
        mask = self.unlocked(access, mask)
        if mask is False:
            return
        key: Key | None = None
        nbytes = 0
        if type(address) is Affine:
            active: Hashable = True  # threads that differ from block to block: known where the log is examined
            if mask is None or mask is self.chunk.root:
                active = None
            elif mask.shape[0] == 1:
                active = mask.tobytes()
            key = (access.number, active, uniform(data) if access.kind == "store" else None)
        else:
            nbytes = address.nbytes
        if access.kind != "load":
            self.writes.add(region.base)
        entry = LogEntry(access, address, offset, mask, data if access.kind == "store" else (), key)
        self.count += 1
        self.enter(self.by_region.setdefault(region.base, []), entry, nbytes, polled)
        if self.bytes > LOG_BYTES or self.count > LOG_LENGTH:
            self.flush()

    def logs(self) -> Iterable[list[LogEntry | WarpSync]]:
        """Return the logs of all regions that have accesses."""
        return self.by_region.values()

    def barrier(self) -> None:
        """End the interval."""
        self.grid_races.barrier()
        if self.count:
            self.flush()

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
        parts = self.alike(entries)
        if parts is not None:
            start, key = parts
            if key in self.clean:
                return
            if self.one_block(start, entries):
                self.clean.add(key)
                self.machine.plan.remembered += 128 * len(entries)
                return
        if not self.apart(base, entries):
            self.base = base
            self.clean_so_far(entries, True)

    def alike(self, entries: list[LogEntry | WarpSync]) -> tuple[int, Key] | None:
        """Return (base address of block 0, memo key) if all entries move alike from block to block, else None."""
        blocks: tuple[int, ...] = ()
        start = None
        keys: list[Key] = []
        for entry in entries:
            if isinstance(entry, WarpSync):
                keys.append(entry.key)
                continue
            if type(entry.address) is not Affine:
                return None
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
        return start, (blocks == (0, 0, 0), self.chunk.block, tuple(keys))

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
                lanes = active[id(mask)] = np.flatnonzero(chunk.lanes(mask)).astype(np.int32)
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

    def places(self, granules: Array, blocks: Array) -> Array:
        """Return the places of granules; blocks are told apart by a number above all addresses' bits."""
        return (granules & ((1 << BLOCK_BITS) - 1)) + (blocks << BLOCK_BITS)

    def offset(self, place: int) -> int:
        """Return the byte of the region at which a place begins."""
        return int(place & ((1 << BLOCK_BITS) - 1)) * self.width

    def name(self, entry: LogEntry, offset: int) -> str:
        """Return what messages call a place that an access touches."""
        return in_region(self.machine.space.slots[self.base >> SLOT_BITS], offset, entry.access.width)

    def one_block(self, start: int, entries: list[LogEntry | WarpSync]) -> bool:
        """Return whether the log of the first block is clean, as if it did what any block does."""
        self.base = 0
        for entry in entries:
            if (
                isinstance(entry, LogEntry)
                and entry.access.kind == "store"
                and self.lane_values(entry, self.chunk.shape) is not None
                and not self.places_differ(entry)
            ):
                return False
        return self.clean_so_far(entries, False)

    def clean_so_far(self, entries: list[LogEntry | WarpSync], exact: bool) -> bool:
        """Run the log through a shadow of what it touches; report (exact) or return whether it is clean."""
        events = [
            None if isinstance(entry, WarpSync) else self.event(entry, time, exact)
            for time, entry in enumerate(entries, 1)
        ]
        index = dense(np.concatenate([event.places for event in events if event is not None]))
        position = 0
        for event in events:
            if event is not None:
                event.granules = index[position : position + event.places.size]
                position += event.places.size
        self.cuts.clear()
        while True:
            order = WarpOrder(self.chunk.blocks if exact else 1, self.chunk.threads)
            shadow = Shadow(int(index.max()) + 1 if index.size else 0, order)
            faults = self.run_through(shadow, entries, events, exact)
            if faults is None or not self.cuts.news:
                break
            self.cuts.clear()  # what the barrier orders that was advised is not told
        for record in faults or ():
            record()
        return faults == []

    def run_through(
        self, shadow: Shadow, entries: list[LogEntry | WarpSync], events: Sequence[Event | None], exact: bool
    ) -> list[Callable[[], None]] | None:
        """Apply the log to a shadow; return what records the races, None where it is not exact and has any."""
        shadow.several, known = self.several, len(self.several)
        faults: list[Callable[[], None]] = []
        for time, (entry, event) in enumerate(zip(entries, events, strict=True), 1):
            if isinstance(entry, WarpSync) or event is None:
                assert isinstance(entry, WarpSync)
                self.order_by(shadow.order, time, entry, exact)
                continue
            found = shadow.conflicts(event, self.cuts.of(entry.access, time))
            if found is not None:
                if not exact:
                    return None
                faults.append(self.judge(event, found, shadow, entries, 1))
                if self.cuts.news:
                    break
            shadow.note(event, self.cuts.times)
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
