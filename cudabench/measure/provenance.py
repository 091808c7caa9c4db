"""Records the origin of a results file: time, command, sources, and the state of the card.

This must not make a run fail or wait: a value that is not available in time is None. git runs only if the source's
folder, or a folder above it, has a `.git`.
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
KEYS = ("clocks", "power_w", "temperature_c", "throttle")  # the keys of a record of the card's state

# Maps each phase that a run reports to the part of the run's time to which the time of the phase is added. The time
# before the first phase is added to the part "start".
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

# The words of the command after `cudabench`. None means: the arguments of this process.
COMMAND: ContextVar[tuple[str, ...] | None] = ContextVar("command", default=None)


class PhaseTimer:
    """Measures how long each part of a run takes, in seconds; the run begins when the object is created."""

    def __init__(self) -> None:
        self._begun = self._since = time.monotonic()
        self._part = "start"
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def begin_phase(self, phase: str) -> None:
        """Begin a phase: the time from now on is added to the part of this phase (see `PARTS`)."""
        now = time.monotonic()
        self._seconds[self._part] += now - self._since
        self._since, self._part = now, PARTS.get(phase, self._part)

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far by part of the run, and as `wall` the seconds since the run began."""
        self.begin_phase("")
        parts = {} if self._part == "start" else self._seconds
        return {"wall": round(self._since - self._begun, 3), **{name: round(s, 3) for name, s in parts.items()}}


def provenance_record(sources: Iterable[Source], compiler: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the record of the origin of a run that begins now. `begin` and `finish` later add the card's state and the
    times to the record."""
    from cudabench.plan import chapters

    by_name = {source.name: source for source in sources}
    built_in = [source for source in by_name.values() if source.builtin]
    headers = {f"kernels_cu/{name}": text for source in built_in for name, text in chapters.headers(source).items()}
    words = COMMAND.get()
    return {
        "utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": ["cudabench", *(sys.argv[1:] if words is None else words)],
        "git": next((state for state in map(git_state, by_name.values()) if state), None),
        "sources": {
            **{name: source_digest(source) for name, source in by_name.items()},
            **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in headers.items()},
        },
        "compiler": dict(compiler) if compiler else None,
        **dict.fromkeys(KEYS),
        "seconds": None,
    }


def begin(record: dict[str, Any], uuid: str | None) -> None:
    """Add the card's state before the run to a record: clocks in MHz, power in W, temperature in degrees Celsius, and
    the reasons why clocks are lowered. Without NVML the values are None."""
    from cudabench.devices import nvml

    board = nvml.board(uuid)
    state = board.state() if board else None
    record |= {key: state and {"before": state[key], "after": None} for key in KEYS}


def finish(record: dict[str, Any], uuid: str | None, spent: PhaseTimer) -> None:
    """Add the card's state after the run, and the times of the parts of the run, to a record."""
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


def source_digest(source: Source) -> str:
    """Return the SHA-256 of a source's file on disk, or of the compiled text if the file cannot be read."""
    path = _path(source)
    try:
        check_regular(path)  # other files, such as pipes, can be read only once
        content = path.read_bytes()
    except OSError:
        content = source.text.encode()
    return hashlib.sha256(content).hexdigest()


def git_state(source: Source) -> dict[str, Any] | None:
    """Return a dict with `commit`, the commit of a source's working tree, and `dirty`, whether the tree has uncommitted
    changes or git does not track the source.

    Return None if there is no repository, if git does not answer, and for a built-in source that the repository does
    not track (the package is installed inside another project). A source named REVISION:PATH is treated as tracked.
    """
    path = _path(source)
    _, colon, revision_path = source.name.partition(":")
    if committed := bool(colon) and not path.is_file():
        path = Path(revision_path)
    folder, name = path.parent.resolve(), path.name
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return None
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    tracked = None if status is None else _git(folder, "ls-files", "--", name)
    if status is None or tracked is None:
        return None
    commit = next((line.split()[2] for line in status.splitlines() if line.startswith("# branch.oid ")), None)
    is_tracked = bool(tracked.strip()) or committed
    if commit in (None, "(initial)") or (source.builtin and not is_tracked):
        return None
    changed = any(not line.startswith("#") for line in status.splitlines())
    return {"commit": commit, "dirty": changed or not is_tracked}


def _git(folder: Path, *words: str) -> str | None:
    """Run git in a folder, and return its output; None if git is missing, fails, or takes too long."""
    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            timeout=GIT_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return completed.stdout if completed.returncode == 0 else None
