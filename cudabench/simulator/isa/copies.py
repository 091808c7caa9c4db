"""Copies between global and shared memory: cp.async, bulk copies of bytes, and tiles of tensors (PTX ISA 9.7.9.25).

cp.async copies at once, but the race checks treat its writes as unfinished until the thread waits for its group.

A bulk copy (cp.async.bulk, cp.reduce.async.bulk) is started by one thread, and also copies at once. It copies between
an array and the shared memory of one or several blocks, or between the shared memories of two blocks of a cluster. The
copy of a tile gets the tensor and the size of the tile from a tensor map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from cudabench.simulator.clusters import chunk_clusters
from cudabench.simulator.count.patterns import SECTOR
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import MemoryOp, active_lanes, read_only, restricted_to, source_place
from cudabench.simulator.isa.atomics import combination
from cudabench.simulator.isa.mbarrier import build_copies_arrive, complete, shared_places
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.state_spaces import load, store
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW, Region, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Op, Refuse, Run
from cudabench.simulator.program.ptx import Address, Immediate, Instruction, Operand, Symbol, Vector
from cudabench.simulator.tensor_maps import CHUNK, MAGIC, Mapped, TensorMap
from cudabench.simulator.values import DTYPES, INT64, UNSIGNED, ZERO, Array, Value, as_array, broadcast, different

WAVEFRONT = 128
Lane = tuple[int, int]  # (block, thread)
# A memory location: (row of a block, byte offset in its shared memory), or (region, address in the region).
MemoryLocation = tuple[Any, int]
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


def lanewise(builder: Builder, operand: Operand, type_: str) -> Callable[[Machine], Array]:
    """Return a function that maps a machine to the operand's values, of shape (blocks, threads)."""
    register = builder.source(operand, type_)
    return lambda machine: broadcast(machine.array(register, DTYPES[type_]), machine.chunk.shape)


class AddressOperand:
    """An address operand of a copy."""

    def __init__(self, builder: Builder, operand: Operand) -> None:
        self.register, self.offset = builder.address(operand)

    def shared(self, machine: Machine) -> tuple[Array, ...]:
        """Return three arrays: the block's row, the byte offset in its shared memory, and whether the block exists."""
        return shared_places(machine, self.register, self.offset)

    def generic(self, machine: Machine) -> tuple[Array, ...]:
        """Return a tuple of one array: each lane's generic address, of shape (blocks, threads)."""
        return (broadcast(flat(machine.registers[self.register], self.offset), machine.chunk.shape),)


def receivers(machine: Machine, lane: Lane, row: int, masks: Array | None) -> list[int]:
    """Return the rows of the blocks that receive a lane's copy.

    masks: each lane's mask of receiving ranks in the cluster. Without masks, only block `row` receives the copy.
    """
    clusters = chunk_clusters(machine)
    if masks is None or clusters is None:
        return [row]
    ranks = (rank for rank in range(clusters.size) if int(masks[lane]) >> rank & 1)
    return [int(clusters.rows[clusters.cluster[lane[0]], rank]) for rank in ranks]


def check_range(
    machine: Machine, access: MemoryOp, address: int, nbytes: int, low: int, high: int, alignment: int = CHUNK,
    known: bool = True,
) -> bool:  # fmt: skip
    """Return whether `nbytes` bytes at an address are aligned and inside [low, high); if not, record a hazard.

    known: whether the memory that the address names exists.
    """
    place: Array = np.full((1, 1), address, INT64)
    if (address | nbytes % CHUNK) % alignment:
        machine.hazards.misaligned(machine, access, machine.lanes(), place, alignment)
    elif not (known and low <= address <= high - nbytes):
        machine.hazards.outside(machine, access, machine.lanes(), place, nbytes, low, high)
    else:
        return True
    return False


def with_size(access: MemoryOp, nbytes: int, width: int) -> MemoryOp:
    """Return a copy of the access record with a size of `nbytes`.

    The copy gets a new access number, as the race checks keep some state by access number.
    """
    resized = copy(access)
    resized.size, resized.count, resized.number = nbytes, max(1, nbytes // width), access.number + (nbytes << 32)
    return resized


class SharedOperand:
    """Shared memory as the source or the destination of a copy."""

    def __init__(self, builder: Builder, kind: AccessKind, place: AddressOperand, count: int = 2) -> None:
        self.access = MemoryOp(builder, kind, UNSIGNED[64], count, "shared")
        self.spots = place.shared  # returns the addresses of all lanes
        builder.proxies |= kind == "load"

    def find(
        self, machine: Machine, spots: Sequence[Array], lane: Lane, nbytes: int, alignment: int = CHUNK
    ) -> MemoryLocation | None:
        """Return the block row and offset of a lane's bytes.

        If the bytes are misaligned or out of bounds, record a hazard and return None.
        """
        row, offset, known = (int(part[lane]) for part in spots)
        valid = check_range(machine, self.access, offset, nbytes, 0, machine.shared_size, alignment, bool(known))
        return (row, offset) if valid else None

    def bytes(self, machine: Machine, spot: MemoryLocation, nbytes: int) -> Array:
        return machine.shared[spot[0], spot[1] : spot[1] + nbytes]

    def note(self, machine: Machine, block: int, spot: MemoryLocation, nbytes: int, data: Array = ()) -> None:
        """Count the access to a block's shared memory, and log it for the race checks.

        block: the row of the block that started the copy.
        """
        row, offset = spot
        wavefronts = -(-nbytes // WAVEFRONT)
        machine.counters.add(self.access.numbers["shared"], 1, wavefronts, wavefronts)
        access, chunk = with_size(self.access, nbytes, self.access.width), machine.chunk
        if access.kind == "load":
            pieces = np.arange(offset // CHUNK, (offset + nbytes) // CHUNK)
            lane = int(np.argmax(machine.lanes()[block]))
            machine.proxies.read(access.location, [row], pieces, [lane], "a bulk copy")
        address = np.full((1, 1), offset, INT64)
        if row == block:
            # Pretend that each thread writes a different value, so that a write by any other thread is a race.
            own = (np.arange(chunk.threads, dtype=np.uint64).reshape(1, -1),) if access.kind == "store" else ()
            machine.shared_races.log(access, address, machine.mask, own)
        elif access.kind == "store":
            machine.shared_races.written(np.array([row]), np.array([offset]), nbytes)
        if machine.plan.cluster is not None:
            rows = np.full(chunk.shape, row, np.int64)
            machine.cluster_races.log(access, rows, broadcast(address, chunk.shape), machine.lanes(), nbytes)


class GlobalOperand:
    """Global memory as the source or the destination of a copy."""

    def __init__(self, builder: Builder, kind: AccessKind, place: AddressOperand) -> None:
        self.access = MemoryOp(builder, kind, UNSIGNED[64], 1, "global")
        self.spots = place.generic  # returns the addresses of all lanes

    def find(self, machine: Machine, spots: Sequence[Array], lane: Lane, nbytes: int) -> MemoryLocation | None:
        """Return the region and the address of a lane's bytes.

        If the bytes are misaligned or out of bounds, record a hazard and return None.
        """
        address = int(spots[0][lane])
        region = machine.space.nearest(address)
        low, high = (1, 0) if region is None else (region.base, region.end)
        if not check_range(machine, self.access, address, nbytes, low, high) or region is None:
            return None
        if self.access.kind != "load" and not region.writable:
            read_only(machine, self.access, region)
        return region, address

    def bytes(self, machine: Machine, spot: MemoryLocation, nbytes: int) -> Array:
        region, address = spot
        return region.bytes[address - region.base : address - region.base + nbytes]

    def note(self, machine: Machine, block: int, spot: MemoryLocation, nbytes: int, data: Array = ()) -> None:
        """Count the access to global memory, and log it for the race checks."""
        self.rows(machine, spot[0], np.array([spot[1]]), nbytes, data)

    def rows(self, machine: Machine, region: Region, starts: Array, nbytes: int, data: Array) -> None:
        """Count and log the access to rows of `nbytes` bytes at the addresses `starts`; data: the stored rows."""
        pieces = int((-(-(starts % SECTOR + nbytes) // SECTOR)).sum())
        machine.counters.add(self.access.numbers["global"], 1, pieces, len(starts) * -(-nbytes // SECTOR))
        races = machine.global_races
        if races.written is not None and region.base not in races.written:
            return
        width = 8 if nbytes % 8 == 0 else 1
        access = with_size(self.access, nbytes, width)
        for row, start in enumerate(starts.tolist()):
            words = []
            if access.kind == "store":
                words = [word.reshape(1, 1) for word in data[row].view(UNSIGNED[8 * width])]
            races.log(access, region, np.full((1, 1), start, INT64), 0, machine.mask, words)


def reduction(ins: Instruction) -> str:
    name = next((word for word in ins.modifiers if word in _REDUCTIONS), "")
    if not name:
        raise refuse(ins)
    return name


def build_copy(builder: Builder, ins: Instruction) -> Run:
    """Build a bulk copy of bytes (cp.async.bulk), or a bulk reduction of numbers (cp.reduce.async.bulk)."""
    words, reduces = ins.modifiers, "reduce" in ins.modifiers
    if "cp_mask" in words or "ignore_oob" in words:
        raise Refuse(f"bulk copies of some bytes ({ins.text})")
    if reduces and words[-1] not in DTYPES:
        raise refuse(ins)
    to_shared, from_shared = (
        word.startswith("shared") for word in words if word.partition(":")[0] in ("global", "shared")
    )
    combine = combination(reduction(ins), words[-1]) if reduces else None
    dtype = DTYPES[words[-1] if words[-1] not in ("f16", "bf16") else "b16"] if reduces else UNSIGNED[8]
    into, out_of = AddressOperand(builder, ins.operands[0]), AddressOperand(builder, ins.operands[1])
    size = lanewise(builder, ins.operands[2], "u32")
    barrier = AddressOperand(builder, ins.operands[3]) if to_shared else None
    ranks = lanewise(builder, ins.operands[4], "u16") if "multicast:cluster" in words else None
    builder.address_register = into.register
    plain = to_shared != from_shared and not reduces and ranks is None
    count = 1 if plain else 2
    source: SharedOperand | GlobalOperand = (
        SharedOperand(builder, "load", out_of, count) if from_shared else GlobalOperand(builder, "load", out_of)
    )
    kind: AccessKind = "atomic" if reduces else "store"
    target: SharedOperand | GlobalOperand = (
        SharedOperand(builder, kind, into, count) if to_shared else GlobalOperand(builder, kind, into)
    )

    def run(machine: Machine) -> None:
        sizes, sources, targets = size(machine), source.spots(machine), target.spots(machine)
        waits = None if barrier is None else barrier.shared(machine)[1]
        masks = None if ranks is None else ranks(machine)
        for lane in active_lanes(machine):
            nbytes = int(sizes[lane])
            spots: list[MemoryLocation] = []
            spot = target.find(machine, targets, lane, nbytes)
            origin = None if spot is None else source.find(machine, sources, lane, nbytes)
            if spot is not None and origin is not None:
                content = source.bytes(machine, origin, nbytes).copy()
                source.note(machine, lane[0], origin, nbytes)
                spots = [spot]
                if to_shared:
                    spots = [(row, spot[1]) for row in receivers(machine, lane, spot[0], masks)]
            for spot in spots:
                target.note(machine, lane[0], spot, nbytes, [content])
                view = target.bytes(machine, spot, nbytes).view(dtype)
                view[:] = content.view(dtype) if combine is None else combine(view, content.view(dtype))
            if waits is not None:  # complete the barrier even after an error, so that no lane waits forever
                for row in [row for row, _ in spots] or [lane[0]]:
                    complete(machine, row, int(waits[lane]), nbytes)

    return run


TILE_ALIGNMENT = 128  # in bytes, for the address of a tile in shared memory


class TileOperand:
    """The operand [map, {x, y, ...}] of a tensor copy: a tensor map and the coordinates where the tile begins."""

    def __init__(self, builder: Builder, ins: Instruction, operand: Operand) -> None:
        if not isinstance(operand, Vector) or len(operand.items) != 2 or not isinstance(operand.items[1], Vector):
            raise Refuse(f"instruction {ins.text} with this tensor")
        first = operand.items[0]
        first = Address(first.name, first.offset) if isinstance(first, Symbol) else first
        self.ins, self.map = ins, AddressOperand(builder, first)
        self.corner = [lanewise(builder, item, "s32") for item in operand.items[1].items]
        self.dimensions = next((int(word[0]) for word in ins.modifiers if word in ("1d", "2d", "3d", "4d", "5d")), 0)
        if not self.dimensions or any(word.startswith(("im2col", "tile:")) for word in ins.modifiers):
            raise Refuse(f"tensor copies of anything but plain tiles ({ins.text})")

    def find_map(self, machine: Machine, address: int) -> Mapped:
        """Return the tensor map at an address.

        Raises KernelTrap if there is no tensor map, or if its number of dimensions is not the instruction's.
        """
        parameter = address >> 32 == PARAMETER_WINDOW >> 32
        region = machine.parameters if parameter else machine.space.nearest(address)
        start = -1 if region is None else address - region.base
        raw = region.bytes[start : start + 16].tobytes() if region is not None and start >= 0 else b""
        mapped = machine.tensor_maps.get(int.from_bytes(raw[8:], "little")) if raw[:8] == MAGIC else None
        place = source_place(machine, self.ins.location)
        if mapped is None:
            raise KernelTrap(
                f"kernel {machine.code.name} copies by a tensor map at {place}, but no tensor map is there: pass it as "
                "`const __grid_constant__ CUtensorMap`, or as a pointer to one."
            )
        if len(mapped.map.sizes) != self.dimensions:
            raise KernelTrap(
                f"kernel {machine.code.name} copies {self.dimensions} dimensions at {place}, but its tensor map has "
                f"{len(mapped.map.sizes)}."
            )
        return mapped

    def tile_copies(
        self, machine: Machine, shared: SharedOperand, global_: GlobalOperand
    ) -> Iterator[tuple[Lane, Mapped, tuple[int, ...], MemoryLocation | None]]:
        """Yield, for each active lane: (lane, tensor map, corner of the tile, where the tile is in shared memory).

        If the lane's copy is invalid, a hazard is recorded and the last item is None.
        """
        spots, (maps,) = shared.spots(machine), self.map.generic(machine)
        corners = [value(machine) for value in self.corner]
        for lane in active_lanes(machine):
            mapped, corner = self.find_map(machine, int(maps[lane])), tuple(int(axis[lane]) for axis in corners)
            tensor = mapped.map
            spot = shared.find(machine, spots, lane, tensor.rows * tensor.pitch, TILE_ALIGNMENT)
            if spot is not None and not check_corner(machine, global_.access, tensor, corner):
                spot = None
            yield lane, mapped, corner, spot


def check_corner(machine: Machine, access: MemoryOp, tensor: TensorMap, corner: tuple[int, ...]) -> bool:
    """Return whether a GPU accepts the coordinates where the active lane's tile begins; if not, record a hazard.

    No manual documents this rule: an H200 stops with an illegal instruction if the innermost coordinate is not a
    multiple of 16 bytes, or if a stored tile begins before the tensor (`tests.hopper_tiles`).
    """
    loads = access.kind == "load"
    if corner[0] * tensor.width % CHUNK:
        kind, why = "misaligned", f"; {corner[0]} elements of {tensor.width} bytes are not a multiple of {CHUNK} bytes"
    elif not loads and min(corner) < 0:
        kind, why = "out-of-bounds", ", before its tensor"
    else:
        return True
    machine.hazards.report(
        machine, kind, access.location, machine.lanes(), f"{'loads' if loads else 'stores'} a tile that begins at "
        f"{corner}, innermost first{why}: a GPU stops there with an illegal instruction",
    )  # fmt: skip
    return False


def inside(mapped: Mapped, corner: tuple[int, ...]) -> tuple[Any, Array, Array, Array] | None:
    """Return where the tile at `corner` overlaps its tensor, or None if it does not.

    The tuple has four items: the index of the overlap in the tile (rows, columns), a flat view of the tensor's memory,
    the index of each overlapping element in this view, and the address of each overlapping row.
    """
    tensor, region = mapped.map, mapped.region
    starts, rows, part = tensor.places(corner)
    count = part.stop - part.start
    if count <= 0 or not rows.any():
        return None
    first = starts[rows] + part.start * tensor.width
    view = region.bytes[mapped.base - region.base :]
    view = view[: view.size // tensor.width * tensor.width].view(UNSIGNED[8 * tensor.width])
    return (rows, part), view, (first // tensor.width)[:, None] + np.arange(count), mapped.base + first


def build_tensor(builder: Builder, ins: Instruction) -> Run:
    """Build the copy of a tile to the shared memory of one or several blocks, or else the copy from shared memory."""
    words = ins.modifiers
    if "reduce" in words or next(word for word in words if word.partition(":")[0] in ("global", "shared")) == "global":
        return _store(builder, ins)
    into = AddressOperand(builder, ins.operands[0])
    tiles, barrier = TileOperand(builder, ins, ins.operands[1]), AddressOperand(builder, ins.operands[2])
    ranks = lanewise(builder, ins.operands[3], "u16") if "multicast:cluster" in words else None
    shared, global_ = SharedOperand(builder, "store", into), GlobalOperand(builder, "load", tiles.map)

    def run(machine: Machine) -> None:
        waits, masks = barrier.shared(machine)[1], None if ranks is None else ranks(machine)
        for lane, mapped, corner, spot in tiles.tile_copies(machine, shared, global_):
            tensor, receiving = mapped.map, [lane[0]]
            if spot is not None:
                content: Array = np.zeros((tensor.rows, tensor.tile[0]), UNSIGNED[8 * tensor.width])
                if tensor.fill == "nan" and tensor.width > 1:  # the bits that an H200 writes
                    content.view(np.uint16)[:] = 0x7FF7
                overlap = inside(mapped, corner)
                if overlap is not None:
                    in_tensor, view, index, starts = overlap
                    content[in_tensor] = view[index]
                    global_.rows(machine, mapped.region, starts, index.shape[1] * tensor.width, [])
                pieces, chunks = content.view(np.uint64).reshape(tensor.rows, -1, 2), tensor.chunks(spot[1])
                receiving = receivers(machine, lane, spot[0], masks)
                for row in receiving:
                    shared.note(machine, lane[0], (row, spot[1]), tensor.rows * tensor.pitch)
                    machine.shared[row].view(np.uint64).reshape(-1, 2)[chunks] = pieces
            for row in receiving:  # complete the barrier even after an error, so that no lane waits forever
                complete(machine, row, int(waits[lane]), tensor.nbytes)

    return run


def _store(builder: Builder, ins: Instruction) -> Run:
    """Build the copy of a tile from shared memory to its tensor, or the reduction of the tile into the tensor."""
    name = reduction(ins) if "reduce" in ins.modifiers else ""
    tiles, out_of = TileOperand(builder, ins, ins.operands[0]), AddressOperand(builder, ins.operands[1])
    builder.write_addresses.append(tiles.map.register)
    shared, global_ = (
        SharedOperand(builder, "load", out_of),
        GlobalOperand(builder, "atomic" if name else "store", tiles.map),
    )

    def run(machine: Machine) -> None:
        for lane, mapped, corner, spot in tiles.tile_copies(machine, shared, global_):
            if spot is None:
                continue
            tensor, overlap = mapped.map, inside(mapped, corner)
            if not mapped.region.writable:
                read_only(machine, global_.access, mapped.region)
            shared.note(machine, lane[0], spot, tensor.rows * tensor.pitch)
            if overlap is None:
                continue
            in_tensor, view, index, starts = overlap
            pieces = machine.shared[spot[0]].view(np.uint64).reshape(-1, 2)[tensor.chunks(spot[1])]
            whole = np.ascontiguousarray(pieces).reshape(tensor.rows, -1).view(view.dtype)
            content = np.ascontiguousarray(whole[in_tensor])
            if name:
                type_, dtype = _type_of(tensor.type)
                old = view[index].view(dtype)
                content = combination(name, type_)(old, content.view(dtype)).view(content.dtype)
            view[index] = content
            global_.rows(machine, mapped.region, starts, index.shape[1] * tensor.width, content)

    return run


def _type_of(name: str) -> tuple[str, np.dtype[Any]]:
    """Return the PTX type of tensor elements with this NumPy type name, and their dtype in registers."""
    if name in ("float16", "bfloat16"):
        return ("f16" if name == "float16" else "bf16"), UNSIGNED[16]
    dtype = np.dtype(name)
    return f"{dtype.kind.replace('i', 's')}{8 * dtype.itemsize}", dtype


WIDE = 16  # bytes per lane of the copies that may request a sector twice


@instruction("cp")
def _cp(builder: Builder, ins: Instruction) -> Run | Op | None:
    """Build cp.async and its commit and wait instructions, or cp.async.bulk."""
    words = ins.modifiers
    if "bulk" in words:
        if {"commit_group", "wait_group", "prefetch"} & set(words):
            return None  # nothing to do: simulated bulk copies end when they start
        return (build_tensor if "tensor" in words else build_copy)(builder, ins)
    if "mbarrier" in words:
        return build_copies_arrive(builder, ins)
    if words[0] != "async":
        raise refuse(ins)
    if "commit_group" in words:
        return lambda machine: machine.shared_races.commit(machine.mask)
    if "wait_all" in words or "wait_group" in words:
        count = ins.operands[0].value if "wait_group" in words and isinstance(ins.operands[0], Immediate) else None
        return lambda machine: machine.shared_races.wait(count, machine.mask)
    return _copy(builder, ins)


def _copy(builder: Builder, ins: Instruction) -> Run:
    into, into_offset = builder.address(ins.operands[0])
    out_of, out_offset = builder.address(ins.operands[1])
    size = ins.operands[2]
    if not isinstance(size, Immediate):
        raise refuse(ins)
    # The optional operand after the size is either the number of bytes to read, or a predicate that skips the read.
    read_size = None if any("cache_hint" in word for word in ins.modifiers) else next(iter(ins.operands[3:]), size)
    if read_size is None or isinstance(read_size, Immediate):
        size_register, flip = builder.source(read_size or size, "u32"), False
    else:
        size_register, flip = builder.predicate(read_size)
    skips, words = builder.width(size_register) == 1, size.value // 4
    reads = MemoryOp(builder, "load", UNSIGNED[32], words, "global")
    writes = MemoryOp(builder, "store", UNSIGNED[32], words, "shared")
    writes.copied = reads
    builder.shared_accesses[-1] = (writes, into)

    def run(machine: Machine) -> None:
        registers, shape = machine.registers, machine.chunk.shape
        if skips:
            sizes = np.where(machine.predicate(size_register, flip), np.uint32(0), np.uint32(size.value))
        else:
            sizes = np.minimum(machine.array(size_register, UNSIGNED[32]), np.uint32(size.value))
        data: list[Value] = [ZERO] * words
        for count in different(broadcast(sizes, shape)[machine.lanes()]).tolist()[::-1]:
            lanes = None if (sizes == count).all() else sizes == count
            access = reads if count == size.value else _bytes(reads, count)
            with restricted_to(machine, lanes):
                loaded = load(machine, access, "global", registers[out_of], out_offset) if count else None
                if loaded is not None and count == WIDE:
                    machine.counters.wide_copy(
                        reads.numbers["global"], flat(registers[out_of], out_offset),
                        flat(registers[into], into_offset), machine.mask, machine.chunk,
                    )  # fmt: skip
            if loaded is None:
                continue
            if count < size.value:
                octets = np.zeros((*np.shape(loaded[0]), size.value), np.uint8)
                octets[..., :count] = np.stack(loaded, axis=-1)
                loaded = [*np.moveaxis(octets.view(np.uint32), -1, 0)]
            olds = (as_array(old, UNSIGNED[32]) for old in data)
            data = loaded if lanes is None else [np.where(lanes, *pair) for pair in zip(loaded, olds, strict=True)]
        machine.shared_races.asynchronous = True
        store(machine, writes, "shared", registers[into], into_offset, data)
        machine.shared_races.asynchronous = False

    return run


def _bytes(load: MemoryOp, count: int) -> MemoryOp:
    """Return the record of a load of only the first `count` bytes: the others are not read and may be out of bounds."""
    part = copy(load)
    part.dtype, part.count, part.width, part.size = UNSIGNED[8], count, 1, count
    return part
