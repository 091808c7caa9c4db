"""nvcc, the toolkit's compiler. Unlike NVRTC, nvcc accepts host code, needs a host compiler, and takes about a second.

On a machine with a GPU, PyCUDA runs nvcc; otherwise this module runs it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cudabench.compile import cubin as cubins
from cudabench.compile import diagnostics, limits, names, outside, prelude, ptxas, toolkit
from cudabench.compile.record import Backend, Compiled, Job, Refused, Text
from cudabench.errors import DeviceUnusable, UsageError
from cudabench.system import limited_process

# `build(text, folders, options, architecture)` compiles a text to machine code for an architecture such as sm_90a. The
# compiler searches the folders for headers. It raises Refused if the compiler rejects the text.
Build = Callable[[str, Sequence[str], Sequence[str], str], bytes]


@functools.lru_cache(maxsize=1)
def version() -> tuple[int, int] | None:
    """Return nvcc's version as (major, minor); None if nvcc or its host compiler is missing."""
    nvcc = toolkit.nvcc()
    if nvcc is None:
        return None
    try:
        report = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"release (\d+)\.(\d+)", report)
    return (int(match[1]), int(match[2])) if match else None


def architectures() -> tuple[str, ...]:
    """Return the architectures that nvcc supports ('sm_75', ...). Raises DeviceUnusable if it is not installed."""
    report = subprocess.run([path(), "--list-gpu-arch"], capture_output=True, text=True, check=False).stdout
    return tuple(f"sm_{number}" for number in re.findall(r"compute_(\d+)", report))


def path() -> str:
    """Return nvcc's path. Raises DeviceUnusable if it is not installed."""
    nvcc = toolkit.nvcc()
    if nvcc is None:
        raise DeviceUnusable("nvcc or its host compiler is not on PATH: install the CUDA toolkit and g++.")
    return nvcc


# If the device runtime is not linked, cudaMalloc and cudaFree in a kernel only return an error. nvcc gives no warning,
# so the text is searched for such calls.
_HEAP = re.compile(r"\bcuda(?:Malloc|Free)\s*\(")
_Made = TypeVar("_Made")


def _with_heap(job: Job, source: str, compiled: Callable[[str], _Made]) -> _Made:
    """Call `compiled` with the text for nvcc: the defines, the source, and a query for each name (see `names.queries`).

    If the source contains cudaMalloc or cudaFree, versions of these functions that work in kernels are put before the
    source. If they conflict with the source's own functions of these names, the source is compiled without them.
    """
    quoted = job.filename.replace("\\", "\\\\").replace('"', '\\"')
    text = f'#line 1 "{quoted}"\n{source}\n{names.queries(job.names)}'
    if _HEAP.search(source):
        try:
            return compiled(job.macros + prelude.DEVICE_HEAP_OF_NVCC + text)
        except Refused as refused:
            if not re.search(r"cudabench_(?:given|freed)|cuda(?:Malloc|Free)", refused.log):
                raise
    return compiled(job.macros + text)


@dataclass(frozen=True)
class Nvcc:
    """nvcc, with the interface of `nvrtc.Nvrtc`; `build`: the function to call in place of running nvcc here."""

    build: Build | None = None
    backend: Backend = "nvcc"

    def compile(self, job: Job, text: Text, *, standard: bool = True) -> Compiled:
        """Compile a text. `standard` has no effect for nvcc. If `text.bare`, kernels may call constexpr host
        functions."""
        options = [*job.language, *(["--expt-relaxed-constexpr"] if text.bare else [])]
        with _folder_of(text.headers) as folder:
            libraries = map(str, toolkit.device_library_headers(text.source, *text.headers.values()))
            folders = [*([folder] if folder else []), *job.include_dirs, *libraries]
            try:
                if self.build is None:
                    return _ptx(job, text.source, folders, options)
                absolute, arch, build = list(map(os.path.abspath, folders)), f"sm_{job.arch}", self.build
                cubin = _with_heap(job, text.source, lambda written: build(written, absolute, options, arch))
                return Compiled("", "", _lowered(job, cubins.entries(cubin)), "nvcc", version() or (0, 0), cubin)
            except Refused as refused:
                _raise_usage_errors(refused.log, job)
                log = _with_users_headers(refused.log, folder, text.headers, job)
                raise Refused(outside.without_foreign_text(log, job)) from None


def _with_users_headers(log: str, folder: str | None, headers: Mapping[str, str], job: Job) -> str:
    """Return a log in which headers in the temporary folder are replaced by the paths that the user knows."""
    for name in headers if folder else ():
        own = next(
            (path for include_dir in job.include_dirs if os.path.isfile(path := os.path.join(include_dir, name))), name
        )
        for above in (str(folder), os.path.realpath(str(folder))):
            log = log.replace(f"{above}/{name}", own)
    return log


def _ptx(job: Job, source: str, folders: Sequence[str], options: Sequence[str]) -> Compiled:
    """Compile to PTX; if the job needs machine code, compile this PTX further, which saves a second preprocessor
    run."""
    nvcc = path()
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        cu, ptx_file, cubin_file = (Path(folder, f"source.{ending}") for ending in ("cu", "ptx", "cubin"))
        command = [
            nvcc,
            str(cu),
            "-ptx",
            "-o",
            str(ptx_file),
            *job.options,
            *options,
            *(f"-I{include_dir}" for include_dir in folders),
        ]

        def run(written: str) -> str:
            cu.write_text(written, encoding="utf-8")
            return _run(command, job, str(cu))

        log = _with_heap(job, source, run)
        ptx = ptx_file.read_text(encoding="utf-8", errors="replace")
        lowered = _lowered(job, names.ENTRY.findall(ptx))
        ptx = names.without_queries(diagnostics.users_files(ptx, job.filename))
        cubin, resources = None, {}
        if job.machine_code:
            ptx_file.write_text(ptx, encoding="utf-8")
            command = [nvcc, str(ptx_file), "-cubin", "-o", str(cubin_file), *job.options, "-Xptxas=-v"]
            resources = ptxas.resources(_run(command, job, str(cu)), ptx)
            cubin = cubin_file.read_bytes()
    log = diagnostics.warnings(outside.without_foreign_text(log, job), job.filename)
    return Compiled(ptx, log, lowered, "nvcc", version() or (0, 0), cubin, resources)


def _lowered(job: Job, entries: Sequence[str]) -> dict[str, str]:
    lowered = names.match(job.names, entries)
    if unmatched := [name for name in job.names if name not in lowered]:
        raise names.no_such_name(unmatched[0], job.source, job.filename)
    return lowered


# headers are written this many folders deep, so that '../x.h' is still inside the temporary folder
_ABOVE = ("above",) * 4


@contextlib.contextmanager
def _folder_of(headers: Mapping[str, str]) -> Iterator[str | None]:
    """Write headers into a temporary folder and yield its path for nvcc's -I; yield None if there are no headers."""
    if not headers:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        root = Path(folder).resolve()
        inner = root.joinpath(*_ABOVE)
        inner.mkdir(parents=True)
        for name, content in headers.items():
            target = (inner / name).resolve()
            # an absolute name such as '/x.h', or too many '../', would leave the temporary folder
            if root in target.parents:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content, encoding="utf-8")
        yield str(inner)


def run(command: Sequence[str], filename: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run an nvcc command within the limits of time and memory; `filename`: the source, for messages.

    Raises CompilerStopped if nvcc took too long, and DeviceUnusable if nvcc cannot be run.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    seconds, memory = limits.compile_seconds(), limits.COMPILE_BYTES
    try:
        return limited_process.run(command, seconds=seconds, memory=memory, environment=environment, folder=folder)
    except limited_process.TimeLimitReached:
        raise limits.too_long(filename, "nvcc", seconds) from None
    except OSError as error:
        raise DeviceUnusable(f"{command[0]} cannot be run: {error.strerror}.") from None


def refusal(log: str, status: int, filename: str) -> Exception:
    """Return the exception for a failed run of nvcc: CompilerStopped if memory ran out, else Refused."""
    if re.search(r"(?i)out of memory|cannot allocate memory|virtual memory exhausted|std::bad_alloc", log):
        return limits.too_much(filename, "nvcc")
    if re.search(r"died due to signal \d+|Segmentation fault|core dumped|signal terminated program", log):
        return Refused(f"nvcc fatal : {limits.crashed('nvcc', status)}")
    return Refused(log)


def _run(command: Sequence[str], job: Job, source_path: str) -> str:
    """Run nvcc and return its output, with the source's name in place of the temporary file's. Raises Refused."""
    done = run(command, job.filename)
    log = (done.stderr + done.stdout).replace(source_path, job.filename)
    if done.returncode:
        raise refusal(log, done.returncode, job.filename)
    return log


def _raise_usage_errors(log: str, job: Job) -> None:
    """Raise UsageError if nvcc's errors are only about a requested kernel name, or about the architecture."""
    wrong = names.wrong_name(log, job.names)
    if wrong is not None:
        raise names.no_such_name(wrong, job.source, job.filename)
    if re.search(r"Unsupported gpu architecture|not defined for option 'gpu-architecture'", log):
        listed = ", ".join(architectures())
        raise UsageError(f"sm_{job.arch}: nvcc does not compile for this architecture: choose one of {listed}.")
