"""Warp-wide instructions: shuffles, votes, matches, reductions (PTX ISA 9.7.9.6, 9.7.13.8 to 9.7.13.11)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.check.members import check_masks, function_name
from cudabench.simulator.isa.elementwise import REDUCE, limits
from cudabench.simulator.isa.opcodes import instruction, items, refuse, registers
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Run
from cudabench.simulator.program.ptx import Instruction, Location
from cudabench.simulator.values import DTYPES, UNSIGNED, Array, broadcast

_U32 = UNSIGNED[32]
POISON = np.uint32(0xFFFFFFFF)  # an undefined value, which is NaN as a float; also the mask of all 32 lanes


def collective(builder: Builder, ins: Instruction, run: Run, members: int | None) -> Op:
    """Return an op that lanes of a warp execute together.

    members: the register of the member mask, which names these lanes; None if all lanes take part.
    """

    def run_together(machine: Machine) -> None:
        named: Array | None = None
        if members is not None:
            named = machine.array(members, _U32)
            if (named == POISON).all():
                named = None
            if named is not None or machine.exited is not None:
                named = check_masks(machine, op, named)
        machine.order("sync", machine.mask, named)
        run(machine)

    op = Op(run_together, "collective", ins.location)
    op.members = lambda machine: None if members is None else machine.array(members, _U32)
    op.function = function_name(ins)
    return op


def by_warp(machine: Machine, array: Array) -> Array:
    """Return an array broadcast to all threads, of shape (blocks or 1, warps, 32): dimension 0 keeps its length."""
    return broadcast(array, (len(array), machine.chunk.threads)).reshape(len(array), -1, 32)


def active(machine: Machine) -> Array:
    """Return the mask of active lanes, of shape (blocks, warps, 32).

    The first dimension is 1 if all blocks have the same mask.
    """
    if machine.mask is None:
        return np.ones((1, machine.chunk.warps, 32), dtype=bool)
    return by_warp(machine, machine.mask)


def as_bits(lanes: Array) -> Array:
    """Return bools of shape (..., 32) packed into 32-bit masks of shape (..., 1)."""
    return np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little").view(np.uint32)


# By mode of a shuffle: a function of the lane's own number, operand b and the segment mask, which returns the source
# lane.
_OTHER: dict[str, Callable[[Array, Array, Array], Array]] = {
    "up": lambda own, b, segment: own - b, "down": lambda own, b, segment: own + b,
    "bfly": lambda own, b, segment: own ^ b, "idx": lambda own, b, segment: (own & segment) | (b & ~segment),
}  # fmt: skip


@instruction("shfl")
def _shfl(builder: Builder, ins: Instruction) -> Op:
    mode = next(word for word in ins.modifiers if word in _OTHER)
    target, predicate, *_ = *map(builder.target, items(ins.operands[0])), None
    source, lane, clamp = (builder.source(operand, "b32") for operand in ins.operands[1:4])
    members = builder.source(ins.operands[4], "b32") if len(ins.operands) > 4 else None
    own = np.arange(32, dtype=np.int64)

    def run(machine: Machine) -> None:
        value = machine.array(source, _U32)
        b, c = (by_warp(machine, machine.array(index, _U32)).astype(np.int64) for index in (lane, clamp))
        segment, bound = (c >> 8) & 31, c & 31
        high = (own & segment) | (bound & ~segment)
        other = _OTHER[mode](own, b & 31, segment)
        valid = other >= high if mode == "up" else other <= high
        other = np.where(valid, other, own)
        undefined = _undefined(machine, ins.location, members, other)
        if predicate is not None:
            machine.put(predicate, valid.reshape(valid.shape[0], -1))
        if value.shape[1] == 1 and undefined is None:
            machine.put(target, machine.registers[source])
            return
        wide = by_warp(machine, value)
        shape = (max(other.shape[0], wide.shape[0]), machine.chunk.warps, 32)
        shuffled = np.take_along_axis(np.broadcast_to(wide, shape), np.broadcast_to(other, shape), axis=2)
        shuffled = shuffled.reshape(shape[0], -1)
        if undefined is not None:
            poison = POISON if machine.unwritten is None else np.uint32(machine.unwritten.byte * 0x01010101)
            shuffled = np.where(undefined, poison, shuffled)
        machine.put(target, shuffled)

    return collective(builder, ins, run, members)


def _member_masks(machine: Machine, members: int | None) -> Array:
    """Return the member mask of each lane, as 32-bit masks that broadcast to (blocks, warps, 32)."""
    return POISON if members is None else by_warp(machine, machine.array(members, _U32))


def _as_bools(named: Array) -> Array:
    """Return 32-bit masks unpacked into bools, with a new last axis of length 32."""
    return ((named[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)


def _undefined(machine: Machine, location: Location, members: int | None, other: Array) -> Array | None:
    """Return a mask of the lanes that shuffle from a lane that is inactive or not in their member mask.

    Its shape is (blocks or 1, threads). Return None if there are no such lanes. The value that such a lane gets is
    undefined; the simulator writes `POISON`, so that a result computed from this value is visibly wrong. Such a shuffle
    alone is not an error: in a reduction of less than a warp there are such lanes, but nothing uses their result.
    """
    masks = _member_masks(machine, members)
    if machine.mask is None and (masks == np.uint32(0xFFFFFFFF)).all():
        return None
    lanes = active(machine)
    shape = np.broadcast_shapes(lanes.shape, other.shape, np.shape(masks))
    source_active = np.take_along_axis(broadcast(lanes, shape), broadcast(other, shape), axis=2)
    source_named = (masks >> other.astype(np.uint32) & np.uint32(1)).astype(bool)
    undefined = lanes & (other != np.arange(32)) & ~(source_active & source_named)
    if not undefined.any():
        return None
    undefined, sources = (np.broadcast_to(part, shape).reshape(shape[0], -1) for part in (undefined, other))
    machine.hazards.undefined_shuffle(machine, location, undefined, sources)
    return undefined


def _per_warp(machine: Machine, result: Array) -> Array:
    """Return an array of shape (blocks, warps, 1) or (blocks, warps, 32), broadcast to shape (blocks, threads)."""
    shape = (result.shape[0], machine.chunk.warps, 32)
    full = result if result.shape == shape else np.broadcast_to(result, shape)
    return np.ascontiguousarray(full).reshape(result.shape[0], -1)


@instruction("vote")
def _vote(builder: Builder, ins: Instruction) -> Op:
    mode = next(word for word in ins.modifiers if word in ("all", "any", "uni", "ballot"))
    target = builder.target(ins.operands[0])
    source = builder.predicate(ins.operands[1])
    members = builder.source(ins.operands[2], "b32") if len(ins.operands) > 2 else None

    def run(machine: Machine) -> None:
        values, lanes = by_warp(machine, machine.predicate(*source)), active(machine)
        masks = _member_masks(machine, members)
        yes, no = as_bits(values & lanes) & masks, as_bits(~values & lanes) & masks
        if mode == "ballot":
            machine.put(target, _per_warp(machine, yes))
            return
        result = (yes != 0) if mode == "any" else (no == 0) | ((yes == 0) & (mode == "uni"))
        machine.put(target, _per_warp(machine, result))

    return collective(builder, ins, run, members)


@instruction("activemask")
def _activemask(builder: Builder, ins: Instruction) -> Run:
    (target,) = registers(builder, ins)
    return lambda machine: machine.put(target, _per_warp(machine, as_bits(active(machine))))


@instruction("match")
def _match(builder: Builder, ins: Instruction) -> Op:
    all_, type_ = "all" in ins.modifiers, ins.modifiers[-1]
    target, predicate, *_ = *map(builder.target, items(ins.operands[0])), None
    source, members = builder.source(ins.operands[1], type_), builder.source(ins.operands[2], "b32")

    def run(machine: Machine) -> None:
        values = by_warp(machine, machine.array(source, DTYPES[type_]))
        # `inside[..., i, j]`: whether lane j is active and in the mask of lane i.
        inside = _as_bools(_member_masks(machine, members)) & active(machine)[..., None, :]
        blocks = max(values.shape[0], inside.shape[0])
        inside = np.broadcast_to(inside, (blocks, machine.chunk.warps, 32, 32))
        same = (values[..., :, None] == values[..., None, :]) & inside
        bits, whole = as_bits(same)[..., 0], (same | ~inside).all(axis=3)
        machine.put(target, (np.where(whole, bits, np.uint32(0)) if all_ else bits).reshape(blocks, -1))
        if predicate is not None:
            machine.put(predicate, whole.reshape(blocks, -1))

    return collective(builder, ins, run, members)


@instruction("redux")
def _redux(builder: Builder, ins: Instruction) -> Op:
    name = next(word for word in ins.modifiers if word in REDUCE)
    type_, dtype, function = ins.modifiers[-1], DTYPES[ins.modifiers[-1]], REDUCE[name]
    target, source, members = registers(builder, ins, type_, "b32")
    if dtype.kind == "f":
        if name not in ("min", "max") or "abs" in ins.modifiers or "NaN" in ins.modifiers:
            raise refuse(ins)
        function, neutral = (np.fmin, dtype.type(np.inf)) if name == "min" else (np.fmax, dtype.type(-np.inf))
    else:
        neutral = dtype.type(limits(type_)[name == "min"] if name in ("min", "max") else 0)
        neutral = ~neutral if name == "and" else neutral

    def run(machine: Machine) -> None:
        values, lanes = by_warp(machine, machine.array(source, dtype)), active(machine)
        masks = _member_masks(machine, members)
        inside = _as_bools(masks) & lanes[..., None, :]
        total = function.reduce(np.where(inside, values[..., None, :], neutral), axis=3)
        machine.put(target, total.astype(dtype).reshape(total.shape[0], -1))

    return collective(builder, ins, run, members)


@instruction("elect")
def _elect(builder: Builder, ins: Instruction) -> Op:
    """Build elect, which returns the number of the lowest active lane, and a predicate that is true in this lane."""
    target, predicate, *_ = *map(builder.target, items(ins.operands[0])), None
    if predicate is None:
        raise refuse(ins)
    members = builder.source(ins.operands[1], "b32")

    def run(machine: Machine) -> None:
        lanes = active(machine)
        first = lanes.argmax(axis=2)[..., None]
        machine.put(target, _per_warp(machine, first.astype(np.uint32)))
        machine.put(predicate, _per_warp(machine, (np.arange(32) == first) & lanes))

    return collective(builder, ins, run, members)
