"""The values of special registers (PTX ISA 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator import clusters
from cudabench.simulator.program.code import GRID_BARRIER
from cudabench.simulator.values import ZERO, Value, uniform

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


def special(machine: Machine, name: str) -> Value:
    """Return the value of a special register, such as `%tid.x`, for all lanes of the chunk."""
    chunk = machine.chunk
    base, _, axis = name.partition(".")
    place = "xyz".find(axis) if axis else 0
    if base == "%tid":
        return chunk.axes[place].astype(np.uint32)
    if base == "%ctaid":
        return chunk.block_indices()[place].reshape(-1, 1).astype(np.uint32)
    dims = machine.plan.cluster or (1, 1, 1)
    alike = {
        "%ntid": chunk.block[place], "%nctaid": chunk.grid[place], "%nwarpid": chunk.warps, "WARP_SZ": 32,
        "%smid": 0, "%nsmid": 1, "%gridid": 0,
        "%dynamic_smem_size": machine.dynamic_shared, "%total_smem_size": machine.shared_size,
        GRID_BARRIER[0]: machine.grid_barrier >> 32, GRID_BARRIER[1]: machine.grid_barrier & 0xFFFFFFFF,
        "%cluster_nctaid": dims[place], "%cluster_nctarank": dims[0] * dims[1] * dims[2],
        "%nclusterid": chunk.grid[place] // dims[place],
    }  # fmt: skip
    if base in alike:
        return uniform(alike[base], 32)
    if base == "%is_explicit_cluster":
        return uniform(machine.plan.cluster is not None, 1)
    if base == "%cluster_ctarank":
        members = clusters.chunk_clusters(machine)
        return ZERO if members is None else members.rank.reshape(-1, 1).astype(np.uint32)
    if base in ("%clusterid", "%cluster_ctaid"):
        block = chunk.block_indices()[place].reshape(-1, 1)
        return (block // dims[place] if base == "%clusterid" else block % dims[place]).astype(np.uint32)
    number = np.arange(chunk.threads, dtype=np.uint32).reshape(1, -1)
    if name == "%warpid":
        return number >> np.uint32(5)
    lane = number & np.uint32(31)
    bit = np.left_shift(np.uint32(1), lane)
    below = bit - np.uint32(1)
    return {
        "%laneid": lane, "%lanemask_eq": bit, "%lanemask_lt": below, "%lanemask_le": bit | below,
        "%lanemask_gt": ~(bit | below), "%lanemask_ge": ~below,
    }[name]  # fmt: skip
