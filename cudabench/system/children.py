"""Python processes that find modules where this one does, and none in the folder that they are started in.

`python -m` and `python -c` look into the current folder first, and that is the user's or somebody else's: a file
`random.py` there would run in the place of Python's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Whether processes of `multiprocessing` can be kept from the current folder: before Python 3.11 nothing does.
POOLS = sys.version_info >= (3, 11)


def code(text: str) -> list[str]:
    """Return the command that runs a program's text; words that are put behind it are its `sys.argv[1:]`."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{text}"]


def module(name: str) -> list[str]:
    """Return the command that runs a module as `python -m` does; words that are put behind it are its arguments."""
    return code(f"import runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=True)")


@contextmanager
def starting_pools() -> Iterator[None]:
    """While this lasts, processes that `multiprocessing` spawns do not look into the current folder either."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
