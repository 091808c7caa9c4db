"""Encodes moves, address conversions, comparisons and selections for the native engine."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.elementwise import INTEGERS
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Instruction, Negated, Operand, Pair, Symbol, Vector

PAIRS = ("f16x2", "bf16x2")
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}
_SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
# The comparison that gives the same result with exchanged operands.
_TURNED = {"gt": "lt", "ge": "le", "gtu": "ltu", "geu": "leu"}


def plain(emit: Emit, ins: Instruction, name: str, types: Sequence[str], result: str, flags: int = 0) -> None:
    """Emit one operation that reads source operand k as `types[k]` and writes a destination of type `result`."""
    sources = tuple(emit.source(*each) for each in zip(ins.operands[1:], types, strict=True))
    emit.op(name, (emit.target(ins.operands[0], BITS[result], result[0] == "s"),), sources, flags=flags)


def sign(type_: str) -> str:
    """Return "s" for a signed integer type, otherwise "u"."""
    return "s" if type_[0] == "s" else "u"


@encodes("mov")
def _mov(emit: Emit, ins: Instruction) -> None:
    into, out_of = ins.operands
    type_ = ins.modifiers[-1]
    bits = BITS[type_]
    if bits == 128 or isinstance(out_of, Negated):
        raise NotEncoded(ins.text)
    if isinstance(into, Vector):
        piece = bits // len(into.items)
        source = emit.source(out_of, type_)
        ignored = Symbol("_")
        targets = tuple(-1 if item == ignored else emit.target(item, piece) for item in into.items)
        emit.op(f"unpack.{bits}.{piece}", targets, (source,))
    elif isinstance(out_of, Vector):
        piece = bits // len(out_of.items)
        sources = tuple(emit.source(item, f"b{piece}") for item in out_of.items)
        emit.op(f"pack.{bits}.{piece}", (emit.target(into, bits),), sources)
    else:
        emit.op(f"mov.{bits}", (emit.target(into, bits),), (emit.source(out_of, type_),))


@encodes("createpolicy")
def _createpolicy(emit: Emit, ins: Instruction) -> None:
    emit.op("mov.64", (emit.target(ins.operands[0], 64),), (emit.builder.constant(0, 64),))


@encodes("cvta")
def _cvta(emit: Emit, ins: Instruction) -> None:
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space_of(ins), 0)
    source = emit.source(ins.operands[1], "u64")
    into = (emit.target(ins.operands[0], 64),)
    if window:
        shift = emit.builder.constant(-window if "to" in ins.modifiers else window, 64)
        emit.op("add.64", into, (source, shift))
    else:
        emit.op("mov.64", into, (source,))


@encodes("isspacep")
def _isspacep(emit: Emit, ins: Instruction) -> None:
    space = space_of(ins)
    flags = {"global": 1, "const": 2}.get(space, 0)
    if not flags and space not in _WINDOWS:
        raise NotEncoded(ins.text)
    source = emit.source(ins.operands[1], "u64")
    into = (emit.target(ins.operands[0], 1),)
    emit.op("isspacep", into, (source,), immediate=_WINDOWS.get(space, 0), flags=flags)


# Comparisons.


def _compared(emit: Emit, ins: Instruction, into: int) -> None:
    """Emit the comparison of operands 1 and 2 of setp or set; its result is written to predicate register `into`."""
    name, type_ = ins.modifiers[0], ins.modifiers[-1]
    half, flags = type_ in ("f16", "bf16"), 4 if "ftz" in ins.modifiers else 0
    if half and flags:
        raise NotEncoded(ins.text)
    x, y = (emit.source(operand, "b16" if half else type_) for operand in ins.operands[1:3])
    if half:
        x, y = (emit.then(f"cvt.f32.{type_}", 32, index) for index in (x, y))
    _compare(emit, name, "f32" if half else type_, into, x, y, flags)


def _compare(emit: Emit, name: str, type_: str, into: int, x: int, y: int, flags: int = 0) -> None:
    """Emit the comparison of registers x and y; its result is written to predicate register `into`."""
    name = _SAME.get(name, name)
    if name in _TURNED:
        x, y, name = y, x, _TURNED[name]
    if type_ in INTEGERS:
        flags, type_ = 0, str(BITS[type_]) if name in ("eq", "ne") else f"{sign(type_)}{BITS[type_]}"
    emit.op(f"setp.{name}.{type_}", (into,), (x, y), flags=flags)


def _combined(emit: Emit, ins: Instruction, compared: int, inverted: bool = False) -> int:
    """Return the register of a comparison's result, or of its inverse, combined with the predicate operand if there is
    one."""
    combine = next((word for word in ins.modifiers[1:] if word in ("and", "or", "xor")), None)
    if combine is not None:
        other, flip = emit.builder.predicate(ins.operands[3])
        return emit.then(f"{combine}.1", 1, compared, other, flags=inverted + 2 * flip)
    return emit.then("mov.1", 1, compared, flags=1) if inverted else compared


def _halves(emit: Emit, ins: Instruction) -> tuple[int, int]:
    """Emit the comparisons of the lower and the upper halves of operands 1 and 2; return both predicate registers."""
    if "ftz" in ins.modifiers:
        raise NotEncoded(ins.text)
    type_ = ins.modifiers[-1][:-2]
    halves = [emit.halves(emit.source(operand, "b32"), 16) for operand in ins.operands[1:3]]
    parts = [[emit.then(f"cvt.f32.{type_}", 32, half) for half in pair] for pair in halves]
    results = emit.scratch(1), emit.scratch(1)
    for into, x, y in zip(results, *parts, strict=True):
        _compare(emit, ins.modifiers[0], "f32", into, x, y)
    return results


@encodes("setp")
def _setp(emit: Emit, ins: Instruction) -> None:
    into = ins.operands[0]
    first, second = into if isinstance(into, Pair) else (into, None)
    if ins.modifiers[-1] in PAIRS and second is not None:
        _give(emit, ins, _halves(emit, ins), (first, second))
        return
    if second is None and len(ins.operands) < 4:
        _compared(emit, ins, emit.target(first, 1))
        return
    compared, outputs = emit.scratch(1), (first,) if second is None else (first, second)
    _compared(emit, ins, compared)
    results = [_combined(emit, ins, compared, bool(place)) for place, _ in enumerate(outputs)]
    _give(emit, ins, results, outputs)


def _give(emit: Emit, ins: Instruction, results: Sequence[int], operands: Sequence[Operand]) -> None:
    """Emit the moves of predicates to their destinations.

    If the instruction's guard is a destination, it is written last, as each emitted operation reads the guard.
    """
    guard = -1 if ins.guard is None else emit.builder.predicate(Symbol(ins.guard))[0]
    pairs = [(emit.target(operand, 1), result) for operand, result in zip(operands, results, strict=True)]
    for into, result in sorted(pairs, key=lambda pair: pair[0] == guard):
        emit.op("mov.1", (into,), (result,))


@encodes("set")
def _set(emit: Emit, ins: Instruction) -> None:
    result, type_ = ins.modifiers[-2:]
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}
    constant = emit.builder.constant
    if type_ in PAIRS:
        yes, no = constant(ones.get(result[:-2], 0xFFFF), 16), constant(0, 16)
        halves = tuple(emit.then("selp.16", 16, yes, no, half) for half in _halves(emit, ins))
        emit.op("pack.32.16", (emit.target(ins.operands[0], 32),), halves)
        return
    bits, compared = BITS[result], emit.scratch(1)
    _compared(emit, ins, compared)
    yes = constant(ones.get(result, (1 << bits) - 1), bits)
    sources = (yes, constant(0, bits), _combined(emit, ins, compared))
    emit.op(f"selp.{bits}", (emit.target(ins.operands[0], bits),), sources)


@encodes("selp")
def _selp(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    sources = tuple(emit.source(operand, type_) for operand in ins.operands[1:3])
    condition, flip = emit.builder.predicate(ins.operands[3])
    emit.op(f"selp.{BITS[type_]}", (emit.target(ins.operands[0], BITS[type_]),), (*sources, condition), flags=int(flip))


@encodes("slct")
def _slct(emit: Emit, ins: Instruction) -> None:
    type_, kind = ins.modifiers[-2:]
    x, y = (emit.source(operand, type_) for operand in ins.operands[1:3])
    chosen = emit.scratch(1)
    _compare(emit, "ge", kind, chosen, emit.source(ins.operands[3], kind), emit.builder.constant(0, 32))
    emit.op(f"selp.{BITS[type_]}", (emit.target(ins.operands[0], BITS[type_]),), (x, y, chosen))


@encodes("and", "or", "xor", "not", types=("pred",))
def _predicates(emit: Emit, ins: Instruction) -> None:
    """Emit `and`, `or`, `xor` or `not` of predicates."""
    (x, flip), *others = (emit.builder.predicate(operand) for operand in ins.operands[1:])
    y, flip_y = others[0] if others else (-1, False)
    name = "mov" if ins.opcode == "not" else ins.opcode
    flags = (flip != (ins.opcode == "not")) + 2 * flip_y
    emit.op(f"{name}.1", (emit.target(ins.operands[0], 1),), (x, y) if others else (x,), flags=flags)
