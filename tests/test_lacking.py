"""Kernels that need a library whose headers are not here: how soon that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudabench.errors import CompilerError
from cudabench.toolchain import compiler, diagnostics, lacking, nvcc, nvrtc

needs_nvrtc = pytest.mark.skipif(compiler.nvrtc_version() is None, reason="needs NVRTC")

HELPERS = """#pragma once
#include <shapes/vector.hpp>
using vec3 = shapes::vec<3, float>;
typedef shapes::matrix<3> mat3;
inline __device__ float length_of(const vec3 &a) { return shapes::length(a); }
inline __device__ void add(float &a, float b) { a += b; }
inline __device__ void add(vec3 &a, const vec3 &b) { a = a + b; }
inline __device__ void add(mat3 &a, const mat3 &b) { a = a + b; }
inline __device__ vec3 turned(const mat3 &m, const vec3 &a) { return m * a; }
"""
NEEDS_A_TYPE = "__global__ void k(const vec3 *in, float *out) { out[0] = length_of(in[0]); }"
NEEDS_A_FUNCTION = "__global__ void k(float *out) {\n#pragma unroll\n  out[0] = shapes::length(out[1]);\n}"
NEEDS_NEITHER = "__global__ void k(float *out) { add(out[0], 1.0f); }"


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the compilers that are asked, in order."""
    asked: list[str] = []
    for one in (nvrtc.Nvrtc, nvcc.Nvcc):
        original = one.compile

        def compile_(self, *args, _original=original, **options):
            asked.append(self.backend)
            return _original(self, *args, **options)

        monkeypatch.setattr(one, "compile", compile_)
    compiler._compile.cache_clear()
    return asked


def compiled(folder: Path, kernel: str, helpers: str = HELPERS):
    """Compile a kernel that includes the helpers."""
    (folder / "helpers.cuh").write_text(helpers)
    return compiler.compile_ptx(f'#include "helpers.cuh"\n{kernel}\n', str(folder / "k.cu"), names=["k"])


@needs_nvrtc
@pytest.mark.parametrize("kernel", [NEEDS_A_TYPE, NEEDS_A_FUNCTION])
def test_a_kernel_that_needs_a_missing_library_is_refused_soon(tmp_path, rounds, kernel):
    """The library's first line is the error, with the header to find; one question is asked, in one language, and no
    other compiler that lacks the header too."""
    with pytest.raises(CompilerError, match=r'helpers.cuh:3: error: name followed by "::" must be a class') as refused:
        compiled(tmp_path, kernel)
    assert "no header <shapes/vector.hpp> was found" in str(refused.value)
    assert rounds.count("nvrtc") == 3
    assert rounds.count("nvcc") <= 1


@needs_nvrtc
def test_a_kernel_that_needs_no_missing_library_is_compiled(tmp_path, rounds):
    """What other functions of its headers need is left out, however many compiles that takes."""
    assert ".entry" in compiled(tmp_path, NEEDS_NEITHER).ptx
    assert "nvcc" not in rounds


@needs_nvrtc
def test_a_namespace_that_comes_late_is_there(tmp_path, rounds):
    """A header that names a namespace before another declares it costs its own functions, and not the kernel."""
    late = HELPERS.replace("#include <shapes/vector.hpp>", "#include <absent.hpp>")
    late += "namespace shapes { inline __device__ float length(float a) { return a; } }\n"
    assert ".entry" in compiled(tmp_path, NEEDS_A_FUNCTION, late).ptx


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (NEEDS_A_TYPE, True),
        (NEEDS_A_FUNCTION, True),
        (NEEDS_NEITHER, False),
        ("__global__ void k(float *vec3) { vec3[0] = 1; }", False),
        ("__global__ void k(float vec3) { vec3 = 1; }", False),
        ("template <typename vec3> __global__ void k(vec3 *a) { a[0] = vec3(1); }", False),
        ("__global__ void k(float *a) {\n#ifdef ALL\n  a[0] = shapes::length(a[1]);\n#endif\n}", False),
        ("__global__ void k(float *a) { CHECK(shapes::length(a[0])); }", False),
        ("__global__ void other(float *a) { a[0] = shapes::length(a[1]); }", False),
        ("namespace shapes { } " + NEEDS_A_FUNCTION, False),
    ],
)
def test_what_a_kernel_needs(kernel, found):
    """A use counts that no macro, condition or declaration of the kernel's own may take away."""
    assert lacking.needs("shapes", [HELPERS, kernel], {"k"}, {}) == found


def test_a_library_s_missing_names_are_no_fault_of_other_lines():
    """Once a name of the standard library is missed, what its next lines are said to lack is that name too."""
    log = (
        'a.cuh(3): error: namespace "std" has no member "array"\n  std::array<int, 2> a;\n       ^\n\n'
        "a.cuh(9): error: qualified name is not allowed\n      std::array<int, 2> b;\n      ^\n\n"
        'a.cuh(12): error: identifier "c" is undefined\n  c = 1;\n  ^\n\n'
    )
    assert [fault.line for fault in diagnostics.beside_device_standard(log) or ()] == [12]
    assert diagnostics.beside_device_standard(log.replace("array", "vector")) is None
