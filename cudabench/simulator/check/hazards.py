"""Hazards: the errors of a kernel, including errors that leave its result correct. There is one record per kind and
line."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.cures import GRID, Cure, advice_at_barrier
from cudabench.simulator.check.places import Between, Declared, Places, elements, in_region
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.program.code import FREE, Code, Op
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.report import Hazard
from cudabench.simulator.values import Array, Chunk, broadcast
from cudabench.symbols import plain_name

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


PADDING = -1  # scope of accesses out of bounds that hit only the padding after an array, which a GPU does not detect
VERBS = {"load": "reads", "store": "writes", "atomic": "updates", FREE: "frees"}
# matches the array in a message, such as 'reads 4 bytes at x[5]' or 'writes s[3]'
_ARRAY = re.compile(rf"\b(?:{'|'.join(VERBS.values())}) (?:\d+ bytes at )?(?:byte \d+ of )?([^\W\d]\w*)\[")


class Hazards:
    """Collects the hazards of a launch."""

    def __init__(
        self, code: Code, space: AddressSpace, shared_size: int, declared: Declared | None, between: Between | None
    ) -> None:
        self.code, self.space, self.between = code, space, between
        self.places = Places(code, shared_size, declared)
        self.confirmed: dict[tuple[str, int, int], list[Any]] = {}
        # Hazards that may be harmless: they are shown only if the kernel's result is wrong.
        self.suspected: dict[tuple[str, int, int], list[Any]] = {}
        # By kind, file and line: the arrays at fault, in the order in which they were found.
        self.arrays: dict[tuple[str, int, int], dict[str, None]] = defaultdict(dict)
        self.cures: dict[tuple[int, int], Cure] = defaultdict(Cure)  # the cures of races, by (file, line)

    def add(
        self, kind: str, location: Location, count: int, block: Any, thread: Any, message: str, scope: int = 0,
        suspected: bool = False,
    ) -> None:  # fmt: skip
        """Record a hazard. A later hazard of the same kind and line adds its count to the existing record.

        If the later hazard has a wider scope, its message replaces the earlier message, because the cure for the wider
        scope removes both hazards. count: the number of lanes. suspected: see `records`.
        """
        new = [0, block, thread, message, location.ptx_line, scope]
        recorded = self.suspected if suspected else self.confirmed
        record = recorded.setdefault((kind, location.file, location.line), new)
        if scope > record[5]:
            record[1:] = new[1:]
        record[0] += count
        if named := _ARRAY.search(message):
            self.arrays[kind, location.file, location.line][named[1]] = None
        if kind == "out-of-bounds" and (_BEFORE in message) != (_BEFORE in record[3]) and "; " not in record[3]:
            # Accesses before the start and after the end: show both, because a larger array cures only the latter.
            record[3] = f"{record[3].removesuffix('.')}; {message}"

    def report(
        self, machine: Machine, kind: str, location: Location, lanes: Array, what: str,
        place: tuple[int, int] | None = None, *, suspected: bool = False, scope: int = 0,
    ) -> None:  # fmt: skip
        """Record a hazard of some lanes; `what`: the message after "thread ... of block ...".

        place: the (block in the chunk, thread) that the message names; None for the first lane.
        """
        count, first = first_lane(lanes, machine.chunk)
        row, lane = place or first
        block, thread = machine.chunk.block_index(row), machine.chunk.thread_index(lane)
        text = f"thread {thread} of block {block} {what}."
        self.add(kind, location, count, block, thread, text, scope, suspected)

    def known(self, kind: str, location: Location, scope: int = 0) -> bool:
        """Return whether a hazard of the kind, and of at least this scope, is already recorded for the line."""
        record = self.confirmed.get((kind, location.file, location.line))
        return record is not None and record[5] >= scope

    def records(self, suspected: bool = False) -> tuple[Hazard, ...]:
        """Return the hazards, sorted by file and line.

        suspected: return instead the hazards that are shown only if the result is wrong, as a possible explanation.
        """
        records = []
        recorded = self.suspected if suspected else self.confirmed
        for (kind, file, line), (count, block, thread, message, instruction, scope) in recorded.items():
            if kind == "race" and 0 < scope <= GRID and (file, line) in self.cures:
                message = self.cures[file, line].message(message)
            named = _ARRAY.search(message)
            others = [array for array in self.arrays[kind, file, line] if named and array != named[1]]
            if others:
                listed = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
                message = f"{message.removesuffix('.')}. This line's accesses to {listed} are at fault too."
            name = self.code.files.get(file, "")
            wide, padding = scope > GRID, scope == PADDING
            records.append(Hazard(kind, name, line, block, thread, count, message, instruction, wide, padding))
        return tuple(sorted(records, key=lambda hazard: (hazard.file, hazard.line, hazard.kind)))

    # Addresses.

    def outside(
        self, machine: Machine, access: MemoryOp, bad: Array, address: Array, size: int, low: int, high: int,
        scope: int = 0,
    ) -> None:  # fmt: skip
        """Record accesses outside the bounds of their array or memory.

        bad: the lanes. address: the address that each lane accesses; size: the bytes that each lane accesses. low,
        high: the bounds, high excluded. scope: `PADDING` if the accesses stay in the array's padding.
        """
        chunk = machine.chunk
        if machine.mask is not None and bad.shape != chunk.shape:
            bad = chunk.lanes(bad) & machine.mask
        _, place = first_lane(bad, chunk)
        where = int(broadcast(address, chunk.shape)[place])
        space = next(iter(access.numbers)) if len(access.numbers) == 1 else ""
        width, line, region = access.width, access.location.line, self.space.nearest(where)
        kind = "out-of-bounds"
        if high == machine.shared_size and low == 0 and space in ("shared", ""):
            names = self.code.shared_names
            nearest = next((entry for entry in reversed(names) if entry[1] <= max(where, 0)), None)
            spot = f"byte {where}" if nearest is None else self.places.of_shared(*nearest[:2], 0, where, width, line)
            text = f"at {spot}, {_side(where, 0, high)} the block's {high} bytes of shared memory"
            if where + size > high and self.code.dynamic and not machine.dynamic_shared:
                array = plain_name(self.code.dynamic[0])
                text += (
                    f", because the launch gives '{array}' no dynamic shared memory: add --shared BYTES, or in a "
                    "program the third value of <<<grid, block, bytes>>>"
                )
        elif space != "local" and access.shared_bounds == (low, high):
            # The bounds are those of one array, not of the whole shared memory.
            name = next(name for name, start, _ in self.code.shared_names if start == low)
            spot = self.places.of_shared(name, low, high - low, where, width, line)
            extent = self.places.size(name, high - low, width, line)
            text = f"at {spot}, {_side(where, low, high)} '{plain_name(name)}' ({extent})"
        elif space == "local" or access.bounds == (low, high):
            memory = f"a local array of {high - low} bytes" if access.bounds else f"its {high} bytes of local memory"
            text = f"at {_beyond(where, size, low, high)} of {memory}"
        elif 0 <= where < 1 << 16 or ((low, high) == (1, 0) and abs(where) < 1 << 32):
            text = f"through a null pointer (address {where:#x})"
        elif region is None:
            text = f"at address {where:#x}, far from every array"
        elif region.freed:
            kind, element = "use-after-free", region.element or width
            extent = elements(region.shape or (region.freed // element,), element, region.freed)
            text = f"at {in_region(region, where - region.base, width)}, of '{region.name}' ({extent}), which was freed"
        else:
            offset, element = where - region.base, region.element or width
            extent = elements(region.shape or (region.size // element,), element, region.size)
            side = f"{_side(offset, 0, region.size)} '{region.name}' ({extent})"
            text = (
                f"at {in_region(region, offset, width)}, {side}{_overflow(offset // element, region.size // element)}"
            )
        self.report(machine, kind, access.location, bad, f"{VERBS[access.kind]} {size} bytes {text}", scope=scope)

    def misaligned(self, machine: Machine, access: MemoryOp, bad: Array, address: Array, size: int) -> None:
        """Record accesses of the lanes `bad` at addresses that are not a multiple of `size`, the size of the access."""
        chunk = machine.chunk
        lanes = bad if machine.mask is None else bad & machine.mask
        where = int(broadcast(address, chunk.shape)[first_lane(lanes, chunk)[1]])
        region, end = self.space.nearest(where), f"whose address is not a multiple of {size}"
        if region is not None:
            spot = in_region(region, where - region.base, access.width)
        elif list(access.numbers) == ["shared"]:
            spot = self.places.shared(where, access.width, access.location.line)
        elif access.variable is None:
            spot = f"byte {where} of its memory"
        else:
            start, _, name = access.variable
            spot = f"byte {where - start} of the local '{name}'"
            if access.skewed:
                end = f"which need only start at a multiple of {start & -start}, not of {size}"
        text = f"{VERBS[access.kind]} {size} bytes at {spot}, {end}"
        self.report(machine, "misaligned", access.location, lanes, text)

    def trap(self, machine: Machine, location: Location) -> None:
        """Record that the active lanes reach a trap that the compiler has put in place of undefined behaviour."""
        self.report(
            machine, "out-of-bounds", location, machine.lanes(), "executes a trap, which the compiler puts in place "
            "of an invalid access: through a null pointer, outside of a local array, or an atomic operation on "
            "a local variable",
        )  # fmt: skip

    # Barriers.

    def barrier(
        self, machine: Machine, op: Op, stuck: Array, all_parked: list[tuple[Op, Array]], count: int | None = None,
        kind: str = "divergent-barrier",
    ) -> None:  # fmt: skip
        """Record a barrier that not all threads of a block reach.

        stuck: the lanes that wait at this barrier. all_parked: (op, lanes) of all waiting lanes. count: for how many
        threads the barrier waits, None for all threads of the block. kind: 'deadlock' if the lanes wait forever on a
        GPU, too.
        """
        chunk = machine.chunk
        row = first_lane(stuck, chunk)[1][0]
        waiting = stuck[row]
        reason = "the others never arrive"
        why = advice_at_barrier(machine, op.line)
        for other_op, lanes in all_parked:
            elsewhere = lanes[row] & ~waiting
            if other_op is not op and elsewhere.any():
                other, line = chunk.thread_index(int(np.argmax(elsewhere))), other_op.line.line
                what = "at the barrier in" if other_op.kind == "barrier" else "in"
                same_line = (other_op.kind, line) == ("barrier", op.line.line)
                where = "this line in another iteration" if same_line else f"line {line}"
                reason = f"thread {other} waits {what} {where} instead"
                if same_line and not why:
                    why = advice_at_barrier(machine, op.line, loop="the loop")
                break
        else:
            exited = chunk.real(np.zeros((1, 1), bool) if machine.exited is None else machine.exited)[row] & ~waiting
            if exited.any():
                other = chunk.thread_index(int(np.argmax(exited)))
                reason = f"thread {other} has returned, and the barrier counts it"
        text = f"waits at a barrier that not all threads of the block reach: {reason}{why}"
        if count is not None and count != chunk.real_threads:
            text = (
                f"waits at a barrier for {count} threads, but only {np.count_nonzero(waiting)} are there: {reason}. "
                "Give the barrier the number of threads that come to it"
            )
        self.report(machine, kind, op.line, stuck, text)

    def divergent_at_barrier(
        self, machine: Machine, op: Op, present: Array, absent: Array, condition: tuple[int, bool], kind: str
    ) -> None:
        """Record, as a suspicion, lanes that pass by a barrier at which other lanes of their warps wait.

        Whether this is an error depends on the machine code. present, absent: the lanes that wait, and those that pass
        by. condition: (the line where they diverge, 0 if unknown; whether this branch ends a loop around the barrier).
        kind: 'divergent-barrier'; 'divergent-barrier?' if the absent lanes do nothing more before they end.
        """
        _, (row, lane) = first_lane(absent, machine.chunk)
        first = lane // 32 * 32
        waiting = row, first + int(np.argmax(present[row, first : first + 32]))
        line, loop = condition
        why = advice_at_barrier(machine, op.line, line, f"the loop (line {line})" if loop else "")
        thread = machine.chunk.thread_index(lane)
        text = f"waits at the barrier, and thread {thread} of the same warp passes by it{why}"
        self.report(machine, kind, op.line, absent, text, waiting, suspected=True)

    def ended(self, machine: Machine, op: Op, exited: Array, line: int = 0, iteration: int | None = None) -> None:
        """Record, as a suspicion, lanes that have ended or are going to their end when other lanes are at a barrier.

        op: this barrier. exited: the lanes that have ended. line: the line where they left the path of the other lanes,
        0 if unknown. iteration: the iteration of the loop around the barrier; None for the sync() of a cooperative
        group.
        """
        chunk = machine.chunk
        count, (row, lane) = first_lane(exited, chunk)
        block, number = chunk.block_index(row), int(exited[row].sum())
        threads = f"{number} thread{'s' if number > 1 else ''} of block {block}"
        where = f" (line {line})" if line else ""
        if iteration is None:
            kind, text = "early-exit", (
                f"{threads} had ended{where} when the others met at sync(), in which the CUDA C++ Programming Guide "
                "asks all threads of the group to take part."
            )  # fmt: skip
        else:
            when = f"in iteration {iteration} of the loop, " if iteration > 1 else ""
            kind, text = "ended-before-barrier", (
                f"{when}{threads} had ended or were going to their end{where} when the others met the barrier in line "
                f"{op.line.line}."
            )  # fmt: skip
        self.add(kind, op.line, count, block, chunk.thread_index(lane), text, suspected=True)

    def unsearched(self, location: Location, message: str, kind: str = "unsearched") -> None:
        """Record that races between blocks are not searched; `kind`: 'too-large' if an array or the launch is too
        large."""
        self.add(kind, location, 1, (0, 0, 0), (0, 0, 0), message, suspected=True)

    def undefined_shuffle(self, machine: Machine, location: Location, lanes: Array, other: Array) -> None:
        """Record, as a suspicion, lanes that take a value by a shuffle from a lane that does not take part in it.

        lanes: a mask of shape (blocks or 1, threads). other: by lane, the lane of its warp that has the value.
        """
        source = int(broadcast(other, machine.chunk.shape)[first_lane(lanes, machine.chunk)[1]])
        self.report(
            machine, "undefined-shuffle", location, lanes, f"takes a value from lane {source} of its warp, which does "
            "not execute the shuffle or is not in the mask: the value is undefined", suspected=True,
        )  # fmt: skip

    def undefined_value(self, machine: Machine, location: Location, lanes: Array) -> None:
        """Record, as a suspicion, the active lanes that use a register that nothing on their path has written.

        lanes: the lanes where the register was never written.
        """
        if lanes.any() and machine.chunk.real(lanes := lanes & machine.lanes()).any():
            text = "uses a variable that was never given a value"
            self.report(machine, "undefined-value", location, lanes, text, suspected=True)


def first_lane(lanes: Array, chunk: Chunk) -> tuple[int, tuple[int, int]]:
    """Return (number of lanes in a mask, (block in the chunk, thread) of the first lane).

    The mask broadcasts to the shape (blocks, threads) of the chunk.
    """
    full = chunk.real(lanes)
    place = int(np.argmax(full))
    return int(np.count_nonzero(full)), (place // chunk.threads, place % chunk.threads)


_BEFORE = "before the start"


def _overflow(index: int, count: int) -> str:
    """Return words for an index that an overflow of 32 bits explains, else ''; `count`: the elements of the array."""
    negative = index - (1 << 32)
    if -count <= negative < 0:
        return f": the index {negative} wraps, because it is an unsigned 32-bit integer: test it before the access"
    if index < -(1 << 28):
        return ": this is an overflow if the index is a product or sum of 32-bit integers: compute it in size_t"
    return ""


def _side(offset: int, low: int, high: int) -> str:
    if offset < low:
        return f"{_BEFORE} of"
    return "past the end of" if offset >= high else "across the end of"


def _beyond(offset: int, size: int, low: int, high: int) -> str:
    if offset < low:
        return f"{low - offset} B {_BEFORE}"
    if offset >= high:
        return f"{offset - high} B past the end"
    return f"{offset + size - high} B across the end"
