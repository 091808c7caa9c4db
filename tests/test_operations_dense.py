"""matmul and solve: references, formulas, geometry and refusals; the ladders in the simulator and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cudabench import operations
from cudabench.devices.sim import SimDevice
from cudabench.errors import CudabenchError, UsageError
from cudabench.measure import verify
from cudabench.model import Case, Operation, Problem
from cudabench.operations import blas, matmul, solve
from cudabench.plan import cases
from cudabench.plan.cases import Request
from cudabench.toolchain.compiler import nvrtc_version

needs_compiler = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
MATMUL, SOLVE = operations.get("matmul"), operations.get("solve")


def build(operation: Operation, *kernels: str, **request: Any) -> list[Case]:
    """Return the cases of a request, options at their defaults unless given."""
    defaults = {option.name: option.default for option in operation.options}
    request["options"] = defaults | request.get("options", {})
    return cases.build(operation, Request(kernels=kernels, **request))


def problem(operation: Operation, *size: int, dtype: str = "float32", seed: int = 3, **options: Any) -> Problem:
    """Return a problem as a request would make it."""
    return build(operation, size=size, dtype=dtype, seed=seed, options=options)[0].problem


# matmul --------------------------------------------------------------------------------------------------------------


def test_product_is_numpys_in_float64() -> None:
    """The reference multiplies in float64, whatever the type."""
    at = problem(MATMUL, 5, 7, 3)
    arrays = matmul.inputs(at)
    assert (arrays["a"].shape, arrays["b"].shape) == ((5, 7), (7, 3))
    wide = arrays["a"].astype(float) @ arrays["b"].astype(float)
    np.testing.assert_array_equal(matmul.reference(at, arrays)["c"], wide)


def test_matmul_counts() -> None:
    """Bytes are of the three matrices, operations two for each product."""
    at = problem(MATMUL, 5, 7, 3, dtype="float64")
    assert MATMUL.bytes(at) == (35 + 21 + 15) * 8
    assert MATMUL.flops is not None
    assert MATMUL.flops(at) == 2 * 5 * 7 * 3


def test_matmul_tolerance_sees_a_product_left_out() -> None:
    """One product of 4096 left out of a sum is an error several times the tolerance, and grows less than K."""
    at = problem(MATMUL, 4, 4096, 4)
    arrays = matmul.inputs(at)
    short = {"a": arrays["a"][:, 1:], "b": arrays["b"][1:]}
    full, less = matmul.reference(at, arrays)["c"], matmul.reference(at, short)["c"]
    assert verify.compare(full, less, MATMUL.tolerance(at)).mismatches > 12
    assert MATMUL.tolerance(at).rtol < 2e-5


def test_tf32_keeps_ten_bits() -> None:
    """Numbers are cut, not rounded, to 10 bits of mantissa."""
    numbers = np.array([1 + 2**-10, 1 + 2**-11, 1 + 2**-10 + 2**-11, -3.0], np.float32)
    assert matmul.tf32(numbers).tolist() == [1 + 2**-10, 1, 1 + 2**-10, -3]


def test_tensor_rung_has_its_own_reference_and_tolerance() -> None:
    """The tensor rung is compared with the product of what the tensor cores read."""
    tensor = build(MATMUL, "tensor", size=(64, 64, 64))[0]
    assert tensor.expects == "tensor"
    arrays = matmul.inputs(tensor.problem)
    exact, cut = (MATMUL.right(name, tensor.problem, arrays)["c"] for name in ("", "tensor"))
    assert 1e-4 < np.max(np.abs(exact - cut) / exact) < 2**-9
    tolerance = MATMUL.tolerated("tensor", tensor.problem)
    assert tolerance.rtol == 2**-23 * 12
    assert "TF32" in tolerance.reason
    assert MATMUL.tolerated("", tensor.problem) == MATMUL.tolerance(tensor.problem)


def test_the_grids_limits_are_no_limit_on_the_matrix() -> None:
    """Rows beyond what 65535 blocks cover are left to the stride, and any grid will do."""
    naive, tiled, registers = build(MATMUL, "naive", "tiled", "registers", size=(2**24, 1, 1))
    assert [case.grid for case in (naive, tiled, registers)] == [(1, 65535, 1)] * 3
    assert build(MATMUL, "tiled", size=(1000, 10, 1000), grid=(2, 3))[0].grid == (2, 3, 1)
    with pytest.raises(UsageError, match="cannot cover"):
        build(MATMUL, "warp-tile", size=(1000, 10, 1000), grid=(2, 1))


@pytest.mark.parametrize(
    ("kernel", "block", "dtype", "reason"),
    [
        ("vector", (1024, 1), "float32", "513 KiB"),
        ("double-buffer", (32, 32), "float64", "a block has 48 KiB"),
        ("warp-tile", (7, 3), "float32", "21 threads are no multiple of 32"),
        ("warp-tile", (32, 16), "float32", "room for 256 threads"),
        ("tensor", (7, 3), "float64", "21 threads are no multiple of 32"),
    ],
)
def test_matmul_refuses(kernel: str, block: tuple[int, int], dtype: str, reason: str) -> None:
    """A block that a kernel cannot take is refused with the reason."""
    with pytest.raises(UsageError, match=reason):
        build(MATMUL, kernel, size=(64, 64, 64), block=block, dtype=dtype)


def test_tensor_takes_float64_whole() -> None:
    """Of float64 the tensor cores read every bit: reference and tolerance are those of the other rungs."""
    at = build(MATMUL, "tensor", size=(9, 7, 5), dtype="float64")[0].problem
    arrays = matmul.inputs(at)
    np.testing.assert_array_equal(MATMUL.right("tensor", at, arrays)["c"], arrays["a"] @ arrays["b"])
    assert MATMUL.tolerated("tensor", at) == MATMUL.tolerance(at)


@pytest.mark.parametrize(("dtype", "grid"), [("float32", 4 * 8), ("float64", 8 * 8)])
def test_tensor_tiles_cover_the_product(dtype: str, grid: int) -> None:
    """A block of 4 x 2 warps has 256 x 128 elements of C in float32, 128 x 128 in float64."""
    case = build(MATMUL, "tensor", size=(1000, 9, 1000), dtype=dtype)[0]
    assert case.grid == (grid, 1, 1)
    assert case.dynamic_shared_bytes == {"float32": 148992, "float64": 99072}[dtype]


@pytest.mark.parametrize("threads", [1, 2])
def test_matmul_baseline(threads: int) -> None:
    """The baseline computes the product and leaves the BLAS's number of threads as it was."""
    at = problem(MATMUL, 5, 7, 3)
    arrays = matmul.inputs(at)
    out = {"c": np.empty((5, 3), np.float32)}
    controls = blas._controls()
    before = controls and controls[0]()
    MATMUL.baseline.run(arrays, out, threads)
    assert (controls and controls[0]()) == before
    assert verify.compare(matmul.reference(at, arrays)["c"], out["c"], MATMUL.tolerance(at)).mismatches == 0


# solve ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 33, 200])
def test_permuted_matrices_are_well_conditioned(n: int) -> None:
    """The default matrices have a condition number of about 2, as stated, and their large elements are all over."""
    a = solve.inputs(problem(SOLVE, n))["a"]
    assert np.linalg.cond(a) < 3
    assert n < 33 or np.count_nonzero(np.argmax(np.abs(a), axis=0) == np.arange(n)) < n // 2


@pytest.mark.parametrize("kind", ["permuted", "uniform"])
def test_solution_and_residual(kind: str) -> None:
    """The reference solves the system; its residual is that of float64."""
    at = problem(SOLVE, 100, matrix=kind)
    arrays = solve.inputs(at)
    (residual,) = solve.figures(at, arrays, solve.reference(at, arrays)).values()
    assert residual < 1e-10
    (wrong,) = solve.figures(at, arrays, {"x": np.zeros(100)}).values()
    assert wrong == pytest.approx(1)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_singular_matrix_is_a_clear_error(n: int, dtype: str) -> None:
    """A singular matrix is refused by the reference and by the baseline."""
    at = problem(SOLVE, n, dtype=dtype, matrix="singular")
    arrays = solve.inputs(at)
    with pytest.raises(CudabenchError, match=f"The {n} x {n} matrix is singular"):
        solve.reference(at, arrays)
    with pytest.raises(CudabenchError, match="is singular"):
        SOLVE.baseline.run(arrays, {"x": np.empty(n, dtype)}, 1)


def test_solve_counts() -> None:
    """Bytes are of A, b and x, operations those of an LU decomposition."""
    at = problem(SOLVE, 30)
    assert SOLVE.bytes(at) == (900 + 60) * 4
    assert SOLVE.flops is not None
    assert SOLVE.flops(at) == 18000 + 1800


def test_four_launches_a_column() -> None:
    """The first rungs copy, launch four kernels for each column and divide; the aligned one differs in the pitch."""
    plain, aligned = build(SOLVE, "gauss-jordan", "aligned", size=(33,))
    names = ["solve_pivot_block", "solve_pivot", "solve_swap", "solve_eliminate"]
    assert [launch.function for launch in plain.launches] == ["solve_augment", *names * 33, "solve_divide"]
    assert len(aligned.launches) == len(plain.launches)
    assert (plain.launches[0].arguments[-1], aligned.launches[0].arguments[-1]) == (34, 64)


def test_fused_takes_a_launch_a_column() -> None:
    """Every launch compares as many candidates as the one before has blocks down the rows."""
    (case,) = build(SOLVE, "fused", size=(2000,))
    columns = [launch for launch in case.launches if launch.function == "solve_fused"]
    assert len(columns) == 2000
    counts = [int(launch.arguments[-1]) for launch in columns]
    assert counts[1:] == [launch.grid[1] for launch in columns[:-1]]
    assert max(launch.grid[0] * launch.grid[1] for launch in columns) <= solve.FUSED_BLOCKS


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1025, 5000, 9000])
@pytest.mark.parametrize("itemsize", [4, 8])
def test_panels_cover_every_column_once(n: int, itemsize: int) -> None:
    """Panels follow each other without a gap, and each fits the registers of its block."""
    columns = [
        column
        for outer in range(0, n, solve.OUTER)
        for first, cols, rows in solve.panels(n, outer, itemsize)
        for column in range(first, first + cols)
        if rows == 0 or (rows * cols * itemsize <= 256 and n - first <= rows * solve.PANEL)
    ]
    assert columns == list(range(n))


def test_solve_refuses() -> None:
    """The update of `blocked` takes whole warps, and an unknown kind of matrix is a usage error."""
    with pytest.raises(UsageError, match="no multiple of 32"):
        build(SOLVE, "blocked", size=(64,), block=(7, 3))
    (option,) = SOLVE.options
    assert option.choices == ("permuted", "uniform", "singular")


# In the simulator ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated() -> Iterator[Any]:
    """One simulated device for all: it keeps what it has compiled."""
    return SimDevice("sm_90")  # type: ignore[return-value]


def wrong_in_simulator(device: Any, operation: Operation, ladder: list[Case]) -> list[str]:
    """Run cases in the simulator and return what is wrong with them, hazards included."""
    from cudabench.devices.sim import poisoned

    wrong = []
    for case in ladder:
        if case.skip_reason:
            continue
        inputs = operation.inputs(case.problem)
        arrays = {
            buffer.name: inputs[buffer.name] if buffer.role == "in" else poisoned(buffer.shape, buffer.dtype)
            for buffer in operation.buffers(case.problem)
        }
        report = device.run(case, arrays, trace=False, progress=lambda fraction: None).report
        wrong += [f"{case.kernel} {case.problem.size} {h.kind} line {h.line}: {h.message}" for h in report.hazards]
        expected = operation.right(case.expects, case.problem, inputs)
        tolerance = operation.tolerated(case.expects, case.problem)
        found = verify.compare_all(expected, {name: arrays[name] for name in expected}, tolerance, checked="simulated")
        if found.mismatches:
            wrong.append(f"{case.kernel} {case.problem.size}: {found.mismatches} wrong, first {found.first}")
    return wrong


@needs_compiler
@pytest.mark.parametrize(
    ("block", "dtype", "sizes"),
    [
        ((16, 16), "float32", [(1, 1, 1), (31, 33, 35), (127, 65, 129), (200, 3, 68)]),
        ((32, 8), "float32", [(1, 127, 1), (33, 31, 127), (130, 20, 260)]),
        ((7, 3), "float32", [(1, 1, 1), (33, 31, 29)]),
        ((32, 2), "float64", [(1, 31, 1), (65, 33, 67)]),
    ],
    ids=str,
)
def test_matmul_in_the_simulator(
    simulated: Any, block: tuple[int, int], dtype: str, sizes: list[tuple[int, int, int]]
) -> None:
    """Every rung is right and free of hazards at awkward sizes and blocks."""
    for size in sizes:
        assert wrong_in_simulator(simulated, MATMUL, build(MATMUL, size=size, block=block, dtype=dtype)) == []


@needs_compiler
def test_matmul_strides_over_more_tiles_than_blocks(simulated: Any) -> None:
    """A grid smaller than the matrix is right for the kernels that stride."""
    names = ("naive", "tiled", "registers", "vector", "double-buffer")
    ladder = build(MATMUL, *names, size=(150, 9, 300), block=(16, 16), grid=(1, 1))
    assert wrong_in_simulator(simulated, MATMUL, ladder) == []


@needs_compiler
@pytest.mark.parametrize(("dtype", "arch"), [("float32", "sm_90"), ("float64", "sm_80")])
def test_tensor_in_the_simulator(dtype: str, arch: str) -> None:
    """The tensor rung is right with more steps than stages, two strips of tiles, and sm_80's smaller instruction."""
    ladder = build(MATMUL, "tensor", size=(1100, 132, 68), block=(32, 1), dtype=dtype)
    assert wrong_in_simulator(SimDevice(arch), MATMUL, ladder) == []


@needs_compiler
@pytest.mark.parametrize(
    ("block", "dtype", "sizes", "kind"),
    [
        (None, "float32", [1, 2, 31, 33], "permuted"),
        ((32, 4), "float32", [40, 70], "uniform"),
        ((7, 3), "float64", [1, 20], "uniform"),
        ((32, 1), "float64", [33, 66], "permuted"),
    ],
    ids=str,
)
def test_solve_in_the_simulator(
    simulated: Any, block: tuple[int, int] | None, dtype: str, sizes: list[int], kind: str
) -> None:
    """Every rung solves the system without a hazard at awkward sizes and blocks, pivoting as it must."""
    for size in sizes:
        ladder = build(SOLVE, size=(size,), block=block, dtype=dtype, options={"matrix": kind})
        assert wrong_in_simulator(simulated, SOLVE, ladder) == []


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_form_of_panel_in_the_simulator(simulated: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panels that large matrices begin with are right: forced upon a small one."""
    held = 256 // np.dtype(dtype).itemsize

    def panel(left: int, itemsize: int) -> tuple[int, int]:
        rows = next((rows for least, rows in ((85, 0), (70, 16), (50, 8), (30, 4)) if left > least), 2)
        return rows, min(held // rows, solve.WIDEST) if rows else 1

    monkeypatch.setattr(solve, "panel", panel)
    assert wrong_in_simulator(simulated, SOLVE, build(SOLVE, "blocked", size=(90,), block=(32, 4), dtype=dtype)) == []


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    """One context for all."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        yield device


def wrong_on_gpu(device: Any, operation: Operation, ladder: list[Case]) -> list[str]:
    """Run cases on the GPU and return what is wrong with them."""
    wrong = []
    for case in ladder:
        if case.skip_reason:
            continue
        inputs = operation.inputs(case.problem)
        buffers = operation.buffers(case.problem)
        pointers = {}
        for buffer in buffers:
            nbytes = int(np.prod(buffer.shape)) * np.dtype(buffer.dtype).itemsize
            pointers[buffer.name] = device.allocate(nbytes)
            if buffer.role == "in":
                device.upload(pointers[buffer.name], inputs[buffer.name])
            else:
                device.poison(pointers[buffer.name], nbytes)
        device.run(device.bind(device.load(case.source, case.defines), case.launches, pointers), case.kernel)
        expected = operation.right(case.expects, case.problem, inputs)
        got = {b.name: np.empty(b.shape, b.dtype) for b in buffers if b.role == "out"}
        for name, array in got.items():
            device.download(pointers[name], array)
        tolerance = operation.tolerated(case.expects, case.problem)
        found = verify.compare_all(expected, got, tolerance, checked="before")
        if found.mismatches:
            wrong.append(f"{case.kernel} {case.problem.size} {case.block}: {found.mismatches} wrong, {found.first}")
        for pointer in pointers.values():
            device.release(pointer)
    return wrong


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("block", [None, (32, 2), (7, 3), (32, 32)], ids=str)
def test_matmul_on_a_gpu(gpu: Any, block: tuple[int, int] | None, dtype: str) -> None:
    """Every rung is right at awkward sizes, the tensor cores' with it."""
    for size in [(1, 1, 1), (1, 127, 1), (31, 33, 35), (64, 64, 64), (257, 20, 132), (300, 999, 260)]:
        assert wrong_on_gpu(gpu, MATMUL, build(MATMUL, size=size, block=block, dtype=dtype)) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["permuted", "uniform"])
def test_solve_on_a_gpu(gpu: Any, kind: str, dtype: str) -> None:
    """Every rung solves at awkward sizes; the larger ones are graphs of launches and have panels of every width."""
    for size in (1, 33, 127, 1030, 2100) + ((4200,) if kind == "permuted" else ()):
        ladder = build(SOLVE, size=(size,), dtype=dtype, options={"matrix": kind})
        assert wrong_on_gpu(gpu, SOLVE, ladder if size < 2000 else ladder[-1:]) == []
