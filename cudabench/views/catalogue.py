"""Prints the list of an operation's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudabench.records.launch import dim_text
from cudabench.records.plan import Operation
from cudabench.views import console
from cudabench.views.console import say
from cudabench.views.tables import Head, grid


def show_kernels(operation: Operation, summary: str, sentences: Mapping[str, str], kernels: Sequence[str]) -> None:
    """Print a table of these kernels of an operation. `sentences`: the idea of each kernel in one sentence, by name."""
    from rich.text import Text

    out = console.out()
    out.print(Text.assemble((operation.name, "bold"), f": {summary}"))
    sizes = " ".join(name.upper() for name in operation.dimensions)
    say(out, f"--size {sizes}, --dtype {', '.join(operation.dtypes)}; moves {operation.bytes_formula} bytes", "dim")
    rows = [
        (
            str(at),
            kernel.name,
            dim_text(kernel.block, 1),
            Text.assemble(("(detour) ", "dim") if kernel.detour else "", sentences.get(kernel.name, "")),
        )
        for at, kernel in enumerate(operation.kernels)
        if kernel.name in kernels
    ]
    out.print(grid([Head("id", right=True), Head("kernel"), Head("block"), Head("idea", wrap=True)], rows))
    if operation.peers:
        calls = "; ".join(f"{peer.name} ({peer.call})" for peer in operation.peers)
        say(out, f"--peer, on a GPU: {calls}.", "dim")
    if any(kernel.detour for kernel in operation.kernels):
        out.print(
            "A detour shows an idea or a ceiling, or serves special cases; the other kernels do not build on it.",
            style="dim",
        )
