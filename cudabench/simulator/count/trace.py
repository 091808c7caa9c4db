"""Records of single accesses to global and shared memory, from which pictures of small launches are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.report import Index
from cudabench.simulator.values import Array

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.values import Chunk


MAX_EVENTS = 100_000
MAX_REQUESTS = 4_000
FEW = 4  # if only one warp is watched, this many executions of each instruction are recorded


class GlobalEvent(NamedTuple):
    """One lane's access to global memory.

    `width`: how many bytes the lane accesses; `argument`: the number of the array among the launch's arguments (-1 for
    a module variable); `offset`: the byte offset from the array's start; `instruction`: the line of the instruction in
    the PTX; `order`: a number that is equal for all lanes of one execution of an instruction, and higher for later
    executions.
    """

    file: str
    line: int
    op: str
    width: int
    block: Index
    thread: Index
    argument: int
    offset: int
    instruction: int
    order: int = 0


class SharedRequest(NamedTuple):
    """One request of a warp to shared memory.

    `width`: bytes per lane; `addresses`: the byte address of each lane, None for inactive lanes; `block`: the index of
    the block; `warp`: the number of the warp in the block; `threads`: threadIdx of each lane; `instruction`, `order`:
    as in `GlobalEvent`.
    """

    file: str
    line: int
    op: str
    width: int
    addresses: tuple[int | None, ...]
    block: Index
    warp: int
    threads: tuple[Index, ...]
    instruction: int
    order: int = 0


class Trace(NamedTuple):
    """The recorded accesses, in the order of execution.

    `accesses`: one record per lane's access to global memory, at most MAX_EVENTS; if one warp is watched, only the
    first FEW executions of each instruction are recorded. `shared`: one record per request to shared memory, at most
    MAX_REQUESTS. `variables`: (name, offset, bytes) of each shared variable. `complete`: whether no limit was reached.
    """

    accesses: tuple[GlobalEvent, ...]
    shared: tuple[SharedRequest, ...]
    variables: tuple[tuple[str, int, int], ...]
    complete: bool


class Recorder:
    """Collects the trace of a launch, of all its warps or of one warp.

    watch: (block, warp): the number of the watched warp's block in the grid, counted with x fastest, and the number of
    the warp in this block; None for all warps.
    """

    def __init__(
        self,
        space: AddressSpace,
        addresses: dict[int, int],
        arguments: Sequence[Any],
        watch: tuple[int, int] | None = None,
    ) -> None:
        self.space, self.watch = space, watch
        places = ((place, value) for place, value in enumerate(arguments) if isinstance(value, np.ndarray))
        self.arguments = [(addresses[id(value)], value.nbytes, place) for place, value in places]
        self.events: list[GlobalEvent] = []
        self.requests: list[SharedRequest] = []
        self.complete = True
        self.times: Counter[int] = Counter()
        self.order = 0

    def record(self, machine: Machine, access: MemoryOp, space: str, address: Array, mask: Array | None) -> None:
        """Record one execution of an instruction.

        address: byte addresses; mask: the active lanes, None for all; both broadcast to (blocks, threads).
        """
        chunk = machine.chunk
        self.order += 1
        on = chunk.real(mask) & chunk.lanes(machine.mask)
        places: Array = np.where(on, address, None)
        for block, warp in self.warps(chunk):
            lanes = slice(32 * warp, 32 * warp + 32)
            if on[block, lanes].any():
                self.warp(machine, access, space, places[block, lanes].tolist(), block, warp)

    def warps(self, chunk: Chunk) -> list[tuple[int, int]]:
        """Return the watched warps of the chunk, as a list of (block in the chunk, warp in the block)."""
        if self.watch is None:
            return [(block, warp) for block in range(chunk.blocks) for warp in range(chunk.warps)]
        block, warp = self.watch
        return [(number, warp) for number in np.flatnonzero(chunk.block_numbers() == block).tolist()]

    def warp(
        self, machine: Machine, access: MemoryOp, space: str, places: Sequence[int | None], block: int, warp: int
    ) -> None:
        """Record the access of one warp; places: the byte address of each lane, None for inactive lanes."""
        chunk, location = machine.chunk, access.location
        source_fields = machine.code.files.get(location.file, ""), location.line, access.kind, access.size
        order_fields = location.ptx_line, self.order
        index = chunk.block_index(block)
        threads = tuple(chunk.thread_index(32 * warp + lane) for lane in range(32))
        if space == "shared":
            if len(self.requests) >= MAX_REQUESTS:
                self.complete = False
                return
            self.requests.append(SharedRequest(*source_fields, tuple(places), index, warp, threads, *order_fields))
            return
        self.times[location.ptx_line] += 1
        if self.watch is not None and self.times[location.ptx_line] > FEW:
            self.complete = False
            return
        for thread, place in zip(threads, places, strict=True):
            if place is None:
                continue
            if len(self.events) >= MAX_EVENTS:
                self.complete = False
                return
            argument, offset = self.owner(place)
            self.events.append(GlobalEvent(*source_fields, index, thread, argument, offset, *order_fields))

    def owner(self, address: int) -> tuple[int, int]:
        """Return the number of the array argument that contains an address (-1 if none), and the byte offset in it."""
        for start, nbytes, place in self.arguments:
            if start <= address < start + nbytes:
                return place, address - start
        region = self.space.nearest(address)
        return -1, address - region.base if region is not None else address

    def trace(self, variables: tuple[tuple[str, int, int], ...]) -> Trace:
        """Return the recorded trace; variables: as in `Trace`."""
        return Trace(tuple(self.events), tuple(self.requests), variables, self.complete)
