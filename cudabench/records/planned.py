"""What is to be run: operations, their kernels, problems, cases, settings.

All are frozen. An `Operation` is what is computed and a `Kernel` one way to compute it; a `Problem` is an operation at
one size, type and seed; a `Case` is a kernel made concrete: its launches, its compiler defines, its source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from cudabench.records.launch import Dim, Launch, Size, Source, Unit

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """An operation at one size, element type and seed."""

    size: Size
    dtype: str
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Buffer:
    """One array of a problem in device memory: its shape in elements, its NumPy type, and what it is for."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout", "scratch"]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the array."""
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Tolerance:
    """What difference to the reference is accepted: |got - expected| <= atol + rtol * |expected|, and why."""

    rtol: float
    atol: float
    reason: str
    # What other outputs accept, by name.
    outputs: Mapping[str, Tolerance] = field(default_factory=dict)
    # The elements are bfloat16 in uint16, which NumPy has no type for.
    bfloat16: bool = False
    # What is compared where that is not the elements: pieces of what is expected and of the output, with a name each.
    parts: Callable[[np.ndarray, np.ndarray], Iterable[tuple[str, np.ndarray, np.ndarray, Tolerance]]] | None = None

    def of(self, output: str) -> Tolerance:
        """Return the tolerance of an output."""
        return self.outputs.get(output, self)


EXACT = Tolerance(0.0, 0.0, "values are moved, not computed")


@dataclass(frozen=True)
class Geometry:
    """What the rules of a kernel are asked with: the problem, the block, and the constants of the chapter in force.

    Indexing gives a constant, as the chapter's `#define` or the command line's --define says it:
    `geometry["STAGES"]`; `constants.call` gives a macro with parameters.
    """

    problem: Problem
    block: Dim
    constants: Constants

    def __getitem__(self, name: str) -> int:
        return self.constants[name]

    def call(self, name: str, *arguments: int) -> int:
        """Return the value of a macro with parameters."""
        return self.constants.call(name, *arguments)

    @property
    def size(self) -> Size:
        """Return the problem's size."""
        return self.problem.size

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""
        return self.constants.itemsize

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return math.prod(self.block)


class Constants(Protocol):
    """The numbers that a chapter's `#define`s and the command line's give; `itemsize` is that of T."""

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""

    def __getitem__(self, name: str) -> int: ...

    def call(self, name: str, *arguments: int) -> int:
        """Return the value of a macro with parameters."""


# Returns what is wrong with a value of a constant, as the end of 'STAGES = 1 is refused: ', or None.
Rule = Callable[[int, Geometry], str | None]


@dataclass(frozen=True)
class Kernel:
    """One rung of a ladder.

    `grid` gives the smallest grid that covers a problem; where `any_grid` is set, every grid is right (the kernel
    strides). `constants` are those of the chapter that a user may set for this kernel, each with its rule; they are
    checked first. `refuses` returns the reason why the kernel cannot take the block, or None. `defines` adds compiler
    defines that the host chooses, `shared_bytes` dynamic shared memory to the launch. `launches` replaces the single
    launch of `function` with the operation's arguments. `expected` replaces the operation's reference (a copy kernel
    copies), and with it `tolerance` the operation's. `architecture` names the GPUs whose instructions it has, sm_90a
    those of 9.0 alone and sm_80 those of 8.0 and later: on all others the ladder skips it. A `detour` is no step of
    the way to the fastest kernel: it shows an idea that does not pay, or a ceiling.
    """

    name: str
    function: str
    block: tuple[int, ...]
    grid: Callable[[Geometry], Dim]
    any_grid: bool = False
    constants: Mapping[str, Rule] = field(default_factory=dict)
    refuses: Callable[[Geometry], str | None] = lambda geometry: None
    defines: Callable[[Geometry], dict[str, str]] = lambda geometry: {}
    shared_bytes: Callable[[Geometry], int] = lambda geometry: 0
    launches: Callable[[Geometry, Dim], Sequence[Launch]] | None = None
    expected: Callable[[Problem, Arrays], Arrays] | None = None
    tolerance: Callable[[Problem], Tolerance] | None = None
    dtypes: tuple[str, ...] | None = None
    detour: bool = False
    architecture: str = ""


# The libraries that --peer names, and what they are called.
LIBRARIES = {"cublas": "cuBLAS", "cusolver": "cuSOLVER", "cub": "CUB", "torch": "PyTorch"}


@dataclass(frozen=True)
class Peer:
    """A library's call that does an operation's work: a row beside the ladder, for --peer.

    `name` is the row's, `library` the one that the call is of. `dtypes` are the element types that it takes.
    `arithmetic` has the number formats that it computes in where they are not the data's. `refuses` returns the reason
    why it cannot take a problem, or None. `expected` and `tolerance` are as a kernel's.
    """

    name: str
    library: str
    call: str
    dtypes: tuple[str, ...]
    arithmetic: tuple[str, ...] = ()
    refuses: Callable[[Problem], str | None] = lambda problem: None
    expected: Callable[[Problem, Arrays], Arrays] | None = None
    tolerance: Callable[[Problem], Tolerance] | None = None


@dataclass(frozen=True)
class Baseline:
    """The same work on the CPU: `run(inputs, outputs, threads)` fills the outputs; `implementation` names the call.

    `prepare`, where there is one, takes the same arguments and is entered outside the clock; the work that it gives is
    timed in place of `run`. What is not `threaded` takes one thread, whatever it is given.
    """

    implementation: str
    run: Callable[[Arrays, Arrays, int], None]
    prepare: Callable[[Arrays, Arrays, int], AbstractContextManager[Callable[[], Any]]] | None = None
    threaded: bool = True

    def prepared(self, inputs: Arrays, outputs: Arrays, threads: int) -> AbstractContextManager[Callable[[], Any]]:
        """Return the context in which the work is timed; entered, it gives the work."""
        if self.prepare:
            return self.prepare(inputs, outputs, threads)
        return nullcontext(partial(self.run, inputs, outputs, threads))


@dataclass(frozen=True)
class Option:
    """A command-line option of one operation; its value arrives in `Problem.options` under its name."""

    name: str
    type: type
    default: Any
    metavar: str
    help: str
    choices: tuple[str, ...] = ()  # the words that it takes, where it takes no others


@dataclass(frozen=True)
class Operation:
    """What is computed, with everything that its kernels share.

    `dtypes` maps NumPy's type names to CUDA C's. `arguments` gives a launch's arguments: buffer names and scalars.
    `reference` returns what buffers must hold after a run for the inputs, in higher precision where the operation
    computes; a buffer that it leaves out is not compared. `bytes` is
    what must move between device memory and the chip at least once, `flops` the floating-point operations, each with
    its formula as text.
    """

    name: str
    summary: str
    source: str
    dimensions: tuple[str, ...]
    default_size: tuple[int, ...]
    block_dimensions: int
    dtypes: Mapping[str, str]
    kernels: tuple[Kernel, ...]
    buffers: Callable[[Problem], tuple[Buffer, ...]]
    arguments: Callable[[Problem], tuple[Any, ...]]
    inputs: Callable[[Problem], Arrays]
    reference: Callable[[Problem, Arrays], Arrays]
    baseline: Baseline
    tolerance: Callable[[Problem], Tolerance]
    bytes: Callable[[Problem], int]
    bytes_formula: str
    flops: Callable[[Problem], int] | None = None
    flops_formula: str = ""
    # What no kernel does with fewer than, where that is not `flops`: a definition may add up again what a kernel keeps.
    least_flops: Callable[[Problem], int] | None = None
    # The default in the simulator, for operations whose own default would take it minutes.
    simulated_size: tuple[int, ...] | None = None
    options: tuple[Option, ...] = ()
    # The buffers that go into `__constant__` variables before every run, by the variable's name; a source that declares
    # none of this name does without.
    constant_memory: Mapping[str, str] = field(default_factory=dict)
    # Whether inputs that begin later in the memory, and go on with their beginning, are inputs still.
    turnable: bool = True
    # Compiler defines that all kernels share: what the options fix at compile time (a radius).
    defines: Callable[[Problem], dict[str, str]] = lambda problem: {}
    # The size that the options demand (a picture has one), or None.
    size: Callable[[Mapping[str, Any]], tuple[int, ...] | None] = lambda options: None
    # Figures about a right output, for people: the error against pi, a residual.
    figures: Callable[[Problem, Arrays, Arrays], dict[str, float]] | None = None
    # Keeps a right output where the options say so (a picture); `saves` are the buffers that it needs besides outputs.
    save: Callable[[Problem, Arrays], None] | None = None
    saves: tuple[str, ...] = ()
    # Libraries' calls for the same work.
    peers: tuple[Peer, ...] = ()
    # What messages call another size.
    smaller: str = "a smaller --size"
    larger: str = "a larger --size"

    @property
    def plain(self) -> Kernel:
        """Return the first rung that does the operation's work: a user's own kernel gets its geometry."""
        return next(kernel for kernel in self.kernels if kernel.expected is None)

    def kernel_id(self, name: str) -> int | None:
        """Return a kernel's position in the ladder, or None for a kernel from elsewhere."""
        return next((i for i, kernel in enumerate(self.kernels) if kernel.name == name), None)

    def right(self, name: str, problem: Problem, inputs: Arrays) -> Arrays:
        """Return the right outputs of a kernel: those of the rung `name` if it has its own, else the operation's."""
        rung = self._row(name)
        return ((rung and rung.expected) or self.reference)(problem, inputs)

    def tolerated(self, name: str, problem: Problem) -> Tolerance:
        """Return the tolerance of the same outputs."""
        rung = self._row(name)
        return ((rung and rung.tolerance) or self.tolerance)(problem)

    def has_own(self, name: str) -> bool:
        """Tell whether a row has right outputs of its own, not only a tolerance."""
        rung = self._row(name)
        return rung is not None and rung.expected is not None

    def _row(self, name: str) -> Kernel | Peer | None:
        rows: tuple[Kernel | Peer, ...] = (*self.kernels, *self.peers)
        return next((one for one in rows if one.name == name), None)

    def peer(self, name: str) -> Peer:
        """Return the library's call of this name, which is one of the operation's."""
        return next(peer for peer in self.peers if peer.name == name)

    def footprint(self, problem: Problem) -> int:
        """Return the bytes of all buffers together."""
        return sum(buffer.nbytes for buffer in self.buffers(problem))


@dataclass(frozen=True)
class Case:
    """A kernel made concrete: ready to compile, launch and verify. Refers to its operation and kernel by name only."""

    operation: str
    kernel: str
    id: int | None
    function: str
    source: Source
    problem: Problem
    block: Dim
    grid: Dim
    launches: tuple[Launch, ...]
    defines: Mapping[str, str]
    expects: str
    named: bool = False
    skip_reason: str | None = None
    # In the simulator: whether what ran well is run again, with the blocks in another order where they may tell each
    # other something, and compiled without optimisation (see `Source.debug`).
    bounds: bool = False
    # What `__constant__` variables hold, as bytes; set before the launches.
    constants: Mapping[str, bytes] = field(default_factory=dict)
    # Those that the kernel reads and nothing sets, each as --const would take it: 'NAME=VALUE'.
    unset_constants: tuple[str, ...] = ()
    # The GPUs that alone have the kernel's instructions, such as sm_90a.
    architecture: str = ""
    # Of a point of a sweep: what it varies, by name.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # The name of the operation's peer that is called in the place of launches; empty for a kernel.
    peer: str = ""
    # Constants of the chapter that the kernel's own rule sets to another value for this launch.
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return math.prod(self.block)

    @property
    def cluster(self) -> Dim | None:
        """Return the blocks of a cluster, None where the launch does not say them."""
        return self.launches[0].cluster if self.launches else None

    @property
    def dynamic_shared_bytes(self) -> int:
        """Return the most dynamic shared memory that a launch gives a block."""
        return max(launch.shared_bytes for launch in self.launches)

    @property
    def parts(self) -> list[Case]:
        """Return the case as one for each source that its launches come from, its own first.

        Functions of different parts have different names.
        """
        units: list[Unit] = []
        for launch in self.launches:
            if launch.unit is not None and launch.unit not in units:
                units.append(launch.unit)
        found = [replace(self, launches=tuple(launch for launch in self.launches if launch.unit is None))]
        for unit in units:
            own = tuple(replace(launch, unit=None) for launch in self.launches if launch.unit == unit)
            found.append(
                replace(self, source=unit.source, defines=unit.defines, launches=own, function=own[0].function)
            )
        return found if units else [self]


SIMULATED_TIMEOUT_S = 600.0  # the simulator takes a second for what a GPU does in a microsecond


@dataclass(frozen=True)
class Settings:
    """How to measure: the stopping rule in seconds, the cache state, the CPU baseline."""

    cache: Annotated[Literal["cold", "hot"], "Cold: the L2 cache is flushed before each sample. Hot: it is not."] = (
        "cold"
    )
    min_time: Annotated[float, "Sampling lasts at least this many seconds."] = 0.5
    max_time: Annotated[float, "Sampling ends after this many seconds, however precise the median."] = 10.0
    min_samples: Annotated[int, "At least this many samples are taken."] = 10
    timeout: Annotated[float, "A kernel that runs longer than this many seconds has failed."] = 60.0
    cpu: Annotated[bool, "Whether the CPU baseline was measured."] = True
    cpu_threads: Annotated[int, "Threads of the CPU baseline."] = 1
    jobs: Annotated[
        int | None, "Kernels simulated at the same time; null: as many as there are cores, memory permitting."
    ] = 1
    sim_threads: Annotated[int | None, "Threads that run a kernel in the simulator; null: one a core."] = None
    budget: Annotated[float | None, "The whole run takes about this many seconds; its kernels share them."] = None
    schedule: Annotated[str | None, "The order of blocks in the simulator: reverse, or random:SEED; null: its own."] = (
        None
    )


def settings_for(simulated: bool, **given: Any) -> Settings:
    """Return how to measure on a device: with so much of `Settings` given, the rest as is usual there."""
    found = replace(Settings(timeout=SIMULATED_TIMEOUT_S) if simulated else Settings(), **given)
    return replace(found, max_time=max(found.max_time, found.min_time))
