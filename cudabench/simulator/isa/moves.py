"""Moves, addresses, comparisons and selections (PTX ISA 9.7.6, 9.7.7 and 9.7.9)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudabench.simulator.clusters import RANK_SHIFT, REMOTE, chunk_clusters
from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.elementwise import COMPARE, INTEGERS, Function, elementwise, in_parts
from cudabench.simulator.isa.floating import from_halves
from cudabench.simulator.isa.opcodes import instruction, items, refuse, registers
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction, Negated, Symbol, Vector
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
    shift = np.uint64((-window if "to" in ins.modifiers else window) & 0xFFFFFFFFFFFFFFFF)
    return elementwise(builder, ins, ("u64",), "u64", lambda address: address + shift)


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

_BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _unordered(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


def _or_unordered(compare: Function) -> Function:
    return lambda x, y: compare(x, y) | _unordered(x, y)


# The comparisons of floats (PTX ISA 9.3.1). If an operand is NaN, unordered comparisons, such as "ltu", are true, and
# ordered ones, such as "lt" and "ne", are false.
_FLOATS: dict[str, Function] = {
    **COMPARE, "ne": lambda x, y: (x != y) & ~_unordered(x, y), "nan": _unordered,
    "num": lambda x, y: ~_unordered(x, y),
    **{f"{name}u": _or_unordered(COMPARE[name]) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip


def comparison(ins: Instruction, true_bits: int = 1) -> tuple[str, Function]:
    """Return how setp or set compares its operands 1 and 2: the type as which they are read, and the function.

    The function returns bools; for packed halves, a register in which each half is `true_bits` or 0.
    """
    type_, flush = ins.modifiers[-1], "ftz" in ins.modifiers
    half = type_ in ("f16", "bf16", *_PAIRS)
    known = COMPARE if type_ in INTEGERS else _FLOATS if half or type_ in ("f32", "f64") else {}
    compare = known.get(ins.modifiers[0])
    if compare is None:
        raise refuse(ins)

    def function(x: Array, y: Array) -> Array:
        if half:
            x, y = from_halves(x, type_), from_halves(y, type_)
        if flush:
            x, y = rounding.flush(x), rounding.flush(y)
        return compare(x, y)

    if type_ in _PAIRS:
        return "b32", in_parts(lambda x, y: np.where(function(x, y), np.uint16(true_bits), np.uint16(0)), 16, 32)
    return "b16" if half else type_, function


def _with_third(ins: Instruction, result: Array, third: Sequence[Array]) -> Array:
    """Return the result of a comparison, combined with the third operand by `and`, `or` or `xor`, if there is one."""
    return next(_BOOLEAN[word] for word in ins.modifiers if word in _BOOLEAN)(result, *third) if third else result


@instruction("setp")
def _setp(builder: Builder, ins: Instruction) -> Run:
    """Build setp: a comparison, which may be combined with a predicate.

    A second destination gets the opposite of the comparison, combined with the same predicate.
    """
    pairs, targets = ins.modifiers[-1] in _PAIRS, [builder.target(item) for item in items(ins.operands[0])]
    read, compare = comparison(ins)
    if pairs and len(targets) == 1:
        raise refuse(ins)
    sources, dtype = [builder.source(operand, read) for operand in ins.operands[1:3]], DTYPES[read]
    predicates = [builder.predicate(operand) for operand in ins.operands[3:]]

    def run(machine: Machine) -> None:
        result = compare(*[machine.array(source, dtype) for source in sources])
        third = [machine.predicate(*predicate) for predicate in predicates]
        parts = (result & np.uint32(1) != 0, result >> np.uint32(16) != 0) if pairs else (result, ~result)
        for target, part in zip(targets, parts, strict=False):
            machine.put(target, _with_third(ins, part, third))

    return run


@instruction("set")
def _set(builder: Builder, ins: Instruction) -> Run:
    """Build set: a comparison whose result, if true, is an integer of all ones or the float 1.0."""
    result = ins.modifiers[-2]
    one = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}.get(result.removesuffix("x2"), -1)
    pairs = ins.modifiers[-1] in _PAIRS
    read, compare = comparison(ins, 0xFFFF)
    bits = "b32" if pairs else f"b{BITS[result]}"
    dtype = DTYPES[bits].type
    true_value = dtype((one & 0xFFFF) * 0x10001 if pairs else one & (1 << BITS[result]) - 1)

    def function(x: Array, y: Array, *third: Array) -> Array:
        if not pairs:
            return np.where(_with_third(ins, compare(x, y), third), true_value, dtype(0))
        masks = [np.where(each, dtype(0xFFFFFFFF), dtype(0)) for each in third]
        return _with_third(ins, compare(x, y), masks) & true_value

    return elementwise(builder, ins, (read, read, "pred")[: len(ins.operands) - 1], bits, function)


@instruction("selp")
def _selp(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    yes, no, predicate = (builder.register(x.name) if isinstance(x, Symbol) else None for x in ins.operands[1:4])
    for value, when in ((yes, True), (no, False)):
        if value is not None and predicate is not None:
            builder.choices[value] = predicate, when
    return elementwise(builder, ins, (type_, type_, "pred"), type_, lambda x, y, chosen: np.where(chosen, x, y))


@instruction("slct")
def _slct(builder: Builder, ins: Instruction) -> Run:
    type_, kind = ins.modifiers[-2:]
    return elementwise(builder, ins, (type_, type_, kind), type_, lambda x, y, z: np.where(z >= 0, x, y))
