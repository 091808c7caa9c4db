"""The records of a parsed PTX file: functions, variables, instructions with their source lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cudabench.simulator.program import debug_info

# Bits of PTX' fundamental types (PTX ISA 5.2.1).
BITS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "tf32": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64, "b128": 128,
    "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16,
}  # fmt: skip


class Location(NamedTuple):
    """A place in a source file; file is an index into the module's `.file` table.

    ptx_line: of an instruction, where it stands in the PTX text, from 1; 0 for anything else. column: from 1, or 0.
    group: whether it is code of cooperative groups, called from that place.
    """

    file: int
    line: int
    ptx_line: int = 0
    column: int = 0
    group: bool = False


class Immediate(NamedTuple):
    """A literal: an int, or the IEEE bits of a float with its width (32 or 64)."""

    value: int
    float_bits: int = 0


class Address(NamedTuple):
    """`[base+offset]`: base names a register or a variable, or is None for an absolute address."""

    base: str | None
    offset: int


class Negated(NamedTuple):
    """`!p`, a predicate read inverted, or `-r` of vmad."""

    name: str


class Pair(NamedTuple):
    """`d|p`, a destination with a second, predicate destination."""

    first: Operand
    second: Operand


class Vector(NamedTuple):
    """`{a, b, ...}` or a parenthesised list."""

    items: tuple[Operand, ...]


class Symbol(NamedTuple):
    """`name+offset` of a variable, or a plain name: a register, a variable, a label or a function."""

    name: str
    offset: int = 0


Operand = Immediate | Address | Negated | Pair | Vector | Symbol


class Instruction(NamedTuple):
    """One instruction: `@guard opcode operands` with the source line that it came from."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str | None
    inverted: bool
    location: Location
    text: str


class Label(NamedTuple):
    """A branch target inside a function body."""

    name: str


class Variable(NamedTuple):
    """A variable of any state space: size in bytes, and initial values as (byte offset, width, value or symbol)."""

    name: str
    space: str
    type: str
    align: int
    size: int
    dynamic: bool
    initial: tuple[tuple[int, int, Immediate | Symbol, int], ...]
    location: Location


class Prototype(NamedTuple):
    """What a call through a pointer declares of its callee: the bytes of its results and of its parameters."""

    results: tuple[int, ...]
    parameters: tuple[int, ...]


class Function(NamedTuple):
    """An entry or a device function; `body` is None for a declaration.

    prototypes: of calls through pointers, by label. most_threads: of a block, by `__launch_bounds__`; needs_block: the
    block that `__block_size__` demands, x first. cluster: the blocks of a cluster, by `__cluster_dims__`.
    """

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    body: tuple[Instruction | Label, ...] | None
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    tables: dict[str, tuple[str, ...]]
    location: Location
    prototypes: dict[str, Prototype]
    most_threads: int | None = None
    needs_block: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None

    @property
    def shape(self) -> Prototype:
        """What a call through a pointer declares of it."""
        return Prototype(*(tuple(variable.size for variable in side) for side in (self.results, self.parameters)))

    def type_of(self, name: str) -> str | None:
        """Return the type of a register, which may be one of a range `%r<5>`; None where the name is not a register."""
        base, at, scope = name.partition("@")
        prefix = base.rstrip("0123456789") + at + scope
        return self.registers.get(name) or (self.registers.get(prefix + "<>") if prefix != name else None)


class Functions(Mapping[str, Function]):
    """The functions of a module by name, each parsed when it is first requested.

    entries: the kernels that have a body. bodies: all functions that have one. holding: those of them that declare
    variables in global or constant memory.
    """

    def __init__(self) -> None:
        self._parse: dict[str, Callable[[], Function]] = {}
        self._parsed: dict[str, Function] = {}
        self.entries: dict[str, None] = {}
        self.bodies: dict[str, None] = {}
        self.holding: dict[str, None] = {}

    def add(self, name: str, parse: Callable[[], Function]) -> None:
        """Add a function, or put another in its place."""
        self._parse[name] = parse

    def __getitem__(self, name: str) -> Function:
        if name not in self._parsed:
            self._parsed[name] = self._parse[name]()
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parse)

    def __len__(self) -> int:
        return len(self._parse)


class Module(NamedTuple):
    """A parsed PTX file.

    kept: of code with debug information, the source's variables in local memory, by the name of that memory.
    """

    version: str
    target: str
    files: dict[int, str]
    functions: Functions
    variables: dict[str, Variable]
    kept: dict[str, tuple[debug_info.Variable, ...]]
