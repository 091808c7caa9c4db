"""Runs a program: starts its process, serves the requests of its CUDA runtime, and writes the results file."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cudabench.cards.load import Card
from cudabench.devices import probe
from cudabench.devices.sim import SimDevice
from cudabench.errors import CudabenchError, DeviceUnusable
from cudabench.explain.card_rates import roofline_rates
from cudabench.measure import provenance as origin
from cudabench.measure.run import Listener, source_listing
from cudabench.measure.session import SilentProgress
from cudabench.programs import device, lines, process, results
from cudabench.programs.launches import Choice, Launcher
from cudabench.programs.places import SourceLines
from cudabench.programs.server import BudgetOver, EndlessLaunch, Server
from cudabench.records.file import ResultsFile
from cudabench.records.plan import Settings
from cudabench.records.program import Launches, Program
from cudabench.system import native

MEMORY_BYTES = 64 << 30  # the memory size that is assumed for a card whose memory size is unknown
VARIABLE = "CUDABENCH_PROGRAM"


@dataclass(frozen=True)
class ProgramRequest:
    """A program to run. `shown`: program and arguments as the user wrote them; `command`: the same, with the full
    path."""

    shown: tuple[str, ...]
    command: tuple[str, ...]
    choice: Choice
    settings: Settings
    cards: tuple[Card, ...]
    include: tuple[str, ...] = ()
    lines: bool = False  # whether to keep one example launch of each kernel
    arrays: Path | None = None  # the folder in which the array contents of these examples are saved
    words: tuple[str, ...] = ()  # the compiler options with which the program was compiled
    to_stderr: bool = False  # whether the program's output goes to stderr, because stdout is needed for the results


class ProgramRun(process.RecordedProgram):
    """The run of a program in the simulator, with its results."""

    def __init__(
        self, request: ProgramRequest, *, path: Path | None = None, listener: Listener = SilentProgress,
        record: bool = False,
    ) -> None:  # fmt: skip
        settings = {**asdict(request.settings), "device": f"sim:{request.cards[0].architecture}"}
        settings |= {"on": roofline_rates(request.cards[0])}
        file = ResultsFile(settings, {"numpy": np.__version__}, probe.host())
        super().__init__(file, path, listener, request.shown, request.settings.budget)
        self.request, self.record = request, record
        self.architecture = request.cards[0].architecture
        self.server: Server | None = None

    @property
    def unsupported(self) -> list[str]:
        """Sentences on features that the program requested and the simulator lacks."""
        return self.server.unsupported if self.server else []

    @property
    def lines(self) -> list[str]:
        """For each kernel, the `cudabench run` command that repeats a launch, or a comment with the reason why there is
        no command."""
        texts: list[str] = []
        for kernel in self.server.kernels.values() if self.server else ():
            example = self.server.examples.get(kernel.entry) if self.server else None
            if example is not None:
                try:
                    texts.append(lines.command_of(kernel, example, self.request.words, self.request.arrays))
                except CudabenchError as error:
                    texts.append(f"# {kernel.name}: {error}")
        return texts

    @property
    def progress_text(self) -> str:
        """The number of launches so far and the kernel of the last one, such as '12 launches, saxpy'."""
        server = self.server
        last = "" if server is None or server.last_kernel is None else f", {server.last_kernel.name}"
        count = 0 if server is None else sum(kernel.launches for kernel in [*server.kernels.values()])
        return f"{count:,} launch{'es' * (count != 1)}{last}"

    @property
    def never_connected(self) -> bool:
        """Whether the program has never called the CUDA runtime."""
        return self.server is None or not self.server.connected

    def collect(self) -> None:
        """Run the program to its end; even if the program fails, its launches' results are in the file afterwards."""
        if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
            raise DeviceUnusable("exec needs Linux, whose processes share memory by descriptors: use Linux or WSL.")
        self.write()
        card, settings = self.request.cards[0], self.request.settings
        self.started(SimDevice(self.architecture).info)
        until = None if settings.budget is None else time.monotonic() + settings.budget
        launcher = Launcher(self.request.choice, card, settings.schedule, until)
        info = card.device
        properties = device.card(info, info.name, 0, info.memory_bytes or MEMORY_BYTES, device.PROGRAM_ATTRIBUTES)
        places = SourceLines()
        server = self.server = Server(launcher, [properties], self.architecture, places, self.request.include)
        server.example_contents = self.request.arrays is not None if self.request.lines else None
        try:
            self.exit_code = self._serve(server)
        finally:
            self._write_results(server)
            places.close()
            server.memory.close()

    def _serve(self, server: Server) -> int | None:
        """Start the program and answer its requests; return its exit code, or None if it had to be ended early."""
        try:
            library = native.runtimes()
        except native.NotBuilt as lack:
            raise DeviceUnusable(f"The CUDA runtime of programs is missing: {lack}.") from None
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        fds = (theirs.fileno(), server.memory.fd)
        connection = ",".join(map(str, (*fds, _stream_order(self.request.settings.schedule))))
        folders = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        environment = {
            **os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders), VARIABLE: connection,
        }  # fmt: skip
        child = process.start(self.request.command, environment, to_stderr=self.request.to_stderr, fds=fds)
        theirs.close()
        pidfd = os.pidfd_open(child.pid)
        try:
            server.serve(ours, pidfd)
            return process.exit_code(child)
        except BudgetOver:
            self.stopped = self.end_of_budget()
            return None
        except EndlessLaunch as endless:
            self.stopped = f"A launch of kernel {endless}, which never ends,"
            return None
        finally:
            ours.close()
            os.close(pidfd)
            process.end(child)

    def _write_results(self, server: Server) -> None:
        """Make the results of the launched kernels and write them to the results file."""
        disassemble = server.launcher.disassemble
        cards = tuple(card for card in self.request.cards if card.architecture == self.architecture)
        kernels = list(server.kernels.values())
        for kernel in kernels:
            result = results.result_of(
                kernel, self.request.settings, cards, record=self.record, disassemble=disassemble
            )
            self.file.results.append(result)
        self.file.program = Program(
            command=self.request.shown,
            launches=sum(kernel.launches for kernel in kernels),
            checked=sum(kernel.checked for kernel in kernels),
            exit_code=self.exit_code,
            kernels=tuple(Launches(kernel.name, kernel.launches, kernel.checked) for kernel in kernels),
            findings=tuple(server.findings.values()),
            missing=server.missing,
        )
        sources = {kernel.source.name: kernel.source for kernel in kernels}
        if self.record:
            self.file.listings = {name: source_listing([source.text]) for name, source in sources.items()}
        self.file.provenance = origin.provenance_record(sources.values(), {"name": "nvcc"})
        self.finish()
        self.write()


def _stream_order(schedule: str | None) -> int:
    """Return --schedule as a number for the program's CUDA runtime.

    The number N sets the order in which work of several streams runs: 0 means as submitted, 1 reversed, and any other N
    a random order with the seed N - 2.
    """
    return 0 if schedule is None else 1 if schedule == "reverse" else 2 + int(schedule.partition(":")[2])
