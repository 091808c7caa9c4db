"""A wait that never ends is a hazard, whose message names the awaited value; a wait that another thread ends is not a
hazard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator

AT = "unsigned at = (unsigned)__cvta_generic_to_shared(&bar);\n"
WAIT = "{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }"
STUCK: dict[str, tuple[str, str, str]] = {
    "flag in global memory": (
        "while (*f == 0) ;", "deadlock", "reads again and again element 0 of 'argument 0', which",
    ),
    "with tries counted": ("int n = 0; while (*f == 0) n++; o[0] = n;", "deadlock", "stays 0"),
    "flags in a circle": (
        "if (blockIdx.x == 0) { while (f[1] == 0) ; f[2] = 1; } else { while (f[2] == 0) ; f[1] = 1; }",
        "deadlock", "element 1 of 'argument 0'",
    ),
    "lock that is not given back": (
        "if (t == 0) { while (atomicCAS(o, 0, 1) != 0) ; o[1] = 2; }", "deadlock", "tries again and again to change",
    ),
    "flag after a barrier": (
        "__shared__ volatile int s; if (t == 0) s = 0; __syncthreads();\n"
        "if (t < 32) { while (s == 0) ; __syncthreads(); } else { __syncthreads(); s = 1; }",
        "divergent-barrier", "thread (0, 0, 0) waits in line",
    ),
    "lane that its warp waits for": (
        "if (t % 32 == 0) { while (*f == 0) ; }\n__syncwarp(); *f = 1;", "invalid-mask",
        "thread (0, 0, 0) is elsewhere",
    ),
    "arrivals": (
        "__shared__ unsigned long long bar; " + AT +
        'if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 65;" :: "r"(at));\n__syncthreads();\n'
        'asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(at) : "memory");\n'
        f'asm volatile("{WAIT}" :: "r"(at) : "memory");',
        "deadlock", "the mbarrier at bar[0] that never ends: 1 of 65 arrivals is missing",
    ),
    "bytes": (
        "__shared__ unsigned long long bar; " + AT +
        'if (t == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));\n'
        'asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" :: "r"(at) : "memory"); }\n'
        f'__syncthreads(); asm volatile("{WAIT}" :: "r"(at) : "memory");',
        "deadlock", "256 bytes that are expected are missing",
    ),
    "loop": ("unsigned a = t; while (a < 100) a = a * 5 % 64 + f[9] * 0;", "endless-loop", "nothing ends"),
    "plain flag": ("if (t == 0) while (o[0] == 0) ;", "endless-loop", "reads the memory once, before the loop"),
    "calls": ("while (look(f, 3) == 0) ;", "deadlock", "element 0 of 'argument 0'"),
}  # fmt: skip
ENDS: dict[str, str] = {
    "flag of a later block": "if (blockIdx.x == 1) { if (t == 0) f[0] = 1; } else while (f[0] == 0) ;",
    "lock": "if (t == 0) { while (atomicCAS(o, 0, 1) != 0) __nanosleep(50); __threadfence(); atomicExch(o, 0); }",
    "late": (
        "if (blockIdx.x == 0) { unsigned a = t; for (int i = 0; i < 2000; i++) a = a & 1 ? a * 3 + 1 : a >> 1;\n"
        "if (a == 77) o[9] = 1; __syncthreads(); if (t == 0) f[0] = 1; } else if (t == 0) while (f[0] == 0) ;"
    ),
    "clock": "long long since = clock64(); while (f[0] == 0 && clock64() - since < 20000) ;",
    "tries": "int n = 0; while (f[0] == 0 && n < 2000) n++; o[t] = n;",
    "turns of all": "int n = t; while (__syncthreads_or(n > 0)) n--;",
}
LOOK = "__device__ __noinline__ int look(volatile int *f, int d) { return d ? look(f, d - 1) + f[d] * 0 : f[0]; }\n"


Run = Callable[..., simulator.Report]


@pytest.fixture(autouse=True)
def _looked_at_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the simulator check for an endless launch after a tenth of the usual steps."""
    monkeypatch.setattr("cudabench.simulator.machine.FIRST", 2000)


@pytest.fixture(scope="module")
def run(launch: Run) -> Run:
    """Run a body in two blocks of 64 threads."""

    def run_(body: str, **options: Any) -> simulator.Report:
        text = LOOK + 'extern "C" __global__ void k(volatile int *f, int *o) { int t = threadIdx.x;\n' + body + "\n}"
        return launch(text, 2, 64, [np.zeros(64, np.int32), np.zeros(64, np.int32)], **options)

    return run_


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", STUCK)
def test_what_nothing_ends_is_a_hazard(run: Run, name: str) -> None:
    """A launch that never ends stops long before its budget, and a hazard names the flag, lock, barrier or loop."""
    body, kind, words = STUCK[name]
    with pytest.raises(simulator.BudgetExceeded, match="it would never end") as stopped:
        run(body, budget=2_000_000)
    assert words in next(one.message for one in stopped.value.hazards if one.kind == kind)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ENDS)
def test_what_another_thread_or_the_clock_ends_is_none(run: Run, name: str) -> None:
    """A long wait that another thread or the clock ends is not a deadlock, an endless loop or a divergent barrier."""
    kinds = {one.kind for one in run(ENDS[name]).hazards}
    assert not kinds & {"deadlock", "endless-loop", "divergent-barrier"}


def test_what_a_block_that_has_not_begun_would_end_is_no_deadlock(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for a block that the simulator has not started ends the launch with an error that says so, and is not a
    hazard."""
    monkeypatch.setattr("cudabench.simulator.plan.CHUNK_LANES", 64)
    with pytest.raises(simulator.BudgetExceeded, match="a block that has not begun") as stopped:
        run("int wide = 1;\n" + ENDS["flag of a later block"], budget=2_000_000)
    assert not stopped.value.hazards


def test_a_loop_over_what_nothing_writes_waits_for_no_block(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless loop over memory that no thread writes is a hazard, even if some blocks have not started."""
    monkeypatch.setattr("cudabench.simulator.plan.CHUNK_LANES", 64)
    with pytest.raises(simulator.BudgetExceeded, match="it would never end") as stopped:
        run("int at = t; while (at >= 0) at = f[at]; o[t] = at;", budget=2_000_000)
    (message,) = [one.message for one in stopped.value.hazards]
    assert "of 'argument 0', which stays 0: nothing in the kernel writes there" in message
