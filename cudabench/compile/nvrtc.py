"""NVRTC, NVIDIA's run-time compiler: a library in a wheel that works without GPU, driver, toolkit and host compiler.

NVRTC accepts only device code, and takes about 50 ms. The library is loaded at the first call. Some texts need very
much time or memory, or crash the compiler, so each compile runs in a new forked process. The process must be new,
because NVRTC's result depends on earlier compiles: when NVRTC 13.5 had compiled two texts without optimisation, it put
the arrays of the next, optimised text into local memory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cudabench.compile import diagnostics, limits, names, outside, prelude, ptxas, stand_ins, toolkit
from cudabench.compile.record import Backend, Compiled, Job, Refused, Text
from cudabench.errors import DeviceUnusable, NotEnoughMemory
from cudabench.system import limited_process
from cudabench.system.folders import cache_folder

if TYPE_CHECKING:
    import ctypes

_DEFINES = "cudabench_defines.h"


def version() -> tuple[int, int] | None:
    """Return NVRTC's version as (major, minor), or None if it is not installed.

    Raises NotEnoughMemory if the process has too little memory to load it.
    """
    try:
        return load().version
    except NotEnoughMemory:
        raise
    except DeviceUnusable:
        return None


@functools.lru_cache(maxsize=1)
def load() -> Library:
    """Load NVRTC, once. Raises DeviceUnusable if it is not installed."""
    path = toolkit.nvrtc()
    try:
        return Library(open_library(path), path)
    except OSError as error:
        raise toolkit.unloadable(str(error)) from None


def open_library(path: str) -> ctypes.CDLL:
    """Open NVRTC's library at this path, and before it libnvrtc-builtins, which it needs.

    NVRTC 13.0 of the wheels opens libnvrtc-builtins by its file name without a folder. So that library must be loaded
    already, or be in a system folder.
    """
    import ctypes

    for beside in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(beside))
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


@dataclass(frozen=True)
class NvrtcResult:
    """The result of a compile; `cubin`: machine code, or None; `lowered`: the mangled name of each C++ expression."""

    ptx: str
    log: str
    cubin: bytes | None
    lowered: dict[str, str]


class Library:
    """The loaded NVRTC library: its version, its features, and calls to compile."""

    def __init__(self, library: ctypes.CDLL, path: str = "") -> None:
        import ctypes

        self.library = library
        self.path = path
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        self.bundles_headers = hasattr(library, "nvrtcInstallBundledHeaders")  # NVRTC has this function since CUDA 13.5
        self.architectures: tuple[int, ...] = ()
        if hasattr(library, "nvrtcGetSupportedArchs"):  # NVRTC has this function since CUDA 11.2
            count = ctypes.c_int()
            library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
            numbers = (ctypes.c_int * count.value)()
            library.nvrtcGetSupportedArchs(numbers)
            self.architectures = tuple(numbers)

    def compile(self, work: Callable[[], NvrtcResult], filename: str) -> NvrtcResult:
        """Run `work` in a process with limits. Raises Refused if the library crashes, CompilerStopped if it hits a
        limit."""
        seconds = limits.compile_seconds()
        try:
            return limited_process.call(work, seconds=seconds, memory=limits.COMPILE_BYTES)
        except limited_process.TimeLimitReached:
            raise limits.too_long(filename, "NVRTC", seconds) from None
        except (limited_process.MemoryLimitReached, MemoryError) as ended:
            (status,) = ended.args or (errno.ENOMEM,)
            if status == errno.ENOMEM:
                raise limits.too_much(filename, "NVRTC") from None
            raise Refused(f"nvrtc: {limits.crashed('NVRTC', status)}") from None

    def compile_text(
        self,
        source: str,
        filename: str,
        options: Sequence[str],
        headers: Mapping[str, str],
        expressions: Sequence[str],
        machine_code: bool,
    ) -> NvrtcResult:
        """Compile with NVRTC's C functions; to be called by `compile`. Raises Refused, and MemoryError if NVRTC reports
        it."""
        import ctypes

        library, program, log = self.library, ctypes.c_void_p(), ""

        def array(texts: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
            return (ctypes.c_char_p * len(texts))(*texts)

        def check(status: int) -> None:
            if status:
                fault = (library.nvrtcGetErrorString(status) or b"an unknown error").decode()
                if "OUT_OF_MEMORY" in fault or re.search(r"(?m)error: out of memory$", log):
                    raise MemoryError
                raise Refused(log or f"nvrtc: {fault}")

        def fetched(what: str) -> bytes:
            size = ctypes.c_size_t()
            check(library[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
            buffer = ctypes.create_string_buffer(size.value)
            check(library[f"nvrtcGet{what}"](program, buffer))
            return buffer.raw

        def text(what: str) -> str:
            return fetched(what).partition(b"\0")[0].decode(errors="replace")

        encoded = {expression: expression.encode("utf-8", "replace") for expression in expressions}
        titles = array([title.encode() for title in headers])
        texts = array([text.encode("utf-8", "replace") for text in headers.values()])
        written, name = source.encode("utf-8", "replace"), os.fsencode(filename)
        try:
            check(library.nvrtcCreateProgram(ctypes.byref(program), written, name, len(headers), texts, titles))
            for expression in encoded.values():
                check(library.nvrtcAddNameExpression(program, expression))
            status = library.nvrtcCompileProgram(program, len(options), array(list(map(os.fsencode, options))))
            log = text("ProgramLog")
            check(status)
            lowered = {}
            for wanted, expression in encoded.items():
                entry = ctypes.c_char_p()
                check(library.nvrtcGetLoweredName(program, expression, ctypes.byref(entry)))
                lowered[wanted] = (entry.value or b"").decode()
            return NvrtcResult(text("PTX"), log, fetched("CUBIN") if machine_code else None, lowered)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    @functools.cached_property
    def headers(self) -> Path | None:
        """The folder of CUDA's own headers: those bundled with NVRTC, else those of a wheel or a toolkit; None if there
        are no headers."""
        if not self.bundles_headers:
            return toolkit.headers()
        cache = cache_folder()
        kept = self._unpacked(cache / "nvrtc-headers-{}.{}".format(*self.version)) if cache else None
        return kept or self._unpacked(Path(tempfile.mkdtemp(prefix="cudabench-")) / "headers") or toolkit.headers()

    def _unpacked(self, target: Path) -> Path | None:
        """Unpack NVRTC's bundled headers into the folder `target`, if it lacks them. Return `target`, or None if the
        folder cannot be written."""
        if (target / "cuda_fp16.h").is_file():
            return target
        # The headers are unpacked into a temporary folder, which is then renamed, so that other processes never see a
        # half-filled folder.
        with contextlib.suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.parent
            with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=beside, ignore_cleanup_errors=True) as made:
                if not self.library.nvrtcInstallBundledHeaders(os.fsencode(made), 0, None):
                    os.replace(made, target)
        return target if (target / "cuda_fp16.h").is_file() else None


@dataclass(frozen=True)
class Nvrtc:
    """NVRTC, with the same interface as `nvcc.Nvcc`."""

    library: Library
    backend: Backend = "nvrtc"
    # Jobs for which a compile has shown that they need CUDA's own headers (`missed`), or also CUDA's C++ standard
    # library (`missed_standard`).
    missed: set[Job] = field(default_factory=set)
    missed_standard: set[Job] = field(default_factory=set)

    def compile(self, job: Job, text: Text, *, standard: bool = True) -> Compiled:
        """Compile a text with the job's options. If headers are missing, try again with CUDA's own headers, then with
        CUDA's C++ standard library.

        `standard`: whether that library, which is slow to compile, may be used. Raises Refused, and UsageError for an
        unknown kernel.
        """
        forward = standard and text.bare and job in self.missed_standard
        folder = self.library.headers if forward or job in self.missed else None
        forward = forward and folder is not None
        while True:
            try:
                answer = self._with_device_launch(job, text, folder, forward=forward)
                break
            except Refused as refused:
                if not self._can_add_headers(refused, job, folder, standard=standard, forward=forward):
                    wrong = names.wrong_name(refused.log, job.names)
                    if wrong is None:
                        raise
                    raise names.no_such_name(wrong, job.source, job.filename) from None
                # The first retry after a missing header leaves out the C++ standard library, because it takes a second
                # to compile.
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

    def _can_add_headers(
        self, refused: Refused, job: Job, folder: Path | None, *, standard: bool, forward: bool
    ) -> bool:
        """Return whether another attempt can add the missing headers. Record the job, so that its
        next compile has the headers from the start."""
        if folder is None and diagnostics.missing_headers(refused.log):
            self.missed.add(job)
            return self.library.headers is not None
        if forward or not diagnostics.lacks_standard_library(refused.log):
            return False
        self.missed_standard.add(job)
        return standard and self.library.headers is not None

    def _with_device_launch(self, job: Job, text: Text, folder: Path | None, *, forward: bool) -> NvrtcResult:
        """Compile with declarations for kernels that launch kernels; for machine code, the declarations are added only
        if the first attempt fails without them."""
        if not job.machine_code:
            return self._compile_once(job, text, folder, prelude.DEVICE_LAUNCH, forward=forward)
        try:
            return self._compile_once(job, text, folder, "", forward=forward)
        except Refused as refused:
            if not diagnostics.needs_device_runtime(refused.log):
                raise
        return self._compile_once(job, text, folder, prelude.DEVICE_LAUNCH_IN_CODE, forward=forward)

    def _compile_once(self, job: Job, text: Text, folder: Path | None, launch: str, *, forward: bool) -> NvrtcResult:
        libraries = toolkit.device_library_headers(text.source, *text.headers.values())
        folders = [*job.include_dirs, *libraries]
        options = [
            *job.options,
            *job.language,
            f"--pre-include={prelude.PRELUDE}",
            "--diag-suppress=47",  # suppresses the warning that CUDA's headers define macros of the prelude again
            *(["--device-int128"] if os.name == "posix" else []),
            # nvcc uses the same value. With a higher value, CUDA's C++ standard library takes four times as long to
            # compile.
            "-D_CCCL_META_UNROLL_LIMIT=10",
            *(["-default-device"] if text.bare else []),
            *(["--ptxas-options=-v"] if job.machine_code else []),
            # The driver keeps a cache of NVRTC's results. A result from this cache lacks the report of ptxas, so the
            # cache is off.
            *(["--no-cache"] if job.machine_code and self.library.version >= (13, 0) else []),
            *(f"--include-path={include_dir}" for include_dir in folders),
            f"--pre-include={_DEFINES}",
            *([f"--include-path={folder}", f"--include-path={folder / 'cccl'}"] if folder else []),
        ]
        texts = {**dict(prelude.headers(forward=forward)), **text.headers}
        types = stand_ins.read("standard_types.h") if text.bare else ""
        texts[_DEFINES] = launch + (prelude.DOT_PRODUCTS if job.debug else "") + types + job.macros
        if libraries and "curand.h" not in text.headers:
            del texts["curand.h"]  # the toolkit's own curand.h exists, so no stand-in is needed
        if folder:
            texts.setdefault("cub/cub.cuh", prelude.collectives(text.source, folder))
        arguments = (text.source, job.filename, options, texts, list(map(names.as_cpp, job.names)), job.machine_code)
        try:
            return self.library.compile(functools.partial(self.library.compile_text, *arguments), job.filename)
        except Refused as refused:
            raise Refused(outside.without_foreign_text(refused.log, job)) from None
