"""Accesses past the end of an array that the optimiser holds in registers: only a run without optimisation shows
them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Ran
from tests.ladders import needs_compiler

KERNEL = """
__device__ __forceinline__ float sum(const float v[4]) {
  float s = 0;
#pragma unroll
  for (int k = 0; k < LAST_READ; k++) s += v[k];
  return s;
}
extern "C" __global__ void k(const float *x, float *y, int n) {
  __shared__ float a[32], b[32];
  int t = threadIdx.x;
  float v[4];
  a[t] = 1; b[t] = x[4 * t];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < LAST_WRITTEN; k++) v[k] = b[t] + k;
  float more = 0;
  for (int k = 0; k < n; k++) more += a[k];
  y[t] = sum(v) + more - n;
}
"""
LINE = ("--grid", 1, "--block", 32, "--arg", "x=float32[128]:random", "--arg", "y=float32[32]:empty", "-d", "sim")


def run(cudabench: Callable[..., Any], read: int, written: int, n: int) -> tuple[int, list[dict[str, Any]]]:
    """Check the kernel with these loop bounds; return the exit code and the hazards."""
    Path("k.cu").write_text(KERNEL)
    defines = ("-D", f"LAST_READ={read}", "-D", f"LAST_WRITTEN={written}", "--arg", f"n={n}")
    ran = cudabench("check", "k.cu", *LINE, *defines, "--json", "r.json", "-q")
    (result,) = json.loads(Path("r.json").read_text())["results"]
    return ran.code, result["hazards"]


@pytest.mark.slow
@needs_compiler
def test_what_is_right_is_clean(cudabench: Callable[..., Any]) -> None:
    """A kernel that stays in its arrays has no hazard, with and without optimisation."""
    assert run(cudabench, 4, 4, 32) == (0, [])


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("read", "written", "n", "line", "said"),
    [
        (5, 4, 32, 5, "past the end of a local array of 16 bytes"),
        (4, 5, 32, 15, "past the end of a local array of 16 bytes"),
        (4, 4, 33, 17, "at a[32], past the end of 'a' (32 elements)"),
    ],
    ids=["read", "write", "shared"],
)
def test_the_end_of_each_array(
    cudabench: Callable[..., Any], read: int, written: int, n: int, line: int, said: str
) -> None:
    """An access one element past the end is a hazard with its line: in a local array that the optimiser holds in
    registers, also through a function, and from one shared array into the next."""
    code, hazards = run(cudabench, read, written, n)
    assert code == 3
    (hazard,) = hazards
    assert (hazard["kind"], hazard["line"]) == ("out-of-bounds", line)
    assert said in hazard["message"]


STORES = """
union Vector { uint4 all; float at[4]; };
__device__ __forceinline__ void store(float *y, int n, int i, Vector v) {
#pragma unroll
  for (int e = 0; e < LAST; e++)
    if (i + e < n) y[i + e] = v.at[e];
}
extern "C" __global__ void k(const float *x, float *y, int n) {
  Vector v;
  v.all = *(const uint4 *)(x + 4 * threadIdx.x);
  store(y, n, 4 * threadIdx.x, v);
}
"""


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize(
    ("last", "code", "kinds"), [(4, 0, set()), (5, 3, {"out-of-bounds", "race"})], ids=["right", "wrong"]
)
def test_a_store_past_the_own_elements(cudabench: Callable[..., Any], last: int, code: int, kinds: set[str]) -> None:
    """A value that a thread reads past the end of a local array and stores to another thread's element is an
    out-of-bounds access and a race, although the optimiser removes the access."""
    Path("k.cu").write_text(STORES)
    ran = cudabench("check", "k.cu", *LINE[:-4], "--arg", "y=float32[128]:empty", "--arg", "n=128", "-d", "sim", "-D",
                    f"LAST={last}", "--json", "r.json")  # fmt: skip
    (result,) = json.loads(Path("r.json").read_text())["results"]
    assert (ran.code, {one["kind"] for one in result["hazards"]}) == (code, kinds), ran.out


NEIGHBOURS = """
template <int N> __device__ __forceinline__ void fill(float (&held)[N], float from) {
  for (int i = 0; i < N MORE; i++) held[i] = from + i;
}
__device__ float sum(const float *end, int n) {
  float s = 0;
  for (int i = 0; i < n; i++) s += *--end;
  return s;
}
extern "C" __global__ void k(const int *at, float *y, int n) {
  float row[4], other[4], next[4];
  fill(row, at[0]);
  fill(other, at[1]);
  fill(next, at[2]);
  float *amid = other + 2;
  y[threadIdx.x] = sum(row + 4, n) + sum(next + 4, n) + amid[at[1] - 1] + amid[at[2] - 3] + row[at[3]];
}
"""


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("more", "n", "line"),
    [("", 4, None), ("+ 1", 4, 3), ("", 5, 7)],
    ids=["right", "through a reference", "before the start"],
)
def test_from_one_local_array_into_the_next(cudabench: Callable[..., Any], more: str, n: int, line: int | None) -> None:
    """An access from one local array into the next is a hazard, also through references and pointers; pointers to the
    end or into the middle of an array are not."""
    Path("k.cu").write_text(NEIGHBOURS.replace("MORE", more))
    np.save("at.npy", np.arange(4, dtype=np.int32))
    ran = cudabench("check", "k.cu", "-g", 1, "-b", 32, "--arg", "at=@at.npy", "--arg", "y=float32[32]:empty",
                    "--arg", f"n={n}", "-d", "sim", "--json", "r.json", "-q")  # fmt: skip
    (result,) = json.loads(Path("r.json").read_text())["results"]
    found = {(one["kind"], one["line"]) for one in result["hazards"]}
    assert (ran.code, found) == ((0, set()) if line is None else (3, {("out-of-bounds", line)})), ran.out
    assert line is None or "of a local array of 16 bytes" in result["hazards"][0]["message"]


BYTES = """
extern "C" __global__ void k(const unsigned *x, unsigned *y) {
  unsigned sums[4] = {};
  for (int i = 0; i < LAST; i++) sums[i] = __dp4a(x[threadIdx.x], 0x01010101u, sums[i]);
#if __CUDA_ARCH__ >= 1000
  sums[3] = 0;
#endif
  y[threadIdx.x] = sums[0] + sums[3];
}
"""


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("last", "code"), [(4, 0), (5, 3)], ids=["right", "wrong"])
def test_what_is_refused_for_an_older_architecture(cudabench: Callable[..., Any], last: int, code: int) -> None:
    """The checks without optimisation cover __dp4a on sm_90, although NVRTC 13 does not compile it there."""
    Path("k.cu").write_text(BYTES)
    line = ("--arg", "x=uint32[32]:ones", "--arg", "y=uint32[32]:empty", "-d", "sim:sm_90", "-D", f"LAST={last}")
    assert cudabench("check", "k.cu", "-g", 1, "-b", 32, *line).code == code


@pytest.mark.slow
@needs_compiler
def test_what_does_not_compile_without_optimisation(cudabench: Callable[..., Any]) -> None:
    """If a kernel does not compile without optimisation, `check` warns that accesses were not checked, and why."""
    Path("k.cu").write_text("#undef __dp4a" + BYTES)  # removes NVRTC's macro
    line = ("--arg", "x=uint32[32]:ones", "--arg", "y=uint32[32]:empty", "-d", "sim:sm_90", "-D", "LAST=4")
    ran = cudabench("check", "k.cu", "-g", 1, "-b", 32, *line, "--json", "r.json")
    (result,) = json.loads(Path("r.json").read_text())["results"]
    assert (ran.code, result["status"]) == (0, "ok"), ran.out
    (said,) = [one["message"] for one in result["warnings"] if one["code"] == "unchecked"]
    assert "unsupported operation" in said
    assert "were not checked" in " ".join(ran.out.split())


@pytest.mark.slow
@needs_compiler
def test_a_compare_and_swap_is_no_race_without_optimisation(cudabench: Callable[..., Any]) -> None:
    """The programming guide's compare-and-swap loop has no race without optimisation; its first plain read may be
    old."""
    path = Path(__file__).parents[1] / "corpus" / "right" / "cas_double.cu"
    line = ("--arg", "in=float64[64]:ones", "--arg", "out=float64[5]:zeros", "--arg", "n=64", "-d", "sim")
    ran = cudabench("check", path, "-g", 2, "-b", 32, *line)
    assert ran.code == 0, ran.out


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("index", "both"), [("x[i + 1] + x[i - 1]", True), ("x[i - 1] + x[i + 1]", True), ("x[i + 1]", False)]
)
def test_what_lies_before_an_array_is_said_beside_what_lies_behind(
    index: str, both: bool, cudabench: Callable[..., Ran]
) -> None:
    """A line that reads before the start and past the end of an array is reported for both; only the read past the end
    gets the advice to give the array more elements."""
    Path("k.cu").write_text(
        "__global__ void slope(const float *x, float *y) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"  y[i] = {index}; }}"
    )
    given = ["-k", "slope", "-g", 2, "-b", 32, "--arg", "x=float32[64]:random", "--arg", "y=float32[64]:empty"]
    ran = cudabench("check", "k.cu", *given)
    said = " ".join(ran.out.split())
    assert (ran.code, "past the end of 'x'" in said) == (3, True)
    assert ("before the start of 'x'" in said, "give x more," in said) == (both, not both)


COPIES = """
template <int bytes> __device__ __forceinline__ void copy(void *to, const void *from) {
  *(int4 *)to = *(const int4 *)from;
}
struct alignas(16) Wide { float a, b, c; };
union Either { float4 all; float each[4]; };
extern "C" __global__ void k(const float2 *x, float *y) {
  int t = threadIdx.x;
  float2 before, v[3] = {};
  alignas(16) float w[8] = {};
  Wide wide = {}; Either either = {}; float4 whole = {};
  before = x[t]; (&before.x)[1] += 1;
  v[0] = x[t];
  copy<16>(TO, x + 2 * t);
  y[t] = v[1].x * v[2].y + w[4] + w[7] + wide.b + either.each[3] + whole.w + before.x + before.y;
}
"""


@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize("to", ["w", "w + 4", "&wide", "&either", "either.each", "&whole"])
def test_vectors_in_local_variables_that_are_aligned_for_them(cudabench: Callable[..., Any], to: str) -> None:
    """A vector store into a local variable with the vector's alignment is not a fault."""
    Path("k.cu").write_text(COPIES.replace("TO", to))
    ran = cudabench("check", "k.cu", "-g", 1, "-b", 32, "--arg", "x=float32[64,2]:random", *LINE[-4:])
    assert ran.code == 0, ran.out


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("v + 1", "at byte 8 of the local 'v', which need only start at a multiple of 8, not of 16."),
        ("w + 2", "at byte 8 of the local 'w', whose address is not a multiple of 16."),
        ("either.each + 1", "at byte 4 of the local 'either', whose address is not a multiple of 16."),
    ],
)
def test_vectors_in_local_variables_that_are_not(cudabench: Callable[..., Any], to: str, said: str) -> None:
    """A vector store into a local variable without the vector's alignment is a fault, although the optimiser holds the
    variable in registers and its address may be aligned by chance."""
    Path("k.cu").write_text(COPIES.replace("TO", to))
    line = ("-g", 1, "-b", 32, "--arg", "x=float32[64,2]:random", *LINE[-4:])
    ran = cudabench("check", "k.cu", *line, "--json", "r.json")
    ((hazard,),) = [one["hazards"] for one in json.loads(Path("r.json").read_text())["results"]]
    assert (ran.code, hazard["kind"], hazard["line"]) == (3, "misaligned", 3)
    assert f"thread (0, 0, 0) of block (0, 0, 0) writes 16 bytes {said}" in hazard["message"]


@needs_compiler
def test_a_read_through_the_read_only_cache_that_is_optimised_away(cudabench: Callable[..., Any]) -> None:
    """A __ldg() of an element that the same thread stored before is a stale read, although the compiler takes the value
    from a register."""
    Path("k.cu").write_text(
        'extern "C" __global__ void k(float *x, float *y) {\n  int i = threadIdx.x;\n  x[i] *= 2;\n'
        "  y[i] = __ldg(x + i);\n}\n"
    )
    ran = cudabench("check", "k.cu", *LINE, "--json", "r.json")
    ((hazard,),) = [one["hazards"] for one in json.loads(Path("r.json").read_text())["results"]]
    assert (ran.code, hazard["kind"], hazard["line"]) == (3, "stale-read", 4)
