"""Compare the frozen copies with this checkout, or write new ones.

    python -m tests.frozen compare                                  all parts except speed
    python -m tests.frozen compare counts transpose                 one name of one part
    python -m tests.frozen compare machine_code --against HEAD~3    with the output of a git revision, made now
    python -m tests.frozen compare speed --against HEAD~3           the simulator's times, side by side
    python -m tests.frozen write outputs help                       after an intended change

Exit codes: 0 equal, 1 different, 2 written with another version of the compiler: use --against.
"""

from __future__ import annotations

import argparse
import gzip
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.frozen import parts, speed
from tests.frozen.shell import DATA, ROOT, Shell, checkout, shell


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.frozen", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["compare", "write"])
    parser.add_argument("part", nargs="?", choices=[*parts.PARTS, "speed"])
    parser.add_argument("name", nargs="*")
    parser.add_argument("--against", metavar="REV", help="a git revision, in the place of what was written")
    given = parser.parse_args()
    if given.action == "write" and given.against:
        parser.error("write takes no --against")
    known = parts.PARTS[given.part].names() if given.part in parts.PARTS else []
    if unknown := [name for name in given.name if name not in known]:
        parser.error(f"{given.part} has no {unknown[0]}; it has {', '.join(known)}")
    with ExitStack() as stack:
        other = stack.enter_context(checkout(given.against)) if given.against else None
        if given.part == "speed":
            return timed(given.action, other)
        here = stack.enter_context(shell())
        before = stack.enter_context(shell(other)) if other else None
        if given.action == "write" and given.part in (None, "results"):
            add_results(here)
        codes = {0}
        for part in [given.part] if given.part else parts.PARTS:
            for name in given.name or parts.PARTS[part].names():
                now = parts.made(here, part, name)
                if given.action == "write":
                    parts.write(part, name, now)
                    continue
                old = parts.made(before, part, name) if before else parts.stored(part, name)
                if parts.PARTS[part].compiled(name) and old.partition("\n")[0] != now.partition("\n")[0]:
                    codes.add(2)
                    print(f"{part} {name}: {parts.other_compiler(old, now)}")
                    continue
                found = parts.difference(part, name, old, now)
                codes.add(1 if found else 0)
                print(
                    f"{part} {name}: {'differs' if found else 'the same'}", found, sep="\n" if found else "", flush=True
                )
    return max(codes & {1} or codes)


def timed(action: str, other: Path | None) -> int:
    """Write the simulator's times, or print them beside the times of another tree or the written times."""
    if action == "write":
        speed.write()
    else:
        print(speed.table(*speed.times(other, ROOT)) if other else speed.table(speed.written(), speed.multiples()))
    return 0


def add_results(here: Shell) -> None:
    """Write the results files that data/results.txt lists and that do not exist."""
    for line in (DATA / "results.txt").read_text().splitlines():
        name, _, words = line.partition(": ")
        path = DATA / "results" / f"{name}.gz"
        if line.startswith("#") or path.exists():
            continue
        made = here.folder / "results" / name
        ran = here.run(*shlex.split(words.replace("FILE", f"results/{name}")))
        assert made.exists(), ran
        path.write_bytes(gzip.compress(made.read_bytes(), 9, mtime=0))
        print(f"results {name}: exit {ran.code}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
