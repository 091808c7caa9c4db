"""Where the buffers of a problem lie in the memory of a device.

Addresses move the time of a short kernel. On an H200 a transpose of 1024 x 1024 floats, timed repeatedly on the same
buffers, has the same median to 32 ns, one tick of the clock, also after its code is loaded at another address. On other
buffers of the same process the median differs by up to 4%; streams differ in the same way
(benchmarks/results/verdicts_h200.md). A small problem is therefore allocated several times, and all places are sampled
in turn, each on a stream of its own. A large problem touches so much of the memory that two places are enough; the
places take turns with two sets of inputs.

Around every array lie guard zones of a known pattern, up to the end of its last page: a kernel that writes beyond an
array changes them. What lies farther away is looked at by digests: other places, and what arrays are set back and
copied from. What kernels reach through surfaces is copied to a CUDA array, one for all places, and back. An array that
kernels only read goes on with a copy of its beginning, so that the same memory, read from a little further on, is
another array of the same values: inputs that differ from launch to launch and take no more of the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cudabench.devices.protocol import Device, Work
from cudabench.errors import OutOfMemory
from cudabench.operations.shared import pieces
from cudabench.records.launch import LARGE, POISON
from cudabench.records.planned import Buffer, Operation, Problem
from cudabench.records.results import Hazard
from cudabench.system.children import on_threads

MOST = 8  # places of a problem
TOGETHER_BYTES = 128 << 20  # all places of a problem, unless two are larger
LARGEST_PAIR_BYTES = 4 << 30  # of a problem with two places: the host holds inputs and references of both

TOUCHED = 1 << 26  # bytes that one thread touches

GUARD = 0xA5  # the byte of guard zones
SMALL_GUARD_BYTES, LARGE_GUARD_BYTES = 64 << 10, 1 << 20  # before and behind an array each
LARGE_ARRAY_BYTES = 16 << 20  # and more have large zones: a write one row off then still hits one


# By which the other inputs begin later; keeps every alignment that kernels ask for, and that of linear textures
# (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT).
ROTATION_BYTES = 512


@dataclass(frozen=True)
class BufferSet:
    """All buffers of a problem at one place: their addresses, by name, and sizes, with what they go on with.

    `copy_bytes` is what the copy to compare with reads, and writes again: half of the bytes that the operation moves.
    """

    device: Device
    buffers: Sequence[Buffer]
    addresses: Mapping[str, int]
    sizes: Mapping[str, int]
    copy_bytes: int

    @property
    def unwritten(self) -> list[str]:
        """The arrays that a kernel must leave as they are: inputs, and those that it is not given, which others are
        restored from, or the copy reads and writes. They stay as they are, once the copy has run."""
        withheld = [name for name in self.addresses if name.endswith(_BEFORE) or name in _ENDS.values()]
        return [*(buffer.name for buffer in self.buffers if buffer.role == "in"), *withheld]

    @property
    def written(self) -> list[str]:
        """The arrays that a kernel may write."""
        return [buffer.name for buffer in self.buffers if buffer.role != "in"]

    def fill(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Set the inputs and the guard zones; `reset` does the rest."""
        for pointer, nbytes, _ in self._zones():
            self.device.fill(pointer, nbytes, GUARD)()
        for buffer in self.buffers:
            if buffer.role == "in":
                self.device.upload(self.addresses[buffer.name], inputs[buffer.name])
                self.device.upload(self.addresses[buffer.name] + buffer.nbytes, _beginning(inputs[buffer.name]))
            if buffer.role == "inout":
                for name in (buffer.name, _before(buffer.name)):
                    self.device.upload(self.addresses[name], inputs[buffer.name])

    def rotated(self, names: Iterable[str]) -> dict[str, int]:
        """Return the addresses with some arrays that are only read beginning later, by `ROTATION_BYTES`."""
        return {**self.addresses, **{name: self.addresses[name] + ROTATION_BYTES for name in names}}

    def reset(self, poison: int = POISON) -> list[Work]:
        """Return what sets back all that a kernel writes: what it also reads to its inputs, the rest to a byte; scratch
        memory to all ones where that is NaN in the outputs, else to the largest numbers."""
        works = []
        for buffer in self.buffers:
            address = self.addresses[buffer.name]
            if buffer.role == "inout":
                works.append(self.device.copy(self.addresses[_before(buffer.name)], address, buffer.nbytes))
            elif buffer.role != "in":
                byte = LARGE if buffer.role == "scratch" and poison != POISON else poison
                works.append(self.device.fill(address, buffer.nbytes, byte))
        return works

    def digests(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return digests of some arrays with what they go on with, after all that is queued."""
        return tuple(self.device.digest(self.addresses[name], self.sizes[name]) for name in names)

    def release(self) -> None:
        """Free the memory, which holds no output any more: who gets it next, or reads it still, finds none."""
        for work in self.reset():
            work()
        guards = {buffer.name: guard_bytes(buffer.nbytes) for buffer in self.buffers}
        for name, address in self.addresses.items():
            self.device.release(address - guards.get(name, 0))

    def stray(self) -> Hazard | None:
        """Return the first write outside an array, or None: the byte, and how many of the zone changed."""
        for pointer, nbytes, buffer in self._zones():
            zone = np.empty(nbytes, np.uint8)
            self.device.download(pointer, zone)
            changed = np.flatnonzero(zone != GUARD)
            if changed.size:
                start = self.addresses[buffer.name]
                offset = pointer - start + int(changed[-1 if pointer < start else 0])  # which says most
                beyond, count = offset - buffer.nbytes, int(changed.size)
                place = f"{-offset} bytes before its start" if beyond < 0 else f"{beyond} bytes behind its end"
                message = f"the kernel wrote outside '{buffer.name}', first {place}, {count} bytes in all"
                return Hazard("out-of-bounds", 0, "", (0, 0, 0), (0, 0, 0), count, message)
        return None

    def _zones(self) -> list[tuple[int, int, Buffer]]:
        """Return address, size and array of every guard zone."""
        found = []
        for buffer in self.buffers:
            nbytes, own = guard_bytes(buffer.nbytes), buffer.nbytes + _extra(buffer)
            start = self.addresses[buffer.name] - nbytes
            end = start + nbytes + own
            rest = _whole_pages(self.device, own + 2 * nbytes) - nbytes - own
            found += [(start, nbytes, buffer), (end, rest, buffer)]
        return found

    def copy(self) -> Work | None:
        """Return a copy that moves the operation's bytes: half are read, half written. None where it has no room."""
        source, target = (self._room(role) for role in _ENDS)
        return None if source is None or target is None else self.device.copy(source, target, self.copy_bytes)

    def _room(self, role: str) -> int | None:
        found = next((b.name for b in self.buffers if b.role == role and b.nbytes >= self.copy_bytes > 0), _ENDS[role])
        return self.addresses.get(found)

    def download(self, buffers: Iterable[Buffer]) -> dict[str, np.ndarray]:
        """Return the content of some buffers."""
        got = {buffer.name: _touched(np.empty(buffer.shape, buffer.dtype)) for buffer in buffers}
        for name, array in got.items():
            self.device.download(self.addresses[name], array)
        return got


def _touched(array: np.ndarray) -> np.ndarray:
    """Return a new array whose memory is there: a driver copies on one thread, which takes four times as long where it
    is the first to touch the memory."""
    flat = array.reshape(-1).view(np.uint8)
    on_threads(lambda part: flat[part].fill(0), [*pieces(slice(0, flat.size), TOUCHED)])
    return array


# What a copy reads and writes where no buffer of the role is long enough. The output is a good target: the kernel must
# then write all of it again before it is verified.
_ENDS = {"in": "copy source", "out": "copy target"}


def _extra(buffer: Buffer) -> int:
    """Return the bytes that an array goes on with."""
    return ROTATION_BYTES if buffer.role == "in" else 0


def _beginning(array: np.ndarray) -> np.ndarray:
    """Return what an array goes on with: its first bytes, repeated where it is shorter."""
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.resize(whole[:ROTATION_BYTES], ROTATION_BYTES)


def rotated_input(array: np.ndarray) -> np.ndarray:
    """Return what a kernel reads of an input that begins later by `ROTATION_BYTES`."""
    whole = np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8), _beginning(array)])
    return whole[ROTATION_BYTES:][: array.nbytes].view(array.dtype).reshape(array.shape)


_BEFORE = " before"


def _before(name: str) -> str:
    """Return the name of the copy that a buffer is restored from."""
    return name + _BEFORE


def _whole_pages(device: Device, nbytes: int) -> int:
    """Return the bytes of the pages that so many bytes take."""
    return -(-nbytes // device.page_bytes) * device.page_bytes


def lay_out(device: Device, operation: Operation, problem: Problem) -> tuple[BufferSet, ...]:
    """Allocate a problem's buffers at one place or several.

    Raises OutOfMemory, before anything runs, where they do not fit. Only the room for a copy may be missing.
    """
    buffers = operation.buffers(problem)
    sizes = {b.name: b.nbytes + _extra(b) for b in buffers}
    sizes |= {_before(b.name): b.nbytes for b in buffers if b.role == "inout"}
    guards = {b.name: guard_bytes(b.nbytes) for b in buffers}
    # What shares a page shares a place, so that every array has pages of its own.
    whole = {name: _whole_pages(device, nbytes + 2 * guards.get(name, 0)) for name, nbytes in sizes.items()}
    needed, free = sum(whole.values()), device.free_bytes()
    if needed > free:
        raise OutOfMemory(
            f"{operation.name} of this size needs {needed / 1e9:.2f} GB, {device.info.name} has {free / 1e9:.2f} GB "
            f"free: use {operation.smaller}."
        )
    half = operation.bytes(problem) // 2
    for role, name in _ENDS.items():
        pages = _whole_pages(device, half)
        if half and needed + pages <= free and not any(b.role == role and b.nbytes >= half for b in buffers):
            whole[name] = pages
            needed += pages
    count = place_count(
        sum(sizes.values()) + 2 * sum(guards.values()) + half * len(_ENDS.values() & whole.keys()), free
    )
    count = min(count, free // max(needed, 1))
    made = []
    for _ in range(count):
        addresses = {name: device.allocate(nbytes) + guards.get(name, 0) for name, nbytes in whole.items()}
        for name in _ENDS.values():
            if name in addresses:
                device.fill(addresses[name], half, POISON)()
        made.append(BufferSet(device, buffers, addresses, {**sizes, **dict.fromkeys(_ENDS.values(), half)}, half))
    return tuple(made)


def guard_bytes(nbytes: int) -> int:
    """Return the size of each of the two guard zones of an array."""
    return LARGE_GUARD_BYTES if nbytes >= LARGE_ARRAY_BYTES else SMALL_GUARD_BYTES


def place_count(nbytes: int, free: int) -> int:
    """Return the number of places for a problem that takes nbytes at each: two at least, where they fit."""
    least = 2 if 2 * nbytes <= min(free, LARGEST_PAIR_BYTES) else 1
    return max(least, min(MOST, min(TOGETHER_BYTES, free) // max(nbytes, 1)))
