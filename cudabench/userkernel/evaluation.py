"""The value of an expression that has been checked: a walk over its tree."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cudabench.userkernel.vocabulary import (
    BINARY,
    COMPARE,
    ELEMENTWISE,
    FUNCTIONS,
    SIZES,
    TYPES,
    UNARY,
    ExpressionError,
    alias,
    bounded,
    elements,
    matmul_size,
    product,
    shape_of,
)


def evaluate(label: str, tree: ast.expr, values: Mapping[str, Any], limit: int) -> Any:
    """Return the value of a checked tree, with names as `values` has them.

    `limit` is the most bytes that one array may have. Raises ExpressionError, which begins with `label`, for what would
    exceed it or leave 64 bits, and lets NumPy's own errors through.
    """
    with np.errstate(all="ignore"):
        return _Evaluator(label, values, limit).value(tree)


class _Evaluator:
    """The walk over a checked tree."""

    def __init__(self, label: str, values: Mapping[str, Any], limit: int) -> None:
        self.label, self.limit = label, limit
        self.values = {alias(name): _read_only(value) for name, value in values.items()}

    def refuse(self, what: str) -> ExpressionError:
        return ExpressionError(f"{self.label}: {what}.")

    def value(self, node: ast.AST) -> Any:
        """Return a node's value, checked."""
        result = self.compute(node)
        if isinstance(result, int) and not isinstance(result, bool):
            return bounded(result, self.refuse)
        if isinstance(result, (np.ndarray, np.generic)) and result.dtype.kind not in "biufc":
            raise self.refuse("a value in it is not an array of numbers")
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
            return UNARY[type(node.op)](self.value(node.operand))
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
            self.room(matmul_size(left, right), (left, right))
        else:
            self.room_broadcast((left, right))
        return BINARY[type(node.op)](left, right)

    def comparison(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            self.room_broadcast((left, right))
            one = COMPARE[type(op)](left, right)
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
            rest = math.prod(shape_of(array)[len(fancy) :]) if isinstance(array, np.ndarray) else 1
            self.room(product(tuple(np.broadcast_shapes(*map(shape_of, fancy)))) * rest, (array,))
        return array[index]

    def call(self, node: ast.Call) -> Any:
        arguments = [self.value(argument) for argument in node.args]
        keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if isinstance(node.func, ast.Name):
            return FUNCTIONS[node.func.id](*arguments)
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        function = getattr(np, name)
        if name in ELEMENTWISE:
            self.room_broadcast(arguments)
        elif name in SIZES:
            try:
                count = SIZES[name](*arguments, **keywords)
            except TypeError:
                raise self.refuse(f"np.{name} does not take these arguments") from None
            self.room(count, arguments)
        elif name == "take":
            self.room(int(np.size(arguments[0])) * max(int(np.size(arguments[1])), 1), ())
        elif name not in TYPES:
            self.room(sum(map(elements, arguments)), ())
        return function(*arguments, **keywords)

    # Room -------------------------------------------------------------------------------------------------------------

    def room_broadcast(self, arguments: Iterable[Any]) -> None:
        arguments = list(arguments)
        try:
            shape = np.broadcast_shapes(*map(shape_of, arguments))
        except ValueError:
            shapes = " and ".join(f"[{','.join(map(str, shape_of(one)))}]" for one in arguments)
            raise self.refuse(f"arrays of the shapes {shapes} do not fit together") from None
        self.room(product(tuple(shape)), arguments)

    def room(self, count: int, arguments: Iterable[Any]) -> None:
        """Refuse a result of more bytes than allowed; an element is as wide as the widest argument, at least 8."""
        width = max([8, *(a.dtype.itemsize for a in arguments if isinstance(a, np.ndarray))])
        if count * width > self.limit:
            raise self.refuse(
                f"an array in it has {count} elements, {count * width / 1e9:.1f} GB; the limit here is "
                f"{self.limit / 1e9:.1f} GB"
            )


def _read_only(value: Any) -> Any:
    """An array that no function can write into, as its out argument."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value
