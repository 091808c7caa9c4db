"""Reading sources before their first compile: what a terminal shows meanwhile, and how long it may take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cudabench import text
from cudabench.views.progress import Waiting


@contextlib.contextmanager
def reading(file: str, given: Mapping[str, Any], sources: int) -> Iterator[None]:
    """Show on a terminal that a file is read, unless all is to be quiet. Each of the sources that are read may take as
    long as a compile; raises CompilerError where they take longer."""
    from cudabench.compile import limits

    shown = Waiting(f"reading {text.line(Path(file).name)}", shown=not given["quiet"])
    with shown, limits.reading(file, sources):
        yield
