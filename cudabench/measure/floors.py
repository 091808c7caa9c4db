"""The shortest time that a card allows a kernel: nothing measured can lie under it, so a time that does is no time.

Bytes: what must move between memory and chip, less what the L2 cache may hold, over the theoretical bandwidth.
Operations: floating-point operations over the rate of the fastest arithmetic that the kernel's code uses. Rates are
those of `cudabench.cards.rates`, which are upper bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cudabench.cards.rates import PER_CLOCK
from cudabench.records.results import DeviceInfo

_FORMATS = {"tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "fp8": "float8"}
# Compute capability -> arithmetic -> fused multiply-adds a clock and SM, two operations each; of cards that were tried.
FMA_PER_CLOCK: Mapping[str, Mapping[str, int]] = {
    name: {
        "float32": rates.fp32,
        "float64": max(rates.fp64, rates.tensor.get("fp64", 0)),
        **{_FORMATS[number]: each for number, each in rates.tensor.items() if number in _FORMATS},
    }
    for name, rates in PER_CLOCK.items()
    if name in ("7.5", "8.0", "8.6", "8.9", "9.0")
}


def bytes_floor(nbytes: int, info: DeviceInfo) -> float | None:
    """Return the seconds that moving the bytes takes at least, None where the card's peak is not known."""
    if not info.peak_gbps:
        return None
    return max(0, nbytes - (info.l2_bytes or 0)) / (info.peak_gbps * 1e9)


def flops_floor(flops: int, arithmetic: Iterable[str], info: DeviceInfo) -> float | None:
    """Return the seconds that the operations take at least in the fastest of the arithmetics, such as 'float32' or
    'tf32'; None where a rate of this card is not known."""
    rates = FMA_PER_CLOCK.get(info.compute_capability, {})
    clock = info.clocks.get("sm_mhz")
    known = [rates.get(name) for name in arithmetic]
    if not known or None in known or not clock or not info.sm_count:
        return None
    return flops / (2 * max(rate for rate in known if rate) * info.sm_count * clock * 1e6)


def impossible(
    median_s: float, nbytes: int | None, flops: int | None, arithmetic: Iterable[str], info: DeviceInfo
) -> str | None:
    """Return one sentence where a time is shorter than the card allows, or None."""
    names = tuple(name for name in arithmetic if name != "approximate")  # which is no format
    floors = (
        (
            bytes_floor(nbytes, info) if nbytes else None,
            f"{nbytes} bytes take at least",
            f"at the {info.peak_gbps or 0:.0f} GB/s of {info.name}, what its L2 cache holds left out",
            "fewer bytes move than --bytes says",
        ),
        (
            flops_floor(flops, names, info) if flops else None,
            f"{flops} operations in {' and '.join(names)} take at least",
            f"on {info.name}",
            "it needs fewer operations than --flops says",
        ),
    )
    for least_s, work, place, other in floors:
        if least_s is not None and median_s < least_s:
            return (
                f"{median_s * 1e6:.4g} us is impossible: {work} {least_s * 1e6:.4g} us {place}; either the kernel does "
                f"not do the work, or {other}"
            )
    return None
