"""What came of a run: a `Result` is what a device reports of a case and what the results file holds. All are frozen.

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
        architecture = self.compute_capability.replace(".", "")
        return f"sim:sm_{architecture}" if self.kind == "sim" else f"cuda:{self.index}"


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
    engine: Annotated[
        Literal["native", "numpy"] | None,
        "What ran the kernel in the simulator: the native engine all its launches, or NumPy some; null elsewhere.",
    ] = None

    @property
    def true_time(self) -> Timing | None:
        """The time, and none where a driver without a GPU made it up: no rate or share may follow from that."""
        return None if any(note.code == "simulated" for note in self.warnings) else self.time
