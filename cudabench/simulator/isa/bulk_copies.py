"""cp.async.bulk and cp.reduce.async.bulk of bytes (PTX ISA 9.7.9.25): between an array and the shared memory of a
block, of several blocks, or from block to block of a cluster.

One thread starts a copy, and it is carried out at once, lane by lane. The copies of tensors are in `tensor_copies`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudabench.simulator.clusters import members, resolve
from cudabench.simulator.count.patterns import SECTOR
from cudabench.simulator.isa import mbarrier
from cudabench.simulator.isa.access import MemoryOp, active_lanes, read_only
from cudabench.simulator.isa.atomics import combination
from cudabench.simulator.isa.opcodes import refuse
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import Region, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Operand
from cudabench.simulator.tensor_maps import CHUNK
from cudabench.simulator.values import DTYPES, INT64, UNSIGNED, Array, broadcast

WAVEFRONT = 128
Lane = tuple[int, int]  # block, thread
Spot = tuple[Any, int]  # a block's row and an offset in its shared memory, or a region and an address
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


def lanewise(builder: Builder, operand: Operand, type_: str) -> Callable[[Machine], Array]:
    """Return what gives an operand as each lane has it, (blocks, threads)."""
    register = builder.source(operand, type_)
    return lambda machine: broadcast(machine.array(register, DTYPES[type_]), machine.chunk.shape)


class Place:
    """An address of a copy."""

    def __init__(self, builder: Builder, operand: Operand) -> None:
        self.register, self.offset = builder.address(operand)

    def shared(self, machine: Machine) -> tuple[Array, ...]:
        """Return (row of the block, offset in its shared memory, whether there is one)."""
        return resolve(machine, mbarrier.shared_offsets(machine, self.register, self.offset))

    def of(self, machine: Machine) -> Array:
        """Return generic addresses, (blocks, threads)."""
        return broadcast(flat(machine.registers[self.register], self.offset, machine.chunk), machine.chunk.shape)


def receivers(machine: Machine, block: int, row: int, ranks: int | None) -> list[int]:
    """Return the rows of the blocks that a copy goes to: of a mask of ranks, or the one that its address names."""
    found = members(machine)
    if ranks is None or found is None:
        return [row]
    return [int(found.rows[found.cluster[block], rank]) for rank in range(found.size) if ranks >> rank & 1]


def lies_well(
    machine: Machine, access: MemoryOp, address: int, nbytes: int, low: int, high: int, alignment: int = CHUNK,
    known: bool = True,
) -> bool:  # fmt: skip
    """Return whether bytes at an address are aligned and in a known memory from low to high; record where not."""
    where: Array = np.full((1, 1), address, INT64)
    if (address | nbytes % CHUNK) % alignment:
        machine.hazards.misaligned(machine, access, machine.lanes(), where, alignment)
    elif not (known and low <= address <= high - nbytes):
        machine.hazards.outside(machine, access, machine.lanes(), where, nbytes, low, high)
    else:
        return True
    return False


def sized(access: MemoryOp, nbytes: int, width: int) -> MemoryOp:
    """Return an access as one of many bytes, with a number of its own for what is remembered by number."""
    found = copy.copy(access)
    found.size, found.count, found.number = nbytes, max(1, nbytes // width), access.number + (nbytes << 32)
    return found


class Shared:
    """Shared memory as one end of a copy."""

    def __init__(self, builder: Builder, kind: AccessKind, place: Place, count: int = 2) -> None:
        self.access = MemoryOp(builder, kind, UNSIGNED[64], count, "shared")
        self.spots = place.shared
        builder.proxies |= kind == "load"

    def find(
        self, machine: Machine, spots: Sequence[Array], lane: Lane, nbytes: int, alignment: int = CHUNK
    ) -> Spot | None:
        """Return where a lane's bytes lie, at their alignment; None, and a record, where they do not."""
        row, offset, known = (int(each[lane]) for each in spots)
        well = lies_well(machine, self.access, offset, nbytes, 0, machine.shared_size, alignment, bool(known))
        return (row, offset) if well else None

    def bytes(self, machine: Machine, spot: Spot, nbytes: int) -> Array:
        """Return the bytes at a place."""
        row, offset = spot
        return machine.shared[row, offset : offset + nbytes]

    def note(self, machine: Machine, block: int, spot: Spot, nbytes: int, data: Array = ()) -> None:
        """Count a copy's part of a block's memory, and log it."""
        row, offset = spot
        turns = -(-nbytes // WAVEFRONT)
        machine.counters.add(self.access.numbers["shared"], 1, turns, turns)
        access, chunk = sized(self.access, nbytes, self.access.width), machine.chunk
        if access.kind == "load":
            pieces = np.arange(offset // CHUNK, (offset + nbytes) // CHUNK)
            lane = int(np.argmax(machine.lanes()[block]))
            machine.proxies.read(access.location, [row], pieces, [lane], "a bulk copy")
        address = np.full((1, 1), offset, INT64)
        if row == block:
            # Stands for bytes that are no other thread's: whoever else writes there races.
            own = (np.arange(chunk.threads, dtype=np.uint64).reshape(1, -1),) if access.kind == "store" else ()
            machine.shared_races.log(access, address, 0, machine.mask, own)
        elif access.kind == "store":
            machine.shared_races.written(np.array([row]), np.array([offset]), nbytes)
        if machine.plan.cluster is not None:
            rows = np.full(chunk.shape, row, np.int64)
            machine.cluster_races.log(access, rows, broadcast(address, chunk.shape), machine.lanes(), nbytes)


class Global:
    """Global memory as the other end."""

    def __init__(self, builder: Builder, kind: AccessKind, place: Place | None = None) -> None:
        self.access = MemoryOp(builder, kind, UNSIGNED[64], 1, "global")
        self.place = place

    def spots(self, machine: Machine) -> tuple[Array, ...]:
        """Return the addresses of all lanes."""
        assert self.place is not None
        return (self.place.of(machine),)

    def find(self, machine: Machine, spots: Sequence[Array], lane: Lane, nbytes: int) -> Spot | None:
        """Return the array in which a lane's bytes lie at their alignment, and where; None, and a record, without."""
        address = int(spots[0][lane])
        found = machine.space.nearest(address)
        low, high = (1, 0) if found is None else (found.base, found.end)
        if not lies_well(machine, self.access, address, nbytes, low, high) or found is None:
            return None
        if self.access.kind != "load" and not found.writable:
            read_only(machine, self.access, found)
        return found, address

    def bytes(self, machine: Machine, spot: Spot, nbytes: int) -> Array:
        """Return the bytes at a place."""
        region, address = spot
        return region.bytes[address - region.base : address - region.base + nbytes]

    def note(self, machine: Machine, block: int, spot: Spot, nbytes: int, data: Array = ()) -> None:
        """Count a copy's bytes, and log them."""
        self.rows(machine, spot[0], np.array([spot[1]]), nbytes, data)

    def rows(self, machine: Machine, region: Region, starts: Array, nbytes: int, data: Array) -> None:
        """Count a copy's rows of `nbytes` at some addresses, and log them. data: what is stored, by row."""
        pieces = int((-(-(starts % SECTOR + nbytes) // SECTOR)).sum())
        machine.counters.add(self.access.numbers["global"], 1, pieces, len(starts) * -(-nbytes // SECTOR))
        races = machine.global_races
        if races.written is not None and region.base not in races.written:
            return
        width = 8 if nbytes % 8 == 0 else 1
        access = sized(self.access, nbytes, width)
        for at, start in enumerate(starts.tolist()):
            words = []
            if access.kind == "store":
                words = [word.reshape(1, 1) for word in data[at].view(UNSIGNED[8 * width])]
            races.log(access, region, np.full((1, 1), start, INT64), 0, machine.mask, words)


End = Shared | Global


def reduction(ins: Instruction) -> str:
    """Return the operation of a reduction."""
    name = next((word for word in ins.modifiers if word in _REDUCTIONS), "")
    if not name:
        raise refuse(ins)
    return name


def build_copy(builder: Builder, ins: Instruction) -> Run:
    """Build cp.async.bulk and cp.reduce.async.bulk of bytes."""
    words, reduces = ins.modifiers, "reduce" in ins.modifiers
    if "cp_mask" in words or "ignore_oob" in words:
        raise Refuse(f"bulk copies of some bytes ({ins.text})")
    if reduces and words[-1] not in DTYPES:
        raise refuse(ins)
    to_shared, from_shared = (
        word.startswith("shared") for word in words if word.partition(":")[0] in ("global", "shared")
    )
    combine = combination(reduction(ins), words[-1]) if reduces else None
    dtype = DTYPES[words[-1] if words[-1] not in ("f16", "bf16") else "b16"] if reduces else UNSIGNED[8]
    into, out_of = Place(builder, ins.operands[0]), Place(builder, ins.operands[1])
    size = lanewise(builder, ins.operands[2], "u32")
    barrier = Place(builder, ins.operands[3]) if to_shared else None
    ranks = lanewise(builder, ins.operands[4], "u16") if "multicast:cluster" in words else None
    builder.address_register = into.register
    plain = to_shared != from_shared and not reduces and ranks is None
    count = 1 if plain else 2
    source: End = Shared(builder, "load", out_of, count) if from_shared else Global(builder, "load", out_of)
    kind: AccessKind = "atomic" if reduces else "store"
    target: End = Shared(builder, kind, into, count) if to_shared else Global(builder, kind, into)

    def run(machine: Machine) -> None:
        sizes, sources, targets = size(machine), source.spots(machine), target.spots(machine)
        waits = None if barrier is None else barrier.shared(machine)[1]
        masks = None if ranks is None else ranks(machine)
        for lane in active_lanes(machine):
            nbytes = int(sizes[lane])
            spots: list[Spot] = []
            spot = target.find(machine, targets, lane, nbytes)
            origin = None if spot is None else source.find(machine, sources, lane, nbytes)
            if spot is not None and origin is not None:
                content = source.bytes(machine, origin, nbytes).copy()
                source.note(machine, lane[0], origin, nbytes)
                spots = [spot]
                if to_shared:
                    to = receivers(machine, lane[0], spot[0], None if masks is None else int(masks[lane]))
                    spots = [(row, spot[1]) for row in to]
            for spot in spots:
                target.note(machine, lane[0], spot, nbytes, [content])
                view = target.bytes(machine, spot, nbytes).view(dtype)
                view[:] = content.view(dtype) if combine is None else combine(view, content.view(dtype))
            if waits is not None:  # after a fault, too: no lane is to wait for it for ever
                for row in [row for row, _ in spots] or [lane[0]]:
                    mbarrier.complete(machine, row, int(waits[lane]), nbytes)

    return run
