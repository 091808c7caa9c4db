"""Prints a sweep: the map of its blocks or the table of its points, the best point, and how certain the best point
is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cudabench.cards.load import Card
from cudabench.explain.accesses import SECTOR_CYCLES, WAVEFRONT_CYCLES
from cudabench.plan.space import Axis, Refusal, text_of
from cudabench.records.launch import Dim, dim3, dim_text
from cudabench.records.plan import Operation, Settings
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import compare, stats, sweep_points, units
from cudabench.results.columns import NOTHING, Column
from cudabench.results.groups import grouped
from cudabench.results.ratio import CONFIDENCE, time_ratio
from cudabench.results.sweep_points import CLOSE, ROUNDS
from cudabench.views import cards as by_card
from cudabench.views import heatmap
from cudabench.views.console import Console, say
from cudabench.views.headlines import at_least, limiting_resource, waste
from cudabench.views.heatmap import BAD
from cudabench.views.quantities import is_arithmetic
from cudabench.views.table import device_line, priced_on, problem_line
from cudabench.views.tables import Head, fitting, grid

MOST_ROWS = 20  # at most this many rows are shown for one problem
MOST_REASONS = 5
# columns that are kept free for the mark of the best point, and for the status of a point that is not correct
BESIDE = 10
MEASURED = (
    f"*: the best. =: equally fast, since the {CONFIDENCE:.0%} interval of their ratio holds 1. time: median of the "
    f"samples, and half their interquartile range. slower: than the best. Points within {CLOSE:.0%} of the best "
    f"were measured again, in {ROUNDS} rounds in rotation."
)
COUNTED = "*: the best. =: the same {equal}. Nothing is timed in the simulator."
ORDER = (
    f"Ordered by the busiest unit, with {SECTOR_CYCLES:g} cycles per sector, {WAVEFRONT_CYCLES:g} per "
    f"wavefront, {sweep_points.INSTRUCTION_CYCLES:g} per instruction, without latency and occupancy."
)
PRICED = (
    "Ordered by the bound on the card, which is not a time, then by sectors and wavefronts over the ideal; bounds "
    "within 10% do not tell which kernel is faster."
)


@dataclass(frozen=True)
class SweepResult:
    """A sweep to show.

    `results`: the points that ran; `refused`: the points that cannot run; `finals`: the results of the second pass, the
    best first.
    """

    operation: Operation
    device: DeviceInfo
    settings: Settings
    results: tuple[Result, ...]
    refused: tuple[Refusal, ...]
    finals: Sequence[sweep_points.Final]
    complete: bool = True  # False for an interrupted sweep, whose best point is not known
    repeat: Callable[[Result], str] | None = None  # makes the command line that repeats a result
    axes: tuple[Axis, ...] = ()
    planned: int | None = None  # the number of points; None for a search, which plans its points while it runs
    file: str | None = None  # the file that holds the results
    announced: bool = False  # whether the device has been printed already

    @property
    def priced(self) -> bool:
        """Whether the points are ordered by their lower bound on a card."""
        return self.device.kind == "sim" and bool(priced_on(self.results))

    @property
    def default_block(self) -> Dim | None:
        """The default block of a ladder's kernel; None for a user's kernel."""
        kernel = self.results[0].kernel
        return next((dim3(rung.block) for rung in self.operation.kernels if rung.name == kernel), None)


def show_sweep(out: Console, swept: SweepResult, *, map_of_blocks: bool = False) -> None:
    """Print the device, then for each problem its points and its best point, then which points were left out.

    `map_of_blocks`: print the points as a map instead of a table.
    """
    if not swept.results:
        return
    if not swept.announced:
        say(out, device_line(swept.device, priced_on(swept.results)), "bold")
    for problem, results in sweep_points.by_problem(swept.results, swept.axes).items():
        out.print()
        say(out, _heading(swept, problem, results), soft_wrap=True)
        marks = _marks(swept, results)
        if map_of_blocks:
            blocks = {results[at].block: mark for at, mark in marks.items()}
            heatmap.show_maps(out, results, [refusal.block for refusal in swept.refused], blocks)
        out.print()
        if not map_of_blocks:
            _table(out, swept, results, marks)
        for line in _best_point(swept, results, marks):
            say(out, line, soft_wrap=True)
    out.print()
    if not swept.complete:
        say(out, _interrupted(swept), "yellow", soft_wrap=True)
    counted = (COUNTED.format(equal=_equal_figures(swept)), PRICED if swept.priced else ORDER)
    for line in (*(counted if swept.device.kind == "sim" else (MEASURED,)), *_trouble(swept)):
        say(out, line, "dim", soft_wrap=True)


def _heading(swept: SweepResult, problem: Sequence[tuple[str, str]], results: Sequence[Result]) -> str:
    kernels = list(dict.fromkeys(result.kernel for result in results))
    bases = dict.fromkeys(kernel.partition("<")[0] for kernel in kernels)  # instances of one template share the heading
    names = ", ".join(kernels if len(kernels) == 1 else bases)
    line = f"{names}, {problem_line(swept.operation, results, swept.settings, swept.device)}"
    return f"{text_of(dict(problem))}: {line}" if problem else line


def show_sweep_by_card(out: Console, swept: SweepResult, cards: Sequence[Card]) -> None:
    """Print for each problem the best point of each card, then which points were left out."""
    groups = [
        (_heading(swept, problem, results), results)
        for problem, results in sweep_points.by_problem(swept.results, swept.axes).items()
    ]
    blocks = len({result.block for result in swept.results}) > 1 and not any(a.kind == "block" for a in swept.axes)

    def label(result: Result) -> str:
        where = {axis.name: result.parameters[axis.name] for axis in swept.axes if not axis.problem}
        return ", ".join(part for part in (text_of(where), dim_text(result.block) * (blocks or not where)) if part)

    by_card.show_sweep_by_card(out, cards, groups, label, swept.repeat or label)
    for line in _trouble(replace(swept, results=())):
        say(out, line, "dim", soft_wrap=True)


def _equal_figures(swept: SweepResult) -> str:
    return "bound, and no more waste" if swept.priced else "counts"


def _finals(swept: SweepResult, results: Sequence[Result]) -> list[sweep_points.Final]:
    """Return the results of the second pass for one problem, the best first."""
    identities = {sweep_points.identity(result) for result in results}
    return [final for final in swept.finals if sweep_points.identity(final.result) in identities]


def _marks(swept: SweepResult, results: Sequence[Result]) -> dict[int, str]:
    """Return the marks of results by index: '*' for the best, '=' for equally good ones; none if interrupted."""
    if not swept.complete:
        return {}
    finals = _finals(swept, results)
    if finals and finals[0].result.status == "ok":
        mark = {sweep_points.identity(final.result): "=" for final in sweep_points.ties(finals)}
        mark[sweep_points.identity(finals[0].result)] = "*"
        marked = ((at, mark.get(sweep_points.identity(result))) for at, result in enumerate(results))
        return {at: sign for at, sign in marked if sign}
    best = sweep_points.best(results)
    equal = [at for at, result in enumerate(results) if any(result is tied for tied in best)]
    # If several points are equally good, the default block is marked as the best.
    equal.sort(key=lambda at: results[at].block != swept.default_block)
    return {at: "=" if nth else "*" for nth, at in enumerate(equal)}


def _columns(swept: SweepResult, results: Sequence[Result]) -> list[Column[Result]]:
    def value(name: str) -> Callable[[Result], str]:
        return lambda r: r.parameters.get(name, "")

    def count(name: str) -> Callable[[Result], str]:
        return lambda r: units.count(compare.counts(r).get(name, 0)) if r.status == "ok" else ""

    def optional(amount: float | None, text: Callable[[float], str]) -> str:
        return "" if amount is None else text(amount)

    axes = [axis for axis in swept.axes if not axis.problem]
    blocks = not any(axis.kind == "block" for axis in axes) and len({r.block for r in results}) > 1
    blocks = blocks and any(dim_text(r.block) not in r.parameters.values() for r in results)
    correct = [r for r in results if r.status == "ok"]
    timed = any(r.time for r in correct)
    computes = any(r.gflops is not None and is_arithmetic(r) for r in correct)
    moves = not computes and any(r.bandwidth_gbps is not None for r in correct)
    names = dict.fromkeys(name for r in correct for name, value in compare.counts(r).items() if value)
    columns: list[tuple[bool, Column[Result]]] = [
        *((True, Column(axis.name, value(axis.name))) for axis in axes),
        (blocks, Column("block", lambda r: dim_text(r.block))),
        (
            len({r.registers for r in results if r.registers}) > 1,
            Column("registers", lambda r: str(r.registers or ""), expendable=2),
        ),
        (timed, Column("time", lambda r: units.seconds(r.time.median_s) if r.time else "")),
        (timed, Column("", lambda r: units.spread(stats.dispersion(r.time) / 2) if r.time else "")),
        (timed and computes, Column("GFLOP/s", lambda r: optional(r.gflops, units.digits))),
        (timed and moves, Column("GB/s", lambda r: optional(r.bandwidth_gbps, units.digits))),
        (timed and moves, Column("of copy", lambda r: optional(r.copy_fraction, units.percent))),
    ]
    if not timed:
        priced = any(r.limits for r in correct)
        columns += [
            (priced, Column("at least", at_least)),
            (priced, Column("held by", limiting_resource, right=False)),
            (priced, Column("waste", waste, right=False)),
            *(
                (True, Column(name.replace(" ", "\n"), count(name), expendable=1 if name == "PTX instructions" else 3))
                for name in names
            ),
            (
                len({r.occupancy.fraction for r in correct if r.occupancy}) > 1,
                Column("occupancy", lambda r: f"{r.occupancy.fraction:.0%}" if r.occupancy else "", expendable=2),
            ),
        ]
    return [column for shown, column in columns if shown]


def _table(out: Console, swept: SweepResult, results: Sequence[Result], marks: Mapping[int, str]) -> None:
    columns, _ = fitting(_columns(swept, results), results, out.width - BESIDE)
    slower = "slower" if any(result.time for result in results) else ""
    wide = [Head(column.heading, column.right, wrap=True) for column in columns]
    least = min((r.time.median_s for r in results if r.time and r.status == "ok"), default=0.0)

    def rank(at: int) -> tuple[object, ...]:
        bad = results[at].status != "ok"
        return (bad, marks.get(at) != "*", () if bad else sweep_points.cost(results[at]))

    def last(at: int) -> str:
        result = results[at]
        if result.status != "ok":
            return BAD.get(result.status, result.status)
        return f"{result.time.median_s / least - 1:.1%}" if result.time and least and marks.get(at) != "*" else ""

    order = sorted(range(len(results)), key=rank)[:MOST_ROWS]
    rows = [[marks.get(at, ""), *(column.text(results[at]) for column in columns), last(at)] for at in order]
    styles = ["" if results[at].status == "ok" else "red" for at in order]
    out.print(grid([Head(""), *wide, Head(slower, right=True, wrap=True)], rows, styles))
    if len(results) > MOST_ROWS:
        say(out, f"... and {len(results) - MOST_ROWS} more points, in --json", "dim")


def _best_point(swept: SweepResult, results: Sequence[Result], marks: Mapping[int, str]) -> list[str]:
    """Return lines about the best point of a problem.

    The lines give the point's figures, how certain it is that the point is the best, a comparison with the default
    block, and the command that repeats the point.
    """
    if not swept.complete:
        return []
    best = next((results[at] for at, mark in marks.items() if mark == "*"), None)
    if best is None:
        return ["No point gave a right result."]

    def name(result: Result) -> str:
        values = {axis.name: result.parameters[axis.name] for axis in swept.axes if not axis.problem}
        return text_of(values) or dim_text(result.block)

    default = next((r for r in results if r.block == swept.default_block and r.status == "ok"), None)
    is_default = ", and the default" if best is default else ""
    tried = f" of the {len(results)} points tried" if swept.planned is None else ""
    unverified = "" if best.verification else " (unverified: give --expect)"
    finals = _finals(swept, results)
    equal = shortened_list([name(results[at]) for at, mark in marks.items() if mark == "="])
    certainty = default_line = ""
    if equal and best.time:
        certainty = f"The same speed within the noise: {equal}."
    elif equal:
        certainty = f"The same {_equal_figures(swept)}: {equal}; only a GPU can tell which is faster."
    elif best.time and len(finals) > 1 and (second := finals[1].result).time:
        ratio = time_ratio(best.time, second.time, max(final.moved for final in finals), run_to_run_s=0.0)
        certainty = f"The next is {ratio.change:.2%} slower, {ratio.low - 1:.2%} at least."
    elif best.time and len(results) > 1:
        certainty = f"No other point comes within {CLOSE:.0%}."
    if default and default is not best:
        slower = f", {default.time.median_s / best.time.median_s - 1:.1%} slower" if default.time and best.time else ""
        default_line = f"The default block {dim_text(default.block)}: {_figures(default)}{slower}"
    lines = (
        f"Best{tried}{is_default}: {name(best)}, {_figures(best)}{unverified}",
        certainty,
        default_line,
        f"Repeat: {swept.repeat(best)}" if swept.repeat else "",
    )
    return [line for line in lines if line]


def _trouble(swept: SweepResult) -> list[str]:
    """Return lines about the points that were left out or are not correct, by reason, with a few points for each
    reason."""
    refused = [(("Left out", point.reason), text_of(point.values) or dim_text(point.block)) for point in swept.refused]
    bad = [
        ((result.status.capitalize(), (result.reason or "").strip().partition("\n")[0]), _point_text(result))
        for result in swept.results
        if result.status != "ok"
    ]
    points = grouped([*refused, *bad])
    lines = [f"{what}: {shortened_list(names)}: {reason}" for (what, reason), names in points.items()]
    more = len(lines) - MOST_REASONS
    return lines[:MOST_REASONS] + ([f"... and {more} more reasons, in --json"] if more > 0 else [])


def _point_text(result: Result) -> str:
    return text_of(result.parameters) or dim_text(result.block)


def shortened_list(names: Sequence[str]) -> str:
    """Return the first three names as text, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _interrupted(swept: SweepResult) -> str:
    """Return the message about an interrupted sweep."""
    measured = f"{len(swept.results)} of {swept.planned} points" if swept.planned else f"{len(swept.results)} points"
    more = f"; --resume {swept.file} continues" if swept.file and swept.file != "-" else ""
    return f"Interrupted after {measured}: the best is not known yet{more}."


def _figures(result: Result) -> str:
    """Return the figures of a point as text: the time with its spread, and the rate; for simulated points, the bound or
    the counts."""
    if result.time is None and result.limits:
        wasted = f", {waste(result)}" if waste(result) != NOTHING else ""
        return f"at least {at_least(result)}, held by {limiting_resource(result)}{wasted}"
    if result.time is None:
        parts = [f"{units.count(value)} {name}" for name, value in compare.counts(result).items() if value]
        return ", ".join([*parts, *([f"occupancy {result.occupancy.fraction:.0%}"] if result.occupancy else [])])
    parts = [f"{units.seconds(result.time.median_s)} {units.spread(stats.dispersion(result.time) / 2)}"]
    if result.gflops is not None and is_arithmetic(result):
        return f"{parts[0]}, {units.digits(result.gflops)} GFLOP/s"
    parts += [f"{units.digits(result.bandwidth_gbps)} GB/s"] if result.bandwidth_gbps is not None else []
    parts += [f"{units.percent(result.copy_fraction)} of copy"] if result.copy_fraction is not None else []
    return ", ".join(parts)
