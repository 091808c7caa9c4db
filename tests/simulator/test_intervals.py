"""Races within long intervals between barriers, races of blocks on one element, and counts of consecutive launches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudabench.simulator import api as simulator

Build = Callable[[str], simulator.Program]

LONG = """
extern "C" __global__ void summed(float *out, int turns, int racy) {
    __shared__ float s[32];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < turns; i++) sum += s[i & 31];
    if (racy && threadIdx.x == 5) s[6] = sum;
    out[threadIdx.x] = sum;
}
extern "C" __global__ void stored_between(float *out, int turns) {
    __shared__ volatile float s[32];
    s[threadIdx.x] = 1;
    __syncthreads();
    float x = 0;
    #pragma unroll 1
    for (int i = 0; i < turns; i++) {
        if (threadIdx.x == 0 && i) s[0] = 1;
        if (threadIdx.x == 0) x += s[0];
    }
    if (threadIdx.x == 1) s[0] = 1;
    out[threadIdx.x] = x;
}
extern "C" __global__ void read_then_written(float *a, float *out) {
    float x = a[0];
    if (blockIdx.x == 1 && threadIdx.x == 0) a[0] = 5;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void written_then_read(float *a, float *out) {
    if (blockIdx.x == 1 && threadIdx.x == 0) a[0] = 5;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = a[0];
}
extern "C" __global__ void eliminated(float *a, int n, int row, int racy) {
    int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < n && c < n && r != row && c > 0) a[r * n + c] -= a[r * n] * a[row * n + c];
    if (racy && r < n && c == 0) a[r * n + 1] = 0;
}
extern "C" __global__ void doubled(float **rows, int n) {
    rows[blockIdx.x][threadIdx.x] *= 2;
}
extern "C" __global__ void exchanged(float **rows, int n) {
    rows[0] = rows[1];
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("racy", [0, 1])
def test_an_interval_of_many_turns(compiled: Build, racy: int) -> None:
    """A loop may read shared memory more often than the log holds: the simulator finds its race, and no race without
    one."""
    out = np.zeros(32, np.float32)
    report = simulator.run(compiled(LONG), "summed", 1, 32, [out, 6000, racy])
    assert {hazard.kind for hazard in report.hazards} == ({"race"} if racy else set())
    assert out[0] == sum(i & 31 for i in range(6000))


# Bodies of a loop in which only turn `odd` has a race.
TURNS = {
    "leaves out a barrier": "s[t] = t; if (i != odd) __syncthreads(); sum += s[t ^ 32];",
    "leaves out a synchronisation of warps": "s[t] = t; if (i != odd) __syncwarp(); sum += s[t ^ 1];",
    "reads at another place": "s[t] = t; sum += s[i == odd ? t ^ 32 : t];",
    "stores several values in one place": "s[t & 7] = i == odd ? t : i; __syncthreads(); sum += s[t & 7];",
    "stores one value later": (
        "if (t < 8) s[t] = 1; __syncwarp(); if (t == 40) s[0] = i == odd ? 2 : 1; __syncthreads(); sum += s[t & 7];"
    ),
    "reads in another warp": "s[t] = t; __syncwarp(); if (t < (i == odd ? 33 : 32)) sum += s[31 - (t & 31)];",
}


@pytest.mark.parametrize("body", TURNS.values(), ids=[*TURNS])
def test_an_interval_like_others_except_for_a_race(compiled: Build, body: str) -> None:
    """A race of one turn of a loop is found, and no race is reported without this turn."""
    program = compiled(f"""extern "C" __global__ void k(int *out, int odd) {{
        __shared__ int s[64];
        int t = threadIdx.x, sum = 0;
        #pragma unroll 1
        for (int i = 0; i < 9; i++) {{ {body} __syncthreads(); }}
        out[t] = sum;
    }}""")
    for odd, races in ((4, 1), (9, 0)):
        report = simulator.run(program, "k", 3, 64, [np.zeros(64, np.int32), odd])
        assert sum(hazard.kind == "race" for hazard in report.hazards) == races, odd


def test_a_read_after_a_store_of_the_same_value(compiled: Build) -> None:
    """A thread that reads its own store races with another thread that writes the same value there."""
    report = simulator.run(compiled(LONG), "stored_between", 1, 32, [np.zeros(32, np.float32), 2])
    assert "race" in {hazard.kind for hazard in report.hazards}


@pytest.mark.parametrize("kernel", ["read_then_written", "written_then_read"])
def test_all_threads_read_what_one_block_writes(compiled: Build, kernel: str) -> None:
    """An element that all threads read and one block writes is one race, whether the read or the write comes first."""
    report = simulator.run(compiled(LONG), kernel, 4, 64, [np.zeros(4, np.float32), np.zeros(256, np.float32)])
    assert [hazard.kind for hazard in report.hazards] == ["race"]
    assert "element 0 of 'argument 0'" in report.hazards[0].message


@pytest.mark.parametrize("racy", [0, 1])
def test_rows_that_read_one_row(compiled: Build, racy: int) -> None:
    """An elimination step that reads the pivot row and column, which no thread writes, has no race; one more store to
    an updated column is a race."""
    rng = np.random.default_rng(1)
    before = rng.random((40, 40), dtype=np.float32)
    a, expected = before.copy(), before.copy()
    expected[1:, 1:] -= before[1:, :1] * before[0, 1:]
    report = simulator.run(compiled(LONG), "eliminated", (2, 5), (32, 8), [a, 40, 0, racy])
    assert bool(report.hazards) == bool(racy)
    if not racy:
        assert np.allclose(a, expected)


def test_launches_in_a_row_tell_their_own_counts(compiled: Build) -> None:
    """Launches of one plan, which reuse earlier records, have the counts of separate launches, and merge() adds these
    counts."""
    program = compiled(LONG)
    out = np.zeros(32, np.float32)
    first, *more = (simulator.run(program, "summed", 1, 32, [out, turns, 0]) for turns in (40, 70, 40))
    assert first.accesses == more[1].accesses
    requests = [sum(a.requests for a in report.accesses if a.space == "shared") for report in (first, more[0])]
    assert requests == [41, 71]
    merged = simulator.merge([first, *more])
    assert sum(a.requests for a in merged.accesses if a.space == "shared") == 41 + 71 + 41
    lines = {line: times.warps for line, times in first.executed["summed"].items()}
    twice = simulator.merge([first, first]).executed["summed"]
    assert {line: times.warps for line, times in twice.items()} == {line: 2 * warps for line, warps in lines.items()}


def test_pointers_to_rows(compiled: Build) -> None:
    """A kernel with a `float **` parameter may write the rows of an array, but not the pointers; the number of rows is
    checked."""
    program = compiled(LONG)
    m = np.arange(24, dtype=np.float32).reshape(3, 8)
    report = simulator.run(program, "doubled", 3, 8, [simulator.Rows(m, 3, 32), 8], names=["m", "n"])
    assert not report.hazards
    assert (m == 2 * np.arange(24).reshape(3, 8)).all()
    assert "the pointers to the rows of m" in {access.array for access in report.accesses}
    beyond = simulator.run(program, "doubled", 4, 8, [simulator.Rows(m, 3, 32), 8], names=["m", "n"])
    assert "out-of-bounds" in {hazard.kind for hazard in beyond.hazards}
    with pytest.raises(simulator.KernelTrap, match="read-only"):
        simulator.run(program, "exchanged", 1, 1, [simulator.Rows(m, 3, 32), 8])
    with pytest.raises(simulator.LaunchError, match="is an array of pointers"):
        simulator.run(program, "doubled", 1, 1, [m, simulator.Rows(m, 3, 32)])
