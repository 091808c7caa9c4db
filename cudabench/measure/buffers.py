"""Where the buffers of a problem lie in the memory of a device.

Addresses move the time of a short kernel. On an H200 a transpose of 1024 x 1024 floats, timed repeatedly on the same
buffers, has the same median to 32 ns, one tick of the clock, also after its code is loaded at another address. On other
buffers of the same process the median differs by up to 4%; streams differ in the same way
(benchmarks/results/verdicts_h200.md). A small problem is therefore allocated several times, and all places are sampled
in turn, each on a stream of its own. A large problem touches so much of the memory that one place is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cudabench.devices.protocol import Device, Work
from cudabench.errors import OutOfMemory
from cudabench.model import Buffer, Operation, Problem

MOST = 8  # places of a problem
TOGETHER_BYTES = 128 << 20  # all places of a problem, unless one is larger


@dataclass(frozen=True)
class BufferSet:
    """All buffers of a problem at one place: their addresses, by name.

    `copy_bytes` is what the copy to compare with reads, and writes again: half of the bytes that the operation moves.
    """

    device: Device
    buffers: Sequence[Buffer]
    addresses: Mapping[str, int]
    copy_bytes: int

    def fill(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Set the inputs, and poison what a kernel has to write."""
        for buffer in self.buffers:
            if buffer.role not in ("in", "inout"):
                self.device.poison(self.addresses[buffer.name], buffer.nbytes)
                continue
            for name in {buffer.name, _before(buffer.name)} & set(self.addresses):
                self.device.upload(self.addresses[name], inputs[buffer.name])

    def restore(self) -> Work | None:
        """Return what sets all buffers that are read and written back to their inputs; None where there are none."""
        copies = [
            self.device.copy(self.addresses[_before(b.name)], self.addresses[b.name], b.nbytes)
            for b in self.buffers
            if b.role == "inout"
        ]

        def work() -> None:
            for copy in copies:
                copy()

        return work if copies else None

    def copy(self) -> Work | None:
        """Return a copy that moves the operation's bytes: half are read, half written. None where it has no room."""
        source, target = (self._room(role) for role in _ENDS)
        return None if source is None or target is None else self.device.copy(source, target, self.copy_bytes)

    def _room(self, role: str) -> int | None:
        found = next((b.name for b in self.buffers if b.role == role and b.nbytes >= self.copy_bytes > 0), _ENDS[role])
        return self.addresses.get(found)

    def download(self, buffers: Iterable[Buffer]) -> dict[str, np.ndarray]:
        """Return the content of some buffers."""
        got = {buffer.name: np.empty(buffer.shape, buffer.dtype) for buffer in buffers}
        for name, array in got.items():
            self.device.download(self.addresses[name], array)
        return got


# What a copy reads and writes where no buffer of the role is long enough. The output is a good target: the kernel must
# then write all of it again before it is verified.
_ENDS = {"in": "copy source", "out": "copy target"}


def _before(name: str) -> str:
    """Return the name of the copy that a buffer is restored from."""
    return f"{name} before"


def lay_out(device: Device, operation: Operation, problem: Problem) -> tuple[BufferSet, ...]:
    """Allocate a problem's buffers at one place or several.

    Raises OutOfMemory, before anything runs, where they do not fit. Only the room for a copy may be missing.
    """
    buffers = operation.buffers(problem)
    sizes = {b.name: b.nbytes for b in buffers} | {_before(b.name): b.nbytes for b in buffers if b.role == "inout"}
    needed, free = sum(sizes.values()), device.free_bytes()
    if needed > free:
        raise OutOfMemory(
            f"{operation.name} of this size needs {needed / 1e9:.2f} GB, {device.info.name} has {free / 1e9:.2f} GB "
            f"free: use {operation.smaller}."
        )
    half = operation.bytes(problem) // 2
    for role, name in _ENDS.items():
        if half and needed + half <= free and not any(b.role == role and b.nbytes >= half for b in buffers):
            sizes[name] = half
            needed += half
    count = how_many(needed, free)
    made = []
    for _ in range(count):
        # What shares a page shares a place.
        addresses = {name: device.allocate(nbytes, own_page=count > 1) for name, nbytes in sizes.items()}
        for name in _ENDS.values():
            if name in addresses:
                device.poison(addresses[name], half)
        made.append(BufferSet(device, buffers, addresses, half))
    return tuple(made)


def how_many(nbytes: int, free: int) -> int:
    """Return the number of places for a problem that takes nbytes at each."""
    return max(1, min(MOST, min(TOGETHER_BYTES, free) // max(nbytes, 1)))
