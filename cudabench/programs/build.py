"""Compiles programs with nvcc so that `exec` can run them, caches them, and reports what an existing program lacks.

A program must be linked with the CUDA runtime as a shared library, because exec replaces this library. Its device code
must not be compressed, and must contain PTX for the simulator, machine code for the card, and line information.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudabench.compile import nvcc, toolkit
from cudabench.compile.cache import put
from cudabench.errors import (
    CompilerError,
    CudabenchError,
    DeviceUnusable,
    UnsupportedFeature,
    UsageError,
    no_such_file,
)
from cudabench.system.folders import cache_folder

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
CONSTEXPR = "--expt-relaxed-constexpr"  # many makefiles pass this option, and it costs no time
# Options that a program may need and that cost time or change its code; each with nvcc's messages that ask for it, and
# the number of source files from which on it can help.
NEEDED = {
    "--extended-lambda": (re.compile("extended-lambda"), 1),
    "-rdc=true": (re.compile(r"(?i)unresolved extern|cannot take address of function"), 2),
}
_DEVICE_LAMBDA = re.compile(r"\]\s*(?:\([^()]*\)\s*)?__(?:device|host)__")
MOST_CACHED = 64  # the maximum number of compiled programs in the cache
STATIC_REPAIR = "build it with cudabench-nvcc, or by nvcc with -cudart shared"


def program_nvcc() -> str:
    """Return the path of nvcc. Raises DeviceUnusable if nvcc or its host compiler is missing."""
    compiler = toolkit.nvcc()
    if compiler is None:
        what = "nvcc's host compiler" if toolkit.host_compiler() is None else "nvcc"
        raise DeviceUnusable(
            f"{what} is missing, so programs cannot be compiled: install g++ and the CUDA toolkit, or "
            "`pip install cudabench[program]`."
        )
    return compiler


def options(architectures: Sequence[str], given: Sequence[str] = ()) -> list[str]:
    """Return the options to add to an nvcc command.

    `given`: the command's own options. `architectures`: the architectures to compile for, such as sm_90; used only if
    `given` names no architecture.
    """
    added = ["-lineinfo", "--no-compress"]
    if not any(re.match(r"(-cudart|--cudart)\b", word) for word in given):
        added += ["-cudart", "shared"]
    if not any(re.match(r"-g$|--debug$|-pg$", word) for word in given):
        added.append("-g")
    if any(re.match(r"(-G|--device-debug)$", word) for word in given):
        added.remove("-lineinfo")
    named = r"(-arch|--gpu-architecture|-gencode|--generate-code|-code|-ptx|--ptx|-cubin|--cubin)\b"
    if not any(re.match(named, word) for word in given):
        numbers = sorted(
            {name.removeprefix("sm_") for name in architectures}, key=lambda number: int(re.sub(r"\D", "", number))
        )
        codes = ",".join([f"compute_{numbers[0]}", *(f"sm_{number}" for number in numbers)])
        added += ["-gencode", f"arch=compute_{numbers[0]},code=[{codes}]"]
    return added


def libraries() -> list[str]:
    """Return an option -L for a folder with libcudart.so if nvcc's wheel has only libcudart.so.VERSION, else []."""
    folder = Path(program_nvcc()).resolve().parent.parent / "lib"
    link = _link_folder(folder) if folder.is_dir() else None
    return [] if link is None else [f"-L{link}"]


def _link_folder(folder: Path) -> Path | None:
    """Return a folder of the cache with a link libcudart.so to the library; None if it is not needed or not
    possible."""
    library = next(iter(sorted(folder.glob("libcudart.so.*"))), None)
    cache = cache_folder()
    if library is None or (folder / "libcudart.so").exists() or cache is None:
        return None
    link = cache / "links" / hashlib.sha256(str(library).encode()).hexdigest()[:16] / "libcudart.so"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(library)
    return link.parent


def build_program(files: Sequence[str], architectures: Sequence[str], words: Sequence[str], folder: Path) -> Path:
    """Return the path of the program that these source files make; compile it if the cache lacks it.

    `words`: options for nvcc. `folder`: where the program is put if the cache is off. Raises CompilerError with the
    compiler's messages, and DeviceUnusable without nvcc.
    """
    for file in files:
        if not Path(file).is_file():
            if not file.endswith(SOURCES):
                raise UsageError(f"{file} is not a source file: write the program's arguments after --.")
            raise no_such_file(file, "*.cu")
    compiler = program_nvcc()
    texts = [Path(file).read_text(encoding="utf-8", errors="replace") for file in files]
    headers = [f"-I{path}" for path in toolkit.device_library_headers(*texts)]
    lambdas = ["--extended-lambda"] * any(map(_DEVICE_LAMBDA.search, texts))
    line = [*words, *headers, CONSTEXPR, *lambdas, *options(architectures, words)]
    cache = cache_folder()
    programs = None if cache is None else cache / "programs"
    key = hashlib.sha256(
        repr((os.getcwd(), files, line, compiler, os.stat(compiler).st_mtime_ns, nvcc.version())).encode()
    ).hexdigest()
    if programs is not None and _is_current(programs / key):
        os.utime(programs / key)
        return programs / key / "program"
    target = folder if programs is None else Path(tempfile.mkdtemp(dir=_make_folder(programs)))
    try:
        _compile(compiler, files, line, target)
        if programs is None:
            return target / "program"
        shutil.rmtree(programs / key, ignore_errors=True)
        try:
            os.rename(target, programs / key)
        except OSError:  # another process has put the same program into the cache first
            return target / "program"
        _trim_cache(programs)
        return programs / key / "program"
    except BaseException:
        if programs is not None:
            shutil.rmtree(target, ignore_errors=True)
        raise


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CudabenchError(
            f"{folder} cannot be written ({error.strerror}): name another by CUDABENCH_CACHE."
        ) from None
    return folder


def _compile(compiler: str, files: Sequence[str], line: Sequence[str], target: Path) -> None:
    """Compile and link the sources; write hashes of all files that were read to read.json, for `_is_current`."""
    jobs = []
    for number, file in enumerate(files):
        obj = target / f"{number}.o"
        language = ["-x", "cu"] if not file.endswith(SOURCES) else []
        command = [compiler, *line, *language, "-c", file, "-o", str(obj), "-MMD", "-MF", str(obj.with_suffix(".d"))]
        jobs.append((file, command, obj))
    try:
        for file, command, _ in jobs:
            _run(command, file)
    except CompilerError as error:
        if "kernel launch from __device__ or __global__ functions" in str(error):
            where = str(error).partition(":")[0]
            raise UnsupportedFeature(
                f"{where}: a kernel launches another kernel (dynamic parallelism), which the simulator lacks: run the "
                "program on a GPU, or launch that kernel from the host."
            ) from None
        for needed, (asks, least) in NEEDED.items():
            if needed not in line and len(files) >= least and asks.search(str(error)):
                return _compile(compiler, files, [*line, needed], target)
        raise
    _run([compiler, *line, *libraries(), *(str(obj) for *_, obj in jobs), "-o", str(target / "program")], files[0])
    read = {path for *_, obj in jobs for path in _dependencies(obj.with_suffix(".d"))}
    marks = {path: _file_hash(path) for path in sorted({*read, *map(os.path.abspath, files)})}
    put(target / "read.json", json.dumps(marks).encode())
    for *_, obj in jobs:
        obj.unlink()
    return None


def _run(command: Sequence[str], file: str) -> None:
    done = nvcc.run(command, file)
    if done.returncode:
        log = (done.stderr + done.stdout).strip()
        if re.search(r"undefined (reference to|symbol:) [`'\"]?main\b", log):
            raise CompilerError(f"{file} has no main function: cudabench run {file} runs a file of kernels.")
        failed = nvcc.refusal(log, done.returncode, file)
        if isinstance(failed, CompilerError):
            raise failed
        raise CompilerError(log)


def _dependencies(path: Path) -> list[str]:
    """Return the absolute paths of the files that a make rule (written by nvcc -MMD) lists after the colon."""
    text = path.read_text(errors="replace").partition(":")[2].replace("\\\n", " ")
    return [os.path.abspath(word.replace("\\ ", " ")) for word in re.findall(r"(?:\\ |\S)+", text)]


def _file_hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _is_current(folder: Path) -> bool:
    """Return whether a cached program exists, and its sources and headers have not changed since it was compiled."""
    try:
        marks = json.loads((folder / "read.json").read_text())
        return (folder / "program").is_file() and all(_file_hash(path) == mark for path, mark in marks.items())
    except (OSError, ValueError, AttributeError):
        return False


def _trim_cache(folder: Path) -> None:
    others = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for old in others[:-MOST_CACHED]:
        shutil.rmtree(old, ignore_errors=True)


def check_program(program: str, *, any_runtime: bool = False) -> str:
    """Return the absolute path of a program if exec can run it. Raises UnsupportedFeature for a static CUDA runtime,
    unless `any_runtime`."""
    path = Path(program)
    if not path.is_file():
        raise no_such_file(path, "*")
    if not os.access(path, os.X_OK):
        raise CudabenchError(f"{program} is not a program: name a .cu file, or a program that may be executed.")
    if any_runtime:
        return str(path.absolute())
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as stream:
            elf = ELFFile(stream)
            dynamic = elf.get_section_by_name(".dynamic")
            tags: Any = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
            needed = [tag.needed for tag in tags]
            device_code = elf.get_section_by_name(".nv_fatbin") is not None
    except ELFError:
        return str(path.absolute())  # the program is not an ELF file; it may be a script
    if device_code and not any(name.startswith("libcudart.so") for name in needed):
        raise UnsupportedFeature(f"{program} is linked statically with a CUDA runtime: {STATIC_REPAIR}.")
    return str(path.absolute())


def run_nvcc(words: Sequence[str], architectures: Sequence[str]) -> int:
    """Run nvcc with the options that exec needs, and return its exit code."""
    compiles = any(not word.startswith("-") for word in words)
    command = [program_nvcc(), *words, *([*options(architectures, words), *libraries()] if compiles else [])]
    return subprocess.run(command, check=False).returncode


def assemble(ptx: str, architecture: str) -> bytes | None:
    """Compile PTX and return the cubin; None if nvcc is missing or refuses the PTX."""
    compiler = toolkit.nvcc()
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        text, cubin = Path(folder, "module.ptx"), Path(folder, "module.cubin")
        text.write_text(ptx, encoding="utf-8")
        command = [compiler, f"-arch={architecture}", "-lineinfo", "-cubin", str(text), "-o", str(cubin)]
        try:
            return None if nvcc.run(command, "the program's PTX").returncode else cubin.read_bytes()
        except CudabenchError:
            return None
