"""The threads of NumPy's BLAS, which baselines that call it share.

NumPy has no call for them; threadpoolctl tells the library that is loaded. One that it does not know runs as it likes,
and the baseline says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def named(call: str) -> str:
    """Return a baseline's call with what runs beneath it, for `Baseline.implementation`."""
    return f"{call} (BLAS)" if _controller().lib_controllers else f"{call} (BLAS, its own threads)"


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Run the body with this many BLAS threads, where the library can be told."""
    with _controller().limit(limits=threads):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Return what controls the BLAS libraries of this process; finding them takes some milliseconds."""
    import numpy as np  # noqa: F401  (its BLAS has to be loaded to be found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
