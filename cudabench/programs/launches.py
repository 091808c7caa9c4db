"""A program's launches: which of them are checked, how they run in the simulator, and which results are kept.

Launches of one kernel with the same geometry (grid, block, dynamic shared memory, cluster) form a group. The 1st, 2nd,
4th, 8th and so on launch of a group is checked, and its instructions and accesses are counted; the other launches run
unchecked. Options can change this rule.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from cudabench.cards.load import Card
from cudabench.devices.sim import Launched
from cudabench.explain import merged
from cudabench.measure.counting import Kernel, machine_code_to_run, source_texts
from cudabench.programs.modules import LoadedModule
from cudabench.records.launch import Dim, Launch, Source
from cudabench.records.plan import Case, Problem
from cudabench.simulator import api as simulator
from cudabench.simulator.machine_code.launch import MachineCodeRequest
from cudabench.symbols import plain_name

INVALID_VALUE, ILLEGAL_ADDRESS, ASSERT, MISALIGNED, LAUNCH_FAILED, NOT_SUPPORTED = 1, 700, 710, 716, 719, 801
NO_IMAGE, UNKNOWN_IMAGE, NOT_FOUND = 209, 200, 500  # these, and the numbers in the line above, are values of CUresult
FAULTS = {"out-of-bounds": ILLEGAL_ADDRESS, "use-after-free": ILLEGAL_ADDRESS, "misaligned": MISALIGNED}
# A limit of vector steps that is never reached, so that only --budget or Ctrl-C ends an endless kernel.
NO_STEP_LIMIT = 1 << 60
LAUNCH_NS = 2000.0
SCHEDULERS = 4  # warp schedulers in one multiprocessor; each one issues one instruction per clock
MOST_REPORTS = 64  # when a geometry has this many reports, they are merged into one


class Geometry(NamedTuple):
    """The sizes of a launch; `shared_bytes`: the dynamic shared memory; `cluster`: blocks per cluster, or None."""

    grid: Dim
    block: Dim
    shared_bytes: int
    cluster: Dim | None


@dataclass(frozen=True)
class Choice:
    """The rule that selects the launches to check and count.

    `glob`: only kernels whose name matches this pattern. `numbers`: ranges (first, last) of launch numbers of a kernel,
    from 1. `every`: all launches. `first`: this many launches of each kernel and geometry. Without any of these fields,
    the rule in the module's docstring applies.
    """

    glob: str = ""
    numbers: tuple[tuple[int, int], ...] = ()
    first: int | None = None
    every: bool = False

    def selects(self, name: str, number: int, geometry_number: int) -> bool:
        """Return whether a launch is checked.

        `number`: the number of this launch among the kernel's launches; `geometry_number`: the number of this launch
        among the kernel's launches with the same geometry.
        """
        if not matches(self.glob, name):
            return False
        if self.numbers:
            return any(low <= number <= high for low, high in self.numbers)
        if self.every:
            return True
        return geometry_number <= self.first if self.first is not None else geometry_number & (geometry_number - 1) == 0


@dataclass
class LaunchGroup:
    """The launches of a kernel with one geometry. `times`: their number; `checked`: how many were checked; `reports`:
    the reports of the checked launches; `resident`: (name of a card, how many of the blocks it holds at once), None if
    this is not known or does not matter."""

    geometry: Geometry
    resident: tuple[str, int] | None = None
    times: int = 0
    checked: int = 0
    reports: list[simulator.Report] = field(default_factory=list)
    _report_counts: list[int] = field(default_factory=list)  # for each report: the number of launches that share it

    def add_report(self, report: simulator.Report) -> bool:
        """Keep the report of a checked launch; if there are MOST_REPORTS already, merge these into one first.

        Return whether the report is new. It is not new if the simulator returned the same report object for an earlier
        launch with the same counts.
        """
        self.checked += 1
        for index, kept in enumerate(self.reports):
            if kept is report:
                self._report_counts[index] += 1
                return False
        if len(self.reports) == MOST_REPORTS:
            self.reports, self._report_counts = [self.merged()], [1]
        self.reports.append(report)
        self._report_counts.append(1)
        return True

    def merged(self) -> simulator.Report:
        """Return one report that sums up all checked launches."""
        return simulator.merge(
            _repeated(report, count) for report, count in zip(self.reports, self._report_counts, strict=True)
        )


class KernelLaunches:
    """A kernel of a module, with its launches so far.

    `name`: the kernel's name in results; `function`: the kernel's name in C++. `failures`: for each reason why launches
    did not complete, whether the reason is a feature that the simulator lacks.
    """

    def __init__(
        self, loaded: LoadedModule, entry: str, name: str, function: str, architecture: str, source: Source
    ) -> None:
        self.loaded, self.entry, self.name, self.function = loaded, entry, name, function
        self.device = loaded.device(architecture, {function: entry})
        self.groups: dict[Geometry, LaunchGroup] = {}
        self.launches = 0
        self.failures: dict[str, bool] = {}
        self.source = source
        self._request_counts: Mapping[int, tuple[int, int]] | None = None
        self._machine_code_request: MachineCodeRequest | None = None
        self._source_texts: dict[str, Any] | None = None

    @property
    def checked(self) -> int:
        """How many launches of the kernel were checked."""
        return sum(group.checked for group in self.groups.values())

    @property
    def faulty(self) -> bool:
        """Whether a launch of the kernel failed or had an error such as an access out of bounds."""
        return bool(self.failures) or any(report.hazards for group in self.groups.values() for report in group.reports)

    @property
    def case(self) -> Case:
        """The kernel's launches as one case; the launch with the most work comes first."""

        def work(group: LaunchGroup) -> tuple[int, int]:
            ran = max((report.instructions for report in group.reports), default=0)
            return ran, math.prod(group.geometry.grid) * math.prod(group.geometry.block)

        groups = sorted(self.groups.values(), key=work, reverse=True)
        launches = tuple(launch_of(self.function, group.geometry) for group in groups)
        return Case(
            operation="exec", kernel=self.name, id=None, function=self.function, source=self.source,
            problem=Problem({}, ""), block=launches[0].block, grid=launches[0].grid, launches=launches, defines={},
            expects="",
        )  # fmt: skip

    @property
    def launched(self) -> tuple[Launched, ...]:
        """The checked launches: one record for each geometry, in the order of the first launches."""
        return tuple(
            Launched(launch_of(self.function, group.geometry), group.checked, group.merged())
            for group in self.groups.values()
            if group.reports
        )

    def group(self, geometry: Geometry, card: Card) -> LaunchGroup:
        """Return the group of the launches with a geometry; create it at the first launch. `card`: the card of --on."""
        if geometry not in self.groups:
            loaded, launch = self.device.load(None), launch_of(self.function, geometry)
            held = self.device.blocks_held(loaded.compiled, loaded.program, launch, card)
            self.groups[geometry] = LaunchGroup(geometry, held)
        return self.groups[geometry]

    def mark_host_address(self, geometry: Geometry) -> None:
        """Change the messages about the last launch's errors: say that the address is in the host's memory."""
        group = self.groups[geometry]
        if group.reports:
            last = group.reports[-1]
            last.hazards = tuple(
                hazard._replace(
                    message=re.sub(r"(bytes) at .*", r"\1 at an address of the host's memory.", hazard.message)
                )
                for hazard in last.hazards
            )

    def check_options(self, disassemble: bool) -> dict[str, Any]:
        """Return the keyword arguments of `simulator.run` for a checked launch."""
        if self._source_texts is None:
            self._source_texts = source_texts(self.case)
        if self._request_counts is None:
            loaded = self.device.load(None)
            kernel = Kernel(self.case, loaded, self.function, self.entry)
            self._request_counts = {}
            if disassemble and kernel.code:
                lines = loaded.program.lines(self.entry)
                self._request_counts = merged.merge(kernel.code, loaded.compiled.lines, lines).request_counts()
                self._machine_code_request = machine_code_to_run(kernel)
        return {
            **self._source_texts,
            "merged": self._request_counts,
            "footprint": True,
            "machine": self._machine_code_request,
        }


def launch_of(name: str, geometry: Geometry) -> Launch:
    """Return the record of a launch, without the arguments, which only the program knows."""
    return Launch(name, geometry.grid, geometry.block, (), geometry.shared_bytes, cluster=geometry.cluster)


class Outcome(NamedTuple):
    """The values that a launch returns to the program.

    `status`: a CUresult; `nanoseconds`: the time of the launch on the card; `output`: what the kernel printed;
    `report`: the simulator's report if the launch was checked, else None.
    """

    status: int
    nanoseconds: float = 0.0
    output: str = ""
    report: simulator.Report | None = None


@dataclass
class Launcher:
    """Runs launches; `card`: the card of --on; `until`: deadline in time.monotonic()."""

    choice: Choice
    card: Card
    schedule: str | None = None
    until: float | None = None
    disassemble: bool = True
    _open_reports: list[simulator.Report] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The warp instructions that the card executes per nanosecond, at most."""
        return SCHEDULERS * (self.card.device.sm_count or 1) * self.card.sm_hz / 1e9

    def close(self) -> None:
        """Compute the reports' accesses now, because the memory that the reports describe is about to be freed."""
        for report in self._open_reports:
            _ = report.accesses
        self._open_reports.clear()

    def run(self, kernel: KernelLaunches, geometry: Geometry, placed: simulator.Placed) -> Outcome:
        """Run a launch to its end, and keep its report if it is checked."""
        group = kernel.group(geometry, self.card)
        kernel.launches += 1
        group.times += 1
        checked = self.choice.selects(kernel.function, kernel.launches, group.times)
        options: dict[str, Any] = kernel.check_options(self.disassemble) if checked else {}
        seconds = None if self.until is None else max(self.until - time.monotonic(), 0.001)
        try:
            report = simulator.run(
                kernel.loaded.program, kernel.entry, geometry.grid, geometry.block, placed,
                shared_bytes=geometry.shared_bytes, cluster=geometry.cluster, budget=NO_STEP_LIMIT,
                schedule=self.schedule, seconds=seconds, checked=checked, resident=group.resident, **options,
            )  # fmt: skip
        except simulator.BudgetExceeded as stopped:
            if stopped.hazards:
                group.add_report(_hazard_report(stopped.hazards))
            self._failed(kernel, stopped, lacks=False)
            raise
        except simulator.KernelAssert as error:
            return self._failed(kernel, error, ASSERT)
        except simulator.KernelTrap as error:
            return self._failed(kernel, error, LAUNCH_FAILED)
        except simulator.UnsupportedKernel as error:
            return self._failed(kernel, error, NOT_SUPPORTED, lacks=True)
        except simulator.LaunchError as error:
            return self._failed(kernel, error, INVALID_VALUE)
        faulty = next((FAULTS[fault.kind] for fault in report.hazards if fault.kind in FAULTS and not fault.padding), 0)
        if (checked or report.hazards) and group.add_report(report):
            self._open_reports.append(report)
        kept = report if checked else None
        return Outcome(faulty, LAUNCH_NS + report.instructions / self.rate, report.output, kept)

    def _failed(self, kernel: KernelLaunches, error: Exception, status: int = 0, *, lacks: bool = False) -> Outcome:
        sentence = str(error).replace(kernel.entry, kernel.name)
        if sentence not in kernel.failures:
            kernel.failures[sentence] = lacks
        return Outcome(status)


def _repeated(report: simulator.Report, count: int) -> simulator.Report:
    """Return the merged report of `count` launches that share one report; reports are doubled, so that few merges are
    needed."""
    if count == 1:
        return report
    half = _repeated(report, count // 2)
    return simulator.merge([half, half, *[report] * (count % 2)])


def _hazard_report(hazards: tuple[simulator.Hazard, ...]) -> simulator.Report:
    """Return the report of a launch that was stopped: only these hazards, nothing is counted."""
    return simulator.Report(0, (), hazards, "", None, (), {}, (), (), None, None, "numpy")


def matches(glob: str, name: str) -> bool:
    """Return whether a kernel's name, with or without template arguments, matches a pattern; '' matches all names."""
    return not glob or any(fnmatchcase(candidate, glob) for candidate in (name, short_name(name)))


def short_name(name: str) -> str:
    """Return the last part of a name without template arguments: 'f' for 'ns::f<a::b<int>>'."""
    plain = name
    while (shorter := re.sub(r"<[^<>]*>", "", plain)) != plain:
        plain = shorter
    return plain.rpartition("::")[2]


def readable_name(entry: str, demangled: str) -> str:
    """Return the name of a kernel without its parameters: 'ns::f<int, 4>' for 'void ns::f<int, 4>(int*)'."""
    text, depth, end = demangled, 0, len(demangled)
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if text[at] == "(" and depth == 0:
            end = at
            break
    text, depth, start = text[:end], 0, 0
    for at, letter in enumerate(text):
        depth += {"<": 1, ">": -1, "(": 1, ")": -1}.get(letter, 0)
        if letter == " " and depth == 0:
            start = at + 1
    return text[start:] or plain_name(entry)
