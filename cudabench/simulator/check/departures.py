"""Blocks of a cluster that may end before another is done with their shared memory, in whatever order they run.

CUDA C++ Programming Guide, "Distributed Shared Memory": a block's shared memory is there until the block ends. So
after an access to it its thread must arrive at the cluster's barrier, and a thread of the block whose memory it is
must wait for that. A block that has waited otherwise since then, by an mbarrier or by polling, may know of it: then
nothing is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class Departures:
    """Who used the memory of which other block of a chunk last, and which waits have come after that.

    uses: by an instruction's number and by how often its threads had arrived at the barrier before: the instruction,
    and by the block whose memory it is the time of the last use (0: none) and the thread of the chunk.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.time = 0
        self.heard: Array = np.zeros(machine.chunk.blocks, np.int64)  # when each block last waited by other means
        self.uses: dict[tuple[int, int], tuple[MemoryOp, Array, Array]] = {}

    def use(self, access: MemoryOp, rows: Array, lanes: Array) -> None:
        """Note an access of lanes to the memory of blocks in other rows of the chunk, or in their own."""
        shape = self.machine.chunk.shape
        lanes = lanes & (rows != np.arange(shape[0]).reshape(-1, 1))
        who = np.flatnonzero(lanes)
        if not who.size:
            return
        self.time += 1
        owners = rows.reshape(-1)[who]
        arrived = broadcast(self.machine.arrivals.arrived, shape).reshape(-1)[who]
        for count in np.unique(arrived).tolist():
            new = access, *np.zeros((2, shape[0]), np.int64)
            _, times, threads = self.uses.setdefault((access.number, count), new)
            mine = arrived == count
            times[owners[mine]], threads[owners[mine]] = self.time, who[mine]

    def wait(self, lanes: Array) -> None:
        """Note that lanes (blocks, threads) have waited for what others do, or looked, by an mbarrier or by polling."""
        self.time += 1
        self.heard[lanes.any(axis=1)] = self.time

    def passed(self) -> None:
        """Forget the uses that the barrier of the cluster, which threads have just passed, keeps blocks alive for."""
        self.uses = {key: use for key, use in self.uses.items() if self.late(key[1], use[1]).any()}

    def late(self, count: int, times: Array) -> Array:
        """Return the blocks that may have ended before uses at some times by threads that had arrived so often."""
        waited = broadcast(self.machine.arrivals.waited, self.machine.chunk.shape).max(axis=1)
        return (times > self.heard) & (waited <= count)

    def finish(self) -> None:
        """Record the uses that no wait has come after, at the end of a chunk."""
        machine, chunk = self.machine, self.machine.chunk
        for (_, count), (access, times, threads) in self.uses.items():
            late = self.late(count, times)
            if late.any():
                owner = int(np.argmax(late))
                block, thread = divmod(int(threads[owner]), chunk.threads)
                who, other = (chunk.block_index(block), chunk.thread_index(thread)), chunk.block_index(owner)
                machine.hazards.add(
                    "race", access.location, int(late.sum()), *who,
                    f"thread {who[1]} of block {who[0]} uses the shared memory of block {other} of its cluster, which "
                    "may have ended by then: let the blocks of a cluster wait for each other at the end "
                    "(cluster.sync()).",
                )  # fmt: skip
