"""Functions that the machine supplies: vprintf (printf in kernels), __assertfail (assert), malloc and free."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from cudabench.simulator.errors import KernelAssert
from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.opcodes import SYSCALLS
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import LOCAL_WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Refuse
from cudabench.simulator.program.ptx import Operand, Symbol
from cudabench.simulator.values import INT64, UNSIGNED, Array, broadcast, canonical

_SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
MAX_STRING = 1 << 16


def _arguments(builder: Builder, arguments: tuple[Operand, ...]) -> list[int]:
    """Return the registers that hold a call's arguments."""
    found = []
    for argument in arguments:
        name = builder.param_name(argument.name) if isinstance(argument, Symbol) else None
        if name is None:
            found.append(builder.source(argument, "b64"))
            continue
        slots = builder.slots.get(name)
        if not slots:
            raise Refuse("a call without arguments")
        found.append(slots[min(slots)])
        builder.uses.append(found[-1])
    return found


def _each(machine: Machine, register: int) -> Array:
    """Return what each lane has in a register, (blocks, threads)."""
    return broadcast(machine.array(register, INT64), machine.chunk.shape)


def read_bytes(machine: Machine, address: int, block: int, thread: int, size: int) -> bytes:
    """Return bytes at a generic address, as one lane sees them; fewer where the memory ends."""
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + (1 << 32):
        start = address - LOCAL_WINDOW
        return bytes(machine.local[block, thread, start : start + size].tobytes())
    region = machine.space.nearest(address)
    if region is None or not region.base <= address < region.base + region.size:
        return b""
    return bytes(region.bytes[address - region.base : address - region.base + size].tobytes())


def text_at(machine: Machine, address: int, block: int, thread: int) -> str:
    """Return the zero-terminated string at a generic address."""
    raw = read_bytes(machine, address, block, thread, MAX_STRING)
    return raw.partition(b"\0")[0].decode("utf-8", "replace")


def format_text(machine: Machine, template: str, arguments: int, block: int, thread: int) -> str:
    """Return what C's printf makes of a template; arguments lie at a generic address, each aligned to its size."""
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
        if letter == "%":
            return "%"
        width = str(take("i")) if width == "*" else width or ""
        if precision == "*":
            precision = str(take("i"))
        spec = "%" + flags + width + (f".{precision}" if precision is not None else "")
        long = length in ("l", "ll", "j", "z", "t")
        if letter in "di":
            return (spec + "d") % take("q" if long else "i")
        if letter in "ouxX":
            return (spec + ("d" if letter == "u" else letter)) % take("Q" if long else "I")
        if letter in "eEfFgGaA":
            value = take("d")
            return value.hex() if letter in "aA" else (spec + letter) % value
        if letter == "c":
            return (spec + "c") % (take("i") & 0xFF)
        if letter == "s":
            pointer = take("Q")
            return (spec + "s") % text_at(machine, pointer, block, thread)
        if letter == "p":
            return (spec + "s") % hex(take("Q"))
        return ""

    return _SPECIFIER.sub(replace, template)


def _vprintf(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of vprintf(format, arguments)."""
    template, place = _arguments(builder, arguments)
    for result in results:
        if isinstance(result, Symbol):
            name = builder.param_name(result.name)
            if name is not None:
                builder.defs.append(builder.slot(name, 0, 32))

    def run(machine: Machine) -> None:
        formats, places = _each(machine, template), _each(machine, place)
        for block, thread in np.argwhere(machine.lanes()).tolist():
            text = text_at(machine, int(formats[block, thread]), block, thread)
            machine.output.append(format_text(machine, text, int(places[block, thread]), block, thread))

    return Op(run, "plain", builder.ins.location)


def _assertfail(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of __assertfail(expression, file, line, function, size of a char): it ends the launch."""
    registers = _arguments(builder, arguments)

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        block, thread = divmod(int(np.argmax(machine.lanes())), chunk.threads)
        values = [int(_each(machine, index)[block, thread]) for index in registers]
        expression, file, function = (text_at(machine, values[index], block, thread) for index in (0, 1, 3))
        raise KernelAssert(
            f"assertion '{expression}' failed at {file}:{values[2]} ({function}) "
            f"in block {chunk.block_index(block)}, thread {chunk.thread_index(thread)}."
        )

    return Op(run, "plain", builder.ins.location)


def _malloc(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of malloc(size): each lane's own memory, or null where the heap is full."""
    (size,) = _arguments(builder, arguments)
    name = builder.param_name(results[0].name) if results and isinstance(results[0], Symbol) else None
    if name is None:
        raise Refuse("malloc whose result is not used")
    target = builder.slot(name, 0, 64)
    builder.defs.append(target)
    location = builder.ins.location

    def run(machine: Machine) -> None:
        heap, chunk = _heap(machine), machine.chunk
        lanes = chunk.real(machine.lanes())
        sizes = broadcast(machine.array(size, UNSIGNED[64]), chunk.shape)[lanes].tolist()
        starts = heap.heap.allocate(sizes, location.line)
        found = np.zeros(chunk.shape, np.uint64)
        found[lanes] = [heap.base + start if start >= 0 else 0 for start in starts]
        machine.put(target, canonical(found))

    op = Op(run, "plain", location)
    op.pointer = 1
    return op


def _free(builder: Builder, results: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> Op:
    """Build a call of free(pointer), which does nothing for a null pointer."""
    (pointer,) = _arguments(builder, arguments)
    location = builder.ins.location

    def run(machine: Machine) -> None:
        heap, chunk = _heap(machine), machine.chunk
        addresses = _each(machine, pointer)
        for block, thread in np.argwhere(chunk.real(machine.lanes())).tolist():
            address = int(addresses[block, thread])
            if not address:
                continue
            if heap.base <= address < heap.base + heap.size:
                wrong = heap.heap.free(address - heap.base, location.line)
            else:
                wrong = f"frees address {address:#x}, which malloc did not give"
            if wrong is not None:
                at, who = chunk.block_index(block), chunk.thread_index(thread)
                kind = "use-after-free" if "once more" in wrong else "out-of-bounds"
                machine.hazards.add(kind, location, 1, at, who, f"thread {who} of block {at} {wrong}.")

    return Op(run, "plain", location)


def _heap(machine: Machine) -> HeapRegion:
    return next(region for region in machine.space.slots if isinstance(region, HeapRegion))


SYSCALLS.update(malloc=_malloc, free=_free, vprintf=_vprintf, __assertfail=_assertfail)
