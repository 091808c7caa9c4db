"""The random kernels of benchmarks/random_kernels.py: a few, without a GPU; the benchmark runs thousands on a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.ladders import needs_compiler

PATH = Path(__file__).parents[2] / "benchmarks" / "random_kernels.py"


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("random_kernels", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_seed_is_a_kernel(kernels: ModuleType) -> None:
    """A kernel depends on its seed alone, and different seeds give different kernels."""
    assert kernels.source(40, 3) == kernels.source(40, 3)
    assert kernels.Writer(41).kernel("k41") in kernels.source(40, 3)
    assert kernels.Writer(41).kernel("k") != kernels.Writer(42).kernel("k")


def test_every_statement_is_written(kernels: ModuleType) -> None:
    """Three hundred kernels together use each kind of statement that the generator can write."""
    text = kernels.source(0, 300)
    for word in (
        "switch (", "for (u32 turn", "} else {", "__shfl_", "_sync(", "atomicCAS(", "atomicAdd(&cells", "__int128",
        "__fma_rd(", "__fmaf_ru(", "__hfma(", "__ushort2half_rn(", "__double2ull_rz(", "__float2bfloat16_rd(",
        "__syncthreads_count(", "__vimin3_s32_relu(",
    ):  # fmt: skip
        assert word in text, word


@needs_compiler
@pytest.mark.parametrize(
    "first",
    [
        *(pytest.param(first, marks=pytest.mark.slow) for first in (0, 1000)),
        *(pytest.param(first, marks=pytest.mark.long) for first in range(2000, 4000, 25)),
    ],
)
def test_compilers_agree(kernels: ModuleType, first: int) -> None:
    """Kernels compiled for sm_90 and for sm_120 give the same results, without hazards.

    The two targets have different code generators: an error of the simulator rarely gives the same wrong result in
    both.
    """
    count = 8 if first == 0 else kernels.KERNELS_A_FILE
    older, newer = (kernels.simulated(first, count, arch) for arch in ("sm_90", "sm_120"))
    for seed, left, right in zip(range(first, first + count), older, newer, strict=True):
        assert np.array_equal(left, right), f"k{seed}"
        assert np.unique(left).size > left.size // 4, f"k{seed} computes next to nothing"
