"""Small instructions with known answers: conversions of 8-bit floats, SIMD integers, clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudabench.simulator import api as simulator
from tests.simulator.conftest import evaluate

Array = np.ndarray[Any, Any]
Launch = Callable[..., simulator.Report]
FORMATS = {"e4m3x2": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2x2": (ml_dtypes.float8_e5m2, 57344.0)}


@pytest.mark.parametrize("name", FORMATS)
def test_all_values_are_themselves(name: str) -> None:
    """Each pair of finite 8-bit values survives a conversion to float16 and back; a NaN becomes the one NaN, an
    infinity the largest value."""
    low, high = np.meshgrid(np.arange(256, dtype=np.uint16), np.arange(256, dtype=np.uint16))
    pairs = (low | high << 8).reshape(-1).astype(np.uint16)
    halves = evaluate(f"cvt.rn.f16x2.{name} {{d}}, {{0}};", np.uint32, pairs)
    expected = pairs.view(np.uint8).view(FORMATS[name][0]).astype(np.float16)
    found = halves.view(np.float16)
    np.testing.assert_array_equal(found, expected)
    assert (found.view(np.uint16)[np.isnan(found)] == 0x7FFF).all()
    back = evaluate(f"cvt.rn.satfinite.{name}.f16x2 {{d}}, {{0}};", np.uint16, halves).view(np.uint8)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(back[finite], pairs.view(np.uint8)[finite])
    assert (back[np.isnan(expected)] == 0x7F).all()
    largest = np.where(expected > 0, 0x7B, 0xFB)
    np.testing.assert_array_equal(back[np.isinf(expected)], largest[np.isinf(expected)])


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_to_eight_bits(name: str) -> None:
    """A conversion to 8 bits gives the nearest finite value, ties to even, and saturates at the largest value."""
    dtype, limit = FORMATS[name]
    values = np.unique(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64))
    values = values[np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / 2
    rng = np.random.default_rng(1)
    x = np.concatenate([
        values, middles, np.nextafter(middles.astype(np.float32), np.float32(np.inf)),
        np.nextafter(middles.astype(np.float32), np.float32(-np.inf)), [3e38, -3e38, np.inf, -np.inf, 1e-30, -1e-30],
        rng.standard_normal(500) * 10.0 ** rng.integers(-9, 6, 500),
    ]).astype(np.float32)  # fmt: skip
    bits = evaluate(f"cvt.rn.satfinite.{name}.f32 {{d}}, {{0}}, {{1}};", np.uint16, x, x[::-1].copy())
    upper, lower = (bits >> 8).astype(np.uint8), bits.astype(np.uint8)
    np.testing.assert_array_equal(upper, lower[::-1])
    got = upper.view(dtype).astype(np.float64)
    wide = np.clip(x.astype(np.float64), -limit, limit)
    distance = np.abs(values[None] - wide[:, None])
    assert (np.abs(got - wide) == distance.min(axis=1)).all()
    tied = (distance == distance.min(axis=1, keepdims=True)).sum(axis=1) > 1
    assert tied.sum() > 100
    assert (upper[tied] & 1 == 0).all()
    assert (np.signbit(got) == np.signbit(x)).all()


def test_relu_and_not_a_number() -> None:
    """With .relu a negative value or -0 becomes 0, and NaN stays NaN."""
    x = np.array([-1, -0.0, 0, 2, np.nan, -np.nan, -np.inf], np.float32)
    bits = evaluate("cvt.rn.satfinite.relu.e4m3x2.f32 {d}, {0}, {0};", np.uint16, x).astype(np.uint8)
    np.testing.assert_array_equal(bits, [0, 0, 0, 0x40, 0x7F, 0x7F, 0])
    pairs = np.array([0x40C0, 0x7F80], np.uint16)
    half = evaluate("cvt.rn.relu.f16x2.e4m3x2 {d}, {0};", np.uint32, pairs)
    np.testing.assert_array_equal(half, [0x40000000, 0x7FFF0000])


SIMD = {
    "vadd4.u32.u32.u32": lambda a, b: (a + b) & 255,
    "vadd4.s32.s32.s32.sat": lambda a, b: np.clip(a + b, -128, 127),
    "vsub4.u32.u32.u32.sat": lambda a, b: np.clip(a - b, 0, 255),
    "vabsdiff4.u32.u32.u32": lambda a, b: abs(a - b),
    "vmin4.s32.s32.s32": np.minimum, "vmax4.u32.u32.u32": np.maximum,
    "vavrg4.s32.s32.s32": lambda a, b: np.where(a + b < 0, -((-(a + b) + 1) // 2), (a + b + 1) // 2),
    "vset4.u32.u32.gt": lambda a, b: (a > b).astype(int),
    "vadd2.s32.s32.s32.sat": lambda a, b: np.clip(a + b, -32768, 32767),
    "vabsdiff2.u32.u32.u32": lambda a, b: abs(a - b),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMD)
def test_simd_integers(name: str) -> None:
    """A SIMD instruction works on each part of a register separately; with .add it adds the sum of the parts to c."""
    rng = np.random.default_rng(2)
    a, b, c = (rng.integers(0, 2**32, 300, dtype=np.uint32) for _ in range(3))
    signed = ".s32.s32" in name
    dtype = np.dtype(f"{'i' if signed else 'u'}{4 // int(name.partition('.')[0][-1])}")
    parts = SIMD[name](a.view(dtype).astype(int), b.view(dtype).astype(int))
    found = evaluate(f"{name} {{d}}, {{0}}, {{1}}, {{2}};", np.uint32, a, b, c)
    np.testing.assert_array_equal(found, parts.astype(dtype).view(np.uint32))
    if not name.startswith(("vadd", "vsub")):
        added = evaluate(f"{name}.add {{d}}, {{0}}, {{1}}, {{2}};", np.uint32, a, b, c)
        total = parts.reshape(300, -1).sum(axis=1) + c.astype(int)
        np.testing.assert_array_equal(added, (total % 2**32).astype(np.uint32))


def test_clocks_count_instructions(launch: Launch) -> None:
    """clock() advances with each instruction, a longer loop takes more clocks, and a loop that waits on clock64()
    ends."""
    source = """
extern "C" __global__ void k(long long *o, float *x, int n) {
  int c0 = clock(), c1 = clock();
  long long start = clock64();
  for (int i = 0; i < n; i++) x[threadIdx.x] += 1;
  o[0] = c1 - c0;
  o[1] = clock64() - start;
  unsigned long long t, u;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  while (clock64() - start < 5000) { }
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(u));
  o[2] = u - t;
}
"""
    x = np.zeros(32, np.float32)
    times = []
    for n in (10, 100):
        out = np.zeros(3, np.int64)
        launch(source, 1, 32, [out, x, n])
        assert 1 <= out[0] <= 4
        assert out[2] > 3000
        times.append(int(out[1]))
    assert 3 * times[0] < times[1] < 20 * times[0]


@pytest.mark.parametrize(("flush", "expected"), [("", 0x3C003C00), (".ftz", 0x3C000000)])
def test_comparisons_of_pairs_flush_subnormals(flush: str, expected: int) -> None:
    """set.ftz takes a subnormal half of a pair for zero; without .ftz the half is greater than zero."""
    x = np.array([0x3C000001], np.uint32)  # the halves 1.0 and the smallest subnormal
    found = evaluate(f"set.gt{flush}.f16x2.f16x2 {{d}}, {{0}}, {{1}};", np.uint32, x, np.zeros(1, np.uint32))
    assert found[0] == expected


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
def test_comparisons_of_pairs_are_combined_with_a_predicate(combine: str) -> None:
    """setp and set with .and, .or or .xor combine the results of both halves of a pair with a third predicate."""
    x, given = np.array([0x3C00BC00, 0x3C00BC00], np.uint32), np.array([0, 1], np.uint32)  # the halves 1.0 and -1.0
    found = evaluate(
        f"{{{{ .reg .pred p, q, r; .reg .b32 low, high; setp.ne.u32 r, {{1}}, 0; setp.gt.{combine}.f16x2 p|q, {{0}}, "
        "{2}, r; selp.b32 low, 1, 0, p; selp.b32 high, 2, 0, q; or.b32 {d}, low, high; }}",
        np.uint32, x, given, np.zeros(2, np.uint32),
    )  # fmt: skip
    expected = {"and": [0, 2], "or": [2, 3], "xor": [2, 1]}[combine]
    assert found.tolist() == expected
    found = evaluate(
        f"{{{{ .reg .pred r; setp.ne.u32 r, {{1}}, 0; set.gt.{combine}.f16x2.f16x2 {{d}}, {{0}}, {{2}}, r; }}}}",
        np.uint32, x, given, np.zeros(2, np.uint32),
    )  # fmt: skip
    assert found.tolist() == [0x3C00 * (halves & 1) | 0x3C000000 * (halves >> 1) for halves in expected]
