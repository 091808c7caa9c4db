"""A program's modules: the PTX that the simulator executes, and the machine code for the card."""

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

# The handle of a graph's condition is the address of its value.
_CONDITION = re.compile(r"\.extern\s+\.func\s+cudaGraphSetConditional\s*\([^)]*\)\s*;")
_SET_CONDITION = """.weak .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value) {
.reg .b64 %rd<1>; .reg .b32 %r<1>;
ld.param.b64 %rd0, [handle]; ld.param.b32 %r0, [value]; st.global.b32 [%rd0], %r0; ret; }
"""

# the cache helps because PyCUDA loads the same image many times
_parsed = functools.lru_cache(maxsize=8)(ptx_parser.parse)


class LoadedModule:
    """A loaded module: `ptx`; `program`, which the simulator runs; `cubin`: machine code for the architecture, or None.

    `assemble`: compiles PTX to machine code if the image has none. Raises LookupError for an image without PTX, and
    PtxError for PTX that cannot be parsed.
    """

    def __init__(
        self,
        image: bytes,
        first_slot: int,
        architecture: str = "",
        memory: Callable[[int], np.ndarray] = lambda nbytes: np.zeros(nbytes, np.uint8),
        assemble: Callable[[str], bytes | None] = lambda ptx: None,
    ) -> None:
        self.ptx, self.cubin = fatbin.choose_code(image, architecture)
        if self.cubin is None:
            self.cubin = assemble(self.ptx)
        text = _CONDITION.sub(_SET_CONDITION, self.ptx)
        # The simulator tells a trap in the user's source from a trap that the compiler added. A program on a GPU sees
        # no difference, so both are made equal here.
        text = re.sub(r"\btrap;", "trap.asked;", text)
        self.program = Program(_parsed(text), first_slot, memory=memory, text=text)
        self.slots = self.program.slots - first_slot

    def compiled(self, names: dict[str, str]) -> Compiled:
        """Return the module as the result of a compile; `names`: the entry (mangled name) of each kernel's C++ name."""
        resources = {entry: _resources(self, entry) for entry in names.values()} if self.cubin else {}
        return Compiled(self.ptx, "", names, "nvcc", (0, 0), self.cubin, resources)

    def device(self, architecture: str, names: dict[str, str]) -> ModuleDevice:
        """Return a simulated device in which this module is loaded."""
        return ModuleDevice(architecture, sim.Loaded(self.compiled(names), self.program))


class ModuleDevice(sim.SimDevice):
    """A simulated GPU with exactly one loaded module, which is used for every case."""

    def __init__(self, architecture: str, loaded: sim.Loaded) -> None:
        super().__init__(architecture)
        self._only = loaded

    def load(self, case: object) -> sim.Loaded:
        """Return the module, for any case."""
        return self._only

    def changed(self, case: object) -> list[Any]:
        """Return [], because a program's kernels are allowed to change its variables."""
        return []


def _resources(loaded: LoadedModule, entry: str) -> Resources:
    """Return a kernel's registers, shared memory and other resources, read from its machine code."""
    assert loaded.cubin is not None
    resources = cubins.resources(loaded.cubin, entry)
    bound = loaded.program.module.functions.outline(entry).most_threads
    return replace(resources, shared_bytes=loaded.program.code(entry).static_shared, max_threads=bound)
