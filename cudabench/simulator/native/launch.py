"""Running a launch on the native engine."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.check.global_races import written_regions
from cudabench.simulator.check.grid_races import MOST_GRANULES, MOST_LANES
from cudabench.simulator.check.places import same_memory
from cudabench.simulator.check.stale import regions_of
from cudabench.simulator.count.atomics import ONE_LANE
from cudabench.simulator.count.footprint import FOLLOWED, Touched
from cudabench.simulator.errors import BudgetExceeded
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.native import atomics, floats, layout
from cudabench.simulator.native.atomics import Contention
from cudabench.simulator.native.footprint import touched
from cudabench.simulator.native.layout import ARRAYS, REGION, Description
from cudabench.simulator.native.looks import Seen, seen
from cudabench.simulator.native.program import Encoded, encode, linear, refusal
from cudabench.simulator.plan import Plan
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.report import Executed
from cudabench.simulator.textures import Texture
from cudabench.simulator.values import Array
from cudabench.system import children, native

SLICE_S = 0.05  # between two moments in which signals and the time are heard
WIDE = 1 << 17  # threads of a launch
THREADS: ContextVar[int | None] = ContextVar("threads", default=None)


class Ran(NamedTuple):
    """What the native engine counted of a launch that it found clean, for `report`.

    shares: warp instructions by basic block of code and block of the grid, order: the numbers of the latter.
    contention, turns: see `atomics`. detours: see `floats`.
    """

    instructions: int
    executed: Array
    shares: Array | None
    counts: Array
    order: Array
    contention: dict[int, Contention]
    turns: dict[int, tuple[int, int]]
    seen: Seen
    detours: dict[int, Executed]
    touched: Touched | None = None


@lru_cache(1)
def _names() -> tuple[Any, dict[str, int]] | None:
    """Return the library and the numbers of its operations, None where there is none."""
    library = native.library()
    if library is None:
        return None
    library.cudabench_operations.restype = ctypes.c_int64
    library.cudabench_operation.restype = ctypes.c_char_p
    library.cudabench_size_of.restype = ctypes.c_int64
    library.cudabench_launch.restype = ctypes.c_void_p
    library.cudabench_executed.restype = ctypes.c_int64
    library.cudabench_done.restype = ctypes.c_int64
    library.cudabench_why.restype = ctypes.c_char_p
    sizes = [library.cudabench_size_of(place) for place in range(len(layout.SIZES))]
    assert sizes == [layout.size_of(one) for one in layout.SIZES], "layout.py and engine.hpp differ"
    names = {library.cudabench_operation(number).decode(): number for number in range(library.cudabench_operations())}
    return library, names


def wanted(plan: Plan) -> bool:
    """Return whether a launch is to be tried on the native engine: unless CUDABENCH_ENGINE asks for it, a wide one
    without loops, whose lanes all do the same at linear addresses, is NumPy's, which is as fast there or faster."""
    asked = native.wanted()
    wide = plan.blocks * math.prod(plan.block) >= WIDE
    return asked != "numpy" and not refusal(plan.code) and not (wide and asked != "native" and linear(plan.code))


def threads() -> int:
    """Return how many threads run the blocks of a launch: as `THREADS` says, else one for each core."""
    return THREADS.get() or children.processors()


def refused(plan: Plan, placed: Placed, watched: set[int] | None) -> str:
    """Return why a launch is not one for the native engine, "" where it is; watched: of `written_regions`."""
    code = plan.code
    reasons = {
        "its blocks form clusters": plan.cluster is not None,
        "its blocks run in an order that was asked for": plan.schedule is not None,
        "it has textures or tensor maps": bool(placed.textures or placed.maps),
        "several of its shared arrays are one memory": bool(same_memory(code, code.static_shared)),
        "it may read through the read-only cache what it writes": regions_of(code, *_given(placed)) != set(),
        "races between its blocks are not looked for in all of its arrays": _too_large(plan, placed, watched),
    }
    return next((reason for reason, holds in reasons.items() if holds), "") or refusal(code)


def _given(placed: Placed) -> tuple[AddressSpace, Array, Mapping[int, Texture]]:
    """Return the space of a launch, the bytes of its parameters and its textures."""
    return placed.space, np.frombuffer(placed.parameters, np.uint8), placed.textures


def _too_large(plan: Plan, placed: Placed, watched: set[int] | None) -> bool:
    """Return whether the NumPy engine looks for races between blocks, but not in an array that the launch writes."""
    blocks, most = math.prod(plan.grid), MOST_GRANULES * min(plan.code.granule["global"], 8)
    return 1 < blocks <= MOST_LANES // math.prod(plan.block) and any(
        region.size > most and (watched is None or region.base in watched) for region in placed.space.slots
    )


def attempt(
    plan: Plan, placed: Placed, *, budget: int, seconds: float | None, footprint: bool, shares: bool,
    issued: Mapping[int, tuple[int, int]], progress: Callable[[int, int], None] | None, threads: int,
) -> Ran | str:  # fmt: skip
    """Run a launch on the native engine; return what it counted.

    Or why it did not come to its end: then memory is as it was before. Raises BudgetExceeded when the time is up.
    """
    found = _names()
    if found is None:
        return native.reason()
    library, names = found
    code, grid = plan.code, plan.grid
    watched = written_regions(code.written, *_given(placed))
    reason = refused(plan, placed, watched)
    if reason:
        return reason
    key = id(library)
    if code.encoded.get(key) is None:
        code.encoded[key] = encode(code, names)
    encoded: Encoded = code.encoded[key]
    order = _order(plan)
    stride = max(1, -(-len(order) // FOLLOWED))
    place = np.arange(len(order))
    arrays = {
        "ops": encoded.ops, "blocks": encoded.blocks, "tables": encoded.tables,
        "accesses": _issued(encoded, issued), "registers": encoded.registers,
        "regions": _regions(placed, watched), "parameters": np.frombuffer(placed.parameters or b"\0", np.uint8),
        "order": order, "shared_starts": np.array([start for _, start, _ in code.shared_names] or [0], np.int32),
        "followed": (place % stride == stride // 2).astype(np.uint8),
        "sampled": (place % stride == 0).astype(np.uint8),
        "chunks": np.cumsum([0, *(chunk.blocks for _, chunk in plan.chunks[:-1])]),
    }  # fmt: skip
    about = Description()
    for name in ARRAYS:
        setattr(about, name, arrays[name].ctypes.data)
    for name in ("ops", "blocks", "tables", "accesses", "registers", "regions", "order", "shared_starts", "chunks"):
        setattr(about, f"{name}_count", len(arrays[name]))
    about.parameters_size, about.numbers_count = len(placed.parameters), len(code.accesses)
    about.grid[:], about.block[:] = grid, plan.block
    about.shared_size, about.dynamic_shared, about.local_bytes = plan.shared_size, plan.dynamic_shared, code.local_bytes
    about.budget, about.threads, about.footprint, about.shares = budget, threads, footprint, shares
    about.ordered = encoded.ordered
    about.granule_global, about.granule_shared = min(code.granule["global"], 8), min(code.granule["shared"], 8)
    handle = ctypes.c_void_p(library.cudabench_launch(ctypes.byref(about)))
    if not handle:
        return "there is not enough memory"
    try:
        status = _run(library, handle, code.name, seconds, len(order), progress)
        if status == layout.SUSPECT:
            line = ctypes.c_int32()
            why = library.cudabench_why(handle, ctypes.byref(line)).decode()
            return f"{why} (PTX line {line.value})"
        executed = np.zeros(len(code.blocks), layout.EXECUTED)
        by_block = np.zeros((len(code.blocks), len(order)), np.int64) if shares else None
        instructions = library.cudabench_executed(
            handle, _pointer(executed), None if by_block is None else _pointer(by_block)
        )
        counts = np.zeros((len(code.accesses), max(1, len(arrays["regions"]), len(code.shared_names))), layout.COUNTS)
        library.cudabench_counts(handle, _pointer(counts))
        memory = None
        if footprint:
            memory = touched(
                library, handle, counts, regions=len(placed.space.slots), followed=arrays["followed"],
                chunks=arrays["chunks"], warps=-(-math.prod(plan.block) // 32),
            )  # fmt: skip
        return Ran(
            instructions, executed, by_block, counts, order, atomics.contention(library, handle, encoded, code),
            atomics.turns(library, handle, encoded), seen(library, handle), floats.read_detours(library, handle),
            memory,
        )  # fmt: skip
    finally:
        library.cudabench_end(handle)


def _run(
    library: Any, handle: Any, kernel: str, seconds: float | None, blocks: int,
    progress: Callable[[int, int], None] | None,
) -> int:  # fmt: skip
    """Let the engine run slice by slice; return how it ended. What a signal raises, or the end of the time, leaves
    memory as it was before."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    try:
        while (status := library.cudabench_advance(handle, ctypes.c_double(SLICE_S))) == layout.GOES_ON:
            if progress is not None:
                progress(library.cudabench_done(handle), blocks)
            if time.monotonic() > deadline:
                raise BudgetExceeded(
                    f"kernel {kernel} was stopped when its time was up; raise --timeout (or --budget) or use a "
                    "smaller size if it is only long."
                )
    except BaseException:
        library.cudabench_undo(handle)
        raise
    return int(status)


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _order(plan: Plan) -> Array:
    """Return the numbers of the blocks that run, in the order in which the NumPy engine has them."""
    x, y, _ = plan.grid
    parts = []
    for origin, chunk in plan.chunks:
        place = np.arange(chunk.blocks, dtype=np.int64)
        across, down = chunk.extent[:2]
        own = (place % across, place // across % down, place // (across * down))
        parts.append(sum((first + one) * step for first, one, step in zip(origin, own, (1, x, x * y), strict=True)))
    return np.concatenate(parts)


def _regions(placed: Placed, watched: set[int] | None) -> Array:
    slots = placed.space.slots
    found = np.zeros(len(slots), REGION)
    for number, region in enumerate(slots):
        found[number] = (
            region.base, region.size, region.bytes.ctypes.data if region.size else 0,
            region.writable and region.size > 0,
            region.writable and (watched is None or region.base in watched), type(region).__name__ == "HeapRegion",
            region.constant,
        )  # fmt: skip
    return found


def _issued(encoded: Encoded, issued: Mapping[int, tuple[int, int]]) -> Array:
    """Return the memory instructions, with how their requests count where the machine code has them otherwise."""
    accesses = encoded.accesses.copy() if issued else encoded.accesses
    for record in accesses if issued else ():
        for space, number in enumerate(record["number"]):
            if number in issued:
                shift, size = issued[number]
                record["shift"][space], record["issued"][space] = shift, layout.ONE_LANE if size == ONE_LANE else size
    return accesses
