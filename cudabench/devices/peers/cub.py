"""Calls CUB: DeviceReduce for distance and pi, DeviceTransform for vecadd.

CUB has only headers, so nvcc compiles a small library with the call, and the cache keeps it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cudabench.compile import nvcc, toolkit
from cudabench.compile.cache import put
from cudabench.devices.peers import Call, LibraryContext, Queue, pointer
from cudabench.errors import DeviceError, DeviceUnusable
from cudabench.records.plan import Operation, Peer, Problem
from cudabench.system.folders import cache_folder

TEXT = Path(__file__).with_suffix(".cu")
ARRAYS = {"distance": ("a", "b", "out"), "vecadd": ("a", "b", "c"), "pi": ("out", "out", "out")}
# The C++ types of the sum and of the result, if they are not the type of the elements. The types are those that the
# operation's kernels use.
SUMS = {
    ("distance", "int"): ("long long", "double"),
    ("pi", "float"): ("double", "float"),
}


def load(peer: Peer, operation: Operation, problem: Problem, context: LibraryContext) -> Call:
    """Return CUB's call for a problem. Raises DeviceUnusable without nvcc."""
    library = _library(operation.name, operation.dtypes[problem.dtype], context.arch)
    n = ctypes.c_longlong(problem.size["n"])

    def run(temp: ctypes.c_void_p | None, nbytes: ctypes.c_size_t, arrays: list[ctypes.c_void_p], stream: int) -> None:
        if status := library.call(temp, ctypes.byref(nbytes), *arrays, n, ctypes.c_void_p(stream)):
            raise DeviceError(f"{peer.call} gave CUDA's error {status}.")

    scratch_bytes = ctypes.c_size_t()
    run(None, scratch_bytes, [pointer(0)] * 3, 0)
    scratch = pointer(context.allocate(max(1, scratch_bytes.value)))

    def bind(addresses: Mapping[str, int]) -> Queue:
        arrays = [pointer(addresses[name]) for name in ARRAYS[operation.name]]
        return lambda stream: run(scratch, scratch_bytes, arrays, stream)

    version = library.cub_version()
    return Call(f"CUB {version // 100000}.{version // 100 % 1000}.{version % 100}", bind)


def _library(operation: str, ctype: str, arch: str) -> ctypes.CDLL:
    """Return the small library for an operation and an element type, from the cache or newly compiled."""
    compiler = toolkit.nvcc()
    if compiler is None:
        raise DeviceUnusable("CUB needs nvcc and g++, and one of them is missing: install the CUDA toolkit.")
    sums, out = SUMS.get((operation, ctype), (ctype, ctype))
    options = [
        "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-arch={arch}", f"-DOPERATION_{operation}",
        f"-DELEMENT={ctype}", f"-DSUM={sums}", f"-DRESULT={out}",
    ]  # fmt: skip
    marks = (TEXT.read_bytes(), options, nvcc.version(), Path(compiler).stat().st_mtime_ns)
    name = f"cub-{operation}-{hashlib.sha256(repr(marks).encode()).hexdigest()[:24]}.so"
    cache = cache_folder()
    if cache is not None and (cache / name).is_file():
        return ctypes.CDLL(str(cache / name))
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        path = Path(folder) / name
        done = nvcc.run([compiler, *options, str(TEXT), "-o", str(path)], "cub.cu")
        if done.returncode:
            fault = next((line for line in (done.stderr + done.stdout).splitlines() if "error" in line), "no reason")
            raise DeviceUnusable(f"nvcc does not compile CUB's call ({fault.strip()}): install a newer CUDA toolkit.")
        library = ctypes.CDLL(str(path))  # the library stays loaded after its file is deleted
        if cache is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written is not an error
                put(cache / name, path.read_bytes())
        return library
