"""Finds races between threads of one block over global memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.grid_races import GridRaces
from cudabench.simulator.check.locks import WORD
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.races import Log, LogEntry, Races
from cudabench.simulator.check.shadow import Event
from cudabench.simulator.memory import SLOT_BITS, AddressSpace, Region
from cudabench.simulator.program.code import LOCAL_BIT, SYMBOL_BIT
from cudabench.simulator.textures import Texture
from cudabench.simulator.values import Array, Value, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class GlobalRaces(Races):
    """Finds races between threads of one block over global memory."""

    memory = "global"
    span = 1 << 44  # more than the number of granules in the address space

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.width = min(machine.code.granule["global"], 8)
        self.written = written_regions(machine.code.written, machine.space, machine.parameters.bytes, machine.textures)
        self.grid_races = GridRaces(machine, self.width)

    def log(
        self, access: MemoryOp, region: Region, address: Value, offset: int, mask: Array | None, data: Sequence[Value]
    ) -> None:
        """Log an access to a region that some access of the kernel may write."""
        mask = access.concerned(self.machine, mask)
        if mask is not None and not mask.any():
            return
        if self.machine.unwritten is not None:
            self.machine.unwritten.check_region(self.machine, access, region, address, offset, mask)
        if self.written is not None and region.base not in self.written:
            return
        if access.polls:
            self.machine.departures.wait(self.machine.lanes())
        entry = LogEntry(access, address, offset, mask, data)
        self.machine.stale.note(region, entry)
        if access.guess:
            return
        if self.machine.local_pointers is not None:
            name = partial(in_region, region, width=access.width)
            self.machine.local_pointers.log(self.machine, entry, region.base, region.size, False, name)
        self.grid_races.log(region, entry)
        self.append_entry(region, entry)

    def append_entry(self, region: Region, entry: LogEntry) -> None:
        """Append an access to the log of its region."""
        self.append(entry, region.base, -(-region.size >> WORD), 0)

    def barrier(self) -> None:
        """End the interval at a barrier of the block."""
        self.grid_races.barrier()
        super().barrier()

    def flush(self, ends: bool) -> None:
        """Look for races in the log of each region that was written, then forget the logs."""
        for base in self.writes:
            self.base, log = base, self.logs[base]
            if not self.disjoint(log):
                steps = [*self.steps(log, 1)]
                events = [step for step in steps if isinstance(step, Event)]
                places = different(np.concatenate([event.places for event in events]))
                for event in events:
                    event.granules = np.searchsorted(places, event.places)
                for record in self.examine(places.size, partial(iter, steps), log):
                    record()
        self.clear()

    def disjoint(self, log: Log) -> bool:
        """Return whether no lane of the chunk accesses a granule that another lane writes: then nothing can race, and
        the events of a long log need not be kept."""
        entries = [entry for entry in log if isinstance(entry, LogEntry)]
        # For each granule, the lane that writes it, from 1 on.
        writers: Array = np.zeros(self.machine.space.slots[self.base >> SLOT_BITS].size // self.width + 1, np.int32)
        for entry in sorted(entries, key=lambda entry: entry.access.kind == "load"):  # the stores first
            event = self.event(entry, 0)
            places, lanes = event.places % self.span, event.lanes + 1
            if entry.access.kind != "load":
                writers[places] = np.where(writers[places] == 0, lanes, writers[places])
            if ((writers[places] != lanes) & (writers[places] > 0)).any():
                return False
        return True


def written_regions(
    bits: int, space: AddressSpace, parameters: Array, textures: Mapping[int, Texture]
) -> set[int] | None:
    """Return the base addresses of the regions that a launch may write, or None for all regions.

    bits: the memory that the kernel writes, as bits of `flow.points_to`. parameters: the bytes of its parameters.
    """
    if bits & 1:
        return None
    slots, offsets = _pointing(bits)
    bases = {slot << SLOT_BITS for slot in slots if slot < len(space.slots)}
    for offset in offsets:
        if offset + 8 <= parameters.size:
            value = int(parameters[offset : offset + 8].view(np.int64)[0])
            surface = textures.get(value)
            region = space.nearest(value if surface is None else surface.base)
            if region is not None:
                bases.add(region.base)
    return bases


@lru_cache(256)
def _pointing(bits: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (slots of the module variables, offsets of the parameters) that bits of `flow.points_to` mean."""
    places = [place for place in range(1, bits.bit_length()) if bits >> place & 1]
    variables = tuple(place - SYMBOL_BIT for place in places if SYMBOL_BIT < place < LOCAL_BIT)
    return variables, tuple(place - 1 for place in places if place < SYMBOL_BIT)
