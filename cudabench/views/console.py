"""The two consoles: standard output for results, standard error for the rest.

All printed text passes through this module: control codes are spelled out, and no line can act as a command to a CI
runner.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from cudabench import text

if TYPE_CHECKING:
    from rich.console import Console as Console
    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment
else:  # all views name the type; rich is imported only to print
    Console = Any

PLAIN_WIDTH = 200  # columns of pipes and files: tables are not cut


@cache
def out() -> Console:
    """Return the console for results."""
    return _console("stdout")


@cache
def err() -> Console:
    """Return the console for progress, warnings and errors."""
    return _console("stderr")


def captured(show: Callable[[Console], None]) -> str:
    """Return what `show` prints, as a pipe would get it."""
    stream = io.StringIO()
    show(_plain(stream, PLAIN_WIDTH, force_terminal=False))  # also with FORCE_COLOR
    return text.no_commands(stream.getvalue())


class _Log:
    """A standard stream whose lines cannot act as commands to a CI runner."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name = name

    def write(self, written: str) -> int:
        """Write text."""
        getattr(sys, self._name).write(text.no_commands(written))
        return len(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(sys, self._name), name)


def _console(name: Literal["stdout", "stderr"]) -> Console:
    stream: Any = _Log(name)
    return _plain(stream, None if stream.isatty() else PLAIN_WIDTH, stderr=name == "stderr")


def _plain(stream: Any, width: int | None, **settings: Any) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class Visible(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                shown = segment.text if segment.control else text.visible(segment.text)
                yield segment if shown == segment.text else Segment(shown, segment.style)

    return Visible(file=stream, width=width, highlight=False, emoji=False, markup=False, soft_wrap=False, **settings)


def say(out: Console, content: str, style: str = "", *, no_wrap: bool | None = None, soft_wrap: bool = False) -> None:
    """Print a text as it is."""
    from rich.text import Text

    out.print(Text(content, style=style, no_wrap=no_wrap), soft_wrap=soft_wrap)


def table_console(json_to_stdout: bool) -> Console:
    """Return the console for tables: standard output, or standard error if the JSON goes to standard output."""
    return err() if json_to_stdout else out()
