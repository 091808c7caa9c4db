"""A run of ceilings on one device, with the results file kept up to date as each is known.

Nothing here prints: a `Listener` is told what is being done.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cudabench.cards import KINDS, Ceiling
from cudabench.ceilings.benchmark import blank, source
from cudabench.devices import Choice, probe
from cudabench.errors import UsageError, did_you_mean
from cudabench.measure import provenance as origin
from cudabench.measure.run import Kept, Listener, compiler, versions
from cudabench.measure.session import Session
from cudabench.records.file import ResultsFile
from cudabench.records.planned import Settings

WORKER = "cudabench.ceilings.worker"
ENERGY = "energy"  # the group that is measured only where it is asked for


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


class CeilingsRun(Kept):
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
        self.choice, self.names, self.settings = choice, tuple(names), settings
        tool = versions(choice)
        timing = {name: getattr(settings, name) for name in ("min_time", "max_time", "min_samples", "timeout")}
        file = ResultsFile(
            settings={**timing, **request, "device": choice.name},
            tool=tool,
            host=probe.host(),
            provenance=origin.gather([source()], compiler(choice, tool)),
        )
        super().__init__(file, path, listener)

    def collect(self) -> None:
        """Measure everything. Whatever ends it, `file` holds what was known by then, and no worker is left.

        Raises CudabenchError where the device does not start.
        """
        self.write()
        with (
            self.told(len(self.names)),
            closing(self._simulated() if self.choice.kind == "sim" else self._measured()) as found,
        ):
            for one in found:
                self.file.ceilings.append(one)
                self.finish()
                self.write()

    def _working(self, name: str, phase: str, fraction: float) -> None:
        self.listener.working(len(self.file.ceilings), name, phase, fraction)

    def _simulated(self) -> Generator[Ceiling, None, None]:
        from cudabench.ceilings.simulated import SimulatedCeilings
        from cudabench.devices.sim import SimDevice

        device = SimDevice(self.choice.architecture)
        self.started(device.info)
        ceilings = SimulatedCeilings(device)
        for name in self.names:
            ceilings.progress = partial(self._working, name)
            yield ceilings.measure(name)

    def _measured(self) -> Generator[Ceiling, None, None]:
        with Session(self.choice, self.settings, started=self.started, working=self._working, module=WORKER) as session:
            for name in self.names:
                failed = replace(blank(name), status="failed")
                found = session.ask((name, self.settings), lambda _, why, failed=failed: replace(failed, reason=why))  # type: ignore[misc]
                yield replace(found, reason=" ".join(found.reason.split()))
