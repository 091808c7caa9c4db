"""Counts of memory requests: sectors for global and local memory, wavefronts for shared and constant memory.

A request is one warp-level instruction with an active lane. Its sectors are the distinct 32-byte pieces of memory
that its active lanes touch; the ideal is what the same distinct bytes would need if they were packed. Constant memory
serves one address at a time, to all lanes that want it (CUDA C++ Programming Guide, "Constant Memory").
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.count import atomics, banks
from cudabench.simulator.count.footprint import Footprints
from cudabench.simulator.count.patterns import BROADCAST, LINE, ONE_PLACE, UNKNOWN, Look, look
from cudabench.simulator.report import Executed
from cudabench.simulator.values import INT64, Affine, Array, Chunk, Key, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.plan import Plan
    from cudabench.simulator.program.code import Block

Place = int | tuple[int, ...]  # an array, see `Counters`
Steps = tuple[int, int, int]  # bytes by axis of threadIdx
Settles = tuple[int, int, int, Look]  # array, pieces, ideal pieces, what the lanes did, of an access that comes again
Counted = tuple[int, int, Look]  # pieces, ideal pieces, what the lanes did
NOWHERE = -1
AWAY: Settles = (NOWHERE, 0, 0, UNKNOWN)  # merged with another access, which does its work
ENOUGH = 64  # executions of which a step is told
LANES = 32  # of a warp
ALWAYS_SEEN = 8  # executions of an instruction whose pattern is looked at each time

SECTOR_SHIFT = 5
SECTOR = 1 << SECTOR_SHIFT
LINE_SHIFT = 7
MOST_CONTENT = 1 << 17  # bytes of addresses that cost less to look up than to count
MOST_REMEMBERED = 1 << 26  # bytes that one launch adds
FAIR_TRIAL = 512  # executions after which an instruction that seldom comes back is looked up no more
MOST_PATTERN = 1 << 14  # bytes of addresses and lanes that are worth looking up
ELSEWHERE = "counted a request for each block of the cluster that lanes go to; how hardware takes them apart is open"
_FULL_WARP = np.uint64(0x0101010101010101)


def warp_bits(mask: Array) -> tuple[Array, Array]:
    """Return for a bool array (..., 32 * warps) which warps have any lane and which have all: two flat bool arrays."""
    words = np.ascontiguousarray(mask).view(np.uint64).reshape(-1, 4)
    any_ = (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0
    all_ = (words[:, 0] & words[:, 1] & words[:, 2] & words[:, 3]) == _FULL_WARP
    return any_, all_


def active(mask: Array | None, chunk: Chunk) -> tuple[int, int]:
    """Return (warps of the chunk with an active lane, active lanes); a mask broadcasts over (blocks, threads)."""
    if mask is None:
        return chunk.blocks * chunk.warps, chunk.blocks * chunk.threads
    kept = chunk.masks
    if kept is None:
        return _warps(mask, chunk), _lanes(mask, chunk)
    found = kept.counts.get(id(mask))
    if found is None:
        found = _warps(mask, chunk), _lanes(mask, chunk)
        if id(mask) in kept.names:
            kept.counts[id(mask)] = found
    return found


def active_warps(mask: Array | None, chunk: Chunk) -> int:
    """Return the number of warps of the chunk with an active lane."""
    return active(mask, chunk)[0] if mask is None or chunk.masks is not None else _warps(mask, chunk)


def active_lanes(mask: Array | None, chunk: Chunk) -> int:
    """Return the number of active lanes of the chunk."""
    return active(mask, chunk)[1] if mask is None or chunk.masks is not None else _lanes(mask, chunk)


def _warps(mask: Array, chunk: Chunk) -> int:
    if mask.shape[1] == 1:
        return int(np.count_nonzero(mask)) * chunk.warps * (chunk.blocks if mask.shape[0] == 1 else 1)
    count = int(np.count_nonzero(warp_bits(mask)[0]))
    return count * chunk.blocks if mask.shape[0] == 1 else count


def _lanes(mask: Array, chunk: Chunk) -> int:
    return int(np.count_nonzero(mask)) * int(chunk.blocks * chunk.threads // mask.size)


class Layout(NamedTuple):
    """Where the PTX lines of a kernel are: each line, the block in which it is first, and (line, block) of the others.

    The copies of an inlined function have the same lines.
    """

    lines: tuple[int, ...]
    blocks: tuple[int, ...]
    again: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Layout:
        """Return it for the blocks of a kernel."""
        first: dict[int, int] = {}
        again = []
        for block in blocks:
            for line in block.lines:
                if first.setdefault(line, block.number) != block.number:
                    again.append((line, block.number))
        return cls(tuple(first), tuple(first.values()), tuple(again))


def executed_lines(
    blocks: Sequence[Block],
    layout: Layout,
    executed: Sequence[Executed],
    turns: Mapping[int, Sequence[int]],
    detours: Mapping[int, Executed],
) -> dict[int, Executed]:
    """Return how often each PTX line ran, from how often each block did; the copies of an inlined function add up.

    turns: of the lines of atomics that are loops, their turns and the lanes that wait. detours: of divisions and roots,
    what called a subroutine.
    """
    branching = [number for number, times in enumerate(executed) if times.taken or times.parted]
    own = list(executed)
    for number in branching:
        own[number] = Executed(own[number].warps, own[number].lanes)
    lines = dict(zip(layout.lines, map(own.__getitem__, layout.blocks), strict=True))
    for line, number in layout.again:
        if own[number].warps:
            lines[line] = lines[line].plus(*own[number])
    for number in branching:
        end, times = blocks[number].terminator, executed[number]
        assert end is not None
        line = end.line.ptx_line
        lines[line] = lines[line].plus(taken=times.taken, parted=times.parted, taking=times.taking)
    for line, (passes, waiting) in turns.items():
        lines[line] = lines[line].plus(turns=passes, waiting=waiting)
    for line, called in detours.items():
        lines[line] = lines[line].plus(*called)
    return lines


def distinct(rows: Array) -> Array:
    """Return the number of distinct values in each row of a (rows, n) array."""
    left, right = rows[:, :-1], rows[:, 1:]
    if not (right >= left).all():
        rows = np.sort(rows, axis=1)
        left, right = rows[:, :-1], rows[:, 1:]
    return np.count_nonzero(right != left, axis=1) + 1


def _parts(addresses: Array, mask: Array | None) -> Iterator[Array]:
    """Yield the addresses of the warps whose lanes are all active, then of those with some, each (rows, 32).

    Of the latter the inactive lanes repeat an active one.
    """
    lanes = addresses.reshape(-1, 32)
    if mask is None:
        yield lanes
        return
    mask = broadcast(mask, addresses.shape) if mask.ndim == 2 else np.broadcast_to(mask, addresses.shape)
    any_, all_ = warp_bits(mask)
    if all_.all():
        yield lanes
        return
    if all_.any():
        yield lanes[all_]
    partial = any_ & ~all_
    if partial.any():
        some = mask.reshape(-1, 32)[partial]
        values = lanes[partial]
        first = values[np.arange(len(values)), some.argmax(axis=1)]
        yield np.where(some, values, first[:, None])


def _rows(addresses: Array, mask: Array | None) -> Array:
    """Return the addresses of the warps with an active lane, (rows, 32), inactive lanes repeating an active one."""
    parts = list(_parts(addresses, mask))
    if not parts:
        return np.empty((0, 32), dtype=addresses.dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def sectors(addresses: Array, size: int, mask: Array | None) -> tuple[int, int]:
    """Return (sectors, ideal sectors), summed over all requests.

    addresses: bytes, (..., 32 * warps) int64, aligned to size; size: bytes per lane; mask: same shape, or None for
    all lanes.
    """
    if addresses.size == LANES and (mask is None or mask.shape == addresses.shape):
        return _sectors_of_a_warp((addresses.reshape(-1) if mask is None else addresses[mask]).tolist(), size)
    pieces = ideal = 0
    for rows in _parts(addresses, mask):
        # Aligned accesses of one size are equal or disjoint, so distinct addresses give the distinct bytes.
        steps = rows[:, 1:] - rows[:, :-1]
        if size < SECTOR and (steps == size).all():  # neighbours, as most often
            pieces += int(((rows[:, -1] >> SECTOR_SHIFT) - (rows[:, 0] >> SECTOR_SHIFT)).sum()) + len(rows)
            ideal += len(rows) * size
            continue
        if (steps >= 0).all():
            different = np.count_nonzero(steps, axis=1) + 1
        else:
            rows = np.sort(rows, axis=1)
            different = np.count_nonzero(rows[:, 1:] != rows[:, :-1], axis=1) + 1
        ideal += int((-(-different * size // SECTOR)).sum())
        if size >= SECTOR:
            pieces += int(different.sum()) * (size // SECTOR)
            continue
        places = rows >> SECTOR_SHIFT
        pieces += int(np.count_nonzero(places[:, 1:] != places[:, :-1])) + len(rows)
    return pieces, ideal


def _sectors_of_a_warp(places: list[int], size: int) -> tuple[int, int]:
    """Return `sectors` of the active lanes of one warp: so few numbers are counted sooner than any array is made."""
    if not places:
        return 0, 0
    different = len(set(places))
    ideal = -(-different * size // SECTOR)
    if size >= SECTOR:
        return different * (size // SECTOR), ideal
    return len({place >> SECTOR_SHIFT for place in places}), ideal


class Row:
    """The counts of one memory instruction on one array, by what the lanes did."""

    __slots__ = ("array", "first", "last", "looks", "number", "reloads", "sent_to", "step", "steps")

    def __init__(self, number: int, array: Place) -> None:
        self.number, self.array = number, array
        self.looks: dict[Look, list[int]] = {}  # requests, pieces, ideal
        self.reloads = 0  # see `report.Access`
        self.first: int | None = None  # the first address that was seen
        self.last = 0
        self.step = 0  # bytes from an execution to the next, the least that was seen
        self.steps: Counter[int] | None = None  # those of a warp whose addresses the data say, and how often
        self.sent_to: dict[int, int] = {}  # where its lanes went last

    def went(self, place: int) -> None:
        """Note where the first lane went."""
        if self.first is None:
            self.first = place
        elif place != self.last:
            step = place - self.last
            if not self.step or abs(step) < abs(self.step):
                self.step = step
        self.last = place

    def sent(self, row: Array, mask: Array | None) -> None:
        """Note where the data sent the lanes of the first warp, of addresses and lanes of a block or more: the step of
        an execution is that of most lanes, and the row's that of most executions."""
        steps = self.steps
        if steps is None:
            steps = self.steps = Counter()
        if steps.total() >= ENOUGH:
            return
        if mask is None:
            places = dict(enumerate(row[:LANES].tolist()))
        else:
            lanes = np.flatnonzero(mask[:LANES])
            places = dict(zip(lanes.tolist(), row[lanes].tolist(), strict=True))
        if not places:
            return
        before = self.sent_to
        if before.keys() == places.keys():
            moved = list(map(sub, places.values(), before.values()))
        else:
            moved = [place - before[lane] for lane, place in places.items() if lane in before]
        if moved:
            alike = moved.count(moved[0]) == len(moved)
            steps[moved[0] if alike else Counter(moved).most_common(1)[0][0]] += 1
            step, times = steps.most_common(1)[0]
            self.step = step if 2 * times >= steps.total() else 0
        self.sent_to = places


class Counters:
    """Requests and pieces per memory instruction, array and pattern; patterns that recur are counted once.

    An array is a slot of the address space (several for an instruction whose lanes went to several), or the number of
    a shared variable.
    """

    def __init__(self, plan: Plan, merged: Mapping[int, tuple[int, int]]) -> None:
        """`merged`: of the memory instructions that the machine code has otherwise (`launch.run`)."""
        self.plan = plan
        self.issued = merged
        self.merged = [0] * len(plan.code.accesses)
        self.patterns, self.seen = plan.patterns, plan.seen
        self.rows: dict[tuple[int, Place], Row] = {}
        self.turns: dict[int, list[int]] = {}  # of atomics that are loops: turns, lanes that wait
        self.elsewhere: set[int] = set()  # accesses to the shared memory of other blocks, see `cluster`
        self.atomics: dict[Key, tuple[atomics.Cost, Look]] = {}
        self.shared_starts = [offset for _, offset, _ in plan.code.shared_names]
        self.remembered = 0  # bytes of the patterns that are new
        self.footprints: Footprints | None = None  # where somebody asks for what the launch touches

    def add(
        self, number: int, requests: int, pieces: int, ideal: int, array: Place = NOWHERE, look: Look = UNKNOWN
    ) -> Row:
        """Add to the counts of a memory instruction, and return them."""
        row = self.rows.get((number, array))
        if row is None:
            row = self.rows[number, array] = Row(number, array)
        counts = row.looks.get(look)
        if counts is None:
            row.looks[look] = [requests, pieces, ideal]
        else:
            counts[0] += requests
            counts[1] += pieces
            counts[2] += ideal
        return row

    def due(self, number: int, array: Place) -> bool:
        """Return whether to look at an execution whose addresses are not linear: the first ones, then ever fewer."""
        seen = self.seen.setdefault((number, array), [0, UNKNOWN])
        seen[0] += 1
        return seen[0] <= ALWAYS_SEEN or not seen[0] & (seen[0] - 1)

    def linear(self, number: int, address: Affine, offset: int, size: int, chunk: Chunk, array: Place) -> None:
        """Count global accesses of all lanes at address + offset."""
        place = address.base + offset
        key = (address.coefficients, place & (LINE - 1), size, chunk.extent)
        found = self.patterns.get(key)
        if found is None:
            found = self.patterns[key] = self._linear(address, offset, size, chunk, None)
        row = self.add(number, chunk.blocks * chunk.warps, *found[:2], array, found[2])
        row.went(place)

    def _linear(
        self, address: Affine, offset: int, size: int, chunk: Chunk, mask: Array | None, known: Look | None = None
    ) -> Counted:
        """Count by the distinct residues modulo a line of the blocks' part; mask: (1, threads) or None.

        known: the pattern, where it need not be looked at.
        """
        base = address.base + offset
        coefficients = address.coefficients or (0, 0, 0, 0, 0, 0)
        threads = Affine(0, (*coefficients[:3], 0, 0, 0))
        lanes = broadcast(threads.array(chunk, INT64), (1, chunk.threads))
        residues = {base & (LINE - 1): chunk.blocks}
        part = None
        if any(coefficient & (SECTOR - 1) for coefficient in coefficients[3:]):
            part = Affine(base, (0, 0, 0, *coefficients[3:])).array(chunk, INT64) & (LINE - 1)
            values, counts = np.unique(part, return_counts=True)
            residues = dict(zip(values.tolist(), counts.tolist(), strict=True))
        pieces = ideal = 0
        for residue, count in residues.items():
            some, best = sectors(lanes + residue, size, mask)
            pieces += some * count
            ideal += best * count
        if known is None:
            starts = np.array([base & (LINE - 1)]) if part is None else part
            on = None if mask is None else mask.reshape(-1, 32)
            known = look(lanes.reshape(-1, 32), on, size, thread_steps(address, chunk), starts)
        return pieces, ideal, known

    def global_(
        self,
        number: int,
        address: Affine | Array,
        offset: int,
        size: int,
        mask: Array | None,
        warps: int,
        chunk: Chunk,
        array: Place,
        linear: Affine | Array = None,
    ) -> None:
        """Count global accesses.

        warps: the number of requests; mask broadcasts over (blocks, threads); linear: the address before it was
        resolved to an array, if it was.
        """
        if number in self.issued:
            shift, size = self.issued[number]
            if not size:
                self.merged[number] += warps
                return
            offset += shift
            if not isinstance(address, Affine):
                address = address + shift
        if self.footprints is not None:
            self.footprints.note(number, address, offset, size, mask, chunk, array)
        if type(address) is Affine:
            if address.coefficients is None:
                self.add(number, warps, warps, warps, array, self.one_place(number, array, mask, warps, chunk))
                return
            if mask is None:
                self.linear(number, address, offset, size, chunk, array)
                return
            if mask.shape[0] == 1:
                due = self.due(number, array)
                last = self.seen[number, array]
                key = told("blocks", address, address.base + offset, size, mask, chunk)
                found = None if due else recalled(key, chunk)
                if found is None:
                    some = broadcast(mask, (1, chunk.threads))
                    *counted, last[1] = self._linear(address, offset, size, chunk, some, None if due else last[1])
                    found = remembered(key, chunk, (counted[0], counted[1]))
                pieces, ideal = found
                self.add(number, warps, pieces, ideal, array, last[1]).went(address.base + offset)
                return
            linear = address
            address = address.array(chunk, INT64) + offset
        assert not isinstance(address, Affine)
        if address.shape[1] == 1:
            self.add(number, warps, warps, warps, array, self.one_place(number, array, mask, warps, chunk))
            return
        key = told("rows", linear, int(address[0, 0]), size, mask, chunk)
        rows, mask, times = spread(address, mask, chunk)
        pieces, ideal = recalled(key, chunk) or remembered(key, chunk, self.sectors(number, rows, size, mask))
        steps = thread_steps(linear, chunk) if type(linear) is Affine else None
        seen = self.look(number, array, rows, mask, size, steps)
        row = self.add(number, warps, pieces * times, ideal * times, array, seen)
        if type(linear) is Affine:
            row.went(int(rows[0, 0]))
        else:
            row.sent(rows[0], None if mask is None else mask[0])

    def sectors(self, number: int, rows: Array, size: int, mask: Array | None) -> tuple[int, int]:
        """Return `sectors`, looked up where the instruction comes back to the same addresses often enough."""
        tries = self.plan.tries.setdefault(number, [0, 0])
        seldom = tries[0] >= FAIR_TRIAL and 2 * tries[1] < tries[0]
        if seldom or rows.nbytes > MOST_CONTENT or self.remembered > MOST_REMEMBERED:
            return sectors(rows, size, mask)
        key = size, rows.tobytes(), None if mask is None else mask.tobytes()
        tries[0] += 1
        found = self.plan.sectors.get(key)
        if found is None:
            found = self.plan.sectors[key] = sectors(rows, size, mask)
            self.remembered += rows.nbytes
        else:
            tries[1] += 1
        return found

    def one_place(self, number: int, array: Place, mask: Array | None, warps: int, chunk: Chunk) -> Look:
        """Return the pattern of lanes that all go to one place: how many of a warp they are."""
        if mask is None or mask is chunk.root:
            return BROADCAST
        if self.due(number, array):
            self.seen[number, array][1] = ONE_PLACE[min(32, max(1, round(active_lanes(mask, chunk) / max(warps, 1))))]
        found: Look = self.seen[number, array][1]
        return found

    def look(
        self,
        number: int,
        array: Place,
        rows: Array,
        mask: Array | None,
        size: int,
        axes: Steps | None = None,
        always: bool = False,
    ) -> Look:
        """Return the pattern of addresses (blocks, threads): their own where they are due, else that of the last."""
        if self.due(number, array) or always:
            lanes = rows.reshape(-1, 32)
            if mask is not None:
                mask = mask.reshape(-1, 32)
                on = np.flatnonzero(mask.any(axis=1))
                lanes, mask = lanes[on], mask[on]
            self.seen[number, array][1] = look(lanes, mask, size, axes)
        found: Look = self.seen[number, array][1]
        return found

    def variable(self, address: Affine | Array, offset: int, mask: Array | None, chunk: Chunk) -> int:
        """Return the number of the shared variable that the first active lane addresses."""
        if len(self.shared_starts) < 2:
            return 0
        if type(address) is Affine and (mask is None or mask is chunk.root):
            return max(0, bisect_right(self.shared_starts, address.base + offset) - 1)
        lane = 0 if mask is None else int(mask.argmax())
        across = 1 if mask is None else mask.shape[1]
        block, thread = lane // across, lane % across
        if type(address) is Affine:
            place = address.base + offset
            for factor, axis in zip(address.coefficients or (), chunk.axes, strict=False):
                place += factor * int(axis[block if axis.shape[0] > 1 else 0, thread if axis.shape[1] > 1 else 0])
        else:
            assert not isinstance(address, Affine)
            rows, columns = address.shape
            place = int(address[block if rows > 1 else 0, thread if columns > 1 else 0]) + offset
        return max(0, bisect_right(self.shared_starts, place) - 1)

    def shared(
        self,
        number: int,
        address: Affine | Array,
        offset: int,
        size: int,
        mask: Array | None,
        warps: int,
        chunk: Chunk,
        load: bool,
        known: dict[Key, Any] | None = None,
    ) -> Settles | None:
        """Count shared accesses; arguments as for `global_`, and whether they are loads.

        known: where to find and keep what addresses and lanes count that come again. Return that where it is settled.
        """
        shift = 0
        if number in self.issued:
            shift, size = self.issued[number]
            if not size:
                self.merged[number] += warps
                return AWAY
            offset += shift
            if not isinstance(address, Affine):
                address = address + shift
        again: Key = (number, size, load, shift)
        if type(address) is Affine and mask is not None and chunk.masks is not None and chunk.masks.keeps(mask):
            known, again = chunk.masks.counted, (*again, address.base + offset, address.coefficients, id(mask))
        if known is not None and again in known:
            settled: Settles = known[again]
            array, pieces, ideal, seen = settled
            self.add(number, warps, pieces, ideal, array, seen)
            return settled
        key = None
        array = self.variable(address, offset, mask, chunk)
        # A word for all lanes takes one wavefront; wider, it takes one for each group of lanes that has an active one.
        narrow = size <= banks.WORD
        axes: Steps | None = None
        if type(address) is Affine:
            if address.coefficients is None and narrow:
                seen = self.one_place(number, array, mask, warps, chunk)
                self.add(number, warps, warps, warps, array, seen)
                return (array, warps, warps, seen) if mask is None or mask is chunk.root else None
            if not (address.coefficients and any(address.coefficients[3:])) and (mask is None or mask is chunk.root):
                # All banks turn alike with the base, so that only the coefficients matter.
                key = ("shared", address.coefficients, size, load, array)
                found = self.patterns.get(key)
                if found is not None:
                    settled = array, found[0] * chunk.blocks, found[1] * chunk.blocks, found[2]
                    self.add(number, warps, *settled[1:3], array, found[2])
                    return settled
            axes = thread_steps(address, chunk)
            address = address.array(chunk, INT64) + offset
        assert not isinstance(address, Affine)
        if address.shape[1] == 1 and narrow:
            self.add(number, warps, warps, warps, array, self.one_place(number, array, mask, warps, chunk))
            return None
        if address.shape[0] == 1 and mask is not None and mask.shape[0] > 1 and narrow:
            pieces, _, seen = self._shared(number, array, address, size, None, chunk, True, axes)
            if pieces == chunk.warps:
                # Where all lanes together have no conflict, fewer have none.
                self.add(number, warps, warps, warps, array, seen)
                if known is not None and address.nbytes <= MOST_PATTERN:
                    known[again] = (array, warps, warps, seen)
                return None
        times = chunk.blocks // max(address.shape[0], 1 if mask is None else mask.shape[0])
        pieces, ideal, seen = self._shared(number, array, address, size, mask, chunk, load, axes)
        if key is not None:
            self.patterns[key] = (pieces, ideal, seen)
        self.add(number, warps, pieces * times, ideal * times, array, seen)
        if known is not None and address.nbytes + (0 if mask is None else mask.nbytes) <= MOST_PATTERN:
            known[again] = (array, pieces * times, ideal * times, seen)
        return None

    def shared_atomic(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, how: atomics.Served
    ) -> None:
        """Count atomics on shared memory; arguments as for `global_`, how: of `atomics.served`."""
        array = self.variable(address, 0, mask, chunk)
        if number in self.issued:
            self.add(number, warps, warps, warps, array, self.one_place(number, array, mask, warps, chunk))
            return
        key: Key | None = None
        weight = address.nbytes + (0 if mask is None else mask.nbytes)
        if weight <= MOST_PATTERN:
            lanes = None if mask is None else (mask.shape, mask.tobytes())
            key = ("atomic", address.shape, address.tobytes(), lanes, size, how)
        cost: atomics.Cost
        found = None if key is None else self.atomics.get(key)
        if found is None:
            rows, on, _ = spread(address, mask, chunk)
            cost = atomics.shared(rows.reshape(-1, 32), size, None if on is None else on.reshape(-1, 32), how)
            if address.shape[1] == 1:
                seen = self.one_place(number, array, mask, warps, chunk)
            else:
                seen = self.look(number, array, rows, on, size)
            found = (cost, seen)
            if key is not None:
                self.atomics[key] = found
                self.remembered += weight
        cost, seen = found
        times = chunk.blocks // max(address.shape[0], 1 if mask is None else mask.shape[0])
        row = self.add(number, warps, (cost.wavefronts + cost.reloads) * times, cost.ideal * times, array, seen)
        if cost.turns:
            row.reloads += cost.reloads * times
            waiting = self.turns.setdefault(number, [0, 0])
            waiting[0] += cost.turns * times
            waiting[1] += cost.waiting * times

    def cluster(
        self, number: int, rows: Array, offset: Array, size: int, on: Array, chunk: Chunk, load: bool,
        how: atomics.Served | None = None,
    ) -> None:  # fmt: skip
        """Count accesses to the shared memory of a cluster's blocks: a request for each block that a warp goes to.

        rows: the block of the chunk that each lane means; offset: bytes in its memory; on: active lanes; all of shape
        (blocks, threads). how: of an atomic, see `atomics.served`.
        """
        if not on.any():
            return
        self.elsewhere.add(number)
        away = rows - np.arange(chunk.blocks).reshape(-1, 1)
        pieces = ideal = 0
        for block in different(away[on]):
            lanes = (on & (away == block)).reshape(-1, 32)
            some = lanes.any(axis=1)
            places = offset.reshape(-1, 32)[some]
            if how is None:
                taken, best = banks.both(places, size, lanes[some], load=load)
                pieces, ideal = pieces + int(taken.sum()), ideal + int(best.sum())
            else:
                cost = atomics.shared(places, size, lanes[some], how)
                pieces, ideal = pieces + cost.wavefronts + cost.reloads, ideal + cost.ideal
        array = self.variable(offset, 0, on, chunk)
        requests = int(np.count_nonzero(on.reshape(-1, 32).any(axis=1)))
        self.add(number, requests, pieces, ideal, array, self.look(number, array, offset, on, size))

    def global_atomic(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, array: Place
    ) -> None:
        """Count atomics on global memory; arguments as for `global_`."""
        if self.footprints is not None:
            self.footprints.note(number, address, 0, size, mask, chunk, array)
        if number in self.issued:
            self.add(number, warps, warps, warps, array, self.one_place(number, array, mask, warps, chunk))
            return
        if address.shape[1] == 1:
            lanes = active_lanes(mask, chunk)
            self.add(number, warps, lanes, warps, array, self.one_place(number, array, mask, warps, chunk))
            return
        rows, mask, times = spread(address, mask, chunk)
        pieces, ideal = atomics.sectors(rows.reshape(-1, 32), size, None if mask is None else mask.reshape(-1, 32))
        self.add(number, warps, pieces * times, ideal * times, array, self.look(number, array, rows, mask, size))

    def wide_copy(
        self,
        number: int,
        source: Affine | Array,
        source_offset: int,
        target: Affine | Array,
        target_offset: int,
        mask: Array | None,
        chunk: Chunk,
    ) -> None:
        """Set right the sectors of an asynchronous copy of 16 bytes a lane, arguments as for `global_`.

        It asks for a sector once for each sector of shared memory that a line of 128 bytes of global memory goes to: a
        row that is padded by 16 bytes, or begins in the middle of a sector, asks for more than it reads. So an H200
        counts to the sector (benchmarks/results/counts_h200.md).
        """
        shift = target_offset - source_offset
        alike = type(source) is Affine and type(target) is Affine and source.coefficients == target.coefficients
        if alike and (target.base - source.base + shift) % SECTOR == 0:
            return  # each sector goes to one
        places = [a.array(chunk, INT64) if isinstance(a, Affine) else a.astype(np.int64) for a in (source, target)]
        froms, on, times = spread(np.broadcast_to(places[0] + source_offset, chunk.shape), mask, chunk)
        lanes = _rows(froms, on)
        if not len(lanes):
            return
        into = _rows(np.broadcast_to(places[1] + target_offset, chunk.shape), on) >> SECTOR_SHIFT
        asked = int(distinct((lanes >> LINE_SHIFT) << 20 | into).sum())  # shared memory has fewer sectors than 2**20
        more = asked - int(distinct(lanes >> SECTOR_SHIFT).sum())
        row = next((row for (own, _), row in self.rows.items() if own == number), None)
        if more and row is not None:
            next(iter(row.looks.values()))[1] += more * times

    def constant(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, array: Place
    ) -> None:
        """Count constant accesses, a wavefront for each address; arguments as for `global_`."""
        if address.shape[1] == 1:
            self.add(number, warps, warps, warps, array, self.one_place(number, array, mask, warps, chunk))
            return
        rows, mask, times = spread(address, mask, chunk)
        if self.footprints is not None:
            self.footprints.constants.note(rows, mask, warps)
        lanes = _rows(rows, mask)
        pieces = int(distinct(lanes).sum()) * times if len(lanes) else 0
        self.add(number, warps, pieces, warps, array, self.look(number, array, rows, mask, size))

    def _shared(
        self,
        number: int,
        array: Place,
        address: Array,
        size: int,
        mask: Array | None,
        chunk: Chunk,
        load: bool,
        axes: Steps | None,
    ) -> Counted:
        """Return what one pattern of addresses and lanes counts, looked up where it is small."""
        key: Key | None = None
        weight = address.nbytes + (0 if mask is None else mask.nbytes)
        if weight <= MOST_PATTERN:
            lanes = None if mask is None else (mask.shape, mask.tobytes())
            key = ("lanes", address.shape, address.tobytes(), lanes, size, load)
            found = self.patterns.get(key)
            if found is not None:
                return found
        rows, mask, _ = spread(address, mask, chunk)
        lanes_on = None if mask is None else mask.reshape(-1, 32)
        wavefronts, ideal = banks.both(rows.reshape(-1, 32), size, lanes_on, load=load)
        seen = self.look(number, array, rows, mask, size, axes, always=rows.shape[0] == 1)
        result = int(wavefronts.sum()), int(ideal.sum()), seen
        if key is not None:
            self.patterns[key] = result
            self.remembered += weight
        return result


def told(what: str, linear: Affine | Array, first: int, size: int, mask: Array | None, chunk: Chunk) -> Key | None:
    """Return what tells the sectors of a linear address and kept lanes from others; None where they are not those."""
    if type(linear) is not Affine or chunk.masks is None or not chunk.masks.keeps(mask):
        return None
    return what, linear.coefficients, first & (LINE - 1), size, id(mask)


def recalled(key: Key | None, chunk: Chunk) -> tuple[int, int] | None:
    """Return the sectors that were remembered under a key."""
    return None if key is None or chunk.masks is None else chunk.masks.counted.get(key)


def remembered(key: Key | None, chunk: Chunk, counted: tuple[int, int]) -> tuple[int, int]:
    """Return sectors, remembered under a key."""
    if key is not None and chunk.masks is not None:
        chunk.masks.counted[key] = counted
        chunk.masks.note(0)
    return counted


def thread_steps(address: Affine, chunk: Chunk) -> Steps:
    """Return the bytes that a step of threadIdx.x, y and z makes, 0 where the block is one thread wide."""
    x, y, z = (c if span else 0 for c, span in zip((address.coefficients or (0, 0, 0))[:3], chunk.spans, strict=False))
    return x, y, z


def spread(address: Array, mask: Array | None, chunk: Chunk) -> tuple[Array, Array | None, int]:
    """Return addresses and mask broadcast to a common shape of whole warps, and how often each row stands for."""
    blocks = max(address.shape[0], 1 if mask is None else mask.shape[0])
    shape = (blocks, chunk.threads)
    if address.shape != shape:
        address = broadcast(address, shape)
    if mask is not None:
        mask = broadcast(mask, shape)
    return address, mask, chunk.blocks // blocks
