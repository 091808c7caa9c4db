"""Masks of a small chunk, each kept once: launches in a row send the same lanes the same ways.

What is asked of a mask, how two join and how a guard parts one is then computed once and looked up by identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

MOST_LANES = 8192  # of a chunk, below which looking a mask's bytes up costs less than counting its lanes
MOST_BYTES = 1 << 21  # that are kept from one block of code to the next


class Masks:
    """The masks of one chunk that came up.

    bytes: about how many are kept. root: the mask of all lanes, as an array or None. names: the bytes of the masks that
    are kept, by identity. counts: likewise what `counters.active` found. linear: arrays of affine values. reached,
    counted, settled: what accesses with such masks found.
    """

    def __init__(self, root: Array | None) -> None:
        self.root = root
        self.forget()

    def forget(self) -> None:
        """Drop all masks."""
        self.names: dict[int, bytes] = {}
        self.counts: dict[int, tuple[int, int]] = {}
        self.linear: dict[tuple[Any, ...], Array] = {}
        self.reached: dict[tuple[Any, ...], Any] = {}
        self.counted: dict[tuple[Any, ...], Any] = {}
        self.settled: dict[tuple[Any, ...], Any] = {}
        self._same: dict[tuple[tuple[int, ...], bytes], Array] = {}
        self._parts: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._unions: dict[tuple[int, int], Array | None] = {}
        self.bytes = 0
        if self.root is not None:
            self.names[id(self.root)] = self.root.tobytes()

    def one(self, mask: Array | None) -> Array | None:
        """Return the mask of the same content that is kept, of which nobody may write; the root is only itself."""
        if mask is None or id(mask) in self.names:
            return mask
        name = mask.tobytes()
        kept = self._same.get((mask.shape, name))
        if kept is None:
            kept = self._same[mask.shape, name] = np.frombuffer(name, np.bool_).reshape(mask.shape)
            self.names[id(kept)] = name
            self.bytes += len(name) + 512
        return kept

    def keeps(self, mask: Array | None) -> bool:
        """Return whether a mask can be told by its identity."""
        return mask is None or id(mask) in self.names

    def note(self, nbytes: int) -> None:
        """Count what is kept in `linear`, `reached` or `counted`."""
        self.bytes += nbytes + 256

    def parts(self, guard: Array, inverted: bool, mask: Array | None) -> tuple[Any, Any]:
        """Return `parted` of the lanes for which a guard holds, or does not where it is inverted, and a mask."""
        mask = self.one(mask)
        key = guard.shape, guard.tobytes(), inverted, id(mask)
        found = self._parts.get(key)
        if found is None:
            yes, no = parted(~guard if inverted else guard, mask)
            found = self._parts[key] = yes if yes is False else self.one(yes), no if no is False else self.one(no)
            self.bytes += len(key[1]) + 256
        return found

    def union(self, x: Array, y: Array) -> Array | None:
        """Return `joined` of two masks."""
        x, y = self.one(x), self.one(y)
        key = id(x), id(y)
        if key not in self._unions:
            self._unions[key] = self.one(joined(x, y, self.root))
            self.bytes += 128
        return self._unions[key]


def parted(yes: Array, mask: Array | None) -> tuple[Any, Any]:
    """Return (lanes of a mask that are in another, lanes that are not): masks, or False for no lane."""
    if mask is None:
        lanes = np.count_nonzero(yes)
        if lanes == yes.size:
            return None, False
        return (yes, ~yes) if lanes else (False, None)
    no = mask & ~yes
    yes = mask & yes
    if not np.count_nonzero(no):
        return mask, False
    return (yes, no) if np.count_nonzero(yes) else (False, mask)


def joined(x: Array, y: Array, root: Array | None) -> Array | None:
    """Return the lanes in either mask; all lanes are always the root itself."""
    merged = x | y
    if root is None:
        return None if np.count_nonzero(merged) == merged.size else merged
    return root if (merged | ~root).all() else merged
