"""The records of the work to run: operations, their kernels, problems, cases, settings. All are frozen dataclasses.

An `Operation` is a computation. A `Kernel` is one implementation of an operation: a rung of the operation's ladder. A
`Problem` is a size, an element type and a seed for an operation. A `Case` is a kernel that is ready to run, with its
launches, compiler defines and source.
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
    """The inputs of an operation: a size by dimension, an element type, a seed for random inputs, and options."""

    size: Size
    dtype: str
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Buffer:
    """One array of a problem in device memory: its shape in elements, its NumPy type, and its role in the kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout", "scratch"]

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Tolerance:
    """The accepted difference from the reference, |got - expected| <= atol + rtol * |expected|, and its reason."""

    rtol: float
    atol: float
    reason: str
    # The tolerance of each output that has its own tolerance, by the name of the output.
    outputs: Mapping[str, Tolerance] = field(default_factory=dict)
    # The elements are bfloat16. They are stored as uint16, because NumPy itself has no bfloat16.
    bfloat16: bool = False
    # If set, values that this function computes from the output are compared, instead of the elements of the output.
    # The function gets the expected and the actual output, and returns (name, expected values, actual values,
    # tolerance) for each part to compare.
    parts: Callable[[np.ndarray, np.ndarray], Iterable[tuple[str, np.ndarray, np.ndarray, Tolerance]]] | None = None

    def of(self, output: str) -> Tolerance:
        """Return the tolerance of an output."""
        return self.outputs.get(output, self)


EXACT = Tolerance(0.0, 0.0, "values are moved, not computed")


@dataclass(frozen=True)
class Geometry:
    """The input of a kernel's rules: the problem, the block, and the constants of the kernel's source file.

    `geometry["STAGES"]` is the value of the constant STAGES from a `#define` or from --define on the command line;
    `call` returns the value of a macro with parameters.
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
        """The problem's size, by dimension."""
        return self.problem.size

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.constants.itemsize

    @property
    def threads(self) -> int:
        """The number of threads in a block."""
        return math.prod(self.block)


class Constants(Protocol):
    """The constants from the `#define`s of a file in `kernels_cu/` and from --define, by name."""

    @property
    def itemsize(self) -> int:
        """The size of an element (the macro T) in bytes."""

    def __getitem__(self, name: str) -> int: ...

    def call(self, name: str, *arguments: int) -> int:
        """Return the value of a macro with parameters."""


# A function that checks the value of a constant. It returns None if the value is allowed, else the end of an error
# sentence that begins with '... takes'.
Rule = Callable[[int, Geometry], str | None]


@dataclass(frozen=True)
class Kernel:
    """One kernel of an operation: a rung of its ladder.

    `name`: the kernel's name in results; `function`: its name in C++; `block`: the default block. `grid`: returns the
    smallest grid that covers a problem. `any_grid`: whether the kernel works with every grid, because its threads loop
    over the data. `constants`: the constants of the source file that a user may set for this kernel, each with its
    rule; the constants are checked first. `refuses`: returns the reason why the kernel cannot use the block, or None.
    `defines`: returns compiler defines that the host chooses. `shared_bytes`: returns the bytes of dynamic shared
    memory. `launches`: returns the launches; None if the kernel is one launch of `function` with the operation's
    arguments. `expected` and `tolerance` replace the operation's reference and tolerance, as for a kernel that only
    copies. `dtypes`: the element types that the kernel supports; None for all types of the operation. `detour`: whether
    the kernel is not a step towards the fastest kernel: it shows an idea that is not faster, measures a limit, or
    is for special cases. `architecture`: the GPUs that can run the kernel: sm_90a means only 9.0, sm_80 means 8.0
    and later; on other GPUs the kernel is skipped. `chapter`: the file in `kernels_cu/` that contains the kernel; empty
    for the operation's first file.
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


# Maps each library name that --peer accepts to the full name of the library.
LIBRARIES = {"cublas": "cuBLAS", "cusolver": "cuSOLVER", "cub": "CUB", "torch": "PyTorch"}


@dataclass(frozen=True)
class Peer:
    """A library call that does the operation's work; with --peer the table has one more row for this call.

    `name`: the row's name; `library`: a key of LIBRARIES; `call`: the name of the library's function. `dtypes`: the
    element types that the call accepts. `arithmetic`: the number formats in which the call computes, if they differ
    from the data's format. `refuses`: returns the reason why the call cannot run a problem, or None. `expected`,
    `tolerance`: as in `Kernel`.
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
    """The operation's work on the CPU: `run(inputs, outputs, threads)` writes the outputs; `implementation`: the name
    of the CPU function.

    `prepare`: if set, a function that takes the same arguments and returns a context manager. This is entered before
    the clock starts, and gives the function to time instead of `run`. `threaded`: whether the work can use several
    threads.
    """

    implementation: str
    run: Callable[[Arrays, Arrays, int], None]
    prepare: Callable[[Arrays, Arrays, int], AbstractContextManager[Callable[[], Any]]] | None = None
    threaded: bool = True

    def prepared(self, inputs: Arrays, outputs: Arrays, threads: int) -> AbstractContextManager[Callable[[], Any]]:
        """Return a context manager that gives the function to time."""
        if self.prepare:
            return self.prepare(inputs, outputs, threads)
        return nullcontext(partial(self.run, inputs, outputs, threads))


@dataclass(frozen=True)
class Option:
    """A command-line option of one operation; `Problem.options` maps the option's name to its value."""

    name: str
    type: type
    default: Any
    metavar: str
    help: str
    choices: tuple[str, ...] = ()  # the words that the option accepts; empty: any word


@dataclass(frozen=True)
class Operation:
    """A computation, with everything that its kernels share.

    `dtypes`: maps NumPy's type names to CUDA C's. `arguments`: returns the arguments of a launch: buffer names and
    scalars. `reference`: returns the expected contents of buffers by name, computed in higher precision; a buffer that
    it does not return is not compared. `bytes`: returns the fewest bytes that device memory must transfer; `flops`:
    returns the number of floating-point operations; `bytes_formula`, `flops_formula`: texts of both formulas.
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
    # The fewest operations that a kernel needs, if this is less than `flops`, which also counts sums that a kernel need
    # not compute again.
    least_flops: Callable[[Problem], int] | None = None
    # The default size in the simulator, if the simulator would need minutes for the usual default size.
    simulated_size: tuple[int, ...] | None = None
    options: tuple[Option, ...] = ()
    # Buffers that are copied to `__constant__` variables before every run, by the name of the variable. If a source
    # does not declare the variable, the entry is ignored.
    constant_memory: Mapping[str, str] = field(default_factory=dict)
    # Whether the inputs are still valid after a rotation (a cyclic shift) of their elements.
    rotatable: bool = True
    # Returns the compiler defines for all kernels: the values of options that must be known at compile time, such as a
    # radius.
    defines: Callable[[Problem], dict[str, str]] = lambda problem: {}
    # Returns the size of the problem that the options require (such as the size of a picture file), or None.
    size: Callable[[Mapping[str, Any]], tuple[int, ...] | None] = lambda options: None
    # Returns numbers that describe a correct output for the user, by name, such as the error of pi or a residual.
    figures: Callable[[Problem, Arrays, Arrays], dict[str, float]] | None = None
    # Writes a correct output, such as a picture, to a file if an option asks for it. `saves`: the names of the buffers
    # that the function needs in addition to the outputs.
    save: Callable[[Problem, Arrays], None] | None = None
    saves: tuple[str, ...] = ()
    # Library functions that do the same work.
    peers: tuple[Peer, ...] = ()
    # Messages use these words to suggest another size.
    smaller: str = "a smaller --size"
    larger: str = "a larger --size"

    @property
    def plain(self) -> Kernel:
        """The first kernel that does the operation's work (not a copy). A user's kernel gets its grid and block."""
        return next(kernel for kernel in self.kernels if kernel.expected is None)

    def kernel_id(self, name: str) -> int | None:
        """Return the position of a kernel in the ladder, from 0, or None if the ladder does not have it."""
        return next((i for i, kernel in enumerate(self.kernels) if kernel.name == name), None)

    def right(self, name: str, problem: Problem, inputs: Arrays) -> Arrays:
        """Return the expected outputs for the kernel or peer `name`, from its `expected` or else `reference`."""
        rung = self._row(name)
        return ((rung and rung.expected) or self.reference)(problem, inputs)

    def tolerated(self, name: str, problem: Problem) -> Tolerance:
        """Return the tolerance with which the outputs of the kernel or peer `name` are compared."""
        rung = self._row(name)
        return ((rung and rung.tolerance) or self.tolerance)(problem)

    def has_own(self, name: str) -> bool:
        """Return whether the kernel or peer `name` has its own correct outputs, not only its own tolerance."""
        rung = self._row(name)
        return rung is not None and rung.expected is not None

    def _row(self, name: str) -> Kernel | Peer | None:
        rows: tuple[Kernel | Peer, ...] = (*self.kernels, *self.peers)
        return next((row for row in rows if row.name == name), None)

    def peer(self, name: str) -> Peer:
        """Return the peer (library call) of the operation with this name."""
        return next(peer for peer in self.peers if peer.name == name)

    def footprint(self, problem: Problem) -> int:
        """Return the size of all buffers together, in bytes."""
        return sum(buffer.nbytes for buffer in self.buffers(problem))


@dataclass(frozen=True)
class Case:
    """A kernel that is ready to compile, launch and verify.

    `operation`, `kernel`: names, because the objects contain functions, which cannot be sent to another process. `id`:
    the kernel's position in the ladder. `named`: whether the user named the kernel exactly, not by a glob. `expects`:
    the kernel or peer whose `expected` and `tolerance` are used; empty for those of the operation. `skip_reason`: why
    the kernel is not run, or None.
    """

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
    # Whether the simulator runs a kernel in which it found no hazard again: compiled without optimisation (see
    # `Source.debug`) and, if the blocks may exchange data, with the blocks in another order.
    bounds: bool = False
    # The contents of `__constant__` variables, by name. They are written to the variables before the launches.
    constants: Mapping[str, bytes] = field(default_factory=dict)
    # `__constant__` variables that the kernel reads but that nothing sets. Each is written as --const takes it:
    # 'NAME=VALUE'.
    unset_constants: tuple[str, ...] = ()
    # The architecture, such as sm_90a, if only this architecture has the kernel's instructions. Otherwise empty.
    architecture: str = ""
    # The values of a sweep's parameters for this case, by parameter name.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # The name of the peer if a library is called instead of a kernel. Empty for a kernel.
    peer: str = ""
    # Constants of the source file to which the kernel's own rule (`Kernel.defines`) gives another value in this case.
    chosen: Mapping[str, str] = field(default_factory=dict)
    # The arguments of --source's function whose binding may be wrong: 'p as nx, q as ny'. Else empty.
    unsure: str = ""

    @property
    def threads(self) -> int:
        """The number of threads in a block."""
        return math.prod(self.block)

    @property
    def cluster(self) -> Dim | None:
        """The blocks of a cluster (x, y, z), or None if the launch does not set them."""
        return self.launches[0].cluster if self.launches else None

    @property
    def dynamic_shared_bytes(self) -> int:
        """The largest dynamic shared memory of a block in any launch, in bytes."""
        return max(launch.shared_bytes for launch in self.launches)

    def header(self, file: str) -> str:
        """Return the name, without folders, of a file that the compiler names; '' for the source of this case."""
        name = file.rpartition("/")[2]
        return "" if name == self.source.name.rpartition("/")[2] else name

    @property
    def parts(self) -> list[Case]:
        """This case split by source: one case for each source of its launches, the source of this case first.

        Each function name occurs in only one of the cases.
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


# The simulator needs about a second for the work that a GPU does in a microsecond.
SIMULATED_TIMEOUT_S = 600.0


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
    """Return the settings for the simulator or a GPU: the given values, and that device's defaults for the rest."""
    settings = replace(Settings(timeout=SIMULATED_TIMEOUT_S) if simulated else Settings(), **given)
    return replace(settings, max_time=max(settings.max_time, settings.min_time))
