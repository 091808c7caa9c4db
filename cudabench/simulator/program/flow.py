"""Control and data flow of a decoded kernel: basic blocks, live registers, the memory that it may write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cudabench.simulator.errors import PtxError
from cudabench.simulator.program.code import (
    LOCAL_BIT,
    SHARED_BIT,
    SYMBOL_BIT,
    Block,
    BoundedAccess,
    Op,
)
from cudabench.simulator.program.debug_info import Variable
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Value, is_undefined, undefined_lanes

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


def cut_blocks(stream: Sequence[Op | str], kernel: Location) -> list[Block]:
    """Return the stream of ops and labels as basic blocks; `kernel` is where the kernel stands, for its end."""
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    for item in stream:
        current = blocks[-1]
        if isinstance(item, str):
            if current.ops or current.terminator is not None:
                blocks.append(Block(len(blocks)))
            labels[item] = len(blocks) - 1
            continue
        if current.terminator is not None:
            current = Block(len(blocks))
            blocks.append(current)
        if item.kind == "collective" and current.ops:
            # The op begins a block of its own, at which lanes can wait for their warp.
            current = Block(len(blocks))
            blocks.append(current)
        if item.kind in ("plain", "collective"):
            current.ops.append(item)
            if item.kind == "collective":
                blocks.append(Block(len(blocks)))
        else:
            current.terminator = item
    last = blocks[-1]
    if last.terminator is None:
        last.terminator = Op(None, "exit", kernel)
    for block in blocks:
        end = block.terminator
        following = (block.number + 1,) if block.number + 1 < len(blocks) else ()
        if end is None or end.kind == "barrier":
            block.successors = following
        elif end.kind in ("branch", "table", "call", "return"):
            end.targets = tuple(_block_at(labels, name) for name in end.labels)
            block.successors = end.targets if end.guard < 0 else (*end.targets, *following)
        elif end.kind == "exit":
            block.successors = () if end.guard < 0 else following
        block.weight = len(block.ops) + (end is not None)
        block.lines = frozenset(op.line.ptx_line for op in block.every)
        block.simple = all(op.guard < 0 for op in block.ops)
        block.decoded()
    return blocks


def _block_at(labels: dict[str, int], name: str) -> int:
    """Return the block at a label."""
    if name not in labels:
        raise PtxError(f"the PTX branches to the unknown label '{name.partition('~')[0]}'.")
    return labels[name]


def find_live_registers(blocks: list[Block]) -> None:
    """Set each block's `live`: a bit for each register that a lane waiting before the block may still read."""
    reads, kills = [], []
    for block in blocks:
        read = kill = 0
        for op in block.every:
            for index in op.uses:
                if not kill >> index & 1:
                    read |= 1 << index
            if op.guard < 0:
                for index in op.defs:
                    kill |= 1 << index
        reads.append(read)
        kills.append(kill)
        block.live = read
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = 0
            for number in block.successors:
                out |= blocks[number].live
            live = reads[block.number] | (out & ~kills[block.number])
            if live != block.live:
                block.live = live
                changed = True


def watch_undefined(blocks: list[Block], initial: Sequence[Value]) -> None:
    """Let ops that may read a register which nothing has written, or a copy of one, say so when they do.

    Copies do not: compilers move and select undefined values, of which nobody then uses the result. What computes with
    one may do so for nothing, too, so that it is a suspicion, which only a wrong result names.
    """
    undefined = {index for index, value in enumerate(initial) if blocks[0].live >> index & 1 and is_undefined(value)}
    if not undefined:
        return
    ops = [op for block in blocks for op in block.ops]
    undefined = closure(undefined, [(op.uses, op.defs) for op in ops if op.opcode in _COPIES])
    for op in ops:
        read = tuple(sorted(undefined.intersection(op.uses)))
        if read and op.opcode not in _COPIES and op.run is not None:
            op.before(partial(_look, read, op.line))
    for block in blocks:
        block.decoded()


def closure(found: Iterable[int], steps: Sequence[tuple[Collection[int], Collection[int]]]) -> set[int]:
    """Return registers with all that steps lead to: from any of the first ones to all of the others."""
    found = set(found)
    before = -1
    while len(found) > before:
        before = len(found)
        for near, far in steps:
            if not found.isdisjoint(near):
                found.update(far)
    return found


_COPIES = frozenset(("mov", "selp"))


def _look(read: tuple[int, ...], line: Location, machine: Machine) -> None:
    """Note where a register that an op reads was never written."""
    for index in read:
        machine.hazards.undefined_value(machine, line, undefined_lanes(machine.registers[index]))


def points_to(
    stream: Sequence[Op | str], registers: int, pointers: Mapping[int, int], kept: Mapping[int, Slot] | None = None
) -> list[int]:
    """Return for each register what it may point to, as bits.

    Bit 0: anything (a pointer that came from memory); bit 1 + n: the pointer at byte n of the parameters; bit
    SYMBOL_BIT + n: the module variable in slot n; bit LOCAL_BIT + n: the n-th local array; bit SHARED_BIT + n: the n-th
    shared array whose size the PTX has.

    registers: how many there are; pointers: the bits of those that hold an address from the start; kept: by the
    identity of their ops the loads and stores of pointers that unoptimised code keeps in local memory, each in a place
    that nothing else reaches (see `find_slots`): such a place is as good as a register.
    """
    kept = kept or {}
    found = [0] * registers
    for index, bits in pointers.items():
        found[index] = bits
    held: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for op in stream:
            if isinstance(op, str):
                continue
            slot = kept.get(id(op))
            if slot is not None and slot.stored >= 0:
                bits = held.get(slot.place, 0)
                if found[slot.stored] & ~bits:
                    held[slot.place] = bits | found[slot.stored]
                    changed = True
            if not op.defs:
                continue
            bits = op.pointer or 0
            if slot is not None:
                bits = held.get(slot.place, 0)
            elif op.pointer is None:
                for index in op.uses:
                    bits |= found[index]
            for index in op.defs:
                if bits & ~found[index]:
                    found[index] |= bits
                    changed = True
    return found


class Slot(NamedTuple):
    """A load or store at a fixed place in a function's local memory: where that is, in bytes, how many it moves, and
    the register that a store takes them from, or -1 where there is none or are several."""

    op: Op
    place: int
    size: int
    stored: int


def find_slots(slots: Iterable[Slot], taken: Iterable[tuple[int, int]]) -> dict[int, Slot]:
    """Return the loads and stores, by the identity of their ops, of places that hold one pointer and nothing else.

    Such a place has 8 bytes, is always loaded and stored whole, and lies in none of the (start, end) of variables whose
    addresses are taken, so that no other access reaches it.
    """
    others = list(taken)
    by_place: dict[int, list[Slot]] = {}
    for slot in slots:
        if slot.size == _POINTER and (slot.stored >= 0 or len(slot.op.defs) == 1):
            by_place.setdefault(slot.place, []).append(slot)
        else:
            others.append((slot.place, slot.place + slot.size))
    found: dict[int, Slot] = {}
    for place, mine in by_place.items():
        shared = any(place < other + _POINTER and other < place + _POINTER for other in by_place if other != place)
        if not shared and not any(start < place + _POINTER and place < end for start, end in others):
            found.update((id(slot.op), slot) for slot in mine)
    return found


_POINTER = 8  # bytes of an address


def written_memory(found: Sequence[int], addresses: Iterable[int]) -> int:
    """Return what the kernel's global writes may point to; regions that no write reaches need no log of their reads.

    found: what registers point to; addresses: the registers through which the kernel writes.
    """
    total = 0
    for index in addresses:
        total |= found[index] or 1
    return total


def mark_cached(found: Sequence[int], cached: Iterable[tuple[MemoryOp, int]], written: int) -> int:
    """Return what the kernel's loads through the read-only cache may point to; mark those by a pointer through which
    the kernel writes as well: no compiler chooses them by itself.

    found: what registers point to; cached: the loads, each with the register of its address; written: what the kernel's
    writes may point to.
    """
    total = 0
    for access, index in cached:
        total |= found[index] or 1
        if found[index] & written & ~1 and access.cached == "load":
            access.cached = "asked"
    return total


def mark_guesses(
    stream: Sequence[Op | str],
    found: Sequence[int],
    loads: Iterable[tuple[MemoryOp, int, Sequence[int]]],
    swaps: Iterable[tuple[int, int]],
) -> None:
    """Mark the loads whose value a compare-and-swap of the same memory expects: `old = *p; do ... atomicCAS(p, old`.

    found: what registers point to; loads, swaps: as `Builder` collects them.
    """
    # A call's parameters and results are registers here, for all that `ld` and `st` move them.
    ops = (op for op in stream if not isinstance(op, str) and (op.opcode not in _MEMORY or op.address < 0))
    steps = [(op.defs, op.uses) for op in ops]
    for expected, place in swaps:
        known = closure((expected,), steps)
        for access, address, targets in loads:
            same = found[address] & found[place] or not (found[address] or found[place])
            access.guess |= bool(same) and not known.isdisjoint(targets)


_MEMORY = frozenset(("ld", "ldu", "atom", "red", "st"))


def find_local_bounds(
    found: Sequence[int],
    arrays: Sequence[tuple[int, int]],
    accesses: Iterable[BoundedAccess],
    variables: Mapping[int, Variable],
) -> None:
    """Give each access that can only reach one local array the bounds of that array, and the variable that it is.

    found: what registers point to; arrays: (start, end) of the local arrays in bytes; accesses: those that may be
    local, each with the register of its address; variables: by start, where debug information tells of them.
    """
    for access, index in accesses:
        access.bounds = _only(found[index], LOCAL_BIT, arrays)
        if access.bounds is not None:
            access.variable = variables.get(access.bounds[0])


def find_shared_bounds(
    found: Sequence[int], arrays: Sequence[tuple[int, int]], accesses: Iterable[BoundedAccess]
) -> None:
    """Give each access that can only reach one shared array the bounds of that array, as `find_local_bounds` does."""
    for access, index in accesses:
        access.shared_bounds = _only(found[index], SHARED_BIT, arrays)


def _only(bits: int, first: int, arrays: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the one array of a kind that a register points to, None where it may be several or anything."""
    mine = bits >> first & (1 << SYMBOL_BIT) - 1
    return None if bits & 1 or not mine or mine & (mine - 1) else arrays[mine.bit_length() - 1]
