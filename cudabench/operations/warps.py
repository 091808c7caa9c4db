"""What the warp-tiled kernels of matmul and solve ask of a block."""

from __future__ import annotations

from cudabench.records.launch import WARP
from cudabench.records.planned import Geometry

MAX_WARPS = 8  # of a warp-tiled block: 128 sums a thread leave registers for no more


def needs_warps(geometry: Geometry) -> str | None:
    """Refuse a block that is not one to eight whole warps."""
    threads = geometry.threads
    if threads % WARP:
        return f"whole warps share the work, and {threads} threads are no multiple of {WARP}"
    if threads > MAX_WARPS * WARP:
        return f"the sums take over half of 255 registers a thread, which leaves room for {MAX_WARPS * WARP} threads"
    return None
