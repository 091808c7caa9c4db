"""Checks, before anything runs, that the machine code of a microbenchmark has the loop that is to be timed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cudabench.cards import Ceiling
from cudabench.compile import cubin, nvdisasm
from cudabench.compile.sass import Block, Function, Instruction
from cudabench.errors import CudabenchError


class UnexpectedCode(CudabenchError):
    """The machine code of a microbenchmark differs from its claim."""


@dataclass(frozen=True)
class Claim:
    """The machine instructions that one iteration of a kernel's loop must have.

    `opcodes`: how often each opcode must occur; the key may have a modifier, as in 'LDG.128', or alternatives, as in
    'RED|REDG'. `fmas`: the multiply-adds of a warp by tensor core opcode, whatever the shape of the instructions.
    `most_others`: the largest allowed number of other instructions. `loop`: whether the kernel has a loop; if not, the
    claim is about all instructions of the kernel.
    """

    opcodes: Mapping[str, int] = field(default_factory=dict)
    fmas: Mapping[str, int] = field(default_factory=dict)
    most_others: int = 0
    loop: bool = True


def with_hashes(ceiling: Ceiling, image: bytes, ptx: str, entry: str) -> Ceiling:
    """Return a copy of a ceiling with the hashes of its kernel's machine code and PTX."""
    digest = hashlib.sha256(ptx.encode()).hexdigest()
    return replace(ceiling, sha256=cubin.code_sha256(image, [entry]), ptx_sha256=digest)


def check_loop(image: bytes, entry: str, claim: Claim) -> str:
    """Return a description of a kernel's loop, such as '512 FFMA of 515 instructions a pass'.

    Raises UnexpectedCode if the machine code differs from the claim, and DeviceUnusable without nvdisasm.
    """
    if not (functions := nvdisasm.functions(image, entry)):
        raise UnexpectedCode(f"the machine code lacks the kernel {entry}")
    bodies = loops(functions[0]) if claim.loop else [functions[0].instructions]
    if not bodies:
        raise UnexpectedCode(f"the compiler removed the loop of {entry}")
    body = max(bodies, key=lambda body: sum(_count(body, claim).values()))
    counted = _count(body, claim)
    expected = {**claim.opcodes, **claim.fmas}
    for name, count in expected.items():
        if counted[name] != count:
            unit = "multiply-adds by " if name in claim.fmas else ""
            raise UnexpectedCode(
                f"the loop of {entry} has {counted[name]} {unit}{name}, not {count}: this is not the loop to be timed"
            )
    others = [i for i in body if not any(_is(i, name) for name in expected) and not is_filler(i)]
    if len(others) > claim.most_others:
        most = ", ".join(f"{count} {name}" for name, count in Counter(i.opcode for i in others).most_common(3))
        raise UnexpectedCode(
            f"the loop of {entry} has {len(others)} other instructions ({most}); at most "
            f"{claim.most_others} are expected"
        )
    claimed = Counter(i.mnemonic for i in body if any(_is(i, name) for name in expected))
    claimed_text = ", ".join(f"{count} {name}" for name, count in claimed.items()) or "nothing"
    count_working = sum(not is_filler(i) for i in body)
    return f"{claimed_text} of {count_working} instructions" + (" a pass" if claim.loop else "")


def loops(function: Function) -> list[tuple[Instruction, ...]]:
    """Return the natural loops of a function; each loop is a tuple of its instructions.

    A loop consists of the target of a back edge, and of all basic blocks from which a path that avoids the target leads
    to this edge.
    """
    predecessors: dict[int, list[Block]] = {}
    for block in function.blocks:
        for successor in block.successors:
            predecessors.setdefault(successor, []).append(block)
    members_of: dict[int, set[int]] = {}
    for block in function.blocks:
        for head in block.successors:
            if head > block.number:
                continue
            members = members_of.setdefault(head, {head})
            pending = [block]
            while pending:
                reached = pending.pop()
                if reached.number not in members:
                    members.add(reached.number)
                    pending += predecessors.get(reached.number, [])
    return [
        tuple(i for block in function.blocks if block.number in members for i in block.instructions)
        for members in members_of.values()
    ]


def is_filler(instruction: Instruction) -> bool:
    """Return whether an instruction does nothing: NOP, or the operation without registers that ptxas puts between DMMA
    instructions."""
    registers = [operand for operand in instruction.operands if not operand.startswith(("UP", "!UP"))]
    return instruction.opcode == "NOP" or (
        instruction.opcode == "UIADD3" and instruction.guard == "!UPT" and set(registers) == {"URZ"}
    )


def _is(instruction: Instruction, name: str) -> bool:
    return any(
        instruction.opcode == opcode and (not modifier or modifier in instruction.modifiers)
        for opcode, _, modifier in (alternative.partition(".") for alternative in name.split("|"))
    )


def _count(body: Sequence[Instruction], claim: Claim) -> dict[str, int]:
    return {
        **{name: sum(_is(i, name) for i in body) for name in claim.opcodes},
        **{name: sum(multiply_adds(i) for i in body if _is(i, name)) for name in claim.fmas},
    }


_SHAPES = {"884": 8 * 8 * 4, "1684": 16 * 8 * 4, "1688": 16 * 8 * 8, "16816": 16 * 8 * 16, "16832": 16 * 8 * 32}


def multiply_adds(instruction: Instruction) -> int:
    """Return how many multiply-adds a tensor core instruction does for a warp. The shape in the instruction's name, as
    in HMMA.16816 or DMMA.8x8x4, tells the number; without a shape it is 0."""
    for modifier in instruction.modifiers:
        if sides := re.fullmatch(r"(\d+)x(\d+)x(\d+)", modifier):
            return int(sides[1]) * int(sides[2]) * int(sides[3])
        if modifier in _SHAPES:
            return _SHAPES[modifier]
    return 0
