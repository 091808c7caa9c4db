"""PyCUDA from source on a machine without a CUDA toolkit: a plan of shell commands, and what carries it out.

PyCUDA's extension needs CUDA's headers and a libcuda to link against, nothing else of a toolkit. NVIDIA's wheels have
the headers; they go into a temporary folder, so that none of them stays behind to be found by a compiler. The library
that the linker sees is an empty one with the names of cuda.h: the driver's own is found when PyCUDA is loaded.
cuRAND is left out, because the extension would then ask for a library that a machine without a toolkit lacks.

The headers are of CUDA 13.0, whatever the driver: an extension built against later ones asks for functions that an
earlier driver of the same release lacks, and NVRTC 13 needs a driver of 13.0 or later in any case.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cudabench.errors import CudabenchError, DeviceUnusable, UsageError
from cudabench.system import confined

HEADERS = ("nvidia-cuda-runtime>=13.0,<13.1", "nvidia-cuda-profiler-api>=13.0,<13.1")  # cuda.h, cudaProfiler.h
NVCC = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime")  # of one release
CCCL = "nvidia-cuda-cccl>=13,<14"  # the C++ library, which counts its releases by itself
GPU_EXTRA = ("pycuda>=2024.1", "nvidia-ml-py>=12")  # where the package's metadata does not tell
WORK = "work"  # the variable of the commands that holds the temporary folder
MOST_WORDS = 400  # characters of a log's line in a message
CHECKED_ELEMENTS = 1 << 24  # of the first kernel: 201 MB moved, over the L2 cache of any card of today
# pip and uv read their settings from the home folder, and PyCUDA's build its configuration, so both get theirs.
_BUILD_SETTINGS = (
    'XDG_CONFIG_HOME="${XDG_CONFIG_HOME:-${HOME:-}/.config}" NETRC="${NETRC:-${HOME:-}/.netrc}" '
    f'HOME="${WORK}" CC="${{CC:-gcc}}" CXX="${{CXX:-g++}}" CFLAGS="-O1 -g0"'
)


Kind = Literal["venv", "conda", "system"]


@dataclass(frozen=True)
class Environment:
    """Where packages would go: the interpreter, what kind of environment it is of, and what installs there."""

    python: str
    prefix: str
    kind: Kind
    managed: bool = False  # by the system's packages (PEP 668)
    installer: tuple[str, ...] = ()
    first: tuple[str, ...] = ()  # what brings the installer


@dataclass(frozen=True)
class Step:
    """One step: what it brings, in a word or two, why, and the shell commands that do it."""

    title: str
    why: str
    script: str


def environment() -> Environment:
    """Return the environment that this interpreter is of; DeviceUnusable where nothing installs there."""
    conda = (Path(sys.prefix) / "conda-meta").is_dir()
    kind: Kind = "venv" if sys.prefix != sys.base_prefix else "conda" if conda else "system"
    managed = kind == "system" and (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").is_file()
    made = partial(Environment, sys.executable, sys.prefix, kind, managed)
    pip = (sys.executable, "-m", "pip", "install")
    if find_spec("pip"):
        return made(pip)
    if uv := shutil.which("uv"):
        return made((uv, "pip", "install", "--python", sys.executable))
    if find_spec("ensurepip"):
        return made(pip, (sys.executable, "-m", "ensurepip"))
    raise DeviceUnusable(f"{sys.executable} has neither pip nor ensurepip: install pip for it, or uv on PATH.")


def refuse_foreign(where: Environment) -> None:
    """Raise UsageError where the environment is not this tool's to change."""
    if where.kind == "conda":
        raise UsageError(
            f"{where.prefix} is a conda environment, where conda should install: `conda install -c conda-forge "
            "pycuda`; --yes builds PyCUDA there with pip all the same."
        )
    if where.kind == "system":
        whose = "is managed by the system's packages" if where.managed else "is not a virtual environment"
        raise UsageError(
            f"{where.prefix} {whose}: make one with `python3 -m venv .venv`, install cudabench there and set up "
            "there; --yes installs here all the same."
        )


def refuse_without_compiler() -> None:
    """Raise DeviceUnusable where PyCUDA's C++ cannot be compiled: no Linux, no compiler, no headers of Python."""
    if not sys.platform.startswith("linux"):
        raise DeviceUnusable(
            f"setup-gpu builds PyCUDA on Linux, also under WSL, and this is {sys.platform}: install PyCUDA from "
            "conda-forge, with `conda install -c conda-forge pycuda`."
        )
    compiler = os.environ.get("CXX", "").strip() or "g++"
    try:
        program = shlex.split(compiler)[0]
    except ValueError:
        raise UsageError(f"CXX is {compiler}, whose quotation marks do not match: name a C++ compiler.") from None
    if not shutil.which(program):
        raise DeviceUnusable(
            f"PyCUDA is C++ and there is no {compiler} here: install it, as with `apt install g++` or "
            "`dnf install gcc-c++`."
        )
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").is_file():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        raise DeviceUnusable(
            f"PyCUDA is built against Python's headers and {include} has none: install them, as with "
            f"`apt install {package}` or `dnf install python3-devel`."
        )


def refuse_old_driver(version: str | None, nvrtc: tuple[int, int] | None) -> None:
    """Raise DeviceUnusable for a driver of an earlier CUDA release than NVRTC, whose machine code it does not load.

    `version` holds 'CUDA X.Y'. Within a release an earlier driver takes what a later compiler made (CUDA's "minor
    version compatibility"); across releases it does not.
    """
    match = re.search(r"CUDA (\d+)\.(\d+)", version or "")
    needed = max(13, nvrtc[0] if nvrtc else 13)
    if match and int(match[1]) < needed:
        raise DeviceUnusable(
            f"The driver serves CUDA {match[1]}.{match[2]} and kernels are compiled for CUDA {needed}: update it to "
            f"one that serves {needed} (release 580 or later for CUDA 13), or install a toolkit of CUDA {match[1]} and "
            "`cudabench[gpu]`."
        )


def state(python: str) -> tuple[str | None, str]:
    """Return the version of the PyCUDA that an interpreter has, None for none that loads, and why it does not.

    One that lacks the driver alone counts as loaded: it is complete.
    """
    elsewhere = "import sys; sys.path[:1] = filter(None, sys.path[:1])"  # not in the current folder
    code = f"{elsewhere}; import pycuda; print(pycuda.VERSION_TEXT, flush=True); import pycuda._driver"
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True, errors="replace", check=False)
    version = ran.stdout.strip() or None
    if not ran.returncode:
        return version, ""
    why = (ran.stderr.strip().splitlines() or ["it crashed"])[-1]
    return (version if "libcuda.so" in why else None), why


def gpu_extra() -> list[str]:
    """Return what the extra `gpu` of this package asks for."""
    try:
        wanted = metadata.requires("cudabench") or []
    except metadata.PackageNotFoundError:
        wanted = []
    found = [one.partition(";")[0].replace(" ", "") for one in wanted if re.search(r"extra\s*==\s*['\"]gpu['\"]", one)]
    return found or list(GPU_EXTRA)


def build_steps(where: Environment, find_links: str | None, *, again: bool) -> list[Step]:
    """Return what builds PyCUDA and installs it; `again` puts it in the place of one that does not load."""
    install = _install(where, find_links)
    consent = " --break-system-packages" if where.managed else ""
    wanted = f"{install}{consent} --no-cache-dir"
    extra = shlex.join(gpu_extra())
    # What is replaced comes without what it needs, which pip would replace as well.
    replace = f"{_BUILD_SETTINGS} \\\n    {wanted} --force-reinstall --no-deps {extra}\n" if again else ""
    first = [Step("pip", "this environment lacks it", shlex.join(where.first))] if where.first else []
    include = f"${WORK}/cuda/nvidia/cu13/include"
    config = "\\n".join(
        [
            "import os",
            f'WORK = os.environ["{WORK}"]',
            "CUDA_ENABLE_CURAND = False",
            'CUDA_INC_DIR = [WORK + "/cuda/nvidia/cu13/include"]',
            'CUDADRV_LIB_DIR = [WORK + "/lib"]',
        ]
    )
    return [
        *first,
        Step(
            "CUDA's headers",
            "from NVIDIA's wheels, into a temporary folder",
            f'{install} --no-deps --no-compile --target "${WORK}/cuda" {shlex.join(HEADERS)}',
        ),
        Step(
            "names of libcuda",
            "an empty library with the driver's names, for the linker",
            f'mkdir -p "${WORK}/lib"\n'
            f'cat "{include}/cuda.h" "{include}/cudaProfiler.h" | grep -oE \'\\bcu[A-Z][A-Za-z0-9_]*\' | sort -u |\n'
            f"    sed 's/.*/void &(void) {{}}/' "
            f'> "${WORK}/lib/libcuda.c"\n'
            f'"${{CC:-gcc}}" -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o "${WORK}/lib/libcuda.so" '
            f'"${WORK}/lib/libcuda.c"',
        ),
        Step(
            "PyCUDA",
            "built here, in one to five minutes",
            f"printf '{config}\\n' > \"${WORK}/.aksetup-defaults.py\"\n"
            f"{replace}{_BUILD_SETTINGS} \\\n    {wanted} {extra}",
        ),
    ]


def nvcc_step(where: Environment, find_links: str | None, nvrtc: tuple[int, int] | None) -> Step:
    """Return what installs nvcc's wheels, of the release of the NVRTC that is there, so that their headers agree."""
    consent = " --break-system-packages" if where.managed else ""
    release = f"=={nvrtc[0]}.{nvrtc[1]}.*" if nvrtc else ">=13.0"
    wanted = shlex.join([*(f"{name}{release}" for name in NVCC), CCCL])
    return Step("nvcc", "from NVIDIA's wheels, about 600 MB", f"{_install(where, find_links)}{consent} {wanted}")


def check_step(python: str) -> Step:
    """Return what runs and verifies a first kernel on the GPU, into first.json of the temporary folder."""
    return Step(
        "first kernel",
        "vecadd on the GPU, verified and timed",
        f"{shlex.quote(python)} -m cudabench vecadd 0 --size {CHECKED_ELEMENTS} --device cuda --no-cpu --max-time 2 "
        f'--quiet --json "${WORK}/first.json"',
    )


def script(steps: Sequence[Step]) -> str:
    """Return the steps as a shell script that does by itself what `carry_out` does."""
    lines = ["set -eu", f"{WORK}=$(mktemp -d)", f"export {WORK}", f"trap 'rm -rf \"${WORK}\"' EXIT"]
    for step in steps:
        lines += ["", f"# {step.title}: {step.why}", step.script]
    return "\n".join(lines) + "\n"


def carry_out(step: Step, work: Path) -> tuple[float, str]:
    """Run a step in a temporary folder; return the seconds that it took and what it printed. Raises StepFailed."""
    start = time.monotonic()
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_USER": "0", "LC_ALL": "C"}
    with subprocess.Popen(
        ["sh", "-euc", step.script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **settings, WORK: str(work)},
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate()
        except BaseException:
            confined.end_group(process)
            raise
    if process.returncode:
        raise StepFailed(step, process.returncode, printed)
    return time.monotonic() - start, printed


class StepFailed(CudabenchError):
    """A step of the plan has failed; the message is the reason as far as the log shows it, with the repair."""

    def __init__(self, step: Step, code: int, log: str) -> None:
        super().__init__(f"{step.title}: {reason(log)}.")
        self.step, self.log = step, log
        self.exit_code = code if step.title == "first kernel" and 0 < code < 6 else CudabenchError.exit_code


# What a log says, and what that means with its repair. The first that is found counts.
_REASONS: Mapping[str, str] = {
    r"No space left on device": "the disk is full: make room, or set TMPDIR to a folder with 1 GB",
    r"Temporary failure in name resolution|Failed to establish a new connection|Network is unreachable|ProxyError|"
    r"ConnectTimeoutError|tcp connect error|dns error|Name or service not known": (
        "the package index cannot be reached: go online, or give a folder of wheels with --find-links DIR"
    ),
    r"No matching distribution found for (?P<what>\S+)|Because (?P<what_uv>\S+) was not found": (
        "there is no {what} to be had: the package index cannot be reached, or has none for this Python and machine; "
        "go online, take another Python, or give a folder that has it with --find-links DIR"
    ),
    r"fatal error: (?P<what>\S+): No such file": (
        "{what} is missing, which the build includes: install the package that has it"
    ),
    r"Permission denied|\[Errno 13\]": (
        "this environment cannot be written: set up in one of your own, made with `python3 -m venv .venv`"
    ),
    r"Killed (?:signal|process)|out of memory": "the compiler ran out of memory: set up where 2 GB are free",
    r"hash(?:es)? (?:are|is) required|DO NOT MATCH THE HASHES": (
        "pip is set to demand hashes here: unset PIP_REQUIRE_HASHES for this command"
    ),
    r"^Error: (?P<what>.+?)\.?$": "{what}",
    r"\berror: (?P<what>.+?)\.?$": "{what}; the whole log is shown with --verbose",
}


def reason(log: str) -> str:
    """Return why a step failed, in a clause with the repair, from what it printed."""
    for pattern, sentence in _REASONS.items():
        if match := re.search(pattern, log, re.MULTILINE):
            found = [word[:MOST_WORDS] for word in match.groupdict().values() if word]
            return sentence.format(what=found[0] if found else "")
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "it ended without a word")
    return f"{last[:MOST_WORDS]}; the whole log is shown with --verbose"


def _install(where: Environment, find_links: str | None) -> str:
    offline = ["--no-index", "--find-links", os.path.abspath(find_links)] if find_links else []
    return shlex.join([*where.installer, *offline])
