"""The two consoles of rich: standard output for results, standard error for everything else.

All printed text passes through this module. Control codes are shown as text, and no line can act as a command to the
runner of a CI system.
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
# annotations need the name `Console`; rich takes long to import, so it is imported only when something is printed
else:
    Console = Any

PLAIN_WIDTH = 200  # the width, in columns, of output to pipes and files; large, so that tables are not cut


@cache
def out() -> Console:
    """Return the console that prints results, on standard output."""
    return _console("stdout")


@cache
def err() -> Console:
    """Return the console that prints progress, warnings and errors, on standard error."""
    return _console("stderr")


def captured(show: Callable[[Console], None]) -> str:
    """Return the text that `show` prints on a console, as a pipe would receive it."""
    stream = io.StringIO()
    # a pipe or a file gets plain text, even if FORCE_COLOR is set
    show(_plain(stream, PLAIN_WIDTH, force_terminal=False))
    return text.no_commands(stream.getvalue())


class _Log:
    """A standard stream that changes lines which would act as commands to the runner of a CI system."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name = name

    def write(self, written: str) -> int:
        """Write a text, and return its length."""
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
    """Print a text unchanged: brackets in it are not markup."""
    from rich.text import Text

    out.print(Text(content, style=style, no_wrap=no_wrap), soft_wrap=soft_wrap)


def table_console(json_to_stdout: bool) -> Console:
    """Return the console for tables: standard output, or standard error if the JSON goes to standard output."""
    return err() if json_to_stdout else out()
