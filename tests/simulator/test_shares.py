"""Imbalance between the blocks of a launch: the instructions of each block, and the advice about them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.explain import advice
from cudabench.simulator import api as simulator
from tests.ladders import needs_compiler

pytestmark = needs_compiler

Launch = Callable[..., simulator.Report]

WORK = """extern "C" __global__ void k(const int *trips, const int *lanes, float *out, int first, int count)
{
    int block = first + blockIdx.x + gridDim.x * blockIdx.y;
    if (block >= count)
        return;
    float x = threadIdx.x;
    if (threadIdx.x < lanes[block])
        for (int i = 0; i < trips[block]; i++)
            x = x * 0.5f + 1.0f;
    out[block * blockDim.x + threadIdx.x] = x;
}
"""


def run(launch: Launch, trips: list[int], lanes: list[int], grid: tuple[int, int], first: int = 0) -> simulator.Report:
    """Launch blocks of 96 threads, in which `lanes` threads run `trips` iterations of a loop."""
    out = np.zeros(96 * len(trips), np.float32)
    return launch(WORK, grid, 96, [np.array(trips, np.int32), np.array(lanes, np.int32), out, first, len(trips)])


@settings(max_examples=15, deadline=None)
@given(
    trips=st.lists(st.integers(0, 40), min_size=12, max_size=12),
    lanes=st.lists(st.sampled_from([0, 1, 32, 33, 64, 96]), min_size=12, max_size=12),
    heavy=st.integers(0, 11),
)
def test_each_block_is_counted_as_alone(launch: Launch, trips: list[int], lanes: list[int], heavy: int) -> None:
    """The busiest block has the instruction count of a launch of that block alone, and the mean is that of all
    blocks."""
    trips[heavy], lanes[heavy] = 400, 96
    whole = run(launch, trips, lanes, (4, 3))
    found = whole.imbalance
    assert found is not None
    assert found.busiest == (heavy % 4, heavy // 4, 0)
    assert found.instructions == run(launch, trips, lanes, (1, 1), heavy).instructions
    alone = [run(launch, trips, lanes, (1, 1), block).instructions for block in range(12)]
    assert sum(alone) == whole.instructions
    assert found.mean == pytest.approx(np.mean(alone))
    assert (found.blocks, found.over) == (12, 1)
    assert found.last == (heavy >= 9)
    assert found.line in (8, 9)
    assert 0.5 < found.share <= 1


@pytest.mark.parametrize(
    ("trips", "why"),
    [
        ([900] * 12, "all alike"),
        ([900] * 11 + [1300], "a half more at most"),
        ([1] * 11 + [9], "over before anybody waits"),
        ([1] * 6 + [900], "too few blocks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_imbalance(launch: Launch, trips: list[int], why: str) -> None:
    """The report has no imbalance if the blocks have equal or nearly equal work, little work, or are few."""
    assert run(launch, trips, [96] * len(trips), (len(trips), 1)).imbalance is None


def test_blocks_without_work_are_no_others(launch: Launch) -> None:
    """Blocks that return at once do not count: a grid larger than the data is not uneven, and the mean leaves them
    out."""
    assert run(launch, [400] * 12, [96] * 12, (200, 1)).imbalance is None
    found = run(launch, [900] + [100] * 11, [96] * 12, (200, 1)).imbalance
    assert found is not None
    alone = [run(launch, [trips] * 2, [96] * 2, (1, 1)).instructions for trips in (900, 100)]
    assert found.mean == pytest.approx((alone[0] + 11 * alone[1]) / 12)
    assert run(launch, [900] + [1] * 6, [96] * 7, (200, 1)).imbalance is None, "too few that work"


def test_the_heaviest_launch_is_kept(launch: Launch) -> None:
    """merge() keeps the imbalance of the launch whose busiest block exceeds the mean the most."""
    one = run(launch, [1] * 11 + [500], [96] * 12, (12, 1))
    two = run(launch, [600] + [1] * 11, [96] * 12, (12, 1))
    none = run(launch, [5] * 12, [96] * 12, (12, 1))
    assert simulator.merge([one, two, none]).imbalance == two.imbalance
    assert simulator.merge([none, none]).imbalance is None


def test_blocks_in_many_chunks(launch: Launch) -> None:
    """If the simulator runs a grid in several chunks, the place of a block counts in the whole grid, not in its
    chunk."""
    count = 20_000
    trips = np.ones(count, np.int32)
    trips[-300:] = 400
    lanes, out = np.full(count, 96, np.int32), np.zeros(96 * count, np.float32)
    report = launch(WORK, count, 96, [trips, lanes, out, 0, count])
    found = report.imbalance
    assert found is not None
    assert (found.over, found.last, found.blocks) == (300, True, count)
    assert found.mean * count == pytest.approx(report.instructions)


def test_words(launch: Launch) -> None:
    """The advice says whether the heavy blocks start last or all blocks run at once; a heavy block that starts early
    has no advice."""
    last = run(launch, [1] * 20 + [900] * 4, [96] * 24, (24, 1)).imbalance
    first = run(launch, [900] + [1] * 23, [96] * 24, (24, 1)).imbalance
    assert last is not None
    assert first is not None
    said = advice.imbalance_advice(last, 8, 1)
    assert said is not None
    assert said.startswith("block (20, 0, 0) executes 5.")
    assert "4 of 24 blocks are over 1.5 times that: blocks start in the order of their numbers, these last" in said
    assert advice.imbalance_advice(first, 8, 1) is None
    said = advice.imbalance_advice(first, 8, 3)
    assert said is not None
    assert "one of 24 blocks is over 1.5 times that: all blocks run at once on 8 SMs" in said
