"""Orders of blocks: --schedule, and the second order that `check` tries where blocks exchange data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.measure import further_runs
from tests.conftest import Ran

Runner = Callable[..., Ran]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

METHOD = """\
__global__ void twice(int *x, int *y, unsigned *count) {
    for (int r = 0; r < 2; r++) {
        if (threadIdx.x == 0) {
            __threadfence();
            METHOD
            __threadfence();
        }
        __syncthreads();
        (r ? y : x)[blockIdx.x] = r ? x[gridDim.x - 1 - blockIdx.x] : blockIdx.x + 1;
        __syncthreads();
    }
}
"""
EARLY = METHOD.replace(
    "METHOD", "if (atomicAdd(count, 1) == gridDim.x - 1) atomicExch(count, 0); else while (atomicAdd(count, 0)) ;"
)
FEW = METHOD.replace("METHOD", "atomicAdd(count, 1); while (*(volatile unsigned *)count < (r + 1) * gridDim.x - 1) ;")
NUMBERED = """\
__global__ void numbered(int *turn, float *sum, unsigned *count) {
    turn[blockIdx.x] = atomicAdd(count, 1);
    atomicAdd(sum, 0.1f * blockIdx.x);
}
"""
TRAPS = """\
__global__ void first(unsigned *count) {
    if (atomicAdd(count, 1) == 0 && blockIdx.x != 0) __trap();
}
"""
FENCED = """\
__global__ void fenced(volatile int *a, int *b) {
    a[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    b[blockIdx.x] = ((int *)a)[(blockIdx.x + 1) % gridDim.x];
}
"""
PLAIN = "__global__ void plain(int *x) { x[blockIdx.x] = blockIdx.x; atomicAdd(x + gridDim.x, 1); }\n"
LAUNCH = ("--grid", 6, "--block", 32, "--device", "sim", "--timeout", 600)
COUNT = ("--arg", "count=uint32[1]:zeros")
BOTH = ("--arg", "x=int32[6]:zeros", "--arg", "y=int32[6]:zeros", *COUNT)
TURN = ("--arg", "turn=int32[6]:zeros", "--arg", "sum=float32[1]:zeros", *COUNT)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files above to the test's folder; allow more time for each run, since machines are shared."""
    for limit in ("LONG_S", "UNWRITTEN_SEARCH_S", "MOST_S"):
        monkeypatch.setattr(further_runs, limit, 600.0)
    for name, text in {
        "early": EARLY,
        "few": FEW,
        "numbered": NUMBERED,
        "traps": TRAPS,
        "fenced": FENCED,
        "plain": PLAIN,
    }.items():
        (tmp_path / f"{name}.cu").write_text(text)


@pytest.mark.slow
def test_barrier_that_is_set_back_too_early(cudabench: Runner) -> None:
    """A deadlock that occurs only in another order of blocks is a hazard whose message names the order."""
    ran = cudabench("check", "early.cu", *LAUNCH, *BOTH)
    assert ran.code == 3
    assert "deadlock, line 5: with the blocks in reverse order thread (0, 0, 0)" in " ".join(ran.out.split())
    ran = cudabench("check", "early.cu", *LAUNCH, *BOTH, "--schedule", "reverse")
    assert ran.code == 3
    assert "deadlock, line 5: thread (0, 0, 0)" in " ".join(ran.out.split())


def test_wrong_result(cudabench: Runner) -> None:
    """A barrier that lets one block through too early is a race that shows only in another order of blocks."""
    ran = cudabench("check", "few.cu", *LAUNCH, *BOTH)
    assert (ran.code, "race, line 9: with the blocks in reverse order" in ran.out) == (3, True)


def test_result_that_may_depend_on_the_order(cudabench: Runner) -> None:
    """An array of tickets from an atomic counter gets a warning; a sum of floats that rounds differently does not."""
    ran = cudabench("check", "numbered.cu", "-g", 6, "-b", 1, "-d", "sim", *TURN, "--json", "-")
    assert ran.code == 0
    (result,) = json.loads(ran.out)["results"]
    (message,) = [one["message"] for one in result["warnings"] if one["code"] == "order-dependent"]
    assert message.startswith("turn[0] is 0 with the blocks in their own order and 5 in reverse order")
    expected = ("--expect", "turn=np.arange(6)", "--schedule", "random:1")
    ran = cudabench("check", "numbered.cu", "-g", 6, "-b", 1, "-d", "sim", *TURN, *expected)
    assert ran.code == 3


def test_fence_that_nobody_waits_behind(cudabench: Runner) -> None:
    """A block that reads what another block wrote, without waiting for it, gets a result that depends on the order of
    blocks."""
    arguments = ("--arg", "a=int32[6]:zeros", "--arg", "b=int32[6]:zeros")
    ran = cudabench(
        "check", "fenced.cu", "-g", 6, "-b", 1, "-d", "sim", *arguments, "--expect", "b=(np.arange(6)+1)%6+1"
    )
    assert ran.code == 3


def test_trap(cudabench: Runner) -> None:
    """A trap that occurs only in another order of blocks is a fault."""
    ran = cudabench("check", "traps.cu", "-g", 2, "-b", 1, "-d", "sim", *COUNT)
    assert ran.code == 3
    assert "with the blocks in reverse order" in ran.out


@pytest.mark.slow
def test_not_tried(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long first run `check` tries no second order, and says so only if blocks exchange data."""
    monkeypatch.setattr("cudabench.measure.further_runs.LONG_S", -1.0)
    ran = cudabench("check", "early.cu", *LAUNCH, *BOTH)
    assert ran.code == 0
    assert "they ran in their own order only, because that took" in " ".join(ran.out.split())
    ran = cudabench("check", "plain.cu", *LAUNCH, "--arg", "x=int32[7]:zeros")
    assert ran.code == 0
    assert "order" not in ran.out


def test_run_in_another_order(cudabench: Runner) -> None:
    """--schedule sets the order of blocks for `run`, and the results file records it."""
    line = ("run", "numbered.cu", "-g", 6, "-b", 1, "--no-cpu", *TURN)
    ran = cudabench(*line, "-d", "sim", "--schedule", "reverse", "--expect", "turn=5-np.arange(6)", "--json", "-")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["settings"]["schedule"] == "reverse"
    ran = cudabench(*line, "-d", "sim", "--expect", "turn=np.arange(6)", "--json", "-")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["settings"]["schedule"] is None


@pytest.mark.parametrize("order", ["backwards", "random", "random:-1"])
def test_no_such_order(cudabench: Runner, order: str) -> None:
    """An unknown order is a usage error that lists the valid orders."""
    ran = cudabench("run", "plain.cu", *LAUNCH, "--arg", "x=int32[7]:zeros", "--schedule", order)
    assert ran.code == 2
    assert f"'{order}' is not an order of blocks: use reverse or random:SEED" in ran.err


def test_order_of_a_gpu(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """--schedule is refused for a GPU."""
    from cudabench.devices import Choice

    monkeypatch.setattr("cudabench.devices.choose", lambda name: Choice("cuda", 0))
    ran = cudabench("run", "plain.cu", "-g", 6, "-b", 1, "--arg", "x=int32[7]:zeros", "--schedule", "reverse")
    assert ran.code == 2
    assert "--schedule reverse is for the simulator" in ran.err
