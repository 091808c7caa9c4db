"""Dynamic shared memory: all arrays that a kernel declares with `extern __shared__` are one."""

from __future__ import annotations

from cudabench.simulator.program.code import Code
from cudabench.symbols import plain_name


def same_memory(code: Code, offset: int) -> str:
    """Return a sentence for a hazard at an offset of a block's shared memory where several of a kernel's arrays lie, by
    their names; an empty text where it has one dynamic array, or the offset is that of a static one."""
    names = list(dict.fromkeys(f"'{plain_name(name)}'" for name in code.dynamic))
    if len(names) < 2 or offset < code.static_shared:
        return ""
    all_of_them = "both begin" if len(names) == 2 else "all begin"
    return (
        f"{', '.join(names[:-1])} and {names[-1]} {all_of_them} at byte 0 of the dynamic shared memory: they are the "
        "same memory; take one array and an offset."
    )
