"""What measuring needs of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from cudabench.model import DeviceInfo, Launch, Source
from cudabench.toolchain.record import Resources

Work = Callable[[], None]


class Module(Protocol):
    """A source file, compiled and loaded."""

    def function(self, name: str) -> Any:
        """Return the device's own handle of a kernel."""

    def resources(self, name: str) -> Resources:
        """Return what a kernel needs."""

    def max_threads(self, name: str) -> int:
        """Return the largest block, in threads, that a kernel's registers and launch bounds allow."""


class Device(Protocol):
    """A GPU; `devices.cuda` has one, and the tests have one in host memory with a clock of their own."""

    info: DeviceInfo

    def load(self, source: Source, defines: Mapping[str, str], names: Sequence[str]) -> Module:
        """Compile a source file; `names` are the kernels that are wanted of it, templates with their arguments."""

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

    def poison(self, pointer: int, nbytes: int) -> None:
        """Fill memory with 0xFF."""

    def bind(self, module: Module, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Work:
        """Return what queues the launches."""

    def use_stream(self, number: int) -> None:
        """Queue on another stream from now on."""

    def copy(self, source: int, target: int, nbytes: int) -> Work:
        """Return what queues a copy on the device."""

    def run(self, work: Work, doing: str) -> None:
        """Run the work once and wait."""

    def sample(self, work: Work, cache: str, runs: int = 1, before: Work | None = None) -> float:
        """Return the seconds of one run, timed on the device; `before` is queued ahead of it and not timed."""

    def sm_clock_mhz(self) -> int | None:
        """Return the current clock, where it can be read."""
