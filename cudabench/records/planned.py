"""The plan of a run: operations, their kernels, problems, cases, settings.

All are frozen. An `Operation` is a computation, and a `Kernel` is one way to do it. A `Problem` is an operation with
a size, type and seed. A `Case` is a kernel ready to run: its launches, its compiler defines, its source.
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
    """An operation with a size, an element type and a seed."""

    size: Size
    dtype: str
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Buffer:
    """One array of a problem in device memory: its shape in elements, its NumPy type, and its role."""

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
    """The accepted difference to the reference, |got - expected| <= atol + rtol * |expected|, and its reason."""

    rtol: float
    atol: float
    reason: str
    # The tolerances of other outputs, by name.
    outputs: Mapping[str, Tolerance] = field(default_factory=dict)
    # The elements are bfloat16, stored as uint16, because NumPy lacks the type.
    bfloat16: bool = False
    # Compares derived values instead of the elements: returns named pieces of the expected and the actual output.
    parts: Callable[[np.ndarray, np.ndarray], Iterable[tuple[str, np.ndarray, np.ndarray, Tolerance]]] | None = None

    def of(self, output: str) -> Tolerance:
        """Return the tolerance of an output."""
        return self.outputs.get(output, self)


EXACT = Tolerance(0.0, 0.0, "values are moved, not computed")


@dataclass(frozen=True)
class Geometry:
    """The input of a kernel's rules: the problem, the block, and the constants of the chapter.

    Indexing gives a constant of the chapter's `#define` or the command line's --define:
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
    """The constants of a chapter's `#define`s and of --define; `itemsize` is the size of T."""

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""

    def __getitem__(self, name: str) -> int: ...

    def call(self, name: str, *arguments: int) -> int:
        """Return the value of a macro with parameters."""


# Returns why a constant's value is refused, to follow 'STAGES = 1 is refused: ', or None.
Rule = Callable[[int, Geometry], str | None]


@dataclass(frozen=True)
class Kernel:
    """One rung of a ladder.

    `grid` gives the smallest grid that covers a problem; with `any_grid` every grid is right (the kernel strides).
    `constants` are the constants of the chapter that a user may set for this kernel, each with its rule; they are
    checked first. `refuses` returns why the kernel cannot use the block, or None. `defines` adds compiler defines that
    the host chooses, `shared_bytes` adds dynamic shared memory. `launches` replaces the single launch of `function`
    with the operation's arguments. `expected` and `tolerance` replace the operation's reference and tolerance (a copy
    kernel copies). `architecture` names the GPUs that can run it: sm_90a only 9.0, sm_80 8.0 and later; on other GPUs
    the ladder skips it. A `detour` is not on the way to the fastest kernel: it shows an idea that does not pay, or a
    ceiling, or serves special cases. `chapter` is the file in `kernels_cu/`, empty for the operation's first one.
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
    chapter: str = ""


# The libraries of --peer, and their full names.
LIBRARIES = {"cublas": "cuBLAS", "cusolver": "cuSOLVER", "cub": "CUB", "torch": "PyTorch"}


@dataclass(frozen=True)
class Peer:
    """A library's call that does an operation's work: a row beside the ladder, for --peer.

    `name` is the row's name, `library` the library's. `dtypes` are the element types that it accepts. `arithmetic` is
    its number formats if they differ from the data's. `refuses` returns why it cannot run a problem, or None.
    `expected` and `tolerance` are the same as a kernel's.
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

    If there is a `prepare`, it takes the same arguments and is entered before the clock starts; the work that it
    returns is timed instead of `run`. A baseline that is not `threaded` always uses one thread.
    """

    implementation: str
    run: Callable[[Arrays, Arrays, int], None]
    prepare: Callable[[Arrays, Arrays, int], AbstractContextManager[Callable[[], Any]]] | None = None
    threaded: bool = True

    def prepared(self, inputs: Arrays, outputs: Arrays, threads: int) -> AbstractContextManager[Callable[[], Any]]:
        """Return the context in which the work is timed. Entering it gives the work."""
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
    choices: tuple[str, ...] = ()  # the accepted words; empty: any


@dataclass(frozen=True)
class Operation:
    """A computation, with everything that its kernels share.

    `dtypes` maps NumPy's type names to CUDA C's. `arguments` gives a launch's arguments: buffer names and scalars.
    `reference` returns the expected content of the buffers, in higher precision if the operation computes; buffers
    that it leaves out are not compared. `bytes` is the least traffic between device memory and the chip, `flops` the
    number of floating-point operations, each with its formula as text.
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
    # The fewest operations that a kernel needs, if fewer than `flops`: a kernel may keep repeated sums.
    least_flops: Callable[[Problem], int] | None = None
    # The default size in the simulator, for operations whose usual default would take minutes there.
    simulated_size: tuple[int, ...] | None = None
    options: tuple[Option, ...] = ()
    # Buffers that are copied to `__constant__` variables before every run, by the variable's name. A source need not
    # declare the variable.
    constant_memory: Mapping[str, str] = field(default_factory=dict)
    # Whether rotated inputs are still valid.
    rotatable: bool = True
    # Compiler defines that all kernels share, from options that are fixed at compile time (a radius).
    defines: Callable[[Problem], dict[str, str]] = lambda problem: {}
    # The size that the options set (a picture's size), or None.
    size: Callable[[Mapping[str, Any]], tuple[int, ...] | None] = lambda options: None
    # Figures about a right output, for people: the error against pi, a residual.
    figures: Callable[[Problem, Arrays, Arrays], dict[str, float]] | None = None
    # Saves a right output if an option requests it (a picture); `saves` are the buffers that it needs besides outputs.
    save: Callable[[Problem, Arrays], None] | None = None
    saves: tuple[str, ...] = ()
    # Library calls for the same work.
    peers: tuple[Peer, ...] = ()
    # Messages suggest another size in these words.
    smaller: str = "a smaller --size"
    larger: str = "a larger --size"

    @property
    def plain(self) -> Kernel:
        """Return the first rung that does the operation's work; a user's own kernel uses its geometry."""
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
        """Return whether a row has right outputs of its own, not only a tolerance."""
        rung = self._row(name)
        return rung is not None and rung.expected is not None

    def _row(self, name: str) -> Kernel | Peer | None:
        rows: tuple[Kernel | Peer, ...] = (*self.kernels, *self.peers)
        return next((row for row in rows if row.name == name), None)

    def peer(self, name: str) -> Peer:
        """Return the operation's library call with this name."""
        return next(peer for peer in self.peers if peer.name == name)

    def footprint(self, problem: Problem) -> int:
        """Return the bytes of all buffers together."""
        return sum(buffer.nbytes for buffer in self.buffers(problem))


@dataclass(frozen=True)
class Case:
    """A kernel that is ready to compile, launch and verify. It holds only the names of its operation and kernel."""

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
    # In the simulator: whether a clean kernel runs again, with the blocks in another order if they may exchange data,
    # and compiled without optimisation (see `Source.debug`).
    bounds: bool = False
    # The contents of `__constant__` variables, in bytes; set before the launches.
    constants: Mapping[str, bytes] = field(default_factory=dict)
    # `__constant__` variables that the kernel reads and nothing sets, each as 'NAME=VALUE' for --const.
    unset_constants: tuple[str, ...] = ()
    # The only architecture that has the kernel's instructions, such as sm_90a.
    architecture: str = ""
    # The parameters of a sweep's point, by name.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # The name of the operation's peer, which is called instead of launches; empty for a kernel.
    peer: str = ""
    # Constants of the chapter that the kernel's rule changes for this launch.
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return math.prod(self.block)

    @property
    def cluster(self) -> Dim | None:
        """Return the blocks of a cluster, or None if the launch does not set them."""
        return self.launches[0].cluster if self.launches else None

    @property
    def dynamic_shared_bytes(self) -> int:
        """Return the most dynamic shared memory that a launch gives a block."""
        return max(launch.shared_bytes for launch in self.launches)

    def header(self, file: str) -> str:
        """Return the name, without folders, of a file that a compiler names; empty for the case's own source."""
        name = file.rpartition("/")[2]
        return "" if name == self.source.name.rpartition("/")[2] else name

    @property
    def parts(self) -> list[Case]:
        """Return a case for each source of its launches, its own source first.

        Functions of different parts have different names.
        """
        units: list[Unit] = []
        for launch in self.launches:
            if launch.unit is not None and launch.unit not in units:
                units.append(launch.unit)
        cases = [replace(self, launches=tuple(launch for launch in self.launches if launch.unit is None))]
        for unit in units:
            own = tuple(replace(launch, unit=None) for launch in self.launches if launch.unit == unit)
            cases.append(
                replace(self, source=unit.source, defines=unit.defines, launches=own, function=own[0].function)
            )
        return cases if units else [self]


SIMULATED_TIMEOUT_S = 600.0  # the simulator needs a second for a microsecond of a GPU


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
    jobs: Annotated[int | None, "Kernels simulated at the same time; null: as many as cores and memory allow."] = 1
    sim_threads: Annotated[int | None, "Threads that run a kernel in the simulator; null: one per core."] = None
    budget: Annotated[float | None, "The whole run takes about this many seconds; its kernels share them."] = None
    schedule: Annotated[str | None, "The order of blocks in the simulator: reverse, or random:SEED; null: its own."] = (
        None
    )


def settings_for(simulated: bool, **given: Any) -> Settings:
    """Return the settings for a device: the given values, and the device's defaults for the rest."""
    settings = replace(Settings(timeout=SIMULATED_TIMEOUT_S) if simulated else Settings(), **given)
    return replace(settings, max_time=max(settings.max_time, settings.min_time))
