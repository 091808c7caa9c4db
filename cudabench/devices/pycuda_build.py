"""Builds PyCUDA from source on a machine without a CUDA toolkit, as steps of shell commands.

PyCUDA's extension module needs only CUDA's headers and a libcuda to link against. The headers come from NVIDIA's
wheels; the folder for these headers is temporary, so that later compiles do not find it. The linker gets a library of
empty functions with the names in cuda.h; the driver's own library is found when PyCUDA is imported. PyCUDA is built
without cuRAND, because the extension would need cuRAND's library, which a machine without a toolkit lacks.

The headers are always those of CUDA 13.0. An extension that is built with later headers needs functions that a driver
for 13.0 lacks, and older drivers are excluded anyway, because NVRTC 13 needs a driver for 13.0 or later.
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
from cudabench.system import limited_process

# The packages with cuda.h and cudaProfiler.h.
HEADERS = ("nvidia-cuda-runtime>=13.0,<13.1", "nvidia-cuda-profiler-api>=13.0,<13.1")
# The packages of nvcc, which must all have the same release.
NVCC = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime")
CCCL = "nvidia-cuda-cccl>=13,<14"  # CUDA's C++ library, which has its own version numbers
# The requirements, if the metadata of the installed package do not have the extra `gpu`.
GPU_EXTRA = ("pycuda>=2024.1", "nvidia-ml-py>=12")
WORK = "work"  # the shell variable that holds the path of the temporary folder
MOST_WORDS = 400  # a message shows at most this many characters of a line of a log
# Elements of each array for the first kernel. The kernel moves 201 MB, which is more than the L2 of today's cards.
CHECKED_ELEMENTS = 1 << 24
# PyCUDA's build reads its configuration from the home folder, so HOME is set to the temporary folder, which has that
# configuration. pip and uv still find their settings in the real home folder, by XDG_CONFIG_HOME and NETRC.
_BUILD_SETTINGS = (
    'XDG_CONFIG_HOME="${XDG_CONFIG_HOME:-${HOME:-}/.config}" NETRC="${NETRC:-${HOME:-}/.netrc}" '
    f'HOME="${WORK}" CC="${{CC:-gcc}}" CXX="${{CXX:-g++}}" CFLAGS="-O1 -g0"'
)


Kind = Literal["venv", "conda", "system"]


@dataclass(frozen=True)
class Environment:
    """The Python environment to install into; `python`: the interpreter; `prefix`: the environment's folder;
    `installer`: the command that installs packages."""

    python: str
    prefix: str
    kind: Kind
    managed: bool = False  # whether the system's package manager manages the environment (PEP 668)
    installer: tuple[str, ...] = ()
    # The command that installs the installer, which is the first step; empty if the installer is already there.
    first: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A step of the build: a short name, the purpose of the step, and its shell commands."""

    title: str
    why: str
    script: str


def environment() -> Environment:
    """Return the environment of this interpreter. Raises DeviceUnusable if it cannot install packages."""
    conda = (Path(sys.prefix) / "conda-meta").is_dir()
    kind: Kind = "venv" if sys.prefix != sys.base_prefix else "conda" if conda else "system"
    managed = kind == "system" and (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").is_file()
    make = partial(Environment, sys.executable, sys.prefix, kind, managed)
    pip = (sys.executable, "-m", "pip", "install")
    if find_spec("pip"):
        return make(pip)
    if uv := shutil.which("uv"):
        return make((uv, "pip", "install", "--python", sys.executable))
    if find_spec("ensurepip"):
        return make(pip, (sys.executable, "-m", "ensurepip"))
    raise DeviceUnusable(f"{sys.executable} has neither pip nor ensurepip: install pip for it, or uv on PATH.")


def refuse_foreign(target: Environment) -> None:
    """Raise UsageError for an environment that cudabench should not change without --yes: conda's or the system's."""
    if target.kind == "conda":
        raise UsageError(
            f"{target.prefix} is a conda environment: use `conda install -c conda-forge pycuda`, or "
            "add --yes to build PyCUDA there with pip."
        )
    if target.kind == "system":
        lack = "is managed by the system's packages" if target.managed else "is not a virtual environment"
        raise UsageError(
            f"{target.prefix} {lack}: make one with `python3 -m venv .venv`, install cudabench there and set up "
            "there; --yes installs here anyway."
        )


def refuse_without_compiler() -> None:
    """Raise DeviceUnusable if PyCUDA cannot be compiled: this is not Linux, or there is no C++ compiler, or Python's
    headers are missing."""
    if not sys.platform.startswith("linux"):
        raise DeviceUnusable(
            f"setup-gpu builds PyCUDA on Linux or WSL, but this is {sys.platform}: install PyCUDA from "
            "conda-forge, with `conda install -c conda-forge pycuda`."
        )
    compiler = os.environ.get("CXX", "").strip() or "g++"
    try:
        program = shlex.split(compiler)[0]
    except ValueError:
        raise UsageError(f"CXX is {compiler}, whose quotation marks do not match: name a C++ compiler.") from None
    if not shutil.which(program):
        raise DeviceUnusable(
            f"PyCUDA needs {compiler}, which is missing: install it, as with `apt install g++` or "
            "`dnf install gcc-c++`."
        )
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").is_file():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        raise DeviceUnusable(
            f"PyCUDA needs Python's headers, which {include} lacks: install them, as with "
            f"`apt install {package}` or `dnf install python3-devel`."
        )


def refuse_old_driver(version: str | None, nvrtc: tuple[int, int] | None) -> None:
    """Raise DeviceUnusable if the driver is for an earlier major version of CUDA than NVRTC.

    Such a driver cannot load code that NVRTC compiles. A driver for the same major version can load such code ("minor
    version compatibility").
    `version`: the driver's version, which contains 'CUDA X.Y'; `nvrtc`: the version of NVRTC, or None.
    """
    match = re.search(r"CUDA (\d+)\.(\d+)", version or "")
    cuda = max(13, nvrtc[0] if nvrtc else 13)
    if match and int(match[1]) < cuda:
        raise DeviceUnusable(
            f"The driver supports CUDA {match[1]}.{match[2]}, but kernels are compiled for CUDA {cuda}: update it to "
            f"a driver for {cuda} (release 580 or later for CUDA 13), or install a toolkit of CUDA {match[1]} and "
            "`cudabench[gpu]`."
        )


def state(python: str) -> tuple[str | None, str]:
    """Return (the version of an interpreter's PyCUDA, or None if the import fails; the error of the import, or '').

    If the import fails only because the driver is missing, the version is returned too.
    """
    prelude = "import sys; sys.path[:1] = filter(None, sys.path[:1])"  # do not import from the current folder
    code = f"{prelude}; import pycuda; print(pycuda.VERSION_TEXT, flush=True); import pycuda._driver"
    process = subprocess.run([python, "-c", code], capture_output=True, text=True, errors="replace", check=False)
    version = process.stdout.strip() or None
    if not process.returncode:
        return version, ""
    why = (process.stderr.strip().splitlines() or ["it crashed"])[-1]
    return (version if "libcuda.so" in why else None), why


def gpu_extra() -> list[str]:
    """Return the requirements of cudabench's extra `gpu`, such as 'pycuda>=2024.1'."""
    try:
        requirements = metadata.requires("cudabench") or []
    except metadata.PackageNotFoundError:
        requirements = []
    extra = [
        requirement.partition(";")[0].replace(" ", "")
        for requirement in requirements
        if re.search(r"extra\s*==\s*['\"]gpu['\"]", requirement)
    ]
    return extra or list(GPU_EXTRA)


def build_steps(target: Environment, find_links: str | None, *, again: bool) -> list[Step]:
    """Return the steps that build and install PyCUDA. `find_links`: a folder of wheels to use instead of the index.
    `again`: whether to replace an installed PyCUDA that cannot be imported."""
    install = _install(target, find_links)
    consent = " --break-system-packages" if target.managed else ""
    install_command = f"{install}{consent} --no-cache-dir"
    extra = shlex.join(gpu_extra())
    # Without --no-deps, pip would replace the dependencies too.
    replace = f"{_BUILD_SETTINGS} \\\n    {install_command} --force-reinstall --no-deps {extra}\n" if again else ""
    pip_step = [Step("pip", "this environment lacks it", shlex.join(target.first))] if target.first else []
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
        *pip_step,
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
            f"{replace}{_BUILD_SETTINGS} \\\n    {install_command} {extra}",
        ),
    ]


def nvcc_step(target: Environment, find_links: str | None, nvrtc: tuple[int, int] | None) -> Step:
    """Return the step that installs the wheels of nvcc, in the same version as the installed NVRTC, so that the headers
    match."""
    consent = " --break-system-packages" if target.managed else ""
    release = f"=={nvrtc[0]}.{nvrtc[1]}.*" if nvrtc else ">=13.0"
    requirements = shlex.join([*(f"{name}{release}" for name in NVCC), CCCL])
    return Step("nvcc", "from NVIDIA's wheels, about 600 MB", f"{_install(target, find_links)}{consent} {requirements}")


def check_step(python: str) -> Step:
    """Return the step that runs and verifies a first kernel on the GPU; it writes first.json to the temporary
    folder."""
    return Step(
        "first kernel",
        "vecadd on the GPU, verified and timed",
        f"{shlex.quote(python)} -m cudabench vecadd 0 --size {CHECKED_ELEMENTS} --device cuda --no-cpu --max-time 2 "
        f'--quiet --json "${WORK}/first.json"',
    )


def script(steps: Sequence[Step]) -> str:
    """Return a shell script that does the same as `run_step` for all steps."""
    lines = ["set -eu", f"{WORK}=$(mktemp -d)", f"export {WORK}", f"trap 'rm -rf \"${WORK}\"' EXIT"]
    for step in steps:
        lines += ["", f"# {step.title}: {step.why}", step.script]
    return "\n".join(lines) + "\n"


def run_step(step: Step, work: Path) -> tuple[float, str]:
    """Run a step; return the seconds that it took, and its output. Raises StepFailed. `work`: the temporary folder."""
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
            limited_process.end_group(process)
            raise
    if process.returncode:
        raise StepFailed(step, process.returncode, printed)
    return time.monotonic() - start, printed


class StepFailed(CudabenchError):
    """A step failed; the message has the reason, taken from the log, and what to do."""

    def __init__(self, step: Step, code: int, log: str) -> None:
        super().__init__(f"{step.title}: {reason(log)}.")
        self.step, self.log = step, log
        self.exit_code = code if step.title == "first kernel" and 0 < code < 6 else CudabenchError.exit_code


# For each pattern in a log: a message with the meaning of the error and with what to do. The first pattern that is
# found is used.
_REASONS: Mapping[str, str] = {
    r"No space left on device": "the disk is full: delete files, or set TMPDIR to a folder with 1 GB of free space",
    r"Temporary failure in name resolution|Failed to establish a new connection|Network is unreachable|ProxyError|"
    r"ConnectTimeoutError|tcp connect error|dns error|Name or service not known": (
        "the package index cannot be reached: connect to the network, or give a folder of wheels with --find-links DIR"
    ),
    r"No matching distribution found for (?P<what>\S+)|Because (?P<what_uv>\S+) was not found": (
        "{what} cannot be found: the package index cannot be reached, or lacks it for this Python and machine; "
        "connect to the network, use another Python, or give a folder that has it with --find-links DIR"
    ),
    r"fatal error: (?P<what>\S+): No such file": (
        "{what} is missing, which the build includes: install the package that has it"
    ),
    r"Permission denied|\[Errno 13\]": (
        "this environment is read-only: use your own environment, made with `python3 -m venv .venv`"
    ),
    r"Killed (?:signal|process)|out of memory": "the compiler ran out of memory: set up where 2 GB are free",
    r"hash(?:es)? (?:are|is) required|DO NOT MATCH THE HASHES": (
        "pip requires hashes here: unset PIP_REQUIRE_HASHES for this command"
    ),
    r"^Error: (?P<what>.+?)\.?$": "{what}",
    r"\berror: (?P<what>.+?)\.?$": "{what}; the whole log is shown with --verbose",
}


def reason(log: str) -> str:
    """Return the reason why a step failed, found in its output, and what to do."""
    for pattern, sentence in _REASONS.items():
        if match := re.search(pattern, log, re.MULTILINE):
            details = [detail[:MOST_WORDS] for detail in match.groupdict().values() if detail]
            return sentence.format(what=details[0] if details else "")
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "it ended without a message")
    return f"{last[:MOST_WORDS]}; the whole log is shown with --verbose"


def _install(target: Environment, find_links: str | None) -> str:
    offline = ["--no-index", "--find-links", os.path.abspath(find_links)] if find_links else []
    return shlex.join([*target.installer, *offline])
