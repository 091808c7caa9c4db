"""What measuring is given: a device, what is loaded on it, and work to queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cudabench.compile.record import Resources

Work = Callable[[], object]


@dataclass(frozen=True)
class Variable:
    """A variable of a loaded module that its kernels can write: its place in device memory, and the line of the source
    that declares it where that is known."""

    name: str
    line: int | None
    pointer: int
    nbytes: int


class Module(Protocol):
    """A source file, compiled and loaded; or a library's call in its place."""

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


if TYPE_CHECKING:
    from cudabench.devices.cuda import CudaDevice

    Device: TypeAlias = CudaDevice
else:  # annotations alone name it; the tests have a device in host memory
    Device = object
