"""A run in a worker process: a kernel that dies, hangs or corrupts the CUDA context fails alone, and the ladder goes
on."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudabench import operations
from cudabench.devices import Choice, probe
from cudabench.errors import DeviceError, OutOfMemory, UsageError
from cudabench.measure import session
from cudabench.measure.run import Run
from cudabench.plan import cases
from cudabench.plan.series import Series
from cudabench.records.plan import Case, Settings
from cudabench.records.results import Result


@pytest.fixture(autouse=True)
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the session start the worker of these tests."""
    monkeypatch.setattr(session, "WORKER", "tests.fake_worker")


MAKE = partial(operations.get, "transpose")


def ladder(*kernels: str) -> list[Case]:
    """Return cases of these kernel names."""
    (case,) = cases.build(MAKE(), cases.Request(kernels=("0",), size=(4, 4)))
    return [replace(case, kernel=name) for name in kernels]


@dataclass
class Heard:
    """What a session reported: devices, progress and printed text."""

    devices: list[str] = field(default_factory=list)
    now: list[tuple[str, str, float]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def session(self, timeout: float = 20) -> session.Session:
        """Return a session that reports to this object."""
        return session.Session(
            Choice("cuda"),
            Settings(timeout=timeout),
            started=lambda device: self.devices.append(device.name),
            shown=SimpleNamespace(show_progress=lambda *now: self.now.append(now), finished=self.printed.append),
        )


def run(*kernels: str, timeout: float = 20, heard: Heard | None = None) -> list[Result]:
    """Return the results of cases of these kernel names."""
    with (heard or Heard()).session(timeout) as device:
        return list(device.results(MAKE, ladder(*kernels)))


def one_by_one(*kernels: str) -> list[Result]:
    """Return the results of cases that a session measures with one call each."""
    with Heard().session() as device:
        return [device.result(MAKE, case) for case in ladder(*kernels)]


def pair(*kernels: str, timeout: float = 1) -> list[tuple[str, str | None]]:
    """Return status and reason of two cases that are measured as a pair."""
    series = Series(MAKE, tuple(ladder(*kernels)))
    found = Run([series], [Choice("cuda")], Settings(cpu=False, timeout=timeout), {}).pair(always=False)
    return [(result.status, result.reason) for result in found]


def test_one_worker_serves_a_ladder() -> None:
    """One worker runs the whole ladder; the session reports what a kernel prints, but not what a library prints."""
    heard = Heard()
    assert [one.status for one in run("a", "b", heard=heard)] == ["ok", "ok"]
    assert (heard.devices, heard.printed) == (["Fake"], ["printed by a\n", "printed by b\n"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("dies", "the process of the kernel ended (library noise)"),
        ("killed", "the process of the kernel ended (by SIGKILL, after: library noise)"),
        pytest.param("hangs", "no progress for 1 s while timing", marks=pytest.mark.slow),
        ("spoils", None),
    ],
)
def test_a_bad_kernel_costs_itself(kernel: str, reason: str | None) -> None:
    """After a kernel that dies, hangs or corrupts the context, a new worker runs the rest; the device is reported
    once."""
    heard = Heard()
    found = run("a", kernel, "b", timeout=1, heard=heard)
    assert [(r.kernel, r.status) for r in found] == [("a", "ok"), (kernel, "failed"), ("b", "ok")]
    assert heard.devices == ["Fake"]
    assert heard.printed == [f"printed by {one}\n" for one in ("a", kernel, "b")]
    if reason:
        assert reason in (found[1].reason or "")


@pytest.mark.slow
def test_temporary_files_go_with_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that a worker leaves in the temporary folder are deleted when it ends, however it ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(run("a", "dies", "hangs", "spoils", "b", timeout=1)) == 5
    assert not [*tmp_path.iterdir()]


class Noted(session.Worker):
    """A worker that records that it was started, and which kernel it is to compile next."""

    started: list[session.Worker]
    then: list[str | None]

    def __init__(self, module: str, index: int, *, primary: bool = False) -> None:
        super().__init__(module, index, primary=primary)
        self.started.append(self)

    def run_task(self, task: session.Task, *more: Any) -> session.FinishedEvent:
        """Record the next kernel."""
        self.then.append(task.next_case and task.next_case.kernel)
        return super().run_task(task, *more)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Noted]:
    """Let sessions start recording workers, with temporary files in a folder, as if a CUDA driver were present."""
    Noted.started, Noted.then = [], []
    monkeypatch.setattr(session, "Worker", Noted)
    monkeypatch.setattr(probe, "libcuda", object)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Noted


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("index", "primary", "workers"), [(0, False, 1), (1, False, 2), (0, True, 2)])
def test_a_worker_that_was_started_ahead(
    noted: type[Noted], tmp_path: Path, index: int, primary: bool, workers: int
) -> None:
    """The first session uses the early worker if index and context match; otherwise the early worker ends. No worker
    and no file is left."""
    with session.early_worker(index, primary=primary):
        assert len(noted.started) == 1
        assert [one.status for one in run("a", "dies", "b")] == ["ok", "failed", "ok"]
    assert len(noted.started) == workers + 1  # one more after the one that died
    assert all(one._process.poll() is not None for one in noted.started)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_worker_ends_while_results_are_shown(noted: type[Noted]) -> None:
    """A session that ends closes its worker without waiting; a later session starts after that worker has ended."""
    with session.early_worker(0):
        run("a")
        assert [worker._to.closed for worker in noted.started] == [True]
        run("b")
        assert noted.started[0]._process.poll() is not None
    assert [worker._process.poll() for worker in noted.started] == [0, 0]


@pytest.mark.parametrize("error", [None, UsageError("no such kernel"), KeyboardInterrupt()])
def test_a_worker_that_no_session_takes(noted: type[Noted], tmp_path: Path, error: BaseException | None) -> None:
    """An early worker that no session uses ends at once, also after an error or an interrupt."""
    start = time.monotonic()
    with suppress(UsageError, KeyboardInterrupt), session.early_worker(0):
        if error:
            raise error
    assert [one._process.poll() is not None for one in noted.started] == [True]
    assert not [*tmp_path.iterdir()]
    assert time.monotonic() - start < 4


def test_the_next_kernel_compiles_meanwhile(noted: type[Noted]) -> None:
    """With each kernel of a ladder, the worker receives the next kernel to compile; library calls and skipped kernels
    are left out."""
    first, call, skipped, last = ladder("a", "a", "a", "b")
    rungs = [first, replace(call, peer="cublas"), replace(skipped, skip_reason="too large"), last]
    with Heard().session() as device:
        assert len(list(device.results(MAKE, rungs))) == 4
    assert noted.then == ["b", "b", "b", None]


@pytest.mark.slow
def test_two_bad_kernels_at_the_end() -> None:
    """A ladder whose last kernels both die finishes with both failed."""
    assert [r.status for r in run("dies", "spoils")] == ["failed", "failed"]


def test_refusal_ends_the_run() -> None:
    """An error that concerns every kernel (out of memory) ends the run."""
    with pytest.raises(OutOfMemory, match="too large"):
        run("a", "refuses", "b")


def test_worker_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the worker cannot start the GPU, the error quotes the last line that the process printed."""
    monkeypatch.setenv("FAKE_WORKER", "no-start")
    with pytest.raises(DeviceError, match=r"The GPU did not start: the driver is asleep\."):
        run("a")


def test_progress_is_told() -> None:
    """The session passes on each progress report at once."""
    heard = Heard()
    run("copy-row", heard=heard)
    assert heard.now == [("copy-row", "timing", 0.5)]


@pytest.mark.slow
def test_a_case_after_a_lost_worker() -> None:
    """Cases measured with one call each share a worker; after a worker is lost, the next case gets a new one."""
    found = one_by_one("a", "dies", "b", "spoils", "killed", "c")
    assert [(r.kernel, r.status) for r in found] == [
        ("a", "ok"),
        ("dies", "failed"),
        ("b", "ok"),
        ("spoils", "failed"),
        ("killed", "failed"),
        ("c", "ok"),
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kernel", ["dies", "killed", "hangs"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_pair_whose_worker_is_lost(kernel: str, at: int) -> None:
    """In a pair whose worker is lost, the side that ran has failed, and the other is skipped with the reason."""
    kernels = ["a", "a"]
    kernels[at] = kernel
    found = pair(*kernels)
    assert found[at][0] == "failed"
    assert found[1 - at] == ("skipped", "not timed, because the other side is failed")
    assert ("no progress" if kernel == "hangs" else "the process of the kernel ended") in (found[at][1] or "")


@pytest.mark.slow
def test_the_end_of_a_budget() -> None:
    """A kernel that hangs is stopped soon after the end of the budget, and the kernels after it do not run."""
    first, *rest = ladder("a", "hangs", "b")
    with Heard().session() as device:
        assert device.result(MAKE, first).status == "ok"
        found = list(device.results(MAKE, rest, session.Budget(0.5, time.monotonic() + 0.5)))
    assert [r.status for r in found] == ["failed", "failed"]
    assert "no progress for 2 s while timing" in (found[0].reason or "")
    assert found[1].reason == "not measured: --budget 0.5 s was used up; give a larger budget, or run fewer kernels"
