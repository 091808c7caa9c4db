"""Signals and standard streams of real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench import operations
from cudabench.devices import probe
from cudabench.fleet import shard
from cudabench.measure import session
from cudabench.system import limited_process

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}
SMALL = ("transpose", "-k", "smem", "--device", "sim", "--size", "33", "31", "--no-cpu")


def program(*words: str) -> list[str]:
    """Return the command of a process that runs a cudabench command line."""
    return [sys.executable, "-m", "cudabench", *words]


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds; fail if the process ends first, or after two minutes."""
    assert callable(condition)
    for _ in range(12000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    pytest.fail("the process did not get so far")


def finished(path: Path) -> int:
    """Return how many results a file holds."""
    return len(json.loads(path.read_text())["results"]) if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        pytest.param(
            signal.SIGTERM,
            143,
            "Error: terminated by SIGTERM: only finished results are shown and written.",
            id="terminated",
            marks=pytest.mark.slow,
        ),
        pytest.param(signal.SIGINT, 130, "Error: interrupted.", id="interrupted"),
    ],
)
def test_a_signal_keeps_what_is_finished(tmp_path: Path, number: int, code: int, message: str) -> None:
    """A run that is stopped prints and writes the finished kernels, says why it stopped, and has the signal's exit
    code."""
    file = tmp_path / "r.json"
    words = ("transpose", "--size", "2048", "--device", "sim", "--no-cpu")
    process = subprocess.Popen(
        program(*words, "--json", str(file)),
        env=ENVIRONMENT,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: finished(file) > 0, process)
    process.send_signal(number)
    process.send_signal(number) if number == signal.SIGTERM else None  # `timeout` sends it twice
    out, err = process.communicate(timeout=120)
    assert process.returncode == code
    kept = finished(file)
    ladder = operations.get("transpose").kernels
    assert 0 < kept < len(ladder)
    rows = [line.split() for line in out.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[1] for row in rows] == [kernel.name for kernel in ladder[:kept]]
    progress = re.compile(r"\d+ s: ")  # lines that a slow machine prints
    assert [line for line in err.splitlines() if line and not progress.match(line)] == [message]


@pytest.mark.slow
def test_a_signal_ends_the_worker(tmp_path: Path) -> None:
    """SIGTERM also ends the GPU's worker, and the finished results stay in the file."""
    file = tmp_path / "r.json"
    code = f"""
import os, sys
from pathlib import Path
from dataclasses import replace
from functools import partial
from cudabench import operations
from cudabench.cli import process
from cudabench.devices import Choice
from cudabench.measure import session
from cudabench.measure.run import Run
from cudabench.records.plan import Settings
from cudabench.plan import cases
from cudabench.plan.series import Series

session.WORKER = "tests.fake_worker"
process.handle_sigterm()
make = partial(operations.get, "transpose")
(case,) = cases.build(make(), cases.Request(kernels=("0",), size=(4, 4)))
series = Series(make, (replace(case, kernel="a"), replace(case, kernel="hangs")))
run = Run([series], [Choice("cuda")], Settings(), {{}}, path=Path({str(file)!r}))
try:
    run.collect()
except process.Terminated:
    left = Path(f"/proc/self/task/{{os.getpid()}}/children").read_text()
    print(len(run.outcomes[0].results), repr(left))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: finished(file) == 1, process)
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert (out.split(), err) == (["1", "''"], "")


@pytest.mark.parametrize("what", ["command", "shard", "worker", "worker ahead"])
def test_a_signal_while_a_process_starts(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a process is being started ends that process too, and removes its files."""
    begun: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            begun.append(self)
            os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    monkeypatch.setattr(session, "WORKER", "tests.fake_worker")
    monkeypatch.setattr(probe, "libcuda", object)
    words = ("vecadd", "--size", "300000000", "--device", "sim", "--no-cpu")
    start: dict[str, Callable[[], object]] = {
        "command": lambda: limited_process.run(["sleep", "600"], seconds=600, memory=1 << 30),
        "shard": lambda: shard.measure_cards(shard.Plan(tmp_path / "runs", words, "sim")),
        "worker": lambda: session.Worker("tests.fake_worker", 0),
        "worker ahead": lambda: session.early_worker(0).__enter__(),
    }
    with pytest.raises(KeyboardInterrupt):
        start[what]()
    assert [process.poll() is None for process in begun] == [False]
    assert [*(tmp_path / "tmp").iterdir()] == []


def test_an_ignored_signal_stays_ignored() -> None:
    """If the tool is started with SIGTERM ignored, it keeps ignoring SIGTERM."""
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from cudabench.cli import process; process.handle_sigterm()\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "True\n"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(SMALL, marks=pytest.mark.slow), ("list", "transpose"), ("--help",),
        pytest.param(("explain", *SMALL[:3], "--size", "9"), marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_an_encoding_without_typography(words: tuple[str, ...]) -> None:
    """Characters that a stream's encoding lacks are written in ASCII, without a traceback and with exit code 0."""
    ran = subprocess.run(
        program(*words), env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}, cwd=ROOT, capture_output=True
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.isascii()
    assert ran.stdout


@pytest.mark.sampled(3)
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        *(pytest.param(words, marks=pytest.mark.slow) for words in (SMALL, (*SMALL, "--json", "-"))),
        ("list",), ("--help",), (), ("completion", "bash"),
    ],
)  # fmt: skip
def test_a_full_standard_output(words: tuple[str, ...]) -> None:
    """A full standard output gives one error and exit code 1."""
    with open("/dev/full", "w") as full:
        ran = subprocess.run(program(*words), env=ENVIRONMENT, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == "Error: standard output cannot be written: No space left on device."
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


@pytest.mark.slow
def test_a_closed_standard_output() -> None:
    """With standard output closed the exit code is still right."""
    command = f"{shlex.join(program('list'))} >&-"
    ran = subprocess.run(command, shell=True, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
