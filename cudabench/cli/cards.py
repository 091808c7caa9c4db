"""`cudabench compare` of files that hold ceilings: two cards side by side, and a gate for one card over time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from cudabench.cli.output import Output, say
from cudabench.errors import EXIT_OK, EXIT_THRESHOLD, UsageError
from cudabench.records.file import ResultsFile
from cudabench.results import ceilings
from cudabench.results.ceilings import Comparison
from cudabench.system import outputs
from cudabench.text import json as json_text


@dataclass(frozen=True)
class Asked:
    """What the command line asks for: the names of the files, when to fail, and where the comparison goes."""

    names: tuple[str, ...]
    threshold: float | None
    strict: bool
    target: str
    file: Path | None
    output: Output
    as_json: bool


def compare(files: Sequence[ResultsFile], first: bool, asked: Asked) -> int:
    """Compare the first file's ceilings with each other file's, show that, and return the exit code: 4 where a ceiling
    is worse by more than the threshold, or with --strict has no value any more.

    Raises UsageError for a form that holds no ceilings, and where files have none in common.
    """
    if asked.target not in ("table", "markdown"):
        raise UsageError(f"--to {asked.target} has no place for ceilings: use --to table or --to markdown.")
    if first:
        say(f"{asked.names[0]} does not exist yet: this is a first run, and passes.")
        return EXIT_OK
    made = [ceilings.compare(files[0], other) for other in files[1:]]
    found = [sentence for one in made for sentence in failures(one, asked.threshold, asked.strict)]
    if asked.as_json:
        document = {**ceilings.document(asked.names, made), "failures": found}
        text = json_text(json.dumps(document, indent=2)) + "\n"
        place = asked.output.path or asked.output.stream
        if place:
            outputs.write_whole(place, text.encode())
        else:
            click.echo(text, nl=False)
    _show(made, asked)
    for sentence in found:
        say(sentence)
    return EXIT_THRESHOLD if found else EXIT_OK


def failures(comparison: Comparison, threshold: float | None, strict: bool) -> list[str]:
    """Return a sentence for each ceiling that is worse by more than the threshold, or lost where that counts."""
    found = []
    for row in comparison.rows:
        if threshold is not None and row.better is not None and 1 / row.better - 1 > threshold:
            found.append(
                f"{row.name} is worse by {1 / row.better - 1:.1%}, more than {threshold * 100:.3g}%: "
                f"{ceilings.value(row.base.value if row.base else None, row.unit)} -> "
                f"{ceilings.value(row.new.value if row.new else None, row.unit)}."
            )
    if strict:
        found += [f"{row.name} has no value any more: {_why(row)}." for row in comparison.lost]
    return found


def _why(row: ceilings.Row) -> str:
    return (row.new.reason if row.new else "") or "it was not measured"


def _show(made: Sequence[Comparison], asked: Asked) -> None:
    from cudabench.views import ceilings as page
    from cudabench.views import console

    pairs = [(one, (asked.names[0], name)) for one, name in zip(made, asked.names[1:], strict=True)]
    text = "".join(page.pair_markdown(one, labels) for one, labels in pairs)
    if asked.target == "table":
        text = "".join(
            console.captured(partial(page.show_pair, comparison=one, labels=labels)) for one, labels in pairs
        )
    if asked.file:
        outputs.write_whole(asked.file, text.encode())
    elif asked.target == "markdown" and not asked.output.quiet:
        click.echo(text, nl=False, err=asked.output.to_stdout)
    elif not asked.output.quiet:
        for one, labels in pairs:
            page.show_pair(console.tables(asked.output.to_stdout), one, labels)
