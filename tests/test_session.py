"""A run over a worker process: death, hang and a spoilt context cost one kernel, not the ladder."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cudabench import operations
from cudabench.devices import Choice
from cudabench.errors import DeviceError, OutOfMemory
from cudabench.measure import session
from cudabench.plan import cases
from cudabench.records.planned import Settings
from cudabench.records.results import Result


@pytest.fixture(autouse=True)
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the session start the worker of these tests."""
    monkeypatch.setattr(session, "WORKER", "tests.fake_worker")


def run(*kernels: str, timeout: float = 20) -> list[session.Event]:
    """Run cases of these kernel names and return the events."""
    (case,) = cases.build(operations.get("transpose"), cases.Request(kernels=("0",), size=(4, 4)))
    ladder = [replace(case, kernel=name) for name in kernels]
    settings = Settings(timeout=timeout)
    return list(session.run(Choice("cuda"), partial(operations.get, "transpose"), ladder, settings))


def results(events: list[session.Event]) -> list[Result]:
    """Return the results among events."""
    return [event.result for event in events if isinstance(event, session.Finished)]


def test_one_worker_serves_a_ladder() -> None:
    """The device starts once, every kernel finishes; what a kernel prints comes with it, a library's noise does not."""
    events = run("a", "b")
    assert [type(event).__name__ for event in events] == ["Started", "Finished", "Finished"]
    assert [event.output for event in events if isinstance(event, session.Finished)] == [
        "printed by a\n",
        "printed by b\n",
    ]


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [("dies", "the process that ran it ended"), ("hangs", "no sign of life for 1 s while timing"), ("spoils", None)],
)
def test_a_bad_kernel_costs_itself(kernel: str, reason: str | None) -> None:
    """After a death, a hang or a spoilt context a new worker goes on with the rest, and the device is told of once."""
    events = run("a", kernel, "b", timeout=1)
    assert [(r.kernel, r.status) for r in results(events)] == [("a", "ok"), (kernel, "failed"), ("b", "ok")]
    assert sum(isinstance(event, session.Started) for event in events) == 1
    if reason:
        assert reason in (results(events)[1].reason or "")


def test_temporary_files_go_with_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker leaves in the folder of temporary files, however it ends, is gone after it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(results(run("a", "dies", "hangs", "spoils", "b", timeout=1))) == 5
    assert not [*tmp_path.iterdir()]


def test_two_bad_kernels_at_the_end() -> None:
    """A ladder that ends with bad kernels ends."""
    assert [r.status for r in results(run("dies", "spoils"))] == ["failed", "failed"]


def test_refusal_ends_the_run() -> None:
    """An error that no kernel can escape is raised."""
    with pytest.raises(OutOfMemory, match="too large"):
        run("a", "refuses", "b")


def test_worker_that_does_not_start() -> None:
    """A GPU that does not start is an error with the last words of the process."""
    with pytest.raises(DeviceError, match=r"The GPU did not start: the driver is asleep\."):
        run("no-start")


def test_progress_is_told() -> None:
    """What is being done reaches the caller as it happens."""
    told: list[session.Working] = []
    (case,) = cases.build(operations.get("transpose"), cases.Request(kernels=("0",), size=(4, 4)))
    make = partial(operations.get, "transpose")
    list(session.run(Choice("cuda"), make, [case], Settings(), progress=told.append))
    assert told == [session.Working("copy-row", "timing", 0.5)]
