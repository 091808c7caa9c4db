"""Compiling and disassembling have time limits of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile import limits, nvdisasm
from cudabench.compile.compiler import compile_cubin, nvrtc_version
from tests.conftest import Ran

SLOW = '#include <cooperative_groups.h>\nextern "C" __global__ void slow(float *x) { x[0] = 1; }\n'

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.fixture(autouse=True)
def _compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn the cache off."""
    monkeypatch.setenv("CUDABENCH_CACHE", "off")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("seconds", "code"), [("60", 0), ("0.01", 1)])
def test_a_compile_has_its_own_time(
    seconds: str, code: int, tmp_path: Path, cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compile's limit is CUDABENCH_COMPILE_TIMEOUT, however short the kernel's --timeout is."""
    monkeypatch.setenv("CUDABENCH_COMPILE_TIMEOUT", seconds)
    (tmp_path / "slow.cu").write_text(SLOW)
    words = ["--grid", "1", "--block", "1", "--arg", "x=float32[1]:zeros", "--device", "sim", "--no-cpu"]
    ran = cudabench("run", tmp_path / "slow.cu", *words, "--timeout", "0.5")
    assert ran.code == code
    assert ("CUDABENCH_COMPILE_TIMEOUT" in ran.out + ran.err) == (code == 1)


@pytest.mark.slow
@pytest.mark.machine_code
def test_reading_ends_with_the_timeout() -> None:
    """A deadline stops nvdisasm; a later call of nvdisasm runs again."""
    if nvdisasm.path() is None:
        pytest.skip("needs nvdisasm")
    cubin = compile_cubin('extern "C" __global__ void read(float *x) { x[0] = 5; }', "read.cu").cubin
    assert cubin is not None
    with (
        limits.shared_deadline(0.001),
        pytest.raises(limits.CompilerStopped, match="--timeout ended while nvdisasm"),
    ):
        nvdisasm.functions(cubin, "read")
    nvdisasm.begin.cache_clear()
    assert nvdisasm.functions(cubin, "read")


def test_nothing_lasts_behind_it() -> None:
    """After the block of a shared deadline, a compile has its usual limit again."""
    with limits.shared_deadline(1):
        assert 0 < limits.compile_seconds() <= 1
    assert limits.compile_seconds() == limits.longest_seconds()
    assert limits.seconds_left() is None
