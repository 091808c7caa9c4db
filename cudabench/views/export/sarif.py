"""Exports SARIF 2.1.0 (docs.oasis-open.org/sarif/sarif/v2.1.0), which code scanning shows beside the lines of a file.

The findings are hazards, wrong and failed kernels, missed thresholds, and regressions from a base.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

from cudabench import __version__
from cudabench import text as texts
from cudabench.explain.accesses import cost
from cudabench.records.results import Access, Hazard, Result
from cudabench.results import compare
from cudabench.results.compare import Row
from cudabench.results.groups import grouped
from cudabench.views.export.run import Run, missed, name

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "cudabench/v1"

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Rule:
    """A kind of finding. `id`: the name of the kind; `sentence`: what was found; `help`: how to repair the kernel."""

    id: str
    sentence: str
    level: Level
    help: str


WARNINGS = ("threshold", "regression", "code-regression")
RULES = {
    rule: Rule(rule, sentence, "warning" if rule in WARNINGS else "error", repair)
    for rule, (sentence, repair) in {
        "race": (
            "Two threads access one location without a barrier between them, and at least one writes.",
            "Put __syncthreads() between the write and the other access, or make it an atomic.",
        ),
        "out-of-bounds": (
            "A thread accesses memory outside the array.",
            "Guard the access with the size of the array.",
        ),
        "use-after-free": (
            "A thread uses or frees memory of the device's heap that was freed already.",
            "Free memory once, after its last use.",
        ),
        "uninitialized-shared": (
            "A thread reads shared memory that no thread has written.",
            "Write every element that is read, also at the edges of the problem.",
        ),
        "divergent-barrier": ("Not all threads of a block reach a barrier.", "Move __syncthreads() out of the branch."),
        "deadlock": (
            "Threads wait for an event that no thread can cause any more.",
            "Let the awaited threads arrive: the message names what is missing.",
        ),
        "endless-loop": ("Threads are in an infinite loop.", "Let the loop change what its condition depends on."),
        "invalid-mask": (
            "A lane is not in the mask of its warp-wide function, or the mask names lanes that do not take part.",
            "Let the mask name just the lanes that take part: compute it with __ballot_sync() before the branch.",
        ),
        "misaligned": (
            "An address is not a multiple of the size of the access.",
            "Access vectors at multiples of their size only.",
        ),
        "missing-fence": (
            "A block reads data that another block wrote without a fence between data and flag.",
            "Put __threadfence() between writing the data and setting the flag.",
        ),
        "stale-read": (
            "A thread reads memory through the read-only cache that the same launch has written.",
            "Read memory that the kernel writes by plain loads: no __ldg(), no pointer that is const and __restrict__.",
        ),
        "undefined-value": ("An undefined value decides what happens.", "Initialize the variable."),
        "wrong-result": (
            "The output differs from the reference by more than the tolerance.",
            "Check the first wrong element, which the message names.",
        ),
        "failed": ("The kernel did not run to its end.", "The message says what stopped it."),
        "threshold": (
            "The kernel misses a threshold of its run.",
            "Run 'cudabench explain' on the kernel: it names the lines that waste.",
        ),
        "regression": (
            "The kernel takes longer, or more accesses and instructions, than in the base.",
            "Run 'cudabench explain' on the kernel, and compare the lines that grew.",
        ),
        "code-regression": (
            "The kernel's machine code needs more than that of the old revision.",
            "Run 'cudabench diff' on both revisions: it names the lines whose code grew.",
        ),
    }.items()
}


@dataclass(frozen=True)
class Finding:
    """A finding at a line of a file. If the line is not known, it is given as line 1.

    `snippet`: the text of the line; `count`: how often the finding occurred; `first`: the block and the thread in which
    it first occurred.
    """

    rule: Rule
    message: str
    kernel: str
    source: str
    line: int
    snippet: str = ""
    count: int = 1
    first: Mapping[str, list[int]] = field(default_factory=dict)


def text(runs: Sequence[Run], base: Run | None = None) -> str:
    """Return one SARIF log with the findings of all runs, and with their regressions from `base`.

    Raises UsageError if a run and the base share no measurement.
    """
    return log([finding for run in runs for finding in findings(run, base)])


def log(reported: Sequence[Finding]) -> str:
    """Return a SARIF log with these findings."""
    used = list(dict.fromkeys([*RULES.values(), *(finding.rule for finding in reported)]))
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "cudabench", "version": __version__, "rules": [*map(_descriptor, used)]}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, used.index(finding.rule)) for finding in reported],
            }
        ],
    }
    return texts.json(json.dumps(document, indent=2)) + "\n"


def findings(run: Run, base: Run | None = None) -> Iterator[Finding]:
    """Yield the findings of a run's results, in order, then the regressions from the base."""
    for result in run.file.results:
        label = name(result, run.file)
        for hazard in result.hazards or ():
            rule = RULES.get(hazard.kind) or Rule(
                hazard.kind, f"A hazard: {hazard.kind}.", "error", "The message names it."
            )
            first = {"block": list(hazard.block), "thread": list(hazard.thread)}
            file, count = file_of(result, hazard), max(hazard.count, 1)
            yield Finding(rule, hazard.message, label, file, hazard.line, hazard.source, count, first)
        mismatched = result.verification is not None and result.verification.mismatches > 0
        if result.status == "wrong" and (mismatched or not result.hazards):
            yield _of_result("wrong-result", result.reason or "the output is wrong", result, label)
        elif result.status == "failed":
            yield _of_result("failed", result.reason or "no reason is recorded", result, label)
        elif below := missed(result, run.file):
            yield _of_result("threshold", below, result, label)
    if base:
        for row in compare.compare(base.file, run.file).rows:
            what = worse(row)
            if what and row.base and row.new:
                where = grown(row.base, row.new)
                yield _of_result("regression", what, row.new, name(row.new, run.file), where)


def _of_result(rule: str, message: str, result: Result, label: str, where: Access | None = None) -> Finding:
    where = where or dearest(result)
    line, snippet = (where.line, where.source) if where else (1, "")
    return Finding(RULES[rule], message, label, file_of(result, where), line, snippet)


def file_of(result: Result, row: Access | Hazard | None) -> str:
    """Return the file that an access or a hazard is in: the source of the result, or a header in the same folder."""
    return str(PurePosixPath(result.source).with_name(row.file)) if row and row.file else result.source


def dearest(result: Result) -> Access | None:
    """Return the access with the highest cost; None if there is none."""
    return max(result.access or (), key=lambda row: cost(row).actual, default=None)


def worse(row: Row) -> str | None:
    """Return a sentence if the kernel of a row became slower or a count of it became larger; else None."""
    if row.grown and row.verdict != "unclear":
        return "takes more than the base: " + ", ".join(f"{c.name} {c.base} -> {c.new}" for c in row.grown)
    if row.verdict == "slower" and row.ratio:
        interval = f"{row.ratio.low - 1:+.1%} to {row.ratio.high - 1:+.1%}"
        return f"is {row.ratio.change:.1%} slower than the base ({interval})"
    return None


def grown(base: Result, new: Result) -> Access | None:
    """Return the access whose cost grew most, or None.

    Accesses are matched by source text, since line numbers change.
    """
    before = grouped(((row.source, row.space, row.op), cost(row).actual) for row in base.access or ())

    def growth(row: Access) -> int:
        return cost(row).actual - sum(before.get((row.source, row.space, row.op), ()))

    most = max(new.access or (), key=growth, default=None)
    return most if most and growth(most) > 0 else None


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": texts.line(rule.id),
        "shortDescription": {"text": texts.line(rule.sentence)},
        "fullDescription": {"text": texts.line(rule.sentence)},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(finding: Finding, at: int) -> dict[str, Any]:
    source, snippet = texts.line(finding.source), texts.visible(finding.snippet)
    region: dict[str, Any] = {"startLine": max(finding.line, 1)}
    if snippet:
        region["snippet"] = {"text": snippet}
    same = "\n".join((finding.rule.id, source, finding.kernel, snippet))
    return {
        "ruleId": texts.line(finding.rule.id),
        "ruleIndex": at,
        "level": finding.rule.level,
        "message": {"text": _message(texts.visible(f"{finding.kernel}: {finding.message}"))},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(source)}, "region": region}}],
        "occurrenceCount": finding.count,
        "partialFingerprints": {FINGERPRINT: hashlib.sha256(same.encode(errors="backslashreplace")).hexdigest()},
        "properties": {"kernel": texts.line(finding.kernel), **finding.first},
    }


def _message(message: str) -> str:
    """Return a message as SARIF needs it: a sentence with a full stop, in which links and placeholders are escaped."""
    escaped = re.sub(r"\[(?=[^\[\]]*\]\()", r"\\[", message.replace("{", "{{").replace("}", "}}"))
    return escaped if escaped.endswith(".") else f"{escaped}."


def _uri(source: str) -> str:
    """Return a path as a URI, relative if the path is relative. A colon in the path is escaped."""
    path = PurePosixPath(source or "unknown.cu")
    return f"file://{quote(str(path))}" if path.is_absolute() else quote(str(path))
