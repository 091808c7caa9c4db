"""What measuring needs of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cudabench.compile.record import Resources
from cudabench.records.launch import Launch, Source
from cudabench.records.planned import Operation, Peer, Problem
from cudabench.records.results import DeviceInfo

Work = Callable[[], None]


@dataclass(frozen=True)
class Variable:
    """A variable of a loaded module that its kernels can write: its place in device memory, and the line of the source
    that declares it where that is known."""

    name: str
    line: int | None
    pointer: int
    nbytes: int


class Module(Protocol):
    """A source file, compiled and loaded."""

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables that its kernels can write."""

    @property
    def ptx(self) -> str:
        """Its PTX; empty where the compiler kept none."""

    def images(self, names: Sequence[str]) -> list[tuple[bytes, list[str]]]:
        """Return the cubins that hold some kernels, each with the entries of those kernels."""

    def function(self, name: str) -> Any:
        """Return the device's own handle of a kernel."""

    def set_constant(self, name: str, content: bytes) -> None:
        """Write a `__constant__` variable, where the module has it. Raises UsageError for another number of bytes."""

    def resources(self, name: str) -> Resources:
        """Return what a kernel needs."""

    def max_threads(self, name: str) -> int:
        """Return the largest block, in threads, that a kernel's registers and launch bounds allow."""


class PeerCall(Module, Protocol):
    """A library's call in the place of a compiled source file."""

    @property
    def version(self) -> str:
        """The library with its version."""


class Device(Protocol):
    """A GPU; `devices.cuda` has one, and the tests have one in host memory with a clock of their own."""

    info: DeviceInfo
    page_bytes: int  # of its memory: what shares a page lies in one place, and may be read and written throughout

    def load(
        self, source: Source, defines: Mapping[str, str], names: Sequence[str], *, clusters: bool = False
    ) -> Module:
        """Compile a source file; `names` are the kernels that are wanted of it, templates with their arguments.

        clusters: a launch will say the blocks of a cluster.
        """

    def peer(self, peer: Peer, operation: Operation, problem: Problem) -> PeerCall:
        """Return a library's call, ready for the problem; DeviceUnusable where the library is not there."""

    def free_bytes(self) -> int:
        """Return the free memory."""

    def allocate(self, nbytes: int, *, own_page: bool = False) -> int:
        """Return the address of new memory, which shares its page of the memory with none on request."""

    def release(self, pointer: int) -> None:
        """Free what `allocate` returned."""

    def upload(self, pointer: int, array: np.ndarray) -> None:
        """Copy an array to the device."""

    def download(self, pointer: int, array: np.ndarray) -> None:
        """Fill an array from the device."""

    def fill(self, pointer: int, nbytes: int, byte: int) -> Work:
        """Return what queues the filling of memory with one byte."""

    def digest(self, pointer: int, nbytes: int) -> int:
        """Return a 64-bit digest of memory, after all that is queued: equal for equal bytes."""

    def bind(self, module: Module, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Work:
        """Return what queues the launches."""

    def use_stream(self, number: int) -> None:
        """Queue on another stream from now on."""

    def copy(self, source: int, target: int, nbytes: int) -> Work:
        """Return what queues a copy on the device."""

    def scrub(self, local_bytes: int) -> Work:
        """Return what queues the overwriting of all shared memory and registers, and of a thread's local memory."""

    def demote(self, pointer: int, nbytes: int) -> Work:
        """Return what queues setting the L2 lines of memory back to the normal eviction priority."""

    def run(self, work: Work, doing: str) -> None:
        """Run the work once and wait."""

    def sample(self, works: Sequence[Work], cache: str, before: Sequence[Work] = ()) -> float:
        """Return the mean seconds of works that run back to back, timed on the device; `before` is queued ahead of
        them and not timed."""

    def alive(self) -> bool:
        """Tell whether the device still works; an illegal address ends a context for good."""

    def other_processes(self) -> list[str]:
        """Return the other processes that compute on the GPU, as far as they are known, with name and number."""

    def sm_clock_mhz(self) -> int | None:
        """Return the current clock, where it can be read."""
