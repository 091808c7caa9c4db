"""Tensor cores of warp groups: wgmma.mma_async with its fences and waits (PTX ISA 9.7.15.5).

Four warps hold D (64 x n) in registers, 16 rows each, as mma.sync has them; A (64 x k) comes from registers or, like
B (k x n), from shared memory, where a descriptor says how it lies. Products are there at once; what a kernel may rely
on is checked where its code is decoded: results are read behind a wait for their group, and a fence stands before the
first product.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cudabench.simulator.isa import accumulate
from cudabench.simulator.isa.access import MemoryOp
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.tensor import (
    ELEMENT_BITS,
    FP8,
    Fragment,
    Result,
    Shape,
    meeting,
    multiplied,
    unpacked,
)
from cudabench.simulator.isa.warp import active
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Refuse
from cudabench.simulator.program.ptx import Immediate, Instruction, Operand, Vector
from cudabench.simulator.program.warpgroups import Step
from cudabench.simulator.values import BOOL, DTYPES, UNSIGNED, Array, broadcast, different

_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, **dict.fromkeys((*FP8, "s8", "u8"), 32), "b1": 256}
_ROWS = 16  # of a warp
_GROUP = 4  # warps
_CHUNK = 16  # bytes that lie together in every layout
_SPANS = {0: 1, 3: 2, 2: 4, 1: 8}  # chunks of a swizzled row, by the descriptor's mode: none, 32, 64 and 128 bytes


class Descriptor:
    """A matrix in shared memory, by the 64 bits of its descriptor: bytes but for `mode` (PTX ISA 9.7.15.5.1.2)."""

    def __init__(self, bits: int) -> None:
        self.start = (bits & 0x3FFF) << 4
        self.leading = (bits >> 16 & 0x3FFF) << 4
        self.stride = (bits >> 32 & 0x3FFF) << 4
        self.base_offset = bits >> 49 & 7
        self.mode = bits >> 62

    def chunks(self, outer: int, depth: int, along_depth: bool) -> Array:
        """Return the offset of every 16 bytes of a matrix: (outer, depth / their elements) where rows run along the
        depth, else (depth, outer / their elements); both sides are given as they are, one of them in chunks."""
        span = _SPANS[self.mode]
        line, chunk = np.arange(outer if along_depth else depth)[:, None], np.arange(depth if along_depth else outer)
        if along_depth:
            place = line % 8 * (span * _CHUNK) + line // 8 * self.stride
            # Without a swizzle the chunks of a row are apart; with one they lie side by side.
            place = place + (chunk * self.leading if span == 1 else chunk * _CHUNK)
        elif span == 1:
            place = line % 8 * _CHUNK + line // 8 * self.leading + chunk * self.stride
        else:
            place = line % 8 * (span * _CHUNK) + line // 8 * self.stride
            place = place + chunk % span * _CHUNK + chunk // span * self.leading
        place = place + self.start
        return place ^ (((place >> 7) - self.base_offset & (span - 1)) << 4)


class Matrix:
    """A or B in shared memory, as one wgmma reads it."""

    def __init__(self, builder: Builder, operand: Operand, outer: int, depth: int, type_: str, turned: bool) -> None:
        self.register = builder.source(operand, "b64")
        self.outer, self.depth, self.type, self.turned = outer, depth, type_, turned
        self.access = MemoryOp(builder, "load", UNSIGNED[64], 2, "shared")
        builder.proxies = True
        self.known: dict[int, Array] = {}

    def places(self, bits: int) -> Array:
        """Return the offsets of the matrix' chunks for a descriptor."""
        if bits not in self.known:
            each = 8 * _CHUNK // ELEMENT_BITS[self.type]
            sides = (self.outer // each, self.depth) if self.turned else (self.outer, self.depth // each)
            self.known[bits] = Descriptor(bits).chunks(*sides, not self.turned)
        return self.known[bits]

    def read(self, machine: Machine, warps: Array, mine: Array) -> Array:
        """Return the numbers (blocks, warps chosen, outer, depth).

        warps: the warps that multiply, of all blocks; mine: which of them do, (blocks, warps).
        """
        chunk = machine.chunk
        words = machine.array(self.register, UNSIGNED[64])
        words = broadcast(words, chunk.shape).reshape(chunk.blocks, chunk.warps, 32)[:, warps, 0]
        first = words[mine][0]
        if (words[mine] == first).all():
            return self.gather(machine, int(first), slice(None), mine, warps)[:, None]
        found: Array = np.zeros((chunk.blocks, len(warps), self.outer, self.depth), self.numbers(1).dtype)
        for bits in different(words[mine]).tolist():
            for place in range(len(warps)):
                chosen = mine[:, place] & (words[:, place] == bits)
                if chosen.any():
                    only = np.zeros_like(mine)
                    only[:, place] = chosen
                    found[chosen, place] = self.gather(machine, bits, chosen, only, warps)
        return found

    def numbers(self, blocks: int) -> Array:
        """Return a matrix of zeros for each block."""
        words = self.outer * self.depth * ELEMENT_BITS[self.type] // 32
        return unpacked(np.zeros((blocks, words), np.uint32), self.type)

    def gather(self, machine: Machine, bits: int, blocks: Any, mine: Array, warps: Array) -> Array:
        """Return the numbers (blocks, outer, depth) of a descriptor."""
        places = self.places(bits)
        if int(places.max()) + _CHUNK > machine.shared_size:
            self.outside(machine, places, mine, warps)
            return self.numbers(len(mine[blocks])).reshape(-1, self.outer, self.depth)
        self.note(machine, places, mine, warps)
        lines = machine.shared.view(np.uint64).reshape(len(mine), -1, 2)[blocks][:, places // _CHUNK]
        words = np.ascontiguousarray(lines).view(np.uint32).reshape(*lines.shape[:2], -1)
        found = unpacked(words, self.type)
        return np.swapaxes(found, 1, 2) if self.turned else found

    def note(self, machine: Machine, places: Array, mine: Array, warps: Array) -> None:
        """Log the reads, 16 bytes a lane, each chunk for one lane of each warp group that multiplies."""
        chunk = machine.chunk
        groups = different(warps // _GROUP)
        flat = places.reshape(-1)
        for group in groups.tolist():
            own = warps // _GROUP == group
            lanes = np.flatnonzero(np.isin(np.arange(chunk.threads) // 32, warps[own]))
            blocks = mine[:, own].any(axis=1)
            if not blocks.any():
                continue
            machine.proxies.read(self.access.location, blocks, flat // _CHUNK, lanes, "wgmma")
            for start in range(0, flat.size, lanes.size):
                part = flat[start : start + lanes.size]
                address: Array = np.zeros((1, chunk.threads), np.int64)
                address[0, lanes[: part.size]] = part
                mask: Array = np.zeros((1, chunk.threads), bool)
                mask[0, lanes[: part.size]] = True
                if not blocks.all():
                    mask = mask & blocks[:, None]
                machine.shared_races.log(self.access, address, 0, mask, ())

    def outside(self, machine: Machine, places: Array, mine: Array, warps: Array) -> None:
        """Record a matrix that reaches beyond the shared memory."""
        chunk = machine.chunk
        lanes = np.zeros((chunk.blocks, chunk.warps, 32), bool)
        lanes[:, warps, 0] = mine
        address = np.full(chunk.shape, int(places.max()), np.int64)
        machine.hazards.outside(
            machine, self.access, lanes.reshape(chunk.shape), address, _CHUNK, 0, machine.shared_size
        )


def _sign(operand: Operand) -> int:
    """Return a scale, 1 or -1."""
    assert isinstance(operand, Immediate)
    return -1 if operand.value & 0x80000000 or operand.value < 0 else 1


def _types(ins: Instruction) -> tuple[str, str, str]:
    """Return the types of D, A and B. Raises Refuse for a combination that is none."""
    words = [word for word in ins.modifiers if word in ELEMENT_BITS]
    if len(words) != 3 or words[1] not in _DEPTH:
        raise refuse(ins)
    outer, a, b = words
    if a in ("f16", *FP8):
        outers: tuple[str, ...] = ("f16", "f32")
    else:
        outers = ("f32",) if a in ("bf16", "tf32") else ("s32",)
    if outer not in outers or not (a == b or {a, b} <= set(FP8) or {a, b} <= {"s8", "u8"}):
        raise refuse(ins)
    return outer, a, b


@instruction("wgmma")
def _wgmma(builder: Builder, ins: Instruction) -> Op:
    kind = ins.modifiers[0]
    if kind in ("fence", "commit_group", "wait_group"):
        op = meeting(lambda machine: None, ins)
        left = ins.operands[0].value if ins.operands and isinstance(ins.operands[0], Immediate) else 0
        builder.products[id(op)] = Step({"fence": "fence", "commit_group": "commit"}.get(kind, "wait"), left=left)  # type: ignore[arg-type]
        return op
    if kind != "mma_async" or "sp" in ins.modifiers:
        raise Refuse(f"sparse tensor cores ({ins.text})")
    text = next((word for word in ins.modifiers if re.fullmatch(r"m64n\d+k\d+", word)), None)
    if text is None:
        raise refuse(ins)
    outer, type_a, type_b = _types(ins)
    shape = Shape.of(text)._replace(m=_ROWS)
    if shape.k != _DEPTH[type_a] or shape.n % 8 or not 8 <= shape.n <= 256:
        raise refuse(ins)
    return _product(builder, ins, shape, outer, type_a, type_b)


def _product(builder: Builder, ins: Instruction, shape: Shape, outer: str, type_a: str, type_b: str) -> Op:
    into, first, second, *rest = ins.operands
    from_registers = isinstance(first, Vector)
    signs, turned = [1, 1], [False, False]
    add: tuple[int, bool] | bool = True
    if rest:
        scale = rest.pop(0)
        add = bool(scale.value) if isinstance(scale, Immediate) else builder.predicate(scale)
    if type_a not in ("s8", "u8", "b1"):
        signs = [_sign(rest.pop(0)), _sign(rest.pop(0))]
        flags = [isinstance(word, Immediate) and bool(word.value) for word in rest]
        turned = [False, *flags] if from_registers else flags
        turned = [*turned, False, False][:2]
    matrix_b = Matrix(builder, second, shape.n, shape.k, type_b, turned[1])
    a_matrix: Fragment | Matrix
    if isinstance(first, Vector):
        a_matrix = Fragment(builder, first, "a", shape, type_a)
    else:
        a_matrix = Matrix(builder, first, _GROUP * _ROWS, shape.k, type_a, turned[0])
    result = Result(builder, into, shape, outer)
    old = Fragment(builder, into, "c", shape, outer) if add is not False else None

    def sums(machine: Machine, warps: Array) -> Array:
        """Return C (blocks or 1, warps, 16, n)."""
        zero: Array = np.zeros((1, len(warps), _ROWS, shape.n), DTYPES[outer])
        if old is None:
            return zero
        keeps: Any = True
        if not isinstance(add, bool):
            value = broadcast(machine.array(add[0], BOOL), machine.chunk.shape) != add[1]
            keeps = value.reshape(machine.chunk.blocks, machine.chunk.warps, 32)[:, warps, 0]
            if not keeps.any():
                return zero
            keeps = True if keeps.all() else keeps[:, :, None, None]
        c = old.read(machine, warps)
        return c if keeps is True else np.where(keeps, c, zero)

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        mine = np.broadcast_to(active(machine)[..., 0], (chunk.blocks, chunk.warps))
        warps = np.flatnonzero(mine.any(axis=0))
        mine = mine[:, warps]
        b = np.swapaxes(matrix_b.read(machine, warps, mine), -1, -2)
        if isinstance(a_matrix, Fragment):
            a = a_matrix.read(machine, warps)
        else:
            whole = a_matrix.read(machine, warps, mine)
            whole = np.broadcast_to(whole, (whole.shape[0], len(warps), *whole.shape[2:]))
            rows = (warps % _GROUP)[:, None] * _ROWS + np.arange(_ROWS)
            a = whole[:, np.arange(len(warps))[:, None], rows]
        c = sums(machine, warps)
        if signs[0] != signs[1]:
            a = -a
        if outer == "s32":
            found = multiplied(a, b, c, type_a, outer, "rn", ("satfinite",) if "satfinite" in ins.modifiers else ())
        else:
            found = accumulate.accumulated(a, b, c, type_a, type_b, outer)
        blocks, lanes = found.shape[0], result.lanes(found)
        every: Array = np.zeros((len(result.targets), blocks, chunk.warps, 32), lanes.dtype)
        every[:, :, warps] = np.moveaxis(lanes, -1, 0)
        for element, target in enumerate(result.targets):
            machine.put(target, every[element].reshape(blocks, -1))

    op = meeting(run, ins)
    fragment = a_matrix.registers if isinstance(a_matrix, Fragment) else ()
    builder.products[id(op)] = Step("product", tuple(result.targets), tuple(fragment))
    return op
