"""Are the verdicts of `cudabench compare` right between real runs? Only the first step needs a GPU:

    python benchmarks/verdicts.py measure FOLDER [ROUNDS|SECONDSs [TASK ...]]
    python benchmarks/verdicts.py judge FOLDER [OTHER_FOLDER]
    python benchmarks/verdicts.py excerpt FILE.npz FOLDER...

`measure` runs every task once per round, each in a separate `cudabench` process with the default options, so that the
runs of one kernel are minutes apart with other work in between. With `470s` in place of a number of rounds, no process
starts after that many seconds. An interrupted run keeps every finished kernel; `measure` into the same folder adds
rounds. The tasks are kernels of the ladders, which do not change, and those of slowed.cu, slower by 0, 3, 6 and 12% of
bytes, arithmetic or latency.

`judge` compares all ordered pairs of runs of one task: for 20 runs, 380 pairs of a kernel with itself, and 400 of a
slowed kernel with the unslowed one. The column `true` is the median of all ratios; 99% of the ratios lie between the
next two. With two folders the base is from the first and the new run from the second, as on two cards of one model.

`excerpt` keeps some samples of each run, in nanoseconds, for the tests; a task of a later folder replaces that of an
earlier one.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from cudabench.records import file as results
from cudabench.records.file import ResultsFile
from cudabench.results import compare

THRESHOLD = 0.05
WORDS = ("faster", "same", "unclear", "slower")
SLOWED = (0, 3, 6, 12)  # how much slower the kernels are made, in percent
KEPT = 100  # how many samples of a run an excerpt keeps
USERS_FILE = str(Path(__file__).with_name("slowed.cu"))

Run = dict[str, ResultsFile]  # the results of one round, keyed by task


def tasks() -> dict[str, list[str]]:
    """Return the command lines, keyed by task; `n` in a command line is a number of elements."""
    ladder = ["transpose", "--no-cpu", *(f"--kernel={k}" for k in ("naive-row", "smem-pad", "tile-rows", "vector"))]
    named = {
        "transpose-4096": [*ladder, "--size", "4096"],
        "transpose-2048": [*ladder, "--size", "2048"],
        "transpose-1024": [*ladder, "--size", "1024"],
        "transpose-256": [*ladder, "--size", "256"],
        "matmul": ["matmul", "--no-cpu", "--size", "2048", "--kernel", "naive", "--kernel", "vector"],
        "vecadd": ["vecadd", "--no-cpu", "--kernel", "all"],
    }
    arguments = ["--arg=in=float32[n]:random", "--arg=out=float32[n]:empty"]
    for percent in SLOWED:
        common = [
            "run",
            USERS_FILE,
            "--no-cpu",
            "--block=256",
            "--expect=out=in",
            "--bytes=8*n",
            f"-DPERCENT={percent}",
        ]
        named[f"slowed-{percent}"] = [
            *(*common, "--kernel=stream", "--kernel=arithmetic", "--grid=2112"),
            *(*arguments, f"--arg=n={1 << 26}", "--arg=zero=0"),
        ]
        named[f"chase-{percent}"] = [
            *(*common, "--kernel=chase", "--grid=cdiv(n,256)"),
            *(*arguments, "--arg=n=4096", "--arg=zero=0"),
        ]
    return named


def measure(folder: Path, rounds: int | None, seconds: float | None, only: list[str]) -> None:
    """Write FOLDER/ROUND-TASK.json for every task, in rounds numbered after the existing ones; what a failed process
    wrote is renamed to FOLDER/ROUND-TASK.failed."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 1 + max((int(path.name.partition("-")[0]) for path in folder.glob("[0-9]*-*.*")), default=-1)
    chosen = {name: command for name, command in tasks().items() if not only or any(name.startswith(o) for o in only)}
    end = None if seconds is None else time.monotonic() + seconds
    for at in itertools.count(first) if rounds is None else range(first, first + rounds):
        start = time.monotonic()
        for name, command in chosen.items():
            if end is not None and time.monotonic() > end:
                print(f"round {at}: stopped before {name}", flush=True)
                return
            target = folder / f"{at:02d}-{name}.json"
            code = subprocess.run(
                [sys.executable, "-m", "cudabench", *command, "--device", "cuda", "--quiet", "--json", str(target)]
            ).returncode
            if code:
                print(f"round {at}: {name} failed with exit code {code}", flush=True)
                if target.exists():
                    target.rename(target.with_suffix(".failed"))
        print(f"round {at}: {time.monotonic() - start:.0f} s", flush=True)


def read(folder: Path) -> list[Run]:
    """Return the results of the rounds that `measure` wrote."""
    rounds: dict[str, Run] = {}
    for path in sorted(folder.glob("*.json")):
        at, _, name = path.stem.partition("-")
        rounds.setdefault(at, {})[name] = results.load(path)
    if not rounds:
        sys.exit(f"{folder} holds no run: measure some into it first.")
    return list(rounds.values())


def comparisons(
    base: list[Run], new: list[Run], old_task: str, new_task: str
) -> Iterator[tuple[str, compare.Row, bool]]:
    """Yield for each pair of different runs, and each kernel: the kernel, its row in the comparison, and whether the
    gate fails."""
    for (i, before), (j, after) in product(enumerate(base), enumerate(new)):
        if old_task not in before or new_task not in after or (base is new and i == j and old_task == new_task):
            continue
        found = compare.compare(before[old_task], after[new_task], threshold=THRESHOLD, same_model=base is not new)
        failed = {failure.message.partition(" is ")[0] for failure in compare.failures(found, THRESHOLD)}
        for row in found.rows:
            if row.ratio is None:  # the run was cut off before this kernel was measured
                continue
            yield row.key.kernel, row, compare.name_of(row.key) in failed


def judge(base: list[Run], new: list[Run]) -> None:
    """Print how often each verdict occurs among all pairs, one line per kernel."""
    print(f"{'task':<16}{'kernel':<14}{'true':>8}  {'99% of pairs':>16}{'pairs':>7}", end="")
    print("".join(f"{word:>9}" for word in (*WORDS, "exit 4")))
    unslowed = {
        name: name.rpartition("-")[0] + "-0" if name.startswith(("slowed", "chase")) else name for name in tasks()
    }
    for task, old_task in unslowed.items():
        kernels: dict[str, list[tuple[compare.Row, bool]]] = {}
        for kernel, row, failed in comparisons(base, new, old_task, task):
            kernels.setdefault(kernel, []).append((row, failed))
        for kernel, found in kernels.items():
            ratios = np.array([row.ratio.value for row, _ in found if row.ratio])
            low, middle, high = np.quantile(ratios, [0.005, 0.5, 0.995])
            shares = [sum(row.verdict == word for row, _ in found) for word in WORDS]
            shares.append(sum(failed for _, failed in found))
            print(f"{task:<16}{kernel:<14}{middle:>8.4f}  {low:>7.4f} {high:>8.4f}{len(found):>7}", end="")
            print("".join(f"{share / len(found):>9.1%}" for share in shares), flush=True)


def excerpt(target: Path, folders: list[Path]) -> None:
    """Write an array of samples for each `TASK/KERNEL`, with one row per run."""
    series: dict[str, np.ndarray] = {}
    for folder in folders:
        found: dict[str, list[np.ndarray]] = {}
        for run in read(folder):
            for task, file in run.items():
                for result in file.results:
                    assert result.time is not None
                    samples = np.asarray(result.time.samples_s)
                    kept = samples[np.linspace(0, len(samples) - 1, KEPT).round().astype(int)]
                    found.setdefault(f"{task}/{result.kernel}", []).append((kept * 1e9).round().astype(np.int32))
        series |= {name: np.stack(runs) for name, runs in found.items()}
    np.savez_compressed(target, **series)  # type: ignore[arg-type]


def main() -> None:
    """Run the step that the command line names."""
    match sys.argv[1:]:
        case ["measure", folder, *rest]:
            limit = rest[0] if rest else "20"
            timed = limit.endswith("s")
            measure(Path(folder), None if timed else int(limit), float(limit[:-1]) if timed else None, rest[1:])
        case ["judge", base]:
            runs = read(Path(base))
            judge(runs, runs)
        case ["judge", base, new]:
            judge(read(Path(base)), read(Path(new)))
        case ["excerpt", target, *folders] if folders:
            excerpt(Path(target), [Path(folder) for folder in folders])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
