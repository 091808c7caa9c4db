"""Measure the ladders of matmul and solve beside the libraries' calls, and print one table.

    python benchmarks/dense.py [--quick] [matmul] [solve] > benchmarks/results/dense_h200.md

The ladders run as a user runs them, `cudabench matmul --json ...`; the libraries (cuBLAS, cuSOLVER, through PyTorch) in
this process afterwards between two events, hot, median of 12 samples, short calls back to back in each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MATMUL = [
    (1024, "float32"),
    (2048, "float32"),
    (4096, "float32"),
    (8192, "float32"),
    (2048, "float64"),
    (4096, "float64"),
    (8192, "float64"),
]
SOLVE = [
    (512, "float32"),
    (1024, "float32"),
    (2048, "float32"),
    (4096, "float32"),
    (8192, "float32"),
    (2048, "float64"),
]
SLOW = {("matmul", 8192): ("double-buffer", "warp-tile", "tensor"), ("solve", 8192): ("fused", "blocked")}
PEERS = {"ieee": "cuBLAS", "tf32": "cuBLAS TF32", "float64": "cuBLAS"}


def ladder(operation: str, size: int, dtype: str, least: str) -> dict[str, Any]:
    """Return the results file of a ladder."""
    kernels = [word for name in SLOW.get((operation, size), ()) for word in ("-k", name)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        words = [operation, "--size", str(size), "--dtype", dtype, *kernels, "--no-cpu", "--quiet"]
        words += ["--min-time", least, "--max-time", "2", "--json", str(path), "--device", "cuda"]
        subprocess.run([sys.executable, "-m", "cudabench", *words], check=False)
        results: dict[str, Any] = json.loads(path.read_text())
        return results


def median_s(call: Callable[[], object], times: int = 12) -> float:
    """Return the median time of a call on the GPU; short ones run back to back, so that launch gaps do not count."""
    import torch

    def sample(runs: int) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(runs):
            call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3 / runs

    sample(3)
    runs = max(1, min(50, int(2e-3 / sample(3))))
    return sorted(sample(runs) for _ in range(times))[times // 2]


def peers(operation: str, size: int, dtype: str) -> dict[str, float]:
    """Return the seconds of the libraries' calls for the same problem."""
    import torch

    kind = getattr(torch, dtype)
    a = torch.rand(size, size, device="cuda", dtype=kind)
    if operation == "solve":
        b = torch.rand(size, device="cuda", dtype=kind)
        return {"cuSOLVER (torch.linalg.solve)": median_s(lambda: torch.linalg.solve(a, b), 6)}
    b, c = torch.rand_like(a), torch.empty_like(a)
    times = {}
    for precision in ("ieee", "tf32") if dtype == "float32" else ("float64",):
        if dtype == "float32":
            torch.backends.cuda.matmul.fp32_precision = precision
        times[f"{PEERS[precision]} (torch.mm)"] = median_s(lambda: torch.mm(a, b, out=c))
    return times


def row(*cells: object) -> None:
    """Print a row of the table at once: a run that is cut short keeps what it has."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    quick = " --quick" if "--quick" in sys.argv else ""
    tables = {"matmul": MATMUL, "solve": SOLVE}
    chosen = [name for name in tables if name in sys.argv] or list(tables)
    for operation in chosen:
        sizes = tables[operation]
        for size, dtype in sizes:
            file = ladder(operation, size, dtype, "0.1" if quick else "0.5")
            if (operation, size, dtype) == (chosen[0], *sizes[0]):
                device = file["device"]
                print(f"# matmul and solve on {device['name']}, driver {device['driver']}\n")
                print(f"`python benchmarks/dense.py{quick}`: cold L2 for the ladders, hot for the libraries.")
                print('"Of the library" is its time over the kernel\'s: over 1 is faster than it.')
            if (size, dtype) == sizes[0]:
                print(f"\n## {operation}\n")
                row("size", "type", "kernel", "block", "ms", "TFLOP/s", "of the library", "residual")
                row("---:", "---", "---", "---", "---:", "---:", "---:", "---:")
            libraries = peers(operation, size, dtype)
            flops = next(result["flops"] for result in file["results"] if result["flops"])
            for result in file["results"]:
                if result["status"] == "skipped":
                    continue
                if result["status"] != "ok":
                    row(size, dtype, result["kernel"], f"{result['status']}: {result['reason']}", "", "", "", "")
                    continue
                seconds = result["time"]["median_s"]
                tf32 = result["kernel"] == "tensor" and dtype == "float32"
                library = next(name for name in libraries if ("TF32" in name) == tf32)
                block = " x ".join(str(x) for x in result["block"][:2])
                residual = "".join(f"{value:.1e}" for value in (result.get("figures") or {}).values())
                rate, share = f"{flops / seconds / 1e12:.2f}", f"{libraries[library] / seconds:.2f}"
                row(size, dtype, result["kernel"], block, f"{seconds * 1e3:.4g}", rate, share, residual)
            for name, seconds in libraries.items():
                row(size, dtype, name, "", f"{seconds * 1e3:.4g}", f"{flops / seconds / 1e12:.2f}", "1.00", "")


if __name__ == "__main__":
    main()
