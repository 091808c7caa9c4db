"""`--const NAME=...`: the `__constant__` variables of a source, which host code would set before the launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.toolchain import source
from cudabench.toolchain.source import KernelSource, SourceFile
from cudabench.userkernel import arguments, expressions, inits
from cudabench.userkernel.by_value import layout_of
from cudabench.userkernel.values import Array, load, numbers_of

FIRST_STREAM = 1 << 20  # of random numbers, beyond those of the arguments

_DECLARED = re.compile(
    r"\b__constant__\s+((?:(?:static|const|volatile|extern|unsigned|signed|long|short|struct)\s+)*[\w:]+"
    r"(?:\s+(?:int|long|double|char|const))*)\s*(?:__align__\s*\(\s*\d+\s*\)\s*)?\s(\w+)\s*((?:\[[^\]]*\]\s*)*)(=|\{|;|,)"
)


def declared(file: SourceFile) -> dict[str, tuple[str, str, bool]]:
    """Return the `__constant__` variables of a file by name: type, extents as written, whether they start as
    something."""
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", file.text, flags=re.S)
    words = "static const volatile extern struct"
    found = {}
    for match in _DECLARED.finditer(plain.replace("\t", " ")):
        ctype = " ".join(word for word in match[1].split() if word not in words.split())
        found[match[2]] = (ctype, match[3].strip(), match[4] in "={")
    return found


def read(
    texts: Sequence[str], file: SourceFile, aliases: Mapping[str, str], numbers: Mapping[str, Any]
) -> tuple[Array, ...]:
    """Return the variables that --const sets, each as an array. Raises UsageError for what is none of the file's."""
    known = declared(file)
    made: list[Array] = []
    for text in texts:
        name, value = arguments.named(text, "--const", "'c=float32[16]:random', c=@c.npy or c=2.5")
        where = f"--const {name}={value}"
        plain = name.rpartition("::")[2]
        if plain not in known:
            have = ", ".join(known) or "none"
            raise UsageError(f"{where}: {file.path} has no __constant__ variable '{name}', it has {have}."
                             f"{did_you_mean(plain, known)}")  # fmt: skip
        if name in [one.name for one in made]:
            raise UsageError(f"--const {name}=... is given twice: keep one.")
        made.append(_one(name, value, known[plain][0], known[plain][1], where, aliases, numbers, file))
    return tuple(made)


def _one(
    name: str, text: str, ctype: str, extents: str, where: str, aliases: Mapping[str, str], numbers: Mapping[str, Any],
    file: SourceFile,
) -> Array:  # fmt: skip
    if text.startswith("@"):
        array = numbers_of(load(text[1:], where))
        return Array(name, array.dtype.name, tuple(array.shape) or (1,), "file", text[1:], True)
    wanted = source.numpy_dtype(ctype, aliases)
    vector = source.vector_type(ctype, aliases)
    element = wanted or (vector[0] if vector else None)
    parts = arguments.array_parts(text)
    if parts:
        dtype, shape_text, how = parts
        arguments.check_type(dtype, where)
        if element not in (None, dtype) and ctype not in ("__nv_bfloat16", "nv_bfloat16"):
            raise UsageError(f"{where}: {name} is {ctype}{extents} in {file.path}: give {element}[...], not {dtype}.")
        shape = arguments.extents_of(shape_text, where, numbers)
        rule = inits.read(how, dtype, shape, where, numbers)
        if rule.word == "empty":
            raise UsageError(f"{where}: a constant that starts empty is poison: use random, zeros, ones or a value.")
        return Array(name, dtype, shape, rule.word, None, True, rule)
    if extents or wanted is None:
        layout = layout_of(ctype, file.text, aliases)
        size = f"uint8[{layout.size}]" if layout else "uint8[BYTES]"
        like = f"{element or size}[{re.sub(r'[^0-9,]', '', extents.replace('][', ',')) or 'N'}]" if element else size
        raise UsageError(
            f"{where}: {name} is '{ctype} {name}{''.join(extents.split())}' in {file.path}, no single number: write "
            f"--const '{name}={like}:random' or --const {name}=@FILE.npy."
        )
    value = expressions.parse(text, where, numbers).evaluate(numbers)
    rule = inits.read(f"full({text})", wanted, (1,), where, numbers)
    del value
    return Array(name, wanted, (1,), "full", None, True, rule)


def contents(constants: Sequence[Array], seed: int) -> dict[str, np.ndarray]:
    """Return the variables' values."""
    return {one.name: one.make(seed, FIRST_STREAM + at) for at, one in enumerate(constants)}


def unset(file: SourceFile, kernel: KernelSource, given: Sequence[Array]) -> list[str]:
    """Return the variables that start as zeros, that a kernel or a function beside it reads, and that --const leaves
    alone."""
    names = [name for name, (_, _, starts) in declared(file).items() if not starts]
    body = file.text[kernel.start : kernel.end]
    beside = " ".join(re.findall(r"__device__[^;{}]*\{.*?\n\}", file.text, re.S))
    set_ = {one.name.rpartition("::")[2] for one in given}
    return [name for name in names if name not in set_ and re.search(rf"\b{name}\b", body + beside)]
