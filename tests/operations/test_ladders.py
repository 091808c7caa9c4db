"""Every kernel of every operation, at awkward sizes, blocks, grids and types: right, or refused with the reason.

The lists come from the registry, so a new kernel or operation is tested as soon as it is registered. Each operation has
a mark of its name: `pytest -m transpose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench import operations
from cudabench.ceilings import benchmark
from cudabench.errors import BlockDoesNotFit, UsageError
from cudabench.measure import verify
from cudabench.plan import chapters
from cudabench.source.records import Kernel
from tests import ladders
from tests.conftest import Ran
from tests.ladders import (
    BLOCKS,
    GRIDS,
    NAMES,
    RUNGS,
    TYPED_SIZES,
    build,
    needs_compiler,
    problem,
)

Block = tuple[int, ...] | None


def blocks(name: str) -> list[tuple[int, ...]]:
    """Return the awkward blocks of an operation."""
    return BLOCKS[operations.get(name).block_dimensions]


def turn(name: str, kernel: str, of: Sequence[Any], count: int = 1) -> list[Any]:
    """Return the kernel's share of a list; neighbours in the ladder get the next items, so that all items are used."""
    at = count * RUNGS.index((name, kernel))
    return [of[(at + step) % len(of)] for step in range(min(count, len(of)))]


def right_or_refused(name: str, kernel: str, block: Block, sizes: list[tuple[int, ...]]) -> list[str]:
    """Return what is wrong with a kernel; a block that it refuses at every size is not wrong."""
    wrong, refused = [], 0
    for size in sizes:
        try:
            wrong += ladders.simulated(name, kernel, size=size, block=block, seed=sum(size))
        except UsageError as error:
            if block is None or not str(error).startswith(f"{kernel} cannot take --block "):
                wrong.append(f"{kernel} {size}: {error}")
            refused += 1
    if 0 < refused < len(sizes):
        wrong.append(f"{kernel} takes the block {block} at some sizes and refuses it at others")
    return wrong


# The registry against the chapters -----------------------------------------------------------------------------------


@pytest.mark.sampled(36)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "solve" else ()) for name in NAMES]
)
def test_ladder_matches_chapter(name: str) -> None:
    """The rungs are exactly the chapter's functions, in the same order, each with a comment above it."""
    operation = operations.get(name)
    functions: dict[str, Kernel] = {}
    for file in chapters.names(operation):
        ladder = [kernel.function for kernel in operation.kernels if (kernel.chapter or operation.source) == file]
        own = chapters.functions(file)
        assert [function for function in own if function in ladder] == ladder
        assert [function for function in ladder if not own[function].comment] == []
        functions |= own
    launched = {
        launch.function.partition("<")[0]
        for dtype in operation.dtypes
        for size in [*ladders.SIZES[len(operation.dimensions)], operation.default_size]
        for case in build(name, size=size, dtype=dtype)[1]
        for launch in case.launches
    }
    assert launched == {*functions}


def test_a_chapter_is_of_one_sitting() -> None:
    """No chapter or header has more than 500 lines, and each is used by an operation or by the ceilings."""
    files = [path for path in chapters.folder().iterdir() if path.suffix in (".cu", ".cuh")]
    assert {path.name: len(path.read_text().splitlines()) for path in files if path.read_text().count("\n") > 500} == {}
    read = {file for name in NAMES for file in chapters.names(operations.get(name))} | {benchmark.FILE}
    headers = {name for file in read for name in chapters.headers(chapters.read_chapter(file))}
    assert {path.name for path in files} == read | headers


@pytest.mark.parametrize("name", NAMES)
def test_names_are_unique(name: str) -> None:
    """Names and functions of an operation's kernels are unique, and no name looks like an id or a glob."""
    kernels = operations.get(name).kernels
    assert len({kernel.name for kernel in kernels}) == len({kernel.function for kernel in kernels}) == len(kernels)
    assert [kernel.name for kernel in kernels if kernel.name.isdigit() or set(kernel.name) & set("*?[")] == []


# In the simulator ----------------------------------------------------------------------------------------------------


LONG = (
    *(f"matmul-{kernel}" for kernel in (
        "half", "sliced", "tensor", "tensor-split", "tma", "tma-split", "warp-tile", "wgmma", "wgmma-split",
    )),
    "blur-vector", "solve-blocked", "solve-cluster", "solve-fused", "solve-lower",
)  # fmt: skip


def slow_of(*rungs: str) -> list[Any]:
    """Return all rungs as parameters, some of them slow."""
    return [
        pytest.param(name, kernel, marks=pytest.mark.slow if f"{name}-{kernel}" in rungs else ())
        for name, kernel in RUNGS
    ]


@pytest.mark.sampled(360)
@needs_compiler
@pytest.mark.parametrize(("name", "kernel"), slow_of(*LONG, "blur-pairs"))
def test_ragged_sizes_and_one_element(name: str, kernel: str) -> None:
    """A kernel with its default block is right and free of hazards, also when it runs again on the same memory."""
    one, *_, largest = ladders.quick_sizes(name, kernel)
    assert ladders.repeated(name, kernel, size=one, runs=1, seed=sum(one)) == []
    assert ladders.repeated(name, kernel, size=largest, runs=2, seed=sum(largest)) == []


@pytest.mark.slow
@pytest.mark.sampled(224)
@needs_compiler
@pytest.mark.parametrize(
    ("name", "kernel"),
    slow_of(
        *LONG, "blur-strip", "matmul-double-buffer", "matmul-tma-pair", "matmul-vector", "transpose-ragged",
        "transpose-vector",
    ),
)  # fmt: skip
def test_an_awkward_block_and_a_type(name: str, kernel: str) -> None:
    """A kernel is right with the most awkward block that it takes; the element types alternate along the ladder."""
    operation = operations.get(name)
    types = next(one for one in operation.kernels if one.name == kernel).dtypes or tuple(operation.dtypes)
    (dtype,) = turn(name, kernel, types)
    block = next(iter(ladders.taken(name, kernel, blocks(name), dtype)), None)
    size = ladders.quick_sizes(name, kernel)[-1]
    assert ladders.simulated(name, kernel, size=size, block=block, dtype=dtype) == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), RUNGS)
def test_every_size(name: str, kernel: str) -> None:
    """A kernel with its default block is right and free of hazards at every size."""
    assert right_or_refused(name, kernel, None, ladders.sizes(name)) == []


@needs_compiler
@pytest.mark.slow
def test_default_ladders(cudabench: Callable[..., Ran]) -> None:
    """Without options, all kernels of each operation are right and have no hazards in the simulator."""
    for name in NAMES:
        ran = cudabench(name, "--device", "sim", "--no-cpu", "--quiet")
        assert ran.code == 0, ran.out + ran.err


@st.composite
def drawn_sizes(draw: st.DrawFn, name: str) -> tuple[int, ...]:
    """Draw a size: each side is any number, or a multiple of a tile side, or a neighbour of one."""
    most = ladders.MOST[len(operations.get(name).default_size)] if name != "solve" else (ladders.MOST_UNKNOWNS,)
    sides = []
    for largest in most:
        tiles = st.sampled_from([side for side in ladders.SIDES if side <= largest])
        near = st.builds(
            lambda side, times, beside: side * times + beside, tiles, st.integers(1, 4), st.sampled_from((0, 0, -1, 1))
        )
        sides.append(draw(near.filter(lambda side, largest=largest: 0 < side <= largest) | st.integers(1, largest)))
    return tuple(sides)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), RUNGS)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_drawn_sizes(name: str, kernel: str, data: st.DataObject) -> None:
    """A kernel is right and free of hazards at sizes at or next to multiples of its tiles, in each of its types."""
    operation = operations.get(name)
    types = next(one for one in operation.kernels if one.name == kernel).dtypes or tuple(operation.dtypes)
    size, dtype = data.draw(drawn_sizes(name)), data.draw(st.sampled_from(tuple(types)))
    assert ladders.simulated(name, kernel, size=size, dtype=dtype) == []


MORE_BLOCKS = 2  # per kernel here; a GPU runs all blocks


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), RUNGS)
def test_more_blocks(name: str, kernel: str) -> None:
    """A kernel is right with other blocks, such as single threads and columns or rows of a thousand, or refuses
    them."""
    sizes = ladders.quick_sizes(name, kernel)
    for block in turn(name, kernel, blocks(name), MORE_BLOCKS):
        assert right_or_refused(name, kernel, block, turn(name, kernel, sizes)) == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kernel", "dtype"),
    [(name, kernel, dtype) for name, kernel in RUNGS for dtype in list(operations.get(name).dtypes)[1:]],
)
def test_every_type(name: str, kernel: str, dtype: str) -> None:
    """A kernel is right for every element type, with rows aligned to 16 bytes or not, or the error lists its types."""
    sizes = ladders.feasible(name, TYPED_SIZES[len(operations.get(name).dimensions)])
    for size in turn(name, kernel, sizes):
        try:
            assert ladders.simulated(name, kernel, size=size, dtype=dtype) == []
        except UsageError as error:
            assert f"{kernel} has no {dtype} form: use " in str(error)  # noqa: PT017


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), RUNGS)
def test_any_grid_twice(name: str, kernel: str) -> None:
    """A kernel is right with every grid that it does not refuse, also when it runs again on the same memory."""
    size = ladders.quick_sizes(name, kernel)[-1]
    for grid in GRIDS[operations.get(name).block_dimensions]:
        try:
            assert ladders.repeated(name, kernel, size=size, grid=grid, runs=2) == []
        except UsageError as error:
            assert "cannot cover" in str(error)  # noqa: PT017


ARCHITECTURES = ("sm_75", "sm_120", "sm_80", "sm_100")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), RUNGS)
def test_other_architectures(name: str, kernel: str) -> None:
    """A kernel compiled for another architecture is right, or is refused because that architecture lacks an instruction
    or shared memory."""
    size = ladders.quick_sizes(name, kernel)[-1]
    for architecture in turn(name, kernel, ARCHITECTURES):
        try:
            wrong = ladders.simulated(name, kernel, size=size, architecture=architecture, assembled=True)
        except BlockDoesNotFit:  # a block takes more shared memory than that architecture has
            continue
        assert [text for text in wrong if f": skipped, {kernel} needs a GPU of compute capability" not in text] == []


# Inputs and baseline -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_inputs_follow_the_seed(name: str) -> None:
    """The same seed gives the same inputs, another seed gives others; each buffer that is read has an input."""
    operation = operations.get(name)
    size = ladders.sizes(name)[2]
    first, again, other = (operation.inputs(problem(name, *size, seed=seed)) for seed in (1, 1, 2))
    read = {buffer.name: buffer for buffer in operation.buffers(problem(name, *size)) if buffer.role == "in"}
    assert {key: first[key].shape for key in read} == {key: buffer.shape for key, buffer in read.items()}
    for key in first:
        assert np.array_equal(first[key], again[key], equal_nan=first[key].dtype.kind == "f")
    assert [key for key in read if np.array_equal(first[key], other[key])] == []


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_baseline_agrees_with_the_reference(name: str, threads: int) -> None:
    """The CPU baseline agrees with the reference, for any number of threads."""
    operation = operations.get(name)
    for size in ladders.sizes(name):
        at = problem(name, *size)
        arrays = operation.inputs(at)
        outputs = {b.name: np.full(b.shape, 77, b.dtype) for b in operation.buffers(at) if b.role == "out"}
        operation.baseline.run(arrays, outputs, threads)
        expected = operation.reference(at, arrays)
        found = verify.compare_all(expected, outputs, operation.tolerance(at), checked="before")
        assert found.mismatches == 0, (size, found.first)


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu() -> Iterator[Callable[..., list[str]]]:
    """Return a function like `on_gpu` that uses one context for all tests."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        yield lambda name, **request: ladders.on_gpu(device, name, **request)


def gpu_faults(gpu: Callable[..., list[str]], name: str, **request: Any) -> list[str]:
    """Return what is wrong with an operation's kernels at awkward sizes and at large sizes."""
    dimensions = len(operations.get(name).dimensions)
    sizes = [*ladders.SIZES[dimensions], *TYPED_SIZES[dimensions], *ladders.LARGE_SIZES[dimensions]]
    feasible = ladders.feasible(name, sizes, ladders.MOST_WORK_OF_A_GPU)
    return [fault for size in feasible for fault in gpu(name, size=size, seed=sum(size), **request)]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "block"), [(name, block) for name in NAMES for block in [None, *blocks(name)]], ids=ladders.ids
)
def test_blocks_on_a_gpu(gpu: Callable[..., list[str]], name: str, block: Block) -> None:
    """On a GPU every kernel that takes the block is right, twice on the same memory."""
    assert gpu_faults(gpu, name, block=block) == []


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in NAMES for dtype in list(operations.get(name).dtypes)[1:]]
)
def test_types_on_a_gpu(gpu: Callable[..., list[str]], name: str, dtype: str) -> None:
    """On a GPU every kernel is right for every element type, twice on the same memory."""
    assert gpu_faults(gpu, name, dtype=dtype) == []
