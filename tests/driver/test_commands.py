"""Every command that measures, at small sizes, with a driver that runs its launches in the simulator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.simulator.test_hopper import COPY

pytestmark = pytest.mark.driver
Runner = Callable[..., Ran]
BRIEF = ("--min-time", "0", "--max-time", "0.05", "--min-samples", "2", "--no-cpu")
GPU = ("-d", "cuda", *BRIEF)
ROOT = Path(__file__).resolve().parents[2]


def subcommand(*words: object, cwd: Path, **environment: str) -> Ran:
    """Run a command line in a separate process, where the driver may start with other cards."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": paths, **environment}, timeout=120,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def rows(ran: Ran) -> dict[str, Any]:
    """Return the results by kernel; assert that no result has a rate, and that each says that no GPU ran."""
    found = {one["kernel"]: one for one in ran.json["results"]}
    for one in found.values():
        rates = ("bandwidth_gbps", "gflops", "copy_gbps", "copy_fraction", "peak_fraction", "speedup_vs_cpu")
        assert [one[key] for key in rates] == [None] * len(rates)
        if one["status"] == "ok":
            assert one["time"]["median_s"] > 0
            assert one["warnings"][0]["code"] == "simulated"
    return found


def test_a_file_is_compiled_once(tmp_path: Path) -> None:
    """A second run does not compile a file with headers again: PyCUDA's cache calls nvcc once per kernel, to preprocess
    the file."""
    nvcc = shutil.which("nvcc")
    (tmp_path / "nvcc").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {nvcc} "$@"\n')
    (tmp_path / "nvcc").chmod(0o755)
    (tmp_path / "k.cu").write_text("#include <cuda_fp16.h>\n__global__ void k(float *x) { x[threadIdx.x] = 1; }\n")
    words = ("run", "k.cu", "-g", 1, "-b", 32, "--arg", "x=float32[32]:empty", "--expect", "x=np.ones(32)", *GPU)
    paths = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    for _ in range(2):
        (tmp_path / "asked").write_text("")
        assert subcommand(*words, cwd=tmp_path, PATH=paths).code == 0
    asked = (tmp_path / "asked").read_text()
    assert (asked.count("--preprocess"), asked.count("--cubin")) == (1, 0)


# Operations ----------------------------------------------------------------------------------------------------------

LADDERS = {
    "matmul": ("sliced tensor", "17 12 20"),
    "matvec": ("block split", "33 70"),
    "distance": ("two-pass released", "1003"),
    "pi": ("block fused", "5000"),
    "solve": ("lower", "9"),
    "grayscale": ("naive dot", "9 70"),
    "blur": ("smem stacked", "33 70"),
    "vecadd": ("naive grid-stride vector", "1003"),
    "lookup": ("constant-lane texture-1d texture-2d", "1003"),
}


@pytest.mark.parametrize("operation", LADDERS)
def test_rungs_of_a_ladder(cudabench: Runner, operation: str) -> None:
    """Rungs of every operation, launched by PyCUDA or by the driver directly, give right results."""
    kernels, size = LADDERS[operation]
    words = [word for kernel in kernels.split() for word in ("-k", kernel)]
    ran = cudabench(operation, *words, "--size", *size.split(), *GPU, "--json", "-")
    assert ran.code == 0, ran.err
    found = rows(ran)
    assert {name: one["status"] for name, one in found.items()} == dict.fromkeys(kernels.split(), "ok")
    assert all(one["verification"]["checked"] == ["before", "after"] for one in found.values())


def test_rungs_of_hopper(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor maps, wgmma and clusters run on a card with compute capability 9.0; another card skips or refuses them."""
    words = ("--size", 33, 40, 64, *GPU, "--json", "-")
    ran = cudabench("matmul", "-k", "wgmma", *words)
    assert ran.code != 0
    assert "compute capability 9.0" in ran.err
    monkeypatch.setenv("CUDABENCH_DRIVER_CARDS", "h100")
    ran = cudabench("matmul", "-k", "tma", *words)
    assert ran.code == 0, ran.err
    assert rows(ran)["tma"]["status"] == "ok"
    assert ran.json["device"]["compute_capability"] == "9.0"
    ran = cudabench("solve", "-k", "cluster", "--size", 9, "--timeout", 600, *GPU, "--json", "-")
    assert ran.code == 0, ran.err
    assert rows(ran)["cluster"]["status"] == "ok"


def test_the_positional_form(cudabench: Runner) -> None:
    """`KERNEL DIMX DIMY` after the operation measures that kernel with that block."""
    ran = cudabench("transpose", 3, 16, 8, "--size", 33, 70, *GPU, "--json", "-")
    assert ran.code == 0, ran.err
    (one,) = ran.json["results"]
    assert (one["kernel"], one["block"]) == ("smem-pad", [16, 8, 1])


def test_options_of_measuring(cudabench: Runner) -> None:
    """Hot samples of several sizes and of float64 run with a CPU baseline; --print prints one figure of a result."""
    ran = cudabench(
        "vecadd", "-k", "naive", "--sizes", "100,300", "--dtype", "float64", "--cache", "hot", "-d", "cuda",
        "--min-time", 0, "--max-time", 0.05, "--min-samples", 2, "--json", "-",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert [one["size"] for one in ran.json["results"]] == [{"n": 100}, {"n": 300}]
    assert all(one["time"]["cache"] == "hot" and one["cpu"]["time_s"] > 0 for one in ran.json["results"])
    ran = cudabench("vecadd", "-k", 0, "--size", 100, *GPU, "--print", "bandwidth_gbps")
    assert (ran.code, "GB/s" in ran.out + ran.err) == (1, False), ran.out
    ran = cudabench("vecadd", "-k", 0, "--size", 100, *GPU, "--print", "time.median_s")
    assert (ran.code, float(ran.out) > 0) == (0, True), ran.err


@pytest.mark.parametrize("limit", ["--min-bandwidth", "--min-copy-fraction"])
def test_thresholds(cudabench: Runner, limit: str) -> None:
    """A result without a rate misses every threshold, and the message says why."""
    ran = cudabench("vecadd", "-k", 0, "--size", 100, *GPU, limit, "0.001")
    assert ran.code == 4
    assert "a simulated driver invented its time" in " ".join(ran.err.split())


# User files ----------------------------------------------------------------------------------------------------------

FILE = """
struct Rule { float scale; int shift; double offset; };
struct View { int count; float *data; };
__constant__ float weights[4];
__constant__ int bias = 1;
__device__ int calls = 0;
template <class T, int N> __global__ void scaled(const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = N * x[i];
}
__global__ void by_value(float *y, const float *x, Rule r, float3 v, View w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(i + r.shift) % n] * r.scale + (float)r.offset + v.x + v.z + w.data[i % w.count];
}
__global__ void constants(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = weights[i & 3] * x[i] + bias;
}
__global__ void counting(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) calls++;
    if (i < n) y[i] = x[i] + 1;
}
__global__ void table(const float *const *in, float *const *out, int cols) {
    out[blockIdx.x][threadIdx.x] = 2 * in[blockIdx.x][threadIdx.x];
}
__global__ void wide(const float *x, float *y) {
    extern __shared__ float s[];
    s[16383 - threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[16383 - (threadIdx.x ^ 1)];
}
__global__ void more(float *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += 1;
}
"""
GROUPS = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void together(const float *x, float *y) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0) y[threadIdx.x] += y[gridDim.x * blockDim.x - 1 - threadIdx.x];
}
__global__ void clustered(const float *x, float *y) {
    __shared__ float s;
    if (threadIdx.x == 0) s = x[32 * blockIdx.x];
    cg::this_cluster().sync();
    y[32 * blockIdx.x + threadIdx.x] = *cg::this_cluster().map_shared_rank(&s, cg::this_cluster().block_rank() ^ 1);
    cg::this_cluster().sync();
}
"""
LINE = ("-g", "cdiv(n,64)", "-b", "64", "--arg", "n=100")
XY = ("--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty")
FREE = ("-g", 1, "-b", 64, "--arg", "x=float32[64]:random", "--arg", "y=float32[64]:empty")
CASES: dict[str, tuple[object, ...]] = {
    "template": ("-k", "scaled<float, 5>", *LINE, *XY, "--expect", "y=5*x", "--bytes", "8*n", "--flops", "n"),
    "two templates": ("-k", "scaled<float,2>", "-k", "scaled<float,2+0>", *LINE, *XY, "--expect", "y=2*x"),
    "by value": (
        "-k", "by_value", *LINE, *XY, "--arg", "r={scale: 2.5, shift: 3, offset: 0.5}", "--arg", "v={1, 7, 2}",
        "--arg", "w={count: 4, data: float32[4]:ones}", "--expect", "y=np.roll(x,-3)*2.5+4.5",
    ),
    "constants": (
        "-k", "constants", *LINE, *XY, "--const", "weights=float32[4]:arange", "--const", "bias=5",
        "--expect", "y=np.arange(n)%4*x+5",
    ),
    "rows": (
        "-k", "table", "-g", 3, "-b", 32, "--arg", "in=float32[3,32]:random", "--arg",
        "out=float32[3,32]:empty", "--arg", "cols=32", "--expect", "out=2*in",
    ),
    "shared": ("-k", "wide", *FREE, "--shared", 65536, "--expect", "y=x[np.arange(64)^1]"),
    "a graph": (
        "--step", "more<<<1, 32>>>(a, n) * turns", "--arg", "a=float32[n]:zeros", "--arg", "n=20", "--arg",
        "turns=501", "--expect", "a=501",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_file(cudabench: Runner, name: str) -> None:
    """`run` passes all kinds of arguments to a kernel, and the results are right."""
    Path("f.cu").write_text(FILE)
    ran = cudabench("run", "f.cu", *CASES[name], *GPU, "--json", "-")
    assert ran.code == 0, ran.err
    assert {one["status"] for one in rows(ran).values()} == {"ok"}


def test_blocks_that_meet(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a cooperative launch synchronise, and so do the blocks of a cluster from --cluster."""
    Path("g.cu").write_text(GROUPS)
    monkeypatch.setenv("CUDABENCH_DRIVER_CARDS", "h100")
    for kernel, expect in (
        ("together", "y=np.where(np.arange(64)<32,x+x[::-1],x)"),
        ("clustered", "y=np.repeat(x[::32][::-1],32)"),
    ):
        words = ("--cluster", 2) if kernel == "clustered" else ()
        ran = cudabench("run", "g.cu", "-k", kernel, "-g", 2, "-b", 32, *FREE[4:], *words, "--expect", expect, *GPU)
        assert ran.code == 0, ran.err + ran.out


def test_what_stays_between_launches(cudabench: Runner) -> None:
    """A module variable that a kernel changes is listed, and reset before each sample."""
    Path("f.cu").write_text(FILE)
    ran = cudabench("run", "f.cu", "-k", "counting", *LINE, *XY, "--expect", "y=x+1", *GPU, "--json", "-")
    assert ran.code == 0, ran.err
    (found,) = rows(ran).values()
    assert [one["variable"] for one in found["state"]] == ["calls"]


def test_tensor_maps(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel copies tiles by a tensor map passed by value and by one behind a pointer."""
    Path("m.cu").write_text(COPY)
    monkeypatch.setenv("CUDABENCH_DRIVER_CARDS", "h100")
    ran = cudabench(
        "run", "m.cu", "-g", "2,5", "-b", 32, "--arg", "from=tensormap(float32[37,52]:random, box=8x32)", "--arg",
        "to=tensormap(float32[37,52]:empty, box=8x32)", "--arg", "x=-4", "--arg", "y=0",
        "--expect", "to=np.pad(from,((0,0),(4,0)))[:,:52]", *GPU,
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out


IMAGES = """
__global__ void both(cudaTextureObject_t t, cudaSurfaceObject_t s, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < w) {
        float old;
        surf2Dread(&old, s, 4 * x, y);
        surf2Dwrite(old + tex2D<float>(t, x + 1.5f, y + 0.5f), s, 4 * x, y);
    }
}
__global__ void fetch(cudaTextureObject_t t, int *y) { y[threadIdx.x] = tex1Dfetch<int>(t, (int)threadIdx.x - 1); }
"""


def test_textures_and_surfaces(cudabench: Runner) -> None:
    """Textures of arrays and of linear memory, and surfaces, work as --arg defines them."""
    Path("i.cu").write_text(IMAGES)
    ran = cudabench(
        "run", "i.cu", "-k", "both", "-g", "2,5", "-b", 32, "--arg", "t=texture(float32[5,40]:random)", "--arg",
        "s=surface(float32[5,40]:random)", "--arg", "w=40", "--arg", "h=5",
        "--expect", "s=s0+t[:,np.minimum(np.arange(40)+1,39)]", *GPU,
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
    ran = cudabench(
        "run", "i.cu", "-k", "fetch", "-g", 1, "-b", 32, "--arg", "t=texture(int32[32]:arange)", "--arg",
        "y=int32[32]:empty", "--expect", "y=np.where(t>0,t-1,0)", *GPU,
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
