"""Whole programs with `cudabench exec`: their output, the faults found in them, and their exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile import toolkit
from cudabench.system import native

pytestmark = [
    pytest.mark.skipif(toolkit.nvcc() is None, reason="needs nvcc and a C++ compiler"),
    pytest.mark.skipif(native.library() is None, reason="needs the native engine"),
]
ROOT = Path(__file__).resolve().parents[2]
LAMBDAS = ("--extended-lambda", "--expt-relaxed-constexpr")  # exec adds these itself if the program needs them
CASES = Path(__file__).with_name("cases.cu")


def command(*words: object) -> list[str]:
    """Return the command line of the tool with these words."""
    return [sys.executable, "-m", "cudabench", *map(str, words)]


def run(*words: object, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the tool in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}  # no GPU: the simulator
    return subprocess.run(
        command(*words), capture_output=True, text=True, cwd=folder, input=given, env=environment, timeout=300
    )


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of the cases, built with `cudabench nvcc` as a makefile would."""
    folder = tmp_path_factory.mktemp("app")
    built = run("nvcc", *LAMBDAS, CASES, "-o", "app", folder=folder)
    assert built.returncode == 0, built.stderr
    return folder / "app"


def ran(app: Path, word: str, *options: str, given: str = "") -> tuple[int, str, dict[str, Any]]:
    """Return a case's exit code, its printed text, and its results file."""
    path = app.with_name(f"{word}.json")
    done = run("exec", "./app", "--json", path, *options, "--", word, folder=app.parent, given=given)
    return done.returncode, done.stdout + done.stderr, json.loads(path.read_text())


@pytest.mark.slow
def test_a_source_runs(tmp_path: Path) -> None:
    """`exec` compiles and runs a source, also from the cache; the file has the kernel's counts, limits and
    occupancy."""
    for _ in range(2):
        done = run("exec", CASES, "--json", "p.json", folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "end 3" in done.stdout
    file = json.loads((tmp_path / "p.json").read_text())
    (result,) = file["results"]
    assert (result["kernel"], result["status"], result["hazards"]) == ("add<float>", "ok", [])
    assert {row["array"] for row in result["access"]} == {"x", "y"}
    assert result["machine_code"]["instructions_executed"] > 0
    assert result["limits"]
    assert result["occupancy"]["fraction"] == 1
    program = file["program"]
    assert (program["launches"], program["checked"], program["exit_code"]) == (1, 1, 0)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("word", "printed"),
    [
        ("symbols", "3 37 15"),
        ("print", "thread 1 of 2"),
        ("streams", "6\nend 6"),
        ("read", "read a line"),
        ("lambda", "lambda 3"),
        ("statics", "freed: cudaSuccess"),
        ("fork", "child: cudaErrorInitializationError"),
    ],
)
def test_programs_behave_as_on_a_gpu(app: Path, word: str, printed: str) -> None:
    """Symbols, printf, streams with events, standard input, lambdas, a destructor that frees, and a forked child behave
    as on a GPU, without a finding."""
    code, said, file = ran(app, word, given="a line\n")
    assert printed in said
    assert code == 0, said
    assert file["program"]["findings"] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("word", "kind", "line", "printed"),
    [
        ("race", "race", "x[threadIdx.x] = tile[63 - threadIdx.x];", "end "),
        ("outside", "out-of-bounds", "x[i] += y[i];", "end 3"),
        ("wild", "out-of-bounds", "x[i] += y[i];", "cudaErrorIllegalAddress"),
    ],
)
def test_hazards_of_kernels_are_named(app: Path, word: str, kind: str, line: str, printed: str) -> None:
    """A kernel's hazard is reported with its line and exit code 3. The program continues after an access just past an
    allocation, and gets cudaErrorIllegalAddress after a wild access."""
    code, said, file = ran(app, word)
    assert code == 3, said
    assert printed in said
    found = [hazard for result in file["results"] for hazard in result["hazards"]]
    assert next((one["kind"], one["source"]) for one in found) == (kind, line)
    assert f"{kind}: " in said


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("word", "kind", "line"),
    [
        ("touch", "host-touches-device", 'printf("%g\\n", x[1]);'),
        ("twice", "double-free", "cudaFree(x), cudaFree(y);"),
        ("forget", "unasked-error", "add<<<1, 2048>>>(x, y, N);"),
        ("unwritten", "unwritten-memory", "cudaMalloc(&a, N * sizeof *a), cudaMalloc(&b, N * sizeof *b);"),
        ("update", "unwritten-memory", "cudaMalloc(&sum, N * sizeof *sum);"),
    ],
)
def test_errors_of_host_code_are_named(app: Path, word: str, kind: str, line: str) -> None:
    """An error of the host code is reported with its line and exit code 3."""
    code, said, file = ran(app, word)
    assert code == 3, said
    found = {one["kind"]: one["source"] for one in file["program"]["findings"]}
    assert found.get(kind) == line, said


@pytest.mark.slow
def test_launches_with_invalid_sizes_are_named(tmp_path: Path) -> None:
    """A launch that CUDA refuses is reported with its kernel, line, size, limit and error, also if the program checks
    the error and ends."""
    (tmp_path / "sizes.cu").write_text(
        "#include <cooperative_groups.h>\n"
        "__global__ void plain(int *p) { if (p) *p = 1; }\n"
        "__global__ void __launch_bounds__(128) bounded(int *p) { if (p) *p = 1; }\n"
        "__global__ void __cluster_dims__(2, 1, 1) pairs(int *p) { if (p) *p = 1; }\n"
        "int main(int argc, char **) {\n"
        "  if (argc > 1) { plain<<<1, dim3(64, 32)>>>(nullptr); return cudaGetLastError(); }\n"
        "  plain<<<0, 32>>>(nullptr);\n"
        "  plain<<<dim3(1, 70000), 32>>>(nullptr);\n"
        "  plain<<<1, dim3(1, 1, 65)>>>(nullptr);\n"
        "  plain<<<1, 32, 60000>>>(nullptr);\n"
        "  bounded<<<1, 256>>>(nullptr);\n"
        "  int *p = nullptr; void *given[] = {&p};\n"
        "  cudaLaunchCooperativeKernel((void *)plain, 100000, 1024, given, 0, 0);\n"
        "  pairs<<<3, 32>>>(nullptr); }\n"
    )
    done = run("exec", "sizes.cu", "--json", "p.json", folder=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    found = json.loads((tmp_path / "p.json").read_text())["program"]["findings"]
    value = "cudaErrorInvalidValue"
    assert [(one["line"], one["message"].partition(", which the program")[0]) for one in found] == [
        (7, f"The launch of kernel plain (side x of the grid is 0, and must be at least 1) returned {value}"),
        (8, f"The launch of kernel plain (side y of the grid is 70000, and the limit is 65535) returned {value}"),
        (9, f"The launch of kernel plain (side z of the block is 65, and the limit is 64) returned {value}"),
        (
            10,
            "The launch of kernel plain (the dynamic shared memory has 60000 bytes, and the limit is 49152; "
            f"cudaFuncSetAttribute can raise it to 232448) returned {value}",
        ),
        (
            11,
            "The launch of kernel bounded (a block has 256 threads, and the limit is 128 for this kernel, by its "
            f"registers or __launch_bounds__) returned {value}",
        ),
        (
            13,
            "The launch of kernel plain (a cooperative grid has 100000 blocks, and the limit is 264) returned "
            "cudaErrorCooperativeLaunchTooLarge",
        ),
        (
            14,
            "The launch of kernel pairs (side x of the grid is 3, and must be a multiple of the cluster's, 2) returned "
            "cudaErrorInvalidClusterSize",
        ),
    ]
    done = run("exec", "sizes.cu", "--json", "p.json", "--", "checked", folder=tmp_path)
    (finding,) = json.loads((tmp_path / "p.json").read_text())["program"]["findings"]
    assert (finding["kind"], finding["line"]) == ("refused-launch", 6)
    assert finding["message"] == (
        f"The launch of kernel plain (a block has 2048 threads, and the limit is 1024) returned {value}"
    )


@pytest.mark.slow
def test_memory_that_the_program_wrote_is_not_reported(app: Path) -> None:
    """An array that the program set is not reported; for an unwritten array the message names the array, not the first
    one in the line."""
    assert ran(app, "set")[0] == 0
    assert "Kernel add<float> reads b in line" in ran(app, "unwritten")[1]


@pytest.mark.slow
def test_what_the_runtime_lacks_is_named(app: Path) -> None:
    """A call that the runtime lacks is reported with the number of calls, and exit code 5."""
    code, said, file = ran(app, "lack")
    assert code == 5, said
    assert "lacks cudaIpcGetMemHandle: it was called once" in said
    assert file["program"]["missing"] == {"cudaIpcGetMemHandle": 1}


@pytest.mark.slow
def test_the_programs_exit_code_is_told(app: Path) -> None:
    """If a program ends with code 7, the tool ends with exit code 1, and message and file have the 7."""
    code, said, file = ran(app, "seven")
    assert code == 1
    assert file["program"]["exit_code"] == 7
    assert "exit code 7" in said


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("options", "checked"),
    [((), 7), (("--checked", "3"), 3), (("--checked", "all"), 100), (("--launches", "2,90-99"), 11)],
)
def test_a_sample_of_launches_is_checked(app: Path, options: tuple[str, ...], checked: int) -> None:
    """Of equal launches the 1st, 2nd, 4th, 8th and so on are checked, unless an option chooses others."""
    code, said, file = ran(app, "many", *options)
    assert code == 0, said
    assert (file["program"]["launches"], file["program"]["checked"]) == (100, checked)
    assert f"checked {checked} of 100" in said or checked == 100


@pytest.mark.slow
def test_a_budget_ends_a_program(app: Path) -> None:
    """--budget stops a program that loops, and the file has what was finished."""
    code, said, file = ran(app, "loop", "--budget", "2")
    assert code == 1
    assert file["program"]["exit_code"] is None
    assert "--budget 2 s ended the program early" in said


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "code"), [(264, 0), (265, 3)])
def test_a_grid_barrier_needs_a_card_that_holds_the_grid(tmp_path: Path, blocks: int, code: int) -> None:
    """A barrier of the grid that is made by hand ends if the card of --on holds all blocks at once; otherwise it is a
    deadlock, which names the card, and the program is ended."""
    (tmp_path / "meet.cu").write_text(
        "__device__ unsigned arrived;\n"
        "__global__ void meet() {\n"
        "    __syncthreads();\n"
        "    if (threadIdx.x == 0) {\n"
        "        atomicAdd(&arrived, 1u);\n"
        "        while (atomicAdd(&arrived, 0u) < gridDim.x) {}\n"
        "    }\n"
        "}\n"
        f"int main() {{ meet<<<{blocks}, 1024>>>(); return cudaDeviceSynchronize(); }}\n"
    )
    done = run("exec", "meet.cu", "--on", "h100", folder=tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    assert ("line 6: deadlock" in said) == (code == 3)
    assert code == 0 or "the H100 80GB HBM3 holds 264 of these blocks at once, and the grid has 265" in said
    assert code == 0 or "A launch of kernel meet, which never ends, ended the program early" in said


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_finished(app: Path) -> None:
    """Ctrl-C ends `exec` with exit code 130 and leaves a results file."""
    path = app.with_name("interrupted.json")
    words = command("exec", "./app", "--json", path, "--", "loop")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}  # no GPU: the simulator
    with subprocess.Popen(
        words, cwd=app.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(2)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(path.read_text())["program"]["exit_code"] != 0


@pytest.mark.slow
def test_lines_of_launches_run(tmp_path: Path) -> None:
    """--lines prints a command that runs the launch, with the saved arrays; that command works."""
    done = run("exec", CASES, "--lines", "--save-arrays", "arrays", "-q", folder=tmp_path)
    line = done.stdout.splitlines()[-1]
    assert "--kernel add<float>" in line.replace("'", "")
    assert {path.name for path in (tmp_path / "arrays").iterdir()} == {"add-float-x.npy", "add-float-y.npy"}
    again = run(*shlex.split(line)[1:], "--expect", "x=x0+y", "--no-cpu", "-d", "sim", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "yes" in again.stdout or "verified" in again.stdout


@pytest.mark.slow
def test_lines_have_structs_and_reasons(tmp_path: Path) -> None:
    """--lines writes a struct with its numbers, arrays and null pointers as `run` reads it; for a parameter that `run`
    cannot take it prints the reason, and the line as a comment."""
    (tmp_path / "structs.cu").write_text(
        "struct Inner { float a[2]; bool on; };\n"
        "struct Params { int n; Inner in; float *data; int *none; float2 v; };\n"
        "struct Mixed { float x; int id; };\n"
        "union Either { int i; float f; };\n"
        "__global__ void apply(Params p, float3 v, Mixed *m) {\n"
        "  int i = threadIdx.x; if (i < p.n && p.in.on) p.data[i] = p.in.a[1] + v.y + m[0].x + p.v.x; }\n"
        "__global__ void either(Either u, int *p) { if (p) p[0] = u.i; }\n"
        "int main() { Params p = {20, {{1, 2.5f}, true}, nullptr, nullptr, {3, 4}}; Mixed *m; Either u; u.i = 1;\n"
        "  cudaMalloc(&p.data, 80); cudaMalloc(&m, 80); cudaMemset(p.data, 0, 80); cudaMemset(m, 0, 80);\n"
        "  apply<<<1, 32>>>(p, make_float3(1, 2, 3), m); either<<<1, 1>>>(u, nullptr);\n"
        "  cudaFree(p.data); cudaFree(m); return cudaDeviceSynchronize(); }\n"
    )
    done = run("exec", "structs.cu", "--lines", "-q", folder=tmp_path)
    line, reason, comment = done.stdout.splitlines()[-3:]
    value = "{n: 20, in: {a: [1.0, 2.5], on: True}, data: float32[20]:random, none: null, v: [3.0,4.0]}"
    assert f"p={value}" in shlex.split(line)
    assert {"v=1.0,2.0,3.0", "m=uint8[80]:zeros"} <= set(shlex.split(line))
    assert reason.startswith("# either: either(Either u, int* p) takes 'Either u' by value")
    assert shlex.split(comment)[:4] == ["#", "cudabench", "run", "structs.cu"]
    done = run("exec", "structs.cu", "--lines", "-q", "--save-arrays", "arrays", folder=tmp_path)
    line = done.stdout.splitlines()[-3]
    assert {"m=@arrays/apply-m.npy", "data: @arrays/apply-p_data.npy"} <= {*shlex.split(line), *re.split(r", |}", line)}
    words = shlex.split(line)[1:]
    again = run(*words, "--expect", "p_data=p_in_a_1+v_y+p_v_x", "--no-cpu", "-d", "sim", folder=tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_standard_output_is_for_results_alone(app: Path) -> None:
    """With --json -, the program's output goes to standard error."""
    done = run("exec", "./app", "--json", "-", folder=app.parent)
    assert json.loads(done.stdout)["program"]["exit_code"] == 0
    assert "end 3" in done.stderr


@pytest.mark.slow
def test_a_static_runtime_is_refused(tmp_path: Path) -> None:
    """A program with a static CUDA runtime is refused with exit code 5 and a build command."""
    assert run("nvcc", *LAMBDAS, "-cudart", "static", CASES, "-o", "app", folder=tmp_path).returncode == 0
    done = run("exec", "./app", folder=tmp_path)
    assert done.returncode == 5
    assert "cudabench-nvcc" in done.stderr


@pytest.mark.slow
def test_units_are_linked(tmp_path: Path) -> None:
    """Units that call each other's device functions and share variables are linked, also from compressed device
    code."""
    (tmp_path / "a.cu").write_text(
        "#include <cstdio>\nextern __device__ int seen;\nextern __device__ int twice(int);\nvoid other(int *);\n"
        "__global__ void k(int *x) { x[threadIdx.x] = twice(threadIdx.x); if (threadIdx.x == 3) seen = 9; }\n"
        "int main() { int *x, h[32]; cudaMalloc(&x, 128); k<<<1, 32>>>(x); other(x);\n"
        'cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost); printf("%d\\n", h[5]); cudaFree(x); }\n'
    )
    (tmp_path / "b.cu").write_text(
        "__device__ int seen;\n__device__ int twice(int a) { return 2 * a; }\n"
        "__global__ void k2(int *x) { x[threadIdx.x] += seen; }\nvoid other(int *x) { k2<<<1, 32>>>(x); }\n"
    )
    done = run("exec", "a.cu", "b.cu", "--json", "p.json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("19\n")
    results = json.loads((tmp_path / "p.json").read_text())["results"]
    assert [(one["kernel"], one["source"]) for one in results] == [("k", "a.cu"), ("k2", "b.cu")]
    nvcc = str(toolkit.nvcc())
    words = [nvcc, "-rdc=true", "-cudart", "shared", "-Xfatbin=-compress-all", "a.cu", "b.cu", "-o", "packed"]
    subprocess.run(words, check=True, cwd=tmp_path)
    packed = run("exec", "./packed", folder=tmp_path)
    assert packed.stdout.startswith("19\n"), packed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("in_header", [False, True])
def test_lambdas_are_compiled(tmp_path: Path, in_header: bool) -> None:
    """A lambda that a kernel calls is compiled, in a source and in a header, where only nvcc finds it."""
    text = (
        "#include <cstdio>\n"
        "template <class F> __global__ void call(F f, int *to) { *to = f(3); }\n"
        "int main() { int *to, got; cudaMalloc(&to, 4); call<<<1, 1>>>([=] __device__(int x) { return x * 5; }, to);\n"
        '    cudaMemcpy(&got, to, 4, cudaMemcpyDefault); printf("got %d\\n", got); return cudaFree(to); }\n'
    )
    (tmp_path / "lambda.cuh").write_text(text)
    (tmp_path / "main.cu").write_text('#include "lambda.cuh"\n' if in_header else text)
    done = run("exec", "main.cu", folder=tmp_path)
    assert "got 15" in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.slow
def test_units_share_functions_by_address(tmp_path: Path) -> None:
    """A unit that takes the address of another unit's device function, and virtual functions of another unit, are
    linked and counted."""
    (tmp_path / "shape.cuh").write_text("struct Shape { __device__ virtual int area() const = 0; };\n")
    (tmp_path / "a.cu").write_text(
        '#include "shape.cuh"\n#include <cstdio>\nextern __device__ int cube(int);\n__device__ int (*chosen)(int);\n'
        "Shape *make(int);\n__global__ void choose() { chosen = cube; }\n"
        "__global__ void use(Shape *shape, int *x) { x[0] = chosen(3) + shape->area(); }\n"
        "int main() { int *x, h; cudaMalloc(&x, 4); choose<<<1, 1>>>(); use<<<1, 1>>>(make(2), x);\n"
        'cudaMemcpy(&h, x, 4, cudaMemcpyDeviceToHost); printf("%d\\n", h); cudaFree(x); }\n'
    )
    (tmp_path / "b.cu").write_text(
        '#include "shape.cuh"\n__device__ int cube(int a) { return a * a * a; }\n'
        "struct Square : Shape { int a; __device__ Square(int a) : a(a) {}\n"
        "__device__ int area() const override { return a * a; } };\n"
        "__global__ void build(Shape **shape, int a) { *shape = new Square(a); }\n"
        "Shape *make(int a) { Shape **d, *h; cudaMalloc(&d, 8); build<<<1, 1>>>(d, a);\n"
        "cudaMemcpy(&h, d, 8, cudaMemcpyDeviceToHost); cudaFree(d); return h; }\n"
    )
    done = run("exec", "a.cu", "b.cu", "--json", "p.json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("31\n")
    results = json.loads((tmp_path / "p.json").read_text())["results"]
    assert {one["kernel"] for one in results if one["machine_code"]["instructions_executed"] > 0} == {
        "choose",
        "build",
        "use",
    }


def test_nvcc_hands_on(tmp_path: Path) -> None:
    """`cudabench nvcc` passes on nvcc's version, messages and exit code."""
    version = run("nvcc", "--version", folder=tmp_path)
    assert version.returncode == 0
    assert re.search(r"release \d+\.\d+", version.stdout)
    assert run("nvcc", "none.cu", folder=tmp_path).returncode != 0


@pytest.mark.slow
def test_what_cannot_run_is_refused(tmp_path: Path) -> None:
    """`exec` refuses a missing file, code that does not compile, two programs, bad launch numbers, and kernels that
    launch kernels."""
    (tmp_path / "deep.cu").write_text("__global__ void a() {}\n__global__ void b() { a<<<1, 1>>>(); }\nint main() {}\n")
    (tmp_path / "bad.cu").write_text("int main() { return nothing; }\n")
    for words, code in (
        ((), 2),
        (("none.cu",), 1),
        (("bad.cu",), 1),
        (("deep.cu",), 5),
        (("one", "two"), 2),
        (("bad.cu", "--launches", "5-1"), 2),
        (("bad.cu", "--checked", "some"), 2),
    ):
        done = run("exec", *words, folder=tmp_path)
        assert done.returncode == code, (words, done.stderr)
        assert done.stderr.startswith("Error: ")


def test_files_that_are_not_programs_get_a_sentence(tmp_path: Path) -> None:
    """A file without main names `cudabench run`; an argument of the program without -- names --."""
    (tmp_path / "k.cu").write_text("__global__ void f(int *x) { x[0] = 1; }\n")
    done = run("exec", "k.cu", folder=tmp_path)
    assert (done.returncode, "has no main function: cudabench run k.cu" in done.stderr) == (1, True)
    done = run("exec", "k.cu", "500", folder=tmp_path)
    assert (done.returncode, "arguments after --" in done.stderr) == (2, True)


@pytest.mark.slow
def test_the_order_of_streams_is_checked(tmp_path: Path) -> None:
    """A launch that reads memory before another stream writes it is reported with the writing kernel; so is memory that
    is freed in another stream while a launch may still use it. Events that order the streams are respected."""
    (tmp_path / "streams.cu").write_text(
        "__global__ void fill(int *a) { a[threadIdx.x] = threadIdx.x; }\n"
        "__global__ void twice(int *a, int *b) { b[threadIdx.x] = 2 * a[threadIdx.x]; }\n"
        "int main(int count, char **) {\n"
        "  int *a, *b; cudaStream_t s, t; cudaEvent_t e;\n"
        "  cudaStreamCreate(&s); cudaStreamCreate(&t); cudaEventCreate(&e);\n"
        "  cudaMallocAsync(&a, 256, s); cudaMalloc(&b, 256);\n"
        "  fill<<<1, 64, 0, s>>>(a);\n"
        "  if (count != 2) { cudaEventRecord(e, s); cudaStreamWaitEvent(t, e); }\n"
        "  twice<<<1, 64, 0, t>>>(a, b);\n"
        "  if (count == 1) { cudaEventRecord(e, t); cudaStreamWaitEvent(s, e); }\n"
        "  if (count != 2) cudaFreeAsync(a, s);\n"
        "  cudaStreamSynchronize(t); cudaDeviceSynchronize(); cudaFree(b); }\n"
    )
    assert run("exec", "streams.cu", folder=tmp_path).returncode == 0
    early = run("exec", "streams.cu", "--", "early", folder=tmp_path)
    assert early.returncode == 3
    assert "Kernel fill writes it after kernel twice: if it must come first" in " ".join(early.stdout.split())
    freed = run("exec", "streams.cu", "--", "free", "early", folder=tmp_path)
    assert freed.returncode == 3
    assert "use-after-free" in freed.stdout


@pytest.mark.slow
def test_a_grid_barrier_needs_a_cooperative_launch(tmp_path: Path) -> None:
    """A plain launch of a kernel that synchronises its grid fails as on a card, and the message says how to launch
    it."""
    (tmp_path / "grid.cu").write_text(
        "#include <cooperative_groups.h>\n"
        "__global__ void both(int *a, int *b) {\n"
        "  a[blockIdx.x] = 1; cooperative_groups::this_grid().sync();\n"
        "  b[blockIdx.x] = a[1 - blockIdx.x]; }\n"
        "int main(int count, char **) {\n"
        "  int *a, *b; cudaMalloc(&a, 8); cudaMalloc(&b, 8); void *given[] = {&a, &b};\n"
        "  if (count > 1) both<<<2, 1>>>(a, b); else cudaLaunchCooperativeKernel((void *)both, 2, 1, given, 0, 0);\n"
        "  int error = cudaDeviceSynchronize(); cudaFree(a); cudaFree(b); return error; }\n"
    )
    assert run("exec", "grid.cu", folder=tmp_path).returncode == 0
    plain = run("exec", "grid.cu", "--", "plain", folder=tmp_path)
    assert plain.returncode == 1
    said = " ".join((plain.stdout + plain.stderr).split())
    assert "but the launch is not cooperative: launch it by cudaLaunchCooperativeKernel()" in said
