"""Textures and surfaces: tex, tld4, txq, suld, sust, suq (PTX ISA 9.7.10 and 9.7.11).

What a fetch returns is what the CUDA C++ Programming Guide, "Texture Fetching", says: a nearest texel, or a mean of the
2, 4 or 8 around the place, with weights of 8 fractional bits (rounded to nearest here). The mean is computed in double
precision and rounded once; the hardware's own rounding is not specified. Levels of detail are ignored: no texture here
has mipmaps. Texture and surface accesses are not counted: how arrays lie in memory is not documented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.errors import KernelTrap, LaunchError
from cudabench.simulator.isa.access import MemoryOp
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.memory import SLOT_BITS
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Operand, Vector
from cudabench.simulator.textures import Texture
from cudabench.simulator.values import (
    DTYPES,
    INT64,
    UNSIGNED,
    Affine,
    Array,
    Value,
    as_array,
    broadcast,
    canonical,
    different,
)

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

# Coordinates by geometry, and whether a layer stands before them.
_GEOMETRY = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}
_ONE = 256  # a weight of 1.0: weights have 8 fractional bits
_COMPONENTS = "rgba"
Note = Callable[[Array, Array], None]


class Fetch(NamedTuple):
    """The operands of an instruction on a texture or surface: its handle, layer and coordinates, as registers."""

    handle: int
    layer: int | None
    coordinates: tuple[int, ...]


def _fetch(builder: Builder, ins: Instruction, operand: Operand, type_: str) -> Fetch:
    """Return the operands in `[handle, {coordinates}]`; 3D and layered coordinates are padded to four."""
    geometry = next((word for word in ins.modifiers if word in _GEOMETRY), None)
    if geometry is None:
        raise Refuse(f"cube maps and multisampled textures ({ins.text})")
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        raise Refuse(f"textures with separate samplers ({ins.text})")
    count, layered = _GEOMETRY[geometry]
    place = operand.items[1]
    items = list(place.items if isinstance(place, Vector) else (place,))
    layer = builder.source(items.pop(0), "u32") if layered else None
    return Fetch(
        builder.source(operand.items[0], "b64"), layer, tuple(builder.source(item, type_) for item in items[:count])
    )


def bound(machine: Machine, handle: int, ins: Instruction, dimensions: int, layered: bool) -> Texture:
    """Return the texture that all active lanes name. Raises KernelTrap for a handle that is none, or of another kind"""
    value = machine.registers[handle]
    if type(value) is Affine and value.coefficients is None:
        numbers = [value.base]
    else:
        lanes = machine.lanes()
        numbers = different(broadcast(as_array(value, INT64, machine.chunk), machine.chunk.shape)[lanes]).tolist()
    place = f"{machine.code.files.get(ins.location.file, '')}:{ins.location.line}"
    kind = "surface" if ins.opcode.startswith("su") else "texture"
    if len(numbers) > 1:
        raise KernelTrap(f"the lanes of an access at {place} use {len(numbers)} {kind}s at once, which is undefined.")
    found = machine.textures.get(numbers[0])
    if found is None:
        raise KernelTrap(
            f"kernel {machine.code.name} uses {numbers[0]:#x} at {place}, which is no {kind} object: give the argument "
            f"as {kind}(...)."
        )
    if found.dimensions != dimensions or found.layered != layered:
        wanted = f"{dimensions}{' and a layer' * layered} coordinates"
        have = f"{found.dimensions}{' and layers' * found.layered}"
        raise KernelTrap(f"kernel {machine.code.name} uses {wanted} at {place} for a {kind} of {have}.")
    return found


def wrapped(index: Array, count: int, mode: str) -> tuple[Array, Array | None]:
    """Return indices of texels by the address mode, and which lie on the border (None: none can)."""
    if mode == "wrap":
        return index % count, None
    if mode == "mirror":
        folded = index % (2 * count)
        return np.where(folded < count, folded, 2 * count - 1 - folded), None
    inside = np.clip(index, 0, count - 1)
    return inside, index != inside if mode == "border" else None


def texels(
    texture: Texture,
    layer: Array | None,
    indices: Sequence[tuple[Array, Array | None]],
    note: Note | None = None,
    used: Array | None = None,
) -> Array:
    """Return the texels at indices, x first, as (..., channels): numbers as stored, zero on the border.

    note: is told which texels are read, by the lanes of `used`.
    """
    data = texture.texels
    places = [index for index, _ in reversed(indices)]
    if layer is not None:
        places.insert(0, layer)
    index = tuple(np.broadcast_arrays(*places))
    if note is not None:
        inside = np.ones((1, 1), bool) if used is None else used
        for _, border in indices:
            inside = inside if border is None else inside & ~border
        note(np.ravel_multi_index(index, data.shape[:-1]), inside)
    found = data[index]
    for _, border in indices:
        if border is not None:
            found = np.where(border[..., None], found.dtype.type(0), found)
    return found


def _layer(texture: Texture, layer: Array | None) -> Array | None:
    return None if layer is None else np.clip(layer.astype(np.int64), 0, texture.texels.shape[0] - 1)


def _scaled(texture: Texture, coordinates: Sequence[Array]) -> list[Array]:
    """Return coordinates in texels, in double precision; what is no number is 0."""
    extents = texture.extents
    found = []
    for x, count in zip(coordinates, extents, strict=True):
        x = x.astype(np.float64)
        x = x * count if texture.normalized else x
        found.append(np.clip(np.nan_to_num(x), -(2.0**40), 2.0**40))
    return found


def sample(texture: Texture, layer: Array | None, coordinates: Sequence[Array], note: Note | None = None) -> Array:
    """Return what a fetch with floating-point coordinates gives: (..., channels), as the texture's reading says."""
    places = _scaled(texture, coordinates)
    layer = _layer(texture, layer)
    extents = texture.extents
    modes = texture.modes
    if texture.filter == "point":
        index = [
            wrapped(np.floor(x).astype(np.int64), count, mode)
            for x, count, mode in zip(places, extents, modes, strict=True)
        ]
        return texture.values(texels(texture, layer, index, note))
    low, weight = [], []
    for x in places:
        fixed = np.floor((x - 0.5) * _ONE + 0.5).astype(np.int64)
        low.append(fixed >> 8)
        weight.append((fixed & (_ONE - 1)) / _ONE)
    total: Any = 0.0
    for corner in range(1 << len(places)):
        upper = [corner >> axis & 1 for axis in range(len(places))]
        index = [wrapped(i + up, count, mode) for i, up, count, mode in zip(low, upper, extents, modes, strict=True)]
        share: Any = 1.0
        for up, a in zip(upper, weight, strict=True):
            share = share * (a if up else 1.0 - a)
        part = texture.values(texels(texture, layer, index, note, share != 0)).astype(np.float64)
        # A texel without weight counts for nothing, also where it is no number.
        total = total + np.where(share[..., None] == 0, 0.0, part * share[..., None])
    found: Array = total.astype(np.float32)
    return found


def fetched(texture: Texture, layer: Array | None, coordinates: Sequence[Array], note: Note | None = None) -> Array:
    """Return what a fetch with integer coordinates gives: the texel; outside of linear memory zero."""
    mode = "border" if texture.linear else "clamp"
    index = [
        wrapped(x.astype(np.int64), count, mode if texture.linear else own)
        for x, count, own in zip(coordinates, texture.extents, texture.modes, strict=True)
    ]
    return texture.values(texels(texture, _layer(texture, layer), index, note))


def noting(machine: Machine, access: MemoryOp, texture: Texture) -> Note | None:
    """Return what tells those that look for races which texels are read, None where no surface is of the same array."""
    races = machine.global_races
    if sum(other.base == texture.base for other in machine.textures.values()) < 2 or texture.texel_bytes < races.width:
        return None
    own, region = copy(access), machine.space.slots[texture.base >> SLOT_BITS]
    own.size, own.width = texture.texel_bytes, min(texture.texel_bytes, 8)

    def note(index: Array, used: Array) -> None:
        lanes = broadcast(used, machine.chunk.shape) & active(machine)
        if lanes.any():
            races.log(own, region, index * texture.texel_bytes + texture.base, 0, lanes, ())

    return note


def active(machine: Machine) -> Array:
    """Return the lanes that execute, threads that no block has left out."""
    lanes = machine.lanes()
    return lanes if machine.chunk.root is None else lanes & machine.chunk.root


def _access(builder: Builder, kind: AccessKind, dtype: np.dtype[Any] = UNSIGNED[8], count: int = 1) -> MemoryOp:
    """Return the record of an access to a texture or surface, by which races are found; it is not counted."""
    access = MemoryOp(builder, kind, dtype, count, "surface")
    access.numbers = {"global": access.number}  # where races are looked for
    return access


def _put_channels(machine: Machine, targets: Sequence[int], found: Array, type_: str) -> None:
    """Write channels to registers; those that a texture lacks are zero."""
    dtype = DTYPES[type_]
    for number, target in enumerate(targets):
        if number >= found.shape[-1]:
            machine.put(target, Affine(0))
            continue
        part = np.ascontiguousarray(found[..., number])
        if part.dtype.itemsize < dtype.itemsize:  # 8 and 16 bits are extended by their sign
            part = part.astype(
                np.float32 if part.dtype.kind == "f" else np.int32 if part.dtype.kind == "i" else np.uint32
            )
        machine.put(target, canonical(part.view(dtype)))


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@instruction("tex")
def build_tex(builder: Builder, ins: Instruction) -> Run:
    """Build tex, with a level or gradients (ignored: there are no mipmaps) or without."""
    result, kind = ins.modifiers[-2:]
    if result not in ("f32", "s32", "u32") or kind not in ("f32", "s32"):
        raise refuse(ins)
    fetch = _fetch(builder, ins, ins.operands[1], kind)
    targets = [builder.target(item) for item in _items(ins.operands[0])]
    dimensions = len(fetch.coordinates)
    access = _access(builder, "load")

    def run(machine: Machine) -> None:
        texture = bound(machine, fetch.handle, ins, dimensions, fetch.layer is not None)
        layer = None if fetch.layer is None else machine.array(fetch.layer, UNSIGNED[32])
        coordinates = [machine.array(index, DTYPES[kind]) for index in fetch.coordinates]
        found = (sample if kind == "f32" else fetched)(texture, layer, coordinates, noting(machine, access, texture))
        _put_channels(machine, targets, found, result)

    return run


@instruction("tld4")
def build_tld4(builder: Builder, ins: Instruction) -> Run:
    """Build tld4: one component of the four texels that a bilinear fetch would mix."""
    component = next(word for word in ins.modifiers if word in _COMPONENTS)
    result, kind = ins.modifiers[-2:]
    if result not in ("f32", "s32", "u32") or kind != "f32":
        raise refuse(ins)
    fetch = _fetch(builder, ins, ins.operands[1], kind)
    targets = [builder.target(item) for item in _items(ins.operands[0])]
    number = _COMPONENTS.index(component)
    access = _access(builder, "load")

    def run(machine: Machine) -> None:
        texture = bound(machine, fetch.handle, ins, 2, fetch.layer is not None)
        layer = None if fetch.layer is None else _layer(texture, machine.array(fetch.layer, UNSIGNED[32]))
        x, y = _scaled(texture, [machine.array(index, DTYPES[kind]) for index in fetch.coordinates])
        i, j = (np.floor((place - 0.5) * _ONE + 0.5).astype(np.int64) >> 8 for place in (x, y))
        parts, note = [], noting(machine, access, texture)
        for right, down in ((0, 1), (1, 1), (1, 0), (0, 0)):
            index = [
                wrapped(place + step, count, mode)
                for place, step, count, mode in zip((i, j), (right, down), texture.extents, texture.modes, strict=True)
            ]
            values = texture.values(texels(texture, layer, index, note))
            parts.append(values[..., number] if number < values.shape[-1] else np.zeros_like(values[..., 0]))
        _put_channels(machine, targets, np.stack(np.broadcast_arrays(*parts), axis=-1), result)

    return run


@instruction("txq", "suq")
def build_query(builder: Builder, ins: Instruction) -> Run:
    """Build txq and suq of width, height and depth."""
    axis = next((("width", "height", "depth").index(w) for w in ins.modifiers if w in ("width", "height", "depth")), -1)
    if axis < 0:
        raise refuse(ins)
    handle = builder.address(ins.operands[1])[0]
    target = builder.target(ins.operands[0])

    def run(machine: Machine) -> None:
        texture = machine.textures.get(machine.first_value(handle))
        if texture is None:
            raise LaunchError(f"{ins.text} asks for the size of what is no texture object.")
        machine.put(target, Affine(texture.extents[axis] if axis < texture.dimensions else 0))

    return run


# Surfaces: bytes of a row, and rows, addressed without any conversion.


def _surface(builder: Builder, ins: Instruction) -> tuple[str, int, np.dtype[Any], str]:
    """Return (clamp mode, elements, their type) of a surface access; only the unformatted .b is there."""
    if "b" not in ins.modifiers[0]:
        raise refuse(ins)
    mode = ins.modifiers[-1] if ins.modifiers[-1] in ("trap", "clamp", "zero") else "trap"
    type_ = next((word for word in reversed(ins.modifiers) if word in ("b8", "b16", "b32", "b64")), None)
    if type_ is None:
        raise refuse(ins)
    count = next((int(word[1]) for word in ins.modifiers if word in ("v2", "v4")), 1)
    return mode, count, DTYPES[type_], type_


class Places(NamedTuple):
    """Where the lanes of an access go: the surface, the offset of each lane in its bytes, the lanes that go there
    (None: all)."""

    surface: Texture
    offset: Array
    there: Array | None

    @property
    def raw(self) -> Array:
        """The bytes."""
        return self.surface.bytes

    def log(self, machine: Machine, access: MemoryOp, lanes: Array, data: Sequence[Value]) -> None:
        """Tell those that look for races which bytes the lanes of a mask access."""
        surface = self.surface
        if surface.extents[0] * surface.texel_bytes % access.width:
            return  # rows then begin within what is told apart
        if self.there is not None:
            lanes = lanes & self.there
        if lanes.any():
            region = machine.space.slots[surface.base >> SLOT_BITS]
            machine.global_races.log(access, region, self.offset + surface.base, 0, lanes, data)

    def read(self, dtype: np.dtype[Any], count: int) -> list[Array]:
        """Return `count` elements of each lane, 0 where it does not go."""
        at = self.offset[..., None] + np.arange(count * dtype.itemsize)
        found = self.raw[np.minimum(at, self.raw.size - 1)].view(dtype)
        if self.there is not None:
            found = np.where(self.there[..., None], found, dtype.type(0))
        return [found[..., number] for number in range(count)]

    def write(self, lanes: Array, sources: Sequence[Array], dtype: np.dtype[Any]) -> None:
        """Write an element of each of the sources for the lanes of a mask that go there."""
        if self.there is not None:
            lanes = lanes & self.there
        values = np.stack([broadcast(source, lanes.shape)[lanes] for source in sources], axis=-1)
        at = broadcast(self.offset, lanes.shape)[lanes][:, None] + np.arange(len(sources) * dtype.itemsize)
        self.raw[at] = np.ascontiguousarray(values, dtype).view(np.uint8)


def _places(machine: Machine, ins: Instruction, fetch: Fetch, mode: str, size: int) -> Places:
    """Return where an access of `size` bytes a lane goes, by the clamp mode; what a GPU would trap on, or leave
    undefined, is a hazard, and does not happen."""
    surface = bound(machine, fetch.handle, ins, len(fetch.coordinates), fetch.layer is not None)
    row = surface.extents[0] * surface.texel_bytes
    coordinates = [machine.array(index, DTYPES["s32"]).astype(np.int64) for index in fetch.coordinates]
    limits = [row, *surface.extents[1:]]
    outside: Any = np.zeros((1, 1), dtype=bool)
    offset: Any = np.zeros((1, 1), dtype=np.int64)
    step, last = 1, row - size  # the last byte that an access may begin at
    for x, limit, most in zip(coordinates, limits, (last, *(limit - 1 for limit in limits[1:])), strict=True):
        outside = outside | (x < 0) | (x > most)
        offset = offset + np.clip(x, 0, max(most, 0)) * step
        step *= limit
    skewed = ~outside & (coordinates[0] % size != 0)
    offset = offset - np.clip(coordinates[0], 0, max(last, 0)) % size
    if fetch.layer is not None:
        layer = machine.array(fetch.layer, UNSIGNED[32]).astype(np.int64)
        layers = surface.texels.shape[0]
        offset = offset + np.clip(layer, 0, layers - 1) * step
        outside = outside | (layer >= layers)
        coordinates, limits = [*coordinates, layer], [*limits, layers]
    lanes = active(machine)
    trapped = outside & (mode == "trap" or (mode == "clamp" and row < size))
    for kind, bad in (("misaligned", skewed), ("out-of-bounds", trapped)):
        bad = broadcast(bad, lanes.shape) & lanes
        if bad.any():
            _tell(machine, ins, surface, kind, bad, coordinates, limits, size)
    dropped = outside if mode != "clamp" or row < size else trapped
    lost = broadcast(dropped, lanes.shape) & lanes
    return Places(surface, offset, ~lost if lost.any() else None)


def _tell(
    machine: Machine,
    ins: Instruction,
    surface: Texture,
    kind: str,
    bad: Array,
    coordinates: Sequence[Array],
    limits: Sequence[int],
    size: int,
) -> None:
    """Record what the lanes of a mask do wrong: coordinates, the layer last, and how many there are of each."""
    chunk = machine.chunk
    count, place = first_lane(bad, chunk)
    block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
    names = ["x", "y", "z"][: surface.dimensions] + ["layer"] * surface.layered
    at = ", ".join(
        f"{name}={int(broadcast(x, chunk.shape)[place])}" for name, x in zip(names, coordinates, strict=True)
    )
    who = f"thread {thread} of block {block} {'reads' if ins.opcode == 'suld' else 'writes'} {size} bytes at {at}"
    if kind == "misaligned":
        text = f"{who} of the surface '{surface.name}', no multiple of {size}: x counts bytes."
    else:
        what = ["bytes a row", "rows", "slices"][: surface.dimensions] + ["layers"] * surface.layered
        has = ", ".join(f"{limit} {each}" for limit, each in zip(limits, what, strict=True))
        text = f"{who} of the surface '{surface.name}' ({has}): x counts bytes."
    machine.hazards.add(kind, ins.location, count, block, thread, text)


@instruction("suld")
def build_suld(builder: Builder, ins: Instruction) -> Run:
    """Build suld.b: bytes of a surface."""
    mode, count, dtype, _ = _surface(builder, ins)
    builder.granule["global"] = min(builder.granule["global"], dtype.itemsize)
    fetch = _fetch(builder, ins, ins.operands[1], "s32")
    targets = [builder.target(item) for item in _items(ins.operands[0])]
    widths = [max(16, builder.width(target)) for target in targets]
    access = _access(builder, "load", dtype, count)

    def run(machine: Machine) -> None:
        places = _places(machine, ins, fetch, mode, count * dtype.itemsize)
        places.log(machine, access, active(machine), ())
        for target, width, found in zip(targets, widths, places.read(dtype, count), strict=True):
            machine.put(target, canonical(found.astype(UNSIGNED[width])))

    return run


@instruction("sust")
def build_sust(builder: Builder, ins: Instruction) -> Run:
    """Build sust.b: bytes into a surface."""
    mode, count, dtype, type_ = _surface(builder, ins)
    builder.granule["global"] = min(builder.granule["global"], dtype.itemsize)
    fetch = _fetch(builder, ins, ins.operands[0], "s32")
    sources = [builder.source(item, type_) for item in _items(ins.operands[1])]
    access = _access(builder, "store", dtype, count)
    builder.write_addresses.append(fetch.handle)

    def run(machine: Machine) -> None:
        places = _places(machine, ins, fetch, mode, count * dtype.itemsize)
        if not places.raw.flags.writeable:
            raise KernelTrap(f"kernel {machine.code.name} writes to a surface of an array that is read-only.")
        lanes = active(machine)
        places.log(machine, access, lanes, [machine.registers[source] for source in sources])
        places.write(lanes, [machine.array(source, dtype) for source in sources], dtype)

    return run
