"""Atomic operations (PTX ISA 9.7.13.5 to 9.7.13.7): one order of the lanes, chosen as block by block, thread by thread.

Without a returned value a whole chunk is one scatter. With one, lanes are sorted by address and prefix operations
give each lane what it would have read in its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.races import idles
from cudabench.simulator.clusters import REMOTE, Remote
from cudabench.simulator.count.atomics import served
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import Lanes, MemoryOp, check, read_only, space_of
from cudabench.simulator.isa.floating import compute_halves, largest, smallest
from cudabench.simulator.isa.global_memory import find, slots_of
from cudabench.simulator.isa.load_store import spaces
from cudabench.simulator.isa.mbarrier import arrive_bytes
from cudabench.simulator.isa.opcodes import instruction
from cudabench.simulator.isa.shared_memory import row_starts
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Symbol, Vector
from cudabench.simulator.values import DTYPES, UNSIGNED, Affine, Array, Value, as_array, broadcast, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
Combine = Callable[..., Array]


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def combination(name: str, type_: str) -> Combine:
    """Return the function (old, operand, ...) -> new of an operation."""
    if type_ in ("f16", "bf16", "f16x2", "bf16x2"):
        if name == "add":
            return compute_halves(np.add, type_)
        if name in ("min", "max"):
            return compute_halves(smallest if name == "min" else largest, type_)
    functions: dict[str, Combine] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "exch": lambda old, new: new, "inc": _increment, "dec": _decrement,
        "cas": lambda old, expected, new: np.where(old == expected, new, old),
    }  # fmt: skip
    return functions[name]


def update(view: Array, index: Array, operands: list[Array], name: str, combine: Combine, wanted: bool) -> Array | None:
    """Apply an operation to view[index] lane after lane; return what each lane found, if wanted.

    view: flat memory; index, operands: one element for each active lane.
    """
    values = operands[0]
    plain = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    count = index.size
    if count == 1:
        old = view[index]
        view[index] = combine(old, *operands)
        return old
    native = name in plain and combine is plain[name]
    if not wanted:
        if native:
            ufunc = plain[name]
            if view.dtype.kind in "iu" and (index == index[0]).all():
                view[index[0]] = ufunc(view[index[0]], ufunc.reduce(values, dtype=values.dtype))
            else:
                ufunc.at(view, index, values)
            return None
        if name == "exch":
            view[index] = values
            return None
    order = np.argsort(index, kind="stable")
    places = index[order]
    sorted_operands = [operand[order] for operand in operands]
    first = np.ones(count, dtype=bool)
    np.not_equal(places[1:], places[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    old = np.empty(count, dtype=view.dtype)
    if first.all():
        old = view[places]
        view[places] = combine(old, *sorted_operands)
    elif native and name == "add" and view.dtype.kind in "iu":
        unsigned = UNSIGNED[view.dtype.itemsize * 8]
        added = sorted_operands[0].view(unsigned)
        running = np.cumsum(added, dtype=unsigned)
        segment = np.cumsum(first) - 1
        before = running - added
        old = (view[places].view(unsigned) + before - before[starts][segment]).view(view.dtype)
        ends = np.append(starts[1:], count) - 1
        view[places[ends]] = (old[ends].view(unsigned) + added[ends]).view(view.dtype)
    elif name == "exch":
        old[1:] = sorted_operands[0][:-1]
        old[starts] = view[places[starts]]
        ends = np.append(starts[1:], count) - 1
        view[places[ends]] = sorted_operands[0][ends]
    elif name == "cas":
        _compare_and_swap(view, places, sorted_operands, starts, first, old)
    else:
        # Round k serves the k-th lane of each address.
        segment = np.cumsum(first) - 1
        rank = np.arange(count) - starts[segment]
        by_rank = np.argsort(rank, kind="stable")
        edges = np.flatnonzero(np.diff(rank[by_rank], prepend=-1, append=rank.max() + 1))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            lanes = by_rank[start:end]
            now = view[places[lanes]]
            old[lanes] = now
            view[places[lanes]] = combine(now, *[operand[lanes] for operand in sorted_operands])
    result = np.empty_like(old)
    result[order] = old
    return result


def _compare_and_swap(
    view: Array, places: Array, operands: list[Array], starts: Array, first: Array, old: Array
) -> None:
    """Serve compare-and-swap: each round finds every address' next lane that succeeds."""
    expected, new = operands
    count = places.size
    segment = np.cumsum(first) - 1
    current = view[places[starts]]
    old[:] = current[segment]
    done = np.zeros(count, dtype=bool)
    while True:
        hits = np.flatnonzero((expected == current[segment]) & ~done)
        if not hits.size:
            break
        _, firsts = np.unique(segment[hits], return_index=True)
        winners = hits[firsts]
        touched = segment[winners]
        # Lanes up to the winner have had their turn; those behind it see the new value.
        limit = np.full(starts.size, -1, dtype=np.int64)
        limit[touched] = winners
        passed = np.arange(count) <= limit[segment]
        current[touched] = new[winners]
        done |= passed
        changed = ~done & (limit[segment] >= 0)
        old[changed] = current[segment[changed]]
    view[places[starts]] = current


class Atomic:
    """One atomic instruction."""

    def __init__(self, builder: Builder, ins: Instruction, target: int | None) -> None:
        words = ins.modifiers
        self.name = next((word for word in words if word in _OPERATIONS), "")
        self.type = words[-1]
        if not self.name or self.type not in DTYPES or any(word in ("v2", "v4", "v8", "vec_32_bit") for word in words):
            raise Refuse(f"instruction {ins.text}")
        self.space = space_of(ins)
        bits = self.type if BITS[self.type] != 16 else "b16"
        if self.type in ("f16x2", "bf16x2"):
            bits = "b32"
        dtype = DTYPES[bits]
        place = 0 if target is None else 1
        self.sources = [
            builder.source(operand, bits) for operand in ins.operands[place + 1 :] if not isinstance(operand, Vector)
        ]
        wanted_operands = 2 if self.name == "cas" else 1
        self.sources = self.sources[:wanted_operands]
        self.address, self.offset = builder.address(ins.operands[place])
        self.access = MemoryOp(builder, "atomic", dtype, 1, self.space, f"{self.name}.{self.type}")
        builder.pointer = 1 if BITS[self.type] == 64 else 0
        if self.name == "cas":
            builder.swaps.append((self.sources[0], self.address))
        builder.swapping |= self.name in ("cas", "exch")
        builder.signs = self.space in ("global", "generic") and (target is None or self.name == "exch")
        self.swaps = self.name in ("cas", "exch")
        self.releases = any(word in ("release", "acq_rel") for word in words)
        self.wide = self.access.ordered = "cta" not in words
        self.access.target = target
        builder.orders |= self.releases or "acquire" in words
        operand = ins.operands[place + 1]
        self.one = self.name == "add" and isinstance(operand, Immediate) and operand.value == 1
        self.combine = combination(self.name, self.type)
        if target is not None and self.space != "local":
            builder.strong = self.access
        self.target = target
        self.width = builder.width(target) if target is not None else 0
        self.dtype = dtype

    def __call__(self, machine: Machine) -> None:
        """Run the instruction."""
        if self.releases:
            machine.fence(self.wide)
        idle = self.access.polls and idles(self.access, self.operands(machine))
        if self.access.polls:
            machine.departures.wait(machine.lanes())
        machine.spins |= idle  # who finds what it waits for is at another place of the code by its next turn
        if machine.locks is not None:
            machine.locks.atomic(machine, self.swaps and not idle)
        address = machine.registers[self.address]
        if self.space != "generic":
            result = self.apply(machine, self.space, address, self.offset)
        else:
            parts = spaces(machine, address, self.offset)
            if len(parts) == 1:
                result = self.apply(machine, parts[0][0], address, self.offset - parts[0][1])
            else:
                result = None
                mask, warps = machine.mask, machine._warps
                for name, start, lanes in parts:
                    machine.mask, machine._warps = lanes, -1
                    part = self.apply(machine, name, address, self.offset - start)
                    if part is not None:
                        result = part if result is None else np.where(lanes, part, result)  # type: ignore[arg-type]
                machine.mask, machine._warps = mask, warps
        if self.target is not None:
            machine.put(self.target, Affine(0) if result is None else canonical(result))

    def operands(self, machine: Machine) -> list[Array]:
        """Return what it works with besides memory, for all lanes."""
        return [as_array(machine.registers[source], self.dtype, machine.chunk) for source in self.sources]

    def apply(self, machine: Machine, space: str, address: Value, offset: int) -> Array | None:
        """Update one memory and return what the lanes found, (blocks, threads), or None if nobody wants it."""
        chunk = machine.chunk
        access = self.access
        lanes = Lanes(machine, address, offset)
        wanted = self.target is not None and self.target in machine.code.read
        data = [machine.registers[source] for source in self.sources]
        if space == "shared":
            least, most = access.shared_bounds or (0, machine.shared_size)
            low, high, bits = lanes.extremes()
            if high >= REMOTE and machine.plan.cluster is not None:
                remote = Remote(machine, access, lanes.address, lanes.exact(machine), access.size)
                view = machine.shared.reshape(-1).view(self.dtype)
                machine.shared_races.written(remote.rows[remote.lanes], remote.offset[remote.lanes], access.size)
                machine.counters.cluster(
                    access.numbers["shared"], remote.rows, remote.offset, access.size, remote.lanes, chunk, False,
                    served(self.name, self.type, self.one and not wanted),
                )  # fmt: skip
                return self.perform(machine, view, remote.places, remote.lanes, data, wanted)
            if (low < least or high + access.size > most or bits & (access.size - 1)) and not check(
                machine, access, lanes, least, most, access.size
            ):
                return None
            mask = (
                machine.mask
                if lanes.mask is None
                else lanes.mask
                if machine.mask is None
                else lanes.mask & machine.mask
            )
            how = served(self.name, self.type, self.one and not wanted)
            machine.counters.shared_atomic(
                access.numbers["shared"], lanes.address, access.size, mask, machine.warps, chunk, how
            )
            machine.shared_races.log(access, lanes.address, 0, mask, data)
            if machine.trace is not None:
                machine.trace.record(machine, access, "shared", lanes.address, mask)
            view = machine.shared.reshape(-1).view(self.dtype)
            return self.perform(machine, view, lanes.address + row_starts(chunk, machine.shared), mask, data, wanted)
        if space != "global":
            raise_local(machine, access)
        regions = find(machine, access, lanes)
        result: Array | None = None
        mask = lanes.exact(machine)
        if regions:
            machine.counters.global_atomic(
                access.numbers["global"], lanes.address, access.size, mask, machine.warps, chunk, slots_of(regions)
            )
            if machine.trace is not None:
                machine.trace.record(machine, access, "global", lanes.address, mask)
            machine.contend(access.numbers["global"], lanes.address, mask, wanted)
        for region, part in regions:
            if not region.writable:
                read_only(machine, access, region)
            exact = mask if part is None else part if machine.mask is None else part & machine.mask
            machine.global_races.log(access, region, lanes.address, 0, exact, data)
            found = self.perform(machine, region.view(self.dtype), lanes.address - region.base, exact, data, wanted)
            if found is not None:
                result = found if result is None or exact is None else np.where(exact, found, result)
        return result

    def perform(
        self, machine: Machine, view: Array, offsets: Array, mask: Array | None, data: list[Value], wanted: bool
    ) -> Array | None:
        """Flatten the active lanes and update a flat view of the memory."""
        chunk = machine.chunk
        if mask is None and chunk.root is not None:
            mask = chunk.root
        shift = self.dtype.itemsize.bit_length() - 1
        index = broadcast(offsets >> shift, chunk.shape)
        operands = [broadcast(as_array(value, self.dtype, chunk), chunk.shape) for value in data]
        if mask is None:
            found = update(
                view, index.reshape(-1), [operand.reshape(-1) for operand in operands], self.name, self.combine, wanted
            )
            self.look(machine, np.ones(chunk.shape, bool), found, operands[0].reshape(-1))
            return None if found is None else found.reshape(chunk.shape)
        chosen = broadcast(mask, chunk.shape)
        found = update(view, index[chosen], [operand[chosen] for operand in operands], self.name, self.combine, wanted)
        if found is None and not self.swaps:
            return None
        self.look(machine, chosen, found, operands[0][chosen])
        if found is None:
            return None
        result = np.zeros(chunk.shape, dtype=self.dtype)
        result[chosen] = found
        return result

    def look(self, machine: Machine, lanes: Array, found: Array | None, operand: Array) -> None:
        """Note what lanes (blocks, threads) found by a swap; let those sleep that changed nothing: they wait for a
        lock, and others go first."""
        if not self.swaps:
            return
        if found is not None:
            idle = found != operand if self.name == "cas" else found == operand
            machine.spins |= bool(idle.all())
        if machine.locks is not None:
            won = np.zeros(operand.shape, bool) if found is None else ~idle
            machine.locks.swapped(lanes, won, self.access.polls)


def raise_local(machine: Machine, access: MemoryOp) -> None:
    """Stop at an atomic operation on local memory, which hardware does not have."""
    file = machine.code.files.get(access.location.file, "")
    raise KernelTrap(f"an atomic operation on local memory at {file}:{access.location.line}.")


@instruction("atom")
def build_atom(builder: Builder, ins: Instruction) -> Run:
    """Build atom."""
    into = ins.operands[0]
    if isinstance(into, Symbol) and into.name == "_":
        return Atomic(builder, ins, builder.new(BITS[ins.modifiers[-1]], Affine(0)))
    return Atomic(builder, ins, builder.target(into))


def build_reduce_async(builder: Builder, ins: Instruction) -> Run:
    """Build red.async: a reduction in the memory of a block of the cluster, whose barrier learns of its bytes."""
    words = tuple(w for w in ins.modifiers if w != "async" and not w.startswith("mbarrier"))
    update = Atomic(builder, ins._replace(modifiers=words, operands=ins.operands[:2]), None)
    address, offset = builder.address(ins.operands[2])

    def run(machine: Machine) -> None:
        update(machine)
        arrive_bytes(machine, address, offset, update.access.size)

    return run


@instruction("red")
def build_red(builder: Builder, ins: Instruction) -> Run:
    """Build red: an atomic operation that returns nothing."""
    if "async" in ins.modifiers:
        return build_reduce_async(builder, ins)
    return Atomic(builder, ins, None)
