"""Exports a comparison as JUnit XML, in the same format as `junit`. A regression is a failed test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from cudabench.errors import EXIT_FAILED, EXIT_WRONG
from cudabench.records.results import Result
from cudabench.results import compare, units
from cudabench.results.compare import Comparison, Failure, Row
from cudabench.results.groups import grouped
from cudabench.views.export.junit import Case, add_suite, written
from cudabench.views.export.run import EPOCH, name, title

KINDS = {EXIT_WRONG: "wrong", EXIT_FAILED: "failed"}


def junit(names: Sequence[str], comparisons: Sequence[Comparison], failures: Sequence[Failure]) -> str:
    """Return XML with a suite for each problem and a test case for each kernel.

    A test case fails if the comparison fails because of the case's kernel. `names`: the files' names, the base first.
    If only the base has a kernel, its test case is skipped. The time of a case is the kernel's new median time.
    """
    failed = {id(failure.row): failure for failure in failures}
    root = ElementTree.Element("testsuites")
    for label, comparison in zip(names[1:], comparisons, strict=True):
        sides = ((row, row.new or row.base) for row in compare.worst_first(comparison.rows))
        for heading, pairs in grouped((title(result), (row, result)) for row, result in sides if result).items():
            cases = [_case(row, result, comparison, failed.get(id(row)), names[0]) for row, result in pairs]
            utc = str(comparison.new.provenance.get("utc", ""))  # the JUnit format needs a time in whole seconds
            when = utc[:19] if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", utc) else f"{EPOCH:%Y-%m-%dT%H:%M:%S}"
            add_suite(root, f"{heading}: {names[0]} -> {label}", when, comparison.new, cases, {})
    return written(root)


def _case(row: Row, result: Result, comparison: Comparison, failure: Failure | None, base: str) -> Case:
    return Case(
        name(result, comparison.new if row.new else comparison.base),
        result.operation,
        row.new.time.median_s if row.new and row.new.time else 0,
        (KINDS.get(failure.code, "regression"), failure.message) if failure else None,
        f"only in {base}" if row.new is None and not failure else None,
        _line(row),
    )


def _line(row: Row) -> str:
    """Return a line on a kernel: its verdict and, if known, times, ratio, changed counts and the reason."""
    times = [units.seconds(side.time.median_s) for side in (row.base, row.new) if side and side.time]
    ratio = f"ratio {row.ratio.value:.3f} ({row.ratio.low:.3f}-{row.ratio.high:.3f})" if row.ratio else ""
    counts = [f"{count.name} {count.base} -> {count.new}" for count in row.counts if count.new != count.base]
    parts = [row.verdict, " -> ".join(times), ratio, *counts, row.reason]
    return f"{compare.name_of(row.key)}: {', '.join(filter(None, parts))}"
