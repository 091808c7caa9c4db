"""Loading PTX and launching its kernels: argument conversion, launch limits, the report."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudabench.errors import did_you_mean
from cudabench.simulator.errors import LaunchError, UnsupportedKernel
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW, SLOT_BITS, AddressSpace, Region
from cudabench.simulator.program import ptx
from cudabench.simulator.program.lower import Builder, Code, Unsupported
from cudabench.simulator.report import Access, Report
from cudabench.simulator.values import Array

# Vector steps: each is one instruction for all lanes that run it together.
DEFAULT_BUDGET = 5_000_000
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_STATIC_SHARED = 48 * 1024
MAX_SHARED = 227 * 1024
_FORMATS = {
    "u8": "B", "s8": "b", "b8": "B", "u16": "H", "s16": "h", "b16": "H", "u32": "I", "s32": "i", "b32": "I",
    "u64": "Q", "s64": "q", "b64": "Q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip


class Parameter(NamedTuple):
    """A parameter of a kernel: its PTX name and type (`b8` for a struct by value), size and alignment in bytes."""

    name: str
    type: str
    size: int
    align: int


class Entry:
    """A kernel of a program."""

    def __init__(self, program: Program, function: ptx.Function) -> None:
        self._program = program
        self.name = function.name
        self.parameters = tuple(
            Parameter(variable.name, variable.type, variable.size, variable.align) for variable in function.parameters
        )
        self.file = program.module.files.get(function.location.file, "")
        self.line = function.location.line

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
        return self._program.code(self.name).dynamic_symbol

    def __repr__(self) -> str:
        return f"Entry({self.name!r}, {len(self.parameters)} parameters)"


class Program:
    """Parsed PTX; each kernel is decoded on its first use, once. Module variables keep their values between
    launches."""

    def __init__(self, module: ptx.Module) -> None:
        self.module = module
        self.kernels = {
            function.name: Entry(self, function)
            for function in module.functions.values()
            if function.entry and function.body is not None
        }
        self._codes: dict[str, Code] = {}
        self._symbols: dict[str, int] = {}
        self._storage: list[tuple[str, ptx.Variable, Array]] = []
        for variable in module.variables.values():
            self._declare(variable.name, variable)
        for function in module.functions.values():
            for variable in function.variables:
                self._declare(f"{function.name}::{variable.name}", variable)
        self.reset()

    def _declare(self, name: str, variable: ptx.Variable) -> None:
        if variable.space in ("global", "const") and not variable.dynamic and variable.type in ptx.BITS:
            self._symbols[name] = (len(self._storage) + 1) << SLOT_BITS
            self._storage.append((name, variable, np.zeros(variable.size, dtype=np.uint8)))

    def reset(self) -> None:
        """Give all module variables their initial values."""
        for _, variable, data in self._storage:
            data[:] = 0
            for offset, width, value, mask in variable.initial:
                if isinstance(value, ptx.Immediate):
                    number = value.value
                    if value.float_bits and value.float_bits != width * 8:
                        wide = struct.unpack("<d", struct.pack("<Q", number))[0] if value.float_bits == 64 else 0.0
                        number = struct.unpack("<I", struct.pack("<f", wide))[0]
                else:
                    number = self._symbols.get(value.name, 0)
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
        for found, _, data in self._storage:
            if found == name:
                return data
        raise KeyError(name)

    def code(self, kernel: str) -> Code:
        """Return a kernel decoded to ops."""
        found = self._codes.get(kernel)
        if found is None:
            from cudabench.simulator.isa.instructions import TABLE  # with every instruction registered

            if kernel not in self.kernels:
                have = ", ".join(self.kernels) or "none"
                raise LaunchError(
                    f"there is no kernel '{kernel}' in this PTX; it has: {have}.{did_you_mean(kernel, self.kernels)}"
                )
            found = self._codes[kernel] = Builder(self.module, kernel, self._symbols, TABLE).build()
        return found

    def unsupported(self, kernel: str) -> tuple[Unsupported, ...]:
        """Return every feature that a kernel uses and the simulator lacks, in the order of the source."""
        return tuple(sorted(self.code(kernel).unsupported))

    def space(self) -> AddressSpace:
        """Return an address space that holds the module variables."""
        space = AddressSpace()
        for name, variable, data in self._storage:
            space.place(name.rpartition("::")[2], data, variable.space != "const")
        return space


def load(ptx_text: str) -> Program:
    """Parse PTX text once, for many launches.

    Raises PtxError where the text is no PTX for 64-bit addresses.
    """
    return Program(ptx.parse(ptx_text))


def _three(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(parts) <= 3 or any(int(part) < 1 for part in parts):
        raise LaunchError(f"{what} {value} must be one to three numbers of at least 1.")
    return tuple(int(part) for part in (*parts, 1, 1)[:3])  # type: ignore[return-value]


def check_launch(grid: tuple[int, int, int], block: tuple[int, int, int], static: int, dynamic: int) -> None:
    """Raise LaunchError for a launch that no GPU would take (CUDA C++ Programming Guide, "Compute Capabilities")."""
    threads = block[0] * block[1] * block[2]
    for axis, value, limit in zip("xyz", block, MAX_BLOCK, strict=True):
        if value > limit:
            raise LaunchError(f"a block of {value} threads in {axis} is over the limit of {limit}.")
    if threads > MAX_THREADS:
        raise LaunchError(
            f"a block of {block[0]} x {block[1]} x {block[2]} = {threads} threads is over the limit of {MAX_THREADS}."
        )
    for axis, value, limit in zip("xyz", grid, MAX_GRID, strict=True):
        if value > limit:
            raise LaunchError(f"a grid of {value} blocks in {axis} is over the limit of {limit}.")
    if static > MAX_STATIC_SHARED:
        raise LaunchError(f"{static} bytes of static shared memory are over the limit of {MAX_STATIC_SHARED}.")
    if dynamic < 0 or static + dynamic > MAX_SHARED:
        raise LaunchError(f"{static} + {dynamic} bytes of shared memory are over the limit of {MAX_SHARED}.")


def _number(value: Any, parameter: Parameter, name: str) -> bytes:
    """Return the bytes of a scalar argument."""
    if isinstance(value, (bytes, bytearray, np.void)):
        raw = value.tobytes() if isinstance(value, np.void) else bytes(value)
        if len(raw) != parameter.size:
            raise LaunchError(
                f"argument '{name}' has {len(raw)} bytes, but the kernel's parameter has {parameter.size}."
            )
        return raw
    if isinstance(value, np.generic) and (
        parameter.type[0] == "b" or (parameter.type[0] != "f") != (value.dtype.kind != "f")
    ):
        raw = value.tobytes()
        if len(raw) == parameter.size and parameter.type[0] == "b":
            return raw
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        value = 0
    if isinstance(value, bool):
        value = int(value)
    letter = _FORMATS.get(parameter.type)
    if letter is None or struct.calcsize("<" + letter) != parameter.size:
        if parameter.size in (1, 2, 4, 8) and isinstance(value, int):
            return (value & ((1 << (8 * parameter.size)) - 1)).to_bytes(parameter.size, "little")
        raise LaunchError(f"argument '{name}' is a struct of {parameter.size} bytes: pass it as bytes, not {value!r}.")
    if parameter.type[0] == "f":
        if not isinstance(value, (int, float)):
            raise LaunchError(f"argument '{name}' must be a number, not {value!r}.")
        try:
            return struct.pack("<" + letter, float(value))
        except OverflowError:
            return struct.pack("<" + letter, float("inf") if value > 0 else float("-inf"))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise LaunchError(f"argument '{name}' must be an integer, not {value!r}.")
    bits = parameter.size * 8
    # C's int reaches PTX as .u32: both readings of the bits are accepted.
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise LaunchError(f"argument '{name}' = {value} does not fit into {bits} bits.")
    return (value & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def _place_arrays(space: AddressSpace, arrays: list[tuple[str, Array]]) -> dict[int, int]:
    """Give each array addresses and return them by id; arrays that share memory share a region."""
    extents = []
    for name, array in arrays:
        if not array.flags.c_contiguous:
            raise LaunchError(f"array '{name}' is not C-contiguous: pass numpy.ascontiguousarray of it.")
        if array.dtype.hasobject:
            raise LaunchError(f"array '{name}' has dtype {array.dtype}, which has no bytes a kernel could use.")
        extents.append((array.__array_interface__["data"][0], array.nbytes, name, array))
    addresses: dict[int, int] = {}
    extents.sort(key=lambda item: (item[0], -item[1]))
    region: Region | None = None
    start = end = 0
    for pointer, size, name, array in extents:
        if region is not None and size and pointer + size <= end and pointer >= start:
            addresses[id(array)] = region.base + pointer - start
            region.writable = region.writable or array.flags.writeable
            continue
        region = space.place(
            name, array.reshape(-1).view(np.uint8) if size else np.empty(0, np.uint8), array.flags.writeable
        )
        start, end = pointer, pointer + size
        addresses[id(array)] = region.base
    return addresses


def run(
    program: Program | str,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any],
    *,
    shared_bytes: int = 0,
    names: Sequence[str] | None = None,
    budget: int | None = None,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Launch a kernel and return counts, hazards and printed text.

    program: a loaded Program, or PTX text. grid, block: numbers of blocks and threads, x first, as an int or 1 to 3
    ints. arguments: one for each parameter: NumPy arrays (C-contiguous, used in place as device pointers), numbers,
    bytes for structs by value, None for a null pointer. shared_bytes: dynamic shared memory of a block. names: the
    parameters' names for messages. budget: vector steps after which the launch is stopped. trace: record single
    accesses (small launches only). progress: called with (blocks done, blocks in all).

    Raises LaunchError (a launch or argument no GPU would take), UnsupportedKernel (all missing features are listed),
    KernelTrap (assert, trap or a write to a read-only array), BudgetExceeded.
    """
    if isinstance(program, str):
        program = load(program)
    code = program.code(kernel)
    if code.unsupported:
        lines = "; ".join(f"{item.file}:{item.line}: {item.feature}" for item in program.unsupported(kernel))
        raise UnsupportedKernel(f"the simulator cannot run kernel {kernel}, which uses: {lines}.")
    entry = program.kernels[kernel]
    grid3, block3 = _three(grid, "grid"), _three(block, "block")
    check_launch(grid3, block3, code.static_shared, shared_bytes)
    if len(arguments) != len(entry.parameters):
        raise LaunchError(f"kernel {kernel} takes {len(entry.parameters)} arguments, not {len(arguments)}.")
    titles = list(names) if names is not None else [f"argument {place}" for place in range(len(arguments))]
    if len(titles) != len(arguments):
        raise LaunchError(f"{len(titles)} names were given for {len(arguments)} arguments.")
    space = program.space()
    first_argument = len(space.slots)
    addresses = _place_arrays(
        space, [(title, value) for title, value in zip(titles, arguments, strict=True) if isinstance(value, np.ndarray)]
    )
    raw = bytearray(code.parameter_bytes)
    for title, value, parameter in zip(titles, arguments, entry.parameters, strict=True):
        if isinstance(value, np.ndarray):
            if parameter.size != 8:
                raise LaunchError(
                    f"argument '{title}' is an array, but the kernel's parameter has {parameter.size} bytes."
                )
            piece = addresses[id(value)].to_bytes(8, "little")
        else:
            piece = _number(value, parameter, title)
        offset = code.parameter_offsets[parameter.name]
        raw[offset : offset + parameter.size] = piece
    parameters = Region("the parameters", PARAMETER_WINDOW, np.frombuffer(raw, dtype=np.uint8), False)
    recorder = None
    if trace:
        from cudabench.simulator.count.trace import Recorder

        recorder = Recorder(space, first_argument, addresses, arguments)
    machine = Machine(
        code, grid3, block3, space, parameters, shared_bytes, budget or DEFAULT_BUDGET, recorder, progress
    )
    machine.run()
    return Report(
        machine.instructions, _accesses(code, machine), machine.hazards.records(), "".join(machine.output),
        None if recorder is None else recorder.trace(), machine.hazards.suspicions(),
    )  # fmt: skip


def _accesses(code: Code, machine: Machine) -> tuple[Access, ...]:
    """Return the counts per line, space, operation and width, in the order of the source."""
    counters = machine.counters
    totals: dict[tuple[str, int, str, str, int], list[int]] = {}
    for number, (location, space, op, size) in enumerate(code.accesses):
        if not counters.requests[number]:
            continue
        key = (code.files.get(location.file, ""), location.line, space, op, size)
        total = totals.setdefault(key, [0, 0, 0])
        total[0] += counters.requests[number]
        total[1] += counters.pieces[number]
        total[2] += counters.ideal[number]
    found = []
    for key in sorted(totals):
        requests, pieces, ideal = totals[key]
        if key[2] == "shared":
            found.append(Access(*key, requests, None, None, pieces, ideal))
        else:
            found.append(Access(*key, requests, pieces, ideal, None, None))
    return tuple(found)
