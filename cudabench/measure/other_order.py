"""A clean kernel once more with its blocks in another order: whether it is clean then too, and leaves the same.

That is looked at where blocks may tell each other something during a launch: by what atomics return, by flags, by
volatile and ordered reads. Elsewhere no order of blocks can be told from another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.devices import sim
from cudabench.errors import CudabenchError
from cudabench.measure.context import Arrays
from cudabench.records.results import Warning
from cudabench.results.warnings import warning
from cudabench.simulator import BudgetExceeded, Hazard

LONG_S = 2.0  # a kernel that took longer is not run again
MOST_S = 30.0  # of the second run, which takes long only where it waits in vain
# The relative error of a sum of floats in another order, by the bytes of a float.
ROUNDING = {2: 2e-3, 4: 1e-5, 8: 1e-12}
RANDOM = "random:1"
ORDERS = {None: "in their own order", "reverse": "in reverse order"}


def others(schedule: str | None, waits: bool) -> tuple[str | None, ...]:
    """Return the orders that are tried besides another; waits: blocks may wait for each other."""
    other = None if schedule == "reverse" else "reverse"
    return (other, RANDOM) if waits and schedule != RANDOM else (other,)


def words(schedule: str | None) -> str:
    """Return what messages call an order."""
    return ORDERS.get(schedule, f"in the order {schedule}")


@dataclass(frozen=True)
class Look:
    """What came of it: hazards of the simulator, what is wrong in words, and warnings."""

    hazards: Sequence[Hazard] = ()
    faults: Sequence[str] = ()
    warnings: Sequence[Warning] = ()


def look(
    kernel: str,
    launch: Callable[[str | None, float], tuple[sim.Run, Arrays]],
    schedule: str | None,
    waits: bool,
    took: float,
    arrays: Arrays,
    wrong: Callable[[Arrays], str | None],
) -> Look:
    """Launch in orders that `schedule` is not until one of them tells something, and return that.

    launch: by an order and the seconds that it may take. waits: blocks may wait for each other. took: the seconds of
    the first run. arrays: of what that left, what others are held against. wrong: what of the arrays that a run leaves
    is known to be wrong.
    """

    def undecided(another: str | None, reason: str) -> Look:
        note = warning("undecided", kernel=kernel, order=words(schedule), reason=reason, option=another or RANDOM)
        return Look(warnings=(note,))

    tried = others(schedule, waits)
    if took > LONG_S:
        return undecided(tried[0], f"that took {took:.1f} s")
    for another in tried:
        began = time.monotonic()
        in_order = words(another)
        try:
            run, found = launch(another, MOST_S)
        except BudgetExceeded as stopped:
            if stopped.hazards:
                return Look(_told(stopped.hazards, another))
            return undecided(another, f"{in_order} they had not ended after {time.monotonic() - began:.1f} s")
        except CudabenchError as error:
            return Look(faults=(f"with the blocks {in_order}: {error}",))
        if run.report.hazards:
            return Look(_told(run.report.hazards, another))
        if said := wrong(found):
            return Look(faults=(f"with the blocks {in_order}: {said}",))
        for name, array in arrays.items():
            place = first_difference(array, found[name])
            if place is not None:
                return Look(warnings=(_differs(name, place, array, found[name], schedule, another),))
    return Look()


def _told(hazards: Sequence[Hazard], another: str | None) -> tuple[Hazard, ...]:
    return tuple(one._replace(message=f"with the blocks {words(another)} {one.message}") for one in hazards)


def first_difference(one: np.ndarray, two: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first element that differs by more than what a sum of floats is rounded by, or None."""
    if one.tobytes() == two.tobytes():
        return None
    if one.dtype.kind in "fc":
        rtol = ROUNDING.get(one.itemsize >> (one.dtype.kind == "c"), 0.0)
        finite = np.abs(one[np.isfinite(one)])
        largest = float(finite.max()) if finite.size else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            differs = ~np.isclose(two, one, rtol=rtol, atol=rtol * largest, equal_nan=True)
    else:
        differs = one != two
    if not differs.any():
        return None
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(differs)), one.shape))


def _differs(
    name: str, place: tuple[int, ...], one: np.ndarray, two: np.ndarray, schedule: str | None, another: str | None
) -> Warning:
    index = f"[{', '.join(map(str, place))}]" if place else ""
    return warning(
        "order-dependent",
        place=f"{name}{index}",
        name=name,
        one=_text(one[place]),
        order=words(schedule),
        two=_text(two[place]),
        other=words(another),
    )


def _text(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind == "f" else str(value)
