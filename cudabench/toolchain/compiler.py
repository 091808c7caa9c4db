"""CUDA C++ to PTX and machine code, for the simulator and for a GPU alike.

Each compiler gets the file as it is and, where host code or what is not there for it is in the way, again without that.
NVRTC comes first, and nvcc where NVRTC gives up; on a GPU with a toolkit it is PyCUDA's nvcc alone.
CUDABENCH_COMPILER=nvrtc or =nvcc fixes the compiler.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cudabench.errors import CompilerError, CudabenchError, DeviceUnusable, UsageError
from cudabench.symbols import readable
from cudabench.toolchain import (
    architecture,
    asked,
    cache,
    diagnostics,
    includes,
    lacking,
    left_out,
    limits,
    names,
    nvcc,
    nvrtc,
    older,
    outside,
    prelude,
    toolkit,
    torch_headers,
    vector_math,
)
from cudabench.toolchain.declarations import macros_of
from cudabench.toolchain.host_code import (
    devices_functions,
    with_hosts_heads,
    without_faults,
    without_host_code,
    without_lambdas_annotations,
    without_other_kernels,
)
from cudabench.toolchain.left_out import LeftOut
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
    std: str = "",
    backend: Backend | None = None,
    debug: bool = False,
) -> Compiled:
    """Compile to PTX with line information; `debug`: without optimisation.

    `filename` is what diagnostics and line information call the source; where it has a folder, files in that can be
    included. A define with an empty value is a bare `-DNAME`. `names` are C++ expressions of kernels: 'f', 'ns::f',
    'f<float, 32>', and 'f(float*, int)' for one of several overloads; templates are instantiated for them. `std` is the
    language, such as 'c++20'; left out, it is C++17 and, where that is refused, C++20.

    Raises CompilerError with the user's file and line; UsageError for an architecture or language that the compiler
    lacks or a name that no kernel has; DeviceUnusable where there is no compiler, or none that takes this file.
    """
    job = _job(source, filename, arch, defines, include_dirs, names, std, debug=debug)
    return _compile(job, _chosen(backend))


def compile_cubin(
    source: str,
    filename: str,
    *,
    arch: str = "sm_90",
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str] = (),
    names: Sequence[str] = (),
    std: str = "",
    backend: Backend | None = None,
    build: nvcc.Build | None = None,
) -> Compiled:
    """Compile to machine code, with PTX and ptxas' report of what each entry needs; arguments and errors as above.

    ptxas refuses what no launch could hold, such as more than 48 KiB of static shared memory: CompilerError.
    `build` is a caller's own way to run nvcc; where it is given and nvcc is there, nvcc is the compiler, and the record
    has neither PTX nor ptxas' report.
    """
    job = _job(source, filename, arch, defines, include_dirs, names, std, machine_code=True)
    if build is None:
        return _compile(job, _chosen(backend))
    if (backend or gpu_backend()) == "nvcc":
        return _attempt([nvcc.Nvcc(build)], job)
    return _compile(job, "nvrtc")


def _job(*what: Any, **how: Any) -> Job:
    """Return the job for the architecture that its texts ask for (`toolchain.architecture`)."""
    job = Job.of(*what, **how)
    outside.check(job)
    return architecture.suited(job, [job.source, *includes.read(job).texts.values()])


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

MAX_ATTEMPTS = 40  # of one compiler at one file: each leaves out more, and most files need one or two


@dataclass(frozen=True)
class _Attempt:
    """What a compiler gets in one attempt; `emptied` are headers that are nowhere and taken as empty."""

    source: str
    headers: Mapping[str, str]
    bare: bool
    emptied: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def _attempt(compilers: Sequence[Compiler], job: Job) -> Compiled:
    """Return what the first attempt gives that a compiler takes: in C++17, then in C++20, unless `--std` says which.

    Only the kernels that are asked for are compiled, unless that is refused: then the whole file is what counts. The
    error is that of the first language's last attempt. What ptxas refuses for an architecture's lack of what its
    GPUs have is compiled for those. No attempt begins once all of them took as long as one may.
    """
    ends = time.monotonic() + limits.compile_seconds()
    shorter = asked.only(job)
    by_assembler, last = False, None
    if shorter is not job:
        try:
            compiled = _in_some_language(compilers, shorter, ends)
            return replace(compiled, log=asked.as_written(compiled.log, job, shorter))
        except _AllRefused as refused:  # the whole file's errors count, but for those that it has as well
            if refused.refusal.hopeless or _is_both(refused.refusal, job, shorter) or _is_own(refused.refusal, job):
                last = refused
            by_assembler = refused.by_assembler
        except UsageError:
            pass
    if last is None:
        try:
            return _in_some_language(compilers, job, ends)
        except _AllRefused as refused:
            last = refused
    if architecture.refused_for_it(last.refusal.log, job):
        return _attempt(compilers, architecture.own(job))
    try:
        return _fail(last.refusal, last.tried, job)
    except CompilerError as error:
        log = last.refusal.log
        # PTX has declarations of the device's runtime, which machine code would have to be linked with.
        in_ptx = by_assembler or last.by_assembler or diagnostics.speaks_of_device_runtime(log)
        if type(error) is CompilerError and not in_ptx and "error" in log:
            raise RefusedAsCode(str(error)) from None
        raise


class RefusedAsCode(CompilerError):
    """No attempt got as far as ptxas: what was refused to machine code is refused to PTX as well."""


class _AllRefused(Exception):
    """No attempt was taken; the refusal that speaks for all, whose it is, and whether ptxas refused any."""

    def __init__(self, refusal: Refused, tried: Backend, by_assembler: bool) -> None:
        super().__init__(refusal.log)
        self.refusal, self.tried, self.by_assembler = refusal, tried, by_assembler


def _in_some_language(compilers: Sequence[Compiler], job: Job, ends: float) -> Compiled:
    languages = [job] if job.std else [job, replace(job, std="c++20")]
    if not job.std and re.search(r"\b(concept|requires)\b", job.source):
        languages.reverse()  # some NVRTC crash over a concept in C++17
    failed: list[tuple[Refused, Backend]] = []
    last: tuple[Refused, Backend] | None = None
    hopeless_without: list[str] = []
    for language in languages:
        if failed and (time.monotonic() > ends or not any(_may_be_languages(refused) for refused, _ in failed)):
            break
        for compiler in compilers:
            try:
                return _with(compiler, language, ends, hopeless_without)
            except Refused as refused:
                failed.append((refused, compiler.backend))
                hopeless_without += filter(_nowhere, refused.emptied) if refused.hopeless else ()
            if time.monotonic() > ends or not _may_be_hosts(failed[-1][0], job):
                break  # the user's own fault, which no other compiler mends
        last = last or min(reversed(failed), key=lambda one: _strangeness(one[0]))
    assert last is not None
    raise _AllRefused(*last, by_assembler=any(refused.by_assembler for refused, _ in failed))


def _strangeness(refused: Refused) -> tuple[bool, bool, int]:
    """How far a refusal is from the user's own fault: a header that this compiler misses, host code, many errors."""
    log = refused.log
    return bool(diagnostics.missing_headers(log)), diagnostics.speaks_of_host_code(log), len(diagnostics.faults(log))


def _may_be_languages(refused: Refused) -> bool:
    """Whether another version of C++ may mend a refusal.

    Not where all of it is names that nobody declared, what follows from them, and signs that are missing.
    """
    if refused.hopeless:
        return False
    new = ("concept", "requires", "consteval", "constinit", "co_await", "co_yield", "co_return", "char8_t")
    undefined = re.compile(rf'identifier "(?!({"|".join(new)})")\w+" is undefined')
    plain = re.compile(r"Name expression cannot form address|expected an? [\"(;]?")
    faults = diagnostics.faults(refused.log)
    if any(word in fault.shown for fault in faults for word in (*new, "<=>", "explicit(")):
        return True
    if _is_build(refused):
        return False
    if refused.emptied and faults and undefined.match(faults[0].message):
        return False  # a name of a header that is missing, and the rest follows from it
    return not all(undefined.match(fault.message) or plain.match(fault.message) for fault in faults)


def _is_build(refused: Refused) -> bool:
    """Whether all that is left are #error directives which a missing header's macros decide, and no language."""
    said = [fault.message for fault in diagnostics.faults(refused.log)]
    of_language = re.compile(r"C\+\+|cplusplus|standard|language|compiler", re.I)
    return bool(refused.emptied and said) and all(
        one.startswith("#error") and not of_language.search(one) for one in said
    )


def _may_be_hosts(refused: Refused, job: Job) -> bool:
    """Whether host code, or a header that is not there, may be what a compiler refuses."""
    if diagnostics.speaks_of_host_code(refused.log) or diagnostics.missing_headers(refused.log):
        return True
    return bool(refused.emptied) or without_host_code(job.source) != job.source


class _Texts:
    """A job's file and the headers of its own, with what is found in them once for all attempts."""

    def __init__(self, job: Job, hopeless_without: Collection[str] = ()) -> None:
        self.job = job
        self.hopeless_without = frozenset(hopeless_without)
        self.included = includes.read(job)
        self.files: Mapping[str, str] = {job.filename: job.source, **self.included.own}
        self.kept = {name for name in map(names.plain, job.names) if name}
        self._refused: dict[object, Refused] = {}
        self.by_assembler = False  # whether ptxas refused any attempt
        self.asked_for: set[str] = set()  # namespaces, each once

    def compiled(self, compiler: Compiler, job: Job, attempt: _Attempt, *, standard: bool) -> Compiled:
        """Compile an attempt; what was refused before is so again, at once."""
        key = (attempt.source, tuple(attempt.headers.items()), attempt.bare, standard, job)
        if key not in self._refused:
            try:
                compiled = compiler.compile(job, attempt.source, attempt.headers, bare=attempt.bare, standard=standard)
                called = left_out.undefined("", compiled.ptx, attempt.left_out)
                if called is None:
                    return compiled
                raise Refused(f"ptxas fatal   : Unresolved extern function '{called[0]}'")
            except Refused as refused:
                if job.machine_code and diagnostics.assembler_lines(refused.log):
                    refused.places = functools.partial(_places, compiler, job, attempt, standard=standard)
                self._refused[key] = refused
        raise self._refused[key]

    @functools.cached_property
    def macros(self) -> Mapping[str, frozenset[str]]:
        """The macros that the files define, each with the words of all its definitions."""
        macros: dict[str, frozenset[str]] = {}
        for text in (self.job.macros, self.job.source, *self.included.texts.values()):
            for name, words in macros_of(text).items():
                macros[name] = macros.get(name, frozenset()) | words
        return macros

    @functools.cached_property
    def hostless(self) -> _Attempt:
        """The attempt without the host's functions, in the file and in the user's headers."""
        devices = {name for text in self.files.values() for name in devices_functions(text, self.macros)}
        found = {name: with_hosts_heads(text, name, self.macros, devices) for name, text in self.files.items()}
        gone = tuple(one for _, every in found.values() for one in every)
        texts = {name: text for name, (text, _) in found.items()}
        source = texts.pop(self.job.filename)
        return _Attempt(source, texts, bare=True, left_out=gone)

    def replaced(self, attempt: _Attempt) -> LeftOut | None:
        """What an attempt lacks of what a kernel that is asked for comes to."""
        texts = {**self.included.own, **attempt.headers, "": attempt.source}.values()
        missing = bool(attempt.emptied)
        return left_out.replaced(attempt.left_out, texts, self.kept, self.job.names, self.macros, incomplete=missing)


class _MissesStandard(Exception):
    """An attempt without the host's code was refused for names of the standard library that kernels use."""

    def __init__(self, attempt: _Attempt, log: str) -> None:
        super().__init__()
        self.attempt, self.log = attempt, log

    def said(self, refused: Refused) -> bool:
        """Whether all faults of a refusal, with the standard library, are of those without it."""
        found = {(one.file, one.line, one.message) for one in diagnostics.faults(self.log)}
        later = {(one.file, one.line, one.message) for one in diagnostics.faults(refused.log)}
        return bool(later) and later <= found


def _is_both(refused: Refused, job: Job, shorter: Job) -> bool:
    """Whether headers are missing and all faults of a shortened job are of headers, or on lines that it has as the job
    has them: the whole file has them, too."""
    found = diagnostics.faults(refused.log)
    own, left = (one.source.split("\n") for one in (job, shorter))
    lines = [fault.line for fault in found if diagnostics.users_path(fault.file, job.filename) == job.filename]
    same = all(0 < line <= len(own) and own[line - 1] == left[line - 1] for line in lines)
    return bool(refused.emptied and found) and same and not refused.by_assembler


def _is_own(refused: Refused, job: Job) -> bool:
    """Whether ptxas refuses a kernel that is asked for: for its shared memory, or what stands in a line of its PTX."""
    over = {names.plain(readable(entry)) for entry, _ in diagnostics.over_shared(refused.log)}
    return diagnostics.assembler_lines(refused.log) or bool(over & set(map(names.plain, job.names)))


def _with(compiler: Compiler, job: Job, ends: float, hopeless_without: Collection[str] = ()) -> Compiled:
    """Compile the file as it is and, as long as it is refused, with less and less of what no kernel asked for needs.

    CUDA's standard library comes in early where names are missed that it has for kernels; where that does not help, it
    comes in last, because most often it is the host that wants one. Without one of some headers nothing helps. Raises
    Refused with the errors that no attempt mended.
    """
    texts = _Texts(job, hopeless_without)
    try:
        return _with_less_and_less(compiler, texts, ends, standard=False, early=True)
    except _MissesStandard as misses:
        try:
            return _with_less_and_less(compiler, texts, ends, standard=True, attempt=misses.attempt)
        except Refused as refused:
            if time.monotonic() > ends or refused.hopeless or _is_build(refused) or misses.said(refused):
                raise
    try:
        return _with_less_and_less(compiler, texts, ends, standard=False)
    except Refused as refused:
        over = refused.hopeless or time.monotonic() > ends
        if compiler.backend != "nvrtc" or not refused.misses_standard or over:
            raise
    return _with_less_and_less(compiler, texts, ends, standard=True)


def _with_less_and_less(
    compiler: Compiler,
    texts: _Texts,
    ends: float,
    *,
    standard: bool,
    early: bool = False,
    attempt: _Attempt | None = None,
) -> Compiled:
    """Compile with the standard library or without, from an attempt on; `early` raises _MissesStandard."""
    job = texts.job
    attempt = attempt or _first(texts)
    misses_standard = False
    first_of_device: Refused | None = None
    for _ in range(MAX_ATTEMPTS):
        try:
            compiled = texts.compiled(compiler, job, attempt, standard=standard)
        except Refused as refused:
            misses_standard = misses_standard or diagnostics.misses_standard(refused.log)
            by_assembler = diagnostics.speaks_of_assembler(refused.log)
            called = left_out.undefined(refused.log, "", attempt.left_out)
            texts.by_assembler = texts.by_assembler or (by_assembler and called is None)
            last = Refused(
                refused.log,
                attempt.emptied,
                misses_standard=misses_standard,
                by_assembler=texts.by_assembler,
                places=refused.places,
            )
        else:
            replaced = texts.replaced(attempt)
            if replaced is None:
                return compiled
            raise Refused(replaced.log, attempt.emptied, misses_standard=misses_standard)
        if texts.hopeless_without.intersection(diagnostics.missing_headers(last.log)):
            last.hopeless = True
            raise last
        if time.monotonic() > ends:
            break
        if not job.older and older.needed(last.log):
            job = replace(job, older=True)
            continue
        following = _bare(attempt, last, texts)
        with_headers = _with_headers(following or attempt, last, job)
        if not (following or with_headers) and _is_hopeless(compiler, attempt, last, texts, standard=standard):
            last.hopeless = True
            raise last
        if early and following is None and compiler.backend == "nvrtc":
            others = diagnostics.beside_device_standard(last.log)
            if others is not None:
                less = _with_less(attempt, others, texts, last.log, device=False)
                raise _MissesStandard(less or attempt, last.log)
        following = with_headers or following
        following = following or _with_plain_lambdas(attempt, last)
        faults = diagnostics.faults(last.log)
        if following is None:
            following = _with_less(attempt, faults, texts, last.log, device=False)
        if following is None and texts.kept and _calls_undefined(attempt, last):
            following = _alone(attempt, texts)
        if following is None and texts.kept:
            first_of_device = first_of_device or last
            following = _with_less(attempt, faults, texts, first_of_device.log, device=True)
        if following is None and texts.kept and diagnostics.speaks_of_assembler(last.log):
            following = _alone(attempt, texts)
        if following is None:
            break
        attempt = following
    called = left_out.undefined(last.log, "", attempt.left_out)
    if called is not None:
        raise Refused(called[1].log, last.emptied, misses_standard=misses_standard)
    if first_of_device is not None:
        before, after = (set(diagnostics.faults(one.log)) for one in (first_of_device, last))
        if not after <= before:  # what was left out is missed: its own errors are the cause
            raise Refused(
                first_of_device.log,
                last.emptied,
                misses_standard=misses_standard,
                by_assembler=texts.by_assembler,
                places=first_of_device.places,
            )
    raise last


def _is_hopeless(compiler: Compiler, attempt: _Attempt, refused: Refused, texts: _Texts, *, standard: bool) -> bool:
    """Whether a kernel that is asked for needs a namespace that is nowhere, for the headers are missing that have it.

    One more compile tells, of what is left without all that uses it.
    """
    files = {"": attempt.source, **attempt.headers}
    for name in diagnostics.unknown_spaces(refused.log) if attempt.emptied else ():
        if name in texts.asked_for or not lacking.needs(name, texts.files.values(), texts.kept, texts.macros):
            continue
        texts.asked_for.add(name)
        headers, source, line = lacking.asking(name, files, texts.macros)
        try:
            compiler.compile(replace(texts.job, names=()), source, headers, bare=True, standard=standard)
        except UsageError:
            continue
        except Refused as answer:
            found = diagnostics.faults(answer.log)
            if any(fault.line == line and diagnostics.unknown_space(fault) == name for fault in found):
                return True
    return False


def _places(compiler: Compiler, job: Job, attempt: _Attempt, *, standard: bool) -> Mapping[int, tuple[str, int]]:
    """Return where in the source the lines of the PTX are that ptxas got of an attempt; empty where nobody knows."""
    job = replace(job, machine_code=False)
    compiler = nvcc.Nvcc() if compiler.backend == "nvcc" else compiler  # a caller's own way makes no PTX
    try:
        ptx = compiler.compile(job, attempt.source, attempt.headers, bare=attempt.bare, standard=standard).ptx
    except (CudabenchError, Refused):
        return {}
    return diagnostics.source_lines(ptx, job.filename)


def _first(texts: _Texts) -> _Attempt:
    """The first attempt: the file as it is, but where PyTorch's headers, which no toolkit has, are not there."""
    job = texts.job
    attempt = _Attempt(job.source, {}, bare=False)
    absent = _absent(texts.files.values(), job, torch_headers.text)
    if not absent:
        return attempt
    stubs = {name: torch_headers.text(name) for name in absent}
    return replace(texts.hostless, headers={**texts.hostless.headers, **stubs}, emptied=tuple(absent))


def _absent(texts: Iterable[str], job: Job, meant: Callable[[str], object]) -> list[str]:
    """The headers of a kind that these texts include and that are in none of the job's folders."""
    named = (name for text in texts for name in includes.named(text) if meant(name))
    return [
        name
        for name in dict.fromkeys(named)
        if not any(os.path.isfile(os.path.join(folder, name)) for folder in job.include_dirs)
    ][: includes.MAX_HEADERS]


def _nowhere(name: str) -> bool:
    """Whether a header is none of CUDA's, of the C library's or of the system's, as far as this machine shows."""
    if os.path.isabs(name) or name in dict(prelude.headers(forward=True)):
        return False
    try:
        own = [nvrtc.load().headers]
    except CudabenchError:
        own = []
    folders = [*own, toolkit.headers(), Path("/usr/include"), Path("/usr/local/include")]
    return not any((folder / inner / name).is_file() for folder in folders if folder for inner in ("", "cccl"))


def _bare(attempt: _Attempt, refused: Refused, texts: _Texts) -> _Attempt | None:
    """The second attempt: without the host's functions."""
    if attempt.bare:
        return None
    hostless = texts.hostless
    if hostless.headers or hostless.source != texts.job.source or diagnostics.speaks_of_host_code(refused.log):
        return hostless
    return None


def _stand_in(name: str) -> str:
    """Return what stands for a header that is nowhere: '' for one of which nothing is known."""
    return vector_math.TEXT if Path(name).name in vector_math.HEADERS else torch_headers.text(name)


def _with_headers(attempt: _Attempt, refused: Refused, job: Job) -> _Attempt | None:
    """The next attempt where a header is missing: it is empty, or brings the types of CUDA's own that a library does.

    Where the kernels compile so, only the host needed the rest.
    """
    missing = [name for name in diagnostics.missing_headers(refused.log) if name not in attempt.headers]
    if missing:  # a compiler ends at the first one
        beside = _absent([job.source, *attempt.headers.values()], job, _nowhere)
        missing += [name for name in beside if name not in (*missing, *attempt.headers)]
    if missing and len(attempt.emptied) < includes.MAX_HEADERS:
        emptied = attempt.emptied + tuple(missing)
        texts = {name: _stand_in(name) for name in missing}
        emptied = tuple(name for name in emptied if Path(name).name not in vector_math.HEADERS)
        return replace(attempt, headers={**attempt.headers, **texts}, emptied=emptied, bare=True)
    empty = (name for name in attempt.emptied if not torch_headers.text(name))
    stubs = [*empty, *(name for name in prelude.LIBRARIES if re.search(rf'[<"]{name}[>"]', job.source))]
    undefined = diagnostics.undefined_names(refused.log)
    brought = [name for name in prelude.headers_with(undefined) if name not in attempt.brought]
    if stubs and brought:
        every = (*attempt.brought, *brought)
        headers = {**attempt.headers, **{name: prelude.library_header(name, every) for name in stubs}}
        return replace(attempt, headers=headers, brought=attempt.brought + tuple(brought), bare=True)
    return None


def _with_less(
    attempt: _Attempt, faults: Sequence[diagnostics.Fault], texts: _Texts, log: str, *, device: bool
) -> _Attempt | None:
    """The next attempt, without the declarations that this one was refused for; None where it would be the same.

    `log` is the refusal that a kernel gets which comes to one of them.
    """
    filename = texts.job.filename
    own = [fault for fault in faults if diagnostics.users_path(fault.file, filename) == filename]
    source, gone = without_faults(attempt.source, own, texts.macros, texts.kept, log, device=device)
    headers = dict(attempt.headers)
    for name in headers:
        there = [fault for fault in faults if fault.file == name or fault.file.endswith("/" + name)]
        headers[name], more = without_faults(headers[name], there, texts.macros, texts.kept, log, device=device)
        gone += more
    if source == attempt.source and headers == attempt.headers:
        return None
    return replace(attempt, source=source, headers=headers, bare=True, left_out=attempt.left_out + gone)


def _with_plain_lambdas(attempt: _Attempt, refused: Refused) -> _Attempt | None:
    """The next attempt where lambdas are refused for saying that they are the device's, too."""
    if not diagnostics.speaks_of_lambdas(refused.log):
        return None
    headers = {name: without_lambdas_annotations(text) for name, text in attempt.headers.items()}
    following = replace(attempt, source=without_lambdas_annotations(attempt.source), headers=headers)
    return None if following == attempt else following


def _calls_undefined(attempt: _Attempt, refused: Refused) -> bool:
    """Whether a refusal is of calls of functions whose bodies are left out."""
    missed = left_out.undefined(refused.log, "", attempt.left_out) is not None
    return missed or any("was referenced but not defined" in one.message for one in diagnostics.faults(refused.log))


def _alone(attempt: _Attempt, texts: _Texts) -> _Attempt | None:
    """The next attempt, without the kernels that nobody asked for: ptxas refuses all for what one of them has."""
    source = without_other_kernels(attempt.source, texts.macros, texts.kept)
    own = {**texts.included.own, **attempt.headers}
    headers = {name: without_other_kernels(text, texts.macros, texts.kept) for name, text in own.items()}
    if source == attempt.source and headers == own:
        return None
    return replace(attempt, source=source, headers=attempt.headers if headers == own else headers)


def _unchosen(log: str, job: Job) -> list[str]:
    """Return the macros of the #if, of the source itself, whose #else is the #error that a log has first."""
    fault = re.search(rf"^{re.escape(job.filename)}[:(](\d+)[^\n]*\berror: #error\b", log, re.M)
    if fault is None:
        return []
    found: list[str] = []
    depth, in_else = 0, False
    for line in reversed(job.source.splitlines()[: int(fault[1]) - 1]):
        directive = re.match(r"\s*#\s*(if\w*|el\w+|endif)\b(.*)", line)
        if not directive:
            continue
        word, rest = directive.groups()
        depth += (word == "endif") - (word.startswith("if") and depth > 0)
        if depth > 0 or (word.startswith("if") and found and not in_else):
            continue
        in_else = in_else or word == "else"
        if in_else and word != "else":
            found += [one for one in re.findall(r"[A-Za-z_]\w*", rest) if one != "defined"]
        if word.startswith("if"):
            break
    return list(dict.fromkeys(reversed(found)))[:4]


def _fail(refused: Refused, tried: Backend, job: Job) -> Compiled:
    """Raise the error for a file that no compiler took, with what mends it."""
    if error := architecture.missing(refused.log, job):
        raise error
    message = diagnostics.errors(refused.log, job.filename, refused.places(), set(map(names.plain, job.names)))
    of_the_host = diagnostics.speaks_of_host_code(refused.log) or any(map(diagnostics.of_a_toolkit, refused.emptied))
    remedies = []
    if refused.emptied:
        empty = [name for name in refused.emptied if not torch_headers.text(name)]
        names_of, what = (
            (empty, "taken as empty") if empty else (refused.emptied, "taken for what most kernels use of it")
        )
        listed = ", ".join(f"<{name}>" for name in names_of)
        they = ("was", "it was", "its") if len(names_of) == 1 else ("were", "they were", "their")
        folders = dict.fromkeys(filter(None, (includes.nearby(name, job.filename) for name in names_of)))
        where = "".join(f" {folder}" for folder in folders)
        remedies.append(
            f"no header {listed} {they[0]} found and {they[1]} {what}: name {they[2]} folder with -I{where}"
        )
        if any(toolkit.CURAND.match(f"#include <{name}>") for name in refused.emptied):
            remedies.append(f"pip install {toolkit.CURAND_WHEEL}, whose headers kernels draw random numbers by")
    undefined = [name for name in diagnostics.undefined_names(refused.log) if re.fullmatch(r"_*[A-Z][A-Z\d_]*", name)]
    if undefined:
        given = " ".join(f"-D {name}=VALUE" for name in sorted(undefined)[:4])
        remedies.append(f"give the macros that a build would: {given}")
    if unchosen := _unchosen(refused.log, job):
        remedies.append(f"it is one of its builds that a macro chooses: {' or '.join(f'-D {one}' for one in unchosen)}")
    lacks_nvcc = tried == "nvrtc" and of_the_host and toolkit.nvcc() is None
    if lacks_nvcc:
        remedies.append("NVRTC takes device code only: install the CUDA toolkit (nvcc) and g++")
    if remedies:
        message += f"\n{job.filename}: {', or '.join(remedies)}."
    if lacks_nvcc:
        raise DeviceUnusable(message)
    raise CompilerError(message)
