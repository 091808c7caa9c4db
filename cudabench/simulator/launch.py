"""One launch: its arguments in an address space, its limits, the machine, the report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
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
from cudabench.simulator.check.dynamic_shared import same_memory
from cudabench.simulator.check.places import Between, Declared
from cudabench.simulator.count import order
from cudabench.simulator.count.atomics import ONE_LANE
from cudabench.simulator.count.branches import branches
from cudabench.simulator.count.counters import ELSEWHERE, NOWHERE, Row
from cudabench.simulator.count.footprint import Footprint, Footprints
from cudabench.simulator.count.lines import executed_lines
from cudabench.simulator.count.shares import Shares
from cudabench.simulator.count.trace import Recorder
from cudabench.simulator.errors import BudgetExceeded, LaunchError, UnsupportedKernel
from cudabench.simulator.heap import PLACED, HeapRegion
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW, AddressSpace, Region
from cudabench.simulator.program import ptx
from cudabench.simulator.program.arguments import Rows, Struct, place_arrays, scalar_bytes
from cudabench.simulator.program.code import Code
from cudabench.simulator.program.program import Program, load
from cudabench.simulator.report import Access, Contended, Executed, PatternCount, Report, by_pattern
from cudabench.simulator.schedule import Schedule
from cudabench.simulator.tensor_maps import Mapped, TensorMap, place_map
from cudabench.simulator.textures import FIRST_HANDLE, Texture
from cudabench.simulator.values import Key
from cudabench.symbols import plain_name

# Vector steps: each is one instruction for all lanes that run it together.
DEFAULT_BUDGET = 5_000_000
NEVER = Executed()
MAX_RESIDENT = 2048 * 192  # threads that run at once: of an SM, times more SMs than any GPU has


def _three(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(parts) <= 3 or any(int(part) < 1 for part in parts):
        raise LaunchError(f"{what} {value} must be one to three numbers of at least 1.")
    return tuple(int(part) for part in (*parts, 1, 1)[:3])  # type: ignore[return-value]


def check_launch(grid: tuple[int, int, int], block: tuple[int, int, int], static: int, dynamic: int) -> None:
    """Raise LaunchError for a launch that no GPU would take (CUDA C++ Programming Guide, "Compute Capabilities")."""
    threads = block[0] * block[1] * block[2]
    for axis, value, limit in zip("xyz", block, MAX_BLOCK, strict=True):
        if value > limit:
            raise LaunchError(f"a block of {value} threads in {axis} is over the limit of {limit}.")
    if threads > MAX_THREADS_PER_BLOCK:
        raise LaunchError(
            f"a block of {block[0]} x {block[1]} x {block[2]} = {threads} threads is over the limit of "
            f"{MAX_THREADS_PER_BLOCK}."
        )
    for axis, value, limit in zip("xyz", grid, MAX_GRID, strict=True):
        if value > limit:
            raise LaunchError(f"a grid of {value} blocks in {axis} is over the limit of {limit}.")
    if static > MAX_STATIC_SHARED:
        raise LaunchError(f"{static} bytes of static shared memory are over the limit of {MAX_STATIC_SHARED}.")
    if dynamic < 0 or static + dynamic > MAX_SHARED:
        raise LaunchError(f"{static} + {dynamic} bytes of shared memory are over the limit of {MAX_SHARED}.")


def check_bounds(name: str, function: ptx.Function, block: tuple[int, int, int]) -> None:
    """Raise LaunchError for a block that the kernel's own launch bounds exclude."""
    threads = block[0] * block[1] * block[2]
    if function.most_threads is not None and threads > function.most_threads:
        raise LaunchError(over_bound(name, threads, function.most_threads))
    if function.needs_block is not None and block != function.needs_block:
        x, y, z = function.needs_block
        raise LaunchError(f"kernel {name} takes blocks of {x} x {y} x {z} threads and no others.")


def _cluster(
    kernel: str, module: ptx.Module, grid: tuple[int, int, int], asked: Sequence[int] | None
) -> tuple[int, int, int] | None:
    """Return the blocks of a cluster, None without clusters.

    Raises LaunchError for a grid that they do not divide, UnsupportedKernel for an architecture that has none.
    """
    function = module.functions[kernel]
    version = re.match(r"sm_(\d+)", module.target)
    if asked is not None and version is not None and int(version[1]) < 90:
        raise UnsupportedKernel(
            f"clusters of blocks need compute capability 9.0, and {version[0]} is older: use --device sim:sm_90."
        )
    if asked is not None and function.cluster is not None and _three(asked, "cluster") != function.cluster:
        raise LaunchError(
            f"kernel {kernel} is compiled for clusters of {' x '.join(map(str, function.cluster))} blocks: leave "
            "--cluster out."
        )
    found = function.cluster if asked is None else _three(asked, "cluster")
    if found is None:
        return None
    if found[0] * found[1] * found[2] > MAX_CLUSTER:
        raise LaunchError(f"a cluster of {found} blocks is over the limit of {MAX_CLUSTER}.")
    for axis, blocks, side in zip("xyz", grid, found, strict=True):
        if blocks % side:
            raise LaunchError(
                f"a grid of {blocks} blocks in {axis} is no multiple of kernel {kernel}'s clusters, which have {side}."
            )
    return found


def run(
    program: Program | str,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any],
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
) -> Report:
    """Launch a kernel and return counts, hazards and printed text.

    program: a loaded Program, or PTX text. grid, block: numbers of blocks and threads, x first, as an int or 1 to 3
    ints. arguments: one for each parameter: NumPy arrays (C-contiguous, used in place as device pointers), numbers,
    bytes for structs by value (a Struct where they point at arrays), Rows for pointers to an array's rows, None for a
    null pointer, a Texture for a texture or surface object, a TensorMap for a CUtensorMap by value or a pointer to one.
    cluster: blocks of a cluster, where the kernel does not say. shared_bytes: dynamic shared memory of a block. names:
    the parameters' names for messages.
    budget, seconds: vector steps and time after which the launch is stopped.
    trace: record single accesses, all (small launches only) or those of one warp, (number of the block, x first; warp).
    progress: called with (blocks done, blocks in all).

    merged: how loads and stores count that the machine code has otherwise, by PTX line: (bytes to add to the address,
    bytes a lane), or (PTX line of the one that does its work, 0); of an atomic that one lane of a warp does for all,
    (0, `count.atomics.ONE_LANE`).

    footprint: also count which memory the launch touches. sample: run about so many blocks, spread over the grid, where
    it has more; what they count is theirs, and memory is as they leave it. A kernel that synchronises its grid runs
    whole. Of a sample the warp that `trace` names is that of the first block that runs.

    beside: all arrays of several launches in one order, and first_slot: the most `program.slots` of their programs;
    with both an array has the same address in each of the launches, also where another array is no argument of all.

    declared: what the source says of a shared array, by its name, its bytes and the line of an access: the bytes of an
    element and the elements by dimension, or None; messages then name places as the source does. between: where a
    barrier can stand between two accesses, or None: see `check.places.Gap`.
    schedule: run the blocks in another order, see `schedule`.

    Raises LaunchError (a launch or argument no GPU would take), UnsupportedKernel (the kernel reaches what the
    simulator lacks), KernelTrap (assert, trap or a write to a read-only array), BudgetExceeded.
    """
    if isinstance(program, str):
        program = load(program)
    code = program.code(kernel)
    entry = program.kernels[kernel]
    grid3, block3 = _three(grid, "grid"), _three(block, "block")
    check_launch(grid3, block3, code.static_shared, shared_bytes)
    if len(arguments) != len(entry.parameters):
        raise LaunchError(f"kernel {kernel} takes {len(entry.parameters)} arguments, not {len(arguments)}.")
    titles = list(names) if names is not None else [f"argument {place}" for place in range(len(arguments))]
    if len(titles) != len(arguments):
        raise LaunchError(f"{len(titles)} names were given for {len(arguments)} arguments.")
    space = program.space()
    if first_slot:
        space.skip_to(first_slot)
    rows = [(title, v.array) for title, v in zip(titles, arguments, strict=True) if isinstance(v, Rows)]
    mapped = [
        (f"{t} of a tensor map", v.array) for t, v in zip(titles, arguments, strict=True) if isinstance(v, TensorMap)
    ]
    fetched = [(title, v.array) for title, v in zip(titles, arguments, strict=True) if isinstance(v, Texture)]
    inside = [(title, array) for value in arguments if isinstance(value, Struct) for _, title, array in value.pointers]
    addresses = place_arrays(
        space,
        [(title, value) for title, value in zip(titles, arguments, strict=True) if isinstance(value, np.ndarray)]
        + rows
        + mapped
        + fetched
        + inside,
        tuple(beside.items()) if beside else (),
    )
    maps: dict[int, Mapped] = {}
    raw = bytearray(code.parameter_bytes)
    textures: dict[int, Texture] = {}
    for title, value, parameter in zip(titles, arguments, entry.parameters, strict=True):
        if isinstance(value, Texture):
            if parameter.size != 8:
                raise LaunchError(
                    f"argument '{title}' is a texture or surface, but the kernel's parameter has {parameter.size} "
                    "bytes."
                )
            handle = FIRST_HANDLE + 16 * len(textures)
            textures[handle] = replace(value, name=title, base=addresses[id(value.array)])
            piece = handle.to_bytes(8, "little")
        elif isinstance(value, TensorMap):
            piece = place_map(space, value, addresses[id(value.array)], parameter.size, maps, title)
        elif isinstance(value, Rows):
            if parameter.size != 8:
                raise LaunchError(
                    f"argument '{title}' is an array of pointers, but the kernel's parameter has {parameter.size} "
                    "bytes."
                )
            table = value.table(addresses[id(value.array)])
            piece = space.place(f"the pointers to the rows of {title}", table, False).base.to_bytes(8, "little")
        elif isinstance(value, np.ndarray):
            if parameter.size != 8:
                raise LaunchError(
                    f"argument '{title}' is an array, but the kernel's parameter has {parameter.size} bytes."
                )
            piece = addresses[id(value)].to_bytes(8, "little")
        else:
            value = value.pointing(addresses) if isinstance(value, Struct) else value
            piece = scalar_bytes(value, parameter, title)
        offset = code.parameter_offsets[parameter.name]
        raw[offset : offset + parameter.size] = piece
    recorder = None
    if trace:
        recorder = Recorder(space, addresses, arguments, trace if isinstance(trace, tuple) else None)
    placed = Placed(space, bytes(raw), textures, maps)
    return run_placed(
        program, kernel, grid3, block3, placed, shared_bytes=shared_bytes, budget=budget, seconds=seconds,
        recorder=recorder, progress=progress, merged=merged, footprint=footprint, sample=sample, cluster=cluster,
        declared=declared, between=between, schedule=schedule,
    )  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """The arguments of a launch as its kernel finds them: the address space with all arrays, the bytes of the
    parameters, and what their handles of textures and tensor maps stand for."""

    space: AddressSpace
    parameters: bytes
    textures: dict[int, Texture] = field(default_factory=dict)
    maps: dict[int, Mapped] = field(default_factory=dict)


def run_placed(
    program: Program,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    placed: Placed,
    *,
    shared_bytes: int = 0,
    budget: int | None = None,
    seconds: float | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[int, int], None] | None = None,
    merged: Mapping[int, tuple[int, int]] | None = None,
    footprint: bool = False,
    sample: int | None = None,
    cluster: Sequence[int] | None = None,
    declared: Declared | None = None,
    between: Between | None = None,
    schedule: str | None = None,
) -> Report:
    """Launch a kernel whose arguments lie in an address space already, as `run` does otherwise."""
    code, space = program.code(kernel), placed.space
    check_launch(grid, block, code.static_shared, shared_bytes)
    check_bounds(kernel, program.module.functions[kernel], block)
    together = _cluster(kernel, program.module, grid, cluster)
    parameters = Region("the parameters", PARAMETER_WINDOW, np.frombuffer(placed.parameters, dtype=np.uint8), False)
    barrier = 0
    if code.cooperative:
        threads = int(np.prod(np.array([*grid, *block], dtype=object)))
        if threads > MAX_RESIDENT:
            raise LaunchError(
                f"kernel {kernel} synchronises its grid, so all blocks must run at once: {threads} threads are more "
                "than any GPU holds; let each thread do more."
            )
        barrier = space.place("the grid's barrier", np.zeros(64, np.uint8), True).base
    order_of_blocks = None if schedule is None else Schedule.of(schedule)
    whole = recorder is not None and recorder.watch is None
    plan = program.plans.plan(code, grid, block, shared_bytes, whole, sample, together, order_of_blocks)
    if recorder is not None and recorder.watch is not None and sample is not None:
        x, y, z = plan.chunks[0][0]  # the block that is asked for may not be in the sample
        recorder.watch = (x + grid[0] * (y + grid[1] * z), recorder.watch[1])
    issued = {}
    for number, access in enumerate(code.accesses):
        if merged and access.location.ptx_line in merged:
            issued[number] = merged[access.location.ptx_line]
    machine = Machine(
        plan,
        space,
        parameters,
        budget or DEFAULT_BUDGET,
        recorder,
        progress,
        issued,
        seconds,
        placed.textures,
        declared,
        between,
    )
    machine.grid_barrier, machine.tensor_maps = barrier, placed.maps
    if footprint:
        machine.counters.footprints = Footprints(space, code.accesses, plan.blocks)
    if plan.blocks == math.prod(grid) and Shares.fit(code, plan.blocks):
        machine.shares = Shares(code, plan.blocks)
    try:
        machine.run()
    except BudgetExceeded as stopped:
        stopped.hazards = machine.hazards.records()
        raise
    aliased = same_memory(code, code.static_shared)
    if aliased:
        place = next((one.location for one in code.accesses if one.space == "shared"), None)
        if place is not None:
            machine.hazards.same_memory(place, machine.chunk, aliased)
    executed = [
        Executed(warps, lanes, taken, parted, 0, 0, taking) if warps else NEVER
        for warps, lanes, taken, parted, taking in machine.executed
    ]
    return Report(
        machine.instructions, _accesses(code, machine), machine.hazards.records(), "".join(machine.output),
        None if recorder is None else recorder.trace(_shared_variables(code, machine)), machine.hazards.suspicions(),
        {kernel: executed_lines(code.blocks, plan.layout, executed, _turns(code, machine), machine.detours)},
        branches(code, executed, plan), _contended(code, machine), _footprint(machine),
        None if machine.shares is None else machine.shares.imbalance(grid),
    )  # fmt: skip


def _turns(code: Code, machine: Machine) -> dict[int, list[int]]:
    """Return by PTX line how often warps went through the loops of atomics, and with how many lanes."""
    found: dict[int, list[int]] = {}
    for number, (turns, waiting) in machine.counters.turns.items():
        line = found.setdefault(code.accesses[number].location.ptx_line, [0, 0])
        line[0] += turns
        line[1] += waiting
    return found


def _footprint(machine: Machine) -> Footprint | None:
    """Return which memory the launch touched, where somebody asked for it."""
    footprints = machine.counters.footprints
    if footprints is None:
        return None
    counted: dict[tuple[int, object], tuple[int, int]] = {}
    for key, row in machine.counters.rows.items():
        requests, pieces = (sum(look[place] for look in row.looks.values()) for place in (0, 1))
        counted[key] = requests, pieces
    return footprints.footprint(counted, machine.grid[0] * machine.grid[1] * machine.grid[2], machine.instructions)


def _contended(code: Code, machine: Machine) -> tuple[Contended, ...]:
    """Return how often the atomics on global memory met."""
    found = []
    for number, (contention, returns) in sorted(machine.contention.items()):
        location = code.accesses[number].location
        found.append(
            Contended(
                code.files.get(location.file, ""), location.line, location.ptx_line, returns,
                *contention.hottest(),
            )
        )  # fmt: skip
    return tuple(found)


def _accesses(code: Code, machine: Machine) -> tuple[Access, ...]:
    """Return the counts per instruction and array, in the order of the source."""
    found: dict[tuple[Any, ...], Access] = {}
    told = machine.plan.told
    for place, row in machine.counters.rows.items():
        state = _state(machine, row)
        before = None if state is None else told.get(place)
        if before is not None and before[0] == state:
            _, access, key = before
        else:
            access = _told(code, machine, row)
            key = access.key
            if state is not None:
                told[place] = state, access, key
        have = found.get(key)  # of another copy of an inlined function
        found[key] = access if have is None else have.plus(access)
    for number, (line, issued) in machine.counters.issued.items():
        away = machine.counters.merged[number]
        if not away or issued:
            continue
        leader = next((key for key, access in found.items() if access.instruction == line), None)
        if leader:
            found[leader] = found[leader]._replace(merged=found[leader].merged + away)
    return tuple(access for _, access in sorted(found.items(), key=itemgetter(0)))


def _told(code: Code, machine: Machine, row: Row) -> Access:
    """Return the record of what one instruction did to one array, with why hardware may count otherwise."""
    access = _access(code, machine, row)
    reason = machine.plan.undecided.get(access.instruction) or (order.TURNS if access.reloads else None)
    reason = reason or (ELSEWHERE if row.number in machine.counters.elsewhere else None)
    reason = reason or (PLACED if _on_heap(machine, row) else None)
    access = access if reason is None else access._replace(inexact=reason)
    if any(look.pattern.kind == "gather" for look in row.looks):
        access = access._replace(by_data=access.instruction in machine.plan.led_by_data)
    return access


def _state(machine: Machine, row: Row) -> Key | None:
    """Return all that the record of one instruction on one array depends on; None where it is not looked up."""
    space = machine.plan.code.accesses[row.number].space
    if space not in ("shared", "local") or row.number in machine.counters.elsewhere:
        return None  # an array of its own by launch
    issued = machine.counters.issued.get(row.number)
    looks = tuple([(look, *counts) for look, counts in row.looks.items()])
    return looks, row.first, row.step, row.reloads, issued


def _on_heap(machine: Machine, row: Row) -> bool:
    """Return whether lanes went to what malloc gave."""
    if machine.plan.code.accesses[row.number].space != "global":
        return False
    slots = row.array if isinstance(row.array, tuple) else (row.array,)
    return any(slot != NOWHERE and isinstance(machine.space.slots[slot], HeapRegion) for slot in slots)


def _shared_variables(code: Code, machine: Machine) -> tuple[tuple[str, int, int], ...]:
    """Return name, offset and bytes of the variables in shared memory."""
    return tuple(
        (plain_name(name), start, nbytes or machine.shared_size - start) for name, start, nbytes in code.shared_names
    )


def _access(code: Code, machine: Machine, row: Row) -> Access:
    """Return the record of what one instruction did to one array."""
    location, space, op, size, what = code.accesses[row.number]
    issued = machine.counters.issued.get(row.number, (0, size))[1]
    size = size if issued == ONE_LANE else issued
    patterns = by_pattern([PatternCount(look.pattern, r, p, i, look.example) for look, (r, p, i) in row.looks.items()])
    _, requests, pieces, ideal, _ = patterns[0]
    for each in patterns[1:]:
        requests, pieces, ideal = requests + each.requests, pieces + each.pieces, ideal + each.ideal
    array, nbytes, start = None, 0, 0
    if row.array == NOWHERE:
        pass
    elif space == "shared" and code.shared_names:
        assert isinstance(row.array, int)
        name, start, nbytes = code.shared_names[row.array]
        array, nbytes = plain_name(name), nbytes or machine.shared_size - start
    elif space in ("global", "constant"):
        slots = row.array if isinstance(row.array, tuple) else (row.array,)
        regions = [machine.space.slots[slot] for slot in slots]
        array, nbytes, start = plain_name(regions[0].name), regions[0].size, regions[0].base
        if len(regions) > 1:
            array = ", ".join(plain_name(region.name) for region in regions)
    first = row.first
    if first is None:
        least = next(iter(row.looks)).least
        first = start if least is None else least
    shared = space in ("shared", "constant")
    return Access(
        code.files.get(location.file, ""), location.line, space, op, size, requests,
        None if shared else pieces, None if shared else ideal, pieces if shared else None, ideal if shared else None,
        kernel=code.name, column=location.column, instruction=location.ptx_line,
        array=array, array_bytes=nbytes, start=start, patterns=patterns, first=first, step=row.step, what=what,
        reloads=row.reloads, aggregated=issued == ONE_LANE,
    )  # fmt: skip
