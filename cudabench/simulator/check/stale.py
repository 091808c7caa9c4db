"""Finds reads through the read-only cache from memory that the same launch has written.

PTX ISA, `ld.global.nc`; CUDA C++ Programming Guide, "Read-Only Data Cache Load Function", "Read/Write Coherency": the
cache is not kept coherent while a kernel runs. So the read may return an old value, whichever thread has written, and
even after a barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.global_races import written_regions
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.races import LogEntry
from cudabench.simulator.memory import AddressSpace, Region, flat
from cudabench.simulator.program.code import Code
from cudabench.simulator.textures import Texture
from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


# For messages, by `CachedAs`: (why a load uses the read-only cache, what to do instead).
HOW = {
    "asked": ("by __ldg() or another ld.global.nc", "use a plain load"),
    "load": (
        "its pointer is const and __restrict__, a promise that nothing writes that memory, or the line has an __ldg()",
        "leave out __restrict__ and __ldg()",
    ),
    "fetch": ("by a texture fetch", "use a plain load"),
}


def regions_of(code: Code, space: AddressSpace, parameters: Array, textures: Mapping[int, Texture]) -> set[int] | None:
    """Return the base addresses of the regions that a launch may both write and read through the read-only cache.

    None means all regions.
    """
    if not code.cached:
        return set()
    cached, written = (written_regions(bits, space, parameters, textures) for bits in (code.cached, code.written))
    return cached if written is None else written if cached is None else cached & written


class StaleReads:
    """Records the last write to each granule of the regions that `regions_of` returns, and checks the cached reads from
    these regions."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.width = min(machine.code.granule["global"], 8)
        # Keyed by the base of a region: for each granule, the number of the access that wrote it last, plus 1; 0 if no
        # access wrote it.
        self.written: dict[int, Array] = {}
        self.regions = regions_of(machine.code, machine.space, machine.parameters.bytes, machine.textures)

    def note(self, region: Region, entry: LogEntry) -> None:
        """Record an access that writes, or check one that reads through the read-only cache."""
        access = entry.access
        if self.regions is not None and region.base not in self.regions:
            return
        if access.kind == "load" and (not access.cached or region.base in self.machine.surface_writes):
            return  # `isa.textures` checks regions that are written as a surface
        chunk = self.machine.chunk
        lanes = chunk.real(entry.mask)
        start = broadcast(flat(entry.address, entry.offset - region.base), chunk.shape)[lanes] // self.width
        granules = start[:, None] + np.arange(max(1, access.size // self.width))
        writers = self.written.get(region.base)
        if access.kind != "load":
            if writers is None:
                writers = self.written[region.base] = np.zeros(-(-region.size // self.width), np.int32)
            writers[granules] = access.numbers["global"] + 1
        elif writers is not None and writers[granules].any():
            bad = np.zeros(chunk.shape, dtype=bool)
            numbers = writers[granules]
            bad[lanes] = numbers.any(axis=1)
            first = int(np.argmax(numbers > 0))
            spot = in_region(region, int(granules.flat[first]) * self.width, access.width)
            line = self.machine.code.accesses[int(numbers.flat[first]) - 1].location.line
            how, cure = HOW[access.cached]
            self.machine.hazards.report(
                self.machine, "stale-read", access.location, bad,
                f"reads {spot} through the read-only cache ({how}), but the same launch wrote it before, in line "
                f"{line}: the cache may still hold the old value, even after a barrier: {cure}, or read it in "
                "another launch",
            )  # fmt: skip
