"""A refused file is tried again only with a language, compiler or form of code that can change the result."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile import compiler, nvrtc
from cudabench.compile.compiler import RefusedAsCode, compile_cubin, nvrtc_version
from cudabench.compile.record import Job
from cudabench.devices.sim import SimDevice
from cudabench.errors import CompilerError, CudabenchError
from cudabench.records.launch import Launch, Source
from cudabench.records.plan import Case, Problem
from tests.conftest import Ran

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="no NVRTC")
KERNEL = (
    '#include "of_a_build.h"\n{}\n__global__ void k(int *x) {{ x[threadIdx.x] = 1; }}\nint main() {{ return 0; }}\n'
)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> list[Job]:
    """Return the list of jobs that NVRTC gets; nvcc is absent and the cache is empty."""
    seen: list[Job] = []
    original: Callable[..., object] = nvrtc.Nvrtc.compile

    def compile(self: object, job: Job, *given: object, **how: object) -> object:
        seen.append(job)
        return original(self, job, *given, **how)

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", compile)
    monkeypatch.setattr(compiler.toolkit, "nvcc", lambda: None)
    monkeypatch.setenv("CUDABENCH_CACHE", str(tmp_path))
    return seen


@needs_nvrtc
def test_error_directive_of_a_build_is_tried_in_one_language(jobs: list[Job]) -> None:
    """An #error about a missing header's macro is not tried in C++20; the message shows the #error."""
    text = KERNEL.format('#ifndef HAS_GPU\n#error "included on a build without GPU"\n#endif')
    with pytest.raises(CudabenchError, match=r'k\.cu:3: error: #error .*"included on a build without GPU"'):
        compile_cubin(text, "k.cu", names=["k"])
    assert {job.std for job in jobs} == {""}


@needs_nvrtc
def test_error_directive_of_a_language_is_tried_in_the_next(jobs: list[Job]) -> None:
    """An #error that demands a newer C++ is tried in that language, also with a header missing."""
    text = KERNEL.format('#if __cplusplus < 202002L\n#error "this needs C++20"\n#endif')
    assert compile_cubin(text, "k.cu", names=["k"]).cubin
    assert [job.std for job in jobs][-1] == "c++20"


@needs_nvrtc
def test_code_that_is_refused_is_not_compiled_to_ptx_as_well(jobs: list[Job]) -> None:
    """The simulator compiles again to PTX only if ptxas refused the code, not if the C++ compiler did."""

    def load(body: str) -> type[BaseException]:
        text = f"__global__ void k(int *x) {{ {body} }}\n"
        source = Source("k.cu", text, "", False, (), "")
        launch = Launch("k", (1, 1, 1), (32, 1, 1), ("x",))
        case = Case(
            operation="run", kernel="k", id=None, function="k", source=source, problem=Problem({}, "int32", 0),
            block=(32, 1, 1), grid=(1, 1, 1), launches=(launch,), defines={}, expects="",
        )  # fmt: skip
        with pytest.raises(CompilerError) as caught:
            SimDevice("sm_90").load(case)
        return caught.type

    assert load("x[0] = undeclared_of_ptx;") is RefusedAsCode
    assert jobs
    assert all(job.machine_code for job in jobs)
    jobs.clear()
    assert load("__shared__ int large[60000]; large[threadIdx.x] = *x; *x = large[1 + threadIdx.x];") is CompilerError
    assert not all(job.machine_code for job in jobs)


@needs_nvrtc
def test_own_fault_of_the_kernel_asked_for_is_not_looked_for_in_the_whole_file(jobs: list[Job]) -> None:
    """If the requested kernel itself uses a name of a missing header, the whole file is not compiled as a second
    try."""
    other = "__global__ void other(int *x) { x[0] = 12345; }\n"
    with pytest.raises(RefusedAsCode, match=r'k\.cu:4: error: identifier "absent" is undefined(.|\n)*of_a_build\.h'):
        compile_cubin(KERNEL.format(other).replace("= 1", "= absent"), "k.cu", names=["k"])
    assert jobs
    assert not any("12345" in job.source for job in jobs)


@needs_nvrtc
@pytest.mark.parametrize("depth", [0, 2])
def test_a_kernel_that_launches_itself_runs_where_it_does_not(depth: int, cudabench: Callable[..., Ran]) -> None:
    """A kernel that launches a kernel is refused only if the launch is executed."""
    Path("k.cu").write_text(
        "__global__ void halve(int *a, int n, int depth) {\n"
        "  if (threadIdx.x < n) a[threadIdx.x] += 1;\n"
        "  if (depth > 1 && threadIdx.x == 0) halve<<<1, 32>>>(a, n / 2, depth - 1);\n}\n"
    )
    given = ("-g", 1, "-b", 32, "--arg", "a=int32[n]:zeros", "--arg", "n=32", "--arg", f"depth={depth}")
    ran = cudabench("run", "k.cu", *given, "--expect", "a=a0+1", "-d", "sim", "--no-cpu")
    if "requires separate compilation mode" in ran.out + ran.err:
        pytest.skip("an older NVRTC takes no such kernel without a linker")
    assert ran.code == (5 if depth > 1 else 0), ran.out + ran.err
    assert ("k.cu:3: dynamic parallelism" in ran.err) == (depth > 1)
