"""Floating-point instructions against exact fractions, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.simulator.conftest import Array, evaluate

FORMATS = {"f32": (np.float32, 24, -149, 127), "f64": (np.float64, 53, -1074, 1023), "f16": (np.float16, 11, -24, 15)}
FORMATS["bf16"] = (np.float32, 8, -133, 127)  # compared as float32, which holds it exactly
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    0.1,
    3.0,
    1e-45,
    -1e-45,
    1.1754942e-38,
    1.17549435e-38,
    3.4028235e38,
    -3.4028235e38,
    65504.0,
]


def rounded(value: Fraction, type_: str, mode: str) -> float:
    """Return a fraction rounded to a format by the mode; the zero's sign is not defined."""
    _, precision, lowest, highest = FORMATS[type_]
    if value == 0:
        return 0.0
    sign, size = (-1 if value < 0 else 1), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - precision + 1, lowest)
    steps = size / unit
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rz": False,
        "rp": rest > 0 and sign > 0,
        "rm": rest > 0 and sign < 0,
    }[mode]
    result = (whole + up) * unit
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** highest
    if result > largest:
        away = mode == "rn" or (mode == "rp" and sign > 0) or (mode == "rm" and sign < 0)
        return sign * (math.inf if away else float(largest))
    return sign * float(result)


def sample(type_: str, count: int, seed: int, spread: int = 30) -> Array:
    """Return special and random values of a format; their magnitudes make sums and products inexact."""
    dtype = FORMATS[type_][0]
    rng = np.random.default_rng(seed)
    values = rng.choice([-1, 1], count) * rng.random(count) * np.exp2(rng.integers(-spread, spread, count))
    with np.errstate(over="ignore"):
        special = rng.permutation(np.array(SPECIAL * 2))
        found = np.concatenate([special, values]).astype(dtype)
    return np.where(np.isinf(found), dtype(1.0), found)


def same(got: Array, want: list[float], type_: str) -> None:
    """Assert equal values (any zero equals any zero)."""
    with np.errstate(over="ignore"):
        expected = np.array(want, dtype=np.float64).astype(FORMATS[type_][0])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_arithmetic_rounds_once(type_: str, mode: str) -> None:
    """add, sub, mul, div and fma equal the exact result rounded by the mode."""
    dtype = FORMATS[type_][0]
    x, y, z = (sample(type_, 400, seed) for seed in (1, 2, 3))
    f = [[Fraction(float(v)) for v in a] for a in (x, y, z)]
    same(
        evaluate(f"add.{mode}.{type_} {{d}}, {{0}}, {{1}};", dtype, x, y),
        [rounded(a + b, type_, mode) for a, b in zip(f[0], f[1], strict=True)],
        type_,
    )
    same(
        evaluate(f"sub.{mode}.{type_} {{d}}, {{0}}, {{1}};", dtype, x, y),
        [rounded(a - b, type_, mode) for a, b in zip(f[0], f[1], strict=True)],
        type_,
    )
    same(
        evaluate(f"mul.{mode}.{type_} {{d}}, {{0}}, {{1}};", dtype, x, y),
        [rounded(a * b, type_, mode) for a, b in zip(f[0], f[1], strict=True)],
        type_,
    )
    nonzero = np.where(y == 0, dtype(3.0), y)
    quotients = [rounded(a / Fraction(float(b)), type_, mode) for a, b in zip(f[0], nonzero, strict=True)]
    same(evaluate(f"div.{mode}.{type_} {{d}}, {{0}}, {{1}};", dtype, x, nonzero), quotients, type_)
    got = evaluate(f"fma.{mode}.{type_} {{d}}, {{0}}, {{1}}, {{2}};", dtype, x, y, z)
    want = [rounded(a * b + c, type_, mode) for a, b, c in zip(*f, strict=True)]
    same(got, want, type_)


def test_fma_resolves_results_halfway_between_floats() -> None:
    """fma.rn.f32 rounds once, also if the sum rounds in float64 to the middle between two float32 values."""
    one = np.float32(1)
    x = np.array([1 + 2**-12, 1 + 2**-12, 1 - 2**-12, 2**-75, 1.0], np.float32)
    y = np.array([1 + 2**-12, 1 - 2**-13, 1 + 2**-12, 2**-75, 2**-60], np.float32)
    z = np.array([2**-60, -(2**-70), 1 + 2**-23, 2**-140, 1 + 2**-23], np.float32)
    big = np.float32(2**24 + 2)
    x = np.append(x, [big, one]).astype(np.float32)
    y = np.append(y, [one, np.float32(2**-30)]).astype(np.float32)
    z = np.append(z, [np.float32(1 + 2**-23), np.float32(2**24 + 2)]).astype(np.float32)
    want = [
        rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)), "f32", "rn")
        for a, b, c in zip(x, y, z, strict=True)
    ]
    same(evaluate("fma.rn.f32 {d}, {0}, {1}, {2};", np.float32, x, y, z), want, "f32")


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_square_roots_and_reciprocals(type_: str, mode: str) -> None:
    """sqrt and rcp round the exact result once, by the mode."""
    dtype = FORMATS[type_][0]
    x = np.abs(sample(type_, 300, 5))
    x = x[x > np.finfo(dtype).tiny]
    got = evaluate(f"sqrt.{mode}.{type_} {{d}}, {{0}};", dtype, x)
    for value, root in zip(x, got, strict=True):
        exact = Fraction(float(value))
        below, above = (Fraction(float(np.nextafter(root, dtype(s)))) for s in (-np.inf, np.inf))
        r = Fraction(float(root))
        if mode in ("rz", "rm"):
            assert r * r <= exact < above * above
        elif mode == "rp":
            assert below * below < exact <= r * r
        else:
            assert ((below + r) / 2) ** 2 <= exact <= ((above + r) / 2) ** 2
    want = [rounded(1 / Fraction(float(v)), type_, mode) for v in x]
    same(evaluate(f"rcp.{mode}.{type_} {{d}}, {{0}};", dtype, x), want, type_)


@pytest.mark.parametrize("type_", ["f16", "f16x2"])
def test_half_precision(type_: str) -> None:
    """fma of float16 rounds once; f16x2 works on two separate numbers."""
    x, y, z = (sample("f16", 300, seed, 8).astype(np.float16) for seed in (1, 2, 3))
    want = [
        rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)), "f16", "rn")
        for a, b, c in zip(x, y, z, strict=True)
    ]
    if type_ == "f16":
        got = evaluate("fma.rn.f16 {d}, {0}, {1}, {2};", np.uint16, *(v.view(np.uint16) for v in (x, y, z))).view(
            np.float16
        )
    else:
        got = evaluate("fma.rn.f16x2 {d}, {0}, {1}, {2};", np.uint32, *(v.view(np.uint32) for v in (x, y, z))).view(
            np.float16
        )
    same(got, want, "f16")


def test_bfloat16_rounds_to_nearest_even() -> None:
    """cvt.rn.bf16.f32 rounds to nearest, ties to even; cvt.f32.bf16 is exact."""
    x = sample("f32", 500, 9)
    got = evaluate("cvt.rn.bf16.f32 {d}, {0};", np.uint16, x)
    bits = x.view(np.uint32).astype(np.int64)
    low, high = bits & 0xFFFF, bits >> 16
    want = high + ((low > 0x8000) | ((low == 0x8000) & (high & 1 == 1)))
    assert (got == want).all()
    back = evaluate("cvt.f32.bf16 {d}, {0};", np.float32, got)
    assert (back.view(np.uint32) >> 16 == got).all()


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("target", "source"), [("f32", "f64"), ("f16", "f32"), ("f16", "f64")])
def test_narrowing_conversions(target: str, source: str, mode: str) -> None:
    """cvt to a narrower float rounds by the mode."""
    x = sample(source, 400, 11, 20)
    x = np.concatenate([x, np.array([65519.0, 65520.0, 1e30, -1e30, 1e-9], x.dtype)])
    got = evaluate(f"cvt.{mode}.{target}.{source} {{d}}, {{0}};", np.uint16 if target == "f16" else np.float32, x)
    same(got.view(FORMATS[target][0]), [rounded(Fraction(float(v)), target, mode) for v in x], target)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_float_to_integer_rounds_and_clamps(target: str, source: str, mode: str) -> None:
    """cvt to an integer rounds by its mode and clamps to the range; NaN gives a fixed value that depends on the
    types."""
    dtype = FORMATS[source][0]
    x = np.array(
        [
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            1e9,
            -1e9,
            2147483648.0,
            1e19,
            -1e19,
            2.0**63,
            2.0**64,
            255.5,
            -128.5,
            np.inf,
            -np.inf,
            127.5,
        ],
        dtype,
    )
    bits = int(target[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    got = evaluate(f"cvt.{mode}.{target}.{source} {{d}}, {{0}};", f"u{max(16, bits) // 8}", x)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        if math.isinf(value):
            want = high if value > 0 else low
        else:
            exact = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](Fraction(value))
            want = max(low, min(high, exact))
        assert result == want & ((1 << max(16, bits)) - 1)
    nan = evaluate(f"cvt.{mode}.{target}.{source} {{d}}, {{0}};", f"u{max(16, bits) // 8}", np.array([np.nan], dtype))[
        0
    ]
    wide = source == "f64" or bits == 64
    assert int(nan) == (
        (1 << (bits - 1)) & ((1 << max(16, bits)) - 1)
        if wide and target[0] == "u"
        else (low if wide else 0) & ((1 << max(16, bits)) - 1)
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_integer_to_float(target: str, source: str, mode: str) -> None:
    """cvt from an integer rounds once by its mode, also near the ends of the integer range and of the float range."""
    bits = int(source[1:])
    rng = np.random.default_rng(3)
    raw = [0, 1, 16777217, (1 << bits) - 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << (bits - 1)) + 1]
    raw += [65503, 65504, 65505, 65519, 65520, 65521, 2**62 + 2**54 + 1, 2**62 + 3 * 2**54 - 1]
    raw += [
        int(v) >> int(s) & ((1 << bits) - 1)
        for v, s in zip(rng.integers(0, 2**63, 100), rng.integers(0, 62, 100), strict=True)
    ]
    x = np.array(raw, dtype=np.uint64).astype(f"u{bits // 8}")
    text = f"cvt.{mode}.{target}.{source} {{d}}, {{0}};"
    if target == "bf16":
        got = (evaluate(text, np.uint16, x).astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        got = evaluate(text, FORMATS[target][0], x)
    values = [v - (1 << bits) if source[0] == "s" and v >> (bits - 1) else v for v in x.tolist()]
    same(got, [rounded(Fraction(v), target, mode) for v in values], target)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_comparisons_with_nan(type_: str) -> None:
    """Ordered comparisons are false for NaN, unordered ones true."""
    dtype = FORMATS[type_][0]
    values = [1.0, 2.0, np.nan, -0.0, 0.0, np.inf]
    x = np.array([a for a in values for _ in values], dtype)
    y = np.array([b for _ in values for b in values], dtype)
    table = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, sign in table.items():
        for suffix in ("", "u"):
            text = f"setp.{name}{suffix}.{type_} %p2, {{0}}, {{1}}; selp.u32 {{d}}, 1, 0, %p2;"
            got = evaluate(text, np.uint32, x, y)
            for a, b, d in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
                unordered = math.isnan(a) or math.isnan(b)
                assert bool(d) == ((suffix == "u") if unordered else eval(f"a {sign} b"))


def test_extremes_prefer_numbers_and_order_zeros() -> None:
    """min and max ignore a NaN operand and order -0 below +0; with .NaN they return NaN."""
    x = np.array([np.nan, 1, 0.0, -0.0, np.nan], np.float32)
    y = np.array([1, np.nan, -0.0, 0.0, np.nan], np.float32)
    low = evaluate("min.f32 {d}, {0}, {1};", np.float32, x, y)
    high = evaluate("max.f32 {d}, {0}, {1};", np.float32, x, y)
    assert low[0] == low[1] == high[0] == high[1] == 1
    assert np.signbit(low[2:4]).all()
    assert not np.signbit(high[2:4]).any()
    assert np.isnan(evaluate("min.NaN.f32 {d}, {0}, {1};", np.float32, x, y)[[0, 1, 4]]).all()


def test_flush_and_saturate() -> None:
    """.ftz turns subnormals into zeros of their sign, .sat clamps to [0, 1] and NaN to 0."""
    x = np.array([1e-40, -1e-40, 2.0, np.nan, -1.0], np.float32)
    got = evaluate("mul.ftz.f32 {d}, {0}, {1};", np.float32, x, np.ones_like(x))
    assert (got[:2] == 0).all()
    assert np.signbit(got[1])
    got = evaluate("add.sat.f32 {d}, {0}, {1};", np.float32, x, np.zeros_like(x))
    assert got[2:].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sin", np.sin),
        ("cos", np.cos),
        ("ex2", np.exp2),
        ("lg2", np.log2),
        ("tanh", np.tanh),
        ("rsqrt", lambda v: 1 / np.sqrt(v)),
    ],
)
def test_approximations_are_as_good_as_the_format(name: str, function: object) -> None:
    """The .approx functions have a relative error of at most 1e-7."""
    x = np.abs(sample("f32", 200, 13, 4)) + np.float32(0.01)
    x = x[x < 100]
    got = evaluate(f"{name}.approx.f32 {{d}}, {{0}};", np.float32, x)
    np.testing.assert_allclose(got, function(x.astype(np.float64)), rtol=1e-7)  # type: ignore[operator]


def at_the_ends(count: int, seed: int) -> Array:
    """Return float64 values next to the ends of the range: subnormal, smallest normal, largest, and ordinary ones."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 2**64, count, dtype=np.uint64)
    values = np.where(rng.random(count) < 0.3, raw & np.uint64(0x800FFFFFFFFFFFFF), raw).view(np.float64)
    ends = [0.0, -0.0, 1.5, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**-537]
    values = np.where(rng.random(count) < 0.4, rng.choice(ends, count), values)
    return np.where(np.isfinite(values), values, 1.25)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_float64_at_the_ends_of_its_range(mode: str) -> None:
    """mul, fma, div and sqrt of float64 round once, also if their error terms are outside the range of float64."""
    x, y, z = (at_the_ends(700, seed) for seed in (1, 2, 3))
    with np.errstate(over="ignore"):
        product = x * y
    z = np.where(np.isfinite(product) & (np.arange(x.size) % 4 == 0), -product, z)
    f = [[Fraction(float(v)) for v in a] for a in (x, y, z)]
    got = evaluate(f"mul.{mode}.f64 {{d}}, {{0}}, {{1}};", np.float64, x, y)
    same(got, [rounded(a * b, "f64", mode) for a, b in zip(f[0], f[1], strict=True)], "f64")
    got = evaluate(f"fma.{mode}.f64 {{d}}, {{0}}, {{1}}, {{2}};", np.float64, x, y, z)
    same(got, [rounded(a * b + c, "f64", mode) for a, b, c in zip(*f, strict=True)], "f64")
    nonzero = np.where(y == 0, 3.0, y)
    got = evaluate(f"div.{mode}.f64 {{d}}, {{0}}, {{1}};", np.float64, x, nonzero)
    same(got, [rounded(a / Fraction(float(b)), "f64", mode) for a, b in zip(f[0], nonzero, strict=True)], "f64")
    squares = np.abs(x)
    got = evaluate(f"sqrt.{mode}.f64 {{d}}, {{0}};", np.float64, squares)
    same(got, [rounded(root(Fraction(float(v))), "f64", mode) for v in squares], "f64")


def test_a_product_that_overflows_is_finite_beside_an_infinite_addend() -> None:
    """fma gives NaN for an infinite operand and an infinite addend of the other sign, but not if a finite product
    overflows."""
    x, y, z = np.array([1e300, -1e300, np.inf]), np.full(3, 1e300), np.array([-np.inf, np.inf, -np.inf])
    for mode in ("rn", "rz", "rm", "rp"):
        got = evaluate(f"fma.{mode}.f64 {{d}}, {{0}}, {{1}}, {{2}};", np.float64, x, y, z)
        assert got[:2].tolist() == [-np.inf, np.inf]
        assert np.isnan(got[2])


def root(square: Fraction) -> Fraction:
    """Return the square root of a float as a fraction over 2^1401, whose last bit is set if the root is inexact."""
    scaled = square * 4**1400
    assert scaled.denominator == 1
    whole = math.isqrt(scaled.numerator)
    return Fraction(2 * whole + (whole * whole != scaled.numerator), 2**1401)


def test_bfloat16_fma_rounds_once() -> None:
    """fma of bfloat16 rounds once: a tiny addend decides if the product is halfway between two bfloat16 values."""
    rng = np.random.default_rng(4)
    x, y, z = (rng.integers(0, 2**16, 3000).astype(np.uint16) for _ in range(3))
    # 2^60 * (1 + 2^-7) * 2^-60 * (1 + 2^-1) is halfway between two bfloat16; a tiny addend decides.
    x[:2], y[:2], z[:2] = 0x5D81, 0x21C0, (0x0080, 0x8080)
    values = [(bits.astype(np.uint32) << 16).view(np.float32) for bits in (x, y, z)]
    finite = np.isfinite(values[0]) & np.isfinite(values[1]) & np.isfinite(values[2])
    got = evaluate("fma.rn.bf16 {d}, {0}, {1}, {2};", np.uint16, x, y, z)
    found = (got.astype(np.uint32) << 16).view(np.float32)[finite]
    exact = [tuple(Fraction(float(v)) for v in row) for row in zip(*(v[finite] for v in values), strict=True)]
    same(found, [rounded(a * b + c, "bf16", "rn") for a, b, c in exact], "bf16")


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_a_sum_that_cancels_is_a_negative_zero_when_rounding_down(type_: str) -> None:
    """A fused sum that cancels is -0 with .rm and +0 with .rp; a sum of zeros of one sign keeps that sign."""
    dtype = FORMATS[type_][0]
    x, y, z = np.array([3, -2, 0, -0.0], dtype), np.array([2, 2, 1, 1], dtype), np.array([-6, 4, -0.0, -0.0], dtype)
    for mode, negative in (("rm", [True, True, True, True]), ("rp", [False, False, False, True])):
        got = evaluate(f"fma.{mode}.{type_} {{d}}, {{0}}, {{1}}, {{2}};", dtype, x, y, z)
        assert (got == 0).all()
        assert np.signbit(got).tolist() == negative
