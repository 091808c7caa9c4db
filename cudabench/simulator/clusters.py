"""Thread block clusters: their blocks, their distributed shared memory and their barrier.

The low 24 bits of a shared memory address are the offset in the memory of one block. The higher bits select this block:
0 is the accessing thread's own block, and r + 1 is the block of rank r in the cluster. The simulated `mapa` makes such
addresses.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.occupancy import MAX_CLUSTER
from cudabench.simulator.check.block_shadow import AGAINST, BlockShadow
from cudabench.simulator.program.code import Barrier, Op
from cudabench.simulator.values import Array, Chunk, Index3, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

RANK_SHIFT = 24
REMOTE = 1 << RANK_SHIFT
WIDTH = 2  # bytes of a granule, the smallest unit of memory in which the race check compares accesses


class ChunkClusters:
    """The clusters of a chunk.

    The row of a block is its number in the chunk. `cluster`, `rank`: for each block of the chunk, the number of its
    cluster and its rank in this cluster. `rows`: the rows of each cluster's blocks, of shape (clusters, blocks of a
    cluster).
    """

    def __init__(self, chunk: Chunk, dims: Index3) -> None:
        self.dims = dims
        self.size = dims[0] * dims[1] * dims[2]
        x, y, z = (axis.reshape(-1) for axis in chunk.axes[3:])
        # A chunk contains only whole clusters.
        self.rank: Array = x % dims[0] + dims[0] * (y % dims[1] + dims[1] * (z % dims[2]))
        wide, high = chunk.extent[0] // dims[0], chunk.extent[1] // dims[1]
        self.cluster: Array = x // dims[0] + wide * (y // dims[1] + high * (z // dims[2]))
        self.rows: Array = np.zeros((chunk.blocks // self.size, self.size), np.int64)
        self.rows[self.cluster, self.rank] = np.arange(chunk.blocks)

    def row(self, blocks: Array, ranks: Array) -> Array:
        """Return for each block in `blocks` (rows) the row of that block of its cluster whose rank is given in
        `ranks`."""
        rows: Array = self.rows[self.cluster[blocks], np.clip(ranks, 0, self.size - 1)]
        return rows


_clusters = lru_cache(64)(ChunkClusters)


def chunk_clusters(machine: Machine) -> ChunkClusters | None:
    """Return the clusters of the current chunk; None for a launch without clusters."""
    dims = machine.plan.cluster
    return None if dims is None else _clusters(machine.chunk, dims)


def resolve(machine: Machine, address: Array) -> tuple[Array, Array, Array]:
    """Return three arrays of shape (blocks, threads): the row of the addressed block, the offset in this block's
    memory, and whether the block exists. `address`: the shared memory address of each lane, int64."""
    chunk = machine.chunk
    address = broadcast(address, chunk.shape)
    own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
    remote = (address >= REMOTE) & (address < REMOTE * (MAX_CLUSTER + 1))
    if not remote.any():
        return own, address, np.ones(chunk.shape, bool)
    clusters = chunk_clusters(machine)
    ranks = (address >> RANK_SHIFT) - 1
    if clusters is None:
        return own, address, ~remote
    rows = np.where(remote, clusters.row(own, np.where(remote, ranks, 0)), own)
    return rows, np.where(remote, address & (REMOTE - 1), address), ~remote | (ranks < clusters.size)


class RemoteAccess:
    """One access of the active lanes to a cluster's shared memory, with the place that each lane accesses.

    A lane whose address is misaligned or out of bounds is reported and then ignored. `places`: for each lane, the byte
    offset in the flattened array `machine.shared`.
    """

    def __init__(self, machine: Machine, access: MemoryOp, address: Array, mask: Array | None, size: int) -> None:
        chunk = machine.chunk
        lanes = chunk.real(machine.mask if mask is None else mask)
        rows, offset, exists = resolve(machine, address)
        misaligned = lanes & (offset & (size - 1) != 0)
        if misaligned.any():
            machine.hazards.misaligned(machine, access, misaligned, offset, size)
        outside = lanes & ~misaligned & (~exists | (offset < 0) | (offset > machine.shared_size - size))
        if outside.any():
            machine.hazards.outside(machine, access, outside, offset, size, 0, machine.shared_size)
        lanes = lanes & ~misaligned & ~outside
        machine.departures.use(access, rows, lanes)
        self.lanes, self.rows, self.offset = lanes, rows, offset
        self.places: Array = np.where(lanes, offset + rows * machine.shared.shape[1], 0)
        machine.cluster_races.log(access, rows, offset, lanes, size)


# The barrier of a cluster --------------------------------------------------------------------------------------------


class ClusterBarrier(Barrier):
    """barrier.cluster.wait: a lane's n-th wait lasts until all threads of the cluster have arrived n times."""

    def __init__(self) -> None:
        super().__init__(-1, None, False)


class Arrivals:
    """Counts for each thread of a chunk: how often it arrived at its cluster's barrier, how often it waited there."""

    def __init__(self, chunk: Chunk) -> None:
        self.shape = chunk.shape
        self.arrived: Array = np.zeros((1, 1), np.int64)  # this array has the chunk's shape after the first arrival
        self.waited: Array = np.zeros((1, 1), np.int64)

    def arrive(self, machine: Machine) -> None:
        """Count an arrival of each active lane at the barrier."""
        self.arrived = self.arrived + machine.lanes()
        machine.wake()

    def released(self, machine: Machine, lanes: Array) -> Array:
        """Return a mask of the waiting `lanes` that may go on, because all threads of their cluster have arrived; a
        thread that has ended counts as arrived."""
        chunk = machine.chunk
        counts = broadcast(self.arrived, self.shape)
        ended = np.zeros(chunk.shape, bool) if machine.exited is None else broadcast(machine.exited, chunk.shape).copy()
        if chunk.root is not None:
            ended |= ~chunk.root
        counts = np.where(ended, np.iinfo(np.int64).max, counts)
        least = counts.min(axis=1)
        clusters = chunk_clusters(machine)
        if clusters is not None:
            least = least[clusters.rows].min(axis=1)[clusters.cluster]
        return lanes & (least[:, None] > self.waited)


def wait(machine: Machine, op: Op, following: int, mask: Array | None, last: bool = False) -> bool:
    """Let lanes pass the barrier if all threads of their cluster have arrived, and park the other lanes; return whether
    any lane passed.

    `last`: whether no other lane can run. Then the barrier is a deadlock: it is reported as a hazard, and all lanes
    pass.
    """
    lanes = machine.chunk.real(mask)
    passing = lanes if last else machine.arrivals.released(machine, lanes)
    if last:
        machine.hazards.barrier(machine, op, lanes, [(op, lanes)], kind="deadlock")
    waiting = lanes & ~passing
    passed = bool(passing.any())
    if passed:
        if machine.exited is not None:
            clusters, rows = chunk_clusters(machine), passing.any(axis=1)
            if clusters is not None:
                rows = np.isin(clusters.cluster, clusters.cluster[rows])
            ended = machine.chunk.real(machine.exited) & rows[:, None]
            if ended.any():
                machine.hazards.ended(machine, op, ended)
        machine.arrivals.waited = machine.arrivals.waited + passing
        machine.arrive(following, machine.union(passing, passing))
        machine.end_interval()
        machine.global_races.grid_races.cluster_barrier(machine.chunk, passing)
        machine.cluster_races.barrier()
    if waiting.any():
        assert op.barrier is not None
        machine.parked.append((following, machine.union(waiting, waiting), op, op.barrier))
    return passed


# Races between the blocks of a cluster -------------------------------------------------------------------------------


class SharedAccess(NamedTuple):
    """An access to shared memory. The arrays have one element for each lane.

    `accessor`: the row of the accessing block. `rows`: the row of the block that owns the memory. `offset`: in bytes.
    `size`: the bytes that each lane accesses.
    """

    access: MemoryOp
    rows: Array
    offset: Array
    accessor: Array
    size: int


class ClusterRaces:
    """Finds races of two blocks of a cluster over the shared memory of one of these blocks, in the interval between two
    barriers of the cluster."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Forget the logged accesses at the start of a chunk or of an interval."""
        self.entries: list[SharedAccess] = []
        self.remote = False

    def log(self, access: MemoryOp, rows: Array, offset: Array, lanes: Array, size: int) -> None:
        """Log an access of the active `lanes`; `rows`: for each lane the row of the block that owns the memory."""
        if access.polls:
            self.machine.departures.wait(lanes)
        accessor, _ = np.nonzero(lanes)
        rows, offset = rows[lanes], offset[lanes]
        self.remote = self.remote or bool((rows != accessor).any())
        self.entries.append(SharedAccess(access, rows, offset, accessor, size))

    def barrier(self) -> None:
        """End the interval, and check it for races if any block has accessed the memory of another block."""
        entries, remote = self.entries, self.remote
        self.start()
        if not remote:
            return
        granules = self.machine.shared.shape[1] // WIDTH
        shadow = BlockShadow(granules * self.machine.chunk.blocks)
        for number, (access, rows, offset, accessor, size) in enumerate(entries):
            count = max(1, size // WIDTH)
            places = ((rows * granules + offset // WIDTH)[:, None] + np.arange(count)).reshape(-1)
            blocks = np.repeat(accessor, count) + 1
            bad = np.logical_or.reduce([shadow.others(kind, places, blocks) for kind in AGAINST[access.kind]])
            if bad.any():
                first = int(np.argmax(bad))
                self.report(entries[: number + 1], int(bad.sum()), int(accessor[first // count]), int(places[first]))
                return
            shadow.record(access.kind, places, blocks, number)

    def report(self, entries: list[SharedAccess], count: int, user: int, place: int) -> None:
        """Record a race between the last entry, of block `user`, and an earlier entry that accesses the same granule.

        `count`: the number of racing accesses. `place`: the number of the granule; the granules of all blocks are
        numbered consecutively.
        """
        machine, access = self.machine, entries[-1].access
        owner, granule = divmod(place, machine.shared.shape[1] // WIDTH)
        for entry in reversed(entries[:-1]):
            last = entry.offset // WIDTH + max(1, entry.size // WIDTH)
            hit = (
                (entry.rows == owner) & (entry.offset // WIDTH <= granule) & (granule < last) & (entry.accessor != user)
            )
            if hit.any() and entry.access.kind in AGAINST[access.kind]:
                break
        block, rival, memory = map(machine.chunk.block_index, (user, int(entry.accessor[hit][-1]), owner))
        name = machine.hazards.places.shared(granule * WIDTH, access.width, access.location.line)
        machine.hazards.add(
            "race", access.location, count, block, (0, 0, 0),
            f"block {block} and block {rival} of a cluster both use {name} of block {memory}, and one of them writes "
            f"(line {entry.access.location.line}): put a cluster barrier between the two accesses.",
        )  # fmt: skip
