"""The native engine reports the same footprint (the memory that a launch touches) and busiest block as the NumPy
engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.measure.context import constants_of
from cudabench.measure.counting import arrays_of
from cudabench.simulator import api
from cudabench.simulator.native.launch import THREADS
from cudabench.system import native
from tests.engines import copies, loaded
from tests.ladders import build, simulator

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason="needs the native engine")

KERNELS = """
typedef const float *In;
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define K extern "C" __global__ void

K strided(float *out, In in, int n, int step) { I; out[i] = in[i * step % (4 * n)]; }
K in_place(float *out, In in, int n, int step) { I; out[i] = out[i] * step + in[i]; }
K stencil(float *out, In in, int n, int step) {
    I; float sum = 0;
    for (int k = -step; k <= step; k++) if (i + k >= 0) sum += in[i + k];
    out[i] = sum;
}
K again(float *out, In in, int n, int step) {
    __shared__ float sum[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
    __syncthreads();
    int j = i ^ step;
    sum[threadIdx.x] = j < n && j / blockDim.x == blockIdx.x ? out[j] : 0;
    __syncthreads();
    if (i < n) out[n + i] += sum[threadIdx.x];
}
K random_(float *out, In in, int n, int step) { I; out[i] = in[(unsigned)(i * 2654435761u + step) % (4 * n)]; }
K two(float *out, In in, int n, int step) { I; out[i] = (i % (step + 1) ? in : out + 2 * n)[i]; }
K wide(float4 *out, const float4 *in, int n, int step) { I; if (4 * (i / step) + 3 < n) out[i / step] = in[i / step]; }
K bytes(char *out, const char *in, int n, int step) { I; out[i * step] = in[i] + in[n + i / 2]; }
K add(float *out, In in, int n, int step) { I; atomicAdd(out + i * 7 % (n / step + 1), in[i]); }
K add_two(float *out, In in, int n, int step) { I; atomicAdd((i % 3 ? out : (float *)in) + i / step, 2); }
K others(float *out, In in, int n, int step) {
    I;
    if (blockIdx.x % 2) out[2 * n + i] = out[i];
    else out[i] = in[i];
    if (blockIdx.x % 3 == 0) out[n + i] = step;
    else out[3 * n + i] = out[n + i];
}
K rows(float *out, In in, int n, int step) {
    I;
    for (int k = 1; k <= step; k++) out[(k % 4) * n + i] = out[((k + 3) % 4) * n + i] + in[i];
}
K busy(float *out, In in, int n, int step) {
    I; float sum = 0;
    for (int k = 0; k < (blockIdx.x == 3 ? 100 : 4) * step; k++) sum = sum * 0.5f + in[i];
    out[i] = sum;
}
"""
CONSTANTS = """
__constant__ float table[16384];
extern "C" __global__ void lookup(float *out, const int *in, int n, int by_lane, int by_warp, int by_block, int by_step)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int place = threadIdx.x % 32 * by_lane + threadIdx.x / 32 * by_warp;
    if (by_block) place += blockIdx.x * by_block;
    float sum = 0;
    for (int k = 0; k < 9; k++) sum += table[(place + k * by_step + (in ? in[i % n] : 0)) & 16383];
    if (i < n) out[i] = sum;
}
"""
NAMES = [line.split("(")[0][2:] for line in KERNELS.splitlines() if line.startswith("K ")]
# Without "two": if warps access different arrays, NumPy has a row for each chunk, and the native engine has one row for
# all.
DRAWN = {"strided", "stencil", "random_", "others", "rows"}


def engines(run: Callable[[], api.Report]) -> tuple[api.Report, api.Report]:
    """Return the reports of the NumPy engine and of the native engine."""
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for engine in ("numpy", "native"):
            patch.setenv("CUDABENCH_ENGINE", engine)
            found.append(run())
            assert found[-1].engine == engine
        return found[0], found[1]


def same(numpy: api.Report, found: api.Report) -> None:
    """Assert that the reports of two engines on one launch are equal, field by field."""
    assert numpy.footprint is not None
    assert found.footprint is not None
    for name, value in numpy.footprint._asdict().items():
        assert getattr(found.footprint, name) == value, name
    assert found.imbalance == numpy.imbalance
    assert found.instructions == numpy.instructions


def compared(kernel: str, n: int, block: int, step: int, **more: Any) -> api.Report:
    """Compare one of KERNELS on both engines; return the native report."""
    program, draw = loaded(KERNELS), np.random.default_rng(n)
    arguments = [draw.random(4 * n * step, np.float32), draw.random(4 * n * step, np.float32), n, step]
    numpy, found = engines(
        lambda: api.run(program, kernel, -(-n // block), block, copies(arguments), footprint=True, **more)
    )
    same(numpy, found)
    return found


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("n", "block"), [(1, 32), (1000, 4), (1003, 96), (5000, 256), (300_000, 256)])
@pytest.mark.parametrize("kernel", NAMES)
def test_footprints(kernel: str, n: int, block: int) -> None:
    """Sectors of the launch, accesses of the followed blocks, and instructions of the parts are equal, with one or
    several chunks of blocks, and with sectors of one or several blocks."""
    compared(kernel, n, block, 3)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(DRAWN)), st.integers(1, 3000), st.integers(1, 300), st.integers(1, 9))
def test_any_shape(kernel: str, n: int, block: int, step: int) -> None:
    """The footprints are equal for random sizes, blocks and steps."""
    compared(kernel, n, block, step)


def test_the_number_of_threads_changes_nothing() -> None:
    """Two worker threads give the same footprint as one."""
    for kernel in ("others", "rows", "in_place"):
        one, two = [], []
        for threads, into in ((lambda: 1, one), (lambda: 2, two)):
            token = THREADS.set(threads)
            into.append(compared(kernel, 20_000, 20, 3).footprint)
            THREADS.reset(token)
        assert one == two


def test_accesses_that_the_machine_code_has_otherwise() -> None:
    """The footprint counts a merged, moved or widened access as the machine code issues it."""
    lines = {access.op: access.instruction for access in compared("strided", 1000, 64, 4).accesses}
    for merged in ({lines["load"]: (16, 16)}, {lines["load"]: (lines["store"], 0)}, {lines["store"]: (4, 8)}):
        compared("strided", 1000, 64, 4, merged=merged)


def test_a_block_with_more_to_do() -> None:
    """Both engines report the same busiest block, its excess over the other blocks, and the line."""
    found = compared("busy", 4000, 64, 2).imbalance
    assert found is not None
    assert found.busiest == (3, 0, 0)


def test_a_sample_of_the_blocks() -> None:
    """The footprints are equal if the engines run only a sample of the blocks."""
    found = compared("stencil", 300_000, 64, 2, sample=100).footprint
    assert found is not None
    assert found.ran < found.blocks


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "steps", [(8, 0, 0, 0), (1, 0, 0, 32), (16, 512, 0, 4096), (16, 512, 48, 4096), (0, 0, 0, 1), (1, 32, 64, 0)]
)
@pytest.mark.parametrize(("n", "block"), [(200, 96), (2048, 256), (40_000, 128)])
def test_lines_of_constants(steps: tuple[int, ...], n: int, block: int) -> None:
    """Both engines count the same fetches of lines of constants, whether blocks read the same lines or not."""
    program = loaded(CONSTANTS)
    numpy, found = engines(
        lambda: api.run(
            program, "lookup", -(-n // block), block, [np.zeros(n, np.float32), None, n, *steps], footprint=True
        )
    )
    same(numpy, found)


def test_lines_of_constants_that_data_choose() -> None:
    """If data choose the constants that lanes read, the two engines' counts differ by at most 2%."""
    program, n = loaded(CONSTANTS), 50_000
    places = np.random.default_rng(4).integers(0, 16384, n).astype(np.int32)
    numpy, found = engines(
        lambda: api.run(
            program, "lookup", -(-n // 100), 100, [np.zeros(n, np.float32), places, n, 0, 0, 0, 1], footprint=True
        )
    )
    assert numpy.footprint is not None
    assert found.footprint is not None
    assert found.footprint.constants == pytest.approx(numpy.footprint.constants, rel=0.02)


RUNGS = [
    ("transpose", (67, 130)), ("vecadd", (5000,)), ("matmul", (65, 70, 33), "naive", "tiled", "registers"),
    ("grayscale", (61, 90)), ("blur", (61, 90)), ("lookup", (5000,)), ("matvec", (67, 130)), ("distance", (5000,)),
    ("pi", (5000,)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("rungs", RUNGS, ids=lambda rungs: rungs[0])
def test_rungs(rungs: tuple[Any, ...]) -> None:
    """The rungs of the chapters have the same footprint on both engines, and the native engine runs at least one of
    them."""
    name, size, *kernels = rungs
    operation, ladder = build(name, *kernels, size=size)
    ran = 0
    for case in ladder:
        if case.skip_reason:
            continue
        inputs = operation.inputs(case.problem)
        held = replace(case, constants=constants_of(operation, inputs))

        reports = []
        with pytest.MonkeyPatch.context() as patch:
            for engine in ("numpy", "native"):
                patch.setenv("CUDABENCH_ENGINE", engine)
                arrays = arrays_of(operation.buffers(case.problem), inputs, kept=True)
                found = simulator(assembled=False).run(
                    held, arrays, trace=False, progress=lambda fraction: None, footprint=True
                )
                reports.append(found.report)
        same(*reports)
        ran += reports[1].engine == "native"
    assert ran
