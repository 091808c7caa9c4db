"""The content of a report's page. The template only arranges it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

from cudabench.errors import CudabenchError, UsageError
from cudabench.records.file import ResultsFile
from cudabench.records.results import Result
from cudabench.records.revisions import CodeDifference
from cudabench.results import compare, units
from cudabench.results.groups import grouped
from cudabench.views import headlines, roofline
from cudabench.views.export.run import short_names
from cudabench.views.quantities import BANDWIDTH, Quantity
from cudabench.views.report import kernels, ladders
from cudabench.views.report.entries import (
    Entry,
    best_of,
    groups_of,
    open_at_first,
    problem,
    quantities_of,
    ratio_to_ideal,
    worst_first,
)
from cudabench.views.report.ladders import change_of

MOST_DETAILED = 40  # at most this many kernels get a section
MOST_LINES = 8  # at most this many lines about faults or changes are at the top of the page
MOST_RUNS = 4  # a page shows at most this many files, because a reader cannot compare more
WORST = ("wrong", "failed", "skipped", "ok")


@dataclass(frozen=True)
class Headline:
    """A line at the top of the page.

    `link`: the anchor to which the line links, or ''; `bad`: whether the line reports a fault.
    """

    text: str
    link: str = ""
    bad: bool = False


def page(
    files: Sequence[ResultsFile], names: Sequence[str], held: Sequence[ResultsFile] | None = None
) -> SimpleNamespace:
    """Return the content of a page of results files; its attributes have the names that the template uses.

    `names`: the files' names; `held`: the files in the form in which the page embeds them for its script. Raises
    CudabenchError if the files have no results, UsageError for too many files.
    """
    if not any(file.results or file.diff for file in files):
        raise CudabenchError(f"{names[0]} lacks results: there is nothing to report.")
    if len(files) > MOST_RUNS:
        raise UsageError(f"A page shows at most {MOST_RUNS} results files side by side, not {len(files)}: name fewer.")
    labels = _labels(files, names)
    comparison = _comparison(files)
    changes = compare.worst_first(comparison.rows) if comparison and comparison.scope != "hardware" else []
    results = [result for file in files for result in file.results]
    titles = list(dict.fromkeys(map(problem, results))) or ["Machine code of two revisions"]
    groups = worst_first(groups_of(files), changes)
    order = [entry for entries in groups.values() for entry in entries]
    best = best_of(order)
    worst = sorted(order, key=lambda e: (WORST.index(e.status), e is not best))[:MOST_DETAILED]
    shown = [entry for entry in order if any(entry is other for other in worst)]
    anchors = {id(entry): f"kernel-{number}" for number, entry in enumerate(shown, 1)}
    first_open = next((e for e in shown if e.status in ("wrong", "failed")), None) or open_at_first(shown, best)
    charts = roofline.charts(files, labels)
    sides = max(1, sum(len(entry.results) for entry in shown))
    good, verdict = _verdict(files, comparison, order)
    return SimpleNamespace(
        title=f"{titles[0]} and {len(titles) - 1} more" if len(titles) > 1 else titles[0],
        verdict=verdict,
        good=good,
        headlines=_changed(order, anchors, changes) if changes else _headlines(order, anchors),
        notes=comparison.changed if comparison else (),
        labels=labels,
        machines=tuple(kernels.machine(file, label) for file, label in zip(files, labels, strict=True)),
        ladders=tuple(
            ladder
            for heading, entries in groups.items()
            for ladder in ladders.ladders(heading, entries, files, anchors, comparison)
        ),
        limits=ladders.limits(order, labels),
        rooflines=charts,
        roofline_missing="" if charts else roofline.missing(results),
        kernels=tuple(
            kernels.section(
                entry, anchors[id(entry)], files, held or files, labels, sides,
                is_open=entry is first_open or len(shown) == 1,
            )
            for entry in shown
        ),
        several=len(groups) > 1,
        hidden=len(order) - len(shown),
        hazards=tuple(
            (f"{entry.name}{f' ({labels[run]})' if len(files) > 1 else ''}", hazard)
            for entry in order
            for run, (_, result) in entry.results.items()
            for hazard in result.hazards or ()
        ),
        looked=any(result.hazards is not None for result in results),
        warnings=_warnings(order, labels),
        clocks=tuple(filter(None, map(kernels.clocks, files))),
        diffs=tuple(difference for file in files for difference in file.diff),
    )  # fmt: skip


def _labels(files: Sequence[ResultsFile], names: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the runs on the page: short file names; of two files, after 'before: ' and 'after: '."""
    stems = short_names(names)
    return tuple(stems) if len(files) != 2 else (f"before: {stems[0]}", f"after: {stems[1]}")


def _comparison(files: Sequence[ResultsFile]) -> compare.Comparison | None:
    if len(files) != 2 or not all(file.results for file in files):
        return None
    try:
        return compare.compare(files[0], files[1])
    except CudabenchError:
        return None  # the files have different problems, so there is a ladder for each file


def _verdict(
    files: Sequence[ResultsFile], comparison: compare.Comparison | None, order: Sequence[Entry]
) -> tuple[str, str]:
    """Return ('good', 'bad' or 'plain', the first sentence of the page)."""
    if not order:
        return _diff_verdict([difference for file in files for difference in file.diff])
    count, statuses = len(order), Counter(entry.status for entry in order)
    bad = [f"{statuses[status]} {status}" for status in WORST if statuses[status] and status != "ok"]
    hazards = sum(len(entry.last.hazards or ()) for entry in order)
    state = f"{', '.join(bad)} of {count}" if bad else f"{'It is' if count == 1 else f'All {count} are'} right"
    if hazards:
        state += f", {hazards} hazard{'' if hazards == 1 else 's'}"
    elif any(entry.last.hazards is not None for entry in order):
        state += ", without a hazard"
    good = "bad" if statuses["wrong"] or statuses["failed"] or hazards else "plain" if bad else "good"
    if comparison and any(row.ratio or row.counts for row in comparison.rows):
        changed, text = _compared(comparison)
        return ("bad" if good == "bad" else changed), f"{text} {state}."
    return good, f"{_best_sentence(order)}{state}."


# verdicts of the command `compare`
BETTER, WORSE = ("faster", "fewer", "mended"), ("slower", "more", "wrong", "failed")


def _compared(comparison: compare.Comparison) -> tuple[str, str]:
    totals = Counter(row.verdict for row in comparison.rows)
    sentence = f"Before to after: {', '.join(f'{number} {verdict}' for verdict, number in totals.most_common())}."
    mean = comparison.geometric_mean
    if mean is not None:
        sentence += f" The geometric mean of the times' ratios is {units.digits(mean, 3)}."
    worse, better = (any(totals[verdict] for verdict in verdicts) for verdicts in (WORSE, BETTER))  # type: ignore[index]
    return ("bad" if worse else "good" if better else "plain"), sentence


def _best_sentence(order: Sequence[Entry]) -> str:
    """Return a sentence on the best kernel and its figures; '' for several problems."""
    best = best_of(order)
    figures = quantities_of([entry.last for entry in order])
    if best is None or not figures or len({problem(entry.last) for entry in order}) > 1:
        return ""
    result, first = best.last, figures[0]
    value, ideal = first.value(result), first.ideal(result)
    if value is None:
        return ""
    if len(order) > 1 and result.time is None and ideal:
        return _wasteful(order, first)
    timed = result.time if first is BANDWIDTH else None
    times = value / ideal if ideal else 0.0
    parts = (
        f"{first.text(value)} {first.unit}",
        units.seconds(timed.median_s) if timed else "",
        f"{units.percent(result.copy_fraction)} of a copy" if timed and result.copy_fraction else "",
        f"{units.digits(times, 3)} times the ideal" if times > 1 else "",
        "no more than needed" if ideal and times <= 1 else "",
    )
    did = "" if len(order) == 1 else " is fastest" if result.time else " moves least"
    return f"{best.name}{did}: {', '.join(filter(None, parts))}. "


def _wasteful(order: Sequence[Entry], quantity: Quantity) -> str:
    """Return a sentence that says how many kernels waste nothing in a count, and which one wastes most."""
    ratios = [
        (ratio, entry) for entry in order if entry.status == "ok" and (ratio := ratio_to_ideal(quantity, entry.last))
    ]
    lean = sum(ratio < 1.005 for ratio, _ in ratios)
    (least, best), (most, worst) = (pick(ratios, key=lambda pair: pair[0]) for pick in (min, max))
    if lean == len(ratios):
        return f"No kernel takes more {quantity.name} than needed. "
    times = f"{worst.name} takes {units.digits(most, 3)} times as many"
    if lean:
        return f"{lean} of {len(ratios)} kernels take no more {quantity.name} than needed; {times}. "
    return f"{best.name} takes {units.digits(least, 3)} times the ideal {quantity.name}; {times}. "


def _diff_verdict(differences: Sequence[CodeDifference]) -> tuple[str, str]:
    counts = Counter(difference.verdict for difference in differences)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    kernels = len({difference.kernel for difference in differences})
    counted = f"{kernels} kernel{'' if kernels == 1 else 's'}"
    good = "bad" if counts["failed"] else "good" if set(counts) == {"same"} else "plain"
    return good, f"{counted} on {len({difference.arch for difference in differences})} architectures: {verdicts}."


def _named(order: Sequence[Entry]) -> list[Result]:
    """Return the result of each kernel in the newest run, with the name that the page gives to the kernel.

    With several problems, the name includes the problem.
    """
    several = len({problem(entry.last) for entry in order}) > 1
    names = (f"{entry.name} ({problem(entry.last)})" if several else entry.name for entry in order)
    return [replace(entry.last, kernel=name) for entry, name in zip(order, names, strict=True)]


def _headlines(order: Sequence[Entry], anchors: Mapping[int, str]) -> tuple[Headline, ...]:
    """Return the lines at the top of the page: faults, hazards, the lowest bound and the most waste.

    A terminal shows the same lines under the table of kernels.
    """
    named = _named(order)
    links = {result.kernel: anchors.get(id(entry), "") for entry, result in zip(order, named, strict=True)}
    bad = headlines.reasons((result.kernel, result) for result in named if result.status in ("wrong", "failed"))
    lines = [
        Headline(f"{', '.join(names)} {status}: {reason or 'no reason is recorded'}", links[names[0]], bad=True)
        for (status, reason), names in sorted(bad.items(), key=lambda item: WORST.index(item[0][0]))
    ]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [Headline(f"{len(lines) - MOST_LINES} more are wrong or failed.", "ladder", bad=True)]
    lines += _hazards(named)
    if not any(result.time for result in named) and len({problem(result) for result in named}) == 1:
        lines.append(Headline(headlines.lowest_line(named)))
    worst = headlines.most_wasteful(named)
    if worst:
        lines.append(Headline(headlines.waste_line(worst, worst.kernel), links[worst.kernel]))
    return tuple(line for line in lines if line.text)


def _changed(
    order: Sequence[Entry], anchors: Mapping[int, str], changes: Sequence[compare.Row]
) -> tuple[Headline, ...]:
    """Return lines on the kernels that changed, the worst first, and on the number of unchanged kernels."""
    named = _named(order)
    names = {
        id(entry.last): (result.kernel, anchors.get(id(entry), "")) for entry, result in zip(order, named, strict=True)
    }
    lines = []
    for row in changes:
        if row.verdict != "same":
            name, link = names.get(id(row.new or row.base), (compare.name_of(row.key), ""))
            change = ", ".join(filter(None, (row.verdict, change_of(row), row.reason)))
            lines.append(Headline(f"{name}: {change}", link, bad=row.verdict in WORSE))
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [Headline(f"{len(lines) - MOST_LINES} more are not the same.", "ladder")]
    same = sum(row.verdict == "same" for row in changes)
    if same:
        lines.append(Headline("1 kernel is the same." if same == 1 else f"{same} kernels are the same."))
    return (*_hazards(named), *lines)


def _hazards(named: Sequence[Result]) -> list[Headline]:
    """Return a list with one line, which gives the number of hazards of each kernel; an empty list without hazards."""
    counts = [f"{result.kernel} ({len(result.hazards)})" for result in named if result.hazards]
    return [Headline(f"Hazards: {', '.join(counts)}.", "hazards", bad=True)] if counts else []


def _warnings(order: Sequence[Entry], labels: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """Return the distinct warnings, as (code, sentence, kernels)."""
    kernels_of = grouped(
        ((warning.code, warning.message), f"{entry.name} ({labels[run]})" if len(labels) > 1 else entry.name)
        for entry in order
        for run, result in entry.runs
        for warning in result.warnings
    )
    most = 6
    return tuple(
        (code, message, ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else ""))
        for (code, message), names in kernels_of.items()
    )
