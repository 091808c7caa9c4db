"""Finds out whether a kernel's results depend on unwritten values: on values of local variables and arrays, of outputs
before they are written, or of a shuffle whose source lane does not take part.

The kernel runs with a known byte in all unwritten memory. If it reads any of this memory, it runs again with another
byte in the unwritten memory. If a result differs between the two runs, the reads are a fault.
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
from cudabench.records.plan import Buffer
from cudabench.simulator import api as simulator

# The byte that fills unwritten memory in the second run. As a float32 it makes 12.1, which changes a sum visibly.
OTHER = 0x41
REPAIRS = {  # maps a kind of suspicion to a text that says what to do
    "unwritten": "write it before it is read",
    "undefined-value": "give it a value on every path",
    "undefined-shuffle": "let that lane execute the shuffle, or do not use the value from it",
}
# If the second run is stopped after at least this many times the time of the first run, the second run is assumed never
# to end.
LONGER = 10
# (threads, blocks) that run if the kernel's blocks do not depend on each other.
SAMPLE = 1 << 12, 8

Launch = Callable[[int, simulator.Unwritten], tuple[sim.Run, dict[str, Any]]]


def hazards(launch: Launch, buffers: Sequence[Buffer]) -> list[simulator.Hazard]:
    """Return hazards for the reads of unwritten memory if a result depends on them, else an empty list.

    `launch`: runs the kernel with a given byte in the outputs and in local memory, and returns the run and its arrays.
    Raises the errors of the first run.
    """
    began = time.monotonic()
    unwritten = simulator.Unwritten(POISON, [buffer.name for buffer in buffers if buffer.role == "out"])
    run, first = launch(POISON, unwritten)
    suspected = [suspicion for suspicion in run.report.suspicions if suspicion.kind in REPAIRS]
    if not suspected:
        return []
    first_seconds = time.monotonic() - began
    try:
        _, second = launch(OTHER, simulator.Unwritten(OTHER, None))
    except CudabenchError as error:
        slow = isinstance(error, simulator.BudgetExceeded) and time.monotonic() - began < LONGER * first_seconds
        return [] if slow else _faults(suspected, "whether the kernel ends")
    results = {buffer.name: buffer.role == "out" for buffer in buffers if buffer.role in ("out", "inout")}
    elements = (
        first_dependent_element(name, first[name], second[name], unwritten.written(name) if begins_so else None)
        for name, begins_so in results.items()
    )
    element = next(filter(None, elements), None)
    return [] if element is None else _faults(suspected, element)


def _faults(suspected: Sequence[simulator.Hazard], effect: str) -> list[simulator.Hazard]:
    """Return suspicions as hazards; `effect`: words for the result that depends on the reads, such as 'out[3]'."""
    return [
        suspicion._replace(
            kind="undefined-value",
            message=f"{suspicion.message.removesuffix('.')}; {effect} depends on it: {REPAIRS[suspicion.kind]}.",
        )
        for suspicion in suspected
    ]


def first_dependent_element(name: str, first: np.ndarray, second: np.ndarray, written: np.ndarray | None) -> str | None:
    """Return the name of the first element, such as 'out[3]', that differs between two runs; None if none differs.

    `first`, `second`: the array after each run. `written`: for each byte whether the kernel wrote it (0 if not); None
    if the array does not begin unwritten.
    """
    old, new = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second))
    differs = old != new if written is None else (old != new) & (written != 0)
    if first.itemsize == 1 or first.dtype.kind == "V":  # a copied record may contain unwritten padding bytes
        differs &= (old != POISON) | (new != OTHER)
    if not differs.any():
        return None
    index = np.unravel_index(int(np.argmax(differs)) // first.itemsize, first.shape)
    return verify.element_name(name, index)
