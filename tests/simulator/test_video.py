"""Scalar video instructions against their definition (PTX ISA 9.7.17)."""

from __future__ import annotations

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from tests.simulator.conftest import evaluate

WORDS = np.array(
    [0, 1, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12F486A9, 0xDEADBEEF],
    np.uint32,
)
A, B = (grid.ravel() for grid in np.meshgrid(WORDS, WORDS))
C = np.roll(A, 5) ^ np.uint32(0x01020304)


def part(word: int, selector: str, signed: bool) -> int:
    """Return a part of a word as a number."""
    bits = {"b": 8, "h": 16, "": 32}[selector[:1]]
    value = word >> bits * int(selector[1:] or 0) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> bits - 1 else value


def clamp(value: int, bits: int, signed: bool) -> int:
    """Return the number of this many bits that is nearest to `value`."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


COMPUTE = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}


@pytest.mark.parametrize("name", COMPUTE)
@pytest.mark.parametrize(
    ("types", "saturated", "selectors"),
    [("s32.s32.s32", True, ("", "")), ("u32.s32.u32", True, ("b3", "h1")), ("s32.u32.s32", False, ("h0", "b1"))],
)
def test_arithmetic(name: str, types: str, saturated: bool, selectors: tuple[str, str]) -> None:
    """An operation extends the parts by their types, and saturates its result to the result's type, or wraps."""
    kinds = [kind == "s32" for kind in types.split(".")]
    dots = [f".{selector}" if selector else "" for selector in selectors]
    text = f"{name}.{types}{'.sat' if saturated else ''} {{d}}, {{0}}{dots[0]}, {{1}}{dots[1]};"
    expected = []
    for a, b in zip(A.tolist(), B.tolist(), strict=True):
        value = COMPUTE[name](part(a, selectors[0], kinds[1]), part(b, selectors[1], kinds[2]))
        expected.append((clamp(value, 32, kinds[0]) if saturated else value) & 0xFFFFFFFF)
    np.testing.assert_array_equal(evaluate(text, np.uint32, A, B), np.array(expected, np.uint32))


@pytest.mark.parametrize("second", ["add", "min", "max"])
def test_second_operation(second: str) -> None:
    """The second operation (add, min, max) combines the saturated difference with c."""
    combine = {"add": lambda x, c: x + c, "min": min, "max": max}[second]
    found = evaluate(f"vabsdiff.u32.u32.u32.sat.{second} {{d}}, {{0}}.b0, {{1}}.b2, {{2}};", np.uint32, A, B, C)
    expected = [
        combine(abs(part(a, "b0", False) - part(b, "b2", False)), c) & 0xFFFFFFFF
        for a, b, c in zip(A.tolist(), B.tolist(), C.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))


def test_merge() -> None:
    """With a destination selector, the instruction writes one byte of c and keeps the rest."""
    found = evaluate("vadd.s32.s32.s32 {d}.b1, {0}.b0, {1}.h1, {2};", np.uint32, A, B, C)
    expected = [
        (c & ~0xFF00) | (part(a, "b0", True) + part(b, "h1", True) & 0xFF) << 8
        for a, b, c in zip(A.tolist(), B.tolist(), C.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))


@pytest.mark.parametrize(("text", "compare"), [("vset.s32.u32.lt", int.__lt__), ("vset.u32.u32.ge", int.__ge__)])
def test_comparison(text: str, compare: object) -> None:
    """vset returns 1 if the comparison holds, else 0."""
    signed = ".s32" in text
    found = evaluate(f"{text} {{d}}, {{0}}.h0, {{1}}.b0;", np.uint32, A, B)
    expected = [
        compare(part(a, "h0", signed), part(b, "b0", False))  # type: ignore[operator]
        for a, b in zip(A.tolist(), B.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_shifts(mode: str) -> None:
    """With .clamp the shift count is at most 32, with .wrap it is modulo 32; a right shift of a signed number shifts
    its sign in."""
    counts = B % np.uint32(70)
    used = [min(count, 32) if mode == "clamp" else count % 32 for count in counts.tolist()]
    left = [(a << n) & 0xFFFFFFFF for a, n in zip(A.tolist(), used, strict=True)]
    right = [(part(a, "", True) >> n) & 0xFFFFFFFF for a, n in zip(A.tolist(), used, strict=True)]
    for text, expected in (("vshl.u32.u32.u32", left), ("vshr.s32.s32.u32", right)):
        found = evaluate(f"{text}.{mode} {{d}}, {{0}}, {{1}};", np.uint32, A, counts)
        np.testing.assert_array_equal(found, np.array(expected, np.uint32))


@pytest.mark.parametrize(
    ("text", "shift"),
    [("vmad.s32.s32.u32.sat.shr7", 7), ("vmad.s32.u32.s32.po.shr15", 15), ("vmad.u32.u32.u32.po", 0)],
)
def test_multiply_and_add(text: str, shift: int) -> None:
    """vmad adds c to the full product of two halves, then shifts, then saturates."""
    found = evaluate(f"{text} {{d}}, {{0}}.h1, {{1}}.h0, {{2}};", np.uint32, A, B, C)
    a, b = (kind == "s32" for kind in text.split(".")[2:4])
    expected = []
    for x, y, z in zip(A.tolist(), B.tolist(), C.tolist(), strict=True):
        total = part(x, "h1", a) * part(y, "h0", b) + part(z, "", a or b) + (".po" in text) >> shift
        expected.append((clamp(total, 32, True) if "sat" in text else total) & 0xFFFFFFFF)
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))


@pytest.mark.parametrize(
    "text", ["vadd.s32.s32.s32.sat {d}.b1, {0}, {1}, {0};", "vmad.u32.u32.u32.shr7 {d}, {0}, {1}, {1};"]
)
def test_what_ptxas_computes_otherwise_is_refused(text: str) -> None:
    """The simulator refuses two forms whose results on an H200 differ from the PTX manual: a saturated part, and a
    shifted vmad (by the sign of c)."""
    with pytest.raises(simulator.UnsupportedKernel, match="ptxas"):
        evaluate(text, np.uint32, A, B)


def test_a_part_that_no_register_has_is_refused() -> None:
    """The simulator refuses the selector `.h2`, which a 32-bit register does not have."""
    with pytest.raises(simulator.UnsupportedKernel, match="vadd"):
        evaluate("vadd.u32.u32.u32 {d}, {0}.h2, {1};", np.uint32, A, B)
