"""Warp-wide instructions and barriers give the same results on the native engine as on the NumPy engine."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.system import native
from tests.engines import Both, alike, both, loaded

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

SHUFFLES = [*product(("down", "bfly", "idx"), (1, 5, 31), (31, 0x181F)), ("up", 3, 0), ("up", 1, 0x1800)]
BLOCKS = (1, 31, 33, 64, 127, 256)
HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 found, .param .u64 more)
{
 .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
 ld.param.u64 %rd1, [given];
 ld.param.u64 %rd2, [found];
 ld.param.u64 %rd3, [more];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ntid.x;
 mov.u32 %r3, %tid.x;
 mad.lo.s32 %r4, %r1, %r2, %r3;
 mul.wide.s32 %rd4, %r4, 4;
 add.s64 %rd1, %rd1, %rd4;
 add.s64 %rd2, %rd2, %rd4;
 add.s64 %rd3, %rd3, %rd4;
 mov.u32 %r9, 0;
 ld.global.u32 %r5, [%rd1];
"""
STORE = """
 st.global.u32 [%rd2], %r6;
 @%p1 st.global.u32 [%rd3], %r4;
 ret;
}
"""


def ran(lines: str, block: int, grid: int = 2, seed: int = 1, high: int = 1 << 32) -> Both:
    """Run lines of PTX on random words (%r5); the kernel stores %r6, and the thread number in lanes where %p1 is
    true."""
    words = np.random.default_rng(seed).integers(0, high, grid * block, np.uint32)
    given = [words, np.zeros_like(words), np.zeros_like(words)]
    return both(loaded(HEAD + lines.replace("; ", ";\n") + STORE), "k", grid, block, given)


def suspected(found: Both) -> set[str]:
    """Return the kinds of hazards and suspicions that the NumPy engine reports."""
    return {one.kind for one in (*found.report.hazards, *found.report.suspicions)}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("mode", "by", "clamp"), SHUFFLES)
def test_shuffles(mode: str, by: int, clamp: int, block: int) -> None:
    """All shuffle modes give the same value and predicate, in segments too; a shuffle from an absent lane stops the
    native engine."""
    found = ran(f"shfl.sync.{mode}.b32 %r6|%p1, %r5, {by}, {clamp}, -1;", block)
    if found.told is None:
        assert suspected(found) == {"undefined-shuffle"}
        assert "does not take part" in str(found.ran)
    else:
        assert not suspected(found)
        assert alike(found) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lines", [
    "shfl.down.b32 %r6|%p1, %r5, 4, 31;",
    "shfl.sync.idx.b32 %r6|%p1, %r5, %r5, 31, -1;",
    "setp.lt.s32 %p1, %r5, 0; vote.sync.ballot.b32 %r6, !%p1, -1;",
    "setp.lt.s32 %p2, %r3, 40; vote.sync.all.pred %p1, %p2, -1; mov.u32 %r6, 0;",
    "setp.lt.s32 %p2, %r3, 40; vote.sync.any.pred %p1, !%p2, -1; mov.u32 %r6, 0;",
    "setp.lt.s32 %p2, %r3, 40; vote.sync.uni.pred %p1, %p2, -1; mov.u32 %r6, 0;",
    "setp.lt.s32 %p1, %r5, 0; @%p1 activemask.b32 %r9; mov.u32 %r6, %r9;",
    "setp.lt.s32 %p1, %r5, 0; @%p1 activemask.b32 %r9; @%p1 match.any.sync.b32 %r9, %r5, -1; mov.u32 %r6, %r9;",
    "match.all.sync.b32 %r6|%p1, %r5, -1;",
    "elect.sync %r6|%p1, -1;",
    *(f"setp.lt.s32 %p1, %r5, 0; redux.sync.{name} %r6, %r5, -1;"
      for name in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32")),
    "bar.warp.sync -1; setp.lt.s32 %p1, %r5, 0; mov.u32 %r6, %r5;",
])  # fmt: skip
@pytest.mark.parametrize("block", [32, 64, 256])
def test_other_warp_wide_instructions(lines: str, block: int) -> None:
    """Votes, matches, reductions and masks give the results of the NumPy engine."""
    for high in (3, 1 << 32):
        found = ran(lines, block, high=high)
        assert alike(found) == []


@pytest.mark.parametrize("kind", ["b32", "b64"])
@pytest.mark.parametrize("mode", ["any", "all"])
def test_matches_of_both_widths(mode: str, kind: str) -> None:
    """match.any and match.all compare all bits of a value, of 32 or 64 bits."""
    source = "%r5" if kind == "b32" else "%rd5"
    target = "%r6|%p1" if mode == "all" else "%r6"
    first = "setp.lt.s32 %p1, %r5, 1; mul.wide.s32 %rd5, %r5, 1073741824;"
    assert alike(ran(f"{first} match.{mode}.sync.{kind} {target}, {source}, -1;", 96, high=9)) == []


SIDES = """setp.lt.s32 %p2, %r5, 5;
@%p2 bra LOW;
mov.u32 %r9, 1;
{work}
bra.uni END;
LOW:
mov.u32 %r9, 2;
{work}
END:
setp.ge.s32 %p1, %r6, 7;"""


@pytest.mark.parametrize("work", [
    "activemask.b32 %r6; ",
    "activemask.b32 %r7; redux.sync.add.s32 %r6, %r5, %r7; ",
    "activemask.b32 %r7; match.any.sync.b32 %r6, %r5, %r7; ",
    "activemask.b32 %r7; vote.sync.ballot.b32 %r6, %p2, %r7; ",
    "activemask.b32 %r7; shfl.sync.idx.b32 %r6, %r5, %r3, 31, %r7; ",
    "activemask.b32 %r7; bar.warp.sync %r7; mov.u32 %r6, %r7; ",
    "mov.u32 %r6, 1; bar.warp.sync -1; ",
])  # fmt: skip
@pytest.mark.parametrize("block", [32, 96])
def test_both_sides_of_a_branch(work: str, block: int) -> None:
    """Lanes of the two sides of a branch synchronise with the lanes of their mask, also with lanes of the other
    side."""
    found = ran(SIDES.format(work=work), block, high=10)
    if found.told is None:
        assert suspected(found)
    else:
        assert alike(found) == []


FAULTS = {
    "a lane outside of its mask": "shfl.sync.idx.b32 %r6, %r5, %r3, 31, 0xff;",
    "a shuffle from a lane that the mask leaves out": "setp.lt.s32 %p1, %r3, 8; "
    "@%p1 shfl.sync.down.b32 %r9, %r5, 4, 31, 0xff; mov.u32 %r6, %r9;",
    "a lane that has ended": "setp.lt.s32 %p1, %r3, 8; @%p1 ret; redux.sync.add.s32 %r6, %r5, -1;",
}  # fmt: skip


@pytest.mark.parametrize("lines", FAULTS.values(), ids=FAULTS)
def test_faults_are_left_to_numpy(lines: str) -> None:
    """A faulty mask, which the NumPy engine reports, stops the native engine, which restores memory."""
    found = ran(lines, 32)
    assert suspected(found)
    assert isinstance(found.ran, str)
    assert not any(found.native[1])


def test_a_warp_barrier_waits_for_lanes_that_have_not_ended() -> None:
    """__syncwarp() with a mask of lanes that have exited is not a fault."""
    found = ran("setp.lt.s32 %p1, %r3, 8; @%p1 ret; bar.warp.sync -1; mov.u32 %r6, %r5;", 64)
    assert not suspected(found)
    assert alike(found) == []


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("lines", [
    "setp.lt.s32 %p2, %r5, 5; bar.red.popc.u32 %r6, 0, %p2;",
    "setp.lt.s32 %p2, %r5, 5; bar.red.popc.u32 %r6, 3, !%p2;",
    "setp.lt.s32 %p2, %r5, 9; bar.red.and.pred %p1, 0, %p2; mov.u32 %r6, 0;",
    "setp.lt.s32 %p2, %r5, 1; bar.red.or.pred %p1, 0, !%p2; mov.u32 %r6, 0;",
    "setp.lt.s32 %p1, %r5, 5; @%p1 mov.u32 %r9, 1; bar.sync 5; mov.u32 %r6, %r9;",
    "bar.sync 1, %r2; mov.u32 %r6, %r9;",
])  # fmt: skip
def test_barriers_of_a_block(lines: str, block: int) -> None:
    """bar.red counts and combines predicates; a barrier may have any number, and may give the number of all threads."""
    found = ran(lines, block, high=10)
    assert alike(found) == []


def test_a_barrier_of_a_part_of_the_block() -> None:
    """A barrier for a part of the block stops the native engine."""
    found = ran("bar.sync 1, 32; mov.u32 %r6, %r9;", 64)
    assert "does not wait for all threads" in str(found.ran)


REDUCTION = """
extern "C" __global__ void sums(const int *a, int *out, int n)
{
    __shared__ int parts[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, value = i < n ? a[i] : 0;
    for (int by = 16; by; by >>= 1) value += __shfl_down_sync(0xffffffff, value, by);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
        for (int by = 16; by; by >>= 1) value += __shfl_xor_sync(0xffffffff, value, by);
        if (threadIdx.x == 0) out[blockIdx.x] = value;
    }
}
"""


@pytest.mark.parametrize("block", [32, 64, 256])
def test_a_reduction_of_blocks(block: int) -> None:
    """A block reduction by shuffles and shared memory gives the same results and the right sum."""
    a = np.random.default_rng(2).integers(-99, 99, 1000, np.int32)
    grid = -(-1000 // block)
    found = both(loaded(REDUCTION), "sums", grid, block, [a, np.zeros(grid, np.int32), 1000])
    assert alike(found) == []
    assert found.native[1].sum() == a.sum()


DIVERGENT = """
extern "C" __global__ void loops(const int *turns, int *out, int *votes)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, left = turns[i], sum = 0;
    while (left > 0) {
        if (left % 3 == 1) { sum += left * 7; if (left % 2) sum ^= 5; }
        else sum -= left;
        unsigned here = __activemask();
        sum += __popc(__ballot_sync(here, left % 2));
        left -= 1 + left % 2;
    }
    __syncwarp();
    out[i] = sum;
    votes[i] = __any_sync(0xffffffff, sum > 9) + __reduce_add_sync(0xffffffff, sum) + __match_any_sync(0xffffffff, sum);
}
"""


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(block=st.sampled_from((32, 64, 96)), turns=st.lists(st.integers(0, 40), min_size=1, max_size=96))
def test_instructions_of_divergent_loops(block: int, turns: list[int]) -> None:
    """Lanes diverge and reconverge as on the NumPy engine: the number of executed instructions is equal."""
    given = np.resize(np.array(turns, np.int32), block)
    found = both(loaded(DIVERGENT), "loops", 1, block, [given, np.zeros(block, np.int32), np.zeros(block, np.int32)])
    assert alike(found) == []
