"""Shared functions of the ladder tests: awkward problems, and checks of a kernel's results.

Everything follows the registry: an operation, kernel or element type is tested as soon as it is registered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cudabench import operations
from cudabench.compile import compiler
from cudabench.compile.compiler import nvrtc_version
from cudabench.compile.record import Resources
from cudabench.devices.sim import Loaded, SimDevice, poisoned_array
from cudabench.errors import OutOfMemory, UsageError
from cudabench.measure import verify
from cudabench.measure.context import constants_of
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.occupancy import Occupancy, occupancy
from cudabench.plan import cases
from cudabench.plan.cases import Request
from cudabench.records.launch import dim_text
from cudabench.records.plan import Case, Operation, Problem, Settings
from cudabench.simulator.api import load

needs_compiler = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

NAMES = tuple(operations.SUMMARIES)
RUNGS = [(name, kernel.name) for name in NAMES for kernel in operations.get(name).kernels]

# By number of dimensions: one element, ragged, not square, long and thin, larger than any block.
SIZES: dict[int, list[tuple[int, ...]]] = {
    1: [(1,), (13,), (31,), (33,), (127,), (4099,)],
    2: [(1, 1), (1, 127), (127, 1), (31, 33), (62, 76), (300, 8), (3, 4100), (33, 1003)],
    3: [(1, 1, 1), (1, 127, 1), (31, 33, 35), (33, 31, 127), (200, 3, 68), (127, 65, 129)],
}
# For every element type: rows that are aligned to 16 bytes and rows that are not.
TYPED_SIZES: dict[int, list[tuple[int, ...]]] = {
    1: [(33,), (4096,), (4099,)],
    2: [(33, 127), (40, 128), (35, 132)],
    3: [(31, 33, 35), (65, 33, 68)],
}
# The largest sides of random sizes, by number of dimensions, and the largest linear system.
MOST: dict[int, tuple[int, ...]] = {1: (70_000,), 2: (150, 600), 3: (150, 150, 150)}
MOST_UNKNOWNS = 90
# Tile sides of the kernels: powers of two, and smaller ones for tiles with a halo of a lane or a row.
SIDES = (1, 2, 4, 8, 12, 16, 24, 28, 30, 31, 32, 56, 60, 62, 64, 96, 112, 120, 124, 128, 224, 240, 248, 256, 480, 496)
LARGE_SIZES: dict[int, list[tuple[int, ...]]] = {1: [(1_000_003,)], 2: [(257, 1001)], 3: [(300, 999, 260)]}
BLOCKS: dict[int, list[tuple[int, ...]]] = {
    1: [(33,), (1024,), (1,), (31,), (32,), (96,)],
    2: [(7, 3), (32, 32), (1, 1), (33, 5), (8, 32), (16, 16), (1024, 1), (1, 1024)],
}
GRIDS: dict[int, list[tuple[int, ...]]] = {1: [(1,), (7,)], 2: [(1, 1), (2, 3)]}

MOST_WORK = 2**23  # arithmetic operations of one simulator test
MOST_WORK_OF_A_GPU = 2**32
QUICK_WORK, QUICK_LAUNCHES = 2**20, 64  # limits of a test that is not slow


def build(name: str, *kernels: str, **request: Any) -> tuple[Operation, list[Case]]:
    """Return an operation and the cases of a request, with default options; a kernel that lacks the default type gets
    its first type."""
    operation = operations.get(name)
    if len(kernels) == 1 and request.get("dtype") is None:
        own = next((kernel.dtypes for kernel in operation.kernels if kernel.name == kernels[0]), None)
        if own and next(iter(operation.dtypes)) not in own:
            request["dtype"] = own[0]
    return operation, cases.build(operation, asked(operation, kernels=kernels, **request))


def asked(operation: Operation, **request: Any) -> Request:
    """Return a request with default options unless given."""
    defaults = {option.name: option.default for option in operation.options}
    request["options"] = defaults | request.get("options", {})
    return Request(**request)


def problem(name: str, *size: int, dtype: str | None = None, seed: int = 3, **options: Any) -> Problem:
    """Return a problem as a request creates it."""
    operation = operations.get(name)
    return cases.problem_of(operation, asked(operation, size=size, dtype=dtype, seed=seed, options=options))


def feasible(name: str, wanted: Sequence[tuple[int, ...]], most_work: int = MOST_WORK) -> list[tuple[int, ...]]:
    """Return the sizes whose arithmetic takes seconds; 4099 equations, for example, would take minutes."""
    operation = operations.get(name)
    if operation.flops is None:
        return list(wanted)
    found = []
    for size in wanted:
        with suppress(OutOfMemory):
            if operation.flops(problem(name, *size)) <= most_work:
                found.append(size)
    return found


def sizes(name: str) -> list[tuple[int, ...]]:
    """Return the awkward sizes of an operation."""
    return feasible(name, SIZES[len(operations.get(name).dimensions)])


@cache
def quick_sizes(name: str, kernel: str) -> list[tuple[int, ...]]:
    """Return the awkward sizes that a kernel computes quickly."""
    few = feasible(name, sizes(name), QUICK_WORK)
    return [size for size in few if len(build(name, kernel, size=size)[1][0].launches) <= QUICK_LAUNCHES]


def taken(name: str, kernel: str, blocks: Sequence[tuple[int, ...]], dtype: str) -> list[tuple[int, ...]]:
    """Return the blocks that a kernel accepts for an element type."""
    found = []
    for block in blocks:
        with suppress(UsageError):
            build(name, kernel, size=quick_sizes(name, kernel)[-1], block=block, dtype=dtype)
            found.append(block)
    return found


# Checks --------------------------------------------------------------------------------------------------------------


class Unassembled(SimDevice):
    """A simulated GPU that runs PTX without machine code, because ptxas takes half of the compile time. The launch
    refuses what ptxas would refuse: too much shared memory."""

    def _load(self, case: Case, functions: Sequence[str], names: Sequence[str]) -> Loaded:
        source, folders = case.source, case.source.folders
        record = compiler.compile_ptx(
            source.text, source.name, arch=self.architecture, defines=case.defines, include_dirs=folders, names=names
        )
        return Loaded(record, load(record.ptx))

    def resources_of(self, case: Case) -> tuple[Resources, Occupancy]:
        """Return plausible resources."""
        return Resources(32), occupancy(self.architecture, case.threads, 32, 0)


@cache
def simulator(architecture: str = "sm_90", assembled: bool = True) -> SimDevice:
    """Return the simulated device that all tests share, since it caches compiled code."""
    return SimDevice(architecture) if assembled else Unassembled(architecture)


def simulated(
    name: str,
    *kernels: str,
    architecture: str = "sm_90",
    disassemble: bool = False,
    assembled: bool = False,
    **request: Any,
) -> list[str]:
    """Run kernels in the simulator like `cudabench`, and return what is wrong with them, hazards included.

    Machine code does not affect that and takes most of the time. So it is read only with `disassemble`, and made only
    with that or `assembled`.
    """
    operation, ladder = build(name, *kernels, **request)
    device = simulator(architecture, assembled or disassemble)
    run = SimulatedRun(operation, ladder[0].problem, Settings(cpu=False, timeout=600), device, disassemble=disassemble)
    results = [run.measure(case) for case in ladder if not case.skip_reason]
    return [
        f"{found.kernel} {dict(found.size)} {found.dtype}, block {dim_text(found.block)}, "
        f"grid {dim_text(found.grid)}: {found.status}, {found.reason}"
        for found in results
        if found.status != "ok"
    ]


def repeated(name: str, *kernels: str, runs: int = 2, **request: Any) -> list[str]:
    """Run kernels in the simulator several times on the same memory, and return what is wrong in any run."""
    operation, ladder = build(name, *kernels, **request)
    wrong = []
    for case in (case for case in ladder if not case.skip_reason):
        inputs = operation.inputs(case.problem)
        arrays = {
            b.name: inputs[b.name].copy() if b.role == "in" else poisoned_array(b.shape, b.dtype)
            for b in operation.buffers(case.problem)
        }
        expected = operation.right(case.expects, case.problem, inputs)
        held = replace(case, constants=constants_of(operation, inputs))
        for run in range(1, runs + 1):
            report = simulator(assembled=False).run(held, arrays, trace=False, progress=lambda fraction: None).report
            wrong += [f"{case.kernel}, run {run}: {hazard.kind}, {hazard.message}" for hazard in report.hazards]
            wrong += [f"{text}, run {run}" for text in mismatches(operation, case, expected, arrays)]
            for buffer in operation.buffers(case.problem):
                if buffer.role == "out":
                    arrays[buffer.name][...] = poisoned_array(buffer.shape, buffer.dtype)
    return wrong


def on_gpu(device: Any, name: str, *kernels: str, runs: int = 2, **request: Any) -> list[str]:
    """Run kernels on a GPU several times on the same memory, and return what is wrong in any run."""
    operation, ladder = build(name, *kernels, **request)
    wrong = []
    for case in (case for case in ladder if not case.skip_reason):
        module = device.load(case.source, case.defines)
        if case.threads > (module.resources(case.function).max_threads or 0):
            continue  # which the tool refuses, by the registers that this compiler gave the kernel
        inputs = operation.inputs(case.problem)
        expected = operation.right(case.expects, case.problem, inputs)
        buffers = operation.buffers(case.problem)
        pointers = {}
        for buffer in buffers:
            pointers[buffer.name] = device.allocate(buffer.nbytes)
            if buffer.role == "in":
                device.upload(pointers[buffer.name], inputs[buffer.name])
            else:
                device.fill(pointers[buffer.name], buffer.nbytes, 0xFF)()
        for variable, content in constants_of(operation, inputs).items():
            module.set_constant(variable, content)
        work = device.bind(module, case.launches, pointers)
        outputs = {b.name: np.empty(b.shape, b.dtype) for b in buffers if b.role == "out"}
        for run in range(1, runs + 1):
            device.run(work, case.kernel)
            for output, array in outputs.items():
                device.download(pointers[output], array)
                device.fill(pointers[output], array.nbytes, 0xFF)()
            wrong += [f"{text}, run {run}" for text in mismatches(operation, case, expected, outputs)]
        for pointer in pointers.values():
            device.release(pointer)
    return wrong


def mismatches(
    operation: Operation, case: Case, expected: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> Iterator[str]:
    """Yield a message if a case's outputs are wrong."""
    tolerance = operation.tolerated(case.expects, case.problem)
    found = verify.compare_all(expected, {name: arrays[name] for name in expected}, tolerance, checked="simulated")
    if found.mismatches:
        where = f"{case.kernel} {dict(case.problem.size)} {case.problem.dtype}, block {dim_text(case.block)}"
        yield f"{where}: {found.mismatches} wrong, first {found.first}"


def ids(value: object) -> str:
    """Return a parameter's text in a test name: 32x8 for a block, default for None."""
    return "default" if value is None else "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
