"""Runs every series of kernels on every device, and writes the results file after each kernel.

This module prints nothing. An object that the caller's `Listener` function returns shows the progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cudabench.cards.load import Card
from cudabench.devices import Choice, probe
from cudabench.errors import OutOfMemory, UnsupportedFeature, UsageError
from cudabench.explain.card_rates import roofline_rates
from cudabench.measure import provenance as origin
from cudabench.measure import session
from cudabench.measure.context import describe
from cudabench.measure.session import Budget, Session, SilentProgress
from cudabench.plan.series import Series
from cudabench.plan.space import Point
from cudabench.records.file import ResultsFile
from cudabench.records.plan import Operation, Settings
from cudabench.records.results import CpuTime, DeviceInfo, Result, Watch

MOST_LISTED = 64_000  # the results file includes at most this many characters of a source


Listener = Callable[
    [int], AbstractContextManager[Any]
]  # takes the number of kernels; returns a `SilentProgress` or a view


@dataclass
class Outcome:
    """A series of kernels, its results so far (in the order in which the kernels ended), and the time of the CPU
    baseline."""

    series: Series
    settings: Settings
    operation: Operation
    results: list[Result] = field(default_factory=list)
    cpu: CpuTime | None = None


class RecordedRun:
    """A results file that a run writes to `path`, if given, after each kernel. `spent` measures the parts of the run's
    time."""

    def __init__(self, file: ResultsFile, path: Path | None, listener: Listener) -> None:
        self.file, self.path, self.listener = file, path, listener
        self.spent = origin.PhaseTimer()
        self._uuid: str | None = None

    def write(self) -> None:
        """Write the file, if it has a path."""
        if self.path:
            self.file.write(self.path)

    def finish(self) -> None:
        """Add the card's present state and the times so far to the file's origin."""
        origin.finish(self.file.provenance, self._uuid, self.spent)

    def started(self, device: DeviceInfo) -> None:
        """Add a device to the file; for the first device, if it times kernels, add its state to the file's origin."""
        if device in self.file.devices:
            return
        if self.file.provenance and not self.file.devices and device.timed:
            self._uuid = device.uuid
            origin.begin(self.file.provenance, self._uuid)
        self.file.devices.append(device)


class Run(RecordedRun):
    """A run of series of kernels on devices.

    `file`: the results file with every finished result; it is written to `path` after each result. `outcomes`: the
    results by series. `request`: the options of the command, for the file. `trace`: which single accesses the simulator
    records. `cards`: the cards for which lower bounds are computed from the simulator's counts. `record`: whether the
    file gets the sources and the data for drawings of an HTML page. `counted`: whether kernels that a GPU has measured
    are then counted in the simulator, which gives the card's limits; `record` implies `counted`. `provenance`: whether
    the file gets its origin; it takes some milliseconds to find.
    """

    def __init__(
        self,
        series: Sequence[Series],
        devices: Sequence[Choice],
        settings: Settings,
        request: Mapping[str, Any],
        *,
        path: Path | None = None,
        listener: Listener = SilentProgress,
        trace: Watch = False,
        record: bool = False,
        cards: Sequence[Card] = (),
        counted: bool = False,
        provenance: bool = True,
    ) -> None:
        if settings.schedule is not None and any(device.kind == "cuda" for device in devices):
            raise UsageError(
                f"--schedule {settings.schedule} is for the simulator, because a GPU orders its blocks itself: add "
                "--device sim."
            )
        self.devices, self.trace, self.record = devices, trace, record
        self.cards, self.counted = tuple(cards), counted or record
        self.outcomes = [
            Outcome(one_series, replace(settings, cpu=settings.cpu and one_series.baseline), one_series.make())
            for one_series in series
        ]
        file = ResultsFile(
            settings={
                **asdict(self.outcomes[0].settings),
                **request,
                "kernels": list(dict.fromkeys(case.kernel for one_series in series for case in one_series.cases)),
                "device": devices[0].name if len(devices) == 1 else "sim" if devices[0].kind == "sim" else "all",
            },
            tool=versions(devices[0]),
            host=probe.host(),
        )
        super().__init__(file, path, listener)
        if self.cards:
            self.note({"on": roofline_rates(self.cards[0])})
        if self.by_card:
            self.note({"on_cards": {card.key: card.architecture for card in self.cards}})
        sources = [
            part.source for one_series in series for case in one_series.cases for part in case.parts if not case.peer
        ]
        if self.counted:
            texts = {
                name: [source.text for source in sources if source.name == name] for name in (s.name for s in sources)
            }
            self.file.listings = {name: source_listing(parts) for name, parts in texts.items()}
        if provenance:
            self.file.provenance = origin.provenance_record(sources, compiler(devices[0], self.file.tool))

    @property
    def by_card(self) -> bool:
        """Whether results have limits by card: if there are several cards, or a card with a price."""
        return len(self.cards) > 1 or any(card.per_hour is not None for card in self.cards)

    def note(self, settings: Mapping[str, Any]) -> None:
        """Add settings to those in the file."""
        self.file.settings = {**self.file.settings, **settings}

    def replace(self, old: Result, new: Result) -> None:
        """Replace a result by a new one, in the file and in its series."""
        for results in (self.file.results, *(outcome.results for outcome in self.outcomes)):
            results[:] = [new if result is old else result for result in results]

    def collect(self) -> None:
        """Run all kernels on all devices. Even if this raises an exception, `file` and `outcomes` have the finished
        results, and all workers have ended.

        Raises CudabenchError if a series cannot run at all.
        """
        self.write()
        seconds = self.outcomes[0].settings.budget
        end = None if seconds is None else time.monotonic() + seconds
        later = kernels = sum(len(outcome.series.cases) for outcome in self.outcomes) * len(self.devices)
        with self.listener(kernels) as self.shown:
            self.shown.bound(self.outcomes[0].settings.max_time, end)
            for outcome in self.outcomes:
                for device in self.devices:
                    make, cases = outcome.series.make, outcome.series.cases
                    later -= len(cases)
                    budget = None if seconds is None or end is None else Budget(seconds, end, later)
                    with (
                        self._session(device, outcome.settings, outcome.cpu) as session,
                        closing(session.results(make, cases, budget)) as results,
                    ):
                        for result in results:
                            outcome.cpu = session.cpu
                            outcome.results.append(result)
                            self.file.results.append(result)
                            self.finish()
                            self.write()
        timed = [result for result in self.file.results if result.status == "ok" and result.time and not result.peer]
        if self.counted and timed:
            with self.listener(len(timed)) as self.shown:
                self.shown.bound(0.0, end)
                self._count(timed, end)

    def _count(self, timed: Sequence[Result], end: float | None) -> None:
        """Add the simulator's counts to the results of kernels that a GPU has measured, until the time `end`."""
        from cudabench.measure.counting import Counting

        for outcome in self.outcomes:
            counting = Counting(outcome.operation, outcome.settings, end)
            for result in [result for result in outcome.results if result in timed]:
                case = next(c for c in outcome.series.cases if c.kernel == result.kernel and c.block == result.block)
                device = self.file.device_of(result)
                assert device is not None
                self.spent.begin_phase("counting")
                progress = partial(self.shown.show_progress, result.kernel, "counting")
                self.replace(result, counting.with_limits(result, case, device, progress))
                self.shown.finished("")
                self.write()

    @contextmanager
    def session(
        self, kernels: int, device: Choice | None = None, settings: Settings | None = None
    ) -> Generator[Session, None, None]:
        """Yield a session on a device, by default the first device, for about `kernels` kernels."""
        settings = settings or self.outcomes[0].settings
        with self.listener(kernels) as self.shown, self._session(device or self.devices[0], settings) as session:
            self.shown.bound(settings.max_time, None)
            yield session

    def measure(self, session: Session, point: Point) -> Result:
        """Measure a point of a sweep, add its result to the file and return it. If its problem cannot run, for example
        because it needs too much memory, the result is 'failed' or 'skipped'."""
        try:
            result = session.result(point.series.make, point.case)
        except (OutOfMemory, UsageError, UnsupportedFeature) as error:
            status: Literal["skipped", "failed"] = "skipped" if isinstance(error, UnsupportedFeature) else "failed"
            result = replace(describe(point.case, session.choice.name), status=status, reason=str(error))
            self.shown.finished("")
        self.take(point, result)
        self.finish()
        self.write()
        return result

    def take(self, point: Point, result: Result) -> Result:
        """Add a point's result to the file, and the point to the series with the same operation, or to a new series;
        return the result."""
        make = point.series.make
        outcome = next((outcome for outcome in self.outcomes if outcome.series.make is make), None)
        if outcome is None:
            outcome = Outcome(point.series, self.outcomes[0].settings, make())
            self.outcomes.append(outcome)
        outcome.series = replace(outcome.series, cases=(*outcome.series.cases, point.case))
        outcome.results.append(result)
        self.file.results.append(result)
        return result

    def pair(self, always: bool) -> list[Result]:
        """Measure the two cases of the only series as a pair. Return their results without writing a results file."""
        outcome = self.outcomes[0]
        with self.session(2) as session:
            results = session.pair(outcome.series.make, outcome.series.cases, always)
        self.finish()
        return results

    def _session(self, device: Choice, settings: Settings, cpu: CpuTime | None = None) -> Session:
        return session.Session(
            device, settings, started=self.started, shown=self.shown, spent=self.spent.begin_phase, cpu=cpu,
            several=len(self.devices) > 1, trace=self.trace, record=self.record, cards=self.cards,
        )  # fmt: skip


def source_listing(parts: Iterable[str]) -> str:
    """Return the text of a source for the results file: whole lines, at most MOST_LISTED characters.

    `parts`: texts of the same source, each without the lines of some kernels (empty lines instead); they are merged.
    """
    lines = (text.split("\n") for text in dict.fromkeys(parts))
    text = "\n".join(max(variants, key=len) for variants in zip_longest(*lines, fillvalue=""))
    return text if len(text) <= MOST_LISTED else text[: text.rfind("\n", 0, MOST_LISTED) + 1]


def versions(device: Choice) -> dict[str, Any]:
    """Return the versions of NumPy, the compiler and, for a GPU, PyCUDA, by name."""
    parts = [probe.pycuda(), probe.gpu_compiler()] if device.kind == "cuda" else [probe.nvrtc()]
    return {"numpy": np.__version__, **{part.name.lower(): part.version for part in parts}}


def compiler(device: Choice, tool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the name and version of the compiler that compiles the kernels, or None; `tool`: see `versions`."""
    order = ("nvcc", "nvrtc") if device.kind == "cuda" else ("nvrtc",)
    return next(({"name": name, "version": tool[name]} for name in order if tool.get(name)), None)
