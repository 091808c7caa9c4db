"""Reads of unwritten memory: local memory, and arrays that begin unwritten.

Such a read alone is not a fault: compilers copy whole structures, and the value may have no use. It is one if a result
depends on the value: a second run with another byte in this memory shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.places import in_region
from cudabench.simulator.isa.access import put
from cudabench.simulator.memory import Region, flat
from cudabench.simulator.values import UNSIGNED, Affine, Array, Value, is_undefined

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class Unwritten:
    """The memory that the launches of one run have written.

    byte: the value that fills local memory before a block starts, and that an undefined shuffle returns. arrays: the
    names of the arrays that begin unwritten; None if reads are not checked: then the byte fills registers too.
    """

    def __init__(self, byte: int, arrays: Collection[str] | None) -> None:
        self.byte, self.looks = byte, arrays is not None
        self._arrays: dict[str, Array] = dict.fromkeys(arrays or ())
        self._local: Array = None

    def written(self, name: str) -> Array:
        """Return for each byte of an array whether it is written: 0 if not."""
        marks = self._arrays[name]
        return np.zeros(1, np.uint8) if marks is None else marks

    def start(self, machine: Machine) -> None:
        """Forget the local memory of earlier blocks, and fill the registers that no code writes."""
        if machine.local is not None:
            machine.local.fill(self.byte)
            self._local = np.zeros_like(machine.local) if self.looks else None
        for index, value in enumerate([] if self.looks else machine.registers):
            if is_undefined(value):
                width = machine.code.widths[index]
                word = int.from_bytes(bytes([self.byte]) * (width // 8), "little")
                machine.registers[index] = bool(self.byte & 1) if width == 1 else Affine(word)

    def _marks(self, machine: Machine) -> Array:
        """Return which bytes of local memory are written; recursive calls enlarge it."""
        marks, size = self._local, machine.local.shape
        if marks is None or marks.shape != size:
            self._local = np.zeros(size, np.uint8)
            if marks is not None:
                self._local[:, :, : marks.shape[2]] = marks
        return self._local

    def load_local(self, machine: Machine, access: MemoryOp, index: int | Array) -> None:
        """Check lanes that read elements of their local memory; index: see `local_index`."""
        if not self.looks:
            return
        marks = self._marks(machine).view(UNSIGNED[8 * access.width])
        if isinstance(index, int):
            read = [marks[:, :, index + place] for place in range(access.count)]
        else:
            read = [marks.reshape(-1).take(index + place) for place in range(access.count)]
        what = "its local memory" if access.variable is None else f"the local variable '{access.variable[2]}'"
        self._report(machine, access, read, machine.lanes(), lambda lane: what)

    def store_local(self, machine: Machine, access: MemoryOp, index: int | Array, mask: Array | None) -> None:
        """Note lanes that write elements of their local memory."""
        if not self.looks:
            return
        marks = self._marks(machine).view(UNSIGNED[8 * access.width])
        for place in range(access.count):
            if isinstance(index, int):
                marks[:, :, index + place] = ~marks.dtype.type(0)
            else:
                put(marks.reshape(-1), index + place, np.array([[~marks.dtype.type(0)]]), mask)

    def reach(
        self, machine: Machine, access: MemoryOp, region: Region, address: Value, offset: int, mask: Array | None
    ) -> None:
        """Check lanes that read elements of a region, and note those that write it."""
        if region.name not in self._arrays:
            return
        marks = self._arrays[region.name]
        if marks is None or marks.size != region.size:
            marks = self._arrays[region.name] = np.zeros(region.size, np.uint8)
        dtype = UNSIGNED[8 * access.width]
        view = marks[: region.size // access.width * access.width].view(dtype)
        lanes = machine.chunk.lanes(mask)
        index = np.broadcast_to(flat(address, offset, machine.chunk) - region.base, lanes.shape) >> (
            access.width.bit_length() - 1
        )
        index = np.where(lanes, index, 0)
        if access.kind != "store":
            read = [view.take(index + place) for place in range(access.count)]
            element = access.width
            self._report(
                machine, access, read, lanes, lambda lane: in_region(region, int(index[lane]) * element, element)
            )
        if access.kind != "load":
            for place in range(access.count):
                put(view, index + place, np.array([[~dtype.type(0)]]), lanes)

    def _report(
        self, machine: Machine, access: MemoryOp, read: list[Array], lanes: Array,
        place: Callable[[tuple[int, int]], str],
    ) -> None:  # fmt: skip
        """Note lanes that read elements with an unwritten byte; place: names what a lane reads."""
        bad = lanes & np.logical_or.reduce([marks != ~marks.dtype.type(0) for marks in read])
        if machine.chunk.real(bad).any():
            machine.hazards.unwritten(machine, access.location, bad, place)
