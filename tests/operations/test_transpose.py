"""transpose: the counted memory accesses of its kernels are those of the textbook."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.compile.compiler import compile_ptx
from cudabench.errors import CudabenchError
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.records.plan import Settings
from cudabench.records.results import Result
from tests.ladders import build, needs_compiler, simulated, simulator

pytestmark = [pytest.mark.transpose, needs_compiler]


def counted(kernel: str, block: tuple[int, int], size: tuple[int, int] = (256, 256), dtype: str = "float32") -> Result:
    """Return a kernel's simulated result."""
    operation, (case,) = build("transpose", kernel, size=size, block=block, dtype=dtype)
    return SimulatedRun(operation, case.problem, Settings(cpu=False), simulator()).measure(case)


def per_request(result: Result, space: str, op: str) -> float:
    """Return the mean number of sectors or wavefronts per request."""
    rows = [a for a in result.access or () if (a.space, a.op) == (space, op)]
    total = sum((a.wavefronts if space == "shared" else a.sectors) or 0 for a in rows)
    return total / sum(a.requests for a in rows)


def read_by(kernel: str, size: tuple[int, int], dtype: str) -> Counter[str]:
    """Return how often each form of global load instruction is in a kernel's PTX."""
    _, (case,) = build("transpose", kernel, size=size, dtype=dtype)
    source = case.source
    ptx = compile_ptx(
        source.text, source.name, defines=case.defines, names=[case.function], include_dirs=source.folders
    ).ptx
    return Counter(re.findall(r"\bld\.global(?:\.nc)?([.\w:]*)", ptx))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("kernel", "block", "load", "store"),
    [
        ("copy-row", (32, 8), 4, 4),
        ("naive-row", (32, 32), 4, 32),
        ("naive-row", (32, 8), 4, 32),
        ("naive-row", (16, 16), 4, 16),
        ("naive-row", (8, 8), 4, 8),
        ("naive-row", (8, 32), 4, 8),
        ("naive-col", (32, 8), 32, 4),
        ("smem", (32, 32), 4, 4),
        ("smem-pad", (32, 8), 4, 4),
        pytest.param("vector", (32, 8), 16, 16, marks=pytest.mark.slow),
    ],
)
def test_sectors_of_the_textbook(kernel: str, block: tuple[int, int], load: float, store: float) -> None:
    """The sectors per request follow from the access patterns, and equal those counted on an H200."""
    result = counted(kernel, block)
    assert (per_request(result, "global", "load"), per_request(result, "global", "store")) == (load, store)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kernel", "block", "load"),
    [
        ("smem", (32, 32), 32),
        ("smem", (32, 8), 8),
        ("smem", (16, 16), 8),
        ("smem-pad", (32, 32), 1),
        ("smem-pad", (16, 16), 1),
    ],
)
def test_wavefronts_of_the_textbook(kernel: str, block: tuple[int, int], load: float) -> None:
    """Reading a column of a 32 x 32 tile has 32-way bank conflicts; with padding it has no conflict."""
    assert per_request(counted(kernel, block), "shared", "load") == load


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [(64, 125), (136, 133), (137, 133), (57, 250), (64, 124), (112, 248)], ids=str)
def test_ragged_rows_of_floats(size: tuple[int, int]) -> None:
    """`ragged` is right for output rows that start at a multiple of 32 bytes, for rows that start anywhere, and for a
    last tile that ends with the matrix."""
    _, (case,) = build("transpose", "ragged", size=size)
    assert ("RLEAD" in case.defines) == (size[0] % 8 == 0)
    assert simulated("transpose", "ragged", size=size) == []


@pytest.mark.slow
@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["int8", "float16"])
@pytest.mark.parametrize("size", [(224, 129), (225, 256), (257, 131), (256, 257), (256, 384), (513, 255)], ids=str)
def test_ragged_rows_of_small_elements(size: tuple[int, int], dtype: str) -> None:
    """`ragged` is right for bytes and halves whose input or output rows start anywhere, and it accesses the inside of
    the matrix with 16 bytes only."""
    operation, (case,) = build("transpose", "ragged", size=size, dtype=dtype)
    assert ("RLEAD" in case.defines) == (size[0] % (32 if dtype == "int8" else 16) == 0)
    result = SimulatedRun(operation, case.problem, Settings(cpu=False), simulator()).measure(case)
    assert (result.status, result.hazards) == ("ok", ())
    moved = {(a.op, a.bytes): a.requests for a in result.access or () if a.space == "global"}
    assert moved["load", 16] > 0
    assert moved["store", 16] > 0
    if size == (256, 384):
        assert set(moved) == {("load", 16), ("store", 16)}


@pytest.mark.slow
@given(rows=st.integers(1, 300), cols=st.integers(1, 300), dtype=st.sampled_from(["int8", "float16", "float32"]))
@settings(max_examples=25, deadline=None)
def test_ragged_at_any_size(rows: int, cols: int, dtype: str) -> None:
    """`ragged` is right and free of hazards at any size."""
    assert simulated("transpose", "ragged", size=(rows, cols), dtype=dtype) == []


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("short", [4, 8, 16, 32])
def test_a_short_side(short: int, dtype: str) -> None:
    """For a matrix with a short side the tile is as short: warps read and write 16 bytes per lane without bank
    conflicts."""
    for size in ((short, 4096), (4096, short)):
        result = counted("vector", (32, 8), size, dtype)
        # If a row is one vector, a thread's four rows are adjacent in memory, and the next thread's rows follow.
        load = 32 if size == (4096, 4) and dtype == "float32" else 16
        assert (per_request(result, "global", "load"), per_request(result, "global", "store")) == (load, 16)
        assert (per_request(result, "shared", "load"), per_request(result, "shared", "store")) == (4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize("short", [1, 3, 12, 31, 65])
def test_short_sides_of_any_length(short: int, dtype: str) -> None:
    """The short side may have any length, and the long side need not be a multiple of anything."""
    for size in ((short, 1031), (1031, short), (1040, short)):
        assert [rung for rung in ("vector", "prefetch") if simulated("transpose", rung, size=size, dtype=dtype)] == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("cols", "dtype", "wide"),
    [
        (28, "float32", 28),
        (29, "float32", 60),
        (60, "int32", 60),
        (61, "float32", 124),
        (64, "float16", 64),
        (65, "float16", 128),
        (3, "int8", 128),
    ],
)
def test_ragged_tiles_of_few_columns(cols: int, dtype: str, wide: int) -> None:
    """`ragged` takes the narrowest tile that has all columns, unless the user sets LANES."""
    asked = {"float32": 28, "int32": 28, "float16": 64, "int8": 128}[dtype]
    for defines, columns in (({}, wide), ({"LANES": "8"}, asked)):
        _, (case,) = build("transpose", "ragged", size=(1031, cols), dtype=dtype, defines=defines)
        assert case.dynamic_shared_bytes == columns * 256  # a tile is 256 bytes high
    assert simulated("transpose", "ragged", size=(1031, cols), dtype=dtype) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "dtype", "bytes_"),
    [
        ((66, 128), "float32", 128),
        ((66, 129), "float32", 256),
        ((66, 96), "float32", 256),
        ((66, 33), "float32", 128),
        ((66, 256), "int8", 128),
        ((66, 257), "int8", 256),
        ((66, 33), "float64", 256),
        ((66, 130), "float16", 256),
    ],
)
def test_what_the_cache_is_asked_for(size: tuple[int, int], dtype: str, bytes_: int) -> None:
    """`prefetch` loads with an L2 prefetch size of 256 bytes if rows are longer than 256 bytes and do not start at
    multiples of it, else 128; `vector` has no prefetch size; vector loads of `ragged` have 128."""
    if dtype != "float64":
        assert read_by("ragged", size, dtype)[".L2::128B.v4.u32"] >= 4
    for rung in ("vector", "prefetch"):
        reads = read_by(rung, size, dtype)
        assert reads.total() >= 4
        assert [read for read in reads if (f".L2::{bytes_}B" in read) != (rung == "prefetch")] == []
        assert simulated("transpose", rung, size=size, dtype=dtype) == []


def test_bytes_that_the_cache_cannot_bring_are_refused() -> None:
    """FETCH may be 64, 128 or 256, because PTX has no other prefetch size."""
    with pytest.raises(CudabenchError, match="prefetch takes a power of two from 64 to 256"):
        build("transpose", "prefetch", defines={"FETCH": "96"})
