"""Translates a kernel's parsed functions into ops. Calls are inlined where that is possible (see `calls`).

One list of basic blocks holds the whole kernel, including its inlined functions. Registers become indices; the
`.param` variables of calls become registers, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from cudabench.simulator.errors import PtxError, UnsupportedKernel, remedy
from cudabench.simulator.isa.opcodes import builder_of
from cudabench.simulator.memory import PARAMETER_WINDOW, SLOT_BITS
from cudabench.simulator.native.emit import encoded
from cudabench.simulator.program import debug_info, flow, ptx
from cudabench.simulator.program.calls import (
    Calls,
    CallSite,
    Frame,
    SharedFunction,
    append_shared,
    call,
    find_saved_registers,
    functions_first,
)
from cudabench.simulator.program.code import (
    LOCAL_BIT,
    SHARED_BIT,
    SPECIAL_AXES,
    SPECIAL_WORDS,
    SYMBOL_BIT,
    AccessKind,
    Code,
    MemoryInstruction,
    Op,
    Refuse,
    Unsupported,
)
from cudabench.simulator.program.order import arranged
from cudabench.simulator.program.polls import Places, StrongLoad, mark_polls, may_wait
from cudabench.simulator.program.ptx import Address, Immediate, Instruction, Label, Negated, Operand, Symbol
from cudabench.simulator.program.warpgroups import Step, watch_products
from cudabench.simulator.values import UNDEFINED, UNSIGNED, uniform

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


# Unoptimised code of cooperative groups reads this register even if nothing depends on its value.
_UNUSED_WORD, UNUSED_OFFSET = "%reserved_smem_offset_1", 1 << 23
_CLOCKS = {  # for each register: its width in bits, and the first bit that it contains of the 64-bit clock
    "%clock": (32, 0), "%clock_hi": (32, 32), "%clock64": (64, 0),
    "%globaltimer": (64, 0), "%globaltimer_lo": (32, 0), "%globaltimer_hi": (32, 32),
}  # fmt: skip
MAX_INLINED = 400_000
STACK_POINTERS = ("%SP", "%SPL")
DYNAMIC_SHARED = -1  # stands for the end of the static shared memory, which is unknown until the kernel is decoded

Known = TypeVar("Known", bound=Hashable)


class Builder:
    """Turns a kernel's instructions into ops.

    The function that builds the op of an opcode gets the builder, and reads the operands with the builder's methods
    `source`, `target`, `address` and so on.
    """

    def __init__(self, module: ptx.Module, name: str, symbols: Mapping[str, int]) -> None:
        self.module, self.symbols = module, symbols
        self.kernel = module.functions[name]
        self.widths: list[int] = []
        self.initial: list[int | None] = []
        self.constants: dict[tuple[int, int], int] = {}
        self.scratch: dict[tuple[int, int], int] = {}  # registers that only the native engine uses: (width, number)
        self.special: dict[str, int] = {}
        self.stream: list[Op | str] = []
        self.refused: dict[Unsupported, None] = {}
        self.frames = self.local_bytes = self.static_shared = 0
        self.shared: dict[str, tuple[int, int]] = {}
        self.dynamic: dict[str, None] = {}
        self.dynamic_align = 16  # alignment of the dynamic shared memory in bytes
        self.granule = {"shared": 16, "global": 16}
        self.accesses: list[MemoryInstruction] = []
        self.frame = Frame(self.kernel, "")
        self.uses: list[int] = []
        self.defs: list[int] = []
        self.slots: dict[str, dict[tuple[int, int], int]] = {}
        self.slots_local: dict[str, int] = {}
        self.dynamic_constants: list[int] = []
        self.pointer: int | None = None
        self.memory: list[MemoryOp] = []  # all memory accesses
        # Ops that read the clock, each with the number of instructions from the op to the end of its basic block, which
        # `build` sets.
        self.clocks: list[tuple[Op, list[int]]] = []
        self.strong_loads: list[StrongLoad] = []
        self.signed: set[int] = set()  # ids of the ops after which waiting thread blocks may continue
        self.signs = False  # whether the instruction that is being built may end the wait of other thread blocks
        self.swaps: list[tuple[int, int]] = []  # compare-and-swaps: registers of (the expected value, the address)
        # For each register that a `selp` may choose: the register of the predicate, and its value where it is chosen.
        self.choices: dict[int, tuple[int, bool]] = {}
        self.swapping = self.fencing = False  # whether the kernel has atomics that take a lock; whether it has fences
        self.proxies = False  # whether wgmma or bulk copies read shared memory
        self.products: dict[int, Step] = {}  # wgmma instructions, by the id of their op
        self.local_starts: list[int] = []  # the first byte of each local array whose address is taken
        self.debug_variables: list[debug_info.Variable] = []  # in local memory, from the debug information
        self.fixed: list[flow.Slot] = []  # loads and stores of unoptimised code at fixed offsets in local memory
        self.stack_escapes = False  # whether a stack pointer is used in a way that `note_slot` does not understand
        # Registers that hold an address of shared memory, keyed by (array, offset).
        self.shared_addresses: dict[tuple[str, int], int] = {}
        # Whether the kernel has a fence, or a non-atomic access with a memory order, that may order blocks.
        self.orders = False
        self.address_register, self.address_offset = -1, 0
        self.access_made: MemoryOp | None = None  # the memory access of the instruction that is being built
        self.ins: Instruction = None  # type: ignore[assignment]
        self.calls = Calls(module, name)
        self.shared_functions = {
            called: SharedFunction(module.functions[called], number, called in self.calls.recursive)
            for number, called in enumerate(self.calls.order)
        }
        self.sites: list[CallSite] = []
        self.returns: dict[str, Op] = {}  # the return op of each shared function, by the label of the function's entry
        self.activation: SharedFunction | None = None  # the shared function (entered by jumps) that is being decoded
        self.stack_pointer = self.new(64)  # address in local memory of a recursive function's frame
        self.parameter_offsets: dict[str, int] = {}
        self.parameter_bytes = 0
        for parameter in self.kernel.parameters:
            align = max(1, parameter.align)
            offset = self.parameter_offsets[parameter.name] = -(-self.parameter_bytes // align) * align
            self.parameter_bytes = offset + parameter.size

    # Registers and operands.

    def new(self, width: int, value: int | None = 0) -> int:
        """Add a register and return its index; `width`: in bits, 1 for a predicate; `value`: its initial value, None if
        it is unwritten."""
        self.widths.append(width)
        self.initial.append(value)
        return len(self.widths) - 1

    def once(self, registers: dict[Known, int], key: Known, width: int, value: int = 0) -> int:
        """Return the register `registers[key]`; if the key is missing, add a new register there first."""
        if key not in registers:
            registers[key] = self.new(width, value)
        return registers[key]

    def register(self, name: str) -> int | None:
        """Return the index of a register of the current function, or None if the name is not a register."""
        index = self.frame.registers.get(name)
        if index is None:
            type_ = self.frame.function.type_of(name)
            if type_ is None:
                return None
            width = ptx.BITS[type_]
            index = self.frame.registers[name] = self.new(width, None if width in UNDEFINED else 0)
        return index

    def width(self, index: int) -> int:
        """Return a register's width in bits."""
        return self.widths[index]

    def constant(self, value: int, width: int) -> int:
        """Return a register that always holds this integer (or this bool, if the width is 1)."""
        return self.once(self.constants, (value, width), width, value)

    def source(self, operand: Operand, type_: str) -> int:
        """Return the register that holds a source operand, read as the type."""
        if isinstance(operand, Immediate):
            return self.immediate(operand, type_)
        if isinstance(operand, Symbol):
            index = self.register(operand.name)
            if index is None:
                index = self.named(operand, ptx.BITS[type_])
            self.uses.append(index)
            return index
        raise Refuse(f"instruction {self.ins.text} with this operand")

    def immediate(self, operand: Immediate, type_: str) -> int:
        """Return a register that holds a literal, converted to the bits of the type."""
        width = ptx.BITS[type_]
        value = operand.value
        if type_ == "pred":
            return self.constant(bool(value), 1)
        bits = operand.float_bits
        if width in (32, 64) and bits != width and (bits or type_ in ("f32", "f64")):
            value = operand.as_float(width)
        half = 1 << (width - 1)
        value &= (1 << width) - 1
        if value >= half and operand.value < 0:
            value -= 1 << width
        return self.constant(value, width)

    def named(self, symbol: Symbol, width: int) -> int:
        """Return the register for a name that is not a register of the function: a special register such as `%tid.x`,
        or the address of a variable. Raises Refuse for a special register that the simulator lacks."""
        name = symbol.name
        base, _, axis = name.partition(".")
        if name in _CLOCKS:
            return self.clock(*_CLOCKS[name])
        if (base in SPECIAL_AXES and axis in ("x", "y", "z")) or base in SPECIAL_WORDS:
            return self.once(self.special, name, 1 if base == "%is_explicit_cluster" else 32)
        if name == _UNUSED_WORD and "debug" in self.module.target:
            return self.constant(UNUSED_OFFSET, width)
        if name.startswith("%"):
            raise Refuse(f"register {name}")
        return self.named_address(name, symbol.offset)

    def clock(self, width: int, shift: int) -> int:
        """Append an op that reads the clock, and return the register with its result.

        The clock is the number of executed instructions. The register gets `width` bits of it, from bit `shift` on.
        """
        index = self.new(width)
        before = [0]

        def run(machine: Machine) -> None:
            # `steps` already counts the whole basic block: subtract the instructions from this op on.
            machine.put(index, uniform((machine.steps - before[0]) >> shift, width))

        op = Op(run, "plain", self.ins.location, "clock", defs=(index,), pointer=0)
        self.stream.append(op)
        self.clocks.append((op, before))
        return index

    def named_address(self, name: str, offset: int) -> int:
        """Return a register that holds a variable's address plus an offset."""
        local = self.frame.variables.get(name)
        if local is not None and local.space == "local" and self.activation is not None and self.activation.recursive:
            return self.in_frame(self.activation.place(f"{name}{self.frame.suffix}", local.align, local.size) + offset)
        address, key = self.variable(name), self.key(name)
        if key in self.shared:
            # This register identifies the array, so the register of an equal constant cannot be used.
            return self.once(self.shared_addresses, (key, offset), 64, address + offset)
        if address != DYNAMIC_SHARED:
            return self.constant(address + offset, 64)
        # The dynamic shared memory begins at the end of the static shared memory; `build` adds that address when it is
        # known.
        index = self.new(64, offset)
        self.dynamic_constants.append(index)
        return index

    def in_frame(self, offset: int) -> int:
        """Append an op that computes the address `offset` bytes after the stack pointer, in the frame of a recursive
        function; return the register of its result."""
        index, pointer = self.new(64), self.stack_pointer

        def run(machine: Machine) -> None:
            machine.put(index, machine.array(pointer, UNSIGNED[64]) + np.uint64(offset))

        self.stream.append(Op(run, "plain", self.ins.location, "add", defs=(index,), uses=(pointer,), pointer=1))
        return index

    def variable(self, name: str) -> int:
        """Return the address of a variable in its own state space; DYNAMIC_SHARED for dynamic shared memory."""
        local = self.frame.variables.get(name)
        if local is not None and local.space == "local":
            key = f"{name}{self.frame.suffix}"
            if key not in self.slots_local:
                offset = -(-self.local_bytes // local.align) * local.align
                self.slots_local[key] = offset
                self.local_bytes = offset + local.size
                for kept in self.module.debug_variables.get(name, ()):
                    self.debug_variables.append(kept._replace(start=offset + kept.start, end=offset + kept.end))
            return self.slots_local[key]
        if local is not None and local.space == "param":
            raise Refuse(f"the address of a call's parameter ({name.partition('@')[0]})")
        variable, key = local or self.module.variables.get(name), self.key(name)
        if variable is not None and variable.space == "shared":
            return self.shared_offset(key, variable)
        if key in self.symbols:
            return self.symbols[key]
        if not self.frame.suffix and name in self.parameter_offsets:
            return PARAMETER_WINDOW + self.parameter_offsets[name]
        if name in self.calls.addresses:
            return self.calls.addresses[name]
        if variable is not None and variable.type in ("texref", "samplerref", "surfref"):
            raise Refuse("textures and surfaces")
        if variable is not None:
            raise Refuse(f"the variable {name} that is defined in another file")
        raise PtxError(f"the PTX uses the unknown name '{name}'.")

    def key(self, name: str) -> str:
        """Return a variable's name that is unique in the module: `function::name` if the function declares it."""
        return f"{self.frame.function.name}::{name}" if name in self.frame.variables else name

    def shared_offset(self, key: str, variable: ptx.Variable) -> int:
        """Return a static shared variable's offset in bytes; for a dynamic one, return DYNAMIC_SHARED."""
        if variable.dynamic:
            self.dynamic_align = max(self.dynamic_align, variable.align)
            self.dynamic[key] = None
            return DYNAMIC_SHARED
        if key not in self.shared:
            offset = -(-self.static_shared // variable.align) * variable.align
            self.shared[key] = (offset, variable.size)
            self.static_shared = offset + variable.size
        return self.shared[key][0]

    def target(self, operand: Operand) -> int:
        """Return the register that a destination operand names; `_` gives a register that nothing reads."""
        if isinstance(operand, Symbol):
            index = self.register(operand.name)
            if index is None:
                if operand.name == "_":
                    return self.new(64)
                raise PtxError(f"the PTX writes to '{operand.name}', which is not a register.")
            self.defs.append(index)
            return index
        raise Refuse(f"instruction {self.ins.text} with this destination")

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """Return (register, inverted) of a predicate operand."""
        if isinstance(operand, Negated):
            return self.source(Symbol(operand.name), "pred"), True
        return self.source(operand, "pred"), False

    def address(self, operand: Operand) -> tuple[int, int]:
        """Return (register, offset) of an address operand."""
        if not isinstance(operand, Address):
            raise Refuse(f"instruction {self.ins.text} with this address")
        if operand.base is None:
            self.address_register = self.constant(0, 64)
        else:
            self.address_register = self.source(Symbol(operand.base), "b64")
        self.address_offset = operand.offset
        return self.address_register, operand.offset

    def access(self, space: str, kind: AccessKind, size: int, granule: int, what: str = "") -> int:
        """Register a memory access, and return its index in `accesses`, under which its requests are counted.

        size: the bytes that the access moves per lane. granule: the largest unit, in bytes, in which races of this
        access can be checked; a kernel uses the smallest granule of its accesses. what: see `MemoryInstruction`.
        """
        for name in self.granule if space == "generic" else (space,):
            if name in self.granule:
                self.granule[name] = min(self.granule[name], granule)
        self.accesses.append(MemoryInstruction(self.ins.location, space, kind, size, what))
        return len(self.accesses) - 1

    def local_pointer(self, ins: Instruction) -> int | None:
        """Return the bit (see `flow.points_to`) of the local array whose address an instruction computes, or None.

        All local arrays of a function lie in one variable. Compilers compute the address of an array as
        `add %rd1, %SP, 16`: a stack pointer (%SP or %SPL) plus the array's offset.
        """
        if ins.opcode != "add" or len(ins.operands) != 3 or (self.activation and self.activation.recursive):
            return None
        _, base, place = ins.operands
        if not isinstance(base, Symbol) or base.name not in STACK_POINTERS or not isinstance(place, Immediate):
            return None
        start = self.in_stack(place.value)
        if start is None:
            return None
        # An address inside a variable that the debug information names is treated as the variable's address.
        start = next((kept.start for kept in self.debug_variables if kept.start < start < kept.end), start)
        if start not in self.local_starts:
            self.local_starts.append(start)
        return 1 << (LOCAL_BIT + self.local_starts.index(start))

    def in_stack(self, offset: int) -> int | None:
        """Return the local address `offset` bytes into the function's local arrays; None if it has no local arrays."""
        stack = next((name for name, variable in self.frame.variables.items() if variable.space == "local"), None)
        return None if stack is None else self.variable(stack) + offset

    def local_arrays(self) -> list[tuple[int, int]]:
        """Return (start, end) in bytes of each local array, in the order in which their addresses are taken.

        Debug information says where an array ends. Without it, an array ends where the next known array begins.
        """
        ends = {kept.start: kept.end for kept in sorted(self.debug_variables)}
        edges = sorted({*self.local_starts, *ends, *self.slots_local.values(), self.local_bytes})
        return [(start, ends.get(start) or edges[edges.index(start) + 1]) for start in self.local_starts]

    def note_slot(self, ins: Instruction, op: Op) -> None:
        """Record how an instruction uses a stack pointer; only for code with debug information.

        Such code keeps variables, also pointers, at fixed places of local memory. A load or store of such a place is
        appended to `fixed`. Any other use of a stack pointer, except in an addition, sets `stack_escapes`.
        """
        named = [place for place in ins.operands if isinstance(place, Symbol) and place.name in STACK_POINTERS]
        based = (place for place in ins.operands if isinstance(place, Address) and place.base in STACK_POINTERS)
        address = next(based, None)
        if ins.opcode in ("ld", "st") and address is not None and not named:
            recursive = self.activation is not None and self.activation.recursive
            if not recursive and (place := self.in_stack(address.offset)) is not None:
                data = op.uses[:-1]  # the address comes last
                stored = data[0] if ins.opcode == "st" and len(data) == 1 else -1
                access = self.memory[-1]
                access.variable = next((kept for kept in self.debug_variables if kept.start <= place < kept.end), None)
                self.fixed.append(flow.Slot(op, place, access.size, stored))
                return
        # Whether the instruction sets %SPL, or sets %SP from %SPL.
        made = named and ins.operands[0] == named[0] and len(named) <= 2
        added = ins.opcode == "add" and len(named) == 1 and op.pointer
        if not (made or added):
            self.stack_escapes |= bool(named) or address is not None

    # Params of calls.

    def param_name(self, name: str) -> str | None:
        """Return the name that a .param variable has in the whole kernel, or None if it is not a .param variable.

        Caller and callee use the same name.
        """
        local = self.frame.variables.get(name)
        own = f"{name}{self.frame.suffix}" if local is not None and local.space == "param" else None
        return self.frame.params.get(name, own)

    def call_parameter(self, place: Operand) -> str | None:
        """Return the variable of the call parameter that an address operand names; None if it names no parameter."""
        return self.param_name(place.base) if isinstance(place, Address) and place.base is not None else None

    def slot(self, variable: str, offset: int, width: int) -> int:
        """Return the register of `width` bits for the bytes of a .param variable at an offset in bytes."""
        return self.once(self.slots.setdefault(variable, {}), (offset, width), width)

    # The stream.

    def build(self) -> Code:
        """Decode the kernel and the functions that it calls, and return the code."""
        self.inline(self.frame)
        entries = append_shared(self)
        self.initial[self.stack_pointer] = -(-self.local_bytes // 16) * 16
        base = -(-self.static_shared // self.dynamic_align) * self.dynamic_align
        if self.dynamic:
            self.static_shared = base  # ptxas, too, counts the padding before the dynamic arrays
        dynamic = tuple((key, base, 0) for key in [*self.dynamic][:1])  # all dynamic arrays begin at one address
        for index in self.dynamic_constants:
            self.initial[index] = (self.initial[index] or 0) + base
        variables = {address >> SLOT_BITS for address in self.symbols.values()}
        pointers = ((value >> SLOT_BITS, index) for (value, width), index in self.constants.items() if width == 64)
        # A 64-bit literal that lies in no variable's slot, such as -16, is a number, not an address.
        symbols = {index: 1 << (SYMBOL_BIT + slot) for slot, index in pointers if slot in variables}
        arrays = [*self.shared]
        for (name, _), index in self.shared_addresses.items():
            symbols[index] = 1 << (SHARED_BIT + arrays.index(name))
        slots = {} if self.stack_escapes else flow.find_slots(self.fixed, self.local_arrays())
        pointees = flow.points_to(self.stream, len(self.widths), symbols, slots)
        stores = (access for access in self.memory if access.kind != "load" and "global" in access.numbers)
        written = flow.pointed_memory(pointees, (access.address for access in stores))
        cached = flow.pointed_memory(pointees, (access.address for access in self.memory if access.cached))
        for access in self.memory:
            # The kernel also writes through this pointer, so the source (`__ldg`) requested the cache.
            if access.cached == "load" and pointees[access.address] & written & ~1:
                access.cached = "asked"
        flow.mark_guesses(self.stream, pointees, self.memory, self.swaps)
        self.find_bounds(pointees)
        blocks = flow.cut_blocks(self.stream, self.kernel.location)
        flow.mark_choices(blocks, self.memory, self.choices)
        order = arranged(blocks)
        for place, number in enumerate(functions_first(self, blocks, order) if entries else order):
            blocks[number].rank = place
        behind = {id(op): block.weight - place for block in blocks for place, op in enumerate(block.ops)}
        for op, before in self.clocks:
            before[0] = behind.get(id(op), 0)
        places = Places(self.fixed, self.through_pointers(pointees))
        waits = mark_polls(blocks, self.strong_loads, places)
        read = frozenset(index for item in self.stream if isinstance(item, Op) for index in (*item.uses, item.guard))
        fair = any(not read.isdisjoint(op.defs) for op, _ in self.strong_loads) or may_wait(blocks, places)
        ordering = {id(op): access for op, access in self.strong_loads if "global" in access.numbers}
        polls = {key for key, access in ordering.items() if access.polls}
        polling = frozenset(block.number for block in blocks if not polls.isdisjoint(map(id, block.ops)))
        signs = frozenset(b.number + 1 for b in blocks if not b.terminator and b.ops and id(b.ops[-1]) in self.signed)
        communicates = self.orders or any(
            id(op) in ordering and not read.isdisjoint(op.defs) for block in blocks for op in block.ops
        )
        flow.find_live_registers(blocks)
        if entries:
            find_saved_registers(self, blocks)
        flow.watch_undefined(blocks, self.initial)
        watch_products(blocks, self.products)
        return Code(
            self.kernel.name, blocks, self.widths, self.initial, self.special, self.kernel.parameters,
            self.parameter_offsets, self.parameter_bytes, self.static_shared, tuple(self.dynamic), self.local_bytes,
            (*((key, offset, size) for key, (offset, size) in self.shared.items()), *dynamic), self.granule,
            self.accesses, tuple(self.refused), self.module.files, read, written, self.orders,
            self.swapping and self.fencing, bool(entries), any(site.recursive for site in self.sites), self.proxies,
            waits, cached, polling, signs, communicates, fair, {}, {},
        )  # fmt: skip

    def find_bounds(self, pointees: Sequence[int]) -> None:
        """For each access that can reach only one local or shared array, set the access's bounds to those of the array,
        and its variable if debug information names the array. pointees: see `flow.points_to`."""
        variables = {kept.start: kept for kept in self.debug_variables}
        arrays = self.local_arrays()
        shared = [(start, start + size) for start, size in self.shared.values()]
        for access in self.memory:
            if "local" in access.numbers:
                access.bounds = flow.single_array(pointees[access.address], LOCAL_BIT, arrays)
                if access.bounds is not None:
                    access.variable = variables.get(access.bounds[0])
            if "shared" in access.numbers:
                access.shared_bounds = flow.single_array(pointees[access.address], SHARED_BIT, shared)

    def through_pointers(self, pointees: Sequence[int]) -> set[int]:
        """Return the ids of the loads and stores through pointers that may point to local memory; an empty set for code
        without debug information. pointees: see `flow.points_to`."""
        if not self.debug_variables:
            return set()
        local = (1 << SHARED_BIT) - (1 << LOCAL_BIT) | 1
        strong = {id(op) for op, _ in self.strong_loads}
        ops = (op for op in self.stream if isinstance(op, Op) and op.opcode in ("ld", "st") and op.address >= 0)
        return {id(op) for op in ops if id(op) not in strong and pointees[op.address] & local}

    def inline(self, frame: Frame) -> None:
        """Append a function's ops to the stream; an op without a source line gets the line of the call."""
        site = None if self.ins is None else self.ins.location
        caller, self.frame = self.frame, frame
        for item in frame.function.body or ():
            if isinstance(item, Label):
                self.stream.append(item.name + frame.suffix)
                continue
            if len(self.stream) > MAX_INLINED:
                raise PtxError(f"kernel {self.kernel.name} is too large once its calls are inlined.")
            if site is not None and not item.location.line:
                item = item._replace(location=site._replace(ptx_line=item.location.ptx_line))
            self.ins = item
            try:
                self.append(item)
            except Refuse as error:
                self.refuse(item, str(error))
            self.ins = item
        self.frame = caller

    def refuse(self, ins: Instruction, feature: str) -> None:
        """Append an op that raises UnsupportedKernel when it runs, so code that is never executed does no harm."""
        lack = Unsupported(self.module.files.get(ins.location.file, ""), ins.location.line, feature)
        self.refused[lack] = None
        kernel = self.kernel.name

        def run(machine: Machine) -> None:
            raise UnsupportedKernel(
                f"kernel {kernel} uses a feature that the simulator lacks ({lack.file}:{lack.line}: {feature}): "
                f"{remedy(feature)}."
            )

        self.finish(ins, Op(run, "plain", ins.location))

    def finish(self, ins: Instruction, op: Op) -> None:
        """Set an op's line, opcode, guard and registers (those of the operands read so far), and append it."""
        op.line, op.opcode, op.defs = ins.location, ins.opcode, tuple(self.defs)
        if ins.guard is not None:
            op.guard, op.inverted = self.predicate(Symbol(ins.guard))[0], ins.inverted
        op.uses = tuple(self.uses)
        self.stream.append(op)

    def skip(self, ins: Instruction, label: str) -> None:
        """If an instruction has a guard, append a branch to `label` for the lanes whose guard is false."""
        if ins.guard is not None:
            guard, _ = self.predicate(Symbol(ins.guard))
            op = Op(None, "branch", ins.location, guard=guard, inverted=not ins.inverted, uses=(guard,))
            op.labels = (label,)
            self.stream.append(op)

    def append(self, ins: Instruction) -> None:
        """Append the op of one instruction, or all ops of a call."""
        self.uses, self.defs, self.pointer, self.address_register = [], [], None, -1
        self.signs, self.access_made = False, None
        if ins.opcode == "call":
            call(self, ins)
            return
        if ins.opcode == "ret" and self.frame.suffix:
            op = Op(None, "branch", ins.location, labels=(self.frame.end,))
        else:
            built = builder_of(ins)(self, ins)
            if built is None:
                return
            op = built if isinstance(built, Op) else Op(built, "plain", ins.location)
        if ins.opcode != "ret":
            op.labels = tuple(name + self.frame.suffix for name in op.labels)
        op.address, op.offset = self.address_register, self.address_offset
        op.pointer = self.local_pointer(ins) if self.pointer is None else self.pointer
        if op.kind in ("plain", "collective"):
            op.native = encoded(self, ins, self.access_made)
        self.finish(ins, op)
        if self.debug_variables:
            self.note_slot(ins, op)
        if self.access_made is not None and self.access_made.may_poll:
            self.strong_loads.append((op, self.access_made))
        if self.signs and self.strong_loads:  # other thread blocks may run before the next op, see `schedule`
            self.signed.add(id(op))
            self.stream.append(f"~{len(self.stream)}")  # starts a new basic block; no label of a source has this name
