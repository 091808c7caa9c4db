"""A sweep in the terminal: the map of its blocks, or its points, best first; the best point and its certainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cudabench.cards.load import Card
from cudabench.explain.accesses import SECTOR_CYCLES, WAVEFRONT_CYCLES
from cudabench.plan.space import Axis, Refusal, text_of
from cudabench.records.launch import Dim, dim_text
from cudabench.records.planned import Operation, Settings
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import compare, stats, sweep_points, units
from cudabench.results.columns import NOTHING, Column
from cudabench.results.groups import grouped
from cudabench.results.ratio import CONFIDENCE, time_ratio
from cudabench.results.sweep_points import CLOSE, ROUNDS
from cudabench.views import cards as by_card
from cudabench.views import heatmap
from cudabench.views.console import Console, say
from cudabench.views.headlines import at_least, held_by, waste
from cudabench.views.heatmap import BAD
from cudabench.views.quantities import is_arithmetic
from cudabench.views.table import device_line, priced_on, problem_line
from cudabench.views.tables import Head, fitting, grid

MOST_ROWS = 20  # rows of one problem
MOST_REASONS = 5
BESIDE = 10  # columns for the mark and for the status of a bad point
MEASURED = (
    f"*: the best. =: equally fast, since the {CONFIDENCE:.0%} interval of their ratio holds 1. time: median of the "
    f"samples, and half their interquartile range. slower: than the best. Points within {CLOSE:.0%} of the best "
    f"were measured again, in {ROUNDS} rounds in rotation."
)
COUNTED = "*: the best. =: the same {of}. Nothing is timed in the simulator."
ORDER = (
    f"Ordered by the busiest unit, with {SECTOR_CYCLES:g} cycles per sector, {WAVEFRONT_CYCLES:g} per "
    f"wavefront, {sweep_points.INSTRUCTION_CYCLES:g} per instruction, without latency and occupancy."
)
PRICED = (
    "Ordered by the bound on the card, which is not a time, then by sectors and wavefronts over the ideal; bounds "
    "within 10% do not tell which kernel is faster."
)


@dataclass(frozen=True)
class Swept:
    """A sweep for the report: what ran, what was refused, and the results of the second pass."""

    operation: Operation
    device: DeviceInfo
    settings: Settings
    results: tuple[Result, ...]
    refused: tuple[Refusal, ...]
    finals: Sequence[sweep_points.Final]
    complete: bool = True  # False: interrupted, so the best point is unknown
    repeat: Callable[[Result], str] | None = None  # the command that repeats a result
    axes: tuple[Axis, ...] = ()
    planned: int | None = None  # number of points; None in a search
    file: str | None = None  # where the results are kept
    announced: bool = False  # whether the device is printed already

    @property
    def priced(self) -> bool:
        """Whether points are ordered by their bound on a card."""
        return self.device.kind == "sim" and bool(priced_on(self.results))

    @property
    def best(self) -> list[Dim]:
        """The best block; several in the simulator if their counts are equal; empty for an interrupted sweep."""
        if not self.complete:
            return []
        if self.finals:
            return [self.finals[0].result.block] if self.finals[0].result.status == "ok" else []
        return [result.block for result in sweep_points.best(self.results)]


def report(out: Console, swept: Swept, *, map_of_blocks: bool = False) -> None:
    """Print the device; for each problem its table, its best point and the command that repeats it; what was left out.
    map_of_blocks: print the map in place of the table."""
    if not swept.results:
        return
    if not swept.announced:
        say(out, device_line(swept.device, priced_on(swept.results)), "bold")
    simulated = swept.device.kind == "sim"
    order = PRICED if swept.priced else ORDER
    if map_of_blocks:
        say(out, _heading(swept, (), swept.results), soft_wrap=True)
        heatmap.show(out, swept.results, [refusal.block for refusal in swept.refused], swept.best)
        out.print()
        for said in _best_block(swept):
            say(out, said, soft_wrap=True)
        for said in ([order] if simulated else []) + _refused_blocks(swept):
            say(out, said, "dim")
        return
    for problem, results in sweep_points.by_problem(swept.results, swept.axes).items():
        out.print()
        say(out, _heading(swept, problem, results), soft_wrap=True)
        out.print()
        marks = _marks(swept, results)
        _table(out, swept, results, marks)
        for said in _best_point(swept, results, marks):
            say(out, said, soft_wrap=True)
    out.print()
    if not swept.complete:
        say(out, _interrupted(swept), "yellow", soft_wrap=True)
    legend = (COUNTED.format(of=_alike(swept)), order) if simulated else (MEASURED,)
    for said in (*legend, *_trouble(swept)):
        say(out, said, "dim", soft_wrap=True)


def _heading(swept: Swept, problem: Sequence[tuple[str, str]], results: Sequence[Result]) -> str:
    line = f"{results[0].kernel}, {problem_line(swept.operation, results, swept.settings, swept.device)}"
    return f"{text_of(dict(problem))}: {line}" if problem else line


def report_by_card(out: Console, swept: Swept, cards: Sequence[Card]) -> None:
    """Print for each problem the best point of each card, and what was left out."""
    groups = [
        (_heading(swept, problem, results), results)
        for problem, results in sweep_points.by_problem(swept.results, swept.axes).items()
    ]
    blocks = len({result.block for result in swept.results}) > 1 and not any(a.kind == "block" for a in swept.axes)

    def label(result: Result) -> str:
        where = {axis.name: result.parameters[axis.name] for axis in swept.axes if not axis.problem}
        return ", ".join(part for part in (text_of(where), dim_text(result.block) * (blocks or not where)) if part)

    by_card.show_sweep(out, cards, groups, label, swept.repeat or label)
    for said in _trouble(replace(swept, results=())):
        say(out, said, "dim", soft_wrap=True)


def _alike(swept: Swept) -> str:
    return "bound, and no more waste" if swept.priced else "counts"


def _finals(swept: Swept, results: Sequence[Result]) -> list[sweep_points.Final]:
    """Return the finalists of one problem, best first."""
    own = {sweep_points.identity(result) for result in results}
    return [final for final in swept.finals if sweep_points.identity(final.result) in own]


def _marks(swept: Swept, results: Sequence[Result]) -> dict[int, str]:
    """Return marks, by position, of the best result and of equally fast results; empty for an interrupted sweep."""
    if not swept.complete:
        return {}
    finals = _finals(swept, results)
    if finals and finals[0].result.status == "ok":
        mark = {sweep_points.identity(final.result): "=" for final in sweep_points.ties(finals)}
        mark[sweep_points.identity(finals[0].result)] = "*"
        marked = ((at, mark.get(sweep_points.identity(result))) for at, result in enumerate(results))
        return {at: own for at, own in marked if own}
    equal = [at for at, result in enumerate(results) if any(result is one for one in sweep_points.best(results))]
    return {at: "=" if nth else "*" for nth, at in enumerate(equal)}


def _columns(swept: Swept, results: Sequence[Result]) -> list[Column[Result]]:
    def value(name: str) -> Callable[[Result], str]:
        return lambda r: r.parameters.get(name, "")

    def count(name: str) -> Callable[[Result], str]:
        return lambda r: units.count(compare.counts(r).get(name, 0)) if r.status == "ok" else ""

    def optional(amount: float | None, text: Callable[[float], str]) -> str:
        return "" if amount is None else text(amount)

    axes = [axis for axis in swept.axes if not axis.problem]
    blocks = not any(axis.kind == "block" for axis in axes) and len({r.block for r in results}) > 1
    blocks = blocks and any(dim_text(r.block) not in r.parameters.values() for r in results)
    right = [r for r in results if r.status == "ok"]
    timed = any(r.time for r in right)
    computes = any(r.gflops is not None and is_arithmetic(r) for r in right)
    moves = not computes and any(r.bandwidth_gbps is not None for r in right)
    names = dict.fromkeys(name for r in right for name, value in compare.counts(r).items() if value)
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
        priced = any(r.limits for r in right)
        columns += [
            (priced, Column("at least", at_least)),
            (priced, Column("held by", held_by, right=False)),
            (priced, Column("waste", waste, right=False)),
            *(
                (True, Column(name.replace(" ", "\n"), count(name), expendable=1 if name == "PTX instructions" else 3))
                for name in names
            ),
            (
                len({r.occupancy.fraction for r in right if r.occupancy}) > 1,
                Column("occupancy", lambda r: f"{r.occupancy.fraction:.0%}" if r.occupancy else "", expendable=2),
            ),
        ]
    return [column for shown, column in columns if shown]


def _table(out: Console, swept: Swept, results: Sequence[Result], marks: dict[int, str]) -> None:
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


def _best_point(swept: Swept, results: Sequence[Result], marks: dict[int, str]) -> list[str]:
    """Return the best point of a problem with its figures, its certainty, and the command that repeats it."""
    if not swept.complete:
        return []
    chosen = next((results[at] for at, mark in marks.items() if mark == "*"), None)
    if chosen is None:
        return ["No point gave a right result."]
    where = {axis.name: chosen.parameters[axis.name] for axis in swept.axes if not axis.problem}
    unverified = "" if chosen.verification else " (unverified: give --expect)"
    tried = f" of the {len(results)} points tried" if swept.planned is None else ""
    finals = _finals(swept, results)
    equal = sum(mark == "=" for mark in marks.values())
    others, have = (f"{equal} others", "have") if equal > 1 else ("Another one", "has")
    sure = ""
    if equal and chosen.time:
        sure = f"{others} {have} the same speed within the noise: choose any."
    elif equal:
        sure = f"{others} {have} the same {_alike(swept)}; only a GPU can tell which is faster."
    elif chosen.time and len(finals) > 1 and (second := finals[1].result).time:
        ratio = time_ratio(chosen.time, second.time, max(final.moved for final in finals), run_to_run_s=0.0)
        sure = f"The next is {ratio.change:.2%} slower, {ratio.low - 1:.2%} at least."
    elif chosen.time and len(results) > 1:
        sure = f"No other point comes within {CLOSE:.0%}."
    lines = (
        f"Best{tried}: {text_of(where) or dim_text(chosen.block)}, {_figures(chosen)}{unverified}",
        sure,
        f"Repeat: {swept.repeat(chosen)}" if swept.repeat else "",
    )
    return [line for line in lines if line]


def _refused_blocks(swept: Swept) -> list[str]:
    """Return the refused blocks, and the blocks with bad results, by reason."""
    refused = [
        (("Refused", each.reason.partition(": ")[2] or each.reason), dim_text(each.block)) for each in swept.refused
    ]
    bad = [((r.status.capitalize(), f"{r.reason}"), dim_text(r.block)) for r in swept.results if r.status != "ok"]
    found = grouped([*refused, *bad])
    return [f"{what}: {', '.join(blocks)}: {reason}" for (what, reason), blocks in found.items()]


def _trouble(swept: Swept) -> list[str]:
    """Return the points that were left out, and those with bad results, by reason, a few of each."""
    refused = [(("Left out", each.reason), text_of(each.values) or dim_text(each.block)) for each in swept.refused]
    bad = [
        (
            (r.status.capitalize(), "".join((r.reason or "").strip().splitlines()[:1])),
            text_of(r.parameters) or dim_text(r.block),
        )
        for r in swept.results
        if r.status != "ok"
    ]
    found = grouped([*refused, *bad])
    lines = [
        f"{what}: {', '.join(points[:3])}{f' and {len(points) - 3} more' if len(points) > 3 else ''}: {reason}"
        for (what, reason), points in found.items()
    ]
    left = len(found) - MOST_REASONS
    return lines[:MOST_REASONS] + ([f"... and {left} more reasons, in --json"] if left > 0 else [])


def _best_block(swept: Swept) -> list[str]:
    """Return the best block with its figures and spread, equally fast blocks, and the default block."""
    if not swept.complete:
        return [_interrupted(swept)]
    chosen = [result for result in swept.results if result.block in swept.best]
    if not chosen:
        return ["No block gave a right result."]
    default = next((k.block for k in swept.operation.kernels if k.name == chosen[0].kernel), ())
    best, *others = sorted(chosen, key=lambda result: result.block[: len(default)] != default)
    again = slower = ""
    if best.time and swept.finals:
        again = f"; {ROUNDS} rounds, whose medians differ by {swept.finals[0].moved:.2%}"
        others = [final.result for final in sweep_points.ties(swept.finals)]
        same = "As fast, within the spread"
    else:
        same = "The same bound, and no more waste" if swept.priced else "The same counts"
    usual = next((r for r in swept.results if default and r.block[: len(default)] == default), None)
    if usual and usual.time and best.time:
        slower = f", {usual.time.median_s / best.time.median_s - 1:.1%} slower"
    is_best = usual is not None and usual.block == best.block
    lines = (
        f"Best{', and the default' if is_best else ''}: {dim_text(best.block)}, {_figures(best)}{again}",
        f"{same}: {', '.join(dim_text(result.block) for result in others)}" if others else "",
        f"The default block {dim_text(usual.block)}: {_figures(usual)}{slower}"
        if usual and not is_best and usual.status == "ok"
        else "",
        f"Repeat: {swept.repeat(best)}" if swept.repeat else "",
    )
    return [line for line in lines if line]


def _interrupted(swept: Swept) -> str:
    """Return the message on an interrupted sweep."""
    measured = f"{len(swept.results)} of {swept.planned} points" if swept.planned else f"{len(swept.results)} points"
    more = f"; --resume {swept.file} continues" if swept.file and swept.file != "-" else ""
    return f"Interrupted after {measured}: the best is not known yet{more}."


def _figures(result: Result) -> str:
    """Return a block's figures: time with its spread and bandwidth, or counts."""
    if result.time is None and result.limits:
        wasted = f", {waste(result)}" if waste(result) != NOTHING else ""
        return f"at least {at_least(result)}, held by {held_by(result)}{wasted}"
    if result.time is None:
        parts = [f"{units.count(value)} {name}" for name, value in compare.counts(result).items() if value]
        return ", ".join([*parts, *([f"occupancy {result.occupancy.fraction:.0%}"] if result.occupancy else [])])
    parts = [f"{units.seconds(result.time.median_s)} {units.spread(stats.dispersion(result.time) / 2)}"]
    if result.gflops is not None and is_arithmetic(result):
        return f"{parts[0]}, {units.digits(result.gflops)} GFLOP/s"
    parts += [f"{units.digits(result.bandwidth_gbps)} GB/s"] if result.bandwidth_gbps is not None else []
    parts += [f"{units.percent(result.copy_fraction)} of copy"] if result.copy_fraction is not None else []
    return ", ".join(parts)
