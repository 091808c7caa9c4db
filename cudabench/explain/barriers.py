"""Whether a barrier of the block is executed by a part of a warp while its other lanes are alive.

In machine code it is where the barrier has a predicate. Behind a branch the compiler puts WARPSYNC before it, which
waits for the other lanes of the warp to come or to end. synccheck of compute-sanitizer calls the first "divergent
threads in warp" and says nothing of the second: on an H100 in all of some thirty kernels (benchmarks/sanitizer).
"""

from __future__ import annotations

from collections.abc import Iterable

from cudabench.compile.sass import Function


def predicated(functions: Iterable[Function], ptx_line: int) -> bool:
    """Return whether any barrier that a line of the PTX became has a predicate."""
    return any(
        one.opcode == "BAR" and one.ptx_line == ptx_line and one.guard
        for function in functions
        for one in function.instructions
    )
