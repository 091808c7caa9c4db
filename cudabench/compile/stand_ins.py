"""Replaces missing headers, and features that CUDA removed, by C++ texts from the folder `headers`."""

from __future__ import annotations

import functools
import re
from pathlib import Path, PurePosixPath

from cudabench.compile.diagnostics import undefined_names

FOLDER = Path(__file__).parent / "headers"
_TORCH = re.compile(r"(?:torch|ATen|c10)/.+\.(?:h|cuh|hpp)|THC/.+\.(?:h|cuh)|pybind11/.+\.h")
VECTORS = ("helper_math.h", "cutil_math.h")
_REMOVED = frozenset(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor", "__any", "__all", "__ballot", "saturate"])
# CUDA's headers still declare warp votes without a mask, such as __any, but ptxas refuses them with this message.
_WITHOUT_MASK = re.compile(r"Instruction '(?:vote|shfl)' without '\.sync' is not supported")


@functools.lru_cache(maxsize=16)
def read(name: str) -> str:
    """Return the text of a file in the folder `headers`."""
    return (FOLDER / name).read_text(encoding="utf-8")


def path(header: str) -> Path | None:
    """Return the path of the file that replaces a missing header, or None."""
    if PurePosixPath(header).name in VECTORS:
        return FOLDER / "vector_math.h"
    return FOLDER / "torch.h" if _TORCH.fullmatch(header) else None


def text(header: str) -> str:
    """Return the text that replaces a missing header, or ''."""
    file = path(header)
    return read(file.name) if file else ""


def space(name: str) -> str:
    """Return the C++ text of an empty namespace; `name` may be nested, such as 'a::b'."""
    parts = name.split("::")
    return "".join(f"namespace {part} {{ " for part in parts) + "}" * len(parts)


def uses_removed(log: str) -> bool:
    """Return whether a compiler's errors are about features that CUDA removed."""
    return bool(_WITHOUT_MASK.search(log)) or not _REMOVED.isdisjoint(undefined_names(log))
