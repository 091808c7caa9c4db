"""Finds two faults of wgmma: accesses to a product's registers before the wait for it, and products without a fence.

A product (wgmma.mma_async) writes its result registers asynchronously. PTX ISA, wgmma.mma_async: until a
wgmma.wait_group for its group, any access to its registers is undefined, except by another product of the same shape;
and a wgmma.fence must come before the first product. Both faults are found when the code is decoded, and reported when
the faulty op runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from cudabench.simulator.program.code import Block, Op

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

# The age of a product is the number of groups that were committed after the product's own group. It is OPEN until the
# product's group is committed.
OPEN = -1
MOST_GROUPS = 64
# Opcodes of copies; the assembler drops a copy if it gives the same hardware register to both operands.
_COPIES = frozenset(("mov", ""))


class Step(NamedTuple):
    """The part that an op has in wgmma: it starts a product, or it is a fence, commits a group or waits for groups.

    results, operands: for a product, the registers of its results and of its matrix A. left: for a wait, how many of
    the latest groups may be unfinished after it.
    """

    kind: Literal["product", "fence", "commit", "wait"]
    results: tuple[int, ...] = ()
    operands: tuple[int, ...] = ()
    left: int = 0


# What is known at a place in the code: the ages of the unfinished products, keyed by (register, "result") for each
# result register, and by (register, "operand") for each register of matrix A. The key UNFENCED is present if some path
# to the place has no fence.
Ages = dict[tuple[int, str], float]
UNFENCED, ALWAYS = (-1, "fence"), -math.inf


def watch_products(blocks: Sequence[Block], steps: Mapping[int, Step]) -> None:
    """Make each op that violates one of the two rules report a hazard when it runs; `steps`: keyed by `id(op)`."""
    if not any(step.kind == "product" for step in steps.values()):
        return
    entering: dict[int, Ages] = {0: {UNFENCED: ALWAYS}}
    waiting = [0]
    while waiting:
        number = waiting.pop()
        left = _through(blocks[number], entering[number], steps, None)
        for following in blocks[number].successors:
            known = entering.get(following, {})
            # Where paths join, each register gets the lower of its two ages.
            merged = {key: min(left.get(key, math.inf), known.get(key, math.inf)) for key in left.keys() | known.keys()}
            if entering.get(following) != merged:
                entering[following] = merged
                waiting.append(following)
    for number, ages in entering.items():
        faults: list[tuple[Op, str, str]] = []
        _through(blocks[number], ages, steps, faults)
        for op, kind, text in faults:
            if op.run is not None:
                op.before(partial(_report, op, kind, text))


def _through(block: Block, ages: Ages, steps: Mapping[int, Step], faults: list[tuple[Op, str, str]] | None) -> Ages:
    """Return the ages after a basic block; `faults`, if given, gets (op, kind of hazard, message) for each fault."""
    ages = dict(ages)
    for op in block.ops:
        step = steps.get(id(op))
        if step is None:
            _plain(op, ages, faults)
        elif step.kind == "fence":
            ages.pop(UNFENCED, None)
        elif step.kind == "product":
            if UNFENCED in ages and faults is not None:
                faults.append((op, "missing-fence", "begins a product without a wgmma.fence before it"))
            ages.update({(index, "result"): OPEN for index in step.results})
            ages.update({(index, "operand"): OPEN for index in step.operands})
        elif step.kind == "commit":
            ages = {key: min(age + 1, MOST_GROUPS) for key, age in ages.items()}
        else:
            ages = {key: age for key, age in ages.items() if age < step.left}
    return ages


def _plain(op: Op, ages: Ages, faults: list[tuple[Op, str, str]] | None) -> None:
    """Update the ages for an op that is not a step of wgmma, and add its faults to `faults`."""
    if op.opcode in _COPIES and len(op.uses) == 1 and len(op.defs) == 1:
        age = ages.get((op.uses[0], "result"))
        if age is not None:
            ages[op.defs[0], "result"] = age
            return
    elif faults is not None:
        if any((index, "result") in ages for index in op.uses):
            faults.append((op, "race", "reads a result of wgmma before a wgmma.wait_group for it"))
        elif any((index, "result") in ages for index in op.defs):
            faults.append((op, "race", "writes a register of wgmma's sums before a wgmma.wait_group for it"))
        elif any((index, "operand") in ages for index in op.defs):
            faults.append((op, "race", "writes a register that wgmma still reads as A: wait for its group first"))
    for key in ((index, kind) for index in op.defs for kind in ("result", "operand")):
        ages.pop(key, None)


def _report(op: Op, kind: str, text: str, machine: Machine) -> None:
    """Report a fault of an op for the active lanes."""
    machine.hazards.report(machine, kind, op.line, machine.lanes(), text)
