"""A run: every series of kernels on every device, with the results file kept up to date as each kernel ends.

Nothing here prints: a `Listener` is told what is being done, and whoever started the run shows it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.cards.load import Card
from cudabench.devices import Choice, probe
from cudabench.errors import OutOfMemory, UnsupportedFeature, UsageError
from cudabench.explain.limits import roofs
from cudabench.measure import provenance as origin
from cudabench.measure import session
from cudabench.measure.budget import Budget
from cudabench.measure.context import describe
from cudabench.plan.series import Series
from cudabench.records.file import ResultsFile
from cudabench.records.planned import Case, Operation, Settings
from cudabench.records.results import CpuTime, Result, Watch

MOST_LISTED = 64_000  # characters of a source that the results file holds


class Listener:
    """Told what a run does; this one ignores it all."""

    def begin(self, kernels: int) -> None:
        """So many kernels will run."""

    def working(self, done: int, kernel: str, phase: str, fraction: float) -> None:
        """A kernel, after `done` others, is in a phase, of which a fraction is done."""

    def printed(self, text: str) -> None:
        """A kernel printed this."""

    def end(self) -> None:
        """No kernel runs any more, whatever the reason."""


@dataclass
class Outcome:
    """What came of a series so far: the results, in the order in which they ended, and the CPU's time."""

    series: Series
    settings: Settings
    operation: Operation
    results: list[Result] = field(default_factory=list)
    cpu: CpuTime | None = None


class Run:
    """Series of kernels on devices.

    `file` holds every finished result and is written to `path` after each; `outcomes` has the results by series.
    `request` is what was asked for, as the file tells it. `trace` keeps single accesses in the simulator, `cards` price
    its counts, `record` keeps what a report's page draws, with the text of the sources. With `counted` or `record` what
    a GPU has measured is counted in the simulator afterwards, and held against the card's limits. Without `provenance`
    the file does not say where it comes from, which takes some milliseconds to find out.
    """

    def __init__(
        self,
        series: Sequence[Series],
        devices: Sequence[Choice],
        settings: Settings,
        request: Mapping[str, Any],
        *,
        path: Path | None = None,
        listener: Listener | None = None,
        trace: Watch = False,
        record: bool = False,
        cards: Sequence[Card] = (),
        counted: bool = False,
        provenance: bool = True,
    ) -> None:
        if settings.schedule is not None and any(device.kind == "cuda" for device in devices):
            raise UsageError(
                f"--schedule {settings.schedule} is for the simulator, since a GPU orders its blocks by itself: add "
                "--device sim."
            )
        self.devices, self.path, self.trace, self.record = devices, path, trace, record
        self.cards, self.counted = tuple(cards), counted or record
        self.listener = listener or Listener()
        self._end: float | None = None  # of time.monotonic(): when the budget is spent
        self._later = 0  # kernels of the sessions that are still to come
        self._done = 0  # kernels of the pass that runs now
        self.outcomes = [
            Outcome(one, replace(settings, cpu=settings.cpu and one.baseline), one.make()) for one in series
        ]
        self.file = ResultsFile(
            settings={
                **asdict(self.outcomes[0].settings),
                **request,
                "kernels": list(dict.fromkeys(case.kernel for one in series for case in one.cases)),
                "device": devices[0].name if len(devices) == 1 else "sim" if devices[0].kind == "sim" else "all",
            },
            tool=versions(devices[0]),
            host=probe.host(),
        )

        if self.cards:
            self.note({"on": roofs(self.cards[0])})
        if self.by_card:
            self.note({"on_cards": {card.key: card.architecture for card in self.cards}})
        self._uuid: str | None = None
        sources = [part.source for one in series for case in one.cases for part in case.parts if not case.peer]
        if self.counted:
            texts = {name: [one.text for one in sources if one.name == name] for name in (s.name for s in sources)}
            self.file.listings = {name: listing(joined(parts)) for name, parts in texts.items()}
        if provenance:
            self.file.provenance = origin.gather(sources, compiler(devices[0], self.file.tool))

    @property
    def by_card(self) -> bool:
        """Whether results are held against several cards, or a card's price."""
        return len(self.cards) > 1 or any(card.per_hour is not None for card in self.cards)

    def note(self, settings: Mapping[str, Any]) -> None:
        """Add to what the file says was asked for."""
        self.file.settings = {**self.file.settings, **settings}

    def finish(self) -> None:
        """Note in what state the card is now."""
        origin.finish(self.file.provenance, self._uuid)

    def write(self) -> None:
        """Write the file, where there is to be one."""
        if self.path:
            self.file.write(self.path)

    def replace(self, old: Result, new: Result) -> None:
        """Put a result in the place of another one."""
        for results in (self.file.results, *(outcome.results for outcome in self.outcomes)):
            results[:] = [new if result is old else result for result in results]

    def collect(self) -> None:
        """Run everything. Whatever ends it, `file` and `outcomes` hold what was finished, and no worker is left.

        Raises CudabenchError where a series cannot run at all.
        """
        self.write()
        budget = self.outcomes[0].settings.budget
        self._end = None if budget is None else time.monotonic() + budget
        kernels = sum(len(one.series.cases) for one in self.outcomes) * len(self.devices)
        self._later = kernels
        with self._told(kernels):
            for outcome in self.outcomes:
                for device in self.devices:
                    self._later -= len(outcome.series.cases)
                    with closing(self._events(outcome, device, outcome.series.cases, outcome.settings)) as events:
                        for event in events:
                            if isinstance(event, session.Finished):
                                self.keep(outcome, event.result)
                                self.finish()
                                self.write()
            if self.counted:
                self._count()

    def _count(self) -> None:
        """Count in the simulator what was measured; the numbers of the GPU stay."""
        if not any(result.time for result in self.file.results):
            return
        from cudabench.measure import counted

        self._done = 0
        for outcome in self.outcomes:
            counting = counted.Counting(outcome.operation, outcome.settings, self._end)
            for result in [one for one in outcome.results if one.status == "ok" and one.time and not one.peer]:
                case = next(c for c in outcome.series.cases if c.kernel == result.kernel and c.block == result.block)
                device = self.file.device_of(result)
                assert device is not None
                tell = partial(self.listener.working, self._done, result.kernel, "counting")
                self.replace(result, counting.limited(result, case, device, tell))
                self._done += 1
                self.write()

    @contextmanager
    def one_by_one(
        self, kernels: int, device: Choice | None = None
    ) -> Generator[Callable[[Series, Case], Result], None, None]:
        """Give what runs one case on a device (left out, the first), keeps its result and returns it; about `kernels`
        will run.

        Cases of one series after the other share a worker, with its inputs and references. What a problem asks for and
        cannot have, such as too much memory, is a failed result.
        """
        on = device or self.devices[0]
        with self._told(kernels), ExitStack() as stack:
            current: _Lane | None = None

            def measure(series: Series, case: Case) -> Result:
                nonlocal current
                outcome = self.outcome(series)
                if current is None or current.outcome is not outcome or current.over:
                    stack.close()
                    current = stack.enter_context(_Lane(self, outcome, on))
                try:
                    result = current.measure(case)
                except (OutOfMemory, UsageError, UnsupportedFeature) as error:
                    skipped = isinstance(error, UnsupportedFeature)
                    blank = describe(case, on.name)
                    result = replace(blank, status="skipped" if skipped else "failed", reason=str(error))
                    self._done += 1
                outcome.series = replace(outcome.series, cases=(*outcome.series.cases, case))
                self.keep(outcome, result)
                self.finish()
                self.write()
                return result

            yield measure

    def keep(self, outcome: Outcome, result: Result) -> None:
        """Add a result to the file and to its series."""
        outcome.results.append(result)
        self.file.results.append(result)

    def outcome(self, series: Series) -> Outcome:
        """Return what comes of a series, which is new or one of this run."""
        found = next((one for one in self.outcomes if one.series.make is series.make), None)
        if found is None:
            found = Outcome(series, self.outcomes[0].settings, series.make())
            self.outcomes.append(found)
        return found

    def again(self, cases: Sequence[Case], settings: Settings) -> Generator[session.Event, None, None]:
        """Run cases of this run once more on the first device; what they give is yielded, and kept nowhere.

        Closed before its end, it ends the worker.
        """
        whose = [
            next((one for one in self.outcomes if any(each is case for each in one.series.cases)), self.outcomes[0])
            for case in cases
        ]
        with self._told(len(cases)):
            for _, group in groupby(range(len(cases)), key=lambda at: id(whose[at])):
                at = [*group]
                outcome = whose[at[0]]
                chosen = [cases[one] for one in at]
                with closing(self._events(outcome, self.devices[0], chosen, settings)) as events:
                    yield from events

    def pair(self, always: bool) -> Generator[session.Event, None, None]:
        """Measure the two cases of the only series as a pair; yields as `session.pair` does, and keeps no result."""
        outcome, device = self.outcomes[0], self.devices[0]
        with self._told(2):
            events = session.pair(
                device,
                outcome.series.make,
                outcome.series.cases,
                outcome.settings,
                always=always,
                progress=self._working(device),
            )
            yield from self._noted(outcome, events)

    @contextmanager
    def _told(self, kernels: int) -> Generator[None, None, None]:
        self._done = 0
        self.listener.begin(kernels)
        try:
            yield
        finally:
            self.listener.end()

    def _events(
        self, outcome: Outcome, device: Choice, cases: Sequence[Case] | Iterator[Case], settings: Settings
    ) -> Generator[session.Event, None, None]:
        """Yield the events of a session that runs the cases, as `_noted` does."""
        budget = Budget(settings.budget, self._end, self._later) if settings.budget and self._end else None
        events = session.run(
            device,
            outcome.series.make,
            cases,
            settings,
            progress=self._working(device),
            trace=self.trace,
            record=self.record,
            cpu=outcome.cpu,
            budget=budget,
            cards=self.cards,
        )
        yield from self._noted(outcome, events)

    def _working(self, device: Choice) -> Callable[[session.Working], None]:
        def working(now: session.Working) -> None:
            kernel = f"{now.kernel} on {device.name}" if len(self.devices) > 1 else now.kernel
            self.listener.working(self._done, kernel, now.phase, now.fraction)

        return working

    def _noted(
        self, outcome: Outcome, events: Generator[session.Event, None, None]
    ) -> Generator[session.Event, None, None]:
        """Yield a session's events, after what every one of them means for the run has been noted."""
        # An interrupted session must end its worker now: the traceback would keep both alive.
        with closing(events):
            for event in events:
                if isinstance(event, session.Started) and event.device not in self.file.devices:
                    if self.file.provenance and not self.file.devices and event.device.timed:
                        self._uuid = event.device.uuid
                        origin.begin(self.file.provenance, self._uuid)
                    self.file.devices.append(event.device)
                elif isinstance(event, session.Measured):
                    outcome.cpu = event.cpu
                elif isinstance(event, session.Finished):
                    self._done += 1
                    if event.output:
                        self.listener.printed(event.output)
                yield event


def joined(parts: Iterable[str]) -> str:
    """Return a text of which each part lacks some kernels, whose lines it has empty."""
    lines = (text.split("\n") for text in dict.fromkeys(parts))
    return "\n".join(max(same, key=len) for same in zip_longest(*lines, fillvalue=""))


def listing(text: str) -> str:
    """Return the text of a source as a results file holds it: whole lines, MOST_LISTED characters of them at most."""
    if len(text) <= MOST_LISTED:
        return text
    return text[: text.rfind("\n", 0, MOST_LISTED) + 1]


class _Lane:
    """A session that is fed cases of one series one by one, and is over once it has ended by itself."""

    def __init__(self, run: Run, outcome: Outcome, device: Choice) -> None:
        self.outcome, self.over = outcome, False
        self._waiting: deque[Case] = deque()
        self._events = run._events(outcome, device, self._cases(), outcome.settings)

    def _cases(self) -> Iterator[Case]:
        while self._waiting:
            yield self._waiting.popleft()

    def measure(self, case: Case) -> Result:
        """Return the result of a case. Raises what ends the session."""
        self._waiting.append(case)
        try:
            return next(event.result for event in self._events if isinstance(event, session.Finished))
        except BaseException:
            self.over = True
            raise

    def __enter__(self) -> _Lane:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.over and sys.exc_info()[0] is None:
            for _event in self._events:  # without a case more it ends
                pass
        self._events.close()


def versions(device: Choice) -> dict[str, Any]:
    """Return the versions of what takes part in a run."""
    parts = [probe.pycuda(), probe.gpu_compiler()] if device.kind == "cuda" else [probe.nvrtc()]
    return {"numpy": np.__version__, **{part.name.lower(): part.version for part in parts}}


def compiler(device: Choice, tool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return which compiler makes the kernels, of the versions of a run's tools."""
    order = ("nvcc", "nvrtc") if device.kind == "cuda" else ("nvrtc",)
    return next(({"name": name, "version": tool[name]} for name in order if tool.get(name)), None)
