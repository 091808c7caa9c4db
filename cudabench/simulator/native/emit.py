"""From an instruction of the PTX to operations of the native engine, while a `Builder` has it in hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cudabench.simulator.errors import PtxError
from cudabench.simulator.program.code import Refuse
from cudabench.simulator.program.ptx import BITS, Address, Immediate, Instruction, Negated, Operand, Symbol
from cudabench.simulator.values import Affine

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.program.builder import Builder

ANY_TYPE = ""


class NotEncoded(Exception):
    """The native engine lacks an instruction, or one of its forms: a launch that comes to it runs on NumPy."""


class NativeOp(NamedTuple):
    """One operation: its name, the registers that it writes and reads, and what else it has to know.

    access: the memory instruction that the NumPy engine made of it.
    """

    name: str
    into: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    immediate: int = 0
    access: MemoryOp | None = None
    flags: int = 0


class Native(NamedTuple):
    """What an instruction is in the native engine; members: of a warp-wide one the register of its mask, -2 for all."""

    ops: tuple[NativeOp, ...]
    members: int = -2


class Emit:
    """The operations of one instruction, and the registers of its operands.

    The builder has built the instruction for NumPy already: registers exist, and what it noted is left as it is.
    """

    def __init__(self, builder: Builder, ins: Instruction, access: MemoryOp | None) -> None:
        self.builder, self.ins, self.access = builder, ins, access
        self.ops: list[NativeOp] = []
        self.members = -2
        self._after: list[NativeOp] = []
        self._scratch: Counter[int] = Counter()

    def op(self, name: str, into: tuple[int, ...] = (), sources: tuple[int, ...] = (), **more: Any) -> None:
        """Add an operation."""
        self.ops.append(NativeOp(name, into, sources, **more))

    def scratch(self, bits: int) -> int:
        """Return a register of a width for what lives within the instruction."""
        self._scratch[bits] += 1
        key = (bits, self._scratch[bits])
        return self.builder.once(self.builder.scratch, key, bits, Affine(0) if bits > 1 else False)

    def then(self, name: str, bits: int, *sources: int, **more: Any) -> int:
        """Add an operation with a result that lives within the instruction; return that register of a width."""
        into = self.scratch(bits)
        self.op(name, (into,), sources, **more)
        return into

    def source(self, operand: Operand, type_: str) -> int:
        """Return a register of the type's width that holds a source operand read as the type."""
        if isinstance(operand, Symbol) and operand.name.startswith(("%clock", "%globaltimer")):
            raise NotEncoded(operand.name)
        if not isinstance(operand, (Immediate, Symbol)):
            raise NotEncoded(self.ins.text)
        index = self.builder.source(operand, type_)
        return self.resized(index, BITS[type_])

    def resized(self, index: int, bits: int) -> int:
        """Return a register of a width with the low bits of another one, or with zeros above them."""
        width = self.builder.width(index)
        if width == bits:
            return index
        if 1 in (width, bits) or 128 in (width, bits):
            raise NotEncoded(self.ins.text)
        return self.then(f"resize.u{width}.u{bits}", bits, index)

    def target(self, operand: Operand, bits: int, signed: bool = False) -> int:
        """Return a register of a width that becomes the destination; a wider one gets it with zeros or its sign."""
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

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """Return (register, inverted) of a predicate operand."""
        if isinstance(operand, Negated):
            return self.builder.source(Symbol(operand.name), "pred"), True
        return self.builder.source(operand, "pred"), False

    def address(self, operand: Operand) -> tuple[int, int]:
        """Return (register of 32 or 64 bits, offset) of an address operand."""
        if not isinstance(operand, Address):
            raise NotEncoded(self.ins.text)
        if operand.base is None:
            return self.builder.constant(0, 64), operand.offset
        return self.builder.source(Symbol(operand.base), "b64"), operand.offset

    def native(self) -> Native:
        """Return what was emitted."""
        return Native((*self.ops, *self._after), self.members)


Encode = Callable[[Emit, Instruction], None]
E = TypeVar("E", bound=Encode)
_ENCODERS: dict[tuple[str, str], Encode] = {}


def encodes(*opcodes: str, types: Collection[str] = (ANY_TYPE,)) -> Callable[[E], E]:
    """Register what encodes some opcodes, for some types of the last modifier or for all."""

    def register(encode: E) -> E:
        for opcode in opcodes:
            for type_ in types:
                _ENCODERS[opcode, type_] = encode
        return encode

    return register


def encoded(builder: Builder, ins: Instruction, access: MemoryOp | None) -> Native | None:
    """Return what an instruction is in the native engine; None where that lacks it."""
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
        made = builder.stream[stream:]  # for operands that are found anew each time, as an address in a frame
        builder.uses, builder.defs, builder.stream[stream:] = uses, defs, []
    return None if made else emit.native()
