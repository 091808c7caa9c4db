"""Prints a run: the device and the problem, the table of kernels, the CPU baseline, warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from cudabench.explain import verdict
from cudabench.explain.accesses import NOTABLE, Cost, total
from cudabench.plan import chapters
from cudabench.records.launch import dim_text
from cudabench.records.plan import Operation, Settings
from cudabench.records.results import CpuTime, DeviceInfo, Result
from cudabench.results import slow_kernels, stats, units
from cudabench.results.columns import NOTHING, Column, number, percent, verified
from cudabench.results.groups import grouped
from cudabench.results.ratio import RUN_TO_RUN_S
from cudabench.views import headlines, tables
from cudabench.views.console import Console, say
from cudabench.views.explanation import shortened

# A card is marked if it is slower than the fastest card by more than this fraction. Cards of one model differ by up to
# 2%, and noise adds a little.
OUT_OF_LINE = 0.03


def show_run(
    out: Console,
    err: Console,
    operation: Operation,
    devices: Sequence[DeviceInfo],
    results: Sequence[Result],
    cpus: Sequence[CpuTime],
    settings: Settings,
    *,
    announced: bool = False,
    more: Callable[[str], str] | None = None,
) -> None:
    """Print the tables and sentences about a run. Warnings go to `err`.

    `cpus`: the CPU baselines, one for each size; `announced`: the device has been printed already; `more`: a function
    that returns the command that shows more of a kernel.
    """
    if not results:
        return
    device = devices[0]
    bounded = device.kind == "sim" and any(result.limits_on for result in results)
    for shown_device in () if announced else devices:
        say(out, device_line(shown_device, priced_on(results)), "bold")
    # on several cards, the rows are sorted so that a kernel's results on all cards are next to each other
    if len(devices) > 1:
        order = list(dict.fromkeys(headlines.name_at(result, results) for result in results))
        results = sorted(results, key=lambda result: order.index(headlines.name_at(result, results)))
    out.print(problem_line(operation, results, settings, device))
    columns = columns_of(operation, devices, results, bounded)
    out.print()
    kept, dropped = tables.fitting(columns, results, out.width)
    out.print(tables.table(kept, results, lambda result: tables.BAD.get(result.status, ""), wrap=False))
    if dropped:
        left_out = ", ".join(" ".join(column.heading.split()) or "detours" for column in dropped)
        say(out, f"Too narrow for: {left_out}; a wider terminal or a pipe shows all.", "dim")
    if bounded:
        print_conclusions(out, results, more)
    elif device.kind == "sim":
        say(out, "Sectors and wavefronts are per request; the ideal is in brackets.", "dim")
    else:
        for text in limit_lines(operation, results):
            say(out, text)
        for text in behind_lines(operation, devices, results, more):
            say(out, text, soft_wrap=True)
    print_exceptions(out, operation, results)
    if cpus:
        out.print()
        out.print(cpu_line(cpus))
    for line in warning_lines(results):
        say(err, line, "yellow")


def columns_of(
    operation: Operation, devices: Sequence[DeviceInfo], results: Sequence[Result], bounded: bool
) -> list[Column[Result]]:
    """Return the columns that all tables for this kind of device have, and the columns that only these results need.

    `bounded`: the results are from the simulator and have limits on a card.
    """
    if devices[0].timed:
        columns = timed_columns(operation, results)
    else:
        columns = bounded_columns(results) if bounded else simulated_columns(results)
    columns = with_detours(columns, operation, results)
    if len(devices) > 1:
        columns.insert(2, Column("device", lambda r: r.device, right=False))
    if headlines.several_sizes(results):
        columns.insert(2, Column("size", units.size))
    if all(result.id is None for result in results):  # the kernels are not from a ladder
        columns = [column for column in columns if column.heading != "id"]
    return columns


def print_exceptions(out: Console, operation: Operation, results: Sequence[Result]) -> None:
    """Print the constants that rules chose, why kernels have no figures, slow cards, and the figures that checks
    computed."""
    if constants := chosen_line(operation, results):
        say(out, constants, "dim")
    named = ((headlines.name_at(result, results), result) for result in results)
    for (status, reason), kernels in headlines.reasons(named).items():
        style = "dim" if status == "skipped" else "red"
        say(out, f"{', '.join(kernels)} {status}: {reason}", style)
    for line in straggler_lines(results):
        say(out, line, "yellow")
    for result in results:
        if result.figures:
            figures = ", ".join(f"{name} {value:.6g}" for name, value in result.figures.items())
            out.print(f"{headlines.name_at(result, results)}: {figures}")


# The lines around the table ------------------------------------------------------------------------------------------


def limit_lines(operation: Operation, results: Sequence[Result]) -> list[str]:
    """Return a line on the limit of each kernel that has limits, after a line that says what limits are."""
    limited = [result for result in results if result.limits]
    if not limited:
        return []
    ideas = chapters.ideas(operation)
    cards = ", ".join(dict.fromkeys(result.limits_on or "" for result in limited))
    lines = [f"Limits are lower bounds on {cards}: no kernel with these counts can be faster.", ""]
    lines[1:1] = [verdict.NOT_OF_A_DATASHEET] if any(verdict.of_a_datasheet(result) for result in limited) else []
    named = ((headlines.name_at(result, results), result) for result in limited)
    return [*lines, *(f"{name}: {verdict.sentence(result, limited, ideas)}" for name, result in named)]


def behind_lines(
    operation: Operation, devices: Sequence[DeviceInfo], results: Sequence[Result], more: Callable[[str], str] | None
) -> list[str]:
    """Return a line for each kernel of a ladder that is far slower than the fastest row.

    If a kernel is far slower at several sizes, the line is about the size with the largest difference.
    """
    sms = {f"cuda:{device.index}": device.sm_count or 0 for device in devices}
    slow_rungs = slow_kernels.slow_rungs(results, sms, cache(partial(chapters.ideas, operation, whole=True)))
    lines = []
    for rows in grouped((rung_row[0].kernel, rung_row) for rung_row in slow_rungs).values():
        rung, best, share, why = min(rows, key=lambda row: row[2])
        command = more(rung.kernel) if more else f"cudabench explain {operation.name} -k {rung.kernel}"
        if "--size" not in command.split():
            command += f" --size {' '.join(str(rung.size[name]) for name in operation.dimensions)}"
        name = headlines.name_at(rung, results) + (f", the worst of {len(rows)}" if len(rows) > 1 else "")
        lines.append(f"{name}: {share:.2g} of the speed of {best.kernel}. {why or f'What limits it: {command}'}")
    return lines


BOUNDED = "at least: a lower bound on the card, not a time. Counts: per request (ideal)"


def print_conclusions(out: Console, results: Sequence[Result], more: Callable[[str], str] | None) -> None:
    """Print what bounds and counts mean, the lowest bound, the most wasteful kernel, and the command to see more."""
    unmeasured = any(map(verdict.of_a_datasheet, results))
    executed = all(result.machine_code and result.machine_code.instructions_executed for result in results)
    text = f"{BOUNDED}{'; instructions of the machine code' if executed else ''}."
    say(out, f"{text} {verdict.NOT_OF_A_DATASHEET}" if unmeasured else text, "dim")
    if meanings := verdict.legend(result.limits[0].resource for result in results if result.limits):
        say(out, meanings, "dim")
    if sentence := headlines.lowest_line(results):
        say(out, sentence)
    worst = headlines.most_wasteful(results)
    if worst is not None and (sentence := headlines.waste_line(worst, headlines.name_at(worst, results))):
        say(out, shortened(sentence, out.width))
    if worst is not None and more is not None:
        wrong = next((result for result in results if result.status == "wrong"), worst)
        say(out, f"More: {more(wrong.kernel)}", soft_wrap=True)


def chosen_line(operation: Operation, results: Sequence[Result]) -> str:
    """Return a sentence on the constants that rules set to other values than the source has; '' if there are none."""
    chosen = [result for result in results if result.chosen]
    files = chapters.names(operation) if chosen else ()
    written = dict(item for name in files for item in chapters.macros(chapters.read_chapter(name)).items())

    def values(result: Result) -> str:
        plain = {name: written[name].text if written[name].text.isdigit() else "" for name in result.chosen}
        return ", ".join(f"{n}={value}{plain[n] and f', not {plain[n]}'}" for n, value in result.chosen.items())

    shared = grouped((values(result), headlines.name_at(result, results)) for result in chosen)
    texts = [f"{constants} ({', '.join(kernels)})" for constants, kernels in shared.items()]
    return f"Different from the source: {'; '.join(texts)}." if texts else ""


def straggler_lines(results: Sequence[Result]) -> list[str]:
    """Return a line for each card that is slower than the fastest by more than OUT_OF_LINE."""
    times = grouped((headlines.name_at(r, results), (r.device, r.time.median_s)) for r in results if r.time)
    best = {kernel: min(seconds for _, seconds in group) for kernel, group in times.items()}
    lags_of = grouped(
        (device, f"{kernel} {seconds / best[kernel] - 1:.1%}")
        for kernel, group in times.items()
        for device, seconds in group
        if seconds / best[kernel] - 1 > OUT_OF_LINE + RUN_TO_RUN_S / best[kernel]
    )
    return [f"{device} is slower than the fastest card: {', '.join(lags)}" for device, lags in lags_of.items()]


def priced_on(results: Sequence[Result]) -> str:
    """Return the name of the card for which the results have limits; '' without limits."""
    return ", ".join(dict.fromkeys(result.limits_on for result in results if result.limits_on))


def device_line(device: DeviceInfo, card: str = "") -> str:
    """Return a line about a device, with the properties that matter for the figures.

    `card`: the card for which the simulator's counts give bounds.
    """
    if device.kind == "sim":
        priced = f"; bounds are of the {card}" if card else ""
        return f"{device.name}: no GPU was used, so nothing is timed{priced}"
    parts = (
        f"{device.name} (cuda:{device.index})",
        f"compute capability {device.compute_capability}",
        f"{device.sm_count} SMs" if device.sm_count else "",
        f"L2 {device.l2_bytes / 2**20:.0f} MiB" if device.l2_bytes else "",
        f"peak {device.peak_gbps:.0f} GB/s" if device.peak_gbps else "",
        f"driver {device.driver}" if device.driver else "",
    )
    return ", ".join(filter(None, parts))


def problem_line(operation: Operation, results: Sequence[Result], settings: Settings, device: DeviceInfo) -> str:
    """Return a line about the problem: its size, the bytes for the bandwidth, the cache state, and the copy's speed."""
    first, several = results[0], headlines.several_sizes(results)
    priced = device.kind == "sim" and bool(priced_on(results))
    size = f"{len({tuple(result.size.items()) for result in results})} sizes" if several else units.size(first)
    moved, formula = next((r.bytes for r in results if r.bytes), 0), operation.bytes_formula
    alone = f"{units.nbytes(moved)} moved" if priced else f"{units.nbytes(moved)} moved ({formula})"
    block = len({result.block for result in results}) == 1 and first.block[0]
    copies = sorted(r.copy_gbps for r in results if r.copy_gbps)
    parts = (
        " ".join(filter(None, (operation.name, size, first.dtype))),
        (f"{formula} bytes moved" if several else alone) if moved else "",
        # Tables with bounds have no column for the block, so a block that all kernels share is named here.
        f"block {dim_text(first.block)}" if priced and block else "",
        "all verified" if priced and all_verified(results) else "",
        f"{settings.cache} L2" if device.timed else "",
        f"copy {copies[len(copies) // 2]:.0f} GB/s" if device.timed and copies and not several else "",
    )
    return ", ".join(filter(None, parts))


def all_verified(results: Sequence[Result]) -> bool:
    """Return whether all results are correct and verified. Skipped kernels are ignored, because their rows say that
    they were skipped."""
    return {verified(result) for result in results} <= {"yes", "skipped"}


def cpu_line(cpus: Sequence[CpuTime]) -> str:
    """Return a line about the CPU baseline: its call, threads and time.

    With several sizes, the line gives the time at the first and at the last size.
    """
    first = cpus[0]
    plural = "thread" if first.threads == 1 else "threads"
    times = (
        units.seconds(cpu.time_s) + (f", {units.digits(cpu.bandwidth_gbps, 3)} GB/s" if cpu.bandwidth_gbps else "")
        for cpu in dict.fromkeys((first, cpus[-1]))
    )
    return f"CPU: {first.implementation}, {first.threads} {plural}: {' to '.join(times)}"


def warning_lines(results: Sequence[Result]) -> list[str]:
    """Return a line for each warning. A warning that several kernels or sizes share is shown once."""
    several = headlines.several_sizes(results)
    shared = grouped(
        ((warning.code, "" if several else warning.message), (result, warning.message))
        for result in results
        for warning in result.warnings
    )
    timed = sum(result.status == "ok" for result in results)
    lines = []
    for group in shared.values():
        first, message = group[0]
        where = "all kernels" if len(group) == timed > 1 else ", ".join(dict.fromkeys(r.kernel for r, _ in group))
        if several:
            at = len({tuple(result.size.items()) for result, _ in group})
            where += f", at {at} of the sizes; {headlines.name_at(first, results)}"
        lines.append(f"Warning: {where}: {message}.")
    return lines


# The table -----------------------------------------------------------------------------------------------------------


def common_columns(results: Sequence[Result]) -> tuple[list[Column[Result]], Column[Result]]:
    """Return the first columns of every table, and the last one."""
    flat = all(result.block[1] <= 1 for result in results)
    start: list[Column[Result]] = [
        Column("id", lambda r: NOTHING if r.id is None else str(r.id), expendable=4),
        Column("kernel", lambda r: r.kernel, right=False),
        Column(
            "block", lambda r: dim_text(r.block, 1 if flat else 2) if r.block[0] else NOTHING, right=False, expendable=5
        ),
        Column("grid", lambda r: dim_text(r.grid) if r.grid[0] else NOTHING, right=False, expendable=1),
    ]
    # If every kernel is verified, the column "verified" is dropped before a name or a figure is cut.
    all_yes = all(verified(result) == "yes" for result in results)
    return start, Column("verified", verified, right=False, expendable=8 if all_yes else 0)


def with_detours(
    columns: Sequence[Column[Result]], operation: Operation, results: Sequence[Result]
) -> list[Column[Result]]:
    """Return the columns and, if there are detours, a last column that marks them."""
    detours = {kernel.name for kernel in operation.kernels if kernel.detour}
    if not any(result.kernel in detours for result in results):
        return list(columns)
    return [*columns, Column("", lambda r: "detour" if r.kernel in detours else "", right=False, expendable=6)]


def timed_columns(operation: Operation, results: Sequence[Result]) -> list[Column[Result]]:
    """Return the columns for a run on a GPU."""
    start, end = common_columns(results)
    middle = [
        Column("time", _time),
        Column("GB/s", lambda r: number(r.bandwidth_gbps), expendable=7 if operation.flops else 0),
        Column("of copy", lambda r: percent(r.copy_fraction)),
        Column("of peak", lambda r: percent(r.peak_fraction), expendable=2),
        Column("x CPU", lambda r: number(r.speedup_vs_cpu, 3), expendable=3),
    ]
    if operation.flops:
        middle.insert(1, Column("GFLOP/s", lambda r: number(r.gflops)))
    if any(result.limits for result in results):
        middle.insert(1, Column("limit", _explained))
    return [*start, *middle, end]


# Columns of sectors or wavefronts per request, as (heading, memory space, kinds of accesses or () for all kinds, value
# of `expendable` in a table with bounds, whether the column is shown even if no kernel has such accesses).
COUNTS: tuple[tuple[str, str, tuple[str, ...], int, bool], ...] = (
    ("load\nsectors", "global", ("load",), 7, True),
    ("store\nsectors", "global", ("store",), 7, True),
    ("atomic\nsectors", "global", ("atomic", "reduction"), 5, False),
    ("shared\nwavefronts", "shared", (), 4, True),
    ("constant\nwavefronts", "constant", (), 4, False),
)


def count_columns(results: Sequence[Result], *, beside_bounds: bool) -> list[Column[Result]]:
    """Return the columns of COUNTS, with the ideal in brackets. In a table with bounds, the ideal is shown only where a
    kernel misses it."""

    def column(heading: str, space: str, ops: Sequence[str], expendable: int) -> Column[Result]:
        def spent(result: Result) -> Cost:
            return total([row for row in result.access or () if not ops or row.op in ops], space)

        def text(result: Result) -> str:
            cost = spent(result)
            if cost.per_request is None or cost.ideal_per_request is None:
                return NOTHING
            if beside_bounds:
                ideal = f" ({cost.ideal_per_request:.3g})" if cost.actual > NOTABLE * cost.ideal else ""
                return f"{cost.per_request:.3g}{ideal}"
            return f"{units.digits(cost.per_request, 3)} ({units.digits(cost.ideal_per_request, 3)})"

        if not beside_bounds:
            return Column(heading, text)
        return Column(heading, text, expendable=expendable, dim=lambda r: spent(r).actual == spent(r).ideal)

    columns = [(column(*count[:4]), count[4] and not beside_bounds) for count in COUNTS]
    return [shown for shown, always in columns if always or any(shown.text(result) != NOTHING for result in results)]


def simulated_columns(results: Sequence[Result]) -> list[Column[Result]]:
    """Return the columns for a run in the simulator. Counts are means per request, with the ideal in brackets."""
    start, end = common_columns(results)
    return [
        *start,
        *count_columns(results, beside_bounds=False),
        Column("instructions", _instructions, expendable=3),
        Column("occupancy", _occupancy, expendable=1),
        Column("hazards", _hazards, expendable=0 if any(r.hazards for r in results) else 7),
        end,
    ]


def bounded_columns(results: Sequence[Result]) -> list[Column[Result]]:
    """Return the columns for a run in the simulator with bounds on a card: bound, resource, waste, then counts.

    Columns that are empty, or equal for every kernel, are left out.
    """
    (number_, kernel, block, grid), end = common_columns(results)
    same_block = len({result.block for result in results}) == 1
    occupied = {result.occupancy.fraction for result in results if result.occupancy}
    return [
        replace(number_, expendable=3),
        kernel,
        Column("at least", headlines.at_least),
        Column("held by", headlines.limiting_resource, right=False),
        Column("waste", headlines.waste, right=False),
        *count_columns(results, beside_bounds=True),
        Column("instructions", _instructions, expendable=2),
        *([] if occupied <= {1.0} else [Column("occupancy", _occupancy, expendable=1)]),
        *([] if same_block else [replace(block, expendable=2)]),
        grid,
        *([Column("hazards", _hazards)] if any(result.hazards for result in results) else []),
        *([] if all_verified(results) else [end]),
    ]


def _explained(result: Result) -> str:
    """Return the longest limit as a fraction of the measured time, and the name of the limit's resource."""
    if not result.limits or result.true_time is None:
        return NOTHING
    longest = result.limits[0]
    return f"{percent(longest.time_s / result.true_time.median_s)} {verdict.name(longest)}"


def _time(result: Result) -> str:
    if result.time is None:
        return NOTHING
    return f"{units.seconds(result.time.median_s)} {units.spread(stats.dispersion(result.time) / 2)}"


def _instructions(result: Result) -> str:
    """Return the number of executed warp instructions of the machine code or, if it was not read, of the PTX."""
    code = result.machine_code
    ran = code.instructions_executed if code and code.instructions_executed is not None else result.instructions
    return NOTHING if ran is None else f"{units.about(code)}{units.count(ran)}"


def _occupancy(result: Result) -> str:
    return percent(result.occupancy.fraction) if result.occupancy else NOTHING


def hazards_column() -> Column[Result]:
    """Return the column with the number of hazards of each kernel."""
    return Column("hazards", _hazards)


def _hazards(result: Result) -> str:
    return NOTHING if result.hazards is None else str(len(result.hazards)) if result.hazards else "none"
