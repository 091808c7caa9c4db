"""Small faults in the chapters, made by benchmarks/mutants.py: the simulator finds them."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudabench import operations
from cudabench.plan import chapters

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "mutants.py"
EVERY = 23  # the slow test runs one mutant of this many
# Mutants of matmul and solve take some ten seconds each: fewer of matmul's and none of solve's run here.
RARELY = {"matmul": 61}


@pytest.fixture(scope="module")
def mutants() -> Iterator[Any]:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    assert spec
    assert spec.loader
    module = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    path = [*sys.path]
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path
    del sys.modules["mutants"]


def every_mutant(mutants: Any, name: str) -> list[Any]:
    """Return the mutants of an operation's chapters."""
    return [
        one
        for _, text, function, _ in mutants.every_function(name)
        for one in mutants.mutants(text, function.first, function.last)
    ]


@pytest.mark.slow
def test_what_is_listed_is_there(mutants: Any) -> None:
    """Each mutant that is listed with a reason exists, and it has only one reason."""
    keys = {(name, one.rule, one.before) for name in operations.SUMMARIES for one in every_mutant(mutants, name)}
    assert {*mutants.EQUIVALENT, *mutants.UNSEEN} <= keys
    assert not {*mutants.EQUIVALENT} & {*mutants.UNSEEN}


@pytest.mark.slow
def test_every_rule_has_mutants(mutants: Any) -> None:
    """Every rule has mutants, and a mutant changes exactly one line."""
    rules = Counter(one.rule for name in operations.SUMMARIES for one in every_mutant(mutants, name))
    assert rules.keys() == mutants.RULES.keys()
    text = chapters.read_chapter(operations.get("vecadd").source).text
    for one in every_mutant(mutants, "vecadd"):
        changed = zip(text.splitlines(), one.of(text).splitlines(), strict=True)
        assert [at for at, (old, new) in enumerate(changed, 1) if old != new] == [one.line]


# Functions whose mutants use every rule, run in about a second, and are all found.
FEW = [
    pytest.param(name, function, id=function, marks=pytest.mark.slow if slow else ())
    for name, function, slow in (
        ("vecadd", "vecadd_naive", False), ("transpose", "transpose_smem", False), ("matmul", "matmul_naive", True),
        ("solve", "solve_divide", True), ("distance", "sum_at_once", True),
    )
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "function"), FEW)
def test_a_few_are_found(mutants: Any, name: str, function: str) -> None:
    """Each mutant of a few functions is found, by a wrong result or a hazard, or is equivalent to the original."""
    counts, whole = mutants.ends_of([*mutants.tasks_of(name, function)])
    assert whole
    assert counts["found"] > 0
    assert {*counts} <= {"found", "equivalent"}


@pytest.mark.slow
def test_one_that_hangs_or_crashes_costs_itself(
    mutants: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mutant runs in its own process, so that a crash or a hang fails only that mutant; a second run reads the
    kept results."""

    def work(task: Any, right: Any, back: Any) -> None:
        first = task.mutant and task.mutant.line
        if first == lines[0]:
            os._exit(3)
        if first == lines[1]:
            time.sleep(60)
        back.send(("found" if task.mutant else "ok", "", {}, "naive"))

    tasks = [*mutants.tasks_of("transpose", "transpose_smem")]
    lines = [task.mutant.line for task in tasks]
    assert len(lines) == len({*lines}) > 2
    keep = tmp_path / "kept.jsonl"
    keep.write_text('["transpose", "cut o')
    monkeypatch.setattr(mutants, "work", work)
    counts, whole = mutants.ends_of(tasks, jobs=4, keep=keep, limit=3)
    assert whole
    assert counts == {"failed": 2, "found": len(tasks) - 2}
    said = capsys.readouterr().out
    assert "(failed: its process ended with 3)" in said
    assert "(failed: no end within 3 s)" in said
    monkeypatch.setattr(mutants, "pool", lambda tasks, *_: (_ for _ in tasks))
    assert mutants.ends_of(tasks, keep=keep) == (counts, True)
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("name", "rung", "size"),
    [pytest.param("matmul", "wgmma", (66, 36, 132), marks=pytest.mark.slow), ("pi", "block", (1000,))],
)
def test_a_rung_is_right_without_optimisation(mutants: Any, name: str, rung: str, size: tuple[int, ...]) -> None:
    """Accesses that only unoptimised code makes, such as copies of registers that the tensor cores still write, are not
    hazards."""
    settings = {"bounds": True, "size": size}
    case = mutants.case_of(name, rung, settings)
    assert mutants.end_of(name, case, case.source.text + "\n", settings, 300) == ("ok", "")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*operations.SUMMARIES} - {"solve"}))
def test_one_of_several_is_found(mutants: Any, name: str) -> None:
    """Some mutants of each chapter, spread over its functions, are found or listed with the reason."""
    every = RARELY.get(name, EVERY)
    counts, whole = mutants.ends_of([*mutants.tasks_of(name)][::every])
    assert whole
    assert counts.total() >= len(every_mutant(mutants, name)) // every
    assert counts["failed"] == counts["NOT FOUND"] == 0
