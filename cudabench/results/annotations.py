"""GitHub's workflow commands: annotations beside the lines of a file.

The format is that of docs.github.com, "Workflow commands for GitHub Actions": what would end a property or the command
is written as %25, %0A, %2C. All text from outside passes here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from cudabench.results.export.run import Run
from cudabench.results.export.sarif import Finding, findings
from cudabench.text import visible

KINDS: dict[str, Literal["error", "warning", "notice"]] = {"error": "error", "warning": "warning", "note": "notice"}


def of_run(run: Run) -> Iterator[str]:
    """Yield an annotation for each finding of a run: hazards, wrong and failed kernels, missed thresholds; then for
    each kernel that was skipped, of which nothing is known."""
    for finding in findings(run):
        yield of_finding(finding)
    for result in run.file.results:
        if result.status == "skipped":
            yield line("warning", f"{result.kernel}: {result.reason}", result.source, 1, "not executed")


def of_finding(finding: Finding) -> str:
    """Return the annotation of a finding."""
    message = f"{finding.kernel}: {finding.message}"
    return line(KINDS[finding.rule.level], message, finding.source, finding.line, finding.rule.id)


def line(kind: Literal["error", "warning", "notice"], message: str, file: str, at: int, title: str) -> str:
    """Return a workflow command."""
    properties = f"file={_property(file)},line={max(at, 1)},title={_property(f'cudabench: {title}')}"
    return f"::{kind} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
