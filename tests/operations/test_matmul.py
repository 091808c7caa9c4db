"""matmul: reference, formulas, geometry and refusals, and simulator tests beyond test_ladders.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudabench import operations
from cudabench.errors import UsageError
from cudabench.measure import verify
from cudabench.operations import blas, matmul
from cudabench.records.launch import ByValue, TensorMap
from tests.conftest import Ran
from tests.ladders import build, needs_compiler, problem, simulated

pytestmark = pytest.mark.matmul
MATMUL = operations.get("matmul")


def test_product_is_numpys_in_float64() -> None:
    """The reference multiplies in float64, for every element type."""
    at = problem("matmul", 5, 7, 3)
    arrays = matmul.inputs(at)
    assert (arrays["a"].shape, arrays["b"].shape) == ((5, 7), (7, 3))
    wide = arrays["a"].astype(float) @ arrays["b"].astype(float)
    np.testing.assert_array_equal(matmul.reference(at, arrays)["c"], wide)


def test_matmul_counts() -> None:
    """The bytes are those of the three matrices; the operations are two per product."""
    at = problem("matmul", 5, 7, 3, dtype="float64")
    assert MATMUL.bytes(at) == (35 + 21 + 15) * 8
    assert MATMUL.flops is not None
    assert MATMUL.flops(at) == 2 * 5 * 7 * 3


def test_matmul_tolerance_sees_a_product_left_out() -> None:
    """The tolerance at K = 4096 detects a single missing product in most elements."""
    at = problem("matmul", 4, 4096, 4)
    arrays = matmul.inputs(at)
    short = {"a": arrays["a"][:, 1:], "b": arrays["b"][1:]}
    full, less = matmul.reference(at, arrays)["c"], matmul.reference(at, short)["c"]
    assert verify.compare(full, less, MATMUL.tolerance(at)).mismatches > 12
    assert MATMUL.tolerance(at).rtol < 2e-5


def test_tf32_keeps_ten_bits() -> None:
    """tf32() truncates the mantissa to 10 bits and does not round."""
    numbers = np.array([1 + 2**-10, 1 + 2**-11, 1 + 2**-10 + 2**-11, -3.0], np.float32)
    assert matmul.tf32(numbers).tolist() == [1 + 2**-10, 1, 1 + 2**-10, -3]


def test_tensor_rung_has_its_own_reference_and_tolerance() -> None:
    """The tensor kernel is compared with the product of the truncated TF32 inputs, with its own tolerance."""
    tensor = build("matmul", "tensor", size=(64, 64, 64))[1][0]
    assert tensor.expects == "tensor"
    arrays = matmul.inputs(tensor.problem)
    exact, cut = (MATMUL.right(name, tensor.problem, arrays)["c"] for name in ("", "tensor"))
    assert 1e-4 < np.max(np.abs(exact - cut) / exact) < 2**-9
    tolerance = MATMUL.tolerated("tensor", tensor.problem)
    assert tolerance.rtol == 2**-23 * 12
    assert "TF32" in tolerance.reason
    assert MATMUL.tolerated("", tensor.problem) == MATMUL.tolerance(tensor.problem)


def test_the_grids_limits_are_no_limit_on_the_matrix() -> None:
    """Kernels that stride take more rows than 65535 blocks cover, and any grid; a kernel without a stride refuses a
    small grid."""
    naive, tiled, registers = build("matmul", "naive", "tiled", "registers", size=(2**24, 1, 1))[1]
    assert [case.grid for case in (naive, tiled, registers)] == [(1, 65535, 1)] * 3
    assert build("matmul", "tiled", size=(1000, 10, 1000), grid=(2, 3))[1][0].grid == (2, 3, 1)
    with pytest.raises(UsageError, match="cannot cover"):
        build("matmul", "warp-tile", size=(1000, 10, 1000), grid=(2, 1))


@pytest.mark.parametrize(
    ("kernel", "block", "dtype", "reason"),
    [
        ("vector", (1024, 1), "float32", "513 KiB"),
        ("double-buffer", (32, 32), "float64", "a block has 48 KiB"),
        ("warp-tile", (7, 3), "float32", "21 threads are not a multiple of 32"),
        ("warp-tile", (32, 16), "float32", "at most 256 threads fit"),
        ("tensor", (7, 3), "float64", "21 threads are not a multiple of 32"),
    ],
)
def test_matmul_refuses(kernel: str, block: tuple[int, int], dtype: str, reason: str) -> None:
    """A block that a kernel cannot take is refused with the reason."""
    with pytest.raises(UsageError, match=reason):
        build("matmul", kernel, size=(64, 64, 64), block=block, dtype=dtype)


def test_tensor_takes_float64_whole() -> None:
    """For float64 the tensor cores use every bit, so reference and tolerance are those of the other kernels."""
    at = build("matmul", "tensor", size=(9, 7, 5), dtype="float64")[1][0].problem
    arrays = matmul.inputs(at)
    np.testing.assert_array_equal(MATMUL.right("tensor", at, arrays)["c"], arrays["a"] @ arrays["b"])
    assert MATMUL.tolerated("tensor", at) == MATMUL.tolerance(at)


@pytest.mark.parametrize(("dtype", "grid"), [("float32", 4 * 8), ("float64", 8 * 8)])
def test_tensor_tiles_cover_the_product(dtype: str, grid: int) -> None:
    """A block of 4 x 2 warps computes 256 x 128 elements of C in float32, and 128 x 128 in float64."""
    case = build("matmul", "tensor", size=(1000, 9, 1000), dtype=dtype)[1][0]
    assert case.grid == (grid, 1, 1)
    assert case.dynamic_shared_bytes == {"float32": 148992, "float64": 99072}[dtype]


def blas_threads() -> list[int]:
    """Return the number of threads of each loaded BLAS."""
    from threadpoolctl import threadpool_info

    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blas_gets_the_threads(threads: int) -> None:
    """Inside `limited`, each BLAS has the given number of threads; afterwards the number is as before."""
    before = blas_threads()
    with blas.limited(threads):
        assert set(blas_threads()) == {threads}
    assert blas_threads() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_matmul_baseline(threads: int) -> None:
    """The baseline computes the product and restores the BLAS's number of threads."""
    at = problem("matmul", 5, 7, 3)
    arrays = matmul.inputs(at)
    out = {"c": np.empty((5, 3), np.float32)}
    before = blas_threads()
    MATMUL.baseline.run(arrays, out, threads)
    assert blas_threads() == before
    assert verify.compare(matmul.reference(at, arrays)["c"], out["c"], MATMUL.tolerance(at)).mismatches == 0


# In the simulator, beyond the tests of every kernel (test_ladders.py) ------------------------------------------------


@needs_compiler
@pytest.mark.slow
def test_matmul_strides_over_more_tiles_than_blocks() -> None:
    """The kernels that stride are right with a grid smaller than the matrix."""
    names = ("naive", "tiled", "registers", "vector", "double-buffer")
    assert simulated("matmul", *names, size=(150, 9, 300), block=(16, 16), grid=(1, 1)) == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "arch"), [("float32", "sm_90"), ("float64", "sm_80")])
def test_tensor_in_the_simulator(dtype: str, arch: str) -> None:
    """The tensor kernel is right with more steps than stages, two strips of tiles, and sm_80's smaller instruction."""
    at = {"size": (1100, 132, 68), "block": (32, 1), "dtype": dtype}
    assert simulated("matmul", "tensor", architecture=arch, **at) == []


def test_types_of_two_bytes_round_once() -> None:
    """For float16 and bfloat16, an output that is rounded once passes, and one with an error of four half units in the
    last place fails."""
    for dtype, last in (("float16", 2.0**-11), ("bfloat16", 2.0**-8)):
        at = problem("matmul", 4, 64, 4, dtype=dtype)
        arrays = matmul.inputs(at)
        exact = matmul.widen(at, arrays["a"]) @ matmul.widen(at, arrays["b"])
        tolerance = MATMUL.tolerance(at)
        expected = MATMUL.right("", at, arrays)["c"]
        got = np.zeros((4, 4), matmul.storage(at))
        matmul.on_cpu(arrays, {"c": got}, 1)
        assert verify.compare(expected, got, tolerance).mismatches == 0
        far = matmul.to_bfloat16(exact * (1 + 4 * last)) if dtype == "bfloat16" else (exact * (1 + 4 * last))
        assert verify.compare(expected, far.astype(got.dtype), tolerance).mismatches == 16
        assert MATMUL.bytes(at) == (4 * 64 * 2 + 16) * 2


@pytest.mark.parametrize(("size", "parts"), [(512, "4"), (1024, "4"), (2048, "2")])
def test_small_products_are_sliced_finer(size: int, parts: str) -> None:
    """If a product has few tiles, more warps share its k."""
    case = build("matmul", "sliced", size=(size, size, size))[1][0]
    assert case.defines["SLICES"] == parts


@pytest.mark.slow
def test_wgmma_is_for_one_generation() -> None:
    """The wgmma kernels run on sm_90a, and are skipped with the reason on other architectures."""
    for kernel in ("wgmma", "half", "tma", "tma-split", "tma-pair"):
        assert build("matmul", kernel, size=(64, 64, 64))[1][0].architecture == "sm_90a"
    assert simulated("matmul", "wgmma", size=(70, 33, 130)) == []
    (skipped,) = simulated("matmul", "wgmma", architecture="sm_80", size=(70, 33, 130))
    assert "needs a GPU of compute capability 9.0" in skipped


@pytest.mark.parametrize(
    ("kernel", "block"), [("wgmma", (32, 2)), ("half", (32, 16)), ("tma", (32, 4)), ("tma-split", (32, 16))]
)
def test_groups_are_of_four_warps(kernel: str, block: tuple[int, int]) -> None:
    """A wgmma kernel refuses a block with more groups of 128 threads, or fewer, than its tile needs."""
    with pytest.raises(UsageError, match=r"groups? of 128 threads"):
        build("matmul", kernel, block=block)


@pytest.mark.parametrize(("dtype", "across"), [("float32", 32), ("bfloat16", 64)])
def test_maps_have_boxes_of_128_bytes(dtype: str, across: int) -> None:
    """A tensor map's box is 128 bytes wide: for A with all rows of a tile, for B and C with as many rows as a step is
    deep."""
    (launch,) = build("matmul", "tma", size=(4096, 256, 2048), dtype=dtype)[1][0].launches
    a, b, c = launch.arguments[:3]
    assert (a.buffer, a.sizes, a.box, a.swizzle) == ("a", (256, 4096), (across, 256), 128)
    assert (b.buffer, b.sizes, b.box) == ("b", (2048, 256), (across, across))
    assert (c.buffer, c.strides, c.box) == ("c", (2048 * 128 // across,), b.box)
    assert launch.arguments[3:6] == ("a", "b", "c")
    assert launch.grid == (128, 1, 1)


@pytest.mark.parametrize("size", [(64, 33, 64), (64, 64, 34)])
def test_there_is_no_map_of_rows_that_do_not_align(size: tuple[int, int, int]) -> None:
    """If a row is not a multiple of 16 bytes, A and B get no tensor map and the kernel copies them itself; C has a map
    if its rows are aligned."""
    (launch,) = build("matmul", "tma", size=size)[1][0].launches
    assert launch.arguments[:2] == (ByValue(bytes(128), 64),) * 2
    assert isinstance(launch.arguments[2], TensorMap) == (size[2] % 4 == 0)


@pytest.mark.slow
@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize("kernel", ["tma", "tma-pair"])
@pytest.mark.parametrize("size", [(70, 54, 64), (70, 64, 54), (1, 30, 104)], ids=str)
def test_matrices_of_which_some_have_maps(kernel: str, size: tuple[int, int, int]) -> None:
    """2-byte elements are right if only A's rows, or only those of B and C, are not aligned to 16 bytes."""
    assert simulated("matmul", kernel, size=size, dtype="float16") == []


@pytest.mark.parametrize(("size", "rows"), [(1024, "64"), (2048, "256"), (8192, "256")])
def test_small_products_have_smaller_tiles(size: int, rows: str) -> None:
    """The tile height leaves nearly every multiprocessor a tile."""
    assert build("matmul", "tma", size=(size, size, size))[1][0].defines["TALL"] == rows


@pytest.mark.parametrize(("size", "blocks"), [((4096, 64, 4096), 128), ((5000, 64, 4104), 132), ((256, 64, 128), 4)])
def test_blocks_that_stay_have_as_many_tiles_each(size: tuple[int, int, int], blocks: int) -> None:
    """Persistent blocks share the tiles evenly: 512 tiles are four rounds of 128 blocks, 660 are five of 132."""
    assert build("matmul", "tma", size=size)[1][0].grid == (blocks, 1, 1)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("kernel", ["tma", "tma-pair"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_and_tiles_of_odd_number(kernel: str, dtype: str) -> None:
    """The tma kernels are right with an odd number of steps and of tiles, in both directions."""
    for wide in (264, 72):
        size = (130, 92, wide) if dtype == "float32" else (130, 184, wide)
        assert simulated("matmul", kernel, size=size, dtype=dtype, architecture="sm_90a") == []


@needs_compiler
def test_blocks_that_stay_look_for_one_tile_too_many() -> None:
    """With full strips of tiles, the last search of a block has no strip left and must not divide by its height."""
    assert simulated("matmul", "tma", size=(512, 8, 512), architecture="sm_90a") == []


@pytest.mark.parametrize(("size", "blocks"), [((4096, 64, 4096), 128), ((5000, 64, 4104), 132), ((64, 64, 128), 2)])
def test_pairs_have_as_many_tiles_each(size: tuple[int, int, int], blocks: int) -> None:
    """The pairs of tiles are divided evenly among the pairs of blocks: 256 pairs of tiles take four rounds of 64 pairs
    of blocks, and 330 (10 of them in the odd column) take five rounds of 66."""
    assert build("matmul", "tma-pair", size=size)[1][0].grid == (blocks, 1, 1)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("kernel", "sectors"), [("tensor", 3060), ("sliced", 5304), ("wgmma", 3720)])
def test_sectors_of_asynchronous_copies_as_measured(kernel: str, sectors: int, cudabench: Callable[..., Ran]) -> None:
    """For rows of 208 bytes, which begin in the middle of a sector, the counted sectors of asynchronous copies equal
    those measured on an H200."""
    ran = cudabench("explain", "matmul", "--size", "100", "52", "200", "-k", kernel, "--json", "-")
    (result,) = ran.json["results"]
    loads = [row for row in result["access"] if row["space"] == "global" and row["op"] == "load"]
    assert sum(row["sectors"] for row in loads) == sectors
    assert not any(row["inexact"] for row in loads)
