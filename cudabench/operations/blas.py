"""Sets the number of threads of NumPy's BLAS library, for the CPU baselines that call it.

NumPy cannot set this number; the package threadpoolctl can, for the BLAS libraries that it knows. A BLAS library that
threadpoolctl does not know chooses its number of threads itself, and then the baseline's name says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def named(call: str) -> str:
    """Return the name of a baseline for `Baseline.implementation`, such as 'numpy.matmul(a, b) (BLAS)'."""
    return f"{call} (BLAS)" if _controller().lib_controllers else f"{call} (BLAS, its own threads)"


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limit BLAS to `threads` threads in this `with` block, if threadpoolctl knows the BLAS library."""
    with _controller().limit(limits=threads):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of this process's BLAS libraries; cached, because finding them takes some milliseconds."""
    import numpy as np  # noqa: F401  (its BLAS has to be loaded first)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
