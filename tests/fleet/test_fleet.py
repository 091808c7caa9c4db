"""Shards and the report of a fleet: slow cards and why, missing cards, and files that are not shards."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudabench.devices import nvml, probe
from cudabench.fleet import findings, place, reading, shard, sums, task
from cudabench.fleet.shard import Plan
from cudabench.records import file as results
from cudabench.records.fleet import Card, Fleet, Load, Rule
from cudabench.records.results import DeviceInfo
from cudabench.views import fleet_page
from tests.conftest import Ran
from tests.fleets import MODEL, USUAL_MHZ, document, result, uuid, write
from tests.records.test_hostile_files import VALUES, mutated, places

Runner = Callable[..., Ran]
ROOT = Path(__file__).resolve().parents[2]
VECADD = ("vecadd", "-k", "naive", "--size", 64, "--no-cpu")


def report(*folders: Path, rule: Rule = findings.RULE, **more: Any) -> Fleet:
    """Return the findings for some folders."""
    return findings.load(folders).findings(rule, **more)


def quiet_fleet(cards: int = 8, kernels: int = 2, **more: Any) -> list[dict[str, Any]]:
    """Return shards of cards whose times differ by at most 0.2%."""
    noise = [1.001, 0.999, 1.0, 1.002, 0.998]
    times = [{f"k{k}": (k + 1) * 1e-5 * noise[(n + k) % 5] for k in range(kernels)} for n in range(cards)]
    return [document(n, times[n], **more) for n in range(cards)]


# Slow cards ----------------------------------------------------------------------------------------------------------


def add(taking: sums.CostStatistics, folder: int, rows: Iterable[tuple[int, int, int, float]]) -> None:
    """Add the rows (card, model, label, cost) of a folder."""
    parts = [*zip(*rows, strict=True)] or [()] * 4
    taking.add(folder, *(np.array(part, np.int64) for part in parts[:3]), np.array(parts[3], np.float64))


def test_ten_thousand_cards() -> None:
    """Among 10,000 cards with 0.5% noise in three kernels, the report finds every card that is 5% or 30% slow, and
    calls fewer than one in a thousand of the others slow."""
    chance = np.random.default_rng(7)
    planted = {number: 1.05 if number % 200 else 1.3 for number in range(0, 10_000, 100)}
    taking = sums.CostStatistics()
    for model in (0, 1):
        numbers = [*range(model, 10_000, 2)]
        costs = (1 + model) * (1 + 0.005 * chance.standard_normal((len(numbers), 3)))
        rows = (
            (number, model, label, float(cost) * planted.get(number, 1.0))
            for number, row in zip(numbers, costs, strict=True)
            for label, cost in enumerate(row)
        )
        add(taking, 0, rows)
    slow = {int(card) for card in taking.slow_rows(0, findings.RULE).card}
    assert planted.keys() <= slow
    assert len(slow - planted.keys()) < 10


def test_sums_are_those_of_lists() -> None:
    """Medians of groups, cards and changes equal those of plain lists bit by bit, also for groups of one and folders
    without rows."""
    chance = random.Random(3)
    rows = {
        (folder, card, card % 3, label): chance.gauss(1, 0.005) * (1.3 if card == 8 and folder else 1.0) * (1 + label)
        for folder in range(3)
        for card in range(40)
        for label in range(4)
        if chance.random() > 0.1
    } | {(2, 99, 7, 5): 1.0}
    taking, rule = sums.CostStatistics(), findings.RULE
    for folder in range(3):
        own = [(*key[1:], cost) for key, cost in rows.items() if key[0] == folder]
        for part in ([], own[:50], own[50:]):
            add(taking, folder, part)

    def middle(values: Iterable[float]) -> float:
        ordered = sorted(values)
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        return low + (high - low) / 2

    usual = {(f, m, lb): middle(c for k, c in rows.items() if (k[0], *k[2:]) == (f, m, lb)) for f, _, m, lb in rows}
    ratios = {key: cost / usual[(key[0], *key[2:])] for key, cost in rows.items()}
    groups = taking.groups(2, rule)
    for row in groups:
        own = {k[1]: ratio for k, ratio in ratios.items() if (k[0], *k[2:]) == (2, row.model, row.label)}
        mad = middle(abs(ratio - 1) for ratio in own.values())
        slow = [card for card, ratio in own.items() if ratio > sums.limit(mad, rule) and len(own) >= sums.FEWEST]
        assert (row.cards, row.median, row.mad) == (len(own), usual[2, row.model, row.label], mad)
        assert (row.worst, row.worst_card, row.slow) == (max(own.values()), max(own, key=own.__getitem__), len(slow))
    assert [*zip(groups.model, groups.label, strict=True)] == sorted({key[2:] for key in rows if key[0] == 2})
    for card, ratio, labels in taking.card_medians(2)[["card", "ratio", "labels"]]:
        own = [value for key, value in ratios.items() if key[:2] == (2, card)]
        assert (ratio, labels) == (middle(own), len(own))
    assert {*taking.slow_rows(2, rule).card} == {8}
    for card, label, change in taking.changes(2, rule):
        past = [ratio for key, ratio in ratios.items() if key[0] < 2 and (key[1], key[3]) == (card, label)]
        assert (card, change) == (8, ratios[2, 8, 8 % 3, label] / middle(past))
    wanted = [(*key[1:], ratios[key]) for key in sorted(ratios) if key[0] == 2 and key[1] in (8, 9)]
    assert taking.ratios(2, [8, 9])[["card", "model", "label", "ratio"]].tolist() == wanted
    assert not any(
        map(len, (taking.groups(5, rule), taking.slow_rows(5, rule), taking.card_medians(5), taking.ratios(5)))
    )


def test_medians_are_those_of_numpy(tmp_path: Path) -> None:
    """The report's median and MAD equal NumPy's, and the limit follows the rule."""
    chance = random.Random(1)
    costs = [chance.uniform(1e-5, 2e-5) for _ in range(9)]
    folder = write(tmp_path, *(document(n, {"k": cost}) for n, cost in enumerate(costs)))
    (row,) = report(folder).measurements
    middle = np.median(costs)
    assert row.median == middle
    assert row.mad == pytest.approx(np.median(np.abs(np.array(costs) - middle)) / middle, rel=1e-12)
    assert row.limit == pytest.approx(1 + 5 * 1.4826 * row.mad)
    assert row.worst == pytest.approx(max(costs) / middle)


def test_slow_is_beyond_both(tmp_path: Path) -> None:
    """A card that is 2.5% slow in a fleet without noise is not slow, and neither is a card that is 5% slow in a noisy
    fleet; with a stricter rule both are."""
    still = write(tmp_path / "still", *(document(n, {"k": 1e-5 * (1.025 if n == 3 else 1)}) for n in range(8)))
    assert not report(still).slow
    assert [each.id for each in report(still, rule=Rule(5, 0.02)).slow] == [uuid(3)]
    noisy = write(tmp_path / "noisy", *(document(n, {"k": 1e-5 * (1 + 0.02 * (n - 3))}) for n in range(7)))
    assert not report(noisy).slow
    assert [each.id for each in report(noisy, rule=Rule(0.5, 0.03)).slow] == [uuid(6), uuid(5)]


def test_two_cards_get_no_verdict(tmp_path: Path) -> None:
    """Of two cards, neither is called slow, and their limit is empty."""
    folder = write(tmp_path, document(0, {"k": 1e-5}), document(1, {"k": 1.3e-5}))
    found = report(folder)
    assert not found.slow
    assert found.measurements[0].limit is None
    assert found.measurements[0].worst == pytest.approx(1.3 / 1.15)


@pytest.mark.parametrize(
    ("factor", "clock", "cause"),
    [
        (1.30, USUAL_MHZ / 1.3, "clock"),
        (1.30, USUAL_MHZ, "not clock"),
        (1.30, USUAL_MHZ / 1.1, "partly clock"),
        (1.30, USUAL_MHZ / 1.005, "not clock"),
        (1.06, USUAL_MHZ / 1.3, "clock"),
        (1.30, None, "unknown"),
    ],
)
def test_what_the_clock_explains(tmp_path: Path, factor: float, clock: float | None, cause: str) -> None:
    """A slow card's cause is "clock" if its low clock explains the loss, "partly clock" if it explains a part, and "not
    clock" if the clock is normal."""
    shards = quiet_fleet()
    shards[5] = document(5, {"k0": 1e-5 * factor, "k1": 2e-5}, sm_mhz=clock)
    (card,) = report(write(tmp_path, *shards)).slow
    assert (card.id, card.cause, len(card.kernels), card.of) == (uuid(5), cause, 1, 2)
    assert card.kernels[0].ratio == pytest.approx(factor, rel=0.003)
    assert card.usual_sm_mhz == USUAL_MHZ


def test_a_slow_memory_clock_counts(tmp_path: Path) -> None:
    """A memory clock below the usual explains a slow card, as an SM clock does."""
    shards = quiet_fleet()
    shards[2] = document(2, {"k0": 1.3e-5, "k1": 2.6e-5})
    shards[2]["fleet"]["card"]["load"]["memory_mhz"] = 2619 / 1.3
    assert [each.cause for each in report(write(tmp_path, *shards)).slow] == ["clock"]


def test_models_are_held_against_their_own(tmp_path: Path) -> None:
    """A card is compared with cards of the same model: a slower model is not slow, a slow card of that model is."""
    slower = [document(100 + n, {"k0": 9e-5 * (1.2 if n == 4 else 1)}, model="NVIDIA A100") for n in range(6)]
    found = report(write(tmp_path, *quiet_fleet(kernels=1), *slower))
    assert [each.id for each in found.slow] == [uuid(104)]
    models = {group.name: (group.cards, group.slow) for group in found.groups if group.kind == "model"}
    assert models == {MODEL: (8, 0), "NVIDIA A100": (6, 1)}


def test_ceilings_are_shards(tmp_path: Path) -> None:
    """A ceiling is a row with its unit; a lower bandwidth is slow, and so is a higher latency."""

    def shard_of(number: int, copy: float, latency: float) -> dict[str, Any]:
        rows = [
            {"name": "memory-copy", "group": "memory", "value": copy, "unit": "GB/s", "status": "ok"},
            {"name": "l2-latency", "group": "latency", "value": latency, "unit": "s", "status": "ok"},
            {"name": "fp64", "group": "arithmetic", "value": None, "unit": "FLOP/s", "status": "skipped"},
            {"name": "fp32", "value": 7e13, "unit": "FLOP/s", "status": "ok", "source": "datasheet"},
        ]
        return {**document(number, {}), "ceilings": rows}

    values = [(4000.0, 2e-7)] * 6
    values[1], values[4] = (3000.0, 2e-7), (4000.0, 3e-7)
    found = report(write(tmp_path, *(shard_of(n, *each) for n, each in enumerate(values))))
    rows = {row.kernel: (row.median, row.unit, row.less_is_better) for row in found.measurements}
    assert rows == {"memory-copy": (pytest.approx(4000), "GB/s", False), "l2-latency": (2e-7, "s", True)}
    assert [(each.id, each.kernels[0].kernel) for each in found.slow] == [
        (uuid(4), "l2-latency"), (uuid(1), "memory-copy")
    ]  # fmt: skip
    assert found.slow[1].kernels[0].value == pytest.approx(3000)
    assert found.slow[1].kernels[0].ratio == pytest.approx(4 / 3)


# Missing, wrong and slowing cards ------------------------------------------------------------------------------------


def test_history(tmp_path: Path) -> None:
    """A card that loses 2% a day is slowing; a card that was always slow is not; a card without a shard is missing.
    Folders are ordered by their times."""
    days = []
    for day in range(4):
        shards = quiet_fleet(utc=f"2026-11-0{day + 1}T00:00:00+00:00")
        shards[2] = document(2, {"k0": 1e-5 * 1.02**day, "k1": 2e-5}, utc=f"2026-11-0{day + 1}T00:00:00+00:00")
        shards[6] = document(6, {"k0": 1.3e-5, "k1": 2.6e-5})
        days.append(write(tmp_path / f"day{day}", *shards[: 8 - (day == 3)]))
    found = report(days[3], days[0], days[2], days[1], rule=Rule(5, 0.025))
    assert found.folders == tuple(map(str, days))
    (card,) = found.slowing
    assert (card.id, card.kernel) == (uuid(2), "k0")
    assert card.change == pytest.approx(1.02**3 / 1.02, rel=0.003)
    assert [round(float(ratio or 0), 2) for ratio in card.ratios] == [1.0, 1.02, 1.04, 1.06]
    assert {each.id for each in found.slow} == {uuid(2), uuid(6)}
    missing = [each for each in found.cards if each.status == "missing"]
    assert [each.id for each in missing] == [uuid(7)]
    assert missing[0].reason == f"it is in {days[2]}, but not in {days[3]}"
    assert missing[0].host == "node0"


def test_others_that_get_faster() -> None:
    """A card with constant times is not slowing when the others become faster."""
    taking = sums.CostStatistics()
    for folder, slow in enumerate((range(4), range(4, 8), ())):
        add(taking, folder, [(card, 0, 0, 1.5 if card in slow else 1.0) for card in range(9)])
    assert not len(taking.changes(2, findings.RULE))


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"status": "wrong"}, "wrong", 3),
        ({"verification": None}, "unverified", 3),
        ({"status": "failed", "reason": "illegal address"}, "failed", 0),
        ({"status": "skipped"}, "ok", 0),
    ],
)
def test_a_card_without_a_right_result(
    cudabench: Runner, tmp_path: Path, change: dict[str, Any], status: str, code: int
) -> None:
    """A card's status follows from its results; a wrong value is in no median, and the exit code is 3 if a result is
    wrong or unverified."""
    shards = quiet_fleet(kernels=1)
    shards[3]["results"] = [result("k0", 9e-5, **change)]
    write(tmp_path / "s", *shards)
    ran = cudabench("fleet", "report", "s", "--json", "f.json", "--fail-on-slow")
    assert ran.code == code, ran.err
    found = json.loads(Path("f.json").read_text())["fleet"]
    assert next(each for each in found["cards"] if each["id"] == uuid(3))["status"] == status
    assert found["measurements"][0]["cards"] == 7
    assert (status in ran.out) is (status != "ok")
    if status == "failed":
        assert cudabench("fleet", "report", "s", "--fail-on-missing").code == 1


def test_exit_codes(cudabench: Runner, tmp_path: Path) -> None:
    """A slow card or a missing expected card changes the exit code only with the option for it."""
    shards = quiet_fleet()
    shards[1] = document(1, {"k0": 1.3e-5, "k1": 2e-5})
    write(tmp_path / "s", *shards)
    assert cudabench("fleet", "report", "s").code == 0
    assert cudabench("fleet", "report", "s", "--fail-on-slow").code == 4
    assert cudabench("fleet", "report", "s", "--fail-on-slow", "--over", "40%").code == 0
    Path("list").write_text(f"# all\n{uuid(1)}\n{uuid(44)}\n")
    ran = cudabench("fleet", "report", "s", "--expect", "list", "--fail-on-missing")
    assert ran.code == 1
    assert "it is expected, but lacks a shard" in ran.out
    assert cudabench("fleet", "report", "nowhere").code == 1
    assert cudabench("fleet", "report", "list").err == "Error: list is a file: name the folder of the shards.\n"
    (tmp_path / "empty").mkdir()
    assert "empty lacks readable shards; it lacks .json files." in cudabench("fleet", "report", "empty").err


# Output of a report --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_forms(cudabench: Runner, tmp_path: Path) -> None:
    """Table, Markdown, picture and JSON show the same; the JSON is a results file that loads, and is not read as a
    shard."""
    shards = quiet_fleet()
    shards[1] = document(1, {"k0": 1.3e-5, "k1": 2e-5}, host="n|1", sm_mhz=USUAL_MHZ / 1.3)
    write(tmp_path / "s", *shards)
    ran = cudabench("fleet", "report", "s", "--json", "s/f.json", "--plot", "p.svg")
    assert ran.code == 0, ran.err
    assert "8 cards of 1 model on 2 hosts in s: 1 slow." in ran.out
    row = next(line for line in ran.out.splitlines() if "its clock is low" in line)
    assert row.split()[:6] == ["GPU-00000001", "n|1", "1", "of", "2", "+29.9%"]
    assert "1523 of 1980 MHz" in row
    kept = results.load("s/f.json").fleet
    assert kept is not None
    assert kept.slow[0].id == uuid(1)
    assert kept == report(Path("s"))  # the report beside the shards is not read as a shard
    marked = cudabench("fleet", "report", "s", "--to", "markdown")
    assert "| GPU-00000001 | n\\|1 | 1 of 2 |" in marked.out
    picture = ElementTree.parse("p.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "GPU-00000001" in Path("p.svg").read_text()
    assert cudabench("fleet", "report", "s", "-o", "t.txt").out == ""
    assert "1 slow" in Path("t.txt").read_text()


def test_page(cudabench: Runner, tmp_path: Path) -> None:
    """-o FILE.html writes a page without external files: a dot for each card in each kernel's row, the limit, each slow
    card's kernels and cause, and a list of cards; --to html prints the page."""
    shards = quiet_fleet(rack="r7", pci_address="0000:3b:00.0")
    shards[1] = document(1, {"k0": 3e-5, "k1": 2e-5}, sm_mhz=USUAL_MHZ / 1.3)
    shards[6] = document(6, {}, status="failed", reason="it fell <off> the bus")
    write(tmp_path / "s", *shards)
    (tmp_path / "s" / "half.json").write_text("{")
    ran = cudabench("fleet", "report", "s", "-o", "r.html")
    assert (ran.code, ran.out) == (0, ""), ran.err
    page = Path("r.html").read_text()
    assert "default-src &#39;none&#39;" in page
    assert not re.findall(r"(?:src|href)=\"(?!#)", page)
    paths = [{*path.split("M")[1:]} for path in re.findall(r'<path class="dots" d="([^"]*)"', page)]
    assert [len(path) for path in paths] == [7, 7]
    assert page.count('<line class="limit"') == 2
    (dot,) = re.findall(r'<circle class="slow".*?<title>(.*?)</title>', page)
    assert dot == f"{uuid(1)} on node0: +199.7%"  # 3e-5 s over the median, 1.001e-5 s
    assert "slow in 1 of 2 kernels: its clock is low, and it is slow beyond that: 1523 of 1980 MHz" in page
    for said in ("0000:3b:00.0", "r7", "it fell &lt;off&gt; the bus", "half.json", "it is cut off"):
        assert said in page
    assert cudabench("fleet", "report", "s", "--to", "html").out.strip() == page.strip()
    assert cudabench("fleet", "report", "s", "--to", "table", "-o", "t.html").code == 0
    assert not Path("t.html").read_text().startswith("<")


def test_scale_of_the_page() -> None:
    """On the page's scale, median, limit and a three times slower card are in order inside the row, and tick marks keep
    their distance."""
    scale = fleet_page.Scale(np.array([0.99, 1.0, 1.01, 3.0]), [1.03], 0.03)
    places = [scale.at(ratio) for ratio in (0.99, 1.0, 1.03, 3.0)]
    assert places == sorted(places)
    assert places[0] > 0
    assert places[-1] < 100
    marks = scale.ticks()
    assert "median" in {mark.text for mark in marks}
    assert all(b.at - a.at >= 100 * fleet_page.LEAST_TICK_DISTANCE for a, b in itertools.pairwise(marks))
    assert fleet_page.Scale(np.array([1.0, 1.0]), [], 0.0).at(1.0) > 0


@pytest.mark.parametrize("width", [80, 60])
def test_narrow_terminals(tmp_path: Path, width: int) -> None:
    """On a narrow terminal each line of a table fits, and card and host are shown."""
    from rich.console import Console

    from cudabench.views import fleet

    shards = quiet_fleet(40, 13)
    shards[1] = document(1, {f"k{n}": (n + 1) * 1.3e-5 for n in range(13)}, host="h" * 300)
    found = report(write(tmp_path / "s", *shards))
    stream = io.StringIO()
    fleet.View(found).show(Console(file=stream, width=width, highlight=False, markup=False, emoji=False))
    lines = stream.getvalue().splitlines()
    # The terminal wraps sentences and titles.
    tables = [line for line in lines if line[-1:] != "."]
    assert not [line for line in tables if len(line) > width and not line.startswith(MODEL)]
    assert any("GPU-00000001" in line for line in lines)


def test_a_hundred_slow_cards_are_cut(cudabench: Runner, tmp_path: Path) -> None:
    """A long table ends with the number of cards not shown; the JSON has all of them."""
    shards = quiet_fleet(150, 1)
    for n in range(50):
        shards[n] = document(n, {"k0": 1.5e-5})
    write(tmp_path / "s", *shards)
    ran = cudabench("fleet", "report", "s", "--json", "f.json")
    assert "... and 20 more, all of them in the file of --json." in ran.out
    assert len(json.loads(Path("f.json").read_text())["fleet"]["slow"]) == 50


# Shards as hostile files ---------------------------------------------------------------------------------------------

TWICE = document(3, {"k0": 1e-5})
HOSTILE: dict[str, tuple[bytes, str]] = {
    "cut": (json.dumps(TWICE).encode()[:400], "it is cut off"),
    "empty": (b"", "it is empty"),
    "list": (b"[1, 2]", 'it lacks "schema"'),
    "text": (b"\x1b]0;owned\x07 no JSON", "it is not JSON"),
    "bytes": (b'{"schema": "\xff\xfe"}', "it is not UTF-8 text"),
    "deep": (b'{"schema": ' + b"[" * 200_000, "nested too deeply"),
    "digits": (b'{"schema": ' + b"9" * 5000 + b"}", "a number of 5000 digits"),
    "newer": (b'{"schema": "cudabench/7", "results": []}', "reads up to cudabench/1"),
    "copy": (json.dumps(TWICE).encode(), "another file has the same card"),
}


def test_files_that_are_no_shards(cudabench: Runner, tmp_path: Path) -> None:
    """A file that is cut, not JSON, nested too deep, too large, a pipe or a copy of a shard is named with its fault;
    the other files are read, and no control code reaches the terminal."""
    folder = write(tmp_path / "s", *quiet_fleet())
    for name, (content, _) in HOSTILE.items():
        (folder / f"{name}.json").write_bytes(content)
    with (folder / "large\x1b[31m.json").open("wb") as stream:
        stream.truncate(5 << 30)  # the file is sparse
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "gone.json").symlink_to("nowhere")
    (folder / ".hidden.json").write_text("not looked at")
    ran = cudabench("fleet", "report", "s", "--json", "f.json")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out + ran.err
    found = json.loads(Path("f.json").read_text())["fleet"]
    said = {each["file"].removesuffix(".json"): each["reason"] for each in found["damaged"]}
    assert said.keys() == {*HOSTILE, "large\x1b[31m", "pipe", "folder", "gone"}
    for name, (_, reason) in HOSTILE.items():
        assert reason in said[name]
    assert "5,368,709,120 bytes" in said["large\x1b[31m"]
    assert len(found["cards"]) == 8
    assert cudabench("fleet", "report", "s", "--fail-on-missing").code == 1


@pytest.mark.slow
def test_names_with_control_codes(cudabench: Runner, tmp_path: Path) -> None:
    """Control codes, CI commands and mark-up in names of hosts, models and kernels and in reasons are printed
    escaped."""
    evil = "::error::x\x1b[2J\u202e<script>$\\frac$\ud800\n| [a](b)"
    shards = quiet_fleet()
    for number in range(4):
        shards[number] = document(number, {evil: 1e-5 * (1.3 if number == 1 else 1)}, model=evil, host=evil, rack=evil)
    shards[5] = document(5, {}, status="failed", reason=evil)
    write(tmp_path / "s", *shards)
    for words in ((), ("--to", "markdown"), ("--to", "html"), ("--json", "f.json", "--plot", "p.png")):
        ran = cudabench("fleet", "report", "s", *words)
        assert ran.code == 0, ran.err
        assert not {"\x1b", "\u202e", "\ud800"} & {*ran.out, *ran.err}
        assert "<script>" not in ran.out or "html" not in words
        assert not any(line.lstrip().startswith("::") for line in ran.out.splitlines())


def draw_damaged(data: st.DataObject) -> bytes:
    """Return a shard in which one value is removed or has another type, size or meaning."""
    whole = {**document(1, {"k0": 1e-5}), "ceilings": [{"name": "fp32", "value": 5e13, "unit": "FLOP/s"}]}
    whole["fleet"]["card"]["health"] = {"remapped_rows": 1, "remap_pending": False}
    whole["fleet"]["card"]["slurm"] = {"SLURM_JOB_ID": "7"}
    path = data.draw(st.sampled_from(list(places(whole))))
    return json.dumps(mutated(whole, path, data.draw(st.one_of(st.just(...), VALUES)))).encode()


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_mutated_shard(data: st.DataObject) -> None:
    """A mutated shard is read or refused, and what was read can be written into a report."""
    try:
        read = reading.shards("x.json", draw_damaged(data))
    except reading.Unreadable:
        return
    file = results.ResultsFile({}, {}, {}, fleet=Fleet(cards=tuple(each.card for each in read)))
    assert results.parse(file.text(), "x").fleet == file.fleet
    assert all(0 < cost < 1e31 for each in read for _, cost in each.values)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_report_of_a_mutated_shard(cudabench: Runner, tmp_path: Path, data: st.DataObject) -> None:
    """A damaged shard among others is left out or named, and never causes a defect."""
    folder = write(tmp_path / "s", *quiet_fleet(3, 1))
    (folder / "x.json").write_bytes(draw_damaged(data))
    ran = cudabench("fleet", "report", "s")
    assert ran.code in (0, 3), ran.err
    assert "defect" not in ran.err


# Writing shards ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_simulated_shard(cudabench: Runner) -> None:
    """A simulated shard, named by the host, is a results file with the card's record, and the report reads it."""
    ran = cudabench("fleet", "shard", "shards", "--rack", "r7", "--", *VECADD, "-d", "sim")
    assert ran.code == 0, ran.err
    (path,) = Path("shards").iterdir()
    assert path.name == place.file_name(place.host())
    file = results.load(path)
    assert [each.status for each in file.results] == ["ok"]
    assert file.fleet is not None
    card = file.fleet.card
    assert card is not None
    assert (card.status, card.rack, card.host) == ("ok", "r7", place.host())
    assert f"{place.host()} on {place.host()}: 1 kernel, ok -> {path}" in ran.out
    assert cudabench("fleet", "report", "shards", "--json", "f.json").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list",), "'list' does not measure"),
        (("fleet", "report", "x"), "does not measure"),
        (("transpoze",), "neither an operation nor a command. Did you mean 'transpose'"),
        (("transpose", "--json", "x.json"), "'fleet shard' sets --json itself"),
        (("transpose", "--print", "bytes"), "--print bytes is for a single run"),
        (("transpose", "--blok", "3"), "--blok"),
        (("sweep",), "is not a command that measures"),
    ],
)
def test_commands_that_make_no_shard(cudabench: Runner, words: tuple[str, ...], said: str) -> None:
    """A command that does not measure, or sends its results elsewhere, is refused before a folder is made."""
    ran = cudabench("fleet", "shard", "s", "--", *words)
    assert ran.code == 2
    assert said in ran.err
    assert not Path("s").exists()


def test_no_card_is_a_shard(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without a visible card writes a shard that says so, does not simulate, and gives exit code 5."""
    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", problem="the driver finds no GPU"))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    ran = cudabench("fleet", "shard", "s", "--", *VECADD)
    assert ran.code == 5
    assert "n7-no-card on n7: missing (no card is visible: the driver finds no GPU)" in ran.out
    assert [path.name for path in Path("s").iterdir()] == ["n7-no-card.json"]


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the driver report two cards, which this host does not have."""
    cards = [DeviceInfo(MODEL, "cuda", "9.0", uuid=uuid(n), index=n) for n in range(2)]
    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", version="1", device_count=2))
    monkeypatch.setattr(probe, "gpu", lambda index: cards[index])
    monkeypatch.setattr(probe, "pci_address", lambda index: f"0000:{index:02x}:00.0")


# Runs in place of the command line in the measuring process; the card's name decides its result.
STAND_IN = """
import json, os, sys, time
card, words = os.environ["CUDA_VISIBLE_DEVICES"], sys.argv[1:]
assert words[-2:] == ["--device", "cuda"], words
document = json.load(open(os.environ["SHARD_OF"]))
if card.startswith("GPU-00000001"):
    sys.exit("Error: the card fell off the bus.")
document["device"]["uuid"] = card
document["results"][0]["device"] = "cuda:0"
json.dump(document, open(words[words.index("--json") + 1], "w"))
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run STAND_IN wherever a shard would start the command line."""
    program, shown = tmp_path / "stand_in.py", tmp_path / "shown.json"
    program.write_text(STAND_IN)
    shown.write_text(json.dumps(document(0, {"naive": 1e-5})))
    start = subprocess.Popen

    def popen(words: list[str], **more: Any) -> Any:
        more["env"] = {**more["env"], "SHARD_OF": str(shown)}
        return start([sys.executable, str(program), *words[3:]], **more)

    monkeypatch.setattr(shard.subprocess, "Popen", popen)


@pytest.mark.usefixtures("two_cards", "stand_in")
@pytest.mark.parametrize("in_turn", [False, True])
def test_every_visible_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_turn: bool) -> None:
    """Each of two cards is measured by a process that sees only that card, by UUID. A card whose run fails has a shard
    with the error; so has a card in CUDA_VISIBLE_DEVICES that neither CUDA nor NVML sees."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{uuid(0)},{uuid(1)[:20]},{uuid(9)}")
    plan = Plan(tmp_path / "s", ("vecadd",), host="n1")
    assert shard.measure_cards(plan, [uuid(8)], in_turn=in_turn) == 1
    cards = {card.id: card for path in (tmp_path / "s").iterdir() for card in [loaded(path)]}
    assert {name: card.status for name, card in cards.items()} == {
        uuid(0): "ok", uuid(1): "failed", uuid(8): "missing", uuid(9): "missing"
    }  # fmt: skip
    assert cards[uuid(1)].reason == "the card fell off the bus."
    assert cards[uuid(1)].pci_address == "0000:01:00.0"
    assert cards[uuid(1)].model == MODEL
    assert cards[uuid(9)].reason == "neither CUDA nor NVML sees it"
    assert {path.name for path in (tmp_path / "s").iterdir()} == {f"{name}.json" for name in cards}
    found = report(tmp_path / "s")
    assert {card.id: card.status for card in found.cards} == {name: card.status for name, card in cards.items()}


def loaded(path: Path) -> Card:
    """Return the card of a shard."""
    fleet = results.load(path).fleet
    assert fleet is not None
    assert fleet.card is not None
    return fleet.card


@pytest.mark.usefixtures("two_cards", "stand_in")
def test_a_run_on_another_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on another card than the shard's is failed."""
    monkeypatch.setattr(shard.place, "granted_cards", list)
    (tmp_path / "stand_in.py").write_text(STAND_IN.replace('["uuid"] = card', '["uuid"] = "GPU-other"'))
    shard.measure_cards(Plan(tmp_path / "s", ("vecadd",)))
    assert loaded(tmp_path / "s" / f"{uuid(0)}.json").reason == "it should run on this card, but ran on GPU-other"


@pytest.mark.usefixtures("two_cards", "stand_in")
def test_a_run_that_is_ended_leaves_no_shard(tmp_path: Path) -> None:
    """A run that a signal ends, as in a Slurm preemption, writes no shard."""
    (tmp_path / "stand_in.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert shard.measure_cards(Plan(tmp_path / "s", ("vecadd",))) == 143
    assert not [*(tmp_path / "s").iterdir()]


@pytest.mark.parametrize(
    ("name", "file"),
    [("../../etc/x", "_._.._etc_x.json"), (".hidden", "_hidden.json"), ("a\x1b/b c", "a__b_c.json"), ("", "_.json")],
)
def test_names_of_files(name: str, file: str) -> None:
    """A host's name cannot place a shard outside the folder, hide it, or put control codes in its name."""
    assert place.file_name(name) == file
    assert len(place.file_name("x" * 999)) < 200


def test_place_in_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node, rack and the simulated card's name come from Slurm's variables."""
    for name, value in {
        "SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n3", "CUDA_VISIBLE_DEVICES": "2",
        "SLURM_TOPOLOGY_ADDR": "spine.leaf4.n3", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert (place.host(), place.rack(), place.simulator_name("n3")) == ("n3", "spine.leaf4", "n3-gpu2")
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR", "n3")
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "node")
    assert place.rack() is None
    monkeypatch.delenv("SLURM_JOB_ID")
    assert place.simulator_name("n3") == "n3"


# NVML ----------------------------------------------------------------------------------------------------------------


def fake_nvml(looks: Iterator[Mapping[str, Any]]) -> Any:
    """Return a fake pynvml that shows the states in `looks`, one after the other."""
    state: dict[str, Any] = {}

    def use(handle: str) -> Any:
        state.update(next(looks))
        return SimpleNamespace(gpu=state["busy"])

    def refuse(*_: object) -> None:
        raise ValueError("not supported")

    return SimpleNamespace(
        nvmlInit=lambda: None,
        NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, NVML_NVLINK_MAX_LINKS=4,
        NVML_MEMORY_ERROR_TYPE_CORRECTED=0, NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0, NVML_AGGREGATE_ECC=1,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUtilizationRates=use,
        nvmlDeviceGetClockInfo=lambda handle, kind: state["sm"] if kind == 1 else 2619,
        nvmlDeviceGetPowerUsage=lambda handle: state["power"],
        nvmlDeviceGetTemperature=lambda handle, sensor: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: state["reasons"],
        nvmlDeviceGetTotalEccErrors=lambda handle, kind, counter: 10 * kind + counter,
        nvmlDeviceGetRemappedRows=lambda handle: (2, 1, 0, 1),
        nvmlDeviceGetNvLinkState=lambda handle, link: (1, 1, 0, 0)[link],
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetCurrPcieLinkGeneration=lambda handle: 5,
        nvmlDeviceGetCurrPcieLinkWidth=refuse,
        nvmlDeviceGetSerial=lambda handle: b"165002",
    )  # fmt: skip


def test_what_nvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks come from the readings while the card was busy, throttle reasons from all readings; a value that NVML
    refuses is None."""
    looks = iter(
        [
            {"busy": 0, "sm": 210, "power": 90_000, "reasons": 0x1},
            {"busy": 99, "sm": 1980, "power": 600_000, "reasons": 0x0},
            {"busy": 99, "sm": 1410, "power": 690_000, "reasons": 0x4},
            {"busy": 98, "sm": 1980, "power": 650_000, "reasons": 0x20 | 0x1},
        ]
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(looks))
    board = nvml.board("GPU-1")
    assert board is not None
    assert nvml.load([board.readings() for _ in range(4)]) == Load(
        1980.0, 2619.0, 690.0, 61.0, ("power cap", "software thermal slowdown"), 3
    )
    health = board.health()
    assert (health.ecc_corrected_ever, health.ecc_uncorrected) == (1, 10)
    assert (health.remapped_rows, health.remap_pending, health.remap_failed) == (3, False, True)
    assert (health.nvlinks_up, health.nvlinks_down, health.pcie_width) == (2, 2, None)
    assert board.text("nvmlDeviceGetSerial") == "165002"


def test_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pynvml there are no NVML values, and no error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (nvml.board("GPU-1"), nvml.load([]), nvml.uuids()) == (None, None, [])


# Submitting on this machine ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_submit_here(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks run as processes of this machine; a second submission to the same folder is refused."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    line = ("fleet", "submit", "--engine", "local", "--gpus", 2, "--hold", 20, "s", "--", *VECADD, "-d", "sim")
    ran = cudabench(*line)
    assert ran.code == 0, ran.err
    assert ran.err.splitlines()[-2].startswith("0 pending, 0 running, 2 done")
    assert {path.name for path in Path("s").glob("*.json")} == {f"{place.host()}-{n}.json" for n in range(2)}
    assert "holds a submission already" in cudabench(*line).err
    assert cudabench("fleet", "resume", "s").code == 0  # no task is left


@pytest.mark.slow
def test_interrupt_here(tmp_path: Path) -> None:
    """Ctrl-C ends a local submission with a message and no traceback and leaves no process; `resume` measures the
    rest."""
    folder, mark = tmp_path / "s", f"FLEET_TEST={tmp_path}"
    line = [sys.executable, "-m", "cudabench", "fleet"]
    environment = {**os.environ, "FLEET_TEST": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*line, "submit", "--engine", "local", "--gpus", "2", str(folder), "--", *map(str, VECADD), "-d", "sim"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as running:  # fmt: skip
        while not (folder / ".fleet" / "submission.json").exists():
            time.sleep(0.01)
            assert running.poll() is None
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        out, err = running.communicate(timeout=60)
    assert (running.returncode, "Traceback" in out + err) == (130, False), err
    assert "Waiting jobs are cancelled. To continue: cudabench fleet resume" in err
    left = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            left += [path.parent.name] if mark.encode() in path.read_bytes().split(b"\0") else []
    assert left == []
    resumed = subprocess.run(
        [*line, "resume", str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert len([*folder.glob("*.json")]) == 2


@pytest.mark.parametrize("content", [b"", b"[]", b'{"words": 3}', b'{"words": [], "tasks": [{}]}', b"[" * 99999])
def test_damaged_submissions(cudabench: Runner, content: bytes) -> None:
    """An invalid record of a submission is an error, and so is a missing one."""
    assert "lacks a submission" in cudabench("fleet", "resume", "s").err
    Path("s/.fleet").mkdir(parents=True)
    Path("s/.fleet/submission.json").write_bytes(content)
    ran = cudabench("fleet", "resume", "s")
    assert ran.code == 1
    assert "is damaged: submit again" in ran.err


def test_what_cannot_be_submitted(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many cards, no Slurm and an invalid option each give one error."""
    pytest.importorskip("submitit")
    local = ("fleet", "submit", "--engine", "local", "--gpus", 3, "s1", "--", *VECADD)
    assert "--gpus 3 is too many: 0 cards are visible here" in cudabench(*local).err or probe.driver().usable
    monkeypatch.setenv("PATH", "/nowhere")
    ran = cudabench("fleet", "submit", "--gpus", 3, "s2", "--", *VECADD, "-d", "sim")
    assert (ran.code, "srun is not on PATH" in ran.err) == (5, True)
    assert "not NAME=VALUE" in cudabench("fleet", "submit", "--gpus", 1, "--slurm", "x", "s3", "--", *VECADD).err


@pytest.mark.slow
def test_holding_a_card(tmp_path: Path) -> None:
    """A task holds its card until all tasks have started, and at most the given seconds after the last start."""
    plan = Plan(tmp_path, ("vecadd",))
    seen = iter([1, 1, 2, 3])
    task.hold_card(lambda: next(seen), task.Task(plan, 0, 3, 60.0))
    assert [*seen] == []
    asked: list[int] = []
    task.hold_card(lambda: asked.append(1) or 1, task.Task(plan, 0, 3, 0.7))  # type: ignore[func-returns-value]
    assert 1 < len(asked) < 5


def test_a_card_that_was_measured_is_not_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task on a card that another task has measured records that, and measures nothing."""
    (tmp_path / ".fleet" / "tasks").mkdir(parents=True)
    ran: list[Plan] = []
    monkeypatch.setattr(shard, "measure_cards", lambda plan: ran.append(plan) or 0)
    plan = Plan(tmp_path, ("vecadd",), "sim")
    assert task.Task(plan, 0, 2, 0.0, name="card")() == 0
    assert task.Task(plan, 1, 2, 0.0, name="card")() == 0
    assert len(ran) == 1
    assert [(task.last_state(tmp_path, n) or {})["repeated"] for n in range(2)] == [False, True]


# The page ------------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")

# The part of Ray that the page's script uses: two cards, and tasks that run at once.
RAY = """
import types
class _Later:
    def __init__(self, function): self.function = function
    def options(self, **given): return self
    def remote(self, *words): return self.function(*words)
def init(): pass
def cluster_resources(): return {"GPU": 2.0, "CPU": 8.0}
def get(found): return found
def remote(**given): return _Later
names = iter(["ray-a", "ray-b"])
util = types.SimpleNamespace(
    placement_group=lambda bundles: types.SimpleNamespace(ready=lambda: None),
    get_node_ip_address=lambda: next(names),
    scheduling_strategies=types.SimpleNamespace(PlacementGroupSchedulingStrategy=lambda *given, **named: None),
)
"""


def printed(language: str, holding: str) -> str:
    """Return the page's code block in a language that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return next(block for block in blocks if holding in block)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder whose command `cudabench` runs this checkout."""
    (tmp_path / "cudabench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cudabench "$@"\n')
    (tmp_path / "cudabench").chmod(0o755)
    return tmp_path


def run_in(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder; its programs and modules come first on the paths."""
    paths = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{folder / 'modules'}{os.pathsep}{ROOT}",
    }
    return subprocess.run(
        words, cwd=folder, env={**os.environ, **paths, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_trial_runs_as_printed(folder: Path) -> None:
    """The page's two commands for a machine without a GPU end well."""
    ran = run_in(folder, "sh", "-ec", printed("sh", "runs/trial"))
    assert ran.returncode == 0, ran.stderr
    assert "1 card of 1 model on 1 host in runs/trial: all right." in ran.stdout
    assert json.loads((folder / "trial.json").read_text())["fleet"]["cards"][0]["status"] == "ok"


@pytest.mark.slow
def test_the_pod_runs_as_printed(folder: Path) -> None:
    """The command of the page's Kubernetes job writes a shard named by the node."""
    line = re.search(r"args:\n +- (.*)", printed("yaml", "kind: Job"))
    assert line is not None
    options = "--kernel smem-pad --device sim --size 64 --no-cpu"
    ran = run_in(folder, "sh", "-c", line[1], SHARDS="shards", NODE_NAME="node-7", RACK="", OPTIONS=options)
    assert ran.returncode == 0, ran.stderr
    assert loaded(folder / "shards" / "node-7.json").host == "node-7"


@pytest.mark.slow
def test_the_ray_script_runs_as_printed(folder: Path) -> None:
    """The page's Ray script writes a shard for each of two cards and returns the worst exit code."""
    (folder / "modules").mkdir()
    (folder / "modules" / "ray.py").write_text(RAY)
    (folder / "fleet_ray.py").write_text(printed("python", "import ray"))
    command = ["transpose", "--kernel", "smem-pad", "--device", "sim", "--size", "64", "--no-cpu"]
    ran = run_in(folder, sys.executable, "fleet_ray.py", "shards", *command)
    assert ran.returncode == 0, ran.stderr
    assert {path.stem for path in (folder / "shards").iterdir()} == {"ray-a", "ray-b"}
    assert run_in(folder, sys.executable, "fleet_ray.py", "shards", "list").returncode == 2


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_every_card_of_this_host(cudabench: Runner) -> None:
    """Every visible GPU gets a shard named by its UUID with right results and, if NVML is installed, clocks under load;
    the report lists each card."""
    cards = [probe.gpu(index) for index in range(probe.driver().device_count)]
    line = ("fleet", "shard", "s", "--", "transpose", "-k", "copy-row", "-k", "smem-pad", "--size", 4096, "--no-cpu")
    ran = cudabench(*line)
    assert ran.code == 0, ran.out + ran.err
    assert {path.stem for path in Path("s").iterdir()} == {card.uuid for card in cards}
    for info in cards:
        file = results.load(f"s/{info.uuid}.json")
        assert file.device is not None
        assert file.device.uuid == info.uuid
        assert [each.status for each in file.results] == ["ok", "ok"]
        card = loaded(Path(f"s/{info.uuid}.json"))
        assert (card.status, card.model) == ("ok", info.name)
        assert card.pci_address
        if probe.nvml().usable:
            assert card.load is not None
            assert card.load.looks
            assert card.load.sm_mhz is None or 100 < card.load.sm_mhz < 4000
            assert card.health is not None
    ran = cudabench("fleet", "report", "s", "--json", "f.json")
    assert ran.code == 0, ran.err
    found = json.loads(Path("f.json").read_text())["fleet"]
    assert len(found["cards"]) == len(cards)
    assert {row["cards"] for row in found["measurements"]} <= {*range(1, len(cards) + 1)}
