"""Prints a sweep as a map: a cell is a block, its column the block's X, its row the block's Y. Lighter cells are
better.

One-dimensional blocks are printed as bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cudabench.records.launch import Dim, dim3, dim_text
from cudabench.records.results import Result
from cudabench.views.console import Console, say
from cudabench.views.quantities import Quantity, of_blocks
from cudabench.views.tables import Head, grid

if TYPE_CHECKING:
    from rich.text import Text

NOTHING = "."
BAD = {"wrong": "WRONG", "failed": "failed", "skipped": "skipped"}
# indices of greys in the terminal's palette of 256 colours; a dark grey means slow
SHADES = (236, 238, 240, 243, 246, 249, 252, 255)
BAR = 30


def show_maps(out: Console, results: Sequence[Result], refused: Sequence[Dim], marks: Mapping[Dim, str]) -> None:
    """Print a map for each quantity of a sweep.

    `marks`: the signs of the best blocks; `refused`: blocks that cannot run.
    """
    is_2d = any(block[1] > 1 for block in [*(r.block for r in results), *refused])
    axes = " (block X across, Y down)" if is_2d else ""
    for quantity in of_blocks(results):
        better = "more" if quantity.more else "less"
        out.print()
        say(out, f"{quantity.name}, {better} is better{axes}", "bold")
        (_map if is_2d else _bars)(out, quantity, results, refused, marks)
    if is_2d and refused:
        say(out, "x: the kernel cannot take this block", "dim")


def _map(
    out: Console, quantity: Quantity, results: Sequence[Result], refused: Sequence[Dim], marks: Mapping[Dim, str]
) -> None:
    from rich.table import Table
    from rich.text import Text

    at: dict[tuple[int, ...], Result] = {r.block[:2]: r for r in results}
    excluded = {block[:2] for block in refused}
    values = [v for r in results if r.status == "ok" and (v := quantity.value(r)) is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)

    def cell(block: tuple[int, ...]) -> Text:
        result = at.get(block)
        if result is None:
            return Text("x " if block in excluded else f"{NOTHING} ", style="dim")
        value = quantity.value(result) if result.status == "ok" else None
        if value is None:
            return Text(BAD.get(result.status, NOTHING) + " ", style="red")
        good = (value - low) / (high - low) if high > low else 1.0
        good = good if quantity.more else 1 - good  # 0 is the worst value (dark), and 1 is the best value (light)
        grey = SHADES[min(int(good * len(SHADES)), len(SHADES) - 1)]
        style = f"color({'16' if grey > 242 else '255'}) on color({grey})"
        return Text(f" {quantity.text(value):>6}{marks.get(dim3(block), ' ')}", style=style)

    xs, ys = (sorted({block[axis] for block in (*at, *excluded)}) for axis in (0, 1))
    table = Table(box=None, padding=(0, 0), pad_edge=False, header_style="bold")
    table.add_column("", justify="right", style="bold")
    for x in xs:
        table.add_column(f"{x} ", justify="right", no_wrap=True, min_width=8)
    for y in ys:
        table.add_row(str(y), *(cell((x, y)) for x in xs))
    out.print(table)


def _bars(
    out: Console, quantity: Quantity, results: Sequence[Result], refused: Sequence[Dim], marks: Mapping[Dim, str]
) -> None:
    values = {r.block: value for r in results if r.status == "ok" and (value := quantity.value(r)) is not None}
    most = max(values.values(), default=1.0) or 1.0
    rows = []
    for result in sorted(results, key=lambda r: r.block):
        text, bar = BAD.get(result.status, NOTHING), ""
        if (value := values.get(result.block)) is not None:
            text, bar = quantity.text(value), "█" * max(1, round(BAR * value / most))
        rows.append((dim_text(result.block), f"{text}{marks.get(result.block, ' ')}", bar))
    rows += [(dim_text(block), "x ", "") for block in sorted(refused)]
    out.print(grid([Head("block", right=True), Head(quantity.name, right=True), Head("")], rows))
