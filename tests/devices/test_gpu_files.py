"""On a real GPU: the corpus, several launches in order, structs and constants, video instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cudabench.devices import probe
from tests.userkernel.test_files import FILES, Public
from tests.userkernel.test_steps import SOURCE, heat

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
BRIEF = ("--device", "cuda", "--no-cpu", "--min-time", "0", "--max-time", "0.1", "--min-samples", "1")


def run(*words: object, compiler: str = "", device: tuple[str, ...] = BRIEF) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process, as a user does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if compiler:
        environment["CUDABENCH_COMPILER"] = compiler
    return subprocess.run(
        [sys.executable, "-m", "cudabench", "run", *map(str, words), *device],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_the_corpus_runs_on_a_gpu(compiler: str) -> None:
    """Every file that gives the right result in the simulator gives it on a GPU, with either compiler and the same
    options."""
    if not {"nvcc": probe.nvcc, "nvrtc": probe.nvrtc}[compiler]().usable:
        pytest.skip(f"{compiler} is not installed")

    def wrong(file: Public) -> str:
        ran = run(file.path, *(file.then or file.run), compiler=compiler)
        said = (ran.stderr or ran.stdout).strip()
        return "" if ran.returncode == 0 else f"{file.path.name}: exit code {ran.returncode}: {said[-600:]}"

    files = [file for file in FILES if file.expect == "ok" or file.then]
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) - 2)) as pool:
        failed = [text for text in pool.map(wrong, files) if text]
    assert not failed, "\n".join([f"{len(failed)} of {len(files)}", *failed])


STRUCTS = """
struct Rule { float scale; int shift; double offset; };
__constant__ float weights[4];
__constant__ int bias = 1;
__global__ void by_value(float *y, const float *x, Rule r, float3 v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(i + r.shift) % n] * r.scale + (float)r.offset + v.x + v.z;
}
__global__ void constants(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = weights[i & 3] * x[i] + bias;
}
"""


@pytest.mark.driver
def test_structs_and_constants(tmp_path: Path) -> None:
    """Structs and vectors by value, and __constant__ variables given with --const, reach the kernel."""
    (tmp_path / "s.cu").write_text(STRUCTS)
    arrays = ("--arg", "y=float32[n]:empty", "--arg", "x=float32[n]:random")
    launch = (tmp_path / "s.cu", "-g", "cdiv(n,128)", "-b", "128")
    lines = [
        (
            *launch, "-k", "by_value", *arrays, "--arg", "r={scale: 2.5, shift: 3, offset: 0.5}", "--arg",
            "v={1, 7, 2}", "--arg", "n=1000", "--expect", "y=np.roll(x,-3)*2.5+3.5",
        ),
        (
            *launch, "-k", "constants", *arrays, "--arg", "n=1000", "--const", "weights=float32[4]:arange",
            "--const", "bias=5", "--expect", "y=np.arange(n)%4*x+5",
        ),
    ]  # fmt: skip
    for line in lines:
        ran = run(*line)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.driver
@pytest.mark.parametrize(("count", "last"), [(7, "b"), (8, "a")])
def test_steps(tmp_path: Path, count: int, last: str) -> None:
    """Repeated launches, swapped arrays and two passes give the same result as in the simulator."""
    (tmp_path / "steps.cu").write_text(SOURCE)
    np.save(tmp_path / "right.npy", heat(count).astype(np.float32))
    ran = run(
        tmp_path / "steps.cu", "--step", "heat<<<cdiv(n,32), 32>>>(a, b, n) * turns swap(a, b)",
        "--arg", "a=float32[n]:i0==20", "--arg", "b=float32[n]:zeros", "--arg", "n=40", "--arg", f"turns={count}",
        "--expect", f"{last}=@{tmp_path}/right.npy",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = run(
        tmp_path / "steps.cu", "--step", "partial<<<cdiv(n,64), 64>>>(x, sums, n)",
        "--step", "partial<<<1, 64>>>(sums, total, cdiv(n,64))", "--arg", "x=float32[n]:random",
        "--arg", "sums=float32[cdiv(n,64)]:empty", "--arg", "total=float32[1]:empty", "--arg", "n=4000",
        "--expect", "total=np.sum(x)",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_video_instructions_give_the_same_bits(tmp_path: Path) -> None:
    """Video instructions give the same bits in the simulator and on the GPU, for random words and extreme words."""
    words = np.random.default_rng(0).integers(0, 1 << 32, (3, 4096), dtype=np.uint32)
    ends = np.array([0, 1, 127, 128, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    for at, grid in enumerate(np.meshgrid(ends, ends, ends)):
        words[at, : grid.size] = grid.ravel()
    for name, row in zip("abc", words, strict=True):
        np.save(tmp_path / f"{name}.npy", row)
    found = {}
    for device in (BRIEF, ("--device", "sim", "--no-cpu")):
        saved = tmp_path / f"{device[1]}.npy"
        ran = run(
            ROOT / "tests" / "data" / "video.cu", "-g", "16", "-b", "256",
            *(word for name in "abc" for word in ("--arg", f"{name}=@{tmp_path}/{name}.npy")),
            "--arg", "out=uint32[23,n]:empty", "--arg", "n=4096", "--save", f"out={saved}", device=device,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        found[device[1]] = np.load(saved)
    different = {
        form: f"{len(places)} places, first {[hex(row[places[0]]) for row in (*words, gpu, sim)]}"
        for form, (gpu, sim) in enumerate(zip(found["cuda"], found["sim"], strict=True))
        for places in [np.flatnonzero(gpu != sim)]
        if len(places)
    }
    assert not different
