"""The records of a run's results, all frozen. A `Result` is what a device reports about one case.

Units: seconds, bytes, GB/s with GB = 10^9 bytes, GFLOP/s with 10^9 operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cudabench.occupancy import Occupancy
from cudabench.records.launch import Dim

Status = Literal["ok", "wrong", "failed", "skipped"]


@dataclass(frozen=True)
class DeviceInfo:
    """A device as the results file describes it. Clocks in MHz; unknown values are None."""

    name: Annotated[str, "The device's name from its driver."]
    kind: Annotated[
        Literal["cuda", "simulated", "sim"],
        "cuda: a GPU. sim: the simulator, which measures no times. simulated: a replacement of the CUDA driver that "
        "runs launches in the simulator and invents their times, for tests.",
    ]
    compute_capability: Annotated[str, "Such as '9.0'."]
    sm_count: Annotated[int | None, "Multiprocessors."] = None
    l2_bytes: Annotated[int | None, "Size of the L2 cache."] = None
    peak_gbps: Annotated[float | None, "Theoretical peak of the memory: 2 * clock * bus width."] = None
    clocks: Annotated[Mapping[str, int], "Clocks in MHz, by name."] = field(default_factory=dict)
    driver: Annotated[str | None, "Version of the driver."] = None
    uuid: Annotated[str | None, "The card's unique id."] = None
    memory_bytes: Annotated[int | None, "Size of the device memory."] = None
    index: Annotated[int | None, "The card's number on its host: cuda:N."] = None

    @property
    def timed(self) -> bool:
        """Whether kernels are launched by a driver and timed."""
        return self.kind != "sim"

    @property
    def label(self) -> str:
        """The device's name in results: cuda:0 by its number, sim:sm_90 by its architecture."""
        architecture = self.compute_capability.replace(".", "")
        return f"sim:sm_{architecture}" if self.kind == "sim" else f"cuda:{self.index}"


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element: its index in the output array and both values."""

    index: Annotated[tuple[int, ...], "Index of the first wrong element in the output array."]
    got: Annotated[float, "The kernel's value."]
    expected: Annotated[float, "The reference's value."]
    output: Annotated[str, "Name of the output array."] = ""


@dataclass(frozen=True)
class Verification:
    """The comparison of the output with the reference, and the time of the check."""

    mismatches: Annotated[int, "Wrong elements, over all outputs."]
    first: Annotated[Mismatch | None, "The first wrong element; null if all are right."]
    rtol: Annotated[float, "Relative tolerance: |got - expected| <= atol + rtol * |expected|."]
    atol: Annotated[float, "Absolute tolerance."]
    checked: Annotated[tuple[str, ...], "When the output was checked: before and after timing, or simulated."]
    samples: Annotated[int, "How many timed samples were checked; after a wrong sample, its number."] = 0
    largest_error_ulp: Annotated[
        float | None, "Largest difference to the reference, in units of the type's last place; null for integers."
    ] = None


@dataclass(frozen=True)
class StateVariable:
    """A variable that a launch changes for the next one."""

    variable: Annotated[str, "The variable's name in the source, without namespaces."]
    line: Annotated[int | None, "The line of the source that declares it."]


@dataclass(frozen=True)
class Timing:
    """Statistics of the samples of one kernel, in seconds."""

    median_s: Annotated[float, "Median of the samples."]
    q1_s: Annotated[float, "Lower quartile."]
    q3_s: Annotated[float, "Upper quartile."]
    min_s: Annotated[float, "Fastest sample."]
    mean_s: Annotated[float, "Mean of the samples."]
    relative_ci: Annotated[float, "Half width of the 95% confidence interval of the median, divided by the median."]
    samples: Annotated[int, "How many samples were taken."]
    cache: Annotated[
        str, "State of the L2 cache: cold, hot, or as found, which is the state that the program of exec leaves."
    ]
    samples_s: Annotated[
        tuple[float, ...], "All samples, in the order of measurement; of exec at most 10,000, at even distances."
    ]
    runs_per_sample: Annotated[int, "A sample is the mean of this many runs back to back."] = 1
    places: Annotated[int, "The samples use this many places in memory in turn."] = 1
    samples_place: Annotated[tuple[int, ...], "The place in memory of each of `samples_s`. Empty with one place."] = ()
    samples_sm_mhz: Annotated[
        tuple[int, ...],
        "The SM clock in MHz beside each of `samples_s`: NVML's first reading after it, taken between samples, every "
        "20 ms or more. Empty if NVML does not report it.",
    ] = ()


@dataclass(frozen=True)
class CpuTime:
    """The CPU baseline: its median time and its call."""

    time_s: Annotated[float, "Median time of the baseline."]
    bandwidth_gbps: Annotated[float | None, "The kernel's bytes over that time."]
    threads: Annotated[int, "Threads that ran."]
    implementation: Annotated[str, "The call that ran."]


@dataclass(frozen=True)
class Warning:
    """A warning that qualifies a figure: a stable code, and one sentence with the number and the option."""

    code: Annotated[str, "A code that stays the same."]
    message: Annotated[str, "One sentence with the number and the option that repairs it."]


@dataclass(frozen=True)
class Pattern:
    """The relative addresses of a warp's lanes, in most requests of an access."""

    kind: Annotated[
        str,
        "contiguous: neighbours. rows: several runs of neighbours. stride: steps of more than an element. "
        "broadcast: all lanes, or groups of lanes, at one address. permutation: neighbours in another order. gather: "
        "any addresses. single: one lane.",
    ]
    stride_bytes: Annotated[int | None, "Bytes from a lane to the next; null if they vary."]
    offset_bytes: Annotated[
        int | None,
        "Bytes from a multiple of 128 to the lowest address of the first request; null if other requests start "
        "elsewhere in their sector.",
    ]
    lanes: Annotated[int, "Active lanes: under 32 in part of a warp."]
    run: Annotated[int, "Lanes until the stride breaks."] = 32
    jump_bytes: Annotated[int | None, "Bytes between starts of runs; null if they vary."] = None
    share: Annotated[float, "Share of requests with it, 0 to 1; estimated if data give addresses."] = 1.0


@dataclass(frozen=True)
class Access:
    """What one PTX instruction does to one array in the simulator, summed over all requests."""

    line: Annotated[int, "Line of the source, from 1."]
    source: Annotated[str, "Text of the line."]
    space: Annotated[str, "Kind of memory: global, shared, local, constant."]
    op: Annotated[str, "load, store, atomic, or reduction (an atomic whose result is not used)."]
    bytes: Annotated[int, "Bytes that a lane moves with one request."]
    requests: Annotated[int, "Warp-level memory instructions, summed over the launch."]
    sectors: Annotated[
        int | None, "Distinct 32-byte pieces that the requests touch; null for shared and constant memory."
    ] = None
    ideal_sectors: Annotated[int | None, "Sectors if the same bytes were packed."] = None
    wavefronts: Annotated[
        int | None, "Passes over the 32 banks of shared memory, or over the addresses in constant memory; else null."
    ] = None
    ideal_wavefronts: Annotated[int | None, "Wavefronts without any bank conflict, one address a request."] = None
    hottest: Annotated[int | None, "For atomics on global memory: hits of the most used address."] = None
    hottest_blocks: Annotated[int | None, "Blocks that hit that address."] = None
    advice: Annotated[str | None, "How to avoid the waste; null if little can be gained."] = None
    merged: Annotated[int, "Requests of the PTX that the compiler merged into others."] = 0
    column: Annotated[int | None, "Column of the source, from 1."] = None
    instruction: Annotated[int | None, "Line of the PTX, from 1."] = None
    array: Annotated[str | None, "The argument, or the shared or module variable; several if lanes access several."] = (
        None
    )
    pattern: Annotated[Pattern | None, "How the addresses of a warp's lanes lie to each other."] = None
    inexact: Annotated[
        str | None, "Why hardware may count otherwise, or vary between runs; null if it counts the same."
    ] = None
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


@dataclass(frozen=True)
class Branch:
    """The conditional branches of one source line in the simulator, summed over the launch."""

    line: Annotated[int, "Line of the source, from 1."]
    source: Annotated[str, "Text of the line."]
    executions: Annotated[int, "Warps that came to its branches."]
    divergent: Annotated[int, "Warps whose lanes went different ways."]
    lanes_taken: Annotated[float, "Share of the lanes that took the branch, as the compiler wrote it."]
    instructions: Annotated[
        int, "PTX warp instructions from a divergent branch to where its ways meet, inner branches included."
    ]
    threads_per_instruction: Annotated[float | None, "Mean active lanes of these instructions; null without them."]
    advice: Annotated[str | None, "How to avoid it, in a sentence; null if little can be gained."] = None
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


@dataclass(frozen=True)
class Imbalance:
    """A block that executes over 1.5 times the mean of its launch, by the simulator's count of PTX."""

    blocks: Annotated[int, "Blocks of the grid."]
    busiest: Annotated[Dim, "The block that executes most, x first."]
    instructions: Annotated[int, "Warp instructions that this block executes."]
    mean: Annotated[float, "Mean of the warp instructions of all blocks that access memory."]
    over: Annotated[int, "Blocks that execute over 1.5 times the mean."]
    last: Annotated[bool, "Whether these blocks are all in the last quarter of the grid, by number."]
    line: Annotated[int, "Line of the source, from 1, with most of the busiest block's instructions beyond the mean."]
    source: Annotated[str, "Text of the line."]
    share: Annotated[float, "The line's share of these instructions."]
    advice: Annotated[str, "The cost and the repair, in a sentence."]
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


@dataclass(frozen=True)
class MachineCode:
    """The machine code that is launched, all kernels of a result together."""

    arch: Annotated[str, "Architecture of the code, such as sm_90."]
    sha256: Annotated[str, "Hash of the instructions alone: equal for kernels with the same code."]
    ptx_sha256: Annotated[str | None, "Hash of the PTX that the code was assembled from."] = None
    registers: Annotated[int | None, "Registers per thread."] = None
    spill_bytes: Annotated[
        int | None, "Bytes that a thread's code stores and loads for want of registers, each instruction once."
    ] = None
    instructions_executed: Annotated[int | None, "Warp-level machine instructions; simulator only."] = None
    threads_per_instruction: Annotated[float | None, "Mean active lanes of these instructions; simulator only."] = None
    pipes: Annotated[Mapping[str, int] | None, "The same instructions by the pipe that they occupy."] = None
    arithmetic: Annotated[
        tuple[str, ...] | None,
        "Number formats of its arithmetic and rounding; 'sparse' if tensor cores leave zeros out, 'approximate' "
        "if the source asks for fast special functions; null if the code was not read.",
    ] = None
    inexact: Annotated[
        str | None, "Why hardware may execute more or fewer instructions, from run to run too; null where as many."
    ] = None
    counts_from: Annotated[
        Literal["machine_code", "ptx"] | None,
        "The executed code that gives these counts: the machine code itself, or the PTX, from which they are inferred.",
    ] = None
    counts_from_ptx_since: Annotated[
        str | None, "Why the machine code was not executed, or not believed; null where it was, or would count alike."
    ] = None


@dataclass(frozen=True)
class Limit:
    """The shortest time that one resource of a card allows a kernel: a lower bound, not a measurement."""

    resource: Annotated[
        str,
        "memory, l2, lsu (load/store unit with shared memory), issue, fma, alu, fp64, xu, tensor, constant, local, "
        "atomic, latency, tail, blocks, launch, start.",
    ]
    time_s: Annotated[float, "The lower bound for a card of the kind that limits_on names."]
    detail: Annotated[str, "The calculation in one clause, and how many blocks were counted if not all."]


@dataclass(frozen=True)
class CardLimits:
    """The limits of a kernel on one of several cards; a datasheet's card is a bound itself."""

    card: Annotated[str, "The card's name for --on: h100, or the file of its ceilings."]
    on: Annotated[str, "The card's name, and whether its ceilings are measured or a datasheet's, as limits_on has it."]
    measured: Annotated[bool, "Whether all its ceilings are measured."]
    launch_s: Annotated[float | None, "The part of each limit that is the launch itself; null if it was not measured."]
    per_hour: Annotated[float | None, "Price of the card for an hour, from --price."]
    limits: Annotated[tuple[Limit, ...], "The lower bound of each resource, the longest time first."]


@dataclass(frozen=True)
class Counted:
    """The part of a measured kernel that the simulator ran; its counts are scaled to all blocks."""

    blocks: Annotated[int, "Blocks of all launches that ran in the simulator."]
    of: Annotated[int, "Blocks of all launches."]
    same_code: Annotated[
        bool | None, "Whether the counted machine code is the measured code; null if one of them was not read."
    ]
    instructions_executed: Annotated[
        int | None, "Warp instructions of the counted code, scaled to all blocks; null if the code was not read."
    ] = None
    inexact: Annotated[
        str | None, "Why hardware may execute more or fewer instructions, from run to run too; null where as many."
    ] = None


@dataclass(frozen=True)
class Hazard:
    """A fault that the simulator saw: its first occurrence, and how often it occurs."""

    kind: Annotated[
        str,
        "race, missing-fence, out-of-bounds, use-after-free, uninitialized-shared, undefined-value, divergent-barrier, "
        "invalid-mask, misaligned, stale-read, deadlock, endless-loop.",
    ]
    line: Annotated[int, "Line of the source, from 1."]
    source: Annotated[str, "Text of the line."]
    block: Annotated[Dim, "First block in which it occurs (x, y, z)."]
    thread: Annotated[Dim, "First thread in which it occurs (x, y, z)."]
    count: Annotated[int, "How often it occurs."]
    message: Annotated[str, "The fault, in a sentence."]
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


# Which accesses the simulator records one by one: none, all, or those of one warp, given as (number of the block,
# warp).
Watch = bool | tuple[int, int]


@dataclass(frozen=True)
class ThreadAccess:
    """One thread's access to one element of an array."""

    line: Annotated[int, "Line of the source, from 1."]
    op: Annotated[str, "load, store or atomic."]
    bytes: Annotated[int, "Bytes that the thread moves; they may include the elements after the index."]
    block: Annotated[Dim, "Block (x, y, z)."]
    thread: Annotated[Dim, "Thread (x, y, z)."]
    array: Annotated[str, "Name of the array."]
    index: Annotated[
        tuple[int, ...], "Index of the element in the array; for a flat shared array, the row and column of its use."
    ]
    bank: Annotated[int | None, "The first bank of the access; null for global memory."] = None
    instruction: Annotated[int | None, "Line of the PTX, from 1."] = None
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


@dataclass(frozen=True)
class BankRequest:
    """One request of a warp to shared memory."""

    line: Annotated[int, "Line of the source, from 1."]
    op: Annotated[str, "load, store or atomic."]
    bytes: Annotated[int, "Bytes a lane moves."]
    passes: Annotated[tuple[tuple[tuple[int, ...], ...], ...], "The lanes that are served, by wavefront and bank."]
    ideal: Annotated[int, "Wavefronts without any bank conflict."] = 1
    array: Annotated[str | None, "Name of the shared variable."] = None
    block: Annotated[Dim, "Block (x, y, z)."] = (0, 0, 0)
    warp: Annotated[int, "Number of the warp in the block."] = 0
    instruction: Annotated[int | None, "Line of the PTX, from 1."] = None
    requests: Annotated[
        tuple[int, ...], "Numbers, from 1, of this instruction's requests in the warp that use the banks in this way."
    ] = (1,)
    elements: Annotated[
        tuple[tuple[int, ...] | None, ...], "Index of each lane's element, for the first of these requests."
    ] = ()
    pitch_bytes: Annotated[int | None, "Bytes from a row of the array to the next; null without rows."] = None
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


@dataclass(frozen=True)
class LineCode:
    """The machine code of one source line, and how often it ran in the launch."""

    file: Annotated[str, "The header that the line is in; empty for the source itself."]
    line: Annotated[int, "Line of the source, from 1."]
    instructions: Annotated[int, "Machine instructions that came from the line."]
    executions: Annotated[int, "Warps that executed them, summed over the instructions."]
    threads_per_instruction: Annotated[float | None, "Mean active lanes of these; null without executions."]
    code: Annotated[
        tuple[str, ...], "The first instructions, in order, as nvdisasm prints them; their number is limited."
    ] = ()


@dataclass(frozen=True)
class WarpElements:
    """The elements that the lanes of one warp move in one step."""

    block: Annotated[Dim, "Block (x, y, z)."]
    warp: Annotated[int, "Number of the warp in the block."]
    runs: Annotated[
        tuple[tuple[int, ...], ...],
        "Runs of lanes with a constant stride: first lane, number of lanes, row-major number of the first lane's "
        "element in the array, and elements from a lane to the next.",
    ]


@dataclass(frozen=True)
class Step:
    """One execution of a memory instruction: the element that each lane moves."""

    line: Annotated[int, "Line of the source, from 1."]
    op: Annotated[str, "load, store, atomic or reduction."]
    space: Annotated[str, "global or shared."]
    array: Annotated[str, "Name of the array."]
    shape: Annotated[tuple[int, ...], "Shape of the array in elements."]
    each: Annotated[int, "Elements that a lane moves: 4 for 16 bytes of float32."]
    warps: Annotated[tuple[WarpElements, ...], "The watched warps that execute the instruction."]
    file: Annotated[str, "The header that the line is in; empty for the source itself."] = ""


@dataclass(frozen=True)
class Result:
    """One kernel's entry in the results file; values that were not measured are None."""

    operation: Annotated[str, "The operation's name; 'run' for a user's own kernel."]
    kernel: Annotated[str, "Name of the kernel."]
    id: Annotated[int | None, "Position in the operation's ladder; null for a kernel from elsewhere."]
    function: Annotated[str, "The __global__ function."]
    source: Annotated[str, "The source file."]
    size: Annotated[Mapping[str, float], "Sizes of the problem by name; for a user's own kernel, its scalars."]
    dtype: Annotated[str, "Element type."]
    block: Annotated[Dim, "Threads per block (x, y, z)."]
    grid: Annotated[Dim, "Blocks (x, y, z)."]
    device: Annotated[str, "cuda:N or sim."]
    status: Annotated[
        Status, "ok: right. wrong: a wrong result or a hazard. failed: it did not run. skipped: it cannot run."
    ]
    reason: Annotated[str | None, "Why the status is not ok, in a sentence."] = None
    shared_bytes: Annotated[int | None, "Shared memory per block, static and dynamic."] = None
    registers: Annotated[int | None, "Registers per thread."] = None
    local_bytes: Annotated[int | None, "Local memory per thread."] = None
    verification: Annotated[
        Verification | None, "How the output compares with the reference; null if nothing was compared."
    ] = None
    time: Annotated[Timing | None, "Statistics of the samples; null in the simulator, which times nothing."] = None
    bytes: Annotated[int | None, "Bytes that must move between device memory and the chip at least once."] = None
    flops: Annotated[int | None, "Floating-point operations of the problem."] = None
    bandwidth_gbps: Annotated[float | None, "`bytes` divided by the median time."] = None
    gflops: Annotated[float | None, "`flops` divided by the median time, in 10^9 a second."] = None
    copy_gbps: Annotated[float | None, "Bandwidth of a copy of the same bytes, measured in the same run."] = None
    copy_fraction: Annotated[float | None, "bandwidth_gbps over copy_gbps."] = None
    peak_fraction: Annotated[float | None, "bandwidth_gbps over the device's peak_gbps."] = None
    speedup_vs_cpu: Annotated[float | None, "Time of the CPU baseline divided by the median time."] = None
    footprint_over_l2: Annotated[float | None, "Bytes of all arrays over the size of the L2 cache."] = None
    cpu: Annotated[CpuTime | None, "The CPU baseline; null if it was left out."] = None
    warnings: Annotated[tuple[Warning, ...], "Warnings that qualify the figures."] = ()
    access: Annotated[tuple[Access, ...] | None, "Memory accesses by source line; null if they were not counted."] = (
        None
    )
    hazards: Annotated[
        tuple[Hazard, ...] | None,
        "Faults that the simulator found; empty without faults, null if the kernel was not simulated.",
    ] = None
    branches: Annotated[
        tuple[Branch, ...] | None, "Conditional branches by source line; null if they were not counted."
    ] = None
    imbalance: Annotated[
        Imbalance | None, "A block with much more work than the others; null without such a block or without counts."
    ] = None
    instructions: Annotated[int | None, "Warp-level instructions that the launch executes."] = None
    machine_code: Annotated[MachineCode | None, "Facts of the machine code; null if it was not read."] = None
    occupancy: Annotated[Occupancy | None, "Blocks and warps that fit a multiprocessor."] = None
    figures: Annotated[Mapping[str, float], "Figures about a right output, by name: an error, a residual."] = field(
        default_factory=dict
    )
    limits: Annotated[
        tuple[Limit, ...] | None,
        "The lower bound of each resource of a card, the longest time first; null without counts or a card.",
    ] = None
    limits_on: Annotated[
        str | None, "The card of the limits, and whether its ceilings are measured or a datasheet's."
    ] = None
    limits_by_card: Annotated[
        tuple[CardLimits, ...] | None,
        "With several cards: the limits of each card that runs this result's architecture; the first card is that of "
        "`limits`. Null with one card.",
    ] = None
    counted: Annotated[
        Counted | None, "How the counts of a measured kernel were taken; null without counts or without a time."
    ] = None
    state: Annotated[tuple[StateVariable, ...], "Variables that the kernel keeps between launches."] = ()
    inputs: Annotated[
        Literal["fresh", "fixed"] | None,
        "Whether two sets of inputs with different seeds alternated, or one set was used.",
    ] = None
    parameters: Annotated[Mapping[str, str], "Parameters of a sweep's point besides the block, by name."] = field(
        default_factory=dict
    )
    chosen: Annotated[
        Mapping[str, str], "Constants of the chapter that the rung's rule changes for this launch, by name."
    ] = field(default_factory=dict)
    threads: Annotated[tuple[ThreadAccess, ...] | None, "Single accesses, with --threads."] = None
    banks: Annotated[
        tuple[BankRequest, ...] | None,
        "Requests of one warp to shared memory, with --banks; with --report the most costly requests.",
    ] = None
    lines: Annotated[
        tuple[LineCode, ...] | None, "Machine code by source line, with --report or --limits; null if it was not read."
    ] = None
    steps: Annotated[
        tuple[Step, ...] | None,
        "Elements that single threads move, with --report or --limits: of all threads of a small launch, else of the "
        "first warp that ran; their number is limited.",
    ] = None
    peer: Annotated[str | None, "The library of a --peer row: cublas, cusolver, cub or torch; null for a kernel."] = (
        None
    )
    fuzz: Annotated[
        Mapping[str, Any] | None,
        "Of run --fuzz: how many cases were right, undecided cases with reasons, failed cases with a command.",
    ] = None
    cluster: Annotated[Dim | None, "Blocks of a cluster (x, y, z) from --cluster; else null."] = None
    engine: Annotated[
        Literal["native", "numpy"] | None,
        "What ran the kernel in the simulator: the native engine all its launches, or NumPy some; null elsewhere.",
    ] = None

    @property
    def true_time(self) -> Timing | None:
        """The time, or None if a simulated driver invented it: rates and shares must not use that."""
        return None if any(note.code == "simulated" for note in self.warnings) else self.time
