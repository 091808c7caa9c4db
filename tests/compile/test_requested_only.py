"""Only the requested kernels of a file are compiled."""

from __future__ import annotations

import pytest

from cudabench.compile import compiler, requested_only
from cudabench.compile.record import Job
from cudabench.errors import CompilerError

SOURCE = """#include <cstdio>
__constant__ float weights[4];
static __device__ float twice(float x) { return 2 * x; }
__global__ void first(float *x) { x[threadIdx.x] = weights[threadIdx.x % 4]; }
__global__ void second(float *x) {
#ifdef FAST
  x[0] = 1;
#endif
  x[threadIdx.x] = twice(x[0]);
}
__global__ void child(float *x) { x[0] = 2; }
__global__ void parent(float *x) { child<<<1, 1>>>(x); }
template <int N> __global__ void many(float *x) { x[0] = N; }
extern "C" __global__ void last(float *x) { int unused; x[0] = 3; }
int main() { first<<<1, 1>>>(0); second<<<1, 1>>>(0); many<2><<<1, 1>>>(0); }
"""


@pytest.fixture(autouse=True)
def _any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten kernels also in short files such as these."""
    monkeypatch.setattr(requested_only, "SHORT", 0)


needs_nvrtc = pytest.mark.skipif(compiler.nvrtc_version() is None, reason="needs NVRTC")


def job(source: str, *names: str) -> Job:
    """Return a job for some kernels of a text."""
    return Job.of(source, "asked.cu", names=names)


def test_other_kernels_are_declared() -> None:
    """The bodies of other kernels are removed, line and column of all else stay; templates and kernels that are
    launched stay."""
    shorter = requested_only.without_other_kernels(job(SOURCE, "first"))
    assert [len(line) for line in shorter.source.split("\n")] == [len(line) for line in SOURCE.split("\n")]
    for gone in ("twice(x[0])", "#ifdef FAST", "x[0] = 3", "child<<<"):
        assert gone not in shorter.source
    for kept in ("weights[threadIdx.x % 4]", "x[0] = 2", "x[0] = N", "void second(float *x) ;", "return 2 * x", "main"):
        assert kept in shorter.source


@pytest.mark.parametrize(
    ("names", "before"),
    [
        ((), ""),
        (("first", "second", "child", "parent", "last"), ""),
        (("first",), "static __device__ float seen = 1;\n"),
        (("first",), "namespace { __device__ int seen; }\n"),
        (("first",), "__device__ int *seen() { static int n; return &n; }\n"),
    ],
    ids=["no name", "all of them", "static variable", "unnamed namespace", "of a function"],
)
def test_what_may_change_the_code_stays(names: tuple[str, ...], before: str) -> None:
    """All bodies stay if no kernel or every kernel is requested, or if the file has a variable that only this file can
    write."""
    whole = job(before + SOURCE, *names)
    assert requested_only.without_other_kernels(whole) is whole


def test_a_large_function_keeps_its_callers() -> None:
    """If two kernels call a large function, both keep their bodies, since the number of callers may change the code."""
    large = "__device__ float large(float x) {" + " x += x * x;" * 200 + " return x; }\n"
    calls = "__global__ void {}(float *x) {{ x[0] = large(x[1]); }}\n"
    source = large + calls.format("one") + calls.format("two") + "__global__ void three(float *x) { x[0] = 1; }\n"
    source += "__global__ void four(float *x) { x[0] = 4; }\n"
    shorter = requested_only.without_other_kernels(job(source, "one")).source
    assert shorter.count("large(x[1])") == 2
    assert "x[0] = 1" not in shorter


@needs_nvrtc
def test_the_code_is_that_of_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX, resources and warnings of the requested kernel equal those of a compile of the whole file; the other kernels
    and their warnings are absent."""
    source = SOURCE.replace("child<<<1, 1>>>(x);", "").partition("int main")[0]
    short = compiler.compile_cubin(source, "asked.cu", names=["last"])
    monkeypatch.setattr(requested_only, "without_other_kernels", lambda job: job)
    whole = compiler.compile_cubin("\n" + source, "asked.cu", names=["last"])  # another text, so compiled again
    assert set(short.resources) == {"last"} < set(whole.resources)
    assert short.resources["last"] == whole.resources["last"]

    def code(ptx: str) -> list[str]:
        body = ptx[ptx.index(".entry last(") :]
        return [line for line in body[: body.index("\n}")].splitlines() if ".loc" not in line and "$L__" not in line]

    assert code(short.ptx) == code(whole.ptx)
    assert "weights" in short.ptx
    assert short.log.replace("asked.cu:14", "") == whole.log.replace("asked.cu:15", "")
    assert '"unused"' in short.log
    assert "twice" not in short.log


@pytest.mark.slow
@needs_nvrtc
def test_errors_are_those_of_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused kernel has the same error as in a compile of the whole file."""
    source = SOURCE.replace("weights[threadIdx.x % 4]", "nowhere(1)")
    with pytest.raises(CompilerError) as short:
        compiler.compile_cubin(source, "asked.cu", names=["first"])
    monkeypatch.setattr(requested_only, "without_other_kernels", lambda job: job)
    compiler._compile.cache_clear()
    with pytest.raises(CompilerError) as whole:
        compiler.compile_cubin(source, "asked.cu", names=["first"])
    assert str(short.value) == str(whole.value)
    assert "asked.cu:4" in str(short.value)
