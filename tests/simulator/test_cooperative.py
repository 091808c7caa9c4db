"""grid.sync() of cooperative groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator

Launch = Callable[..., simulator.Report]

REVERSE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(float *x, float *y, int n) {
  cg::grid_group grid = cg::this_grid();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = i;
  grid.sync();
  for (int step = 0; step < 3; step++) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[n - 1 - i] + grid.is_valid();
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = y[i];
    grid.sync();
  }
}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("grid", "block"),
    [
        *(pytest.param(*shape, marks=pytest.mark.slow) for shape in ((1, 32), (7, 33), ((3, 2, 2), (8, 4, 2)))),
        (300, 64), (96, 1024),
    ],
    ids=str,
)  # fmt: skip
def test_the_grid_meets(launch: Launch, grid: Any, block: Any) -> None:
    """Each block reads after grid.sync() what the other blocks wrote before it, also if the grid has several chunks."""
    n = 10_000
    x, y = np.zeros(n, np.float32), np.zeros(n, np.float32)
    report = launch(REVERSE, grid, block, [x, y, n])
    assert report.hazards == ()
    np.testing.assert_array_equal(x, np.arange(n)[::-1] + 3)


def test_a_grid_that_no_gpu_holds_at_once(launch: Launch) -> None:
    """A cooperative launch with more blocks than a GPU holds at once is an error."""
    x = np.zeros(4, np.float32)
    with pytest.raises(simulator.LaunchError, match="more than any GPU holds"):
        launch(REVERSE, 4000, 1024, [x, x, 4])


BY_HAND = """
__device__ unsigned arrived;
extern "C" __global__ void k(int *x) {
  __threadfence();
  atomicAdd(&arrived, 1);
  while (atomicAdd(&arrived, 0) < gridDim.x) ;
  __threadfence();
  x[blockIdx.x] = 1;
}
"""
IN_ORDER = """
extern "C" __global__ void k(int *x) {
  volatile int *flags = x;
  while (blockIdx.x && flags[blockIdx.x - 1] == 0) ;
  flags[blockIdx.x] = 1;
}
"""


@pytest.mark.parametrize(
    ("source", "held", "waits"), [(BY_HAND, 6, False), (BY_HAND, 5, True), (BY_HAND, 9, False), (IN_ORDER, 2, False)]
)
def test_a_grid_barrier_needs_all_blocks_at_once(
    compiled: Callable[..., Any], source: str, held: int, waits: bool
) -> None:
    """A barrier of six blocks is a deadlock on a card that holds fewer blocks at once; blocks that wait for earlier
    blocks end on each card."""
    x, program = np.zeros(6, np.int32), compiled(source)
    program.reset()
    how: dict[str, Any] = {"resident": ("small card", held)}
    if not waits:
        assert simulator.run(program, "k", 6, 1, [x], **how).hazards == ()
        assert x.all()
        return
    with pytest.raises(simulator.BudgetExceeded) as stopped:
        simulator.run(program, "k", 6, 1, [x], **how)
    (hazard,) = stopped.value.hazards
    assert (hazard.kind, hazard.line) == ("deadlock", 6)
    assert f"the small card holds {held} of these blocks at once, and the grid has 6" in hazard.message
