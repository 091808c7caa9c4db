"""SIGTERM and Ctrl-C during a long command: exit code, one message, finished results kept, and no process or temporary
file left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import fleets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120.0
MOMENT_S = 10.0  # after it, a process that is still alive counts as left behind
WORD = "CUDABENCH_SIGNALLED"
ENDS = {
    signal.SIGTERM: (143, "Error: terminated by SIGTERM: only finished results are shown and written."),
    signal.SIGINT: (130, "Error: interrupted."),
}
SLOW = """#ifndef TIMES
#define TIMES 1
#endif
extern "C" __global__ void k(float *x, int n)
{
    for (int i = 0; i < n * TIMES; i++)
        x[threadIdx.x] = x[threadIdx.x] * 0.5f + i;
}
"""
OWN = ("--grid", "1", "--block", "32", "--arg", "x=float32[32]:ones", "--device", "sim")
LONG, SHORT = ("--arg", "n=100000000"), ("--arg", "n=4")


def marked(mark: str) -> dict[int, list[str]]:
    """Return the command lines of all processes that inherited a mark, keyed by process number."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process is another user's, or has ended
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
    return found


def rows(path: Path, key: str = "results") -> int:
    """Return how many rows a results file has, 0 without a file."""
    return len(json.loads(path.read_text()).get(key, [])) if path.exists() else 0


class Signalled:
    """A command that runs in a separate process, in a folder with two slow kernels."""

    def __init__(self, folder: Path, words: tuple[str, ...], **more: Any) -> None:
        (folder / "k.cu").write_text(SLOW)
        (folder / "hangs.cu").write_text(SLOW.replace("k(", "hangs("))
        self.cache = folder / "cache"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.compiled_s: float | None = None
        self.mark = f"{WORD}={secrets.token_hex(8)}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [sys.executable, *(words if words[0] == "-c" else ("-m", "cudabench", *words))],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary),
                 "CUDABENCH_CACHE": str(self.cache), name: value}, **more,
        )  # fmt: skip

    def children(self) -> list[list[str]]:
        """Return the command lines of the processes that the command started."""
        return [line for number, line in marked(self.mark).items() if number != self.process.pid]

    def end(self, ready: Callable[[Signalled], bool], number: signal.Signals) -> tuple[int, str, str]:
        """Send the command a signal once it is ready; return its exit code, standard output and standard error.

        Ctrl-C goes to the whole process group, as from a terminal. Processes that the command started may end a moment
        after it, but must end.
        """
        end = time.monotonic() + WAIT_S
        try:
            while not ready(self):
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < end, "it did not get so far"
                time.sleep(0.02)
            if number is signal.SIGINT:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
            out, err = self.process.communicate(timeout=WAIT_S)
            gone = time.monotonic() + MOMENT_S
            while marked(self.mark) and time.monotonic() < gone:
                time.sleep(0.02)
        finally:
            left = marked(self.mark)
            for one in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        assert left == {}
        return self.process.returncode, out, err


def works(ran: Signalled) -> bool:
    """Say whether the command has started another process."""
    return bool(ran.children())


def simulates(ran: Signalled) -> bool:
    """Say whether the command's own process has compiled and then computed for half a second."""
    if ran.compiled_s is None:
        if any(ran.cache.glob("compiled/*")):
            ran.compiled_s = cpu_s(ran.process.pid)
        return False
    return cpu_s(ran.process.pid) > ran.compiled_s + 0.5


def reads(ran: Signalled) -> bool:
    """Say whether the command has read what was written to its standard input."""
    assert ran.process.stdin
    waiting = fcntl.ioctl(ran.process.stdin.fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(waiting, sys.byteorder) == 0


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


QUICK = {("operation", "SIGTERM"), ("sweep", "SIGTERM")}


def ended(names: Iterable[str]) -> list[Any]:
    """Return one test parameter for each command and signal; most are marked slow, since starting a command takes
    time."""
    return [
        pytest.param(
            name, number, id=f"{name}-{number.name}", marks=() if (name, number.name) in QUICK else pytest.mark.slow
        )
        for name in names
        for number in ENDS
    ]


# `ab` on a GPU, with a fake worker that never finishes the kernel named "hangs".
PAIR = """
import sys
from cudabench import cli, devices
from cudabench.measure import session
session.WORKER = "tests.fake_worker"
devices.choose = lambda device: devices.Choice("cuda")
cli.main(sys.argv[1:])
"""
# A run that is still being planned, and whose worker was started early.
PLANNED = """
import sys, time
from cudabench import cli, devices
from cudabench.devices import probe
from cudabench.measure import session
session.WORKER = "tests.fake_worker"
probe.libcuda = object
devices.choose_all = lambda device: time.sleep(600)
cli.main(sys.argv[1:])
"""
# Work is shared between processes even where the tests have one core.
TWO_CORES = """
import os, sys
os.sched_getaffinity = lambda pid: {0, 1}
from cudabench import cli
cli.main(sys.argv[1:])
"""
HANGS = ("hangs.cu", "-k", "hangs", *OWN[:-2], *SHORT, "--expect", "x=x0", "--a", "-D A=1")
SIM_VECADD = ("--", "vecadd", "--size", "30000000", "--device", "sim", "--no-cpu")
COMMANDS: dict[str, tuple[tuple[str, ...], Callable[[Signalled], bool]]] = {
    "run": (("run", "k.cu", *OWN, *LONG), simulates),
    "run --step": (
        ("run", "k.cu", *OWN[-2:], "--arg", "x=float32[32]:ones", *LONG, "--step", "k<<<1, 32>>>(x, n)"),
        simulates,
    ),
    "explain": (("explain", "k.cu", *OWN, *LONG), simulates),
    "check": (("check", "k.cu", *OWN, *LONG), simulates),
    "ab": (("-c", PAIR, "ab", *HANGS), lambda ran: any(ran.temporary.glob("cudabench-*/*"))),
    "operation": (("-c", PLANNED, "transpose", "-d", "cuda"), works),
    "diff": (("-c", TWO_CORES, "diff", "k.cu", "k.cu", "--arch", "all"), works),
    "fleet shard": (("fleet", "shard", "runs", *SIM_VECADD), works),
    "fleet submit": (("fleet", "submit", "--engine", "local", "--gpus", "2", "runs", *SIM_VECADD), works),
    "fleet report": (("-c", TWO_CORES, "fleet", "report", "many"), works),
    "report": (("report", "/dev/stdin", "-o", "page.html"), reads),
}


@pytest.mark.parametrize(("name", "number"), ended(COMMANDS))
def test_a_command_that_is_ended(tmp_path: Path, name: str, number: signal.Signals) -> None:
    """A command that is ended gives the signal's exit code and message, and leaves no process and no temporary file."""
    words, ready = COMMANDS[name]
    if name == "fleet report":
        fleets.write(tmp_path / "many", *(fleets.document(one, {"a": 1e-3}) for one in range(2500)))
    ran = Signalled(tmp_path, words, stdin=subprocess.PIPE)
    assert ran.process.stdin
    ran.process.stdin.write("{" * (name == "report"))
    ran.process.stdin.flush()
    code, _, err = ran.end(ready, number)
    assert (code, [line for line in err.splitlines() if line][-1:]) == (ENDS[number][0], [ENDS[number][1]]), err
    assert "Traceback" not in err
    assert [*ran.temporary.iterdir()] == []
    assert not (tmp_path / "page.html").exists()


ROWS: dict[str, tuple[tuple[str, ...], str]] = {
    "sweep": (("sweep", "k.cu", "-k", "k", *OWN, *SHORT, "-D", "TIMES=1,25000000"), "results"),
    "ceilings": (("ceilings", "--device", "sim"), "ceilings"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), ended(ROWS))
def test_rows_that_were_finished(tmp_path: Path, name: str, number: signal.Signals) -> None:
    """Rows that were finished before the signal are in a complete results file."""
    words, key = ROWS[name]
    file = tmp_path / "r.json"
    ran = Signalled(tmp_path, (*words, "--json", str(file)))
    code, _, err = ran.end(lambda _: rows(file, key) > 0, number)
    assert (code, err.splitlines()[-1]) == ENDS[number]
    assert rows(file, key) > 0
    assert [*ran.temporary.iterdir()] == []


def test_an_interrupt_within_exec(tmp_path: Path) -> None:
    """An interrupt that Python raised inside exec() still gives exit code 130; Python marks such interrupts and would
    otherwise end the process itself at its exit."""
    lines = (
        "import threading, time",
        "from cudabench import cli",
        "import cudabench.cli.exec",
        "threading.Thread(target=time.sleep, args=[60], daemon=True).start()",
        "def interrupted(arguments):",
        "    try:",
        "        exec('raise KeyboardInterrupt')",
        "    except KeyboardInterrupt:",
        "        return cli.EXIT_INTERRUPTED",
        "cli.invoke = interrupted",
        "cli.main()",
    )
    (tmp_path / "interrupted.py").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "interrupted"]
    ran = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, b"")
