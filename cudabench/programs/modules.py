"""A program's modules: the PTX that the simulator executes, and the machine code of the card."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cudabench.compile import cubin as cubins
from cudabench.compile.record import Compiled, Resources
from cudabench.devices import sim
from cudabench.programs import fatbin
from cudabench.simulator.program import ptx_parser
from cudabench.simulator.program.program import Program

_parsed = functools.lru_cache(maxsize=8)(ptx_parser.parse)  # PyCUDA loads one image again and again


class Loaded:
    """A module: its PTX, its program, and its machine code, None where it has none for the architecture.

    `assemble` makes machine code of PTX. Raises LookupError for an image without PTX, PtxError for PTX that cannot be
    read.
    """

    def __init__(
        self,
        image: bytes,
        first_slot: int,
        architecture: str = "",
        memory: Callable[[int], np.ndarray] = lambda nbytes: np.zeros(nbytes, np.uint8),
        assemble: Callable[[str], bytes | None] = lambda ptx: None,
    ) -> None:
        self.ptx, self.cubin = fatbin.chosen(image, architecture)
        if self.cubin is None:
            self.cubin = assemble(self.ptx)
        # A GPU has one kind of trap, whether the source or the compiler wrote it.
        module = _parsed(re.sub(r"\btrap;", "trap.asked;", self.ptx))
        self.program = Program(module, first_slot, memory=memory)
        self.slots = self.program.slots - first_slot

    def compiled(self, names: dict[str, str]) -> Compiled:
        """Return the module as the record of a compile; names: entries by the names of their kernels in C++."""
        resources = {entry: _resources(self, entry) for entry in names.values()} if self.cubin else {}
        return Compiled(self.ptx, "", names, "nvcc", (0, 0), self.cubin, resources)

    def device(self, architecture: str, names: dict[str, str]) -> Module:
        """Return the module as a device that has it loaded."""
        return Module(architecture, sim.Loaded(self.compiled(names), self.program))


class Module(sim.SimDevice):
    """A simulated GPU with one loaded module, to which all cases belong."""

    def __init__(self, architecture: str, loaded: sim.Loaded) -> None:
        super().__init__(architecture)
        self._only = loaded

    def load(self, case: object) -> sim.Loaded:
        """Return the module."""
        return self._only

    def changed(self, case: object) -> list[Any]:
        """Return nothing, since a program's variables may change."""
        return []


def _resources(loaded: Loaded, entry: str) -> Resources:
    """Return the resources of a kernel's thread and block, from its machine code."""
    assert loaded.cubin is not None
    resources = cubins.resources(loaded.cubin, entry)
    bound = loaded.program.module.functions[entry].most_threads
    return replace(resources, shared_bytes=loaded.program.code(entry).static_shared, max_threads=bound)
