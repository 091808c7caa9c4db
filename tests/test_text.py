"""Text from outside: no output has control codes, bidirectional marks, CI commands or spreadsheet formulas from it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudabench import text
from cudabench.cli import invoke
from cudabench.views import console
from tests.conftest import Ran
from tests.results.test_compare import RECORDED, changed, slowed, wrong

Runner = Callable[..., Ran]

# Letters, mixed with harmful text: control codes, bidirectional marks, surrogates, CI commands, and formulas.
anything = st.lists(
    st.one_of(
        st.characters(),
        st.sampled_from([*map(chr, range(0xA0)), *"\u202a\u202e\u2066\u2069\u200f\u2028\ufeff\ud800\udfff=+-@|:#["]),
        st.sampled_from(
            ["::error::", "\x1b[31m", "\x1b]0;title\x07", "\r\n", "##vso[", "##[group]", "\n  ::set-output"]
        ),
    )
).map("".join)


def harmless(shown: str) -> bool:
    """Return whether a text has no control code except tab and newline, no bidirectional mark, and can be encoded."""
    return not any(
        (unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t")
        or unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        for c in shown
    )


def commands(shown: str) -> list[str]:
    """Return the lines that a CI runner of GitHub, Azure or TeamCity would take as commands."""
    return [
        line
        for line in re.split(r"[\n\r]", shown)
        if line.lstrip().startswith("::") or re.search(r"##(\[|vso\[|teamcity\[)", line)
    ]


@given(anything)
@example("\u202egnp.exe")
def test_visible(given: str) -> None:
    """visible() removes everything harmful and keeps harmless text."""
    shown = text.visible(given)
    assert harmless(shown)
    assert text.visible(shown) == shown
    if not text.HARMFUL.search(given):
        assert shown == given
    if harmless(given.replace("\r\n", "\n")) and given.isprintable():
        assert shown == given


@given(anything)
def test_one_line(given: str) -> None:
    """line() returns a single line."""
    assert harmless(text.line(given))
    assert "\n" not in text.line(given)


@given(anything)
@example("::error::x")
@example("a\n \t::error file=x::y")
@example("####[x")
def test_log_has_no_commands(given: str) -> None:
    """log() returns no CI command and nothing harmful."""
    shown = text.log(given)
    assert harmless(shown)
    assert commands(shown) == []


@pytest.mark.parametrize(
    "shown", ["f<std::pair<int, int>>", "cuda::std::min", "a ## b", "# define", "key: value", "::1"]
)
def test_log_leaves_code_alone(shown: str) -> None:
    """log() keeps C++ names and macros; it escapes only a line that begins with ::."""
    assert text.log(shown) == (shown if not shown.startswith("::") else r"\x3a:1")


@given(anything)
def test_cells_are_inert(given: str) -> None:
    """A cell never begins as a formula, also after blanks."""
    shown = text.cell(given)
    assert harmless(shown)
    assert not shown.lstrip(" \n\t").startswith(("=", "+", "-", "@"))


@given(anything)
def test_markdown_is_one_cell(given: str) -> None:
    """A Markdown cell is one line, with bars and tags escaped."""
    shown = text.markdown(given).replace("<br>", "")
    assert harmless(shown)
    assert "\n" not in shown
    assert not re.search(
        r"(?<!\\)(?:\\\\)*[|<>`]",
        re.sub(r"\\\\", "", shown).replace("\\|", "").replace("\\<", "").replace("\\>", "").replace("\\`", ""),
    )


@given(anything)
def test_json_keeps_its_value(given: str) -> None:
    """json() escapes harmful characters and keeps the value."""
    shown = text.json(json.dumps({given: [given]}))
    assert json.loads(shown) == {given: [given]}
    assert harmless(shown)
    assert commands(shown) == []


@given(anything)
def test_xml_is_well_formed(given: str) -> None:
    """xml() returns text that XML accepts."""
    from xml.etree import ElementTree

    element = ElementTree.Element("a")
    element.text = text.xml(given)
    assert (ElementTree.fromstring(ElementTree.tostring(element)).text or "") == text.xml(given)


# Printed text --------------------------------------------------------------------------------------------------------

HOSTILE = "x\x1b]0;title\x07\x9b31m\u202e\ud800\n::error::gone\n##vso[task]"


@settings(max_examples=30)
@given(anything)
def test_consoles_are_harmless(given: str) -> None:
    """Everything that rich prints, as text or in a table, is harmless."""
    from rich.table import Table
    from rich.text import Text

    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        console.out.cache_clear()
        table = Table(box=None)
        table.add_column(given)
        table.add_row(given)
        for printed in (given, Text(given, style="red"), table):
            console.out().print(printed)
    console.out.cache_clear()
    assert harmless(stream.getvalue())
    assert commands(stream.getvalue()) == []


def hostile() -> object:
    """Return the recorded file with hostile names of devices, kernels, types and reasons."""
    device = replace(RECORDED.devices[0], name=HOSTILE, driver=HOSTILE, uuid=HOSTILE)
    results = [replace(result, kernel=HOSTILE, dtype=HOSTILE) for result in RECORDED.results[:1]]
    more = changed(copy_row=wrong).results[:1]
    results += [replace(more[0], reason=HOSTILE, source=HOSTILE, size={HOSTILE: 3})]
    return replace(RECORDED, devices=[device], results=results, tool={"name": "cudabench", HOSTILE: HOSTILE})


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "bad.json", "bad.json"),
        ("compare", "bad.json", "good.json"),
        ("compare", "good.json", "bad.json", "--markdown"),
        ("compare", "bad.json", "good.json", "bad.json"),
        ("compare", "bad.json", "bad.json", "--json", "-"),
        *[("export", "bad.json", "--to", name) for name in ("csv", "markdown", "junit", "sarif", "bencher")],
    ],
)
def test_commands_print_nothing_harmful(cudabench: Runner, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Names in a results file never reach the output as control codes or CI commands."""
    (tmp_path / "bad.json").write_text(hostile().text())  # type: ignore[attr-defined]
    (tmp_path / "good.json").write_text(changed(copy_row=slowed(1.2)).text())
    ran = cudabench(*words)
    for written in (ran.out, ran.err):
        assert harmless(written)
        assert commands(written) == []
    assert "defect" not in ran.err


@pytest.mark.parametrize("word", ["\x1b[31mtranspoze", "x\n::error::y", "\ud800", "\u202exyz"])
def test_errors_are_harmless(cudabench: Runner, word: str) -> None:
    """Names on the command line appear in errors as harmless text."""
    for words in ([word], ["transpose", "--kernel", word], ["compare", word, word], ["export", word, "--to", "csv"]):
        ran = cudabench(*words)
        assert ran.code in (1, 2)
        assert harmless(ran.err)
        assert commands(ran.err) == []


def test_errors_survive_a_stream_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file name that is not valid Unicode gives an error message without a traceback."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    assert invoke(["compare", "\udcff.json", "\udcff.json"]) == 1
    stream.seek(0)
    assert r"\udcff.json" in stream.read()
