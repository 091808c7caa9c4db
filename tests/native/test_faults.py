"""The native engine stops at each launch in which the NumPy engine reports anything, and runs correct launches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.simulator import api
from cudabench.system import native
from tests.engines import Both, both, loaded
from tests.racing import GLOBAL, SHARED, WORDS, Index, Statement, kernel

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

# For each fault, the faulty and the correct body of a kernel (int *x, int *y, int *z) with two blocks of 64 threads.
# `t` is the thread in the block, `g` the thread in the grid; each array has 256 elements, and x is 0, 1, 2...
BODIES = {
    "no barrier": ("s[t] = x[t]; y[g] = s[63 - t];", "s[t] = x[t]; __syncthreads(); y[g] = s[63 - t];"),
    "no second barrier": (
        "for (int k = 0; k < 3; k++) { s[t] = x[t] + k; __syncthreads(); y[g] += s[63 - t]; }",
        "for (int k = 0; k < 3; k++) { s[t] = x[t] + k; __syncthreads(); y[g] += s[63 - t]; __syncthreads(); }",
    ),
    "no warp barrier": ("s[t] = x[t]; y[g] = s[t ^ 1];", "s[t] = x[t]; __syncwarp(); y[g] = s[t ^ 1];"),
    "a warp barrier between warps": (
        "s[t] = x[t]; __syncwarp(); y[g] = s[63 - t];", "s[t] = x[t]; __syncwarp(); y[g] = s[t ^ 31];",
    ),
    "a warp barrier of others": (
        "if (t < 32) { s[t] = x[t]; if (t < 16) __syncwarp(0xFFFF); else __syncwarp(0xFFFF0000); y[g] = s[t ^ 16]; }",
        "if (t < 32) { s[t] = x[t]; if (t < 16) __syncwarp(0xFFFF); else __syncwarp(0xFFFF0000); y[g] = s[t ^ 1]; }",
    ),
    "no shuffle in between": (
        "int v = x[t]; s[t] = v; y[g] = s[t ^ 1];",
        "int v = x[t]; s[t] = v; v = __shfl_xor_sync(~0u, v, 1); y[g] = s[t ^ 1] + v;",
    ),
    "several values in one place": (
        "s[x[t] & 1] = t; __syncthreads(); y[g] = s[0];", "s[x[t] & 1] = x[0] + 5; __syncthreads(); y[g] = s[0];",
    ),
    "several constants": (
        "if (x[t] < 3) s[0] = 1; if (x[t] > 60) s[0] = 2; __syncthreads(); y[g] = s[0];",
        "if (x[t] < 3) s[0] = 1; y[g] = t; if (x[t] > 60) s[0] = 1; __syncthreads(); y[g] = s[0];",
    ),
    "a byte of an element": (
        "s[t] = 0; __syncthreads(); ((char *)s)[4 * t + x[1]] = 1; y[g] = s[t ^ 1];",
        "s[t] = 0; __syncthreads(); ((char *)s)[4 * t + x[1]] = 1; __syncthreads(); y[g] = s[t ^ 1];",
    ),
    "four elements at once": (
        "__shared__ int4 v[16]; if (t < 16) v[t] = make_int4(t, 1, 2, 3); y[g] = ((int *)v)[t];",
        "__shared__ int4 v[16]; if (t < 16) v[t] = make_int4(t, 1, 2, 3); __syncthreads(); y[g] = ((int *)v)[t];",
    ),
    "elements of 8 bytes": (
        "__shared__ double d[64]; d[t] = x[t]; y[g] = d[63 - t];",
        "__shared__ double d[64]; d[t] = x[t]; __syncthreads(); y[g] = d[63 - t];",
    ),
    "blocks write 8 bytes": (
        "((double *)y)[t] = g;", "((double *)y)[t] = t + 0.5; if (t > 70) ((char *)z)[g] = 1;",
    ),
    "part of shared memory unset": (
        "if (t) s[t] = x[t]; __syncthreads(); y[g] = s[63 - t];",
        "s[t] = t ? x[t] : 0; __syncthreads(); y[g] = s[63 - t];",
    ),
    "set by the block before": (
        "if (blockIdx.x == 0) s[t] = x[t]; __syncthreads(); y[g] = s[t];",
        "if (blockIdx.x < 2) s[t] = x[t]; __syncthreads(); y[g] = s[t];",
    ),
    "an atomic and a read": (
        "if (t == 0) s[0] = 0; __syncthreads(); atomicAdd(&s[0], x[t]); y[g] = s[0];",
        "if (t == 0) s[0] = 0; __syncthreads(); atomicAdd(&s[0], x[t]); __syncthreads(); y[g] = s[0];",
    ),
    "an atomic on unset memory": (
        "atomicAdd(&s[0], x[t]); __syncthreads(); y[g] = s[0];",
        "s[0] = 0; __syncthreads(); atomicAdd(&s[0], x[t]); __syncthreads(); y[g] = s[0];",
    ),
    "global memory within a block": (
        "y[g] = x[t]; z[g] = y[blockIdx.x * 64 + 63 - t];",
        "y[g] = x[t]; __syncthreads(); z[g] = y[blockIdx.x * 64 + 63 - t];",
    ),
    "blocks write one place": ("y[t] = g;", "y[t] = x[t];"),
    "a block reads what another wrote": ("y[g] = x[t]; z[g] = y[g ^ 64];", "y[g] = x[t]; z[g] = y[g] + x[g ^ 64];"),
    "a block writes what another read": ("z[g] = y[g ^ 64]; y[g] = x[t] + 1;", "z[g] = x[g ^ 64]; y[g] = x[t] + 1;"),
    "an atomic and another block's store": (
        "if (g == 0) y[0] = 5; else if (blockIdx.x) atomicAdd(&y[0], 1);", "atomicAdd(&y[x[t] & 3], 1);",
    ),
    "no fence before the last block reads": (
        "__shared__ int last; y[g] = x[t]; __syncthreads(); if (t == 0) last = atomicAdd(&z[0], 1); __syncthreads();"
        "if (last) z[1 + t] = y[t ^ 64] + y[t];",
        "__shared__ int last; y[g] = x[t]; __syncthreads(); if (t == 0) last = atomicAdd(&z[0], 1); __syncthreads();"
        "if (last > 5) z[1 + t] = y[g];",
    ),
    "out of bounds": ("y[g + 129] = x[t];", "y[g + 128] = x[t];"),
    "before the start": ("y[g] = (x - 1)[t];", "y[g] = (x + 1)[t];"),
    "through a null pointer": ("int *p = (int *)(size_t)x[t]; y[g] = *p;", "int *p = x + x[t]; y[g] = *p;"),
    "out of bounds of a shared array": (
        "s[t + 1] = 1; __syncthreads(); y[g] = s[t];", "s[63 - t] = 1; __syncthreads(); y[g] = s[t];",
    ),
    "misaligned": ("y[g] = *(int *)((char *)x + 4 * t + x[2]);", "y[g] = *(int *)((char *)x + 4 * t + x[4]);"),
    "a barrier for some": (
        "s[t] = 1; if (x[t] < 16) __syncthreads(); y[g] = s[t];",
        "s[t] = 1; if (x[t] < 64) __syncthreads(); y[g] = s[t];",
    ),
    "a barrier in both branches": (
        "if (x[t] < 32) { y[g] = 1; __syncthreads(); z[g] = 1; }\nelse { y[g] = 2; __syncthreads(); z[g] = 3; }",
        "if (x[t] < 32) y[g] = 1; else y[g] = 2; __syncthreads(); z[g] = y[g];",
    ),
    "some have ended before a barrier": (
        "if (x[t] >= 40) return; __syncthreads(); y[g] = 1;", "if (x[t] >= 64) return; __syncthreads(); y[g] = 1;",
    ),
    "a warp has ended before a barrier": (
        "if (x[t] >= 32) return; __syncthreads(); y[g] = 1;", "if (x[t] < 32) y[g] = 2; __syncthreads(); y[g] = 1;",
    ),
    "barriers in other turns": (
        "for (int k = 0; k < 1 + (x[t] & 1); k++) { y[g] = k; __syncthreads(); }",
        "for (int k = 0; k < 1 + (x[1] & 1); k++) { y[g] = k; __syncthreads(); }",
    ),
    "a mask that names who is elsewhere": (
        "int v = x[t]; if (t % 32 < 16) v = __shfl_xor_sync(~0u, v, 1); else __syncthreads(); y[g] = v;",
        "int v = x[t]; if (t % 32 < 16) v = __shfl_xor_sync(0xFFFF, v, 1); __syncthreads(); y[g] = v;",
    ),
    "a mask that names who has ended": (
        "if (t % 32 > 20) return; y[g] = __any_sync(~0u, x[t]);",
        "if (t % 32 > 15) return; y[g] = __any_sync(0xFFFF, x[t]);",
    ),
    "a lane outside of its mask": ("y[g] = __ballot_sync(0xFFFF, x[t]);", "y[g] = __ballot_sync(~0u, x[t]);"),
    "a value from a lane that is not there": (
        "int v = x[t]; if (t % 32 < 16) v = __shfl_down_sync(0xFFFF, v, 8); y[g] = v;",
        "int v = x[t]; if (t % 32 < 16) v = __shfl_down_sync(0xFFFF, v, 8, 16); y[g] = v;",
    ),
    "a register that nothing has written": (
        'int v; asm("{ .reg .s32 q; add.s32 %0, q, %1; }" : "=r"(v) : "r"(x[t])); y[g] = v;',
        'int v; asm("{ .reg .s32 q; mov.s32 q, 1; add.s32 %0, q, %1; }" : "=r"(v) : "r"(x[t])); y[g] = v;',
    ),
    "a read-only cache of what is written": (
        "y[g] = x[t]; __syncthreads(); z[g] = __ldg(&y[g ^ 1]);",
        "y[g] = x[t]; __syncthreads(); z[g] = __ldg(&x[g ^ 1]);",
    ),
}  # fmt: skip
# These kernels look faulty but are correct: some lanes have exited, and the others synchronise without them.
RIGHT = (
    "if (t >= 40) return; s[t] = x[t]; __syncwarp(); y[g] = s[t ^ 1];",
    "if (t >= 40) return; y[g] = __shfl_xor_sync(t < 32 ? ~0u : 0xFF, x[t], 1);",
    "for (int k = 0; k < t; k++) y[g] += k; __syncwarp(); z[g] = __any_sync(~0u, t == 3);",
)
ENDS = {"an assertion": "y[g] = 1; assert(x[t] < 9);", "a trap": "y[g] = 1; if (x[t] == 9) __trap();"}


@lru_cache(1)
def program() -> api.Program:
    """Return the program of all bodies: kernels wrong0, right0, wrong1..., still0... and end0..."""
    start = "__shared__ int s[64]; int t = threadIdx.x, g = blockIdx.x * 64 + t; s; "
    named = [
        (f"{which}{n}", body) for n, two in enumerate(BODIES.values()) for which, body in zip(SIDES, two, strict=True)
    ]
    named += [(f"still{number}", body) for number, body in enumerate(RIGHT)]
    named += [(f"end{number}", body) for number, body in enumerate(ENDS.values())]
    texts = [f'extern "C" __global__ void {name}(int *x, int *y, int *z) {{ {start}{body} }}' for name, body in named]
    return loaded("#include <cassert>\n" + "\n".join(texts))


SIDES = ("wrong", "right")


def launched(name: str, threads: int) -> Both:
    """Run a kernel of `program` on both engines."""
    return both(program(), name, 2, 64, arrays(), threads=threads)


def arrays() -> list[Any]:
    """Return the arguments of the kernels."""
    return [np.arange(256, dtype=np.int32), np.zeros(256, np.int32), np.zeros(256, np.int32)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", BODIES)
def test_a_fault_is_left_to_the_engine_that_names_it(name: str, threads: int) -> None:
    """A launch in which the NumPy engine reports a fault stops the native engine, which restores memory."""
    found = launched(f"wrong{[*BODIES].index(name)}", threads)
    assert found.report.hazards or found.report.suspicions
    assert isinstance(found.ran, str)
    assert (found.native[0] == np.arange(256)).all()
    assert not np.any(found.native[1:])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "name", [*(f"right{n}" for n in range(len(BODIES))), *(f"still{n}" for n in range(len(RIGHT)))]
)
def test_a_right_kernel_is_not_suspected(name: str, threads: int) -> None:
    """A correct kernel runs to its end on the native engine, with the bits of the NumPy engine."""
    found = launched(name, threads)
    assert found.report.hazards == found.report.suspicions == ()
    assert not isinstance(found.ran, str), found.ran
    assert found.same()


# Bodies of kernels for 40 blocks. `%s` is a condition; only where it holds, the block has a fault.
ONE_BLOCK = {
    "leaves out a barrier": "s[t] = x[t]; if (!(%s)) __syncthreads(); y[g] = s[63 - t];",
    "stores several values in one place": "s[t & 7] = %s ? t : 5; __syncthreads(); y[g] = s[t & 7];",
    "reads at another place": "s[t] = x[t]; y[g] = s[%s ? t ^ 32 : t];",
    "reads what it did not write": "if (t || !(%s)) s[t] = x[t]; __syncthreads(); y[g] = s[63 - t];",
    "stores where another block does": "y[%s ? t : g] = g;",
    "reads what another block stores": "y[g] = t; z[g] = %s ? y[t] : 1;",
    "stores where another block reads": "z[g] = x[g] + y[g]; if (%s) y[t] = 1;",
    "leaves out a barrier after many requests": (
        "for (int k = 0; k < 600; k++) y[g] += x[k]; s[t] = x[t]; if (!(%s)) __syncthreads(); y[g] = s[63 - t];"
    ),
}


@lru_cache(1)
def program_of_many() -> api.Program:
    """Return the program of the bodies above: kernels wrong0, right0, wrong1..."""
    start = "__shared__ int s[64]; int t = threadIdx.x, g = blockIdx.x * 64 + t; s;"
    return loaded("".join(
        f'extern "C" __global__ void {side}{n}(int *x, int *y, int *z) {{ {start} {body % condition} }}\n'
        for n, body in enumerate(ONE_BLOCK.values())
        for side, condition in zip(SIDES, ("x[blockIdx.x] == 29", "x[blockIdx.x] == 99"), strict=True)
    ))  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ONE_BLOCK)
def test_a_fault_of_one_block_among_many_is_found(name: str, threads: int) -> None:
    """If 39 of 40 blocks make the same correct requests, the fault of the other one stops the native engine. Without
    this fault, all blocks run to their end."""
    for side in SIDES:
        arguments = [np.arange(64 * 40, dtype=np.int32), *(np.zeros(64 * 40, np.int32) for _ in range(2))]
        found = both(program_of_many(), f"{side}{[*ONE_BLOCK].index(name)}", 40, 64, arguments, threads=threads)
        faults = found.report.hazards or found.report.suspicions
        assert bool(faults) == isinstance(found.ran, str) == (side == "wrong"), (faults, found.ran)
        assert side == "wrong" or found.same()


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_launch_is_left_to_the_engine_that_says_so(name: str) -> None:
    """A failed assertion or a trap stops the native engine; then the NumPy engine raises the error."""
    with pytest.raises(api.KernelTrap):
        api.run(program(), f"end{[*ENDS].index(name)}", 2, 64, arrays())


def test_two_dynamic_arrays_are_one_memory() -> None:
    """The native engine does not run a launch for which the NumPy engine reports two arrays in the same memory."""
    source = """
    extern __shared__ int d[];
    extern __shared__ float e[];
    extern "C" __global__ void k(float *y) { d[threadIdx.x] = 1; e[64 + threadIdx.x] = 2; y[threadIdx.x] = 1; }
    """
    found = both(loaded(source), "k", 1, 32, [np.zeros(32, np.float32)], shared_bytes=512)
    assert [one.kind for one in found.report.suspicions] == ["same-memory"]
    assert isinstance(found.ran, str)


INDICES = st.one_of(
    st.sampled_from([Index(1, 0, 0), Index(-1, 0, 63), Index(2, 0, 0), Index(0, 1, 0), Index(1, 64, 0)]),
    st.builds(Index, st.just(1), st.just(0), st.sampled_from([0, 1, 32])),
    st.builds(Index, st.just(0), st.just(0), st.integers(0, 3)),
)
LANES = st.sampled_from([(0, 1024), (0, 1024), (0, 1), (0, 32), (32, 64), (5, 40), (0, 16), (33, 34), (8, 1024)])
MEETINGS = st.sampled_from(
    [(0, 1024, 0xFFFFFFFF), (0, 32, 0xFFFFFFFF), (32, 64, 0xFFFFFFFF), (0, 16, 0xFFFF), (16, 32, 0xFFFF0000)]
)
ACCESSES = st.builds(
    lambda kind, array, index, value, lanes: Statement(kind, array, index, value, *lanes),
    st.sampled_from(["load", "store", "store", "add"]), st.sampled_from(SHARED + GLOBAL), INDICES,
    st.sampled_from([None, 1, 2]), LANES,
)  # fmt: skip
STATEMENTS = st.one_of(
    ACCESSES, ACCESSES, st.just(Statement("barrier")),
    st.builds(lambda one: Statement("meet", first=one[0], end=one[1], mask=one[2]), MEETINGS),
)  # fmt: skip
FIRST = [*(Statement("store", name, Index(1, 0, plus)) for name in SHARED for plus in (0, 64)), Statement("barrier")]


@pytest.mark.slow
@given(
    st.lists(STATEMENTS, min_size=1, max_size=7), st.booleans(), st.sampled_from([1, 2]), st.sampled_from([1, 2, 3]),
    st.sampled_from([32, 48, 64]), st.sampled_from([1, 2]),
)  # fmt: skip
def test_no_hazard_of_a_random_kernel_is_missed(
    statements: list[Statement], sets: bool, times: int, grid: int, block: int, threads: int
) -> None:
    """In random kernels of loads, stores, atomics, barriers and conditions, the native engine stops at each launch with
    a report of NumPy, and gives NumPy's bits otherwise."""
    made = loaded(kernel([*FIRST, *statements] if sets else statements, times))
    found = both(made, "k", grid, block, [np.zeros(WORDS, np.int32), np.zeros(WORDS, np.int32)], threads=threads)
    if isinstance(found.ran, str):
        assert not any(array.any() for array in found.native)
    else:
        assert found.report.hazards == found.report.suspicions == ()
        assert found.same()


@pytest.mark.parametrize("first", [0, 2])
def test_a_store_that_a_later_one_hides(first: int) -> None:
    """If one thread stores another value before all threads store the same value, its first store races with theirs."""
    own = Statement("store", "s", Index(first, 0, 0), None)
    made = loaded(kernel([own, Statement("store", "s", Index(0, 0, 0), 1)], 1))
    found = both(made, "k", 1, 64, [np.zeros(WORDS, np.int32), np.zeros(WORDS, np.int32)], threads=1)
    assert found.report.hazards
    assert isinstance(found.ran, str)


def test_stores_of_one_value_alone() -> None:
    """Threads that only store one value to a place between two barriers do not race."""
    same = Statement("store", "s", Index(0, 0, 0), 1)
    made = loaded(kernel([same, same, Statement("barrier"), same], 2))
    found = both(made, "k", 1, 64, [np.zeros(WORDS, np.int32), np.zeros(WORDS, np.int32)], threads=1)
    assert not isinstance(found.ran, str)
    assert not found.report.hazards
