"""The measuring protocol on a fake device with an invented time and real memory."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from cudabench import operations
from cudabench.errors import OutOfMemory
from cudabench.measure import gpu_run, timing
from cudabench.measure.buffers import MOST, ROTATION_BYTES, place_count
from cudabench.measure.context import POISONS, poison_bytes
from cudabench.measure.gpu_run import GpuRun
from cudabench.measure.session import Budget
from cudabench.measure.timing import SmClock, hot_runs, is_enough, settings_until, slower_inputs, warm_up
from cudabench.plan import cases
from cudabench.records.plan import Case, Settings, Tolerance
from cudabench.records.results import MachineCode, Result
from tests.conftest import FAKE, FakeDevice

ROWS, COLS = 33, 127
FAST = Settings(min_time=0.0, max_time=5.0, min_samples=10, cpu=False)
Buffers = dict[str, np.ndarray]


def right(buffers: Buffers) -> None:
    """Transpose the matrix."""
    matrix = buffers["in"].view(np.float32).reshape(ROWS, COLS)
    buffers["out"].view(np.float32)[:] = matrix.T.reshape(-1)


def measure(device: FakeDevice, settings: Settings = FAST, **changes: Any) -> Result:
    """Measure naive-row of 33 x 127 on a device."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("naive-row",), size=(ROWS, COLS), **changes))
    return GpuRun(operation, case.problem, settings, device).measure(case)


def test_right_kernel_has_figures() -> None:
    """A correct kernel gets a bandwidth from its declared bytes, and fractions of the copy and of the peak."""
    result = measure(FakeDevice(right))
    nbytes = 2 * ROWS * COLS * 4
    assert result.status == "ok"
    assert result.bytes == nbytes
    assert result.bandwidth_gbps == pytest.approx(nbytes / 1e-4 / 1e9)
    assert result.copy_gbps == pytest.approx((nbytes // 2 * 2) / 8e-5 / 1e9)
    assert result.copy_fraction == pytest.approx(0.8)
    assert result.peak_fraction == pytest.approx(nbytes / 1e-4 / 1e9 / 4000)
    assert result.verification is not None
    assert result.verification.checked == ("before", "after")
    assert (result.registers, result.shared_bytes) == (32, 1024)


@pytest.mark.parametrize("seed", range(6))
def test_time_up_before_every_place_had_its_turn(seed: int) -> None:
    """A correct kernel passes even if time ends before every buffer set had a sample, and the copy wrote last there."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("naive-row",), size=(ROWS, COLS)))
    hurried = replace(FAST, max_time=1e-9)
    run = GpuRun(operation, case.problem, hurried, FakeDevice(right), random=random.Random(seed))
    result = run.measure(case)
    assert (result.status, result.reason) == ("ok", None)


def test_protocol_order() -> None:
    """The protocol fills guard zones and poison before the first run, checks outputs before the first sample and after
    the last, and poisons the outputs of all buffer sets with the same inputs before a run."""
    device = FakeDevice(right)
    measure(device)
    log = [entry for entry in device.log if entry != "digest"]
    zones = 4 * MOST  # before and after each of two arrays
    run = ["poison"] * (MOST // 2) + ["run"]  # the buffer sets that have the same inputs
    runs = [*[*run, "download"] * 2, *run * (MOST - 2)]  # one full check for each set of inputs
    assert log[: 1 + zones + len(runs) + zones] == ["compile", *["fill"] * zones, *runs, *["download"] * zones]
    last = len(log) - 1 - log[::-1].index("cold")
    assert log[last + 1 :] == ["download"] * (1 + zones)
    assert "copy" in log


def test_the_next_kernel_compiles_beside_the_samples() -> None:
    """The next kernel begins to compile after the CPU baseline and the first runs, and before the first sample."""
    operation = operations.get("transpose")
    case, then = cases.build(operation, cases.Request(kernels=("naive-row", "smem"), size=(ROWS, COLS)))
    device = FakeDevice(right)
    run = GpuRun(operation, case.problem, replace(FAST, cpu=True), device)
    run.next_case = then
    run.progress = lambda phase, fraction: device.log.append(phase)
    assert run.measure(case).status == "ok"
    log = [entry for entry in device.log if entry.startswith("begin") or entry in ("timing the CPU", "run", "cold")]
    kinds = [kind for kind, _ in groupby(log)]
    assert kinds[:4] == ["timing the CPU", "run", f"begin {then.function}", "cold"]
    assert log.count(f"begin {then.function}") == 1


def test_every_timed_sample_starts_from_poison() -> None:
    """Before each timed sample the output is poison, so the result of an earlier run does not help."""
    seen: list[bool] = []

    def watched(buffers: Buffers) -> None:
        seen.append(bool((buffers["out"] == buffers["out"][0]).all()) and int(buffers["out"][0]) in POISONS)
        right(buffers)

    device = FakeDevice(watched)
    result = measure(device)
    assert result.time is not None
    assert seen
    assert all(seen)
    assert result.verification is not None
    assert result.verification.samples == result.time.samples  # the kernel writes the same bytes each time


@pytest.mark.sampled(4)
@pytest.mark.parametrize("cache", ["cold", "hot"])
@pytest.mark.parametrize("name", ["transpose", "vecadd"])
def test_the_answer_lies_nowhere(name: str, cache: str) -> None:
    """When a kernel runs, its result is nowhere in device memory: not in other buffer sets, not from an earlier kernel,
    and not in freed memory. In hot samples only its own output has the result of the previous launch."""
    size, out = {"transpose": ((ROWS, COLS), "out"), "vecadd": ((4099,), "c")}[name]
    found: list[str] = []
    answers: set[bytes] = set()

    def searching(buffers: Buffers) -> None:
        if name == "transpose":
            answer = buffers["in"].view(np.float32).reshape(ROWS, COLS).T.tobytes()
        else:
            answer = (buffers["a"].view(np.float32) + buffers["b"].view(np.float32)).tobytes()
        answers.add(answer)
        for content in device.memory.values():
            own = cache == "hot" and np.shares_memory(content, buffers[out])
            found.extend([kernel] * (not own and answer[:64] in content.tobytes()))
        buffers[out][:] = np.frombuffer(answer, np.uint8)

    device = FakeDevice(searching, seconds=lambda at: 5e-4, read_only=("in", "a", "b"))
    operation = operations.get(name)
    ladder = cases.build(operation, cases.Request(kernels=("*",), size=size))[1:3]
    run = GpuRun(operation, ladder[0].problem, replace(FAST, cache=cache), device)
    for case in ladder:
        kernel = case.kernel
        assert run.measure(case).status == "ok"
    kernel = "a pair"
    assert [one.status for one in run.measure_pair(ladder, always=True)] == ["ok", "ok"]
    assert not found
    freed = [*device.memory.values()]
    run.release()
    assert len(answers) >= 2
    assert not any(answer[:64] in content.tobytes() for answer in answers for content in freed)


def test_inputs_of_two_seeds() -> None:
    """Two sets of inputs alternate: one from --seed, the other from a random seed."""
    inputs: set[bytes] = set()

    def watched(buffers: Buffers) -> None:
        inputs.add(buffers["in"].tobytes())
        right(buffers)

    first, second = (measure(FakeDevice(watched)) for _ in range(2))
    assert first.inputs == second.inputs == "fresh"
    assert len(inputs) == 3  # --seed gives the same inputs twice, the random seed does not


def test_output_that_is_right_already() -> None:
    """The output is never right before a sample, so a kernel that skips right elements still works in every sample."""
    worked = 0

    def lazy(buffers: Buffers) -> None:
        nonlocal worked
        before = buffers["out"].copy()
        right(buffers)
        worked += not (before == buffers["out"]).all()

    device = FakeDevice(lazy)
    result = measure(device)
    assert result.status == "ok"
    assert result.time is not None
    assert worked > result.time.samples


def test_works_in_some_launches_only() -> None:
    """A timed sample with a wrong output ends the measurement; the result names the sample and has no bandwidth."""
    calls = 0

    def now_and_then(buffers: Buffers) -> None:
        nonlocal calls
        calls += 1
        if calls % 37:  # fewer than the 64 samples of a round, more than the runs before the first sample
            right(buffers)

    result = measure(FakeDevice(now_and_then))
    assert (result.status, result.bandwidth_gbps) == ("wrong", None)
    assert "timed sample " in (result.reason or "")
    assert result.verification is not None
    assert result.verification.samples > 0


def test_state_that_decides_the_output() -> None:
    """A kernel that stores its first output and copies it later is wrong at its second launch, and the result names the
    variable."""
    kept: dict[str, np.ndarray] = {}

    class Replaying(FakeDevice):
        def load(self, *words: Any) -> Any:
            self.module = super().load(*words)
            return self.module

    def replay(buffers: Buffers) -> None:
        flag = device.variable("kept", device.module.variables)
        if flag[0]:
            buffers["out"][:] = kept["out"]
            return
        right(buffers)
        flag[0] = 1
        kept["out"] = buffers["out"].copy()

    device = Replaying(replay, variables={"kept": bytes(4)})
    result = measure(device)
    assert result.status == "wrong"
    assert "'kept' (line 7)" in (result.reason or "")
    assert [(v.variable, v.line) for v in result.state] == [("kept", 7)]


def test_state_that_decides_nothing() -> None:
    """A kernel that counts its launches is right; the result names the variable, which is set back before every
    sample."""
    starts: set[int] = set()

    class Counting(FakeDevice):
        def load(self, *words: Any) -> Any:
            self.module = super().load(*words)
            return self.module

    def counting(buffers: Buffers) -> None:
        right(buffers)
        counter = device.variable("launches", device.module.variables)
        starts.add(int(counter[0]))
        counter[0] += 1

    device = Counting(counting, variables={"launches": bytes([5])})
    result = measure(device)
    assert result.status == "ok"
    assert "state" in codes(result)
    assert starts == {5, 6, 7}  # 6 and 7: further launches without a reset, which show what the first one stores
    assert [v.variable for v in result.state] == ["launches"]


def test_variable_that_is_set_back_is_no_state() -> None:
    """A variable that a kernel does not change is not reported as state."""

    def resetting(buffers: Buffers) -> None:
        right(buffers)

    result = measure(FakeDevice(resetting, variables={"arrived": bytes(4)}))
    assert (result.status, result.state) == ("ok", ())
    assert "state" not in codes(result)


@pytest.mark.parametrize(
    ("strays", "place"),
    [
        ([-3], "3 bytes before its start"),
        ([-9, -2], "2 bytes before its start"),
        ([0], "0 bytes after its end"),
        ([4, 11], "4 bytes after its end"),
    ],
)
def test_writes_outside_an_array(strays: list[int], place: str) -> None:
    """The guard zones detect writes beside an array; the message gives the nearest write, and the result has no
    time."""

    def straying(buffers: Buffers) -> None:
        right(buffers)
        whole = buffers["out"].base
        start = (whole.size - buffers["out"].size) // 2
        for stray in strays:
            whole[start + stray if stray < 0 else start + buffers["out"].size + stray] ^= 1

    result = measure(FakeDevice(straying))
    assert (result.status, result.time) == ("wrong", None)
    assert place in (result.reason or "")
    assert "'out'" in (result.reason or "")
    assert [hazard.kind for hazard in result.hazards or ()] == ["out-of-bounds"]


def test_a_write_at_the_end_of_the_last_page() -> None:
    """The unused rest of an array's last page is a guard zone too."""

    def straying(buffers: Buffers) -> None:
        right({name: whole[: ROWS * COLS * 4] for name, whole in buffers.items()})
        buffers["out"].base[-1] ^= 1

    result = measure(FakeDevice(straying, page_bytes=1 << 16))
    assert result.status == "wrong"
    assert "'out'" in (result.reason or "")


def test_a_time_that_no_card_reaches() -> None:
    """A time shorter than the bytes divided by the peak bandwidth makes the result wrong."""
    info = replace(FAKE, l2_bytes=0)
    result = measure(FakeDevice(right, seconds=lambda at: 1e-9, info=info))
    assert (result.status, result.bandwidth_gbps) == ("wrong", None)
    assert "impossible" in (result.reason or "")


@pytest.mark.parametrize(("least", "status"), [(None, "wrong"), (10**14, "wrong"), (0, "ok")])
def test_operations_that_a_kernel_may_do_without(
    monkeypatch: pytest.MonkeyPatch, least: int | None, status: str
) -> None:
    """A time is impossible only by the least operations that a kernel needs, such as with running sums."""
    code = MachineCode("sm_90", "0" * 64, arithmetic=("float32",))
    monkeypatch.setattr(gpu_run.machine_code, "describe_all", lambda *of: code)
    operation = replace(operations.get("transpose"), flops=lambda problem: 10**15)
    if least is not None:
        operation = replace(operation, least_flops=lambda problem: least)
    (case,) = cases.build(operation, cases.Request(kernels=("naive-row",), size=(ROWS, COLS)))
    device = FakeDevice(right, info=replace(FAKE, compute_capability="9.0", clocks={"sm_mhz": 1980}, sm_count=132))
    result = GpuRun(operation, case.problem, FAST, device).measure(case)
    assert result.status == status, result.reason
    assert ("impossible" in (result.reason or "")) == (status == "wrong")


def test_sums_that_a_definition_adds_up_again_are_no_bound() -> None:
    """The least operations of blur are 0, and of pi a third of its formula; a pi kernel that skips the steps is still
    impossibly fast."""
    blur, pi = operations.get("blur"), operations.get("pi")
    assert blur.least_flops
    assert pi.least_flops
    assert pi.flops
    (case,) = cases.build(pi, cases.Request(kernels=("fused",), size=(2**30,)))
    assert blur.least_flops(case.problem) == 0
    assert 3 * pi.least_flops(case.problem) == pi.flops(case.problem)
    card = replace(FAKE, compute_capability="9.0", clocks={"sm_mhz": 1980}, sm_count=132)
    bound = pi.least_flops(case.problem)
    assert "impossible" in (gpu_run.impossible_time(10e-6, 0, bound, ("float32",), card) or "")
    assert gpu_run.impossible_time(60e-6, 0, bound, ("float32",), card) is None


def test_hints_to_the_cache() -> None:
    """A kernel with L2 eviction hints gets a warning, and the L2 lines lose their priority before cold samples."""
    device = FakeDevice(right, ptx="ld.global.L2::evict_last.f32 %f1, [%rd1];")
    assert "eviction" in codes(measure(device))
    assert "demote" in device.log
    plain = FakeDevice(right)
    assert "eviction" not in codes(measure(plain))
    assert "demote" not in plain.log


def test_device_heap_is_named() -> None:
    """A kernel that calls malloc gets a warning."""
    assert "malloc" in codes(measure(FakeDevice(right, ptx="call.uni (retval0), malloc, (param0);")))


def test_hot_runs_change_their_inputs() -> None:
    """In hot samples the inputs change from launch to launch with the same output, and the last launch has the inputs
    of its buffer set."""
    runs: list[tuple[int, bytes]] = []

    def watched(buffers: Buffers) -> None:
        runs.append((id(buffers["out"].base), buffers["in"].tobytes()))
        right(buffers)

    result = measure(FakeDevice(watched, seconds=lambda at: 5e-4), replace(FAST, cache="hot"))
    assert result.time is not None
    assert result.time.runs_per_sample == 4
    tail = runs[-4:]
    assert len({place for place, _ in tail}) == 1
    assert tail[0][1] == tail[2][1] != tail[1][1] == tail[3][1]
    assert tail[0][1][:-ROTATION_BYTES] == tail[1][1][ROTATION_BYTES:]  # the same memory, from a later address


def test_sums_in_any_order_are_right() -> None:
    """An output whose last bits change from run to run is compared in full, and is right."""
    rng = np.random.default_rng(1)

    def moving(buffers: Buffers) -> None:
        right(buffers)
        out = buffers["out"].view(np.float32)
        out *= rng.choice([1.0, 1 + 2**-23], out.size).astype(np.float32)

    operation = replace(operations.get("transpose"), tolerance=lambda problem: Tolerance(1e-5, 0.0, "of the test"))
    (case,) = cases.build(operation, cases.Request(kernels=("naive-row",), size=(ROWS, COLS)))
    result = GpuRun(operation, case.problem, FAST, FakeDevice(moving)).measure(case)
    assert result.status == "ok"
    assert result.verification is not None
    assert result.verification.samples > 0


def test_places_take_turns() -> None:
    """A small problem is sampled equally often in each buffer set, so the median does not depend on one address."""
    at_place: list[int] = []

    def watched(buffers: Buffers) -> None:
        right(buffers)
        at_place.append(id(buffers["out"].base))

    result = measure(FakeDevice(watched))
    assert result.time is not None
    timed = Counter(at_place[-result.time.samples :])
    assert len(timed) == result.time.places == MOST
    assert max(timed.values()) - min(timed.values()) <= 1  # the groups of a round have one length


def test_order_of_the_samples_is_kept() -> None:
    """Each sample records its buffer set, and so its inputs; samples of the faster set of inputs are left out."""
    device = FakeDevice(right)
    result = measure(device)
    assert result.time is not None
    order = result.time.samples_place
    assert len(order) == len(result.time.samples_s) == result.time.samples
    assert {*order} == {*range(result.time.places)}
    kept, notes = slower_inputs([2.0, 1.0] * 6, [7, 8] * 6)
    assert kept == [*range(0, 12, 2)]
    assert [note.code for note in notes] == ["inputs"]
    assert slower_inputs([2.0, 1.99] * 6, [7, 8] * 6) == ([*range(12)], [])


def test_every_place_is_verified() -> None:
    """A kernel that is wrong only in the fifth buffer set is wrong."""
    places: dict[int, int] = {}

    def spoiled_at_the_fifth(buffers: Buffers) -> None:
        right(buffers)
        if places.setdefault(id(buffers["out"].base), len(places)) == 4:
            buffers["out"][0] ^= 0xFF

    result = measure(FakeDevice(spoiled_at_the_fifth))
    assert result.status == "wrong"
    assert result.verification is not None
    assert result.verification.mismatches == 1
    assert "before timing" in (result.reason or "")


@pytest.mark.parametrize(
    ("nbytes", "free", "count"),
    [
        (1, 1 << 40, 8),
        (16 << 20, 1 << 40, 8),
        (32 << 20, 1 << 40, 4),
        (64 << 20, 1 << 40, 2),
        (65 << 20, 1 << 40, 2),
        (2 << 30, 1 << 40, 2),
        (2 << 30, 3 << 30, 1),
        (1 << 34, 1 << 40, 1),
        (1 << 20, 3 << 20, 3),
        (0, 1 << 40, 8),
    ],
)
def test_number_of_places(nbytes: int, free: int, count: int) -> None:
    """There are eight buffer sets, fewer above 128 MiB in total, two up to 4 GiB, and one if two do not fit."""
    assert place_count(nbytes, free) == count


def test_release_gives_all_places_back() -> None:
    """After release no memory is allocated, and the next measurement allocates again."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("0",), size=(ROWS, COLS)))
    device = FakeDevice(lambda buffers: None)
    run = GpuRun(operation, case.problem, FAST, device)
    assert len(run.buffer_sets()) == MOST
    run.release()
    assert device.memory == {}
    assert len(run.buffer_sets()) == MOST


def test_samples_alternate_with_the_copy() -> None:
    """Groups of kernel samples and of copy samples alternate, with equal lengths from 8 to 16."""
    device = FakeDevice(right)
    result = measure(device)
    assert result.time is not None
    turns = [entry for entry in device.log if entry in ("copy", "cold")][-2 * result.time.samples :]
    lengths = [(word, len(list(same))) for word, same in groupby(turns)]
    assert {word for word, _ in lengths[::2]} == {"copy"}
    assert [length for _, length in lengths[::2]] == [length for _, length in lengths[1::2]]
    assert all(8 <= length <= 16 for _, length in lengths)


def test_wrong_kernel_has_no_number() -> None:
    """A kernel with a wrong output before timing is not timed."""

    def identity(buffers: Buffers) -> None:
        buffers["out"][:] = buffers["in"]

    device = FakeDevice(identity)
    result = measure(device)
    assert result.status == "wrong"
    assert (result.time, result.bandwidth_gbps, result.copy_gbps) == (None, None, None)
    assert "wrong elements (before timing), first out[" in (result.reason or "")
    assert "cold" not in device.log


def test_unwritten_element_is_found() -> None:
    """An element that no thread writes is poison, although the buffer had the right value one run before."""

    def lazy(buffers: Buffers) -> None:
        last = buffers["out"][-4:].copy()
        right(buffers)
        buffers["out"][-4:] = last

    result = measure(FakeDevice(lazy))
    assert result.verification is not None
    assert result.verification.mismatches == 1
    assert result.verification.first is not None
    assert np.isnan(result.verification.first.got)


def test_kernel_that_goes_wrong_while_timed() -> None:
    """A kernel that is right before timing and wrong later fails at its first wrong sample."""

    def fading(buffers: Buffers) -> None:
        if device.samples <= 8:  # two or more belong to the warm-up, ten are timed
            right(buffers)

    device = FakeDevice(fading)
    result = measure(device)
    assert result.status == "wrong"
    assert result.verification is not None
    assert result.verification.checked == ("timed",)
    assert result.bandwidth_gbps is None


def test_skipped_case_runs_nothing() -> None:
    """A case with a reason to skip it is reported with the reason and does not run."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("0",), size=(4, 4)))
    device = FakeDevice(right)
    skipped: Case = replace(case, skip_reason="no")
    result = GpuRun(operation, case.problem, FAST, device).measure(skipped)
    assert (result.status, result.reason, device.log) == ("skipped", "no", [])


def test_too_large_for_the_memory() -> None:
    """A problem that does not fit is refused with the needed and the free memory, before a kernel runs."""
    device = FakeDevice(right, free=1000)
    with pytest.raises(OutOfMemory, match=r"needs 0\.00 GB, Fake has 0\.00 GB free"):
        measure(device)
    assert "run" not in device.log


def codes(result: Result) -> set[str]:
    """Return the codes of a result's warnings."""
    return {warning.code for warning in result.warnings}


def test_over_peak_is_warned_of() -> None:
    """A bandwidth above the memory's peak gives the warning over-peak."""
    assert "over-peak" in codes(measure(FakeDevice(right, seconds=lambda at: 1e-9)))


def test_small_footprint_is_warned_of() -> None:
    """Arrays smaller than four times the L2 give the warning l2-assisted."""
    assert "l2-assisted" in codes(measure(FakeDevice(right)))


def test_dispersion_is_warned_of() -> None:
    """Samples that alternate between two times give the warnings dispersion and imprecise."""
    settings = replace(FAST, max_time=0.05)
    jumping = measure(FakeDevice(right, seconds=lambda at: 1e-4 * (1 + at % 2)), settings)
    assert {"dispersion", "imprecise"} <= codes(jumping)
    assert "dispersion" not in codes(measure(FakeDevice(right)))


def test_falling_clock_is_warned_of() -> None:
    """A clock that falls by more than 5% during timing gives the warning clocks."""
    assert "clocks" in codes(measure(FakeDevice(right, clocks=[1980, 1700])))
    assert "clocks" not in codes(measure(FakeDevice(right, clocks=[1980, 1950])))


def test_the_clock_beside_each_sample() -> None:
    """Each kept sample records the first SM clock read after it; it records nothing if the device has no clock
    reading."""
    told = iter([1980, 1965, 1950, 1935])
    clock = SmClock(lambda: next(told))
    clock.read_if_due(3)  # too early
    clock._next = 0.0
    clock.read_if_due(4)
    clock._next = 0.0
    clock.read_if_due(6)
    assert clock.clock_of_samples(8) == ((1965,) * 4 + (1950,) * 2 + (1935,) * 2, 1935)
    assert SmClock(lambda: None).clock_of_samples(3) == ((), None)
    timing = measure(FakeDevice(right, clocks=[1980])).time
    assert timing is not None
    assert timing.samples_sm_mhz == (1980,) * timing.samples
    timing = measure(FakeDevice(right)).time
    assert timing is not None
    assert timing.samples_sm_mhz == ()


def test_reading_the_clock_is_no_load() -> None:
    """If reading the clock takes long, it is read rarely enough to take at most a fiftieth of the time."""

    def slow() -> int:
        time.sleep(0.005)
        return 1980

    clock = SmClock(slow)
    assert clock._next >= time.monotonic() + 0.2
    clock.read_if_due(1)
    assert clock.clock_of_samples(2) == ((1980, 1980), 1980)


def test_partial_warp_is_warned_of() -> None:
    """A block whose threads are not a multiple of 32 gives the warning partial-warp."""
    assert "partial-warp" in codes(measure(FakeDevice(right), block=(7, 3)))


def test_hot_samples_hold_many_runs() -> None:
    """A hot sample of a short kernel has many launches, so that CUDA events resolve the time."""
    device = FakeDevice(right, seconds=lambda at: 5e-6)
    result = measure(device, replace(FAST, cache="hot"))
    assert result.time is not None
    assert (result.time.cache, result.time.runs_per_sample) == ("hot", 400)
    assert "cold" not in device.log


def test_stopping_rule() -> None:
    """Sampling stops when count, time and precision are reached, and always at the maximum time."""
    settings = Settings(min_time=0.5, max_time=10, min_samples=10)
    steady, noisy = [1e-4] * 100, [1e-4, 2e-4] * 50
    assert not is_enough(steady[:9], 1.0, settings)
    assert not is_enough(steady, 0.4, settings)
    assert is_enough(steady, 0.6, settings)
    assert not is_enough(noisy, 0.6, settings)
    assert is_enough(noisy, 10.0, settings)


def test_a_budget_is_shared() -> None:
    """Each kernel gets an equal part of the remaining budget, sampling stops at its end, and no kernel starts after
    it."""
    budget = Budget(8.0, time.monotonic() + 8.0, later=2)
    until = budget.until(2)
    assert until is not None
    assert until - time.monotonic() == pytest.approx(2.0, rel=0.01)
    assert Budget(8.0, time.monotonic() - 1.0).until(1) is None
    settings = settings_until(Settings(), time.monotonic() + 0.1)
    assert 0 < settings.max_time <= 0.1
    assert settings.min_time <= settings.max_time
    assert settings_until(Settings(), time.monotonic() - 1).max_time == 0
    assert settings_until(Settings(), None) == Settings()


def test_warm_up_waits_for_the_clock() -> None:
    """The warm-up continues while groups of samples get faster."""
    times = iter([1e-3 * 0.8**k for k in range(60)] + [1e-9] * 10**6)
    assert warm_up(lambda: next(times), budget_s=0.02) < 1e-3 * 0.8**50


def test_hot_runs_are_bounded() -> None:
    """A hot sample has one launch of a long kernel and at most 400 launches of a short one."""
    assert (hot_runs(1.0), hot_runs(1e-7), hot_runs(1e-5)) == (1, 400, 200)


@pytest.mark.parametrize("threads", [1, 3])
def test_baseline_does_the_work(threads: int) -> None:
    """The CPU baseline transposes with any number of threads."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=("0",), size=(ROWS, COLS)))
    arrays = operation.inputs(case.problem)
    out = {"out": np.zeros((COLS, ROWS), np.float32)}
    operation.baseline.run(arrays, out, threads)
    assert (out["out"] == arrays["in"].T).all()
    cpu = GpuRun(operation, case.problem, Settings(cpu_threads=threads), FakeDevice(right)).measure_cpu()  # type: ignore[arg-type]
    assert cpu.threads == threads
    assert cpu.time_s > 0


def test_faster_on_inputs_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is faster on one set of inputs gets the time of the other set, and a warning."""
    # Times at two levels never give a narrow interval, so the usual rule would sample until --max-time.
    monkeypatch.setattr(timing, "is_enough", lambda samples, elapsed, settings: len(samples) >= 200)
    seen: list[bytes] = []

    def watched(buffers: Buffers) -> None:
        right(buffers)
        seen.append(buffers["in"].tobytes())

    device = FakeDevice(watched)
    device.seconds = lambda at: 1e-5 if seen[-1] == seen[0] else 1e-4
    result = measure(device)
    assert "inputs" in codes(result)
    assert result.time is not None
    assert result.time.median_s == pytest.approx(1e-4)


def test_poison_that_is_the_answer() -> None:
    """An unwritten output fails even if the expected output is one byte repeated, because poison avoids that byte."""
    ones = {"out": np.full(8, -1, np.int32)}
    assert poison_bytes(ones)[0] != 0xFF
    assert poison_bytes({"out": np.zeros(8, np.float32)})[0] == 0xFF
    every = {"out": np.arange(256, dtype=np.uint8)}
    assert len(set(poison_bytes(every))) == 2

    operation = replace(
        operations.get("transpose"), reference=lambda problem, arrays: {"out": np.full((COLS, ROWS), -1, np.int32)}
    )
    (case,) = cases.build(operation, cases.Request(kernels=("naive-row",), size=(ROWS, COLS), dtype="int32"))
    result = GpuRun(operation, case.problem, FAST, FakeDevice(lambda buffers: None)).measure(case)
    assert result.status == "wrong"
