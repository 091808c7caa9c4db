"""Exports, each checked by a reader of its format: the csv module, JUnit's rules, and the schemas of the other
tools."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cudabench.errors import CudabenchError
from cudabench.records.file import ResultsFile
from cudabench.records.results import Hazard, Result
from cudabench.text import cell
from cudabench.text import markdown as text_markdown
from cudabench.views.export import FORMATS, export
from cudabench.views.export.run import Run
from tests.conftest import Ran, on_cards
from tests.results.test_compare import RECORDED, changed, failed, simulated, slowed, wrong

Runner = Callable[..., Ran]
NOON = datetime(2026, 1, 2, 13, 0, 0, tzinfo=timezone(timedelta(hours=1)))


def to(target_format: str, *files: ResultsFile, **options: object) -> str:
    """Return files in a format, as files of these names written at noon."""
    runs = [Run(file, f"run{at}.json", NOON) for at, file in enumerate(files)]
    return export(target_format, runs, **options)


def skipped(result: Result) -> Result:
    """Return a result with status skipped."""
    return replace(result, status="skipped", reason="no int8 form", block=(0, 0, 0), time=None, bandwidth_gbps=None)


def mixed() -> ResultsFile:
    """Return a file with a result of each status and a missed threshold."""
    file = changed(copy_row=wrong, naive_row=failed, smem=skipped)
    return replace(file, settings={**file.settings, "min_bandwidth": 2000.0})


def csv_rows(file: ResultsFile) -> list[dict[str, str]]:
    """Return an export's rows as the csv module reads them."""
    return list(csv.DictReader(io.StringIO(to("csv", file), newline="")))


# CSV -----------------------------------------------------------------------------------------------------------------


def test_csv_is_read_back() -> None:
    """The CSV has a row per result, with the file's numbers to the last digit."""
    rows = csv_rows(RECORDED)
    assert [row["kernel"] for row in rows] == [result.kernel for result in RECORDED.results]
    for row, result in zip(rows, RECORDED.results, strict=True):
        assert result.time is not None
        assert float(row["median_s"]) == result.time.median_s
        assert float(row["bandwidth_gbps"]) == result.bandwidth_gbps
        assert int(row["bytes"]) == result.bytes
        assert (row["size"], row["block"], row["cache"]) == ("4096x4096", "32x8x1", "cold")
        assert RECORDED.device is not None
        assert row["device_uuid"] == RECORDED.device.uuid


def test_csv_of_what_was_not_measured_is_empty() -> None:
    """A missing bandwidth is an empty cell, not a zero."""
    row = csv_rows(mixed())[0]
    assert (row["status"], row["bandwidth_gbps"], row["median_s"]) == ("wrong", "", "")


def test_csv_of_the_simulator() -> None:
    """Counts have separate columns."""
    row = csv_rows(simulated(hazards=3))[0]
    counts = ("global_load_sectors", "shared_wavefronts", "instructions", "hazards")
    assert [row[name] for name in counts] == ["1024", "256", "5000", "3"]


@pytest.mark.slow
@given(st.text())
def test_csv_keeps_any_text(text: str) -> None:
    """Commas, quotes and line breaks in a text survive; control codes and formulas are neutralized."""
    file = replace(RECORDED, results=[replace(wrong(RECORDED.results[0]), reason=text)])
    assert csv_rows(file)[0]["reason"] == cell(text)


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =cmd|' /C calc'!A0", "\r=1"])
def test_csv_holds_no_formula(formula: str) -> None:
    """A cell never begins like a spreadsheet formula."""
    result = replace(RECORDED.results[0], kernel=formula, reason=formula)
    row = csv_rows(replace(RECORDED, results=[result]))[0]
    for key in ("kernel", "reason"):
        assert row[key].lstrip()[0] not in "=+-@"


def test_csv_names_each_card() -> None:
    """A run on several GPUs names the GPU of each row."""
    file = on_cards(RECORDED, "GPU-a", "GPU-b")
    file.devices[1] = replace(file.devices[1], name="NVIDIA H100")
    found = {(row["device"], row["device_name"]) for row in csv_rows(file)}
    assert found == {("cuda:0", "NVIDIA H200"), ("cuda:1", "NVIDIA H100")}


# Markdown ------------------------------------------------------------------------------------------------------------


def cells(line: str) -> list[str]:
    """Return the cells of a table line as GitHub splits it: at bars without a backslash before them."""
    assert line.startswith("| ")
    assert line.endswith(" |")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown_table() -> None:
    """The table has a delimiter row below its heading, and the same number of cells in every row."""
    lines = to("markdown", RECORDED).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert cells(table[0]) == ["kernel", "block", "time", "GB/s", "of copy", "of peak", "x CPU", "verified"]
    assert all(re.fullmatch(r":--|--:", cell) for cell in cells(table[1]))
    assert {len(cells(line)) for line in table} == {8}
    assert cells(table[-1]) == ["vector", "32 x 8", "36.61 µs", "3663", "98.8%", "76.1%", "2680", "yes"]
    assert lines[lines.index(table[0]) - 1] == ""  # GitHub requires a blank line before a table


def test_markdown_says_what_is_not_right() -> None:
    """Below the table are the reasons of wrong, failed and skipped kernels, and missed thresholds."""
    text = to("markdown", mixed())
    assert "| copy-row | 32 x 8 | - | - |" in text
    for line in (
        "- copy-row wrong: 3 wrong elements",
        "- naive-row failed: an illegal address",
        "- smem skipped: no int8 form",
        "- smem-pad reached 1970 GB/s, under --min-bandwidth 2000",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("f<float>", r"f\<float\>"),
        ("__global__", r"\_\_global\_\_"),
        ("my_kernel", "my_kernel"),
        ("a*b*c", r"a\*b\*c"),
        ("one\ntwo", "one<br>two"),
        ("a\\|b", r"a\\\|b"),
        ("a\x1b[0mb", r"a\\x1b\[0mb"),
        ("a&lt;b", r"a\&lt;b"),
    ],
)
def test_markdown_escapes(text: str, shown: str) -> None:
    """Characters with a meaning in Markdown are escaped."""
    assert text_markdown(text) == shown


def test_markdown_of_the_simulator() -> None:
    """The table of a simulator's file has counts."""
    text = to("markdown", simulated())
    assert "| load sectors | store sectors |" in text
    assert "1 024" in text


# JUnit ---------------------------------------------------------------------------------------------------------------


def check_junit(text: str) -> ElementTree.Element:
    """Parse a report and check it with the rules of the JUnit schema (windyroad/JUnit-Schema)."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for at, suite in enumerate(root):
        assert suite.tag == "testsuite"
        assert {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"} <= set(
            suite.attrib
        )
        assert suite.attrib["id"] == str(at)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        assert suite.attrib["hostname"]
        tags = [child.tag for child in suite]
        assert tags[0] == "properties"
        assert tags[-2:] == ["system-out", "system-err"]
        assert set(tags[1:-2]) <= {"testcase"}
        names = [item.attrib["name"] for item in suite[0]]
        assert all(names)
        assert len(set(names)) == len(names)
        tests = suite.findall("testcase")
        assert suite.attrib["tests"] == str(len(tests))
        assert suite.attrib["failures"] == str(len(suite.findall("testcase/failure")))
        assert suite.attrib["skipped"] == str(len(suite.findall("testcase/skipped")))
        for case in tests:
            assert {"name", "classname", "time"} <= set(case.attrib)
            assert case.attrib["name"] == " ".join(case.attrib["name"].split())  # an xs:token
            assert re.fullmatch(r"\d+(\.\d+)?", case.attrib["time"])  # an xs:decimal: no exponent
            assert len(case) <= 1
            for child in case:
                assert child.tag in ("failure", "skipped")
                assert child.tag == "skipped" or child.attrib["type"]
    return root


def test_junit_of_right_results() -> None:
    """Each right result is a passed test case with its time."""
    (suite,) = check_junit(to("junit", RECORDED))
    assert suite.attrib["name"] == "transpose 4096 x 4096 float32"
    assert suite.attrib["timestamp"] == "2026-01-02T12:00:00"
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("6", "0")
    assert suite.findall("testcase")[-1].attrib["time"] == "0.000036608"


def test_junit_of_failures() -> None:
    """Wrong, failed and too slow kernels are failures with their reasons; skipped kernels are skipped."""
    (suite,) = check_junit(to("junit", mixed()))
    found = {
        case.attrib["name"].split()[1]: (child.attrib.get("type"), child.attrib["message"])
        for case in suite.findall("testcase")
        for child in case
    }
    assert found == {
        "copy-row": ("wrong", "copy-row wrong: 3 wrong elements"),
        "naive-row": ("failed", "naive-row failed: an illegal address"),
        "smem": (None, "no int8 form"),
        "smem-pad": ("threshold", "smem-pad reached 1970 GB/s, under --min-bandwidth 2000"),
    }


@pytest.mark.slow
@given(st.text())
def test_junit_survives_any_reason(text: str) -> None:
    """A report with any text as a reason is well-formed."""
    check_junit(to("junit", replace(RECORDED, results=[replace(wrong(RECORDED.results[0]), reason=text)])))


def test_junit_of_two_problems() -> None:
    """Each problem is a test suite."""
    other = replace(RECORDED.results[0], dtype="float64")
    root = check_junit(to("junit", replace(RECORDED, results=[*RECORDED.results, other])))
    assert [suite.attrib["name"].split()[-1] for suite in root] == ["float32", "float64"]


# github-action-benchmark ---------------------------------------------------------------------------------------------


def check_action(text: str) -> list[dict[str, object]]:
    """Parse an array and check it as the action does (its src/extract.ts, BenchmarkResult)."""
    entries = json.loads(text)
    assert isinstance(entries, list)
    assert entries  # the action fails if the array is empty
    for entry in entries:
        assert set(entry) <= {"name", "unit", "value", "range", "extra"}
        assert isinstance(entry["value"], (int, float))
        assert all(isinstance(entry[key], str) for key in entry if key != "value")
    assert len({entry["name"] for entry in entries}) == len(entries)
    return list(entries)


def test_action_times() -> None:
    """Times are in microseconds; a kernel that is not right has no entry."""
    entries = check_action(to("github-benchmark", mixed()))
    assert [entry["name"] for entry in entries] == [
        "transpose smem-pad 32x8 4096x4096 float32",
        "transpose smem-unroll-pad 32x8 4096x4096 float32",
        "transpose vector 32x8 4096x4096 float32",
    ]
    assert entries[-1]["value"] == pytest.approx(36.608)
    assert (entries[-1]["unit"], entries[-1]["range"]) == ("µs", "± 0.612")


def test_action_bandwidths() -> None:
    """Bandwidths are in GB/s."""
    entries = check_action(to("github-benchmark", RECORDED, metric="bandwidth"))
    assert entries[-1]["unit"] == "GB/s"
    assert entries[-1]["value"] == pytest.approx(RECORDED.results[-1].bandwidth_gbps)


def test_several_cards_have_names_of_their_own() -> None:
    """For a run on several GPUs every entry, suite and table names its GPU."""
    file = on_cards(RECORDED, "GPU-a", "GPU-b")
    entries = check_action(to("github-benchmark", file))
    assert len(entries) == 2 * len(RECORDED.results)
    assert entries[-1]["name"] == "transpose vector 32x8 4096x4096 float32 cuda:1"
    suites = check_junit(to("junit", file))
    assert [suite.attrib["name"] for suite in suites] == [
        "transpose 4096 x 4096 float32 on cuda:0",
        "transpose 4096 x 4096 float32 on cuda:1",
    ]
    markdown = to("markdown", file)
    assert markdown.count("| kernel |") == 2
    assert markdown.index("cuda:0 NVIDIA H200") < markdown.index("cuda:1 NVIDIA H200")


def test_action_counts() -> None:
    """The simulator's counts are exact, and zeros are left out."""
    entries = check_action(to("github-benchmark", simulated(sectors=123456789, wavefronts=0)))
    assert [(str(e["name"]).rpartition(", ")[2], e["value"]) for e in entries] == [
        ("global sectors", 123456789),
        ("instructions", 5000),
    ]


def test_unverified_meets_no_threshold() -> None:
    """An unverified result is marked, and misses every threshold."""
    file = replace(
        RECORDED,
        results=[replace(RECORDED.results[0], verification=None)],
        settings={**RECORDED.settings, "min_bandwidth": 1.0},
    )
    assert "| unverified |" in to("markdown", file)
    (suite,) = check_junit(to("junit", file))
    assert suite.attrib["failures"] == "1"


def test_action_refuses_nothing() -> None:
    """An export without entries is an error, since the action fails for an empty array."""
    with pytest.raises(CudabenchError, match="no right result"):
        to("github-benchmark", changed(**{r.kernel.replace("-", "_"): wrong for r in RECORDED.results}))


# Bencher -------------------------------------------------------------------------------------------------------------

# The schema that bencher.dev/docs/reference/bencher-metric-format gives
BENCHER = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}


def check_bencher(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Parse a report and check it with Bencher's schema and its limits for names."""
    document: dict[str, dict[str, dict[str, float]]] = json.loads(text)
    jsonschema_rs.validate(BENCHER, document)
    for name, measures in document.items():
        assert len(name) <= 1024
        for measure, metric in measures.items():
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", measure)  # a slug
            assert metric.get("lower_value", metric["value"]) <= metric["value"]
            assert metric["value"] <= metric.get("upper_value", metric["value"])
    return document


def test_bencher_times() -> None:
    """Latency is in nanoseconds with its quartiles, bandwidth with the corresponding bounds; a kernel that is not right
    has no entry."""
    document = check_bencher(to("bencher", mixed()))
    assert list(document) == [
        "transpose smem-pad 32x8 4096x4096 float32",
        "transpose smem-unroll-pad 32x8 4096x4096 float32",
        "transpose vector 32x8 4096x4096 float32",
    ]
    vector, result = document["transpose vector 32x8 4096x4096 float32"], RECORDED.results[-1]
    assert result.time is not None
    assert vector["latency"] == {
        "value": pytest.approx(result.time.median_s * 1e9, rel=1e-6),
        "lower_value": pytest.approx(result.time.q1_s * 1e9, rel=1e-6),
        "upper_value": pytest.approx(result.time.q3_s * 1e9, rel=1e-6),
    }
    assert vector["bandwidth"]["value"] == pytest.approx(result.bandwidth_gbps, rel=1e-6)
    slowest = (result.bandwidth_gbps or 0) * result.time.median_s / result.time.q3_s
    assert vector["bandwidth"]["lower_value"] == pytest.approx(slowest, rel=1e-6)


def test_bencher_counts() -> None:
    """Each count of the simulator is a separate, exact measure."""
    (measures,) = check_bencher(to("bencher", simulated(sectors=123456789))).values()
    assert measures["global-sectors"] == {"value": 123456789}
    assert measures["instructions"] == {"value": 5000}


def test_bencher_refuses_nothing() -> None:
    """A report without any measure is an error."""
    with pytest.raises(CudabenchError, match=r"run0\.json holds no right result"):
        to("bencher", changed(**{r.kernel.replace("-", "_"): wrong for r in RECORDED.results}))


# SARIF ---------------------------------------------------------------------------------------------------------------

TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
# The rules of SARIF 2.1.0 for the objects used here, with those of GitHub's code scanning.
SARIF = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "pattern": "sarif-schema-2.1.0.json$"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "version", "rules"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id", "shortDescription", "fullDescription", "help"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string", "minLength": 1},
                                                "shortDescription": TEXT,
                                                "fullDescription": TEXT,
                                                "help": TEXT,
                                                "defaultConfiguration": {
                                                    "properties": {"level": {"enum": ["error", "warning", "note"]}}
                                                },
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ruleId", "message", "locations", "partialFingerprints"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": TEXT,
                                "occurrenceCount": {"type": "integer", "minimum": 1},
                                "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                                "properties": {"type": "object"},
                                "locations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation", "region"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "required": ["uri"],
                                                        "properties": {
                                                            "uri": {
                                                                "type": "string",
                                                                "pattern": r"^([A-Za-z0-9_./~-]|%[0-9A-F]{2}|file:/)+$",
                                                            }
                                                        },
                                                    },
                                                    "region": {
                                                        "type": "object",
                                                        "required": ["startLine"],
                                                        "additionalProperties": False,
                                                        "properties": {
                                                            "startLine": {"type": "integer", "minimum": 1},
                                                            "snippet": TEXT,
                                                        },
                                                    },
                                                },
                                            }
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def check_sarif(text: str) -> list[dict[str, Any]]:
    """Parse a log and check it with SARIF's rules; each result's rule index matches its rule."""
    document = json.loads(text)
    jsonschema_rs.validate(SARIF, document)
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        # A brace outside a pair is a placeholder, text in brackets before a parenthesis is a link.
        message = result["message"]["text"]
        assert re.fullmatch(r"(?:\{\{|\}\}|[^{}])*", message)
        assert not re.search(r"(?<!\\)\[[^\[\]]*\]\(", message)
    return list(run["results"])


def place(result: dict[str, Any]) -> tuple[str, int]:
    """Return the file and line of a SARIF result."""
    physical = result["locations"][0]["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


RACE = Hazard("race", 7, "tile[x] = a[x];", (1, 0, 0), (3, 2, 0), 12, "threads write and read tile without a barrier")


def test_sarif_of_hazards() -> None:
    """A hazard is an error at its line, with its count, first block and thread, and the source line."""
    result = replace(simulated().results[0], status="wrong", hazards=(RACE,), source="src/my file.cu")
    (found,) = check_sarif(to("sarif", replace(simulated(), results=[result])))
    assert (found["ruleId"], found["level"], found["occurrenceCount"]) == ("race", "error", 12)
    assert place(found) == ("src/my%20file.cu", 7)
    assert found["message"]["text"].endswith("float32: threads write and read tile without a barrier.")
    assert (found["properties"]["block"], found["properties"]["thread"]) == ([1, 0, 0], [3, 2, 0])
    assert found["locations"][0]["physicalLocation"]["region"]["snippet"]["text"] == RACE.source


def test_sarif_of_what_is_not_right() -> None:
    """Wrong and failed kernels are errors, a missed threshold is a warning; right and skipped kernels give no
    result."""
    found = check_sarif(to("sarif", mixed()))
    assert [(each["ruleId"], each["level"]) for each in found][:3] == [
        ("wrong-result", "error"),
        ("failed", "error"),
        ("threshold", "warning"),
    ]
    assert not any("smem:" in each["message"]["text"] for each in found)
    assert check_sarif(to("sarif", RECORDED)) == []


def test_sarif_of_regressions() -> None:
    """Against a base, slower kernels and grown counts are warnings; a count is at the access that grew."""
    slower = to("sarif", changed(smem=slowed(1.08)), base=Run(RECORDED))
    (found,) = check_sarif(slower)
    assert found["ruleId"] == "regression"
    assert "slower than the base" in found["message"]["text"]
    (grown,) = check_sarif(to("sarif", simulated(sectors=4096), base=Run(simulated(sectors=1024))))
    assert "global sectors 1024 -> 4096" in grown["message"]["text"]
    access = next(row for row in simulated(sectors=4096).results[0].access or () if row.space == "global")
    assert place(grown)[1] == max(access.line, 1)
    assert check_sarif(to("sarif", RECORDED, base=Run(RECORDED))) == []


def test_sarif_fingerprints_outlive_moved_lines() -> None:
    """A finding keeps its fingerprint if its line moves; another kernel's finding has a different one."""
    base = simulated().results[0]
    moved = replace(RACE, line=70)
    logs = [
        replace(simulated(), results=[replace(base, status="wrong", hazards=(hazard,), kernel=kernel)])
        for hazard, kernel in ((RACE, "a"), (moved, "a"), (RACE, "b"))
    ]
    prints = [check_sarif(to("sarif", log))[0]["partialFingerprints"]["cudabench/v1"] for log in logs]
    assert prints[0] == prints[1] != prints[2]


def test_sarif_of_an_unknown_hazard() -> None:
    """An unknown kind of hazard gets a new rule, and line 0 becomes line 1."""
    result = replace(simulated().results[0], status="wrong", hazards=(replace(RACE, kind="later", line=0),))
    (found,) = check_sarif(to("sarif", replace(simulated(), results=[result])))
    assert (found["ruleId"], place(found)[1]) == ("later", 1)


@pytest.mark.slow
@given(st.text(), st.text(min_size=1))
@example("see [this](1) and {0}", "a:b.cu")
def test_sarif_survives_any_text(words: str, source: str) -> None:
    """A log with any texts follows the rules, and its places are valid URIs."""
    hazard = replace(RACE, message=words, source=words)
    result = replace(simulated().results[0], status="wrong", kernel=words, source=source, hazards=(hazard,))
    check_sarif(to("sarif", replace(simulated(), results=[result])))


# Several files -------------------------------------------------------------------------------------------------------


def test_several_files() -> None:
    """An export of several files has all results in every format, and makes equal names unique."""
    other = changed(smem=slowed(1.08))
    rows = list(csv.DictReader(io.StringIO(to("csv", RECORDED, other), newline="")))
    assert [row["file"] for row in rows] == ["run0.json"] * 6 + ["run1.json"] * 6
    assert to("markdown", RECORDED, other).count("\n### run") + 1 == 2
    assert len(check_junit(to("junit", RECORDED, other))) == 2
    assert len(check_action(to("github-benchmark", RECORDED, other))) == 12
    assert len(check_bencher(to("bencher", RECORDED, other))) == 12
    only = replace(RECORDED, results=[replace(RECORDED.results[0], dtype="float64")])
    assert all(not name.endswith("run0") for name in check_bencher(to("bencher", RECORDED, only)))


HOSTILE = "x\x1b]0;t\x07\x9b1m\u202e\ud800\n::error::gone\n##vso[x]"


@pytest.mark.parametrize("target_format", FORMATS)
def test_no_format_passes_on_control_codes(target_format: str) -> None:
    """No export contains control codes from names in a results file."""
    device = replace(RECORDED.devices[0], name=HOSTILE, driver=HOSTILE)
    bad = replace(simulated().results[0], status="wrong", hazards=(replace(RACE, kind=HOSTILE, message=HOSTILE),))
    results = [
        replace(RECORDED.results[0], kernel=HOSTILE, operation=HOSTILE, dtype=HOSTILE),
        replace(RECORDED.results[1], status="wrong", reason=HOSTILE, source=HOSTILE),
        bad,
    ]
    file = replace(RECORDED, devices=[device], results=results, tool={HOSTILE: HOSTILE}, host={"name": HOSTILE})
    text = export(target_format, [Run(file, HOSTILE)])
    text.encode()  # no lone surrogate
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    assert "\u202e" not in text


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """Write the recorded file and return its name."""
    (tmp_path / "run.json").write_text(RECORDED.text())
    return "run.json"


@pytest.mark.parametrize("target_format", list(FORMATS))
def test_command(cudabench: Runner, recorded: str, tmp_path: Path, target_format: str) -> None:
    """Standard output and -o get the same text, and no other file is written."""
    ran = cudabench("export", recorded, "--to", target_format)
    assert (ran.code, ran.err) == (0, "")
    assert cudabench("export", recorded, "--to", target_format, "-o", "out.txt").out == ""
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == ran.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "run.json"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("run.json",), 2, "export needs a format: write cudabench export"),
        (("run.json", "--to", "yaml"), 2, "'yaml' is not one of"),
        (("none.json", "--to", "csv"), 1, "none.json: no such file."),
        (("cut.json", "--to", "csv"), 1, "cut.json is cut off"),
        (("run.json", "--to", "csv", "-o", "no/where.csv"), 1, "--output no/where.csv: the folder no does not exist"),
        (("run.json", "--to", "csv", "-o", "."), 1, "--output . is a directory"),
        (("run.json", "--to", "csv", "--metric", "time"), 2, "--metric is for --to github-benchmark"),
        (("run.json", "--to", "csv", "--base", "run.json"), 2, "--base is for --to sarif"),
        (("--to", "csv"), 2, "export takes at least one results file"),
    ],
)
def test_bad_input(
    cudabench: Runner, recorded: str, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    """Each bad command line gives one message and its exit code, and writes no file."""
    (tmp_path / "cut.json").write_text(RECORDED.text()[:900])
    ran = cudabench("export", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.json", "run.json"]


def test_output_survives_a_failure(cudabench: Runner, recorded: str, tmp_path: Path) -> None:
    """A failed export keeps the old output file."""
    (tmp_path / "out.csv").write_text("old")
    (tmp_path / "cut.json").write_text(RECORDED.text()[:900])
    assert cudabench("export", "cut.json", "--to", "csv", "-o", "out.csv").code == 1
    assert (tmp_path / "out.csv").read_text() == "old"
