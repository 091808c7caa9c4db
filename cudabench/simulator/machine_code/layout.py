"""The structures that Python and C++ share; they have the same fields as in `native/sass.hpp`, in the same order."""

from __future__ import annotations

import ctypes

import numpy as np

UNIFORM, CONSTANTS = 256, 320  # the register number of the first uniform register, and the one of the first constant
# The number of predicate PT, and the number of all predicates, of which 8 to 15 are the uniform ones.
TRUE, PREDICATES = 7, 16
BANKS = 6

SOURCE = np.dtype([("place", "i4"), ("keep", "u4"), ("flip", "u4"), ("plus", "u4"), ("half", "i4")])
CONDITION = np.dtype([("predicate", "i4"), ("flip", "u4")])
INSTRUCTION = np.dtype(
    [("code", "i4"), ("guard", CONDITION), ("into", "i4"), ("into_predicate", "i4", 2), ("uniform", "i4"),
     ("flags", "i4"), ("mode", "i4", 4)]
    + [(name, "i4") for name in ("target", "size", "address", "beside", "offset", "wide", "scale")]
    + [("sources", SOURCE, 4), ("conditions", CONDITION, 3), ("schedule", "i4", 4)]
)  # fmt: skip
# The clocks of blocks: the sum over all blocks, and the clocks of the longest block. Each has five numbers: the clocks
# without waiting for loads, and for each kind of load (`LoadKind` in sass.hpp), how many loads are waited for.
NEAR, SMALL, SHARED_BY_BLOCKS, FAR = range(4)
L1_BYTES = 256 * 1024  # the largest L1 that any SM has: smaller arrays may stay in L1 from one block to the next
CLOCKS = np.dtype([("sum", "i8", 5), ("longest", "i8", 5)])
CHANGE = np.dtype([("region", "i8"), ("word", "i8"), ("old", "u8")])
COUNTED = np.dtype([(name, "i8") for name in ("warps", "lanes", "requests", "pieces")])


class Launch(ctypes.Structure):
    """The structure `MachineLaunch` of sass.hpp."""

    _fields_ = [
        ("code", ctypes.c_void_p), ("constants", ctypes.c_void_p), ("banks", ctypes.c_void_p * BANKS),
        ("regions", ctypes.c_void_p), ("counts", ctypes.c_void_p), ("code_count", ctypes.c_int64),
        ("constants_count", ctypes.c_int64), ("bank_sizes", ctypes.c_int64 * BANKS),
        ("regions_count", ctypes.c_int64), ("grid", ctypes.c_int64 * 3), ("block", ctypes.c_int64 * 3),
        ("shared_size", ctypes.c_int64), ("local_size", ctypes.c_int64), ("budget", ctypes.c_int64),
        ("unsettled", ctypes.c_void_p), ("threads", ctypes.c_int64), ("clocks", ctypes.c_void_p),
        ("kinds", ctypes.c_void_p), ("blocks", ctypes.c_void_p), ("blocks_count", ctypes.c_int64),
        ("changes", ctypes.c_void_p), ("changes_size", ctypes.c_int64), ("changes_count", ctypes.c_void_p),
    ]  # fmt: skip


SIZES = (INSTRUCTION.itemsize, COUNTED.itemsize, ctypes.sizeof(Launch), CLOCKS.itemsize)
