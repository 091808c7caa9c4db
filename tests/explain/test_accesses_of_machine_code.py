"""Accesses and counts are those of the machine code, where ptxas changed the PTX's accesses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile import nvdisasm
from tests.conftest import Ran
from tests.userkernel.test_files import FOLDER, read

Runner = Callable[..., Ran]

pytestmark = [
    pytest.mark.machine_code,
    pytest.mark.skipif(nvdisasm.path() is None, reason="needs nvdisasm"),
]

SOURCE = """
__global__ void kept(const int *x, int *y) {
    __shared__ int t[64];
    t[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = t[threadIdx.x] * 3;
}
__global__ void ends(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = i < n ? x[i] : 0;
    for (int d = 1; d < 32; d *= 2) {
        int left = __shfl_up_sync(~0u, v, d);
        if ((threadIdx.x & 31) >= d) v += left;
    }
    if (i < n) y[i] = v;
}
__global__ void hands(volatile int *flag, int *y) {
    if (threadIdx.x) return;
    if (blockIdx.x) while (flag[blockIdx.x - 1] == 0);
    y[blockIdx.x] = blockIdx.x;
    __threadfence();
    flag[blockIdx.x] = 1;
}
__global__ void adds(const int *x, int *y) {
    int v = x[threadIdx.x];
    if (v % 3) atomicAdd(y + v % 4, v);
}
"""


@pytest.fixture
def result(cudabench: Runner) -> Any:
    """Return a function that runs a kernel of SOURCE in the simulator and returns its result."""
    Path("k.cu").write_text(SOURCE)

    def run(kernel: str, grid: int, *arguments: str) -> dict[str, Any]:
        words = [word for argument in arguments for word in ("--arg", argument)]
        launch = ("-k", kernel, "--grid", grid, "--block", 64)
        ran = cudabench("run", "k.cu", *launch, *words, "-d", "sim:sm_90", "--no-cpu", "--json", "r.json")
        assert ran.code == 0, ran.err
        found: dict[str, Any] = json.loads(Path("r.json").read_text())["results"][0]
        return found

    return run


@pytest.mark.slow
def test_what_ptxas_left_out_is_not_counted(result: Any) -> None:
    """A load of a value that the thread itself stored to shared memory became a register, so it is not listed."""
    rows = result("kept", 1, "x=int32[64]:i0", "y=int32[64]:zeros")["access"]
    assert [(row["space"], row["op"]) for row in rows] == [("global", "load"), ("shared", "store"), ("global", "store")]


@pytest.mark.slow
def test_constants_and_tensor_copies_stay(cudabench: Runner) -> None:
    """A constant that is an operand of an instruction, and a copy by TMA, are listed although they have no load
    instruction."""
    assert cudabench("lookup", "constant-uniform", "--size", 1000, "-d", "sim", "--json", "r.json").code == 0
    assert "constant" in {row["space"] for row in json.loads(Path("r.json").read_text())["results"][0]["access"]}
    size = ("--size", 128, 128, 128)
    assert cudabench("matmul", "tma", *size, "-d", "sim:sm_90", "--no-cpu", "--json", "r.json").code == 0
    rows = json.loads(Path("r.json").read_text())["results"][0]["access"]
    assert {("global", "load"), ("shared", "store")} <= {(row["space"], row["op"]) for row in rows}


@pytest.mark.slow
def test_a_block_after_an_exit_runs_as_often_as_its_stores(result: Any) -> None:
    """Code that ptxas moved past `if (i >= n) return` counts only for the warps that reach it: here one of eight warps
    ends, and 24 lanes of another."""
    code = result("ends", 4, "x=int32[n]:i0", "y=int32[n]:zeros", "n=200")["machine_code"]
    whole = result("ends", 4, "x=int32[n]:i0", "y=int32[n]:zeros", "n=256")["machine_code"]
    lost = 32 * whole["instructions_executed"] - code["instructions_executed"] * code["threads_per_instruction"]
    after = whole["instructions_executed"] - code["instructions_executed"]  # instructions of the warp that ended
    assert after > 4
    assert lost == pytest.approx(after * (32 + 24))
    assert code["inexact"] is None


@pytest.mark.slow
def test_who_waits_for_another_block_is_marked(result: Any) -> None:
    """A load that polls another block's flag, and the instruction count, are marked inexact with the reason."""
    found = result("hands", 4, "flag=int32[4]:zeros", "y=int32[4]:zeros")
    (load,) = (row for row in found["access"] if row["op"] == "load")
    assert load["inexact"] == "how often a lane polls depends on when another thread writes the value that it waits for"
    assert load["inexact"] in found["machine_code"]["inexact"]
    assert [row["inexact"] for row in found["access"] if row["op"] == "store"] == [None, None]


@pytest.mark.slow
def test_reductions_cost_what_meets(result: Any) -> None:
    """In a reduction, a sector counts once for each lane of the word with the most lanes; idle lanes do not count."""
    (row,) = (r for r in result("adds", 1, "x=int32[64]:i0", "y=int32[4]:zeros")["access"] if r["op"] != "load")
    lanes = [[v % 4 for v in range(first, first + 32) if v % 3] for first in (0, 32)]
    assert row["sectors"] == sum(max(map(words.count, words)) for words in lanes)


@pytest.mark.slow
def test_what_never_ran_is_not_listed(cudabench: Runner) -> None:
    """If ptxas merges the atomics of two lines, the line that never runs has no row; every row has requests."""
    file = read(FOLDER / "spinlock_list.cu")
    ran = cudabench("run", file.path, *file.run, "-d", "sim:sm_90", "--no-cpu", "--json", "r.json")
    assert ran.code == 0, ran.err
    rows = json.loads(Path("r.json").read_text())["results"][0]["access"]
    assert all(row["requests"] for row in rows)
    assert "atomic" in {row["op"] for row in rows}
