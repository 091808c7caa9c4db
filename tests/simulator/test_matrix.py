"""mma.sync of packed types, ldmatrix, stmatrix, movmatrix and wmma: fragments as the PTX ISA lays them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudabench.simulator import api as simulator
from tests.simulator.conftest import HEAD

Array = np.ndarray[Any, Any]
Launch = Callable[..., simulator.Report]
Place = Callable[[int, int, int], tuple[int, int]]


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    """Return row and column of element i of C, in all shapes."""
    return (g if i < 2 else g + 8, t * 2 + (i & 1))


# Row and column of element i of a lane's fragments of A and B, word for word from the figures of the PTX ISA ("Matrix
# Fragments for mma.m16n8k16 with ..."): g is groupID = lane >> 2, t threadID_in_group = lane % 4.
FIGURES: dict[str, tuple[Place, Place]] = {
    "m16n8k8.16": (
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        lambda g, t, i: (t * 2 + (i & 1), g),
    ),
    "m16n8k16.16": (
        lambda g, t, i: (g if 0 <= i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
        lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
    ),
    "m8n8k16.8": (lambda g, t, i: (g, t * 4 + i), lambda g, t, i: (t * 4 + i, g)),
    "m16n8k16.8": (
        lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        lambda g, t, i: (t * 4 + i, g),
    ),
    "m16n8k32.8": (
        lambda g, t, i: (g if 0 <= i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
        lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
    ),
    "m8n8k32.4": (lambda g, t, i: (g, t * 8 + i), lambda g, t, i: (t * 8 + i, g)),
    "m16n8k32.4": (
        lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
        lambda g, t, i: (t * 8 + i, g),
    ),
    "m16n8k64.4": (
        lambda g, t, i: (g if 0 <= i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (0 if i < 16 else 32)),
        lambda g, t, i: (t * 8 + (i & 7) + (0 if i < 8 else 32), g),
    ),
    "m8n8k128.1": (lambda g, t, i: (g, t * 32 + i), lambda g, t, i: (t * 32 + i, g)),
    "m16n8k128.1": (
        lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
        lambda g, t, i: (t * 32 + i, g),
    ),
    "m16n8k256.1": (
        lambda g, t, i: (g if 0 <= i < 32 or 64 <= i < 96 else g + 8, t * 32 + (i & 31) + (0 if i < 64 else 128)),
        lambda g, t, i: (t * 32 + (i & 31) + (0 if i < 32 else 128), g),
    ),
}
BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4, "b1": 1}


def sides(shape: str) -> tuple[int, int, int]:
    """Return m, n and k of 'm16n8k16'."""
    m, _, rest = shape[1:].partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


def packed(matrix: Array, place: Place, type_: str) -> Array:
    """Return the fragments of one matrix of small integers as registers (lanes, registers)."""
    bits = BITS[type_]
    count = matrix.size // 32
    elements = np.array([[matrix[place(lane >> 2, lane % 4, i)] for i in range(count)] for lane in range(32)])
    if type_ == "f16":
        return elements.astype(np.float16).view(np.uint32)
    if type_ == "bf16":
        return elements.astype(ml_dtypes.bfloat16).view(np.uint32)
    if type_ in ("e4m3", "e5m2"):
        fp8 = ml_dtypes.float8_e4m3fn if type_ == "e4m3" else ml_dtypes.float8_e5m2
        return elements.astype(fp8).view(np.uint32)
    each = 32 // bits
    held = (elements & ((1 << bits) - 1)).astype(np.uint32).reshape(32, -1, each)
    return np.bitwise_or.reduce(held << (bits * np.arange(each, dtype=np.uint32)), axis=-1)


def multiply(words: str, a: Array, b: Array, c: Array) -> Array:
    """Return C after one warp's mma.sync on matrices of small integers; `words` follow `aligned` in the instruction."""
    shape, _, _, outer, type_a, type_b, *_ = words.replace(".satfinite", "").split(".")
    m, n, _ = sides(shape)
    of_a, of_b = FIGURES[f"{shape}.{BITS[type_a]}"]
    inputs = [packed(a, of_a, type_a), packed(b, of_b, type_b)]
    held = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[outer]
    count = m * n // 32
    fragment = np.array([[c[c_place(lane >> 2, lane % 4, i)] for i in range(count)] for lane in range(32)], held)
    inputs.append(fragment.view(np.uint32))
    out = np.zeros_like(inputs[2])
    lines = [HEAD, ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{\n"]
    lines.append(".reg .b32 %r<3>; .reg .b64 %p<3>; .reg .b32 %x<99>;\nmov.u32 %r1, %tid.x;\n")
    groups, place = [], 0
    for name, array in zip("abc", inputs, strict=True):
        registers = [f"%x{place + i}" for i in range(array.shape[1])]
        place += len(registers)
        lines.append(f"ld.param.u64 %p1, [{name}]; mad.wide.u32 %p1, %r1, {4 * len(registers)}, %p1;\n")
        lines += [f"ld.global.b32 {register}, [%p1+{4 * i}];\n" for i, register in enumerate(registers)]
        groups.append("{" + ", ".join(registers) + "}")
    results = [f"%x{place + i}" for i in range(out.shape[1])]
    lines.append(f".loc 1 7 1\nmma.sync.aligned.{words} {{{', '.join(results)}}}, {', '.join(groups)};\n")
    lines.append(f"ld.param.u64 %p1, [d]; mad.wide.u32 %p1, %r1, {4 * len(results)}, %p1;\n")
    lines += [f"st.global.b32 [%p1+{4 * i}], {register};\n" for i, register in enumerate(results)]
    report = simulator.run("".join([*lines, "ret;\n}\n"]), "k", 1, 32, [*inputs, out])
    assert report.hazards == ()
    found = np.zeros((m, n))
    values = out.view(held)
    for lane in range(32):
        for i in range(count):
            found[c_place(lane >> 2, lane % 4, i)] = values[lane, i]
    return found


@pytest.mark.parametrize(
    "words",
    [
        "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f16.f16.f16.f16",
        "m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k32.row.col.f32.e4m3.e5m2.f32", "m16n8k32.row.col.f16.e5m2.e5m2.f16",
        "m8n8k16.row.col.s32.s8.u8.s32", "m16n8k16.row.col.s32.u8.s8.s32", "m16n8k32.row.col.s32.s8.s8.s32",
        "m8n8k32.row.col.s32.s4.u4.s32", "m16n8k32.row.col.s32.u4.s4.s32", "m16n8k64.row.col.s32.s4.s4.s32",
        "m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "m16n8k128.row.col.s32.b1.b1.s32.and.popc",
        "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    ],
)  # fmt: skip
def test_fragments_lie_as_the_ptx_isa_says(words: str) -> None:
    """Each element of a matrix is in the lane and the part of a register that the PTX ISA names; small integers are
    exact in every type."""
    shape, _, _, _, type_a, type_b, *_ = words.split(".")
    m, n, k = sides(shape)
    rng = np.random.default_rng(1)

    def draw(type_: str, *extents: int) -> Array:
        low, high = {"u": (0, 16), "b": (0, 2)}.get(type_[0], (-8, 8))
        high = 2 if type_ == "b1" else high
        low = -8 if type_ == "bf16" else low
        high = 8 if type_ == "bf16" else high
        if type_ in ("e4m3", "e5m2", "f16"):
            low, high = -4, 5
        return rng.integers(low, high, extents)

    a, b, c = draw(type_a, m, k), draw(type_b, k, n), rng.integers(-50, 50, (m, n))
    expected = (a[:, :, None] ^ b[None]).sum(axis=1) + c if "xor" in words else a @ b + c
    np.testing.assert_array_equal(multiply(words, a, b, c), expected)


def test_integers_wrap_or_stop() -> None:
    """The sum of integers wraps around; with .satfinite it saturates at the largest integer."""
    a, b, c = np.full((16, 32), 127), np.full((32, 8), 127), np.full((16, 8), 2**31 - 5)
    total = 127 * 127 * 32 + 2**31 - 5
    np.testing.assert_array_equal(multiply("m16n8k32.row.col.s32.s8.s8.s32", a, b, c), total - 2**32)
    stopped = multiply("m16n8k32.row.col.satfinite.s32.s8.s8.s32", a, b, c)
    np.testing.assert_array_equal(stopped, 2**31 - 1)


MATRICES = """
extern "C" __global__ void k(const unsigned short *in, unsigned *plain, unsigned *turned, unsigned short *out,
                             unsigned *moved) {
  __shared__ __align__(16) unsigned short tile[32][24], back[32][16];
  int lane = threadIdx.x;
  for (int i = 0; i < 8; i++) tile[lane][i] = in[lane * 8 + i];
  __syncthreads();
  unsigned address = (unsigned)__cvta_generic_to_shared(&tile[lane][0]), r[4], s[4], t[2], u, v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3]) : "r"(address));
  // Only lanes 0 to 15 (x2) and 0 to 7 (x1) give addresses: those of the others are anything.
  unsigned odd = lane < 16 ? address : 12345u;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(t[0]), "=r"(t[1]) : "r"(odd));
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(u) : "r"(lane < 8 ? address : 1u));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(r[1]));
  for (int i = 0; i < 4; i++) plain[i * 32 + lane] = r[i], turned[i * 32 + lane] = s[i];
  moved[lane] = v - s[1] + (t[0] - r[0]) + (t[1] - r[1]) + (u - s[0]);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"((unsigned)__cvta_generic_to_shared(&back[lane][0])), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]));
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
               :: "r"((unsigned)__cvta_generic_to_shared(&back[lane][8])), "r"(s[2]), "r"(s[3]));
  __syncthreads();
  for (int i = 0; i < 16; i++) out[lane * 16 + i] = i < 8 || lane < 16 ? back[lane][i] : 0;
}
"""


def test_matrices_of_sixteen_bits(launch: Launch) -> None:
    """ldmatrix gives lane l the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4, or of column l / 4 with .trans;
    stmatrix stores them back."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 65536, (4, 8, 8), dtype=np.uint16)
    plain, turned, moved = (np.zeros((count, 32), np.uint32) for count in (4, 4, 1))
    out = np.zeros((32, 16), np.uint16)
    report = launch(MATRICES, 1, 32, [rows, plain, turned, out, moved])
    assert report.hazards == ()
    lane = np.arange(32)
    for found, of in ((plain, rows), (turned, rows.transpose(0, 2, 1))):
        low, high = of[:, lane // 4, 2 * (lane % 4)], of[:, lane // 4, 2 * (lane % 4) + 1]
        np.testing.assert_array_equal(found, low.astype(np.uint32) | high.astype(np.uint32) << 16)
    np.testing.assert_array_equal(moved, 0)
    np.testing.assert_array_equal(out[:, :8], rows.reshape(32, 8))
    np.testing.assert_array_equal(out[:16, 8:], rows[2:].reshape(16, 8))
    lines = {access.line: access for access in report.accesses if access.op == "load" and access.space == "shared"}
    assert (lines[9].requests, lines[9].wavefronts, lines[9].ideal_wavefronts) == (1, 4, 4)


WMMA = """
#include <mma.h>
using namespace nvcuda;
template <int M, int N, int K, class A, class C, class LA, class LB>
__device__ void product(const A *a, const A *b, const C *c, C *d, int la, int lb, wmma::layout_t lc, int ldc) {
  wmma::fragment<wmma::matrix_a, M, N, K, A, LA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, A, LB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, C> fc;
  wmma::load_matrix_sync(fa, a, la);
  wmma::load_matrix_sync(fb, b, lb);
  wmma::load_matrix_sync(fc, c, ldc, lc);
  for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(d, fc, ldc, lc);
}
typedef wmma::row_major R;
typedef wmma::col_major T;
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "order", ["RT", *(pytest.param(order, marks=pytest.mark.slow) for order in ("RR", "TR", "TT"))]
)
@pytest.mark.parametrize(
    ("m", "n", "k", "ctype", "dtype", "outer"),
    [
        (16, 16, 16, "half", np.float16, np.float32), (32, 8, 16, "half", np.float16, np.float32),
        (8, 32, 16, "half", np.float16, np.float16), (16, 16, 16, "signed char", np.int8, np.int32),
        (8, 32, 16, "unsigned char", np.uint8, np.int32), (32, 8, 16, "signed char", np.int8, np.int32),
        (16, 16, 16, "__nv_bfloat16", ml_dtypes.bfloat16, np.float32), (8, 8, 4, "double", np.float64, np.float64),
    ],
)  # fmt: skip
def test_wmma(
    compiled: Callable[..., simulator.Program], m: int, n: int, k: int, ctype: str, dtype: Any, outer: Any, order: str
) -> None:
    """Two warps compute D = A B + 2 C of small integers, in every layout, with a stride larger than a row."""
    rng = np.random.default_rng(4)
    names = {np.float32: "float", np.float16: "half", np.int32: "int", np.float64: "double"}
    layout = "wmma::mem_row_major" if order == "RR" else "wmma::mem_col_major"
    arrays, strides = [], []
    matrices = [rng.integers(0, 5, (2, *extents)) for extents in ((m, k), (k, n), (m, n))]
    for matrix, row, kind in zip(
        matrices, (order[0] == "R", order[1] == "R", order == "RR"), (dtype, dtype, outer), strict=True
    ):
        data = matrix if row else matrix.transpose(0, 2, 1)
        padded = np.zeros((*data.shape[:2], data.shape[2] + 16), kind)
        padded[..., : data.shape[2]] = data
        arrays.append(padded)
        strides.append(padded.shape[2])
    out = np.zeros_like(arrays[2])
    arguments = f"{m}, {n}, {k}, {ctype}, {names[outer]}, {order[0]}, {order[1]}"
    program = compiled(
        WMMA + f"typedef {ctype} A;\ntypedef {names[outer]} C;\n"
        'extern "C" __global__ void k(const A *a, const A *b, const C *c, C *d) {\n  int w = threadIdx.x / 32;\n'
        f"  product<{arguments}>(a + w * {arrays[0][0].size}, b + w * {arrays[1][0].size}, "
        f"c + w * {out[0].size}, d + w * {out[0].size}, {strides[0]}, {strides[1]}, {layout}, {strides[2]});\n}}\n"
    )
    raw = [
        array.view(np.uint16) if dtype is ml_dtypes.bfloat16 and at < 2 else array for at, array in enumerate(arrays)
    ]
    report = simulator.run(program, "k", 1, 64, [*raw, out])
    assert report.hazards == ()
    found = out[..., : n if order == "RR" else m]
    expected = matrices[0] @ matrices[1] + 2 * matrices[2]
    np.testing.assert_array_equal(found if order == "RR" else found.transpose(0, 2, 1), expected)


@pytest.mark.parametrize(("type_", "k"), [("s4", 32), ("b1", 128)])
def test_wmma_below_a_byte(compiled: Callable[..., simulator.Program], type_: str, k: int) -> None:
    """WMMA multiplies signed 4-bit integers, and counts the bits that differ in matrices of single bits."""
    rng = np.random.default_rng(6)
    source = f"""
#include <mma.h>
using namespace nvcuda;
typedef wmma::experimental::precision::{type_} T;
extern "C" __global__ void k(const unsigned *a, const unsigned *b, const int *c, int *d) {{
  wmma::fragment<wmma::matrix_a, 8, 8, {k}, T, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, {k}, T, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, {k}, int> fc;
  wmma::load_matrix_sync(fa, a, {k});
  wmma::load_matrix_sync(fb, b, {k});
  wmma::load_matrix_sync(fc, c, 8, wmma::mem_row_major);
  {"wmma::bmma_sync" if type_ == "b1" else "wmma::mma_sync"}(fc, fa, fb, fc);
  wmma::store_matrix_sync(d, fc, 8, wmma::mem_row_major);
}}
"""
    low, high = (0, 2) if type_ == "b1" else (-8, 8)
    a, b = (rng.integers(low, high, (8, k)) for _ in range(2))
    c = rng.integers(-99, 99, (8, 8)).astype(np.int32)
    bits = BITS[type_]
    shifts = bits * np.arange(32 // bits, dtype=np.uint32)
    words = []
    for matrix in (a, b):
        parts = (matrix & ((1 << bits) - 1)).astype(np.uint32).reshape(8, -1, 32 // bits)
        words.append(np.bitwise_or.reduce(parts << shifts, -1))
    out = np.zeros_like(c)
    report = simulator.run(compiled(source, arch="sm_80"), "k", 1, 32, [*words, c, out])
    assert report.hazards == ()
    product = (a[:, None] != b[None]).sum(axis=-1) if type_ == "b1" else a @ b.T
    np.testing.assert_array_equal(out, product + c)
