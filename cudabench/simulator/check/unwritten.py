"""Finds reads of memory that nothing has written: local memory, and arrays that have no content before the launch.

Such a read alone is not an error: compilers copy whole structs, and the value may never be used. It is an error if a
result depends on the value. To find this out, the kernel runs a second time with this memory filled with another byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.places import in_region
from cudabench.simulator.memory import Region, elements_of, flat
from cudabench.simulator.values import UNSIGNED, Array, Value, broadcast, uniform

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class Unwritten:
    """Records which bytes the launches of one run have written.

    byte: the value that fills local memory before a block starts, and that an undefined shuffle returns. arrays: the
    names of the arrays that have no content at the start; None if reads are not checked. In this case the byte also
    fills the registers that no code writes.
    """

    def __init__(self, byte: int, arrays: Collection[str] | None) -> None:
        self.byte, self.checks_reads = byte, arrays is not None
        self._arrays: dict[str, Array] = dict.fromkeys(arrays or ())
        self._local: Array = None

    def written(self, name: str) -> Array:
        """Return a uint8 array with an element for each byte of an array: 0 if the byte was never written."""
        marks = self._arrays[name]
        return np.zeros(1, np.uint8) if marks is None else marks

    def start(self, machine: Machine) -> None:
        """Begin a chunk of blocks: fill its local memory, and its unwritten registers if reads are not checked."""
        if machine.local is not None:
            machine.local.fill(self.byte)
            self._local = np.zeros_like(machine.local) if self.checks_reads else None
        for index, value in enumerate([] if self.checks_reads else machine.code.initial):
            if value is None:
                width = machine.code.widths[index]
                machine.registers[index] = uniform(int.from_bytes(bytes([self.byte]) * (width // 8), "little"), width)

    def _marks(self, machine: Machine) -> Array:
        """Return a uint8 array in the shape of local memory: 0 for bytes that were never written.

        Recursive calls enlarge the local memory; then the array is enlarged, too.
        """
        marks, size = self._local, machine.local.shape
        if marks is None or marks.shape != size:
            self._local = np.zeros(size, np.uint8)
            if marks is not None:
                self._local[:, :, : marks.shape[2]] = marks
        return self._local

    def access_local(self, machine: Machine, access: MemoryOp, index: Array, mask: Array | None) -> None:
        """Check or mark what the lanes of a mask access in their local memory; `index`: see `local_index`."""
        if self.checks_reads:
            what = "its local memory" if access.variable is None else f"the local variable '{access.variable[2]}'"
            marks, lanes = self._marks(machine).reshape(-1), machine.chunk.real(mask)
            note_bytes(machine, access, marks, index, lanes, lambda offset: what)

    def check_region(
        self, machine: Machine, access: MemoryOp, region: Region, address: Value, offset: int, mask: Array | None
    ) -> None:
        """Check the reads of an access to a region, and mark the bytes that the access writes."""
        if region.name not in self._arrays:
            return
        marks = self._arrays[region.name]
        if marks is None or marks.size != region.size:
            marks = self._arrays[region.name] = np.zeros(region.size, np.uint8)
        lanes, element = machine.chunk.real(mask), access.width
        index = (flat(address, offset) - region.base) // element
        note_bytes(machine, access, marks, index, lanes, lambda offset: in_region(region, offset, element))


def note_bytes(
    machine: Machine, access: MemoryOp, marks: Array, index: Array, lanes: Array, name: Callable[[int], str],
    kind: str = "unwritten",
) -> None:  # fmt: skip
    """Report the lanes that read an element of which a byte is unwritten, and mark the bytes that lanes write.

    marks: a byte for each byte of the memory, 0 for a byte that was never written. index: the first element of each
    lane. name: a function that returns the name of the byte with this index in `marks`. kind: the kind of the hazard;
    'unwritten' is only suspected. An exchange whose result is not used counts as a write without a read.
    """
    dtype = UNSIGNED[8 * access.width]
    view, written = elements_of(marks, dtype), ~dtype.type(0)
    # The elements of each active lane.
    elements = broadcast(index, lanes.shape)[lanes][:, None] + np.arange(access.count)
    unread = access.update == "exch" and access.target not in machine.code.read
    if access.kind != "store" and not unread:
        unset = view.take(elements, mode="clip") != written
        reads = unset.any(axis=1)
        if reads.any():
            bad: Array = np.zeros(lanes.shape, bool)
            bad[lanes] = reads
            first = int(reads.argmax())
            offset = int(elements[first, unset[first].argmax()]) * access.width
            what = f"reads {name(offset)}, which no thread has written"
            machine.hazards.report(machine, kind, access.location, bad, what, suspected=kind == "unwritten")
    if access.kind != "load":
        view[elements] = written
