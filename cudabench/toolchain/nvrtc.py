"""NVRTC, NVIDIA's run-time compiler: a library in a wheel, which needs no GPU, driver, toolkit or host compiler.

It takes device code only, in 50 ms. The library loads at the first call.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudabench.errors import DeviceUnusable
from cudabench.toolchain import diagnostics, names, prelude, ptxas, toolkit
from cudabench.toolchain.record import Backend, Compiled, Job, Refused

if TYPE_CHECKING:
    import ctypes

_DEFINES = "cudabench_defines.h"


def version() -> tuple[int, int] | None:
    """Return NVRTC's version, None where the library is not installed."""
    try:
        return load().version
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
        raise DeviceUnusable(
            f"No CUDA compiler can be loaded ({error}): install NVRTC with `pip install nvidia-cuda-nvrtc`."
        ) from None


@dataclass(frozen=True)
class Answer:
    """What a compile gives: PTX, the log, the machine code where it was asked for, the entry of each expression."""

    ptx: str
    log: str
    cubin: bytes | None
    lowered: dict[str, str]


class Library:
    """The library through ctypes: the dozen functions that this module calls."""

    def __init__(self, library: ctypes.CDLL, path: str = "") -> None:
        import ctypes

        self.c = ctypes
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
        """Compile; Refused where the library refuses."""
        c, lib = self.c, self.library
        program = c.c_void_p()
        count = len(headers)
        texts = (c.c_char_p * count)(*(text.encode() for text in headers.values()))
        titles = (c.c_char_p * count)(*(title.encode() for title in headers))
        self._check(
            lib.nvrtcCreateProgram(c.byref(program), source.encode(), os.fsencode(filename), count, texts, titles)
        )
        try:
            for expression in expressions:
                self._check(lib.nvrtcAddNameExpression(program, expression.encode()))
            arguments = (c.c_char_p * len(options))(*(os.fsencode(option) for option in options))
            status = lib.nvrtcCompileProgram(program, len(options), arguments)
            log = self._fetch(program, lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog)
            if status:
                raise Refused(_text(log) or self._message(status))
            ptx = self._fetch(program, lib.nvrtcGetPTXSize, lib.nvrtcGetPTX)
            cubin = self._fetch(program, lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN) if machine_code else None
            lowered = {}
            for expression in expressions:
                entry = c.c_char_p()
                self._check(lib.nvrtcGetLoweredName(program, expression.encode(), c.byref(entry)))
                lowered[expression] = (entry.value or b"").decode()
            return Answer(_text(ptx), _text(log), cubin, lowered)
        finally:
            lib.nvrtcDestroyProgram(c.byref(program))

    # ctypes finds a library's functions by name when they are called: they have no type that a checker knows.
    def _fetch(self, program: ctypes.c_void_p, size_of: Any, bytes_of: Any) -> bytes:
        size = self.c.c_size_t()
        self._check(size_of(program, self.c.byref(size)))
        buffer = self.c.create_string_buffer(size.value)
        self._check(bytes_of(program, buffer))
        return buffer.raw

    def _message(self, status: int) -> str:
        self.library.nvrtcGetErrorString.restype = self.c.c_char_p
        return f"nvrtc: {self.library.nvrtcGetErrorString(status).decode()}"

    def _check(self, status: int) -> None:
        if status:
            raise Refused(self._message(status))

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


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True)
class Nvrtc:
    """NVRTC as one of the compilers (`record.Compiler`)."""

    library: Library
    backend: Backend = "nvrtc"

    def compile(self, job: Job, source: str, headers: Mapping[str, str], *, bare: bool) -> Compiled:
        """Compile; the second time with CUDA's own headers, where the first missed one."""
        expressions = {name: names.as_cpp(name) for name in job.names}
        options = [*job.options, f"--pre-include={prelude.PRELUDE}"]
        options += ["--diag-suppress=47"]  # CUDA's headers define the prelude's macros once more
        options += ["--device-int128"] if os.name == "posix" else []
        options += ["-default-device"] if bare else []
        options += ["--ptxas-options=-v"] if job.machine_code else []
        # What comes from the cache of a driver's NVRTC comes without ptxas' report.
        options += ["--no-cache"] if job.machine_code and self.library.version >= (13, 0) else []
        options += [f"--include-path={folder}" for folder in job.include_dirs]
        options += [f"--pre-include={_DEFINES}"]

        def attempt(forward: bool) -> Answer:
            texts = {**dict(prelude.headers(forward=forward)), **headers, _DEFINES: job.macros}
            return self.library.compile(
                source, job.filename, options, texts, list(expressions.values()), machine_code=job.machine_code
            )

        folder: Path | None = None
        try:
            try:
                answer = attempt(forward=False)
            except Refused as refused:
                if diagnostics.missing_headers(refused.log) or '"std"' in refused.log:
                    folder = self.library.headers
                if folder is None:
                    raise
                # CUDA's own headers take a second where they are the standard library's.
                options += [f"--include-path={folder}", f"--include-path={folder / 'cccl'}"]
                answer = attempt(forward=True)
        except Refused as refused:
            wrong = _wrong_name(refused.log, job)
            if wrong is None:
                raise
            raise names.no_such_name(wrong, job.source, job.filename) from None
        return Compiled(
            ptx=diagnostics.users_files(answer.ptx, job.filename, folder),
            log=diagnostics.warnings(answer.log, job.filename),
            lowered={name: answer.lowered[expression] for name, expression in expressions.items()},
            backend="nvrtc",
            version=self.library.version,
            cubin=answer.cubin,
            resources=ptxas.resources(answer.log, answer.ptx),
        )


def _wrong_name(log: str, job: Job) -> str | None:
    """The name that is the only fault: NVRTC reports it at no line of the file."""
    heads = [(line, head) for line in log.splitlines() if (head := diagnostics.HEAD.match(line))]
    errors = [line for line, head in heads if "error" in head["kind"]]
    if errors and all(line.startswith("__nv_name_map(") for line in errors):
        return next((name for name in job.names if f"#pragma nv_mangled_name {names.as_cpp(name)}\n" in log), None)
    return None
