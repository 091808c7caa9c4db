"""Run, verify, time and explain CUDA kernels from `.cu` files.

The commands are functions too: `bench`, `simulate`, `run`, `sweep`, `load` and `compare`, of the module `cudabench.api`
that loads when one of them is first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = ["CudabenchError", "bench", "compare", "load", "run", "simulate", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cudabench' has no attribute '{name}'")
    return getattr(import_module("cudabench.errors" if name == "CudabenchError" else "cudabench.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
