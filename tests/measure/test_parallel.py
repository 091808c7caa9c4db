"""Simulating kernels in several processes: order of results, processes that die, errors, interrupts, and the number of
processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.errors import CudabenchError, UsageError
from cudabench.measure import parallel
from cudabench.records.plan import Buffer
from cudabench.system import limited_process
from tests.conftest import Ran

pytestmark = pytest.mark.skipif(not limited_process.FORKS, reason="needs Linux")

CASES: Any = [SimpleNamespace(kernel=name, launches=()) for name in "abcdef"]


def collected(simulate: Callable[..., Any], count: int = 3, cases: Any = CASES, **more: Any) -> list[Any]:
    """Return the results of simulating the cases with a function; a case whose process dies gets a failure message."""
    options: dict[str, Any] = {
        "progress": lambda kernel, phase, fraction: None,
        "refused": lambda case: None,
        "failure": lambda case, why: f"{case.kernel}: {why}",
        **more,
    }
    return list(parallel.simulate_in_order(cases, simulate, count, **options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [1, 3, 6])
def test_results_come_in_the_order_of_the_cases(count: int) -> None:
    """Results come in the order of the cases, although the first takes longest; with count > 1, several processes run
    them."""

    def simulate(case: Any, report_progress: Callable[[str, float], None]) -> tuple[Any, str]:
        time.sleep(0.1 if case.kernel == "a" else 0.01)
        return (case.kernel, os.getpid()), f"printed by {case.kernel}"

    found = collected(simulate, count)
    assert [(result[0], printed) for result, printed in found] == [(k, f"printed by {k}") for k in "abcdef"]
    used = {result[1] for result, _ in found}
    assert os.getpid() not in used
    assert (len(used) > 1) == (count > 1)


def test_the_cores_are_shared_by_the_cases_that_run() -> None:
    """The number of running cases is told while they run: it grows to the number of processes, and ends at 1."""
    told: list[int] = []

    def simulate(case: Any, report_progress: Callable[[str, float], None]) -> tuple[Any, str]:
        time.sleep(0.3 if case.kernel == "a" else 0.01)
        return case.kernel, ""

    collected(simulate, 3, share_cores=told.append)
    assert max(told) == 3
    assert told[-1] == 1


def test_a_process_that_ends_fails_its_kernel_alone() -> None:
    """A process that is killed, exits or runs out of memory fails only its kernel, with the cause in the message."""

    def simulate(case: Any, report_progress: Callable[[str, float], None]) -> tuple[Any, str]:
        if case.kernel == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        if case.kernel == "c":
            os._exit(3)
        if case.kernel == "e":
            raise MemoryError
        return case.kernel, ""

    found = [result for result, _ in collected(simulate)]
    assert [found[at] for at in (0, 3, 5)] == ["a", "d", "f"]
    assert [found[at].split("ended ")[1].split(")")[0] for at in (1, 2, 4)] == [
        "(signal 9", "(exit status 3", "(out of memory"
    ]  # fmt: skip


def test_an_error_for_the_user_is_raised_in_its_turn() -> None:
    """A usage error is raised after the results of the cases before it, and no process is left."""

    def simulate(case: Any, report_progress: Callable[[str, float], None]) -> tuple[Any, str]:
        if case.kernel == "b":
            raise UsageError("b cannot be")
        time.sleep(0.05)
        return os.getpid(), ""

    events = parallel.simulate_in_order(CASES, simulate, 2, lambda *_: None, lambda case: None, lambda c, w: w)  # type: ignore[arg-type, return-value]
    process: Any = next(events)[0]
    with pytest.raises(CudabenchError, match="b cannot be"):
        next(events)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_what_is_refused_is_not_begun_and_progress_is_told() -> None:
    """A refused case gets the given result and does not run; the first running case reports its progress."""
    told: list[tuple[str, str, float]] = []

    def simulate(case: Any, report_progress: Callable[[str, float], None]) -> tuple[Any, str]:
        report_progress("simulating", 0.5)
        return case.kernel, ""

    found = collected(
        simulate, 2, refused=lambda case: "late" if case.kernel in "df" else None,
        progress=lambda *now: told.append(now),
    )  # fmt: skip
    assert [result for result, _ in found] == ["a", "b", "c", "late", "e", "late"]
    assert ("a", "simulating", 0.5) in told


def test_closing_ends_all_processes() -> None:
    """Closing the generator ends all processes."""
    read, write = os.pipe()

    def simulate(case: Any, report_progress: Callable[[str, float], None]) -> tuple[Any, str]:
        os.write(write, f"{os.getpid()}\n".encode())
        time.sleep(60 if case.kernel != "a" else 0)
        return case.kernel, ""

    events = parallel.simulate_in_order(CASES, simulate, 3, lambda *_: None, lambda case: None, lambda c, w: w)  # type: ignore[arg-type, return-value]
    assert next(events)[0] == "a"
    events.close()
    os.close(write)
    with os.fdopen(read) as stream:
        for pid in {int(line) for line in stream}:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """--jobs sets the number of processes, then CUDABENCH_JOBS; otherwise one per core and kernel, as far as memory
    allows."""
    small = [Buffer("x", (1024,), "float32", "in")]
    large = [replace(small[0], shape=(1 << 31,))]
    monkeypatch.delenv(parallel.VARIABLE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(limited_process, "host_memory", lambda: 20 << 30)
    assert [parallel.process_count(None, cases, small) for cases in (2, 5, 20)] == [2, 5, 8]
    assert parallel.process_count(None, 20, large) == 1
    assert parallel.process_count(3, 20, large) == 3
    monkeypatch.setenv(parallel.VARIABLE, "2")
    assert parallel.process_count(None, 20, small) == 2
    monkeypatch.setenv(parallel.VARIABLE, "many")
    with pytest.raises(UsageError, match="CUDABENCH_JOBS=many is not a number"):
        parallel.process_count(None, 20, small)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
def test_a_ladder_is_the_same(cudabench: Callable[..., Ran]) -> None:
    """A ladder with two processes gives the same results as with one."""
    line = ("transpose", "-s", "70", "90", "-k", "smem*", "-k", "naive-row", "-k", "copy-row", "--device", "sim")
    one, two = (cudabench(*line, "--no-cpu", "--json", "-", "--jobs", str(count)) for count in (1, 2))
    assert one.code == two.code == 0
    assert one.json["results"] == two.json["results"]
    assert len(two.json["results"]) > 3


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends the run with exit code 130, keeps the finished results, and leaves no process."""
    (tmp_path / "slow.cu").write_text(
        "__global__ void first(float *x) { x[0] = 1; }\n"
        # The loops count, because the simulator detects a loop without a changing value as endless.
        "__global__ void second(volatile float *x) { for (unsigned i = 0; x[0] < 2; i++) x[1] = i; }\n"
        "__global__ void third(volatile float *x) { for (unsigned i = 0; x[0] < 3; i++) x[1] = i; }\n"
    )
    words = [
        "run",
        "slow.cu",
        *["-k", "all", "-g", "1", "-b", "1", "--arg", "x=float32[4]:zeros", "-d", "sim", "--no-cpu", "--jobs", "2"],
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "cudabench", *words, "--json", "r.json"], cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and '"first"' not in (
            (tmp_path / "r.json").read_text() if (tmp_path / "r.json").exists() else ""
        ):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # to the whole process group, as a terminal does
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
    # Python dies by the signal itself if it arrives in code compiled from text, such as a dataclass during an import.
    assert process.returncode in (130, -signal.SIGINT), err
    assert "Traceback" not in err
    end = time.monotonic() + 30
    while _lives(process.pid) and time.monotonic() < end:  # a killed process may take a moment to end
        time.sleep(0.05)
    assert not _lives(process.pid)
