"""Cures: a kernel that follows the advice of its hazard is clean. Each file has a broken kernel and its mended
version."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.explain import statements
from cudabench.simulator import api as simulator
from cudabench.simulator.errors import BudgetExceeded
from cudabench.source.choose_kernel import find_kernel as find
from cudabench.source.files import read_file as read
from tests.conftest import Ran
from tests.simulator.test_corpus import launch, marks

FILES = sorted((Path(__file__).parents[1] / "cures").glob("*.cu"))
SAMPLE = ("matmul_refill", "both_in_branch", "lock_without_fence", "barrier_both_branches", "mask_ended")

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


def hazards(path: Path, **defines: str) -> tuple[simulator.Hazard, ...]:
    """Return a kernel's hazards, and suspicions of a divergent barrier."""
    grid, block, shared, arguments = launch(path)
    kernel, text = find(read(path)), path.read_text()
    compiled = compile_ptx(text, path.name, arch="sm_90", names=[kernel.expression], defines=defines)
    names = [parameter.name for parameter in kernel.parameters]
    between = partial(statements.barrier_gap, {path.name: text})
    try:
        report = simulator.run(
            compiled.ptx, compiled.lowered[kernel.expression], grid, block, arguments, shared_bytes=shared,
            names=names, between=between,
        )  # fmt: skip
    except BudgetExceeded as stopped:
        return tuple(stopped.hazards)
    return (*report.hazards, *(one for one in report.suspicions if one.kind == "divergent-barrier"))


@pytest.mark.sampled(48)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_hazard_says_what_to_do(path: Path) -> None:
    """The hazard is reported at its line and contains the advice."""
    said = re.search(r"^// SAYS: (.*)$", path.read_text(), re.M)
    assert said is not None
    found = hazards(path)
    told = [one for one in found if marks(path).get(one.line) == one.kind]
    assert any(said[1] in one.message for one in told), [one.message for one in found]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_it_says_mends_the_kernel(path: Path) -> None:
    """The mended version, which follows the advice, has no hazard."""
    assert [one.message for one in hazards(path, MENDED="1")] == []


def arguments(path: Path) -> list[str]:
    """Return the launch of a file as options of the command line."""
    text = path.read_text()
    line = re.search(r"^// LAUNCH: grid=(\S+) block=(\S+).* args=(\S+)$", text, re.M)
    assert line is not None
    words = ["--grid", *line[1].split(","), "--block", *line[2].split(",")]
    for one in re.split(r",(?=\w+:)", line[3]):
        name, _, kind = one.partition(":")
        array = re.fullmatch(r"(\w+)\[(\d+)\]", kind)
        words += ["--arg", f"{name}={kind}:i0%16" if array else f"{name}={kind.partition('=')[2]}"]
    return words


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SAMPLE)
def test_check_calls_the_mended_kernel_clean(cudabench: Callable[..., Ran], name: str) -> None:
    """`check` fails with the hazard, and calls the mended version clean."""
    path = Path(__file__).parents[1] / "cures" / f"{name}.cu"
    words: list[Any] = ["check", str(path), *arguments(path)]
    assert cudabench(*words).code == 3
    mended = cudabench(*words, "-D", "MENDED=1")
    assert (mended.code, "clean" in mended.out) == (0, True)
