"""Blocks of a cluster that may end before another block has used their shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

BEGIN = """#define SYNC ARRIVE; WAIT
#define ARRIVE asm volatile("barrier.cluster.arrive.aligned;" ::: "memory")
#define WAIT asm volatile("barrier.cluster.wait.aligned;" ::: "memory")
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int *y, volatile int *flag) {
  __shared__ int tile[32];
  int rank = blockIdx.x % 2, i = 32 * rank + threadIdx.x, *far;
  asm("mapa.u64 %0, %1, %2;" : "=l"(far) : "l"(tile), "r"(1 - rank));
  tile[threadIdx.x] = rank; SYNC;
"""
USE = "int got = far[threadIdx.x];"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("body", "late"),
    [
        ("if (rank == 0) { USE y[i] = got; }", True),
        ("if (rank == 1) { USE y[i] = got; }", True),
        ("if (rank == 1) { USE y[i] = got; } SYNC;", False),
        ("if (rank == 1) atomicAdd(far, 1);", True),
        ("if (rank == 1) far[threadIdx.x] = 1;", True),
        ("USE y[i] = got; ARRIVE;", True),
        ("ARRIVE; USE y[i] = got; WAIT;", True),
        ("USE ARRIVE; y[i] = got; WAIT;", False),
        ("for (int t = 0; t < 3; t++) { USE y[i] = got; SYNC; }", False),
        ("for (int t = 0; t < 3; t++) { SYNC; USE y[i] = got; }", True),
        ("USE y[i] = got; SYNC; if (rank) return; y[i] = far[0];", True),
        # Block 0 polls a flag until block 1 has used its shared memory.
        ("if (rank) { USE y[i] = got; __syncwarp(); __threadfence(); if (!threadIdx.x) *flag = 1; }"
         "else while (!*flag);", False),
    ],
)  # fmt: skip
def test_who_lives_long_enough(launch: Callable[..., Any], body: str, late: bool) -> None:
    """An access to another block's shared memory is a hazard if no later barrier or flag keeps that block alive."""
    source = BEGIN + body.replace("USE", USE) + "\n}\n"
    report = launch(source, 2, 32, [np.zeros(64, np.int32), np.zeros(1, np.int32)], names=["y", "flag"])
    found = [hazard for hazard in report.hazards if "may have ended" in hazard.message]
    assert len(found) == late, report.hazards
    for hazard in found:
        assert (hazard.kind, hazard.line) == ("race", 9)
        assert "cluster.sync()" in hazard.message
