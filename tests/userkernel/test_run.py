"""`cudabench run`: the user's kernels in the simulator, and the measuring protocol on a fake device."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.errors import UsageError
from cudabench.floats import from_bfloat16, to_bfloat16
from cudabench.measure.gpu_run import GpuRun
from cudabench.records.plan import Settings
from cudabench.userkernel import plan
from cudabench.userkernel.request import UserRequest
from tests.conftest import FakeDevice, Ran

Runner = Callable[..., Ran]

SAXPY = """\
__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
LAUNCH = ("--grid", "cdiv(n,256)", "--block", "256")
NUMBERS = ("--arg", "n=1000", "--arg", "a=2.5")
ARRAYS = ("--arg", "x=float32[n]:random", "--arg", "y=float32[n]:random")
EXPECT = ("--expect", "y=a*x+y0", "--bytes", "3*4*n")
SIM = ("--device", "sim", "--no-cpu")

simulated = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.fixture
def run(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run `cudabench run` in a folder that holds saxpy.cu."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    return lambda *words: cudabench("run", *words)


def source(text: str, name: str = "k.cu") -> str:
    """Write a source file into the working folder."""
    Path(name).write_text(text)
    return name


def one(ran: Ran) -> dict[str, Any]:
    """Return the single result of a run that wrote its results to standard output."""
    (result,) = ran.json["results"]
    assert isinstance(result, dict)
    return result


# The documented command ----------------------------------------------------------------------------------------------


@simulated
def test_the_contracts_line(run: Runner) -> None:
    """The documented command runs, verifies, and gives a result with every key."""
    ran = run(
        "saxpy.cu", "--kernel", "saxpy", *LAUNCH, *NUMBERS, *ARRAYS, *EXPECT, "--flops", "2*n",
        "--device", "sim", "--json", "-",
    )  # fmt: skip
    assert ran.code == 0
    result = one(ran)
    assert (result["operation"], result["kernel"], result["function"]) == ("run", "saxpy", "saxpy")
    assert (result["source"], result["id"], result["size"]) == ("saxpy.cu", None, {"n": 1000, "a": 2.5})
    assert (result["block"], result["grid"], result["dtype"]) == ([256, 1, 1], [4, 1, 1], "float32")
    assert (result["status"], result["bytes"], result["flops"]) == ("ok", 12000, 2000)
    assert result["verification"]["mismatches"] == 0
    assert (result["verification"]["rtol"], result["verification"]["atol"]) == (1e-5, 1e-6)
    assert result["cpu"]["implementation"] == "NumPy y=a*x+y0"
    assert result["hazards"] == []
    assert result["warnings"] == []


@simulated
def test_the_only_kernel_needs_no_name(run: Runner) -> None:
    """For a file with one kernel, --kernel may be omitted; the table heading has its scalar arguments."""
    ran = run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, *EXPECT, *SIM)
    assert ran.code == 0
    assert "run n=1000, a=2.5 float32, 12.0 kB moved, block 256, all verified" in ran.out
    assert " id " not in ran.out


@simulated
def test_without_expectation_a_result_is_unverified(run: Runner) -> None:
    """Without --expect, table and warning say that the result is unverified."""
    result = one(run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, *SIM, "--json", "-"))
    assert (result["status"], result["verification"]) == ("ok", None)
    assert "unverified" in [warning["code"] for warning in result["warnings"]]
    ran = run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, *SIM)
    assert ran.code == 0
    assert "unverified" in ran.out
    assert "add --expect" in ran.err


def test_unverified_figures_miss_every_threshold() -> None:
    """An unverified result misses every threshold, with a message that names the missing option."""
    from cudabench.cli.operation import exit_code_of

    device = FakeDevice(lambda buffers: None)
    series = plan.build([request(expect=())])
    result = GpuRun(series.make(), series.cases[0].problem, FAST, device).measure(series.cases[0])
    assert result.bandwidth_gbps is not None
    said: list[str] = []
    assert exit_code_of([result], {"min_bandwidth": 1e-9}, said.append) == 4
    assert "unverified" in said[0]
    assert exit_code_of([result], {}, said.append) == 0


@simulated
def test_wrong_kernel(run: Runner) -> None:
    """A result beyond the tolerance gives exit code 3, and the output has the element, both values and the
    tolerance."""
    ran = run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, "--expect", "y=a*x", *SIM)
    assert ran.code == 3
    assert "WRONG" in ran.out
    assert "first y[0]: got" in ran.out
    assert "1e-06 + 1e-05 * |expected|" in ran.out


@simulated
@simulated
def test_undefined_shuffle_explains_a_wrong_sum(run: Runner) -> None:
    """For a wrong sum, the reason names the shuffle that read a lane outside the block."""
    text = """\
__global__ void total(const float *x, float *sum) {
    float v = x[threadIdx.x];
    for (int d = 16; d; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x == 0) *sum = v;
}
"""
    words = (source(text), "--grid", 1, "--arg", "x=float32[32]:ones", "--arg", "sum=float32[1]:empty", *SIM)
    ran = run(*words, "--block", 24, "--expect", "sum=24", "--json", "-")
    assert ran.code == 3
    reason = one(ran)["reason"]
    assert "perhaps because of undefined-shuffle on line 4: thread (8, 0, 0) of block (0, 0, 0)" in reason
    assert "lane 24 of its warp" in reason
    assert run(*words, "--block", 32, "--expect", "sum=32").code == 0
    unverified = run(*words, "--block", 24, "--json", "-")
    codes = [warning["code"] for warning in one(unverified)["warnings"]]
    assert (unverified.code, "undefined-shuffle" in codes) == (0, True)
    assert "line 4: thread (8, 0, 0) of block (0, 0, 0) takes a value from lane 24 of its warp" in unverified.err
    whole = one(run(*words, "--block", 32, "--json", "-"))["warnings"]
    assert "undefined-shuffle" not in [warning["code"] for warning in whole]


@pytest.mark.parametrize(("words", "code"), [(("--atol", 1), 0), (("--atol", 0.1), 3), (("--rtol", 0, "--atol", 0), 3)])
def test_tolerances_can_be_given(run: Runner, words: tuple[Any, ...], code: int) -> None:
    """--rtol and --atol replace the default tolerances; y0 is below 1."""
    assert run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, "--expect", "y=a*x", *words, *SIM).code == code


@simulated
def test_several_kernels_are_compared(run: Runner) -> None:
    """Several kernels run with the same arguments in one table; other parameter names are matched by position."""
    path = source(
        SAXPY + "__global__ void strided(int count, float f, const float *in, float *out) {\n"
        "  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = f * in[i] + out[i]; }\n"
    )
    words = ("-g", 1, "-b", 256, *NUMBERS, *ARRAYS, *EXPECT, *SIM, "--json", "-")
    ran = run(path, "-k", "strided", "-k", "saxpy", *words)
    assert [(r["kernel"], r["status"]) for r in ran.json["results"]] == [("strided", "ok"), ("saxpy", "wrong")]
    assert ran.code == 3
    again = run(path, "-k", "all", *words)
    assert [r["kernel"] for r in again.json["results"]] == ["saxpy", "strided"]


@simulated
def test_an_output_without_expectation_is_named(run: Runner) -> None:
    """If only one of two outputs has an expectation, a warning names the other."""
    path = source("__global__ void two(float *a, float *b) { a[threadIdx.x] = 1; b[threadIdx.x] = 2; }\n")
    words = ("-g", 1, "-b", 32, "--arg", "a=float32[32]:empty", "--arg", "b=float32[32]:empty", "--expect", "a=1", *SIM)
    result = one(run(path, *words, "--json", "-"))
    assert result["status"] == "ok"
    assert [(w["code"], w["message"][:19]) for w in result["warnings"]] == [("not-compared", "b is not compared: ")]


# Arguments -----------------------------------------------------------------------------------------------------------

MANY = """\
#include "types.h"
namespace ns { namespace deep {
template <class T, int N> __global__ void scale(const T *in, T *out, int n) {
    int i = blockIdx.x * N + threadIdx.x;
    if (i < n) out[i] = in[i] * T(N);
}
} }
__global__ void over(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1.f; }
__global__ void over(int *x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 2; }
__global__ void vec(const float4 *in, float4 *out, size_t n) {
    if (threadIdx.x < n) { float4 v = in[threadIdx.x]; v.x += v.w; out[threadIdx.x] = v; }
}
__global__ void odd(const real *lambda, real *is, unsigned char flag, bool b, int n) {
    if (threadIdx.x < n) is[threadIdx.x] = b ? lambda[threadIdx.x] * flag : 0;
}
__global__ void reversed(const float *x, float *y, int n) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[n - 1 - threadIdx.x];
}
struct P { float x, y; int id; };
__global__ void number(P *p, int n) { if (threadIdx.x < n) p[threadIdx.x].id = threadIdx.x; }
__global__ void cast(const float *x, float *y) {
    y[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 7) ((float *)x)[7] = -1;
}
__global__ void kinds(const short *s, const unsigned char *u, const double *d, long long *out) {
    out[threadIdx.x] = s[threadIdx.x] + u[threadIdx.x] + (long long)d[threadIdx.x];
}
__global__ void maybe(const float *w, float *y) { y[threadIdx.x] = w ? w[threadIdx.x] : 1.f; }
int main() { return 0; }
"""


@pytest.fixture
def many(run: Runner) -> Runner:
    """Run a kernel of a file with templates, namespaces, overloads and host code."""
    Path("types.h").write_text("typedef float real;\n")
    source(MANY, "many.cu")
    return lambda kernel, *words: run("many.cu", "-k", kernel, *words, *SIM, "--json", "-")


@pytest.mark.sampled(3)
@simulated
@pytest.mark.parametrize("name", ["ns::deep::scale<float,32>", "scale<int, 32>", "deep::scale<double,  32>"])
def test_template_in_a_namespace(many: Runner, name: str) -> None:
    """A template instance in a namespace is compiled and launched with the right types; a parameter may be called
    'in'."""
    dtype = {"f": "float32", "i": "int32", "d": "float64"}[name.partition("<")[2][0]]
    ran = many(
        name, "-g", "cdiv(n,32)", "-b", 32, "--arg", f"in={dtype}[n]:random", "--arg", f"out={dtype}[n]:empty",
        "--arg", "n=100", "--expect", "out=32*in",
    )  # fmt: skip
    assert (ran.code, one(ran)["dtype"]) == (0, dtype)


@simulated
def test_overload(many: Runner) -> None:
    """An overload is chosen by its parameter types; without them the error lists the overloads."""
    arguments = ("-g", 1, "-b", 32, "--arg", "x=int32[n]:random", "--arg", "n=20")
    assert many("over(int*, int)", *arguments, "--expect", "x=x0+2").code == 0
    ran = many("over", *arguments)
    assert ran.code == 2
    assert "write one of 'over(float*, int)', 'over(int*, int)'" in ran.err


@simulated
def test_vector_types(many: Runner) -> None:
    """float4* takes a float32 array with a multiple of four elements."""
    words = ("-g", 1, "-b", 32, "--arg", "in=float32[{}]:random", "--arg", "out=float32[n,4]:empty", "--arg", "n=8")
    right = [str(word).format("n,4") for word in words]
    expect = ("--expect", "out=np.concatenate([in[:,:1]+in[:,3:], in[:,1:]], axis=1)")
    assert many("vec", *right, *expect).code == 0
    ran = many("vec", *[str(word).format("4*n+1") for word in words])
    assert ran.code == 2
    assert "33 elements of float32 are not a multiple of the 4 in float4" in ran.err


@simulated
def test_keywords_types_from_headers_and_small_scalars(many: Runner) -> None:
    """Parameters called lambda and is, a typedef from a header, and scalars of type bool and unsigned char work."""
    ran = many(
        "odd", "-g", 1, "-b", 32, "--arg", "lambda=float32[n]:random", "--arg", "is=float32[n]:empty",
        "--arg", "flag=200", "--arg", "b=true", "--arg", "n=20", "--expect", "is=lambda*flag",
    )  # fmt: skip
    assert ran.code == 0


@pytest.mark.slow
@simulated
def test_dynamic_shared_memory(many: Runner) -> None:
    """--shared sets the dynamic shared memory; without it the access is out of bounds."""
    words = ("-g", 1, "-b", "n", "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--arg", "n=64")
    assert many("reversed", *words, "--shared", "4*n", "--expect", "y=x[::-1]").code == 0
    assert many("reversed", *words, "--expect", "y=x[::-1]").code == 3


@pytest.mark.slow
@simulated
def test_structs_are_bytes(many: Runner) -> None:
    """A pointer to structs takes bytes from a uint8 array or a file of records; another type is refused."""
    words = ("-g", 1, "-b", 32)
    assert many("number", *words, "--arg", "p=uint8[12*n]:zeros", "--arg", "n=4").code == 0
    records = np.zeros(4, [("x", "f4"), ("y", "f4"), ("id", "i4")])
    np.save("p.npy", records)
    records["id"] = np.arange(4)
    np.save("q.npy", records.view(np.uint8))
    ran = many("number", *words, "--arg", "p=@p.npy", "--arg", "n=4", "--expect", "p=@q.npy")
    assert ran.code == 0
    ran = many("number", *words, "--arg", "p=float32[3*n]:zeros", "--arg", "n=4")
    assert ran.code == 2
    assert "takes a pointer to P, which NumPy does not have: give its bytes" in ran.err


@pytest.mark.slow
@simulated
def test_writing_into_const_is_caught(many: Runner) -> None:
    """A kernel that casts const away and writes the input is wrong, although its output is right."""
    ran = many(
        "cast", "-g", 1, "-b", 32, "--arg", "x=float32[32]:ones", "--arg", "y=float32[32]:empty", "--expect", "y=x"
    )
    assert ran.code == 3
    assert "wrote into x, which is const in its signature: x[7] was 1.0, is -1.0" in one(ran)["reason"]


@simulated
def test_types_and_inits(many: Runner) -> None:
    """random gives integers in [0, 100), arange counts up; integer outputs are compared exactly."""
    ran = many(
        "kinds", "-g", 1, "-b", 32, "--arg", "s=int16[32]:random", "--arg", "u=uint8[32]:arange", "--arg",
        "d=float64[32]:ones", "--arg", "out=int64[32]:empty", "--expect", "out=s+np.int64(u)+1",
    )  # fmt: skip
    assert ran.code == 0
    assert one(ran)["verification"]["rtol"] == 0


@simulated
def test_bfloat16(run: Runner) -> None:
    """bfloat16 arrays are numbers in expressions, bits in files, and compared as numbers."""
    path = source(
        "#include <cuda_bf16.h>\n__global__ void scaled(const __nv_bfloat16 *x, __nv_bfloat16 *y) {\n"
        "  y[threadIdx.x] = __float2bfloat16(0.3f * __bfloat162float(x[threadIdx.x])); }\n"
    )
    words = (path, "-g", 1, "-b", 32, "--arg", "x=bfloat16[32]:random", "--arg", "y=bfloat16[32]:empty", *SIM)
    result = one(run(*words, "--expect", "y=0.3*x", "--save", "y=y.npy", "--save", "x=x.npy", "--json", "-"))
    assert (result["status"], result["dtype"], result["verification"]["rtol"]) == ("ok", "bfloat16", 1e-2)
    x, y = (from_bfloat16(np.load(name)) for name in ("x.npy", "y.npy"))
    np.testing.assert_allclose(y, 0.3 * x, rtol=4e-3)
    assert run(*words, "--expect", "y=0.31*x").code == 3
    assert run(*words, "--expect", "y=@y.npy", "--rtol", 0, "--atol", 0).code == 0


def test_bfloat16_is_rounded_to_nearest() -> None:
    """Conversion to bfloat16 rounds ties to even, and keeps NaN and infinity."""

    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -0.0, np.inf, -np.inf, 3.4e38], np.float32)
    back = from_bfloat16(to_bfloat16(values))
    np.testing.assert_array_equal(back, np.array([1, 1, 1 + 2**-6, -0.0, np.inf, -np.inf, np.inf], np.float32))
    assert np.isnan(from_bfloat16(to_bfloat16(np.array([np.nan], np.float32)))).all()


@simulated
def test_null_pointer(many: Runner) -> None:
    """null passes a null pointer."""
    words = ("-g", 1, "-b", 32, "--arg", "w=null", "--arg", "y=float32[32]:empty", "--expect", "y=1")
    assert many("maybe", *words).code == 0


def test_random_arrays_are_seeded_and_independent() -> None:
    """The same seed gives the same arrays; floats lie in [0, 1), integers in [0, 100)."""
    from cudabench.userkernel.values import TYPES, Array

    for dtype in TYPES:
        array = Array("x", dtype, (5000,), "random")
        made = array.make(3, 0)
        np.testing.assert_array_equal(made, array.make(3, 0))
        assert made.dtype == np.dtype(array.storage)
        if dtype == "bfloat16":
            assert 0 <= from_bfloat16(made).min() <= from_bfloat16(made).max() <= 1
            continue
        assert (made != array.make(4, 0)).any()
        assert (made != array.make(3, 1)).any()
        if made.dtype.kind in "fiu":
            top = 1 if made.dtype.kind == "f" else 100
            assert made.min() >= 0
            assert made.max() < top


@simulated
def test_defines_reach_compiler_and_expressions(run: Runner) -> None:
    """-D defines a macro, whose number can also be used in shapes and grids."""
    path = source("__global__ void fill(int *x) { x[blockIdx.x * TILE + threadIdx.x] = TILE; }\n")
    ran = run(
        path, "-D", "TILE=32", "-g", 3, "-b", "TILE", "--arg", "x=int32[3*TILE]:empty", "--expect", "x=TILE", *SIM
    )
    assert ran.code == 0


# Mistakes: one message each, before a kernel runs --------------------------------------------------------------------

PLAIN = ("saxpy.cu", *LAUNCH)
MISTAKES: list[tuple[tuple[Any, ...], int, str]] = [
    ((), 2, "run needs a file"),
    (("none.cu",), 1, "none.cu: no such file. Did you mean 'nokernel.cu'?"),
    (("nokernel.cu",), 2, "lacks a __global__ function"),
    (
        ("two.cu",),
        2,
        "has 2 kernels: choose one with --kernel: f, g; as in, with your own value for each ...: cudabench",
    ),
    (("saxpy.cu", "-k", "saxpi"), 2, "Did you mean 'saxpy'?"),
    (("saxpy.cu", "-k", "s?x"), 2, "No kernel of saxpy.cu matches 's?x'"),
    (("two.cu", "-k", "h"), 2, "lacks a kernel 'h'"),
    (("template.cu",), 2, "name an instantiation, such as 'h<float>'"),
    (PLAIN, 2, "saxpy(int n, float a, const float* x, float* y) takes 4 arguments, 0 are given (n, a, x, y missing)"),
    (PLAIN, 2, "write: cudabench run saxpy.cu --kernel saxpy --grid 'cdiv(n,256)' --block 256 --arg n=10007 "),
    ((*PLAIN, *NUMBERS, "--arg", "z=1", *ARRAYS[2:]), 2, "lacks a parameter 'z'"),
    ((*PLAIN, *NUMBERS, *ARRAYS, "--arg", "n=2"), 2, "--arg n=... is given twice"),
    ((*PLAIN, *NUMBERS, "--arg", "x=2", *ARRAYS[2:]), 2, "takes a pointer: write --arg 'x=float32[n]:random'"),
    ((*PLAIN, "--arg", "n=int32[3]:ones", *NUMBERS[2:], *ARRAYS), 2, "is an array; saxpy(int n,"),
    ((*PLAIN, "--arg", "n=2.5", *NUMBERS[2:], *ARRAYS), 2, "'int n' takes a whole number: use //, cdiv, floor or ceil"),
    ((*PLAIN, "--arg", "n=2**31", *NUMBERS[2:], *ARRAYS), 2, "holds -2147483648 to 2147483647"),
    ((*PLAIN, "--arg", "n=int64:5", *NUMBERS[2:], *ARRAYS), 2, "write --arg n=int32:5 or n=5"),
    ((*PLAIN, "--arg", "n", *NUMBERS[2:], *ARRAYS), 2, "--arg 'n' is not NAME=VALUE"),
    ((*PLAIN, *NUMBERS[:2], "--arg", "a=1e39", *ARRAYS), 2, "over the largest number of 'float a'"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float64[n]:ones", *ARRAYS[2:]), 2, "give float32[...], not float64"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float[n]:ones", *ARRAYS[2:]), 2, "Write float32 for C's float"),
    ((*PLAIN, *NUMBERS, "--arg", "x=flaot32[n]:ones", *ARRAYS[2:]), 2, "Did you mean 'float32'?"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[n]", *ARRAYS[2:]), 2, "has no initial content"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[n]:one", *ARRAYS[2:]), 2, "Did you mean 'ones'?"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[n]:empty", *ARRAYS[2:]), 2, "would leave it without values"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[m]:ones", *ARRAYS[2:]), 2, "'m' is unknown here; use n, a"),
    (
        (*PLAIN, *NUMBERS, "--arg", "x=float32[n/3]:ones", *ARRAYS[2:]),
        2,
        "a whole number is needed: use",
    ),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[0]:ones", *ARRAYS[2:]), 2, "is 0; at least 1"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[]:ones", *ARRAYS[2:]), 2, "has 0 numbers"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[n*10**12]:ones", *ARRAYS[2:]), 2, "takes 4000000.0 GB"),
    ((*PLAIN, *NUMBERS, "--arg", "x=float32[10**30]:ones", *ARRAYS[2:]), 2, "does not fit in 64 bits"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@no.npy", *ARRAYS[2:]), 1, "no such file. Did you mean 'x.npy'?"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@.", *ARRAYS[2:]), 1, "is a directory"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@pickled.npy", *ARRAYS[2:]), 1, "reading a pickle can run any program"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@list.pickle", *ARRAYS[2:]), 1, "cannot be read as a .npy file"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@cut.npy", *ARRAYS[2:]), 1, "cannot be read as a .npy file: it is cut off"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@several.npz", *ARRAYS[2:]), 1, "is an archive of several arrays"),
    ((*PLAIN, *NUMBERS, "--arg", "x=@d.npy", *ARRAYS[2:]), 2, "give float32[...], not float64"),
    (("saxpy.cu", "-b", 256, *NUMBERS, *ARRAYS), 2, "needs --grid to be launched; write: cudabench run"),
    (("saxpy.cu", "-b", 256, "-g", 0, *NUMBERS, *ARRAYS), 2, "--grid '0' is 0; at least 1"),
    (("saxpy.cu", "-b", 2048, "-g", 1, *NUMBERS, *ARRAYS), 2, "2048 threads; CUDA allows 1024"),
    (("saxpy.cu", "-b", "1,2,3,4", "-g", 1, *NUMBERS, *ARRAYS), 2, "has 4 numbers: write X, X,Y or X,Y,Z"),
    (("saxpy.cu", "-b", 1, "-g", "1,70000", *NUMBERS, *ARRAYS), 2, "CUDA allows at most 65535"),
    (("saxpy.cu", "-b", 1, "-g", "cdiv(n,0)", *NUMBERS, *ARRAYS), 2, "divides by zero"),
    (("saxpy.cu", "-b", 1, "-g", "__import__('os')", *NUMBERS, *ARRAYS), 2, "is not a function here"),
    *(
        ((*PLAIN, *NUMBERS, *ARRAYS, *words), code, message)
        for words, code, message in [
            (("--expect", "y=a*x+y"), 2, "y is what the kernel writes; write y0 for its values before the launch"),
            (("--expect", "x=y"), 2, "x is const in the signature"),
            (("--expect", "z=x"), 2, "'z' is unknown"),
            (("--expect", "n=3"), 2, "n is not an array"),
            (("--expect", "y"), 2, "is not NAME=VALUE"),
            (("--expect", "y=x", "--expect", "y=x"), 2, "expected twice"),
            (("--expect", "y=x[:5]"), 2, "has shape [5]; y has shape [1000]"),
            (("--expect", "y=np.sum(x)"), 2, "is one number; y has shape [1000]"),
            (("--expect", "y=x*1j"), 2, "has type complex128; y is float32"),
            (("--expect", "y=x[2000]"), 2, "out of bounds"),
            (("--expect", "y=np.load('x.npy')"), 2, "np.load is not among the functions"),
            (("--expect", "y=open('x')"), 2, "'open' is not a function here"),
            (("--expect", "y=9**9**9*x"), 2, "does not fit in 64 bits"),
            (("--expect", "y=np.ones(10**13)"), 2, "72.8 TiB for an array with shape (10000000000000,)"),
            (("--expect", "y=@x.npy"), 2, "has shape [10]; y has shape [1000]"),
            (("--expect", "y=@pickled.npy"), 1, "reading a pickle can run any program"),
            (("--bytes", "q"), 2, "--bytes 'q': 'q' is unknown here"),
            (("--bytes", "-n"), 2, "at least 0 is needed"),
            (("--shared", "10**6"), 2, "a block has 227 KiB (232448 bytes) at most"),
            (("--rtol", "-1"), 2, "--rtol -1 is not a tolerance"),
            (("--rtol", "x"), 2, "'x' is not a valid float"),
            (("--save", "y"), 2, "--save 'y' is not NAME=VALUE"),
            (("--save", "z=z.npy"), 2, "'z' is unknown"),
            (("--save", "y=none/y.npy"), 1, "the folder none does not exist"),
            (("-D", "2=3"), 2, "does not name a macro"),
            (("-I", "none"), 2, "--include none is not a folder"),
            (("--min-bandwidth", "3", "-d", "sim"), 5, "needs a GPU"),
            (("--profile", "none.toml"), 1, "--profile none.toml: no such file"),
            (("--cpu-threads", "0"), 2, "--cpu-threads"),
        ]
    ),
]


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES, ids=[message[:50] for _, _, message in MISTAKES])
def test_mistakes(run: Runner, words: tuple[Any, ...], code: int, message: str) -> None:
    """Each mistake gives one message on standard error, its exit code, and no standard output."""
    source("int main() {}\n", "nokernel.cu")
    source("__global__ void f(int n) {}\n__global__ void g(int n) {}\n", "two.cu")
    source("template <class T> __global__ void h(T *x) {}\n", "template.cu")
    np.save("x.npy", np.arange(10, dtype=np.float32))
    np.save("d.npy", np.arange(10.0))
    np.save("pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez("several.npz", x=np.arange(3))
    Path("list.pickle").write_bytes(pickle.dumps([1]))
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:100])
    device = () if "-d" in words else SIM
    ran = run(*words, *device)
    assert message in ran.err
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kernel", "words", "message"),
    [
        ("f(float **p)", ["p=float32[1]:ones"], "an array of pointers, one to each row, and float32[1] lacks rows"),
        ("f(float ***p)", ["p=float32[1,1,1]:ones"], "takes 'float*** p', pointers to pointers to pointers"),
        ("f(float4 v)", ["v=1"], "gives 1 value, float4 takes 4: write --arg 'v=2.5,2.5,2.5,2.5'"),
        ("f(S s)", ["s=1"], "is not a value of S: write --arg 's={a: 1}'"),
        ("f(S s)", ["s={b: 1}"], "S lacks a member 'b'; it has a"),
        ("f(S s)", ["s={}"], "lacks a; write --arg 's={a: 1}'"),
        ("f(S s)", ["s={a: 1.5}"], "is 1.5; 'S s' takes a whole number"),
        ("f(P s)", ["s={p: 1}"], "--arg s: p: 1 is not an array; f(P s) takes a pointer: write 'p: "),
        ("f(Unknown u)", ["u=1"], "write it down, as in --arg u=int32:1"),
        ("f(void (*g)(int))", ["g=1"], "takes a function"),
        ("f(cuComplex z)", ["z=1"], "gives 1 value, cuComplex takes 2"),
        ("f(char c)", ["c=200"], "holds -128 to 127"),
        ("f(const int *p)", ["p=uint32[4]:ones"], "give int32[...], not uint32"),
        ("f(float *y, float *y0)", ["y=float32[4]:empty", "y0=float32[4]:empty"], ""),
    ],
)
def test_signatures_that_are_refused(run: Runner, kernel: str, words: list[str], message: str) -> None:
    """An argument that does not match the parameter is refused with the reason."""
    path = source(f"struct S {{ int a; }};\nstruct P {{ float *p; }};\n__global__ void {kernel} {{}}\n")
    arguments = [part for word in words for part in ("--arg", word)]
    if not message:
        with pytest.raises(UsageError, match="starts empty"):
            plan.build([UserRequest(path, (), "1", "1", tuple(words), ("y=y_before",))])
        return
    ran = run(path, "-g", 1, "-b", 1, *arguments, *SIM)
    assert ran.code == 2
    assert message in ran.err


def test_a_parameter_may_be_called_y0(run: Runner) -> None:
    """If a parameter is called y0, y_before means y's values before the launch."""
    path = source("__global__ void f(float *y, const float *y0) {}\n")
    arguments = ("y=float32[4]:ones", "y0=float32[4]:zeros")
    operation = plan.build([UserRequest(path, (), "1", "1", arguments, ("y=2*y_before+y0",))])
    case = operation.cases[0]
    made = operation.make()
    expected = made.reference(case.problem, made.inputs(case.problem))
    np.testing.assert_array_equal(expected["y"], np.full(4, 2, np.float32))


@simulated
def test_compiler_error_shows_the_users_line(run: Runner) -> None:
    """A compiler error gives exit code 1 and the user's file and line."""
    path = source("__global__ void f(float *y) {\n  y[0] = nonsense;\n}\n")
    ran = run(path, "-g", 1, "-b", 1, "--arg", "y=float32[1]:empty", *SIM)
    assert ran.code == 1
    assert "k.cu:2: error" in ran.out + ran.err


@simulated
def test_a_name_that_no_kernel_has(run: Runner) -> None:
    """A wrong template argument is a usage error."""
    path = source("template <class T> __global__ void h(T *x) { x[0] = 1; }\n")
    ran = run(path, "-k", "h<nope>", "-g", 1, "-b", 1, "--arg", "x=uint8[4]:empty", *SIM)
    assert (ran.code, ran.out) == (2, "")
    assert "'h<nope>' matches no kernel or several kernels of k.cu" in ran.err


@simulated
def test_what_the_simulator_lacks(run: Runner) -> None:
    """An unsupported feature gives exit code 5 with its line, but only if the kernel executes it."""
    path = source(
        '__global__ void f(int n, float *y) {\n  if (n) asm volatile("stacksave.u32 %0;" : "=r"(n));\n  y[1] = 2;\n}\n'
    )
    words = (path, "-g", 1, "-b", 1, "--arg", "y=float32[2]:zeros", *SIM)
    ran = run(*words[:5], "--arg", "n=1", *words[5:])
    assert ran.code == 5
    assert "k.cu:2: dynamic stack allocation" in ran.err
    assert run(*words[:5], "--arg", "n=0", *words[5:], "--expect", "y=np.array([0, 2])").code == 0


@simulated
def test_host_code_and_its_headers(run: Runner) -> None:
    """A kernel runs from a program with main, the standard library, and a missing helper header."""
    path = source(
        "#include <stdio.h>\n#include <vector>\n#include <helper_cuda.h>\n" + SAXPY + "int main() {\n"
        "  std::vector<float> v(3);\n  float *d;\n  checkCudaErrors(cudaMalloc(&d, 12));\n"
        '  saxpy<<<1, 1>>>(1, 2.f, d, d);\n  printf("%f\\n", v[0]);\n}\n'
    )
    assert run(path, *LAUNCH, *NUMBERS, *ARRAYS, *EXPECT, *SIM).code == 0


@simulated
def test_headers_in_other_folders(run: Runner) -> None:
    """-I adds a folder of headers, whose typedefs also apply to the signature."""
    Path("inc").mkdir()
    Path("inc/types.h").write_text("typedef double real;\n")
    path = source('#include "types.h"\n__global__ void one(real *y) { y[threadIdx.x] = 1; }\n')
    words = (path, "-g", 1, "-b", 32, "--arg", "y=float64[32]:empty", "--expect", "y=1", *SIM)
    assert run(*words, "-I", "inc").code == 0
    assert run(*words).code == 2


@simulated
def test_the_explanation_takes_the_same_arguments(cudabench: Runner, run: Runner) -> None:
    """`explain FILE.cu` takes the arguments of `run` and shows the accesses by line."""
    ran = cudabench("explain", "saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, "--expect", "y=a*x+y0")
    assert ran.code == 0
    assert "if (i < n) y[i] = a * x[i] + y[i];" in ran.out


# Files ---------------------------------------------------------------------------------------------------------------


@simulated
def test_arrays_from_and_to_files(run: Runner) -> None:
    """@FILE.npy replaces type, shape and initial values, in any memory and byte order; --save writes an array."""
    x = np.random.default_rng(0).random((8, 4), dtype=np.float32)
    np.save("x.npy", np.asfortranarray(x).astype(">f4"))
    np.save("y.npy", 2 * x)
    path = source("__global__ void twice(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n")
    words = ("-g", 1, "-b", 32, "--arg", "x=@x.npy", "--arg", "y=float32[8,4]:empty", *SIM)
    ran = run(path, *words, "--expect", "y=@y.npy", "--save", "y=out.npy", "--save", "x=in.npy")
    assert ran.code == 0
    np.testing.assert_array_equal(np.load("out.npy"), 2 * x)
    np.testing.assert_array_equal(np.load("in.npy"), x)
    assert sorted(p.name for p in Path().iterdir() if p.name.startswith(".")) == []


@simulated
def test_a_wrong_output_is_not_saved(run: Runner) -> None:
    """--save writes an output that is right or unverified, but not a wrong one."""
    ran = run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, "--expect", "y=x", "--save", "y=y.npy", *SIM)
    assert (ran.code, Path("y.npy").exists()) == (3, False)
    ran = run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, "--save", "y=y.npy", *SIM)
    assert (ran.code, Path("y.npy").exists()) == (0, True)


PROFILE = """\
arg = ["n=1000", "a=2.5", "x=float32[n]:random", "y=float32[n]:random"]
expect = ["y=a*x+y0"]
device = "sim"
no-cpu = true

[saxpy]
grid = "cdiv(n,256)"
block = 256
bytes = "3*4*n"

[rows]
grid = [2, 4]
block = [32, 4]
bytes = "3*4*n"
"""
ROWS = """\
__global__ void rows(int n, float a, const float *x, float *y) {
    int i = ((blockIdx.y * gridDim.x + blockIdx.x) * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


@simulated
def test_profile(run: Runner) -> None:
    """A profile has a table per kernel and common keys above; kernels with the same arguments are compared."""
    source(SAXPY + ROWS, "both.cu")
    Path("p.toml").write_text(PROFILE)
    results = run("both.cu", "--profile", "p.toml", "--json", "-").json["results"]
    assert [(r["kernel"], r["block"], r["status"]) for r in results] == [
        ("saxpy", [256, 1, 1], "ok"),
        ("rows", [32, 4, 1], "ok"),
    ]
    (only,) = run("both.cu", "--profile", "p.toml", "--kernel", "rows", "--json", "-").json["results"]
    assert only["kernel"] == "rows"


@simulated
def test_options_win_over_the_profile(run: Runner) -> None:
    """An option of the command line replaces the profile's; --arg replaces the argument of the same name."""
    source(SAXPY + ROWS, "both.cu")
    Path("p.toml").write_text(PROFILE)
    words = (
        "--profile",
        "p.toml",
        "-k",
        "saxpy",
        "--arg",
        "n=64",
        "--block",
        "64",
        "-g",
        1,
        "--bytes",
        "7",
        "--json",
        "-",
    )
    (result,) = run("both.cu", *words).json["results"]
    assert (result["size"]["n"], result["block"], result["bytes"]) == (64, [64, 1, 1], 7)


@simulated
def test_profile_with_other_arguments_and_its_own_file(run: Runner, tmp_path: Path) -> None:
    """Tables with different arguments run separately into one results file; paths are relative to the profile."""
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "both.cu").write_text(SAXPY + ROWS)
    np.save(folder / "x.npy", np.ones(10, np.float32))
    (folder / "p.toml").write_text(
        'file = "both.cu"\n[saxpy]\ngrid = 1\nblock = 32\nexpect = ["y=4"]\n'
        '[saxpy.arg]\nn = 10\na = 3\nx = "@x.npy"\ny = "float32[n]:ones"\n'
        '[rows]\ngrid = 1\nblock = 64\nexpect = ["y=2"]\n'
        'arg = ["n=5", "a=1", "x=float32[n]:ones", "y=float32[n]:ones"]\n'
    )
    ran = run("--profile", "sub/p.toml", *SIM, "--json", "-")
    assert ran.code == 0
    assert [(r["kernel"], r["size"]["n"]) for r in ran.json["results"]] == [("saxpy", 10), ("rows", 5)]
    assert "n=10" in ran.err
    assert "n=5" in ran.err


def test_defines_part_requests_where_they_shape_arrays(run: Runner) -> None:
    """Requests that differ in a macro are compared, unless an array's shape depends on the macro."""
    base = UserRequest("saxpy.cu", (), "1", "T", ("n=8", "a=2", "x=float32[n]:ones", "y=float32[n]:ones"))
    small, large = replace(base, defines={"T": "32"}), replace(base, defines={"T": "64"})
    assert [[case.block[0] for case in series.cases] for series in plan.series([small, large])] == [[32, 64]]
    arguments = ("n=8", "a=2", "x=float32[T]:ones", "y=float32[T]:ones")
    shaped = [replace(one, arguments=arguments) for one in (small, large)]
    assert [[case.block[0] for case in series.cases] for series in plan.series(shaped)] == [[32], [64]]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("grid =", 1, "is not TOML"),
        ('[saxpy]\ngird = "1"\n', 2, "p.toml: [saxpy] gird is not an option of run. Did you mean 'grid'?"),
        ("[saxpi]\ngrid = 1\n", 2, "lacks a kernel 'saxpi'"),
        ("[saxpy]\narg = 3\n", 2, "write a list of texts"),
        ("[saxpy]\nbytes = [1]\n", 2, "write one value"),
        ('[saxpy]\nseed = "x"\n', 2, "'x' is not a valid integer range"),
        ('[a]\ndevice = "sim"\n[b]\ndevice = "cuda"\n', 2, "a run has one value: write it above the tables"),
        ("[saxpy]\ngrid = 1979-05-27\n", 2, "neither text nor number"),
    ],
)
def test_mistakes_of_a_profile(run: Runner, text: str, code: int, message: str) -> None:
    """A mistake in a profile is reported with file, table and key."""
    Path("p.toml").write_text(text)
    ran = run("saxpy.cu", "--profile", "p.toml")
    assert message in ran.err
    assert (ran.code, ran.out) == (code, "")


def test_profile_without_the_kernel(run: Runner) -> None:
    """A kernel without a table in the profile is refused by name."""
    Path("p.toml").write_text(PROFILE)
    ran = run("saxpy.cu", "--profile", "p.toml", "-k", "saxpi")
    assert ran.code == 2
    assert "p.toml lacks a table for the kernel 'saxpi'; it has saxpy, rows. Did you mean 'saxpy'?" in ran.err


# The protocol of a GPU, on a fake device -----------------------------------------------------------------------------

FAST = Settings(min_time=0.0, max_time=5.0, min_samples=10, cpu=False)


def request(**changes: Any) -> UserRequest:
    """Return a request for saxpy, for the fake device."""
    path = Path("saxpy.cu")
    path.write_text(SAXPY)
    whole = UserRequest(
        str(path),
        grid="4",
        block="256",
        arguments=("n=1000", "a=2.5", "x=float32[n]:random", "y=float32[n]:random"),
        expect=("y=a*x+y0",),
        bytes="3*4*n",
    )
    return replace(whole, **changes)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saxpy(buffers: dict[str, np.ndarray]) -> None:
    """Compute saxpy in place."""
    x, y = buffers["x"].view(np.float32), buffers["y"].view(np.float32)
    y[:] = np.float32(2.5) * x + y


def test_in_place_kernels_run_on_fresh_inputs() -> None:
    """Before every run of an in-place kernel, timed or not, its input is restored."""
    series = plan.build([request()])
    seen = []

    def watched(buffers: dict[str, np.ndarray]) -> None:
        seen.append(buffers["y"].view(np.float32)[0])
        saxpy(buffers)

    result = GpuRun(series.make(), series.cases[0].problem, FAST, FakeDevice(watched)).measure(series.cases[0])
    assert result.status == "ok"
    assert result.verification is not None
    assert result.verification.checked == ("before", "after")
    assert len(set(seen)) == 2  # the first elements of two sets of inputs
    assert len(seen) > 10


def test_hot_in_place_kernels_run_once_a_sample() -> None:
    """A hot sample of an in-place kernel has one run, since a second run would read the first one's output."""
    series = plan.build([request()])
    device = FakeDevice(saxpy, seconds=lambda at: 5e-6)
    result = GpuRun(series.make(), series.cases[0].problem, replace(FAST, cache="hot"), device).measure(series.cases[0])
    assert result.time is not None
    assert (result.status, result.time.runs_per_sample) == ("ok", 1)


def test_a_kernel_that_goes_wrong_later_is_caught() -> None:
    """A kernel that is right only in its first run is wrong."""
    series = plan.build([request()])
    calls = 0

    def fading(buffers: dict[str, np.ndarray]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            saxpy(buffers)

    result = GpuRun(series.make(), series.cases[0].problem, FAST, FakeDevice(fading)).measure(series.cases[0])
    assert (result.status, result.bandwidth_gbps) == ("wrong", None)


def test_writing_into_const_is_caught_on_the_device() -> None:
    """Const arrays are compared with their initial bytes."""
    series = plan.build([request()])

    def cheating(buffers: dict[str, np.ndarray]) -> None:
        buffers["x"][:] = kept.setdefault("x", buffers["x"].copy())
        saxpy(buffers)
        buffers["x"][8:12] = 0

    kept: dict[str, np.ndarray] = {}

    result = GpuRun(series.make(), series.cases[0].problem, FAST, FakeDevice(cheating)).measure(series.cases[0])
    assert result.status == "wrong"
    assert "wrote into x, which is const in its signature: x[2] was" in (result.reason or "")


def test_an_expectation_that_fails_ends_the_run() -> None:
    """An expectation that fails on the inputs is a usage error."""
    series = plan.build([request(expect=("y=x[5000]+y0",))])
    gpu_run = GpuRun(series.make(), series.cases[0].problem, FAST, FakeDevice(saxpy))
    with pytest.raises(UsageError, match="out of bounds"):
        gpu_run.measure(series.cases[0])


def test_a_part_travels_to_another_process() -> None:
    """A series is plain data that can be pickled for a worker."""
    series = plan.build([request()])
    made = pickle.loads(pickle.dumps(series.make))()
    case = pickle.loads(pickle.dumps(series.cases[0]))
    inputs = made.inputs(case.problem)
    expected = made.reference(case.problem, inputs)["y"]
    np.testing.assert_allclose(expected, 2.5 * inputs["x"] + inputs["y"], rtol=1e-6)
    assert expected.dtype == np.float32


def test_the_reference_is_computed_in_double_precision() -> None:
    """The reference is computed in double precision and rounded once at the end."""
    path = Path("sum.cu")
    path.write_text("__global__ void total(const float *x, float *y, int n) {}\n")
    series = plan.build(
        [
            UserRequest(
                str(path),
                (),
                "1",
                "1",
                ("x=float32[n]:ones", "y=float32[1]:empty", "n=5000"),
                ("y=np.sum(x)-n+2**-30",),
            )
        ]
    )
    made = series.make()
    inputs = made.inputs(series.cases[0].problem)
    assert made.reference(series.cases[0].problem, inputs)["y"] == np.float32(2**-30)


def test_no_expression_no_baseline() -> None:
    """Without an expression that computes something, there is no CPU baseline."""
    np.save("y.npy", np.zeros(1000, np.float32))
    assert plan.build([request()]).baseline
    assert not plan.build([request(expect=())]).baseline
    assert not plan.build([request(expect=("y=@y.npy",))]).baseline
    assert not plan.build([request(expect=("y=3",))]).baseline


@pytest.mark.parametrize(
    ("expect", "dtype", "rtol"),
    [("y=x", "float32", 1e-5), ("y=x", "float64", 1e-12), ("y=x", "float16", 2e-3), ("y=x", "int32", 0.0)],
)
def test_tolerance_follows_the_type(expect: str, dtype: str, rtol: float) -> None:
    """An output's tolerance follows from its type; integers are exact."""
    ctype = {"float32": "float", "float64": "double", "float16": "half", "int32": "int"}[dtype]
    path = Path("t.cu")
    path.write_text(f"__global__ void f(const {ctype} *x, {ctype} *y) {{}}\n")
    series = plan.build(
        [UserRequest(str(path), (), "1", "1", (f"x={dtype}[4]:ones", f"y={dtype}[4]:empty"), (expect,))]
    )
    tolerance = series.make().tolerance(series.cases[0].problem).of("y")
    assert (tolerance.rtol, tolerance.atol) == (rtol, pytest.approx(rtol / 10))


# On a real GPU -------------------------------------------------------------------------------------------------------


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a new process."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-m", "cudabench", "run", *words],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.gpu
def test_saxpy_on_the_gpu(tmp_path: Path) -> None:
    """On a GPU the documented in-place command is timed, and verified before and after."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    words = (
        "saxpy.cu",
        *LAUNCH,
        "--arg",
        "n=1048576",
        *NUMBERS[2:],
        *ARRAYS,
        *EXPECT,
        "--min-time",
        "0.05",
        "--json",
        "-",
    )
    ran = command(*words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (result,) = json.loads(ran.stdout)["results"]
    assert result["verification"]["checked"] == ["before", "after"]
    assert result["bandwidth_gbps"] > 0
    assert result["speedup_vs_cpu"] > 0


@pytest.mark.driver
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ns::deep::scale<float,32>", "ns::deep::scale<int, 32>"])
def test_templates_on_the_gpu(tmp_path: Path, name: str) -> None:
    """On a GPU, template instances in namespaces are found and launched, from a file with main and a header."""
    (tmp_path / "types.h").write_text("typedef float real;\n")
    (tmp_path / "many.cu").write_text(MANY)
    dtype = "float32" if "float" in name else "int32"
    ran = command(
        "many.cu", "-k", name, "-g", "cdiv(n,32)", "-b", "32", "--arg", f"in={dtype}[n]:random", "--arg",
        f"out={dtype}[n]:empty", "--arg", "n=100", "--expect", "out=32*in", "--min-time", "0.05", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.driver
@pytest.mark.gpu
def test_an_expression_that_raises_is_a_usage_error_on_the_gpu(tmp_path: Path) -> None:
    """An expectation that fails in the worker gives exit code 2 and one message."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    ran = command("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, "--expect", "y=x[5000]", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "out of bounds" in ran.stderr


# Initial values of arrays --------------------------------------------------------------------------------------------


def made(text: str, seed: int = 0, index: int = 0) -> np.ndarray:
    """Return the array for a `TYPE[SHAPE]:INIT` text."""
    from cudabench.source.choose_kernel import find_kernel as find
    from cudabench.source.files import read_file as read
    from cudabench.userkernel import arguments
    from cudabench.userkernel.values import Array

    ctype = {"int8": "signed char", "uint8": "unsigned char", "uint64": "unsigned long", "float64": "double",
             "int64": "long", "float16": "__half", "bfloat16": "__nv_bfloat16", "complex64": "cuFloatComplex",
             "bool": "bool", "int32": "int", "float32": "float"}[text.partition("[")[0]]  # fmt: skip
    file = read(source(f"__global__ void f(int n, float a, {ctype} *x) {{}}\n", "init.cu"))
    found = arguments.parse_arguments(["n=10", "a=0.5", f"x={text}"], find(file), {}, "", file)
    array = found[2]
    assert isinstance(array, Array)
    return array.make(seed, index)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float32[4]:full(2.5)", [2.5] * 4),
        ("int8[2]:full(-128)", [-128, -128]),
        ("complex64[1]:full(1+2j)", [1 + 2j]),
        ("float32[3]:full(inf)", [np.inf] * 3),
        ("float32[5]:linspace(0,a)", [0, 0.125, 0.25, 0.375, 0.5]),
        ("int32[3]:linspace(n,0)", [10, 5, 0]),
        ("int32[4]:i0*i0", [0, 1, 4, 9]),
        ("float32[2,3]:n*i0+i1+a", [[0.5, 1.5, 2.5], [10.5, 11.5, 12.5]]),
        ("float32[2,2]:np.where(i0==i1,1,0)", [[1, 0], [0, 1]]),
        ("int32[3]:7", [7, 7, 7]),
        ("int32[2,3]:i1", [[0, 1, 2], [0, 1, 2]]),
        ("float32[2]:(n*a, 3)[0]+i0", [5, 6]),
        ("uint8[3]:np.uint8(250+3*i0)", [250, 253, 0]),
    ],
)
def test_an_array_starts_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: Any) -> None:
    """Initial values may be constants, even steps, and expressions over indices and scalars."""
    monkeypatch.chdir(tmp_path)
    array = made(text)
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("float32[100000]:uniform(-3,5)", -3, 5),
        ("float16[100000]:uniform(0,1)", 0, 1),
        ("float64[1000]:uniform(-1e308,1e308)", -1e308, 1e308),
        ("float32[1000]:uniform(-1e-39,1e-39)", -1e-39, 1e-39),
        ("int32[100000]:integers(-5,6)", -5, 6),
        ("int8[100000]:integers", -128, 128),
        ("uint8[100000]:integers(0,256)", 0, 256),
        ("float32[1000]:integers(0,100)", 0, 100),
        ("uint64[1000]:integers", 0, 2**64),
    ],
)
def test_what_is_drawn_fills_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, low: float, high: float
) -> None:
    """Random values lie in [a, b), reach close to both ends, and depend on the seed and the argument's position."""
    monkeypatch.chdir(tmp_path)
    array = made(text)
    wide = array.astype(object) if array.dtype.kind in "iu" else array.astype(np.float64)
    assert low <= wide.min()
    assert wide.max() < high
    assert wide.max() / 2 - wide.min() / 2 > 0.9 * (high / 2 - low / 2)
    if array.dtype.kind in "iu" and high - low <= 256:
        assert len(np.unique(array)) == high - low
    assert not np.array_equal(array, made(text, seed=1))
    assert not np.array_equal(array, made(text, index=1))
    np.testing.assert_array_equal(array, made(text))


def test_normal_and_permutation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """normal has the given mean and deviation; permutation has every number once."""
    monkeypatch.chdir(tmp_path)
    array = made("float32[100000]:normal(3,0.5)")
    assert abs(array.mean() - 3) < 0.01
    assert abs(array.std() - 0.5) < 0.01
    shuffled = made("int32[30,40]:permutation")
    assert sorted(shuffled.ravel()) == list(range(1200))
    assert not np.array_equal(shuffled.ravel(), np.arange(1200))
    bits = made("bfloat16[4]:full(1.5)")
    np.testing.assert_array_equal(from_bfloat16(bits), np.full(4, 1.5, np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int32[4]:uniform(0,1)", "uniform gives fractions, which int32 cannot hold: write integers(a,b)"),
        ("float32[4]:uniform(1,1)", "uniform(1,1) is not possible: it takes finite a below b"),
        ("float32[4]:uniform(1)", "uniform takes 2 numbers, not 1: write uniform(a,b)"),
        ("float32[4]:normal(0,-1)", "s of at least 0"),
        ("int8[4]:full(128)", "int8 holds whole numbers from -128 to 127, not 128"),
        ("int8[4]:full(0.5)", "int8 holds whole numbers"),
        ("bool[4]:full(2)", "bool holds 0 and 1, not 2"),
        ("uint8[4]:integers(0,257)", "uint8 holds 0 to 255"),
        ("int32[4]:integers(3,3)", "it takes a below b"),
        ("int8[200]:permutation", "goes up to 199, int8 to 127 exactly"),
        ("float32[4]:unifrom(0,1)", "did you mean 'uniform'?"),
        ("float32[4]:i1", "'i1' is unknown here"),
        ("int32[4]:i0/2", "write np.int32(...) around it"),
        ("float32[4]:np.zeros(3)", "gives the shape [3], not"),
        ("float32[4]:randm", "has no initial content"),
        ("float32[4]:full()", "full takes 1 number"),
        ("int8[4]:i0*100", "holds -128 to 127"),
    ],
)
def test_starts_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    """An invalid initial value gives one message."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        made(text).sum()
    assert message.lower() in str(error.value).lower()


# By value ------------------------------------------------------------------------------------------------------------

STRUCTS = """\
struct Inner { char tag; double w[2]; };
typedef struct { float a; int b; } Pair;
struct __align__(16) All { Pair p; float3 v; Inner inner; unsigned char last; };
__global__ void f(int n, All s, float3 v, double2 d, float *y) {
    y[0] = s.p.a; y[1] = s.p.b; y[2] = s.v.y; y[3] = s.inner.tag; y[4] = s.inner.w[1]; y[5] = s.last;
    y[6] = v.z; y[7] = d.y; y[8] = n; y[9] = sizeof(All);
}
"""


@simulated
def test_structs_and_vectors_by_value(run: Runner) -> None:
    """Struct and vector members have the compiler's offsets, and expressions can use them by name."""
    words = (
        "--arg", "n=7", "--arg", "s={p: {a: 1.5, b: n}, v: [1,2,3], inner: {tag: 4, w: [5,6]}, last: 200}",
        "--arg", "v=1,2,30", "--arg", "d=0.5,0.25", "--arg", "y=float32[10]:empty",
        "--expect", "y=np.array([1.5,7,2,4,6,200,30,.25,n,s_p_a*0+64])",
    )  # fmt: skip
    ran = run(source(STRUCTS), "-g", 1, "-b", 1, *words, *SIM)
    assert ran.code == 0, ran.out + ran.err


@simulated
def test_a_struct_of_a_file(run: Runner) -> None:
    """p=@p.npy reads one record; a file of another size is refused."""
    path = source("struct P { float a; int b; };\n__global__ void f(P p, float *y) { *y = p.a + p.b; }\n")
    np.save("p.npy", np.array([(1.5, 2)], [("a", "f4"), ("b", "i4")]))
    np.save("q.npy", np.zeros(3, np.float32))
    words = ("-g", 1, "-b", 1, "--arg", "y=float32[1]:empty", "--expect", "y=3.5", *SIM)
    assert run(path, "--arg", "p=@p.npy", *words).code == 0
    ran = run(path, "--arg", "p=@q.npy", *words)
    assert ran.code == 2
    assert "has 12 bytes, P has 8" in ran.err


@pytest.mark.sampled(8)
@simulated
@pytest.mark.parametrize("name", ["float4", "double2", "half2", "short3", "int2", "uchar4", "longlong2", "P"])
def test_a_suggested_line_is_taken(run: Runner, name: str) -> None:
    """The argument that an error suggests for a struct or vector works."""
    import re
    import shlex

    path = source(
        "#include <cuda_fp16.h>\nstruct P { float2 a; int b[3]; };\n"
        f"__global__ void f({name} v, float *y) {{ *y = 1; }}\n"
    )
    words = ("-g", 1, "-b", 1, "--arg", "y=float32[1]:empty", "--expect", "y=1", *SIM)
    match = re.search(r"write (--arg '.*')", run(path, "--arg", "v=1,1,1,1,1,1,1", *words).err)
    assert match
    assert run(path, *shlex.split(match[1]), *words).code == 0
    example = re.search(r"write(, with your own value for each ...)?: cudabench run (.*)", run(path, *words).err)
    assert example
    assert bool(example[1]) == (name not in ("float4", "double2", "half2"))  # integers may be sizes
    if not example[1]:
        assert run(*shlex.split(example[2]), *SIM).code == 0, example


def test_structs_are_packed_where_pycuda_puts_them() -> None:
    """With the types of `argument_types`, PyCUDA packs every struct at a multiple of its alignment."""
    import struct

    from cudabench.devices.driver_objects import argument_types
    from cudabench.records.launch import ByValue

    arguments = [np.int32(1), ByValue(b"a" * 16, 16), np.int8(2), ByValue(b"b" * 12, 4), "x", ByValue(b"c" * 8, 8)]
    layout = "".join(one if isinstance(one, str) else one.char for one in argument_types(arguments))
    given = [a.content if isinstance(a, ByValue) else 0 if isinstance(a, str) else a.item() for a in arguments]
    packed = struct.pack(layout, *given)
    assert [packed.index(letter * 8) for letter in (b"a", b"b", b"c")] == [16, 36, 56]


# Constants -----------------------------------------------------------------------------------------------------------

CONSTANT = """\
__constant__ float taps[4];
__constant__ int offset;
static __constant__ float factor = 2;
__global__ void f(int n, const float *x, float *y) {
    int i = threadIdx.x;
    if (i < n) y[i] = factor * x[i] * taps[i % 4] + offset;
}
int main() { float h[4]; cudaMemcpyToSymbol(taps, h, 16); }
"""
CONSTANT_LINE = ("-g", 1, "-b", 32, "--arg", "n=32", "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty")


@pytest.mark.slow
@simulated
def test_constants_are_set(run: Runner) -> None:
    """--const sets a constant before the launch, also a static one; expectations can use its name."""
    path = source(CONSTANT)
    words = (*CONSTANT_LINE, "--const", "taps=float32[4]:uniform(1,2)", "--const", "offset=3", *SIM, "--json", "-")
    ran = run(path, *words, "--expect", "y=2*x*np.tile(taps,8)+offset")
    assert (ran.code, one(ran)["warnings"]) == (0, [])
    factor = ("--const", "factor=5", "--expect", "y=factor*x*np.tile(taps,8)+offset")
    assert run(path, *words, *factor).code == 0
    started = ("--const", "taps=full(2)", "--const", "offset=ones", "--expect", "y=2*x*2+1", *SIM)
    assert run(path, *CONSTANT_LINE, *started).code == 0
    np.save("t.npy", np.arange(4, dtype=np.float32))
    file = ("--const", "taps=@t.npy", "--const", "offset=0", "--expect", "y=2*x*np.tile(np.arange(4),8)", *SIM)
    assert run(path, *CONSTANT_LINE, *file).code == 0


@simulated
def test_constants_that_nothing_sets_are_named(run: Runner) -> None:
    """A constant that nothing sets gives a warning, unless it has an initialiser."""
    result = one(run(source(CONSTANT), *CONSTANT_LINE, "--expect", "y=0", *SIM, "--json", "-"))
    assert [(w["code"], "taps" in w["message"]) for w in result["warnings"]] == [
        ("constant", True),
        ("constant", False),
    ]
    assert "add --const 'offset=1'" in result["warnings"][1]["message"]


@simulated
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tap=1", "lacks a __constant__ variable 'tap'; it has taps, offset, factor. Did you mean 'taps'?"),
        ("taps=1", "is 'float taps[4]' in k.cu, not a single number: write --const 'taps=float32[4]:random'"),
        ("taps=float64[4]:ones", "give float32[...], not float64"),
        ("taps=float32[5]:ones", "the value has 20 bytes, the variable 16"),
        ("offset=1.5", "int32 holds whole numbers"),
        ("offset", "not NAME=VALUE"),
        ("taps=empty", "'empty' would leave the constant without a value"),
    ],
)
def test_constants_that_are_none(run: Runner, text: str, message: str) -> None:
    """Each mistake in --const gives one message and exit code 2."""
    ran = run(source(CONSTANT), *CONSTANT_LINE, "--const", text, *SIM)
    assert ran.code == 2
    assert message in ran.err


# Expectations on functions and records -------------------------------------------------------------------------------


@simulated
def test_functions_of_an_output(run: Runner) -> None:
    """--expect compares functions and slices of an output; several are possible, and a wrong one is named."""
    words = ("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, *SIM, "--json", "-")
    right = ("--expect", "np.sum(y)=np.sum(a*x+y0)", "--expect", "y[3:5]=(a*x+y0)[3:5]", "--expect", "np.all(y==y)=1")
    ran = run(*words, *right)
    assert ran.code == 0
    assert one(ran)["verification"]["mismatches"] == 0
    ran = run(*words, *right, "--expect", "np.max(y)=np.max(x)")
    assert ran.code == 3
    assert "first np.max(y): got 3." in one(ran)["reason"]


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        (["np.sum(z)=1"], "'z' is unknown here"),
        (["np.sum(1)=1"], "must be an array or a function of an array, such as np.sum(y)"),
        (["x*y=1"], "must be an array or a function of an array"),
        (["np.sum(y)=@y.npy"], "a file with a whole array"),
        (["np.sum(y)=1", "y=1"], "y is expected twice"),
        (["np.sum(y)=1", "np.sum(y)=2"], "y is expected twice"),
        (["np.sum(y)"], "is not NAME=VALUE"),
        (["np.sum(x)=1"], "x is const in the signature"),
    ],
)
def test_functions_that_are_none(run: Runner, expect: list[str], message: str) -> None:
    """An invalid left side of --expect is refused."""
    words = [word for text in expect for word in ("--expect", text)]
    ran = run("saxpy.cu", *LAUNCH, *NUMBERS, *ARRAYS, *words, *SIM)
    assert ran.code == 2
    assert message in ran.err


@simulated
def test_records_are_compared_by_field(run: Runner) -> None:
    """Records are compared by field: floats by tolerance, integers exactly, padding not at all."""
    path = source(
        "struct P { char c; double d; float v[2]; };\n"
        "__global__ void f(P *p) { P &o = p[threadIdx.x]; o.c = 3; o.d = 1.0 / 3; o.v[0] = 2; o.v[1] = 1.f / 3; }\n"
    )
    kind = np.dtype({"names": ["c", "d", "v"], "formats": ["i1", "f8", ("f4", 2)], "offsets": [0, 8, 16],
                     "itemsize": 24})  # fmt: skip
    right = np.zeros(4, kind)
    right["c"], right["d"], right["v"] = 3, 1 / 3 * (1 + 1e-14), [2, 1 / 3 * (1 + 1e-6)]
    np.save("p.npy", right)
    words = (path, "-g", 1, "-b", 4, "--arg", "p=uint8[4*24]:empty", "--expect", "p=@p.npy", *SIM, "--json", "-")
    assert run(*words).code == 0
    right["v"][2, 1] = 0.4
    np.save("p.npy", right)
    ran = run(*words)
    assert ran.code == 3
    assert "first p.v[2, 1]: got 0.333333, expected 0.4" in one(ran)["reason"]
