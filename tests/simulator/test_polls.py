"""Flags that threads of one block poll by volatile or atomic accesses: a correct flag orders accesses, a faulty flag
does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator

Build = Callable[[str], simulator.Program]

# Each kernel runs on one block of 64 threads; a correct kernel sets `out[0]` to 7.
HEAD = """
#define KERNEL(name) extern "C" __global__ void name(int *out, int *work)
#define BEGIN(first) __shared__ volatile int flag; __shared__ int data; int t = threadIdx.x; \\
    if (t == 0) { flag = first; data = 0; } __syncthreads();
__device__ __forceinline__ int relaxed(int *p) {
    unsigned at = (unsigned)__cvta_generic_to_shared(p);
    int x; asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}
"""

RIGHT = {
    "warp_to_warp": """BEGIN(0)
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); out[0] = data; }""",
    "within_a_warp": """BEGIN(0)
        if (t == 5) { while (flag == 0) ; __threadfence_block(); out[0] = data; }
        else if (t == 9) { data = out[0] + 7; __threadfence_block(); flag = 1; }""",
    "work_between_polls": """BEGIN(0)
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) __nanosleep(20); __threadfence_block(); out[0] = data; }""",
    "both_ways": """BEGIN(0)
        #pragma unroll 1
        for (int round = 0; round < 7; round++) {
            if (t == 0) { while (flag != 2 * round) ; __threadfence_block(); data = data + out[0];
                          __threadfence_block(); flag = 2 * round + 1; }
            if (t == 32) { while (flag != 2 * round + 1) ; __threadfence_block(); data = data + 1;
                           __threadfence_block(); flag = 2 * round + 2; }
        }
        if (t == 0) { while (flag != 14) ; __threadfence_block(); out[0] = data; }""",
    "turns": """BEGIN(25)
        bool done = false;
        while (!done && t >= 25 && t < 39) {
            if (flag == t) { __threadfence_block(); if (t < 32) data = data + 1;
                             __threadfence_block(); flag = t + 1; done = true; }
        }
        if (t == 38) out[0] = data;""",
    "by_a_leader": """BEGIN(0)
        if (t >= 32) { work[t] = t; __syncwarp(); if (t == 32) { __threadfence_block(); flag = 1; } }
        else { if (t == 0) { while (flag == 0) ; __threadfence_block(); } __syncwarp(); int x = work[t + 32];
               if (t == 7) out[0] = x - 32; }""",
    "by_leaders_of_all_warps": """BEGIN(0)
        if (t >= 32) work[t] = t;
        __syncwarp();
        if (t == 32) { __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); }
        __syncwarp();
        if (t < 32) { int x = work[t + 32]; if (t == 7) out[0] = x - 32; }""",
    "read_before_and_after": """BEGIN(0)
        if (t == 32) { work[1] = data; __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); }
        if (t == 1) work[2] = data;
        if (t < 32) { __syncwarp(); if (t == 0) { data = 3; out[0] = 7; } }""",
    "two_that_wait": """BEGIN(0)
        if (t == 50) { work[3] = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); }
        if (t == 40) { while (flag == 0) ; __threadfence_block(); }
        if (t == 0) out[0] = work[3];
        if (t == 40) work[4] = work[3];""",
    "atomic_reference": """__shared__ int flag; __shared__ int data; int t = threadIdx.x;
        cuda::atomic_ref<int, cuda::thread_scope_block> f(flag);
        if (t == 0) flag = 0;
        __syncthreads();
        if (t == 32) { data = out[0] + 7; f.store(1, cuda::memory_order_release); }
        if (t == 0) { while (f.load(cuda::memory_order_acquire) == 0) ; out[0] = data; }""",
    "relaxed_and_an_atomic": """__shared__ int flag; __shared__ int data; int t = threadIdx.x;
        if (t == 0) flag = 0;
        __syncthreads();
        if (t == 32) { data = out[0] + 7; __threadfence_block(); atomicExch(&flag, 1); }
        if (t == 0) { while (relaxed(&flag) == 0) ; __threadfence_block(); out[0] = data; }""",
    "global_flag": """int t = threadIdx.x; volatile int *flag = work;
        if (t == 32) { work[1] = out[0] + 7; __threadfence_block(); flag[0] = 1; }
        if (t == 0) { while (flag[0] == 0) ; __threadfence_block(); out[0] = work[1]; }""",
    "flags_of_all": """__shared__ volatile int flags[64]; int t = threadIdx.x; flags[t] = 0; __syncthreads();
        work[t] = 1; __threadfence_block(); flags[t] = 1;
        if (t == 0) {
            int sum = 0;
            #pragma unroll 1
            for (int i = 0; i < 64; i++) { while (flags[i] == 0) ; __threadfence_block(); sum += work[i]; }
            out[0] = sum - 57;
        }""",
    "atomic_that_adds_nothing": """BEGIN(0) int *f = (int *)&flag;
        if (t == 32) { data = out[0] + 7; __threadfence_block(); atomicExch(f, 1); }
        if (t == 0) { while (atomicAdd(f, 0) == 0) ; __threadfence_block(); out[0] = data; }""",
    "swap_that_changes_nothing": """BEGIN(0) int *f = (int *)&flag;
        if (t == 0) { while (atomicCAS(f, 1, 1) != 1) ; out[0] = data; }
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }""",
    "bits_of_atomics": """BEGIN(0) int *f = (int *)&flag;
        if (t == 0) { while (!(atomicOr(f, 0) & 4)) __nanosleep(20); __threadfence_block(); out[0] = data; }
        if (t == 32) { data = out[0] + 7; __threadfence_block(); atomicOr(f, 4); }""",
    "flag_taken_by_an_exchange": """BEGIN(0) int *f = (int *)&flag;
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0) { while (atomicExch(f, 0) == 0) ; __threadfence_block(); out[0] = data; }""",
    "arrivals_counted": """BEGIN(0) int *f = (int *)&flag;
        work[t] = 1; __threadfence_block(); atomicAdd(f, 1);
        if (t == 0) {
            while (atomicAdd(f, 0) < 64) ;
            int sum = 0;
            for (int i = 0; i < 64; i++) sum += work[i];
            out[0] = sum - 57;
        }""",
    "leader_of_the_block": """BEGIN(0) int *f = (int *)&flag;
        if (t == 40) { for (int i = 0; i < 64; i++) work[i] = 7; __threadfence_block(); atomicExch(f, 1); }
        if (t == 0) while (atomicAdd(f, 0) == 0) ;
        __syncthreads();
        if (t == 50) out[0] = work[t];""",
    "leader_of_the_warp": """BEGIN(0) int *f = (int *)&flag;
        if (t >= 32) { work[t] = t; __syncwarp(); if (t == 32) { __threadfence_block(); atomicExch(f, 1); } }
        else { if (t == 0) while (atomicCAS(f, 0, 0) == 0) ; __syncwarp(); int x = work[t + 32];
               if (t == 7) out[0] = x - 32; }""",
    "atomics_both_ways": """BEGIN(0) int *f = (int *)&flag;
        #pragma unroll 1
        for (int round = 0; round < 7; round++) {
            if (t == 0) { while (atomicAdd(f, 0) != 2 * round) ; __threadfence_block(); data = data + out[0];
                          __threadfence_block(); atomicExch(f, 2 * round + 1); }
            if (t == 32) { while (atomicAdd(f, 0) != 2 * round + 1) ; __threadfence_block(); data = data + 1;
                           __threadfence_block(); atomicExch(f, 2 * round + 2); }
        }
        if (t == 0) { while (atomicAdd(f, 0) != 14) ; __threadfence_block(); out[0] = data; }""",
    "handed_on_twice": """BEGIN(0) __shared__ int second; int *f = (int *)&flag;
        if (t == 0) second = 0;
        __syncthreads();
        if (t == 0) { while (atomicAdd(&second, 0) == 0) ; out[0] = data; }
        if (t == 32) { while (atomicAdd(f, 0) == 0) ; __threadfence_block(); atomicExch(&second, 1); }
        if (t == 33) { data = out[0] + 7; __threadfence_block(); atomicExch(f, 1); }""",
    "reference_that_fetches": """__shared__ unsigned long long flag; int t = threadIdx.x;
        cuda::atomic_ref<unsigned long long, cuda::thread_scope_block> f(flag);
        if (t == 0) flag = 0;
        __syncthreads();
        if (t == 0) { while (f.fetch_add(0, cuda::memory_order_acquire) == 0) ; out[0] = work[9]; }
        if (t == 32) { work[9] = out[0] + 7; f.store(1, cuda::memory_order_release); }""",
}

# Faulty kernels, each with the lines that a hazard may name (the body begins in line 1).
WRONG = {
    # These kernels do not poll: each thread reads once, and lanes of a warp do not run in lock-step.
    "warp_synchronous": ("""__shared__ volatile float s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();
        if (t < 32) { s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; }
        if (t == 0) out[0] = s[0];""", {2, 3}),
    "warp_synchronous_loop": ("""__shared__ volatile float s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();
        _Pragma("unroll 1") for (int d = 32; d; d >>= 1) if (t < d) s[t] += s[t + d];
        if (t == 0) out[0] = s[0];""", {2, 3}),
    "warp_synchronous_search": ("""__shared__ volatile float s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();
        int d = t < 32 ? 32 : 0; _Pragma("unroll 1") while (d) {
            float x = s[t + d]; if (x > 1000) break; s[t] += x; d >>= 1; }
        if (t == 0) out[0] = s[0];""", {1, 3}),
    "flag_read_once": ("""BEGIN(0)
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0 && flag) out[0] = data;""", {2, 3}),
    "flag_without_volatile": ("""__shared__ int flag; int t = threadIdx.x; if (t == 0) flag = 0; __syncthreads();
        if (t == 32) flag = 1;
        if (t == 0) { volatile int *f = &flag; while (*f == 0) ; out[0] = 7; }""", {2, 3}),
    "another_array": ("""__shared__ int other[64]; BEGIN(0)
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); out[0] = data; }
        if (t) { other[t] = t;
            if (t < 63) work[t] = other[t + 1]; }""", {4, 5}),
    "written_before_the_poll": ("""__shared__ int other; BEGIN(0)
        if (t == 0) other = out[0];
        if (t == 32) { work[3] = other; __threadfence_block(); flag = 1; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); out[0] = 7; }""", {2, 3}),
    "changed_after_the_flag": ("""BEGIN(0)
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; while (flag == 1) ; }
        if (t == 0) { while (flag == 0) ; __threadfence_block(); out[0] = data; flag = 2; data = 3; }
        if (t == 33) work[1] = data;""", {2, 3, 4}),
    "no_fence_of_the_writer": ("""BEGIN(0) int *f = (int *)&flag;
        if (t == 32) { data = out[0] + 7; atomicExch(f, 1); }
        if (t == 0) { while (atomicAdd(f, 0) == 0) ; __threadfence_block(); out[0] = data; }""", {2, 3}),
    "fence_too_early": ("""BEGIN(0) int *f = (int *)&flag;
        if (t == 32) { __threadfence_block(); data = out[0] + 7; flag = 1; }
        if (t == 0) { while (atomicCAS(f, 1, 1) != 1) ; __threadfence_block(); out[0] = data; }""", {2, 3}),
    "flag_stored_plainly": ("""__shared__ int flag; int t = threadIdx.x; if (t == 0) flag = 0; __syncthreads();
        if (t == 32) flag = 1;
        if (t == 0) { while (atomicAdd(&flag, 0) == 0) ; out[0] = 7; }""", {2, 3}),
    "another_flag": ("""__shared__ int other; BEGIN(0) int *f = (int *)&flag; if (t == 0) other = 0; __syncthreads();
        if (t == 40) { __threadfence_block(); atomicExch(&other, 1); }
        if (t == 32) { data = out[0] + 7; __threadfence_block(); atomicExch(f, 1); }
        if (t == 0) { while (atomicAdd(&other, 0) == 0) ; __threadfence_block(); out[0] = data; }""", {3, 4}),
    "does_not_wait": ("""BEGIN(0) int *f = (int *)&flag;
        if (t == 0) { while (atomicAdd(f, 0) == 1) ; __threadfence_block(); out[0] = data; }
        if (t == 32) { data = out[0] + 7; __threadfence_block(); atomicExch(f, 1); }""", {2, 3}),
    "queue": ("""BEGIN(0) int *f = (int *)&flag;
        work[t] = t; __threadfence_block();
        for (int i; (i = atomicAdd(f, 1)) < 64;) out[0] = work[i] + 7;""", {2, 3}),
    "others_beside_the_leader": ("""BEGIN(0) int *f = (int *)&flag;
        if (t >= 32) { work[t] = t; __syncwarp(); if (t == 32) { __threadfence_block(); atomicExch(f, 1); } }
        else { if (t == 0) { while (atomicAdd(f, 0) == 0) ; __threadfence_block(); }
               int x = work[t + 32]; if (t == 7) out[0] = x - 32; }""", {2, 4}),
    "barrier_in_the_loop": ("""BEGIN(3)
        int x; do { x = flag; __syncthreads();
            if (t == 40) flag = x - 1;
        } while (flag);
        out[0] = 7;""", {2, 3, 4}),
    "others_of_the_warp": ("""BEGIN(0)
        if (t >= 32) { work[t] = t; __syncwarp(); if (t == 32) { __threadfence_block(); flag = 1; } }
        else { if (t == 0) { while (flag == 0) ; __threadfence_block(); }
               int x = work[t + 32]; if (t == 7) out[0] = x - 32; }""", {2, 4}),
}  # fmt: skip


def source(bodies: dict[str, str]) -> str:
    """Return the source of the kernels; the first line of each body is line 1 of a file with the kernel's name."""
    include = "#include <cuda/atomic>\n" if any("atomic_ref" in body for body in bodies.values()) else ""
    return include + HEAD + "\n".join(f'#line 1 "{name}"\nKERNEL({name}) {{{body}\n}}' for name, body in bodies.items())


@pytest.fixture(scope="module")
def programs(compiled: Build) -> tuple[simulator.Program, simulator.Program]:
    """Return the compiled programs of the correct kernels and of the faulty kernels."""
    return compiled(source(RIGHT)), compiled(source({name: body for name, (body, _) in WRONG.items()}))


def run(program: simulator.Program, name: str, blocks: int = 1) -> tuple[Any, int]:
    """Run a kernel; return its hazards and its result."""
    out, work = np.zeros(1, np.int32), np.zeros(128, np.int32)
    report = simulator.run(program, name, blocks, 64, [out, work], budget=200_000)
    return report.hazards, int(out[0])


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", RIGHT)
def test_a_flag_handed_on_is_no_race(programs: tuple[simulator.Program, ...], name: str) -> None:
    """A thread that polls a flag by volatile or atomic reads sees the data written before the flag: no race, and the
    right result."""
    assert run(programs[0], name) == ((), 7)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_no_poll_orders_stays_a_race(programs: tuple[simulator.Program, ...], name: str) -> None:
    """Volatile reads without polling, plain stores of a flag, and accesses that the flag does not order are races."""
    hazards, _ = run(programs[1], name)
    assert {hazard.kind for hazard in hazards} == {"race"}
    assert {hazard.line for hazard in hazards} <= WRONG[name][1]


@pytest.mark.slow
def test_code_that_is_not_optimised(compiled: Callable[..., Any]) -> None:
    """The simulator recognises polls in unoptimised code, which keeps values and addresses in local memory; a loop
    counter there is not a poll."""
    names = (
        "warp_to_warp",
        "both_ways",
        "turns",
        "atomic_reference",
        "flags_of_all",
        "atomic_that_adds_nothing",
        "swap_that_changes_nothing",
        "arrivals_counted",
    )
    bodies = {name: RIGHT[name] for name in names} | {"reduction": WRONG["warp_synchronous_loop"][0]}
    program = compiled(source(bodies), debug=True)
    assert {name: run(program, name) for name in names} == dict.fromkeys(names, ((), 7))
    assert {hazard.kind for hazard in run(program, "reduction")[0]} == {"race"}


def test_only_the_block_that_does_not_poll_races(compiled: Callable[..., Any]) -> None:
    """A poll orders the accesses of the block that polls; in a block that does not poll they race."""
    body = """BEGIN(0)
        if (t == 32) { data = out[0] + 7; __threadfence_block(); flag = 1; }
        if (t == 0 && blockIdx.x != 2) { while (flag == 0) ; }
        if (t == 0) { __threadfence_block(); work[blockIdx.x] = data; }"""
    hazards, _ = run(compiled(source({"k": body})), "k", 4)
    assert [(hazard.kind, hazard.line, hazard.block) for hazard in hazards] == [("race", 4, (2, 0, 0))]


def test_who_polls_by_an_atomic_lets_others_go_first(launch: Callable[..., Any]) -> None:
    """Eight blocks that wait for their turn by atomics execute fewer than 2000 instructions: a block that polls lets
    others run."""
    source = """
    extern "C" __global__ void k(unsigned *turn, int *out)
    {
        if (threadIdx.x % 32 == 0)
            do { } while (atomicAdd(turn, 0) < blockIdx.x);
        __syncthreads();
        if (threadIdx.x == 0) {
            out[blockIdx.x] = blockIdx.x ? out[blockIdx.x - 1] + 1 : 1;
            __threadfence();
            atomicAdd(turn, 1);
        }
    }"""
    out = np.zeros(8, np.int32)
    report = launch(source, 8, 64, [np.zeros(1, np.uint32), out], names=["turn", "out"])
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert report.instructions < 2000
