"""Barriers of a thread block: which lanes a barrier releases, and which threads never reach the barrier.

A barrier waits for the threads of its block that have not ended. NVIDIA's documents require more: all threads of the
block must reach the same barrier in the same iteration of a loop (CUDA C++ Programming Guide, "Synchronization
Functions"). There are two kinds of missing threads. One has ended, or is on a path that leads only to its end: this
alone is not an error. The other has passed by the barrier without executing it, and continues. compute-sanitizer's
synccheck reports the second kind as an error if the warp is divided; it reports nothing if whole warps pass by and
reach no other barrier.

To tell these cases apart, `Barriers` records the path of the lanes since they were last converged: the basic blocks
that they ran. In this module, "block of code" means a basic block, and "block" alone a thread block.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
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

MOST_BYTES = 1 << 26  # the largest size in bytes of the lane masks in the recorded path
RELEASED = -1  # an entry of the path with this number means that a barrier released the lanes together
# Waiting lanes: (block of code after the barrier, mask of the lanes, the barrier's instruction, the barrier).
Parked = tuple[int, Any, Op, Barrier]


class Barriers:
    """Releases the lanes that wait at barriers, and records the path of the lanes since they were converged."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.used = any(_kind(block) == "barrier" for block in machine.code.blocks)

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        self.chunk = chunk
        self.path: list[tuple[int, Array | None]] = []
        self.bytes = 0
        self.complete_path = True  # whether the path still begins where all lanes ran together
        self.ended: Array | None = None  # the lanes that had already ended when a barrier released other lanes
        # Keyed by the statement of a barrier: how often each lane has passed this barrier.
        self.passes: dict[object, Any] = {}

    def record_block(self, number: int, mask: Array | None) -> None:
        """Append a block of code, and the mask of the lanes that run it, to the path."""
        if mask is None or mask is self.chunk.root:
            self.path.clear()
            self.bytes, self.complete_path = 0, True
        else:
            self.bytes += mask.nbytes + 64
            if self.bytes > MOST_BYTES:
                del self.path[: len(self.path) // 2]
                self.bytes, self.complete_path = self.bytes // 2, False
        self.path.append((number, mask))

    def record_pass(self, op: Op) -> None:
        """Record that all lanes of the chunk pass a barrier together."""
        self.passes[op.line.statement] = self.passes.get(op.line.statement, 0) + 1

    # Release of lanes.

    def release(self, *, spinning: bool = False) -> bool:
        """Release the parked lanes whose barrier is complete; return whether there are such lanes.

        Lanes whose barrier can never become complete are released, too, with a hazard. spinning: other lanes may still
        come, so each barrier may become complete.
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
        full = [self.chunk.lanes(mask) for _, mask, _, _ in entries]
        released = self.completed(entries, full)
        moving = np.logical_or.reduce(released).any(axis=1)
        any_complete = bool(moving.any())
        if spinning or (of_clusters and any_complete):
            moving = np.ones_like(moving)
        waits = [(op, lanes) for (following, _, op, _), lanes in zip(entries, full, strict=True) if following >= 0]
        waits += [(op, self.chunk.lanes(mask)) for _, mask, op, _ in of_clusters]
        passing: Array = np.zeros(self.chunk.shape, bool)
        for (following, _, op, barrier), lanes, done in zip(entries, full, released, strict=True):
            # If no barrier of a block is complete, none of its waiting lanes can ever go on: a GPU hangs.
            stuck = lanes & ~done
            hang = stuck & ~moving[:, None]
            if hang.any() and following >= 0:
                # A GPU treats two different barriers of a block as one, so threads at the first barrier and threads at
                # the second release each other. But threads that wait at a cluster barrier do not release threads at a
                # barrier of the block: both hang.
                kind = "deadlock" if of_clusters else "divergent-barrier"
                machine.hazards.barrier(machine, op, hang, waits, barrier.identity(machine, lanes)[1], kind)
            left_over, done = stuck & ~hang, done | hang
            if left_over.any():
                machine.parked.append((following, left_over, op, barrier))
            if done.any() and following >= 0:
                passing |= done
                machine.mask = machine.union(done, done)
                barrier.reduce(machine, machine.mask)
                machine.arrive(following, machine.mask)
        if passing.any():
            self.path.append((RELEASED, passing))
        if any_complete or not spinning:
            machine.end_interval()
        return any_complete

    def completed(self, entries: list[Parked], full: list[Array]) -> list[Array]:
        """Return for each entry the mask of its lanes whose barrier is complete, of shape (blocks, threads).

        full: the mask of all lanes of each entry, in that shape.
        """
        machine, chunk = self.machine, self.chunk
        identities = [barrier.identity(machine, mask) for (_, mask, _, barrier) in entries]
        exited: Any = 0 if machine.exited is None else chunk.real(machine.exited).sum(axis=1)
        released: list[Any] = [None] * len(entries)
        for identity in sorted({name for name, _ in identities}):
            members = [place for place, (name, _) in enumerate(identities) if name == identity]
            arrived = sum(full[place].sum(axis=1) for place in members)
            counts = [identities[place][1] for place in members]
            expected = max((count for count in counts if count is not None), default=chunk.real_threads - exited)
            whole = np.asarray(arrived >= expected)
            if any(count is not None for count in counts):
                # The barrier completes with the first warps that fill its count; the other warps wait for the next
                # phase of the barrier.
                together = np.logical_or.reduce([full[place] for place in members])
                first = np.cumsum(together, axis=1) <= np.reshape(expected, (-1, 1))
                full = [lanes & first if place in members else lanes for place, lanes in enumerate(full)]
            needed = [chunk.real_threads if count is None else count for count in counts]
            if len(set(needed)) > 1:
                waiting = {
                    count: (entries[place][2], full[place]) for place, count in zip(members, needed, strict=True)
                }
                (expects, (other, _)), (count, (op, lanes)) = [*waiting.items()][:2]
                machine.hazards.report(
                    machine, "divergent-barrier", op.line, lanes,
                    f"waits at barrier {identity} for {count} threads, and line {other.line.line} waits there for "
                    f"{expects} threads: give both lines the number of all threads that come to this barrier",
                )  # fmt: skip
            whole = whole & self.at_one_barrier(
                [(entries[place][2], full[place]) for place in members if entries[place][3].count is None]
            )
            for place in members:
                released[place] = full[place] & whole[:, None]
            if all(count is None for count in counts) and whole.any():
                self.check_missing([(entries[place][2], released[place]) for place in members], whole)
        return released

    def at_one_barrier(self, waiting: list[tuple[Op, Array]]) -> Array:
        """Return for each block whether its lanes wait at the same barrier, as CUDA requires of all threads of a block.

        waiting: (op of a barrier, the lanes that wait there). In an unrolled loop a barrier has several ops. Lanes at
        different ops wait at the same barrier if they have passed it equally often, and no warp is divided.
        """
        sites: dict[int, tuple[Op, Array]] = {}
        for op, lanes in waiting:
            sites[id(op)] = op, lanes | sites[id(op)][1] if id(op) in sites else lanes
        one: Array = np.ones(self.chunk.blocks, bool)
        for (op, lanes), (other, there) in combinations(sites.values(), 2):
            differ = lanes.any(axis=1) & there.any(axis=1)
            if op.line.statement == other.line.statement and differ.any():
                both, passes = lanes | there, np.broadcast_to(self.passes.get(op.line.statement, 0), lanes.shape)
                least = np.where(both, passes, np.iinfo(np.int64).max).min(axis=1)
                most = np.where(both, passes, -1).max(axis=1)
                differ &= (least != most) | (self.chunk.of_warps(lanes) & there).any(axis=1)
            one &= ~differ
        return one

    # Missing threads.

    def check_missing(self, entries: list[tuple[Op, Array]], rows: Array) -> None:
        """Check which threads are missing at a barrier that releases lanes.

        entries: (op of the barrier, the lanes that it releases). rows: whether the barrier releases each block of the
        chunk.
        """
        for op in {id(op): op for op, _ in entries}.values():
            masks = [mask for other, mask in entries if other is op]
            lanes = np.logical_or.reduce(masks)
            if len(masks) > 1:
                self.report_iterations(op, lanes)
            self.passes[op.line.statement] = self.passes.get(op.line.statement, 0) + lanes.astype(int)
            if self.machine.exited is None or not lanes.any():
                continue
            exited = self.chunk.real(self.machine.exited) & rows[:, None]
            fresh = (exited if self.ended is None else exited & ~self.ended) & lanes.any(axis=1)[:, None]
            if fresh.any():
                self.report_missing(op, lanes, fresh)
                self.ended = fresh if self.ended is None else self.ended | fresh

    def report_missing(self, op: Op, present: Array, exited: Array) -> None:
        """Report why the lanes `exited` did not come to a barrier at which the lanes `present` of the same blocks
        wait."""
        machine, hazards = self.machine, self.machine.hazards
        mixed = exited & self.chunk.of_warps(present)
        behind = self.reachable_after(op)
        pending, goes_on = exited.copy(), np.zeros_like(exited)
        # For each lane: the block of code after which this lane left the path of the other lanes.
        split: Array = np.full(exited.shape, -1)
        for number, mask in reversed(self.path):
            lanes = self.chunk.lanes(mask)
            traced = lanes & pending
            if not traced.any():
                continue
            together = np.where(mixed, self.chunk.of_warps(lanes & present), (lanes & present).any(axis=1)[:, None])
            joined = traced & (together if number != RELEASED else True)
            split[joined] = number
            pending &= ~joined
            if number in behind:
                goes_on |= traced & ~joined
        if not self.complete_path:  # without the beginning of the path, it is unknown where pending lanes left
            goes_on &= ~pending
        # The PTX divides these warps at a branch. A GPU may not divide them, because the machine code may execute the
        # barrier with a predicate in place of the branch. So these hazards are only suspected.
        suspected, skips = ~pending & exited & mixed, goes_on & ~mixed
        for lanes, kind in ((suspected & goes_on, "divergent-barrier"), (suspected & ~goes_on, "divergent-barrier?")):
            if lanes.any():
                place = first_lane(lanes, self.chunk)[1]
                hazards.divergent_at_barrier(machine, op, present, lanes, self.condition(int(split[place]), op), kind)
        if skips.any():
            place = first_lane(skips, self.chunk)[1]
            line = self.condition(int(split[place]), op)[0]
            where = f" because of the condition in line {line}" if line else ""
            hazards.report(
                machine, "skipped-barrier", op.line, skips,
                f"passes with its whole warp by the barrier at which others wait{where}: the CUDA C++ Programming "
                "Guide asks all threads of the block to come. Put the barrier where they do", suspected=True,
            )  # fmt: skip
        left = exited & ~goes_on
        if left.any():
            place = first_lane(left, self.chunk)[1]
            iteration = np.broadcast_to(self.passes[op.line.statement], self.chunk.shape)[place[0]].max()
            line = self.condition(int(split[place]), op)[0] or self.exit_line(place)
            hazards.ended(machine, op, left, line, None if op.line.group else int(iteration))

    def exit_line(self, place: tuple[int, int]) -> int:
        """Return the source line from which a lane that has ended went to its end; 0 if it is unknown.

        place: (block in the chunk, thread).
        """
        blocks = self.machine.code.blocks
        for number, mask in reversed(self.path):
            if number != RELEASED and self.chunk.lanes(mask)[place]:
                end = blocks[number].terminator
                if blocks[number].ops or end is None or end.kind != "exit" or end.guard >= 0:
                    return end.line.line if end is not None else 0
        return 0

    def condition(self, number: int, op: Op) -> tuple[int, bool]:
        """Return (source line of the branch after a block of code, whether this branch ends a loop around a barrier).

        number: the block of code; op: the barrier. The line is 0 if it is unknown.
        """
        blocks = self.machine.code.blocks
        if number < 0:
            return 0, False
        end = blocks[number].terminator
        if end is None or end is op:
            return op.line.line, False
        place = self.block_of(op)
        lines = {
            last.line.line
            for members, _ in self.loops
            if place in members
            for member in members
            if not members.issuperset(blocks[member].successors) and (last := blocks[member].terminator) is not None
        }
        return end.line.line, end.line.line in lines

    def report_iterations(self, op: Op, waiting: Array) -> None:
        """Report lanes that wait at the same barrier in different iterations of a loop around it."""
        place = self.block_of(op)
        for head in [head for members, head in self.loops if self.complete_path and place in members]:
            iterations: Array = np.zeros(self.chunk.shape, np.int32)
            for number, mask in self.path:
                lanes = self.chunk.lanes(mask)
                if number == RELEASED:
                    iterations[lanes] = 0
                elif number == head:
                    iterations += lanes
            least = np.where(waiting, iterations, np.iinfo(np.int32).max).min(axis=1, keepdims=True)
            ahead = waiting & (iterations > least)
            if ahead.any():
                row = first_lane(ahead, self.chunk)[1][0]
                behind = self.chunk.thread_index(int(np.argmax((waiting & (iterations == least))[row])))
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
        """The loops of the code, each as (the numbers of its blocks of code, the number of its head)."""
        return list(loops(self.machine.code.blocks))

    def block_of(self, op: Op) -> int:
        """Return the number of the block of code whose last op is this op."""
        return next(block.number for block in self.machine.code.blocks if block.terminator is op)

    def reachable_after(self, op: Op) -> frozenset[int]:
        """Return the numbers of the blocks of code that may follow a barrier and matter for it.

        These are blocks that access memory, contain a collective or lead to a barrier; a lane in one of them is not
        merely on its path to its end.
        """
        blocks = self.machine.code.blocks
        accessed = {access.location.ptx_line for access in self.machine.code.accesses}
        # The end of a function leads to the code after each call of the function.
        backs = tuple(block.successors[-1] for block in blocks if _kind(block) == "call")
        following_blocks = [backs if _kind(block) == "return" else block.successors for block in blocks]
        steps = [((number,), following) for number, following in enumerate(following_blocks)]
        back = [(following, number) for number, following in reversed(steps)]
        leads = closure((block.number for block in blocks if _kind(block) == "barrier"), back)
        return frozenset(
            number
            for number in closure(following_blocks[self.block_of(op)], steps)
            if number in leads
            or any(item.kind == "collective" or item.line.ptx_line in accessed for item in blocks[number].ops)
        )


def _kind(block: Block) -> str:
    return "" if block.terminator is None else block.terminator.kind
