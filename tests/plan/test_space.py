"""Ranges of sizes and blocks, and axes that vary together: their ends, and what is refused."""

from __future__ import annotations

import pytest

from cudabench.errors import UsageError
from cudabench.occupancy import MAX_BLOCK, MAX_THREADS_PER_BLOCK
from cudabench.plan import space
from cudabench.plan.space import Axis


def test_ends_of_a_range_of_sizes() -> None:
    """A range includes both ends, may have a single size, and has at most 64 sizes."""
    assert space.sizes("8..8*2") == (8,)
    assert space.sizes("8..64*2") == (8, 16, 32, 64)
    assert space.sizes("0..10+5") == (0, 5, 10)
    assert len(space.sizes(f"1..{space.MOST}+1")) == space.MOST
    for text, why in (
        (f"1..{space.MOST + 1}+1", "means more than 64 sizes"), ("9..8*2", "9 is beyond 8"),
        ("0..8*2", "never ends"), ("1..8*1", "never ends"), ("1..8+0", "never ends"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            space.sizes(text)


def test_ends_of_a_range_of_blocks() -> None:
    """A range may include the largest block size; a larger number is refused."""
    assert space.block_range(f"512:{MAX_BLOCK[0]}") == (512, 1024)
    assert space.block_range("8:24:8,64") == (8, 16, 24, 64)
    for text, why in ((f"8:{MAX_BLOCK[0] + 1}", "out of range"), ("0:8", "start at 1"), ("8:16:0", "have a step")):
        with pytest.raises(UsageError, match=why):
            space.block_range(text)
    assert (32, 32, 1) in space.blocks(2, [(32,), (32,)])
    assert space.blocks(2, [(32,), (33,)]) == []


def test_sensible_blocks() -> None:
    """Without ranges, blocks are whole warps, from two warps to the maximum number of threads."""
    threads = {x * y * z for x, y, z in space.blocks(2)}
    assert (min(threads), max(threads)) == (space.FEWEST_THREADS, MAX_THREADS_PER_BLOCK)
    assert all(count % 32 == 0 for count in threads)


def test_axes_that_vary_together() -> None:
    """Each axis is in at most one --zip, and all axes of a --zip have equally many values."""
    axes = [Axis("A", ("1", "2"), "define"), Axis("B", ("3", "4"), "define"), Axis("C", ("5",), "define")]
    assert list(space.combinations(space.axis_groups(axes, ["A,B"]))) == [
        {"A": "1", "B": "3", "C": "5"}, {"A": "2", "B": "4", "C": "5"},
    ]  # fmt: skip
    for zips, why in (
        (["A,A"], "A is in two --zip"),
        (["A,B", "B,C"], "B is in two"),
        (["A,C"], "A 2, C 1"),
        (["A"], "one axis"),
    ):
        with pytest.raises(UsageError, match=why):
            space.axis_groups(axes, zips)
