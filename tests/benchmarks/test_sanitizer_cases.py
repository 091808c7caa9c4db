"""Kernels with a known fault, and correct ones: `check` reports the hazards that the table lists."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile.compiler import nvrtc_version
from tests.conftest import Ran

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parents[2] / "benchmarks"
TABLE = tomllib.loads((FOLDER / "sanitizer_cases.toml").read_text())
CASES = {f"{file}.{kernel}": case for file, kernels in TABLE.items() for kernel, case in kernels.items()}

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.mark.machine_code
@pytest.mark.sampled(120)
@pytest.mark.parametrize("name", CASES)
def test_case(cudabench: Callable[..., Ran], name: str) -> None:
    """`check` reports each hazard of the table with its line, and no others; a kernel without a hazard is clean."""
    case: dict[str, Any] = CASES[name]
    file, kernel = name.split(".")
    words = [f"--{key}={case[key]}" for key in ("grid", "block", "shared") if key in case]
    words += [f"--{key}={one}" for key in ("arg", "expect") for one in case.get(key, ())]
    ran = cudabench("check", FOLDER / "sanitizer" / f"{file}.cu", "-k", kernel, *words, "--json", "r.json", "-q")
    (result,) = json.loads(Path("r.json").read_text())["results"]
    named = {f"{one['kind']} {one['line']}" for one in result["hazards"] or ()}
    assert named == set(case.get("named", ()))
    assert ran.code == (3 if named else 0)


def test_the_table_says_why() -> None:
    """A fault that `check` does not report has a reason in the table, and no correct kernel has a reported hazard."""
    for name, case in CASES.items():
        assert case["is"] in ("fault", "right", "open"), name
        assert case["is"] != "right" or "named" not in case, name
        assert case["is"] != "fault" or "named" in case or "reason" in case, name
