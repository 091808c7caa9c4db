"""The README's lines of use run as they are printed, in a copy of its folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What stands under another heading sets an environment up, or needs a GPU.
USES = (ROOT / "README.md").read_text().split("\n## What to do with it\n")[1].split("\n### On a GPU\n")[0]
BLOCKS = re.findall(r"```sh\n(.*?)```", USES, re.DOTALL)
LAUNCHES = {
    path.name: " ".join(re.findall(r"^// {3}(.*)$", path.read_text(), re.M)).replace("\\", "")
    for path in sorted((ROOT / "examples").glob("*.cu"))
}


def ran(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell that has the tool on its path and stops at the first that fails."""
    tool = folder / ".venv" / "bin"
    tool.mkdir(parents=True)
    (tool / "cudabench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cudabench "$@"\n')
    (tool / "cudabench").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tool}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.mark.slow
def test_uses_run_as_printed(tmp_path: Path) -> None:
    """Every line under the heading exits with 0, one after the other, as a reader types them."""
    assert len(BLOCKS) == 5
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    person = "-c user.name=a -c user.email=a@example.org -c commit.gpgsign=false"
    history = f"git init -q . && git add examples && git {person} commit -qm first\n"
    done = ran(tmp_path, history + "".join(BLOCKS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"base.json", "new.json", "new.html", "new.xml"} <= {path.name for path in tmp_path.iterdir()}
    assert "fuzz: saxpy is right in 20 more cases" in done.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAUNCHES)
def test_examples_have_their_launch(name: str, tmp_path: Path) -> None:
    """Each example's comment holds the line that runs and verifies it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    assert f"examples/{name}" in LAUNCHES[name]
    done = ran(tmp_path, LAUNCHES[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all verified" in done.stdout
