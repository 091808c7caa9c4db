"""What only a run without optimisation shows: accesses past the end of an array that is held in registers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ladders import needs_compiler

pytestmark = pytest.mark.usefixtures("unread_machine_code")

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
    """Check the kernel with these ends of its loops; return the exit code and the hazards."""
    Path("k.cu").write_text(KERNEL)
    defines = ("-D", f"LAST_READ={read}", "-D", f"LAST_WRITTEN={written}", "--arg", f"n={n}")
    ran = cudabench("check", "k.cu", *LINE, *defines, "--json", "r.json", "-q")
    (result,) = json.loads(Path("r.json").read_text())["results"]
    return ran.code, result["hazards"]


@needs_compiler
def test_what_is_right_is_clean(cudabench: Callable[..., Any]) -> None:
    """The kernel that stays in its arrays has no hazard either way."""
    assert run(cudabench, 4, 4, 32) == (0, [])


@needs_compiler
@pytest.mark.parametrize(
    ("read", "written", "n", "line", "said"),
    [
        (5, 4, 32, 5, "past the end of a local array of 16 bytes"),
        (4, 5, 32, 15, "past the end of a local array of 16 bytes"),
        (4, 4, 33, 17, "past the end of the shared 'a' (128 bytes)"),
    ],
    ids=["read", "write", "shared"],
)
def test_the_end_of_each_array(
    cudabench: Callable[..., Any], read: int, written: int, n: int, line: int, said: str
) -> None:
    """One element too far is named with its line: in registers, also through a function, where the optimiser leaves
    the access out, and from one shared array into the next."""
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


@needs_compiler
@pytest.mark.parametrize(("last", "code", "kinds"), [(4, 0, set()), (5, 3, {"race"})], ids=["right", "wrong"])
def test_a_store_past_the_own_elements(cudabench: Callable[..., Any], last: int, code: int, kinds: set[str]) -> None:
    """What goes past an array in registers and from there into another thread's element is a race in memory; the
    compiler had left it out."""
    Path("k.cu").write_text(STORES)
    ran = cudabench("check", "k.cu", *LINE[:-4], "--arg", "y=float32[128]:empty", "--arg", "n=128", "-d", "sim", "-D",
                    f"LAST={last}", "--json", "r.json")  # fmt: skip
    (result,) = json.loads(Path("r.json").read_text())["results"]
    assert (ran.code, {one["kind"] for one in result["hazards"]}) == (code, kinds), ran.out
