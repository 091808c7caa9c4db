"""Finds blocks of a cluster that may end while another block still uses their shared memory.

CUDA C++ Programming Guide, "Distributed Shared Memory": a block's shared memory exists until the block ends. So after a
thread has accessed the shared memory of another block, this thread must arrive at the cluster's barrier, and a thread
of the owning block must wait there. If the owning block has waited in another way since the access (at an mbarrier, or
by polling), it may have waited for the access, and nothing is reported. The result does not depend on the order in
which the simulator runs the blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class Departures:
    """The last uses of each block's shared memory by other blocks of a chunk, and the waits after these uses.

    uses: the keys are (number of the instruction, how often its thread had arrived at the cluster's barrier before);
    the values are (the instruction, the time of the last use, the thread that used it). Time and thread are arrays with
    an element for each owning block; the time is 0 without a use, and threads are numbered within the chunk.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.time = 0
        # For each block: the time of its last wait, set by `wait`.
        self.last_wait: Array = np.zeros(machine.chunk.blocks, np.int64)
        self.uses: dict[tuple[int, int], tuple[MemoryOp, Array, Array]] = {}

    def use(self, access: MemoryOp, rows: Array, lanes: Array) -> None:
        """Record that `lanes` access the shared memory of other blocks.

        rows: for each lane the index, in the chunk, of the block that owns the memory; an access to the lane's own
        block is ignored.
        """
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
        """Record that lanes waited for other threads at an mbarrier (or tested it), or polled.

        lanes: a mask of shape (blocks, threads).
        """
        self.time += 1
        self.last_wait[lanes.any(axis=1)] = self.time

    def finish(self) -> None:
        """At the end of a chunk, report the uses after which the owning block may have ended, since it did not wait."""
        machine, chunk = self.machine, self.machine.chunk
        waited = broadcast(machine.arrivals.waited, chunk.shape).max(axis=1)
        for (_, count), (access, times, threads) in self.uses.items():
            late = (times > self.last_wait) & (waited <= count)
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
