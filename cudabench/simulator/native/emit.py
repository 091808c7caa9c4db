"""Encodes a PTX instruction as operations of the native engine, right after a `Builder` has built it for NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cudabench.simulator.errors import PtxError
from cudabench.simulator.program.code import Refuse
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Operand, Symbol

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.program.builder import Builder

ANY_TYPE = ""


class NotEncoded(Exception):
    """The native engine lacks an instruction or one of its forms; a launch that reaches it runs on the NumPy engine."""


class NativeOp(NamedTuple):
    """One operation of the native engine.

    `into`: the registers that the operation writes; `sources`: the registers that it reads; `immediate`, `flags`:
    numbers whose meaning depends on the operation; `access`: the record of the memory instruction, made by the builder
    for NumPy.
    """

    name: str
    into: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    immediate: int = 0
    access: MemoryOp | None = None
    flags: int = 0


def sign(type_: str) -> str:
    """Return "s" for a signed integer type, otherwise "u"."""
    return "s" if type_[0] == "s" else "u"


class Native(NamedTuple):
    """The native operations of an instruction.

    `members`: for a warp-wide instruction, the register of its member mask, or -2 if all lanes are members.
    """

    ops: tuple[NativeOp, ...]
    members: int = -2


class Emit:
    """Collects the native operations of one instruction, and finds the registers of its operands.

    The builder for NumPy has run for this instruction already, so the instruction's registers exist.
    """

    def __init__(self, builder: Builder, ins: Instruction, access: MemoryOp | None) -> None:
        self.builder, self.ins, self.access = builder, ins, access
        self.ops: list[NativeOp] = []
        self.members = -2
        self._after: list[NativeOp] = []
        self._scratch: Counter[int] = Counter()

    def op(self, name: str, into: tuple[int, ...] = (), sources: tuple[int, ...] = (), **more: Any) -> None:
        """Add an operation; more: further fields of `NativeOp`."""
        self.ops.append(NativeOp(name, into, sources, **more))

    def scratch(self, bits: int) -> int:
        """Return a register of `bits` bits for an intermediate result of this instruction."""
        self._scratch[bits] += 1
        key = (bits, self._scratch[bits])
        return self.builder.once(self.builder.scratch, key, bits)

    def then(self, name: str, bits: int, *sources: int, **more: Any) -> int:
        """Add an operation with an intermediate result of `bits` bits; return the result's register."""
        into = self.scratch(bits)
        self.op(name, (into,), sources, **more)
        return into

    def halves(self, register: int, bits: int) -> tuple[int, int]:
        """Add an operation that divides a register into two halves of `bits` bits; return them, the lower one first."""
        halves = self.scratch(bits), self.scratch(bits)
        self.op(f"unpack.{2 * bits}.{bits}", halves, (register,))
        return halves

    def source(self, operand: Operand, type_: str) -> int:
        """Return a register with the value of a source operand, read as `type_`; the register has the width of this
        type."""
        if isinstance(operand, Symbol) and operand.name.startswith(("%clock", "%globaltimer")):
            raise NotEncoded(operand.name)
        if not isinstance(operand, (Immediate, Symbol)):
            raise NotEncoded(self.ins.text)
        index = self.builder.source(operand, type_)
        return self.resized(index, BITS[type_])

    def resized(self, index: int, bits: int) -> int:
        """Return a register of `bits` bits with the value of register `index`, cut off or extended with zeros."""
        width = self.builder.width(index)
        if width == bits:
            return index
        if 1 in (width, bits) or 128 in (width, bits):
            raise NotEncoded(self.ins.text)
        return self.then(f"resize.u{width}.u{bits}", bits, index)

    def target(self, operand: Operand, bits: int, signed: bool = False) -> int:
        """Return the register of `bits` bits to which the result must be written.

        If the destination is wider, the result is then extended to the destination's width, with its sign if `signed`,
        otherwise with zeros.
        """
        if isinstance(operand, Symbol) and operand.name == "_":
            return self.scratch(bits)
        index = self.builder.target(operand)
        width = self.builder.width(index)
        if width == bits:
            return index
        if 1 in (width, bits) or 128 in (width, bits):
            raise NotEncoded(self.ins.text)
        new = self.scratch(bits)
        sign = "s" if signed else "u"
        self._after.append(NativeOp(f"resize.{sign}{bits}.u{width}", (index,), (new,)))
        return new

    def sources(self, type_: str, most: int | None = None) -> tuple[int, ...]:
        """Return registers with the values of all source operands, or of the first `most`, read as `type_`."""
        return tuple(self.source(operand, type_) for operand in self.ins.operands[1:][:most])

    def write(self, name: str, type_: str, *sources: int, **more: Any) -> None:
        """Add an operation that writes its result, of PTX type `type_`, to the instruction's destination."""
        self.op(name, (self.target(self.ins.operands[0], BITS[type_], type_[0] == "s"),), sources, **more)

    def give(self, result: int) -> None:
        """Let the last operation, whose result is a predicate in register `result`, write it to the destination."""
        assert self.ops[-1].into == (result,)
        self.ops[-1] = self.ops[-1]._replace(into=(self.target(self.ins.operands[0], 1),))

    def native(self) -> Native:
        """Return the collected operations."""
        return Native((*self.ops, *self._after), self.members)


Encode = Callable[[Emit, Instruction], None]
E = TypeVar("E", bound=Encode)
_ENCODERS: dict[tuple[str, str], Encode] = {}


def encodes(*opcodes: str, types: Collection[str] = (ANY_TYPE,)) -> Callable[[E], E]:
    """Decorator: register a function as the encoder of these opcodes, if the last modifier is one of `types`.

    Without `types` the function encodes these opcodes for every type that no other encoder names.
    """

    def register(encode: E) -> E:
        for opcode in opcodes:
            for type_ in types:
                _ENCODERS[opcode, type_] = encode
        return encode

    return register


def encoded(builder: Builder, ins: Instruction, access: MemoryOp | None) -> Native | None:
    """Return the native operations of an instruction; None if the native engine lacks it."""
    type_ = ins.modifiers[-1] if ins.modifiers else ANY_TYPE
    encode = _ENCODERS.get((ins.opcode, type_)) or _ENCODERS.get((ins.opcode, ANY_TYPE))
    if encode is None:
        return None
    uses, defs, stream = builder.uses, builder.defs, len(builder.stream)
    builder.uses, builder.defs = [], []
    emit = Emit(builder, ins, access)
    try:
        encode(emit, ins)
    except (NotEncoded, Refuse, PtxError):
        return None
    finally:
        # These ops compute an operand each time it is used, such as an address in a frame.
        made = builder.stream[stream:]
        builder.uses, builder.defs, builder.stream[stream:] = uses, defs, []
    return None if made else emit.native()
