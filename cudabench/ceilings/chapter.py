"""All microbenchmarks of `kernels_cu/ceilings.cu`, and what their machine code must hold on a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cudabench.ceilings import arithmetic, latency, memory
from cudabench.ceilings.benchmark import Microbenchmark
from cudabench.ceilings.code import Claim

ORIN_START = 20  # instructions that ptxas lets every kernel for sm_87 begin with

BY_NAME: Mapping[str, Microbenchmark] = {one.name: one for one in (*memory.ALL, *arithmetic.ALL, *latency.ALL)}


def claim_of(benchmark: Microbenchmark, compute_capability: tuple[int, int]) -> Claim:
    """Return what a microbenchmark's machine code must hold for a compute capability."""
    if benchmark.name == "tensor-fp64" and (9, 0) <= compute_capability < (10, 0):
        return replace(benchmark.claim, fmas={"DMMA": arithmetic.fp64_fmas(hopper=True)})
    if compute_capability == (8, 7) and not benchmark.claim.loop:
        return replace(benchmark.claim, others=benchmark.claim.others + ORIN_START)
    return benchmark.claim
