"""Textures and surfaces as --arg writes them, for a line that is suggested: by how the kernel calls the functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cudabench.toolchain import source
from cudabench.userkernel.surface_calls import calls, taken_by, texel
from cudabench.userkernel.texture_calls import Fetch, fetches
from cudabench.userkernel.textures import TYPES

SIDE = {1: 16384, 2: 1024, 3: 64}  # of a surface, by its dimensions, where nothing says more


def texture(name: str, text: str, aliases: Mapping[str, str], file: str = "") -> str:
    """Return a texture for a parameter by how the kernel, whose text is given, reads it: `tex2D<uchar4>(name, x, y)`.

    A name that the kernel hands on is read as that function of the text `file` does, or as the file's first texture is.
    """
    every = fetches(text) or fetches(taken_by(name, text, file)) or fetches(file)
    found = next(
        (one for one in every if one.name == name), every[0] if every else Fetch(2, False, False, "float", name)
    )
    ctype, extents = found.ctype or "float", {1: ["131072"], 2: ["1024", "1024"], 3: ["64", "64", "64"]}[found.sides]
    if found.linear:
        extents = ["1048576"]
    dtype, channels = source.numpy_dtype(ctype, aliases), 1
    vector = None if dtype else source.vector_type(ctype, aliases)
    if vector:
        dtype, channels = vector
    dtype = dtype if dtype in TYPES else "float32"
    options = ""
    if found.layered:
        extents, options = ["4", "32768"] if found.sides == 1 else ["4", *extents], ", layers=yes"
    if channels in (2, 4):
        extents, options = [*extents, str(channels)], f"{options}, channels={channels}"
    return f"texture({dtype}[{','.join(extents)}]:random{options})"


def side_of_surfaces(text: str) -> int:
    """Return how large an extent may be that is one of a surface's."""
    return min((SIDE[one.sides] for one in calls(text)), default=SIDE[1])


def surface(
    name: str,
    text: str,
    aliases: Mapping[str, str],
    extents: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    file: str = "",
) -> str:
    """Return a surface for a parameter by how the kernel, whose text is given, uses it: `surf2Dwrite(v, name, x, y)`.

    `extents` are the numbers that it may be as large as, with their `sizes`. A name that the kernel hands on, as in
    `put<uchar4>(name, x, y)`, is used as that function of the text `file` does, or as the file's first surface is.
    """
    every = calls(text) or calls(taken_by(name, text, file)) or calls(file)
    own = [one for one in every if one.name == name] or every[:1]
    sizes = sizes or {}
    if not own:
        return "surface(float32[1024,1024]:zeros)"
    first = own[0]
    ctype = next((one.ctype for one in own if one.ctype), "") or next(
        (one.likely for one in own if one.likely), "float"
    )
    handed = re.search(rf"<\s*([\w:\s]+?)\s*>\s*\([^;]*\b{name}\b", text)
    if texel(ctype, aliases) is None and handed:
        ctype = handed[1]
    dtype, channels = texel(ctype, aliases) or ("float32", 1)
    sides = [_side(place, text, extents, sizes) for place in first.places]
    left = [one for one in extents if one not in sides and 1 < sizes.get(one, 0) <= SIDE[1]]
    for at, side in enumerate(sides):
        if not side and at < first.sides and len(left) >= sides.count(""):
            sides[at] = left.pop(0)
    sides = [side or str(SIDE[first.sides]) for side in sides[: first.sides]] + [s or "4" for s in sides[first.sides :]]
    shape = sides[::-1]  # the layer, if any, is first
    options = ", layers=yes" if first.layered else ""
    if channels in (2, 4):
        shape, options = [*shape, str(channels)], f"{options}, channels={channels}"
    start = "random" if any(not one.writes for one in own) else "zeros"
    return f"surface({dtype}[{','.join(shape)}]:{start}{options})"


def _side(place: str, text: str, extents: Sequence[str], sizes: Mapping[str, int]) -> str:
    """Return what bounds a coordinate, `w` where the text has `x < w`; "" where it is not known."""
    if place.strip().isdigit():
        return ""
    words = re.findall(r"[^\W\d]\w*", re.sub(r"sizeof\s*\([^()]*\)", "", place))
    for word in words:
        bound = re.search(rf"\b{word}\s*(?:<|>)=?\s*(?:\([\w\s]+\)\s*)?(\w+)", text)
        if bound and (bound[1] in extents or bound[1].isdigit()) and sizes.get(bound[1], 2) > 1:
            return bound[1]
    return ""
