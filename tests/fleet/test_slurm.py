"""A fleet on a real Slurm: three nodes on this host, each with four fake GPUs.

No test depends on the machine's speed: a run that will be preempted, or lose its node, waits at a gate that the test
opens later. The gate is a module that Python loads at its start, found through PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import cluster
from tests.slurm.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
FLEET = [sys.executable, "-m", "cudabench", "fleet"]
MEASURE = ["--", "vecadd", "-k", "naive", "--size", "64", "--device", "sim", "--no-cpu"]
LACK = cluster.lack()
LONG_S = 240.0  # time limit of each wait, long enough for a busy machine
GATE = """
import os, sys, time
gate, end = os.environ.get("FLEET_GATE"), time.monotonic() + 300
while gate and "vecadd" in sys.orig_argv and "--json" in sys.orig_argv and not os.path.exists(gate):
    if time.monotonic() > end:
        sys.exit("the gate was not opened")
    time.sleep(0.05)
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(LACK is not None, reason=str(LACK))]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a running Slurm whose jobs use this checkout; skip the tests if Slurm does not start."""
    pytest.importorskip("submitit")
    modules = tmp_path_factory.mktemp("modules")
    (modules / "sitecustomize.py").write_text(GATE)
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(cluster.running())
        except cluster.NoCluster as error:
            pytest.skip(f"Slurm does not start here: {error}")
        running.environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{modules}"
        yield running


@pytest.fixture(scope="module")
def measured(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the shards of all twelve cards, each from a process of `srun`."""
    folder = tmp_path_factory.mktemp("measured") / "shards"
    ran = slurm.run(
        "srun", "-N3", "--ntasks-per-node=4", "--gpus-per-task=1", *FLEET, "shard", str(folder), *MEASURE, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text())


def until(ready: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    """Wait until a condition holds; fail if the submission ends first."""
    end = time.monotonic() + LONG_S
    while not ready():
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


class Gated:
    """A submission whose runs wait at a gate; `nodes` reads from the submission's record where its tasks run."""

    def __init__(self, slurm: Cluster, folder: Path, gpus: int, *words: str) -> None:
        self.folder, self._gate = folder, folder.with_name("gate")
        self.process = subprocess.Popen(
            [*FLEET, "submit", "--gpus", str(gpus), "--hold", "4", *words, str(folder), *MEASURE],
            cwd=ROOT, env={**slurm.environment, "FLEET_GATE": str(self._gate)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def nodes(self) -> list[str]:
        """Return the node of each task that runs and waits at the gate."""
        record = self.folder / ".fleet" / "submission.json"
        tasks = read(record)["tasks"] if record.exists() else []
        return [task["host"] for task in tasks if task["state"] == "running" and task["host"]]

    def open(self) -> None:
        """Let the runs continue."""
        self._gate.touch()

    def said(self) -> str:
        """Wait for the submission's end and return its output."""
        return self.process.communicate(timeout=LONG_S)[0]


@pytest.fixture
def gated(slurm: Cluster, tmp_path: Path) -> Iterator[Callable[..., Gated]]:
    """Return a function that starts a submission of several tasks; all are ended after the test, also if it fails."""
    made: list[Gated] = []

    def start(gpus: int, *words: str) -> Gated:
        made.append(Gated(slurm, tmp_path / "shards", gpus, *words))
        return made[-1]

    yield start
    for each in made:
        each.open()
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_every_card_has_a_shard(measured: Path) -> None:
    """srun's twelve tasks write one shard each, named by node and card, with node, rack and job in it."""
    cards = {path.name: read(path)["fleet"]["card"] for path in measured.glob("*.json")}
    assert sorted(cards) == [f"n{node}-gpu{gpu}.json" for node in (1, 2, 3) for gpu in range(4)]
    assert {(card["host"], card["rack"]) for card in cards.values()} == {
        ("n1", "spine.rack1"), ("n2", "spine.rack1"), ("n3", "spine.rack2")
    }  # fmt: skip
    assert all(card["status"] == "ok" and card["slurm"]["SLURM_PROCID"].isdecimal() for card in cards.values())


def test_report_finds_what_is_planted(slurm: Cluster, measured: Path, tmp_path: Path) -> None:
    """The report finds a card that is 5% slow and a card that is 30% slow with a low clock, names a shard that is cut
    in half, and lists that shard's card as missing compared with the day before."""
    noise = [1.001, 0.998, 1.002, 0.999]
    today, before = tmp_path / "today", tmp_path / "before"
    for folder in (before, today):
        folder.mkdir()
        for path in measured.glob("*.json"):
            node, gpu = int(path.name[1]), int(path.name[6])
            seconds = (50e-6 if node == 3 else 30e-6) * noise[gpu]
            model, clock = ("A100", 1410.0) if node == 3 else ("H100", 1980.0)
            if (folder, node, gpu) == (today, 1, 2):
                seconds *= 1.05
            if (folder, node, gpu) == (today, 3, 1):
                seconds, clock = seconds * 1.3, 1410.0 / 1.3
            shard = read(path)
            shard["device"] |= {"name": model, "kind": "cuda"}
            shard["provenance"]["utc"] = f"2026-11-2{int(folder == today)}T10:00:00+00:00"
            shard["results"][0]["time"] = {"median_s": seconds, "cache": "cold"}
            shard["fleet"]["card"] |= {"model": model, "load": {"sm_mhz": clock, "throttle": ["power cap"]}}
            (folder / path.name).write_text(json.dumps(shard))
    half = (today / "n2-gpu0.json").read_text()
    (today / "n2-gpu0.json").write_text(half[: len(half) // 2])
    words = ["report", str(today), str(before), "--fail-on-slow", "--json", str(tmp_path / "f.json")]
    ran = slurm.run(*FLEET, *words, cwd=ROOT)
    assert ran.returncode == 4, ran.stderr
    found = read(tmp_path / "f.json")["fleet"]
    assert [(each["id"], each["cause"]) for each in found["slow"]] == [("n3-gpu1", "clock"), ("n1-gpu2", "not clock")]
    assert [each["id"] for each in found["slowing"]] == ["n3-gpu1", "n1-gpu2"]
    assert [each["file"] for each in found["damaged"]] == ["n2-gpu0.json"]
    (missing,) = (card for card in found["cards"] if card["status"] == "missing")
    assert missing["id"] == "n2-gpu0"
    assert missing["reason"].startswith("its shard cannot be read: it is cut off at line ")
    assert {(row["model"], row["cards"]) for row in found["measurements"]} == {("H100", 7), ("A100", 4)}
    assert "its clock is low: 1085 of 1410 MHz" in ran.stdout
    assert "it is cut off" in ran.stdout


def test_preempted_tasks_are_submitted_again(slurm: Cluster, gated: Callable[..., Gated]) -> None:
    """Tasks that a job of higher priority preempts are submitted again and end well."""
    running = gated(4)
    until(lambda: len(running.nodes()) == 4, running.process)
    node = running.nodes()[0]
    assert slurm.run("srun", "-N1", "-p", "urgent", "-w", node, "--gpus=4", "true").returncode == 0
    running.open()
    said = running.said()
    assert running.process.returncode == 0, said
    assert "submitted again" in said
    assert len([*running.folder.glob("*.json")]) == 4


def test_interrupted_submissions_go_on(slurm: Cluster, gated: Callable[..., Gated]) -> None:
    """Ctrl-C cancels waiting tasks, running tasks finish and are kept, and `resume` measures the rest."""
    running = gated(3, "--slurm", "nodelist=n1", "--slurm", "cpus-per-task=4")
    until(lambda: len(running.nodes()) == 2, running.process)  # two tasks fit the node's eight CPUs
    running.process.send_signal(signal.SIGINT)
    said = running.said()
    assert running.process.returncode == 130, said
    assert "Waiting jobs are cancelled. 2 jobs go on" in said
    assert "_2" not in slurm.run("squeue", "-h", "-o", "%i").stdout
    running.open()
    resumed = slurm.run(*FLEET, "resume", str(running.folder), cwd=ROOT)
    assert resumed.returncode == 0, resumed.stderr
    tasks = [read(running.folder / ".fleet" / "tasks" / f"{number}.json") for number in range(3)]
    assert all(task["exit_code"] == 0 for task in tasks)
    cards = {card for task in tasks for card in task["cards"]}
    assert cards == {path.stem for path in running.folder.glob("*.json")}
    assert len(cards) + sum(task["repeated"] for task in tasks) == 3


def test_a_node_that_dies(slurm: Cluster, gated: Callable[..., Gated]) -> None:
    """Tasks of a node that dies are submitted again and end on other nodes; no partial shard is left."""
    running = gated(2)
    until(lambda: len(running.nodes()) == 2, running.process)
    node = running.nodes()[0]
    slurm.kill_node(node)
    running.open()
    said = running.said()
    assert running.process.returncode == 0, said
    assert "submitted again" in said
    hosts = {read(path)["fleet"]["card"]["host"] for path in running.folder.glob("*.json")}
    assert len([*running.folder.glob("*.json")]) == 2
    assert node not in hosts
