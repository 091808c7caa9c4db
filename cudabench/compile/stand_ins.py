"""What stands for headers that are nowhere, and for what CUDA took away from the language: C++ in `headers`."""

from __future__ import annotations

import functools
import re
from pathlib import Path, PurePosixPath

from cudabench.compile.diagnostics import undefined_names

FOLDER = Path(__file__).parent / "headers"
_TORCH = re.compile(r"(?:torch|ATen|c10)/.+\.(?:h|cuh|hpp)|THC/.+\.(?:h|cuh)|pybind11/.+\.h")
_VECTORS = ("helper_math.h", "cutil_math.h")
_REMOVED = frozenset(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__any", "__all", "__ballot", "saturate"])
# The votes are still declared; it is the assembler that refuses them.
_WITHOUT_MASK = re.compile(r"Instruction '(?:vote|shfl)' without '\.sync' is not supported")


@functools.lru_cache(maxsize=16)
def read(name: str) -> str:
    """Return the text of one of the headers here."""
    return (FOLDER / name).read_text(encoding="utf-8")


def path(header: str) -> Path | None:
    """Return the file that stands for a header that is nowhere; None for one of which nothing is known."""
    if PurePosixPath(header).name in _VECTORS:
        return FOLDER / "vector_math.h"
    return FOLDER / "torch.h" if _TORCH.fullmatch(header) else None


def text(header: str) -> str:
    """Return what stands for a header that is nowhere, '' for one of which nothing is known."""
    found = path(header)
    return read(found.name) if found else ""


def is_whole(header: str) -> bool:
    """Tell whether what stands for a header has all that it has."""
    return PurePosixPath(header).name in _VECTORS


def space(name: str) -> str:
    """Return an empty namespace, such as 'a::b'."""
    parts = name.split("::")
    return "".join(f"namespace {part} {{ " for part in parts) + "}" * len(parts)


def uses_removed(log: str) -> bool:
    """Tell whether a compiler's refusal is of what CUDA took away."""
    return bool(_WITHOUT_MASK.search(log)) or not _REMOVED.isdisjoint(undefined_names(log))
