"""Thread block clusters: which blocks belong together, each other's shared memory, and the barrier of a cluster.

An address in shared memory has the block's offset in its low 24 bits. Above them stands 0 for the block's own memory,
and else 1 more than a rank in the cluster, as `mapa` makes it.
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
WIDTH = 2  # bytes of a granule in which blocks may meet


class Members:
    """The clusters of a chunk: of each block its rank, and the rows of all of its cluster's blocks by rank."""

    def __init__(self, chunk: Chunk, dims: Index3) -> None:
        self.dims = dims
        self.size = dims[0] * dims[1] * dims[2]
        x, y, z = (axis.reshape(-1) for axis in chunk.axes[3:])
        # A chunk begins where a cluster does.
        self.rank: Array = x % dims[0] + dims[0] * (y % dims[1] + dims[1] * (z % dims[2]))
        wide, high = chunk.extent[0] // dims[0], chunk.extent[1] // dims[1]
        self.cluster: Array = x // dims[0] + wide * (y // dims[1] + high * (z // dims[2]))
        self.rows: Array = np.zeros((chunk.blocks // self.size, self.size), np.int64)
        self.rows[self.cluster, self.rank] = np.arange(chunk.blocks)

    def row(self, blocks: Array, ranks: Array) -> Array:
        """Return the rows of the blocks that have some ranks in the clusters of others."""
        found: Array = self.rows[self.cluster[blocks], np.clip(ranks, 0, self.size - 1)]
        return found


def members(machine: Machine) -> Members | None:
    """Return the clusters of the chunk in hand; None for a launch without clusters."""
    dims = machine.plan.cluster
    if dims is None:
        return None
    known: dict[int, Members] = machine.plan.members
    key = id(machine.chunk)
    if key not in known:
        known[key] = Members(machine.chunk, dims)
    return known[key]


def resolve(machine: Machine, address: Array) -> tuple[Array, Array, Array]:
    """Return (row of the block that is meant, offset in its memory, whether there is such a block), (blocks, threads).

    address: of shared memory, int64, of all lanes.
    """
    chunk = machine.chunk
    address = broadcast(address, chunk.shape)
    own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
    far = (address >= REMOTE) & (address < REMOTE * (MAX_CLUSTER + 1))
    if not far.any():
        return own, address, np.ones(chunk.shape, bool)
    found = members(machine)
    ranks = (address >> RANK_SHIFT) - 1
    if found is None:
        return own, address, ~far
    rows = np.where(far, found.row(own, np.where(far, ranks, 0)), own)
    return rows, np.where(far, address & (REMOTE - 1), address), ~far | (ranks < found.size)


class Remote:
    """The shared memory of a cluster's blocks, as the active lanes of an access address it: flat places in bytes."""

    def __init__(self, machine: Machine, access: MemoryOp, address: Array, mask: Array | None, size: int) -> None:
        chunk = machine.chunk
        lanes = chunk.real(machine.mask if mask is None else mask)
        rows, offset, known = resolve(machine, address)
        misaligned = lanes & (offset & (size - 1) != 0)
        if misaligned.any():
            machine.hazards.misaligned(machine, access, misaligned, offset, size)
        outside = lanes & ~misaligned & (~known | (offset < 0) | (offset > machine.shared_size - size))
        if outside.any():
            machine.hazards.outside(machine, access, outside, offset, size, 0, machine.shared_size)
        lanes = lanes & ~misaligned & ~outside
        machine.departures.use(access, rows, lanes)
        self.lanes, self.rows, self.offset = lanes, rows, offset
        self.places: Array = np.where(lanes, offset + rows * machine.shared.shape[1], 0)
        machine.cluster_races.log(access, rows, offset, lanes, size)


# The barrier of a cluster --------------------------------------------------------------------------------------------


class ClusterBarrier(Barrier):
    """barrier.cluster.wait: lanes wait until all threads of the cluster have arrived as often as they."""

    def __init__(self) -> None:
        super().__init__(-1, None, False)


class Arrivals:
    """How often each thread of a chunk has arrived at the barrier of its cluster, and waited."""

    def __init__(self, chunk: Chunk) -> None:
        self.shape = chunk.shape
        self.arrived: Array = np.zeros((1, 1), np.int64)  # as large as the chunk once anybody arrives
        self.waited: Array = np.zeros((1, 1), np.int64)

    def arrive(self, machine: Machine) -> None:
        """Let the active lanes arrive."""
        self.arrived = self.arrived + machine.lanes()
        machine.wake()

    def over(self, machine: Machine, lanes: Array) -> Array:
        """Return those lanes, which wait, whose clusters have all arrived; threads that have ended count as such."""
        chunk = machine.chunk
        counts = broadcast(self.arrived, self.shape)
        out = np.zeros(chunk.shape, bool) if machine.exited is None else broadcast(machine.exited, chunk.shape).copy()
        if chunk.root is not None:
            out |= ~chunk.root
        counts = np.where(out, np.iinfo(np.int64).max, counts)
        least = counts.min(axis=1)
        found = members(machine)
        if found is not None:
            least = least[found.rows].min(axis=1)[found.cluster]
        return lanes & (least[:, None] > self.waited)


def wait(machine: Machine, op: Op, following: int, mask: Array | None, last: bool = False) -> bool:
    """Let lanes pass the barrier of their cluster, or park them; return whether any passed.

    last: nothing else can move any more, so that who waits in vain goes on, with a hazard.
    """
    lanes = machine.chunk.real(mask)
    over = lanes if last else machine.arrivals.over(machine, lanes)
    if last:
        machine.hazards.barrier(machine, op, lanes, [(op, lanes)], "deadlock")
    left = lanes & ~over
    passed = bool(over.any())
    if passed:
        if machine.exited is not None:
            found, rows = members(machine), over.any(axis=1)
            if found is not None:
                rows = np.isin(found.cluster, found.cluster[rows])
            gone = machine.chunk.real(machine.exited) & rows[:, None]
            if gone.any():
                machine.hazards.ended(machine, op, gone)
        machine.arrivals.waited = machine.arrivals.waited + over
        machine.arrive(following, machine.union(over, over))
        machine.end_interval()
        machine.global_races.grid_races.cluster_barrier(machine.chunk, over, machine.arrivals.waited)
        machine.cluster_races.barrier()
        machine.departures.passed()
    if left.any():
        assert op.barrier is not None
        machine.parked.append((following, machine.union(left, left), op, op.barrier))
    return passed


# Races between the blocks of a cluster -------------------------------------------------------------------------------


class Used(NamedTuple):
    """An access of blocks, `who`, to the shared memory of those in some rows, by bytes."""

    access: MemoryOp
    rows: Array
    offset: Array
    who: Array
    size: int


class ClusterRaces:
    """Races between blocks over the shared memory of one of them, from one barrier of the cluster to the next."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Begin a chunk."""
        self.entries: list[Used] = []
        self.remote = False

    def log(self, access: MemoryOp, rows: Array, offset: Array, lanes: Array, size: int) -> None:
        """Log an access; rows: the blocks whose memory it is."""
        if access.polls:
            self.machine.departures.wait(lanes)
        who, _ = np.nonzero(lanes)
        rows, offset = rows[lanes], offset[lanes]
        self.remote = self.remote or bool((rows != who).any())
        self.entries.append(Used(access, rows, offset, who, size))

    def barrier(self) -> None:
        """Examine the interval, where any block has used another's memory."""
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
            found = [trail.others(kind, places, blocks) for kind in AGAINST[access.kind]]
            bad = np.logical_or.reduce([others for others in found if others is not None] or [np.False_])
            if bad.any():
                at = int(np.argmax(bad))
                self.report(entries[: number + 1], int(bad.sum()), int(who[at // count]), int(places[at]))
                return
            trail.leave(access.kind, places, blocks, number, None)

    def report(self, entries: list[Used], count: int, mine: int, place: int) -> None:
        """Record a race of a block, by the last entry of the log, with what another did to the granule before."""
        machine, access = self.machine, entries[-1].access
        owner, granule = divmod(place, machine.shared.shape[1] // WIDTH)
        for other in reversed(entries[:-1]):
            last = other.offset // WIDTH + max(1, other.size // WIDTH)
            hit = (other.rows == owner) & (other.offset // WIDTH <= granule) & (granule < last) & (other.who != mine)
            if hit.any() and other.access.kind in AGAINST[access.kind]:
                break
        block, rival, memory = map(machine.chunk.block_index, (mine, int(other.who[hit][-1]), owner))
        name = machine.hazards.places.shared(granule * WIDTH, access.width, access.location.line)
        machine.hazards.add(
            "race", access.location, count, block, (0, 0, 0),
            f"block {block} and block {rival} of a cluster both use {name} of block {memory}, and one of them writes "
            f"(line {other.access.location.line}): put a cluster barrier between.",
        )  # fmt: skip
