"""Gives advice for a wasteful memory access: rules make one sentence from the access's counts and its access pattern.

The rules compare an access with the kernel's other accesses to the same array. Bytes between two lanes are not waste if
another access of the same threads uses them. A misaligned read of a row is not reported if another access reads the row
aligned (a stencil). Padding of a tile is advised only if it reduces the wavefronts of all accesses to the tile, summed.

A row is the simulator's record of one access.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from itertools import count

import numpy as np

from cudabench.records.launch import Dim
from cudabench.simulator.count import banks
from cudabench.simulator.count.patterns import Pattern
from cudabench.simulator.heap import PLACED
from cudabench.simulator.report import Access, Branch, Imbalance, PatternCount

SECTOR = 32
CONTENDED = 256  # advice is given if one address gets at least this many atomics, and several from each block
NOTABLE_RATIO = 1.1  # advice is given if the actual cost is at least this many times the ideal cost
LEAST_SHARE = 0.005  # waste is reported if it is at least this share of the kernel's sectors and wavefronts
WIDEST = 16  # the most bytes that one instruction can move for a lane
# Lanes at least this many bytes apart are assumed to read a column; nearer lanes, to skip elements of a row.
NEAR_BYTES = 128
ROW_STRIDE = 32  # the advice assumes that lanes at least this many bytes apart are in different rows of a tile
MOST_PADDING = 8  # the most elements of padding that are advised for a row of a tile
LANES = 32
LEAST_IDLE_SHARE = 0.2  # divergence is reported if idle lanes waste at least this share of a launch's instructions
FEW_LANES = 2  # if on average fewer lanes of a warp are active, the advice assumes that only one lane works
LEAST_COMBINED_LANES = 4  # the advice to combine lanes is given if at least this many lanes of a warp access one word
MAJORITY = 0.5  # the advice names a source line that causes more than this share of the difference between blocks
MOST_TABLE_BYTES = 48 << 10  # the largest table, in bytes, for which shared memory is advised
_VERBS = {"load": "read", "store": "write", "atomic": "update", "reduction": "update"}
_ATOMIC = ("atomic", "reduction")
_NOUNS = {"load": "loads of", "store": "stores to", "atomic": "atomics on", "reduction": "reductions on"}


def advise(rows: Sequence[Access], blocks: Mapping[str, Dim]) -> tuple[str | None, ...]:
    """Return a tuple with the advice for each access in `rows`, or None where a change would save little.

    `blocks`: by kernel name, the thread block's sides (x, y, z).
    """
    strides: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for row in rows:
        strides[_location_key(row)] |= _wasteful_strides(row) if row.space == "shared" else set()
    # An unrolled loop has several copies of one access. They are treated as one access, even if their strides differ.
    keys = [_location_key(row) if len(strides[_location_key(row)]) > 1 else _pattern_key(row) for row in rows]
    groups: dict[tuple[object, ...], list[Access]] = defaultdict(list)
    for row, key in zip(rows, keys, strict=True):
        groups[key].append(row)
    sentences = {key: _sentence(reduce(Access.plus, group), rows, blocks) for key, group in groups.items()}
    return tuple(
        sentences[key] if key != _location_key(row) or _excess_cost(row) else None
        for row, key in zip(rows, keys, strict=True)
    )


def _sentence(row: Access, rows: Sequence[Access], blocks: Mapping[str, Dim]) -> str | None:
    """Return the advice for one access, or None; `rows`: all accesses of the launches."""
    kernel_accesses = [access for access in rows if access.kernel == row.kernel]
    array_accesses = [access for access in kernel_accesses if (access.space, access.array) == (row.space, row.array)]
    block = blocks.get(row.kernel, (32, 1, 1))
    if row.inexact == PLACED:
        return None
    if row.space == "local":
        return _local(array_accesses)
    if _excess_cost(row) < LEAST_SHARE * sum(map(_actual_cost, kernel_accesses)):
        return _atomics(row) if row.op in _ATOMIC else None
    if row.space == "shared":
        return _shared(row, array_accesses, block)
    if row.space == "constant":
        return _constant(row, kernel_accesses)
    return _global(row, array_accesses, kernel_accesses, block) if row.space == "global" else None


def _first(*rules: tuple[object, str | None]) -> str | None:
    """Return the sentence (or None) of the first rule that holds, or None."""
    return next((sentence for holds, sentence in rules if holds), None)


def _location_key(row: Access) -> tuple[object, ...]:
    return (row.kernel, row.file, row.line, row.space, row.op, row.bytes, row.array)


def _wasteful_strides(row: Access) -> set[int]:
    """Return the strides, in bytes, of those patterns of an access that are wasteful."""
    return {
        abs(counts.pattern.stride)
        for counts in row.patterns
        if counts.pieces > NOTABLE_RATIO * counts.ideal and counts.pattern.kind == "stride"
    }


def _pattern_key(row: Access) -> tuple[object, ...]:
    """Return a key that is equal for accesses that get the same advice, such as unrolled copies of a line."""
    return (*_location_key(row), _shape(worst(row).pattern) if row.patterns else None)


def _shape(pattern: Pattern) -> tuple[object, ...]:
    return (pattern.kind, pattern.stride, pattern.run, pattern.jump)


def worst(row: Access) -> PatternCount:
    """Return the counts of an access's most wasteful pattern, or of its most frequent one if none is wasteful."""
    return max(row.patterns, key=lambda counts: (counts.pieces - counts.ideal, counts.requests))


def _actual_cost(row: Access) -> int:
    return (row.wavefronts if row.wavefronts is not None else row.sectors) or 0


def _ideal_cost(row: Access) -> int:
    return (row.ideal_wavefronts if row.wavefronts is not None else row.ideal_sectors) or 0


def _excess_cost(row: Access) -> int:
    return _actual_cost(row) - _ideal_cost(row)


def _is_wasteful(row: Access) -> bool:
    return _ideal_cost(row) > 0 and _actual_cost(row) >= NOTABLE_RATIO * _ideal_cost(row)


def name(row: Access) -> str:
    """Return the name of the accessed array, or of the memory if the array is unknown."""
    return row.array or {"shared": "shared memory", "local": "local memory"}.get(row.space, "memory")


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 1000 else f"{value:.3g}"


def _mean(row: Access, count: int | None) -> str:
    """Return a count divided by the number of requests, as text."""
    return _number((count or 0) / max(row.requests, 1))


def _cost_clause(row: Access, ideal: str = "") -> str:
    """Return the clause that compares the cost of an access with the ideal: 'loads of x touch 32 sectors where 4 would
    do'."""
    verb, unit = ("touch", "sectors") if row.wavefronts is None else ("take", "wavefronts")
    best = ideal or _mean(row, _ideal_cost(row))
    return f"{_NOUNS[row.op]} {name(row)} {verb} {_mean(row, _actual_cost(row))} {unit} where {best} would do"


# Local memory -------------------------------------------------------------------------------------------------------


def _local(rows: Sequence[Access]) -> str:
    """Return the advice for a kernel's arrays in local memory; `rows`: all accesses to local memory."""
    by_data = (
        "data index an array of the thread, so registers cannot hold it, even if loops are unrolled; compare with each "
        "index instead, or keep the array in shared memory, with the elements of neighbouring threads side by side"
    )
    by_index = "an array is there if an index is not a constant; unroll the loops over it, or keep it in shared memory"
    return (
        f"{_number(sum(row.sectors or 0 for row in rows) * SECTOR)} bytes are moved to or from local memory, "
        "which is in device memory; registers would move none: "
        f"{by_data if any(row.by_data for row in rows) else by_index}"
    )


# Global memory ------------------------------------------------------------------------------------------------------


def _global(row: Access, array_accesses: Sequence[Access], kernel_accesses: Sequence[Access], block: Dim) -> str | None:
    counts = worst(row)
    kind = counts.pattern.kind
    if row.op in _ATOMIC and kind in ("broadcast", "gather"):
        return _atomics(row)
    # Gaps between contiguous lanes belong to inactive lanes: a branch causes them, not the memory layout.
    if not _is_wasteful(row) or (counts.pattern.gaps and kind == "contiguous"):
        return None
    if kind in ("contiguous", "permutation"):
        return _misaligned(row, counts, array_accesses)
    if kind == "rows":
        return _rows(row, counts, array_accesses, block)
    if kind == "stride":
        return _strided(row, counts, array_accesses, kernel_accesses, block)
    return _gather(row, counts) if kind == "gather" else None


def _misaligned(row: Access, counts: PatternCount, array_accesses: Sequence[Access]) -> str | None:
    """Return advice for contiguous lanes that do not start at a sector boundary; None if they belong to a stencil."""
    pattern = counts.pattern
    if pattern.varies:
        starts = {other.first for other in array_accesses if other.op == row.op and other.bytes == row.bytes}
        # Padding the pitch does not help for a halo of a tile, or for rows that step by whole sectors.
        halo = pattern.axes is None or (pattern.jump and pattern.jump % SECTOR == 0)
        beside = len(starts) > 1 and row.first != min(starts, key=lambda start: (start - row.start) % SECTOR)
        cure = "they do not start at a multiple of 32 bytes; pad the pitch of the rows to one"
        return None if halo or beside else f"{_cost_clause(row)}: {cure}"
    other_patterns = (item.pattern for other in array_accesses for item in other.patterns)
    aligned = any(
        other.kind in ("contiguous", "rows", "permutation") and not other.varies and other.offset % SECTOR == 0
        for other in other_patterns
    )
    several = len({p.pattern.offset % SECTOR for p in row.patterns if p.pattern.kind == pattern.kind}) > 1
    start = pattern.offset % SECTOR
    cure = f"they start {start} bytes after a multiple of 32 bytes; let thread 0 begin at one"
    return None if aligned or several else f"{_cost_clause(row)}: {cure}"


def _rows(row: Access, counts: PatternCount, array_accesses: Sequence[Access], block: Dim) -> str | None:
    """Return advice for a warp whose lanes form several runs of contiguous lanes. The cause is a narrow block, or rows
    that do not start at a sector boundary."""
    pattern, verb = counts.pattern, _VERBS[row.op]
    taken = pattern.run * row.bytes
    runs = -(-pattern.lanes // pattern.run)
    if taken >= SECTOR and (taken % SECTOR == 0 or counts.pieces > runs * -(-taken // SECTOR) * counts.requests):
        return _misaligned(row, counts, array_accesses)
    need = next(lanes for lanes in count(pattern.run) if lanes * row.bytes % SECTOR == 0)
    narrow = f"a block of {pattern.run} threads in x {verb}s {taken} bytes of each row; make it {need} wide"
    few = f"{pattern.run} neighbouring threads {verb} {taken} bytes of a row; let {need} of them share one"
    return _first(
        (not pattern.jump or _used_bytes(row, array_accesses, abs(pattern.jump), taken) >= abs(pattern.jump), None),
        (True, f"{_cost_clause(row)}: {narrow if pattern.run == block[0] else few}"),
    )


def _strided(
    row: Access, counts: PatternCount, array_accesses: Sequence[Access], kernel_accesses: Sequence[Access], block: Dim
) -> str | None:
    """Return advice for lanes with a stride: the lanes read a column, or one field of structures, or each lane reads a
    range of memory of its own."""
    before, strides = _cost_clause(row), _wasteful_strides(row)
    if len(strides) > 1:
        return f"{before}: {_distances_clause(strides)}; let them take neighbouring elements"
    stride, verb, axes = abs(counts.pattern.stride), _VERBS[row.op], counts.pattern.axes
    covered = _used_bytes(row, array_accesses, stride, row.bytes)
    if covered >= 0.9 * stride:
        return _narrow_accesses(row, stride, array_accesses)
    column = f"neighbouring threads {verb} a column, {_number(stride)} bytes apart"
    # The axis of threadIdx (1: y, 2: z) along which threads read neighbouring elements of a row, else 0.
    along = next((axis for axis in (1, 2) if axes and abs(axes[axis]) == row.bytes), 0)
    return _first(
        (
            axes and block[0] == 1 and max(block[1:]) > 1 and row.bytes not in map(abs, axes),
            f"{before}: a block of 1 thread in x {verb}s {row.bytes} bytes of each row; make it 32 wide",
        ),
        (
            # The index uses threadIdx.x as row and not threadIdx.y. With x and y exchanged, a warp reads one row.
            axes
            and axes[1] == 0
            and _has_row_access(kernel_accesses, 1, 0)
            and not _has_row_access(kernel_accesses, 0, 1),
            f"{_cost_clause(row, '1')}: {column}; exchange threadIdx.x and threadIdx.y, so that all lanes {verb} the "
            "same element",
        ),
        (
            along and _has_row_access(kernel_accesses, 0, along),
            f"{before}: {column}; transpose a tile in shared memory, so that they {verb} a row",
        ),
        (
            along,
            f"{before}: {column}; let threadIdx.x run along a row, and threadIdx.{'xyz'[along]} down the column",
        ),
        (
            0 < abs(row.step) < stride,
            f"{before}: each thread has a range of its own, {_number(stride)} bytes from its neighbour's; let the "
            "lanes of a warp share one range, or transpose a tile in shared memory",
        ),
        (
            stride < NEAR_BYTES,
            f"{before}: {covered} of every {stride} bytes are used; keep together what is "
            f"{'read' if row.op == 'load' else 'written'} together: an array for each field instead of structures",
        ),
        (True, f"{before}: {column}; let threadIdx.x run along a row, or transpose a tile in shared memory"),
    )


def _distances_clause(strides: Collection[int]) -> str:
    return f"neighbouring threads are {' or '.join(map(_number, sorted(strides)[:4]))} bytes apart"


def _has_row_access(kernel_accesses: Sequence[Access], row_axis: int, col_axis: int) -> bool:
    """Return whether any access to global memory moves along a row with threadIdx axis `row_axis` (0 is x), and down a
    column with axis `col_axis`."""
    patterns = ((row, worst(row).pattern.axes) for row in kernel_accesses if row.space == "global")
    return any(axes and abs(axes[row_axis]) == row.bytes and abs(axes[col_axis]) > row.bytes for row, axes in patterns)


def _used_bytes(row: Access, array_accesses: Sequence[Access], period: int, span: int) -> int:
    """Return how many of the `period` bytes between two lanes this access (`span` bytes) and similar accesses use."""
    starts = {row.first: span}
    own = worst(row).pattern
    for other in array_accesses:
        if other.op != row.op or not other.patterns:
            continue
        pattern = worst(other).pattern
        if _shape(pattern) == _shape(own) or (
            own.kind == "stride" and abs(pattern.stride) == period
        ):  # the second condition is also true for a wide access without gaps, such as float4
            starts[other.first] = max(starts.get(other.first, 0), span if pattern.kind == "rows" else other.bytes)
    return len({(start - row.first + byte) % period for start, width in starts.items() for byte in range(width)})


def _narrow_accesses(row: Access, stride: int, array_accesses: Sequence[Access]) -> str | None:
    """Return advice for threads that use all bytes up to the next thread's bytes, but by several narrow accesses."""
    parts, verb = stride // row.bytes, _VERBS[row.op]
    start = min((other.first for other in array_accesses if other.op == row.op), default=row.first) - row.start
    wide = any(other.bytes == stride and other.op == row.op for other in array_accesses)
    sectors = row.sectors or 0
    gains_little = stride & (stride - 1) or start % stride or parts * sectors <= stride * row.requests
    before = f"{_NOUNS[row.op]} {name(row)}: each thread {verb}s its {parts} neighbouring elements one by one; "
    return _first(
        (row.bytes >= WIDEST or wide or row.op not in ("load", "store"), None),
        (stride <= WIDEST and gains_little, None),
        (
            stride <= WIDEST,
            f"{before}one access of {stride} bytes does it in 1 request of {stride} sectors instead of {parts} of "
            f"{_mean(row, sectors)}",
        ),
        (
            stride % WIDEST == 0 and start % WIDEST == 0,
            f"{before}accesses of {WIDEST} bytes do it in {stride // WIDEST} requests instead of {parts}, or "
            f"let neighbouring threads {verb} neighbours, {_number(row.bytes)} sectors a request",
        ),
    )


def _gather(row: Access, counts: PatternCount) -> str | None:
    """Return advice for lanes whose addresses depend on data."""
    before, verb, lanes = _cost_clause(row), _VERBS[row.op], row.requests * counts.pattern.lanes
    fits = row.array_bytes <= MOST_TABLE_BYTES and lanes * row.bytes >= 2 * row.array_bytes
    passes = _wavefronts(tuple(None if a is None else a - row.start for a in counts.example), row.bytes, True)
    return _first(
        (_actual_cost(row) < 2 * _ideal_cost(row), None),
        (
            0 < abs(row.step) <= NEAR_BYTES and row.op in ("load", "store"),
            f"{before}: each thread has a range of its own, which depends on data; let the lanes of a warp share one "
            "range",
        ),
        (
            row.op == "load" and fits,
            f"{before}: the addresses {'depend on data and ' * row.by_data}are all over {name(row)}; a copy of "
            f"its {_number(row.array_bytes)} bytes in shared memory would serve them in about {passes} wavefronts",
        ),
        # Sorting helps only if the addresses come from data. Computed addresses (a rotated picture) cannot be sorted.
        (
            row.by_data,
            f"{before}: the addresses depend on data and are all over {name(row)}; sort or group the data, so that "
            f"neighbours {verb} neighbours",
        ),
    )


def _atomics(row: Access) -> str | None:
    """Return advice for atomics of a warp on one element, or on scattered elements of a small array (histogram)."""
    counts = worst(row)
    pattern, updates = counts.pattern, row.requests * counts.pattern.lanes * row.bytes
    if row.space == "shared":
        return _shared_atomics(row, counts)
    return _first(
        (row.space != "global" or row.aggregated, None),
        (
            pattern.kind == "broadcast" and pattern.run >= pattern.lanes > 1,
            f"{_NOUNS[row.op]} {name(row)}: all lanes of a warp update one element, one after the other; "
            f"{_combine_clause(row)} first, so that one lane updates instead of {pattern.lanes}",
        ),
        (
            pattern.kind == "gather" and row.array_bytes <= MOST_TABLE_BYTES and updates >= 2 * row.array_bytes,
            f"{_NOUNS[row.op]} {name(row)}: a request updates {_mean(row, row.sectors)} sectors of the L2; collect "
            f"in a copy of its {_number(row.array_bytes)} bytes in shared memory, and add that once a block",
        ),
    )


def _shared_atomics(row: Access, counts: PatternCount) -> str | None:
    """Return advice for lanes of a warp that update one word of shared memory one after the other."""
    lanes = min(counts.pattern.lanes, counts.pattern.run)
    conflicts = counts.pattern.kind == "broadcast" and counts.pieces >= NOTABLE_RATIO * counts.ideal
    loop = " in a loop of load and compare-and-swap, since shared memory does not do it itself" if row.reloads else ""
    sentence = (
        f"{_cost_clause(row)}: {lanes} lanes of a warp update one word, one after the other{loop}; "
        f"{_combine_clause(row)} first, so that one lane updates"
    )
    return sentence if conflicts and not row.aggregated and lanes >= LEAST_COMBINED_LANES else None


def _combine_clause(row: Access) -> str:
    """Return a clause that says how the lanes of a warp can combine their operands before an atomic."""
    operation, _, type_ = row.what.partition(".")
    how = "shuffles"
    if type_ in ("u32", "s32", "b32"):
        how = f"__reduce_{operation}_sync, or shuffles"
    return {
        "add": f"add up within the warp ({how})",
        "min": f"find the least within the warp ({how})",
        "max": f"find the greatest within the warp ({how})",
        **dict.fromkeys(("and", "or", "xor"), f"combine within the warp ({how})"),
        "exch": "choose one lane of the warp, as only the last value stays,",
        "cas": "combine what lanes bring within the warp (shuffles)",
    }.get(operation, "let one lane of the warp count for all")


# Constant memory ----------------------------------------------------------------------------------------------------


def _constant(row: Access, kernel_accesses: Sequence[Access]) -> str | None:
    """Return advice for reads of constant memory whose index differs between lanes."""
    if not _is_wasteful(row):
        return None
    lines = {
        (other.file, other.line)
        for other in kernel_accesses
        if (other.space, other.array) == (row.space, row.array) and worst(other).pattern.kind in ("contiguous", "rows")
    }
    copies = {
        (other.file, other.line): name(other)
        for other in kernel_accesses
        if (other.space, other.op) == ("shared", "store") and (other.file, other.line) in lines
    }
    copy = copies.get((row.file, row.line))
    shared = "copy it to shared memory, or " if row.array_bytes <= MOST_TABLE_BYTES else ""
    cure = _first(
        (copy, f"copy it to {copy} out of global memory, where neighbours share a sector"),
        (copies, f"read it in {next(iter(copies.values()), '')}, which already has a copy"),
        (True, f"{shared}read it from global memory (const __restrict__, or __ldg)"),
    )
    return (
        f"{_NOUNS[row.op]} {name(row)} ask for {_mean(row, row.wavefronts)} different addresses a warp where 1 would "
        f"do: constant memory serves one address at a time, to all lanes that want it; {cure}"
    )


# Shared memory ------------------------------------------------------------------------------------------------------


def _shared(row: Access, array_accesses: Sequence[Access], block: Dim) -> str | None:
    counts = worst(row)
    pattern = counts.pattern
    if row.op in _ATOMIC:
        return _shared_atomics(row, counts)
    stride = abs(pattern.stride if pattern.kind == "stride" else pattern.jump)
    # Padding of rows changes the distances between lanes only if the lanes are a stride apart.
    if not _is_wasteful(row) or pattern.kind in ("gather", "permutation") or not stride:
        return None
    most = max(item.pieces / item.ideal for item in row.patterns if item.ideal)
    before = f"{_cost_clause(row)} ({'up to ' if len(row.patterns) > 1 else ''}{conflict_name(most)}): "
    strides = _wasteful_strides(row)
    if len(strides) > 1 or (pattern.kind == "stride" and stride < ROW_STRIDE):
        used = _used_bytes(row, array_accesses, stride, row.bytes)
        one_access = stride in (8, WIDEST) and row.bytes < WIDEST and used == stride
        wider = f"one access of {stride} bytes takes all that a thread needs without a conflict"
        nearer = "let neighbouring threads take neighbouring elements, or skip a word after 32 (index + index / 32)"
        return f"{before}{_distances_clause(strides)}; {wider if one_access and len(strides) < 2 else nearer}"
    padded = _padding(row, array_accesses, stride)
    if padded is not None and padded[2] * NOTABLE_RATIO > _actual_cost(row) / row.requests:
        # In this case padding would help only other accesses to the array, not the access `row`.
        if pattern.kind != "rows":
            return None
        padded = None
    where = f"the lanes meet in few banks, {_number(stride)} bytes apart"
    if padded is None:
        rows = -(-pattern.lanes // pattern.run)
        return _first(
            (
                pattern.kind == "rows" and pattern.run == block[0] < pattern.lanes,
                f"{before}the {rows} rows of a warp meet in some banks; with a block 32 threads wide a warp takes one "
                "row",
            ),
            (stride % (banks.WORD * banks.BANKS) == 0, f"{before}{where}; swizzle the columns (column ^ row)"),
        )
    elements, unit, reached = padded
    more = _first(
        # If the elements are smaller than the 4-byte word of a bank, give the padding in bytes.
        (unit != min(other.bytes for other in array_accesses), f"{elements * unit} bytes more"),
        (elements == 1, "one element more"),
        (True, f"{elements} elements more"),
    )
    pitch = stride + elements * unit
    return f"{before}{where}; {more} in each row (a pitch of {pitch} bytes) brings it to {_number(reached)}"


def conflict_name(degree: float) -> str:
    """Return the name, such as '8-way bank conflict', of a conflict that takes `degree` times the ideal wavefronts."""
    return f"{degree:.0f}-way bank conflict" if degree >= 1.5 else "bank conflicts"


def _padding(row: Access, array_accesses: Sequence[Access], pitch: int) -> tuple[int, int, float] | None:
    """Return the best padding of rows that are `pitch` bytes apart: (number of elements to add, bytes of an element,
    wavefronts of a request of access `row` after padding).

    Return None if padding saves less than a tenth of the wavefronts of all accesses to the array.
    """
    unit = max(min(other.bytes for other in array_accesses), banks.WORD)
    before = _padded_wavefronts(array_accesses, pitch, 0)
    options = [(_padded_wavefronts(array_accesses, pitch, extra * unit), extra) for extra in range(1, MOST_PADDING + 1)]
    best, elements = min(((cost, extra) for cost, extra in options if cost is not None), default=(before, 0))
    if before is None or best is None or best * NOTABLE_RATIO > before:
        return None
    return elements, unit, (_padded_wavefronts([row], pitch, elements * unit) or 0.0) / row.requests


def _padded_wavefronts(rows: Sequence[Access], pitch: int, padding: int) -> float | None:
    """Return the wavefronts that the accesses would take if each row of the array were `padding` bytes longer; None if
    an access would be misaligned."""
    total = 0.0
    for row in rows:
        for counts in row.patterns:
            places = tuple(
                None if a is None else (a - row.start) // pitch * (pitch + padding) + (a - row.start) % pitch
                for a in counts.example
            )
            if any(place % row.bytes for place in places if place is not None):
                return None
            passes = _wavefronts(places, row.bytes, row.op == "load") if any(places) else 1
            total += counts.requests * passes
    return total


def _wavefronts(places: Sequence[int | None], width: int, load: bool) -> int:
    """Return how many wavefronts one request takes. `places`: the byte address of each lane, None if it is inactive.
    `width`: the bytes that a lane accesses. `load`: whether it is a load."""
    if not places:
        return 1
    active = np.array([place is not None for place in places])
    # Subtracting a multiple of 128 bytes (32 banks of 4 bytes) does not change the bank of an address.
    lowest = min((place for place in places if place is not None), default=0) & -128
    addresses = np.array([(lowest if place is None else place) - lowest for place in places])
    return int(banks.wavefronts(addresses, width, active, load=load))


# Divergence ---------------------------------------------------------------------------------------------------------


def divergence_advice(branch: Branch, instructions: int) -> str | None:
    """Return the advice for a divergent branch; None if it costs little. `instructions`: the launch's instructions."""
    if not branch.diverged or not branch.instructions:
        return None
    lanes = branch.threads / branch.instructions
    before = (
        f"{min(1.0, branch.instructions / instructions):.0%} of the instructions run with {_number(lanes)} of {LANES} "
        "lanes on average: "
    )
    wait = f"{before}lanes that have left the loop wait for the lane with the most iterations; "
    return _first(
        (branch.instructions * (1 - lanes / LANES) < LEAST_IDLE_SHARE * instructions, None),
        (
            branch.loop and branch.by_data,
            f"{wait}give the lanes of a warp work of similar length, or let them share it",
        ),
        (branch.loop, f"{wait}let all lanes of a warp run equally many iterations"),
        (
            branch.by_data,
            f"{before}the lanes of a warp take different paths, which depend on data, one after the other; sort or "
            "group the data, so that a warp takes one path",
        ),
        (lanes < FEW_LANES, f"{before}the other lanes wait; spread this work over the warp"),
        (True, f"{before}lanes take different paths by their index, one after the other; let a warp take one path"),
    )


# Contention ---------------------------------------------------------------------------------------------------------


def contention_advice(row: Access, hottest: int | None, blocks: int | None) -> str | None:
    """Return the advice if `hottest` atomics from `blocks` blocks access one address; None if `hottest` is small."""
    # If the machine code combines the atomics of a warp into one, only one lane of each warp accesses the address.
    hits = min(hottest or 0, row.requests) if row.aggregated else hottest or 0
    origin = f" from {blocks} blocks" if blocks and blocks > 1 else ""
    before = f"{_number(hits)} {_NOUNS[row.op].split()[0]}{origin} hit one address, one after the other"
    return _first(
        (hits < max(CONTENDED, 2 * (blocks or 1)), None),
        (
            row.aggregated,
            f"{before}, although the compiler combines the lanes of each warp; combine those of a block too (shared "
            "memory), so that a block needs one",
        ),
        (True, f"{before}: {_combine_clause(row)} and the block (shared memory) first, so that a block needs one"),
    )


def imbalance_advice(row: Imbalance, sms: int, blocks_per_sm: int) -> str | None:
    """Return the advice for blocks with more work than the other blocks, on a GPU with `sms` SMs, or None.

    If the GPU cannot run all blocks at once, a block delays the launch only if it is one of the last blocks to start.
    """
    if not row.last and row.blocks > sms * blocks_per_sm:
        return None
    x, y, z = row.busiest
    where = f", most of the difference at line {row.line}" if row.share > MAJORITY else ""
    extent = f"{row.over} of {row.blocks} blocks are" if row.over > 1 else f"one of {row.blocks} blocks is"
    if row.last:
        why = "blocks start in the order of their numbers, these last, and finished SMs wait"
    else:
        why = f"all blocks run at once on {sms} SMs, and finished SMs wait"
    return (
        f"block ({x}, {y}, {z}) executes {_number(row.instructions / row.mean)} times the mean of the "
        f"blocks{where}; {extent} over 1.5 times that: {why}; divide their work"
        f"{', or give it to those that start first' if row.last else ''}"
    )
