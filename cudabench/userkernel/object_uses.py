"""Finds in a kernel's text the calls that use textures and surfaces, and checks that the given objects fit these calls.

Examples of uses are `tex2D<float4>(t, x, y)` and `surf2Dwrite(v, s, x * 4, y)`. Texture and surface references, which
CUDA 12 removed, raise an error that says how to replace them.
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
from cudabench.userkernel.textures import SURFACE_TYPE, TYPE
from cudabench.userkernel.values import shape_text

STEPS = "the steps"  # the `expression` of the signature that combines the kernels of several --step options
_USE = re.compile(
    r"\b(?P<kind>surf(?=\w*(?:read|write))|tex)(?P<sides>[123])D(?P<layers>Layered)?"
    r"(?P<way>read|write|fetch)?(?:gather|Lod|Grad)?\s*(?:<\s*(?P<type>[\w:\s]+?)\s*>)?\s*\("
)
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*([\w:\s]+?)\s*\)")


@dataclass(frozen=True)
class Use:
    """A call in a kernel's text that reads or writes a texture or surface.

    sides: the number of dimensions. linear: whether the call is tex1Dfetch. ctype: the C type of an element, or "" if
    unknown. name: the texture or surface as written in the call. x: the first coordinate as written, for surfaces.
    """

    sides: int
    layered: bool
    linear: bool
    ctype: str
    name: str
    x: str


def uses(text: str, kind: str) -> list[Use]:
    """Return the calls in a text that use textures (kind "texture") or surfaces (kind "surface")."""
    found_uses = []
    surface = kind == "surface"
    for match in _USE.finditer(text):
        sides, layered, ctype = int(match["sides"]), bool(match["layers"]), match["type"] or ""
        passed, value = listed(text[match.end() : closing(text, match.end() - 1)]), ""
        least = 1 + (sides + layered) * surface
        # Some calls have an additional first argument: the value to write, or the variable that receives the value.
        # This argument is removed here.
        if passed and (
            match["way"] == "write" or passed[0].startswith("&") or (not ctype and (not surface or len(passed) > least))
        ):
            value, *passed = passed
        if len(passed) >= least and kind.startswith(match["kind"]):
            x = passed[1] if surface else ""
            ctype = ctype or (_ctype(value, x, text) if surface else "")
            found_uses.append(Use(sides, layered, match["way"] == "fetch", ctype, passed[0], x))
    return found_uses


def reads_linear_memory(name: str, text: str, file: str) -> bool:
    """Return whether a kernel with this text reads the parameter `name` by tex1Dfetch.

    The reading call may also be in a function of `file` to which the kernel passes the parameter. If no call with the
    name is found, return whether the kernel has any call of tex1Dfetch.
    """
    all_uses = uses(text, "texture")
    own = [use for use in all_uses if use.name == name] or uses(_callee_text(name, text, file), "texture")
    return any(use.linear for use in own or all_uses)


def _callee_text(name: str, text: str, file: str) -> str:
    """Return the text of the first function in `file` to which a kernel with this text passes `name`, or ""."""
    body = text.partition("{")[2]
    called = re.findall(rf"\b(\w+)\s*(?:<[^<>;]*>)?\s*\((?:[^;{{}}()]|\([^()]*\))*?\b{name}\b", body)
    starts = (re.search(rf"\b{function}\s*\([^;{{}}]*\)\s*\{{", file) for function in called)
    return next((file[start.start() : closing(file, start.end() - 1)] for start in starts if start), "")


def check_uses(view: object, parameter: Parameter, kernel: Kernel, file: SourceFile, where: str) -> None:
    """Raise UsageError if a kernel uses a texture or surface with other dimensions or texels than the given object has.

    `view`: the Texture or Surface for this parameter. Nothing is checked for the combined record of --step.
    """
    if kernel.expression == STEPS:
        return
    assert isinstance(view, (Texture, Surface))
    types = {**file.types, **template_arguments(kernel)}
    kind, start = ("surface", "zeros") if isinstance(view, Surface) else ("texture", "random")
    has = len(view.shape) - (view.channels > 1) - view.layered, view.layered
    own = [use for use in uses(kernel.text, kind) if use.name == parameter.name]
    alike = [use for use in own if (use.sides, use.layered) == has]
    wrong = _texel_mismatch(view, alike, types) if isinstance(view, Surface) else _value_mismatch(view, alike, types)
    if len(alike) < (len(own) if kind == "surface" else bool(own)):
        other = next(other for other in own if other not in alike)
        wrong = (
            f"{shape_text(view.shape)} is a {kind} of {_dimensions(*has)}, but the kernel uses it as a {kind} of "
            f"{_dimensions(other.sides, other.layered)}: write "
            f"{kind}({_array(view.dtype, other.sides, other.layered, view.channels, start)})"
        )
    if wrong:
        raise UsageError(f"{where}: {wrong}.")


def _texel_mismatch(surface: Surface, own: list[Use], types: Mapping[str, str]) -> str | None:
    """Return the error message if a kernel accesses a surface with another texel size than the surface's, or None."""
    have = np.dtype(surface.dtype).itemsize * surface.channels
    wrong = []
    for use in own:
        if not use.ctype or (texel := _texel(use.ctype, types)) is None:
            continue
        size, steps = np.dtype(texel[0]).itemsize * texel[1], _steps(use.x, types)
        # A GPU accepts any element size, also a single channel of a texel, so the type alone does not show a mistake.
        # But the factor of the coordinate in the kernel (`x * 4`) is the texel size that the kernel expects.
        if size == have or size not in steps or have in steps:
            return None
        wrong.append(
            f"a texel has {have} byte{'s' * (have > 1)}, but the kernel uses {use.ctype} of {size} at every {size}th "
            f"byte: write surface({_array_text(texel[0], '...', texel[1], 'zeros')})"
        )
    return wrong[0] if wrong else None


def _value_mismatch(texture: Texture, own: list[Use], types: Mapping[str, str]) -> str | None:
    """Return the error message if a kernel reads more channels or another type than the texture has, or None."""
    normalized = texture.read == "normalized"
    for use in own:
        if texture.linear and not use.linear:
            return f"memory=linear is for tex1Dfetch, but the kernel reads it by tex{use.sides}D: leave it out"
        ctype = types.get(use.ctype, use.ctype)  # a template parameter is replaced by its argument
        if (element := _element(ctype, types)) is None:
            continue
        dtype, channels = element
        if channels in (2, 4) and channels > texture.channels:
            wanted = _array(texture.dtype, use.sides, use.layered, channels, "random")
            return (
                f"a texel has {texture.channels} channel{'s' * (texture.channels > 1)}, but the kernel reads "
                f"{ctype}: write texture({wanted})"
            )
        fraction = np.dtype(dtype).kind == "f"
        if fraction == (texture.dtype.startswith("float") or normalized):
            continue
        if normalized:
            return f"read=normalized gives fractions, but the kernel reads {ctype}: leave it out"
        wanted = _array(dtype, use.sides, use.layered, texture.channels, "random")
        other = "add read=normalized, or " if fraction and np.dtype(texture.dtype).itemsize <= 2 else ""
        return f"{texture.dtype} read as {ctype} is its bits, not its value: {other}write texture({wanted})"
    return None


# References -----------------------------------------------------------------------------------------------------------


def check_no_reference(file: SourceFile, kernel: Kernel) -> None:
    """Raise CudabenchError if a kernel, or a function that it calls, uses a texture or surface reference."""
    used = sorted(kernel.names & file.references.keys())
    if not used:
        return
    kind, ctype, verb, fetches = "texture", TYPE, "reads", []
    texels = {use.name: use.ctype for use in reversed(uses(file.text, "surface")) if use.ctype}
    repair = "keep the calls of surf2Dread and similar functions"
    if surfaces := [name for name in used if file.references[name].startswith("surface")]:
        kind, ctype, verb, used = "surface", SURFACE_TYPE, "uses", surfaces
    several, pronoun = len(used) > 1, "them" if len(used) > 1 else "it"
    for name in used if not surfaces else ():
        # The parser does not report default arguments, so the default dimension 1 is appended here.
        texels[name], dimensions, *_ = [*split(file.references[name].partition("<")[2].removesuffix(">")), "1"]
        # the first digit is the dimension: 1, 2, 3, also in 241 and 242 (with layers) and in 12 (cubes)
        sides = int(dimensions[0])
        linear = sides == 1 and re.search(rf"\btex1Dfetch\s*\(\s*{name}\b", file.text)
        call, places = ("tex1Dfetch", "i") if linear else (f"tex{sides}D", ", ".join("xyz"[:sides]))
        fetches.append(f"{call}<{texels[name]}>({name}, {places})")
        repair = f"read {pronoun} as {', '.join(fetches)}"
    given = []
    for name in used:
        texel = _texel(texels.get(name, ""), file.types)
        given.append(f"--arg '{name}={kind}({_array_text(texel[0], '...', texel[1], 'random') if texel else '...'})'")
    names, parameters = ", ".join(f"'{name}'" for name in used), ", ".join(f"{ctype} {name}" for name in used)
    raise CudabenchError(
        f"{kernel.signature} {verb} the {kind} reference{'s' * several} {names}, which CUDA 12 removed from the "
        f"language: add {'parameters' if several else 'a parameter'} '{parameters}', also to a function that {verb} "
        f"{pronoun}, {repair}, and give {' '.join(given)}."
    )


# Types and texts -----------------------------------------------------------------------------------------------------


def _element(ctype: str, types: Mapping[str, str]) -> tuple[str, int] | None:
    """Return (NumPy type, count) of a C type that is a number or a vector; None for other types."""
    dtype = numpy_type(ctype, types)
    return (dtype, 1) if dtype else vector_type(ctype, types)


def _texel(ctype: str, types: Mapping[str, str]) -> tuple[str, int] | None:
    """Return (NumPy type, number of channels) of a C type as a texel; None if it cannot be a texel."""
    element = _element(ctype, types)
    if element is None:
        return None
    dtype, channels = element
    # CUDA has no 64-bit texels, so each value is stored as two 32-bit numbers
    if dtype in ("int64", "uint64", "float64"):
        dtype, channels = "uint32", 2 * channels
    if dtype == "bool" or np.dtype(dtype).kind not in "fiu" or channels not in (1, 2, 4):
        return None
    return dtype, channels


def _array_text(dtype: str, extents: str, channels: int, start: str) -> str:
    """Return the array and the channels option inside texture(...), such as 'float32[n,4]:random, channels=4'."""
    last, options = (f",{channels}", f", channels={channels}") if channels > 1 else ("", "")
    return f"{dtype}[{extents}{last}]:{start}{options}"


def _array(dtype: str, sides: int, layered: bool, channels: int, start: str) -> str:
    """Return `_array_text` for an object with `sides` dimensions, such as 'float32[height,width]:random'."""
    axes = ["width", "height", "depth"][:sides] + ["layers"] * layered
    return _array_text(dtype, ",".join(reversed(axes)), channels, start) + ", layers=yes" * layered


def _dimensions(sides: int, layered: bool) -> str:
    """Return a text such as "2 dimensions and layers"."""
    return f"{sides} dimension{'s' * (sides > 1)}{' and layers' * layered}"


def _steps(place: str, types: Mapping[str, str]) -> set[int]:
    """Return the factors in a coordinate's text, in bytes: {4} for `x * 4` and for `x * sizeof(float)`."""
    numbers = {int(number) for pair in re.findall(r"\*\s*(\d+)\b|\b(\d+)\s*\*", place) for number in pair if number}
    texels = (_texel(ctype, types) for ctype in _SIZEOF.findall(place))
    return numbers | {np.dtype(texel[0]).itemsize * texel[1] for texel in texels if texel}


def _ctype(value: str, x: str, text: str) -> str:
    """Return the C type of the value or variable in a surface call, or "" if unknown; `x`: the first coordinate."""
    if cast := re.match(r"make_(\w+)\s*\(", value) or re.match(r"\(\s*([^\W\d][\w\s]*?)\s*\)\s*[\w(]", value):
        return cast[1]
    name = re.match(r"&?\s*(\w+)\s*$", value)
    sized = _SIZEOF.findall(x)
    return (name and _declared_type(name[1], text)) or (sized[0] if sized else "")


def _declared_type(name: str, text: str) -> str:
    """Return the C type with which a text declares a variable, or ""."""
    declaration = re.search(rf"\b([^\W\d][\w:]*(?:\s+(?:char|short|int|long))*)\s+{name}\s*[=;,\[)]", text)
    declaration = declaration or re.search(rf"\b([^\W\d]\w*)\s[^;(){{}}]{{0,200}},\s*{name}\s*[=;,]", text)
    return declaration[1] if declaration and declaration[1] not in ("return", "auto", "const", "else") else ""
