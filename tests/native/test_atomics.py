"""Atomics give the same bits, counts and contention on the native engine as on the NumPy engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.simulator import api
from cudabench.simulator.count.atomics import ONE_LANE
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.memory import LOCAL_WINDOW
from cudabench.system import native
from tests.engines import Both, alike, both, loaded

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

BLOCKS = (1, 31, 33, 64, 127, 256)
PLACES = 24
HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 places, .param .u64 table, .param .u64 found)
{
 .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<4>; .reg .f64 %fd<4>;
 .shared .align 16 .b8 own[256];
 ld.param.u64 %rd1, [words];
 ld.param.u64 %rd2, [places];
 ld.param.u64 %rd3, [table];
 ld.param.u64 %rd4, [found];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ntid.x;
 mov.u32 %r3, %tid.x;
 mad.lo.s32 %r4, %r1, %r2, %r3;
 mul.wide.s32 %rd5, %r4, 8;
 add.s64 %rd1, %rd1, %rd5;
 add.s64 %rd4, %rd4, %rd5;
 mul.wide.s32 %rd6, %r4, 4;
 add.s64 %rd2, %rd2, %rd6;
 ld.global.u32 %r5, [%rd2];
 ld.global.u64 %rd7, [%rd1];
 ld.global.u32 %r6, [%rd1];
 ld.global.u32 %r7, [%rd1+4];
 mul.wide.s32 %rd8, %r5, 8;
"""
OF_GLOBAL = " add.s64 %rd9, %rd3, %rd8;\n"
OF_SHARED = """ mov.u64 %rd9, own;
 add.s64 %rd9, %rd9, %rd8;
 setp.lt.s32 %p1, %r3, 32;
 mov.u64 %rd10, own;
 mul.wide.s32 %rd11, %r3, 8;
 add.s64 %rd10, %rd10, %rd11;
 @%p1 st.shared.u64 [%rd10], %rd11;
 bar.sync 0;
"""
CASES = {
    **{f"{name}.{type_}": (f"{name}.{type_}", "%r6", "%r8")
       for name, type_ in [("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"), ("max", "u32"),
                           ("max", "s32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("exch", "b32"),
                           ("inc", "u32"), ("dec", "u32"), ("add.noftz", "f16x2"), ("add.noftz", "bf16x2")]},
    **{f"{name}.{type_}": (f"{name}.{type_}", "%rd7", "%rd12")
       for name, type_ in [("add", "u64"), ("min", "u64"), ("min", "s64"), ("max", "u64"), ("max", "s64"),
                           ("and", "b64"), ("or", "b64"), ("xor", "b64"), ("exch", "b64")]},
    "one": ("add.u32", "1", "%r8"),
    "cas.b32": ("cas.b32", "%r5, %r6", "%r8"),
    "cas.b64": ("cas.b64", "%rd8, %rd7", "%rd12"),
    "add.f32": ("add.f32", "%f1", "%f2"),
    "add.f64": ("add.f64", "%fd1", "%fd2"),
}  # fmt: skip


COUNTER = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 counter)
{
.reg .b64 %rd<3>;
ld.param.u64 %rd1, [counter];
cvta.to.global.u64 %rd2, %rd1;
red.global.add.u32 [%rd2], 1;
ret;
}
"""


def ran(
    case: str, block: int, *, space: str = "global", returns: bool = True, grid: int = 2, places: int = PLACES,
    threads: int = 1, guard: str = "", aggregated: bool = False,
) -> Both:  # fmt: skip
    """Run one atomic in all threads, each on a random element of a table."""
    operation, source, target = CASES[case]
    draw = np.random.default_rng(5)
    n = grid * block
    words = draw.integers(0, 1 << 64, n, np.uint64)
    if case.endswith(("f32", "f64")):
        words = draw.standard_normal(n).view(np.uint64) if "64" in case else (
            draw.standard_normal(2 * n).astype(np.float32).view(np.uint64)
        )  # fmt: skip
    elif case in ("inc.u32", "dec.u32") or case.startswith("cas"):
        words &= np.uint64(0x700000007)
    elif "16" in case:
        words &= np.uint64(0xBFFFBFFFBFFFBFFF) & np.uint64(0x8FFF8FFF8FFF8FFF) | np.uint64(0x3000300030003000)
    where = draw.integers(0, places, n, np.uint32)
    kind = {"%r8": "u32", "%rd12": "u64", "%f2": "f32", "%fd2": "f64"}[target]
    only = "@%p2 " if guard else ""
    lines = [OF_GLOBAL if space == "global" else OF_SHARED]
    if kind[0] == "f":
        lines += [f" ld.global.{kind} {source}, [%rd1];"]
    if returns:
        zero = f"0{'f' if kind == 'f32' else 'd'}{'0' * (8 if kind == 'f32' else 16)}" if kind[0] == "f" else "0"
        lines += [f" mov.{kind} {target}, {zero};"]
    lines += [guard, f" {only}{'atom' if returns else 'red'}.{space}.{operation}"]
    lines[-1] += f" {target}, [%rd9], {source};" if returns else f" [%rd9], {source};"
    if returns:
        lines += [f" {only}st.global.{kind} [%rd4], {target};"]
    if space == "shared":
        lines += [" bar.sync 0;", " mul.wide.s32 %rd13, %r1, 256;", " add.s64 %rd3, %rd3, %rd13;"]
        lines += [" add.s64 %rd3, %rd3, %rd11;", " mov.u64 %rd14, 0;"]
        lines += [" @%p1 ld.shared.u64 %rd14, [%rd10];", " @%p1 st.global.u64 [%rd3], %rd14;"]
    table = np.arange(32 * grid, dtype=np.uint64)
    text = HEAD + "\n".join([*lines, " ret;", "}"])
    program = loaded(text)
    at = next(number for number, line in enumerate(text.splitlines(), 1) if f".{space}.{operation}" in line)
    return both(
        program, "k", grid, block, [words, where, table, np.zeros(n, np.uint64)], threads=threads,
        merged={at: (0, ONE_LANE)} if aggregated else None,
    )  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("case", CASES)
def test_atomics_on_global_memory(case: str, block: int) -> None:
    """Final values, return values, sectors and contention are equal, whether the kernel uses the return values or
    not."""
    assert alike(ran(case, block)) == []
    if not case.startswith(("exch", "cas")):
        assert alike(ran(case, block, returns=False)) == []


@pytest.mark.sampled(20)
@pytest.mark.parametrize("block", [32, 33, 256])
@pytest.mark.parametrize("case", [case for case in CASES if "16" not in case])
@pytest.mark.parametrize("places", [1, PLACES])
def test_atomics_on_shared_memory(case: str, block: int, places: int) -> None:
    """Wavefronts, and the loads and iterations of compare-and-swap loops, are equal, with and without lanes on the same
    element."""
    found = ran(case, block, space="shared", places=places)
    assert alike(found) == []
    if not case.startswith(("exch", "cas")):
        assert alike(ran(case, block, space="shared", places=places, returns=False)) == []
    assert sum(one.reloads for one in found.report.accesses) > 0 or not case.startswith(("add.f", "add.u64"))


@pytest.mark.parametrize("space", ["global", "shared"])
def test_some_lanes_of_a_warp(space: str) -> None:
    """Atomics agree under a guard that leaves out some lanes and whole warps."""
    guard = " setp.lt.s32 %p2, %r5, 7;\n"
    for case in ("add.u32", "add.f32", "cas.b32"):
        assert alike(ran(case, 96, space=space, guard=guard)) == []


@pytest.mark.parametrize("space", ["global", "shared"])
def test_one_lane_for_a_warp(space: str) -> None:
    """An atomic that the machine code executes in one lane per warp costs one access per request; its contention stays
    the same."""
    found = ran("add.u32", 96, space=space, returns=False, aggregated=True)
    assert alike(found) == []
    assert any(one.aggregated for one in found.report.accesses)


@pytest.mark.parametrize("case", ["add.u32", "max.s64", "xor.b32", "one"])
def test_several_workers(case: str) -> None:
    """Operations whose results do not depend on the order give the same bits and contention with several worker
    threads."""
    assert alike(ran(case, 256, returns=False, grid=40, threads=4)) == []


OF_FLOATS = """
extern "C" __global__ void sums(const float *a, float *out, int n, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        int i = (turn * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(out, a[i]);
    }
}
"""


def test_floats_that_blocks_add_in_turns_are_left_to_numpy() -> None:
    """Sums of floats depend on the order of blocks: the bits are equal if each block adds once or the grid is one
    block; other launches stop the native engine."""
    a = np.random.default_rng(3).standard_normal(1024).astype(np.float32)
    once = both(loaded(OF_FLOATS), "sums", 8, 128, [a, np.zeros(1, np.float32), 1024, 1], threads=4)
    assert alike(once) == []
    again = both(loaded(OF_FLOATS), "sums", 4, 128, [a, np.zeros(1, np.float32), 1024, 2], threads=4)
    assert "one after another" in str(again.ran)
    assert not again.native[1].any()
    alone = both(loaded(OF_FLOATS), "sums", 1, 128, [a, np.zeros(1, np.float32), 1024, 8], threads=4)
    assert alike(alone) == []


HISTOGRAM = """
extern "C" __global__ void histogram(const int *a, unsigned *bins, int n, int count)
{
    extern __shared__ unsigned own[];
    for (int bin = threadIdx.x; bin < count; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[a[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < count; bin += blockDim.x)
        if (own[bin]) atomicAdd(&bins[bin], own[bin]);
}
extern "C" __global__ void direct(const int *a, unsigned *bins, int n, int count)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[a[i]], 1u);
}
extern "C" __global__ void either(const int *a, unsigned *bins, int n, int count)
{
    __shared__ unsigned own[64];
    for (int bin = threadIdx.x; bin < 64; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicMax(i % 3 ? &own[a[i]] : &bins[a[i]], (unsigned)i);
    __syncthreads();
    for (int bin = threadIdx.x; bin < count; bin += blockDim.x) atomicMax(&bins[bin], own[bin]);
}
"""


@settings(max_examples=20, deadline=None)
@given(
    kernel=st.sampled_from(("histogram", "direct", "either")), block=st.sampled_from((32, 33, 96, 128)),
    grid=st.integers(1, 4), count=st.sampled_from((1, 2, 17, 64)), seed=st.integers(0, 99), n=st.integers(1, 700),
)  # fmt: skip
def test_histograms(kernel: str, block: int, grid: int, count: int, seed: int, n: int) -> None:
    """Histograms of random values agree, in shared memory, in global memory, and by generic addresses of either."""
    a = np.random.default_rng(seed).integers(0, count, n, np.int32)
    found = both(
        loaded(HISTOGRAM), kernel, grid, block, [a, np.zeros(count, np.uint32), n, count], threads=2,
        shared_bytes=4 * count if kernel == "histogram" else 0,
    )  # fmt: skip
    assert alike(found) == []
    if kernel != "either":
        assert (found.native[1] == np.bincount(a, minlength=count)).all()


STORED = "\n st.global.u32 [%rd4], %r6;\n ret;\n}\n"
FAULTS = {
    "out of bounds": "atom.global.add.u32 %r8, [%rd3+4096], %r6;",
    "misaligned": "red.global.add.u32 [%rd3+2], %r6;",
    "out of shared memory": "mov.u64 %rd9, own;\n red.shared.add.u32 [%rd9+256], %r6;",
}


@pytest.mark.parametrize("line", FAULTS.values(), ids=FAULTS)
def test_faults_are_left_to_numpy(line: str) -> None:
    """An atomic on an invalid address stops the native engine, which restores memory."""
    arrays = [np.zeros(32, np.uint64), np.zeros(32, np.uint32), np.zeros(8, np.uint64), np.zeros(32, np.uint64)]
    found = both(loaded(HEAD + line + STORED), "k", 1, 32, arrays)
    assert found.report.hazards
    assert "out of bounds" in str(found.ran)
    assert not any(array.any() for array in found.native)


def test_an_atomic_on_local_memory_ends_the_launch() -> None:
    """An atomic on local memory is an error, also if the native engine runs first."""
    line = f" mov.u64 %rd9, {LOCAL_WINDOW};\n red.add.u32 [%rd9], %r6;"
    arrays = [np.zeros(32, np.uint64), np.zeros(32, np.uint32), np.zeros(8, np.uint64), np.zeros(32, np.uint64)]
    with pytest.raises(KernelTrap, match="an atomic operation on local memory"):
        api.run(loaded(HEAD + line + STORED), "k", 1, 32, arrays)


def test_one_lane_adds_for_its_warp_to_a_counter() -> None:
    """If all blocks add to one counter, and one lane of each warp adds for all, each warp requests one sector."""
    at = next(number for number, line in enumerate(COUNTER.splitlines(), 1) if "red.global" in line)
    found = both(loaded(COUNTER), "k", 5, 96, [np.zeros(1, np.uint32)], merged={at: (0, ONE_LANE)})
    assert alike(found) == []
    (access,) = found.report.accesses
    assert (access.requests, access.sectors, access.ideal_sectors) == (15, 15, 15)
