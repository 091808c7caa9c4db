"""Libraries' calls for the operations' work: the rows of --peer, timed and verified as kernels are.

An operation's module names its calls (`Operation.peers`); here stands how each is made. A library is found as NVIDIA's
compilers are, in wheels, conda and the toolkit, and called by ctypes in the GPU's primary context, on the stream that
the samples run on; CUB, which is headers, by way of a small library that nvcc makes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cudabench.compile.record import Resources
from cudabench.errors import DeviceError, DeviceUnusable
from cudabench.records.planned import LIBRARIES, Operation, Peer, Problem

Queue = Callable[[int], None]  # calls the library, on the stream of this handle
LETTERS = {"float32": "S", "float64": "D"}  # of an element type, in the names of calls
STREAMS = 8  # as many as samples take turns on


@dataclass(frozen=True)
class Room:
    """Where a library runs: the GPU's number and architecture, and what gives it memory, by the number of bytes."""

    index: int
    arch: str
    allocate: Callable[[int], int]


@dataclass(frozen=True)
class Call:
    """A library's call for one problem: its version, and `bind`, which takes the addresses of the buffers.

    `waits`: the call waits for the device in the middle, so that its own work on the host is in its time. `streams`:
    on how many streams it has to run once before it is timed.
    """

    version: str
    bind: Callable[[Mapping[str, int]], Queue]
    waits: bool = False
    streams: int = 1
    variables: tuple[Any, ...] = field(default=(), init=False)
    ptx: str = field(default="", init=False)

    def images(self, names: Any) -> list[tuple[bytes, list[str]]]:
        """Return no machine code: the library's is its own."""
        return []

    def function(self, name: str) -> Any:
        """Return no kernel."""
        raise DeviceError(f"{self.version} has no kernel '{name}' to launch.")

    def set_constant(self, name: str, content: bytes) -> None:
        """Leave constant memory alone, which no library reads."""

    def resources(self, name: str) -> Resources:
        """Return what is known of the library's kernels: nothing."""
        return Resources(0)


class Library:
    """A shared library of NVIDIA's whose calls return a status; `handle` is what the call `create` makes."""

    def __init__(self, name: str, create: str) -> None:
        self.title, self._name = LIBRARIES[name], name
        self._c, self.handle = _opened(name), ctypes.c_void_p()
        self(create, ctypes.byref(self.handle))

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function; DeviceError for any status but success."""
        if status := getattr(self._c, function)(*arguments):
            raise DeviceError(f"{function} gave status {status} ({self.title}'s documentation says which that is).")

    @property
    def version(self) -> str:
        """The library with its version, such as 'cuBLAS 13.1.0'."""
        numbers = []
        for part in range(3):
            value = ctypes.c_int()
            self(f"{self._name}GetProperty", ctypes.c_int(part), ctypes.byref(value))
            numbers.append(str(value.value))
        return f"{self.title} {'.'.join(numbers)}"


def _opened(name: str) -> ctypes.CDLL:
    """Return a library, from NVIDIA's wheels, conda, the toolkit or the system's folders."""
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
        if path is not None:
            return ctypes.CDLL(path)
        why = ""
    except (RuntimeError, OSError) as error:  # pathfinder's own errors are RuntimeErrors
        lines = str(error).strip().splitlines()
        why = f" ({lines[0].strip()})" if len(lines) == 1 and len(lines[0]) < 200 else ""
    raise DeviceUnusable(
        f"{LIBRARIES[name]} is not installed{why}: `pip install nvidia-{name}`, or the CUDA toolkit, has it."
    )


pointer = ctypes.c_void_p  # of a device address


def scalar(value: float, dtype: str) -> Any:
    """Return a number in host memory, by reference."""
    return ctypes.byref(ctypes.c_double(value) if dtype == "float64" else ctypes.c_float(value))


def load(peer: Peer, operation: Operation, problem: Problem, room: Room) -> Call:
    """Return a library's call, ready for a problem. Raises DeviceUnusable where the library is not there, and
    DeviceError where it refuses."""
    call: Call = import_module(f"cudabench.devices.peers.{peer.library}").load(peer, operation, problem, room)
    return call
