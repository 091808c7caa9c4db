"""Cards that cudabench has not measured: NVIDIA's published numbers, one line for each card, and the ceilings that
follow from these numbers.

A line has the numbers of a board: multiprocessors, boost clock, width and speed of the memory, sizes. A ceiling is the
product of some of these numbers and of a rate of the architecture (`cudabench.cards.rates`); a test compares these
products with the peaks that NVIDIA publishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cudabench.cards import KINDS, Ceiling
from cudabench.cards.rates import SCHEDULERS, SHARED_BYTES, rates_for
from cudabench.records.results import DeviceInfo

# Bytes of a slice of the L2, by compute capability. An A100 reads 5120 bytes per clock from its L2 of 40 MiB, 64 bytes
# from each slice (A100 whitepaper). An H200 has 96 slices in 60 MiB (l2s_count of the driver, which Nsight Compute
# prints).
L2_SLICE = {"8.0": 512 << 10, "9.0": 640 << 10}
# The clock of the L2, divided by the clock of the multiprocessors: 1.71 / 1.98 GHz on an H100, by Nsight Compute. For
# other compute capabilities this ratio is not known, and 1 is used. The clock of the L2 is hardly higher than that of
# the multiprocessors, so lower bounds on times stay valid.
L2_CLOCK = {"9.0": 0.864}
SLICE_BYTES = 64  # bytes that a slice moves per clock
# Clocks of a load from memory, from the L2 and from shared memory, by published microbenchmarks (arXiv 2402.13499).
_CLOCKS = {"a100": (466.3, 261.5, 29.0), "rtx4090": (541.5, 273.0, 30.1)}


class Datasheet(NamedTuple):
    """The numbers of one card. `name`: the card's name in the driver; `mhz`: the boost clock; `bus`: the width of the
    memory bus in bits; `gbps`: the Gbit/s that the bus moves per bit of its width."""

    name: str
    compute_capability: str
    sms: int
    mhz: int
    bus: int
    gbps: float
    l2_mib: float
    memory_gib: int

    @property
    def device(self) -> DeviceInfo:
        """The card as a DeviceInfo, as results files have it."""
        return DeviceInfo(
            self.name,
            "cuda",
            self.compute_capability,
            sm_count=self.sms,
            l2_bytes=int(self.l2_mib * (1 << 20)),
            peak_gbps=self.bus / 8 * self.gbps,
            clocks={"sm_mhz": self.mhz, "memory_mhz": round(self.gbps * 500)},
            memory_bytes=self.memory_gib << 30,
        )


SHEETS = {
    "a100": Datasheet("NVIDIA A100-SXM4-80GB", "8.0", 108, 1410, 5120, 3.186, 40, 80),
    "l4": Datasheet("NVIDIA L4", "8.9", 58, 2040, 192, 12.5, 48, 24),
    "t4": Datasheet("Tesla T4", "7.5", 40, 1590, 256, 10, 4, 16),
    "rtx4090": Datasheet("NVIDIA GeForce RTX 4090", "8.9", 128, 2520, 384, 21, 72, 24),
    "rtx5090": Datasheet("NVIDIA GeForce RTX 5090", "12.0", 170, 2407, 512, 28, 96, 32),
    # The published speed of the memory is 8 TB/s.
    "b200": Datasheet("NVIDIA B200", "10.0", 148, 1965, 8192, 7.8125, 126, 180),
    "gh200": Datasheet("NVIDIA GH200 480GB", "9.0", 132, 1980, 6144, 5.238, 60, 96),
    "l40s": Datasheet("NVIDIA L40S", "8.9", 142, 2520, 384, 18, 96, 48),
    "l40": Datasheet("NVIDIA L40", "8.9", 142, 2490, 384, 18, 96, 48),
    "a40": Datasheet("NVIDIA A40", "8.6", 84, 1740, 384, 14.5, 6, 48),
    "a30": Datasheet("NVIDIA A30", "8.0", 56, 1440, 3072, 2.43, 24, 24),
    "a10": Datasheet("NVIDIA A10", "8.6", 72, 1695, 384, 12.5, 6, 24),
    "a6000": Datasheet("NVIDIA RTX A6000", "8.6", 84, 1800, 384, 16, 6, 48),
    "rtx6000ada": Datasheet("NVIDIA RTX 6000 Ada Generation", "8.9", 142, 2505, 384, 20, 96, 48),
    "rtx5080": Datasheet("NVIDIA GeForce RTX 5080", "12.0", 84, 2617, 256, 30, 64, 16),
    "rtx5070ti": Datasheet("NVIDIA GeForce RTX 5070 Ti", "12.0", 70, 2452, 256, 28, 48, 16),
    "rtx5070": Datasheet("NVIDIA GeForce RTX 5070", "12.0", 48, 2512, 192, 28, 48, 12),
    "rtx4080": Datasheet("NVIDIA GeForce RTX 4080", "8.9", 76, 2505, 256, 22.4, 64, 16),
    "rtx4070ti": Datasheet("NVIDIA GeForce RTX 4070 Ti", "8.9", 60, 2610, 192, 21, 48, 12),
    "rtx4070": Datasheet("NVIDIA GeForce RTX 4070", "8.9", 46, 2475, 192, 21, 36, 12),
    "rtx4060": Datasheet("NVIDIA GeForce RTX 4060", "8.9", 24, 2460, 128, 17, 24, 8),
    "rtx3090": Datasheet("NVIDIA GeForce RTX 3090", "8.6", 82, 1695, 384, 19.5, 6, 24),
    "rtx3080": Datasheet("NVIDIA GeForce RTX 3080", "8.6", 68, 1710, 320, 19, 5, 10),
    "rtx3070": Datasheet("NVIDIA GeForce RTX 3070", "8.6", 46, 1725, 256, 14, 4, 8),
    "rtx3060": Datasheet("NVIDIA GeForce RTX 3060", "8.6", 28, 1777, 192, 15, 3, 12),
    "rtx2080ti": Datasheet("NVIDIA GeForce RTX 2080 Ti", "7.5", 68, 1545, 352, 14, 5.5, 11),
    "orin": Datasheet("Orin", "8.7", 16, 1300, 256, 6.4, 4, 64),  # a Jetson AGX Orin with 64 GB
}


def ceilings(key: str) -> dict[str, Ceiling]:
    """Return a card's ceilings by name."""
    return {
        name: Ceiling(name, KINDS[name].group, value, KINDS[name].unit, top, source="datasheet", reason=reason)
        for name, value, top, reason in _derive_ceilings(key, SHEETS[key])
    }


def _derive_ceilings(key: str, sheet: Datasheet) -> Iterator[tuple[str, float, float, str]]:
    """Yield four things for each ceiling: its name, its value, its theoretical value, and the formula of the
    theoretical value."""
    device, rates = sheet.device, rates_for(sheet.compute_capability)
    clocks = sheet.sms * sheet.mhz * 1e6
    units_text = f"{sheet.sms} SMs x {sheet.mhz} MHz"
    for name in ("memory-copy", "memory-read", "memory-write"):
        peak = device.peak_gbps or 0.0
        yield name, peak, peak, f"{sheet.bus} bits x {sheet.gbps:g} Gbit/s"
    if sheet.compute_capability in L2_SLICE:
        slices = (device.l2_bytes or 0) // L2_SLICE[sheet.compute_capability]
        top = slices * SLICE_BYTES * sheet.mhz * 1e6 / 1e9
        yield "l2-read", top, top, f"{slices} slices x {SLICE_BYTES} bytes a clock"
    # If the rate of integers is not published, use the rate of floats.
    units: dict[str, tuple[int, float]] = {"fp32": (2, rates.fp32), "fp64": (2, rates.fp64)}
    units |= {"int32": (2, rates.int32 or rates.fp32), "xu": (1, rates.xu), "issue": (1, SCHEDULERS)}
    units |= {"shared-read": (1, SHARED_BYTES / 1e9), "global-atomic-same": (1, 1 / sheet.sms)}
    for name, (factor, per_clock) in units.items():
        top = factor * per_clock * clocks
        shown = "one a clock" if name == "global-atomic-same" else f"{units_text} x {_shown(name, per_clock)} a clock"
        yield name, top, top, shown + (" x 2" if factor == 2 else "")
    for kind, per_clock in rates.tensor.items():
        # The tensor cores of GeForce boards reach half the rate if their sums are in float32. The theoretical value for
        # float16 is not halved, because products of float16 can also be summed in float16.
        halved = 0.5 if "GeForce" in sheet.name and kind in ("tf32", "bf16", "fp16") else 1.0
        top = 2 * per_clock * clocks
        note = f"{units_text} x {per_clock} a clock x 2" + (
            "; half of it summed in float32, as all GeForce boards do" * (halved < 1)
        )
        for unit in ("tensor", "wgmma") if sheet.compute_capability == "9.0" else ("tensor",):
            if f"{unit}-{kind}" in KINDS:
                yield f"{unit}-{kind}", halved * top, top if kind == "fp16" else halved * top, note
    for name, wait in zip(("memory-latency", "l2-latency", "shared-latency"), _CLOCKS.get(key, ()), strict=False):
        seconds = wait / (sheet.mhz * 1e6)
        yield name, seconds, seconds, f"{wait} clocks at {sheet.mhz} MHz, published microbenchmarks (arXiv 2402.13499)"


def _shown(name: str, per_clock: float) -> str:
    return f"{SHARED_BYTES} bytes" if name == "shared-read" else f"{per_clock:g}"
