"""Hazards: what a kernel does wrong even where its result is right. One record for each kind and source line."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.program.code import Code, Op
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.report import Hazard
from cudabench.simulator.values import Array, Chunk, broadcast
from cudabench.toolchain.cubin import plain_name

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}


class Hazards:
    """Collects the hazards of a launch."""

    def __init__(self, code: Code, space: AddressSpace) -> None:
        self.code, self.space = code, space
        self.found: dict[tuple[str, int, int], list[Any]] = {}
        self.suspected: dict[tuple[str, int, int], list[Any]] = {}  # wrong only where the value is used

    def add(self, kind: str, location: Location, count: int, block: Any, thread: Any, message: str) -> None:
        """Record a hazard; later ones of the same kind and line only add to its count."""
        _add(self.found, kind, location, count, block, thread, message)

    def known(self, kind: str, location: Location) -> bool:
        """Return whether a hazard of the kind is already recorded for the line."""
        return (kind, location.file, location.line) in self.found

    def records(self) -> tuple[Hazard, ...]:
        """Return the hazards in the order of their lines."""
        return self._records(self.found)

    def suspicions(self) -> tuple[Hazard, ...]:
        """Return what explains a wrong result, in the order of the lines."""
        return self._records(self.suspected)

    def _records(self, found: dict[tuple[str, int, int], list[Any]]) -> tuple[Hazard, ...]:
        records = []
        for (kind, file, line), (count, block, thread, message) in found.items():
            records.append(Hazard(kind, self.code.files.get(file, ""), line, block, thread, count, message))
        return tuple(sorted(records, key=lambda hazard: (hazard.file, hazard.line, hazard.kind)))

    # Addresses.

    def outside(
        self, machine: Machine, access: MemoryOp, bad: Array, address: Array, size: int, low: int, high: int
    ) -> None:
        """Record accesses beyond the bounds of their array or memory."""
        chunk = machine.chunk
        count, place = first_lane(bad, chunk)
        if machine.mask is not None and bad.shape != chunk.shape:
            count = int((broadcast(bad, chunk.shape) & machine.mask).sum())
            _, place = first_lane(broadcast(bad, chunk.shape) & machine.mask, chunk)
        where = int(broadcast(address, chunk.shape)[place])
        block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
        verb = VERBS[access.kind]
        who = f"thread {thread} of block {block}"
        space = next(iter(access.numbers)) if len(access.numbers) == 1 else ""
        if high == machine.shared_size and low == 0 and space in ("shared", ""):
            name = self.shared_name(min(max(where, 0), max(machine.shared_size - 1, 0)))
            offset = _beyond(where, size, 0, high)
            text = f"{who} {verb} {size} bytes at {offset} of the block's {high} bytes of shared memory{name}"
            if where + size > high and self.code.dynamic and not machine.dynamic_shared:
                array = readable(self.code.dynamic[0])
                text += f", for the launch gives '{array}' no dynamic shared memory: add --shared BYTES"
        elif space != "local" and access.shared_bounds == (low, high):
            # An array's own bounds; beyond them another one may lie.
            name = next(readable(name) for name, start, _ in self.code.shared_names if start == low)
            offset = _beyond(where, size, low, high)
            text = f"{who} {verb} {size} bytes at {offset} of the shared '{name}' ({high - low} bytes)"
        elif space == "local" or access.bounds == (low, high):
            bounded = access.bounds is not None
            memory = f"a local array of {high - low} bytes" if bounded else f"its {high} bytes of local memory"
            text = f"{who} {verb} {size} bytes at {_beyond(where, size, low, high)} of {memory}"
        elif 0 <= where < 1 << 16 or ((low, high) == (1, 0) and abs(where) < 1 << 32):
            text = f"{who} {verb} {size} bytes through a null pointer (address {where:#x})"
        else:
            region = self.space.nearest(where)
            if region is None:
                text = f"{who} {verb} {size} bytes at address {where:#x}, far from every array"
            else:
                offset = _beyond(where - region.base, size, 0, region.size)
                text = f"{who} {verb} {size} bytes at {offset} of '{region.name}' ({region.size} bytes)"
        self.add("out-of-bounds", access.location, count, block, thread, text + ".")

    def misaligned(self, machine: Machine, access: MemoryOp, bad: Array, address: Array, size: int) -> None:
        """Record accesses at addresses that are no multiple of their size."""
        chunk = machine.chunk
        lanes = broadcast(bad, chunk.shape)
        if machine.mask is not None:
            lanes = lanes & machine.mask
        count, place = first_lane(lanes, chunk)
        where = int(broadcast(address, chunk.shape)[place])
        block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
        region = self.space.nearest(where)
        memory = "shared memory" if list(access.numbers) == ["shared"] else "memory"
        name = f"byte {where - region.base} of '{region.name}'" if region else f"byte {where} of its {memory}"
        text = f"thread {thread} of block {block} {VERBS[access.kind]} {size} bytes at {name}, no multiple of {size}."
        self.add("misaligned", access.location, count, block, thread, text)

    def shared_name(self, offset: int) -> str:
        """Return the name of the shared variable at an offset, for a message."""
        for name, start, size in self.code.shared_names:
            if start <= offset < start + size:
                return f" (near '{readable(name)}')"
        return ""

    def shared_place(self, offset: int) -> str:
        """Return a place in shared memory for a message: the variable and the offset in it."""
        for name, start, size in self.code.shared_names:
            if start <= offset < start + size:
                return f"byte {offset - start} of '{readable(name)}'"
        return f"byte {offset} of the shared memory"

    def trap(self, machine: Machine, location: Location) -> None:
        """Record that lanes come to a trap that the compiler has put where the source is undefined."""
        chunk = machine.chunk
        count, place = first_lane(machine.lanes(), chunk)
        block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
        self.add(
            "out-of-bounds", location, count, block, thread,
            f"thread {thread} of block {block} runs into a trap, which the compiler puts in place of an access that "
            "cannot be: through a null pointer, outside of a local array, or an atomic operation on a local variable.",
        )  # fmt: skip

    # Barriers.

    def barrier(
        self, machine: Machine, op: Op, stuck: Array, all_parked: list[tuple[Op, Array]], exited: Array | None
    ) -> None:
        """Record a barrier that not all threads of a block reach."""
        chunk = machine.chunk
        count, place = first_lane(stuck, chunk)
        row = place[0]
        block, thread = chunk.block_index(row), chunk.thread_index(place[1])
        here = stuck[row]
        reason = "the others never arrive"
        for other_op, lanes in all_parked:
            away = lanes[row] & ~here
            if other_op is not op and away.any():
                other = chunk.thread_index(int(np.argmax(away)))
                what = "at the barrier in line" if other_op.kind == "barrier" else "in line"
                reason = f"thread {other} waits {what} {other_op.line.line} instead"
                break
        else:
            gone = (
                np.zeros(chunk.threads, dtype=bool) if exited is None else broadcast(exited, chunk.shape)[row] & ~here
            )
            if chunk.root is not None:
                gone = gone & chunk.root[0]
            if gone.any():
                other = chunk.thread_index(int(np.argmax(gone)))
                reason = f"thread {other} has returned, and the barrier counts it"
        self.add(
            "divergent-barrier", op.line, count, block, thread,
            f"thread {thread} of block {block} waits at a barrier that not all threads of the block reach: {reason}.",
        )  # fmt: skip

    def warp_barrier(self, machine: Machine, op: Op, missing: Array) -> None:
        """Record a warp-wide instruction that names lanes which never come."""
        chunk = machine.chunk
        lanes = machine.lanes()
        warps = missing.reshape(chunk.blocks, chunk.warps, 32).any(axis=2)
        waiting = lanes & np.repeat(warps, 32, axis=1)
        count, place = first_lane(waiting if waiting.any() else lanes, chunk)
        _, away = first_lane(missing & (np.arange(chunk.threads) // 32 == place[1] // 32)[None, :], chunk)
        block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
        self.add(
            "divergent-barrier", op.line, count, block, thread,
            f"thread {thread} of block {block} executes a warp-wide instruction that names thread "
            f"{chunk.thread_index(away[1])}, which is elsewhere and never reaches it.",
        )  # fmt: skip

    def undefined_shuffle(self, machine: Machine, location: Location, lanes: Array, other: Array) -> None:
        """Note lanes (blocks or 1, threads) that shuffle from lanes `other`, which do not take part for them."""
        chunk = machine.chunk
        count, place = first_lane(lanes, chunk)
        block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
        source = int(broadcast(other, chunk.shape)[place])
        _add(
            self.suspected, "undefined-shuffle", location, count, block, thread,
            f"thread {thread} of block {block} takes a value from lane {source} of its warp, which does not execute "
            "the shuffle or is not in the mask: the value is undefined.",
        )  # fmt: skip

    def undefined_value(self, machine: Machine, location: Location, lanes: Array) -> None:
        """Note those of the active lanes that use a register which nothing has written on their way."""
        chunk = machine.chunk
        count, place = first_lane(lanes & machine.lanes(), chunk) if lanes.any() else (0, (0, 0))
        if not count:
            return
        block, thread = chunk.block_index(place[0]), chunk.thread_index(place[1])
        _add(
            self.suspected, "undefined-value", location, count, block, thread,
            f"thread {thread} of block {block} uses a variable that was never given a value.",
        )  # fmt: skip


def _add(
    found: dict[tuple[str, int, int], list[Any]],
    kind: str,
    location: Location,
    count: int,
    block: Any,
    thread: Any,
    message: str,
) -> None:
    record = found.setdefault((kind, location.file, location.line), [0, block, thread, message])
    record[0] += count
    if kind == "out-of-bounds" and (_BEFORE in message) != (_BEFORE in record[3]) and "; " not in record[3]:
        record[3] = f"{record[3].removesuffix('.')}; {message}"  # no array can be large enough for that


def first_lane(lanes: Array, chunk: Chunk) -> tuple[int, tuple[int, int]]:
    """Return (number of lanes, (block, thread) of the first) of a mask that broadcasts over the chunk."""
    full = broadcast(lanes, chunk.shape)
    if chunk.root is not None:
        full = full & chunk.root
    place = int(np.argmax(full))
    return int(np.count_nonzero(full)), (place // chunk.threads, place % chunk.threads)


_BEFORE = "before the start"


def _beyond(offset: int, size: int, low: int, high: int) -> str:
    if offset < low:
        return f"{low - offset} B {_BEFORE}"
    if offset >= high:
        return f"{offset - high} B past the end"
    return f"{offset + size - high} B across the end"


@cache
def readable(name: str) -> str:
    """Return the source name of a variable."""
    return plain_name(name.rpartition("::")[2])
