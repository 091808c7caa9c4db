"""Expressions on the command line: they give the results of Python and NumPy, and refuse everything that is not on
their list."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.userkernel import expressions
from cudabench.userkernel.expressions import ExpressionError, parse

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
I = np.array([3, 0, 2, 1], np.int32)  # noqa: E741
VALUES: dict[str, Any] = {"n": 12, "a": 2.5, "x": X, "y0": Y, "i": I}


def value(text: str, **more: Any) -> Any:
    """Evaluate an expression with NumPy functions."""
    values = {**VALUES, **more}
    return parse(text, "--expect", values, arrays=True).evaluate(values, limit=1 << 20)


def scalar(text: str, **values: Any) -> Any:
    """Evaluate an expression as for shapes and grids."""
    return parse(text, "--grid", values).evaluate(values)


# Equal to Python ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["n", "m", "k"])
NUMBERS = st.integers(0, 1000).map(str)


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy for larger expressions from smaller ones."""
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^"])
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"(-{t})"),
        st.tuples(inner, inner).map(lambda t: f"min({t[0]}, {t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else 1)"),
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.recursive(NAMES | NUMBERS, compound, max_leaves=8), st.integers(0, 10**6), st.integers(1, 64))
def test_arithmetic_is_pythons(text: str, n: int, m: int) -> None:
    """Scalar arithmetic gives Python's result, or is refused with a message."""
    values = {"n": n, "m": m, "k": 3}
    try:
        got = scalar(text, **values)
    except ExpressionError:
        return
    wanted = eval(text, {"__builtins__": {}, "min": min, "max": max}, values)
    assert got == wanted
    assert type(got) is type(wanted)


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_cdiv_rounds_up(a: int, b: int) -> None:
    """cdiv(a,b) is the smallest number of blocks of size b that cover a."""
    got = scalar("cdiv(a,b)", a=a, b=b)
    assert (got - 1) * b < a <= got * b


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "text",
    [
        "a*x+y0",
        "x**2 - 2*x + 1",
        "x @ np.transpose(y0)",
        "np.sum(x, axis=1)",
        "np.sum(x, axis=0, keepdims=True) / n",
        "np.where(x > 5, x, -x)",
        "np.maximum(x, y0)",
        "np.sqrt(np.mean(x*x, axis=-1))",
        "x[::-1, 1:3]",
        "x[:, i]",
        "x[1]",
        "np.reshape(x, (4, 3))",
        "np.float64(x) * np.pi",
        "np.concatenate([x, y0], axis=1)",
        "np.cumsum(x)",
        "np.outer(x[0], y0[:, 0])",
        "np.exp(x - np.max(x, axis=1, keepdims=True))",
        "np.zeros((2, 3)) + np.arange(3)",
        "np.roll(x, 1, axis=0)",
        "np.pad(x, 1)[1:-1, 1:-1]",
        "x[:, None] * 2",
        "np.clip(x, 1, 4)",
        "(x > 3) & (x < 7)",
        "~(i > 1)",
        "i << 2",
        "np.bincount(i, minlength=8)",
        "np.linspace(0, 1, n)",
        "np.tile(i, 3)",
        "np.repeat(i, 2)",
        "np.repeat(x, 2, 0)",
        "np.eye(3) @ x",
        "np.int32(x)",
        "np.full((2, 2), n)",
        "-x + +y0",
        "np.histogram(x, bins=4)[0]",
        "np.argsort(i)",
        "np.stack((i, i))",
        "1 - x / (1 + np.abs(x))",
    ],
)
def test_arrays_are_numpys(text: str) -> None:
    """An allowed expression gives NumPy's result and type."""
    wanted = eval(text, {"np": np}, dict(VALUES))
    got = value(text)
    np.testing.assert_array_equal(got, wanted)
    assert np.asarray(got).dtype == np.asarray(wanted).dtype


@pytest.mark.parametrize("name", ["in", "lambda", "is", "from", "None"])
def test_keywords_are_names(name: str) -> None:
    """A parameter named like a Python keyword can be used by its name, or with an underscore added."""
    values = {name: X, name + "0": Y}
    for text in (f"2*{name}+{name}0", f"2*{name}_+{name}0"):
        np.testing.assert_array_equal(parse(text, "--expect", values, arrays=True).evaluate(values), 2 * X + Y)


def test_parameters_may_be_called_as_functions() -> None:
    """A parameter named np or min does not hide the function."""
    values = {"np": X, "min": 3}
    parsed = parse("np.sum(np) + min(min, 1)", "--expect", values, arrays=True)
    assert parsed.evaluate(values) == parsed.compiled(values)() == X.sum() + 1


# Refusal of everything else ------------------------------------------------------------------------------------------

ATTACKS = [
    "__import__('os').system('touch /tmp/owned')",
    "().__class__.__bases__[0].__subclasses__()",
    "x.__class__",
    "np.__builtins__",
    "np.load('secret.npy', allow_pickle=True)",
    "np.fromfile('/etc/passwd')",
    "np.memmap('/etc/passwd')",
    "np.save('x', x)",
    "np.lib",
    "np.testing",
    "np.f2py.compile('x')",
    "np.vectorize(x)",
    "np.fromfunction(x, (3,))",
    "np.apply_along_axis(x, 0, x)",
    "np.frompyfunc(x, 1, 1)",
    "np.array([1], dtype='O')",
    "np.object_(x)",
    "np.add.reduce(x)",
    "np.add.at(x, 0, 1)",
    "x.tofile('f')",
    "x.dump('f')",
    "x.astype(np.float64)",
    "x.T",
    "open('/etc/passwd')",
    "eval('1')",
    "exec('1')",
    "getattr(x, 'shape')",
    "print(x)",
    "lambda: 1",
    "(lambda x: x)(1)",
    "[i for i in x]",
    "{1: 2}",
    "{1, 2}",
    "{k: v for k in x}",
    "(i for i in x)",
    "f'{x}'",
    "'text'",
    "b'bytes'",
    "(y := 3)",
    "x if",
    "x; x",
    "x\nimport os",
    "import os",
    "yield x",
    "await x",
    "*x",
    "np.add(*x)",
    "np.add(**x)",
    "x in x",
    "x is x",
    "globals()",
    "np",
    "np.sum",
    "np.add(x, x, out=x)",
    "np.sum(x, where=x)",
    "",
    "   ",
    "#",
    "\0",
    "𝘯𝘱.load('x')",
    "x[x.__len__()]",
    "np.asarray(x).base",
    "np.ndarray((3,))",
    "np.nditer(x)",
    "np.r_[1]",
    "np.empty(3)",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_attacks_are_refused(text: str) -> None:
    """An expression with anything not on the list is refused before evaluation, with one message."""
    with pytest.raises(ExpressionError) as caught:
        value(text)
    assert "\n" not in str(caught.value).replace(text, "")
    assert not os.path.exists("/tmp/owned")


BOMBS = [
    "9**9**9",
    "9**9**9**9",
    "2**64",
    "1 << 10**9",
    "(2**63) * (2**63)",
    "n**n**n",
    "10**400",
    "1e308 * 1e308 if 9**99999 else 0",
    "np.zeros((10**6, 10**6))",
    "np.ones(10**12)",
    "np.full((10**9,), 1)",
    "np.arange(1e15)",
    "np.arange(0, 1, 1e-15)",
    "np.linspace(0, 1, 10**10)",
    "np.eye(10**6)",
    "np.identity(10**7)",
    "np.repeat(x, 10**10)",
    "np.tile(x, (10**5, 10**5))",
    "np.pad(x, 10**6)",
    "np.broadcast_to(x, (10**8, 3, 4))",
    "np.outer(np.arange(10**4), np.arange(10**4))",
    "np.arange(10**4)[:, None] * np.arange(10**4)",
    "np.ones((10**4, 1)) @ np.ones((1, 10**4))",
    "np.add(np.ones((10**4, 1)), np.ones((1, 10**4)))",
    "np.bincount(np.array([10**12]))",
    "np.bincount(i, minlength=10**12)",
    "np.histogram(x, 10**12)",
    "np.indices((10**4, 10**4))",
    "np.diag(np.arange(10**5))",
    "np.take(x, np.zeros(10**5, np.int32), 0)",
    "x[np.zeros(10**5, np.int32)]",
    "np.convolve(np.ones(10**6), np.ones(10**6))",
    "[0] * 10**9",
    "(1, 2) * 10**9",
    "[" + "1," * 100 + "]",
    "-" * 1900 + "1",
    "(" * 900 + "1" + ")" * 900,
    "1" + "+1" * 900,
    "n" * 5000,
    "1" * 1500,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", BOMBS, ids=lambda text: text[:30])
def test_bombs_are_refused_at_once(text: str) -> None:
    """An expression that would fill the memory or run forever is refused within a second."""
    start = time.perf_counter()
    with pytest.raises(ExpressionError):
        value(text)
    assert time.perf_counter() - start < 1


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="nxnp.()[]{}+-*/%,:=<>!@&|^~'\"_ 0123456789eij", max_size=40))
def test_any_text_gives_a_value_or_a_sentence(text: str) -> None:
    """Any text gives a value or an ExpressionError."""
    try:
        got = value(text)
    except ExpressionError:
        return
    assert isinstance(got, (int, float, complex, tuple, np.ndarray, np.generic))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n/0", "divides by zero"),
        (
            "np.ones(12) * np.ones(4)",
            "arrays of the shapes [12] and [4] do not fit together: give the longer one two axes in --arg, [3,4]",
        ),
        ("x + np.ones(5)", "arrays of the shapes [3,4] and [5] do not fit together"),
        ("x[20]", "out of bounds"),
        ("x if x else y0", "ambiguous"),
        ("np.summ(x)", "Did you mean 'sum'?"),
        ("nn", "'nn' is unknown here; use n, a, x, y0, i. Did you mean 'n'?"),
        ("foo(x)", "'foo' is not a function here"),
        ("sqrt", "write sqrt(...)"),
        ("cdiv(1)", "missing 1 required positional argument"),
        ("x.T", "write np.transpose(x)"),
        ("x.sum()", "write np.sum(...)"),
        ("np.zeros()", "missing required argument 'shape'"),
        ("np.pi(3)", "leave the brackets out"),
        ("n +", "is not an expression"),
        ("np.float32", "neither a number nor an array"),
    ],
)
def test_failures_say_why(text: str, message: str) -> None:
    """An expression that fails gives the cause, and a suggestion for an unknown name."""
    with pytest.raises(ExpressionError) as caught:
        value(text)
    assert message in str(caught.value)


def test_scalars_know_no_numpy() -> None:
    """Expressions for shapes and grids refuse np, subscripts and attributes."""
    for text in ("np.sum(n)", "n[0]", "n.real", "np.pi"):
        with pytest.raises(ExpressionError, match="only arithmetic over the scalars"):
            scalar(text, n=3)


def test_inputs_cannot_be_written() -> None:
    """An expression cannot write to an input through a function's out argument."""
    before = X.copy()
    for text in ("np.add(x, x, x)", "np.cumsum(x, 0, np.float32, x)", "np.clip(x, 3, 4, x)"):
        with pytest.raises(ExpressionError):
            value(text)
    np.testing.assert_array_equal(X, before)


def test_every_function_of_the_list_is_numpys() -> None:
    """The list has only NumPy functions, and none that reads files, creates objects or takes callbacks."""
    assert {"load", "save", "fromfile", "memmap", "vectorize", "empty"}.isdisjoint(expressions.NUMPY)
    assert all(callable(getattr(np, name)) for name in expressions.NUMPY)
    assert len(expressions.NUMPY) > 150


def test_tuples_are_dimensions() -> None:
    """A grid of several numbers is a tuple."""
    assert scalar("cdiv(n,32), m, 2", n=33, m=4) == (2, 4, 2)
    assert math.isclose(scalar("n/4", n=3), 0.75)


# Compiled expressions equal interpreted ones --------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.recursive(NAMES | NUMBERS, compound, max_leaves=8), st.integers(0, 10**6), st.integers(1, 64))
def test_compiled_arithmetic_is_what_is_walked(text: str, n: int, m: int) -> None:
    """For every expression that the interpreter accepts, the compiled form gives the same value."""
    values = {"n": n, "m": m, "k": 3}
    parsed = parse(text, "--grid", values)
    try:
        wanted = parsed.evaluate(values)
    except ExpressionError:
        return
    got = parsed.compiled(values)()
    assert (type(got), got) == (type(wanted), wanted)


ARRAYS = st.sampled_from(["x", "y0", "n", "a", "2", "1.5", "x[1]", "y0[:, 1:3]", "np.transpose(x)"])


def on_arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy for larger expressions over arrays."""
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "@", "<", ">="]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda t: f"np.exp(-{t})"),
        inner.map(lambda t: f"np.sum({t}, axis=0, keepdims=1)"),
        st.tuples(inner, inner).map(lambda t: f"np.where({t[0]} > 0, {t[1]}, {t[0]})"),
        st.tuples(inner, inner).map(lambda t: f"np.stack([{t[0]}, {t[1]}])"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}, {t[1]})[1]"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} if n > 3 and a else {t[1]})"),
        inner.map(lambda t: f"np.float64({t})"),
    )


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.recursive(ARRAYS, on_arrays, max_leaves=6))
def test_compiled_arrays_are_what_is_walked(text: str) -> None:
    """The compiled form gives the same elements and type, to the last bit, and keeps the inputs unchanged."""
    parsed = parse(text, "--expect", VALUES, arrays=True)
    try:
        wanted = parsed.evaluate(VALUES, limit=1 << 20)
    except ExpressionError:
        return
    before = X.copy()
    with np.errstate(all="ignore"):
        work = parsed.compiled(VALUES)
        got, again = work(), work()
    assert np.asarray(got).dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(again, wanted)
    np.testing.assert_array_equal(X, before)


def test_a_chain_of_comparisons_is_compiled() -> None:
    """Chained comparisons and short-circuit operators give Python's result."""
    for text in ("1 < n < 20", "n < 1 < 5 < 7", "n == 12 or n / 0", "n > 20 and n / 0", "not n"):
        parsed = parse(text, "--where", {"n": 12})
        assert parsed.compiled({"n": 12})() == parsed.evaluate({"n": 12})
