"""JUnit XML that follows the schema of Ant and Jenkins (windyroad/JUnit-Schema), which GitLab, Azure and the GitHub
reporters read too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone
from xml.etree import ElementTree

from cudabench.records.file import ResultsFile
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import units
from cudabench.text import xml
from cudabench.views.export.run import Run, labels_of, missed, name, title


def text(runs: Sequence[Run]) -> str:
    """Return a suite a problem and a case a kernel. Wrong and failed kernels and missed thresholds are failures.

    A case's time is the kernel's median. Suites of several runs have the file in their name.
    """
    root = ElementTree.Element("testsuites")
    for run, label in zip(runs, labels_of(runs), strict=True):
        suites: dict[str, list[Result]] = {}
        for result in run.file.results:
            card = f" on {result.device}" if len(run.file.devices) > 1 else ""
            heading = title(result) + card + (f" ({label})" if len(runs) > 1 else "")
            suites.setdefault(heading, []).append(result)
        for heading, results in suites.items():
            _suite(root, heading, results, run)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, heading: str, results: Sequence[Result], run: Run) -> None:
    file = run.file
    failures = [_failure(result, file) for result in results]
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": xml(heading),
            "package": "cudabench",
            "id": str(len(root)),
            "timestamp": run.when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
            "hostname": xml(str(file.host.get("name") or "localhost")),
            "tests": str(len(results)),
            "failures": str(sum(failure is not None for failure in failures)),
            "errors": "0",
            "skipped": str(sum(result.status == "skipped" for result in results)),
            "time": decimal(sum(result.time.median_s for result in results if result.time)),
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in _properties(file, file.device_of(results[0])).items():
        ElementTree.SubElement(properties, "property", {"name": xml(key), "value": xml(value)})
    for result, failure in zip(results, failures, strict=True):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "name": xml(name(result, file)),
                "classname": xml(f"cudabench.{result.operation}"),
                "time": decimal(result.time.median_s if result.time else 0),
            },
        )
        if failure:
            kind, sentence = failure
            shown = xml(sentence)
            ElementTree.SubElement(case, "failure", {"type": kind, "message": shown.splitlines()[0]}).text = shown
        elif result.status == "skipped":
            ElementTree.SubElement(case, "skipped", {"message": xml(result.reason or "")})
    ElementTree.SubElement(suite, "system-out").text = "\n".join(xml(_figures(r, file)) for r in results)
    warnings = [f"{r.kernel}: {w.message}" for r in results for w in r.warnings]
    ElementTree.SubElement(suite, "system-err").text = xml("\n".join(warnings))


def _failure(result: Result, file: ResultsFile) -> tuple[str, str] | None:
    """Return the kind of a failure and a sentence, or None."""
    if result.status in ("wrong", "failed"):
        return result.status, f"{result.kernel} {result.status}: {result.reason or 'no reason is recorded'}"
    below = missed(result, file)
    return ("threshold", below) if below else None


def _properties(file: ResultsFile, device: DeviceInfo | None) -> dict[str, str]:
    found = {f"tool.{key}": str(value) for key, value in file.tool.items() if value is not None}
    if device:
        found["device"] = device.name
        found |= {"driver": device.driver} if device.driver else {}
    return found


def _figures(result: Result, file: ResultsFile) -> str:
    shown = units.seconds(result.time.median_s) if result.time else result.status
    speed = f", {units.digits(result.bandwidth_gbps)} GB/s" if result.time and result.bandwidth_gbps is not None else ""
    return f"{name(result, file)}: {shown}{speed}"


def decimal(seconds: float) -> str:
    """Return a time as the schema wants it."""
    return f"{seconds:.9f}"  # xs:decimal has no exponent
