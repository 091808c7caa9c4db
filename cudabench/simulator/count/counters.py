"""Counts of memory requests: sectors for global and local memory, wavefronts for shared and constant memory.

A request is one warp-level instruction with an active lane. Its sectors are the distinct 32-byte pieces of memory
that its active lanes touch; the ideal is what the same distinct bytes would need if they were packed. Constant memory
serves one address at a time, to all lanes that want it (CUDA C++ Programming Guide, "Constant Memory").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.count import banks
from cudabench.simulator.report import Executed
from cudabench.simulator.values import INT64, Affine, Array, Chunk, Key, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.program.code import Block

SECTOR_SHIFT = 5
SECTOR = 1 << SECTOR_SHIFT
MOST_PATTERN = 1 << 14  # bytes of addresses and lanes that are worth looking up
_FULL_WARP = np.uint64(0x0101010101010101)


def warp_bits(mask: Array) -> tuple[Array, Array]:
    """Return for a bool array (..., 32 * warps) which warps have any lane and which have all: two flat bool arrays."""
    words = np.ascontiguousarray(mask).view(np.uint64).reshape(-1, 4)
    any_ = (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0
    all_ = (words[:, 0] & words[:, 1] & words[:, 2] & words[:, 3]) == _FULL_WARP
    return any_, all_


def active_warps(mask: Array | None, chunk: Chunk) -> int:
    """Return the number of warps of the chunk with an active lane; a mask broadcasts over (blocks, threads)."""
    if mask is None:
        return chunk.blocks * chunk.warps
    if mask.shape[1] == 1:
        return int(np.count_nonzero(mask)) * chunk.warps * (chunk.blocks if mask.shape[0] == 1 else 1)
    count = int(np.count_nonzero(warp_bits(mask)[0]))
    return count * chunk.blocks if mask.shape[0] == 1 else count


def active_lanes(mask: Array | None, chunk: Chunk) -> int:
    """Return the number of active lanes of the chunk; a mask broadcasts over (blocks, threads)."""
    if mask is None:
        return chunk.blocks * chunk.threads
    return int(np.count_nonzero(mask)) * int(chunk.blocks * chunk.threads // mask.size)


def executed_lines(blocks: Sequence[Block], executed: Sequence[Executed]) -> dict[int, Executed]:
    """Return how often each PTX line ran, from how often each block did; the copies of an inlined function add up."""
    lines: dict[int, Executed] = {}
    for block, times in zip(blocks, executed, strict=True):
        ops = block.ops if block.terminator is None else [*block.ops, block.terminator]
        for line in {op.line.ptx_line for op in ops}:
            lines[line] = lines.get(line, Executed()).plus(times.warps, times.lanes)
        if block.terminator is not None:
            line = block.terminator.line.ptx_line
            lines[line] = lines[line].plus(taken=times.taken, parted=times.parted)
    return lines


def distinct(rows: Array) -> Array:
    """Return the number of distinct values in each row of a (rows, n) array."""
    left, right = rows[:, :-1], rows[:, 1:]
    if not (right >= left).all():
        rows = np.sort(rows, axis=1)
        left, right = rows[:, :-1], rows[:, 1:]
    return np.count_nonzero(right != left, axis=1) + 1


def _rows(addresses: Array, mask: Array | None) -> Array:
    """Return the addresses of the warps with an active lane, (rows, 32), inactive lanes repeating an active one."""
    lanes = addresses.reshape(-1, 32)
    if mask is None:
        return lanes
    mask = np.broadcast_to(mask, addresses.shape)
    any_, all_ = warp_bits(mask)
    if all_.all():
        return lanes
    partial = any_ & ~all_
    parts = []
    if all_.any():
        parts.append(lanes[all_])
    if partial.any():
        some = mask.reshape(-1, 32)[partial]
        values = lanes[partial]
        first = values[np.arange(len(values)), some.argmax(axis=1)]
        parts.append(np.where(some, values, first[:, None]))
    if not parts:
        return np.empty((0, 32), dtype=addresses.dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def sectors(addresses: Array, size: int, mask: Array | None) -> tuple[int, int]:
    """Return (sectors, ideal sectors), summed over all requests.

    addresses: bytes, (..., 32 * warps) int64, aligned to size; size: bytes per lane; mask: same shape, or None for
    all lanes.
    """
    rows = _rows(addresses, mask)
    if not len(rows):
        return 0, 0
    # Aligned accesses of one size are equal or disjoint, so distinct addresses give the distinct bytes.
    different = distinct(rows)
    ideal = int((-(-different * size // SECTOR)).sum())
    if size >= SECTOR:
        return int(different.sum()) * (size // SECTOR), ideal
    return int(distinct(rows >> SECTOR_SHIFT).sum()), ideal


def different(addresses: Array, mask: Array | None) -> int:
    """Return the number of distinct addresses, summed over all requests; arguments as for `sectors`."""
    rows = _rows(addresses, mask)
    return int(distinct(rows).sum()) if len(rows) else 0


class Counters:
    """Requests and pieces per memory instruction; patterns that recur are counted once."""

    def __init__(
        self, instructions: int, patterns: dict[Key, tuple[int, int]], merged: Mapping[int, tuple[int, int]]
    ) -> None:
        """`merged`: of the memory instructions that the machine code has otherwise (`launch.run`)."""
        self.issued = merged
        self.merged = [0] * instructions
        self.requests = [0] * instructions
        self.pieces = [0] * instructions
        self.ideal = [0] * instructions
        self.patterns = patterns
        self.remembered = 0  # bytes of the patterns that are new

    def add(self, number: int, requests: int, pieces: int, ideal: int) -> None:
        """Add to the counts of a memory instruction."""
        self.requests[number] += requests
        self.pieces[number] += pieces
        self.ideal[number] += ideal

    def linear(self, number: int, address: Affine, offset: int, size: int, chunk: Chunk) -> None:
        """Count global accesses of all lanes at address + offset."""
        key = (address.coefficients, (address.base + offset) & (SECTOR - 1), size, chunk.extent)
        found = self.patterns.get(key)
        if found is None:
            found = self.patterns[key] = self._linear(address, offset, size, chunk, None)
        self.add(number, chunk.blocks * chunk.warps, *found)

    def _linear(self, address: Affine, offset: int, size: int, chunk: Chunk, mask: Array | None) -> tuple[int, int]:
        """Count by the distinct residues modulo a sector of the blocks' part; mask: (1, threads) or None."""
        base = address.base + offset
        coefficients = address.coefficients or (0, 0, 0, 0, 0, 0)
        threads = Affine(0, (*coefficients[:3], 0, 0, 0))
        lanes = np.broadcast_to(threads.array(chunk, INT64), (1, chunk.threads))
        residues = {base & (SECTOR - 1): chunk.blocks}
        if any(coefficient & (SECTOR - 1) for coefficient in coefficients[3:]):
            part = Affine(base, (0, 0, 0, *coefficients[3:])).array(chunk, INT64) & (SECTOR - 1)
            values, counts = np.unique(part, return_counts=True)
            residues = dict(zip(values.tolist(), counts.tolist(), strict=True))
        pieces = ideal = 0
        for residue, count in residues.items():
            some, best = sectors(lanes + residue, size, mask)
            pieces += some * count
            ideal += best * count
        return pieces, ideal

    def global_(
        self, number: int, address: Affine | Array, offset: int, size: int, mask: Array | None, warps: int, chunk: Chunk
    ) -> None:
        """Count global accesses; warps: the number of requests; mask broadcasts over (blocks, threads)."""
        if number in self.issued:
            shift, size = self.issued[number]
            if not size:
                self.merged[number] += warps
                return
            offset += shift
            if not isinstance(address, Affine):
                address = address + shift
        if type(address) is Affine:
            if address.coefficients is None:
                self.add(number, warps, warps, warps)
                return
            if mask is None:
                self.linear(number, address, offset, size, chunk)
                return
            if mask.shape[0] == 1:
                self.add(
                    number,
                    warps,
                    *self._linear(address, offset, size, chunk, np.broadcast_to(mask, (1, chunk.threads))),
                )
                return
            address = address.array(chunk, INT64) + offset
        assert not isinstance(address, Affine)
        if address.shape[1] == 1:
            self.add(number, warps, warps, warps)
            return
        rows, mask, times = spread(address, mask, chunk)
        pieces, ideal = sectors(rows, size, mask)
        self.add(number, warps, pieces * times, ideal * times)

    def shared(
        self,
        number: int,
        address: Affine | Array,
        offset: int,
        size: int,
        mask: Array | None,
        warps: int,
        chunk: Chunk,
        load: bool,
    ) -> None:
        """Count shared accesses; arguments as for `global_`, and whether they are loads."""
        if number in self.issued:
            shift, size = self.issued[number]
            if not size:
                self.merged[number] += warps
                return
            offset += shift
            if not isinstance(address, Affine):
                address = address + shift
        key = None
        # A word for all lanes takes one wavefront; wider, it takes one for each group of lanes that has an active one.
        narrow = size <= banks.WORD
        if type(address) is Affine:
            if address.coefficients is None and narrow:
                self.add(number, warps, warps, warps)
                return
            blocks_part = address.coefficients[3:] if address.coefficients else ()
            if not any(blocks_part) and (mask is None or mask is chunk.root):
                # All banks turn alike with the base, so that only the coefficients matter.
                key = ("shared", address.coefficients, size, load)
                found = self.patterns.get(key)
                if found is not None:
                    self.add(number, warps, found[0] * chunk.blocks, found[1] * chunk.blocks)
                    return
            address = address.array(chunk, INT64) + offset
        assert not isinstance(address, Affine)
        if address.shape[1] == 1 and narrow:
            self.add(number, warps, warps, warps)
            return
        if (
            address.shape[0] == 1 and mask is not None and mask.shape[0] > 1 and narrow
            and self._shared(address, size, None, chunk, True)[0] == chunk.warps
        ):  # fmt: skip
            # Where all lanes together have no conflict, fewer have none.
            self.add(number, warps, warps, warps)
            return
        times = chunk.blocks // max(address.shape[0], 1 if mask is None else mask.shape[0])
        pieces, ideal = self._shared(address, size, mask, chunk, load)
        if key is not None:
            self.patterns[key] = (pieces, ideal)
        self.add(number, warps, pieces * times, ideal * times)

    def constant(self, number: int, address: Array, mask: Array | None, warps: int, chunk: Chunk) -> None:
        """Count constant accesses, a wavefront for each address; arguments as for `global_`."""
        if address.shape[1] == 1:
            self.add(number, warps, warps, warps)
            return
        rows, mask, times = spread(address, mask, chunk)
        lanes = _rows(rows, mask)
        self.add(number, warps, int(distinct(lanes).sum()) * times if len(lanes) else 0, warps)

    def _shared(self, address: Array, size: int, mask: Array | None, chunk: Chunk, load: bool) -> tuple[int, int]:
        """Return (wavefronts, ideal wavefronts) of one pattern of addresses and lanes, looked up where it is small."""
        key: Key | None = None
        weight = address.nbytes + (0 if mask is None else mask.nbytes)
        if weight <= MOST_PATTERN:
            lanes = None if mask is None else (mask.shape, mask.tobytes())
            key = ("lanes", address.shape, address.tobytes(), lanes, size, load)
            found = self.patterns.get(key)
            if found is not None:
                return found
        rows, mask, _ = spread(address, mask, chunk)
        if mask is not None:
            mask = mask.reshape(-1, 32)
        wavefronts, ideal = banks.both(rows.reshape(-1, 32), size, mask, load=load)
        result = int(wavefronts.sum()), int(ideal.sum())
        if key is not None:
            self.patterns[key] = result
            self.remembered += weight
        return result


def spread(address: Array, mask: Array | None, chunk: Chunk) -> tuple[Array, Array | None, int]:
    """Return addresses and mask broadcast to a common shape of whole warps, and how often each row stands for."""
    blocks = max(address.shape[0], 1 if mask is None else mask.shape[0])
    shape = (blocks, chunk.threads)
    if address.shape != shape:
        address = broadcast(address, shape)
    if mask is not None:
        mask = broadcast(mask, shape)
    return address, mask, chunk.blocks // blocks
