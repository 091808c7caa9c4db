"""The threads of NumPy's BLAS, for the baselines that call it.

NumPy cannot set them, but threadpoolctl controls the loaded library. An unknown library uses its own number, and the
baseline says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def named(call: str) -> str:
    """Return a baseline's call with its library, for `Baseline.implementation`."""
    return f"{call} (BLAS)" if _controller().lib_controllers else f"{call} (BLAS, its own threads)"


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Run the body with this many BLAS threads, if the library can be controlled."""
    with _controller().limit(limits=threads):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of this process's BLAS libraries; finding them takes some milliseconds."""
    import numpy as np  # noqa: F401  (its BLAS has to be loaded first)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
