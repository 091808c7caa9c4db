"""Functions that the simulator supplies to kernels: vprintf (printf), __assertfail (assert), malloc and free."""

from __future__ import annotations

import re
import struct
from copy import copy
from typing import Any

import numpy as np

from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.check.races import LogEntry
from cudabench.simulator.errors import KernelAssert
from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.access import MemoryOp, active_lanes
from cudabench.simulator.isa.opcodes import SYSCALLS
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import LOCAL_WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import FREE, Op, Refuse
from cudabench.simulator.program.ptx import Operand, Symbol
from cudabench.simulator.values import INT64, UNSIGNED, Array, broadcast

_SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_HELD = {  # for each conversion letter: the `struct` code without `l`, the one with `l`, and the letter in Python
    **dict.fromkeys("di", "iqd"), "u": "IQd", **{letter: f"IQ{letter}" for letter in "oxX"}, "c": "iic",
    **{letter: f"dd{letter}" for letter in "eEfFgGaA"}, **dict.fromkeys("sp", "QQs"),
}  # fmt: skip
MAX_STRING = 1 << 16


def _arguments(builder: Builder, arguments: tuple[Operand, ...]) -> list[int]:
    """Return the registers that hold a call's arguments."""
    registers = []
    for argument in arguments:
        name = builder.param_name(argument.name) if isinstance(argument, Symbol) else None
        if name is None:
            registers.append(builder.source(argument, "b64"))
            continue
        slots = builder.slots.get(name)
        if not slots:
            raise Refuse("a call without arguments")
        registers.append(slots[min(slots)])
        builder.uses.append(registers[-1])
    return registers


def _result(builder: Builder, results: tuple[Operand, ...], width: int) -> int | None:
    """Return the register of a call's result, or None if the result is not used."""
    name = builder.param_name(results[0].name) if results and isinstance(results[0], Symbol) else None
    if name is None:
        return None
    builder.defs.append(builder.slot(name, 0, width))
    return builder.defs[-1]


def _by_lane(machine: Machine, register: int) -> Array:
    """Return a register's values, one per lane, of shape (blocks, threads)."""
    return broadcast(machine.array(register, INT64), machine.chunk.shape)


def read_bytes(machine: Machine, address: int, block: int, thread: int, size: int) -> bytes:
    """Return `size` bytes at a generic address, as this lane sees them; fewer bytes if the memory ends earlier."""
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + (1 << 32):
        start = address - LOCAL_WINDOW
        return bytes(machine.local[block, thread, start : start + size].tobytes())
    region = machine.space.nearest(address)
    if region is None or not region.base <= address < region.base + region.size:
        return b""
    return bytes(region.bytes[address - region.base : address - region.base + size].tobytes())


def text_at(machine: Machine, address: int, block: int, thread: int) -> str:
    """Return the zero-terminated string at a generic address, as this lane sees it."""
    raw = read_bytes(machine, address, block, thread, MAX_STRING)
    return raw.partition(b"\0")[0].decode("utf-8", "replace")


def format_text(machine: Machine, template: str, arguments: int, block: int, thread: int) -> str:
    """Return a template formatted like C's printf.

    arguments: the generic address of the arguments, each of which is aligned to its size.
    """
    offset = 0

    def take(code: str) -> Any:
        nonlocal offset
        size = struct.calcsize(code)
        offset = -(-offset // size) * size
        raw = read_bytes(machine, arguments + offset, block, thread, size)
        offset += size
        return struct.unpack("<" + code, raw)[0] if len(raw) == size else 0

    def replace(match: re.Match[str]) -> Any:
        flags, width, precision, length, letter = match.groups()
        if letter not in _HELD:
            return "%" if letter == "%" else ""
        width = str(take("i")) if width == "*" else width or ""
        precision = str(take("i")) if precision == "*" else precision
        value = take(_HELD[letter][length in ("l", "ll", "j", "z", "t")])
        if letter in "aA":
            return value.hex()
        if letter == "c":
            value &= 0xFF
        elif letter == "s":
            value = text_at(machine, value, block, thread)
        elif letter == "p":
            value = hex(value)
        spec = "%" + flags + width + (f".{precision}" if precision is not None else "")
        return (spec + _HELD[letter][2]) % value

    return _SPECIFIER.sub(replace, template)


def _vprintf(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of vprintf(format, arguments)."""
    template, place = _arguments(builder, arguments)
    _result(builder, results, 32)

    def run(machine: Machine) -> None:
        formats, places = _by_lane(machine, template), _by_lane(machine, place)
        for block, thread in np.argwhere(machine.lanes()).tolist():
            text = text_at(machine, int(formats[block, thread]), block, thread)
            machine.output.append(format_text(machine, text, int(places[block, thread]), block, thread))

    return Op(run, "plain", builder.ins.location)


def _assertfail(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of __assertfail(expression, file, line, function, size of a char), which ends the launch."""
    registers = _arguments(builder, arguments)

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        _, (block, thread) = first_lane(machine.lanes(), chunk)
        values = [int(_by_lane(machine, index)[block, thread]) for index in registers]
        expression, file, function = (text_at(machine, values[index], block, thread) for index in (0, 1, 3))
        raise KernelAssert(
            f"assertion '{expression}' failed at {file}:{values[2]} ({function}) "
            f"in block {chunk.block_index(block)}, thread {chunk.thread_index(thread)}."
        )

    return Op(run, "plain", builder.ins.location)


def _malloc(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of malloc(size): each lane gets a pointer to its own memory, or null if the heap is full."""
    (size,) = _arguments(builder, arguments)
    target = _result(builder, results, 64)
    if target is None:
        raise Refuse("malloc whose result is not used")
    location = builder.ins.location

    def run(machine: Machine) -> None:
        heap, chunk = _heap(machine), machine.chunk
        lanes = chunk.real(machine.lanes())
        sizes = broadcast(machine.array(size, UNSIGNED[64]), chunk.shape)[lanes].tolist()
        starts = heap.heap.allocate(sizes, location.line)
        pointers = np.zeros(chunk.shape, np.uint64)
        pointers[lanes] = [heap.base + start if start >= 0 else 0 for start in starts]
        machine.put(target, pointers)

    return Op(run, "plain", location, pointer=1)


def _free(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of free(pointer), which does nothing for a null pointer."""
    (pointer,) = _arguments(builder, arguments)
    location = builder.ins.location
    builder.address_register = pointer
    freeing = MemoryOp(builder, "store", UNSIGNED[64], 1, "global", FREE)

    def run(machine: Machine) -> None:
        heap, addresses = _heap(machine), _by_lane(machine, pointer)
        for lane in active_lanes(machine):
            address, hazard = int(addresses[lane]), None
            if heap.base <= address < heap.base + heap.size:
                size = heap.heap.live_bytes(address - heap.base)
                hazard = heap.heap.free(address - heap.base, location.line)
                if size:
                    access = copy(freeing)
                    access.size = size
                    machine.global_races.append_entry(
                        heap, LogEntry(access, addresses, 0, machine.lanes(), (addresses,))
                    )
            elif address:
                hazard = "out-of-bounds", f"frees address {address:#x}, which malloc did not return"
            if hazard is not None:
                kind, text = hazard
                machine.hazards.report(machine, kind, location, machine.lanes(), text)

    return Op(run, "plain", location, function=FREE)


def _heap(machine: Machine) -> HeapRegion:
    return next(region for region in machine.space.slots if isinstance(region, HeapRegion))


SYSCALLS.update(malloc=_malloc, free=_free, vprintf=_vprintf, __assertfail=_assertfail)
