"""All microbenchmarks of `kernels_cu/ceilings.cu`, their expected machine code on a card, and the theoretical values
that follow from the card's clocks and number of units.

The rates per clock and multiprocessor are those of `cudabench.cards.rates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cudabench.cards.rates import PER_CLOCK, SCHEDULERS, SHARED_BYTES
from cudabench.ceilings import arithmetic, latency, memory
from cudabench.ceilings.benchmark import Microbenchmark
from cudabench.ceilings.code import Claim
from cudabench.records.results import DeviceInfo

# For sm_87, ptxas adds this many instructions at the start of every kernel.
ORIN_START = 20

BY_NAME: Mapping[str, Microbenchmark] = {
    benchmark.name: benchmark for benchmark in (*memory.ALL, *arithmetic.ALL, *latency.ALL)
}


def claim_of(benchmark: Microbenchmark, compute_capability: tuple[int, int]) -> Claim:
    """Return the expected machine code of a microbenchmark for a compute capability."""
    if benchmark.name == "tensor-fp64" and (9, 0) <= compute_capability < (10, 0):
        return replace(benchmark.claim, fmas={"DMMA": arithmetic.fp64_fmas(hopper=True)})
    if compute_capability == (8, 7) and not benchmark.claim.loop:
        return replace(benchmark.claim, most_others=benchmark.claim.most_others + ORIN_START)
    return benchmark.claim


# Theoretical values --------------------------------------------------------------------------------------------------

_MEMORY = ("memory-copy", "memory-read", "memory-write")
_NO_FIGURE = {
    "l2-read": "NVIDIA does not publish a bandwidth of the L2",
    "constant-hit": "NVIDIA does not publish a rate of constants",
    "constant-miss": "NVIDIA does not publish a rate of constants",
    "latency": "no latency follows from clocks and units",
    "atomics": "no rate of atomics follows from clocks and units",
    "launch": "no time of a launch follows from clocks and units",
    "blocks": "no rate of blocks follows from clocks and units",
    "host": "the link to the host is unknown, because NVML does not report it",
    "energy": "no energy follows from clocks and units",
}
# Bytes per second of one PCI Express lane, by generation. The bits of the line code are subtracted, the packet headers
# are not.
_PCIE = {1: 0.25e9, 2: 0.5e9, 3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130, 5: 32e9 / 8 * 128 / 130}


def theoretical(name: str, group: str, info: DeviceInfo, link: tuple[int, int] | None) -> tuple[float | None, str]:
    """Return a ceiling's theoretical value, in the unit of its kind, and its formula; or None and the reason.

    `link`: the PCI Express generation and lanes of the link to the host, or None if they are not known.
    """
    if name in _MEMORY:
        if not info.peak_gbps:
            return None, "the driver does not report a memory clock"
        return info.peak_gbps, f"2 x {info.clocks.get('memory_mhz', 0)} MHz memory clock x bus width"
    if group == "host" and link and link[0] in _PCIE:
        return _PCIE[link[0]] * link[1] / 1e9, f"PCI Express {link[0]}.0 x {link[1]}, before headers"
    if name in _NO_FIGURE or group in _NO_FIGURE:
        return None, _NO_FIGURE.get(name) or _NO_FIGURE[group]
    clock = info.clocks.get("sm_mhz")
    if not clock or not info.sm_count:
        return None, "the driver does not report a clock or number of multiprocessors"
    rate = _per_clock(name, info.compute_capability)
    if rate is None:
        return None, f"no rate is known for compute capability {info.compute_capability}"
    factor, units = rate
    value = factor * units * info.sm_count * clock * 1e6
    formula = f"{info.sm_count} SMs x {clock} MHz x {units:g} a clock" + (" x 2" if factor == 2 else "")
    return (value / 1e9 if name == "shared-read" else value), formula


def _per_clock(name: str, capability: str) -> tuple[int, float] | None:
    """Return two numbers for a ceiling: the operations of one result (2 for a multiply-add), and the results that a
    multiprocessor computes per clock. Return None if NVIDIA does not publish the second number."""
    rates = PER_CLOCK.get(capability)
    if rates is None:
        return None
    if name == "shared-read":
        # On compute capability 7.5 the load unit is half as wide as the banks, so no theoretical value is given.
        return (1, SHARED_BYTES) if capability != "7.5" else None
    if name == "issue":
        return 1, SCHEDULERS
    if name == "xu":
        return 1, rates.xu
    unit, _, number = name.partition("-")
    units = rates.tensor.get(number) if unit in ("tensor", "wgmma") else getattr(rates, name, None)
    return None if units is None else (2, units)
