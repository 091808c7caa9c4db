"""Waits that nothing ends: told by a state that comes back.

Threads that are where they were, with all that their way depends on as it was, in memory that nobody has changed
meanwhile, will do the same again and again, in whatever order they run. Where that holds for every thread that is left,
and the others wait at barriers for them, nothing ends the launch: a deadlock, or a loop that goes round for ever.

A long launch is looked at from time to time. Such a look begins with registers alone, goes on with memory once lanes
have come back, and ends as soon as anybody changes what lies in memory. Lanes that have come back rest until all have.
What counts (a number of tries), reads the clock or takes turns in memory does not come back, and is left to the limits
of a launch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.check.members import missing, reconsider
from cudabench.simulator.check.places import in_region
from cudabench.simulator.clusters import resolve
from cudabench.simulator.errors import BudgetExceeded
from cudabench.simulator.isa.mbarrier import lacks
from cudabench.simulator.memory import HALF_SLOT, SHARED_WINDOW, SLOT_BITS, flat
from cudabench.simulator.program.code import Op
from cudabench.simulator.program.flow import closure
from cudabench.simulator.values import BOOL, UNSIGNED, Affine, Array, Chunk, Value, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

FIRST = 20_000  # steps of a launch before the first look; the next comes when twice as many are done
TURNS = 4096  # of a look at most, or so many steps of the launch to one:
SHARE = 16
EPOCH = 16  # turns until lanes are compared with where they are then, at first
MOST_BYTES = 1 << 28  # of memory that is compared
# What may write memory. All else only computes, reads, or sends lanes on their way.
WRITERS = frozenset(("st", "atom", "red", "cp", "call", "mbarrier", "stmatrix", "wmma", "sust"))
SPACES = ("shared", "global", "local")
_SHARED = frozenset(("global", "shared", "generic"))  # what other threads may write
_NOTHING: tuple[frozenset[str], int] = frozenset(), 0
READY, WAITING = 0, 1  # in the place of an op's id


class Waits:
    """One look at a launch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.turns, self.next, self.length = 0, 1, EPOCH
        self.most = max(TURNS, machine.steps // SHARE)
        self.with_memory = False
        self.blocks: set[int] = set()  # of code, that ran
        self.dirty: set[str] = set()  # memories that the block before may have written
        self.copies: dict[str, list[Array]] = {}
        self.last: tuple[int, Array | None] | None = None
        self.seen: dict[int, tuple[Op, Array, Value]] = {}  # what lanes wait for, with its address
        self.kinds: dict[int, tuple[set[str], int]] = {}  # by line of the PTX: spaces of what is accessed there, bytes
        for access in machine.code.accesses:
            self.kinds.setdefault(access.location.ptx_line, (set(), access.size))[0].add(access.space)
        self.needed: dict[frozenset[int], frozenset[int] | None] = {}

    # From turn to turn.

    def ran(self, number: int, mask: Array | None) -> None:
        """Note a block of code that is about to run, and the lanes that run it."""
        self.last = number, mask
        if self.turns == 0:
            return
        np.logical_or(self.moved, True if mask is None else mask, out=self.moved)
        self.blocks.add(number)
        if self.with_memory:
            ops = self.machine.code.blocks[number].ops
            self.dirty.update(*(self.written(op) for op in ops if op.opcode in WRITERS))
            for space in self.dirty - self.copies.keys():
                self.copies[space] = [array.copy() for array in self.memory(space)]

    def turn(self) -> Collection[int]:
        """Return the blocks of code of which one is to run next; none where it does not matter.

        Raises BudgetExceeded, its hazards recorded, where nothing ends the launch.
        """
        machine = self.machine
        self.turns += 1
        if self.turns > self.most or (self.with_memory and not self.unchanged()):
            machine.watch, machine.next_look = None, min(2 * machine.steps, machine.budget)
            return ()
        if self.turns >= self.next:
            self.begin()
            return ()
        resting = [number for number, mask in machine.ready.items() if self.back(number, mask)]
        if not resting:
            return ()
        if not self.with_memory:
            self.with_memory = True
            self.begin()
            return ()
        awake = machine.ready.keys() - resting
        if not awake:
            self.all_rest()
        return awake

    def begin(self) -> None:
        """Compare lanes from now on with where they are."""
        machine = self.machine
        self.next = self.turns + self.length
        self.length *= 2
        self.then = self.places()
        self.registers = list(machine.registers)
        self.stack = (machine.stack.depth, list(machine.stack.backs), [dict(one) for one in machine.stack.levels])
        self.moved: Array = np.zeros(machine.chunk.shape, bool)
        self.rested: dict[int, Array | None] = {}
        self.copies.pop("local", None)
        self.dirty.discard("local")

    def places(self) -> dict[tuple[int, int], Array]:
        """Return all lanes by the block of code at which they go on, and why they are not there yet: READY, WAITING
        for others of their warps, or a barrier's op."""
        machine, real = self.machine, self.machine.chunk.real
        found = {(number, READY): real(mask) for number, mask in machine.ready.items()}
        found |= {(number, WAITING): real(mask) for number, mask in machine.waiting.items()}
        for following, mask, op, _ in machine.parked:
            place = following, id(op)
            found[place] = real(mask) | found.get(place, np.False_)
        return found

    def unchanged(self) -> bool:
        """Return whether the memory that blocks share is what it was; note what the block before read."""
        if self.last is not None:
            self.note_waits(*self.last)
        for space in self.dirty - {"local"}:
            copies, now = self.copies[space], self.memory(space)
            if len(copies) != len(now) or not all(map(np.array_equal, copies, now)):
                return False
        self.dirty &= {"local"}
        return True

    def memory(self, space: str) -> list[Array]:
        """Return what lies in a memory; nothing, which never counts as a state again, where that is too much."""
        machine = self.machine
        one = machine.shared if space == "shared" else machine.local
        found = [] if one is None else [one]
        if space == "global":
            found = [region.bytes for region in machine.space.slots if region.writable]
        return found if sum(array.nbytes for array in found) <= MOST_BYTES else [np.full(1, np.nan)]

    def written(self, op: Op) -> set[str]:
        """Return the memories that an op may write."""
        spaces = self.kinds.get(op.line.ptx_line, ({"generic"}, 0))[0]
        if "surface" in spaces:
            return {"global"}
        return set(SPACES) if "generic" in spaces else spaces & set(SPACES)

    def back(self, number: int, mask: Array | None) -> bool:
        """Return whether lanes have run and come back to where they were, in the state in which they were."""
        if self.rested.get(number, False) is mask:
            return True
        lanes, then = self.machine.chunk.real(mask), self.then.get((number, READY))
        if then is None or (lanes & ~self.moved).any() or (lanes != then).any() or not self.same_state(number, lanes):
            return False
        self.rested[number] = mask
        return True

    def same_state(self, number: int, lanes: Array) -> bool:
        """Return whether lanes at a block of code have what they had there."""
        machine = self.machine
        needed = self.depends()
        if needed is None:
            return False
        live, widths, then = machine.code.blocks[number].live, machine.code.widths, self.registers
        if not all(
            same(then[index], machine.registers[index], lanes, widths[index], machine.chunk)
            for index in needed
            if live >> index & 1
        ):
            return False
        if "local" in self.dirty:
            copies, now = self.copies["local"], self.memory("local")
            if copies and (copies[0].shape != now[0].shape or not (copies[0][lanes] == now[0][lanes]).all()):
                return False
        return not machine.code.calls or self.same_stack(lanes)

    def same_stack(self, lanes: Array) -> bool:
        """Return whether lanes have the calls before them that they had."""
        machine = self.machine
        chunk, stack = machine.chunk, machine.stack
        depth, backs, levels = self.stack
        deep = np.broadcast_to(depth, chunk.shape)
        if not (np.broadcast_to(stack.depth, chunk.shape)[lanes] == deep[lanes]).all():
            return False
        for place, (back, level) in enumerate(zip(backs, levels, strict=True)):
            here = lanes & (deep > place)
            if here.any() and not (
                np.broadcast_to(stack.backs[place] == back, chunk.shape)[here].all()
                and all(
                    same(value, stack.levels[place][index], here, machine.code.widths[index], chunk)
                    for index, value in level.items()
                )
            ):
                return False
        return True

    def depends(self) -> frozenset[int] | None:
        """Return the registers that say which way lanes go in the blocks that ran, and what they write.

        None where the clock says so, too.
        """
        key = frozenset(self.blocks)
        if key not in self.needed:
            ops = [op for number in key for op in self.machine.code.blocks[number].every]
            found: set[int] = set()
            for op in ops:
                if op.kind != "plain" or op.opcode in WRITERS:
                    found.update(op.uses)
                    found.update(index for index in (op.guard, op.selector) if index >= 0)
                if op.barrier is not None and op.barrier.count is not None:
                    found.add(op.barrier.count)
            found = closure(found, [(op.defs, op.uses) for op in ops])
            clock = any(op.opcode == "clock" and not found.isdisjoint(op.defs) for op in ops)
            self.needed[key] = None if clock else frozenset(found)
        return self.needed[key]

    def note_waits(self, number: int, mask: Array | None) -> None:
        """Note what lanes read in the block of code that they ran."""
        machine = self.machine
        ops = machine.code.blocks[number].ops
        for place, op in enumerate(ops):
            if op.address < 0 or op.opcode not in _WAITS or any(op.address in one.defs for one in ops[place:]):
                continue
            lanes = machine.chunk.real(mask)
            if id(op) in self.seen:
                lanes = lanes | self.seen[id(op)][1]
            self.seen[id(op)] = op, lanes, machine.registers[op.address]

    # What was found.

    def all_rest(self) -> None:
        """All lanes that can run have come back. Let those at barriers go on whose barrier is complete, or end it."""
        machine = self.machine
        if reconsider(machine):
            return
        # Whether lanes wait at the same barriers, and for the same lanes of their warps, as they did.
        now = self.places()
        together = now.keys() == self.then.keys() and all(
            (lanes == self.then[number, why]).all() and (number < 0 or why == READY or self.same_state(number, lanes))
            for (number, why), lanes in now.items()
        )
        came = together and not any((lanes & ~self.moved).any() for lanes in now.values())
        if not came and machine.parked and machine.barriers.release(spinning=True):
            return
        if together:
            self.stop()
        self.begin()

    def stop(self) -> None:
        """Record what every lane waits for, and end the launch. Raises BudgetExceeded."""
        machine = self.machine
        code, chunk = machine.code, machine.chunk
        places = []
        for (number, why), lanes in self.then.items():
            if why == READY:
                found, ops = self.waited_for(lanes), code.blocks[number].every
                # Of a loop the last op that names its line.
                named = next((op for op in reversed(ops) if op.line.line), ops[-1])
                places.append((found, found or named, lanes))
        first = places[0][1]
        where = f"{code.files.get(first.line.file, '')}:{first.line.line}"
        if not machine.last_chunk and self.reads_global():
            raise BudgetExceeded(
                f"kernel {code.name} was stopped at {where}: all blocks that run wait for what only one that has not "
                f"begun could write. The simulator runs {chunk.blocks} of these blocks at a time, in their order, and "
                "no GPU promises to run more: use a smaller grid, or let blocks wait for earlier ones only."
            )
        for found, op, lanes in places:
            machine.mask = lanes
            if found is None:
                kind = "endless-loop"
                text = (
                    f"repeats a loop that nothing ends: what its condition depends on does not change{self.hoisted()}"
                )
            else:
                kind, text = "deadlock", self.words(op, first_lane(lanes, chunk)[1])
            machine.hazards.report(machine, kind, op.line, lanes, text)
        stuck = [(op, chunk.real(mask)) for following, mask, op, _ in machine.parked if following >= 0]
        others = [*stuck, *((op, lanes) for _, op, lanes in places)]
        told = {op.line.line for _, op, _ in places}
        for op, lanes in stuck:
            if op.line.group and op.line.line in told:
                continue  # one thread of the block waits for the grid, the others for that thread
            machine.hazards.barrier(machine, op, lanes, others)
        for number, mask in machine.waiting.items():
            machine.mask = mask
            op = code.blocks[number].ops[0]
            absent = missing(machine, op)
            if absent is not None:
                machine.hazards.elsewhere_in_mask(machine, op, absent)
        raise BudgetExceeded(f"kernel {code.name} was stopped at {where}, where nothing will ever end it.")

    def reads_global(self) -> bool:
        """Return whether lanes wait for what lies in global memory, where anything in the kernel may write it."""
        chunk, written = self.machine.chunk, self.machine.global_races.written
        for op, lanes, address in self.seen.values():
            spaces, _ = self.kinds.get(op.line.ptx_line, ({"generic"}, 0))
            places = broadcast(flat(address, op.offset, chunk), chunk.shape)
            if "global" not in spaces or ("shared" in spaces and places.min() < 2 * SHARED_WINDOW):
                continue
            slots = np.unique(places[lanes] + HALF_SLOT >> SLOT_BITS).tolist()
            if written is None or not written.isdisjoint(slot << SLOT_BITS for slot in slots):
                return True
        return False

    def waited_for(self, lanes: Array) -> Op | None:
        """Return the op at which the first of some lanes finds that what it waits for is not there."""
        needed = self.depends() or frozenset()
        _, place = first_lane(lanes, self.machine.chunk)
        found = [
            op
            for op, there, _ in self.seen.values()
            if there[place]
            and not needed.isdisjoint(op.defs)
            and not _SHARED.isdisjoint(self.kinds.get(op.line.ptx_line, _NOTHING)[0])
        ]
        return max(found, key=lambda op: (_WAITS.index(op.opcode), op.line.ptx_line), default=None)

    def hoisted(self) -> str:
        """Return what to do where the compiler reads memory once, before the loop; empty elsewhere."""
        for block in self.machine.code.blocks:
            end = block.terminator
            if block.number in self.blocks or end is None or self.blocks.isdisjoint(block.successors):
                continue
            decides = closure((end.guard,), [(op.defs, op.uses) for op in block.ops])
            for op in block.ops:
                spaces = self.kinds.get(op.line.ptx_line, _NOTHING)[0] if op.opcode in ("ld", "ldu") else ()
                if not _SHARED.isdisjoint(spaces) and not decides.isdisjoint(op.defs):
                    return (
                        ": the compiler reads the memory once, before the loop. Read it through a volatile pointer or "
                        "cuda::atomic_ref, then each iteration of the loop reads it"
                    )
        return ""

    def ended_block(self) -> str:
        """Return which block has ended, for a message."""
        machine, chunk = self.machine, self.machine.chunk
        gone = np.zeros((1, 1), bool) if machine.exited is None else machine.exited
        ended = chunk.real(gone).sum(axis=1) == chunk.real_threads
        if not ended.any():
            return "not all threads of the grid come to it"
        row = int(np.argmax(ended))
        line = machine.barriers.left_in((row, 0))
        return f"block {chunk.block_index(row)} has ended{f' (line {line})' if line else ''}"

    def words(self, op: Op, place: tuple[int, int]) -> str:
        """Return what a thread waits for at an op that nothing brings; place: its block in the chunk, and itself."""
        machine, chunk = self.machine, self.machine.chunk
        _, size = self.kinds[op.line.ptx_line]
        addresses = broadcast(flat(self.seen[id(op)][2], op.offset, chunk), chunk.shape)
        address = int(addresses[place])
        region = machine.space.nearest(address)
        nobody = "all other threads have ended or wait as well"
        if SHARED_WINDOW <= address < 2 * SHARED_WINDOW or region is None or region.size == 0:
            inside = np.where(addresses >= SHARED_WINDOW, addresses - SHARED_WINDOW, addresses)
            rows, offsets, _ = resolve(machine, inside)
            offset = int(offsets[place])
            name = machine.hazards.places.shared(offset, size, op.line.line)
            held = machine.shared[int(rows[place]), offset : offset + size]
        else:
            offset = address - region.base
            name = in_region(region, offset, size)
            held = region.bytes[offset : offset + size]
            written = machine.global_races.written
            if written is not None and region.base not in written:
                nobody = "nothing in the kernel writes there"
        number = int.from_bytes(held.tobytes(), "little")
        if region is not None and region.base == machine.grid_barrier:
            return (
                f"waits at the barrier of the grid for ever: {self.ended_block()}. Let all threads of the grid come to "
                "it, and put the condition around the work"
            )
        if op.opcode == "mbarrier":
            return f"waits for a phase of the mbarrier at {name} that never ends: {lacks(number)}, and {nobody}"
        does = "tries again and again to change" if op.opcode == "atom" else "reads again and again"
        return f"{does} {name}, which stays {number}: {nobody}"


_WAITS = ("ld", "ldu", "atom", "mbarrier")  # what tells lanes that they are to wait; the later says more


def same(x: Value, y: Value, lanes: Array, width: int, chunk: Chunk) -> bool:
    """Return whether two values of a register are the same in some lanes."""
    if x is y:
        return True
    if type(x) is Affine and type(y) is Affine and x.base == y.base and x.coefficients == y.coefficients:
        return True
    if width == 128:
        return bool((broadcast(x, chunk.shape)[lanes] == broadcast(y, chunk.shape)[lanes]).all())
    dtype = BOOL if width == 1 else UNSIGNED[width]
    one, other = (broadcast(as_array(value, dtype, chunk), chunk.shape) for value in (x, y))
    return bool((one[lanes] == other[lanes]).all())
