"""Measure the simulator's speed, and print each figure beside its target.

Run it on an idle machine: `python benchmarks/simulator_speed.py`. Every run has all checks on; the shortest time of
several runs is printed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cudabench import cli
from cudabench.compile.compiler import compile_ptx
from cudabench.simulator import api as simulator

SOURCE = """
template <int PAD> __device__ void tile(float *out, const float *in, int nx, int ny) {
    __shared__ float s[32][32 + PAD];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < nx && y < ny) s[threadIdx.y][threadIdx.x] = in[(size_t)y * nx + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    if (x < ny && y < nx) out[(size_t)y * ny + x] = s[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void smem(float *out, const float *in, int nx, int ny) { tile<0>(out, in, nx, ny); }
extern "C" __global__ void smem_pad(float *out, const float *in, int nx, int ny) { tile<1>(out, in, nx, ny); }
extern "C" __global__ void naive(float *out, const float *in, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny) out[(size_t)x * ny + y] = in[(size_t)y * nx + x];
}
extern "C" __global__ void matmul(float *c, const float *a, const float *b, int n) {
    __shared__ float sa[16][16], sb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        sa[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        sb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += sa[threadIdx.y][i] * sb[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
extern "C" __global__ void histogram(unsigned *bins, const unsigned char *data, int n) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[data[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
extern "C" __global__ void compaction(int *out, int *count, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) out[atomicAdd(count, 1)] = in[i];
}
extern "C" __global__ void mandelbrot(int *out, int n, int limit) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = 0;
    if (x >= n || y >= n) return;
    float cx = -2 + 3.f * x / n, cy = -1.5f + 3.f * y / n, zx = 0, zy = 0;
    while (i < limit && zx * zx + zy * zy < 4) { float t = zx * zx - zy * zy + cx; zy = 2 * zx * zy + cy; zx = t; i++; }
    out[y * n + x] = i;
}
"""


def best(repeats: int, action: Callable[[], Any]) -> float:
    """Return the shortest time of several runs in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def show(what: str, seconds: float, target: float | None, right: bool = True) -> None:
    """Print one measured figure beside its target."""
    goal = "" if target is None else f"   to reach {target * 1e3:7.1f} ms"
    print(f"{what:44} {seconds * 1e3:8.1f} ms{goal}{'' if right else '   WRONG RESULT'}")


def importing() -> float:
    """Return the seconds to import the package, without the time to import NumPy."""
    code = "import time, numpy; s = time.perf_counter(); import cudabench.simulator.api; print(time.perf_counter() - s)"
    # The bytecode is compiled before the measurement, because in practice only the first import compiles it.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    settings |= {"PYTHONPYCACHEPREFIX": tempfile.mkdtemp(), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    return min(float(subprocess.run(command, capture_output=True, text=True, env=settings).stdout) for _ in range(5))


def small_launches() -> float:
    """Return the mean time of a launch of `solve --size 64 --kernel gauss-jordan`, which makes 258 launches of five
    kernels."""
    from cudabench.devices import sim

    times: list[float] = []
    launch = sim.simulator.run

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        report = launch(*arguments, **options)
        times.append(time.perf_counter() - start)
        return report

    sim.simulator.run = timed
    try:
        words = ["solve", "--device", "sim", "--size", "64", "--kernel", "gauss-jordan", "--no-cpu", "--quiet"]
        assert cli.invoke(words) == 0
    finally:
        sim.simulator.run = launch
    return sum(times) / len(times)


def main() -> None:
    """Measure and print."""
    ptx = compile_ptx(SOURCE, "speed.cu").ptx
    rng = np.random.default_rng(1)
    show("import, beyond NumPy", importing(), 0.030)
    show("load the PTX of these kernels", best(5, lambda: simulator.load(ptx)), None)
    program = simulator.load(ptx)
    run = simulator.run
    small, tiny = np.zeros((32, 32), np.float32), rng.random((32, 32), dtype=np.float32)
    arguments = [small, tiny, 32, 32]
    show("launch of one block of smem-pad", best(50, lambda: run(program, "smem_pad", 1, (32, 32), arguments)), 0.002)
    show("launch of `solve 64`, mean of 258", small_launches(), 0.003)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in (4096, 4095):
        a, o = rng.random((n, n), dtype=np.float32), np.zeros((n, n), np.float32)
        for name, target in (("naive", 0.35), ("smem", None), ("smem_pad", 0.5)):
            o[:] = 0
            seconds = best(3, partial(run, program, name, (128, 128), (32, 32), [o, a, n, n]))
            show(f"{name} transpose {n} x {n}", seconds, target, bool((o == a.T).all()))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3 - 4 * 4 * 4096**2 / 1e6
    print(f"{'memory beyond the matrices':44} {max(0.0, grown):8.1f} MB   to reach  1000.0 MB")
    a, b = rng.random((2, 512, 512), dtype=np.float32)
    c = np.zeros((512, 512), np.float32)
    seconds = best(3, lambda: run(program, "matmul", (32, 32), (16, 16), [c, a, b, 512]))
    show("tiled matmul 512 x 512 x 512", seconds, 1.0, np.allclose(c, a @ b, rtol=1e-4))
    data = rng.integers(0, 256, 1 << 20).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    seconds = best(1, lambda: run(program, "histogram", 512, 256, [bins, data, data.size]))
    show("histogram of 2^20, shared atomics", seconds, None, bool((bins == np.bincount(data, minlength=256)).all()))
    values = rng.integers(-5, 5, 100_000).astype(np.int32)
    kept, count = np.zeros_like(values), np.zeros(1, np.int32)
    seconds = best(1, lambda: run(program, "compaction", 400, 256, [kept, count, values, values.size]))
    show("compaction of 10^5, returned atomics", seconds, None, int(count[0]) == int((values > 0).sum()))
    image = np.zeros((256, 256), np.int32)
    show(
        "mandelbrot 256^2, 256 steps",
        best(1, lambda: run(program, "mandelbrot", (16, 16), (16, 16), [image, 256, 256])),
        None,
    )


if __name__ == "__main__":
    main()
