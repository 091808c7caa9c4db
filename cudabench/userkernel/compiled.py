"""An expression that has been checked, as a chain of NumPy calls with nothing of a walk left in it.

The tree is walked once, with the values at hand: what is made of numbers alone is computed there and then, and what is
left are closures that hold their operands. No text is ever run as Python. Nothing is bounded here: `evaluate` has to
have accepted the same tree with the same values before.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cudabench.userkernel.vocabulary import BINARY, COMPARE, FUNCTIONS, UNARY, alias

Work = Callable[[], Any]


def compiled(tree: ast.expr, values: Mapping[str, Any]) -> Work:
    """Return what computes a checked tree, with names as `values` has them, as `evaluate` does; arrays are not copied,
    so a later change of one shows."""
    return _Compiler({alias(name): value for name, value in values.items()}).build(tree).work()


class _Part:
    """A part of an expression: its value where that is known, else what computes it."""

    def __init__(self, value: Any = None, compute: Work | None = None) -> None:
        self.value, self.compute = value, compute

    @property
    def number(self) -> bool:
        """Whether the part is known and no array, so that what it is used in may be computed now."""
        return self.compute is None and not isinstance(self.value, np.ndarray)

    def work(self) -> Work:
        """Return what gives the part's value."""
        value = self.value
        return self.compute or (lambda: value)


def _now(function: Callable[..., Any], *values: Any) -> _Part:
    """Return a call on numbers, made now; one that fails may stand where it is never computed."""
    try:
        return _Part(function(*values))
    except Exception:
        return _Part(compute=lambda: function(*values))


class _Compiler:
    """The one walk over the tree."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def build(self, node: ast.AST) -> _Part:
        """Return a node as a part."""
        if isinstance(node, ast.Constant):
            return _Part(node.value)
        if isinstance(node, ast.Name):
            return _Part(self.values[node.id])
        if isinstance(node, ast.Attribute):
            return _Part(np.bool_ if node.attr == "bool_" else getattr(np, node.attr))
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BinOp):
            return self.binary(BINARY[type(node.op)], self.build(node.left), self.build(node.right))
        if isinstance(node, ast.UnaryOp):
            return self.folded(UNARY[type(node.op)], [self.build(node.operand)])
        if isinstance(node, ast.Compare):
            return self.comparison(node)
        if isinstance(node, ast.BoolOp):
            return self.both(isinstance(node.op, ast.Or), [self.build(part) for part in node.values])
        if isinstance(node, ast.IfExp):
            test, yes, no = (self.build(part).work() for part in (node.test, node.body, node.orelse))
            return _Part(compute=lambda: yes() if test() else no())
        if isinstance(node, (ast.Tuple, ast.List)):
            kind: Callable[..., Any] = tuple if isinstance(node, ast.Tuple) else list
            return self.folded(lambda *items: kind(items), [self.build(item) for item in node.elts])
        if isinstance(node, ast.Slice):
            bounds = [_Part(None) if p is None else self.build(p) for p in (node.lower, node.upper, node.step)]
            return self.folded(slice, bounds)
        assert isinstance(node, ast.Subscript)
        return self.folded(lambda array, index: array[index], [self.build(node.value), self.build(node.slice)])

    def folded(self, function: Callable[..., Any], parts: list[_Part], names: tuple[str, ...] = ()) -> _Part:
        """Return a call; the last parts are its keyword arguments `names`. One of numbers alone is made now."""
        works = [part.work() for part in parts]
        if not names:
            if all(part.number for part in parts):
                return _now(function, *(part.value for part in parts))
            if len(works) == 1:
                (only,) = works
                return _Part(compute=lambda: function(only()))
            return _Part(compute=lambda: function(*[work() for work in works]))
        plain, named = works[: -len(names)], tuple(zip(names, works[-len(names) :], strict=True))
        return _Part(compute=lambda: function(*[work() for work in plain], **{name: work() for name, work in named}))

    def binary(self, function: Callable[[Any, Any], Any], left: _Part, right: _Part) -> _Part:
        if left.number and right.number:
            return _now(function, left.value, right.value)
        a, b = left.value, right.value
        if left.compute is None and right.compute is None:
            return _Part(compute=lambda: function(a, b))
        if left.compute is None:
            after = right.work()
            return _Part(compute=lambda: function(a, after()))
        first = left.compute
        if right.compute is None:
            return _Part(compute=lambda: function(first(), b))
        second = right.compute
        return _Part(compute=lambda: function(first(), second()))

    def call(self, node: ast.Call) -> _Part:
        parts = [self.build(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords))]
        names = tuple(str(keyword.arg) for keyword in node.keywords)
        if isinstance(node.func, ast.Name):
            return self.folded(FUNCTIONS[node.func.id], parts)
        assert isinstance(node.func, ast.Attribute)
        return self.folded(np.bool_ if node.func.attr == "bool_" else getattr(np, node.func.attr), parts, names)

    def comparison(self, node: ast.Compare) -> _Part:
        parts = [self.build(part) for part in (node.left, *node.comparators)]
        functions = [COMPARE[type(op)] for op in node.ops]
        if len(functions) == 1:
            return self.binary(functions[0], parts[0], parts[1])
        works = [part.work() for part in parts]

        def chain() -> Any:
            result: Any = True
            left = works[0]()
            for function, work in zip(functions, works[1:], strict=True):
                right = work()
                result = result and function(left, right)
                left = right
            return result

        return _Part(compute=chain)

    def both(self, stop: bool, parts: list[_Part]) -> _Part:
        works = [part.work() for part in parts]

        def until() -> Any:
            value: Any = not stop
            for work in works:
                value = work()
                if bool(value) == stop:
                    break
            return value

        return _Part(compute=until)
