"""Calls that cannot be inlined: calls of recursive functions, and calls through function pointers.

A function that is called like this is named "shared" here: it is decoded once for a kernel and entered by jumps. A
stack (`simulator.stack`) holds the lanes' return addresses, and the registers that the caller needs after the call but
the callee may overwrite. A call through a pointer can reach each function that matches the call's prototype and whose
address is taken anywhere in the module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.errors import PtxError
from cudabench.simulator.isa.opcodes import SYSCALLS
from cudabench.simulator.memory import FUNCTION_WINDOW
from cudabench.simulator.program import ptx
from cudabench.simulator.program.code import Block, Op, Refuse
from cudabench.simulator.program.order import strongly_connected
from cudabench.simulator.program.ptx import (
    BITS,
    Address,
    Function,
    Instruction,
    Location,
    Module,
    Operand,
    Symbol,
    Vector,
)
from cudabench.simulator.values import UNSIGNED, Value

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.builder import Builder

_REFUSED_CALLS = {
    **dict.fromkeys(
        ("cudaLaunchDeviceV2", "cudaGetParameterBufferV2", "cudaLaunchDevice", "cudaGetParameterBuffer",
         "__cudaCDP2LaunchDeviceV2", "__cudaCDP2GetParameterBufferV2", "cudaDeviceSynchronize",
         "cudaStreamCreateWithFlags", "cudaStreamDestroy", "cudaStreamWaitEvent", "cudaEventCreateWithFlags",
         "cudaEventRecord", "cudaEventDestroy"), "dynamic parallelism"
    ),
    **dict.fromkeys(("cudaCGGetIntrinsicHandle", "cudaCGSynchronize"), "grid sync (cooperative groups)"),
}  # fmt: skip

RESULT = "%result"  # the .param variable that holds the result of every shared function
FUNCTION_BYTES = 16  # distance from one function's address to the next

Piece = tuple[int, int]  # a part of a .param variable: (its first byte, its size in bits)
# A register that is a part of a value: (index, width in bits, its first bit in the value). If the first bit is
# negative, the lowest bits of the register are cut off.
Part = tuple[int, int, int]


def function_addresses(module: Module) -> dict[str, int]:
    """Return an address for each function that has a body, by the function's name."""
    bodies = (name for name in module.functions if name in module.functions.bodies)
    return {name: FUNCTION_WINDOW + FUNCTION_BYTES * place for place, name in enumerate(bodies, 1)}


def pieces(function: Function, variable: str, opcode: str) -> tuple[Piece, ...]:
    """Return the parts of a .param variable that a function accesses, in the order of the accesses.

    opcode: "ld" for the parts that it reads, "st" for those that it writes.
    """
    parts: dict[Piece, None] = {}
    for item in function.body or ():
        if not isinstance(item, Instruction) or item.opcode != opcode or "param" not in item.modifiers:
            continue
        place, value = item.operands if opcode == "st" else item.operands[::-1]
        if isinstance(place, Address) and place.base == variable:
            bits = BITS[item.modifiers[-1]]
            count = len(value.items) if isinstance(value, Vector) else 1
            parts.update(((place.offset + number * bits // 8, bits), None) for number in range(count))
    return tuple(parts)


class Target(NamedTuple):
    """The callee and the operands of a call instruction.

    function: the name of the callee, or None in a call through a pointer. prototype: in a call through a pointer, the
    name of the call's prototype. operand: the operand that names the callee: a function, or the register with the
    pointer. results, arguments: the operands that receive the results, and those that are passed to the callee.
    """

    function: str | None
    prototype: str
    operand: Operand
    results: tuple[Operand, ...]
    arguments: tuple[Operand, ...]


def target(ins: Instruction, function: Function) -> Target:
    """Return the callee and the operands of a call instruction in the body of `function`."""
    first, *operands = ins.operands
    results: tuple[Operand, ...] = ()
    if isinstance(first, Vector):
        results, (first, *operands) = first.items, operands
    arguments = operands[0].items if operands and isinstance(operands[0], Vector) else ()
    name = first.name if isinstance(first, Symbol) else ""
    if function.type_of(name) is None:
        return Target(name, "", first, results, arguments)
    last = operands[-1] if operands else None
    return Target(None, last.name.partition("@")[0] if isinstance(last, Symbol) else "", first, results, arguments)


class Calls:
    """The functions of a module that a kernel may call.

    recursive: the names of the functions that may be called again before they return. order: the names of the functions
    that are entered by jumps, callees first. addresses: the address of each function, by name.
    """

    def __init__(self, module: Module, kernel: str) -> None:
        self.module = module
        self.addresses = function_addresses(module)
        edges: dict[str, list[str]] = {}
        pointed: set[str] = set()
        waiting = [kernel]
        while waiting:
            name = waiting.pop()
            if name in edges:
                continue
            function = module.functions[name]
            callees = edges[name] = []
            for item in function.body or ():
                if isinstance(item, Instruction) and item.opcode == "call":
                    called = target(item, function)
                    if called.function is None:
                        candidates = [candidate.name for candidate in self.candidates(function, called.prototype)]
                        pointed.update(candidates)
                        callees += candidates
                    elif called.function in self.addresses:
                        callees.append(called.function)
            waiting.extend(callees)
        names = [*edges]
        numbers = {name: number for number, name in enumerate(names)}
        successors = [[numbers[callee] for callee in callees] for callees in edges.values()]
        parts = strongly_connected([0], successors, range(len(names)))
        back = {number for part in parts for number in part if len(part) > 1 or number in successors[number]}
        self.recursive = frozenset(names[number] for number in back)
        after = (names[number] for part in parts for number in part)
        self.order = tuple(name for name in after if name in self.recursive or name in pointed)

    def candidates(self, function: Function, prototype: str) -> list[Function]:
        """Return the functions that a call through a pointer may reach.

        function: the caller; prototype: the name of the call's prototype, which the caller declares.
        """
        shape = function.prototypes.get(prototype)
        return [candidate for candidate in self.address_taken if shape in (None, candidate.shape)]

    @cached_property
    def address_taken(self) -> list[Function]:
        """The functions whose addresses the module takes."""
        functions = self.module.functions
        variables = chain(self.module.variables.values(), *(functions[name].variables for name in functions.holding))
        names = [value.name for data in variables for _, _, value, _ in data.initial if isinstance(value, Symbol)]
        for item in chain.from_iterable(function.body or () for function in functions.values()):
            if isinstance(item, Instruction) and item.opcode not in ("call", "bra"):
                names += _symbols(item.operands)
        taken = (functions[name] for name in dict.fromkeys(names) if name in self.addresses)
        return [function for function in taken if not function.entry]


def _symbols(operands: Sequence[Operand]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Symbol):
            yield operand.name
        elif isinstance(operand, Vector):
            yield from _symbols(operand.items)


class SharedFunction:
    """A function that is entered by jumps.

    number: the function's index in `Calls.order`. suffix: is appended to the names of the function's labels and
    variables. entry: the label of the function's first op. frame: the bytes of local memory that one activation of a
    recursive function takes; 0 for other functions, whose local variables have fixed addresses. reads: for the name of
    each parameter, the parts of the parameter that the function reads. writes: the parts of the result that the
    function writes.
    """

    def __init__(self, function: Function, number: int, recursive: bool) -> None:
        self.function, self.number, self.recursive = function, number, recursive
        self.suffix = f"~{function.name}"
        self.entry = f"enter{self.suffix}"
        self.frame = 0
        self.locals: dict[str, int] = {}
        self.reads = {formal.name: pieces(function, formal.name, "ld") for formal in function.parameters}
        self.writes = tuple(piece for result in function.results for piece in pieces(function, result.name, "st"))

    def place(self, key: str, align: int, size: int) -> int:
        """Return the offset of a local variable in the frame, in bytes; add the variable if it is new."""
        if key not in self.locals:
            start = -(-self.frame // align) * align
            self.locals[key] = start
            self.frame = -(-(start + size) // 16) * 16
        return self.locals[key]


class CallSite:
    """A call of a shared function.

    after, back: the label and the number of the block where lanes continue after the call. callees, addresses: the
    functions that the call may reach, and their addresses. frame: the shared function that contains the call, None if
    the kernel contains it. saved: the registers that the caller needs after the call and that the callee may overwrite.
    recursive: whether the caller and a callee are recursive functions.
    """

    def __init__(
        self, after: str, callees: Sequence[SharedFunction], addresses: Sequence[int], frame: SharedFunction | None
    ) -> None:
        self.after, self.callees, self.addresses, self.frame = after, tuple(callees), tuple(addresses), frame
        self.back = -1
        self.saved: tuple[int, ...] = ()
        self.recursive = frame is not None and frame.recursive and any(callee.recursive for callee in callees)


# How a builder appends calls.


class Frame:
    """One inlined copy of a function, with its own registers, local variables and .param variables.

    suffix: is appended to the names in the copy to make them unique. params: for each parameter and result of the
    function, the name of the caller's .param variable. end: the label after the copy.
    """

    def __init__(self, function: ptx.Function, suffix: str) -> None:
        self.function = function
        self.suffix = suffix
        self.registers: dict[str, int] = {}
        self.params: dict[str, str] = {}
        self.variables = {variable.name: variable for variable in function.variables}
        self.end = f"end{suffix}"


def append_shared(builder: Builder) -> list[str]:
    """Append the functions that are entered by jumps; return the labels of their entries, in the order of appending."""
    if not builder.sites:
        return []
    builder.stream.append(Op(None, "exit", builder.kernel.location))
    done: list[str] = []
    while missing := [callee for site in builder.sites for callee in site.callees if callee.entry not in done]:
        called = builder.activation = missing[0]
        frame = Frame(called.function, called.suffix)
        for formal in called.function.parameters:
            if formal.space == "":
                raise PtxError(f"{called.function.name} takes its arguments in registers and cannot be shared.")
            frame.params[formal.name] = f"{formal.name}{called.suffix}"
        frame.params.update((result.name, RESULT) for result in called.function.results)
        builder.stream.append(called.entry)
        builder.inline(frame)
        builder.stream.append(frame.end)
        builder.returns[called.entry] = Op(None, "return", called.function.location, "ret")
        builder.stream.append(builder.returns[called.entry])
        done.append(called.entry)
    for called in builder.shared_functions.values():
        if called.entry in builder.returns:
            builder.returns[called.entry].labels = tuple(site.after for site in builder.sites if called in site.callees)
    return done


def functions_first(builder: Builder, blocks: Sequence[Block], order: Sequence[int]) -> list[int]:
    """Return the numbers of the blocks, sorted so that a function's blocks come before those of its callers.

    The blocks of one function keep their order in `order`. Lanes inside a function must return before the lanes that
    wait for them continue.
    """
    owner = {number: called.number for number, called in segments(blocks)}
    return sorted(order, key=lambda number: owner.get(number, len(builder.shared_functions)))


def calls(blocks: Sequence[Block]) -> Iterator[tuple[Op, CallSite]]:
    """Yield each call of a shared function as (its op, its record)."""
    for end in (block.terminator for block in blocks):
        if end is not None and end.site is not None:
            yield end, end.site


def segments(blocks: Sequence[Block]) -> Iterator[tuple[int, SharedFunction]]:
    """Yield (number of the block, the shared function that it belongs to) for each block of a shared function."""
    starts = {at: callee for end, site in calls(blocks) for at, callee in zip(end.targets, site.callees, strict=False)}
    called = None
    for block in blocks:
        called = starts.get(block.number, called)
        if called is not None:
            yield block.number, called


def find_saved_registers(builder: Builder, blocks: Sequence[Block]) -> None:
    """Set `saved` of each recursive call: the registers that the caller needs later and recursive functions write."""
    ops = [op for number, called in segments(blocks) if called.recursive for op in blocks[number].ops]
    written = {index for op in ops for index in op.defs}
    written -= {builder.stack_pointer, *builder.slots.get(RESULT, {}).values()}
    for end, site in calls(blocks):
        site.back = end.targets[-1]
        if site.recursive:
            live = blocks[site.back].live
            site.saved = (*(index for index in sorted(written) if live >> index & 1), builder.stack_pointer)


def call(builder: Builder, ins: Instruction) -> None:
    """Append the ops of a call instruction.

    Usually the callee is inlined: its ops are appended. Raises Refuse for a call that the simulator lacks.
    """
    called = target(ins, builder.frame.function)
    name, results, arguments = called.function, called.results, called.arguments
    if name is None:
        candidates = builder.calls.candidates(builder.frame.function, called.prototype)
        callees = [builder.shared_functions[candidate.name] for candidate in candidates]
        enter(builder, ins, called, callees, builder.source(called.operand, "b64"))
        return
    if name in _REFUSED_CALLS:
        raise Refuse(_REFUSED_CALLS[name])
    function = builder.module.functions.get(name)
    if name in SYSCALLS and (function is None or function.body is None):
        builder.finish(ins, SYSCALLS[name](builder, results, arguments))
        return
    if function is None or function.body is None:
        raise Refuse(f"a call of {name}, which has no body in this PTX")
    if name in builder.calls.recursive:
        enter(builder, ins, called, [builder.shared_functions[name]], -1)
        return
    builder.frames += 1
    frame = Frame(function, f"~{builder.frames}")
    builder.skip(ins, frame.end)
    for formal, actual in (
        *zip(function.parameters, arguments, strict=True),
        *zip(function.results, results, strict=True),
    ):
        if formal.space == "":
            raise Refuse(f"a call of {name}, whose parameters are registers")
        shared = builder.param_name(actual.name) if isinstance(actual, Symbol) else None
        if shared is None:  # a literal or a register
            if any(formal is result for result in function.results):
                raise Refuse("a call that returns in a register")
            shared = f"{formal.name}{frame.suffix}"
            move(builder, builder.slot(shared, 0, formal.size * 8), builder.source(actual, formal.type), ins.location)
        frame.params[formal.name] = shared
    builder.inline(frame)
    builder.stream.append(frame.end)
    builder.ins = ins


def enter(builder: Builder, ins: Instruction, called: Target, callees: Sequence[SharedFunction], selector: int) -> None:
    """Append a call of a shared function.

    callees: the functions that the call may reach. selector: the register with the callee's address, or -1 if only one
    callee is possible.
    """
    number = len(builder.sites)
    past, after = f"past#{number}", f"after#{number}"
    site = CallSite(
        after, callees, [builder.calls.addresses[callee.function.name] for callee in callees], builder.activation
    )
    builder.sites.append(site)
    writes = tuple(dict.fromkeys(piece for callee in callees for piece in callee.writes))
    if any(x != y and x[0] < y[0] + y[1] // 8 and y[0] < x[0] + x[1] // 8 for x in writes for y in writes):
        raise Refuse("a call through a pointer to functions that return a struct in different pieces")
    builder.skip(ins, past)
    pointer = builder.stack_pointer

    def push(machine: Machine) -> None:
        machine.stack.push(machine, site, pointer)

    builder.stream.append(Op(push, "plain", ins.location, "call", uses=(pointer,), defs=(pointer,), pointer=0))
    for callee in callees:
        for formal, actual in zip(callee.function.parameters, called.arguments, strict=False):
            bind(builder, callee, formal, actual, ins.location)
    call = Op(None, "call", ins.location, "call", site=site, selector=selector)
    call.labels = (*(callee.entry for callee in callees), after)
    call.uses = () if selector < 0 else (selector,)
    pop = Op(lambda machine: machine.stack.pop(machine, site), "plain", ins.location, "call")
    builder.stream += [call, after, pop]
    for result in called.results:
        name = builder.param_name(result.name) if isinstance(result, Symbol) else None
        if name is None:
            raise Refuse("a call through a pointer, or of a recursive function, that returns in a register")
        for offset, width in writes:
            move(builder, builder.slot(name, offset, width), builder.slot(RESULT, offset, width), ins.location)
    if ins.guard is not None:
        builder.stream.append(past)


def bind(builder: Builder, callee: SharedFunction, formal: ptx.Variable, actual: Operand, location: Location) -> None:
    """Append the ops that copy an argument (`actual`) to a shared function's parameter (`formal`)."""
    parameter = f"{formal.name}{callee.suffix}"
    name = builder.param_name(actual.name) if isinstance(actual, Symbol) else None
    if name is None:
        bits = formal.size * 8
        move(builder, builder.slot(parameter, 0, bits), builder.source(actual, formal.type), location)
        return
    for start, bits in callee.reads[formal.name]:
        target, parts = builder.slot(parameter, start, bits), parts_of(builder, name, start, bits)
        if parts:
            join(builder, target, parts, location)


def parts_of(builder: Builder, variable: str, start: int, bits: int) -> list[Part]:
    """Return the registers that hold the `bits` bits of a .param variable from byte `start` on."""
    slots = builder.slots.get(variable, {})
    if (start, bits) in slots:
        return [(slots[start, bits], bits, 0)]
    return [
        (slot, width, (offset - start) * 8)
        for (offset, width), slot in slots.items()
        if offset < start + bits // 8 and offset + width // 8 > start
    ]


def join(builder: Builder, target: int, parts: Sequence[Part], location: Location) -> None:
    """Append an op that joins the bits of registers in the register `target`."""
    bits = builder.width(target)

    def run(machine: Machine) -> None:
        machine.put(target, composed(machine, bits, parts))

    builder.stream.append(Op(run, "plain", location, defs=(target,), uses=tuple(slot for slot, _, _ in parts)))


def move(builder: Builder, target: int, source: int, location: Location) -> None:
    """Append an op that copies the register `source` to `target`."""
    join(builder, target, [(source, builder.width(target), 0)], location)


def composed(machine: Machine, bits: int, parts: Sequence[Part]) -> Value:
    """Return a value of `bits` bits that is joined from the bits of registers."""
    if parts[0][1:] == (bits, 0):
        return machine.registers[parts[0][0]]
    total: Value = np.uint64(0)
    for slot, width, shift in parts:
        part = machine.array(slot, UNSIGNED[width]).astype(np.uint64)
        total = total | (part << np.uint64(shift) if shift >= 0 else part >> np.uint64(-shift))
    return total.astype(UNSIGNED[bits])
