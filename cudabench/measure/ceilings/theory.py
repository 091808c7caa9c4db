"""What clocks and units of a card allow, as far as they are known: the theoretical value beside each measured one.

Units a clock and multiprocessor are those of the CUDA C++ Programming Guide, "Throughput of Native Arithmetic
Instructions"; of tensor cores, and of float64 on those, of NVIDIA's architecture papers (Turing, A100, GA102, Ada,
H100), dense and for the fastest boards of a capability. What NVIDIA does not say is not here.
"""

from __future__ import annotations

from collections.abc import Mapping

from cudabench.measure.floors import FMA_PER_CLOCK
from cudabench.model import DeviceInfo

# By compute capability: results a clock and multiprocessor. fp32, fp64 and int32 are multiply-adds of 32, 64 and 32
# bits; half2 multiply-adds of 16 bits; xu special functions.
_RESULTS: Mapping[str, Mapping[str, int]] = {
    "7.5": {"fp32": 64, "fp64": 2, "int32": 64, "xu": 16, "half2": 128},
    "8.0": {"fp32": 64, "fp64": 32, "int32": 64, "xu": 16, "half2": 256},
    "8.6": {"fp32": 128, "fp64": 2, "int32": 64, "xu": 16, "half2": 128},
    "8.9": {"fp32": 128, "fp64": 2, "int32": 64, "xu": 16, "half2": 128},
    "9.0": {"fp32": 128, "fp64": 64, "int32": 64, "xu": 16, "half2": 256},
    "10.0": {"fp32": 128, "fp64": 64, "xu": 16},
    "12.0": {"fp32": 128, "fp64": 2, "xu": 16},
}
_TENSOR = {
    "tensor-tf32": "tf32", "tensor-bf16": "bfloat16", "tensor-fp16": "float16", "tensor-int8": "int8",
    "wgmma-tf32": "tf32", "wgmma-bf16": "bfloat16", "wgmma-fp16": "float16", "wgmma-int8": "int8",
}  # fmt: skip
_TENSOR_FP64 = {"8.0": 64, "9.0": 128}  # capabilities whose tensor cores have float64
_SCHEDULERS = 4  # a multiprocessor, each one instruction a clock: all capabilities from 7.0
_SHARED_BYTES = 128  # 32 banks of 4 bytes a clock
_MEMORY = ("memory-copy", "memory-read", "memory-write")
_NO_FIGURE = {
    "l2-read": "NVIDIA names no bandwidth of the L2",
    "constant-hit": "NVIDIA names no rate of constants",
    "constant-miss": "NVIDIA names no rate of constants",
    "latency": "no latency follows from clocks and units",
    "atomics": "no rate of atomics follows from clocks and units",
    "launch": "no time of a launch follows from clocks and units",
    "blocks": "no rate of blocks follows from clocks and units",
    "host": "the link to the host is not known: NVML tells it",
    "energy": "no energy follows from clocks and units",
}
# Bytes a second and lane of PCI Express by generation, without the line code and before packets' headers.
_PCIE = {1: 0.25e9, 2: 0.5e9, 3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130, 5: 32e9 / 8 * 128 / 130}


def theoretical(name: str, group: str, info: DeviceInfo, link: tuple[int, int] | None) -> tuple[float | None, str]:
    """Return what a card allows of a ceiling, in the unit of its kind, and what that is made of; None and why not.

    link: generation and lanes of the link to the host, where they are known.
    """
    if name in _MEMORY:
        if not info.peak_gbps:
            return None, "the driver names no memory clock"
        return info.peak_gbps, f"2 x {info.clocks.get('memory_mhz', 0)} MHz memory clock x bus width"
    if group == "host" and link and link[0] in _PCIE:
        return _PCIE[link[0]] * link[1] / 1e9, f"PCI Express {link[0]}.0 x {link[1]}, before headers"
    if name in _NO_FIGURE or group in _NO_FIGURE:
        return None, _NO_FIGURE.get(name) or _NO_FIGURE[group]
    clock = info.clocks.get("sm_mhz")
    if not clock or not info.sm_count:
        return None, "the driver names no clock or number of multiprocessors"
    found = _a_clock(name, info.compute_capability)
    if found is None:
        return None, f"no rate is known for compute capability {info.compute_capability}"
    factor, units = found
    value = factor * units * info.sm_count * clock * 1e6
    parts = f"{info.sm_count} SMs x {clock} MHz x {units:g} a clock" + (" x 2" if factor == 2 else "")
    return (value / 1e9 if name == "shared-read" else value), parts


def _a_clock(name: str, capability: str) -> tuple[int, float] | None:
    """Return operations of a result, and results a clock and multiprocessor."""
    known = _RESULTS.get(capability)
    if known is None:
        return None
    if name == "shared-read":
        # On 7.5 a load unit is half as wide as the banks.
        return (1, _SHARED_BYTES) if capability != "7.5" else None
    if name == "issue":
        return 1, _SCHEDULERS
    if name == "xu":
        return 1, known[name]
    units = known.get(name)
    if name == "tensor-fp64":
        units = _TENSOR_FP64.get(capability)
    elif name in _TENSOR:
        units = FMA_PER_CLOCK.get(capability, {}).get(_TENSOR[name])
    return None if units is None else (2, units)
