"""Blocks of a cluster that may end before another block has finished using their shared memory, in any execution order.

CUDA C++ Programming Guide, "Distributed Shared Memory": a block's shared memory exists until the block ends. So after
an access to it, the accessing thread must arrive at the cluster's barrier, and a thread of the owning block must wait
there. If the owning block has waited by other means since then (an mbarrier or polling), it may know of the access:
then nothing is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class Departures:
    """The last uses of each block's shared memory by other blocks of a chunk, and the waits after them.

    uses: key: an instruction's number, and how often its threads had arrived at the barrier before; value: the
    instruction, and for each owning block the time of the last use (0: none) and the using thread of the chunk.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.time = 0
        self.heard: Array = np.zeros(machine.chunk.blocks, np.int64)  # when each block last waited by other means
        self.uses: dict[tuple[int, int], tuple[MemoryOp, Array, Array]] = {}

    def use(self, access: MemoryOp, rows: Array, lanes: Array) -> None:
        """Note an access by lanes to the memory of blocks, given as rows of the chunk; its own row does not count."""
        shape = self.machine.chunk.shape
        lanes = lanes & (rows != np.arange(shape[0]).reshape(-1, 1))
        users = np.flatnonzero(lanes)
        if not users.size:
            return
        self.time += 1
        owners = rows.reshape(-1)[users]
        arrived = broadcast(self.machine.arrivals.arrived, shape).reshape(-1)[users]
        for count in np.unique(arrived).tolist():
            new = access, *np.zeros((2, shape[0]), np.int64)
            _, times, threads = self.uses.setdefault((access.number, count), new)
            matches = arrived == count
            times[owners[matches]], threads[owners[matches]] = self.time, users[matches]

    def wait(self, lanes: Array) -> None:
        """Note that lanes (blocks, threads) have waited for other threads, or tested, by an mbarrier or by polling."""
        self.time += 1
        self.heard[lanes.any(axis=1)] = self.time

    def passed(self) -> None:
        """Forget the uses that the cluster's barrier, which threads have just passed, makes safe."""
        self.uses = {key: use for key, use in self.uses.items() if self.late(key[1], use[1]).any()}

    def late(self, count: int, times: Array) -> Array:
        """Return the blocks that may have ended before uses at `times` by threads that had arrived `count` times."""
        waited = broadcast(self.machine.arrivals.waited, self.machine.chunk.shape).max(axis=1)
        return (times > self.heard) & (waited <= count)

    def finish(self) -> None:
        """Record the uses without a wait after them, at the end of a chunk."""
        machine, chunk = self.machine, self.machine.chunk
        for (_, count), (access, times, threads) in self.uses.items():
            late = self.late(count, times)
            if late.any():
                owner = int(np.argmax(late))
                block, thread = divmod(int(threads[owner]), chunk.threads)
                user, other = (chunk.block_index(block), chunk.thread_index(thread)), chunk.block_index(owner)
                machine.hazards.add(
                    "race", access.location, int(late.sum()), *user,
                    f"thread {user[1]} of block {user[0]} uses the shared memory of block {other} of its cluster, "
                    "which may have ended by then: let the blocks of a cluster wait for each other at the end "
                    "(cluster.sync()).",
                )  # fmt: skip
