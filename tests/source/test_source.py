"""The reader of CUDA source text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cudabench.errors import CudabenchError, UsageError
from cudabench.source.choose_kernel import find_kernel as find
from cudabench.source.comments import first_sentence
from cudabench.source.files import parse_text as parse
from cudabench.source.files import read_file as read
from cudabench.source.files import without_kernels
from cudabench.source.types import numpy_type as numpy_dtype
from cudabench.source.types import vector_type


def names(text: str) -> list[str]:
    """Return the qualified names of a text's kernels."""
    return [kernel.qualified_name for kernel in parse(text, "t.cu").kernels]


def parameter(declaration: str) -> tuple[str, str, bool, bool, bool]:
    """Return the fields of a single parameter."""
    (one,) = parse(f"__global__ void f({declaration}) {{}}", "t.cu").kernels[0].parameters
    return (one.name, one.type, one.pointer, one.const, one.restrict)


CHAPTER = """\
// Transpose: out[x][y] = in[y][x].
//
// 2 * 4 * n bytes must move.

#define T float

// Copies rows. The ceiling.
__global__ void copy_row(const T *in, T *out, int n) {
    if (n) { out[0] = in[0]; }
}

/* Reads rows, writes columns.
 * Stores touch 32 sectors. */
template <typename U, int N = 32>
__global__ void __launch_bounds__(N * 2, 2) naive(U *__restrict__ out) { }
"""


def test_without_kernels() -> None:
    """without_kernels() removes all other kernels, and keeps line numbers and everything that is not a kernel."""
    text = without_kernels(CHAPTER, {"naive"})
    assert [(kernel.name, kernel.line) for kernel in parse(text, "").kernels] == [
        (kernel.name, kernel.line) for kernel in parse(CHAPTER, "").kernels if kernel.name == "naive"
    ]
    assert text.count("\n") == CHAPTER.count("\n")
    assert "#define T float" in text
    assert "copy_row" not in text
    assert without_kernels(CHAPTER, {"naive", "copy_row"}) == CHAPTER


def test_chapter() -> None:
    """The reader returns a chapter's kernels in order, with comment, line, signature and position."""
    source = parse(CHAPTER, "kernels_cu/transpose.cu")
    copy, naive = source.kernels
    assert (copy.name, copy.line, copy.comment) == ("copy_row", 8, "Copies rows. The ceiling.")
    assert copy.signature == "copy_row(const T* in, T* out, int n)"
    assert CHAPTER[copy.start : copy.end] == copy.text
    assert copy.text.startswith("__global__")
    assert copy.text.endswith("}\n}")
    assert (naive.line, naive.comment) == (15, "Reads rows, writes columns.\nStores touch 32 sectors.")
    assert [str(one) for one in naive.template_parameters] == ["typename U", "int N = 32"]
    assert naive.signature == "template <typename U, int N = 32> naive(U* __restrict__ out)"
    assert source.types == {"T": "float"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("float a", ("a", "float", False, False, False)),
        ("const int n", ("n", "int", False, False, False)),
        ("const T* __restrict__ p", ("p", "T", True, True, True)),
        ("T const *p", ("p", "T", True, True, False)),
        ("T *const p", ("p", "T", True, False, False)),
        ("const float *RESTRICT p", ("p", "float", True, True, True)),
        ("unsigned long long n", ("n", "unsigned long long", False, False, False)),
        ("unsigned", ("", "unsigned", False, False, False)),
        ("float4 *v", ("v", "float4", True, False, False)),
        ("float x[]", ("x", "float", True, False, False)),
        ("const float x[4][8]", ("x", "float[8]", True, True, False)),
        ("float (*x)[8]", ("x", "float[8]", True, False, False)),
        ("float (*op)(float, int)", ("op", "float (*)(float, int)", False, False, False)),
        ("struct Params p", ("p", "struct Params", False, False, False)),
        ("const __grid_constant__ ns::Params p", ("p", "ns::Params", False, False, False)),
        ("ns::Params", ("", "ns::Params", False, False, False)),
        ("typename T::value_type *p", ("p", "typename T::value_type", True, False, False)),
        ("std::pair<int, float> p", ("p", "std::pair<int, float>", False, False, False)),
        ("const vec<float, 4> *p", ("p", "vec<float, 4>", True, True, False)),
        ("float **rows", ("rows", "float*", True, False, False)),
        ("const float *const *rows", ("rows", "float*", True, True, False)),
        ("int n = (1 < 2, 3)", ("n", "int", False, False, False)),
        ("[[maybe_unused]] int n", ("n", "int", False, False, False)),
        ("float *", ("", "float", True, False, False)),
        ("Ts... rest", ("rest", "Ts...", False, False, False)),
    ],
)
def test_parameters(declaration: str, expected: tuple[str, str, bool, bool, bool]) -> None:
    """Every spelling of a parameter gives its name, type, and whether it is a const or restrict pointer."""
    assert parameter(declaration) == expected


def test_parameter_lists() -> None:
    """Commas inside types and default values do not split a parameter list, and void is not a parameter."""
    kernel = parse("__global__ void f(A<1, 2> a, int n = g(1, 2), S s = {1, 2}) {}", "t.cu").kernels[0]
    assert [one.name for one in kernel.parameters] == ["a", "n", "s"]
    shifts = parse("__global__ void f(int n = 1 << 3, int m = n >> 2, A<B<1>> a, int k) {}", "t.cu").kernels[0]
    assert [one.name for one in shifts.parameters] == ["n", "m", "a", "k"]
    assert parse("__global__ void f(void) {}", "t.cu").kernels[0].parameters == ()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "head",
    [
        "__global__ void f(int n)",
        "static __global__ void f(int n)",
        "void __global__ f(int n)",
        "__global__ static inline void f(int n)",
        "__global__ void __launch_bounds__(256, 2) f(int n)",
        "__global__ __launch_bounds__(B(1)) void f(int n)",
        "__global__ void f(int n) __launch_bounds__(256)",
        "__global__ __attribute__((used)) void f(int n)",
        "__global__ KERNEL_ATTRIBUTE(3) void f(int n)",
        "__global__ void LAUNCH(3) f(int n)",
        "__global__ void f(int n) TAIL(3)",
        "EXPORT __global__ void f /* ( */ (int n // )\n)",
        "[[nodiscard]] __global__ void\nf(int n)",
        "__global__ auto f(int n) -> void",
        'extern "C" __global__ void f(int n)',
    ],
)
def test_heads(head: str) -> None:
    """The reader finds the kernel's name among attributes, macros and comments."""
    (kernel,) = parse(head + " { if (n) { g(n); } }\nint after(int x) { return x; }", "t.cu").kernels
    assert (kernel.name, [one.name for one in kernel.parameters]) == ("f", ["n"])


def test_not_kernels() -> None:
    """Comments, strings, macros, inactive branches and declarations are not kernels."""
    text = """
    // __global__ void a() {}
    /* __global__ void b() {} */
    const char *s = "__global__ void c() {}"; const char *r = R"x(__global__ void d() { )" )x";
    char q = '{'; int big = 1'000'000;
    #define E __global__ void e() { \\
        }
    #if 0
    __global__ void g() {}
    #if 1
    #endif
    #else
    __global__ void h() {}
    #endif
    #if 1 // always
    __global__ void i() {}
    #else
    __global__ void j() {}
    #endif
    __global__ void k(int n);
    extern template __global__ void l<float>(float *);
    struct S { int x; } s = {1};
    """
    assert names(text) == ["h", "i"]


def test_scopes() -> None:
    """Namespaces and extern "C" blocks nest, and end before later kernels."""
    text = """
    namespace a { namespace b::c { __global__ void f() {} } inline namespace v1 { __global__ void g() {} } }
    namespace { __global__ void h() {} }
    #ifdef __cplusplus
    extern "C" {
    #endif
    __global__ void i() {}
    #ifdef __cplusplus
    }
    #endif
    template <class T> struct A { void m() { int x[] = {1}; } };
    __global__ void j() {}
    """
    assert names(text) == ["a::b::c::f", "a::v1::g", "h", "i", "j"]


def test_branches_with_two_heads() -> None:
    """Two heads with one body, or one kernel in two branches, count as one kernel."""
    text = """
    #ifdef WIDE
    __global__ void f(double *x) {
    #else
    __global__ void f(float *x) {
    #endif
        x[0] = 1;
    }
    #ifdef A
    __global__ void g(int n) { }
    #else
    __global__ void g(int n) { ; }
    #endif
    """
    assert names(text) == ["f", "g"]


def test_comments() -> None:
    """A kernel's comment is the block directly above it or above its declaration, not a trailing or distant comment."""
    text = """
    // Announced.
    __global__ void f(int);
    int x; // trailing
    __global__ void f(int n) {}

    // Distant.

    __global__ void g() {}
    /** Starred.
     *
     *  Second * paragraph.
     */
    // ------
    __global__ void h() {}
    """
    source = parse(text, "t.cu")
    assert [kernel.comment for kernel in source.kernels] == ["Announced.", "", "Starred.\n\nSecond * paragraph."]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("Copies rows. Then\nmore.", "Copies rows."),
        (
            "One thread an element, e.g. a float,\nof 0.5 bytes. Next.",
            "One thread an element, e.g. a float, of 0.5 bytes.",
        ),
        ("No stop\n\nNext paragraph.", "No stop"),
        ("Fast? Yes.", "Fast?"),
        ("", ""),
    ],
)
def test_first_sentence(comment: str, expected: str) -> None:
    """The first sentence ends at its full stop, not at one in a number or an abbreviation."""
    assert first_sentence(comment) == expected


OVERLOADS = "h(float*), h(const double*, unsigned int), h(T*, T, float (*)[4])"
MANY = """
template <typename T, int N = 4> __global__ void f(T *x, const T y, Vec<T, N> v) {}
namespace a { __global__ void g(int) {} }
namespace b { __global__ void g(int) {} }
__global__ void h(float *x) {}
__global__ void h(const double *x, unsigned int n) {}
template <class T> __global__ void h(T *x, T y, float (*rows)[4]) {}
"""


def test_find() -> None:
    """A kernel is found by plain or qualified name, by template arguments, and by parameter types."""
    source = parse(MANY, "t.cu")
    f = find(source, "f<double>")
    assert [str(one) for one in f.parameters] == ["double* x", "double y", "Vec<double, 4> v"]
    assert f.expression == "f<double>"
    assert find(source, "f < float , 32 >").expression == "f<float, 32>"
    assert find(source, "::a::g").expression == "a::g"
    assert find(source, "h(double *, unsigned)").expression == "h(const double*, unsigned int)"
    assert find(source, "h<int>").expression == "h<int>(int*, int, float (*)[4])"
    assert find(source, "h<int>(int*, int, float(*)[4])").expression == "h<int>(int*, int, float (*)[4])"
    assert find(parse("__global__ void only() {}", "t.cu")).name == "only"
    pointer = find(parse("template <class T> __global__ void p(T x) {}", "t.cu"), "p<const float*>").parameters[0]
    assert (pointer.type, pointer.pointer, pointer.const) == ("float", True, True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            None,
            f"has 6 kernels: choose one with --kernel: f, a::g, b::g, {OVERLOADS}.",
        ),
        (
            "hh",
            f"lacks a kernel 'hh'; it has: f, a::g, b::g, {OVERLOADS}. Did you mean 'h'?",
        ),
        ("g", "'g' is ambiguous in t.cu: write one of a::g, b::g."),
        (
            "h",
            "'h' is overloaded in t.cu: write one of 'h(float*)', 'h(const double*, unsigned int)', 'h(T*, T,",
        ),
        (
            "h(int)",
            "lacks a kernel 'h(int)'; it has: h(float* x); h(const double* x, unsigned int n); template <typename T>",
        ),
        ("f", "is a template: name an instantiation, such as 'f<float, 4>'."),
        ("f<float, 1, 2>", "has 3 template arguments"),
        ("a::g<int>", "a::g is not a template."),
    ],
)
def test_find_errors(name: str | None, message: str) -> None:
    """A name that matches no kernel, or several, is refused with a list of the kernels."""
    with pytest.raises(UsageError) as caught:
        find(parse(MANY, "t.cu"), name)
    assert message in str(caught.value)


def test_find_in_a_file_without_kernels() -> None:
    """A file without kernels gives an error."""
    with pytest.raises(UsageError, match="lacks a __global__ function"):
        find(parse("int main() {}", "t.cu"), "f")


@pytest.mark.parametrize(
    ("ctype", "expected"),
    [
        ("float", "float32"),
        ("const double", "float64"),
        ("unsigned char", "uint8"),
        ("uint8_t", "uint8"),
        ("std::uint16_t", "uint16"),
        ("char", "int8"),
        ("signed", "int32"),
        ("unsigned", "uint32"),
        ("short int", "int16"),
        ("long long unsigned int", "uint64"),
        ("long", "int64"),
        ("size_t", "uint64"),
        ("half", "float16"),
        ("__half", "float16"),
        ("bool", "bool"),
        ("long double", None),
        ("float*", None),
        ("float4", None),
        ("struct Params", None),
        ("T", None),
        ("real", "float64"),
    ],
)
def test_numpy_dtype(ctype: str, expected: str | None) -> None:
    """C types in any word order map to NumPy's names; a type that NumPy lacks maps to None."""
    assert numpy_dtype(ctype, {"real": "scalar", "scalar": "double", "T": "T"}) == expected


def test_vector_type() -> None:
    """A CUDA vector type gives its element type and width."""
    assert vector_type("float4") == ("float32", 4)
    assert vector_type("ulonglong2") == ("uint64", 2)
    assert vector_type("uchar3") == ("uint8", 3)
    assert vector_type("half2") == ("float16", 2)
    assert vector_type("float") is None
    assert vector_type("float8") is None


def test_aliases() -> None:
    """The reader records typedefs, using aliases and simple type macros, but not function-like macros and values."""
    text = (
        "typedef unsigned char byte;\nusing real = float;\n#define T double\n#define F(x) x\n#define N 32\n#define G\n"
    )
    assert parse(text, "t.cu").types == {"byte": "unsigned char", "real": "float", "T": "double"}


def test_read(tmp_path: Path) -> None:
    """Files are read as UTF-8, with or without a byte order mark or Windows line ends."""
    path = tmp_path / "a.cu"
    path.write_bytes(b"\xef\xbb\xbf// O.\r\n\r\n// C.\r\n__global__ void f() {}\r\n")
    source = read(path)
    assert (source.kernels[0].comment, source.kernels[0].line) == ("C.", 4)


def test_read_errors(tmp_path: Path) -> None:
    """Missing, directory and binary files are refused with one message; a Latin-1 file is read."""
    (tmp_path / "saxpy.cu").write_text("")
    with pytest.raises(CudabenchError, match=r"no such file\. Did you mean 'saxpy.cu'\?"):
        read(tmp_path / "sxpy.cu")
    with pytest.raises(CudabenchError, match="is a directory"):
        read(tmp_path)
    (tmp_path / "latin.cu").write_bytes(b"//\n// \xe9\n")
    assert read(tmp_path / "latin.cu").text == "//\n// \u00e9\n"
    (tmp_path / "elf.cu").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(CudabenchError, match="NUL bytes"):
        read(tmp_path / "elf.cu")


FRAGMENTS = """__global__ void f ( ) { } < > template namespace ; , * const float = [ ] :: ... // /* */ " ' extern~"C"
#if~0 #else #endif""".split()  # noqa: SIM905


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("\n".join)
    | st.lists(st.sampled_from(FRAGMENTS)).map(" ".join)
)
@example("(\nf")
def test_any_text(text: str) -> None:
    """No text makes the reader fail, and every kernel's text is at its recorded position."""
    text = text.replace("~", " ")
    source = parse(text, "t.cu")
    for kernel in source.kernels:
        assert text[kernel.start : kernel.end] == kernel.text
        assert kernel.signature


def test_import_is_cheap() -> None:
    """Reading source imports neither NumPy nor ctypes."""
    code = "import sys, cudabench.source.files; sys.exit(bool({'numpy', 'ctypes'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
