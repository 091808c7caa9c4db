"""Loads PTX text as a program: kernels, which are decoded at their first use, and module variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cudabench.errors import did_you_mean
from cudabench.simulator.errors import LaunchError
from cudabench.simulator.heap import Heap
from cudabench.simulator.memory import SLOT_BITS, AddressSpace
from cudabench.simulator.plan import MOST_PLANS, Plan
from cudabench.simulator.program import kept, ptx, ptx_parser
from cudabench.simulator.program.arguments import Placed, place_arguments, with_numbers
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.calls import function_addresses
from cudabench.simulator.program.code import Code, Unsupported
from cudabench.simulator.values import Array
from cudabench.symbols import plain_name
from cudabench.system import collector

# If the arrays of a launch have at most this many bytes, their addresses are kept for the next launch.
MOST_PLACED = 1 << 24


class Kernel:
    """A kernel of a program, with its name, parameters, source file and memory sizes."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self.name = name

    @property
    def parameters(self) -> tuple[ptx.Variable, ...]:
        """The parameters of the kernel."""
        return self._program.module.functions.outline(self.name).parameters

    @property
    def file(self) -> str:
        """The path of the source file that defines the kernel; '' if the PTX does not name it."""
        module = self._program.module
        return module.files.get(module.functions[self.name].location.file, "")

    @property
    def shared_bytes(self) -> int:
        """The static shared memory of a block in bytes."""
        return self._program.code(self.name).static_shared

    @property
    def local_bytes(self) -> int:
        """The local memory of a thread in bytes, as the PTX declares it (before ptxas allocates registers)."""
        return self._program.code(self.name).local_bytes

    @property
    def dynamic_shared(self) -> bool:
        """Whether the kernel uses dynamic shared memory."""
        return bool(self._program.code(self.name).dynamic)


class Program:
    """Parsed PTX. Each kernel is decoded once, when it is first used; module variables keep their values between
    launches. `memory` allocates the bytes of a variable, all 0."""

    def __init__(
        self, module: ptx.Module, first_slot: int = 1, space: AddressSpace | None = None,
        memory: Callable[[int], Array] = lambda nbytes: np.zeros(nbytes, np.uint8), text: str = "",
    ) -> None:  # fmt: skip
        """With `space`, an address space that lasts longer than a launch, the variables get its next free slots.
        Without it, they get the slots from `first_slot` on in the address space of each launch. text: the PTX; without
        it, decoded kernels are not kept for later commands."""
        first_slot = first_slot if space is None else len(space.slots)
        self.module, self._text = module, text
        self._first_slot = first_slot
        self.kernels = {name: Kernel(self, name) for name in module.functions.entries}
        self._codes: dict[str, Code] = {}
        # A function that returns the plan of a launch; launches for which `Plan` gets equal arguments share one plan.
        self.plan = lru_cache(MOST_PLANS)(lambda kernel, *how: Plan(self.code(kernel), *how))
        # For each kernel, its last launch: (key, arrays, placed arguments).
        self._placed: dict[str, tuple[Any, Any, Placed]] = {}
        self._symbols: dict[str, int] = {}
        self._storage: list[tuple[str, ptx.Variable, Array]] = []
        holding = [module.functions[name] for name in module.functions.holding]
        inner = ((f"{function.name}::{local.name}", local) for function in holding for local in function.variables)
        for name, variable in (*module.variables.items(), *inner):
            if variable.space in ("global", "const") and not variable.dynamic and variable.type in ptx.BITS:
                self._symbols[name] = (first_slot + len(self._storage)) << SLOT_BITS
                self._storage.append((name, variable, memory(variable.size)))
        self._set_first_values()
        self.heap = Heap() if {"malloc", "free"} & module.functions.keys() else None
        self._first = [data.copy() for _, _, data in self._storage]
        self._lasting = space
        if space is not None:
            self._place_in(space)

    def reset(self) -> None:
        """Set all module variables to their initial values, free the heap, and delete the records of earlier launches,
        so that the counts of later launches do not depend on earlier launches."""
        self.plan.cache_clear()
        for code in self._codes.values():
            code.sampling_history.clear()
        for (_, _, data), first in zip(self._storage, self._first, strict=True):
            data[:] = first
        if self.heap is not None:
            self.heap.clear()

    def changed(self) -> tuple[str, ...]:
        """Return the PTX names of the `__device__` variables whose values differ from their initial values."""
        return tuple(
            name.rpartition("::")[2]
            for (name, variable, data), first in zip(self._storage, self._first, strict=True)
            if variable.space == "global" and not np.array_equal(data, first)
        )

    def _set_first_values(self) -> None:
        addresses = {**function_addresses(self.module), **self._symbols}
        for _, variable, data in self._storage:
            for offset, width, value, mask in variable.initial:
                if isinstance(value, ptx.Immediate):
                    number = value.value
                    if value.float_bits and value.float_bits != width * 8:
                        number = value.as_float(width * 8)
                else:
                    number = addresses.get(value.name, 0)
                    number = number + value.offset if number else 0
                if mask >= 0:
                    shift = (mask & -mask).bit_length() - 1
                    number = (number & mask) >> shift
                raw = (number & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
                data[offset : offset + width] = np.frombuffer(raw, dtype=np.uint8)

    def variable(self, name: str) -> Array:
        """Return the bytes of a module variable, to read or to write.

        Raises KeyError for an unknown name.
        """
        return {symbol: data for symbol, _, data in self._storage}[name]

    def variables(self) -> list[tuple[str, int, Array]]:
        """Return a list of (symbol, address, bytes) of the module variables."""
        return [(name, self._symbols[name], data) for name, _, data in self._storage]

    def code(self, kernel: str) -> Code:
        """Return the decoded code of a kernel; raises LaunchError for an unknown kernel."""
        if kernel not in self._codes:
            if kernel not in self.kernels:
                names = ", ".join(self.kernels) or "none"
                raise LaunchError(
                    f"this PTX has no kernel '{kernel}'; it has: {names}.{did_you_mean(kernel, self.kernels)}"
                )
            name = kept.name_of(self._text, kernel, self._symbols)
            if (found := kept.read(name)) is not None:
                self._codes[kernel], self.module.functions.outlines[kernel] = found
            else:
                self._codes[kernel] = self._decode(kernel)
                self._codes[kernel].encoded[kept.NAME] = name
        return self._codes[kernel]

    def _decode(self, kernel: str) -> Code:
        # Imported only here, because this import takes longer than all other imports, and callers that only list
        # kernels do not need the opcodes.
        from cudabench.simulator.isa import instructions  # noqa: F401 - registers the opcodes

        with collector.paused():
            return Builder(self.module, kernel, self._symbols).build()

    def keep(self, code: Code) -> None:
        """Keep a kernel for later commands, after it was encoded for the C++ engine."""
        kept.write(code, self.module.functions.outline(code.name))

    def complete(self, code: Code) -> None:
        """Prepare a kernel's code for the NumPy engine."""
        kept.complete(code, lambda: self._decode(code.name))

    def place(
        self, code: Code, arguments: Sequence[Any], names: Sequence[str] | None, beside: Mapping[str, Array], first: int
    ) -> Placed:
        """Return a launch's arguments with their addresses in an address space; names, beside: as in `launch.run`.

        If the last launch of the kernel had the same arrays, and these have at most MOST_PLACED bytes, the arrays keep
        their address space. first: the slot of the first array.
        """
        arrays = [array for array in (*beside.values(), *arguments) if isinstance(array, np.ndarray)]
        plain = all(isinstance(x, (np.ndarray, np.generic, int, float)) for x in arguments) and not code.cooperative
        if not plain or sum(array.nbytes for array in arrays) > MOST_PLACED:
            return place_arguments(code, self.space(first), arguments, names, beside)
        key = (
            first, names and (*names,), (*beside,), [isinstance(x, np.ndarray) for x in arguments],
            [(id(array), array.shape, array.dtype, array.flags.writeable) for array in arrays],
        )  # fmt: skip
        before, _, placed = self._placed.pop(code.name, (None, None, None))
        if placed is None or before != key:
            placed = place_arguments(code, self.space(first), arguments, names, beside)
        else:
            placed = with_numbers(placed, code, arguments, names)
        self._placed[code.name] = key, arrays, placed
        return placed

    def lines(self, kernel: str) -> tuple[int, ...]:
        """Return the numbers of the PTX lines with the instructions of a kernel and of the functions it calls."""
        blocks = self.code(kernel).blocks
        return tuple(sorted(frozenset[int]().union(*(block.lines for block in blocks)) - {0}))

    def unsupported(self, kernel: str) -> tuple[Unsupported, ...]:
        """Return every feature that a kernel uses and the simulator lacks, sorted by file and line."""
        return tuple(sorted(self.code(kernel).unsupported))

    @property
    def slots(self) -> int:
        """The first slot of the address space that a launch's arrays may use; the slots before it are taken."""
        return self._first_slot + len(self._storage) + (self.heap is not None)

    def space(self, first: int = 0) -> AddressSpace:
        """Return a new address space with the module variables and the heap, and with at least `first` slots."""
        space = AddressSpace()
        self._place_in(space)
        space.skip_to(first)
        return space

    def unload(self) -> None:
        """If the program was loaded into a given address space, remove the program's variables from that space."""
        if self._lasting is not None:
            for slot in range(self._first_slot, self.slots):
                self._lasting.free(slot << SLOT_BITS)
            self._lasting = None

    def address(self, name: str) -> int:
        """Return the address of a module variable.

        Raises KeyError for an unknown name.
        """
        return self._symbols[name]

    def _place_in(self, space: AddressSpace) -> None:
        space.skip_to(self._first_slot)
        for name, variable, data in self._storage:
            space.place(plain_name(name), data, variable.space != "const", variable.space == "const")
        if self.heap is not None:
            space.place_heap(self.heap)


def load(ptx_text: str, first_slot: int = 1, space: AddressSpace | None = None) -> Program:
    """Parse PTX text, and return it as a program for any number of launches.

    The module variables get the slots of the address space from `first_slot` on; programs that are used together need
    different slots. space: an address space that lasts longer than a launch; its next free slots are used instead.
    Raises PtxError if the text is not PTX for 64-bit addresses.
    """
    return Program(ptx_parser.parse(ptx_text), first_slot, space, text=ptx_text)
