"""The microbenchmarks of `kernels_cu/ceilings.cu`: what each is launched with, what one launch does, what it must leave
behind, and what its machine code must hold.

The numbers that the chapter defines are read from it. An array is named as the kernel's parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from cudabench.ceilings.code import Claim
from cudabench.errors import UsageError
from cudabench.occupancy import capability, multiprocessor
from cudabench.plan import chapters, constants
from cudabench.records.launch import Launch, Source

FILE = "ceilings.cu"


@cache
def source() -> Source:
    """Return the chapter."""
    return chapters.read(FILE)


@cache
def _constants() -> constants.Constants:
    return constants.Constants(constants.read(source().text), {}, itemsize=4)


THREADS = _constants()["BDIMX"]
WARP = _constants()["WARP"]
VECTORS = _constants()["VECTORS"]
COPIED = _constants()["COPIED"]
CHAINS = _constants()["CHAINS"]
STEPS = _constants()["STEPS"]
MMA_STEPS = _constants()["MMA_STEPS"]
GROUP_STEPS = _constants()["GROUP_STEPS"]
HOPS = _constants()["HOPS"]
NODES = _constants()["NODES"]
ODD = _constants()["ODD"]
VECTOR_BYTES = 16
TILE_BYTES = THREADS * VECTORS * VECTOR_BYTES  # that a block of a memory kernel moves in a turn
WORD = 1 << 32
ADDEND = 3  # of the atomics
ORIN_START = 20  # instructions that ptxas lets every kernel for sm_87 begin with
NEWEST = "10.0"  # whose multiprocessors stand for those that the table lacks
A, B = 2, -1  # all elements of A and of B on the tensor cores


# Sizes ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """How large the microbenchmarks are on a device.

    sms: multiprocessors to fill. memory_bytes: of each array of the memory kernels. l2_bytes: of the L2. nodes: of the
    chains in memory and in the L2. most_passes: of a loop. host_bytes: of the copies to the host. launches: of empty
    kernels in a sample. empty_blocks: a multiprocessor, of a launch of those.
    """

    sms: int
    memory_bytes: int
    l2_bytes: int
    memory_nodes: int
    l2_nodes: int
    most_passes: int
    host_bytes: int = 256 << 20
    launches: int = 400
    empty_blocks: int = 4096
    capability: tuple[int, int] = (9, 0)


@dataclass(frozen=True)
class Extent:
    """One launch of a microbenchmark: its blocks, and the passes of its loop."""

    scale: Scale
    grid: int
    passes: int

    @property
    def threads(self) -> int:
        """All threads."""
        return self.grid * THREADS

    @property
    def warps(self) -> int:
        """All warps."""
        return self.threads // WARP


# Returns part of an array that the launch left: name, first element, how many (None: all), as words unless another type
# is named.
Look = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Microbenchmark:
    """One ceiling that a kernel of the chapter measures.

    arrays: by name what an array holds, or how many bytes it has where a launch fills it, in the order of their
    addresses: the simulator numbers a launch's arrays by those, so one that holds pointers comes first. before:
    launches that fill arrays once. amount: what a launch does: bytes, operations, or the hops whose latencies add up.
    wrong: a sentence about what the launch left, None where it is right. behind: launches that help to look at that.
    zeroed: arrays that are set to zero before each launch, and again before those behind it. blocks: 'fill', as many as
    the card holds at once; 'cover', one for each tile or as many as fill, whichever is faster; 'one'; 'single', one of
    one thread; 'empty', so many that a block's own time counts. threads: of a block. shared: bytes a block besides.
    cold: the L2 is flushed before each sample. least, most: the compute capabilities that have its
    instruction, `wanting` what lacks elsewhere. vectors: of 16 bytes that a thread of a memory kernel moves in a turn.
    """

    name: str
    function: str
    claim: Claim
    arrays: Callable[[Extent], dict[str, np.ndarray | int]]
    arguments: Callable[[Extent], tuple[Any, ...]]
    amount: Callable[[Extent], float]
    wrong: Callable[[Extent, Look], str | None]
    method: Callable[[Extent], str]
    before: Callable[[Extent], Sequence[Launch]] = lambda extent: ()
    behind: Callable[[Extent], Sequence[Launch]] = lambda extent: ()
    zeroed: tuple[str, ...] = ()
    blocks: str = "fill"
    passes: Callable[[Scale], int | None] = lambda scale: None  # None: as many as fill a sample
    cold: bool = False
    least: tuple[int, int] = (7, 0)
    most: tuple[int, int] | None = None
    wanting: str = ""
    vectors: int = VECTORS
    threads: int = THREADS
    shared: Callable[[Scale], int] = lambda scale: 0

    def tiles(self, scale: Scale) -> int:
        """Return the blocks that move an array in one turn each."""
        return scale.memory_bytes // (THREADS * self.vectors * VECTOR_BYTES)

    def lacks(self, own: tuple[int, int]) -> bool:
        """Whether cards of a compute capability have not its instruction."""
        return own < self.least or (self.most is not None and own > self.most)

    def launch(self, extent: Extent) -> Launch:
        """Return the launch that is timed."""
        block = 1 if self.blocks == "single" else self.threads
        shared = self.shared(extent.scale)
        return Launch(self.function, (extent.grid, 1, 1), (block, 1, 1), self.arguments(extent), shared)


def on_gpu(sms: int, l2_bytes: int, free_bytes: int, compute_capability: str) -> Scale:
    """Return the sizes for a GPU: memory arrays of 1 GiB, or what a quarter of the free memory holds."""
    memory = min(1 << 30, max(free_bytes // 4, TILE_BYTES)) // TILE_BYTES * TILE_BYTES
    return Scale(
        sms=sms,
        memory_bytes=memory,
        l2_bytes=l2_bytes or 4 << 20,
        memory_nodes=8192,
        l2_nodes=8192,
        most_passes=1 << 14,
        host_bytes=min(256 << 20, memory),
        capability=capability(compute_capability),
    )


def in_simulator(architecture: str) -> Scale:
    """Return the smallest sizes at which every part of a kernel runs."""
    return Scale(
        sms=2,
        memory_bytes=4 * TILE_BYTES,
        l2_bytes=8 * TILE_BYTES,
        memory_nodes=64,
        l2_nodes=64,
        most_passes=2,
        host_bytes=1 << 16,
        launches=2,
        empty_blocks=4,
        capability=capability(architecture),
    )


# Memory --------------------------------------------------------------------------------------------------------------


def pattern(first: int, count: int) -> np.ndarray:
    """Return the words of the pattern that `memory_write` writes, from word `first`."""
    with np.errstate(over="ignore"):
        words: np.ndarray = np.arange(first, first + count, dtype=np.uint32) * np.uint32(ODD) + np.uint32(1)
    return words


def pattern_sum(first: int, count: int) -> int:
    """Return the sum of those words, modulo 2^32."""
    return (count + ODD * (count * first + count * (count - 1) // 2)) % WORD


def _vectors(extent: Extent) -> Any:
    return np.uint64(extent.scale.memory_bytes // VECTOR_BYTES)


def _write(name: str, extent: Extent) -> Launch:
    grid = extent.scale.memory_bytes // TILE_BYTES
    return Launch("memory_write", (grid, 1, 1), (THREADS, 1, 1), (name, _vectors(extent)))


def _read(name: str, extent: Extent) -> Launch:
    grid = extent.scale.memory_bytes // TILE_BYTES
    return Launch("memory_read", (grid, 1, 1), (THREADS, 1, 1), (name, "total", _vectors(extent)))


PIECE = 1 << 14  # words of an array that are compared one by one, at its start, its end and in between
PIECES = 16


def _pattern_fault(name: str, extent: Extent, look: Look) -> str | None:
    """Return where an array differs from the pattern: its sum over all words, and some pieces word by word."""
    words = extent.scale.memory_bytes // 4
    for at in sorted({(words - min(PIECE, words)) * step // (PIECES - 1) for step in range(PIECES)}):
        count = min(PIECE, words)
        differ = np.flatnonzero(look(name, at, count) != pattern(at, count))
        if len(differ):
            return f"word {at + int(differ[0])} of '{name}' is not the pattern's"
    return _sum_fault(extent, look)


def _sum_fault(extent: Extent, look: Look) -> str | None:
    return _differs("the sum of all words", int(look("total", 0, 1)[0]), pattern_sum(0, extent.scale.memory_bytes // 4))


def _differs(what: str, got: float, expected: float) -> str | None:
    return None if got == expected else f"{what} is {got:.10g}, not {expected:.10g}"


def _memory(name: str, function: str, **changes: Any) -> Microbenchmark:
    vectors = COPIED if function == "memory_copy" else VECTORS
    loads, stores = {"LDG.128": vectors}, {"STG.128": vectors}
    holds = {"memory_copy": loads | stores, "memory_read": loads, "memory_write": stores}[function]
    factor = 2 if function == "memory_copy" else 1
    return Microbenchmark(
        name,
        function,
        Claim(holds, others=24),
        amount=lambda e: factor * e.scale.memory_bytes,
        blocks="cover",
        vectors=vectors,
        passes=lambda scale: 1,
        method=lambda e: (
            f"{e.scale.memory_bytes / 2**20:g} MiB an array, {e.grid} blocks of {THREADS} threads, {vectors} x 16 "
            "bytes a thread; the sum of all words compared"
            + ("" if function == "memory_read" else f", and {PIECES} pieces word by word")
        ),
        **changes,
    )


MEMORY = (
    _memory(
        "memory-copy",
        "memory_copy",
        arrays=lambda e: {"in": e.scale.memory_bytes, "out": e.scale.memory_bytes, "total": 4},
        arguments=lambda e: ("in", "out", _vectors(e)),
        before=lambda e: (_write("in", e),),
        behind=lambda e: (_read("out", e),),
        zeroed=("total",),
        wrong=lambda e, look: _pattern_fault("out", e, look),
    ),
    _memory(
        "memory-read",
        "memory_read",
        arrays=lambda e: {"in": e.scale.memory_bytes, "total": 4},
        arguments=lambda e: ("in", "total", _vectors(e)),
        before=lambda e: (_write("in", e),),
        zeroed=("total",),
        wrong=_sum_fault,
    ),
    _memory(
        "memory-write",
        "memory_write",
        arrays=lambda e: {"out": e.scale.memory_bytes, "total": 4},
        arguments=lambda e: ("out", _vectors(e)),
        behind=lambda e: (_read("out", e),),
        zeroed=("total",),
        wrong=lambda e, look: _pattern_fault("out", e, look),
    ),
)


def _tiles(extent: Extent) -> int:
    """Return the tiles of the array in the L2: one a block, as far as half of the L2 holds them."""
    return max(1, min(extent.grid, extent.scale.l2_bytes // 2 // TILE_BYTES))


def _advance(extent: Extent) -> int:
    return _tiles(extent) // 3 % _tiles(extent)


def _l2_sum(extent: Extent) -> int:
    """Return what all reads of the tiles add up to, modulo 2^32."""
    tiles, words = _tiles(extent), TILE_BYTES // 4
    first = np.bincount(np.arange(extent.grid) % tiles, minlength=tiles)  # blocks by the tile that they start at
    times = sum(np.roll(first, step * _advance(extent)) for step in range(extent.passes))
    return sum(int(count) * pattern_sum(tile * words, words) for tile, count in enumerate(np.atleast_1d(times))) % WORD


def _l2_pattern(extent: Extent) -> Launch:
    vectors = np.uint64(_tiles(extent) * TILE_BYTES // VECTOR_BYTES)
    return Launch("memory_write", (_tiles(extent), 1, 1), (THREADS, 1, 1), ("in", vectors))


L2_READ = Microbenchmark(
    "l2-read",
    "l2_read",
    Claim({"LDG.128": VECTORS}, others=24),
    arrays=lambda e: {"in": _tiles(e) * TILE_BYTES, "total": 4},
    arguments=lambda e: ("in", "total", np.uint32(_tiles(e)), np.uint32(_advance(e)), np.uint32(e.passes)),
    before=lambda e: (_l2_pattern(e),),
    zeroed=("total",),
    amount=lambda e: float(e.grid) * e.passes * TILE_BYTES,
    wrong=lambda e, look: _differs("the sum of all words", int(look("total", 0, 1)[0]), _l2_sum(e)),
    method=lambda e: (
        f"{_tiles(e) * TILE_BYTES / 2**20:.3g} MiB read {e.passes} times past the L1 by {e.grid} blocks; the sum "
        "compared"
    ),
)


def _shared_sum(extent: Extent) -> np.ndarray:
    """Return what each thread of a block adds up, modulo 2^32."""
    own = pattern(0, VECTORS * THREADS * 4).reshape(VECTORS, THREADS, 4).astype(object).sum(axis=(0, 2))
    return np.array([int(value) * 4 * extent.passes % WORD for value in own], np.uint32)


def _each_block(expected: Callable[[Extent], np.ndarray], dtype: str, name: str = "out") -> Callable[..., str | None]:
    """Return a check of an array that holds a number a thread, the same in every block."""

    def wrong(extent: Extent, look: Look) -> str | None:
        got, right = look(name, 0, None, dtype).reshape(extent.grid, THREADS), expected(extent)
        bad = np.argwhere(got != right)
        if not len(bad):
            return None
        block, thread = (int(place) for place in bad[0])
        return _differs(f"thread {thread} of block {block}", got[block, thread].item(), right[thread].item())

    return wrong


def _of_threads(dtype: str, *names: str) -> Callable[[Extent], dict[str, np.ndarray | int]]:
    return lambda e: {name: e.threads * np.dtype(dtype).itemsize for name in names}


SHARED_READ = Microbenchmark(
    "shared-read",
    "shared_read",
    Claim({"LDS.128": 4 * VECTORS}, others=40),
    arrays=_of_threads("uint32", "out"),
    arguments=lambda e: ("out", np.uint32(e.passes)),
    amount=lambda e: float(e.threads) * e.passes * 4 * VECTORS * VECTOR_BYTES,
    wrong=_each_block(_shared_sum, "uint32"),
    method=lambda e: f"16 bytes a lane, {e.passes} passes of {4 * VECTORS} loads; the sum of each thread compared",
)


CONSTANTS = _constants()["CONSTANTS"]
MULTIPLIER, INCREMENT = _constants()["GENERATOR_A"], _constants()["GENERATOR_B"]  # of a full period modulo 2^32
SEEDS = np.repeat(np.arange(THREADS // WARP, dtype=np.uint32) * np.uint32(ODD), WARP)  # one a warp


def _constant_sum(extent: Extent, stride: int, mask: int) -> np.ndarray:
    """Return what each thread of a block adds up, modulo 2^32."""
    state, apart = SEEDS.copy(), np.arange(THREADS, dtype=np.uint32) % WARP * np.uint32(stride)
    words, sums = pattern(0, CONSTANTS), np.zeros(THREADS, np.uint32)
    with np.errstate(over="ignore"):
        for _ in range(extent.passes * HOPS):
            state = state * np.uint32(MULTIPLIER) + np.uint32(INCREMENT)
            sums += words[((state >> 16) + apart) & mask]
    return sums


def _constant(name: str, stride: int, words: int) -> Microbenchmark:
    return Microbenchmark(
        name,
        "constant_read",
        Claim({"LDC": HOPS}, others=6 * HOPS),
        arrays=lambda e: {"seed": SEEDS, "out": e.threads * 4},
        arguments=lambda e: ("seed", "out", np.uint32(stride), np.uint32(words - 1), np.uint32(e.passes)),
        amount=lambda e: 4.0 * e.threads * HOPS * e.passes,
        wrong=_each_block(lambda e: _constant_sum(e, stride, words - 1), "uint32"),
        method=lambda e: (
            f"lanes {stride} words apart in {words / 256:g} KiB, {e.grid} blocks, {e.passes * HOPS} loads a thread; "
            "the sum of each thread compared"
        ),
    )


# The lanes' words are all different; in the large table nearly all of them lie in different lines, spread over the sets
# of the cache.
CONSTANT = (_constant("constant-hit", 8, 256), _constant("constant-miss", 137, CONSTANTS))

# Arithmetic ----------------------------------------------------------------------------------------------------------

LANES = np.arange(THREADS) % WARP


def _counted(steps: Callable[[Extent], int], dtype: str) -> Callable[[Extent], np.ndarray]:
    """Return the sums of chains that start at lane + chain and grow by one a step."""
    return lambda e: (CHAINS * (LANES + steps(e)) + CHAINS * (CHAINS - 1) // 2).astype(dtype)


def _all_steps(extent: Extent) -> int:
    return extent.passes * STEPS


def _chained(
    name: str,
    function: str,
    opcode: str,
    dtype: str,
    factors: Sequence[float],
    expected: Callable[[Extent], np.ndarray],
) -> Microbenchmark:
    return Microbenchmark(
        name,
        function,
        Claim({opcode: STEPS * CHAINS}, others=12),
        arrays=lambda e: {"factors": np.array(factors, dtype), "out": e.threads * np.dtype(dtype).itemsize},
        arguments=lambda e: ("factors", "out", np.uint32(e.passes)),
        amount=lambda e: 2.0 * e.threads * CHAINS * _all_steps(e),
        wrong=_each_block(expected, dtype),
        method=lambda e: _chains_of(e, "the sum of its chains compared"),
    )


def _chains_of(extent: Extent, compared: str, steps: int = STEPS) -> str:
    return (
        f"{extent.grid} blocks, {CHAINS} chains a thread of {extent.passes * steps} steps; in every thread {compared}"
    )


def _generated(extent: Extent) -> np.ndarray:
    """Return the sums of chains of a linear congruential generator, modulo 2^32: its map applied to itself."""
    many, step, left = (1, 0), (MULTIPLIER, INCREMENT), _all_steps(extent)
    while left:
        if left % 2:
            many = (step[0] * many[0] % WORD, (step[0] * many[1] + step[1]) % WORD)
        step = (step[0] ** 2 % WORD, (step[0] * step[1] + step[1]) % WORD)
        left //= 2
    starts = CHAINS * LANES.astype(object) + CHAINS * (CHAINS - 1) // 2
    return np.array([(many[0] * int(start) + CHAINS * many[1]) % WORD for start in starts], np.uint32)


def _rotated(extent: Extent) -> np.ndarray:
    """Return the exclusive or of words that were rotated by one bit a step."""
    words = ((LANES[:, None] * CHAINS + np.arange(CHAINS)) * ODD % WORD).astype(np.uint32)
    by = extent.passes * STEPS // 2 % 32
    turned = words << np.uint32(by) | words >> np.uint32(32 - by) if by else words
    found: np.ndarray = np.bitwise_xor.reduce(turned, axis=1)
    return found


_ISSUED = _each_block(_counted(lambda e: _all_steps(e) // 2, "float32"), "float32")
_TURNED = _each_block(_rotated, "uint32", "rotated")

ISSUE = Microbenchmark(
    "issue",
    "issue_mixed",
    Claim({"FFMA": STEPS * CHAINS // 2, "SHF": STEPS * CHAINS // 2}, others=12),
    arrays=lambda e: {"factors": np.ones(2, np.float32), "out": e.threads * 4, "rotated": e.threads * 4},
    arguments=lambda e: ("factors", "out", "rotated", np.uint32(e.passes)),
    amount=lambda e: float(e.warps) * CHAINS * _all_steps(e),
    wrong=lambda e, look: _ISSUED(e, look) or _TURNED(e, look),
    method=lambda e: "FFMA and SHF in turn, " + _chains_of(e, "both results compared", STEPS // 2),
)

AT_REST = 0.6411857445  # where x = 2^-x
EXP2_ERROR = 1e-5  # ex2.approx.ftz is within 2 ulp


def _rests(extent: Extent, look: Look) -> str | None:
    got = look("out", 0, None, "float32")
    away = np.abs(got - CHAINS * AT_REST)
    worst = int(np.argmax(np.where(np.isfinite(away), away, np.inf)))
    return None if away[worst] <= CHAINS * EXP2_ERROR else f"thread {worst} rests at {got[worst] / CHAINS:.7g}"


XU = Microbenchmark(
    "xu",
    "xu_exp2",
    Claim({"MUFU.EX2": STEPS * CHAINS}, others=12),
    arrays=_of_threads("float32", "out"),
    arguments=lambda e: ("out", np.uint32(e.passes)),
    amount=lambda e: float(e.threads) * CHAINS * _all_steps(e),
    wrong=_rests,
    method=lambda e: "exp2 alone, " + _chains_of(e, "the fixed point compared"),
)

HALF_A = 0xBF00  # -1.75 in float16: the map x * x - 1.75 stays between -1.75 and 1.75


def _quadratic(extent: Extent) -> np.ndarray:
    """Return the sums of the words of two float16 after all steps, modulo 2^32.

    A step is exact in float64 and rounded once, as the instruction does. The numbers are finite, so that a chain comes
    back to one that it had: from there it goes round.
    """
    word = 0x38003400 + 0x00100001 * np.arange(WARP * CHAINS, dtype=np.uint64)
    x = np.stack([word & 0xFFFF, word >> 16 & 0xFFFF], -1).astype(np.uint16)
    after = _orbit(x.view(np.float16), np.array(HALF_A, np.uint16).view(np.float16), _all_steps(extent)).view(np.uint16)
    words = after[:, 0].astype(np.uint64) | after[:, 1].astype(np.uint64) << np.uint64(16)
    sums: np.ndarray = (words.reshape(WARP, CHAINS).sum(axis=1) % WORD).astype(np.uint32)
    return sums[LANES]


def _orbit(x: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
    """Return x after so many steps of x * x + a in float16."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wide = every.astype(np.float64)
        following = (wide * wide + a.astype(np.float64)).astype(np.float16).view(np.uint16)
    at = x.view(np.uint16)
    while steps:  # the map of two, four, eight ... steps is the map of half as many, twice
        if steps % 2:
            at = following[at]
        following = following[following]
        steps //= 2
    return np.ascontiguousarray(at).view(np.float16)


HALF2 = Microbenchmark(
    "half2",
    "half2_fma",
    Claim({"HFMA2": STEPS * CHAINS}, others=12),
    arrays=lambda e: {"factors": np.array([HALF_A * 0x10001], np.uint32), "out": e.threads * 4},
    arguments=lambda e: ("factors", "out", np.uint32(e.passes)),
    amount=lambda e: 4.0 * e.threads * CHAINS * _all_steps(e),
    wrong=_each_block(_quadratic, "uint32"),
    method=lambda e: _chains_of(e, "the numbers compared bit by bit"),
)

ARITHMETIC = (
    ISSUE,
    _chained("fp32", "fp32_fma", "FFMA", "float32", (1, 1), _counted(_all_steps, "float32")),
    _chained("fp64", "fp64_fma", "DFMA", "float64", (1, 1), _counted(_all_steps, "float64")),
    _chained("int32", "int32_mad", "IMAD", "uint32", (MULTIPLIER, INCREMENT), _generated),
    XU,
    HALF2,
)


# Tensor cores --------------------------------------------------------------------------------------------------------

REGISTERS = 4  # of C, a lane


def _grown(extent: Extent, k: int, elements: int) -> np.ndarray:
    """Return a thread's sum of C: registers start at their number, and `elements` of each accumulator grow by
    k * A * B a step."""
    start = sum(range(CHAINS * REGISTERS))
    growth = CHAINS * elements * extent.passes * MMA_STEPS * k * A * B
    return np.full(THREADS, float(start + growth))


def _fragments(element: int | float, other: int | float) -> np.ndarray:
    """Return the words that lanes load: four of A, then two of B."""
    return np.repeat(np.array([element] * 4 + [other] * 2, np.uint32), WARP)


CLOCKS = "clocks"  # the array that has the clocks of each thread's loop


def _clocked(extent: Extent) -> dict[str, np.ndarray | int]:
    return {"out": extent.threads * 8, CLOCKS: extent.threads * 8}


def _words_and_clocks(extent: Extent) -> tuple[Any, ...]:
    return "words", "out", CLOCKS, np.uint32(extent.passes)


def _tensor(name: str, function: str, opcode: str, k: int, a: int, b: int) -> Microbenchmark:
    fmas = 16 * 8 * k
    return Microbenchmark(
        name,
        function,
        Claim(fmas={opcode: MMA_STEPS * CHAINS * fmas}, others=16),
        arrays=lambda e: {"words": _fragments(a, b), **_clocked(e)},
        arguments=_words_and_clocks,
        amount=lambda e: 2.0 * fmas * e.warps * CHAINS * MMA_STEPS * e.passes,
        wrong=_each_block(lambda e: _grown(e, k, REGISTERS), "float64"),
        method=lambda e: _products_of(e, f"16 x 8 x {k}"),
        least=(8, 0),
        wanting=f"mma.sync of 16 x 8 x {k}",
    )


def _products_of(extent: Extent, sides: str) -> str:
    return (
        f"mma.sync of {sides}, {extent.grid} blocks, {CHAINS} accumulators a warp, {extent.passes * MMA_STEPS} "
        "products each; the sum of each thread compared; all elements of A and of B are equal, which is the least power"
    )


def _hopper(extent: Extent) -> bool:
    return (9, 0) <= extent.scale.capability < (10, 0)


def _fp64_fmas(extent: Extent) -> int:
    return 16 * 8 * 16 if _hopper(extent) else 8 * 8 * 4


TENSOR_FP64 = Microbenchmark(
    "tensor-fp64",
    "tensor_fp64",
    Claim(fmas={"DMMA": MMA_STEPS * CHAINS * 8 * 8 * 4}, others=16),
    arrays=lambda e: {"words": np.repeat(np.array([A] * 8 + [B] * 4, np.float64), WARP), **_clocked(e)},
    arguments=_words_and_clocks,
    amount=lambda e: 2.0 * _fp64_fmas(e) * e.warps * CHAINS * MMA_STEPS * e.passes,
    wrong=_each_block(lambda e: _grown(e, 16, 4) if _hopper(e) else _grown(e, 4, 2), "float64"),
    method=lambda e: _products_of(e, "16 x 8 x 16" if _hopper(e) else "8 x 8 x 4"),
    least=(8, 0),
    wanting="float64 on tensor cores",
)

GROUP = 128  # threads that issue a wgmma together
GROUP_TILES = (64 * 128 // 4, 256 * 128 // 4)  # words of A's tile and of B's: rows of 128 bytes


def _wgmma(name: str, function: str, opcode: str, k: int, a: int, b: int) -> Microbenchmark:
    """Return a product by warpgroups; its claim counts the multiply-adds of a group, as the instruction's sides do."""
    fmas = 64 * 256 * k
    registers = 64 * 256 // GROUP
    start = sum(i % 4 for i in range(registers))
    growth = registers * GROUP_STEPS * k * A * B  # in a pass
    return Microbenchmark(
        name,
        function,
        Claim(fmas={opcode: GROUP_STEPS * fmas}, others=24),
        arrays=lambda e: {"words": np.repeat(np.array([a, b], np.uint32), GROUP_TILES), **_clocked(e)},
        arguments=_words_and_clocks,
        amount=lambda e: 2.0 * fmas * (e.threads // GROUP) * GROUP_STEPS * e.passes,
        wrong=_each_block(lambda e: np.full(THREADS, float(start + growth * e.passes)), "float64"),
        method=lambda e: (
            f"wgmma of 64 x 256 x {k} from shared memory, {e.grid} blocks, {e.passes * GROUP_STEPS} products a group "
            "of warps; the sum of each thread compared; all elements of A and of B are equal, which is the least power"
        ),
        least=(9, 0),
        most=(9, 0),
        wanting="wgmma",
    )


TENSOR = (
    # 2 and -1 in each format, as often as a word holds it.
    _tensor("tensor-tf32", "tensor_tf32", "HMMA", 8, 0x40000000, 0xBF800000),
    _tensor("tensor-bf16", "tensor_bf16", "HMMA", 16, 0x40004000, 0xBF80BF80),
    _tensor("tensor-fp16", "tensor_fp16", "HMMA", 16, 0x40004000, 0xBC00BC00),
    TENSOR_FP64,
    _tensor("tensor-int8", "tensor_int8", "IMMA", 32, 0x02020202, 0xFFFFFFFF),
    _wgmma("wgmma-tf32", "wgmma_tf32", "HGMMA", 8, 0x40000000, 0xBF800000),
    _wgmma("wgmma-bf16", "wgmma_bf16", "HGMMA", 16, 0x40004000, 0xBF80BF80),
    _wgmma("wgmma-fp16", "wgmma_fp16", "HGMMA", 16, 0x40004000, 0xBC00BC00),
    _wgmma("wgmma-int8", "wgmma_int8", "IGMMA", 32, 0x02020202, 0xFFFFFFFF),
)


# Latency -------------------------------------------------------------------------------------------------------------


@cache
def chain(nodes: int, seed: int = 1) -> np.ndarray:
    """Return a chain through all nodes in random order that comes back to node 0: next[i] follows node i."""
    order = np.concatenate([[0], 1 + np.random.default_rng(seed).permutation(nodes - 1)]).astype(np.uint32)
    following = np.empty(nodes, np.uint32)
    following[order] = np.roll(order, -1)
    return following


def reached(following: np.ndarray, hops: int) -> int:
    """Return the node that so many hops from node 0 lead to."""
    node = 0
    for _ in range(hops % len(following)):
        node = int(following[node])
    return node


def _chased(
    name: str,
    nodes: Callable[[Scale], int],
    spacing: Callable[[Scale], int],
    passes: Callable[[Scale], int | None],
    method: str,
    *,
    cold: bool = False,
) -> Microbenchmark:
    def link(extent: Extent) -> Launch:
        count, apart = nodes(extent.scale), spacing(extent.scale)
        arguments = ("next", "nodes", np.uint32(count), np.uint32(apart))
        return Launch("link_chain", (-(-count // THREADS), 1, 1), (THREADS, 1, 1), arguments)

    def wrong(extent: Extent, look: Look) -> str | None:
        expected = reached(chain(nodes(extent.scale)), extent.passes * HOPS) * spacing(extent.scale)
        return _differs("the chase ends at byte", int(look("end", 0, 1, "uint64")[0]), expected)

    return Microbenchmark(
        name,
        "global_chase",
        Claim({"LDG.64": HOPS}, others=4),
        arrays=lambda e: {"nodes": nodes(e.scale) * spacing(e.scale), "next": chain(nodes(e.scale)), "end": 8},
        arguments=lambda e: ("nodes", "end", np.uint32(e.passes)),
        before=lambda e: (link(e),),
        amount=lambda e: float(e.passes * HOPS),
        wrong=wrong,
        method=lambda e: (
            f"one thread, {e.passes * HOPS} dependent loads of a random chain of {nodes(e.scale)} nodes, "
            f"{spacing(e.scale)} bytes apart, {method}; where it ends compared"
        ),
        blocks="single",
        passes=passes,
        cold=cold,
    )


LINE_BYTES = 128
LATENCY = (
    # One round, but for a pass that would end where it began; over what the L2 holds, which is flushed besides.
    _chased(
        "memory-latency",
        lambda s: s.memory_nodes,
        lambda s: max(LINE_BYTES, min(s.memory_bytes, 256 << 20) // s.memory_nodes // LINE_BYTES * LINE_BYTES),
        lambda s: s.memory_nodes // HOPS - 1,
        "the L2 flushed before each sample",
        cold=True,
    ),
    _chased(
        "l2-latency",
        lambda s: s.l2_nodes,
        lambda s: max(LINE_BYTES, min(256, s.l2_bytes // 4 // s.l2_nodes) // LINE_BYTES * LINE_BYTES),
        lambda s: None,
        "past the L1",
    ),
    Microbenchmark(
        "shared-latency",
        "shared_chase",
        Claim({"LDS": HOPS}, others=4),
        arrays=lambda e: {"next": chain(NODES), "end": 4},
        arguments=lambda e: ("next", "end", np.uint32(e.passes)),
        amount=lambda e: float(e.passes * HOPS),
        wrong=lambda e, look: _differs(
            "the chase ends at node", int(look("end", 0, 1)[0]), reached(chain(NODES), e.passes * HOPS)
        ),
        method=lambda e: (
            f"one thread, {e.passes * HOPS} dependent loads of a random chain of {NODES} words; where it ends compared"
        ),
        blocks="one",
    ),
)


# Atomics -------------------------------------------------------------------------------------------------------------


def _additions(extent: Extent) -> int:
    """Return the additions of a lane."""
    return extent.passes * HOPS


def _global_same(extent: Extent, look: Look) -> str | None:
    return _differs("the word", int(look("words", 0, 1)[0]), extent.warps * _additions(extent) * ADDEND % WORD)


def _own_word(extent: Extent) -> np.ndarray:
    return np.full(THREADS, _additions(extent) * ADDEND % WORD, np.uint32)


def _one_word(extent: Extent) -> np.ndarray:
    found = np.zeros(THREADS, np.uint32)
    found[0] = THREADS * _additions(extent) * ADDEND % WORD
    return found


_SPREAD = np.arange(THREADS, dtype=np.uint32)
_SAME = np.zeros(THREADS, np.uint32)


def _atomic(
    name: str, function: str, opcode: str, place: np.ndarray, words: str, lanes: int, wrong: Callable[..., str | None]
) -> Microbenchmark:
    return Microbenchmark(
        name,
        function,
        Claim({opcode: HOPS}, others=4),
        arrays=lambda e: {"place": place, words: e.threads * 4},
        arguments=lambda e: ("place", words, np.uint32(ADDEND), np.uint32(e.passes)),
        zeroed=(words,) if words == "words" else (),
        amount=lambda e: float(e.warps) * lanes * _additions(e),
        wrong=wrong,
        method=lambda e: (
            f"{e.warps} warps, {lanes} lane{'s' if lanes > 1 else ''} each, {_additions(e)} additions a lane; the sums "
            "compared"
        ),
    )


ATOMICS = (
    _atomic("global-atomic-same", "global_atomic_same", "RED|REDG", _SAME, "words", 1, _global_same),
    _atomic(
        "global-atomic-spread",
        "global_atomic_spread",
        "RED|REDG",
        _SPREAD,
        "words",
        WARP,
        _each_block(_own_word, "uint32", "words"),
    ),
    _atomic("shared-atomic-same", "shared_atomic", "ATOMS", _SAME, "out", WARP, _each_block(_one_word, "uint32")),
    _atomic("shared-atomic-spread", "shared_atomic", "ATOMS", _SPREAD, "out", WARP, _each_block(_own_word, "uint32")),
)


# Launch --------------------------------------------------------------------------------------------------------------


def _empty(
    name: str, method: str, amount: Callable[[Extent], float] = lambda extent: 1.0, **how: Any
) -> Microbenchmark:
    return Microbenchmark(
        name,
        "empty",
        Claim({"EXIT": 1}, others=2, loop=False),
        arrays=lambda e: {},
        arguments=lambda e: (),
        amount=amount,
        wrong=lambda e, look: None,
        method=lambda e: method.format(launches=e.scale.launches, blocks=e.grid),
        passes=lambda scale: 1,
        **{"blocks": "single", **how},
    )


def _over_half(scale: Scale) -> int:
    """Return bytes of shared memory of which a multiprocessor has not twice as many."""
    try:
        return multiprocessor(scale.capability).shared_bytes // 2 + 1024
    except UsageError:  # a card that is newer than the table
        return multiprocessor(NEWEST).shared_bytes // 2 + 1024


def _empty_blocks(name: str, warps: int, *, alone: bool) -> Microbenchmark:
    """Return a launch of empty blocks: how many a second, or the time of one where one at a time is on an SM."""
    what = f"{{blocks}} empty blocks of {warps * WARP} threads"
    how: dict[str, Any] = {"blocks": "empty", "threads": warps * WARP}
    if alone:
        method = f"{what}, one at a time on a multiprocessor by their shared memory"
        return _empty(name, method, lambda e: e.grid / e.scale.sms, shared=_over_half, **how)
    return _empty(name, f"{what}, as many at a time as fit", lambda e: float(e.grid), **how)


LAUNCH = (
    _empty(
        "launch-latency", "an empty kernel of one thread, launched and waited for through PyCUDA, by the host's clock"
    ),
    _empty("launch-gap", "{launches} empty kernels of one thread, queued before the first starts, between two events"),
    _empty("launch-alone", "one empty kernel of one thread, queued before the first of two events is reached"),
    _empty_blocks("block-turn", 1, alone=True),
    _empty_blocks("block-turn-full", 32, alone=True),
    _empty_blocks("block-rate", 1, alone=False),
)

ALL = (*MEMORY, L2_READ, SHARED_READ, *CONSTANT, *ARITHMETIC, *TENSOR, *LATENCY, *ATOMICS, *LAUNCH)


def claim_of(benchmark: Microbenchmark, compute_capability: tuple[int, int]) -> Claim:
    """Return what a microbenchmark's machine code must hold for a compute capability."""
    if benchmark.name == "tensor-fp64" and (9, 0) <= compute_capability < (10, 0):
        return replace(benchmark.claim, fmas={"DMMA": MMA_STEPS * CHAINS * 16 * 8 * 16})
    if compute_capability == (8, 7) and not benchmark.claim.loop:
        return replace(benchmark.claim, others=benchmark.claim.others + ORIN_START)
    return benchmark.claim


BY_NAME: Mapping[str, Microbenchmark] = {one.name: one for one in ALL}
