"""The advice that removes a race between blocks (the "cure"), and races in which two threads or blocks exchange
elements.

The cures are found from the accesses that the log still has: those since the last barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.memory import flat
from cudabench.simulator.program.polls import plain_polls
from cudabench.simulator.values import Array, Chunk, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.check.block_shadow import Touch
    from cudabench.simulator.check.grid_races import GridRaces
    from cudabench.simulator.check.races import LogEntry, Sync

Lane = tuple[int, int]  # (block in the chunk, thread)

UPDATE = "update it by an atomic, such as atomicAdd(), atomicMax() or atomicExch()"
SWAP = (
    "both threads may swap the same two elements: let one of the two do it, such as the thread with the smaller index"
)


def cure(races: GridRaces, touch: Touch, place: int, kind: str, line: str, lines: set[int]) -> str:
    """Return what removes the race of an access with an access of another block.

    place: an index into the granules of `touch`. kind, line: the kind of the other access, and the words for its source
    line. lines: the PTX lines of both accesses.
    """
    access, pair = touch.access, (touch.access.kind, kind)
    if access.narrow:
        return (
            "an atomic of block scope orders nothing between blocks: use one of device scope, such as atomicAdd() or "
            "that of cuda::thread_scope_device"
        )
    if "atomic" not in pair and (index_cure := _index_cure(races, touch, place, pair)):
        return index_cure
    without = _ALIKE if "atomic" not in pair and _index_without_block(races, touch, place) else ""
    updated = races.machine.global_races.updated
    if "atomic" in pair and not lines.isdisjoint(updated):
        plain = line if access.kind == "atomic" else "this line"
        return f"{plain} updates the element without an atomic: use one there as well, such as atomicAdd()"
    if lines <= updated and (pair != ("store", "load") or races.stored_by_others(touch, place)):
        return f"{without or 'both blocks update one element: give each element to one thread, or'} {UPDATE}"
    if pair == ("store", "store"):
        return f"{without} use an atomic" if without else "let each block write to its own elements, or use an atomic"
    if access.kind == "load":
        return _reading_cure(races, touch, place, kind, line)
    if pair == ("atomic", "load"):
        return _FINAL
    if "atomic" in pair:
        return "write it in an earlier launch, since an atomic in both lines would not order the two"
    return _ELSEWHERE


_ALIKE = (
    "the index is the same in all blocks: if each block has its own elements, add blockIdx.x * blockDim.x to it; else"
)
_FINAL = (
    "other blocks update it at the same time: use the value that the atomic returns, or, for the final value, read it "
    "in another launch or after the sync() of a cooperative launch"
)
_ELSEWHERE = "read it in another launch, or, if the old value is needed, write to another array"


def _index_cure(races: GridRaces, touch: Touch, place: int, pair: tuple[str, str]) -> str:
    """Return the cure if the index shows the fault: two threads swap elements, two blocks exchange elements, or a loop
    has the stride of one block; else ''."""
    if pair == ("store", "load"):
        index, lane = _lane(races, touch, place)
        own = int(touch.start[index]) + touch.region.base
        if swap_partner(_log(races, touch), own, lane, races.machine.chunk) is not None:
            return SWAP
        if _blocks_exchange(touch, place):
            one = "blockIdx.x <= blockIdx.y" if races.machine.grid[1] > 1 else "the smaller blockIdx.x"
            return (
                f"the two blocks exchange elements: let one block of each pair, such as the one with {one}, read both "
                "parts before it writes both, or write to another array"
            )
    if _stride_of_one_block(races, touch, place):
        return (
            "the loop advances by blockDim.x, so each block also goes over the elements of the next blocks: advance by "
            "gridDim.x * blockDim.x"
        )
    return ""


def _reading_cure(races: GridRaces, touch: Touch, place: int, kind: str, line: str) -> str:
    """Return the cure of a read that races; kind, line: of the other access, as for `cure`."""
    polls = plain_polls(races.machine.code.blocks)
    if touch.access.location.ptx_line in polls:
        return (
            "a plain read may see an old value: read it in each iteration through a volatile pointer or "
            "cuda::atomic_ref, and put __threadfence() after the loop"
        )
    known = races.machine.hazards.confirmed.items()
    polled = next((where[2] for where, record in known if where[0] == "race" and record[4] in polls), 0)
    if polled:
        return f"the flag is read by a plain read in line {polled}, which orders nothing: mend that line first"
    if kind == "atomic":
        return _FINAL
    return races.flag_cure(touch, place, line) or _ELSEWHERE


# Accesses of single lanes.


def addresses(entry: LogEntry, chunk: Chunk) -> Array:
    """Return the address that each lane accesses, -1 for lanes that do not take part, of shape (blocks, threads)."""
    found = broadcast(flat(entry.address, entry.offset), chunk.shape)
    return found if entry.mask is None else np.where(chunk.lanes(entry.mask), found, -1)


def of_lane(entries: Sequence[LogEntry | Sync], kind: str, lane: Lane, chunk: Chunk) -> list[int]:
    """Return the addresses that a lane accessed by accesses of a kind, in the order of the log."""
    logged = [entry for entry in entries if not isinstance(entry, tuple) and entry.access.kind == kind]
    found = (int(addresses(entry, chunk)[lane]) for entry in logged)
    return list(dict.fromkeys(address for address in found if address >= 0))


def swap_partner(entries: Sequence[LogEntry | Sync], own: int, lane: Lane, chunk: Chunk) -> Lane | None:
    """Return the only other lane that has read the same two elements as a lane, or None: both may swap these elements.

    entries: the log before a store of the lane. own: the address of this store; it must be one of the two elements.
    """
    both = of_lane(entries, "load", lane, chunk)
    if len(both) != 2 or own not in both:
        return None
    readers = [np.zeros(chunk.shape, bool), np.zeros(chunk.shape, bool)]
    for entry in entries:
        if not isinstance(entry, tuple) and entry.access.kind == "load":
            read = addresses(entry, chunk)
            for mask, element in zip(readers, both, strict=True):
                mask |= read == element
    partners = [
        (block, thread) for block, thread in np.argwhere(readers[0] & readers[1]).tolist() if (block, thread) != lane
    ]
    alike = len(partners) == 1 and set(of_lane(entries, "load", partners[0], chunk)) == set(both)
    return partners[0] if alike else None


def _log(races: GridRaces, touch: Touch) -> Sequence[LogEntry | Sync]:
    return races.machine.global_races.logs.get(touch.region.base, ())


def _lane(races: GridRaces, touch: Touch, place: int) -> tuple[int, Lane]:
    """Return (index into the lanes of `touch`, lane) of the lane that accesses a granule."""
    index = place // (touch.granules.size // touch.chosen.size)
    block, thread = divmod(int(touch.chosen[index]), races.machine.chunk.threads)
    return index, (block, thread)


def _blocks_exchange(touch: Touch, place: int) -> bool:
    """Return whether one of two blocks has read all that the other writes by this store, and the other way round."""
    readers = touch.last("load")
    writer, reader = touch.owners[place], readers[place]
    if reader == 0 or touch.last("load before").any():
        return False
    mine, others = readers[touch.owners == writer], readers[touch.owners == reader]
    return bool(others.size and (mine == reader).all() and (others == writer).all())


def _stride_of_one_block(races: GridRaces, touch: Touch, place: int) -> bool:
    """Return whether a thread advances in a loop by as many elements as its block has threads, although the next block
    begins there."""
    chunk, access, log = races.machine.chunk, touch.access, _log(races, touch)
    index, (block, thread) = _lane(races, touch, place)
    if 4 * np.count_nonzero(touch.blocks == touch.blocks[index]) < chunk.real_threads:
        return False  # the last elements of a tile that is a bit larger than the block
    own = of_lane(log, access.kind, (block, thread), chunk)
    if block + 1 < chunk.blocks:
        following = of_lane(log, access.kind, (block + 1, thread), chunk)
    elif block > 0:
        own, following = of_lane(log, access.kind, (block - 1, thread), chunk), own
    else:
        return False
    own.append(int(touch.start[index]) + touch.region.base)
    step = races.machine.block[0] * access.size
    return bool(following) and own[0] + step in own[1:] and following[0] - own[0] == step


def _index_without_block(races: GridRaces, touch: Touch, place: int) -> bool:
    """Return whether all blocks access the same elements by one execution of an instruction, and not only one."""
    threads = touch.chosen % races.machine.chunk.threads
    index, (_, thread) = _lane(races, touch, place)
    alike, own = touch.start[threads == thread], touch.start[touch.blocks == touch.blocks[index]]
    return alike.size > 1 and bool((alike == alike[0]).all()) and different(own).size > 1
