"""Measure the time and memory of `cudabench fleet report` on very many shards.

    python benchmarks/fleet_shards.py [--cards 100000] [--samples 50] > benchmarks/results/fleet_shards.md

The shards are copies of one shard of the transpose ladder, written by the writer of results files, with other times:
noise of 0.5%, one card in a thousand 5% slow, and one in a thousand 30% slow with a low clock. The report runs in a
separate process, as a user starts it; memory is the sum of the peaks of that process and of each process that reads for
it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from cudabench import operations
from cudabench.devices import probe
from cudabench.records.file import ResultsFile, document_text
from cudabench.records.fleet import Card, Fleet, Load
from cudabench.records.results import DeviceInfo, Result, Timing, Verification

KERNELS = 13
NOISE = 0.005
MODEL = "NVIDIA H100 80GB HBM3"
USUAL_MHZ = 1980.0


def template(samples: int) -> tuple[list[str], list[str]]:
    """Return the text of a shard in pieces, and the marks between the pieces; in each card's shard the marks are
    replaced by the card's values."""
    names = [kernel.name for kernel in operations.get("transpose").kernels[:KERNELS]]
    marks = iter(range(1, 1 << 30))

    def mark() -> float:
        return next(marks) * 1e-3 + 7e9

    results = [
        Result(
            operation="transpose", kernel=name, id=at, function=name, source="transpose.cu",
            size={"rows": 4096, "cols": 4096}, dtype="float32", block=(32, 8, 1), grid=(128, 128, 1), device="cuda:0",
            status="ok", verification=Verification(0, None, 0.0, 0.0, ("before", "after"), 3),
            time=Timing(mark(), 1e-5, 1e-5, 1e-5, 1e-5, 1e-4, samples, "cold", tuple(1e-5 for _ in range(samples))),
            bytes=2 * 4 * 4096 * 4096,
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    device = DeviceInfo(MODEL, "cuda", "9.0", uuid="@uuid@", index=0)
    card = Card("@uuid@", "ok", model=MODEL, host="@host@", rack="@rack@", load=Load(sm_mhz=mark(), memory_mhz=2619.0))
    file = ResultsFile({}, {}, probe.host(), [device], results, {"utc": "2026-11-20T10:00:00+00:00"}, fleet=Fleet(card))
    text = document_text(file.document())
    return re.split(r"7000000000\.\d+|@(?:uuid|host|rack)@", text), re.findall(
        r"7000000000\.\d+|@(?:uuid|host|rack)@", text
    )


def write(folder: Path, cards: int, samples: int) -> tuple[set[str], int]:
    """Write the shards; return the slow cards, and the bytes of all shards."""
    pieces, marks = template(samples)
    numbers = [mark for mark in marks if mark.startswith("7")]
    chance = random.Random(0)
    planted, size = set(), 0
    for number in range(cards):
        uuid = f"GPU-{number:08x}-0000-0000-0000-{number:012x}"
        slow = 1.05 if number % 1000 == 400 else 1.3 if number % 1000 == 900 else 1.0
        if slow > 1:
            planted.add(uuid)
        own = {"@uuid@": uuid, "@host@": f"node{number // 8}", "@rack@": f"rack{number // 256}"}
        own |= {mark: repr(3e-5 * slow * (1 + NOISE * chance.gauss(0, 1))) for mark in numbers}
        own[numbers[-1]] = repr(USUAL_MHZ / (slow if slow > 1.1 else 1))
        text = pieces[0] + "".join(own[mark] + piece for mark, piece in zip(marks, pieces[1:], strict=True))
        size += len(text)
        (folder / f"{uuid}.json").write_text(text)
    return planted, size


def peak_kib(process: int) -> int:
    """Return the peak memory of a process in KiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+)", text)
    return int(found[1]) if found else 0


def family(process: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(descendant for child in children for descendant in family(int(child)))]


def main() -> None:
    """Write the shards, run the report, and print its time and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.keep or Path(name) / "shards"
        folder.mkdir(parents=True, exist_ok=True)
        planted, size = write(folder, given.cards, given.samples)
        print(
            f"# A fleet's report of {given.cards:,} cards\n\n"
            f"`python benchmarks/fleet_shards.py`: shards of {KERNELS} kernels with {given.samples} samples each, "
            f"{size / 1e9:.2f} GB, read on {os.cpu_count()} processors ({probe.host()['cpu']}) by "
            f"{'orjson' if find_spec('orjson') else 'json'}.\nSeconds of processors are those of all processes "
            "together; the load is that of the minute before, of other work too.\n\n"
            "| command | seconds | of processors | load | memory, GB | processes | exit code |\n"
            "| --- | --: | --: | --: | --: | --: | --: |"
        )
        found = Path(name) / "found.json"
        for words in ([], ["--json", str(found)], ["-o", str(Path(name) / "report.html")]):
            shown = " ".join(Path(word).name for word in words)
            print(f"| `{f'fleet report {shown}'.strip()}`{reported(folder, words)}", flush=True)
        slow = {card["id"] for card in json.loads(found.read_text())["fleet"]["slow"]}
        print(
            f"\nOf {len(planted)} planted slow cards {len(planted & slow)} were found; "
            f"{len(slow - planted)} others were called slow."
        )


def reported(folder: Path, words: list[str]) -> str:
    """Run a report and return its time and memory as the cells of a table."""
    load = os.getloadavg()[0]
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    running = subprocess.Popen(
        [sys.executable, "-m", "cudabench", "fleet", "report", str(folder), *words], stdout=subprocess.DEVNULL
    )
    peaks: dict[int, int] = {}
    while running.poll() is None:
        for process in family(running.pid):
            peaks[process] = max(peaks.get(process, 0), peak_kib(process))
        time.sleep(0.05)
    took, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = sum(peaks.values()) * 1024 / 1e9
    return f" | {took:.1f} | {busy:.1f} | {load:.1f} | {memory:.2f} | {len(peaks)} | {running.returncode} |"


if __name__ == "__main__":
    main()
