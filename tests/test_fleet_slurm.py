"""A fleet on a real Slurm: three nodes on this host, each with four stand-ins for GPUs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import cluster
from tests.slurm.cluster import Cluster

ROOT = Path(__file__).resolve().parent.parent
FLEET = [sys.executable, "-m", "cudabench", "fleet"]
MEASURE = ["--", "vecadd", "-k", "naive", "--size", "64", "--device", "sim", "--no-cpu"]
LACK = cluster.lack()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(LACK is not None, reason=str(LACK))]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """Return a running Slurm, whose jobs find this checkout."""
    pytest.importorskip("submitit")
    with cluster.running() as running:
        running.environment["PYTHONPATH"] = str(ROOT)
        yield running


@pytest.fixture(scope="module")
def measured(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the shards of all twelve cards, each from a process of `srun`."""
    folder = tmp_path_factory.mktemp("measured") / "shards"
    ran = slurm.run(
        "srun", "-N3", "--ntasks-per-node=4", "--gpus-per-task=1", *FLEET, "shard", str(folder), *MEASURE, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def read(path: Path) -> Any:
    """Return a JSON file."""
    return json.loads(path.read_text())


def submit(slurm: Cluster, folder: Path, gpus: int, *words: str) -> subprocess.Popen[str]:
    """Start a submission and return it after its first task has started."""
    started = subprocess.Popen(
        [*FLEET, "submit", "--gpus", str(gpus), "--hold", "4", *words, str(folder), *MEASURE],
        cwd=ROOT, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not [*folder.glob(".fleet/tasks/*.json")]:
        assert started.poll() is None, started.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
    return started


def node_at_work(folder: Path) -> str:
    """Return the node of a task that has started."""
    return str(read(next(iter(folder.glob(".fleet/tasks/*.json"))))["host"])


def test_every_card_has_a_shard(measured: Path) -> None:
    """srun's twelve tasks write a shard each, named by node and card, with node, rack and job in it."""
    cards = {path.name: read(path)["fleet"]["card"] for path in measured.glob("*.json")}
    assert sorted(cards) == [f"n{node}-gpu{gpu}.json" for node in (1, 2, 3) for gpu in range(4)]
    assert {(card["host"], card["rack"]) for card in cards.values()} == {
        ("n1", "spine.rack1"), ("n2", "spine.rack1"), ("n3", "spine.rack2")
    }  # fmt: skip
    assert all(card["status"] == "ok" and card["slurm"]["SLURM_PROCID"].isdecimal() for card in cards.values())


def test_report_finds_what_is_planted(slurm: Cluster, measured: Path, tmp_path: Path) -> None:
    """Of the real shards, given times of two models: a card 5% and one 30% slow are found, with what their clocks say,
    a shard that is cut in half is named, and the card that it is of is missing against the day before."""
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
    assert [card["id"] for card in found["cards"] if card["status"] == "missing"] == ["n2-gpu0"]
    assert {(row["model"], row["cards"]) for row in found["measurements"]} == {("H100", 7), ("A100", 4)}
    assert "its clock is low: 1085 of 1410 MHz" in ran.stdout
    assert "it is cut off" in ran.stdout


def test_preempted_tasks_are_submitted_again(slurm: Cluster, tmp_path: Path) -> None:
    """A job of a partition that goes first takes the cards; the tasks are submitted again and end well."""
    folder = tmp_path / "shards"
    running = submit(slurm, folder, 4)
    node = node_at_work(folder)
    assert slurm.run("srun", "-N1", "-p", "urgent", "-w", node, "--gpus=4", "true").returncode == 0
    said = running.communicate(timeout=90)[0]
    assert running.returncode == 0, said
    assert "submitted again" in said
    assert len([*folder.glob("*.json")]) == 4


def test_interrupted_submissions_go_on(slurm: Cluster, tmp_path: Path) -> None:
    """Ctrl-C cancels what waits, what runs goes on and is kept, and `resume` measures the rest."""
    folder = tmp_path / "shards"
    running = submit(slurm, folder, 3, "--slurm", "nodelist=n1", "--slurm", "cpus-per-task=4")
    while len([*folder.glob(".fleet/tasks/*.json")]) < 2:  # two tasks fit the node's eight CPUs
        time.sleep(0.05)
    time.sleep(2.5)  # until it has looked
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=30)[0]
    assert running.returncode == 130, said
    assert "What waited is cancelled." in said
    assert "_2" not in slurm.run("squeue", "-h", "-o", "%i").stdout
    resumed = slurm.run(*FLEET, "resume", str(folder), cwd=ROOT)
    assert resumed.returncode == 0, resumed.stderr
    tasks = [read(folder / ".fleet" / "tasks" / f"{number}.json") for number in range(3)]
    assert all(task["exit_code"] == 0 for task in tasks)
    cards = {card for task in tasks for card in task["cards"]}
    assert cards == {path.stem for path in folder.glob("*.json")}
    assert len(cards) + sum(task["repeated"] for task in tasks) == 3


def test_a_node_that_dies(slurm: Cluster, tmp_path: Path) -> None:
    """Tasks of a node that dies are submitted again and end on the others; no half of a shard is left."""
    folder = tmp_path / "shards"
    running = submit(slurm, folder, 2)
    node = node_at_work(folder)
    slurm.kill_node(node)
    said = running.communicate(timeout=90)[0]
    assert running.returncode == 0, said
    assert "submitted again" in said
    hosts = {read(path)["fleet"]["card"]["host"] for path in folder.glob("*.json")}
    assert len([*folder.glob("*.json")]) == 2
    assert node not in hosts
