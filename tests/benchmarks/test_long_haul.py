"""benchmarks/long_haul.py in several runs: one state file, and one verdict over all runs."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "long_haul.py"


@pytest.fixture
def long_haul(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the script as a module; restore the handler of SIGTERM afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    spec = importlib.util.spec_from_file_location("long_haul", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "long_haul", module)
    spec.loader.exec_module(module)
    yield module
    signal.signal(signal.SIGTERM, before)


def test_parts_count_together(
    long_haul: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run continues where the one before ended, interrupted or not; a promise that was broken once stays
    broken."""
    ran: list[tuple[str, Any]] = []

    def command(haul: Any, name: str, **arguments: Any) -> str:
        if len(ran) == stop:
            raise KeyboardInterrupt
        ran.append((name, arguments))
        haul.record.done[name] += 1
        haul.hold(len(ran) != 3, "the third")
        return "exit 0"

    monkeypatch.setattr(long_haul.Haul, "command", command)
    monkeypatch.setattr(sys, "argv", ["long_haul", "--device", "sim", "--state", str(tmp_path / "state.json")])
    for stop in (5, 6, 11):  # noqa: B007 (command reads it)
        with pytest.raises(KeyboardInterrupt):
            long_haul.main()
    state = json.loads((tmp_path / "state.json").read_text())
    assert sum(state["done"].values()) == len(ran) == 11
    assert (state["parts"], state["broken"]) == (3, ["the third"])
    whole = long_haul.tasks(long_haul.random.Random(0))
    assert ran == [next(whole) for _ in range(11)]
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--seconds", "-1"])
    assert long_haul.main() == 1
    assert "4 parts" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--seed", "1"])
    with pytest.raises(SystemExit, match="is of --seed 0"):
        long_haul.main()
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(SystemExit, match="is not a state file"):
        long_haul.main()


def test_hauls_are_joined(
    long_haul: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """States of runs at the same time are joined into one page with their sums; a promise broken in one run fails
    all."""
    for seed, broken in ((1, []), (2, ["y is not 2 x"])):
        record = long_haul.Record(seed, "cuda:0", seconds=330.4, card="a card", kept=3, broken=broken)
        record.done["good"], record.longest_s["good"] = 4, 2.0 * seed
        (tmp_path / f"{seed}.json").write_text(json.dumps(vars(record)))
    report = tmp_path / "page.md"
    line = ["long_haul", "--join", *(str(tmp_path / f"{seed}.json") for seed in (1, 2)), "--report", str(report)]
    monkeypatch.setattr(sys, "argv", line)
    assert long_haul.main() == 1
    sums = "seed 1 and 2, 2 parts, 661 s: 8 commands, 0 right kernels ok, 0 outputs the same bytes, 6 rows kept; 1 p"
    assert capsys.readouterr().out.startswith(sums)
    page = report.read_text()
    assert "--seconds 330 --seed 2`: seed 2, 1 part" in page
    assert f"Together: {sums}" in page
    assert "| good | 8 | 4.0 s | - |" in page
    assert "* seed 2: y is not 2 x\n" in page
    monkeypatch.setattr(sys, "argv", line[:3])
    assert long_haul.main() == 0


KEPT = """
import json, os, subprocess, sys, time
row = {"kernel": "twice", "status": "ok", "verification": None, "time": {"median_s": 1}, "bytes": 1, "block": 1}
row |= {"grid": 1, "bandwidth_gbps": 1, "reason": None}
file = {"device": {"name": "a card"}, "results": [row]}
json.dump(file, open("haul.json.tmp", "w")); os.rename("haul.json.tmp", "haul.json")
time.sleep(0.3)
%s
"""


@pytest.mark.sampled(4)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("end", "broken"),
    [
        ("", []),
        ('subprocess.Popen(["sleep", "60"], start_new_session=True)', ["processes"]),
        ('open(os.environ["TMPDIR"] + "/x", "w")', ["left behind"]),
        ('file["results"] = []; json.dump(file, open("haul.json", "w"))', ["not of ['twice']", "lost or changed"]),
        ('row["time"]["median_s"] = 2; json.dump(file, open("haul.json", "w"))', ["lost or changed"]),
        ("sys.exit(3)", ["exit code 3"]),
        ("1 / 0", ["Traceback", "exit code 1"]),
    ],
    ids=["nothing", "process", "file", "lost", "changed", "code", "traceback"],
)
def test_what_is_held(
    long_haul: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str, broken: list[str]
) -> None:
    """A process that outlives its command, a temporary file, a lost or changed row, a wrong exit code and a traceback
    each break a promise; a command without these breaks only the promise that arrays are saved."""
    script = tmp_path / "command.py"
    script.write_text(KEPT % end)
    monkeypatch.setattr(long_haul, "SETTLE_S", 0.1)
    watched = long_haul.Watched

    def pretend(_: list[str], *others: Any) -> Any:
        return watched([sys.executable, str(script)], *others)

    monkeypatch.setattr(long_haul, "Watched", pretend)
    monkeypatch.chdir(tmp_path)
    haul = long_haul.Haul(tmp_path, long_haul.Record(0, "cuda:0"))
    haul.command("good", ["twice"])
    said = [one for one in haul.record.broken if "were not saved" not in one]
    assert len(said) == len(broken)
    assert all(any(word in one for one in said) for word in broken), said
    assert ("a card" in long_haul.page([haul.record])) is True
