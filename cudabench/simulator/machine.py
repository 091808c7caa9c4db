"""Execution of one launch: chunks of blocks, divergence, barriers.

All lanes of a chunk that are at the same basic block run it together. Where a branch splits them, each side waits at
its block and the block of the lowest rank runs first (`program.order`), so that the sides meet again where their paths
do. Lanes at a barrier are parked until no other lane of the chunk can run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Literal

import numpy as np

from cudabench.simulator import clusters
from cudabench.simulator.check import members
from cudabench.simulator.check.barriers import Barriers
from cudabench.simulator.check.cures import BLOCK, WARP
from cudabench.simulator.check.departures import Departures
from cudabench.simulator.check.global_races import GlobalRaces
from cudabench.simulator.check.hazards import Hazards
from cudabench.simulator.check.locks import Locks, Releases
from cudabench.simulator.check.places import Between, Declared
from cudabench.simulator.check.proxies import Proxies
from cudabench.simulator.check.shared_races import SharedRaces
from cudabench.simulator.check.stale import StaleReads
from cudabench.simulator.check.waits import FIRST, Waits
from cudabench.simulator.count.contention import Contention
from cudabench.simulator.count.counters import Counters
from cudabench.simulator.count.requests import active, active_lanes, active_warps
from cudabench.simulator.count.shares import Shares
from cudabench.simulator.count.trace import Recorder
from cudabench.simulator.errors import BudgetExceeded
from cudabench.simulator.masks import MOST_BYTES, joined, parted
from cudabench.simulator.memory import PARAMETER_WINDOW, Region
from cudabench.simulator.plan import Plan
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.program.code import Barrier, Block, Op
from cudabench.simulator.report import Executed
from cudabench.simulator.schedule import Turns
from cudabench.simulator.special_registers import special
from cudabench.simulator.stack import Stack
from cudabench.simulator.values import BOOL, UNSIGNED, Affine, Array, Chunk, Value, as_array, broadcast, truth

# Of so many turns of lanes that parted, those that the lanes farthest behind in turn get.
FAIRNESS, BURST = 4096, 64
_EVERYTHING = range(1 << 62)  # registers: a guarded instruction keeps the old value of the lanes that skip it
MOST_KEPT = 4096  # sets of waiting blocks whose registers are remembered


class Machine:
    """The state of a launch; instructions are functions that take it."""

    def __init__(
        self,
        plan: Plan,
        placed: Placed,
        budget: int,
        trace: Recorder | None = None,
        progress: Callable[[int, int], None] | None = None,
        merged: Mapping[int, tuple[int, int]] | None = None,
        seconds: float | None = None,
        declared: Declared | None = None,
        between: Between | None = None,
        grid_barrier: int = 0,
    ) -> None:
        self.plan, self.code, self.grid, self.block = plan, plan.code, plan.grid, plan.block
        self.dynamic_shared, self.shared_size = plan.dynamic_shared, plan.shared_size
        self.space = placed.space
        given = np.frombuffer(placed.parameters, dtype=np.uint8)
        self.parameters = Region("the parameters", PARAMETER_WINDOW, given, False)
        self.parameter_values: dict[tuple[int, int, str], Value] = {}
        self.budget, self.trace, self.progress = budget, trace, progress
        self.counters = Counters(plan, merged or {})
        self.shares: Shares | None = None  # where blocks are compared
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds if seconds is not None else math.inf
        self.hazards = Hazards(plan.code, placed.space, plan.shared_size, declared, between)
        self.parted: dict[tuple[int, int], int] = {}  # by file and line of a condition: how far it parts, see `cures`
        self.instructions = 0
        # By block of code: warps, lanes; of the branch at its end lanes that took it, warps parted, warps that took it.
        self.executed = [[0, 0, 0, 0, 0] for _ in plan.code.blocks]
        self.ranks = [block.rank for block in plan.code.blocks]
        self.steps = 0
        self.output: list[str] = []
        self.textures = placed.textures  # by handle
        self.surface_writes: dict[int, Array] = {}  # by where the array lies: which bytes the launch wrote to a surface
        self.tensor_maps = placed.maps  # by handle
        self.cluster_races = clusters.ClusterRaces(self)
        self.proxies = Proxies(self)
        self.watch: Waits | None = None  # a look whether the launch ever ends
        self.next_look = min(FIRST, budget)  # the steps at which it begins
        self.last_chunk = True  # whether all blocks that have not run yet are in the chunk
        self.loose: set[int] = set()  # collectives that lanes run without others that wait there
        self.spins = False  # whether lanes found that what they wait for is not over
        self.asleep: set[int] = set()  # blocks of code at which lanes found so
        self.held: tuple[int, ...] = ()  # the blocks of code at which the lanes of other groups are, see `Turns`
        self.grid_barrier = grid_barrier  # the address of what a cooperative launch has
        self.registers: list[Value] = []
        self.mask: Array | None = None
        self.keep: Container[int] = frozenset()
        self.chunk: Chunk = plan.chunks[0][1]
        self.shared: Array = None
        self.local: Array = None
        self.local_bytes = 0  # of a thread, in use
        self.stack = Stack(self.chunk)
        self.shared_races = SharedRaces(self)
        self.global_races = GlobalRaces(self)
        self.stale = StaleReads(self)
        self.exited: Array | None = None
        self.ended_in_part: tuple[Array, Array | None] | None = None  # of `exited`: see `members.examine`
        self.barriers = Barriers(self)
        self.locks: Locks | None = None
        self.releases: Releases | None = None
        self.settles = False
        # By atomic instruction: its addresses, and whether what it returns is used.
        self.contention: dict[int, tuple[Contention, bool]] = {}
        self.detours: dict[int, Executed] = {}  # by PTX line: what called a subroutine
        self._warps = -1

    # What instructions use.

    def put(self, index: int, value: Value) -> None:
        """Write a register for the active lanes; lanes that wait elsewhere keep what they may still read."""
        if index in self.keep and self.mask is not None:
            value = self.merge(index, value)
        self.registers[index] = value

    def merge(self, index: int, value: Value, old: Value = None, lanes: Array | None = None) -> Value:
        """Return the register with new values in the active lanes, or in others; old: in the place of what it has."""
        old = self.registers[index] if old is None else old
        mask = self.mask if lanes is None else lanes
        width = self.code.widths[index]
        if width == 1:
            new, past = as_array(value, BOOL, self.chunk), as_array(old, BOOL, self.chunk)
            return truth(np.where(mask, new, past))  # type: ignore[arg-type]
        if type(old) is Affine or type(value) is Affine or old.dtype != value.dtype:
            if (
                type(old) is Affine and type(value) is Affine
                and old.base == value.base and old.coefficients == value.coefficients
            ):  # fmt: skip
                return value
            dtype = UNSIGNED[width] if width < 128 else value.dtype
            value, old = as_array(value, dtype, self.chunk), as_array(old, dtype, self.chunk)
        return np.where(mask, value, old)  # type: ignore[arg-type]

    def array(self, index: int, dtype: np.dtype[Any]) -> Array:
        """Return a register's bits as an array."""
        return as_array(self.registers[index], dtype, self.chunk)

    @property
    def warps(self) -> int:
        """The number of warps with an active lane."""
        if self._warps < 0:
            self._warps = active_warps(self.mask, self.chunk)
        return self._warps

    def detour(self, line: int, called: Array, zero: Array) -> None:
        """Note which lanes call the subroutine of a division or root, and of those the ones whose operand is zero."""
        active = self.chunk.root if self.mask is None else self.mask
        others = ~called
        if active is not None:
            called, others = called & active, others & active
        lanes, taking = active_lanes(called, self.chunk), active_warps(called, self.chunk)
        if not lanes:
            return
        zero = called & zero
        self.detours[line] = self.detours.get(line, Executed()).plus(
            taken=lanes, taking=taking, parted=taking + active_warps(others, self.chunk) - self.warps,
            zero_lanes=active_lanes(zero, self.chunk), zero_warps=active_warps(zero, self.chunk),
        )  # fmt: skip

    def lanes(self) -> Array:
        """Return the active lanes as a full (blocks, threads) bool array."""
        return self.chunk.lanes(self.mask)

    def first_value(self, index: int) -> int:
        """Return what the first lane has in a 32-bit register, for values that all lanes share."""
        value = self.registers[index]
        return value.base if type(value) is Affine else int(as_array(value, UNSIGNED[32], self.chunk).flat[0])

    def contend(self, number: int, addresses: Array, mask: Array | None, returns: bool) -> None:
        """Note an atomic of the lanes of a mask on global memory."""
        chunk = self.chunk
        contention, _ = self.contention.setdefault(number, (Contention(), returns))
        lanes = chunk.real(mask)
        blocks = self.global_races.grid_races.numbers(chunk)
        chosen = np.flatnonzero(lanes)
        contention.add(broadcast(addresses, chunk.shape).reshape(-1)[chosen], blocks[chosen // chunk.threads])

    def fence(self, wide: bool = True) -> None:
        """Note a fence of the active lanes; wide: one that other blocks see."""
        if wide:
            self.global_races.grid_races.fence(self.chunk, self.mask)
        if self.locks is not None:
            self.locks.fence(self)
        if self.releases is not None:
            self.order("fence", None, self.releases.fence(self.lanes()))

    def order(self, kind: Literal["sync", "acquire", "fence"], mask: Array | None, what: Any = None) -> None:
        """Log what orders accesses of one block, as of `check.races.Sync`."""
        self.shared_races.sync(kind, mask, what)
        self.global_races.sync(kind, mask, what)

    # The launch.

    def run(self) -> None:
        """Run all blocks of the grid."""
        total = self.plan.blocks
        done = 0
        with np.errstate(all="ignore"):
            whole = total == self.grid[0] * self.grid[1] * self.grid[2]  # no sample of the grid
            for origin, chunk in self.plan.chunks:
                chunk.origin = origin
                self.last_chunk = whole and done + chunk.blocks == total
                self.run_chunk(chunk)
                done += chunk.blocks
                if self.progress is not None:
                    self.progress(done, total)
        self.plan.remembered += self.counters.remembered

    def start(self, chunk: Chunk) -> None:
        """Set registers and memories for a chunk."""
        self.chunk = chunk
        registers = self.registers = list(self.code.initial)
        for name, index in self.code.special.items():
            registers[index] = special(self, name)
        if self.shared_size:
            size = -(-self.shared_size // 16) * 16
            if self.shared is None or self.shared.shape != (chunk.blocks, size):
                self.shared = np.zeros((chunk.blocks, size), dtype=np.uint8)
        if self.code.local_bytes:
            size = -(-self.code.local_bytes // 16) * 16
            if self.local is None or self.local.shape[0] != chunk.blocks:
                self.local = np.zeros((chunk.blocks, chunk.threads, size), dtype=np.uint8)
                self.local_bytes = self.code.local_bytes
        if self.code.calls:
            self.stack = Stack(chunk)
        self.locks = Locks(chunk) if self.code.locks or self.code.waits else None
        self.releases = Releases(chunk) if self.code.waits else None
        # Whether accesses to shared memory that come again count and are checked as before.
        self.settles = self.trace is None and self.plan.cluster is None
        self.settles = self.settles and not (self.code.locks or self.code.proxies or self.code.waits)
        self.arrivals = clusters.Arrivals(chunk)
        self.departures = Departures(self)
        self.proxies.start(chunk)
        self.cluster_races.start()
        self.barriers.start(chunk)
        self.shared_races.start(chunk)
        self.global_races.start(chunk)
        if self.counters.footprints is not None:
            self.counters.footprints.start(chunk, self.instructions)
        if self.shares is not None:
            self.shares.start(self.global_races.grid_races.numbers(chunk) - 1)

    def run_chunk(self, chunk: Chunk) -> None:
        """Run the blocks of a chunk to their end."""
        self.start(chunk)
        blocks, executed = self.code.blocks, self.executed
        ready: dict[int, Array | None] = {0: chunk.root}
        waiting: dict[int, Array | None] = {}
        parked: list[tuple[int, Array | None, Op, Barrier]] = []
        self.exited = None
        self.asleep.clear()
        self.loose.clear()
        self.watch = None
        self.ready, self.waiting, self.parked = ready, waiting, parked
        turns = self.groups(chunk)
        self.turn = BURST
        nothing: frozenset[int] = frozenset()
        kept = chunk.masks
        clock, deadline = time.monotonic, self.deadline
        timed = deadline < math.inf
        everybody = chunk.blocks * chunk.warps, chunk.blocks * chunk.threads
        shares = self.shares
        ran = self.barriers.ran if self.barriers.any else None
        ways = {
            "exit": self.exit, "barrier": self.barrier, "call": self.call, "return": self.go_back,
            "table": self.branch_table,
        }  # fmt: skip
        while True:
            if turns is not None:
                turns.step()
            if len(ready) == 1 and not waiting and not parked and not self.held and self.watch is None:
                number, mask = ready.popitem()
                self.keep = nothing
                forced = False
            else:
                chosen = self.choose()
                if chosen is None:
                    if ready or waiting or parked:
                        continue
                    break
                number, mask, forced = chosen
            if kept is not None and kept.bytes > MOST_BYTES:
                kept.forget()
            block = blocks[number]
            self.mask = mask
            self._warps = -1
            if ran is not None:
                ran(number, mask)
            if block.ops and block.ops[0].kind == "collective" and mask is not chunk.root:
                missing = members.missing(self, block.ops[0])
                if missing is not None:
                    if not forced:
                        waiting[number] = mask
                        continue
                    self.hazards.elsewhere_in_mask(self, block.ops[0], missing)
            weight = block.weight
            self.steps += weight
            if self.steps > self.next_look or (timed and clock() > deadline):
                self.examine(block, number, mask)
            if mask is None:
                count, active_ = everybody
            else:
                count, active_ = (kept and kept.counts.get(id(mask))) or active(mask, chunk)
            self._warps = count
            self.instructions += weight * count
            if shares is not None:
                shares.add(number, weight, mask, chunk)
            times = executed[number]
            times[0] += count
            times[1] += active_
            if block.simple:
                for run in block.runs:
                    run(self)
            else:
                self.guarded(block)
            if self.spins or (turns is not None and number in self.code.polling):
                self.spins = False
                self.asleep.add(number)
            end = block.terminator
            if end is None:
                self.arrive(number + 1, mask)
                continue
            if end.kind == "branch":
                self.branch(end, number, mask)
                continue
            yes, no = self.split(end, mask)
            if no is not False:
                self.arrive(number + 1, no)
            if yes is not False:
                ways[end.kind](end, number, yes)
        self.shared_races.finish()
        self.global_races.barrier()
        self.cluster_races.barrier()
        self.departures.finish()

    def choose(self) -> tuple[int, Array | None, bool] | None:
        """Return the block of code that runs next, its lanes, and whether they go on without others that they name.

        None where lanes at a barrier were let go on, or none are left.
        """
        ready, waiting, parked, rank = self.ready, self.waiting, self.parked, self.ranks.__getitem__
        if not ready:
            if not waiting:
                if parked:
                    self.barriers.release()
                return None
            number = min(waiting, key=rank)
            mask = waiting.pop(number)
            self.keep = self.others()
            return number, mask, True
        awake: Collection[int] = () if self.watch is None else self.watch.turn()
        if len(ready) == 1 and not waiting and not parked and not self.held:
            self.keep = frozenset()
            return (*ready.popitem(), False)
        self.turn += 1
        # Lanes that spin on a lock must not starve the lane that holds it.
        late = self.turn % FAIRNESS < BURST
        if self.turn % FAIRNESS == 0:
            members.reconsider(self)
            if parked and self.barriers.release(spinning=True):
                return None  # what they spin on may be for a block at a barrier to write
        number = max(ready, key=rank) if late else min(awake or ready, key=rank)
        if self.asleep and not late and not awake:
            awake = ready.keys() - self.asleep
            if not awake:
                self.asleep.clear()
                members.reconsider(self)
                if parked and self.barriers.release(spinning=True):
                    return None
            number = min(awake or ready, key=rank)
        mask = ready.pop(number)
        if number in self.loose:
            self.loose.discard(number)
        elif number in waiting:
            mask = self.union(mask, waiting.pop(number))
        self.keep = self.others()
        return number, mask, False

    def groups(self, chunk: Chunk) -> Turns | None:
        """Return the groups of blocks that take turns; None where all blocks of a chunk run in step."""
        self.held = ()
        schedule = self.plan.schedule
        if schedule is None or not self.code.meets or self.plan.cluster is not None or chunk.blocks == 1:
            return None
        return Turns(self, schedule, chunk)

    def others(self) -> frozenset[int]:
        """Return the registers that lanes waiting elsewhere may still read."""
        kept = self.plan.kept
        key = (*self.ready, -1, *self.waiting, -1, *[entry[0] for entry in self.parked], *self.held)
        found = kept.get(key)
        if found is None:
            if len(kept) > MOST_KEPT:
                kept.clear()
            numbers = frozenset(key)
            found = kept.get(numbers)
            if found is None:
                live = 0
                for number in numbers:
                    if number >= 0:
                        live |= self.code.blocks[number].live
                bits = bin(live)[:1:-1]  # from the lowest on
                found = kept[numbers] = frozenset(index for index, bit in enumerate(bits) if bit == "1")
            kept[key] = found
        return found

    def guarded(self, block: Block) -> None:
        """Run a block in which some instructions are predicated."""
        mask, keep, warps = self.mask, self.keep, self._warps
        registers = self.registers
        for op in block.ops:
            if op.guard < 0:
                op.run(self)  # type: ignore[misc]
                continue
            guard = registers[op.guard]
            if type(guard) is bool:
                if guard != op.inverted:
                    op.run(self)  # type: ignore[misc]
                continue
            chosen = ~guard if op.inverted else guard
            if mask is not None:
                chosen = chosen & mask
            if not chosen.any():
                continue
            if mask is None and chosen.all():
                op.run(self)  # type: ignore[misc]
                continue
            self.mask, self.keep, self._warps = chosen, _EVERYTHING, -1
            op.run(self)  # type: ignore[misc]
            self.mask, self.keep, self._warps = mask, keep, warps

    # Control flow.

    def union(self, x: Array | None, y: Array | None) -> Array | None:
        """Return the lanes in either mask; all lanes are always the chunk's root mask itself."""
        if x is None or y is None:
            return None
        kept = self.chunk.masks
        return joined(x, y, self.chunk.root) if kept is None else kept.union(x, y)

    def arrive(self, number: int, mask: Array | None) -> None:
        """Let lanes wait to run a block."""
        ready = self.ready
        ready[number] = self.union(mask, ready[number]) if number in ready else mask

    def split(self, op: Op, mask: Array | None) -> tuple[Any, Any]:
        """Return (lanes for which the guard holds, the others): masks, or False for no lane."""
        if op.guard < 0:
            return mask, False
        guard = self.registers[op.guard]
        if type(guard) is bool:
            return (mask, False) if guard != op.inverted else (False, mask)
        kept = self.chunk.masks
        return parted(~guard if op.inverted else guard, mask) if kept is None else kept.parts(guard, op.inverted, mask)

    def branch(self, op: Op, number: int, mask: Array | None) -> None:
        """Send lanes to a branch's target or past it."""
        yes, no = self.split(op, mask)
        if yes is not False:
            times = self.executed[number]
            taking, taken = active(yes, self.chunk)
            times[2] += taken
            if no is not False:
                warps = taking + active_warps(no, self.chunk) - self.warps
                times[3] += warps
                self.part(op, WARP if warps else 0, yes, no)
            times[4] += taking
            self.arrive(op.targets[0], yes)
        if no is not False:
            self.arrive(number + 1, no)

    def part(self, op: Op, scope: int, yes: Any, no: Any) -> None:
        """Note that a condition parts lanes: those of a warp, or of a block where any block has lanes of both kinds."""
        place = op.line.file, op.line.line
        if scope == WARP:
            self.parted[place] = WARP
        elif place not in self.parted and (self.chunk.lanes(yes).any(axis=1) & self.chunk.lanes(no).any(axis=1)).any():
            self.parted[place] = BLOCK

    def branch_table(self, op: Op, number: int, yes: Array | None) -> None:
        """Send lanes through a branch table."""
        choice = self.registers[op.selector]
        if type(choice) is Affine and choice.coefficients is None:
            self.arrive(op.targets[min(choice.base & 0xFFFFFFFF, len(op.targets) - 1)], yes)
            return
        values = as_array(choice, UNSIGNED[32], self.chunk)
        ways: Array = np.zeros((self.chunk.blocks, self.chunk.warps), dtype=np.int64)
        rows: Array = np.zeros(self.chunk.blocks, dtype=np.int64)
        for case, target in enumerate(op.targets):
            lanes = values == case
            if yes is not None:
                lanes = lanes & yes
            if lanes.any():
                went = broadcast(lanes, self.chunk.shape).reshape(*ways.shape, 32).any(axis=2)
                ways += went
                rows += went.any(axis=1)
                self.arrive(target, lanes)
        times = self.executed[number]
        times[2] += active_lanes(yes, self.chunk)
        times[3] += int(np.count_nonzero(ways > 1))
        if (ways > 1).any() or (rows > 1).any():
            self.parted[op.line.file, op.line.line] = WARP if (ways > 1).any() else BLOCK

    def go_back(self, op: Op, number: int, mask: Array | None) -> None:
        """Send lanes behind the calls of the function that they leave."""
        for following, lanes in self.stack.ways(self, mask):
            self.arrive(following, lanes)

    def call(self, op: Op, number: int, mask: Array | None) -> None:
        """Send lanes into a function, by its address where the call has one."""
        site = op.site
        assert site is not None
        if op.selector < 0:
            self.arrive(op.targets[0], mask)
            return
        choice = self.registers[op.selector]
        if type(choice) is Affine and choice.coefficients is None and choice.base in site.addresses:
            self.arrive(op.targets[site.addresses.index(choice.base)], mask)
            return
        addresses = broadcast(as_array(choice, UNSIGNED[64], self.chunk), self.chunk.shape)
        rest = self.lanes()
        for address, following in zip(site.addresses, op.targets, strict=False):
            lanes = rest & (addresses == address)
            if lanes.any():
                self.arrive(following, lanes)
                rest = rest & ~lanes
        if rest.any():
            self.stack.lost(self, op.line, rest, addresses)

    def exit(self, op: Op, number: int, yes: Array | None) -> None:
        """End lanes."""
        if op.run is not None:
            self.mask, self._warps = yes, -1
            op.run(self)
        if not self.ready and not self.parked and not self.waiting:
            return  # nobody is left to care
        gone = np.ones((1, 1), dtype=bool) if yes is None else yes
        self.exited = gone if self.exited is None else self.exited | gone

    def barrier(self, op: Op, number: int, yes: Array | None) -> None:
        """Park lanes at a block-wide barrier, or pass at once where all lanes are there."""
        assert op.barrier is not None
        if isinstance(op.barrier, clusters.ClusterBarrier):
            clusters.wait(self, op, number + 1, yes)
            return
        if yes is self.chunk.root and op.barrier.count is None:
            # All lanes are there: nobody is parked, waiting or gone.
            self.barriers.passed(op)
            op.barrier.reduce(self, yes)
            self.end_interval()
            self.arrive(number + 1, yes)
            return
        if op.barrier.arrive:
            self.arrive(number + 1, yes)
        self.parked.append((-1 if op.barrier.arrive else number + 1, yes, op, op.barrier))

    def end_interval(self) -> None:
        """Note that threads of blocks have met."""
        self.shared_races.barrier()
        self.global_races.barrier()

    def wake(self) -> None:
        """Let lanes look again for what they wait for."""
        self.asleep.clear()

    def examine(self, block: Block, number: int, mask: Array | None) -> None:
        """Stop a launch that ran through its budget of steps or time; see whether another ever ends."""
        if self.steps > self.budget or time.monotonic() > self.deadline:
            line = block.every[0].line
            place = f"{self.code.files.get(line.file, '')}:{line.line}"
            if self.steps > self.budget:
                raise BudgetExceeded(
                    f"kernel {self.code.name} was stopped after {self.budget} instructions at {place}: it seems to run "
                    "forever; if it is only long, use a smaller size."
                )
            raise BudgetExceeded(
                f"kernel {self.code.name} was stopped at {place} when its time was up; raise --timeout (or --budget) "
                "or use a smaller size if it is only long."
            )
        if self.watch is None:
            self.watch, self.next_look = Waits(self), -1
        self.watch.ran(number, mask)
