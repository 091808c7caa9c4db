"""solve: reference, formulas, geometry and refusals, and simulator tests beyond test_ladders.py."""

from __future__ import annotations

import numpy as np
import pytest

from cudabench import operations
from cudabench.errors import CudabenchError, UsageError
from cudabench.operations import solve
from cudabench.plan import cases
from cudabench.records.plan import Geometry
from tests.ladders import build, needs_compiler, on_gpu, problem, simulated

pytestmark = pytest.mark.solve
SOLVE = operations.get("solve")


@pytest.mark.parametrize("n", [1, 2, 33, 200])
def test_permuted_matrices_are_well_conditioned(n: int) -> None:
    """Apart from the factors of its columns, a default matrix has a condition number under 3, and its large elements
    are off the diagonal."""
    a = solve.inputs(problem("solve", n))["a"]
    assert np.linalg.cond(a / 2.0 ** (3 - np.arange(n) % 4)) < 3
    largest = np.abs(a).max(axis=0)
    assert all(largest[col] > largest[col + 1] for col in range(n - 1) if col % 4 < 3)
    assert n < 33 or np.count_nonzero(np.argmax(np.abs(a), axis=0) == np.arange(n)) < n // 2


@pytest.mark.parametrize("kind", ["permuted", "uniform"])
def test_solution_and_residual(kind: str) -> None:
    """The reference solves the system with a residual under 1e-10; a wrong solution has a residual of 1."""
    at = problem("solve", 100, matrix=kind)
    arrays = solve.inputs(at)
    (residual,) = solve.figures(at, arrays, solve.reference(at, arrays)).values()
    assert residual < 1e-10
    (wrong,) = solve.figures(at, arrays, {"x": np.zeros(100)}).values()
    assert wrong == pytest.approx(1)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_singular_matrix_is_a_clear_error(n: int, dtype: str) -> None:
    """Reference and baseline refuse a singular matrix with an error that names it."""
    at = problem("solve", n, dtype=dtype, matrix="singular")
    arrays = solve.inputs(at)
    with pytest.raises(CudabenchError, match=f"The {n} x {n} matrix is singular"):
        solve.reference(at, arrays)
    with pytest.raises(CudabenchError, match="is singular"):
        SOLVE.baseline.run(arrays, {"x": np.empty(n, dtype)}, 1)


def test_solve_counts() -> None:
    """The bytes are those of A, b and x; the operations are those of an LU decomposition."""
    at = problem("solve", 30)
    assert SOLVE.bytes(at) == (900 + 60) * 4
    assert SOLVE.flops is not None
    assert SOLVE.flops(at) == 18000 + 1800


def test_four_launches_a_column() -> None:
    """The first rungs copy the matrix, launch four kernels per column, and divide; the aligned rung differs only in the
    pitch."""
    plain, aligned = build("solve", "gauss-jordan", "aligned", size=(33,))[1]
    names = ["solve_pivot_block", "solve_pivot", "solve_swap", "solve_eliminate"]
    assert [launch.function for launch in plain.launches] == ["solve_augment", *names * 33, "solve_divide"]
    assert len(aligned.launches) == len(plain.launches)
    assert (plain.launches[0].arguments[-1], aligned.launches[0].arguments[-1]) == (34, 64)


def test_fused_takes_a_launch_a_column() -> None:
    """Every launch compares as many candidates as the one before has blocks down the rows."""
    _, (case,) = build("solve", "fused", size=(2000,))
    columns = [launch for launch in case.launches if launch.function == "solve_fused"]
    assert len(columns) == 2000
    counts = [int(launch.arguments[-1]) for launch in columns]
    assert counts[1:] == [launch.grid[1] for launch in columns[:-1]]
    assert max(launch.grid[0] * launch.grid[1] for launch in columns) <= solve.FUSED_BLOCKS


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1025, 5000, 9000])
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("cluster", [False, True])
def test_panels_cover_every_column_once(n: int, itemsize: int, cluster: bool) -> None:
    """Panels follow each other without a gap, and each panel fits in the registers of its blocks."""
    at = problem("solve", n, dtype=f"float{8 * itemsize}")
    g = cases.geometry(SOLVE, SOLVE.kernels[-1], at, (32, 4, 1))
    columns = [
        column
        for outer in range(0, n, g["OUTER"])
        for first, cols, rows, blocks in solve.panels(g, outer, cluster)
        for column in range(first, first + cols)
        if rows == 0 or (rows * cols * itemsize <= 256 and n - first <= rows * blocks * g["PANEL"])
    ]
    assert columns == list(range(n))


def test_solve_refuses() -> None:
    """`blocked` refuses a block that is not whole warps; the option has exactly three kinds of matrix."""
    with pytest.raises(UsageError, match="not a multiple of 32"):
        build("solve", "blocked", size=(64,), block=(7, 3))
    (option,) = SOLVE.options
    assert option.choices == ("permuted", "uniform", "singular")


# In the simulator, beyond the tests of every kernel (test_ladders.py) ------------------------------------------------


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("block", "dtype", "n"),
    [
        ((32, 4), "float32", 24),
        ((32, 1), "float64", 20),
        ((7, 3), "float64", 20),
    ],
    ids=str,
)
def test_solve_random_matrices(block: tuple[int, int], dtype: str, n: int) -> None:
    """Every rung also solves systems with random matrices, which need pivoting."""
    assert simulated("solve", size=(n,), block=block, dtype=dtype, options={"matrix": "uniform"}) == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("block", "dtype"), [((32, 4), "float32"), ((32, 1), "float64")], ids=str)
def test_solve_larger_random_matrices(block: tuple[int, int], dtype: str) -> None:
    """Every rung solves a random system that is larger than one block."""
    assert simulated("solve", size=(70,), block=block, dtype=dtype, options={"matrix": "uniform"}) == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_form_of_panel_in_the_simulator(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel shapes of large matrices are right; the test uses them on a small matrix."""

    def panel(g: Geometry, left: int, cluster: bool) -> tuple[int, int, int]:
        rows = next((rows for least, rows in ((85, 0), (70, 16), (50, 8), (30, 4)) if left > least), 2)
        return g.call("COLUMNS", rows) if rows else 1, rows, 1

    monkeypatch.setattr(solve, "panel", panel)
    assert simulated("solve", "blocked", size=(90,), block=(32, 4), dtype=dtype) == []
    assert simulated("solve", "lower", size=(90,), block=(32, 4), dtype=dtype) == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_form_of_a_cluster_in_the_simulator(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster panels of large matrices are right for any number of rows per thread; the test uses them on a small
    matrix."""

    def panel(g: Geometry, left: int, cluster: bool) -> tuple[int, int, int]:
        rows = next((rows for least, rows in ((40, 16), (32, 8), (24, 4), (16, 2)) if left > least), 1)
        return g.call("COLUMNS", rows), rows, g["CLUSTER"]

    monkeypatch.setattr(solve, "panel", panel)
    assert simulated("solve", "cluster", size=(50,), block=(32, 4), dtype=dtype) == []


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["permuted", "uniform"])
def test_solve_on_a_gpu(kind: str, dtype: str) -> None:
    """On a GPU every rung solves larger systems, which use CUDA graphs and panels of every width."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        large = [
            (n, kernel) for n in (2100, 4200)[: 1 + (kind == "permuted")] for kernel in ("blocked", "lower", "cluster")
        ]
        for n, kernel in [(1030, "all"), *large]:
            assert on_gpu(device, "solve", kernel, size=(n,), dtype=dtype, options={"matrix": kind}) == []
