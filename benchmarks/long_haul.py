"""Does a card's worker survive whatever kernels do? Needs a GPU:

    python benchmarks/long_haul.py [--minutes 4] [--seed 0] [--device cuda:0] [--state FILE.json]

Runs files of kernels through `cudabench run`, one process after the other, in random order: kernels that write outside
their arrays, read where nothing is, never end, trap, fail an assertion, want more memory than the card has, leave a
variable behind, and worker processes that are killed from outside in the middle; between them, in the same file and in
files of their own, kernels that are right. Of every right one it holds that it is `ok`, that its output is the same
bytes as at the first time, and that its results file is whole; of every bad one, that it has no time and no other
kernel's status. After each command it holds that no process of it is left and, where NVML is installed, that the GPU's
memory is as it was before.

Ends with exit code 0 and one line of what was done, or with 1 and every promise that was broken. With `--state` a run
goes on where the one before it with that file ended, and the verdict is over all of them: five runs of three minutes
are one of fifteen. The file is written after every command, so that a part that is cut off counts as far as it came.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from cudabench.outputs import write_whole

N = 1 << 20
TIMEOUT_S = 2  # of a kernel that never ends
COMMAND_S = 240  # a command that takes longer is itself a broken promise
SETTLE_S = 20.0  # for the driver to take back what a killed process had
SLACK_BYTES = 64 << 20  # of the GPU's memory, which its own bookkeeping moves

GOOD = {
    "twice": "y[i] = 2 * x[i];",
    "plus": "y[i] = x[i] + x[i];",
    "shared": "__shared__ float t[256]; t[threadIdx.x] = x[i]; __syncthreads(); y[i] = t[threadIdx.x] + x[i];",
}
BAD = {
    "far_store": "y[i + (1ll << 40)] = x[i];",
    "near_store": "y[i + n] = x[i];",
    "null": "*(float *)nullptr = x[i];",
    "misaligned": "*(float4 *)((char *)y + 4) = make_float4(x[i], 0, 0, 0);",
    "forever": "volatile int *stop = (volatile int *)y; while (stop[i] != 12345) ; y[i] = x[i];",
    "trap": "if (i == 77) __trap(); y[i] = 2 * x[i];",
    "assertion": "assert(i < 1000); y[i] = 2 * x[i];",
    "recursion": "y[i] = deep(x, i % 3 + 1000000);",
    "heap": "while (malloc(1 << 20)) ; y[i] = *(float *)malloc(1 << 30);",
    "nothing": "",
    "wrong": "y[i] = 3 * x[i];",
    "state": "y[i] = calls++ < 300 ? 2 * x[i] : 0;",
    "printing": 'printf("%d of a great many lines\\n", i); y[i] = 3 * x[i];',
}
HEAD = """#include <cassert>
#include <cstdio>
__device__ int calls;
__device__ __noinline__ float deep(const float *x, int n) {
  volatile float room[64];
  room[n % 64] = x[n % 64];
  return n ? deep(x, n - 1) + room[n % 64] : 0;
}
"""


@dataclass
class Haul:
    """What was done, and every promise that was broken."""

    folder: Path
    device: str
    digests: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    minutes: float = 0.0
    parts: int = 1

    def resume(self, path: Path, seed: int) -> None:
        """Go on from a state file; where there is none, begin. Raises SystemExit for one of another haul."""
        if not path.exists():
            return
        state = json.loads(path.read_text())
        if (state["seed"], state["device"]) != (seed, self.device):
            sys.exit(f"{path} is of --seed {state['seed']} --device {state['device']}: use them, or another file.")
        self.digests, self.done, self.broken = {*state["digests"]}, Counter(state["done"]), state["broken"]
        self.minutes, self.parts = state["minutes"], state["parts"] + 1

    def save(self, path: Path, seed: int, minutes: float) -> None:
        """Write the state file, with the minutes of this part."""
        state = {
            "seed": seed,
            "device": self.device,
            "parts": self.parts,
            "minutes": self.minutes + minutes,
            "done": dict(sorted(self.done.items())),
            "digests": sorted(self.digests),
            "broken": self.broken,
        }
        write_whole(path, (json.dumps(state, indent=2) + "\n").encode())

    def hold(self, promise: bool, text: str) -> None:
        """Note a promise that is not kept."""
        if not promise:
            self.broken.append(text)
            print(f"BROKEN: {text}", flush=True)

    def command(self, name: str, kernels: list[str], *, kill_after: float | None = None, gigabytes: int = 0) -> None:
        """Run one file of kernels and hold its end against every promise.

        With `kill_after` its worker is killed after so many seconds; with `gigabytes` it wants an array of that size.
        """
        source, results = self.folder / "haul.cu", self.folder / "haul.json"
        source.write_text(HEAD + "".join(map(kernel_text, kernels)))
        results.unlink(missing_ok=True)
        saved = self.folder / "y.npy"
        saved.unlink(missing_ok=True)
        n = gigabytes << 28 if gigabytes else N  # floats
        line = [sys.executable, "-m", "cudabench", "run", str(source), *(f"--kernel={k}" for k in kernels)]
        line += ["--grid=cdiv(n,256)", "--block=256", f"--arg=x=float32[{n}]:{'zeros' if gigabytes else 'random'}"]
        line += [f"--arg=y=float32[{n}]:empty", f"--arg=n={N}", "--expect=y=2*x", "--bytes=8*n", "--no-cpu"]
        line += [f"--device={self.device}", f"--timeout={TIMEOUT_S}", "--min-time=0.05", "--max-time=0.3"]
        line += [f"--json={results}", "--quiet", *([f"--save=y={saved}"] if len(kernels) == 1 else [])]
        memory = free_memory(self.device)
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            started = time.monotonic()
            workers: set[int] = set()
            killed = False
            while process.poll() is None and time.monotonic() - started < COMMAND_S:
                workers |= {*children(process.pid)}
                if kill_after is not None and not killed and workers and time.monotonic() - started > kill_after:
                    killed = True
                    for worker in children(process.pid):
                        kill(worker)
                time.sleep(0.05)
            if process.poll() is None:
                self.hold(False, f"{name}: the command still ran after {COMMAND_S} s")
                process.kill()
            said = process.stdout.read() if process.stdout else ""
        self.done[name] += 1
        self.hold(process.returncode in range(6), f"{name}: exit code {process.returncode}: {said[-500:]}")
        self.hold("Traceback" not in said and "defect" not in said, f"{name}: {said[-500:]}")
        self.nothing_left(name, workers, memory)
        if not gigabytes:
            self.results(name, kernels, results, saved, killed)

    def results(self, name: str, kernels: list[str], path: Path, saved: Path, killed: bool) -> None:
        """Hold the results of a command: every kernel's own, in its order, the good ones right."""
        try:
            found = {one["kernel"]: one for one in json.loads(path.read_text())["results"]}
        except (OSError, ValueError, KeyError) as error:
            self.hold(killed, f"{name}: no whole results file ({error!r})")
            return
        if not found and self.device.startswith("sim"):
            return  # a kernel that was named and cannot be simulated ends the command
        self.hold(killed or [*found] == kernels, f"{name}: results of {[*found]}, not of {kernels}")
        for kernel, result in found.items():
            if kernel in GOOD:
                lost = any(words in (result["reason"] or "") for words in ("the process that ran it ended", "crashed"))
                self.hold(
                    result["status"] == "ok" or (killed and lost),
                    f"{name}: the good kernel {kernel} is {result['status']}: {result['reason']}",
                )
                timed = result["time"] is not None and result["time"]["median_s"] > 0
                untimed = result["status"] != "ok" or self.device.startswith("sim")
                self.hold(timed or untimed, f"{name}: {kernel} has no time")
            else:
                self.hold(result["status"] in ("wrong", "failed"), f"{name}: {kernel} is {result['status']}")
                self.hold(result["bandwidth_gbps"] is None, f"{name}: {kernel} has a bandwidth")
        if saved.exists() and kernels[0] in GOOD:
            self.digests.add(hashlib.sha256(saved.read_bytes()).hexdigest())
            self.hold(len(self.digests) == 1, f"{name}: {kernels[0]} gave other bytes than before")

    def nothing_left(self, name: str, workers: set[int], before: int | None) -> None:
        """Hold that no process and no memory of a command is left, once the driver had time to clean up."""
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            alive = [worker for worker in workers if is_alive(worker)]
            now = free_memory(self.device)
            lost = 0 if before is None or now is None else before - now
            if not alive and lost <= SLACK_BYTES:
                return
            time.sleep(0.2)
        self.hold(not alive, f"{name}: processes {alive} are left")
        self.hold(lost <= SLACK_BYTES, f"{name}: {lost >> 20} MiB of the GPU are left taken")


def kernel_text(name: str) -> str:
    """Return a kernel's source."""
    body = GOOD.get(name, BAD.get(name, ""))
    return (
        f'extern "C" __global__ void {name}(const float *x, float *y, int n) {{\n'
        f"  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  {body}\n}}\n"
    )


def children(pid: int) -> list[int]:
    """Return the processes that a process and its children started."""
    try:
        own = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*own, *(inner for one in own for inner in children(one))]


def is_alive(pid: int) -> bool:
    """Tell whether a process of ours still is, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid: int) -> None:
    """End a process that a command of ours started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def free_memory(device: str) -> int | None:
    """Return the free bytes of the GPU, None where NVML is not installed."""
    if device.startswith("sim"):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    pynvml.nvmlInit()
    index = int(device.partition(":")[2] or 0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).free)


def tasks(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and arguments of commands: every bad kernel, between good ones and alone, in another order each
    round."""
    while True:
        round_: list[tuple[str, dict[str, Any]]] = [("good", {"kernels": [chance.choice([*GOOD])]}) for _ in range(3)]
        for bad in BAD:
            good = chance.sample([*GOOD], 2)
            kernels = [good[0], bad, good[1]] if chance.random() < 0.7 else [bad, good[0]]
            round_.append((bad, {"kernels": kernels}))
        round_.append(("killed", {"kernels": [*GOOD], "kill_after": chance.uniform(0.2, 4)}))
        round_.append(("too large", {"kernels": ["twice"], "gigabytes": 4096}))
        chance.shuffle(round_)
        yield from round_


def main() -> int:
    """Haul."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--state", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        haul = Haul(Path(folder), given.device)
        if given.state is not None:
            haul.resume(given.state, given.seed)
        for name, arguments in islice(tasks(random.Random(given.seed)), sum(haul.done.values()), None):
            start = time.monotonic()
            if start > began + 60 * given.minutes:
                break
            haul.command(name, **arguments)
            print(f"{name}: {', '.join(arguments['kernels'])}: {time.monotonic() - start:.1f} s", flush=True)
            if given.state is not None:
                haul.save(given.state, given.seed, (time.monotonic() - began) / 60)
    haul.minutes += (time.monotonic() - began) / 60
    counts = ", ".join(f"{count} {name}" for name, count in sorted(haul.done.items()))
    print(
        f"seed {given.seed}, {haul.parts} part{'s'[: haul.parts > 1]}, {haul.minutes:.1f} min: "
        f"{sum(haul.done.values())} commands ({counts}); {len(haul.broken)} promises broken"
    )
    return 1 if haul.broken else 0


if __name__ == "__main__":
    sys.exit(main())
