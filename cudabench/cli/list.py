"""`cudabench list [OPERATION]`: the kernels with id, name, idea and default block."""

from __future__ import annotations

import click

from cudabench import operations
from cudabench.cli import complete
from cudabench.cli.help import Headed


@click.command("list", cls=Headed, short_help="Show the kernels of each operation.")
@click.argument(
    "names", nargs=-1, metavar="[OPERATION [KERNEL ...]]", shell_complete=complete.words(operations.SUMMARIES)
)
def command(names: tuple[str, ...]) -> int:
    """Show the kernels of OPERATION, or of all: id, name, the idea in a sentence, default block."""
    from cudabench.plan import cases, chapters
    from cudabench.source.comments import first_sentence
    from cudabench.source.files import parse_text
    from cudabench.views import catalogue

    for name in names[:1] or operations.SUMMARIES:
        chosen = operations.get(name)
        kernels = [kernel.name for kernel, _ in cases.select(chosen, names[1:])]
        file = parse_text(chapters.read(chosen.source).text, chosen.source)
        sentences = {kernel.name: first_sentence(kernel.comment) for kernel in file.kernels}
        catalogue.show(chosen, operations.SUMMARIES[name], sentences, kernels)
    return 0
