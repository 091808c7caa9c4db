"""A comparison as JUnit XML, in which a regression is a failed test; the schema is that of `junit`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from cudabench.errors import EXIT_FAILED, EXIT_WRONG
from cudabench.records.results import Result
from cudabench.results import compare, units
from cudabench.results.compare import Comparison, Failure, Row
from cudabench.text import xml
from cudabench.views.export.junit import decimal
from cudabench.views.export.run import EPOCH, name, title

KINDS = {EXIT_WRONG: "wrong", EXIT_FAILED: "failed"}


def junit(names: Sequence[str], comparisons: Sequence[Comparison], failures: Sequence[Failure]) -> str:
    """Return a suite a problem and a case a kernel; a case fails where the comparison does, and says why.

    `names` are the files, the base first. A kernel that is in the base alone is skipped. A case's time is the new
    median.
    """
    failed = {id(failure.row): failure for failure in failures}
    root = ElementTree.Element("testsuites")
    for label, comparison in zip(names[1:], comparisons, strict=True):
        suites: dict[str, list[tuple[Row, Result]]] = {}
        for row in compare.worst_first(comparison.rows):
            result = row.new or row.base
            if result:
                suites.setdefault(title(result), []).append((row, result))
        for heading, pairs in suites.items():
            missing = [row for row, _ in pairs if row.new is None and id(row) not in failed]
            suite = ElementTree.SubElement(
                root,
                "testsuite",
                {
                    "name": xml(f"{heading}: {names[0]} -> {label}"),
                    "package": "cudabench",
                    "id": str(len(root)),
                    "timestamp": _when(comparison),
                    "hostname": xml(str(comparison.new.host.get("name") or "localhost")),
                    "tests": str(len(pairs)),
                    "failures": str(sum(id(row) in failed for row, _ in pairs)),
                    "errors": "0",
                    "skipped": str(len(missing)),
                    "time": decimal(sum(row.new.time.median_s for row, _ in pairs if row.new and row.new.time)),
                },
            )
            ElementTree.SubElement(suite, "properties")
            for row, result in pairs:
                file = comparison.new if row.new else comparison.base
                case = ElementTree.SubElement(
                    suite,
                    "testcase",
                    {
                        "name": xml(name(result, file)),
                        "classname": xml(f"cudabench.{result.operation}"),
                        "time": decimal(row.new.time.median_s if row.new and row.new.time else 0),
                    },
                )
                failure = failed.get(id(row))
                if failure:
                    shown = xml(failure.message)
                    attributes = {"type": KINDS.get(failure.code, "regression"), "message": shown.splitlines()[0]}
                    ElementTree.SubElement(case, "failure", attributes).text = shown
                elif row.new is None:
                    ElementTree.SubElement(case, "skipped", {"message": xml(f"only in {names[0]}")})
            ElementTree.SubElement(suite, "system-out").text = "\n".join(xml(_line(row)) for row, _ in pairs)
            ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _when(comparison: Comparison) -> str:
    """Return when the new file was measured, as the schema wants it; the epoch where the file does not say."""
    utc = str(comparison.new.provenance.get("utc", ""))
    return utc[:19] if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", utc) else EPOCH.strftime("%Y-%m-%dT%H:%M:%S")


def _line(row: Row) -> str:
    """Return a kernel, its verdict and what there is of times, ratio, counts that changed, and a reason."""
    times = [units.seconds(side.time.median_s) for side in (row.base, row.new) if side and side.time]
    ratio = f"ratio {row.ratio.value:.3f} ({row.ratio.low:.3f}-{row.ratio.high:.3f})" if row.ratio else ""
    counts = [f"{count.name} {count.base} -> {count.new}" for count in row.counts if count.new != count.base]
    said = [row.verdict, " -> ".join(times), ratio, *counts, row.reason]
    return f"{compare.name_of(row.key)}: {', '.join(filter(None, said))}"
