"""What a report's page says, as plain records: the template only sets it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from cudabench import __version__
from cudabench.errors import CudabenchError, UsageError
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import Access, Branch, Counted, DeviceInfo, Result
from cudabench.records.revisions import CodeDifference
from cudabench.results import compare, units
from cudabench.views import headlines
from cudabench.views.plot import Quantity, quantities
from cudabench.views.report import roofline, samples, source

MOST_DETAILED = 40  # kernels that have a section of their own
MOST_ROWS = 640  # lines of source in all
MOST_LINES = 8  # at the top of the page, of what is wrong or changed
MOST_RUNS = 4  # files of one page: more are no comparison that an eye makes
WORST = ("wrong", "failed", "skipped", "ok")


@dataclass(frozen=True)
class Mark:
    """A line across the bars of a ladder: where, in percent of their width, and what it is."""

    at: float
    name: str
    text: str
    kind: str
    right: bool  # its label stands to the left of it


@dataclass(frozen=True)
class Bar:
    """One value: its length and that of what would do, in percent of the width."""

    width: float
    ideal: float | None
    text: str
    run: int


@dataclass(frozen=True)
class Rung:
    """A row of a ladder: a kernel with a bar a run and quantity, and its figures."""

    name: str
    link: str | None
    status: str
    reason: str | None
    bars: tuple[Bar, ...]
    cells: tuple[str, ...]
    change: str = ""
    verdict: str = ""
    best: bool = False


@dataclass(frozen=True)
class Ladder:
    """The kernels of one problem: what is drawn, the lines across, the headings of the figures and the rungs."""

    title: str
    quantity: str
    better: str
    marks: tuple[Mark, ...]
    headings: tuple[str, ...]
    rungs: tuple[Rung, ...]
    changes: bool
    ideal: bool


@dataclass(frozen=True)
class Limit:
    """A lower bound of a kernel's time: its length, and what it is of."""

    resource: str
    text: str
    width: float
    detail: str


@dataclass(frozen=True)
class Limited:
    """What bounds one kernel of one run (at: which), the longest first, and the measured time where there is one."""

    kernel: str
    run: str
    at: int
    on: str
    limits: tuple[Limit, ...]
    measured: float | None
    measured_text: str
    share: str


@dataclass(frozen=True)
class Side:
    """One run's result of a kernel: its facts, its source and what is missing to draw more.

    counted: on what the counts beside a time were taken, as a sentence. same: the machine code
    and the launch are those of the newest run, whose section has the source and the pictures.
    """

    run: int
    at: int
    label: str
    result: Result
    facts: tuple[tuple[str, str], ...]
    listing: source.Listing | None
    advice: tuple[tuple[str, str], ...]
    strip: samples.Strip | None
    banks: int
    steps: int
    missing: str
    same: bool
    counted: str


@dataclass(frozen=True)
class Kernel:
    """A kernel's section: a side a run that has it."""

    anchor: str
    title: str
    name: str
    status: str
    sides: tuple[Side, ...]
    open: bool


@dataclass(frozen=True)
class Machine:
    """Where a run was: a sentence, and what is known of the run's origin."""

    label: str
    sentence: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Headline:
    """A line at the top of the page, the part of the page that it is about ('' for none), and whether it is bad."""

    text: str
    link: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Page:
    """Everything that a page says."""

    title: str
    verdict: str
    good: str
    headlines: tuple[Headline, ...]
    notes: tuple[str, ...]
    labels: tuple[str, ...]
    machines: tuple[Machine, ...]
    ladders: tuple[Ladder, ...]
    limits: tuple[Limited, ...]
    rooflines: tuple[roofline.Chart, ...]
    roofline_missing: str
    kernels: tuple[Kernel, ...]
    several: bool
    hidden: int
    hazards: tuple[tuple[str, Any], ...]
    looked: bool
    warnings: tuple[tuple[str, str, str], ...]
    strips: bool
    clocked: bool
    clocks: tuple[str, ...]
    diffs: tuple[CodeDifference, ...]


def page(files: Sequence[ResultsFile], names: Sequence[str], held: Sequence[ResultsFile] | None = None) -> Page:
    """Return what a page of results files says.

    names: of the files; held: the files as the page holds them, which its script draws from. Raises CudabenchError
    where they hold nothing, UsageError for too many.
    """
    if not any(file.results or file.diff for file in files):
        raise CudabenchError(f"{names[0]} holds no results: there is nothing to report.")
    if len(files) > MOST_RUNS:
        raise UsageError(f"A page shows at most {MOST_RUNS} results files side by side; {len(files)} are named.")
    labels = _labels(files, names)
    comparison = _comparison(files)
    changes = compare.worst_first(comparison.rows) if comparison and comparison.scope != "hardware" else []
    groups = _groups(files)
    title = _title(groups)
    groups = _worst_first(groups, changes)
    several = len(files) > 1
    order = [entry for entries in groups.values() for entry in entries]
    best = _best(order)
    shown = sorted(order, key=lambda e: (WORST.index(_status(e)), e is not best))[:MOST_DETAILED]
    shown = [entry for entry in order if any(entry is one for one in shown)]
    anchors = {id(entry): f"kernel-{number}" for number, entry in enumerate(shown, 1)}
    first_open = next((e for e in shown if _status(e) in ("wrong", "failed")), None) or _worth_a_look(shown, best)
    ladders = tuple(
        ladder for title, entries in groups.items() for ladder in _ladders(title, entries, files, anchors, comparison)
    )
    charts = roofline.charts(files, labels)
    sides = max(1, sum(len(entry.results) for entry in shown))
    rows = min(source.MOST_LINES, MOST_ROWS // sides)
    kernels = tuple(
        _kernel(
            entry,
            anchors[id(entry)],
            files,
            held or files,
            labels,
            rows,
            sides,
            is_open=entry is first_open or len(shown) == 1,
        )
        for entry in shown
    )
    hazards = tuple(
        (f"{entry.name}{f' ({labels[run]})' if several else ''}", hazard)
        for entry in order
        for run, (_, result) in entry.results.items()
        for hazard in result.hazards or ()
    )
    results = [result for file in files for result in file.results]
    good, verdict = _verdict(files, labels, comparison, order)
    return Page(
        title=title,
        verdict=verdict,
        good=good,
        headlines=_changed(order, anchors, changes) if changes else _headlines(order, anchors),
        notes=comparison.changed if comparison else (),
        labels=labels,
        machines=tuple(_machine(file, label) for file, label in zip(files, labels, strict=True)),
        ladders=ladders,
        limits=_limits(order, labels),
        rooflines=charts,
        roofline_missing="" if charts else roofline.missing(results),
        kernels=kernels,
        several=len(groups) > 1,
        hidden=len(order) - len(shown),
        hazards=hazards,
        looked=any(result.hazards is not None for result in results),
        warnings=_warnings(order, labels),
        strips=any(side.strip for kernel in kernels for side in kernel.sides),
        clocked=any(side.strip and side.strip.clock for kernel in kernels for side in kernel.sides),
        clocks=tuple(sentence for file in files if (sentence := _clocks(file))),
        diffs=tuple(each for file in files for each in file.diff),
    )


# Which results belong together ---------------------------------------------------------------------------------------


@dataclass
class Entry:
    """One kernel of a problem: its results by run, each with its place in the run's file."""

    name: str
    results: dict[int, tuple[int, Result]]

    @property
    def last(self) -> Result:
        """The result of the newest run that has it."""
        return self.results[max(self.results)][1]


def _groups(files: Sequence[ResultsFile]) -> dict[str, list[Entry]]:
    """Return the kernels by problem, in the order of the files; equal ones of several runs are one entry."""
    groups: dict[str, list[Entry]] = {}
    known: dict[tuple[object, ...], Entry] = {}
    blocks: dict[tuple[int, str, str], set[object]] = {}
    for run, file in enumerate(files):
        for result in file.results:
            blocks.setdefault((run, problem(result), result.kernel), set()).add(result.block)
    several = {(title, kernel) for (_, title, kernel), found in blocks.items() if len(found) > 1}
    for run, file in enumerate(files):
        times: dict[tuple[object, ...], int] = {}
        for at, result in enumerate(file.results):
            title = problem(result)
            card = result.device if len(file.devices) > 1 else ""
            # A kernel that each run has with one block is one kernel, also where the runs' blocks differ.
            block = result.block if (title, result.kernel) in several else None
            key = (title, result.kernel, block, card)
            times[key] = times.get(key, 0) + 1
            whole = (*key, times[key])
            name = result.kernel
            if block:
                name += f" {dim_text(result.block)}"
            name += f" on {card}" if card else ""
            name += f" ({times[key]})" if times[key] > 1 else ""
            if whole not in known:
                known[whole] = Entry(name, {})
                groups.setdefault(title, []).append(known[whole])
            known[whole].results[run] = (at, result)
    return groups


def _worst_first(groups: Mapping[str, Sequence[Entry]], changes: Sequence[compare.Row]) -> dict[str, list[Entry]]:
    """Return kernels and problems in the order of what became of them; without changes as they are."""
    places = {id(row.new or row.base): at for at, row in enumerate(changes)}

    def place(entry: Entry) -> int:
        return places.get(id(entry.last), len(places))

    ordered = {title: sorted(entries, key=place) for title, entries in groups.items()}
    return dict(sorted(ordered.items(), key=lambda each: place(each[1][0])))


def problem(result: Result) -> str:
    """Return the problem of a result: 'transpose 4096 x 4096 float32'; of a user's own kernel 'saxpy.cu n=4096'."""
    what = PurePath(result.source).name if result.operation == "run" else result.operation
    return " ".join(part for part in (what, units.size(result), result.dtype) if part)


def _status(entry: Entry) -> str:
    return entry.last.status


def _best(entries: Sequence[Entry]) -> Entry | None:
    """Return the kernel that did best by the first quantity, of the right ones."""
    right = [entry for entry in entries if _status(entry) == "ok"]
    quantity = _quantities([entry.last for entry in right])
    if not quantity:
        return right[0] if right else None
    scored = [(value, entry) for entry in right if (value := quantity[0].value(entry.last)) is not None]
    if not scored:
        return None
    return (max if quantity[0].more else min)(scored, key=lambda each: each[0])[1]


def _worth_a_look(entries: Sequence[Entry], best: Entry | None) -> Entry | None:
    """Return the kernel whose section is open: the best one, in the simulator the one that wastes most."""
    if best is None or best.last.time is not None:
        return best or (entries[0] if entries else None)

    def waste(entry: Entry) -> float:
        ratios = (
            value / ideal
            for quantity in _quantities([entry.last])
            if (value := quantity.value(entry.last)) and (ideal := quantity.ideal(entry.last))
        )
        return max(ratios, default=0.0)

    return max(entries, key=waste)


def _quantities(results: Sequence[Result]) -> list[Quantity]:
    try:
        return quantities(results) if results else []
    except CudabenchError:
        return []


def _labels(files: Sequence[ResultsFile], names: Sequence[str]) -> tuple[str, ...]:
    """Return what the page calls its runs: 'before' and 'after', with the names of the files."""
    stems = [PurePath(name).stem for name in names]
    stems = stems if len(set(stems)) == len(stems) else list(names)
    if len(files) == 2:
        return tuple(f"{word}: {stem}" for word, stem in zip(("before", "after"), stems, strict=True))
    return tuple(stems)


def _comparison(files: Sequence[ResultsFile]) -> compare.Comparison | None:
    if len(files) != 2 or not all(file.results for file in files):
        return None
    try:
        return compare.compare(files[0], files[1])
    except CudabenchError:
        return None  # two problems: each has a ladder of its own


# The verdict ---------------------------------------------------------------------------------------------------------


def _title(groups: Mapping[str, Sequence[Entry]]) -> str:
    titles = list(groups)
    if not titles:
        return "Machine code of two revisions"
    return titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"


def _verdict(
    files: Sequence[ResultsFile],
    labels: Sequence[str],
    comparison: compare.Comparison | None,
    order: Sequence[Entry],
) -> tuple[str, str]:
    """Return 'good', 'bad' or 'plain', and the page's first sentence."""
    if not order:
        return _diff_verdict([each for file in files for each in file.diff])
    count = len(order)
    by_status = {status: sum(_status(e) == status for e in order) for status in WORST}
    bad = [f"{number} {status}" for status, number in by_status.items() if number and status != "ok"]
    right = f"{'It is' if count == 1 else f'All {count} are'} right" if not bad else ""
    hazards = sum(len(entry.last.hazards or ()) for entry in order)
    state = f"{', '.join(bad)} of {count}" if bad else right
    if hazards:
        state += f", {hazards} hazard{'' if hazards == 1 else 's'}"
    if any(entry.last.hazards is not None for entry in order) and not hazards:
        state += ", without a hazard"
    good = "bad" if by_status["wrong"] or by_status["failed"] or hazards else "good" if not bad else "plain"
    if comparison and any(row.ratio or row.counts for row in comparison.rows):
        changed, text = _compared(comparison)
        return ("bad" if good == "bad" else changed), f"{text} {state}."
    return good, f"{_leader(order)}{state}."


BETTER, WORSE = ("faster", "fewer", "mended"), ("slower", "more", "wrong", "failed")  # of compare's verdicts


def _compared(comparison: compare.Comparison) -> tuple[str, str]:
    totals = Counter(row.verdict for row in comparison.rows)
    said = f"Before to after: {', '.join(f'{number} {verdict}' for verdict, number in totals.most_common())}."
    mean = comparison.geometric_mean
    if mean is not None:
        said += f" The geometric mean of the times' ratios is {units.digits(mean, 3)}."
    worse, better = (any(totals[verdict] for verdict in some) for some in (WORSE, BETTER))  # type: ignore[index]
    return ("bad" if worse else "good" if better else "plain"), said


def _leader(order: Sequence[Entry]) -> str:
    """Return who did best, and by how much."""
    best = _best(order)
    if best is None:
        return ""
    result = best.last
    figures = _quantities([entry.last for entry in order])
    if not figures:
        return ""
    first = figures[0]
    value = first.value(result)
    problems = {problem(entry.last) for entry in order}
    if value is None or len(problems) > 1:
        return ""
    parts = [f"{first.text(value)} {_unit(first)}"]
    if result.time and first.name.startswith("bandwidth"):
        parts.append(units.seconds(result.time.median_s))
        if result.copy_fraction:
            parts.append(f"{units.percent(result.copy_fraction)} of a copy")
    ideal = first.ideal(result)
    if ideal:
        parts.append(
            f"{units.digits(value / ideal, 3)} times what would do" if value > ideal else "no more than needed"
        )
    if len(order) == 1:
        return f"{best.name}: {', '.join(parts)}. "
    if result.time is None and ideal:
        return _wasteful(order, first)
    return f"{best.name} {'is fastest' if result.time else 'moves least'}: {', '.join(parts)}. "


def _wasteful(order: Sequence[Entry], quantity: Quantity) -> str:
    """Return how many kernels waste nothing by a count, and which wastes most."""
    over = {
        id(entry): (value / ideal, entry)
        for entry in order
        if (value := quantity.value(entry.last)) and (ideal := quantity.ideal(entry.last)) and _status(entry) == "ok"
    }
    lean = sum(ratio < 1.005 for ratio, _ in over.values())
    (least, best), (most, worst) = (pick(over.values(), key=lambda each: each[0]) for pick in (min, max))
    if lean == len(over):
        return f"No kernel takes more {quantity.name} than needed. "
    times = f"{worst.name} takes {units.digits(most, 3)} times as many"
    if lean:
        return f"{lean} of {len(over)} kernels take no more {quantity.name} than needed; {times}. "
    return f"{best.name} takes {units.digits(least, 3)} times the {quantity.name} that would do; {times}. "


def _unit(quantity: Quantity) -> str:
    return quantity.name.rpartition(" in ")[2] if " in " in quantity.name else quantity.name


def _diff_verdict(found: Sequence[CodeDifference]) -> tuple[str, str]:
    counts = {each.verdict: sum(one.verdict == each.verdict for one in found) for each in found}
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    kernels = len({each.kernel for each in found})
    many = f"{kernels} kernel{'' if kernels == 1 else 's'}"
    good = "bad" if counts.get("failed") else "good" if set(counts) == {"same"} else "plain"
    return good, f"{many} on {len({each.arch for each in found})} architectures: {said}."


# The lines below it -------------------------------------------------------------------------------------------------


def _named(order: Sequence[Entry]) -> list[Result]:
    """Return the newest results under the names that the page has for their kernels, with the problem where there are
    several."""
    several = len({problem(entry.last) for entry in order}) > 1
    names = (f"{entry.name} ({problem(entry.last)})" if several else entry.name for entry in order)
    return [replace(entry.last, kernel=name) for entry, name in zip(order, names, strict=True)]


def _headlines(order: Sequence[Entry], anchors: Mapping[int, str]) -> tuple[Headline, ...]:
    """Return what the terminal says below its table: what is wrong, hazards, the lowest bound and the most waste."""
    named = _named(order)
    links = {one.kernel: anchors.get(id(entry), "") for entry, one in zip(order, named, strict=True)}
    bad = headlines.reasons((one.kernel, one) for one in named if one.status in ("wrong", "failed"))
    found = [
        Headline(f"{', '.join(names)} {status}: {reason or 'no reason is recorded'}", links[names[0]], bad=True)
        for (status, reason), names in sorted(bad.items(), key=lambda each: WORST.index(each[0][0]))
    ]
    if len(found) > MOST_LINES:
        found[MOST_LINES:] = [Headline(f"{len(found) - MOST_LINES} more are wrong or failed.", "ladder", bad=True)]
    found += _hazards(named)
    if not any(one.time for one in named) and len({problem(one) for one in named}) == 1:
        found.append(Headline(headlines.lowest_line(named)))
    worst = headlines.most_wasteful(named)
    if worst:
        found.append(Headline(headlines.waste_line(worst, worst.kernel), links[worst.kernel]))
    return tuple(line for line in found if line.text)


def _changed(
    order: Sequence[Entry], anchors: Mapping[int, str], changes: Sequence[compare.Row]
) -> tuple[Headline, ...]:
    """Return what became of the kernels, the worst first; those that are the same are counted."""
    named = _named(order)
    known = {id(entry.last): (one.kernel, anchors.get(id(entry), "")) for entry, one in zip(order, named, strict=True)}
    found = []
    for row in changes:
        if row.verdict != "same":
            name, link = known.get(id(row.new or row.base), (compare.name_of(row.key), ""))
            said = ", ".join(filter(None, (row.verdict, _change(row), row.reason)))
            found.append(Headline(f"{name}: {said}", link, bad=row.verdict in WORSE))
    if len(found) > MOST_LINES:
        found[MOST_LINES:] = [Headline(f"{len(found) - MOST_LINES} more are not the same.", "ladder")]
    same = sum(row.verdict == "same" for row in changes)
    if same:
        found.append(Headline("1 kernel is the same." if same == 1 else f"{same} kernels are the same."))
    return (*_hazards(named), *found)


def _hazards(named: Sequence[Result]) -> list[Headline]:
    """Return the line that counts the hazards of each kernel, where there are any."""
    counts = [f"{one.kernel} ({len(one.hazards)})" for one in named if one.hazards]
    return [Headline(f"Hazards: {', '.join(counts)}.", "hazards", bad=True)] if counts else []


# Ladders -------------------------------------------------------------------------------------------------------------


def _ladders(
    title: str,
    entries: Sequence[Entry],
    files: Sequence[ResultsFile],
    anchors: Mapping[int, str],
    comparison: compare.Comparison | None,
) -> list[Ladder]:
    """Return the bars of one problem: one ladder a quantity."""
    results = [result for entry in entries for _, result in entry.results.values()]
    found: list[Quantity | None] = [*_quantities(results)] or [None]
    return [_ladder(title, entries, files, anchors, comparison, quantity, at) for at, quantity in enumerate(found)]


def _ladder(
    title: str,
    entries: Sequence[Entry],
    files: Sequence[ResultsFile],
    anchors: Mapping[int, str],
    comparison: compare.Comparison | None,
    quantity: Quantity | None,
    at: int,
) -> Ladder:
    results = [result for entry in entries for _, result in entry.results.values()]
    values = [value for r in results if quantity and (value := quantity.value(r)) is not None]
    lines: list[tuple[str, float, str]] = []
    if quantity and quantity.name.startswith("bandwidth"):
        copies = [r.copy_gbps for r in results if r.copy_gbps]
        if copies:
            lines.append(("copy", statistics.median(copies), "copy"))
        devices = [file.device_of(result) for file in files for result in file.results if result.time]
        peaks = {device.peak_gbps: device for device in devices if device and device.peak_gbps}
        for peak, device in peaks.items():
            lines.append(("peak" if len(peaks) == 1 else f"peak of {device.name}", float(peak or 0), "peak"))
    most = max([*values, *(value for _, value, _ in lines)], default=0.0) or 1.0
    scale = 100 / most
    best = _best(entries)
    figures = columns(results, quantity)
    verdicts = _verdicts(comparison)
    rungs = []
    for entry in entries:
        bars = []
        for run, (_, result) in sorted(entry.results.items()):
            value = quantity.value(result) if quantity and result.status == "ok" else None
            ideal = quantity.ideal(result) if quantity and value is not None else None
            if quantity and value is not None:
                bars.append(Bar(value * scale, None if ideal is None else ideal * scale, quantity.text(value), run))
        change, verdict = verdicts.get(id(entry.last), ("", "")) if at == 0 else ("", "")
        rungs.append(
            Rung(
                name=entry.name,
                link=anchors.get(id(entry)),
                status=_status(entry),
                reason=entry.last.reason,
                bars=tuple(bars),
                cells=tuple(
                    _from_to(entry, text) if number == 0 and len(files) == 2 else text(entry.last)
                    for number, (_, text) in enumerate(figures)
                ),
                change=change,
                verdict=verdict,
                best=entry is best and len(entries) > 1 and entry.last.time is not None,
            )
        )
    marks = [
        Mark(value * scale, name, quantity.text(value), kind, value * scale > 30)
        for name, value, kind in lines
        if quantity
    ]
    better = "" if quantity is None else "more is better" if quantity.more else "less is better"
    return Ladder(
        title=title,
        quantity=quantity.name if quantity else "nothing to draw",
        better=better,
        marks=tuple(marks),
        headings=tuple(heading for heading, _ in figures),
        # A second quantity is of those that have it; the first has every kernel.
        rungs=tuple(rung for rung in rungs if rung.bars or at == 0),
        changes=any(rung.change for rung in rungs),
        ideal=any(bar.ideal is not None for rung in rungs for bar in rung.bars),
    )


def _from_to(entry: Entry, text: Callable[[Result], str]) -> str:
    """Return the figure of the run before and of the one after, once where they are equal."""
    found = dict.fromkeys(text(result) for _, (_, result) in sorted(entry.results.items()))
    return " → ".join(figure for figure in found if figure)


def columns(results: Sequence[Result], quantity: Quantity | None) -> list[tuple[str, Any]]:
    """Return the figures beside the bars as (heading, text of a result): those that some result has."""

    def optional(value: Any, text: Any) -> str:
        return "" if value is None else text(value)

    def drawn(result: Result) -> str:
        value = quantity.value(result) if quantity and result.status == "ok" else None
        return optional(value, quantity.text if quantity else str)

    def over(result: Result) -> str:
        value, ideal = (quantity.value(result), quantity.ideal(result)) if quantity else (None, None)
        return f"{units.digits(value / ideal, 3)}x" if value and ideal else ""

    every = [
        (_unit(quantity) if quantity else "", drawn),
        ("over the least", over),
        ("of copy", lambda r: optional(r.copy_fraction, units.percent)),
        ("of peak", lambda r: optional(r.peak_fraction, units.percent)),
        ("time", lambda r: units.seconds(r.time.median_s) if r.time else ""),
        ("±", lambda r: f"{r.time.relative_ci * 100:.1f}%" if r.time else ""),
        ("over CPU", lambda r: optional(r.speedup_vs_cpu, lambda v: f"{units.digits(v, 3)}x")),
    ]
    return [(heading, text) for heading, text in every if any(text(result) for result in results)]


def _verdicts(comparison: compare.Comparison | None) -> dict[int, tuple[str, str]]:
    """Return what became of each new result: the change as text, and the verdict."""
    found: dict[int, tuple[str, str]] = {}
    for row in comparison.rows if comparison else ():
        if row.new is not None:
            found[id(row.new)] = (_change(row), row.verdict)
    return found


def _change(row: compare.Row) -> str:
    """Return the change of a kernel's time, or the first counts that changed."""
    if row.ratio is not None:
        return f"{row.ratio.change:+.1%}"
    moved = [c for c in row.counts if c.base != c.new]
    return "; ".join(f"{c.name} {units.count(c.base)} → {units.count(c.new)}" for c in moved[:2])


# Limits --------------------------------------------------------------------------------------------------------------


def _limits(order: Sequence[Entry], labels: Sequence[str]) -> tuple[Limited, ...]:
    """Return the lower bounds of each kernel's time, on one scale for all."""
    rows = []
    for entry in order:
        for run, (_, result) in sorted(entry.results.items()):
            limits = result.limits or ()
            if limits:
                rows.append((entry, run, result, limits))
    most = max(
        (
            max(limits[0].time_s, result.true_time.median_s if result.true_time else 0.0)
            for _, _, result, limits in rows
        ),
        default=0.0,
    )
    if most <= 0:
        return ()
    return tuple(
        Limited(
            kernel=entry.name,
            run=labels[run] if len(labels) > 1 else "",
            at=run,
            on=result.limits_on or "",
            limits=tuple(
                Limit(one.resource, units.seconds(one.time_s), one.time_s / most * 100, one.detail or "")
                for one in limits
            ),
            measured=result.true_time.median_s / most * 100 if result.true_time else None,
            measured_text=units.seconds(result.true_time.median_s) if result.true_time else "",
            share=units.percent(limits[0].time_s / result.true_time.median_s) if result.true_time else "",
        )
        for entry, run, result, limits in rows
    )


# One kernel ----------------------------------------------------------------------------------------------------------


def _kernel(
    entry: Entry,
    anchor: str,
    files: Sequence[ResultsFile],
    held: Sequence[ResultsFile],
    labels: Sequence[str],
    rows: int,
    strips: int,
    *,
    is_open: bool,
) -> Kernel:
    sides = []
    for run, (at, result) in sorted(entry.results.items()):
        same = result is not entry.last and _same_code(result, entry.last)
        drawn = held[run].results[at]
        text = files[run].listings.get(result.source)
        sides.append(
            Side(
                run=run,
                at=at,
                label=labels[run] if len(files) > 1 else "",
                result=result,
                facts=facts(result),
                listing=None if same else source.listing(result, text, rows),
                advice=() if same else advice(result),
                strip=samples.strip(result.time, strips) if result.time else None,
                banks=0 if same else len(drawn.banks or ()),
                steps=0 if same else len(drawn.steps or ()),
                missing="" if same else missing(result),
                counted="" if same else _counted(result.counted),
                same=same,
            )
        )
    return Kernel(anchor, problem(entry.last), entry.name, _status(entry), tuple(sides), is_open)


def _same_code(one: Result, other: Result) -> bool:
    """Tell whether two results are of one machine code, launched alike."""
    if one.machine_code is None or other.machine_code is None:
        return False
    return (one.machine_code.sha256, one.block, one.grid, one.status) == (
        other.machine_code.sha256, other.block, other.grid, other.status,
    )  # fmt: skip


def facts(result: Result) -> tuple[tuple[str, str], ...]:
    """Return what a kernel was launched with and needs, as pairs of words."""
    found = [("function", result.function)]
    if result.block[0]:
        found += [("block", dim_text(result.block)), ("grid", dim_text(result.grid))]
    if result.registers is not None:
        found.append(("registers a thread", str(result.registers)))
    if result.shared_bytes:
        found.append(("shared memory a block", units.nbytes(result.shared_bytes)))
    if result.local_bytes:
        found.append(("local memory a thread", units.nbytes(result.local_bytes)))
    if result.occupancy:
        found.append(
            ("occupancy", f"{units.percent(result.occupancy.fraction)}, limited by {result.occupancy.limited_by}")
        )
    code = result.machine_code
    if code and code.instructions_executed is not None:
        found.append(("warp instructions", units.about(code) + units.count(code.instructions_executed)))
    if code and code.threads_per_instruction is not None:
        found.append(("threads an instruction", f"{units.about(code)}{code.threads_per_instruction:.1f} of 32"))
    if code and code.inexact:
        found.append(("hardware may execute more or fewer", code.inexact))
    if code and code.spill_bytes:
        found.append(("spills", units.nbytes(code.spill_bytes)))
    if code and code.arithmetic:
        found.append(("arithmetic", ", ".join(code.arithmetic)))
    if result.verification:
        found.append(("verified", _verified(result)))
    elif result.status == "ok":
        found.append(("verified", "no: nothing was expected"))
    found += [(name, f"{value:.4g}") for name, value in result.figures.items()]
    return tuple(found)


def _counted(on: Counted | None) -> str:
    """Return on what the counts beside a time were taken, as a sentence; '' without."""
    if on is None:
        return ""
    part = f"on {on.blocks:,} of {on.of:,} blocks and scaled to all of them"
    many = "on all blocks" if on.blocks >= on.of else part.replace(",", "\u202f")
    other = "; its compiler made other code than the one that was measured" if on.same_code is False else ""
    return f"The counts are the simulator's, taken after the measurement {many}{other}."


def _verified(result: Result) -> str:
    check = result.verification
    assert check is not None
    if check.mismatches:
        return f"{units.count(check.mismatches)} wrong elements"
    when = "in the simulator" if "simulated" in check.checked else f"{' and '.join(check.checked)} timing"
    samples_too = f", and {check.samples} timed samples" if check.samples else ""
    return f"{when}{samples_too}"


def advice(result: Result) -> tuple[tuple[str, str], ...]:
    """Return what would mend the waste, each once: the lines that it is for, or the blocks, and the sentence."""
    where: dict[str, list[int]] = {}
    rows: list[Access | Branch] = [*(result.access or ()), *(result.branches or ())]
    for row in rows:
        if row.advice and row.line not in where.setdefault(row.advice, []):
            where[row.advice].append(row.line)
    found = [(f"line{'' if len(at) == 1 else 's'} {', '.join(map(str, at))}", said) for said, at in where.items()]
    if result.imbalance is not None:
        found.append(("blocks", result.imbalance.advice))
    return tuple(found)


def missing(result: Result) -> str:
    """Return the command that records what a result's section lacks, or ''."""
    if result.status in ("failed", "skipped") or (result.lines is not None and result.steps is not None):
        return ""
    what = "FILE.cu ..." if result.operation == "run" else f"{result.operation} --kernel {result.kernel}"
    command = ("run " if result.operation == "run" else "") if result.time else "explain "
    return f"cudabench {command}{what} --report page.html"


# Where it comes from -------------------------------------------------------------------------------------------------


def _machine(file: ResultsFile, label: str) -> Machine:
    made = file.provenance
    found: list[tuple[str, str]] = []
    if made.get("utc"):
        found.append(("when", str(made["utc"])))
    if isinstance(made.get("command"), list):
        found.append(("command", " ".join(map(str, made["command"]))))
    git = made.get("git")
    if isinstance(git, dict):
        found.append(("commit", f"{git.get('commit')}{', with changes' if git.get('dirty') else ''}"))
    sources = made.get("sources")
    if isinstance(sources, dict):
        found += [("source", f"{name}, sha256 {str(digest)[:16]}…") for name, digest in sources.items()]
    hashes = {r.machine_code.sha256 for r in file.results if r.machine_code}
    if len(hashes) == 1:
        found.append(("machine code", f"sha256 {next(iter(hashes))[:16]}…"))
    compiler = made.get("compiler")
    if isinstance(compiler, dict):
        found.append(("compiler", f"{compiler.get('name')} {compiler.get('version')}"))
    for key, word, unit in (("power_w", "power", "W"), ("temperature_c", "temperature", "°C")):
        if isinstance(made.get(key), dict):
            found.append((word, f"{made[key].get('before')} {unit} before, {made[key].get('after')} {unit} after"))
    throttle = made.get("throttle")
    if isinstance(throttle, dict) and (throttle.get("after") or throttle.get("before")):
        reasons = dict.fromkeys([*(throttle.get("before") or ()), *(throttle.get("after") or ())])
        found.append(("clocks held down by", ", ".join(map(str, reasons))))
    found += [(card.name, _card(card)) for card in file.devices]
    if file.host:
        cpu = [str(file.host[key]) for key in ("name", "system", "cpu") if file.host.get(key)]
        found.append(("host", ", ".join(cpu)))
    versions = [f"{name} {version}" for name, version in file.tool.items() if name not in ("name", "version")]
    found.append(("tool", f"cudabench {', '.join([str(file.tool.get('version') or __version__), *versions])}"))
    device = file.device
    sentence = " and ".join(dict.fromkeys(each.name for each in file.devices))
    if device and device.timed and device.driver:
        sentence += f", driver {device.driver}"
    if device and device.kind == "sim":
        sentence += ": counts, no times"
    cache = {result.time.cache for result in file.results if result.time}
    if len(cache) == 1:
        sentence += f", {next(iter(cache))} L2 cache"
    return Machine(label, sentence, tuple(found))


def _card(device: DeviceInfo) -> str:
    parts = [f"compute capability {device.compute_capability}"]
    if device.sm_count:
        parts.append(f"{device.sm_count} multiprocessors")
    if device.l2_bytes:
        parts.append(f"L2 {units.nbytes(device.l2_bytes)}")
    if device.peak_gbps:
        parts.append(f"peak {units.digits(device.peak_gbps)} GB/s")
    if device.uuid:
        parts.append(device.uuid)
    return ", ".join(parts)


def _clocks(file: ResultsFile) -> str:
    """Return what the clocks were before and after the run, or ''."""
    clocks = file.provenance.get("clocks")
    if not isinstance(clocks, dict):
        return ""
    parts = []
    for key, word in (("sm_mhz", "SM"), ("memory_mhz", "memory")):
        values = [(clocks.get(when) or {}).get(key) for when in ("before", "after")]
        if any(values):
            parts.append(f"{word} clock {values[0]} MHz before the run and {values[1]} MHz after it")
    return ", ".join(parts)


def _warnings(order: Sequence[Entry], labels: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """Return each warning once, as (code, sentence, kernels)."""
    found: dict[tuple[str, str], list[str]] = {}
    for entry in order:
        for run, (_, result) in sorted(entry.results.items()):
            for warning in result.warnings:
                who = f"{entry.name} ({labels[run]})" if len(labels) > 1 else entry.name
                found.setdefault((warning.code, warning.message), []).append(who)
    many = 6
    return tuple(
        (code, message, ", ".join(who[:many]) + (f" and {len(who) - many} more" if len(who) > many else ""))
        for (code, message), who in found.items()
    )
