"""The scripts in docs/ci.md do what the page says, exactly as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cudabench.records import file as results
from tests.results.test_compare import RECORDED, changed, slowed, wrong

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
SMEM = replace(RECORDED, results=[r for r in RECORDED.results if r.kernel.startswith("smem")])

# Runs the real command line; a command that needs a GPU copies a recorded run instead.
STAND_IN = """#!/bin/sh
case "$*" in
    "transpose "*"--device cuda"*) cp recorded.json times.json; exit "$(cat status 2>/dev/null || echo 0)" ;;
esac
exec "{python}" -m cudabench "$@"
"""


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def script(name: str) -> str:
    """Return the script that the page shows under a file name."""
    return next(block for block in blocks("sh") if f"# {name}:" in block)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the page's scripts and a cudabench command."""
    binary = tmp_path / "bin" / "cudabench"
    binary.parent.mkdir()
    binary.write_text(STAND_IN.format(python=sys.executable))
    binary.chmod(0o755)
    (tmp_path / "ci").mkdir()
    for name in ("ci/counts.sh", "ci/times.sh"):
        (tmp_path / name).write_text(script(name))
    return tmp_path


def run(folder: Path, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in the folder."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", name],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_counts(folder: Path) -> None:
    """The script without a GPU writes a baseline if NEW=yes, and fails without a baseline or if a count grew."""
    missing = run(folder, "ci/counts.sh")
    assert missing.returncode == 1
    assert "counts-base.json: no such file." in missing.stderr
    first = run(folder, "ci/counts.sh", NEW="yes", GITHUB_STEP_SUMMARY=str(folder / "summary.md"))
    assert (first.returncode, first.stderr) == (0, "")
    base = results.load(folder / "counts-base.json")
    assert [result.kernel for result in base.results] == ["smem", "smem-pad", "smem-unroll-pad"]
    assert "| smem-pad | 32 x 8 |" in (folder / "summary.md").read_text()
    assert len(ElementTree.parse(folder / "counts.xml").getroot().findall("testsuite/testcase")) == 3
    # A baseline in which each kernel takes one instruction less.
    fewer = [replace(result, instructions=(result.instructions or 0) - 1) for result in base.results]
    (folder / "counts-base.json").write_text(replace(base, results=fewer).text())
    second = run(folder, "ci/counts.sh", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(folder / "summary.md"))
    assert second.returncode == 4
    assert second.stderr.count("takes more: PTX instructions") == 3
    assert second.stdout.count("::error file=kernels_cu/transpose.cu,line=") == 3
    assert "| smem-pad | 32 x 8 | more |" in (folder / "summary.md").read_text()


@pytest.mark.slow
def test_counts_of_a_race(folder: Path) -> None:
    """In a job of GitHub, the script without a GPU annotates the line of a race and ends with exit code 3."""
    (folder / "race.cu").write_text(
        "__global__ void k(float *x) {\n  __shared__ float s[64];\n  s[threadIdx.x] = threadIdx.x;\n"
        "  x[threadIdx.x] = s[63 - threadIdx.x];\n}\n"
    )
    text = (folder / "ci/counts.sh").read_text()
    own = "cudabench run race.cu --grid 1 --block 64 --arg 'x=float32[64]:empty'"
    changed = text.replace("cudabench transpose --kernel 'smem*' --size 256", own)
    assert own in changed
    (folder / "ci/counts.sh").write_text(changed)
    done = run(folder, "ci/counts.sh", GITHUB_ACTIONS="true")
    assert done.returncode == 3
    assert "::error file=race.cu,line=4,title=cudabench%3A race::" in done.stdout
    assert "::" not in run(folder, "ci/counts.sh", GITHUB_ACTIONS="").stdout


@pytest.mark.slow
def test_times(folder: Path) -> None:
    """The script with a GPU keeps its first run as the baseline, and fails if a kernel is slower."""
    (folder / "recorded.json").write_text(SMEM.text())
    assert run(folder, "ci/times.sh", BASE="mistyped.json", NEW="no").returncode == 1
    first = run(folder, "ci/times.sh", NEW="yes")
    assert (first.returncode, first.stderr) == (0, "")
    assert (folder / "times-base.json").read_text() == SMEM.text()
    (folder / "recorded.json").write_text(changed(SMEM, smem=slowed(1.08)).text())
    second = run(folder, "ci/times.sh", KEEP="yes")
    assert second.returncode == 4
    assert "smem (32 x 8) is 8.0% slower" in second.stderr
    assert json.loads((folder / "comparison.json").read_text())["exit_code"] == 4
    assert (folder / "times-base.json").read_text() == SMEM.text()  # a failed run does not become the baseline


def test_times_of_a_wrong_kernel(folder: Path) -> None:
    """If a run has a wrong result, the script writes its reports and ends with the run's exit code 3."""
    (folder / "recorded.json").write_text(changed(SMEM, smem=wrong).text())
    (folder / "status").write_text("3")
    done = run(folder, "ci/times.sh")
    assert done.returncode == 3
    assert len(ElementTree.parse(folder / "times.xml").getroot().findall("testsuite/testcase/failure")) == 1
    assert not (folder / "times-base.json").exists()


def test_every_comparison_requires_its_base() -> None:
    """Every `cudabench compare` on the page has --require-base, so a missing file fails."""
    lines = [line for block in blocks("sh") + blocks("yaml") for line in block.replace("\\\n", "").splitlines()]
    compares = [line for line in lines if line.startswith("cudabench compare ")]
    assert len(compares) == 3
    assert all("--require-base" in line for line in compares)


def test_scripts_are_posix_shell(folder: Path) -> None:
    """The scripts and the workflow's commands are valid sh."""
    commands = [line for block in blocks("yaml") for line in re.findall(r"- run: (.*)", block)]
    assert len(commands) == 6
    for text in [script("ci/counts.sh"), script("ci/times.sh"), *commands]:
        done = subprocess.run(
            [shutil.which("sh") or "sh", "-n"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_workflow_runs_the_scripts() -> None:
    """The workflow names the scripts and files that the page shows."""
    workflow = blocks("yaml")[0]
    for name in ("ci/counts.sh", "ci/times.sh", "counts-base.json", "times-base.json"):
        assert name in workflow
    assert "\t" not in workflow
    assert workflow.count("${{") == workflow.count("}}")
