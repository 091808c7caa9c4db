"""The loop behind all commands: series on devices, the file after every kernel, what the listener is told."""

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
    """Notes what it is told of a run that it listens to."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.done = 0

    def listen(self, kernels: int) -> Recorder:
        """Note."""
        self.told.append(("begin", kernels))
        return self

    def show_progress(self, kernel: str, phase: str, fraction: float) -> None:
        """Note."""
        self.told.append((self.done, kernel))

    def finished(self, printed: str) -> None:
        """Note."""
        self.done += 1
        self.told.append((printed,))

    def __exit__(self, *_: object) -> None:
        """Note."""
        self.told.append(("end",))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Invented]:
    """Replace sessions by ones whose kernels end by their names; return those that were begun."""

    def result(session: Invented, case: Case) -> Result:
        if session.settings.cpu and session.cpu is None:
            session.cpu = CPU
        if case.kernel == "refuses":
            raise OutOfMemory("too large")
        return describe(case, session.choice.name)

    return invent(monkeypatch, lambda choice: DeviceInfo("Fake", "cuda", "9.0", index=choice.index), result)


def test_series_on_devices(begun: list[Invented], tmp_path: Path) -> None:
    """Every series runs on every device; one file holds all; the CPU is timed once a series, where it can be."""
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
    """Before the first kernel the file is written, and after each; an error leaves it so and tells the listener."""
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
    """An interrupt that comes while the session waits, not while it works, ends its worker at once all the same."""

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
    assert caught.tb is not None  # the traceback lives, and with it the frames
    assert [one.closed for one in begun] == [True]


def test_a_result_takes_the_place_of_another(begun: list[Invented]) -> None:
    """What a session of a run gives is kept nowhere, until it takes the place of a result."""
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
