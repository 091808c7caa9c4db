"""Costs other than wasted bytes: divergent branches, contended atomics, constants at different addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.explain import advice
from cudabench.simulator import api as simulator
from cudabench.simulator.report import Access

K = 'extern "C" __global__ void k'


def branches(report: simulator.Report) -> dict[int, simulator.Branch]:
    """Return the branches of a report by their lines."""
    return {branch.line: branch for branch in report.branches}


def test_a_branch_has_its_shares_and_its_cost(launch: Callable[..., Any]) -> None:
    """A branch on the lane number diverges in every warp and has a cost; a branch on the warp number does not diverge
    and costs nothing."""
    source = (
        K + "(float *o, int n) { int t = threadIdx.x; float v = t;\n"
        "if (t % 32 < 8) for (int i = 0; i < n; i++) v = v * v + i;\n"
        "if (t / 32 == 1) for (int i = 0; i < n; i++) v = v * v - i;\n o[t] = v; }"
    )
    found = branches(launch(source, 1, 64, [np.zeros(64, np.float32), 40]))
    assert found[2].diverged >= 2
    assert found[2].instructions > 2 * 40
    assert found[2].threads / found[2].instructions < 12
    assert found[3].diverged == 0
    assert found[3].instructions == 0


def test_a_switch_is_one_line(launch: Callable[..., Any]) -> None:
    """The divergence of a switch on the lane number counts at the line of the switch, however the compiler implements
    the cases."""
    ways = "".join(f"case {way}: for (int i = 0; i < n; i++) v = v * v + {way}.5f; break;\n" for way in range(5))
    source = K + f"(float *o, int n) {{ int t = threadIdx.x; float v = t;\nswitch (t % 5) {{\n{ways}}} o[t] = v; }}"
    report = launch(source, 2, 64, [np.zeros(64, np.float32), 30])
    found = branches(report)
    assert found[2].diverged >= 4
    inside = [branch for line, branch in found.items() if line >= 2]
    assert sum(branch.instructions for branch in inside) > 0.5 * report.instructions
    assert sum(branch.threads for branch in inside) < 10 * sum(branch.instructions for branch in inside)


@pytest.mark.parametrize(
    ("place", "hottest", "blocks"),
    [("0", 256, 4), ("blockIdx.x", 64, 1), ("t", 4, 4), ("blockIdx.x * 64 + t", 1, 1), ("t / 48", 192, 4)],
)
def test_the_hottest_address_of_atomics(launch: Callable[..., Any], place: str, hottest: int, blocks: int) -> None:
    """The report gives the number of atomics on the most used address, the number of blocks, and whether the kernel
    uses the result."""
    source = K + f"(int *o, int *r) {{ int t = threadIdx.x; atomicAdd(o + {place}, t);\nr[0] = atomicMax(r + 1, t); }}"
    report = launch(source, 4, 64, [np.zeros(256, np.int32), np.zeros(2, np.int32)])
    first, second = sorted(report.contended, key=lambda atomic: atomic.line)
    assert (first.hottest, first.blocks, first.returns) == (hottest, blocks, False)
    assert (second.hottest, second.blocks, second.returns) == (256, 4, True)


def atomic(what: str, requests: int, aggregated: bool = False) -> Access:
    """Return the record of atomics on one element."""
    return Access("", 1, "global", "atomic", 4, requests, requests, requests, None, None)._replace(
        what=what, aggregated=aggregated
    )


def test_advice_on_contention() -> None:
    """The advice names atomics of all threads on one address; it does not name one atomic per block, or few atomics."""
    added = atomic("add.f32", 16384)
    said = advice.contention_advice(added, 524288, 2048) or ""
    assert "524 288 atomics from 2048 blocks hit one address" in said
    assert "within the warp (shuffles) and the block" in said
    assert advice.contention_advice(added, 2048, 2048) is None
    assert advice.contention_advice(added, 31, 1) is None
    assert advice.contention_advice(added, None, None) is None


def test_lanes_that_the_compiler_combines_come_as_one() -> None:
    """If ptxas combines the atomics of a warp, the advice counts one atomic per request and does not recommend
    __reduce_add_sync."""
    said = advice.contention_advice(atomic("add.u32", 16384, aggregated=True), 524288, 2048) or ""
    assert said.startswith("16 384 atomics from 2048 blocks")
    assert "__reduce_add_sync" not in said
    assert advice.contention_advice(atomic("add.u32", 2048, aggregated=True), 65536, 2048) is None


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("add.u32", "__reduce_add_sync"), ("add.f64", "(shuffles)"), ("max.s32", "__reduce_max_sync"),
        ("or.b32", "__reduce_or_sync"), ("exch.b32", "only the last value stays"), ("cas.b64", "combine what lanes"),
    ],
)  # fmt: skip
def test_each_operation_is_combined_in_its_own_way(what: str, how: str) -> None:
    """The advice names a warp reduction that fits the operation and its type: __reduce_add_sync for integers, shuffles
    for floats."""
    assert how in (advice.contention_advice(atomic(what, 512), 16384, 4) or "")


@pytest.mark.parametrize(("index", "addresses"), [("n", 1), ("t & 31", 32), ("t / 16", 2), ("blockIdx.x", 1)])
def test_constants_are_a_space_of_their_own(launch: Callable[..., Any], index: str, addresses: int) -> None:
    """A read of __constant__ memory costs one wavefront per different address of the warp, and is not a global
    access."""
    source = f"__constant__ float c[64] = {{1, 2}}; {K}(float *o, int n) {{ int t = threadIdx.x; o[t] = c[{index}]; }}"
    report = launch(source, 2, 64, [np.zeros(64, np.float32), 3])
    rows = {(row.space, row.op): row for row in report.accesses}
    row = rows["constant", "load"]
    assert ("global", "load") not in rows
    assert (row.requests, row.sectors) == (4, None)
    assert (row.wavefronts, row.ideal_wavefronts) == (4 * addresses, 4)
    (told,) = advice.advise([row], {row.kernel: (32, 1, 1)})
    assert (told is None) == (addresses == 1)


def test_asynchronous_copies_are_no_shared_stores(launch: Callable[..., Any]) -> None:
    """An asynchronous copy to shared memory does not count as a shared store, as in the hardware's counters."""
    source = (
        "#include <cuda_pipeline.h>\n" + K + "(float *o, const float *a) { __shared__ float s[64]; int t = threadIdx.x;"
        " __pipeline_memcpy_async(s + t, a + t, 4); __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();"
        " o[t] = s[63 - t]; }"
    )
    out, data = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    report = launch(source, 1, 64, [out, data])
    assert (out == data[::-1]).all()
    assert {(row.space, row.op) for row in report.accesses} == {
        ("global", "load"), ("global", "store"), ("shared", "load")
    }  # fmt: skip
