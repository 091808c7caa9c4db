"""Computes how many blocks of a kernel fit on a multiprocessor, by the rules of NVIDIA's occupancy calculator.

The rules are those of `cuda_occupancy.h` in the CUDA toolkit, for its default setting: the L1 cache gives up as much
memory as possible to shared memory. A test compares this module with that header for many launches. The result says how
many blocks fit on a multiprocessor. If the grid is small, fewer blocks may run there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from cudabench.errors import BlockDoesNotFit, UsageError

# Limits of a launch (CUDA C++ Programming Guide, technical specifications per compute capability). If compute
# capabilities have different limits, the largest limit is used here, so that a launch is refused only if no card can
# run it.
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)  # threads in x, y and z
MAX_GRID = (2**31 - 1, 65535, 65535)  # blocks in x, y and z
MAX_STATIC_SHARED = 48 * 1024  # bytes of shared arrays whose size is known at compile time
# Bytes of shared memory of a block, static and dynamic together (compute capabilities 9.0 and 10.0).
MAX_SHARED = 227 * 1024
# The largest number of blocks in a cluster, for kernels that allow more than 8. Every card with clusters supports 8.
MAX_CLUSTER = 16
MAX_REGISTERS = 255  # registers of a thread, each of 4 bytes

Limit = Literal["threads", "registers", "shared memory", "barriers", "blocks"]

WARP = 32
# The registers of a multiprocessor, for all compute capabilities from 7.0. A single block can use all of them.
_REGISTERS_PER_SM = 65536
# The limit in NVIDIA's occupancy calculator, although the compiler gives a thread at most 255 registers.
_MAX_REGISTERS_PER_THREAD = 256
_REGISTER_UNIT = 256  # the registers of a warp are allocated in multiples of this number
# A multiprocessor has four partitions. Each one has its own registers and its own scheduler.
_PARTITIONS = 4


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of one multiprocessor. `shared_bytes`: the size of its shared memory. `shared_unit`: the shared memory of
    a block is rounded up to a multiple of this number of bytes. `shared_reserve`: the bytes of shared memory that the
    driver uses in each block."""

    threads: int
    blocks: int
    shared_bytes: int
    barriers: int = 0  # 0: no limit (before compute capability 9.0)
    shared_unit: int = 128
    shared_reserve: int = 1024

    @property
    def shared_of_block(self) -> int:
        """The largest number of bytes of shared memory that a block may use."""
        return self.shared_bytes - self.shared_reserve


# Sources. Threads, blocks and shared memory of a multiprocessor: CUDA C++ Programming Guide, table "Technical
# specifications per compute capability"; cuda/__device/arch_traits.h of CCCL has the same numbers. Barriers, allocation
# units and reserved bytes: cuda_occupancy.h (CUDA 13.0).
_MULTIPROCESSORS = {
    (7, 0): Multiprocessor(2048, 32, 96 * 1024, shared_unit=256, shared_reserve=0),
    (7, 5): Multiprocessor(1024, 16, 64 * 1024, shared_unit=256, shared_reserve=0),
    (8, 0): Multiprocessor(2048, 32, 164 * 1024),
    (8, 6): Multiprocessor(1536, 16, 100 * 1024),
    (8, 7): Multiprocessor(1536, 16, 164 * 1024),
    (8, 8): Multiprocessor(1536, 16, 100 * 1024),  # CCCL gives 8.8 the numbers of 8.6
    (8, 9): Multiprocessor(1536, 24, 100 * 1024),
    (9, 0): Multiprocessor(2048, 32, 228 * 1024, 64),
    (10, 0): Multiprocessor(2048, 32, 228 * 1024, 64),
    (10, 3): Multiprocessor(2048, 32, 228 * 1024, 64),  # CCCL gives 10.3 the numbers of 10.0
    (11, 0): Multiprocessor(1536, 24, 228 * 1024, 24),
    (12, 0): Multiprocessor(1536, 24, 100 * 1024, 24),
    (12, 1): Multiprocessor(1536, 24, 100 * 1024, 24),  # CCCL gives 12.1 the numbers of 12.0
}


@dataclass(frozen=True)
class Occupancy:
    """How many blocks and warps fit a multiprocessor, their share of the warps that it can hold, and the limit.

    `limited_by` names the resource that runs out first; if several run out together, 'threads' is named before other
    resources. 'blocks' means that the multiprocessor has its largest number of blocks. If `blocks_per_sm` is 0,
    `limited_by` names the limit that a single block exceeds.
    """

    blocks_per_sm: Annotated[int, "Blocks that fit a multiprocessor."]
    warps_per_sm: Annotated[int, "Warps that fit a multiprocessor."]
    fraction: Annotated[float, "warps_per_sm / the warps that a multiprocessor can hold."]
    limited_by: Annotated[Limit, "The resource that runs out first."]


def capabilities() -> tuple[str, ...]:
    """Return the compute capabilities in the table, such as '9.0'."""
    return tuple(f"{major}.{minor}" for major, minor in _MULTIPROCESSORS)


def capability(text: str) -> tuple[int, int]:
    """Return the compute capability in a text: (9, 0) for '9.0', 'sm_90' or 'compute_90a'; (0, 0) for other texts."""
    match = re.fullmatch(r"(?:(?:sm|compute)_)?(\d+)\.?(\d)[af]?", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def multiprocessor(compute_capability: str | tuple[int, int]) -> Multiprocessor:
    """Return the limits of a multiprocessor of a compute capability, given as '9.0', 'sm_90' or (9, 0).

    Raises UsageError for a capability that is not in the table.
    """
    name = compute_capability if isinstance(compute_capability, str) else "{}.{}".format(*compute_capability)
    sm = _MULTIPROCESSORS.get(capability(name))
    if sm is None:
        raise UsageError(
            f"No limits are known for compute capability '{name}': choose one of {', '.join(capabilities())}."
        )
    return sm


def occupancy(
    compute_capability: str | tuple[int, int],
    threads_per_block: int,
    registers: int,
    shared_bytes: int = 0,
    *,
    barriers: int = 0,
) -> Occupancy:
    """Return how many blocks of a kernel fit on a multiprocessor of the compute capability ('9.0', 'sm_90' or (9, 0)).

    `registers`: per thread; `shared_bytes`: static and dynamic shared memory per block; `barriers`: the named barriers
    of a block, as ptxas reports them (a limit only from 9.0 on). Raises UsageError for an unknown capability or a block
    without threads. If not even one block fits on the multiprocessor, the result has 0 blocks.
    """
    sm = multiprocessor(compute_capability)
    if threads_per_block < 1 or registers < 0 or shared_bytes < 0:
        raise UsageError(
            f"A block of {threads_per_block} threads with {registers} registers and {shared_bytes} bytes of shared "
            "memory is not possible: the block needs at least 1 thread, and the other numbers must not be negative."
        )
    warps = -(-threads_per_block // WARP)
    fits: dict[Limit, int] = {
        "threads": sm.threads // WARP // warps if threads_per_block <= MAX_THREADS_PER_BLOCK else 0,
        "registers": _fit_by_registers(warps, registers),
        "shared memory": _fit_by_shared_memory(sm, shared_bytes),
        "blocks": sm.blocks,
        "barriers": sm.barriers // barriers if barriers and sm.barriers else sm.blocks,
    }
    # If several resources allow the same number of blocks, `min` returns the first of them in `fits`.
    limited_by = min(fits, key=lambda name: fits[name])
    blocks = fits[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps / (sm.threads // WARP), limited_by)


def check_resident(
    kernel: str,
    compute_capability: str | tuple[int, int],
    threads: int,
    registers: int,
    shared_bytes: int,
    *,
    bound: int | None,
) -> None:
    """Raise BlockDoesNotFit if a multiprocessor cannot hold a block of the launch, because of the kernel's launch
    bounds, its registers or its shared memory.

    `bound`: the threads that `__launch_bounds__` allows, None if the kernel has none. The other arguments are those of
    `occupancy`.
    """
    if bound is not None and threads > bound:
        raise BlockDoesNotFit(over_bound(kernel, threads, bound))
    fits = occupancy(compute_capability, threads, registers, shared_bytes)
    limit = None if fits.blocks_per_sm else fits.limited_by
    if limit == "registers":
        each, room = _round_up(registers, _REGISTER_UNIT // WARP), _round_up(threads, _PARTITIONS * WARP)
        product = f"{registers} registers x {threads} threads"
        if (each, room) != (registers, threads):
            product += f" (allocated as {each} x {room})"
        raise BlockDoesNotFit(
            f"{kernel} cannot run in blocks of {threads} threads: {product} = {each * room} are over the "
            f"{_REGISTERS_PER_SM} of an SM; add __launch_bounds__({threads}) or use a block of at most "
            f"{most_threads(registers)} threads."
        )
    if limit == "shared memory":
        name = compute_capability if isinstance(compute_capability, str) else "{}.{}".format(*compute_capability)
        raise BlockDoesNotFit(
            f"{kernel} cannot run with {shared_bytes} bytes of shared memory a block: {name} allows "
            f"{multiprocessor(compute_capability).shared_of_block}; use less."
        )


def over_bound(kernel: str, threads: int, bound: int) -> str:
    """Return the error message for a block that is larger than a kernel's launch bounds allow."""
    return (
        f"a block of {threads} threads is over the __launch_bounds__ of kernel {kernel}, which allow {bound}: use a "
        "smaller block."
    )


def most_threads(registers: int) -> int:
    """Return the number of threads of the largest block for which a multiprocessor has enough registers. `registers`:
    how many each thread needs."""
    each = _round_up(max(registers, 1), _REGISTER_UNIT // WARP)
    return min(_REGISTERS_PER_SM // (each * _PARTITIONS * WARP) * _PARTITIONS * WARP, MAX_THREADS_PER_BLOCK)


def _fit_by_registers(warps: int, registers: int) -> int:
    if registers == 0:
        return _REGISTERS_PER_SM
    per_warp = _round_up(registers * WARP, _REGISTER_UNIT)
    # The warps of a block are spread evenly over the four partitions. Of 5 warps, one partition gets two, so the block
    # is refused if 8 warps would need too many registers.
    if registers > _MAX_REGISTERS_PER_THREAD or per_warp * _round_up(warps, _PARTITIONS) > _REGISTERS_PER_SM:
        return 0
    return _REGISTERS_PER_SM // _PARTITIONS // per_warp * _PARTITIONS // warps


def _fit_by_shared_memory(sm: Multiprocessor, shared_bytes: int) -> int:
    allocated = _round_up(shared_bytes + sm.shared_reserve, sm.shared_unit)
    if allocated == 0:
        return sm.shared_bytes
    # Every kernel may use 48 KiB. If a block needs more, the host sets an attribute of the kernel, and the limit is
    # then the shared memory of the multiprocessor.
    limit = MAX_STATIC_SHARED + sm.shared_reserve if shared_bytes <= MAX_STATIC_SHARED else sm.shared_bytes
    return sm.shared_bytes // allocated if allocated <= limit else 0


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
