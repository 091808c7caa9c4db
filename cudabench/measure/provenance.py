"""Where a results file comes from: when, by which command, of which sources, and in what state the card was.

Nothing here may fail a run or hold it up: what cannot be told in time is None. `git` is asked once, and only where a
`.git` stands above the source.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudabench.system.reading import check_regular

if TYPE_CHECKING:
    from cudabench.records.launch import Source

GIT_TIMEOUT_S = 2.0

# The words behind `cudabench` where they are not those of the process.
COMMAND: ContextVar[tuple[str, ...] | None] = ContextVar("command", default=None)

# NVML's reasons (nvml.h, nvmlClocksEventReasons), in the words of nvidia-smi.
THROTTLE = {
    0x1: "idle",
    0x2: "application clocks setting",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks setting",
}


def gather(sources: Iterable[Source], compiler: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the record of a run that begins now; `begin` and `finish` add the state of the card."""
    unlike = {source.name: source for source in sources}
    words = COMMAND.get()
    return {
        "utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": ["cudabench", *(sys.argv[1:] if words is None else words)],
        "git": next((found for found in map(git, unlike.values()) if found), None),
        "sources": {name: digest(source) for name, source in unlike.items()},
        "compiler": dict(compiler) if compiler else None,
        **dict.fromkeys(KEYS),
    }


def begin(record: dict[str, Any], uuid: str | None) -> None:
    """Add the card's state before the run."""
    state = card(uuid)
    for key in KEYS:
        record[key] = None if state is None else {"before": state[key], "after": None}


def finish(record: dict[str, Any], uuid: str | None) -> None:
    """Add the card's state after the run, or after what of it is done."""
    state = card(uuid)
    for key in KEYS:
        if record.get(key) is not None and state is not None:
            record[key]["after"] = state[key]


def digest(source: Source) -> str:
    """Return the SHA-256 of a source file as it is on disk; of the text that was compiled where it is not there."""
    from cudabench.plan import chapters

    path = chapters.folder() / Path(source.name).name if source.builtin else Path(source.name)
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
    from cudabench.plan import chapters

    path = chapters.folder() / Path(source.name).name if source.builtin else Path(source.name)
    _, colon, inside = source.name.partition(":")
    committed = bool(colon) and not path.is_file()
    if committed:
        path = Path(inside)
    folder, name = path.parent.resolve(), path.name
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return None
    ask = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false"]
    tree = _start([*ask, "status", "--porcelain=v2", "--branch", "--untracked-files=no"])
    own = _start([*ask, "ls-files", "--", name])
    said, tracked = _answer(tree), _answer(own)
    if said is None or tracked is None:
        return None
    commit = next((line.split()[2] for line in said.splitlines() if line.startswith("# branch.oid ")), None)
    held = bool(tracked.strip()) or committed
    if commit in (None, "(initial)") or (source.builtin and not held):
        return None
    changed = any(not line.startswith("#") for line in said.splitlines())
    return {"commit": commit, "dirty": changed or not held}


def _start(words: Sequence[str]) -> subprocess.Popen[str] | None:
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:  # no git here
        return None


def _answer(process: subprocess.Popen[str] | None) -> str | None:
    if process is None:
        return None
    with process:
        try:
            text, _ = process.communicate(timeout=GIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
        except UnicodeDecodeError:
            return None
    return text if process.returncode == 0 else None


# The card ------------------------------------------------------------------------------------------------------------

KEYS = ("clocks", "power_w", "temperature_c", "throttle")


def card(uuid: str | None) -> dict[str, Any] | None:
    """Return clocks in MHz, power, temperature and the reasons for lower clocks of a GPU now; None without NVML."""
    from cudabench.devices import probe

    board = probe.board(uuid)
    if board is None:
        return None
    power = board.ask("nvmlDeviceGetPowerUsage")
    reasons = board.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "clocks": {
            "sm_mhz": board.ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
            "memory_mhz": board.ask("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
        },
        "power_w": None if power is None else power / 1000,
        "temperature_c": board.ask("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
        "throttle": None if reasons is None else [text for bit, text in THROTTLE.items() if reasons & bit],
    }
