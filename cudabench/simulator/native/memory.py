"""Encodes loads, stores, cp.async, and accesses to the parameters of calls, for the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.load_store import element
from cudabench.simulator.isa.opcodes import items
from cudabench.simulator.memory import PARAMETER_WINDOW
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Address, Immediate, Instruction, Operand, Symbol

SHORT_ADDRESS, IN_A_ROW = 1, 2  # flags: the address has 32 bits; the data are in consecutive registers
# Flags of copies. AMOUNT: an operand is the number of bytes to read. SKIPS: an operand is a predicate that skips the
# read. FLIPPED: this predicate is inverted.
AMOUNT, SKIPS, FLIPPED = 4, 8, 16
MOST_TARGETS = 4  # how many destination registers an operation can name


@encodes("ld", "ldu")
def _ld(emit: Emit, ins: Instruction) -> None:
    type_, _, count = element(ins)
    bits, builder, into = BITS[type_], emit.builder, items(ins.operands[0])
    if space_of(ins) == "param" and builder.call_parameter(ins.operands[1]) is not None:
        for item, slot in zip(into, _slots_of_call(emit, ins.operands[1], bits, count), strict=True):
            emit.op(f"mov.{bits}", (emit.target(item, bits, type_[0] == "s"),), (slot,))
        return
    register, offset = builder.address(ins.operands[1])
    targets = _targets(emit, into, bits)
    width = builder.width(targets[0])
    name = f"{'s' if type_[0] == 's' and width > bits else 'u'}{bits}.{width}"
    place = builder.initial[register]
    if emit.access is None:
        assert place is not None  # an operation without an access reads a parameter of the kernel
        for number, target in enumerate(targets):
            start = place + offset - PARAMETER_WINDOW + number * bits // 8
            emit.op(f"ld.param.{name}", (target,), immediate=start)
        return
    flags, loaded = _flags(emit, register), targets
    if count > MOST_TARGETS:
        flags, loaded = flags | IN_A_ROW, _row(emit, count, bits)
    emit.op(f"ld.{name}", loaded[:MOST_TARGETS], (register,), immediate=offset, access=emit.access, flags=flags)
    for target, value in zip(targets, loaded, strict=True) if flags & IN_A_ROW else ():
        emit.op(f"mov.{bits}", (target,), (value,))


@encodes("st")
def _st(emit: Emit, ins: Instruction) -> None:
    type_, _, count = element(ins)
    bits, builder = BITS[type_], emit.builder
    sources = tuple(builder.source(item, type_) for item in items(ins.operands[1]))
    if space_of(ins) == "param":
        for source, slot in zip(sources, _slots_of_call(emit, ins.operands[0], bits, count, True), strict=True):
            emit.op(f"mov.{bits}", (slot,), (emit.resized(source, bits),))
        return
    if emit.access is None or "async" in ins.modifiers:
        raise NotEncoded(ins.text)
    register, offset = builder.address(ins.operands[0])
    flags = _flags(emit, register)
    if len({builder.width(source) for source in sources}) > 1:
        sources = tuple(emit.resized(source, bits) for source in sources)
    width = builder.width(sources[0])
    if count > MOST_TARGETS:
        row = _row(emit, count, width)
        for into_register, source in zip(row, sources, strict=True):
            emit.op(f"mov.{width}", (into_register,), (source,))
        sources, flags = (row[0],), flags | IN_A_ROW
    emit.op(f"st.{bits}.{width}", (), (register, *sources), immediate=offset, access=emit.access, flags=flags)


@encodes("cp")
def _cp(emit: Emit, ins: Instruction) -> None:
    words, builder = ins.modifiers, emit.builder
    if "commit_group" in words and "bulk" not in words:
        emit.op("copy.commit")
    elif words[0] == "async" and ("wait_all" in words or "wait_group" in words):
        count = ins.operands[0] if "wait_group" in words else None
        if not isinstance(count, Immediate):
            emit.op("copy.commit")
        emit.op("copy.wait", immediate=int(count.value) if isinstance(count, Immediate) else 0)
    elif emit.access is None or emit.access.copied is None:
        raise NotEncoded(ins.text)
    else:
        load, store = emit.access.copied, emit.access
        hinted = any("cache_hint" in word for word in words)
        less = None if hinted else next(iter(ins.operands[3:]), None)
        (into, into_offset), (out_of, out_offset) = map(builder.address, ins.operands[:2])
        amount: tuple[int, ...] = ()
        flags = 0
        if isinstance(less, Immediate):
            amount, flags = (builder.source(less, "u32"),), AMOUNT
        elif less is not None:
            register, flip = builder.predicate(less)
            amount = (register,)
            flags = (SKIPS | (FLIPPED if flip else 0)) if builder.width(register) == 1 else AMOUNT
        if builder.width(out_of) != 64 or (flags == AMOUNT and builder.width(amount[0]) != 32):
            raise NotEncoded(ins.text)
        row = _row(emit, load.count, 32)
        emit.op("copy.fetch", row, (out_of, *amount), immediate=out_offset, access=load, flags=flags)
        short = SHORT_ADDRESS if builder.width(into) == 32 else 0
        emit.op("copy.keep", (), (into, *row), immediate=into_offset, access=store, flags=short)


def _flags(emit: Emit, register: int) -> int:
    """Return the flags of an access with an address in a register.

    Raise NotEncoded for an access with a memory order, so that the NumPy engine runs the launch.
    """
    access = emit.access
    assert access is not None
    if access.ordered or access.strong or access.acquires:
        raise NotEncoded(emit.ins.text)
    return SHORT_ADDRESS if emit.builder.width(register) == 32 else 0


def _targets(emit: Emit, into: tuple[Operand, ...], bits: int) -> tuple[int, ...]:
    """Return the destination registers of a load, which must all have the same width; `_` gets a new register."""
    named = [isinstance(item, Symbol) and item.name == "_" for item in into]
    registers = [-1 if unnamed else emit.builder.target(item) for item, unnamed in zip(into, named, strict=True)]
    widths = {emit.builder.width(index) for index in registers if index >= 0} or {bits}
    width = widths.pop()
    if widths or width < bits or width > 64:
        raise NotEncoded(emit.ins.text)
    return tuple(emit.builder.new(width) if index < 0 else index for index in registers)


def _row(emit: Emit, count: int, width: int) -> tuple[int, ...]:
    """Return the numbers of `count` new, consecutive registers."""
    return tuple(emit.builder.new(width) for _ in range(count))


def _slots_of_call(emit: Emit, place: Operand, bits: int, count: int, store: bool = False) -> list[int]:
    """Return the registers that keep `count` elements of a call's parameter, from the address `place` on.

    Raise NotEncoded if a loaded element is not exactly one register.
    """
    builder = emit.builder
    variable = builder.call_parameter(place)
    if variable is None or not isinstance(place, Address):
        raise NotEncoded(emit.ins.text)
    starts, kept = range(place.offset, place.offset + count * bits // 8, bits // 8), builder.slots.get(variable, {})
    if not store and any((start, bits) not in kept for start in starts):
        raise NotEncoded(emit.ins.text)
    return [builder.slot(variable, start, bits) for start in starts]
