"""Limits against kernels that were not used to build them: the 24 of unseen.cu, at sizes at which such kernels run.

    python benchmarks/limits_unseen.py record FOLDER [KERNEL ...]    # a GPU
    python benchmarks/limits_unseen.py watch FOLDER [KERNEL ...]     # a GPU, and ncu with access to the counters
    python benchmarks/limits_unseen.py print FOLDER [FOLDER ...]     # anywhere: the tables, of one folder a card
    python benchmarks/limits_unseen.py again FOLDER [FOLDER ...]     # anywhere: the limits as they are now

`record` runs `cudabench run --profile unseen.toml --kernel NAME --limits` for each kernel with a time of its own, so
that one that hangs does not take the others along, and keeps each results file. `watch` has Nsight Compute look at each
kernel's first launch. `print` holds the limits in those files against the times, as limits_against_times.py does for
the ladders. `again` counts once more, in the simulator of this machine, and prices the counts with the card's ceilings
and the model of today: what changed since the record was changed with these kernels in sight, and such a table says so.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from limits_against_times import Row, summary, text  # noqa: E402
from record_ladders import COUNTERS, SECONDS  # noqa: E402

from cudabench.model import Limit  # noqa: E402

PROFILE = HERE / "unseen.toml"
RUN_S, NCU_S, TOGETHER = 40, 40, 6  # seconds for a kernel, for a process under ncu, and the kernels of that
QUICK = ("--no-cpu", "--min-time", "0.1", "--max-time", "0.5")
ONCE = ("--no-cpu", "--min-time", "0", "--max-time", "0.02", "--min-samples", "1", "--quiet")
SIZED = 3  # numbers of a size that the table shows


def kernels() -> list[str]:
    """Return the kernels of the profile in order."""
    return re.findall(r"^\[(\w+)\]$", PROFILE.read_text(), re.MULTILINE)


def command(*words: str) -> list[str]:
    """Return the command line of a run of the profile."""
    return [sys.executable, "-m", "cudabench", "run", "--profile", str(PROFILE), *words]


def ended(words: list[str], seconds: float) -> tuple[int, str, str]:
    """Return the exit code of a process (124 where it took longer), and what it said."""
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds, cwd=HERE.parent)
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        return 124, said, f"over {seconds} s"
    return ran.returncode, ran.stdout, ran.stderr


def record(folder: Path, names: list[str]) -> None:
    """Measure and count each kernel, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.json"
        code, out, err = ended(command("--kernel", name, "--limits", "--json", str(path), *QUICK), RUN_S)
        (folder / f"{name}.txt").write_text(f"{out}\n{err}\nexit {code}\n")
        print(f"{name}: exit {code}", flush=True)


def watch(folder: Path, names: list[str]) -> None:
    """Have Nsight Compute look at each kernel, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(names), TOGETHER):
        some = names[first : first + TOGETHER]
        path = folder / f"ncu_{first // TOGETHER}.csv"
        watched = [
            "ncu", "--cache-control", "all", "--clock-control", "none", "--csv", "--page", "raw", "--print-units",
            "base", "--target-processes", "all", "--filter-mode", "per-launch-config", "--launch-count", "1",
            "--kernel-name", f"regex:^({'|'.join(some)})$", "--metrics", ",".join([SECONDS, *COUNTERS.values()]),
        ]  # fmt: skip
        picked = [word for name in some for word in ("--kernel", name)]
        code, out, err = ended([*watched, *command(*picked, *ONCE)], NCU_S)
        path.write_text("\n".join(line for line in out.splitlines() if line.startswith('"')) + "\n")
        path.with_suffix(".txt").write_text(f"{out[-4000:]}\n{err[-4000:]}\nexit {code}\n")
        print(f"ncu {' '.join(some)}: exit {code}", flush=True)


def shares(folder: Path) -> dict[str, dict[str, float]]:
    """Return by kernel the share of each unit in %, as Nsight Compute saw it."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("ncu_*.csv")):
        for row in csv.DictReader(io.StringIO(path.read_text())):
            if row.get("ID"):
                its = {unit: row.get(counter) or "" for unit, counter in COUNTERS.items()}
                found.setdefault(
                    row["Kernel Name"].partition("(")[0],
                    {unit: float(text.replace(",", "")) for unit, text in its.items() if text},
                )
    return found


def results(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return by kernel the file of its run and the result in it, of those that have a time."""
    found = {}
    for name in kernels():
        path = folder / f"{name}.json"
        content = json.loads(path.read_text()) if path.exists() else {"results": []}
        for result in content["results"]:
            if result.get("time"):
                found[name] = content, result
    return found


def sized(result: dict[str, Any]) -> tuple[int, ...]:
    """Return the whole numbers of a kernel's arguments, which are its size."""
    size = result["size"]
    numbers = size.values() if isinstance(size, dict) else size
    return tuple(int(n) for n in numbers if float(n).is_integer())[:SIZED]


def counted_here(card: Any, found: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, tuple[Limit, ...]]:
    """Return the limits by kernel, counted in the simulator of this machine."""
    import click

    from cudabench.cli import run
    from cudabench.devices.sim import SimDevice
    from cudabench.measure import limited
    from cudabench.model import Settings

    device = SimDevice("sm_" + card.device.compute_capability.replace(".", ""))
    limits = {}
    for name, (_, result) in found.items():
        context = run.command.make_context("run", ["--profile", str(PROFILE), "--kernel", name, "--no-cpu"])
        assert isinstance(context, click.Context)
        with context:
            (series,), _ = run.series_of(context, dict(context.params))
        operation = series.make()
        (case,) = series.cases
        counts = limited.sampled(device, case, operation, case.problem, operation.inputs(case.problem), seconds=600)
        limits[name] = limited.limits_of(device, case, counts, card, Settings(), result["bytes"])
        print(name, limits[name][0], file=sys.stderr, flush=True)
    return limits


def show(folder: Path, again: bool) -> None:
    """Print a card's table."""
    from cudabench.cards.load import like
    from cudabench.results.file import load as read

    found, busy = results(folder), shares(folder)
    if not found:
        sys.exit(f"{folder} has no results of a run")
    content = next(iter(found.values()))[0]
    device = content.get("device") or content["devices"][0]
    card = like(read(folder / f"{next(iter(found))}.json").devices[0])
    limits = counted_here(card, found) if again else {}
    rows, uncounted = [], []
    for name, (_, result) in found.items():
        its = limits.get(name) or tuple(
            Limit(one["resource"], one["time_s"], one["detail"]) for one in result.get("limits") or ()
        )
        unit = max(busy[name], key=lambda unit: busy[name][unit]) if busy.get(name) else None
        if not its:
            uncounted.append(name)
            continue
        share = busy[name][unit] if unit else 0.0
        rows.append(Row("unseen", name, sized(result), result["time"]["median_s"], its, unit, share))
    print(f"on {card.title}; times: {device['name']}, driver {device.get('driver')}, cold medians of cudabench run\n")
    print(f"{'operation':10} {'kernel':18} {'size':14} {'us':>9} {'limit/t':>7} {'busiest':10} longest limits in us")
    print("\n".join(map(text, rows)))
    summary(rows)
    missing = [name for name in kernels() if name not in found]
    print(f"without a time: {', '.join(missing) or 'none'}; without counts: {', '.join(uncounted) or 'none'}")


def main() -> None:
    """Do what the first word says."""
    words = sys.argv[1:]
    if len(words) > 1 and words[0] in ("record", "watch"):
        (record if words[0] == "record" else watch)(Path(words[1]).resolve(), words[2:] or kernels())
    elif len(words) > 1 and words[0] in ("print", "again"):
        for folder in words[1:]:
            show(Path(folder), words[0] == "again")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
