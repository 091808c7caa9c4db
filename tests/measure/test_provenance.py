"""The provenance record of a results file: date, command, sources, compiler, git state, and the GPU's state."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.measure import provenance
from cudabench.plan import chapters
from cudabench.records.file import load
from cudabench.records.launch import Source
from tests.conftest import Ran

Runner = Callable[..., Ran]
KERNEL = "__global__ void f(float *y) { y[threadIdx.x] = 1; }\n"
LINE = ("-g", 1, "-b", 32, "--arg", "y=float32[32]:empty", "--expect", "y=1", "--device", "sim", "--no-cpu")

simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


def git(*words: str) -> None:
    """Run git with a fixed author, independent of the user's settings."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def commit() -> str:
    """Return the hash of the HEAD commit."""
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@simulated
def test_every_results_file_says_where_it_comes_from(cudabench: Runner) -> None:
    """A simulator run records date, command, source hash and compiler, and no GPU state; loading the file returns the
    same record."""
    text = KERNEL.replace("\n", "\r\n")
    Path("k.cu").write_bytes(text.encode())
    assert cudabench("run", "k.cu", *LINE, "--json", "r.json").code == 0
    record = json.loads(Path("r.json").read_text())["provenance"]
    assert abs(datetime.fromisoformat(record["utc"]) - datetime.now(timezone.utc)) < timedelta(minutes=5)
    assert record["command"] == ["cudabench", "run", "k.cu", *map(str, LINE), "--json", "r.json"]
    assert record["sources"] == {"k.cu": hashlib.sha256(text.encode()).hexdigest()}
    assert record["compiler"]["name"] == "nvrtc"
    assert record["compiler"]["version"]
    assert [record[key] for key in ("git", "clocks", "power_w", "temperature_c", "throttle")] == [None] * 5
    assert load("r.json").provenance == record


@simulated
def test_the_time_is_told_by_its_parts(cudabench: Runner) -> None:
    """The phases add up to the wall time, and --verbose prints each phase."""
    Path("k.cu").write_text(KERNEL)
    ran = cudabench("run", "k.cu", *LINE, "--json", "r.json", "--verbose")
    seconds = json.loads(Path("r.json").read_text())["provenance"]["seconds"]
    assert {"start", "compile", "prepare", "simulate", "verify"} <= seconds.keys()
    assert sum(seconds.values()) == pytest.approx(2 * seconds["wall"], abs=0.02)
    assert re.search(r"^Wall time \d+\.\d\d s: start \d+\.\d\d, .*simulate \d+\.\d\d", ran.err, re.M)


def test_the_commit_and_whether_all_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git_state covers a clean tree, a changed tree, an untracked source, a revision, a built-in source, and a
    repository without a commit."""
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(KERNEL)
    source = Source("k.cu", KERNEL, str(tmp_path), False)
    assert provenance.git_state(source) is None
    git("init", "-q")
    assert provenance.git_state(source) is None
    git("add", "k.cu")
    git("commit", "-qm", "one")
    head = commit()
    assert provenance.git_state(source) == {"commit": head, "dirty": False}
    Path("k.cu").write_text(KERNEL + "//\n")
    assert provenance.git_state(source) == {"commit": head, "dirty": True}
    git("checkout", "-q", "k.cu")
    Path("new.cu").write_text(KERNEL)
    assert provenance.git_state(source) == {"commit": head, "dirty": False}
    assert provenance.git_state(Source("new.cu", KERNEL, str(tmp_path), False)) == {"commit": head, "dirty": True}
    git("add", "new.cu")
    git("commit", "-qm", "two")
    state = provenance.git_state(Source("HEAD~1:k.cu", KERNEL, "elsewhere", False))
    assert state == {"commit": commit(), "dirty": False}
    built_in = chapters.read_chapter("vecadd.cu")
    Path("kernels_cu").mkdir()
    Path(built_in.name).write_text("another")
    whole = hashlib.sha256(built_in.text.encode()).hexdigest()
    assert (
        provenance.source_digest(built_in) == provenance.source_digest(replace(built_in, text="a part of it")) == whole
    )
    assert (provenance.git_state(built_in) or {}).get("commit") != commit()
    assert provenance.git_state(Source("other.cu", KERNEL, str(tmp_path))) is None  # built in, in somebody's tree


def test_without_a_repository_git_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no folder above the source has a `.git`, no git process is started."""

    def started(*words: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    (tmp_path / "k.cu").write_text(KERNEL)
    assert provenance.git_state(Source(str(tmp_path / "k.cu"), KERNEL, str(tmp_path), False)) is None


def test_without_git_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repository without a git program on PATH, the git state is None and no error is raised."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "k.cu").write_text(KERNEL)
    monkeypatch.setenv("PATH", "")
    assert provenance.git_state(Source(str(tmp_path / "k.cu"), KERNEL, str(tmp_path), False)) is None


class NVMLError(Exception):
    """Stands in for pynvml's exception of that name."""


def library(power: int, **lacks: Exception) -> types.ModuleType:
    """Return a stand-in for pynvml whose functions in `lacks` raise."""
    module = types.ModuleType("pynvml")
    answers: dict[str, Any] = {
        "nvmlInit": None, "nvmlDeviceGetHandleByUUID": 1, "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x24, "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetTemperature": 41,
    }  # fmt: skip

    def answering(name: str) -> Callable[..., Any]:
        def query(*_: object) -> Any:
            if name in lacks:
                raise lacks[name]
            return answers[name]

        return query

    for name in answers:
        setattr(module, name, answering(name))
    for name in ("NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVML_TEMPERATURE_GPU"):
        setattr(module, name, 0)
    module.NVMLError = NVMLError  # type: ignore[attr-defined]
    return module


def test_the_cards_state_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has clocks, power in watts, temperature and throttle reasons before and after the run; a value that
    NVML cannot read is None."""
    record = provenance.provenance_record([], None)
    monkeypatch.setitem(sys.modules, "pynvml", library(100_500))
    provenance.begin(record, "GPU-1")
    lack = NVMLError("not supported")
    monkeypatch.setitem(sys.modules, "pynvml", library(700_000, nvmlDeviceGetTemperature=lack))
    provenance.finish(record, "GPU-1", provenance.PhaseTimer())
    assert record["power_w"] == {"before": 100.5, "after": 700.0}
    assert record["temperature_c"] == {"before": 41, "after": None}
    assert record["clocks"]["before"] == {"sm_mhz": 1980, "memory_mhz": 1980}
    assert record["throttle"]["after"] == ["power cap", "software thermal slowdown"]


def test_without_nvml_the_state_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """If pynvml is missing or cannot start, each value is None and no error is raised."""
    record = provenance.provenance_record([], None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    provenance.begin(record, "GPU-1")
    monkeypatch.setitem(sys.modules, "pynvml", library(1, nvmlInit=NVMLError("no driver")))
    provenance.finish(record, "GPU-1", provenance.PhaseTimer())
    assert [record[key] for key in provenance.KEYS] == [None] * 4
