"""A source as the compiler reads it: macros, conditions, headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.toolchain import preprocess
from cudabench.toolchain.source import find, parse, preprocessed, resolved


def words(text: str, **defines: str) -> str:
    """Return a text's expansion on one line."""
    return " ".join(str(preprocess.expand(text, "t.cu", defines)).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define N 3\nN N", "3 3"),
        ("#define F(x, y) x + y\nF(1, (2, 3))", "1 + ( 2 , 3 )"),
        ("#define F (x)\nF", "( x )"),
        ("#define F() 4\nF() F", "4 F"),
        ("#define F(x) x\nF\n(5)", "5"),
        ("#define CAT(a, b) a##b\n#define X 7\nCAT(X, 1) CAT(,z)", "X1 z"),
        ("#define S(x) #x\nS(a + 1)", '"a + 1"'),
        ("#define V(f, ...) f(__VA_ARGS__)\nV(g, 1, 2) V(h)", "g ( 1 , 2 ) h ( )"),
        ("#define V(f, rest...) f(rest)\nV(g, 1, 2)", "g ( 1 , 2 )"),
        ("#define A B\n#define B A\nA B", "A B"),
        ("#define G f\n#define f(x) <x>\nG(1)", "< 1 >"),
        ("#define N 1\nN\n#undef N\nN", "1 N"),
        ("#define N 1 \\\n + 2\nN", "1 + 2"),
        ("#define X(F) F(a) F(b)\n#define K(n) void n();\nX(K)", "void a ( ) ; void b ( ) ;"),
        ('"N" // N\n/* #if 0\n */ x', '"N" x'),
        ("__CUDACC__", "1"),
    ],
)
def test_macros(text: str, expected: str) -> None:
    """Macros are replaced as C++ says: arguments first, pasting and quoting without, no macro within itself."""
    assert words(text) == expected


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("1", True),
        ("0", False),
        ("defined(A) && !defined B", True),
        ("A == 0x10", True),
        ("A > 8 ? 0 : 1", False),
        ("(A + 1) * 2 == 34 && 7 / 2 == 3", True),
        ("1 << 4 == A", True),
        ("UNKNOWN", False),
        ("__has_builtin(__x) || UNKNOWN(3)", False),
        ('__has_include("no_such.h")', False),
        ("1 / 0", False),
        ("__cplusplus >= 201703L && __CUDA_ARCH__ >= 700u", True),
        ("010 == 8 && 1'000 == 1000 && 0b11 == 3", True),
        ("-1 < 0 && ~0 == -1 && +2", True),
        ("true && !false", True),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    """Expressions of #if have C's operators, precedence and numbers; what is unknown is 0."""
    assert words(f"#if {condition}\nyes\n#else\nno\n#endif", A="16") == ("yes" if holds else "no")


def test_branches() -> None:
    """The first branch that holds is taken, at any depth; what is left out defines nothing."""
    text = """
    #ifdef B
    #define T double
    #elif defined(A)
    #ifndef C
    #define T half
    #else
    #error no
    #endif
    #elif 1
    #define T int
    #else
    #define T float
    #endif
    T
    """
    assert [words(text), words(text, A="1"), words(text, A="1", B="1")] == ["int", "half", "double"]


def test_headers(tmp_path: Path) -> None:
    """Headers of the user's own come in where they stand, once if they say so; others, and absolute ones, do not."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "sub" / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nA\n')
    (tmp_path / "sub" / "b.cuh").write_text("#define A first\n")
    (tmp_path / "far" / "c.h").write_text("C\n")
    secret = tmp_path / "secret.h"
    secret.write_text("SECRET\n")
    text = f'#include "sub/a.cuh"\n#include "sub/a.cuh"\n#include <c.h>\n#include <vector>\n#include "{secret}"\nA\n'
    expanded = preprocess.expand(text, tmp_path / "t.cu", {"C": "second"}, [tmp_path / "far"])
    assert str(expanded).split() == ["first", "second", "first"]


def test_bounds(tmp_path: Path) -> None:
    """Macros and files that grow without end give nothing, soon."""
    bomb = "#define A0 x x\n" + "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(40))
    assert preprocess.expand(bomb + "A40\n", "t.cu", {}) is None
    deep = "".join(f"#define D{i + 1} D{i} y\n" for i in range(400))
    assert preprocess.expand(deep + "D400\n", "t.cu", {}) is None
    (tmp_path / "self.h").write_text('#include "self.h"\n')
    assert preprocess.expand('#include "self.h"\n', tmp_path / "t.cu", {}) is None
    assert preprocess.expand("#if " + "(" * 5000 + "1\n#endif\n", "t.cu", {}) is None


FRAGMENTS = """#define~F(x)~x##x #define~N~F(N) #if~N #elif~1 #else #endif #undef~F #include~"t.h" F(1, N ) ( # ## \\ "a
' /* */ // __VA_ARGS__ #define~V(...)~#__VA_ARGS__ V( , R"( defined""".split()  # noqa: SIM905


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(lambda parts: "\n".join(parts).replace("~", " ")))
def test_any_text(text: str) -> None:
    """No text makes the preprocessor fail."""
    assert preprocess.expand(text, "t.cu", {}) is not None


def test_kernels_as_the_compiler_reads_them() -> None:
    """Kernels of macros are found with their parameters, the branch's types hold, comments and lines are the file's."""
    text = "#ifdef D\ntypedef double real;\n#else\ntypedef float real;\n#endif\n\n"
    text += "// Own.\n__global__ void own(real *x) {}\n"
    text += "#define K(n, T) __global__ void n(T *x, int n_##n) {}\nK(add, double)\n"
    source = preprocessed(parse(text, "t.cu"), {"D": "1"})
    assert [kernel.signature for kernel in source.kernels] == ["own(real* x)", "add(double* x, int n_add)"]
    assert source.aliases["real"] == "double"
    assert (source.kernels[0].line, source.kernels[0].comment) == (8, "Own.")


def test_pointers_by_other_names() -> None:
    """Typedefs of pointers, members of classes and of specialisations are resolved, const and all."""
    text = """
    typedef float *Vector;
    using Const = const float *;
    struct Wide { typedef double Type; };
    template <class T> struct Vec;
    template <> struct Vec<int> { public: using Type = int4; };
    template <class T> __global__ void k(Vector a, Const b, typename T::Type *c, const typename T::Type d, Vector *e) {}
    template <class T> __global__ void v(typename Vec<T>::Type *x) {}
    """
    source = parse(text, "t.cu")
    k = resolved(find(source, "k<Wide>"), source.aliases)
    assert [parameter.ctype for parameter in k.parameters] == ["float*", "const float*", "double*", "double", "float**"]
    v = resolved(find(source, "v<int>"), source.aliases)
    assert [(one.type, one.pointer) for one in v.parameters] == [("int4", True)]
