"""The long haul in parts: one state file, one verdict over all of them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "long_haul.py"


@pytest.fixture
def long_haul(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("long_haul", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "long_haul", module)
    spec.loader.exec_module(module)
    return module


def test_parts_count_together(
    long_haul: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each part goes on where the one before ended, cut off or not; what the first broke is held to the end."""
    ran: list[tuple[str, Any]] = []

    def command(haul: Any, name: str, **arguments: Any) -> None:
        if len(ran) == stop:
            raise KeyboardInterrupt
        ran.append((name, arguments))
        haul.done[name] += 1
        haul.hold(len(ran) != 3, "the third")

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
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--minutes", "-1"])
    assert long_haul.main() == 1
    assert "4 parts" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--seed", "1"])
    with pytest.raises(SystemExit, match="is of --seed 0"):
        long_haul.main()
