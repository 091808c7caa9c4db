"""Measure a card's ceilings and, in the same run, the rates of libraries and tools; print one table.

    python benchmarks/ceilings_against_peers.py [CARD.json] > benchmarks/results/ceilings_h200.md

CARD.json is a file that `cudabench ceilings --energy` wrote on this card just before; without CARD.json the script runs
that command. The peers are PyTorch's copy, sum, fill, exp2 and matrix products (cuBLAS) with a warm L2, each the median
of 12 samples between two events; nvbandwidth, if it is on PATH; and the theoretical values from clocks and number of
units.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ELEMENTS = 1 << 28  # number of float32 elements, in total 1 GiB
SIDE = 8192  # rows and columns of the matrices
NVBANDWIDTH = {
    "host_to_device_memcpy_ce": "host-to-device-pinned",
    "device_to_host_memcpy_ce": "device-to-host-pinned",
    "device_local_copy": "memory-copy",
}


def ours() -> dict[str, Any]:
    """Return the results file of `cudabench ceilings`."""
    if sys.argv[1:]:
        return dict(json.loads(Path(sys.argv[1]).read_text()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "card.json"
        words = ["ceilings", "--energy", "--quiet", "--device", "cuda", "--json", str(path)]
        subprocess.run([sys.executable, "-m", "cudabench", *words], check=False)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def median_s(call: Callable[[], object]) -> float:
    """Return the median time of a call on the GPU in seconds; a sample has 4 calls back to back."""
    import torch

    def sample() -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3 / 4

    for _ in range(3):
        sample()
    return sorted(sample() for _ in range(12))[6]


def torch_peers() -> dict[str, tuple[str, float]]:
    """Return PyTorch's rate for each ceiling, in the ceiling's unit: GB/s or operations per second."""
    import torch

    found: dict[str, tuple[str, float]] = {}
    x, y = torch.rand(ELEMENTS, device="cuda"), torch.empty(ELEMENTS, device="cuda")
    nbytes = ELEMENTS * 4
    found["memory-copy"] = ("torch copy_", 2 * nbytes / median_s(lambda: y.copy_(x)) / 1e9)
    found["memory-read"] = ("torch sum", nbytes / median_s(lambda: x.sum()) / 1e9)
    found["memory-write"] = ("torch fill_", nbytes / median_s(lambda: y.fill_(1.5)) / 1e9)
    pinned = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    bytes_there = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    up = median_s(lambda: bytes_there.copy_(pinned, non_blocking=True))
    down = median_s(lambda: pinned.copy_(bytes_there, non_blocking=True))
    found["host-to-device-pinned"] = ("torch copy_", (1 << 28) / up / 1e9)
    found["device-to-host-pinned"] = ("torch copy_", (1 << 28) / down / 1e9)
    products = {
        "fp32": (torch.float32, "highest"), "tensor-tf32": (torch.float32, "high"),
        "tensor-bf16": (torch.bfloat16, "high"), "tensor-fp16": (torch.float16, "high"),
        "tensor-fp64": (torch.float64, "high"),
    }  # fmt: skip
    for name, (dtype, precision) in products.items():
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.rand(SIDE, SIDE, device="cuda").to(dtype) for _ in range(2))
        out = torch.empty(SIDE, SIDE, device="cuda", dtype=dtype)
        seconds = median_s(lambda a=a, b=b, out=out: torch.mm(a, b, out=out))
        found[name] = (f"cuBLAS, {SIDE} x {SIDE}", 2 * SIDE**3 / seconds)
    try:
        a8 = torch.randint(-8, 8, (SIDE, SIDE), device="cuda", dtype=torch.int8)
        found["tensor-int8"] = (f"cuBLAS, {SIDE} x {SIDE}", 2 * SIDE**3 / median_s(lambda: torch._int_mm(a8, a8.t())))
    except (RuntimeError, AttributeError) as error:
        print(f"no int8 product: {error}", file=sys.stderr)
    # cuBLAS uses wgmma on cards that have it, so each of its results is also the peer of the wgmma ceiling.
    return found | {name.replace("tensor", "wgmma"): peer for name, peer in found.items() if name.startswith("tensor")}


def nvbandwidth() -> dict[str, tuple[str, float]]:
    """Return the GB/s that nvbandwidth prints, keyed by ceiling; empty if it is not on PATH."""
    tool = shutil.which("nvbandwidth")
    if tool is None:
        return {}
    found = {}
    for test, name in NVBANDWIDTH.items():
        output = subprocess.run([tool, "-t", test], capture_output=True, text=True, check=False).stdout
        sums = re.findall(rf"SUM {test} ([\d.]+)", output)
        if sums:
            found[name] = (f"nvbandwidth {test}, as printed", float(sums[-1]))
    return found


def main() -> None:
    """Print the table."""
    from cudabench.results import ceilings

    file = ours()
    peers: dict[str, list[tuple[str, float]]] = {}
    for gather in (torch_peers, nvbandwidth):
        try:
            for name, peer in gather().items():
                peers.setdefault(name, []).append(peer)
        except ImportError as error:
            print(f"left out: {error}", file=sys.stderr)
    device = file["device"]
    print(f"# Ceilings beside libraries and tools, on one {device['name']}\n")
    print(f"Driver {device['driver']}, {device['sm_count']} SMs, {device['clocks']['sm_mhz']} MHz at most.\n")
    print("| ceiling | measured | theoretical | of it | peer | peer's figure | peer over ours |")
    print("| :-- | --: | --: | --: | :-- | --: | --: |")
    for ceiling in file["ceilings"]:
        unit, value = ceiling["unit"], ceiling["value"]
        start = [
            ceiling["name"],
            ceilings.value(value, unit) if value is not None else f"{ceiling['status']}: {ceiling['reason']}",
        ]
        start += [
            ceilings.value(ceiling["theoretical"], unit),
            f"{ceiling['fraction']:.1%}" if ceiling["fraction"] else "-",
        ]
        for label, figure in peers.get(ceiling["name"]) or [("-", None)]:
            ratio = f"{figure / value:.3f}" if figure is not None and value else "-"
            print("| " + " | ".join([*start, label, ceilings.value(figure, unit), ratio]) + " |")


if __name__ == "__main__":
    main()
