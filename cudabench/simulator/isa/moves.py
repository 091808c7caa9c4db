"""Moves, addresses, comparisons and selections (PTX ISA 9.7.6, 9.7.7 and 9.7.9)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench.simulator.clusters import RANK_SHIFT, REMOTE, chunk_clusters
from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.elementwise import COMPARE, INTEGERS, elementwise, in_parts
from cudabench.simulator.isa.floating import from_halves
from cudabench.simulator.isa.opcodes import instruction, refuse, registers
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction, Negated, Pair, Vector
from cudabench.simulator.values import DTYPES, UNSIGNED, ZERO, Array

_PAIRS = ("f16x2", "bf16x2")

# Moves.


@instruction("mov")
def _mov(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    into, out_of = ins.operands
    if type_ == "b128" or isinstance(out_of, Negated):
        raise refuse(ins)
    if isinstance(into, Vector):
        return _unpack(builder, into, out_of, type_)
    if isinstance(out_of, Vector):
        return _pack(builder, into, out_of, type_)
    return elementwise(builder, ins, (type_,), type_, lambda x: x)


@instruction("createpolicy")
def _createpolicy(builder: Builder, ins: Instruction) -> Run:
    """Build createpolicy, which creates a cache policy: the simulator ignores cache policies, and writes 0."""
    (target,) = registers(builder, ins)
    return lambda machine: machine.put(target, ZERO)


def _unpack(builder: Builder, into: Vector, out_of: Any, type_: str) -> Run:
    piece = BITS[type_] // len(into.items)
    source = builder.source(out_of, type_)
    targets = [builder.target(item) for item in into.items]
    wide, narrow = UNSIGNED[BITS[type_]], UNSIGNED[piece]

    def run(machine: Machine) -> None:
        value = machine.array(source, wide)
        for place, target in enumerate(targets):
            machine.put(target, (value >> wide.type(place * piece)).astype(narrow))

    return run


def _pack(builder: Builder, into: Any, out_of: Vector, type_: str) -> Run:
    piece = BITS[type_] // len(out_of.items)
    sources = [builder.source(item, f"b{piece}") for item in out_of.items]
    target = builder.target(into)
    wide, narrow = UNSIGNED[BITS[type_]], UNSIGNED[piece]

    def run(machine: Machine) -> None:
        value = machine.array(sources[0], narrow).astype(wide)
        for place, source in enumerate(sources[1:], 1):
            value = value | (machine.array(source, narrow).astype(wide) << wide.type(place * piece))
        machine.put(target, value)

    return run


@instruction("cvta")
def _cvta(builder: Builder, ins: Instruction) -> Run:
    """Build cvta, which converts an address in a state space to a generic address; with .to it converts back."""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space_of(ins), 0)
    target, source = registers(builder, ins, "u64")
    shift = np.uint64((-window if "to" in ins.modifiers else window) & 0xFFFFFFFFFFFFFFFF)
    return lambda machine: machine.put(target, machine.array(source, UNSIGNED[64]) + shift)


@instruction("isspacep")
def _isspacep(builder: Builder, ins: Instruction) -> Run:
    """Build isspacep, which tests whether a generic address is in a state space."""
    space = space_of(ins)
    target, source = registers(builder, ins, "u64")
    start = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}.get(space)

    def run(machine: Machine) -> None:
        address = machine.array(source, UNSIGNED[64])
        ends = [] if start is None else [(start, start + WINDOW)]
        if space == "const":
            ends = [(region.base, region.end) for region in machine.space.slots if region.constant]
        inside = np.zeros(address.shape, dtype=bool) if space != "global" else address >= np.uint64(1 << 39)
        for low, high in ends:
            inside |= (address >= np.uint64(low)) & (address < np.uint64(high))
        machine.put(target, inside)

    return run


@instruction("mapa")
def _mapa(builder: Builder, ins: Instruction) -> Run:
    """Build mapa, which returns the same shared address in the cluster's block with a given rank."""
    type_ = ins.modifiers[-1]
    dtype = UNSIGNED[BITS[type_]]
    target, source, rank = registers(builder, ins, type_, "u32")
    kept = dtype.type(~np.uint64(0x1F << RANK_SHIFT) & np.uint64(np.iinfo(dtype).max))

    def run(machine: Machine) -> None:
        ranks, address = machine.array(rank, UNSIGNED[32]).astype(dtype), machine.array(source, dtype)
        part = (ranks + dtype.type(1)) << dtype.type(RANK_SHIFT)
        if machine.plan.cluster is None:
            part = np.where(ranks == 0, dtype.type(0), part)  # without clusters each block has rank 0
        machine.put(target, (address & kept) | part)

    return run


@instruction("getctarank")
def _getctarank(builder: Builder, ins: Instruction) -> Run:
    """Build getctarank, which returns the rank of the block whose shared memory contains an address."""
    type_ = ins.modifiers[-1]
    target, source = registers(builder, ins, type_)

    def run(machine: Machine) -> None:
        address = machine.array(source, UNSIGNED[BITS[type_]]).astype(np.int64)
        part = address & (0x20 * REMOTE - 1)
        cluster = chunk_clusters(machine)
        own = np.zeros((1, 1), np.int64) if cluster is None else cluster.rank.reshape(-1, 1)
        machine.put(target, np.where(part < REMOTE, own, (part >> RANK_SHIFT) - 1).astype(np.uint32))

    return run


# Comparisons.

_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_OF_NAN: dict[str, Callable[[Array, Array], Array]] = {
    "num": lambda x, y: ~_unordered(x, y),
    "nan": lambda x, y: _unordered(x, y),
    "ne": lambda x, y: (x != y) & ~_unordered(x, y),
}
_BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _unordered(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


def compare_arrays(name: str, real: bool) -> Callable[[Array, Array], Array]:
    """Return the function that compares two arrays by a PTX comparison such as "lt" (PTX ISA 9.3.1).

    If an operand is NaN, unordered comparisons, such as "ltu", are true, and ordered ones, such as "lt" and "ne", are
    false. real: whether the operands are floats.
    """
    if name in _UNORDERED:
        inner = COMPARE[_UNORDERED[name]]
        return lambda x, y: inner(x, y) | _unordered(x, y)
    return _OF_NAN[name] if name in _OF_NAN and real else COMPARE[name]


def comparison(builder: Builder, ins: Instruction, type_: str) -> Callable[[Machine], Array]:
    """Return a function that maps a machine to the result of comparing operands 1 and 2 of setp or set."""
    name, whole = ins.modifiers[0], type_ in INTEGERS
    if name not in {**COMPARE, **_UNORDERED, **_OF_NAN} or not (whole or type_ in ("f32", "f64", "f16", "bf16")):
        raise refuse(ins)
    half = type_ in ("f16", "bf16")
    read = "b16" if half else type_
    first, second = (builder.source(operand, read) for operand in ins.operands[1:3])
    compare, dtype = compare_arrays(name, not whole), DTYPES[read]
    flush = "ftz" in ins.modifiers

    def run(machine: Machine) -> Array:
        a, b = machine.array(first, dtype), machine.array(second, dtype)
        if half:
            a, b = from_halves(a, type_), from_halves(b, type_)
        if flush:
            a, b = rounding.flush(a), rounding.flush(b)
        return compare(a, b)

    return run


def _halves(builder: Builder, ins: Instruction, true_bits: int) -> Callable[[Machine], Array]:
    """Return a function that maps a machine to the comparison of packed halves, operands 1 and 2.

    Each half of the result is `true_bits` where the comparison of these halves holds, otherwise 0.
    """
    sources = [builder.source(operand, "b32") for operand in ins.operands[1:3]]
    compare, type_ = compare_arrays(ins.modifiers[0], True), ins.modifiers[-1]

    def half(x: Array, y: Array) -> Array:
        return np.where(compare(from_halves(x, type_), from_halves(y, type_)), np.uint16(true_bits), np.uint16(0))

    compare_both = in_parts(half, 16, 32)
    return lambda machine: compare_both(*[machine.array(source, UNSIGNED[32]) for source in sources])


def _third(builder: Builder, ins: Instruction) -> Callable[[Machine, Array], Array]:
    """Return a function that combines the result of a comparison with operand 3, by `and`, `or` or `xor`.

    If the instruction has no boolean operator, the function returns the result as it is.
    """
    combine = next((_BOOLEAN[word] for word in ins.modifiers[1:] if word in _BOOLEAN), None)
    if combine is None:
        return lambda machine, result: result
    third = builder.predicate(ins.operands[3])
    return lambda machine, result: combine(result, machine.predicate(*third))


@instruction("setp")
def _setp(builder: Builder, ins: Instruction) -> Run:
    """Build setp: a comparison, which may be combined with a predicate.

    A second destination gets the opposite of the comparison, combined with the same predicate.
    """
    into, type_ = ins.operands[0], ins.modifiers[-1]
    first, second = into if isinstance(into, Pair) else (into, None)
    targets = [builder.target(item) for item in (first, second) if item is not None]
    if type_ not in _PAIRS:
        compare = comparison(builder, ins, type_)
    elif second is None:
        raise refuse(ins)
    else:
        compare = _halves(builder, ins, 1)
    third = _third(builder, ins)

    def run(machine: Machine) -> None:
        result = compare(machine)
        parts = (result & np.uint32(1) != 0, result >> np.uint32(16) != 0) if type_ in _PAIRS else (result, ~result)
        for target, part in zip(targets, [third(machine, part) for part in parts], strict=False):
            machine.put(target, part)

    return run


@instruction("set")
def _set(builder: Builder, ins: Instruction) -> Run:
    """Build set: a comparison whose result, if true, is an integer of all ones or the float 1.0."""
    result, type_ = ins.modifiers[-2:]
    target = builder.target(ins.operands[0])
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}
    if type_ in _PAIRS:
        halves = _halves(builder, ins, ones.get(result[:-2], 0xFFFF))
        return lambda machine: machine.put(target, halves(machine))
    compare, third = comparison(builder, ins, type_), _third(builder, ins)
    dtype = UNSIGNED[BITS[result]]
    true_value = dtype.type(ones.get(result, (1 << BITS[result]) - 1))

    def run(machine: Machine) -> None:
        machine.put(target, np.where(third(machine, compare(machine)), true_value, dtype.type(0)))

    return run


@instruction("selp")
def _selp(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    target, first, second = registers(builder, ins, type_, type_)
    condition, dtype = builder.predicate(ins.operands[3]), DTYPES[type_]

    def run(machine: Machine) -> None:
        x, y = machine.array(first, dtype), machine.array(second, dtype)
        machine.put(target, np.where(machine.predicate(*condition), x, y))

    return run


@instruction("slct")
def _slct(builder: Builder, ins: Instruction) -> Run:
    type_, kind = ins.modifiers[-2:]
    return elementwise(builder, ins, (type_, type_, kind), type_, lambda x, y, z: np.where(z >= 0, x, y))
