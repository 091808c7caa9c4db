"""Imports all modules that register instruction builders, and registers the opcodes that the simulator refuses."""

from __future__ import annotations

from functools import partial

from cudabench.simulator.isa import (  # noqa: F401 - imported for what they register
    atomics,
    bits,
    control,
    conversions,
    copies,
    floating,
    integer,
    load_store,
    mbarrier,
    moves,
    syscalls,
    tensor,
    textures,
    video,
    warp,
    warpgroup,
)
from cudabench.simulator.isa.opcodes import instruction
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Instruction

_REFUSED = {
    "surface reductions and texture types": ("sured", "istypep"),
    "tensor cores with memory of their own (tcgen05)": ("tcgen05",),
    "launches by a cluster (clusterlaunchcontrol)": ("clusterlaunchcontrol",),
    "dynamic stack allocation (alloca)": ("alloca", "stacksave", "stackrestore"),
    "multimem": ("multimem",),
    "address space tricks (tensormap)": ("tensormap",),
}  # fmt: skip


def _refused(feature: str, builder: Builder, ins: Instruction) -> Run:
    raise Refuse(feature)


for _feature, _opcodes in _REFUSED.items():
    instruction(*_opcodes)(partial(_refused, _feature))
