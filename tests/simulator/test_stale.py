"""Reads through the read-only cache of memory that the same launch wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from cudabench.simulator.api import Texture

SHIFT = """
extern "C" __global__ void k(const float *__restrict__ x, float *y, int n) {
  int i = threadIdx.x;
  y[i] = i;
  __syncthreads();
  y[n + i] = x[(i + 1) % n];
}
"""


def stale(report: simulator.Report) -> list[tuple[int, int, str]]:
    """Return line, count and message of the hazards, which must all be of this kind."""
    assert {hazard.kind for hazard in report.hazards} <= {"stale-read"}
    return [(hazard.line, hazard.count, hazard.message) for hazard in report.hazards]


def test_a_broken_promise(launch: Callable[..., Any]) -> None:
    """A read through a const __restrict__ pointer of memory that the launch wrote is a stale read; from other memory,
    or without __restrict__, it is not."""
    y = np.zeros(64, np.float32)
    ((line, count, message),) = stale(launch(SHIFT, 1, 32, [y, y, 32], names=["x", "y", "n"]))
    assert (line, count) == (6, 32)
    assert "reads x[1]" in message
    assert "__restrict__" in message
    assert "in line 4" in message
    assert stale(launch(SHIFT, 1, 32, [np.zeros(64, np.float32), y, 32])) == []
    plain = SHIFT.replace("__restrict__", "")
    assert stale(launch(plain, 1, 32, [y, y, 32])) == []


def test_the_next_launch_reads_it(launch: Callable[..., Any]) -> None:
    """A launch may read through the read-only cache what an earlier launch wrote."""
    source = """
extern "C" __global__ void k(float *y, float *z) {
  z[threadIdx.x] = __ldg(y + threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = 1;
}
"""
    y, z = np.zeros(32, np.float32), np.zeros(32, np.float32)
    for _ in range(2):
        assert stale(launch(source, 1, 32, [y, z])) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "write",
    ["y[i] = 1", "atomicAdd(y + i, 1)", "reinterpret_cast<char *>(y)[4 * i + 2] = 1"],
    ids=lambda text: text[:4],
)
@pytest.mark.parametrize("read", ["__ldg(y + {})", "tex1Dfetch<int>(t, {})"], ids=["ldg", "texture"])
def test_only_what_was_written(launch: Callable[..., Any], write: str, read: str) -> None:
    """A read is stale after each kind of write (a store, an atomic, a store of one byte), but only of the written
    bytes."""
    source = """
extern "C" __global__ void k(int *y, int *z, cudaTextureObject_t t) {
  int i = threadIdx.x;
  if (i < 4) WRITE;
  __syncthreads();
  z[i] = READ;
}
""".replace("WRITE", write).replace("READ", read.format("i + 3"))
    y, z = np.zeros(64, np.int32), np.zeros(32, np.int32)
    ((line, count, message),) = stale(launch(source, 1, 32, [y, z, Texture(y, linear=True)], names=["y", "z", "t"]))
    assert (line, count) == (6, 1)
    assert "in line 4" in message
    assert "__restrict__" not in message
