"""mbarrier and cp.async.bulk: phases, tokens, pending bytes, rings between warps, faults of copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator

Launch = Callable[..., simulator.Report]

HELPERS = """
typedef unsigned int u32;
typedef unsigned long long u64;
__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64 *b, u32 n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(b)), "r"(n)); }
__device__ u64 arrive(u64 *b) {
  u64 t; asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(t) : "r"(at(b)) : "memory"); return t;
}
__device__ void expect(u64 *b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at(b)), "r"(n) : "memory");
}
__device__ bool over(u64 *b, u64 token) {
  u32 r;
  asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
               : "=r"(r) : "r"(at(b)), "l"(token) : "memory");
  return r;
}
__device__ void wait(u64 *b, u32 parity) {
  u32 r = 0;
  while (!r)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(r) : "r"(at(b)), "r"(parity) : "memory");
}
__device__ void load(void *to, const void *from, u32 n, u64 *b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(at(to)), "l"(__cvta_generic_to_global(from)), "r"(n), "r"(at(b)) : "memory");
}
__device__ void store(void *to, const void *from, u32 n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :: "l"(__cvta_generic_to_global(to)), "r"(at(from)), "r"(n) : "memory");
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
}
"""


def test_phases_and_tokens(launch: Launch) -> None:
    """A phase ends with its last arrival; test_wait on a token returns whether that token's phase has ended;
    pending_count counts the missing arrivals."""
    source = (
        HELPERS
        + """
extern "C" __global__ void k(int *o) {
  __shared__ u64 b;
  int i = threadIdx.x;
  if (i == 0) init(&b, 64);
  __syncthreads();
  u64 t = arrive(&b);
  __syncthreads();
  o[i] = over(&b, t);
  u64 s = i < 63 ? arrive(&b) : t;
  u32 left;
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(left) : "l"(s));
  o[64 + i] = over(&b, s);
  o[128 + i] = left;
  __syncthreads();
  if (i == 63) asm volatile("mbarrier.arrive_drop.shared.b64 _, [%0];" :: "r"(at(&b)) : "memory");
  __syncthreads();
  o[192 + i] = over(&b, s);
  if (i < 63) arrive(&b);  // one less is expected now
  wait(&b, 0);
  o[256 + i] = 1;
}
"""
    )
    out = np.full((5, 64), -1, np.int32)
    report = launch(source, 1, 64, [out])
    assert report.hazards == ()
    np.testing.assert_array_equal(out[0], 1)
    np.testing.assert_array_equal(out[1], [*[0] * 63, 1])
    assert out[2, :63].min() >= 1
    np.testing.assert_array_equal(out[3, :63], 1)
    np.testing.assert_array_equal(out[4], 1)


RING = (
    HELPERS
    + """
#define STAGES 3
#define TILE 256
extern "C" __global__ void k(const float *x, float *y, int tiles) {
  __shared__ alignas(128) float ring[STAGES][TILE];
  __shared__ u64 full[STAGES], empty[STAGES];
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; s++) init(&full[s], 1), init(&empty[s], 64);
  __syncthreads();
  const float *mine = x + (size_t)blockIdx.x * tiles * TILE;
  float *out = y + (size_t)blockIdx.x * tiles * TILE;
  if (threadIdx.x >= 64) {  // consumers come first in the code or behind: both must do
    if (threadIdx.x == 64)
      for (int t = 0; t < tiles; t++) {
        int s = t % STAGES;
        wait(&empty[s], (t / STAGES & 1) ^ 1);
        expect(&full[s], TILE * 4);
        load(ring[s], mine + t * TILE, TILE * 4, &full[s]);
      }
  } else {
    for (int t = 0; t < tiles; t++) {
      int s = t % STAGES;
      wait(&full[s], t / STAGES & 1);
      for (int i = threadIdx.x; i < TILE; i += 64) out[t * TILE + i] = 2 * ring[s][TILE - 1 - i];
#ifdef NAMED
      asm volatile("bar.sync 1, 64;" ::: "memory");
#endif
      FREE
    }
  }
}
"""
)


@pytest.mark.parametrize("named", ["", "#define NAMED\n"])
def test_a_ring_between_warps(launch: Launch, named: str) -> None:
    """One thread fills a ring of tiles by bulk copies and two warps read them: no hazard, also if the warps use a named
    barrier."""
    source = named + RING.replace("FREE", "arrive(&empty[s]);")
    x = np.random.default_rng(1).random((5, 11, 256), np.float32)
    y = np.zeros_like(x)
    report = launch(source, 5, 96, [x, y, 11])
    assert report.hazards == ()
    np.testing.assert_array_equal(y, 2 * x[:, :, ::-1])
    (loads,) = [a for a in report.accesses if a.space == "global" and a.op == "load"]
    assert (loads.requests, loads.sectors) == (55, 55 * 32)


@pytest.mark.slow
def test_a_ring_that_is_not_freed_never_ends(launch: Launch) -> None:
    """If the consumers do not arrive at the `empty` barrier, the producer waits forever, and the budget ends the
    launch."""
    x = np.zeros((1, 5, 256), np.float32)
    with pytest.raises(simulator.BudgetExceeded):
        launch(RING.replace("FREE", ""), 1, 96, [x, x.copy(), 5], budget=20000)


def test_a_read_without_a_wait_is_a_race(launch: Launch) -> None:
    """A thread that waits for the mbarrier of a bulk copy may read the data; a read without that wait is a race."""
    source = (
        HELPERS
        + """
extern "C" __global__ void k(const float *x, float *y, int waits) {
  __shared__ alignas(128) float tile[64];
  __shared__ u64 b;
  if (threadIdx.x == 0) init(&b, 1);
  __syncthreads();
  if (threadIdx.x == 0) { expect(&b, 256); load(tile, x, 256, &b); }
  if (waits) wait(&b, 0);
  y[threadIdx.x] = tile[threadIdx.x];
}
"""
    )
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    assert launch(source, 1, 64, [x, y, 1]).hazards == ()
    np.testing.assert_array_equal(x, y)
    assert {hazard.kind for hazard in launch(source, 1, 64, [x, y, 0]).hazards} == {"race"}


COPY = (
    HELPERS
    + """
extern "C" __global__ void k(const char *x, char *y, int from, int to, int n) {
  __shared__ alignas(128) char tile[512];
  __shared__ u64 b;
  if (threadIdx.x == 0) {
    init(&b, 1);
    expect(&b, n);
    load(tile, x + from, n, &b);
    wait(&b, 0);
    store(y + to, tile, n);
  }
}
"""
)


@pytest.mark.parametrize(
    ("where", "kinds"),
    [
        ((32, 16, 256), set()), ((1024 - 256, 0, 256), set()), ((1024 - 240, 0, 256), {"out-of-bounds"}),
        ((8, 0, 256), {"misaligned"}), ((0, 4, 256), {"misaligned"}), ((0, 0, 24), {"misaligned"}),
        ((0, 1008, 32), {"out-of-bounds"}), ((0, 0, 1024), {"out-of-bounds"}),
    ],
)  # fmt: skip
def test_faults_of_bulk_copies(launch: Launch, where: tuple[int, int, int], kinds: set[str]) -> None:
    """A bulk copy that is out of bounds or not a multiple of 16 bytes is a hazard; a correct copy writes exactly its
    bytes."""
    x, y = np.random.default_rng(2).integers(1, 100, 1024).astype(np.uint8), np.zeros(1024, np.uint8)
    report = launch(COPY, 1, 32, [x, y, *where])
    found = {hazard.kind for hazard in report.hazards} - {"uninitialized-shared"}
    assert found == kinds
    if not kinds:
        source, target, n = where
        np.testing.assert_array_equal(y[target : target + n], x[source : source + n])
        assert np.count_nonzero(y) == n


@pytest.mark.slow
def test_the_librarys_barrier(launch: Launch) -> None:
    """cuda::barrier waits for all threads in each of its phases."""
    source = """
#include <cuda/barrier>
extern "C" __global__ void k(int *o) {
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  __shared__ int s[64];
  if (threadIdx.x == 0) init(&b, 64);
  __syncthreads();
  int sum = 0;
  for (int round = 0; round < 4; round++) {
    s[threadIdx.x] = threadIdx.x + round;
    b.arrive_and_wait();
    sum += s[63 - threadIdx.x];
    b.arrive_and_wait();
  }
  o[threadIdx.x] = sum;
}
"""
    out: Any = np.zeros(64, np.int32)
    report = launch(source, 1, 64, [out])
    assert report.hazards == ()
    np.testing.assert_array_equal(out, 4 * (63 - np.arange(64)) + 6)


@pytest.mark.parametrize(
    ("count", "parity", "said"),
    [
        (32, 0, "more arrivals came at once than it was initialised for, so two phases ended"),
        (64, 1, "64 of 64 arrivals are missing (the phase before has ended: perhaps the wait has the wrong parity)"),
    ],
    ids=["count", "parity"],
)
def test_the_cause_of_a_wait_without_end_is_named(launch: Launch, count: int, parity: int, said: str) -> None:
    """A wait that never ends because the barrier expects too few arrivals, or because the wait has the parity of the
    next phase, says so."""
    source = (
        'extern "C" __global__ void k(int *y) { __shared__ alignas(8) unsigned long long bar;'
        " unsigned b = (unsigned)__cvta_generic_to_shared(&bar); unsigned long long state; int done = 0;"
        f' if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], {count};" ::"r"(b)); __syncthreads();'
        ' asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(b) : "memory");'
        ' while (!done) asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;'
        ' selp.s32 %0, 1, 0, p; }"'
        f' : "=r"(done) : "r"(b), "n"({parity}) : "memory"); y[threadIdx.x] = done; }}'
    )
    with pytest.raises(simulator.BudgetExceeded) as stopped:
        launch(source, 1, 64, [np.zeros(64, np.int32)])
    (hazard,) = stopped.value.hazards
    assert hazard.kind == "deadlock"
    assert said in hazard.message
