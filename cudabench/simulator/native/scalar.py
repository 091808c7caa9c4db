"""Encodes moves, address conversions, comparisons and selections for the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.elementwise import INTEGERS
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes, sign
from cudabench.simulator.program.ptx import BITS, Instruction, Negated, Pair, Symbol, Vector

PAIRS = ("f16x2", "bf16x2")
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}
_SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
# The comparison that gives the same result with exchanged operands.
_TURNED = {"gt": "lt", "ge": "le", "gtu": "ltu", "geu": "leu"}


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
        emit.write(f"pack.{bits}.{piece}", type_, *sources)
    else:
        emit.write(f"mov.{bits}", type_, emit.source(out_of, type_))


@encodes("createpolicy")
def _createpolicy(emit: Emit, ins: Instruction) -> None:
    emit.write("mov.64", "b64", emit.builder.constant(0, 64))


@encodes("cvta")
def _cvta(emit: Emit, ins: Instruction) -> None:
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space_of(ins), 0)
    (source,) = emit.sources("u64")
    if window:
        emit.write("add.64", "b64", source, emit.builder.constant(-window if "to" in ins.modifiers else window, 64))
    else:
        emit.write("mov.64", "b64", source)


@encodes("isspacep")
def _isspacep(emit: Emit, ins: Instruction) -> None:
    space = space_of(ins)
    flags = {"global": 1, "const": 2}.get(space, 0)
    if not flags and space not in _WINDOWS:
        raise NotEncoded(ins.text)
    emit.write("isspacep", "pred", *emit.sources("u64"), immediate=_WINDOWS.get(space, 0), flags=flags)


# Comparisons.


def _compare(emit: Emit, name: str, type_: str, x: int, y: int, flags: int = 0) -> int:
    """Emit the comparison of registers x and y; return the predicate register of its result."""
    name = _SAME.get(name, name)
    if name in _TURNED:
        x, y, name = y, x, _TURNED[name]
    if type_ in INTEGERS:
        flags, type_ = 0, str(BITS[type_]) if name in ("eq", "ne") else f"{sign(type_)}{BITS[type_]}"
    return emit.then(f"setp.{name}.{type_}", 1, x, y, flags=flags)


def _compared(emit: Emit, ins: Instruction) -> list[int]:
    """Emit the comparison of operands 1 and 2 of setp or set.

    Return the predicate register of its result; for a packed type, those of the lower and of the upper half.
    """
    name, type_ = ins.modifiers[0], ins.modifiers[-1]
    element, flags = type_.removesuffix("x2"), 4 if "ftz" in ins.modifiers else 0
    if element not in ("f16", "bf16"):
        x, y = emit.sources(type_, 2)
        return [_compare(emit, name, type_, x, y, flags)]
    if flags:
        raise NotEncoded(ins.text)
    packed = element != type_
    sources = [emit.halves(x, 16) if packed else (x,) for x in emit.sources(f"b{BITS[type_]}", 2)]
    wide = [[emit.then(f"cvt.f32.{element}", 32, half) for half in halves] for halves in sources]
    return [_compare(emit, name, "f32", x, y) for x, y in zip(*wide, strict=True)]


def _combined(emit: Emit, ins: Instruction, compared: int, inverted: bool = False) -> int:
    """Return the register of a comparison's result, or of its inverse, combined with the predicate operand if there is
    one."""
    combine = next((word for word in ins.modifiers[1:] if word in ("and", "or", "xor")), None)
    if combine is not None:
        other, flip = emit.builder.predicate(ins.operands[3])
        return emit.then(f"{combine}.1", 1, compared, other, flags=inverted + 2 * flip)
    return emit.then("mov.1", 1, compared, flags=1) if inverted else compared


@encodes("setp")
def _setp(emit: Emit, ins: Instruction) -> None:
    into, results = ins.operands[0], _compared(emit, ins)
    outputs = (into.first, into.second) if isinstance(into, Pair) else (into,)
    if len(results) == 1:
        results = [_combined(emit, ins, results[0], bool(place)) for place, _ in enumerate(outputs)]
    else:  # a pair: each result is that of one half
        results = [_combined(emit, ins, result) for result in results]
    if len(outputs) == 1:
        emit.give(results[0])
        return
    # If the instruction's guard is a destination, it is written last, as each emitted operation reads the guard.
    guard = -1 if ins.guard is None else emit.builder.predicate(Symbol(ins.guard))[0]
    pairs = [(emit.target(operand, 1), result) for operand, result in zip(outputs, results, strict=True)]
    for target, result in sorted(pairs, key=lambda pair: pair[0] == guard):
        emit.op("mov.1", (target,), (result,))


@encodes("set")
def _set(emit: Emit, ins: Instruction) -> None:
    result, type_ = ins.modifiers[-2:]
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}
    constant = emit.builder.constant
    if type_ in PAIRS:
        yes, no = constant(ones.get(result[:-2], 0xFFFF), 16), constant(0, 16)
        halves = [emit.then("selp.16", 16, yes, no, _combined(emit, ins, half)) for half in _compared(emit, ins)]
        emit.write("pack.32.16", "b32", *halves)
        return
    bits, (compared,) = BITS[result], _compared(emit, ins)
    yes = constant(ones.get(result, (1 << bits) - 1), bits)
    emit.write(f"selp.{bits}", f"b{bits}", yes, constant(0, bits), _combined(emit, ins, compared))


@encodes("selp")
def _selp(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    sources = emit.sources(type_, 2)
    condition, flip = emit.builder.predicate(ins.operands[3])
    emit.write(f"selp.{BITS[type_]}", type_, *sources, condition, flags=int(flip))


@encodes("slct")
def _slct(emit: Emit, ins: Instruction) -> None:
    type_, kind = ins.modifiers[-2:]
    x, y = emit.sources(type_, 2)
    chosen = _compare(emit, "ge", kind, emit.source(ins.operands[3], kind), emit.builder.constant(0, 32))
    emit.write(f"selp.{BITS[type_]}", type_, x, y, chosen)


@encodes("and", "or", "xor", "not", types=("pred",))
def _predicates(emit: Emit, ins: Instruction) -> None:
    """Emit `and`, `or`, `xor` or `not` of predicates."""
    sources, flips = zip(*map(emit.builder.predicate, ins.operands[1:]), strict=True)
    if ins.opcode == "not":
        emit.write("mov.1", "pred", *sources, flags=int(not flips[0]))
    else:
        emit.write(f"{ins.opcode}.1", "pred", *sources, flags=flips[0] + 2 * flips[1])
