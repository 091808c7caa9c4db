"""`cudabench exec` on a GPU: its launches are listed with their times. Here CUPTI and the GPU are replacements."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile import toolkit
from cudabench.devices import probe
from cudabench.programs import gpu_run
from cudabench.records.results import DeviceInfo
from cudabench.system import native
from tests.conftest import Ran

HERE = Path(__file__).parent
GPUS = tuple(
    DeviceInfo(name=f"Card {number}", kind="cuda", compute_capability="9.0", uuid=f"GPU-{number}", index=number)
    for number in range(2)
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the program `app` and the replacement of CUPTI, `libcupti.so`."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("traced")
    for words in (
        ["app.cpp", "-o", folder / "app", "-ldl"],
        ["cupti.cpp", "-shared", "-fPIC", "-o", folder / "libcupti.so"],
    ):
        subprocess.run(["g++", "-std=c++17", "-O1", *words], cwd=HERE, check=True)
    return folder


@pytest.fixture
def machine(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of `built`, on a machine that seems to have two GPUs."""
    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", version="13", device_count=2))
    monkeypatch.setattr(probe, "gpu", lambda index: GPUS[index])
    monkeypatch.setattr(toolkit, "cupti", lambda: str(built / "libcupti.so"))
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for all columns
    native.trace()  # built before the tests read what commands print
    return built


def test_launches_are_listed_with_their_times(cudabench: Callable[..., Ran], machine: Path, tmp_path: Path) -> None:
    """Each kernel has a row: its launches, the time of all of them, the median, and the grid of the slowest launch."""
    path = tmp_path / "p.json"
    done = cudabench("exec", machine / "app", "--json", str(path))
    assert done.code == 0, done.out + done.err
    assert "6 launches took 15.0 µs of" in done.out + done.err
    assert [line.split()[:7] for line in done.out.splitlines() if line.startswith("scale")] == [
        ["scale<float,", "4>", "5", "15.00", "µs", "100%", "3.000"]
    ]
    file = json.loads(path.read_text())
    scale, plain = file["results"]
    assert (scale["kernel"], scale["grid"], scale["block"]) == ("scale<float, 4>", [8, 1, 1], [64, 2, 1])
    assert (scale["registers"], scale["shared_bytes"], scale["local_bytes"]) == (32, 1280, 16)
    assert np.allclose(scale["time"]["samples_s"], [1e-6, 2e-6, 3e-6, 4e-6, 5e-6])
    assert (scale["time"]["samples"], scale["time"]["cache"], scale["device"]) == (5, "as found", "cuda:0")
    assert (plain["kernel"], plain["time"]) == ("plain", None)
    program = file["program"]
    assert (program["launches"], program["checked"], program["exit_code"]) == (6, 0, 0)


@pytest.mark.parametrize(
    ("word", "code", "exit_code", "said"), [("fail", 1, 4, "exit code 4"), ("abort", 1, 134, "SIGABRT")]
)
def test_the_programs_end_decides_the_exit_code(
    cudabench: Callable[..., Ran], machine: Path, tmp_path: Path, word: str, code: int, exit_code: int, said: str
) -> None:
    """A program that fails gives exit code 1, and the message and the results file have the program's own code."""
    done = cudabench("exec", machine / "app", "--json", str(tmp_path / "p.json"), "--", word)
    assert (done.code, json.loads((tmp_path / "p.json").read_text())["program"]["exit_code"]) == (code, exit_code)
    assert said in done.out + done.err


def test_a_program_without_launches_says_so(cudabench: Callable[..., Ran], machine: Path) -> None:
    """A program that uses no GPU ends with 0, and a notice says that it launched no kernel."""
    done = cudabench("exec", machine / "app", "--", "none")
    assert done.code == 0
    assert "launched no kernel" in done.out + done.err


def test_the_budget_ends_the_program(cudabench: Callable[..., Ran], machine: Path) -> None:
    """--budget ends a program that does not end, with exit code 1 and a sentence."""
    done = cudabench("exec", machine / "app", "--budget", "0.5", "--", "loop")
    assert done.code == 1
    assert "--budget 0.5 s ended the program early" in done.out + done.err


def test_cupti_that_refuses_is_named(
    cudabench: Callable[..., Ran], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If CUPTI does not record launches, its error is printed, and the exit code is 5."""
    monkeypatch.setenv("REFUSED", "1")
    done = cudabench("exec", machine / "app")
    assert done.code == 5
    assert "cuptiActivityEnable returned CUPTI_ERROR_NOT_INITIALIZED" in done.out + done.err


def test_a_named_gpu_is_the_only_one(
    cudabench: Callable[..., Ran], machine: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With --device cuda:1 the program has only this GPU, and its results name it."""
    done = cudabench("exec", machine / "app", "--device", "cuda:1", "--json", str(tmp_path / "p.json"))
    assert done.code == 0, done.out + done.err
    assert "on GPU-1" in capfd.readouterr().out
    assert {result["device"] for result in json.loads((tmp_path / "p.json").read_text())["results"]} == {"cuda:1"}


@pytest.mark.parametrize("words", [("--checked", "all"), ("--launches", "1"), ("--on", "h100"), ("--lines",)])
def test_options_of_the_simulator_are_refused(
    cudabench: Callable[..., Ran], machine: Path, words: tuple[str, ...]
) -> None:
    """An option that only the simulator has is a usage error that names --device sim."""
    done = cudabench("exec", machine / "app", *words)
    assert done.code == 2
    assert f"{words[0]} needs the simulator" in done.out + done.err
    assert "--device sim" in done.out + done.err


def test_kernels_are_chosen_by_name(cudabench: Callable[..., Ran], machine: Path) -> None:
    """--kernel lists only kernels whose name, with or without template arguments, matches."""
    done = cudabench("exec", machine / "app", "--kernel", "sca*")
    assert "scale<float, 4>" in done.out + done.err
    assert "plain" not in done.out + done.err


def test_results_are_reported_compared_and_exported(
    cudabench: Callable[..., Ran], machine: Path, tmp_path: Path
) -> None:
    """The results are a page, rows of a CSV file, and can be compared with those of an earlier run."""
    for name in ("old", "new"):
        done = cudabench("exec", machine / "app", "--json", f"{name}.json", "--report", "page.html", "-q")
        assert done.code == 0, done.err
    assert "scale&lt;float, 4&gt;" in (tmp_path / "page.html").read_text()
    compared = cudabench("compare", "old.json", "new.json")
    assert compared.code == 0, compared.err
    assert "scale<float, 4>" in compared.out
    exported = cudabench("export", "new.json", "--to", "csv")
    assert "scale<float, 4>" in exported.out
    assert "as found" in exported.out


def test_a_trace_that_was_cut_off_is_read(tmp_path: Path) -> None:
    """A killed program's trace may end in the middle of a line and of a launch; the complete ones are read."""
    (tmp_path / "1.kernels").write_text("1 1 1 32 1 1 0 0 8 0 void f<int>(int*)\n1 1 1 32 1 1 0 0 8 0 g(in")
    rows = np.array([(0, 0, 1000, 3000), (0, 0, 5000, 9000)], gpu_run.LAUNCH)
    (tmp_path / "1.launches").write_bytes(rows.tobytes()[:-5])
    (kernel,) = gpu_run.traced_kernels(tmp_path)
    assert (kernel.name, list(kernel.times)) == ("f<int>", pytest.approx([2e-6]))


def test_processes_of_a_program_are_added_up(tmp_path: Path) -> None:
    """A kernel that several processes of a program launch has one row for each GPU, in the order of their time."""
    for process, device in ((1, 0), (2, 0), (3, 1)):
        (tmp_path / f"{process}.kernels").write_text("1 1 1 32 1 1 0 0 8 0 f(int*)\n")
        np.array([(0, device, 1000, 1000 + process)], gpu_run.LAUNCH).tofile(tmp_path / f"{process}.launches")
    first, second = gpu_run.traced_kernels(tmp_path)
    assert (first.device, len(first.times), second.device, len(second.times)) == (0, 2, 1, 1)


def test_a_gpu_that_does_not_exist_is_refused(cudabench: Callable[..., Ran]) -> None:
    """Without a GPU, --device cuda is refused with exit code 5 and a repair."""
    if probe.driver().usable:
        pytest.skip("this machine has a GPU")
    done = cudabench("exec", os.devnull, "--device", "cuda")
    assert done.code == 5
    assert "--device sim" in done.out + done.err


@pytest.mark.gpu
def test_a_program_runs_on_the_gpu(cudabench: Callable[..., Ran], tmp_path: Path) -> None:
    """On a GPU, `exec` compiles and runs a program, and lists its launches, also those before a reset."""
    (tmp_path / "main.cu").write_text(PROGRAM)
    done = cudabench("exec", "main.cu", "--json", "p.json", "--", "1000")
    assert done.code == 0, done.out + done.err
    file = json.loads((tmp_path / "p.json").read_text())
    rows = {result["kernel"]: result for result in file["results"]}
    launches = {row["kernel"]: row["launches"] for row in file["program"]["kernels"]}
    assert launches == {"fill<float>": 1000, "(anonymous namespace)::add": 1}
    assert (rows["fill<float>"]["grid"], rows["fill<float>"]["block"]) == ([64, 1, 1], [256, 1, 1])
    assert rows["fill<float>"]["time"]["samples"] == 1000
    assert all(0 < result["time"]["min_s"] < 1 for result in rows.values())


PROGRAM = r"""
#include <cstdlib>
template <class T> __global__ void fill(T *x, T value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value;
}
namespace {
__global__ void add(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
}
int main(int count, char **words) {
    int n = 64 * 256;
    float *x, last = 0;
    cudaMalloc(&x, n * sizeof *x);
    for (int i = 0; i < atoi(words[1]); i++)
        fill<<<64, 256>>>(x, float(i), n);
    add<<<(n + 127) / 128, 128>>>(x, n);
    cudaMemcpy(&last, x, sizeof last, cudaMemcpyDeviceToHost);
    cudaDeviceReset();
    return last != atoi(words[1]);
}
"""
