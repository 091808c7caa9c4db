"""Measure the tensor cores' work per clock cycle and their clock, to explain ceilings below or above the value of the
data sheet.

    python benchmarks/tensor_clocks.py [FILE.json]      # a GPU

Runs the kernels of the tensor ceilings, which count the clock cycles of their loop. Prints the multiply-adds per cycle
and multiprocessor, and the clock in MHz that follows from the cycles and the time between two events. Each kernel runs
on operands that are all zero, all equal (as the ceilings have them) and normally distributed: the card's power depends
on the operands, and its clock depends on the power.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cudabench.ceilings import arithmetic, chapter  # noqa: E402
from cudabench.ceilings.gpu import Ceilings  # noqa: E402
from cudabench.devices.cuda import CudaDevice  # noqa: E402

SAMPLES, WARM = 60, 20
SAMPLE_S = 4e-3


def operands(name: str, content: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each kind of operands with the array `words` that a microbenchmark takes."""
    yield "zero", np.zeros_like(content)
    yield "equal", content
    normal = np.random.default_rng(0).normal(size=content.nbytes)
    if content.dtype == np.float64:
        yield "normal", normal[: content.size].astype(np.float64)
        return
    if name.endswith("fp16"):
        made = normal[: content.nbytes // 2].astype(np.float16)
    elif name.endswith("bf16"):
        made = (normal[: content.nbytes // 2].astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif name.endswith("tf32"):
        made = (normal[: content.size].astype(np.float32).view(np.uint32) & 0xFFFFE000).astype(np.uint32)
    else:
        made = np.clip(normal * 40, -127, 127).astype(np.int8)
    yield "normal", made.view(np.uint32)


def measure(device: Any, name: str) -> Iterator[dict[str, Any]]:
    """Measure a ceiling's kernel with each kind of operands, and yield a record for each."""
    benchmark = chapter.BY_NAME[name]
    owner = Ceilings(device)
    (extent,) = owner._extents(benchmark)
    sms = extent.scale.sms
    top, made_of = chapter.theoretical(name, "tensor", device.info, None)
    (words,) = (content for content in benchmark.arrays(extent).values() if not isinstance(content, int))
    for kind, content in operands(name, words):
        pointers = {name: device.allocate(extent.threads * 8) for name in ("out", arithmetic.CLOCKS)}
        pointers["words"] = device.allocate(content.nbytes)
        device.upload(pointers["words"], np.ascontiguousarray(content))
        passes, seconds = 16, 0.0
        for _ in range(3):
            timed = replace(extent, passes=passes)
            work = device.bind(owner.module, [benchmark.launch(timed)], pointers)
            seconds = min(device.sample([work], "hot", []) for _ in range(3))
            passes = max(1, min(1 << 20, round(passes * SAMPLE_S / seconds)))
        timed = replace(extent, passes=passes)
        work = device.bind(owner.module, [benchmark.launch(timed)], pointers)
        times = [device.sample([work], "hot", []) for _ in range(SAMPLES + WARM)][WARM:]
        out = np.empty(timed.threads, np.int64)
        device.download(pointers[arithmetic.CLOCKS], out)
        clocks = float(np.median(out.reshape(timed.grid, -1).max(axis=1)))
        work = benchmark.amount(timed) / 2
        median = float(np.median(times))
        yield {
            "ceiling": name,
            "operands": kind,
            "blocks": timed.grid,
            "per_second": 2 * work / median,
            "of_theory": 2 * work / median / top if top else None,
            "theory": made_of,
            "fma_per_clock_sm": work / sms / clocks,
            "clocks": clocks,
            "mhz": clocks / median / 1e6,
            "seconds": [min(times), median, max(times)],
        }
        for pointer in pointers.values():
            device.release(pointer)


def main() -> None:
    """Measure all tensor ceilings that the card has."""
    found = []
    with CudaDevice(0) as device:
        print(f"{device.info.name}, driver {device.info.driver}, clocks named {device.info.clocks}\n")
        print(f"{'ceiling':12} {'operands':8} {'T/s':>8} {'of theory':>9} {'FMA/clock/SM':>12} {'MHz':>6}")
        for ceiling in arithmetic.TENSOR:
            if ceiling.missing_feature(device.info.compute_capability):
                continue
            for record in measure(device, ceiling.name):
                found.append(record)
                print(
                    f"{record['ceiling']:12} {record['operands']:8} {record['per_second'] / 1e12:8.1f} "
                    f"{record['of_theory'] or 0:9.1%} {record['fma_per_clock_sm']:12.1f} {record['mhz']:6.0f}",
                    flush=True,
                )
        content = {"device": device.info.name, "driver": device.info.driver, "clocks": device.info.clocks}
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(json.dumps({**content, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
