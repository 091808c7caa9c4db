"""Run, verify, time and explain CUDA kernels from `.cu` files.

Scripts can call the commands as functions: `bench`, `simulate`, `run`, `sweep`, `load` and `compare`. They are in the
module `cudabench.api`, which is imported when one of them is first used.
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
