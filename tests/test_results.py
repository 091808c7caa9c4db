"""The results file: its keys, and that it is never half there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from cudabench import operations
from cudabench.errors import CudabenchError
from cudabench.measure.gpu_run import GpuRun
from cudabench.model import DeviceInfo, Result, Settings
from cudabench.outputs import check_target
from cudabench.plan import cases
from cudabench.results.file import ResultsFile
from tests.conftest import FakeDevice

# DESIGN: the contract's keys, by level.
TOP = {"schema", "tool", "host", "device", "settings", "results"}
DEVICE = {"name", "kind", "compute_capability", "sm_count", "l2_bytes", "peak_gbps", "clocks", "driver", "uuid"}
RESULT = {
    "operation", "kernel", "id", "function", "source", "size", "dtype", "block", "grid", "shared_bytes", "registers",
    "local_bytes", "device", "status", "reason", "verification", "time", "bytes", "flops", "bandwidth_gbps", "gflops",
    "copy_gbps", "copy_fraction", "peak_fraction", "speedup_vs_cpu", "footprint_over_l2", "cpu", "warnings", "access",
    "hazards", "occupancy",
}  # fmt: skip
TIME = {"median_s", "q1_s", "q3_s", "min_s", "mean_s", "relative_ci", "samples", "cache", "samples_s"}


def result() -> Result:
    """Return a complete result from a fake device."""

    def right(buffers: dict[str, np.ndarray]) -> None:
        buffers["out"].view(np.float32)[:] = buffers["in"].view(np.float32).reshape(8, 16).T.reshape(-1)

    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("1",), size=(8, 16)))
    settings = Settings(min_time=0, max_time=1, cpu=True)
    return GpuRun(operation, case.problem, settings, FakeDevice(right)).measure(case)


def file() -> ResultsFile:
    """Return a results file with one result."""
    device = DeviceInfo("Fake", "cuda", "9.0")
    return ResultsFile(settings={"size": (8, 16)}, tool={}, host={}, devices=[device], results=[result()])


def test_keys_of_the_contract() -> None:
    """Every key of the schema is there, and a device or result has no others taken away."""
    document = json.loads(file().text())
    assert set(document) == TOP
    assert document["schema"] == "cudabench/1"
    assert set(document["device"]) >= DEVICE
    (entry,) = document["results"]
    assert set(entry) >= RESULT
    assert set(entry["time"]) >= TIME
    assert set(entry["verification"]) == {"mismatches", "first", "rtol", "atol", "checked"}
    assert set(entry["cpu"]) == {"time_s", "bandwidth_gbps", "threads", "implementation"}
    assert set(entry["occupancy"]) == {"blocks_per_sm", "warps_per_sm", "fraction", "limited_by"}
    assert (len(entry["block"]), len(entry["grid"])) == (3, 3)


def test_nan_is_valid_json() -> None:
    """A NaN that a kernel left is text, since JSON has none."""
    text = ResultsFile(settings={"a": float("nan"), "b": [1.0, float("inf")]}, tool={}, host={}).text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["settings"] == {
        "a": "nan",
        "b": [1.0, "inf"],
    }


def test_write_replaces_whole(tmp_path: Path) -> None:
    """Writing replaces the old file in one step and leaves nothing beside it."""
    path = tmp_path / "r.json"
    path.write_text("old")
    file().write(path)
    assert json.loads(path.read_text())["schema"] == "cudabench/1"
    assert os.listdir(tmp_path) == ["r.json"]


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where writing fails, the old file stands and no temporary one is left."""
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CudabenchError, match="No space left"):
        file().write(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_bad_targets(tmp_path: Path) -> None:
    """A missing folder and a folder in the file's place are refused before anything runs."""
    with pytest.raises(CudabenchError, match="does not exist; make it first"):
        check_target(tmp_path / "no" / "r.json")
    with pytest.raises(CudabenchError, match="is a directory"):
        check_target(tmp_path)
