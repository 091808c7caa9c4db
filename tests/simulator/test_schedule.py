"""Launches with another order of blocks: independent blocks give the same result, and other blocks another legal
result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.measure.further_runs import other_orders
from cudabench.simulator import api as simulator
from tests.simulator.test_corpus import CASES, CORPUS, compiled_file, kernel_of

Launch = Callable[..., simulator.Report]
Array = np.ndarray[Any, Any]

ORDERS = ("reverse", "random:1", "random:2")
ROUNDS = 3
# Two barriers in each round: a block reads after a barrier what other blocks wrote before it.
BARRIER = """
__device__ void barrier(unsigned *count, volatile unsigned *gen, unsigned &own) {
    __syncthreads();
    if (threadIdx.x == 0) {
        FENCE
        WAIT
        __threadfence();
    }
    __syncthreads();
}
extern "C" __global__ void k(int *x, int *y, unsigned *count, volatile unsigned *gen, int rounds) {
    unsigned own = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int r = 0; r < rounds; r++) {
        y[i] = x[(i + 1 + r) % n] + 1;
        barrier(count, gen, own);
        x[i] = y[(i + n - 3) % n];
        barrier(count, gen, own);
    }
}
"""
LAST = "atomicAdd(count, 1) == gridDim.x - 1"
RIGHT = {
    "sense": f"own ^= 1; if ({LAST}) {{ *count = 0; __threadfence(); *gen = own; }} else while (*gen != own) ;",
    "generation": (
        f"own = *gen; if ({LAST}) {{ *count = 0; __threadfence(); *gen = own + 1; }} else while (*gen == own) ;"
    ),
    "generation by atomics": (
        "unsigned *g = (unsigned *)gen; own = atomicAdd(g, 0); __threadfence();\n"
        f"if ({LAST}) {{ atomicExch(count, 0); __threadfence(); atomicAdd(g, 1); }}\n"
        "else while (atomicAdd(g, 0) == own) ;"
    ),
    "tickets": "own += gridDim.x; atomicAdd(count, 1); while (*(volatile unsigned *)count < own) ;",
}
# Each of these barriers gives the right result without hazards if the blocks run in step.
WRONG = {
    "set back too early": f"if ({LAST}) atomicExch(count, 0); else while (*(volatile unsigned *)count != 0) ;",
    "set back too early by atomics": f"if ({LAST}) atomicExch(count, 0); else while (atomicAdd(count, 0) != 0) ;",
    "set back too late": (
        f"own = *gen; if ({LAST}) {{ *gen = own + 1; __threadfence(); *count = 0; }} else while (*gen == own) ;"
    ),
    "set back by one block": (
        "atomicAdd(count, 1); while (*(volatile unsigned *)count < gridDim.x) ; if (blockIdx.x == 0) *count = 0;"
    ),
    "one block too few": (
        "own = *gen; if (atomicAdd(count, 1) == gridDim.x - 2) { *count = 0; __threadfence(); *gen = own + 1; }\n"
        "else while (*gen == own) ;"
    ),
    "a flag that stays": (
        f"own = 1; if ({LAST}) {{ *count = 0; __threadfence(); *gen = own; }} else while (*gen != own) ;"
    ),
    "one count alone": "own += gridDim.x; atomicAdd(count, 1); while (*(volatile unsigned *)count != own) ;",
    "counted down on leaving": (
        "atomicAdd(count, 1); while (*(volatile unsigned *)count < gridDim.x) ; atomicSub(count, 1);"
    ),
    "one ticket too few": "own += gridDim.x; atomicAdd(count, 1); while (*(volatile unsigned *)count < own - 1) ;",
}


def barrier(launch: Launch, wait: str, schedule: str | None, fence: str = "__threadfence();", grid: int = 6) -> str:
    """Run the rounds with a barrier; return "right", "wrong", or the kind of the first hazard."""
    n = grid * 64
    start = np.arange(n, dtype=np.int32) * 7 % 101
    x, y, i = start.copy(), np.zeros_like(start), np.arange(n)
    count, gen = np.zeros((2, 1), np.uint32)
    source = BARRIER.replace("FENCE", fence).replace("WAIT", wait)
    try:
        report = launch(source, grid, 64, [x, y, count, gen, ROUNDS], schedule=schedule)
    except simulator.BudgetExceeded as stopped:
        return stopped.hazards[0].kind
    for r in range(ROUNDS):
        start = (start[(i + 1 + r) % n] + 1)[(i - 3) % n]
    return report.hazards[0].kind if report.hazards else "right" if (x == start).all() else "wrong"


@pytest.fixture(autouse=True)
def _looked_at_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the simulator check for an endless launch after a tenth of the usual steps."""
    monkeypatch.setattr("cudabench.simulator.machine.FIRST", 2000)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("wait", RIGHT.values(), ids=RIGHT)
def test_right_barrier(launch: Launch, wait: str) -> None:
    """A correct barrier between blocks gives the right result without hazards in every order, also with many blocks."""
    assert [barrier(launch, wait, order) for order in (None, *ORDERS)] == ["right"] * 4
    assert [barrier(launch, wait, order, grid=300) for order in (None, "reverse")] == ["right"] * 2


@pytest.mark.sampled(26)
@pytest.mark.parametrize("grid", [2, 3, 6])
@pytest.mark.parametrize("wait", WRONG.values(), ids=WRONG)
def test_wrong_barrier(launch: Launch, wait: str, grid: int) -> None:
    """A faulty barrier that works if the blocks run in step gives a deadlock, a wrong result or a race in one of the
    orders that `check` tries."""
    found = {barrier(launch, wait, order, grid=grid) for order in (None, *other_orders(None, waits=True))}
    assert found & {"deadlock", "wrong", "race"}


def test_barrier_without_fence(launch: Launch) -> None:
    """The simulator reports a missing fence in every order of blocks."""
    found = {barrier(launch, RIGHT["tickets"], order, fence="") for order in (None, *ORDERS)}
    assert found == {"missing-fence"}


@pytest.mark.slow
def test_cooperative_groups(launch: Launch) -> None:
    """grid.sync() of a cooperative launch is right in every order of blocks."""
    source = "#include <cooperative_groups.h>\n" + BARRIER.replace("FENCE", "").replace("WAIT", "")
    source = source.replace("    __syncthreads();\n    if", "    cooperative_groups::this_grid().sync();\n    if", 1)
    n = 6 * 64
    for order in (None, *ORDERS):
        x, y = np.zeros((2, n), np.int32)
        report = launch(source, 6, 64, [x, y, np.zeros(1, np.uint32), np.zeros(1, np.uint32), 4], schedule=order)
        assert report.hazards == ()
        assert (x == 4).all()


WAITING = {
    # A block waits for the block before it, and adds that block's values to its own.
    "chain": """
        if (blockIdx.x && threadIdx.x == 0) { while (flag[blockIdx.x - 1] == 0) ; __threadfence(); }
        __syncthreads();
        x[i] += blockIdx.x ? ((volatile int *)x)[i - blockDim.x] : 0;
        __threadfence(); __syncthreads();
        if (threadIdx.x == 0) flag[blockIdx.x] = 1;""",
    "lock": """
        for (bool done = false; !done;) if (atomicCAS((int *)flag, 0, 1) == 0) {
            __threadfence(); *(volatile int *)&x[0] = *(volatile int *)&x[0] + 1; __threadfence();
            atomicExch((int *)flag, 0); done = true; }""",
    "calls": """
        atomicAdd((int *)flag, 1); while (*flag < gridDim.x * blockDim.x) ;
        x[i] = deep(flag, i % 7);""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WAITING)
def test_blocks_that_wait(launch: Launch, name: str) -> None:
    """Blocks that wait for the previous block, for a lock, or for all threads before recursive calls give right results
    in every order."""
    source = (
        "__device__ __noinline__ int deep(volatile int *f, int d) { return d ? deep(f, d - 1) + f[0] * 0 + 1 : 0; }\n"
        'extern "C" __global__ void k(int *x, volatile int *flag) {\n'
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n" + WAITING[name] + "\n}"
    )
    i = np.arange(5 * 64)
    right = {"chain": i // 64 + 1, "lock": np.where(i, 1, 5 * 64 + 1), "calls": i % 7}[name]
    for order in (None, *ORDERS):
        x = np.ones(5 * 64, np.int32)
        assert launch(source, 5, 64, [x, np.zeros(5, np.int32)], schedule=order).hazards == ()
        np.testing.assert_array_equal(x, right)


TURN = (
    'extern "C" __global__ void k(int *turn, int *c) { turn[blockIdx.x + gridDim.x * blockIdx.y] = atomicAdd(c, 1); }'
)


@pytest.mark.parametrize("grid", [(7, 1), (3, 5), (700, 1)], ids=str)
def test_order_of_blocks(launch: Launch, grid: tuple[int, int]) -> None:
    """In reverse order the last block executes its atomic first; a random order depends on its seed alone."""
    total = grid[0] * grid[1]

    def turns(order: str | None) -> list[int]:
        found = np.zeros(total, np.int32)
        launch(TURN, grid, 1, [found, np.zeros(1, np.int32)], schedule=order)
        assert sorted(found) == list(range(total))
        return list(found)

    assert turns(None) == list(range(total))
    assert turns("reverse") == list(range(total))[::-1]
    assert turns("random:1") == turns("random:1")
    assert len({tuple(turns(f"random:{seed}")) for seed in range(4)}) > 1


def test_blocks_of_many_chunks(launch: Launch) -> None:
    """The chunks of a large grid also run in reverse order, and a hazard names the right block."""
    source = 'extern "C" __global__ void k(int *x) { x[blockIdx.x * 1024 + threadIdx.x] = blockIdx.x; }'
    x = np.zeros(399 * 1024, np.int32)
    (hazard,) = launch(source, 400, 1024, [x], schedule="reverse").hazards
    assert (hazard.kind, hazard.block, hazard.count) == ("out-of-bounds", (399, 0, 0), 1024)
    np.testing.assert_array_equal(x.reshape(399, 1024)[:, 5], np.arange(399))


@pytest.mark.parametrize("order", ["", "reversed", "random", "random:-1", "random:x"])
def test_no_such_order(launch: Launch, order: str) -> None:
    """A schedule that is not `reverse` or `random:SEED` is an error."""
    with pytest.raises(simulator.LaunchError, match="use reverse or random:SEED"):
        launch(TURN, 2, 1, [np.zeros(2, np.int32), np.zeros(1, np.int32)], schedule=order)


# Kernels whose result depends on the return value of an atomic, or on the order of a sum of floats.
BY_ORDER = {
    "cas_double", "cas_maximum", "compaction", "dot_double", "last_thread", "last_warp", "reduce_last_block",
    "spin_lock", "warp_aggregate",
}  # fmt: skip
ALONE = sorted(name for name in CASES.keys() - BY_ORDER if not name.startswith("chain_"))


@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", ALONE)
def test_results_and_counts_are_the_same(compiled: Any, name: str) -> None:
    """Kernels with independent blocks give the same bytes, counts and hazards in every order of blocks."""
    path = CORPUS / "right" / f"{name}.cu"
    kernel, found = kernel_of(path), compiled_file(path, "sm_90")
    program, builder, size = simulator.load(found.ptx), CASES[name][0], CASES[name][1][-1]

    def outcome(order: str | None) -> tuple[Any, ...]:
        case = builder(np.random.default_rng(size), size)
        report = simulator.run(
            program, found.lowered[kernel.expression], case.grid, case.block, case.arguments,
            shared_bytes=case.shared, schedule=order,
        )  # fmt: skip
        counts = [access._replace(patterns=(), first=0, step=0) for access in report.accesses]
        arrays = [one.tobytes() for one in case.arguments if isinstance(one, np.ndarray)]
        return report.instructions, report.branches, report.hazards, counts, arrays

    first = outcome(None)
    assert all(outcome(order) == first for order in ("reverse", "random:1"))
