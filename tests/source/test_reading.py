"""Reading a source as the compiler does: macros, conditions, headers and type aliases."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudabench.errors import CudabenchError
from cudabench.source import clang_parse
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import parse_text, read_file
from cudabench.source.named_types import layout_of
from cudabench.source.records import HostLaunch, Question


def signatures(path: Path, **defines: str) -> list[str]:
    """Return the signatures of a file's kernels."""
    return [kernel.signature for kernel in read_file(path, defines).kernels]


def test_kernels_as_the_compiler_reads_them(tmp_path: Path) -> None:
    """The reader finds kernels that macros create, uses the types of the active branch, and keeps comments and line
    numbers."""
    path = tmp_path / "t.cu"
    text = "#ifdef D\ntypedef double real;\n#else\ntypedef float real;\n#endif\n\n"
    text += "// Own.\n__global__ void own(real *x) {}\n"
    text += "#define K(n, T) __global__ void n(T *x, int n_##n) {}\nK(add, double)\n"
    path.write_text(text)
    file = read_file(path, {"D": "1"})
    assert [kernel.signature for kernel in file.kernels] == ["own(real* x)", "add(double* x, int n_add)"]
    assert file.types["real"] == "double"
    assert read_file(path).types["real"] == "float"
    assert (file.kernels[0].line, file.kernels[0].comment) == (8, "Own.")
    assert "n_add" in file.kernels[1].text


def test_branches(tmp_path: Path) -> None:
    """The reader takes only the branch that the macros of the command line choose."""
    path = tmp_path / "t.cu"
    path.write_text(
        "#if defined(A) && A > 8\n__global__ void wide(double *x) {}\n#elif defined B\n__global__ void b(int *x) {}\n"
        "#else\n__global__ void narrow(float *x) {}\n#endif\n"
    )
    assert signatures(path) == ["narrow(float* x)"]
    assert signatures(path, A="16") == ["wide(double* x)"]
    assert signatures(path, A="4", B="") == ["b(int* x)"]


def test_headers(tmp_path: Path) -> None:
    """The user's headers contribute kernels, types and constants; headers of CUDA and of the host are ignored."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "sub" / "a.cuh").write_text('#pragma once\n#include "b.cuh"\n__global__ void of_a(real *x) {}\n')
    (tmp_path / "sub" / "b.cuh").write_text("typedef double real;\nconstexpr int TILE = 4 * 8;\n")
    (tmp_path / "far" / "c.h").write_text("struct P { real a; int b; };\n")
    path = tmp_path / "t.cu"
    path.write_text('#include "sub/a.cuh"\n#include "sub/a.cuh"\n#include <c.h>\n#include <vector>\n'
                    "// Own.\n__global__ void own(P p) {}\n")  # fmt: skip
    file = read_file(path, {}, [tmp_path / "far"])
    assert [(kernel.name, kernel.file and Path(kernel.file).name) for kernel in file.kernels] == [
        ("own", ""),
        ("of_a", "a.cuh"),
    ]
    layout = layout_of("P", file)
    assert layout is not None
    assert (layout.size, file.types["real"], file.numbers["TILE"]) == (16, "double", "32")


def test_no_header_by_its_absolute_path(tmp_path: Path) -> None:
    """A header with an absolute path is refused."""
    (tmp_path / "secret.h").write_text("__global__ void secret() {}\n")
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "t.cu"
    path.write_text(f'#include "{tmp_path}/secret.h"\n')
    with pytest.raises(CudabenchError, match="absolute path"):
        read_file(path)


def test_pointers_by_other_names() -> None:
    """Typedefs of pointers, and member types of classes and specialisations, are resolved with their const."""
    text = """
    typedef float *Vector;
    using Const = const float *;
    struct Wide { typedef double Type; };
    template <class T> struct Vec;
    template <> struct Vec<int> { public: using Type = int4; };
    template <class T> __global__ void k(Vector a, Const b, typename T::Type *c, const typename T::Type d, Vector *e) {}
    template <class T> __global__ void v(typename Vec<T>::Type *x) {}
    """
    source = parse_text(text, "t.cu")
    kernel = find_kernel(source, "k<Wide>")
    assert [one.meaning for one in kernel.parameters] == ["float*", "const float*", "double*", "double", "float**"]
    assert [one.pointer for one in kernel.parameters] == [True, True, True, False, True]
    (one,) = find_kernel(source, "v<int>").parameters
    assert (one.meaning, one.pointer) == ("int4*", True)


@pytest.mark.parametrize(
    ("declared", "asked", "size", "align", "offsets"),
    [
        ("struct S { char a; struct { int b; } in; };", "S", 8, 4, [0, 4]),
        ("struct __align__(16) S { float a; };", "S", 16, 16, [0]),
        ("template <class T, int n> struct alignas(16) Box { T held[n]; };", "Box<float, 3>", 16, 16, [0]),
        ("enum E { A }; struct S { E e; const float *p; bool b[3]; };", "S", 24, 8, [0, 8, 16]),
        ("constexpr int n = 2; struct S { double x[n * 2]; float4 v; };", "S", 48, 16, [0, 32]),
        ("struct B {}; struct S : B { int a; };", "S", 4, 4, [0]),
    ],
)
def test_layouts(declared: str, asked: str, size: int, align: int, offsets: list[int]) -> None:
    """A struct has the layout that the compiler gives it: nested, aligned, from a template, with constants."""
    layout = layout_of(asked, parse_text(declared, "t.cu"))
    assert layout is not None
    assert (layout.size, layout.align, [at for _, at, _ in layout.members]) == (size, align, offsets)


@pytest.mark.parametrize(
    "declared",
    [
        "union S { int a; float b; };",
        "struct S { int a : 3; };",
        "struct S { virtual void f(); int a; };",
        "struct S { float **a; };",
        "struct B { int b; }; struct S : B { int a; };",
        "struct S { int a; gone_t b; int c; };",
        "struct S { int a; GONE(b) int c; };",
        "struct S { int a[GONE]; };",
    ],
)
def test_no_layout(declared: str) -> None:
    """A struct with a type that the tool cannot fill, or with an error in it, has no layout."""
    assert layout_of("S", parse_text(declared, "t.cu")) is None


def test_what_types_stand_for() -> None:
    """A parameter's element type follows typedefs and enumerations; objects and complex numbers keep their names."""
    text = (
        "#include <cuComplex.h>\nenum Color { RED }; typedef double real; struct P { real x, y, z; };\n"
        "using Tex = cudaTextureObject_t;\n"
        "__global__ void f(const real *a, Color c, P *p, Tex t, cuComplex *z, Gone *g) {}"
    )
    found = parse_text(text, "t.cu").kernels[0].parameters
    assert [one.element for one in found] == ["double", "int", "P", "cudaTextureObject_t", "cuComplex", "Gone"]
    assert [one.number for one in found] == ["float64", "int32", None, None, "complex64", None]
    assert (found[2].parts, found[5].parts) == (("float64", 3), None)


def test_launches_of_host_code() -> None:
    """Grid, block, shared bytes and arguments of a host launch are numbers if they are constant, also through
    variables."""
    text = (
        "template <class T, int K> __global__ void f(T *x, int n) {}\n"
        "const int N = 1000;\n#define B 64\n"
        "int main(int m, char **) { float *x; dim3 block(B, 2), grid((N + B - 1) / B);\n"
        "  f<float, 8><<<grid, block, B * sizeof(float)>>>(x, N); f<float, 4><<<m, m>>>(x, m); }"
    )
    task = parse_text(text, "t.cu").task
    assert task is not None
    first, second = clang_parse.answer_of(task, Question("f", launches=True)).launches
    assert first == HostLaunch(("float", "8"), (16,), (64, 2), 256, (None, 1000))
    assert second == HostLaunch(("float", "4"), (), (), 0, (None, None))
