"""`cudabench check` executes a file's kernels in the simulator and reports hazards; only an executed kernel can be
clean."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile.compiler import nvrtc_version
from tests.conftest import Ran

Runner = Callable[..., Ran]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

RIGHT = """\
__global__ void scale(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
"""
BEYOND = """\
__global__ void copy(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        y[i] = x[i];
}
"""
RACE = """\
__global__ void turn(float *y) {
    __shared__ float tile[256];
    tile[threadIdx.x] = y[threadIdx.x];
    y[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
LACKING = """\
__global__ void cube(float *y) {
    y[threadIdx.x] = texCubemap<float>((cudaTextureObject_t)16, 0.f, 0.f, 1.f);
}
"""
TEMPLATE = """\
template <class T> __global__ void fill(T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1;
}
"""
LAUNCH = ("--grid", "cdiv(n,256)", "--block", 256, "--arg", "n=1000")
X = ("--arg", "x=float32[n]:random")
Y = ("--arg", "y=float32[n]:zeros")
A = ("--arg", "a=2.5")


@pytest.fixture
def check(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run `cudabench check` in a folder that holds the files above."""
    for name, text in {
        "right.cu": RIGHT,
        "beyond.cu": BEYOND,
        "race.cu": RACE,
        "lacking.cu": LACKING,
        "template.cu": TEMPLATE,
        "both.cu": RIGHT + BEYOND,
    }.items():
        (tmp_path / name).write_text(text)
    return lambda *words: cudabench("check", *words)


def test_clean(check: Runner) -> None:
    """A kernel without hazards is clean and gives exit code 0; --arg options may have any order."""
    ran = check("right.cu", *LAUNCH, *A, "--arg", "x=float32[n]:random", "-k", "scale")
    assert ran.code == 0, ran.err
    ran = check("right.cu", "--grid", 4, "--block", 256, *("--arg", "x=float32[n]:random"), *A, "--arg", "n=1000")
    assert ran.code == 0, ran.err
    assert re.search(r"scale +clean +4 blocks of 256 threads", ran.out)
    assert "1 of 1 kernel executed, no hazards." in ran.out


@pytest.mark.slow
def test_all_kernels_of_all_files(check: Runner) -> None:
    """Each kernel of each file runs with the arguments that it takes; a kernel with a hazard gives exit code 3."""
    ran = check("right.cu", "both.cu", "race.cu", *LAUNCH, *X, *Y, *A)
    assert ran.code == 3
    assert len(re.findall(r"scale +clean", ran.out)) == 2
    assert re.search(r"copy +HAZARD", ran.out)
    assert "out-of-bounds, line 8: thread (232, 0, 0) of block (3, 0, 0)" in ran.out
    assert "race, line 4" in ran.out
    assert "4 of 4 kernels executed, 2 with faults." in ran.out


def test_no_table_of_counts_and_no_baseline(check: Runner) -> None:
    """`check` prints hazards only: no table of counts and no time of a CPU baseline."""
    ran = check("race.cu", *LAUNCH[:4], "--arg", "y=float32[256]:random", "-D", "n=256")
    assert ran.code == 3
    assert "sectors" not in ran.out
    assert "CPU" not in ran.out


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "words", [["right.cu"], ["right.cu", "--arg", "n=5"], ["both.cu"], ["template.cu"], ["race.cu", "--block", "32"]]
)
def test_refusal_holds_a_line_that_works(check: Runner, words: list[str]) -> None:
    """Without arguments, `check` refuses; its error holds a command line that, pasted, executes the kernel."""
    ran = check(*words)
    assert ran.code == 2
    assert ran.out == ""
    line = shlex.split(ran.err[ran.err.index("cudabench check") :].strip())
    assert line[:3] == ["cudabench", "check", words[0]]
    again = check(*line[2:])
    assert again.code in (0, 3), again.err
    assert "1 of 1 kernel executed" in again.out


@pytest.mark.slow
def test_kernel_that_cannot_be_executed_is_not_clean(check: Runner) -> None:
    """A kernel that uses a feature which the simulator lacks is named as not executed, exit code 5; the others are
    checked."""
    ran = check("right.cu", "lacking.cu", *LAUNCH, *X, *Y, *A)
    assert ran.code == 5
    assert re.search(r"cube +not executed .*lacking.cu:2", ran.out)
    assert re.search(r"scale +clean", ran.out)
    assert "1 of 2 kernels executed, no hazards." in ran.out
    ran = check("beyond.cu", "lacking.cu", *LAUNCH, *X, *Y)
    assert ran.code == 3  # a fault outweighs a kernel that was not executed


def test_kernels_that_were_not_asked_for_are_named(check: Runner) -> None:
    """With --kernel, the output names the file's other kernels as not checked."""
    ran = check("both.cu", "-k", "scale", *LAUNCH[:4], *X, *A, "--arg", "n=1000")
    assert ran.code == 0
    assert "Not requested, so not checked: both.cu: copy" in ran.out


def test_large_launch_says_what_is_not_looked_for(check: Runner) -> None:
    """In a launch of more than 2^20 threads, the simulator does not look for races between blocks, and the output says
    so."""
    ran = check("right.cu", "--grid", 4097, "--block", 256, *X, *A, "--arg", "n=1000")
    assert ran.code == 0
    assert "races between blocks are looked for in launches of at most 1048576 threads" in ran.out


def test_profile(check: Runner, tmp_path: Path) -> None:
    """`check` runs all tables of a profile and ignores its options for measuring; an expectation that fails is a
    fault."""
    (tmp_path / "p.toml").write_text(
        'file = "both.cu"\ndevice = "cuda"\nmin-bandwidth = 100\njson = "never.json"\n'
        'grid = "cdiv(n,256)"\nblock = 256\n'
        '[scale]\narg = ["x=float32[n]:random", "a=2.5", "n=1000"]\nexpect = ["x=x0*a"]\n'
        '[copy]\narg = ["x=float32[n+1]:random", "y=float32[n+1]:zeros", "n=1000"]\nexpect = ["y=x+1"]\n'
    )
    ran = check("--profile", "p.toml")
    assert ran.code == 3, ran.err
    assert re.search(r"scale +clean", ran.out)
    assert re.search(r"copy +WRONG +1001 wrong elements", ran.out)
    assert not (tmp_path / "never.json").exists()
    assert check("--profile", "p.toml", "-k", "scale").code == 0


def test_json_is_a_results_file(check: Runner, cudabench: Runner) -> None:
    """--json writes a results file, from which `export --to sarif` makes a finding with the hazard's rule."""
    ran = check("beyond.cu", "right.cu", *LAUNCH, *X, *Y, *A, "--json", "r.json", "-q")
    assert (ran.code, ran.out) == (3, "")
    results = json.loads(Path("r.json").read_text())["results"]
    assert [(r["kernel"], r["status"]) for r in results] == [("copy", "wrong"), ("scale", "ok")]
    sarif = cudabench("export", "r.json", "--to", "sarif").json
    assert {r["ruleId"] for r in sarif["runs"][0]["results"]} == {"out-of-bounds"}


def test_github_annotations(check: Runner, cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--to github prints one command for each finding, with file and line, and appends a table to the job's summary; a
    file's name cannot start another command. `export --to github` prints the same commands."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    hostile = tmp_path / "odd,name%.cu"
    hostile.write_text(BEYOND)
    ran = check("lacking.cu", hostile.name, *LAUNCH, *X, *Y, "--to", "github", "-q", "--json", "r.json")
    assert ran.code == 3
    commands = ran.out.splitlines()
    assert cudabench("export", "r.json", "--to", "github").out.splitlines() == commands
    assert "| copy |" in (tmp_path / "summary.md").read_text()
    assert all(re.match(r"::(error|warning) file=", line) for line in commands)
    errors = [line for line in commands if line.startswith("::error")]
    assert errors
    assert all("file=odd%2Cname%25.cu,line=4,title=cudabench%3A out-of-bounds::" in line for line in errors)
    (lack,) = (line for line in commands if line.startswith("::warning"))
    assert "file=lacking.cu,line=1" in lack
    assert "cube: " in lack


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "check needs a file or a profile: cudabench check FILE.cu"),
        (("right.cu", "--device", "cuda"), "--device cuda cannot check: only the simulator sees accesses"),
        (("both.cu", *LAUNCH, *X, *Y, *A, "--arg", "z=1"), "--arg z=1: no kernel has a parameter with this name"),
        (("right.cu", "--profile", "p.toml"), "not both"),
        (("none.cu",), "none.cu: no such file"),
    ],
)
def test_refusals(check: Runner, words: tuple[object, ...], text: str) -> None:
    """A line that `check` cannot serve gives an error message without a traceback."""
    ran = check(*words)
    assert ran.code in (1, 2)
    assert text in ran.err
    assert "Traceback" not in ran.err


STEPS = """\
__global__ void add(const int *x, int *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i]);
}
__global__ void twice(const int *sum, int *out) { out[threadIdx.x] = 2 * sum[0]; }
"""
LEAK = """\
__global__ void keep(int *y) {
    int *own = (int *)malloc(16);
    if (own) own[0] = threadIdx.x;
    y[threadIdx.x] = own ? own[0] : -1;
}
"""


def test_steps_are_checked_together(cudabench: Runner, tmp_path: Path) -> None:
    """The kernels of --step run one after the other; an array may be a parameter of only one of them."""
    (tmp_path / "steps.cu").write_text(STEPS)
    words = ["--step", "add<<<4,32>>>(x,sum,n)", "--step", "twice<<<1,1>>>(sum,out)", "--arg", "n=100"]
    words += ["--arg", "x=int32[n]:i0", "--arg", "sum=int32[1]:zeros", "--arg", "out=int32[1]:empty"]
    right = cudabench("check", "steps.cu", *words, "--expect", "out=2*np.sum(x)")
    assert right.code == 0, right.err
    assert "1 of 1 kernel executed, no hazards" in right.out
    wrong = cudabench("check", "steps.cu", *words, "--expect", "out=np.sum(x)")
    assert wrong.code == 3
    assert "got 9900, expected 4950" in wrong.out


def test_memory_that_nobody_frees_is_named(cudabench: Runner, tmp_path: Path) -> None:
    """A clean kernel that does not free memory of the device's heap gets a warning with the line of the allocation."""
    (tmp_path / "leak.cu").write_text(LEAK)
    ran = cudabench("check", "leak.cu", "--grid", 1, "--block", 32, "--arg", "y=int32[32]:empty")
    assert ran.code == 0
    assert "line 2 leaves 512 bytes in 32 allocations" in ran.out


def test_warnings_of_the_compiler_are_shown(cudabench: Runner, tmp_path: Path) -> None:
    """The compiler's warnings are shown with file and line, except warnings about unused names."""
    (tmp_path / "kept.cuh").write_text(
        "__device__ inline int *kept(int v) { int here[2]; here[0] = v; return here; }\n"
    )
    (tmp_path / "kernel.cu").write_text(
        '#include <cstdio>\n#include "kept.cuh"\n__global__ void k(unsigned n, int *out)\n{\n    int unused;\n'
        '    if (threadIdx.x - 1 >= 0 && threadIdx.x < n)\n        printf("%f\\n", n);\n    out[threadIdx.x] = n;\n}\n'
    )
    ran = cudabench("check", "kernel.cu", "--grid", 1, "--block", 4, "--arg", "n=4", "--arg", "out=int32[n]:empty")
    assert ran.code == 0, ran.err
    assert "line 6: the compiler warns: pointless comparison of unsigned integer with zero." in ran.out
    assert "line 7: the compiler warns: argument is incompatible" in ran.out
    assert "kept.cuh:1: the compiler warns: returning pointer to local variable." in ran.out
    assert "unused" not in ran.out


SHORT_ROWS = """
__global__ void reversed(const float *x, float *y) {
    __shared__ float tile[16][WIDTH];
    int at = threadIdx.y * 32 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = x[at];
    __syncthreads();
    y[at] = tile[7 - threadIdx.y][31 - threadIdx.x];
}
"""


def test_rows_that_are_shorter_than_the_block_is_wide_are_named(cudabench: Runner, tmp_path: Path) -> None:
    """If two threads write one element of a shared array because its rows are shorter than the block is wide, the cure
    is a longer row; with rows of the block's width, the kernel is clean."""
    (tmp_path / "rows.cu").write_text(SHORT_ROWS)
    arrays = ("--arg", "x=float32[256]:random", "--arg", "y=float32[256]:empty")
    words = ("rows.cu", "--grid", 1, "--block", "32,8", *arrays)
    wrong = cudabench("check", *words, "-D", "WIDTH=16")
    assert wrong.code == 3
    said = " ".join(wrong.out.split())
    assert "a row of tile has 16 elements, and the block is 32 threads wide: make the rows longer" in said
    assert cudabench("check", *words, "-D", "WIDTH=32").code == 0


def test_every_array_at_fault_on_a_line_is_named(cudabench: Runner) -> None:
    """If several arrays have the same fault on one line, the message names all; one array is named once."""
    Path("k.cu").write_text(
        "__global__ void k(const float *x, const float *y, float *z, float *w) {\n"
        "  __shared__ float s[64], t[64];\n"
        "  int i = threadIdx.x; s[i] = i; t[i] = i;\n"
        "  z[i] = s[63 - i] + t[63 - i];\n"
        "  z[i + 1] = x[i + 1] + y[i + 1];\n"
        "  w[i + 1] = 0;\n"
        "}\n"
    )
    arrays = [word for name in "xyzw" for word in ("--arg", f"{name}=float32[64]:zeros")]
    ran = cudabench("check", "k.cu", "-g", 1, "-b", 64, *arrays, "--json", "-")
    hazards = {(hazard["kind"], hazard["line"]): hazard["message"] for hazard in ran.json["results"][0]["hazards"]}
    first, second = hazards["race", 4], hazards["out-of-bounds", 5]
    assert "reads s[63]" in first
    assert first.endswith(". This line's accesses to t are at fault too.")
    assert "at x[64], past the end of 'x'" in second
    assert second.endswith(". This line's accesses to y and z are at fault too.")
    assert "too." not in hazards["out-of-bounds", 6]
