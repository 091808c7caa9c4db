"""Compute capability 9.0: wgmma, tensor maps, clusters, against the results of an H200; tensor maps on the command
line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.errors import UnsupportedFeature
from cudabench.measure.context import other_architecture
from cudabench.simulator import api as simulator
from cudabench.simulator.errors import LaunchError, UnsupportedKernel
from tests.conftest import Ran
from tests.hopper_cases import ILLEGAL, Case, cases, differing, digest, on_gpu, simulated

Runner = Callable[..., Ran]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
RECORDED = Path(__file__).parents[1] / "data" / "hopper_h200.json"
QUICK = (
    r"^wgmma (m64n\d+k\d+\.f\d+\.\w+\.\w+ (wide|special)|K-major 128 at 32|MN-major 64 f16, 1, 1, 0, 1)$"
    r"|^wgmma base offset 3|^mma.sync m16n8k(16|32)\S+ special"
    r"|^tile .*(swizzle 128 at \(-8|5d|steps store|add float16|nan)|^narrow tile  of 32|^edge"
    r"|^cluster 2x2x1 (?!generic)"
)


def check(chosen: list[Case]) -> None:
    """Assert that the simulator gives the recorded results of a GPU, and finds a hazard exactly in the cases that
    failed there."""
    recorded = json.loads(RECORDED.read_text())
    wrong = [
        case.name
        for case, (arrays, hazards) in zip(chosen, simulated(chosen), strict=True)
        if bool(hazards) != (recorded.get(case.name) == ILLEGAL)
        or (not hazards and recorded.get(case.name, digest(arrays)) != digest(arrays))
    ]
    assert not wrong
    assert sum(case.name in recorded for case in chosen) > len(chosen) // 2


@pytest.mark.slow
def test_some_instructions_have_the_bits_of_an_h200() -> None:
    """A selection of tensor-core, tile and cluster cases leaves the same bits in memory as on an H200."""
    chosen = cases(QUICK)
    assert len(chosen) > 35
    check(chosen)


@pytest.mark.slow
def test_all_instructions_have_the_bits_of_an_h200() -> None:
    """Every case leaves the same bits in memory as on an H200."""
    check(cases())


@pytest.mark.gpu
def test_instructions_on_a_gpu(hopper: Any) -> None:
    """A GPU and the simulator leave the same bits; the test omits cases that fail on a GPU, since they destroy its
    context."""
    recorded = json.loads(RECORDED.read_text())
    chosen = [case for case in cases() if recorded.get(case.name) != ILLEGAL]
    pairs = zip(chosen, on_gpu(chosen, hopper), simulated(chosen), strict=True)
    assert not [case.name for case, real, (mine, _) in pairs if differing(real, mine)]


@pytest.fixture
def hopper() -> Iterator[Any]:
    """A GPU of compute capability 9.0."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        if device.info.compute_capability != "9.0":
            pytest.skip("needs an H100 or H200")
        yield device


# Launches ------------------------------------------------------------------------------------------------------------

PAIR = """extern "C" __global__ void __cluster_dims__(2, 1, 1) f(int *x) { x[blockIdx.x] = 1; }
extern "C" __global__ void g(int *x)
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    x[blockIdx.x] = rank;
}
"""


def test_clusters_of_a_launch() -> None:
    """A grid that is not a multiple of the cluster is an error; a launch may set the cluster of a kernel without
    __cluster_dims__."""
    program = simulator.load(compile_ptx(PAIR, "p.cu").ptx)
    x = np.zeros(6, np.int32)
    with pytest.raises(
        LaunchError, match="a grid of 5 blocks in x is not a multiple of kernel f's clusters, which have 2"
    ):
        simulator.run(program, "f", 5, 1, [x])
    with pytest.raises(LaunchError, match="compiled for clusters of 2 x 1 x 1"):
        simulator.run(program, "f", 6, 1, [x], cluster=(3,))
    simulator.run(program, "g", 6, 1, [x], cluster=(3,))
    assert x.tolist() == [0, 1, 2, 0, 1, 2]
    simulator.run(program, "g", 6, 1, [x])
    assert not x.any()


EXCHANGED = """extern "C" __global__ void __cluster_dims__(2, 1, 1) f(int *x, int *y)
{
    x[blockIdx.x] = blockIdx.x;
    if (MEET)
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    y[blockIdx.x] = x[(blockIdx.x + OTHER) % gridDim.x];
}
"""


@pytest.mark.parametrize(
    ("meet", "other", "races"), [(1, "1 - blockIdx.x % 2 * 2", False), (0, "1", True), (1, "2", True)]
)
def test_blocks_of_a_cluster_meet(meet: int, other: str, races: bool) -> None:
    """A cluster barrier orders the accesses of the blocks of one cluster; without it, or between clusters, they
    race."""
    defines = {"MEET": str(meet), "OTHER": f"({other})"}
    x = np.zeros((2, 4), np.int32)
    report = simulator.run(compile_ptx(EXCHANGED, "p.cu", defines=defines).ptx, "f", 4, 1, [x[0], x[1]])
    assert ({hazard.kind for hazard in report.hazards} == {"race"}) is races


def test_clusters_of_an_older_architecture() -> None:
    """A launch with clusters needs compute capability 9.0."""
    program = simulator.load(
        compile_ptx("__global__ void k(int *x) { x[0] = 1; }", "k.cu", arch="sm_80", names=["k"]).ptx
    )
    with pytest.raises(UnsupportedKernel, match=r"need compute capability 9\.0, and sm_80 is older"):
        simulator.run(program, "_Z1kPi", 2, 1, [np.zeros(1, np.int32)], cluster=(2,))


def test_a_kernel_for_another_generation_is_left_out() -> None:
    """A rung compiled for sm_90a is skipped on other GPUs, and the reason names the device to use."""
    case: Any = SimpleNamespace(architecture="sm_90a", kernel="wgmma")
    here: Any = SimpleNamespace(compute_capability="8.0")
    reason = other_architecture(case, here)
    assert reason is not None
    assert "needs a GPU of compute capability 9.0, and this one has 8.0: use --device sim:sm_90" in reason
    here.compute_capability = "9.0"
    assert other_architecture(case, here) is None
    assert issubclass(UnsupportedFeature, Exception)


# The command line ----------------------------------------------------------------------------------------------------

COPY = """#include <cuda.h>
__global__ void copy(const __grid_constant__ CUtensorMap from, const CUtensorMap *to, int x, int y)
{
    __shared__ __align__(128) float tile[8 * 32];
    __shared__ __align__(8) unsigned long long bar;
    unsigned b = __cvta_generic_to_shared(&bar), t = __cvta_generic_to_shared(tile);
    int dx = 32 * blockIdx.x, dy = 8 * blockIdx.y;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\\nfence.mbarrier_init.release.cluster;" :: "r"(b));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(b) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];"
                     :: "r"(t), "l"(&from), "r"(dx + x), "r"(dy + y), "r"(b) : "memory");
        asm volatile("{\\n.reg .pred p;\\nL:\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\\n@!p bra L;\\n}"
                     :: "r"(b) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                     :: "l"(to), "r"(dx), "r"(dy), "r"(t) : "memory");
        asm volatile("cp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""


@pytest.fixture
def run(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run the kernel above in the simulator, with its maps."""
    (tmp_path / "c.cu").write_text(COPY)

    def ran(source: str, target: str, *words: str, x: int = 0, y: int = 0) -> Ran:
        arguments = (f"from={source}", f"to={target}", f"x={x}", f"y={y}")
        listed = [word for argument in arguments for word in ("--arg", argument)]
        return cudabench("run", "c.cu", "-g", "2,5", "-b", 32, *listed, *words, "--device", "sim", "--no-cpu")

    return ran


def test_maps_on_the_command_line(run: Runner) -> None:
    """A kernel takes one tensor map by value and one by a pointer; a tile beyond the array reads zeros and is not
    stored."""
    source, target = (
        "tensormap(float32[37,52]:random, box=8x32)",
        "tensormap(float32[37,52]:empty, box=[8,32], swizzle=0)",
    )
    assert run(source, target, "--expect", "to=from").code == 0
    shifted = run(source, target, "--expect", "to=np.pad(from,((0,0),(4,0)))[:,:52]", x=-4)
    assert shifted.code == 0, shifted.err
    between = run(source, target, "--expect", "to=np.pad(from,((0,0),(2,0)))[:,:52]", x=-2)
    assert between.code == 3
    assert "-2 elements of 4 bytes are not a multiple of 16 bytes" in " ".join(between.out.split())


def test_bulk_copies_beside_pointers_to_local_memory(cudabench: Runner, tmp_path: Path) -> None:
    """Bulk copies write no pointers to local memory. `check` compiles without optimisation, so the pointers are stored
    and read again."""
    begin = "    if (threadIdx.x == 0) {\n"
    stored = "    __shared__ int *own[32];\n    int mine = x;\n    own[threadIdx.x] = &mine;\n"
    (tmp_path / "c.cu").write_text(COPY.replace(begin, f"{stored}    if (threadIdx.x == 0 && *own[0] == x) {{\n"))
    arguments = "from=tensormap(float32[37,52]:random, box=8x32)", "to=tensormap(float32[37,52]:empty, box=8x32)"
    words = [word for argument in (*arguments, "x=0", "y=0") for word in ("--arg", argument)]
    ran = cudabench("check", "c.cu", "-g", "2,5", "-b", 32, *words)
    assert ran.code == 0, ran.err + ran.out


def test_steps_take_maps(cudabench: Runner, tmp_path: Path) -> None:
    """--step accepts the tensor maps of --arg; an array in place of a tensor map is an error."""
    (tmp_path / "c.cu").write_text(COPY)
    words = ["run", "c.cu", "--step", "copy<<<(2,5), 32>>>(from, to, x, y)", "--arg", "x=0", "--arg", "y=0"]
    maps = [
        f"{name}=tensormap(float32[37,52]:{start}, box=8x32)" for name, start in (("from", "random"), ("to", "empty"))
    ]
    given = ["--expect", "to=from", "--device", "sim", "--no-cpu", "--arg", maps[1], "--arg"]
    assert cudabench(*words, *given, maps[0]).code == 0
    refused = cudabench(*words, *given, "from=float32[37,52]:random")
    assert (refused.code, "'CUtensorMap from' is a tensor map: write" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("float32[37,52]:random", "is a tensor map: write tensormap("),
        ("tensormap(float32[37,52]:random)", "lacks a box, the tile of one copy: add box=64x64"),
        ("tensormap(float32[37,52]", "does not end with ')'"),
        ("tensormap()", "a tensor map needs an array"),
        ("tensormap(float32[37,52]:random, box=8x32, box=8x16)", "box is given twice: keep one"),
        ("tensormap(float32[37,52]:random, swizzle=128)", "lacks a box, the tile of one copy: add box=64x64"),
        ("tensormap(float32[37,52]:random, box=8x64, swizzle=128)", "rows of 256 bytes in a box that is swizzled"),
        ("tensormap(float32[37,51]:random, box=8x32)", "strides of 204 bytes: they are multiples of 16"),
        ("tensormap(float32[37,52]:random, box=8x32, swizle=64)", "'swizle=64' is not an option of a tensor map"),
        ("tensormap(float32[37,52]:random, box=8x300)", "a box of 300 x 8: a side is 1 to 256"),
        ("tensormap(float32[37,52]:random, box=8x32, sizes=[40,52])", "sizes and strides reach 8320 bytes"),
        ("tensormap(complex64[37,52]:random, box=8x32)", "a tensor map cannot hold complex64"),
    ],
)  # fmt: skip
def test_what_no_map_is(run: Runner, source: str, message: str) -> None:
    """A tensor map that the driver would refuse is an error, whose message gives the value and the rule."""
    ran = run(source, "tensormap(float32[37,52]:empty, box=8x32)")
    assert ran.code == 2
    assert message in ran.err
