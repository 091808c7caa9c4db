"""Textures and surfaces: tex, tld4, txq, suld, sust, suq (PTX ISA 9.7.10 and 9.7.11).

A fetch follows the CUDA C++ Programming Guide, "Texture Fetching": it returns the nearest texel, or a weighted mean of
the 2, 4 or 8 texels around the coordinates; the weights have 8 fractional bits (rounded to nearest). The mean is
computed in double precision and rounded once; how the hardware rounds it is not documented. Levels of detail are
ignored, as the simulator has no mipmaps. Texture and surface accesses are not counted, as the memory layout of CUDA
arrays is not documented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial, reduce
from itertools import product
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import MemoryOp, source_place
from cudabench.simulator.isa.opcodes import instruction, items, refuse
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import SLOT_BITS
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Operand, Pair, Vector
from cudabench.simulator.textures import Texture
from cudabench.simulator.values import DTYPES, UNSIGNED, ZERO, Array, Value, broadcast, different, uniform

# For each geometry: the number of coordinates, and whether a layer comes before them.
_GEOMETRY = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}
_ONE = 256  # a weight of 1.0: weights have 8 fractional bits
_COMPONENTS = "rgba"
Note = Callable[[Array, Array], None]


class Fetch(NamedTuple):
    """The operands of a texture or surface instruction: the registers of its handle, layer and coordinates."""

    handle: int
    layer: int | None
    coordinates: tuple[int, ...]


def _fetch(builder: Builder, ins: Instruction, operand: Operand, type_: str) -> Fetch:
    """Return the operands in `[handle, {coordinates}]`; elements that pad the coordinates are left out."""
    geometry = next((word for word in ins.modifiers if word in _GEOMETRY), None)
    if geometry is None:
        raise Refuse(f"cube maps and multisampled textures ({ins.text})")
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        raise Refuse(f"textures with separate samplers ({ins.text})")
    count, layered = _GEOMETRY[geometry]
    handle, place = operand.items
    coordinates = list(items(place))
    layer = builder.source(coordinates.pop(0), "u32") if layered else None
    registers = tuple(builder.source(item, type_) for item in coordinates[:count])
    return Fetch(builder.source(handle, "b64"), layer, registers)


def bound(machine: Machine, fetch: Fetch, ins: Instruction) -> Iterator[tuple[Texture, Array]]:
    """Yield each texture or surface that active lanes use, with the mask of its lanes, of shape (blocks, threads).

    Raises KernelTrap if a lane's number is not a handle, or if the texture's dimensions do not fit the instruction.
    """
    chunk = machine.chunk
    lanes = chunk.real(machine.lanes())
    handles = broadcast(machine.array(fetch.handle, DTYPES["s64"]), chunk.shape)
    place = source_place(machine, ins.location)
    kind = "surface" if ins.opcode.startswith("su") else "texture"
    for handle in different(handles[lanes]).tolist():
        texture = machine.textures.get(handle)
        if texture is None:
            raise KernelTrap(
                f"kernel {machine.code.name} uses {handle:#x} at {place}, which is not a {kind} object: give the "
                f"argument as {kind}(...)."
            )
        dimensions, layered = len(fetch.coordinates), fetch.layer is not None
        if dimensions and (texture.dimensions, texture.layered) != (dimensions, layered):
            wanted = f"{dimensions} coordinate{'s' * (dimensions > 1)}{' and a layer' * layered}"
            have = f"{texture.dimensions} dimension{'s' * (texture.dimensions > 1)}{' and layers' * texture.layered}"
            raise KernelTrap(f"kernel {machine.code.name} uses {wanted} at {place} for a {kind} of {have}.")
        yield texture, lanes & (handles == handle)


def texels(
    texture: Texture, layer: Array | None, places: Sequence[Array], note: Note | None, used: Array = np.True_,
    modes: Sequence[str] = (),
) -> Array:  # fmt: skip
    """Return the values of texels, of shape (..., channels).

    places: the integer coordinates, x first. modes: for each axis, how coordinates outside the texture are treated, by
    default the texture's address modes; in mode border, texels outside are 0. note: is called with the flat indices of
    the texels and a mask of the lanes that read them, which are those of the mask `used`.
    """
    index, inside = ([] if layer is None else [layer]), np.ones((1, 1), bool)
    for place, count, mode in reversed(list(zip(places, texture.extents, modes or texture.modes, strict=True))):
        clamped = np.clip(place, 0, count - 1)
        if mode == "wrap":
            clamped = place % count
        elif mode == "mirror":
            clamped = np.minimum(place % (2 * count), 2 * count - 1 - place % (2 * count))
        elif mode == "border":
            inside = inside & (clamped == place)
        index.append(clamped)
    data, spots = texture.texels, tuple(np.broadcast_arrays(*index))
    if note is not None:
        note(np.ravel_multi_index(spots, data.shape[:-1]), inside & used)
    return texture.values(np.where(inside[..., None], data[spots], data.dtype.type(0)))


def _scaled(texture: Texture, coordinates: Sequence[Array]) -> list[Array]:
    """Return coordinates in units of texels, in double precision; NaN becomes 0."""
    sides = texture.extents if texture.normalized else (1,) * texture.dimensions
    scaled = (x.astype(np.float64) * side for x, side in zip(coordinates, sides, strict=True))
    return [np.clip(np.nan_to_num(x), -(2.0**40), 2.0**40) for x in scaled]


def _fixed(x: Array) -> Array:
    """Return coordinates, relative to the centre of texel 0, as fixed-point numbers with 8 fractional bits (int64)."""
    return np.floor((x - 0.5) * _ONE + 0.5).astype(np.int64)


def sample(texture: Texture, layer: Array | None, coordinates: Sequence[Array], note: Note | None) -> Array:
    """Return the result of a fetch with floating-point coordinates, of shape (..., channels)."""
    places = _scaled(texture, coordinates)
    if texture.filter == "point":
        return texels(texture, layer, [np.floor(x).astype(np.int64) for x in places], note)
    fixed, total = [_fixed(x) for x in places], np.float64(0)
    for upper in product((0, 1), repeat=len(places)):
        upper = upper[::-1]
        weights = [(position & (_ONE - 1)) / _ONE for position in fixed]
        share = reduce(mul, (weight if up else 1.0 - weight for up, weight in zip(upper, weights, strict=True)))
        corner = [(position >> 8) + up for position, up in zip(fixed, upper, strict=True)]
        part = texels(texture, layer, corner, note, share != 0).astype(np.float64)
        # A texel of weight 0 has no influence, even if it is NaN.
        total = total + np.where(share[..., None] == 0, 0.0, part * share[..., None])
    return total.astype(np.float32)


def fetched(texture: Texture, layer: Array | None, coordinates: Sequence[Array], note: Note | None) -> Array:
    """Return the result of a fetch with integer coordinates, of shape (..., channels); 0 outside of linear memory."""
    places = [x.astype(np.int64) for x in coordinates]
    return texels(texture, layer, places, note, modes=("border",) if texture.linear else ())


def gathered(texture: Texture, layer: Array | None, coordinates: Sequence[Array], note: Note | None, of: int) -> Array:
    """Return component `of` of the four texels that a bilinear fetch would average, of shape (..., 4)."""
    x, y = (_fixed(place) >> 8 for place in _scaled(texture, coordinates))
    corners = ([x, y + 1], [x + 1, y + 1], [x + 1, y], [x, y])
    parts = np.stack(np.broadcast_arrays(*(texels(texture, layer, corner, note) for corner in corners)), axis=-1)
    return parts[..., of, :] if of < texture.channels else np.zeros_like(parts[..., 0, :])


def read_logger(machine: Machine, access: MemoryOp, ins: Instruction, texture: Texture, lanes: Array) -> Note | None:
    """Return a function that logs the lanes' reads for the race check; None if no kernel writes to the array."""
    races = machine.global_races
    if races.written is not None and texture.base not in races.written:
        return None
    record, region = copy(access), machine.space.slots[texture.base >> SLOT_BITS]
    record.size, record.width = max(texture.texel_bytes, races.width), min(texture.texel_bytes, 8)

    def note(index: Array, used: Array) -> None:
        reads = broadcast(used, machine.chunk.shape) & lanes
        if reads.any():
            offset = index * texture.texel_bytes
            races.log(record, region, offset - offset % races.width + texture.base, 0, reads, ())
            check_coherent(machine, ins, texture, offset, texture.texel_bytes, reads)

    return note


def check_coherent(
    machine: Machine, ins: Instruction, texture: Texture, offset: Array, size: int, lanes: Array
) -> None:
    """Report a hazard if lanes read bytes that the same launch has written through a surface.

    The values that these lanes read are undefined, even after a barrier (CUDA C++ Programming Guide, "Read/Write
    Coherency").
    """
    written = machine.surface_writes.get(texture.base)
    if written is None:
        return
    offsets, bad = broadcast(offset, machine.chunk.shape), lanes.copy()
    bad[lanes] = written[offsets[lanes][:, None] + np.arange(size)].any(axis=1)
    if bad.any():
        first, name = int(offsets[bad][0]), machine.space.slots[texture.base >> SLOT_BITS].name
        machine.hazards.report(
            machine, "race", ins.location, bad, f"reads byte {first} of '{name}', which the same launch has written "
            "through a surface: the value is undefined until the next launch, even after a barrier",
        )  # fmt: skip


def _access(
    builder: Builder, fetch: Fetch, kind: AccessKind, dtype: np.dtype[Any] = UNSIGNED[8], count: int = 1
) -> MemoryOp:
    """Return the record of an access to a texture or surface, for the race check; such accesses are not counted."""
    access = MemoryOp(builder, kind, dtype, count, "surface")
    access.numbers, access.address = {"global": access.number}, fetch.handle
    return access


def _channels(fetched_values: Array, count: int, type_: str) -> list[Value]:
    """Return the first `count` channels of fetched texels, each as a register value; missing channels are zero."""
    parts = np.ascontiguousarray(np.moveaxis(fetched_values, -1, 0))
    if parts.dtype.itemsize < 4:  # extend small integers to 32 bits
        parts = parts.astype(np.int32 if parts.dtype.kind == "i" else np.uint32)
    return [*parts.view(DTYPES[type_]), *[ZERO] * count][:count]


def _put(machine: Machine, targets: Sequence[int], read: Sequence[tuple[Array, Sequence[Value]]]) -> None:
    """Write the values that lanes have read from textures to the target registers.

    read: for each texture, the mask of the lanes that read from it, and the values for the targets.
    """
    for number, target in enumerate(targets):
        value = read[0][1][number]
        for lanes, values in read[1:]:
            value = machine.merge(target, values[number], value, lanes)
        machine.put(target, value)


@instruction("tex", "tld4")
def _tex(builder: Builder, ins: Instruction) -> Run:
    """Build tex, a fetch, or tld4, which returns one component of four texels.

    A level or gradients are ignored, as there are no mipmaps.
    """
    result, kind = ins.modifiers[-2:]
    gathers = ins.opcode == "tld4"
    # A fetch with one more operand (an offset in texels, or a depth to compare with) is refused.
    operands = 2 + ("level" in ins.modifiers) + 2 * ("grad" in ins.modifiers)
    kinds = ("f32",) if gathers else ("f32", "s32")
    if result not in ("f32", "s32", "u32") or kind not in kinds or len(ins.operands) > operands:
        raise refuse(ins)
    find: Callable[[Texture, Array | None, list[Array], Note | None], Array] = sample if kind == "f32" else fetched
    if gathers:
        find = partial(gathered, of=next(_COMPONENTS.index(word) for word in ins.modifiers if word in _COMPONENTS))
    fetch = _fetch(builder, ins, ins.operands[1], kind)
    into = ins.operands[0]
    # The second destination is a predicate that tells whether all texels are in memory. It is always true here, because
    # no simulated array is sparse.
    resident = builder.target(into.second) if isinstance(into, Pair) else None
    targets = [builder.target(item) for item in items(into.first if isinstance(into, Pair) else into)]
    access = _access(builder, fetch, "load")
    access.cached = "fetch"

    def run(machine: Machine) -> None:
        coordinates = [machine.array(index, DTYPES[kind]) for index in fetch.coordinates]
        read = []
        for texture, lanes in bound(machine, fetch, ins):
            if kind == "f32" and texture.linear and not gathers:
                raise KernelTrap(
                    f"kernel {machine.code.name} reads the linear memory '{texture.name}' by coordinates that are not "
                    "whole numbers, which no GPU does: use tex1Dfetch, or give it as memory=array."
                )
            layer: Array = None
            if fetch.layer is not None:
                number = machine.array(fetch.layer, UNSIGNED[32]).astype(np.int64)
                layer = np.clip(number, 0, texture.texels.shape[0] - 1)
            values = find(texture, layer, coordinates, read_logger(machine, access, ins, texture, lanes))
            read.append((lanes, _channels(values, len(targets), result)))
        _put(machine, targets, read)
        if resident is not None:
            machine.put(resident, uniform(1, 1))

    return run


@instruction("txq", "suq")
def _query(builder: Builder, ins: Instruction) -> Run:
    axis = next((("width", "height", "depth").index(w) for w in ins.modifiers if w in ("width", "height", "depth")), -1)
    if axis < 0:
        raise refuse(ins)
    fetch = Fetch(builder.address(ins.operands[1])[0], None, ())
    target = builder.target(ins.operands[0])

    def run(machine: Machine) -> None:
        sizes = [((*texture.extents, 0, 0)[axis], lanes) for texture, lanes in bound(machine, fetch, ins)]
        _put(machine, [target], [(lanes, [uniform(size, 32)]) for size, lanes in sizes])

    return run


# Surfaces: x counts bytes, other coordinates count rows, slices or layers; values are not converted.


def _places(
    machine: Machine, ins: Instruction, fetch: Fetch, mode: str, size: int, surface: Texture, lanes: Array
) -> tuple[Array, Array]:
    """Return the byte offset of each lane's access in a surface, and the mask of the lanes that access it.

    mode: how coordinates outside the surface are treated: trap, clamp or zero. An access on which a GPU traps, or which
    is misaligned, is recorded as a hazard. The mask does not include lanes outside the surface, unless the mode is
    clamp.
    """
    row = surface.extents[0] * surface.texel_bytes
    coordinates = [machine.array(index, DTYPES["s32"]).astype(np.int64) for index in fetch.coordinates]
    limits = [row, *surface.extents[1:]]
    if fetch.layer is not None:
        coordinates.append(machine.array(fetch.layer, UNSIGNED[32]).astype(np.int64))
        limits.append(surface.texels.shape[0])
    outside, offset, step = np.zeros((1, 1), bool), np.zeros((1, 1), np.int64), 1
    for x, limit, last in zip(coordinates, limits, (row - size, *(limit - 1 for limit in limits[1:])), strict=True):
        outside = outside | (x < 0) | (x > last)
        offset = offset + np.clip(x, 0, max(last, 0)) * step
        step *= limit
    x, last = coordinates[0], max(row - size, 0)
    offset = offset - np.clip(x, 0, last) % size
    trapped = outside & (mode == "trap" or (mode == "clamp" and row < size))
    dropped = broadcast(outside if mode != "clamp" or row < size else trapped, lanes.shape) & lanes
    skewed = (x >= 0) & (x <= row - size) & (x % size != 0) & ~dropped
    for kind, bad in (("misaligned", skewed), ("out-of-bounds", trapped)):
        bad = broadcast(bad, lanes.shape) & lanes
        if bad.any():
            _report_fault(machine, ins, surface, kind, bad, coordinates, limits, size)
    return offset, lanes & ~dropped


def _report_fault(
    machine: Machine, ins: Instruction, surface: Texture, kind: str, bad: Array, coordinates: Sequence[Array],
    limits: Sequence[int], size: int,
) -> None:  # fmt: skip
    """Report a hazard of `kind` in the lanes of mask `bad`.

    coordinates: the lanes' coordinates, with the layer last; limits: the size of the surface along each coordinate.
    """
    # PTX has an unsigned layer, but C code has an int, so the message shows an int.
    at = [int(broadcast(x.astype(np.int32), bad.shape)[bad][0]) for x in coordinates]
    names = ["x", "y", "z"][: surface.dimensions] + ["layer"] * surface.layered
    units = ["row", "slice"][: surface.dimensions - 1] + ["layer"] * surface.layered
    rest = (f"{limit} {unit}{'s' * (limit > 1)}" for limit, unit in zip(limits[1:], units, strict=True))
    bounds = f" ({', '.join([f'{limits[0]} bytes a row', *rest])})"
    end = f", not a multiple of {size}" if kind == "misaligned" else bounds
    machine.hazards.report(
        machine, kind, ins.location, bad, f"{'reads' if ins.opcode == 'suld' else 'writes'} {size} bytes at "
        f"{', '.join(f'{name}={x}' for name, x in zip(names, at, strict=True))} of the surface '{surface.name}'{end}: "
        "x counts bytes",
    )  # fmt: skip


@instruction("suld", "sust")
def _surface(builder: Builder, ins: Instruction) -> Run:
    """Build suld or sust, an access to bytes of a surface; only the unformatted kind, .b, is supported."""
    type_ = next((word for word in reversed(ins.modifiers) if word in ("b8", "b16", "b32", "b64")), None)
    if ins.modifiers[0] != "b" or type_ is None:
        raise refuse(ins)
    mode = ins.modifiers[-1] if ins.modifiers[-1] in ("trap", "clamp", "zero") else "trap"
    count = next((int(word[1]) for word in ins.modifiers if word in ("v2", "v4")), 1)
    dtype, loads = DTYPES[type_], ins.opcode == "suld"
    size = count * dtype.itemsize
    builder.granule["global"] = min(builder.granule["global"], dtype.itemsize)
    fetch = _fetch(builder, ins, ins.operands[1 if loads else 0], "s32")
    parts = items(ins.operands[0 if loads else 1])
    registers = [builder.target(item) if loads else builder.source(item, type_) for item in parts]
    widths = [max(16, builder.width(register)) for register in registers]
    access = _access(builder, fetch, "load" if loads else "store", dtype, count)

    def run(machine: Machine) -> None:
        read = []
        for surface, lanes in bound(machine, fetch, ins):
            offset, inside = _places(machine, ins, fetch, mode, size, surface, lanes)
            if not loads and not surface.bytes.flags.writeable:
                raise KernelTrap(f"kernel {machine.code.name} writes to a surface of an array that is read-only.")
            # The race check requires that each row begins at a multiple of the access width.
            if surface.extents[0] * surface.texel_bytes % access.width == 0 and inside.any():
                region = machine.space.slots[surface.base >> SLOT_BITS]
                data = () if loads else [machine.registers[source] for source in registers]
                machine.global_races.log(access, region, offset + surface.base, 0, inside, data)
            if loads:
                check_coherent(machine, ins, surface, offset, size, inside)
                places = np.minimum(offset[..., None] + np.arange(size), surface.bytes.size - 1)
                values = np.where(inside[..., None], surface.bytes[places].view(dtype), dtype.type(0))
                parts = (values[..., number].astype(UNSIGNED[width]) for number, width in enumerate(widths))
                read.append((lanes, [*parts]))
                continue
            sources = (broadcast(machine.array(source, dtype), inside.shape)[inside] for source in registers)
            places = broadcast(offset, inside.shape)[inside][:, None] + np.arange(size)
            surface.bytes[places] = np.stack(list(sources), axis=-1).view(np.uint8)
            written = machine.surface_writes.setdefault(surface.base, np.zeros(surface.bytes.size, dtype=bool))
            written[places] = True
        if loads:
            _put(machine, registers, read)

    return run
