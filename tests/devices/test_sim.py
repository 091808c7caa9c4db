"""What the simulator's device makes of memory that nobody has written."""

from __future__ import annotations

import numpy as np

from cudabench.devices import sim


def test_unwritten_memory() -> None:
    """Outputs start as NaN; scratch memory has NaN and the largest numbers beside each other."""
    assert np.isnan(sim.poisoned((3,), "float32")).all()
    scratch = sim.scratch((4,), "float32")
    assert np.isnan(scratch).tolist() in ([True, False] * 2, [False, True] * 2)
    assert np.nanmin(scratch) > 1e38
    whole = sim.scratch((2,), "int32")
    assert {*whole.tolist()} == {-1, int(whole.max())}
    assert whole.max() > 1 << 30


def test_poison_takes_memory_that_is_there() -> None:
    """An array of the right shape and type is filled again; another one is left as it is."""
    there = np.zeros(3, np.float32)
    assert sim.poisoned((3,), "float32", into=there) is there
    assert np.isnan(there).all()
    for shape, dtype in (((4,), "float32"), ((3,), "int32")):
        other = np.zeros(3, np.float32)
        assert sim.poisoned(shape, dtype, into=other) is not other
        assert not other.any()
