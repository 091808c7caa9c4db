"""Why a kernel is fast or slow: its accesses line by line, its hazards, and on request threads and banks one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cudabench import advice
from cudabench.model import Access, Hazard, Result, dim_text
from cudabench.render import units

if TYPE_CHECKING:
    from rich.console import Console

UNIT = {"global": "sectors", "local": "sectors", "shared": "wavefronts"}


def show(out: Console, result: Result, trace: Any, *, threads: bool, banks: bool) -> None:
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
    hazards(out, result.hazards or ())
    if result.verification and result.verification.mismatches:
        out.print(Text(f"wrong: {result.reason}", style="red"))


def title(result: Result) -> str:
    """Return the kernel with its launch: 'transpose smem-pad, 4096 x 4096 float32, block 32 x 8, grid 128 x 512'."""
    size = " x ".join(str(v) for v in result.size.values())
    launch = f", block {dim_text(result.block)}, grid {dim_text(result.grid)}" if result.block[0] else ""
    return f"{result.operation} {result.kernel}, {size} {result.dtype}{launch} ({result.source})"


def summary(result: Result) -> str:
    """Return what the kernel executes and occupies."""
    parts = [f"{units.count(result.instructions or 0)} warp instructions"]
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
    table.add_column("source", no_wrap=True, overflow="ellipsis")
    for row in rows:
        actual, ideal = counts(row)
        wasted = advice.waste(row) or 0.0
        style = "red" if wasted > 0.5 else "yellow" if row.advice else ""
        table.add_row(
            str(row.line),
            f"{row.space} {row.op} {row.bytes} B",
            units.count(row.requests),
            f"{units.digits(actual / row.requests, 3)} {UNIT[row.space]}",
            units.digits(ideal / row.requests, 3),
            f"{wasted:.0%}",
            Text(row.source),
            style=style,
        )
    out.print(table)
    advised = [row for row in rows if row.advice]
    if advised:
        out.print()
    for row in advised:
        out.print(Text(f"line {row.line}: {row.advice}", style="yellow"))


def counts(row: Access) -> tuple[int, int]:
    """Return what an access costs and what it would cost at best, in its own unit."""
    if row.space == "shared":
        return row.wavefronts or 0, row.ideal_wavefronts or 0
    return row.sectors or 0, row.ideal_sectors or 0


def hazards(out: Console, rows: Sequence[Hazard]) -> None:
    """Print the hazards, or that there are none."""
    from rich.text import Text

    out.print()
    if not rows:
        out.print(Text("No hazards: no race, no access out of bounds, no uninitialised read, no divergent barrier."))
        return
    for row in rows:
        times = f" ({units.count(row.count)} times)" if row.count > 1 else ""
        out.print(Text(f"{row.kind}, line {row.line}: {row.message}{times}", style="red"))
        out.print(Text(f"    {row.source}", style="dim"))
        out.print(Text(f"    first: block {coordinates(row.block)}, thread {coordinates(row.thread)}", style="dim"))


def coordinates(index: Sequence[int]) -> str:
    """Return an index as CUDA writes it: (3, 0, 0)."""
    return f"({', '.join(map(str, index))})"
