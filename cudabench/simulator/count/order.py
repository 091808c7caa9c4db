"""Which counts depend on the order in which atomics come: here one order of many, on hardware another each time.

By the registers alone: what an atomic returns, what is computed from it, where that says whither a lane goes.
"""

from __future__ import annotations

from cudabench.simulator.count.branches import between, post_dominators
from cudabench.simulator.program.code import Code, Op

TRIES = "how often a lane tries again depends on the order in which atomics come"
PLACES = "where lanes go is what an atomic gave them, and depends on the order in which they come"
BRANCHES = "which lanes come here is what an atomic told them, and depends on the order in which they come"
TURNS = "other warps that store to the word between a load and its store make the loop go round more often"
REPEATED = (TRIES, BRANCHES, TURNS)  # those that change how often instructions run, and not only where they go


def _ops(code: Code) -> list[Op]:
    return [op for block in code.blocks for op in (*block.ops, *((block.terminator,) if block.terminator else ()))]


def open_lines(code: Code) -> dict[int, str]:
    """Return the lines of the PTX whose counts depend on the order of atomics, and by what."""
    ops = _ops(code)
    atomics = [op for op in ops if op.opcode == "atom" and any(index in code.read for index in op.defs)]
    if not atomics:
        return {}
    given = _given(ops, atomics)
    found: dict[int, str] = {}
    for op in ops:
        if op.address in given:
            found[op.line.ptx_line] = PLACES
    parted = [block for block in code.blocks if block.terminator is not None and _decided(block.terminator, given)]
    if parted:
        always = post_dominators(code.blocks)
        for block in parted:
            inside = between(code.blocks, block, always[block.number])
            reason = TRIES if block.number in inside else BRANCHES
            for number in inside:
                for op in code.blocks[number].ops:
                    found.setdefault(op.line.ptx_line, reason)
                    if reason == TRIES:
                        found[op.line.ptx_line] = reason
    return found


def _read(code: Code) -> set[int]:
    """Return the registers that hold what was read from memory, or something computed from it.

    Constant and local memory are none: there lie the tables of sinf and cosf, and what a thread put there itself.
    """
    lines = {access.location.ptx_line for access in code.accesses if access.space in ("global", "shared")}
    return _given(_ops(code), [op for op in _ops(code) if op.line.ptx_line in lines])


def led_by_data(code: Code) -> frozenset[int]:
    """Return the lines of the PTX whose address comes from what was read from memory."""
    given = _read(code)
    return frozenset(op.line.ptx_line for op in _ops(code) if op.address in given)


def decided_by_data(code: Code) -> frozenset[int]:
    """Return the numbers of the basic blocks behind which what was read from memory says where lanes go."""
    given = _read(code)
    ends = ((block.number, block.terminator) for block in code.blocks)
    return frozenset(number for number, end in ends if end is not None and _decided(end, given))


def _decided(op: Op, given: set[int]) -> bool:
    return op.kind in ("branch", "table", "exit") and (op.guard in given or op.selector in given)


def _given(ops: list[Op], atomics: list[Op]) -> set[int]:
    """Return the registers that hold what an atomic returned, or something computed from it."""
    given = {index for op in atomics for index in op.defs}
    going = True
    while going:
        going = False
        for op in ops:
            if (op.guard in given or any(index in given for index in op.uses)) and not given.issuperset(op.defs):
                given.update(op.defs)
                going = True
    return given
