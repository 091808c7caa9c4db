"""Makes the data for drawings of single accesses: the element that each thread accesses, the lanes a bank serves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from cudabench.plan import chapters, constants
from cudabench.records.launch import Rows, Surface, TensorMap, Texture
from cudabench.records.plan import Buffer, Case
from cudabench.records.results import BankRequest, ThreadAccess
from cudabench.simulator.count.banks import BANKS, WORD, lanes_together, merged
from cudabench.source.types import numpy_type

if TYPE_CHECKING:
    from cudabench.simulator.count.trace import Request, Trace
    from cudabench.simulator.report import Report

MOST_EXECUTIONS = 4  # only the first executions of an instruction by a warp, at most this many, are drawn with lanes
ELEMENT_BYTES = (1, 2, 4, 8, 16)  # the possible sizes of an element in bytes, if its type is unknown


@dataclass(frozen=True)
class Tile:
    """A variable in shared memory. `start`: the offset in the shared memory. `nbytes`: the size in bytes. `itemsize`:
    the bytes of an element. `shape`: the number of elements in each dimension, empty if unknown."""

    name: str
    start: int
    nbytes: int
    itemsize: int
    shape: tuple[int, ...]

    @property
    def pitch(self) -> int | None:
        """The bytes from one row to the next; None if the variable has no rows."""
        return self.itemsize * self.shape[-1] if len(self.shape) > 1 else None

    def index(self, address: int) -> tuple[int, ...]:
        """Return the index of the element at a byte address of the shared memory."""
        element = (address - self.start) // self.itemsize
        index: tuple[int, ...] = ()
        for length in reversed(self.shape[1:]):
            element, index = element // length, (element % length, *index)
        return (element, *index)


def tiles(report: Report, case: Case) -> tuple[Tile, ...]:
    """Return the variables in shared memory. The length of a variable's rows comes from its declaration or, if that
    has no rows, from the accesses to the variable."""
    result = []
    variables = report.trace.variables if report.trace else ()
    for name, start, nbytes in variables:
        rows = [row for row in report.accesses if row.space == "shared" and row.array == name]
        declared = declared_shape(
            case, name, nbytes, min((row.line for row in rows if not case.header(row.file)), default=0)
        )
        if declared and len(declared[1]) > 1:
            result.append(Tile(name, start, nbytes, *declared))
            continue
        itemsize = declared[0] if declared else min((row.bytes for row in rows), default=WORD)
        steps: Counter[int] = Counter()
        for counts in (pattern for row in rows for pattern in row.patterns):
            for step in {abs(counts.pattern.stride), *map(abs, counts.pattern.axes or ())}:
                if step > itemsize and step % itemsize == 0 and nbytes % step == 0 and step < nbytes:
                    steps[step] += counts.requests
        # A one-dimensional array is drawn in rows if all strides of its accesses are the same number of bytes. An array
        # for a reduction is accessed with several strides, so it has no rows.
        pitch = steps.most_common(1)[0][0] if steps and (len(steps) == 1 or not declared) else 0
        shape = (nbytes // pitch, pitch // itemsize) if pitch else ()
        result.append(Tile(name, start, nbytes, itemsize, shape))
    return tuple(result)


def declared_shape(case: Case, name: str, nbytes: int, line: int = 0) -> tuple[int, tuple[int, ...]] | None:
    """Return (bytes of an element, elements in each dimension) of a `__shared__` array, read from its declaration.

    `line`: the line of the first access to the array, 0 if unknown. If several declarations match, the last declaration
    before this line is used. Return None if a dimension is not a constant of the source or the case, or if the declared
    size is not `nbytes`.
    """
    text = chapters.with_headers(case.source)
    dimensions = rf"__shared__([^;{{}}]*?)\b{re.escape(name)}\s*((?:\[[^\];]*\]\s*)(?:\[[^\];]+\]\s*)*)"
    result = None
    known = constants.Constants(constants.read_macros(text), case.defines, WORD)
    for match in re.finditer(dimensions, text):
        if result and line and text.count("\n", 0, match.start()) >= line:
            break
        parts = re.findall(r"\[([^\]]*)\]", match[2])
        try:
            shape = tuple(known.evaluate(part) for part in parts if part.strip())
        except (constants.NotANumber, KeyError, ZeroDivisionError):
            continue
        elements = prod(shape)
        # If the type is unknown, the element may have any size.
        words = re.sub(r"__align__\s*\([^)]*\)|\b(?:volatile|const|static)\b", "", match[1]).strip()
        dtype = numpy_type(words, case.defines)
        widths = ELEMENT_BYTES if dtype is None else (np.dtype(dtype).itemsize,)
        # If the first dimension is `[]`, the array has as many rows as fit into its memory.
        if not parts[0].strip() and len(widths) == 1 and elements > 0:
            shape = (nbytes // (elements * widths[0]), *shape)
            elements *= shape[0]
        if elements > 0 and nbytes % elements == 0 and nbytes // elements in widths:
            result = nbytes // elements, shape
    return result


def elements(trace: Trace, case: Case, buffers: Sequence[Buffer]) -> Iterator[tuple[Request, int, Buffer, int]]:
    """Yield (request, lane, array, number of the element in the array) for each access of a lane to an argument in the
    first launch."""
    named: Mapping[str, Buffer] = {buffer.name: buffer for buffer in buffers}
    for request in trace.accesses:
        if request.argument >= 0:
            argument = case.launches[0].arguments[request.argument]
            buffer = named[argument.buffer if isinstance(argument, (Rows, Surface, Texture, TensorMap)) else argument]
            for lane, offset in enumerate(request.addresses):
                if offset is not None:
                    yield request, lane, buffer, offset // np.dtype(buffer.dtype).itemsize


def thread_accesses(
    trace: Trace, case: Case, buffers: Sequence[Buffer], shared: Sequence[Tile]
) -> tuple[ThreadAccess, ...]:
    """Return the recorded accesses of the first launch to arguments and to shared memory, with the index of each
    element. `shared`: the variables in shared memory."""
    accesses = [
        ThreadAccess(
            request.line, request.op, request.width, request.block, request.threads[lane], buffer.name,
            tuple(int(i) for i in np.unravel_index(element, buffer.shape)), instruction=request.instruction,
            file=case.header(request.file),
        )
        for request, lane, buffer, element in elements(trace, case, buffers)
    ]  # fmt: skip
    times: Counter[tuple[object, ...]] = Counter()
    for request in trace.shared:
        tile = tile_of(request, shared)
        key = (request.instruction, request.block, request.warp)
        times[key] += 1
        if tile is None or times[key] > MOST_EXECUTIONS:
            continue
        accesses += [
            ThreadAccess(
                request.line, request.op, request.width, request.block, thread, tile.name, tile.index(address),
                bank=address // WORD % BANKS, instruction=request.instruction,
                file=case.header(request.file),
            )
            for address, thread in zip(request.addresses, request.threads, strict=True)
            if address is not None
        ]  # fmt: skip
    return tuple(accesses)


def tile_of(request: Request, shared: Sequence[Tile]) -> Tile | None:
    """Return the variable that a request's first active lane accesses."""
    first = next(address for address in request.addresses if address is not None)
    return next((tile for tile in shared if tile.start <= first < tile.start + tile.nbytes), None)


def bank_requests(trace: Trace, case: Case, shared: Sequence[Tile]) -> tuple[BankRequest, ...]:
    """Return the shared memory requests of the first recorded warp. Requests of one instruction with the same bank
    conflicts are merged into one request. `shared`: the variables in shared memory."""
    watched = {(request.block, request.warp) for request in trace.shared[:1]}
    numbers: Counter[int] = Counter()
    groups: dict[tuple[object, ...], tuple[Request, list[int]]] = {}
    for request in trace.shared:
        if (request.block, request.warp) not in watched:
            continue
        numbers[request.instruction] += 1
        # If all addresses of two requests differ by the same number, the requests have the same bank conflicts, only in
        # different banks.
        lowest = min(address for address in request.addresses if address is not None)
        shape = tuple(None if address is None else address - lowest for address in request.addresses)
        key = (request.instruction, request.op, request.width, shape)
        groups.setdefault(key, (request, []))[1].append(numbers[request.instruction])
    result = []
    for request, executions in groups.values():
        tile = tile_of(request, shared)
        words = {word for address in request.addresses for word in _words(address, request.width)}
        result.append(
            BankRequest(
                request.line, request.op, request.width,
                wavefronts(request.addresses, request.width, load=request.op == "load"), -(-len(words) // BANKS),
                tile.name if tile else None, request.block, request.warp, request.instruction, tuple(executions),
                tuple(None if a is None or tile is None else tile.index(a) for a in request.addresses),
                tile.pitch if tile else None, case.header(request.file),
            )
        )  # fmt: skip
    return tuple(result)


def _words(address: int | None, width: int) -> range:
    """Return the numbers of the 4-byte words that a lane accesses; empty for an inactive lane (address None)."""
    return range(0) if address is None else range(address // WORD, (address + max(width, 1) - 1) // WORD + 1)


def wavefronts(
    addresses: Sequence[int | None], width: int, *, load: bool = True
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return, for each wavefront of a request and each bank, a tuple of the lanes that the bank serves; empty if the
    bank is idle.

    In one wavefront a bank delivers one 4-byte word to all lanes that need the word. The lanes of wide accesses are
    served in groups, see `simulator.count.banks`.
    """
    together = lanes_together(width)
    active = np.array([address is not None for address in addresses])
    if load and together < len(addresses) and merged(np.array([address or 0 for address in addresses]), active):
        together *= 2
    rows: list[tuple[tuple[int, ...], ...]] = []
    for first in range(0, len(addresses), together):
        # For each bank: the lanes that need each word of the bank.
        wanted: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
        for lane in range(first, first + together):
            for word in _words(addresses[lane], width):
                wanted[word % BANKS].setdefault(word, []).append(lane)
        rows += zip_longest(*(map(tuple, words.values()) for words in wanted), fillvalue=())
    return tuple(rows)
