"""Kernels that use cuRAND's device header, and the error where the header is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile import toolkit
from cudabench.compile.compiler import nvrtc_version
from tests.conftest import Ran

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
SOURCE = """
#include <curand_kernel.h>
__global__ void xorwow(float *y, unsigned long long seed)
{
    curandState state;
    curand_init(seed, 0, threadIdx.x, &state);
    y[threadIdx.x] = curand_uniform(&state);
}
__global__ void philox(unsigned *y, unsigned long long seed)
{
    curandStatePhilox4_32_10_t state;
    curand_init(seed, threadIdx.x, 0, &state);
    uint4 four = curand4(&state);
    y[4 * threadIdx.x] = four.x;
    y[4 * threadIdx.x + 1] = four.y;
    y[4 * threadIdx.x + 2] = four.z;
    y[4 * threadIdx.x + 3] = four.w;
}
"""
LINE = ("run", "c.cu", "-g", 1, "-b", 32, "--device", "sim", "--no-cpu")
BITS = 0xFFFFFFFF


def xorwow(seed: int, count: int) -> np.ndarray:
    """Return the first numbers of Marsaglia's xorwow (J. Stat. Soft. 8-14), seeded as cuRAND seeds it."""
    low, high = (seed & BITS) ^ 0xAAD26B49, (seed >> 32) ^ 0xF7DCEFDD
    a, b = 1099087573 * low & BITS, 2591861531 * high & BITS
    d = 6615241 + a + b & BITS
    v = [123456789 + a & BITS, 362436069 ^ a, 521288629 + b & BITS, 88675123 ^ b, 5783321 + a & BITS]
    found = []
    for _ in range(count):
        t = v[0] ^ v[0] >> 2
        last = v[4] ^ (v[4] << 4 & BITS) ^ t ^ (t << 1 & BITS)
        v, d = [*v[1:], last], d + 362437 & BITS
        found.append(last + d & BITS)
    scale = np.float32(2.3283064e-10)
    return np.array(found, np.uint32).astype(np.float32) * scale + scale / 2


def philox(seed: int, sequence: int) -> list[int]:
    """Return the first four numbers of Philox4x32-10 (Salmon et al., SC 2011) with cuRAND's counter and key."""
    counter, key = [0, 0, sequence, 0], [seed & BITS, seed >> 32]
    for _ in range(10):
        left, right = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [right >> 32 ^ counter[1] ^ key[0], right & BITS, left >> 32 ^ counter[3] ^ key[1], left & BITS]
        key = [key[0] + 0x9E3779B9 & BITS, key[1] + 0xBB67AE85 & BITS]
    return counter


@pytest.mark.slow
@pytest.mark.skipif(not toolkit.device_library_headers(SOURCE), reason="needs curand_kernel.h")
def test_numbers_of_both_generators(cudabench: Callable[..., Ran], tmp_path: Path) -> None:
    """XORWOW with offsets and Philox with sequences give the numbers that their definitions give."""
    (tmp_path / "c.cu").write_text(SOURCE)
    np.save(tmp_path / "x.npy", xorwow(2**33 + 5, 32))
    np.save(tmp_path / "p.npy", np.array([philox(2**33 + 5, at) for at in range(32)], np.uint32).reshape(-1))
    for kernel, output, file in (("xorwow", "float32[32]", "x"), ("philox", "uint32[128]", "p")):
        words = ("-k", kernel, "--arg", f"y={output}:empty", "--arg", f"seed={2**33 + 5}")
        ran = cudabench(*LINE, *words, "--expect", f"y=@{tmp_path}/{file}.npy")
        assert ran.code == 0, ran.out + ran.err


def test_without_the_header(cudabench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing header gives an error that names the wheel which contains it."""
    monkeypatch.setattr(toolkit, "device_library_headers", lambda *texts: [])
    monkeypatch.setenv("CUDABENCH_COMPILER", "nvrtc")
    (tmp_path / "c.cu").write_text(SOURCE)
    ran = cudabench(*LINE, "-k", "xorwow", "--arg", "y=float32[32]:empty", "--arg", "seed=1")
    assert ran.code in (1, 5)
    said = " ".join((ran.out + ran.err).split())
    assert "no header <curand_kernel.h> was found" in said
    assert "name its folder with -I, or pip install nvidia-curand" in said
