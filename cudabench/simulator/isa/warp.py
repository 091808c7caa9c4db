"""Warp-wide instructions: shuffles, votes, matches, reductions (PTX ISA 9.7.9.6, 9.7.13.8 to 9.7.13.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench.simulator.check.members import examine, function_name
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Run
from cudabench.simulator.program.ptx import Instruction, Location, Operand, Pair
from cudabench.simulator.values import BOOL, DTYPES, UNSIGNED, Affine, Array, as_array, broadcast, canonical, truth

_U32 = UNSIGNED[32]
POISON = np.uint32(0xFFFFFFFF)  # NaN as a float


def collective(builder: Builder, ins: Instruction, run: Run, members: int | None) -> Op:
    """Return an op at which the lanes of a warp meet: those that the member mask names, or (None) all of them."""

    def named(machine: Machine) -> Array | None:
        if members is None:
            return None
        return as_array(machine.registers[members], _U32, machine.chunk)

    def meet(machine: Machine) -> None:
        who: Array | None = None
        if members is not None:
            value = machine.registers[members]
            if type(value) is not Affine or value.base & 0xFFFFFFFF != 0xFFFFFFFF or value.coefficients is not None:
                who = as_array(value, _U32, machine.chunk)
                if (who == np.uint32(0xFFFFFFFF)).all():
                    who = None
            if who is not None or machine.exited is not None:
                who = examine(machine, op, who)
        machine.shared_races.warp_sync(machine.mask, who)
        machine.global_races.warp_sync(machine.mask, who)
        run(machine)

    op = Op(meet, "collective", ins.location)
    op.members = named
    op.function = function_name(ins)
    return op


def _member_mask(builder: Builder, operand: Operand) -> int:
    return builder.source(operand, "b32")


def build_warp_sync(builder: Builder, ins: Instruction) -> Op:
    """Build bar.warp.sync."""
    members = _member_mask(builder, ins.operands[0])
    return collective(builder, ins, lambda machine: None, members)


def by_warp(machine: Machine, array: Array) -> Array:
    """Return an array broadcast to (blocks or 1, warps, 32)."""
    chunk = machine.chunk
    full = broadcast(array, (array.shape[0], chunk.threads))
    return full.reshape(array.shape[0], chunk.warps, 32)


def active(machine: Machine) -> Array:
    """Return the active lanes as (blocks or 1, warps, 32)."""
    if machine.mask is None:
        return np.ones((1, machine.chunk.warps, 32), dtype=bool)
    return by_warp(machine, machine.mask)


def as_bits(lanes: Array) -> Array:
    """Return bools (..., 32) as 32-bit masks (..., 1)."""
    packed = np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little")
    return packed.view(np.uint32)


def _targets(builder: Builder, ins: Instruction) -> tuple[int, int | None]:
    """Return the register and the predicate, if it has one, that an instruction writes: `d` or `d|p`."""
    into = ins.operands[0]
    if isinstance(into, Pair):
        return builder.target(into.first), builder.target(into.second)
    return builder.target(into), None


@instruction("shfl")
def build_shfl(builder: Builder, ins: Instruction) -> Op:
    """Build shfl.sync: read another lane's register (PTX ISA 9.7.9.6)."""
    words = ins.modifiers
    mode = next(word for word in words if word in ("up", "down", "bfly", "idx"))
    target, predicate = _targets(builder, ins)
    source, lane, clamp = (builder.source(operand, "b32") for operand in ins.operands[1:4])
    members = _member_mask(builder, ins.operands[4]) if len(ins.operands) > 4 else None
    own = np.arange(32, dtype=np.int64)

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        value = as_array(machine.registers[source], _U32, chunk)
        b = by_warp(machine, as_array(machine.registers[lane], _U32, chunk)).astype(np.int64) & 31
        c = by_warp(machine, as_array(machine.registers[clamp], _U32, chunk)).astype(np.int64)
        segment = (c >> 8) & 31
        bound = c & 31
        high = (own & segment) | (bound & ~segment)
        low = own & segment
        if mode == "up":
            other = own - b
            valid = other >= high
        elif mode == "down":
            other = own + b
            valid = other <= high
        elif mode == "bfly":
            other = own ^ b
            valid = other <= high
        else:
            other = low | (b & ~segment)
            valid = other <= high
        other = np.where(valid, other, own)
        undefined = _undefined(machine, ins.location, members, other)
        if predicate is not None:
            machine.put(predicate, truth(valid.reshape(valid.shape[0], -1)))
        if value.shape[1] == 1 and undefined is None:
            machine.put(target, machine.registers[source])
            return
        wide = by_warp(machine, value)
        if other.shape[0] == 1 and value.shape[1] > 1:
            base = (np.arange(chunk.warps, dtype=np.int64) * 32)[:, None]
            index = (np.broadcast_to(other[0], (chunk.warps, 32)) + base).reshape(-1)
            found = value.take(index, axis=1)
        else:
            blocks = max(other.shape[0], wide.shape[0])
            found = np.take_along_axis(
                np.broadcast_to(wide, (blocks, chunk.warps, 32)),
                np.broadcast_to(other, (blocks, chunk.warps, 32)),
                axis=2,
            ).reshape(blocks, -1)
        if undefined is not None:
            found = np.where(undefined, POISON, found)
        machine.put(target, canonical(found))

    return collective(builder, ins, run, members)


def _undefined(machine: Machine, location: Location, members: int | None, other: Array) -> Array | None:
    """Return the lanes (blocks or 1, threads) that shuffle from one that is elsewhere or that their mask leaves out.

    None where there are none. That is no hazard by itself: reductions of less than a warp do so in lanes whose result
    nobody reads. What such a lane gets is undefined; here it is poison, so that a result in which it is used is wrong.
    """
    named: Any = np.uint32(0xFFFFFFFF)
    if members is not None:
        named = by_warp(machine, as_array(machine.registers[members], _U32, machine.chunk))
    if machine.mask is None and (named == np.uint32(0xFFFFFFFF)).all():
        return None
    lanes = active(machine)
    shape = np.broadcast_shapes(lanes.shape, other.shape, np.shape(named))
    here = np.take_along_axis(broadcast(lanes, shape), broadcast(other, shape), axis=2)
    asked = (named >> other.astype(np.uint32) & np.uint32(1)).astype(bool)
    undefined = lanes & (other != np.arange(32)) & ~(here & asked)
    if not undefined.any():
        return None
    flat = (shape[0], machine.chunk.threads)
    undefined = undefined.reshape(flat)
    machine.hazards.undefined_shuffle(machine, location, undefined, broadcast(other, shape).reshape(flat))
    return undefined


def _per_warp(machine: Machine, result: Array) -> Array:
    """Return (blocks, warps, 1) or (blocks, warps, 32) as (blocks, threads)."""
    shape = (result.shape[0], machine.chunk.warps, 32)
    full = result if result.shape == shape else np.broadcast_to(result, shape)
    return np.ascontiguousarray(full).reshape(result.shape[0], -1)


@instruction("vote")
def build_vote(builder: Builder, ins: Instruction) -> Op:
    """Build vote.sync: all, any, uni and ballot."""
    mode = next(word for word in ins.modifiers if word in ("all", "any", "uni", "ballot"))
    target = builder.target(ins.operands[0])
    source, flip = builder.predicate(ins.operands[1])
    members = _member_mask(builder, ins.operands[2]) if len(ins.operands) > 2 else None

    def run(machine: Machine) -> None:
        value = as_array(machine.registers[source], BOOL, machine.chunk)
        values = by_warp(machine, ~value if flip else value)
        lanes = active(machine)
        named: Any = np.uint32(0xFFFFFFFF)
        if members is not None:
            # Each lane votes with the lanes that it names.
            named = by_warp(machine, as_array(machine.registers[members], _U32, machine.chunk))
        yes, no = as_bits(values & lanes) & named, as_bits(~values & lanes) & named
        if mode == "ballot":
            machine.put(target, canonical(_per_warp(machine, yes)))
            return
        result = {"any": yes != 0, "all": no == 0, "uni": (yes == 0) | (no == 0)}[mode]
        machine.put(target, truth(_per_warp(machine, result)))

    return collective(builder, ins, run, members)


@instruction("activemask")
def build_activemask(builder: Builder, ins: Instruction) -> Run:
    """Build activemask."""
    target = builder.target(ins.operands[0])

    def run(machine: Machine) -> None:
        machine.put(target, _per_warp(machine, as_bits(active(machine))))

    return run


@instruction("match")
def build_match(builder: Builder, ins: Instruction) -> Op:
    """Build match.any and match.all: the lanes that hold the same value."""
    all_ = "all" in ins.modifiers
    type_ = ins.modifiers[-1]
    target, predicate = _targets(builder, ins)
    source = builder.source(ins.operands[1], type_)
    members = _member_mask(builder, ins.operands[2])

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        values = by_warp(machine, as_array(machine.registers[source], DTYPES[type_], chunk))
        lanes = active(machine)
        named = by_warp(machine, as_array(machine.registers[members], _U32, chunk))
        # inside[..., i, j]: lane i names lane j, which is here.
        inside = ((named[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool) & lanes[
            ..., None, :
        ]
        blocks = max(values.shape[0], inside.shape[0])
        values = np.broadcast_to(values, (blocks, chunk.warps, 32))
        inside = np.broadcast_to(inside, (blocks, chunk.warps, 32, 32))
        same = (values[..., :, None] == values[..., None, :]) & inside
        bits = as_bits(same)[..., 0]
        if not all_:
            machine.put(target, bits.reshape(blocks, -1))
            return
        whole = (same | ~inside).all(axis=3)
        machine.put(target, np.where(whole, bits, np.uint32(0)).reshape(blocks, -1))
        if predicate is not None:
            machine.put(predicate, whole.reshape(blocks, -1))

    return collective(builder, ins, run, members)


@instruction("redux")
def build_redux(builder: Builder, ins: Instruction) -> Op:
    """Build redux.sync: a reduction over the warp."""
    name = next(word for word in ins.modifiers if word in ("add", "min", "max", "and", "or", "xor"))
    type_ = ins.modifiers[-1]
    target = builder.target(ins.operands[0])
    source = builder.source(ins.operands[1], type_)
    members = _member_mask(builder, ins.operands[2])
    dtype = DTYPES[type_]
    functions: dict[str, Callable[..., Any]] = {
        "add": np.add.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
        "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
    }  # fmt: skip
    function = functions[name]
    if dtype.kind == "f" and name not in ("min", "max"):
        raise refuse(ins)
    if dtype.kind == "f":
        function = np.fmin.reduce if name == "min" else np.fmax.reduce
        neutral: Any = dtype.type(np.inf if name == "min" else -np.inf)
        if "abs" in ins.modifiers or "NaN" in ins.modifiers:
            raise refuse(ins)
    else:
        info = np.iinfo(dtype)
        neutral = dtype.type(
            {"add": 0, "or": 0, "xor": 0, "and": -1 if info.min < 0 else info.max, "min": info.max, "max": info.min}[
                name
            ]
        )

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        values = by_warp(machine, as_array(machine.registers[source], dtype, chunk))
        lanes = active(machine)
        named = by_warp(machine, as_array(machine.registers[members], _U32, chunk))
        own = named[..., :1] if named.shape[-1] == 1 or (named == named[..., :1]).all() else named
        if own.shape[-1] == 1:
            inside = lanes
            result = function(np.where(inside, values, neutral), axis=2)[..., None]
            machine.put(target, _per_warp(machine, result.astype(dtype)))
            return
        total = np.zeros((max(values.shape[0], own.shape[0], lanes.shape[0]), chunk.warps, 32), dtype=dtype)
        for lane in range(32):
            inside = ((own[..., lane : lane + 1] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool) & lanes
            total[..., lane] = function(np.where(inside, values, neutral), axis=2)
        machine.put(target, total.reshape(total.shape[0], -1))

    return collective(builder, ins, run, members)


@instruction("elect")
def build_elect(builder: Builder, ins: Instruction) -> Op:
    """Build elect.sync: the lowest active lane is chosen."""
    into = ins.operands[0]
    if not isinstance(into, Pair):
        raise refuse(ins)
    target, predicate = builder.target(into.first), builder.target(into.second)
    members = _member_mask(builder, ins.operands[1])

    def run(machine: Machine) -> None:
        lanes = active(machine)
        first = lanes.argmax(axis=2)[..., None]
        machine.put(target, _per_warp(machine, first.astype(np.uint32)))
        machine.put(predicate, truth(_per_warp(machine, (np.arange(32) == first) & lanes)))

    return collective(builder, ins, run, members)
