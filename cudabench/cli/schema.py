"""`cudabench schema`: the JSON Schema of the results file, and its keys as a page."""

from __future__ import annotations

import json

from cudabench.cli.help import headed
from cudabench.cli.options import PLACE, option


@headed(
    "schema",
    option("--markdown", "Print the keys with types, units and meaning as a Markdown page."),
    option("-o, --output FILE", "Write to FILE. Default: standard output.", type=PLACE),
)
def command(markdown: bool, output: str | None) -> int:
    """Print the JSON Schema (2020-12) that every results file of --json follows."""
    from cudabench.cli.output import Destination
    from cudabench.results import schema

    target = Destination.of(output)
    target.write(schema.reference() if markdown else json.dumps(schema.schema(), indent=2) + "\n")
    return 0
