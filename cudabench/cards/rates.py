"""The rates of a multiprocessor per clock, for each architecture, in one table.

Results per clock and SM are from the CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions". Those
of tensor cores, also for float64, are from NVIDIA's architecture papers (Turing, A100, GA102, Jetson AGX Orin, Ada,
H100, Blackwell), dense and for the fastest boards of a capability. Unpublished rates are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEDULERS = 4  # per multiprocessor, each one instruction per clock: all capabilities from 7.0
SHARED_BYTES = 128  # per clock: 32 banks of 4 bytes


@dataclass(frozen=True)
class PerClock:
    """Results per clock and SM: multiply-adds of 32 and 64 bits, of 32-bit integers and of 16 bits, special functions;
    the most additions of integers and conversions. None: the rate is not published.

    tensor: multiply-adds of the tensor cores by number format, summed in float16 if that is faster.
    """

    fp32: int
    fp64: int
    int32: int | None = 64
    half2: int | None = None
    xu: int = 16
    alu: int = 64
    convert: int = 64
    tensor: Mapping[str, int] = field(default_factory=dict)


def _tensor(fp16: int, *, bf16: bool = True, fp8: bool = False, fp64: int = 0) -> dict[str, int]:
    """Return the rates of tensor cores from float16's rate: half of it for TF32, twice for 8 bits."""
    return {
        **({"tf32": fp16 // 2, "bf16": fp16} if bf16 else {}),
        "fp16": fp16,
        "int8": 2 * fp16,
        **({"fp8": 2 * fp16} if fp8 else {}),
        **({"fp64": fp64} if fp64 else {}),
    }


# Conversions of 9.0 share the special functions' unit, as measured; for others the Guide's highest figure is used.
# From 10.0 on, units that add floats may add integers too, so that both have the same highest rate.
PER_CLOCK: Mapping[str, PerClock] = {
    "7.5": PerClock(64, 2, half2=128, tensor=_tensor(512, bf16=False)),
    "8.0": PerClock(64, 32, half2=256, tensor=_tensor(1024, fp64=64)),
    "8.6": PerClock(128, 2, half2=128, tensor=_tensor(512)),
    "8.7": PerClock(128, 2, half2=256, tensor=_tensor(1024)),
    "8.9": PerClock(128, 2, half2=128, tensor=_tensor(512, fp8=True)),
    "9.0": PerClock(128, 64, half2=256, convert=16, tensor=_tensor(2048, fp8=True, fp64=128)),
    "10.0": PerClock(128, 64, int32=None, alu=128, tensor=_tensor(4096, fp8=True, fp64=64)),
    "10.3": PerClock(128, 2, int32=None, alu=128),
    "12.0": PerClock(128, 2, int32=None, alu=128, tensor=_tensor(512, fp8=True)),
}


def rates_for(compute_capability: str) -> PerClock:
    """Return the rates of a capability such as '9.0', or of the nearest known one before it."""

    def number(text: str) -> tuple[int, int]:
        major, _, minor = text.partition(".")
        return int(major or 0), int(minor or 0)

    earlier = [name for name in PER_CLOCK if number(name) <= number(compute_capability)]
    return PER_CLOCK[max(earlier, key=number, default="7.5")]
