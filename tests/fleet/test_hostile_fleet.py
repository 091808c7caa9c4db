"""Hostile names, numbers and files in a fleet: shards, records of submissions, and what is sent to Slurm."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudabench import text
from cudabench.fleet import task
from tests import fleets
from tests.conftest import Ran

Runner = Callable[..., Ran]
EVIL = "n7'; DROP TABLE cost; --\x1b]0;x\x07\n::error file=a::b\u202e=1+1<script>{{ 7 * 7 }}{% raw %}$\\frac$"
VECADD = ("vecadd", "-k", "naive", "--size", 64, "--device", "sim")


# Shards --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [900, 1000, 1020, 10_000])
@pytest.mark.parametrize("place", ["slurm", "size", "rack", "load"])
def test_a_value_nested_deeply(cudabench: Runner, tmp_path: Path, place: str, depth: int) -> None:
    """A deeply nested value in a shard is left out, or the file is named as damaged."""
    shard = fleets.document(9, {"a": 1e-3})
    if place == "size":
        shard["results"][0]["size"] = {"n": "@"}
    else:
        shard["fleet"]["card"][place] = {"a": "@"} if place == "slurm" else "@"
    fleets.write(tmp_path / "s", *(fleets.document(number, {"a": 1e-3}) for number in range(3)))
    (tmp_path / "s" / "x.json").write_text(json.dumps(shard).replace('"@"', "[" * depth + "1" + "]" * depth))
    ran = cudabench("fleet", "report", "s", "--json", "f.json")
    assert ran.code == 0, ran.err[:300]
    found = json.loads(Path("f.json").read_text())["fleet"]
    assert len(found["cards"]) + len(found["damaged"]) == 4


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.write_text("{")], ids=["pipe", "cut off"])
def test_a_folder_of_no_shard_but_files(cudabench: Runner, tmp_path: Path, make: Callable[[Path], object]) -> None:
    """If no file is a shard, the error names the first file."""
    (tmp_path / "s").mkdir()
    make(tmp_path / "s" / "a.json")
    ran = cudabench("fleet", "report", "s", "-o", "page.html")
    assert (ran.code, Path("page.html").exists()) == (1, False)
    assert ran.err.startswith("Error: s lacks readable shards: a.json: it is ")


def test_names_are_no_templates(cudabench: Runner, tmp_path: Path) -> None:
    """A model, host or kernel whose name looks like a template expression or a query is on the page literally."""
    shards = [
        fleets.document(number, {EVIL: 1e-3 * (1 + number % 2), "a": 1e-3}, model=EVIL, host=EVIL, rack=EVIL)
        for number in range(5)
    ]
    fleets.write(tmp_path / "s", *shards)
    ran = cudabench("fleet", "report", "s", "-o", "page.html", "--json", "f.json")
    assert ran.code == 0, ran.err
    page = Path("page.html").read_text()
    assert "{{ 7 * 7 }}{% raw %}" in page
    assert "<script>$" not in page
    assert {card["host"] for card in json.loads(Path("f.json").read_text())["fleet"]["cards"]} == {EVIL}
    assert not text.HARMFUL.search(ran.out + page)


@pytest.mark.slow
def test_a_shard_is_written_over_a_link(cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that others may write, a link or pipe with a shard's name is replaced, and the link's target is
    unchanged."""
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "runs").mkdir()
    shard = tmp_path / "runs" / "n7.json"
    for make in (lambda: shard.symlink_to("../victim"), lambda: os.mkfifo(shard)):
        make()
        ran = cudabench("fleet", "shard", "runs", "--", *VECADD)
        assert ran.code == 0, ran.err
        assert (tmp_path / "victim").read_text() == "precious"
        assert shard.is_file()
        assert not shard.is_symlink()
        assert json.loads(shard.read_text())["fleet"]["card"]["host"] == "n7"
        shard.unlink()


# Slurm ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put fake Slurm programs on the path, which record their arguments; return the record's path."""
    pytest.importorskip("submitit")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("srun", "sbatch", "scancel", "squeue"):
        program = bin_folder / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/told\nexit 1\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "told"


LINES = "a\ntouch owned #"


@pytest.mark.parametrize(
    "options",
    [
        ("--partition", LINES),
        ("--account", LINES),
        ("--qos", LINES),
        ("--partition", ""),
        ("--partition", "\x1b[2J"),
        ("--slurm", f"exclude={LINES}"),
        ("--slurm", f"{LINES}=1"),
        ("--slurm", "mem per cpu=1"),
        ("--slurm", "output=/etc/passwd"),
        ("--slurm", "array=0-3"),
    ],
    ids=lambda options: " ".join(map(ascii, options)),
)
def test_what_would_be_a_line_of_a_script(cudabench: Runner, slurm: Path, options: tuple[str, str]) -> None:
    """An option for sbatch's script with a newline or control codes is refused, and so is one that sets the script's
    own array or output."""
    ran = cudabench("fleet", "submit", "--gpus", 1, *options, "runs", "--", *VECADD)
    assert ran.code == 2, ran.err
    assert options[0] in ran.err
    assert not text.HARMFUL.search(ran.err)
    assert not slurm.exists()
    assert not Path("runs/.fleet/submission.json").exists()


def test_a_folder_whose_name_is_a_line_of_a_script(cudabench: Runner, slurm: Path) -> None:
    """A folder whose name has a newline is refused, since the script contains the name."""
    ran = cudabench("fleet", "submit", "--gpus", 1, f"runs{LINES}", "--", *VECADD)
    assert (ran.code, "DIR" in ran.err) == (2, True), ran.err
    assert not slurm.exists()


def recorded(**changed: Any) -> dict[str, Any]:
    """Return the record of a submission with one waiting task, with some values changed."""
    entry = {"number": 0, "job": "7_0", "attempts": 1, "state": "pending", "host": "", "reason": "", "exit_code": None}
    known = {
        "words": [str(word) for word in VECADD], "device": "sim", "quiet": True, "engine": "slurm",
        "settings": {"gpus_per_node": 1, "time": 60, "additional_parameters": {}}, "hold_s": 1.0,
        "tasks": [entry | {"silent": 0}],
    }  # fmt: skip
    for name, value in changed.items():
        place = known["tasks"][0] if name in known["tasks"][0] else known["settings"] if name not in known else known
        place[name] = value
    return known


@pytest.mark.parametrize(
    "changed",
    [
        {"job": "--me"},
        {"job": "7_0 --user=root"},
        {"job": 7},
        {"state": "asleep"},
        {"host": ["n7"]},
        {"attempts": "1"},
        {"silent": None},
        {"exit_code": "0"},
        {"setup": ["touch owned"]},
        {"srun_args": ["--chdir=/"]},
        {"partition": LINES},
        {"time": "60"},
        {"time": True},
        {"additional_parameters": {"comment": LINES}},
        {"additional_parameters": {LINES: "1"}},
        {"additional_parameters": ["x"]},
        {"hold_s": float("nan")},
        {"hold_s": float("inf")},
        {"hold_s": -1},
        {"hold_s": 10**400},
        {"engine": ["slurm"]},
    ],
    ids=str,
)
def test_a_record_that_somebody_changed(cudabench: Runner, slurm: Path, changed: dict[str, Any]) -> None:
    """A record with jobs, settings or states that cudabench did not write is damaged, and Slurm is not called."""
    Path("s/.fleet").mkdir(parents=True)
    Path("s/.fleet/submission.json").write_text(json.dumps(recorded(**changed)))
    ran = cudabench("fleet", "resume", "s")
    assert ran.code == 1
    assert "is damaged: submit again" in ran.err
    assert not slurm.exists()


def test_a_record_is_read(cudabench: Runner, slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid record is resumed: Slurm is asked for the state of its job."""
    from cudabench.fleet import submit

    monkeypatch.setattr(submit, "MOST_SILENCE", 0)
    Path("s/.fleet").mkdir(parents=True)
    Path("s/.fleet/submission.json").write_text(json.dumps(recorded()))
    ran = cudabench("fleet", "resume", "s")
    assert "Slurm has not answered 1 times" in ran.err
    assert slurm.read_text().startswith("squeue ")


@pytest.mark.parametrize("file", ["submission.json", "tasks/0.json"])
def test_records_that_never_end(cudabench: Runner, slurm: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe in place of a record does not make the command hang."""
    from cudabench.fleet import submit

    monkeypatch.setattr(submit, "MOST_SILENCE", 0)
    Path("s/.fleet/tasks").mkdir(parents=True)
    Path("s/.fleet/submission.json").write_text(json.dumps(recorded()))
    Path("s/.fleet", file).unlink(missing_ok=True)
    os.mkfifo(Path("s/.fleet", file))
    ran = cudabench("fleet", "resume", "s")
    assert ran.code == 1
    assert ("a pipe" in ran.err) is (file == "submission.json")


@pytest.mark.parametrize("code", [10**30, -1, 256, "0", [0]])
def test_an_exit_code_that_is_none(
    cudabench: Runner, tmp_path: Path, code: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid exit code in a task's record is ignored, and the task counts as failed."""
    from cudabench.fleet import submit
    from cudabench.fleet.shard import Plan

    (tmp_path / "s/.fleet/tasks").mkdir(parents=True)
    task.state_path(tmp_path / "s", 0).write_text(json.dumps({"host": EVIL, "exit_code": code}))
    made = submit.Submission(Plan(tmp_path / "s", ("vecadd",)), "slurm", entries=[submit.Entry(0, "7_0", 1)])

    class Gone:
        def states(self, jobs: Any) -> dict[str, str]:
            return dict.fromkeys(jobs, "CANCELLED")

    made.update(Gone())  # type: ignore[arg-type]
    assert (made.entries[0].state, made.entries[0].exit_code, made.exit_code()) == ("failed", None, 1)


@pytest.mark.slow
def test_names_of_a_node(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of node, job and partition from Slurm are escaped on the terminal and in file names."""
    for name in ("SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_CLUSTER_NAME"):
        monkeypatch.setenv(name, f"../../{EVIL}")
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR", f"{EVIL}.n7".replace(" ", ""))
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.node")
    ran = cudabench("fleet", "shard", "runs", "--", *VECADD)
    assert ran.code == 0, ran.err
    assert not text.HARMFUL.search(ran.out + ran.err)
    assert not any(line.lstrip().startswith("::") for line in (ran.out + ran.err).splitlines())
    (file,) = Path("runs").iterdir()
    assert file.name.isascii()
    for words in (("--to", "table"), ("--to", "markdown"), ("--to", "html")):
        said = cudabench("fleet", "report", "runs", *words)
        assert not text.HARMFUL.search(said.out + said.err)
        assert not any(line.lstrip().startswith("::") for line in said.out.splitlines())
