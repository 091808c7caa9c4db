"""Why a kernel is fast or slow: its accesses line by line, its hazards, and on request threads and banks one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudabench.explain.accesses import cost, unit
from cudabench.model import WARP, Access, BankRequest, Branch, Hazard, Result, ThreadAccess, dim_text
from cudabench.results import units

if TYPE_CHECKING:
    from rich.console import Console

NOTABLE = 0.02  # of a launch's instructions: what divergence costs under it is not worth a line
WIDE = 110  # columns of a terminal from which the source stands beside the counts


def show(out: Console, result: Result, *, threads: bool, banks: bool) -> None:
    """Print one kernel's explanation."""
    from rich.text import Text

    out.print()
    out.print(Text(title(result), style="bold"))
    if result.status in ("failed", "skipped"):
        out.print(Text(f"{result.status}: {result.reason}", style="red" if result.status == "failed" else "dim"))
        return
    out.print(summary(result))
    out.print()
    accesses(out, result.access or ())
    branches(out, result.branches or (), result.instructions or 0)
    if threads:
        thread_picture(out, result.threads or ())
    if banks:
        bank_pictures(out, result.banks or (), result.access or ())
    hazards(out, result.hazards or ())
    if result.verification and result.verification.mismatches:
        out.print(Text(f"wrong: {result.reason}", style="red"))


def title(result: Result) -> str:
    """Return the kernel with its launch: 'transpose smem-pad, 4096 x 4096 float32, block 32 x 8, grid 128 x 512'."""
    size = units.size(result)
    launch = f", block {dim_text(result.block)}, grid {dim_text(result.grid)}" if result.block[0] else ""
    return f"{result.operation} {result.kernel}, {size} {result.dtype}{launch} ({result.source})"


def summary(result: Result) -> str:
    """Return what the kernel executes and occupies."""
    code = result.machine_code
    if code is not None and code.instructions_executed is not None:
        parts = [f"{units.count(code.instructions_executed)} warp instructions"]
        if code.threads_per_instruction is not None:
            parts.append(f"{code.threads_per_instruction:.1f} threads each")
    else:
        why = "the machine code is not read: install nvidia-cuda-nvdisasm"
        parts = [f"{units.count(result.instructions or 0)} warp instructions of PTX ({why})"]
    if code is not None and code.arithmetic:
        parts.append(f"arithmetic in {', '.join(code.arithmetic)}")
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


def accesses(out: Console, rows: Sequence[Access]) -> None:
    """Print the table of accesses, a row a line and kind, then the advice by line."""
    from rich.table import Table
    from rich.text import Text

    if not rows:
        out.print("No memory is accessed.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("access", no_wrap=True)
    for heading in ("requests", "per request", "at best", "waste"):
        table.add_column(heading, justify="right", no_wrap=True)
    beside = out.width >= WIDE
    if beside:
        table.add_column("source", no_wrap=True, overflow="ellipsis")
    else:
        for line, source in dict.fromkeys((row.line, row.source) for row in rows):
            out.print(Text(f"{line:>4}  {source}", overflow="ellipsis", no_wrap=True))
        out.print()
    for row in rows:
        spent = cost(row)
        wasted = spent.waste or 0.0
        cells = [
            str(row.line),
            f"{row.space} {row.op} {row.bytes} B",
            units.count(row.requests),
            f"{units.digits(spent.per_request or 0, 3)} {unit(row.space)}",
            units.digits(spent.ideal_per_request or 0, 3),
            f"{wasted:.0%}",
        ]
        style = "red" if wasted > 0.5 else "yellow" if row.advice else ""
        table.add_row(*cells, *([Text(row.source)] if beside else []), style=style)
    out.print(table)
    advised = [row for row in rows if row.advice]
    if advised:
        out.print()
    for row in advised:
        out.print(Text(f"line {row.line}: {row.advice}", style="yellow"))


def branches(out: Console, rows: Sequence[Branch], instructions: int) -> None:
    """Print the branches that part warps and cost something by it; instructions: of the whole launch."""
    from rich.table import Table
    from rich.text import Text

    def idle(row: Branch) -> float:
        """Return the warp instructions that full warps would have saved."""
        return row.instructions * (1 - (row.threads_per_instruction or WARP) / WARP)

    costly = [row for row in rows if row.divergent and idle(row) > NOTABLE * instructions]
    if not costly:
        return
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("line", "warps", "divergent", "instructions", "threads each"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("branch", no_wrap=True, overflow="ellipsis")
    for row in costly:
        table.add_row(
            str(row.line),
            units.count(row.executions),
            units.percent(row.divergent / row.executions),
            f"{units.count(row.instructions)} ({units.percent(row.instructions / instructions)})",
            f"{row.threads_per_instruction:.1f}",
            Text(row.source),
        )
    out.print(table)
    out.print(
        Text("Divergent branches: the instructions of PTX until their ways meet again, and the threads that run each.")
    )


def hazards(out: Console, rows: Sequence[Hazard]) -> None:
    """Print the hazards, or that there are none."""
    from rich.text import Text

    out.print()
    if not rows:
        out.print(Text("No hazards: no race, no access out of bounds, no uninitialised read, no divergent barrier."))
        return
    for row in rows:
        hazard(out, row)


def hazard(out: Console, row: Hazard, indent: str = "") -> None:
    """Print a hazard: what happens, the line of the source, where first."""
    from rich.text import Text

    times = f" ({units.count(row.count)} times)" if row.count > 1 else ""
    first = f"first: block {coordinates(row.block)}, thread {coordinates(row.thread)}"
    out.print(Text(f"{indent}{row.kind}, line {row.line}: {row.message}{times}", style="red"))
    out.print(Text(f"{indent}    {row.source}", style="dim"))
    out.print(Text(f"{indent}    {first}", style="dim"))


def coordinates(index: Sequence[int]) -> str:
    """Return an index as CUDA writes it: (3, 0, 0)."""
    return f"({', '.join(map(str, index))})"


# Threads and banks one by one ----------------------------------------------------------------------------------------


def thread_picture(out: Console, rows: Sequence[ThreadAccess]) -> None:
    """Print a row a thread: the elements that it reads and writes, in its order."""
    from rich.table import Table

    by_thread: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[str, list[str]]] = {}
    for row in rows:
        kinds = by_thread.setdefault((row.block[::-1], row.thread[::-1]), {"load": [], "store": [], "atomic": []})
        kinds[row.op].append(f"{row.array}[{', '.join(map(str, row.index))}]")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    used = [op for op in ("load", "store", "atomic") if any(kinds[op] for kinds in by_thread.values())]
    for heading in ("block", "thread", *({"load": "reads", "store": "writes", "atomic": "updates"}[op] for op in used)):
        table.add_column(heading, no_wrap=heading in ("block", "thread"), overflow="fold")
    for (block, thread), kinds in sorted(by_thread.items()):
        place = (coordinates(block[::-1]), coordinates(thread[::-1]))
        table.add_row(*place, *(" ".join(kinds[op]) for op in used))
    out.print()
    out.print(table)


def bank_pictures(out: Console, requests: Sequence[BankRequest], rows: Sequence[Access]) -> None:
    """Draw each kind of request of the first warp: a column a bank, a row a wavefront, in each cell the lane served."""
    from rich.text import Text

    sources = {row.line: row.source for row in rows}
    if not requests:
        out.print()
        out.print("No shared memory is used, so there are no banks to draw.")
    for request in requests:
        wavefronts = units.count(len(request.passes)) + (" wavefront" if len(request.passes) == 1 else " wavefronts")
        out.print()
        out.print(Text(f"line {request.line}: {sources.get(request.line, '')}", style="bold"))
        out.print(f"{request.op} of {request.bytes} bytes a lane by the first warp: {wavefronts}, lanes by bank")
        halves = [range(32)] if out.width >= 13 + 32 * 3 else [range(16), range(16, 32)]
        for banks in halves:
            out.print(Text("bank         " + "".join(f"{bank:>2} " for bank in banks), style="dim"))
            for at, row in enumerate(request.passes):
                line = Text(f"wavefront {at + 1:<3}")
                for bank in banks:
                    lanes = row[bank]
                    cell = f"{lanes[0]:>2}{'+' if len(lanes) > 1 else ' '}" if lanes else " . "
                    line.append(cell, style="dim" if not lanes else COLOURS[at % len(COLOURS)])
                out.print(line)
    if any(len(lanes) > 1 for request in requests for row in request.passes for lanes in row):
        out.print(Text("+ the word goes to other lanes in the same wavefront", style="dim"))


COLOURS = ("green", "yellow", "red", "magenta", "cyan", "blue")
