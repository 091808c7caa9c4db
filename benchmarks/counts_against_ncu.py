"""Compare the simulator's counts with Nsight Compute's hardware counters: all ladders at three sizes, and a corpus.

    python benchmarks/counts_against_ncu.py prepare --folder build/ncu     # no GPU: compile, simulate, count
    python benchmarks/counts_against_ncu.py measure --folder build/ncu     # GPU and ncu: launch the same machine code
    python benchmarks/counts_against_ncu.py compare --folder build/ncu     # anywhere: the table, of the latest prepare

`prepare` keeps the counted cubins (of nvcc, or of CUDABENCH_COMPILER), and `measure` launches them, so that both sides
have the same instructions. `measure` starts one process under ncu, which launches kernels until --seconds are over, and
writes measured.json with both sides and a table of differences; earlier results in the file stay, and are measured
again only with --again. ncu needs access to the hardware's counters. Inputs are made again from their seeds. After a
repair of the simulator, `prepare --again` counts the existing machine code.

The corpus has the kernels of tests/corpus/right, and the files of tests/corpus/files with the arguments in their heads.
If kernels use atomics or locks, their order changes the number of instructions or sectors (`ORDERED`). Textures have
other counters and are left out. `--only 'files/*'` selects works by name, `--only 'unseen3/*'` the kernels of a profile
beside this script, and `--only 'divergent/*'` the random kernels of tests/machine_code/divergent.py. Counts that the
tool marks with `~` have the mark in the table too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import ncu  # noqa: E402

from cudabench import operations  # noqa: E402
from cudabench.cards.load import load_card  # noqa: E402
from cudabench.compile import cubin, nvdisasm  # noqa: E402
from cudabench.compile.sass import Function  # noqa: E402
from cudabench.explain import block_counts, machine_code, merged  # noqa: E402
from cudabench.explain.card_rates import Rates  # noqa: E402
from cudabench.explain.machine_code_selection import may_diverge  # noqa: E402
from cudabench.plan import cases  # noqa: E402
from cudabench.records.launch import ByValue, Texture  # noqa: E402
from cudabench.records.plan import Case, Operation  # noqa: E402
from cudabench.simulator import api as simulator  # noqa: E402
from cudabench.simulator.machine_code.image import readable  # noqa: E402
from cudabench.simulator.machine_code.launch import MachineCodeRequest  # noqa: E402
from cudabench.simulator.report import Code  # noqa: E402

ARCH = "sm_90"
SIZES: dict[str, list[tuple[int, ...]]] = {
    "transpose": [(256, 256), (200, 1000), (333, 127)],
    "vecadd": [(65536,), (100_000,), (77_777,)],
    "distance": [(65536,), (100_000,), (77_777,)],
    "pi": [(65536,), (100_000,), (77_777,)],
    "grayscale": [(128, 256), (135, 240), (67, 301)],
    "blur": [(128, 256), (135, 240), (67, 301)],
    "matvec": [(256, 512), (100, 1000), (333, 127)],
    "matmul": [(256, 64, 256), (128, 128, 128), (100, 52, 200)],
    "lookup": [(65536,), (20_000,), (77_777,)],
    "solve": [(17,), (33,), (8,)],
}
DIVERGENT = 120
ORDERED = (
    "spin_lock", "cas_double", "cas_maximum", "blocks_flag", "flag", "reduce_last_block", "compaction",
    "warp_aggregate", "distance/single-pass",
)  # fmt: skip
COOPERATIVE = ("grid_sync",)  # kernels that need a cooperative launch
# The counts that are compared, as name: (the hardware counters whose sum is the count, the allowed relative
# difference). The counter op_ld includes the sectors of asynchronous copies (LDGSTS). The counter
# op_ldgsts_cache_access is not added, because it counts the copies through L1 a second time.
COUNTS: dict[str, tuple[tuple[str, ...], float]] = {
    "global load sectors": (("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",), 0.0),
    "global store sectors": (("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",), 0.0),
    "atomic sectors": (("l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",), 0.0),
    "reduction sectors": (("l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",), 0.0),
    "shared load wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",), 0.0),
    "shared store wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",), 0.0),
    "shared atomic wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",), 0.04),
    "local sectors": (
        ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"),
        0.01,
    ),
    "instructions": (("smsp__inst_executed.sum",), 0.02),
    "thread instructions": (("smsp__thread_inst_executed.sum",), 0.02),
}
# The cycles of the SM that was active longest. They may not be fewer than the simulator's lower bound for a block.
CLOCKS, FEWEST = "sm__cycles_active.max", "fewest clocks"
# The reasons why a row of the table differs, as (pattern of works, pattern of counts, reason). The first entry that
# matches is used.
_TRIES = "how often a lane tries again depends on the order in which atomics execute"
_LIBRARY = "code of the driver's own (malloc, free, printf), which the simulator does not execute"
_ITSELF = "which lanes of a warp come back together from a call of itself, the counts of PTX do not tell"
_MORE = "this counter is a little higher than the sum of ncu's own counts by instruction, which are the simulator's"
_BUSY = "this counter gives another number in each run; ncu's own counts by instruction are the simulator's"
_MOVED = "loads that ptxas moved behind a branch: for how many lanes is known, for which of a warp's sectors not"
_ALIKE = "not looked at by instruction; as in the rows of which this counter is higher than ncu's sum by instruction"
_BUSY_ALIKE = "not run twice; as in the rows whose counter gives another number in each run"
REASONS = (
    ("corpus/spin_lock", "*", _TRIES),
    ("corpus/cas_*", "*", _TRIES),
    ("corpus/compaction", "*store*", "where a warp's values begin is what its atomic returned"),
    ("corpus/warp_aggregate", "*store*", "where a warp's values begin is what its atomic returned"),
    ("distance/single-pass*", "*instructions", "which block ends last, and when the others look"),
    ("distance/single-pass*", "shared store*", "which block ends last"),
    ("distance/*77777", "*load*", "ptxas unrolled the loop: lanes that leave it a trip earlier load apart"),
    ("corpus/mandelbrot", "thread*", _MORE),
    ("files/bitonic_sort*", "thread*", _ALIKE),
    ("files/prime_sieve*", "thread*", _ALIKE),
    ("blur/vector*", "thread*", _MORE),
    ("transpose/ragged*", "thread*", _ALIKE),
    ("corpus/switch_code", "thread*", "a jump by table: the lanes of its later issues are estimated"),
    ("matmul/tensor*", "shared load*", _BUSY),
    ("matmul/wgmma*", "shared*", _BUSY),
    ("transpose/ragged*", "shared load*", _BUSY),
    ("files/cluster_histogram*", "shared atomic*", "how hardware takes apart what goes to other blocks is not known"),
    ("solve/fused*", "global load*", _MOVED),
    ("solve/*", "shared store*", _BUSY_ALIKE),
    ("solve/*", "thread*", _ALIKE),
    ("solve/blocked*", "instructions", "two of 85063: not known"),
    ("unseen3/*", "shared*", _BUSY),
    ("unseen4/loaders*", "shared store*", _MORE),
    ("corpus/named_barrier", "shared store*", _ALIKE),
    ("files/device_malloc*", "*", _LIBRARY),
    ("files/device_new*", "*", _LIBRARY),
    ("files/virtual_list*", "*", _LIBRARY),
    ("files/printf_assert*", "*", _LIBRARY),
    ("files/standard_printf*", "*", _LIBRARY),
    ("unseen4/checked_scale*", "*", _LIBRARY),
    ("unseen4/group_totals*", "*", _TRIES),
    ("files/recursion*", "*", _ITSELF),
)  # fmt: skip
# Counters that every version of ncu has. Other counters are used only if ncu lists them.
KNOWN = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "smsp__inst_executed.sum",
)  # fmt: skip


@dataclass
class Launch:
    """A launch: its image, entry, geometry and arguments (arrays by name)."""

    image: Any
    entry: str
    grid: Sequence[int]
    block: Sequence[int]
    arguments: Sequence[Any]
    shared: int = 0


@dataclass
class Work:
    """A kernel with its launches, whose counts are added, and its arrays."""

    name: str
    launches: list[Launch]
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------------------ the work


def ladder_cases(names: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """Yield the kernels of the ladders, size by size; solve, which has many launches, only if `names` is ["solve"]."""
    for place in range(3):
        for name in [name for name in SIZES if (name == "solve") is (names == ["solve"])]:
            size = SIZES[name][place]
            operation = operations.get(name)
            options = {option.name: option.default for option in operation.options}
            for case in cases.build(operation, cases.Request(size=size, options=options)):
                textured = any(isinstance(a, Texture) for launch in case.launches for a in launch.arguments)
                if not case.skip_reason and not textured:
                    yield f"{name}/{case.kernel} {'x'.join(map(str, size))}", case


def ladder_work(name: str, case: Case, operation: Operation | None = None) -> Work:
    """Return a case's launches and arrays; the `image` of a launch is the case that has the launch's source."""
    operation = operation or operations.get(case.operation)
    arrays = {buffer.name: np.zeros(buffer.shape, buffer.dtype) for buffer in operation.buffers(case.problem)}
    for key, value in operation.inputs(case.problem).items():
        if key in arrays:
            arrays[key] = np.array(value)
    launches = []
    of = {launch.function: part for part in case.parts for launch in part.launches}
    for launch in case.launches:
        image = of[launch.function]
        launches.append(
            Launch(image, launch.function, launch.grid, launch.block, launch.arguments, launch.shared_bytes)
        )
    return Work(name, launches, arrays)


def corpus_works() -> Iterator[Work]:
    """Yield the kernels of tests/corpus/right with the arguments of their tests; the `image` is the file's path."""
    from tests.simulator import test_corpus

    for name, (builder, sizes) in sorted(test_corpus.CASES.items()):
        case = builder(np.random.default_rng(sizes[-1]), sizes[-1])
        arrays, arguments = {}, []
        for place, value in enumerate(case.arguments):
            if isinstance(value, np.ndarray):
                arrays[f"a{place}"] = value
            arguments.append(f"a{place}" if isinstance(value, np.ndarray) else np.int32(value))
            if isinstance(value, np.generic):
                arguments[-1] = value
        path = test_corpus.CORPUS / "right" / f"{name}.cu"
        yield Work(f"corpus/{name}", [Launch(path, "", case.grid, case.block, arguments, case.shared)], arrays)


def file_works() -> Iterator[Work]:
    """Yield the files of tests/corpus/files that run with the arguments in their first lines, except slow or
    cooperative kernels."""
    from tests.userkernel import test_files

    for file in test_files.FILES:
        if file.expect == "ok" and not file.lacks and not file.slow and file.path.stem not in COOPERATIVE:
            yield from command_works(f"files/{file.path.stem}", [str(file.path), *file.run])


def command_works(name: str, words: Sequence[str]) -> Iterator[Work]:
    """Yield the kernels of a `cudabench run` command, without textures and constants; nothing if it is refused."""
    from cudabench.cli.run import command, planned
    from cudabench.errors import CudabenchError

    try:
        ctx = command.make_context("run", list(words))
        series, *_ = planned(ctx, ctx.params)
    except CudabenchError:
        return
    for kernels in series:
        operation = kernels.make()
        for case in kernels.cases:
            arguments = [argument for launch in case.launches for argument in launch.arguments]
            if not (case.skip_reason or case.constants or any(isinstance(a, Texture) for a in arguments)):
                yield ladder_work(f"{name} {case.kernel}", case, operation)


def profile_works() -> Iterator[Work]:
    """Yield the kernels of the profiles `unseen*.toml`, which were written before any of them was counted."""
    import tomllib

    for profile in sorted(Path(__file__).parent.glob("unseen*.toml")):
        for kernel in tomllib.loads(profile.read_text()):
            yield from command_works(f"{profile.stem}/{kernel}", ["--profile", str(profile), "--kernel", kernel])


def divergent_works() -> Iterator[Work]:
    """Yield kernels with random control flow; the `image` of each kernel is its source text."""
    from tests.machine_code import divergent

    for seed in range(DIVERGENT):
        x, y = divergent.arrays(seed)
        arguments = ["x", "y", np.int32(divergent.WORDS)]
        launch = Launch(divergent.source(seed), "", (divergent.GRID,), (divergent.BLOCK,), arguments)
        yield Work(f"divergent/{seed}", [launch], {"x": x, "y": y})


def works(only: str = "*") -> Iterator[Work]:
    """Yield the works whose names match the pattern, the most important first."""
    ladders = list(ladder_cases([]))
    first = len({name.split()[0] for name, _ in ladders})
    for name, case in ladders[:first]:
        if fnmatchcase(name, only):
            yield ladder_work(name, case)
    yield from (work for work in corpus_works() if fnmatchcase(work.name, only))
    yield from (work for work in file_works() if fnmatchcase(work.name, only))
    yield from (work for work in divergent_works() if fnmatchcase(work.name, only))
    yield from (work for work in profile_works() if fnmatchcase(work.name, only))
    for name, case in (*ladders[first:], *ladder_cases(["solve"])):
        if fnmatchcase(name, only):
            yield ladder_work(name, case)


# ------------------------------------------------------------------------------------------------------- the simulator


@dataclass(frozen=True)
class Image:
    """A compiled source: cubin, PTX, loaded program, and the entries, keyed by the kernels' names in the source."""

    cubin: bytes
    ptx: str
    program: simulator.Program
    entries: Mapping[str, str]

    def entry(self, name: str) -> str:
        """Return the entry of a function; without a name, the only entry."""
        return self.entries.get(name, name) if name else next(iter(self.entries.values()))


def compiled(image: Any, known: dict[Any, Image]) -> Image:
    """Return the compiled image of a launch; each source is compiled once."""
    from cudabench.compile.compiler import compile_cubin
    from cudabench.devices.sim import SimDevice
    from cudabench.source.choose_kernel import find_kernel as find
    from cudabench.source.files import read_file as read

    key = str(image) if isinstance(image, Path | str) else (image.source, tuple(image.defines.items()))
    if key not in known:
        if isinstance(image, str):
            record = compile_cubin(image, "parts.cu", arch=ARCH, names=["parts"])
            program, entries = simulator.load(record.ptx), {"parts": record.lowered["parts"]}
        elif isinstance(image, Path):
            kernel = find(read(image))
            record = compile_cubin(image.read_text(), image.name, arch=ARCH, names=[kernel.expression])
            program, entries = simulator.load(record.ptx), {kernel.expression: record.lowered[kernel.expression]}
        else:
            loaded = SimDevice(ARCH).load(image)
            record, program = loaded.compiled, loaded.program
            entries = {launch.function: record.entry(launch.function) for launch in image.launches}
        assert record.cubin is not None
        known[key] = Image(record.cubin, record.ptx, program, entries)
    found = known[key]
    if not isinstance(image, Path | str):
        entries = {launch.function: found.entries.get(launch.function, launch.function) for launch in image.launches}
        found = Image(found.cubin, found.ptx, found.program, {**found.entries, **entries})
    return found


def kept(path: Path, known: dict[Any, Image]) -> Image:
    """Return a compiled image from its cubin file, which contains the PTX."""
    if path not in known:
        image = path.read_bytes()
        text = cubin.ptx(image)
        known[path] = Image(image, text, simulator.load(text), {})
    return known[path]


def count(
    work: Work, known: dict[Any, Image], before: Sequence[Sequence[str]] | None = None, folder: Path | None = None
) -> tuple[dict[str, int], list[str], list[tuple[str, str]]]:
    """Return the simulator's counts of a work's launches, the names of counts that are marked `~`, and the (name of the
    cubin, entry) of each launch.

    before: the launches of an earlier result for the same work; if given, the cubins in `folder` are counted again.
    """
    reports: dict[tuple[str, str], list[simulator.Report]] = defaultdict(list)
    images, places = {}, []
    for place, launch in enumerate(work.launches):
        if before is not None and folder is not None:
            name, entry = before[place]
            image = kept(folder / "cubins" / f"{name}.cubin", known)
        else:
            image = compiled(launch.image, known)
            entry, name = image.entry(launch.entry), hashlib.sha256(image.cubin).hexdigest()[:16]
        images[name] = image
        code, lines = nvdisasm.functions(image.cubin, entry), image.ptx.splitlines()
        report = simulator.run(
            image.program, entry, tuple(launch.grid), tuple(launch.block),
            [in_simulator(argument, work.arrays) for argument in launch.arguments],
            shared_bytes=launch.shared, footprint=True,
            merged=merged.merge(code, lines, image.program.lines(entry)).request_counts(),
            machine=MachineCodeRequest(partial(readable, image.cubin, entry)) if may_diverge(code) else None,
        )  # fmt: skip
        reports[name, entry].append(report)
        places.append((name, entry))
    sums: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    marked: set[str] = set()
    for (name, entry), ran in reports.items():
        sums.update(counted(images[name], entry, simulator.merge(ran), marked))
    return dict(sums), sorted(marked), places


def local_sectors(code: Sequence[Function], executed: Code) -> int:
    """Return the sectors of local memory that machine code accessed which the simulator executed."""
    local = [ins for function in code for ins in function.instructions if ins.opcode in ("LDL", "STL")]
    counts = executed.counts
    return sum(counts[ins.address][3] for ins in local)


def spilled_sectors(
    code: Sequence[Function], lines: Sequence[str], counts: Sequence[Sequence[block_counts.Count]]
) -> int:
    """Return the sectors of spills if a warp's lanes access them together."""
    accesses = machine_code.local_accesses(code, lines, counts)
    return round(sum(access.lanes * access.bytes / 32 for access in accesses if access.spill))


def counted(image: Image, entry: str, report: simulator.Report, marked: set[str]) -> Counter[str]:
    """Return the sums of one entry's launches, keyed by the names of COUNTS, and add the names of inexact counts to
    `marked`."""
    code, lines = nvdisasm.functions(image.cubin, entry), image.ptx.splitlines()
    opcodes: dict[int, set[str]] = defaultdict(set)
    for function in code:
        for instruction in function.instructions:
            opcodes[instruction.ptx_line].add(instruction.opcode)
    sums = Counter({FEWEST: fewest_clocks(report.executed[entry])})
    counts = block_counts.count(code, report.executed[entry])
    kernel = machine_code.Kernel(entry, report.executed[entry])
    accesses = machine_code.machine_code_accesses(report.accesses, kernel, code, lines)
    if machine_code.inexact([machine_code.Image(image.cubin, [kernel], lines)], accesses):
        marked |= {"instructions", "thread instructions"}
    for access in accesses:
        there = opcodes[access.instruction]
        if access.space == "shared":
            marked |= {f"shared {access.op} wavefronts"} if access.inexact else set()
            sums[f"shared {access.op} wavefronts"] += (access.wavefronts or 0) - access.reloads
            sums["shared load wavefronts"] += access.reloads
            marked |= {"shared load wavefronts"} if access.reloads and access.inexact else set()
        elif access.space == "local":
            sums["local sectors"] += (access.sectors or 0) if there & {"LDL", "STL"} else 0
        elif access.space == "global":
            op = f"global {access.op}"
            if access.op == "atomic":
                op = "reduction" if there & {"RED", "REDG"} else "atomic"
            sums[f"{op} sectors"] += access.sectors or 0
            marked |= {f"{op} sectors"} if access.inexact else set()
    for function, times in zip(code, counts, strict=True):
        for block, ran in zip(function.blocks, times, strict=True):
            sums["instructions"] += round(ran.warps * len(block.instructions) + ran.reissued)
            sums["thread instructions"] += round(ran.lanes * len(block.instructions) + ran.reissued_lanes)
    executed = block_counts.code_of(report.executed[entry])
    if executed:
        sums["local sectors"] = local_sectors(code, executed)
    else:
        sums["local sectors"] += spilled_sectors(code, lines, counts)
    marked |= {"local sectors"} if executed and executed.unsettled else set()
    return sums


def in_simulator(argument: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a launch's argument as the simulator takes it."""
    if isinstance(argument, ByValue):
        pointers = ((offset, name, arrays[name]) for offset, name in argument.pointers)
        return simulator.Struct(argument.content, tuple(pointers))
    return arrays[argument] if isinstance(argument, str) else argument


def fewest_clocks(lines: Mapping[int, Any]) -> int:
    """Return a lower bound on the cycles of the longest block on an H100 with a warm L2 (the arrays were just copied);
    0 if the machine code was not executed."""
    code = getattr(lines, "code", None)
    if not isinstance(code, Code) or code.unsettled:
        return 0
    latencies = Rates.of(load_card("h100")).load_clocks
    assert latencies is not None
    near, middle, _ = latencies
    return int(sum(map(mul, code.clocks.longest, (1, near, near, middle, middle))))


def prepare(folder: Path, only: str, processes: int, again: bool) -> None:
    """Write the cubins and the simulator's counts of each work; the plan is written after each group.

    `again`: compile nothing, and count the existing cubins of the works in the plan again.
    """
    compiler = os.environ.get("CUDABENCH_COMPILER", "nvcc")
    (folder / "cubins").mkdir(parents=True, exist_ok=True)
    everything = list(works(only))
    # the tests that list the corpus remove this variable, so it is set again
    os.environ["CUDABENCH_COMPILER"] = compiler
    order = {work.name: place for place, work in enumerate(everything)}
    groups: dict[str, list[Work]] = defaultdict(list)
    for work in everything:
        # works of one kernel at several sizes mostly share a source, so they are counted together
        groups[work.name.split()[0]].append(work)
    path = folder / "plan.json"
    plan: dict[str, Any] = json.loads(path.read_text())["works"] if again and path.exists() else {}
    before = {name: work["launches"] for name, work in plan.items()}

    def keep(found: Mapping[str, Any]) -> None:
        plan.update(found)
        listed = {name: plan[name] for name in sorted(plan, key=lambda name: order.get(name, 0))}
        path.with_suffix(".tmp").write_text(json.dumps({"arch": ARCH, "works": listed}))
        path.with_suffix(".tmp").replace(path)

    _groups[:] = sorted(groups.values(), key=lambda group: -max(len(work.launches) for work in group))
    if processes == 1:
        for place in range(len(_groups)):
            keep(prepared(place, folder, before))
    else:
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            for done in as_completed([pool.submit(prepared, place, folder, before) for place in range(len(_groups))]):
                keep(done.result())
    print(f"{len(plan)} kernels with {sum(len(w['launches']) for w in plan.values())} launches: {folder}")


_groups: list[list[Work]] = []  # a global variable, so that forked processes inherit the works


def prepared(place: int, folder: Path, before: Mapping[str, Any]) -> dict[str, Any]:
    """Count the works of a group, and write their cubins; return the plan's entries."""
    plan: dict[str, Any] = {}
    known: dict[Any, Image] = {}
    for work in _groups[place]:
        began = time.perf_counter()
        try:
            sums, marked, places = count(work, known, before.get(work.name), folder)
        # the other kernels are still counted; the error is printed here and shown in the table
        except Exception as error:
            print(f"{work.name}: {type(error).__name__}: {error}", flush=True)
            continue
        plan[work.name] = {"counts": sums, "marked": marked, "launches": places}
        for image in known.values():
            path = folder / "cubins" / f"{hashlib.sha256(image.cubin).hexdigest()[:16]}.cubin"
            if not path.exists():
                path.write_bytes(image.cubin)
        print(f"{work.name}: {sums['instructions']} instructions, {time.perf_counter() - began:.1f} s", flush=True)
    return plan


# ------------------------------------------------------------------------------------------------------------- the GPU


def launch_all(folder: Path, seconds: float, only: str, again: bool) -> None:
    """Launch every work once under ncu, and log the launches; stop when the time is over.

    again: whether to launch works that were measured before.
    """
    import pycuda.driver as cuda

    from cudabench.devices.driver_objects import argument_types

    began = time.monotonic()
    plan = json.loads((folder / "plan.json").read_text())["works"]
    earlier = folder / "measured.json"
    done_before = set(json.loads(earlier.read_text())["works"]) if earlier.exists() and not again else set()
    cuda.init()
    device = cuda.Device(0)
    context = device.make_context()
    modules: dict[str, Any] = {}
    try:
        with (folder / "launched.jsonl").open("w") as log:
            print(json.dumps({"device": device.name()}), file=log, flush=True)
            for work in works(only):
                if work.name not in plan or work.name in done_before:
                    continue
                if time.monotonic() - began > seconds:
                    print(json.dumps({"stopped": work.name}), file=log, flush=True)
                    break
                memory = {name: cuda.mem_alloc(max(array.nbytes, 16)) for name, array in work.arrays.items()}
                pointers = {name: int(allocation) for name, allocation in memory.items()}
                for name, array in work.arrays.items():
                    if array.nbytes:
                        cuda.memcpy_htod(pointers[name], np.ascontiguousarray(array))
                done, fault = 0, None
                try:
                    for launch, (image, entry) in zip(work.launches, plan[work.name]["launches"], strict=True):
                        if image not in modules:
                            modules[image] = cuda.module_from_file(str(folder / "cubins" / f"{image}.cubin"))
                        function = modules[image].get_function(entry)
                        if launch.shared > 48 * 1024:
                            function.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared)
                        function.prepare(argument_types(launch.arguments))
                        block = (*launch.block, 1, 1)[:3]
                        arguments = [
                            pointers[a] if isinstance(a, str) else a.pointing(pointers) if isinstance(a, ByValue) else a
                            for a in launch.arguments
                        ]
                        grid = (*launch.grid, 1, 1)[:3]
                        done += 1  # ncu also lists a launch that fails
                        function.prepared_call(grid, block, *arguments, shared_size=launch.shared)
                    context.synchronize()
                except cuda.Error as error:
                    fault = str(error)
                print(json.dumps({"name": work.name, "launches": done, "fault": fault}), file=log, flush=True)
                if fault is not None:  # the context can launch nothing more
                    break
                for allocation in memory.values():
                    allocation.free()
    finally:
        context.pop()


def counters() -> list[str]:
    """Return the counters of COUNTS that this ncu knows for the GPU."""
    wanted = list(dict.fromkeys([*(name for names, _ in COUNTS.values() for name in names), CLOCKS]))
    ran = subprocess.run(["ncu", "--query-metrics", "--chips", "gh100"], capture_output=True, text=True, check=False)
    listed = {line.split()[0] for line in ran.stdout.splitlines() if line.strip()}
    return [name for name in wanted if name in KNOWN or name.rpartition(".")[0] in listed]


def measure(folder: Path, seconds: float, only: str, again: bool) -> None:
    """Launch every work in one process under ncu; write and print the counts of both sides."""
    began = time.monotonic()
    counter_names = counters()
    child = [sys.executable, __file__, "launch", "--folder", str(folder), "--seconds", str(seconds)]
    child += ["--only", only, *(["--again"] if again else [])]
    if not (rows := ncu.launches(counter_names, child)):
        sys.exit(1)
    (folder / "ncu.json").write_text(json.dumps(rows))
    plan = json.loads((folder / "plan.json").read_text())
    log = [json.loads(line) for line in (folder / "launched.jsonl").read_text().splitlines()]
    launched = [entry for entry in log if "name" in entry]
    total = sum(entry["launches"] for entry in launched)
    if total < len(rows):
        sys.exit(f"{total} kernels were launched and ncu saw {len(rows)}: the rows cannot be told apart; see ncu.json.")
    path = folder / "measured.json"
    found, at = json.loads(path.read_text())["works"] if path.exists() else {}, 0
    for work in launched:
        mine = rows[at : at + work["launches"]]
        at += work["launches"]
        if at > len(rows):  # ncu ended before this work ran
            break
        found[work["name"]] = {
            "simulator": plan["works"][work["name"]]["counts"],
            "marked": plan["works"][work["name"]].get("marked", []),
            "hardware": {name: sum(round(ncu.number(row.get(name))) for row in mine) for name in counter_names},
            "fault": work["fault"],
            "kernels": sorted({row.get("Kernel Name", "") for row in mine}),
        }
    content = {
        "device": log[0]["device"], "arch": plan["arch"], "counters": counter_names, "works": found,
        "left_out": [name for name in plan["works"] if name not in found],
    }  # fmt: skip
    path.write_text(json.dumps(content, indent=1) + "\n")
    compare(content)
    print(f"\n{len(rows)} launches in {time.monotonic() - began:.0f} s: {path}")


# ------------------------------------------------------------------------------------------------------------ the table


def compare(content: Mapping[str, Any]) -> None:
    """Print for each count how many kernels are equal or within its allowed difference, and every difference."""
    works = {key: {**work, "hardware": summed(work["hardware"])} for key, work in content["works"].items()}
    print(f"{content['device']}: {len(works)} kernels\n")
    shares = {
        key: work["simulator"].get(FEWEST, 0) / work["hardware"][CLOCKS]
        for key, work in content["works"].items()
        if work["simulator"].get(FEWEST) and work["hardware"].get(CLOCKS)
    }
    if shares:
        above = ", ".join(f"{key} {share:.2f}" for key, share in shares.items() if share > 1) or "none"
        low, middle, high = np.quantile(list(shares.values()), (0.1, 0.5, 0.9))
        print(f"Fewest clocks of a block over the card's, {len(shares)} kernels: {low:.2f}, {middle:.2f}, {high:.2f}")
        print(f"(the quantiles 0.1, 0.5 and 0.9); above 1: {above}\n")
    print(
        "| count | kernels that have it | equal | marked `~` | unequal without | within | bound | worst |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    )
    for name, (_, bound) in COUNTS.items():
        pairs = [
            (key, work["simulator"].get(name, 0), work["hardware"][name])
            for key, work in works.items()
            if name in work["hardware"] and (work["hardware"][name] or work["simulator"].get(name, 0))
        ]
        equal = sum(ours == theirs for _, ours, theirs in pairs)
        within = sum(off(ours, theirs) <= bound for _, ours, theirs in pairs)
        marked = sum(name in works[key].get("marked", ()) for key, _, _ in pairs)
        unmarked = sum(a != b and name not in works[key].get("marked", ()) for key, a, b in pairs)
        worst = max(pairs, key=lambda pair: off(*pair[1:]), default=None)
        worst_text = "" if worst is None or equal == len(pairs) else f"{worst[0]}: {worst[1]} for {worst[2]}"
        print(f"| {name} | {len(pairs)} | {equal} | {marked} | {unmarked} | {within} | {bound:.0%} | {worst_text} |")
    print("\n| kernel | count | simulator | hardware | ratio | why |\n| --- | --- | ---: | ---: | ---: | --- |")
    for key, work in works.items():
        for name, theirs in work["hardware"].items():
            ours = work["simulator"].get(name, 0)
            if ours != theirs:
                ratio = f"{ours / theirs:.4f}" if theirs else "-"
                note = " (order)" if key.split()[0].removeprefix("corpus/") in ORDERED else ""
                mark = "~" if name in work.get("marked", ()) else ""
                print(f"| {key}{note} | {name} | {mark}{ours} | {theirs} | {ratio} | {why(key, name)} |")
    faults = [f"{key}: {work['fault']}" for key, work in works.items() if work["fault"]]
    print("\n".join(faults))
    if content["left_out"]:
        print(f"not reached in time: {len(content['left_out'])}, {', '.join(content['left_out'][:8])} ...")


def why(work: str, count: str) -> str:
    """Return the reason why a row differs."""
    return next(
        (reason for pattern, what, reason in REASONS if fnmatchcase(work, pattern) and fnmatchcase(count, what)),
        "not known",
    )


def summed(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the sums of the hardware counters that exist, keyed by the names of COUNTS."""
    return {
        name: sum(counters.get(counter, 0) for counter in names)
        for name, (names, _) in COUNTS.items()
        if any(counter in counters for counter in names)
    }


def off(ours: int, theirs: int) -> float:
    """Return the relative difference of the simulator's count from the hardware's."""
    return abs(ours - theirs) / max(theirs, 1)


def main() -> None:
    """Prepare, measure or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "measure", "compare", "launch"))
    parser.add_argument("--folder", type=Path, default=Path("build/ncu"))
    parser.add_argument("--seconds", type=float, default=90, help="after which nothing more is launched")
    parser.add_argument("--only", default="*", help="works whose names match this pattern")
    parser.add_argument("--again", action="store_true", help="measure or count also what is there")
    parser.add_argument("--processes", type=int, default=1, help="that prepare at once")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.what == "prepare":
        prepare(folder, given.only, given.processes, given.again)
    elif given.what == "launch":
        launch_all(folder, given.seconds, given.only, given.again)
    elif given.what == "measure":
        measure(folder, given.seconds, given.only, given.again)
    else:
        content = json.loads((folder / "measured.json").read_text())
        for name, work in json.loads((folder / "plan.json").read_text())["works"].items():
            if name in content["works"]:
                content["works"][name] |= {"simulator": work["counts"], "marked": work.get("marked", [])}
        compare(content)


if __name__ == "__main__":
    main()
