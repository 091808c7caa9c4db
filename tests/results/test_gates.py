"""Gates: which growth a threshold stops, and text from outside that the tool prints or writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.compile.compiler import nvrtc_version
from cudabench.records.values import written
from cudabench.results.compare import compare, failures
from cudabench.system.reading import parse_json
from cudabench.views.export import FORMATS
from cudabench.views.progress import Progress
from tests.conftest import Ran
from tests.results.test_compare import RECORDED, simulated
from tests.test_text import anything, commands, harmless

Runner = Callable[..., Ran]

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


# Thresholds of counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grown", "threshold", "fails"),
    [
        ({"instructions": 5045}, 0.5, False),
        ({"instructions": 5045}, 0.0, True),
        ({"instructions": 7500}, 0.5, False),
        ({"instructions": 7501}, 0.5, True),
        ({"instructions": 6450}, 0.29, False),  # 0.29 * 5000 is less than 1450 in floating point
        ({"sectors": 1100, "instructions": 4000}, 0.05, True),
        ({"sectors": 1030, "instructions": 4000}, 0.05, False),
        ({"instructions": 4000}, 0.0, False),
    ],
)
def test_counts_have_the_threshold(grown: dict[str, int], threshold: float, fails: bool) -> None:
    """A simulator count that grew by more than the threshold fails, exactly to one count; a count that shrank does
    not."""
    found = failures(compare(simulated(), simulated(**grown), threshold=threshold), threshold)
    assert bool(found) == fails
    if fails:
        assert found[0].code == 4
        assert found[0].message.endswith(f", over --fail-on-regression {threshold * 100:.4g}%")
        assert "instructions 5000 -> 4000" not in found[0].message


def test_a_count_that_was_zero() -> None:
    """If a count was zero, any growth exceeds any percentage."""
    base, new = simulated(wavefronts=0), simulated(wavefronts=1)
    assert [one.code for one in failures(compare(base, new, threshold=5.0), 5.0)] == [4]
    assert failures(compare(base, base, threshold=0.0), 0.0) == []


def test_the_option(cudabench: Runner, tmp_path: Path) -> None:
    """--fail-on-regression ends with exit code 4 above the percentage, with both in the message, and 0 within it."""
    (tmp_path / "base.json").write_text(simulated().text())
    (tmp_path / "new.json").write_text(simulated(instructions=5045).text())
    assert cudabench("compare", "base.json", "new.json", "--fail-on-regression", "50%").code == 0
    ran = cudabench("compare", "base.json", "new.json", "--fail-on-regression", "0.5%")
    assert ran.code == 4
    assert "instructions 5000 -> 5045, over --fail-on-regression 0.5%" in " ".join(ran.err.split())


# JUnit's lists -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (
            simulated(sectors=1030, instructions=4000),
            "mixed, global sectors 1024 -> 1030, PTX instructions 5000 -> 4000",
        ),
        (simulated(), "same"),
        (RECORDED, None),
    ],
)
def test_lists_without_empty_items(cudabench: Runner, tmp_path: Path, new: Any, line: str | None) -> None:
    """A kernel's line in JUnit has no empty items: counts without times, or times without counts."""
    (tmp_path / "base.json").write_text((simulated() if line else RECORDED).text())
    (tmp_path / "new.json").write_text(new.text())
    ran = cudabench("compare", "base.json", "new.json", "--to", "junit")
    (said,) = (one.text or "" for one in ElementTree.fromstring(ran.out).iter("system-out"))
    assert ", ," not in said
    assert ": ," not in said
    assert line is None or said == f"copy-row (32 x 8): {line}"


# Text from outside ---------------------------------------------------------------------------------------------------

PRINTS = r"""#include <cstdio>
__global__ void one() {
    printf("::error title=x::a\n  ::set-output name=a::b\n\r::warning::c\n##[error]d ##vso[task]e\n:");
}
__global__ void two() { printf(":error::f"); printf("\t::notice::g\n:"); printf(":debug::h"); }
__global__ void three() { printf("%s", "\n::error::i"); }
"""


@pytest.mark.sampled(3)
@needs_nvrtc
@pytest.mark.parametrize("words", [("run", "-k", "all", "-d", "sim"), ("check", "--to", "github"), ("check", "-q")])
def test_what_kernels_print(cudabench: Runner, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Text that kernels print never becomes a command for a CI runner."""
    (tmp_path / "prints.cu").write_text(PRINTS)
    ran = cudabench(words[0], "prints.cu", *words[1:], "--grid", 1, "--block", 1)
    assert ran.code == 0, ran.err
    assert "title=x::a" in ran.err
    assert commands(ran.out + ran.err) == []


@given(st.lists(anything))
def test_parts_of_a_line(parts: list[str]) -> None:
    """Text pieces that several kernels print do not form a CI command together."""
    with pytest.MonkeyPatch.context() as patched:
        said: list[str] = []
        patched.setattr("sys.stderr.write", said.append)
        with Progress(1, shown=False) as progress:
            for part in parts:
                progress.finished(part)
    assert commands("".join(said)) == []


@needs_nvrtc
def test_annotations(cudabench: Runner, tmp_path: Path) -> None:
    """An annotation is a GitHub command, and the text in it is not a command for another CI runner."""
    text = '#include <cassert>\n__global__ void k(int *a) { assert(a[0] && "##vso[task.x] ##[error]"); }\n'
    (tmp_path / "k.cu").write_text(text)
    ran = cudabench("check", "k.cu", "--to", "github", "--grid", 1, "--block", 1, "--arg", "a=int32[1]:zeros")
    (line,) = (line for line in ran.out.splitlines() if line.startswith("::error"))
    assert "task.x" in line
    assert commands(line[2:]) == []


def test_one_value() -> None:
    """--print escapes text that a CI runner would take as a command."""
    assert written("::error::x") == r"\x3a:error::x"
    assert written("ok") == "ok"


# Unpaired surrogates -------------------------------------------------------------------------------------------------


def test_half_a_pair_is_no_character() -> None:
    """An unpaired surrogate becomes U+FFFD; whole pairs, and text that looks like a surrogate, stay."""
    text = r'{"\ud800a": ["\udfff", {"b": "\ud83d\ude00", "c": "\\ud800"}], "d": 1}'
    for given_text in (text, text.encode()):
        assert parse_json(given_text) == {"\ufffda": ["\ufffd", {"b": "\U0001f600", "c": r"\ud800"}], "d": 1}


@pytest.mark.parametrize("key", ["kernel", "source", "dtype", "reason", "device"])
def test_every_format_holds_it(cudabench: Runner, tmp_path: Path, key: str) -> None:
    """A results file with unpaired surrogates can be exported, compared and shown in every format."""
    document = json.loads(simulated(hazards=2).text())
    document["results"][0] |= {key: "x\ud800", "status": "wrong"}
    document["tool"]["\udcff"] = "\ud800"
    (tmp_path / "odd.json").write_text(json.dumps(document))
    (tmp_path / "base.json").write_text(simulated(hazards=2).text())
    lines: list[tuple[str, ...]] = [("report", "odd.json", "-o", "r.html"), ("compare", "odd.json", "odd.json")]
    for name in FORMATS:
        lines += [("export", "odd.json", "--to", name), ("export", "odd.json", "--to", name, "-o", f"o.{name}")]
    lines += [
        ("compare", "base.json", "odd.json", "--to", to, "-o", f"c.{to}") for to in ("junit", "markdown", "github")
    ]
    for words in lines:
        ran = cudabench(*words)
        assert "defect" not in ran.err, words
        assert harmless(ran.out + ran.err)
    for path in tmp_path.iterdir():
        path.read_text(encoding="utf-8")


def test_a_word_that_a_key_lacks(cudabench: Runner, tmp_path: Path) -> None:
    """An unknown status of a ceiling gives one message."""
    ceiling = {"name": "read", "group": "memory", "value": 1.0, "unit": "GB/s", "status": "odd"}
    document = {**json.loads(RECORDED.text()), "results": [], "ceilings": [ceiling]}
    (tmp_path / "odd.json").write_text(json.dumps(document))
    ran = cudabench("export", "odd.json", "--to", "markdown")
    assert ran.code == 1
    assert 'status is "odd", not one of ok, wrong, failed, skipped' in ran.err
