"""Texture and surface references, which CUDA 12 took out of the language: refused with what takes their place."""

from __future__ import annotations

import re

from cudabench.errors import CudabenchError
from cudabench.source.records import Kernel, SourceFile
from cudabench.source.words import spell, split, words_of
from cudabench.userkernel.object_uses import example, uses
from cudabench.userkernel.textures import SURFACE_TYPE, TYPE


def check_no_reference(file: SourceFile, kernel: Kernel) -> None:
    """Raise CudabenchError where a kernel, or a function that it calls, uses a reference of the
    file to a texture or surface."""
    used = sorted(kernel.names & file.references.keys())
    surfaces = [name for name in used if file.references[name].startswith("surface")]
    if surfaces:
        raise _surfaces(surfaces, file, kernel)
    read = [name for name in used if name not in surfaces]
    if not read:
        return
    fetches, given = [], []
    for name in read:
        ctype, kind, *_ = map(spell, split(words_of(file.references[name])[2:-1], ","))
        sides = int(kind[0])  # 1, 2, 3, or of layers and cubes 241, 242, 12
        fetch = f"tex{sides}D<{ctype}>({name}, {', '.join('xyz'[:sides])})"
        if sides == 1 and re.search(rf"\btex1Dfetch\s*\(\s*{name}\b", file.text):
            fetch = f"tex1Dfetch<{ctype}>({name}, i)"
        fetches.append(fetch)
        given.append(f"--arg '{name}={example('texture', ctype, file.types)}'")
    names, parameters = ", ".join(f"'{name}'" for name in read), ", ".join(f"{TYPE} {name}" for name in read)
    kind, them, added = "texture reference", "it", "a parameter"
    if len(read) > 1:
        kind, them, added = "texture references", "them", "parameters"
    raise CudabenchError(
        f"{kernel.signature} reads the {kind} {names}, which CUDA 12 took out of the language: add {added} "
        f"'{parameters}', also to a function that reads {them}, read {them} as {', '.join(fetches)}, and give "
        f"{' '.join(given)}."
    )


def _surfaces(used: list[str], file: SourceFile, kernel: Kernel) -> CudabenchError:
    names, parameters = ", ".join(f"'{name}'" for name in used), ", ".join(f"{SURFACE_TYPE} {name}" for name in used)
    types = {one.name: one.ctype for one in reversed(uses(file.text, "surface")) if one.ctype}
    given = " ".join(f"--arg '{name}={example('surface', types.get(name, ''), file.types)}'" for name in used)
    one = len(used) == 1
    return CudabenchError(
        f"{kernel.signature} uses the surface {'reference' if one else 'references'} {names}, which CUDA 12 took out "
        f"of the language: add {'a parameter' if one else 'parameters'} '{parameters}', also to a function that uses "
        f"{'it' if one else 'them'}, leave the calls of surf2Dread and the like as they are, and give {given}."
    )
