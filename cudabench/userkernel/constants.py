"""`--const NAME=...`: values of a source's `__constant__` variables, which otherwise host code sets before a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.source.records import Constant, Kernel, SourceFile, uniform
from cudabench.source.types import numpy_type, vector_type
from cudabench.userkernel import arguments, expressions, values
from cudabench.userkernel.values import Array

# streams of random numbers have numbers: constants use the streams from this number on, arguments the streams from 0 on
FIRST_STREAM = 1 << 20


def parse_constants(texts: Sequence[str], file: SourceFile, numbers: Mapping[str, Any]) -> tuple[Array, ...]:
    """Return the values that --const gives to variables, as arrays. Raises UsageError for an unknown name.

    `numbers`: the numbers, by name, that expressions in the texts may use.
    """
    known = {constant.name: constant for constant in file.constants}
    arrays: list[Array] = []
    for text in texts:
        name, value = arguments.split_name_value(text, "--const", "'c=full(2)', c=@c.npy or c=2.5")
        where = f"--const {name}={value}"
        plain = name.rpartition("::")[2]
        refuse(
            (
                plain not in known,
                f"{where}: {file.path} lacks a __constant__ variable '{name}'; it has {', '.join(known) or 'none'}."
                f"{did_you_mean(plain, known)}",
            ),
            (name in [array.name for array in arrays], f"--const {name}=... is given twice: keep one."),
        )
        arrays.append(_constant_array(name, value, known[plain], where, numbers, file))
    return tuple(arrays)


def _constant_array(
    name: str, text: str, constant: Constant, where: str, numbers: Mapping[str, Any],
    file: SourceFile,
) -> Array:  # fmt: skip
    ctype, extents = constant.type, "".join(f"[{extent}]" for extent in constant.extents)
    wanted = numpy_type(ctype, file.types)
    vector = vector_type(ctype, file.types)
    element = wanted or (vector[0] if vector else None)
    # the user gave only the initial content; type and shape are known from the source
    if element and values.is_start(text):
        shape = (*constant.extents, *(vector[1:] if vector else ())) or (1,)
        text = f"{element}[{','.join(map(str, shape))}]:{text}"
    array = arguments.read_array(name, text, where, numbers, const=True)
    if array is not None:
        bits = ctype in ("__nv_bfloat16", "nv_bfloat16")
        refuse(
            (
                array.path is None and element not in (None, array.dtype) and not bits,
                f"{where}: {name} is {ctype}{extents} in {file.path}: give {element}[...], not {array.dtype}.",
            ),
            (
                array.init == "empty",
                f"{where}: 'empty' would leave the constant without a value: use random, zeros, ones or a value.",
            ),
        )
        return array
    if extents or wanted is None:
        size = f"uint8[{constant.layout.size}]" if constant.layout else "uint8[BYTES]"
        like = f"{element}[{','.join(map(str, constant.extents)) or 'N'}]" if element else size
        raise UsageError(
            f"{where}: {name} is '{ctype} {name}{extents}' in {file.path}, not a single number: write "
            f"--const '{name}={like}:random' or --const {name}=@FILE.npy."
        )
    expressions.parse(text, where, numbers).evaluate(numbers)
    return Array(
        name, wanted, (1,), "full", None, True, values.read_start(f"full({text})", wanted, (1,), where, numbers)
    )


def example_of(constant: Constant, file: SourceFile) -> str:
    """Return a valid --const value for a variable: a number, or an array of random numbers."""
    dtype, layout = numpy_type(constant.type, file.types), constant.layout
    if dtype and not constant.extents:
        return "2.5" if np.dtype(dtype).kind == "f" else "1"
    kind, count = dtype, 0
    if not kind:
        kind, count = vector_type(constant.type, file.types) or (layout and uniform(layout)) or ("", 0)
    last = [count] * bool(count) if kind else [layout.size if layout else "BYTES"]
    shape = ",".join(map(str, (*constant.extents, *last)))
    return f"{kind}[{shape}]:random" if kind else f"uint8[{shape}]:zeros"


def contents(constants: Sequence[Array], seed: int) -> dict[str, np.ndarray]:
    """Return the values of the variables, keyed by name; `seed`: the seed for random contents."""
    return {array.name: array.make(seed, FIRST_STREAM + at) for at, array in enumerate(constants)}


def unset_options(file: SourceFile, kernel: Kernel, given: Sequence[Array]) -> list[str]:
    """Return a suggested NAME=VALUE of --const for each `__constant__` variable that the user probably forgot to set.

    Such a variable is used by the kernel or a function that the kernel calls, has no initialiser, and is not set by
    --const.
    """
    names = kernel.names - {array.name.rpartition("::")[2] for array in given}
    return [
        f"{constant.name}={example_of(constant, file)}"
        for constant in file.constants
        if not constant.has_initialiser and constant.name in names
    ]
