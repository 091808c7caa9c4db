"""One launch: its arguments in an address space, its limits, the machine, the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.simulator.count.branches import branches
from cudabench.simulator.count.counters import executed_lines
from cudabench.simulator.count.trace import Recorder
from cudabench.simulator.errors import LaunchError
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW, Region
from cudabench.simulator.program import ptx
from cudabench.simulator.program.arguments import place_arrays, scalar_bytes
from cudabench.simulator.program.code import AccessKind, Code
from cudabench.simulator.program.program import Program, load
from cudabench.simulator.report import Access, Contended, Report
from cudabench.simulator.textures import FIRST_HANDLE, Texture

# Vector steps: each is one instruction for all lanes that run it together.
DEFAULT_BUDGET = 5_000_000
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_STATIC_SHARED = 48 * 1024
MAX_SHARED = 227 * 1024
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
    if threads > MAX_THREADS:
        raise LaunchError(
            f"a block of {block[0]} x {block[1]} x {block[2]} = {threads} threads is over the limit of {MAX_THREADS}."
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
        raise LaunchError(
            f"a block of {threads} threads is over the __launch_bounds__ of kernel {name}, which allow "
            f"{function.most_threads}: use a smaller block."
        )
    if function.needs_block is not None and block != function.needs_block:
        x, y, z = function.needs_block
        raise LaunchError(f"kernel {name} takes blocks of {x} x {y} x {z} threads and no others.")


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
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
    merged: Mapping[int, tuple[int, int]] | None = None,
) -> Report:
    """Launch a kernel and return counts, hazards and printed text.

    program: a loaded Program, or PTX text. grid, block: numbers of blocks and threads, x first, as an int or 1 to 3
    ints. arguments: one for each parameter: NumPy arrays (C-contiguous, used in place as device pointers), numbers,
    bytes for structs by value, None for a null pointer, a
    Texture for a texture or surface object. shared_bytes: dynamic shared memory of a block. names: the
    parameters' names for messages. budget, seconds: vector steps and time after which the launch is stopped.
    trace: record single accesses (small launches only). progress: called with (blocks done, blocks in all).

    merged: how loads and stores count that the machine code has otherwise, by PTX line: (bytes to add to the address,
    bytes a lane), or (PTX line of the one that does its work, 0).

    Raises LaunchError (a launch or argument no GPU would take), UnsupportedKernel (the kernel reaches what the
    simulator lacks), KernelTrap (assert, trap or a write to a read-only array), BudgetExceeded.
    """
    if isinstance(program, str):
        program = load(program)
    code = program.code(kernel)
    entry = program.kernels[kernel]
    grid3, block3 = _three(grid, "grid"), _three(block, "block")
    check_launch(grid3, block3, code.static_shared, shared_bytes)
    check_bounds(kernel, program.module.functions[kernel], block3)
    if len(arguments) != len(entry.parameters):
        raise LaunchError(f"kernel {kernel} takes {len(entry.parameters)} arguments, not {len(arguments)}.")
    titles = list(names) if names is not None else [f"argument {place}" for place in range(len(arguments))]
    if len(titles) != len(arguments):
        raise LaunchError(f"{len(titles)} names were given for {len(arguments)} arguments.")
    space = program.space()
    first_argument = len(space.slots)
    addresses = place_arrays(
        space, [(title, value) for title, value in zip(titles, arguments, strict=True) if isinstance(value, np.ndarray)]
    )
    raw = bytearray(code.parameter_bytes)
    textures: dict[int, Texture] = {}
    for title, value, parameter in zip(titles, arguments, entry.parameters, strict=True):
        if isinstance(value, Texture):
            if parameter.size != 8:
                raise LaunchError(
                    f"argument '{title}' is a texture, but the kernel's parameter has {parameter.size} bytes."
                )
            handle = FIRST_HANDLE + 16 * len(textures)
            textures[handle] = value
            piece = handle.to_bytes(8, "little")
        elif isinstance(value, np.ndarray):
            if parameter.size != 8:
                raise LaunchError(
                    f"argument '{title}' is an array, but the kernel's parameter has {parameter.size} bytes."
                )
            piece = addresses[id(value)].to_bytes(8, "little")
        else:
            piece = scalar_bytes(value, parameter, title)
        offset = code.parameter_offsets[parameter.name]
        raw[offset : offset + parameter.size] = piece
    parameters = Region("the parameters", PARAMETER_WINDOW, np.frombuffer(raw, dtype=np.uint8), False)
    recorder = None
    if trace:
        recorder = Recorder(space, first_argument, addresses, arguments)
    barrier = 0
    if code.cooperative:
        threads = int(np.prod(np.array([*grid3, *block3], dtype=object)))
        if threads > MAX_RESIDENT:
            raise LaunchError(
                f"kernel {kernel} synchronises its grid, so all blocks must run at once: {threads} threads are more "
                "than any GPU holds; let each thread do more."
            )
        barrier = space.place("the grid's barrier", np.zeros(64, np.uint8), True).base
    plan = program.plans.plan(code, grid3, block3, shared_bytes, trace)
    issued = {}
    for number, access in enumerate(code.accesses):
        if merged and access.location.ptx_line in merged:
            issued[number] = merged[access.location.ptx_line]
    machine = Machine(plan, space, parameters, budget or DEFAULT_BUDGET, recorder, progress, issued, seconds)
    machine.textures, machine.grid_barrier = textures, barrier
    machine.run()
    return Report(
        machine.instructions, _accesses(code, machine), machine.hazards.records(), "".join(machine.output),
        None if recorder is None else recorder.trace(), machine.hazards.suspicions(),
        {kernel: executed_lines(code.blocks, machine.executed)},
        branches(code, machine.executed), _contended(code, machine),
    )  # fmt: skip


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
    """Return the counts per line, space, operation and width, in the order of the source."""
    counters = machine.counters
    totals: dict[tuple[str, int, str, AccessKind, int], list[int]] = {}
    keys: dict[int, tuple[str, int, str, AccessKind, int]] = {}  # by PTX line
    away: dict[int, int] = {}  # by PTX line of the access that does the work of others: their requests
    for number, (location, space, op, size) in enumerate(code.accesses):
        other, issued = counters.issued.get(number, (0, size))
        if not issued:
            away[other] = away.get(other, 0) + counters.merged[number]
        if not counters.requests[number]:
            continue
        key = (code.files.get(location.file, ""), location.line, space, op, issued)
        keys[location.ptx_line] = key
        total = totals.setdefault(key, [0, 0, 0, 0])
        total[0] += counters.requests[number]
        total[1] += counters.pieces[number]
        total[2] += counters.ideal[number]
    for line, requests in away.items():
        if line in keys:
            totals[keys[line]][3] += requests
    found = []
    for key in sorted(totals):
        requests, pieces, ideal, merged = totals[key]
        if key[2] in ("shared", "constant"):
            found.append(Access(*key, requests, None, None, pieces, ideal, merged))
        else:
            found.append(Access(*key, requests, pieces, ideal, None, None, merged))
    return tuple(found)
