"""Shows a program that ran: a row for each kernel, errors of the host code, and advice for the most wasteful line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from cudabench.cards.load import Card
from cudabench.explain.accesses import wasted_cycles
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.program import Finding, Program
from cudabench.records.results import Result, Timing
from cudabench.results import units
from cudabench.results.columns import NOTHING, Column
from cudabench.views import headlines, tables
from cudabench.views import table as kernels
from cudabench.views.console import Console, say
from cudabench.views.explanation import shortened

MOST_NAME = 48  # if a kernel's name is longer than this, template arguments are left out
MOST_LISTED = 12  # at most this many errors of the host code, and hazards of each kernel, are listed


def show_program(out: Console, file: ResultsFile, cards: Sequence[Card]) -> None:
    """Print the results of a program: the table of kernels, hazards, errors, warnings and advice."""
    program, results = file.program, file.results
    assert program is not None
    out.print()
    say(out, _headline(program), "bold")
    if results:
        out.print()
        columns, priced = _columns(program, results, cards), any(result.limits for result in results)
        fitting, dropped = tables.fitting(columns, results, out.width)
        out.print(tables.table(fitting, results, lambda result: tables.BAD.get(result.status, ""), wrap=False))
        if dropped:
            say(out, _left_out(dropped), "dim")
        if priced:
            card = kernels.priced_on(results)
            sentence = (
                f"at least: a lower bound of the {card}, of the checked launches together. Counts: per request (ideal)."
            )
            say(out, sentence, "dim")
    for result in results:
        for hazard in (result.hazards or ())[:MOST_LISTED]:
            place = units.place_of(hazard)
            say(out, f"{result.kernel}, line {place}: {hazard.kind}: {hazard.message}", "red")
            _show_source(out, hazard.source)
        if result.reason and not result.hazards:
            say(out, f"{result.kernel} {result.status}: {result.reason}", "red")
    _show_host(out, program)
    for result in sorted(results, key=lambda row: row.status != "ok"):
        for note in result.warnings:
            say(out, f"Warning: {result.kernel}: {note.message.replace('--block', 'the block')}.", "yellow")
    worst = headlines.most_wasteful(results)
    if worst is not None and (sentence := headlines.waste_line(worst, worst.kernel)):
        say(out, shortened(sentence, out.width))
        row = max(worst.access or (), key=wasted_cycles)
        if row.advice:
            say(out, f"    {row.advice}")


def show_launches(out: Console, file: ResultsFile, elapsed_s: float) -> None:
    """Print the results of a program that ran on a GPU: a row for each kernel, sorted by falling total time.

    `elapsed_s`: how long the program ran.
    """
    program, results = file.program, file.results
    assert program is not None
    total = sum(map(_total_s, results))
    out.print()
    took = f" took {units.seconds(total, 3)} of {units.seconds(elapsed_s, 3)}" if total else ""
    say(out, f"{program.command[0]}: {_launches(program)}{took}, {_ended(program)}", "bold")
    if not results:
        return
    out.print()
    counts = [launched.launches for launched in program.kernels]
    columns = _launch_columns(dict(zip(map(id, results), counts, strict=True)), total)
    fitting, dropped = tables.fitting(columns, results, out.width)
    out.print(tables.table(fitting, results, wrap=False))
    if dropped:
        say(out, _left_out(dropped), "dim")
    say(out, "Times of the GPU, by CUPTI. grid, block: of the slowest launch.", "dim")


def _launch_columns(launches: dict[int, int], total_s: float) -> list[Column[Result]]:
    """Return the columns for a program on a GPU. `launches`: the number of launches, by the result's id; `total_s`: the
    time of all launches."""

    def time(value: Callable[[Timing], float]) -> Callable[[Result], str]:
        return lambda result: NOTHING if result.time is None else units.seconds(value(result.time), 4)

    return [
        Column("kernel", lambda result: _short(result.kernel), right=False),
        Column("launches", lambda result: f"{launches[id(result)]:,}"),
        Column("total", lambda result: units.seconds(_total_s(result), 4) if result.time else NOTHING),
        Column("share", lambda result: units.percent(_total_s(result) / total_s) if total_s else NOTHING),
        Column("median", time(lambda timing: timing.median_s)),
        Column("fastest", time(lambda timing: timing.min_s), expendable=1),
        Column("mean", time(lambda timing: timing.mean_s), expendable=3),
        Column("grid", lambda result: dim_text(result.grid), expendable=4),
        Column("block", lambda result: dim_text(result.block), expendable=5),
        Column("registers", lambda result: str(result.registers), expendable=2),
        Column("shared", lambda result: units.nbytes(result.shared_bytes or 0), expendable=2),
    ]


def _short(name: str) -> str:
    """Return a kernel's name; template arguments that make it longer than MOST_NAME are left out."""
    return name if len(name) <= MOST_NAME else re.sub(r"<.*>", "<...>", name)


def _total_s(result: Result) -> float:
    """Return the time of all launches of a kernel together, in seconds."""
    return result.time.mean_s * result.time.samples if result.time else 0.0


def _headline(program: Program) -> str:
    return f"{program.command[0]}: {_launches(program)}, {program.checked:,} checked, {_ended(program)}"


def _launches(program: Program) -> str:
    return "1 launch" if program.launches == 1 else f"{program.launches:,} launches"


def _ended(program: Program) -> str:
    return "did not reach its end" if program.exit_code is None else f"ended with {program.exit_code}"


def _left_out(dropped: Sequence[Column[Result]]) -> str:
    names = ", ".join(" ".join(column.heading.split()) for column in dropped)
    return f"Too narrow for: {names}; a wider terminal or a pipe shows all."


def _columns(program: Program, results: Sequence[Result], cards: Sequence[Card]) -> list[Column[Result]]:
    """Return the columns of `cudabench run`, the number of launches, and the bound on each further card."""
    launched = {launches.kernel: launches for launches in program.kernels}
    priced = any(result.limits for result in results)
    columns = kernels.bounded_columns(results) if priced else kernels.simulated_columns(results)
    columns = [column for column in columns if column.heading not in ("id", "verified", "hazards")]

    def times(result: Result) -> str:
        launches = launched[result.kernel]
        return (
            f"{launches.launches:,}"
            if launches.checked == launches.launches
            else f"checked {launches.checked:,} of {launches.launches:,}"
        )

    at = next(number for number, column in enumerate(columns) if column.heading == "kernel")
    columns.insert(at + 1, Column("launches", times))
    for place, card in enumerate(cards[1:], 1):
        at = next((number for number, column in enumerate(columns) if column.heading == "held by"), len(columns))
        columns.insert(at, Column(f"on {card.key}", partial(_bound, place=place)))
    if not any(column.heading == "block" for column in columns):
        columns.insert(-1, kernels.common_columns(results)[0][2])
    return [*columns, kernels.hazards_column()]


def _bound(result: Result, place: int) -> str:
    """Return the lower bound of a result on the card with this index in the list of cards."""
    limits = result.limits_by_card
    return units.seconds(limits[place].limits[0].time_s, 3) if limits and limits[place].limits else NOTHING


def _show_host(out: Console, program: Program) -> None:
    """Print the errors of the host code, memory that is never freed, and CUDA functions that cudabench lacks."""
    never_freed = [finding for finding in program.findings if finding.kind == "never-freed"]
    errors = [finding for finding in program.findings if finding.kind != "never-freed"]
    for finding in errors[:MOST_LISTED]:
        times = f" ({finding.count} times)" if finding.count > 1 else ""
        say(out, f"{_place(finding)}{finding.kind}: {finding.message.rstrip('.')}{times}.", "red")
        _show_source(out, finding.source)
    if never_freed:
        times_of: Counter[str] = Counter()
        for finding in never_freed:
            times_of[f"{finding.file}:{finding.line}" if finding.line else ""] += finding.count
        places = [place if times == 1 else f"{place} ({times} times)" for place, times in times_of.items() if place][
            :MOST_LISTED
        ]
        more = " and others" if len(times_of) > len(places) else ""
        say(
            out,
            f"Memory that is never freed: {', '.join(places) or 'of unknown lines'}{more if places else ''}.",
            "yellow",
        )
    if (hidden := len(errors) - MOST_LISTED) > 0:
        say(out, f"{hidden} more errors of the host code are in the results file.")
    for name, calls in program.missing.items():
        often = "once" if calls == 1 else f"{calls:,} times"
        say(
            out,
            f"The CUDA runtime of exec lacks {name}: it was called {often} and returned cudaErrorNotSupported.",
            "yellow",
        )


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}: " if finding.line else ""


def _show_source(out: Console, source: str) -> None:
    if source:
        say(out, shortened(f"    {' '.join(source.split())}", out.width), "dim")
