"""Consecutive launches of one kernel on the native engine: the state that they share, and separate reports."""

from __future__ import annotations

import numpy as np
import pytest

from cudabench.simulator import api
from tests.engines import loaded

SCALE = """
extern "C" __global__ void scale(float *x, float by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= by;
}
extern "C" __global__ void turn(unsigned *x, long n)
{
    for (long k = 0; k < n; k++)
        x[threadIdx.x + 32 * (k & 1)] += k;
}
"""


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Require the native engine."""
    monkeypatch.setenv("CUDABENCH_ENGINE", "native")


def test_each_launch_has_its_own_numbers_arrays_and_report() -> None:
    """Launches with other scalars, arrays and sizes give right results and counts, also if the reports are read in
    reverse order."""
    program, one, two = loaded(SCALE), np.ones(1000, np.float32), np.ones(500, np.float32)
    reports = [
        api.run(program, "scale", 4, 256, [array, by, array.size])
        for array, by in ((one, 2.0), (one, 3.0), (two, 5.0), (one, 7.0))
    ]
    assert (one == 42).all()
    assert (two == 5).all()
    requests = [sum(access.requests for access in report.accesses) for report in reports[::-1]]
    assert requests == [64, 32, 64, 64]
    assert [report.engine for report in reports] == ["native"] * 4
    assert api.merge(reports).instructions == sum(report.instructions for report in reports)
    assert {access.array_bytes for access in reports[2].accesses} == {2000}


def test_an_array_that_becomes_read_only_is_so_in_the_next_launch() -> None:
    """An array that becomes read-only after a launch cannot be written by the next launch."""
    program, x = loaded(SCALE), np.ones(64, np.float32)
    api.run(program, "scale", 1, 64, [x, 2.0, 64])
    x.flags.writeable = False
    with pytest.raises(api.KernelTrap):
        api.run(program, "scale", 1, 64, [x, 2.0, 64])
    assert (x == 2).all()


def test_reports_of_many_launches_agree_with_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native engine examines the accesses of only some launches, but each report equals that of NumPy, in any order
    of reading."""
    program, x = loaded(SCALE), np.ones(1000, np.float32)
    reports = [api.run(program, "scale", 4, 256, [x, 1.0, 1000 - 8 * step]) for step in range(20)]
    mine = [report.accesses for report in reports[::-1]][::-1]
    monkeypatch.setenv("CUDABENCH_ENGINE", "numpy")
    theirs = [api.run(program, "scale", 4, 256, [x, 1.0, 1000 - 8 * step]).accesses for step in range(20)]
    for own, other in zip(mine, theirs, strict=True):
        assert [(one.key, one.requests, one.sectors) for one in own] == [
            (one.key, one.requests, one.sectors) for one in other
        ]


def test_a_launch_whose_time_is_up_says_where_it_was() -> None:
    """The error of a launch that exceeds its time names a line of the loop, and the engine restores memory."""
    x = np.zeros(64, np.uint32)
    with pytest.raises(api.BudgetExceeded, match=r"kernel turn was stopped at k\.cu:1[01] when its time was up"):
        api.run(loaded(SCALE), "turn", 1, 32, [x, 1 << 40], seconds=0.2, budget=1 << 60)
    assert not x.any()
