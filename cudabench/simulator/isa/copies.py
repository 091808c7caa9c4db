"""Copies between global and shared memory: cp.async, bulk copies of bytes, and tiles of tensors (PTX ISA 9.7.9.25).

cp.async copies at once, but the race checks treat its writes as unfinished until the thread waits for its group.

A bulk copy (cp.async.bulk, cp.reduce.async.bulk) is started by one thread, and also copies at once. It copies between
an array and the shared memory of one or several blocks, or between the shared memories of two blocks of a cluster. The
copy of a tile gets the tensor and the size of the tile from a tensor map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

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
TILE_ALIGNMENT = 128  # in bytes, for the address of a tile in shared memory
Lane = tuple[int, int]  # (block, thread)
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


class Part(NamedTuple):
    """What one lane copies: `rows` rows of `width` bytes.

    nbytes: the bytes in shared memory; alignment: the alignment of the address there, in bytes. type: the PTX type of
    the numbers, for a reduction. For a tile, mapped: its tensor map; corner: the coordinates where it begins, x first.
    """

    rows: int
    width: int
    nbytes: int
    alignment: int
    type: str
    mapped: Mapped | None = None
    corner: tuple[int, ...] = ()


class Found(NamedTuple):
    """Where a part is in global memory.

    region: its memory; view: this memory as a flat array of numbers. inside: the index (rows, columns) of those numbers
    of the part that are in the tensor; index: their indices in the view; starts: the addresses of their rows.
    """

    region: Region
    view: Array
    inside: tuple[Any, Any]
    index: Array
    starts: Array


# Each side of a copy is Shared, Global or Tile. `find` returns where a lane's part is; if the part is misaligned or out
# of bounds, it records a hazard and returns None. `read` and `write` also count the access, and log it for the race
# checks. They take the row of the block that started the copy. The content is an array of 16-byte chunks (uint64), of
# shape (rows, chunks, 2). `write` stores the result of merge(old content, new content).
Merge = Callable[[Array, Array], Array]


def lanewise(builder: Builder, operand: Operand, type_: str) -> Callable[[Machine], Array]:
    """Return a function that maps a machine to the operand's values, of shape (blocks, threads)."""
    register = builder.source(operand, type_)
    return lambda machine: broadcast(machine.array(register, DTYPES[type_]), machine.chunk.shape)


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


class Shared:
    """A part in shared memory. Its place is (row of a block, byte offset in the block's shared memory)."""

    def __init__(self, builder: Builder, kind: AccessKind, operand: Operand) -> None:
        self.address = builder.address(operand)
        self.access = MemoryOp(builder, kind, UNSIGNED[64], 1, "shared")
        builder.proxies |= kind == "load"

    def addresses(self, machine: Machine) -> tuple[Array, ...]:
        """Return three arrays: the block's row, the byte offset in its shared memory, and whether the block exists."""
        return shared_places(machine, *self.address)

    def find(self, machine: Machine, addresses: Sequence[Array], lane: Lane, part: Part) -> tuple[int, int] | None:
        row, offset, known = (int(values[lane]) for values in addresses)
        size, alignment = machine.shared_size, part.alignment
        valid = check_range(machine, self.access, offset, part.nbytes, 0, size, alignment, bool(known))
        return (row, offset) if valid else None

    def chunks(self, machine: Machine, place: tuple[int, int], part: Part) -> tuple[Array, Array]:
        """Return the chunks of a block's shared memory, and the index of those that belong to the part."""
        row, offset = place
        index = np.arange(offset, offset + part.nbytes, CHUNK)[None] // CHUNK
        if part.mapped is not None:
            index = part.mapped.map.chunks(offset)
        return machine.shared[row].view(np.uint64).reshape(-1, 2), index

    def read(self, machine: Machine, block: int, place: tuple[int, int], part: Part) -> Array:
        self.note(machine, block, place, part.nbytes)
        memory, index = self.chunks(machine, place, part)
        return memory[index]

    def write(
        self, machine: Machine, block: int, place: tuple[int, int], part: Part, content: Array, merge: Merge
    ) -> None:
        self.note(machine, block, place, part.nbytes)
        memory, index = self.chunks(machine, place, part)
        memory[index] = merge(memory[index], content)

    def note(self, machine: Machine, block: int, place: tuple[int, int], nbytes: int) -> None:
        """Count and log the access to a block's shared memory; block: the row of the block that started the copy."""
        row, offset = place
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


class Global:
    """A part in global memory."""

    def __init__(self, builder: Builder, kind: AccessKind, operand: Operand) -> None:
        self.address = builder.address(operand)
        self.access = MemoryOp(builder, kind, UNSIGNED[64], 1, "global")

    def addresses(self, machine: Machine) -> tuple[Array, ...]:
        """Return a tuple of one array: each lane's generic address, of shape (blocks, threads)."""
        register, offset = self.address
        return (broadcast(flat(machine.registers[register], offset), machine.chunk.shape),)

    def find(self, machine: Machine, addresses: Sequence[Array], lane: Lane, part: Part) -> Found | None:
        address = int(addresses[0][lane])
        region = machine.space.nearest(address)
        low, high = (1, 0) if region is None else (region.base, region.end)
        if not check_range(machine, self.access, address, part.nbytes, low, high) or region is None:
            return None
        view = region.bytes[address - region.base :][: part.nbytes].view(np.uint64)
        return Found(region, view, (slice(None), slice(None)), np.arange(view.size)[None], np.array([address]))

    def read(self, machine: Machine, block: int, place: Found, part: Part) -> Array:
        content: Array = np.zeros((part.rows, part.width // place.view.itemsize), place.view.dtype)
        if part.mapped is not None and part.mapped.map.fill == "nan" and place.view.itemsize > 1:
            content.view(np.uint16)[:] = 0x7FF7  # the bits that an H200 writes
        content[place.inside] = place.view[place.index]
        self.note(machine, place, ())
        return content.view(np.uint64).reshape(part.rows, -1, 2)

    def write(self, machine: Machine, block: int, place: Found, part: Part, content: Array, merge: Merge) -> None:
        if not place.region.writable:
            read_only(machine, self.access, place.region)
        rows = np.ascontiguousarray(content.reshape(part.rows, -1).view(place.view.dtype)[place.inside])
        place.view[place.index] = data = merge(place.view[place.index], rows)
        self.note(machine, place, data)

    def note(self, machine: Machine, place: Found, data: Array) -> None:
        """Count and log the access to the rows of a part; data: the stored rows."""
        if not place.index.size:
            return
        region, starts, nbytes = place.region, place.starts, place.index.shape[1] * place.view.itemsize
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


class Tile(Global):
    """A tile of a tensor: the operand [map, {x, y, ...}], a tensor map and the coordinates where the tile begins."""

    def __init__(self, builder: Builder, kind: AccessKind, operand: Operand) -> None:
        self.ins = ins = builder.ins
        if not isinstance(operand, Vector) or len(operand.items) != 2 or not isinstance(operand.items[1], Vector):
            raise Refuse(f"instruction {ins.text} with this tensor")
        self.dimensions = next((int(word[0]) for word in ins.modifiers if word in ("1d", "2d", "3d", "4d", "5d")), 0)
        if not self.dimensions or any(word.startswith(("im2col", "tile:")) for word in ins.modifiers):
            raise Refuse(f"tensor copies of anything but plain tiles ({ins.text})")
        first = operand.items[0]
        self.corner = [lanewise(builder, item, "s32") for item in operand.items[1].items]
        super().__init__(builder, kind, Address(first.name, first.offset) if isinstance(first, Symbol) else first)

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

    def parts(self, machine: Machine) -> Callable[[Lane], Part]:
        """Return a function that returns a lane's tile."""
        (maps,), corners = self.addresses(machine), [value(machine) for value in self.corner]

        def part(lane: Lane) -> Part:
            mapped = self.find_map(machine, int(maps[lane]))
            tensor, corner = mapped.map, tuple(int(axis[lane]) for axis in corners)
            nbytes, type_ = tensor.rows * tensor.pitch, type_of(tensor.type)
            return Part(tensor.rows, tensor.tile[0] * tensor.width, nbytes, TILE_ALIGNMENT, type_, mapped, corner)

        return part

    def find(self, machine: Machine, addresses: Sequence[Array], lane: Lane, part: Part) -> Found | None:
        assert part.mapped is not None
        tensor, region = part.mapped.map, part.mapped.region
        if not self.check_corner(machine, tensor, part.corner):
            return None
        starts, rows, columns = tensor.places(part.corner)
        first = starts[rows] + columns.start * tensor.width
        view = region.bytes[part.mapped.base - region.base :]
        view = view[: view.size // tensor.width * tensor.width].view(UNSIGNED[8 * tensor.width])
        index = (first // tensor.width)[:, None] + np.arange(columns.stop - columns.start)
        return Found(region, view, (rows, columns), index, part.mapped.base + first)

    def check_corner(self, machine: Machine, tensor: TensorMap, corner: tuple[int, ...]) -> bool:
        """Return whether a GPU accepts the coordinates where the active lane's tile begins; if not, record a hazard.

        No manual documents this rule: an H200 stops with an illegal instruction if the innermost coordinate is not a
        multiple of 16 bytes, or if a stored tile begins before the tensor (`tests.hopper_tiles`).
        """
        loads, width = self.access.kind == "load", tensor.width
        if corner[0] * width % CHUNK:
            kind, why = "misaligned", f"; {corner[0]} elements of {width} bytes are not a multiple of {CHUNK} bytes"
        elif not loads and min(corner) < 0:
            kind, why = "out-of-bounds", ", before its tensor"
        else:
            return True
        machine.hazards.report(
            machine, kind, self.access.location, machine.lanes(), f"{'loads' if loads else 'stores'} a tile that "
            f"begins at {corner}, innermost first{why}: a GPU stops there with an illegal instruction",
        )  # fmt: skip
        return False


def type_of(name: str) -> str:
    """Return the PTX type of tensor elements with this NumPy type name."""
    if name in ("float16", "bfloat16"):
        return "f16" if name == "float16" else "bf16"
    dtype = np.dtype(name)
    return f"{dtype.kind.replace('i', 's')}{8 * dtype.itemsize}"


def merged(name: str, type_: str, old: Array, new: Array) -> Array:
    """Return what a copy stores: `new`, or its reduction `name` with the old content, as numbers of a PTX type."""
    if not name:
        return new
    dtype = DTYPES["b16" if type_ in ("f16", "bf16") else type_]
    return combination(name, type_)(old.view(dtype), new.view(dtype)).view(new.dtype)


def reduction(ins: Instruction, tiled: bool) -> str:
    """Return the name of a reduction, such as "add"; raises Refuse if the simulator lacks it, or its type."""
    name = next((word for word in ins.modifiers if word in _REDUCTIONS), "")
    if not name or not (tiled or ins.modifiers[-1] in DTYPES):
        raise refuse(ins)
    return name


def byte_parts(type_: str, size: Callable[[Machine], Array], machine: Machine) -> Callable[[Lane], Part]:
    """Return a function that returns what a lane copies if the copy has no tensor: `size` bytes."""
    sizes = size(machine)
    return lambda lane: Part(1, int(sizes[lane]), int(sizes[lane]), CHUNK, type_)


def build_bulk(builder: Builder, ins: Instruction) -> Run:
    """Build a copy or a reduction of bytes (cp.async.bulk, cp.reduce.async.bulk) or of a tile (.tensor)."""
    words = ins.modifiers
    tiled, name = "tensor" in words, ""
    if "cp_mask" in words or "ignore_oob" in words:
        raise Refuse(f"bulk copies of some bytes ({ins.text})")
    if "reduce" in words:
        name = reduction(ins, tiled)
    to_shared, from_shared = (
        word.startswith("shared") for word in words if word.partition(":")[0] in ("global", "shared")
    )
    into, out_of, *rest = ins.operands
    size = lanewise(builder, Immediate(0) if tiled else rest.pop(0), "u32")
    barrier = builder.address(rest.pop(0)) if to_shared else None
    ranks = lanewise(builder, rest.pop(0), "u16") if "multicast:cluster" in words else None

    def side(kind: AccessKind, shared: bool, operand: Operand) -> Shared | Global:
        return (Shared if shared else Tile if tiled else Global)(builder, kind, operand)

    source, target = side("load", from_shared, out_of), side("atomic" if name else "store", to_shared, into)
    tile = next((side for side in (source, target) if isinstance(side, Tile)), None)
    part_of = partial(byte_parts, words[-1], size) if tile is None else tile.parts

    def run(machine: Machine) -> None:
        find_part, sources, targets = part_of(machine), source.addresses(machine), target.addresses(machine)
        waits = None if barrier is None else shared_places(machine, *barrier)[1]
        masks = None if ranks is None else ranks(machine)
        for lane in active_lanes(machine):
            part, block = find_part(lane), lane[0]
            places: list[Any] = []
            place: Any = target.find(machine, targets, lane, part)
            origin: Any = None if place is None else source.find(machine, sources, lane, part)
            if place is not None and origin is not None:
                content = source.read(machine, block, origin, part)
                places = [place]
                if to_shared:
                    places = [(row, place[1]) for row in receivers(machine, lane, place[0], masks)]
            for place in places:
                target.write(machine, block, place, part, content, partial(merged, name, part.type))
            if waits is not None:  # complete the barrier even after an error, so that no lane waits forever
                for row in [row for row, _ in places] or [block]:
                    complete(machine, row, int(waits[lane]), part.rows * part.width)

    return run


WIDE = 16  # bytes per lane of the copies that may request a sector twice


@instruction("cp")
def _cp(builder: Builder, ins: Instruction) -> Run | Op | None:
    """Build cp.async and its commit and wait instructions, or cp.async.bulk."""
    words = ins.modifiers
    if "bulk" in words:
        if {"commit_group", "wait_group", "prefetch"} & set(words):
            return None  # nothing to do: simulated bulk copies end when they start
        return build_bulk(builder, ins)
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
    writes.address = into

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
