"""Expressions in options: `cdiv(n,256)`, `a*x+y0`, `np.sum(x,axis=1)`.

An expression may come from another person's file, so it is parsed and checked before it is computed. Only syntax,
functions and NumPy names on a list are allowed. `np.NAME` is the only allowed attribute; other calls, comprehensions
and strings are refused. Integers are limited to 64 bits.

NumPy cannot be interrupted, and a short text can run for years: np.convolve of millions of elements, np.diff of order a
billion. If the shapes of the arrays show that an expression is cheap, it is computed in this process. Otherwise it is
computed in a separate process with limits of time and memory.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.records.launch import cdiv
from cudabench.system import limited_process

# Python keywords that can be names of C++ parameters. Expressions need none of them, so such a name gets a '_'.
KEYWORDS = frozenset(
    """in is lambda from as def del pass with global nonlocal raise yield import finally except assert async await elif
    None True False""".split()  # noqa: SIM905
)
MOST_DIGITS = 400  # the maximum number of digits for round(); no double has more digits
OUT_OF_RANGE = "a whole number in it does not fit in 64 bits"
# Names that are always defined, so messages do not list them among the known names.
UNLISTED = ("inf", "nan", "pi", "true", "false")


class ExpressionError(UsageError):
    """Raised for an expression that is not allowed, or that fails when it is computed; exit code 2."""


def alias(name: str) -> str:
    """Return the name that stands for a parameter in the parsed expression: 'in_' for the Python keyword 'in'."""
    return name + "_" if name in KEYWORDS else name


def fits(value: int) -> bool:
    """Return whether a whole number fits in 64 bits, signed or unsigned."""
    return -(1 << 63) <= value < (1 << 64)


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
    """Round as Python does; refuse a huge number of digits, which would take very long."""
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

# NumPy functions whose result has the broadcast shape of their arguments. OTHERS has all other functions that are
# allowed.
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


# The value -----------------------------------------------------------------------------------------------------------

_SIGNS = {ast.Pow: "**", ast.LShift: "<<"}  # operators that can make a huge number from small numbers


def bind(label: str, text: str, values: Mapping[str, Any], limit: int | None) -> Callable[[], Any]:
    """Return a function that computes the value of a checked expression; `values`: the values of its names.

    If `limit` (in bytes) is given, the function raises ExpressionError for an array above the limit and for a whole
    number beyond 64 bits, and arrays in `values` are read-only. `label`: the beginning of these error messages. The
    caller must handle NumPy's warnings.
    """
    guarded = limit is not None
    names = {alias(name): _read_only(value) if guarded else value for name, value in values.items()}
    names |= _FUNCTIONS | ({} if limit is None else _guards(label, limit))
    work: Callable[[], Any] = eval(_code(text, guarded), {"__builtins__": {}, **names})
    return work


@lru_cache(maxsize=256)  # the cache helps because a sweep computes the same texts at each of its points
def _code(text: str, guarded: bool) -> CodeType:
    """Compile a checked expression to the code of a lambda; `guarded`: whether with guards (see `_Guarded`)."""
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    tree = ast.Expression(ast.Lambda(empty, ast.parse(text, mode="eval").body))
    # called functions are renamed to 'min()' and 'np()', because a parameter may have the name min or np
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.func.id += "()"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            node.value.id += "()"
    with warnings.catch_warnings():
        # Python warns about texts such as 1[0]; they fail later, when they are computed
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(ast.fix_missing_locations(_Guarded().visit(tree) if guarded else tree), "expression", "eval")


_FUNCTIONS = {f"{name}()": function for name, function in {**FUNCTIONS, "np": np}.items()}


class _Guarded(ast.NodeTransformer):
    """Inserts checks into a syntax tree.

    Each binary operator becomes a call of a guard that checks its operands and its result. The results of calls, unary
    operators and subscripts are passed to `checked()`.
    """

    def visit(self, node: Any) -> Any:
        node = self.generic_visit(node)
        if isinstance(node, ast.BinOp):
            return _call(f"{type(node.op).__name__}()", node.left, node.right)
        return _call("checked()", node) if isinstance(node, (ast.Call, ast.UnaryOp, ast.Subscript)) else node


def _call(name: str, *arguments: Any) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _guards(label: str, limit: int) -> dict[str, Callable[..., Any]]:
    """Return the functions that `_Guarded` inserts, keyed by their names in the tree; `limit`: bytes of an array."""

    def allow(fault: str) -> None:
        if fault:
            raise ExpressionError(f"{label}: {fault}.")

    def checked(value: Any) -> Any:
        allow(_fault_of_value(value, limit))
        return value

    def guard(kind: type[ast.operator]) -> Callable[[Any, Any], Any]:
        def operate(left: Any, right: Any) -> Any:
            allow(_fault_of_operands(kind, left, right))
            return checked(BINARY[kind](left, right))

        return operate

    return {"checked()": checked, **{f"{kind.__name__}()": guard(kind) for kind in BINARY}}


def _fault_of_value(value: Any, limit: int) -> str:
    """Return the reason why a value is refused, or ''; limit: the maximum size of an array in bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "" if fits(value) else OUT_OF_RANGE
    if not isinstance(value, (np.ndarray, np.generic)):
        return ""
    if value.dtype.kind not in "biufc":
        return "a value in it is not an array of numbers"
    if value.nbytes > limit:
        size = f"{value.size} elements, {value.nbytes / 1e9:.1f} GB"
        return f"an array in it has {size}; the limit here is {limit / 1e9:.1f} GB"
    return ""


def _fault_of_operands(kind: type[ast.operator], left: Any, right: Any) -> str:
    """Return the reason why an operator is refused for two values, or ''."""
    if not all(isinstance(side, (int, float, complex, np.ndarray, np.generic)) for side in (left, right)):
        return "arithmetic needs numbers and arrays, not lists"
    whole = isinstance(left, int) and isinstance(right, int)
    if whole and kind in _SIGNS and right > 64 and (kind is ast.LShift or abs(left) > 1):
        # the check comes before computing, because a number like 9**9**9 would fill the memory
        return f"{left}{_SIGNS[kind]}{right} does not fit in 64 bits"
    if kind is not ast.MatMult and np.ndim(left) and np.ndim(right):
        try:
            np.broadcast_shapes(left.shape, right.shape)
        except ValueError:
            shapes = " and ".join(f"[{','.join(map(str, side.shape))}]" for side in (left, right))
            less, more = sorted((left.size, right.size))
            flat = left.ndim == right.ndim == 1 and more % max(less, 1) == 0
            axes = f": give the longer one two axes in --arg, [{more // less},{less}]" if flat and less else ""
            return f"arrays of the shapes {shapes} do not fit together{axes}"
    return ""


def _read_only(value: Any) -> Any:
    """Return a read-only view of an array; return other values unchanged."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


# Within limits of time and memory ------------------------------------------------------------------------------------

EXPRESSION_S = 60.0
# an expression with up to this many element operations, which take a fifth of a second, is computed in this process
CHEAP_STEPS = 20_000_000
# NumPy functions that take linear time and whose result is not larger than their argument.
_LINEAR = """
all any amax amin argmax argmin max min mean sum prod count_nonzero ravel reshape squeeze transpose swapaxes copy
zeros_like ones_like flip fliplr flipud expand_dims ascontiguousarray cumsum cumprod trace
""".split()  # noqa: SIM905
_RESHAPING = {"ravel", "reshape", "squeeze", "transpose", "swapaxes", "expand_dims"}
_CHEAP = frozenset({*ELEMENTWISE, *_LINEAR, *TYPES}) - {"i0", "round", "around"}


def may_be_slow(tree: ast.expr, values: Mapping[str, Any]) -> bool:
    """Return whether a checked expression may need much time or memory; `values`: the values of its names."""
    nodes, called = 0, set()
    for node in ast.walk(tree):
        nodes += 1
        if isinstance(node, (ast.Subscript, ast.List, ast.MatMult)):
            # such an operation may give a result that is larger than its operands, or take more than linear time
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called.add(node.func.attr)
    if called - _CHEAP:
        return True
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    shapes = [np.shape(value) for name, value in values.items() if alias(name) in names]
    # `elements`: an upper bound for the number of elements of a result that broadcasting makes from these shapes, even
    # after reshaping.
    sizes = {shape for shape in shapes if shape}
    if called & _RESHAPING or len({len(shape) for shape in sizes}) > 1:
        elements = math.prod(math.prod(shape) ** 2 for shape in sizes)
    else:
        elements = math.prod(max(extents) for extents in zip(*sizes, strict=True))
    return nodes * int(elements) > CHEAP_STEPS


def run_bounded(label: str, function: Callable[[], Any], limit: int) -> Any:
    """Call a function in a separate process with at most `limit` bytes and a minute; return its value.

    Raises ExpressionError, which begins with `label`, if a limit is reached; exceptions of `function` are passed on.
    """

    def too_large(why: str = "") -> ExpressionError:
        return ExpressionError(
            f"{label} does not fit the memory, {limit / 1e9:.1f} GB{why}: use less memory or smaller arrays."
        )

    def compute() -> Any:
        try:
            return function()
        except MemoryError as error:  # NumPy's message says how large the array would be
            raise too_large(f" ({error})" * bool(str(error))) from None

    try:
        return limited_process.call(compute, seconds=EXPRESSION_S, memory=limit)
    except limited_process.TimeLimitReached:
        raise ExpressionError(
            f"{label} took over {EXPRESSION_S:g} s and was stopped: write it with less work, or give smaller arrays."
        ) from None
    except limited_process.MemoryLimitReached:
        raise too_large() from None


# An expression -------------------------------------------------------------------------------------------------------

MAX_TEXT = 2000  # characters
MAX_DEPTH = 60  # levels of nesting
MAX_ITEMS = 64  # items of a list or tuple
DEFAULT_LIMIT = 1 << 34  # the largest size of a value, in bytes


@dataclass(frozen=True)
class Expression:
    """A parsed and checked expression.

    `label`: the name of the expression in error messages. `names`: the names that the expression uses. `arrays`:
    whether the expression may use NumPy.
    """

    label: str
    text: str
    tree: ast.expr
    names: frozenset[str]
    arrays: bool

    def evaluate(self, values: Mapping[str, Any], limit: int = DEFAULT_LIMIT) -> Any:
        """Compute and return the value; `values`: the values of the names; `limit`: the maximum bytes of an array."""
        try:
            compute = bind(self.label, self.text, values, limit)
            apart = self.arrays and may_be_slow(self.tree, values)
            with np.errstate(all="ignore"):
                result = run_bounded(self.label, compute, limit) if apart else compute()
        except ExpressionError:
            raise
        except Exception as error:  # NumPy can raise any exception for values that do not fit together
            message = " ".join(str(error).split()) or type(error).__name__
            why = next((why for kind, why in _FAILURES.items() if isinstance(error, kind)), message.rstrip("."))
            raise ExpressionError(f"{self.label} fails: {why}.") from None
        if not _is_numeric(result):
            raise ExpressionError(f"{self.label} fails: its value is neither a number nor an array.")
        return result

    def compiled(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Return a function that computes the value without checks, for timing.

        `evaluate` must have accepted the same values before. Arrays are not copied, so later changes of them have an
        effect. The caller must handle NumPy's warnings: call the function inside np.errstate.
        """
        return bind(self.label, self.text, values, None)


def parse(
    text: str, option: str, known: Iterable[str], *, arrays: bool = False, label: str | None = None
) -> Expression:
    """Parse and check an expression, which may use the names in `known` and, if `arrays`, NumPy as `np`.

    `label`: its name in error messages, by default the option and the text. A name that is a Python keyword ('in') may
    also be written 'in_'. Raises ExpressionError for syntax, functions and names that are not allowed.
    """
    names = tuple(dict.fromkeys(known))
    label = label or f"{option} '{text}'"
    for wrong, message in (
        (len(text) > MAX_TEXT, f"{option} has {len(text)} characters; an expression may have {MAX_TEXT}."),
        (not text.strip(), f"{label} is empty: write arithmetic, such as cdiv(n,256)."),
        ("..." in text, f"{label}: replace '...' by your own value."),
    ):
        if wrong:
            raise ExpressionError(message)
    plain = re.sub(
        r"(?<![\w.])[^\W\d]\w*", lambda m: m[0] + "_" if m[0] in KEYWORDS and m[0] in names else m[0], text.strip()
    )
    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError as error:
        where = f" at '{plain[error.offset - 1 :][:20]}'" if error.offset and error.offset <= len(plain) else ""
        raise ExpressionError(f"{label} is not an expression{where}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{label} cannot be read as an expression.") from None
    checker = _Checker(label, names, arrays)
    checker.check(tree, 0)
    return Expression(label, plain, tree, frozenset(checker.names), arrays)


def _is_numeric(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, (int, float, np.number)) for item in value)
    return isinstance(value, (int, float, complex, np.ndarray, np.generic))


# What is allowed -----------------------------------------------------------------------------------------------------


class _Checker:
    """Checks that a syntax tree has only allowed nodes; `names` collects the names that the tree uses."""

    def __init__(self, label: str, known: Iterable[str], arrays: bool) -> None:
        self.label, self.arrays = label, arrays
        self.known = {alias(name): name for name in known}
        self.names: set[str] = set()

    def check(self, node: ast.AST, depth: int) -> None:
        what = f"it is nested more than {MAX_DEPTH} deep" if depth > MAX_DEPTH else self.fault_of_node(node)
        if what:
            raise ExpressionError(f"{self.label}: {what}" + "." * (not what.endswith("?")))
        inside: Iterable[ast.AST] = () if isinstance(node, ast.Attribute) else ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            inside = (*(keyword.value for keyword in node.keywords), *node.args)
        for part in inside:
            if isinstance(part, ast.expr):
                self.check(part, depth + 1)

    def fault_of_node(self, node: ast.AST) -> str:
        """Return the reason why a node is not allowed, or ""."""
        match node:
            case ast.Constant(value=int() as value):
                return "" if fits(value) else OUT_OF_RANGE
            case ast.Constant(value=value):
                axis = value is None and self.arrays  # None in an index adds an axis, as in NumPy
                return "" if isinstance(value, (float, complex)) or axis else f"{value!r} is not a number"
            case ast.Name(id=name):
                return self.fault_of_name(name)
            case ast.Attribute(attr=name):
                value = name in NUMPY_CONSTANTS or name in TYPES
                return self.fault_of_numpy(node) or ("" if value else f"np.{name} is a function: write np.{name}(...)")
            case ast.Call():
                return self.fault_of_call(node)
            case ast.Compare() if not all(isinstance(op, _COMPARE) for op in node.ops):
                return _NAMES[ast.Compare]
            case ast.Tuple() | ast.List() if len(node.elts) > MAX_ITEMS:
                return f"a list may have at most {MAX_ITEMS} items"
        allowed = isinstance(node, (*_OPERATIONS, *(ast.Subscript, ast.Slice) * self.arrays))
        return "" if allowed else _NAMES.get(type(node), f"{type(node).__name__.lower()} is not allowed")

    def fault_of_name(self, name: str) -> str:
        if name in self.known:
            self.names.add(self.known[name])
            return ""
        if name in FUNCTIONS:
            return f"{name} is a function: write {name}(...)"
        if name == "np":
            return "np is not a value: write np.NAME(...)" if self.arrays else _SCALARS
        listed = ", ".join(known for known in self.known.values() if known not in UNLISTED) or "none"
        return f"'{name}' is unknown here; use {listed}.{did_you_mean(name, self.known)}".rstrip(".")

    def fault_of_numpy(self, node: ast.Attribute) -> str:
        """Return the reason why an attribute is not allowed, or ""; only `np.NAME` with a listed name is allowed."""
        name = node.attr
        if not (isinstance(node.value, ast.Name) and node.value.id == "np"):
            repair = _METHODS.get(name, f"write np.{name if name in NUMPY else 'NAME'}(...)")
            return f"'.{name}' is not allowed: {repair if self.arrays else _SCALARS}"
        if not self.arrays or name in NUMPY or name in NUMPY_CONSTANTS or name in TYPES:
            return "" if self.arrays else _SCALARS
        hint = did_you_mean(name, [*sorted(NUMPY), *TYPES])
        return f"np.{name} is not among the functions that expressions may use.{hint}".rstrip(".")

    def fault_of_call(self, node: ast.Call) -> str:
        words = [keyword.arg or "**" for keyword in node.keywords]
        unknown = next((word for word in words if word not in NUMPY_KEYWORDS), "")
        listed = f"'{unknown}=' is not allowed: give {', '.join(sorted(NUMPY_KEYWORDS))}" if unknown else ""
        match node.func:
            case ast.Attribute(attr=name):
                number = f"np.{name} is a number: leave the brackets out" if name in NUMPY_CONSTANTS else ""
                return self.fault_of_numpy(node.func) or number or listed
            case ast.Name(id=name) if name in FUNCTIONS:
                return f"{name}() does not take '{node.keywords[0].arg}='" if words else ""
        called = node.func.id if isinstance(node.func, ast.Name) else "this"
        return f"'{called}' is not a function here: use {', '.join(FUNCTIONS)}{' and np.NAME' * self.arrays}"


_FAILURES: dict[type[Exception], str] = {
    ZeroDivisionError: "it divides by zero",
    MemoryError: "it does not fit the memory",
    RecursionError: "it is nested too deeply",
}
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple, ast.List)
_COMPARE = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
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
