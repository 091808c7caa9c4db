"""The microbenchmarks of latencies, of atomics and of launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from cudabench.ceilings.benchmark import (
    DEFINED,
    HOPS,
    THREADS,
    WARP,
    WORD,
    Extent,
    Microbenchmark,
    ReadArray,
    Scale,
    difference,
    each_block,
)
from cudabench.ceilings.code import Claim
from cudabench.errors import UsageError
from cudabench.occupancy import multiprocessor
from cudabench.records.launch import Launch

NODES = DEFINED["NODES"]
LINE_BYTES = 128
ADDEND = 3  # the number that the atomics add
# A card that is missing in the table of occupancy limits gets the limits of this compute capability.
NEWEST = "10.0"


@cache
def chain(nodes: int, seed: int = 1) -> np.ndarray:
    """Return a cyclic chain through all nodes in random order, as an array: element i is the node that follows node
    i."""
    order = np.concatenate([[0], 1 + np.random.default_rng(seed).permutation(nodes - 1)]).astype(np.uint32)
    following = np.empty(nodes, np.uint32)
    following[order] = np.roll(order, -1)
    return following


def node_after(following: np.ndarray, hops: int) -> int:
    """Return the node after `hops` hops from node 0."""
    node = 0
    for _ in range(hops % len(following)):
        node = int(following[node])
    return node


def _hops(extent: Extent) -> int:
    """Return how many hops along a chain, or how many additions, a lane makes in a launch."""
    return extent.passes * HOPS


def _pointer_chase(
    name: str,
    nodes: Callable[[Scale], int],
    spacing: Callable[[Scale], int],
    passes: Callable[[Scale], int | None],
    method: str,
    *,
    cold: bool = False,
) -> Microbenchmark:
    def link(extent: Extent) -> Launch:
        count, step = nodes(extent.scale), spacing(extent.scale)
        arguments = ("next", "nodes", np.uint32(count), np.uint32(step))
        return Launch("link_chain", (-(-count // THREADS), 1, 1), (THREADS, 1, 1), arguments)

    def wrong(extent: Extent, read: ReadArray) -> str | None:
        expected = node_after(chain(nodes(extent.scale)), _hops(extent)) * spacing(extent.scale)
        return difference("the chase ends at byte", int(read("end", 0, 1, "uint64")[0]), expected)

    return Microbenchmark(
        name,
        "global_chase",
        Claim({"LDG.64": HOPS}, most_others=4),
        arrays=lambda e: {"nodes": nodes(e.scale) * spacing(e.scale), "next": chain(nodes(e.scale)), "end": 8},
        arguments=lambda e: ("nodes", "end", np.uint32(e.passes)),
        before=lambda e: (link(e),),
        work_of_launch=_hops,
        wrong=wrong,
        method=lambda e: (
            f"one thread, {_hops(e)} dependent loads of a random chain of {nodes(e.scale)} nodes, "
            f"{spacing(e.scale)} bytes apart, {method}; where it ends compared"
        ),
        blocks="single",
        passes=passes,
        cold=cold,
    )


def _own_word(extent: Extent) -> np.ndarray:
    return np.full(THREADS, _hops(extent) * ADDEND % WORD, np.uint32)


_SPREAD = np.arange(THREADS, dtype=np.uint32)


def _atomic_benchmark(name: str, function: str, wrong: Callable[..., str | None], lanes: int = WARP) -> Microbenchmark:
    """Return the microbenchmark of atomic additions by `lanes` lanes of each warp.

    All lanes add to one word. If the benchmark's name ends in 'spread', each lane adds to a word of its own.
    """
    words, opcode = ("words", "RED|REDG") if function.startswith("global") else ("out", "ATOMS")
    word_index = _SPREAD if name.endswith("spread") else np.zeros(THREADS, np.uint32)
    return Microbenchmark(
        name,
        function,
        Claim({opcode: HOPS}, most_others=4),
        arrays=lambda e: {"place": word_index, words: e.threads * 4},
        numbers=lambda e: (ADDEND,),
        zeroed=(words,) if words == "words" else (),
        work_per_thread=lanes * HOPS / WARP,
        wrong=wrong,
        method=lambda e: (
            f"{e.threads // WARP} warps, {lanes} lane{'s' if lanes > 1 else ''} each, {_hops(e)} additions a lane; the "
            "sums compared"
        ),
    )


def _empty_launch_benchmark(
    name: str, method: str, amount: Callable[[Extent], float] = lambda extent: 1.0, **how: Any
) -> Microbenchmark:
    return Microbenchmark(
        name,
        "empty",
        Claim({"EXIT": 1}, most_others=2, loop=False),
        arrays=lambda e: {},
        arguments=lambda e: (),
        work_of_launch=amount,
        wrong=lambda e, read: None,
        method=lambda e: method.format(launches=e.scale.launches, blocks=e.grid),
        passes=lambda scale: 1,
        **{"blocks": "single", **how},
    )


def _shared_bytes_for_one_block(scale: Scale) -> int:
    """Return a number of bytes of shared memory per block with which a multiprocessor holds only one block: over half
    of the multiprocessor's shared memory."""
    try:
        return multiprocessor(scale.capability).shared_bytes // 2 + 1024
    except UsageError:  # the card is newer than the table of occupancy limits
        return multiprocessor(NEWEST).shared_bytes // 2 + 1024


def _empty_blocks_benchmark(name: str, warps: int, *, alone: bool) -> Microbenchmark:
    """Return the microbenchmark of empty blocks. It measures blocks per second or, with `alone`, the time of a block on
    an SM that holds only one block at a time."""
    title = f"{{blocks}} empty blocks of {warps * WARP} threads"
    how: dict[str, Any] = {"blocks": "empty", "threads": warps * WARP}
    if alone:
        method = f"{title}, one at a time on a multiprocessor by their shared memory"
        return _empty_launch_benchmark(
            name, method, lambda e: e.grid / e.scale.sms, shared=_shared_bytes_for_one_block, **how
        )
    return _empty_launch_benchmark(name, f"{title}, as many at a time as fit", lambda e: float(e.grid), **how)


ALL = (
    # The pointer chase makes almost one full round of the chain, so that it ends at another node than it starts. The
    # chain is larger than the L2; in addition, the L2 is flushed.
    _pointer_chase(
        "memory-latency",
        lambda s: s.memory_nodes,
        lambda s: max(LINE_BYTES, min(s.memory_bytes, 256 << 20) // s.memory_nodes // LINE_BYTES * LINE_BYTES),
        lambda s: s.memory_nodes // HOPS - 1,
        "the L2 flushed before each sample",
        cold=True,
    ),
    _pointer_chase(
        "l2-latency",
        lambda s: s.l2_nodes,
        lambda s: max(LINE_BYTES, min(256, s.l2_bytes // 4 // s.l2_nodes) // LINE_BYTES * LINE_BYTES),
        lambda s: None,
        "past the L1",
    ),
    Microbenchmark(
        "shared-latency",
        "shared_chase",
        Claim({"LDS": HOPS}, most_others=4),
        arrays=lambda e: {"next": chain(NODES), "end": 4},
        work_of_launch=_hops,
        wrong=lambda e, read: difference(
            "the chase ends at node", int(read("end", 0, 1)[0]), node_after(chain(NODES), _hops(e))
        ),
        method=lambda e: (
            f"one thread, {_hops(e)} dependent loads of a random chain of {NODES} words; where it ends compared"
        ),
        blocks="one",
    ),
    _atomic_benchmark(
        "global-atomic-same",
        "global_atomic_same",
        lambda e, read: difference(
            "the word", int(read("words", 0, 1)[0]), e.threads // WARP * _hops(e) * ADDEND % WORD
        ),
        lanes=1,
    ),
    _atomic_benchmark("global-atomic-spread", "global_atomic_spread", each_block(_own_word, "uint32", "words")),
    _atomic_benchmark(
        "shared-atomic-same", "shared_atomic", each_block(lambda e: _own_word(e) * THREADS * (_SPREAD == 0), "uint32")
    ),
    _atomic_benchmark("shared-atomic-spread", "shared_atomic", each_block(_own_word, "uint32")),
    _empty_launch_benchmark(
        "launch-latency", "an empty kernel of one thread, launched and waited for through PyCUDA, by the host's clock"
    ),
    _empty_launch_benchmark(
        "launch-gap", "{launches} empty kernels of one thread, queued before the first starts, between two events"
    ),
    _empty_launch_benchmark(
        "launch-alone", "one empty kernel of one thread, queued before the first of two events is reached"
    ),
    _empty_blocks_benchmark("block-turn", 1, alone=True),
    _empty_blocks_benchmark("block-turn-full", 32, alone=True),
    _empty_blocks_benchmark("block-rate", 1, alone=False),
)
