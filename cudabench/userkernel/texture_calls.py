"""How a kernel reads textures, by its text: `tex2D<float4>(t, x, y)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cudabench.model import Texture
from cudabench.source.types import numpy_type, vector_type
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.surface_calls import array_text, dimensions_text, taken_by

# The C type says what is read, or what it is read into: `tex2D<float>(t, x, y)`, `tex2D(&v, t, x, y)`.
_FETCH = re.compile(
    r"\btex(1D|2D|3D)(Layered)?(fetch)?(?:gather|Lod|Grad)?\s*"
    r"(?:<\s*([\w:\s]+?)\s*>\s*\(\s*(?:&[^,()]+,\s*)?(\w+)|\([^,()]+,\s*(\w+))\s*(?=[,)])"
)


@dataclass(frozen=True)
class Fetch:
    """A read of a texture as it stands in a text: its dimensions, whether it is tex1Dfetch, the C type ("": not said),
    the name."""

    sides: int
    layered: bool
    linear: bool
    ctype: str
    name: str


def fetches(text: str) -> list[Fetch]:
    """Return the reads of textures in a text."""
    return [
        Fetch(int(match[1][0]), bool(match[2]), bool(match[3]), match[4] or "", match[5] or match[6])
        for match in _FETCH.finditer(text)
    ]


def wants_linear(name: str, text: str, file: str) -> bool:
    """Tell whether a kernel, whose text is given, reads a parameter by tex1Dfetch, or a function of the text `file`
    that it hands it on to. Where neither reads it by that name, whether the kernel reads any so."""
    own = [one for one in fetches(text) if one.name == name] or fetches(taken_by(name, text, file))
    return any(one.linear for one in own or fetches(text))


def misuse(texture: Texture, name: str, text: str, aliases: Mapping[str, str]) -> str | None:
    """Return why a kernel, whose text is given, cannot read a texture as its parameter `name`, with the repair; None
    where nothing shows."""
    has = len(texture.shape) - (texture.channels > 1) - texture.layered
    floats, normalized = texture.dtype.startswith("float"), texture.read == "normalized"
    own = [one for one in fetches(text) if one.name == name]
    alike = [one for one in own if (one.sides, one.layered) == (has, texture.layered)]
    if own and not alike:
        one = own[0]
        wanted = array_text(texture.dtype, one.sides, one.layered, texture.channels, "random")
        return (
            f"{shape_text(texture.shape)} is a texture of {dimensions_text(has, texture.layered)}, and the kernel "
            f"reads it as a texture of {dimensions_text(one.sides, one.layered)}: write texture({wanted})"
        )
    for one in alike:
        if texture.linear and not one.linear:
            return f"memory=linear is for tex1Dfetch, and the kernel reads it by tex{one.sides}D: leave it out"
        ctype = aliases.get(one.ctype, one.ctype)  # what a parameter of a template stands for
        dtype = numpy_type(ctype, aliases)
        found = (dtype, 1) if dtype else vector_type(ctype, aliases)
        if found is None:
            continue
        dtype, channels = found
        if channels in (2, 4) and channels > texture.channels:
            wanted = array_text(texture.dtype, one.sides, one.layered, channels, "random")
            return (
                f"a texel has {texture.channels} channel{'s' * (texture.channels > 1)}, and the kernel reads "
                f"{ctype}: write texture({wanted})"
            )
        fraction = np.dtype(dtype).kind == "f"
        if fraction == (floats or normalized):
            continue
        if normalized:
            return f"read=normalized gives fractions, and the kernel reads {ctype}: leave it out"
        wanted = array_text(dtype, one.sides, one.layered, texture.channels, "random")
        other = "add read=normalized, or " if fraction and np.dtype(texture.dtype).itemsize <= 2 else ""
        return f"{texture.dtype} read as {ctype} is its bits, not its value: {other}write texture({wanted})"
    return None
