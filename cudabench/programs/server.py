"""The server for a program's CUDA runtime: answers its messages (see `wire`) until the program ends."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from cudabench.programs import build, device, launches, lines, wire
from cudabench.programs.launches import Geometry, KernelLaunches, Launcher
from cudabench.programs.memory import DEVICE, Memory
from cudabench.programs.modules import LoadedModule
from cudabench.programs.objects import Objects
from cudabench.programs.places import SourceLines
from cudabench.programs.wire import Kind, Reader
from cudabench.records.launch import Source
from cudabench.records.program import Finding
from cudabench.simulator import api as simulator
from cudabench.simulator.memory import SLOT_BITS

RESOURCE_BYTES, TEXTURE_BYTES = 144, 104
# Values of cudaError_t that calls return after a failed launch.
FOLLOW_UP_ERRORS = (700, 710, 716, 719, 801)
MOST_NAME = 40  # a kernel name with more characters is shown without its template arguments
MOST_RECEIVED = 1 << 20  # bytes that one call reads from the socket
MOST_PREPARED = 64  # at most this many launches are kept prepared for equal ones
FindingKey = tuple[str, str, str, int | None]  # kind, message, file and line of a finding


class BudgetOver(Exception):
    """Raised when the time of --budget is over."""


class EndlessLaunch(Exception):
    """Raised for a launch that never ends; its text is the kernel's name."""


class PreparedLaunch(NamedTuple):
    """What the message of a launch says; `raw`: the bytes of its arguments, which `placed` has in the memory."""

    kernel: KernelLaunches
    geometry: Geometry
    raw: bytes
    placed: simulator.Placed


@dataclass
class Unfinished:
    """The results of the launches since the last FINISH: their number, the error of the last one, the time of all, and
    what they printed."""

    launches: int = 0
    status: int = 0
    nanoseconds: float = 0.0
    output: list[str] = field(default_factory=list)


class Server:
    """Keeps a program's modules, memory and launches, and answers its messages.

    `kernels`: the launched kernels, by (module, entry). `findings`: errors of the host code. `missing`: how often the
    program called each function that cudabench's CUDA runtime lacks. `include`: folders of headers.
    """

    def __init__(
        self, launcher: Launcher, cards: Sequence[device.Card], architecture: str, places: SourceLines,
        include: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.launcher, self.cards, self.architecture, self.places = (
            launcher, cards, architecture, places,
        )  # fmt: skip
        self.include = tuple(include)
        self.memory, self.objects = Memory(), Objects()
        self.kernels: dict[tuple[int, str], KernelLaunches] = {}
        self.findings: dict[FindingKey, Finding] = {}
        # By slot of unwritten memory that a kernel has read: the kernel, and the finding about it.
        self._early: dict[int, tuple[str, FindingKey]] = {}
        self.missing: dict[str, int] = {}
        # None: no example launches are stored; False: examples without array contents; True: with array contents
        self.example_contents: bool | None = None
        self.examples: dict[str, lines.Example] = {}
        # sentences: what the program requested but the simulator does not support
        self.unsupported: list[str] = []
        self.connected = self.ended = False
        self.last_kernel: KernelLaunches | None = None  # the kernel of the last launch
        # the kernel and geometry of the last launch if it failed, else None
        self._failed_launch: tuple[KernelLaunches, Geometry] | None = None
        self._modules: dict[int, LoadedModule] = {}
        self._names: dict[str, str] = {}
        self._sources: dict[str, Source] = {}
        self._prepared: dict[bytes, PreparedLaunch] = {}  # by the launch's message
        self._unfinished = Unfinished()
        self._answers: dict[int, Callable[[Reader], bytes]] = {
            Kind.HELLO: self._hello, Kind.LOAD: self._load, Kind.UNLOAD: self._unload, Kind.FIND: self._find,
            Kind.FINISH: self._finish, Kind.MEMORY: self._memory, Kind.TEXTURE: self._texture,
            Kind.TENSOR_MAP: self._tensor_map, Kind.FINDING: self._finding, Kind.END: self._end,
        }  # fmt: skip

    def serve(self, end: socket.socket, process: int) -> None:
        """Answer requests at the socket `end` until the program ends. `process`: the program's pidfd.

        Raises BudgetOver at the end of --budget's time, and EndlessLaunch for a launch that never ends.
        """
        received = _Received(end, process)
        while (message := received.next(self.launcher.until)) is not None:
            kind, payload = message
            if kind == Kind.LAUNCH:
                self._launch(payload)
            else:
                with suppress(BrokenPipeError, ConnectionResetError):
                    end.sendall(self._answers[kind](Reader(payload)))

    # Messages --------------------------------------------------------------------------------------------------------

    def _hello(self, request: Reader) -> bytes:
        self.connected = True
        return wire.answer(0, len(self.cards).to_bytes(4, "little") + b"".join(map(bytes, self.cards)))

    def _load(self, request: Reader) -> bytes:
        module, first_slot, nbytes = request.take("iiQ")
        try:
            loaded = LoadedModule(
                request.raw(nbytes), first_slot, self.architecture, self.memory.allocate_variable,
                lambda ptx: build.assemble(ptx, self.architecture),
            )  # fmt: skip
        except LookupError as error:
            return self._answer_unsupported(launches.NO_IMAGE, error)
        except simulator.PtxError as error:
            return self._answer_unsupported(launches.UNKNOWN_IMAGE, error)
        self._modules[module] = loaded
        if loaded.cubin is not None and self.launcher.disassemble:
            from cudabench.explain import machine_code

            machine_code.start_disassembly(loaded.cubin)
        variables = []
        for region in loaded.program.space().slots:
            if region.base:
                self.memory.place(region)
        self._name([entry for entry in loaded.program.kernels if entry not in self._names])
        for symbol, address, data in loaded.program.variables():
            variables.append(wire.text(symbol) + wire.packed("QQQ", address, self.memory.offset(data), data.size))
        return wire.answer(0, wire.packed("iI", loaded.slots, len(variables)) + b"".join(variables))

    def _unload(self, request: Reader) -> bytes:
        module = request.number("i")
        loaded = self._modules.pop(module, None)
        if loaded is not None:
            for slot in range(loaded.program.slots - loaded.slots, loaded.program.slots):
                self.memory.free(slot)
                self._early.pop(slot, None)
        return wire.answer(0)

    def _find(self, request: Reader) -> bytes:
        loaded, entry = self._modules[request.number("i")], request.text()
        if entry not in loaded.program.kernels:
            return wire.answer(launches.NOT_FOUND)
        record = device.Function()
        if not device.describe(loaded, entry, record):
            return self._answer_unsupported(
                launches.NOT_SUPPORTED, f"kernel {self._names[entry]} has too many parameters"
            )
        return wire.answer(0, bytes(record))

    def _launch(self, message: bytes) -> None:
        """Run a launch, unless a launch since the last FINISH failed: a GPU runs nothing after an error."""
        done = self._unfinished
        if done.status:
            return
        done.launches += 1
        prepared = self._prepared.get(message)
        if prepared is None:
            prepared = self._prepare(message)
        kernel, geometry, raw, placed = prepared
        self.last_kernel = kernel
        if self.example_contents is not None and kernel.entry not in self.examples:
            self.examples[kernel.entry] = lines.example_of(
                kernel, geometry, placed.parameters, placed.space, contents=self.example_contents
            )
        unwritten = self.memory.unwritten(raw)
        try:
            outcome = self.launcher.run(kernel, geometry, placed)
        except simulator.BudgetExceeded:
            until = self.launcher.until
            if until is not None and time.monotonic() >= until:
                raise BudgetOver from None
            raise EndlessLaunch(kernel.name) from None
        if outcome.report is not None:
            self._read_unwritten(kernel, outcome.report, unwritten)
        self._failed_launch = (kernel, geometry) if outcome.status else None
        done.status = outcome.status
        done.nanoseconds += outcome.nanoseconds
        if outcome.output:
            done.output.append(outcome.output)

    def _prepare(self, message: bytes) -> PreparedLaunch:
        """Return what a launch's message says, with its arguments in the current memory; keep it for equal messages."""
        request = Reader(message)
        module, entry = request.number("i"), request.text()
        *sides, shared, cooperative = request.take("11I")
        raw = request.rest()
        grid, block, cluster = (tuple(sides[at : at + 3]) for at in (0, 3, 6))
        kernel, space = self.kernel(module, entry), self.memory.space
        full = raw.ljust(kernel.loaded.program.code(entry).parameter_bytes, b"\0")
        placed = simulator.Placed(
            space, full, dict(self.objects.textures), self.objects.tensor_maps(space), cooperative=bool(cooperative)
        )
        geometry = Geometry(grid, block, shared, cluster if cluster[0] else None)
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        prepared = self._prepared[message] = PreparedLaunch(kernel, geometry, raw, placed)
        return prepared

    def _finish(self, request: Reader) -> bytes:
        done, self._unfinished = self._unfinished, Unfinished()
        payload = wire.packed("dI", done.nanoseconds, done.launches - 1) + wire.text("".join(done.output))
        return wire.answer(done.status, payload)

    def _memory(self, request: Reader) -> bytes:
        for _ in range(request.number()):
            slot, kind, offset, nbytes = request.take("iIQQ")
            place = request.text()
            self._prepared.clear()  # the prepared arguments refer to the memory regions before this change
            if nbytes:
                name = self.places.named(place) or f"allocation {slot}"
                self.memory.allocate(slot, offset, nbytes, name, place if kind == DEVICE else None)
            else:
                self.launcher.close()
                self.memory.free(slot)
                self._early.pop(slot, None)
                self.objects.remove_in_slot(slot)
        return wire.answer(0)

    def _texture(self, request: Reader) -> bytes:
        handle, has_resource = request.take("Qi")
        if not has_resource:
            self.objects.remove(handle)
            return wire.answer(0)
        resource, how = request.raw(RESOURCE_BYTES), None
        has_texture = request.number("i")
        if has_texture:
            how = request.raw(TEXTURE_BYTES)
        else:
            request.raw(TEXTURE_BYTES)
        slot, offset, nbytes, *extents, flags = request.take("iQQ3QI")
        region = self.memory.space.slots[slot]
        try:
            self.objects.add(
                handle,
                resource,
                how,
                (region.padded or region).bytes[offset : offset + nbytes],
                region.base + offset,
                extents,
                flags,
            )
        except simulator.LaunchError as error:
            return self._answer_unsupported(launches.INVALID_VALUE, error)
        self._prepared.clear()
        return wire.answer(0)

    def _tensor_map(self, request: Reader) -> bytes:
        type_, rank, place = request.take("iIQ")
        sizes, strides, box, steps = request.take("5Q"), request.take("5Q"), request.take("5I"), request.take("5I")
        swizzle, fill = request.take("ii")
        try:
            descriptor = self.objects.tensor_map(type_, rank, place, sizes, strides, box, steps, swizzle, fill)
        except simulator.LaunchError as error:
            return self._answer_unsupported(launches.INVALID_VALUE, error)
        self._prepared.clear()
        return wire.answer(0, descriptor)

    def _finding(self, request: Reader) -> bytes:
        kind, message, place, other = (request.text() for _ in range(4))
        if kind == "missing":
            self.missing[message] = 1  # until _end has the number of calls
            return wire.answer(0)
        self.add_finding(kind, message, place, other)
        if kind == "host-pointer" and self._failed_launch is not None:
            kernel, geometry = self._failed_launch
            kernel.mark_host_address(geometry)
        return wire.answer(0)

    def _end(self, request: Reader) -> bytes:
        self.ended = True
        request.number("i")
        for _ in range(request.number()):
            name = request.text()
            self.missing[name] = request.number("Q")
        for _ in range(request.number()):
            call, error, name, place = request.text(), request.number("i"), request.text(), request.text()
            if error not in FOLLOW_UP_ERRORS or not any(kernel.faulty for kernel in self.kernels.values()):
                self.add_finding("unasked-error", f"{call} returned {name}, which the program did not check", place)
        for _ in range(request.number()):
            nbytes = request.number("Q")
            self.add_finding("never-freed", f"{nbytes} bytes are allocated here and never freed", request.text())
        return wire.answer(0)

    # Helpers ---------------------------------------------------------------------------------------------------------

    def kernel(self, module: int, entry: str) -> KernelLaunches:
        """Return the record of a kernel's launches; create it at the first launch."""
        key = module, entry
        if key not in self.kernels:
            loaded = self._modules[module]
            source = self._source(loaded.program.kernels[entry].file)
            function = self._names[entry]
            name = function if len(function) <= MOST_NAME else launches.short_name(function)
            alike = sum(kernel.name.partition(" (")[0] == name for kernel in self.kernels.values())
            name = f"{name} ({alike + 1})" if alike else name
            self.kernels[key] = KernelLaunches(loaded, entry, name, function, self.architecture, source)
        return self.kernels[key]

    def add_finding(self, kind: str, message: str, place: str, other: str = "") -> FindingKey:
        """Record an error of the host code, and return its key; a repeated error at the same code location is only
        counted.

        `place`: the code location. `other`: a second code location to add to the message, or ''.
        """
        message = re.sub(r"\b_Z\w+", lambda match: self._names.get(match[0], match[0]), message)
        at = self.places.of(place)
        file, line, source = (at.file, at.line, at.source) if at else ("", None, "")
        if beside := self.places.of(other):
            message = f"{message.rstrip('.')} ({beside}: {beside.source})"
        key = kind, message, file, line
        count = self.findings[key].count + 1 if key in self.findings else 1
        self.findings[key] = Finding(kind, message, _shown(file), line, source, count)
        return key

    def _read_unwritten(self, kernel: KernelLaunches, report: simulator.Report, unwritten: Mapping[int, str]) -> None:
        """Record an error for each allocation that nothing wrote before a launch, and that the launch itself only reads
        or updates. If a later launch writes it, perhaps in another stream, the message says so."""
        for row in report.accesses:
            early = self._early.pop(row.start >> SLOT_BITS, None) if row.op != "load" else None
            if early is not None and row.space == "global" and early[0] != kernel.name:
                self._write_later(kernel, *early)
        for slot, place in unwritten.items():
            rows = [row for row in report.accesses if row.space == "global" and row.start >> SLOT_BITS == slot]
            reads = [row for row in rows if row.op != "store"]
            if reads and all(any(_updates(read, row) for read in reads) for row in rows if row.op == "store"):
                name, nbytes = self.memory.space.slots[slot].name, self.memory.space.slots[slot].size
                key = self.add_finding(
                    "unwritten-memory",
                    f"Kernel {kernel.name} reads {name} in line {reads[0].line}, and nobody has written its {nbytes} "
                    "bytes, which are allocated here: copy data to them, or set them, before the launch",
                    place,
                )
                self._early[slot] = kernel.name, key

    def _write_later(self, kernel: KernelLaunches, reader: str, key: FindingKey) -> None:
        """Add to the finding about unwritten memory which kernel writes it later."""
        found = self.findings.pop(key, None)
        if found is None:  # the finding is about several allocations, and another one was written before
            return
        message = (
            f"{found.message}. Kernel {kernel.name} writes it after kernel {reader}: if it must come first, let the "
            "stream of the reader wait for it by an event, or launch both in one stream"
        )
        self.findings[found.kind, message, found.file, found.line] = replace(found, message=message)

    def _source(self, file: str) -> Source:
        if file not in self._sources:
            text = ""
            with suppress(OSError):
                text = Path(file).read_text(encoding="utf-8", errors="replace")
            folder = os.path.dirname(file) or None
            self._sources[file] = Source(_shown(file), text, folder, builtin=False, include=self.include)
        return self._sources[file]

    def _name(self, entries: list[str]) -> None:
        """Demangle the names of several kernels with one call of c++filt, and keep them."""
        tool = shutil.which("c++filt")
        texts: list[str] = entries
        if tool and any(entry.startswith("_Z") for entry in entries):
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run([tool], input="\n".join(entries), capture_output=True, text=True, timeout=60)
                texts = done.stdout.splitlines()
        if len(texts) != len(entries):
            texts = entries
        for entry, text in zip(entries, texts, strict=True):
            self._names[entry] = launches.readable_name(entry, text)

    def _answer_unsupported(self, status: int, error: Any) -> bytes:
        sentence = str(error).rstrip(".")
        if sentence not in self.unsupported:
            self.unsupported.append(sentence)
        return wire.answer(status)


class _Received:
    """The messages that a program sends over a socket. `process`: the program's pidfd."""

    def __init__(self, end: socket.socket, process: int) -> None:
        self._end, self._process = end, process
        self._bytes, self._at = b"", 0
        self._poll = select.poll()
        for fd in (end.fileno(), process):
            self._poll.register(fd, select.POLLIN)

    def next(self, until: float | None) -> tuple[int, bytes] | None:
        """Return the kind and the payload of the next message; None if the program has ended.

        Raises BudgetOver if there is no message before the time `until` of time.monotonic().
        """
        header = self._take(wire.HEADER.size, until)
        if header is None:
            return None
        kind, nbytes = wire.HEADER.unpack(header)
        payload = self._take(nbytes, until)
        return None if payload is None else (kind, payload)

    def _take(self, nbytes: int, until: float | None) -> bytes | None:
        missing = nbytes - (len(self._bytes) - self._at)
        if missing > 0:
            pieces = [self._bytes[self._at :]]
            while missing > 0:
                more = self._receive(until)
                if not more:
                    return None
                pieces.append(more)
                missing -= len(more)
            self._bytes, self._at = b"".join(pieces), 0
        self._at += nbytes
        return self._bytes[self._at - nbytes : self._at]

    def _receive(self, until: float | None) -> bytes:
        wait = None if until is None else max(0.0, (until - time.monotonic()) * 1000)
        ready = {fd for fd, _ in self._poll.poll(wait)}
        if self._end.fileno() in ready:
            return self._end.recv(MOST_RECEIVED)
        if not ready:
            raise BudgetOver
        return b""


def _updates(read: simulator.Access, store: simulator.Access) -> bool:
    """Return whether a store probably follows a read of the same elements, as in `y[i] += x[i]`. The signs are that
    both are in one source line and have equally many requests."""
    same_line = (read.file, read.line) == (store.file, store.line)
    return same_line and read.instruction < store.instruction and read.requests == store.requests


def _shown(file: str) -> str:
    """Return a path for messages: relative if it is in the current folder, else unchanged."""
    with suppress(ValueError):
        return str(Path(file).relative_to(os.getcwd())) if file else ""
    return file
