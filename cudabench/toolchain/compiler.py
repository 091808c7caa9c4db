"""CUDA C++ to PTX and to the resources that it needs, with no GPU and no driver.

NVRTC does it where it can: it is a library in a wheel, needs no host compiler and takes 50 ms. What it cannot take is
host code and the host's own headers. Two cures, in this order: the file's host functions are blanked out (a kernel
does not need them) and headers that only they use are empty; and nvcc, where there is one.

The library loads at the first call, so that importing this module costs nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cudabench.errors import CompilerError, DeviceUnusable, UsageError

if TYPE_CHECKING:
    import ctypes

Backend = Literal["nvrtc", "nvcc"]

_INSTALL = "install NVRTC with `pip install nvidia-cuda-nvrtc`"


@dataclass(frozen=True)
class Compiled:
    """PTX with the compiler's warnings.

    `lowered` maps each name expression that was asked for to its entry in the PTX: 'f<float,32>' to
    '_Z1fIfLi32EEvPT_'. Where the PTX names a source file, it has the name that the caller gave. `version` is the
    compiler's, as (major, minor).
    """

    ptx: str
    log: str
    lowered: dict[str, str] = field(default_factory=dict)
    backend: Backend = "nvrtc"
    version: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Resources:
    """What ptxas reports of an entry.

    Per thread: registers, local memory and spills; per block: static shared memory and barriers. All but `registers`,
    `barriers` and `max_threads` are bytes. `max_threads` is the block that `__launch_bounds__` allows, None without it.
    `constant_bytes` is 0 where the compiler does not report it (CUDA 13).
    """

    registers: int
    shared_bytes: int = 0
    local_bytes: int = 0
    constant_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    barriers: int = 0
    max_threads: int | None = None


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

    `filename` is what diagnostics and line information call the source; files beside it can be included. A define
    with an empty value is a bare `-DNAME`. `names` are C++ expressions of kernels: 'f', 'ns::f', 'f<float, 32>', and
    'f(float*, int)' for one of several overloads; templates are instantiated for them.

    Raises CompilerError with the user's file and line; UsageError for an architecture that the compiler lacks or a name
    that no kernel has; DeviceUnusable where there is no compiler, or none that takes this file.
    """
    return _dispatch(_Job.of(source, filename, arch, defines, include_dirs, names), backend).compiled


def resources(
    source: str,
    filename: str,
    *,
    arch: str = "sm_90",
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str] = (),
    names: Sequence[str] = (),
    backend: Backend | None = None,
) -> dict[str, Resources]:
    """Return what each entry of the file needs on `arch`, by ptxas' report; arguments and errors as in `compile_ptx`.

    The keys are entry names (mangled where the kernel is C++). ptxas refuses what no launch could hold, such as more
    than 48 KiB of static shared memory: CompilerError.
    """
    job = _Job.of(source, filename, arch, defines, include_dirs, names, machine_code=True)
    return dict(_dispatch(job, backend).resources)


def compile_ptx_and_resources(
    source: str,
    filename: str,
    *,
    arch: str = "sm_90",
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str] = (),
    names: Sequence[str] = (),
) -> tuple[Compiled, dict[str, Resources]]:
    """Return what `compile_ptx` and `resources` do, from one run of the compiler; arguments and errors as there."""
    outcome = _dispatch(_Job.of(source, filename, arch, defines, include_dirs, names, machine_code=True), None)
    return outcome.compiled, dict(outcome.resources)


def nvrtc_version() -> tuple[int, int] | None:
    """Return NVRTC's version, None where the library is not installed."""
    try:
        return _Nvrtc.load().version
    except DeviceUnusable:
        return None


def nvcc_version() -> tuple[int, int] | None:
    """Return nvcc's version, None where nvcc or the host compiler that it needs is missing."""
    nvcc = _nvcc()
    if nvcc is None:
        return None
    try:
        report = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"release (\d+)\.(\d+)", report)
    return (int(match[1]), int(match[2])) if match else None


def supported_architectures(backend: Backend = "nvrtc") -> tuple[str, ...]:
    """Return the architectures that a compiler takes ('sm_75', ...); DeviceUnusable where it is not installed."""
    if backend == "nvrtc":
        return tuple(f"sm_{number}" for number in _Nvrtc.load().architectures)
    nvcc = _nvcc()
    if nvcc is None:
        raise DeviceUnusable("nvcc or its host compiler is not on PATH: install the CUDA toolkit and g++.")
    report = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=False).stdout
    return tuple(f"sm_{number}" for number in re.findall(r"compute_(\d+)", report))


# ------------------------------------------------------------------------------------------------------------- the job


@dataclass(frozen=True)
class _Job:
    """What to compile; hashable, because a ladder compiles the same chapter once for each of its kernels."""

    source: str
    filename: str
    arch: str
    defines: tuple[tuple[str, str], ...]
    include_dirs: tuple[str, ...]
    names: tuple[str, ...]
    machine_code: bool = False

    @classmethod
    def of(
        cls,
        source: str,
        filename: str,
        arch: str,
        defines: Mapping[str, str] | None,
        include_dirs: Sequence[str],
        names: Sequence[str],
        machine_code: bool = False,
    ) -> _Job:
        match = re.fullmatch(r"(?:sm|compute)_(\d{2,3}[af]?)", arch)
        if match is None:
            raise UsageError(f"'{arch}' is no GPU architecture: write 'sm_' and the compute capability, such as sm_90.")
        for name, value in (defines or {}).items():
            if not re.fullmatch(r"[^\W\d]\w*(\([\w,\s.]*\))?", name) or "\n" in str(value):
                raise UsageError(f"'{name}={value}' is no macro: write NAME=VALUE, such as TILE=32.")
        beside = os.path.dirname(filename) or "."
        return cls(
            source=source,
            filename=filename,
            arch=match[1],
            defines=tuple((name, str(value)) for name, value in (defines or {}).items()),
            include_dirs=(beside, *(os.fspath(folder) for folder in include_dirs)),
            names=tuple(names),
            machine_code=machine_code,
        )

    @property
    def options(self) -> list[str]:
        """The options that NVRTC and nvcc share."""
        return [f"-arch={'sm' if self.machine_code else 'compute'}_{self.arch}", "-lineinfo"]

    @property
    def macros(self) -> str:
        """The defines as text, to stand before the source but behind CUDA's headers, of which `-DT=float` breaks many.

        As with -D, a bare name is 1.
        """
        return "".join(f"#define {name} {value or '1'}\n" for name, value in self.defines)


@dataclass(frozen=True)
class _Outcome:
    compiled: Compiled
    resources: tuple[tuple[str, Resources], ...] = ()


class _RefusedError(Exception):
    """A compiler's refusal, with its log: whether it is the user's fault is for the caller to judge."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


@functools.lru_cache(maxsize=64)
def _dispatch(job: _Job, backend: Backend | None) -> _Outcome:
    """Choose the compiler: NVRTC, NVRTC without the host code, nvcc."""
    if backend == "nvcc":
        return _with_nvcc(job)
    try:
        nvrtc = _Nvrtc.load()
    except DeviceUnusable as missing:
        if backend == "nvrtc" or _nvcc() is None:
            raise missing from None
        return _with_nvcc(job)
    _check_architecture(job, nvrtc, backend)
    try:
        return _with_nvrtc(nvrtc, job, job.source)
    except _RefusedError as first:
        if not _is_hosts_fault(first.log):
            raise CompilerError(_diagnostics(first.log, job)) from None
    try:
        return _without_host(nvrtc, job)
    except _RefusedError as second:
        if backend is None and _nvcc() is not None:
            return _with_nvcc(job)
        if _is_users_fault(second.log):
            raise CompilerError(_diagnostics(second.log, job)) from None
        refused = second
    raise DeviceUnusable(
        f"{_first_cause(refused.log, job)}: NVRTC takes device code only: install the CUDA toolkit (nvcc) and g++, "
        "or move the kernels to a file without host code."
    )


def _check_architecture(job: _Job, nvrtc: _Nvrtc, backend: Backend | None) -> None:
    number = int(job.arch.rstrip("af"))
    if not nvrtc.architectures or number in nvrtc.architectures:
        return
    if backend is None and _nvcc() is not None and f"sm_{number}" in supported_architectures("nvcc"):
        return
    listed = ", ".join(f"sm_{known}" for known in nvrtc.architectures)
    version = ".".join(map(str, nvrtc.version))
    raise UsageError(f"sm_{job.arch}: NVRTC {version} does not compile for this architecture: choose one of {listed}.")


# --------------------------------------------------------------------------------------------------------- diagnostics

_HEAD = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<kind>(?:catastrophic )?error|warning|remark)(?: #[\w-]+)?: ")
# What a kernel can declare on every architecture; more has to be dynamic.
_STATIC_SHARED_LIMIT = 49152
_MISSING = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
_STATIC_SHARED_LIMIT = 49152
_MISSING = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
_TOOLKIT_HEADERS = ("cuda", "cu", "thrust/", "cub/", "npp", "nv")
_HOST_FAULTS = (
    "is considered a host function",
    "not allowed in JIT mode",
    "not supported when compiling with NVRTC",
)


def _is_hosts_fault(log: str) -> bool:
    """Whether a refusal is of host code, or of a header that nvcc may have: the user need not be wrong."""
    return any(fault in log for fault in _HOST_FAULTS) or _MISSING.search(log) is not None


def _is_users_fault(log: str) -> bool:
    """Whether a refusal without nvcc is the user's to mend: code, or a header that is no toolkit's and no library's."""
    missing = _MISSING.findall(log)
    if any(fault in log for fault in _HOST_FAULTS):
        return False
    return not any(os.path.splitext(name)[1] in ("", ".cuh") or name.startswith(_TOOLKIT_HEADERS) for name in missing)


def _diagnostics(log: str, job: _Job) -> str:
    """Errors only, as 'file:line: error: what', each followed by its line of source and the caret."""
    kept: list[str] = []
    keep = False
    for line in log.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            keep = "error" in head["kind"]
            if keep:
                place = f"{_users_path(head['file'], job)}:{head['line']}"
                kept.append(f"{place}: error: {line[head.end() :]}")
        elif re.match(r"\d+ (catastrophic )?errors? detected|Compilation terminated|Error limit|Remark:", line):
            keep = False
        elif re.match(r"(nvrtc|nvcc fatal|ptxas (error|fatal))\s*:", line):
            kept.append(f"{job.filename}: {re.sub(r'^(ptxas|nvcc|nvrtc)[ a-z]*: *', '', line)}")
            keep = False
        elif re.match(r".+?:\d+:(\d+:)? (fatal )?error: ", line):  # the host compiler's own form
            kept.append(_users_path(line, job))
            keep = True
        elif keep and line.strip():
            kept.append(line)
    if not kept:
        for match in re.finditer(r"entry function '(\w+)'(?:.|\n)*?(\d+) bytes smem", log):
            if int(match[2]) > _STATIC_SHARED_LIMIT:
                kept.append(
                    f"{job.filename}: {match[1]} has {match[2]} bytes of static shared memory, a block may have "
                    f"{_STATIC_SHARED_LIMIT}: take less, or dynamic shared memory."
                )
    return (
        "\n".join(kept).replace("__attribute__((global))", "__global__")
        or log.strip()
        or f"{job.filename}: the compiler failed and said nothing."
    )


def _first_cause(log: str, job: _Job) -> str:
    """The first error as 'file:line: host code' or 'file:line: no header <vector>'."""
    for line in log.splitlines():
        head = _HEAD.match(line)
        if head is not None and "error" in head["kind"]:
            place = f"{_users_path(head['file'], job)}:{head['line']}"
            missing = _MISSING.search(line)
            if missing is not None:
                return f"{place}: no header <{missing[1]}>"
            if any(fault in line for fault in _HOST_FAULTS[:2]):
                return f"{place}: host code"
    return f"{job.filename}: host code"


def _warnings(log: str) -> str:
    """A successful log without ptxas' report."""
    lines = [line for line in log.splitlines() if not re.match(r"ptxas (info|\s+\.)|Remark: The warnings|    \d", line)]
    return re.sub(r"\n{2,}", "\n", _colons("\n".join(lines))).strip()


def _colons(log: str) -> str:
    return re.sub(r"^(\S.*?)\((\d+)\): (?=warning|error|remark)", r"\1:\2: ", log, flags=re.M)


def _users_path(path: str, job: _Job) -> str:
    absolute = os.path.abspath(job.filename)
    return path.replace(absolute, job.filename)


def _users_files(ptx: str, job: _Job, headers: Path | None = None) -> str:
    """Compilers write absolute names into `.file`; give back the caller's own, and short ones for files beside it.

    The unpacked headers of CUDA are called cuda/..., wherever the user's cache is.
    """
    here = os.getcwd()

    def name(match: re.Match[str]) -> str:
        path = os.path.normpath(match[2])
        if path == os.path.abspath(job.filename):
            path = job.filename
        elif path.startswith(here + os.sep):
            path = os.path.relpath(path, here)
        elif headers is not None and path.startswith(str(headers)):
            path = "cuda/" + Path(path).relative_to(headers).as_posix().removeprefix("cccl/")
        return f'{match[1]}{path}"'

    return re.sub(r'^(\s*\.file\s+\d+\s+")([^"]*)"', name, ptx, flags=re.M)


_ENTRY = re.compile(r"^\s*(?:\.(?:visible|weak|extern)\s+)*\.entry\s+([\w$]+)", re.M)


def _report(log: str, ptx: str) -> Iterator[tuple[str, Resources]]:
    """ptxas' report, one paragraph an entry, as Resources."""
    bounds = {}
    for match in re.finditer(r"\.entry\s+([\w$]+)\s*\([^)]*\)\s*((?:\.\w+[^\n{]*\n)*)", ptx):
        limit = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", match[2])
        if limit:
            bounds[match[1]] = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
    for paragraph in re.split(r"Compiling entry function ", log)[1:]:
        entry = re.match(r"'([^']+)'", paragraph)
        if entry is None or entry[1].startswith(_NAME_PREFIX):
            continue
        own = paragraph[paragraph.find(f"Function properties for {entry[1]}") :]

        def number(pattern: str, text: str = own) -> int:
            match = re.search(pattern, text)
            return int(match[1]) if match else 0

        yield (
            entry[1],
            Resources(
                registers=number(r"Used (\d+) registers"),
                shared_bytes=number(r"(\d+)(?:\+\d+)? bytes smem"),
                local_bytes=number(r"(\d+) bytes stack frame"),
                constant_bytes=sum(map(int, re.findall(r"(\d+) bytes cmem", own))),
                spill_stores=number(r"(\d+) bytes spill stores"),
                spill_loads=number(r"(\d+) bytes spill loads"),
                barriers=number(r"used (\d+) barriers"),
                max_threads=bounds.get(entry[1]),
            ),
        )


def _as_cpp(name: str) -> str:
    """A kernel's name as a C++ expression: 'f(float*, int)' becomes a cast that chooses the overload."""
    match = re.fullmatch(r"\s*([\w:]+\s*(?:<.*>)?)\s*\((.*)\)\s*", name, re.S)
    return f"(void(*)({match[2]}))&{match[1].strip()}" if match else name


# --------------------------------------------------------------------------------------------------------------- NVRTC


class _Nvrtc:
    """The library through ctypes: the dozen functions that this module calls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        import ctypes

        self.c = ctypes
        self.library = library
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        self.architectures: tuple[int, ...] = ()
        if hasattr(library, "nvrtcGetSupportedArchs"):  # since 11.2
            count = ctypes.c_int()
            library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
            numbers = (ctypes.c_int * count.value)()
            library.nvrtcGetSupportedArchs(numbers)
            self.architectures = tuple(numbers)

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def load() -> _Nvrtc:
        """Load the newest library of the wheels, else the toolkit's, else the system's."""
        import ctypes

        reasons = []
        for path in _libraries():
            try:
                if os.path.isabs(path):
                    for builtins in Path(path).parent.glob("*nvrtc-builtins*"):
                        ctypes.CDLL(str(builtins))  # older libraries look for it on the search path only
                return _Nvrtc(ctypes.CDLL(path))
            except OSError as error:
                if os.path.isabs(path):
                    reasons.append(str(error))
        why = f" ({reasons[0]})" if reasons else ""
        raise DeviceUnusable(f"No CUDA compiler can be loaded{why}: {_INSTALL}.")

    def compile(
        self, source: str, filename: str, options: Sequence[str], headers: Mapping[str, str], names: Sequence[str]
    ) -> tuple[str, str, dict[str, str]]:
        """Return PTX, log and lowered names, or raise _RefusedError."""
        c, lib = self.c, self.library
        program = c.c_void_p()
        count = len(headers)
        texts = (c.c_char_p * count)(*(text.encode() for text in headers.values()))
        titles = (c.c_char_p * count)(*(title.encode() for title in headers))
        self._check(
            lib.nvrtcCreateProgram(c.byref(program), source.encode(), os.fsencode(filename), count, texts, titles)
        )
        try:
            for name in names:
                self._check(lib.nvrtcAddNameExpression(program, name.encode()))
            arguments = (c.c_char_p * len(options))(*(os.fsencode(option) for option in options))
            status = lib.nvrtcCompileProgram(program, len(options), arguments)
            log = self._text(program, lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog)
            if status:
                raise _RefusedError(log or self._message(status))
            ptx = self._text(program, lib.nvrtcGetPTXSize, lib.nvrtcGetPTX)
            lowered = {}
            for name in names:
                entry = c.c_char_p()
                self._check(lib.nvrtcGetLoweredName(program, name.encode(), c.byref(entry)))
                lowered[name] = (entry.value or b"").decode()
            return ptx, log, lowered
        finally:
            lib.nvrtcDestroyProgram(c.byref(program))

    def _text(self, program: ctypes.c_void_p, size_of: object, text_of: object) -> str:
        size = self.c.c_size_t()
        assert callable(size_of)
        assert callable(text_of)
        self._check(size_of(program, self.c.byref(size)))
        buffer = self.c.create_string_buffer(size.value)
        self._check(text_of(program, buffer))
        return buffer.value.decode(errors="replace")

    def _message(self, status: int) -> str:
        self.library.nvrtcGetErrorString.restype = self.c.c_char_p
        return f"nvrtc: {self.library.nvrtcGetErrorString(status).decode()}"

    def _check(self, status: int) -> None:
        if status:
            raise _RefusedError(self._message(status))

    @functools.cached_property
    def headers(self) -> Path | None:
        """A folder with CUDA's own headers: those bundled in NVRTC (13.5), else of a wheel or toolkit."""
        if hasattr(self.library, "nvrtcInstallBundledHeaders"):
            folder = self._unpacked(_cache_folder() / "nvrtc-headers-{}.{}".format(*self.version))
            if folder is None:
                folder = self._unpacked(Path(tempfile.mkdtemp(prefix="cudabench-")) / "headers")
            if folder is not None:
                return folder
        return next((folder for folder in _header_folders() if (folder / "cuda_fp16.h").is_file()), None)

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


def _without_host(nvrtc: _Nvrtc, job: _Job) -> _Outcome:
    """Compile without the host's part of the file and of the headers beside it.

    In a file with host code a header that is nowhere is empty: where the kernels compile so, only the host needed it.
    """
    source = without_host_code(job.source)
    has_host_code = source != job.source
    headers = _headers_beside(job)
    first: _RefusedError | None = None
    while True:
        try:
            return _with_nvrtc(nvrtc, job, source, headers, unannotated_on_device=True)
        except _RefusedError as refused:
            first = first or refused
            missing = set(_MISSING.findall(refused.log)) - set(headers)
            if not missing or not has_host_code or len(headers) > _MAX_HEADERS:
                raise first from None
            headers.update(dict.fromkeys(missing, ""))


def _headers_beside(job: _Job) -> dict[str, str]:
    """Return the headers in the job's folders that its source includes, by the name that it gives them, without host
    code."""
    found: dict[str, str] = {}
    waiting = [job.source]
    while waiting and len(found) < _MAX_HEADERS:
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', waiting.pop(), re.M):
            for folder in job.include_dirs:
                path = Path(folder, name)
                if name not in found and path.is_file():
                    text = path.read_text(encoding="utf-8", errors="replace")
                    found[name] = without_host_code(text)
                    waiting.append(text)
    return found


def _with_nvrtc(
    nvrtc: _Nvrtc,
    job: _Job,
    source: str,
    beside: Mapping[str, str] | None = None,
    unannotated_on_device: bool = False,
) -> _Outcome:
    """Compile, the second time with CUDA's own headers where the first missed one."""
    expressions = {name: _as_cpp(name) for name in job.names}
    options = [*job.options, f"--pre-include={_PRELUDE}"]
    options += ["--diag-suppress=47"]  # CUDA's headers define the prelude's macros once more
    options += ["--device-int128"] if os.name == "posix" else []
    options += ["-default-device"] if unannotated_on_device else []
    options += ["--ptxas-options=-v"] if job.machine_code else []
    # What comes from the cache of a driver's NVRTC comes without ptxas' report.
    options += ["--no-cache"] if job.machine_code and nvrtc.version >= (13, 0) else []
    options += [f"--include-path={folder}" for folder in job.include_dirs]
    options += [f"--pre-include={_DEFINES}"]
    headers = {**dict(_headers(forward=False)), **(beside or {}), _DEFINES: job.macros}
    folder: Path | None = None
    try:
        ptx, log, lowered = nvrtc.compile(source, job.filename, options, headers, list(expressions.values()))
    except _RefusedError as refused:
        folder = nvrtc.headers if _MISSING.search(refused.log) or '"std"' in refused.log else None
        if folder is None:
            raise _name_error(refused, job) from None
        # Once more with CUDA's own headers, which take a second where they are the standard library's.
        headers.update(_headers(forward=True))
        headers.update(beside or {})
        options += [f"--include-path={folder}", f"--include-path={folder / 'cccl'}"]
        try:
            ptx, log, lowered = nvrtc.compile(source, job.filename, options, headers, list(expressions.values()))
        except _RefusedError as again:
            raise _name_error(again, job) from None
    compiled = Compiled(
        ptx=_users_files(ptx, job, folder),
        log=_users_path(_warnings(log), job),
        lowered={name: lowered[expression] for name, expression in expressions.items()},
        backend="nvrtc",
        version=nvrtc.version,
    )
    return _Outcome(compiled, tuple(_report(log, ptx)))


def _name_error(refused: _RefusedError, job: _Job) -> Exception:
    """A name expression that is wrong is reported at no line of the file; say which kernels there are instead."""
    errors = [line for line in refused.log.splitlines() if (head := _HEAD.match(line)) and "error" in head["kind"]]
    if errors and all(line.startswith("__nv_name_map(") for line in errors):
        for name in job.names:
            if f"#pragma nv_mangled_name {_as_cpp(name)}\n" in refused.log:
                return _no_such_name(name, job)
    return refused


def _no_such_name(name: str, job: _Job) -> UsageError:
    from cudabench.toolchain.source import parse

    listed = "; ".join(kernel.signature for kernel in parse(job.source, job.filename).kernels) or "none"
    return UsageError(f"'{name}' names no kernel of {job.filename}, or more than one: it has {listed}.")


def _libraries() -> Iterator[str]:
    """Where NVRTC may lie, best first."""
    if sys.platform == "win32":
        for folder in _wheel_folders():
            yield from sorted((str(path) for path in folder.rglob("nvrtc64_*_0.dll")), reverse=True)
        for root in _toolkits():
            yield from sorted((str(path) for path in (root / "bin").rglob("nvrtc64_*_0.dll")), reverse=True)
        yield from ("nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
        return
    found = [path for folder in _wheel_folders() for path in folder.glob("lib/libnvrtc.so.*")]
    yield from map(str, sorted(found, key=_soversion, reverse=True))
    for root in _toolkits():
        found = [path for lib in ("lib64", "lib", "targets/*/lib") for path in root.glob(f"{lib}/libnvrtc.so.*")]
        yield from map(str, sorted(found, key=_soversion, reverse=True))
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _soversion(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.name))


def _wheel_folders() -> list[Path]:
    """The folders of NVIDIA's wheels: nvidia/cu13, nvidia/cuda_nvrtc, nvidia/cuda_runtime, ..."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = list(found.submodule_search_locations or ()) if found else []
    folders = [folder for root in roots if os.path.isdir(root) for folder in Path(root).iterdir() if folder.is_dir()]
    return sorted(folders, reverse=True)


def _toolkits() -> list[Path]:
    """The roots of installed CUDA toolkits: those of the environment and of the nvcc on PATH."""
    roots = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    roots += [_root_of(nvcc)] if nvcc else []
    return [Path(root) for root in dict.fromkeys(roots) if root and os.path.isdir(root)]


@functools.lru_cache(maxsize=4)
def _root_of(nvcc: str) -> str:
    """The toolkit that an nvcc belongs to; the one on PATH may be a script that calls it."""
    try:
        done = subprocess.run([nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    top = re.search(r"^#\$ TOP=(.+)$", done.stderr, re.M)
    return os.path.realpath(top[1].strip()) if top else os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))


def _header_folders() -> Iterator[Path]:
    for folder in [*_wheel_folders(), *_toolkits()]:
        yield folder / "include"
        yield from folder.glob("targets/*/include")


def _cache_folder() -> Path:
    """The user's cache folder for this tool, by the platform's custom."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache"))
    return Path(base) / "cudabench"


# ------------------------------------------------------------------------------------------- headers that NVRTC lacks

# nvcc includes cuda_runtime.h, and by it parts of the C library, in front of every file. Kernels rely on it.
_PRELUDE = "cudabench_prelude.h"
_DEFINES = "cudabench_defines.h"
_INTEGERS = "".join(
    f"typedef {sign}{base} {'u' if sign else ''}int{infix}{bits}_t;\n"
    for bits, base in (
        (8, "char"),
        (16, "short"),
        (32, "int"),
        (64, "long long"),
    )  # 64: as CUDA's own headers under NVRTC
    for infix in ("", "_least", "_fast")
    for sign in ("", "unsigned ")
).replace("typedef char", "typedef signed char")
_LIMITS = """
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#define LONG_MIN ((long)LLONG_MIN)
#define LONG_MAX ((long)LLONG_MAX)
#define ULONG_MAX ((unsigned long)ULLONG_MAX)
"""
_FLOATS = """
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_EPSILON 1.19209289550781250e-07f
#define FLT_MIN 1.17549435082228751e-38f
#define FLT_MAX 3.40282346638528860e+38f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_EPSILON 2.22044604925031308e-16
#define DBL_MIN 2.22507385850720138e-308
#define DBL_MAX 1.79769313486231571e+308
"""
_FIXED = "".join(
    f"#define INT{bits}_MAX {most}{'ll' if bits == 64 else ''}\n"
    f"#define INT{bits}_MIN (-{most}{'ll' if bits == 64 else ''} - 1)\n"
    f"#define UINT{bits}_MAX {2 * most + 1}{'ull' if bits == 64 else 'u' if bits == 32 else ''}\n"
    for bits, most in ((8, 2**7 - 1), (16, 2**15 - 1), (32, 2**31 - 1), (64, 2**63 - 1))
)
_MATHS = """
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define INFINITY __int_as_float(0x7f800000)
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ll)
#define NAN __int_as_float(0x7fffffff)
"""
_STANDARD_MATHS = """
abs fabs sqrt cbrt hypot exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh
acosh atanh erf erfc tgamma lgamma ceil floor trunc round rint nearbyint fmod remainder fma fmin fmax fdim copysign
ldexp frexp modf isnan isinf isfinite signbit"""
_TYPES = """typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
"""


_MAX_HEADERS = 64  # beside a source: more are no single kernel's

# Headers of which a kernel can use nothing, or nothing that the prelude does not have.
_HOST_ONLY = """
cuda.h cuda_runtime.h cuda_runtime_api.h cuda_device_runtime_api.h device_launch_parameters.h device_functions.h
device_atomic_functions.h builtin_types.h driver_types.h vector_functions.h math_functions.h host_defines.h
cuda_profiler_api.h nvToolsExt.h curand.h cublas_v2.h cusparse.h cufft.h cusolverDn.h omp.h
stdio.h cstdio stdlib.h cstdlib string.h cstring assert.h cassert time.h ctime stddef.h stdbool.h
stdint.h limits.h float.h math.h cstdint climits cfloat cmath cstddef errno.h cerrno signal.h unistd.h getopt.h fcntl.h
sys/time.h sys/types.h sys/stat.h sys/mman.h
iostream fstream sstream iomanip ostream istream string string_view vector map set unordered_map unordered_set
list deque queue stack memory chrono random thread mutex atomic condition_variable future stdexcept exception
cstdarg stdarg.h filesystem optional variant any regex new typeinfo cinttypes inttypes.h locale bitset iosfwd complex"""
# Headers whose device half CUDA's own library has under another name.
_FORWARDED = """
algorithm array bit concepts functional initializer_list iterator limits numeric ratio tuple type_traits utility"""


@functools.lru_cache(maxsize=2)
def _headers(forward: bool) -> tuple[tuple[str, str], ...]:
    """The in-memory headers; `forward` where CUDA's library headers may be taken in place of the host's."""
    texts = dict.fromkeys(_HOST_ONLY.split(), "// Nothing of this header is for device code.\n")
    for name in _FORWARDED.split():
        texts[name] = f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" if forward else ""
    members = [*_STANDARD_MATHS.split(), *re.findall(r"(\w+_t);", _INTEGERS), "size_t", "ptrdiff_t"]
    standard = "namespace std {\n" + "".join(f"using ::{member};\n" for member in members) + "}\n"
    # Each macro guarded, so that a file may define its own.
    macros = re.sub(r"^(#define (\w+).*)$", r"#ifndef \2\n\1\n#endif", _FIXED + _LIMITS + _FLOATS + _MATHS, flags=re.M)
    texts[_PRELUDE] = _INTEGERS + _TYPES + macros + standard
    return tuple(texts.items())


# ----------------------------------------------------------------------------------------------------------- host code

_DEVICE_WORDS = {"__global__", "__device__", "__constant__", "__shared__", "__managed__", "constexpr", "consteval"}
# Of the host's runtime and libraries; a class or variable that speaks of them is none of a kernel's.
_HOST_WORD = re.compile(
    r"cu(da|blas|fft|rand|sparse|solver|dnn)[A-Z]\w*|(vector|string|map|ostream|thread|chrono|nullopt)$"
)


def without_host_code(source: str) -> str:
    """Blank out the host's part of a file, keeping every line where it is.

    That are functions at namespace scope without `__global__`, `__device__` or constexpr, and without a macro of the
    file that writes one of them; and classes and variables without these that use the host's runtime or library.
    Methods of other classes stay: they are compiled for the device.
    """
    from cudabench.toolchain.source import declarations

    text = source
    for declaration in declarations(source):
        hosts = declaration.function or any(map(_HOST_WORD.match, declaration.words))
        if hosts and not _DEVICE_WORDS & declaration.words:
            span = slice(declaration.start, declaration.end)
            text = text[: span.start] + re.sub(r"[^\n]", " ", text[span]) + text[span.stop :]
    return text


# ---------------------------------------------------------------------------------------------------------------- nvcc

_NAME_PREFIX = "_Z16cudabench_name_"


@functools.lru_cache(maxsize=1)
def _nvcc() -> str | None:
    """nvcc, if the host compiler that it calls is there too."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        beside = [root / "bin" / "nvcc" for root in (*_toolkits(), *_wheel_folders())]
        nvcc = next((str(path) for path in beside if os.access(path, os.X_OK)), None)
    host = os.environ.get("NVCC_CCBIN") or shutil.which("cl" if sys.platform == "win32" else "gcc")
    return nvcc if host else None


def _with_nvcc(job: _Job) -> _Outcome:
    nvcc = _nvcc()
    if nvcc is None:
        raise DeviceUnusable("nvcc or its host compiler is not on PATH: install the CUDA toolkit and g++.")
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        source, ptx_file = os.path.join(folder, "source.cu"), os.path.join(folder, "source.ptx")
        quoted = job.filename.replace("\\", "\\\\").replace('"', '\\"')
        with open(source, "w", encoding="utf-8") as stream:
            stream.write(f'{job.macros}#line 1 "{quoted}"\n{job.source}\n{name_queries(job.names)}')
        command = [nvcc, source, "-ptx", "-o", ptx_file, *job.options]
        command += [f"-I{include}" for include in job.include_dirs]
        log = _run(command, job, folder)
        with open(ptx_file, encoding="utf-8", errors="replace") as stream:
            ptx = stream.read()
        report: tuple[tuple[str, Resources], ...] = ()
        if job.machine_code:
            # From the PTX rather than the source: the same code, and no second run of the host's preprocessor.
            cubin = os.path.join(folder, "source.cubin")
            ptxas_log = _run([nvcc, ptx_file, "-cubin", "-o", cubin, job.options[0], "-Xptxas=-v"], job, folder)
            report = tuple(_report(ptxas_log, ptx))
    ptx = _users_files(ptx, job)
    lowered = match_entries(job.names, _ENTRY.findall(ptx))
    for name in job.names:
        if name not in lowered:
            raise _no_such_name(name, job)
    ptx = re.sub(r'^\s*\.file\s+\d+\s+"[^"]*cudabench-names"[^\n]*\n', "", ptx, flags=re.M)
    ptx = re.sub(rf"^[^\n]*\.entry {_NAME_PREFIX}[^{{]*\{{.*?^\}}\n", "", ptx, flags=re.M | re.S)
    version = nvcc_version() or (0, 0)
    return _Outcome(Compiled(ptx, _users_path(_warnings(log), job), lowered, "nvcc", version), report)


def name_queries(names: Sequence[str]) -> str:
    """Return source text to append, an empty kernel for each C++ name of a kernel; it instantiates templates.

    The mangled name of such a kernel holds that of the kernel that it asks for, in its parameter's type;
    `match_entries` reads it.
    """
    if not names:
        return ""
    lines = ['#line 1 "cudabench-names"', "template <auto> struct cudabench_tag;"]
    lines += [
        f"__global__ void cudabench_name_{index}(cudabench_tag<({_as_cpp(name)})>*) {{}}"
        for index, name in enumerate(names)
    ]
    return "\n".join(lines) + "\n"


def match_entries(names: Sequence[str], entries: Sequence[str]) -> dict[str, str]:
    """Return the entry of each name, out of those of a file that was compiled with `name_queries`.

    Mangling counts back-references (S_, S0_, ...) from the start of the whole name, so inside the query they are other
    numbers than in the entry's own: they are compared without. A name that has no entry of its own is left out.
    """
    own = [entry for entry in entries if not entry.startswith(_NAME_PREFIX)]
    found = {}
    for index, name in enumerate(names):
        pattern = rf"{_NAME_PREFIX}{index}P13cudabench_tagIX(?:ad)?L(_Z\w+)EEE$"
        query = next((match[1] for entry in entries if (match := re.match(pattern, entry))), None)
        if query is None:
            continue
        wanted = re.sub(r"S[0-9A-Z]*_", "S_", query)
        fitting = [entry for entry in own if re.sub(r"S[0-9A-Z]*_", "S_", entry) == wanted]
        plain = re.match(r"_Z(\d+)(\w+)", query)
        if not fitting and plain:  # extern "C": the entry has no mangling of its own
            fitting = [entry for entry in own if entry == plain[2][: int(plain[1])]]
        if len(fitting) == 1:
            found[name] = fitting[0]
    return found


def _run(command: Sequence[str], job: _Job, folder: str) -> str:
    """Run nvcc and return its output; its temporary files are not the user's business."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, errors="replace")
    except OSError as error:
        raise DeviceUnusable(f"{command[0]} cannot be run: {error.strerror}.") from None
    log = (done.stderr + done.stdout).replace(os.path.join(folder, "source.cu"), job.filename)
    if done.returncode == 0:
        return log
    if "cudabench-names" in log:
        bad = re.search(r"cudabench-names\((\d+)\)", log)
        others = [line for line in log.splitlines() if _HEAD.match(line) and "cudabench-names" not in line]
        if bad and not any("error" in line for line in others):
            raise _no_such_name(job.names[min(max(int(bad[1]) - 2, 0), len(job.names) - 1)], job)
    if re.search(r"Unsupported gpu architecture|not defined for option 'gpu-architecture'", log):
        listed = ", ".join(supported_architectures("nvcc"))
        raise UsageError(f"sm_{job.arch}: nvcc does not compile for this architecture: choose one of {listed}.")
    raise CompilerError(_diagnostics(log, job))
