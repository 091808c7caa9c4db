"""`cudabench schema`: the JSON Schema of the results file, and its keys as a page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cudabench.cli.help import Headed


@click.command("schema", cls=Headed, short_help="Print the JSON Schema of the results file.")
@click.option("--markdown", is_flag=True, help="Print the keys with types, units and meaning as a Markdown page.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write to FILE. Default: standard output.",
)
def command(markdown: bool, output: str | None) -> int:
    """Print the JSON Schema (2020-12) that every results file of --json follows."""
    from cudabench.results import schema
    from cudabench.system import outputs

    target = None if output in (None, "-") else Path(str(output))
    if target:
        outputs.check_target(target, "--output")
    text = schema.reference() if markdown else json.dumps(schema.schema(), indent=2) + "\n"
    if target:
        outputs.write_whole(target, text.encode())
    else:
        click.echo(text, nl=False)
    return 0
