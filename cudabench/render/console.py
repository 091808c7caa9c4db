"""The two consoles: standard output for results, standard error for the rest."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 200  # of pipes and files, so that no table is cut


@cache
def out() -> Console:
    """Return the console for results."""
    return _console(stderr=False)


@cache
def err() -> Console:
    """Return the console for progress, warnings and errors."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, emoji=False, markup=False, soft_wrap=False)


def tables(json_to_stdout: bool) -> Console:
    """Return the console for tables: standard output, or the other where the JSON goes there."""
    return err() if json_to_stdout else out()
