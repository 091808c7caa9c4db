"""Expressions of the command line: `cdiv(n,256)`, `a*x+y0`, `np.sum(x,axis=1)`.

They may come from files of others, so the text itself is never run as Python. It is parsed, and only a tree is
computed that a white list of syntax, functions and NumPy's names allows: no attributes but `np.NAME`, no calls of
anything else, no comprehensions, no strings. Integers stay within 64 bits. What may take long, or make large arrays, is
computed in a process of bounded time and memory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.errors import did_you_mean
from cudabench.userkernel.evaluation import (
    BEYOND,
    FUNCTIONS,
    KEYWORDS,
    NUMPY,
    NUMPY_CONSTANTS,
    NUMPY_KEYWORDS,
    TYPES,
    UNLISTED,
    ExpressionError,
    alias,
    bind,
    costly,
    fits,
    within,
)

MAX_TEXT = 2000
MAX_DEPTH = 60
MAX_ITEMS = 64  # of a literal list
DEFAULT_LIMIT = 1 << 34  # bytes that a value may take


@dataclass(frozen=True)
class Expression:
    """A parsed expression: what errors call it, and the names that it uses."""

    label: str
    text: str
    tree: ast.expr
    names: frozenset[str]
    arrays: bool

    def evaluate(self, values: Mapping[str, Any], limit: int = DEFAULT_LIMIT) -> Any:
        """Return the value, with names as `values` has them; `limit` is the most bytes that it may take."""
        try:
            compute = bind(self.label, self.text, values, limit)
            apart = self.arrays and costly(self.tree, values)
            with np.errstate(all="ignore"):
                result = within(self.label, compute, limit) if apart else compute()
        except ExpressionError:
            raise
        except Exception as error:  # whatever NumPy raises on values that do not fit together
            said = " ".join(str(error).split()) or type(error).__name__
            why = next((why for kind, why in _FAILURES.items() if isinstance(error, kind)), said.rstrip("."))
            raise ExpressionError(f"{self.label} fails: {why}.") from None
        if not _numeric(result):
            raise ExpressionError(f"{self.label} fails: its value is neither a number nor an array.")
        return result

    def compiled(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what computes the value, to be timed: `evaluate` must have accepted the same values.

        Arrays are not copied, so a later change of one shows. NumPy's warnings are the caller's: compute inside
        np.errstate.
        """
        return bind(self.label, self.text, values, None)


def parse(
    text: str, option: str, known: Iterable[str], *, arrays: bool = False, label: str | None = None
) -> Expression:
    """Return an expression over the names in `known`; with `arrays`, NumPy is at hand as `np`.

    Errors call it by its option and text, or by `label`. A name that is a Python keyword ('in') is meant by itself and
    by 'in_'. Raises ExpressionError for syntax, functions and names that are not allowed.
    """
    names = tuple(dict.fromkeys(known))
    label = label or f"{option} '{text}'"
    for wrong, said in (
        (len(text) > MAX_TEXT, f"{option} has {len(text)} characters; an expression may have {MAX_TEXT}."),
        (not text.strip(), f"{label} is empty: write arithmetic, such as cdiv(n,256)."),
        ("..." in text, f"{label} has a gap: write your own value for '...'."),
    ):
        if wrong:
            raise ExpressionError(said)
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


def _numeric(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, (int, float, np.number)) for item in value)
    return isinstance(value, (int, float, complex, np.ndarray, np.generic))


# What is allowed -----------------------------------------------------------------------------------------------------


class _Checker:
    """Refuses, before anything is computed, what is not on the white list."""

    def __init__(self, label: str, known: Iterable[str], arrays: bool) -> None:
        self.label, self.arrays = label, arrays
        self.known = {alias(name): name for name in known}
        self.names: set[str] = set()

    def check(self, node: ast.AST, depth: int) -> None:
        what = f"it is nested more than {MAX_DEPTH} deep" if depth > MAX_DEPTH else self.wrong(node)
        if what:
            raise ExpressionError(f"{self.label}: {what}" + "." * (not what.endswith("?")))
        inside: Iterable[ast.AST] = () if isinstance(node, ast.Attribute) else ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            inside = (*(keyword.value for keyword in node.keywords), *node.args)
        for part in inside:
            if isinstance(part, ast.expr):
                self.check(part, depth + 1)

    def wrong(self, node: ast.AST) -> str:
        """Return why a node is not allowed, "" where it is."""
        match node:
            case ast.Constant(value=int() as value):
                return "" if fits(value) else BEYOND
            case ast.Constant(value=value):
                axis = value is None and self.arrays  # a new one in an index
                return "" if isinstance(value, (float, complex)) or axis else f"{value!r} is not a number"
            case ast.Name(id=name):
                return self.of_name(name)
            case ast.Attribute(attr=name):
                value = name in NUMPY_CONSTANTS or name in TYPES
                return self.of_numpy(node) or ("" if value else f"np.{name} is a function: write np.{name}(...)")
            case ast.Call():
                return self.of_call(node)
            case ast.Compare() if not all(isinstance(op, _COMPARE) for op in node.ops):
                return _NAMES[ast.Compare]
            case ast.Tuple() | ast.List() if len(node.elts) > MAX_ITEMS:
                return f"a list may have {MAX_ITEMS} items"
        allowed = isinstance(node, (*_OPERATIONS, *(ast.Subscript, ast.Slice) * self.arrays))
        return "" if allowed else _NAMES.get(type(node), f"{type(node).__name__.lower()} is not allowed")

    def of_name(self, name: str) -> str:
        if name in self.known:
            self.names.add(self.known[name])
            return ""
        if name in FUNCTIONS:
            return f"{name} is a function: write {name}(...)"
        if name == "np":
            return "np stands alone: write np.NAME(...)" if self.arrays else _SCALARS
        listed = ", ".join(known for known in self.known.values() if known not in UNLISTED) or "none"
        return f"there is no '{name}' here, there is {listed}.{did_you_mean(name, self.known)}".rstrip(".")

    def of_numpy(self, node: ast.Attribute) -> str:
        """Return why a name is not one of `np.` that is on the list."""
        name = node.attr
        if not (isinstance(node.value, ast.Name) and node.value.id == "np"):
            repair = _METHODS.get(name, f"write np.{name if name in NUMPY else 'NAME'}(...)")
            return f"'.{name}' is not allowed: {repair if self.arrays else _SCALARS}"
        if not self.arrays or name in NUMPY or name in NUMPY_CONSTANTS or name in TYPES:
            return "" if self.arrays else _SCALARS
        hint = did_you_mean(name, [*sorted(NUMPY), *TYPES])
        return f"np.{name} is not among the functions that expressions may use.{hint}".rstrip(".")

    def of_call(self, node: ast.Call) -> str:
        words = [keyword.arg or "**" for keyword in node.keywords]
        unknown = next((word for word in words if word not in NUMPY_KEYWORDS), "")
        listed = f"'{unknown}=' is not allowed: give {', '.join(sorted(NUMPY_KEYWORDS))}" if unknown else ""
        match node.func:
            case ast.Attribute(attr=name):
                number = f"np.{name} is a number: leave the brackets out" if name in NUMPY_CONSTANTS else ""
                return self.of_numpy(node.func) or number or listed
            case ast.Name(id=name) if name in FUNCTIONS:
                return f"{name}() takes no '{node.keywords[0].arg}='" if words else ""
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
