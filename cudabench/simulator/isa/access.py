"""What all loads, stores and atomics share: the instruction's record, its lanes, the checks of their addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.hazards import PADDING
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.memory import Region, flat, narrow
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, CachedAs
from cudabench.simulator.program.debug_info import Variable
from cudabench.simulator.program.ptx import Instruction, Location
from cudabench.simulator.values import Affine, Array, Value, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


SPACES = ("global", "shared", "local", "const", "param")
COUNTED_AS = {"const": "constant", "param": "global"}


class MemoryOp:
    """One memory instruction: where it is, what it does, how many bytes a lane moves."""

    def __init__(
        self, builder: Builder, kind: AccessKind, dtype: np.dtype[Any], count: int, space: str, what: str = ""
    ) -> None:
        self.kind, self.dtype, self.count, self.space = kind, dtype, count, space
        self.width, self.size = dtype.itemsize, dtype.itemsize * count
        self.location: Location = builder.ins.location
        spaces = ("global", "shared", "local") if space == "generic" else (COUNTED_AS.get(space, space),)
        self.number = len(builder.accesses)
        builder.access_made = self
        if kind != "load" and "global" in spaces:
            builder.write_addresses.append(builder.address_register)
        self.guess = False  # a load whose value a compare-and-swap puts to the test
        self.cached: CachedAs = ""  # of a load through the read-only cache: how
        self.ordered = False  # volatile, atomic, or with an order of its own: other blocks may wait for it
        self.acquires = False  # of a load: what it sees announced is ordered before all that follows
        self.target: int | None = None  # of an atomic: the register that gets what it finds
        self.strong = kind == "atomic"  # volatile, or with an order of its own, in whatever memory
        self.update = what.partition(".")[0]  # of an atomic: its operation
        self.copied: MemoryOp | None = None  # of a store that an asynchronous copy makes: the load of it
        self.polls = False  # a load, or an atomic, that goes round a loop until it finds what another thread writes
        self.bounds: tuple[int, int] | None = None  # of the local array that it stays in, where that is known
        self.variable: Variable | None = None  # the local array itself, where debug information tells of it
        if "local" in spaces:
            builder.local_accesses.append((self, builder.address_register))
        self.shared_bounds: tuple[int, int] | None = None  # of the shared array, likewise
        if "shared" in spaces:
            builder.shared_accesses.append((self, builder.address_register))
        self.numbers = {name: builder.access(name, kind, self.size, self.width, what) for name in spaces}

    @property
    def skewed(self) -> bool:
        """Whether it is aligned by accident at best: a variable starts at a multiple of its declared alignment, which
        then is less than the access needs."""
        return self.variable is not None and self.variable.start % self.size != 0


def space_of(ins: Instruction) -> str:
    """Return the state space that an instruction names, or 'generic'."""
    for word in ins.modifiers:
        name = word.partition(":")[0]
        if name in SPACES:
            return name
    return "generic"


def aligned(address: Affine, offset: int, size: int) -> bool:
    """Return whether all lanes' addresses are multiples of a power of two."""
    return reduce(or_, address.coefficients or (), address.base + offset) & (size - 1) == 0


class Lanes:
    """The lanes of a general access: byte addresses int64 in the smallest shape, and which of them are active."""

    __slots__ = ("address", "mask")

    def __init__(self, machine: Machine, address: Value, offset: int) -> None:
        self.address = flat(address, offset, machine.chunk)
        self.mask: Array | None = active_places(machine.mask, self.address)

    def exact(self, machine: Machine) -> Array | None:
        """Return the mask of the lanes themselves, where `mask` may tell only of the places that they share."""
        if self.mask is None or machine.mask is None:
            return machine.mask if self.mask is None else self.mask
        return self.mask & machine.mask

    def extremes(self) -> tuple[int, int, int]:
        """Return (lowest, highest, bitwise or) of the active addresses."""
        address = self.spread()
        if self.mask is not None:
            address = address[broadcast(self.mask, address.shape)]
        return int(address.min()), int(address.max()), int(np.bitwise_or.reduce(address, axis=None))

    def spread(self) -> Array:
        """Return the addresses in the shape of the mask."""
        if self.mask is None or self.mask.shape == self.address.shape:
            return self.address
        return broadcast(self.address, np.broadcast_shapes(self.address.shape, self.mask.shape))

    @property
    def on(self) -> Array:
        """The mask, True for all lanes."""
        return np.True_ if self.mask is None else self.mask

    def fill(self, value: int) -> Array:
        """Return the addresses with a harmless one in the inactive lanes."""
        if self.mask is None:
            return self.address
        return np.where(self.mask, self.address, np.int64(value))


def active_places(mask: Array | None, address: Array) -> Array | None:
    """Return which places of an array of addresses an active lane goes to, None for all."""
    if mask is None:
        return None
    places = narrow(mask, address.shape)
    return None if np.count_nonzero(places) == places.size else places


def bounded(machine: Machine, access: MemoryOp, lanes: Lanes, low: int, high: int) -> bool:
    """Return whether any lane is in [low, high) and aligned; report and leave out those that are not."""
    least, most, bits = lanes.extremes()
    if least >= low and most + access.size <= high and not bits & (access.size - 1):
        return True
    return check(machine, access, lanes, low, high, access.size)


def check(
    machine: Machine, access: MemoryOp, lanes: Lanes, low: int, high: int, size: int, padded: int = 0
) -> bool:  # fmt: skip
    """Report and leave out lanes outside of [low, high) or misaligned; return whether any lane is left.

    padded: where the padding behind ends; the lanes that stay in that, a card lets be.
    """
    address = lanes.spread()
    misaligned = (address & (size - 1) != 0) & lanes.on & (size & (size - 1) == 0)
    if misaligned.any():
        machine.hazards.misaligned(machine, access, misaligned, address, size)
        lanes.mask = lanes.on & ~misaligned
    outside = ((address < low) | (address > high - size)) & lanes.on
    if outside.any():
        padding = outside & (address >= low) & (address <= padded - size)
        for some, scope in ((outside & ~padding, 0), (padding, PADDING)):
            if some.any():
                machine.hazards.outside(machine, access, some, address, size, low, high, scope)
        lanes.mask = lanes.on & ~outside
    return bool(lanes.on.any())


@contextmanager
def only(machine: Machine, lanes: Array | None) -> Iterator[None]:
    """Let only those of the active lanes act that a mask names, None for all of them."""
    mask, warps = machine.mask, machine._warps
    if lanes is not None:
        machine.mask, machine._warps = lanes if mask is None else mask & lanes, -1
    yield
    machine.mask, machine._warps = mask, warps


def active_lanes(machine: Machine) -> Iterator[tuple[int, int]]:
    """Yield (block, thread) of the active lanes, and let each be the only active one."""
    for block, thread in np.argwhere(machine.chunk.real(machine.mask)).tolist():
        alone: Array = np.zeros(machine.chunk.shape, bool)
        alone[block, thread] = True
        with only(machine, alone):
            yield block, thread


def source_place(machine: Machine, location: Location) -> str:
    """Return 'file:line' for a message."""
    return f"{machine.code.files.get(location.file, '')}:{location.line}"


def read_only(machine: Machine, access: MemoryOp, region: Region) -> None:
    """Stop a launch that writes where it may not."""
    place = source_place(machine, access.location)
    raise KernelTrap(f"kernel {machine.code.name} writes to '{region.name}' at {place}, which is read-only.")


def put(view: Array, index: Array, value: Array, mask: Array | None) -> None:
    """Write value to the flat view's places for the lanes of the mask; all three broadcast together."""
    if mask is None:
        if index.shape != value.shape:
            index = broadcast(index, np.broadcast_shapes(index.shape, value.shape))
        view[index] = value
        return
    shape = np.broadcast_shapes(index.shape, value.shape, mask.shape)
    chosen = broadcast(mask, shape)
    index = broadcast(index, shape)[chosen]
    view[index] = value.reshape(()) if value.size == 1 else broadcast(value, shape)[chosen]
