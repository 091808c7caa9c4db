"""Expressions of the command line: `cdiv(n,256)`, `a*x+y0`, `np.sum(x,axis=1)`.

They may come from files of others, so they are never run as Python. The text is parsed, and a walk over the tree
computes what a white list of syntax, functions and NumPy's names allows: no attributes but `np.NAME`, no calls of
anything else, no comprehensions, no strings. Integers stay within 64 bits and arrays within a limit, which is checked
before they are made.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.model import cdiv

MAX_TEXT = 2000
MAX_DEPTH = 60
MAX_ITEMS = 64  # of a literal list
MAX_DIMENSIONS = 32  # NumPy 1's own limit
DEFAULT_LIMIT = 1 << 34  # bytes of one array

# Python's keywords that C++ lets a parameter be called, and that no expression needs.
KEYWORDS = frozenset(
    """in is lambda from as def del pass with global nonlocal raise yield import finally except assert async await elif
    None True False""".split()  # noqa: SIM905
)


# Names that are always there and that no message needs to list.
UNLISTED = ("inf", "nan", "pi", "true", "false")


class ExpressionError(UsageError):
    """An expression that is not allowed, or that fails: exit code 2."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression: what errors call it, and the names that it uses."""

    label: str
    tree: ast.expr
    names: frozenset[str]
    arrays: bool

    def evaluate(self, values: Mapping[str, Any], limit: int = DEFAULT_LIMIT) -> Any:
        """Return the value, with names as `values` has them; `limit` is the most bytes that one array may have.

        Raises ExpressionError with one sentence for whatever goes wrong.
        """
        try:
            with np.errstate(all="ignore"):
                result = _Evaluator(self, values, limit).value(self.tree)
            if not _numeric(result):
                raise self._failed("its value is no number and no array")
            return result
        except ExpressionError:
            raise
        except ZeroDivisionError:
            raise self._failed("it divides by zero") from None
        except MemoryError:
            raise self._failed("it does not fit the memory") from None
        except RecursionError:
            raise self._failed("it is nested too deeply") from None
        except Exception as error:  # whatever NumPy raises on values that do not fit together
            message = " ".join(str(error).split()) or type(error).__name__
            raise self._failed(message.rstrip(".")) from None

    def _failed(self, why: str) -> ExpressionError:
        return ExpressionError(f"{self.label} fails: {why}.")


def parse(
    text: str, option: str, known: Iterable[str], *, arrays: bool = False, label: str | None = None
) -> Expression:
    """Return an expression over the names in `known`; with `arrays`, NumPy is at hand as `np`.

    Errors call it by its option and text, or by `label`. A name that is a Python keyword ('in') is meant by itself and
    by 'in_'. Raises ExpressionError for syntax, functions and names that are not allowed.
    """
    names = tuple(dict.fromkeys(known))
    label = label or f"{option} '{text}'"
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"{option} has {len(text)} characters; an expression may have {MAX_TEXT}.")
    if not text.strip():
        raise ExpressionError(f"{label} is empty: write arithmetic, such as cdiv(n,256).")
    plain = re.sub(
        r"(?<![\w.])[^\W\d]\w*", lambda m: m[0] + "_" if m[0] in KEYWORDS and m[0] in names else m[0], text.strip()
    )
    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError as error:
        where = f" at '{plain[error.offset - 1 :][:20]}'" if error.offset and error.offset <= len(plain) else ""
        raise ExpressionError(f"{label} is no expression{where}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{label} is no expression that can be read.") from None
    checker = _Checker(label, names, arrays)
    checker.check(tree, 0)
    return Expression(label, tree, frozenset(checker.names), arrays)


def alias(name: str) -> str:
    """Return the name that stands for a parameter inside the tree: 'in_' for 'in'."""
    return name + "_" if name in KEYWORDS else name


# What is allowed -----------------------------------------------------------------------------------------------------

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
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
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": cdiv,
    "min": min,
    "max": max,
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "sqrt": math.sqrt,
    "log2": math.log2,
}

# NumPy, by how large a result can be: as the arguments together, broadcast; or as the function below says.
_ELEMENTWISE = """
abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_not bitwise_or bitwise_xor
cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide equal exp exp2 expm1 fabs float_power floor
floor_divide fmax fmin fmod gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp left_shift
less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor maximum minimum
mod multiply negative nextafter not_equal positive power rad2deg radians reciprocal remainder right_shift rint sign
signbit sin sinc sinh spacing sqrt square subtract tan tanh true_divide trunc
where clip angle real imag round around fix i0 nan_to_num isclose
""".split()  # noqa: SIM905
_NO_LARGER = """
all amax amin any argmax argmin argsort average concatenate copy count_nonzero cumprod cumsum diagonal diff expand_dims
flip fliplr flipud hstack interp isin max mean median min moveaxis nanmax nanmean nanmin nansum prod ptp ravel reshape
roll rot90 rollaxis searchsorted sort squeeze stack std sum swapaxes take take_along_axis trace transpose tril triu
unique var vdot vstack array asarray ascontiguousarray zeros_like ones_like full_like trapezoid percentile quantile
partition flatnonzero nonzero gradient column_stack dstack
""".split()  # noqa: SIM905
_CONSTANTS = ("pi", "e", "inf", "nan", "euler_gamma", "newaxis")
_TYPES = """
bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
""".split()  # noqa: SIM905


def _product(shape: Any) -> int:
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return int(math.prod(max(operator.index(size), 0) for size in sizes))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(np.shape(value))


def _elements(value: Any) -> int:
    return sum(_elements(item) for item in value) if isinstance(value, (list, tuple)) else int(np.size(value))


def _matmul(a: Any, b: Any) -> int:
    a, b = _shape(a), _shape(b)
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return _product(tuple(np.broadcast_shapes(a[:-2], b[:-2])) + rows + columns)


def _dot(a: Any, b: Any) -> int:
    a, b = _shape(a), _shape(b)
    return _product(a[:-1] + (b[:-2] + b[-1:] if len(b) > 1 else ())) if a and b else _product(a + b)


def _steps(*arguments: Any, **keywords: Any) -> int:
    start, stop, step = (0, *arguments[:1], 1) if len(arguments) == 1 else (*arguments, 1)[:3]
    steps: int = math.ceil((stop - start) / step)
    return max(steps, 0)


def _repeat(a: Any, repeats: Any, *arguments: Any, **keywords: Any) -> int:
    return int(np.sum(np.maximum(repeats, 0), dtype=object)) * (np.size(a) if np.size(repeats) == 1 else 1)


def _pad(a: Any, pad_width: Any, *arguments: Any, **keywords: Any) -> int:
    pads = np.broadcast_to(np.asarray(pad_width), (np.ndim(a), 2))
    return _product(tuple(int(size) + int(two.sum()) for size, two in zip(_shape(a), pads, strict=True)))


def _tile(a: Any, reps: Any) -> int:
    return int(np.size(a)) * _product(reps)


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> int:
    return max(int(np.max(x, initial=0)) + 1, minlength)


def _bins(a: Any, bins: Any = 10, *arguments: Any, **keywords: Any) -> int:
    return int(bins) if np.ndim(bins) == 0 else int(np.size(bins))


# Elements of the result, from the arguments.
_SIZES: dict[str, Callable[..., int]] = {
    "matmul": _matmul,
    "dot": _dot,
    "inner": lambda a, b: _product(_shape(a)[:-1] + _shape(b)[:-1]),
    "outer": lambda a, b: int(np.size(a)) * int(np.size(b)),
    "zeros": lambda shape, *a, **k: _product(shape),
    "ones": lambda shape, *a, **k: _product(shape),
    "full": lambda shape, *a, **k: _product(shape),
    "arange": _steps,
    "linspace": lambda start, stop, num=50, *a, **k: operator.index(num),
    "eye": lambda n, m=None, *a, **k: operator.index(n) * operator.index(n if m is None else m),
    "identity": lambda n, *a, **k: operator.index(n) ** 2,
    "diag": lambda v, k=0: (int(np.size(v)) + abs(operator.index(k))) ** 2 if np.ndim(v) == 1 else int(np.size(v)),
    "indices": lambda dimensions, *a, **k: _product(dimensions) * len(dimensions),
    "tile": _tile,
    "repeat": _repeat,
    "pad": _pad,
    "broadcast_to": lambda a, shape: _product(shape),
    "convolve": lambda a, v, *rest: int(np.size(a)) + int(np.size(v)),
    "correlate": lambda a, v, *rest: int(np.size(a)) + int(np.size(v)),
    "bincount": _bincount,
    "histogram": _bins,
}
_KEYWORDS = frozenset(
    """axis axes keepdims dtype ddof offset axis1 axis2 n k side minlength weights shift num bins range
    constant_values""".split()  # noqa: SIM905
)

NUMPY = frozenset(name for name in (*_ELEMENTWISE, *_NO_LARGER, *_SIZES) if hasattr(np, name))


class _Checker:
    """Refuses, before anything is computed, what is not on the white list."""

    def __init__(self, label: str, known: Iterable[str], arrays: bool) -> None:
        self.label, self.arrays = label, arrays
        self.known = {alias(name): name for name in known}
        self.names: set[str] = set()

    def refuse(self, what: str) -> ExpressionError:
        return ExpressionError(f"{self.label}: {what}" + "." * (not what.endswith("?")))

    def check(self, node: ast.AST, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.refuse(f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(node, ast.Constant):
            self.constant(node)
        elif isinstance(node, ast.Name):
            self.name(node)
        elif isinstance(node, ast.Attribute):
            self.attribute(node)
        elif isinstance(node, ast.Call):
            self.call(node, depth)
        else:
            self.operation(node, depth)

    def constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, (int, float, complex)) and node.value is not Ellipsis:
            if node.value is None and self.arrays:
                return  # a new axis in an index
            raise self.refuse(f"{node.value!r} is no number")
        if isinstance(node.value, int):
            _bounded(node.value, self.refuse)

    def name(self, node: ast.Name) -> None:
        if node.id in self.known:
            self.names.add(self.known[node.id])
            return
        if node.id in FUNCTIONS:
            raise self.refuse(f"{node.id} is a function: write {node.id}(...)")
        if node.id == "np":
            raise self.refuse("np stands alone: write np.NAME(...)" if self.arrays else _SCALARS)
        listed = ", ".join(name for name in self.known.values() if name not in UNLISTED) or "none"
        raise self.refuse(
            f"there is no '{node.id}' here, there is {listed}.{did_you_mean(node.id, self.known)}".rstrip(".")
        )

    def attribute(self, node: ast.Attribute) -> None:
        name = self.of_numpy(node)
        if name not in _CONSTANTS and name not in _TYPES:
            raise self.refuse(f"np.{name} is a function: write np.{name}(...)")

    def of_numpy(self, node: ast.Attribute) -> str:
        """Return the name behind `np.`, which must be on the list."""
        if not (isinstance(node.value, ast.Name) and node.value.id == "np"):
            repair = _METHODS.get(
                node.attr, f"write np.{node.attr}(...)" if node.attr in NUMPY else "write np.NAME(...)"
            )
            raise self.refuse(f"'.{node.attr}' is not allowed: {repair if self.arrays else _SCALARS}")
        if not self.arrays:
            raise self.refuse(_SCALARS)
        if node.attr not in NUMPY and node.attr not in _CONSTANTS and node.attr not in _TYPES:
            hint = did_you_mean(node.attr, [*sorted(NUMPY), *_TYPES])
            raise self.refuse(f"np.{node.attr} is not among the functions that expressions may use.{hint}".rstrip("."))
        return node.attr

    def call(self, node: ast.Call, depth: int) -> None:
        if isinstance(node.func, ast.Attribute):
            name = self.of_numpy(node.func)
            if name in _CONSTANTS:
                raise self.refuse(f"np.{name} is a number: leave the brackets out")
        elif isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            if node.keywords:
                raise self.refuse(f"{node.func.id}() takes no '{node.keywords[0].arg}='")
        else:
            called = node.func.id if isinstance(node.func, ast.Name) else "this"
            raise self.refuse(
                f"'{called}' is no function here: there are {', '.join(FUNCTIONS)}{' and np.NAME' * self.arrays}"
            )
        for keyword in node.keywords:
            if keyword.arg not in _KEYWORDS:
                raise self.refuse(f"'{keyword.arg or '**'}=' is not allowed: give {', '.join(sorted(_KEYWORDS))}")
            self.check(keyword.value, depth + 1)
        for argument in node.args:
            self.check(argument, depth + 1)

    def operation(self, node: ast.AST, depth: int) -> None:
        parts: list[ast.AST] = []
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            parts = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            parts = [node.operand]
        elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.BoolOp):
            parts = list(node.values)
        elif isinstance(node, ast.IfExp):
            parts = [node.test, node.body, node.orelse]
        elif isinstance(node, (ast.Tuple, ast.List)):
            if len(node.elts) > MAX_ITEMS:
                raise self.refuse(f"a list may have {MAX_ITEMS} items")
            parts = list(node.elts)
        elif isinstance(node, ast.Subscript) and self.arrays:
            parts = [node.value, node.slice]
        elif isinstance(node, ast.Slice) and self.arrays:
            parts = [part for part in (node.lower, node.upper, node.step) if part is not None]
        else:
            raise self.refuse(_NAMES.get(type(node), f"{type(node).__name__.lower()} is not allowed"))
        for part in parts:
            self.check(part, depth + 1)


_SCALARS = "only arithmetic over the scalars is possible here, with " + ", ".join(FUNCTIONS)
_METHODS = {
    "astype": "write np.float32(x) for a type",
    "T": "write np.transpose(x)",
    "shape": "use the scalars that the shape was made of",
    "size": "use the scalars that the shape was made of",
    "dtype": "name the type, as in np.float32",
}
_NAMES: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda is not allowed",
    ast.ListComp: "comprehensions are not allowed: use NumPy's functions on whole arrays",
    ast.SetComp: "comprehensions are not allowed: use NumPy's functions on whole arrays",
    ast.DictComp: "comprehensions are not allowed: use NumPy's functions on whole arrays",
    ast.GeneratorExp: "comprehensions are not allowed: use NumPy's functions on whole arrays",
    ast.NamedExpr: "':=' is not allowed",
    ast.JoinedStr: "text is not allowed",
    ast.Starred: "'*' in front of an argument is not allowed",
    ast.Compare: "'in' and 'is' are not allowed: compare with == and !=",
    ast.Subscript: "'[...]' is not allowed here: " + _SCALARS,
}


def _numeric(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, (int, float, np.number)) for item in value)
    return isinstance(value, (int, float, complex, np.ndarray, np.generic))


def _bounded(value: int, refuse: Callable[[str], ExpressionError]) -> int:
    if not -(1 << 63) <= value < (1 << 64):
        raise refuse("a whole number in it leaves the range of 64 bits")
    return value


def _read_only(value: Any) -> Any:
    """An array that no function can write into, as its out argument."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


class _Evaluator:
    """The walk over a checked tree."""

    def __init__(self, expression: Expression, values: Mapping[str, Any], limit: int) -> None:
        self.expression, self.limit = expression, limit
        self.values = {alias(name): _read_only(value) for name, value in values.items()}

    def refuse(self, what: str) -> ExpressionError:
        return ExpressionError(f"{self.expression.label}: {what}.")

    def value(self, node: ast.AST) -> Any:
        """Return a node's value, checked."""
        result = self.compute(node)
        if isinstance(result, int) and not isinstance(result, bool):
            return _bounded(result, self.refuse)
        if isinstance(result, (np.ndarray, np.generic)) and result.dtype.kind not in "biufc":
            raise self.refuse("a value in it is no array of numbers")
        return result

    def compute(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.values[node.id]
        if isinstance(node, ast.Attribute):
            return np.bool_ if node.attr == "bool_" else getattr(np, node.attr)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BinOp):
            return self.binary(node)
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self.value(node.operand))
        if isinstance(node, ast.Compare):
            return self.comparison(node)
        if isinstance(node, ast.BoolOp):
            return self.both(node)
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.value(node.test) else node.orelse)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(item) for item in node.elts)
        if isinstance(node, ast.List):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.Slice):
            return slice(*(None if p is None else self.value(p) for p in (node.lower, node.upper, node.step)))
        assert isinstance(node, ast.Subscript)
        return self.subscript(node)

    def binary(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if not all(isinstance(side, (int, float, complex, np.ndarray, np.generic)) for side in (left, right)):
            raise self.refuse("arithmetic is between numbers and arrays only, no lists")
        if isinstance(left, int) and isinstance(right, int):
            # Before it is computed: 9**9**9 would fill the memory.
            if isinstance(node.op, ast.Pow) and abs(left) > 1 and right > 64:
                raise self.refuse(f"{left}**{right} leaves the range of 64 bits")
            if isinstance(node.op, ast.LShift) and right > 64:
                raise self.refuse(f"{left}<<{right} leaves the range of 64 bits")
        elif isinstance(node.op, ast.MatMult):
            self.room(_matmul(left, right), (left, right))
        else:
            self.room_broadcast((left, right))
        return _BINARY[type(node.op)](left, right)

    def comparison(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            self.room_broadcast((left, right))
            one = _COMPARE[type(op)](left, right)
            if len(node.ops) == 1:
                return one
            result = result and one
            left = right
        return result

    def both(self, node: ast.BoolOp) -> Any:
        stop = isinstance(node.op, ast.Or)
        value: Any = not stop
        for part in node.values:
            value = self.value(part)
            if bool(value) == stop:
                break
        return value

    def subscript(self, node: ast.Subscript) -> Any:
        array, index = self.value(node.value), self.value(node.slice)
        if not isinstance(array, (np.ndarray, tuple, list)):
            raise self.refuse("'[...]' needs an array")
        picks = index if isinstance(index, tuple) else (index,)
        fancy = [pick for pick in picks if isinstance(pick, (np.ndarray, list))]
        if fancy:
            rest = math.prod(_shape(array)[len(fancy) :]) if isinstance(array, np.ndarray) else 1
            self.room(_product(tuple(np.broadcast_shapes(*map(_shape, fancy)))) * rest, (array,))
        return array[index]

    def call(self, node: ast.Call) -> Any:
        arguments = [self.value(argument) for argument in node.args]
        keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if isinstance(node.func, ast.Name):
            return FUNCTIONS[node.func.id](*arguments)
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        function = getattr(np, name)
        if name in _ELEMENTWISE:
            self.room_broadcast(arguments)
        elif name in _SIZES:
            try:
                count = _SIZES[name](*arguments, **keywords)
            except TypeError:
                raise self.refuse(f"np.{name} does not take these arguments") from None
            self.room(count, arguments)
        elif name == "take":
            self.room(int(np.size(arguments[0])) * max(int(np.size(arguments[1])), 1), ())
        elif name not in _TYPES:
            self.room(sum(map(_elements, arguments)), ())
        return function(*arguments, **keywords)

    # Room -------------------------------------------------------------------------------------------------------------

    def room_broadcast(self, arguments: Iterable[Any]) -> None:
        arguments = list(arguments)
        try:
            shape = np.broadcast_shapes(*map(_shape, arguments))
        except ValueError:
            shapes = " and ".join(f"[{','.join(map(str, _shape(one)))}]" for one in arguments)
            raise self.refuse(f"arrays of the shapes {shapes} do not fit together") from None
        self.room(_product(tuple(shape)), arguments)

    def room(self, count: int, arguments: Iterable[Any]) -> None:
        """Refuse a result of more bytes than allowed; an element is as wide as the widest argument, at least 8."""
        width = max([8, *(a.dtype.itemsize for a in arguments if isinstance(a, np.ndarray))])
        if count * width > self.limit:
            raise self.refuse(
                f"an array in it has {count} elements, {count * width / 1e9:.1f} GB; the limit here is "
                f"{self.limit / 1e9:.1f} GB"
            )
