"""Compares limits with kernels that were not used to develop them: those of unseen.cu and unseen2.cu, at usual sizes.

    python benchmarks/limits_unseen.py predict CARD FILE.json [NAME ...]   # anywhere: the predicted limits
    python benchmarks/limits_unseen.py record FOLDER [NAME ...]     # a GPU
    python benchmarks/limits_unseen.py times FOLDER [NAME ...]      # a GPU: times alone, which is faster
    python benchmarks/limits_unseen.py watch FOLDER [NAME ...]      # a GPU, and ncu with access to the counters
    python benchmarks/limits_unseen.py pack [PREDICTED.json] FOLDER [FOLDER ...] FILE.json   # of one card, in one file
    python benchmarks/limits_unseen.py print FILE.json              # anywhere: the limits as they were, and the times
    python benchmarks/limits_unseen.py again FILE.json              # anywhere: the limits as they are now

A NAME is a kernel, or a profile (such as unseen3 or attacks) for all its kernels; the default is unseen and unseen2.
`predict` counts in the simulator of this machine and prices the counts with a card's ceilings, before times are known.
`record` runs `cudabench run --profile FILE --kernel NAME --limits` for each kernel with its own time limit, so that a
kernel that hangs does not stop the others, and keeps each results file; `times` runs a whole profile in one command
without counting. `watch` runs one launch of each under Nsight Compute. `pack` writes all into one file: with the limits
of the prediction if one is named, else with those of `record`. `print` compares these limits with the times, as
limits_against_times.py does for the ladders. `again` counts again in the simulator of this machine, with today's model:
the model may have changed since with knowledge of these kernels, and such a table says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from limits_against_times import Row, launched, summary, text  # noqa: E402
from ncu import number, rows_of  # noqa: E402
from record_ladders import COUNTERS, SECONDS, prepared, upload  # noqa: E402

from cudabench.records.plan import Case, Operation  # noqa: E402
from cudabench.records.results import Limit  # noqa: E402

PROFILES = ("unseen", "unseen2", "unseen3", "unseen4", "unseen5", "attacks", "bounds")
UNSEEN = PROFILES[:2]
RUN_S, TOGETHER = 40, 6  # time limit of a kernel in seconds, and how many kernels a process runs under ncu
QUICK = ("--no-cpu", "--min-time", "0.1", "--max-time", "0.5")
SIZED = 3  # how many numbers of a size the table shows


def kernels(names: Sequence[str] = UNSEEN) -> dict[str, Path]:
    """Return kernels in order, with their profiles; each of `names` is the name of a kernel or of a profile."""
    known: list[tuple[str, Path]] = []
    for profile in PROFILES:
        path = HERE / f"{profile}.toml"
        known += [(kernel, path) for kernel in re.findall(r"^\[(\w+)\]$", path.read_text(), re.MULTILINE)]
    if lost := set(names) - {kernel for kernel, _ in known} - set(PROFILES):
        sys.exit(f"no kernel or profile is called {', '.join(sorted(lost))}")
    picked: dict[str, Path] = {}
    for kernel, path in known:
        if kernel in names or path.stem in names:
            if kernel in picked:
                sys.exit(f"{kernel} is in {picked[kernel].name} and in {path.name}: name the profiles in two commands")
            picked[kernel] = path
    return picked


def command(profile: Path, *words: str) -> list[str]:
    """Return the command line of a run of a profile."""
    return [sys.executable, "-m", "cudabench", "run", "--profile", str(profile), *words]


def ended(words: list[str], seconds: float) -> tuple[int, str, str]:
    """Return the exit code of a process (124 if it reached the time limit), and its output."""
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds, cwd=HERE.parent)
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        return 124, output, f"over {seconds} s"
    return ran.returncode, ran.stdout, ran.stderr


def record(folder: Path, names: Mapping[str, Path]) -> None:
    """Measure and count each kernel, and write the results into a folder."""
    for name, profile in names.items():
        path = folder / f"{name}.json"
        code, out, err = ended(command(profile, "--kernel", name, "--limits", "--json", str(path), *QUICK), RUN_S)
        (folder / f"{name}.txt").write_text(f"{out}\n{err}\nexit {code}\n")
        print(f"{name}: exit {code}", flush=True)


def times(folder: Path, names: Mapping[str, Path]) -> None:
    """Measure the kernels, all kernels of a profile in one command, and write the results into a folder."""
    for profile in dict.fromkeys(names.values()):
        some = [name for name, own_profile in names.items() if own_profile == profile]
        words = [word for name in some for word in ("--kernel", name)]
        path = folder / f"{profile.stem}.json"
        code, out, err = ended(command(profile, *words, "--json", str(path), *QUICK), RUN_S * len(some))
        path.with_suffix(".txt").write_text(f"{out}\n{err}\nexit {code}\n")
        print(f"{profile.stem}: exit {code}", flush=True)


def case_of(name: str, profile: Path) -> tuple[Case, Operation]:
    """Return a kernel of a profile, ready to run."""
    from cudabench.cli import run

    context = run.command.make_context("run", ["--profile", str(profile), "--kernel", name, "--no-cpu"])
    with context:
        (series,), *_ = run.planned(context, dict(context.params))
    (case,) = series.cases
    return case, series.make()


def launch(log_file: Path, names: Mapping[str, Path]) -> None:
    """Launch each kernel once, under ncu, and log its name."""
    import pycuda.driver as cuda

    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device, log_file.open("w") as log:
        for name, profile in names.items():
            case, operation = case_of(name, profile)
            pointers = upload(operation, case)
            for function, grid, block, arguments, shared in prepared(device, case, pointers):
                function.prepared_call(grid, block, *arguments, shared_size=shared)
            cuda.Context.synchronize()
            print(name, file=log, flush=True)
            for pointer in pointers.values():
                pointer.free()


def watch(folder: Path, names: Mapping[str, Path]) -> None:
    """Profile one launch of each kernel with Nsight Compute, and write the tables into a folder.

    Each process launches at most TOGETHER kernels and writes one table.
    """
    for first in range(0, len(names), TOGETHER):
        some = list(names)[first : first + TOGETHER]
        path = folder / f"ncu_{first // TOGETHER}.csv"
        watched = [
            "ncu", "--cache-control", "all", "--clock-control", "none", "--csv", "--page", "raw", "--print-units",
            "base", "--kernel-name", f"regex:^({'|'.join(some)})$", "--metrics",
            ",".join([SECONDS, *COUNTERS.values()]),
        ]  # fmt: skip
        log = path.with_suffix(".log")
        code, out, err = ended([*watched, sys.executable, __file__, "launch", str(log), *some], RUN_S * len(some))
        path.write_text("\n".join(line for line in out.splitlines() if line.startswith('"')) + "\n")
        path.with_suffix(".txt").write_text(f"{out[-4000:]}\n{err[-4000:]}\nexit {code}\n")
        print(f"ncu: exit {code}, {len(log.read_text().split()) if log.exists() else 0} launched", flush=True)


def shares(folder: Path) -> dict[str, dict[str, float]]:
    """Return each unit's share in % from Nsight Compute's tables, keyed by kernel."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("ncu_*.csv")):
        for row in rows_of(path.read_text()):
            busy = {unit: number(row[counter]) for unit, counter in COUNTERS.items() if row.get(counter)}
            found.setdefault(row["Kernel Name"].partition("(")[0], busy)
    return found


def gathered(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the content of folders (and files of predictions) of one card: each kernel's time, size, limits and
    shares, in the form that `print` reads."""
    device, kernels, predicted = None, {}, {}
    for folder in folders:
        if folder.is_file():
            predicted |= {name: record["limits"] for name, record in json.loads(folder.read_text())["kernels"].items()}
            continue
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
    for name, limits in predicted.items():
        if name in kernels:
            kernels[name]["limits"] = limits
    return {"device": device, "kernels": kernels}


def counted_here(card: Any, names: Mapping[str, Path]) -> Iterator[tuple[str, Case, int | None, tuple[Limit, ...]]]:
    """Yield each kernel, its case, the bytes that it must move and its limits, counted in the simulator of this
    machine."""
    from cudabench.devices.sim import SimDevice
    from cudabench.measure import counting
    from cudabench.records.plan import Settings

    device = SimDevice("sm_" + card.device.compute_capability.replace(".", ""))
    for name, profile in names.items():
        case, operation = case_of(name, profile)
        moved = operation.bytes(case.problem) or None
        inputs = operation.inputs(case.problem)
        counts = counting.run_sample(device, case, operation, case.problem, inputs, seconds=600)
        yield name, case, moved, counting.limits_by_card(device, case, counts, [card], Settings(), moved)[0].limits


def predict(title: str, path: Path, names: Mapping[str, Path]) -> None:
    """Write the limits of the kernels on a card, in the form that `pack` reads."""
    from cudabench.cards.load import load_card

    found: dict[str, Any] = {}
    for name, case, moved, limits in counted_here(load_card(title), names):
        found[name] = {
            "file": Path(case.source.name).name,
            "bytes": moved,
            "limits": [asdict(limit) for limit in limits],
        }
        path.write_text(json.dumps({"card": title, "kernels": found}, indent=1) + "\n")
        print(f"{name}: " + ", ".join(f"{limit.resource} {limit.time_s * 1e6:.1f}" for limit in limits[:4]), flush=True)


def show(recorded: dict[str, Any], again: bool) -> None:
    """Print a card's table."""
    from cudabench.cards.load import card_for_device
    from cudabench.records.results import DeviceInfo

    device, kernels = recorded["device"], recorded["kernels"]
    known = {spec.name for spec in fields(DeviceInfo)}
    card = card_for_device(DeviceInfo(**{name: value for name, value in device.items() if name in known}))
    places = {name: (HERE / record["file"]).with_suffix(".toml") for name, record in kernels.items()}
    limits = {name: kernel_limits for name, _, _, kernel_limits in counted_here(card, places)} if again else {}
    rows, uncounted = [], []
    for name, record in kernels.items():
        kernel_limits = limits.get(name) or tuple(Limit(**limit) for limit in record["limits"] or ())
        busy = record.get("busy") or {}
        unit = max(busy, key=lambda unit: busy[unit]) if busy else None
        if kernel_limits:
            size = tuple(record["size"])
            rows.append(
                Row(
                    record["file"][:-3],
                    name,
                    size,
                    record["seconds"],
                    kernel_limits,
                    unit,
                    busy.get(unit, 0.0),
                    launched(card),
                )
            )
        else:
            uncounted.append(name)
    print(f"on {card.title}; times: {device['name']}, driver {device['driver']}, cold medians of cudabench run\n")
    print(f"{'file':10} {'kernel':18} {'size':14} {'us':>9} {'limit/t':>7} {'busiest':10} longest limits in us")
    print("\n".join(map(text, rows)))
    summary(rows)
    print(f"without counts: {', '.join(uncounted) or 'none'}")


def main() -> None:
    """Run the step that the first word names."""
    words = sys.argv[1:]
    done = {"record": record, "times": times, "watch": watch}
    if len(words) > 1 and words[0] in done:
        folder = Path(words[1]).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        done[words[0]](folder, kernels(words[2:] or UNSEEN))
    elif len(words) > 1 and words[0] == "launch":
        launch(Path(words[1]), kernels(words[2:]))
    elif len(words) > 2 and words[0] == "predict":
        predict(words[1], Path(words[2]), kernels(words[3:] or UNSEEN))
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
