"""Dynamic shared arrays that occupy the same memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudabench.simulator import api as simulator
from cudabench.simulator.check.places import same_memory

K = 'extern "C" __global__ void k(int *a) { __shared__ int own[8]; own[threadIdx.x % 8] = a[0]; __syncthreads(); '


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("extern __shared__ int s[]; s[threadIdx.x] = own[1]; __syncthreads(); a[1] = s[2];", ""),
        (
            "extern __shared__ int s[]; extern __shared__ float t[]; s[threadIdx.x] = own[1]; t[threadIdx.x] = 2; "
            "__syncthreads(); a[1] = s[2] + t[3];",
            "'s' and 't' both begin",
        ),
        (
            "extern __shared__ int s[]; extern __shared__ float t[]; extern __shared__ short u[]; s[threadIdx.x] = 1; "
            "t[threadIdx.x] = 2; u[threadIdx.x] = own[1]; __syncthreads(); a[1] = s[2] + t[3] + u[4];",
            "'s', 't' and 'u' all begin",
        ),
    ],
)
def test_same_memory(compiled: Callable[..., simulator.Program], body: str, names: str) -> None:
    """For an address in dynamic shared memory, same_memory() names the arrays that begin at the same byte; for one in a
    static array, it names nothing."""
    code = compiled(K + body + " }").code("k")
    assert code.static_shared >= 32
    said = same_memory(code, code.static_shared)
    assert said == (
        names
        and f"{names} at byte 0 of the dynamic shared memory: they are the same memory; take one array and an offset."
    )
    assert same_memory(code, 4) == ""
