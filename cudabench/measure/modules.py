"""The compiled sources of a case as one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudabench.compile.record import Resources
from cudabench.devices.protocol import Device, Module, Variable
from cudabench.records.planned import Case


@dataclass(frozen=True)
class Linked:
    """The modules of a case whose launches come from several sources, as one."""

    by_function: Mapping[str, Module]

    @property
    def _modules(self) -> list[Module]:
        return list({id(module): module for module in self.by_function.values()}.values())

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables of all."""
        return [variable for module in self._modules for variable in module.variables]

    @property
    def ptx(self) -> str:
        """The PTX of all."""
        return "\n".join(module.ptx for module in self._modules)

    def images(self, names: Sequence[str]) -> list[tuple[bytes, list[str]]]:
        """Return the cubins of all."""
        own = [(module, [name for name in names if self.by_function[name] is module]) for module in self._modules]
        return [image for module, part in own for image in module.images(part)]

    def function(self, name: str) -> Any:
        """Return a function to launch."""
        return self.by_function[name].function(name)

    def set_constant(self, name: str, content: bytes) -> None:
        """Write a `__constant__` variable in each module that has it."""
        for module in self._modules:
            module.set_constant(name, content)

    def resources(self, name: str) -> Resources:
        """Return what a function needs."""
        return self.by_function[name].resources(name)

    def max_threads(self, name: str) -> int:
        """Return the largest block that a function takes."""
        return self.by_function[name].max_threads(name)


def load(device: Device, case: Case) -> Module:
    """Return the module of a case, compiled from each source that its launches come from."""
    by_function: dict[str, Module] = {}
    for part in case.parts:
        names = [launch.function for launch in part.launches]
        clusters = {"clusters": True} if any(launch.cluster for launch in part.launches) else {}
        by_function |= dict.fromkeys(names, device.load(part.source, part.defines, names, **clusters))
    return Linked(by_function) if len(case.parts) > 1 else next(iter(by_function.values()))
