"""Thread block clusters: their blocks, distributed shared memory, and the barrier of a cluster.

An address in shared memory has the offset in a block's memory in its low 24 bits. The bits above are 0 for the block's
own memory, else 1 more than the block's rank in the cluster, as `mapa` makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.occupancy import MAX_CLUSTER
from cudabench.simulator.check.grid_races import AGAINST, Trail
from cudabench.simulator.program.code import Barrier, Op
from cudabench.simulator.values import Array, Chunk, Index3, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

RANK_SHIFT = 24
REMOTE = 1 << RANK_SHIFT
WIDTH = 2  # bytes of a granule of the race check


class Members:
    """The clusters of a chunk: each block's cluster and rank, and the rows of each cluster's blocks by rank."""

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
        """Return the rows of the blocks with these ranks in the clusters of `blocks`."""
        rows: Array = self.rows[self.cluster[blocks], np.clip(ranks, 0, self.size - 1)]
        return rows


def members(machine: Machine) -> Members | None:
    """Return the clusters of the current chunk; None for a launch without clusters."""
    dims = machine.plan.cluster
    if dims is None:
        return None
    cache: dict[int, Members] = machine.plan.members
    key = id(machine.chunk)
    if key not in cache:
        cache[key] = Members(machine.chunk, dims)
    return cache[key]


def resolve(machine: Machine, address: Array) -> tuple[Array, Array, Array]:
    """Return (row of the addressed block, offset in its memory, whether the block exists), each (blocks, threads).

    address: of shared memory, int64, of all lanes.
    """
    chunk = machine.chunk
    address = broadcast(address, chunk.shape)
    own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
    remote = (address >= REMOTE) & (address < REMOTE * (MAX_CLUSTER + 1))
    if not remote.any():
        return own, address, np.ones(chunk.shape, bool)
    clusters = members(machine)
    ranks = (address >> RANK_SHIFT) - 1
    if clusters is None:
        return own, address, ~remote
    rows = np.where(remote, clusters.row(own, np.where(remote, ranks, 0)), own)
    return rows, np.where(remote, address & (REMOTE - 1), address), ~remote | (ranks < clusters.size)


class Remote:
    """The places in a cluster's shared memory that the active lanes of an access address: flat offsets in bytes."""

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
    """barrier.cluster.wait: lanes wait until all threads of the cluster have arrived as often as they have."""

    def __init__(self) -> None:
        super().__init__(-1, None, False)


class Arrivals:
    """How often each thread of a chunk has arrived at its cluster's barrier, and how often it has waited there."""

    def __init__(self, chunk: Chunk) -> None:
        self.shape = chunk.shape
        self.arrived: Array = np.zeros((1, 1), np.int64)  # of the chunk's shape after the first arrival
        self.waited: Array = np.zeros((1, 1), np.int64)

    def arrive(self, machine: Machine) -> None:
        """Let the active lanes arrive."""
        self.arrived = self.arrived + machine.lanes()
        machine.wake()

    def over(self, machine: Machine, lanes: Array) -> Array:
        """Return the waiting `lanes` whose whole cluster has arrived; ended threads count as arrived."""
        chunk = machine.chunk
        counts = broadcast(self.arrived, self.shape)
        ended = np.zeros(chunk.shape, bool) if machine.exited is None else broadcast(machine.exited, chunk.shape).copy()
        if chunk.root is not None:
            ended |= ~chunk.root
        counts = np.where(ended, np.iinfo(np.int64).max, counts)
        least = counts.min(axis=1)
        clusters = members(machine)
        if clusters is not None:
            least = least[clusters.rows].min(axis=1)[clusters.cluster]
        return lanes & (least[:, None] > self.waited)


def wait(machine: Machine, op: Op, following: int, mask: Array | None, last: bool = False) -> bool:
    """Let lanes pass the barrier of their cluster, or park them; return whether any passed.

    last: no other lane can run, so that lanes that wait in vain go on, with a hazard.
    """
    lanes = machine.chunk.real(mask)
    passing = lanes if last else machine.arrivals.over(machine, lanes)
    if last:
        machine.hazards.barrier(machine, op, lanes, [(op, lanes)], "deadlock")
    waiting = lanes & ~passing
    passed = bool(passing.any())
    if passed:
        if machine.exited is not None:
            clusters, rows = members(machine), passing.any(axis=1)
            if clusters is not None:
                rows = np.isin(clusters.cluster, clusters.cluster[rows])
            ended = machine.chunk.real(machine.exited) & rows[:, None]
            if ended.any():
                machine.hazards.ended(machine, op, ended)
        machine.arrivals.waited = machine.arrivals.waited + passing
        machine.arrive(following, machine.union(passing, passing))
        machine.end_interval()
        machine.global_races.grid_races.cluster_barrier(machine.chunk, passing, machine.arrivals.waited)
        machine.cluster_races.barrier()
        machine.departures.passed()
    if waiting.any():
        assert op.barrier is not None
        machine.parked.append((following, machine.union(waiting, waiting), op, op.barrier))
    return passed


# Races between the blocks of a cluster -------------------------------------------------------------------------------


class Used(NamedTuple):
    """An access of the blocks `who` to the shared memory of the blocks `rows`; offset and size in bytes."""

    access: MemoryOp
    rows: Array
    offset: Array
    who: Array
    size: int


class ClusterRaces:
    """Races between blocks on the shared memory of one of them, in the interval between two cluster barriers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Begin a chunk."""
        self.entries: list[Used] = []
        self.remote = False

    def log(self, access: MemoryOp, rows: Array, offset: Array, lanes: Array, size: int) -> None:
        """Log an access; rows: the blocks that own the memory."""
        if access.polls:
            self.machine.departures.wait(lanes)
        who, _ = np.nonzero(lanes)
        rows, offset = rows[lanes], offset[lanes]
        self.remote = self.remote or bool((rows != who).any())
        self.entries.append(Used(access, rows, offset, who, size))

    def barrier(self) -> None:
        """Check the interval for races, if any block has accessed another's memory."""
        entries, remote = self.entries, self.remote
        self.start()
        if not remote:
            return
        granules = self.machine.shared.shape[1] // WIDTH
        trail = Trail(granules * self.machine.chunk.blocks)
        for number, (access, rows, offset, who, size) in enumerate(entries):
            count = max(1, size // WIDTH)
            places = ((rows * granules + offset // WIDTH)[:, None] + np.arange(count)).reshape(-1)
            blocks = np.repeat(who, count) + 1
            conflicts = [trail.others(kind, places, blocks) for kind in AGAINST[access.kind]]
            bad = np.logical_or.reduce([conflict for conflict in conflicts if conflict is not None] or [np.False_])
            if bad.any():
                first = int(np.argmax(bad))
                self.report(entries[: number + 1], int(bad.sum()), int(who[first // count]), int(places[first]))
                return
            trail.leave(access.kind, places, blocks, number, None)

    def report(self, entries: list[Used], count: int, user: int, place: int) -> None:
        """Record a race of a block's access, the last of the log, with an earlier access to the granule."""
        machine, access = self.machine, entries[-1].access
        owner, granule = divmod(place, machine.shared.shape[1] // WIDTH)
        for entry in reversed(entries[:-1]):
            last = entry.offset // WIDTH + max(1, entry.size // WIDTH)
            hit = (entry.rows == owner) & (entry.offset // WIDTH <= granule) & (granule < last) & (entry.who != user)
            if hit.any() and entry.access.kind in AGAINST[access.kind]:
                break
        block, rival, memory = map(machine.chunk.block_index, (user, int(entry.who[hit][-1]), owner))
        name = machine.hazards.places.shared(granule * WIDTH, access.width, access.location.line)
        machine.hazards.add(
            "race", access.location, count, block, (0, 0, 0),
            f"block {block} and block {rival} of a cluster both use {name} of block {memory}, and one of them writes "
            f"(line {entry.access.location.line}): put a cluster barrier between.",
        )  # fmt: skip
