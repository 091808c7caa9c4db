"""How many results a multiprocessor computes per clock, for each architecture, in one table.

Sources: for results outside the tensor cores, the CUDA C++ Programming Guide, "Throughput of Native Arithmetic
Instructions"; for tensor cores, including their float64 rates, NVIDIA's architecture papers (Turing, A100, GA102,
Jetson AGX Orin, Ada, H100, Blackwell), for dense matrices and the fastest board of each compute capability. Rates that
are not published are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Schedulers of a multiprocessor. Each one issues one instruction per clock, for all compute capabilities from 7.0.
SCHEDULERS = 4
# A multiprocessor reads this many bytes of shared memory per clock: 32 banks of 4 bytes.
SHARED_BYTES = 128


@dataclass(frozen=True)
class PerClock:
    """Results per clock and multiprocessor; None if the rate is not published.

    `fp32`, `fp64`, `int32`: multiply-adds of these types. `half2`: multiply-adds of float16. `xu`: special functions.
    `alu`: the highest rate of integer additions. `convert`: the highest rate of conversions between types. `tensor`:
    multiply-adds of the tensor cores, keyed by number format; sums are in float16 if float16 sums are faster than
    float32 sums.
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
    """Return the rates of the tensor cores, keyed by number format. TF32 has half the rate of float16, 8-bit types have
    twice this rate."""
    return {
        **({"tf32": fp16 // 2, "bf16": fp16} if bf16 else {}),
        "fp16": fp16,
        "int8": 2 * fp16,
        **({"fp8": 2 * fp16} if fp8 else {}),
        **({"fp64": fp64} if fp64 else {}),
    }


# On 9.0 the unit for special functions also does conversions (measured). For other compute capabilities the highest
# rate in the CUDA Programming Guide is used. From 10.0 on, the units that add floats can also add integers, so integers
# and floats have the same highest rate.
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
    """Return the rates of a compute capability such as '9.0'. If the table lacks this capability, return the rates of
    the nearest lower capability in the table."""

    def number(text: str) -> tuple[int, int]:
        major, _, minor = text.partition(".")
        return int(major or 0), int(minor or 0)

    earlier = [name for name in PER_CLOCK if number(name) <= number(compute_capability)]
    return PER_CLOCK[max(earlier, key=number, default="7.5")]
