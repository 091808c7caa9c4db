"""Exports JUnit XML by the schema of Ant and Jenkins (windyroad/JUnit-Schema).

GitLab, Azure and the reporters for GitHub can read this XML too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timezone
from xml.etree import ElementTree

from cudabench.records.file import ResultsFile
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import units
from cudabench.results.groups import grouped
from cudabench.text import xml
from cudabench.views.export.run import Run, labels_of, missed, name, title


@dataclass(frozen=True)
class Case:
    """A test case.

    `failure`: (kind, sentence), or None; `skipped`: why it was skipped, or None; `line`: a line of figures for
    system-out.
    """

    name: str
    operation: str
    seconds: float
    failure: tuple[str, str] | None
    skipped: str | None
    line: str


def text(runs: Sequence[Run]) -> str:
    """Return XML with a suite for each problem and a test case for each kernel.

    A test case fails if its kernel is wrong, failed or missed a threshold. The case's time is the kernel's median time.
    With several runs, the name of a suite includes the file.
    """
    root = ElementTree.Element("testsuites")
    for run, label in zip(runs, labels_of(runs), strict=True):
        file = run.file
        suites = grouped(
            (title(result) + (f" on {result.device}" if len(file.devices) > 1 else ""), result)
            for result in file.results
        )
        for heading, results in suites.items():
            cases = [
                Case(
                    name(r, file), r.operation, r.time.median_s if r.time else 0, _failure(r, file),
                    (r.reason or "") if r.status == "skipped" else None, _figures(r, file),
                )
                for r in results
            ]  # fmt: skip
            warnings = [f"{r.kernel}: {w.message}" for r in results for w in r.warnings]
            when = run.when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
            properties = _properties(file, file.device_of(results[0]))
            named = f"{heading} ({label})" if len(runs) > 1 else heading
            add_suite(root, named, when, file, cases, properties, "\n".join(warnings))
    return written(root)


def add_suite(
    root: ElementTree.Element,
    heading: str,
    when: str,
    file: ResultsFile,
    cases: Sequence[Case],
    properties: Mapping[str, str],
    warnings: str | None = None,
) -> None:
    """Add a suite with its cases to the document. The suite's host is the host of `file`."""
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": xml(heading),
            "package": "cudabench",
            "id": str(len(root)),
            "timestamp": when,
            "hostname": xml(str(file.host.get("name") or "localhost")),
            "tests": str(len(cases)),
            "failures": str(sum(case.failure is not None for case in cases)),
            "errors": "0",
            "skipped": str(sum(case.skipped is not None for case in cases)),
            "time": _decimal(sum(case.seconds for case in cases)),
        },
    )
    suite_properties = ElementTree.SubElement(suite, "properties")
    for key, value in properties.items():
        ElementTree.SubElement(suite_properties, "property", {"name": xml(key), "value": xml(value)})
    for case in cases:
        attributes = {
            "name": xml(case.name), "classname": xml(f"cudabench.{case.operation}"), "time": _decimal(case.seconds)
        }  # fmt: skip
        element = ElementTree.SubElement(suite, "testcase", attributes)
        if case.failure:
            kind, sentence = case.failure
            shown = xml(sentence)
            ElementTree.SubElement(element, "failure", {"type": kind, "message": shown.splitlines()[0]}).text = shown
        elif case.skipped is not None:
            ElementTree.SubElement(element, "skipped", {"message": xml(case.skipped)})
    ElementTree.SubElement(suite, "system-out").text = "\n".join(xml(case.line) for case in cases)
    ElementTree.SubElement(suite, "system-err").text = None if warnings is None else xml(warnings)


def written(root: ElementTree.Element) -> str:
    """Return a document as text."""
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _failure(result: Result, file: ResultsFile) -> tuple[str, str] | None:
    """Return (kind, sentence) for a result that fails, or None."""
    if result.status in ("wrong", "failed"):
        return result.status, f"{result.kernel} {result.status}: {result.reason or 'no reason is recorded'}"
    below = missed(result, file)
    return ("threshold", below) if below else None


def _properties(file: ResultsFile, device: DeviceInfo | None) -> dict[str, str]:
    tool = {f"tool.{key}": str(value) for key, value in file.tool.items() if value is not None}
    driver = {"driver": device.driver} if device and device.driver else {}
    return {**tool, **({"device": device.name} if device else {}), **driver}


def _figures(result: Result, file: ResultsFile) -> str:
    shown = units.seconds(result.time.median_s) if result.time else result.status
    speed = f", {units.digits(result.bandwidth_gbps)} GB/s" if result.time and result.bandwidth_gbps is not None else ""
    return f"{name(result, file)}: {shown}{speed}"


def _decimal(seconds: float) -> str:
    return f"{seconds:.9f}"  # the type xs:decimal does not allow an exponent
