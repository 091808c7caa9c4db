"""Sweeps: the choice of blocks, the two passes, the order of blocks in the simulator, the map, and the command."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench import devices, operations
from cudabench.devices import Choice
from cudabench.errors import UsageError
from cudabench.measure import session, sweep
from cudabench.measure.context import describe
from cudabench.plan import space
from cudabench.plan.cases import Request
from cudabench.records.launch import WARP, Dim
from cudabench.records.plan import Case
from cudabench.records.results import Access, DeviceInfo, Result
from cudabench.results import stats, sweep_points
from tests.conftest import Ran
from tests.sessions import Invented, invent

Runner = Callable[..., Ran]
OPERATION = operations.get("transpose")
GPU = DeviceInfo("Fake", "cuda", "9.0", 132, 1 << 20, 4000.0, index=0)
SIMULATOR = DeviceInfo("Simulator of sm_90", "sim", "9.0")
NBYTES = 2 * 4096 * 4096 * 4


def timed(case: Case, seconds: float, seed: int = 0, noise: float = 0.002) -> Result:
    """Return a case's result with samples around a time."""
    rng = np.random.default_rng(seed)
    time = stats.summarize((seconds * (1 + noise * rng.standard_normal(50))).tolist(), "cold")
    gbps = NBYTES / time.median_s / 1e9
    return replace(
        describe(case, "cuda:0"),
        time=time,
        bytes=NBYTES,
        bandwidth_gbps=gbps,
        copy_gbps=3000.0,
        copy_fraction=gbps / 3000,
        peak_fraction=gbps / 4000,
    )


def counted(case: Case, sectors: int, wavefronts: int) -> Result:
    """Return a case's result with these access counts."""
    access = (
        Access(1, "", "global", "load", 4, 1, sectors, 1),
        Access(2, "", "shared", "load", 4, 1, None, None, wavefronts, 1),
    )
    return replace(describe(case, "sim"), access=access, hazards=(), instructions=100)


def planned(*blocks: tuple[int, int]) -> list[Case]:
    """Return cases of smem-pad."""
    return list(sweep.plan_points(OPERATION, Request(kernels=("smem-pad",)), [(x, y, 1) for x, y in blocks]).cases)


# Which blocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("32", (32,)),
        ("8:64", (8, 16, 32, 64)),
        ("8:60", (8, 16, 32)),
        ("8:24:8", (8, 16, 24)),
        ("64,8,16", (8, 16, 64)),
        ("8:16,100", (8, 16, 100)),
    ],
)
def test_axis(text: str, numbers: tuple[int, ...]) -> None:
    """A range doubles, goes in steps, or is a list."""
    assert space.block_range(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "8:", ":8", "8:64:0", "64:8", "0", "-8", "8;16", "8:16:2:1", "2048", "١"])
def test_no_axis(text: str) -> None:
    """An invalid range is refused with an error about --block."""
    with pytest.raises(UsageError, match="--block"):
        space.block_range(text)


@given(st.integers(1, 1024), st.integers(1, 1024), st.integers(1, 200))
def test_axis_stays_inside(first: int, last: int, step: int) -> None:
    """A range starts at its first number, rises, and does not pass its end."""
    first, last = sorted((first, last))
    for text in (f"{first}:{last}", f"{first}:{last}:{step}"):
        numbers = space.block_range(text)
        assert numbers[0] == first
        assert numbers[-1] <= last
        assert list(numbers) == sorted(set(numbers))


def test_sensible_blocks() -> None:
    """Without ranges, a sweep tries blocks of whole warps of at most 1024 threads, which include every kernel's default
    block."""
    for dimensions in (1, 2):
        chosen = space.blocks(dimensions)
        assert len(set(chosen)) == len(chosen)
        for x, y, z in chosen:
            assert x * y * z <= 1024
            assert x * y % WARP == 0
            assert z == 1
    assert {(*kernel.block, 1) for kernel in OPERATION.kernels} <= set(space.blocks(2))


def test_given_blocks() -> None:
    """Ranges give all pairs of numbers with at most 1024 threads."""
    assert space.blocks(2, [(32, 64), (8, 32)]) == [(32, 8, 1), (64, 8, 1), (32, 32, 1)]


def test_refused_blocks_are_kept_with_the_reason() -> None:
    """A block that the kernel cannot take is recorded as refused with the reason; if all are, or for another mistake,
    the sweep is an error."""
    square = replace(OPERATION.kernels[2], refuses=lambda g: None if g.block[0] == g.block[1] else "the tile is square")
    operation = replace(OPERATION, kernels=(replace(square, block=(32, 32)),))
    plan = sweep.plan_points(operation, Request(kernels=("smem",)), [(32, 32, 1), (32, 8, 1)])
    assert [case.block for case in plan.cases] == [(32, 32, 1)]
    assert plan.refused[0].block == (32, 8, 1)
    assert plan.refused[0].reason.endswith("the tile is square.")
    with pytest.raises(UsageError, match="None of the blocks can be swept"):
        sweep.plan_points(operation, Request(kernels=("smem",)), [(32, 8, 1)])
    with pytest.raises(UsageError, match="lacks kernels for 'int9'"):
        sweep.plan_points(operation, Request(kernels=("smem",), dtype="int9"), [(32, 32, 1)])


def test_a_sweep_takes_one_kernel() -> None:
    """A glob that matches several kernels is refused with their names."""
    with pytest.raises(UsageError, match=r"'smem\*' means smem, smem-pad, smem-unroll-pad: name one"):
        sweep.plan_points(OPERATION, Request(kernels=("smem*",)), [(32, 8, 1)])


# The second pass -----------------------------------------------------------------------------------------------------


def test_finalists() -> None:
    """The second pass measures the blocks close to the best, best first; failed blocks and simulated results have no
    second pass."""
    cases = planned((32, 8), (16, 16), (8, 32), (64, 8))
    results = [timed(case, t) for case, t in zip(cases, (1.02e-4, 1e-4, 2e-4, 1e-4), strict=True)]
    results[3] = replace(results[3], status="failed", time=None)
    assert [r.block for r in sweep.finalists(results)] == [(16, 16, 1), (32, 8, 1)]
    assert sweep.finalists([counted(case, 1, 1) for case in cases]) == []


def test_rounds_alternate() -> None:
    """Every second round runs backwards, so that each block has the same mean position."""
    a, b, c = planned((32, 8), (16, 16), (8, 32))
    order = sweep.in_rounds([a, b, c])
    assert order[:6] == [a, b, c, c, b, a]
    assert len(order) == 3 * sweep_points.ROUNDS
    assert {sum(at for at, case in enumerate(order) if case is one) for one in (a, b, c)} == {sum(range(12)) / 3}


def test_drift_does_not_choose_the_block() -> None:
    """On a GPU that slows down steadily, two equal blocks get equal times and are ties."""
    cases = planned((32, 8), (16, 16))

    turn = itertools.count()

    def measure(make: session.Make, case: Case) -> Result:
        at = next(turn)
        return timed(case, 1e-4 * (1 + 0.01 * at), seed=at)

    finals = sweep.measure_again(measure, [(lambda: operations.get("transpose"), case) for case in cases])
    first, second = (final.result.time.median_s for final in finals if final.result.time)
    assert first == pytest.approx(second, rel=0.004)
    assert len(sweep_points.ties(finals)) == 1
    assert all(final.moved > 0.04 for final in finals)


def test_merged_figures_belong_together() -> None:
    """The bandwidth and fractions of a merged result follow from its median time."""
    (case,) = planned((32, 8))
    merged = sweep.merge_rounds([timed(case, t, seed) for seed, t in enumerate((1e-4, 1.01e-4, 1.02e-4))]).result
    assert merged.time is not None
    assert merged.time.samples == 150
    assert merged.bandwidth_gbps == pytest.approx(NBYTES / merged.time.median_s / 1e9)
    assert merged.copy_fraction == pytest.approx(merged.bandwidth_gbps / 3000)
    assert merged.peak_fraction == pytest.approx(merged.bandwidth_gbps / 4000)


def test_wrong_once_is_wrong() -> None:
    """A block that is wrong in one round is wrong."""
    (case,) = planned((32, 8))
    wrong = replace(timed(case, 1e-4), status="wrong", time=None)
    assert sweep.merge_rounds([timed(case, 1e-4), wrong]).result.status == "wrong"


@pytest.mark.parametrize("level", [1e-4, 4e-6])
def test_a_clear_winner_has_no_ties(level: float) -> None:
    """A block that is 2% faster in all rounds has no ties, also for short kernels, because all blocks of a run share
    the drift."""
    cases = planned((32, 8), (16, 16))
    finals = [
        sweep.merge_rounds([timed(case, t, seed) for seed in range(4)])
        for case, t in zip(cases, (level, 1.02 * level), strict=True)
    ]
    assert sweep_points.ties(finals) == []


def test_simulator_orders_by_the_busiest_unit() -> None:
    """In the simulator the busiest unit decides, then fewer sectors, then fewer wavefronts; blocks with equal counts
    are all best."""
    cases = planned((32, 8), (16, 16), (8, 32), (64, 8))
    results = [counted(c, s, w) for c, s, w in zip(cases, (8, 4, 4, 4), (1, 9, 2, 2), strict=True)]
    assert [r.block for r in sweep_points.best(results)] == [(8, 32, 1), (64, 8, 1)]
    # Six fewer sectors do not outweigh a thousand more instructions.
    results = [
        replace(counted(cases[0], 20, 0), instructions=1000),
        replace(counted(cases[1], 14, 0), instructions=2000),
    ]
    assert [r.block for r in sweep_points.best(results)] == [(32, 8, 1)]


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Invented]]:
    """Replace sessions by invented ones; return the sessions that were started."""

    def install(result: Callable[[Case, int], Result], device: DeviceInfo = GPU) -> list[Invented]:
        monkeypatch.setattr(devices, "choose", lambda text: Choice("sim" if device.kind == "sim" else "cuda"))
        return invent(monkeypatch, lambda choice: device, lambda own, case: result(case, len(own.ran) - 1))

    return install


def by_block(block: Dim) -> float:
    """Return an invented time that has its minimum at 32 x 8."""
    return 1e-4 * (1 + 0.05 * abs(np.log2(block[0] / 32)) + 0.05 * abs(np.log2(block[1] / 8)))


def test_sweep_on_a_gpu(cudabench: Runner, fake: Callable[..., Any], tmp_path: Path) -> None:
    """A sweep measures all blocks, then the best again in rounds, and prints the map and the best block; the file has
    every block."""
    sessions = fake(lambda case, at: timed(case, by_block(case.block), at))
    ran = cudabench("sweep", "transpose", "--kernel", "smem-pad", "--block", "16:64", "4:16", "--json", "s.json")
    assert ran.code == 0
    assert len(sessions[0].ran) == 9
    assert [case.block for case in sessions[1].ran] == [(32, 8, 1)] * sweep_points.ROUNDS
    assert "GB/s, more is better (block X across, Y down)" in ran.out
    assert [line.split() for line in ran.out.splitlines() if line.startswith((" 4", " 8", "16"))][1][2].endswith("*")
    assert "Best, and the default: 32 x 8, 100.0 µs ±0.1%, 1342 GB/s, 44.7% of copy" in ran.out
    assert "were measured again, in 4 rounds" in ran.out
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["schema"] == "cudabench/1"
    assert len(document["results"]) == 9
    assert {tuple(r["block"]): r["time"]["samples"] for r in document["results"]}[(32, 8, 1)] == 200
    assert document["settings"]["kernels"] == ["smem-pad"]


def test_default_block_is_compared(cudabench: Runner, fake: Callable[..., Any]) -> None:
    """If another block is better, the report says how much slower the default block is."""
    fake(lambda case, at: timed(case, 1e-4 if case.block[0] == 64 else 1.1e-4, at))
    ran = cudabench("sweep", "transpose", "-k", "smem-pad", "-b", "32:64", "8")
    assert "Best: 64 x 8" in ran.out
    assert "The default block 32 x 8: 110.0 µs" in ran.out
    assert "10.0% slower" in ran.out


def test_sweep_in_the_simulator(cudabench: Runner, fake: Callable[..., Any]) -> None:
    """In the simulator the map shows counts, after one pass, and the report names the blocks with equal counts."""
    sessions = fake(lambda case, at: counted(case, 1024 * case.block[1], 512), SIMULATOR)
    ran = cudabench("sweep", "transpose", "--kernel", "naive-row", "--block", "16:32", "4:8")
    assert ran.code == 0
    assert len(sessions) == 1
    assert "global sectors, less is better" in ran.out
    assert "Best: 16 x 4, 4 096 global sectors, 512 shared wavefronts" in ran.out
    assert "The same counts: 32 x 4" in ran.out


def test_blocks_that_fail_are_listed(cudabench: Runner, fake: Callable[..., Any]) -> None:
    """A block that fails to launch is listed and the sweep passes; if all blocks fail the exit code is 1, and 3 if a
    block is wrong."""

    def some(case: Case, at: int) -> Result:
        if case.block[1] == 16:
            return replace(describe(case, "cuda:0"), status="failed", reason="it takes too many registers")
        return timed(case, 1e-4, at)

    fake(some)
    ran = cudabench("sweep", "transpose", "--kernel", "smem", "--block", "32", "8:16")
    assert ran.code == 0
    assert "Failed: 32 x 16: it takes too many registers" in ran.out
    assert cudabench("sweep", "transpose", "--kernel", "smem", "--block", "32", "16").code == 1
    fake(lambda case, at: replace(describe(case, "cuda:0"), status="wrong", reason="no"))
    assert cudabench("sweep", "transpose", "--kernel", "smem", "--block", "32", "16").code == 3


def test_json_on_standard_output(cudabench: Runner, fake: Callable[..., Any]) -> None:
    """With --json -, standard output has only the results file."""
    fake(lambda case, at: timed(case, 1e-4, at))
    ran = cudabench("sweep", "transpose", "--kernel", "smem", "--block", "32", "8", "--json", "-")
    assert len(ran.json["results"]) == 1
    assert "Best, and the default: 32 x 8" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("transpos -k smem", "Did you mean 'transpose'?"),
        ("transpose", "A sweep takes one kernel"),
        ("transpose -k nothing", "transpose lacks a kernel 'nothing'"),
        ("transpose -k smem -b x 8", "'x' is not a range"),
        ("transpose -k smem -b 512 512", "over 1024 threads"),
        ("transpose -k smem -t int9", "lacks kernels for 'int9'"),
    ],
)
def test_bad_input(cudabench: Runner, words: str, message: str) -> None:
    """Each mistake gives one message and exit code 2, before a kernel runs."""
    ran = cudabench("sweep", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.gpu
def test_on_a_real_gpu(cudabench: Runner, tmp_path: Path) -> None:
    """A sweep on a GPU succeeds, measures the best block in all rounds, and two sweeps show no regression."""
    words = ("--kernel", "vector", "--size", 2048, "--min-time", 0.1, "--block", "16:64", "8")
    for name in ("one.json", "two.json"):
        ran = cudabench("sweep", "transpose", *words, "--json", name)
        assert (ran.code, ran.err) == (0, "")
        assert "Best" in ran.out
    samples = [r["time"]["samples"] for r in json.loads((tmp_path / "one.json").read_text())["results"]]
    assert max(samples) >= sweep_points.ROUNDS * 10
    assert cudabench("compare", "one.json", "two.json", "--fail-on-regression", "5%").code == 0
