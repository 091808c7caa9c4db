"""The names and units of ceilings, and the record of a ceiling.

A ceiling is the highest rate, or the shortest latency, that a whole card reaches in one respect, such as copying memory
or float32 arithmetic. `cudabench ceilings` measures ceilings; lower bounds on the times of kernels (limits) are
computed from ceilings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True)
class CeilingKind:
    """A kind of ceiling: its group, its unit, its meaning, and whether a smaller value is better, as for a latency."""

    group: str
    unit: str
    meaning: str
    less_is_better: bool = False


KINDS: dict[str, CeilingKind] = {
    "memory-copy": CeilingKind("memory", "GB/s", "bytes read and written by a copy in memory"),
    "memory-read": CeilingKind("memory", "GB/s", "bytes read from memory"),
    "memory-write": CeilingKind("memory", "GB/s", "bytes written to memory"),
    "l2-read": CeilingKind("on-chip", "GB/s", "bytes read from an array that lies in the L2"),
    "shared-read": CeilingKind(
        "on-chip", "GB/s", "bytes read from shared memory without bank conflicts: 128 a wavefront"
    ),
    "constant-hit": CeilingKind(
        "constants", "GB/s", "constants read by lanes at different words, from an SM's cache of them"
    ),
    "constant-miss": CeilingKind(
        "constants", "GB/s", "constants read from a table of 16 KiB, which exceeds that cache"
    ),
    "issue": CeilingKind("arithmetic", "instruction/s", "warp instructions issued by all schedulers"),
    "fp32": CeilingKind("arithmetic", "FLOP/s", "float32 fused multiply-adds, two operations each"),
    "fp64": CeilingKind("arithmetic", "FLOP/s", "float64 fused multiply-adds outside the tensor cores"),
    "int32": CeilingKind("arithmetic", "op/s", "32-bit integer multiply-adds, two operations each"),
    "xu": CeilingKind("arithmetic", "op/s", "special functions: exp2, reciprocal, sine"),
    "half2": CeilingKind("arithmetic", "FLOP/s", "float16 fused multiply-adds, two elements an instruction"),
    "tensor-tf32": CeilingKind("tensor", "FLOP/s", "dense TF32 products, two operations each"),
    "tensor-bf16": CeilingKind("tensor", "FLOP/s", "dense bfloat16 products summed in float32"),
    "tensor-fp16": CeilingKind("tensor", "FLOP/s", "dense float16 products summed in float32"),
    "tensor-fp64": CeilingKind("tensor", "FLOP/s", "dense float64 products on tensor cores"),
    "tensor-int8": CeilingKind("tensor", "op/s", "dense int8 products summed in int32"),
    "wgmma-tf32": CeilingKind("tensor", "FLOP/s", "dense TF32 products by wgmma from shared memory, on 9.0 only"),
    "wgmma-bf16": CeilingKind("tensor", "FLOP/s", "dense bfloat16 products by wgmma, the same way"),
    "wgmma-fp16": CeilingKind("tensor", "FLOP/s", "dense float16 products by wgmma, the same way"),
    "wgmma-int8": CeilingKind("tensor", "op/s", "dense int8 products by wgmma, the same way"),
    "memory-latency": CeilingKind("latency", "s", "one dependent load from memory", less_is_better=True),
    "l2-latency": CeilingKind("latency", "s", "one dependent load from the L2", less_is_better=True),
    "shared-latency": CeilingKind("latency", "s", "one dependent load from shared memory", less_is_better=True),
    "global-atomic-same": CeilingKind("atomics", "op/s", "additions of separate warps to one word of global memory"),
    "global-atomic-spread": CeilingKind("atomics", "op/s", "additions to neighbouring words of global memory"),
    "shared-atomic-same": CeilingKind("atomics", "op/s", "additions of all lanes to one word of shared memory"),
    "shared-atomic-spread": CeilingKind("atomics", "op/s", "additions of the lanes of a warp to 32 banks"),
    "launch-latency": CeilingKind(
        "launch", "s", "an empty launch until its end, by the host's clock", less_is_better=True
    ),
    "launch-gap": CeilingKind("launch", "s", "between the ends of two queued empty launches", less_is_better=True),
    "launch-alone": CeilingKind("launch", "s", "an empty launch alone, between two events", less_is_better=True),
    "block-turn": CeilingKind("blocks", "s", "an empty block of a warp, one at a time on an SM", less_is_better=True),
    "block-turn-full": CeilingKind(
        "blocks", "s", "an empty block of 32 warps, one at a time on an SM", less_is_better=True
    ),
    "block-rate": CeilingKind("blocks", "block/s", "empty blocks of a warp, as many at a time as fit"),
    "host-to-device-pinned": CeilingKind("host", "GB/s", "copies from page-locked memory of the host"),
    "host-to-device-pageable": CeilingKind("host", "GB/s", "copies from pageable memory of the host"),
    "device-to-host-pinned": CeilingKind("host", "GB/s", "copies to page-locked memory of the host"),
    "device-to-host-pageable": CeilingKind("host", "GB/s", "copies to pageable memory of the host"),
    "energy-per-byte": CeilingKind(
        "energy", "J/byte", "board energy of a copy, without idle power", less_is_better=True
    ),
    "energy-per-flop": CeilingKind(
        "energy", "J/FLOP", "board energy of float32, without idle power", less_is_better=True
    ),
}


@dataclass(frozen=True)
class Ceiling:
    """The best value of one kind that a card reaches, in the kind's unit."""

    name: Annotated[str, "Which ceiling: `memory-copy`, `fp32`, `l2-latency`, ..."]
    group: Annotated[
        str,
        "Group of the ceiling: memory, on-chip, constants, arithmetic, tensor, latency, atomics, launch, blocks, host, "
        "energy.",
    ]
    value: Annotated[float | None, "The measured value; null if the measurement failed or the card lacks the feature."]
    unit: Annotated[str, "GB/s, FLOP/s, op/s, instruction/s, s, J/byte, J/FLOP."]
    theoretical: Annotated[float | None, "What the clocks and units of the card allow; null if this is unknown."] = None
    fraction: Annotated[float | None, "value / theoretical."] = None
    source: Annotated[str, '"measured", or "datasheet" without a card.'] = "measured"
    status: Annotated[Literal["ok", "wrong", "failed", "skipped"], '"ok", "wrong", "failed" or "skipped".'] = "ok"
    reason: Annotated[str, "Why the value is missing; else how the theoretical value is computed."] = ""
    low: Annotated[float | None, "Lower quartile of the samples, in the unit; null without samples."] = None
    high: Annotated[float | None, "Upper quartile of the samples, in the unit."] = None
    samples: Annotated[int | None, "Number of samples; the value is their median."] = None
    method: Annotated[str, "What was run, its size, and what was compared."] = ""
    clock_mhz: Annotated[
        float | None, "The multiprocessors' clock during the run, by their own counters; null if it was not counted."
    ] = None
    code: Annotated[str, "Instructions in the loop's machine code, counted before the run; empty without a loop."] = ""
    sha256: Annotated[str | None, "Hash of the kernel's instructions alone; null without a kernel."] = None
    ptx_sha256: Annotated[str | None, "Hash of the kernel's PTX."] = None
