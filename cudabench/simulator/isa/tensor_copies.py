"""cp.async.bulk.tensor and cp.reduce.async.bulk.tensor (PTX ISA 9.7.9.27): tiles of tensors, by a tensor map.

One thread starts a copy, and it is carried out at once, lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import MemoryOp, read_only, source_place
from cudabench.simulator.isa.atomics import combination
from cudabench.simulator.isa.bulk_copies import (
    Global,
    Lane,
    Place,
    Shared,
    Spot,
    Value,
    active_lanes,
    complete,
    receivers,
    reduction,
)
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Address, Instruction, Operand, Symbol, Vector
from cudabench.simulator.tensor_maps import CHUNK, MAGIC, Mapped, TensorMap
from cudabench.simulator.values import UNSIGNED, Array

TILE_ALIGNMENT = 128  # of a tile in shared memory; a swizzle wants its pattern's


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
        mapped: Mapped | None = None
        if raw[:8] == MAGIC:
            mapped = machine.tensor_maps.get(int.from_bytes(raw[8:], "little"))
        place = source_place(machine, ins.location)
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
        return mapped


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


class Inside(NamedTuple):
    """The part of a tile that lies in its tensor: which rows, which of their elements; the places of those in a view of
    the tensor, and the addresses of the rows."""

    rows: Array
    part: slice
    view: Array
    index: Array
    starts: Array


def inside(mapped: Mapped, corner: tuple[int, ...]) -> Inside | None:
    """Return what of a tile that begins at a corner lies in its tensor, None where nothing does."""
    tensor, region = mapped.map, mapped.region
    starts, rows, part = tensor.places(corner)
    count = part.stop - part.start
    if count <= 0 or not rows.any():
        return None
    first = starts[rows] + part.start * tensor.width
    view = region.bytes[mapped.base - region.base :]
    view = view[: view.size // tensor.width * tensor.width].view(UNSIGNED[8 * tensor.width])
    return Inside(rows, part, view, (first // tensor.width)[:, None] + np.arange(count), mapped.base + first)


class Copies:
    """The copies of an instruction between a tile of a tensor and shared memory."""

    def __init__(self, builder: Builder, ins: Instruction, tile: Tile, near: Shared, far: Global) -> None:
        self.ins, self.tile, self.near, self.far = ins, tile, near, far
        self.dimensions = next((int(word[0]) for word in ins.modifiers if word in ("1d", "2d", "3d", "4d", "5d")), 0)
        if not self.dimensions or any(word.startswith(("im2col", "tile:")) for word in ins.modifiers):
            raise Refuse(f"tensor copies that are no plain tiles ({ins.text})")

    def started(self, machine: Machine) -> Iterator[tuple[Lane, Mapped, tuple[int, ...], Spot | None]]:
        """Yield (lane, map, corner of its tile, where that lies in shared memory: None, and a record, for a fault)."""
        spots, maps = self.near.spots(machine), self.tile.map.of(machine)
        corners = [value.of(machine) for value in self.tile.corner]
        for lane in active_lanes(machine):
            mapped = self.tile.found(machine, int(maps[lane]), self.dimensions, self.ins)
            tensor, corner = mapped.map, tuple(int(each[lane]) for each in corners)
            spot = self.near.find(machine, spots, lane, tensor.rows * tensor.pitch, TILE_ALIGNMENT)
            if spot is not None and not begins_well(machine, self.far.access, tensor, corner, lane):
                spot = None
            yield lane, mapped, corner, spot


def build_tensor(builder: Builder, ins: Instruction) -> Run:
    """Build the copy of a tile to shared memory, also of several blocks."""
    words = ins.modifiers
    if "reduce" in words or next(word for word in words if word.partition(":")[0] in ("global", "shared")) == "global":
        return _store(builder, ins)
    into, tile, barrier = (
        Place(builder, ins.operands[0]),
        Tile(builder, ins.operands[1]),
        Place(builder, ins.operands[2]),
    )
    ranks = Value(builder, ins.operands[3], "u16") if "multicast:cluster" in words else None
    near, far = Shared(builder, "store", into), Global(builder, "load")
    copies = Copies(builder, ins, tile, near, far)

    def run(machine: Machine) -> None:
        waits, masks = barrier.shared(machine)[1], None if ranks is None else ranks.of(machine)
        for lane, mapped, corner, spot in copies.started(machine):
            tensor, to = mapped.map, [lane[0]]
            if spot is not None:
                content: Array = np.zeros((tensor.rows, tensor.tile[0]), UNSIGNED[8 * tensor.width])
                if tensor.fill == "nan":
                    content[:] = _not_a_number(tensor.width)
                found = inside(mapped, corner)
                if found is not None:
                    content[found.rows, found.part] = found.view[found.index]
                    far.rows(machine, mapped.region, found.starts, found.index.shape[1] * tensor.width, [])
                pieces, chunks = content.view(np.uint64).reshape(tensor.rows, -1, 2), tensor.chunks(spot[1])
                to = receivers(machine, lane[0], spot[0], None if masks is None else int(masks[lane]))
                for row in to:
                    near.note(machine, lane[0], (row, spot[1]), tensor.rows * tensor.pitch)
                    machine.shared[row].view(np.uint64).reshape(-1, 2)[chunks] = pieces
            complete(machine, to, int(waits[lane]), tensor.nbytes)  # after a fault, too: no lane waits for ever

    return run


def _store(builder: Builder, ins: Instruction) -> Run:
    """Build the copy of a tile from shared memory to its tensor, or its reduction into that."""
    name = reduction(ins) if "reduce" in ins.modifiers else ""
    tile, out_of = Tile(builder, ins.operands[0]), Place(builder, ins.operands[1])
    builder.write_addresses.append(tile.map.register)
    near, far = Shared(builder, "load", out_of), Global(builder, "atomic" if name else "store")
    copies = Copies(builder, ins, tile, near, far)

    def run(machine: Machine) -> None:
        for lane, mapped, corner, spot in copies.started(machine):
            if spot is None:
                continue
            tensor = mapped.map
            if not mapped.region.writable:
                read_only(machine, far.access, mapped.region)
            near.note(machine, lane[0], spot, tensor.rows * tensor.pitch)
            found = inside(mapped, corner)
            if found is None:
                continue
            pieces = machine.shared[spot[0]].view(np.uint64).reshape(-1, 2)[tensor.chunks(spot[1])]
            whole = np.ascontiguousarray(pieces).reshape(tensor.rows, -1).view(found.view.dtype)
            content = np.ascontiguousarray(whole[found.rows, found.part])
            if name:
                type_, dtype = _type_of(tensor.type)
                old = found.view[found.index].view(dtype)
                content = combination(name, type_)(old, content.view(dtype)).view(content.dtype)
            found.view[found.index] = content
            far.rows(machine, mapped.region, found.starts, found.index.shape[1] * tensor.width, content)

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
