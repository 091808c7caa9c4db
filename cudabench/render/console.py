"""The two consoles: standard output for results, standard error for the rest.

Whatever is printed passes here, and with it text from outside: control codes are spelled out, and no line is a command
to a CI runner.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from cudabench import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

PLAIN_WIDTH = 200  # of pipes and files, so that no table is cut


@cache
def out() -> Console:
    """Return the console for results."""
    return _console("stdout")


@cache
def err() -> Console:
    """Return the console for progress, warnings and errors."""
    return _console("stderr")


class _Log:
    """A standard stream, none of whose lines is a command to a CI runner."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name = name

    def write(self, written: str) -> int:
        """Write text."""
        getattr(sys, self._name).write(text.no_commands(written))
        return len(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(sys, self._name), name)


def _console(name: Literal["stdout", "stderr"]) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class Visible(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                shown = segment.text if segment.control else text.visible(segment.text)
                yield segment if shown == segment.text else Segment(shown, segment.style)

    stream: Any = _Log(name)
    width = None if stream.isatty() else PLAIN_WIDTH
    return Visible(
        file=stream, stderr=name == "stderr", width=width, highlight=False, emoji=False, markup=False, soft_wrap=False
    )


def tables(json_to_stdout: bool) -> Console:
    """Return the console for tables: standard output, or the other where the JSON goes there."""
    return err() if json_to_stdout else out()
