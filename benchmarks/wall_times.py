"""Measure the wall time of whole commands on a GPU, the parts of this time, and nvbench's wall time for the same
kernel.

    python benchmarks/wall_times.py [NAME ...]

Each command runs once to fill the compile cache, then ROUNDS times in separate processes; the fastest run counts. The
parts in brackets are from the results file (`provenance.seconds`). nvbench (package cuda-bench) takes turns with the
commands of the same kernel.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import against_nvbench

ROUNDS = 2
STREAM = """__global__ void scale(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * in[i];
}
"""
ARGUMENTS = "--arg n=4194304 --arg out=float32[n]:empty --arg in=float32[n]:random --grid cdiv(n,256) --block 256"
COMMANDS = {
    "one kernel": "transpose --kernel smem-pad --block 32 8",
    "ladder": "transpose",
    "16384 x 16384": "transpose -k vector --size 16384 16384 --min-time 0.1 --max-time 0.5",
    "32768 x 32768, peer": "transpose -k naive-row -k smem-pad -k vector --peer cublas --size 32768 32768",
    "a user's file": f"run FILE {ARGUMENTS} --expect out=2*in --no-cpu",
    "vecadd 2^28, peers": "vecadd --size 268435456 --peer cub --peer torch",
}
TWINS = {"one kernel": ("smem-pad", "4096"), "16384 x 16384": ("vector", "16384")}


def main(names: list[str]) -> None:
    """Print a line for each command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scale.cu"
        file.write_text(STREAM)
        for name in names or COMMANDS:
            words = [str(file) if word == "FILE" else word for word in COMMANDS[name].split()]
            measured(words)
            theirs: list[float] = []
            ours: list[tuple[float, dict[str, Any]]] = []
            for _ in range(ROUNDS):
                ours.append(measured(words))
                if name in TWINS:
                    begin = time.perf_counter()
                    against_nvbench.nvbench(*TWINS[name], "cold")
                    theirs.append(time.perf_counter() - begin)
            seconds, parts = min(ours, key=lambda measured_run: measured_run[0])
            parts_text = ", ".join(f"{part} {value:.2f}" for part, value in parts.items())
            beside = f"; nvbench {min(theirs):.2f} s" if theirs else ""
            print(f"{name}: {seconds:.2f} s ({parts_text}){beside}", flush=True)


def measured(words: list[str]) -> tuple[float, dict[str, Any]]:
    """Return the wall time of a command in seconds, and the seconds of its parts."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "cudabench", *words, "--device", "cuda", "--json", "-", "-q"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, json.loads(ran.stdout)["provenance"]["seconds"]


if __name__ == "__main__":
    main(sys.argv[1:])
