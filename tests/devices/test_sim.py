"""The simulator's device: unwritten memory, pointers that launches store, and samples of blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cudabench.devices import sim
from cudabench.records.launch import Launch, Source, Unit
from cudabench.records.plan import Case
from tests.ladders import build, needs_compiler


def test_unwritten_memory() -> None:
    """Output arrays start as NaN; scratch arrays start as NaN and the largest number in turn."""
    assert np.isnan(sim.poisoned_array((3,), "float32")).all()
    scratch = sim.scratch_array((4,), "float32")
    assert np.isnan(scratch).tolist() in ([True, False] * 2, [False, True] * 2)
    assert np.nanmin(scratch) > 1e38
    whole = sim.scratch_array((2,), "int32")
    assert {*whole.tolist()} == {-1, int(whole.max())}
    assert whole.max() > 1 << 30


def test_poison_takes_memory_that_is_there() -> None:
    """An existing array of the right shape and type is filled again; another array is left unchanged."""
    there = np.zeros(3, np.float32)
    assert sim.poisoned_array((3,), "float32", into=there) is there
    assert np.isnan(there).all()
    for shape, dtype in (((4,), "float32"), ((3,), "int32")):
        other = np.zeros(3, np.float32)
        assert sim.poisoned_array(shape, dtype, into=other) is not other
        assert not other.any()


KEEP = """extern "C" __global__ void keep(const float **place, const float *b) { *place = b; }
extern "C" __global__ void use(const float **place, float *out) { *out = **place; }
extern "C" __global__ void mark(float *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
"""
USE = """__device__ int one = 1, two = 2, three = 3, four = 4;
extern "C" __global__ void use(const float **place, float *out)
{
    *out = **place + atomicAdd(&one, 1) + atomicAdd(&two, 1) + atomicAdd(&three, 1) + atomicAdd(&four, 1) - 10;
}
"""
ONE = (1, 1, 1)


def case_of(*launches: Launch) -> Case:
    """Return a case of the kernels above."""
    _, (case,) = build("vecadd", "naive", size=(100,))
    return replace(case, source=Source("keep.cu", KEEP, builtin=False), function="keep", launches=launches)


@needs_compiler
@pytest.mark.parametrize("unit", [None, Unit(Source("use.cu", USE, builtin=False), {})], ids=["one source", "two"])
def test_a_pointer_that_a_launch_stores(unit: Unit | None) -> None:
    """A pointer that one launch stores is valid in the next launch, which does not get the array as an argument; the
    next launch's source may have any variables."""
    arrays = {"p": np.zeros(1, np.uint64), "b": np.full(1, 7, np.float32), "c": np.zeros(1, np.float32)}
    case = case_of(Launch("keep", ONE, ONE, ("p", "b"), 0), Launch("use", ONE, ONE, ("p", "c"), 0, unit=unit))
    ran = sim.SimDevice("sm_90").run(case, arrays, trace=False, progress=lambda fraction: None)
    assert ran.report.hazards == ()
    assert arrays["c"].tolist() == [7]


@needs_compiler
@pytest.mark.parametrize(("threads", "least", "blocks"), [(1024, 4, 32), (64, 8, 8)])
def test_a_sample_of_the_blocks(threads: int, least: int, blocks: int) -> None:
    """A sample runs about the given number of threads, in at least the given number of blocks."""
    arrays = {"c": np.zeros(256 * 32, np.float32)}
    case = case_of(Launch("mark", (256, 1, 1), (32, 1, 1), ("c",), 0))
    sim.SimDevice("sm_90").run(case, arrays, trace=False, progress=lambda fraction: None, sample=(threads, least))
    assert blocks <= int(arrays["c"].sum()) / 32 < 2 * blocks
