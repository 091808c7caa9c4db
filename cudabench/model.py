"""The records that flow through cudabench: what is computed, how, where, and what came of it.

All are frozen. An `Operation` is what is computed and a `Kernel` one way to compute it; a `Problem` is an operation at
one size, type and seed; a `Case` is a kernel made concrete: its launches, its compiler defines, its source. A `Result`
is what a device reports of a case and what the results file holds.

Units: seconds, bytes, GB/s with GB = 10^9 bytes, GFLOP/s with 10^9 operations. Blocks and grids are CUDA's, x first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from cudabench.occupancy import Occupancy

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray]

Dim = tuple[int, int, int]
Size = Mapping[str, int]
Status = Literal["ok", "wrong", "failed", "skipped"]

# Limits of every device of compute capability 7.5 and later (CUDA C++ programming guide, technical specifications).
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK: Dim = (1024, 1024, 64)
MAX_GRID: Dim = (2**31 - 1, 65535, 65535)
WARP = 32

POISON = 0xFF  # a byte of memory that nobody has written: NaN in every floating-point type, -1 in signed integers


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up: how many blocks of b cover a."""
    return -(-a // b)


def dim3(values: Sequence[int]) -> Dim:
    """Return one to three numbers as a full (x, y, z), the missing ones 1."""
    x, y, z = (*values, 1, 1, 1)[:3]
    return (x, y, z)


def dim_text(dim: Sequence[int], least: int = 1) -> str:
    """Return a block or grid as '32 x 8', without trailing ones beyond the first `least` numbers."""
    values = list(dim)
    while len(values) > least and values[-1] == 1:
        values.pop()
    return " x ".join(str(value) for value in values)


# What is computed ---------------------------------------------------------------------------------------------------


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

    def of(self, output: str) -> Tolerance:
        """Return the tolerance of an output."""
        return self.outputs.get(output, self)


EXACT = Tolerance(0.0, 0.0, "values are moved, not computed")


@dataclass(frozen=True)
class Launch:
    """One kernel launch. Arguments are names of buffers or NumPy scalars, in the order of the kernel's parameters."""

    function: str
    grid: Dim
    block: Dim
    arguments: tuple[Any, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Kernel:
    """One rung of a ladder.

    `grid` gives the smallest grid that covers a problem with a block; where `any_grid` is set, every grid is right (the
    kernel strides). `refuses` returns the reason why the kernel cannot take a block with an element size, or None.
    `defines` adds compiler defines for a block and an element size, `shared_bytes` dynamic shared memory to the launch.
    `launches` replaces the single launch of `function` with the operation's arguments. `expected` replaces the
    operation's reference (a copy kernel copies), and with it `tolerance` the operation's.
    """

    name: str
    function: str
    block: tuple[int, ...]
    grid: Callable[[Problem, Dim], Dim]
    any_grid: bool = False
    refuses: Callable[[Dim, int], str | None] = lambda block, itemsize: None
    defines: Callable[[Dim, int], dict[str, str]] = lambda block, itemsize: {}
    shared_bytes: Callable[[Dim, int], int] = lambda block, itemsize: 0
    launches: Callable[[Problem, Dim, Dim], Sequence[Launch]] | None = None
    expected: Callable[[Problem, Arrays], Arrays] | None = None
    tolerance: Callable[[Problem], Tolerance] | None = None
    dtypes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Baseline:
    """The same work on the CPU: `run(inputs, outputs, threads)` fills the outputs; `implementation` names the call."""

    implementation: str
    run: Callable[[Arrays, Arrays, int], None]


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
    # The default in the simulator, for operations whose own default would take it minutes.
    simulated_size: tuple[int, ...] | None = None
    options: tuple[Option, ...] = ()
    # Compiler defines that all kernels share: what the options fix at compile time (a radius).
    defines: Callable[[Problem], dict[str, str]] = lambda problem: {}
    # The size that the options demand (a picture has one), or None.
    size: Callable[[Mapping[str, Any]], tuple[int, ...] | None] = lambda options: None
    # Figures about a right output, for people: the error against pi, a residual.
    figures: Callable[[Problem, Arrays, Arrays], dict[str, float]] | None = None
    # Keeps a right output where the options say so (a picture); `saves` are the buffers that it needs besides outputs.
    save: Callable[[Problem, Arrays], None] | None = None
    saves: tuple[str, ...] = ()
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
        rung = next((kernel for kernel in self.kernels if kernel.name == name), None)
        return ((rung and rung.expected) or self.reference)(problem, inputs)

    def tolerated(self, name: str, problem: Problem) -> Tolerance:
        """Return the tolerance of the same outputs."""
        rung = next((kernel for kernel in self.kernels if kernel.name == name), None)
        return ((rung and rung.tolerance) or self.tolerance)(problem)

    def footprint(self, problem: Problem) -> int:
        """Return the bytes of all buffers together."""
        return sum(buffer.nbytes for buffer in self.buffers(problem))


@dataclass(frozen=True)
class Source:
    """CUDA C++ text with the name that compiler messages show, and the folder whose headers it may include."""

    name: str
    text: str
    folder: str | None = None
    builtin: bool = True
    include: tuple[str, ...] = ()

    @property
    def folders(self) -> list[str]:
        """Where headers are looked for."""
        return [*([self.folder] if self.folder else []), *self.include]


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

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return math.prod(self.block)

    @property
    def dynamic_shared_bytes(self) -> int:
        """Return the most dynamic shared memory that a launch gives a block."""
        return max(launch.shared_bytes for launch in self.launches)


@dataclass(frozen=True)
class Settings:
    """How to measure: the stopping rule in seconds, the cache state, the CPU baseline."""

    cache: Literal["cold", "hot"] = "cold"
    min_time: float = 0.5
    max_time: float = 10.0
    min_samples: int = 10
    timeout: float = 60.0
    cpu: bool = True
    cpu_threads: int = 1


# Where it runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceInfo:
    """A device as the results file describes it. Clocks in MHz; unknown values are None."""

    name: str
    kind: Literal["cuda", "sim"]
    compute_capability: str
    sm_count: int | None = None
    l2_bytes: int | None = None
    peak_gbps: float | None = None
    clocks: Mapping[str, int] = field(default_factory=dict)
    driver: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    index: int | None = None


# What came of it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element: its index in the output array and both values."""

    index: tuple[int, ...]
    got: float
    expected: float
    output: str = ""


@dataclass(frozen=True)
class Verification:
    """How the output compares with the reference, and when it was looked at. `samples` is how many timed samples were:
    where an output is wrong, the number of the sample that it is of."""

    mismatches: int
    first: Mismatch | None
    rtol: float
    atol: float
    checked: tuple[str, ...]
    samples: int = 0


@dataclass(frozen=True)
class StateVariable:
    """A variable that launches leave changed, and the line of the source that declares it where that is known."""

    variable: str
    line: int | None


@dataclass(frozen=True)
class Timing:
    """Statistics of the samples of one kernel, in seconds. `relative_ci` is the half width of the 95% confidence
    interval of the median over the median; a sample is the mean of `runs_per_sample` runs back to back, and the samples
    are of `places` in the memory in turn."""

    median_s: float
    q1_s: float
    q3_s: float
    min_s: float
    mean_s: float
    relative_ci: float
    samples: int
    cache: str
    samples_s: tuple[float, ...]
    runs_per_sample: int = 1
    places: int = 1


@dataclass(frozen=True)
class CpuTime:
    """The CPU baseline: median seconds and what ran."""

    time_s: float
    bandwidth_gbps: float | None
    threads: int
    implementation: str


@dataclass(frozen=True)
class Warning:
    """Something that makes a figure less than it seems: a stable code and one sentence with the number and the flag."""

    code: str
    message: str


@dataclass(frozen=True)
class Access:
    """One kind of access on one source line in the simulator, summed over all requests; `bytes` a lane."""

    line: int
    source: str
    space: str
    op: str
    bytes: int
    requests: int
    sectors: int | None = None
    ideal_sectors: int | None = None
    wavefronts: int | None = None
    ideal_wavefronts: int | None = None
    advice: str | None = None


@dataclass(frozen=True)
class Hazard:
    """A fault that the simulator saw: where first, how often."""

    kind: str
    line: int
    source: str
    block: Dim
    thread: Dim
    count: int
    message: str


@dataclass(frozen=True)
class ThreadAccess:
    """One thread's access to one element of an array; `bytes` may cover the elements after it."""

    line: int
    op: str
    bytes: int
    block: Dim
    thread: Dim
    array: str
    index: tuple[int, ...]


@dataclass(frozen=True)
class BankRequest:
    """One request of the first warp to shared memory: by pass and bank, the lanes served."""

    line: int
    op: str
    bytes: int
    passes: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True)
class Result:
    """One kernel's entry in the results file; what was not measured is None."""

    operation: str
    kernel: str
    id: int | None
    function: str
    source: str
    size: Mapping[str, int]
    dtype: str
    block: Dim
    grid: Dim
    device: str
    status: Status
    reason: str | None = None
    shared_bytes: int | None = None
    registers: int | None = None
    local_bytes: int | None = None
    verification: Verification | None = None
    time: Timing | None = None
    bytes: int | None = None
    flops: int | None = None
    bandwidth_gbps: float | None = None
    gflops: float | None = None
    copy_gbps: float | None = None
    copy_fraction: float | None = None
    peak_fraction: float | None = None
    speedup_vs_cpu: float | None = None
    footprint_over_l2: float | None = None
    cpu: CpuTime | None = None
    warnings: tuple[Warning, ...] = ()
    access: tuple[Access, ...] | None = None
    hazards: tuple[Hazard, ...] | None = None
    instructions: int | None = None
    occupancy: Occupancy | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    state: tuple[StateVariable, ...] = ()
    inputs: Literal["fresh", "fixed"] | None = None
    threads: tuple[ThreadAccess, ...] | None = None
    banks: tuple[BankRequest, ...] | None = None
