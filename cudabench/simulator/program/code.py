"""A decoded kernel, ready to run: its ops in basic blocks, and the facts about them that a launch needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cudabench.simulator.program import ptx
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import UNSIGNED, Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.native.emit import Native
    from cudabench.simulator.program.calls import CallSite


# A function that executes one instruction for the active lanes.
Run = Callable[["Machine"], None]
Kind = Literal["plain", "branch", "table", "exit", "barrier", "collective", "call", "return"]
AccessKind = Literal["load", "store", "atomic"]
# How a load uses the read-only cache. "": not at all; "load": the compiler chose ld.global.nc; "asked": the source
# requests it, as by `__ldg`; "fetch": a texture fetch.
CachedAs = Literal["", "load", "asked", "fetch"]
# Special registers with the two halves of the grid barrier's address, which cooperative groups read in a cooperative
# launch: the upper half, then the lower half.
GRID_BARRIER = ("%envreg1", "%envreg2")
FREE = "free"  # what the race checks record for a call of free(): a store to all bytes of the allocation
# Special registers; those that have axes, such as `%tid.x`, without the axis.
SPECIAL_AXES = frozenset(("%tid", "%ntid", "%ctaid", "%nctaid"))
SPECIAL_WORDS = frozenset(
    ("%laneid", "%warpid", "%nwarpid", "WARP_SZ", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge",
     "%lanemask_gt", "%smid", "%nsmid", "%gridid", "%dynamic_smem_size", "%total_smem_size", "%clusterid",
     "%nclusterid", "%cluster_ctaid", "%cluster_nctaid", "%cluster_ctarank", "%cluster_nctarank",
     "%is_explicit_cluster", *GRID_BARRIER)
)  # fmt: skip
SYMBOL_BIT = 8192  # bit numbers in the masks of `flow.points_to`
LOCAL_BIT = 2 * SYMBOL_BIT
SHARED_BIT = 3 * SYMBOL_BIT


class Unsupported(NamedTuple):
    """A feature that a kernel uses and the simulator lacks; file, line: where the source uses it."""

    file: str
    line: int
    feature: str


class Refuse(Exception):
    """Raised while an instruction is decoded that the simulator lacks; the message names the feature."""


class Barrier:
    """The operands of a `bar` instruction.

    number: the register with the barrier's number. count: the register with the number of threads that the barrier
    waits for; None: all threads of the block. arrive: whether the instruction is `bar.arrive`, which does not wait.
    reduce: for `bar.red`, a function that sets the result for the lanes of a mask, which pass the barrier together.
    reduces: for `bar.red` (the operation, the result's register, the predicate's register, whether the predicate is
    inverted).
    """

    def __init__(self, number: int, count: int | None, arrive: bool) -> None:
        self.number, self.count, self.arrive = number, count, arrive
        # The barrier's number and count at the time of an arrival: the registers may change afterwards.
        self.known: tuple[int, int | None] | None = None
        self.reduce: Callable[[Machine, Array | None], None] = lambda machine, mask: None
        self.reduces: tuple[str, int, int, bool] | None = None

    def by_number(self, machine: Machine, mask: Array | None) -> Iterator[tuple[Barrier, Array | None]]:
        """Group the arriving lanes of `mask` by barrier number and count; yield (barrier, mask) of each group."""
        if self.count is None:
            yield self, mask
            return
        chunk = machine.chunk
        numbers = broadcast(machine.array(self.number, UNSIGNED[32]), chunk.shape)
        counts = broadcast(machine.array(self.count, UNSIGNED[32]), chunk.shape)
        lanes = chunk.real(mask)
        pairs = set(zip(numbers[lanes].tolist(), counts[lanes].tolist(), strict=True))
        for number, count in sorted(pairs):
            barrier = copy.copy(self)
            barrier.known = number, count
            own = lanes & (numbers == number) & (counts == count)
            yield barrier, mask if len(pairs) == 1 else machine.union(own, own)

    def identity(self, machine: Machine, mask: Array | None) -> tuple[int, int | None]:
        """Return (the barrier's number, how many threads the barrier waits for: None for all threads of the block)."""
        if self.known is not None:
            return self.known
        return machine.first_value(self.number), None if self.count is None else machine.first_value(self.count)


@dataclass(slots=True, eq=False)
class Op:
    """One decoded instruction: `run(machine)` executes it, and the other fields tell the scheduler about it.

    line: the location of the instruction in the source. guard: the register of the guard predicate, or -1; inverted:
    whether the guard is inverted. defs, uses: the registers that the instruction writes and reads.

    For a branch, labels: the names of the possible targets; targets: the block numbers of these targets, once the
    blocks exist; selector: the register whose value selects a target, or -1. For a call, site: the record of the call;
    targets: the first block of each callee of `site`, in the same order, then the block after the call.

    For a memory instruction, address: the register of the address, or -1; offset: the bytes to add to it. pointer: the
    bits for what the results point to (see `flow.points_to`); None: they point to the same as the operands.

    For a collective (such as `__shfl_sync`), members: a function that returns the lanes of each warp that must take
    part, as bits, or None for all; function: its name in CUDA C++. An atomic whose function is "atomicCAS" is a
    compare-and-swap with the expected value in the register `uses[0]`.

    native: the op of the native engine, None if that engine lacks the op. undefined: the registers that the op reads
    although perhaps nothing has written these registers. watched: whether `before` has made the op call a function
    other than the check of `undefined`.
    """

    run: Run | None
    kind: Kind
    line: Location
    opcode: str = ""
    guard: int = -1
    inverted: bool = False
    defs: tuple[int, ...] = ()
    uses: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    targets: tuple[int, ...] = ()
    selector: int = -1
    address: int = -1
    offset: int = 0
    barrier: Barrier | None = None
    members: Callable[[Machine], Array | None] | None = None
    function: str = ""
    pointer: int | None = None
    site: CallSite | None = None
    native: Native | None = None
    undefined: tuple[int, ...] = ()
    watched: bool = False

    def before(self, note: Run) -> None:
        """Make the op call `note(machine)` each time before it runs."""
        run = self.run
        assert run is not None
        self.watched = True

        def noting(machine: Machine) -> None:
            note(machine)
            run(machine)

        self.run = noting


@dataclass(slots=True, eq=False)
class Block:
    """A basic block: straight-line ops, then at most one op that may split, stop or park the lanes.

    ops, terminator: the straight-line ops, and that last op, if there is one. successors: the numbers of the blocks
    that may follow. live: the set of registers, one bit each, that a lane waiting before the block may still read.
    weight: the number of instructions. rank: the block's position in the order in which blocks run (see
    `order.arranged`). lines: the PTX line numbers of the block's ops.
    """

    number: int
    ops: list[Op] = field(default_factory=list)
    terminator: Op | None = None
    successors: tuple[int, ...] = ()
    live: int = 0
    weight: int = 0
    rank: int = -1
    lines: frozenset[int] = frozenset()

    @property
    def every(self) -> list[Op]:
        """The ops, including the terminator."""
        return self.ops if self.terminator is None else [*self.ops, self.terminator]


class MemoryInstruction(NamedTuple):
    """A memory instruction in one state space; requests are counted for each such record.

    size: the bytes that the instruction moves per lane. what: the operation and type of an atomic, such as 'add.f32'.
    """

    location: Location
    space: str
    kind: AccessKind
    size: int
    what: str = ""


class Code(NamedTuple):
    """A decoded kernel, ready to run.

    blocks: the basic blocks. widths, initial: the width in bits and the initial value of each register; None stands for
    the value of an unwritten register. special: for the name of each special register, the index of the register with
    its value. dynamic: the names of the dynamic shared arrays, all of which begin after the static shared arrays.
    shared_names: (name, first byte, bytes) of each shared array. granule: for each state space, the size in bytes of
    the units in which races are checked. accesses: the memory instructions. unsupported: the features that the kernel
    uses and the simulator lacks.

    read: the registers that some op reads. written, cached: the memory that the kernel writes, and the memory that the
    kernel reads through the read-only cache, as bits of `flow.points_to`. orders: whether fences, or accesses with a
    memory order, may order the accesses of different thread blocks. locks: whether the kernel has both fences and
    atomics that may take a lock. calls: whether the kernel enters functions by jumps, with a stack; recursive: whether
    such a function may be active twice. proxies: whether wgmma or bulk copies read shared memory.

    waits: whether an atomic polls (see `polls`). polling: the numbers of the basic blocks with accesses that poll.
    signs: the numbers of the basic blocks after an access that may end a poll. communicates: whether a thread block may
    learn from global memory what other thread blocks did in the same launch: by atomics that return the old value, by
    volatile or ordered reads, or by fences. fair: whether lanes may loop until other lanes act, so that the scheduler
    must let all lanes run now and then.

    encoded: the code for the native engine, by library, and other data that is computed from the code once.
    sampling_history: the counts of the native engine in earlier launches, keyed by the size of a thread block, see
    `native.patterns`.
    """

    name: str
    blocks: list[Block]
    widths: list[int]
    initial: list[int | None]
    special: dict[str, int]
    parameters: tuple[ptx.Variable, ...]
    parameter_offsets: dict[str, int]
    parameter_bytes: int
    static_shared: int
    dynamic: tuple[str, ...]
    local_bytes: int
    shared_names: tuple[tuple[str, int, int], ...]
    granule: dict[str, int]
    accesses: list[MemoryInstruction]
    unsupported: tuple[Unsupported, ...]
    files: dict[int, str]
    read: frozenset[int]
    written: int
    orders: bool
    locks: bool
    calls: bool
    recursive: bool
    proxies: bool
    waits: bool
    cached: int
    polling: frozenset[int]
    signs: frozenset[int]
    communicates: bool
    fair: bool
    encoded: dict[Any, Any]
    sampling_history: dict[Any, Any]

    @property
    def cooperative(self) -> bool:
        """Whether the kernel uses a grid barrier, so that all its blocks must run at once."""
        return any(name in self.special for name in GRID_BARRIER)
