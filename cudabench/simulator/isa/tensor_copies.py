"""cp.async.bulk.tensor and cp.reduce.async.bulk.tensor (PTX ISA 9.7.9.27): tiles of tensors, by a tensor map.

One thread starts a copy, and it is carried out at once, lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import MemoryOp, active_lanes, read_only, source_place
from cudabench.simulator.isa.atomics import combination
from cudabench.simulator.isa.bulk_copies import (
    Global,
    Lane,
    Place,
    Shared,
    Spot,
    lanewise,
    receivers,
    reduction,
)
from cudabench.simulator.isa.mbarrier import complete
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Address, Instruction, Operand, Symbol, Vector
from cudabench.simulator.tensor_maps import CHUNK, MAGIC, Mapped, TensorMap
from cudabench.simulator.values import UNSIGNED, Array

TILE_ALIGNMENT = 128  # of a tile in shared memory; a swizzle wants its pattern's


class Tiles:
    """The operand [map, {x, y, ...}] of a copy, and the tiles that lanes name by it."""

    def __init__(self, builder: Builder, ins: Instruction, operand: Operand) -> None:
        if not isinstance(operand, Vector) or len(operand.items) != 2 or not isinstance(operand.items[1], Vector):
            raise Refuse(f"instruction {ins.text} with this tensor")
        first = operand.items[0]
        self.ins, self.map = (
            ins,
            Place(builder, Address(first.name, first.offset) if isinstance(first, Symbol) else first),
        )
        self.corner = [lanewise(builder, item, "s32") for item in operand.items[1].items]
        self.dimensions = next((int(word[0]) for word in ins.modifiers if word in ("1d", "2d", "3d", "4d", "5d")), 0)
        if not self.dimensions or any(word.startswith(("im2col", "tile:")) for word in ins.modifiers):
            raise Refuse(f"tensor copies that are no plain tiles ({ins.text})")

    def found(self, machine: Machine, address: int) -> Mapped:
        """Return the map at an address. Raises KernelTrap where there is none of so many dimensions."""
        parameter = address >> 32 == PARAMETER_WINDOW >> 32
        region = machine.parameters if parameter else machine.space.nearest(address)
        start = -1 if region is None else address - region.base
        raw = region.bytes[start : start + 16].tobytes() if region is not None and start >= 0 else b""
        mapped = machine.tensor_maps.get(int.from_bytes(raw[8:], "little")) if raw[:8] == MAGIC else None
        place = source_place(machine, self.ins.location)
        if mapped is None:
            raise KernelTrap(
                f"kernel {machine.code.name} copies by a tensor map at {place}, and there is none: take it as "
                "`const __grid_constant__ CUtensorMap`, or as a pointer to one."
            )
        if len(mapped.map.sizes) != self.dimensions:
            raise KernelTrap(
                f"kernel {machine.code.name} copies {self.dimensions} dimensions at {place}, and its tensor map has "
                f"{len(mapped.map.sizes)}."
            )
        return mapped

    def started(
        self, machine: Machine, near: Shared, far: Global
    ) -> Iterator[tuple[Lane, Mapped, tuple[int, ...], Spot | None]]:
        """Yield (lane, map, corner of its tile, where that lies in shared memory: None, and a record, for a fault)."""
        spots, maps = near.spots(machine), self.map.of(machine)
        corners = [value(machine) for value in self.corner]
        for lane in active_lanes(machine):
            mapped, corner = self.found(machine, int(maps[lane])), tuple(int(each[lane]) for each in corners)
            tensor = mapped.map
            spot = near.find(machine, spots, lane, tensor.rows * tensor.pitch, TILE_ALIGNMENT)
            if spot is not None and not begins_well(machine, far.access, tensor, corner):
                spot = None
            yield lane, mapped, corner, spot


def begins_well(machine: Machine, access: MemoryOp, tensor: TensorMap, corner: tuple[int, ...]) -> bool:
    """Return whether the active lane's tile begins where a GPU copies one, and record where not.

    No manual says so: an H200 stops with an illegal instruction where the innermost coordinate is no multiple of 16
    bytes, and where what is stored begins before the tensor (`tests.hopper_tiles`).
    """
    loads = access.kind == "load"
    if corner[0] * tensor.width % CHUNK:
        kind, why = "misaligned", f"; {corner[0]} elements of {tensor.width} bytes are no multiple of {CHUNK} bytes"
    elif not loads and min(corner) < 0:
        kind, why = "out-of-bounds", ", before its tensor"
    else:
        return True
    machine.hazards.report(
        machine, kind, access.location, machine.lanes(), f"{'loads' if loads else 'stores'} a tile that begins at "
        f"{corner}, innermost first{why}: a GPU stops there with an illegal instruction",
    )  # fmt: skip
    return False


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


def build_tensor(builder: Builder, ins: Instruction) -> Run:
    """Build the copy of a tile to shared memory, also of several blocks."""
    words = ins.modifiers
    if "reduce" in words or next(word for word in words if word.partition(":")[0] in ("global", "shared")) == "global":
        return _store(builder, ins)
    into = Place(builder, ins.operands[0])
    tiles, barrier = Tiles(builder, ins, ins.operands[1]), Place(builder, ins.operands[2])
    ranks = lanewise(builder, ins.operands[3], "u16") if "multicast:cluster" in words else None
    near, far = Shared(builder, "store", into), Global(builder, "load")

    def run(machine: Machine) -> None:
        waits, masks = barrier.shared(machine)[1], None if ranks is None else ranks(machine)
        for lane, mapped, corner, spot in tiles.started(machine, near, far):
            tensor, to = mapped.map, [lane[0]]
            if spot is not None:
                content: Array = np.zeros((tensor.rows, tensor.tile[0]), UNSIGNED[8 * tensor.width])
                if tensor.fill == "nan" and tensor.width > 1:  # as an H200 writes it
                    content.view(np.uint16)[:] = 0x7FF7
                found = inside(mapped, corner)
                if found is not None:
                    content[found.rows, found.part] = found.view[found.index]
                    far.rows(machine, mapped.region, found.starts, found.index.shape[1] * tensor.width, [])
                pieces, chunks = content.view(np.uint64).reshape(tensor.rows, -1, 2), tensor.chunks(spot[1])
                to = receivers(machine, lane[0], spot[0], None if masks is None else int(masks[lane]))
                for row in to:
                    near.note(machine, lane[0], (row, spot[1]), tensor.rows * tensor.pitch)
                    machine.shared[row].view(np.uint64).reshape(-1, 2)[chunks] = pieces
            for row in to:  # after a fault, too: no lane waits for ever
                complete(machine, row, int(waits[lane]), tensor.nbytes)

    return run


def _store(builder: Builder, ins: Instruction) -> Run:
    """Build the copy of a tile from shared memory to its tensor, or its reduction into that."""
    name = reduction(ins) if "reduce" in ins.modifiers else ""
    tiles, out_of = Tiles(builder, ins, ins.operands[0]), Place(builder, ins.operands[1])
    builder.write_addresses.append(tiles.map.register)
    near, far = Shared(builder, "load", out_of), Global(builder, "atomic" if name else "store")

    def run(machine: Machine) -> None:
        for lane, mapped, corner, spot in tiles.started(machine, near, far):
            if spot is None:
                continue
            tensor, found = mapped.map, inside(mapped, corner)
            if not mapped.region.writable:
                read_only(machine, far.access, mapped.region)
            near.note(machine, lane[0], spot, tensor.rows * tensor.pitch)
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


def _type_of(name: str) -> tuple[str, np.dtype[Any]]:
    """Return PTX's type of a tensor's elements by NumPy's name, and how registers hold it."""
    if name in ("float16", "bfloat16"):
        return ("f16" if name == "float16" else "bf16"), UNSIGNED[16]
    dtype = np.dtype(name)
    return f"{dtype.kind.replace('i', 's')}{8 * dtype.itemsize}", dtype
