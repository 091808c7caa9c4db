"""`run --fuzz`: correct kernels pass for all inputs and sizes; for a wrong kernel it finds a small failing case and a
command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.devices import Choice
from cudabench.errors import UsageError
from cudabench.measure import fuzz, precision, session
from cudabench.measure.session import SilentProgress
from cudabench.records.plan import Settings
from cudabench.userkernel import plan
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.values import TYPES, Array
from tests.conftest import Ran

Runner = Callable[..., Ran]

simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
SIM = ("--device", "sim", "--no-cpu", "--json", "-")
GPU = ("--device", "cuda", "--no-cpu", "--min-time", "0.05", "--json", "-")
ONE = ("--grid", "cdiv(n,256)", "--block", 256, "--arg", "n=1000")

# Right kernels -------------------------------------------------------------------------------------------------------

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def elementwise(ctype: str, body: str) -> str:
    """Return a kernel with one thread per element of x and y."""
    return (
        "#include <cuda_fp16.h>\n"
        f"__global__ void f(int n, const {ctype} *x, {ctype} *y) {{ {HEAD} if (i < n) {{ {body} }} }}\n"
    )


def one_array(dtype: str, expect: str, start: str = "empty") -> tuple[object, ...]:
    """Return the options for such a kernel."""
    return (*ONE, "--arg", f"x={dtype}[n]:random", "--arg", f"y={dtype}[n]:{start}", "--expect", expect)


ROWS = ("--grid", "rows", "--block", 32, "--arg", "rows=20", "--arg", "cols=100")
SUM = """
__global__ void f(int n, const float *x, float *y) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i];
    y[0] = sum;
}
"""
ATOMIC_SUM = f"__global__ void f(int n, const float *x, float *y) {{ {HEAD} if (i < n) atomicAdd(y, x[i]); }}"
MATMUL = """
__global__ void f(int m, int k, int n, const float *a, const float *b, float *c) {
    __shared__ float s[16][16], t[16][16];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int p = 0; p < k; p += 16) {
        s[threadIdx.y][threadIdx.x] = y < m && p + threadIdx.x < k ? a[y * k + p + threadIdx.x] : 0;
        t[threadIdx.y][threadIdx.x] = x < n && p + threadIdx.y < k ? b[(p + threadIdx.y) * n + x] : 0;
        __syncthreads();
        for (int q = 0; q < 16; ++q) sum += s[threadIdx.y][q] * t[q][threadIdx.x];
        __syncthreads();
    }
    if (x < n && y < m) c[y * n + x] = sum;
}
"""
SOFTMAX = """
__global__ void f(int rows, int cols, const float *x, float *y) {
    const float *in = x + blockIdx.x * cols;
    float most = -INFINITY, sum = 0;
    for (int j = 0; j < cols; ++j) most = fmaxf(most, in[j]);
    for (int j = 0; j < cols; ++j) sum += expf(in[j] - most);
    for (int j = threadIdx.x; j < cols; j += 32) y[blockIdx.x * cols + j] = expf(in[j] - most) / sum;
}
"""
LAYERNORM = """
__global__ void f(int rows, int cols, const float *x, float *y) {
    const float *in = x + blockIdx.x * cols;
    float mean = 0, var = 0;
    for (int j = 0; j < cols; ++j) mean += in[j] / cols;
    for (int j = 0; j < cols; ++j) var += (in[j] - mean) * (in[j] - mean) / cols;
    for (int j = threadIdx.x; j < cols; j += 32) y[blockIdx.x * cols + j] = (in[j] - mean) * rsqrtf(var + 1e-5f);
}
"""
NORM = "(x-np.mean(x,axis=1,keepdims=1))/np.sqrt(np.var(x,axis=1,keepdims=1)+1e-5)"
GATHER = f"__global__ void f(int n, const float *x, const int *at, float *y) {{ {HEAD} if (i < n) y[i] = x[at[i]]; }}"
UNGUARDED = f"__global__ void f(int n, const float *x, float *y) {{ {HEAD} y[i] = x[i] + 1; }}"
STRIDED = """
__global__ void f(int n, const float *x, float *y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] * x[i];
}
"""
MATRICES = ("--arg", "a=float32[m,k]:random", "--arg", "b=float32[k,n]:random", "--arg", "c=float32[m,n]:empty")
TABLE = ("--arg", "x=float32[rows,cols]:random", "--arg", "y=float32[rows,cols]:empty", "--expect")


def total(start: str) -> tuple[str, ...]:
    """Return the options for a sum."""
    return ("--arg", "x=float32[n]:random", "--arg", f"y=float32[1]:{start}", "--expect", "y=np.sum(x)")


RIGHT: dict[str, tuple[str, tuple[object, ...]]] = {
    "saxpy": (elementwise("float", "y[i] = 2.5f * x[i] + y[i];"), one_array("float32", "y=2.5*x+y0", "random")),
    "cancellation": (elementwise("float", "y[i] = x[i] - y[i];"), one_array("float32", "y=x-y0", "random")),
    "half": (
        elementwise("half", "y[i] = __hadd(__hmul(x[i], x[i]), y[i]);"),
        one_array("float16", "y=x*x+y0", "random"),
    ),
    "root": (elementwise("float", "y[i] = sqrtf(x[i]);"), one_array("float32", "y=np.sqrt(x)")),
    "sigmoid": (elementwise("float", "y[i] = 1 / (1 + expf(-x[i]));"), one_array("float32", "y=1/(1+np.exp(-x))")),
    "gelu": (
        elementwise("float", "y[i] = .5f * x[i] * (1 + tanhf(.79788456f * (x[i] + .044715f * x[i] * x[i] * x[i])));"),
        one_array("float32", "y=0.5*x*(1+np.tanh(0.7978845608*(x+0.044715*x*x*x)))"),
    ),
    "sine": (elementwise("float", "y[i] = sinf(x[i]);"), one_array("float32", "y=np.sin(x)")),
    "reciprocal": (elementwise("float", "y[i] = 1 / x[i];"), one_array("float32", "y=1/x")),
    "log": (elementwise("float", "y[i] = logf(x[i] + 1);"), one_array("float32", "y=np.log(x+1)")),
    "relu": (elementwise("float", "y[i] = fmaxf(x[i], 0);"), one_array("float32", "y=np.fmax(x,0)")),
    "double": (elementwise("double", "y[i] = x[i] * 3 - y[i];"), one_array("float64", "y=3*x-y0", "random")),
    "wrapping": (
        elementwise("int", "y[i] = (int)(3u * (unsigned)x[i] + 7u);"), one_array("int32", "y=3*x+7")
    ),
    "average": (
        elementwise("unsigned char", "y[i] = (x[i] + y[i]) / 2;"), one_array("uint8", "y=(x+y0)//2", "random")
    ),
    "quotient": (elementwise("int", "y[i] = y[i] ? x[i] % y[i] : 5;"),
                 one_array("int32", "y=np.where(y0==0,5,np.fmod(x,np.where(y0==0,1,y0)))", "random")),
    "sum in order": (SUM, ("--grid", 1, "--block", 1, "--arg", "n=5000", *total("empty"))),
    "atomic sum": (ATOMIC_SUM, (*ONE, *total("zeros"))),
    "matmul": (
        MATMUL,
        ("--grid", "cdiv(n,16),cdiv(m,16)", "--block", "16,16", "--arg", "m=40", "--arg", "k=300", "--arg", "n=50",
         *MATRICES, "--expect", "c=a@b"),
    ),
    "softmax": (SOFTMAX, (*ROWS, *TABLE, "y=np.exp(x-np.max(x,axis=1,keepdims=1))/np.sum(np.exp(x-np.max(x,axis=1,"
                          "keepdims=1)),axis=1,keepdims=1)")),
    "layer norm": (LAYERNORM, (*ROWS, *TABLE, f"y={NORM}")),
    "gather": (
        GATHER,
        (*ONE, "--arg", "x=float32[n]:random", "--arg", "at=int32[n]:random", "--arg", "y=float32[n]:empty",
         "--expect", "y=x[at]"),
    ),
    "whole blocks": (UNGUARDED, ("--grid", "n//256", "--block", 256, "--arg", "n=1024",
                                 "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--expect", "y=x+1")),
    "strided": (STRIDED, ("--grid", 2, "--block", 64, "--arg", "n=1000",
                          "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--expect", "y=x*x")),
}  # fmt: skip


LONGER = ("matmul", "layer norm", "softmax", "gather", "sum in order")  # a second or longer
FEW_AND_MANY = [(name, 5) for name in RIGHT if name not in LONGER]
FEW_AND_MANY += [pytest.param(name, 20, marks=pytest.mark.slow) for name in RIGHT]


@pytest.mark.sampled(24)
@simulated
@pytest.mark.parametrize(("name", "number"), FEW_AND_MANY)
def test_a_right_kernel_stays_right(name: str, number: int, cudabench: Runner) -> None:
    """A kernel that computes its expectation passes every fuzz case, despite rounding, overflow and odd sizes."""
    text, options = RIGHT[name]
    Path("k.cu").write_text(text)
    ran = cudabench("run", "k.cu", *options, *SIM, "--fuzz", number)
    record = ran.json["results"][0]["fuzz"]
    assert ran.code == 0, (record, ran.err)
    assert record["cases"] >= number * 2 // 3, record


# Wrong ones ----------------------------------------------------------------------------------------------------------

WRONG = {
    "tail": ("if (i < n / 32 * 32) y[i] = x[i] + 1;", "y=x+1", "random"),
    "sign": ("if (i < n) y[i] = x[i] < 0 ? 7 : x[i];", "y=x", "negative"),
    "equal": ("if (i + 1 < n) y[i] = x[i] == x[i + 1] ? 9 : x[i]; else if (i < n) y[i] = x[i];", "y=x", "ties"),
}


@pytest.mark.sampled(3)
@simulated
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_made_small_and_repeats(name: str, cudabench: Runner) -> None:
    """A kernel that is right on its default inputs fails a fuzz case; the case is shrunk, and the printed command
    reproduces the failure."""
    body, expect, values = WRONG[name]
    Path("k.cu").write_text(f"__global__ void f(int n, const float *x, float *y) {{ {HEAD} {body} }}\n")
    line = ("run", "k.cu", *ONE[:-1], "n=1024", *one_array("float32", expect)[len(ONE) :], *SIM)
    assert cudabench(*line).code == 0
    ran = cudabench(*line, "--fuzz", 12)
    result = ran.json["results"][0]
    assert (ran.code, result["status"]) == (3, "wrong")
    failed, command = result["fuzz"]["failed"], result["fuzz"]["command"]
    if values != "ties":
        assert failed["values"] == values
    assert failed["sizes"]["n"] <= (31 if values == "ties" else 3)
    assert "To repeat it" in ran.err
    words = shlex.split(command)
    assert words[:2] == ["cudabench", "run"]
    again = cudabench(*words[1:])
    assert again.code == 3, again.out + again.err


LARGEST = """__global__ void f(int n, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  if (AS_INT) atomicMax((int *)y, __float_as_int(v)); else atomicMin((unsigned *)y, __float_as_uint(v));
}
"""


@pytest.mark.sampled(3)
@simulated
@pytest.mark.parametrize(
    ("as_int", "values"), [("true", "negative"), ("v >= 0", "not-positive"), ("!signbit(v)", None)]
)
def test_a_largest_float_by_atomics_on_whole_numbers(as_int: str, values: str | None, cudabench: Runner) -> None:
    """Four fuzz cases find a float maximum by integer atomics that is wrong for negative numbers or -0.0, and pass the
    correct one."""
    Path("k.cu").write_text(LARGEST.replace("AS_INT", as_int))
    given = ("--arg", "n=1000", "--arg", "x=float32[n]:random", "--arg", "y=float32[1]:full(-1e30)")
    line = ("run", "k.cu", "--grid", "cdiv(n,64)", "--block", "64", *given, "--expect", "y=np.max(x)", *SIM)
    ran = cudabench(*line, "--fuzz", 4)
    failed = ran.json["results"][0]["fuzz"]["failed"]
    assert (ran.code, failed and failed["values"]) == (3 if values else 0, values)


@pytest.mark.sampled(2)
@simulated
@pytest.mark.parametrize(("body", "expect"), [("y[i] = x[i] + 0.0f;", "y=x"), ("y[i] = 1 / (x[i] + 0.0f);", "y=1/x")])
def test_the_sign_of_a_zero_is_no_fault(body: str, expect: str, cudabench: Runner) -> None:
    """Zeros of either sign are equal; values whose expected result depends on the sign of a zero are undecided."""
    Path("k.cu").write_text(f"__global__ void f(int n, const float *x, float *y) {{ {HEAD} if (i < n) {body} }}\n")
    line = ("run", "k.cu", *ONE, *one_array("float32", expect)[len(ONE) :], *SIM, "--fuzz", 4)
    ran = cudabench(*line)
    undecided = [one["values"] for one in ran.json["results"][0]["fuzz"]["undecided"]]
    assert (ran.code, undecided) == (0, ["signed-zero", "not-positive"] if "1" in expect else []), ran.err


@simulated
def test_where_says_which_sizes_are_meant(cudabench: Runner) -> None:
    """A kernel for multiples of 32 fails without --where and passes with it; a bad --where is refused."""
    body = WRONG["tail"][0]
    Path("k.cu").write_text(f"__global__ void f(int n, const float *x, float *y) {{ {HEAD} {body} }}\n")
    line = ("run", "k.cu", *ONE[:-1], "n=1024", *one_array("float32", "y=x+1")[len(ONE) :], *SIM, "--fuzz", 8)
    assert cudabench(*line).code == 3
    assert cudabench(*line, "--where", "n%32==0").code == 0
    for extra, message in (
        (("--where", "n%3==0"), "does not hold for the arguments given"),
        (("--where", "q==0"), "'q' is unknown here"),
    ):
        ran = cudabench(*line, *extra)
        assert ran.code == 2
        assert message in ran.err


@simulated
def test_what_cannot_be_fuzzed_is_refused(cudabench: Runner) -> None:
    """--fuzz without --expect, and --where without --fuzz, are refused with the repair."""
    Path("k.cu").write_text(elementwise("float", "y[i] = x[i];"))
    line = ("run", "k.cu", *ONE, "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", *SIM)
    ran = cudabench(*line, "--fuzz", 3)
    assert ran.code == 2
    assert "--fuzz needs the outputs for other inputs: add --expect" in ran.err
    assert "add --fuzz K" in cudabench(*line, "--where", "n>0").err


@simulated
def test_undecided_values_are_said(cudabench: Runner) -> None:
    """For the square root of negative numbers, file and terminal name the undecided class of values with the reason."""
    text, options = RIGHT["root"]
    Path("k.cu").write_text(text)
    ran = cudabench("run", "k.cu", *options, *SIM, "--fuzz", 3)
    (undecided, *_) = ran.json["results"][0]["fuzz"]["undecided"]
    assert undecided["values"] == "negative"
    assert "root of a negative number" in undecided["reason"]
    assert "fuzz: negative values were not used" in " ".join(ran.err.split())


# What is varied ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("values", fuzz.CLASSES)
def test_every_class_is_a_start_of_the_command_line(dtype: str, values: str) -> None:
    """Each class of values gives, for each type and up to three dimensions, an --arg text that fills the array."""
    from cudabench.userkernel.values import CONSTANTS, read_start

    for shape in ((5,), (1,), (3, 40), (2, 3, 7)):
        text = fuzz.initial_values(values, Array("x", dtype, shape, "random"), 3)
        rule = read_start(text, dtype, shape, "--arg x", CONSTANTS)
        array = Array("x", dtype, shape, rule.word, rule=rule).make(3, 0)
        assert array.shape == shape
        if values == "spike" and dtype != "bool":
            assert np.count_nonzero(array) == 1


def fuzzed(arguments: tuple[str, ...], grid: str, expect: tuple[str, ...], where: str | None = None) -> fuzz.Fuzz:
    """Return the fuzzing of a kernel with arrays x, at and y."""
    Path("k.cu").write_text("__global__ void f(int n, int m, const float *x, const int *at, float *y) {}\n")
    return fuzz.Fuzz(UserRequest("k.cu", ("f",), grid, "256", arguments, expect), Choice("sim"), Settings(), 4, where)


ARGUMENTS = ("n=1024", "m=n/2", "x=float32[n]:random", "at=int32[m]:random", "y=float32[n]:empty")


def test_only_what_may_vary_varies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuzzing keeps index arrays and ranged arrays, derives dependent sizes, keeps a grid's multiples, and respects
    --where."""
    monkeypatch.chdir(tmp_path)
    one = fuzzed(ARGUMENTS, "n//256", ("y=x+np.sum(x[at])",))
    assert one.random_arrays == {"x"}
    assert one.size_numbers == {"n": 1024}
    assert one.is_valid({"n": 512})
    assert not one.is_valid({"n": 257})
    assert not one.is_valid({"n": 258})
    free = fuzzed(ARGUMENTS, "cdiv(n,256)", ("y=x",), "n>4")
    assert free.random_arrays == {"x"}
    assert free.is_valid({"n": 258})
    assert not free.is_valid({"n": 257})  # m = n/2 is not a whole number
    assert not free.is_valid({"n": 4})
    ranged = fuzzed(tuple(text.replace("[n]:random", "[n]:uniform(0,2)") for text in ARGUMENTS), "1", ("y=x",))
    assert ranged.random_arrays == set()
    with pytest.raises(UsageError, match="does not hold"):
        fuzzed(ARGUMENTS, "1", ("y=x",), "n<5")


def test_the_line_that_repeats_a_case_has_the_standard() -> None:
    """The command that repeats a case has the compile options, --std too."""
    line = fuzz.command(UserRequest("k.cu", ("f",), std="c++20", include=("inc",), seed=3), Choice("sim"))
    assert line == "cudabench run k.cu --kernel f -I inc --std c++20 --seed 3 --device sim:sm_90"


def test_rounding_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stable expectation needs no extra tolerance, a cancelling sum needs a wider one, and an overflowing or invalid
    one is undecided."""
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text("__global__ void f(int n, const float *x, float *y) {}\n")

    def judged(start: str, expect: str) -> precision.Judgement:
        arguments = ("n=4096", f"x=float32[n]:{start}", "y=float32[1]:empty")
        return precision.judge(plan.problem(UserRequest("k.cu", ("f",), "1", "1", arguments, (expect,))), 0)

    assert judged("random", "y=np.max(x)") == precision.Judgement()
    needed: Any = judged("normal(0,1)", "y=np.sum(x)").atol
    assert 1e-6 < needed < 0.5
    assert "range of float32" in str(judged("full(1e30)", "y=np.sum(x*x)*1e-30*1e-25").undecided)
    assert "invalid operation" in str(judged("full(-1)", "y=np.sum(np.sqrt(x))").undecided)


# On a GPU ------------------------------------------------------------------------------------------------------------

DOUBLES = "".join(
    f"__global__ void {name}(int n, const float *x, float *y) {{ {HEAD} if (i < n) y[{at}] = 2 * x[i]; }}\n"
    for name, at in (("double_", "i"), ("double_dies", "i + (1ll << 31)"))
)


@pytest.mark.driver
@pytest.mark.parametrize(("kernel", "workers"), [("double_", 1), ("double_dies", 2)])
def test_one_worker_serves_all_cases(
    kernel: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker runs all fuzz cases; a worker whose context a kernel corrupts is replaced."""
    started: list[session.Worker] = []

    class Counted(session.Worker):
        def __init__(self, module: str, index: int, *, primary: bool = False) -> None:
            super().__init__(module, index, primary=primary)
            started.append(self)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "Worker", Counted)
    monkeypatch.setattr(fuzz, "MAX_SHRINK", workers - 1)
    Path("k.cu").write_text(DOUBLES)
    arguments = ("n=100", "x=float32[100]:random", "y=float32[100]:empty")
    request = UserRequest("k.cu", (kernel,), "1", "256", arguments, ("y=2*x",))
    record = fuzz.Fuzz(request, Choice("cuda"), Settings(), 6).run(SilentProgress().show_progress)
    assert len(started) == workers
    if workers == 1:
        assert (record.cases, record.failed) == (6, None)
    else:
        assert record.failed is not None
        assert "illegal memory access" in record.failed["reason"]
    assert all(one._process.poll() is not None for one in started)


@pytest.mark.gpu
def test_a_fault_among_the_cases(cudabench: Runner) -> None:
    """A case that corrupts the context is shrunk in new workers; a correct kernel of the same file passes all its
    cases."""
    Path("k.cu").write_text(
        "".join(
            f"__global__ void {name}(int n, const float *x, float *y) {{ {HEAD} if (i < n) y[{at}] = x[i]; }}\n"
            for name, at in (("f", "x[i] < 0 ? 1ll << 40 : i"), ("g", "i"))
        )
    )
    options = ("-k", "f", "-k", "g", *ONE, "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty")
    ran = cudabench("run", "k.cu", *options, "--expect", "y=x", *GPU, "--fuzz", 12)
    wrong, right = ran.json["results"]
    assert (ran.code, wrong["status"], right["status"]) == (3, "wrong", "ok"), ran.err
    assert (wrong["fuzz"]["failed"]["values"], wrong["fuzz"]["failed"]["sizes"]) == ("negative", {"n": 1})
    assert "illegal memory access" in wrong["reason"]
    assert (right["fuzz"]["cases"], right["fuzz"]["failed"]) == (12, None)
