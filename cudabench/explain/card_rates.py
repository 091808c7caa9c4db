"""Computes the highest rates of a card from its ceilings (measured or from its datasheet), and finds the pipes that an
instruction occupies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from cudabench.cards.datasheets import L2_CLOCK, L2_SLICE
from cudabench.cards.load import Card
from cudabench.cards.rates import SCHEDULERS, SHARED_BYTES, rates_for
from cudabench.compile.sass import Instruction
from cudabench.explain.machine_code import formats, pipe

CONSTANT_BYTES = 4  # bytes that the ceilings count for each address read from constant memory
# Lower bounds include only this share of the measured time of an empty launch, because cards of one model differ. On
# one H200 a transpose of 256 x 256 floats took 4.35 us, of which the work itself took 0.4 us; on another H200 an empty
# launch alone took 4.32 us.
LAUNCH_SHARE = 0.85
# The measured rate of block starts is too low, because the measured time includes the launch itself (3 of 330 us on an
# H100). This factor corrects the rate.
BLOCK_RATE_FACTOR = 1.01
WGMMA = "wgmma-"
SHORT_SUMS = "fp16 summed in fp16"

# The highest rates of one pipe of an SM, in lanes per clock, over all compute capabilities.
_IMAD_LANES, _HALF_LANES = 64, 128
_FLOATS = ("float32", "float64", "tf32", "bf16", "fp16", "fp64")
_MUFU = ("MUFU", "POPC", "FLO", "BREV")
_SHAPE = re.compile(r"^(?:64x(\d+)x(\d+)|(\d+))$")
# The shapes (m, n, k) of tensor core instructions. The key is the number in the modifier of the SASS instruction.
_SHAPES = {
    "1688": (16, 8, 8), "16816": (16, 8, 16), "1684": (16, 8, 4), "884": (8, 8, 4), "8816": (8, 8, 16),
    "16832": (16, 8, 32), "8832": (8, 8, 32), "16864": (16, 8, 64), "16168": (16, 16, 8), "161616": (16, 16, 16),
    "848": (8, 4, 8),
}  # fmt: skip


@dataclass(frozen=True)
class Rates:
    """The highest rates of a whole card, per second, and some of its times; None if unknown.

    `sms`: the number of SMs. `clock`: the SM clock in Hz. `issue`: warp instructions; `pipes`: by pipe, warp
    instructions. `lsu`, `constant`: wavefronts. `constant_addresses`: the addresses of constants after the first
    address of each request. `constant_fetch_s`: the seconds to fetch a line that the constant cache lacks. `tensor`: by
    number format, operations. `memory`: the bytes that memory moves, in the fastest of reads, writes and copies;
    `read`, `written`: the bytes of reads alone, and of writes alone. `l2`: the bytes read from the L2; `l2_turns`: the
    turns of all L2 slices; `l2_slices`: the number of slices; `l2_clock`: the clock of the slices in Hz; `l2_bytes`:
    the size of the L2. `atomic`: atomics on one address. `memory_latency`, `l2_latency`, `shared_latency`: seconds.
    `launch_gap_s`: the seconds of an empty launch among many in a row; `launch_s`: the seconds of a single empty
    launch. `empty_block_s`: the seconds that an empty block of one warp, and of 32 warps, occupies its slot of an SM.
    `blocks`: block starts.
    """

    sms: int
    clock: float
    issue: float
    lsu: float
    constant: float
    constant_addresses: float
    constant_fetch_s: float
    pipes: Mapping[str, float]
    tensor: Mapping[str, float]
    memory: float | None
    read: float | None
    written: float | None
    l2: float | None
    l2_turns: float | None
    l2_slices: int | None
    l2_clock: float
    l2_bytes: int
    atomic: float | None
    memory_latency: float | None
    l2_latency: float | None
    shared_latency: float | None
    launch_gap_s: float | None
    launch_s: float
    empty_block_s: tuple[float, float]
    blocks: float | None

    @classmethod
    def of(cls, card: Card) -> Rates:
        """Return a card's rates. A rate without a ceiling is computed from the hardware units and the clock."""
        device, clock, sms, value = card.device, card.sm_hz, card.device.sm_count or 1, card.value
        lanes = rates_for(device.compute_capability)

        def rate(name: str, unit: float, derived: float) -> float:
            # The measurement of a ceiling takes milliseconds, in which the clock may fall. A short launch ends before
            # the clock falls, so it can be faster than the measured ceiling.
            figure = value(name)
            return derived if figure is None else max(figure, card.ceilings[name].theoretical or 0.0) / unit

        def per_second(lanes_per_clock: float) -> float:
            return lanes_per_clock / 32 * sms * clock

        known = [card.ceilings[name] for name in ("memory-read", "memory-copy", "memory-write") if value(name)]
        measured = [ceiling for ceiling in known if ceiling.source == "measured"]
        bandwidths = {ceiling.name: (ceiling.value or 0.0) * 1e9 for ceiling in measured or known}
        memory = max(bandwidths.values(), default=(device.peak_gbps or 0.0) * 1e9) or None
        slices = (device.l2_bytes or 0) // L2_SLICE.get(device.compute_capability, 1 << 60)
        missed, hit, l2 = value("constant-miss"), value("constant-hit"), value("l2-read")
        return cls(
            sms=sms,
            clock=clock,
            issue=rate("issue", 1, SCHEDULERS * sms * clock),
            lsu=rate("shared-read", SHARED_BYTES / 1e9, sms * clock),
            constant=sms * clock,
            constant_addresses=rate("constant-hit", CONSTANT_BYTES / 1e9, sms * clock),
            constant_fetch_s=max(0.0, CONSTANT_BYTES / 1e9 * (1 / missed - 1 / hit)) if missed and hit else 0.0,
            pipes={
                "fma": rate("fp32", 64, per_second(lanes.fp32)),
                "imad": rate("int32", 64, per_second(_IMAD_LANES)),
                "half": rate("half2", 128, per_second(_HALF_LANES)),
                "alu": per_second(lanes.alu),
                "fp64": rate("fp64", 64, per_second(lanes.fp64)),
                "xu": rate("xu", 32, per_second(lanes.xu)),
                "convert": per_second(lanes.convert),
            },
            tensor=_tensor_rates(card),
            memory=memory,
            read=bandwidths.get("memory-read", memory),
            written=bandwidths.get("memory-write", memory),
            l2=l2 and l2 * 1e9,
            l2_turns=slices * clock or None,
            l2_slices=slices or None,
            l2_clock=clock * L2_CLOCK.get(device.compute_capability, 1.0),
            l2_bytes=device.l2_bytes or 0,
            atomic=value("global-atomic-same"),
            memory_latency=value("memory-latency"),
            l2_latency=value("l2-latency"),
            shared_latency=value("shared-latency"),
            launch_gap_s=value("launch-gap"),
            launch_s=LAUNCH_SHARE * (value("launch-alone") or 0.0),
            empty_block_s=(value("block-turn") or 0.0, value("block-turn-full") or 0.0),
            blocks=(value("block-rate") or 0.0) * BLOCK_RATE_FACTOR or None,
        )

    @property
    def load_clocks(self) -> tuple[float, float, float] | None:
        """The clocks of a load from shared memory, from the L2 and from memory; None if a latency is unknown."""
        if self.shared_latency is None or self.memory_latency is None or self.l2_latency is None:
            return None
        return self.shared_latency * self.clock, self.l2_latency * self.clock, self.memory_latency * self.clock


def _tensor_rates(card: Card) -> dict[str, float]:
    """Return, by format name (as in `tensor_operations`), how many operations per second the tensor cores execute."""
    named = card.device.clocks.get("sm_mhz") or 0
    rates = {
        # Tensor cores need so much power that the clock falls after a while. A short launch ends before that, so its
        # rate is computed for the full clock.
        name.removeprefix("tensor-"): value * max(1.0, named / ceiling.clock_mhz if ceiling.clock_mhz else 1.0)
        for name, ceiling in card.ceilings.items()
        if ceiling.group == "tensor" and (value := card.value(name)) is not None
    }
    # The measured ceiling for float16 is that of sums in float32, which GeForce boards compute at half the rate of sums
    # in float16. The theoretical value is for sums in float16.
    if "fp16" in rates:
        rates[SHORT_SUMS] = max(rates["fp16"], card.ceilings["tensor-fp16"].theoretical or 0)
    return rates


def roofline_rates(card: Card) -> dict[str, float | str | bool | None]:
    """Return the values of a card for a roofline chart, by key: the name of the card, whether it is the default card,
    the GB/s of its memory, its 10^9 warp instructions per second, its GFLOP/s for each number format. A value may be
    None."""
    rates = Rates.of(card)
    formats = {
        "float32": card.value("fp32") or rates.pipes["fma"] * 64,
        "float64": card.value("fp64") or rates.pipes["fp64"] * 64,
        **rates.tensor,
    }
    return {
        "card": card.title,
        "default": not card.chosen_by_user,
        "memory_gbps": rates.memory / 1e9 if rates.memory else None,
        "issue_ginstructions": (card.value("issue") or rates.issue) / 1e9,
        **{f"{name}_gflops": value / 1e9 for name, value in formats.items() if name in _FLOATS},
    }


def launch_time(card: Card, cache: str) -> float | None:
    """Return the seconds that the launch itself adds to each limit on a card; None if they were not measured."""
    if card.value("launch-alone") is None:
        return None
    return Rates.of(card).launch_s if cache == "cold" else 0.0


def pipe_passes(instruction: Instruction) -> list[tuple[str, float]]:
    """Return (pipe, number of passes through it) for each pipe that an instruction occupies."""
    opcode, name = instruction.opcode, pipe(instruction)
    if name == "fma":
        if opcode.startswith("H"):
            return [("half", 1)]
        if opcode in ("IMAD", "IMUL", "IDP", "IDP4A"):
            # A move or shift that is encoded as a multiplication may use either half of the FMA pipe. A 64-bit product
            # passes the pipe twice.
            words = set(instruction.modifiers)
            passes = 2 if {"WIDE", "HI"} & words else 1
            return [("fma", 1)] if {"MOV", "SHL", "IADD"} & words else [("fma", passes), ("imad", 1)]
        return [("fma", 2 if opcode.endswith("2") else 1)]
    if name == "xu":
        return [("xu", 1)] if opcode in _MUFU else [("convert", 1)]
    return [(name, 1)] if name in ("alu", "fp64") else []


def tensor_operations(instruction: Instruction) -> tuple[str, int] | None:
    """Return (number format, operations per warp) for a tensor instruction; None for other instructions and for sparse
    operands, whose rate is unknown.

    The number format of the operands has the name of its ceiling, such as 'bf16'; a product and its addition are two
    operations. An instruction of a warpgroup (HGMMA.64x128x16) is executed by four warps and has separate ceilings,
    such as 'wgmma-bf16'. Formats of at most 8 bits have no ceilings.
    """
    words = instruction.modifiers
    if pipe(instruction) != "tensor" or "SP" in words:
        return None
    shape, names = None, formats(instruction)
    for match in filter(None, map(_SHAPE.match, words)):
        shape = (16, int(match[1]), int(match[2])) if match[1] else _SHAPES.get(match[3], shape)
    if shape is None or not names:
        return None
    name = min(names).replace("bfloat", "bf").replace("float", "fp").replace("int1", "b1")
    if instruction.opcode.endswith("GMMA"):
        name = WGMMA + name
    elif name == "fp16" and "F32" not in words:
        name = SHORT_SUMS
    return name, 2 * prod(shape)
