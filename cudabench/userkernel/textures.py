"""`--arg NAME=texture(ARRAY, OPTION=VALUE, ...)` and `surface(ARRAY, OPTION=VALUE, ...)`: arrays that a kernel reads,
or reads and writes, through texture and surface objects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cudabench.errors import UsageError, did_you_mean
from cudabench.records.launch import Surface, Texture
from cudabench.source.brackets import listed
from cudabench.source.named_types import layout_of
from cudabench.source.records import Layout, Parameter, SourceFile
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.values import Array, BufferView

TYPE, SURFACE_TYPE = "cudaTextureObject_t", "cudaSurfaceObject_t"
_VIEW = re.compile(r"(texture|surface|tensormap)\s*\(")
# What parameters are that no number or array can be given for, and the repair.
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
# Texels of a surface along each axis, the fastest last, by its dimensions and whether it has layers, and of a texture
# where it differs: Programming Guide, "Technical Specifications per Compute Capability", from 7.0 on.
MOST = {
    (1, False): (32768,), (2, False): (65536, 131072), (3, False): (16384, 16384, 16384),
    (1, True): (2048, 32768), (2, True): (2048, 32768, 32768),
}  # fmt: skip
MOST_OF_TEXTURE = {**MOST, (1, False): (131072,)}
MOST_LINEAR = 1 << 28
SURFACE_OPTIONS = {key: OPTIONS[key] for key in ("channels", "layers")}
KINDS = {
    "texture": (TYPE, OPTIONS, "filter=linear"),
    "surface": (SURFACE_TYPE, SURFACE_OPTIONS, "channels=4"),
}


Object = Array | BufferView


def misfit(kind: str, parameter: Parameter) -> str | None:
    """Return what a parameter is that cannot take a texture or a surface, with the repair; None where it can."""
    if parameter.pointer:
        return f"a pointer: give it an array, as {parameter.name or 'x'}=float32[n]:random"
    if parameter.type != KINDS[kind][0] and parameter.type in OBJECTS:
        return OBJECTS[parameter.type]
    return None if parameter.number in (None, "uint64") else "a number: give it one, as n=4096"


def out_of_reach(parameter: Parameter, file: SourceFile) -> str | None:
    """Return why no --arg can give a parameter, in whose struct or memory there are objects, with the repair; None for
    any other. `file` declares structs."""
    element = parameter.element or parameter.type
    if element in OBJECTS:
        found = {"": element} if parameter.pointer else {}
    else:
        layout = layout_of(parameter.type, file)
        found = _objects_in(layout, file.types) if layout else {}
    if not found:
        return None
    names = {path.replace(".", "_") or parameter.name or "x": ctype for path, ctype in found.items()}
    own = ", ".join(f"{ctype} {name}" for name, ctype in names.items())
    name, ctype = next(iter(names.items()))
    kind = next(kind for kind, (one, *_) in KINDS.items() if one == ctype)
    within = (
        f"with the object{'s' * (len(found) > 1)} {', '.join(found)} inside" if any(found) else "a pointer to objects"
    )
    return (
        f"'{parameter}', {within}, and --arg gives texture and surface objects only as parameters of their own: write "
        f"a __global__ function beside it that takes '{own}' in its place, and give --arg "
        f"'{name}={kind}(float32[n,n]:random)'."
    )


def _objects_in(layout: Layout, aliases: Mapping[str, str], path: str = "") -> dict[str, str]:
    """Return the types of the objects in a value by the path of their names."""
    ctype = aliases.get(layout.ctype, layout.ctype)
    if ctype in OBJECTS:
        return {path: ctype}
    if layout.element is not None:
        return _objects_in(layout.element, aliases, path)
    found: dict[str, str] = {}
    for name, _, member in layout.members:
        found |= _objects_in(member, aliases, f"{path}.{name}" if path else name)
    return found


def view_kind(text: str) -> str:
    """Return "texture", "surface" or "tensormap" where an argument's value is meant as one, else ""."""
    match = _VIEW.match(text)
    return match[1] if match else ""


def array_within(text: str) -> tuple[str, str, str]:
    """Return the array of an argument's value, with what stands before and behind it: `texture(`, and the options."""
    if view_kind(text) not in KINDS:
        return "", text, ""
    at = text.index("(") + 1
    first = next(iter(listed(text[at:].removesuffix(")"))), "")
    start = text.index(first, at)
    return text[:start], first, text[start + len(first) :]


def read_call(where: str, text: str, kind: str, options: Mapping[str, Sequence[str]], sample: str) -> dict[str, str]:
    """Return the options of `KIND(ARRAY, OPTION=VALUE, ...)`, whose values are as `options` lists them.

    One that lists none takes any. Raises UsageError for what is not on the list, and for an option that is given twice.
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
        if key in given:
            raise UsageError(f"{where}: {key} is given twice: keep one.")
        if not equals:
            raise UsageError(f"{where}: {key} has no value: write {key}={f', and one of {known}' * bool(known)}.")
        if known and value not in options[key]:
            raise UsageError(f"{where}: {key} is one of {known}, not '{value}'.")
        given[key] = value
    return given


def read_object(name: str, text: str, array: Array, shared: bool, fetches: bool) -> Object:
    """Return the texture of `texture(ARRAY, OPTION=VALUE, ...)`, or the surface of `surface(ARRAY, ...)`.

    `array` is ARRAY, which another argument is where it is `shared`; `fetches`: the kernel reads it by tex1Dfetch, so
    that a plain 1D texture means linear memory. Raises UsageError for an unknown option or value, and for what no
    GPU takes.
    """
    where = f"--arg {name}={text}"
    kind = view_kind(text)
    _, options, sample = KINDS[kind]
    given = read_call(where, text, kind, options, sample)
    chosen = {key: given.get(key, values[0]) for key, values in options.items()}
    if shared and isinstance(held := array.argument, (Surface, Texture)):
        said = next((key for key in SURFACE_OPTIONS if key in given), None)
        if said:
            raise UsageError(f"{where}: {said} is already set by {array.name}: remove it here.")
        chosen |= {"channels": str(held.channels), "layers": "yes" if held.layered else "no"}
    if array.dtype not in TYPES:
        raise UsageError(f"{where}: a {kind} cannot hold {array.dtype}; use one of {', '.join(TYPES)}.")
    channels, layered = int(chosen["channels"]), chosen["layers"] == "yes"
    _check_sides(where, kind, array, channels, layered)
    if kind == "surface":
        return _surface(name, where, array, shared, channels, layered)
    fetches = fetches and "memory" not in given
    return _texture(name, where, array, shared, channels, layered, chosen, fetches)


def _check_sides(where: str, kind: str, array: Array, channels: int, layered: bool) -> None:
    """Raise UsageError for channels that the last axis has not, and for too many dimensions or too few."""
    if channels > 1 and array.shape[-1] != channels:
        raise UsageError(f"{where}: channels={channels} needs a shape that ends in {channels}, as [n,n,{channels}].")
    sides = len(array.shape) - (channels > 1) - layered
    if sides < 1:
        axes, place = ("layers", "behind") if layered else ("channels", "before")
        if layered and channels > 1:
            axes, place = "layers and channels", "between"
        raise UsageError(f"{where}: {shape_text(array.shape)} has nothing but {axes}: put the width {place} them.")
    if sides > 3 - layered:
        three = array.shape[-1] == 3 and len(array.shape) > 1
        repair = "no GPU has three: add a fourth" if three else "add channels=4 where the last axis holds channels"
        raise UsageError(
            f"{where}: {shape_text(array.shape)} gives a {kind} of {sides} dimensions; it has 1 to {3 - layered}: "
            f"{repair}."
        )


def _surface(name: str, where: str, array: Array, shared: bool, channels: int, layered: bool) -> Object:
    """Return a surface of an array, or of another argument's."""
    if shared and not isinstance(array.argument, Surface):
        raise UsageError(
            f"{where}: {array.name} is not a surface, and only a surface's array can be written through another: let "
            f"{array.name} be surface({array.dtype}{shape_text(array.shape)}:zeros)."
        )
    surface = Surface(array.name, array.dtype, array.shape, channels, layered)
    _check_size(where, "a surface", array, channels, layered, MOST)
    return BufferView(name, surface) if shared else replace(array, const=False, view=surface)


def _texture(
    name: str, where: str, array: Array, shared: bool, channels: int, layered: bool, chosen: Mapping[str, str],
    fetches: bool,
) -> Object:  # fmt: skip
    """Return a texture of an array, or of another argument's; fetches: one that may be linear memory is."""
    normalized, linear_filter = chosen["coordinates"] == "normalized", chosen["filter"] == "linear"
    floats = array.dtype in ("float32", "float16")
    if array.init == "empty" and not shared:
        raise UsageError(f"{where}: a texture is only read, so 'empty' would leave it poison: use random or arange.")
    if linear_filter and not floats and chosen["read"] == "element":
        raise UsageError(f"{where}: {array.dtype} has no linear filter, unless read=normalized makes it floats.")
    if chosen["read"] == "normalized" and (floats or array.dtype in ("int32", "uint32")):
        raise UsageError(f"{where}: only integers of 8 and 16 bits are read as normalized, not {array.dtype}.")
    if chosen["address"] in ("wrap", "mirror") and not normalized:
        raise UsageError(
            f"{where}: address={chosen['address']} needs coordinates=normalized; a GPU takes it for clamp otherwise."
        )
    plain = len(array.shape) - (channels > 1) == 1 and not layered and not normalized and not linear_filter
    if chosen["memory"] == "linear" and not plain:
        raise UsageError(f"{where}: memory=linear is for tex1Dfetch: one dimension, no filter, coordinates in texels.")
    linear = chosen["memory"] == "linear" or (fetches and plain)
    if shared:
        wanted = f"texture({array.dtype}{shape_text(array.shape)}:random)"
        if isinstance(array.argument, Surface):
            if chosen["memory"] == "linear":
                raise UsageError(f"{where}: {array.name} is a surface, which is not linear memory: read it with tex1D.")
            linear = False
        elif not isinstance(array.argument, Texture) and not linear:
            raise UsageError(
                f"{where}: {array.name} lies in memory, where only tex1Dfetch reads it through a texture: let "
                f"{array.name} be a surface, or write {name}={wanted}."
            )
    most = {(1, False): (MOST_LINEAR,)} if linear else MOST_OF_TEXTURE
    _check_size(where, "linear memory" if linear else "a texture", array, channels, layered, most)
    texture = Texture(
        array.name, array.dtype, array.shape, channels, layered, chosen["filter"],  # type: ignore[arg-type]
        chosen["address"], normalized, chosen["read"], linear,  # type: ignore[arg-type]
    )  # fmt: skip
    return BufferView(name, texture) if shared else replace(array, const=True, view=texture)


def _check_size(
    where: str,
    what: str,
    array: Array,
    channels: int,
    layered: bool,
    limits: Mapping[tuple[int, bool], tuple[int, ...]],
) -> None:
    """Raise UsageError for more texels than a GPU takes."""
    extents = array.shape[:-1] if channels > 1 else array.shape
    most = limits[len(extents) - layered, layered]
    if any(extent > limit for extent, limit in zip(extents, most, strict=True)):
        raise UsageError(
            f"{where}: {shape_text(array.shape)} is larger than {what} can be, {' x '.join(map(str, most))} texels: "
            "use a smaller shape."
        )
