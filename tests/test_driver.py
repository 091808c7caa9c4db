"""The GPU path, run through a driver whose launches the simulator runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Ran

pytestmark = pytest.mark.driver
Runner = Callable[..., Ran]
SHORT = ("--device", "cuda", "--no-cpu", "--max-time", "0.05", "--json", "-")


def test_a_ladder(cudabench: Runner) -> None:
    """Every rung of transpose is launched, verified and timed; no rate follows from times that are invented."""
    ran = cudabench("transpose", "--size", 33, *SHORT)
    assert ran.code == 0, ran.err
    assert ran.json["device"]["kind"] == "simulated"
    results = ran.json["results"]
    assert len(results) > 10
    assert all(one["status"] == "ok" and one["time"]["median_s"] > 0 for one in results)
    assert all(one["bandwidth_gbps"] is None and one["copy_gbps"] is None for one in results)
    assert all("simulated" in [warning["code"] for warning in one["warnings"]] for one in results)
