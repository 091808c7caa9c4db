"""Finds waits that never end: deadlocks and endless loops.

A thread is in a cycle if it comes back to the same place in the code, all values that its path depends on are the same
as before, and memory has not changed in between. It then repeats the same steps forever, in any order of execution. If
every thread that still runs is in a cycle, and all other threads wait at barriers for these threads, the launch never
ends.

A long launch is examined from time to time. An examination first compares only registers. Once lanes have returned to
an earlier state, it also compares memory; the examination ends as soon as a thread changes memory. Lanes that have
returned to an earlier state wait until all lanes have returned. A loop that counts its tries, reads the clock or
alternates values in memory never returns to an earlier state; it is stopped by the limits of a launch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.check.members import missing, release_complete, report_absent, whereabouts
from cudabench.simulator.check.places import in_region
from cudabench.simulator.clusters import resolve
from cudabench.simulator.errors import BudgetExceeded
from cudabench.simulator.isa.mbarrier import missing_arrivals
from cudabench.simulator.memory import HALF_SLOT, SHARED_WINDOW, SLOT_BITS, flat
from cudabench.simulator.program.code import Op
from cudabench.simulator.program.flow import closure
from cudabench.simulator.values import BOOL, UNSIGNED, Array, Chunk, Value, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

# A check is one call of `HangCheck.next_blocks`, which the scheduler makes before it chooses the next block of code.
FIRST = 20_000  # the first examination begins after this many steps of a launch, the next one after twice as many
MOST_CHECKS = 4096  # the most checks of an examination; but at least (steps of the launch) / SHARE are allowed
SHARE = 16
EPOCH = 16  # a new state is saved for comparison after this many checks; the number then doubles each time
MOST_BYTES = 1 << 28  # a memory with more bytes than this is not compared
# Opcodes that may write memory; all other opcodes only compute, read or branch.
WRITERS = frozenset(("st", "atom", "red", "cp", "call", "mbarrier", "stmatrix", "wmma", "sust"))
_SHARED = frozenset(("global", "shared", "generic"))  # state spaces that other threads may write
_NOTHING: tuple[frozenset[str], int] = frozenset(), 0
# Used in the keys of `HangCheck.places` in place of a barrier's id, for lanes that are not at a barrier.
READY, WAITING = 0, 1


class HangCheck:
    """One examination of a launch; "block of code" means a basic block."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.checks, self.next, self.length = 0, 1, EPOCH
        self.most = max(MOST_CHECKS, machine.steps // SHARE)
        self.with_memory = False
        self.blocks: set[int] = set()  # the blocks of code that ran
        self.dirty = False  # whether the previous block of code may have written shared or global memory
        self.last: tuple[int, Array | None] | None = None  # (block of code, mask) that ran last
        # Ops that read memory, keyed by id: (op, its lanes, the value of the address).
        self.reads: dict[int, tuple[Op, Array, Value]] = {}
        # Keyed by the PTX line of a memory access: (state spaces, bytes).
        self.kinds: dict[int, tuple[set[str], int]] = {}
        for access in machine.code.accesses:
            self.kinds.setdefault(access.location.ptx_line, (set(), access.size))[0].add(access.space)
        self.needed: dict[frozenset[int], frozenset[int] | None] = {}

    # From check to check.

    def record_block(self, number: int, mask: Array | None) -> None:
        """Record that a block of code is about to run; `mask`: the lanes that run it."""
        self.last = number, mask
        if self.checks == 0:
            return
        np.logical_or(self.moved, True if mask is None else mask, out=self.moved)
        self.blocks.add(number)
        self.dirty = any(
            op.opcode in WRITERS and self.kinds.get(op.line.ptx_line, _NOTHING)[0] != {"local"}
            for op in self.machine.code.blocks[number].ops
        )

    def next_blocks(self) -> Collection[int]:
        """Return the numbers of the blocks of code that may run next; an empty collection means all.

        Raises BudgetExceeded if the launch can never end; the hazards are recorded before this error is raised.
        """
        machine = self.machine
        self.checks += 1
        if self.checks > self.most or (self.with_memory and not self.memory_unchanged()):
            machine.hang_check, machine.next_hang_check = None, min(2 * machine.steps, machine.budget)
            return ()
        if self.checks >= self.next:
            self.save_state()
            return ()
        resting = [number for number, mask in machine.ready.items() if self.has_returned(number, mask)]
        if not resting:
            return ()
        if not self.with_memory:
            self.with_memory = True
            self.save_state()
            return ()
        awake = machine.ready.keys() - resting
        if not awake:
            self.release_or_stop()
        return awake

    def save_state(self) -> None:
        """Save the present state; from now on, lanes are compared with it."""
        machine = self.machine
        self.next = self.checks + self.length
        self.length *= 2
        self.saved = self.places()
        self.saved_values = self.values(range(len(machine.registers)))
        self.moved: Array = np.zeros(machine.chunk.shape, bool)
        self.copies = [array.copy() for array in self.memory()] if self.with_memory else []
        self.local: Any = None if machine.local is None else machine.local.copy()

    def places(self) -> dict[tuple[int, int], Array]:
        """Return the masks of all lanes by (block of code where the lanes continue, the reason why they wait).

        A lane waits for nothing (READY), for other lanes of its warp (WAITING), or at a barrier (the id of the
        barrier's op).
        """
        machine, real = self.machine, self.machine.chunk.real
        lanes = {(number, READY): real(mask) for number, mask in machine.ready.items()}
        lanes |= {(number, WAITING): real(mask) for number, mask in machine.waiting.items()}
        for following, mask, op, _ in machine.parked:
            place = following, id(op)
            lanes[place] = real(mask) | lanes.get(place, np.False_)
        return lanes

    def memory_unchanged(self) -> bool:
        """Return whether shared and global memory are unchanged; also record the reads of the last block of code."""
        if self.last is not None:
            self.note_reads(*self.last)
        now = self.memory() if self.dirty else self.copies
        return len(self.copies) == len(now) and all(map(np.array_equal, self.copies, now))

    def memory(self) -> list[Array]:
        """Return the arrays of shared and global memory; if they are too large, [NaN], which is never equal to another
        copy."""
        machine = self.machine
        arrays = [region.bytes for region in machine.space.slots if region.writable]
        if machine.shared is not None:
            arrays.append(machine.shared)
        return arrays if sum(array.nbytes for array in arrays) <= MOST_BYTES else [np.full(1, np.nan)]

    def has_returned(self, number: int, mask: Array | None) -> bool:
        """Return whether the lanes at a block of code have run and come back to it in the saved state."""
        lanes, then = self.machine.chunk.real(mask), self.saved.get((number, READY))
        if then is None or (lanes & ~self.moved).any() or (lanes != then).any():
            return False
        return self.same_state(number, lanes)

    def same_state(self, number: int, lanes: Array) -> bool:
        """Return whether lanes at a block of code have the same state as in the saved state."""
        machine = self.machine
        needed, live = self.needed_registers(), machine.code.blocks[number].live
        if needed is None:
            return False
        then, now = self.local, machine.local
        if then is not None and (then.shape != now.shape or not (then[lanes] == now[lanes]).all()):
            return False
        values = self.values([index for index in needed if live >> index & 1])
        return all(
            key in self.saved_values and equal_values(self.saved_values[key][0], value, lanes, width, machine.chunk)
            for key, (value, width) in values.items()
        )

    def values(self, registers: Iterable[int]) -> dict[tuple[int, int], tuple[Value, int]]:
        """Return (value, bits) of registers and of the call stack, by (level of the stack, register).

        The level -1 has the registers in use; the register -1 of each level has the basic blocks to which lanes return.
        """
        machine = self.machine
        stack, widths = machine.stack, machine.code.widths
        values = {(-1, index): (machine.registers[index], widths[index]) for index in registers}
        if stack.levels:
            values[-1, -1] = stack.depth, 32
        for place, (back, level) in enumerate(zip(stack.return_blocks, stack.levels, strict=True)):
            values[place, -1] = back, 32
            values |= {(place, index): (value, widths[index]) for index, value in level.items()}
        return values

    def needed_registers(self) -> frozenset[int] | None:
        """Return the registers that decide, in the blocks of code that ran, the path of lanes and the values that lanes
        write.

        None if the path or the values also depend on the clock.
        """
        key = frozenset(self.blocks)
        if key not in self.needed:
            ops = [op for number in key for op in self.machine.code.blocks[number].every]
            registers: set[int] = set()
            for op in ops:
                if op.kind != "plain" or op.opcode in WRITERS:
                    registers.update(op.uses)
                    registers.update(index for index in (op.guard, op.selector) if index >= 0)
                if op.barrier is not None and op.barrier.count is not None:
                    registers.add(op.barrier.count)
            registers = closure(registers, [(op.defs, op.uses) for op in ops])
            clock = any(op.opcode == "clock" and not registers.isdisjoint(op.defs) for op in ops)
            self.needed[key] = None if clock else frozenset(registers)
        return self.needed[key]

    def note_reads(self, number: int, mask: Array | None) -> None:
        """Record the reads that lanes made in a block of code; `mask`: the lanes that ran it."""
        machine = self.machine
        ops = machine.code.blocks[number].ops
        for place, op in enumerate(ops):
            if op.address < 0 or op.opcode not in _WAITS or any(op.address in later.defs for later in ops[place:]):
                continue
            lanes = machine.chunk.real(mask)
            if id(op) in self.reads:
                lanes = lanes | self.reads[id(op)][1]
            self.reads[id(op)] = op, lanes, machine.registers[op.address]

    # The end of a wait.

    def release_or_stop(self) -> None:
        """When all lanes that can run have returned, release lanes that wait, if possible; otherwise stop the launch.

        Raises BudgetExceeded if nothing ends the launch.
        """
        machine = self.machine
        if release_complete(machine):
            return
        # Whether the lanes that wait are the same as in the saved state, at each barrier and for other lanes of their
        # warps.
        now = self.places()
        together = now.keys() == self.saved.keys() and all(
            (lanes == self.saved[number, why]).all() and (number < 0 or why == READY or self.same_state(number, lanes))
            for (number, why), lanes in now.items()
        )
        returned = together and not any((lanes & ~self.moved).any() for lanes in now.values())
        if not returned and machine.parked and machine.barriers.release(spinning=True):
            return
        if together:
            self.stop()
        self.save_state()

    def stop(self) -> None:
        """Record a hazard for each group of waiting lanes, then raise BudgetExceeded to end the launch."""
        machine = self.machine
        code, chunk = machine.code, machine.chunk
        places = []
        for (number, why), lanes in self.saved.items():
            if why == READY:
                tested, ops = self.polling_op(lanes), code.blocks[number].every
                # For an endless loop, name the last op that has a source line.
                named = next((op for op in reversed(ops) if op.line.line), ops[-1])
                places.append((tested, tested or named, lanes))
        first = places[0][1]
        where = f"{code.files.get(first.line.file, '')}:{first.line.line}"
        resident = machine.plan.resident
        unbegun = not machine.last_chunk and self.reads_global()
        if unbegun and resident is not None and chunk.blocks == resident[1]:
            machine.hazards.report(
                machine, "deadlock", first.line, places[0][2],
                "waits for a value that only a block that has not begun could write: the "
                f"{resident[0]} holds {chunk.blocks} of these blocks at once, and the grid has {machine.plan.blocks}. "
                f"Use a grid of at most {chunk.blocks} blocks, or let blocks wait for earlier blocks only",
            )  # fmt: skip
            raise BudgetExceeded(f"kernel {code.name} was stopped at {where}: it would never end.")
        if unbegun:
            raise BudgetExceeded(
                f"kernel {code.name} was stopped at {where}: all running blocks wait for a value that only a "
                f"block that has not begun could write. The simulator runs {chunk.blocks} of these blocks at a time, "
                "in their order, and no GPU promises to run more: use a smaller grid, or let blocks wait for earlier "
                "blocks only."
            )
        for tested, op, lanes in places:
            machine.mask = lanes
            if tested is None:
                kind = "endless-loop"
                text = (
                    "repeats a loop that nothing ends: what its condition depends on does not change"
                    f"{self.hoisting_advice()}"
                )
            else:
                kind, text = "deadlock", self.message(op, first_lane(lanes, chunk)[1])
            machine.hazards.report(machine, kind, op.line, lanes, text)
        stuck = [(op, chunk.real(mask)) for following, mask, op, _ in machine.parked if following >= 0]
        others = [*stuck, *((op, lanes) for _, op, lanes in places)]
        lines = {op.line.line for _, op, _ in places}
        for op, lanes in stuck:
            if op.line.group and op.line.line in lines:
                # Part of a grid barrier: here the threads of a block wait only for the thread that waits for the grid.
                continue
            machine.hazards.barrier(machine, op, lanes, others)
        locks = machine.locks
        for number, mask in machine.waiting.items():
            machine.mask = mask
            op = code.blocks[number].ops[0]
            absent = missing(machine, op)
            # If these lanes hold a lock, the hazard of the lanes that wait for it names them.
            if absent is not None and not (locks is not None and (locks.taken & chunk.lanes(mask)).any()):
                report_absent(machine, op, absent)
        raise BudgetExceeded(f"kernel {code.name} was stopped at {where}: it would never end.")

    def reads_global(self) -> bool:
        """Return whether some lanes poll global memory that the kernel may write."""
        chunk, written = self.machine.chunk, self.machine.global_races.written
        for op, lanes, address in self.reads.values():
            spaces, _ = self.kinds.get(op.line.ptx_line, ({"generic"}, 0))
            places = broadcast(flat(address, op.offset), chunk.shape)
            if "global" not in spaces or ("shared" in spaces and places.min() < 2 * SHARED_WINDOW):
                continue
            slots = np.unique(places[lanes] + HALF_SLOT >> SLOT_BITS).tolist()
            if written is None or not written.isdisjoint(slot << SLOT_BITS for slot in slots):
                return True
        return False

    def polling_op(self, lanes: Array) -> Op | None:
        """Return the op by which the first of these lanes reads the value that it waits for; None for an endless
        loop."""
        needed = self.needed_registers() or frozenset()
        _, place = first_lane(lanes, self.machine.chunk)
        candidates = [
            op
            for op, waiting, _ in self.reads.values()
            if waiting[place] and not needed.isdisjoint(op.defs) and self.of_others(op)
        ]
        return max(candidates, key=lambda op: (_WAITS.index(op.opcode), op.line.ptx_line), default=None)

    def hoisting_advice(self) -> str:
        """Return advice for a message if the compiler reads the loop's memory only once, before the loop; else ''."""
        for block in self.machine.code.blocks:
            end = block.terminator
            if block.number in self.blocks or end is None or self.blocks.isdisjoint(block.successors):
                continue
            decides = closure((end.guard,), [(op.defs, op.uses) for op in block.ops])
            for op in block.ops:
                if op.opcode in ("ld", "ldu") and self.of_others(op) and not decides.isdisjoint(op.defs):
                    return (
                        ": the compiler reads the memory once, before the loop. Read it through a volatile pointer or "
                        "cuda::atomic_ref, so that each iteration reads it"
                    )
        return ""

    def of_others(self, op: Op) -> bool:
        """Return whether an op accesses memory that other threads may write."""
        return not _SHARED.isdisjoint(self.kinds.get(op.line.ptx_line, _NOTHING)[0])

    def ended_block_text(self) -> str:
        """Return words for a message that say which block has ended without coming to the grid barrier."""
        machine, chunk = self.machine, self.machine.chunk
        exited = np.zeros((1, 1), bool) if machine.exited is None else machine.exited
        ended = chunk.real(exited).sum(axis=1) == chunk.real_threads
        if not ended.any():
            return "not all threads of the grid come to it"
        row = int(np.argmax(ended))
        line = machine.barriers.exit_line((row, 0))
        return f"block {chunk.block_index(row)} has ended{f' (line {line})' if line else ''}"

    def message(self, op: Op, place: tuple[int, int]) -> str:
        """Return the message for a thread that waits forever at an op; `place`: (block in the chunk, thread)."""
        machine, chunk = self.machine, self.machine.chunk
        _, size = self.kinds[op.line.ptx_line]
        addresses = broadcast(flat(self.reads[id(op)][2], op.offset), chunk.shape)
        address = int(addresses[place])
        region = machine.space.nearest(address)
        reason = "all other threads have ended or wait as well"
        if SHARED_WINDOW <= address < 2 * SHARED_WINDOW or region is None or region.size == 0:
            inside = np.where(addresses >= SHARED_WINDOW, addresses - SHARED_WINDOW, addresses)
            rows, offsets, _ = resolve(machine, inside)
            offset = int(offsets[place])
            name = machine.hazards.places.shared(offset, size, op.line.line)
            if (offset + int(rows[place]) * machine.shared.shape[1]) // size in machine.overfull:
                reason = (
                    "more arrivals came at once than it was initialised for, so two phases ended: initialise it with "
                    "the number of all arrivals of a phase"
                )
            content = machine.shared[int(rows[place]), offset : offset + size]
        else:
            offset = address - region.base
            name = in_region(region, offset, size)
            content = region.bytes[offset : offset + size]
            written = machine.global_races.written
            if written is not None and region.base not in written:
                reason = "nothing in the kernel writes there"
        number = int.from_bytes(content.tobytes(), "little")
        if region is not None and region.base == machine.grid_barrier:
            return (
                f"waits forever at the grid's barrier: {self.ended_block_text()}. Let all threads of the grid "
                "come to it, and put the condition around the work"
            )
        if op.opcode == "mbarrier":
            return (
                f"waits for a phase of the mbarrier at {name} that never ends: {missing_arrivals(number)}, and {reason}"
            )
        if op.opcode != "atom":
            return f"reads again and again {name}, which stays {number}: {reason}"
        if self.compares_with_old_value(op):
            reason = (
                "the loop compares with a value that was read before it: let each iteration compare with the value "
                "that the last atomicCAS() returned"
            )
        else:
            reason = self.holder_text(op, place, addresses) or reason
        return f"tries again and again to change {name}, which stays {number}: {reason}"

    def compares_with_old_value(self, op: Op) -> bool:
        """Return whether an atomic is a compare-and-swap whose expected value was read from memory before the loop."""
        if op.function != "atomicCAS":
            return False
        blocks = self.machine.code.blocks

        def reads(numbers: Collection[int]) -> bool:
            ops = [one for number in numbers for one in blocks[number].ops]
            known = closure(op.uses[:1], [(one.defs, one.uses) for one in ops])
            return any(one.opcode in _WAITS and not known.isdisjoint(one.defs) and self.of_others(one) for one in ops)

        return not reads(self.blocks) and reads(range(len(blocks)))

    def holder_text(self, op: Op, place: tuple[int, int], addresses: Array) -> str:
        """Return why the thread that holds a lock does not give it back, and what to do; '' if the thread is unknown.

        op, place: the atomic that tries to take the lock, and the (block in the chunk, thread) that executes it.
        addresses: the address that each lane passes to this atomic.
        """
        machine, chunk = self.machine, self.machine.chunk
        if machine.locks is None:
            return ""
        holders = machine.locks.taken & (addresses == addresses[place])
        if not holders.any():
            wanted = addresses[chunk.real(self.reads[id(op)][1])]
            if (wanted == wanted[0]).all():
                return ""
            return (
                "other threads wait for other locks: if a thread takes several locks, let all threads take them in the "
                "same order"
            )
        row, lane = first_lane(holders, chunk)[1]
        holder = f"thread {chunk.thread_index(lane)}" + (
            "" if row == place[0] else f" of block {chunk.block_index(row)}"
        )
        if machine.exited is not None and chunk.lanes(machine.exited)[row, lane]:
            return f"{holder} took this lock and has ended without giving it back"
        where = whereabouts(machine, row, lane)
        if "barrier" in where:
            return (
                f"{holder} holds this lock and {where}: let one thread of the block take the lock, or give it back "
                "before the barrier"
            )
        if where:
            return (
                f"{holder} holds this lock and {where} for the lanes of its warp: let one lane of the warp take the "
                "lock, or give it back before that line"
            )
        return f"{holder} holds this lock and waits as well"


# Opcodes of the instructions by which lanes wait; the most specific opcode comes last.
_WAITS = ("ld", "ldu", "atom", "mbarrier")


def equal_values(x: Value, y: Value, lanes: Array, width: int, chunk: Chunk) -> bool:
    """Return whether two values of a register are equal in all of the given lanes."""
    if x is y:
        return True
    if width == 128:
        return bool((broadcast(x, chunk.shape)[lanes] == broadcast(y, chunk.shape)[lanes]).all())
    dtype = BOOL if width == 1 else UNSIGNED[width]
    first, second = (broadcast(as_array(value, dtype), chunk.shape) for value in (x, y))
    return bool((first[lanes] == second[lanes]).all())
