"""The compiled sources of a case: as one module, with what their code says of itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudabench.compile.record import Resources
from cudabench.devices.protocol import Device, Module, Variable
from cudabench.records.planned import Case
from cudabench.records.results import Warning
from cudabench.results.warnings import warning

# Words of PTX that keep lines in the L2, or bring them there, beyond what a plain access does.
EVICTION = ("evict_last", "createpolicy", "prefetch.global", "bulk.prefetch", "discard.global", "applypriority")


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
        return [
            image
            for module in self._modules
            for image in module.images([name for name in names if self.by_function[name] is module])
        ]

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
    modules: list[tuple[Module, Any]] = [
        (
            device.load(
                part.source,
                part.defines,
                [launch.function for launch in part.launches],
                **({"clusters": True} if any(launch.cluster for launch in part.launches) else {}),
            ),
            part,
        )
        for part in case.parts
    ]
    if len(modules) == 1:
        return modules[0][0]
    return Linked({launch.function: module for module, part in modules for launch in part.launches})


_OPCODE = re.compile(
    r"^\s*(?:\{\s*)?(?:@!?[%\w]+\s+)?([a-z][\w.:]*)", re.M
)  # of an instruction, no file name or comment
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|extern|weak)\s+)*\.(?:entry\s+([\w$]+)|func\b)", re.M)
_MALLOC = re.compile(r"^\s*(?:@!?[%\w]+\s+)?call(?:\.uni)?\b[^;]*\bmalloc\b", re.M)


def _launched(ptx: str, entries: Collection[str]) -> str:
    """Return PTX without the kernels that are not among these entries."""
    heads = list(_FUNCTION.finditer(ptx)) if entries else []
    end = len(ptx)
    for head in reversed(heads):
        if head[1] is not None and head[1] not in entries:
            ptx = ptx[: head.start()] + ptx[end:]
        end = head.start()
    return ptx


def opcodes(ptx: str) -> set[str]:
    """Return the opcodes of PTX with their modifiers, such as 'ld.global.L2::evict_last.f32'."""
    return set(_OPCODE.findall(ptx))


def kept_in_cache(ptx: str) -> bool:
    """Tell whether code asks the L2 to keep lines."""
    return any("evict_last" in opcode for opcode in opcodes(ptx))


def code_warnings(texts: Iterable[str], entries: Collection[str] = ()) -> list[Warning]:
    """Return what is to be said of instructions that reach beyond the launch, cache hints and the device's heap, in
    PTX; of the kernels in it only of those that are launched, where they are known."""
    ptx = "\n".join(_launched(text, entries) for text in texts)
    notes = []
    used = opcodes(ptx)
    hints = [word for word in EVICTION if any(word in opcode for opcode in used)]
    if hints:
        notes.append(warning("eviction", hints=", ".join(hints)))
    if _MALLOC.search(ptx):
        notes.append(warning("malloc"))
    return notes
