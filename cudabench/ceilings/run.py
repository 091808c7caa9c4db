"""A run of ceilings on one device; the results file is updated after each ceiling.

This module does not print; it reports to a `Listener`.
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
from cudabench.measure.run import Listener, RecordedRun, compiler, versions
from cudabench.measure.session import Session, SilentProgress
from cudabench.records.file import ResultsFile
from cudabench.records.plan import Settings

WORKER = "cudabench.ceilings.gpu"
ENERGY = "energy"  # this group is measured only if the user asks for it


def chosen_names(only: Sequence[str], energy: bool) -> tuple[str, ...]:
    """Return the names of the ceilings to measure, in the order of `KINDS`.

    `only`: names and groups of ceilings; if it is empty, all ceilings except the group energy are measured. `energy`:
    whether to add the group energy. Raises UsageError for an unknown word.
    """
    groups = dict.fromkeys(kind.group for kind in KINDS.values())
    for word in only:
        if word not in groups and word not in KINDS:
            raise UsageError(
                f"--only {word} is neither a ceiling nor a group.{did_you_mean(word, [*groups, *KINDS])} Groups are "
                f"{', '.join(groups)}; 'cudabench ceilings --help' lists the ceilings."
            )
    chosen = {name for name, kind in KINDS.items() if name in only or kind.group in only}
    if not only:
        chosen = {name for name, kind in KINDS.items() if kind.group != ENERGY}
    if energy:
        chosen |= {name for name, kind in KINDS.items() if kind.group == ENERGY}
    return tuple(name for name in KINDS if name in chosen)


class CeilingsRun(RecordedRun):
    """Measures ceilings on a device. `file` has the finished ceilings; it is written to `path` after each ceiling."""

    def __init__(
        self,
        choice: Choice,
        names: Sequence[str],
        settings: Settings,
        request: Mapping[str, Any],
        *,
        path: Path | None = None,
        listener: Listener = SilentProgress,
    ) -> None:
        self.choice, self.names, self.settings = choice, tuple(names), settings
        tool = versions(choice)
        timing = {name: getattr(settings, name) for name in ("min_time", "max_time", "min_samples", "timeout")}
        file = ResultsFile(
            settings={**timing, **request, "device": choice.name},
            tool=tool,
            host=probe.host(),
            provenance=origin.provenance_record([source()], compiler(choice, tool)),
        )
        super().__init__(file, path, listener)

    def collect(self) -> None:
        """Measure all chosen ceilings. Even after an interruption, `file` has the finished ceilings, and no worker
        process is left.

        Raises CudabenchError if the device does not start.
        """
        self.write()
        with (
            self.listener(len(self.names)) as self.shown,
            closing(self._simulated() if self.choice.kind == "sim" else self._measured()) as measured,
        ):
            for ceiling in measured:
                self.file.ceilings.append(ceiling)
                self.finish()
                self.write()

    def _simulated(self) -> Generator[Ceiling, None, None]:
        from cudabench.ceilings.simulated import SimulatedCeilings
        from cudabench.devices.sim import SimDevice

        device = SimDevice(self.choice.architecture)
        self.started(device.info)
        ceilings = SimulatedCeilings(device)
        for name in self.names:
            ceilings.progress = partial(self.shown.show_progress, name)
            yield ceilings.measure(name)
            self.shown.finished("")

    def _measured(self) -> Generator[Ceiling, None, None]:
        with Session(self.choice, self.settings, started=self.started, shown=self.shown, module=WORKER) as session:
            for name in self.names:
                failed = replace(blank(name), status="failed")
                ceiling = session.run_in_worker(
                    (name, self.settings),
                    lambda _, why, failed=failed: replace(failed, reason=why),  # type: ignore[misc]
                )
                yield replace(ceiling, reason=" ".join(ceiling.reason.split()))
