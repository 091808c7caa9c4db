"""`cudabench sweep FILE.cu`: the space of points, refused points, the best point and its command, and resuming."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudabench import devices
from cudabench.compile.compiler import nvrtc_version
from cudabench.devices import Choice
from cudabench.errors import UsageError
from cudabench.measure.context import describe
from cudabench.plan.space import values_of
from cudabench.records.plan import Case
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import stats
from cudabench.source.brackets import split
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.space import Space, space_of
from tests.conftest import Ran
from tests.measure.test_ab import SOURCE as DOUBLES
from tests.sessions import Invented, invent

Runner = Callable[..., Ran]
simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
GPU = DeviceInfo("Fake", "cuda", "9.0", 132, 1 << 20, 4000.0, index=0, uuid="GPU-1")
SAXPY = (
    "__global__ void saxpy(int n, float a, const float *x, float *y)\n{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = a * x[i] + y[i];\n}\n"
    "template <int M, int N> __global__ void tile(const float *x, float *y, int n)\n{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = (M - M + 2) * x[i];\n}\n"
)
ARRAYS = ("--arg", "x=float32[n]:random", "--arg", "y=float32[n]:random")
WORDS = ("saxpy.cu", "-k", "saxpy", "--arg", "n=1000", "--arg", "a=2.5", *ARRAYS, "--expect", "y=a*x+y0")
PER_BLOCK = ("--grid", "cdiv(n,B)", "--block", "B")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the source files into the folder of every test."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    (tmp_path / "k.cu").write_text(DOUBLES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The space -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1,2", ["1", "2"]),
        ("normal(0,1),zeros", ["normal(0,1)", "zeros"]),
        ("(a,b)", ["(a,b)"]),
        ("'x,y',z", ["'x,y'", "z"]),
        ("it's, x", ["it's", "x"]),
        ("f<{A},{B}>,g", ["f<{A}", "{B}>", "g"]),
        ("", [""]),
    ],
)
def test_split(text: str, parts: list[str]) -> None:
    """Commas in brackets and quotes do not split a text; '<' is not a bracket, since it may be a comparison."""
    assert split(text) == parts


def test_values() -> None:
    """Lists and ranges are read; an empty, duplicate or endless one is refused with the option's name."""
    assert values_of("8, 16,32", "-D T=") == ("8", "16", "32")
    assert values_of("64..512*2", "--param B=") == ("64", "128", "256", "512")
    for text, message in (("1,,2", "empty value"), ("1,1", "1 twice"), ("8..2*2", "--param B= 8..2.*empty")):
        with pytest.raises(UsageError, match=message):
            values_of(text, "--param B=")


def space(*, parameters: Sequence[str] = (), zips: Sequence[str] = (), where: str | None = None, **own: Any) -> Space:
    """Return the space of a sweep of saxpy."""
    arguments = ("n=1000", "a=2.5", "x=float32[n]:random", "y=float32[n]:random")
    asked = UserRequest("saxpy.cu", ("saxpy",), "cdiv(n,64)", "64", arguments, ("y=a*x+y0",), "12*n")
    return space_of(replace(asked, **own), parameters, zips, where)


def test_products_zips_and_where() -> None:
    """Axes multiply, zipped axes vary together, and --where can use macros, parameters, blocks and numbers."""
    defines = {"A": "1,2", "B": "3,4", "C": "5"}
    assert [dict(v) for v in space(defines=defines).combinations()] == [
        {"A": a, "B": b} for a in ("1", "2") for b in ("3", "4")
    ]
    together = space(defines=defines, zips=["A,B"])
    assert [tuple(v.values()) for v in together.combinations()] == [("1", "3"), ("2", "4")]
    some = space(defines=defines, block="32:128", where="A*bx<=64 and n==1000 and C==5 and B>3")
    assert [v["bx"] for v in some.combinations() if v["A"] == "1"] == ["32", "64"]
    assert [v["bx"] for v in some.combinations() if v["A"] == "2"] == ["32"]


def test_a_point_asks_for_its_values() -> None:
    """A point's request has its values in place of {NAME}; parameters and block sizes become numbers."""
    made = space(
        parameters=["T=float32,float64", "M=1,2"],
        kernels=("tile<{M},2>",),
        grid="cdiv(n,bx*M)",
        block="32:64,2",
        arguments=("x={T}[n]:random,normal(0,1)", "y={T}[n]:empty", "n=int32:10,20"),
        expect=("y=2*x",),
    )
    assert [axis.name for axis in made.axes if axis.problem] == ["T", "x", "n"]
    last = made.request_at(list(made.combinations())[-1])
    assert last.kernels == ("tile<2,2>",)
    assert last.arguments == ("x=float64[n]:normal(0,1)", "y=float64[n]:empty", "n=int32:20")
    assert last.block == "64,2"
    assert last.numbers == {"M": 2, "bx": 64, "by": 2}
    own = space(block="64", defines={"A": "1,2"}, arguments=("n=1000", "bx=3"))
    assert own.request_at(next(iter(own.combinations()))).numbers == {}  # the user's name bx hides the block size
    assert made.count == 2 * 2 * 2 * 2 * 2


def test_blocks_by_themselves() -> None:
    """Without --block the sweep tries sensible blocks, with as many dimensions as --grid uses."""
    one = list(space(block=None, grid="cdiv(n,bx)").combinations())
    assert {"bx": "256"} in one
    two = list(space(block=None, grid="cdiv(n,bx),cdiv(n,by)").combinations())
    assert {"bx": "32", "by": "8"} in two
    assert all(int(v["bx"]) * int(v["by"]) <= 1024 for v in two)


def test_points_on_the_same_arguments_share_a_series() -> None:
    """Points with the same arguments share a series, so their inputs and references are computed once."""
    made = space(defines={"B": "64,128"}, block="B", arguments=("n=10,20", "a=1", *ARRAYS[1::2]))
    points = [made.point(values) for values in made.combinations()]
    assert len({id(point.series) for point in points}) == 2
    assert [point.case.block[0] for point in points] == [64, 64, 128, 128]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "A sweep has nothing to vary"),
        (
            ("--block", "64,128,256"),
            "is one block of 64 x 128 x 256 threads, and CUDA allows 1024: to try several blocks",
        ),
        (("-D", "A=1,1"), "has 1 twice"),
        (("-D", "a=1,2"), "a names two things"),
        (("--param", "M=1,2"), "is not used"),
        (("-k", "tile<{M},2>"), "but --param M is missing"),
        (("-D", "A=1,2", "--zip", "A"), "names one"),
        (("-D", "A=1,2", "-D", "C=1,2,3", "--zip", "A,C"), "different numbers of values"),
        (("-D", "A=1,2", "--zip", "A,Q"), "Q is not swept"),
        (("-D", "A=1,2", "--where", "A>2"), "does not hold for any of the 2 combinations"),
        (("-D", "A=1,2", "--where", "Z>2"), "Z"),
        (
            (
                "-D",
                "A=1..2000+1",
            ),
            "means more than 64",
        ),
        (("-D", "A=1..60+1", "-D", "C=1..60+1"), "over 2000 points"),
        (("-D", "A=1,2", "--evaluations", "9"), "needs --strategy"),
        (("--block", "2048:4096"), "out of range"),
    ],
)
def test_bad_input(cudabench: Runner, words: tuple[str, ...], message: str) -> None:
    """Each mistake gives one message and exit code 2, before a kernel runs."""
    base = [word for word in WORDS if not ("-k" in words and word in ("-k", "saxpy"))]
    launch = ("--grid", "8", *(() if "--block" in words else ("--block", "128")))
    ran = cudabench("sweep", *base, *launch, *words, "-d", "sim")
    assert (ran.code, ran.out) == (2, ""), ran.out
    assert message in ran.err


# In the simulator ----------------------------------------------------------------------------------------------------


@simulated
def test_best_is_printed_as_the_command_that_repeats_it(cudabench: Runner) -> None:
    """The file has every point with its parameters; the output lists points that cannot be launched, and a command that
    repeats the best."""
    ran = cudabench(
        "sweep", *WORDS, *PER_BLOCK, "-D", "B=64,128,2048", "--bytes", "3*4*n", "-d", "sim", "--json", "s.json"
    )
    assert ran.code == 0, ran.err
    document = json.loads(Path("s.json").read_text())
    assert [result["parameters"] for result in document["results"]] == [{"B": "64"}, {"B": "128"}]
    assert all(result["verification"]["mismatches"] == 0 for result in document["results"])
    assert "Left out: B=2048: --block 2048 has 2048 threads" in ran.out
    assert "=: the same bound, and no more waste" in ran.out
    (line,) = (line for line in ran.out.splitlines() if line.startswith("Repeat: "))
    words = shlex.split(line.removeprefix("Repeat: cudabench "))
    assert cudabench(*words).code == 0


@pytest.mark.slow
@simulated
def test_parameters_of_templates(cudabench: Runner) -> None:
    """The printed command has template arguments and block sizes as numbers, since `run` has no names for them."""
    ran = cudabench(
        *("sweep", "saxpy.cu", "-k", "tile<{M},2>", "--param", "M=1,3", "--grid", "cdiv(n,bx*1)", "--block", "32:64"),
        *("--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--arg", "n=100", "--expect", "y=2*x"),
        *("-d", "sim"),
    )
    assert ran.code == 0, ran.err
    assert "Repeat: cudabench run saxpy.cu --kernel 'tile<1,2>' --grid 'cdiv(n,32*1)' --block 32" in ran.out
    assert "\ntile, run n=100 float32" in ran.out  # the heading names no single instance


@pytest.mark.slow
@simulated
def test_a_wrong_point_is_exit_3(cudabench: Runner) -> None:
    """A wrong point is never the best and gives exit code 3; a point that does not compile is only listed."""
    Path("w.cu").write_text(
        "__global__ void f(float *y, int n) {\n#if W == 3\n#error three\n#endif\n"
        " int i = threadIdx.x; if (i < n) y[i] = W; }"
    )
    words = (
        "w.cu",
        "--grid",
        "1",
        "--block",
        "32",
        "--arg",
        "y=float32[n]:empty",
        "--arg",
        "n=32",
        "--expect",
        "y=y0*0+1",
    )
    words = tuple("y=1" if word == "y=y0*0+1" else word for word in words)
    ran = cudabench("sweep", *words, "-D", "W=2,1", "-d", "sim")
    assert ran.code == 3
    assert "Best: W=1" in ran.out
    assert "Wrong: W=2: " in ran.out
    ran = cudabench("sweep", *words, "-D", "W=3,1", "-d", "sim")
    assert ran.code == 0, ran.err
    assert "Failed: W=3: " in ran.out


# On an invented GPU --------------------------------------------------------------------------------------------------


def timed(case: Case, seconds: float, seed: int) -> Result:
    """Return a correct result with this time."""
    import numpy as np

    samples = seconds * (1 + 0.002 * np.random.default_rng(seed).standard_normal(50))
    return replace(describe(case, "cuda:0"), time=stats.summarize(samples.tolist(), "cold"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Case]]:
    """Replace sessions by ones with times from a function; return the list of cases that run."""

    def install(seconds: Callable[[Case], float], stop_at: int | None = None) -> list[Case]:
        ran: list[Case] = []

        def result(own: Invented, case: Case) -> Result:
            if len(ran) == stop_at:
                raise KeyboardInterrupt
            ran.append(case)
            return timed(case, seconds(case), len(ran))

        invent(monkeypatch, lambda choice: GPU, result)
        monkeypatch.setattr(devices, "choose", lambda text: Choice("cuda"))
        return ran

    return install


def by_block(case: Case) -> float:
    """Return a time that is shortest at 128 threads."""
    return 1e-4 * (1 + 0.1 * abs(case.block[0] / 128 - 1))


SWEPT = ("sweep", *WORDS, *PER_BLOCK, "-D", "B=64,128,256,512")


def test_a_clear_best(cudabench: Runner, fake: Callable[..., list[Case]]) -> None:
    """The output names the best point first, with its lead; the best is measured in all rounds."""
    ran = fake(by_block)
    out = cudabench(*SWEPT)
    assert out.code == 0, out.err
    assert "Best: B=128, " in out.out
    assert "No other point comes within 3%." in out.out
    assert "*: the best. =: equally fast" in out.out
    assert [case.block[0] for case in ran] == [64, 128, 256, 512, 128, 128, 128, 128]


def test_equal_points_are_said_to_be(cudabench: Runner, fake: Callable[..., list[Case]]) -> None:
    """Points whose ratio to the best may be 1 are marked as equally fast."""
    fake(lambda case: 1e-4 if case.block[0] < 500 else 2e-4)
    out = cudabench(*SWEPT).out
    assert "The same speed within the noise: B=" in out
    assert [line.split()[0] for line in out.splitlines() if line[:1] in "*=" and "µs" in line] == ["*", "=", "="]


def test_each_problem_has_its_best(cudabench: Runner, fake: Callable[..., list[Case]]) -> None:
    """Each problem size has a separate table and best point."""
    fake(
        lambda case: (
            1e-7 * case.problem.size["n"] * (1 + abs(case.block[0] - (64 if case.problem.size["n"] == 1000 else 256)))
        )
    )
    out = cudabench("sweep", *(w.replace("n=1000", "n=1000,5000") for w in WORDS), *PER_BLOCK, "-D", "B=64,256").out
    assert [line.split(",")[0] for line in out.splitlines() if line.startswith("Best: ")] == [
        "Best: B=64",
        "Best: B=256",
    ]


def test_interrupted_and_taken_up_again(cudabench: Runner, fake: Callable[..., list[Case]]) -> None:
    """An interrupted sweep names no best point; --resume measures the remaining points and names it."""
    fake(by_block, stop_at=2)
    first = cudabench(*SWEPT, "--resume", "s.json")
    assert first.code == 130
    assert "Best" not in first.out
    assert "Repeat" not in first.out
    assert "Interrupted after 2 of 4 points: the best is not known yet; --resume s.json continues." in first.out
    ran = fake(by_block)
    second = cudabench(*SWEPT, "--resume", "s.json")
    assert second.code == 0, second.err
    assert [case.block[0] for case in ran] == [256, 512, 128, 128, 128, 128]
    assert "Best: B=128" in second.out
    more = fake(by_block)
    wider = cudabench("sweep", *WORDS, *PER_BLOCK, "-D", "B=64,128,256,512,1024", "--resume", "s.json")
    assert wider.code == 0, wider.err
    assert more[0].block[0] == 1024


@pytest.mark.parametrize(
    ("change", "message"),
    [("source", "its source is not"), ("argument", "its arguments is not"), ("protocol", "its cache is not"),
     ("file", "it is not the results file of a sweep")],
)  # fmt: skip
def test_results_of_something_else(
    cudabench: Runner, fake: Callable[..., list[Case]], change: str, message: str
) -> None:
    """--resume refuses a file of another source, problem or protocol, and names the difference."""
    fake(by_block)
    assert cudabench(*SWEPT, "--resume", "s.json").code == 0
    words = [*SWEPT, "--resume", "s.json"]
    if change == "source":
        Path("saxpy.cu").write_text(SAXPY + "// changed\n")
    elif change == "argument":
        words[words.index("a=2.5")] = "a=3.5"
    elif change == "protocol":
        words += ["--cache", "hot"]
    else:
        document = json.loads(Path("s.json").read_text())
        del document["settings"]["sweep"]
        Path("s.json").write_text(json.dumps(document))
    before = Path("s.json").read_text()
    ran = cudabench(*words)
    assert ran.code == 2
    assert message in ran.err
    assert Path("s.json").read_text() == before


@pytest.mark.driver
def test_a_worker_is_fed_point_by_point(cudabench: Runner) -> None:
    """On a GPU, a point that corrupts the context fails alone."""
    ran = cudabench(
        *("sweep", "k.cu", "-k", "double_far", "-k", "double_dies", "-D", "STEP=8,1", "--grid", "8", "--block", "128"),
        *("--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--arg", "n=1000", "--expect", "y=2*x"),
        *("-d", "cuda", "--min-time", "0.02", "--max-time", "0.1", "--json", "s.json"),
    )
    assert ran.code == 0, ran.err
    assert "Best: kernel=double_far STEP=1" in ran.out
    assert "GB/s" not in ran.out.partition("Best")[0].partition("STEP")[2]
    found = json.loads(Path("s.json").read_text())["results"]
    assert [result["status"] for result in found] == ["ok", "ok", "failed", "failed"]
    assert "illegal memory access" in found[-1]["reason"]


def test_points_are_told_apart_afterwards(cudabench: Runner, fake: Callable[..., list[Case]]) -> None:
    """In comparisons and exports, a point's name includes its parameters."""
    fake(by_block)
    words = ["--grid", "8", "--block", "128", "-D", "B=64,256"]
    assert cudabench("sweep", *WORDS, *words, "--json", "s.json").code == 0
    ran = cudabench("compare", "s.json", "s.json")
    assert "saxpy B=64" in ran.out
    assert "saxpy B=256" in ran.out
    assert '"run saxpy B=64 ' in cudabench("export", "s.json", "--to", "github-benchmark").out


# A search ------------------------------------------------------------------------------------------------------------


def test_without_kernel_tuner(
    cudabench: Runner, fake: Callable[..., list[Case]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A strategy without Kernel Tuner installed gives an error with the install command."""
    import sys

    fake(by_block)
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    ran = cudabench(*SWEPT, "--strategy", "greedy_ils")
    assert ran.code == 1
    assert "pip install 'cudabench[tune]'" in ran.err


@pytest.mark.parametrize("strategy", ["greedy_ils", "genetic_algorithm", "random_sample", "bayes_opt"])
def test_search(cudabench: Runner, fake: Callable[..., list[Case]], strategy: str) -> None:
    """A strategy measures at most --evaluations points, and no point twice in the first pass."""
    pytest.importorskip("kernel_tuner")
    ran = fake(lambda case: by_block(case) * (1 + int(case.parameters["A"]) / 10 + int(case.parameters["C"]) / 10))
    words = ("-D", "A=0..9+1", "-D", "C=0..9+1", "--where", "A+C<16")
    out = cudabench(*SWEPT, *words, "--strategy", strategy, "--evaluations", "30", "--json", "s.json")
    assert out.code == 0, out.err
    found = json.loads(Path("s.json").read_text())["results"]
    points = [tuple(result["parameters"].values()) for result in found]
    assert len(points) == len(set(points)) <= 30
    assert all(int(result["parameters"]["A"]) + int(result["parameters"]["C"]) < 16 for result in found)
    assert f"of the {len(points)} points tried: " in out.out
    assert len(ran) > len(points)


@pytest.mark.gpu
def test_on_a_real_gpu(cudabench: Runner) -> None:
    """On a GPU a sweep of a file finds a best point, and the printed command repeats it."""
    big = [word.replace("n=1000", "n=4194304") for word in WORDS]
    ran = cudabench("sweep", *big, *PER_BLOCK, "-D", "B=64,128,256,2048", "--bytes", "12*n", "--min-time", "0.1")
    assert ran.code == 0, ran.err
    assert "Left out: B=2048" in ran.out
    (line,) = (line for line in ran.out.splitlines() if line.startswith("Repeat: "))
    assert cudabench(*shlex.split(line.removeprefix("Repeat: cudabench "))).code == 0
