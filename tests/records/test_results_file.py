"""The results file: its keys, and that it is always written as a whole."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cudabench import operations
from cudabench.errors import CudabenchError
from cudabench.measure.gpu_run import GpuRun
from cudabench.plan import cases
from cudabench.records.file import ResultsFile, parse
from cudabench.records.plan import Settings
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import thresholds
from cudabench.system.outputs import check_target
from tests.conftest import FakeDevice, on_cards

# The keys of the schema, by level.
TOP = {"schema", "tool", "host", "device", "settings", "provenance", "results"}
DEVICE = {"name", "kind", "compute_capability", "sm_count", "l2_bytes", "peak_gbps", "clocks", "driver", "uuid"}
RESULT = {
    "operation", "kernel", "id", "function", "source", "size", "dtype", "block", "grid", "shared_bytes", "registers",
    "local_bytes", "device", "status", "reason", "verification", "time", "bytes", "flops", "bandwidth_gbps", "gflops",
    "copy_gbps", "copy_fraction", "peak_fraction", "speedup_vs_cpu", "footprint_over_l2", "cpu", "warnings", "access",
    "hazards", "occupancy",
}  # fmt: skip
TIME = {"median_s", "q1_s", "q3_s", "min_s", "mean_s", "relative_ci", "samples", "cache", "samples_s"}


@cache
def result() -> Result:
    """Return a complete result of a fake device."""

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
    """A results file has every key of the schema."""
    document = json.loads(file().text())
    assert set(document) == TOP
    assert document["schema"] == "cudabench/1"
    assert set(document["device"]) >= DEVICE
    (entry,) = document["results"]
    assert set(entry) >= RESULT
    assert set(entry["time"]) >= TIME
    assert set(entry["verification"]) == {
        "mismatches",
        "first",
        "rtol",
        "atol",
        "checked",
        "samples",
        "largest_error_ulp",
    }
    assert set(entry["cpu"]) == {"time_s", "bandwidth_gbps", "threads", "implementation"}
    assert set(entry["occupancy"]) == {"blocks_per_sm", "warps_per_sm", "fraction", "limited_by"}
    assert (len(entry["block"]), len(entry["grid"])) == (3, 3)


def test_nan_is_valid_json() -> None:
    """NaN and infinity are written as text, since JSON has no such numbers."""
    text = ResultsFile(settings={"a": float("nan"), "b": [1.0, float("inf")]}, tool={}, host={}).text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["settings"] == {
        "a": "nan",
        "b": [1.0, "inf"],
    }


def test_write_replaces_whole(tmp_path: Path) -> None:
    """Writing replaces the old file in one step and leaves no other file."""
    path = tmp_path / "r.json"
    path.write_text("old")
    file().write(path)
    assert json.loads(path.read_text())["schema"] == "cudabench/1"
    assert os.listdir(tmp_path) == ["r.json"]


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing fails, the old file stays and no temporary file is left."""
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
    """A target in a missing folder, or that is a folder, is refused."""
    with pytest.raises(CudabenchError, match="does not exist; make it first"):
        check_target(tmp_path / "no" / "r.json")
    with pytest.raises(CudabenchError, match="is a directory"):
        check_target(tmp_path)


def read(**changes: object) -> Result:
    """Return the result of a file with changed values."""
    document = json.loads(file().text())
    document["results"][0].update(changes)
    return parse(json.dumps(document), "r.json").results[0]


@pytest.mark.parametrize(
    ("written", "meant"), [([256], (256, 1, 1)), ([32, 8], (32, 8, 1)), ([4, 4, 4], (4, 4, 4)), ([], (1, 1, 1))]
)
def test_short_blocks_are_filled_with_ones(written: list[int], meant: tuple[int, ...]) -> None:
    """A block or grid with fewer than three numbers is filled with ones, so that hand-written files compare with
    others."""
    found = read(block=written, grid=written)
    assert (found.block, found.grid) == (meant, meant)


def test_numbers_of_hand() -> None:
    """In a hand-written file 32.0 is an integer and "nan" is NaN; a boolean and a fraction are refused as integers."""
    assert read(registers=32.0, bandwidth_gbps="nan").registers == 32
    assert math.isnan(read(bandwidth_gbps="nan").bandwidth_gbps or 0)
    for wrong in (True, 1.5, "8"):
        with pytest.raises(CudabenchError, match=r"results\[0\]\.registers is .*, not a whole number"):
            read(registers=wrong)


def test_newer_schemas_are_refused() -> None:
    """The reader accepts this schema, and refuses a newer or an unknown one."""
    text = file().text()
    assert len(parse(text, "r.json").results) == 1
    with pytest.raises(CudabenchError, match=r"has schema cudabench/2; .* reads up to cudabench/1: upgrade"):
        parse(text.replace("cudabench/1", "cudabench/2"), "r.json")
    with pytest.raises(CudabenchError, match="its schema is 'cudabench/1x'"):
        parse(text.replace("cudabench/1", "cudabench/1x"), "r.json")


def test_samples_are_written_to_seven_digits() -> None:
    """A sample is written with seven digits, which is more than the resolution of the clock."""
    measured = result()
    assert measured.time is not None
    timing = replace(measured.time, samples_s=(1.23456789e-4, 0.1 + 0.2))
    one = ResultsFile(settings={}, tool={}, host={}, results=[replace(measured, time=timing)])
    assert json.loads(one.text())["results"][0]["time"]["samples_s"] == [1.234568e-4, 0.3]


def test_results_go_to_their_own_device() -> None:
    """by_device() splits a run on two GPUs by GPU."""
    two = on_cards(file(), "GPU-a", "GPU-b")
    assert [[r.device for r in one.results] for one in two.by_device()] == [["cuda:0"], ["cuda:1"]]
    assert [one.device and one.device.uuid for one in two.by_device()] == ["GPU-a", "GPU-b"]
    assert len(file().by_device()) == 1


@pytest.mark.parametrize(
    ("limits", "sentences"),
    [
        ({"min_bandwidth": 500.0}, []),
        ({"min_bandwidth": 500.1}, ["naive-row reached 500 GB/s, under --min-bandwidth 500.1"]),
        ({"min_copy_fraction": 0.5}, []),
        ({"min_copy_fraction": 0.51}, ["naive-row reached 0.5 of the copy, under --min-copy-fraction 0.51"]),
        ({"min_bandwidth": None, "min_copy_fraction": None}, []),
        (
            {"min_bandwidth": 501, "min_copy_fraction": 1},
            [
                "naive-row reached 500 GB/s, under --min-bandwidth 501",
                "naive-row reached 0.5 of the copy, under --min-copy-fraction 1",
            ],
        ),
    ],
)
def test_a_threshold_that_is_just_reached_is_met(limits: dict[str, float | None], sentences: list[str]) -> None:
    """A figure equal to its threshold passes, a lower one fails, and each threshold applies to its figure only."""
    measured = replace(result(), bandwidth_gbps=500.0, copy_fraction=0.5)
    assert [missed.sentence for missed in thresholds.missed_thresholds(measured, limits)] == sentences


def test_only_right_results_are_held_against_thresholds() -> None:
    """A wrong result is not compared with thresholds; a right result without a figure, or unverified, fails with the
    option that is missing."""
    limits = {"min_bandwidth": 1.0}
    assert list(thresholds.missed_thresholds(replace(result(), status="wrong", bandwidth_gbps=0.5), limits)) == []
    (bare,) = thresholds.missed_thresholds(replace(result(), bandwidth_gbps=None), limits)
    assert (bare.repair, "lacks a bandwidth" in bare.sentence) == ("give the bytes that it moves with --bytes", True)
    (unverified,) = thresholds.missed_thresholds(replace(result(), verification=None), limits)
    assert (unverified.repair, "is unverified" in unverified.sentence) == ("add --expect", True)
