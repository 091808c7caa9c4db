"""Calls libraries such as cuBLAS for the same work as the kernels (--peer), and times and verifies them like kernels.

`Operation.peers` lists the calls of an operation; this package makes them. Libraries are searched in NVIDIA's wheels,
conda and the CUDA toolkit. Libraries are called with ctypes, in the GPU's primary context, on the stream that is timed.
CUB has only headers, so nvcc compiles a small library that calls CUB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cudabench.compile.record import Resources
from cudabench.errors import DeviceError, DeviceUnusable
from cudabench.records.plan import LIBRARIES, Operation, Peer, Problem

Queue = Callable[[int], None]  # queues the library's call; the argument is the handle of the stream
# The letter for each element type in the names of library functions, such as S in Sgemm.
LETTERS = {"float32": "S", "float64": "D"}
STREAMS = 8  # the samples use this many streams, one after another


@dataclass(frozen=True)
class LibraryContext:
    """What a library needs: the GPU's number and architecture, and a function that allocates device memory."""

    index: int
    arch: str
    allocate: Callable[[int], int]


@dataclass(frozen=True)
class Call:
    """A library's call for one problem; it has the methods of a module of kernels.

    `version`: the library's name and version. `bind`: takes the addresses of the buffers by name, and returns a
    function that queues the call on a stream. `waits`: whether the call waits for the device, so that its time includes
    work on the host. `streams`: on how many streams it must run once before it is timed.
    """

    version: str
    bind: Callable[[Mapping[str, int]], Queue]
    waits: bool = False
    streams: int = 1
    variables: tuple[Any, ...] = field(default=(), init=False)
    ptx: str = field(default="", init=False)

    def images(self, names: Any) -> list[tuple[bytes, list[str]]]:
        """Return an empty list: a library's machine code is not read."""
        return []

    def function(self, name: str) -> Any:
        """Raise DeviceError: kernels of a library cannot be launched."""
        raise DeviceError(f"{self.version} cannot launch the kernel '{name}'.")

    def set_constant(self, name: str, content: bytes) -> None:
        """Do nothing: libraries do not read constant memory."""

    def resources(self, name: str) -> Resources:
        """Return zero resources, because the kernels of a library are not known."""
        return Resources(0)


class Library:
    """An NVIDIA library whose functions return a status. `create`: the function that makes the library's `handle`."""

    def __init__(self, name: str, create: str) -> None:
        self.title, self._name = LIBRARIES[name], name
        self._c, self.handle = _opened(name), ctypes.c_void_p()
        self(create, ctypes.byref(self.handle))

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function. Raises DeviceError if it fails."""
        if status := getattr(self._c, function)(*arguments):
            raise DeviceError(f"{function} gave status {status} (see {self.title}'s documentation).")

    @property
    def version(self) -> str:
        """The library's name and version, such as 'cuBLAS 13.1.0'."""
        numbers = []
        for property_number in range(3):
            value = ctypes.c_int()
            self(f"{self._name}GetProperty", ctypes.c_int(property_number), ctypes.byref(value))
            numbers.append(str(value.value))
        return f"{self.title} {'.'.join(numbers)}"


def _opened(name: str) -> ctypes.CDLL:
    """Load a library from NVIDIA's wheels, conda, the CUDA toolkit or the system's folders. Raises DeviceUnusable."""
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
        if path is not None:
            return ctypes.CDLL(path)
        why = ""
    except (RuntimeError, OSError) as error:  # the package cuda-pathfinder raises RuntimeError
        lines = str(error).strip().splitlines()
        why = f" ({lines[0].strip()})" if len(lines) == 1 and len(lines[0]) < 200 else ""
    raise DeviceUnusable(
        f"{LIBRARIES[name]} is not installed{why}: `pip install nvidia-{name}`, or the CUDA toolkit, has it."
    )


pointer = ctypes.c_void_p  # the type of a device address


def scalar(value: float, dtype: str) -> Any:
    """Return a reference to a number in host memory, as double for float64, else as float."""
    return ctypes.byref(ctypes.c_double(value) if dtype == "float64" else ctypes.c_float(value))


def load(peer: Peer, operation: Operation, problem: Problem, context: LibraryContext) -> Call:
    """Return a library's call for a problem. Raises DeviceUnusable if the library is not installed, and DeviceError if
    one of its functions fails."""
    call: Call = import_module(f"cudabench.devices.peers.{peer.library}").load(peer, operation, problem, context)
    return call
