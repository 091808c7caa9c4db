"""The GitHub action and the pre-commit hooks run as their files define them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudabench.compile.compiler import nvrtc_version

ROOT = Path(__file__).parents[2]
RACE = """
__global__ void shift(int n, const float *x, float *y)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < n - 1) y[threadIdx.x] = tile[threadIdx.x + 1];
}
"""
ARGUMENTS = ["--grid", "1", "--block", "256", "--arg", "n=256", "--arg", "x=float32[n]:random"]
ARGUMENTS += ["--arg", "y=float32[n]:zeros"]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


def document(name: str) -> Any:
    """Return a YAML file of the repository as plain values."""
    return yaml.safe_load((ROOT / name).read_text())


def run_action(folder: Path, command: str) -> tuple[int, str]:
    """Run the action's last step with a command, in this Python; return its exit code and its output line."""
    (python := folder / "runner" / "cudabench" / "bin" / "python").parent.mkdir(parents=True, exist_ok=True)
    if not python.exists():
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    step = document("action.yml")["runs"]["steps"][-1]
    assert step["env"] == {"COMMAND": "${{ inputs.command }}"}
    environment = {
        **os.environ,
        "COMMAND": command,
        "RUNNER_TEMP": str(folder / "runner"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "PYTHONPATH": str(ROOT),
    }
    ran = subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, cwd=folder, capture_output=True, text=True)
    return ran.returncode, (folder / "output").read_text().splitlines()[-1]


@pytest.mark.slow
def test_action_runs_the_command(tmp_path: Path) -> None:
    """The action splits the command into words, also across continued lines, and passes on its exit code."""
    (tmp_path / "race.cu").write_text(RACE)
    words = shlex.join(ARGUMENTS).replace(" --arg x", " \\\n    --arg x")
    assert run_action(tmp_path, f"check race.cu {words} --to github") == (3, "exit-code=3")
    assert run_action(tmp_path, "cudabench list transpose") == (0, "exit-code=0")


def test_action_never_runs_its_text(tmp_path: Path) -> None:
    """Shell syntax in the command is passed as words and not executed."""
    code, said = run_action(tmp_path, "list transpose; touch $(echo owned) `touch owned` && touch owned")
    assert (code, said) == (2, "exit-code=2")
    assert not (tmp_path / "owned").exists()


def test_no_input_reaches_a_script_of_the_action() -> None:
    """Scripts of the action get inputs only as environment variables, because an input in the text of a script could
    inject shell code."""
    for step in document("action.yml")["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.slow
def test_hooks_find_the_race(tmp_path: Path) -> None:
    """Each hook has the keys that pre-commit requires, and the check hook's entry finds the race."""
    (tmp_path / "race.cu").write_text(RACE)
    hooks = {hook["id"]: hook for hook in document(".pre-commit-hooks.yaml")}
    assert {*hooks} == {"cudabench-check", "cudabench-profile"}
    for hook in hooks.values():
        assert {"id", "name", "entry", "language", "files"} <= {*hook}
    program, *entry = shlex.split(hooks["cudabench-check"]["entry"])
    assert program == "cudabench"
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", *entry, *ARGUMENTS, "race.cu"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 3
    assert "race" in ran.stdout
