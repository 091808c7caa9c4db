"""The records that flow through cudabench: what is computed, how, where, and what came of it.

All are frozen. An `Operation` is what is computed and a `Kernel` one way to compute it; a `Problem` is an operation at
one size, type and seed; a `Case` is a kernel made concrete: its launches, its compiler defines, its source. A `Result`
is what a device reports of a case and what the results file holds.

Units: seconds, bytes, GB/s with GB = 10^9 bytes, GFLOP/s with 10^9 operations. Blocks and grids are CUDA's, x first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from cudabench.occupancy import Occupancy

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray]

Dim = tuple[int, int, int]
Size = Mapping[str, int]
Status = Literal["ok", "wrong", "failed", "skipped"]

WARP = 32

LARGE = 0x7F  # a byte of scratch memory besides: in a search for the largest NaN never shows, and 3e38 does
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
    # What is compared where that is not the elements: pieces of what is expected and of the output, with a name each.
    parts: Callable[[np.ndarray, np.ndarray], Iterable[tuple[str, np.ndarray, np.ndarray, Tolerance]]] | None = None

    def of(self, output: str) -> Tolerance:
        """Return the tolerance of an output."""
        return self.outputs.get(output, self)


EXACT = Tolerance(0.0, 0.0, "values are moved, not computed")


@dataclass(frozen=True)
class TensorMap:
    """A CUtensorMap over a buffer, as an argument of a launch: by value, or (`pointer`) where it lies in memory.

    As cuTensorMapEncodeTiled has it, the fastest dimension first: sizes, box and steps in elements, strides in bytes
    for all dimensions but the first. swizzle: 0, 32, 64 or 128 bytes. fill: what lies beyond the array.
    """

    buffer: str
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: Literal["zeros", "nan"] = "zeros"
    pointer: bool = False


@dataclass(frozen=True)
class Rows:
    """Pointers to the rows of a buffer as an argument of a launch: `count` of them, to places `pitch` bytes apart."""

    buffer: str
    count: int
    pitch: int


@dataclass(frozen=True)
class ByValue:
    """An argument that is a struct or vector: its bytes, and the alignment of its type.

    pointers: (offset in bytes, buffer) of its members that point at buffers.
    """

    content: bytes
    align: int
    pointers: tuple[tuple[int, str], ...] = ()

    def pointing(self, addresses: Mapping[str, int]) -> bytes:
        """Return the bytes with the addresses of the buffers in their places."""
        content = bytearray(self.content)
        for offset, buffer in self.pointers:
            content[offset : offset + 8] = addresses[buffer].to_bytes(8, "little")
        return bytes(content)


@dataclass(frozen=True)
class Source:
    """CUDA C++ text with the name that compiler messages show, and the folder whose headers it may include.

    `std` is the language ('c++20'), empty for the one that the compiler takes. `debug`: not optimised, so that arrays
    which would be held in registers lie in memory.
    """

    name: str
    text: str
    folder: str | None = None
    builtin: bool = True
    include: tuple[str, ...] = ()
    std: str = ""
    debug: bool = False

    @property
    def folders(self) -> list[str]:
        """Where headers are looked for."""
        return [*([self.folder] if self.folder else []), *self.include]


@dataclass(frozen=True)
class Unit:
    """What is compiled at once: a source with the macros that are defined for it."""

    source: Source
    defines: Mapping[str, str]


@dataclass(frozen=True)
class Texture:
    """A texture object over a buffer, as an argument of a launch.

    shape: the texture's, of as many elements as the buffer, with the channels (1, 2 or 4) as the last axis where there
    are several, and layers as the first. linear: memory that only tex1Dfetch reads. read: "element", or "normalized"
    for integers read as floats. normalized: coordinates run from 0 to 1. filter: point or linear. address: clamp, wrap,
    mirror or border.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    channels: int = 1
    layered: bool = False
    filter: Literal["point", "linear"] = "point"
    address: Literal["clamp", "wrap", "mirror", "border"] = "clamp"
    normalized: bool = False
    read: Literal["element", "normalized"] = "element"
    linear: bool = False

    @property
    def nbytes(self) -> int:
        """The buffer's bytes."""
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Surface:
    """A surface object over a buffer, as an argument of a launch: read and written, its x in bytes.

    shape: the surface's, of as many elements as the buffer, with the channels (1, 2 or 4) as the last axis where there
    are several, and layers as the first. A texture over the same buffer reads what earlier launches wrote through it.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    channels: int = 1
    layered: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel launch. Arguments are names of buffers, textures, surfaces or tensor maps over them, NumPy scalars, or
    structs as `ByValue`, in the order of the kernel's parameters.

    `unit` has the function; None means the case's own source. `cluster`: the blocks of a cluster, where the launch says
    them and not the kernel.
    """

    function: str
    grid: Dim
    block: Dim
    arguments: tuple[Any, ...]
    shared_bytes: int = 0
    unit: Unit | None = None
    cluster: Dim | None = None


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
        own = tuple(launch for launch in self.launches if launch.unit is None)
        if len(own) == len(self.launches):
            return [self]
        by_unit: list[tuple[Unit, list[Launch]]] = []
        for launch in self.launches:
            if launch.unit is None:
                continue
            launches = next((known for unit, known in by_unit if unit is launch.unit or unit == launch.unit), None)
            if launches is None:
                launches = []
                by_unit.append((launch.unit, launches))
            launches.append(replace(launch, unit=None))
        others = [
            replace(self, source=u.source, defines=u.defines, launches=tuple(launches), function=launches[0].function)
            for u, launches in by_unit
        ]
        return [replace(self, launches=own), *others]


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
    budget: Annotated[float | None, "The whole run takes about this many seconds; its kernels share them."] = None
    schedule: Annotated[str | None, "The order of blocks in the simulator: reverse, or random:SEED; null: its own."] = (
        None
    )


# Where it runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceInfo:
    """A device as the results file describes it. Clocks in MHz; unknown values are None."""

    name: Annotated[str, "The device's name, as its driver has it."]
    kind: Annotated[
        Literal["cuda", "simulated", "sim"],
        "A GPU; a driver whose launches the simulator runs, so that times are invented and no rates follow; or the "
        "simulator.",
    ]
    compute_capability: Annotated[str, "Such as '9.0'."]
    sm_count: Annotated[int | None, "Multiprocessors."] = None
    l2_bytes: Annotated[int | None, "Size of the L2 cache."] = None
    peak_gbps: Annotated[float | None, "Theoretical peak of the memory: 2 * clock * bus width."] = None
    clocks: Annotated[Mapping[str, int], "Clocks in MHz, by name."] = field(default_factory=dict)
    driver: Annotated[str | None, "Version of the driver."] = None
    uuid: Annotated[str | None, "What tells the card from others of its name."] = None
    memory_bytes: Annotated[int | None, "Size of the device memory."] = None
    index: Annotated[int | None, "The card's number on its host: cuda:N."] = None

    @property
    def timed(self) -> bool:
        """Whether kernels are launched by a driver and timed."""
        return self.kind != "sim"

    @property
    def label(self) -> str:
        """What results call it: cuda:0 by its number, sim:sm_90 by its architecture."""
        if self.kind == "sim":
            return f"sim:sm_{self.compute_capability.replace('.', '')}"
        return f"cuda:{self.index}"


# What came of it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element: its index in the output array and both values."""

    index: Annotated[tuple[int, ...], "Index of the first wrong element in the output array."]
    got: Annotated[float, "What the kernel left there."]
    expected: Annotated[float, "What the reference has there."]
    output: Annotated[str, "Name of the output array."] = ""


@dataclass(frozen=True)
class Verification:
    """How the output compares with the reference, and when it was looked at."""

    mismatches: Annotated[int, "Wrong elements, over all outputs; the output was compared with the reference."]
    first: Annotated[Mismatch | None, "The first wrong element; null where all are right."]
    rtol: Annotated[float, "Relative tolerance: |got - expected| <= atol + rtol * |expected|."]
    atol: Annotated[float, "Absolute tolerance."]
    checked: Annotated[tuple[str, ...], "When the output was looked at: before and after timing, or simulated."]
    samples: Annotated[int, "How many timed samples were looked at; of a wrong one, its number."] = 0
    largest_error_ulp: Annotated[
        float | None,
        "Largest difference to the reference, in units of the type's last place; null for integers.",
    ] = None


@dataclass(frozen=True)
class StateVariable:
    """A variable that launches leave changed."""

    variable: Annotated[str, "Its name in the source, without namespaces."]
    line: Annotated[int | None, "The line of the source that declares it."]


@dataclass(frozen=True)
class Timing:
    """Statistics of the samples of one kernel, in seconds. `relative_ci` is the half width of the 95% confidence
    interval of the median over the median; a sample is the mean of `runs_per_sample` runs back to back, and the samples
    are of `places` in the memory in turn."""

    median_s: Annotated[float, "Median of the samples."]
    q1_s: Annotated[float, "Lower quartile."]
    q3_s: Annotated[float, "Upper quartile."]
    min_s: Annotated[float, "Fastest sample."]
    mean_s: Annotated[float, "Mean of the samples."]
    relative_ci: Annotated[float, "Half width of the 95% confidence interval of the median, over the median."]
    samples: Annotated[int, "How many samples were taken."]
    cache: Annotated[str, "State of the L2 cache: cold or hot."]
    samples_s: Annotated[tuple[float, ...], "All samples, in the order of measurement."]
    runs_per_sample: Annotated[int, "A sample is the mean of this many runs back to back."] = 1
    places: Annotated[int, "The samples are of this many places in the memory in turn."] = 1
    samples_place: Annotated[
        tuple[int, ...],
        "The place of each of `samples_s`; places hold the inputs in turn. Empty with one place.",
    ] = ()
    samples_sm_mhz: Annotated[
        tuple[int, ...],
        "The SM clock in MHz beside each of `samples_s`: NVML's first reading after it, taken between samples, every "
        "20 ms or more. Empty where NVML does not tell it.",
    ] = ()


@dataclass(frozen=True)
class CpuTime:
    """The CPU baseline: median seconds and what ran."""

    time_s: Annotated[float, "Median time of the baseline."]
    bandwidth_gbps: Annotated[float | None, "The kernel's bytes over that time."]
    threads: Annotated[int, "Threads that ran."]
    implementation: Annotated[str, "The call that ran."]


@dataclass(frozen=True)
class Warning:
    """Something that makes a figure less than it seems: a stable code and one sentence with the number and the flag."""

    code: Annotated[str, "A code that stays the same."]
    message: Annotated[str, "One sentence with the number and the option that mends it."]


@dataclass(frozen=True)
class Pattern:
    """What most requests of an access do: how the lanes of a warp lie to each other."""

    kind: Annotated[
        str,
        "contiguous: neighbours. rows: runs of neighbours that lie apart. stride: steps of more than an element. "
        "broadcast: all lanes, or groups of them, at one place. permutation: neighbours in another order. gather: any "
        "places. single: one lane.",
    ]
    stride_bytes: Annotated[int | None, "Bytes from a lane to the next; null where the lanes keep none."]
    offset_bytes: Annotated[
        int | None,
        "From a multiple of 128 bytes to the lowest address of a first request; null where others start elsewhere in "
        "their sector.",
    ]
    lanes: Annotated[int, "Active lanes: under 32 in part of a warp."]
    run: Annotated[int, "Lanes until the stride breaks."] = 32
    jump_bytes: Annotated[int | None, "Bytes from the start of a run to that of the next; null where it varies."] = None
    share: Annotated[float, "Share of the requests that do so, 0 to 1; of data-dependent addresses estimated."] = 1.0


@dataclass(frozen=True)
class Access:
    """What one instruction of the PTX does to one array in the simulator, summed over all requests; `bytes` a lane."""

    line: Annotated[int, "Line of the source, from 1."]
    source: Annotated[str, "Text of the line."]
    space: Annotated[str, "Kind of memory: global, shared, local, constant."]
    op: Annotated[str, "load, store, atomic, or reduction: an atomic whose result nobody uses."]
    bytes: Annotated[int, "Bytes a lane moves with one request."]
    requests: Annotated[int, "Warp-level memory instructions, summed over the launch."]
    sectors: Annotated[
        int | None, "Distinct 32-byte pieces that the requests touch; of shared and constant memory null."
    ] = None
    ideal_sectors: Annotated[int | None, "Sectors if the same bytes were packed."] = None
    wavefronts: Annotated[
        int | None,
        "Passes over the 32 banks of shared memory, or over the addresses in constant memory; of other memory null.",
    ] = None
    ideal_wavefronts: Annotated[int | None, "Wavefronts without any bank conflict, one address a request."] = None
    hottest: Annotated[int | None, "Of atomics on global memory: hits of the most used address."] = None
    hottest_blocks: Annotated[int | None, "Blocks that hit that address."] = None
    advice: Annotated[str | None, "What would mend the waste; null where nothing is to be gained."] = None
    merged: Annotated[int, "Requests of the PTX that the compiler merged into others, which are counted once."] = 0
    column: Annotated[int | None, "Column of the source, from 1."] = None
    instruction: Annotated[int | None, "Line of the PTX, from 1."] = None
    array: Annotated[
        str | None, "The argument, or the shared or module variable; several where lanes went to several."
    ] = None
    pattern: Annotated[Pattern | None, "What the lanes of a warp do."] = None
    inexact: Annotated[
        str | None, "Why hardware may count otherwise, from run to run too; null where it counts the same."
    ] = None


@dataclass(frozen=True)
class Branch:
    """The conditional branches of one source line in the simulator, summed over the launch."""

    line: Annotated[int, "Line of the source, from 1."]
    source: Annotated[str, "Text of the line."]
    executions: Annotated[int, "Warps that came to its branches."]
    divergent: Annotated[int, "Those whose lanes went different ways."]
    lanes_taken: Annotated[float, "Share of the lanes that took the branch, as the compiler wrote it."]
    instructions: Annotated[
        int, "Warp instructions of PTX between a divergent branch and where all its ways meet, inner branches included."
    ]
    threads_per_instruction: Annotated[float | None, "Mean of the active lanes of those; null without any."]
    advice: Annotated[str | None, "What would mend it, in a sentence; null where little is to be gained."] = None


@dataclass(frozen=True)
class Imbalance:
    """A block that executes over one and a half times the mean of its launch, by the simulator's count of PTX."""

    blocks: Annotated[int, "Blocks of the grid."]
    busiest: Annotated[Dim, "The block that executes most, x first."]
    instructions: Annotated[int, "Warp instructions that it executes."]
    mean: Annotated[float, "The same, on average, of all blocks that access memory."]
    over: Annotated[int, "Blocks that execute over one and a half times the mean."]
    last: Annotated[bool, "Whether those are all in the last quarter of the grid, in the order of their numbers."]
    line: Annotated[int, "Line of the source that has most of what the busiest executes beyond the mean, from 1."]
    source: Annotated[str, "Text of the line."]
    share: Annotated[float, "How much of that the line has."]
    advice: Annotated[str, "What it costs and what would mend it, in a sentence."]


@dataclass(frozen=True)
class MachineCode:
    """The machine code that is launched, all kernels of a result together."""

    arch: Annotated[str, "Architecture that it is for, such as sm_90."]
    sha256: Annotated[str, "Hash of the instructions alone: the same where two kernels are the same code."]
    ptx_sha256: Annotated[str | None, "Hash of the PTX that it was assembled from, as the compiler wrote it."] = None
    registers: Annotated[int | None, "Registers per thread."] = None
    spill_bytes: Annotated[
        int | None, "Bytes that a thread's code stores and loads for want of registers, each instruction once."
    ] = None
    instructions_executed: Annotated[int | None, "Warp-level machine instructions; simulator only."] = None
    threads_per_instruction: Annotated[float | None, "Mean of the active lanes of those; simulator only."] = None
    pipes: Annotated[Mapping[str, int] | None, "The same instructions by the pipe that they occupy."] = None
    arithmetic: Annotated[
        tuple[str, ...] | None,
        "Number formats that it computes in or rounds to; 'sparse' where tensor cores leave zeros out, 'approximate' "
        "where the source asks for short forms of special functions; null where nobody read the code.",
    ] = None
    inexact: Annotated[
        str | None, "Why hardware may execute more or fewer instructions, from run to run too; null where as many."
    ] = None


@dataclass(frozen=True)
class Limit:
    """The shortest time that one resource of a card allows a kernel: a lower bound, and no measurement."""

    resource: Annotated[
        str,
        "memory, l2, lsu (load/store unit with shared memory), issue, fma, alu, fp64, xu, tensor, constant, local, "
        "atomic, latency, tail, blocks, launch, start.",
    ]
    time_s: Annotated[float, "No card of the kind that limits_on names is faster than this."]
    detail: Annotated[str, "The arithmetic in one clause; on how many blocks it was counted where not on all."]


@dataclass(frozen=True)
class CardLimits:
    """What the resources of one of several cards allow a kernel; of a datasheet's card they are bounds of bounds."""

    card: Annotated[str, "What --on calls it: h100, or the file of its ceilings."]
    on: Annotated[str, "The card's name, and whether its ceilings are measured or a datasheet's, as limits_on has it."]
    measured: Annotated[bool, "Whether all its ceilings are measured."]
    launch_s: Annotated[float | None, "What of each limit is the launch itself; null where nobody measured that."]
    per_hour: Annotated[float | None, "What the card costs an hour, by --price."]
    limits: Annotated[tuple[Limit, ...], "What each of its resources allows at best, the longest time first."]


@dataclass(frozen=True)
class Counted:
    """What of a measured kernel the simulator ran for its counts, which are scaled to all blocks."""

    blocks: Annotated[int, "Blocks of all launches that ran in the simulator."]
    of: Annotated[int, "Blocks of all launches."]
    same_code: Annotated[
        bool | None,
        "Whether the machine code that was counted is the one that was measured; null where one of them was not read.",
    ]
    instructions_executed: Annotated[
        int | None, "Warp instructions of the code that was counted, of all blocks; null where it was not read."
    ] = None
    inexact: Annotated[
        str | None, "Why hardware may execute more or fewer instructions, from run to run too; null where as many."
    ] = None


@dataclass(frozen=True)
class Hazard:
    """A fault that the simulator saw: where first, how often."""

    kind: Annotated[
        str,
        "race, missing-fence, out-of-bounds, use-after-free, uninitialized-shared, divergent-barrier, invalid-mask, "
        "misaligned, stale-read, deadlock, endless-loop.",
    ]
    line: Annotated[int, "Line of the source, from 1."]
    source: Annotated[str, "Text of the line."]
    block: Annotated[Dim, "First block in which it occurs (x, y, z)."]
    thread: Annotated[Dim, "First thread in which it occurs (x, y, z)."]
    count: Annotated[int, "How often it occurs."]
    message: Annotated[str, "What happens there, in a sentence."]


# Which single accesses the simulator keeps: none, all, or those of one warp, (number of the block, x first; warp).
Watch = bool | tuple[int, int]


@dataclass(frozen=True)
class ThreadAccess:
    """One thread's access to one element of an array; `bytes` may cover the elements after it."""

    line: Annotated[int, "Line of the source, from 1."]
    op: Annotated[str, "load, store or atomic."]
    bytes: Annotated[int, "Bytes moved; they may cover the elements after the index."]
    block: Annotated[Dim, "Block (x, y, z)."]
    thread: Annotated[Dim, "Thread (x, y, z)."]
    array: Annotated[str, "Name of the array."]
    index: Annotated[
        tuple[int, ...],
        "Index of the element in the array. Of a shared array that is declared flat, row and column as it is used.",
    ]
    bank: Annotated[int | None, "The first bank that serves it; of global memory null."] = None
    instruction: Annotated[int | None, "Line of the PTX, from 1."] = None


@dataclass(frozen=True)
class BankRequest:
    """One request of a warp to shared memory: `passes`, by wavefront and bank, are the lanes served."""

    line: Annotated[int, "Line of the source, from 1."]
    op: Annotated[str, "load, store or atomic."]
    bytes: Annotated[int, "Bytes a lane moves."]
    passes: Annotated[tuple[tuple[tuple[int, ...], ...], ...], "By wavefront and bank, the lanes that are served."]
    ideal: Annotated[int, "Wavefronts without any bank conflict."] = 1
    array: Annotated[str | None, "Name of the shared variable."] = None
    block: Annotated[Dim, "Block (x, y, z)."] = (0, 0, 0)
    warp: Annotated[int, "Number of the warp in the block."] = 0
    instruction: Annotated[int | None, "Line of the PTX, from 1."] = None
    requests: Annotated[
        tuple[int, ...], "Which of the warp's requests by this instruction it is, from 1: all that use the banks so."
    ] = (1,)
    elements: Annotated[
        tuple[tuple[int, ...] | None, ...], "By lane, the index in the array of the first such request."
    ] = ()
    pitch_bytes: Annotated[int | None, "Bytes from a row of the array to the next; null where it has no rows."] = None


@dataclass(frozen=True)
class LineCode:
    """The machine code of one source line and how often it ran, summed over the launch."""

    file: Annotated[str, "The header that the line is in; empty for the source itself."]
    line: Annotated[int, "Line of the source, from 1."]
    instructions: Annotated[int, "Machine instructions that came from the line."]
    executions: Annotated[int, "Warps that executed them, summed over the instructions."]
    threads_per_instruction: Annotated[float | None, "Mean of the active lanes of those; null where none ran."]
    code: Annotated[
        tuple[str, ...], "The first of the instructions, in their order, as nvdisasm prints them; bounded in number."
    ] = ()


@dataclass(frozen=True)
class WarpElements:
    """The elements that the lanes of one warp move in one step."""

    block: Annotated[Dim, "Block (x, y, z)."]
    warp: Annotated[int, "Number of the warp in the block."]
    runs: Annotated[
        tuple[tuple[int, ...], ...],
        "Runs of lanes whose elements keep a stride: first lane, lanes, number of the first lane's element in the "
        "array, row-major, and elements from a lane to the next.",
    ]


@dataclass(frozen=True)
class Step:
    """One execution of a memory instruction, in the kernel's order: which element each lane moves."""

    line: Annotated[int, "Line of the source, from 1."]
    op: Annotated[str, "load, store, atomic or reduction."]
    space: Annotated[str, "global or shared."]
    array: Annotated[str, "Name of the array."]
    shape: Annotated[tuple[int, ...], "Elements of the array by dimension."]
    each: Annotated[int, "Elements that a lane moves: 4 where it moves 16 bytes of float32."]
    warps: Annotated[tuple[WarpElements, ...], "The warps that execute it, of those that were watched."]


@dataclass(frozen=True)
class Result:
    """One kernel's entry in the results file; what was not measured is None."""

    operation: Annotated[str, "What is computed; 'run' for a kernel of the user's own."]
    kernel: Annotated[str, "Name of the kernel."]
    id: Annotated[int | None, "Position in the operation's ladder; null for a kernel from elsewhere."]
    function: Annotated[str, "The __global__ function."]
    source: Annotated[str, "The source file."]
    size: Annotated[Mapping[str, float], "Numbers of the problem by name; of a kernel of the user's own its scalars."]
    dtype: Annotated[str, "Element type."]
    block: Annotated[Dim, "Threads per block (x, y, z)."]
    grid: Annotated[Dim, "Blocks (x, y, z)."]
    device: Annotated[str, "cuda:N or sim."]
    status: Annotated[
        Status, "ok: right. wrong: a wrong result or a hazard. failed: it did not run. skipped: it cannot run as asked."
    ]
    reason: Annotated[str | None, "Why it is not ok, in a sentence."] = None
    shared_bytes: Annotated[int | None, "Shared memory per block, static and dynamic."] = None
    registers: Annotated[int | None, "Registers per thread."] = None
    local_bytes: Annotated[int | None, "Local memory per thread."] = None
    verification: Annotated[
        Verification | None, "How the output compares with the reference; null where nothing was compared."
    ] = None
    time: Annotated[Timing | None, "Statistics of the samples; null in the simulator, which times nothing."] = None
    bytes: Annotated[int | None, "Bytes that must move between device memory and the chip at least once."] = None
    flops: Annotated[int | None, "Floating-point operations of the problem."] = None
    bandwidth_gbps: Annotated[float | None, "bytes over the median time."] = None
    gflops: Annotated[float | None, "flops over the median time, in 10^9 a second."] = None
    copy_gbps: Annotated[float | None, "Bandwidth of a copy of the same bytes, measured in the same run."] = None
    copy_fraction: Annotated[float | None, "bandwidth_gbps over copy_gbps."] = None
    peak_fraction: Annotated[float | None, "bandwidth_gbps over the device's peak_gbps."] = None
    speedup_vs_cpu: Annotated[float | None, "Time of the CPU baseline over the median time."] = None
    footprint_over_l2: Annotated[float | None, "Bytes of all arrays over the size of the L2 cache."] = None
    cpu: Annotated[CpuTime | None, "The CPU baseline; null where it was left out."] = None
    warnings: Annotated[tuple[Warning, ...], "What makes a figure less than it seems."] = ()
    access: Annotated[tuple[Access, ...] | None, "Memory accesses by source line; null where nothing was counted."] = (
        None
    )
    hazards: Annotated[
        tuple[Hazard, ...] | None,
        "Faults that were seen; empty where the simulator found none, null where nobody looked.",
    ] = None
    branches: Annotated[
        tuple[Branch, ...] | None, "Conditional branches by source line; null where nobody counted."
    ] = None
    imbalance: Annotated[
        Imbalance | None,
        "A block with much more to do than the others; null where there is none, or nobody counted.",
    ] = None
    instructions: Annotated[int | None, "Warp-level instructions that the launch executes."] = None
    machine_code: Annotated[MachineCode | None, "What the machine code tells; null where it was not read."] = None
    occupancy: Annotated[Occupancy | None, "What fits a multiprocessor."] = None
    figures: Annotated[Mapping[str, float], "Figures about a right output, by name: an error, a residual."] = field(
        default_factory=dict
    )
    limits: Annotated[
        tuple[Limit, ...] | None,
        "What each resource of a card allows at best, the longest time first; null where nothing was counted for one.",
    ] = None
    limits_on: Annotated[
        str | None, "The card that the limits are of, and whether its ceilings are measured or a datasheet's."
    ] = None
    limits_by_card: Annotated[
        tuple[CardLimits, ...] | None,
        "With several cards: the same of each card that runs this result's architecture, the first of them as in "
        "limits; null with one card.",
    ] = None
    counted: Annotated[
        Counted | None,
        "Of a measured kernel with counts: on what they were taken; null without counts or without a time.",
    ] = None
    state: Annotated[tuple[StateVariable, ...], "What the kernel keeps between launches."] = ()
    inputs: Annotated[
        Literal["fresh", "fixed"] | None,
        "Whether two sets of inputs, of different seeds, took turns, or the same ones.",
    ] = None
    parameters: Annotated[Mapping[str, str], "Of a point of a sweep: what it varies besides the block, by name."] = (
        field(default_factory=dict)
    )
    chosen: Annotated[
        Mapping[str, str],
        "Constants of the chapter that the rung's rule sets to another value for this launch, by name.",
    ] = field(default_factory=dict)
    threads: Annotated[tuple[ThreadAccess, ...] | None, "Single accesses, with --threads."] = None
    banks: Annotated[
        tuple[BankRequest, ...] | None,
        "Requests of one warp to shared memory, with --banks; with --report those that cost most.",
    ] = None
    lines: Annotated[
        tuple[LineCode, ...] | None,
        "Machine code by source line, with --report or --limits; null where nobody read it.",
    ] = None
    steps: Annotated[
        tuple[Step, ...] | None,
        "What single threads move, with --report or --limits: of all threads of a small launch, else of the first warp "
        "that ran; bounded in number.",
    ] = None
    peer: Annotated[
        str | None, "The library that the row is of, with --peer: cublas, cusolver, cub or torch; null for a kernel."
    ] = None
    fuzz: Annotated[
        Mapping[str, Any] | None,
        "Of run --fuzz: how many cases were right, what is undecided and why, what failed, and the line to repeat it.",
    ] = None
    cluster: Annotated[
        Dim | None, "Blocks of a cluster (x, y, z), with --cluster; null where the kernel alone says them, or nothing."
    ] = None

    @property
    def true_time(self) -> Timing | None:
        """The time, and none where a driver without a GPU made it up: no rate or share may follow from that."""
        return None if any(note.code == "simulated" for note in self.warnings) else self.time


# Two revisions of a source ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CodeFigures:
    """What one kernel's machine code needs on one architecture, and what the simulator counted of its launch."""

    sha256: Annotated[str, "Hash of the instructions alone."]
    registers: Annotated[int, "Registers per thread."]
    shared_bytes: Annotated[int, "Shared memory per block, static and dynamic."]
    local_bytes: Annotated[int, "Local memory per thread."]
    instructions: Annotated[
        int | None, "Machine instructions of the code; null where it was not disassembled, as the same code is not."
    ] = None
    spill_bytes: Annotated[
        int | None, "Bytes that a thread's code stores and loads for want of registers, each instruction once."
    ] = None
    arithmetic: Annotated[tuple[str, ...] | None, "Number formats that it computes in or rounds to."] = None
    occupancy: Annotated[Occupancy | None, "What fits a multiprocessor; null where its limits are not known."] = None
    sectors: Annotated[int | None, "Sectors of global and local memory; null where the launch was not simulated."] = (
        None
    )
    wavefronts: Annotated[int | None, "Wavefronts of shared memory."] = None
    instructions_executed: Annotated[int | None, "Warp-level machine instructions of the launch."] = None
    status: Annotated[Status | None, "What came of the simulated launch; null where there was none."] = None
    reason: Annotated[str | None, "Why that is not ok, in a sentence."] = None


@dataclass(frozen=True)
class LineChange:
    """A source line whose code or counts differ."""

    file: Annotated[str, "The header that the line is in; empty for the source itself."]
    old_line: Annotated[int | None, "Its number in the old source; null for a line that is new."]
    new_line: Annotated[int | None, "Its number in the new source; null for a line that is gone."]
    source: Annotated[str, "Text of the line, as it is in the new source where it is there."]
    old_instructions: Annotated[int, "Machine instructions that came from the line in the old code."]
    new_instructions: Annotated[int, "The same in the new code."]
    old_sectors: Annotated[int | None, "Sectors of the line's accesses; null where it was not simulated."] = None
    new_sectors: Annotated[int | None, "The same of the new source."] = None
    old_wavefronts: Annotated[int | None, "Wavefronts of the line's accesses; null where it was not simulated."] = None
    new_wavefronts: Annotated[int | None, "The same of the new source."] = None


@dataclass(frozen=True)
class FirstChange:
    """The first instruction that differs, in the order of the code; of those that a source line is known of, if any."""

    kind: Annotated[
        Literal["opcode", "operands"],
        "opcode: another instruction stands there. operands: all instructions are the same, and registers or numbers "
        "differ.",
    ]
    position: Annotated[
        int, "Number of the instruction in the new code, from 0; in the old code where the new one has ended."
    ]
    old: Annotated[str, "The old instruction; empty where the old code has ended."]
    new: Annotated[str, "The new instruction; empty where the new code has ended."]
    file: Annotated[str, "The header that it came from; empty for the source itself."]
    line: Annotated[int | None, "The line of the new source that it came from, of the old one where the code ended."]
    source: Annotated[str, "Text of that line."]


@dataclass(frozen=True)
class CodeDifference:
    """One kernel of two revisions of a source on one architecture."""

    kernel: Annotated[str, "Name of the kernel, in the new source."]
    arch: Annotated[str, "Architecture, such as sm_90."]
    verdict: Annotated[
        Literal["same", "changed", "added", "removed", "failed", "mended", "unsupported"],
        "same: the same instructions on the same data and resources, so there is nothing to measure. failed: only the "
        "new source does not compile. mended: only the old one does not. unsupported: neither compiles.",
    ]
    line: Annotated[int, "Line of the kernel in the new source, in the old one where it is only there."]
    threads: Annotated[int, "Threads a block that the occupancy is of."]
    old: Annotated[CodeFigures | None, "The old code; null where there is none."] = None
    new: Annotated[CodeFigures | None, "The new code; null where there is none."] = None
    changed: Annotated[
        tuple[str, ...],
        "What differs, by name: code, data, registers, spills, shared, local, occupancy, instructions, arithmetic, "
        "sectors, wavefronts, executed.",
    ] = ()
    first: Annotated[FirstChange | None, "The first instruction that differs; null where none does."] = None
    lines: Annotated[tuple[LineChange, ...], "Source lines whose code or counts differ, most changed first."] = ()
    reason: Annotated[str | None, "Why a side does not compile, in its first sentence."] = None


@dataclass(frozen=True)
class Ab:
    """Two kernels whose samples were interleaved in one run: the i-th samples of both are a pair."""

    old_label: Annotated[str, "What the old side is called."]
    new_label: Annotated[str, "What the new side is called."]
    old: Annotated[Result, "The result of the old side."]
    new: Annotated[Result, "The result of the new side."]
    verdict: Annotated[
        Literal["faster", "slower", "same", "unclear", "same code", "wrong", "failed"],
        "Of the new side. faster, slower: the whole interval lies on one side of 1. same: it holds 1 and reaches no "
        "further than 0.5%, twice the noise, or the change that is asked about. same code: nothing was measured.",
    ]
    ratio: Annotated[float | None, "Time of the new side over the old one's, from their pairs."] = None
    ratio_low: Annotated[float | None, "Lower end of its 99% interval."] = None
    ratio_high: Annotated[float | None, "Upper end of its 99% interval."] = None
    pairs: Annotated[int, "Pairs of samples."] = 0
    noise: Annotated[float, "What two equal kernels may differ by, as a fraction; the interval has it in."] = 0.0
    reason: Annotated[str | None, "Why there is no verdict, in a sentence."] = None
