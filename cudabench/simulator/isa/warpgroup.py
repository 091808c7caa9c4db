"""Tensor cores of warp groups: wgmma.mma_async with its fences and waits (PTX ISA 9.7.15.5).

Four warps hold D (64 x n) in registers, 16 rows each, in the layout of mma.sync. A (64 x k) is in registers or shared
memory; B (k x n) is in shared memory. A descriptor gives the layout of a matrix in shared memory. Products are computed
at once. Two rules are checked when the code is decoded: a fence must come before the first product, and before the
results of a product are read, a wait for its group must come.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cudabench.simulator.isa import accumulate
from cudabench.simulator.isa.access import MemoryOp
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.tensor import ELEMENT_BITS, FP8, Fragment, Shape, multiplied, types_of, unpacked, warp_op
from cudabench.simulator.isa.warp import active
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Refuse
from cudabench.simulator.program.ptx import Immediate, Instruction, Operand, Vector
from cudabench.simulator.program.warpgroups import Step
from cudabench.simulator.values import DTYPES, UNSIGNED, Array, broadcast, different

_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, **dict.fromkeys((*FP8, "s8", "u8"), 32), "b1": 256}
_ROWS = 16  # rows of D per warp
_GROUP = 4  # warps per warp group
_CHUNK = 16  # the bytes of a chunk, which is contiguous in every layout
_SPANS = {0: 1, 3: 2, 2: 4, 1: 8}  # by swizzle mode of the descriptor: chunks per swizzled row (16, 32, 64, 128 bytes)


def _chunks(bits: int, outer: int, depth: int, along_depth: bool) -> Array:
    """Return the byte offset of each 16-byte chunk of a matrix in shared memory (PTX ISA 9.7.15.5.1.2).

    bits: the matrix descriptor. The result has shape (outer, depth) if the elements of a chunk are neighbours along the
    depth, otherwise (depth, outer); the second of these two sizes is given in chunks, the first in elements.
    """
    start, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    base_offset, span = bits >> 49 & 7, _SPANS[bits >> 62]
    line, chunk = np.arange(outer if along_depth else depth)[:, None], np.arange(depth if along_depth else outer)
    if along_depth:
        # The chunks of a row are adjacent if the layout is swizzled, otherwise `leading` bytes apart.
        along = chunk * (leading if span == 1 else _CHUNK)
    elif span == 1:
        along, stride = chunk * stride, leading
    else:
        along = chunk % span * _CHUNK + chunk // span * leading
    place = start + line % 8 * (span * _CHUNK) + line // 8 * stride + along
    return place ^ (((place >> 7) - base_offset & (span - 1)) << 4)


class Matrix:
    """A matrix A or B in shared memory, as one wgmma instruction reads it."""

    def __init__(self, builder: Builder, operand: Operand, outer: int, depth: int, type_: str, transpose: bool) -> None:
        self.register = builder.source(operand, "b64")
        self.outer, self.depth, self.type, self.turned = outer, depth, type_, transpose
        self.dtype = unpacked(np.zeros((1, 1), np.uint32), type_).dtype
        self.access = MemoryOp(builder, "load", UNSIGNED[64], 2, "shared")
        builder.proxies = True
        self.known: dict[int, Array] = {}

    def places(self, bits: int) -> Array:
        """Return the byte offsets of the matrix' chunks, for descriptor `bits`."""
        if bits not in self.known:
            per_chunk = 8 * _CHUNK // ELEMENT_BITS[self.type]
            sides = (self.outer // per_chunk, self.depth) if self.turned else (self.outer, self.depth // per_chunk)
            self.known[bits] = _chunks(bits, *sides, not self.turned)
        return self.known[bits]

    def read(self, machine: Machine, warps: Array, active_warps: Array) -> Array:
        """Return the matrices as numbers, of shape (blocks, warps or 1, outer, depth).

        warps: the numbers of the warps that multiply in at least one block; active_warps: which of these multiply in
        each block, of shape (blocks, warps).
        """
        chunk = machine.chunk
        words = broadcast(machine.array(self.register, UNSIGNED[64]), chunk.shape)[:, 32 * warps]
        first = words[active_warps][0]
        if (words[active_warps] == first).all():
            return self.gather(machine, int(first), slice(None), active_warps, warps)[:, None]
        matrix: Array = np.zeros((chunk.blocks, len(warps), self.outer, self.depth), self.dtype)
        for bits in different(words[active_warps]).tolist():
            for place in range(len(warps)):
                selected = active_warps & (words == bits) & (np.arange(len(warps)) == place)
                chosen = selected[:, place]
                if chosen.any():
                    matrix[chosen, place] = self.gather(machine, bits, chosen, selected, warps)
        return matrix

    def gather(self, machine: Machine, bits: int, blocks: Any, active_warps: Array, warps: Array) -> Array:
        """Return the matrix with descriptor `bits` in each of the given blocks, of shape (blocks, outer, depth)."""
        chunk, places = machine.chunk, self.places(bits)
        last, size = int(places.max()), machine.shared_size
        if last + _CHUNK > size:
            lanes: Array = np.zeros(chunk.shape, bool)
            lanes[:, 32 * warps] = active_warps
            address = np.full(chunk.shape, last, np.int64)
            machine.hazards.outside(machine, self.access, lanes, address, _CHUNK, 0, size)
            return np.zeros((len(active_warps[blocks]), self.outer, self.depth), self.dtype)
        self.note(machine, places, active_warps, warps)
        lines = machine.shared.view(np.uint64).reshape(len(active_warps), -1, 2)[blocks][:, places // _CHUNK]
        words = np.ascontiguousarray(lines).view(np.uint32).reshape(*lines.shape[:2], -1)
        matrix = unpacked(words, self.type)
        return np.swapaxes(matrix, 1, 2) if self.turned else matrix

    def note(self, machine: Machine, places: Array, active_warps: Array, warps: Array) -> None:
        """Log the reads for the race checks: in each warp group that multiplies, each chunk is read by one lane."""
        chunk = machine.chunk
        groups = different(warps // _GROUP)
        flat = places.reshape(-1)
        for group in groups.tolist():
            in_group = warps // _GROUP == group
            lanes = np.flatnonzero(np.isin(np.arange(chunk.threads) // 32, warps[in_group]))
            blocks = active_warps[:, in_group].any(axis=1)
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
                machine.shared_races.log(self.access, address, mask, ())


def _sign(operand: Operand) -> int:
    assert isinstance(operand, Immediate)
    return -1 if operand.value & 0x80000000 or operand.value < 0 else 1


@instruction("wgmma")
def _wgmma(builder: Builder, ins: Instruction) -> Op:
    kind = ins.modifiers[0]
    if kind in ("fence", "commit_group", "wait_group"):
        op = warp_op(lambda machine: None, ins)
        left = ins.operands[0].value if ins.operands and isinstance(ins.operands[0], Immediate) else 0
        builder.products[id(op)] = Step({"fence": "fence", "commit_group": "commit"}.get(kind, "wait"), left=left)  # type: ignore[arg-type]
        return op
    if kind != "mma_async" or "sp" in ins.modifiers:
        raise Refuse(f"sparse tensor cores ({ins.text})")
    text = next((word for word in ins.modifiers if re.fullmatch(r"m64n\d+k\d+", word)), None)
    if text is None:
        raise refuse(ins)
    outer, type_a, type_b, _ = types_of(ins)
    shape = Shape.of(text)._replace(m=_ROWS)
    if shape.k != _DEPTH.get(type_a) or shape.n % 8 or not 8 <= shape.n <= 256:
        raise refuse(ins)
    return _product(builder, ins, shape, outer, type_a, type_b)


def _product(builder: Builder, ins: Instruction, shape: Shape, outer: str, type_a: str, type_b: str) -> Op:
    into, first, second, *rest = ins.operands
    signs, transposed = [1, 1], [False, False]
    add: tuple[int, bool] | bool = True
    if rest:
        scale = rest.pop(0)
        add = bool(scale.value) if isinstance(scale, Immediate) else builder.predicate(scale)
    if type_a not in ("s8", "u8", "b1"):
        signs = [_sign(rest.pop(0)), _sign(rest.pop(0))]
        flags = [isinstance(word, Immediate) and bool(word.value) for word in rest]
        transposed = [*[False] * isinstance(first, Vector), *flags, False, False]
    matrix_b = Matrix(builder, second, shape.n, shape.k, type_b, transposed[1])
    a_matrix: Fragment | Matrix
    if isinstance(first, Vector):
        a_matrix = Fragment(builder, first, "a", shape, type_a)
    else:
        a_matrix = Matrix(builder, first, _GROUP * _ROWS, shape.k, type_a, transposed[0])
    result = Fragment(builder, into, "c", shape, outer, result=True)
    old = Fragment(builder, into, "c", shape, outer) if add is not False else None

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        active_warps = np.broadcast_to(active(machine)[..., 0], (chunk.blocks, chunk.warps))
        warps = np.flatnonzero(active_warps.any(axis=0))
        active_warps = active_warps[:, warps]
        b = np.swapaxes(matrix_b.read(machine, warps, active_warps), -1, -2)
        if isinstance(a_matrix, Fragment):
            a = a_matrix.read(machine, warps)
        else:
            whole = a_matrix.read(machine, warps, active_warps)
            whole = np.broadcast_to(whole, (whole.shape[0], len(warps), *whole.shape[2:]))
            rows = (warps % _GROUP)[:, None] * _ROWS + np.arange(_ROWS)
            a = whole[:, np.arange(len(warps))[:, None], rows]
        c = np.zeros((1, len(warps), _ROWS, shape.n), DTYPES[outer]) if old is None else old.read(machine, warps)
        if not isinstance(add, bool):
            keeps = broadcast(machine.predicate(*add), chunk.shape)[:, 32 * warps]
            c = c if keeps.all() else np.where(keeps[:, :, None, None], c, c.dtype.type(0))
        if signs[0] != signs[1]:
            a = -a
        if outer == "s32":
            product = multiplied(a, b, c, type_a, outer, "rn", ins.modifiers)
        else:
            product = accumulate.accumulated(a, b, c, type_a, type_b, outer)
        result.write(machine, product, warps)

    op = warp_op(run, ins)
    fragment = a_matrix.registers if isinstance(a_matrix, Fragment) else ()
    builder.products[id(op)] = Step("product", tuple(result.registers), tuple(fragment))
    return op
