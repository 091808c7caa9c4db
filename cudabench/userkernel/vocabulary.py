"""What an expression may say: syntax, functions, NumPy's names."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench.errors import UsageError
from cudabench.records.launch import cdiv

# Python's keywords that C++ lets a parameter be called, and that no expression needs.
KEYWORDS = frozenset(
    """in is lambda from as def del pass with global nonlocal raise yield import finally except assert async await elif
    None True False""".split()  # noqa: SIM905
)
MOST_DIGITS = 400  # of a rounding: more than any double has
# Names that are always there and that no message needs to list.
UNLISTED = ("inf", "nan", "pi", "true", "false")


class ExpressionError(UsageError):
    """An expression that is not allowed, or that fails: exit code 2."""


def alias(name: str) -> str:
    """Return the name that stands for a parameter inside the tree: 'in_' for 'in'."""
    return name + "_" if name in KEYWORDS else name


def bounded(value: int, refuse: Callable[[str], ExpressionError]) -> int:
    """Return a whole number; raise what `refuse` makes of a sentence where it leaves 64 bits."""
    if not -(1 << 63) <= value < (1 << 64):
        raise refuse("a whole number in it leaves the range of 64 bits")
    return value


# Syntax and functions ------------------------------------------------------------------------------------------------

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}


def _rounded(number: Any, digits: int = 0) -> Any:
    """Round as Python does; a power of ten with a billion digits is not computed."""
    if abs(digits) > MOST_DIGITS:
        raise ValueError(f"round takes at most {MOST_DIGITS} digits")
    return round(number, digits) if digits else round(number)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": cdiv,
    "min": min,
    "max": max,
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": _rounded,
    "sqrt": math.sqrt,
    "log2": math.log2,
}


# NumPy ---------------------------------------------------------------------------------------------------------------

# Whose result is as large as the arguments together, broadcast; and the others.
ELEMENTWISE = """
abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_not bitwise_or bitwise_xor
cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide equal exp exp2 expm1 fabs float_power floor
floor_divide fmax fmin fmod gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp left_shift
less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor maximum minimum
mod multiply negative nextafter not_equal positive power rad2deg radians reciprocal remainder right_shift rint sign
signbit sin sinc sinh spacing sqrt square subtract tan tanh true_divide trunc
where clip angle real imag round around fix i0 nan_to_num isclose
""".split()  # noqa: SIM905
OTHERS = """
all amax amin any argmax argmin argsort average concatenate copy count_nonzero cumprod cumsum diagonal diff expand_dims
flip fliplr flipud hstack interp isin max mean median min moveaxis nanmax nanmean nanmin nansum prod ptp ravel reshape
roll rot90 rollaxis searchsorted sort squeeze stack std sum swapaxes take take_along_axis trace transpose tril triu
unique var vdot vstack array asarray ascontiguousarray zeros_like ones_like full_like trapezoid percentile quantile
partition flatnonzero nonzero gradient column_stack dstack
matmul dot inner outer zeros ones full arange linspace eye identity diag indices tile repeat pad broadcast_to convolve
correlate bincount histogram
""".split()  # noqa: SIM905
NUMPY_CONSTANTS = ("pi", "e", "inf", "nan", "euler_gamma", "newaxis")
TYPES = """
bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
""".split()  # noqa: SIM905
NUMPY_KEYWORDS = frozenset(
    """axis axes keepdims dtype ddof offset axis1 axis2 n k side minlength weights shift num bins range
    constant_values""".split()  # noqa: SIM905
)
NUMPY = frozenset(name for name in (*ELEMENTWISE, *OTHERS) if hasattr(np, name))
