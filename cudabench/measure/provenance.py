"""Where a results file comes from: when, by which command, of which sources, and in what state the card was.

Nothing here may fail a run or hold it up: what cannot be told in time is None. `git` is asked once, and only where a
`.git` stands above the source.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudabench.system.reading import check_regular

if TYPE_CHECKING:
    from cudabench.records.launch import Source

GIT_TIMEOUT_S = 2.0
KEYS = ("clocks", "power_w", "temperature_c", "throttle")  # of the card's state

# The parts of a run's time, by the phases that its progress tells of; what comes before is its start.
PARTS = {
    "compiling": "compile",
    "compiling all kernels": "compile",
    "making inputs": "prepare",
    "computing the reference": "prepare",
    "copying inputs": "prepare",
    "timing the CPU": "cpu",
    "running": "verify",
    "verifying": "verify",
    "warming up": "sample",
    "timing": "sample",
    "simulating": "simulate",
    "reading the machine code": "count",
    "counting": "count",
}

# The words behind `cudabench` where they are not those of the process.
COMMAND: ContextVar[tuple[str, ...] | None] = ContextVar("command", default=None)


class TimeSpent:
    """Where the time of a run goes, from now on: seconds by part, each until the next begins."""

    def __init__(self) -> None:
        self._begun = self._since = time.monotonic()
        self._part = "start"
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def on(self, phase: str) -> None:
        """Count what follows to the part of a phase."""
        now = time.monotonic()
        self._seconds[self._part] += now - self._since
        self._since, self._part = now, PARTS.get(phase, self._part)

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far: of all, then by part, where any part is known."""
        self.on("")
        parts = {} if self._part == "start" else self._seconds
        return {"wall": round(self._since - self._begun, 3), **{name: round(s, 3) for name, s in parts.items()}}


def gather(sources: Iterable[Source], compiler: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the record of a run that begins now; `begin` and `finish` add the card's state and the time taken."""
    from cudabench.plan import chapters

    unlike = {source.name: source for source in sources}
    built_in = [source for source in unlike.values() if source.builtin]
    headers = {f"kernels_cu/{name}": text for source in built_in for name, text in chapters.headers(source).items()}
    words = COMMAND.get()
    return {
        "utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": ["cudabench", *(sys.argv[1:] if words is None else words)],
        "git": next((found for found in map(git, unlike.values()) if found), None),
        "sources": {
            **{name: digest(source) for name, source in unlike.items()},
            **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in headers.items()},
        },
        "compiler": dict(compiler) if compiler else None,
        **dict.fromkeys(KEYS),
        "seconds": None,
    }


def begin(record: dict[str, Any], uuid: str | None) -> None:
    """Add the card's state before the run: clocks in MHz, power, temperature, reasons for lower clocks; None without
    NVML."""
    from cudabench.devices import nvml

    board = nvml.board(uuid)
    state = board.state() if board else None
    record |= {key: state and {"before": state[key], "after": None} for key in KEYS}


def finish(record: dict[str, Any], uuid: str | None, spent: TimeSpent) -> None:
    """Add the card's state after the run, or after what of it is done, and where the time went."""
    if record:
        record["seconds"] = spent.seconds()
    from cudabench.devices import nvml

    if board := nvml.board(uuid):
        for key, value in board.state().items():
            if record.get(key) is not None:
                record[key]["after"] = value


def _path(source: Source) -> Path:
    from cudabench.plan import chapters

    return chapters.folder() / Path(source.name).name if source.builtin else Path(source.name)


def digest(source: Source) -> str:
    """Return the SHA-256 of a source file as it is on disk; of the text that was compiled where it is not there."""
    path = _path(source)
    try:
        check_regular(path)  # a pipe is read only once
        content = path.read_bytes()
    except OSError:
        content = source.text.encode()
    return hashlib.sha256(content).hexdigest()


def git(source: Source) -> dict[str, Any] | None:
    """Return the commit of the working tree that a source is in, and whether anything in it, or the source itself, is
    not committed.

    None without a repository, for a built-in source that the repository does not hold (a package installed inside
    somebody's tree), and where git does not answer. A source that is called REVISION:PATH is committed.
    """
    path = _path(source)
    _, colon, inside = source.name.partition(":")
    if committed := bool(colon) and not path.is_file():
        path = Path(inside)
    folder, name = path.parent.resolve(), path.name
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return None
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    tracked = None if status is None else _git(folder, "ls-files", "--", name)
    if status is None or tracked is None:
        return None
    commit = next((line.split()[2] for line in status.splitlines() if line.startswith("# branch.oid ")), None)
    held = bool(tracked.strip()) or committed
    if commit in (None, "(initial)") or (source.builtin and not held):
        return None
    changed = any(not line.startswith("#") for line in status.splitlines())
    return {"commit": commit, "dirty": changed or not held}


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says of a folder; None where it is not here, fails, or takes too long."""
    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            timeout=GIT_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return ran.stdout if ran.returncode == 0 else None
