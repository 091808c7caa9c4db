"""Why a kernel is fast or slow: its accesses line by line, its hazards, and on request threads and banks one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudabench.explain import verdict
from cudabench.explain.accesses import by_line, cost, over, spoken, unit
from cudabench.explain.advice import conflict
from cudabench.records.launch import WARP, dim_text
from cudabench.records.results import Access, BankRequest, Branch, Hazard, MachineCode, Result, ThreadAccess, Warning
from cudabench.results import units
from cudabench.results.columns import Column
from cudabench.views.console import Console, say
from cudabench.views.tables import Head, fitting, grid, needed, table

NOTABLE = 0.02  # of a launch's instructions: what divergence costs under it is not worth a line
SOURCE_WIDTH = 40  # columns that the source needs to stand beside the counts
NAME_WIDTH = 24  # columns of an array's name at most
PICTURES = 12  # of banks that are drawn for a kernel


def show(
    out: Console,
    result: Result,
    *,
    threads: bool,
    banks: bool,
    ladder: Sequence[Result] = (),
    ideas: Mapping[str, str] | None = None,
) -> None:
    """Print one kernel's explanation; ladder, ideas: as `verdict.sentence` takes them."""
    out.print()
    say(out, title(result), "bold")
    if result.status in ("failed", "skipped"):
        say(out, f"{result.status}: {result.reason}", "red" if result.status == "failed" else "dim")
        given(out, result.warnings)
        return
    for row in result.hazards or ():
        hazard(out, row)
    for text in changes(result):
        say(out, text, "yellow")
    out.print()
    if result.limits:
        say(out, verdict.line(result), "bold")
        say(out, verdict.sentence(result, ladder, ideas or {}))
        if verdict.of_a_datasheet(result):
            say(out, verdict.NOT_OF_A_DATASHEET, "dim")
    out.print(summary(result))
    out.print()
    accesses(out, result.access or ())
    branches(out, costly_branches(result), result.instructions or 0)
    if threads:
        thread_picture(out, result.threads or ())
    if banks:
        bank_pictures(out, result.banks or (), result.access or ())
    if result.hazards:
        given(out, result.warnings)
    else:
        hazards(out, (), result.warnings)
    if result.verification and result.verification.mismatches:
        say(out, f"wrong: {result.reason}", "red")


NOTHING_TO_CHANGE = "No line wastes enough to be worth a change."


def changes(result: Result) -> list[str]:
    """Return what to change, what costs most first: lines by their waste, then arithmetic, branches and blocks."""
    rows = sorted(by_line(result.access or ()), key=over, reverse=True)
    found = [*advice_lines(rows), *costly_lines(result), *branch_lines(costly_branches(result))]
    if result.imbalance is not None:
        found.append(result.imbalance.advice)
    return found or ([] if result.hazards else [NOTHING_TO_CHANGE])


def title(result: Result) -> str:
    """Return the kernel with its launch: 'transpose smem-pad, 4096 x 4096 float32, block 32 x 8, grid 128 x 512'."""
    shape = " ".join(part for part in (units.size(result), result.dtype) if part)
    launch = f", block {dim_text(result.block)}, grid {dim_text(result.grid)}" if result.block[0] else ""
    launch += "".join(f", {name}={value}" for name, value in result.chosen.items())
    return f"{result.operation} {result.kernel}, {shape}{launch} ({result.source})"


def summary(result: Result) -> str:
    """Return what the kernel executes and occupies, and why hardware may execute more."""
    code = result.machine_code
    said = _summary(result)
    return said if code is None or not code.inexact else f"{said}\n~ hardware may execute more or fewer: {code.inexact}"


def _summary(result: Result) -> str:
    code = result.machine_code
    if code is not None and code.instructions_executed is not None:
        parts = [f"{units.about(code)}{units.count(code.instructions_executed)} warp instructions"]
        if code.threads_per_instruction is not None:
            parts.append(f"{units.about(code)}{code.threads_per_instruction:.1f} threads each")
    else:
        why = "the machine code is not read: install nvidia-cuda-nvdisasm"
        parts = [f"{units.about(code)}{units.count(result.instructions or 0)} warp instructions of PTX ({why})"]
    if code is not None and (formats := formats_that_ran(code)):
        parts.append(f"arithmetic in {', '.join(formats)}")
    if code is not None and code.spill_bytes:
        parts.append(f"{code.spill_bytes} bytes of spills")
    if result.registers is not None:
        parts.append(f"{result.registers} registers a thread")
    if result.shared_bytes:
        parts.append(f"{result.shared_bytes} bytes of shared memory a block")
    if result.local_bytes:
        parts.append(f"{result.local_bytes} bytes of local memory a thread")
    if result.occupancy:
        fits = result.occupancy
        limit = f"{fits.blocks_per_sm} blocks an SM, limited by {fits.limited_by}"
        parts.append(f"occupancy {units.percent(fits.fraction)} ({limit})")
    return ", ".join(parts)


def formats_that_ran(code: MachineCode) -> list[str]:
    """Return the number formats of the code without float64 where none of it ran, as in sinf for small arguments."""
    pipes = code.pipes or {}
    idle = pipes.get("fp64") == 0 and pipes.get("tensor") == 0
    return [name for name in code.arithmetic or () if name != "float64" or not idle]


COLUMNS: tuple[Column[Access], ...] = (
    Column("line", lambda row: str(row.line)),
    Column("array", lambda row: shortened(row.array or "", NAME_WIDTH), right=False),
    Column("access", lambda row: f"{row.space} {row.op} {row.bytes} B", right=False),
    Column("lanes of a warp", lambda row: spoken(row.pattern), right=False, expendable=2),
    Column("requests", lambda row: units.about(row) + units.count(row.requests), expendable=1),
    Column(
        "per request", lambda row: f"{units.about(row)}{units.digits(cost(row).per_request or 0, 3)} {unit(row.space)}"
    ),
    Column("at best", lambda row: units.digits(cost(row).ideal_per_request or 0, 3), expendable=3),
    Column("waste", lambda row: f"{cost(row).waste or 0:.0%}"),
)


COSTLY = ("division", "double", "spill")  # warnings of lines that cost more than they look


def left_out(out: Console, columns: Sequence[str]) -> None:
    """Name the columns for which a terminal is too narrow, and where they are to be had."""
    if columns:
        where = "a wider terminal, a pipe (| cat) or --json - has them."
        say(out, f"Left out for want of room: {', '.join(columns)}; {where}", "dim")


def accesses(out: Console, rows: Sequence[Access]) -> None:
    """Print the table of accesses, a row a line, array and kind."""
    if not rows:
        out.print("No memory is accessed, but for what goes through textures and surfaces, which is not counted.")
        return
    rows = by_line(rows)
    columns, dropped = fitting(COLUMNS, rows, out.width)
    room = out.width - needed(columns, rows) - 2
    beside = room >= SOURCE_WIDTH
    if not beside:
        for line, text in dict.fromkeys((row.line, row.source) for row in rows):
            say(out, shortened(f"{line:>4}  {plain(text)}", out.width), no_wrap=True)
        out.print()
    source = Column[Access]("source", lambda row: shortened(plain(row.source), room), right=False)

    def style(row: Access) -> str:
        return "red" if row.advice and (cost(row).waste or 0) > 0.5 else "yellow" if row.advice else ""

    out.print(table([*columns, source] if beside else columns, rows, style, wrap=False))
    left_out(out, [column.heading for column in dropped])
    reasons: dict[str, list[int]] = {}
    for row in rows:
        if row.inexact and row.line not in reasons.setdefault(row.inexact, []):
            reasons[row.inexact].append(row.line)
    for reason, at in reasons.items():
        said = f"~ {'line' if len(at) == 1 else 'lines'} {', '.join(map(str, at))}: hardware may count otherwise: "
        say(out, said + reason, "dim")


def advice_lines(rows: Sequence[Access | Branch]) -> list[str]:
    """Return the advice, each piece once, with the lines that it is for."""
    where: dict[str, list[int]] = {}
    for row in rows:
        if row.advice and row.line not in where.setdefault(row.advice, []):
            where[row.advice].append(row.line)
    return [f"{'line' if len(at) == 1 else 'lines'} {', '.join(map(str, at))}: {said}" for said, at in where.items()]


def costly_lines(result: Result) -> list[str]:
    """Return what is to be said of arithmetic that costs more than it looks, by line."""
    return [warning.message for warning in result.warnings if warning.code in COSTLY]


def plain(source: str) -> str:
    """Return a source line as it can stand in a table."""
    return " ".join(source.split("\t"))


def shortened(text: str, width: int) -> str:
    """Return a text cut to a width, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def costly_branches(result: Result) -> list[Branch]:
    """Return the branches that part warps and cost something by it."""

    def idle(row: Branch) -> float:
        """Return the warp instructions that full warps would have saved."""
        return row.instructions * (1 - (row.threads_per_instruction or WARP) / WARP)

    most = NOTABLE * (result.instructions or 0)
    return [row for row in result.branches or () if row.divergent and idle(row) > most]


def branches(out: Console, costly: Sequence[Branch], instructions: int) -> None:
    """Print costly branches; instructions: of the whole launch."""
    if not costly:
        return
    out.print()
    headings = ("line", "warps", "divergent", "lanes each way", "instructions", "threads each")
    cells = [
        (
            str(row.line),
            units.count(row.executions),
            units.percent(row.divergent / row.executions),
            f"{row.lanes_taken:.0%} / {1 - row.lanes_taken:.0%}",
            f"{units.count(row.instructions)} ({units.percent(row.instructions / instructions)})",
            f"{row.threads_per_instruction:.1f}",
        )
        for row in costly
    ]
    taken = sum(2 + max(map(len, column)) for column in zip(headings, *cells, strict=True))
    room = max(out.width - taken, len("branch"))
    sources = [shortened(plain(row.source), room) for row in costly]
    heads = [*(Head(heading, right=True) for heading in headings), Head("branch")]
    out.print(grid(heads, [(*own, source) for own, source in zip(cells, sources, strict=True)]))
    say(out, "Divergent branches: the instructions of PTX until their ways meet again, and the threads that run each.")


def branch_lines(rows: Sequence[Branch]) -> list[str]:
    """Return what is to be said of branches that part warps, by line."""
    return [f"line {row.line}: {row.advice}" for row in rows if row.advice]


# Warnings of why what was found, or nothing, may say little.
OF_CLEAN = (
    "unreached", "undefined-shuffle", "skipped-barrier", "early-exit", "ended-before-barrier", "unsearched",
)  # fmt: skip
LIMITING = ("constant", "extent", "unchecked", "order-dependent", "undecided", *OF_CLEAN)


def hazards(out: Console, rows: Sequence[Hazard], warnings: Sequence[Warning] = ()) -> None:
    """Print the hazards, or that there are none; of the warnings, what a kernel was given that nobody chose."""
    out.print()
    if not rows:
        say(out, "No hazards: no race, no access out of bounds, no uninitialised read, no divergent barrier.")
        given(out, [one for one in warnings if one.code in OF_CLEAN])
        return
    for row in rows:
        hazard(out, row)
    given(out, warnings)


def given(out: Console, warnings: Sequence[Warning], indent: str = "") -> None:
    """Print the warnings of what a kernel was given that nobody chose, and of what was not looked for."""
    for one in warnings:
        if one.code in LIMITING:
            say(out, f"{indent}{one.message}.", "yellow")


def hazard(out: Console, row: Hazard, indent: str = "") -> None:
    """Print a hazard: what happens, the line of the source, where first."""
    times = f" ({units.count(row.count)} times)" if row.count > 1 else ""
    first = f"first: block {coordinates(row.block)}, thread {coordinates(row.thread)}"
    say(out, f"{indent}{row.kind}, line {row.line}: {row.message}{times}", "red")
    say(out, f"{indent}    {row.source}", "dim")
    say(out, f"{indent}    {first}", "dim")


def coordinates(index: Sequence[int]) -> str:
    """Return an index as CUDA writes it: (3, 0, 0)."""
    return f"({', '.join(map(str, index))})"


# Threads and banks one by one ----------------------------------------------------------------------------------------


def thread_picture(out: Console, rows: Sequence[ThreadAccess]) -> None:
    """Print a row a thread: the elements that it reads and writes, in its order, and the banks that serve them."""
    order: dict[tuple[str, str], int] = {}
    by_thread: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[tuple[str, str], list[ThreadAccess]]] = {}
    for row in rows:
        key = (row.op, row.array)
        order[key] = min(order.get(key, row.instruction or 0), row.instruction or 0)
        mine = by_thread.setdefault((row.block[::-1], row.thread[::-1]), {})
        mine.setdefault(key, []).append(row)
    out.print()
    if not rows:
        out.print("No array is accessed by these threads.")
        return
    heads = [Head("thread")]
    blocks = {block for block, _ in by_thread}
    if len(blocks) == 1:
        warps = f", {len(by_thread)} threads" if len(by_thread) > 1 else ""
        say(out, f"block {coordinates(next(iter(blocks))[::-1])}{warps}, accesses in the kernel's order")
    else:
        heads.insert(0, Head("block"))
    columns = sorted(order, key=lambda key: order[key])
    banked = {key for key in order if any(row.bank is not None for row in rows if (row.op, row.array) == key)}
    for op, array in columns:
        heads += [Head(f"{SAYS[op]} {array}", wrap=True), *([Head("bank")] if (op, array) in banked else [])]
    cells: list[list[str]] = []
    for (block, thread), mine in sorted(by_thread.items()):
        cells.append([coordinates(index[::-1]) for index in ((block, thread) if len(blocks) > 1 else (thread,))])
        for key in columns:
            own = mine.get(key, [])
            more = f" +{len(own) - SHOWN}" if len(own) > SHOWN else ""
            cells[-1].append(" ".join(element(row) for row in own[:SHOWN]) + more)
            if key in banked:
                cells[-1].append(" ".join(str(row.bank) for row in own[:SHOWN]) + more)
    out.print(grid(heads, cells))
    for op, array in columns:
        if (op, array) in banked:
            say(out, meeting(rows, op, array), "dim")
    if any(len(own) > SHOWN for mine in by_thread.values() for own in mine.values()):
        say(out, f"+N: so many accesses more; {SHOWN} are shown. --json - has what was kept.", "dim")


SHOWN = 4  # accesses of a thread to one array that its row tells
SAYS = {"load": "reads", "store": "writes", "atomic": "updates", "reduction": "updates"}


def element(row: ThreadAccess) -> str:
    """Return an element as C and NumPy write it: 'tile[3, 5]'."""
    return f"{row.array}[{', '.join(map(str, row.index))}]"


def meeting(rows: Sequence[ThreadAccess], op: str, array: str) -> str:
    """Return what the banks of a table's column come to: how many lanes of a warp meet in one bank."""
    first: dict[tuple[tuple[int, ...], int], set[tuple[int, ...]]] = {}
    instruction = next(row.instruction for row in rows if (row.op, row.array) == (op, array))
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for row in rows:
        who = (row.block, row.thread)
        if (row.op, row.array, row.instruction) != (op, array, instruction) or who in seen or row.bank is None:
            continue
        if seen and row.block != next(iter(seen))[0]:
            break
        if len(seen) == 32:
            break
        seen.add(who)
        first.setdefault((row.block, row.bank), set()).add(row.index)
    most = max(len(indices) for indices in first.values())
    what = (
        f"{len(first)} banks serve the first warp's {len(seen)} lanes"
        if len(first) > 1
        else "one bank serves all lanes"
    )
    verdict = f"{most} elements of one bank one after the other: {conflict(most)}" if most > 1 else "no bank conflict"
    return f"{SAYS[op]} {array}: {what}, {verdict}"


def bank_pictures(out: Console, requests: Sequence[BankRequest], rows: Sequence[Access]) -> None:
    """Draw a warp's requests to shared memory: a column a bank, a row a wavefront, in each cell the lane served."""
    from rich.text import Text

    sources = {row.line: row.source for row in rows}
    if not requests:
        out.print()
        out.print("This warp uses no shared memory, so there are no banks to draw.")
    drawn = requests[:PICTURES]
    for request in drawn:
        out.print()
        say(out, shortened(f"line {request.line}: {plain(sources.get(request.line, ''))}", out.width), "bold")
        say(out, caption(request), "red" if len(request.passes) > request.ideal else "")
        halves = [range(32)] if out.width >= 13 + 32 * 3 else [range(16), range(16, 32)]
        for banks in halves:
            say(out, "bank         " + "".join(f"{bank:>2} " for bank in banks), "dim")
            for at, row in enumerate(request.passes):
                line = Text(f"wavefront {at + 1:<3}")
                for bank in banks:
                    lanes = row[bank]
                    cell = f"{lanes[0]:>2}{'+' if len(lanes) > 1 else ' '}" if lanes else " . "
                    line.append(cell, style="dim" if not lanes else COLOURS[at % len(COLOURS)])
                out.print(line)
    if any(len(lanes) > 1 for request in drawn for row in request.passes for lanes in row):
        say(out, "+ the word goes to other lanes in the same wavefront", "dim")
    if len(requests) > PICTURES:
        say(out, f"{len(requests) - PICTURES} more that use the banks differently are in --json -.", "dim")


def caption(request: BankRequest) -> str:
    """Return who asks for what, and what it comes to: '... by warp 0 of block (0, 0, 0): 8-way bank conflict, ...'."""
    taken = len(request.passes)
    who = f"warp {request.warp} of block {coordinates(request.block)}"
    which = f", request {ranges(request.requests)}" if request.requests != (1,) else ""
    wavefronts = f"{taken} wavefront{'' if taken == 1 else 's'}"
    verdict = (
        f"{conflict(taken / request.ideal)}, {wavefronts} where {request.ideal} would do"
        if taken > request.ideal
        else f"no bank conflict, {wavefronts}"
    )
    what = (
        f" of {request.array}"
        if request.array and request.op == "load"
        else f" to {request.array}"
        if request.array
        else ""
    )
    return f"{request.op}{what}, {request.bytes} bytes a lane, by {who}{which}: {verdict}"


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers as people list them: '1, 3 to 6'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    said = [f"{part[0]}" if len(part) == 1 else f"{part[0]} to {part[1]}" for part in parts]
    return ", ".join(said[:4]) + (f" and {len(said) - 4} more" if len(said) > 4 else "")


COLOURS = ("green", "yellow", "red", "magenta", "cyan", "blue")
