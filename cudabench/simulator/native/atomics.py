"""Encodes atomic operations for the native engine, and reads the counts of their contention."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.isa.access import space_of
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Vector

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.native.program import Encoded
    from cudabench.simulator.program.code import Code

SHORT_ADDRESS, ONE, SHOWS, SWAPS = 1, 2, 4, 8  # flags of `native/atomics.cpp`
SERVED = ("words", "lanes", "swap", "loop")
COMMUTING = ("add", "and", "or", "xor", "min", "max")
OPERATIONS = (*COMMUTING, "exch", "cas", "inc", "dec")
FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")


@encodes("atom", "red")
def _atomic(emit: Emit, ins: Instruction) -> None:
    words, type_ = ins.modifiers, ins.modifiers[-1]
    name = next(word for word in words if word in OPERATIONS)
    access = emit.access
    if access is None or "async" in words or space_of(ins) not in ("global", "shared", "generic"):
        raise NotEncoded(ins.text)
    typed = name in ("min", "max") or (name == "add" and type_ in FLOATS)
    kind = type_ if typed else str(BITS[type_])
    place = 1 if ins.opcode == "atom" else 0
    bits = f"b{BITS[type_]}" if type_.startswith(("f16", "bf16")) or BITS[type_] == 16 else type_
    operands = [operand for operand in ins.operands[place + 1 :] if not isinstance(operand, Vector)]
    sources = tuple(emit.source(operand, bits) for operand in operands[: 2 if name == "cas" else 1])
    register, offset = emit.builder.address(ins.operands[place])
    flags = SHORT_ADDRESS if emit.builder.width(register) == 32 else 0
    first = operands[0]
    if name == "add" and isinstance(first, Immediate) and first.value == 1:
        flags |= ONE
    if name == "exch":
        flags |= SWAPS
    elif type_ in FLOATS or name not in COMMUTING:
        flags |= SHOWS
    into = (emit.target(ins.operands[0], BITS[type_]),) if place else ()
    emit.op(f"atom.{name}.{kind}", into, (register, *sources), immediate=offset, access=access, flags=flags)


def operation(access: MemoryOp, code: Code) -> tuple[str, str]:
    """Return the operation and the type of an atomic, such as ("add", "f32")."""
    name, _, type_ = code.accesses[access.number].what.partition(".")
    return name, type_


def ordered(code: Code, accesses: Iterable[MemoryOp]) -> bool:
    """Return whether the order of the blocks may change a kernel's results in global memory.

    This is so if the kernel's blocks communicate (`communicates`), if an atomic on global memory rounds or replaces the
    old value, or if there are different atomic operations on global memory.
    """
    atomics = [operation(access, code) for access in accesses if access.kind == "atomic" and "global" in access.numbers]
    kinds = {(name, type_ if name in ("min", "max") else "") for name, type_ in atomics}
    return code.communicates or len(kinds) > 1 or any(n not in COMMUTING or t in FLOATS for n, t in atomics)


def contention(
    library: Any, handle: Any, encoded: Encoded, code: Code
) -> dict[int, tuple[int | None, int | None, bool]]:
    """Return the contention of each executed atomic on global memory, as `contended` of `Outcome`."""
    counts = np.zeros((len(code.accesses), 2), np.int64)
    library.cudabench_contention(handle, ctypes.c_void_p(counts.ctypes.data))
    contended = {}
    for access, record in zip(encoded.made, encoded.accesses, strict=True):
        number = access.numbers.get("global", -1) if access.kind == "atomic" else -1
        if number >= 0 and counts[number, 0]:
            hits, blocks = (None if count < 0 else count for count in counts[number].tolist())
            contended[number] = hits, blocks, bool(record["returns"])
    return contended
