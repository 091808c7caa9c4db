"""The native engine comes to the bits and the counts of the NumPy engine."""

from __future__ import annotations

import numpy as np
import pytest

from cudabench.system import native
from tests.engines import both, loaded

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

VECADD = """
extern "C" __global__ void vecadd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""


@pytest.mark.parametrize("n", [1, 31, 33, 127, 1000])
@pytest.mark.parametrize("block", [1, 32, 48, 256])
def test_bits_and_counts_of_a_ragged_vector_addition(n: int, block: int) -> None:
    """Results, instructions and counts are equal at sizes and blocks that do not divide each other."""
    draw = np.random.default_rng(1)
    a, b = draw.random(n, np.float32), draw.random(n, np.float32)
    found = both(loaded(VECADD), "vecadd", -(-n // block), block, [a, b, np.zeros(n, np.float32), n])
    assert not isinstance(found.ran, str), found.ran
    assert found.same()
    assert found.ran.instructions == found.report.instructions
    names = ("requests", "pieces", "ideal")
    counts = [[row[name].sum() for name in names] for row in found.ran.counts]
    assert counts == [[one.requests, one.sectors, one.ideal_sectors] for one in found.report.accesses]
