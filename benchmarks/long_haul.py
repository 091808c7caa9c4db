"""Does a card's worker survive every kind of faulty kernel? Needs a GPU:

    python benchmarks/long_haul.py [--seconds 900] [--seed 0] [--device cuda:0] [--report FILE.md] [--state FILE.json]
    python benchmarks/long_haul.py --join STATE.json STATE.json [...] [--report FILE.md]

Runs files of kernels through `cudabench run`, one command after the other, in random order: kernels that write outside
their arrays, read invalid addresses, never end, trap, fail an assertion, need more memory than the card has, or change
a variable; workers and commands that are killed, terminated and interrupted; and right kernels, in the same files and
in others.

Promises for every right kernel: it is `ok` without any tolerance; if it is alone in its command, its input and output
are saved, the output is twice the input bit for bit, and both equal those of the first time. For every wrong kernel: it
has no bandwidth, and does not change other kernels' status. For every row of the results file, which is read while the
command runs: an `ok` row stays the same, however the command ends. For every command: its exit code, no traceback, and
no temporary files.

After each command all its processes must have ended: they inherit a word in their environment, which /proc shows, so
that orphans are found too. The driver's list of processes (NVML, or nvidia-smi) must contain none of them. The card's
free memory is not checked, because others may use the card. If the list has other process numbers than /proc, as in a
container, it must not grow compared with the processes that hold the driver's device.

The exit code is 0, with a line about the haul, or 1 with every broken promise; `--report` writes a page. Report and
state are written after every command, so that an interrupted haul keeps its counts; with `--state` the next haul
continues from there, and the verdict covers all. `--join` runs nothing: it joins the states of several hauls into one
verdict and one page.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

# imports come from this checkout, even if another version of cudabench is installed
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudabench.system.outputs import check_target, write_whole

ROOT = Path(__file__).resolve().parent.parent
N = 1 << 20
# the value of --timeout, after which an endless kernel is ended; a correct kernel needs less, even on a card that
# others use too
TIMEOUT_S = 4
COMMAND_S = 240  # in seconds; a longer command breaks the promise that every command ends
SETTLE_S = 20.0  # seconds that the driver may take to free the memory of a killed process
LOOK_S = 0.25  # seconds between two readings of the driver's list of processes
WORD = "CUDABENCH_LONG_HAUL"
TOO_LARGE_GIB = 4096

GOOD = {
    "twice": "y[i] = 2 * x[i];",
    "plus": "y[i] = x[i] + x[i];",
    "shared": "__shared__ float t[256]; t[threadIdx.x] = x[i]; __syncthreads(); y[i] = t[threadIdx.x] + x[i];",
}
BAD = {
    "far_store": "y[i + (1ll << 40)] = x[i];",
    "near_store": "y[i + n] = x[i];",
    "far_shared": "__shared__ float t[256]; t[i + (1 << 24)] = x[i]; __syncthreads(); y[i] = t[threadIdx.x];",
    "null": "*(float *)nullptr = x[i];",
    "misaligned": "*(float4 *)((char *)y + 4) = make_float4(x[i], 0, 0, 0);",
    "forever": "volatile int *stop = (volatile int *)y; while (stop[i] != 12345) ; y[i] = x[i];",
    "trap": "if (i == 77) __trap(); y[i] = 2 * x[i];",
    "assertion": "assert(i < 1000); y[i] = 2 * x[i];",
    "recursion": "y[i] = deep(x, i % 3 + 1000000);",
    "heap": "while (malloc(1 << 20)) ; y[i] = *(float *)malloc(1 << 30);",
    "nothing": "",
    "half": "if (i % 2) y[i] = 2 * x[i];",
    "not_a_number": "y[i] = x[i] * __int_as_float(0x7fc00000);",
    "wrong": "y[i] = 3 * x[i];",
    "last_bit": "y[i] = i == n - 1 ? nextafterf(2 * x[i], 9) : 2 * x[i];",
    "printing": 'printf("%d of a great many lines\\n", i); y[i] = 3 * x[i];',
}
# This kernel counts its calls in a variable. cudabench resets the variable before every sample, so the output of each
# sample is correct, and the kernel's result must have a warning about the variable.
KEEPING = {"state": "if (i == 0) atomicAdd(&calls, 1); y[i] = calls < 100 ? 2 * x[i] : 0;"}
# For each way to end a command: the process that gets the signal, the signal, and the exit codes that are allowed.
ENDS: dict[str, tuple[str, signal.Signals, tuple[int, ...]]] = {
    "worker killed": ("worker", signal.SIGKILL, (0, 1, 3, 5)),
    "terminated": ("command", signal.SIGTERM, (143,)),
    "interrupted": ("command", signal.SIGINT, (130,)),
    "command killed": ("command", signal.SIGKILL, (-9,)),
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
class Record:
    """The counts of a haul, as its state file has them."""

    seed: int | str  # for several joined hauls: all their seeds as text
    device: str
    parts: int = 1
    seconds: float = 0.0  # the running time of all parts, up to the last time that this file was written
    card: str = ""  # the device and driver that the results files name
    done: Counter[str] = field(default_factory=Counter)  # for each command: how often it ran
    longest_s: dict[str, float] = field(default_factory=dict)  # for each command: its longest time
    # how often each row occurred, keyed by text such as "forever: failed"
    rows: Counter[str] = field(default_factory=Counter)
    # the digests of arrays x and y when they were saved for the first time
    digests: dict[str, str] = field(default_factory=dict)
    compared: int = 0  # how many outputs were compared byte by byte
    kept: int = 0  # how many rows, seen while a command ran, were compared with the file that it left
    listed: int = 0  # how many commands had a worker that was seen in the driver's list of processes
    unlisted: int = 0  # how many commands had a worker that was not seen in this list
    neighbours: int = 0  # the most processes of others that were in this list at the same time
    broken: list[str] = field(default_factory=list)


class Haul:
    """A haul (a run of this script) while it runs."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.record = record
        self.strangers = strangers()

    def hold(self, promise: bool, text: str) -> None:
        """Record a broken promise."""
        if not promise:
            self.record.broken.append(text)
            print(f"BROKEN: {text}", flush=True)

    def command(self, name: str, kernels: list[str], *, kill_after: float | None = None, gigabytes: int = 0) -> str:
        """Run one file of kernels, check every promise, and return the result as text.

        `kill_after`: the seconds after which the signal in `ENDS` is sent; `gigabytes`: the size of the array x.
        """
        source, path = self.folder / "haul.cu", self.folder / "haul.json"
        source.write_text(HEAD + "".join(map(kernel_text, kernels)))
        saved = {array: self.folder / f"{array}.npy" for array in "xy"}
        for old in (path, *saved.values()):
            old.unlink(missing_ok=True)
        n = gigabytes << 28 if gigabytes else N  # the number of floats
        line = [sys.executable, "-m", "cudabench", "run", str(source), *(f"--kernel={k}" for k in kernels)]
        line += ["--grid=cdiv(n,256)", "--block=256", f"--arg=x=float32[{n}]:{'zeros' if gigabytes else 'random'}"]
        line += [f"--arg=y=float32[{n}]:empty", f"--arg=n={N}", "--expect=y=2*x", "--rtol=0", "--atol=0"]
        line += ["--bytes=8*n", "--no-cpu", f"--device={self.record.device}", f"--timeout={TIMEOUT_S}"]
        line += ["--min-time=0.05", "--max-time=0.3", f"--json={path}", "--quiet"]
        if len(kernels) == 1:
            line += [f"--save={array}={file}" for array, file in saved.items()]
        watched = Watched(line, self.temporary, path)
        sent = watched.run(ENDS.get(name), kill_after)
        output = watched.said
        self.record.done[name] += 1
        self.hold(not watched.overdue, f"{name}: the command still ran after {COMMAND_S} s")
        self.hold("Traceback" not in output and "defect" not in output, f"{name}: {output[-500:]}")
        self.nothing_left(name, watched)
        found = self.results(name, kernels, path, saved, watched, sent) if not gigabytes else {}
        self.exit_code(name, kernels, watched, sent, found)
        rows = ", ".join(f"{kernel} {row['status']}" for kernel, row in found.items())
        return f"exit {watched.code}{f' ({rows})' if rows else ''}"

    def exit_code(self, name: str, kernels: list[str], watched: Watched, sent: bool, found: dict[str, Any]) -> None:
        """Check a command's exit code."""
        if name == "too large":
            allowed: tuple[int, ...] = (1, 2)
        elif any(kernel in BAD for kernel in kernels):
            allowed = (1, 3, 5) if self.simulated else (1, 3)
        elif sent:
            # If the command had finished its work when the signal came, it ends with exit code 0, as without a signal.
            whole = len(found) == len(kernels) and all(row["status"] == "ok" for row in found.values())
            allowed = (*ENDS[name][2], *((0,) if whole else ()))
        else:
            allowed = (0,)
        self.hold(watched.code in allowed, f"{name}: exit code {watched.code}, not {allowed}: {watched.said[-500:]}")

    def results(
        self, name: str, kernels: list[str], path: Path, saved: dict[str, Path], watched: Watched, sent: bool
    ) -> dict[str, Any]:
        """Check that the results have all kernels in order, and the correct kernels are `ok`. Return the rows."""
        ended = sent and name != "worker killed"  # the signal ended the command itself, so rows may be missing
        file = read_results(path)
        if file is None:
            self.hold(sent and not watched.rows, f"{name}: no whole results file: {watched.said[-500:]}")
            return {}
        device = file["device"]
        if device:  # there is no device yet if the worker was killed while it started
            self.record.card = self.record.card or f"{device['name']}, driver {device.get('driver') or 'none'}"
        found = {row["kernel"]: row for row in file["results"]}
        # The command also ends early if its worker was killed before the device was ready, or if the simulator cannot
        # run a kernel (exit code 5).
        ended |= (sent and not found) or (self.simulated and watched.code == 5)
        in_order = [*found] == kernels[: len(found)] if ended else [*found] == kernels
        self.hold(in_order, f"{name}: results of {[*found]}, not of {kernels}")
        for kernel, row in watched.rows.items():
            self.hold(core(found.get(kernel)) == core(row), f"{name}: the finished row of {kernel} is lost or changed")
            self.record.kept += 1
        lost = [kernel for kernel, row in found.items() if kernel in GOOD and row["status"] != "ok"]
        for kernel, row in found.items():
            self.record.rows[f"{kernel}: {row['status']}"] += 1
            if kernel in KEEPING:
                named = "state" in {warning["code"] for warning in row["warnings"]}
                self.hold(
                    row["status"] == "ok" and (named or self.simulated), f"{name}: {kernel} keeps a count, untold"
                )
                continue
            if kernel not in GOOD:
                self.hold(row["status"] in ("wrong", "failed"), f"{name}: {kernel} is {row['status']}")
                self.hold(row["bandwidth_gbps"] is None, f"{name}: {kernel} has a bandwidth")
                continue
            ours = any(word in (row["reason"] or "") for word in ("the process of the kernel ended", "SIGKILL"))
            # On a GPU, one worker runs at a time, so the signal may make one kernel fail. In the simulator each core
            # has a worker, and the signal kills all workers.
            by_us = sent and (len(lost) == 1 or self.simulated) and row["status"] == "failed" and ours
            self.hold(row["status"] == "ok" or by_us, f"{name}: the right {kernel} is {row['status']}: {row['reason']}")
            timed = row["time"] is not None and row["time"]["median_s"] > 0 and (row["bandwidth_gbps"] or 0) > 0
            self.hold(timed or row["status"] != "ok" or self.simulated, f"{name}: {kernel} is ok and has no time")
        if len(kernels) == 1 and kernels[0] in GOOD and not sent:
            self.bytes(name, kernels[0], saved)
        return found

    def bytes(self, name: str, kernel: str, saved: dict[str, Path]) -> None:
        """Check a correct kernel's arrays: y is 2 x, and both arrays have the same bytes as in the first check."""
        try:
            x, y = (np.load(saved[array]) for array in "xy")
        except (OSError, ValueError) as error:
            self.hold(False, f"{name}: {kernel}'s arrays were not saved: {error}")
            return
        self.hold(x.size == N and np.array_equal(y, x + x), f"{name}: {kernel}'s y is not 2 x")
        for array, values in (("x", x), ("y", y)):
            digest = hashlib.sha256(values.tobytes()).hexdigest()
            first = self.record.digests.setdefault(array, digest)
            self.hold(first == digest, f"{name}: {kernel} has other bytes in {array} than the first time")
        self.record.compared += 1

    def nothing_left(self, name: str, watched: Watched) -> None:
        """Check that a command left no process, no entry in the driver's list, and no temporary file."""
        end = time.monotonic() + SETTLE_S
        while True:
            alive, now = watched.processes(), listed()
            held, more = watched.pids & (now or set()), strangers() - self.strangers
            if not (alive or held or more > 0) or time.monotonic() > end:
                break
            time.sleep(LOOK_S)
        self.hold(not alive, f"{name}: processes {sorted(alive)} are left")
        self.hold(not held, f"{name}: the driver's list still holds {sorted(held)}, which have ended")
        self.hold(more <= 0, f"{name}: the driver's list holds {more} more than use its device")
        # these additional processes are reported only once: they are expected from now on
        self.strangers = max(self.strangers, strangers())
        for pid in alive:
            kill(pid, signal.SIGKILL)
        left = [*self.temporary.iterdir()]
        self.hold(not left or name == "command killed", f"{name}: left behind {[path.name for path in left]}")
        for path in left:
            subprocess.run(["rm", "-rf", str(path)], check=False)
        if watched.listed is not None and watched.pids:
            ours = bool(watched.pids & watched.listed)
            self.record.listed += ours
            self.record.unlisted += not ours
            self.record.neighbours = max(self.record.neighbours, len(watched.before or ()))

    @property
    def simulated(self) -> bool:
        """Whether the simulator is used, as when one tries this script without a GPU."""
        return self.record.device.startswith("sim")


class Watched:
    """One command while it runs: its processes, its rows in the results file, and the driver's list of processes."""

    def __init__(self, line: list[str], temporary: Path, results: Path) -> None:
        self.line, self.temporary, self.path = line, temporary, results
        self.word = secrets.token_hex(8)
        self.pids: set[int] = set()
        self.rows: dict[str, Any] = {}  # for each kernel: its row when it was first seen with status `ok`
        self.before = listed()
        self.listed: set[int] | None = None if self.before is None else set()
        self.code: int | None = None
        self.said = ""
        self.overdue = False

    def run(self, ending: tuple[str, signal.Signals, tuple[int, ...]] | None, after: float | None) -> bool:
        """Run the command to its end; return whether the signal was sent before the end."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, WORD: self.word, "TMPDIR": str(self.temporary), "PYTHONPATH": path}
        sent, looked = False, 0.0
        # the output goes to a file, because a pipe that nobody reads would fill up and block the command
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.line, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )
            started = time.monotonic()
            first = None  # when the first worker was seen; before that, Python is still starting and handles no signals
            try:
                while process.poll() is None and time.monotonic() < started + COMMAND_S:
                    self.look()
                    workers = self.processes() - {process.pid}
                    if first is None and (workers or time.monotonic() > started + 3):
                        first = time.monotonic()
                    if ending and first and after is not None and not sent and time.monotonic() > first + after:
                        for pid in workers if ending[0] == "worker" else {process.pid}:
                            sent = kill(pid, ending[1]) or sent
                    if workers and self.listed is not None and time.monotonic() > looked + LOOK_S:
                        self.listed |= listed() or set()
                        looked = time.monotonic()
                    time.sleep(0.05)
                self.overdue = process.poll() is None
            finally:
                if process.poll() is None:
                    process.kill()
                self.code = process.wait()
            output.seek(0)
            self.said = output.read().decode("utf-8", "replace")
        return sent

    def look(self) -> None:
        """Record the current processes and rows."""
        self.pids |= self.processes()
        file = read_results(self.path) or {"results": []}
        for row in file["results"]:
            if row["status"] == "ok":
                self.rows.setdefault(row["kernel"], row)

    def processes(self) -> set[int]:
        """Return the ids of the command's running processes, including those whose parent has ended."""
        mark = f"{WORD}={self.word}".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # the process belongs to another user, or has ended
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
        return found


def core(row: dict[str, Any] | None) -> Any:
    """Return the parts of a finished row that must not change later. Figures that depend on other rows may change."""
    return row and [row[key] for key in ("status", "verification", "time", "bytes", "block", "grid")]


def read_results(path: Path) -> Any:
    """Return a results file's content, or None if it is missing or incomplete."""
    try:
        file = json.loads(path.read_text())
        return file if isinstance(file["results"], list) else None
    except (OSError, ValueError, KeyError):
        return None


def kernel_text(name: str) -> str:
    """Return a kernel's source."""
    body = (GOOD | KEEPING | BAD)[name]
    return (
        f'extern "C" __global__ void {name}(const float *x, float *y, int n) {{\n'
        f"  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  {body}\n}}\n"
    )


def kill(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process of a command; return whether it was still alive."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def listed() -> set[int] | None:
    """Return the numbers of the processes in the driver's list, over all cards; None without a list."""
    try:
        import pynvml

        pynvml.nvmlInit()
        cards = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {int(process.pid) for card in cards for process in pynvml.nvmlDeviceGetComputeRunningProcesses(card)}
    except ImportError:
        pass
    except pynvml.NVMLError:
        return None
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return {int(word) for word in output.split() if word.isdigit()}


def strangers() -> int:
    """Return how many more processes are in the driver's list than have the device open on this machine.

    A computing process opens the device before it is listed, and it leaves the list before it closes the device. So a
    positive number shows processes that the driver still lists although they have ended, or that /proc does not show.
    """
    users = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # the process belongs to another user, or has ended
            if entry.name.isdigit():
                users += any(os.readlink(descriptor) == "/dev/nvidia-uvm" for descriptor in (entry / "fd").iterdir())
    return len(listed() or ()) - users


def tasks(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, arguments) of commands. Each round has every bad kernel, alone and between good kernels, in a random
    order."""
    while True:
        round_: list[tuple[str, dict[str, Any]]] = [("good", {"kernels": [kernel]}) for kernel in GOOD]
        for bad in (*BAD, *KEEPING):
            good = chance.sample([*GOOD], 2)
            kernels = [good[0], bad, good[1]] if chance.random() < 0.7 else [bad, good[0]]
            round_.append((bad, {"kernels": kernels}))
        for name in ENDS:
            kernels = chance.sample([*GOOD], len(GOOD))
            round_.append((name, {"kernels": kernels, "kill_after": chance.uniform(0, 5)}))
        round_.append(("too large", {"kernels": ["twice"], "gigabytes": TOO_LARGE_GIB}))
        chance.shuffle(round_)
        yield from round_


def joined(records: Sequence[Record]) -> Record:
    """Return the sum of several hauls; each broken promise is shown with the seed of its haul."""
    if len(records) == 1:
        return records[0]
    longest: dict[str, float] = {}
    for record in records:
        for name, took in record.longest_s.items():
            longest[name] = max(took, longest.get(name, 0))
    return Record(
        " and ".join(str(record.seed) for record in records),
        records[0].device,
        parts=sum(record.parts for record in records),
        seconds=sum(record.seconds for record in records),
        card="; ".join(dict.fromkeys(filter(None, (record.card for record in records)))),
        done=sum((record.done for record in records), Counter()),
        longest_s=longest,
        rows=sum((record.rows for record in records), Counter()),
        compared=sum(record.compared for record in records),
        kept=sum(record.kept for record in records),
        listed=sum(record.listed for record in records),
        unlisted=sum(record.unlisted for record in records),
        neighbours=max(record.neighbours for record in records),
        broken=[f"seed {record.seed}: {promise}" for record in records for promise in record.broken],
    )


def summary(record: Record) -> str:
    """Return a line about a haul."""
    good = sum(count for key, count in record.rows.items() if key.split(":")[0] in GOOD and key.endswith(" ok"))
    return (
        f"seed {record.seed}, {record.parts} part{'s'[: record.parts > 1]}, {record.seconds:.0f} s: "
        f"{sum(record.done.values())} commands, {good} right kernels ok, {record.compared} outputs the same bytes, "
        f"{record.kept} rows kept; {len(record.broken)} promises broken"
    )


def page(records: Sequence[Record]) -> str:
    """Return a page in Markdown about one haul, or about several and their sums."""
    record = joined(records)
    lines = [f"# The long haul: {record.card or record.device}", ""]
    lines += [
        f"`python benchmarks/long_haul.py --seconds {haul.seconds:.0f} --seed {haul.seed}`: {summary(haul)}.\n"
        for haul in records
    ]
    if len(records) > 1:
        lines += [f"Together: {summary(record)}.\n"]
    if record.listed:
        how = f"by its number in the driver's list, where {record.listed} commands' workers were seen"
    elif record.unlisted:
        how = "by the length of the driver's list, which numbers processes otherwise than this machine"
    else:
        how = "by the workers' ends alone: there was no list of the driver's"
    lines += [f"Memory of the GPU was judged by process: {how}."]
    if record.neighbours:
        lines += [f"Up to {record.neighbours} processes of others used the cards besides."]
    lines += ["", "| command | times | longest | kernels |", "| --- | --: | --: | --- |"]
    for name, count in sorted(record.done.items()):
        own = [f"{key} {times}" for key, times in sorted(record.rows.items()) if key.split(":")[0] == name]
        lines.append(f"| {name} | {count} | {record.longest_s.get(name, 0):.1f} s | {', '.join(own) or '-'} |")
    rows = [f"{key} {times}" for key, times in sorted(record.rows.items()) if key.split(":")[0] in GOOD]
    lines += [
        "",
        f"The right kernels, over all commands: {', '.join(rows) or 'none'}. Right ones that failed are those ",
    ]
    lines[-1] += "whose process was killed while it ran them."
    lines += [
        "",
        "## Promises broken",
        "",
        *([f"* {' '.join(promise.split())}" for promise in record.broken] or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def begin(path: Path | None, seed: int, device: str) -> Record:
    """Return the record to continue with. Raises SystemExit for a state file of another haul."""
    if path is None or not path.exists():
        return Record(seed, device)
    record = read_state(path)
    if (record.seed, record.device) != (seed, device):
        sys.exit(f"{path} is of --seed {record.seed} --device {record.device}: use them, or another file.")
    record.parts += 1
    return record


def read_state(path: Path) -> Record:
    """Return the record in a state file. Raises SystemExit for another file."""
    state = json.loads(path.read_text())
    if {*state} != {*vars(Record(0, ""))}:
        sys.exit(f"{path} is not a state file of this script: name another file.")
    return Record(**state | {"done": Counter(state["done"]), "rows": Counter(state["rows"])})


def main() -> int:
    """Run a haul, or join several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--report", type=Path, metavar="FILE.md")
    parser.add_argument("--state", type=Path, metavar="FILE.json")
    parser.add_argument("--join", type=Path, nargs="+", metavar="STATE.json")
    given = parser.parse_args()
    for option in ("report", "state"):
        if getattr(given, option) is not None:
            check_target(getattr(given, option), f"--{option}")
    # sys.exit runs the `finally` blocks, which end the running command and remove its files
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.join:
        records = [read_state(path) for path in given.join]
        if given.report is not None:
            write_whole(given.report, page(records).encode())
        print(summary(joined(records)))
        return 1 if joined(records).broken else 0
    record = begin(given.state, given.seed, given.device)
    before, began = record.seconds, time.monotonic()

    def write() -> None:
        record.seconds = before + time.monotonic() - began
        if given.state is not None:
            write_whole(given.state, (json.dumps(vars(record), indent=2) + "\n").encode())
        if given.report is not None:
            write_whole(given.report, page([record]).encode())

    with tempfile.TemporaryDirectory() as folder:
        haul = Haul(Path(folder), record)
        for name, arguments in islice(tasks(random.Random(given.seed)), sum(record.done.values()), None):
            start = time.monotonic()
            if start > began + given.seconds:
                break
            became = haul.command(name, **arguments)
            took = time.monotonic() - start
            record.longest_s[name] = max(took, record.longest_s.get(name, 0))
            write()
            clock = f"[{time.monotonic() - began:4.0f} of {given.seconds:.0f} s]"
            print(f"{clock} {name}: {', '.join(arguments['kernels'])}: {took:.1f} s, {became}", flush=True)
    write()
    print(summary(record))
    return 1 if record.broken else 0


if __name__ == "__main__":
    sys.exit(main())
