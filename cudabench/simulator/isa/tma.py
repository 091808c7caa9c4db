"""Bulk copies beyond one block's own memory: of tensors, to several blocks, between blocks, with a reduction.

cp.async.bulk.tensor, cp.reduce.async.bulk, multicast and copies from block to block of a cluster (PTX ISA 9.7.9.25 and
9.7.9.27). One thread starts a copy, and it is carried out at once, lane by lane.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.clusters import members, resolve
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa import mbarrier
from cudabench.simulator.isa.access import MemoryOp, read_only
from cudabench.simulator.isa.atomics import combination
from cudabench.simulator.isa.opcodes import refuse
from cudabench.simulator.memory import PARAMETER_WINDOW, Region, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Address, Instruction, Operand, Symbol, Vector
from cudabench.simulator.tensor_maps import CHUNK, MAGIC, Mapped, TensorMap
from cudabench.simulator.values import DTYPES, INT64, UNSIGNED, Array, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

SECTOR, WAVEFRONT = 32, 128
TILE_ALIGNMENT = 128  # of a tile in shared memory; a swizzle wants its pattern's
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


class Value:
    """An operand of a copy, as each lane has it."""

    def __init__(self, builder: Builder, operand: Operand, type_: str) -> None:
        self.register = builder.source(operand, type_)
        self.dtype = DTYPES[type_]

    def of(self, machine: Machine) -> Array:
        """Return what all lanes have, (blocks, threads)."""
        return broadcast(as_array(machine.registers[self.register], self.dtype, machine.chunk), machine.chunk.shape)


class Place:
    """An address of a copy."""

    def __init__(self, builder: Builder, operand: Operand) -> None:
        self.register, self.offset = builder.address(operand)

    def shared(self, machine: Machine) -> tuple[Array, Array, Array]:
        """Return (row of the block, offset in its shared memory, whether there is one)."""
        return resolve(machine, mbarrier.shared_offsets(machine, self.register, self.offset))

    def of(self, machine: Machine) -> Array:
        """Return generic addresses, (blocks, threads)."""
        return broadcast(flat(machine.registers[self.register], self.offset, machine.chunk), machine.chunk.shape)


def active_lanes(machine: Machine) -> Iterator[tuple[int, int]]:
    """Yield (block, thread) of the active lanes, and let each be the only active one."""
    mask, warps = machine.mask, machine._warps
    try:
        for block, thread in np.argwhere(machine.chunk.real(machine.lanes())).tolist():
            alone: Array = np.zeros(machine.chunk.shape, bool)
            alone[block, thread] = True
            machine.mask, machine._warps = alone, -1
            yield block, thread
    finally:
        machine.mask, machine._warps = mask, warps


def receivers(machine: Machine, block: int, row: int, ranks: int | None) -> list[int]:
    """Return the rows of the blocks that a copy goes to: of a mask of ranks, or the one that its address names."""
    found = members(machine)
    if ranks is None or found is None:
        return [row]
    return [int(found.rows[found.cluster[block], rank]) for rank in range(found.size) if ranks >> rank & 1]


class Shared:
    """Shared memory as one end of a copy."""

    def __init__(self, builder: Builder, kind: Any) -> None:
        self.access = MemoryOp(builder, kind, UNSIGNED[64], 2, "shared")
        builder.proxies |= kind == "load"

    def fits(self, machine: Machine, offset: int, nbytes: int, alignment: int, known: bool) -> bool:
        """Return whether bytes lie in the memory, at their alignment; record where not."""
        shape = machine.chunk.shape
        lanes, address = machine.lanes(), np.full(shape, offset, INT64)
        if offset % alignment:
            machine.hazards.misaligned(machine, self.access, lanes, address, alignment)
            return False
        if not known or not 0 <= offset <= machine.shared_size - nbytes:
            machine.hazards.outside(machine, self.access, lanes, address, nbytes, 0, machine.shared_size)
            return False
        return True

    def note(self, machine: Machine, block: int, row: int, offset: int, nbytes: int) -> None:
        """Count a copy's part of a block's memory, and log it."""
        turns = -(-nbytes // WAVEFRONT)
        machine.counters.add(self.access.numbers["shared"], 1, turns, turns)
        sized = copy.copy(self.access)
        sized.size, sized.count = nbytes, nbytes // sized.width
        sized.number = self.access.number + (nbytes << 32)
        chunk = machine.chunk
        if self.access.kind == "load":
            lane = int(np.argmax(machine.lanes()[block]))
            pieces = np.arange(offset // CHUNK, (offset + nbytes) // CHUNK)
            machine.proxies.read(self.access.location, [row], pieces, [lane], "a bulk copy")
        address = np.full((1, 1), offset, INT64)
        data = (np.arange(chunk.threads, dtype=np.uint64).reshape(1, -1),) if sized.kind == "store" else ()
        if row == block:
            machine.shared_races.log(sized, address, 0, machine.mask, data)
        elif sized.kind == "store":
            machine.shared_races.written(np.array([row]), np.array([offset]), nbytes)
        if machine.plan.cluster is not None:
            rows = np.full(chunk.shape, row, np.int64)
            machine.cluster_races.log(sized, rows, broadcast(address, chunk.shape), machine.lanes(), nbytes)


class Global:
    """Global memory as the other end."""

    def __init__(self, builder: Builder, kind: Any) -> None:
        self.access = MemoryOp(builder, kind, UNSIGNED[64], 1, "global")

    def note(self, machine: Machine, region: Region, starts: Array, nbytes: int, data: list[Array]) -> None:
        """Count a copy's rows of `nbytes` at some addresses, and log them. data: what is written, by row."""
        pieces = int((-(-(starts % SECTOR + nbytes) // SECTOR)).sum())
        machine.counters.add(self.access.numbers["global"], 1, pieces, len(starts) * -(-nbytes // SECTOR))
        races = machine.global_races
        if races.written is not None and region.base not in races.written:
            return
        sized = copy.copy(self.access)
        width = 8 if nbytes % 8 == 0 else 1
        sized.size, sized.count = nbytes, max(1, nbytes // width)
        sized.number = self.access.number + (nbytes << 32)
        for at, start in enumerate(starts.tolist()):
            words = []
            if data:
                words = [word.reshape(1, 1) for word in data[at].view(UNSIGNED[8 * width])]
            races.log(sized, region, np.full((1, 1), start, INT64), 0, machine.mask, words)

    def region(self, machine: Machine, address: int, nbytes: int) -> Region | None:
        """Return the array in which bytes lie at their alignment of 16, None, and a record, where there is none."""
        lanes, where = machine.lanes(), np.full(machine.chunk.shape, address, INT64)
        if address % CHUNK:
            machine.hazards.misaligned(machine, self.access, lanes, where, CHUNK)
            return None
        found = machine.space.nearest(address)
        if found is None or not found.base <= address <= found.end - nbytes:
            low, high = (1, 0) if found is None else (found.base, found.end)
            machine.hazards.outside(machine, self.access, lanes, where, nbytes, low, high)
            return None
        if self.access.kind != "load" and not found.writable:
            read_only(machine, self.access, found)
        return found


def _barrier(machine: Machine, rows: list[int], offset: int, nbytes: int) -> None:
    """Tell the barrier at an offset of each receiver."""
    if 0 <= offset <= machine.shared_size - 8:
        for row in rows:
            mbarrier.complete(machine, row, offset, nbytes)


# Plain bytes ---------------------------------------------------------------------------------------------------------


def build_wide(builder: Builder, ins: Instruction) -> Run:
    """Build cp.async.bulk to several blocks of a cluster, or from a block to another."""
    words = ins.modifiers
    several = "multicast:cluster" in words
    spaces = [word.partition(":")[0] for word in words if word.partition(":")[0] in ("global", "shared")]
    into, out_of = Place(builder, ins.operands[0]), Place(builder, ins.operands[1])
    size, barrier = Value(builder, ins.operands[2], "u32"), Place(builder, ins.operands[3])
    ranks = Value(builder, ins.operands[4], "u16") if several else None
    target = Shared(builder, "store")
    near = Shared(builder, "load") if spaces[1] == "shared" else None
    far = Global(builder, "load") if near is None else None

    def run(machine: Machine) -> None:
        rows, offsets, known = into.shared(machine)
        sizes = size.of(machine)
        _, waits, _ = barrier.shared(machine)
        masks = None if ranks is None else ranks.of(machine)
        source_rows, source_offsets, source_known = out_of.shared(machine)
        addresses = out_of.of(machine)
        for block, thread in active_lanes(machine):
            at = block, thread
            nbytes, offset = int(sizes[at]), int(offsets[at])
            if not target.fits(machine, offset, nbytes, CHUNK, bool(known[at])):
                continue
            content: Array
            if near is not None:
                row, start = int(source_rows[at]), int(source_offsets[at])
                if not near.fits(machine, start, nbytes, CHUNK, bool(source_known[at])):
                    continue
                near.note(machine, block, row, start, nbytes)
                content = machine.shared[row, start : start + nbytes].copy()
            else:
                assert far is not None
                address = int(addresses[at])
                region = far.region(machine, address, nbytes)
                if region is None:
                    continue
                far.note(machine, region, np.array([address]), nbytes, [])
                content = region.bytes[address - region.base : address - region.base + nbytes]
            into_rows = receivers(machine, block, int(rows[at]), None if masks is None else int(masks[at]))
            for row in into_rows:
                target.note(machine, block, row, offset, nbytes)
                machine.shared[row, offset : offset + nbytes] = content
            _barrier(machine, into_rows, int(waits[at]), nbytes)

    return run


def _reduction(ins: Instruction) -> str:
    name = next((word for word in ins.modifiers if word in _REDUCTIONS), "")
    if not name:
        raise refuse(ins)
    return name


def build_reduction(builder: Builder, ins: Instruction) -> Run:
    """Build cp.reduce.async.bulk: bytes of shared memory into an array, or another block's memory."""
    name = _reduction(ins)
    type_ = ins.modifiers[-1]
    if type_ not in DTYPES:
        raise refuse(ins)
    combine: Callable[..., Array] = combination(name, type_)
    into, out_of = Place(builder, ins.operands[0]), Place(builder, ins.operands[1])
    size = Value(builder, ins.operands[2], "u32")
    spaces = [word.partition(":")[0] for word in ins.modifiers if word.partition(":")[0] in ("global", "shared")]
    to_shared = spaces[0] == "shared"
    barrier = Place(builder, ins.operands[3]) if to_shared else None
    if not to_shared:
        builder.write_addresses.append(into.register)
    near = Shared(builder, "load")
    far = Shared(builder, "atomic") if to_shared else None
    wide = Global(builder, "atomic")
    dtype = DTYPES[type_] if type_ not in ("f16", "bf16") else UNSIGNED[16]

    def run(machine: Machine) -> None:
        source_rows, source_offsets, source_known = out_of.shared(machine)
        rows, offsets, known = into.shared(machine)
        addresses, sizes = into.of(machine), size.of(machine)
        waits = barrier.shared(machine)[1] if barrier else None
        for block, thread in active_lanes(machine):
            at = block, thread
            nbytes, start, row = int(sizes[at]), int(source_offsets[at]), int(source_rows[at])
            if not near.fits(machine, start, nbytes, CHUNK, bool(source_known[at])):
                continue
            values = machine.shared[row, start : start + nbytes].view(dtype).copy()
            near.note(machine, block, row, start, nbytes)
            if far is not None and waits is not None:
                other, offset = int(rows[at]), int(offsets[at])
                if not far.fits(machine, offset, nbytes, CHUNK, bool(known[at])):
                    continue
                far.note(machine, block, other, offset, nbytes)
                view = machine.shared[other, offset : offset + nbytes].view(dtype)
                view[:] = combine(view, values)
                _barrier(machine, [other], int(waits[at]), nbytes)
                continue
            address = int(addresses[at])
            region = wide.region(machine, address, nbytes)
            if region is not None:
                wide.note(machine, region, np.array([address]), nbytes, [])
                view = region.bytes[address - region.base : address - region.base + nbytes].view(dtype)
                view[:] = combine(view, values)

    return run


# Tensors -------------------------------------------------------------------------------------------------------------


class Tile:
    """The operand [map, {x, y, ...}]."""

    def __init__(self, builder: Builder, operand: Operand) -> None:
        if not isinstance(operand, Vector) or len(operand.items) != 2 or not isinstance(operand.items[1], Vector):
            raise Refuse(f"instruction {builder.ins.text} with this tensor")
        first = operand.items[0]
        if isinstance(first, Symbol):
            first = Address(first.name, first.offset)
        self.map = Place(builder, first)
        self.corner = [Value(builder, item, "s32") for item in operand.items[1].items]

    def found(self, machine: Machine, address: int, dimensions: int, ins: Instruction) -> Mapped:
        """Return the map at an address. Raises KernelTrap where there is none of so many dimensions."""
        content: Array = np.empty(0, np.uint8)
        if address >> 32 == PARAMETER_WINDOW >> 32:
            start = address - PARAMETER_WINDOW
            content = machine.parameters.bytes[start : start + 16]
        elif (region := machine.space.nearest(address)) is not None and region.base <= address:
            content = region.bytes[address - region.base : address - region.base + 16]
        raw = content.tobytes()
        mapped = machine.tensor_maps.get(int.from_bytes(raw[8:], "little")) if raw[:8] == MAGIC else None
        place = f"{machine.code.files.get(ins.location.file, '')}:{ins.location.line}"
        if mapped is None:
            raise KernelTrap(
                f"kernel {machine.code.name} copies by a tensor map at {place}, and there is none: take it as "
                "`const __grid_constant__ CUtensorMap`, or as a pointer to one."
            )
        if len(mapped.map.sizes) != dimensions:
            raise KernelTrap(
                f"kernel {machine.code.name} copies {dimensions} dimensions at {place}, and its tensor map has "
                f"{len(mapped.map.sizes)}."
            )
        found: Mapped = mapped
        return found


def begins_well(
    machine: Machine, access: MemoryOp, tensor: TensorMap, corner: tuple[int, ...], lane: tuple[int, int]
) -> bool:
    """Return whether a tile begins where a GPU copies one, and record where not.

    No manual says so: an H200 stops with an illegal instruction where the innermost coordinate is no multiple of 16
    bytes, and where what is stored begins before the tensor (`tests.hopper_tiles`).
    """
    block, thread = machine.chunk.block_index(lane[0]), machine.chunk.thread_index(lane[1])
    start = f"thread {thread} of block {block} {{}} a tile that begins at {corner}, innermost first"
    end = "a GPU stops there with an illegal instruction."
    if corner[0] * tensor.width % CHUNK:
        what = f"{corner[0]} elements of {tensor.width} bytes are no multiple of {CHUNK} bytes: {end}"
        text = f"{start.format('loads' if access.kind == 'load' else 'stores')}; {what}"
        machine.hazards.add("misaligned", access.location, 1, block, thread, text)
        return False
    if access.kind != "load" and min(corner) < 0:
        text = f"{start.format('stores')}, before its tensor: {end}"
        machine.hazards.add("out-of-bounds", access.location, 1, block, thread, text)
        return False
    return True


def build_tensor(builder: Builder, ins: Instruction) -> Run:
    """Build cp.async.bulk.tensor and cp.reduce.async.bulk.tensor of tiles."""
    words = ins.modifiers
    dimensions = next((int(word[0]) for word in words if word in ("1d", "2d", "3d", "4d", "5d")), 0)
    if not dimensions or any(word.startswith(("im2col", "tile:")) for word in words):
        raise Refuse(f"tensor copies that are no plain tiles ({ins.text})")
    if "reduce" in words or next(word for word in words if word.partition(":")[0] in ("global", "shared")) == "global":
        return _store(builder, ins, dimensions)
    into = Place(builder, ins.operands[0])
    tile = Tile(builder, ins.operands[1])
    barrier = Place(builder, ins.operands[2])
    several = "multicast:cluster" in words
    ranks = Value(builder, ins.operands[3], "u16") if several else None
    near, far = Shared(builder, "store"), Global(builder, "load")

    def run(machine: Machine) -> None:
        rows, offsets, known = into.shared(machine)
        _, waits, _ = barrier.shared(machine)
        masks = None if ranks is None else ranks.of(machine)
        maps, corners = tile.map.of(machine), [value.of(machine) for value in tile.corner]
        for block, thread in active_lanes(machine):
            at = block, thread
            mapped = tile.found(machine, int(maps[at]), dimensions, ins)
            tensor, offset = mapped.map, int(offsets[at])
            if not near.fits(machine, offset, tensor.rows * tensor.pitch, TILE_ALIGNMENT, bool(known[at])):
                _barrier(machine, [block], int(waits[at]), tensor.nbytes)  # nobody is to wait for it for ever
                continue
            place = tuple(int(corner[at]) for corner in corners)
            if not begins_well(machine, far.access, tensor, place, at):
                _barrier(machine, [block], int(waits[at]), tensor.nbytes)
                continue
            starts, inside, part = tensor.places(place)
            count = part.stop - part.start
            content: Array = np.zeros((tensor.rows, tensor.tile[0]), UNSIGNED[8 * tensor.width])
            if tensor.fill == "nan":
                content[:] = _not_a_number(tensor.width)
            if count > 0 and inside.any():
                first = starts[inside] + part.start * tensor.width
                view = mapped.region.bytes[mapped.base - mapped.region.base :]
                view = view[: view.size // tensor.width * tensor.width].view(content.dtype)
                index = (first // tensor.width)[:, None] + np.arange(count)
                content[inside, part] = view[index]
                far.note(machine, mapped.region, mapped.base + first, count * tensor.width, [])
            pieces = content.view(np.uint64).reshape(tensor.rows, -1, 2)
            chunks = tensor.chunks(offset)
            into_rows = receivers(machine, block, int(rows[at]), None if masks is None else int(masks[at]))
            for row in into_rows:
                near.note(machine, block, row, offset, tensor.rows * tensor.pitch)
                machine.shared[row].view(np.uint64).reshape(-1, 2)[chunks] = pieces
            _barrier(machine, into_rows, int(waits[at]), tensor.nbytes)

    return run


def _store(builder: Builder, ins: Instruction, dimensions: int) -> Run:
    """Build the copy of a tile from shared memory to its tensor, or its reduction into that."""
    name = _reduction(ins) if "reduce" in ins.modifiers else ""
    tile = Tile(builder, ins.operands[0])
    out_of = Place(builder, ins.operands[1])
    builder.write_addresses.append(tile.map.register)
    near, far = Shared(builder, "load"), Global(builder, "atomic" if name else "store")

    def run(machine: Machine) -> None:
        rows, offsets, known = out_of.shared(machine)
        maps, corners = tile.map.of(machine), [value.of(machine) for value in tile.corner]
        for block, thread in active_lanes(machine):
            at = block, thread
            mapped = tile.found(machine, int(maps[at]), dimensions, ins)
            tensor, offset, row = mapped.map, int(offsets[at]), int(rows[at])
            if not near.fits(machine, offset, tensor.rows * tensor.pitch, TILE_ALIGNMENT, bool(known[at])):
                continue
            if not mapped.region.writable:
                read_only(machine, far.access, mapped.region)
            place = tuple(int(corner[at]) for corner in corners)
            if not begins_well(machine, far.access, tensor, place, at):
                continue
            near.note(machine, block, row, offset, tensor.rows * tensor.pitch)
            pieces = machine.shared[row].view(np.uint64).reshape(-1, 2)[tensor.chunks(offset)]
            starts, inside, part = tensor.places(place)
            count = part.stop - part.start
            if count <= 0 or not inside.any():
                continue
            whole = np.ascontiguousarray(pieces).reshape(tensor.rows, -1).view(UNSIGNED[8 * tensor.width])
            content = np.ascontiguousarray(whole[inside, part])
            first = starts[inside] + part.start * tensor.width
            view = mapped.region.bytes[mapped.base - mapped.region.base :]
            view = view[: view.size // tensor.width * tensor.width].view(content.dtype)
            index = (first // tensor.width)[:, None] + np.arange(count)
            if name:
                type_, dtype = _type_of(tensor.type)
                content = combination(name, type_)(view[index].view(dtype), content.view(dtype)).view(content.dtype)
            view[index] = content
            far.note(machine, mapped.region, mapped.base + first, count * tensor.width, [] if name else list(content))

    return run


def _not_a_number(width: int) -> Any:
    """Return the bits of what fills the outside of a tensor of floats of so many bytes: an H200 writes 7FF7."""
    return {2: np.uint16(0x7FF7), 4: np.uint32(0x7FF77FF7), 8: np.uint64(0x7FF77FF77FF77FF7)}.get(width, 0)


def _type_of(name: str) -> tuple[str, np.dtype[Any]]:
    """Return PTX's type of a tensor's elements by NumPy's name, and how registers hold it."""
    if name in ("float16", "bfloat16"):
        return ("f16" if name == "float16" else "bf16"), UNSIGNED[16]
    dtype = np.dtype(name)
    return f"{dtype.kind.replace('i', 's')}{8 * dtype.itemsize}", dtype
