"""A fault of one kernel is reported for that kernel alone, and does not stop another kernel of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile import compiler
from cudabench.compile.diagnostics import errors, is_from_ptxas, too_much_shared
from cudabench.errors import CompilerError
from cudabench.measure.context import code_warnings
from tests.conftest import Ran

Runner = Callable[..., Ran]

needs_nvrtc = pytest.mark.skipif(compiler.nvrtc_version() is None, reason="needs NVRTC")

BIG = "__shared__ int t[{}]; t[threadIdx.x] = 1; __syncthreads(); a[threadIdx.x] = t[5 - threadIdx.x];"
LARGE = f"__global__ void large(int *a) {{ {BIG.format(20000)} }}\n"
HUGE = f"__global__ void huge(int *a) {{ a[9] = 0; {BIG.format(30000)} }}\n"
GOOD = "__global__ void good(int *a) { a[threadIdx.x] = 3; }\n"
BAD = '__global__ void bad(int *a) { a[0] = 1;\n asm volatile("mov.u33 %0, 1;" : "=r"(a[1])); }\n'
OWN = "static __device__ int flag;\n__global__ void sets(int *a) { flag = a[0]; }\n"  # keeps all kernels
ALL = OWN + LARGE + HUGE + BAD + GOOD
INSTANCES = (
    f"template <int N> __global__ void many(int *a) {{ {BIG.format('N')} }}\n"
    "template __global__ void many<20000>(int *a);\n"
)
POINTED = LARGE + "__device__ void (*table)(int *) = large;\n" + GOOD


def refusal(source: str, name: str) -> str:
    """Return the error of compiling one kernel, or '' if it compiles."""
    try:
        compiled = compiler.compile_cubin(source, "k.cu", names=[name])
    except CompilerError as error:
        return str(error)
    assert compiled.resources[compiled.entry(name)].registers
    return ""


@pytest.mark.sampled(4)
@needs_nvrtc
@pytest.mark.parametrize("source", [LARGE + HUGE + GOOD, HUGE + GOOD + LARGE, GOOD + HUGE + LARGE, ALL])
def test_shared_memory(source: str) -> None:
    """A kernel with too much shared memory is named, with its own size, at any place in the file; the others
    compile."""
    assert refusal(source, "large").startswith("k.cu: large has 80000 bytes of static shared memory")
    assert refusal(source, "huge").startswith("k.cu: huge has 120000 bytes of static shared memory")
    assert "\n" not in refusal(source, "large") + refusal(source, "huge")
    assert refusal(source, "good") == ""


@pytest.mark.slow
@needs_nvrtc
def test_lines_of_the_assembler() -> None:
    """An error of ptxas gets the line of the source, also where other kernels were left out."""
    line = ALL[: ALL.index("asm")].count("\n") + 1
    assert refusal(ALL, "bad").startswith(f"k.cu:{line}: error: Unknown modifier '.u33'")
    assert "large" not in refusal(ALL, "bad")


@pytest.mark.sampled(3)
@needs_nvrtc
@pytest.mark.parametrize(("source", "name"), [(INSTANCES + GOOD, "good"), (INSTANCES, "many<20>"), (POINTED, "good")])
def test_others_are_left_out(source: str, name: str) -> None:
    """An explicit instantiation or a pointer to another kernel does not stop the requested kernel."""
    assert refusal(source, name) == ""


@needs_nvrtc
def test_its_own_instance() -> None:
    """An instance of a template that is requested by name is refused for its own shared memory."""
    assert "many has 80000 bytes" in refusal(INSTANCES + GOOD, "many<20000>")


@pytest.mark.slow
@needs_nvrtc
def test_parameters() -> None:
    """Too many bytes of parameters are an error with a line, for the kernel that has them."""
    source = "struct S { char c[40000]; };\n__global__ void wide(int *a, S s) { a[0] = s.c[a[1]]; }\n" + OWN + GOOD
    assert refusal(source, "wide").startswith("k.cu:2: error: Formal parameter space overflowed")
    assert refusal(source, "wide").endswith("in function wide")
    assert refusal(source, "good") == ""


@pytest.mark.slow
@needs_nvrtc
def test_headers(cudabench: Runner, tmp_path: Path) -> None:
    """A kernel in a header is left out like a kernel of the file; `check` names each kernel's own fault."""
    (tmp_path / "large.cuh").write_text(LARGE)
    (tmp_path / "k.cu").write_text('#include "large.cuh"\n' + GOOD)
    launch = ("--grid", 1, "--block", 4, "--arg", "a=int32[8]:zeros")
    assert cudabench("check", "k.cu", "-k", "good", *launch).code == 0
    ran = cudabench("check", "k.cu", "-k", "large", *launch)
    assert ran.code == 1
    assert "k.cu: large has 80000 bytes" in " ".join(ran.out.split())


def test_reports_of_ptxas() -> None:
    """The shared memory in ptxas' log is assigned to the right entry; both forms of ptxas' refusal are read."""
    used = "ptxas info : Used 8 registers, used 0 barriers"
    log = (
        f"ptxas info : Compiling entry function '_Z3onePi' for 'sm_90'\n{used}\n"
        f"ptxas info : Compiling entry function '_Z3twoPi' for 'sm_90'\n{used}, 60000 bytes smem, 8 bytes cmem[0]\n"
        f"ptxas info : Compiling entry function '_Z4goodPi' for 'sm_90'\n{used}, 49152 bytes smem\n"
    )
    assert too_much_shared(log) == [("_Z3twoPi", 60000)]
    assert is_from_ptxas(log)
    said = "ptxas error   : Entry function '_Z3twoPi' uses too much shared data (0xea60 bytes, 0xc000 max)\n"
    assert errors(said, "k.cu") == errors(log, "k.cu")
    more = said + said.replace("two", "six").replace("0xea60", "0xea64")
    assert errors(more, "k.cu").count("\n") == 1
    assert errors(more, "k.cu", requested=["six"]).startswith("k.cu: six has 60004 bytes")


@needs_nvrtc
def test_warnings() -> None:
    """A warning about an instruction is given only for kernels that are launched and functions that they may call."""
    heap = "__global__ void heap(int *a) { int *p = (int *)malloc(4); *p = 1; a[0] = *p; free(p); }\n"
    compiled = compiler.compile_cubin(OWN + heap + GOOD, "k.cu", names=["good", "heap"])
    assert [one.code for one in code_warnings([compiled.ptx])] == ["malloc"]
    assert [one.code for one in code_warnings([compiled.ptx], [compiled.entry("heap")])] == ["malloc"]
    assert code_warnings([compiled.ptx], [compiled.entry("good")]) == []
