"""A kernel ready to run: basic blocks of decoded instructions, and what a launch has to know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from cudabench.simulator.program import ptx
from cudabench.simulator.program.debug_info import Variable
from cudabench.simulator.program.ptx import (
    Location,
)
from cudabench.simulator.values import Array, Value

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.calls import Site


# What executes an instruction for the active lanes.
Run = Callable[["Machine"], None]
Kind = Literal["plain", "branch", "table", "exit", "barrier", "collective", "call", "return"]
AccessKind = Literal["load", "store", "atomic"]
# How a load goes through the read-only cache: not, by ld.global.nc, by one that the source must have, by a fetch.
CachedAs = Literal["", "load", "asked", "fetch"]
# The address of the barrier of a cooperative launch, its upper and its lower half: cooperative groups read them.
GRID_BARRIER = ("%envreg1", "%envreg2")
# What tells a block its place in a cluster, and a cluster its place in the grid.
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
    """What a bar instruction asks for: its number, how many threads it counts, and a reduction of predicates.

    number, count: registers; a count of None stands for all threads of the block.
    """

    def __init__(self, number: int, count: int | None, arrive: bool) -> None:
        self.number, self.count, self.arrive = number, count, arrive
        self.reduction: Callable[[Machine, Array | None], None] | None = None

    def reduce(self, machine: Machine, mask: Array | None) -> None:
        """Give the lanes that pass together the result of bar.red."""
        if self.reduction is not None:
            self.reduction(machine, mask)

    def identity(self, machine: Machine, mask: Array | None) -> tuple[int, int | None]:
        """Return (number of the barrier, threads that it waits for; None for all of the block)."""
        return machine.first_value(self.number), None if self.count is None else machine.first_value(self.count)


class Op:
    """One decoded instruction: `run(machine)` and what the scheduler has to know about it.

    guard: the predicate's register, or -1. defs, uses: registers written and read. members (of a collective): the
    lanes of the warp that must meet, as bits, or None for all; function: its name in CUDA C++. labels, targets (of
    a branch): where it may lead, as names until the blocks are cut and as block numbers from then on. selector: the
    register that picks from them. address: the register that a memory instruction's address is in, or -1; offset:
    the bytes to add to it. pointer: what the results point to (see `flow.points_to`), or None: what the operands
    point to. site: of a call, what it may reach: its targets are their first blocks, in their order, then the block
    behind the call.
    """

    __slots__ = (
        "address", "barrier", "defs", "function", "guard", "inverted", "kind", "labels", "line", "members", "offset",
        "opcode", "pointer", "run", "selector", "site", "targets", "uses",
    )  # fmt: skip

    def __init__(self, run: Run | None, kind: Kind, line: Location) -> None:
        self.run = run
        self.kind = kind
        self.line = line
        self.opcode = ""
        self.guard = -1
        self.inverted = False
        self.defs: tuple[int, ...] = ()
        self.uses: tuple[int, ...] = ()
        self.labels: tuple[str, ...] = ()
        self.targets: tuple[int, ...] = ()
        self.selector = -1
        self.address = -1
        self.offset = 0
        self.barrier: Barrier | None = None
        self.members: Callable[[Machine], Array | None] | None = None
        self.function = ""
        self.pointer: int | None = None
        self.site: Site | None = None


class Block:
    """A basic block: straight-line ops, then at most one op that may split, stop or park the lanes.

    live: a bit for each register that a lane waiting before the block may still read. runs: of the ops, where none has
    a guard (`simple`). weight: instructions. lines: of the PTX, where they stand. rank: its place in the order in which
    blocks run (see `order.rank`).
    """

    __slots__ = ("lines", "live", "number", "ops", "rank", "runs", "simple", "successors", "terminator", "weight")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ops: list[Op] = []
        self.terminator: Op | None = None
        self.successors: tuple[int, ...] = ()
        self.live = 0
        self.simple = True
        self.runs: list[Run] = []
        self.weight = 0
        self.rank = number
        self.lines: frozenset[int] = frozenset()


class Bounded(Protocol):
    """A memory instruction that may be known to stay in one array: bytes (start, end) of a thread's local memory, or of
    a block's shared memory. size: the bytes of a lane's access. variable: the local array, where it has a name."""

    size: int
    variable: Variable | None
    bounds: tuple[int, int] | None
    shared_bounds: tuple[int, int] | None


class Cached(Protocol):
    """An access that may be a load through the read-only cache."""

    cached: CachedAs


class Load(Protocol):
    """A load that may be the first guess of a compare-and-swap, which a race can only make a bad guess."""

    guess: bool


BoundedAccess = tuple[Bounded, int]  # and the register of its address


class MemoryInstruction(NamedTuple):
    """What is counted apart: a memory instruction in one state space, with the bytes that it moves for a lane.

    what: of an atomic its operation and type, 'add.f32'.
    """

    location: Location
    space: str
    kind: AccessKind
    size: int
    what: str = ""


class Code(NamedTuple):
    """A kernel ready to run.

    dynamic: the names of its dynamic shared arrays, all of which begin behind the static ones.

    calls: whether it enters functions by jumps, with a stack; recursive: whether such a function may be active twice.
    waits: whether atomics poll. written, cached: what it writes, and what it reads through the read-only cache, as the
    bits of `flow.points_to`. polling: the blocks of code in which accesses poll. signs: those behind an access that may
    let go on who polls. meets: whether a block may learn from global memory what others did in the same launch: by
    atomics that return what they find, by volatile or ordered reads, or where there are fences.
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
    meets: bool

    @property
    def cooperative(self) -> bool:
        """Whether the kernel synchronises its grid, for which all blocks must run at once."""
        return any(name in self.special for name in GRID_BARRIER)
