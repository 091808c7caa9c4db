"""A release: one version everywhere, valid workflows, working hooks, and a small pure wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import cudabench

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
MOST_BYTES = 2_000_000


def steps(path: Path) -> list[dict[str, Any]]:
    """Return the steps of all jobs of a workflow."""
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


def version(wanted: str) -> subprocess.CompletedProcess[str]:
    """Run the script that checks a release's version."""
    return subprocess.run([sys.executable, ROOT / ".ci" / "version", wanted], capture_output=True, text=True)


def test_one_version() -> None:
    """Package, changelog and citation have the same version; the check refuses another version with all three files."""
    assert version(cudabench.__version__).returncode == 0
    other = version("9.9.9")
    assert other.returncode == 3
    assert [line.split()[0] for line in other.stderr.splitlines()] == [
        "cudabench/__init__.py", "CHANGELOG.md", "CITATION.cff",
    ]  # fmt: skip


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows(path: Path) -> None:
    """Each script of a workflow is valid bash, names existing files, and has no text of a pull request in it."""
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        script = step.get("run", "")
        plain = re.sub(r"\$\{\{.*?\}\}", "value", script)
        assert subprocess.run(["bash", "-n", "-c", plain], capture_output=True).returncode == 0, script
        assert "${{ github.event" not in script
        assert "github.head_ref" not in script
        for name in re.findall(r"(?<![\w/])(?:tests|\.ci|docs|benchmarks)/[\w./]+", script):
            assert (ROOT / name).exists(), name


def test_workflows_try_every_python() -> None:
    """The CI matrix has the Python versions of the package's classifiers."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    named = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert jobs["python"]["strategy"]["matrix"]["python"] == named


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook["id"] != "mypy"], ids=lambda hook: hook["id"])
def test_hooks_find_faults(hook: dict[str, Any], tmp_path: Path) -> None:
    """Each pre-commit hook except mypy accepts a correct file and rejects a wrong one."""
    command = shlex.split(hook["entry"])
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    right, wrong = {
        "clang-format": ("int main() { return 0; }\n", "int  main( ){return 0 ;}\n"),
        "ruff-format": ('"""Module."""\n\nx = 1\n', '"""Module."""\n\nx   =  1\n'),
        "ruff": ('"""Module."""\n\nx = 1\n', '"""Module."""\n\nimport os\n'),
    }[hook["id"]]
    file = tmp_path / ("f.cpp" if hook["id"] == "clang-format" else "f.py")
    shutil.copy(ROOT / ".clang-format", tmp_path)
    for text, works in ((right, True), (wrong, False)):
        file.write_text(text)
        assert (subprocess.run([*command, file], capture_output=True, cwd=ROOT).returncode == 0) is works


def test_recipe_has_the_dependencies() -> None:
    """The conda recipe has the package's version, and its dependencies with the same lowest versions."""
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == cudabench.__version__
    run = recipe["requirements"]["run"]
    named = {line.replace(" ", "") for line in [*run[:-1], *run[-1]["then"]]}
    text = (ROOT / "pyproject.toml").read_text().split("\ndependencies = [")[1].split("\n]")[0]
    wanted = {line.split(";")[0].replace(" ", "") for line in re.findall(r'"(.+?)"', text)}
    conda = {"libclang": "python-clang", "nvidia-cuda-nvdisasm": "cuda-nvdisasm", "nvidia-cuda-nvrtc": "cuda-nvrtc"}
    for name, other in conda.items():
        wanted = {re.sub(f"^{name}(?=>)", other, line) for line in wanted}
    assert named - {"python>=3.10"} == wanted


@pytest.mark.slow
def test_pure_wheel(tmp_path: Path) -> None:
    """CUDABENCH_PURE builds a wheel for all platforms, without the native library, under 2 MB, with py.typed."""
    words = ["wheel", "-q", "--no-deps", "-w", tmp_path, ROOT]
    built = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, env={**os.environ, "CUDABENCH_PURE": "1"}
    )
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("pip does not reach the package that builds the wheel: hatchling")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in inside if "_native" in name]
    assert "cudabench/py.typed" in inside
    assert wheel.stat().st_size < MOST_BYTES
