"""What an expression may say: syntax, functions, NumPy's names, and how large a result of each can be."""

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

BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
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
UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
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

# NumPy, by how large a result can be: as the arguments together, broadcast; or as the function below says.
ELEMENTWISE = """
abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_not bitwise_or bitwise_xor
cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide equal exp exp2 expm1 fabs float_power floor
floor_divide fmax fmin fmod gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp left_shift
less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor maximum minimum
mod multiply negative nextafter not_equal positive power rad2deg radians reciprocal remainder right_shift rint sign
signbit sin sinc sinh spacing sqrt square subtract tan tanh true_divide trunc
where clip angle real imag round around fix i0 nan_to_num isclose
""".split()  # noqa: SIM905
NO_LARGER = """
all amax amin any argmax argmin argsort average concatenate copy count_nonzero cumprod cumsum diagonal diff expand_dims
flip fliplr flipud hstack interp isin max mean median min moveaxis nanmax nanmean nanmin nansum prod ptp ravel reshape
roll rot90 rollaxis searchsorted sort squeeze stack std sum swapaxes take take_along_axis trace transpose tril triu
unique var vdot vstack array asarray ascontiguousarray zeros_like ones_like full_like trapezoid percentile quantile
partition flatnonzero nonzero gradient column_stack dstack
""".split()  # noqa: SIM905
NUMPY_CONSTANTS = ("pi", "e", "inf", "nan", "euler_gamma", "newaxis")
TYPES = """
bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
""".split()  # noqa: SIM905


def product(shape: Any) -> int:
    """Return the number of elements of a shape, or of one extent; what is negative counts as none."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return int(math.prod(max(operator.index(size), 0) for size in sizes))


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of an array, a number or a list."""
    return tuple(np.shape(value))


def elements(value: Any) -> int:
    """Return the number of elements of a value, in lists of lists too."""
    return sum(elements(item) for item in value) if isinstance(value, (list, tuple)) else int(np.size(value))


def matmul_size(a: Any, b: Any) -> int:
    """Return the number of elements of the matrix product of two arrays."""
    a, b = shape_of(a), shape_of(b)
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return product(tuple(np.broadcast_shapes(a[:-2], b[:-2])) + rows + columns)


def _dot(a: Any, b: Any) -> int:
    a, b = shape_of(a), shape_of(b)
    return product(a[:-1] + (b[:-2] + b[-1:] if len(b) > 1 else ())) if a and b else product(a + b)


def _steps(*arguments: Any, **keywords: Any) -> int:
    start, stop, step = (0, *arguments[:1], 1) if len(arguments) == 1 else (*arguments, 1)[:3]
    steps: int = math.ceil((stop - start) / step)
    return max(steps, 0)


def _repeat(a: Any, repeats: Any, *arguments: Any, **keywords: Any) -> int:
    return int(np.sum(np.maximum(repeats, 0), dtype=object)) * (np.size(a) if np.size(repeats) == 1 else 1)


def _pad(a: Any, pad_width: Any, *arguments: Any, **keywords: Any) -> int:
    pads = np.broadcast_to(np.asarray(pad_width), (np.ndim(a), 2))
    return product(tuple(int(size) + int(two.sum()) for size, two in zip(shape_of(a), pads, strict=True)))


def _tile(a: Any, reps: Any) -> int:
    return int(np.size(a)) * product(reps)


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> int:
    return max(int(np.max(x, initial=0)) + 1, minlength)


def _bins(a: Any, bins: Any = 10, *arguments: Any, **keywords: Any) -> int:
    return int(bins) if np.ndim(bins) == 0 else int(np.size(bins))


# Elements of the result, from the arguments.
SIZES: dict[str, Callable[..., int]] = {
    "matmul": matmul_size,
    "dot": _dot,
    "inner": lambda a, b: product(shape_of(a)[:-1] + shape_of(b)[:-1]),
    "outer": lambda a, b: int(np.size(a)) * int(np.size(b)),
    "zeros": lambda shape, *a, **k: product(shape),
    "ones": lambda shape, *a, **k: product(shape),
    "full": lambda shape, *a, **k: product(shape),
    "arange": _steps,
    "linspace": lambda start, stop, num=50, *a, **k: operator.index(num),
    "eye": lambda n, m=None, *a, **k: operator.index(n) * operator.index(n if m is None else m),
    "identity": lambda n, *a, **k: operator.index(n) ** 2,
    "diag": lambda v, k=0: (int(np.size(v)) + abs(operator.index(k))) ** 2 if np.ndim(v) == 1 else int(np.size(v)),
    "indices": lambda dimensions, *a, **k: product(dimensions) * len(dimensions),
    "tile": _tile,
    "repeat": _repeat,
    "pad": _pad,
    "broadcast_to": lambda a, shape: product(shape),
    "convolve": lambda a, v, *rest: int(np.size(a)) + int(np.size(v)),
    "correlate": lambda a, v, *rest: int(np.size(a)) + int(np.size(v)),
    "bincount": _bincount,
    "histogram": _bins,
}
NUMPY_KEYWORDS = frozenset(
    """axis axes keepdims dtype ddof offset axis1 axis2 n k side minlength weights shift num bins range
    constant_values""".split()  # noqa: SIM905
)
NUMPY = frozenset(name for name in (*ELEMENTWISE, *NO_LARGER, *SIZES) if hasattr(np, name))
