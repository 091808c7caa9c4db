"""Tensor cores: mma.sync of TF32 and float64 (PTX ISA 9.7.15.5).

A warp holds A (m x k), B (k x n) and C (m x n) in fragments, a few elements a lane. Products of TF32 are exact and
their sum is rounded to float32 once, where the hardware may cut it off; float64 is a chain of fused multiply-adds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.floating import ROUNDINGS, rounding_mode
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.warp import by_warp
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Refuse
from cudabench.simulator.program.ptx import Instruction, Operand, Vector
from cudabench.simulator.values import DTYPES, UNSIGNED, Array, as_array

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


_SHAPES = {  # by the types of A and B, and of C
    ("f64", "f64"): ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    ("tf32", "f32"): ("m16n8k4", "m16n8k8"),
}
_KEPT = np.uint32(0xFFFFE000)  # the bits of a float32 that TF32 has

_LANE = np.arange(32)
_GROUP, _MEMBER = _LANE // 4, _LANE % 4


def places(matrix: str, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return row and column of every element of a fragment of a, b or c: arrays of (lanes, elements)."""
    count = {"a": m * k, "b": k * n, "c": m * n}[matrix] // 32
    element = np.arange(count)
    group, member = _GROUP[:, None], _MEMBER[:, None]
    if matrix == "a":
        high = m // 8
        return group + 8 * (element % high), member + 4 * (element // high)
    if matrix == "b":
        return member + 4 * element, group + 0 * element
    return group + 8 * (element // 2), 2 * member + element % 2


@instruction("mma")
def build_mma(builder: Builder, ins: Instruction) -> Op:
    """Build mma.sync, at which all lanes of a warp meet; it orders no accesses to memory."""
    words = [word for word in ins.modifiers if word not in ROUNDINGS]
    outer, type_ = words[-1], words[-2]
    if words[2] not in _SHAPES.get((type_, outer), ()) or words[-4:-2] != [outer, type_]:
        raise Refuse("tensor cores with other types than TF32 and float64")
    m, n, k = (int(number) for number in re.findall(r"\d+", words[2]))
    inner = "b32" if type_ == "tf32" else "f64"
    mode = rounding_mode(ins)

    def fragment(operand: Operand, matrix: str) -> tuple[Operand, ...]:
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if len(items) != places(matrix, m, n, k)[0].shape[1]:
            raise refuse(ins)
        return items

    sources = {
        matrix: [builder.source(item, type_of) for item in fragment(operand, matrix)]
        for matrix, operand, type_of in zip("abc", ins.operands[1:], (inner, inner, outer), strict=True)
    }
    targets = [builder.target(item) for item in fragment(ins.operands[0], "c")]
    # Where in a row of all lanes' elements the elements of the matrix are.
    gather = {}
    for matrix, (rows, columns) in (("a", (m, k)), ("b", (k, n)), ("c", (m, n))):
        row, column = places(matrix, m, n, k)
        index = np.empty((rows, columns), np.int64)
        index[row, column] = np.arange(row.size).reshape(row.shape)
        gather[matrix] = index
    row, column = places("c", m, n, k)
    scatter = row * n + column

    def collect(machine: Machine, matrix: str, dtype: np.dtype[Any]) -> Array:
        parts = [by_warp(machine, as_array(machine.registers[i], dtype, machine.chunk)) for i in sources[matrix]]
        lanes = np.stack(np.broadcast_arrays(*parts), axis=-1)
        return lanes.reshape(*lanes.shape[:2], -1)[..., gather[matrix]]

    def run(machine: Machine) -> None:
        if type_ == "tf32":
            a, b = ((collect(machine, x, UNSIGNED[32]) & _KEPT).view(np.float32).astype(np.float64) for x in "ab")
            found = (collect(machine, "c", DTYPES[outer]) + np.matmul(a, b)).astype(np.float32)
        else:
            a, b, found = (collect(machine, x, DTYPES[outer]) for x in "abc")
            for step in range(k):
                x, y = np.broadcast_arrays(a[..., :, step, None], b[..., None, step, :])
                found = rounding.fma64(x, y, found) if mode == "rn" else rounding.fma(x, y, found, mode)
        lanes = found.reshape(*found.shape[:2], -1)[..., scatter]
        for element, target in enumerate(targets):
            machine.put(target, np.ascontiguousarray(lanes[..., element]).reshape(lanes.shape[0], -1))

    op = Op(run, "collective", ins.location)
    op.members = lambda machine: None
    return op
