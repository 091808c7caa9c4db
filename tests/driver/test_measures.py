"""Pairs, sweeps, cases and ceilings, with a driver that runs its launches in the simulator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import cudabench as package
from cudabench.errors import UsageError
from tests.conftest import Ran
from tests.driver.test_commands import BRIEF, GPU, ROOT, rows, subcommand

pytestmark = pytest.mark.driver
Runner = Callable[..., Ran]

RATE = r"[\d.]+ (GB/s|.?FLOP/s)|\"(bandwidth|gflops)\""
# `bad` writes out of bounds if MORE is not 0.
FILE = """
#ifndef MORE
#define MORE 0
#endif
__global__ void near(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
__global__ void wrong(const float *x, float *y, int n) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void bad(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i + ((long long)MORE << 30)] = 2 * x[i];
}
"""
N = 500
LINE = (
    "-g", "cdiv(n,128)", "-b", 128, "--arg", f"n={N}", "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty",
    "--expect", "y=2*x", "--bytes", "8*n",
)  # fmt: skip
SWEPT = ("-d", "cuda", "--min-time", "0", "--max-time", "0.05", "--min-samples", "2")
PAIRS = ("-d", "cuda", "--min-time", "0", "--max-time", 0.5)


@pytest.fixture(autouse=True)
def file(cudabench: Runner) -> None:
    """Write the kernels to the folder of every test."""
    Path("k.cu").write_text(FILE)


# Limits and views ----------------------------------------------------------------------------------------------------


def test_limits_and_views(cudabench: Runner) -> None:
    """--limits gives lower bounds from the counts; no view of the results file gives a rate of an invented time."""
    ran = cudabench(
        "matmul", "-k", "naive", "-k", "tiled", "--size", 32, 32, 32, *GPU, "--limits", "--json", "r.json",
        "--report", "r.html",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "a simulated driver invents" in ran.err
    results = json.loads(Path("r.json").read_text())["results"]
    assert all(one["limits"] and one["counted"] for one in results)
    shown = [ran.out, Path("r.html").read_text()]
    for words in (
        ("export", "r.json", "--to", "csv"), ("export", "r.json", "--to", "markdown"),
        ("export", "r.json", "--to", "github-benchmark"), ("export", "r.json", "--to", "bencher"),
        ("export", "r.json", "--to", "junit"), ("compare", "r.json", "r.json"),
    ):  # fmt: skip
        seen = cudabench(*words)
        assert seen.code == 0, (words, seen.err)
        shown.append(seen.out)
    assert "unclear" in shown[-1]
    assert "made up" in shown[-1]
    page = shown.pop(1)
    assert all("at most" in title for title in re.findall("<title>([^<]*FLOP/s[^<]*)", page))
    assert not [text for text in shown for line in text.splitlines() if re.search(RATE, line) and "peak" not in line]
    assert cudabench("plot", "r.json", "-o", "r.svg").code == 0
    assert "GB/s" not in Path("r.svg").read_text()
    assert cudabench("compare", "r.json", "r.json", "--fail-on-regression", "1%", "--strict").code == 4


# Pairs ---------------------------------------------------------------------------------------------------------------


def test_sides_that_are_not_measured(cudabench: Runner) -> None:
    """`ab` does not launch two equal codes; a side that is wrong or faults is named, and the other side is not
    timed."""
    Path("copy.cu").write_text("// A comment.\n" + FILE)
    same = cudabench("ab", "k.cu", "copy.cu", "-k", "near", *LINE, *PAIRS)
    assert (same.code, "Same code" in same.out) == (0, True), same.err
    ran = cudabench("ab", "k.cu", "-k", "near", "-k", "wrong", *LINE, *PAIRS)
    assert (ran.code, "Wrong: wrong: " in ran.out) == (3, True), ran.err
    faulty = ("--a", "-D MORE=0", "--b", "-D MORE=1")
    ran = cudabench("ab", "k.cu", "-k", "bad", *faulty, *LINE, *PAIRS)
    assert (ran.code, "Failed: -D MORE=1: " in ran.out) == (1, True), ran.err
    assert "illegal memory access" in ran.out


def test_a_pair_of_rungs_at_warm_caches(cudabench: Runner) -> None:
    """`ab` compares hot samples of two rungs of a ladder."""
    ran = cudabench("ab", "vecadd", "-k", 0, "-k", "vector", "--size", 1003, *PAIRS, "--cache", "hot")
    assert ran.code == 0, ran.err
    assert "hot L2" in ran.out


# Sweeps --------------------------------------------------------------------------------------------------------------


def test_a_sweep_of_blocks(cudabench: Runner) -> None:
    """The heat map of a rung's blocks shows times and no rates."""
    ran = cudabench("sweep", "transpose", "-k", "smem-pad", "--size", 33, "--block", "8:16", "8:16", *SWEPT)
    assert ran.code == 0, ran.err
    assert "Best" in ran.out
    assert "µs" in ran.out or "us" in ran.out
    assert "GB/s" not in ran.out.partition("verified")[0].replace("peak", "").partition("driver")[2]


# Cases of --fuzz -----------------------------------------------------------------------------------------------------


def test_cases_on_a_gpu(cudabench: Runner) -> None:
    """With --fuzz a correct kernel passes all cases; for a kernel that faults on some values, the tool finds a small
    failing case."""
    Path("z.cu").write_text(
        "".join(
            f"__global__ void {name}(int n, const float *x, float *y) {{ int i = blockIdx.x * blockDim.x + threadIdx.x;"
            f" if (i < n) y[{at}] = x[i]; }}\n"
            for name, at in (("f", "x[i] < 0 ? 1ll << 31 : i"), ("g", "i"))
        )
    )
    line = (
        "-g",
        "cdiv(n,64)",
        "-b",
        64,
        "--arg",
        "n=70",
        "--arg",
        "x=float32[n]:random",
        "--arg",
        "y=float32[n]:empty",
    )
    ran = cudabench(
        "run", "z.cu", "-k", "f", "-k", "g", *line, "--expect", "y=x", *GPU, "--json", "-", "--fuzz", 6, "--limits"
    )
    wrong, right = ran.json["results"]
    assert right["limits"], "--limits counts beside --fuzz too"
    assert (ran.code, wrong["status"], right["status"]) == (3, "wrong", "ok"), ran.err
    assert wrong["fuzz"]["failed"]["values"] == "negative"
    assert "illegal memory access" in wrong["reason"]
    assert (right["fuzz"]["cases"], right["fuzz"]["failed"]) == (6, None)


# Ceilings ------------------------------------------------------------------------------------------------------------


def test_ceilings(cudabench: Runner) -> None:
    """Every kernel of `ceilings` runs with a right result but has no value, so that `compare` refuses the file."""
    ran = cudabench("ceilings", "-d", "cuda", "--json", "c.json")
    assert ran.code == 0, ran.err
    found = {one["name"]: one for one in json.loads(Path("c.json").read_text())["ceilings"]}
    skipped = {name for name in found if name.startswith("wgmma")}
    assert {name: one["status"] for name, one in found.items()} == {
        name: "skipped" if name in skipped else "ok" for name in found
    }
    assert all(one["value"] is one["fraction"] is one["theoretical"] is None for one in found.values())
    assert all("its result is right" in one["reason"] for name, one in found.items() if name not in skipped)
    assert "GB/s" not in ran.out.replace("peak 205 GB/s", "")
    refused = cudabench("compare", "c.json", "c.json")
    assert refused.code == 2
    assert "The files share no ceiling with a value in both" in refused.err


def test_ceilings_of_hopper(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings of wgmma and of float64 tensor cores run on a card of compute capability 9.0."""
    monkeypatch.setenv("CUDABENCH_DRIVER_CARDS", "h100")
    ran = cudabench("ceilings", "-d", "cuda", "--only", "wgmma-int8", "--only", "tensor-fp64", "--json", "-", "-q")
    assert ran.code == 0, ran.err
    assert [(one["status"], one["value"]) for one in ran.json["ceilings"]] == [("ok", None)] * 2


# Libraries, cards, what is there -------------------------------------------------------------------------------------


def test_two_cards(tmp_path: Path) -> None:
    """`--device all` measures on each card, `cuda:1` on the second card; a number beyond the cards exits with 5."""
    cards = {"CUDABENCH_DRIVER_CARDS": "orin orin"}
    line = ("vecadd", "-k", "naive", "-k", "vector", "--size", 1003, *BRIEF, "--json", "-")
    ran = subcommand(*line, "-d", "all", cwd=tmp_path, **cards)
    assert ran.code == 0, ran.err
    assert [(one["device"], one["kernel"], one["status"]) for one in ran.json["results"]] == [
        (f"cuda:{card}", kernel, "ok") for card in (0, 1) for kernel in ("naive", "vector")
    ]
    assert len({one["uuid"] for one in ran.json["devices"]}) == 2
    ran = subcommand(*line, "-d", "cuda:1", cwd=tmp_path, **cards)
    assert ran.code == 0, ran.err
    assert {one["device"] for one in ran.json["results"]} == {"cuda:1"}
    ran = subcommand(*line, "-d", "cuda:2", cwd=tmp_path, **cards)
    assert ran.code == 5
    assert "GPU cuda:2 does not exist" in ran.err


def test_a_machine_without_cards(tmp_path: Path) -> None:
    """A driver without a card exits with 5 if the command line requires a GPU."""
    ran = subcommand("vecadd", "-k", 0, "--size", 100, *GPU, cwd=tmp_path, CUDABENCH_DRIVER_CARDS="")
    assert ran.code == 5
    assert "GPU" in ran.err


def test_libraries(cudabench: Runner) -> None:
    """A library that cannot run skips only its own row, which gives the reason."""
    ran = cudabench("distance", "-k", 0, "--size", 1003, "--peer", "cub", "--peer", "torch", *GPU, "--json", "-")
    assert ran.code == 0, ran.err
    kernel, *others = rows(ran).values()
    assert kernel["status"] == "ok"
    assert [one["status"] for one in others] == ["skipped"] * 3
    assert "this driver simulates one" in others[0]["reason"]


def test_a_library_of_ones_own() -> None:
    """A library's call runs once in every stream before the tool times it; a workspace that does not fit is an error of
    that call."""
    from cudabench.devices import peers
    from cudabench.devices.cuda import CudaDevice
    from cudabench.errors import DeviceError

    streams: list[int] = []
    with CudaDevice(0, primary=True) as device:
        call = peers.Call("library 1", lambda pointers: streams.append)
        work = device.bind(call, [], {})
        assert len(set(streams)) == len(streams) == call.streams
        assert device.sample([work, work], "cold") >= 0
        assert len(streams) == call.streams + 2
        with pytest.raises(DeviceError, match="workspace do not fit"):
            device._workspace(1 << 40)
        assert device._workspace(1 << 20)


def test_what_is_there(cudabench: Runner, tmp_path: Path) -> None:
    """`info` names the card as simulated; `setup-gpu` runs its first kernel and gives no rate."""
    ran = cudabench("info")
    assert ran.code == 0, ran.err
    assert "simulated Orin" in ran.out
    ran = subcommand("setup-gpu", cwd=ROOT)
    assert ran.code == 0, ran.err
    assert "simulated Orin and was verified: no GPU ran it, so the bandwidth is unknown" in ran.out
    assert "GB/s" not in ran.out


def test_from_python() -> None:
    """bench() on the simulated GPU has times and no rates, and its explanation needs the simulator."""
    found = package.bench("vecadd", 0, size=1003, max_time=0.05, cpu=False, device="cuda")
    assert found.ok
    assert found["naive"].time is not None
    assert found["naive"].bandwidth_gbps is None
    with pytest.raises(UsageError, match="simulate"):
        found.explanation()


def test_cards_beside_each_other(cudabench: Runner) -> None:
    """`fleet shard` measures on its card; `fleet report` does not rank cards by invented times."""
    ran = cudabench("fleet", "shard", "s", "--", "vecadd", "-k", "naive", "--size", 1003, *BRIEF)
    assert ran.code == 0, ran.out + ran.err
    ran = cudabench("fleet", "report", "s", "--json", "f.json")
    assert ran.code == 0, ran.out + ran.err
    document = json.loads(Path("f.json").read_text())
    assert not document.get("measurements")
