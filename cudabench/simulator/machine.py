"""The NumPy engine: it executes one launch, chunk by chunk (a chunk is a box of thread blocks).

All lanes of a chunk that are at the same basic block run it together. Where a branch diverges, the lanes of each side
wait at their next basic block, and the basic block of the lowest rank runs first (`program.order`), so that the sides
reconverge where their paths meet. Lanes at a barrier are parked until no other lane of the chunk can run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cudabench.simulator import clusters, values
from cudabench.simulator.check import members
from cudabench.simulator.check.barriers import Barriers
from cudabench.simulator.check.cures import BLOCK, WARP
from cudabench.simulator.check.departures import Departures
from cudabench.simulator.check.global_races import GlobalRaces
from cudabench.simulator.check.hazards import Hazards
from cudabench.simulator.check.local_pointers import LocalPointers, pointer_lines
from cudabench.simulator.check.locks import Locks, Releases
from cudabench.simulator.check.places import Between, Declared
from cudabench.simulator.check.proxies import Proxies
from cudabench.simulator.check.shared_races import SharedRaces
from cudabench.simulator.check.stale import StaleReads
from cudabench.simulator.check.waits import FIRST, HangCheck
from cudabench.simulator.count.contention import Contention
from cudabench.simulator.count.counters import Counters
from cudabench.simulator.count.requests import active
from cudabench.simulator.count.shares import Shares
from cudabench.simulator.count.trace import Trace
from cudabench.simulator.errors import BudgetExceeded, time_up
from cudabench.simulator.memory import PARAMETER_WINDOW, Region
from cudabench.simulator.plan import Plan
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.program.code import Barrier, Block, Op
from cudabench.simulator.schedule import GroupScheduler
from cudabench.simulator.special_registers import special
from cudabench.simulator.stack import Stack
from cudabench.simulator.values import BOOL, UNSIGNED, Array, Chunk, Value, active_warps, as_array, broadcast, uniform

if TYPE_CHECKING:
    from cudabench.simulator.check.unwritten import Unwritten

# Of every FAIRNESS choices between diverged lanes, BURST choices take the basic block of the highest rank. Without
# these choices, lanes that wait in a loop could be chosen forever.
FAIRNESS, BURST = 4096, 64
_EVERYTHING = -1  # all registers: in lanes that skip a guarded instruction, no register may change


class Machine:
    """The state of a launch. Each instruction is a function that takes the machine as its argument."""

    def __init__(
        self, plan: Plan, placed: Placed, budget: int, trace: Trace | None,
        progress: Callable[[int, int], None] | None, merged: Mapping[int, tuple[int, int]], deadline: float,
        declared: Declared | None, between: Between | None, grid_barrier: int,
    ) -> None:  # fmt: skip
        self.plan, self.code, self.grid, self.block = plan, plan.code, plan.grid, plan.block
        self.dynamic_shared, self.shared_size = plan.dynamic_shared, plan.shared_size
        self.space = placed.space
        parameters = np.frombuffer(placed.parameters, dtype=np.uint8)
        self.parameters = Region("the parameters", PARAMETER_WINDOW, parameters, False)
        self.budget, self.trace, self.progress = budget, trace, progress
        self.counters = Counters(plan, merged)
        self.shares: Shares | None = None  # set if the work of the blocks is compared
        self.deadline = deadline
        self.hazards = Hazards(plan.code, placed.space, plan.shared_size, declared, between)
        # Keyed by (file, line) of a condition at which lanes diverged: WARP if lanes of one warp diverged, else BLOCK.
        self.diverged: dict[tuple[int, int], int] = {}
        self.instructions = 0
        # For each basic block, the values of the fields of `report.Executed`.
        self.executed = [[0, 0, 0, 0] for _ in plan.code.blocks]
        self.ranks = [block.rank for block in plan.code.blocks]
        self.steps = 0
        self.output: list[str] = []
        self.textures = placed.textures  # keyed by the handle that is passed to the kernel
        # Keyed by the address of an array: the bytes that surface writes changed.
        self.surface_writes: dict[int, Array] = {}
        self.tensor_maps = placed.maps  # keyed by the handle inside of the map
        self.cluster_races = clusters.ClusterRaces(self)
        self.proxies = Proxies(self)
        self.next_hang_check = min(FIRST, budget)  # the number of steps after which `examine` runs
        self.last_chunk = True  # whether all blocks that have not run yet are in the chunk
        self.spins = False  # whether a swap changed nothing, or the phase of an mbarrier has not ended
        self.grid_barrier = grid_barrier  # the address of a cooperative launch's barrier, else 0
        self.chunk: Chunk = plan.chunks[0][1]
        self.shared: Array = None
        self.local: Array = None
        self.local_bytes = 0  # how many bytes of local memory a thread uses
        self.stack_bytes = 0  # how many bytes of stack the recursive calls of a thread need at least
        self.unwritten: Unwritten | None = None  # set if reads of unwritten memory are checked
        self.shared_races = SharedRaces(self)
        self.global_races = GlobalRaces(self)
        self.stale = StaleReads(self)
        self.barriers = Barriers(self)
        # Keyed by the number of an atomic instruction: (its addresses, whether the kernel uses its result).
        self.contention: dict[int, tuple[Contention, bool]] = {}

    # What instructions use.

    def put(self, index: int, value: Value) -> None:
        """Write a value to a register in the active lanes. A waiting lane that may still read the register keeps its
        old value."""
        if self.keep >> index & 1 and self.mask is not None:
            value = self.merge(index, value)
        self.registers[index] = value

    def merge(self, index: int, value: Value, old: Value = None, lanes: Array | None = None) -> Value:
        """Return a register's value with `value` in the active lanes (or in `lanes`) and `old` in the others; without
        `old` the other lanes keep the register's present value."""
        old = self.registers[index] if old is None else old
        mask = self.mask if lanes is None else lanes
        width = self.code.widths[index]
        if old.dtype != value.dtype:
            dtype = BOOL if width == 1 else UNSIGNED.get(width, value.dtype)
            value, old = as_array(value, dtype), as_array(old, dtype)
        return np.where(mask, value, old)  # type: ignore[arg-type]

    def array(self, index: int, dtype: np.dtype[Any]) -> Array:
        """Return a register's value as an array of the dtype; the bits are reinterpreted, not converted."""
        return as_array(self.registers[index], dtype)

    @property
    def warps(self) -> int:
        """The number of warps with an active lane."""
        return active(self.mask, self.chunk)[0]

    def lanes(self) -> Array:
        """Return the mask of active lanes as a bool array of the full shape (blocks, threads)."""
        return self.chunk.lanes(self.mask)

    def first_value(self, index: int) -> int:
        """Return the value of a 32-bit register in the first lane; use this only if all lanes have the same value."""
        return int(self.array(index, UNSIGNED[32]).flat[0])

    def predicate(self, index: int, flip: bool) -> Array:
        """Return the value of a predicate register; `flip`: whether it is inverted."""
        return self.registers[index] ^ flip

    def contend(self, number: int, addresses: Array, mask: Array | None, returns: bool) -> None:
        """Record which addresses the lanes in `mask` access by atomic instruction `number` on global memory; `returns`:
        whether the kernel uses the result of the atomic."""
        chunk = self.chunk
        contention, _ = self.contention.setdefault(number, (Contention(), returns))
        blocks = self.global_races.grid_races.block_numbers(chunk)
        chosen = np.flatnonzero(chunk.real(mask))
        contention.add(broadcast(addresses, chunk.shape).reshape(-1)[chosen], blocks[chosen // chunk.threads])

    def fence(self, wide: bool = True) -> None:
        """Record a memory fence of the active lanes; `wide`: whether it also orders accesses for other blocks."""
        if wide:
            self.global_races.grid_races.fence(self.chunk, self.mask)
        else:
            self.global_races.grid_races.synchronize()
        if self.locks is not None:
            self.locks.fence(self)
        if self.releases is not None:
            self.order("fence", None, self.releases.fence(self.lanes()))

    def order(self, kind: Literal["sync", "acquire", "fence"], mask: Array | None, what: Any = None) -> None:
        """Record a synchronisation within a block for the race checks; parameters: those of `check.races.Sync`."""
        self.shared_races.sync(kind, mask, what)
        self.global_races.sync(kind, mask, what)
        if kind != "fence":
            self.global_races.grid_races.synchronize()
            if self.locks is not None:
                self.locks.synchronize(mask)

    # The launch.

    def run(self) -> None:
        """Run all blocks of the grid."""
        total, done = self.plan.blocks, 0
        whole = total == math.prod(self.grid)  # false if only a sample of the grid runs
        with np.errstate(all="ignore"):
            for origin, chunk in self.plan.chunks:
                chunk.origin = origin
                self.last_chunk = whole and done + chunk.blocks == total
                self.run_chunk(chunk)
                done += chunk.blocks
                if self.progress is not None:
                    self.progress(done, total)

    def start(self, chunk: Chunk) -> None:
        """Set registers, memories and checks to their state at the start of a chunk."""
        self.chunk = chunk
        self.mask: Array | None = None
        self.keep = 0  # the registers that waiting lanes may still read, as bits
        self.registers = [*map(uniform, self.code.initial, self.code.widths)]
        for name, index in self.code.special.items():
            self.registers[index] = special(self, name)
        if self.shared_size:
            size = -(-self.shared_size // 16) * 16
            if self.shared is None or self.shared.shape != (chunk.blocks, size):
                self.shared = np.zeros((chunk.blocks, size), dtype=np.uint8)
        if self.code.local_bytes:
            size = -(-self.code.local_bytes // 16) * 16
            if self.local is None or self.local.shape[0] != chunk.blocks:
                self.local = np.zeros((chunk.blocks, chunk.threads, size), dtype=np.uint8)
                self.local_bytes = self.code.local_bytes
        if self.unwritten is not None:
            self.unwritten.start(self)
        self.stack: Stack = Stack(chunk)
        self.overfull: set[int] = set()  # the words of mbarriers that got more arrivals at once than a phase expects
        lines = pointer_lines(self.code)
        self.local_pointers = LocalPointers(chunk, lines) if lines else None
        self.locks = Locks(chunk) if self.code.locks or self.code.waits else None
        self.releases = Releases(chunk) if self.code.waits or self.code.orders else None
        self.ready: dict[int, Array | None] = {0: chunk.root}
        self.waiting: dict[int, Array | None] = {}
        self.parked: list[tuple[int, Array | None, Op, Barrier]] = []
        self.exited: Array | None = None
        self.hang_check: HangCheck | None = None  # the check for a launch that never ends; None until this check begins
        self.asleep: set[int] = set()  # basic blocks whose lanes polled in vain; lanes at other basic blocks run first
        # Basic blocks that begin with a warp-wide instruction. When such a basic block runs next, the lanes that
        # `waiting` has for it continue to wait.
        self.loose: set[int] = set()
        # The next basic blocks of those lanes whose group does not run at present, see `GroupScheduler`.
        self.suspended: tuple[int, ...] = ()
        self.choices = BURST
        schedule = self.plan.schedule
        # The groups of thread blocks that run one after another; None if all blocks of a chunk run together.
        grouped = self.code.communicates and self.plan.cluster is None and chunk.blocks > 1
        self.groups = GroupScheduler(self, schedule, chunk) if schedule is not None and grouped else None
        self.arrivals = clusters.Arrivals(chunk)
        self.departures: Departures = Departures(self)
        self.proxies.start(chunk)
        self.cluster_races.start()
        self.barriers.start(chunk)
        self.shared_races.start(chunk)
        self.global_races.start(chunk)
        if self.counters.footprints is not None:
            self.counters.footprints.start(chunk, self.instructions)
        if self.shares is not None:
            self.shares.start(chunk.block_numbers())

    def run_chunk(self, chunk: Chunk) -> None:
        """Run the blocks of a chunk to their end."""
        self.start(chunk)
        blocks, groups = self.code.blocks, self.groups
        clock, deadline = time.monotonic, self.deadline
        timed = deadline < math.inf
        record_run = self.barriers.record_block if self.barriers.used else None
        handlers = {
            "branch": self.branch, "exit": self.exit, "barrier": self.barrier, "call": self.call,
            "return": self.return_from_call, "table": self.branch_table,
        }  # fmt: skip
        while True:
            if groups is not None:
                groups.step()
            chosen = self.choose()
            if chosen is None:
                if self.ready or self.waiting or self.parked:
                    continue
                break
            number, mask, forced = chosen
            block = blocks[number]
            self.mask = mask
            if record_run is not None:
                record_run(number, mask)
            partial = mask is not chunk.root and block.ops and block.ops[0].kind == "collective"
            if partial and self.waits_for_lanes(number, mask, block.ops[0], forced):
                continue
            self.steps += block.weight
            if self.steps > self.next_hang_check or (timed and clock() > deadline):
                self.examine(block, number, mask)
            self.count(block, number, mask)
            self.execute(block)
            if self.spins or number in self.code.polling:
                self.spins = False
                self.asleep.add(number)
            end = block.terminator
            if end is None:
                self.arrive(number + 1, mask)
                continue
            yes, no = self.split(end, mask)
            if no is not False:
                self.arrive(number + 1, no)
            if yes is not False:
                handlers[end.kind](end, number, yes, no)
        self.shared_races.finish()
        self.global_races.barrier()
        self.cluster_races.barrier()
        self.departures.finish()
        if self.locks is not None:
            self.locks.finish(self)

    def count(self, block: Block, number: int, mask: Array | None) -> None:
        """Count one execution of a basic block by the lanes in `mask`."""
        chunk = self.chunk
        warps, lanes = active(mask, chunk)
        self.instructions += block.weight * warps
        if self.shares is not None:
            self.shares.add(number, block.weight, mask, chunk)
        times = self.executed[number]
        times[0] += warps
        times[1] += lanes

    def waits_for_lanes(self, number: int, mask: Array | None, op: Op, forced: bool) -> bool:
        """Return whether lanes must wait at a warp-wide instruction for other lanes that its mask names; lanes that
        must wait are put into `waiting`. `forced`: the lanes do not wait, and the missing lanes are reported as a
        hazard."""
        missing = members.missing(self, op)
        if missing is None:
            return False
        if not forced:
            self.waiting[number] = mask
            return True
        members.report_absent(self, op, missing)
        return False

    def choose(self) -> tuple[int, Array | None, bool] | None:
        """Return (basic block that runs next, mask of its lanes, whether it is `forced`, see `waits_for_lanes`).

        Return None if lanes were released from a barrier, or if no lanes are left.
        """
        ready, waiting, parked = self.ready, self.waiting, self.parked
        rank = self.ranks.__getitem__
        if not ready:
            if not waiting:
                if parked:
                    self.barriers.release()
                return None
            number = min(waiting, key=rank)
            mask = waiting.pop(number)
            self.keep = self.registers_of_waiting()
            return number, mask, True
        awake: Collection[int] = () if self.hang_check is None else self.hang_check.next_blocks()
        if len(ready) == 1 and not waiting and not parked and not self.suspended:
            self.keep = 0
            number, mask = ready.popitem()
            return number, mask, False
        self.choices += 1
        # Lanes that spin on a lock must not starve the lane that holds it.
        late = self.code.fair and self.choices % FAIRNESS < BURST
        stuck = bool(self.asleep) and not late and not awake and ready.keys() <= self.asleep
        if stuck:
            self.asleep.clear()
        if stuck or self.choices % FAIRNESS == 0:
            members.release_complete(self)
            if parked and self.barriers.release(spinning=True):
                return None  # a thread block that passes the barrier may write the value that spinning lanes poll
        if self.asleep and not awake:
            awake = ready.keys() - self.asleep
        number = max(ready, key=rank) if late else min(awake or ready, key=rank)
        mask = ready.pop(number)
        if number in self.loose:
            self.loose.discard(number)
        elif number in waiting:
            mask = self.union(mask, waiting.pop(number))
        self.keep = self.registers_of_waiting()
        return number, mask, False

    def registers_of_waiting(self) -> int:
        """Return the registers that lanes waiting at other basic blocks may still read, as bits."""
        numbers = (*self.ready, *self.waiting, *(entry[0] for entry in self.parked), *self.suspended)
        return reduce(or_, (self.code.blocks[number].live for number in numbers if number >= 0), 0)

    def execute(self, block: Block) -> None:
        """Run the instructions of a basic block; an instruction with a guard predicate runs in the lanes where the
        guard is true."""
        mask, keep = self.mask, self.keep
        for op in block.ops:
            if op.run is None:
                continue
            yes, no = self.split(op, mask)
            if yes is not False:
                if no is not False:
                    self.mask, self.keep = yes, _EVERYTHING
                op.run(self)
                self.mask, self.keep = mask, keep

    # Control flow.

    def union(self, x: Array | None, y: Array | None) -> Array | None:
        """Return the union of two masks; if it has all lanes, return the chunk's root mask itself."""
        if x is None or y is None:
            return None
        return values.joined(x, y, self.chunk.root)

    def arrive(self, number: int, mask: Array | None) -> None:
        """Add the lanes in `mask` to those that are ready to run basic block `number`."""
        self.ready[number] = self.union(mask, self.ready.get(number, mask))

    def split(self, op: Op, mask: Array | None) -> tuple[Any, Any]:
        """Return (mask of the lanes whose guard is true, mask of the other lanes); False instead of an empty mask."""
        if op.guard < 0:
            return mask, False
        return values.split(self.predicate(op.guard, op.inverted), mask)

    def branch(self, op: Op, number: int, yes: Array | None, no: Any) -> None:
        """Send the lanes `yes` to a branch's target, and count the branch; `no`: the lanes that fall through."""
        self.arrive(op.targets[0], yes)
        self.count_branch(op, number, [yes] if no is False else [yes, no])

    def branch_table(self, op: Op, number: int, yes: Array | None, no: Any) -> None:
        """Send each lane to the target that its index selects in a branch table."""
        chosen = np.minimum(self.array(op.selector, UNSIGNED[32]), len(op.targets) - 1)
        parts = [(target, self.chunk.lanes(yes) & (chosen == case)) for case, target in enumerate(op.targets)]
        parts = [(target, lanes) for target, lanes in parts if lanes.any()]
        for target, lanes in parts:
            self.arrive(target, lanes)
        self.count_branch(op, number, [lanes for _, lanes in parts], taken=len(parts))

    def count_branch(self, op: Op, number: int, parts: list[Array | None], taken: int = 1) -> None:
        """Count a branch, and record whether lanes diverge there.

        `parts`: the masks of the lanes that go to each target; the first `taken` of these take the branch.
        """
        times, chunk = self.executed[number], self.chunk
        times[2] += sum(active(lanes, chunk)[1] for lanes in parts[:taken])
        if len(parts) == 1:
            return
        taking = [active_warps(chunk.lanes(lanes)).reshape(chunk.blocks, -1) for lanes in parts]
        split_warps = np.count_nonzero(np.sum(taking, axis=0) > 1)
        times[3] += int(split_warps)
        place = op.line.file, op.line.line
        if split_warps:
            self.diverged[place] = WARP
        elif (np.sum([warps.any(axis=1) for warps in taking], axis=0) > 1).any():
            self.diverged.setdefault(place, BLOCK)

    def return_from_call(self, op: Op, number: int, yes: Array | None, no: Any) -> None:
        """Send each lane that returns from a function to the basic block after its call."""
        for following, lanes in self.stack.returning_lanes(self, yes):
            self.arrive(following, lanes)

    def call(self, op: Op, number: int, yes: Array | None, no: Any) -> None:
        """Send lanes into the called function; an indirect call selects it by its address, which may differ by lane."""
        site = op.site
        assert site is not None
        if op.selector < 0:
            self.arrive(op.targets[0], yes)
            return
        addresses = broadcast(self.array(op.selector, UNSIGNED[64]), self.chunk.shape)
        rest = self.lanes()
        for address, following in zip(site.addresses, op.targets, strict=False):
            lanes = rest & (addresses == address)
            if lanes.any():
                self.arrive(following, lanes)
                rest = rest & ~lanes
        if rest.any():
            self.stack.bad_call(self, op.line, rest, addresses)

    def exit(self, op: Op, number: int, yes: Array | None, no: Any) -> None:
        """End the lanes `yes`: the threads of these lanes exit."""
        if op.run is not None:
            self.mask = yes
            op.run(self)
        if not self.ready and not self.parked and not self.waiting:
            return  # no other lanes are left
        ended = np.ones((1, 1), dtype=bool) if yes is None else yes
        self.exited = ended if self.exited is None else self.exited | ended

    def barrier(self, op: Op, number: int, yes: Array | None, no: Any) -> None:
        """Park lanes at a block-wide barrier, or let them pass at once if all lanes have arrived."""
        assert op.barrier is not None
        if isinstance(op.barrier, clusters.ClusterBarrier):
            clusters.wait(self, op, number + 1, yes)
            return
        if yes is self.chunk.root and op.barrier.count is None:
            # All lanes have arrived at the barrier: none is parked, waiting or ended.
            self.barriers.record_pass(op)
            op.barrier.reduce(self, yes)
            self.end_interval()
            self.arrive(number + 1, yes)
            return
        if op.barrier.arrive:
            self.arrive(number + 1, yes)
        for barrier, lanes in op.barrier.by_number(self, yes):
            self.parked.append((-1 if barrier.arrive else number + 1, lanes, op, barrier))

    def end_interval(self) -> None:
        """End an interval of the race checks, because the threads of a block have synchronised."""
        if self.locks is not None:
            self.locks.synchronize(None)
        self.shared_races.barrier()
        self.global_races.barrier()

    def wake(self) -> None:
        """Let lanes poll again that polled in vain."""
        self.asleep.clear()

    def examine(self, block: Block, number: int, mask: Array | None) -> None:
        """Raise BudgetExceeded if the launch has used up its steps or its time; else check for a launch that never
        ends."""
        line = block.every[0].line
        place = f"{self.code.files.get(line.file, '')}:{line.line}"
        if self.steps > self.budget:
            raise BudgetExceeded(
                f"kernel {self.code.name} was stopped after {self.budget} instructions at {place}: it seems to run "
                "forever; if it is only long, use a smaller size."
            )
        if time.monotonic() > self.deadline:
            raise time_up(self.code.name, place)
        if self.hang_check is None:
            self.hang_check, self.next_hang_check = HangCheck(self), -1
        self.hang_check.record_block(number, mask)
