"""The microbenchmarks of arithmetic: chains of dependent instructions in every thread, and tensor core products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.ceilings.benchmark import (
    CHAINS,
    DEFINED,
    ODD,
    STEPS,
    THREADS,
    WARP,
    WORD,
    Arrays,
    Extent,
    Microbenchmark,
    ReadArray,
    each_block,
)
from cudabench.ceilings.code import Claim
from cudabench.ceilings.memory import INCREMENT, MULTIPLIER

MMA_STEPS, GROUP_STEPS = DEFINED["MMA_STEPS"], DEFINED["GROUP_STEPS"]
LANES = np.arange(THREADS) % WARP
A, B = 2, -1  # in the tensor core products, all elements of A are 2 and all elements of B are -1


def _counter_sums(steps: Callable[[Extent], int], dtype: str) -> Callable[[Extent], np.ndarray]:
    """Return a function that computes, for each thread of a block, the expected sum of the thread's chains. Chain c of
    a lane starts at lane + c and grows by one in each step."""
    return lambda e: (CHAINS * (LANES + steps(e)) + CHAINS * (CHAINS - 1) // 2).astype(dtype)


def _all_steps(extent: Extent) -> int:
    return extent.passes * STEPS


def _chain_benchmark(
    name: str,
    function: str,
    opcode: str,
    factors: np.ndarray | None,
    wrong: Callable[..., str | None],
    compared: str = "the sum of its chains compared",
    *,
    each: int = 2,
    nbytes: int = 4,
) -> Microbenchmark:
    """Return the microbenchmark in which every thread executes CHAINS chains of one instruction.

    `opcode`: the instruction in machine code; `factors`: the kernel's input, if it has one; `wrong`: the check of the
    output; `compared`: a description of this check; `each`: the operations that an instruction does for a thread;
    `nbytes`: the bytes of one output element.
    """
    inputs: Arrays = {} if factors is None else {"factors": factors}
    prefix = "exp2 alone, " if name == "xu" else ""
    return Microbenchmark(
        name,
        function,
        Claim({opcode: STEPS * CHAINS}, most_others=12),
        arrays=lambda e: {**inputs, "out": e.threads * nbytes},
        work_per_thread=each * CHAINS * STEPS,
        wrong=wrong,
        method=lambda e: prefix + _chains_of(e, compared),
    )


def _chains_of(extent: Extent, compared: str, steps: int = STEPS) -> str:
    return (
        f"{extent.grid} blocks, {CHAINS} chains a thread of {extent.passes * steps} steps; in every thread {compared}"
    )


def _lcg_sums(extent: Extent) -> np.ndarray:
    """Return the expected sum of each thread's chains, modulo 2^32; the chains are linear congruential generators.

    A chain that starts at x has the value a^n x + c (a^n - 1) / (a - 1) after n steps.
    """
    power = pow(MULTIPLIER, _all_steps(extent), (MULTIPLIER - 1) * WORD)
    added = INCREMENT * ((power - 1) // (MULTIPLIER - 1))
    starts = CHAINS * LANES.astype(object) + CHAINS * (CHAINS - 1) // 2
    return np.array([(power * int(start) + CHAINS * added) % WORD for start in starts], np.uint32)


def _rotated_words(extent: Extent) -> np.ndarray:
    """Return the exclusive or of each thread's words, one for each chain; a step of a chain rotates its word by one
    bit."""
    words = ((LANES[:, None] * CHAINS + np.arange(CHAINS)) * ODD % WORD).astype(np.uint32)
    shift = extent.passes * STEPS // 2 % 32
    rotated = words << np.uint32(shift) | words >> np.uint32(32 - shift) if shift else words
    combined: np.ndarray = np.bitwise_xor.reduce(rotated, axis=1)
    return combined


_ISSUED = each_block(_counter_sums(lambda e: _all_steps(e) // 2, "float32"), "float32")
_ROTATED = each_block(_rotated_words, "uint32", "rotated")
FIXED_POINT = 0.6411857445  # the fixed point of x = 2^-x, to which the iteration converges
EXP2_ERROR = 1e-5  # ex2.approx.ftz has an error of at most 2 ulp


def _fixed_point_fault(extent: Extent, read: ReadArray) -> str | None:
    sums = read("out", 0, None, "float32")
    distance = np.abs(sums - CHAINS * FIXED_POINT)
    worst = int(np.argmax(np.where(np.isfinite(distance), distance, np.inf)))
    return None if distance[worst] <= CHAINS * EXP2_ERROR else f"thread {worst} rests at {sums[worst] / CHAINS:.7g}"


HALF_A = 0xBF00  # -1.75 as float16: the map x * x - 1.75 stays between -1.75 and 1.75


def _quadratic_sums(extent: Extent) -> np.ndarray:
    """Return for each thread the sum of its chains' final words, modulo 2^32; a word has two float16 numbers.

    Each step computes x * x + a and rounds only once, as the HFMA2 instruction does.
    """
    word = 0x38003400 + 0x00100001 * np.arange(WARP * CHAINS, dtype=np.uint64)
    x = np.stack([word & 0xFFFF, word >> 16 & 0xFFFF], -1).astype(np.uint16)
    final = orbit(x.view(np.float16), np.array(HALF_A, np.uint16).view(np.float16), _all_steps(extent)).view(np.uint16)
    words = final[:, 0].astype(np.uint64) | final[:, 1].astype(np.uint64) << np.uint64(16)
    sums: np.ndarray = (words.reshape(WARP, CHAINS).sum(axis=1) % WORD).astype(np.uint32)
    return sums[LANES]


def orbit(x: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
    """Return float16 numbers after `steps` steps of x * x + a, each rounded once.

    A table gives the value after one step for each of the 2^16 numbers. The table applied to itself is the table of two
    steps.
    """
    numbers = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wide = numbers.astype(np.float64)
        following = (wide * wide + a.astype(np.float64)).astype(np.float16).view(np.uint16)
    at = x.view(np.uint16)
    while steps:  # `following` maps a state to that after 1, 2, 4, 8, ... steps in turn
        if steps % 2:
            at = following[at]
        following = following[following]
        steps //= 2
    return np.ascontiguousarray(at).view(np.float16)


# Tensor cores --------------------------------------------------------------------------------------------------------

REGISTERS = 4  # registers of C in each lane
CLOCKS = "clocks"  # the array in which each thread stores the number of clocks of its loop
GROUP = 128  # number of threads that issue a wgmma together
GROUP_TILES = (64 * 128 // 4, 256 * 128 // 4)  # words in the tiles of A and of B; each row of a tile has 128 bytes
LEAST_POWER = "the sum of each thread compared; all elements of A and of B are equal, which takes the least power"


def _check_sums(start: int, growth: Callable[[Extent], int]) -> Callable[..., str | None]:
    """Return a check of each thread's sum of its elements of C.

    The sum starts at `start`; in every pass it grows by `growth(extent)` times A * B, the product of an element of A
    and an element of B.
    """
    return each_block(lambda e: np.full(THREADS, float(start + growth(e) * e.passes * A * B)), "float64")


def _arrays_with_clocks(words: np.ndarray) -> Callable[[Extent], Arrays]:
    return lambda e: {"words": words, "out": e.threads * 8, CLOCKS: e.threads * 8}


def _products_of(extent: Extent, sides: str) -> str:
    return (
        f"mma.sync of {sides}, {extent.grid} blocks, {CHAINS} accumulators a warp, {extent.passes * MMA_STEPS} "
        f"products each; {LEAST_POWER}"
    )


def _mma_benchmark(name: str, opcode: str, k: int, a: int, b: int) -> Microbenchmark:
    """Return the microbenchmark of mma.sync products of 16 x 8 x k.

    `a`, `b`: the words that fill A and B; a lane loads four words of A, then two of B. Each register of C starts with a
    different number.
    """
    fmas = MMA_STEPS * CHAINS * 16 * 8 * k
    return Microbenchmark(
        name,
        name.replace("-", "_"),
        Claim(fmas={opcode: fmas}, most_others=16),
        arrays=_arrays_with_clocks(np.repeat(np.array([a] * 4 + [b] * 2, np.uint32), WARP)),
        work_per_thread=2 * fmas / WARP,
        wrong=_check_sums(sum(range(CHAINS * REGISTERS)), lambda e: CHAINS * REGISTERS * MMA_STEPS * k),
        method=lambda e: _products_of(e, f"16 x 8 x {k}"),
        least=(8, 0),
        feature=f"mma.sync of 16 x 8 x {k}",
    )


def _hopper(extent: Extent) -> bool:
    return (9, 0) <= extent.scale.capability < (10, 0)


def fp64_fmas(hopper: bool) -> int:
    """Return the multiply-adds of a warp in a pass of float64 products; on Hopper the products have another shape."""
    return MMA_STEPS * CHAINS * (16 * 8 * 16 if hopper else 8 * 8 * 4)


def _wgmma_benchmark(name: str, opcode: str, k: int, a: int, b: int) -> Microbenchmark:
    """Return the microbenchmark of wgmma products of 64 x 256 x k, which a group of four warps issues together.

    `a`, `b`: the words that fill A and B. The claim counts the multiply-adds of the group, not of a warp.
    """
    fmas = GROUP_STEPS * 64 * 256 * k
    registers = 64 * 256 // GROUP
    return Microbenchmark(
        name,
        name.replace("-", "_"),
        Claim(fmas={opcode: fmas}, most_others=24),
        arrays=_arrays_with_clocks(np.repeat(np.array([a, b], np.uint32), GROUP_TILES)),
        work_per_thread=2 * fmas / GROUP,
        wrong=_check_sums(sum(i % 4 for i in range(registers)), lambda e: registers * GROUP_STEPS * k),
        method=lambda e: (
            f"wgmma of 64 x 256 x {k} from shared memory, {e.grid} blocks, {e.passes * GROUP_STEPS} products a group "
            f"of warps; {LEAST_POWER}"
        ),
        least=(9, 0),
        most=(9, 0),
        feature="wgmma",
    )


TENSOR = (
    # The last two arguments are the numbers 2 and -1 in the format of the name, repeated to fill a word.
    _mma_benchmark("tensor-tf32", "HMMA", 8, 0x40000000, 0xBF800000),
    _mma_benchmark("tensor-bf16", "HMMA", 16, 0x40004000, 0xBF80BF80),
    _mma_benchmark("tensor-fp16", "HMMA", 16, 0x40004000, 0xBC00BC00),
    Microbenchmark(
        "tensor-fp64",
        "tensor_fp64",
        Claim(fmas={"DMMA": fp64_fmas(hopper=False)}, most_others=16),
        arrays=_arrays_with_clocks(np.repeat(np.array([A] * 8 + [B] * 4, np.float64), WARP)),
        work_of_launch=lambda e: 2.0 * fp64_fmas(_hopper(e)) / WARP * e.threads * e.passes,
        wrong=_check_sums(
            sum(range(CHAINS * REGISTERS)), lambda e: CHAINS * MMA_STEPS * (4 * 16 if _hopper(e) else 2 * 4)
        ),
        method=lambda e: _products_of(e, "16 x 8 x 16" if _hopper(e) else "8 x 8 x 4"),
        least=(8, 0),
        feature="float64 on tensor cores",
    ),
    _mma_benchmark("tensor-int8", "IMMA", 32, 0x02020202, 0xFFFFFFFF),
    _wgmma_benchmark("wgmma-tf32", "HGMMA", 8, 0x40000000, 0xBF800000),
    _wgmma_benchmark("wgmma-bf16", "HGMMA", 16, 0x40004000, 0xBF80BF80),
    _wgmma_benchmark("wgmma-fp16", "HGMMA", 16, 0x40004000, 0xBC00BC00),
    _wgmma_benchmark("wgmma-int8", "IGMMA", 32, 0x02020202, 0xFFFFFFFF),
)

ALL = (
    Microbenchmark(
        "issue",
        "issue_mixed",
        Claim({"FFMA": STEPS * CHAINS // 2, "SHF": STEPS * CHAINS // 2}, most_others=12),
        arrays=lambda e: {"factors": np.ones(2, np.float32), "out": e.threads * 4, "rotated": e.threads * 4},
        work_per_thread=CHAINS * STEPS / WARP,
        wrong=lambda e, read: _ISSUED(e, read) or _ROTATED(e, read),
        method=lambda e: "FFMA and SHF in turn, " + _chains_of(e, "both results compared", STEPS // 2),
    ),
    _chain_benchmark(
        "fp32", "fp32_fma", "FFMA", np.ones(2, np.float32), each_block(_counter_sums(_all_steps, "float32"), "float32")
    ),
    _chain_benchmark(
        "fp64", "fp64_fma", "DFMA", np.ones(2), each_block(_counter_sums(_all_steps, "float64"), "float64"), nbytes=8
    ),
    _chain_benchmark(
        "int32", "int32_mad", "IMAD", np.array([MULTIPLIER, INCREMENT], np.uint32), each_block(_lcg_sums, "uint32")
    ),
    _chain_benchmark("xu", "xu_exp2", "MUFU.EX2", None, _fixed_point_fault, "the fixed point compared", each=1),
    _chain_benchmark(
        "half2", "half2_fma", "HFMA2", np.array([HALF_A * 0x10001], np.uint32), each_block(_quadratic_sums, "uint32"),
        "the numbers compared bit by bit", each=4,
    ),
    *TENSOR,
)  # fmt: skip
