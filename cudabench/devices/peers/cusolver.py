"""Calls cuSOLVER: getrf and getrs for solve.

cuSOLVER expects column-major matrices, so it sees A as A^T. getrf factors A^T = P L U, which takes as long as factoring
A, and getrs solves with the transposed factors. The calls overwrite A and b, so they get copies; copying is part of the
timed work.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping

from cudabench.devices.peers import LETTERS, STREAMS, Call, Library, LibraryContext, Queue, pointer
from cudabench.records.plan import Operation, Peer, Problem

TRANSPOSED = ctypes.c_int(1)  # cublasOperation_t
ITEM = {"float32": 4, "float64": 8}


@functools.cache
def _library() -> Library:
    return Library("cusolver", "cusolverDnCreate")


def load(peer: Peer, operation: Operation, problem: Problem, context: LibraryContext) -> Call:
    """Return cuSOLVER's calls for a problem. First A is copied to the operation's scratch array `ab`, and b to x."""
    library = _library()
    n, item, letter = problem.size["n"], ITEM[problem.dtype], LETTERS[problem.dtype]
    words = ctypes.c_int()
    side, single = ctypes.c_int(n), ctypes.c_int(1)
    library(f"cusolverDn{letter}getrf_bufferSize", library.handle, side, side, None, side, ctypes.byref(words))
    work, order, info = (pointer(context.allocate(nbytes)) for nbytes in (max(1, words.value) * item, 4 * n, 4))
    driver = ctypes.CDLL("libcuda.so.1")

    def bind(addresses: Mapping[str, int]) -> Queue:
        matrix, x = pointer(addresses["ab"]), pointer(addresses["x"])
        copies = ((matrix, pointer(addresses["a"]), n * n * item), (x, pointer(addresses["b"]), n * item))

        def queue(stream: int) -> None:
            stream_handle = ctypes.c_void_p(stream)
            for target, source, nbytes in copies:
                driver.cuMemcpyDtoDAsync_v2(target, source, ctypes.c_size_t(nbytes), stream_handle)
            library("cusolverDnSetStream", library.handle, stream_handle)
            library(f"cusolverDn{letter}getrf", library.handle, side, side, matrix, side, work, order, info)
            library(
                f"cusolverDn{letter}getrs", library.handle, TRANSPOSED, side, single, matrix, side, order, x, side, info
            )

        return queue

    return Call(library.version, bind, waits=True, streams=STREAMS)
