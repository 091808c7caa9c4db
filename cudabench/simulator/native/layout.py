"""The structures that Python and C++ share; their fields are those of `native/engine.hpp`, in the same order."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudabench.system import native

FALLS, BRANCH, EXIT, BARRIER, TABLE = range(5)
ENDS = {"branch": BRANCH, "exit": EXIT, "barrier": BARRIER, "table": TABLE}
SPACES = ("global", "shared", "local", "constant")  # an access has one number for each of these state spaces
SPACE = {name: number for number, name in enumerate((*SPACES, "param", "generic"))}
KINDS = {"load": 0, "store": 1, "atomic": 2}
FINISHED, GOES_ON, SUSPECT, AGAIN = range(4)
ONE_LANE = -2  # the value of `issued` for `count.atomics.ONE_LANE`; other values are bytes per lane

OP = np.dtype(
    [("code", "i4"), ("guard", "i4"), ("inverted", "i4"), ("line", "i4"), ("into", "i4", 4), ("from", "i4", 8),
     ("access", "i4"), ("flags", "i4"), ("immediate", "i8")]
)  # fmt: skip
CODE_BLOCK = np.dtype(
    [(name, "i4") for name in (
        "first", "count", "weight", "rank", "end", "guard", "inverted", "target", "targets", "selector", "members",
        "warp_barrier", "reduction", "into", "predicate", "flip", "expected",
    )]
)  # fmt: skip
ACCESS = np.dtype(
    [("number", "i4", 4)]
    + [(name, "i4") for name in (
        "kind", "space", "size", "width", "count", "uniform", "served", "returns", "line", "skewed",
        "guess", "chosen",
    )]
    + [(name, "i8") for name in ("local_low", "local_high", "shared_low", "shared_high")]
    + [("shift", "i4", 4), ("issued", "i4", 4)]
)  # fmt: skip
REGION = np.dtype(
    [("base", "i8"), ("size", "i8"), ("data", "u8"), ("writable", "i4"), ("watched", "i4"), ("heap", "i4"),
     ("constant", "i4")]
)  # fmt: skip
REGISTER = np.dtype([("bits", "i4"), ("special", "i4"), ("value", "i8")])
COUNTS = np.dtype([(name, "i8") for name in ("requests", "pieces", "ideal", "merged", "reloads", "beside")])
EXECUTED = np.dtype([(name, "i8") for name in ("warps", "lanes", "taken", "diverged")])
SUMS = np.dtype([(name, "i8") for name in ("requests", "sectors", "lines", "cycles", "partial", "fresh", "missing")])
CONSTANT_REQUEST = np.dtype(
    [("place", "i8"), ("step", "i4"), ("warp", "i4"), ("mask", "u4"), ("lines", "u2", 32), ("reserved", "i4")]
)
WARP, ONE_PLACE, REST = range(3)  # values of `kind` in a PATTERN_EXAMPLE
MOST_EXECUTIONS = 64  # the PATTERN_COUNTS with this execution number is the sum of this and all later executions
PATTERN_EXAMPLE = np.dtype(
    [("number", "i4"), ("region", "i4"), ("mask", "u4"), ("kind", "i4"), ("varies", "i4"), ("reserved", "i4"),
     ("addresses", "i8", 32)]
)  # fmt: skip
PATTERN_COUNTS = np.dtype(
    [("pattern", "i4"), ("execution", "i4"), ("requests", "i8"), ("pieces", "i8"), ("ideal", "i8")]
)
WARP_ADDRESSES = np.dtype(
    [("number", "i4"), ("region", "i4"), ("warp", "i4"), ("execution", "i4"), ("mask", "u4"), ("reserved", "i4"),
     ("addresses", "i8", 32)]
)  # fmt: skip
ARRAYS = (
    "ops", "blocks", "tables", "accesses", "registers", "regions", "parameters", "order", "shared_starts", "followed",
    "sampled", "chunks",
)  # fmt: skip
COUNTED = (
    "ops_count", "blocks_count", "tables_count", "accesses_count", "registers_count", "regions_count",
    "parameters_size", "order_count", "shared_starts_count", "numbers_count", "chunks_count",
)  # fmt: skip


class Description(ctypes.Structure):
    """The structure `LaunchDescription` of engine.hpp."""

    _fields_ = (
        *((name, ctypes.c_char_p if name == "parameters" else ctypes.c_void_p) for name in ARRAYS),
        *((name, ctypes.c_int64) for name in COUNTED),
        ("grid", ctypes.c_int64 * 3), ("block", ctypes.c_int64 * 3),
        *((name, ctypes.c_int64) for name in ("shared_size", "dynamic_shared", "local_bytes", "budget")),
        *((name, ctypes.c_int32) for name in (
            "footprint", "shares", "granule_global", "granule_shared", "ordered", "checked", "deferred",
        )),
    )  # fmt: skip


SIZES = (
    *(record.itemsize for record in (OP, CODE_BLOCK, ACCESS, REGION, REGISTER)), ctypes.sizeof(Description),
    *(record.itemsize for record in (
        COUNTS, EXECUTED, SUMS, CONSTANT_REQUEST, PATTERN_EXAMPLE, PATTERN_COUNTS, WARP_ADDRESSES,
    )),
)  # fmt: skip


def library(prefix: str, size: str, sizes: Sequence[int]) -> tuple[Any, dict[str, int]] | None:
    """Return the C++ library, and the number of each of its operations, keyed by name; None if there is no library.

    prefix: the begin of the names of the functions that tell the operations; size: the name of the function that tells
    the sizes of the structures; sizes: the sizes of the same structures in Python.
    """
    found = native.library()
    if found is None:
        return None
    size_of, count, name = (getattr(found, f"{prefix}_{each}") for each in (size, "operations", "operation"))
    size_of.restype, count.restype, name.restype = ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p
    assert [size_of(place) for place in range(len(sizes))] == [*sizes], "layout.py and the C++ headers differ"
    return found, {name(number).decode(): number for number in range(count())}
