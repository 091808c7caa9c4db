"""Calls that cannot be inlined: of functions that call themselves, and through pointers.

Such a function is decoded once for a kernel and entered by jumps. The lanes' ways back, and what a caller still needs
that the callee may overwrite, lie on a stack (`simulator.stack`). A call through a pointer can reach each function of
the call's prototype whose address the module takes anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cudabench.simulator.memory import FUNCTION_WINDOW
from cudabench.simulator.program import ptx
from cudabench.simulator.program.ptx import BITS, Address, Function, Instruction, Module, Symbol, Vector

RESULT = "%result"  # the .param variable that all shared functions return in
FUNCTION_BYTES = 16  # from one function's address to the next

Piece = tuple[int, int]  # of a .param variable: its first byte, its bits


def function_addresses(module: Module) -> dict[str, int]:
    """Return an address for each function of a module that has a body."""
    bodies = [name for name, function in module.functions.items() if function.body is not None]
    return {name: FUNCTION_WINDOW + FUNCTION_BYTES * place for place, name in enumerate(bodies, 1)}


def pieces(function: Function, variable: str, opcode: str) -> tuple[Piece, ...]:
    """Return the parts of a .param variable that a function's ld or st instructions access, in their order."""
    found: dict[Piece, None] = {}
    for item in function.body or ():
        if not isinstance(item, Instruction) or item.opcode != opcode or "param" not in item.modifiers:
            continue
        place, value = item.operands if opcode == "st" else item.operands[::-1]
        if isinstance(place, Address) and place.base == variable:
            bits = BITS[item.modifiers[-1]]
            count = len(value.items) if isinstance(value, Vector) else 1
            found.update(((place.offset + number * bits // 8, bits), None) for number in range(count))
    return tuple(found)


class Target(NamedTuple):
    """What a call instruction calls: a function's name, or None and the name of a prototype.

    operand: what names it, a register or the function.
    """

    function: str | None
    prototype: str
    operand: ptx.Operand
    results: tuple[ptx.Operand, ...]
    arguments: tuple[ptx.Operand, ...]


def target(ins: Instruction, function: Function) -> Target:
    """Return what a call of a function calls."""
    first, *operands = ins.operands
    results: tuple[ptx.Operand, ...] = ()
    if isinstance(first, Vector):
        results, (first, *operands) = first.items, operands
    arguments = operands[0].items if operands and isinstance(operands[0], Vector) else ()
    name = first.name if isinstance(first, Symbol) else ""
    base, at, scope = name.partition("@")
    if name not in function.registers and base.rstrip("0123456789") + at + scope + "<>" not in function.registers:
        return Target(name, "", first, results, arguments)
    last = operands[-1] if operands else None
    return Target(None, last.name.partition("@")[0] if isinstance(last, Symbol) else "", first, results, arguments)


class Calls:
    """Which functions of a module a kernel may call, and how.

    recursive: those that may be active twice. order: the functions that are entered by jumps, callees first.
    """

    def __init__(self, module: Module, kernel: str) -> None:
        self.module = module
        self.addresses = function_addresses(module)
        self._taken: list[Function] | None = None
        edges: dict[str, tuple[str, ...]] = {}
        pointed: set[str] = set()
        waiting = [kernel]
        while waiting:
            name = waiting.pop()
            if name in edges:
                continue
            function = module.functions[name]
            callees: dict[str, None] = {}
            for item in function.body or ():
                if isinstance(item, Instruction) and item.opcode == "call":
                    called = target(item, function)
                    if called.function is None:
                        candidates = [one.name for one in self.candidates(function, called.prototype)]
                        pointed.update(candidates)
                        callees.update(dict.fromkeys(candidates))
                    elif (one := module.functions.get(called.function)) is not None and one.body is not None:
                        callees[called.function] = None
            edges[name] = tuple(callees)
            waiting.extend(callees)
        self.recursive, after = _cycles(kernel, edges)
        self.order = tuple(name for name in after if name in self.recursive or name in pointed)

    def candidates(self, function: Function, prototype: str) -> list[Function]:
        """Return the functions that a call through a pointer may reach, by a prototype that a function declares."""
        if self._taken is None:
            self._taken = [
                self.module.functions[name]
                for name in _taken(self.module)
                if self.module.functions[name].body is not None and not self.module.functions[name].entry
            ]
        shape = function.prototypes.get(prototype)
        return [one for one in self._taken if shape is None or shape == _shape(one)]


def _shape(function: Function) -> ptx.Prototype:
    return ptx.Prototype(
        tuple(variable.size for variable in function.results), tuple(variable.size for variable in function.parameters)
    )


def _taken(module: Module) -> dict[str, None]:
    """Return the names of the functions whose addresses a module takes."""
    found: dict[str, None] = {}

    def note(names: Iterable[str]) -> None:
        found.update(dict.fromkeys(name for name in names if name in module.functions))

    variables = [*module.variables.values(), *(v for f in module.functions.values() for v in f.variables)]
    for variable in variables:
        note(value.name for _, _, value, _ in variable.initial if isinstance(value, Symbol))
    for function in module.functions.values():
        for item in function.body or ():
            if isinstance(item, Instruction) and item.opcode not in ("call", "bra"):
                note(_symbols(item.operands))
    return found


def _symbols(operands: Sequence[ptx.Operand]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Symbol):
            yield operand.name
        elif isinstance(operand, Vector):
            yield from _symbols(operand.items)


def _cycles(root: str, edges: Mapping[str, Sequence[str]]) -> tuple[frozenset[str], list[str]]:
    """Return the functions that a call of theirs may lead back to, and all functions, callees first."""
    after: list[str] = []
    seen = {root}
    work = [(root, iter(edges[root]))]
    while work:
        name, ways = work[-1]
        following = next((way for way in ways if way not in seen), None)
        if following is None:
            after.append(name)
            work.pop()
        else:
            seen.add(following)
            work.append((following, iter(edges[following])))
    reach: dict[str, set[str]] = {}
    for name in after:
        ahead, met = list(edges[name]), set()
        while ahead:
            other = ahead.pop()
            if other not in met:
                met.add(other)
                ahead.extend(edges[other])
        reach[name] = met
    return frozenset(name for name in after if name in reach[name]), after


class Shared:
    """A function that is entered by jumps.

    number: its place among them, callees first. frame: bytes of local memory that one activation takes, where it is
    recursive, else 0: its local variables then have places of their own. reads: of its parameters; writes: of its
    result.
    """

    def __init__(self, function: Function, number: int, recursive: bool) -> None:
        self.function, self.number, self.recursive = function, number, recursive
        self.suffix = f"~{function.name}"
        self.entry = f"enter{self.suffix}"
        self.frame = 0
        self.locals: dict[str, int] = {}
        self.reads = {one.name: pieces(function, one.name, "ld") for one in function.parameters}
        self.writes = tuple(piece for one in function.results for piece in pieces(function, one.name, "st"))

    def place(self, key: str, align: int, size: int) -> int:
        """Return where in its frame a local variable lies."""
        if key not in self.locals:
            start = -(-self.frame // align) * align
            self.locals[key] = start
            self.frame = -(-(start + size) // 16) * 16
        return self.locals[key]


class Site:
    """A call of a shared function.

    after: the label, `back` the block, at which lanes go on behind it. callees, addresses: which functions it may
    reach. frame: the function around it, None in the kernel. saved: the registers that the caller needs behind the
    call and that the callee may overwrite.
    """

    def __init__(self, after: str, callees: Sequence[Shared], addresses: Sequence[int], frame: Shared | None) -> None:
        self.after, self.callees, self.addresses, self.frame = after, tuple(callees), tuple(addresses), frame
        self.back = -1
        self.saved: tuple[int, ...] = ()
        self.recursive = frame is not None and frame.recursive and any(one.recursive for one in callees)
