"""Whether a kernel's results depend on values that nobody has written: of local variables and arrays, of arrays that
begin unwritten, or of a shuffle in which the lane that it reads does not take part.

A kernel runs with one byte in all of this memory, and, if it reads some of it, once more with another byte. A read is a
fault if a result then differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudabench.devices import sim
from cudabench.errors import CudabenchError
from cudabench.measure import verify
from cudabench.records.launch import POISON
from cudabench.records.planned import Buffer
from cudabench.simulator import api as simulator

OTHER = 0x41  # 12.1 as a float32, and no result of a sum hides it
REPAIRS = {  # by the kinds of the suspicions that may be faults
    "unwritten": "write it before it is read",
    "undefined-value": "give it a value on every way",
    "undefined-shuffle": "let that lane take part, or do not use what is shuffled from it",
}
LONGER = 10  # times as long as the first run: then the second does not end because of the other byte
SAMPLE = 1 << 12, 8  # threads and blocks that run of a kernel whose blocks do not depend on each other

Launch = Callable[[int, simulator.Unwritten], tuple[sim.Run, dict[str, Any]]]


def hazards(launch: Launch, buffers: Sequence[Buffer]) -> list[simulator.Hazard]:
    """Return the reads on which a result depends.

    launch: runs the kernel with a byte in the outputs and in local memory; returns the run and its arrays. Raises what
    that raises the first time.
    """
    began = time.monotonic()
    looked = simulator.Unwritten(POISON, [buffer.name for buffer in buffers if buffer.role == "out"])
    run, first = launch(POISON, looked)
    suspected = [one for one in run.report.suspicions if one.kind in REPAIRS]
    if not suspected:
        return []
    took = time.monotonic() - began
    try:
        _, second = launch(OTHER, simulator.Unwritten(OTHER, None))
    except CudabenchError as error:
        slow = isinstance(error, simulator.BudgetExceeded) and time.monotonic() - began < LONGER * took
        return [] if slow else _faults(suspected, "whether the kernel comes to its end")
    results = {buffer.name: buffer.role == "out" for buffer in buffers if buffer.role in ("out", "inout")}
    places = (
        dependent(name, first[name], second[name], looked.written(name) if begins_so else None)
        for name, begins_so in results.items()
    )
    place = next(filter(None, places), None)
    return [] if place is None else _faults(suspected, place)


def _faults(suspected: Sequence[simulator.Hazard], what: str) -> list[simulator.Hazard]:
    """Return suspicions as hazards; what: depends on them."""
    return [
        one._replace(
            kind="undefined-value",
            message=f"{one.message.removesuffix('.')}; {what} depends on it: {REPAIRS[one.kind]}.",
        )
        for one in suspected
    ]


def dependent(name: str, first: np.ndarray, second: np.ndarray, written: np.ndarray | None) -> str | None:
    """Return the first element of an array that differs between two runs, as text; None if there is none.

    written: by byte whether the kernel wrote it, 0 if not; None: the array does not begin unwritten.
    """
    one, two = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second))
    differs = one != two if written is None else (one != two) & (written != 0)
    if first.itemsize == 1 or first.dtype.kind == "V":  # of records: a copy has their padding, which nobody writes
        differs &= (one != POISON) | (two != OTHER)
    if not differs.any():
        return None
    index = np.unravel_index(int(np.argmax(differs)) // first.itemsize, first.shape)
    return verify.element_name(name, index)
