"""The command that an error message suggests: it runs as printed, or has gaps for values that only the user has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cudabench.compile import stand_ins
from cudabench.compile.compiler import nvrtc_version
from cudabench.source.files import parse_text
from cudabench.userkernel import constants
from tests.conftest import Ran

needs_simulator = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
GAPS = "with your own value for each ...: cudabench"
AT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
WHOLE = {
    "a guarded size, an input and an output": (
        f"__global__ void f(const float *x, double *y, unsigned n) {{ {AT} if (i < n) y[i] = x[i]; }}",
        ["--grid cdiv(n,256)", "--block 256", "x=float32[n]:random", "y=float64[n]:empty", "n=10007"],
    ),
    "an array in place and one that counts": (
        f"__global__ void f(float *x, int *hits, int n) {{ {AT}\n"
        "  if (i >= n) return; x[i] *= 2; atomicAdd(&hits[0], 1); }",
        ["x=float32[n]:random", "hits=int32[1]:zeros"],
    ),
    "literal launch numbers": (
        "#define THREADS 64\nconstexpr int N = 1000;\n"
        f"__global__ void f(float *x, int n) {{ {AT} if (i < n) x[i] = 1; }}\n"
        "int main() { float *x; f<<<(N + THREADS - 1) / THREADS, THREADS>>>(x, N); }",
        ["--grid 16", "--block 64", "x=float32[n]:empty", "n=1000"],
    ),
    "a block that host code computes": (
        f"__global__ void f(float *x, int n) {{ {AT} if (i < n) x[i] = 1; }}\n"
        "void go(float *x, int n, int b) { f<<<n / b, b>>>(x, n); }",
        ["--grid cdiv(n,256)", "--block 256", "n=10007"],
    ),
    "two axes and one size": (
        "__global__ void f(float *a, int n) { int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;"
        "\n  if (x < n && y < n) a[y * n + x] = x; }",
        ["--grid cdiv(n,16),cdiv(n,16)", "--block 16,16", "a=float32[n*n]:empty", "n=251"],
    ),
    "rows that the size parts": (
        f"__global__ void f(const float *a, float *s, int n) {{ {AT} if (i >= n) return;\n"
        "  float t = 0; for (int j = 0; j < n; j++) t += a[i * n + j]; s[i] = t; }",
        ["--grid cdiv(n,256)", "a=float32[n*n]:random", "n=251"],
    ),
    "pointers to rows": (
        f"__global__ void f(float **a, int n) {{ {AT} if (i < n) a[i][0] = 1; }}",
        ["a=float32[n,n]:random", "n=251"],
    ),
    "a thread for each element of one block": (
        "__global__ void f(int *x) { __shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();\n"
        "  x[threadIdx.x] = s[63 - threadIdx.x]; }",
        ["--grid 1", "--block 64", "x=int32[64]:random"],
    ),
    "a template of types and defaults": (
        f"template <class T, int K = 4> __global__ void f(T *x, T a, bool up, int n) {{ {AT}\n"
        "  if (i < n) x[i] = up ? a * K : a; }",
        ["--kernel f<float, 4>", "a=2.5", "up=true", "x=float32[n]:empty"],
    ),
    "an instance that a launch names": (
        f"#define TILE 8\ntemplate <typename T, int K> __global__ void f(T *x, int n) {{ {AT} if (i < n) x[i] = K; }}\n"
        "void go(double *x, int n) { f<double, TILE><<<n, 32>>>(x, n); }",
        ["--kernel f<double, 8>", "x=float64[n]:empty", "--block 32", "--grid cdiv(n,32)"],
    ),
    "dynamic shared memory of plain bytes": (
        "__global__ void f(float *x) { extern __shared__ float s[]; s[threadIdx.x] = x[threadIdx.x];\n"
        "  x[threadIdx.x] = s[threadIdx.x] + 1; }\nvoid go(float *x) { f<<<1, 96, 96 * sizeof(float)>>>(x); }",
        ["--grid 1", "--block 96", "--shared 384", "x=float32[96]:random"],
    ),
    "vectors and structs of one type": (
        f"struct P {{ float x, y, z; }};\n__global__ void f(const P *p, float4 *v, float2 c, int n) {{ {AT}\n"
        "  if (i < n) v[i] = make_float4(p[i].x, p[i].y, p[i].z, c.x); }",
        ["p=float32[3*n]:random", "v=float32[4*n]:empty", "c=2.5,2.5"],
    ),
}
PARTS = {
    "two sizes": (
        f"__global__ void f(float *x, int w, int h) {{ {AT} if (i < w && blockIdx.y < h) x[blockIdx.y * w + i] = 1; }}",
        ["--grid ...", "x=float32[w*h]:empty", "w=...", "h=..."],
    ),
    "a number that is not a size": (
        f"__global__ void f(float *x, int n, int shift) {{ {AT} if (i < n) x[i] += shift; }}",
        ["--grid cdiv(n,256)", "x=float32[n]:zeros", "n=10007", "shift=..."],
    ),
    "an index that is a multiple of a place": (
        f"__global__ void f(float *x, int n) {{ {AT} if (i < n) x[3 * i + 1] = 1; }}",
        ["x=float32[...]:empty", "n=10007"],
    ),
    "an index of no thread": (
        "__global__ void f(float *x) { for (int j = 0; j < 1000; j++) x[j] = 1; }",
        ["x=float32[...]:empty"],
    ),
    "shared memory of a size that nothing says": (
        f"__global__ void f(float *x, int n) {{ extern __shared__ float s[]; {AT} if (i < n) x[i] = s[0] = 1; }}",
        ["--shared ..."],
    ),
    "a block that a tile in shared memory must fit": (
        "__global__ void f(float *x) { __shared__ float s[9][9]; s[threadIdx.y][threadIdx.x] = 1; x[0] = s[8][8]; }",
        ["--block ..."],
    ),
    "members of a struct by value": (
        f"struct P {{ float *at; int n; }};\n__global__ void f(P p) {{ {AT} if (i < p.n) p.at[i] = 1; }}",
        ["p={at: ..., n: ...}"],
    ),
    "a type of a header that is missing": (
        f"#include <far/real.h>\n__global__ void f(Real *x, int n) {{ {AT} if (i < n) x[i] = 1; }}",
        ["x=..."],
    ),
    "structs that point at others": (
        "struct Row { int n; float *at; };\n__global__ void f(Row *rows) { rows[threadIdx.x].at[0] = 1; }",
        ["rows=..."],
    ),
    "a number and a functor of a template": (
        f"template <int K, typename F> __global__ void f(float *x, F g, int n) {{ {AT} if (i < n) x[i] = g(K); }}",
        ["--kernel f<..., ...>", "g=..."],
    ),
    "a type of which members are asked": (
        "template <typename K> __global__ void f(float *x) { x[threadIdx.x] = K::FIRST; }",
        ["--kernel f<...>"],
    ),
    "a texture, a surface and a tensor map": (
        "#include <cuda.h>\n__global__ void f(cudaTextureObject_t t, cudaSurfaceObject_t s, CUtensorMap m) {}",
        ["t=texture(...)", "s=surface(...)", "m=tensormap(...)"],
    ),
}


def suggested(text: str) -> list[str]:
    """Return the words of the suggested command in a message."""
    match = re.search(r"(?:write|as in): cudabench (run .*)", text)
    assert match, text
    return shlex.split(match[1])


@pytest.mark.sampled(12)
@needs_simulator
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_line_runs_as_it_is(name: str, cudabench: Callable[..., Ran]) -> None:
    """For kernels with arrays, numbers and one size, the suggested command has no gap and runs without a hazard."""
    text, parts = WHOLE[name]
    Path("k.cu").write_text(text)
    words = suggested(cudabench("run", "k.cu").err)
    for part in parts:
        assert part in " ".join(words)
    ran = cudabench(*words, "--device", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PARTS)
def test_what_only_the_user_knows_is_a_gap(name: str, cudabench: Callable[..., Ran]) -> None:
    """The suggested command has gaps for values that it cannot derive; an unfilled gap is refused."""
    text, parts = PARTS[name]
    Path("k.cu").write_text(text)
    said = cudabench("run", "k.cu").err
    assert GAPS in said
    words = shlex.split(said.partition(GAPS)[2])
    for part in parts:
        assert part in " ".join(words)
    ran = cudabench(*words, "--device", "sim")
    assert ran.code == 2, ran.out + ran.err
    assert "defect" not in ran.err


AXES = f"{AT} int j = blockIdx.y * blockDim.y + threadIdx.y;"
# (parameters, body, shapes of the suggested arrays)
REACHED = {
    "a guard that lacks": ("const float *x, float *y, int n", f"{AT} y[i] = 0; if (i < n) y[i] = x[i];", "n n"),
    "a sum": ("const float *x, float *sum, int n", f"{AT} if (i < n) atomicAdd(sum, x[i]);", "n 1"),
    "the address of an element": ("int *bins, int n", f"{AT} if (i < n) atomicAdd(&bins[3], 1);", "4"),
    "one value": ("const float *a, float *y, int n", f"{AT} if (i < n) y[i] = *a;", "1 n"),
    "a matrix and a vector": (
        "const float *a, const float *x, float *y, int n",
        f"{AT} if (i >= n) return; float s = 0; for (int c = 0; c < n; c++) s += a[i * n + c] * x[c]; y[i] = s;",
        "n*n n n",
    ),
    "rows and columns": (
        "float *a, const float *bias, int rows, int cols",
        f"{AXES} if (j < rows && i < cols) a[j * cols + i] += bias[i];",
        "rows*cols cols",
    ),
    "three sizes": (
        "const float *a, const float *b, float *c, int m, int n, int k",
        f"{AXES} if (i >= n || j >= m) return; // b[n * n * n]\n float s = 0;"
        "for (int l = 0; l < k; l++) s += a[j * k + l] * b[l * n + i]; c[j * n + i] = s;",
        "m*k n*k m*n",
    ),
    "a pointer to a row": (
        "const float *a, float *y, int rows, int cols",
        f"{AT} if (i >= rows) return; const float *row = a + (size_t)i * cols;"
        "for (int c = 0; c < cols; c++) y[i] += row[c];",
        "rows*cols rows",
    ),
    "an element for each block": (
        "const float *x, float *y, int n",
        f"{AT} if (i < n && threadIdx.x == 0) y[blockIdx.x] = x[i];",
        "n cdiv(n,256)",
    ),
    "an element for each warp": ("float *y", "if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = 1;", "8"),
    "the inner part": (
        "const float *x, float *y, int w, int h",
        f"{AXES} if (i < 1 || j < 1 || i >= w - 1 || j >= h - 1) return;"
        "y[j * w + i] = x[(j - 1) * w + i] + x[(j + 1) * w + i] + x[j * w + i + 1];",
        "w*h w*h",
    ),
    "a part of the size": ("float4 *x, int n", f"{AT} if (i < n / 4) x[i].x = 0;", "4*(n//4)"),
    "a number of the template": ("float *w, int n", f"{AT} if (i < n) for (int k = 0; k < K; k++) w[k] = 0;", "5"),
    "a number that the template does not give": (
        "float *w, int n",
        f"{AT} if (i < n && i >= K) for (int k = 0; k < K; k++) w[k] = 0;",
        "...",
    ),
    "a falling loop": ("float *w", "for (int k = 16; k > 0; k >>= 1) w[k] = 0;", "17"),
    "a condition of one statement": (
        "float *x, float *y, int n, int m",
        f"{AT} if (i < n) {{ if (i < m) x[i] = 1; y[i] = 1; }}",
        "m n",
    ),
    "one more than the size": ("const int *x, int *y, int n", f"{AT} if (i < n) y[i] = x[i + 1];", "... n"),
    "no more than the size": ("float *x, int n", f"{AT} if (i <= n) x[i] = 0;", "..."),
    "an index from memory": ("const int *x, int *bins, int n", f"{AT} if (i < n) bins[x[i]] = 1;", "n ..."),
    "a pointer that moves": ("float *x, int n", f"{AT} for (; i < n; i++) {{ *x = 1; x += 7; }}", "..."),
    "rows of a number that only the grid has": (
        "float *x, int n",
        "for (int c = threadIdx.x; c < n; c += blockDim.x) x[blockIdx.x * n + c] = 1;",
        "...",
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_arrays_are_as_long_as_the_kernel_reaches(name: str, cudabench: Callable[..., Ran]) -> None:
    """The suggested shapes are those that the kernel's conditions allow; `...` if the source does not show them."""
    parameters, body, shapes = REACHED[name]
    default = "" if "does not give" in name else " = 5"
    template = f"template <int K{default}> " if "template" in name else ""
    Path("k.cu").write_text(f"{template}__global__ void f({parameters}) {{ {body} }}")
    said = cudabench("run", "k.cu").err
    assert " ".join(re.findall(r"\w+=\w+\[([^]]+)\]", said)) == shapes, said


@pytest.mark.parametrize(
    ("body", "start"),
    [
        ("while (atomicCAS(a, 0, 1) != 0) {} x[0] += 1; atomicExch(a, 0);", "zeros"),
        ("if (threadIdx.x == 0) *a = 1; while (*(volatile int *)a == 0) {}", "zeros"),
        ("if (atomicAdd(&a[0], 1) == gridDim.x - 1) a[0] = 0;", "zeros"),
        ("if (a[threadIdx.x] == 0) a[threadIdx.x] = 1;", "random"),
    ],
)
def test_what_counts_or_signals_starts_as_zeros(body: str, start: str, cudabench: Callable[..., Ran]) -> None:
    """Locks, flags and counters start as zeros in the suggested command; other arrays that are read as random."""
    Path("k.cu").write_text(f"__global__ void f(int *a, float *x) {{ {body} }}")
    assert re.search(rf"a=int32\[[^]]+\]:{start}\b", cudabench("run", "k.cu").err)


@needs_simulator
def test_a_suggested_size_does_not_hide_a_missing_guard(cudabench: Callable[..., Ran]) -> None:
    """A store before the guard is out of bounds in the suggested launch."""
    Path("k.cu").write_text(f"__global__ void f(float *x, int n) {{ {AT} x[i] = 0; if (i < n) x[i] = 1; }}")
    ran = cudabench(*suggested(cudabench("run", "k.cu").err), "--device", "sim", "--no-cpu")
    assert (ran.code, "past the end of 'x'" in ran.out + ran.err) == (3, True), ran.out + ran.err


@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_each_command_prints_its_own_line(command: str, cudabench: Callable[..., Ran]) -> None:
    """The suggested command has the same subcommand and keeps the given options."""
    Path("k.cu").write_text(WHOLE["an array in place and one that counts"][0])
    said = cudabench(command, "k.cu", "-b", 64, "-D", "K=2", "--arg", "n=99", "--expect", "hits=99").err
    line = f"write: cudabench {command} k.cu --kernel f -D K=2 --grid 'cdiv(n,64)' --block 64 "
    line += "--arg 'x=float32[n]:random' --arg 'hits=int32[1]:zeros' --arg n=99 --expect hits=99"
    assert line in said


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("far::Info<float, int> info", "takes 'far::Info<float, int> info' by value, a struct whose members are not"),
        ("float ***x", "takes 'float*** x', pointers to pointers to pointers"),
        ("float (*f)(float)", "takes a function, which a command line cannot give"),
    ],
)
def test_what_no_argument_can_be_is_said(parameter: str, said: str, cudabench: Callable[..., Ran]) -> None:
    """A kernel with an impossible parameter gets no suggested command; another kernel of the file does."""
    Path("k.cu").write_text(f"__global__ void f({parameter}) {{}}")
    for command in ("run", "check"):
        ran = cudabench(command, "k.cu")
        assert (ran.code, said in ran.err, "cudabench run" in ran.err) == (2, True, False), ran.err
    with Path("k.cu").open("a") as stream:
        stream.write("\n__global__ void plain(float *x) { x[threadIdx.x] = 1; }")
    assert suggested(cudabench("run", "k.cu").err)[3] == "plain"


def test_a_template_that_is_named_has_a_line_too(cudabench: Callable[..., Ran]) -> None:
    """For a template's bare name, `run` and `check` suggest a command with template arguments."""
    Path("k.cu").write_text(WHOLE["an instance that a launch names"][0])
    said = cudabench("run", "k.cu", "-k", "f").err
    assert "name an instantiation, such as 'f<double, 8>'; as in: " in said
    assert suggested(said)[3] == "f<double, 8>"
    assert "as in: cudabench check k.cu --kernel 'f<double, 8>' " in cudabench("check", "k.cu").err


@pytest.mark.slow
def test_headers_around_the_file_are_named(cudabench: Callable[..., Ran]) -> None:
    """The suggested command has -I for an include folder of the project, whose types it uses."""
    for folder in ("src", "include"):
        Path(folder).mkdir()
    Path("src/own.h").write_text('#include "types.h"\n')
    Path("include/types.h").write_text("typedef double real;\n#define COUNT unsigned\n")
    Path("src/k.cu").write_text(
        f'#include "own.h"\n__global__ void f(real *x, const COUNT *c, int n) {{ {AT} if (i < n) x[i] = c[i]; }}\n'
    )
    words = suggested(cudabench("run", "src/k.cu").err)
    assert words[words.index("-I") + 1] == "include"
    assert {"x=float64[n]:empty", "c=uint32[n]:random"} <= set(words)
    Path("include/k.cuh").write_text("__global__ void fill(float *x) { x[threadIdx.x] = 1; }\n")
    Path("src/k.cu").write_text('#include "k.cuh"\nvoid go(float *x) { fill<<<1, 32>>>(x); }\n')
    said = cudabench("run", "src/k.cu").err
    assert "src/k.cu has only kernels from headers, which -I finds; as in: " in said
    if nvrtc_version() is not None:
        assert cudabench(*suggested(said), "--device", "sim", "--no-cpu").code == 0


# The order of arguments ----------------------------------------------------------------------------------------------

AXPY = (
    f"struct P {{ int n; float a; }};\n__global__ void axpy(int n, float a, const float *x, float *y, int m) {{ {AT}\n"
    "  if (i < n) y[i] = a * x[i] + y[i] + m; }\n"
    f"__global__ void copy(float *y, const float *x, int n) {{ {AT} if (i < n) y[i] = x[i]; }}\n"
    f"__global__ void packed(P p, int k, int n, float *y) {{ {AT} if (i < n) y[i] = p.n + k; }}\n"
    "__global__ void bare(float *, int, float *y) { y[threadIdx.x] = 1; }\n"
)
X, Y = "x=float32[n]:random", "y=float32[n]:random"


@pytest.mark.sampled(6)
@needs_simulator
@pytest.mark.parametrize("command", ["run", "check", "explain"])
@pytest.mark.parametrize(
    ("kernel", "given", "expect"),
    [
        ("axpy", (X, "m=n//2", Y, "a=m/100", "n=100"), "y=np.float32(a)*x+y0+50"),
        ("copy", ("n=100", X, Y), "y=x"),
        ("packed", ("k=p_n*2", Y, "p={n: n-1, a: 2}", "n=100"), "y=297"),
        ("bare", (Y, "second=float32[n]:zeros", "n=32"), "y=1"),
    ],
)
def test_arguments_are_told_by_name_in_any_order(
    command: str, kernel: str, given: Sequence[str], expect: str, cudabench: Callable[..., Ran]
) -> None:
    """Arguments may be in any order and may use later numbers, also members of structs; unnamed parameters are matched
    by position."""
    Path("k.cu").write_text(AXPY)
    if kernel == "bare":
        given = ("y=float32[32]:empty", "first=float32[1]:zeros", "second=3")
    words = [word for text in given for word in ("--arg", text)]
    launch = ("-g", "cdiv(n,64)", "-b", 64) if kernel != "bare" else ("-g", 1, "-b", 32)
    device = ("--device", "sim", "--no-cpu") if command == "run" else ()
    expected = ("--expect", expect) if command != "explain" else ()
    ran = cudabench(command, "k.cu", "-k", kernel, *launch, *words, *expected, *device)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
@needs_simulator
def test_kernels_of_one_command_take_arguments_by_name(cudabench: Callable[..., Ran]) -> None:
    """Kernels of one run, a sweep, and `diff` match arguments by name, also if the kernels have another order."""
    Path("two.cu").write_text(
        f"__global__ void a(float *y, const float *x, int n) {{ {AT} if (i < n) y[i] = x[i]; }}\n"
        f"__global__ void b(int n, const float *x, float *y) {{ {AT} if (i < n) y[i] = x[i]; }}\n"
    )
    given = ("-g", "cdiv(n,64)", "-b", 64, "--arg", X, "--arg", Y, "--arg", "n=100")
    ran = cudabench("run", "two.cu", "-k", "all", *given, "--expect", "y=x", "-d", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err
    swept = (*given[:-1], "n=100,200")
    ran = cudabench("sweep", "two.cu", "-k", "b", *swept, "--expect", "y=x", "-d", "sim")
    assert ran.code == 0, ran.out + ran.err
    ran = cudabench("diff", "two.cu", "two.cu", "-k", "a", *given)
    assert ran.code == 0, ran.out + ran.err


def test_numbers_that_name_each_other_are_refused(cudabench: Callable[..., Ran]) -> None:
    """Numbers that depend on each other are refused by name, and so are a missing number and an unfilled gap."""
    Path("k.cu").write_text(AXPY)
    launch = ("run", "k.cu", "-k", "axpy", "-g", 1, "-b", 32, "--arg", X, "--arg", Y, "--arg", "a=1")
    said = cudabench(*launch, "--arg", "n=m+1", "--arg", "m=n-1")
    assert said.code == 2
    assert "--arg n=m+1 and --arg m=n-1 need each other: give one of them as a number" in said.err
    said = cudabench(*launch, "--arg", "m=n-1")
    assert (said.code, "takes 5 arguments, 4 are given (n missing)" in said.err) == (2, True)
    said = cudabench(*launch, "--arg", "n=...", "--arg", "m=1")
    assert (said.code, "replace '...' by your own value" in said.err) == (2, True)


# What else changes a suggested command -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_files_own_kernel_comes_first(cudabench: Callable[..., Ran]) -> None:
    """Kernels of the file come before those of its headers, and the suggested command is for the file's kernel."""
    Path("book.h").write_text("__global__ void show(float *x) {}\n__global__ void show(int *x) {}\n")
    Path("k.cu").write_text('#include "book.h"\n__global__ void own(float *x) { *x = 1; }\n')
    said = cudabench("run", "k.cu").err
    assert "has 3 kernels: choose one with --kernel: own, show(float*), show(int*); as in:" in said
    assert suggested(said)[3] == "own"


@pytest.mark.slow
def test_a_header_of_cuda_or_the_standard_library_is_not_a_projects_own(cudabench: Callable[..., Ran]) -> None:
    """No -I is suggested for a folder with copies of CUDA or standard headers, which would hide the compiler's
    headers."""
    Path("Makefile").touch()
    for header in ("third_party/cub/cub.cuh", "text/string.h", "text/own.h"):
        Path(header).parent.mkdir(parents=True, exist_ok=True)
        Path(header).write_text("#error of another release\n" if "own" not in header else "")
    Path("k.cu").write_text(
        "#include <string.h>\n#include <cub/cub.cuh>\n__global__ void f(float *x) { x[threadIdx.x] = 1; }\n"
    )
    assert "-I" not in suggested(cudabench("run", "k.cu").err)
    Path("k.cu").write_text('#include "own.h"\n__global__ void f(float *x) { x[threadIdx.x] = 1; }\n')
    words = suggested(cudabench("run", "k.cu").err)
    assert words[words.index("-I") + 1].endswith("text")


def test_names_that_a_kernel_comes_to() -> None:
    """A kernel's constants include those of functions that it calls, and exclude names of its local variables and
    parameters."""
    text = (
        "__constant__ float s[4], far, other;\n__device__ float use(int k) { return s[k]; }\n"
        "__device__ float unused() { return other; }\n"
        "__global__ void reads(float *x) { *x = use(1); }\n"
        "__global__ void shadows(float *far, int n) { float *s = far, other = 1;\n"
        "  for (int i = 0, k; i < n; i++) s[i] = other; }\n"
    )
    file = parse_text(text, "k.cu")
    reads, shadows = file.kernels
    assert reads.names >= {"use", "s"}
    assert constants.unset_options(file, reads, ()) == ["s=float32[4]:random"]
    assert constants.unset_options(file, shadows, ()) == []


def test_constants_of_one_declaration() -> None:
    """Each __constant__ variable of a declaration is found with type, extents and whether it has an initialiser."""
    text = (
        "enum { N = 5 };\nstatic __constant__ const float a, b[3][N] , c = 2;\n"
        "__constant__ __align__(16) float4 t[2];\n"
        "namespace n { __constant__ struct P p; }\n__constant__ int table[] = {1, 2};\n"
    )
    file = parse_text(text, "k.cu")
    assert {one.name: (one.type, one.extents, one.has_initialiser) for one in file.constants} == {
        "a": ("float", (), False),
        "b": ("float", (3, 5), False),
        "c": ("float", (), True),
        "t": ("float4", (2,), False),
        "p": ("struct P", (), False),
        "table": ("int", (2,), True),
    }


def test_older_names_are_told_by_what_a_compiler_says() -> None:
    """The old intrinsics are defined only if the compiler or the assembler reports one of them as missing."""
    assert stand_ins.uses_removed('k.cu(3): error: identifier "__shfl_xor" is undefined')
    assert stand_ins.uses_removed(
        "ptxas line 9: error: Instruction 'vote' without '.sync' is not supported on .target sm_70"
    )
    assert not stand_ins.uses_removed('k.cu(3): error: identifier "shuffle" is undefined')


def test_vector_math_stands_for_the_samples_header_alone() -> None:
    """The stand-in for helper_math.h declares more than 200 functions, each of them once."""
    heads = re.findall(r"^CUDABENCH_BOTH (\S.*?\))\s*\{", stand_ins.text("common/helper_math.h"), re.M)
    assert len(heads) == len(set(heads)) > 200


def test_utf_16_is_refused_by_name(cudabench: Callable[..., Ran]) -> None:
    """A file in UTF-16 is refused with a message that says so."""
    Path("k.cu").write_text("__global__ void f() {}\n", encoding="utf-16")
    ran = cudabench("run", "k.cu")
    assert (ran.code, ran.err) == (
        1,
        "Error: k.cu is written in UTF-16, which CUDA's compilers cannot read: save it as UTF-8.\n",
    )


@needs_simulator
def test_an_array_that_is_too_small_is_said_to_be_as_given(cudabench: Callable[..., Ran]) -> None:
    """An out-of-bounds access without --expect adds a warning that --arg may give too small an array."""
    Path("pairs.cu").write_text(
        "__global__ void pairs(float *out, const float *in, int n) { int i = threadIdx.x;\n"
        "  if (i < n) { out[2 * i] = in[i]; out[2 * i + 1] = 0; } }\n"
    )
    line = ["run", "pairs.cu", "-g", 1, "-b", 32, "--arg", "out=float32[n]:zeros", "--arg", "in=float32[n]:random"]
    line += ["--arg", "n=32", "-d", "sim", "--no-cpu"]
    ran = cudabench(*line)
    assert ran.code == 3
    said = "--arg sets the size of out: if callers give the kernel more elements, give out more"
    assert said in " ".join(ran.err.split())
    assert said not in " ".join(cudabench(*line, "--expect", "out=out0").err.split())
    assert said in " ".join(cudabench("check", *line[1:-1]).out.split())


@pytest.mark.slow
@pytest.mark.parametrize(("low", "said"), [(5, True), (3, False)])
def test_a_launch_that_comes_to_no_store_says_so(low: int, said: bool, cudabench: Callable[..., Ran]) -> None:
    """If no thread of a clean launch wrote anything, the output says so."""
    Path("k.cu").write_text(
        "__global__ void sort(int *a, int low, int high) { if (low < high && threadIdx.x == 0) a[low] = a[high]; }"
    )
    given = ["-k", "sort", "-g", 1, "-b", 32, "--arg", "a=int32[8]:arange", "--arg", f"low={low}", "--arg", "high=5"]
    for command in ("run", "check", "explain"):
        ran = cudabench(command, "k.cu", *given, *(["--device", "sim"] if command == "run" else []))
        assert (ran.code, "no thread wrote anything" in ran.out + ran.err) == (0, said)
    checked = cudabench("check", "k.cu", *given).out
    assert "1 block of 32 threads" in checked


def test_a_kernel_without_stores_is_not_said_to_miss_them(cudabench: Callable[..., Ran]) -> None:
    """A kernel that only prints gets no such message."""
    Path("k.cu").write_text('#include <cstdio>\n__global__ void greet(int n) { if (n > 3) printf("hi %d", n); }')
    ran = cudabench("check", "k.cu", "-k", "greet", "-g", 1, "-b", 1, "--arg", "n=1")
    assert (ran.code, "no thread wrote" in ran.out, "1 block of 1 thread" in ran.out) == (0, False, True)


@needs_simulator
def test_a_kernel_that_a_header_declares_otherwise(cudabench: Callable[..., Ran]) -> None:
    """A kernel that a header declares with other parameters is compiled and found as an overload."""
    Path("k.h").write_text("template <typename T, int K> __global__ void f(int n, int width, T *x);\n")
    Path("k.cu").write_text(
        '#include "k.h"\ntemplate <typename T, int K = 3> __global__ void f(int n, T *x) {\n'
        "  if (threadIdx.x < n) x[threadIdx.x] = K; }\n"
    )
    words = suggested(cudabench("run", "k.cu").err)
    ran = cudabench(*words, "--device", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err
