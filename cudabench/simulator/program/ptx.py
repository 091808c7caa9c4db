"""The records of a parsed PTX file: functions, variables, and instructions with their source lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from cudabench.simulator.program import debug_info

# The width in bits of each PTX type (PTX ISA 5.2.1).
BITS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "tf32": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64, "b128": 128,
    "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16,
}  # fmt: skip


class Location(NamedTuple):
    """A place in a source file.

    file: an index into the module's `.file` table. line, column: counted from 1; 0 if unknown. ptx_line: for an
    instruction, its line in the PTX text, counted from 1; otherwise 0. group: whether the instruction belongs to code
    of cooperative groups that is called at this place. caller: for code of an inlined function, (file, line, column) of
    the call, else ().
    """

    file: int
    line: int
    ptx_line: int = 0
    column: int = 0
    group: bool = False
    caller: tuple[int, ...] = ()

    @property
    def statement(self) -> tuple[int, int, int, tuple[int, ...]]:
        """The statement in the source: it is equal for all copies that the compiler makes of it in unrolled loops."""
        return self.file, self.line, self.column, self.caller


class Immediate(NamedTuple):
    """A literal. value: the integer, or the IEEE bits of a float; float_bits: the float's width (32 or 64), else 0."""

    value: int
    float_bits: int = 0

    def as_float(self, bits: int) -> int:
        """Return the bits of the number as a float of `bits` bits."""
        own = self.float_bits // 8
        number = np.array([self.value], f"u{own}").view(f"f{own}") if own else np.array([self.value])
        return int(number.astype(f"f{bits // 8}").view(f"u{bits // 8}")[0])


class Address(NamedTuple):
    """`[base+offset]`: base names a register or a variable, or is None for an absolute address."""

    base: str | None
    offset: int


class Negated(NamedTuple):
    """`!p`, an inverted predicate, or `-r`, a negated operand of `vmad`."""

    name: str


class Pair(NamedTuple):
    """`d|p`: a destination register, and a predicate that is a second destination."""

    first: Operand
    second: Operand


class Vector(NamedTuple):
    """`{a, b, ...}` or a parenthesised list."""

    items: tuple[Operand, ...]


class Symbol(NamedTuple):
    """The name of a register, variable, label or function; for a variable also `name+offset`."""

    name: str
    offset: int = 0


Operand = Immediate | Address | Negated | Pair | Vector | Symbol


class Instruction(NamedTuple):
    """One instruction, `@guard opcode.modifiers operands`, with its place in the source.

    guard: the name of the guard predicate, or None; inverted: whether the guard is inverted (`@!p`). text: the opcode
    with the modifiers.
    """

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
    """A variable of any state space.

    space: its state space, '' for a register. align, size: in bytes. dynamic: whether it is an array without a size.
    initial: its initial values, each as (byte offset, width in bytes, number or symbol, mask: which bits of the value
    are stored, -1 for all).
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    dynamic: bool
    initial: tuple[tuple[int, int, Immediate | Symbol, int], ...]
    location: Location


class Prototype(NamedTuple):
    """The prototype that a call through a pointer declares: the size in bytes of each result and parameter."""

    results: tuple[int, ...]
    parameters: tuple[int, ...]


class Function(NamedTuple):
    """A kernel (an entry) or a device function.

    body: its instructions and labels, None for a declaration. registers: the type of each register; a range such as
    `%r<5>` has the name `%r<>`. variables: the variables declared in the body. tables: the labels of each
    `.branchtargets`. location: the first source location in the body. prototypes: the prototypes of calls through
    pointers, by label. most_threads: the largest number of threads per block, from `__launch_bounds__`. needs_block:
    the block size that `__block_size__` requires, x first. cluster: the cluster size in blocks, from
    `__cluster_dims__`, x first.
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
        """The prototype with which a call through a pointer can reach the function."""
        return Prototype(*(tuple(variable.size for variable in side) for side in (self.results, self.parameters)))

    def type_of(self, name: str) -> str | None:
        """Return the type of a register, which may belong to a range `%r<5>`; None if the name is not a register."""
        base, at, scope = name.partition("@")
        prefix = base.rstrip("0123456789") + at + scope
        return self.registers.get(name) or (self.registers.get(prefix + "<>") if prefix != name else None)


class Functions(Mapping[str, Function]):
    """The functions of a module by name, each parsed when it is first requested.

    entries: the names of the kernels that have a body. bodies: the names of all functions that have a body. holding:
    the names of the functions whose body declares variables in global or constant memory. outlines: functions without
    their bodies, for `outline`.
    """

    def __init__(self) -> None:
        self._parse: dict[str, Callable[[], Function]] = {}
        self._parsed: dict[str, Function] = {}
        self.entries: dict[str, None] = {}
        self.bodies: dict[str, None] = {}
        self.holding: dict[str, None] = {}
        self.outlines: dict[str, Function] = {}

    def add(self, name: str, parse: Callable[[], Function]) -> None:
        """Add a function, or replace the function of this name; `parse` returns the parsed function."""
        self._parse[name] = parse

    def __getitem__(self, name: str) -> Function:
        if name not in self._parsed:
            self._parsed[name] = self._parse[name]()
        return self._parsed[name]

    def outline(self, name: str) -> Function:
        """Return a function, without its body if this avoids parsing it."""
        return self.outlines.get(name) or self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parse)

    def __len__(self) -> int:
        return len(self._parse)


class Module(NamedTuple):
    """A parsed PTX file.

    files: the paths of the `.file` table. variables: the module variables by name. debug_variables: for code with debug
    information, the result of `debug_info.local_variables`.
    """

    version: str
    target: str
    files: dict[int, str]
    functions: Functions
    variables: dict[str, Variable]
    debug_variables: dict[str, tuple[debug_info.Variable, ...]]
