"""Faults of the GPU path with the simulated driver: each fails only what depends on it, prints one sentence and leaves
no process or file."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_hostile_signals import ENDS, MOMENT_S, Signalled, marked
from tests.conftest import Ran
from tests.simulator.test_hopper import COPY
from tests.surface_cases import CASES, SOURCE

pytestmark = pytest.mark.driver
Runner = Callable[..., Ran]
ROOT = Path(__file__).resolve().parents[2]
WORD = "CUDABENCH_FAULTS_OF"

KERNELS = r"""
#include <assert.h>
#include <stdio.h>
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
extern "C" __global__ void first(int n, const float *x, float *y) { I y[i] = 2 * x[i]; }
extern "C" __global__ void far(int n, const float *x, float *y) { I y[i + (1l << 37)] = 2 * x[i]; }
extern "C" __global__ void odd(int n, const float *x, float *y) { I *(double *)(y + i + 1) = 2 * x[i]; }
extern "C" __global__ void trap(int n, const float *x, float *y) { I y[i] = 2 * x[i]; if (i == 5) __trap(); }
extern "C" __global__ void check(int n, const float *x, float *y) { I y[i] = 2 * x[i]; assert(i != 7); }
extern "C" __global__ void hang(int n, const float *x, float *y)
{
    I while (((volatile float *)x)[i] != -5) ;
    y[i] = 2 * x[i];
}
extern "C" __global__ void says(int n, const float *x, float *y) { I y[i] = 2 * x[i]; if (i == 3) printf("three\n"); }
"""
LAUNCH = (
    "--grid", "4", "--block", "256", "--arg", "n=1000", "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty",
    "--expect", "y=2*x",
)  # fmt: skip
QUICK = ("--device", "cuda", "--no-cpu", "--max-time", "0.02", "--json", "r.json")


@pytest.fixture
def faulty(cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """Run a command in a folder with the kernels; assert that it leaves no process and no temporary file."""
    (tmp_path / "k.cu").write_text(KERNELS)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    mark = secrets.token_hex(8)
    monkeypatch.setenv(WORD, mark)
    yield cudabench
    gone = time.monotonic() + MOMENT_S  # a process that reads machine code ends later
    while marked(f"{WORD}={mark}") and time.monotonic() < gone:
        time.sleep(0.1)
    assert marked(f"{WORD}={mark}") == {}
    assert [*temporary.iterdir()] == []


def named(*kernels: str) -> tuple[str, ...]:
    """Return the words that run some kernels."""
    return ("run", "k.cu", *(word for kernel in kernels for word in ("-k", kernel)), *LAUNCH)


def results() -> list[tuple[str, str, str]]:
    """Return kernel, status and reason of each result in the file."""
    return [
        (one["kernel"], one["status"], one.get("reason") or "")
        for one in json.loads(Path("r.json").read_text())["results"]
    ]


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


# Kernels -------------------------------------------------------------------------------------------------------------


@pytest.mark.machine_code
def test_faults_cost_their_kernel(faulty: Runner) -> None:
    """A kernel with an illegal or misaligned address, a trap, an assert or a hang fails with CUDA's message, and a new
    process measures the next kernels; the output of a kernel is shown."""
    ran = faulty(*named("first", "far", "odd", "trap", "check", "hang", "says"), *QUICK, "--timeout", "15")
    assert results() == [
        ("first", "ok", ""),
        ("far", "failed", "CUDA failed while running far: an illegal memory access was encountered."),
        ("odd", "failed", "CUDA failed while running odd: misaligned address."),
        ("trap", "failed", "CUDA failed while running trap: unspecified launch failure."),
        ("check", "failed", "CUDA failed while running check: device-side assert triggered."),
        ("hang", "failed", "no progress for 15 s while running; if the kernel is only slow, raise --timeout"),
        ("says", "ok", ""),
    ]
    assert ran.code == 1
    assert "far failed: CUDA failed while running far: an illegal memory access" in one_line(ran.out)
    assert "three" in ran.out + ran.err
    assert "Traceback" not in ran.err


def test_a_process_that_is_killed(faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process of a kernel is killed, that kernel fails with the signal's name, and another process measures the
    rest."""
    mark = f"{WORD}={os.environ[WORD]}"
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.1):
            for number in hanging(mark):
                os.kill(number, signal.SIGKILL)
                return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        ran = faulty(*named("first", "hang", "says"), *QUICK, "--timeout", "60")
    finally:
        done.set()
        killer.join()
    assert [status for _, status, _ in results()] == ["ok", "failed", "ok"]
    assert results()[1][2].startswith("the process of the kernel ended (by SIGKILL")
    assert ran.code == 1


def hanging(mark: str) -> list[int]:
    """Return the marked workers in which a kernel hangs, according to the driver's message on their standard error."""
    workers = [number for number, words in marked(mark).items() if any(".worker" in word for word in words)]
    return [
        number for number in workers if "it would never end" in Path(f"/proc/{number}/fd/2").read_text(errors="replace")
    ]


@pytest.mark.parametrize("number", ENDS)
def test_ctrl_c(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM while a kernel hangs: the tool shows and writes the finished results, and no others."""
    ran = Signalled(tmp_path, (*named("first", "hang", "says"), *QUICK))
    (tmp_path / "k.cu").write_text(KERNELS)
    code, out, err = ran.end(lambda one: bool(hanging(one.mark)), number)
    assert (code, [line for line in err.splitlines() if line][-1]) == ENDS[number]
    assert [one["kernel"] for one in json.loads((tmp_path / "r.json").read_text())["results"]] == ["first"]
    assert re.search(r"^first .* yes", out, re.M)
    assert [*ran.temporary.iterdir()] == []


# The device ----------------------------------------------------------------------------------------------------------


def test_a_process_that_does_not_start(faulty: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If PyCUDA cannot be loaded, the error quotes PyCUDA's message."""
    package = tmp_path / "broken" / "pycuda"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "driver.py").write_text("raise ImportError('libcurand.so.10: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(str(package.parent))
    ran = faulty(*named("first"), *QUICK)
    assert ran.code == 1
    assert one_line(ran.err) == (
        "Error: The GPU did not start: ImportError: libcurand.so.10: cannot open shared object file."
    )
    assert results() == []


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {"CUDABENCH_DRIVER_CARDS": ""},
            "A GPU cannot be used: the NVIDIA driver finds no GPU; check with nvidia-smi, or simulate with --device "
            "sim.",
        ),
        (
            {"CUDABENCH_DRIVER_FAIL": "cuInit:1=803"},
            "A GPU cannot be used: the NVIDIA driver does not start (error 803); check with nvidia-smi, or simulate "
            "with --device sim.",
        ),
    ],
)
def test_no_gpu(environment: dict[str, str], sentence: str, tmp_path: Path) -> None:
    """A driver that does not start, or finds no GPU, exits with 5; the tool writes no file."""
    (tmp_path / "k.cu").write_text(KERNELS)
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", *named("first"), *QUICK], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert (ran.returncode, one_line(ran.stderr)) == (5, f"Error: {sentence}")
    assert not (tmp_path / "r.json").exists()


def test_another_process(faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning names another process on the same GPU, by its name if the process is visible."""
    monkeypatch.setenv("CUDABENCH_DRIVER_OTHERS", f"{os.getpid()} 4194305")
    ran = faulty(*named("first"), *QUICK)
    assert ran.code == 0
    name = Path("/proc/self/comm").read_text().strip()
    assert (
        f"{name} (process {os.getpid()}), another user's or container's (process 4194305) also uses this GPU"
    ) in one_line(ran.err)


# Memory --------------------------------------------------------------------------------------------------------------


def test_memory(faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem that does not fit is refused before any launch; if the tool itself has no room, the error says how to
    list the other processes; with little room the arrays have fewer places."""
    monkeypatch.setenv("CUDABENCH_DRIVER_MEMORY", str(64 << 20))
    words = ("transpose", "-k", "naive-col", *QUICK)
    ran = faulty(*words, "--size", 4000)
    assert ran.code == 1
    assert one_line(ran.err) == (
        "Error: transpose of this size needs 0.13 GB, simulated Orin has 0.06 GB free: use a smaller --size."
    )
    assert results() == []
    monkeypatch.setenv("CUDABENCH_DRIVER_MEMORY", str(12 << 20))
    ran = faulty(*words, "--size", 33)
    assert ran.code == 0, ran.err
    assert json.loads(Path("r.json").read_text())["results"][0]["time"]["places"] == 1
    monkeypatch.setenv("CUDABENCH_DRIVER_MEMORY", "1000")
    ran = faulty(*words, "--size", 33)
    assert ran.code == 1
    assert one_line(ran.err) == (
        "Error: The GPU ran out of memory while starting; end other processes on it, which nvidia-smi lists."
    )


def test_memory_that_one_kernel_lacks(faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the memory is too small for one kernel, that kernel fails, and the ladder continues."""
    monkeypatch.setenv("CUDABENCH_DRIVER_FAIL", "cuStreamCreate:2=2")
    ran = faulty(*named("first", "says"), *QUICK)
    reason = "The GPU ran out of memory while making a stream; use smaller arrays."
    assert results() == [("first", "failed", reason), ("says", "ok", "")]
    assert ran.code == 1


# Calls that fail -----------------------------------------------------------------------------------------------------

# A call that fails before the first kernel: the error of the run.
STARTS = {
    "cuCtxCreate_v4:1=999": "CUDA failed while starting: unknown error.",
    "cuDeviceGet:2=101": "CUDA failed while starting: invalid device ordinal.",
    "cuStreamCreate:1=999": "CUDA failed while starting: unknown error.",
    "cuEventCreate:1=999": "CUDA failed while starting: unknown error.",
    "cuMemHostAlloc:1=999": "CUDA failed while starting: unknown error.",
    "cuModuleLoadDataEx:1=200": "CUDA failed while loading protocol.cu: device kernel image is invalid.",
    "cuModuleGetFunction:1=500": "CUDA failed while finding kernel 'block_stream': named symbol not found.",
    "cuFuncSetAttribute:1=1": "CUDA failed while starting: invalid argument.",
    "cuMemGetInfo_v2:1=1": "CUDA failed while reading the free memory: invalid argument.",
    "cuMemAlloc_v2:3=999": "CUDA failed while allocating 0.00 GB: unknown error.",
}  # fmt: skip
# A call that fails later: the reason of the kernel.
RUNS = {
    "cuModuleLoadDataEx:2=209": "CUDA failed while loading k.cu: no kernel image is available for execution on the "
    "device.",
    "cuModuleGetFunction:5=500": "CUDA failed while finding kernel 'first': named symbol not found.",
    "cuFuncGetAttribute:1=1": "CUDA failed while reading the resources of kernel 'first': invalid argument.",
    "cuMemcpyHtoD_v2:1=1": "CUDA failed while copying to the GPU: invalid argument.",
    "cuMemcpyDtoH_v2:1=700": "CUDA failed while copying from the GPU: an illegal memory access was encountered.",
    "cuMemsetD8Async:1=1": "CUDA failed while hashing the output: invalid argument.",
    "cuLaunchKernel:1=701": "CUDA failed while hashing the output: too many resources requested for launch.",
    "cuStreamSynchronize:1=719": "CUDA failed while hashing the output: unspecified launch failure.",
    "cuEventRecord:1=400": "CUDA failed while timing the kernel: invalid resource handle.",
    "cuEventRecord:2=400": "CUDA failed while timing the kernel: invalid resource handle.",
    "cuEventSynchronize:1=719": "CUDA failed while timing the kernel: unspecified launch failure.",
    "cuEventElapsedTime_v2:1=400": "CUDA failed while timing the kernel: invalid resource handle.",
}
ALWAYS = {"cuCtxCreate_v4:1=999", "cuFuncGetAttribute:1=1", "cuMemsetD8Async:1=1", "cuEventRecord:1=400"}


def failing(table: dict[str, str]) -> list[Any]:
    """Return the entries of a table as parameters, most of them slow."""
    return [
        pytest.param(*line, id=line[0], marks=[] if line[0] in ALWAYS else pytest.mark.slow) for line in table.items()
    ]


@pytest.mark.parametrize(("fails", "sentence"), failing(STARTS))
def test_a_start_that_fails(fails: str, sentence: str, faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a call fails at the start, one sentence names the step, and there are no results."""
    monkeypatch.setenv("CUDABENCH_DRIVER_FAIL", fails)
    ran = faulty(*named("first"), *QUICK)
    assert (ran.code, one_line(ran.err)) == (1, f"Error: {sentence}")
    assert results() == []


@pytest.mark.parametrize(("fails", "sentence"), failing(RUNS))
def test_a_call_that_fails(fails: str, sentence: str, faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a call fails for a kernel, the kernel's reason names the step; a blocked stream ends at once."""
    monkeypatch.setenv("CUDABENCH_DRIVER_FAIL", fails)
    begun = time.monotonic()
    ran = faulty(*named("first"), *QUICK, "--timeout", "60")
    assert time.monotonic() - begun < 50
    assert (ran.code, results()) == (1, [("first", "failed", sentence)])


TILE = ("tensormap(float32[37,52]:random, box=8x32)", "tensormap(float32[37,52]:empty, box=8x32)")
MAPPED = (
    "run", "c.cu", "-g", "2,5", "-b", "32", "--arg", f"from={TILE[0]}", "--arg", f"to={TILE[1]}", "--arg", "x=0",
    "--arg", "y=0", "--expect", "to=from",
)  # fmt: skip
SURFACE = ("run", str(SOURCE), *CASES["line"][0])
TEXTURE = (
    "run", "t.cu", "-g", "1", "-b", "32", "--arg", "t=texture(float32[8,4]:random)", "--arg", "y=float32[32]:empty",
    "--expect", "y=np.reshape(t,-1)",
)  # fmt: skip
READS = """extern "C" __global__ void reads(cudaTextureObject_t t, float *y)
{
    y[threadIdx.x] = tex2D<float>(t, threadIdx.x % 4, threadIdx.x / 4);
}
"""
OBJECTS = {
    "cuArray3DCreate_v2:1=2": (SURFACE, "The GPU ran out of memory while making the surface s"),
    "cuSurfObjectCreate:1=1": (SURFACE, "cuSurfObjectCreate gave error 1"),
    "cuMemcpy3DAsync_v2:1=1": (SURFACE, "cuMemcpy3DAsync_v2 gave error 1"),
    "cuTexObjectCreate:1=1": (TEXTURE, "cuTexObjectCreate gave error 1"),
    "cuTensorMapEncodeTiled:1=1": (MAPPED, "CUDA failed with the tensor map of from, a box of 8x32: invalid argument."),
    "cuModuleLoadData:1=200": (MAPPED, "CUDA failed with the module: device kernel image is invalid."),
}


@pytest.mark.parametrize(
    "fails",
    [
        pytest.param(one, marks=[] if one in ("", "cuTexObjectCreate:1=1") else pytest.mark.slow)
        for one in ("", *OBJECTS)
    ],
)
def test_objects_that_cannot_be_made(fails: str, faulty: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Textures give right results; if a surface, texture or tensor map cannot be created, its kernel fails with a
    sentence."""
    Path("t.cu").write_text(READS)
    Path("c.cu").write_text(COPY)
    monkeypatch.setenv("CUDABENCH_DRIVER_CARDS", "h100")
    monkeypatch.setenv("CUDABENCH_DRIVER_FAIL", fails)
    if not fails:
        ran = faulty(*TEXTURE, *QUICK)
        assert (ran.code, results()) == (0, [("reads", "ok", "")]), ran.err
        return
    words, sentence = OBJECTS[fails]
    ran = faulty(*words, *QUICK)
    ((_, status, reason),) = results()
    assert (ran.code, status) == (1, "failed")
    assert sentence in reason


# A device in a separate process, for faults that a command line does not reach in a few seconds.
DEVICE = """
import sys
from pathlib import Path
import numpy as np
from cudabench.devices import cuda
from cudabench.errors import CudabenchError
from cudabench.records.launch import Launch, Source

def main():
    # Its kernel waits for the host a little shorter than two seconds.
    cuda.PROTOCOL_SOURCE = Source("protocol.cu", cuda.PROTOCOL_SOURCE.text.replace("2000000000ull", "1000ull"))
    cuda.MAX_QUEUED_LAUNCHES = 20
    with cuda.CudaDevice(0) as device:
        module = device.load(Source("k.cu", 'extern "C" __global__ void k(int *x) { x[threadIdx.x] += 1; }'), {})
        place = device.allocate(128)
        device.fill(place, 128, 0)()
        out = np.zeros(32, np.int32)
        try:
            count = int(sys.argv[1])
            work = device.bind(module, [Launch("k", (1, 1, 1), (32, 1, 1), ("x",))] * count, {"x": place})
            device.run(work, "running k")
            device.download(place, out)
            assert (out == count).all(), out
            print("sampled", device.sample([work] * 3, "hot") > 0)
        except CudabenchError as error:
            print(error)
        print("alive", device.alive())

main()
import os
sys.stdout.flush()
os._exit(0)
"""
GRAPH = "CUDA failed while making a graph of the launches"


@pytest.mark.parametrize(
    ("count", "name", "value", "said"),
    [
        (5, "QUEUE", "", "sampled True"),
        (5, "QUEUE", "4", "The host took over two seconds to queue one sample; the machine is overloaded."),
        (30, "FAIL", "", "sampled True"),
        (30, "FAIL", "cuStreamBeginCapture_v2:1=1", f"{GRAPH}: cuStreamBeginCapture_v2 gave error 1."),
        (30, "FAIL", "cuStreamEndCapture:1=901", f"{GRAPH}: cuStreamEndCapture gave error 901."),
        (30, "FAIL", "cuGraphInstantiateWithFlags:1=2", f"{GRAPH}: cuGraphInstantiateWithFlags gave error 2."),
        (30, "FAIL", "cuGraphLaunch:1=1", f"{GRAPH}: cuGraphLaunch gave error 1."),
        (30, "FAIL", "cuLaunchKernel:3=1", "CUDA failed while preparing the launches: invalid argument."),
    ],
)
def test_samples_and_graphs(count: int, name: str, value: str, said: str, tmp_path: Path) -> None:
    """Many launches become a graph; a host that queues too slowly, or a failed call for a graph, gives one sentence and
    leaves the device usable."""
    ran = subprocess.run(
        [sys.executable, "-c", DEVICE, str(count)], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **({f"CUDABENCH_DRIVER_{name}": value} if value else {})},
    )  # fmt: skip
    assert ran.stdout.splitlines() == [said, "alive True"], ran.stderr
