"""Loads and stores (PTX ISA 9.7.9): address checks, counts, the race log, then the data.

Affine addresses that are known to be in bounds move as strided views; all others as gathers and scatters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.opcodes import Run, instruction
from cudabench.simulator.memory import (
    HALF_SLOT,
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    SLOT_BITS,
    WINDOW,
    Region,
    flat,
    narrow,
)
from cudabench.simulator.program.lower import Builder, Refuse
from cudabench.simulator.program.ptx import BITS, Address, Instruction, Location, Vector
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, canonical

SPACES = ("global", "shared", "local", "const", "param")
_STORAGE = {8: UNSIGNED[8], 16: UNSIGNED[16], 32: UNSIGNED[32], 64: UNSIGNED[64]}


class Access:
    """One memory instruction: where it is, what it does, how many bytes a lane moves."""

    __slots__ = ("count", "dtype", "kind", "location", "number", "numbers", "size", "width")

    def __init__(self, builder: Builder, kind: str, dtype: np.dtype[Any], count: int, space: str) -> None:
        self.kind, self.dtype, self.count = kind, dtype, count
        self.width = dtype.itemsize
        self.size = self.width * count
        self.location: Location = builder.ins.location
        spaces = (
            ("global", "shared", "local")
            if space == "generic"
            else ("global",)
            if space in ("const", "param")
            else (space,)
        )
        self.number = len(builder.accesses)
        if kind != "load" and "global" in spaces:
            builder.write_addresses.append(builder.address_register)
        self.numbers = {name: builder.access(name, kind, self.size, self.width) for name in spaces}


def space_of(ins: Instruction) -> str:
    """Return the state space that an instruction names, or 'generic'."""
    for word in ins.modifiers:
        name = word.partition(":")[0]
        if name in SPACES:
            if word == "shared:cluster":
                raise Refuse("thread block clusters")
            return name
    return "generic"


# Checks.


def aligned(address: Affine, offset: int, size: int) -> bool:
    """Return whether all lanes' addresses are multiples of a power of two."""
    bits = address.base + offset
    if address.coefficients is not None:
        for coefficient in address.coefficients:
            bits |= coefficient
    return bits & (size - 1) == 0


def suppress(mask: Array | None, bad: Array) -> Array:
    """Return the mask without the bad lanes."""
    good = ~bad
    return good if mask is None else mask & good


class Lanes:
    """The lanes of a general access: byte addresses int64 in the smallest shape, and which of them are active."""

    __slots__ = ("address", "mask")

    def __init__(self, machine: Any, address: Value, offset: int) -> None:
        self.address = flat(address, offset, machine.chunk)
        mask = machine.mask
        self.mask: Array | None = None if mask is None else narrow(mask, self.address.shape)
        if self.mask is not None and self.mask.all():
            self.mask = None

    def exact(self, machine: Any) -> Array | None:
        """Return the mask of the lanes themselves, where `mask` may tell only of the places that they share."""
        if self.mask is None:
            return machine.mask
        return self.mask if machine.mask is None else self.mask & machine.mask

    def extremes(self) -> tuple[int, int, int]:
        """Return (lowest, highest, bitwise or) of the active addresses."""
        address = self.address
        if self.mask is not None:
            address = np.broadcast_to(address, np.broadcast_shapes(address.shape, self.mask.shape))[
                np.broadcast_to(self.mask, np.broadcast_shapes(address.shape, self.mask.shape))
            ]
        return int(address.min()), int(address.max()), int(np.bitwise_or.reduce(address, axis=None))

    def fill(self, value: int) -> Array:
        """Return the addresses with a harmless one in the inactive lanes."""
        if self.mask is None:
            return self.address
        return np.where(self.mask, self.address, np.int64(value))


def check(machine: Any, access: Access, lanes: Lanes, low: int, high: int, size: int) -> bool:
    """Report and suppress lanes outside of [low, high) or misaligned; return whether any lane is left."""
    address = np.broadcast_to(
        lanes.address, np.broadcast_shapes(lanes.address.shape, (1, 1) if lanes.mask is None else lanes.mask.shape)
    )
    crooked = (address & (size - 1)) != 0 if size & (size - 1) == 0 else np.zeros(address.shape, dtype=bool)
    if lanes.mask is not None:
        crooked = crooked & lanes.mask
    if crooked.any():
        machine.hazards.misaligned(machine, access, crooked, address, size)
        lanes.mask = suppress(lanes.mask, crooked)
    outside = (address < low) | (address > high - size)
    if lanes.mask is not None:
        outside = outside & lanes.mask
    if outside.any():
        machine.hazards.outside(machine, access, outside, address, size, low, high)
        lanes.mask = suppress(lanes.mask, outside)
    return lanes.mask is None or bool(lanes.mask.any())


# Global memory.


def find(machine: Any, access: Access, lanes: Lanes) -> list[tuple[Region, Array | None]]:
    """Return the regions that the lanes touch, each with its lanes (None: all of the mask), all checked."""
    low, high, bits = lanes.extremes()
    space = machine.space
    slot = low >> SLOT_BITS
    if 0 < slot < len(space.slots):
        region = space.slots[slot]
        assert region is not None
        if high + access.size <= region.end and bits & (access.size - 1) == 0:
            return [(region, None)]
    if low >= PARAMETER_WINDOW and high < PARAMETER_WINDOW + WINDOW:
        region = machine.parameters
        return [(region, None)] if check(machine, access, lanes, region.base, region.end, access.size) else []
    address = np.broadcast_to(
        lanes.address, np.broadcast_shapes(lanes.address.shape, (1, 1) if lanes.mask is None else lanes.mask.shape)
    )
    owners = (address + HALF_SLOT) >> SLOT_BITS
    found: list[tuple[Region, Array | None]] = []
    chosen = owners if lanes.mask is None else owners[np.broadcast_to(lanes.mask, owners.shape)]
    original = lanes.mask
    keep = np.zeros(address.shape, dtype=bool)
    for number in np.unique(chosen).tolist():
        part = owners == number
        if original is not None:
            part = part & original
        lanes.mask = part
        region = space.slots[number] if 0 < number < len(space.slots) else None
        if region is None:
            check(machine, access, lanes, 1, 0, access.size)
            continue
        if check(machine, access, lanes, region.base, region.end, access.size):
            found.append((region, lanes.mask))
            keep |= lanes.mask
    lanes.mask = keep
    return found


def load_global(machine: Any, access: Access, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from global memory, or None where no lane may read."""
    chunk = machine.chunk
    number = access.numbers["global"]
    if type(address) is Affine and not chunk.ragged:
        low = address.low + offset
        slot = low >> SLOT_BITS
        slots = machine.space.slots
        if 0 < slot < len(slots):
            region = slots[slot]
            if address.high + offset + access.size <= region.end and aligned(address, offset, access.size):
                machine.counters.global_(number, address, offset, access.size, machine.mask, machine.warps, chunk)
                machine.global_races.log(access, region, address, offset, machine.mask, None)
                if machine.trace is not None:
                    machine.trace.record(machine, access, "global", flat(address, offset, chunk), machine.mask)
                return [
                    _shaped(region.strided(address, offset + place * access.width, access.dtype, chunk), address)
                    for place in range(access.count)
                ]
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if not regions:
        return None
    parameters = regions[0][0] is machine.parameters
    if not parameters:
        warps = machine.warps
        machine.counters.global_(number, lanes.address, 0, access.size, lanes.exact(machine), warps, chunk)
        if machine.trace is not None:
            machine.trace.record(machine, access, "global", lanes.address, lanes.exact(machine))
    if len(regions) == 1:
        region = regions[0][0]
        if not parameters:
            machine.global_races.log(access, region, lanes.address, 0, lanes.exact(machine), None)
        return _gather(region, access, lanes.fill(region.base) - region.base)
    total: list[Array] = []
    for region, mask in regions:
        assert mask is not None
        exact = mask if machine.mask is None else mask & machine.mask
        machine.global_races.log(access, region, lanes.address, 0, exact, None)
        part = _gather(region, access, np.where(mask, lanes.address, region.base) - region.base)
        total = part if not total else [np.where(mask, new, old) for new, old in zip(part, total, strict=True)]
    return total


def _shaped(view: Array, address: Affine) -> Array:
    coefficients = address.coefficients
    if coefficients is None:
        return view.copy()
    if not any(coefficients[3:]):
        return view.reshape(1, -1).copy()
    if not any(coefficients[:3]):
        return view.reshape(-1, 1).copy()
    blocks = view.shape[0] * view.shape[1] * view.shape[2]
    result = np.empty(view.shape, view.dtype)
    result[...] = view
    return result.reshape(blocks, -1)


def _gather(region: Region, access: Access, offsets: Array) -> list[Array]:
    width = access.width
    view = region.view(access.dtype)
    if access.count == 1 or region.size % width == 0:
        index = offsets >> (width.bit_length() - 1)
        return [view.take(index + place if place else index) for place in range(access.count)]
    index = offsets >> (width.bit_length() - 1)
    return [view.take(index + place) for place in range(access.count)]


def store_global(machine: Any, access: Access, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to global memory."""
    chunk = machine.chunk
    number = access.numbers["global"]
    dtype = access.dtype
    if type(address) is Affine and not chunk.ragged:
        low = address.low + offset
        slot = low >> SLOT_BITS
        slots = machine.space.slots
        if 0 < slot < len(slots):
            region = slots[slot]
            if address.high + offset + access.size <= region.end and aligned(address, offset, access.size):
                if not region.writable:
                    read_only(machine, access, region)
                machine.counters.global_(number, address, offset, access.size, machine.mask, machine.warps, chunk)
                machine.global_races.log(access, region, address, offset, machine.mask, data)
                if machine.trace is not None:
                    machine.trace.record(machine, access, "global", flat(address, offset, chunk), machine.mask)
                if machine.mask is None and address.coefficients is not None and any(address.coefficients[:3]):
                    for place in range(access.count):
                        view = region.strided(address, offset + place * access.width, dtype, chunk)
                        _assign(view, as_array(data[place], dtype, chunk), chunk)
                    return
                _scatter(machine, region, access, flat(address, offset, chunk), machine.mask, data)
                return
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if not regions:
        return
    mask = lanes.exact(machine)
    machine.counters.global_(number, lanes.address, 0, access.size, mask, machine.warps, chunk)
    if machine.trace is not None:
        machine.trace.record(machine, access, "global", lanes.address, mask)
    for region, part in regions:
        if not region.writable:
            read_only(machine, access, region)
        chosen = part if part is not None else lanes.mask
        exact = machine.mask if chosen is None else chosen if machine.mask is None else chosen & machine.mask
        machine.global_races.log(access, region, lanes.address, 0, exact, data)
        _scatter(machine, region, access, lanes.address, exact, data)


def read_only(machine: Any, access: Access, region: Region) -> None:
    """Stop a launch that writes where it may not."""
    file = machine.code.files.get(access.location.file, "")
    raise KernelTrap(
        f"kernel {machine.code.name} writes to '{region.name}' at {file}:{access.location.line}, which is read-only."
    )


def _assign(view: Array, value: Array, chunk: Any) -> None:
    """Write (blocks, threads) values through a view of the shape of a box."""
    if value.size > 1:
        blocks = chunk.box[:3] if value.shape[0] == chunk.blocks and chunk.blocks > 1 else (1, 1, 1)
        threads = chunk.box[3:] if value.shape[1] == chunk.threads else (1, 1, 1)
        value = value.reshape(*blocks, *threads)
        if view.shape[:3] == (1, 1, 1) and blocks != (1, 1, 1):
            # All blocks write the same place: the last one stays.
            value = value[-1:, -1:, -1:]
    else:
        value = value.reshape(())
    view[...] = value


def _scatter(
    machine: Any, region: Region, access: Access, address: Array, mask: Array | None, data: list[Value]
) -> None:
    view = region.view(access.dtype)
    shift = access.width.bit_length() - 1
    chunk = machine.chunk
    index = (address - region.base) >> shift
    for place in range(access.count):
        value = as_array(data[place], access.dtype, chunk)
        put(view, index + place if place else index, value, mask)


def put(view: Array, index: Array, value: Array, mask: Array | None) -> None:
    """Write value to the flat view's places for the lanes of the mask; all three broadcast together."""
    if mask is None:
        if index.shape != value.shape:
            shape = np.broadcast_shapes(index.shape, value.shape)
            index, value = np.broadcast_to(index, shape), np.broadcast_to(value, shape)
        view[index] = value
        return
    shape = np.broadcast_shapes(index.shape, value.shape, mask.shape)
    chosen = np.broadcast_to(mask, shape)
    index = np.broadcast_to(index, shape)[chosen]
    view[index] = value.reshape(()) if value.size == 1 else np.broadcast_to(value, shape)[chosen]


# Shared memory.


def load_shared(machine: Any, access: Access, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its block's shared memory."""
    chunk = machine.chunk
    memory = machine.shared
    dtype, width = access.dtype, access.width
    if type(address) is Affine and address.low >= 1 << 31:
        address = values.signed(address, 32) or address
    if type(address) is Affine:
        c = address.coefficients
        if (
            address.low + offset >= 0
            and address.high + offset + access.size <= machine.shared_size
            and (c is None or not (c[3] or c[4] or c[5] or chunk.ragged))
            and aligned(address, offset, access.size)
        ):
            _note_shared(machine, access, address, offset, machine.mask, None)
            start = address.base + offset
            row = memory.shape[1]
            if c is None:
                return [
                    np.ndarray((chunk.blocks, 1), dtype, memory, start + place * width, (row, 0)).copy()
                    for place in range(access.count)
                ]
            return [
                np.ndarray(
                    (chunk.blocks, *chunk.box[3:]),
                    dtype,
                    memory,
                    start + place * width,
                    (row, c[2], c[1], c[0]),
                )
                .copy("C")
                .reshape(chunk.blocks, -1)
                for place in range(access.count)
            ]
    lanes = Lanes(machine, address, offset)
    low, high, bits = lanes.extremes()
    if (low < 0 or high + access.size > machine.shared_size or bits & (access.size - 1)) and not check(
        machine, access, lanes, 0, machine.shared_size, access.size
    ):
        return None
    mask = lanes.exact(machine)
    _note_shared(machine, access, lanes.address, 0, mask, None)
    filled = lanes.fill(0)
    shift = width.bit_length() - 1
    if filled.shape[0] == 1:
        index = (filled >> shift)[0]
        view = memory.view(dtype)
        return [view.take(index + place if place else index, axis=1) for place in range(access.count)]
    index = (filled + _row_starts(chunk, memory)) >> shift
    view = memory.reshape(-1).view(dtype)
    return [view.take(index + place if place else index) for place in range(access.count)]


def _row_starts(chunk: Any, memory: Array) -> Array:
    return (np.arange(chunk.blocks, dtype=np.int64) * memory.shape[1]).reshape(-1, 1)


def _note_shared(
    machine: Any, access: Access, address: Value, offset: int, mask: Array | None, data: list[Value] | None
) -> None:
    machine.counters.shared(
        access.numbers["shared"],
        address,
        offset,
        access.size,
        mask,
        machine.warps,
        machine.chunk,
        access.kind == "load",
    )
    machine.shared_races.log(access, address, offset, mask, data)
    if machine.trace is not None:
        machine.trace.record(machine, access, "shared", flat(address, offset, machine.chunk), mask)


def store_shared(machine: Any, access: Access, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its block's shared memory."""
    chunk = machine.chunk
    memory = machine.shared
    dtype, width = access.dtype, access.width
    if type(address) is Affine and address.low >= 1 << 31:
        address = values.signed(address, 32) or address
    if type(address) is Affine and machine.mask is None:
        c = address.coefficients
        if (
            c is not None
            and address.low + offset >= 0
            and address.high + offset + access.size <= machine.shared_size
            and not (c[3] or c[4] or c[5])
            and aligned(address, offset, access.size)
        ):
            _note_shared(machine, access, address, offset, None, data)
            start = address.base + offset
            for place in range(access.count):
                view = np.ndarray(
                    (chunk.blocks, *chunk.box[3:]),
                    dtype,
                    memory,
                    start + place * width,
                    (memory.shape[1], c[2], c[1], c[0]),
                )
                value = as_array(data[place], dtype, chunk)
                rows, columns = value.shape
                view[...] = value.reshape(rows, *(chunk.box[3:] if columns > 1 else (1, 1, 1)))
            return
    lanes = Lanes(machine, address, offset)
    low, high, bits = lanes.extremes()
    if (low < 0 or high + access.size > machine.shared_size or bits & (access.size - 1)) and not check(
        machine, access, lanes, 0, machine.shared_size, access.size
    ):
        return
    # A uniform address has a mask of one place; which lanes write still matters for the value.
    mask = lanes.exact(machine)
    _note_shared(machine, access, lanes.address, 0, mask, data)
    index = (lanes.address + _row_starts(chunk, memory)) >> (width.bit_length() - 1)
    view = memory.reshape(-1).view(dtype)
    for place in range(access.count):
        put(view, index + place if place else index, as_array(data[place], dtype, chunk), mask)


# Local memory.


def _local_address(address: Affine | Array, chunk: Any, offsets: Array) -> Array:
    """Return addresses as the hardware lays local memory out: word k of all lanes of a warp lie side by side."""
    lane = np.arange(chunk.threads, dtype=np.int64) & 31
    return (offsets >> 2) * 128 + lane * 4 + (offsets & 3)


def local_index(machine: Any, access: Access, address: Value, offset: int) -> tuple[Any, Array | None] | None:
    """Return (byte index into the flat local memory or the uniform offset, mask), all checked and counted."""
    chunk = machine.chunk
    size = machine.code.local_bytes
    number = access.numbers["local"]
    if type(address) is Affine and address.coefficients is None:
        place = address.base + offset
        full = machine.mask is None
        if full and place >= 0 and place + access.size <= size and place % access.size == 0:
            pieces = machine.warps * max(1, access.size // 4) * 4
            machine.counters.add(number, machine.warps, pieces, machine.warps * -(-access.size * 32 // 32))
            return place, machine.mask
    lanes = Lanes(machine, address, offset)
    low, high, bits = lanes.extremes()
    if (low < 0 or high + access.size > size or bits & (access.size - 1)) and not check(
        machine, access, lanes, 0, size, access.size
    ):
        return None
    mask = lanes.exact(machine)
    placed = _local_address(address, chunk, lanes.fill(0))
    pieces = 0
    from cudabench.simulator.count.counters import sectors, spread

    rows, some, times = spread(placed, mask, chunk)
    for word in range(max(1, access.size // 4)):
        pieces += sectors(rows + word * 128, min(4, access.size), some)[0] * times
    machine.counters.add(number, machine.warps, pieces, machine.warps * access.size)
    row = machine.local.shape[2]
    start = np.arange(chunk.blocks * chunk.threads, dtype=np.int64).reshape(chunk.shape) * row
    return lanes.fill(0) + start, mask


def load_local(machine: Any, access: Access, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its local memory."""
    found = local_index(machine, access, address, offset)
    if found is None:
        return None
    index, _ = found
    width = access.width
    if isinstance(index, int):
        view = machine.local.view(access.dtype)
        return [np.ascontiguousarray(view[:, :, index // width + place]) for place in range(access.count)]
    view = machine.local.reshape(-1).view(access.dtype)
    index = index >> (width.bit_length() - 1)
    return [view.take(index + place) for place in range(access.count)]


def store_local(machine: Any, access: Access, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its local memory."""
    found = local_index(machine, access, address, offset)
    if found is None:
        return
    index, mask = found
    width = access.width
    for place in range(access.count):
        value = as_array(data[place], access.dtype, machine.chunk)
        if isinstance(index, int):
            view = machine.local.view(access.dtype)[:, :, index // width + place]
            if mask is None:
                view[...] = value
            else:
                np.copyto(view, value, where=mask)
        else:
            flat_view = machine.local.reshape(-1).view(access.dtype)
            put(flat_view, (index >> (width.bit_length() - 1)) + place, value, mask)


# Generic addresses.


def spaces(machine: Any, address: Value, offset: int) -> list[tuple[str, int, Array | None]]:
    """Return (space, window start, lanes) of a generic access; lanes None means all active ones."""
    if type(address) is Affine:
        low, high = address.low + offset, address.high + offset
    else:
        lanes = Lanes(machine, address, offset)
        low, high, _ = lanes.extremes()
    for name, start in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
        if low >= start - WINDOW // 2 and high < start + WINDOW:
            return [(name, start, None)]
    if low >= 1 << 39 or high < SHARED_WINDOW - WINDOW:
        return [("global", 0, None)]
    where = np.broadcast_to(flat(address, offset, machine.chunk), machine.chunk.shape)
    active = machine.lanes()
    parts: list[tuple[str, int, Array | None]] = []
    rest = active
    for name, start in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
        inside = (where >= start - WINDOW // 2) & (where < start + WINDOW) & active
        if inside.any():
            parts.append((name, start, inside))
            rest = rest & ~inside
    if rest.any():
        parts.append(("global", 0, rest))
    return parts


_LOAD = {"global": load_global, "shared": load_shared, "local": load_local, "const": load_global, "param": load_global}
_STORE = {"global": store_global, "shared": store_shared, "local": store_local}


def load(machine: Any, access: Access, space: str, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads."""
    if space != "generic":
        return _LOAD[space](machine, access, address, offset)
    parts = spaces(machine, address, offset)
    if len(parts) == 1:
        name, start, _ = parts[0]
        return _LOAD[name](machine, access, address, offset - start)
    total: list[Array] | None = None
    mask, warps = machine.mask, machine._warps
    for name, start, lanes in parts:
        machine.mask, machine._warps = lanes, -1
        part = _LOAD[name](machine, access, address, offset - start)
        if part is not None:
            total = part if total is None else [np.where(lanes, n, o) for n, o in zip(part, total, strict=True)]  # type: ignore[arg-type]
    machine.mask, machine._warps = mask, warps
    return total


def store(machine: Any, access: Access, space: str, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements."""
    if space != "generic":
        _STORE[space](machine, access, address, offset, data)
        return
    parts = spaces(machine, address, offset)
    mask, warps = machine.mask, machine._warps
    for name, start, lanes in parts:
        if lanes is not None:
            machine.mask, machine._warps = lanes, -1
        _STORE[name](machine, access, address, offset - start, data)
    machine.mask, machine._warps = mask, warps


# Instructions.


def element(ins: Instruction) -> tuple[str, int]:
    """Return (element type, number of elements) of a load or store."""
    count = next((int(word[1:]) for word in ins.modifiers if word in ("v2", "v4", "v8")), 1)
    type_ = ins.modifiers[-1]
    if type_ == "b128":
        return "b64", 2 * count
    if type_ not in DTYPES:
        raise Refuse(f"instruction {ins.text}")
    return type_, count


_ORDERS = frozenset(["relaxed", "acquire", "release", "volatile", "mmio"])
_HINTS = (
    frozenset(
        [
            "weak",
            "cta",
            "gpu",
            "sys",
            "ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "nc",
            "wb",
            "wt",
            "unified",
            "v2",
            "v4",
            "v8",
        ]
    )
    | frozenset(SPACES)
    | _ORDERS
)


def known(builder: Builder, ins: Instruction) -> None:
    """Refuse a load or store with a modifier that is no plain hint; note one that may order blocks."""
    builder.orders |= not _ORDERS.isdisjoint(ins.modifiers) and space_of(ins) in ("global", "generic")
    for word in ins.modifiers[:-1]:
        if word in _HINTS or word.startswith(("L1:", "L2:", "level:", "param:", "shared:cta")):
            continue
        raise Refuse("thread block clusters" if "cluster" in word else f"instruction {ins.text}")


@instruction("ld", "ldu")
def build_ld(builder: Builder, ins: Instruction) -> Run:
    """Build ld."""
    known(builder, ins)
    type_, count = element(ins)
    space = space_of(ins)
    into = ins.operands[0]
    items = into.items if isinstance(into, Vector) else (into,)
    if type_ == "b64" and ins.modifiers[-1] == "b128":
        raise Refuse(f"instruction {ins.text}")
    dtype = DTYPES[type_]
    if dtype.kind == "f":
        dtype = _STORAGE[dtype.itemsize * 8] if dtype.itemsize == 2 else dtype
    if space == "param":
        found = _load_param(builder, ins, items, type_)
        if found is not None:
            return found
    targets = [builder.target(item) for item in items]
    address, offset = builder.address(ins.operands[1])
    # A pointer out of memory may point anywhere; a loaded index points nowhere.
    builder.taint = 1 if dtype.itemsize == 8 else 0
    place = builder.initial[address]
    if space == "param" and type(place) is Affine and place.base >= PARAMETER_WINDOW:
        return _load_kernel_param(builder, targets, place.base + offset - PARAMETER_WINDOW, type_)
    access = Access(builder, "load", dtype, count, space)
    wide = []
    for target in targets:
        width = builder.width(target)
        wide.append((SIGNED if type_[0] == "s" else UNSIGNED)[width] if width > BITS[type_] else None)

    def run(machine: Any) -> None:
        found = load(machine, access, space, machine.registers[address], offset)
        for place, target in enumerate(targets):
            if found is None:
                machine.put(target, Affine(0))
                continue
            value = found[place]
            if wide[place] is not None:
                value = value.astype(wide[place])
            machine.put(target, canonical(value))

    return run


def _load_kernel_param(builder: Builder, targets: list[int], start: int, type_: str) -> Run:
    """Build ld.param of the kernel's own parameters at a fixed place: the same value for all lanes."""
    dtype = DTYPES[type_]
    width = dtype.itemsize
    builder.taint = 1 << (1 + start) if width == 8 and len(targets) == 1 else (1 if width == 8 else 0)
    extended = [(SIGNED if type_[0] == "s" else UNSIGNED)[max(builder.width(target), 8 * width)] for target in targets]

    def run(machine: Any) -> None:
        for place, target in enumerate(targets):
            key = (start, place, type_)
            value = machine.parameter_values.get(key)
            if value is None:
                raw = machine.parameters.bytes[start + place * width : start + (place + 1) * width]
                array = raw.view(dtype).reshape(1, 1)
                if dtype.kind != "f" and extended[place].itemsize > width:
                    array = array.astype(extended[place])
                value = machine.parameter_values[key] = canonical(array)
            machine.put(target, value)

    return run


def _load_param(builder: Builder, ins: Instruction, items: tuple[Any, ...], type_: str) -> Run | None:
    """Build ld.param of a call's parameter, which is a register here; None for the kernel's own parameters."""
    place = ins.operands[1]
    if not isinstance(place, Address) or place.base is None:
        return None
    variable = builder.param_name(place.base)
    if variable is None:
        return None
    bits = BITS[type_]
    slots = builder.slots.get(variable, {})
    plans = []
    for index, item in enumerate(items):
        start = place.offset + index * bits // 8
        exact = slots.get((start, bits))
        if exact is None and not any(s < start + bits // 8 and s + w // 8 > start for s, w in slots):
            exact = builder.slot(variable, start, bits)
        pieces = []
        if exact is not None:
            builder.uses.append(exact)
        else:
            for (offset, width), slot in slots.items():
                if offset < start + bits // 8 and offset + width // 8 > start:
                    pieces.append((slot, width, (offset - start) * 8))
                    builder.uses.append(slot)
        target = builder.target(item)
        plans.append((target, builder.width(target), exact, tuple(pieces)))
    source, extend = DTYPES[type_], type_[0] == "s"

    def run(machine: Any) -> None:
        for target, width, exact, pieces in plans:
            if exact is not None:
                value = machine.registers[exact]
            else:
                total: Any = np.uint64(0)
                for slot, slot_width, shift in pieces:
                    part = machine.array(slot, UNSIGNED[slot_width]).astype(np.uint64)
                    total = total | (part << np.uint64(shift) if shift >= 0 else part >> np.uint64(-shift))
                value = total.astype(UNSIGNED[bits])
            if width > bits and type(value) is not Affine:
                value = as_array(value, source, machine.chunk).astype((SIGNED if extend else UNSIGNED)[width])
            machine.put(target, value)

    return run


@instruction("st")
def build_st(builder: Builder, ins: Instruction) -> Run:
    """Build st."""
    if "async" in ins.modifiers or "bulk" in ins.modifiers:
        raise Refuse("asynchronous bulk copies (TMA)")
    known(builder, ins)
    type_, count = element(ins)
    space = space_of(ins)
    out_of = ins.operands[1]
    items = out_of.items if isinstance(out_of, Vector) else (out_of,)
    if type_ == "b64" and ins.modifiers[-1] == "b128":
        raise Refuse(f"instruction {ins.text}")
    sources = [builder.source(item, type_) for item in items]
    place = ins.operands[0]
    if space == "param":
        variable = builder.param_name(place.base) if isinstance(place, Address) and place.base else None
        if variable is None or not isinstance(place, Address):
            raise Refuse(f"instruction {ins.text} with this address")
        bits = BITS[type_]
        slots = [builder.slot(variable, place.offset + index * bits // 8, bits) for index in range(len(items))]
        builder.defs.extend(slots)
        narrowing = [builder.width(source) > bits for source in sources]

        def assign(machine: Any) -> None:
            for slot, source, less in zip(slots, sources, narrowing, strict=True):
                value = machine.registers[source]
                if less:
                    value = canonical(as_array(value, UNSIGNED[bits], machine.chunk))
                machine.put(slot, value)

        return assign
    if space == "const":
        raise Refuse(f"instruction {ins.text}")
    address, offset = builder.address(place)
    dtype = DTYPES[type_]
    if dtype.kind == "f" and dtype.itemsize == 2:
        dtype = UNSIGNED[16]
    access = Access(builder, "store", dtype, count, space)

    def run(machine: Any) -> None:
        registers = machine.registers
        store(machine, access, space, registers[address], offset, [registers[source] for source in sources])

    return run
