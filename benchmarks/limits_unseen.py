"""Limits against kernels that were not used to build them: the 24 of unseen.cu, at sizes at which such kernels run.

    python benchmarks/limits_unseen.py record FOLDER [KERNEL ...]    # a GPU
    python benchmarks/limits_unseen.py watch FOLDER [KERNEL ...]     # a GPU, and ncu with access to the counters
    python benchmarks/limits_unseen.py pack FOLDER [FOLDER ...] FILE.json    # what runs on one card left, in one file
    python benchmarks/limits_unseen.py print FILE.json               # anywhere: the limits as they were, and the times
    python benchmarks/limits_unseen.py again FILE.json               # anywhere: the limits as they are now

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
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from limits_against_times import Row, launched, summary, text  # noqa: E402
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


def gathered(folders: Sequence[Path]) -> dict[str, Any]:
    """Return what folders of one card hold, as `print` reads it: each kernel's time, size, limits and shares."""
    device, kernels = None, {}
    for folder in folders:
        busy = shares(folder)
        for path in sorted(folder.glob("*.json")):
            content = json.loads(path.read_text())
            device = device or content["device"]
            for result in content["results"]:
                if result.get("time"):
                    kernels[result["kernel"]] = {
                        "file": Path(result["source"]).name,
                        "size": [n for n in result["size"].values() if float(n).is_integer()][:SIZED],
                        "seconds": result["time"]["median_s"],
                        "bytes": result["bytes"],
                        "limits": result.get("limits"),
                    }
        for name, units in busy.items():
            if name in kernels:
                kernels[name]["busy"] = units
    return {"device": device, "kernels": kernels}


def counted_here(card: Any, kernels: dict[str, Any]) -> dict[str, tuple[Limit, ...]]:
    """Return the limits by kernel, counted in the simulator of this machine."""
    from cudabench.cli import run
    from cudabench.devices.sim import SimDevice
    from cudabench.measure import limited
    from cudabench.model import Settings

    device = SimDevice("sm_" + card.device.compute_capability.replace(".", ""))
    limits = {}
    for name, one in kernels.items():
        profile = HERE / Path(one["file"]).with_suffix(".toml")
        context = run.command.make_context("run", ["--profile", str(profile), "--kernel", name, "--no-cpu"])
        with context:
            (series,), _ = run.series_of(context, dict(context.params))
        operation, (case,) = series.make(), series.cases
        inputs = operation.inputs(case.problem)
        counts = limited.sampled(device, case, operation, case.problem, inputs, seconds=600)
        limits[name] = limited.limits_of(device, case, counts, card, Settings(), one["bytes"])
        longest = limits[name][0]
        print(f"{name}: {longest.time_s / one['seconds']:.3f} {longest.resource}", file=sys.stderr, flush=True)
    return limits


def show(recorded: dict[str, Any], again: bool) -> None:
    """Print a card's table."""
    from cudabench.cards.load import like
    from cudabench.model import DeviceInfo

    device, kernels = recorded["device"], recorded["kernels"]
    known = {spec.name for spec in fields(DeviceInfo)}
    card = like(DeviceInfo(**{name: value for name, value in device.items() if name in known}))
    limits = counted_here(card, kernels) if again else {}
    rows, uncounted = [], []
    for name, one in kernels.items():
        its = limits.get(name) or tuple(Limit(**limit) for limit in one["limits"] or ())
        busy = one.get("busy") or {}
        unit = max(busy, key=lambda unit: busy[unit]) if busy else None
        if its:
            size = tuple(one["size"])
            rows.append(
                Row(one["file"][:-3], name, size, one["seconds"], its, unit, busy.get(unit, 0.0), launched(card))
            )
        else:
            uncounted.append(name)
    print(f"on {card.title}; times: {device['name']}, driver {device['driver']}, cold medians of cudabench run\n")
    print(f"{'file':10} {'kernel':18} {'size':14} {'us':>9} {'limit/t':>7} {'busiest':10} longest limits in us")
    print("\n".join(map(text, rows)))
    summary(rows)
    print(f"without counts: {', '.join(uncounted) or 'none'}")


def main() -> None:
    """Do what the first word says."""
    words = sys.argv[1:]
    if len(words) > 1 and words[0] in ("record", "watch"):
        (record if words[0] == "record" else watch)(Path(words[1]).resolve(), words[2:] or kernels())
    elif len(words) > 2 and words[0] == "pack":
        found = gathered([Path(word) for word in words[1:-1]])
        Path(words[-1]).write_text(json.dumps(found, indent=1) + "\n")
    elif len(words) > 1 and words[0] in ("print", "again"):
        for word in words[1:]:
            show(json.loads(Path(word).read_text()), words[0] == "again")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
