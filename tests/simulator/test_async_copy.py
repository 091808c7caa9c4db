"""cp.async that reads fewer bytes than it writes: it fills the rest with zeros, and reads only the bytes of its
count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

SOURCE = """
extern "C" __global__ void k(unsigned char *o, const unsigned char *a, const int *bytes)
{
    __shared__ __align__(16) unsigned char s[32 * WIDTH];
    unsigned to = (unsigned)__cvta_generic_to_shared(s + WIDTH * threadIdx.x);
    asm volatile("cp.async.HOW.shared.global [%0], [%1], WIDTH, %2;"
                 :: "r"(to), "l"(a + WIDTH * threadIdx.x), "r"(bytes[threadIdx.x]) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (int i = 0; i < WIDTH; i++)
        o[WIDTH * threadIdx.x + i] = s[WIDTH * threadIdx.x + i];
}
"""


def copied(launch: Callable[..., Any], width: int, bytes_: np.ndarray, size: int) -> tuple[np.ndarray, Any, np.ndarray]:
    """Copy `width` bytes per thread from an array of `size` bytes; return the output, the report and the input."""
    source = SOURCE.replace("WIDTH", str(width)).replace("HOW", "cg" if width == 16 else "ca")
    given = np.random.default_rng(1).integers(1, 256, size, dtype=np.uint8)
    out = np.full(32 * width, 99, np.uint8)
    report = launch(source, 1, 32, [out, given, bytes_.astype(np.int32)], names=["o", "a", "bytes"])
    return out, report, given


@pytest.mark.parametrize("width", [4, 8, 16])
def test_the_rest_of_a_copy_is_zeros(launch: Callable[..., Any], width: int) -> None:
    """A copy of 0 to `width` bytes, with different counts in one warp, writes zeros behind the bytes that it reads."""
    bytes_ = np.arange(32) % (width + 1)
    out, report, given = copied(launch, width, bytes_, 32 * width)
    inside = np.arange(width) < bytes_[:, None]
    assert report.hazards == ()
    assert np.array_equal(out.reshape(32, width), np.where(inside, given.reshape(32, width), 0))


def test_a_short_copy_ends_at_its_own_bytes(launch: Callable[..., Any]) -> None:
    """A copy of the last three bytes of an array is within bounds; a copy of four bytes there is not."""
    whole = np.full(32, 16)
    whole[31] = 3
    out, report, given = copied(launch, 16, whole, 31 * 16 + 3)
    assert report.hazards == ()
    assert out[: given.size].tolist() == given.tolist()
    assert not out[given.size :].any()
    whole[31] = 4
    hazards = copied(launch, 16, whole, 31 * 16 + 3)[1].hazards
    assert [(one.kind, "reads 4 bytes" in one.message) for one in hazards] == [("out-of-bounds", True)]
