"""The part of a source that the requested kernels need, and what the compiler reports about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudabench.compile import compiler
from cudabench.compile.compiler import compile_cubin, compile_ptx
from cudabench.errors import CompilerError
from cudabench.source.device_part import Part, device_part
from cudabench.source.records import Task

needs_nvrtc = pytest.mark.skipif(compiler.nvrtc_version() is None, reason="needs NVRTC")

SOURCE = """#include <vector>
#define WIDTH 4
#define TWICE(x) twice(x)
namespace é { __device__ int used(int x) { return x + WIDTH; } __device__ int unused(int x) { return x; } }
extern "C" { __device__ int twice(int x) { return 2 * x; } }
#if defined(ABSENT)
__device__ int skipped(int x) { return x; }
#endif
using namespace é;
typedef struct { int a, b; } Pair, *Pairs;
struct Other { std::vector<int> list; };
enum { first, second };
std::vector<int> width;
int twice(std::vector<int> x) { return x.size(); }
int host(int x) { return x; }
__device__ int called_by_host_too(int x) { return host(x); }
template <int N> __global__ void k(Pair *o, int width) { o[0].a = used(TWICE(N)) + second + width; }
__global__ void other(Other *o) {
#pragma unroll
  for (;;) { }
}
int main() { k<3><<<1, 1>>>(0, 0); }
"""


def part_of(text: str, *kernels: str, folder: Path | None = None, front: str = "") -> Part:
    """Return the part of a text that kernels need."""
    path = str(folder / "f.cu") if folder else "f.cu"
    found = device_part(Task(path, text, str(folder) if folder else None), kernels, [], front)
    assert found is not None
    return found


def test_what_the_kernels_reach_stays_where_it_is() -> None:
    """The part keeps directives, scopes, and all names that a kernel uses, also through macros; other lines become
    blank."""
    own = part_of(SOURCE, "k").texts[""].split("\n")
    assert len(own) == len(SOURCE.split("\n"))
    kept = {number for number, line in enumerate(own, 1) if line.strip()}
    assert kept == {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 17}
    assert "used(int x) { return x + WIDTH; }" in own[3]
    assert "unused" not in own[3]
    assert own[3].rstrip().endswith("}")
    for number in (5, 7, 10, 12, 17):
        assert own[number - 1] == SOURCE.split("\n")[number - 1]


def test_functions_for_the_host_keep_their_heads() -> None:
    """A host function that a kernel names keeps its declaration; in a class all methods do, without constructor
    initialisers."""
    text = (
        "int scale(int x) { return x; }\nstruct V { int v; V(int x) : v(x) {} virtual ~V() { v = 0; }\n"
        "friend int of(V a) { return a.v; } __device__ int get() const { return v; } };\n"
        "__global__ void k(V *o) { o->v = scale(1); }\n"
    )
    found = part_of(text, "k")
    lines = [" ".join(line.split()) for line in found.texts[""].split("\n")]
    assert lines[:2] == ["int scale(int x) ;", "struct V { int v; V(int x) ; virtual ~V() ;"]
    assert lines[2] == "friend int of(V a) ; __device__ int get() const { return v; } };"
    assert [(one.name, one.line) for one in found.hosts] == [("scale", 1), ("V", 2), ("~V", 2), ("of", 3)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("__cluster_dims__(2, 1, 1) __global__ void k(int *o) { }\n", "__cluster_dims__(2, 1, 1) __global__"),
        ("[[maybe_unused]] __device__ int f() { return 1; }\n__global__ void k(int *o) { *o = f(); }\n", "[[maybe"),
        ("static __device__ int n;\n__global__ void s() { n = 2; }\n__global__ void k(int *o) { *o = n; }\n", "n = 2"),
        ("namespace { __device__ int n; }\n__global__ void s() { n = 2; }\n__global__ void k(int *o) { *o = n; }\n",
         "n = 2"),
        (
            "__device__ int *f() { static int n; return &n; }\n__global__ void set() { *f() = 2; }\n"
            "__global__ void k(int *o) { *o = *f(); }\n",
            "*f() = 2",
        ),
        ("#define CALL(n, x) sc##n(x)\n__device__ int scale(int x) { return 1; }\n"
         "__global__ void k(int *o) { *o = CALL(ale, 1); }\n", "scale(int x) {"),
        ("struct T { __device__ T(int x); };\n__device__ int operator+(T a, T b) { return 1; }\n"
         "__global__ void k(int *o) { }\n", "operator+(T a, T b) {"),
        ("static_assert(sizeof(int) == 8, \"\");\n__global__ void k(int *o) { }\n", "static_assert"),
        ("int host;\nnamespace in { using Real = absent:: ; }\n__global__ void k(Real *o) { }\n", "using Real"),
    ],
    ids=["cluster", "attribute", "static", "unnamed", "of a function", "pasted", "operator", "assertion", "unread"],
)  # fmt: skip
def test_what_may_change_the_code_stays(text: str, stays: str) -> None:
    """The part keeps attributes, other writers of a static variable, names pasted by macros, operators, and code that
    the parser cannot read."""
    assert stays in part_of(text, "k").texts[""]


def test_what_macros_write() -> None:
    """Kernels, functions and scopes that macros create are kept or dropped like others."""
    text = (
        '#define KERNEL(name, value) extern "C" __global__ void name(int *o) { *o = value(); }\n'
        "#define FUNCTION(name) __device__ int name() { return 1; }\n#define BEGIN(name) namespace name {\n"
        "#define END }\nBEGIN(in)\nFUNCTION(one)\nFUNCTION(two)\nEND\nusing namespace in;\n"
        "KERNEL(k, one)\nKERNEL(other, two)\n"
    )
    own = part_of(text, "k").texts[""].split("\n")[4:]
    assert [line.strip() for line in own] == [
        "BEGIN(in)", "FUNCTION(one)", "", "END", "using namespace in;", "KERNEL(k, one)", "", "",
    ]  # fmt: skip


def test_hostile_text_has_no_part() -> None:
    """A text that the parser cannot read, or without the kernel, has no part."""
    assert device_part(Task("f.cu", "int x = " + "-" * 1_000_000 + "1;\n"), ["k"], [], "") is None
    assert device_part(Task("f.cu", "__global__ void other() {}\n"), ["k"], [], "") is None


HELPERS = """#pragma once
#include <shapes/vector.hpp>
using vec3 = shapes::vec<3, float>;
inline __device__ float length_of(const vec3 &a) { return shapes::length(a); }
inline __device__ void add(float &a, float b) { a += b; }
inline __device__ void add(vec3 &a, const vec3 &b) { a = a + b; }
inline __device__ void sum(float &a, float b) { a += b; }
inline void print(const vec3 &a) { std::cout << a; }
int scale(int x) { return x; }
"""


@pytest.mark.sampled(5)
@needs_nvrtc
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sum(o[0], 1.0f);", ""),
        ("o[0] = length_of(o[0]);", r'helpers.cuh:3: error: name followed by "::" must be a class'),
        ("o[0] = shapes::length(o[1]);", r'k.cu:2: error: name followed by "::" must be a class'),
        ("add(o[0], 1.0f);", r'helpers.cuh:3: error: name followed by "::" must be a class'),
        ("o[0] = scale(2);", r'helpers.cuh:9: error: calling the __host__ function "scale" from device code'),
    ],
    ids=["beside it", "a type", "a function", "an overload", "a function of the host"],
)
def test_a_library_that_is_missing(tmp_path: Path, body: str, says: str) -> None:
    """A kernel that needs a missing library is refused with the header's name; one that does not need it compiles."""
    (tmp_path / "helpers.cuh").write_text(HELPERS)
    source = f'#include "helpers.cuh"\n__global__ void k(float *o) {{ {body} }}\n'
    if not says:
        assert ".entry" in compile_ptx(source, str(tmp_path / "k.cu"), names=["k"], backend="nvrtc").ptx
        return
    with pytest.raises(CompilerError, match=says) as refused:
        compile_ptx(source, str(tmp_path / "k.cu"), names=["k"], backend="nvrtc")
    assert "no header <shapes/vector.hpp> was found" in str(refused.value)


@pytest.mark.sampled(3)
@needs_nvrtc
@pytest.mark.parametrize("inner", ["using Real = absent::T;", "typedef absent::T Real;", "struct Real : Absent { };"])
def test_a_fault_of_a_header_is_not_replaced(tmp_path: Path, inner: str) -> None:
    """A faulty declaration in an inner scope is an error, and does not fall back to the outer scope's name."""
    (tmp_path / "in.h").write_text(f"using Real = float;\nnamespace in {{ {inner} }}\n")
    source = (
        '#include "in.h"\nnamespace in { __global__ void k(int *o) { o[0] = (int)(Real(o[0]) / 2 * 2); } }\n'
        "int main() { return undeclared(); }\n"
    )
    with pytest.raises(CompilerError, match=r"in\.h:2: error"):
        compile_cubin(source, str(tmp_path / "f.cu"), names=["in::k"], backend="nvrtc")


@needs_nvrtc
def test_an_unknown_word_may_be_of_the_device() -> None:
    """A function with an unknown macro of a missing header in its head may be a device function, so it is kept and
    gives an error."""
    text = (
        "#include <absent.h>\n__device__ int scale(float x) { return 7; }\nHD int scale(int x) { return x; }\n"
        "__global__ void k(int *o) { o[0] = scale(o[0]); }\nint main() { return 0; }\n"
    )
    with pytest.raises(CompilerError, match=r"f\.cu:3: error"):
        compile_cubin(text, "f.cu", names=["k"], backend="nvrtc")


@needs_nvrtc
def test_types_of_the_standard_library_in_a_class() -> None:
    """A class whose object a kernel makes may have host functions with types of the standard library."""
    text = (
        "#include <string>\n#include <iostream>\nstruct V { int v; V(const std::string &text) { v = text.size(); }\n"
        "friend std::ostream &operator<<(std::ostream &o, const V &a) { return o << a.v; }\n"
        "__device__ V(int x) : v(x) {} };\n__global__ void k(int *o) { o[0] = V(o[1]).v; }\n"
    )
    assert compile_cubin(text, "f.cu", names=["k"], backend="nvrtc").cubin


@pytest.mark.sampled(3)
@needs_nvrtc
@pytest.mark.parametrize(
    "front",
    [
        "#include <opencv2/core.hpp>\nusing namespace cv;\nusing namespace cv::ocl;\nMat picture;",
        '#include <iostream>\n#include <map>\nusing namespace std;\nmap<string, int> names = {{"add", 1}};',
        "#include <mma.h>\n#include <absent.h>\nusing namespace nvcuda;\nusing absent::thing;",
    ],
    ids=["missing", "standard", "of CUDA"],
)
def test_names_of_libraries(front: str) -> None:
    """A file with names of missing libraries compiles if the kernel needs none of them, and keeps the names of CUDA."""
    body = "wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;" if "mma.h" in front else "int f = 1;"
    text = f"{front}\n__global__ void k(int *o) {{ {body} o[0] = sizeof(f); }}\nint main() {{ return undeclared(); }}\n"
    assert compile_cubin(text, "f.cu", names=["k"], backend="nvrtc").cubin
