"""One launch: check its limits, put its arguments in an address space, run it on an engine, and return the report."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.occupancy import (
    MAX_BLOCK,
    MAX_CLUSTER,
    MAX_GRID,
    MAX_SHARED,
    MAX_STATIC_SHARED,
    MAX_THREADS_PER_BLOCK,
    over_bound,
)
from cudabench.simulator.check.places import Between, Declared, same_memory
from cudabench.simulator.check.unwritten import Unwritten
from cudabench.simulator.count.footprint import Footprints
from cudabench.simulator.count.shares import Shares
from cudabench.simulator.count.trace import Trace
from cudabench.simulator.errors import BudgetExceeded, LaunchError, UnsupportedKernel
from cudabench.simulator.machine import Machine
from cudabench.simulator.machine_code.launch import MachineCodeRequest, machine_code_runner
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.native import launch as native
from cudabench.simulator.native.outcome import Finished
from cudabench.simulator.outcome import Outcome, executed_of
from cudabench.simulator.program import ptx
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.program.code import Code
from cudabench.simulator.program.program import Program, load
from cudabench.simulator.report import Report
from cudabench.simulator.schedule import Schedule
from cudabench.simulator.values import Index3

# The budget in vector steps; a vector step is one instruction, executed for all lanes that run it together.
DEFAULT_BUDGET = 5_000_000
UNCHECKED = Report(0, (), (), "", None, (), {}, (), (), None, None, "native")  # the report of an unchecked launch
# An upper limit of the threads that run at once: the threads of one SM times a number of SMs that no GPU exceeds.
MAX_RESIDENT = 2048 * 192


def _three(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    if type(value) is int and value > 0:
        return value, 1, 1
    parts = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(parts) <= 3 or any(int(part) < 1 for part in parts):
        raise LaunchError(f"{what} {value} must be one to three numbers of at least 1.")
    return tuple(int(part) for part in (*parts, 1, 1)[:3])  # type: ignore[return-value]


def _sides(sides: Any) -> str:
    return " x ".join(map(str, sides))


def check_launch(
    name: str, function: ptx.Function, grid: Index3, block: Index3, static: int, dynamic: int
) -> None:  # fmt: skip
    """Raise LaunchError for a launch that no GPU accepts (limits: CUDA C++ Programming Guide, "Compute Capabilities"),
    or for a block size that the launch bounds of the kernel do not allow.

    `static`, `dynamic`: the bytes of static and of dynamic shared memory of a block.
    """
    for what, of, sides, limits in (("block", "threads", block, MAX_BLOCK), ("grid", "blocks", grid, MAX_GRID)):
        for axis, value, limit in zip("xyz", sides, limits, strict=True):
            if value > limit:
                raise LaunchError(f"a {what} of {value} {of} in {axis} is over the limit of {limit}.")
    threads = math.prod(block)
    if threads > MAX_THREADS_PER_BLOCK:
        raise LaunchError(
            f"a block of {_sides(block)} = {threads} threads is over the limit of {MAX_THREADS_PER_BLOCK}."
        )
    if static > MAX_STATIC_SHARED:
        raise LaunchError(f"{static} bytes of static shared memory are over the limit of {MAX_STATIC_SHARED}.")
    if dynamic < 0 or static + dynamic > MAX_SHARED:
        raise LaunchError(f"{static} + {dynamic} bytes of shared memory are over the limit of {MAX_SHARED}.")
    if function.most_threads is not None and threads > function.most_threads:
        raise LaunchError(over_bound(name, threads, function.most_threads))
    if function.needs_block not in (None, block):
        raise LaunchError(f"kernel {name} needs blocks of {_sides(function.needs_block)} threads: use this block size.")


def _cluster(
    kernel: str, module: ptx.Module, grid: tuple[int, int, int], requested: Sequence[int] | None
) -> tuple[int, int, int] | None:
    """Return the shape of a cluster in blocks (x, y, z), or None for a launch without clusters.

    `requested`: the shape that the caller asks for. Raises LaunchError for a grid that is not a multiple of the
    cluster, UnsupportedKernel for an architecture without clusters.
    """
    declared = module.functions.outline(kernel).cluster
    found = declared if requested is None else _three(requested, "cluster")
    if found is None:
        return None
    version = re.match(r"sm_(\d+)", module.target)
    if requested is not None and version is not None and int(version[1]) < 90:
        raise UnsupportedKernel(
            f"clusters of blocks need compute capability 9.0, and {version[0]} is older: use --device sim:sm_90."
        )
    if declared not in (None, found):
        raise LaunchError(
            f"kernel {kernel} is compiled for clusters of {_sides(declared)} blocks: leave --cluster out."
        )
    if found[0] * found[1] * found[2] > MAX_CLUSTER:
        raise LaunchError(f"a cluster of {found} blocks is over the limit of {MAX_CLUSTER}.")
    for axis, blocks, side in zip("xyz", grid, found, strict=True):
        if blocks % side:
            raise LaunchError(
                f"a grid of {blocks} blocks in {axis} is not a multiple of kernel {kernel}'s clusters, which have "
                f"{side}."
            )
    return found


def run(
    program: Program | str,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any] | Placed,
    *,
    shared_bytes: int = 0,
    names: Sequence[str] | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    trace: bool | tuple[int, int] = False,
    progress: Callable[[int, int], None] | None = None,
    merged: Mapping[int, tuple[int, int]] | None = None,
    footprint: bool = False,
    sample: int | None = None,
    cluster: Sequence[int] | None = None,
    beside: Mapping[str, np.ndarray] | None = None,
    first_slot: int = 0,
    declared: Declared | None = None,
    between: Between | None = None,
    schedule: str | None = None,
    resident: tuple[str, int] | None = None,
    machine: MachineCodeRequest | None = None,
    checked: bool = True,
    unwritten: Unwritten | None = None,
) -> Report:
    """Launch a kernel and return the report: counts, hazards and printed text.

    program: a loaded Program, or PTX text. grid, block: the numbers of blocks and of threads, as an int or as 1 to 3
    ints, x first. arguments: one value for each parameter: NumPy arrays (C-contiguous, used in place as device
    pointers), numbers, bytes for structs by value (a Struct if they contain pointers to arrays), Rows for pointers to
    an array's rows, None for a null pointer, a Texture for a texture or surface object, a TensorMap for a CUtensorMap
    by value or a pointer to one. In place of these values, one `Placed`: the bytes of all parameters, and an address
    space that already contains the arrays.
    cluster: the shape of a cluster in blocks, if the kernel does not declare one. shared_bytes: the bytes of dynamic
    shared memory of a block. names: the parameters' names, for messages.
    budget, seconds: the number of vector steps and the time after which the launch is stopped.
    trace: whether single accesses are recorded (in small launches only), or (number of a block, number of a warp) to
    record only the accesses of this warp. progress: a function that is called with (blocks done, blocks in all).

    checked: if false, the launch takes a fraction of the time, and finds only addresses that are out of bounds or
    misaligned, undefined values, and barriers at which threads are missing. The report then has no counts and no
    races, unless the launch has such a fault or runs in NumPy.

    merged: maps the PTX line of an access that differs in the machine code to a pair that says how to count the access:
    (bytes to add to its address, bytes that a lane accesses); (PTX line of another access, 0) if that access also does
    the work of this access; or (0, `count.atomics.ONE_LANE`) for an atomic that one lane does for its whole warp.

    footprint: whether to count also the memory that the launch touches. sample: about how many blocks of a larger grid
    run; they are spread over the grid. All counts are then sums over these blocks only, and only these blocks have
    written to memory. A kernel that synchronises its grid always runs whole. In a sample, `trace` records the given
    warp of the first block that runs.

    beside: all arrays of several launches, always in the same order; first_slot: the largest `program.slots` of the
    programs of these launches. With these two arguments an array has the same address in each launch, even in launches
    that do not use all of these arrays.

    declared: a function that takes the name and the bytes of a shared array and the line of an access, and finds the
    array's declaration in the source. It returns (bytes of an element, elements by dimension), or None. With it,
    messages name elements as the source does. between: a function that returns where a barrier can stand between two
    accesses, or None: see `check.places.Gap`.
    schedule: another order of the blocks, see module `schedule`. resident: (name of a card, how many of the blocks it
    holds at once): this number of blocks runs at once if blocks wait for each other. unwritten: the record of the
    memory that has been written; with it, reads of unwritten memory are found, and the launch runs in NumPy. machine:
    machine code that is simulated as well where this is needed, see `machine_code.launch.machine_code_runner`.

    Raises LaunchError (no GPU accepts the launch or an argument), UnsupportedKernel (the kernel reaches something that
    the simulator lacks), KernelTrap (assert, trap or a write to a read-only array), BudgetExceeded.
    """
    if isinstance(program, str):
        program = load(program)
    code = program.code(kernel)
    grid3, block3 = _three(grid, "grid"), _three(block, "block")
    function = program.module.functions.outline(kernel)
    check_launch(kernel, function, grid3, block3, code.static_shared, shared_bytes)
    together = _cluster(kernel, program.module, grid3, cluster)
    recorder = None
    if isinstance(arguments, Placed):
        placed = arguments
    else:
        placed = program.place(code, arguments, names, beside or {}, first_slot)
        if trace:
            recorder = Trace(placed.addresses, arguments, trace if isinstance(trace, tuple) else None)
    barrier = _grid_barrier(code, placed.space, grid3, block3) if placed.cooperative else 0
    order_of_blocks = None if schedule is None else Schedule.of(schedule)
    whole = recorder is not None and recorder.watch is None
    plan = program.plan(kernel, grid3, block3, shared_bytes, whole, sample, together, order_of_blocks, resident)
    if recorder is not None and recorder.watch is not None and sample is not None:
        # The block that `trace` names may not be in the sample.
        recorder.watch = int(native.block_numbers(plan)[0]), recorder.watch[1]
    lines = ((number, access.location.ptx_line) for number, access in enumerate(code.accesses))
    issued = {number: merged[line] for number, line in lines if line in merged} if merged else {}
    shares = plan.blocks == math.prod(grid3) and Shares.fit(code, plan.blocks)
    run_code = machine_code_runner(machine, plan, placed)
    ends = math.inf if seconds is None else time.monotonic() + seconds
    if recorder is None and unwritten is None and native.wanted(plan):
        ran = native.attempt(
            plan, placed, budget=budget or DEFAULT_BUDGET, seconds=seconds, footprint=footprint and checked,
            shares=shares and checked, issued=issued, progress=progress, threads=native.threads,
            checked=checked,
        )  # fmt: skip
        if ran == "":
            program.keep(code)
            return UNCHECKED
        if not isinstance(ran, str):
            program.keep(code)
            # Do not reuse a report if there is machine code, because the counts of this code are added to the report.
            if ran.report is None or machine is not None:
                finished = Finished(ran, plan, placed)
                ran.report = finished.report()
                finished.code = run_code(ran.report)
            return ran.report
    program.complete(code)
    engine = Machine(
        plan, placed, budget or DEFAULT_BUDGET, recorder, progress, issued, ends, declared, between, barrier
    )
    if footprint:
        engine.counters.footprints = Footprints(placed.space, code.accesses, plan.blocks)
    engine.shares, engine.unwritten = Shares.empty(code, plan.blocks) if shares else None, unwritten
    report = _run_numpy(engine, recorder)
    code_counts = run_code(report)
    for executed in report.executed.values():
        executed.code = code_counts
    return report


def _grid_barrier(code: Code, space: AddressSpace, grid: Index3, block: Index3) -> int:
    """Return the address of the grid barrier's memory, or 0 for a kernel that does not synchronise its grid.

    Raises LaunchError if the grid has more threads than any GPU can run at once.
    """
    if not code.cooperative:
        return 0
    threads = math.prod((*grid, *block))
    if threads > MAX_RESIDENT:
        raise LaunchError(
            f"kernel {code.name} synchronises its grid, so all blocks must run at once: {threads} threads are more "
            "than any GPU holds: use a smaller grid, and let each thread do more."
        )
    if space.barrier is None:
        space.barrier = space.place("the grid's barrier", np.zeros(64, np.uint8), True)
    space.barrier.bytes.fill(0)
    return space.barrier.base


def _run_numpy(machine: Machine, recorder: Trace | None) -> Report:
    """Run a launch on the NumPy engine and return its report."""
    code, counters, plan = machine.code, machine.counters, machine.plan
    try:
        machine.run()
    except BudgetExceeded as stopped:
        stopped.hazards = machine.hazards.records()
        raise
    aliased = same_memory(code, code.static_shared)
    place = next((one.location for one in code.accesses if one.space == "shared"), None)
    if aliased and place is not None:
        first = machine.chunk.block_index(0), machine.chunk.thread_index(0)
        machine.hazards.add("same-memory", place, 1, *first, aliased, suspected=True)
    footprint = None
    if counters.footprints is not None:
        counted = {key: row.totals for key, row in counters.rows.items()}
        footprint = counters.footprints.footprint(counted, math.prod(machine.grid), machine.instructions)
    shares = machine.shares
    report = Outcome(
        "numpy", machine.plan, machine.space, machine.instructions, executed_of(machine.executed), counters.rows,
        counters.issued, counters.merged, counters.remote,
        {number: (*found.hottest(), returns) for number, (found, returns) in machine.contention.items()}, footprint,
        None if shares is None else shares.imbalance(machine.grid), machine.hazards.records(),
        machine.hazards.records(True), "".join(machine.output), recorder, machine.stack_bytes,
        shares is not None and shares.alike(),
    ).report()  # fmt: skip
    plan.accesses_padding = plan.accesses_padding or any(hazard.padding for hazard in report.hazards)
    return report
