"""`--sizes`: several sizes in one command give one table, one results file, and one curve for each kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.errors import UsageError
from cudabench.plan.space import sizes
from cudabench.records import file as results
from tests.conftest import Ran
from tests.userkernel.test_run import ARRAYS, EXPECT, LAUNCH, NUMBERS, SAXPY, SIM

Runner = Callable[..., Ran]

simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64..512*2", (64, 128, 256, 512)),
        ("64..511*2", (64, 128, 256)),
        ("100..1000*10", (100, 1000)),
        ("3..5", (3,)),
        ("100..300+100", (100, 200, 300)),
        ("7..7*2", (7,)),
        ("33,1000,33", (33, 1000)),
        ("5", (5,)),
    ],
)
def test_ranges(text: str, expected: tuple[int, ...]) -> None:
    """A range doubles, multiplies or adds up to its end, which need not be one of its values; a list is taken as
    written."""
    assert sizes(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("64-512", "is not a range: write A..B*2"),
        ("", "is not a range"),
        ("1..2..3", "is not a range"),
        ("512..64*2", "is empty: 512 is beyond 64"),
        ("1..9*1", "never ends"),
        ("0..9*2", "never ends"),
        ("1..9+0", "never ends"),
        ("1..1000+1", "more than 64 sizes"),
        ("1..999999999999999999*2", None),
    ],
)
def test_no_ranges(text: str, message: str | None) -> None:
    """A text that is not a range is refused with an explanation; a range of 60 sizes is accepted."""
    if message is None:
        assert len(sizes(text)) == 60
        return
    with pytest.raises(UsageError, match=re.escape(message)):
        sizes(text)


@simulated
def test_one_table(cudabench: Runner) -> None:
    """The sizes are rows of one table with a column for them, and every result is in the file."""
    ran = cudabench("transpose", "-k", "naive-row", "-k", "smem", "--sizes", "32..128*2", *SIM, "--json", "r.json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("kernel ") == 1
    assert "transpose 3 sizes float32, 2 * ROWS * COLS * sizeof(T) bytes moved" in ran.out
    shown = re.findall(r"^ *\d  (\S+) +(\d+ x \d+) ", ran.out, re.M)
    wanted = [(kernel, f"{n} x {n}") for n in (32, 64, 128) for kernel in ("naive-row", "smem")]
    assert shown == wanted
    document = json.loads(Path("r.json").read_text())
    assert [(r["kernel"], r["size"]["rows"]) for r in document["results"]] == [
        (kernel, n) for n in (32, 64, 128) for kernel in ("naive-row", "smem")
    ]
    assert document["settings"]["sizes"] == "32..128*2"


@simulated
def test_baseline_and_warnings_of_all_sizes(cudabench: Runner) -> None:
    """The CPU's time is given for the first and the last size; a warning of several sizes is printed once."""
    ran = cudabench("vecadd", "naive", "--sizes", "1000..4000*2", "--block", 33, "--device", "sim")
    assert re.search(r"^CPU: numpy.add\(a, b, out=c\), 1 thread: .* to .*GB/s$", ran.out, re.M)
    assert ran.err.count("Warning") == 1
    assert "at 3 of the sizes; naive at 1000: 33 threads a block" in ran.err


@simulated
def test_reasons_name_the_size(cudabench: Runner, tmp_path: Path) -> None:
    """An error at one size alone names that size, and decides the exit code."""
    (tmp_path / "k.cu").write_text(SAXPY.replace("i < n", "i < 1000"))
    ran = cudabench("run", "k.cu", *LAUNCH, *NUMBERS, *ARRAYS, *EXPECT, *SIM, "--sizes", "n=1000,1500")
    assert ran.code == 3
    assert "saxpy at n=1500, a=2.5 wrong: 500 wrong elements" in ran.out
    assert "saxpy at n=1000" not in ran.out


@simulated
@pytest.mark.parametrize("text", ["n=1000..4000*2", "1000..4000*2"])
def test_run(cudabench: Runner, tmp_path: Path, text: str) -> None:
    """`run` takes several values of a number; --sizes needs no name if only one --arg is a whole number."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    words = ("run", "saxpy.cu", *LAUNCH, "--arg", "n=int32:1", *NUMBERS[2:], *ARRAYS, *EXPECT, *SIM)
    ran = cudabench(*words, "--sizes", text, "--json", "-", "-q")
    assert [(r["size"]["n"], r["status"], r["bytes"]) for r in ran.json["results"]] == [
        (n, "ok", 12 * n) for n in (1000, 2000, 4000)
    ]


@pytest.mark.slow
@simulated
def test_plot_of_one_file(cudabench: Runner) -> None:
    """`plot` draws a results file of several sizes over the sizes, without an option for it."""
    pytest.importorskip("matplotlib")
    cudabench("transpose", "-k", "smem*", "--sizes", "32..128*2", *SIM, "--json", "r.json", "-q")
    assert cudabench("plot", "r.json", "-o", "r.svg").code == 0
    assert "size" in Path("r.svg").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("transpose", "--sizes", "64..128*2", "--size", 64), "--size 64 and --sizes 64..128*2 both set the size"),
        (("transpose", "--sizes", "64-128"), "--sizes 64-128 is not a range"),
        (("transpose", "smem", "--sizes", "64..128*2", "--print", "status"), "prints one result, not 2 results"),
        (
            ("run", "k.cu", "--arg", "n=1", "--arg", "m=2", "--sizes", "1..4*2"),
            "needs a name: n=1..4*2; n, m are whole numbers",
        ),
        (("run", "k.cu", "--arg", "x=float32[4]:ones", "--sizes", "1..4*2"), "no --arg is a whole number"),
        (("run", "k.cu", "--arg", "n=1", "--sizes", "m=1..4*2"), "--arg m is missing; use n."),
        (("run", "k.cu", "--arg", "n=1", "--sizes", "1..4*2", "--save", "y=y.npy"), "would keep only the last array"),
    ],
)
def test_refusals(cudabench: Runner, words: tuple[object, ...], text: str) -> None:
    """Contradictory or ambiguous options are a usage error."""
    ran = cudabench(*words, "--device", "sim")
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


def test_budget_bounds_a_run(cudabench: Runner, tmp_path: Path) -> None:
    """A kernel that has not started when --budget is used up is failed with that reason, and the run's exit code is
    1."""
    ran = cudabench("transpose", "--size", "64", "-d", "sim", "--no-cpu", "--budget", "1e-6", "--json", "r.json")
    assert ran.code == 1
    assert "not measured: --budget 1e-06 s was used up" in " ".join(ran.out.split())
    file = results.load(tmp_path / "r.json")
    assert {result.status for result in file.results} == {"failed"}
    assert file.settings["budget"] == 1e-6
    assert cudabench("transpose", "-k", "smem", "--size", "64", "-d", "sim", "--no-cpu", "--budget", "60").code == 0
    assert cudabench("transpose", "-k", "smem", "-d", "sim", "--budget", "0").code == 2
