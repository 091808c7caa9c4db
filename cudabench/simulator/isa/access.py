"""Used by loads, stores and atomics: the record of a memory instruction, its lanes, and the checks of addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.hazards import PADDING
from cudabench.simulator.count.atomics import Served
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.memory import Region, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, CachedAs
from cudabench.simulator.program.debug_info import Variable
from cudabench.simulator.program.ptx import Instruction, Location
from cudabench.simulator.values import Array, Value, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


SPACES = ("global", "shared", "local", "const", "param")
ORDERS = frozenset(("relaxed", "acquire", "release", "volatile", "mmio"))
COUNTED_AS = {"const": "constant", "param": "global"}


class MemoryOp:
    """One memory instruction: its location in the source, its kind, element type and bytes per lane."""

    def __init__(
        self, builder: Builder, kind: AccessKind, dtype: np.dtype[Any], count: int, space: str, what: str = ""
    ) -> None:
        self.kind, self.dtype, self.count, self.space = kind, dtype, count, space
        self.width, self.size = dtype.itemsize, dtype.itemsize * count
        self.location: Location = builder.ins.location
        spaces = ("global", "shared", "local") if space == "generic" else (COUNTED_AS.get(space, space),)
        self.number = len(builder.accesses)
        builder.access_made = self
        builder.memory.append(self)
        self.address = builder.address_register
        self.results: tuple[int, ...] = ()  # the registers that receive what a load instruction reads
        self.guess = False  # whether this load reads the expected value of a later compare-and-swap
        # For a load whose value only one `selp` reads: its predicate, and the predicate's value where it uses the load.
        self.chosen: tuple[int, bool] | None = None
        self.cached: CachedAs = ""  # how this load uses the read-only cache
        words, opcode = set(builder.ins.modifiers), builder.ins.opcode
        orders = opcode in ("atom", "red") or (opcode in ("ld", "st") and "async" not in words and bool(ORDERS & words))
        # Whether this access is atomic, volatile or has a memory order, in any state space.
        self.strong = orders or kind == "atomic"
        # The same for global memory: whether other blocks may wait for this access, or it has block scope.
        self.ordered = orders and "global" in spaces and "cta" not in words
        self.narrow = orders and "global" in spaces and "cta" in words
        # Whether this is an acquire load, which orders the writes that another thread released before later accesses.
        self.acquires = kind == "load" and "acquire" in words
        self.target: int | None = None  # for an atomic: the register that receives the old value
        self.served: Served | None = None  # for an atomic: how the hardware serves it in shared memory
        self.update = what.partition(".")[0]  # for an atomic: the name of its operation, such as "add"
        self.copied: MemoryOp | None = None  # for the store of an asynchronous copy: the load of this copy
        self.polls = False  # whether a loop repeats this access until another thread has written a value
        self.bounds: tuple[int, int] | None = None  # byte range of the accessed local array, if known
        self.variable: Variable | None = None  # the accessed local array, if the debug information describes it
        self.shared_bounds: tuple[int, int] | None = None  # byte range of the accessed shared array, if known
        self.numbers = {name: builder.access(name, kind, self.size, self.width, what) for name in spaces}

    def concerned(self, machine: Machine, mask: Array | None) -> Array | None:
        """Return the lanes of a mask that may use the value of this access; the others cannot have a fault by it."""
        if self.chosen is None:
            return mask
        register, when = self.chosen
        return machine.predicate(register, not when) & (np.True_ if mask is None else mask)

    @property
    def may_poll(self) -> bool:
        """Whether this is a strong load, or an atomic that returns the old value: a thread may wait for its value."""
        return self.strong and (self.kind == "load" or (self.target is not None and self.space != "local"))

    @property
    def skewed(self) -> bool:
        """Whether the accessed local array starts at an offset that is not a multiple of the access size.

        Such an access is aligned only if the compiler happens to place the array well.
        """
        return self.variable is not None and self.variable.start % self.size != 0


def space_of(ins: Instruction) -> str:
    """Return the state space that an instruction names, or 'generic'."""
    for word in ins.modifiers:
        name = word.partition(":")[0]
        if name in SPACES:
            return name
    return "generic"


class Lanes:
    """The lanes of an access.

    `address`: the lanes' byte addresses (int64); a dimension along which they are equal may have length 1. `mask`: the
    active lanes, None for all.
    """

    __slots__ = ("address", "mask")

    def __init__(self, machine: Machine, address: Value, offset: int) -> None:
        self.address = flat(address, offset)
        self.mask: Array | None = machine.mask

    def active(self) -> Array:
        """Return the addresses of the active lanes in a flat array."""
        if self.mask is None:
            return self.address.reshape(-1)
        shape = np.broadcast_shapes(self.address.shape, self.mask.shape)
        return broadcast(self.address, shape)[broadcast(self.mask, shape)]

    @property
    def on(self) -> Array:
        """The mask of active lanes, or True if all lanes are active."""
        return np.True_ if self.mask is None else self.mask


def check(machine: Machine, access: MemoryOp, lanes: Lanes, low: int, high: int, padded: int = 0) -> bool:
    """Report and mask off the lanes outside [low, high) or misaligned; return whether any lane is left.

    padded: where the padding after the array ends; a GPU reports no accesses to the padding.
    """
    active, size = lanes.active(), access.size
    if active.size and active.min() >= low and active.max() + size <= high and not (active & (size - 1)).any():
        return True
    address = lanes.address
    misaligned = (address & (size - 1) != 0) & lanes.on & (size & (size - 1) == 0)
    if misaligned.any():
        machine.hazards.misaligned(machine, access, misaligned, address, size)
        lanes.mask = lanes.on & ~misaligned
    outside = ((address < low) | (address > high - size)) & lanes.on
    if outside.any():
        padding = outside & (address >= low) & (address <= padded - size)
        for faulting, scope in ((outside & ~padding, 0), (padding, PADDING)):
            if faulting.any():
                machine.hazards.outside(machine, access, faulting, address, size, low, high, scope)
        lanes.mask = lanes.on & ~outside
    return bool(lanes.on.any())


@contextmanager
def restricted_to(machine: Machine, lanes: Array | None) -> Iterator[None]:
    """Within this context, only active lanes in the mask `lanes` stay active; None keeps all active lanes."""
    mask = machine.mask
    if lanes is not None:
        machine.mask = lanes if mask is None else mask & lanes
    yield
    machine.mask = mask


def active_lanes(machine: Machine) -> Iterator[tuple[int, int]]:
    """Yield (block, thread) of each active lane; while the caller handles it, only that lane is active."""
    for block, thread in np.argwhere(machine.chunk.real(machine.mask)).tolist():
        lane_mask: Array = np.zeros(machine.chunk.shape, bool)
        lane_mask[block, thread] = True
        with restricted_to(machine, lane_mask):
            yield block, thread


def source_place(machine: Machine, location: Location) -> str:
    """Return a source location as 'file:line', for a message."""
    return f"{machine.code.files.get(location.file, '')}:{location.line}"


def read_only(machine: Machine, access: MemoryOp, region: Region) -> None:
    """Raise KernelTrap, which ends the launch: the kernel writes to a read-only array."""
    place = source_place(machine, access.location)
    raise KernelTrap(f"kernel {machine.code.name} writes to '{region.name}' at {place}, which is read-only.")


def put(view: Array, index: Array, value: Array, mask: Array | None) -> None:
    """Set `view[index] = value` in the lanes of the mask (None: all lanes), for a 1-D view of memory.

    `index`, `value` and `mask` are broadcast to one shape.
    """
    shape = np.broadcast_shapes(index.shape, value.shape, () if mask is None else mask.shape)
    index, value = broadcast(index, shape), broadcast(value, shape)
    if mask is not None:
        chosen = broadcast(mask, shape)
        index, value = index[chosen], value[chosen]
    view[index] = value
