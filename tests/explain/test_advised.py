"""Kernels from public posts: the report is compared with a specialist's advice that was written before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudabench.compile import nvdisasm
from cudabench.compile.compiler import nvrtc_version
from tests.conftest import Ran

FOLDER = Path(__file__).parents[1] / "corpus" / "advised"
pytestmark = pytest.mark.machine_code
SENTENCE = re.compile(r"(?:~ )?lines? \d")
needs_simulator = pytest.mark.skipif(
    nvrtc_version() is None or nvdisasm.path() is None, reason="needs NVRTC and nvdisasm"
)


@dataclass(frozen=True)
class Judged:
    """A kernel with patterns that its report must contain, and patterns that it must not contain."""

    kernel: str
    says: list[str]
    never: list[str]


def read() -> list[Judged]:
    """Read the patterns in the comments above the kernels."""
    text = (FOLDER / "kernels.cu").read_text()
    found = []
    for head, kernel in re.findall(r"((?:^//.*\n)+)__global__ void (?:__\w+\(.*?\) )?(\w+)\(", text, re.M):
        said = {key: re.findall(rf"^// {key}: (.*)$", head, re.M) for key in ("says", "never")}
        found.append(Judged(kernel, said["says"], said["never"]))
    return found


CORPUS = read()


def told(text: str) -> Iterator[str]:
    """Yield the sentences of a report, each as one line."""
    sentence = ""
    for line in [*text.splitlines(), ""]:
        if sentence and (not line or SENTENCE.match(line)):
            yield sentence
            sentence = ""
        if sentence or SENTENCE.match(line):
            sentence += f" {line}"


def test_all_are_judged() -> None:
    """Each kernel of the profile has a pattern that its report must or must not contain."""
    named = re.findall(r"^\[(\w+)\]$", (FOLDER / "kernels.toml").read_text(), re.M)
    assert sorted(named) == sorted(one.kernel for one in CORPUS)
    assert all(one.says or one.never for one in CORPUS)


@pytest.mark.slow
@needs_simulator
@pytest.mark.parametrize("judged", CORPUS, ids=lambda judged: judged.kernel)
def test_what_is_said(judged: Judged, cudabench: Callable[..., Ran]) -> None:
    """The report contains the specialist's advice, and no advice that is known to be false."""
    ran = cudabench("explain", "--profile", str(FOLDER / "kernels.toml"), "--kernel", judged.kernel)
    assert ran.code == 0, ran.err
    sentences = list(told(ran.out))
    for pattern in judged.says:
        assert any(re.search(pattern, line) for line in sentences), (pattern, sentences)
    for pattern in judged.never:
        assert not any(re.search(pattern, line) for line in sentences), (pattern, sentences)
