"""Prints why a kernel is fast or slow: its accesses line by line, its hazards and, on request, each thread's accesses
and the banks of shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from cudabench.explain import verdict
from cudabench.explain.accesses import by_line, cost, pattern_text, unit, wasted_cycles
from cudabench.explain.advice import conflict_name
from cudabench.records.launch import WARP, dim_text
from cudabench.records.results import Access, BankRequest, Branch, Hazard, Result, ThreadAccess, Warning
from cudabench.results import units
from cudabench.results.columns import Column
from cudabench.results.groups import grouped
from cudabench.results.units import place_of
from cudabench.views.console import Console, say
from cudabench.views.tables import Head, fitting, grid, needed, table

NOTABLE = 0.02  # a branch is shown if it wastes more than this fraction of the instructions of the launch
SOURCE_WIDTH = 40  # the source is shown beside the counts if at least this many columns of the terminal are free
NAME_WIDTH = 24  # an array's name is cut to this many columns
PICTURES = 12  # at most this many drawings of memory banks are shown for one kernel


def show_kernel(
    out: Console,
    result: Result,
    *,
    threads: bool,
    banks: bool,
    ladder: Sequence[Result] = (),
    ideas: Mapping[str, str] | None = None,
) -> None:
    """Print the explanation of one kernel.

    `threads`: also print each thread's accesses; `banks`: also draw the requests to the memory banks; `ladder`,
    `ideas`: see `verdict.sentence`.
    """
    out.print()
    say(out, title(result), "bold")
    if result.status in ("failed", "skipped"):
        say(out, f"{result.status}: {result.reason}", "red" if result.status == "failed" else "dim")
        print_warnings(out, result.warnings)
        return
    for row in result.hazards or ():
        print_hazard(out, row)
    for text in changes(result):
        say(out, text, "green" if text == NOTHING_TO_CHANGE else "yellow")
    out.print()
    if result.limits:
        say(out, verdict.line(result), "bold")
        say(out, verdict.sentence(result, ladder, ideas or {}))
        if verdict.of_a_datasheet(result):
            say(out, verdict.NOT_OF_A_DATASHEET, "dim")
    out.print(summary(result))
    out.print()
    print_accesses(out, result.access or ())
    print_branches(out, costly_branches(result), result.instructions or 0)
    if threads:
        draw_threads(out, result.threads or ())
    if banks:
        draw_banks(out, result.banks or (), result.access or ())
    if result.hazards:
        print_warnings(out, result.warnings)
    else:
        print_hazards(out, (), result.warnings)
    if result.verification and result.verification.mismatches:
        say(out, f"wrong: {result.reason}", "red")


NOTHING_TO_CHANGE = "No line wastes enough to be worth a change."


def changes(result: Result) -> list[str]:
    """Return sentences with the changes to make: lines sorted by waste, then arithmetic, branches and blocks."""
    rows = sorted(by_line(result.access or ()), key=wasted_cycles, reverse=True)
    sentences = [
        *(f"{at}: {advice}" for at, advice in by_lines((row.advice, place_of(row)) for row in rows if row.advice)),
        *(warning.message for warning in result.warnings if warning.code in COSTLY),
        *(f"line {place_of(row)}: {row.advice}" for row in costly_branches(result) if row.advice),
        *([result.imbalance.advice] if result.imbalance else []),
    ]
    return sentences or ([] if result.hazards else [NOTHING_TO_CHANGE])


def title(result: Result) -> str:
    """Return the kernel with its launch: 'transpose smem-pad, 4096 x 4096 float32, block 32 x 8, grid 128 x 512'."""
    shape = " ".join(part for part in (units.size(result), result.dtype) if part)
    launch = f", block {dim_text(result.block)}, grid {dim_text(result.grid)}" if result.block[0] else ""
    launch += "".join(f", {name}={value}" for name, value in result.chosen.items())
    return f"{result.operation} {result.kernel}, {shape}{launch} ({result.source})"


def summary(result: Result) -> str:
    """Return a text with the kernel's instructions and occupancy, and why hardware may execute more or fewer
    instructions."""
    code, fits, threads = result.machine_code, result.occupancy, None
    if code is not None and code.instructions_executed is not None:
        ran, threads = f"{units.count(code.instructions_executed)} warp instructions", code.threads_per_instruction
    else:
        why = "the machine code is not read: install nvidia-cuda-nvdisasm"
        ran = f"{units.count(result.instructions or 0)} warp instructions of PTX ({why})"
    pipes = (code and code.pipes) or {}
    # Code may contain float64 instructions that never run (sinf has such instructions for large arguments). If no
    # float64 instruction ran, float64 is left out.
    idle = pipes.get("fp64") == 0 and pipes.get("tensor") == 0
    formats = [name for name in (code and code.arithmetic) or () if name != "float64" or not idle]
    parts = (
        f"{units.about(code)}{ran}",
        f"{units.about(code)}{threads:.1f} threads each" if threads is not None else "",
        f"arithmetic in {', '.join(formats)}" if formats else "",
        f"{code.spill_bytes} bytes of spills" if code and code.spill_bytes else "",
        f"{result.registers} registers a thread" if result.registers is not None else "",
        f"{result.shared_bytes} bytes of shared memory a block" if result.shared_bytes else "",
        f"{result.local_bytes} bytes of local memory a thread" if result.local_bytes else "",
        f"occupancy {units.percent(fits.fraction)} ({fits.blocks_per_sm} blocks an SM, limited by {fits.limited_by})"
        if fits
        else "",
    )
    inexact = f"\n~ hardware may execute more or fewer: {code.inexact}" if code and code.inexact else ""
    return ", ".join(filter(None, parts)) + inexact


COLUMNS: tuple[Column[Access], ...] = (
    Column("line", place_of),
    Column("array", lambda row: shortened(row.array or "", NAME_WIDTH), right=False),
    Column("access", lambda row: f"{row.space} {row.op} {row.bytes} B", right=False),
    Column("lanes of a warp", lambda row: pattern_text(row.pattern), right=False, expendable=2),
    Column("requests", lambda row: units.about(row) + units.count(row.requests), expendable=1),
    Column(
        "per request", lambda row: f"{units.about(row)}{units.digits(cost(row).per_request or 0, 3)} {unit(row.space)}"
    ),
    Column("at best", lambda row: units.digits(cost(row).ideal_per_request or 0, 3), expendable=3),
    Column("waste", lambda row: f"{cost(row).waste or 0:.0%}"),
)


COSTLY = ("division", "double", "spill")  # the codes of warnings about a line with hidden costs


def print_left_out(out: Console, columns: Sequence[str]) -> None:
    """Print which columns were left out because the terminal is too narrow, and how to see these columns."""
    if columns:
        where = "use a wider terminal, a pipe (| cat) or --json -."
        say(out, f"Too narrow for: {', '.join(columns)}; {where}", "dim")


def print_accesses(out: Console, rows: Sequence[Access]) -> None:
    """Print the table of accesses. A row is for one source line, one array and one kind of access."""
    if not rows:
        out.print("No memory is accessed, except through textures and surfaces, which are not counted.")
        return
    rows = by_line(rows)
    columns, dropped = fitting(COLUMNS, rows, out.width)
    room = out.width - needed(columns, rows) - 2
    beside = room >= SOURCE_WIDTH
    if not beside:
        for line, text in dict.fromkeys((place_of(row), row.source) for row in rows):
            say(out, shortened(f"{line:>4}  {plain(text)}", out.width), no_wrap=True)
        out.print()
    source = Column[Access]("source", lambda row: shortened(plain(row.source), room), right=False)

    def style(row: Access) -> str:
        return "red" if row.advice and (cost(row).waste or 0) > 0.5 else "yellow" if row.advice else ""

    out.print(table([*columns, source] if beside else columns, rows, style, wrap=False))
    print_left_out(out, [column.heading for column in dropped])
    for at, reason in by_lines((row.inexact, place_of(row)) for row in rows if row.inexact):
        say(out, f"~ {at}: hardware may count otherwise: {reason}", "dim")


def by_lines(sentences: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (lines, sentence) for each distinct sentence; `lines` is a text such as 'line 3' or 'lines 3, 7'.

    The given pairs are (sentence, line).
    """
    lines = grouped(dict.fromkeys(sentences))
    return [
        (f"{'line' if len(numbers) == 1 else 'lines'} {', '.join(numbers)}", sentence)
        for sentence, numbers in lines.items()
    ]


def plain(source: str) -> str:
    """Return a source line for a table, with blanks in place of tabs."""
    return " ".join(source.split("\t"))


def shortened(text: str, width: int) -> str:
    """Return a text cut to `width` characters, with an ellipsis if it was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def costly_branches(result: Result) -> list[Branch]:
    """Return the divergent branches that waste more than the fraction NOTABLE of the launch's instructions."""

    def idle(row: Branch) -> float:
        """Return how many warp instructions would be saved if all 32 lanes were active."""
        return row.instructions * (1 - (row.threads_per_instruction or WARP) / WARP)

    most = NOTABLE * (result.instructions or 0)
    return [row for row in result.branches or () if row.divergent and idle(row) > most]


def print_branches(out: Console, costly: Sequence[Branch], instructions: int) -> None:
    """Print a table of costly branches. `instructions`: the number of instructions of the whole launch."""
    if not costly:
        return
    out.print()

    def share(row: Branch) -> str:
        return f"{units.count(row.instructions)} ({units.percent(row.instructions / instructions)})"

    columns: list[Column[Branch]] = [
        Column("line", place_of),
        Column("warps", lambda row: units.count(row.executions)),
        Column("divergent", lambda row: units.percent(row.divergent / row.executions)),
        Column("lanes each way", lambda row: f"{row.lanes_taken:.0%} / {1 - row.lanes_taken:.0%}"),
        Column("instructions", share),
        Column("threads each", lambda row: f"{row.threads_per_instruction:.1f}"),
    ]
    room = max(out.width - needed(columns, costly) - 2, len("branch"))
    source = Column[Branch]("branch", lambda row: shortened(plain(row.source), room), right=False)
    out.print(table([*columns, source], costly, wrap=False))
    say(out, "Divergent branches: the instructions of PTX until their ways meet again, and the threads that run each.")


# Codes of warnings that say which hazards the check may have missed. The warnings in LIMITING are printed after
# hazards; if there are no hazards, only the warnings in OF_CLEAN.
OF_CLEAN = (
    "unreached", "undefined-shuffle", "skipped-barrier", "early-exit", "lock-missed", "ended-before-barrier",
    "unsearched", "leak", "stack",
)  # fmt: skip
LIMITING = ("compiler", "constant", "extent", "unchecked", "unwritten", "order-dependent", "undecided", *OF_CLEAN)


def print_hazards(out: Console, rows: Sequence[Hazard], warnings: Sequence[Warning] = ()) -> None:
    """Print the hazards, or that no hazard was found, and the warnings about hazards that the check may have missed."""
    out.print()
    if not rows:
        say(out, "No hazards: no race, no access out of bounds, no uninitialised read, no divergent barrier.")
        print_warnings(out, [warning for warning in warnings if warning.code in OF_CLEAN])
        return
    for row in rows:
        print_hazard(out, row)
    print_warnings(out, warnings)


def print_warnings(out: Console, warnings: Sequence[Warning], indent: str = "") -> None:
    """Print the warnings whose code is in LIMITING."""
    for warning in warnings:
        if warning.code in LIMITING:
            say(out, f"{indent}{warning.message}.", "yellow")


def print_hazard(out: Console, row: Hazard, indent: str = "") -> None:
    """Print a hazard: its message, the source line, and the block and thread where it first occurred."""
    times = f" ({units.count(row.count)} times)" if row.count > 1 else ""
    first = f"first: block {coordinates(row.block)}, thread {coordinates(row.thread)}"
    say(out, f"{indent}{row.kind}, line {place_of(row)}: {row.message}{times}", "red")
    say(out, f"{indent}    {row.source}", "dim")
    say(out, f"{indent}    {first}", "dim")


def coordinates(index: Sequence[int]) -> str:
    """Return an index as text: (3, 0, 0)."""
    return f"({', '.join(map(str, index))})"


# Threads and banks one by one ----------------------------------------------------------------------------------------


def draw_threads(out: Console, rows: Sequence[ThreadAccess]) -> None:
    """Print a table with a row for each thread: the elements that it reads and writes, in order, and their banks."""
    out.print()
    if not rows:
        out.print("No array is accessed by these threads.")
        return
    columns = grouped(((row.op, row.array), row) for row in rows)
    columns = dict(sorted(columns.items(), key=lambda item: min(row.instruction or 0 for row in item[1])))
    banked = {key for key, accesses in columns.items() if any(row.bank is not None for row in accesses)}
    threads = sorted({(row.block[::-1], row.thread[::-1]) for row in rows})
    blocks = {block for block, _ in threads}
    heads = [Head("block"), Head("thread")] if len(blocks) > 1 else [Head("thread")]
    if len(blocks) == 1:
        warps = f", {len(threads)} threads" if len(threads) > 1 else ""
        say(out, f"block {coordinates(rows[0].block)}{warps}, accesses in the kernel's order")
    for op, array in columns:
        heads += [Head(f"{SAYS[op]} {array}", wrap=True), *([Head("bank")] if (op, array) in banked else [])]
    by_thread = grouped(((row.block[::-1], row.thread[::-1], row.op, row.array), row) for row in rows)
    cells: list[list[str]] = []
    for thread in threads:
        cells.append([coordinates(index[::-1]) for index in thread[-2 if len(blocks) > 1 else -1 :]])
        for key in columns:
            accesses = by_thread.get((*thread, *key), [])
            more = f" +{len(accesses) - SHOWN}" if len(accesses) > SHOWN else ""
            elements = (f"{row.array}[{', '.join(map(str, row.index))}]" for row in accesses[:SHOWN])
            cells[-1].append(" ".join(elements) + more)
            if key in banked:
                cells[-1].append(" ".join(str(row.bank) for row in accesses[:SHOWN]) + more)
    out.print(grid(heads, cells))
    for key, accesses in columns.items():
        if key in banked:
            say(out, bank_conflict_text(accesses), "dim")
    if any(len(accesses) > SHOWN for accesses in by_thread.values()):
        say(out, f"+N: N more accesses; {SHOWN} are shown. --json - has all that were kept.", "dim")


SHOWN = 4  # at most this many accesses by a thread to an array are shown
SAYS = {"load": "reads", "store": "writes", "atomic": "updates", "reduction": "updates"}


def bank_conflict_text(rows: Sequence[ThreadAccess]) -> str:
    """Return a sentence on the bank conflict of the first request in these rows, which have one array and one kind of
    access."""
    first = [row for row in rows if row.instruction == rows[0].instruction and row.bank is not None]
    lanes = grouped((row.thread, row) for row in takewhile(lambda row: row.block == first[0].block, first))
    served = [accesses[0] for accesses in lanes.values()][:WARP]
    banks = grouped((row.bank, row.index) for row in served)
    most = max(len(set(indices)) for indices in banks.values())
    what = "one bank serves all lanes"
    if len(banks) > 1:
        what = f"{len(banks)} banks serve the first warp's {len(served)} lanes"
    verdict = (
        f"{most} elements of one bank one after the other: {conflict_name(most)}" if most > 1 else "no bank conflict"
    )
    return f"{SAYS[rows[0].op]} {rows[0].array}: {what}, {verdict}"


def draw_banks(out: Console, requests: Sequence[BankRequest], rows: Sequence[Access]) -> None:
    """Draw a warp's requests to shared memory.

    Each column is a bank and each row a wavefront; the number in a cell is the lane that the bank serves.
    """
    from rich.text import Text

    sources = {place_of(row): row.source for row in rows}
    if not requests:
        out.print()
        out.print("This warp does not use shared memory, so banks are not drawn.")
    drawn = requests[:PICTURES]
    halves = [range(32)] if out.width >= 13 + 32 * 3 else [range(16), range(16, 32)]
    for request in drawn:
        out.print()
        say(out, shortened(f"line {place_of(request)}: {plain(sources.get(place_of(request), ''))}", out.width), "bold")
        say(out, caption(request), "red" if len(request.passes) > request.ideal else "")
        for banks in halves:
            say(out, "bank         " + "".join(f"{bank:>2} " for bank in banks), "dim")
            for at, row in enumerate(request.passes):
                cells = [
                    (f"{row[bank][0]:>2}{'+' if len(row[bank]) > 1 else ' '}", COLOURS[at % len(COLOURS)])
                    if row[bank]
                    else (" . ", "dim")
                    for bank in banks
                ]
                out.print(Text.assemble(f"wavefront {at + 1:<3}", *cells))
    if any(len(lanes) > 1 for request in drawn for row in request.passes for lanes in row):
        say(out, "+: other lanes read the same word in this wavefront", "dim")
    if len(requests) > PICTURES:
        say(out, f"{len(requests) - PICTURES} more that use the banks differently are in --json -.", "dim")


def caption(request: BankRequest) -> str:
    """Return the heading of a drawing: 'load of t, 4 bytes a lane, by warp 0 of block (0, 0, 0): no bank conflict,
    ...'.
    """
    wavefronts = len(request.passes)
    who = f"warp {request.warp} of block {coordinates(request.block)}"
    which = f", request {ranges(request.requests)}" if request.requests != (1,) else ""
    verdict = f"no bank conflict, {wavefronts} wavefront{'' if wavefronts == 1 else 's'}"
    if wavefronts > request.ideal:
        verdict = f"{conflict_name(wavefronts / request.ideal)}, {wavefronts} wavefronts where {request.ideal} would do"
    what = f" {'of' if request.op == 'load' else 'to'} {request.array}" if request.array else ""
    return f"{request.op}{what}, {request.bytes} bytes a lane, by {who}{which}: {verdict}"


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text, with ranges: '1, 3 to 6'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    texts = [f"{part[0]}" if len(part) == 1 else f"{part[0]} to {part[1]}" for part in parts]
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")


COLOURS = ("green", "yellow", "red", "magenta", "cyan", "blue")
