"""Thread block clusters: which blocks belong together, each other's shared memory, and the barrier of a cluster.

An address in shared memory has the block's offset in its low 24 bits. Above them stands 0 for the block's own memory,
and else 1 more than a rank in the cluster, as `mapa` makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.occupancy import MAX_CLUSTER
from cudabench.simulator.program.code import Barrier, Op
from cudabench.simulator.values import Affine, Array, Chunk, Index3, Value, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

RANK_SHIFT = 24
REMOTE = 1 << RANK_SHIFT


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


def special(machine: Machine, name: str) -> Value:
    """Return what a special register of clusters holds."""
    chunk = machine.chunk
    dims = machine.plan.cluster or (1, 1, 1)
    base, _, axis = name.partition(".")
    place = "xyz".find(axis) if axis else 0
    if base == "%is_explicit_cluster":
        return machine.plan.cluster is not None
    if base == "%cluster_nctaid":
        return Affine(dims[place])
    if base == "%cluster_nctarank":
        return Affine(dims[0] * dims[1] * dims[2])
    if base == "%nclusterid":
        return Affine(chunk.grid[place] // dims[place])
    if base == "%cluster_ctarank":
        found = members(machine)
        return Affine(0) if found is None else found.rank.reshape(-1, 1).astype(np.uint32)
    block = chunk.block_indices()[place].reshape(-1, 1)
    part = block // dims[place] if base == "%clusterid" else block % dims[place]
    return part.astype(np.uint32)


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
        lanes = machine.lanes() if mask is None else broadcast(mask, chunk.shape)
        if chunk.root is not None:
            lanes = lanes & chunk.root
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


def wait(machine: Machine, op: Op, number: int, mask: Array | None) -> None:
    """Let lanes pass the barrier of their cluster, or park them."""
    lanes = machine.chunk.real(np.ones((1, 1), bool) if mask is None else mask)
    over = machine.arrivals.over(machine, lanes)
    left = lanes & ~over
    if over.any():
        go_on(machine, op, number + 1, over)
    if left.any():
        assert op.barrier is not None
        machine.parked.append((number + 1, machine.union(left, left), op, op.barrier))


def go_on(machine: Machine, op: Op, following: int, over: Array) -> None:
    """Let lanes go on behind the barrier."""
    if machine.exited is not None:
        found, rows = members(machine), over.any(axis=1)
        if found is not None:
            rows = np.isin(found.cluster, found.cluster[rows])
        gone = machine.chunk.real(machine.exited) & rows[:, None]
        if gone.any():
            machine.hazards.early_exit(machine, op, gone, 0)
    machine.arrivals.waited = machine.arrivals.waited + over
    machine.arrive(following, machine.union(over, over))
    machine.shared_races.barrier()
    machine.global_races.barrier()
    machine.global_races.grid_races.cluster_barrier(machine.chunk, over, machine.arrivals.waited)
    machine.cluster_races.barrier()
    machine.departures.passed()


def release(machine: Machine, entries: list[tuple[int, Any, Op, Barrier]], last: bool) -> list[Any] | None:
    """Let parked lanes go on whose clusters have arrived; return what stays parked, None where nothing moved.

    last: nothing else can move any more, so that who waits in vain goes on, with a hazard.
    """
    moved = False
    left: list[Any] = []
    for following, mask, op, barrier in entries:
        if not isinstance(barrier, ClusterBarrier):
            left.append((following, mask, op, barrier))
            continue
        lanes = machine.chunk.real(np.ones((1, 1), bool) if mask is None else mask)
        over = machine.arrivals.over(machine, lanes)
        if last:
            machine.hazards.barrier(machine, op, lanes, [(op, lanes)], machine.exited, "deadlock")
            over = lanes
        rest = lanes & ~over
        if over.any():
            moved = True
            go_on(machine, op, following, over)
        if rest.any():
            left.append((following, machine.union(rest, rest), op, barrier))
    return left if moved else None


# Races between the blocks of a cluster -------------------------------------------------------------------------------


class ClusterRaces:
    """Races between blocks over the shared memory of one of them, from one barrier of the cluster to the next."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.entries: list[tuple[MemoryOp, Array, Array, Array, int]] = []
        self.remote = False

    def start(self) -> None:
        """Begin a chunk."""
        self.entries = []
        self.remote = False

    def log(self, access: MemoryOp, rows: Array, offset: Array, lanes: Array, size: int) -> None:
        """Log an access; rows: the blocks whose memory it is."""
        if access.polls:
            self.machine.departures.wait(lanes)
        who, _ = np.nonzero(lanes)
        rows, offset = rows[lanes], offset[lanes]
        self.remote = self.remote or bool((rows != who).any())
        self.entries.append((access, rows, offset, who, size))

    def barrier(self) -> None:
        """Examine the interval, where any block has used another's memory."""
        entries, remote = self.entries, self.remote
        self.start()
        if not remote:
            return
        width = 2
        machine = self.machine
        granules = machine.shared.shape[1] // width
        total = granules * machine.chunk.blocks
        # By granule: the block that wrote it, or used it, -1 for none, -2 for several; and the entry that did.
        wrote, used = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
        updated: Array = np.ones(total, bool)  # by atomics alone
        seen: Array = np.full(total, -1, np.int64)
        for number, (access, rows, offset, who, size) in enumerate(entries):
            count = max(1, size // width)
            places = (rows * granules + offset // width)[:, None] + np.arange(count)
            places, blocks = places.reshape(-1), np.repeat(who, count)
            bad = (used[places] != -1) & (used[places] != blocks)
            if access.kind == "load":
                bad &= wrote[places] != -1
            if access.kind == "atomic":
                bad &= ~updated[places]
            if bad.any():
                self.report(entries, number, places, blocks, int(np.argmax(bad)), int(bad.sum()), seen, granules, width)
                return
            used[places] = np.where((used[places] == -1) | (used[places] == blocks), blocks, -2)
            if access.kind != "load":
                wrote[places] = blocks
            updated[places] &= access.kind == "atomic"
            seen[places] = number

    def report(
        self, entries: Any, number: int, places: Array, blocks: Array, at: int, count: int, seen: Array, granules: int,
        width: int,
    ) -> None:  # fmt: skip
        """Record a race by two entries of the log."""
        machine = self.machine
        access, other = entries[number][0], entries[int(seen[places[at]])]
        owner, offset = divmod(int(places[at]), granules)
        hits = np.flatnonzero((other[1] == owner) & (other[2] // width <= offset))
        rival = int(other[3][hits[-1]]) if hits.size else owner
        block = machine.chunk.block_index(int(blocks[at]))
        name = machine.hazards.places.shared(offset * width, access.width, access.location.line)
        machine.hazards.add(
            "race", access.location, count, block, (0, 0, 0),
            f"block {block} and block {machine.chunk.block_index(rival)} of a cluster both use {name} of block "
            f"{machine.chunk.block_index(owner)}, and one of them writes (line {other[0].location.line}): put a "
            "cluster barrier between.",
        )  # fmt: skip
