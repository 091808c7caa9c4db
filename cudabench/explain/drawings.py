"""Single accesses as people draw them: which element each thread moves, which lane each bank serves. Pure records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cudabench.model import BankRequest, Buffer, Case, ThreadAccess
from cudabench.simulator.count.banks import BANKS, WORD, lanes_together, merged

if TYPE_CHECKING:
    from cudabench.simulator.count.trace import Trace


def thread_accesses(trace: Trace, case: Case, buffers: Sequence[Buffer]) -> tuple[ThreadAccess, ...]:
    """Return every access of the first launch to a named array, with the element's index instead of its offset."""
    import numpy as np

    arguments = case.launches[0].arguments
    named: Mapping[str, Buffer] = {buffer.name: buffer for buffer in buffers}
    found = []
    for event in trace.accesses:
        if event.argument < 0:
            continue
        buffer = named[arguments[event.argument]]
        element = event.offset // np.dtype(buffer.dtype).itemsize
        index = tuple(int(i) for i in np.unravel_index(element, buffer.shape))
        found.append(ThreadAccess(event.line, event.op, event.width, event.block, event.thread, buffer.name, index))
    return tuple(found)


def bank_requests(trace: Trace) -> tuple[BankRequest, ...]:
    """Return the first request of each source line and kind of the first warp to shared memory, by wavefront."""
    seen: set[tuple[int, str, int]] = set()
    found = []
    for request in trace.shared:
        key = (request.line, request.op, request.width)
        if key not in seen:
            seen.add(key)
            load = request.op == "load"
            found.append(BankRequest(*key, passes=wavefronts(request.addresses, request.width, load=load)))
    return tuple(found)


def wavefronts(
    addresses: Sequence[int | None], width: int, *, load: bool = True
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return for each wavefront and bank the lanes that are served: an empty tuple where the bank is idle.

    A bank serves one 4-byte word a wavefront, to all lanes that want it; the lanes come in the groups of
    `simulator.count.banks`.
    """
    import numpy as np

    together = lanes_together(width)
    active = np.array([address is not None for address in addresses])
    if load and together < len(addresses) and merged(np.array([address or 0 for address in addresses]), active):
        together *= 2
    rows = []
    for first in range(0, len(addresses), together):
        wanted: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]  # by bank: word -> lanes
        for lane in range(first, first + together):
            address = addresses[lane]
            if address is None:
                continue
            for word in range(address // WORD, (address + max(width, 1) - 1) // WORD + 1):
                wanted[word % BANKS].setdefault(word, []).append(lane)
        depth = max(len(words) for words in wanted)
        for level in range(depth):
            rows.append(tuple(tuple(list(words.values())[level]) if level < len(words) else () for words in wanted))
    return tuple(rows)
