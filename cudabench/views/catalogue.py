"""The list of an operation's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudabench.records.launch import dim_text
from cudabench.records.planned import Operation
from cudabench.views import console


def show(operation: Operation, summary: str, sentences: Mapping[str, str], kernels: Sequence[str]) -> None:
    """Print these kernels of an operation; `sentences` maps functions to their one-line idea."""
    from rich.table import Table
    from rich.text import Text

    out = console.out()
    out.print(Text.assemble((operation.name, "bold"), f": {summary}"))
    sizes = " ".join(name.upper() for name in operation.dimensions)
    out.print(
        f"--size {sizes}, --dtype {', '.join(operation.dtypes)}; moves {operation.bytes_formula} bytes", style="dim"
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("id", justify="right", no_wrap=True)
    table.add_column("kernel", no_wrap=True)
    table.add_column("block", no_wrap=True)
    table.add_column("idea", overflow="fold")
    for at, kernel in enumerate(operation.kernels):
        if kernel.name not in kernels:
            continue
        idea = Text.assemble(("(detour) ", "dim") if kernel.detour else "", sentences.get(kernel.function, ""))
        table.add_row(str(at), kernel.name, dim_text(kernel.block, 1), idea)
    out.print(table)
    if operation.peers:
        calls = "; ".join(f"{peer.name} ({peer.call})" for peer in operation.peers)
        out.print(Text(f"--peer, on a GPU: {calls}.", style="dim"))
    if any(kernel.detour for kernel in operation.kernels):
        out.print("A detour shows an idea or a ceiling; the way to the fastest kernel leads past it.", style="dim")
