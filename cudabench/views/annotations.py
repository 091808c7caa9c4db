"""GitHub's workflow commands, which make GitHub show annotations beside the lines of a source file.

The format is described at docs.github.com, "Workflow commands for GitHub Actions". Characters that would end a property
or the command are escaped: %25, %0A, %2C. All text from outside passes through this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from cudabench.errors import EXIT_FAILED, EXIT_WRONG
from cudabench.results.compare import Comparison, Failure, Row, name_of, worst_first
from cudabench.text import no_commands, visible
from cudabench.views.export.run import Run
from cudabench.views.export.sarif import dearest, file_of, findings, grown, worse

KINDS: dict[str, Literal["error", "warning", "notice"]] = {"error": "error", "warning": "warning", "note": "notice"}


def of_run(run: Run) -> Iterator[str]:
    """Yield an annotation for each finding of a run, then for each skipped kernel."""
    for finding in findings(run):
        message = f"{finding.kernel}: {finding.message}"
        yield line(KINDS[finding.rule.level], message, finding.source, finding.line, finding.rule.id)
    for result in run.file.results:
        if result.status == "skipped":
            yield line("warning", f"{result.kernel}: {result.reason}", result.source, 1, "not executed")


def of_comparison(comparison: Comparison, failures: Sequence[Failure]) -> Iterator[str]:
    """Yield an error for each kernel that makes a comparison fail, and a warning for each other kernel that became
    worse."""
    failed = {id(failure.row): failure for failure in failures}
    for row in worst_first(comparison.rows):
        failure, what = failed.get(id(row)), worse(row)
        if failure:
            title = row.verdict if failure.code in (EXIT_WRONG, EXIT_FAILED) or row.new is None else "regression"
            yield line("error", failure.message, *_place(row), title)
        elif what:
            yield line("warning", f"{name_of(row.key)} {what}", *_place(row), "regression")


def _place(row: Row) -> tuple[str, int]:
    """Return (file, line) of a kernel's first hazard; without hazards, of the access whose cost grew most, or else of
    the most costly access."""
    result = row.new or row.base
    if result is None:
        return "", 1
    if row.new and row.new.hazards:
        return file_of(row.new, row.new.hazards[0]), row.new.hazards[0].line
    where = (grown(row.base, row.new) if row.base and row.new else None) or dearest(result)
    return file_of(result, where), where.line if where else 1


def line(kind: Literal["error", "warning", "notice"], message: str, file: str, at: int, title: str) -> str:
    """Return a workflow command that annotates line `at` of a file."""
    properties = f"file={_property(file)},line={max(at, 1)},title={_property(f'cudabench: {title}')}"
    return f"::{kind} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return no_commands(visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
