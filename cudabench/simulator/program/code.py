"""A kernel ready to run: basic blocks of decoded instructions, and what a launch must know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cudabench.simulator.program import ptx
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Array, Value

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.native.emit import Native
    from cudabench.simulator.program.calls import Site


# What executes an instruction for the active lanes.
Run = Callable[["Machine"], None]
Kind = Literal["plain", "branch", "table", "exit", "barrier", "collective", "call", "return"]
AccessKind = Literal["load", "store", "atomic"]
# How a load uses the read-only cache: not, by ld.global.nc, by one that the source requests, by a texture fetch.
CachedAs = Literal["", "load", "asked", "fetch"]
# The address of the barrier of a cooperative launch, its upper and its lower half: cooperative groups read them.
GRID_BARRIER = ("%envreg1", "%envreg2")
# Special registers: the place of a block in its cluster, and of a cluster in the grid.
CLUSTER_WORDS = frozenset(
    ("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid", "%cluster_ctarank", "%cluster_nctarank",
     "%is_explicit_cluster")
)  # fmt: skip
SYMBOL_BIT = 8192  # see `flow.points_to`
LOCAL_BIT = 2 * SYMBOL_BIT
SHARED_BIT = 3 * SYMBOL_BIT


class Unsupported(NamedTuple):
    """A feature that a kernel uses and the simulator lacks, with its place."""

    file: str
    line: int
    feature: str


class Refuse(Exception):
    """Raised by a builder for an instruction that the simulator lacks; the message names the feature."""


class Barrier:
    """The request of a bar instruction: its number, how many threads it counts, and a reduction of predicates.

    number, count: registers; a count of None stands for all threads of the block. reduces: of bar.red the operation,
    the register of the result, that of the predicate, and whether it is read inverted.
    """

    def __init__(self, number: int, count: int | None, arrive: bool) -> None:
        self.number, self.count, self.arrive = number, count, arrive
        self.reduction: Callable[[Machine, Array | None], None] | None = None
        self.reduces: tuple[str, int, int, bool] | None = None

    def reduce(self, machine: Machine, mask: Array | None) -> None:
        """Give the lanes that pass together the result of bar.red."""
        if self.reduction is not None:
            self.reduction(machine, mask)

    def identity(self, machine: Machine, mask: Array | None) -> tuple[int, int | None]:
        """Return (number of the barrier, threads that it waits for; None for all of the block)."""
        return machine.first_value(self.number), None if self.count is None else machine.first_value(self.count)


@dataclass(slots=True, eq=False)
class Op:
    """One decoded instruction: `run(machine)` and what the scheduler must know about it.

    guard: the predicate's register, or -1. defs, uses: registers written and read. members (of a collective): the
    lanes of the warp that must take part, as bits, or None for all; function: its name in CUDA C++. labels, targets (of
    a branch): where it may lead, as names until the blocks are cut and as block numbers from then on. selector: the
    register that picks from them. address: the register that a memory instruction's address is in, or -1; offset:
    the bytes to add to it. pointer: what the results point to (see `flow.points_to`), or None: what the operands
    point to. site: of a call, what it may reach: its targets are their first blocks, in their order, then the block
    after the call. native: what it is in the native engine, None where that lacks it. undefined: the registers that it
    reads and that may never have been written. watched: whether anything else is noted before it runs.
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
    site: Site | None = None
    native: Native | None = None
    undefined: tuple[int, ...] = ()
    watched: bool = False

    def before(self, note: Run) -> None:
        """Call `note` each time before it runs."""
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

    live: a bit for each register that a lane waiting before the block may still read. runs: of the ops, where none has
    a guard (`simple`). weight: instructions. lines: of the PTX, where they stand. rank: its place in the order in which
    blocks run (see `order.arranged`).
    """

    number: int
    ops: list[Op] = field(default_factory=list)
    terminator: Op | None = None
    successors: tuple[int, ...] = ()
    live: int = 0
    simple: bool = True
    runs: list[Run] = field(default_factory=list)
    weight: int = 0
    rank: int = -1
    lines: frozenset[int] = frozenset()

    @property
    def every(self) -> list[Op]:
        """The ops, with the terminator."""
        return self.ops if self.terminator is None else [*self.ops, self.terminator]


BoundedAccess = tuple["MemoryOp", int]  # an access that may stay in one array, and the register of its address


class MemoryInstruction(NamedTuple):
    """A memory instruction in one state space, counted separately, with the bytes that it moves for a lane.

    what: of an atomic its operation and type, 'add.f32'.
    """

    location: Location
    space: str
    kind: AccessKind
    size: int
    what: str = ""


class Code(NamedTuple):
    """A kernel ready to run.

    dynamic: the names of its dynamic shared arrays, all of which begin after the static ones.

    calls: whether it enters functions by jumps, with a stack; recursive: whether such a function may be active twice.
    waits: whether atomics poll. written, cached: what it writes, and what it reads through the read-only cache, as the
    bits of `flow.points_to`. polling: the blocks of code in which accesses poll. signs: those after an access that may
    end a poll. communicates: whether a block may learn from global memory what others did in the same launch: by
    atomics that return the old value, by volatile or ordered reads, or by fences. fair: whether lanes may loop until
    others act, so that all must get their turn. encoded: the code as the native engine takes it, by library, and other
    data that are made of it once. looked: the counts of lanes there, by block, see `native.looks`.
    """

    name: str
    blocks: list[Block]
    widths: list[int]
    initial: list[Value]
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
    looked: dict[Any, Any]

    @property
    def cooperative(self) -> bool:
        """Whether the kernel synchronises its grid, for which all blocks must run at once."""
        return any(name in self.special for name in GRID_BARRIER)
