"""CUDA C++ to PTX and machine code, for the simulator and for a GPU alike.

Each compiler gets the file as it is and, where host code or the host's headers are in the way, once more without them.
NVRTC comes first, and nvcc where NVRTC gives up; on a GPU with a toolkit it is PyCUDA's nvcc alone.
CUDABENCH_COMPILER=nvrtc or =nvcc fixes the compiler.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cudabench.errors import CompilerError, CudabenchError, DeviceUnusable, UsageError
from cudabench.toolchain import cache, diagnostics, includes, nvcc, nvrtc, outside, toolkit
from cudabench.toolchain.host_code import without_host_code
from cudabench.toolchain.record import Backend, Compiled, Compiler, Job, Refused

nvrtc_version = nvrtc.version
nvcc_version = nvcc.version


def compile_ptx(
    source: str,
    filename: str,
    *,
    arch: str = "sm_90",
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str] = (),
    names: Sequence[str] = (),
    backend: Backend | None = None,
) -> Compiled:
    """Compile to PTX with line information.

    `filename` is what diagnostics and line information call the source; where it has a folder, files in that can be
    included. A define with an empty value is a bare `-DNAME`. `names` are C++ expressions of kernels: 'f', 'ns::f',
    'f<float, 32>', and 'f(float*, int)' for one of several overloads; templates are instantiated for them.

    Raises CompilerError with the user's file and line; UsageError for an architecture that the compiler lacks or a name
    that no kernel has; DeviceUnusable where there is no compiler, or none that takes this file.
    """
    job = Job.of(source, filename, arch, defines, include_dirs, names)
    outside.check(job)
    return _compile(job, _chosen(backend))


def compile_cubin(
    source: str,
    filename: str,
    *,
    arch: str = "sm_90",
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str] = (),
    names: Sequence[str] = (),
    backend: Backend | None = None,
    build: nvcc.Build | None = None,
) -> Compiled:
    """Compile to machine code, with PTX and ptxas' report of what each entry needs; arguments and errors as above.

    ptxas refuses what no launch could hold, such as more than 48 KiB of static shared memory: CompilerError.
    `build` is a caller's own way to run nvcc; where it is given and nvcc is there, nvcc is the compiler, and the record
    has neither PTX nor ptxas' report.
    """
    job = Job.of(source, filename, arch, defines, include_dirs, names, machine_code=True)
    outside.check(job)
    if build is None:
        return _compile(job, _chosen(backend))
    if (backend or gpu_backend()) == "nvcc":
        return _attempt([nvcc.Nvcc(build)], job)
    return _compile(job, "nvrtc")


def gpu_backend() -> Backend:
    """Return the compiler for a GPU: nvcc where it is there, else NVRTC, or the one that CUDABENCH_COMPILER fixes."""
    return _chosen(None) or ("nvrtc" if toolkit.nvcc() is None else "nvcc")


def supported_architectures(backend: Backend = "nvrtc") -> tuple[str, ...]:
    """Return the architectures that a compiler takes ('sm_75', ...); DeviceUnusable where it is not installed."""
    if backend == "nvcc":
        return nvcc.architectures()
    return tuple(f"sm_{number}" for number in nvrtc.load().architectures)


def _chosen(backend: Backend | None) -> Backend | None:
    """The compiler that the caller or else CUDABENCH_COMPILER fixes; None for the usual order."""
    wanted = os.environ.get("CUDABENCH_COMPILER", "")
    if wanted not in ("", "nvrtc", "nvcc"):
        raise UsageError(f"CUDABENCH_COMPILER={wanted} names no compiler: set it to nvrtc or nvcc, or not at all.")
    if backend is not None or not wanted:
        return backend
    return "nvrtc" if wanted == "nvrtc" else "nvcc"


@functools.lru_cache(maxsize=64)
def _compile(job: Job, backend: Backend | None) -> Compiled:
    """Compile with NVRTC and, where it is not there or gives up, nvcc; or with the one that is fixed."""
    if backend == "nvcc":
        return _attempt([nvcc.Nvcc()], job)
    try:
        library = nvrtc.load()
    except DeviceUnusable:
        if backend == "nvrtc" or toolkit.nvcc() is None:
            raise
        return _attempt([nvcc.Nvcc()], job)
    _check_architecture(job, library, backend)
    name = cache.key(job, library)
    compiled = cache.load(name)
    if compiled is None:
        compilers: list[Compiler] = [nvrtc.Nvrtc(library)]
        if backend is None and toolkit.nvcc() is not None:
            compilers.append(nvcc.Nvcc())
        compiled = _attempt(compilers, job)
        if compiled.backend == "nvrtc":
            cache.store(name, compiled)
    return compiled


def _check_architecture(job: Job, library: nvrtc.Library, backend: Backend | None) -> None:
    number = int(job.arch.rstrip("af"))
    if not library.architectures or number in library.architectures:
        return
    if backend is None and toolkit.nvcc() is not None and f"sm_{number}" in nvcc.architectures():
        return
    listed = ", ".join(f"sm_{known}" for known in library.architectures)
    version = ".".join(map(str, library.version))
    raise UsageError(f"sm_{job.arch}: NVRTC {version} does not compile for this architecture: choose one of {listed}.")


# ----------------------------------------------------------------------------------------------- the rule for host code


def _attempt(compilers: Sequence[Compiler], job: Job) -> Compiled:
    """Return what the first attempt gives that a compiler takes; the error is that of the last one."""
    for compiler in compilers:
        try:
            return compiler.compile(job, job.source, {}, bare=False)
        except Refused as refused:
            last = refused
        if not _may_be_hosts(last, job):
            break  # the user's own fault, which no further attempt mends
        try:
            return _without_host(compiler, job)
        except Refused as refused:
            last = refused
    return _fail(last, job, compilers[-1].backend)


def _may_be_hosts(refused: Refused, job: Job) -> bool:
    """Whether host code, or a header that is not there, may be what a compiler refuses."""
    if diagnostics.speaks_of_host_code(refused.log) or diagnostics.missing_headers(refused.log):
        return True
    return without_host_code(job.source) != job.source


def _without_host(compiler: Compiler, job: Job) -> Compiled:
    """Compile without the host's part of the file and of the headers beside it.

    In a file with host code a header that is nowhere is empty: where the kernels compile so, only the host needed it.
    """
    source = without_host_code(job.source)
    headers = {name: without_host_code(text) for name, text in includes.read(job).texts.items()}
    emptied: list[str] = []
    while True:
        try:
            return compiler.compile(job, source, headers, bare=True)
        except Refused as refused:
            missing = [name for name in diagnostics.missing_headers(refused.log) if name not in headers]
            if not missing or source == job.source or len(emptied) >= includes.MAX_HEADERS:
                raise Refused(refused.log, emptied) from None
        emptied += missing
        headers.update(dict.fromkeys(missing, ""))


def _places(log: str, job: Job, tried: Backend) -> dict[int, tuple[str, int]]:
    """Return where in the source the lines of the PTX are that ptxas refuses; empty where it refuses none."""
    if not job.machine_code or not diagnostics.assembler_lines(log):
        return {}
    try:
        ptx = _compile(replace(job, machine_code=False), tried).ptx
    except CudabenchError:
        return {}
    return diagnostics.source_lines(ptx, job.filename)


def _fail(refused: Refused, job: Job, tried: Backend) -> Compiled:
    """Raise the error for a file that no compiler took, with what mends it."""
    missing = diagnostics.missing_headers(refused.log)
    of_the_host = diagnostics.speaks_of_host_code(refused.log) or any(map(diagnostics.of_a_toolkit, missing))
    if tried == "nvrtc" and of_the_host:
        cause = diagnostics.first_cause(refused.log, job.filename)
        raise DeviceUnusable(
            f"{cause}: NVRTC takes device code only: install the CUDA toolkit (nvcc) and g++, "
            "or move the kernels to a file without host code."
        )
    message = diagnostics.errors(refused.log, job.filename, _places(refused.log, job, tried))
    if refused.emptied:
        listed = ", ".join(f"<{name}>" for name in refused.emptied)
        message += f"\n{job.filename}: no header {listed} was found and it was taken as empty: name its folder with -I."
    raise CompilerError(message)
