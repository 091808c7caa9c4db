"""Reads --arg values that are objects over arrays: textures, surfaces and tensor maps.

The user writes `texture(ARRAY, OPTION=VALUE, ...)`, `surface(ARRAY, ...)`, or `tensormap(ARRAY, box=ROWSxCOLUMNS,
...)`; the last is a CUtensorMap for copies of tiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.records.launch import Surface, TensorMap, Texture
from cudabench.source.brackets import listed
from cudabench.source.named_types import layout_of
from cudabench.source.records import Layout, Parameter, SourceFile
from cudabench.userkernel import expressions
from cudabench.userkernel.values import Array, BufferView, shape_text

TYPE, SURFACE_TYPE = "cudaTextureObject_t", "cudaSurfaceObject_t"
_VIEW = re.compile(r"(texture|surface|tensormap)\s*\(")
# For each type of object: the end of the error message if the parameter was given something that is not such an object.
OBJECTS = {
    TYPE: "a texture object: give an array as texture(float32[n,n]:random, filter=linear)",
    SURFACE_TYPE: "a surface object: give an array as surface(float32[n,n]:zeros)",
}
TYPES = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32")
OPTIONS: dict[str, tuple[str, ...]] = {
    "filter": ("point", "linear"),
    "address": ("clamp", "wrap", "mirror", "border"),
    "coordinates": ("texels", "normalized"),
    "read": ("element", "normalized"),
    "channels": ("1", "2", "4"),
    "layers": ("no", "yes"),
    "memory": ("array", "linear"),
}
# The most texels possible on each axis, keyed by (number of dimensions, whether there are layers); the axis that varies
# fastest is the last. MOST is for surfaces. MOST_OF_TEXTURE is for textures, for which one limit differs. Source:
# Programming Guide, "Technical Specifications per Compute Capability", from 7.0 on.
MOST = {
    (1, False): (32768,), (2, False): (65536, 131072), (3, False): (16384, 16384, 16384),
    (1, True): (2048, 32768), (2, True): (2048, 32768, 32768),
}  # fmt: skip
MOST_OF_TEXTURE = {**MOST, (1, False): (131072,)}
MOST_LINEAR = 1 << 28
SURFACE_OPTIONS = {key: OPTIONS[key] for key in ("channels", "layers")}
KINDS = {"texture": (TYPE, OPTIONS, "filter=linear"), "surface": (SURFACE_TYPE, SURFACE_OPTIONS, "channels=4")}


Object = Array | BufferView


def misfit(kind: str, parameter: Parameter) -> str | None:
    """Return a text that says what to give a parameter that cannot take a texture or surface; None if it can."""
    if parameter.pointer:
        return f"a pointer: give it an array, as {parameter.name or 'x'}=float32[n]:random"
    if parameter.type != KINDS[kind][0] and parameter.type in OBJECTS:
        return OBJECTS[parameter.type]
    return None if parameter.number in (None, "uint64") else "a number: give it one, as n=4096"


def why_not_passable(parameter: Parameter, file: SourceFile) -> str | None:
    """Return why --arg cannot give a parameter that contains or points to texture or surface objects, else None.

    The text also says what the user can do. `file`: the source, which declares structs.
    """
    element = parameter.element or parameter.type
    if element in OBJECTS:
        objects = {"": element} if parameter.pointer else {}
    else:
        layout = layout_of(parameter.type, file)
        objects = _objects_in(layout, file.types) if layout else {}
    if not objects:
        return None
    names = {path.replace(".", "_") or parameter.name or "x": ctype for path, ctype in objects.items()}
    own = ", ".join(f"{ctype} {name}" for name, ctype in names.items())
    name, ctype = next(iter(names.items()))
    kind = next(kind for kind, (object_type, *_) in KINDS.items() if object_type == ctype)
    within = (
        f"with the object{'s' * (len(objects) > 1)} {', '.join(objects)} inside"
        if any(objects)
        else "a pointer to objects"
    )
    return (
        f"'{parameter}', {within}, but --arg gives texture and surface objects only to whole parameters: write "
        f"a __global__ function beside it that takes '{own}' in its place, and give --arg "
        f"'{name}={kind}(float32[n,n]:random)'."
    )


def _objects_in(layout: Layout, aliases: Mapping[str, str], path: str = "") -> dict[str, str]:
    """Return the C types of the texture and surface objects in a struct, keyed by member path such as 'a.b'."""
    ctype = aliases.get(layout.ctype, layout.ctype)
    if ctype in OBJECTS:
        return {path: ctype}
    if layout.element is not None:
        return _objects_in(layout.element, aliases, path)
    objects: dict[str, str] = {}
    for name, _, member in layout.members:
        objects |= _objects_in(member, aliases, f"{path}.{name}" if path else name)
    return objects


def view_kind(text: str) -> str:
    """Return "texture", "surface" or "tensormap" if an argument's value is written as such an object, else ""."""
    match = _VIEW.match(text)
    return match[1] if match else ""


def array_within(text: str) -> tuple[str, str, str]:
    """Return (text before ARRAY, ARRAY, text after ARRAY) of `texture(ARRAY, ...)` or `surface(ARRAY, ...)`.
    Any other text is returned as ARRAY, with nothing before or after it."""
    if view_kind(text) not in KINDS:
        return "", text, ""
    at = text.index("(") + 1
    first = next(iter(listed(text[at:].removesuffix(")"))), "")
    start = text.index(first, at)
    return text[:start], first, text[start + len(first) :]


def read_call(where: str, text: str, kind: str, options: Mapping[str, Sequence[str]], sample: str) -> dict[str, str]:
    """Return the options in `KIND(ARRAY, OPTION=VALUE, ...)`, keyed by name.

    `options`: the allowed values of each option; an empty list allows any value. `sample`: an option to show in
    messages. Raises UsageError for an unknown option, another value, and an option that is given twice.
    """
    title = "tensor map" if kind == "tensormap" else kind
    given: dict[str, str] = {}
    for part in listed(text[text.index("(") + 1 : -1])[1:]:
        key, equals, value = (side.strip() for side in part.partition("="))
        if key not in options:
            raise UsageError(
                f"{where}: '{part}' is not an option of a {title}; use {', '.join(options)}, as in "
                f"{sample}.{did_you_mean(key, options)}"
            )
        known = ", ".join(options[key])
        refuse(
            (key in given, f"{where}: {key} is given twice: keep one."),
            (not equals, f"{where}: {key} lacks a value: write {key}={f', and one of {known}' * bool(known)}."),
            (known and value not in options[key], f"{where}: {key} is one of {known}, not '{value}'."),
        )
        given[key] = value
    return given


def read_object(name: str, text: str, array: Array, shared: bool, fetches: bool) -> Object:
    """Return the texture or surface that `texture(ARRAY, OPTION=VALUE, ...)` or `surface(ARRAY, ...)` describes.

    `array`: ARRAY, already read. `shared`: whether another argument has this array. `fetches`: whether the kernel reads
    the texture by tex1Dfetch; then a plain 1D texture is linear memory. Raises UsageError for an unknown option or
    value, and for an object that GPUs refuse.
    """
    where = f"--arg {name}={text}"
    kind = view_kind(text)
    _, options, sample = KINDS[kind]
    given = read_call(where, text, kind, options, sample)
    chosen = {key: given.get(key, values[0]) for key, values in options.items()}
    held = array.argument if shared else None
    if isinstance(held, (Surface, Texture)):
        if option := next((key for key in SURFACE_OPTIONS if key in given), None):
            raise UsageError(f"{where}: {option} is already set by {array.name}: remove it here.")
        chosen |= {"channels": str(held.channels), "layers": "yes" if held.layered else "no"}
    channels, layered = int(chosen["channels"]), chosen["layers"] == "yes"
    _check_sides(where, kind, array, channels, layered)
    view: Surface | Texture
    view = surface = Surface(array.name, array.dtype, array.shape, channels, layered)
    what = f"a {kind}"
    limits: Mapping[tuple[int, bool], tuple[int, ...]] = MOST if kind == "surface" else MOST_OF_TEXTURE
    if kind == "surface":
        if shared and not isinstance(held, Surface):
            raise UsageError(
                f"{where}: {array.name} is not a surface, and only a surface's array can be written through another: "
                f"let {array.name} be surface({array.dtype}{shape_text(array.shape)}:zeros)."
            )
    else:
        view = _texture(where, name, surface, array, shared, chosen, fetches and "memory" not in given)
        if view.linear:
            what, limits = "linear memory", {(1, False): (MOST_LINEAR,)}
    extents = array.shape[:-1] if channels > 1 else array.shape
    most = limits[len(extents) - layered, layered]
    if any(extent > limit for extent, limit in zip(extents, most, strict=True)):
        raise UsageError(
            f"{where}: {shape_text(array.shape)} is larger than {what} can be, {' x '.join(map(str, most))} texels: "
            "use a smaller shape."
        )
    return BufferView(name, view) if shared else replace(array, const=kind == "texture", view=view)


def _check_sides(where: str, kind: str, array: Array, channels: int, layered: bool) -> None:
    """Raise UsageError if an array cannot be a texture or surface with these channels and layers.

    The reason can be the element type, the last axis (which must be the channels), or the number of dimensions.
    """
    shape, last = shape_text(array.shape), array.shape[-1]
    sides = len(array.shape) - (channels > 1) - layered
    axes, place = ("layers", "behind") if layered else ("channels", "before")
    if layered and channels > 1:
        axes, place = "layers and channels", "between"
    three = last == 3 and len(array.shape) > 1
    repair = (
        "GPUs do not have three channels: add a fourth" if three else "add channels=4 if the last axis holds channels"
    )
    refuse(
        (array.dtype not in TYPES, f"{where}: a {kind} cannot hold {array.dtype}; use one of {', '.join(TYPES)}."),
        (
            channels > 1 and last != channels,
            f"{where}: channels={channels} needs a shape that ends in {channels}, as [n,n,{channels}].",
        ),
        (sides < 1, f"{where}: {shape} has only {axes}: put the width {place} them."),
        (
            sides > 3 - layered,
            f"{where}: {shape} gives a {kind} of {sides} dimensions; it has 1 to {3 - layered}: {repair}.",
        ),
    )


def _texture(
    where: str, name: str, alike: Surface, array: Array, shared: bool, chosen: Mapping[str, str], fetches: bool
) -> Texture:
    """Return a texture over an array; `alike`: a surface with the same texels and shape.

    `chosen`: the value of each option. `fetches`: whether to use linear memory if possible.
    """
    normalized, filtered = chosen["coordinates"] == "normalized", chosen["filter"] == "linear"
    floats = array.dtype in ("float32", "float16")
    plain = len(array.shape) - (alike.channels > 1) == 1 and not alike.layered and not normalized and not filtered
    reads_linear_memory = chosen["memory"] == "linear"
    of_surface = shared and isinstance(array.argument, Surface)
    linear = not of_surface and (reads_linear_memory or (fetches and plain))
    refuse(
        (
            array.init == "empty" and not shared,
            f"{where}: a kernel only reads a texture, so 'empty' would leave it without values: use random or arange.",
        ),
        (
            filtered and not floats and chosen["read"] == "element",
            f"{where}: {array.dtype} cannot be filtered: add read=normalized, or use floats.",
        ),
        (
            chosen["read"] == "normalized" and (floats or array.dtype in ("int32", "uint32")),
            f"{where}: only integers of 8 and 16 bits are read as normalized, not {array.dtype}.",
        ),
        (
            chosen["address"] in ("wrap", "mirror") and not normalized,
            f"{where}: address={chosen['address']} needs coordinates=normalized; without them a GPU clamps.",
        ),
        (
            reads_linear_memory and not plain,
            f"{where}: memory=linear is for tex1Dfetch: one dimension, filter=point, coordinates in texels.",
        ),
        (
            reads_linear_memory and of_surface,
            f"{where}: {array.name} is a surface, which is not linear memory: read it with tex1D.",
        ),
        (
            shared and not linear and not isinstance(array.argument, (Surface, Texture)),
            f"{where}: {array.name} is linear memory, which a texture reads only by tex1Dfetch: let {array.name} "
            f"be a surface, or write {name}=texture({array.dtype}{shape_text(array.shape)}:random).",
        ),
    )
    return Texture(
        array.name, array.dtype, array.shape, alike.channels, alike.layered, chosen["filter"],  # type: ignore[arg-type]
        chosen["address"], normalized, chosen["read"], linear,  # type: ignore[arg-type]
    )  # fmt: skip


# Tensor maps ---------------------------------------------------------------------------------------------------------

MAP_TYPE = "CUtensorMap"
MAP_TYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip
MAP_OPTIONS = {
    "box": (), "swizzle": ("0", "32", "64", "128"), "fill": ("zeros", "nan"), "steps": (), "sizes": (), "strides": (),
    "access": ("read", "write"),
}  # fmt: skip
MAP_EXAMPLE = "tensormap(float16[1024,1024]:random, box=64x64, swizzle=128)"


def read_tensor_map(
    name: str, text: str, array: Array, shared: bool, scalars: Mapping[str, Any], pointer: bool
) -> Array | BufferView:
    """Return the tensor map that `tensormap(ARRAY, box=..., ...)` describes.

    `array`: ARRAY, already read. `shared`: whether another argument has this array. `pointer`: whether the parameter is
    a pointer to the map. Sizes are in the order of the array's axes: rows before columns. Raises UsageError for an
    unknown option or value, and for a map that cuTensorMapEncodeTiled refuses.
    """
    where = f"--arg {name}={text}"
    given = read_call(where, text, "tensormap", MAP_OPTIONS, "box=64x64")
    if "box" not in given:
        raise UsageError(f"{where} lacks a box, the tile of one copy: add box=64x64, rows before columns.")

    def numbers(key: str, count: int) -> tuple[int, ...]:
        inner = given[key]
        if re.fullmatch(r"\d+(\s*x\s*\d+)*", inner):
            inner = inner.replace("x", ",")
        value = expressions.parse(inner.strip("[]"), where, scalars).evaluate(scalars)
        numbers_given = value if isinstance(value, tuple) else (value,)
        if len(numbers_given) != count or not all(isinstance(number, (int, np.integer)) for number in numbers_given):
            raise UsageError(f"{where}: {key} takes {count} whole numbers, as in {key}={'x'.join(['64'] * count)}.")
        return tuple(int(number) for number in numbers_given)

    if array.dtype not in MAP_TYPES:
        raise UsageError(f"{where}: a tensor map cannot hold {array.dtype}; use one of {', '.join(MAP_TYPES)}.")
    width, sizes = np.dtype(array.storage).itemsize, tuple(array.shape)
    if "sizes" in given:
        sizes = numbers("sizes", len(re.split("[x,]", given["sizes"])))
    rank = len(sizes)
    steps_of = [int(np.prod(sizes[at + 1 :], dtype=np.int64)) for at in range(rank - 1)]
    strides = tuple(width * step for step in (numbers("strides", rank - 1) if "strides" in given else steps_of))
    box = numbers("box", rank)
    steps = numbers("steps", rank) if "steps" in given else (1,) * rank
    swizzle = int(given.get("swizzle", "0"))
    from cudabench.simulator.tensor_maps import refusal

    reason = refusal(width, sizes[::-1], strides[::-1], box[::-1], steps[::-1], swizzle)
    reach = sum((size - 1) * stride for size, stride in zip(sizes, (*strides, width), strict=True)) + width
    written = given.get("access", "write" if array.init in ("empty", "zeros") else "read") == "write"
    refuse(
        (reason, f"{where}: a tensor map cannot have {reason}."),
        (
            reach > array.nbytes,
            f"{where}: sizes and strides reach {reach} bytes, and {array.dtype}{shape_text(array.shape)} has "
            f"{array.nbytes}.",
        ),
        (shared and given.get("access"), f"{where}: access is already set by {array.name}: remove it here."),
        (
            not shared and array.init == "empty" and not written,
            f"{where}: with access=read, 'empty' would leave the array without values: use random or arange.",
        ),
    )
    tensor = TensorMap(
        array.name, array.dtype, sizes[::-1], strides[::-1], box[::-1], steps[::-1], swizzle,
        given.get("fill", "zeros"), pointer,  # type: ignore[arg-type]
    )  # fmt: skip
    return BufferView(name, tensor) if shared else replace(array, const=not written, view=tensor)
