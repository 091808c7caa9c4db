"""Files in the style of public repositories: each runs with the command in its head, or is refused with a command that
works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudabench.compile.compiler import compile_cubin, nvcc_version, nvrtc_version
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import read_file
from tests.conftest import Ran

FOLDER = Path(__file__).parents[1] / "corpus" / "files"
HEAD = re.compile(r"^// (run|then|expect|lacks|slow): (.*)((?:\n//  .*)*)", re.M)
LEAST = 120
SLOW = ("cluster_histogram.cu", "hopper_gemm.cu")  # slow to simulate; other slow files say so in their heads
LEAST_WHOLE, MOST_UNCLEAN = 79, 8  # suggested commands without a gap; those of them that may fail

needs_simulator = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@dataclass(frozen=True)
class Public:
    """A file of the corpus: its command, the expected result, and a command that works if the first one is refused."""

    path: Path
    run: list[str]
    expect: str
    then: list[str]
    lacks: str
    slow: bool


def read(path: Path) -> Public:
    """Read a file's head."""
    fields = {
        key: re.sub(r"\n// +", " ", first + more) for key, first, more in HEAD.findall(path.read_text(errors="replace"))
    }
    words = {key: shlex.split(fields.get(key, "")) for key in ("run", "then")}
    return Public(path, words["run"], fields["expect"], words["then"], fields.get("lacks", ""), "slow" in fields)


FILES = [read(path) for path in sorted(FOLDER.glob("*.cu*")) if "// run:" in path.read_text(errors="replace")]


def marked(file: Public) -> object:
    """Return a file as a parameter; if the simulator lacks a feature that it needs, the test must fail."""
    marks = [pytest.mark.xfail(reason=file.lacks, strict=True)] if file.lacks else []
    marks += [pytest.mark.slow] if file.slow or file.path.name in SLOW else []
    return pytest.param(file, id=file.path.name, marks=marks)


@pytest.mark.sampled(112)
@needs_simulator
@pytest.mark.parametrize("file", [marked(file) for file in FILES[::3]])
def test_every_third_file(file: Public, cudabench: Callable[..., Ran]) -> None:
    """The file's command gives the expected result; a refused file gives the reason, and its other command works."""
    holds(file, cudabench)


@needs_simulator
@pytest.mark.slow
@pytest.mark.parametrize("file", [marked(file) for at, file in enumerate(FILES) if at % 3 and at % 4 != 1])
def test_the_other_files(file: Public, cudabench: Callable[..., Ran]) -> None:
    """The remaining files meet their expectations too."""
    holds(file, cudabench)


@pytest.mark.machine_code
@needs_simulator
@pytest.mark.slow
@pytest.mark.parametrize("file", [marked(file) for file in FILES[1::4]])
def test_every_fourth_file_with_its_machine_code(file: Public, cudabench: Callable[..., Ran]) -> None:
    """The result is the same if the machine code is read too, which takes longest."""
    holds(file, cudabench)


def holds(file: Public, cudabench: Callable[..., Ran]) -> None:
    """Run a file's commands and compare the results with its expectation."""

    def run(words: list[str]) -> Ran:
        return cudabench("run", file.path, *words, "--device", "sim", "--no-cpu")

    ran = run(file.run)
    verdict, _, message = file.expect.partition(": ")
    if verdict == "refused":
        assert ran.code != 0
        assert re.search(message, said := ran.out + ran.err), said
        assert "Traceback" not in said
        ran = run(file.then) if file.then else ran
    assert (ran.code == 0) == (verdict == "ok" or bool(file.then)), ran.out + ran.err


@needs_simulator
@pytest.mark.long
def test_whole_lines_run_clean(cudabench: Callable[..., Ran]) -> None:
    """At least 79 files that can run get a suggested command without a gap, and at most 8 of these commands fail."""
    whole, clean = [], []
    for path in (file.path for file in FILES if file.expect == "ok"):
        match = re.search(r"(?:write|as in): cudabench (run .*)", cudabench("run", path).err)
        if match:
            whole.append(path.name)
            ran = cudabench(*shlex.split(match[1]), "--device", "sim", "--no-cpu", "--timeout", 60)
            if ran.code == 0:
                clean.append(path.name)
            else:
                print(path.name, ran.code, match[0], (ran.err + ran.out)[-600:], sep="\n")
    print(f"{len(whole)} whole lines, {len(clean)} run clean")
    assert len(whole) >= LEAST_WHOLE
    assert len(whole) - len(clean) <= MOST_UNCLEAN


def test_the_corpus_is_whole() -> None:
    """The corpus has at least 120 files, and each names its command and expectation."""
    assert len(FILES) >= LEAST
    for file in FILES:
        assert file.run, file.path
        assert file.expect.split(":")[0] in ("ok", "refused"), file.path
        assert "--expect" in file.run or file.expect != "ok" or "unverified" in file.path.name, file.path


@pytest.mark.slow
@pytest.mark.skipif(nvcc_version() is None, reason="needs nvcc and a host compiler")
@pytest.mark.parametrize("file", [pytest.param(file, id=file.path.name) for file in FILES if file.expect == "ok"][::5])
def test_nvcc_takes_every_fifth_file(file: Public) -> None:
    """nvcc compiles the text that the GPU path compiles, which leaves out the same functions as in the simulator."""
    words = file.run
    defines = dict(word.partition("=")[::2] for at, word in enumerate(words) if words[at - 1] in ("-D", "--define"))
    name = next((words[at + 1] for at, word in enumerate(words) if word in ("-k", "--kernel")), None)
    written = read_file(file.path, defines)
    kernel = find_kernel(written, name)
    compiled = compile_cubin(
        written.text, str(file.path), defines=defines, names=[kernel.expression], backend="nvcc", arch="sm_90"
    )
    assert compiled.cubin
