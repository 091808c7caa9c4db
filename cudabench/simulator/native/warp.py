"""Encodes warp-wide instructions for the native engine."""

from __future__ import annotations

from cudabench.simulator.check.members import function_name
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Pair

GROUP, ALIKE, INVERTED = 1, 2, 2  # flags of `native/warp.cpp`


def _members(emit: Emit, place: int) -> int:
    """Return the register of the member mask, operand `place`, and set it in `emit` for the scheduler; -1 if all lanes
    are members."""
    operand = next(iter(emit.ins.operands[place:]), None)
    if operand is None or (isinstance(operand, Immediate) and operand.value & 0xFFFFFFFF == 0xFFFFFFFF):
        return -1
    before = len(emit.ops)
    emit.members = emit.source(operand, "b32")
    if len(emit.ops) > before:  # reading the mask takes an op, but the scheduler reads the mask before any op runs
        raise NotEncoded(emit.ins.text)
    return emit.members


def _targets(emit: Emit, ins: Instruction) -> tuple[int, ...]:
    """Return the destination registers of `d` or `d|p`: the register of d (32 bits), and that of predicate p if any."""
    into = ins.operands[0]
    if isinstance(into, Pair):
        return emit.target(into.first, 32), emit.target(into.second, 1)
    return (emit.target(into, 32),)


@encodes("shfl")
def _shfl(emit: Emit, ins: Instruction) -> None:
    mode = next(word for word in ins.modifiers if word in ("up", "down", "bfly", "idx"))
    sources = emit.sources("b32", 3)
    alike = all(isinstance(operand, Immediate) for operand in ins.operands[2:4])
    members = _members(emit, 4)
    emit.op(f"shfl.{mode}", _targets(emit, ins), (*sources, members), flags=ALIKE if alike else 0)


@encodes("vote")
def _vote(emit: Emit, ins: Instruction) -> None:
    mode = next(word for word in ins.modifiers if word in ("all", "any", "uni", "ballot"))
    source, inverted = emit.builder.predicate(ins.operands[1])
    members = _members(emit, 2)
    result = "b32" if mode == "ballot" else "pred"
    emit.write(f"vote.{mode}", result, source, members, flags=INVERTED if inverted else 0)


@encodes("match")
def _match(emit: Emit, ins: Instruction) -> None:
    mode, bits = "all" if "all" in ins.modifiers else "any", BITS[ins.modifiers[-1]]
    source, members = emit.source(ins.operands[1], ins.modifiers[-1]), _members(emit, 2)
    emit.op(f"match.{mode}.{bits}", _targets(emit, ins), (source, members))


@encodes("redux", types=("u32", "s32", "b32"))
def _redux(emit: Emit, ins: Instruction) -> None:
    name = next(word for word in ins.modifiers if word in ("add", "and", "or", "xor", "min", "max"))
    type_ = ins.modifiers[-1]
    source, members = emit.source(ins.operands[1], type_), _members(emit, 2)
    emit.write(f"redux.{name}.{type_}" if name in ("min", "max") else f"redux.{name}", "b32", source, members)


@encodes("activemask")
def _activemask(emit: Emit, ins: Instruction) -> None:
    emit.write("activemask", "b32")


@encodes("elect")
def _elect(emit: Emit, ins: Instruction) -> None:
    emit.op("elect", _targets(emit, ins), (_members(emit, 1),))


@encodes("bar", "barrier")
def _bar(emit: Emit, ins: Instruction) -> None:
    """Encode bar.warp.sync; other barriers end a basic block, and `program` encodes them."""
    if "warp" not in ins.modifiers:
        raise NotEncoded(ins.text)
    group = function_name(ins) == "__syncwarp" and ins.location.group  # a warp barrier of cooperative groups
    emit.op("bar.warp.sync", (), (_members(emit, 0),), flags=GROUP if group else 0)
