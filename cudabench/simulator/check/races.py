"""Races within a block, over shared and global memory, and reads of uninitialised shared memory.

Races between blocks are looked for in `between`.

Every access between two barriers goes into a log; the log is examined when the interval ends. Two accesses of different
threads to the same bytes race if at least one writes, not both are atomic, and nothing orders them: a barrier of the
block, or within a warp a warp-wide synchronisation (CUDA C++ Programming Guide, "Independent Thread Scheduling").

Most intervals look the same in every block and in every turn of a loop: an interval is then examined once for one
block, and its outcome remembered by what was logged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.simulator.check.grid_races import AGAINST, BetweenBlocks
from cudabench.simulator.check.hazards import VERBS
from cudabench.simulator.memory import flat
from cudabench.simulator.program.lower import SLOT_BITS, SYMBOL_BIT
from cudabench.simulator.values import INT64, Affine, Array, Chunk, Value, as_array

LOG_BYTES = 1 << 25
LOG_LENGTH = 4096
NOBODY = np.int32(1 << 20)
ENGINE = np.int32(1 << 12)  # added to a thread's number for what its asynchronous copy is writing


class Entry:
    """One logged access, or (access None) a synchronisation of warps."""

    __slots__ = ("access", "address", "data", "groups", "key", "mask", "offset", "role")

    def __init__(self, access: Any, address: Value, offset: int, mask: Array | None, data: Any, key: Any) -> None:
        self.access, self.address, self.offset, self.mask, self.data, self.key = (
            access,
            address,
            offset,
            mask,
            data,
            key,
        )
        # 'copy': an asynchronous copy sets out; 'done': its end, from where on the thread owns the data.
        self.role = ""
        self.groups: int | Array = 0  # of a copy: how many its thread has committed since, per thread if they differ


class Conflict:
    """A race found in a log: the later access and the earlier one, by place in the flat lane order."""

    __slots__ = ("count", "entry", "granule", "lane", "other_access", "other_thread")

    def __init__(self, entry: Entry, count: int, lane: int, granule: int, other_access: Any, other_thread: int) -> None:
        self.entry, self.count, self.lane, self.granule = entry, count, lane, granule
        self.other_access, self.other_thread = other_access, other_thread


class WarpOrder:
    """When each lane last synchronised with each lane of its warp."""

    def __init__(self, rows: int, threads: int) -> None:
        self.shape = (rows, threads // 32, 32)
        self.all_lanes = 0
        self.pairs: Array | None = None

    def sync(self, time: int, mask: Array | None, named: Array | None) -> None:
        """Note that the lanes of the mask met those that they name (bits; None: the whole warp)."""
        rows, warps, _ = self.shape
        if mask is None and named is None:
            self.all_lanes, self.pairs = time, None
            return
        if self.pairs is None:
            self.pairs = np.zeros((*self.shape, 32), dtype=np.int32)
        lanes: Array = np.ones(self.shape, dtype=bool)
        if mask is not None:
            lanes = np.broadcast_to(mask, (rows, warps * 32)).reshape(self.shape)
        met = lanes[..., :, None] & lanes[..., None, :]
        if named is not None:
            if named.shape[0] > rows:
                # One block stands for all: lanes met if they did in every block.
                named = np.bitwise_and.reduce(named, axis=0, keepdims=True)
            words = np.broadcast_to(named, (rows, warps * 32)).reshape(*self.shape, 1)
            met &= ((words >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)
        self.pairs[met] = time

    def ordered(self, lanes: Array, when: Array, low: Array, high: Array) -> Array:
        """Return whether lanes (flat numbers) have met the threads low and high of their warp after the times."""
        found = when < self.all_lanes
        if self.pairs is not None:
            table = self.pairs.reshape(-1, 32)
            found = found | ((when < table[lanes, low & 31]) & (when < table[lanes, high & 31]))
        return found


class Shadow:
    """For each granule of memory who wrote, read and updated it last: threads as (lowest, highest), a time, an
    access."""

    def __init__(self, granules: int) -> None:
        self.kinds: dict[str, tuple[Array, Array, Array, Array]] = {}
        for kind in ("load", "store", "atomic"):
            self.kinds[kind] = (
                np.full(granules, NOBODY, dtype=np.int32),
                np.full(granules, -1, dtype=np.int32),
                np.zeros(granules, dtype=np.int32),
                np.zeros(granules, dtype=np.int32),
            )
        self.value = np.zeros(granules, dtype=np.int64)
        self.scratch = np.zeros(granules, dtype=np.int32)
        self.used = {"load": False, "store": False, "atomic": False}

    def step(
        self,
        kind: str,
        granules: Array,
        threads: Array,
        lanes: Array,
        order: WarpOrder,
        time: int,
        number: int,
        value: int,
        values: Array | None,
        role: str = "",
    ) -> tuple[Array, Array, Array] | None:
        """Apply one access; return (conflicting entries, the other threads, the other accesses' numbers), or None.

        granules, threads, lanes: one element for each lane and granule, lanes ascending; lanes: places in `order`,
        which tells who has synchronised with whom; value: names the value written if it is the same for all lanes,
        else it is unique. A copy sets out when its thread issues it, so it races with what that thread would race with
        by then; but while it flies it is nobody's, also not its own thread's.
        """
        bad: Array | None = None
        other_threads: Array = None
        other_numbers: Array = None
        for past in AGAINST[kind]:
            if not self.used[past] or role == "done":
                continue
            low, high, when, who = self.kinds[past]
            lowest, highest = low[granules], high[granules]
            conflict = (highest >= 0) & ((lowest != threads) | (highest != threads))
            if not conflict.any():
                continue
            ordered = (lowest >> 5 == threads >> 5) & (highest >> 5 == threads >> 5)
            ordered &= order.ordered(lanes, when[granules], lowest, highest)
            conflict &= ~ordered
            if past == "store" and kind == "store":
                conflict &= (self.value[granules] != value) | (highest >= ENGINE)
            if conflict.any():
                party = np.where(lowest != threads, lowest, highest)
                if bad is None:
                    bad, other_threads, other_numbers = conflict, party, who[granules]
                else:
                    new = conflict & ~bad
                    other_threads = np.where(new, party, other_threads)
                    other_numbers = np.where(new, who[granules], other_numbers)
                    bad = bad | conflict
        self.scratch[granules[::-1]] = threads[::-1]
        first = self.scratch[granules]
        self.scratch[granules] = threads
        last = self.scratch[granules]
        if kind == "store" and values is not None and (first != last).any():
            # Lanes of one instruction write the same place: harmless if they write the same.
            by_place = np.argsort(granules, kind="stable")
            same = granules[by_place][1:] == granules[by_place][:-1]
            differ = np.zeros(granules.size, dtype=bool)
            differ[by_place[1:]] = same & (values[by_place][1:] != values[by_place][:-1])
            if differ.any():
                if bad is None:
                    bad, other_threads = differ, first
                    other_numbers = np.full(granules.size, number, dtype=np.int32)
                else:
                    new = differ & ~bad
                    other_threads = np.where(new, first, other_threads)
                    other_numbers = np.where(new, number, other_numbers)
                    bad = bad | differ
        low, high, when, who = self.kinds[kind]
        if kind == "store":
            owner = ENGINE if role == "copy" else np.int32(0)
            low[granules], high[granules] = first + owner, last + owner
            self.value[granules] = value
            for past in ("load", "atomic"):
                if self.used[past]:
                    self.kinds[past][0][granules] = NOBODY
                    self.kinds[past][1][granules] = -1
        else:
            if self.used[kind]:
                lowest, highest = low[granules], high[granules]
                # Readers of the same warp before its last synchronisation need not be remembered.
                stale = (lowest >> 5 == threads >> 5) & (highest >> 5 == threads >> 5)
                stale &= order.ordered(lanes, when[granules], lowest, highest)
                if stale.any():
                    low[granules[stale]], high[granules[stale]] = NOBODY, -1
                first = np.minimum(first, low[granules])
                last = np.maximum(last, high[granules])
            low[granules], high[granules] = first, last
        when[granules] = time
        who[granules] = number
        self.used[kind] = True
        if bad is None:
            return None
        return bad, other_threads, other_numbers


def narrow_any(mask: Array | None) -> Array | None:
    """Return the threads that are active in any block."""
    return mask if mask is None or mask.shape[0] == 1 else mask.any(axis=0, keepdims=True)


def narrow_all(mask: Array | None) -> Array | None:
    """Return the threads that are active in all blocks."""
    return mask if mask is None or mask.shape[0] == 1 else mask.all(axis=0, keepdims=True)


def sync_key(mask: Array | None, named: Array | None) -> Any:
    """Return what a remembered examination has to know about a warp synchronisation."""
    every = narrow_all(mask)
    return ("sync", None if every is None else every.tobytes(), None if named is None else named.tobytes())


class Races:
    """The log and its examination; the memories differ in how addresses become granules."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.entries: list[Entry] = []
        self.bytes = 0
        self.chunk: Chunk = None  # type: ignore[assignment]
        self.serial = 0

    def whole(self, mask: Array | None) -> Array | None:
        """Return None for a mask of all threads of the block, also where the last warp is not full."""
        return None if mask is self.chunk.root else mask

    def value_name(self, data: Any) -> int:
        """Return a number for the value that an access writes: equal for equal uniform values."""
        if data is not None and len(data) == 1 and type(data[0]) is Affine and data[0].coefficients is None:
            return int(data[0].base) & 0x7FFFFFFF
        self.serial += 1
        return -self.serial

    def lane_values(self, entry: Entry, shape: tuple[int, int]) -> Array | None:
        """Return what each lane writes as one comparable number, broadcast to the shape; None if all write the same."""
        data = entry.data
        if not data:
            return None
        total: Any = None
        for value in data:
            if type(value) is bool or (type(value) is Affine and value.coefficients is None):
                continue
            width = entry.access.width
            bits = as_array(value, np.dtype(f"u{width}"), self.chunk).astype(np.uint64)
            total = bits if total is None else total * np.uint64(1000003) + bits
        if total is None:
            return None
        if total.shape[0] > shape[0]:
            # One block stands for all: any difference between neighbours in any block counts.
            return None
        return np.broadcast_to(total, shape)

    def report(self, conflict: Conflict, kind_of_memory: str, place: str, block: int) -> None:
        """Record a race."""
        machine, chunk = self.machine, self.chunk
        entry = conflict.entry
        thread = chunk.thread_index(conflict.lane)
        party = chunk.thread_index(conflict.other_thread & 1023)
        location, _, op, _ = machine.code.accesses[conflict.other_access]
        line = "the same line" if location.line == entry.access.location.line else f"line {location.line}"
        cure = "__syncwarp()" if conflict.lane // 32 == conflict.other_thread // 32 else "__syncthreads()"
        lack = f"without {cure} in between"
        subject, other = f"thread {thread}", f"thread {party}"
        if entry.role == "copy":
            subject += "'s asynchronous copy"
        if conflict.other_thread >= ENGINE:
            other = "its own asynchronous copy" if party == thread else f"{other}'s asynchronous copy"
            lack = "before the copy is waited for"
        index = chunk.block_index(block)
        does, did = VERBS[entry.access.kind], VERBS[op]
        text = f"{subject} {does} {place}, which {other} {did} in {line}, {lack} (block {index})."
        machine.hazards.add("race", entry.access.location, conflict.count, index, thread, text)


class SharedRaces(Races):
    """Races and uninitialised reads in shared memory."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.size = machine.shared_size
        self.width = min(machine.code.granule["shared"], 8)
        self.granules = -(-self.size // self.width) if self.size else 0
        self.memo: dict[Any, Array] = {}
        self.states: dict[bytes, Array] = {}
        self.shadow: Shadow | None = None
        self.synced: WarpOrder | None = None
        self.time = 0

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk: nothing is initialised."""
        self.chunk = chunk
        self.entries.clear()
        self.bytes = 0
        self.shadow = self.synced = None
        self.asynchronous = False
        self.flying: list[Entry] = []  # asynchronous copies that nobody has waited for yet
        self.state = self.intern(np.zeros((1, self.granules), dtype=bool))

    def intern(self, state: Array) -> Array:
        """Return the one array for states of equal content; one row stands for all blocks."""
        if state.shape[0] > 1:
            if not (state == state[0]).all():
                return state
            state = state[:1].copy()
        return self.states.setdefault(state.tobytes(), state)

    def log(self, access: Any, address: Value, offset: int, mask: Array | None, data: Any) -> None:
        """Log an access whose address is in bounds for all active lanes."""
        if type(address) is Affine:
            c = address.coefficients
            if c is not None and (c[3] or c[4] or c[5]):
                address, offset = address.array(self.chunk, INT64) + offset, 0
                key: Any = None
            else:
                key = (address.base + offset, c)
        elif address.shape[0] == 1:
            key = address.tobytes()
        else:
            key = None
        if key is not None:
            name = None
            if access.kind == "store":
                value = data[0]
                name = value.base if type(value) is Affine and value.coefficients is None else None
            key = (access.number, key, self.mask_key(mask), name)
            self.bytes += 64
        else:
            self.bytes += address.nbytes
        if mask is not None:
            self.bytes += mask.nbytes
        entry = Entry(access, address, offset, mask, data if access.kind == "store" else None, key)
        self.entries.append(entry)
        if self.asynchronous:
            entry.role = "copy"
            self.flying.append(entry)
            entry.key = None if key is None else (*key, "copy")
        if self.bytes > LOG_BYTES or len(self.entries) > LOG_LENGTH:
            self.flush(False)

    def mask_key(self, mask: Array | None) -> Any:
        """Return what a remembered examination has to know about an access's active threads."""
        if mask is None or mask is self.chunk.root:
            return None
        if mask.shape[0] == 1:
            return mask.tobytes()
        return mask.any(axis=0).tobytes(), mask.all(axis=0).tobytes()

    def warp_sync(self, mask: Array | None, named: Array | None) -> None:
        """Log that lanes meet those of their warp that they name (bits; None: all)."""
        if self.entries or self.shadow is not None:
            self.entries.append(Entry(None, named, 0, mask, None, sync_key(mask, named)))

    def commit(self, mask: Array | None) -> None:
        """Close the active threads' groups of the asynchronous copies begun so far."""
        new: Any = 1 if self.whole(mask) is None else mask
        for entry in self.flying:
            entry.groups = entry.groups + new

    def wait(self, count: int | None, mask: Array | None) -> None:
        """Complete all groups of the active threads but each thread's `count` latest; None: all copies."""
        if count is None:
            self.commit(mask)
            count = 0
        mask = self.whole(mask)
        flying, self.flying = self.flying, []
        for entry in flying:
            ended: Any = entry.groups > count
            if mask is not None:
                ended = mask & ended
            if type(ended) is bool:
                done, left = ended, not ended
            else:
                own: Any = np.True_ if entry.mask is None else entry.mask
                done, left = (own & ended).any(), (own & ~ended).any()
            if done:
                self.entries.append(self.part(entry, "done", ended if left else None))
            if left:
                self.flying.append(self.part(entry, "copy", ~ended) if done else entry)

    def part(self, entry: Entry, role: str, lanes: Array | None) -> Entry:
        """Return a copy's entry in a role, for some of its threads or (None) for all."""
        mask, key = entry.mask, entry.key
        if lanes is not None:
            mask = lanes if mask is None else mask & lanes
        found = Entry(entry.access, entry.address, entry.offset, mask, entry.data, None)
        found.role, found.groups = role, entry.groups
        found.key = None if key is None else (*key, role, None if lanes is None else self.mask_key(mask))
        return found

    def barrier(self, passed: Array | None) -> None:
        """End the interval: for all blocks, or (passed) for those with a lane that passed a barrier."""
        if not self.entries and self.shadow is None:
            return
        self.flush(True)
        # Copies that nobody has waited for go on writing after the barrier.
        self.entries.extend(self.flying)

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.flying = []
        self.barrier(None)

    def flush(self, ends: bool) -> None:
        """Examine the log; `ends` forgets it, else its accesses stay to be raced with."""
        entries = self.entries
        self.entries = []
        self.bytes = 0
        if self.shadow is None and ends and entries:
            keys = tuple(entry.key for entry in entries)
            if None not in keys and self.state.shape[0] == 1:
                key = (id(self.state), keys)
                found = self.memo.get(key)
                if found is None and self.one_block(entries):
                    found = self.memo[key] = self.intern(self.after)
                if found is not None:
                    wide = any(
                        e.access is not None and e.access.kind != "load" and e.mask is not None and e.mask.shape[0] > 1
                        for e in entries
                    )
                    if not wide:
                        self.state = found
                        return
                    self.state = self.initialise(entries)
                    return
            if self.quiet(entries):
                self.state = self.initialise(entries)
                return
        if entries or self.shadow is not None:
            self.all_blocks(entries, ends)
        if ends:
            self.shadow = self.synced = None

    def quiet(self, entries: list[Entry]) -> bool:
        """Return whether the kinds of accesses alone exclude races, and all that is read is initialised."""
        kinds = {entry.access.kind for entry in entries if entry.access is not None}
        if kinds - {"load"} and kinds - {"atomic"}:
            return False
        state = self.state.all(axis=0)
        for entry in entries:
            if entry.access is None:
                continue
            address = flat(entry.address, entry.offset, self.chunk)
            mask = entry.mask
            if mask is not None:
                shape = np.broadcast_shapes(address.shape, mask.shape)
                address = np.broadcast_to(address, shape)[np.broadcast_to(mask, shape)]
            if not address.size:
                continue
            low, high = int(address.min()) // self.width, (int(address.max()) + entry.access.size - 1) // self.width
            if not state[low : high + 1].all():
                return False
        return True

    def initialise(self, entries: list[Entry]) -> Array:
        """Return the state after the stores and atomics of the log, exactly for each block."""
        state = self.state
        for entry in entries:
            if entry.access is None or entry.access.kind == "load":
                continue
            if state.all():
                break
            if state.shape[0] == 1:
                state = np.repeat(state, self.chunk.blocks, axis=0)
            elif state is self.state:
                state = state.copy()
            granules, _, _ = self.expand(entry, True)
            state.reshape(-1)[granules] = True
        return self.intern(state)

    def expand(self, entry: Entry, wide: bool, mask: Array | None = None) -> tuple[Array, Array, int]:
        """Return (granules, threads, granules per lane) of the active lanes, lanes ascending."""
        chunk = self.chunk
        address = flat(entry.address, entry.offset, chunk)
        if wide:
            shape = chunk.shape
            mask = entry.mask
        else:
            shape = (1, chunk.threads)
            if mask is None:
                mask = narrow_any(entry.mask)
        first = np.broadcast_to(address // self.width, shape)
        if wide:
            first = first + (np.arange(chunk.blocks, dtype=np.int64) * self.granules).reshape(-1, 1)
        threads = np.broadcast_to(np.arange(chunk.threads, dtype=np.int32), shape)
        if mask is None:
            mask = chunk.root
        if mask is None:
            places, who = first.reshape(-1), threads.reshape(-1)
        else:
            chosen = np.broadcast_to(mask, shape)
            places, who = first[chosen], threads[chosen]
        count = max(1, entry.access.size // self.width)
        if count > 1:
            places = (places[:, None] + np.arange(count, dtype=np.int64)).reshape(-1)
            who = np.repeat(who, count)
        return places, who, count

    def one_block(self, entries: list[Entry]) -> bool:
        """Examine the log as if all blocks did what any does; return whether that is clean."""
        shadow = Shadow(self.granules)
        state = self.state[0].copy()
        order = WarpOrder(1, self.chunk.threads)
        for time, entry in enumerate(entries, 1):
            if entry.access is None:
                order.sync(time, self.whole(narrow_all(entry.mask)), entry.address)
                continue
            kind = entry.access.kind
            # A copy has ended for sure where it has in every block.
            mask = narrow_all(entry.mask) if entry.role == "done" else None
            granules, threads, count = self.expand(entry, False, mask)
            if kind != "store" and not state[granules].all():
                return False
            values = None
            if kind == "store":
                values = self.lane_values(entry, self.chunk.shape)
                if values is not None and not self.same_values(entry, values, count):
                    return False
            number = entry.access.numbers["shared"]
            value = self.value_name(entry.data)
            if shadow.step(kind, granules, threads, threads, order, time, number, value, None, entry.role) is not None:
                return False
            if kind != "load":
                every = narrow_all(entry.mask)
                if every is not None and entry.mask is not None and entry.mask.shape[0] > 1:
                    if every.any():
                        granules, _, _ = self.expand(entry, False, every)
                        state[granules] = True
                else:
                    state[granules] = True
        self.after = state.reshape(1, -1)
        return True

    def same_values(self, entry: Entry, values: Array, count: int) -> bool:
        """Return whether lanes of one store that share a place write the same; True if none share one."""
        granules, threads, _ = self.expand(entry, False)
        if np.unique(granules).size == granules.size:
            return True
        del threads, count, values
        return False

    def all_blocks(self, entries: list[Entry], ends: bool) -> None:
        """Examine the log exactly, block by block (in one go)."""
        chunk = self.chunk
        total = self.granules * chunk.blocks
        if self.shadow is None:
            self.shadow = Shadow(total)
            self.synced = WarpOrder(chunk.blocks, chunk.threads)
            self.time = 0
        assert self.synced is not None
        state = self.state
        state = np.repeat(state, chunk.blocks, axis=0) if state.shape[0] == 1 else state.copy()
        flags = state.reshape(-1)
        for entry in entries:
            self.time += 1
            if entry.access is None:
                self.synced.sync(self.time, self.whole(entry.mask), entry.address)
                continue
            kind = entry.access.kind
            granules, threads, count = self.expand(entry, True)
            if not granules.size:
                continue
            blocks = granules // self.granules
            if kind != "store":
                unset = ~flags[granules]
                if unset.any():
                    self.uninitialised(entry, granules, threads, unset, count)
            values = None
            if kind == "store":
                values = self.lane_values(entry, chunk.shape)
                if values is not None:
                    mask = entry.mask if entry.mask is not None else chunk.root
                    values = values.reshape(-1) if mask is None else values[np.broadcast_to(mask, chunk.shape)]
                    values = np.repeat(values, count)
            number = entry.access.numbers["shared"]
            lanes_ = blocks * chunk.threads + threads
            found = self.shadow.step(
                kind, granules, threads, lanes_, self.synced, self.time, number, self.value_name(entry.data), values,
                entry.role,
            )  # fmt: skip
            if found is not None:
                bad, others, numbers = found
                place = int(np.argmax(bad))
                lanes = int(bad.reshape(-1, count).any(axis=1).sum())
                offset = int(granules[place] % self.granules) * self.width
                conflict = Conflict(entry, lanes, int(threads[place]), offset, int(numbers[place]), int(others[place]))
                name = self.machine.hazards.shared_place(offset)
                self.report(conflict, "shared", name, int(blocks[place]))
            if kind != "load":
                flags[granules] = True
        self.state = self.intern(state)

    def uninitialised(self, entry: Entry, granules: Array, threads: Array, unset: Array, count: int) -> None:
        """Record reads of shared memory that no thread has written."""
        place = int(np.argmax(unset))
        lanes = int(unset.reshape(-1, count).any(axis=1).sum())
        block = self.chunk.block_index(int(granules[place] // self.granules))
        thread = self.chunk.thread_index(int(threads[place]))
        name = self.machine.hazards.shared_place(int(granules[place] % self.granules) * self.width)
        self.machine.hazards.add(
            "uninitialized-shared", entry.access.location, lanes, block, thread,
            f"thread {thread} of block {block} reads {name}, which no thread has written.",
        )  # fmt: skip


class GlobalRaces(Races):
    """Races between threads of one block over global memory."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.width = min(machine.code.granule["global"], 8)
        self.memo: set[Any] = set()
        self.written = written_regions(machine)
        self.by_region: dict[int, list[Entry]] = {}
        self.order = 0
        self.between = BetweenBlocks(machine, self.width)

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        self.chunk = chunk
        self.by_region = {}
        self.bytes = 0
        self.count = 0
        self.writes: set[int] = set()

    def log(self, access: Any, region: Any, address: Value, offset: int, mask: Array | None, data: Any) -> None:
        """Log an access to a region that some access of the kernel may write."""
        if self.written is not None and region.base not in self.written:
            return
        self.between.log(access, region, address, offset, mask, data)
        if type(address) is Affine:
            key: Any = (access.numbers["global"], address.base + offset - region.base, address.coefficients)
            if mask is None or mask is self.chunk.root:
                key = (*key, None)
            elif mask.shape[0] == 1:
                key = (*key, mask.tobytes())
            else:
                key = (*key, True)
        else:
            key = None
            self.bytes += address.nbytes
        if mask is not None:
            self.bytes += mask.nbytes
        entries = self.by_region.get(region.base)
        if entries is None:
            entries = self.by_region[region.base] = []
        if access.kind != "load":
            self.writes.add(region.base)
        entries.append(Entry(access, address, offset, mask, data if access.kind == "store" else None, key))
        self.count += 1
        if self.bytes > LOG_BYTES or self.count > LOG_LENGTH:
            self.flush()

    def warp_sync(self, mask: Array | None, named: Array | None) -> None:
        """Log a warp-wide synchronisation for every region that has accesses."""
        for entries in self.by_region.values():
            entries.append(Entry(None, named, 0, mask, None, sync_key(mask, named)))

    def barrier(self, passed: Array | None) -> None:
        """End the interval."""
        if self.count:
            self.flush()

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.barrier(None)

    def flush(self) -> None:
        """Examine the log of each region, then forget it."""
        for base in self.writes:
            entries = self.by_region[base]
            while entries and entries[-1].access is None:
                entries.pop()
            kinds = {entry.access.kind for entry in entries if entry.access is not None}
            if kinds - {"load"} and kinds - {"atomic"}:
                self.examine(base, entries)
        self.by_region = {}
        self.writes = set()
        self.bytes = self.count = 0

    def examine(self, base: int, entries: list[Entry]) -> None:
        """Look for races in one region's log: for one block if all are alike, else for each."""
        chunk = self.chunk
        parts = self.alike(entries)
        if parts is not None:
            start, key = parts
            if key is not None and key in self.memo:
                return
            if self.one_block(entries, start):
                if key is not None:
                    self.memo.add(key)
                return
        rows = self.suspects(entries)
        if rows is not None and not rows.any():
            return
        events = []
        for entry in entries:
            mask = entry.mask
            if rows is not None:
                mask = rows if mask is None else mask & rows
                if chunk.root is not None:
                    mask = mask & chunk.root
            events.append(self.expand(entry, chunk.shape, mask))
        self.shadow(base, entries, events, True)

    def alike(self, entries: list[Entry]) -> tuple[int, Any] | None:
        """Return (base address of block 0, memo key) if all entries move alike from block to block, else None."""
        blocks: Any = None
        start = None
        keys: list[Any] = []
        for entry in entries:
            if entry.access is None:
                keys.append(entry.key)
                continue
            if type(entry.address) is not Affine:
                return self.separable(entries)
            c = entry.address.coefficients or (0, 0, 0, 0, 0, 0)
            part = c[3:]
            if start is None:
                start, blocks = entry.address.base + entry.offset, part
            elif part != blocks:
                return None
            mask = entry.key[3] if entry.key is not None else None
            if mask is True:
                assert entry.mask is not None
                mask = entry.mask.any(axis=0).tobytes()
            keys.append((entry.key[0], entry.address.base + entry.offset - start, c[:3], mask))
        if start is None or None in keys:
            return None if start is None else (start, None)
        return start, (blocks == (0, 0, 0), chunk_key(self.chunk), tuple(keys))

    def suspects(self, entries: list[Entry]) -> Array | None:
        """Return the blocks (blocks, 1) in which a write may meet another address pattern; None where that is unknown.

        A pattern that gives each thread bytes of its own cannot race with itself, and patterns whose ranges of bytes in
        a block do not overlap cannot race with each other.
        """
        chunk = self.chunk
        patterns: dict[Any, tuple[Array, Array, bool]] = {}
        shared: set[Any] = set()  # patterns in which threads share bytes
        for entry in entries:
            if entry.access is None:
                continue
            address = entry.address
            if type(address) is not Affine or address.coefficients is None:
                return None
            size = entry.access.size
            key = (address.base + entry.offset, address.coefficients, size)
            writes = entry.access.kind != "load"
            if key in patterns:
                low, high, written = patterns[key]
                patterns[key] = (low, high, written or writes)
                continue
            own = Affine(0, (*address.coefficients[:3], 0, 0, 0)).array(chunk, INT64)
            own = np.sort(np.broadcast_to(own, (1, chunk.threads))[:, : chunk.real_threads], axis=1)
            if chunk.real_threads > 1 and int(np.diff(own).min()) < size:
                shared.add(key)
            start = Affine(key[0], (0, 0, 0, *address.coefficients[3:])).array(chunk, INT64)
            start = np.broadcast_to(start, (chunk.blocks, 1))
            patterns[key] = (start + own[0, 0], start + own[0, -1] + size, writes)
        if any(patterns[key][2] for key in shared):
            return None
        rows: Array = np.zeros((chunk.blocks, 1), dtype=bool)
        for key, (low, high, written) in patterns.items():
            for other, (least, most, _) in patterns.items():
                if written and other != key:
                    rows |= (low < most) & (least < high)
        return rows

    def separable(self, entries: list[Entry]) -> tuple[int, Any] | None:
        """Do the same for address arrays whose rows differ by a constant that is the same for all entries."""
        column: Array | None = None
        start = 0
        for entry in entries:
            if entry.access is None:
                continue
            address = flat(entry.address, entry.offset, self.chunk)
            if entry.mask is not None and entry.mask is not self.chunk.root:
                return None
            if address.shape[0] == 1 and self.chunk.blocks > 1:
                return None
            shifted = address - address[:, :1]
            if self.chunk.root is not None:
                shifted = np.where(self.chunk.root, shifted, 0) if shifted.shape[1] > 1 else shifted
            if not (shifted == shifted[0]).all():
                return None
            own = address[:, 0] - address[0, 0]
            if column is None:
                column, start = own, int(address[0, 0])
            elif not np.array_equal(own, column):
                return None
        return start, None

    def expand(self, entry: Entry, shape: tuple[int, int], mask: Array | None) -> tuple[Array, Array, Array] | None:
        """Return (byte addresses, blocks, threads) of an entry's active lanes."""
        if entry.access is None:
            return None
        chunk = self.chunk
        address = flat(entry.address, entry.offset, chunk)
        if shape[0] == 1:
            address = address[:1]
        address = np.broadcast_to(address, shape)
        if mask is None:
            mask = chunk.root
        if mask is None:
            lanes = np.arange(shape[0] * shape[1])
            address = address.reshape(-1)
        else:
            chosen = np.broadcast_to(mask, shape)
            lanes = np.flatnonzero(chosen)
            address = address[chosen]
        return address, lanes // shape[1], (lanes % shape[1]).astype(np.int32)

    def one_block(self, entries: list[Entry], start: int) -> bool:
        """Examine the log of the first block as if it did what any block does."""
        shape = (1, self.chunk.threads)
        for entry in entries:
            if entry.access is not None and entry.access.kind == "store":
                events = self.expand(entry, shape, narrow_any(entry.mask))
                assert events is not None
                if (
                    np.unique(events[0]).size != events[0].size
                    and self.lane_values(entry, self.chunk.shape) is not None
                ):
                    return False
        events_ = [self.expand(entry, shape, narrow_any(entry.mask)) for entry in entries]
        return self.shadow(0, entries, events_, False)

    def shadow(self, base: int, entries: list[Entry], events: list[Any], exact: bool) -> bool:
        """Run the log through a shadow of the bytes that it touches; report (exact) or return whether it is clean."""
        chunk = self.chunk
        width = self.width
        places, counts = [], []
        for entry, event in zip(entries, events, strict=True):
            if event is None:
                places.append(np.empty(0, dtype=np.int64))
                counts.append(1)
                continue
            address, blocks, _ = event
            count = max(1, entry.access.size // width)
            granule = address // width
            if count > 1:
                granule = (granule[:, None] + np.arange(count)).reshape(-1)
                blocks = np.repeat(blocks, count)
            # Blocks are told apart by a number above all addresses' bits.
            places.append((granule & ((1 << 44) - 1)) + (blocks << 44))
            counts.append(count)
        total = np.concatenate(places)
        _, index = np.unique(total, return_inverse=True)
        index = index.reshape(-1)
        shadow = Shadow(int(index.max()) + 1 if index.size else 0)
        order = WarpOrder(chunk.blocks if exact else 1, chunk.threads)
        position = 0
        clean = True
        for time, (entry, event, count, part) in enumerate(zip(entries, events, counts, places, strict=True), 1):
            if event is None:
                order.sync(time, self.whole(entry.mask if exact else narrow_all(entry.mask)), entry.address)
                continue
            _, blocks, threads = event
            granules = index[position : position + part.size]
            position += part.size
            values = None
            if exact and entry.access.kind == "store":
                values = self.lane_values(entry, chunk.shape)
                if values is not None:
                    values = np.repeat(values[blocks, threads], count)
            lanes = threads if count == 1 else np.repeat(threads, count)
            rows = blocks if count == 1 else np.repeat(blocks, count)
            found = shadow.step(
                entry.access.kind, granules, lanes, rows * chunk.threads + lanes if exact else lanes, order, time,
                entry.access.numbers["global"], self.value_name(entry.data), values,
            )  # fmt: skip
            if found is None:
                continue
            clean = False
            if not exact:
                return False
            bad, others, numbers = found
            place = int(np.argmax(bad))
            region = self.machine.space.nearest(base)
            offset = int(part[place] & ((1 << 44) - 1)) * width - base
            conflict = Conflict(
                entry,
                int(bad.reshape(-1, count).any(axis=1).sum()),
                int(lanes[place]),
                0,
                int(numbers[place]),
                int(others[place]),
            )
            self.report(conflict, "global", f"byte {offset} of '{region.name}'", int(rows[place]))
        return clean


def written_regions(machine: Any) -> set[int] | None:
    """Return the bases of the regions that the kernel may write, or None for all."""
    bits = machine.code.written
    if bits & 1:
        return None
    found: set[int] = set()
    for slot in range(1, len(machine.space.slots)):
        if bits >> (SYMBOL_BIT + slot) & 1:
            found.add(slot << SLOT_BITS)
    raw = machine.parameters.bytes
    for offset in range(raw.size - 7):
        if bits >> (1 + offset) & 1:
            region = machine.space.nearest(int(raw[offset : offset + 8].view(np.int64)[0]))
            if region is not None:
                found.add(region.base)
    return found


def chunk_key(chunk: Chunk) -> Any:
    """Return what a remembered examination depends on besides the log."""
    return chunk.block
