"""Why a kernel is much slower than the fastest row of its table, and where the tool says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudabench import operations
from cudabench.occupancy import Occupancy
from cudabench.plan import chapters
from cudabench.records.results import DeviceInfo, Limit, MachineCode, Result, Timing
from cudabench.results import slow_kernels
from cudabench.results.warnings import warning
from cudabench.views import table
from tests.conftest import Ran

SMS = {"cuda:0": 132}
CARD = DeviceInfo("Card", "cuda", "9.0", sm_count=132, index=0)
COMMENTS = {
    "slow": "Adds. Reads well. What remains: one load at a time. A side that is no multiple of 16 bytes goes slowly.",
    "full": "Adds. What remains is the memory: it is slow. Ragged rows go slowly.",
}


def row(kernel: str, microseconds: float, **more: Any) -> Result:
    """Return a result of a vecadd kernel on a GPU, with 1320 blocks (10 per multiprocessor)."""
    seconds = microseconds * 1e-6
    time = Timing(seconds, seconds, seconds, seconds, seconds, 0.0, 1, "cold", (seconds,))
    known: dict[str, Any] = {"size": {"n": 4096}, "dtype": "float32", "grid": (1320, 1, 1), "id": 0, "time": time}
    of = {"operation": "vecadd", "function": "f", "source": "vecadd.cu", "block": (256, 1, 1), "device": "cuda:0"}
    return Result(kernel=kernel, status="ok", **{**of, **known, **more})


def why(rung: Result, best: Result | None = None) -> str:
    """Return the reason why a kernel is behind a row of one microsecond."""
    (found,) = slow_kernels.slow_rungs([rung, best or row("best", 1)], SMS, lambda: COMMENTS)
    assert found[0] is rung
    return found[3]


def test_what_a_launch_uses_less_of() -> None:
    """Few blocks, a nearly empty last wave, few warps and spills are named if the fastest row does better; a library's
    row counts as perfect."""
    assert why(row("x", 3, grid=(33, 1, 1))) == "Its 33 blocks keep 25% of 132 multiprocessors at work on average."
    assert "Its 140 blocks keep 53% of 132" in why(row("x", 3, grid=(140, 1, 1)))
    few = Occupancy(1, 8, 0.125, "registers")
    text = "A multiprocessor holds 12% of the warps that it could, limited by registers."
    assert why(row("x", 3, occupancy=few)) == text
    assert why(row("x", 3, occupancy=few), row("best", 1, occupancy=few)) == ""
    assert why(row("x", 3, occupancy=few), row("best", 1, peer="cublas", grid=(0, 0, 0), id=None)) == text
    assert why(row("x", 3, grid=(33, 1, 1)), row("best", 1, grid=(33, 1, 1))) == ""
    spilled = MachineCode("sm_90", "0" * 64, spill_bytes=32)
    assert (
        why(row("x", 3, machine_code=spilled)) == "32 bytes a thread are spilled to local memory for lack of registers."
    )


def test_what_a_chapter_says_remains() -> None:
    """The chapter's sentence about ragged matrix rows is quoted only for a size with ragged rows. A memory limit that
    also limits the fastest kernel is not quoted."""
    slow = "What remains: one load at a time."
    assert why(row("slow", 3)) == slow
    ragged = row("slow", 3, size={"n": 4097})
    assert (
        why(ragged, row("best", 1, size={"n": 4097})) == f"{slow} A side that is no multiple of 16 bytes goes slowly."
    )
    assert why(row("full", 3)) == ""
    assert why(row("full", 3, size={"n": 4097}), row("best", 1, size={"n": 4097})) == "Ragged rows go slowly."
    assert why(row("unknown", 3)) == ""


def test_who_is_behind() -> None:
    """A rung is behind if it has under half the speed of the fastest row of its size and device, with real times and
    without known limits."""
    rows = [
        row("best", 1),
        row("near", 2),
        row("far", 2.1),
        row("peer", 9, peer="cublas", id=None),
        row("own", 9, id=None),
    ]
    rows += [
        row("limited", 9, limits=(Limit("memory", 1e-6, "much"),)),
        replace(row("wrong", 9), status="wrong", time=None),
    ]
    rows += [row("elsewhere", 9, device="cuda:1"), row("small", 9, size={"n": 8})]
    assert [(rung.kernel, best.kernel) for rung, best, *_ in slow_kernels.slow_rungs(rows, SMS, dict)] == [
        ("far", "best")
    ]
    invented = [replace(one, warnings=(warning("simulated"),)) for one in rows]
    assert [*slow_kernels.slow_rungs(invented, SMS, dict)] == []


def test_the_line_under_a_table() -> None:
    """The line says how far behind a kernel is (for several sizes, the worst), and the reason or a command that finds
    it."""
    operation = operations.get("vecadd")
    rows = [row("grid-stride", 1), row("naive", 4), row("vector", 5)]
    lines = table.behind_lines(operation, [CARD], rows, lambda kernel: f"cudabench explain vecadd -k {kernel} -t int32")
    assert lines == [
        "naive: 0.25 of the speed of grid-stride. What remains: a thread has two loads of sizeof(T) bytes under way, "
        "ends, and leaves the next ones to a new block.",
        "vector: 0.2 of the speed of grid-stride. What limits it: cudabench explain vecadd -k vector -t int32 "
        "--size 4096",
    ]
    more = [*rows, row("grid-stride", 1, size={"n": 8}), row("naive", 20, size={"n": 8})]
    first, _ = table.behind_lines(operation, [CARD], more, None)
    assert first.startswith("naive at 8, the worst of 2: 0.05 of the speed of grid-stride. ")
    (typed,) = table.behind_lines(operation, [CARD], rows[::2], lambda kernel: f"explain {kernel} --size 4096")
    assert typed.endswith("What limits it: explain vector --size 4096")


@pytest.mark.parametrize("name", [*operations.SUMMARIES])
def test_chapters_say_what_remains(name: str) -> None:
    """The comment of each kernel says what remains to be improved, except that of prefetch, which changes little of
    vector."""
    said = chapters.ideas(operations.get(name), whole=True)
    assert [rung for rung, comment in said.items() if "remain" not in comment] == ["prefetch"] * (name == "transpose")


@pytest.mark.driver
@pytest.mark.parametrize("true", [True, False])
def test_a_ladder_on_a_gpu(cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, true: bool) -> None:
    """Below a ladder's table, a line per slow kernel gives the reason, but not for the invented times of a simulated
    driver."""
    if true:
        monkeypatch.setattr(Result, "true_time", property(lambda result: result.time))
    names = [word for name in ("naive-row", "swizzle", "copy-col") for word in ("-k", name)]
    ran = cudabench("transpose", *names, "--size", 256, 250, "--min-time", 0, "--max-time", 0.05, "--no-cpu")
    assert ran.code == 0, ran.err
    told = [line for line in ran.out.splitlines() if " of the speed of swizzle. " in line]
    assert [line.split(":")[0] for line in told] == ["naive-row", "copy-col"] * true
    assert all("up to 32 sectors" in line for line in told)


@pytest.mark.gpu
def test_rungs_of_a_card(cudabench: Callable[..., Ran]) -> None:
    """On a GPU exactly the kernels under half the speed of the fastest row have a line."""
    ran = cudabench(
        "transpose", "--size", 4096, 4090, "--min-time", 0.05, "--max-time", 0.2, "--no-cpu", "--json", "r.json"
    )
    assert ran.code == 0, ran.err
    times = {
        one["kernel"]: one["time"]["median_s"]
        for one in json.loads(Path("r.json").read_text())["results"]
        if one["time"]
    }
    told = [line.split(":")[0] for line in ran.out.splitlines() if " of the speed of " in line]
    assert told == [
        kernel for kernel, seconds in times.items() if min(times.values()) < slow_kernels.SLOW_FRACTION * seconds
    ]
    assert told
