"""On a real GPU: every kernel at awkward sizes and blocks, faults, and the whole command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudabench.errors import UsageError
from tests.ladders import on_gpu

pytestmark = pytest.mark.gpu

LADDER = ("--no-cpu", "--min-time", "0.05")


@pytest.fixture(scope="module")
def device() -> Iterator[object]:
    """Yield one device, whose context all tests of this file share."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        yield device


# The command line, as a process of its own ---------------------------------------------------------------------------


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process, as a user does."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-m", "cudabench", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_one_kernel_end_to_end(tmp_path: Path) -> None:
    """The README's command measures and verifies a kernel, and writes its results file."""
    ran = command(
        "transpose",
        "--kernel",
        "smem-pad",
        "--block",
        "32",
        "8",
        "--size",
        "1024",
        "1024",
        "--json",
        "r.json",
        cwd=tmp_path,
    )
    assert (ran.returncode, ran.stderr.count("Traceback")) == (0, 0), ran.stderr
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
    assert result["status"] == "ok"
    assert result["verification"]["checked"] == ["before", "after"]
    assert 0 < result["peak_fraction"] < 2
    assert result["time"]["samples"] == len(result["time"]["samples_s"]) >= 10
    assert result["registers"] > 0
    assert "smem-pad" in ran.stdout


def test_illegal_address_does_not_end_the_ladder(tmp_path: Path) -> None:
    """A kernel that faults is reported as failed; the kernels after it are measured, without messages of a library."""
    (tmp_path / "bad.cu").write_text(
        "__global__ void bad(const float *in, float *out, int nx, int ny) { out[1ll << 40] = in[0]; }\n"
    )
    both = ("--source", "bad.cu", "-k", "bad", "-k", "naive-row")
    ran = command("transpose", *both, "--size", "256", "256", "--json", "r.json", *LADDER, cwd=tmp_path)
    assert ran.returncode == 1
    states = {r["kernel"]: (r["status"], r["reason"]) for r in json.loads((tmp_path / "r.json").read_text())["results"]}
    assert states["bad"][0] == "failed"
    assert "illegal memory access" in states["bad"][1]
    assert states["naive-row"][0] == "ok"
    assert "PyCUDA" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_endless_kernel_is_stopped(tmp_path: Path) -> None:
    """A kernel that hangs fails after --timeout; the next kernel is measured."""
    (tmp_path / "hang.cu").write_text(
        "__global__ void hang(const float *in, float *out, int nx, int ny)\n"
        "{ volatile const float *v = in; while (v[0] < 2.0f) ; out[0] = 1; }\n"
    )
    ran = command(
        "transpose", "--source", "hang.cu", "-k", "hang", "-k", "naive-row", "--size", "64", "64", "--timeout", "3",
        "--json", "r.json", *LADDER, cwd=tmp_path,
    )  # fmt: skip
    states = {r["kernel"]: (r["status"], r["reason"]) for r in json.loads((tmp_path / "r.json").read_text())["results"]}
    assert ran.returncode == 1
    assert "no progress for 3 s" in states["hang"][1]
    assert states["naive-row"][0] == "ok"


@pytest.mark.driver
def test_wrong_kernel_has_exit_code_3(tmp_path: Path) -> None:
    """A wrong kernel has no bandwidth and exit code 3."""
    (tmp_path / "wrong.cu").write_text(
        "__global__ void copies(const float *in, float *out, int nx, int ny)\n"
        "{ int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (x < nx && y < ny) out[y * nx + x] = in[y * nx + x]; }\n"
    )
    ran = command("transpose", "--source", "wrong.cu", "--size", "64", "64", "--json", "-", *LADDER, cwd=tmp_path)
    assert ran.returncode == 3
    (result,) = json.loads(ran.stdout)["results"]
    assert (result["status"], result["bandwidth_gbps"]) == ("wrong", None)


@pytest.mark.driver
def test_compiler_error_names_the_users_line(tmp_path: Path) -> None:
    """nvcc's message has the user's file name and line, and no temporary file."""
    (tmp_path / "broken.cu").write_text(
        "__global__ void broken(const float *in, float *out, int nx, int ny)\n{\n  out[0] = nonsense;\n}\n"
    )
    ran = command("transpose", "--source", "broken.cu", "--size", "64", "64", *LADDER, cwd=tmp_path)
    assert ran.returncode == 1
    assert "broken.cu:3: error" in ran.stdout + ran.stderr
    assert "/tmp" not in (ran.stdout + ran.stderr).replace(str(tmp_path), "")


@pytest.mark.driver
def test_too_large_for_the_gpu(tmp_path: Path) -> None:
    """A matrix larger than the GPU's memory is refused with advice to use a smaller size."""
    ran = command("transpose", "-k", "0", "--size", "400000", "400000", "--no-cpu", cwd=tmp_path)
    assert ran.returncode == 1
    assert "use a smaller --size" in ran.stderr


@pytest.mark.driver
def test_missing_gpu(tmp_path: Path) -> None:
    """A GPU that does not exist gives exit code 5."""
    ran = command("transpose", "--device", "cuda:99", cwd=tmp_path)
    assert ran.returncode == 5
    assert "GPU cuda:99 does not exist" in ran.stderr


def test_thresholds(tmp_path: Path) -> None:
    """A missed threshold gives exit code 4; a threshold that is met gives 0."""
    words = ("transpose", "-k", "naive-row", "--size", "1024", "1024", *LADDER)
    assert command(*words, "--min-bandwidth", "1e9", cwd=tmp_path).returncode == 4
    assert command(*words, "--min-copy-fraction", "1.5", cwd=tmp_path).returncode == 4
    assert command(*words, "--min-bandwidth", "1", cwd=tmp_path).returncode == 0


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    """After Ctrl-C the finished kernels are in the file, and the exit code is 130."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    words = ("transpose", "--size", "2048", "2048", "--min-time", "2", "--no-cpu", "--json", "r.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "cudabench", *words],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    path, end = tmp_path / "r.json", time.monotonic() + 120
    while time.monotonic() < end and not (path.exists() and json.loads(path.read_text())["results"]):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert len(json.loads(path.read_text())["results"]) >= 1


# Compilers: a GPU runs the code of nvcc and of NVRTC -----------------------------------------------------------------

PROGRAM = """\
#include <cstdio>
#include <opencv2/nowhere.hpp>
__constant__ float shift = 3;
template <class T, int N> __global__ void scaled(const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = N * x[i] + shift;
}
int main() { cv::Mat m; scaled<float, 2><<<1, 1>>>(nullptr, nullptr, 0); }
"""


@pytest.fixture(params=["nvcc", "nvrtc"])
def compiled_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the compiler; NVRTC stands for a machine without a toolkit."""
    from cudabench.devices import cuda, probe

    if not {"nvcc": probe.nvcc, "nvrtc": probe.nvrtc}[request.param]().usable:
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.setenv("CUDABENCH_COMPILER", request.param)
    cuda._compile_in_background.cache_clear()  # its key does not contain the compiler
    return str(request.param)


@pytest.mark.driver
def test_template_constant_and_host_code(compiled_by: str, tmp_path: Path) -> None:
    """An instance of a template in a whole program, with constant memory, gives the right result with either
    compiler."""
    (tmp_path / "program.cu").write_text(PROGRAM)
    ran = command(
        "run", "program.cu", "--kernel", "scaled<float, 5>", "--grid", "cdiv(n,256)", "--block", "256",
        "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--arg", "n=100003", "--expect", "y=5*x+3",
        "--bytes", "8*n", "--device", "cuda", "--json", "r.json", *LADDER, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["results"][0]["status"] == "ok"
    assert document["tool"][compiled_by]


@pytest.mark.driver
def test_either_compiler_gives_machine_code(compiled_by: str) -> None:
    """The record of a compile has the machine code, and the driver reports the same resources as ptxas."""
    from cudabench.devices.cuda import CudaDevice
    from cudabench.records.launch import Source

    text = "template <class T> __global__ void f(T *x) { __shared__ T s[64]; s[threadIdx.x] = x[0]; x[1] = s[7]; }"
    with CudaDevice(0) as device:
        module = device.load(Source("f.cu", text, builtin=False), {}, ["f<double>"])
        assert module.compiled.backend == compiled_by
        assert module.compiled.cubin is not None
        assert module.compiled.cubin.startswith(b"\x7fELF")
        got = module.resources("f<double>")
        assert (got.shared_bytes, module.compiled.lowered) == (512, {"f<double>": "_Z1fIdEvPT_"})
        by_ptxas = module.compiled.resources.get("_Z1fIdEvPT_")
        assert by_ptxas is None or by_ptxas.registers == got.registers
        with pytest.raises(UsageError, match=r"'g' matches no kernel or several kernels of f\.cu"):
            device.load(Source("f.cu", text, builtin=False), {}, ["g"])


def test_a_ladder_compiled_by_either(compiled_by: str) -> None:
    """The built-in kernels are right with either compiler."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        assert on_gpu(device, "transpose", size=(257, 1000)) == []


@pytest.mark.driver
def test_errors_of_either_compiler(compiled_by: str, tmp_path: Path) -> None:
    """A compiler error shows the user's line, in a file with host code too."""
    (tmp_path / "broken.cu").write_text("__global__ void f(float *y) {\n  y[0] = nonsense;\n}\nint main() { f(0); }\n")
    words = ("run", "broken.cu", "-g", "1", "-b", "1", "--arg", "y=float32[1]:empty", "--device", "cuda")
    ran = command(*words, cwd=tmp_path)
    assert ran.returncode == 1
    assert "broken.cu:2: error" in ran.stdout + ran.stderr
    assert "/tmp" not in (ran.stdout + ran.stderr).replace(str(tmp_path), "")
