"""Describes the microbenchmarks of `kernels_cu/ceilings.cu`: launch, amount of work, expected output and machine code.
Also defines the sizes of all microbenchmarks on a device.

The constants of this module come from the `#define`s of that file. An array has the name of the kernel's parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cudabench.cards import KINDS, Ceiling
from cudabench.ceilings.code import Claim
from cudabench.occupancy import capability
from cudabench.plan import chapters, constants
from cudabench.records.launch import Launch, Source

FILE = "ceilings.cu"


@cache
def source() -> Source:
    """Return the source of `kernels_cu/ceilings.cu`."""
    return chapters.read_chapter(FILE)


DEFINED = constants.Constants(chapters.macros(source()), {}, itemsize=4)
THREADS, WARP, VECTORS, CHAINS, STEPS, HOPS, ODD = (
    DEFINED[name] for name in ("BDIMX", "WARP", "VECTORS", "CHAINS", "STEPS", "HOPS", "ODD")
)
VECTOR_BYTES = 16
TILE_BYTES = THREADS * VECTORS * VECTOR_BYTES  # bytes that a block of a memory kernel moves in one iteration
WORD = 1 << 32


@dataclass(frozen=True)
class Scale:
    """The sizes of the microbenchmarks on a device.

    `sms`: the number of multiprocessors to fill. `memory_bytes`: the size of each array of the memory kernels.
    `l2_bytes`: the size of the L2. `memory_nodes`, `l2_nodes`: the nodes of the pointer chains in memory and in the L2.
    `most_passes`: the largest number of iterations of a loop. `host_bytes`: the size of a copy between host and device.
    `launches`: how many empty kernels a sample launches. `empty_blocks`: how many empty blocks a launch has per
    multiprocessor. `capability`: the compute capability.
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


def on_gpu(sms: int, l2_bytes: int, free_bytes: int, compute_capability: str) -> Scale:
    """Return the sizes for a GPU: memory arrays of 1 GiB, at most a quarter of the free memory."""
    memory = min(1 << 30, max(free_bytes // 4, TILE_BYTES)) // TILE_BYTES * TILE_BYTES
    return Scale(
        sms, memory, l2_bytes or 4 << 20, memory_nodes=8192, l2_nodes=8192, most_passes=1 << 14,
        host_bytes=min(256 << 20, memory), capability=capability(compute_capability),
    )  # fmt: skip


def in_simulator(architecture: str) -> Scale:
    """Return the smallest sizes at which all code of every kernel runs, for the simulator."""
    return Scale(
        2, 4 * TILE_BYTES, 8 * TILE_BYTES, memory_nodes=64, l2_nodes=64, most_passes=2, host_bytes=1 << 16, launches=2,
        empty_blocks=4, capability=capability(architecture),
    )  # fmt: skip


@dataclass(frozen=True)
class Extent:
    """The size of a launch of a microbenchmark. `grid`: the number of blocks; `passes`: the iterations of the kernel's
    loop."""

    scale: Scale
    grid: int
    passes: int

    @property
    def threads(self) -> int:
        """The number of threads in all blocks."""
        return self.grid * THREADS


# A function that returns a part of an array after the launch. Its arguments: the name of the array, the first element,
# the number of elements (None for all), and the type of an element (by default uint32).
ReadArray = Callable[..., np.ndarray]
Arrays = Mapping[str, np.ndarray | int]


@dataclass(frozen=True)
class Microbenchmark:
    """A ceiling that a kernel of `ceilings.cu` measures. Many fields are functions of the `Extent` of a launch.

    `claim`: the expected machine code. `arrays`: the content of each array by name, or its size in bytes if a launch
    fills it. Arrays are in the order of their addresses: the simulator numbers a launch's arrays by address, so an
    array of pointers must come first. `arguments`: all arguments of the kernel; if this field is None, the arguments
    are the arrays, the `numbers` and the passes. `before`: launches that fill arrays once, before the timed launches.

    `work_per_thread`: the work of a thread in a pass, in bytes, operations, or hops whose latencies add up;
    `work_of_launch`: the work of a launch, used instead of `work_per_thread` if it is set. `wrong`: returns a sentence
    about a wrong output, or None. `check_launches`: launches after the timed one that help to check its output.
    `zeroed`: arrays that are set to zero before each timed launch and before the `check_launches`. `method`: a
    description of the launch for the user.

    `blocks`: how many blocks are launched: 'fill', as many as the card holds at once; 'cover', one block for each tile
    or as many as for 'fill', whichever is faster; 'one', one block; 'single', one block of one thread; 'empty', so many
    blocks that the time of one block can be measured. `passes`: the iterations of the loop. `threads`: the threads of a
    block. `shared`: additional shared memory of a block in bytes. `cold`: whether the L2 is flushed before each sample.
    `least`, `most`: the first and the last compute capability that has the instruction; `feature`: the instruction's
    name in the message on other cards. `vectors`: the 16-byte vectors that a thread of a memory kernel moves in one
    iteration.
    """

    name: str
    function: str
    claim: Claim
    arrays: Callable[[Extent], Arrays]
    wrong: Callable[[Extent, ReadArray], str | None]
    method: Callable[[Extent], str]
    work_per_thread: float = 1.0
    work_of_launch: Callable[[Extent], float] | None = None
    numbers: Callable[[Extent], Sequence[int]] = lambda extent: ()
    arguments: Callable[[Extent], tuple[Any, ...]] | None = None
    before: Callable[[Extent], Sequence[Launch]] = lambda extent: ()
    check_launches: Callable[[Extent], Sequence[Launch]] = lambda extent: ()
    zeroed: tuple[str, ...] = ()
    blocks: str = "fill"
    passes: Callable[[Scale], int | None] = lambda scale: None  # None: as many passes as fill the time of a sample
    cold: bool = False
    least: tuple[int, int] = (7, 0)
    most: tuple[int, int] | None = None
    feature: str = ""
    vectors: int = VECTORS
    threads: int = THREADS
    shared: Callable[[Scale], int] = lambda scale: 0

    def amount(self, extent: Extent) -> float:
        """Return the work of a launch, in bytes, operations or hops."""
        return (
            self.work_of_launch(extent)
            if self.work_of_launch
            else self.work_per_thread * extent.threads * extent.passes
        )

    def tiles(self, scale: Scale) -> int:
        """Return how many blocks are needed to move an array if each block moves one tile."""
        return scale.memory_bytes // (THREADS * self.vectors * VECTOR_BYTES)

    def missing_feature(self, compute_capability: str) -> str | None:
        """Return the reason why cards of a compute capability lack the instruction, or None if they have it."""
        capability_here = capability(compute_capability)
        if capability_here >= self.least and (self.most is None or capability_here <= self.most):
            return None
        least = ".".join(map(str, self.least))
        rule = (
            f"exists only on compute capability {least}" if self.most else f"needs compute capability {least} or later"
        )
        return f"{self.feature} {rule}; this card has {compute_capability}"

    def launch(self, extent: Extent) -> Launch:
        """Return the launch that is timed."""
        if self.arguments:
            arguments = self.arguments(extent)
        else:
            arguments = (*self.arrays(extent), *map(np.uint32, self.numbers(extent)), np.uint32(extent.passes))
        block = 1 if self.blocks == "single" else self.threads
        return Launch(self.function, (extent.grid, 1, 1), (block, 1, 1), arguments, self.shared(extent.scale))


def bytes_of(content: np.ndarray | int) -> int:
    """Return the size of an array in bytes; `content` is an entry of `Microbenchmark.arrays`."""
    return content if isinstance(content, int) else content.nbytes


def blank(name: str) -> Ceiling:
    """Return a ceiling without a value, with the group and unit of its kind."""
    kind = KINDS[name]
    return Ceiling(name, kind.group, None, kind.unit)


# Expected outputs ----------------------------------------------------------------------------------------------------


def pattern(first: int, count: int) -> np.ndarray:
    """Return `count` words (uint32) of the pattern that the kernel `memory_write` writes, from word `first` on."""
    with np.errstate(over="ignore"):
        words: np.ndarray = np.arange(first, first + count, dtype=np.uint32) * np.uint32(ODD) + np.uint32(1)
    return words


def pattern_sum(first: int, count: int) -> int:
    """Return the sum of the words of `pattern`, modulo 2^32."""
    return (count + ODD * (count * first + count * (count - 1) // 2)) % WORD


def difference(what: str, got: float, expected: float) -> str | None:
    """Return a sentence if a number differs from the expected one, else None; `what` is the sentence's subject."""
    return None if got == expected else f"{what} is {got:.10g}, not {expected:.10g}"


def each_block(expected: Callable[[Extent], np.ndarray], dtype: str, name: str = "out") -> Callable[..., str | None]:
    """Return a check of the array `name`, which has a number for each thread.

    `expected` returns the numbers of the threads of a block; they are the same in every block.
    """

    def wrong(extent: Extent, read: ReadArray) -> str | None:
        values, right = read(name, 0, None, dtype).reshape(extent.grid, THREADS), expected(extent)
        mismatches = np.argwhere(values != right)
        if not len(mismatches):
            return None
        block, thread = (int(index) for index in mismatches[0])
        return difference(f"thread {thread} of block {block}", values[block, thread].item(), right[thread].item())

    return wrong
