"""Running a launch's machine code on a copy of its memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.machine_code import layout
from cudabench.simulator.machine_code.decode import Decoded, Unreadable
from cudabench.simulator.machine_code.image import Kernel
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.native.layout import REGION
from cudabench.simulator.plan import Plan
from cudabench.simulator.program.arguments import Placed
from cudabench.simulator.report import Code, Lines, Report
from cudabench.simulator.values import Array, Index3
from cudabench.system import native

YIELDS = "in which order parted lanes run behind YIELD is not known"
TABLES = "which lanes of a jump by table go first is not known"
SPARE_STACK = 64  # bytes of a lane
MOST = 1 << 27  # warp instructions of a launch whose machine code runs
SLACK = 16  # so many times those of the PTX at most
ROUNDING = {"f2": 4e-3, "f4": 1e-4, "f8": 1e-9}

PIECES = {
    "global_load": ("LDG", "LD", "LDGSTS"), "global_store": ("STG", "ST"),
    "global_atomic": ("RED", "REDG", "ATOMG", "ATOM"),
    "shared_load": ("LDS",), "shared_store": ("STS",), "shared_atomic": ("ATOMS",), "local_load": ("LDL",),
    "local_store": ("STL",),
}  # fmt: skip


class Counted(NamedTuple):
    """What a launch executed, by instruction: times that warps issued it, their lanes, sectors or wavefronts.

    arrays: what each array holds afterwards that the launch may write, by its place in the address space. unsettled:
    why hardware may execute more or fewer, or None.
    """

    decoded: Decoded
    counts: Array
    arrays: Mapping[int, Array]
    unsettled: str | None

    @property
    def warps(self) -> int:
        """Warp instructions."""
        return int(self.counts["warps"].sum())

    @property
    def lanes(self) -> int:
        """Thread instructions: of each warp instruction the lanes that stand at it, whether its guard holds or not."""
        return int(self.counts["lanes"].sum())

    def pieces(self, kind: str) -> int:
        """Sectors or wavefronts of a kind of `PIECES`."""
        opcodes = PIECES[kind]
        rows = zip(self.decoded.instructions, self.counts["pieces"], strict=True)
        return int(sum(pieces for one, pieces in rows if one.opcode in opcodes))


@lru_cache(1)
def _library() -> tuple[Any, dict[str, int]] | None:
    """Return the library and the numbers of its operations, None where there is none."""
    library = native.library()
    if library is None:
        return None
    library.cudabench_machine_operations.restype = ctypes.c_int64
    library.cudabench_machine_operation.restype = ctypes.c_char_p
    library.cudabench_machine_size.restype = ctypes.c_int64
    library.cudabench_machine_run.restype = ctypes.c_char_p
    sizes = tuple(library.cudabench_machine_size(place) for place in range(len(layout.SIZES)))
    assert sizes == layout.SIZES, "layout.py and sass.hpp differ"
    count = library.cudabench_machine_operations()
    return library, {library.cudabench_machine_operation(number).decode(): number for number in range(count)}


def memory(space: AddressSpace) -> dict[int, Array]:
    """Return a copy of all that a launch may write, by its place in the address space."""
    return {place: region.bytes.copy() for place, region in enumerate(space.slots) if region.writable and region.size}


def beside(kernel: Kernel | str | None, plan: Plan, placed: Placed) -> Callable[[Report], Report]:
    """Return what adds to the report of a launch that has ended what its machine code did, on memory as it is now.

    kernel: as `image.kernel` returns it, or why it cannot be read; without one reports stay as they are.
    """
    if kernel is None:
        return lambda report: report
    whole = plan.blocks == math.prod(plan.grid) and plan.cluster is None
    before = memory(placed.space) if whole and not isinstance(kernel, str) else {}

    def told(report: Report) -> Report:
        why = kernel if isinstance(kernel, str) else "only some blocks ran" if not whole else ""
        if report.hazards:
            why = why or "the launch has hazards"
        code: Code | str = why or _code(kernel, plan, placed, before, report)  # type: ignore[arg-type]
        lines = {name: Lines(executed) for name, executed in report.executed.items()}
        for found in lines.values():
            found.code = code
        return replace(report, executed=lines)

    return told


def _code(kernel: Kernel, plan: Plan, placed: Placed, before: dict[int, Array], report: Report) -> Code | str:
    budget = min(MOST, SLACK * (report.instructions + 1000))
    ran = execute(kernel, plan.grid, plan.block, plan.dynamic_shared, placed, before, budget)
    if isinstance(ran, str):
        return ran
    slots = placed.space.slots
    unlike = [slots[at].name for at, data in ran.arrays.items() if differ(data, slots[at].bytes)]
    if unlike:
        return f"its results differ from those of the PTX in {', '.join(unlike)}"
    rows = zip(ran.decoded.instructions, ran.counts.tolist(), strict=True)
    return Code({one.address: tuple(row) for one, row in rows}, ran.unsettled)


def differ(mine: Array, other: Array) -> bool:
    """Return whether bytes differ by more than the rounding of some type of floats."""
    if np.array_equal(mine, other):
        return False
    for kind, most in ROUNDING.items():
        width = np.dtype(kind).itemsize
        x, y = (each[: each.size // width * width].view(kind).astype(np.float64) for each in (mine, other))
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(y), where=np.isfinite(y), initial=0.0)
            near = np.abs(x - y) <= most * (np.maximum(np.abs(x), np.abs(y)) + largest)
        if np.all(near | (x == y) | (np.isnan(x) & np.isnan(y))):
            return False
    return True


def execute(
    kernel: Kernel, grid: Index3, block: Index3, dynamic_shared: int, placed: Placed, before: dict[int, Array],
    budget: int,
) -> Counted | str:  # fmt: skip
    """Run a launch on `before`, see `memory`, which it changes; return what it counted, or why it could not be run.

    budget: warp instructions after which it is given up.
    """
    found = _library()
    if found is None:
        return native.reason()
    library, numbers = found
    decoded = kernel.decoded
    stack = -(-(decoded.stack + SPARE_STACK) // 16) * 16
    try:
        banks = kernel.bank_bytes(placed.space, grid, block, placed.parameters, stack)
        constants = np.array([_constant(one, banks) for one in decoded.constants], np.uint32)
        code = decoded.code(numbers)
    except (Unreadable, KeyError, ValueError) as error:
        return f"the machine code is not read whole: {error}"
    regions = np.zeros(len(placed.space.slots), REGION)
    for number, region in enumerate(placed.space.slots):
        data = before.get(number, region.bytes)
        where = data.ctypes.data if region.size and data is not None else 0
        regions[number] = (
            region.base, region.size, where, number in before, 0, 0, region.constant,
        )  # fmt: skip
    counts = np.zeros(len(code), layout.COUNTED)
    about = layout.Launch()
    about.code, about.constants = code.ctypes.data, constants.ctypes.data
    about.regions, about.counts = regions.ctypes.data, counts.ctypes.data
    about.code_count, about.constants_count, about.regions_count = len(code), len(constants), len(regions)
    buffers = [ctypes.create_string_buffer(one, len(one)) for one in banks]
    about.banks[:] = [ctypes.addressof(one) for one in buffers]
    about.bank_sizes[:] = [len(one) for one in banks]
    about.grid[:], about.block[:] = grid, block
    about.shared_size = -(-kernel.shared // 16) * 16 + dynamic_shared
    tables = ctypes.c_int64()
    about.local_size, about.budget, about.tables = stack, budget, ctypes.addressof(tables)
    why = library.cudabench_machine_run(ctypes.byref(about))
    if why is not None:
        return str(why.decode())
    reasons = {YIELDS: decoded.yields, TABLES: tables.value}
    unsettled = "; ".join(reason for reason, holds in reasons.items() if holds) or None
    return Counted(decoded, counts, before, unsettled)


def _constant(one: tuple[int, int] | int, banks: Sequence[bytes]) -> int:
    if isinstance(one, int):
        return one
    bank, offset = one
    if bank >= len(banks) or offset + 4 > len(banks[bank]):
        raise Unreadable(f"c[{bank:#x}][{offset:#x}]")
    return int.from_bytes(banks[bank][offset : offset + 4], "little")
