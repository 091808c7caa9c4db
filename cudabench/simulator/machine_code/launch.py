"""Runs a launch's machine code on a copy of the launch's memory."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cudabench.compile.sass import Instruction
from cudabench.simulator.check.global_races import written_regions
from cudabench.simulator.count.patterns import SECTOR
from cudabench.simulator.machine_code import layout
from cudabench.simulator.machine_code.decode import Decoded
from cudabench.simulator.machine_code.image import Kernel
from cudabench.simulator.machine_code.operands import Unreadable
from cudabench.simulator.native import layout as native_layout
from cudabench.simulator.native.launch import block_numbers, region_table, threads
from cudabench.simulator.plan import Plan
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.report import Clocks, Code, Footprint, Report
from cudabench.simulator.values import Array
from cudabench.system import native

YIELDS = "the order of divergent lanes after YIELD is unknown"
TABLES = "the order of the lanes of a jump by table is unknown"
GROUPS = "the order of groups of lanes that have different sizes at a WARPSYNC is unknown"
SPARE_STACK = 64  # the stack of each lane has this many bytes more than the code needs
RECURSIVE_STACK = 16384  # the stack of each lane has this many bytes more if functions may call themselves
SLACK, MOST = 8, 1 << 26  # limits for the warp instructions of a launch: about SLACK times those of its PTX, and MOST
MOST_BYTES = 1 << 28  # the arrays that a launch may write are copied only up to this many bytes
DIFFERS = "its results differ from those of the PTX in"
ROUNDED = "it fuses multiplications with additions, unlike the PTX, and has other results in"
OTHER_ORDER = "its atomics execute in another order, and it has other results in"
ORDERED = ("ATOM", "ATOMG", "ATOMS")
_DATA_DEPENDENT = (*ORDERED, "BRX", "JMX", "YIELD")  # data may decide how often the instructions behind these run
# If all blocks of a launch do the same, only this many blocks run, and their counts are scaled up. The number is prime:
# if the blocks execute an instruction a different number of times, the sum over the sample is rarely a multiple of it.
ALIKE = 31
LEAST_GRID = 8 * ALIKE  # smaller grids run whole
MOST_CHANGES = 1 << 19  # a sample of blocks is given up if it changes more words
# The largest relative difference of results. float64 may hold sums of float32 terms, which fused instructions round
# differently.
ROUNDING = {"f4": 1e-4, "f8": 1e-7, "f2": 4e-3}

# The kind of access whose sectors or wavefronts an instruction has.
PIECES = {
    **dict.fromkeys(("LDG", "LD", "LDGSTS"), "global_load"), **dict.fromkeys(("STG", "ST"), "global_store"),
    **dict.fromkeys(("RED", "REDG", "ATOMG", "ATOM"), "global_atomic"),
    "LDS": "shared_load", "STS": "shared_store", "ATOMS": "shared_atomic", "LDL": "local_load", "STL": "local_store",
}  # fmt: skip


@lru_cache(1)
def _library() -> tuple[Any, dict[str, int]] | None:
    """Return the C++ library and the numbers of its operations, keyed by name; None if there is no library."""
    found = native_layout.library("cudabench_machine", "size", layout.SIZES)
    if found is not None:
        found[0].cudabench_machine_run.restype = ctypes.c_char_p
    return found


@lru_cache(32)
def _records(decoded: Decoded) -> Array:
    loaded = _library()
    assert loaded is not None
    return decoded.code(loaded[1])


class MachineCodeRequest(NamedTuple):
    """A request to run a kernel's machine code in addition to its PTX.

    `read`: a function that returns the `Kernel`, or the reason why it is unreadable. `fuses`: a function that returns
    whether the machine code has fused multiply-adds where the PTX has none, so that results are rounded differently.
    """

    read: Callable[[], Kernel | str]
    fuses: Callable[[], bool] = lambda: False


def memory(plan: Plan, placed: Placed) -> dict[int, Array]:
    """Return copies of all arrays that a launch may write, keyed by slot in the address space.

    Raises Unreadable if the arrays are too large.
    """
    parameters = np.frombuffer(placed.parameters, np.uint8)
    written = written_regions(plan.code.written, placed.space, parameters, placed.textures)
    regions = {
        place: region.bytes
        for place, region in enumerate(placed.space.slots)
        if region.writable and region.size and (written is None or region.base in written)
    }
    if sum(data.size for data in regions.values()) > MOST_BYTES:
        raise Unreadable(f"the arrays that it may write are larger than {MOST_BYTES >> 20} MiB")
    return {place: _copied(data) for place, data in regions.items()}


# Copies that nothing uses any more. The next copies reuse their memory, because the system clears new memory first,
# which takes longer than the copy.
_spare: list[Array] = []


def _copied(data: Array) -> Array:
    """Return a copy of an array of bytes."""
    own = next((at for at, spare in enumerate(_spare) if spare.size == data.size), None)
    copy = np.empty(data.size, np.uint8) if own is None else _spare.pop(own)
    copy[:] = data
    return copy


def _release(arrays: Mapping[int, Array]) -> None:
    """Let later copies use the memory of these; all spare arrays together have at most MOST_BYTES."""
    _spare.extend(arrays.values())
    while sum(spare.size for spare in _spare) > MOST_BYTES:
        _spare.pop(0)


def machine_code_runner(
    request: MachineCodeRequest | None, plan: Plan, placed: Placed
) -> Callable[[Report], Code | str | None]:
    """Return a function that runs a launch's machine code: it takes the report of the PTX, and returns the counts of
    the machine code, or the reason why there are none; None if `request` is None.

    Call `machine_code_runner` before the launch, as it copies the memory; call the function after the launch.
    """
    if request is None:
        return lambda report: None
    if plan.cluster is not None:
        return lambda report: "its blocks form clusters"
    try:
        before = memory(plan, placed)
    except Unreadable as error:
        why = str(error)
        return lambda report: why

    def run(report: Report) -> Code | str:
        code = "the launch has hazards" if report.hazards else _code(request, plan, placed, before, report)
        _release(before)
        return code

    return run


def _code(
    request: MachineCodeRequest, plan: Plan, placed: Placed, before: dict[int, Array], report: Report
) -> Code | str:
    kernel = request.read()
    if isinstance(kernel, str):
        return f"the machine code cannot be read: {kernel}"
    budget = min(MOST, SLACK * (report.instructions + 1000))
    slots = placed.space.slots
    blocks = np.sort(block_numbers(plan))
    sampled = _sampled(kernel, plan, placed, before, budget, blocks, report)
    ran = sampled or execute(kernel, plan, placed, before, budget, blocks, report.footprint)
    if isinstance(ran, str):
        return ran
    arrays = {} if sampled or kernel.decoded.unknown else before
    unlike = [slots[at].name for at, data in arrays.items() if differ(data, slots[at].bytes)]
    if unlike:
        # The result of an atomic depends on the order in which warps run, which here differs from the PTX engines.
        ordered = plan.code.communicates or any(ins.opcode in ORDERED for ins in kernel.decoded.instructions)
        differs = OTHER_ORDER if ordered else ROUNDED if request.fuses() else DIFFERS
        return f"{differs} {', '.join(unlike)}"
    return ran


def _sampled(
    kernel: Kernel, plan: Plan, placed: Placed, before: dict[int, Array], budget: int, blocks: Array, report: Report
) -> Code | None:
    """Return the counts of a launch, computed from `ALIKE` of its blocks; None if these may not represent all blocks.

    They do if no lanes diverge, all blocks execute the same PTX, the sampled blocks execute the same machine code, with
    the results of the PTX, and the sectors and wavefronts of all blocks are in proportion.
    """
    decoded = kernel.decoded
    alike = report.blocks_alike and not plan.code.communicates and not _data_decides(decoded.instructions)
    if not alike or len(blocks) < LEAST_GRID:
        return None
    picked = np.sort(np.random.default_rng(0).choice(blocks, ALIKE, replace=False))
    changes = Changes()
    ran = execute(kernel, plan, placed, before, budget, picked, report.footprint, changes)
    differs = changes.take_back(before, placed) and not decoded.unknown
    if isinstance(ran, str) or differs or (ran.table % ALIKE).any():
        return None
    ran = ran.times(len(blocks) / ALIKE)
    missing: Counter[str] = Counter()  # the pieces of the PTX without those of the machine code
    for row in report.accesses:
        missing[f"{row.space}_{row.op}"] += row.sectors or row.wavefronts or 0
    for ins, pieces in zip(decoded.instructions, ran.table[:, 3].tolist(), strict=True):
        missing[PIECES.get(ins.opcode, "")] -= pieces
    return None if any(missing[kind] for kind in PIECES.values()) else ran


def _data_decides(instructions: Sequence[Instruction]) -> bool:
    """Return whether data may decide which instructions run although no branch of the PTX diverges.

    Data may decide this in the subroutine that divides floats, which has branches; the one for integers has none.
    """
    last = max((at for at, ins in enumerate(instructions) if ins.opcode == "EXIT"), default=0)
    return any(
        ins.opcode in _DATA_DEPENDENT or (ins.opcode == "BRA" and ins.guard and at > last)
        for at, ins in enumerate(instructions)
    )


class Changes:
    """The words of arrays that a sample of blocks changes, with their values before."""

    def __init__(self) -> None:
        self.records = np.empty(MOST_CHANGES, layout.CHANGE)
        self.count = ctypes.c_int64()

    def take_back(self, arrays: Mapping[int, Array], placed: Placed) -> bool:
        """Undo the changes; return whether a changed word differed from this word in the memory after the PTX ran.

        arrays: the changed arrays, keyed by slot in the address space.
        """
        records, differs = self.records[: self.count.value], False
        for region in np.unique(records["region"]).tolist():
            own = records[records["region"] == region]
            words, first = np.unique(
                own["word"], return_index=True
            )  # the first change has the value before all changes
            new, right = (_words(data) for data in (arrays[region], placed.space.slots[region].bytes))
            differs = differs or differ(new[words].view(np.uint8), right[words].view(np.uint8))
            new[words] = own["old"][first]
            if new.base is not arrays[region]:
                arrays[region][:] = new.view(np.uint8)[: len(arrays[region])]
        return differs


def _words(data: Array) -> Array:
    """Return an array of bytes as words of 8 bytes: a view, or a copy if a part of a word has to be filled up."""
    return (data if len(data) % 8 == 0 else np.pad(data, (0, -len(data) % 8))).view(np.uint64)


def differ(left: Array, right: Array) -> bool:
    """Return whether two arrays of bytes differ by more than rounding errors, whatever type of floats they hold."""
    words = left.size // 8 * 8
    if np.array_equal(left[:words].view(np.uint64), right[:words].view(np.uint64)) and np.array_equal(
        left[words:], right[words:]
    ):
        return False
    for kind, most in ROUNDING.items():
        width = np.dtype(kind).itemsize
        with np.errstate(all="ignore"):
            x, y = (each[: each.size // width * width].view(kind) for each in (left, right))
            largest = float(np.max(np.abs(y), where=np.isfinite(y), initial=0.0))
            apart = x.view(f"u{width}") != y.view(f"u{width}")
            x, y = x[apart].astype(np.float64), y[apart].astype(np.float64)
            near = np.abs(x - y) <= most * (np.maximum(np.abs(x), np.abs(y)) + largest)
        if np.all(near | (x == y) | (np.isnan(x) & np.isnan(y))):
            return False
    return True


def execute(
    kernel: Kernel,
    plan: Plan,
    placed: Placed,
    before: dict[int, Array],
    budget: int,
    blocks: Array,
    footprint: Footprint | None = None,
    changes: Changes | None = None,
) -> Code | str:
    """Run the machine code of a launch; return its counts, or the reason why it could not run.

    before: the arrays that the launch may write, from `memory`; they are changed. budget: the run fails after this many
    warp instructions. blocks: the numbers of the blocks that run, ascending. footprint: the memory that the launch
    touches, which determines how long loads take. changes: if given, it receives the changes of the arrays.
    """
    loaded = _library()
    if loaded is None:
        return native.unavailable_text()
    library, _ = loaded
    decoded = kernel.decoded
    spare = SPARE_STACK + RECURSIVE_STACK * plan.code.recursive
    stack = -(-(decoded.stack + spare) // 16) * 16
    try:
        banks = kernel.bank_bytes(placed.space, plan.grid, plan.block, placed.parameters, stack)
        constants = np.array([_constant(constant, banks) for constant in decoded.constants], np.uint32)
        code = _records(decoded)
    except (Unreadable, KeyError, ValueError) as error:
        return f"the machine code cannot be read: {error}"
    slots = placed.space.slots
    regions = region_table(placed.space)[: len(slots)].copy()
    regions["writable"] = 0
    for number, data in before.items():
        regions["data"][number], regions["writable"][number] = data.ctypes.data, True
    kinds = np.full(len(slots), layout.NEAR, np.int32)
    if not decoded.prefetches:
        kinds[:] = [_load_kind(region.name, footprint) for region in slots]
    counts, clocks, unsettled = np.zeros((len(code), 4), np.int64), np.zeros((), layout.CLOCKS), np.zeros(2, np.int64)
    about = layout.Launch()
    arrays = {
        "code": code, "constants": constants, "regions": regions, "blocks": blocks, "counts": counts, "kinds": kinds,
        "clocks": clocks, "unsettled": unsettled,
    }  # fmt: skip
    for name, array in arrays.items():
        setattr(about, name, array.ctypes.data)
    about.code_count, about.constants_count, about.regions_count = len(code), len(constants), len(regions)
    buffers = [ctypes.create_string_buffer(bank, len(bank)) for bank in banks]
    about.banks[:] = [ctypes.addressof(buffer) for buffer in buffers]
    about.bank_sizes[:] = [len(bank) for bank in banks]
    about.grid[:], about.block[:] = plan.grid, plan.block
    about.shared_size = -(-kernel.shared // 16) * 16 + plan.dynamic_shared
    about.threads = 1 if plan.code.communicates or decoded.atomics else min(threads(), len(blocks))
    about.blocks_count, about.local_size, about.budget = len(blocks), stack, budget
    if changes is not None:
        about.threads = 1  # so that the changes are in the order of the stores
        about.changes, about.changes_size = changes.records.ctypes.data, len(changes.records)
        about.changes_count = ctypes.addressof(changes.count)
    why = library.cudabench_machine_run(ctypes.byref(about))
    if why is not None:
        return str(why.decode())
    reasons = {YIELDS: decoded.yields, TABLES: unsettled[0], GROUPS: unsettled[1]}
    why_unsettled = "; ".join(reason for reason, holds in reasons.items() if holds) or None
    total, longest = (tuple(map(int, clocks[part])) for part in ("sum", "longest"))
    return Code(decoded.addresses, counts, why_unsettled, Clocks(total, longest, len(blocks)))


def _load_kind(name: str, footprint: Footprint | None) -> int:
    """Return the kind of a block's first load from a sector of an array (`layout`)."""
    if footprint is None:
        return layout.SMALL
    fresh = sum(touch.fresh for touch in footprint.touches if touch.op == "load" and touch.array == name)
    if footprint.read.get(name, 0) >= 0.99 * fresh:
        return layout.FAR  # no other block loads the sector
    return layout.SMALL if footprint.sizes.get(name, 0) * SECTOR <= layout.L1_BYTES else layout.SHARED_BY_BLOCKS


def _constant(constant: tuple[int, int] | int, banks: Sequence[bytes]) -> int:
    if isinstance(constant, int):
        return constant
    bank, offset = constant
    if bank >= len(banks) or offset + 4 > len(banks[bank]):
        raise Unreadable(f"c[{bank:#x}][{offset:#x}]")
    return int.from_bytes(banks[bank][offset : offset + 4], "little")
