"""Runs a launch on the native engine."""

from __future__ import annotations

import ctypes
import math
import struct
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cudabench.simulator.check.global_races import written_regions
from cudabench.simulator.check.grid_races import MOST_GRANULES, MOST_LANES
from cudabench.simulator.check.places import same_memory
from cudabench.simulator.check.stale import regions_of
from cudabench.simulator.count.atomics import ONE_LANE
from cudabench.simulator.count.footprint import FOLLOWED
from cudabench.simulator.errors import time_up
from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.memory import SLOT_BITS, AddressSpace
from cudabench.simulator.native import atomics, layout
from cudabench.simulator.native.footprint import Traces, traces
from cudabench.simulator.native.layout import COUNTED, REGION, Description
from cudabench.simulator.native.patterns import LaneCounts, lane_counts, must_sample
from cudabench.simulator.native.program import Encoded, encode, refusal
from cudabench.simulator.plan import Plan
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.program.code import Code
from cudabench.simulator.program.program import MOST_PLACED
from cudabench.simulator.report import Report
from cudabench.simulator.values import Array
from cudabench.system import children, collector, native

_REGION = struct.Struct("<qqQiiii")  # the layout of a REGION record
SLICE_S = 0.05  # the engine runs for this many seconds before signals and the time limit are checked again
MOST_KEPT = 64  # the arguments of a launch are kept for the next launch if it has at most this many regions
# How many launches of a plan are kept, all with different counts, to recognise a later launch with equal counts.
MOST_APART = 4
LEAST_DEFERRED = 8  # with fewer blocks, it is faster to search for races at each access
# The `PreparedLaunch` of a launch is kept for later launches if the grid has at most this many blocks.
MOST_PREPARED = 1 << 16
# Returns how many CPU threads may run the blocks of a launch, by default one per core.
THREADS: ContextVar[Callable[[], int]] = ContextVar("threads", default=children.processors)


@dataclass
class LaunchCounts:
    """The native engine's counts of a launch without hazards.

    `instructions`: the warp instructions; `executed`: a record of `layout.EXECUTED` for each basic block; `shares`: the
    warp instructions, of shape (basic blocks, blocks of the grid in the order `prepared.order`), or None; `counts`:
    records of `layout.COUNTS`, of shape (memory instructions, arrays); `contention`: as `contended` of `Outcome`;
    `lanes`: the access patterns; `traces`: the records for the footprint, if requested; `report`: the report of this
    launch, which launches with the same counts use, too.
    """

    instructions: int
    executed: Array
    shares: Array | None
    counts: Array
    prepared: PreparedLaunch
    contention: dict[int, tuple[int | None, int | None, bool]]
    lanes: LaneCounts
    traces: Traces | None = None
    report: Report | None = None

    def same_as(self, other: LaunchCounts) -> bool:
        """Return whether another launch of the same kernel, in the same address space, has the same counts."""
        pairs = zip(
            (self.executed, self.shares, self.counts, *(self.traces or ())[:4]),
            (other.executed, other.shares, other.counts, *(other.traces or ())[:4]),
            strict=True,
        )
        return self.contention == other.contention and all(
            left is right or (left is not None and right is not None and left.tobytes() == right.tobytes())
            for left, right in pairs
        )


@lru_cache(1)
def _library() -> tuple[Any, dict[str, int]] | None:
    """Return the C++ library and the numbers of its operations, keyed by name; None if there is no library."""
    found = layout.library("cudabench", "size_of", layout.SIZES)
    if found is not None:
        library, pointer = found[0], ctypes.c_void_p
        library.cudabench_launch.restype = ctypes.c_void_p
        library.cudabench_executed.restype = library.cudabench_done.restype = ctypes.c_int64
        library.cudabench_why.restype = ctypes.c_char_p
        library.cudabench_launch.argtypes = library.cudabench_end.argtypes = [pointer]
        library.cudabench_advance.argtypes = [pointer, ctypes.c_double, ctypes.c_int64]
        library.cudabench_executed.argtypes = [pointer, pointer, pointer]
        library.cudabench_done.argtypes = library.cudabench_undo.argtypes = library.cudabench_at.argtypes = [pointer]
        library.cudabench_counts.argtypes = [pointer, pointer]
    return found


def wanted(plan: Plan) -> bool:
    """Return whether to try a launch on the native engine."""
    return native.chosen_engine() != "numpy" and not refusal(plan.code)


def threads() -> int:
    """Return how many CPU threads run the blocks of a launch now, see `THREADS`."""
    return THREADS.get()()


def refused(plan: Plan) -> str:
    """Return the reason why the native engine runs no launch of a plan; "" if it may run some."""
    code = plan.code
    reasons = {
        "its blocks form clusters": plan.cluster is not None,
        "an order of its blocks is requested": plan.schedule is not None,
        "several of its shared arrays are one memory": bool(same_memory(code, code.static_shared)),
    }
    return next((reason for reason, holds in reasons.items() if holds), "") or refusal(code)


def _refused(plan: Plan, placed: Placed, parameters: Array, watched: set[int] | None) -> str:
    """Return the reason why the native engine refuses a launch with these arguments; "" if the engine accepts it.

    parameters: the bytes of the parameters; watched: the result of `written_regions`.
    """
    code, blocks = plan.code, math.prod(plan.grid)
    if code.cached and regions_of(code, placed.space, parameters, placed.textures) != set():
        return "it may read memory that it writes through the read-only cache"
    # The NumPy engine looks for races between blocks in all launches of this size, but not in larger arrays.
    if 1 < blocks <= MOST_LANES // math.prod(plan.block) and any(
        region.size > MOST_GRANULES * min(code.granule["global"], 8) and (watched is None or region.base in watched)
        for region in placed.space.slots
    ):
        return "races between its blocks are not looked for in all of its arrays"
    return ""


class PreparedLaunch:
    """The part of a launch's description that all launches of a plan have in common.

    `about`: the description in the form that C++ reads; `arrays`: the arrays that `about` points to, keyed by name;
    `order`: the numbers of the blocks in the order in which they run; `followed`: which of these blocks are followed
    for the footprint; `chunks`: where in `order` each chunk begins; `atomics`: whether the kernel has atomics.
    """

    def __init__(self, plan: Plan, encoded: Encoded, issued: Mapping[int, tuple[int, int]]) -> None:
        code, order = plan.code, block_numbers(plan)
        stride = max(1, -(-len(order) // FOLLOWED))
        place = np.arange(len(order))
        self.encoded, self.order, self.issued = encoded, order, dict(issued)
        self.followed = (place % stride == stride // 2).astype(np.uint8)
        self.chunks: Array = np.cumsum([0, *(chunk.blocks for _, chunk in plan.chunks[:-1])])
        self.atomics = any(access.kind == "atomic" for access in encoded.made)
        self.arrays = {
            "ops": encoded.ops, "blocks": encoded.blocks, "tables": encoded.tables,
            "accesses": _issued(encoded, issued), "registers": encoded.registers, "order": order,
            "shared_starts": np.array([start for _, start, _ in code.shared_names] or [0], np.int32),
            "chunks": self.chunks, "followed": self.followed, "sampled": (place % stride == 0).astype(np.uint8),
        }  # fmt: skip
        about = self.about = Description()
        for name, array in self.arrays.items():
            setattr(about, name, array.ctypes.data)
            if f"{name}_count" in COUNTED:
                setattr(about, f"{name}_count", len(array))
        about.numbers_count = len(code.accesses)
        about.grid[:], about.block[:] = plan.grid, plan.block
        about.shared_size, about.dynamic_shared = plan.shared_size, plan.dynamic_shared
        about.local_bytes, about.ordered = code.local_bytes, encoded.ordered
        about.granule_global = min(code.granule["global"], 8)
        about.granule_shared = min(code.granule["shared"], 8)
        # The arguments of the last launch, None if they are too large to keep.
        self.filled: tuple[Placed, int, bool, bool] | None = None
        # Whether races are searched for at the end of each block, as long as this is possible.
        self.deferred = len(order) >= LEAST_DEFERRED
        # The last launches in the address space `last_in`, all with different counts.
        self.last: list[LaunchCounts] = []
        self.last_in: tuple[int, int] = (0, 0)  # (id, version) of the address space of `last`

    def fill(self, placed: Placed, watched: set[int] | None, checked: bool, padded: bool) -> None:
        """Fill in the arguments of a launch.

        watched: the result of `written_regions`; padded: whether the launch may access the padding after arrays.
        """
        space, about = placed.space, self.about
        if self.last_in != (id(space), space.version):
            self.last, self.last_in = [], (id(space), space.version)
        table = region_table(space)
        if watched is not None or padded:
            table = table.copy()
        for slot, region in enumerate(space.slots if padded else ()):
            table["size"][slot] = (region.padded or region).size
        if watched is not None:
            table["watched"] = 0
            for base in watched:
                table["watched"][base >> SLOT_BITS] = space.slots[base >> SLOT_BITS].writable
        self.table = table
        about.regions, about.regions_count = table.ctypes.data, len(space.slots)
        small = len(space.slots) <= MOST_KEPT and sum(region.size for region in space.slots) <= MOST_PLACED
        self.filled = (placed, space.version, checked, padded) if space.lasts or small else None
        about.parameters, about.parameters_size = placed.parameters, len(placed.parameters)
        about.checked = checked


def region_table(space: AddressSpace) -> Array:
    """Return the `REGION` records of a space's regions; only those of regions that have changed are filled in again."""
    slots = space.slots
    table: Array = space.table
    if table is None or len(table) < len(slots):
        rows = np.zeros(len(slots) if table is None else 2 * len(slots), REGION)
        if table is not None:
            rows[: len(table)] = table
        table = space.table = rows
    for slot in space.changed:
        region = slots[slot]
        size, own = region.size, region.writable and region.size > 0
        _REGION.pack_into(
            table, slot * REGION.itemsize, region.base, size, region.host if size else 0, own, own,
            isinstance(region, HeapRegion), region.constant,
        )  # fmt: skip
    space.changed.clear()
    return table


def _prepared(
    library: str,
    names: dict[str, int],
    plan: Plan,
    placed: Placed,
    issued: Mapping[int, tuple[int, int]],
    checked: bool,
) -> PreparedLaunch | str:
    """Return the description of a launch, which the plan keeps, or the reason why the native engine cannot run it.

    library: the path of the C++ library, which is the key in `Code.encoded`.
    """
    code = plan.code
    if (
        plan.prepared is None
        or code.encoded.get(library) is not plan.prepared.encoded
        or plan.prepared.issued != issued
    ):
        if reason := refused(plan):
            return reason
        if code.encoded.get(library) is None:
            with collector.paused():
                code.encoded[library] = encode(code, names)
        plan.prepared = PreparedLaunch(plan, code.encoded[library], issued)
    prepared: PreparedLaunch = plan.prepared
    padded = plan.accesses_padding and not checked
    as_before = placed.space.version, checked, padded
    if plan.blocks > MOST_PREPARED:
        plan.prepared = None
    if prepared.filled is None or prepared.filled[0] is not placed or prepared.filled[1:] != as_before:
        parameters = np.frombuffer(placed.parameters, np.uint8)
        watched = written_regions(code.written, placed.space, parameters, placed.textures) if checked else None
        if placed.textures or placed.maps:
            return "it has textures or tensor maps"
        if checked and (reason := _refused(plan, placed, parameters, watched)):
            return reason
        prepared.fill(placed, watched, checked, padded)
    return prepared


def attempt(
    plan: Plan, placed: Placed, *, budget: int, seconds: float | None, footprint: bool, shares: bool,
    issued: Mapping[int, tuple[int, int]], progress: Callable[[int, int], None] | None, threads: Callable[[], int],
    checked: bool = True,
) -> LaunchCounts | str:  # fmt: skip
    """Run a launch on the native engine; return its counts, or "" if it is not `checked`.

    threads: returns how many CPU threads may run blocks; it is called again every `SLICE_S` seconds.
    If the engine cannot run the launch to its end, return the reason; then memory is as it was before the launch.
    Raises BudgetExceeded if the launch takes longer than `seconds`.
    """
    loaded = _library()
    if loaded is None:
        return native.unavailable_text()
    library, names = loaded
    code = plan.code
    prepared = _prepared(library._name, names, plan, placed, issued, checked)
    if isinstance(prepared, str):
        return prepared
    prepared.about.budget, prepared.about.footprint, prepared.about.shares = budget, footprint, shares
    sampled = checked and must_sample(plan)
    while True:
        prepared.about.sampled = prepared.arrays["sampled"].ctypes.data if sampled else None
        prepared.about.deferred = checked and prepared.deferred
        handle = library.cudabench_launch(ctypes.addressof(prepared.about))
        if not handle:
            return "there is not enough memory"
        try:
            status = _run(library, handle, code, seconds, len(prepared.order), progress, threads)
            if status == layout.AGAIN:
                prepared.deferred = False
                continue
            if status == layout.SUSPECT:
                line = ctypes.c_int32()
                why = library.cudabench_why(ctypes.c_void_p(handle), ctypes.byref(line)).decode()
                return f"{why} (PTX line {line.value})"
            if not checked:
                return ""
            ran = _counted(library, handle, plan, prepared, footprint, shares, len(placed.space.slots), sampled)
            if ran is not None:
                return ran
            library.cudabench_undo(handle)
            sampled = True
        finally:
            library.cudabench_end(handle)


def _counted(
    library: Any, handle: int, plan: Plan, prepared: PreparedLaunch, footprint: bool, shares: bool, regions: int,
    sampled: bool,
) -> LaunchCounts | None:  # fmt: skip
    """Return the counts of a launch that has ended.

    sampled: whether its access patterns were sampled. Return None if the launch must run again with sampling.
    """
    code, pointer = plan.code, ctypes.c_void_p(handle)
    executed = np.zeros(len(code.blocks), layout.EXECUTED)
    by_block = np.zeros((len(code.blocks), len(prepared.order)), np.int64) if shares else None
    instructions = library.cudabench_executed(
        handle, executed.ctypes.data, None if by_block is None else by_block.ctypes.data
    )
    counts = np.zeros((len(code.accesses), max(1, regions, len(code.shared_names))), layout.COUNTS)
    library.cudabench_counts(handle, counts.ctypes.data)
    lanes = lane_counts(library, pointer, counts, plan, prepared.issued, sampled)
    if lanes is None:
        return None
    ran = LaunchCounts(
        instructions, executed, by_block, counts, prepared,
        atomics.contention(library, pointer, prepared.encoded, code) if prepared.atomics else {},
        lanes, traces(library, pointer, counts, len(prepared.order), regions) if footprint else None,
    )  # fmt: skip
    same = None if sampled else next((before for before in prepared.last if before.same_as(ran)), None)
    if same is None:
        prepared.last = [ran, *prepared.last[: MOST_APART - 1]]
    return same or ran


def _run(
    library: Any, handle: int, code: Code, seconds: float | None, blocks: int,
    progress: Callable[[int, int], None] | None, threads: Callable[[], int],
) -> int:  # fmt: skip
    """Let the engine run in slices of `SLICE_S` until the launch ends; return its status, FINISHED or SUSPECT.

    If a signal or the time limit raises an exception, memory is first restored to what it was before the launch.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    try:
        while (status := library.cudabench_advance(handle, SLICE_S, threads())) == layout.GOES_ON:
            if progress is not None:
                progress(library.cudabench_done(handle), blocks)
            if time.monotonic() > deadline:
                line = code.blocks[library.cudabench_at(handle)].every[0].line
                raise time_up(code.name, f"{code.files.get(line.file, '')}:{line.line}")
    except BaseException:
        library.cudabench_undo(handle)
        raise
    return int(status)


def block_numbers(plan: Plan) -> Array:
    """Return the numbers of the blocks that run, in the order in which the NumPy engine runs them."""
    x, y, _ = plan.grid
    parts = []
    for origin, chunk in plan.chunks:
        place = np.arange(chunk.blocks, dtype=np.int64)
        across, down = chunk.extent[:2]
        own = (place % across, place // across % down, place // (across * down))
        parts.append(sum((first + place) * step for first, place, step in zip(origin, own, (1, x, x * y), strict=True)))
    return np.concatenate(parts)


def _issued(encoded: Encoded, issued: Mapping[int, tuple[int, int]]) -> Array:
    """Return the records of the memory instructions, changed to what the machine code issues.

    issued: as in `Counters`, the memory instructions that the compiler has merged in the machine code.
    """
    accesses = encoded.accesses.copy() if issued else encoded.accesses
    for record in accesses if issued else ():
        for space, number in enumerate(record["number"]):
            if number in issued:
                shift, size = issued[number]
                record["shift"][space], record["issued"][space] = shift, layout.ONE_LANE if size == ONE_LANE else size
    return accesses
