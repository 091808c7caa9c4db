"""Execution of the machine code as well as the PTX: its counts are those of a GPU, and its results those of the PTX."""

from __future__ import annotations

import itertools
import json
import zlib
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.cards.load import load_card
from cudabench.compile import compiler, cubin, nvdisasm
from cudabench.compile.record import Compiled
from cudabench.devices.sim import machine_code_of
from cudabench.explain import lower_bounds
from cudabench.simulator import api as simulator
from cudabench.simulator.machine_code import forms, launch
from cudabench.simulator.machine_code.launch import MachineCodeRequest
from cudabench.simulator.report import Code, Lines
from cudabench.system import native
from tests.machine_code import divergent

FOLDER = Path(__file__).parents[1] / "machine_code"
CARD: dict[str, dict[str, dict[str, Any]]] = {
    source: json.loads((FOLDER / card).read_text())["kernels"]
    for source, card in (("kernels.cu", "h100.json"), ("unseen.cu", "unseen.json"))
}
RANDOM: dict[str, list[Any]] = json.loads((FOLDER / "divergent.json").read_text())["kernels"]
UNLIKE = ("70",)  # some lanes that store together on a GPU are diverged in the simulator
PIECES = ("LDG", "STG", "LDL", "STL", "LDS", "STS", "ATOMS")

pytestmark = [
    pytest.mark.machine_code,
    pytest.mark.skipif(
        nvdisasm.path() is None or native.library() is None, reason="needs nvdisasm and the native engine"
    ),
]


@lru_cache
def compiled(text: str, arch: str = "sm_90") -> Compiled:
    """Return a compiled source."""
    return compiler.compile_cubin(text, "kernels.cu", arch=arch)


def run(
    made: Compiled, kernel: str, arrays: list[np.ndarray], n: int, block: int = 256, grid: int = 4
) -> tuple[Code | str | None, Any]:
    """Launch a kernel; return the counts of its machine code (or the reason for their absence), and that code."""
    machine = machine_code_of(made, kernel)
    asked = MachineCodeRequest(lambda: machine)
    report = simulator.run(made.ptx, kernel, grid, block, [*arrays, n], machine=asked, footprint=True)
    lines = report.executed[kernel]
    assert isinstance(lines, Lines)
    return lines.code, machine


@pytest.mark.sampled(270)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(("source", "kernel"), [(source, kernel) for source in CARD for kernel in sorted(CARD[source])])
def test_counts_are_those_of_a_card(source: str, kernel: str, arch: str) -> None:
    """A kernel's machine code gives the results of its PTX; if it is the code that an H100 ran, results and counts
    equal those of the H100."""
    made = compiled((FOLDER / source).read_text(), arch)
    i = np.arange(4096, dtype=np.int64)
    x = ((i * i * 48271 + i * 2654435761) // 1024 % 4096).astype(np.int32)
    y, f = np.zeros(8192, np.int32), (np.arange(8192) % 97).astype(np.float32)
    code, machine = run(made, kernel, [x, y, f], 4096)
    assert isinstance(code, Code), code
    assert made.cubin is not None
    card = CARD[source][kernel]
    if cubin.code_sha256(made.cubin, [kernel]) != card["code_sha256"]:
        return
    assert zlib.crc32(y.tobytes()) == card["y"]
    counts = Counter(warps=0, lanes=0, **dict.fromkeys(PIECES, 0))
    for one in machine.decoded.instructions:
        warps, lanes, _, pieces = code.counts[one.address]
        counts.update({"warps": warps, "lanes": lanes, one.opcode: pieces})
    wrong = {name for name in ("warps", "lanes", *PIECES) if counts[name] != card[name]}
    assert wrong == ({"lanes"} if code.unsettled else set())


UNREAD = {"i_prmt", "i_addsat"}  # for some architectures, these have forms of instructions that are not decoded
UNREAD_120 = UNREAD | {"i_min64", "i_vsad4", "i_vabsdiff4"}
ROUNDED = {"f_fsin", "f_fdivide"}  # approximations, which the PTX rounds once less


@pytest.mark.sampled(8)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("part", range(8))
def test_rare_instructions_have_the_results_of_the_ptx(arch: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine code of about 200 intrinsics is read, and gives the results of the PTX bit for bit; these are the
    results of an H100, apart from functions that it approximates."""
    card = json.loads((FOLDER / "intrinsics.json").read_text())["y"]
    made = compiled((FOLDER / "intrinsics.cu").read_text(), arch)
    assert made.cubin is not None
    random = np.random.default_rng(1)
    x = random.integers(-(2**31), 2**31 - 1, 256).astype(np.int32)
    x[:8], x[128:136] = [0, 1, -1, 2**31 - 1, -(2**31), 7, 255, 65535], [0, 0, 1, -1, -(2**31), 3, 128, -5]
    f = (random.random(256) * 20 - 10).astype(np.float32)
    wrong, unread = {}, set()
    for kernel in sorted(cubin.entries(made.cubin))[part::8]:
        if kernel not in ROUNDED:
            monkeypatch.setattr(launch, "differ", lambda left, right: not np.array_equal(left, right))
        y = np.zeros(128, np.int32)
        code, machine = run(made, kernel, [x, f, y], 128, 64, 2)
        if isinstance(machine, str):
            unread.add(kernel)
        elif not isinstance(code, Code):
            wrong[kernel] = code
        elif zlib.crc32(y.tobytes()) != card.get(kernel, zlib.crc32(y.tobytes())):
            wrong[kernel] = "its results differ from those of the card"
        monkeypatch.undo()
    assert not wrong
    assert unread <= (UNREAD_120 if arch == "sm_120" else UNREAD)


@pytest.mark.sampled(120)
@pytest.mark.parametrize("seed", [seed for seed in RANDOM if seed not in UNLIKE])
def test_random_divergence_counts_as_on_a_card(seed: str) -> None:
    """Kernels with random divergence have the sectors and wavefronts of an H100, and its instruction counts within
    0.1%. Code with a YIELD is marked as unsettled: the order of its lanes is unknown."""
    made = compiler.compile_cubin(divergent.source(int(seed)), "kernels.cu", arch="sm_90")
    sha, *card = RANDOM[seed]
    assert made.cubin is not None
    if cubin.code_sha256(made.cubin, ["parts"]) != sha:
        pytest.skip("another version of the compiler")
    arrays = divergent.arrays(int(seed))
    code, machine = run(made, "parts", [*arrays], divergent.WORDS, divergent.BLOCK, divergent.GRID)
    assert isinstance(code, Code), code
    assert (code.unsettled is not None) == any(one.opcode == "YIELD" for one in machine.decoded.instructions)
    if code.unsettled is None:
        counts = Counter[str]()
        for one in machine.decoded.instructions:
            warps, lanes, _, pieces = code.counts[one.address]
            counts.update({"warps": warps, "lanes": lanes, one.opcode: pieces})
        assert [counts[name] for name in ("LDG", "STG", "REDG", "LDS")] == card[2:]
        assert counts["warps"] == pytest.approx(card[0], rel=1e-3)
        assert counts["lanes"] == pytest.approx(card[1], rel=1e-3)


@pytest.mark.slow
def test_divisions_call_the_subroutine_as_on_an_h200() -> None:
    """A division calls the subroutine exactly where an H200 executed more than the 23 inline instructions, for 355
    pairs of exponents; the counts of the pairs are in the same order as on the H200."""
    measured = json.loads((FOLDER.parent / "data" / "divisions_h200.json").read_text())
    bits = np.array([exponent << 23 | fraction for exponent, fraction in measured["operands"]], np.uint32)
    values = bits.view(np.float32)
    made = compiled('extern "C" __global__ void k(float *o, float *a, float *b, int n) { *o = *a / *b; }')
    machine = machine_code_of(made, "k")
    counts: dict[tuple[int, int], tuple[int, int]] = {}
    for (i, row), j in itertools.product(enumerate(measured["instructions"]), range(len(values))):
        if row[j] is not None:
            asked = MachineCodeRequest(lambda: machine)
            arrays = [np.zeros(1, np.float32), values[i : i + 1].copy(), values[j : j + 1].copy()]
            lines = simulator.run(made.ptx, "k", 1, 32, [*arrays, 1], machine=asked).executed["k"]
            assert isinstance(lines, Lines)
            code = lines.code
            assert isinstance(code, Code), code
            counts[i, j] = sum(warps for warps, *_ in code.counts.values()), row[j]
    least = min(count for count, _ in counts.values())
    assert len(counts) == 355
    assert all((count > least) == (n > 23) for count, n in counts.values())
    pairs = sorted(counts.values())
    assert [n for _, n in pairs] == sorted(n for _, n in pairs)


@pytest.mark.slow
def test_what_is_not_known_is_said() -> None:
    """A kernel with an unknown machine instruction has no counts of machine code, but a reason that names the
    instruction."""
    made = compiled('extern "C" __global__ void k(int *y, int n) { int *p = new int; *p = n; *y = *p; }')
    code, _ = run(made, "k", [np.zeros(256, np.int32)], 3)
    assert code == "the machine code cannot be read: ST.E, which depends on a value that is not computed"


DRIVER = """#include <cstdio>
#include <cassert>
extern "C" __global__ void k(int *y, int n) {
    assert(n > 0);
    if (threadIdx.x == 3) printf("%d of %d\\n", blockIdx.x, n);
    y[blockIdx.x * blockDim.x + threadIdx.x] = n + threadIdx.x;
}"""
CLOCK = """extern "C" __global__ void k(int *y, long long *t, int n) {
    long long begin = clock64();
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    for (int k = 0; k < n; k++) sum += __popc(y[i] + k);
    y[i] = sum;
    t[i] = clock64() - begin;
}"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("source", "opcode", "times"), [(DRIVER, "CALL", 4), (CLOCK, "CS2R", 8 * 4 * 2)])
def test_clocks_and_functions_of_the_driver_have_counts(source: str, opcode: str, times: int) -> None:
    """A kernel that reads a clock, prints or asserts has counts of its machine code, without the driver's code."""
    made = compiled(source)
    arrays = [np.ones(1024, np.int32), *([np.zeros(1024, np.int64)] if opcode == "CS2R" else [])]
    code, machine = run(made, "k", arrays, 3)
    assert isinstance(code, Code), code
    found = [
        code.counts[one.address][0]
        for one in machine.decoded.instructions
        if one.opcode == opcode and "SRZ" not in one.operands
    ]
    assert sum(found) == times


def test_a_trap_that_no_thread_reaches_is_counted() -> None:
    """A kernel with a trap has counts of its machine code if no thread reaches the trap."""
    made = compiled('extern "C" __global__ void k(int *y, int n) { if (y[threadIdx.x] == n) __trap(); }')
    code, machine = run(made, "k", [np.zeros(256, np.int32)], 1)
    assert isinstance(code, Code), code
    assert any(one.opcode == "BPT" for one in machine.decoded.instructions)


GENERIC = """__device__ __noinline__ int sum(const int *p, int n)
{
    int s = 0;
    for (int k = 0; k < n; k++) s += p[k];
    return s;
}
__device__ __noinline__ void put(int *p, int i, int v) { p[i] = v; }
extern "C" __global__ void generic(const int *x, int *y, int n) {
    __shared__ int tile[64];
    int own[8];
    for (int k = 0; k < 8; k++) own[(k + threadIdx.x) & 7] = x[threadIdx.x] + k * n;
    put(tile, threadIdx.x, x[threadIdx.x]);
    __syncthreads();
    const int *p = (threadIdx.x & 3) == 0 ? tile : (threadIdx.x & 3) == 1 ? own : x;
    put(y, threadIdx.x, sum(p, 5) + sum(own, n & 7));
    if (threadIdx.x % 5 == 0) atomicAdd((threadIdx.x & 1 ? tile : y + 64) + threadIdx.x, 1);
    __syncthreads();
    y[128 + threadIdx.x] = tile[threadIdx.x];
}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_generic_addresses_of_shared_and_local_memory(arch: str) -> None:
    """Functions that get pointers to shared, local and global memory access what their pointers name; the sectors are
    those of global memory."""
    y = np.zeros(192, np.int32)
    code, machine = run(compiled(GENERIC, arch), "generic", [np.arange(64, dtype=np.int32), y], 3, 64, 1)
    assert isinstance(code, Code), code
    assert y[4] == sum(range(5)) + sum(4 + ((k - 4) & 7) * 3 for k in range(3))
    sectors = Counter[str]()
    for one in machine.decoded.instructions:
        sectors[one.opcode] += code.counts[one.address][3]
    assert sectors["ST"] == 8  # the stores to `y`, not those to `tile`
    assert sectors["ATOM"] == 4 + 3  # of lanes 0, 10, 20, 30, and 40, 50, 60


EARLY = """__device__ __noinline__ void keep(int *best, int x) {
    if (x >= best[1]) return;
    if (best[0] > x) { best[1] = best[0]; best[0] = x; } else best[1] = x;
}
extern "C" __global__ void k(const int *x, int *y, int n) {
    int best[2] = {99, 99};
#pragma unroll 1
    for (int j = 0; j < n; j++) keep(best, x[j * 32 + threadIdx.x]);
    y[threadIdx.x] = best[0] + best[1];
}"""


def test_lanes_that_return_later_issue_the_return_again() -> None:
    """If some lanes of a warp return and others do not, those that run second issue the return once more, as measured
    on an H100."""
    x = np.array([[50] * 32, [60] * 10 + [40] * 22, [70] * 25 + [10] * 7], np.int32)
    x[1, 10:] = 30
    x[0, :10] = 5
    x[2, :25] = 98
    code, machine = run(compiled(EARLY), "k", [x, np.zeros(32, np.int32)], 3, 32, 1)
    assert isinstance(code, Code), code
    early = next(one for one in machine.decoded.instructions if one.opcode == "RET")
    if not early.guard:
        pytest.skip("the compiler makes other code of the early return")
    warps, lanes = code.counts[early.address][:2]
    assert (warps, lanes) == (3 + 1, 3 * 32 + 25)  # only in the last call some lanes return early: 25 of 32


NAMED = """extern "C" __global__ void k(const int *x, int *y, int n) {
    __shared__ int full[2][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, id = REGISTER;
    if (warp % 2) {
        full[warp / 2][lane] = x[warp / 2 * 32 + lane] + n;
        asm volatile("bar.arrive %0, 64;" :: "r"(id) : "memory");
    } else {
        asm volatile("bar.sync %0, 64;" :: "r"(id) : "memory");
        y[warp / 2 * 32 + lane] = full[warp / 2][31 - lane];
    }
    __syncthreads();
    if (warp == 3) y[64 + lane] = full[0][lane];
}"""


@pytest.mark.parametrize("number", ["1 + warp / 2", "1"])
def test_barriers_with_a_number_of_threads(number: str) -> None:
    """Warps wait at a named barrier until as many threads as it names have arrived, some of them without waiting."""
    threads = 128 if "warp" in number else 64
    x, y = np.arange(64, dtype=np.int32), np.zeros(128, np.int32)
    code, _ = run(compiled(NAMED.replace("REGISTER", number)), "k", [x, y], 5, threads, 1)
    assert isinstance(code, Code), code
    assert (y[: threads // 2].reshape(-1, 32) == x[: threads // 2].reshape(-1, 32)[:, ::-1] + 5).all()


@pytest.mark.slow
def test_other_results_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the results of the machine code differ from those of the PTX, its counts are not used, and the reason names
    the array."""
    made = compiled('extern "C" __global__ void k(int *y, int n) { y[threadIdx.x] = threadIdx.x ^ n; }')
    monkeypatch.setitem(forms.FORMS, "LOP3", ("iadd3", "pdxxxik", 0))
    code, _ = run(made, "k", [np.zeros(256, np.int32)], 3)
    assert code == "its results differ from those of the PTX in argument 0"


def test_a_warp_that_never_ends_is_given_up() -> None:
    """If a thread waits for a later block, the launch has no counts of machine code, but a reason."""
    source = """extern "C" __global__ void k(volatile int *y, int n) {
        if (threadIdx.x == 0) { y[blockIdx.x] = 1; while (y[3 - blockIdx.x] == 0); } }"""
    made = compiled(source)
    machine = machine_code_of(made, "k")
    assert not isinstance(machine, str)
    asked = MachineCodeRequest(lambda: machine)
    try:
        report = simulator.run(made.ptx, "k", 4, 32, [np.zeros(4, np.int32), 3], machine=asked, budget=200000)
    except simulator.BudgetExceeded:
        pytest.skip("the PTX does not end either")
    lines = report.executed["k"]
    assert isinstance(lines, Lines)
    assert isinstance(lines.code, str)


TENSOR = """#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const __half *a, float *c, int n) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
    wmma::fill_fragment(z, 0.0f);
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        wmma::load_matrix_sync(x, a + i * 256, 16);
        wmma::load_matrix_sync(y, a + i * 256, 16);
        wmma::mma_sync(z, x, y, z);
    }
    MORE
    wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("more", "why"), [("", None), ("if (z.x[0] > 1) c[256] = 1;", "depends on a value that is not computed")]
)
def test_products_of_tensor_cores_need_not_be_known(more: str, why: str | None) -> None:
    """A kernel with tensor-core products, whose values are not computed, has counts unless a branch or a guard depends
    on such a value."""
    made = compiled(TENSOR.replace("MORE", more))
    a, c = np.ones(5 * 256, np.float16), np.zeros(257, np.float32)
    code, machine = run(made, "k", [a, c], 5, 32)
    if why is not None:
        assert isinstance(code, str)
        assert why in code
        return
    assert isinstance(code, Code), code
    products = [one.address for one in machine.decoded.instructions if one.opcode == "HMMA"]
    assert sum(code.counts[at][0] for at in products) == 5 * 2 * 4  # trips, halves of a product, blocks
    assert machine.decoded.unknown


SUMS = """extern "C" __global__ void k(const float *x, float *y, int n) {
    float sum = 0;
    for (int j = 0; j < n; j++) sum += x[(blockIdx.x * blockDim.x + threadIdx.x) * 5 + j];
    MORE
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(
    ("more", "sampled"),
    [("", True), ("if (blockIdx.x == 77) for (int j = 0; j < n; j++) sum *= x[j];", False)],
    ids=["alike", "another"],
)
def test_a_sample_of_blocks_stands_for_blocks_that_do_the_same(
    more: str, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all blocks execute the same instructions, a sample of 31 blocks gives the counts of the grid; if one block
    executes more, all blocks run."""
    made = compiled(SUMS.replace("MORE", more))
    blocks: list[int] = []
    execute = launch.execute
    monkeypatch.setattr(launch, "execute", lambda *arguments: blocks.append(len(arguments[5])) or execute(*arguments))
    x, y = np.ones(300 * 64 * 5 + 7, np.float32), np.zeros(300 * 64, np.float32)
    found, _ = run(made, "k", [x, y], 7, 64, 300)
    assert blocks == ([launch.ALIKE] if sampled else [300])
    monkeypatch.setattr(launch, "LEAST_GRID", 1000)
    whole, _ = run(made, "k", [x, y], 7, 64, 300)
    assert isinstance(found, Code)
    assert isinstance(whole, Code)
    assert (whole.counts, *whole[2:]) == (found.counts, *found[2:])


VOTE = """extern "C" __global__ void k(const int *x, unsigned *y, int n) {
    unsigned base = threadIdx.x % 32 / n * n, mask = (n == 32 ? ~0u : (1u << n) - 1) << base;
    y[threadIdx.x] = __ballot_sync(mask, x[threadIdx.x] & 1);
}"""


@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 32])
def test_votes_with_several_masks(lanes: int) -> None:
    """The lanes of each mask vote separately. For each additional mask a warp executes three more instructions, the
    first with all lanes that have not voted, as measured on an H100 with 2, 4 and 32 masks."""
    x, y = np.random.default_rng(5).integers(0, 9, 64).astype(np.int32), np.zeros(64, np.uint32)
    found, _ = run(compiled(VOTE), "k", [x, y], lanes, 64, 1)
    assert isinstance(found, Code), found
    bits = (x.reshape(-1, lanes) & 1) << (np.arange(64) % 32).reshape(-1, lanes)
    assert y.tolist() == np.repeat(bits.sum(axis=1), lanes).tolist()
    whole, _ = run(compiled(VOTE), "k", [x, y.copy()], 32, 64, 1)
    assert isinstance(whole, Code)
    warps, lanes_more = (
        sum(row[part] for row in found.counts.values()) - sum(row[part] for row in whole.counts.values())
        for part in (0, 1)
    )
    groups = 32 // lanes
    assert warps == 2 * 3 * (groups - 1)
    assert lanes_more == 2 * sum(32 - lanes * done for done in range(1, groups))


CLOCKS = r"""
extern "C" __global__ void turns(const int *trips, int *out, int n)
{
    int sum = threadIdx.x;
    for (int k = trips[blockIdx.x * blockDim.x + threadIdx.x]; k > 0; k--)
        sum = __popc(sum) + k;
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + n;
}
extern "C" __global__ void chase(const int *next, int *out, int n)
{
    int at = blockIdx.x * 1024;
    for (int k = 0; k < n; k++)
        at = next[at];
    out[blockIdx.x] = at;
}
extern "C" __global__ void helped(const int *next, int *out, int n)
{
    int at = blockIdx.x * 4096, sum = 0;
    if (threadIdx.x < 32) {
        for (int k = 0; k < 40; k++)
            sum = __popc(sum) + k;
        for (int k = 0; k < 32; k++)
            at = next[at] + (sum & 0);
    } else if (n) {
        sum = next[at + (threadIdx.x - 32) * 128];
    }
    if (n >= 0)
        out[blockIdx.x * blockDim.x + threadIdx.x] = at + sum;
}
extern "C" __global__ void prefetched(const int *next, int *out, int n)
{
    int at = blockIdx.x * 4096;
    for (int k = 0; k < n; k++)
        asm volatile("prefetch.global.L1 [%0];" :: "l"(next + at + k * 128));
    for (int k = 0; k < n; k++)
        at = next[at];
    out[blockIdx.x] = at;
}
"""
NEAR, SMALL, SHARED_BY_BLOCKS, FAR = range(1, 5)  # indices of the kinds of loads in `Clocks`


@pytest.mark.parametrize("longest", [0, 77, 127])
def test_a_block_takes_as_long_as_its_longest_warp_on_its_own_way(longest: int) -> None:
    """A lane with more iterations adds their clocks to its block, and to no other block."""
    spent = {}
    for trips in (100, 1100):
        counts, out = np.full(128, 10, np.int32), np.zeros(128, np.int32)
        counts[longest] = trips
        code, _ = run(compiled(CLOCKS), "turns", [counts, out], 0, block=32, grid=4)
        assert isinstance(code, Code), code
        assert code.clocks.blocks == 4
        spent[trips] = code.clocks
        others = code.clocks.total[0] - code.clocks.longest[0]
        assert 3 * 10 * 17 < others < code.clocks.longest[0]
    more = spent[1100].longest[0] - spent[100].longest[0]
    assert 1000 * 17 <= more <= 1000 * 60  # popc takes at least 16 clocks, and the addition at least one
    assert spent[1100].total[0] - spent[100].total[0] == more


@pytest.mark.parametrize(
    ("nodes", "step", "kind"),
    [
        (64, 0, NEAR),  # each load reads the same word: first from memory, then from the L1
        (1024, 64, FAR),  # each load reads from another 256 bytes
        (1024, 16, SHARED_BY_BLOCKS),  # four loads per 256 bytes: three of them may come with the first
    ],
)
def test_a_chain_of_loads_is_counted_by_where_the_values_come_from(nodes: int, step: int, kind: int) -> None:
    """The first load of a sector by a block comes from memory, a second load from the L1."""
    hops = 16
    following = (np.arange(4 * 1024) // 1024 * 1024 + (np.arange(4 * 1024) + step) % nodes).astype(np.int32)
    out = np.zeros(4, np.int32)
    code, _ = run(compiled(CLOCKS), "chase", [following, out], hops, block=1, grid=4)
    assert isinstance(code, Code), code
    waits = code.clocks.longest
    assert max(range(1, 5), key=lambda place: waits[place]) == kind
    assert sum(waits[NEAR:]) >= hops
    assert sum(waits[SMALL:]) == pytest.approx(1 if kind == NEAR else hops, abs=2)


def test_no_launch_is_shorter_than_its_longest_block() -> None:
    """The latency lower bound of a launch is the time of its longest block if the other blocks are short."""
    limits = {}
    for trips in (10, 10_000):
        counts, out = np.full(128, 10, np.int32), np.zeros(128, np.int32)
        counts[5] = trips
        made = compiled(CLOCKS)
        machine = machine_code_of(made, "turns")
        asked = MachineCodeRequest(lambda machine=machine: machine)
        report = simulator.run(made.ptx, "turns", 4, 32, [counts, out, 0], machine=asked, footprint=True)
        assert made.cubin is not None
        code = nvdisasm.functions(made.cubin, "turns")
        work = lower_bounds.Work("turns", (4, 1, 1), (32, 1, 1), 1, report, code, made.ptx.splitlines(), 32)
        found = lower_bounds.lower_bounds([work], load_card("h100"))
        limits[trips] = next(limit for limit in found if limit.resource == "latency")
    assert limits[10_000].time_s - limits[10].time_s > 9_990 * 16 / 1.98e9
    assert limits[10_000].detail.startswith("the longest block takes")


def test_each_instruction_has_the_schedule_of_its_machine_code() -> None:
    """A load sets a scoreboard, and the first instruction that uses the loaded value waits for it."""
    made = compiled(CLOCKS)
    assert made.cubin is not None
    code = [ins for function in nvdisasm.functions(made.cubin, "chase") for ins in function.instructions]
    at, load = next((at, ins) for at, ins in enumerate(code) if ins.opcode == "LDG")
    assert load.schedule is not None
    assert load.schedule.sets >= 0
    result = load.operands[0]
    user = next(ins for ins in code[at + 1 :] if any(result in operand for operand in ins.operands[1:]))
    assert user.schedule is not None
    assert user.schedule.waits >> load.schedule.sets & 1
    assert all(ins.schedule is not None and 1 <= ins.schedule.stall <= 15 for ins in code)


@pytest.mark.parametrize(
    ("kernel", "n", "block", "far"),
    [
        ("helped", 0, 64, True),
        ("helped", 1, 64, False),  # the second warp loads in parallel what the first warp loads one by one
        ("chase", 32, 1, True),
        ("prefetched", 32, 1, False),
    ],
)
def test_a_load_that_comes_early_by_another_way_is_not_charged(kernel: str, n: int, block: int, far: bool) -> None:
    """A load of a value that another warp of the block or a prefetch brought to the L1 does not cost the latency of
    memory."""
    following = ((np.arange(4 * 4096) + 128) % 4096 + np.arange(4 * 4096) // 4096 * 4096).astype(np.int32)
    code, _ = run(compiled(CLOCKS), kernel, [following, np.zeros(256, np.int32)], n, block=block, grid=4)
    assert isinstance(code, Code), code
    assert (sum(code.clocks.longest[SMALL:]) >= 31) is far
    assert far or sum(code.clocks.longest[SMALL:]) <= 2
