"""Lower bounds: the sectors that a launch touches, the time that each resource needs, the sentences, and the cards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench import operations
from cudabench.cards import load as cards
from cudabench.ceilings import chapter
from cudabench.cli import pricing
from cudabench.compile.compiler import compile_ptx
from cudabench.compile.sass import Block, Function, Instruction
from cudabench.compile.schedule import Schedule
from cudabench.devices import Choice
from cudabench.devices.sim import SimDevice
from cudabench.errors import CudabenchError, UsageError
from cudabench.explain import bound_texts, card_rates, lower_bounds, recorded, verdict, warp_latency
from cudabench.explain.machine_code import pipe
from cudabench.measure import counting
from cudabench.measure.counting import Counting, run_sample
from cudabench.measure.gpu_run import GpuRun
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.plan import cases, chapters
from cudabench.records.file import ResultsFile, load
from cudabench.records.plan import Case, Settings
from cudabench.records.results import DeviceInfo, Limit, Result, Timing
from cudabench.simulator import api as simulator
from cudabench.simulator.count.footprint import ConstantLines
from cudabench.views import plot, roofline, table, tables
from tests.conftest import FAKE, FakeDevice, Ran
from tests.ladders import simulator as shared_simulator

pytestmark = pytest.mark.machine_code

Runner = Callable[..., Ran]
SOURCE = """
extern "C" __global__ void twice(float *out, const float *in, const float *table) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * i] = in[i] + in[i ^ 32] + table[threadIdx.x];
}
"""


# Sectors that a launch touches ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def program() -> simulator.Program:
    """Return a kernel that reads its input twice and shares a table among its blocks."""
    return simulator.load(compile_ptx(SOURCE, "twice.cu").ptx)


def touched(blocks: int, **given: Any) -> simulator.Footprint:
    """Return the footprint of the kernel with 64 threads a block."""
    out, source, table = np.zeros(128 * blocks, np.float32), np.ones(64 * blocks, np.float32), np.ones(64, np.float32)
    report = simulator.run(
        program(), "twice", blocks, 64, [out, source, table], names=["out", "in", "table"], footprint=True, **given
    )
    assert report.footprint is not None
    return report.footprint


def test_distinct_sectors_of_a_launch_and_of_its_blocks() -> None:
    """A sector that a block reads twice counts once for the block; a sector that blocks share counts once for the
    launch."""
    found = touched(40)
    assert (found.read, found.written) == ({"in": 320, "table": 8}, {"out": 640})
    assert (found.blocks, found.ran) == (40, 40)
    assert found.followed <= 16
    loads = [touch for touch in found.touches if touch.op == "load"]
    assert sum(touch.sectors for touch in loads) == 320 * 3
    fresh = {name: sum(touch.fresh for touch in loads if touch.array == name) for name in ("in", "table")}
    assert fresh == {"in": 320, "table": 320}  # 8 sectors in each of 40 blocks
    (store,) = [touch for touch in found.touches if touch.op == "store"]
    assert store.partial == store.sectors == 640  # every other word
    assert store.cycles == 2 * store.requests  # 64 words, two apart: two words in each second bank


AGAIN = """
extern "C" __global__ void again(float *kept, float *both, const float *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[i] = in[i];
    __syncthreads();
    both[i] += kept[i ^ 1];
}
"""


def test_what_a_launch_wrote_itself_it_does_not_read() -> None:
    """Data that a launch writes and then reads does not count as read from memory; data that it reads and then writes
    counts as both."""
    arrays = [np.zeros(640, np.float32), np.zeros(640, np.float32), np.ones(640, np.float32)]
    found = simulator.run(
        compile_ptx(AGAIN, "again.cu").ptx, "again", 10, 64, arrays, names=["kept", "both", "in"], footprint=True
    ).footprint
    assert found is not None
    assert {name: count for name, count in found.read.items() if count} == {"in": 80, "both": 80}
    assert found.written == {"kept": 80, "both": 80}
    stores = {touch.array: touch.fresh for touch in found.touches if touch.op == "store"}
    assert stores == {"kept": 80, "both": 80}  # also where the block has read the sectors before


@pytest.mark.parametrize(
    ("words", "fetched"),
    [
        (lambda warp, lane, step: lane * 8, 0),  # 1 KiB, which fits in the cache
        (lambda warp, lane, step: step * 32 + lane, 0),  # all warps walk through the table together
        (lambda warp, lane, step: (warp % 2 * 512 + lane * 16) % 16384, 0),  # two halves, each needed again at once
        (lambda warp, lane, step: (lane * 16 + warp * 512 + step * 4096) % 16384, 32),  # no warp needs another's
    ],
)
def test_lines_of_constants_that_the_cache_lacks(words: Callable[..., Any], fetched: int) -> None:
    """A cache with the best possible luck still fetches each line that no other request wanted."""
    lines = ConstantLines()
    warp, lane = np.divmod(np.arange(256), 32)
    for step in range(8):
        lines.note(words(warp, lane, step)[None] * 4, np.ones((1, 256), np.bool_), 8)
    assert lines.requests == 64
    assert lines.fetched() / 64 == pytest.approx(fetched, rel=0.04)


def test_nobody_pays_who_does_not_ask() -> None:
    """A report has a footprint only on request."""
    one = [np.zeros(128, np.float32), np.ones(64, np.float32), np.ones(64, np.float32)]
    assert simulator.run(program(), "twice", 1, 64, one).footprint is None


def test_a_sample_stands_for_the_launch() -> None:
    """The average footprint of a block in a sample is that of all blocks."""
    every, some = touched(1000), touched(1000, sample=64)
    assert (some.ran, some.blocks) == (64, 1000)
    for whole, part in zip(every.touches, some.touches, strict=True):
        assert part[:4] == whole[:4]
        assert [count / 64 for count in part[4:]] == pytest.approx([count / 1000 for count in whole[4:]])


@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (128, 512, 1), (5, 3, 11), (100000, 1, 1)])
@pytest.mark.parametrize("count", [1, 16, 64, 200])
def test_sampled_blocks_are_in_the_grid_and_none_twice(grid: tuple[int, int, int], count: int) -> None:
    """For any grid, a sample contains blocks of the grid, each at most once, and at most as many as requested."""
    from cudabench.simulator.plan import sampled

    blocks = [
        (x + dx, y, z)
        for (x, y, z), extent in sampled(grid, 512, min(count, int(np.prod(grid))))
        for dx in range(extent[0])
    ]
    assert len(set(blocks)) == len(blocks) > 0
    assert all(0 <= place < most for block in blocks for place, most in zip(block, grid, strict=True))
    assert len(blocks) <= count


def test_what_warps_share_is_waited_for_once() -> None:
    """Only the first of a block's warps that read a sector waits for it; the others hit the L1."""
    found = touched(4)
    first, second = sorted((t for t in found.touches if t.array == "in"), key=lambda touch: touch.instruction)
    assert (first.requests, first.missing) == (8, 8)
    assert (second.requests, second.missing) == (8, 0)


# Times that resources need -------------------------------------------------------------------------------------------


def simulated(kernel: str, *size: int, operation: str = "transpose", card: str = "h200", cache: Any = "cold") -> Result:
    """Return the simulated result of a built-in kernel, priced with a card."""
    chosen = operations.get(operation)
    (case,) = cases.build(chosen, cases.Request(kernels=(kernel,), size=size))
    settings = Settings(cpu=False, cache=cache)
    return SimulatedRun(chosen, case.problem, settings, shared_simulator(), cards=[cards.load_card(card)]).measure(case)


def seconds(result: Result, resource: str) -> float:
    """Return one lower bound of a result on a cold H200, without the time of the launch itself."""
    assert result.limits is not None
    alone = card_rates.LAUNCH_SHARE * (cards.load_card("h200").value("launch-alone") or 0)
    return next((limit.time_s - alone for limit in result.limits if limit.resource == resource), 0.0)


@pytest.mark.slow
def test_the_arithmetic_of_a_transpose() -> None:
    """The bounds of memory, load/store unit, issue and L2 are the kernel's counts divided by the card's rates."""
    result = simulated("naive-row", 256, 512)
    assert result.time is None
    card = cards.load_card("h200")
    rate = {name: card.value(name) or 0 for name in ("memory-read",)}
    rate |= {name: card.ceilings[name].theoretical or 0 for name in ("issue", "shared-read")}
    assert result.limits_on == card.title == "H200 (measured)"
    warps, clock = 256 * 512 // 32, 1.98e9
    moved = 256 * 512 * 4  # the written sectors fit in the L2
    assert seconds(result, "memory") == pytest.approx(moved / (rate["memory-read"] * 1e9))
    assert seconds(result, "lsu") == pytest.approx((warps + 32 * warps) / (rate["shared-read"] * 1e9 / 128), rel=1e-4)
    code = result.machine_code
    assert code is not None
    assert code.instructions_executed is not None
    assert seconds(result, "issue") == pytest.approx(code.instructions_executed / rate["issue"], rel=1e-4)
    # Partial sectors take one clock more for each of 32 lines; few of them are complete on arrival.
    taken = 64 * warps * (1 - (7 / 32) ** 4)
    assert seconds(result, "l2") == pytest.approx(taken / (96 * clock * 0.864), rel=1e-4)


STORED = """
template <int FIELDS> __device__ void fields(float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < FIELDS; k++)
        out[FIELDS * i + k] = k;
}
extern "C" __global__ void three(float *out) { fields<3>(out); }
extern "C" __global__ void many(float *out) { fields<32>(out); }
extern "C" __global__ void one_of_eight(float *out) { out[8 * (blockIdx.x * blockDim.x + threadIdx.x)] = 1; }
extern "C" __global__ void bins(unsigned *out) { atomicAdd(out + threadIdx.x, blockIdx.x + 1); }
extern "C" __global__ void meet(float *out) { atomicAdd(out, threadIdx.x + 1.0f); }
extern "C" __global__ void meet_inside(float *out) {
    __shared__ float sum;
    sum = 0;
    __syncthreads();
    atomicAdd(&sum, threadIdx.x + 1.0f);
    __syncthreads();
    out[threadIdx.x] = sum;
}
"""
L2_HZ = 1.98e9 * 0.864  # clock of an H100's L2
SLICES = 80


def bounds_of(kernel: str, blocks: int, words: int) -> dict[str, Limit]:
    """Return the bounds of a kernel of STORED with 256 threads per block, on an H100 with a hot L2 (so without the
    launch)."""
    report = simulator.run(
        compile_ptx(STORED, "stored.cu").ptx, kernel, blocks, 256, [np.zeros(words, np.float32)], names=["out"],
        footprint=True,
    )  # fmt: skip
    work = lower_bounds.Work(kernel, (blocks, 1, 1), (256, 1, 1), 1, report, (), (), 8)
    found = lower_bounds.lower_bounds([work], cards.load_card("h100"), cache="hot")
    return {limit.resource: limit for limit in found}


def test_parts_of_a_sector_may_be_completed_on_their_way() -> None:
    """Stores of 3 words per thread lie in few lines and may reach the L2 as whole sectors; stores of 32 words rarely
    do."""
    warps = 40 * 8
    few, many = (bounds_of(name, 40, fields * 32 * warps)["l2"].time_s for name, fields in (("three", 3), ("many", 32)))
    assert few == pytest.approx(max(12 * warps / (SLICES * L2_HZ), 12 * warps * 32 / 7639e9), rel=0.01)
    assert many == pytest.approx(64 * 32 * warps * (1 - (7 / 32) ** 4) / (SLICES * L2_HZ), rel=0.01)


def test_sectors_that_stay_incomplete_are_read() -> None:
    """A partly stored sector is read from memory before it is written, unless the L2 can keep it."""
    blocks = 4096
    limit = bounds_of("one_of_eight", blocks, 8 * 256 * blocks)["memory"]
    sectors = blocks * 256
    kept = 0.5 * 52428800 / (32 * sectors)
    assert float(limit.detail.split(" MB")[0]) == pytest.approx(sectors * 32 * (1 - kept) / 1e6, rel=0.01)


def test_atomics_wait_for_the_slices_that_have_their_words() -> None:
    """Atomics on 256 counters use two L2 slices; float atomics on one word run one after the other, 2.4 times as
    slowly."""
    spread = bounds_of("bins", 40, 256)["atomic"]
    assert spread.time_s == pytest.approx(40 * 8 * 4 / 2 / L2_HZ, rel=0.01)
    assert "in 2 of 80 slices of the L2" in spread.detail
    one = cards.load_card("h100").value("global-atomic-same") or 0
    assert bounds_of("meet", 40, 8)["atomic"].time_s == pytest.approx(40 * 256 * 2.4 / one, rel=0.01)


def test_loops_of_atomics_say_what_more_they_may_take() -> None:
    """For atomics of eight warps on one shared word, the bound states how many more cycles they may take."""
    assert (
        "up to 108 k more where the warps of a block add to one word" in bounds_of("meet_inside", 40, 256)["lsu"].detail
    )


@pytest.mark.slow
def test_a_hot_l2_is_not_filled() -> None:
    """A read that hits the L2 costs one L2 transfer; a read that misses costs two."""
    cold, hot = (simulated("tile-rows", 256, 512, cache=cache) for cache in ("cold", "hot"))
    assert hot.limits
    sectors = 256 * 512 * 4 / 32
    again = next(limit.time_s for limit in hot.limits if limit.resource == "l2")
    assert again == pytest.approx(2 * sectors * 32 / ((cards.load_card("h200").value("l2-read") or 0) * 1e9), rel=1e-3)
    assert seconds(cold, "l2") == pytest.approx(sectors * (1 / 2 + 1 / 2 + 3 / 4) / (96 * 1.98e9), rel=1e-3)


@pytest.mark.slow
def test_limits_are_sorted_and_the_longest_first() -> None:
    """The bounds are sorted, longest first; each has a positive time and an explanation, and no resource comes
    twice."""
    found = simulated("smem", 128, 128).limits
    assert found
    assert [limit.time_s for limit in found] == sorted((limit.time_s for limit in found), reverse=True)
    assert all(limit.detail and limit.time_s > 0 for limit in found)
    assert len({limit.resource for limit in found}) == len(found)


@pytest.mark.slow
def test_a_hot_cache_leaves_the_memory_alone() -> None:
    """Data that fits in a hot L2 gives no bound by memory."""
    assert seconds(simulated("smem", 64, 64, cache="hot"), "memory") == 0.0


@pytest.mark.slow
def test_conflicts_cost_the_load_store_unit() -> None:
    """Bank conflicts raise the bound of the load/store unit, and padding removes them."""
    plain, padded = simulated("smem", 256, 256), simulated("smem-pad", 256, 256)
    assert seconds(plain, "lsu") > 1.9 * seconds(padded, "lsu")


@pytest.mark.slow
def test_few_blocks_leave_multiprocessors_empty() -> None:
    """The tail bound takes the busiest SM: 4 blocks on 132 SMs take as long as 132 blocks."""
    result = simulated("naive", 1024, 64, operation="matvec")
    work = max(seconds(result, name) for name in ("issue", "lsu", "alu", "fma"))
    assert seconds(result, "tail") == pytest.approx(work * 132 / 4)


def test_every_resource_has_a_name_and_a_meaning() -> None:
    """A legend has each resource once, in the order of the table."""
    assert bound_texts.NAMES.keys() == bound_texts.MEANINGS.keys()
    assert verdict.legend(["l2", "start", "l2"]) == (
        f"Held by L2: {bound_texts.MEANINGS['l2']}; the launch: {bound_texts.MEANINGS['start']}."
    )
    assert not verdict.legend([])


def test_the_launch_is_in_every_limit_of_a_cold_sample() -> None:
    """With a cold cache, every bound includes the time of an empty launch; with a hot cache, launches overlap and it
    does not."""
    alone = card_rates.LAUNCH_SHARE * (cards.load_card("h200").value("launch-alone") or 0)
    cold, hot = (simulated("smem", 64, 64, cache=cache).limits for cache in ("cold", "hot"))
    assert alone
    assert cold
    assert hot
    assert all(limit.time_s > alone for limit in cold)
    assert (cold[0].resource, "µs of it to launch" in cold[0].detail) == ("start", True)
    assert cold[0].detail.startswith("every bound on the work is shorter than an empty launch;")
    assert all(limit.time_s - alone < alone for limit in cold)
    pure = {limit.resource: limit.time_s for limit in hot}
    assert pure["issue"] < alone
    assert next(limit.time_s for limit in cold if limit.resource == "issue") == pytest.approx(alone + pure["issue"])


def test_tensor_cores_are_priced_at_the_named_clock() -> None:
    """A tensor rate that was measured at a lower clock is scaled to the named clock; wgmma and mma.sync have their own
    rates."""
    card = cards.load_card("h200")
    rates, mhz = card_rates.Rates.of(card).tensor, card.device.clocks["sm_mhz"]
    for name in ("tensor-bf16", "wgmma-bf16"):
        one = card.ceilings[name]
        assert one.value is not None
        assert one.clock_mhz is not None
        assert rates[name.removeprefix("tensor-")] == pytest.approx(one.value * mhz / one.clock_mhz)
        assert one.theoretical is not None
        assert rates[name.removeprefix("tensor-")] <= 1.01 * one.theoretical
    assert rates["wgmma-bf16"] > 1.2 * rates["bf16"]


@pytest.mark.parametrize(
    ("parts", "sure"),
    [
        (((4, 400), (4, 400), (4, 400)), 1.0),
        (tuple((4, 100 + k) for k in range(32)), 0.998),  # the cost grows along the grid
        (((4, 40),) * 31 + ((4, 4000),), 0.244),  # one part of 32 is slow: only the cost of the others is certain
        (((16, 640),), 1.0),
    ],
)
def test_an_uneven_sample_is_not_taken_at_its_word(parts: tuple[tuple[int, int], ...], sure: float) -> None:
    """If few blocks of a sample cost most, the bound uses only the cost that all blocks have."""
    assert lower_bounds.sampling_factor(parts) == pytest.approx(sure, abs=0.002)


def test_a_dependent_load_waits() -> None:
    """A warp waits for a load at the first use of its value; loads issued before that overlap."""
    load = Instruction(0, "", "LDG", ("E",), ("R4", "[R2.64]"), 7, Schedule(1, 0, 0))
    other = Instruction(16, "", "LDG", ("E",), ("R5", "[R2.64+0x80]"), 7, Schedule(1, 0, 0))
    add = Instruction(32, "", "FADD", (), ("R6", "R4", "R5"), 8, Schedule(5, 1, -1))
    chain = Instruction(48, "", "FADD", (), ("R7", "R6", "R6"), 8, Schedule(2, 0, -1))
    assert warp_latency.path([load, other, add], {7: 500.0})[:2] == (506, 499)
    assert warp_latency.path([load, other, add, chain], {7: 500.0}).clocks == 508
    assert warp_latency.path([load, chain], {7: 500.0})[:2] == (3, 0)  # no instruction uses the value


@pytest.mark.parametrize(
    ("edges", "waits"),
    [
        (((1, 2), (2,), ()), 498),  # around the second block or through it: the load is in flight either way
        (((1, 2), (2,), (2,)), 0),  # a loop: its later iterations are unknown
    ],
)
def test_a_load_is_waited_for_where_its_value_is_needed(edges: tuple[tuple[int, ...], ...], waits: float) -> None:
    """A value that one basic block loads and a later block uses is waited for there, by the shortest path."""
    load = Instruction(0, "", "LDG", ("E",), ("R4", "[R2.64]"), 7, Schedule(1, 0, 3))
    between = Instruction(16, "", "FADD", (), ("R8", "R9", "R9"), 8, Schedule(1, 0, -1))
    add = Instruction(32, "", "FADD", (), ("R6", "R4", "R4"), 8, Schedule(1, 8, -1))
    blocks = tuple(
        Block(number, (one,), to, not to, "")
        for number, (one, to) in enumerate(zip((load, between, add), edges, strict=True))
    )
    ways = warp_latency.paths(Function("k", "k", blocks), [1, 1, 1], {7: 500.0})
    assert ways[2].waits == waits


def test_a_chain_of_loads_waits_each_time_round() -> None:
    """A value that a loop loads for its next iteration is waited for once in each further iteration."""
    load = Instruction(0, "", "LDG", ("E",), ("R2", "[R2.64]"), 7, Schedule(1, 1, 0))
    store = Instruction(16, "", "STG", ("E",), ("[R8.64]", "R2"), 8, Schedule(1, 1, -1))
    blocks = (Block(0, (), (1,), (), ""), Block(1, (load,), (1, 2), (0, 1), ""), Block(2, (store,), (), (1,), ""))
    once, often = (warp_latency.paths(Function("k", "k", blocks), [4, 4 * n, 4], {7: 500.0}) for n in (1, 10))
    assert once[1].waits == 0
    assert 10 * often[1].waits == pytest.approx(9 * 499)
    assert once[2].waits == often[2].waits == 499


@pytest.mark.parametrize(
    ("words", "operations_a_warp"),
    [
        ("HMMA.1688.F32.TF32", ("tf32", 2 * 16 * 8 * 8)),
        ("HMMA.16816.F32.BF16", ("bf16", 2 * 16 * 8 * 16)),
        ("HMMA.16816.F32", ("fp16", 2 * 16 * 8 * 16)),
        ("IMMA.16832.S8.S8", ("int8", 2 * 16 * 8 * 32)),
        ("DMMA.884", ("fp64", 2 * 8 * 8 * 4)),
        ("HMMA.16816.F16", ("fp16 summed in fp16", 2 * 16 * 8 * 16)),
        ("HGMMA.64x128x8.F32.TF32", ("wgmma-tf32", 2 * 16 * 128 * 8)),
        ("HGMMA.64x256x16.F16", ("wgmma-fp16", 2 * 16 * 256 * 16)),
        ("IGMMA.64x256x32.S8.S8", ("wgmma-int8", 2 * 16 * 256 * 32)),
        ("QGMMA.64x64x32.F32.E4M3.E4M3", ("wgmma-fp8", 2 * 16 * 64 * 32)),
        ("IMMA.16864.S4.S4", ("int4", 2 * 16 * 8 * 64)),
        ("HMMA.SP.16832.F32", None),
        ("FFMA", None),
    ],
)
def test_operations_of_tensor_instructions(words: str, operations_a_warp: tuple[str, int] | None) -> None:
    """The shape and format of a tensor instruction give its number of operations."""
    opcode, *modifiers = words.split(".")
    assert card_rates.tensor_operations(Instruction(0, "", opcode, tuple(modifiers), (), 0)) == operations_a_warp


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["naive-row", pytest.param("tile-rows", marks=pytest.mark.slow)])
def test_a_sample_of_blocks_gives_the_limits_of_all(kernel: str) -> None:
    """A large regular kernel counted on a sample of blocks has the bounds of all its blocks; its text mentions the
    sample."""
    operation, device, card = operations.get("transpose"), shared_simulator(), cards.load_card("h200")
    (case,) = cases.build(operation, cases.Request(kernels=(kernel,), size=(1024, 1024)))
    inputs = operation.inputs(case.problem)
    run = counting.run_sample(device, case, operation, case.problem, inputs, seconds=60)
    some = counting.limits_by_card(device, case, run, [card], Settings(), operation.bytes(case.problem))[0].limits
    every = simulated(kernel, 1024, 1024).limits
    assert every is not None
    times = {limit.resource: limit.time_s for limit in some}
    for limit in every:
        assert times[limit.resource] == pytest.approx(limit.time_s, rel=0.03), limit.resource
    assert "counted on" in some[0].detail
    assert "counted on" not in every[0].detail


# Cards ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cards.NAMES)
def test_every_card_that_is_shipped_prices_a_kernel(name: str) -> None:
    """Each shipped card loads, has positive rates, and states the source of its figures."""
    card = cards.load_card(name.upper())
    rates = card_rates.Rates.of(card)
    assert min(rates.issue, rates.lsu, rates.memory or 0, *rates.pipes.values()) > 0
    assert card.source in card.title
    assert {one.source for one in card.ceilings.values()} <= {"measured", "datasheet"}


def test_only_two_cards_have_measured_figures() -> None:
    """Only the H200 and the H100 have measured figures; other cards do not call a datasheet's figure measured."""
    assert {name for name in cards.NAMES if "measured" in cards.load_card(name).source} == {"h200", "h100"}


@pytest.mark.parametrize("name", [name for name in cards.NAMES if name not in ("h200", "h100")])
def test_no_datasheet_promises_less_than_its_units(name: str) -> None:
    """A figure that a datasheet rounds down is raised to what units and clock allow, except for tensor cores of GeForce
    boards, which sum in float32 at half the rate."""
    card = cards.load_card(name)
    for one in card.ceilings.values():
        top, _ = chapter.theoretical(one.name, one.group, card.device, None)
        assert one.value is not None
        if top and not ("GeForce" in card.device.name and one.group == "tensor"):
            assert one.value > 0.9995 * top, one.name
    short = card_rates.Rates.of(card).tensor
    assert short.get(card_rates.SHORT_SUMS, 0) >= short.get("fp16", 0)
    assert (short.get(card_rates.SHORT_SUMS, 0) > 1.9 * short.get("fp16", 0)) == ("GeForce" in card.device.name)


def test_a_word_that_is_no_card() -> None:
    """A misspelt card gets a suggestion."""
    with pytest.raises(UsageError, match="Did you mean 'h200'"):
        cards.load_card("h20")


DEVICE = {"name": "X", "kind": "cuda", "compute_capability": "9.0", "sm_count": 2, "clocks": {"sm_mhz": 1000}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[" * 100000, "nested too deeply"),
        ("[]", "not a cudabench results file"),
        ('{"schema": "cudabench/1"}', "lacks the ceilings"),
        (json.dumps({"schema": "cudabench/1", "device": {"name": "X"}, "ceilings": [{}]}), "multiprocessors"),
        (json.dumps({"schema": "cudabench/1", "device": DEVICE, "ceilings": [3]}), "without a name"),
        (
            json.dumps({"schema": "cudabench/1", "device": DEVICE, "ceilings": [{"name": "issue", "value": -1}]}),
            "over 0",
        ),
        (
            json.dumps({"schema": "cudabench/1", "device": DEVICE, "ceilings": [{"name": "issue", "value": "9"}]}),
            "over 0",
        ),
    ],
)
def test_files_that_are_no_ceilings(text: str, message: str, tmp_path: Path) -> None:
    """A file that is not a ceilings file is refused with one error."""
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CudabenchError, match=message):
        cards.load_card(str(path))


def test_a_measured_file_prices(tmp_path: Path) -> None:
    """The ceilings in a file replace the derived ones, missing ceilings are derived, and control codes in names are
    removed."""
    path = tmp_path / "c.json"
    rows = [{"name": "issue", "value": 7e9, "source": "measured"}, {"name": "of a newer version", "value": 1}]
    path.write_text(json.dumps({"schema": "cudabench/1", "device": {**DEVICE, "name": "\x1b[2JX"}, "ceilings": rows}))
    card = cards.load_card(str(path))
    rates = card_rates.Rates.of(card)
    assert (rates.issue, rates.lsu, rates.memory) == (7e9, 2e9, None)
    assert "\x1b" not in card.title


# Sentences -----------------------------------------------------------------------------------------------------------


def with_time(result: Result, median: float) -> Result:
    """Return a result with a measured time."""
    return replace(result, time=Timing(median, median, median, median, median, 0.0, 1, "cold", (median,)))


def of(kernel: str, *found: tuple[str, float]) -> Result:
    """Return a result of a built-in kernel with these bounds."""
    base = simulated("naive-row", 32, 32)
    return replace(base, kernel=kernel, limits=tuple(Limit(name, time, f"{name}'s arithmetic") for name, time in found))


IDEAS = {"one": "Reads columns.", "two": "Reads rows, coalesced.", "three": "Pads, so that all banks serve."}


@pytest.mark.parametrize(
    ("words", "name", "uses"),
    [
        ("VIADD", "fma", [("fma", 1)]),
        ("IMAD.WIDE.U32", "fma", [("fma", 2), ("imad", 1)]),
        ("IMAD.HI", "fma", [("fma", 2), ("imad", 1)]),
        ("IMAD.MOV.U32", "fma", [("fma", 1)]),
        ("IADD3", "alu", [("alu", 1)]),
        ("I2F.U8", "xu", [("convert", 1)]),
        ("MUFU.RCP", "xu", [("xu", 1)]),
    ],
)
def test_what_an_instruction_occupies(words: str, name: str, uses: list[tuple[str, float]]) -> None:
    """An instruction uses the pipes, and as many cycles, as Nsight Compute counts on compute capability 9.0."""
    opcode, *modifiers = words.split(".")
    instruction = Instruction(0, "", opcode, tuple(modifiers), (), 0)
    assert pipe(instruction) == name
    assert card_rates.pipe_passes(instruction) == uses


@pytest.mark.slow
def test_conversions_and_special_functions_share_a_unit() -> None:
    """On 9.0 the times of conversions and special functions add up; on other cards a conversion gets its highest
    possible rate."""
    hopper, ada = (card_rates.Rates.of(cards.load_card(name)).pipes for name in ("h200", "l4"))
    assert hopper["convert"] == pytest.approx(hopper["xu"], rel=0.01)
    assert ada["convert"] == pytest.approx(4 * ada["xu"])
    division = simulated("diagonal-row", 64, 64)  # a conversion to a float, a reciprocal, a conversion back
    assert division.machine_code
    assert seconds(division, "xu") == pytest.approx(division.machine_code.pipes["xu"] / hopper["xu"], rel=0.01)
    (detail,) = (limit.detail for limit in division.limits or () if limit.resource == "xu")
    assert "special functions and" in detail
    assert "conversions" in detail


def test_the_line() -> None:
    """The line shows the longest bounds, in one unit, with the card."""
    result = replace(of("one", ("lsu", 61e-6), ("memory", 36.2e-6), ("issue", 20e-6), ("xu", 1e-9)), limits_on="H200")
    assert verdict.line(result) == "at least 61 µs on H200: load/store unit 61, memory 36.2, issue 20"
    assert verdict.line(replace(result, limits=None)) == ""
    assert not verdict.of_a_datasheet(result)
    assert verdict.of_a_datasheet(replace(result, limits_on=cards.load_card("l4").title))
    lines = table.limit_lines(operations.get("transpose"), [replace(result, limits_on=cards.load_card("l4").title)])
    assert lines[1] == verdict.NOT_OF_A_DATASHEET
    assert verdict.NOT_OF_A_DATASHEET not in table.limit_lines(operations.get("transpose"), [result])
    waits = of("one", ("blocks", 43.6e-6), ("latency", 34e-6), ("tail", 32e-6), ("l2", 30.2e-6), ("memory", 26e-6))
    assert verdict.line(waits).endswith("block starts 43.6, latency 34, tail 32; of the units L2 30.2")
    assert "tail" not in verdict.line(of("one", ("blocks", 9e-6), ("l2", 3e-6))).partition("; of")[2]


def test_what_holds_it_and_which_unit_has_most_to_do() -> None:
    """If a kernel is not held by a unit, the sentence names its bound and the unit that a profiler reports as
    busiest."""
    result = of("one", ("blocks", 43.6e-6), ("latency", 34e-6), ("l2", 30.2e-6), ("memory", 26e-6))
    assert "; of the units L2 has most to do, 30.2 µs at least." in verdict.sentence(result, [], {})
    timed = verdict.sentence(with_time(result, 60.4e-6), [], {})
    assert timed.startswith("72% of the time is explained by block starts: blocks's arithmetic; of the units L2 has")
    assert timed.endswith("30.2 µs at least, 50% of the time.")
    assert "of the units" not in verdict.sentence(of("one", ("l2", 9e-6), ("blocks", 3e-6)), [], {})
    assert "of the units" not in verdict.sentence(of("one", ("start", 9e-6), ("blocks", 3e-6)), [], {})
    started = of("one", ("start", 7.2e-6), ("l2", 7.1e-6))  # the launch is a part of both
    assert verdict.sentence(started, [], {}).endswith("; of the units L2 has most to do.")


def test_which_rung_removes_it() -> None:
    """The first later kernel whose own bounds are lower removes the limit; without counts, the chapter's text
    decides."""
    one, two, three = of("one", ("l2", 9e-6)), of("two", ("l2", 8e-6)), of("three", ("l2", 2e-6), ("issue", 3e-6))
    assert verdict.removing_rung(one, [one, two, three], IDEAS) == "three"
    assert verdict.removing_rung(three, [one, two, three], IDEAS) is None
    assert verdict.removing_rung(of("one", ("start", 9e-6)), [one, of("two", ("start", 5e-6))], IDEAS) is None
    assert verdict.removing_rung(one, [], IDEAS) == "two"
    shared = replace(one, limits=(Limit("lsu", 9e-6, "5 wavefronts of shared memory and 1 turns of the L1"),))
    assert verdict.removing_rung(shared, [], IDEAS) == "three"
    assert verdict.removing_rung(replace(one, kernel="a user's own"), [], {}) is None


def test_explained_or_not() -> None:
    """The longest bound explains a measured time; if it does not, latency or imbalance is named with its figures."""
    result = of("one", ("lsu", 61e-6), ("latency", 9e-6))
    assert verdict.sentence(with_time(result, 69e-6), [], {}).startswith(
        "88% of the time is explained by load/store unit"
    )
    text = verdict.sentence(with_time(result, 200e-6), [], {})
    assert "what is left is latency or imbalance" in text
    assert "latency's arithmetic" in text
    assert "atomics" not in text
    queued = of("one", ("lsu", 61e-6), ("latency", 9e-6))
    assert queued.limits
    flight = replace(queued.limits[1], detail=f"37 kB in flight an SM where 11 kB{bound_texts.ENOUGH_TEXT}")
    text = verdict.sentence(with_time(replace(queued, limits=(queued.limits[0], flight)), 200e-6), [], {})
    assert "what is left is latency (of loads that queue behind others or wait at barriers" in text
    assert result.access
    adds = replace(result, access=(replace(result.access[0], op="reduction"),))
    assert "or atomics that wait for one another" in verdict.sentence(with_time(adds, 200e-6), [], {})
    again = replace(result, limits=(*(result.limits or ()), Limit("l2", 9e-7, f"2 sectors; 4{bound_texts.IN_L1_TEXT}")))
    assert "l2: 2 sectors; 4 are assumed to hit in the L1" in verdict.sentence(with_time(again, 200e-6), [], {})


def test_every_rung_of_a_ladder_has_its_idea() -> None:
    """Every kernel of a chapter, except detours, has its sentence; a user's source has no sentences."""
    operation = operations.get("transpose")
    ideas = chapters.ideas(operation)
    assert list(ideas) == [kernel.name for kernel in operation.kernels if not kernel.detour]
    assert chapters.ideas(replace(operation, source="/tmp/transpose.cu")) == {}


# On a GPU ------------------------------------------------------------------------------------------------------------


def fake_transpose(buffers: dict[str, np.ndarray]) -> None:
    """Transpose a 33 x 127 matrix."""
    buffers["out"].view(np.float32)[:] = buffers["in"].view(np.float32).reshape(33, 127).T.reshape(-1)


def measured(info: DeviceInfo) -> tuple[Result, Case]:
    """Return the result of naive-row on a device with an invented time."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("naive-row",), size=(33, 127)))
    fast = Settings(min_time=0.0, max_time=5.0, min_samples=10, cpu=False)
    return GpuRun(operation, case.problem, fast, FakeDevice(fake_transpose, info=info)).measure(case), case


CLOCKED = replace(
    FAKE, sm_count=132, clocks={"sm_mhz": 1980, "memory_mhz": 3201}, compute_capability="9.0", l2_bytes=1 << 20
)


def test_what_was_measured_is_counted_and_keeps_its_time() -> None:
    """With --limits, a result measured on a GPU also has the memory accesses and lower bounds; the bounds are computed
    with the card's attributes."""
    result, case = measured(CLOCKED)
    found = Counting(operations.get("transpose"), Settings(cpu=False)).with_limits(result, case, CLOCKED)
    assert (found.time, found.bandwidth_gbps, found.device) == (result.time, result.bandwidth_gbps, result.device)
    assert found.limits
    assert found.access
    assert found.limits_on == f"{FAKE.name} (datasheet)"
    assert "GB/s" in next(limit.detail for limit in found.limits if limit.resource == "memory")


def test_what_was_measured_gets_what_a_page_draws() -> None:
    """A measured result also gets the executions of its lines and the elements of a warp, and the number of counted
    blocks."""
    result, case = measured(CLOCKED)
    found = Counting(operations.get("transpose"), Settings(cpu=False)).with_limits(result, case, CLOCKED)
    assert found.counted is not None
    assert 0 < found.counted.blocks <= found.counted.of == prod(case.grid)
    assert found.counted.same_code is None  # the fake device has no machine code
    assert found.counted.instructions_executed
    assert found.lines
    assert max(line.executions for line in found.lines) > 0
    assert found.steps
    assert {step.array for step in found.steps} == {"in", "out"}


def test_a_sample_of_the_blocks_has_its_pictures() -> None:
    """In a launch that is counted on a sample of blocks, the drawn warp is the first warp of a sampled block."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("smem",), size=(1024, 1024)))
    inputs = operation.inputs(case.problem)
    ran = run_sample(SimDevice("sm_90"), case, operation, case.problem, inputs, seconds=60, trace=recorded.watch(case))
    assert ran.report.trace
    assert {event.block for event in ran.report.trace.accesses} == {ran.report.trace.shared[0].block}
    assert ran.report.trace.shared[0].block != (0, 0, 0)
    assert {request.warp for request in ran.report.trace.shared} == {0}


def test_counting_ends_with_the_budget() -> None:
    """If --budget is used up, a result is not counted and gets a warning; its time stays."""
    result, case = measured(CLOCKED)
    late = Counting(operations.get("transpose"), Settings(cpu=False, budget=2.0), until=0.0)
    found = late.with_limits(result, case, CLOCKED)
    assert (found.time, found.limits, found.lines) == (result.time, None, None)
    assert "--budget 2 s was used up" in found.warnings[-1].message


def test_a_card_that_the_package_knows() -> None:
    """A card with the name of a shipped card gets that card's ceilings."""
    card = cards.card_for_device(replace(CLOCKED, name="NVIDIA H200"))
    assert card.value("memory-read") == cards.load_card("h200").value("memory-read")
    assert card.device.l2_bytes == 1 << 20  # from the card in the machine


def test_what_cannot_be_counted_says_so() -> None:
    """If a device does not report its clock, the result stays, without bounds and with a warning."""
    result, case = measured(FAKE)
    lacking = replace(FAKE, clocks={})
    found = Counting(operations.get("transpose"), Settings(cpu=False)).with_limits(result, case, lacking)
    assert found.limits is None
    assert [told.code for told in found.warnings][-1:] == ["uncounted"]


def test_on_and_limits_are_for_one_kind_of_device() -> None:
    """--on is refused on a GPU and --limits in the simulator; each error names the other option."""
    given: dict[str, Any] = {"card": "h200", "limits": False, "device": "cuda"}
    with pytest.raises(UsageError, match="use --limits"):
        pricing.cards_of_one(given, Choice("cuda"))
    with pytest.raises(UsageError, match="use --on"):
        pricing.cards_of_one({"card": None, "limits": True}, Choice("sim"))
    assert pricing.cards_of_one({"card": None, "limits": True}, Choice("cuda")) == ()


def test_the_code_is_the_cards() -> None:
    """--on sets the architecture to that of its card, and refuses another architecture."""
    assert pricing.device_for_card({"card": "a100", "device": "sim"}) == "sim:sm_80"
    assert pricing.device_for_card({"card": "h100", "device": "sim:sm_90"}) == "sim:sm_90"
    with pytest.raises(UsageError, match="the code of --on is sm_80"):
        pricing.device_for_card({"card": "a100", "device": "sim:sm_90"})


@pytest.mark.gpu
def test_limits_on_a_gpu(cudabench: Runner, tmp_path: Path) -> None:
    """A ladder with --limits has times and bounds, and no kernel is much faster than its bound."""
    path = tmp_path / "r.json"
    ran = cudabench("transpose", "-k", "smem*", "--size", "4096", "4096", "--no-cpu", "--limits", "--json", str(path))
    assert ran.code == 0
    assert "limit" in ran.out
    for result in load(path).results:
        assert result.time
        assert result.limits
        assert result.time.median_s >= 0.9 * result.limits[0].time_s


# The commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_show_and_write_limits(cudabench: Runner, tmp_path: Path) -> None:
    """A ladder shows bounds and names their card; `explain` has the line; the file has bounds and no time."""
    path = tmp_path / "r.json"
    small = ("--size", "64", "64", "-d", "sim")
    ran = cudabench(
        "transpose", "-k", "smem", "-k", "smem-pad", *small, "--no-cpu", "--on", "h200", "--json", str(path)
    )
    assert ran.code == 0
    assert "at least" in ran.out
    assert "bounds are of the H200 (measured)" in ran.out
    results = load(path).results
    assert all(result.limits and result.time is None and result.limits_on for result in results)
    ran = cudabench("explain", "transpose", "-k", "smem", *small, "--on", "A100")
    assert "at least" in ran.out
    assert "A100-SXM4-80GB (datasheet)" in ran.out
    assert cudabench("sweep", "transpose", "-k", "smem", *small, "--block", "32", "8", "--on", "h100").code == 0


@pytest.mark.slow
def test_roofline(cudabench: Runner, tmp_path: Path) -> None:
    """In the roofline a bound is a hollow point with its kernel's name; kernels without operations cannot be drawn."""
    path, picture = tmp_path / "r.json", tmp_path / "r.png"
    ran = cudabench(
        "matmul", "-k", "naive", "-k", "tiled", "--size", "32", "32", "32", "-d", "sim", "--no-cpu", "--on", "h200",
        "--json", str(path),
    )  # fmt: skip
    assert ran.code == 0
    (chart,) = roofline.charts([load(path)], ["r"])
    assert [(point.name, point.bound) for point in chart.points] == [("naive", True), ("tiled", True)]
    (first, _) = load(path).results
    assert first.limits is not None
    assert first.flops is not None
    assert f"at most {first.flops / first.limits[0].time_s / 1e9:.3g} GFLOP/s" in chart.points[0].said
    assert cudabench("plot", str(path), "--kind", "roofline", "-o", str(picture)).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    timed = replace(load(path), results=[with_time(result, 1e-3) for result in load(path).results])
    (chart,) = roofline.charts([timed], ["r"])
    assert not any(point.bound for point in chart.points)
    none = ResultsFile({}, {}, {}, results=[replace(first, flops=None, machine_code=None)])
    with pytest.raises(CudabenchError, match="roofline cannot be drawn"):
        plot.draw([none], ["r.json"], "roofline")


@pytest.mark.slow
def test_limits_fit_a_terminal(cudabench: Runner, tmp_path: Path) -> None:
    """80 columns hold names, bounds, resource, waste and sectors uncut; the column "verified" appears for a wrong
    result."""
    names = ["smem-unroll-pad", "naive-col-unroll"]
    path = tmp_path / "r.json"
    ran = cudabench(
        "transpose", "-k", names[0], "-k", names[1], "--size", "64", "64", "-d", "sim", "--no-cpu", "--on", "h200",
        "-q", "--json", str(path),
    )  # fmt: skip
    assert ran.code == 0
    operation, found = operations.get("transpose"), load(path).results
    columns = table.with_detours(table.bounded_columns(found), operation, found)
    kept, _ = tables.fitting(columns, found, 80)
    widths = [max(map(len, [*c.heading.split("\n"), *map(c.text, found)])) for c in kept]
    assert sum(widths) + 2 * len(kept) - 2 <= 80
    headings = {column.heading for column in kept}
    assert {"kernel", "at least", "held by", "waste", "load\nsectors", "store\nsectors"} <= headings
    assert "verified" not in {column.heading for column in columns}
    wrong = [replace(found[0], status="wrong"), found[1]]
    kept, _ = tables.fitting(table.bounded_columns(wrong), wrong, 80)
    assert "verified" in {column.heading for column in kept}


@pytest.mark.gpu
def test_a_report_on_a_gpu(cudabench: Runner, tmp_path: Path) -> None:
    """--report alone adds counts to a timed run: the page has times with clocks, counts of lines, pictures, and the
    number of counted blocks."""
    page = tmp_path / "r.html"
    ran = cudabench("transpose", "-k", "naive-row", "-k", "smem", "--no-cpu", "--report", str(page), "-q")
    assert ran.code == 0
    for result in load(page).results:
        assert result.time is not None
        assert len(result.time.samples_sm_mhz) in (0, len(result.time.samples_s))  # without NVML there are no clocks
        assert result.counted is not None
        assert 0 < result.counted.blocks < result.counted.of
        assert result.access
        assert result.limits
        assert result.lines
        assert result.steps
    assert "taken after the measurement" in page.read_text(encoding="utf-8")
