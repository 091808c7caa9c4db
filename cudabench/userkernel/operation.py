"""The operation of a user's problem: inputs, reference, CPU baseline, tolerance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from cudabench.floats import from_bfloat16
from cudabench.model import Baseline, Buffer, Operation, Tolerance
from cudabench.operations import blas
from cudabench.outputs import write_with
from cudabench.userkernel.expected import conform
from cudabench.userkernel.problem import UserProblem
from cudabench.userkernel.values import host_memory, load

Arrays = dict[str, np.ndarray]

# Relative and absolute tolerances by the type of an output; integers must be exact.
TOLERANCES = {
    "bfloat16": (1e-2, 1e-3),
    "float16": (2e-3, 2e-4),
    "float32": (1e-5, 1e-6),
    "float64": (1e-12, 1e-13),
    "complex64": (1e-5, 1e-6),
    "complex128": (1e-12, 1e-13),
}


def operation_of(problem: UserProblem) -> Operation:
    """Return the operation of a kernel of the user's own."""
    return Operation(
        name="run",
        summary=problem.file,
        source=problem.file,
        dimensions=(),
        default_size=(),
        block_dimensions=3,
        dtypes={},
        kernels=(),
        buffers=lambda _: tuple(
            Buffer(one.name, one.shape, one.storage, "in" if one.const else "out" if one.init == "empty" else "inout")
            for one in problem.arrays
        ),
        arguments=lambda _: (),
        inputs=lambda sized: {
            one.name: one.make(sized.seed, at) for at, one in enumerate(problem.arrays) if one.init != "empty"
        },
        reference=lambda _, inputs: _reference(problem, inputs),
        baseline=Baseline(_baseline_name(problem), lambda inputs, outputs, threads: _on_cpu(problem, inputs, threads)),
        tolerance=lambda _: _tolerance(problem),
        bytes=lambda _: problem.bytes,
        bytes_formula=problem.bytes_formula,
        flops=(lambda _: problem.flops) if problem.flops else None,
        flops_formula=problem.flops_formula,
        saves=tuple(name for name, _ in problem.save),
        save=(lambda _, outputs: _save(problem, outputs)) if problem.save else None,
        smaller="smaller arrays",
        larger="larger arrays",
    )


# What is right -------------------------------------------------------------------------------------------------------


def _reference(problem: UserProblem, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Return what the expected arrays must hold. Floats are computed in double precision, then rounded once."""
    expected = {}
    for one in problem.expectations:
        array = problem.array(one.name)
        if one.path is not None:
            expected[one.name] = conform(load(one.path, one.option), array, one.option, constant=False)
            continue
        expression = problem.parsed(one)
        arrays = {name for each in problem.arrays for name in (each.name, problem.before(each.name))}
        value = expression.evaluate(_values(problem, inputs, expression.names, wide=True), limit=host_memory())
        expected[one.name] = conform(value, array, one.option, constant=not expression.names & arrays)
    return expected


def _values(
    problem: UserProblem, inputs: Mapping[str, np.ndarray], names: frozenset[str], wide: bool
) -> dict[str, Any]:
    """Return what the names of an expression mean; `wide` has floats in double precision."""
    meant = dict(problem.numbers)
    for array in problem.arrays:
        for name in (problem.before(array.name), array.name):
            if name in names and array.name in inputs:
                held = inputs[array.name]
                held = from_bfloat16(held) if array.dtype == "bfloat16" else held
                meant[name] = _widened(held) if wide else held
    return meant


def _widened(array: np.ndarray) -> np.ndarray:
    wider = {"float16": np.float64, "float32": np.float64, "complex64": np.complex128}.get(array.dtype.name)
    return array.astype(wider) if wider else array


def _tolerance(problem: UserProblem) -> Tolerance:
    """Return the tolerance of each expected array: as given, or by its type."""
    each = {}
    for one in problem.expectations:
        dtype = problem.array(one.name).dtype
        rtol, atol = TOLERANCES.get(dtype, (0.0, 0.0))
        rtol = rtol if problem.rtol is None else problem.rtol
        atol = atol if problem.atol is None else problem.atol
        given = problem.rtol is not None or problem.atol is not None
        reason = "as given" if given else f"the default for {dtype}"
        each[one.name] = Tolerance(rtol, atol, reason, bfloat16=dtype == "bfloat16")
    widest = max(each.values(), key=lambda one: one.rtol, default=Tolerance(0.0, 0.0, "nothing is expected"))
    return Tolerance(widest.rtol, widest.atol, widest.reason, each)


# The CPU baseline ----------------------------------------------------------------------------------------------------


def _baseline_name(problem: UserProblem) -> str:
    text = ", ".join(f"{one.name}={one.text}" for one in problem.expectations if one.path is None)
    uses_blas = re.search(r"@|\bnp\.(dot|matmul|inner|vdot)\b", text)
    return blas.named(f"NumPy {text}") if uses_blas else f"NumPy {text}"


def _on_cpu(problem: UserProblem, inputs: Mapping[str, np.ndarray], threads: int) -> None:
    with blas.limited(threads):
        for one in problem.expectations:
            if one.path is None:
                expression = problem.parsed(one)
                expression.evaluate(_values(problem, inputs, expression.names, wide=False), limit=host_memory())


def _save(problem: UserProblem, outputs: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of --save as `.npy` files, each whole or not at all."""
    for name, path in problem.save:
        write_with(Path(path), partial(_put, outputs[name]), f"--save {name}={path}")


def _put(array: np.ndarray, stream: IO[bytes]) -> None:
    np.save(stream, array, allow_pickle=False)
