"""Compiles CUDA C++ to PTX and machine code, for the simulator and for GPUs.

Each compiler gets the whole file first. A compiler that refuses the file then gets only a part of the file: the
requested kernels and the declarations that they use. NVRTC is tried first, then nvcc. On a machine with a GPU and a
CUDA toolkit, only nvcc is used, called through PyCUDA. CUDABENCH_COMPILER=nvrtc or =nvcc sets the compiler.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from cudabench.compile import (
    architecture,
    cache,
    diagnostics,
    includes,
    limits,
    names,
    nvcc,
    nvrtc,
    outside,
    prelude,
    requested_only,
    stand_ins,
    toolkit,
)
from cudabench.compile.record import Backend, Compiled, Job, Refused, Text
from cudabench.errors import CompilerError, CudabenchError, DeviceUnusable, UsageError
from cudabench.source.records import Task
from cudabench.source.words import DIRECTIVE, without_comments
from cudabench.symbols import readable

nvrtc_version = nvrtc.version
nvcc_version = nvcc.version
Compiler = nvcc.Nvcc | nvrtc.Nvrtc


def compile_ptx(source: str, filename: str, *, backend: Backend | None = None, **how: Any) -> Compiled:
    """Compile to PTX with line information; `how`: further arguments of `Job.of`.

    Raises CompilerError, which names the user's file and line; UsageError for an unknown kernel, or an architecture or
    language that the compiler does not support; and DeviceUnusable if no compiler is installed, or none accepts the
    file.
    """
    return _compile(_job(source, filename, **how), _chosen(backend))


def compile_cubin(
    source: str, filename: str, *, backend: Backend | None = None, build: nvcc.Build | None = None, **how: Any
) -> Compiled:
    """Compile to machine code, with PTX and ptxas' report on each kernel; arguments and errors as for `compile_ptx`.

    Raises CompilerError also for kernels that cannot be launched, such as with over 48 KiB of static shared memory:
    ptxas refuses them. `build`: the caller's function that runs nvcc, such as PyCUDA's. If `build` is given and nvcc is
    installed, `build` compiles, and the result has no PTX and no report of ptxas.
    """
    job = _job(source, filename, machine_code=True, **how)
    if build is None:
        return _compile(job, _chosen(backend))
    return _attempt([nvcc.Nvcc(build)], job) if (backend or gpu_backend()) == "nvcc" else _compile(job, "nvrtc")


def _job(source: str, filename: str, **how: Any) -> Job:
    """Return the job for the architecture that the source and its headers need (see `compile.architecture`)."""
    job = Job.of(source, filename, **how)
    outside.check(job)
    return architecture.with_needed_features(job, [job.source, *includes.read(job).texts.values()])


def gpu_backend() -> Backend:
    """Return the compiler for runs on a GPU: the value of CUDABENCH_COMPILER, else nvcc if installed, else NVRTC."""
    return _chosen(None) or ("nvrtc" if toolkit.nvcc() is None else "nvcc")


def supported_architectures(backend: Backend = "nvrtc") -> tuple[str, ...]:
    """Return the architectures that a compiler supports ('sm_75', ...). Raises DeviceUnusable if it is not
    installed."""
    return nvcc.architectures() if backend == "nvcc" else tuple(f"sm_{number}" for number in nvrtc.load().architectures)


def _chosen(backend: Backend | None) -> Backend | None:
    """Return the compiler that the caller or CUDABENCH_COMPILER sets; None means: try NVRTC, then nvcc."""
    wanted = os.environ.get("CUDABENCH_COMPILER", "")
    if wanted not in ("", "nvrtc", "nvcc"):
        raise UsageError(f"CUDABENCH_COMPILER={wanted} is not a compiler: set it to nvrtc or nvcc, or unset it.")
    if backend is not None or not wanted:
        return backend
    return "nvrtc" if wanted == "nvrtc" else "nvcc"


@functools.lru_cache(maxsize=64)
def _compile(job: Job, backend: Backend | None) -> Compiled:
    """Compile with `backend`; None means: with NVRTC or, if NVRTC is missing or refuses the file, with nvcc."""
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
    cached = cache.read("compiled", name)
    compiled = cache.unpacked(Compiled, cached) if cached is not None else None
    if compiled is None:
        compilers: list[Compiler] = [nvrtc.Nvrtc(library)]
        if backend is None and toolkit.nvcc() is not None:
            compilers.append(nvcc.Nvcc())
        compiled = _attempt(compilers, job)
        if compiled.backend == "nvrtc":
            cache.write("compiled", name, cache.packed(compiled))
    return compiled


def _check_architecture(job: Job, library: nvrtc.Library, backend: Backend | None) -> None:
    arch, known = f"sm_{job.arch.rstrip('af')}", [f"sm_{number}" for number in library.architectures]
    if not known or arch in known:
        return
    if backend is None and toolkit.nvcc() is not None and arch in nvcc.architectures():
        return
    version = ".".join(map(str, library.version))
    raise UsageError(
        f"sm_{job.arch}: NVRTC {version} does not compile for this architecture: choose one of {', '.join(known)}."
    )


# The order of the attempts -------------------------------------------------------------------------------------------

# in C++17, some versions of NVRTC crash on these keywords of C++20
_NEW_LANGUAGE = re.compile(r"\b(?:concept|requires)\b")
_UNRESOLVED = re.compile(
    r"(?:Unresolved extern|Cannot take address of) function '([\w$]+)'"
    r"|function \"[^\"(]*?(operator[^\"(]+|\w+)(?:<[^\"]*)?(?:\([^\"]*)?\" was referenced but not defined"
)
_EXTERN = re.compile(r"^\s*\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)", re.M)
# `__device__` or `__host__` after a lambda's brackets. Compilers accept it only with an option, and a lambda inside a
# kernel does not need it.
_LAMBDA = re.compile(r"(?<!\])\]((?:[ \t]*\b__(?:device|host)__\b)+)")


def _attempt(compilers: Sequence[Compiler], job: Job) -> Compiled:
    """Return the result of the first compiler that accepts the file, or its part that the requested kernels use.

    If all compilers refuse because sm_90 lacks a feature that sm_90a has, all are tried again for sm_90a. No attempt
    begins after the time limit of a single compile is over.
    """
    ends = time.monotonic() + limits.compile_seconds()
    failed: list[tuple[Refused, Backend]] = []
    for compiler in compilers:
        try:
            return _compiled(compiler, job, ends)
        except Refused as refused:
            failed.append((refused, compiler.backend))
        latest = failed[-1][0]
        # In all other cases the user's code has an error, and the next compiler would report the same error.
        mendable = latest.of_host or latest.emptied or diagnostics.missing_headers(latest.log)
        if time.monotonic() > ends or not mendable:
            break
    last, tried = min(reversed(failed), key=lambda failure: bool(diagnostics.missing_headers(failure[0].log)))
    if architecture.lacks_feature(last.log, job):
        return _attempt(compilers, architecture.with_all_features(job))
    try:
        return _fail(last, tried, job)
    except CompilerError as error:
        # Code that calls the device runtime can be compiled to PTX, but not to machine code without the runtime's
        # library. So a refusal for this reason does not mean that PTX would be refused too.
        in_ptx = any(refusal.by_assembler for refusal, _ in failed) or diagnostics.needs_device_runtime(last.log)
        if type(error) is CompilerError and not in_ptx and "error" in last.log:
            raise RefusedAsCode(str(error)) from None
        raise


class RefusedAsCode(CompilerError):
    """The front end of every compiler refused the code, so compiling it only to PTX would be refused too."""


def _compiled(compiler: Compiler, job: Job, ends: float) -> Compiled:
    """Compile the whole file; if the compiler refuses it, compile the part that the requested kernels use."""
    shorter = requested_only.without_other_kernels(job)
    try:
        compiled = _with_additions(compiler, shorter, Text(shorter.source), ends)
        return replace(compiled, log=requested_only.warnings_as_written(compiled.log, job, shorter))
    except Refused as refused:
        first = refused
    except UsageError:
        return _with_additions(compiler, job, Text(job.source), ends)
    text = None if time.monotonic() > ends or _is_own(first, job) else _part(compiler, job, first)
    if text is None:
        raise first
    try:
        return _with_additions(compiler, job, text, ends)
    except Refused as second:
        raise _more_useful(first, second) from None


def _more_useful(first: Refused, second: Refused) -> Refused:
    """Return the refusal to show to the user: `first` if the part lacks names that the whole file has, else `second`.

    `first`: the refusal of the whole file; `second`: the refusal of the part with the requested kernels.
    """
    explained = diagnostics.is_about_host_code(first.log) or bool(diagnostics.missing_headers(first.log))
    before, after = (
        {(fault.line, fault.message) for fault in diagnostics.faults(log)} for log in (first.log, second.log)
    )
    misses = any(re.search(r"is undefined|has no member", message) for _, message in after)
    refusal = first if misses and not explained and not before & after else second
    refusal.emptied, refusal.of_host = second.emptied, first.of_host or second.of_host
    refusal.by_assembler = first.by_assembler or second.by_assembler
    return refusal


def _is_own(refused: Refused, job: Job) -> bool:
    """Return whether ptxas refused because a requested kernel has too much static shared memory."""
    over = {names.plain(readable(entry)) for entry, _ in diagnostics.too_much_shared(refused.log)}
    # For a template, the instance that is too large may not be the requested instance. So templates are ignored here.
    return any(names.plain(name) in over for name in job.names if "<" not in name)


def _with_additions(compiler: Compiler, job: Job, text: Text, ends: float) -> Compiled:
    """Compile a text. If the compiler refuses the text, try again with additions that may help.

    The additions are: features that CUDA removed, the C++ standard library for device code (slow to compile), and
    C++20. Raises Refused if no addition helps, with the messages of the last attempt before C++20.
    """
    standard = False
    if not job.std and _NEW_LANGUAGE.search(job.source):
        job = replace(job, std="c++20")
    before: Refused | None = None
    while True:
        try:
            return _checked(compiler, job, text, standard=standard)
        except Refused as refused:
            last = refused
        last.emptied, last.by_assembler = text.emptied, diagnostics.is_from_ptxas(last.log)
        last.of_host = diagnostics.is_about_host_code(last.log) or bool(diagnostics.missing_headers(last.log))
        if time.monotonic() > ends or (last.of_host and not text.bare):
            break
        if not job.older and stand_ins.uses_removed(last.log):
            job = replace(job, older=True)
        elif compiler.backend == "nvrtc" and not standard and diagnostics.lacks_standard_library(last.log):
            standard = True
        elif not job.std and _may_be_language(last):
            job, before = replace(job, std="c++20"), last
        else:
            break
    raise before or last


def _checked(compiler: Compiler, job: Job, text: Text, *, standard: bool) -> Compiled:
    """Compile a text. Raises Refused if the compiler refuses the text, or if the text calls a host function whose body
    was removed."""
    try:
        compiled = compiler.compile(job, text, standard=standard)
    except Refused as refused:
        if text.bare and (log := _calls_host(refused.log, "", text, job)):
            raise Refused(log) from None
        if job.machine_code and diagnostics.names_ptx_line(refused.log):
            refused.places = functools.partial(_places, compiler, job, text, standard=standard)
        raise
    if text.bare and (log := _calls_host("", compiled.ptx, text, job)):
        raise Refused(log)
    return compiled


def _calls_host(log: str, ptx: str, text: Text, job: Job) -> str:
    """Return an error message if a compiler's log or PTX shows that a host function is called, else ''."""
    called = [next(filter(None, groups)) for groups in _UNRESOLVED.findall(log)] + _EXTERN.findall(ptx)
    # `called` has the functions without a body; those that are not host functions are reported by ptxas or the
    # simulator
    for name in called:
        known = readable(name).split("::")[-2:]
        operators = [host for host in text.hosts if host.name.startswith("operator") and known == [name]]
        for host in [*(host for host in text.hosts if host.name in known), *operators][:1]:
            message = f'calling the __host__ function "{host.name}" from device code is not allowed'
            return f"{host.file or job.filename}({host.line}): error: {message}\n"
    return ""


def _may_be_language(refused: Refused) -> bool:
    """Return whether compiling as C++20 may remove the errors.

    C++20 does not help if every error is an undeclared name, follows from one, or is missing punctuation.
    """
    undefined = re.compile(rf'identifier "(?!({"|".join(_NEW_WORDS)})")\w+" is undefined')
    plain = re.compile(r"Name expression cannot form address|expected an? [\"(;]?")
    of_language = re.compile(r"C\+\+|cplusplus|standard|language|compiler", re.I)
    faults = diagnostics.faults(refused.log)
    if any(word in fault.shown for fault in faults for word in (*_NEW_WORDS, "<=>", "explicit(")):
        return True
    chosen = faults and all(
        fault.message.startswith("#error") and not of_language.search(fault.message) for fault in faults
    )
    return not chosen and not all(undefined.match(fault.message) or plain.match(fault.message) for fault in faults)


_NEW_WORDS = ("concept", "requires", "consteval", "constinit", "co_await", "co_yield", "co_return", "char8_t")


def _places(compiler: Compiler, job: Job, text: Text, *, standard: bool) -> Mapping[int, tuple[str, int]]:
    """Return the (source file, line) of each PTX line, keyed by the PTX line; empty if there is no PTX.

    The text is compiled to PTX again for this, because ptxas' messages name only lines of the PTX.
    """
    # the caller's `build` function makes only machine code, so here nvcc is run without it
    compiler = nvcc.Nvcc() if compiler.backend == "nvcc" else compiler
    try:
        ptx = compiler.compile(replace(job, machine_code=False), text, standard=standard).lines
    except (CudabenchError, Refused):
        return {}
    places = diagnostics.source_lines(ptx).items()
    return {number: (diagnostics.users_path(path, job.filename), line) for number, (path, _, line) in places}


# The part of a file that the requested kernels use -------------------------------------------------------------------


def _part(compiler: Compiler, job: Job, refused: Refused) -> Text | None:
    """Return the part of a file that the requested kernels use, with stand-ins for missing headers, or None."""
    from cudabench.source.device_part import device_part

    included = includes.read(job)
    beside = os.path.dirname(job.filename)
    folder = beside if os.path.isdir(beside) else None
    task = Task(job.filename, job.source, folder, job.include_dirs, job.defines, job.std or None)
    number = re.sub(r"\D", "", job.arch)
    front = f"#undef __CUDA_ARCH__\n#define __CUDA_ARCH__ {number}0\n"
    front += f"#define __CUDA_ARCH_FEAT_SM{number}_ALL 1\n" if job.arch.endswith("a") else ""
    front += "#define __CUDACC_RTC__ 1\n" if compiler.backend == "nvrtc" else ""
    paths = dict.fromkeys(stand_ins.path(name) for name, _ in included.absent)
    front += "".join(f'#include "{path}"\n' for path in paths if path)
    kernels = {name for name in map(names.plain, job.names) if name}
    words = {word for name in job.names for word in re.findall(r"[^\W\d]\w*", name)} - kernels
    part = device_part(task, kernels, words, front)
    if part is None:
        return None
    texts_of = {path: _LAMBDA.sub(lambda match: "]" + " " * len(match[1]), text) for path, text in part.texts.items()}
    own = {os.path.realpath(path): name for name, path in included.own.items()}
    headers = {own[real]: text for path, text in texts_of.items() if (real := os.path.realpath(path)) in own}
    missing = diagnostics.missing_headers(refused.log)
    missing += [name for name in part.missing if _is_missing(name, compiler.backend) and (missing or refused.of_host)]
    missing = [name for name in dict.fromkeys(missing) if name not in headers][: includes.MAX_HEADERS]
    words |= {word for text in part.texts.values() for word in re.findall(r"[^\W\d]\w*", text)}
    spaces = "".join(f"{stand_ins.space(name)}\n" for name in part.spaces)
    stubs = {name: (stand_ins.text(name) or prelude.library_header(name, words)) + spaces for name in missing}
    if compiler.backend == "nvrtc":
        stubs = {**prelude.libraries(words), **stubs}
    emptied = tuple(name for name in missing if PurePosixPath(name).name not in stand_ins.VECTORS)
    hosts = tuple(
        replace(host, file=host.file and own.get(os.path.realpath(host.file), host.file)) for host in part.hosts
    )
    return Text(texts_of[""], {**stubs, **headers}, bare=True, emptied=emptied, hosts=hosts)


def _is_missing(name: str, backend: Backend) -> bool:
    """Return whether a header is missing: neither CUDA has the header nor, for nvcc, the C library or the system on
    this machine."""
    if os.path.isabs(name) or name in dict(prelude.headers(forward=True)):
        return False
    folders = [toolkit.headers()]
    with contextlib.suppress(CudabenchError):
        folders.append(nvrtc.load().headers)
    if backend == "nvcc":
        folders += [Path("/usr/include"), Path("/usr/local/include"), *Path("/usr/lib/gcc").glob("*/*/include")]
    return not any((folder / inner / name).is_file() for folder in folders if folder for inner in ("", "cccl"))


def _untested_macros(log: str, job: Job) -> list[str]:
    """If the first #error of the log is in the #else of an #if, return at most 4 macros that this #if tests.

    Example: ['A', 'B'] for `#if defined(A) ... #elif defined(B) ... #else #error`. The user can define one of them.
    """
    fault = re.search(rf"^{re.escape(job.filename)}[:(](\d+)[^\n]*\berror: #error\b", log, re.M)
    above = job.source.splitlines()[: int(fault[1]) - 1] if fault else []
    opened: list[list[str]] = []  # for each #if that is open at this line: the conditions of its branches so far
    for directive in DIRECTIVE.finditer(without_comments("\n".join(above))):
        if directive[1].startswith("if"):
            opened.append([])
        if opened and directive[1].startswith(("if", "el")):
            opened[-1].append(directive[2] if directive[1] != "else" else "")
        elif opened and directive[1] == "endif":
            opened.pop()
    conditions = opened[-1] if opened and not opened[-1][-1] else []
    macros = re.findall(r"[A-Za-z_]\w*", " ".join(conditions))
    return [name for name in dict.fromkeys(macros) if name != "defined"][:4]


def _fail(refused: Refused, tried: Backend, job: Job) -> Compiled:
    """Raise the error for a file that no compiler accepts; its message says what the user can do."""
    if error := architecture.other_generation_error(refused.log, job):
        raise error
    message = diagnostics.errors(refused.log, job.filename, refused.places(), set(map(names.plain, job.names)))
    of_the_host = diagnostics.is_about_host_code(refused.log) or any(
        map(diagnostics.is_toolkit_header, refused.emptied)
    )
    remedies = []
    if refused.emptied:
        empty = [name for name in refused.emptied if not stand_ins.text(name)]
        names_of, what = (empty, "taken as empty") if empty else (refused.emptied, "replaced by a stand-in")
        listed = ", ".join(f"<{name}>" for name in names_of)
        they = ("was", "it was", "its") if len(names_of) == 1 else ("were", "they were", "their")
        folders = dict.fromkeys(filter(None, (includes.find_folder(name, job.filename) for name in names_of)))
        remedies.append(
            f"no header {listed} {they[0]} found and {they[1]} {what}: name {they[2]} folder with "
            f"-I{''.join(f' {folder}' for folder in folders)}"
        )
        if any(toolkit.CURAND.match(f"#include <{name}>") for name in refused.emptied):
            remedies.append(f"pip install {toolkit.CURAND_WHEEL}, which has the headers for random numbers")
    undefined = [name for name in diagnostics.undefined_names(refused.log) if re.fullmatch(r"_*[A-Z][A-Z\d_]*", name)]
    if undefined:
        given = " ".join(f"-D {name}=VALUE" for name in sorted(undefined)[:4])
        remedies.append(f"give the macros of your build: {given}")
    if unchosen := _untested_macros(refused.log, job):
        remedies.append(f"choose one of its variants by a macro: {' or '.join(f'-D {macro}' for macro in unchosen)}")
    lacks_nvcc = tried == "nvrtc" and of_the_host and toolkit.nvcc() is None
    if lacks_nvcc:
        remedies.append("NVRTC takes device code only: install the CUDA toolkit (nvcc) and g++")
    if remedies:
        message += f"\n{job.filename}: {', or '.join(remedies)}."
    if lacks_nvcc:
        raise DeviceUnusable(message)
    raise CompilerError(message)
