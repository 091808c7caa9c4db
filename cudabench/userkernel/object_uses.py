"""How a kernel uses textures and surfaces, by its text: `tex2D<float4>(t, x, y)`, `surf2Dwrite(v, s, x * 4, y)`.

References, which CUDA 12 took out of the language, are refused with what takes their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cudabench.errors import CudabenchError, UsageError
from cudabench.records.launch import Surface, Texture
from cudabench.source.brackets import closing, listed, split
from cudabench.source.choose_kernel import template_arguments
from cudabench.source.records import Kernel, Parameter, SourceFile
from cudabench.source.types import numpy_type, vector_type
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.textures import SURFACE_TYPE, TYPE

STEPS = "the steps"  # in place of the name of one kernel
_USE = re.compile(
    r"\b(?:surf(?P<surface>1D|2D|3D)(?P<layers>Layered)?(?P<way>read|write)"
    r"|tex(?P<texture>1D|2D|3D)(?P<layers_>Layered)?(?P<linear>fetch)?(?:gather|Lod|Grad)?)"
    r"\s*(?:<\s*(?P<type>[\w:\s]+?)\s*>)?\s*\("
)


@dataclass(frozen=True)
class Use:
    """A read or write of a texture or surface as it stands in a text.

    linear: tex1Dfetch. ctype: the C type of an element, "" where nothing says it. x: the first coordinate.
    """

    kind: str
    sides: int
    layered: bool
    linear: bool
    ctype: str
    name: str
    x: str


def uses(text: str, kind: str) -> list[Use]:
    """Return the reads and writes of textures, or of surfaces, in a text."""
    found = []
    for match in _USE.finditer(text):
        surface, ctype = match["surface"] is not None, match["type"] or ""
        sides, layered = int((match["surface"] or match["texture"])[0]), bool(match["layers"] or match["layers_"])
        passed, value = _passed(text, match.end()), ""
        least = 1 + (sides + layered) * surface
        # What is written, or what is read into.
        if passed and (
            match["way"] == "write" or passed[0].startswith("&") or (not ctype and (not surface or len(passed) > least))
        ):
            value, *passed = passed
        if len(passed) < least or kind != ("surface" if surface else "texture"):
            continue
        x = passed[1] if surface else ""
        ctype = ctype or (_ctype(value, x, text) if surface else "")
        found.append(Use(kind, sides, layered, bool(match["linear"]), ctype, passed[0], x))
    return found


def wants_linear(name: str, text: str, file: str) -> bool:
    """Tell whether a kernel, whose text is given, reads a parameter by tex1Dfetch, or a function of the text `file`
    that it hands it on to. Where neither reads it by that name, whether the kernel reads any so."""
    every = uses(text, "texture")
    own = [one for one in every if one.name == name] or uses(_taken_by(name, text, file), "texture")
    return any(one.linear for one in own or every)


def _taken_by(name: str, text: str, file: str) -> str:
    """Return the function of a file that a kernel, whose text is given, hands an object on to; "" for none."""
    body = text.partition("{")[2]
    for called in re.findall(rf"\b(\w+)\s*(?:<[^<>;]*>)?\s*\((?:[^;{{}}()]|\([^()]*\))*?\b{name}\b", body):
        start = re.search(rf"\b{called}\s*\([^;{{}}]*\)\s*\{{", file)
        if start:
            return file[start.start() : closing(file, start.end() - 1)]
    return ""


def check_uses(made: object, parameter: Parameter, kernel: Kernel, file: SourceFile, where: str) -> None:
    """Raise UsageError where a kernel uses a surface or texture as one of other dimensions or texels. That shows in the
    text of a kernel, not in that of several."""
    if kernel.expression == STEPS:
        return
    assert isinstance(made, (Texture, Surface))
    types = {**file.types, **template_arguments(kernel)}
    wrong = _misuse(made, parameter.name, kernel.text, types)
    if wrong:
        raise UsageError(f"{where}: {wrong}.")


def _misuse(made: Texture | Surface, name: str, text: str, types: Mapping[str, str]) -> str | None:
    """Return why a kernel, whose text is given, cannot use a texture or surface as its parameter `name`, with the
    repair; None where nothing shows."""
    surface = isinstance(made, Surface)
    kind, start = ("surface", "zeros") if surface else ("texture", "random")
    has = len(made.shape) - (made.channels > 1) - made.layered, made.layered
    own = [one for one in uses(text, kind) if one.name == name]
    alike = [one for one in own if (one.sides, one.layered) == has]
    if len(alike) < (len(own) if surface else bool(own)):
        one = next(one for one in own if one not in alike)
        wanted = _array(made.dtype, one.sides, one.layered, made.channels, start)
        return (
            f"{shape_text(made.shape)} is a {kind} of {_dimensions(*has)}, and the kernel uses it as a {kind} of "
            f"{_dimensions(one.sides, one.layered)}: write {kind}({wanted})"
        )
    return _other_texels(made, alike, types) if isinstance(made, Surface) else _other_values(made, alike, types)


def _other_texels(surface: Surface, own: list[Use], types: Mapping[str, str]) -> str | None:
    """Return why a kernel that steps by the bytes of other elements than a surface's texels is wrong."""
    have = np.dtype(surface.dtype).itemsize * surface.channels
    wrong = []
    for one in own:
        found = _texel(one.ctype, types) if one.ctype else None
        if found is None:
            continue
        size = np.dtype(found[0]).itemsize * found[1]
        # A GPU takes an element of any size, such as one channel; who steps by it takes it for the texel.
        steps = _steps(one.x, types)
        if size == have or size not in steps or have in steps:
            return None
        wrong.append((one.ctype, size, found))
    if not wrong:
        return None
    ctype, size, (dtype, channels) = wrong[0]
    return (
        f"a texel has {have} byte{'s' * (have > 1)}, and the kernel uses {ctype} of {size} at every {size}th byte: "
        f"write surface({_written(dtype, '...', channels, 'zeros')})"
    )


def _other_values(texture: Texture, own: list[Use], types: Mapping[str, str]) -> str | None:
    """Return why a kernel that reads other channels or another type than a texture gives is wrong."""
    normalized = texture.read == "normalized"
    for one in own:
        if texture.linear and not one.linear:
            return f"memory=linear is for tex1Dfetch, and the kernel reads it by tex{one.sides}D: leave it out"
        ctype = types.get(one.ctype, one.ctype)  # what a parameter of a template stands for
        found = _element(ctype, types)
        if found is None:
            continue
        dtype, channels = found
        if channels in (2, 4) and channels > texture.channels:
            wanted = _array(texture.dtype, one.sides, one.layered, channels, "random")
            return (
                f"a texel has {texture.channels} channel{'s' * (texture.channels > 1)}, and the kernel reads "
                f"{ctype}: write texture({wanted})"
            )
        fraction = np.dtype(dtype).kind == "f"
        if fraction == (texture.dtype.startswith("float") or normalized):
            continue
        if normalized:
            return f"read=normalized gives fractions, and the kernel reads {ctype}: leave it out"
        wanted = _array(dtype, one.sides, one.layered, texture.channels, "random")
        other = "add read=normalized, or " if fraction and np.dtype(texture.dtype).itemsize <= 2 else ""
        return f"{texture.dtype} read as {ctype} is its bits, not its value: {other}write texture({wanted})"
    return None


# References -----------------------------------------------------------------------------------------------------------


def check_no_reference(file: SourceFile, kernel: Kernel) -> None:
    """Raise CudabenchError where a kernel, or a function that it calls, uses a reference of the
    file to a texture or surface."""
    used = sorted(kernel.names & file.references.keys())
    surfaces = [name for name in used if file.references[name].startswith("surface")]
    if surfaces:
        raise _surface_references(surfaces, file, kernel)
    read = [name for name in used if name not in surfaces]
    if not read:
        return
    fetches, given = [], []
    for name in read:
        # The parser leaves out what is so by default: one dimension.
        ctype, kind, *_ = [*split(file.references[name].partition("<")[2].removesuffix(">")), "1"]
        sides = int(kind[0])  # 1, 2, 3, or of layers and cubes 241, 242, 12
        fetch = f"tex{sides}D<{ctype}>({name}, {', '.join('xyz'[:sides])})"
        if sides == 1 and re.search(rf"\btex1Dfetch\s*\(\s*{name}\b", file.text):
            fetch = f"tex1Dfetch<{ctype}>({name}, i)"
        fetches.append(fetch)
        given.append(f"--arg '{name}={_example('texture', ctype, file.types)}'")
    names, parameters = ", ".join(f"'{name}'" for name in read), ", ".join(f"{TYPE} {name}" for name in read)
    kind, them, added = "texture reference", "it", "a parameter"
    if len(read) > 1:
        kind, them, added = "texture references", "them", "parameters"
    raise CudabenchError(
        f"{kernel.signature} reads the {kind} {names}, which CUDA 12 took out of the language: add {added} "
        f"'{parameters}', also to a function that reads {them}, read {them} as {', '.join(fetches)}, and give "
        f"{' '.join(given)}."
    )


def _surface_references(used: list[str], file: SourceFile, kernel: Kernel) -> CudabenchError:
    names, parameters = ", ".join(f"'{name}'" for name in used), ", ".join(f"{SURFACE_TYPE} {name}" for name in used)
    types = {one.name: one.ctype for one in reversed(uses(file.text, "surface")) if one.ctype}
    given = " ".join(f"--arg '{name}={_example('surface', types.get(name, ''), file.types)}'" for name in used)
    one = len(used) == 1
    return CudabenchError(
        f"{kernel.signature} uses the surface {'reference' if one else 'references'} {names}, which CUDA 12 took out "
        f"of the language: add {'a parameter' if one else 'parameters'} '{parameters}', also to a function that uses "
        f"{'it' if one else 'them'}, leave the calls of surf2Dread and the like as they are, and give {given}."
    )


# Types and texts -----------------------------------------------------------------------------------------------------


def _element(ctype: str, types: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the NumPy type of a number or vector, and how many of it there are; None for any other type."""
    dtype = numpy_type(ctype, types)
    return (dtype, 1) if dtype else vector_type(ctype, types)


def _texel(ctype: str, types: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the NumPy type and channels of a C type as texels of a surface have them; None for one that none has."""
    found = _element(ctype, types)
    if found is None:
        return None
    dtype, channels = found
    if dtype in ("int64", "uint64", "float64"):  # which go as pairs of 32 bits
        dtype, channels = "uint32", 2 * channels
    if dtype == "bool" or np.dtype(dtype).kind not in "fiu" or channels not in (1, 2, 4):
        return None
    return dtype, channels


def _example(kind: str, ctype: str, types: Mapping[str, str]) -> str:
    """Return a texture or surface of texels of a C type as --arg writes it, with gaps for what is not known of it."""
    found = _texel(ctype, types)
    return f"{kind}({_written(found[0], '...', found[1], 'random') if found else '...'})"


def _written(dtype: str, extents: str, channels: int, start: str) -> str:
    """Return an array as a texture or surface is given it, with the option for its channels."""
    last, options = (f",{channels}", f", channels={channels}") if channels > 1 else ("", "")
    return f"{dtype}[{extents}{last}]:{start}{options}"


def _array(dtype: str, sides: int, layered: bool, channels: int, start: str) -> str:
    """Return an array of such dimensions as a texture or surface is given it, with its options."""
    axes = ["width", "height", "depth"][:sides] + ["layers"] * layered
    return _written(dtype, ",".join(reversed(axes)), channels, start) + ", layers=yes" * layered


def _dimensions(sides: int, layered: bool) -> str:
    """Return "2 dimensions and layers"."""
    return f"{sides} dimension{'s' * (sides > 1)}{' and layers' * layered}"


def _steps(place: str, types: Mapping[str, str]) -> set[int]:
    """Return the numbers of bytes by which a coordinate is multiplied: 4 in `x * 4` and `x * sizeof(float)`."""
    found = {int(one) for pair in re.findall(r"\*\s*(\d+)\b|\b(\d+)\s*\*", place) for one in pair if one}
    for ctype in re.findall(r"\bsizeof\s*\(\s*([\w:\s]+?)\s*\)", place):
        known = _texel(ctype, types)
        found |= {np.dtype(known[0]).itemsize * known[1]} if known else set()
    return found


def _ctype(value: str, x: str, text: str) -> str:
    """Return the type of a value that is written or read into, "" where the text does not tell."""
    made = re.match(r"make_(\w+)\s*\(", value) or re.match(r"\(\s*([^\W\d][\w\s]*?)\s*\)\s*[\w(]", value)
    name = re.match(r"&?\s*(\w+)\s*$", value)
    if made:
        return made[1]
    declared = _declared(name[1], text) if name else ""
    sized = re.search(r"\bsizeof\s*\(\s*([\w:\s]+?)\s*\)", x)
    return declared or (sized[1] if sized else "")


def _declared(name: str, text: str) -> str:
    """Return the type that a name is declared with, "" where it is not."""
    found = re.search(rf"\b([^\W\d][\w:]*(?:\s+(?:char|short|int|long))*)\s+{name}\s*[=;,\[)]", text)
    found = found or re.search(rf"\b([^\W\d]\w*)\s[^;(){{}}]{{0,200}},\s*{name}\s*[=;,]", text)
    return found[1] if found and found[1] not in ("return", "auto", "const", "else") else ""


def _passed(text: str, start: int) -> list[str]:
    """Return what a call passes whose bracket opens before `start`."""
    return listed(text[start : closing(text, start - 1)])
