"""A run of ceilings on one device, with the results file kept up to date as each is known.

Nothing here prints: a `Listener` is told what is being done.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cudabench.cards import KINDS, Ceiling
from cudabench.ceilings import chapter
from cudabench.devices import Choice, probe
from cudabench.errors import UsageError, did_you_mean
from cudabench.measure import provenance as origin
from cudabench.measure import session
from cudabench.measure.run import Listener, compiler, versions
from cudabench.records.file import ResultsFile
from cudabench.records.planned import Settings
from cudabench.records.results import DeviceInfo

WORKER = "cudabench.ceilings.worker"
ENERGY = "energy"  # the group that is measured only where it is asked for


@dataclass(frozen=True)
class Job:
    """What a worker does: the ceilings, by name."""

    cases: tuple[str, ...]
    settings: Settings
    index: int
    budget: None = None


class _Worker(session.Worker):
    """The parent's end of a worker that measures ceilings."""

    def failure(self, case: str, reason: str) -> Ceiling:
        """Return a ceiling of which only that is known."""
        kind = KINDS[case]
        return Ceiling(case, kind.group, None, kind.unit, status="failed", reason=reason)


def chosen(only: Sequence[str], energy: bool) -> tuple[str, ...]:
    """Return the names of the ceilings to measure, in the order of `KINDS`: of the groups and names asked for, else
    all; those of energy where they are asked for by name or by `energy`.

    Raises UsageError for a word that is neither group nor name.
    """
    groups = dict.fromkeys(kind.group for kind in KINDS.values())
    for word in only:
        if word not in groups and word not in KINDS:
            raise UsageError(
                f"--only {word} is no ceiling and no group.{did_you_mean(word, [*groups, *KINDS])} Groups are "
                f"{', '.join(groups)}; 'cudabench ceilings --help' lists the ceilings."
            )
    wanted = {name for name, kind in KINDS.items() if name in only or kind.group in only}
    if not only:
        wanted = {name for name, kind in KINDS.items() if kind.group != ENERGY}
    if energy:
        wanted |= {name for name, kind in KINDS.items() if kind.group == ENERGY}
    return tuple(name for name in KINDS if name in wanted)


class CeilingsRun:
    """Ceilings on a device; `file` holds those that are known and is written to `path` after each."""

    def __init__(
        self,
        choice: Choice,
        names: Sequence[str],
        settings: Settings,
        request: Mapping[str, Any],
        *,
        path: Path | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.choice, self.names, self.settings, self.path = choice, tuple(names), settings, path
        self.listener = listener or Listener()
        self._uuid: str | None = None
        tool = versions(choice)
        self.file = ResultsFile(
            settings={
                "min_time": settings.min_time,
                "max_time": settings.max_time,
                "min_samples": settings.min_samples,
                "timeout": settings.timeout,
                **request,
                "device": choice.name,
            },
            tool=tool,
            host=probe.host(),
            provenance=origin.gather([chapter.source()], compiler(choice, tool)),
        )

    def write(self) -> None:
        """Write the file, where there is to be one."""
        if self.path:
            self.file.write(self.path)

    def collect(self) -> None:
        """Measure everything. Whatever ends it, `file` holds what was known by then, and no worker is left.

        Raises CudabenchError where the device does not start.
        """
        self.write()
        self.listener.begin(len(self.names))
        try:
            with closing(self._simulated() if self.choice.kind == "sim" else self._measured()) as found:
                for one in found:
                    self.file.ceilings.append(one)
                    origin.finish(self.file.provenance, self._uuid)
                    self.write()
        finally:
            self.listener.end()

    def _started(self, device: DeviceInfo) -> None:
        if not self.file.devices:
            self.file.devices.append(device)
            if device.timed:
                self._uuid = device.uuid
                origin.begin(self.file.provenance, device.uuid)

    def _simulated(self) -> Generator[Ceiling, None, None]:
        from cudabench.ceilings.simulated import SimulatedCeilings
        from cudabench.devices.sim import SimDevice

        device = SimDevice(self.choice.architecture)
        self._started(device.info)
        ceilings = SimulatedCeilings(device)
        for done, name in enumerate(self.names):

            def progress(phase: str, fraction: float, done: int = done, name: str = name) -> None:
                self.listener.working(done, name, phase, fraction)

            ceilings.progress = progress
            yield ceilings.measure(name)

    def _measured(self) -> Generator[Ceiling, None, None]:
        left = list(self.names)
        while left:
            with _Worker(Job(tuple(left), self.settings, self.choice.index), WORKER) as worker:
                for event in worker.events():
                    if isinstance(event, session.Refused):
                        raise event.error
                    if isinstance(event, session.Started):
                        self._started(event.device)
                    elif isinstance(event, session.Working):
                        done = len(self.names) - len(left)
                        self.listener.working(done, event.kernel, event.phase, event.fraction)
                    elif isinstance(event, session.Finished):
                        left.pop(0)
                        yield _told(event.result)
                        if event.context_lost or not left:
                            break


def _told(one: Any) -> Ceiling:
    """Return a ceiling whose reason is one line."""
    found: Ceiling = one
    return replace(found, reason=" ".join(found.reason.split()))
