"""A record of single accesses to global and shared memory, from which pictures of small launches are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.report import Index
from cudabench.simulator.values import Array, active_warps

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MOST_REQUESTS = 4_000
FEW = 4  # if only one warp is watched, this many executions of each instruction are recorded


class Request(NamedTuple):
    """One request of a warp to an argument in global memory, or to shared memory.

    `width`: bytes per lane; `addresses`: for each lane the byte offset in the array, or in shared memory, None for
    inactive lanes; `block`: the index of the block; `warp`: the number of the warp in the block; `threads`: threadIdx
    of each lane; `argument`: the number of the array among the launch's arguments, -1 for shared memory; `instruction`:
    the line of the instruction in the PTX; `order`: a number that is equal for all requests of one execution of an
    instruction, and higher for later executions.
    """

    file: str
    line: int
    op: str
    width: int
    addresses: tuple[int | None, ...]
    block: Index
    warp: int
    threads: tuple[Index, ...]
    argument: int
    instruction: int
    order: int


class Trace:
    """The requests of a launch, of all its warps or of one warp, in the order of execution.

    `accesses`: the requests to arguments in global memory; if one warp is watched, only the first FEW executions of
    each instruction are recorded. `shared`: the requests to shared memory. Of each there are at most MOST_REQUESTS.
    `complete`: whether no limit was reached. `variables`: (name, offset, bytes) of each shared variable, after the
    launch.
    """

    def __init__(
        self, addresses: dict[int, int], arguments: Sequence[Any], watch: tuple[int, int] | None = None
    ) -> None:
        """watch: (block, warp): the number of the watched warp's block in the grid, counted with x fastest, and the
        number of the warp in this block; None for all warps."""
        self.watch = watch
        # The number, the first address and the end of each array argument.
        self.arrays = [
            (number, addresses[id(value)], addresses[id(value)] + value.nbytes)
            for number, value in enumerate(arguments)
            if isinstance(value, np.ndarray)
        ]
        self.accesses: list[Request] = []
        self.shared: list[Request] = []
        self.variables: tuple[tuple[str, int, int], ...] = ()
        self.complete = True
        self.times: Counter[int] = Counter()
        self.order = 0

    def record(self, machine: Machine, access: MemoryOp, space: str, address: Array, mask: Array | None) -> None:
        """Record one execution of an instruction.

        address: byte addresses; mask: the active lanes, None for all; both broadcast to (blocks, threads).
        """
        chunk, location = machine.chunk, access.location
        self.order += 1
        on, places = chunk.real(mask) & chunk.lanes(machine.mask), chunk.lanes(address)
        if self.watch is None:
            warps = np.argwhere(active_warps(on).reshape(chunk.blocks, chunk.warps)).tolist()
        else:
            watched, warp = self.watch
            blocks = np.flatnonzero(chunk.block_numbers() == watched).tolist()
            warps = [[block, warp] for block in blocks if on[block, 32 * warp : 32 * warp + 32].any()]
        memories, requests = self.arrays, self.accesses
        if space == "shared":
            memories, requests = [(-1, 0, machine.shared_size)], self.shared
        for block, warp in warps:
            self.times[location.ptx_line] += space == "global"
            if self.watch is not None and self.times[location.ptx_line] > FEW:
                self.complete = False
                return
            lanes = slice(32 * warp, 32 * warp + 32)
            own, index = places[block, lanes], chunk.block_index(block)
            threads = tuple(map(chunk.thread_index, range(lanes.start, lanes.stop)))
            for argument, start, end in memories:
                inside = on[block, lanes] & (own >= start) & (own < end)
                if not inside.any():
                    continue
                if len(requests) >= MOST_REQUESTS:
                    self.complete = False
                    return
                offsets: Array = np.where(inside, own - start, None)
                requests.append(
                    Request(
                        machine.code.files.get(location.file, ""), location.line, access.kind, access.size,
                        tuple(offsets.tolist()), index, warp, threads, argument, location.ptx_line, self.order,
                    )
                )  # fmt: skip
