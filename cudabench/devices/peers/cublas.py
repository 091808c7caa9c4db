"""Calls cuBLAS: geam for transpose, gemm for matmul, gemv for matvec.

cuBLAS expects column-major matrices, so it sees a row-major matrix as its transpose. C = A B is therefore computed as
C^T = B^T A^T, and no data need to be moved.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping

from cudabench.devices.peers import LETTERS, STREAMS, Call, Library, LibraryContext, Queue, pointer, scalar
from cudabench.records.plan import Operation, Peer, Problem

WORKSPACE_BYTES = 32 << 20  # bytes; cuBLAS uses and recommends this size on Hopper

# Numbers from cublas_api.h and library_types.h.
PLAIN, TRANSPOSED = ctypes.c_int(0), ctypes.c_int(1)
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
COMPUTE = {"float32": 68, "float64": 70, "float16": 68, "bfloat16": 68, "tf32": 77}  # cublasComputeType_t
DEFAULT_ALGORITHM = ctypes.c_int(-1)

Pointers = Mapping[str, int]


class CuBlas(Library):
    """The cuBLAS library with its handle and a workspace; with the workspace, calls need not allocate memory."""

    def __init__(self, context: LibraryContext) -> None:
        super().__init__("cublas", "cublasCreate_v2")
        self._workspace = pointer(context.allocate(WORKSPACE_BYTES))

    def on(self, stream: int) -> None:
        """Use a stream for the following calls, and set the workspace again, which a new stream resets."""
        self("cublasSetStream_v2", self.handle, ctypes.c_void_p(stream))
        self("cublasSetWorkspace_v2", self.handle, self._workspace, ctypes.c_size_t(WORKSPACE_BYTES))


_library = functools.cache(CuBlas)


def load(peer: Peer, operation: Operation, problem: Problem, context: LibraryContext) -> Call:
    """Return cuBLAS's call for a problem."""
    library = _library(context)
    make = CALLS[operation.name]

    def bind(addresses: Mapping[str, int]) -> Queue:
        queue = make(library, peer, operation, problem, addresses)

        def on_stream(stream: int) -> None:
            library.on(stream)
            queue()

        return on_stream

    return Call(library.version, bind, streams=STREAMS)


def transpose(library: CuBlas, peer: Peer, operation: Operation, problem: Problem, at: Pointers) -> Callable[[], None]:
    """Return the call out = 1 in^T + 0 in^T; geam adds two matrices, and does not read the one with factor zero."""
    rows, cols = (ctypes.c_int(problem.size[name]) for name in ("rows", "cols"))
    alpha, beta = scalar(1, problem.dtype), scalar(0, problem.dtype)
    source, target = pointer(at["in"]), pointer(at["out"])
    name = f"cublas{LETTERS[problem.dtype]}geam"
    return lambda: library(
        name, library.handle, TRANSPOSED, TRANSPOSED, rows, cols, alpha, source, cols, beta, source, cols, target, rows
    )


def matmul(library: CuBlas, peer: Peer, operation: Operation, problem: Problem, at: Pointers) -> Callable[[], None]:
    """Return the call C^T = B^T A^T; sums are in float32, or in float64 for float64 elements."""
    m, n, k = (ctypes.c_int(problem.size[name]) for name in "mnk")
    format = peer.arithmetic[0] if peer.arithmetic else problem.dtype
    kind, compute = ctypes.c_int(TYPES[problem.dtype]), ctypes.c_int(COMPUTE[format])
    alpha, beta = scalar(1, problem.dtype), scalar(0, problem.dtype)
    a, b, c = (pointer(at[name]) for name in "abc")
    return lambda: library(
        "cublasGemmEx", library.handle, PLAIN, PLAIN, n, m, k, alpha, b, kind, n, a, kind, k, beta, c, kind, n, compute,
        DEFAULT_ALGORITHM,
    )  # fmt: skip


def matvec(library: CuBlas, peer: Peer, operation: Operation, problem: Problem, at: Pointers) -> Callable[[], None]:
    """Return the call y = (A^T)^T x; the distance of two rows of A is gemv's leading dimension."""
    rows, cols = problem.size["rows"], problem.size["cols"]
    pitch_elements = next(buffer.shape[1] for buffer in operation.buffers(problem) if buffer.name == "A")
    m, n, pitch, step = (ctypes.c_int(value) for value in (cols, rows, pitch_elements, 1))
    alpha, beta = scalar(1, problem.dtype), scalar(0, problem.dtype)
    matrix, x, y = (pointer(at[name]) for name in ("A", "x", "y"))
    name = f"cublas{LETTERS[problem.dtype]}gemv_v2"
    return lambda: library(name, library.handle, TRANSPOSED, m, n, alpha, matrix, pitch, x, step, beta, y, step)


CALLS = {"transpose": transpose, "matmul": matmul, "matvec": matvec}
