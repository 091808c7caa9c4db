"""Which lanes of a division, a reciprocal or a root call the subroutine that ptxas puts behind a kernel.

ptxas computes them in line, for operands and results that are no denormals, zeros or infinities, and calls a subroutine
for the others. Which those are is what its machine code asks for (looked at for sm_80 and sm_90), on the bits of the
operands. Of float32 divisions it is one instruction, FCHK, which NVIDIA does not describe: the rule here held for all
355 pairs of operands that were tried on an H200 (benchmarks/results/counts_h200.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Rule = Callable[..., Array]


def _high(x: Array) -> Array:
    """Return the upper word of float64."""
    found: Array = (x.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    return found


def _exponent(x: Array) -> Array:
    """Return the exponent of float32 as it is stored: 0 of zeros and denormals, 255 of infinities and NaN."""
    found: Array = ((x.view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32)
    return found


def _as_float(word: Array) -> Array:
    """Return the magnitude of a word as the float32 that it is compared as."""
    found: Array = (word & np.uint32(0x7FFFFFFF)).view(np.float32)
    return found


def _divide32(x: Array, y: Array) -> Array:
    above, below = _exponent(x), _exponent(y)
    apart = above - below
    found: Array = (above < 25) | (above == 255) | (below < 2) | (below >= 252) | (apart > 126) | (apart < -124)
    return found


def _divide64(x: Array, y: Array) -> Array:
    # The quotient's upper word, over the first test's limit, and not where the divisor's is infinite or NaN as a float.
    quotient = _as_float(_high(np.divide(x, y)))
    quotient = np.where(np.isfinite(_as_float(_high(y))), quotient, np.float32(np.nan))
    plain = quotient > np.uint32(0x00100000).view(np.float32)
    found: Array = ~(plain & ~(_as_float(_high(x)) < np.uint32(0x03600000).view(np.float32)))
    return found


def _reciprocal32(x: Array) -> Array:
    found: Array = ((x.view(np.uint32) + np.uint32(0x01800000)) & np.uint32(0x7F800000)) <= np.uint32(0x01FFFFFF)
    return found


def _reciprocal64(x: Array) -> Array:
    found: Array = _as_float(_high(x) + np.uint32(0x00300402)) < np.uint32(0x00400402).view(np.float32)
    return found


def _root32(x: Array) -> Array:
    found: Array = x.view(np.uint32) - np.uint32(0x0D000000) > np.uint32(0x727FFFFF)
    return found


def _root64(x: Array) -> Array:
    found: Array = _high(x) - np.uint32(0x03500000) >= np.uint32(0x7CA00000)
    return found


def _reciprocal_root64(x: Array) -> Array:
    found: Array = _high(x) - np.uint32(0x00100000) >= np.uint32(0x7FE00000)
    return found


RULES: dict[tuple[str, str], Rule] = {
    ("div", "f32"): _divide32,
    ("div", "f64"): _divide64,
    ("rcp", "f32"): _reciprocal32,
    ("rcp", "f64"): _reciprocal64,
    ("sqrt", "f32"): _root32,
    ("sqrt", "f64"): _root64,
    ("rsqrt", "f64"): _reciprocal_root64,
}


def rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    """Return whether lanes with given operands call the subroutine, as a function of float arrays; None where the
    machine code of a PTX instruction calls none."""
    if "ftz" in modifiers or ("approx" in modifiers) != (opcode == "rsqrt") or "full" in modifiers:
        return None
    if opcode != "rsqrt" and "rn" not in modifiers:
        return None
    return RULES.get((opcode, modifiers[-1]))
