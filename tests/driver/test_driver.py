"""The GPU path with a driver that runs its launches in the simulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Ran

pytestmark = pytest.mark.driver
Runner = Callable[..., Ran]
SHORT = ("--device", "cuda", "--no-cpu", "--max-time", "0.05", "--json", "-")


def test_a_ladder(cudabench: Runner) -> None:
    """Every rung of transpose is launched, verified and timed; results have no rates, since the times are invented."""
    ran = cudabench("transpose", "--size", 33, *SHORT)
    assert ran.code == 0, ran.err
    assert ran.json["device"]["kind"] == "simulated"
    results = ran.json["results"]
    assert len(results) > 10
    assert all(one["status"] == "ok" and one["time"]["median_s"] > 0 for one in results)
    assert all(one["bandwidth_gbps"] is None and one["copy_gbps"] is None for one in results)
    assert all("simulated" in [warning["code"] for warning in one["warnings"]] for one in results)


@pytest.mark.parametrize(
    ("device", "code", "sentence"),
    [
        ("cuda:7", 5, "GPU cuda:7 does not exist: this machine has cuda:0"),
        ("cuda:x", 2, "'cuda:x' is not a device: the GPU's number is missing, as in cuda:0"),
        ("auto:1", 2, "'auto:1' is not a device"),
        ("sim:9", 2, "'9' is not an architecture"),
        ("sim:sm_10", 2, "does not compile for sm_10"),
    ],
)
def test_a_device_that_is_not_there(device: str, code: int, sentence: str, cudabench: Runner) -> None:
    """An unknown device or architecture is an error of one sentence."""
    ran = cudabench("vecadd", 0, "--size", 64, "--device", device)
    assert (ran.code, sentence in ran.err) == (code, True), ran.err


def test_the_simulator_beside_a_gpu(cudabench: Runner) -> None:
    """`--device sim` runs kernels in the simulator on a machine with a GPU."""
    ran = cudabench("vecadd", "--size", 64, "--device", "sim", "--no-cpu", "--json", "-")
    assert ran.code == 0, ran.err
    assert ran.json["device"]["kind"] == "sim"
