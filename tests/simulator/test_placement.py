"""Simulated addresses of arrays: they depend on the case, not on the host's addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.simulator import api as simulator
from cudabench.simulator.program import arguments
from tests.conftest import Ran

SOURCE = """
extern "C" __global__ void pick(float *out, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float *from = threadIdx.x % 2 ? a : b;
    if (i < n) out[i] = from[i];
}
extern "C" __global__ void keep(const float **table, const float *a) { table[0] = a; }
extern "C" __global__ void fetch(float *out, const float *const *table) { out[threadIdx.x] = table[0][threadIdx.x]; }
"""
OTHER = """
__device__ int calls;
extern "C" __global__ void fetch(float *out, const float *const *table) {
    if (!threadIdx.x) calls++;
    out[threadIdx.x] = table[0][threadIdx.x];
}
"""

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.fixture(scope="module")
def program() -> simulator.Program:
    """Return the program of the kernels above."""
    return simulator.load(compile_ptx(SOURCE, "placement.cu").ptx)


def test_the_hosts_addresses_do_not_matter(program: simulator.Program) -> None:
    """A request to two arrays has the same sectors and pattern for every order of the arrays in the host's memory."""
    pool = np.zeros((3, 1024), np.float32)
    seen = set()
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        out, a, b = (pool[place] for place in order)
        a[:512] = 1
        report = simulator.run(program, "pick", 4, 128, [out, a, b, 512])
        seen.add(tuple((row.array, row.sectors, row.patterns) for row in report.accesses))
        pool[:] = 0
    assert len(seen) == 1
    assert {row[0] for row in seen.pop()} == {"argument 0", "argument 1, argument 2"}


def test_arrays_that_share_memory_share_addresses(program: simulator.Program) -> None:
    """An argument that is a part of another array has addresses within that array, even if it is the earlier
    argument."""
    whole = np.arange(64, dtype=np.float32)
    report = simulator.run(program, "pick", 1, 32, [whole[32:], whole, whole[:32], 32])
    np.testing.assert_array_equal(whole[32:], whole[:32])
    assert not report.hazards
    assert {row.array for row in report.accesses} == {"argument 1"}


@pytest.mark.parametrize("other", [SOURCE, OTHER], ids=["same program", "another program"])
def test_a_stored_pointer_is_good_in_the_next_launch(other: str, program: simulator.Program) -> None:
    """A pointer that one launch stores is valid in the next launch if `beside` lists the arrays of both, even if the
    array is not an argument there."""
    second = simulator.load(compile_ptx(other, "other.cu").ptx)
    arrays = {"out": np.zeros(32, np.float32), "table": np.zeros(1, np.uint64), "a": np.arange(32, dtype=np.float32)}
    how = {"beside": arrays, "first_slot": max(program.slots, second.slots)}
    simulator.run(program, "keep", 1, 1, [arrays["table"], arrays["a"]], **how)
    report = simulator.run(second, "fetch", 1, 32, [arrays["out"], arrays["table"]], **how)
    assert not report.hazards
    np.testing.assert_array_equal(arrays["out"], arrays["a"])


def test_two_runs_print_the_same(
    tmp_path: Path, cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`explain` prints the same text if the host places the arrays at other addresses in another order."""
    (tmp_path / "pick.cu").write_text(SOURCE)
    words = ["--kernel", "pick", "--grid", "4", "--block", "128", "--arg", "out=float32[512]:zeros"]
    words += ["--arg", "a=float32[512]:random", "--arg", "b=float32[512]:random", "--arg", "n=512"]
    first = cudabench("explain", tmp_path / "pick.cu", *words)
    pool = np.empty((16, 1 << 16), np.uint8)
    places = iter((9, 3, 12, 1, 14, 5, 8, 2))
    place_arrays = arguments.place_arrays
    moved: list[int] = []

    def elsewhere(space, arrays, beside=()):  # type: ignore[no-untyped-def]
        """Place copies of the arrays, which have other host addresses in another order."""
        copies = {}
        for name, array in arrays:
            piece = pool[next(places)][: array.nbytes].view(array.dtype).reshape(array.shape)
            piece[...] = array
            copies[id(array)] = (name, piece)
        moved.append(len(copies))
        found = place_arrays(space, list(copies.values()), beside)
        return {own: found[id(piece)] for own, (_, piece) in copies.items()}

    monkeypatch.setattr(arguments, "place_arrays", elsewhere)
    again = cudabench("explain", tmp_path / "pick.cu", *words)
    assert moved
    assert (first.code, first.out) == (again.code, again.out) == (0, first.out)
