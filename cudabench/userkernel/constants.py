"""`--const NAME=...`: the `__constant__` variables of a source, which host code would set before the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.source.records import Constant, Kernel, SourceFile, numbers_in
from cudabench.source.types import BYTES, numpy_type, vector_type
from cudabench.userkernel import arguments, expressions, inits
from cudabench.userkernel.values import Array, load, numbers_of

FIRST_STREAM = 1 << 20  # of random numbers, beyond those of the arguments


def read(texts: Sequence[str], file: SourceFile, numbers: Mapping[str, Any]) -> tuple[Array, ...]:
    """Return the variables that --const sets, each as an array. Raises UsageError for an unknown name."""
    known = {constant.name: constant for constant in file.constants}
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
        made.append(_one(name, value, known[plain], where, numbers, file))
    return tuple(made)


def _one(
    name: str, text: str, constant: Constant, where: str, numbers: Mapping[str, Any],
    file: SourceFile,
) -> Array:  # fmt: skip
    if text.startswith("@"):
        array = numbers_of(load(text[1:], where))
        return Array(name, array.dtype.name, tuple(array.shape) or (1,), "file", text[1:], True)
    ctype, extents = constant.type, "".join(f"[{extent}]" for extent in constant.extents)
    wanted = numpy_type(ctype, file.types)
    vector = vector_type(ctype, file.types)
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
        size = f"uint8[{constant.layout.size}]" if constant.layout else "uint8[BYTES]"
        like = f"{element}[{','.join(map(str, constant.extents)) or 'N'}]" if element else size
        raise UsageError(
            f"{where}: {name} is '{ctype} {name}{extents}' in {file.path}, not a single number: write "
            f"--const '{name}={like}:random' or --const {name}=@FILE.npy."
        )
    expressions.parse(text, where, numbers).evaluate(numbers)
    rule = inits.read(f"full({text})", wanted, (1,), where, numbers)
    return Array(name, wanted, (1,), "full", None, True, rule)


def like(constant: Constant, file: SourceFile) -> str:
    """Return a value that --const would take for a variable: random contents for an array."""
    dtype, vector = numpy_type(constant.type, file.types), vector_type(constant.type, file.types)
    if dtype and not constant.extents:
        return "2.5" if np.dtype(dtype).kind == "f" else "1"
    layout, many = constant.layout, vector[1] if vector else 0
    kind, size = dtype or (vector[0] if vector else ""), layout.size if layout else "BYTES"
    if layout and not kind:
        kinds, nbytes = numbers_in(layout)
        if len(kinds) == 1 and "pointer" not in kinds and nbytes == layout.size:
            (kind,) = kinds
            many = nbytes // BYTES[kind]
    shape = ",".join(map(str, (*constant.extents, *([many] * bool(many) if kind else [size]))))
    return f"{kind}[{shape}]:random" if kind else f"uint8[{shape}]:zeros"


def contents(constants: Sequence[Array], seed: int) -> dict[str, np.ndarray]:
    """Return the variables' values."""
    return {one.name: one.make(seed, FIRST_STREAM + at) for at, one in enumerate(constants)}


def unset(file: SourceFile, kernel: Kernel, given: Sequence[Array]) -> list[Constant]:
    """Return the variables that start as zeros, that a kernel or a function that it calls reads, and that --const
    leaves alone."""
    names = kernel.names - {one.name.rpartition("::")[2] for one in given}
    return [one for one in file.constants if not one.starts and one.name in names]


def options(file: SourceFile, kernel: Kernel, given: Sequence[Array]) -> list[str]:
    """Return `unset`, each as --const would take it."""
    return [f"{one.name}={like(one, file)}" for one in unset(file, kernel, given)]
