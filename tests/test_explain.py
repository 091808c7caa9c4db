"""The explanation: waste and advice, threads and banks one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.explain import accesses, advice, drawings
from cudabench.model import Access
from tests.conftest import Ran

Runner = Callable[..., Ran]


def access(space: str, op: str, actual: int, ideal: int, requests: int = 1) -> Access:
    """Return an access of 4 bytes a lane with its cost."""
    if space == "shared":
        return Access(1, "", space, op, 4, requests, wavefronts=actual, ideal_wavefronts=ideal)
    return Access(1, "", space, op, 4, requests, sectors=actual, ideal_sectors=ideal)


def test_waste_is_a_share() -> None:
    """32 sectors where 4 would do is 87.5% waste, 4 of 4 none."""
    assert accesses.cost(access("global", "store", 32, 4)).waste == pytest.approx(0.875)
    assert accesses.cost(access("shared", "load", 4, 4)).waste == 0
    assert accesses.cost(access("global", "load", 0, 0, requests=0)).waste is None


def test_totals() -> None:
    """Sums are of one space, and of one kind of access where it is named; nothing costs nothing."""
    rows = [
        access("global", "load", 8, 4, requests=2),
        access("global", "store", 32, 4),
        access("shared", "load", 3, 1),
    ]
    assert accesses.total(rows, "global") == accesses.Cost(3, 40, 8)
    assert accesses.total(rows, "global", "load") == accesses.Cost(2, 8, 4)
    assert accesses.total(rows, "global", "load").per_request == 4
    assert accesses.total(rows, "shared") == accesses.Cost(1, 3, 1)
    assert accesses.total(rows, "local").per_request is None


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            access("global", "store", 32, 4),
            "stores touch 32 sectors where 4 would do: neighbouring threads write a column",
        ),
        (access("global", "load", 5, 4), "do not start at a multiple of 32 bytes"),
        (access("global", "load", 8, 4), "with gaps between"),
        (access("shared", "load", 32, 1), "loads take 32 wavefronts where 1 would do"),
        (access("local", "load", 4, 4), "local memory lives in device memory"),
    ],
)
def test_advice(row: Access, text: str) -> None:
    """Each kind of waste has its line of advice."""
    assert text in (advice.advise(row) or "")


@pytest.mark.parametrize("space", ["global", "shared"])
def test_no_advice_without_waste(space: str) -> None:
    """An access at its best gets no advice."""
    assert advice.advise(access(space, "load", 4, 4)) is None


lanes = st.lists(st.none() | st.integers(0, 255).map(lambda word: 4 * word), min_size=32, max_size=32)


@given(lanes)
def test_wavefronts_serve_every_lane_once(addresses: list[int | None]) -> None:
    """The wavefronts drawn serve each active lane once, in its own bank, and are as many as the bank model counts."""
    import numpy as np

    from cudabench.simulator.count.banks import wavefronts

    rows = drawings.wavefronts(addresses, 4)
    served = [(lane, bank) for row in rows for bank, group in enumerate(row) for lane in group]
    wanted = [(lane, address // 4 % 32) for lane, address in enumerate(addresses) if address is not None]
    assert sorted(served) == wanted
    mask = np.array([[address is not None for address in addresses]])
    filled = np.array([[address or 0 for address in addresses]])
    assert len(rows) == wavefronts(filled, 4, mask).item()


def test_worked_example(cudabench: Runner) -> None:
    """The 3 x 4 example: thread (x, y) reads in[y, x] and writes out[x, y]."""
    ran = cudabench("explain", "transpose", "naive-row", "--size", 3, 4, "--block", 4, 3, "--threads", "--json", "-")
    assert ran.code == 0
    (result,) = ran.json["results"]
    assert len(result["threads"]) == 24
    for row in result["threads"]:
        x, y, _ = row["thread"]
        assert row["index"] == ([y, x] if row["op"] == "load" else [x, y])
        assert row["array"] == ("in" if row["op"] == "load" else "out")
    assert "(3, 2, 0)  in[2, 3]  out[3, 2]" in ran.err


def test_banks(cudabench: Runner) -> None:
    """smem at 32 x 32 reads a column: 32 wavefronts; padded it takes one."""
    for kernel, count in (("smem", 32), ("smem-pad", 1)):
        ran = cudabench("explain", "transpose", kernel, "--size", 64, "--block", 32, 32, "--banks", "--json", "-")
        (load,) = [row for row in ran.json["results"][0]["banks"] if row["op"] == "load"]
        assert len(load["passes"]) == count
        assert f"{count} wavefront" in ran.err


def test_explanation_names_line_and_waste(cudabench: Runner) -> None:
    """The table shows each access with its source line, cost, best cost and waste, then the advice."""
    ran = cudabench("explain", "transpose", "naive-row", "--size", 64)
    assert ran.code == 0
    (store,) = [line for line in ran.out.splitlines() if "global store 4 B" in line]
    assert "32.0 sectors" in store
    assert "88%" in store
    assert "out[(size_t)ix * ny + iy]" in store
    assert "neighbouring threads write a column" in ran.out
    assert "No hazards" in ran.out


def test_hazard_is_shown_with_its_line(cudabench: Runner) -> None:
    """A kernel that leaves its array is explained with line, text, block and thread, and exit code 3."""
    from pathlib import Path

    Path("over.cu").write_text(
        "__global__ void over(const float *in, float *out, int nx, int ny)\n"
        "{\n"
        "    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "    out[x * ny + y] = in[y * nx + x];\n"
        "}\n"
    )
    ran = cudabench("explain", "transpose", "--source", "over.cu", "--size", 33, 31, "--block", 32, 8)
    assert ran.code == 3
    assert "out-of-bounds, line 4" in ran.out
    assert "out[x * ny + y] = in[y * nx + x];" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["transpoze"], 2, "Did you mean 'transpose'?"),
        (["transpose", "--device", "cuda"], 2, "only the simulator sees accesses"),
        (["transpose", "smem", "--threads"], 2, "it shows 1024 at most"),
    ],
)
def test_bad_input(cudabench: Runner, words: list[str], code: int, message: str) -> None:
    """Each mistake is one sentence and its exit code."""
    ran = cudabench("explain", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
