"""Decides whether an expectation (an expression for an expected output) can judge a kernel for given inputs.

The expectation is evaluated in the precision of the arrays and in a wider precision. If the two values differ by more
than the tolerance, the expectation cannot judge the kernel. A kernel may also add in another order than NumPy, with
other rounding errors. To find how much such errors can change the output, the inputs are changed by about the relative
error of a running sum of n floats, eps * sqrt(n) (Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.floats import from_bfloat16
from cudabench.system.limited_process import host_memory
from cudabench.userkernel.expressions import Expression
from cudabench.userkernel.operation import TOLERANCES, plain_tolerance, widen
from cudabench.userkernel.problem import Expectation, UserProblem
from cudabench.userkernel.values import conform

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23}
EPSILON_64 = 2.0**-52
ROUNDS = 3  # the inputs are changed this many times to measure the effect of rounding
SAFETY = 4  # the allowed error is this many times the measured effect of rounding
# The expectation cannot judge a kernel if rounding changes the expectation by more than a share of its largest value.
# The share is ILL, or ILL_EPSILONS times the epsilon of the type if that is larger, but at most ILL_MOST.
ILL, ILL_EPSILONS, ILL_MOST = 0.01, 64, 0.1

SUMS = frozenset(
    """sum mean dot matmul inner outer vdot cumsum cumprod prod convolve correlate average trapezoid std var trace
    nansum nanmean gradient interp percentile quantile median bincount""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Judgement:
    """Whether expectations can judge a kernel for given inputs. `undecided`: the reason why they cannot, or None.
    `atol`: the absolute tolerance that the comparison needs, None if the usual tolerance is enough."""

    undecided: str | None = None
    atol: float | None = None


class _Undecided(Exception):
    """Raised if an expectation cannot judge a kernel, with the reason."""


def _refuse(when: bool | np.bool_, reason: str) -> None:
    """Raise _Undecided with the reason if the condition holds."""
    if when:
        raise _Undecided(reason)


def judge(problem: UserProblem, seed: int) -> Judgement:
    """Return the judgement of a problem's expectations for the inputs that are made from a seed."""
    inputs = {
        array.name: from_bfloat16(array.make(seed, index)) if array.dtype == "bfloat16" else array.make(seed, index)
        for index, array in enumerate(problem.arrays)
        if array.init != "empty"
    }
    try:
        tolerances = [
            _Judge(problem, expectation).tolerance(inputs)
            for expectation in problem.expectations
            if expectation.path is None
        ]
    except _Undecided as reason:
        return Judgement(str(reason))
    except CudabenchError as error:  # raised if the expectation has no value for these inputs
        return Judgement(str(error).rstrip("."))
    atol = max((tolerance for tolerance in tolerances if tolerance is not None), default=None)
    exact = [
        expectation for expectation in problem.expectations if problem.array(expectation.name).dtype not in TOLERANCES
    ]
    if atol is not None and exact:
        return Judgement("rounding needs a wider tolerance, but other expected arrays are whole numbers")
    return Judgement(atol=atol)


class _Judge:
    """Judges one expectation. `expression`: its parsed expression. `array`: the output that is compared with it."""

    def __init__(self, problem: UserProblem, expectation: Expectation) -> None:
        self.problem, self.expectation = problem, expectation
        self.expression, self.array = problem.parsed(expectation), problem.array(expectation.name)
        # The function returns numbers, not the bit patterns of bfloat16.
        if expectation.function and self.array.dtype == "bfloat16":
            self.array = replace(self.array, dtype="float32")

    def tolerance(self, inputs: Mapping[str, np.ndarray]) -> float | None:
        """Return the absolute tolerance that the comparison needs for these inputs, or None if the usual tolerance is
        enough.

        Raises _Undecided if the expectation cannot judge a kernel.
        """
        problem, expression, array = self.problem, self.expression, self.array
        read = {
            name: inputs[other_array.name]
            for other_array in problem.arrays
            for name in (problem.initial_name(other_array.name), other_array.name)
            if name in expression.names and other_array.name in inputs
        }
        integral = any(value.dtype.kind in "iub" for value in read.values())
        wide = {name: widen(value) for name, value in read.items()}
        exact = self.value(wide, strict=integral)
        _refuse(exact.dtype.kind in "fc" and np.isnan(exact).any(), "the expectation contains NaN")
        if any(value.dtype.kind in "iub" and value.dtype.itemsize < 8 for value in read.values()):
            self.check_when_wider(read, exact)
        unsigned = {
            name: value + 0 if value.dtype.kind in "fc" else value for name, value in wide.items()
        }  # -0.0 + 0 is 0.0, so the sign of zero is removed
        zeros = any((value == 0).any() for value in unsigned.values())
        signed = zeros and not np.array_equal(self.value(unsigned, strict=integral), exact)
        _refuse(signed, "the expectation depends on the sign of a zero")
        narrow = self.value(
            {
                name: value.astype(np.float32) if value.dtype.name == "float16" else value
                for name, value in read.items()
            },
            strict=integral,
        )
        if array.dtype not in TOLERANCES:
            differs = not np.array_equal(narrow, exact)
            _refuse(differs, "the expectation in float32 gives other whole numbers than in float64")
            return None
        exact, narrow = self.numbers(exact), self.numbers(narrow)
        finite = np.isfinite(exact)
        _refuse(not np.array_equal(finite, np.isfinite(narrow)), "the expectation leaves the range of float32")
        size, difference = np.abs(exact[finite]), np.abs(narrow[finite] - exact[finite])
        usual = plain_tolerance(problem, array.dtype)
        allowed = usual.atol + usual.rtol * size
        spread = self.rounding_effect(wide, exact)[finite]
        if (difference > allowed + SAFETY * spread).any():
            raise _Undecided(f"the expectation differs by {float(difference.max()):.3g} between float32 and float64")
        margin = SAFETY * (spread + difference)
        if not (margin > allowed / 2).any():
            return None
        noise = float(margin.max())
        ill = min(max(ILL, ILL_EPSILONS * EPSILON.get(array.dtype, EPSILON_64)), ILL_MOST)
        limit = ill * float(size.max()) + usual.atol
        _refuse(noise > limit, f"rounding alone may change the expectation by {noise:.3g}")
        return float(f"{(usual.atol + noise):.2g}") * 1.1

    def value(self, read: Mapping[str, np.ndarray], *, strict: bool) -> np.ndarray:
        """Return the expectation's value in the type of the output. `read`: by name, the arrays that the expectation
        reads. `strict`: whether it reads whole numbers; their division by zero gives 0 in NumPy and is undefined in C.
        Raises _Undecided if the value may differ between C and NumPy.
        """
        problem, expression, array, expectation = self.problem, self.expression, self.array, self.expectation
        faults: set[str] = set()
        values = {**problem.numbers, **read}
        value = expression.evaluate(values, limit=host_memory())
        if strict or any(array.dtype.kind in "fc" for array in read.values()):
            with np.errstate(all="call", call=lambda kind, flag: faults.add(kind)):
                expression.compiled(values)()
        invalid = "the expectation has an invalid operation, such as the root of a negative number"
        _refuse("invalid value" in faults, invalid)
        _refuse(strict and "divide by zero" in faults, "the expectation divides by zero")
        if expectation.function:
            return np.asarray(value)
        arrays = {
            name
            for other_array in problem.arrays
            for name in (other_array.name, problem.initial_name(other_array.name))
        }
        return conform(
            value, array.name, array.shape, array.dtype, expectation.option, constant=not expression.names & arrays
        )

    def check_when_wider(self, read: Mapping[str, np.ndarray], exact: np.ndarray) -> None:
        """Raise _Undecided if integers of less than 64 bits overflow in the expectation: NumPy computes in the type of
        the arrays, but C converts short types to int before it computes."""
        longer = {
            name: value.astype(np.int64) if value.dtype.kind in "iu" and value.dtype.itemsize < 8 else widen(value)
            for name, value in read.items()
        }
        value = np.asarray(self.expression.evaluate({**self.problem.numbers, **longer}, limit=host_memory()))
        with np.errstate(all="ignore"):
            if self.array.dtype in TOLERANCES:
                rtol, atol = TOLERANCES[self.array.dtype]
                values = self.numbers(exact)
                equal = bool(np.allclose(values, value, rtol=rtol, atol=atol, equal_nan=True))
            else:
                equal = np.array_equal(np.broadcast_to(value, exact.shape).astype(exact.dtype), exact)
        _refuse(not equal, "an integer overflows in the expectation")

    def numbers(self, value: np.ndarray) -> np.ndarray:
        """Return values of the output's type as float64 or complex128."""
        value = from_bfloat16(value) if self.array.dtype == "bfloat16" else value
        return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)

    def rounding_effect(self, wide: Mapping[str, np.ndarray], exact: np.ndarray) -> np.ndarray:
        """Return, for each element of the output, how much the expectation changes if the inputs change as much as by
        rounding. `wide`: the inputs in wide types. `exact`: the expectation's value for these inputs."""
        problem, spread = self.problem, np.zeros(exact.shape)
        terms = _terms(self.expression, wide, exact)
        array_epsilon = EPSILON.get(self.array.dtype, EPSILON_64)
        dtypes = {
            name: other_array.dtype
            for other_array in problem.arrays
            for name in (problem.initial_name(other_array.name), other_array.name)
        }
        rng = np.random.default_rng(0)
        for _ in range(ROUNDS):
            changed = dict(wide)
            for name, value in wide.items():
                if value.dtype.kind in "fc":
                    share = max(EPSILON.get(dtypes[name], EPSILON_64), array_epsilon) * max(2.0, math.sqrt(terms))
                    with np.errstate(all="ignore"):
                        perturbed = value * (1 + share * rng.choice((-1.0, 1.0), value.shape))
                        changed[name] = np.where(np.isfinite(value), perturbed, value)
            value = np.asarray(self.expression.evaluate({**problem.numbers, **changed}, limit=host_memory()))
            with np.errstate(all="ignore"):
                change = np.abs(np.broadcast_to(value, exact.shape) - exact)
            spread = np.maximum(spread, np.where(np.isfinite(change), change, 0.0))
        return spread


def _terms(expression: Expression, read: Mapping[str, np.ndarray], exact: np.ndarray) -> int:
    """Return about how many terms are added for one element of the result; 1 if the expression has no sum."""
    sums = any(
        (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Attribute) and node.attr in SUMS)
        for node in ast.walk(expression.tree)
    )
    if not sums:
        return 1
    extents = [extent for value in read.values() for extent in value.shape]
    shares = [value.size // max(exact.size, 1) for value in read.values()]
    return int(max([1, *extents, *shares]))


# Variable inputs -----------------------------------------------------------------------------------------------------


# The second and later arguments of these functions are indices or counts.
INDEXED_BY = ("take", "take_along_axis", "roll", "repeat", "left_shift", "right_shift")


def indices(expression: Expression) -> set[str]:
    """Return the names that an expression uses as indices; other values of these names might be invalid indices."""
    names: set[str] = set()
    for node in ast.walk(expression.tree):
        index_nodes: list[ast.expr]
        match node:
            case ast.Subscript(slice=index) | ast.BinOp(op=ast.LShift() | ast.RShift(), right=index):
                index_nodes = [index]
            case ast.Call(func=ast.Attribute(attr=name), args=[_, *index_nodes]) if name in INDEXED_BY:
                pass
            case _:
                continue
        names |= {name.id for index in index_nodes for name in ast.walk(index) if isinstance(name, ast.Name)}
    return names | {name.removesuffix("_") for name in names}
