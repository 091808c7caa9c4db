"""Which blocks a sweep takes: ranges as they are written, and those that make sense."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudabench.errors import UsageError, refuse
from cudabench.occupancy import MAX_BLOCK, MAX_THREADS_PER_BLOCK
from cudabench.records.launch import WARP, Dim, dim3

SENSIBLE_X = (4, 8, 16, 32, 64, 128, 256, 512)
SENSIBLE_Y = (1, 2, 4, 8, 16, 32, 64)
SENSIBLE_LINE = (32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
FEWEST_THREADS = 64  # two warps: fewer leave most of an SM's 64 warps empty, since it holds at most 32 blocks


def axis(text: str) -> tuple[int, ...]:
    """Return the numbers of a range: 32, 8:64 (doubling), 8:64:8 (in steps of 8), or several of them with commas."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9})(?::(\d{1,9}))?)?", part.strip(), re.ASCII)
        if not match:
            raise UsageError(f"--block '{text}' is not a range: write 32, 8:64 (doubling), 8:64:8 (steps), or 8,16,32.")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or -1)
        refuse(
            (
                not 1 <= first <= last or step == 0,
                f"--block '{text}' is not a range: it starts at 1 or more, does not fall, and has a step.",
            ),
            (
                last > MAX_BLOCK[0],
                f"--block '{text}' is out of range: CUDA allows at most {MAX_BLOCK[0]} threads a block.",
            ),
        )
        while first <= last:
            found.add(first)
            first = first + step if step > 0 else first * 2
    return tuple(sorted(found))


def blocks(dimensions: int, axes: Sequence[Sequence[int]] = ()) -> list[Dim]:
    """Return the blocks of the given axes, or the sensible ones: whole warps, and enough of them."""
    if axes:
        ys = axes[1] if len(axes) > 1 else (1,)
        return [dim3((x, y)) for y in ys for x in axes[0] if x * y <= MAX_THREADS_PER_BLOCK]
    if dimensions == 1:
        return [dim3((x,)) for x in SENSIBLE_LINE]
    return [
        dim3((x, y))
        for y in SENSIBLE_Y
        for x in SENSIBLE_X
        if FEWEST_THREADS <= x * y <= MAX_THREADS_PER_BLOCK and x * y % WARP == 0
    ]
