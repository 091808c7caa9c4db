"""The loop behind all commands: it runs each series on each device, writes the results file after every kernel, and
reports to a listener."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cudabench import operations
from cudabench.devices import Choice
from cudabench.errors import OutOfMemory
from cudabench.measure.context import describe
from cudabench.measure.run import Run
from cudabench.measure.session import SilentProgress
from cudabench.plan import cases
from cudabench.plan.series import Series
from cudabench.records.plan import Case, Settings
from cudabench.records.results import CpuTime, DeviceInfo, Result
from tests.sessions import Invented, invent

CPU = CpuTime(1.0, None, 1, "NumPy")


def series(*kernels: str, baseline: bool = True) -> Series:
    """Return a series of cases with these kernel names."""
    make = partial(operations.get, "transpose")
    (case,) = cases.build(make(), cases.Request(kernels=("0",), size=(4, 4)))
    return Series(make, tuple(replace(case, kernel=name) for name in kernels), baseline)


class Recorder(SilentProgress):
    """A listener that records each call that a run makes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.done = 0

    def listen(self, kernels: int) -> Recorder:
        """Record the number of kernels."""
        self.told.append(("begin", kernels))
        return self

    def show_progress(self, kernel: str, phase: str, fraction: float) -> None:
        """Record the kernel that runs now, with the number of kernels that have finished."""
        self.told.append((self.done, kernel))

    def finished(self, printed: str) -> None:
        """Record the text that a kernel printed."""
        self.done += 1
        self.told.append((printed,))

    def __exit__(self, *_: object) -> None:
        """Record the end of the run."""
        self.told.append(("end",))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Invented]:
    """Replace sessions by invented ones, in which a kernel's name decides its result; return the sessions that were
    started."""

    def result(session: Invented, case: Case) -> Result:
        if session.settings.cpu and session.cpu is None:
            session.cpu = CPU
        if case.kernel == "refuses":
            raise OutOfMemory("too large")
        return describe(case, session.choice.name)

    return invent(monkeypatch, lambda choice: DeviceInfo("Fake", "cuda", "9.0", index=choice.index), result)


def test_series_on_devices(begun: list[Invented], tmp_path: Path) -> None:
    """A run executes every series on every device and writes one file; it times the CPU once per series that has a
    baseline."""
    path, listener = tmp_path / "r.json", Recorder()
    run = Run(
        [series("a", "b"), series("c", baseline=False)],
        [Choice("cuda"), Choice("cuda", 1)],
        Settings(),
        {"seed": 3},
        path=path,
        listener=listener.listen,
    )
    run.collect()
    assert [(one.choice.name, one.settings.cpu, one.known) for one in begun] == [
        ("cuda:0", True, None),
        ("cuda:1", True, CPU),
        ("cuda:0", False, None),
        ("cuda:1", False, None),
    ]
    assert [[(r.kernel, r.device) for r in one.results] for one in run.outcomes] == [
        [("a", "cuda:0"), ("b", "cuda:0"), ("a", "cuda:1"), ("b", "cuda:1")],
        [("c", "cuda:0"), ("c", "cuda:1")],
    ]
    assert [one.cpu for one in run.outcomes] == [CPU, None]
    document = json.loads(path.read_text())
    assert [r["kernel"] for r in document["results"]] == ["a", "b", "a", "b", "c", "c"]
    assert len(document["devices"]) == 2
    assert (document["settings"]["seed"], document["settings"]["device"]) == (3, "all")
    assert document["settings"]["kernels"] == ["a", "b", "c"]
    assert (listener.told[0], listener.told[-1]) == (("begin", 6), ("end",))
    assert [one for one in listener.told if len(one) == 2][1:] == [
        (0, "a on cuda:0"),
        (1, "b on cuda:0"),
        (2, "a on cuda:1"),
        (3, "b on cuda:1"),
        (4, "c on cuda:0"),
        (5, "c on cuda:1"),
    ]
    assert ("said by b",) in listener.told


def test_the_file_is_there_from_the_start(begun: list[Invented], tmp_path: Path) -> None:
    """An error in a later kernel leaves a results file with the kernels before it, and the listener receives the
    end."""
    path, listener = tmp_path / "r.json", Recorder()
    run = Run([series("a", "refuses")], [Choice("cuda")], Settings(cpu=False), {}, path=path, listener=listener.listen)
    with pytest.raises(OutOfMemory):
        run.collect()
    assert [r["kernel"] for r in json.loads(path.read_text())["results"]] == ["a"]
    assert listener.told[-1] == ("end",)


@pytest.mark.parametrize("moment", ["printed", "write"])
def test_an_interrupt_closes_the_session(
    begun: list[Invented], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """An interrupt while the session is idle (while results are printed or written) still closes the session."""

    class Interrupting(Recorder):
        def finished(self, printed: str) -> None:
            if moment == "printed":
                raise KeyboardInterrupt

    run = Run([series("a", "b")], [Choice("cuda")], Settings(), {}, listener=Interrupting().listen)

    def write() -> None:
        if moment == "write" and run.file.results:
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "write", write)
    with pytest.raises(KeyboardInterrupt) as caught:
        run.collect()
    assert caught.tb is not None  # the traceback keeps the frames alive
    assert [one.closed for one in begun] == [True]


def test_a_result_takes_the_place_of_another(begun: list[Invented]) -> None:
    """A result from `run.session` is not recorded until `run.replace` puts it in the place of an earlier result."""
    run = Run([series("a")], [Choice("cuda")], Settings(cpu=False), {})
    run.collect()
    one = series("a")
    with run.session(1) as session:
        new = replace(session.result(one.make, one.cases[0]), status="wrong")
    assert len(run.file.results) == len(run.outcomes[0].results) == 1
    run.replace(run.file.results[0], new)
    assert run.file.results == run.outcomes[0].results == [new]
    run.note({"sweep": [1]})
    assert run.file.settings["sweep"] == [1]
