"""A sweep over more than blocks in the terminal: a row a point, best first, what is best and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cudabench.cards.load import Card
from cudabench.measure import sweep
from cudabench.plan.space import Axis, text_of
from cudabench.records.launch import dim_text
from cudabench.records.results import Result
from cudabench.results import compare, stats, units
from cudabench.results.columns import Column
from cudabench.results.ratio import CONFIDENCE, time_ratio
from cudabench.views import cards as by_card
from cudabench.views.headlines import at_least, held_by, waste
from cudabench.views.heatmap import BAD, ORDER, PRICED, Swept, figures, interrupted, is_arithmetic
from cudabench.views.table import device_line, fitting, priced_on, problem_line

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 20  # of one problem
MOST_REASONS = 5
BESIDE = 10  # columns for the mark and for what is said of a point that is not right
MEASURED = (
    "*: the best. =: not to be told from it, since the {confidence:.0%} interval of their ratio holds 1. time: median "
    "of the samples, and half their interquartile range. slower: than the best. Points within {close:.0%} of the best "
    "were measured again, in {rounds} rounds in turns."
)
COUNTED = "*: the best. =: the same {of}. Nothing is timed in the simulator."


def report(out: Console, swept: Swept) -> None:
    """Print where it ran; for each problem its table, its best and the command that repeats it; what was left out."""
    from rich.text import Text

    if not swept.results:
        return
    if not swept.announced:
        out.print(Text(device_line(swept.device, priced_on(swept.results)), style="bold"))
    groups = sweep.by_problem(swept.results, swept.axes)
    for problem, results in groups.items():
        line = problem_line(swept.operation, results, swept.settings, swept.device)
        out.print()
        out.print(
            Text(f"{text_of(dict(problem))}: {line}" if problem else f"{results[0].kernel}, {line}"), soft_wrap=True
        )
        out.print()
        marks = _marks(swept, results)
        _table(out, swept, results, marks)
        for said in best_lines(swept, results, marks):
            out.print(Text(said), soft_wrap=True)
    out.print()
    if not swept.complete:
        out.print(Text(interrupted(swept), style="yellow"), soft_wrap=True)
    for said in (*_legend(swept), *trouble_lines(swept)):
        out.print(Text(said, style="dim"), soft_wrap=True)


def report_by_card(out: Console, swept: Swept, cards: Sequence[Card]) -> None:
    """Print for each problem which point is best on which card, and what was left out."""
    from rich.text import Text

    groups = [
        (f"{text_of(dict(problem))}: {line}" if problem else line, results)
        for problem, results in sweep.by_problem(swept.results, swept.axes).items()
        for line in [f"{results[0].kernel}, {problem_line(swept.operation, results, swept.settings, swept.device)}"]
    ]

    blocks = len({result.block for result in swept.results}) > 1 and not any(a.kind == "block" for a in swept.axes)

    def label(result: Result) -> str:
        where = {axis.name: result.parameters[axis.name] for axis in swept.axes if not axis.problem}
        return ", ".join(part for part in (text_of(where), dim_text(result.block) * (blocks or not where)) if part)

    by_card.show_sweep(out, cards, groups, label, swept.repeat or label)
    for said in trouble_lines(replace(swept, results=())):
        out.print(Text(said, style="dim"), soft_wrap=True)


def _legend(swept: Swept) -> list[str]:
    if swept.device.kind == "sim":
        return [COUNTED.format(of=_alike(swept)), PRICED if swept.priced else ORDER]
    return [MEASURED.format(confidence=CONFIDENCE, close=sweep.CLOSE, rounds=sweep.ROUNDS)]


def _alike(swept: Swept) -> str:
    return "bound, and no more waste" if swept.priced else "counts"


def _finals(swept: Swept, results: Sequence[Result]) -> list[sweep.Final]:
    """Return the finalists of one problem, best first."""
    own = {sweep.identity(result) for result in results}
    return [final for final in swept.finals if sweep.identity(final.result) in own]


def _marks(swept: Swept, results: Sequence[Result]) -> dict[int, str]:
    """Return a mark for the best result and for those that cannot be told from it, by place; none while interrupted."""
    if not swept.complete:
        return {}
    finals = _finals(swept, results)
    if finals and finals[0].result.status == "ok":
        tied = {sweep.identity(final.result) for final in sweep.ties(finals)}
        best = sweep.identity(finals[0].result)
        return {at: "*" if sweep.identity(r) == best else "=" for at, r in enumerate(results)
                 if sweep.identity(r) in {best, *tied}}  # fmt: skip
    equal = [at for at, result in enumerate(results) if any(result is one for one in sweep.best(results))]
    return {at: "=" if nth else "*" for nth, at in enumerate(equal)}


def _columns(swept: Swept, results: Sequence[Result]) -> list[Column[Result]]:
    axes = [axis for axis in swept.axes if not axis.problem]
    columns = [Column(axis.name, _value(axis)) for axis in axes]
    shown = [{dim_text(r.block)} & {*r.parameters.values()} for r in results]
    if not any(axis.kind == "block" for axis in axes) and len({r.block for r in results}) > 1 and not all(shown):
        columns.append(Column("block", lambda r: dim_text(r.block)))
    if len({r.registers for r in results if r.registers}) > 1:
        columns.append(Column("registers", lambda r: str(r.registers or ""), expendable=2))
    right = [r for r in results if r.status == "ok"]
    if any(r.time for r in right):
        columns.append(Column("time", lambda r: units.seconds(r.time.median_s) if r.time else ""))
        columns.append(Column("", lambda r: units.spread(stats.dispersion(r.time) / 2) if r.time else ""))
        if any(r.gflops is not None and is_arithmetic(r) for r in right):
            columns.append(Column("GFLOP/s", lambda r: "" if r.gflops is None else units.digits(r.gflops)))
        elif any(r.bandwidth_gbps is not None for r in right):
            columns.append(Column("GB/s", lambda r: "" if r.bandwidth_gbps is None else units.digits(r.bandwidth_gbps)))
            columns.append(
                Column("of copy", lambda r: "" if r.copy_fraction is None else units.percent(r.copy_fraction))
            )
        return columns
    if any(r.limits for r in right):
        columns.append(Column("at least", at_least))
        columns.append(Column("held by", held_by, right=False))
        columns.append(Column("waste", waste, right=False))
    names = dict.fromkeys(name for r in right for name, value in compare.counts(r).items() if value)
    columns += [
        Column(name.replace(" ", "\n"), _count(name), expendable=1 if name == "instructions" else 3) for name in names
    ]
    if len({r.occupancy.fraction for r in right if r.occupancy}) > 1:
        columns.append(
            Column("occupancy", lambda r: f"{r.occupancy.fraction:.0%}" if r.occupancy else "", expendable=2)
        )
    return columns


def _value(axis: Axis) -> Callable[[Result], str]:
    return lambda result: result.parameters.get(axis.name, "")


def _count(name: str) -> Callable[[Result], str]:
    return lambda result: units.count(compare.counts(result).get(name, 0)) if result.status == "ok" else ""


def _table(out: Console, swept: Swept, results: Sequence[Result], marks: dict[int, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    columns, _ = fitting(_columns(swept, results), results, out.width - BESIDE)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    timed = any(result.time for result in results)
    table.add_column("slower" if timed else "", justify="right")
    order = sorted(range(len(results)), key=lambda at: _rank(results[at], marks.get(at, "")))
    least = min((r.time.median_s for r in results if r.time and r.status == "ok"), default=0.0)
    for at in order[:MOST_ROWS]:
        result = results[at]
        right = result.status == "ok"
        last = ""
        if not right:
            last = BAD.get(result.status, result.status)
        elif result.time and least and marks.get(at) != "*":
            last = f"{result.time.median_s / least - 1:.1%}"
        cells = [Text(column.text(result)) for column in columns]
        table.add_row(marks.get(at, ""), *cells, last, style="" if right else "red")
    out.print(table)
    if len(order) > MOST_ROWS:
        out.print(f"... and {len(order) - MOST_ROWS} more points, in --json", style="dim")


def _rank(result: Result, mark: str) -> tuple[object, ...]:
    bad = result.status != "ok"
    return (bad, mark != "*", () if bad else sweep.cost(result))


def best_lines(swept: Swept, results: Sequence[Result], marks: dict[int, str]) -> list[str]:
    """Return the best point of a problem with its figures, how sure that is, and the command that repeats it."""
    if not swept.complete:
        return []
    chosen = next((results[at] for at, mark in marks.items() if mark == "*"), None)
    if chosen is None:
        return ["No point gave a right result."]
    where = {axis.name: chosen.parameters[axis.name] for axis in swept.axes if not axis.problem}
    unverified = "" if chosen.verification else " (unverified: give --expect)"
    tried = f" of the {len(results)} points tried" if swept.planned is None else ""
    lines = [f"Best{tried}: {text_of(where) or dim_text(chosen.block)}, {figures(chosen)}{unverified}"]
    finals = _finals(swept, results)
    equal = sum(mark == "=" for mark in marks.values())
    others = f"{equal} others" if equal > 1 else "Another one"
    if equal and chosen.time:
        lines.append(f"{others} cannot be told from it: take whichever suits.")
    elif equal:
        have = "have" if equal > 1 else "has"
        lines.append(f"{others} {have} the same {_alike(swept)}; which is faster, only a GPU can tell.")
    elif chosen.time and len(finals) > 1 and (second := finals[1].result).time:
        moved = max(final.moved for final in finals)
        ratio = time_ratio(chosen.time, second.time, moved, run_to_run_s=0.0)
        lines.append(f"The next is {ratio.change:.2%} slower, {ratio.low - 1:.2%} at least.")
    elif chosen.time and len(results) > 1:
        lines.append(f"No other point comes within {sweep.CLOSE:.0%}.")
    if swept.repeat:
        lines.append(f"Repeat: {swept.repeat(chosen)}")
    return lines


def trouble_lines(swept: Swept) -> list[str]:
    """Return which points were left out and which ran and were not right, by reason, a few of each."""
    reasons: dict[str, list[str]] = {}
    for refusal in swept.refused:
        reasons.setdefault(f"Left out: {{}}: {refusal.reason}", []).append(
            text_of(refusal.values) or dim_text(refusal.block)
        )
    for result in swept.results:
        if result.status != "ok":
            reason = (result.reason or "").strip().splitlines()[0] if result.reason else ""
            reasons.setdefault(f"{result.status.capitalize()}: {{}}: {reason}", []).append(
                text_of(result.parameters) or dim_text(result.block)
            )
    lines = [line.replace("{}", _some(points), 1) for line, points in reasons.items()]
    more = len(lines) - MOST_REASONS
    return lines[:MOST_REASONS] + ([f"... and {more} more reasons, in --json"] if more > 0 else [])


def _some(points: Sequence[str]) -> str:
    return ", ".join(points[:3]) + (f" and {len(points) - 3} more" if len(points) > 3 else "")
