"""The record of single accesses, for drawing small problems thread by thread and bank by bank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.report import Index
from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MAX_EVENTS = 100_000


class GlobalEvent(NamedTuple):
    """One lane's access to global memory.

    width: bytes; argument: the number of the array among the launch's arguments (-1 for a module variable); offset:
    the byte offset from the array's start.
    """

    file: str
    line: int
    op: str
    width: int
    block: Index
    thread: Index
    argument: int
    offset: int


class SharedRequest(NamedTuple):
    """One request of the first warp of block (0, 0, 0) to shared memory: a byte address per lane, None for inactive
    lanes."""

    file: str
    line: int
    op: str
    width: int
    addresses: tuple[int | None, ...]


class Trace(NamedTuple):
    """Global events in program order, then by block and thread (at most MAX_EVENTS), and the first warp's shared
    requests."""

    accesses: tuple[GlobalEvent, ...]
    shared: tuple[SharedRequest, ...]
    complete: bool


class Recorder:
    """Collects the trace of a launch."""

    def __init__(self, space: AddressSpace, first: int, addresses: dict[int, int], arguments: Sequence[Any]) -> None:
        self.space = space
        self.arguments: list[tuple[int, int, int]] = []
        for place, value in enumerate(arguments):
            if isinstance(value, np.ndarray):
                start = addresses[id(value)]
                self.arguments.append((start, start + value.nbytes, place))
        self.events: list[GlobalEvent] = []
        self.requests: list[SharedRequest] = []
        self.complete = True

    def record(self, machine: Machine, access: MemoryOp, space: str, address: Array, mask: Array | None) -> None:
        """Record one instruction's accesses: byte addresses and lanes that broadcast over (blocks, threads)."""
        chunk = machine.chunk
        lanes = machine.lanes()
        if mask is not None:
            lanes = lanes & broadcast(mask, chunk.shape)
        if chunk.root is not None:
            lanes = lanes & chunk.root
        file, line = machine.code.files.get(access.location.file, ""), access.location.line
        if space == "shared":
            if chunk.origin != (0, 0, 0) or not lanes[0, :32].any():
                return
            row = broadcast(address, chunk.shape)[0, :32].tolist()
            places = tuple(value if on else None for value, on in zip(row, lanes[0, :32].tolist(), strict=True))
            self.requests.append(SharedRequest(file, line, access.kind, access.size, places))
            return
        full = broadcast(address, chunk.shape)
        for block, thread in np.argwhere(lanes).tolist():
            if len(self.events) >= MAX_EVENTS:
                self.complete = False
                return
            argument, offset = self.owner(int(full[block, thread]))
            self.events.append(
                GlobalEvent(
                    file,
                    line,
                    access.kind,
                    access.size,
                    chunk.block_index(block),
                    chunk.thread_index(thread),
                    argument,
                    offset,
                )
            )

    def owner(self, address: int) -> tuple[int, int]:
        """Return (argument number, byte offset) of an address."""
        for start, end, place in self.arguments:
            if start <= address < end:
                return place, address - start
        region = self.space.nearest(address)
        return -1, address - region.base if region is not None else address

    def trace(self) -> Trace:
        """Return what was recorded."""
        return Trace(tuple(self.events), tuple(self.requests), self.complete)
