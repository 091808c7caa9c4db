"""The threads of NumPy's BLAS, which baselines that call it share.

NumPy has no call for them. The library that is loaded is found among the mapped files of this process and told
directly; where that fails (no Linux, an unknown library), it runs as it likes and the baseline says so.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_LIBRARY = re.compile(r"/\S*(?:openblas|mkl_rt|libblis)\S*\.so\S*")
_PREFIXES, _SUFFIXES = ("scipy_openblas", "openblas", "bli_thread"), ("64_", "", "_64")


def named(call: str) -> str:
    """Return a baseline's call with what runs beneath it, for `Baseline.implementation`."""
    return f"{call} (BLAS)" if _controls() else f"{call} (BLAS, its own threads)"


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Run the body with this many BLAS threads, where the library can be told."""
    controls = _controls()
    if controls is None:
        yield
        return
    get, set_ = controls
    before = get()
    set_(threads)
    try:
        yield
    finally:
        set_(before)


@cache
def _controls() -> tuple[Any, Any] | None:
    """Return the library's functions that get and set its number of threads, or None."""
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for path in dict.fromkeys(_LIBRARY.findall(mapped)):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        names = [(f"{p}_get_num_threads{s}", f"{p}_set_num_threads{s}") for p in _PREFIXES for s in _SUFFIXES]
        for get, set_ in [*names, ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads")]:
            if hasattr(library, get) and hasattr(library, set_):
                return getattr(library, get), getattr(library, set_)
    return None
