"""Builds the native libraries from `native/` with the machine's C++ compiler, and loads them.

There are two libraries: the simulator's engine, built from the files in `native/`, and the CUDA runtime with which
`cudabench exec` links programs, built from the files in `native/programs` and linked once for each supported version of
CUDA.

The build hook of the package, hatch_build.py, loads this file by its path, when the package cannot be imported yet. So
this file imports other modules of the package only inside functions. A library contains its key: a hash of its sources
and options. An install puts the libraries into the package; a run that builds a library puts it into the cache.
Environment variables: CUDABENCH_NATIVE_LIBRARY names another library to use; with CUDABENCH_ENGINE=numpy the engine is
not used, with CUDABENCH_ENGINE=native a run without it is an error.

    python -m cudabench.system.native [--sanitize] [FOLDER]      # builds both by hand
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import subprocess

OPTIONS = (
    "-std=c++17", "-O2", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden",
    "-Wall", "-Wextra",
)  # fmt: skip
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1")
# Levels of x86-64 instruction sets, each with compiler options. A library for this processor alone is compiled for the
# highest level that the processor has. A library for other machines too has the _simd files once for each level. Their
# object files are linked in the order of the levels: the linker keeps only the first copy of an inline function, and
# that copy must run on every machine.
LEVELS = {
    "base": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma"),
}
# Compiler options for the _simd files, so that their loops become vector instructions.
SIMD = ("-O3", "-fno-math-errno", "-fno-trapping-math")
PACKAGE = Path(__file__).parent.parent
INSTALLED = PACKAGE / "_native"
NAME = "libcudabench.dylib" if sys.platform == "darwin" else "libcudabench.so"
RUNTIMES = ("libcudart.so.12", "libcudart.so.13")  # the files' names, which are also the versions of their symbols
TRACE = "libcudabench_trace.so"  # the driver loads this library into programs on a GPU, to record launches
BY_HAND = "python -m cudabench.system.native"
LIBRARY_VARIABLE = "CUDABENCH_NATIVE_LIBRARY"
MOST_SECONDS = 900  # the time limit of the whole build
MOST_CACHED = 8  # the cache keeps libraries of this many different sources


class NotBuilt(Exception):
    """The library is missing. `problem`: the reason; `repair`: what to do; `log`: the compiler's output."""

    def __init__(self, problem: str, repair: str, log: str = "") -> None:
        super().__init__(problem, repair)
        self.problem, self.repair, self.log = problem, repair, log

    def __str__(self) -> str:
        return f"{self.problem}: {self.repair}"


class NotYetBuilt(NotBuilt):
    """The library can be built, but was not built yet."""


class CompilerFailed(NotBuilt):
    """The compiler failed, and would fail again."""


# Building ------------------------------------------------------------------------------------------------------------


def source_folder() -> Path:
    """Return the folder of the C++ files: inside the package if it was installed, at the top level of a checkout."""
    packaged = PACKAGE / "native"
    return packaged if packaged.is_dir() else PACKAGE.parent / "native"


def sources(folder: Path | None = None) -> list[Path]:
    """Return the C++ files of a folder, by default of `native/`, without the files in its subfolders."""
    return sorted((folder or source_folder()).glob("*.cpp"))


def key(folder: Path | None = None, *, sanitize: bool = False, level: str = "") -> str:
    """Return the key of the library that is built from a folder's files: a hash of sources, headers, options and
    machine.

    `level`: the level that the processor must have, '' for a library that runs on every processor.
    """
    folder = folder or source_folder()
    options = OPTIONS, LEVELS, SIMD, sanitize and SANITIZE, level
    digest = hashlib.sha256(repr((sys.platform, _machine(), *options)).encode())
    for path in sorted(path for suffix in ("cpp", "hpp", "inc") for path in folder.glob(f"*.{suffix}")):
        digest.update(f"\n{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def compiler() -> list[str]:
    """Return the command of the machine's C++ compiler. Raises NotBuilt without a compiler."""
    import shlex
    import shutil

    if os.name == "nt":
        raise NotBuilt("Windows has no native engine", "use WSL")
    chosen, install = os.environ.get("CXX", "").strip(), "install one, as with apt install g++ or dnf install gcc-c++"
    try:
        names = [shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]
    except ValueError:
        raise NotBuilt(f"CXX is {chosen}, whose quotation marks do not match", "name a C++ compiler") from None
    for name, *options in names:
        if path := shutil.which(name):
            return [path, *options]
    raise NotBuilt(f"there is no {chosen}, which CXX names" if chosen else "there is no C++ compiler", install)


def build(folder: Path, source: Path | None = None, *, sanitize: bool = False, everywhere: bool = False) -> Path:
    """Return the path of the engine in a folder; build the engine first if the folder has no engine with the right key.

    `everywhere`: whether to compile for all x86-64 processors, not only for this one. Raises NotBuilt.
    """
    source = source or source_folder()
    return _built(folder, source, (NAME,), sanitize=sanitize, level="" if everywhere or sanitize else _level())[0]


def build_runtimes(folder: Path) -> list[Path]:
    """Return the paths of the CUDA runtimes in a folder; build them first if needed, like `build`. Raises NotBuilt."""
    return _built_for_programs(folder, "programs", RUNTIMES)


def build_trace(folder: Path) -> Path:
    """Return the path of the trace library in a folder; build it first if needed, like `build`. Raises NotBuilt."""
    return _built_for_programs(folder, "trace", (TRACE,))[0]


def _built_for_programs(folder: Path, part: str, names: Sequence[str]) -> list[Path]:
    if sys.platform != "linux":
        raise NotBuilt("programs run only on Linux", "use Linux, or WSL")
    return _built(folder, source_folder() / part, names)


def _built(folder: Path, source: Path, names: Sequence[str], *, sanitize: bool = False, level: str = "") -> list[Path]:
    import tempfile

    source, folder = source.absolute(), folder.absolute()
    libraries = [folder / name for name in names]
    if not sources(source):
        raise NotBuilt(f"{source} has no C++ files", "install cudabench again")
    library_key = key(source, sanitize=sanitize, level=level)
    if all(_contains(library, library_key) for library in libraries):
        return libraries
    command = compiler()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder), tempfile.TemporaryDirectory() as work:
            # Another process may have built the libraries in the meantime.
            if not all(_contains(library, library_key) for library in libraries):
                new = [folder / f".{os.getpid()}-{name}" for name in names]
                try:
                    alone = bool(level) or sanitize or _machine() != "x86_64"
                    levels = {"base": LEVELS[level or "base"]} if alone else LEVELS
                    _compile(command, source, [*OPTIONS, *SANITIZE * sanitize], levels, library_key, Path(work), new)
                    for built, target in zip(new, libraries, strict=True):
                        os.replace(built, target)
                finally:
                    for built in new:
                        built.unlink(missing_ok=True)
    except OSError as error:
        repair = f"name another folder by CUDABENCH_CACHE, or build it with {BY_HAND}"
        raise NotBuilt(f"{error.filename or folder} cannot be written ({error.strerror})", repair) from None
    return libraries


def _machine() -> str:
    name = os.uname().machine.lower() if hasattr(os, "uname") else ""
    return "x86_64" if name == "amd64" else name


def _level() -> str:
    """Return the highest level of instruction sets that the processor has; '' if it has none, or if the system does not
    list the processor's features."""
    features = _features()
    if _machine() != "x86_64" or features is None:
        return ""
    return [
        level for level, options in LEVELS.items() if {option.removeprefix("-m") for option in options} <= features
    ][-1]


@functools.cache
def _features() -> set[str] | None:
    """Return the processor's features, such as 'avx2'; None if the system does not list them."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((set(line.split()) for line in lines if line.startswith("flags")), None)
    return None


def _contains(library: Path, library_key: str) -> bool:
    """Return whether a library exists and contains a key."""
    with contextlib.suppress(OSError):
        return library_key.encode() in library.read_bytes()
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Context that only one process at a time can enter for a folder, if the folder's file system has locks."""
    with open(folder / ".lock", "w") as lock:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(
    command: Sequence[str],
    source: Path,
    options: list[str],
    levels: Mapping[str, Sequence[str]],
    library_key: str,
    work: Path,
    libraries: Sequence[Path],
) -> None:
    """Compile the _simd files for each level and all other files for the first level, and link the object files to each
    of `libraries`.

    A generated file adds a function to the library that returns its key.
    """
    key_source = work / "key.cpp"
    visible = '__attribute__((visibility("default")))'
    key_source.write_text(f'extern "C" {visible} const char *cudabench_native_key() {{ return "{library_key}"; }}\n')
    sanitized = "-g" in options
    options += [f"-DHAVE_{level.upper()}" for level in levels if level != "base"]
    jobs, objects = [], []
    for level, flags in levels.items():
        for path in [key_source, *sources(source)]:
            if level == "base" or path.stem.endswith("_simd"):
                objects.append(str(work / f"{path.stem}.{level}.o"))
                name = path.name if path.parent == source else str(path)
                # With sanitizers, -O3 would make the build 50% slower.
                simd = SIMD[sanitized:] * path.stem.endswith("_simd")
                jobs.append([*command, *options, *simd, *flags, f"-DLEVEL={level}", "-c", name, "-o", objects[-1]])
    _run(jobs, source)
    # Link the C++ library statically, because Python may have loaded a C++ library that is too old for this compiler,
    # such as conda's.
    static_options = ["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"]
    for library in libraries:
        link = [*command, *options, "-shared", *objects, *_versioned(library, work), "-o", str(library)]
        try:
            _run([[*link, *static_options * (sys.platform != "darwin" and not sanitized)]], source)
        except CompilerFailed:
            _run([link], source)  # if the link failed: the static C++ library may be missing


def _versioned(library: Path, work: Path) -> list[str]:
    """Return the linker's options with which the symbols of a CUDA runtime get the runtime's file name as their
    version; [] for the engine."""
    name = library.name.partition("-")[2]
    if name not in RUNTIMES:
        return []
    script = work / f"{name}.map"
    script.write_text(f"{name} {{ global: cuda*; __cuda*; local: *; }};\n")
    return [f"-Wl,-soname,{name}", f"-Wl,--version-script={script}", "-ldl"]


def _run(commands: Sequence[Sequence[str]], folder: Path) -> None:
    """Run commands, as many at a time as there are processors. Raises CompilerFailed with the first error."""
    import subprocess
    import tempfile

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    running: dict[subprocess.Popen[bytes], tuple[Sequence[str], IO[bytes]]] = {}
    pending, end, logs = [*commands], time.monotonic() + MOST_SECONDS, contextlib.ExitStack()
    try:
        while pending or running:
            while pending and len(running) < processors:
                log: IO[bytes] = logs.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
                words = pending.pop(0)
                try:
                    process = subprocess.Popen(
                        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
                    )
                except OSError as error:
                    problem = f"{words[0]} does not run ({error.strerror})"
                    raise CompilerFailed(problem, "name another C++ compiler by CXX") from None
                running[process] = words, log
            for process in [process for process in running if process.poll() is not None]:
                words, log = running.pop(process)
                log.seek(0)
                text = log.read().decode(errors="replace")
                if process.returncode:
                    lines = [line for line in text.splitlines() if line.strip()]
                    status = f"it ended with status {process.returncode}"
                    message = next((line for line in lines if "error" in line), lines[-1] if lines else status)
                    raise CompilerFailed(
                        f"{words[0]} failed ({message[:400]})", f"see {BY_HAND}, or name another by CXX", text
                    )
            if time.monotonic() > end:
                raise CompilerFailed(f"the C++ compiler took over {MOST_SECONDS} s", f"try {BY_HAND}")
            time.sleep(0.01)
    finally:
        logs.close()
        for process in running:
            with contextlib.suppress(OSError):  # raised if the process has just ended
                os.killpg(process.pid, signal.SIGKILL)  # kill the process and the processes that it started
            process.wait()


# Loading -------------------------------------------------------------------------------------------------------------


def chosen_engine() -> Literal["automatic", "native", "numpy"]:
    """Return the engine that CUDABENCH_ENGINE chooses. Raises UsageError for another word."""
    engine = os.environ.get("CUDABENCH_ENGINE", "")
    if engine in ("native", "numpy"):
        return engine  # type: ignore[return-value]
    if engine:
        from cudabench.errors import UsageError

        raise UsageError(f"CUDABENCH_ENGINE={engine} is not an engine: set it to native or numpy, or unset it.")
    return "automatic"


def library() -> ctypes.CDLL | None:
    """Load the native engine and return it; build it first if needed.

    Returns None if CUDABENCH_ENGINE is numpy, or if the engine cannot be built; a message then says so, once. Raises
    DeviceUnusable if it cannot be built and the environment requests it.
    """
    engine = chosen_engine()
    if engine == "numpy":
        return None
    engine_library = _loaded(at_need=True)
    if isinstance(engine_library, ctypes.CDLL):
        return engine_library
    if engine == "native" or LIBRARY_VARIABLE in os.environ:
        from cudabench.errors import DeviceUnusable

        raise DeviceUnusable(f"The native engine is missing: {engine_library}.")
    _print_once(f"The simulator runs without its native engine, up to 20 times slower: {engine_library}.")
    return None


def unavailable() -> NotBuilt | None:
    """Return the reason why the native engine is not used, or None if it is used; this function does not build the
    engine."""
    if chosen_engine() == "numpy":
        return NotBuilt("CUDABENCH_ENGINE is numpy", "unset it")
    engine_library = _loaded(at_need=False)
    return engine_library if isinstance(engine_library, NotBuilt) else None


def unavailable_text() -> str:
    """Return the reason why the native engine is not used, and the repair, as text; '' if it is used."""
    return str(unavailable() or "")


@functools.cache
def _print_once(line: str) -> None:
    """Print a message to standard error; each message only once."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


_attempts: dict[str | None, ctypes.CDLL | NotBuilt] = {}


def _loaded(*, at_need: bool) -> ctypes.CDLL | NotBuilt:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named not in _attempts or (at_need and isinstance(_attempts[named], NotYetBuilt)):
        _attempts[named] = _load(named, at_need)
    return _attempts[named]


def _load(named: str | None, at_need: bool) -> ctypes.CDLL | NotBuilt:
    try:
        try:
            path = _existing(named)
        except NotYetBuilt:
            if not at_need:
                raise
            path = _built_at_need()
        return ctypes.CDLL(str(path))
    except NotBuilt as error:
        return error
    except OSError as error:
        return NotBuilt(f"its library does not load ({error})", f"build it again with {BY_HAND}")


def _existing(named: str | None) -> Path:
    """Return the path of an existing library: the one that the environment variable names, or the one in the install or
    the cache.

    Raises NotYetBuilt if the library does not exist but can be built, and NotBuilt if it cannot be built.
    """
    if named:
        keys = {key(), key(level=_level()), key(sanitize=True)}
        if any(_contains(Path(named), library_key) for library_key in keys):
            return Path(named)
        raise NotBuilt(
            f"{LIBRARY_VARIABLE}={named} is not a library of this version's sources", f"build it with {BY_HAND} FOLDER"
        )
    keys, cached = {key(), key(level=_level())}, _cached()  # for every processor, or for this one
    for folder in [INSTALLED, cached]:
        if folder and any(_contains(folder / NAME, library_key) for library_key in keys):
            return folder / NAME
    command = compiler()
    if cached is None:
        raise NotBuilt("CUDABENCH_CACHE is off, so that a run does not build it", f"build it with {BY_HAND}")
    with contextlib.suppress(OSError, ValueError, KeyError):
        import json

        note = json.loads((cached / "failed.json").read_text())
        if note["compiler"] == _identity(command):
            raise NotBuilt(note["problem"], note["repair"])
    raise NotYetBuilt("it is not built yet", f"the next run in the simulator builds it, or {BY_HAND}")


def _cached(source: Path | None = None) -> Path | None:
    """Return the folder in the cache for the library from these sources; None without a cache."""
    from cudabench.system.folders import cache_folder

    folder = cache_folder()
    return folder and folder / "native" / key(source, level="" if source else _level())[:16]


def runtimes(*, at_need: bool = True) -> Path:
    """Return the folder with the CUDA runtimes for programs; build them first if needed.

    Raises NotBuilt if they cannot be built; without `at_need`, raises NotYetBuilt instead of building them.
    """
    return _for_programs("programs", RUNTIMES, at_need, "CUDA runtime of programs once, about 30 s")


def trace() -> Path:
    """Return the path of the library that records the launches of a program on a GPU; build it first if needed.

    Raises NotBuilt if it cannot be built.
    """
    return _for_programs("trace", (TRACE,), True, "recorder of launches once") / TRACE


def _for_programs(part: str, names: Sequence[str], at_need: bool, shown: str) -> Path:
    """Return the folder with libraries that are loaded into programs: `names`, made from the sources in `part`."""
    source = source_folder() / part
    library_key, cached = key(source), _cached(source)
    for folder in [INSTALLED, cached]:
        if folder and all(_contains(folder / name, library_key) for name in names):
            return folder
    compiler()
    if cached is None:
        raise NotBuilt("CUDABENCH_CACHE is off, so that a run does not build it", f"build it with {BY_HAND}")
    if not at_need:
        raise NotYetBuilt("it is not built yet", f"the next cudabench exec builds it, or {BY_HAND}")
    _print_once(f"Building the {shown} ...")
    return _built_for_programs(cached, part, names)[0].parent


def _built_at_need() -> Path:
    """Build the engine into the cache and return its path. A failure is recorded in the cache, so that later commands
    do not try to build it again."""
    import json
    import shutil

    folder = _cached()
    assert folder is not None, "without a cache nothing is built"
    if sys.stderr is None:  # without stderr, the user cannot be told why the command waits
        raise NotYetBuilt("it is not built yet", f"build it with {BY_HAND}")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        _print_once("Building the simulator's native engine once, about 30 s ...")
    try:
        engine = build(folder)
    except CompilerFailed as error:
        if not _memory_is_bounded():
            note = {"compiler": _identity(compiler()), "problem": error.problem, "repair": error.repair}
            with contextlib.suppress(OSError):
                (folder / "failed.json").write_text(json.dumps(note))
        raise
    with contextlib.suppress(OSError):
        libraries = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in libraries[:-MOST_CACHED]:
            shutil.rmtree(old, ignore_errors=True)
    return engine


def _memory_is_bounded() -> bool:
    """Return whether this process has a memory limit; such a limit may be the reason why the compiler failed."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _identity(command: Sequence[str]) -> list[str]:
    """Return texts that identify a compiler and its version: the command, and the size and modification time of the
    compiler's file."""
    file = os.stat(command[0])
    return [*command, str(file.st_size), str(file.st_mtime_ns)]


def main() -> int:
    """Build by hand: print the paths of the libraries, or the compiler's log."""
    import argparse

    parser = argparse.ArgumentParser(prog=BY_HAND, description="Build the native libraries.")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=INSTALLED, help="target folder, by default in the package"
    )
    parser.add_argument("--sanitize", action="store_true", help="with AddressSanitizer and UndefinedBehaviorSanitizer")
    options = parser.parse_args()
    try:
        with contextlib.suppress(OSError):
            for name in (NAME, *RUNTIMES, TRACE):
                # Delete the library: a file that fails to load may still have the right key.
                (options.folder / name).unlink(missing_ok=True)
        print(build(options.folder, sanitize=options.sanitize, everywhere=True))
        if sys.platform == "linux" and not options.sanitize and sources(source_folder() / "programs"):
            print(*build_runtimes(options.folder), build_trace(options.folder), sep="\n")
    except NotBuilt as error:
        print(f"{error.log}\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
