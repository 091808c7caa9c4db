"""The types that measuring code uses: a device, its loaded modules, and `Work`, a function that queues GPU work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from cudabench.compile.record import Resources
from cudabench.records.launch import Rows, Surface, TensorMap, Texture

if TYPE_CHECKING:
    from cudabench.devices import cuda, peers

Work = Callable[[], object]
OVER_BUFFERS = (Rows, Surface, TensorMap, Texture)  # these arguments are views of a buffer


@dataclass(frozen=True)
class Variable:
    """A variable of a loaded module that kernels can write. `pointer`, `nbytes`: address and size in device memory;
    `line`: the source line of the declaration, or None if it is not known."""

    name: str
    line: int | None
    pointer: int
    nbytes: int


@dataclass(frozen=True)
class Linked:
    """Several modules that are used as one, for a case whose launches come from several sources."""

    by_function: Mapping[str, cuda.Module]

    @property
    def _modules(self) -> list[cuda.Module]:
        return list({id(module): module for module in self.by_function.values()}.values())

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables of all modules."""
        return [variable for module in self._modules for variable in module.variables]

    @property
    def ptx(self) -> str:
        """The PTX of all modules."""
        return "\n".join(module.ptx for module in self._modules)

    def images(self, names: Sequence[str]) -> list[tuple[bytes, list[str]]]:
        """Return (cubin, entries of the kernels in `names` that the module contains) for each module."""
        by_module = [(module, [name for name in names if self.by_function[name] is module]) for module in self._modules]
        return [image for module, module_names in by_module for image in module.images(module_names)]

    def function(self, name: str) -> Any:
        """Return the device's function object for a kernel's name in the source."""
        return self.by_function[name].function(name)

    def set_constant(self, name: str, content: bytes) -> None:
        """Write a `__constant__` variable in each module that has it."""
        for module in self._modules:
            module.set_constant(name, content)

    def resources(self, name: str) -> Resources:
        """Return the resources (registers, shared memory, ...) that a kernel needs."""
        return self.by_function[name].resources(name)


# This type is only for annotations. Tests replace CudaDevice by another class, which has its arrays in host memory.
Device: TypeAlias = "cuda.CudaDevice"
Module: TypeAlias = "cuda.Module | Linked | peers.Call"
