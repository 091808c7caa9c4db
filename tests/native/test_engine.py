"""The native engine gives the bits and the counts of the NumPy engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.simulator.count.footprint import FOLLOWED
from cudabench.simulator.machine import FAIRNESS
from cudabench.system import native
from tests.engines import alike, both, loaded

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

VECADD = """
extern "C" __global__ void vecadd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""


@pytest.mark.sampled(10)
@pytest.mark.parametrize("n", [1, 31, 33, 127, 1000])
@pytest.mark.parametrize("block", [1, 32, 48, 256])
def test_bits_and_counts_of_a_ragged_vector_addition(n: int, block: int) -> None:
    """Results, instructions and counts are equal if the size is not a multiple of the block."""
    draw = np.random.default_rng(1)
    a, b = draw.random(n, np.float32), draw.random(n, np.float32)
    found = both(loaded(VECADD), "vecadd", -(-n // block), block, [a, b, np.zeros(n, np.float32), n])
    assert not isinstance(found.ran, str), found.ran
    assert found.same()
    assert found.ran.instructions == found.report.instructions
    names = ("requests", "pieces", "ideal")
    counts = [[row[name].sum() for name in names] for row in found.ran.counts]
    assert counts == [[one.requests, one.sectors, one.ideal_sectors] for one in found.report.accesses]


GATHER = """
struct __align__(16) Four { float x, y, z, w; };
extern "C" __global__ void gather(const Four *wide, const float *a, const short *halves, const int *places, int turns,
                                  float *out)
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, many = gridDim.x * blockDim.x;
    float sum = 0;
    for (int turn = 0; turn < turns; turn++) {
        const int place = places[turn * many + thread];
        if (place < 0)
            continue;
        const Four four = wide[place];
        sum += a[place] + a[place / 2] + halves[place] + four.x + four.w;
        out[turn * many + thread] = sum;
        out[(turns + turn) * many + thread % 32 * (many / 32) + thread / 32] = a[place];
    }
}
"""
FORMS = ("row", "rows", "same", "stride", "any")
BLOCKS = 3 * FOLLOWED  # so many that the engine does not examine most of them


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    forms=st.lists(st.sampled_from(FORMS), min_size=1, max_size=5), some=st.booleans(), seed=st.integers(0, 99),
    footprint=st.booleans(), outside=st.booleans(),
)  # fmt: skip
def test_forms_of_accesses(forms: list[str], some: bool, seed: int, footprint: bool, outside: bool) -> None:
    """Bits and counts are equal if a warp uses one access pattern, then another, also with some lanes inactive; an
    access out of bounds stops the native engine."""
    draw, many = np.random.default_rng(seed), BLOCKS * 64
    lane, warp = np.arange(many) % 32, np.arange(many) // 32
    made = {
        "row": warp * 32 + lane, "rows": warp % 7 * 64 + lane // 8 * 128 + lane % 8, "same": warp,
        "stride": warp % 5 + lane * 3, "any": draw.integers(0, many, many),
    }  # fmt: skip
    places = np.stack([made[form] for form in forms]).astype(np.int32) % many
    if some:
        places[draw.random(places.shape) < 0.3] = -1
    if outside:
        places[-1, -40] = many
    arguments = [
        draw.random(4 * many, np.float32), draw.random(many, np.float32), draw.integers(-9, 9, many).astype(np.int16),
        places, len(forms), np.zeros((2 * len(forms), many), np.float32),
    ]  # fmt: skip
    found = both(loaded(GATHER), "gather", BLOCKS, 64, arguments, footprint=footprint)
    if outside:
        assert isinstance(found.ran, str)
    else:
        assert alike(found) == []


LEVELS = """
extern "C" __global__ void %s(const int *first, const int *to, const int *level, int *next, int *grew,
                              int nodes, int depth)
{
    const int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes || level[node] != depth)
        return;
    for (int edge = first[node]; edge < first[node + 1]; edge++)
        if (level[to[edge]] < 0) {
            %s
        }
}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "body", "clean"),
    [
        ("stores", "next[to[edge]] = depth + 1; *grew = 1;", True),
        ("swaps", "atomicExch(next + to[edge], depth + 1); atomicExch(grew, 1);", True),
        ("own", "atomicExch(next + to[edge], node); atomicExch(grew, 1);", False),
        ("others", "next[to[edge]] = node; *grew = 1;", False),
    ],
)
def test_threads_that_put_one_value_in_one_place(name: str, body: str, clean: bool) -> None:
    """A breadth-first search in which many threads give a node the same depth runs on the native engine; if they store
    different values, the native engine stops."""
    nodes, draw = 6000, np.random.default_rng(5)
    first = np.arange(nodes + 1, dtype=np.int32) * 4
    to = draw.integers(0, nodes // 8, 4 * nodes).astype(np.int32)
    level = np.where(np.arange(nodes) % 3, -1, 4).astype(np.int32)
    arguments = [first, to, level, level.copy(), np.zeros(1, np.int32), nodes, 4]
    found = both(loaded(LEVELS % (name, body)), name, -(-nodes // 128), 128, arguments)
    if clean:
        assert not found.report.hazards
        assert alike(found) == []
    else:
        assert isinstance(found.ran, str)


COLLATZ = """
extern "C" __global__ void steps(const unsigned *start, unsigned *count, unsigned *most)
{
    unsigned one = start[threadIdx.x], times = 0, high = one;
    while (one != 1) {
        if (one % 2)
            one = 3 * one + 1;
        else
            one /= 2;
        high = one > high ? one : high;
        for (unsigned rest = one; rest & 3; rest >>= 1)
            times += rest & 1;
    }
    count[threadIdx.x] = times;
    most[threadIdx.x] = high;
}
"""


@pytest.mark.slow
def test_instructions_of_long_loops_in_which_lanes_part() -> None:
    """If lanes of a long loop diverge but do not wait for each other, instructions and counts are equal."""
    start = np.random.default_rng(7).integers(1, 1 << 20, 64).astype(np.uint32)
    start[::9] = 837799  # the longest sequence
    program = loaded(COLLATZ)
    found = both(program, "steps", 1, 64, [start, np.zeros(64, np.uint32), np.zeros(64, np.uint32)])
    assert found.report.instructions > 5 * FAIRNESS
    assert alike(found) == []
