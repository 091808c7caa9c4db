"""Kernels that the cache keeps decoded, and launches whose counts are added before records are made of them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile import cache
from cudabench.compile.compiler import compile_ptx
from cudabench.simulator import api as simulator
from cudabench.simulator.program import kept, program
from cudabench.system import native

pytestmark = pytest.mark.skipif(native.library() is None, reason="needs the native engine")

# The loop makes the kernel long enough to be kept.
KERNEL = """extern "C" __global__ void k(float *out, const float *in, int n, int racy) {
    __shared__ float s[64];
    float sum = 0;
    #pragma unroll 32
    for (int i = 0; i < 64; i++) sum += in[(threadIdx.x * 7 + i * i) % n] * (i + 1);
    s[threadIdx.x] = sum;
    if (!racy) __syncthreads();
    if (threadIdx.x % 3 == 0) sum += s[63 - threadIdx.x];
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}"""


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel's PTX, and an empty cache."""
    ptx = compile_ptx(KERNEL, "kept.cu").ptx
    monkeypatch.setenv("CUDABENCH_CACHE", str(tmp_path))
    return ptx


def launched(text: str, racy: int = 0, n: int = 50) -> tuple[simulator.Report, np.ndarray]:
    """Load the PTX anew and run the kernel; return the report and the output."""
    out, data = np.zeros(9 * 64, np.float32), np.arange(50, dtype=np.float32)
    return simulator.run(simulator.load(text), "k", 9, 64, [out, data, n, racy], footprint=True), out


def refuse(*arguments: object) -> None:
    """Stands for the decoder, which a test does not expect to run."""
    raise AssertionError("the kernel is decoded again")


def test_a_kept_kernel_is_not_decoded_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second program with the same PTX reads the kernel from the cache, and has the same report and output."""
    first, out = launched(text)
    monkeypatch.setattr(program, "Builder", refuse)
    second, again = launched(text)
    assert second == first
    assert np.array_equal(out, again)


def test_the_numpy_engine_gets_its_functions_back(text: str) -> None:
    """A launch with a race runs on the NumPy engine, for which the kept kernel is decoded again."""
    fresh, _ = launched(text, racy=1)
    launched(text)
    racy, _ = launched(text, racy=1)
    assert racy.engine == "numpy"
    assert [hazard.kind for hazard in racy.hazards] == ["race"]
    assert racy == fresh


@pytest.mark.parametrize("body", [b"", b"no pickle", b"\x80\x05N."])
def test_a_damaged_file_is_not_used(text: str, body: bytes) -> None:
    """If the cached bytes are not those of a kernel, the kernel is decoded as if they were missing."""
    first, _ = launched(text)
    code = simulator.load(text).code("k")
    cache.write(kept.KIND, code.encoded[kept.NAME], body)
    assert launched(text)[0] == first


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have owners only on POSIX")
def test_a_file_of_another_user_is_not_used(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept kernels are pickled, so a file that another user wrote is never read."""
    launched(text)
    code = simulator.load(text).code("k")
    assert kept.BARE in code.encoded
    monkeypatch.setattr(os, "getuid", lambda: 12345678)
    assert kept.BARE not in simulator.load(text).code("k").encoded


def test_another_text_is_another_kernel(text: str) -> None:
    """A kernel of the same name from another source is not taken for the kept one."""
    _, out = launched(text)
    launched(text)
    _, other = launched(compile_ptx(KERNEL.replace("(i + 1)", "(i + 2)"), "kept.cu").ptx)
    assert not np.array_equal(out, other)


def test_sums_of_counts_are_sums_of_reports() -> None:
    """Reports of launches whose counts are added first are the same as reports that are added record by record, with
    different data in each launch. Only the shares of the patterns, which are rounded, may differ."""
    loaded = simulator.load(compile_ptx(KERNEL, "kept.cu").ptx)
    out, data = np.zeros(9 * 64, np.float32), np.arange(50, dtype=np.float32)
    reports = [
        simulator.run(loaded, "k", 9, 64, [out, data, n, 0], footprint=True) for n in (50, 49, 31, 50, 7, 1, 49, 50, 3)
    ]
    assert all(report.finished is not None for report in reports)
    both = [
        simulator.merge(several) for several in (reports, [dataclasses.replace(one, finished=None) for one in reports])
    ]
    for merged in both:
        for access in merged.accesses:
            assert sum(pattern.requests for pattern in access.patterns) == access.requests
        merged.accesses = tuple(access._replace(patterns=()) for access in merged.accesses)
    assert both[0] == both[1]
