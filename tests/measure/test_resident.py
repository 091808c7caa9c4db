"""A launch whose block does not fit on a multiprocessor is refused, with the arithmetic and the repairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.compile.record import Resources
from cudabench.errors import UsageError
from cudabench.measure.gpu_run import GpuRun
from cudabench.occupancy import (
    MAX_SHARED,
    MAX_THREADS_PER_BLOCK,
    capabilities,
    check_resident,
    most_threads,
    multiprocessor,
    occupancy,
)
from tests.conftest import FakeDevice, Ran
from tests.measure.test_gpu_run import measure, right

Runner = Callable[..., Ran]

simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


def heavy(live: int, bounds: str = "") -> str:
    """Return a kernel that keeps `live` values per thread in registers across the iterations of a loop."""
    each = f"#pragma unroll\nfor (int i = 0; i < {live}; i++)"
    return (
        f"__global__ void {bounds} heavy(const float *x, float *out, int n) {{\n"
        f"int t = blockIdx.x * blockDim.x + threadIdx.x;\nfloat s = 0, a[{live}] = {{}};\n"
        f"#pragma unroll 1\nfor (int k = 0; k < 2; k++)\n{each} a[i] += x[(t + k * i) % n];\n"
        f"{each} s = s * 0.5f + a[i];\nif (t < n) out[t] = s;\n}}\n"
    )


ARGUMENTS = ("--arg", "x=float32[n]:random", "--arg", "out=float32[n]:empty", "--arg", "n=2048")
DYNAMIC = "__global__ void k(int *a) { extern __shared__ int s[]; s[threadIdx.x] = a[threadIdx.x]; __syncthreads(); a[threadIdx.x] = s[31 - threadIdx.x]; }"  # fmt: skip # noqa: E501


def refused(*words: Any, bound: int | None = None) -> str:
    """Return the error message of `check_resident` for kernel k; empty if it accepts the launch."""
    try:
        check_resident("k", *words, bound=bound)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("capability", capabilities())
def test_refused_is_what_does_not_fit(capability: str) -> None:
    """check_resident refuses a launch exactly when the occupancy calculator gives 0 blocks per multiprocessor."""
    shared = [0, 48 << 10, (48 << 10) + 1, 64 << 10, (64 << 10) + 1, 99 << 10, (99 << 10) + 1, 163 << 10, 227 << 10]
    for threads in [1, 32, 33, 256, 257, 416, 512, 513, 768, 1000, 1024]:
        for registers in [1, 32, 64, 65, 72, 128, 152, 168, 255]:
            for nbytes in shared:
                fits = occupancy(capability, threads, registers, nbytes).blocks_per_sm > 0
                assert bool(refused(capability, threads, registers, nbytes)) != fits, (threads, registers, nbytes)


def test_largest_block() -> None:
    """The largest block that the message names fits, and a block of one thread more does not."""
    for registers in range(1, 256):
        most = most_threads(registers)
        assert occupancy("9.0", most, registers).blocks_per_sm
        assert most == MAX_THREADS_PER_BLOCK or not occupancy("9.0", most + 1, registers).blocks_per_sm
    assert most_threads(255) == 256


def test_one_table() -> None:
    """MAX_SHARED is the largest shared memory per block of all architectures, and the limit of each architecture is
    that of NVIDIA's guide."""
    most = {name: multiprocessor(name).shared_of_block for name in capabilities()}
    assert max(most.values()) == MAX_SHARED
    expected = {"7.0": 96, "7.5": 64, "8.0": 163, "8.6": 99, "8.7": 163, "8.9": 99, "9.0": 227, "10.0": 227, "12.0": 99}
    assert {name: most[name] >> 10 for name in expected} == expected


def test_arithmetic() -> None:
    """The message shows the product as the hardware allocates registers, and both repairs."""
    assert refused("sm_90", 1024, 128, 0) == (
        "k cannot run in blocks of 1024 threads: 128 registers x 1024 threads = 131072 are over the 65536 of an SM; "
        "add __launch_bounds__(1024) or use a block of at most 512 threads."
    )
    assert "65 registers x 1000 threads (allocated as 72 x 1024) = 73728 are over" in refused("sm_80", 1000, 65, 0)
    assert "k cannot run with 65537 bytes of shared memory a block: sm_75 allows 65536" in refused(
        "sm_75", 32, 8, 65537
    )
    assert "over the __launch_bounds__ of kernel k, which allow 256" in refused("sm_75", 512, 8, 0, bound=256)


@pytest.mark.sampled(3)
@simulated
@pytest.mark.parametrize("command", [("run", "-d", "sim"), ("run", "--on", "h100"), ("explain",)])
def test_one_launch(cudabench: Runner, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A launch that does not fit ends with exit code 2 and prints no figure; the same kernel with launch bounds
    runs."""
    (tmp_path / "heavy.cu").write_text(heavy(96))
    (tmp_path / "bound.cu").write_text(heavy(96, "__launch_bounds__(1024)"))
    launch = (*command[1:], "--grid", 2, "--block", 1024, *ARGUMENTS)
    ran = cudabench(command[0], "heavy.cu", *launch)
    assert (ran.code, ran.out.count("occupancy")) == (2, 0), ran.err
    assert "x 1024 threads" in ran.err
    assert "add __launch_bounds__(1024) or use a block of at most" in ran.err
    ran = cudabench(command[0], "bound.cu", *launch)
    assert ran.code == 0, ran.err


GRID_BARRIERS = """#include <cooperative_groups.h>
__device__ unsigned arrived;
__global__ void called(int *x) { cooperative_groups::this_grid().sync(); x[blockIdx.x] = 1; }
__global__ void by_hand(int *x) {
    if (threadIdx.x) return;
    __threadfence();
    atomicAdd(&arrived, 1);
    while (atomicAdd(&arrived, 0) < gridDim.x) ;
    x[blockIdx.x] = 1;
}
"""


@simulated
@pytest.mark.parametrize(
    ("kernel", "on", "code", "words"),
    [
        ("called", "t4", 2, "all 41 blocks must run at once, and the Tesla T4 holds 40 (40 SMs x 1)"),
        ("by_hand", "t4", 3, "the Tesla T4 holds 40 of these blocks at once, and the grid has 41"),
        ("called", "h100", 0, ""), ("by_hand", "h100", 0, ""),
    ],
)  # fmt: skip
def test_a_grid_that_waits_for_itself_must_fit_the_card(
    cudabench: Runner, tmp_path: Path, kernel: str, on: str, code: int, words: str
) -> None:
    """A launch whose blocks wait for each other is refused, or is a deadlock, on a card that does not hold all blocks
    at once."""
    (tmp_path / "grid.cu").write_text(GRID_BARRIERS)
    launch = ("-k", kernel, "--grid", 41, "--block", 1024, "--arg", "x=int32[41]:empty", "--on", on)
    ran = cudabench("run", "grid.cu", *launch, "--expect", "x=np.ones(41, np.int32)")
    assert ran.code == code, ran.err
    assert words in " ".join((ran.out + ran.err).split())


@pytest.mark.slow
@simulated
def test_check_and_sweep(cudabench: Runner, tmp_path: Path) -> None:
    """`check` reports a block that does not fit and runs the other kernels; `sweep` marks it as failed and never as the
    best."""
    (tmp_path / "heavy.cu").write_text(heavy(96) + "__global__ void light(float *out, int n) { out[threadIdx.x] = n; }")
    ran = cudabench("check", "heavy.cu", "--grid", 2, "--block", 1024, *ARGUMENTS)
    assert ran.code == 1, ran.err
    assert "heavy  FAILED        heavy cannot run in blocks of 1024 threads" in ran.out.replace("\n", " ")
    assert "light" in ran.out
    assert "1 of 2 kernels executed" in ran.out
    words = ("-k", "heavy", "--grid", "cdiv(n,bx)", "--block", "256:1024", *ARGUMENTS, "-d", "sim", "--json", "s.json")
    ran = cudabench("sweep", "heavy.cu", *words)
    assert ran.code == 0, ran.err
    assert "Best: bx=1024" not in ran.out
    results = {row["block"][0]: row for row in json.loads((tmp_path / "s.json").read_text())["results"]}
    assert (results[256]["status"], results[1024]["status"]) == ("ok", "failed")
    assert "cannot run in blocks of 1024" in results[1024]["reason"]


@pytest.mark.sampled(4)
@simulated
@pytest.mark.parametrize(("arch", "most"), [("sm_75", 65536), ("sm_86", 101376), ("sm_80", 166912), ("sm_90", 232448)])
def test_shared_memory_of_the_architecture(cudabench: Runner, tmp_path: Path, arch: str, most: int) -> None:
    """Dynamic shared memory may be exactly the limit of the chosen architecture; a launch with 16 bytes more is
    refused."""
    (tmp_path / "k.cu").write_text(DYNAMIC.replace("{ extern", "{ __shared__ int own[8]; own[0] = 1; extern"))
    (tmp_path / "d.cu").write_text(DYNAMIC)
    launch = ("--grid", 1, "--block", 32, "--arg", "a=int32[32]:random", "-d", f"sim:{arch}", "--shared")
    assert cudabench("run", "d.cu", *launch, most).code == 0
    ran = cudabench("run", "d.cu", *launch, most + 16)
    assert ran.code == 2
    assert str(most) in ran.err


def test_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, the function's attributes (registers, or launch bounds) refuse the launch before it starts."""

    class Gpu(FakeDevice):
        needs = Resources(128, 0, 0, max_threads=512)

        def load(self, *words: Any) -> Any:
            module = super().load(*words)
            module.resources = lambda name: self.needs
            return module

    device = Gpu(right)
    monkeypatch.setattr(GpuRun, "_bind", lambda *words: pytest.fail("launched"))
    with pytest.raises(UsageError, match="128 registers x 1024 threads = 131072"):
        measure(device, block=(32, 32))
    device.needs = Resources(40, 0, 0, max_threads=256)
    with pytest.raises(UsageError, match="over the __launch_bounds__ of kernel transpose_naive_row, which allow 256"):
        measure(device, block=(32, 32))


@simulated
def test_forgotten_dynamic_memory(cudabench: Runner, tmp_path: Path) -> None:
    """An access to an `extern __shared__` array without dynamic shared memory reports a hazard whose message names
    --shared."""
    (tmp_path / "k.cu").write_text(DYNAMIC)
    launch = ("--grid", 1, "--block", 32, "--arg", "a=int32[32]:random")
    ran = cudabench("check", "k.cu", *launch)
    assert ran.code == 3
    assert "gives 's' no dynamic shared memory: add --shared BYTES" in " ".join(ran.out.split())
    ran = cudabench("check", "k.cu", *launch, "--shared", 64)
    assert ran.code == 3
    assert "--shared" not in ran.out
    assert cudabench("check", "k.cu", *launch, "--shared", 128).code == 0


@pytest.mark.slow
@simulated
def test_diff_counts_where_the_launch_can_be(cudabench: Runner, tmp_path: Path) -> None:
    """`diff` has no counts for an architecture on which the block does not fit, and counts for the others."""
    (tmp_path / "old.cu").write_text(DYNAMIC)
    (tmp_path / "new.cu").write_text(DYNAMIC.replace("31 -", "29 ^"))
    launch = ("--grid", 1, "--block", 32, "--arg", "a=int32[32]:random", "--shared", 70000, "--arch", "sm_75,sm_90")
    ran = cudabench("diff", "old.cu", "new.cu", *launch)
    assert ran.code == 0, ran.err
    assert "sm_75 allows 65536" in ran.out
    assert "sm_90 allows" not in ran.out
    assert cudabench("diff", "old.cu", "new.cu", *launch, "--fail-on", "sectors").code == 2
