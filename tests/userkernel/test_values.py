"""Shapes, initial values and numbers of arguments at their limits."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from cudabench.errors import UsageError
from cudabench.source.records import Parameter
from cudabench.userkernel.arguments import convert_number, extents_of
from cudabench.userkernel.expressions import _fault_of_operands, _fault_of_value, may_be_slow, parse
from cudabench.userkernel.problem import dimensions
from cudabench.userkernel.values import Init, conform, read_start


def test_a_number_fills_an_array_of_one_element() -> None:
    """A computed number may stand for an array of one element only; a constant fills any array."""
    one = conform(np.float32(2), "y", (1,), "float32", "--expect y", constant=False)
    assert one.tolist() == [2]
    assert conform(2, "y", (3,), "float32", "--expect y", constant=True).tolist() == [2, 2, 2]
    with pytest.raises(UsageError, match=re.escape("--expect y is one number; y has shape [3].")):
        conform(np.float32(2), "y", (3,), "float32", "--expect y", constant=False)


@pytest.mark.parametrize(
    ("have", "wanted", "repair"),
    [
        ((3, 4), (3,), ": for sums write np.sum(a*x,axis=1)."),
        ((3, 4), (4,), ": for sums write np.sum(a*x,axis=0)."),
        ((12,), (1,), ": for a sum write np.sum(a*x)."),
        ((12,), (3,), ": for sums of 4 elements write np.sum(np.reshape(a*x,[3, 4]),axis=1)."),
        ((12,), (3, 4), ": write np.reshape(a*x,[3, 4])."),
        ((4, 4), (4,), "."),
        ((5,), (3,), "."),
    ],
)
def test_an_expectation_of_another_shape_says_how_to_write_it(
    have: tuple[int, ...], wanted: tuple[int, ...], repair: str
) -> None:
    """The message has the user's own expression in the shape of the array, if the two shapes tell how."""
    values, option = np.arange(np.prod(have), dtype=np.float64).reshape(have), "--expect 'y=a*x'"
    with pytest.raises(UsageError) as error:
        conform(values, "y", wanted, "float64", option, constant=False)
    assert str(error.value).partition("]; y has shape ")[2].partition("]")[2] == repair
    if found := re.search(r"write (.*)\.$", repair):
        parsed = parse(found[1], "--expect", ["a", "x"], arrays=True)
        value = parsed.evaluate({"a": 1, "x": values})
        assert conform(value, "y", wanted, "float64", option, constant=False).shape == wanted


class Ends(np.random.Generator):
    """A generator that draws the largest float32 or float64 below 1."""

    def random(self, size=None, dtype=np.float64, out=None):  # type: ignore[no-untyped-def]
        return np.full(size, np.nextafter(dtype(1), dtype(0)), dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_numbers_stay_below_the_end(dtype: str) -> None:
    """A random number that would round up to the end of its range becomes the last number below it."""
    rng = Ends(np.random.PCG64(1))
    assert Init("random").make((4,), dtype, rng, "x").max() < 1
    assert Init("uniform", (2.0, 3.0)).make((4,), dtype, rng, "x").max() < 3


@pytest.mark.parametrize(
    ("text", "dtype", "why"),
    [
        ("normal(1,0)", "float32", ""),
        ("normal(1,-1)", "float32", "a finite mean and s of at least 0"),
        ("uniform(1,1)", "float32", "finite a below b"),
        ("integers(0,256)", "uint8", ""),
        ("integers(0,257)", "uint8", "uint8 holds 0 to 255"),
        ("integers(5,5)", "int32", "it takes a below b"),
        ("integers(0,2)", "bool", ""),
        ("integers(0,3)", "bool", "is not possible"),
        ("permutation", "uint8", ""),
        ("full(255)", "uint8", ""),
        ("full(256)", "uint8", "whole numbers from 0 to 255"),
        ("full(0.5)", "int32", "holds whole numbers"),
        ("full(2)", "bool", "0 and 1"),
        ("linspace(0,255)", "uint8", ""),
        ("linspace(0,256)", "uint8", "two numbers that uint8 holds"),
    ],
)
def test_starts_at_the_limits_of_a_type(text: str, dtype: str, why: str) -> None:
    """An initial value that the type can hold is allowed; a larger one is refused with the rule."""
    if why:
        with pytest.raises(UsageError, match=why):
            read_start(text, dtype, (256,), "--arg x", {})
    else:
        assert (
            read_start(text, dtype, (256,), "--arg x", {}).make((256,), dtype, np.random.default_rng(1), "x").size
            == 256
        )
    if text == "permutation":
        with pytest.raises(UsageError, match="a permutation of 257 numbers goes up to 256, uint8 to 255"):
            read_start(text, dtype, (257,), "--arg x", {})


def test_numbers_at_the_limits_of_a_parameter() -> None:
    """A number outside a parameter's type is refused; infinity is allowed for a float."""
    real, byte = Parameter("a", "float"), Parameter("n", "char")
    assert convert_number(np.inf, "float32", "--arg a", real) == np.inf
    assert (convert_number(127, "int8", "--arg n", byte), convert_number(-128.0, "int8", "--arg n", byte)) == (
        127,
        -128,
    )
    with pytest.raises(UsageError, match="is over the largest number of 'float a'"):
        convert_number(1e39, "float32", "--arg a", real)
    for value, why in ((128, "holds -128 to 127"), (-129, "holds -128 to 127"), (0.5, "takes a whole number")):
        with pytest.raises(UsageError, match=why):
            convert_number(value, "int8", "--arg n", byte)


def test_how_many_numbers_a_shape_and_a_launch_have() -> None:
    """A shape has one to eight numbers, and a block one to three."""
    assert len(extents_of("1,1,1,1,1,1,1,2", "--arg x", {})) == 8
    assert dimensions("4,2,1", "--block", {}) == (4, 2, 1)
    with pytest.raises(UsageError, match="has 9 numbers; it takes 1 to 8"):
        extents_of("1,1,1,1,1,1,1,1,1", "--arg x", {})
    with pytest.raises(UsageError, match="has 4 numbers: write X, X,Y or X,Y,Z"):
        dimensions("4,2,1,1", "--block", {})


def test_what_an_expression_may_compute() -> None:
    """An array may have as many bytes as the limit; a power must fit in 64 bits, unless its base is 1 or -1."""
    assert _fault_of_value(np.zeros(8, np.uint8), 8) == ""
    assert "an array in it has 9 elements" in _fault_of_value(np.zeros(9, np.uint8), 8)
    assert _fault_of_operands(ast.Pow, 1, 99) == _fault_of_operands(ast.Pow, -1, 99) == ""
    assert "does not fit in 64 bits" in _fault_of_operands(ast.Pow, 2, 65)
    assert "does not fit in 64 bits" in _fault_of_operands(ast.LShift, 1, 65)
    assert _fault_of_operands(ast.LShift, 1, 64) == ""


def test_what_runs_in_a_process_of_its_own() -> None:
    """An expression that may create large arrays from small ones runs in a limited process."""
    values = {"x": np.zeros(5000), "y": np.zeros((5000, 1)), "n": 3}

    def slow(text: str) -> bool:
        return may_be_slow(ast.parse(text, mode="eval").body, values)

    assert not slow("x + x * n")
    assert not slow("np.sum(x)")
    assert slow("np.ravel(x) + x")  # 5000 by 5000, if one of the two were a column
    assert slow("x + y")
    assert slow("np.sort(x)")
    assert slow("x[0]")
