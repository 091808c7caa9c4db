"""Barriers of a block: which lanes they let go on, and which threads are missing there.

A barrier waits for the threads of its block that have not ended. What NVIDIA's documents ask for is more: all threads
of the block come to the same barrier in the same turn of a loop (CUDA C++ Programming Guide, "Synchronization
Functions"). A thread that is missing has ended or left for its end, which is not a fault by itself, or it has passed by
the barrier and goes on. compute-sanitizer's synccheck calls that an error where it parts a warp, and says nothing where
whole warps pass by and meet no other barrier.

To tell these apart, the blocks of code that lanes ran since they were together are noted.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator import clusters
from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.program.code import Barrier, Block, Op
from cudabench.simulator.program.flow import closure
from cudabench.simulator.program.polls import loops
from cudabench.simulator.values import Array, Chunk

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

MOST_BYTES = 1 << 26  # of the masks that are noted
RELEASED = -1  # in the place of a block of code: a barrier let lanes go on together
Parked = tuple[int, Any, Op, Barrier]  # where lanes go on, which, at what


class Barriers:
    """Lanes at the barriers of their blocks, and the way that lanes took since they were together."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.any = any(_kind(block) == "barrier" for block in machine.code.blocks)
        self._behind: dict[int, frozenset[int]] = {}

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        self.chunk = chunk
        self.way: list[tuple[int, Array | None]] = []
        self.bytes = 0
        self.whole = True  # whether the way begins where lanes were together
        self.ended: Array | None = None  # the lanes that had ended when a barrier let others go on
        self.turns: dict[tuple[int, int], Any] = {}  # by line of the source how often blocks have passed its barrier

    def ran(self, number: int, mask: Array | None) -> None:
        """Note a block of code that lanes run."""
        if mask is None or mask is self.chunk.root:
            self.way.clear()
            self.bytes, self.whole = 0, True
        else:
            self.bytes += mask.nbytes + 64
            if self.bytes > MOST_BYTES:
                del self.way[: len(self.way) // 2]
                self.bytes, self.whole = self.bytes // 2, False
        self.way.append((number, mask))

    def passed(self, op: Op) -> None:
        """Note that all blocks of the chunk pass a barrier together."""
        self.turns[op.line[:2]] = self.turns.get(op.line[:2], 0) + 1

    # Letting lanes go on.

    def release(self, *, spinning: bool = False) -> bool:
        """Let parked lanes go on: those whose barrier is complete, and with a hazard those whose never will be.

        Return whether any barrier is complete. spinning: other lanes may still come, so that none waits in vain.
        """
        machine = self.machine
        entries = machine.parked[:]
        machine.parked.clear()
        of_clusters = [entry for entry in entries if isinstance(entry[3], clusters.ClusterBarrier)]
        entries = [entry for entry in entries if not isinstance(entry[3], clusters.ClusterBarrier)]
        passed = [clusters.wait(machine, op, following, mask) for following, mask, op, _ in of_clusters]
        if any(passed):
            machine.parked.extend(entries)
            return True
        if not entries:
            if not spinning:
                machine.parked.clear()
                for following, mask, op, _ in of_clusters:
                    clusters.wait(machine, op, following, mask, last=True)
            return False
        if self.together(entries):
            return True
        full = [self.chunk.lanes(mask) for _, mask, _, _ in entries]
        released = self.complete(entries, full)
        going = np.logical_or.reduce(released).any(axis=1)
        some = bool(going.any())
        if spinning or (of_clusters and some):
            going = np.ones_like(going)
        waits = [(op, lanes) for (following, _, op, _), lanes in zip(entries, full, strict=True) if following >= 0]
        waits += [(op, self.chunk.lanes(mask)) for _, mask, op, _ in of_clusters]
        passing: Array = np.zeros(self.chunk.shape, bool)
        for (following, _, op, barrier), lanes, done in zip(entries, full, released, strict=True):
            # In a block where no barrier is complete nothing else will ever move: a hang on the GPU.
            stuck = lanes & ~done
            hang = stuck & ~going[:, None]
            if hang.any() and following >= 0:
                # The barriers of a block let each other's threads go on, on a card as well; that of a cluster does not.
                kind = "deadlock" if of_clusters else "divergent-barrier"
                machine.hazards.barrier(machine, op, hang, waits, kind)
            left_over, done = stuck & ~hang, done | hang
            if left_over.any():
                machine.parked.append((following, left_over, op, barrier))
            if done.any() and following >= 0:
                passing |= done
                self.go_on(following, machine.union(done, done), barrier)
        if passing.any():
            self.way.append((RELEASED, passing))
        if some or not spinning:
            machine.end_interval()
        return some

    def together(self, entries: list[Parked]) -> bool:
        """Let lanes go on that wait at one and the same barrier, where they are all that there are; return whether."""
        machine = self.machine
        following, mask, op, barrier = entries[0]
        if barrier.count is not None or any(other is not op for _, _, other, _ in entries):
            return False
        for _, more, _, _ in entries[1:]:
            mask = machine.union(mask, more)
        if mask is not self.chunk.root:
            return False
        if len(entries) > 1:
            self.turns_differ(op, self.chunk.lanes(mask))
        self.passed(op)
        self.go_on(following, mask, barrier)
        machine.end_interval()
        return True

    def go_on(self, following: int, mask: Array | None, barrier: Barrier) -> None:
        """Let lanes of a complete barrier run what is after it."""
        machine = self.machine
        machine.mask, machine._warps = mask, -1
        barrier.reduce(machine, mask)
        machine.arrive(following, mask)

    def complete(self, entries: list[Parked], full: list[Array]) -> list[Array]:
        """Return the lanes of each entry whose barrier is complete."""
        machine, chunk = self.machine, self.chunk
        identities = [barrier.identity(machine, mask) for (_, mask, _, barrier) in entries]
        gone: Any = 0 if machine.exited is None else chunk.real(machine.exited).sum(axis=1)
        released: list[Any] = [None] * len(entries)
        for identity in sorted({name for name, _ in identities}):
            members = [place for place, (name, _) in enumerate(identities) if name == identity]
            arrived = sum(full[place].sum(axis=1) for place in members)
            counts = [identities[place][1] for place in members]
            expected = max((count for count in counts if count is not None), default=chunk.real_threads - gone)
            whole = np.asarray(arrived >= expected)
            asked = [chunk.real_threads if count is None else count for count in counts]
            if len(set(asked)) > 1:
                waiting = {count: (entries[place][2], full[place]) for place, count in zip(members, asked, strict=True)}
                machine.hazards.other_counts(machine, identity, waiting)
            sites: dict[int, Array] = {}
            for place in members:
                op, barrier = entries[place][2:]
                if barrier.count is None:
                    sites[id(op)] = sites.get(id(op), False) | full[place]
            if len(sites) > 1:
                # All threads of a block meet at one barrier: those at two wait for each other.
                whole = whole & (sum(lanes.any(axis=1).astype(int) for lanes in sites.values()) <= 1)
            for place in members:
                released[place] = full[place] & whole[:, None]
            if all(count is None for count in counts) and whole.any():
                self.look([(entries[place][2], released[place]) for place in members], whole)
        return released

    # Who is missing.

    def look(self, entries: list[tuple[Op, Array]], rows: Array) -> None:
        """Look at what is missing where one barrier lets the lanes of entries go on, in some rows of blocks."""
        for op in {id(op): op for op, _ in entries}.values():
            same = [mask for other, mask in entries if other is op]
            lanes = np.logical_or.reduce(same)
            if len(same) > 1:
                self.turns_differ(op, lanes)
            self.turns[op.line[:2]] = self.turns.get(op.line[:2], 0) + lanes.any(axis=1)
            if self.machine.exited is None or not lanes.any():
                continue
            gone = self.chunk.real(self.machine.exited) & rows[:, None]
            fresh = (gone if self.ended is None else gone & ~self.ended) & lanes.any(axis=1)[:, None]
            if fresh.any():
                self.missing(op, lanes, fresh)
                self.ended = fresh if self.ended is None else self.ended | fresh

    def missing(self, op: Op, here: Array, gone: Array) -> None:
        """Say why lanes that are gone did not come to a barrier at which others of their blocks are."""
        machine, hazards = self.machine, self.machine.hazards
        parted = gone & self.chunk.of_warps(here)
        behind = self.behind(op)
        open_, goes_on = gone.copy(), np.zeros_like(gone)
        split: Array = np.full(gone.shape, -1)  # the block of code where a lane left the others
        for number, mask in reversed(self.way):
            lanes = self.chunk.lanes(mask)
            mine = lanes & open_
            if not mine.any():
                continue
            with_others = np.where(parted, self.chunk.of_warps(lanes & here), (lanes & here).any(axis=1)[:, None])
            met = mine & (with_others if number != RELEASED else True)
            split[met] = number
            open_ &= ~met
            if number in behind:
                goes_on |= mine & ~met
        if not self.whole:  # the way was too long: of these it is not known
            goes_on &= ~open_
        # What parts a warp is for the machine code to say: a barrier with a predicate is executed by a part of it.
        maybe, skips = ~open_ & gone & parted, goes_on & ~parted
        for lanes, kind in ((maybe & goes_on, "divergent-barrier"), (maybe & ~goes_on, "divergent-barrier?")):
            if lanes.any():
                place = first_lane(lanes, self.chunk)[1]
                hazards.parted_at_barrier(machine, op, here, lanes, self.condition(int(split[place]), op), kind)
        if skips.any():
            place = first_lane(skips, self.chunk)[1]
            hazards.skipped_barrier(machine, op, skips, self.condition(int(split[place]), op)[0])
        left = gone & ~goes_on
        if left.any():
            place = first_lane(left, self.chunk)[1]
            turn = np.broadcast_to(self.turns[op.line[:2]], self.chunk.blocks)[place[0]]
            line = self.condition(int(split[place]), op)[0] or self.left_in(place)
            hazards.ended(machine, op, left, line, None if op.line.group else int(turn))

    def left_in(self, place: tuple[int, int]) -> int:
        """Return the line of the source from which a lane that has ended left for its end."""
        blocks = self.machine.code.blocks
        for number, mask in reversed(self.way):
            if number != RELEASED and self.chunk.lanes(mask)[place]:
                end = blocks[number].terminator
                if blocks[number].ops or end is None or end.kind != "exit" or end.guard >= 0:
                    return end.line.line if end is not None else 0
        return 0

    def condition(self, number: int, op: Op) -> tuple[int, bool]:
        """Return the line where a block of code parts lanes, 0 where it is not known, and whether it ends a loop in
        which a barrier stands."""
        blocks = self.machine.code.blocks
        if number < 0:
            return 0, False
        end = blocks[number].terminator
        if end is None or end is op:
            return op.line.line, False
        at = self.block_of(op)
        lines = {
            last.line.line
            for members, _ in self.loops
            if at in members
            for one in members
            if not members.issuperset(blocks[one].successors) and (last := blocks[one].terminator) is not None
        }
        return end.line.line, end.line.line in lines

    def turns_differ(self, op: Op, here: Array) -> None:
        """Report lanes that wait at one barrier in different turns of a loop around it."""
        at = self.block_of(op)
        for head in [head for members, head in self.loops if self.whole and at in members]:
            turns: Array = np.zeros(self.chunk.shape, np.int32)
            for number, mask in self.way:
                lanes = self.chunk.lanes(mask)
                if number == RELEASED:
                    turns[lanes] = 0
                elif number == head:
                    turns += lanes
            least = np.where(here, turns, np.iinfo(np.int32).max).min(axis=1, keepdims=True)
            ahead = here & (turns > least)
            if ahead.any():
                row = first_lane(ahead, self.chunk)[1][0]
                behind = self.chunk.thread_index(int(np.argmax((here & (turns == least))[row])))
                self.machine.hazards.report(
                    self.machine, "divergent-barrier", op.line, ahead,
                    f"waits at the barrier in a later iteration of the loop than thread {behind}: not all threads come "
                    "to the barrier in each iteration. Put the barrier where all threads of the block come in each "
                    "iteration of the loop",
                )  # fmt: skip
                return

    # The code.

    @cached_property
    def loops(self) -> list[tuple[frozenset[int], int]]:
        """The loops of the code, each as its blocks and its head."""
        return list(loops(self.machine.code.blocks))

    def block_of(self, op: Op) -> int:
        """Return the block of code that ends in an op."""
        return next(block.number for block in self.machine.code.blocks if block.terminator is op)

    def behind(self, op: Op) -> frozenset[int]:
        """Return the blocks of code after a barrier that access memory or lead to a barrier."""
        if id(op) not in self._behind:
            blocks = self.machine.code.blocks
            accessed = {access.location.ptx_line for access in self.machine.code.accesses}
            # A function's end leads behind each of its calls.
            backs = tuple(block.successors[-1] for block in blocks if _kind(block) == "call")
            ways = [backs if _kind(block) == "return" else block.successors for block in blocks]
            steps = [((number,), following) for number, following in enumerate(ways)]
            back = [(following, number) for number, following in reversed(steps)]
            leads = closure((block.number for block in blocks if _kind(block) == "barrier"), back)
            self._behind[id(op)] = frozenset(
                number
                for number in closure(ways[self.block_of(op)], steps)
                if number in leads
                or any(one.kind == "collective" or one.line.ptx_line in accessed for one in blocks[number].ops)
            )
        return self._behind[id(op)]


def _kind(block: Block) -> str:
    return "" if block.terminator is None else block.terminator.kind
