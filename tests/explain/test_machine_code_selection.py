"""The simulator executes the machine code of kernels whose lanes diverge; if it cannot, it gives the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudabench import cli
from cudabench.compile import nvdisasm
from cudabench.explain.machine_code_selection import UNSURE
from cudabench.simulator.machine_code import forms
from cudabench.simulator.machine_code.launch import ROUNDED
from cudabench.system import native

pytestmark = [
    pytest.mark.machine_code,
    pytest.mark.skipif(
        nvdisasm.path() is None or native.library() is None, reason="needs nvdisasm and the native engine"
    ),
]

# Each lane repeats the loop as often as its x says.
LOOP = """extern "C" __global__ void k(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, s = 0;
    if (i < n) {
#pragma unroll 1
        for (int j = 0; j < x[i]; j++)
            s = s * 3 + x[j];
        y[i] = s; MORE
    }
}"""


def ran(folder: Path, source: str, x: str, *more: str) -> dict[str, Any]:
    """Return the result of a kernel; x is the initial value of the array x."""
    (folder / "k.cu").write_text(source)
    words = ["run", str(folder / "k.cu"), "--grid", "2", "--block", "64", "--arg", f"x=int32[128]:{x}"]
    words += ["--arg", "y=int32[128]:empty", "--arg", "n=100", "--no-cpu", "-d", "sim:sm_90"]
    with pytest.raises(SystemExit):
        cli.main([*words, *more, "--quiet", "--json", str(folder / "r.json")])
    found: dict[str, Any] = json.loads((folder / "r.json").read_text())["results"][0]
    return found


@pytest.mark.slow
def test_code_of_one_way_needs_no_second_run(tmp_path: Path) -> None:
    """A kernel whose lanes do not diverge is counted by its PTX, and its counts are exact."""
    source = """extern "C" __global__ void k(const int *x, int *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * 3;
    }"""
    code = ran(tmp_path, source, "5")["machine_code"]
    assert (code["counts_from"], code["counts_from_ptx_since"], code["inexact"]) == ("ptx", None, None)


@pytest.mark.slow
def test_lanes_that_part_run_the_machine_code(tmp_path: Path) -> None:
    """A kernel whose lanes have different trip counts is counted by executing its machine code."""
    code = ran(tmp_path, LOOP.replace("MORE", ""), "i0%7")["machine_code"]
    assert (code["counts_from"], code["counts_from_ptx_since"], code["inexact"]) == ("machine_code", None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "matmul -k tensor --size 100 52 200",
        "matmul -k tensor-split --size 128 128 128",
        "matmul -k wgmma --size 100 52 200",
        "pi -k fused --size 65536",
    ],
)
def test_rungs_whose_values_are_not_all_computed(tmp_path: Path, words: str) -> None:
    """The machine code counts also if products of tensor cores are stored or spilled, or if float64 holds sums of
    float32 terms that it rounds differently."""
    with pytest.raises(SystemExit):
        cli.main([*words.split(), "--no-cpu", "-d", "sim:sm_90", "--quiet", "--json", str(tmp_path / "r.json")])
    (found,) = json.loads((tmp_path / "r.json").read_text())["results"]
    code = found["machine_code"]
    assert (code["counts_from"], code["inexact"]) == ("machine_code", None)


@pytest.mark.slow
def test_what_cannot_run_is_marked(tmp_path: Path) -> None:
    """If lanes diverge and the machine code cannot be executed, its counts and rows are marked inexact with the
    reason."""
    more = "volatile int *p = new int; *p = s; s += *p; delete p;"
    found = ran(tmp_path, LOOP.replace("MORE", more), "i0%7")
    code = found["machine_code"]
    assert code["counts_from"] == "ptx"
    assert code["counts_from_ptx_since"].startswith("the machine code cannot be read: ")
    assert UNSURE in code["inexact"]
    assert code["counts_from_ptx_since"] in code["inexact"]
    assert any(row["inexact"] and row["inexact"] in code["inexact"] for row in found["access"])


@pytest.mark.slow
def test_other_results_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the machine code computes a different result from the PTX, a warning names the array."""
    monkeypatch.setitem(forms.FORMS, "LOP3", ("iadd3", "pdxxxik", 0))
    found = ran(tmp_path, LOOP.replace("MORE", "y[i] ^= 5;"), "i0%7")
    (said,) = [one for one in found["warnings"] if one["code"] == "differs"]
    assert "different results in y" in said["message"]
    assert found["machine_code"]["inexact"] is not None


@pytest.mark.slow
def test_fused_arithmetic_is_no_fault(tmp_path: Path) -> None:
    """A different rounding that changes the path of a lane makes the count inexact, and gives no warning."""
    source = """extern "C" __global__ void k(const int *x, int *y, int n) {
        int i = threadIdx.x + blockIdx.x * 64, k = 0;
        float r = 0.1f * (x[i] + 1), a = 3.7f + 0.001f * i, z = r * 0.1f;
        for (; k < 400 && (k < 100 || z < 0.5f); k++) z = a * z - a * z * z;
        y[i] = k;
    }"""
    found = ran(tmp_path, source, "i0%7")
    code = found["machine_code"]
    assert (code["counts_from"], code["counts_from_ptx_since"]) == ("ptx", f"{ROUNDED} y")
    assert code["inexact"] is not None
    assert "differs" not in {one["code"] for one in found["warnings"]}
