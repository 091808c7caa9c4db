"""Control flow and data flow of a decoded kernel: basic blocks, live registers, what each register may point to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from cudabench.simulator.errors import PtxError
from cudabench.simulator.program.code import SYMBOL_BIT, Block, Op
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import undefined_lanes

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


def cut_blocks(stream: Sequence[Op | str], kernel: Location) -> list[Block]:
    """Divide the stream of ops and labels into basic blocks; `kernel`: the location for an exit that is added."""
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    for item in stream:
        current = blocks[-1]
        # A collective gets a block of its own, so that lanes can wait before it for the other lanes of their warp.
        alone = not isinstance(item, str) and item.kind == "collective"
        if current.terminator is not None or (current.ops and (alone or isinstance(item, str))):
            current = Block(len(blocks))
            blocks.append(current)
        if isinstance(item, str):
            labels[item] = current.number
        elif item.kind in ("plain", "collective"):
            current.ops.append(item)
        else:
            current.terminator = item
        if alone:
            blocks.append(Block(len(blocks)))
    last = blocks[-1]
    if last.terminator is None:
        last.terminator = Op(None, "exit", kernel)
    for block in blocks:
        end = block.terminator
        block.successors = (block.number + 1,) if block.number + 1 < len(blocks) else ()
        if end is not None and end.kind != "barrier":
            if unknown := [name for name in end.labels if name not in labels]:
                raise PtxError(f"the PTX branches to the unknown label '{unknown[0].partition('~')[0]}'.")
            end.targets = tuple(labels[name] for name in end.labels)
            block.successors = end.targets if end.guard < 0 else (*end.targets, *block.successors)
        block.weight = len(block.every)
        block.lines = frozenset(op.line.ptx_line for op in block.every)
    return blocks


def find_live_registers(blocks: list[Block]) -> None:
    """Set each block's `live`: one bit for each register that a lane waiting before the block may still read."""
    kills = []
    for block in blocks:
        kill = 0
        for op in block.every:
            block.live |= reduce(or_, (1 << index for index in op.uses), 0) & ~kill
            if op.guard < 0:
                kill = reduce(or_, (1 << index for index in op.defs), kill)
        kills.append(kill)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = reduce(or_, (blocks[number].live for number in block.successors), 0) & ~kills[block.number]
            if out & ~block.live:
                block.live |= out
                changed = True


def loads_in_flight(blocks: Sequence[Block], writes: Collection[Location]) -> frozenset[Location]:
    """Return the locations of the loads that may return their value after their block has written a flag.

    A thread that uses the value waits for it. So these are the loads whose value may be used only after a barrier, if
    global memory may be written between this barrier and the next one. writes: the locations of these writes.
    """
    ends = [block.terminator is not None and block.terminator.kind == "barrier" for block in blocks]
    # For each basic block: whether memory may be written from its begin on, up to a barrier.
    written = [any(op.line in writes for op in block.every) for block in blocks]
    begins: list[frozenset[Op]] = [frozenset()] * len(blocks)  # the loads whose value is unused where a block begins
    found: set[Location] = set()
    changed = True
    while changed:
        changed = False
        for block in blocks:
            after = any(written[number] for number in block.successors)
            if after and not ends[block.number] and not written[block.number]:
                written[block.number] = changed = True
            unused = set(begins[block.number])
            for op in block.every:
                touched = {*op.uses, *op.defs, op.guard, op.selector}
                unused = {load for load in unused if touched.isdisjoint(load.defs)}
                if op.opcode in ("ld", "ldu") and op.defs:
                    unused.add(op)
            live = reduce(or_, (blocks[number].live for number in block.successors), 0)
            unused = {load for load in unused if any(live >> index & 1 for index in load.defs)}
            if ends[block.number] and after:
                found.update(load.line for load in unused)
            for number in block.successors:
                if not unused <= begins[number]:
                    begins[number] |= unused
                    changed = True
    return frozenset(found)


def watch_undefined(blocks: list[Block], initial: Sequence[int | None]) -> None:
    """Make ops report a read of a register that was never written, or of a copy of such a register.

    `mov` and `selp` report nothing, because compilers copy undefined values that are never used. The result of any
    other op may also be unused. So a report is only a suspicion, which is shown only if the kernel's result is wrong.
    """
    undefined = {index for index, value in enumerate(initial) if value is None and blocks[0].live >> index & 1}
    if not undefined:
        return
    ops = [op for block in blocks for op in block.ops]
    undefined = closure(undefined, [(op.uses, op.defs) for op in ops if op.opcode in _COPIES])
    for op in ops:
        read = tuple(sorted(undefined.intersection(op.uses)))
        if read and op.opcode not in _COPIES and op.run is not None:
            watched = op.watched
            op.before(partial(_note_undefined, read, op.line))
            # `before` affects only the NumPy engine; the native engine checks the registers in `undefined`.
            op.undefined, op.watched = read, watched


def closure(registers: Iterable[int], steps: Sequence[tuple[Collection[int], Collection[int]]]) -> set[int]:
    """Return the given registers, and all registers to which the steps lead from the given registers.

    Each step is (sources, targets): if one of the sources is in the set, all targets are added.
    """
    registers = set(registers)
    before = -1
    while len(registers) > before:
        before = len(registers)
        for near, far in steps:
            if not registers.isdisjoint(near):
                registers.update(far)
    return registers


_COPIES = frozenset(("mov", "selp"))


def _note_undefined(read: tuple[int, ...], line: Location, machine: Machine) -> None:
    """Report the lanes in which a register that an op reads was never written."""
    for index in read:
        machine.hazards.undefined_value(machine, line, undefined_lanes(machine.registers[index]))


def points_to(
    stream: Sequence[Op | str], registers: int, pointers: Mapping[int, int], kept: Mapping[int, Slot] | None = None
) -> list[int]:
    """Return for each register an int whose bits say what the register may point to.

    Bit 0: anything (a pointer that was read from memory); bit 1 + n: the memory to which the pointer at byte n of the
    parameters points; bit SYMBOL_BIT + n: the module variable in slot n; bit LOCAL_BIT + n: the n-th local array; bit
    SHARED_BIT + n: the n-th shared array whose size the PTX gives.

    registers: the number of registers. pointers: the bits of the registers that initially hold an address. kept: the
    result of `find_slots`; the places in local memory that these access are treated like registers.
    """
    steps: list[tuple[Sequence[int], Sequence[int], int]] = []  # (source registers, target registers, bits to add)
    for op in stream:
        if isinstance(op, str) or not (op.defs or kept):
            continue
        slot = (kept or {}).get(id(op))
        if slot is None:
            steps.append((op.uses if op.pointer is None else (), op.defs, op.pointer or 0))
        elif slot.stored >= 0:
            steps.append(((slot.stored,), (-1 - slot.place,), 0))
        else:
            steps.append(((-1 - slot.place,), op.defs, 0))
    pointees = defaultdict(int, pointers)
    changed = True
    while changed:
        changed = False
        for near, far, bits in steps:
            for index in near:
                bits |= pointees[index]
            for index in far:
                known = pointees[index]
                if known != bits and (merged := known | bits) != known:
                    pointees[index] = merged
                    changed = True
    return [pointees[index] for index in range(registers)]


class Slot(NamedTuple):
    """A load or store at a fixed place in a function's local memory.

    place: the first byte. size: the number of bytes. stored: the register whose value a store writes; -1 for a load,
    and for a store of several registers.
    """

    op: Op
    place: int
    size: int
    stored: int


def find_slots(slots: Iterable[Slot], taken: Iterable[tuple[int, int]]) -> dict[int, Slot]:
    """Return the loads and stores, by `id(op)`, of places in local memory that hold one pointer and nothing else.

    Such a place has 8 bytes and is always loaded and stored as a whole. The place overlaps no range of `taken`, which
    has the (start, end) of each variable whose address is taken. So no other access reaches the place.
    """
    others = list(taken)
    by_place: dict[int, list[Slot]] = {}
    for slot in slots:
        if slot.size == _POINTER and (slot.stored >= 0 or len(slot.op.defs) == 1):
            by_place.setdefault(slot.place, []).append(slot)
        else:
            others.append((slot.place, slot.place + slot.size))
    kept: dict[int, Slot] = {}
    for place, group in by_place.items():
        shared = any(place < other + _POINTER and other < place + _POINTER for other in by_place if other != place)
        if not shared and not any(start < place + _POINTER and place < end for start, end in others):
            kept.update((id(slot.op), slot) for slot in group)
    return kept


_POINTER = 8  # bytes of an address


def pointed_memory(pointees: Sequence[int], addresses: Iterable[int]) -> int:
    """Return the bits of all memory that the registers `addresses` may point to; `pointees`: see `points_to`."""
    return reduce(or_, (pointees[index] or 1 for index in addresses), 0)


def mark_guesses(
    stream: Sequence[Op | str],
    pointees: Sequence[int],
    loads: Iterable[MemoryOp],
    swaps: Iterable[tuple[int, int]],
) -> None:
    """Mark each load whose value is the expected value of a compare-and-swap of the same memory.

    Example: `old = *p; do { ... } while (atomicCAS(p, old, new) != old)`. pointees: see `points_to`; swaps: see
    `Builder.swaps`.
    """
    # The `ld.param` and `st.param` of a call have no address register here. They only copy registers, so they are
    # treated as moves.
    ops = (op for op in stream if not isinstance(op, str) and (op.opcode not in _MEMORY or op.address < 0))
    steps = [(op.defs, op.uses) for op in ops]
    for expected, place in swaps:
        known = closure((expected,), steps)
        for load in loads:
            same = pointees[load.address] & pointees[place] or not (pointees[load.address] or pointees[place])
            load.guess |= bool(same) and not known.isdisjoint(load.results)


def mark_choices(blocks: Sequence[Block], loads: Iterable[MemoryOp], choices: Mapping[int, tuple[int, bool]]) -> None:
    """Mark each load whose value only one `selp` reads, see `MemoryOp.chosen`.

    Compilers load for all lanes if the address is surely valid, and select later: `t < 8 ? s[3] : 0`. If the predicate
    is computed between the two, the load is moved behind it. choices: see `Builder.choices`.
    """
    chosen = {load.results[0]: load for load in loads if len(load.results) == 1 and not load.strong}
    chosen = {index: load for index, load in chosen.items() if index in choices}
    if not chosen:
        return
    ops = [(block, op) for block in blocks for op in block.every]
    reads = Counter(index for _, op in ops for index in (*op.uses, op.guard, op.selector))
    writes = Counter(index for _, op in ops for index in op.defs)
    home = {index: (block, op) for block, op in ops if op.guard < 0 for index in op.defs if writes[index] == 1}
    for block, op in ops:
        for index in chosen.keys() & op.uses if op.opcode == "selp" and op.guard < 0 else ():
            predicate, when = choices[index]
            if reads[index] != 1 or index not in home or predicate not in home:
                continue
            (place, load), (before, compared) = home[index], home[predicate]
            if place is before:
                first, last = place.every.index(load), place.every.index(compared)
                between = place.every[first + 1 : last + 1]
                if not all(one.opcode in _PURE and {*one.defs}.isdisjoint(load.uses) for one in between):
                    continue
                if between:
                    place.ops[first : last + 1] = [*between, load]
            elif place is not block:
                continue  # the predicate may have changed since the load
            chosen[index].chosen = predicate, when


# Operations over which a load may move.
_PURE = frozenset(("setp", "ld", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "mov", "cvt", "selp"))
_MEMORY = frozenset(("ld", "ldu", "atom", "red", "st"))


def single_array(bits: int, first: int, arrays: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return (start, end) of the only array to which a register can point; None if it may point to other memory, too.

    bits: what the register points to; first: the bit number of the first array (LOCAL_BIT or SHARED_BIT); arrays:
    (start, end) of each array in bytes.
    """
    candidates = bits >> first & (1 << SYMBOL_BIT) - 1
    return None if bits & 1 or not candidates or candidates & (candidates - 1) else arrays[candidates.bit_length() - 1]
