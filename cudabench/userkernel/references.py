"""Texture and surface references, which CUDA 12 took out of the language: refused with what takes their place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cudabench.errors import CudabenchError
from cudabench.toolchain import places, reached
from cudabench.toolchain.source import KernelSource, SourceFile
from cudabench.userkernel.object_uses import example, uses
from cudabench.userkernel.textures import SURFACE_TYPE, TYPE

_NAMED_REFERENCE = re.compile(r"\btypedef\s+texture\s*<([^;<>{}]*)>\s*(\w+)\s*;")
_REFERENCE = re.compile(r"\btexture\s*<([^;<>{}]*)>\s*(\w+)\s*(?=[;=\[])")
_SURFACE = re.compile(r"\bsurface\s*<[^;<>{}]*>\s*(\w+)\s*;")


def check_no_reference(file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]) -> None:
    """Raise CudabenchError where a kernel, or a function that it calls, uses a reference of the
    file to a texture or surface."""
    _check_no_surface(file, kernel, aliases)
    references = {match[2]: match[1].split(",") for match in places.matches(_REFERENCE, file.text, "texture")}
    for named in places.matches(_NAMED_REFERENCE, file.text, "typedef"):
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
        given.append(f"--arg '{name}={example('texture', ctype, aliases)}'")
    names, parameters = ", ".join(f"'{name}'" for name in read), ", ".join(f"{TYPE} {name}" for name in read)
    kind, them, added = "texture reference", "it", "a parameter"
    if len(read) > 1:
        kind, them, added = "texture references", "them", "parameters"
    raise CudabenchError(
        f"{kernel.signature} reads the {kind} {names}, which CUDA 12 took out of the language: add {added} "
        f"'{parameters}', also to a function that reads {them}, read {them} as {', '.join(fetches)}, and give "
        f"{' '.join(given)}."
    )


def _check_no_surface(file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]) -> None:
    references = set(_SURFACE.findall(file.text))
    used = sorted(reached.names(file.text, kernel) & references) if references else []
    if not used:
        return
    names, parameters = ", ".join(f"'{name}'" for name in used), ", ".join(f"{SURFACE_TYPE} {name}" for name in used)
    types = {one.name: one.ctype for one in reversed(uses(file.text, "surface")) if one.ctype}
    given = " ".join(f"--arg '{name}={example('surface', types.get(name, ''), aliases)}'" for name in used)
    one = len(used) == 1
    raise CudabenchError(
        f"{kernel.signature} uses the surface {'reference' if one else 'references'} {names}, which CUDA 12 took out "
        f"of the language: add {'a parameter' if one else 'parameters'} '{parameters}', also to a function that uses "
        f"{'it' if one else 'them'}, leave the calls of surf2Dread and the like as they are, and give {given}."
    )
