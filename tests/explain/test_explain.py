"""`explain`: waste and advice, threads and banks in detail."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.explain import accesses, drawings
from cudabench.records.results import Access, Result
from tests.conftest import Ran

Runner = Callable[..., Ran]


def access(space: str, op: str, actual: int, ideal: int, requests: int = 1) -> Access:
    """Return an access of 4 bytes per lane with its cost."""
    if space == "shared":
        return Access(1, "", space, op, 4, requests, wavefronts=actual, ideal_wavefronts=ideal)
    return Access(1, "", space, op, 4, requests, sectors=actual, ideal_sectors=ideal)


def test_waste_is_a_share() -> None:
    """32 sectors where 4 are enough is 87.5% waste; 4 of 4 is 0%."""
    assert accesses.cost(access("global", "store", 32, 4)).waste == pytest.approx(0.875)
    assert accesses.cost(access("shared", "load", 4, 4)).waste == 0
    assert accesses.cost(access("global", "load", 0, 0, requests=0)).waste is None


def test_totals() -> None:
    """A total covers one memory space, and one kind of access if given; without accesses its cost per request is
    None."""
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


lanes = st.lists(st.none() | st.integers(0, 255).map(lambda word: 4 * word), min_size=32, max_size=32)


@given(lanes)
def test_wavefronts_serve_every_lane_once(addresses: list[int | None]) -> None:
    """The drawn wavefronts serve each active lane once, in its own bank, and are as many as the bank model counts."""
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
    """In the 3 x 4 example, thread (x, y) reads in[y, x] and writes out[x, y]."""
    ran = cudabench("explain", "transpose", "naive-row", "--size", 3, 4, "--block", 4, 3, "--threads", "--json", "-")
    assert ran.code == 0
    (result,) = ran.json["results"]
    assert len(result["threads"]) == 24
    for row in result["threads"]:
        x, y, _ = row["thread"]
        assert row["index"] == ([y, x] if row["op"] == "load" else [x, y])
        assert row["array"] == ("in" if row["op"] == "load" else "out")
    assert "(3, 2, 0)  in[2, 3]  out[3, 2]" in ran.err


@pytest.mark.slow
def test_banks(cudabench: Runner) -> None:
    """smem with a 32 x 32 block reads a column in 32 wavefronts; with padding it takes 1."""
    for kernel, count in (("smem", 32), ("smem-pad", 1)):
        ran = cudabench("explain", "transpose", kernel, "--size", 64, "--block", 32, 32, "--banks", "--json", "-")
        (load,) = [row for row in ran.json["results"][0]["banks"] if row["op"] == "load"]
        assert len(load["passes"]) == count
        assert f"{count} wavefront" in ran.err


def test_explanation_names_line_and_waste(cudabench: Runner) -> None:
    """The table shows each access with source line, cost, best cost and waste; the advice follows."""
    ran = cudabench("explain", "transpose", "naive-row", "--size", 64)
    assert ran.code == 0
    (store,) = [line for line in ran.out.splitlines() if "global store 4 B" in line]
    assert "32.0 sectors" in store
    assert "88%" in store
    assert "out[(size_t)ix * ny + iy]" in store
    assert "neighbouring threads write a column" in ran.out
    assert "No hazards" in ran.out


def test_hazard_is_shown_with_its_line(cudabench: Runner) -> None:
    """A kernel with an access outside its array shows the hazard with line and source text, exit code 3."""
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
        (
            ["transpose", "smem", "-s", "64", "--threads", "--warp", "99,0"],
            2,
            "smem has only blocks 0 to 15 with warps 0 to 7",
        ),
        (["transpose", "smem", "-s", "64", "--threads", "--warp", "3"], 2, "is not a block and a warp"),
        (["transpose", "smem", "-s", "64", "--warp", "0,1"], 2, "add one of them"),
    ],
)
def test_bad_input(cudabench: Runner, words: list[str], code: int, message: str) -> None:
    """Each mistake gives one error and its exit code."""
    ran = cudabench("explain", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


# Rows, arrays, patterns ---------------------------------------------------------------------------------------------

SAXPY = """extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
ARGUMENTS = ["--grid", "cdiv(n,256)", "--block", 256, "--arg", "n=1000", "--arg", "a=2", "--arg", "x=float32[n]:ones"]
ARGUMENTS += ["--arg", "y=float32[n]:ones"]


def test_rows_are_per_array(cudabench: Runner) -> None:
    """Each row of accesses has its array, PTX instruction, pattern and merged accesses."""
    from pathlib import Path

    Path("saxpy.cu").write_text(SAXPY)
    ran = cudabench("run", "saxpy.cu", *ARGUMENTS, "--device", "sim", "--json", "-")
    (result,) = ran.json["results"]
    assert [(row["array"], row["op"]) for row in result["access"]] in (
        [("x", "load"), ("y", "load"), ("y", "store")],
        [("y", "load"), ("x", "load"), ("y", "store")],
    )
    for row in result["access"]:
        assert {"line", "source", "space", "op", "bytes", "requests", "instruction", "pattern", "merged"} <= set(row)
        assert row["pattern"]["kind"] == "contiguous"
        assert (row["pattern"]["stride_bytes"], row["pattern"]["offset_bytes"]) == (4, 0)


@pytest.mark.parametrize("suffix", [".cu", ".cuh"])
def test_files_and_long_lines(cudabench: Runner, suffix: str) -> None:
    """A file with either suffix is explained; a very long source line is cut and leaves the numbers whole."""
    from pathlib import Path

    path = Path(f"saxpy{suffix}")
    path.write_text(SAXPY.replace("y[i] = a", f"y[i] = {' + '.join(['0.0f * a'] * 30)} + a"))
    ran = cudabench("explain", path, *ARGUMENTS)
    assert ran.code == 0
    (store,) = [line for line in ran.out.splitlines() if "global store 4 B" in line]
    assert "sectors" in store
    assert store.rstrip().endswith("…")
    assert max(map(len, ran.out.splitlines())) <= 200


def test_profile_names_the_file(cudabench: Runner) -> None:
    """`explain --profile` takes the file's name from the profile."""
    from pathlib import Path

    Path("saxpy.cu").write_text(SAXPY)
    Path("p.toml").write_text(
        'file = "saxpy.cu"\n[saxpy]\ngrid = "cdiv(n,256)"\nblock = 256\n'
        'arg = ["n=1000", "a=2", "x=float32[n]:ones", "y=float32[n]:ones"]\n'
    )
    ran = cudabench("explain", "--profile", "p.toml")
    assert ran.code == 0, ran.err
    assert "run saxpy" in ran.out


def test_narrow_terminals_name_what_they_leave_out() -> None:
    """At 80 columns each line fits, cost and waste of each access are shown, and the dropped columns are named."""
    import io

    from rich.console import Console

    from cudabench.records.results import Pattern
    from cudabench.views import explanation

    row = Access(
        12, "x" * 200, "shared", "atomic", 16, 10**9, wavefronts=32 * 10**9, ideal_wavefronts=10**9,
        array="a_name_that_is_very_long_indeed", pattern=Pattern("stride", 16384, 0, 32),
    )  # fmt: skip
    stream = io.StringIO()
    explanation.print_accesses(Console(file=stream, width=80, no_color=True), [row])
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("32.0 wavefronts" in line and "97%" in line for line in lines)
    text = " ".join(lines)
    assert "Too narrow for: lanes of a warp, requests" in text
    assert "--json -" in text


def test_two_kernels_at_80_columns_keep_their_numbers() -> None:
    """At 80 columns the numbers of both kernels and the change are shown whole, and the dropped columns are named."""
    from rich.console import Console

    from cudabench.views import side_by_side

    slow = Access(84, "x", "shared", "load", 4, 2048, wavefronts=65536, ideal_wavefronts=2048, array="tile")
    fast = replace(slow, wavefronts=2048)
    results = [
        Result(operation="transpose", kernel=name, id=0, function=name, source="t.cu", size={}, dtype="float32",
               block=(32, 32, 1), grid=(1, 1, 1), device="sim", status="ok", access=(row,))
        for name, row in (("smem-unroll-pad", slow), ("smem-pad", fast))
    ]  # fmt: skip
    stream = io.StringIO()
    side_by_side.print_table(Console(file=stream, width=80, no_color=True), *results, [(slow, fast)])
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("shared load tile")]
    assert row.split()[3:] == ["wavefronts", "65", "536", "2", "048", "<-", "32", "times", "fewer"]
    assert "lanes of a warp, requests, counts per request" in lines[-2]


def test_a_change_of_all_requests_says_so() -> None:
    """If the kernels have different numbers of requests, the text compares all of them: a request may cost less while
    all cost more. Narrow terminals show the numbers that the text compares."""
    from rich.console import Console

    from cudabench.views import side_by_side

    few = Access(84, "x", "global", "store", 4, 2, sectors=8, ideal_sectors=8)
    many = replace(few, requests=64, sectors=64)
    assert side_by_side.change_text(few, many) == "<- 8.0 times more sectors in all"
    assert side_by_side.change_text(few, replace(few, sectors=64)) == "<- 8.0 times more sectors"
    result = Result(operation="run", kernel="k", id=0, function="k", source="k.cu", size={}, dtype="float32",
                    block=(32, 1, 1), grid=(1, 1, 1), device="sim", status="ok")  # fmt: skip
    shown = {}
    for width in (80, 160):
        stream = io.StringIO()
        side_by_side.print_table(Console(file=stream, width=width, no_color=True), result, result, [(few, many)])
        (shown[width],) = [line for line in stream.getvalue().splitlines() if line.startswith("global store")]
    assert shown[80].split()[2:] == ["sectors", "8", "64", "<-", "8.0", "times", "more"]
    assert "4.00 sectors" in shown[160]
    assert "1.00 sectors" in shown[160]


# Threads, banks, two kernels ----------------------------------------------------------------------------------------


def test_threads_of_a_warp_with_elements_and_banks(cudabench: Runner) -> None:
    """The table of a warp shows each thread with its element of the tile and bank, for stores and loads."""
    words = ["explain", "transpose", "smem", "--size", 64, 64, "--block", 32, 32]
    ran = cudabench(*words, "--threads", "--warp", "0,1", "--json", "-")
    assert ran.code == 0
    (result,) = ran.json["results"]
    tile = [row for row in result["threads"] if row["array"] == "tile"]
    assert {(row["op"], tuple(row["index"]), row["bank"]) for row in tile} == {
        *(("store", (1, x), x) for x in range(32)),
        *(("load", (x, 1), 1) for x in range(32)),
    }
    assert {tuple(row["thread"][:2]) for row in result["threads"]} == {(x, 1) for x in range(32)}
    line = next(line for line in ran.err.splitlines() if line.startswith("(5, 1, 0)"))
    assert line.split() == [
        "(5,",
        "1,",
        "0)",
        "in[1,",
        "5]",
        "tile[1,",
        "5]",
        "5",
        "tile[5,",
        "1]",
        "1",
        "out[1,",
        "5]",
    ]
    assert "32-way bank conflict" in ran.err


def test_large_problems_show_the_first_warp(cudabench: Runner) -> None:
    """Without --warp a large problem shows warp 0 of block 0."""
    ran = cudabench("explain", "transpose", "smem", "--size", 256, "--threads", "--json", "-")
    assert ran.code == 0
    rows = ran.json["results"][0]["threads"]
    assert {tuple(row["block"]) for row in rows} == {(0, 0, 0)}
    assert len({tuple(row["thread"]) for row in rows}) == 32


def test_banks_of_any_warp_in_words(cudabench: Runner) -> None:
    """The banks are drawn for the requested warp, with the conflict in words."""
    ran = cudabench("explain", "transpose", "smem", "--size", 64, "--banks", "--warp", "3,5", "--json", "-")
    requests = ran.json["results"][0]["banks"]
    assert {(tuple(row["block"]), row["warp"]) for row in requests} == {((1, 1, 0), 5)}
    assert "by warp 5 of block (1, 1, 0): 8-way bank conflict, 8 wavefronts where 1 would do" in ran.err


def test_banks_of_every_request(cudabench: Runner) -> None:
    """Requests of a loop that use different banks are each drawn, with their number."""
    from pathlib import Path

    Path("k.cu").write_text(
        'extern "C" __global__ void k(float *out, int n) {\n    __shared__ float s[1024];\n'
        "    for (int d = 1; d < n; d *= 2) {\n        s[threadIdx.x * d] = d;\n        __syncthreads();\n    }\n"
        "    out[threadIdx.x] = s[threadIdx.x];\n}\n"
    )
    ran = cudabench(
        "explain", "k.cu", "--grid", 1, "--block", 32, "--arg", "out=float32[32]:zeros", "--arg", "n=17", "--banks"
    )
    assert ran.code == 0, ran.err
    for number, degree in ((2, 2), (3, 4), (4, 8), (5, 16)):
        assert f"request {number}: {degree}-way bank conflict" in ran.out


@pytest.mark.slow
def test_two_kernels_side_by_side(cudabench: Runner) -> None:
    """Two kernels are shown side by side: changes are marked, and the banks explain why one element of padding
    helps."""
    ran = cudabench("explain", "transpose", "-k", "smem", "-k", "smem-pad", "--size", 64, 64, "--block", 32, 32)
    assert ran.code == 0
    lines = ran.out.splitlines()
    (load,) = [line for line in lines if line.startswith("shared load tile  ")]
    assert "32.0 wavefronts" in load
    assert "<- 32 times fewer wavefronts" in load
    (same,) = [line for line in lines if line.startswith("global load in")]
    assert "<-" not in same
    assert "a row of tile takes 32 words: each row begins in the same bank" in ran.out
    assert "a row of tile takes 33 words: each row begins 1 bank further" in ran.out
    assert "32-way bank conflict: 32 wavefronts instead of 1" in ran.out
    assert "no bank conflict: 1 wavefront" in ran.out


@pytest.mark.slow
@pytest.mark.machine_code
def test_atomics_are_named_by_what_they_do(cudabench: Runner) -> None:
    """Atomics that all go to one word are reported with array and count; a histogram gets advice to use shared
    memory."""
    from pathlib import Path

    Path("a.cu").write_text(
        'extern "C" __global__ void hist(unsigned *bins, const unsigned char *in) {\n'
        "    atomicAdd(&bins[in[blockIdx.x * blockDim.x + threadIdx.x]], 1u);\n}\n"
        'extern "C" __global__ void total(unsigned *bins, const unsigned char *in) {\n'
        "    atomicAdd(bins, (unsigned)in[blockIdx.x * blockDim.x + threadIdx.x]);\n}\n"
    )
    said = {}
    for kernel in ("hist", "total"):
        words = ["-k", kernel, "--grid", 64, "--block", 256, "--arg", "bins=uint32[256]:zeros"]
        ran = cudabench("explain", "a.cu", *words, "--arg", "in=uint8[16384]:integers(0,4)", "--json", "-")
        assert ran.code == 0, ran.err
        (said[kernel],) = [row["advice"] for row in ran.json["results"][0]["access"] if row["op"] == "reduction"]
    assert "atomics on bins: " in said["hist"]
    assert "a copy of its 1 024 bytes in shared memory" in said["hist"]
    # ptxas adds the lanes of a warp first, so that one lane executes the atomic.
    assert "bins: 512 atomics from 64 blocks hit one address" in said["total"]
    assert "although the compiler combines the lanes of each warp" in said["total"]


@pytest.mark.slow
@pytest.mark.machine_code
@pytest.mark.parametrize("read", [True, False], ids=["machine code", "PTX"])
def test_what_the_driver_does_is_never_exact(cudabench: Runner, monkeypatch: pytest.MonkeyPatch, read: bool) -> None:
    """The counts of a kernel that calls malloc have a ~ and a reason, in the summary, in `run`'s table and in the JSON,
    also without nvdisasm; heap accesses get no advice."""
    if not read:
        monkeypatch.setattr("cudabench.compile.nvdisasm.path", lambda: None)
    source = """__global__ void heap(int *x) {
        int *p = (int *)malloc(sizeof(int));
        *p = x[threadIdx.x];
        x[threadIdx.x] = *p + 1;
        free(p);
    }"""
    words = ["-g", "1", "-b", "32", "--arg", "x=int32[32]:arange", "--expect", "x=x0+1"]
    Path("heap.cu").write_text(source)
    shown = cudabench("explain", "heap.cu", *words)
    said = " ".join(shown.out.split())
    assert re.search(r"~\d+ warp instructions", said)
    assert "hardware may execute more or fewer: what malloc and free do is the driver's own code" in said
    assert "~ line 3: hardware may count otherwise: the driver decides where on the heap malloc" in said
    assert "would do" not in said
    found = json.loads(cudabench("explain", "heap.cu", *words, "--json", "-").out)["results"][0]
    assert "malloc and free" in found["machine_code"]["inexact"]
    assert [row["inexact"] is not None for row in found["access"]] == [row["array"] != "x" for row in found["access"]]
    assert re.search(r"^heap .* ~\d+ ", cudabench("run", "--device", "sim", "heap.cu", *words).out, re.MULTILINE)


def test_a_block_with_more_to_do_is_named(cudabench: Runner) -> None:
    """If later blocks execute more than earlier ones, the busiest block and its line are named; with the long rows
    first, the advice does not call them late."""
    from pathlib import Path

    Path("rows.cu").write_text(
        "__global__ void rows(const float *a, float *s, int n, int backwards)\n"
        "{\n"
        "    int row = backwards ? n - 1 - blockIdx.x : blockIdx.x;\n"
        "    float sum = 0;\n"
        "    for (int c = threadIdx.x; c <= row; c += blockDim.x)\n"
        "        sum += a[row * n + c];\n"
        "    atomicAdd(&s[row], sum);\n"
        "}\n"
    )
    command = ("explain", "rows.cu", "--grid", "n", "--block", "32", "--arg", "a=float32[n,n]:ones")
    command = (*command, "--arg", "s=float32[n]:zeros", "--arg", "n=1024", "--device", "sim")
    ran = cudabench(*command, "--arg", "backwards=0")
    assert "block (992, 0, 0) executes 1.8" in ran.out
    assert "most of the difference at line 6" in " ".join(ran.out.split())
    assert "these last, and finished SMs wait" in " ".join(ran.out.split())
    ran = cudabench(*command, "--arg", "backwards=1", "--json", "-")
    found = json.loads(ran.out)["results"][0]["imbalance"]
    assert (found["busiest"], found["last"], found["line"], found["blocks"]) == ([0, 0, 0], False, 6, 1024)
    assert found["source"] == "sum += a[row * n + c];"
    assert "all blocks run at once" in found["advice"]
    ran = cudabench("explain", "transpose", "naive-row", "--size", 256, "--json", "-")
    assert json.loads(ran.out)["results"][0]["imbalance"] is None
