"""The call stack of a chunk's lanes: return addresses, and saved registers that the callers need after the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.values import INT64, UNSIGNED, Array, Chunk, Value, different
from cudabench.symbols import readable

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.calls import CallSite
    from cudabench.simulator.program.ptx import Location

DEEPEST = 1024  # the largest depth of nested calls
LEAST_FRAME = 16  # a lower bound of a call's stack bytes: on an H100, 64 to 77 calls filled a stack of 1024 bytes


class Stack:
    """The stack of all lanes of a chunk; each lane has a depth: the number of calls from which the lane has not yet
    returned.

    `depth`: of each lane. `levels`: for each depth, the saved registers by index. `return_blocks`: for each depth, the
    basic block to which each lane returns.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.depth: Array = np.zeros(chunk.shape, np.int32)
        self.levels: list[dict[int, Value]] = []
        self.return_blocks: list[Array] = []

    def push(self, machine: Machine, site: CallSite, pointer: int) -> None:
        """Save the basic block to which the active lanes return after a call, and the registers that they need there.

        `pointer`: the index of the register with the stack pointer into local memory; a recursive call adds the size of
        the caller's frame to it. Raises KernelTrap for too many nested calls.
        """
        for depth, lanes in self._by_depth(machine):
            if depth >= DEEPEST:
                names = " or ".join(sorted({readable(callee.function.name) for callee in site.callees}))
                raise KernelTrap(
                    f"kernel {machine.code.name} has more than {DEEPEST} nested calls of {names}: the stack of a "
                    "GPU holds them only with a much larger cudaLimitStackSize; check that the recursion ends."
                )
            if depth == len(self.levels):
                self.levels.append({})
                self.return_blocks.append(np.full(self.chunk.shape, -1, np.int32))
            level = self.levels[depth]
            self.return_blocks[depth] = np.where(lanes, site.back, self.return_blocks[depth])
            for index in site.saved:
                new = machine.registers[index]
                level[index] = machine.merge(index, new, level[index], lanes) if index in level else new
        self.depth = self.depth + machine.lanes()
        if site.recursive and site.frame is not None and site.frame.frame:
            moved = machine.array(pointer, INT64) + site.frame.frame
            machine.put(pointer, moved.view(UNSIGNED[64]))
        top = machine.array(pointer, INT64)
        need = max(callee.frame for callee in site.callees)
        if need:
            self._need_local(machine, int(top.max()) + need)
        if site.recursive:
            depth = int(self.depth.max())
            machine.stack_bytes = max(machine.stack_bytes, int(top.max()) + need + LEAST_FRAME * depth)

    @staticmethod
    def _need_local(machine: Machine, nbytes: int) -> None:
        """Enlarge each lane's local memory to at least `nbytes`, because the frames of recursive calls need it."""
        chunk, local = machine.chunk, machine.local
        if local is None or local.shape[0] != chunk.blocks:
            local = np.zeros((chunk.blocks, chunk.threads, 0), np.uint8)
        if local.shape[2] < nbytes:
            more = -(-2 * nbytes // 16) * 16 - local.shape[2]
            local = np.concatenate([local, np.zeros((chunk.blocks, chunk.threads, more), np.uint8)], axis=2)
        machine.local, machine.local_bytes = local, max(machine.local_bytes, nbytes)

    def pop(self, machine: Machine, site: CallSite) -> None:
        """Restore in the active lanes the registers that they saved at a call, and reduce their depth by 1."""
        parts = list(self._by_depth(machine))
        for index in site.saved:
            value: Value = None
            for depth, lanes in parts:
                saved = self.levels[depth - 1][index]
                value = saved if value is None else machine.merge(index, saved, value, lanes)
            machine.put(index, value)
        self.depth = self.depth - machine.lanes()

    def returning_lanes(self, machine: Machine, mask: Array | None) -> list[tuple[int, Array]]:
        """Return (basic block, mask of lanes) for each basic block to which lanes in `mask` return."""
        machine.mask = mask
        returns: dict[int, Array] = {}
        for depth, lanes in self._by_depth(machine):
            blocks = self.return_blocks[depth - 1]
            for block in different(blocks[lanes]).tolist():
                part = lanes & (blocks == block)
                returns[block] = returns[block] | part if block in returns else part
        return list(returns.items())

    @staticmethod
    def bad_call(machine: Machine, location: Location, lanes: Array, addresses: Array) -> None:
        """Raise KernelTrap, because lanes call an address at which there is no function of the call's prototype."""
        place = int(np.argmax(lanes))
        chunk = machine.chunk
        address = int(addresses.reshape(-1)[place])
        file = machine.code.files.get(location.file, "")
        wrong = f"address {address:#x}, which is not a function of the call's type"
        what = wrong if address else "through a null pointer"
        raise KernelTrap(
            f"kernel {machine.code.name} calls {what}, at {file}:{location.line} in block "
            f"{chunk.block_index(place // chunk.threads)}, thread {chunk.thread_index(place % chunk.threads)}."
        )

    def _by_depth(self, machine: Machine) -> list[tuple[int, Array]]:
        """Return (depth, mask of the active lanes at this depth) for each depth."""
        lanes = machine.lanes()
        return [(depth, lanes & (self.depth == depth)) for depth in different(self.depth[lanes]).tolist()]
