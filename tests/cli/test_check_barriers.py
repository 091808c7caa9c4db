"""Barriers that some threads do not reach, and masks of warp-wide functions, in `check` and `run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile.compiler import nvrtc_version
from tests.conftest import Ran

Runner = Callable[..., Ran]
Check = Callable[..., tuple[Ran, list[tuple[str, int]], set[str]]]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

HEAD = "__global__ void k(const int *x, int *y, int n) { __shared__ int s[128]; int t = threadIdx.x; s[t] = x[t];\n"
GIVEN = ("--grid", 1, "--arg", "x=int32[128]:arange", "--arg", "y=int32[128]:zeros")


@pytest.fixture
def check(cudabench: Runner, tmp_path: Path) -> Check:
    """Check a kernel body, which starts in line 2; return what ran, the hazards (kind, line) and the warnings'
    codes."""

    def checked(body: str, block: int = 128, n: int = 100) -> tuple[Ran, list[tuple[str, int]], set[str]]:
        (tmp_path / "k.cu").write_text(HEAD + body + "}\n")
        ran = cudabench("check", "k.cu", "--block", block, *GIVEN, "--arg", f"n={n}", "--json", "r.json")
        (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
        hazards = [(one["kind"], one["line"]) for one in result["hazards"] or ()]
        return ran, hazards, {one["code"] for one in result["warnings"]} - {"unverified"}

    return checked


PASSED_BY = {
    "a few lanes": "if (t < n) __syncthreads();\ny[t] = s[t];",
    "half a warp": "if (t % 32 < 16) __syncthreads();\ny[t] = s[t];",
    "odd lanes": "if (t % 2) __syncthreads();\ny[t] = s[t];",
    "for one thread alone": "if (t < n) __syncthreads();\nif (t == 0) y[0] = s[0];",
    "a reduction": "for (int k = 64; k; k /= 2) if (t < k) { s[t] += s[t + k]; __syncthreads(); }\nif (!t) *y = s[0];",
}


@pytest.mark.machine_code
@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", PASSED_BY.values(), ids=PASSED_BY)
def test_lanes_that_pass_by(check: Check, body: str) -> None:
    """A barrier that only some lanes of a warp reach is one hazard; the message names the condition that parted the
    lanes."""
    ran, hazards, _ = check(body)
    said = " ".join(ran.out.split())
    assert (ran.code, hazards) == (3, [("divergent-barrier", 2)])
    assert "of the same warp passes by it: the" in said
    assert "(line 2)" in said or "the condition in line 2" in said


GONE = {
    "returned": "if (t >= n) return;\n__syncthreads(); y[t] = s[t];",
    "nothing behind": "if (t < n) { s[t] += 1;\n__syncthreads(); y[t] = s[t]; }",
    "a loop left": "for (int i = t; i < n; i += 128) { s[t] += x[i];\n__syncthreads(); y[i] = s[t]; }",
    "work of their own": (
        "if (t >= n) { for (int i = 0; i < x[3]; i++) y[t] += x[i]; return; }\n__syncthreads(); y[t] = s[t];"
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("body", GONE.values(), ids=GONE)
def test_threads_that_have_ended(check: Check, body: str) -> None:
    """Threads that end before a barrier are not a fault; a warning gives their number and the line where they left."""
    ran, hazards, codes = check(body)
    said = " ".join(ran.out.split())
    assert (ran.code, hazards, codes) == (0, [], {"ended-before-barrier"})
    assert (
        "28 threads of block (0, 0, 0) had ended or were going to their end (line 2) when the others met the barrier in"
        in said
    )


@pytest.mark.slow
def test_whole_warps_that_pass_by(check: Check) -> None:
    """Whole warps that skip a barrier give a warning, not a hazard, also where a race follows from the skipped
    barrier."""
    ran, hazards, codes = check("if (t < 64) { __syncthreads(); }\ny[t] = s[t] + 1;")
    assert (ran.code, hazards, codes) == (0, [], {"skipped-barrier"})
    ran, hazards, codes = check("if (t < 64) { __syncthreads(); }\ny[t] = s[127 - t] + 1;")
    assert (ran.code, hazards, codes) == (3, [("race", 3)], {"skipped-barrier"})


TWO = {
    "in branches": "if (t < 64) {\n__syncthreads(); y[t] = s[t + 64]; } else {\n__syncthreads(); y[t] = s[t - 64]; }",
    "one more": "if (t < 64)\n__syncthreads();\n__syncthreads(); y[t] = s[t];",
    "more turns": "for (int i = 0; i <= t / 64; i++)\n__syncthreads();\n__syncthreads(); y[t] = s[t];",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body", TWO.values(), ids=TWO)
def test_two_barriers(check: Check, body: str) -> None:
    """Two warps that wait for each other at two different barriers give a hazard at both barriers."""
    ran, hazards, _ = check(body)
    assert (ran.code, hazards) == (3, [("divergent-barrier", 3), ("divergent-barrier", 4)])


@pytest.mark.slow
def test_another_turn(check: Check) -> None:
    """Warps that meet a barrier in different iterations of its loop are a hazard; a different number of inner
    iterations is not."""
    loop = "#pragma unroll 1\nfor (int k = 0; k < 4; k++) { if (k == t / 32)\n__syncthreads(); y[t] += k; }"
    ran, hazards, _ = check(loop)
    assert (ran.code, hazards) == (3, [("divergent-barrier", 4)])
    assert "in a later iteration of the loop than thread" in " ".join(ran.out.split())
    inner = (
        "#pragma unroll 1\nfor (int k = 0; k < 4; k++) { for (int j = 0; j < t; j++) y[t] += x[j];\n__syncthreads(); }"
    )
    assert check(inner)[:2][1] == []


MASKS = {
    "itself": ("y[t] = __any_sync(0xffffu, x[t] > 5);", "in which its own lane 16 is missing"),
    "ended": ("if (t >= 20) return; y[t] = __shfl_down_sync(~0u, x[t], 1);", "thread (20, 0, 0) has ended"),
    "at a barrier": (
        "int v = x[t]; if (t < 8) v = __shfl_sync(~0u, v, 3); __syncthreads(); y[t] = v;",
        "thread (8, 0, 0) waits at the barrier in line 2 and never comes",
    ),
    "at another function": (
        "int v = x[t]; if (t < 8) v = __shfl_sync(~0u, v, 3); else v = __reduce_add_sync(~0u, v); y[t] = v;",
        "waits in line 2 and never comes",
    ),
    "barrier of the warp": ("__syncwarp(0xff);", "executes __syncwarp with the mask 0x000000ff"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MASKS)
def test_masks(check: Check, name: str) -> None:
    """A mask without the calling lane, or with lanes that never arrive, is the hazard "invalid-mask"."""
    body, said = MASKS[name]
    ran, hazards, _ = check(body, block=32)
    assert (ran.code, set(hazards)) == (3, {("invalid-mask", 2)})
    assert said in " ".join(ran.out.split())


def test_a_warp_barrier_lets_out_who_has_ended(
    check: Check,
) -> None:
    """__syncwarp() waits only for threads that have not ended, so an early return before it is correct."""
    ran, hazards, codes = check("if (t >= 20) return; __syncwarp(); y[t] = s[19 - t];", block=32)
    assert (ran.code, hazards, codes) == (0, [], set())


def test_the_cause_of_a_wrong_result(cudabench: Runner, tmp_path: Path) -> None:
    """Where threads ended before a barrier and the result is wrong, `run` says in which iteration and how many threads
    ended."""
    (tmp_path / "k.cu").write_text(
        HEAD + "int sum = 0;\nfor (int i = t; i < n; i += 128) {\ns[t] = x[i];\n__syncthreads();\n"
        "for (int d = 64; d; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }\n"
        "sum += s[0]; __syncthreads(); }\n"
        "if (t == 0) y[0] = sum; }"
    )
    given = ("--grid", 1, "--block", 128, "--arg", "x=int32[n]:ones", "--arg", "y=int32[1]:zeros", "--arg", "n=300")
    ran = cudabench("run", "k.cu", *given, "--expect", "y=n", "-d", "sim", "--no-cpu")
    said = " ".join((ran.out + ran.err).split())
    assert ran.code == 3
    assert "perhaps because of ended-before-barrier" in said
    assert "in iteration 3 of the loop, 84 threads of block (0, 0, 0) had ended or were going to their end" in said
