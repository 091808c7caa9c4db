"""Returns how the machine code of two revisions differs, as tables, Markdown, GitHub annotations or SARIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from cudabench.errors import EXIT_FAILED, EXIT_THRESHOLD, EXIT_WRONG
from cudabench.records.revisions import CodeDifference, LineChange
from cudabench.results import diff
from cudabench.results.columns import NOTHING, Column, count, markdown_table
from cudabench.results.diff import FIGURES, Failure
from cudabench.results.groups import grouped
from cudabench.text import markdown as escaped
from cudabench.views import annotations as github_lines
from cudabench.views.export import sarif

MOST_LINES = 8  # at most this many changed lines are shown for one kernel
VERDICTS = {"same": "same code", "unsupported": "does not compile", "failed": "FAILED"}
ORDER = ("failed", "changed", "added", "removed", "mended", "same", "unsupported")


@dataclass(frozen=True)
class Group:
    """The architectures on which a kernel differs in the same way.

    `members`: the kernel's difference on each of these architectures; `every`: the group has all architectures of the
    comparison.
    """

    members: tuple[CodeDifference, ...]
    every: bool = False

    @property
    def difference(self) -> CodeDifference:
        """The difference on the first architecture."""
        return self.members[0]

    @property
    def architectures(self) -> str:
        """The names of the architectures as text, such as 'sm_80 sm_90' or 'all 8'."""
        if self.every and len(self.members) > 2:
            return f"all {len(self.members)}"
        return " ".join(difference.arch for difference in self.members)


def groups(differences: Sequence[CodeDifference]) -> list[Group]:
    """Return the differences in groups, in order.

    Architectures on which a kernel differs in the same way share a group.
    """

    def shown(difference: CodeDifference) -> tuple[object, ...]:
        texts = tuple(cell(name, difference) for name in FIGURES) if difference.verdict != "same" else ()
        where = (difference.first.kind, difference.first.file, difference.first.line) if difference.first else None
        return difference.kernel, difference.verdict, difference.changed, texts, where, difference.reason

    count = len({difference.arch for difference in differences})
    together = grouped((shown(difference), difference) for difference in differences)
    return [Group(tuple(members), len(members) == count) for members in together.values()]


def cell(name: str, difference: CodeDifference) -> str:
    """Return a figure of both sides as text: '32 -> 40', or one number if both are equal."""
    old, new = (diff.figure_text(name, side) for side in (difference.old, difference.new))
    if old == new or difference.old is None or difference.new is None:
        return new if difference.new else old
    return f"{old} -> {new}"


def columns(rows: Sequence[Group]) -> list[Column[Group]]:
    """Return the columns of the table. A figure that no row has, or that is 0 in all rows, gets no column."""
    shown = [
        name
        for name in FIGURES
        if any(cell(name, row.difference) not in (NOTHING, "0 B", "0") for row in rows)
        or any(name in row.difference.changed for row in rows)
    ]
    return [
        Column("kernel", lambda row: row.difference.kernel, right=False),
        Column("architecture", lambda row: row.architectures, right=False),
        Column("verdict", verdict, right=False),
        *(Column(name, partial(_cell_of, name)) for name in shown),
    ]


def _cell_of(name: str, row: Group) -> str:
    """Return the text of a figure in a row; a range if the figure differs between the row's architectures."""
    texts = dict.fromkeys(cell(name, difference) for difference in row.members)
    if len(texts) == 1:
        return next(iter(texts))
    ordered = sorted(row.members, key=lambda difference: (FIGURES[name](difference.new) or 0) if difference.new else 0)
    return f"{cell(name, ordered[0])} .. {cell(name, ordered[-1])}"


def verdict(row: Group) -> str:
    """Return the verdict of a row in words, and how a simulated launch ended if its result is not correct."""
    difference = row.difference
    words = VERDICTS.get(difference.verdict, difference.verdict)
    disassembled = all(side and side.instructions is not None for side in (difference.old, difference.new))
    if (
        difference.verdict == "changed"
        and difference.changed == ("code",)
        and difference.first is None
        and disassembled
    ):
        words = "scheduling alone"
    if difference.verdict == "changed" and difference.changed == ("data",):
        words = "data alone"
    status = difference.new.status if difference.new else None
    return f"{words}, {status.upper()}" if status not in (None, "ok") else words


def notes(row: Group) -> Iterator[str]:
    """Yield the notes on a row: why a side does not compile, the first change, how a simulated launch went wrong."""
    difference = row.difference
    title = f"{difference.kernel} on {row.architectures}"
    if difference.reason:
        yield f"{title}: {difference.reason}"
    if difference.first:
        place = f"{difference.first.file or 'line'} {difference.first.line}" if difference.first.line else "no line"
        source = f": {difference.first.source}" if difference.first.source else ""
        what = "the same instructions, other operands, first" if difference.first.kind == "operands" else "first"
        old, new = difference.first.old or "the end", difference.first.new or "the end"
        yield f"{title}: {what} at instruction {difference.first.position}, {place}{source}\n    {old}  ->  {new}"
    if "arithmetic" in difference.changed:
        old, new = (", ".join((side and side.arithmetic) or ()) or "none" for side in (difference.old, difference.new))
        yield f"{title}: arithmetic {old} -> {new}"
    for side, label in ((difference.old, "old"), (difference.new, "new")):
        if side and side.status not in (None, "ok"):
            yield f"{title}, {label}: {side.status}: {side.reason}"


def detailed(rows: Sequence[Group]) -> list[Group]:
    """Return the rows whose changed lines are shown: for each kernel, the first row that has changed lines."""
    return [
        same_kernel[0]
        for same_kernel in grouped((row.difference.kernel, row) for row in rows if row.difference.lines).values()
    ]


def line_columns(rows: Sequence[LineChange]) -> list[Column[LineChange]]:
    """Return the columns of the table of changed lines; columns of counts only if a launch was simulated."""

    def pair(old: int | None, new: int | None) -> str:
        return count(new) if old == new else f"{count(old)} -> {count(new)}"

    columns: list[Column[LineChange]] = [
        Column("line", _place, right=False),
        Column("instructions", lambda row: pair(row.old_instructions, row.new_instructions)),
    ]
    if any(row.old_sectors or row.new_sectors for row in rows):
        columns.append(Column("sectors", lambda row: pair(row.old_sectors, row.new_sectors)))
    if any(row.old_wavefronts or row.new_wavefronts for row in rows):
        columns.append(Column("wavefronts", lambda row: pair(row.old_wavefronts, row.new_wavefronts)))
    return [*columns, Column("source", lambda row: row.source, right=False)]


def _place(row: LineChange) -> str:
    file = f"{row.file}:" if row.file else ""
    if row.old_line is None:
        return f"{file}{row.new_line} (new)"
    if row.new_line is None:
        return f"{file}{row.old_line} (gone)"
    return f"{file}{row.new_line}" + (f" (was {row.old_line})" if row.old_line != row.new_line else "")


def summary(differences: Sequence[CodeDifference]) -> str:
    """Return a sentence with the number of differences for each verdict, and say so if no measurement is needed."""
    kernels, architectures = (
        len({difference.kernel for difference in differences}),
        len({difference.arch for difference in differences}),
    )
    what = f"{kernels} kernel{'' if kernels == 1 else 's'} for {architectures} architecture"
    counts: Counter[str] = Counter(difference.verdict for difference in differences)
    verdicts = ", ".join(f"{counts[word]} {VERDICTS.get(word, word).lower()}" for word in ORDER if counts[word])
    nothing = "; there is nothing to measure" if counts["same"] == len(differences) else ""
    return f"{what}{'' if architectures == 1 else 's'}: {verdicts}{nothing}."


def markdown(names: tuple[str, str], differences: Sequence[CodeDifference]) -> str:
    """Return the tables in GitHub's Markdown. `names`: the names of both sides."""
    rows = groups(differences)
    lines = [f"**{escaped(names[0])} -> {escaped(names[1])}**", "", *markdown_table(columns(rows), rows), ""]
    lines += [escaped(summary(differences)), "", *(f"- {escaped(note)}" for row in rows for note in notes(row))]
    for row in detailed(rows):
        changed = row.difference.lines[:MOST_LINES]
        lines += ["", f"{escaped(f'{row.difference.kernel} on {row.difference.arch}')}:", ""]
        lines += markdown_table(line_columns(changed), changed)
    return "\n".join(lines).rstrip() + "\n"


RULES = {EXIT_WRONG: "wrong-result", EXIT_FAILED: "failed", EXIT_THRESHOLD: "code-regression", 0: "code-regression"}


def grown(
    source: str, differences: Sequence[CodeDifference], failed: Sequence[Failure]
) -> Iterator[tuple[str, int, sarif.Finding]]:
    """Yield (figure's name, exit code, finding) for each kernel and figure that failed or became worse.

    The exit code is 0 if the finding is not a failure. `source`: the file in which all findings are.
    """
    codes = grouped(((failure.difference.kernel, failure.metric), failure.code) for failure in failed)

    def sentences() -> Iterator[tuple[tuple[str, str], tuple[str, CodeDifference]]]:
        for failure in failed:
            difference = failure.difference
            if failure.metric not in diff.FAIL_ON:
                text = failure.message.partition(f" on {difference.arch}")[2].lstrip(": ")
                yield (difference.kernel, failure.metric), (text, difference)
        for difference in differences:
            for metric in diff.FAIL_ON:
                worse = (
                    diff.worse(difference, metric) if metric != "code" or (difference.kernel, "code") in codes else None
                )
                if worse:
                    yield (difference.kernel, metric), (worse, difference)

    for (kernel, metric), members in grouped(sentences()).items():
        by_text = grouped((text, difference.arch) for text, difference in members)
        message = "; ".join(f"{text} ({', '.join(architectures)})" for text, architectures in by_text.items())
        code = max(codes.get((kernel, metric), [0]))
        rule = sarif.RULES[RULES[code]]
        yield metric, code, sarif.Finding(rule, message, kernel, source, _line_of(members[0][1], metric))


def _line_of(difference: CodeDifference, metric: str) -> int:
    """Return the line of the new source for a finding: the line that grew most, the first change, or the kernel."""

    def growth(line: LineChange) -> int:
        if metric in ("sectors", "wavefronts"):
            return (getattr(line, f"new_{metric}") or 0) - (getattr(line, f"old_{metric}") or 0)
        return line.new_instructions - line.old_instructions

    own_lines = [line for line in difference.lines if not line.file and line.new_line]
    most = max(own_lines, key=growth, default=None)
    if most and most.new_line and growth(most) > 0:
        return most.new_line
    if difference.first and difference.first.line and not difference.first.file and difference.first.new:
        return difference.first.line
    return difference.line


def github(source: str, differences: Sequence[CodeDifference], failed: Sequence[Failure]) -> str:
    """Return annotations for GitHub: an error for each failure, a warning for each other figure that became worse."""
    lines = (
        github_lines.line(
            "error" if code else "warning", f"{finding.kernel}: {finding.message}", source, finding.line, metric
        )
        for metric, code, finding in grown(source, differences, failed)
    )
    return "".join(f"{line}\n" for line in lines)


def sarif_log(source: str, differences: Sequence[CodeDifference], failed: Sequence[Failure]) -> str:
    """Return a SARIF log with the same findings as `github`. `source`: the file in which the findings are."""
    return sarif.log([finding for _, _, finding in grown(source, differences, failed)])
