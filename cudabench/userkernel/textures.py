"""`--arg NAME=texture(ARRAY, OPTION=VALUE, ...)`: an array that a kernel reads through a texture object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from cudabench.errors import CudabenchError, UsageError, did_you_mean
from cudabench.model import Texture
from cudabench.toolchain import reached, source
from cudabench.toolchain.source import KernelSource, SourceFile
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.values import Array

TYPE = "cudaTextureObject_t"
# What parameters are that no number or array can be given for, and the repair.
OBJECTS = {
    TYPE: "a texture object: give an array as texture(float32[n,n]:random, filter=linear)",
    "cudaSurfaceObject_t": "a surface object, which no argument gives: let the kernel write to an array",
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


_REFERENCE = re.compile(r"\btexture\s*<([^;<>{}]*)>\s*(\w+)\s*(?=[;=\[])")


@dataclass(frozen=True)
class TextureArray(Array):
    """An array that goes to the kernel as a texture object; `texture` says how it is read."""

    texture: Texture | None = None

    @property
    def argument(self) -> Any:
        """What a launch gets: the texture over the buffer."""
        return self.texture


def check_no_reference(file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]) -> None:
    """Raise CudabenchError where a kernel, or a function that it calls, reads a texture reference of the file."""
    references = {match[2]: match[1].split(",") for match in _REFERENCE.finditer(file.text)}
    for named in re.finditer(r"\btypedef\s+texture\s*<([^;<>{}]*)>\s*(\w+)\s*;", file.text):
        references.pop(named[2], None)
        for one in re.findall(rf"(?<![\w<]){named[2]}\s+(\w+)\s*;", file.text):
            references[one] = named[1].split(",")
    if not references:
        return
    read = sorted(reached.names(file.text, kernel) & set(references))
    if not read:
        return
    fetches, given = [], []
    for name in read:
        ctype, *more = (part.strip() for part in references[name])
        dimensions = re.fullmatch(r"(?:cudaTextureType)?([123])D?", more[0]) if more else None
        sides = int(dimensions[1]) if dimensions else 1
        fetch = f"tex{sides}D<{ctype}>({name}, {', '.join('xyz'[:sides])})"
        if sides == 1 and re.search(rf"\btex1Dfetch\s*\(\s*{name}\b", file.text):
            fetch = f"tex1Dfetch<{ctype}>({name}, i)"
        fetches.append(fetch)
        given.append(f"--arg '{name}={example(name, fetch, aliases)}'")
    names, parameters = ", ".join(f"'{name}'" for name in read), ", ".join(f"{TYPE} {name}" for name in read)
    kind, them, added = "texture reference", "it", "a parameter"
    if len(read) > 1:
        kind, them, added = "texture references", "them", "parameters"
    raise CudabenchError(
        f"{kernel.signature} reads the {kind} {names}, which CUDA 12 took out of the language: add {added} "
        f"'{parameters}', also to a function that reads {them}, read {them} as {', '.join(fetches)}, and give "
        f"{' '.join(given)}."
    )


def example(name: str, text: str, aliases: Mapping[str, str]) -> str:
    """Return a texture for a parameter by how the kernel, whose text is given, reads it: `tex2D<uchar4>(name, x, y)`.

    A name that the kernel hands on is read as the first texture of its file is.
    """
    read = r"\btex(1D|2D|3D)(Layered|fetch)?\w*\s*<\s*([\w:\s]+?)\s*>\s*\(\s*"
    found = re.search(rf"{read}{name}\b", text) or re.search(read, text)
    sides, more, ctype = found.groups() if found else ("2D", "", "float")
    extents = {"1D": ["1048576"], "2D": ["1024", "1024"], "3D": ["64", "64", "64"]}[sides]
    dtype, channels = source.numpy_dtype(ctype, aliases), 1
    vector = None if dtype else source.vector_type(ctype, aliases)
    if vector:
        dtype, channels = vector
    dtype = dtype if dtype in TYPES else "float32"
    options = ""
    if more == "Layered":
        extents, options = ["4", *extents[:2]], ", layers=yes"
    if channels in (2, 4):
        extents, options = [*extents, str(channels)], f"{options}, channels={channels}"
    return f"texture({dtype}[{','.join(extents)}]:random{options})"


def is_texture(text: str) -> bool:
    """Tell whether an argument's value is meant as a texture."""
    return re.match(r"texture\s*\(", text) is not None


def read_texture(name: str, text: str, array_of: Callable[[str], Array], fetches: bool) -> TextureArray:
    """Return the texture of `texture(ARRAY, OPTION=VALUE, ...)`.

    `array_of` reads ARRAY; `fetches`: the kernel's file uses tex1Dfetch, so that a plain 1D texture means linear
    memory. Raises UsageError for an unknown option or value, and for what no GPU takes.
    """
    where = f"--arg {name}={text}"
    match = re.fullmatch(r"texture\s*\((.*)\)", text, re.S)
    if not match:
        raise UsageError(f"{where} is no texture: write --arg '{name}=texture(float32[n,n]:random, filter=linear)'.")
    first, *rest = _split(match[1])
    chosen = {key: values[0] for key, values in OPTIONS.items()}
    given = set()
    for part in rest:
        key, equals, value = (side.strip() for side in part.partition("="))
        if key not in OPTIONS or not equals:
            raise UsageError(
                f"{where}: '{part.strip()}' is no option of a texture; there are {', '.join(OPTIONS)}, as in "
                f"filter=linear.{did_you_mean(key, OPTIONS)}"
            )
        if value not in OPTIONS[key]:
            raise UsageError(f"{where}: {key} is one of {', '.join(OPTIONS[key])}, not '{value}'.")
        chosen[key] = value
        given.add(key)
    array = array_of(first.strip())
    channels, layered = int(chosen["channels"]), chosen["layers"] == "yes"
    normalized, linear_filter = chosen["coordinates"] == "normalized", chosen["filter"] == "linear"
    floats = array.dtype in ("float32", "float16")
    if array.init == "empty":
        raise UsageError(f"{where}: a texture is only read, so 'empty' would leave it poison: use random or arange.")
    if array.dtype not in TYPES:
        raise UsageError(f"{where}: no texture has {array.dtype}; there are {', '.join(TYPES)}.")
    if channels > 1 and array.shape[-1] != channels:
        raise UsageError(f"{where}: channels={channels} wants a shape that ends in {channels}, as [n,n,{channels}].")
    sides = len(array.shape) - (channels > 1) - layered
    if not 1 <= sides <= 3 - layered:
        raise UsageError(
            f"{where}: {shape_text(array.shape)} gives a texture of {sides} dimensions; it has 1 to {3 - layered}: add "
            "channels=4 where the last axis holds channels."
        )
    if linear_filter and not floats and chosen["read"] == "element":
        raise UsageError(f"{where}: {array.dtype} has no linear filter, unless read=normalized makes it floats.")
    if chosen["read"] == "normalized" and (floats or array.dtype in ("int32", "uint32")):
        raise UsageError(f"{where}: only integers of 8 and 16 bits are read as normalized, not {array.dtype}.")
    if chosen["address"] in ("wrap", "mirror") and not normalized:
        raise UsageError(
            f"{where}: address={chosen['address']} needs coordinates=normalized; a GPU takes it for clamp otherwise."
        )
    plain = sides == 1 and not layered and not normalized and not linear_filter
    if chosen["memory"] == "linear" and not plain:
        raise UsageError(f"{where}: memory=linear is for tex1Dfetch: one dimension, no filter, coordinates in texels.")
    linear = chosen["memory"] == "linear" or (fetches and plain and "memory" not in given)
    texture = Texture(
        name, array.dtype, array.shape, channels, layered, chosen["filter"], chosen["address"], normalized,  # type: ignore[arg-type]
        chosen["read"], linear,  # type: ignore[arg-type]
    )  # fmt: skip
    held = {one.name: getattr(array, one.name) for one in fields(Array)}
    return TextureArray(**{**held, "const": True}, texture=texture)


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
