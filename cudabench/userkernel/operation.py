"""Makes the operation of a user's kernel: its inputs, expected outputs, CPU baseline and tolerances."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import UsageError
from cudabench.floats import from_bfloat16
from cudabench.operations import blas
from cudabench.records.plan import Baseline, Buffer, Operation, Tolerance
from cudabench.system.limited_process import host_memory
from cudabench.system.outputs import write_with
from cudabench.userkernel.constants import contents
from cudabench.userkernel.problem import Expectation, UserProblem, fields_of, file_content, leaves
from cudabench.userkernel.values import conform

Arrays = dict[str, np.ndarray]
Parts = Callable[[np.ndarray, np.ndarray], Iterable[tuple[str, np.ndarray, np.ndarray, Tolerance]]]

# The default tolerance for each output type, as (relative, absolute). Integers must be equal.
TOLERANCES = {
    "bfloat16": (1e-2, 1e-3),
    "float16": (2e-3, 2e-4),
    "float32": (1e-5, 1e-6),
    "float64": (1e-12, 1e-13),
    "complex64": (1e-5, 1e-6),
    "complex128": (1e-12, 1e-13),
}


def operation_of(problem: UserProblem) -> Operation:
    """Return the operation of a user's own kernel."""
    texts = [
        f"{expectation.function or expectation.name}={expectation.text}"
        for expectation in problem.expectations
        if expectation.path is None
    ]
    named = f"NumPy {', '.join(texts)}"
    # NumPy runs only these functions in several threads
    uses_blas = bool(re.search(r"@|\bnp\.(dot|matmul|inner|vdot)\b", named))
    return Operation(
        name="run",
        summary=problem.request.file,
        source=problem.request.file,
        dimensions=(),
        default_size=(),
        block_dimensions=3,
        dtypes={},
        kernels=(),
        buffers=lambda _: tuple(
            Buffer(
                array.name,
                array.shape,
                array.storage,
                "in" if array.const else "out" if array.init == "empty" else "inout",
            )
            for array in problem.arrays
        ),
        arguments=lambda _: (),
        inputs=lambda sized: {
            array.name: array.make(sized.seed, at) for at, array in enumerate(problem.arrays) if array.init != "empty"
        },
        reference=lambda _, inputs: _reference(problem, inputs),
        baseline=Baseline(
            blas.named(named) if uses_blas else named,
            partial(_run_on_cpu, problem),
            partial(_on_cpu, problem),
            uses_blas,
        ),
        tolerance=lambda _: _tolerance(problem),
        bytes=lambda _: problem.bytes,
        bytes_formula=problem.request.bytes or "",
        flops=(lambda _: problem.flops) if problem.flops else None,
        flops_formula=problem.request.flops or "",
        saves=tuple(name for name, _ in problem.save),
        save=(lambda _, outputs: _save(problem, outputs)) if problem.save else None,
        smaller="smaller arrays",
        larger="larger arrays",
    )


# Expected values -----------------------------------------------------------------------------------------------------


def _reference(problem: UserProblem, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Return the expected outputs, keyed by name; floats are computed in double precision, then rounded once.

    If the user expects functions of an output (np.sum(y)=...), the array for this output has the expected values of
    these functions, one after another.
    """
    expected: Arrays = {}
    functions: dict[str, list[np.ndarray]] = {}
    for expectation in problem.expectations:
        array = problem.array(expectation.name)
        if expectation.path is not None:
            expected[expectation.name] = conform(
                file_content(expectation), array.name, array.shape, array.dtype, expectation.option, constant=False
            )
            continue
        expression = problem.parsed(expectation)
        arrays = {name for array in problem.arrays for name in (array.name, problem.initial_name(array.name))}
        value = expression.evaluate(
            _expression_values(problem, inputs, expression.names, wide=True), limit=host_memory()
        )
        if expectation.function:
            functions.setdefault(expectation.name, []).append(_function_value(problem, expectation, value).reshape(-1))
        else:
            expected[expectation.name] = conform(
                value, array.name, array.shape, array.dtype, expectation.option, constant=not expression.names & arrays
            )
    return expected | {name: np.concatenate(values) for name, values in functions.items()}


def _function_value(problem: UserProblem, expectation: Expectation, value: Any) -> np.ndarray:
    """Return the expected value of a function of an output, in the shape of the function's value.

    Raises UsageError if the expected value has another shape.
    """
    array = problem.array(expectation.name)
    shape = np.shape(_apply_function(problem, expectation, np.zeros(array.shape, array.storage)))
    value = np.asarray(value)
    if value.shape not in ((), shape):
        has = f"{expectation.function} has the shape {list(shape)}, the expected value {list(value.shape)}"
        raise UsageError(f"{expectation.option}: {has}.")
    return np.broadcast_to(value, shape)


def _apply_function(problem: UserProblem, expectation: Expectation, output: np.ndarray) -> np.ndarray:
    """Compute an expectation's function of an output, such as np.sum(y), in double precision."""
    held = from_bfloat16(output) if problem.array(expectation.name).dtype == "bfloat16" else output
    values = {**problem.numbers, expectation.name: widen(held)}
    return np.asarray(problem.function(expectation).evaluate(values, limit=host_memory()))


def _function_parts(problem: UserProblem, expectations: Sequence[Expectation], own: Tolerance) -> Parts:
    """Return a function that yields (name, expected, computed, tolerance) for each expected function of an output."""

    def parts(want: np.ndarray, got: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray, Tolerance]]:
        start = 0
        for expectation in expectations:
            have = _apply_function(problem, expectation, got)
            expected = want[start : start + have.size].reshape(have.shape)
            start += have.size
            exact = not own.rtol and not own.atol and "f" in (have.dtype.kind, expected.dtype.kind)
            plain = Tolerance(*TOLERANCES["float64"], own.reason) if exact else replace(own, bfloat16=False)
            yield expectation.function, expected, have, plain

    return parts


def _record_parts(problem: UserProblem, expectation: Expectation, kind: np.dtype[Any]) -> Parts:
    """Return a function that yields (name, expected, computed, tolerance) for each field of an array of records.

    `kind`: the NumPy type of a record. Each field has the tolerance of its type.
    """

    def parts(want: np.ndarray, got: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray, Tolerance]]:
        both = (np.ascontiguousarray(side).reshape(-1).view(np.uint8).view(kind) for side in (want, got))
        for (path, expected), (_, have) in zip(*(leaves(side, expectation.name) for side in both), strict=True):
            yield path, expected, have, plain_tolerance(problem, expected.dtype.name)

    return parts


def _expression_values(
    problem: UserProblem, inputs: Mapping[str, np.ndarray], names: frozenset[str], wide: bool
) -> dict[str, Any]:
    """Return the values for an expression with these names; `wide`: convert floats to double precision."""
    values = dict(problem.numbers)
    for name, held in contents(problem.constants, problem.request.seed).items() if problem.constants else ():
        values[name] = (widen(held) if wide else held) if held.size > 1 else held.reshape(-1)[0]
    for array in problem.arrays:
        for name in (problem.initial_name(array.name), array.name):
            if name in names and array.name in inputs:
                held = inputs[array.name]
                held = from_bfloat16(held) if array.dtype == "bfloat16" else held
                values[name] = widen(held) if wide else held
    return values


def widen(array: np.ndarray) -> np.ndarray:
    """Return an array of floats in double precision; return other arrays unchanged."""
    wider = {"float16": np.float64, "float32": np.float64, "complex64": np.complex128}.get(array.dtype.name)
    return array.astype(wider) if wider else array


def _tolerance(problem: UserProblem) -> Tolerance:
    """Return the largest tolerance of the expected arrays, which also contains the tolerance of each array by name."""
    tolerances: dict[str, Tolerance] = {}
    for expectation in problem.expectations:
        array, kind = problem.array(expectation.name), fields_of(expectation)
        own, parts = plain_tolerance(problem, array.dtype), None
        if expectation.function:
            parts = _function_parts(
                problem, [other for other in problem.expectations if other.name == expectation.name], own
            )
        elif kind is not None and array.storage == "uint8":
            parts = _record_parts(problem, expectation, kind)
        tolerances[expectation.name] = replace(own, parts=parts)
    widest = max(
        tolerances.values(), key=lambda tolerance: tolerance.rtol, default=Tolerance(0.0, 0.0, "without expectations")
    )
    return Tolerance(widest.rtol, widest.atol, widest.reason, tolerances)


def plain_tolerance(problem: UserProblem, dtype: str) -> Tolerance:
    """Return the tolerance for outputs of a type: --rtol and --atol if given, else the values in TOLERANCES."""
    rtol, atol = TOLERANCES.get(dtype, (0.0, 0.0))
    rtol = rtol if problem.request.rtol is None else problem.request.rtol
    atol = atol if problem.request.atol is None else problem.request.atol
    given = problem.request.rtol is not None or problem.request.atol is not None
    return Tolerance(rtol, atol, "as given" if given else f"the default for {dtype}", bfloat16=dtype == "bfloat16")


# The CPU baseline ----------------------------------------------------------------------------------------------------


@contextmanager
def _on_cpu(problem: UserProblem, inputs: Arrays, outputs: Arrays, threads: int) -> Iterator[Callable[[], Any]]:
    """Yield the function to time: it computes all expectations with NumPy, without conversion of the arrays' types.

    Expressions are parsed and checked, and values converted, before the function is yielded, so this is not timed.
    """
    works = []
    for expression in (problem.parsed(expectation) for expectation in problem.expectations if expectation.path is None):
        values = _expression_values(problem, inputs, expression.names, wide=False)
        expression.evaluate(values, limit=host_memory())  # called here only to refuse arrays that are too large
        arrays = [value for value in values.values() if isinstance(value, np.ndarray)]
        works.append(partial(_own_result, expression.compiled(values), arrays))

    def run_all() -> None:
        for work in works:
            work()

    with blas.limited(threads), np.errstate(all="ignore"):
        yield works[0] if len(works) == 1 else run_all


def _own_result(work: Callable[[], Any], arrays: Sequence[np.ndarray]) -> Any:
    """Return the result of `work`; a view of one of the arrays, as np.transpose() returns, is copied first."""
    result = work()
    shares = isinstance(result, np.ndarray) and any(np.may_share_memory(result, array) for array in arrays)
    return result.copy() if shares else result


def _run_on_cpu(problem: UserProblem, inputs: Arrays, outputs: Arrays, threads: int) -> None:
    with _on_cpu(problem, inputs, outputs, threads) as work:
        work()


def _save(problem: UserProblem, outputs: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of --save as `.npy` files; each file is written atomically."""
    for name, path in problem.save:
        write_with(Path(path), partial(np.save, arr=outputs[name], allow_pickle=False), f"--save {name}={path}")
