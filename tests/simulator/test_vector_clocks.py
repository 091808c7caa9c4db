"""Order between blocks by fences and flags: the vector clocks, the races that they find, and the limits of the
search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from cudabench.simulator.check import vector_clocks
from cudabench.simulator.check.vector_clocks import VectorClocks

Launch = Callable[..., simulator.Report]
BLOCKS, WORDS = 6, 4
SOURCE = 'extern "C" __global__ void k(int *x, int *y, int *f) { if (threadIdx.x == 0) { %s } }'
ZEROS = (np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32))


class Plain:
    """A reference for the clocks: lists of numbers, one block after the other."""

    def __init__(self) -> None:
        self.heard, self.clock = ([[0] * (BLOCKS + 1) for _ in range(BLOCKS + 1)] for _ in range(2))
        self.fenced = [0] * (BLOCKS + 1)
        self.words: list[list[int]] = [[] for _ in range(WORDS)]

    def own(self, block: int) -> list[int]:
        """Return the clock that a store of this block publishes."""
        if not self.fenced[block]:
            return []
        return [self.fenced[block] if other == block else time for other, time in enumerate(self.clock[block])]

    def settle(self, block: int) -> None:
        """Set the clock of a block to all that it has read."""
        self.clock[block] = list(self.heard[block])

    def hear(self, block: int, word: int) -> None:
        """Add the clock of a word to those that a block has read."""
        self.heard[block] = joined(self.heard[block], self.words[word])

    def do(self, what: str, pairs: list[tuple[int, int]], now: int) -> None:
        """Apply one operation to several blocks, each with its word."""
        announced = [self.own(block) for block, _ in pairs]
        blocks = [block for block, _ in pairs]
        if what in ("look", "acquire"):
            for block, word in pairs:
                self.hear(block, word)
        elif what in ("write", "update", "red"):
            for (block, word), row in zip(pairs, announced, strict=True):
                if what == "update":
                    self.hear(block, word)
                self.words[word] = row if what == "write" else joined(self.words[word], row)
        elif what == "fence":
            for block in blocks:
                self.fenced[block] = now
        else:
            blocks = list(range(1, BLOCKS + 1))
        for block in blocks if what in ("fence", "acquire", "update", "barrier") else ():
            self.settle(block)


def joined(one: list[int], other: list[int]) -> list[int]:
    """Return the elementwise maximum of two clocks."""
    return [max(pair) for pair in zip(one, other, strict=True)] if one and other else list(one or other)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_clocks_are_those_of_a_plain_count(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """VectorClocks equal the reference after random fences, stores, reads, updates and barriers of several blocks, with
    little memory."""
    monkeypatch.setattr(vector_clocks, "MOST_BYTES", 40 * 4 * (BLOCKS + 1))
    rng = np.random.default_rng(seed)
    ours, plain = VectorClocks(BLOCKS), Plain()
    for _ in range(200):
        ours.now += 1
        blocks = np.sort(rng.choice(np.arange(1, BLOCKS + 1), rng.integers(1, 4), replace=False)).astype(np.int32)
        places = rng.integers(0, WORDS, blocks.size)
        pairs = list(zip(blocks.tolist(), places.tolist(), strict=True))
        what = rng.choice(["fence", "write", "look", "acquire", "update", "red", "barrier"])
        if what == "fence":
            ours.fence(blocks)
        elif what == "write":
            ours.write(0, WORDS, places, blocks)
        elif what in ("look", "acquire"):
            ours.read(0, places, blocks, what == "acquire")
        elif what == "barrier":
            ours.barrier()
        else:
            ours.update(0, WORDS, places, blocks, what == "update")
        plain.do(what, pairs, ours.now)
        every = [(block, other) for block in range(1, BLOCKS + 1) for other in range(1, BLOCKS + 1) if other != block]
        mine, others = np.array(every).T
        for stores, rows in ((False, plain.clock), (True, plain.heard)):
            times = np.array([rows[block][other] for block, other in every])
            assert ours.before(mine, others, times, stores).all()
            assert not ours.before(mine, others, times + 1, stores).any()


def run(launch: Launch, body: str, grid: int = 4) -> list[tuple[str, str]]:
    """Run a body with one thread per block (b), on (int *x, int *y, int *f) of zeros; return kinds and messages."""
    body = f"int b = blockIdx.x; volatile int *v = f; {body}"
    report = launch(SOURCE % body, grid, 32, [each.copy() for each in ZEROS], names=["x", "y", "f"])
    return [(hazard.kind, hazard.message) for hazard in report.hazards]


WRITES = "if (b == 0) { x[0] = 5; __threadfence(); %s }"
POLLS = "if (b == 1) { while (%s) ; __threadfence(); y[0] = x[0]; }"


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "body",
    [
        WRITES % "v[0] = 1;" + POLLS % "v[0] == 0",
        WRITES % "atomicExch(f, 1);" + POLLS % "v[0] == 0",
        WRITES % "v[0] = 1;" + POLLS % "atomicAdd(f, 0) == 0",
        WRITES % "atomicOr(f, 4);" + POLLS % "atomicCAS(f, 9, 9) == 0",
        # A third block updates the word without a fence: the word keeps the clock that block 0 published.
        WRITES % "atomicAdd(f, 1);"
        + "if (b == 2) { while (v[0] == 0) ; atomicAdd(f, 1); }"
        + POLLS % "v[0] < 2",
        # A block that reads the flag passes the order on by another flag.
        WRITES % "v[0] = 1;"
        + "if (b == 2) { while (v[0] == 0) ; __threadfence(); v[1] = 1; }"
        + POLLS % "v[1] == 0",
        # A thread's store cannot take place before the poll that it depends on, even without a fence.
        WRITES % "v[0] = 1;" + "if (b == 1) { while (v[0] == 0) ; x[0] = 7; }",
        # All blocks read before the last block writes.
        "y[b] = x[0]; __threadfence(); if (atomicAdd(f, 1) == gridDim.x - 1) x[0] = 7;",
        "while (atomicCAS(f, 0, 1)) ; __threadfence(); x[0] = x[0] + b; __threadfence(); v[0] = 0;",
    ],
)  # fmt: skip
def test_a_chain_orders(launch: Launch, body: str) -> None:
    """A fence and a flag of the writer, then a read of the flag and a fence of the reader, order the accesses: no
    race."""
    assert run(launch, body) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (WRITES % "" + "__threadfence(); if (b == 1) y[0] = x[0];", "race", "reads x[0]"),
        (WRITES % "v[0] = 1;" + POLLS % "v[1] == 7", "race", "block (1, 0, 0) reads"),
        ("if (b == 0) { x[0] = 5; v[0] = 1; }" + POLLS % "v[0] == 0", "missing-fence", "and then a flag, without"),
        (
            WRITES % "v[0] = 1;" + "if (b == 1) { while (v[0] == 0) ; y[0] = x[0]; }",
            "missing-fence",
            "The thread has read the flag, but without __threadfence() before this read",
        ),
        (WRITES % "v[0] = 1; x[0] = 6;" + POLLS % "v[0] == 0", "race", "reads x[0]"),
        ("y[b] = x[0]; __threadfence(); if (b == 3) x[0] = 7;", "race", "writes x[0]"),
        ("atomicAdd(x, b); __threadfence(); y[b] = x[0];", "race", "which block (3, 0, 0) updates"),
        # A word that a thread polls carries the ordering of the last store to it, not that of an earlier store.
        (
            WRITES % "v[0] = 1;" + "if (b == 2) { while (v[0] == 0) ; v[0] = 2; }" + POLLS % "v[0] != 2",
            "race",
            "reads x[0]",
        ),
    ],
)
def test_a_broken_chain_does_not(launch: Launch, body: str, kind: str, text: str) -> None:
    """If a step of the chain is missing, or the reader polls another word, the accesses are a hazard, whose message
    names the missing step."""
    found = run(launch, body)
    assert [one for one, _ in found] == [kind]
    assert text in found[0][1]


READS = """\
extern "C" __global__ void k(int *x, int *y, int *f) {
    __shared__ int s[32];
    volatile int *v = f;
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        int got = x[t];
        BEFORE
        if (t == 0) v[0] = 1;
        AFTER
    } else {
        if (t == 0) while (v[0] == 0) ;
        __syncthreads();
        x[t] = 7;
        __threadfence();
    }
}
"""


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ("s[t] = got; __syncthreads();", "y[t] = s[31 - t];", []),
        ("__syncthreads();", "y[t] = got;", ["race"]),
        ("s[t] = got;", "__syncthreads(); y[t] = s[31 - t];", ["race"]),
    ],
)
def test_a_flag_orders_loads_that_are_over(launch: Launch, before: str, after: str, kinds: list[str]) -> None:
    """A flag after a barrier orders loads whose values were used before the barrier, without a fence. It orders no load
    whose value is used later, and without the barrier only loads of its own thread would be over."""
    report = launch(READS.replace("BEFORE", before).replace("AFTER", after), 2, 32, [each.copy() for each in ZEROS])
    assert [hazard.kind for hazard in report.hazards] == kinds
    assert all("writes element" in hazard.message for hazard in report.hazards)


def test_where_the_search_ends_is_told(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more waiting blocks than the limit, the simulator does not search for races and says so; without flags there
    is no limit."""
    monkeypatch.setattr(vector_clocks, "MOST_BLOCKS", 3)
    counted = "x[blockIdx.x] = 1; __threadfence(); if (atomicAdd(f, 1) == 3) y[0] = x[0] + x[5];"
    report = launch(SOURCE % counted, 4, 32, [each.copy() for each in ZEROS])
    assert report.hazards == ()
    assert [(one.kind, one.line) for one in report.suspicions] == [("unsearched", 1)]
    assert "4 blocks that may wait for each other are over the limit of 3" in report.suspicions[0].message
    alone = "x[blockIdx.x] = 1; __threadfence(); y[blockIdx.x] = x[(blockIdx.x + 1) % 4];"
    report = launch(SOURCE % alone, 4, 32, [each.copy() for each in ZEROS])
    assert [one.kind for one in report.hazards] == ["race"]
    assert report.suspicions == ()


def test_blocks_that_hear_of_each_other_too_often(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for races ends with a suspicion after too many updates of the clocks."""
    monkeypatch.setattr(vector_clocks, "MOST_UPDATES", 10)
    body = "while (atomicCAS(f, 0, 1)) ; __threadfence(); x[0] = x[0] + 1; __threadfence(); atomicExch(f, 0);"
    report = launch(SOURCE % body, 9, 32, [each.copy() for each in ZEROS])
    assert report.hazards == ()
    assert "blocks waited for each other more than 10 times: take a smaller problem" in report.suspicions[0].message


def test_a_region_that_is_too_large_is_told_once(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that is too large for the search for races is reported once, with its size."""
    monkeypatch.setattr("cudabench.simulator.check.grid_races.MOST_GRANULES", 32)
    source = 'extern "C" __global__ void k(int *x) { x[blockIdx.x] = 1;\nx[3 - blockIdx.x] += 1; }'
    report = launch(source, 4, 1, [ZEROS[0].copy()], names=["x"])
    assert report.hazards == ()
    (found,) = report.suspicions
    assert (found.kind, found.line) == ("too-large", 1)
    assert "in arrays of at most 128 bytes, and 'x' has 256" in found.message
