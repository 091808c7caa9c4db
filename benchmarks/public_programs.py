"""Run whole public programs, unedited, through `cudabench exec` and on a GPU, and compare:

    python benchmarks/public_programs.py exec FOLDER OUT.json [NAME ...]   # anywhere: the simulator
    python benchmarks/public_programs.py card FOLDER OUT.json [NAME ...]   # GPU and nvcc: exit code, output, seconds
    python benchmarks/public_programs.py table EXEC.json CARD.json         # how many end as on a GPU

FOLDER holds checkouts of the repositories that public_programs.toml names. A program ends as on a GPU if its exit code
is the same and the lines that it prints on the GPU are in exec's output; numbers, blanks and paths are ignored. Each
program may take SECONDS.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 240
KEPT = 20_000  # how many characters of a program's output are kept
Program = dict[str, Any]


def programs(only: list[str]) -> dict[str, Program]:
    """Return the programs, keyed by the name of their folder."""
    import tomllib

    rows = tomllib.loads((HERE / "public_programs.toml").read_text())["program"]
    named = {Path(row["folder"]).name: row for row in rows}
    return {name: row for name, row in named.items() if not only or name in only}


def sources(folder: Path) -> list[str]:
    """Return the files to compile: the sources in the folder or, if it has none, in its subfolder `src`."""
    found = sorted(path.name for path in folder.iterdir() if path.suffix in (".cu", ".cpp"))
    return found or sorted(
        f"src/{path.name}" for path in (folder / "src").glob("*.c*") if path.suffix in (".cu", ".cpp")
    )


def run(command: list[str], folder: Path) -> dict[str, Any]:
    """Return the exit code, output and seconds of a command; exit code 124 for a command that took too long."""
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err = 124, late.stdout or b"", late.stderr or b""
    texts = (text.decode("utf-8", "replace")[-KEPT:] for text in (out, err))
    return {
        "code": code,
        "seconds": round(time.monotonic() - begin, 1),
        **dict(zip(("out", "err"), texts, strict=True)),
    }


def measure(how: str, root: Path, name: str, row: Program) -> dict[str, Any]:
    """Run one program in the simulator, or build it and run it on the GPU."""
    folder = root / row["folder"]
    if not folder.is_dir():
        return {"code": -1, "seconds": 0, "out": "", "err": f"{folder} is not there"}
    words = [*sources(folder), *row.get("besides", [])]
    arguments = shlex.split(row.get("arguments", ""))
    options = [
        *row.get("options", []),
        *(["-I", str(root / "cuda-samples/Common")] if "cuda-samples" in row["folder"] else []),
    ]
    if how == "exec":
        return run([sys.executable, "-m", "cudabench", "exec", *words, *options, "--", *arguments], folder)
    with tempfile.TemporaryDirectory() as made:
        app = f"{made}/{name}"
        flags = ["-w", "-arch=sm_90", "--extended-lambda", "--expt-relaxed-constexpr", *options]
        for more in ([], ["-rdc=true", "-lcudadevrt"]):
            built = run(["nvcc", *flags, *more, *words, "-o", app], folder)
            if built["code"] == 0:
                return run([app, *arguments], folder)
        return {**built, "code": -1}


def lines(text: str) -> list[str]:
    """Return the lines of an output without numbers, paths and blanks."""
    plain = (re.sub(r"\S*/\S+|[-+]?(?:\d[\d.e+-]*|\b(?:inf|nan)\b)", "#", line) for line in text.splitlines())
    plain = (re.sub(r"\s", "", line) for line in plain)
    return [line for line in plain if line]


def ended(ours: dict[str, Any]) -> int:
    """Return the exit code of the program, or that of `exec` if the program did not run; after a hazard `exec` exits
    with 3 whatever the program's exit code is."""
    codes = re.findall(r"^\S+: \d+ launch(?:es)?, .* ended with (\d+)$", ours["out"], re.MULTILINE)
    code: int = int(codes[-1]) if codes else ours["code"]
    return code


def table(simulated: dict[str, Any], card: dict[str, Any]) -> None:
    """Print a row for each program."""
    alike = 0
    print("| program | exec | s | card | s | ends alike |\n| --- | --- | --- | --- | --- | --- |")
    for name, ours in simulated.items():
        theirs = card.get(name, {"code": "?", "seconds": "", "out": ""})
        same = ended(ours) == theirs["code"] and set(lines(theirs["out"])) <= set(lines(ours["out"]))
        alike += same
        cells = (name, *(run[key] for run in (ours, theirs) for key in ("code", "seconds")), "yes" if same else "")
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"\n{alike} of {len(simulated)} end as on the card.")


def main(how: str, *rest: str) -> None:
    """Run the step that the first word names."""
    if how == "table":
        table(*(json.loads(Path(path).read_text()) for path in rest))
        return
    root, out, only = Path(rest[0]).resolve(), Path(rest[1]), list(rest[2:])
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        jobs = {name: pool.submit(measure, how, root, name, row) for name, row in programs(only).items()}
        for name, job in jobs.items():
            found[name] = job.result()
            out.write_text(json.dumps(found, indent=1))
            print(f"{name:32} {found[name]['code']:4} {found[name]['seconds']:7} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
