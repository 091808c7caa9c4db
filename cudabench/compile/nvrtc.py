"""NVRTC, NVIDIA's run-time compiler: a library in a wheel, which needs no GPU, driver, toolkit or host compiler.

It takes device code only, in 50 ms. The library loads at the first call, for its version and its headers; compiles are
in a process of their own (`nvrtc_process`), because a text may ask the compiler for any time and memory, or crash it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudabench.compile import diagnostics, limits, names, nvrtc_process, outside, prelude, ptxas, stand_ins, toolkit
from cudabench.compile.record import Backend, Compiled, Job, Refused
from cudabench.errors import DeviceUnusable, NotEnoughMemory
from cudabench.system import confined, interrupts

if TYPE_CHECKING:
    import ctypes

_DEFINES = "cudabench_defines.h"


def version() -> tuple[int, int] | None:
    """Return NVRTC's version, None where the library is not installed; NotEnoughMemory where it does not fit."""
    try:
        return load().version
    except NotEnoughMemory:
        raise
    except DeviceUnusable:
        return None


@functools.lru_cache(maxsize=1)
def load() -> Library:
    """Load the library; DeviceUnusable where it is not installed."""
    import ctypes

    path = toolkit.nvrtc()
    try:
        return Library(ctypes.CDLL(path), path)
    except OSError as error:
        raise toolkit.unloadable(str(error)) from None


@dataclass(frozen=True)
class Answer:
    """What a compile gives: PTX, the log, the machine code where it was asked for, the entry of each expression."""

    ptx: str
    log: str
    cubin: bytes | None
    lowered: dict[str, str]


class Library:
    """The library: what it says of itself through ctypes, and the process that compiles with it."""

    def __init__(self, library: ctypes.CDLL, path: str = "") -> None:
        import ctypes

        self.library = library
        self.path = path
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        self.bundles_headers = hasattr(library, "nvrtcInstallBundledHeaders")  # since 13.5
        self.architectures: tuple[int, ...] = ()
        if hasattr(library, "nvrtcGetSupportedArchs"):  # since 11.2
            count = ctypes.c_int()
            library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
            numbers = (ctypes.c_int * count.value)()
            library.nvrtcGetSupportedArchs(numbers)
            self.architectures = tuple(numbers)

    def compile(
        self,
        source: str,
        filename: str,
        options: Sequence[str],
        headers: Mapping[str, str],
        expressions: Sequence[str],
        *,
        machine_code: bool,
    ) -> Answer:
        """Compile; Refused where the library refuses or crashes, CompilerError where it reaches a limit."""
        request = {
            "library": self.path or self.library._name,
            "folder": _folder(),
            "source": source.encode("utf-8", "replace"),
            "filename": os.fsencode(filename),
            "headers": {title.encode(): text.encode("utf-8", "replace") for title, text in headers.items()},
            "options": [os.fsencode(option) for option in options],
            "expressions": [expression.encode("utf-8", "replace") for expression in expressions],
            "machine_code": machine_code,
        }
        answer = _process().answer(request, filename)
        if "unloadable" in answer:
            raise toolkit.unloadable(answer["unloadable"])
        log = answer["log"].decode(errors="replace")
        if "fault" in answer:
            if "OUT_OF_MEMORY" in answer["fault"] or re.search(r"(?m)error: out of memory$", log):
                raise limits.too_much(filename, "NVRTC")
            raise Refused(log or f"nvrtc: {answer['fault']}")
        lowered = {key.decode(): entry.decode() for key, entry in answer["lowered"].items()}
        return Answer(answer["ptx"].decode(errors="replace"), log, answer["cubin"], lowered)

    @functools.cached_property
    def headers(self) -> Path | None:
        """A folder with CUDA's own headers: those bundled in NVRTC, else of a wheel or toolkit; None without any."""
        if self.bundles_headers:
            cache = toolkit.cache_folder()
            folder = self._unpacked(cache / "nvrtc-headers-{}.{}".format(*self.version)) if cache else None
            if folder is None:
                folder = self._unpacked(Path(tempfile.mkdtemp(prefix="cudabench-")) / "headers")
            if folder is not None:
                return folder
        return toolkit.headers()

    def _unpacked(self, target: Path) -> Path | None:
        """Unpack the bundled headers once for all processes; None where the folder cannot be written."""
        if (target / "cuda_fp16.h").is_file():
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            building = tempfile.mkdtemp(prefix=target.name + ".", dir=target.parent)
        except OSError:
            return None
        if self.library.nvrtcInstallBundledHeaders(os.fsencode(building), 0, None):
            shutil.rmtree(building, ignore_errors=True)
            return None
        try:
            # A folder appears whole or not at all; another process may have been faster.
            os.replace(building, target)
        except OSError:
            shutil.rmtree(building, ignore_errors=True)
        return target if (target / "cuda_fp16.h").is_file() else None


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return os.sep


# The process ---------------------------------------------------------------------------------------------------------


class _Process:
    """NVRTC's process, started for the first compile and kept for the next ones."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)

    def answer(self, request: Mapping[str, Any], filename: str) -> dict[str, Any]:
        """Return the process' answer. Refused where it crashed, CompilerError where its time or memory was not enough.

        After either it is another process that answers.
        """
        seconds = limits.compile_seconds()
        if self._process is None or self._process.poll() is not None:
            with interrupts.kept():
                self._process = self._started(limits.longest_seconds())
        process = self._process
        assert process.stdin
        assert process.stdout
        late = threading.Event()

        def stop() -> None:
            late.set()
            confined.end_group(process)

        watch = threading.Timer(seconds, stop)
        watch.daemon = True
        watch.start()
        try:
            nvrtc_process.put(process.stdin, request)
            answer: dict[str, Any] = nvrtc_process.get(process.stdout)
            return answer
        except (EOFError, OSError):
            status = process.wait()
            if late.is_set() or (os.name == "posix" and status == -signal.SIGALRM):
                raise limits.too_long(filename, "NVRTC", seconds) from None
            raise Refused(f"nvrtc: {limits.crashed('NVRTC', status)}") from None
        finally:
            watch.cancel()
            if late.is_set() or sys.exc_info()[0] is not None:
                self.end()

    def _started(self, seconds: float) -> subprocess.Popen[bytes]:
        self.end()
        script = [sys.executable, "-I", "-S", nvrtc_process.__file__]
        return subprocess.Popen(
            [*script, str(int(seconds) + 10), str(limits.COMPILE_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=os.name == "posix",  # Ctrl-C is for this process, which ends that one
        )

    def end(self) -> None:
        """End the process, if there is one; a forked process' copy of this is not its to end."""
        process, self._process = self._process, None
        if process is None or self.owner != os.getpid():
            return
        confined.end_group(process)
        for stream in (process.stdin, process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()


@functools.lru_cache(maxsize=1)
def _process() -> _Process:
    return _Process()


@dataclass(frozen=True)
class Nvrtc:
    """NVRTC as one of the compilers (`record.Compiler`)."""

    library: Library
    backend: Backend = "nvrtc"
    # Jobs that an attempt has shown to need CUDA's own headers, and of these the standard library.
    missed: set[Job] = field(default_factory=set)
    missed_standard: set[Job] = field(default_factory=set)

    def compile(
        self, job: Job, source: str, headers: Mapping[str, str], *, bare: bool, standard: bool = True
    ) -> Compiled:
        """Compile; again with CUDA's own headers where one is missed, and then with its standard library if allowed."""
        forward = standard and bare and job in self.missed_standard
        folder = self.library.headers if forward or job in self.missed else None
        forward = forward and folder is not None
        while True:
            try:
                answer = self._launching(job, source, headers, folder, bare=bare, forward=forward)
                break
            except Refused as refused:
                if not self._has_more(refused, job, folder, standard=standard, forward=forward):
                    wrong = names.wrong_name(refused.log, job.names)
                    if wrong is None:
                        raise
                    raise names.no_such_name(wrong, job.source, job.filename) from None
                # With a header that is missing, the standard library is not yet tried: it takes a second.
                forward = folder is not None or not diagnostics.missing_headers(refused.log)
                folder = self.library.headers
        return Compiled(
            ptx=diagnostics.users_files(answer.ptx, job.filename, folder),
            log=diagnostics.warnings(outside.without_foreign_text(answer.log, job), job.filename),
            lowered={name: answer.lowered[names.as_cpp(name)] for name in job.names},
            backend="nvrtc",
            version=self.library.version,
            cubin=answer.cubin,
            resources=ptxas.resources(answer.log, answer.ptx),
        )

    def _has_more(self, refused: Refused, job: Job, folder: Path | None, *, standard: bool, forward: bool) -> bool:
        """Tell whether a refusal misses what another try has; the job is tried with that at once the next time."""
        if folder is None and diagnostics.missing_headers(refused.log):
            self.missed.add(job)
        elif forward or not diagnostics.misses_standard(refused.log):
            return False
        else:
            self.missed_standard.add(job)
            if not standard:
                return False
        return self.library.headers is not None

    def _launching(
        self, job: Job, source: str, headers: Mapping[str, str], folder: Path | None, *, bare: bool, forward: bool
    ) -> Answer:
        """Compile, with what launches kernels from kernels; machine code has it only where it is missed: it is rare."""

        def attempt(launch: str) -> Answer:
            return self._once(job, source, headers, folder, launch, bare=bare, forward=forward)

        if not job.machine_code:
            return attempt(prelude.DEVICE_LAUNCH)
        try:
            return attempt("")
        except Refused as refused:
            if not diagnostics.speaks_of_device_runtime(refused.log):
                raise
        return attempt(prelude.DEVICE_LAUNCH_IN_CODE)

    def _once(
        self, job: Job, source: str, headers: Mapping[str, str], folder: Path | None, launch: str, *,
        bare: bool, forward: bool,
    ) -> Answer:  # fmt: skip
        options = [*job.options, *job.language, f"--pre-include={prelude.PRELUDE}"]
        options += ["--diag-suppress=47"]  # CUDA's headers define the prelude's macros once more
        options += ["--device-int128"] if os.name == "posix" else []
        # As under nvcc: above it what CUDA's standard library makes of its macros takes four times as long.
        options += ["-D_CCCL_META_UNROLL_LIMIT=10"]
        options += ["-default-device"] if bare else []
        options += ["--ptxas-options=-v"] if job.machine_code else []
        # What comes from the cache of a driver's NVRTC comes without ptxas' report.
        options += ["--no-cache"] if job.machine_code and self.library.version >= (13, 0) else []
        libraries = toolkit.of_device_libraries(source, *headers.values())
        options += [f"--include-path={one}" for one in (*job.include_dirs, *libraries)]
        options += [f"--pre-include={_DEFINES}"]
        options += [f"--include-path={folder}", f"--include-path={folder / 'cccl'}"] if folder else []
        texts = {**dict(prelude.headers(forward=forward)), **headers}
        types = stand_ins.read("standard_types.h") if bare else ""
        texts[_DEFINES] = launch + (prelude.DOT_PRODUCTS if job.debug else "") + types + job.macros
        if libraries and "curand.h" not in headers:
            del texts["curand.h"]  # the real one is there
        if folder:
            texts.setdefault("cub/cub.cuh", prelude.collectives(source, folder))
        expressions = list(map(names.as_cpp, job.names))
        try:
            return self.library.compile(
                source, job.filename, options, texts, expressions, machine_code=job.machine_code
            )
        except Refused as refused:
            raise Refused(outside.without_foreign_text(refused.log, job)) from None
