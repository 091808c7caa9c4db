"""Processes that the tool starts import their modules from the tool's path, never from the user's current folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cudabench import operations
from cudabench.compile.compiler import nvrtc_version
from cudabench.devices import Choice
from cudabench.fleet import reading
from cudabench.measure import session
from cudabench.plan import cases
from cudabench.records.plan import Settings
from cudabench.system import children

NAMES = ("cudabench", "json", "multiprocessing", "numpy", "pickle", "random", "runpy", "signal", "tempfile", "types")
Sprung = Callable[[], list[str]]


@pytest.fixture
def sprung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sprung:
    """Change to a folder with files named like Python modules; return a function that lists those that ran."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / (name + '.ran'))!r}, 'w').close()\nraise SystemExit(9)"
        )
    monkeypatch.chdir(tmp_path)
    return lambda: sorted(path.name for path in tmp_path.glob("*.ran"))


def test_the_traps_work(sprung: Sprung) -> None:
    """`python -c` imports from the current folder first, so the trap files work."""
    unsafe = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    assert subprocess.run([sys.executable, "-c", "import runpy"], env=unsafe, check=False).returncode == 9
    assert sprung()


def test_a_program_finds_what_this_one_does(sprung: Sprung) -> None:
    """A started process has the same sys.path, and gets the words after its code as arguments."""
    say = "import json; print(json.dumps([sys.argv[1:], sys.path]))"
    ran = subprocess.run([*children.code_command(say), "a b", "-c"], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [["a b", "-c"], sys.path]
    ran = subprocess.run(
        [*children.module_command("cudabench"), "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("cudabench")
    assert not sprung()


def test_a_worker_for_the_gpu(sprung: Sprung, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process runs in a folder with such files."""
    monkeypatch.setattr(session, "WORKER", "tests.fake_worker")
    (case,) = cases.build(operations.get("transpose"), cases.Request(kernels=("0",), size=(4, 4)))
    with session.Session(Choice("cuda"), Settings(timeout=20)) as device:
        assert device.result(partial(operations.get, "transpose"), case).status == "ok"
    assert not sprung()


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
@pytest.mark.parametrize(
    "words",
    [
        ("fleet", "shard", "out", "--", "vecadd", "-k", "naive", "--size", "100", "--device", "sim", "--no-cpu"),
        ("diff", "k.cu", "k.cu", "--arch", "sm_80,sm_90"),
    ],
    ids=lambda words: words[0],
)
def test_commands_that_start_processes(sprung: Sprung, words: tuple[str, ...]) -> None:
    """`fleet shard` and `diff`, which start processes, run in a folder with such files."""
    Path("k.cu").write_text("__global__ void f(float *y) { y[threadIdx.x] = 1; }\n")
    ran = subprocess.run([*children.module_command("cudabench"), *words], capture_output=True, text=True, check=False)
    assert (ran.returncode, sprung()) == (0, []), ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(not children.POOLS, reason="before Python 3.11 no such processes are started")
def test_processes_that_read_shards(sprung: Sprung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that read shards ignore such files, and PYTHONSAFEPATH is unset again after their start."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(children, "processors", lambda: 2)
    names = [f"{number}.json" for number in range(max(reading.PARALLEL_FILES, 2 * reading.CHUNK_FILES))]
    folder = tmp_path / "shards"
    folder.mkdir()
    damaged = 0
    for chunk in reading.read_shards(folder, names):  # no such file exists
        assert "PYTHONSAFEPATH" not in os.environ
        damaged += len(chunk.damaged)
    assert (damaged, sprung()) == (len(names), [])
