"""Converts the counts of the native engine to the rows of `count.counters`, with the access patterns of sampled warps.

Module `layout` defines the records of the native engine. PATTERN_EXAMPLE: an access pattern, with the addresses of one
request. PATTERN_COUNTS: the counts of the requests that have one pattern in one execution of an instruction by a block.
WARP_ADDRESSES: the addresses of a warp of the first block in one execution.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.count.counters import NO_ARRAY, ArrayKey, Row
from cudabench.simulator.count.patterns import (
    LINE,
    NEIGHBOURS,
    ONE_PLACE,
    SECTOR,
    UNKNOWN,
    Kind,
    Pattern,
    PatternExample,
    shape,
)
from cudabench.simulator.count.requests import LANES, Steps, thread_steps
from cudabench.simulator.native import layout
from cudabench.simulator.values import Array, Index3, Key

if TYPE_CHECKING:
    from cudabench.simulator.plan import Plan

MOST_PENDING = 8  # this many sampled launches may wait before their rows are computed
_BITS = np.arange(LANES, dtype=np.uint32)


class Samples(NamedTuple):
    """The samples of a launch: arrays of PATTERN_EXAMPLE, PATTERN_COUNTS and WARP_ADDRESSES records of `layout`."""

    examples: Array
    counts: Array
    addresses: Array


def _by_number(records: Array, numbers: Array, *keys: Array) -> dict[int, Array]:
    """Return the records of each memory instruction, keyed by its number; numbers: the number for each record; keys:
    the records are sorted by the last of these arrays, then by the one before it."""
    order = np.lexsort((*keys, numbers))
    found, starts = np.unique(numbers[order], return_index=True)
    return dict(zip(found.tolist(), np.split(records[order], starts[1:]), strict=False))


@dataclass
class KernelHistory:
    """Data from the earlier launches of a kernel with one block size.

    `launches`: the number of these launches; `new_arrays`: how many launches in succession had an instruction that
    accessed an array which it had not accessed before; `accessed`: keys that tell which instructions accessed which
    arrays; `rows`: returns the rows as they were sampled last, keyed by (memory instruction, array, bytes per lane);
    `pending`: how many sampled launches wait until their rows are computed.
    """

    launches: int = 0
    new_arrays: int = 0
    accessed: set[Key] = field(default_factory=set)
    rows: Callable[[], Mapping[tuple[int, ArrayKey, int], Row]] = dict
    pending: int = 0


class LaneCounts(NamedTuple):
    """The counts of a launch for each memory instruction and array, and the access patterns of its lanes.

    Patterns are sampled in launches 1, 4, 16 and so on of a kernel, and in launches that access other arrays. Other
    launches get the patterns that were sampled last.
    """

    counts: Array  # records of `layout.COUNTS`, of shape (memory instructions, arrays)
    plan: Plan
    issued: Mapping[int, tuple[int, int]]  # see `Counters`
    last: Callable[[], Mapping[tuple[int, ArrayKey, int], Row]]  # see `KernelHistory.rows`

    def rows(self) -> dict[tuple[int, ArrayKey], Row]:
        """Return the rows, keyed by (memory instruction, array).

        If the lanes of an instruction accessed several arrays, it has one row, whose array is a tuple.
        """
        rows = {}
        for number, array, size, reloads, totals in self.counted():
            last = self.last()[number, array, size]
            patterns = dict(zip(last.patterns, _parts(totals, [*last.patterns.values()]), strict=True))
            rows[number, array] = Row(number, array, patterns, reloads, last.step)
        return rows

    def sampled_rows(self, samples: Samples) -> dict[tuple[int, ArrayKey, int], Row]:
        """Return the rows with the patterns of this launch, keyed as in `last`."""
        examples, counts, addresses = samples
        numbers = examples["number"][counts["pattern"]]
        counts_of = _by_number(counts, numbers, counts["pattern"], counts["execution"])
        addresses_of = _by_number(addresses, addresses["number"], addresses["execution"])
        rows = {}
        for number, array, size, reloads, totals in self.counted():
            own = counts_of.get(number, counts[:0]), addresses_of.get(number, addresses[:0])
            rows[number, array, size] = row = Row(number, array, reloads=reloads)
            _RowFiller(row, self.plan, size, Samples(examples, *own)).fill(totals)
        return rows

    def totals(self) -> dict[tuple[int, ArrayKey], list[int]]:
        """Return [requests, pieces, ideal pieces], keyed by (memory instruction, array)."""
        return {(number, array): totals for number, array, _, _, totals in self.counted()}

    def accessed(self) -> Array:
        """Return a mask of shape (memory instructions, arrays): whether lanes of the instruction accessed the array."""
        return (self.counts["requests"] | self.counts["beside"]) != 0

    def counted(self) -> Iterator[tuple[int, ArrayKey, int, int, list[int]]]:
        """Yield, for each memory instruction that accessed something, its number, the array, the bytes per lane, the
        reloads, and [requests, pieces, ideal pieces]."""
        pairs = zip(*(index.tolist() for index in np.nonzero(self.accessed())), strict=True)
        places = {number: [place for _, place in group] for number, group in groupby(pairs, itemgetter(0))}
        values = self.counts.view(np.int64).reshape(*self.counts.shape, len(layout.COUNTS.names or ()))
        sums = values[[*places]].sum(axis=1)
        for (number, own), (*totals, _, reloads, _) in zip(places.items(), sums.tolist(), strict=True):
            access = self.plan.code.accesses[number]
            array: ArrayKey = NO_ARRAY if access.space == "local" else own[0] if len(own) == 1 else tuple(own)
            yield number, array, self.issued.get(number, (0, access.size))[1], reloads, totals


def must_sample(plan: Plan) -> bool:
    """Count the next launch of a plan; return whether it must be sampled, as far as this is known before the launch."""
    history: KernelHistory = plan.code.sampling_history.setdefault(plan.block, KernelHistory())
    history.launches += 1
    power_of_four = history.launches.bit_count() == 1 and history.launches.bit_length() % 2 == 1
    return history.new_arrays > 2 or power_of_four


def lane_counts(
    library: Any, handle: Any, counts: Array, plan: Plan, issued: Mapping[int, tuple[int, int]], sampled: bool
) -> LaneCounts | None:
    """Return the `LaneCounts` of a launch that has ended.

    counts: as in `LaneCounts`; sampled: whether the launch was sampled. Return None if the launch was not sampled, but
    accessed arrays that no sampled launch has accessed: then the launch must run again with sampling.
    """
    history = plan.code.sampling_history[plan.block]
    lanes = LaneCounts(counts, plan, issued, history.rows)
    mask = lanes.accessed()
    exact = mask.tobytes(), *issued.items()
    keys = {exact}
    if sampled or exact not in history.accessed:
        # This key stays equal for the same regions when the address space grows.
        keys.add((*(indices.tobytes() for indices in np.nonzero(mask)), *issued.items()))
    is_new = keys.isdisjoint(history.accessed)
    history.new_arrays = history.new_arrays + 1 if is_new else 0
    if not sampled and is_new:
        return None
    history.accessed |= keys
    if sampled:
        before, samples = history.rows, _read_samples(library, handle)
        history.rows = lru_cache(1)(lambda: {**before(), **lanes.sampled_rows(samples)})
        history.pending += 1
        if history.pending == MOST_PENDING:
            rows = history.rows()
            history.rows, history.pending = lambda: rows, 0
    return lanes._replace(last=history.rows)


def _read_samples(library: Any, handle: Any) -> Samples:
    """Return the samples of a launch that has ended."""
    sizes = ctypes.c_int64(), ctypes.c_int64()
    library.cudabench_patterns(handle, None, ctypes.byref(sizes[0]), None, ctypes.byref(sizes[1]))
    examples = np.zeros(sizes[0].value, layout.PATTERN_EXAMPLE)
    counts = np.zeros(sizes[1].value, layout.PATTERN_COUNTS)
    first, second = (ctypes.c_void_p(array.ctypes.data) for array in (examples, counts))
    library.cudabench_patterns(handle, first, ctypes.byref(sizes[0]), second, ctypes.byref(sizes[1]))
    library.cudabench_warp_addresses.restype = ctypes.c_int64
    addresses = np.zeros(library.cudabench_warp_addresses(handle, None, ctypes.c_int64(0)), layout.WARP_ADDRESSES)
    library.cudabench_warp_addresses(handle, ctypes.c_void_p(addresses.ctypes.data), ctypes.c_int64(len(addresses)))
    return Samples(examples, counts, addresses)


class _RowFiller:
    """Fills one row from the samples: the patterns of its warps, and the addresses of the first block's warps."""

    def __init__(self, row: Row, plan: Plan, size: int, samples: Samples) -> None:
        access = plan.code.accesses[row.number]
        self.row, self.space, self.size = row, access.space, size
        self.by_data = access.location.ptx_line in plan.flow.data_dependent_addresses
        self.atomic = access.kind == "atomic"
        self.examples, self.counts, self.addresses = samples
        self.threads = _threads(plan.block)

    @cached_property
    def axes(self) -> Steps | None:
        """The result of `_axes`; None if the addresses depend on data."""
        return None if self.by_data else _axes(self.addresses[self.addresses["execution"] == 0], self.threads)

    def fill(self, totals: Sequence[int]) -> None:
        """Fill in the row's patterns with their counts, and the addresses of its executions.

        totals: the row's requests, pieces and ideal pieces, which are divided among the patterns.
        """
        counted: dict[Any, list[int]] = {}  # [requests, pieces, ideal pieces], by the key of a pattern
        numbers = dict.fromkeys(self.counts["pattern"].tolist())
        keys = {number: self.key(self.examples[number]) for number in numbers}
        by_key: dict[Any, list[int]] = {}  # the numbers of the examples with each key
        for number, key in keys.items():
            by_key.setdefault(key, []).append(number)
        for number, group in groupby(self.counts.tolist(), itemgetter(1)):
            execution = [(keys[pattern], many) for pattern, _, *many in group]
            for key, many in execution if number == layout.MOST_EXECUTIONS else [_most_common(execution)]:
                own = counted.setdefault(key, [0, 0, 0])
                own[:] = map(add, own, many)
        patterns = [self.example_of(key, self.examples[by_key[key]]) for key in counted] or [UNKNOWN]
        for each, many in zip(patterns, _parts(totals, [*counted.values()] or [[1, 1, 1]]), strict=True):
            own = self.row.patterns.setdefault(each, [0, 0, 0])
            own[:] = map(add, own, many)
        if self.space == "global" and not self.atomic:
            self.find_step()

    def key(self, record: Any) -> Any:
        """Return a key for a PATTERN_EXAMPLE; examples with equal keys count as one pattern."""
        if record["kind"] != layout.WARP or self.space == "local":
            return int(record["kind"]), int(record["mask"]) if record["kind"] == layout.ONE_PLACE else 0
        on, addresses = _lanes(record["mask"]), record["addresses"]
        apart = on.tolist() if on[-1] - on[0] >= len(on) else []
        return shape(addresses[on].tolist(), self.size, apart), len(on), bool(apart)

    def example_of(self, key: Any, records: Array) -> PatternExample:
        """Return the `PatternExample` for all PATTERN_EXAMPLE records that have this key."""
        first = records[0]
        lanes = int(first["mask"])
        if first["kind"] == layout.REST:
            return UNKNOWN
        if self.space == "local":
            uniform = first["kind"] == layout.ONE_PLACE and lanes == LANES
            return NEIGHBOURS.get(self.size, UNKNOWN) if uniform else UNKNOWN
        if first["kind"] == layout.ONE_PLACE:
            moves = bool(first["varies"]) and self.space == "global"
            if not moves or self.atomic or self.by_data:
                return ONE_PLACE[lanes]
            start = int(first["addresses"][0])
            moved = moves and bool((records["addresses"][:, 0] - start).any())
            kind: Kind = "broadcast" if lanes > 1 else "single"
            pattern = Pattern(kind, 0, LANES if lanes > 1 else 1, 0, start % LINE, moved, lanes, (0, 0, 0))
            return PatternExample(pattern, (start,) * lanes + (None,) * (LANES - lanes))
        chosen: Pattern = key[0]
        active, gaps = key[1:]
        places = records["addresses"][records["mask"] & 1 == 1, 0]
        varies = bool(((places - places[:1]) % SECTOR).any() or records["varies"].any())
        on, addresses = _lanes(lanes), first["addresses"].tolist()
        example = [None] * LANES
        for lane in on.tolist():
            example[lane] = addresses[lane]
        offset = int(first["addresses"][on].min()) % LINE
        if chosen.kind == "gather":
            offset, varies = 0, True
        axes = None if self.atomic or self.space == "constant" else self.axes
        return PatternExample(Pattern(*chosen[:4], offset, varies, active, axes, gaps), tuple(example))

    def find_step(self) -> None:
        """Record the addresses of the first block's executions in the row, which computes its step from them."""
        examples = self.examples[self.counts["pattern"]]
        if ((examples["kind"] == layout.ONE_PLACE) & (examples["varies"] == 0)).any():
            return  # if all lanes access one address, this row has no step, as on the NumPy engine
        for record in self.addresses[self.addresses["warp"] == 0]:
            self.row.record_addresses(record["addresses"], record["mask"] >> _BITS & 1)


def _most_common(execution: list[tuple[Any, list[int]]]) -> tuple[Any, list[int]]:
    """Return the key that most requests of an execution have, and the sums of all counts of the execution.

    The NumPy engine also gives each execution only one pattern.
    """
    requests: dict[Any, int] = {}
    for key, many in execution:
        requests[key] = requests.get(key, 0) + many[0]
    return max(requests, key=lambda key: requests[key]), [*map(sum, zip(*(many for _, many in execution), strict=True))]


def _lanes(mask: Any) -> Array:
    return np.flatnonzero(np.uint32(mask) >> _BITS & 1)


@lru_cache(64)
def _threads(block: Index3) -> Array:
    """Return threadIdx of all threads of a block, of shape (threads, 3)."""
    number = np.arange(block[0] * block[1] * block[2])
    return np.stack([number % block[0], number // block[0] % block[1], number // (block[0] * block[1])], axis=1)


def _axes(addresses: Array, threads: Array) -> Steps | None:
    """Return the result of `thread_steps` for the first block.

    addresses: the WARP_ADDRESSES of each warp's first execution; threads: from `_threads`.
    """
    if not len(addresses):
        return None
    warp, lane = np.nonzero(addresses["mask"][:, None] >> _BITS & 1)
    index, places = threads[addresses["warp"][warp] * LANES + lane], addresses["addresses"][warp, lane]
    return thread_steps(index, places)


def _parts(totals: Sequence[int], weights: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return [requests, pieces, ideal pieces] of each pattern: the totals, divided in proportion to the weights."""
    if len(weights) == 1:
        return [[*totals]]
    each = [_divided(total, [weight[place] for weight in weights]) for place, total in enumerate(totals)]
    return [[*many] for many in zip(*each, strict=True)]


def _divided(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole numbers with sum `total`, in proportion to the weights (largest remainder method)."""
    if not sum(weights):
        return [total, *[0] * (len(weights) - 1)]
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    most_left = sorted(range(len(weights)), key=lambda place: -(total * weights[place] % whole))
    for place in most_left[: total - sum(parts)]:
        parts[place] += 1
    return parts
