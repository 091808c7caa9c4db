"""Which lanes of a division, a reciprocal or a root call the subroutine that ptxas puts behind a kernel.

ptxas computes them in line, for operands and results that are not denormals, zeros or infinities, and calls a
subroutine for the others. Which those are is what its machine code asks for (looked at for sm_80 and sm_90), on the
bits of the operands. Of float32 divisions it is one instruction, FCHK, which NVIDIA does not describe: the rule here
held for all 355 pairs of operands that were tried on an H200 (benchmarks/results/counts_h200.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.values import Array

Rule = Callable[..., Array]


def _high(x: Array) -> Array:
    """Return the upper word of float64."""
    return (x.view(np.uint64) >> np.uint64(32)).astype(np.uint32)


def _exponent(x: Array) -> Array:
    """Return the exponent of float32 as it is stored: 0 of zeros and denormals, 255 of infinities and NaN."""
    return ((x.view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32)


def _as_float(word: Array) -> Array:
    """Return the magnitude of a word as the float32 that it is compared as."""
    return (word & np.uint32(0x7FFFFFFF)).view(np.float32)


def _divide32(x: Array, y: Array) -> Array:
    above, below = _exponent(x), _exponent(y)
    apart = above - below
    return (above < 25) | (above == 255) | (below < 2) | (below >= 252) | (apart > 126) | (apart < -124)


def _divide64(x: Array, y: Array) -> Array:
    # The quotient's upper word, over the first test's limit, and not where the divisor's is infinite or NaN as a float.
    quotient = _as_float(_high(np.divide(x, y)))
    quotient = np.where(np.isfinite(_as_float(_high(y))), quotient, np.float32(np.nan))
    plain = quotient > np.uint32(0x00100000).view(np.float32)
    return ~(plain & ~(_as_float(_high(x)) < np.uint32(0x03600000).view(np.float32)))


RULES: dict[tuple[str, str], Rule] = {
    ("div", "f32"): _divide32,
    ("div", "f64"): _divide64,
    ("rcp", "f32"): lambda x: (
        ((x.view(np.uint32) + np.uint32(0x01800000)) & np.uint32(0x7F800000)) <= np.uint32(0x01FFFFFF)
    ),
    ("rcp", "f64"): lambda x: _as_float(_high(x) + np.uint32(0x00300402)) < np.uint32(0x00400402).view(np.float32),
    ("sqrt", "f32"): lambda x: x.view(np.uint32) - np.uint32(0x0D000000) > np.uint32(0x727FFFFF),
    ("sqrt", "f64"): lambda x: _high(x) - np.uint32(0x03500000) >= np.uint32(0x7CA00000),
    ("rsqrt", "f64"): lambda x: _high(x) - np.uint32(0x00100000) >= np.uint32(0x7FE00000),
}


def rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    """Return whether lanes with given operands call the subroutine, as a function of float arrays; None where the
    machine code of a PTX instruction calls none."""
    exact = "approx" in modifiers if opcode == "rsqrt" else "rn" in modifiers and "approx" not in modifiers
    return RULES.get((opcode, modifiers[-1])) if exact and not {"ftz", "full"} & {*modifiers} else None
