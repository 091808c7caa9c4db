"""mma.sync: fragments as the PTX ISA lays them out, the bits of TF32, the rounding of float64, absent lanes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cudabench.errors import UnsupportedFeature
from cudabench.simulator import api as simulator
from tests.simulator.conftest import HEAD

Array = np.ndarray[Any, Any]

# Row and column of element i of lane's fragment, word for word from the figures of the PTX ISA ("Matrix Fragments for
# mma.m8n8k4" and so on): g is groupID = lane >> 2, t threadID_in_group = lane % 4.
Place = Callable[[int, int, int], tuple[int, int]]
FIGURES: dict[str, tuple[Place, Place, Place]] = {
    "m8n8k4.f64": (
        lambda g, t, i: (g, t),
        lambda g, t, i: (t, g),
        lambda g, t, i: (g, t * 2 + (i & 1)),
    ),
    "m16n8k4.f64": (
        lambda g, t, i: (g if i == 0 else g + 8, t),
        lambda g, t, i: (t, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k8.f64": (
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k16.f64": (
        lambda g, t, i: (g if i % 2 == 0 else g + 8, i // 2 * 4 + t),
        lambda g, t, i: (i * 4 + t, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k4.tf32": (
        lambda g, t, i: (g if i == 0 else g + 8, t),
        lambda g, t, i: (t, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k8.tf32": (
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
}


def shape(name: str) -> tuple[int, int, int]:
    """Return m, n and k of a figure's name."""
    m, _, rest = name.partition(".")[0][1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


def program(name: str, *, rounding: str = "", before: str = "") -> str:
    """Return PTX that multiplies: each lane loads its fragments, element i of lane l from place 32 * i + l."""
    m, n, k = shape(name)
    type_ = name.partition(".")[2]
    inner, outer, width = ("b32", "f32", 4) if type_ == "tf32" else ("f64", "f64", 8)
    counts = {"a": m * k // 32, "b": k * n // 32, "c": m * n // 32}
    lines = [HEAD, ".visible .entry k(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c)\n{\n"]
    lines.append(".reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %a<9>;\n")
    lines += [f".reg .{outer if x == 'c' else inner} %{x}x<{count}>;\n" for x, count in counts.items()]
    lines.append(f".reg .{outer} %dx<{counts['c']}>;\n")
    lines.append("mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r1, %r3, %r2;\n")
    lines.append("and.b32 %r5, %r4, 31; shr.u32 %r6, %r4, 5;\n")

    def access(op: str, parameter: str, register: str, count: int) -> None:
        lines.append(f"mul.lo.u32 %r7, %r6, {32 * count}; add.u32 %r7, %r7, %r5; ld.param.u64 %a1, [{parameter}];\n")
        lines.append(f"mul.wide.u32 %a2, %r7, {width}; add.u64 %a1, %a1, %a2;\n")
        for i in range(count):
            place = f"[%a1+{32 * i * width}]"
            both = f"%{register}x{i}, {place}" if op == "ld" else f"{place}, %{register}x{i}"
            lines.append(f"{op}.global.b{8 * width} {both};\n")

    for x, count in counts.items():
        access("ld", x, x, count)
    group = {x: "{" + ", ".join(f"%{x}x{i}" for i in range(counts["c" if x == "d" else x])) + "}" for x in "dabc"}
    kind = f"{outer}.{type_}.{type_}.{outer}"
    full = f"mma.sync.aligned.{name.partition('.')[0]}.row.col.{kind}{rounding}"
    lines.append(f".loc 1 7 1\n{before}{full} {', '.join(group[x] for x in 'dabc')};\n")
    access("st", "out", "d", counts["c"])
    return "".join([*lines, "ret;\n}\n"])


def spread(matrices: Array, place: Place) -> Array:
    """Return the fragments of matrices (warps, rows, columns) as (warps, elements, lanes)."""
    count = matrices[0].size // 32
    found = np.empty((len(matrices), count, 32), matrices.dtype)
    for i in range(count):
        for lane in range(32):
            row, column = place(lane >> 2, lane % 4, i)
            found[:, i, lane] = matrices[:, row, column]
    return found


def multiply(name: str, a: Array, b: Array, c: Array, rounding: str = "") -> Array:
    """Return C of each warp after the instruction; each matrix has one warp, and a block has two warps."""
    of_a, of_b, of_c = FIGURES[name]
    out = np.zeros_like(spread(c, of_c))
    arguments = [out, spread(a, of_a), spread(b, of_b), spread(c, of_c)]
    report = simulator.run(program(name, rounding=rounding), "k", len(a) // 2, 64, arguments)
    assert report.hazards == ()
    found = np.full_like(c, np.nan)
    for i in range(out.shape[1]):
        for lane in range(32):
            row, column = of_c(lane >> 2, lane % 4, i)
            found[:, row, column] = out[:, i, lane]
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_fragments_lie_as_the_ptx_isa_says(name: str) -> None:
    """Each element of a matrix is in the lane that the PTX ISA names, in four warps of two blocks; small integers are
    exact in every type."""
    m, n, k = shape(name)
    rng = np.random.default_rng(1)
    dtype = np.float32 if name.endswith("tf32") else np.float64
    a, b, c = (rng.integers(-99, 99, (4, *sides)).astype(dtype) for sides in ((m, k), (k, n), (m, n)))
    np.testing.assert_array_equal(multiply(name, a, b, c), a @ b + c)


def test_tf32_reads_the_upper_bits() -> None:
    """mma.sync of TF32 ignores the lower 13 bits of A and B, but not those of C."""
    a, b, c = (np.zeros((2, *sides), np.float32) for sides in ((16, 8), (8, 8), (16, 8)))
    a[:, 3, 5], b[:, 5, 2], c[:, 3, 2] = 1 + 2**-10 + 2**-11, 3, 2**-13
    found = multiply("m16n8k8.tf32", a, b, c)
    assert found[0, 3, 2] == 3 + 3 * 2**-10 + 2**-13
    assert np.count_nonzero(found) == 2


@pytest.mark.parametrize("rounding", ["", ".rn", ".rz", ".rm", ".rp"])
def test_float64_rounds_after_each_product(rounding: str) -> None:
    """mma.sync of float64 is a chain of fused multiply-adds along k, each rounded by the mode of the instruction."""
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal((2, *sides)) for sides in ((16, 8), (8, 8), (16, 8)))
    found = multiply("m16n8k8.f64", a, b, c, rounding)
    for row, column in ((0, 0), (5, 7), (12, 3), (15, 6)):
        value = float(c[1, row, column])
        for i in range(8):
            exact = Fraction(float(a[1, row, i])) * Fraction(float(b[1, i, column])) + Fraction(value)
            value = float(exact)
            down = rounding == ".rm" or (rounding == ".rz" and exact > 0)
            up = rounding == ".rp" or (rounding == ".rz" and exact < 0)
            if down and value > exact:
                value = float(np.nextafter(value, -np.inf))
            elif up and value < exact:
                value = float(np.nextafter(value, np.inf))
        assert found[1, row, column] == value


def test_not_a_number_passes_through() -> None:
    """A NaN in A, also one that marks an undefined value, makes its row of the result NaN; a NaN in C makes its element
    NaN."""
    a, b, c = (np.ones((2, *sides), np.float32) for sides in ((16, 8), (8, 8), (16, 8)))
    a.view(np.uint32)[:, 2, 1] = 0xFFFFFFFF
    c[:, 9, 4] = np.nan
    expected = np.zeros((16, 8), bool)
    expected[2], expected[9, 4] = True, True
    np.testing.assert_array_equal(np.isnan(multiply("m16n8k8.tf32", a, b, c)[1]), expected)


def test_a_lane_that_stays_away_is_a_hazard() -> None:
    """mma.sync is a hazard if a lane of the warp takes another branch; a lane that has exited may be absent."""
    arrays = [np.ones(4 * 32, np.float32) for _ in range(4)]
    text = program("m16n8k8.tf32", before="setp.eq.u32 %p1, %r5, 3; @%p1 exit;\n")
    assert simulator.run(text, "k", 1, 32, arrays).hazards == ()
    text = program("m16n8k8.tf32", before="setp.eq.u32 %p1, %r5, 3; @%p1 bra AFTER;\n")
    text = text.replace("ret;\n", "AFTER: bar.sync 0; ret;\n")
    (hazard,) = simulator.run(text, "k", 1, 32, arrays).hazards
    assert (hazard.kind, hazard.line) == ("invalid-mask", 7)


@pytest.mark.parametrize(
    "words", ["m8n8k4.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.tf32.tf32.f32", "m16n8k16.row.col.f32.s8.s8.f32"]
)
def test_other_types_are_refused(words: str) -> None:
    """mma.sync of an unsupported type or shape ends the launch with an error that names the line."""
    text = HEAD + ".visible .entry k()\n{\n.reg .b32 %r<9>;\n.loc 1 7 1\n"
    text += f"mma.sync.aligned.{words} {{%r1}}, {{%r2}}, {{%r3}}, {{%r1}};\nret;\n}}\n"
    with pytest.raises(UnsupportedFeature, match=r"snippet\.cu:7: tensor cores with other types"):
        simulator.run(text, "k", 1, 32, [])
