"""The package: its metadata, and a wheel that works outside the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cudabench.system import native

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_metadata() -> None:
    """The metadata has all fields that the package index shows, and lists Python versions from the lowest supported one
    on."""
    assert {"name", "description", "readme", "license", "keywords", "classifiers", "scripts"} <= PROJECT.keys()
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert [f"3.{minor}" for minor in range(10, 10 + len(named))] == named
    assert (ROOT / PROJECT["readme"]).exists()


def test_dependencies_have_their_reasons() -> None:
    """docs/faq.md lists exactly the packages and extras that the install has."""
    page = (ROOT / "docs" / "faq.md").read_text().split("## What does the install bring, and why?")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(.+?)`", row)]
    packages = [re.split(r"[ >=;]", line)[0] for line in PROJECT["dependencies"]]
    assert sorted(named) == sorted([*packages, *PROJECT["optional-dependencies"]])


@pytest.mark.slow
def test_wheel_outside_the_checkout(tmp_path: Path) -> None:
    """The wheel holds the chapters and data, and runs a kernel from an empty folder."""
    words = ["wheel", "-q", "--no-deps", "-w", tmp_path, ROOT]
    built = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("pip does not reach the package that builds the wheel: hatchling")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"cudabench/kernels_cu/{path.name}" for path in (ROOT / "kernels_cu").glob("*.cu*")} <= inside
    assert {f"cudabench/native/{path.name}" for path in native.sources()} <= inside
    if native.INSTALLED.joinpath(native.NAME).exists():  # built at the start of this test run
        for_programs = [*native.RUNTIMES, native.TRACE] if sys.platform == "linux" else []
        assert {f"cudabench/_native/{name}" for name in (native.NAME, *for_programs)} <= inside
        assert "-py3-none-" in wheel.name
        assert not wheel.name.endswith("-any.whl")
    assert {"cudabench/devices/protocol.cu", "cudabench/compile/headers/prelude.h"} <= inside
    assert not [name for name in inside if name.startswith(("tests/", "benchmarks/", "docs/"))]
    site = tmp_path / "site"
    install = ["install", "-q", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["transpose", "--kernel", "smem-pad", "--block", "32", "8", "-d", "sim", "--size", "64", "64", "--no-cpu"]
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert ran.returncode == 0, ran.stderr
    assert "smem-pad" in ran.stdout
