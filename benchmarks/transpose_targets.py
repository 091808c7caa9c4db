"""The last rung of transpose against the device's copies and cuBLAS' geam: medians side by side in one run.

    python benchmarks/transpose_targets.py [ROWSxCOLS ...]

All four run alternately under the same protocol (cold L2, no launch gap), on the same arrays. geam is left out if
cuBLAS is not installed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from cudabench import operations
from cudabench.devices.cuda import CudaDevice
from cudabench.errors import DeviceUnusable
from cudabench.measure import verify
from cudabench.plan import cases
from cudabench.records.launch import Launch, Source

SIZES = ["4096x4096", "8192x8192", "16384x16384", "32768x32768", "1000x3333", "10007x5003"]
SECONDS = 1.0

COPY_SOURCE = """
extern "C" __global__ void copy4(const float4 *in, float4 *out, size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}
"""


def main(sizes: list[str]) -> None:
    """Print a row a size."""
    operation = operations.get("transpose")
    rung = operation.kernels[-1].name
    with CudaDevice(0, primary=True) as device:  # the context that cuBLAS uses
        print(f"{device.info.name}, driver {device.info.driver}, peak {device.info.peak_gbps:.0f} GB/s, cold L2, GB/s")
        print(f"{'size':>14} {rung:>8} {'memcpy':>8} {'float4':>8} {'geam':>8}  {'/ copy':>7} {'/ geam':>7}")
        for text in sizes:
            rows, cols = (int(part) for part in text.split("x"))
            (case,) = cases.build(operation, cases.Request(kernels=(rung,), size=(rows, cols)))
            nbytes = rows * cols * 4
            pointers = {"in": device.allocate(nbytes), "out": device.allocate(nbytes)}
            rng = np.random.default_rng(0)
            matrix = rng.random((rows, cols), dtype=np.float32)
            device.upload(pointers["in"], matrix)
            module = device.load(case.source, case.defines)
            copies = device.load(Source("copy4.cu", COPY_SOURCE), {})
            n = nbytes // 16
            launch = Launch("copy4", (-(-n // 256), 1, 1), (256, 1, 1), ("in", "out", np.uint64(n)))
            works: dict[str, Callable[[], None]] = {
                rung: device.bind(module, case.launches, pointers),
                "memcpy": device.copy(pointers["in"], pointers["out"], nbytes),
                "float4": device.bind(copies, [launch], pointers),
            }
            try:
                geam = device.peer(operation.peer("cublas"), operation, case.problem)
                works["geam"] = device.bind(geam, (), pointers)
            except DeviceUnusable as error:
                print(f"no geam: {error}", file=sys.stderr)
            if nbytes < 1 << 31:
                for name in (rung, "geam"):
                    if name in works:
                        check(device, works[name], pointers, matrix, name)
            medians = interleaved(device, works)
            gbps = {name: 2 * nbytes / seconds / 1e9 for name, seconds in medians.items()}
            best = max(gbps["memcpy"], gbps["float4"])
            cells = " ".join(f"{gbps.get(name, 0):8.0f}" for name in (rung, "memcpy", "float4", "geam"))
            ratio = f"{gbps[rung] / gbps['geam']:7.3f}" if "geam" in gbps else "      -"
            print(f"{text:>14} {cells}  {gbps[rung] / best:7.3f} {ratio}", flush=True)
            for pointer in pointers.values():
                device.release(pointer)


def check(
    device: CudaDevice, work: Callable[[], None], pointers: dict[str, int], matrix: np.ndarray, name: str
) -> None:
    """Stop where a transpose is wrong."""
    got = np.empty(matrix.shape[::-1], np.float32)
    device.fill(pointers["out"], got.nbytes, 0xFF)()
    device.run(work, name)
    device.download(pointers["out"], got)
    tolerance = operations.get("transpose").tolerance(None)  # type: ignore[arg-type]
    found = verify.compare(np.ascontiguousarray(matrix.T), got, tolerance)
    if found.mismatches:
        sys.exit(f"{name} is wrong: {found}")


def interleaved(device: CudaDevice, works: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median seconds of each, sampled in turn for a second after a warm-up."""
    samples: dict[str, list[float]] = {name: [] for name in works}
    for timed, seconds in ((False, 0.2), (True, SECONDS)):
        end = time.monotonic() + seconds
        while time.monotonic() < end or (timed and len(samples["vector"]) < 20):
            for name, work in works.items():
                elapsed = device.sample([work], "cold")
                if timed:
                    samples[name].append(elapsed)
    return {name: statistics.median(values) for name, values in samples.items()}


if __name__ == "__main__":
    main(sys.argv[1:] or SIZES)
