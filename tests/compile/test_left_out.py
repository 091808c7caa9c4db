"""A faulty part of a file may be left out, but a kernel that uses the part is refused."""

from collections.abc import Iterable

import pytest

from cudabench.compile.compiler import compile_cubin, compile_ptx, nvcc_version, nvrtc_version
from cudabench.compile.record import Backend
from cudabench.errors import CudabenchError

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="no NVRTC")
needs_nvcc = pytest.mark.skipif(nvcc_version() is None, reason="no nvcc")
KERNEL = "__global__ void k(int *o) { o[threadIdx.x] = %s; }\n"
WRONG = "{ int low = x; int low = 2 * x; return low; }"
FLOAT = "__device__ int scale(float x) { return (int)(x * 2); }\n"

# A kernel uses a faulty name, and another declaration could take its place. Each case: text, line of the fault.
REPLACEABLE = {
    "overload": (FLOAT + f"__device__ int scale(int x) {WRONG}\n" + KERNEL % "scale(o[0])", 2),
    "inline overload": (FLOAT + f"static inline __device__ int scale(int x) {WRONG}\n" + KERNEL % "scale(o[0])", 2),
    "constexpr overload": (
        FLOAT + f"__device__ constexpr int scale(int x) {WRONG}\n" + KERNEL % "scale(o[0])", 2
    ),
    "overload in an anonymous namespace": (
        FLOAT + f"namespace {{ __device__ int scale(int x) {WRONG} }}\n" + KERNEL % "scale(o[0])", 2
    ),
    "overload of a deduced type": (FLOAT + f"__device__ auto scale(int x) {WRONG}\n" + KERNEL % "scale(o[0])", 2),
    "overload by a macro": (
        f"#define SCALE(T) __device__ int scale(T x) {WRONG}\n" + FLOAT + "SCALE(int)\n" + KERNEL % "scale(o[0])", 3
    ),
    "overload named by a macro": (
        f"#define S(x) scale(x)\n{FLOAT}__device__ int scale(int x) {WRONG}\n" + KERNEL % "S(o[0])", 3
    ),
    "overload through a function": (
        FLOAT + f"__device__ int scale(int x) {WRONG}\n__device__ int twice(int x) {{ return scale(x); }}\n"
        + KERNEL % "twice(o[0])", 2
    ),
    "overload whose head is at fault": (
        FLOAT + "__device__ int scale(Whole x) { return x; }\n" + KERNEL % "scale(o[0])", 2
    ),
    "specialisation of a function": (
        "template <class T> __device__ int scale(T x) { return 7; }\n"
        f"template <> __device__ int scale<int>(int x) {WRONG}\n" + KERNEL % "scale(o[0])", 2
    ),
    "specialisation of a class": (
        "template <class T> struct Factor { static const int value = 7; };\n"
        "template <> struct Factor<int> : Absent { static const int value = 2; };\n"
        + KERNEL % "Factor<int>::value", 2
    ),
    "member of a specialisation": (
        "template <class T> struct Factor { __device__ static int of(T x) { return 7; } };\n"
        f"template <class T> struct Factor<T *> {{ __device__ static int of(T *p) {{ int x = *p; {WRONG} }} }};\n"
        + KERNEL % "Factor<int *>::of(o)", 2
    ),
    "template that is the better match": (
        f"__device__ int scale(long long x) {{ return 7; }}\ntemplate <class T> __device__ int scale(T x) {WRONG}\n"
        + KERNEL % "scale(o[0])", 2
    ),
    "member": (
        f"struct V {{ __device__ int of(float x) {{ return 7; }}\n__device__ int of(int x) {WRONG} }};\n"
        + KERNEL % "V().of(o[0])", 2
    ),
    "member that hides one of a base": (
        "struct B { __device__ int of(int x) { return 7; } };\n"
        "struct V : B { __device__ int of(Absent x) { return 2; } };\n" + KERNEL % "V().of(o[0])", 2
    ),
    "constructor": (
        "struct V { int v; __device__ V(float x) : v(7) {}\n"
        "__device__ V(int x) : v{x} { int low = x; int low = 2; } };\n" + KERNEL % "V(o[0]).v", 2
    ),
    "constructor whose head is at fault": (
        "struct V { int v;\n__device__ V(int a, Absent b) : v(a) {} };\n" + KERNEL % "V{3}.v", 2
    ),
    "what a constructor initialises": (
        "struct V { int v; __device__ V(float x) : v(7) {}\n__device__ V(int x) : v{absent} {} };\n"
        + KERNEL % "V(o[0]).v", 2
    ),
    "conversion": (
        "struct V { __device__ operator float() const { return 7; }\n"
        "__device__ operator int() const { return absent; } };\n" + KERNEL % "V()", 2
    ),
    "operator": (
        "struct V { int v; __device__ operator int() const { return v; } };\n"
        "__device__ int operator+(V a, V b) { return absent; }\n" + KERNEL % "V{1} + V{2}", 2
    ),
    "operator whose head is at fault": (
        "struct V { int v; __device__ operator int() const { return v; } };\n"
        "__device__ Absent operator+(V a, V b) { return 1; }\n" + KERNEL % "V{1} + V{2}", 2
    ),
    "constant of an inner scope": (
        "__constant__ int factor = 7;\nnamespace in { __constant__ int factor = absent;\n"
        "__global__ void k(int *o) { o[0] = factor; } }\n", 2
    ),
    "constexpr of an inner scope, local in a block": (
        "constexpr int factor = 7;\nnamespace in { constexpr int factor = absent;\n"
        "__global__ void k(int *o) { { int factor = 1; o[1] = factor; } o[0] = factor; } }\n", 2
    ),
    "constant that a product and a loop's variable hide": (
        "constexpr int factor = 7;\nnamespace in { constexpr int factor = absent;\n__device__ int f(int);\n"
        "__device__ int f(int x) { return x; }\n__global__ void k(int *o) {\n"
        "for (int factor = 0; factor < 2; factor++) o[1] = factor;\no[0] = f(o[0] * factor); } }\n", 2
    ),
    "constants that conditions compare with": (
        "constexpr int factor = 7;\nnamespace in { constexpr int factor = absent;\n"
        "__global__ void k(int *o) { if (o[0] > 1 && o[1] & factor) { o[0] = 1; } } }\n", 2
    ),
    "constant that a condition has alone": (
        "constexpr int factor = 7;\nnamespace in { constexpr int factor = absent;\n"
        "__global__ void k(int *o) { int a = *o; if (a > factor) { int b[] = {a * factor, 3}; o[0] = b[0]; } } }\n", 2
    ),
    "type of an unnamed parameter": (
        "struct V { int a;\nabsent::type b;\n};\n__device__ int of(const V) { return 1; }\n"
        + KERNEL % "of({1})", 2
    ),
    "type of an inner scope": (
        "using Real = float;\nnamespace in { using Real = absent::type;\n"
        "__global__ void k(int *o) { o[0] = (int)(Real(o[0]) / 2 * 2); } }\n", 2
    ),
    "type of the host in an inner scope": (
        "typedef float Real;\nnamespace in { typedef absent::type Real;\n"
        "__global__ void k(int *o) { o[0] = sizeof(Real); } }\n", 2
    ),
    "enumerator of an inner scope": (
        "constexpr int factor = 7;\nnamespace in { enum { other, factor = absent };\n"
        "__global__ void k(int *o) { o[0] = factor; } }\n", 2
    ),
    "specialisation of a variable": (
        "template <class T> constexpr int factor = 7;\ntemplate <> constexpr int factor<int> = absent;\n"
        + KERNEL % "factor<int>", 2
    ),
    "lambda of an inner scope": (
        FLOAT + "namespace in { __device__ auto scale = [](int x) { return absent; };\n"
        "__global__ void k(int *o) { o[0] = scale(o[0]); } }\n", 2
    ),
    "member defined outside of its class": (
        "struct V { __device__ int of(float x) { return 7; } __device__ int of(int x); };\n"
        f"__device__ int V::of(int x) {WRONG}\n" + KERNEL % "V().of(o[0])", 2
    ),
    "specialisation of a member": (
        "template <class T> struct V { __device__ int of(T x); };\n"
        "template <class T> __device__ int V<T>::of(T x) { return 7; }\n"
        f"template <> __device__ int V<int>::of(int x) {WRONG}\n" + KERNEL % "V<int>().of(o[0])", 3
    ),
    "overload with an attribute and a head at fault": (
        FLOAT + "__attribute__((noinline)) __device__ int scale(Whole x) { return x; }\n" + KERNEL % "scale(o[0])", 2
    ),
    "overload that returns a pointer to a function": (
        "__device__ int one(int x) { return x; }\n__device__ auto pick(float x) -> int (*)(int) { return one; }\n"
        "__device__ int (*pick(Whole x))(int) { return one; }\n" + KERNEL % "pick(o[0])(3)", 3
    ),
    "argument that is left out": (
        "__device__ int scale(int x, float y) { return 7; }\n"
        "__device__ int scale(int x, int y = absent) { return y; }\n" + KERNEL % "scale(o[0], 1)", 2
    ),
    "name that a declaration takes from an inner scope": (
        FLOAT + "namespace in { __device__ int scale(Whole x) { return x; } }\nusing in::scale;\n"
        + KERNEL % "scale(o[0])", 2
    ),
    "virtual function": (
        "struct B { __device__ virtual int of() { return 7; } };\n"
        "struct V : B { __device__ int of() override { return absent; } };\n"
        + KERNEL % "static_cast<B &&>(V()).of()", 2
    ),
    "name that a macro puts together": (
        "#define CALL(n, x) sc##n(x)\n" + FLOAT + "__device__ int scale(Whole x) { return x; }\n"
        + KERNEL % "CALL(ale, o[0])", 3
    ),
    "function of C": (FLOAT + f'extern "C" {{ __device__ int scale(int x) {WRONG} }}\n' + KERNEL % "scale(o[0])", 2),
    "address": (
        FLOAT + f"__device__ int scale(int x) {WRONG}\n"
        "__global__ void k(int *o) { int (*f)(int) = scale; o[0] = f(o[0]); }\n", 2
    ),
    "function of a namespace that is used": (
        f"namespace a {{ __device__ int scale(int x) {WRONG} }}\n{FLOAT}using namespace a;\n" + KERNEL % "scale(o[0])",
        1,
    ),
    "function of an argument's namespace": (
        FLOAT + "namespace n { struct T { __device__ operator float() const { return 1; } };\n"
        "__device__ Whole scale(T x) { return 1; } }\n" + KERNEL % "scale(n::T())", 3
    ),
    "function with a requirement": (
        "template <class T> __device__ int scale(T x) { return 7; }\n"
        f"template <class T> requires (sizeof(T) == 4) __device__ int scale(T x) {WRONG}\n" + KERNEL % "scale(o[0])", 2
    ),
    "operator of a friend": (
        "struct V { int v; __device__ operator int() const { return v; }\n"
        "friend __device__ int operator+(V a, V b) { return absent; } };\n" + KERNEL % "V{1} + V{2}", 2
    ),
    "operator that is called": (
        "struct V { __device__ int operator()(float x) const { return 7; }\n"
        f"__device__ int operator()(int x) const {WRONG} }};\n" + KERNEL % "V()(o[0])", 2
    ),
    "operator of an index": (
        "struct V { __device__ operator const int *() const { return nullptr; }\n"
        "__device__ Whole operator[](int x) const { return 1; } };\n" + KERNEL % "V()[o[0]]", 2
    ),
    "constructor from a list": (
        "struct V { int v; __device__ V(int x) : v(7) {}\n__device__ V(absent::list<int> x) : v(2) {} };\n"
        + KERNEL % "V{1}.v", 2
    ),
    "type of a class that hides one of a base": (
        "struct A { using R = char; };\nstruct V : A { using R = absent; };\n" + KERNEL % "sizeof(V::R)", 2
    ),
    "variable of a class": (
        "struct V { int a;\nabsent::type b;\nint c; };\n__global__ void k(V *v, int *o) { o[0] = sizeof(V); }\n", 2
    ),
    "assertion": ('static_assert(sizeof(int) == 8, "of another machine");\n' + KERNEL % "1", 1),
}  # fmt: skip


def _each(cases: Iterable[str]) -> list[object]:
    """Return each case with both compilers; nvcc takes seconds, so its cases are slow."""
    return [pytest.param(case, "nvrtc", marks=needs_nvrtc) for case in cases] + [
        pytest.param(case, "nvcc", marks=[needs_nvcc, pytest.mark.slow]) for case in cases
    ]


@pytest.mark.slow
@pytest.mark.sampled(56)
@pytest.mark.parametrize(("case", "backend"), _each(REPLACEABLE))
def test_what_is_at_fault_is_not_replaced(case: str, backend: Backend) -> None:
    """No other overload, template, base, conversion or outer name replaces a faulty declaration: its error is shown."""
    text, line = REPLACEABLE[case]
    name = "in::k" if text.endswith("} }\n") else "k"
    for compile in (compile_ptx, compile_cubin):
        with pytest.raises(CudabenchError, match=rf"f\.cu:{line}: error: "):
            compile(text, "f.cu", names=[name], backend=backend)


HOSTS = {
    "overload": "int scale(int x) { return x; }\n",
    "inline overload": "static inline int scale(int x) { return x; }\n",
    "template": "template <class T> T scale(T x) { return x; }\n",
    "overload in an anonymous namespace": "namespace { int scale(int x) { return x; } }\n",
}


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize(("case", "backend"), _each(HOSTS))
def test_function_of_the_host_is_not_replaced_by_one_of_the_device(case: str, backend: Backend) -> None:
    """A call of the host's overload is refused, as by nvcc; a call of the device's overload compiles."""
    text = f'#include <cstdio>\n{FLOAT}{HOSTS[case]}int main() {{ printf("1"); return 0; }}\n'
    for compile in (compile_ptx, compile_cubin):
        with pytest.raises(CudabenchError, match=r"f\.cu:\d+: error: calling (a|the) __host__ function"):
            compile(text + KERNEL % "scale(o[0])", "f.cu", names=["k"], backend=backend)
        assert compile(text + KERNEL % "scale(1.5f)", "f.cu", names=["k"], backend=backend).ptx


# The kernel does not use the faulty name.
BESIDE = {
    "head of another name": FLOAT + "__device__ int half(Absent x) { return 1; }\n" + KERNEL % "scale(1.5f)",
    "body of another name": FLOAT + f"__device__ int half(int x) {WRONG}\n" + KERNEL % "scale(1.5f)",
    "another kernel": FLOAT + f"__global__ void other(int *x) {WRONG}\n" + KERNEL % "scale(1.5f)",
    "variable of the name of a parameter": (
        "absent::type width;\n__global__ void k(int *o, int width) { o[0] = width; }\n"
    ),
    "variable of the name of a local one": (
        "absent::type width;\n"
        "__global__ void k(int *o) { int width = 3; for (int i = 0; i < width; i++) o[i] = width; }\n"
    ),
    "function of the host with types that are not there": (
        FLOAT + "#include <absent.h>\nint scale(const absent::Image &x) { return 1; }\n" + KERNEL % "scale(1.5f)"
    ),
    "members of the host": (
        "#include <string>\n#include <iostream>\nstruct V { int v; void print() const { std::cout << v; }\n"
        "V(const std::string &text) { v = text.size(); }\n__device__ V(int x) : v(x) {} };\n" + KERNEL % "V(o[0]).v"
    ),
}  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("case", "backend"), _each(BESIDE))
def test_fault_that_a_kernel_does_not_come_to_is_left_out(case: str, backend: Backend) -> None:
    """A kernel compiles beside a faulty part that it does not use, also if its own variable has the name of that
    part."""
    for compile in (compile_ptx, compile_cubin):
        compiled = compile(BESIDE[case], "f.cu", names=["k"], backend=backend)
        assert "k" in compiled.ptx
        assert ".extern .func" not in compiled.ptx


# The kernel uses a name that has a faulty overload or member, although the compiler would choose another.
NAMED = {
    "overload": (FLOAT + f"__device__ int scale(int x) {WRONG}\n" + KERNEL % "scale(1.5f)", 2),
    "overload that takes a type of a missing header": (
        FLOAT + "#include <absent.h>\n__device__ int scale(const absent::Image &x) { return 1; }\n"
        + KERNEL % "scale(o[0])", 3
    ),
    "member defined outside of its class": (
        "struct V { __device__ int of(float x) { return 7; } __device__ int of(int x); };\n"
        f"__device__ int V::of(int x) {WRONG}\n" + KERNEL % "V().of(1.5f)", 2
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@needs_nvrtc
@pytest.mark.parametrize("case", NAMED)
def test_fault_of_a_name_that_a_kernel_comes_to_is_shown(case: str) -> None:
    """Every declaration of a name that the kernel uses is compiled, and a class is compiled whole."""
    text, line = NAMED[case]
    with pytest.raises(CudabenchError, match=rf"f\.cu:{line}: error: "):
        compile_cubin(text, "f.cu", names=["k"], backend="nvrtc")


@pytest.mark.slow
@needs_nvrtc
def test_variable_of_a_class_that_the_device_does_not_have() -> None:
    """NVRTC refuses a class with a member of a host-only type, since the size is unknown; nvcc compiles it."""
    text = (
        "#include <vector>\nstruct V { V(std::vector<int> v); ~V() {}\nstd::vector<int> host;\n"
        "__device__ static int of(int x) { return x; } };\n" + KERNEL % "V::of(o[0])"
    )
    with pytest.raises(CudabenchError, match=r'f\.cu:3: error: incomplete type "std::vector<int>" is not allowed'):
        compile_cubin(text, "f.cu", names=["k"], backend="nvrtc")
    if nvcc_version() is not None:
        assert compile_cubin(text, "f.cu", names=["k"]).backend == "nvcc"


@needs_nvrtc
def test_operator_of_the_host_is_not_replaced() -> None:
    """A sum that means the host's operator is refused; the operands are not converted to use another operator."""
    text = (
        "struct V { int v; __device__ operator int() const { return v; } };\n"
        "__device__ int operator+(V a, float b) { return 7; }\nint operator+(V a, V b) { return 2; }\n"
    )
    with pytest.raises(CudabenchError, match=r'f\.cu:3: error: calling the __host__ function "operator\+"'):
        compile_ptx(text + KERNEL % "V{1} + V{2}", "f.cu", names=["k"], backend="nvrtc")


@needs_nvrtc
def test_name_is_followed_through_a_define() -> None:
    """A define may give the name of the function that the kernel uses."""
    text = FLOAT + "__device__ int scale(Whole x) { return x; }\n" + KERNEL % "SCALE(o[0])"
    with pytest.raises(CudabenchError, match=r"f\.cu:2: error"):
        compile_ptx(text, "f.cu", names=["k"], defines={"SCALE": "scale"}, backend="nvrtc")


@needs_nvrtc
def test_whole_file_compiles_without_what_no_kernel_comes_to() -> None:
    """Without a requested name all kernels are compiled; a faulty variable that no kernel uses is left out."""
    text = "absent::type width;\nabsent::type *height;\n" + KERNEL % "1"
    assert ".entry _Z1kPi" in compile_ptx(text, "f.cu", backend="nvrtc").ptx
    inner = "namespace in { absent::type width;\n__global__ void k(int *o) { o[0] = width; } }\n"
    with pytest.raises(CudabenchError, match=r"f\.cu:2: error"):
        compile_ptx("constexpr int width = 3;\n" + inner, "f.cu", backend="nvrtc")
