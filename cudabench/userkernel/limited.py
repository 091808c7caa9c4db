"""Expressions within limits of time and memory: what may be costly is computed in a process that can be ended.

NumPy cannot be stopped from within, and a short text can ask for years: np.convolve of millions, np.diff of order a
billion. What costs little for certain, by the shapes of the arrays, is computed here and now.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cudabench.system import confined
from cudabench.userkernel.vocabulary import ELEMENTWISE, TYPES, ExpressionError, alias

EXPRESSION_S = 60.0
CHEAP_STEPS = 20_000_000  # operations on elements that may be done here: a fifth of a second
# Whose time is that of their argument's elements, and whose value is no larger.
_LINEAR = """
all any amax amin argmax argmin max min mean sum prod count_nonzero ravel reshape squeeze transpose swapaxes copy
zeros_like ones_like flip fliplr flipud expand_dims ascontiguousarray cumsum cumprod trace
""".split()  # noqa: SIM905
_RESHAPING = {"ravel", "reshape", "squeeze", "transpose", "swapaxes", "expand_dims"}
_CHEAP = frozenset({*ELEMENTWISE, *_LINEAR, *TYPES}) - {"i0", "round", "around"}


def costly(tree: ast.expr, values: Mapping[str, Any]) -> bool:
    """Tell whether the value of a checked tree may take long or much memory, with names as `values` has them."""
    nodes, called = 0, set()
    for node in ast.walk(tree):
        nodes += 1
        if isinstance(node, (ast.Subscript, ast.List, ast.MatMult)):
            return True  # a new axis, a stack, a product: larger than its parts, or more work
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called.add(node.func.attr)
    if called - _CHEAP:
        return True
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    shapes = [np.shape(value) for name, value in values.items() if alias(name) in names]
    # The most elements that these shapes make together; an array that is reshaped may meet itself crosswise.
    sizes = {shape for shape in shapes if shape}
    if called & _RESHAPING or len({len(shape) for shape in sizes}) > 1:
        elements = math.prod(math.prod(shape) ** 2 for shape in sizes)
    else:
        elements = math.prod(max(extents) for extents in zip(*sizes, strict=True))
    return nodes * int(elements) > CHEAP_STEPS


def within(label: str, function: Callable[[], Any], limit: int) -> Any:
    """Return a function's value, computed in a process of its own that has `limit` bytes and a minute.

    Raises ExpressionError, which begins with `label`, where that is not enough, and what the function raises.
    """
    try:
        return confined.call(function, seconds=EXPRESSION_S, memory=limit)
    except confined.TooLong:
        raise ExpressionError(
            f"{label} took over {EXPRESSION_S:g} s and was stopped: write it with less work, or give smaller arrays."
        ) from None
    except confined.TooMuch:
        raise ExpressionError(
            f"{label} does not fit the memory, {limit / 1e9:.1f} GB: write it with less, or give smaller arrays."
        ) from None
