"""The microbenchmarks of memory: bandwidths of device memory, the L2, shared memory and the constant cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.ceilings.benchmark import (
    DEFINED,
    HOPS,
    ODD,
    THREADS,
    TILE_BYTES,
    VECTOR_BYTES,
    VECTORS,
    WARP,
    WORD,
    Extent,
    Microbenchmark,
    ReadArray,
    difference,
    each_block,
    pattern,
    pattern_sum,
)
from cudabench.ceilings.code import Claim
from cudabench.records.launch import Launch

COPIED, CONSTANTS = DEFINED["COPIED"], DEFINED["CONSTANTS"]
# Multiplier and increment of a random number generator with full period modulo 2^32.
MULTIPLIER, INCREMENT = DEFINED["GENERATOR_A"], DEFINED["GENERATOR_B"]
PIECE = 1 << 14  # words in each piece of an array; only these pieces are compared word by word
PIECES = 16


def _pattern_fault(name: str, extent: Extent, read: ReadArray) -> str | None:
    """Return a sentence if an array differs from the pattern, else None. PIECES pieces of the array are compared word
    by word; other words are checked only by the sum of all words."""
    words = extent.scale.memory_bytes // 4
    count = min(PIECE, words)
    for at in sorted({(words - count) * step // (PIECES - 1) for step in range(PIECES)}):
        differ = np.flatnonzero(read(name, at, count) != pattern(at, count))
        if len(differ):
            return f"word {at + int(differ[0])} of '{name}' differs from the pattern"
    return _sum_fault(extent, read)


def _sum_fault(extent: Extent, read: ReadArray) -> str | None:
    return difference(
        "the sum of all words", int(read("total", 0, 1)[0]), pattern_sum(0, extent.scale.memory_bytes // 4)
    )


def _launch(function: str, extent: Extent, *names: str) -> Launch:
    """Return a launch that reads or writes a whole array in memory; each block processes one tile."""
    grid = (extent.scale.memory_bytes // TILE_BYTES, 1, 1)
    return Launch(function, grid, (THREADS, 1, 1), (*names, _vectors(extent)))


def _vectors(extent: Extent) -> Any:
    return np.uint64(extent.scale.memory_bytes // VECTOR_BYTES)


_OPCODES = {"in": "LDG.128", "out": "STG.128"}


def _memory_benchmark(name: str, *names: str) -> Microbenchmark:
    """Return the microbenchmark that reads the array 'in', writes the array 'out', or copies 'in' to 'out'; `names`:
    the arrays that its kernel uses."""
    reads, writes = "in" in names, "out" in names
    vectors = COPIED if reads and writes else VECTORS
    arguments = names if writes else (*names, "total")
    pieces = f", and {PIECES} pieces word by word" if writes else ""
    return Microbenchmark(
        name,
        name.replace("-", "_"),
        Claim({_OPCODES[array]: vectors for array in names}, most_others=24),
        arrays=lambda e: {**dict.fromkeys(names, e.scale.memory_bytes), "total": 4},
        arguments=lambda e: (*arguments, _vectors(e)),
        before=lambda e: (_launch("memory_write", e, "in"),) if reads else (),
        check_launches=lambda e: (_launch("memory_read", e, "out", "total"),) if writes else (),
        zeroed=("total",),
        wrong=lambda e, read: _pattern_fault("out", e, read) if writes else _sum_fault(e, read),
        work_of_launch=lambda e: len(names) * e.scale.memory_bytes,
        blocks="cover",
        vectors=vectors,
        passes=lambda scale: 1,
        method=lambda e: (
            f"{e.scale.memory_bytes / 2**20:g} MiB an array, {e.grid} blocks of {THREADS} threads, {vectors} x 16 "
            f"bytes a thread; the sum of all words compared{pieces}"
        ),
    )


def _tiles(extent: Extent) -> int:
    """Return how many tiles the array has that must fit in the L2: one for each block, but at most as many as fill half
    of the L2."""
    return max(1, min(extent.grid, extent.scale.l2_bytes // 2 // TILE_BYTES))


def _advance(extent: Extent) -> int:
    return _tiles(extent) // 3 % _tiles(extent)


def _l2_sum(extent: Extent) -> int:
    """Return the expected sum, modulo 2^32, of all words that the blocks read."""
    tiles, words = _tiles(extent), TILE_BYTES // 4
    # For each tile: the number of blocks that read this tile first.
    first = np.bincount(np.arange(extent.grid) % tiles, minlength=tiles)
    times = sum(np.roll(first, step * _advance(extent)) for step in range(extent.passes))
    return sum(int(count) * pattern_sum(tile * words, words) for tile, count in enumerate(np.atleast_1d(times))) % WORD


def _l2_pattern(extent: Extent) -> Launch:
    vectors = np.uint64(_tiles(extent) * TILE_BYTES // VECTOR_BYTES)
    return Launch("memory_write", (_tiles(extent), 1, 1), (THREADS, 1, 1), ("in", vectors))


def _shared_sum(extent: Extent) -> np.ndarray:
    """Return the expected sum of each thread of a block, modulo 2^32."""
    sums = pattern(0, VECTORS * THREADS * 4).reshape(VECTORS, THREADS, 4).astype(object).sum(axis=(0, 2))
    return np.array([int(value) * 4 * extent.passes % WORD for value in sums], np.uint32)


# For each thread: the seed of the thread's warp.
SEEDS = np.repeat(np.arange(THREADS // WARP, dtype=np.uint32) * np.uint32(ODD), WARP)


def _constant_sum(extent: Extent, stride: int, mask: int) -> np.ndarray:
    """Return the expected sum of each thread of a block, modulo 2^32."""
    state, offsets = SEEDS.copy(), np.arange(THREADS, dtype=np.uint32) % WARP * np.uint32(stride)
    words, sums = pattern(0, CONSTANTS), np.zeros(THREADS, np.uint32)
    with np.errstate(over="ignore"):
        for _ in range(extent.passes * HOPS):
            state = state * np.uint32(MULTIPLIER) + np.uint32(INCREMENT)
            sums += words[((state >> 16) + offsets) & mask]
    return sums


def _constant_benchmark(name: str, stride: int, words: int) -> Microbenchmark:
    return Microbenchmark(
        name,
        "constant_read",
        Claim({"LDC": HOPS}, most_others=6 * HOPS),
        arrays=lambda e: {"seed": SEEDS, "out": e.threads * 4},
        numbers=lambda e: (stride, words - 1),
        work_per_thread=4 * HOPS,
        wrong=each_block(lambda e: _constant_sum(e, stride, words - 1), "uint32"),
        method=lambda e: (
            f"lanes {stride} words apart in {words / 256:g} KiB, {e.grid} blocks, {e.passes * HOPS} loads a thread; "
            "the sum of each thread compared"
        ),
    )


ALL = (
    _memory_benchmark("memory-copy", "in", "out"),
    _memory_benchmark("memory-read", "in"),
    _memory_benchmark("memory-write", "out"),
    Microbenchmark(
        "l2-read",
        "l2_read",
        Claim({"LDG.128": VECTORS}, most_others=24),
        arrays=lambda e: {"in": _tiles(e) * TILE_BYTES, "total": 4},
        numbers=lambda e: (_tiles(e), _advance(e)),
        before=lambda e: (_l2_pattern(e),),
        zeroed=("total",),
        work_per_thread=VECTORS * VECTOR_BYTES,
        wrong=lambda e, read: difference("the sum of all words", int(read("total", 0, 1)[0]), _l2_sum(e)),
        method=lambda e: (
            f"{_tiles(e) * TILE_BYTES / 2**20:.3g} MiB read {e.passes} times past the L1 by {e.grid} blocks; the sum "
            "compared"
        ),
    ),
    Microbenchmark(
        "shared-read",
        "shared_read",
        Claim({"LDS.128": 4 * VECTORS}, most_others=40),
        arrays=lambda e: {"out": e.threads * 4},
        work_per_thread=4 * VECTORS * VECTOR_BYTES,
        wrong=each_block(_shared_sum, "uint32"),
        method=lambda e: f"16 bytes a lane, {e.passes} passes of {4 * VECTORS} loads; the sum of each thread compared",
    ),
    # The lanes of a warp read different words. In the large table almost all of these words are in different cache
    # lines, which are spread over all sets of the cache.
    _constant_benchmark("constant-hit", 8, 256),
    _constant_benchmark("constant-miss", 137, CONSTANTS),
)
