"""Machine code without a GPU: its text, execution counts, arithmetic, spills and merged accesses.

The texts in data/sass are from nvcc 13.0 for sm_90.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cudabench import operations
from cudabench.compile import compiler, cubin, nvdisasm, sass
from cudabench.compile.record import Compiled
from cudabench.devices.sim import SimDevice
from cudabench.errors import DeviceUnusable
from cudabench.explain import block_counts, machine_code, machine_code_selection, merged
from cudabench.measure import context, gpu_run
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.plan import cases
from cudabench.records.plan import Case, Settings
from cudabench.records.results import DeviceInfo
from cudabench.simulator import api as simulator
from cudabench.simulator.machine_code.image import readable
from cudabench.simulator.machine_code.launch import MachineCodeRequest
from tests import ladders

pytestmark = pytest.mark.machine_code
DATA = Path(__file__).parents[1] / "data" / "sass"
needs_tools = pytest.mark.skipif(
    nvdisasm.path() is None or compiler.nvrtc_version() is None, reason="nvdisasm or NVRTC is not installed"
)


def stored(name: str) -> tuple[tuple[sass.Function, ...], str]:
    """Return a kernel's machine code and PTX from data/sass."""
    (functions,) = sass.parse((DATA / f"{name}.sass").read_text()).values()
    return functions, (DATA / f"{name}.ptx").read_text()


# The text ------------------------------------------------------------------------------------------------------------


def test_text_becomes_instructions() -> None:
    """Address, guard, opcode, modifiers, operands and PTX line are parsed; padding behind the code is not."""
    (function,), _ = stored("matvec_warp")
    first, *_, last = function.instructions
    assert (first.address, first.guard, first.mnemonic, first.operands) == (0, "", "LDC", ("R1", "c[0x0][0x28]"))
    assert last.mnemonic == "EXIT"
    load = next(i for i in function.instructions if i.opcode == "LDG")
    assert load.modifiers == ("E",)
    assert load.operands[1].startswith("desc[")
    guarded = next(i for i in function.instructions if i.opcode == "EXIT")
    assert guarded.guard == "P0"
    _, ptx = stored("matvec_warp")
    assert ptx.splitlines()[load.ptx_line - 1].lstrip().startswith("ld.global")


def test_blocks_follow_branches_and_meetings() -> None:
    """A loop's block is its own successor, a guarded EXIT continues with the next block, BSYNC goes to the target of
    its BSSY."""
    (function,), _ = stored("matvec_warp")
    blocks = function.blocks
    assert any(block.number in block.successors for block in blocks)
    assert blocks[0].exits
    assert blocks[0].successors == (1,)
    assert not blocks[-1].successors
    for block in blocks:
        assert all(0 <= number < len(blocks) for number in block.successors)
        if block.instructions[-1].opcode == "BSYNC":
            assert block.successors == (block.number + 1,)  # here the target of BSYNC is the next instruction
    assert sum(len(block.instructions) for block in blocks) == len(function.instructions)


def test_subroutines_stand_by_themselves() -> None:
    """The slow path of a square root is a separate function, and its caller's block names it."""
    functions, _ = stored("distance_finish")
    names = [function.name for function in functions]
    assert names[0] == "distance_finish"
    assert [name for name in names[1:] if "sqrt" in name]
    calls = {block.calls for block in functions[0].blocks if block.calls}
    assert calls == set(names[1:])


def test_a_text_without_code_has_no_functions() -> None:
    """An empty text has no functions, and a section that is missing is empty."""
    assert sass.parse("") == {}
    assert sass.section((DATA / "matvec_warp.sass").read_text(), "matvec") == ""


# Execution counts ----------------------------------------------------------------------------------------------------


_STRAIGHT = """
.section .text.k,"ax",@progbits
.text.k:
//## File ".nv_debug_ptx_txt", line 4
        /*0000*/ S2R R0, SR_TID.X ;
//## File ".nv_debug_ptx_txt", line 5
        /*0010*/ @P0 EXIT ;
//## File ".nv_debug_ptx_txt", line 6
        /*0020*/ FADD R1, R1, R0 ;
        /*0030*/ FADD R1, R1, R0 ;
//## File ".nv_debug_ptx_txt", line 7
        /*0040*/ @P1 STG.E [R2], R1 ;
        /*0050*/ STG.E [R2], R1 ;
//## File ".nv_debug_ptx_txt", line 8
        /*0060*/ EXIT ;
"""


def test_code_of_one_way_runs_as_often_as_its_lines() -> None:
    """A block runs as often as most of its lines; a line with two copies in the code runs half as often in each."""
    (functions,) = sass.parse(_STRAIGHT).values()
    assert not machine_code_selection.may_diverge(functions)
    ran = {4: (4, 128), 5: (4, 128), 6: (8, 200), 7: (4, 100), 8: (4, 100)}
    lines = {line: simulator.Executed(*times) for line, times in ran.items()}
    (counts,) = block_counts.count(functions, lines)
    assert counts == [block_counts.Count(4, 128), block_counts.Count(4, 100)]
    assert block_counts.count(functions, {}) == [[block_counts.Count(0, 0)] * 2]
    assert machine_code_selection.may_diverge(stored("matvec_warp")[0])


def test_a_branch_counts_lanes_and_parted_warps() -> None:
    """Of 4 warps with 108 of 128 threads in range, one warp diverges at the test, and 20 lanes take the branch."""
    source = 'extern "C" __global__ void f(int *x, int n) { if (threadIdx.x < n) x[threadIdx.x] = clock_free(n); }'
    source = source.replace("clock_free(n)", "x[n + threadIdx.x] / n")
    compiled = compiler.compile_ptx(source, "f.cu")
    lines = simulator.run(compiled.ptx, "f", 1, 128, [np.ones(256, np.int32), 108]).executed["f"]
    branch = next(times for times in lines.values() if times.taken)
    assert (branch.warps, branch.lanes, branch.taken, branch.diverged) == (4, 128, 20, 1)
    stores = [lines[n] for n, text in enumerate(compiled.ptx.splitlines(), 1) if "st.global" in text]
    assert [(times.warps, times.lanes) for times in stores] == [(4, 108)]


def test_what_the_counts_leave_out_is_said() -> None:
    """The counts name malloc, printf and recursion as not counted, if the kernel ran them."""
    ptx = ["call.uni (retval0), ", "malloc, ", "(", "param0", ");", "call.uni ", "vprintf, ", "call.uni ", "mine, "]
    once = simulator.Executed(1, 32)
    assert block_counts.undercount_reasons([], {1: once, 6: once}, ptx) == (
        "what malloc and printf do is the driver's own code: its instructions and accesses to memory are not counted",
    )
    assert block_counts.undercount_reasons([], {8: once}, ptx) == ()
    (block, *_) = stored("matvec_warp")[0][0].blocks
    again = sass.Function("f", "k", (block._replace(calls="f"),))
    assert "recursive function" in block_counts.undercount_reasons([again], {}, ptx)[0]


# The tool ------------------------------------------------------------------------------------------------------------


def compiled(source: str, arch: str = "sm_90") -> Compiled:
    """Compile a kernel to machine code."""
    return compiler.compile_cubin(source, "k.cu", arch=arch)


COPY = 'extern "C" __global__ void k(float *a, const float *b) { a[threadIdx.x] = b[threadIdx.x]; }'


@pytest.mark.slow
@needs_tools
def test_a_cubin_is_disassembled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The disassembly of a cubin is read from the cache the second time; a damaged entry is made again."""
    monkeypatch.setenv("CUDABENCH_CACHE", str(tmp_path))
    image = compiled(COPY).cubin
    assert image is not None
    text = nvdisasm._text(image, None)
    assert "LDG" in text
    kept = list((tmp_path / "sass").iterdir())
    assert len(kept) == 1
    with monkeypatch.context() as patch:
        patch.setattr(nvdisasm, "_run", lambda *_: pytest.fail("the cache was not used"))
        assert nvdisasm._text(image, None) == text
    kept[0].write_bytes(b"half an entry")
    assert nvdisasm._text(image, None) == text


@needs_tools
def test_what_is_no_cubin_is_refused() -> None:
    """A file that is not a cubin is refused with nvdisasm's own reason."""
    with pytest.raises(DeviceUnusable, match="nvdisasm refuses the machine code"):
        nvdisasm.functions(b"no cubin", "k")


@needs_tools
def test_a_cubin_tells_registers_and_ptx() -> None:
    """A cubin contains the registers of ptxas' report, and the same PTX lines as the compiler's output."""
    done = compiled(COPY)
    assert done.cubin is not None
    assert cubin.registers(done.cubin, "k") == done.resources["k"].registers
    assert cubin.registers(done.cubin, "other") is None
    ours, theirs = done.ptx.splitlines(), cubin.ptx(done.cubin).split("\n")
    for number, text in enumerate(theirs):
        if text.startswith(("ld.", "st.", "add.")):
            assert ours[number].split() == text.split()


# Arithmetic -----------------------------------------------------------------------------------------------------------

ARITHMETIC = {
    "x[i] = x[i] * x[i + 1] + x[i];": ("float32",),
    "x[i] = x[i] / x[i + 1];": ("float32",),
    "x[i] = expf(x[i]);": ("float32",),
    "x[i] = 1.0f / sqrtf(x[i]);": ("float32",),
    "x[i] = rsqrtf(x[i]) + tanhf(x[i]);": ("float32",),
    "x[i] = __expf(x[i]) + 1.0f;": ("float32", "approximate"),
    "x[i] = __sinf(x[i]);": ("float32", "approximate"),
    "x[i] = __fdividef(x[i], x[i + 1]);": ("float32", "approximate"),
    'asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));': ("approximate",),
    "x[i] = (float)(((double)x[i] * x[i + 1] + 0.1) * x[i + 2]);": ("float64",),
    "x[i] = __half2float(__float2half(x[i]));": ("float16",),
    "x[i] = __bfloat162float(__float2bfloat16(x[i]) * __float2bfloat16(x[i + 1]));": ("bfloat16",),
    "((int *)x)[i] = __dp4a(((int *)x)[i], ((int *)x)[i + 1], 0);": ("int8",),
    "((int *)x)[i] += 1;": (),
}


@pytest.fixture(scope="module")
def statements() -> Compiled:
    """Compile one kernel for each statement, in one file."""
    source = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    for at, statement in enumerate(ARITHMETIC):
        source += f'extern "C" __global__ void k{at}(float *x) {{ int i = threadIdx.x; {statement} }}\n'
    return compiled(source)


@pytest.mark.slow
@pytest.mark.sampled(4)
@needs_tools
@pytest.mark.parametrize("statement", ARITHMETIC)
def test_arithmetic_is_named(statements: Compiled, statement: str) -> None:
    """The record lists the formats of the arithmetic; 'approximate' only where the source asks for it, not for a
    division."""
    name = f"k{list(ARITHMETIC).index(statement)}"
    assert statements.cubin is not None
    image = machine_code.Image(statements.cubin, [machine_code.Kernel(name)], statements.ptx.splitlines())
    record = machine_code.describe_all([image], "sm_90", "")
    assert record is not None
    assert record.arithmetic == ARITHMETIC[statement]
    assert record.registers == statements.resources[name].registers
    assert record.instructions_executed is None


TENSOR = """
extern "C" __global__ void k(float *d, const unsigned *a) {
    float c[4] = {};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.%s.%s.f32 "
        "{%%0,%%1,%%2,%%3}, {%%4,%%5%s}, {%%6%s}, {%%0,%%1,%%2,%%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]));
    for (int i = 0; i < 4; i++) d[4 * threadIdx.x + i] = c[i];
}
"""


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("IMMA.16832.S8.S8", ("int8",)),
        ("IMMA.16864.S4.S4", ("int4",)),
        ("BMMA.168256.AND.POPC", ("int1",)),
        ("HMMA.SP.16832.F32", ("float16", "sparse")),
        ("HGMMA.SP.64x256x32.F32.BF16", ("bfloat16", "sparse")),
    ],
)
def test_products_whose_rate_nobody_knows_have_names_of_their_own(words: str, names: tuple[str, ...]) -> None:
    """Sparse products and products of 4-bit or 1-bit integers have their own names, and so get no lower bound from
    dense rates."""
    opcode, *modifiers = words.split(".")
    block = sass.Block(0, (sass.Instruction(0, "", opcode, tuple(modifiers), (), 0),), (), True, "")
    found = machine_code.arithmetic([sass.Function("k", "k", (block,))], [])
    assert found == names
    h200 = DeviceInfo("H200", "cuda", "9.0", sm_count=132, clocks={"sm_mhz": 1980})
    assert (gpu_run.flops_floor(10**12, found, h200) is None) == (names != ("int8",))


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize(
    ("kind", "a", "b", "name"),
    [("tf32", ",%7,%8", ",%9", "tf32"), ("bf16", "", "", "bfloat16"), ("f16", "", "", "float16")],
)
def test_tensor_cores_are_named(kind: str, a: str, b: str, name: str) -> None:
    """A product on tensor cores is named by the format of its inputs."""
    done = compiled(TENSOR % (kind, kind, a, b))
    assert done.cubin is not None
    functions = nvdisasm.functions(done.cubin, "k")
    assert machine_code.arithmetic(functions, done.ptx.splitlines()) == (name,)
    assert "tensor" in {machine_code.pipe(instruction) for instruction in functions[0].instructions}


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) k(float *x) {
    float v[48];
    for (int i = 0; i < 48; i++) v[i] = x[i * 1024 + threadIdx.x];
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 48; i++) v[i] = v[i] * v[(i * 7 + 5) % 48] + v[(i * 11 + 3) % 48];
    for (int i = 0; i < 48; i++) x[i * 1024 + threadIdx.x] = v[i];
}
"""
ARRAY = """
extern "C" __global__ void k(float *x, const int *p) {
    float v[256];
    for (int i = 0; i < 256; i++) v[i] = x[i] * i;
    v[p[threadIdx.x + 2] & 255] += 1;
    x[threadIdx.x] = v[p[threadIdx.x] & 255] + v[p[threadIdx.x + 1] & 255];
}
"""


@pytest.mark.slow
@needs_tools
def test_spills_are_counted() -> None:
    """The spilled bytes are those of ptxas' report, and each spill runs in all warps."""
    done = compiled(SPILLING)
    assert done.cubin is not None
    functions, ptx = nvdisasm.functions(done.cubin, "k"), done.ptx.splitlines()
    needs = done.resources["k"]
    assert needs.spill_stores > 0
    assert machine_code.spill_bytes(functions, ptx) == needs.spill_stores + needs.spill_loads
    asked = MachineCodeRequest(functools.partial(readable, done.cubin, "k"))
    report = simulator.run(done.ptx, "k", 2, 1024, [np.ones(48 * 1024, np.float32)], machine=asked)
    counts = block_counts.count(functions, report.executed["k"])
    local = machine_code.local_accesses(functions, ptx, counts)
    assert sum(access.bytes for access in local if access.op == "store" and access.spill) > 0
    assert all(access.warps % 64 == 0 and access.lanes == 32 * access.warps for access in local)
    stored_bytes = sum(access.lanes * access.bytes for access in local if access.op == "store")
    assert stored_bytes == 2048 * needs.spill_stores


@pytest.mark.slow
@needs_tools
def test_an_array_in_local_memory_is_no_spill() -> None:
    """An array that the source indexes at run time is in local memory, and is not a spill."""
    done = compiled(ARRAY)
    assert done.cubin is not None
    functions, ptx = nvdisasm.functions(done.cubin, "k"), done.ptx.splitlines()
    local = machine_code.local_accesses(functions, ptx)
    assert {(access.op, access.spill) for access in local} == {("load", False), ("store", False)}
    assert machine_code.spill_bytes(functions, ptx) == 0


# Merged accesses -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_tools
def test_four_loads_are_one() -> None:
    """Four neighbouring loads that ptxas merges are one group of 16 bytes; each other access is a group of 4 bytes."""
    shared = """
    extern "C" __global__ void k(float *y) {
        __shared__ float t[1024];
        for (int i = 0; i < 4; i++) t[threadIdx.x + 256 * i] = y[threadIdx.x + 256 * i];
        __syncthreads();
        float s = 0;
        for (int i = 0; i < 4; i++) s += t[threadIdx.x * 4 + i] * (i + 1);
        y[threadIdx.x] = s;
    }
    """
    done = compiled(shared)
    assert done.cubin is not None
    ptx = done.ptx.splitlines()
    found = merged.merge(nvdisasm.functions(done.cubin, "k"), ptx, range(1, len(ptx) + 1))
    assert found.unexplained == ()
    wide = [group for group in found.groups if len(group.lines) > 1]
    assert [(len(group.lines), group.bytes) for group in wide] == [(4, 16)]
    assert all("ld.shared" in ptx[line - 1] for line in wide[0].lines)
    assert {group.bytes for group in found.groups if len(group.lines) == 1} == {4}


def test_a_load_of_what_was_loaded_before_is_none() -> None:
    """compact_ballot reads in[lane] in two blocks and its machine code once: 4 sectors on an H200, not 8."""
    functions, ptx = stored("compact_ballot")
    entry, lines = functions[0].name, ptx.splitlines()
    found = merged.merge(functions, lines, range(1, len(lines) + 1))
    assert found.unexplained == ()
    assert [len(group.lines) for group in found.groups if len(group.lines) > 1] == [2]
    arrays = [np.arange(32, dtype=np.int32), np.zeros(32, np.int32), np.zeros(1, np.int32)]
    report = simulator.run(ptx, entry, 1, 32, arrays, merged=found.request_counts())
    assert [(a.requests, a.sectors, a.merged) for a in report.accesses if a.op == "load"] == [(1, 4, 1)]


def test_what_was_loaded_on_another_way_is_not_loaded_here() -> None:
    """A load is not merged with an earlier load of the same place if a path leads around it or its base is written
    twice."""
    functions, text = stored("compact_ballot")
    lines = text.splitlines()
    first, second = (n for n, row in enumerate(lines, 1) if row.startswith("ld.global"))
    assert not merged.merge(functions, lines, range(1, len(lines) + 1)).unexplained
    jump = [*lines]
    jump[first - 2], jump[second - 2] = "@%p1 bra $L__PAST;", "$L__PAST:"  # a path leads around the first load
    assert [a.ptx_line for a in merged.merge(functions, jump, range(1, len(lines) + 1)).unexplained] == [second]
    base = lines[second - 1].split("[")[1].split("]")[0]
    moved = [*lines]
    moved[first] = f"add.s64 {base}, {base}, 4;"  # the base is written twice
    assert [a.ptx_line for a in merged.merge(functions, moved, range(1, len(lines) + 1)).unexplained] == [second]


_WIDE = """
.section .text.k,"ax",@progbits
.text.k:
//## File ".nv_debug_ptx_txt", line 4
        /*0000*/ LDS.128 R0, [R4+0x10] ;
//## File ".nv_debug_ptx_txt", line 8
        /*0010*/ EXIT ;
"""


@pytest.mark.parametrize(("offset", "together"), [(20, True), (28, True), (12, False), (32, False)])
def test_a_wide_load_brings_what_later_blocks_load_beside_it(offset: int, together: bool) -> None:
    """A 16-byte load includes elements that a later block loads beside it, as ptxas does for solve's update on
    sm_80."""
    ptx = [
        ".entry k(", ")", "{", "ld.shared.f32 %f1, [%r1+16];", "@%p1 bra $L_1;", f"ld.shared.f32 %f2, [%r1+{offset}];",
        "$L_1:", "ret;",
    ]  # fmt: skip
    found = merged.merge(next(iter(sass.parse(_WIDE).values())), ptx, range(1, 9))
    assert [a.ptx_line for a in found.unexplained] == ([] if together else [6])
    assert found.groups == (merged.Group(4, (4, 6), 16, 0, 16) if together else merged.Group(4, (4,), 16, 0, 4),)


@pytest.mark.slow
@needs_tools
def test_merged_loads_count_once() -> None:
    """In matmul tiled, four reads of a row of A are one read of 16 bytes, which takes 2 wavefronts."""
    operation = operations.get("matmul")
    (case,) = cases.build(operation, cases.Request(kernels=("tiled",), size=(64, 64, 64)))
    rows = {}
    for read in (False, True):
        run = SimulatedRun(operation, case.problem, Settings(cpu=False), SimDevice("sm_90"), disassemble=read)
        access = run.measure(case).access
        assert access is not None
        rows[read] = [row for row in access if (row.space, row.op) == ("shared", "load")]
    line = next(row.line for row in rows[True] if row.bytes == 16)
    plain = [row for row in rows[False] if row.line == line]
    narrow = [row for row in rows[True] if row.line == line and row.bytes == 4]
    wide = [row for row in rows[True] if row.line == line and row.bytes == 16]
    assert all(row.merged == 0 for row in plain)
    assert all(row.merged == 3 * row.requests and row.wavefronts == 2 * row.requests for row in wide)
    assert {row.array for row in wide} == {"tile_a"}
    assert sum(row.requests for row in plain) == sum(row.requests + row.merged for row in narrow + wide)


# ptxas and nvdisasm take up to ten seconds for a chapter, so each chapter is tested for one of two architectures.
CHAPTERS = [(name, ("sm_80", "sm_90")[at % 2]) for at, name in enumerate(sorted(operations.SUMMARIES))]


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize(("name", "arch"), CHAPTERS)
def test_no_access_of_the_chapters_is_unexplained(name: str, arch: str) -> None:
    """Every load and store of a chapter's PTX has its own machine instruction or is part of a wider one."""
    operation = operations.get(name)
    types: dict[str | None, list[str]] = {}
    for kernel in operation.kernels:
        types.setdefault(kernel.dtypes[0] if kernel.dtypes else None, []).append(kernel.name)
    loaded = functools.cache(simulator.load)
    seen: set[str] = set()
    # Kernels with the same constants are compiled and disassembled once.
    for case in (case for dtype, names in types.items() for case in ladders.build(name, *names, dtype=dtype)[1]):
        functions = {launch.function for launch in case.launches} - seen
        if not functions or context.other_architecture(case, SimDevice(arch).info):
            continue
        seen |= functions
        done = compiler.compile_cubin(
            case.source.text, case.source.name, arch=arch, defines=case.defines, include_dirs=case.source.folders
        )
        assert done.cubin is not None
        ptx = done.ptx.splitlines()
        program = loaded(done.ptx)
        for function in functions:
            lines = set(program.lines(function))
            found = merged.merge(nvdisasm.functions(done.cubin, function), ptx, lines)
            assert found.unexplained == (), function
            assert sum(len(group.lines) for group in found.groups) == len(merged.accesses(ptx, lines))
            assert all(group.bytes <= 16 for group in found.groups)
    assert seen


# The record ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def simulated() -> tuple[SimulatedRun, Case]:
    """Return a small transpose that is ready to run."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("smem",), size=(256, 256)))
    return SimulatedRun(operation, case.problem, Settings(cpu=False), SimDevice("sm_90")), case


@pytest.mark.slow
@needs_tools
def test_a_simulated_result_has_machine_code(simulated: tuple[SimulatedRun, Case]) -> None:
    """The pipes add up to the executed instructions, every warp is full, and the record has a hash of the cubin."""
    run, case = simulated
    record = run.measure(case).machine_code
    assert record is not None
    assert record.pipes is not None
    assert set(record.pipes) == set(machine_code.PIPES)
    assert sum(record.pipes.values()) == record.instructions_executed
    assert record.instructions_executed is not None
    assert record.instructions_executed % 2048 == 0  # 256 x 256 threads
    assert record.threads_per_instruction == 32
    assert record.arithmetic == ()
    assert record.pipes["lsu"] == 4 * 2048
    assert len(record.sha256) == 64


def test_without_nvdisasm_the_cubin_alone_speaks(
    simulated: tuple[SimulatedRun, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without nvdisasm a run is still right; its record has registers and hash, and None for counts from the
    disassembly."""
    monkeypatch.setattr(nvdisasm, "path", lambda: None)
    run, case = simulated
    result = run.measure(case)
    assert result.status == "ok"
    record = result.machine_code
    assert record is not None
    assert record.registers == result.registers
    bare = replace(record, arch="", sha256="", ptx_sha256=None, registers=None)
    assert bare == type(record)("", "")


def test_nobody_asks_for_machine_code(simulated: tuple[SimulatedRun, Case]) -> None:
    """A run that neither shows nor saves machine code does not disassemble."""
    run, case = simulated
    run.disassemble = False
    assert run.measure(case).machine_code is None


@needs_tools
def test_a_process_that_just_ends_leaves_no_cubin_behind(tmp_path: Path) -> None:
    """A process that ends abruptly while nvdisasm runs leaves no temporary file."""
    script = (
        "import os, sys, time\n"
        "from cudabench.compile import nvdisasm\n"
        "nvdisasm._pool().submit(nvdisasm._run, sys.argv[1], b'x' * 4096, None)\n"
        "while not os.path.exists('began'): time.sleep(0.01)\n"
        "os._exit(0)\n"
    )
    tool = tmp_path / "nvdisasm"
    tool.write_text('#!/bin/sh\n[ "$(head -c 4 "$3")" = xxxx ] && : > began\nsleep 0.1\n')
    tool.chmod(0o755)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(DATA.parent.parent.parent)}
    line = [sys.executable, "-c", script, str(tool)]
    subprocess.run(line, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert not [*temporary.iterdir()]
