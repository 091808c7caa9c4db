"""`cudabench check` on kernels that read unwritten memory: that is a fault if a result depends on the value."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.measure.unwritten import OTHER, first_dependent_element, hazards
from cudabench.records.launch import POISON
from cudabench.records.plan import Buffer
from cudabench.simulator import api as simulator
from tests.conftest import Ran

Runner = Callable[..., Ran]

SOURCE = """\
__global__ void part(const int *x, int *out) {
    int seen[8], sum = 0;
    for (int k = 0; k < 4; k++) seen[x[threadIdx.x + k] & 7] = k;
    for (int k = 0; k < 8; k++) sum += seen[k] BEHIND;
    out[threadIdx.x] = sum;
}
__global__ void scalar(const int *x, int *out) {
    int count START;
    for (int k = 0; k < 64; k++)
        if (x[k] == x[threadIdx.x]) { if (k == 0) count = 0; count++; }
    out[threadIdx.x] = count;
}
__global__ void output(const int *x, int *out) {
    out[threadIdx.x] += x[threadIdx.x];
}
__global__ void shuffle(const int *x, int *out) {
    if (threadIdx.x < 20) {
        int v = x[threadIdx.x], other = __shfl_down_sync(__activemask(), v, 16);
        if (threadIdx.x < LEAST) out[threadIdx.x] = v + other;
    }
}
struct Record { char kind; float value; };
__global__ void padding(const int *x, Record *out) {
    Record record;
    record.kind = 1;
    record.value = x[threadIdx.x];
    out[threadIdx.x] = record;
}
__global__ void bound(const int *x, int *out) {
    int n, sum = 0;
    if (x[threadIdx.x] > 1 << 30) n = 3;
    for (int k = 0; k < n; k++) sum += x[k & 31];
    out[threadIdx.x] = sum;
}
__device__ int tmp[64];
__global__ void first(const int *x) { tmp[threadIdx.x] = x[threadIdx.x]; }
__global__ void second(int *out) { out[threadIdx.x] = tmp[63 - threadIdx.x]; }
__device__ int depth(int n) { return n ? 1 + depth(n - 1) * 3 % 7 : 0; }
__global__ void deep(int *out, int n) { out[threadIdx.x] = depth(n); }
"""
X, OUT = ("--arg", "x=int32[68]:random"), ("--arg", "out=int32[64]:empty")


@pytest.fixture
def check(cudabench: Runner, tmp_path: Path) -> Callable[..., Ran]:
    """Check a kernel of `SOURCE` in one block of 64 threads; by default BEHIND and START are empty and LEAST is 20."""

    def run(kernel: str, *options: str, **defines: str) -> Ran:
        text = SOURCE
        for name, value in {"BEHIND": "", "START": "", "LEAST": "20", **defines}.items():
            text = text.replace(name, value)
        file = tmp_path / "unwritten.cu"
        file.write_text(text)
        return cudabench("check", file, "--kernel", kernel, "--grid", 1, "--block", 64, *options)

    return run


needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.mark.sampled(6)
@needs_nvrtc
@pytest.mark.parametrize(
    ("kernel", "options", "said"),
    [
        (
            "part",
            X + OUT,
            "line 4: thread (0, 0, 0) of block (0, 0, 0) reads the local variable 'seen', which no thread",
        ),
        ("scalar", X + OUT, "uses a variable that was never given a value; out["),
        ("output", X + OUT, "line 14: thread (0, 0, 0) of block (0, 0, 0) reads out[0], which no thread has written"),
        ("shuffle", X + OUT, "let that lane execute the shuffle, or do not use the value from it"),
        ("bound", (*X, *OUT, "--timeout", "4"), "whether the kernel ends depends on it"),
    ],
)
def test_a_result_that_depends_on_unwritten_memory(
    check: Runner, kernel: str, options: tuple[str, ...], said: str
) -> None:
    """A result that depends on unwritten memory is a hazard whose message gives the line, the result and the cure."""
    result = check(kernel, *options)
    assert result.code == 3
    told = " ".join(result.out.split())
    assert "undefined-value" in told
    assert said in told
    assert "is not known without --expect" not in told


@pytest.mark.sampled(6)
@needs_nvrtc
@pytest.mark.parametrize(
    ("kernel", "options", "defines"),
    [
        ("part", X + OUT, {"BEHIND": "* 0"}),
        ("scalar", X + OUT, {"START": "= 0"}),
        ("output", (*X, "--arg", "out=int32[64]:zeros"), {}),
        ("shuffle", X + OUT, {"LEAST": "4"}),
        ("padding", (*X, "--arg", "out=uint8[512]:empty"), {}),
        ("second", OUT, {}),
    ],
)
def test_what_no_result_depends_on_is_not_a_hazard(
    check: Runner, kernel: str, options: tuple[str, ...], defines: dict[str, str]
) -> None:
    """Unwritten values without use, the padding of a struct and a zero-initialised variable are not hazards."""
    result = check(kernel, *options, **defines)
    assert result.code == 0, result.out


@needs_nvrtc
def test_recursion_beyond_the_stack_of_a_thread_is_named(check: Runner) -> None:
    """A recursion deeper than a thread's 1024 bytes of stack is named; on an H100, 78 calls of 16 bytes failed, 40 did
    not."""
    said = "cudaDeviceSetLimit(cudaLimitStackSize"
    assert said in check("deep", *OUT, "--arg", "n=78").out
    assert said not in check("deep", *OUT, "--arg", "n=40").out


def test_only_written_bytes_count() -> None:
    """Only bytes that the kernel wrote are compared; a copied unwritten byte in a byte array may be padding."""
    one, two = np.full(4, POISON, np.uint8).view(np.int32), np.full(4, OTHER, np.uint8).view(np.int32)
    none, every = np.zeros(4, np.uint8), np.full(4, 255, np.uint8)
    assert first_dependent_element("out", one, two, none) is None
    assert first_dependent_element("out", one, two, every) == "out[0]"
    assert first_dependent_element("out", one, two, None) == "out[0]"
    assert first_dependent_element("out", one.view(np.uint8), two.view(np.uint8), every) is None
    assert first_dependent_element("out", one, one, every) is None


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (simulator.KernelTrap("a trap"), 1),  # with the other byte the kernel traps
        (simulator.BudgetExceeded("no time is left"), 0),  # stopped too early to decide
    ],
)
def test_a_second_run_that_does_not_end(second: Exception, found: int) -> None:
    """A second run that fails shows a dependence on the value, unless it was stopped before ten times the first run's
    time."""
    suspected = simulator.Hazard("unwritten", "k.cu", 3, (0, 0, 0), (0, 0, 0), 1, "it reads v.")
    run = SimpleNamespace(report=SimpleNamespace(suspicions=(suspected,)))
    ends = iter([None, second])

    def launch(byte: int, looked: simulator.Unwritten) -> Any:
        time.sleep(0.05)
        if (error := next(ends)) is not None:
            raise error
        return run, {"out": np.zeros(1, np.int32)}

    told = hazards(launch, [Buffer("out", (1,), "int32", "out")])
    assert [hazard.kind for hazard in told] == ["undefined-value"] * found
    if told:
        assert "it reads v; whether the kernel ends depends on it" in told[0].message


@needs_nvrtc
def test_a_look_that_takes_too_long_is_said(check: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the search for reads of unwritten memory takes too long, the output says that it was not made."""
    monkeypatch.setattr("cudabench.measure.further_runs.UNWRITTEN_SEARCH_S", 0.0)
    result = check("scalar", *X, *OUT, START="= 0")
    assert result.code == 0
    assert "reads of unwritten memory were not searched for in scalar" in " ".join(result.out.split())


@needs_nvrtc
def test_a_second_run_without_time_decides_nothing(check: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second run has no time to show a dependence, the warning about an undefined shuffle stays."""
    look = "cudabench.measure.further_runs."
    decided = check("shuffle", *X, *OUT, LEAST="4")
    monkeypatch.setattr(f"{look}UNWRITTEN_SEARCH_S", 0.05)
    monkeypatch.setattr(f"{look}unwritten.hazards", lambda *_: (time.sleep(0.1), [])[1])
    result = check("shuffle", *X, *OUT, LEAST="4")
    assert (decided.code, result.code) == (0, 0)
    assert "were not searched for in shuffle: that took too long" in " ".join(result.out.split())
    assert ["the value is undefined" in ran.out for ran in (decided, result)] == [False, True]
