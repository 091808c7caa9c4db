"""Runs the tests of the GPU path without a GPU: `python -m tests.driver`, with pytest's arguments after it.

It builds the simulated driver in a temporary folder, where every process of the tests finds it first. Without
COVERAGE_PROCESS_CONFIG no code is traced; `python -m tests.driver --cov` shows which lines of the GPU path ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.driver.build import build

ROOT = Path(__file__).resolve().parents[2]
# The GPU path and the modules that belong to it.
COVERED = (
    *(f"cudabench/devices/{name}.py" for name in (
        "__init__", "constants", "cuda", "driver_objects", "nvml", "probe", "protocol",
    )),
    *(f"cudabench/measure/{name}.py" for name in (
        "buffers", "context", "counting", "gpu_run", "outputs", "session", "timing", "worker",
    )),
    *(f"cudabench/ceilings/{name}.py" for name in (
        "arithmetic", "benchmark", "chapter", "code", "gpu", "latency", "memory", "run",
    )),
)  # fmt: skip
# The simulator, in which these tests spend most of their time, is not traced.
SETTINGS = "[run]\nparallel = true\npatch = subprocess, _exit\ninclude =\n    {include}\n"
LEAST = 90  # percent of their lines


def main(arguments: list[str]) -> int:
    """Run pytest, and with --cov require that `LEAST` percent of the lines ran; return the exit code."""
    traced = "--cov" in arguments
    arguments = [one for one in arguments if one != "--cov"] or ["tests"]
    with tempfile.TemporaryDirectory(prefix="cudabench-driver-") as folder:
        build(Path(folder))
        there = os.environ.get("LD_LIBRARY_PATH")
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([folder, *([there] if there else [])])}
        environment["XDG_CACHE_HOME"] = os.path.join(folder, "cache")  # PyCUDA's cache of code from nvcc
        coverage = [sys.executable, "-m", "coverage"]
        environment["COVERAGE_FILE"] = os.path.join(folder, "coverage")
        environment["COVERAGE_RCFILE"] = os.path.join(folder, "settings")
        Path(folder, "settings").write_text(SETTINGS.format(include="\n    ".join(str(ROOT / one) for one in COVERED)))
        before = [*coverage, "run", "-m"] if traced else [sys.executable, "-m"]
        code = subprocess.run([*before, "pytest", "-m", "driver", *arguments], cwd=ROOT, env=environment).returncode
        if traced:
            subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, env=environment, check=True)
            report = [*coverage, "report", f"--fail-under={LEAST}", "--skip-empty", "--show-missing"]
            code = subprocess.run(report, cwd=ROOT, env=environment).returncode or code
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
