"""Kernels that keep, skip or hide work between launches, simulated in host memory: see tests/cheats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.devices.protocol import Variable
from cudabench.measure import context, gpu_run
from cudabench.measure.buffers import ROTATION_BYTES, rotated_input
from cudabench.measure.gpu_run import GpuRun
from cudabench.measure.verify import zeros_pass
from cudabench.records.plan import Settings, Tolerance
from cudabench.records.results import Result
from cudabench.userkernel import plan
from cudabench.userkernel.request import UserRequest
from tests.conftest import FakeDevice

COUNT = 1000
Buffers = dict[str, np.ndarray]
COLD = Settings(min_time=0.0, max_time=5.0, min_samples=40, cpu=False)
HOT = replace(COLD, cache="hot")
TWICE = "__global__ void twice(int n, const float *x, float *y) {}\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def request(start: str = "empty", expect: str = "y=2*x") -> UserRequest:
    """Return a request for a kernel that the fake device executes."""
    Path("k.cu").write_text(TWICE)
    arguments = (f"n={COUNT}", "x=float32[n]:random", f"y=float32[n]:{start}")
    return UserRequest("k.cu", (), "4", "256", arguments, (expect,), bytes="8*n")


def measured(device: FakeDevice, settings: Settings = COLD, asked: UserRequest | None = None) -> Result:
    """Measure a kernel of the user's own."""
    series = plan.build([asked or request()])
    return GpuRun(series.make(), series.cases[0].problem, settings, device).measure(series.cases[0])


def twice(buffers: Buffers) -> None:
    """Compute the right result."""
    buffers["y"].view(np.float32)[:] = 2 * buffers["x"].view(np.float32)


class Told(FakeDevice):
    """A device whose kernel receives the addresses of its arrays."""

    told: Callable[[Buffers, dict[str, int]], None]

    def bind(self, module: Any, launches: Any, pointers: Any) -> Callable[[], None]:
        """Return the kernel."""
        inner = super().bind(module, launches, pointers)

        def work() -> None:
            self.kernel = lambda buffers: self.told(buffers, dict(pointers))
            inner()

        return work


def test_a_hot_sample_may_end_anywhere() -> None:
    """A kernel that idles on every other launch's inputs, or in all launches but the last, is wrong; a correct kernel
    is timed, with the usual 400 launches per sample."""
    device = Told(lambda buffers: None, seconds=lambda at: 5e-6)
    starts: set[int] = set()

    def honest(buffers: Buffers, pointers: dict[str, int]) -> None:
        starts.add(pointers["x"])
        twice(buffers)

    device.told = honest
    result = measured(device, HOT)
    assert result.time is not None
    assert (result.status, result.time.runs_per_sample) == ("ok", 400)
    first = min(starts)
    assert first + ROTATION_BYTES in starts

    def idle_later(buffers: Buffers, pointers: dict[str, int]) -> None:
        if pointers["x"] - ROTATION_BYTES not in starts or pointers["x"] not in starts:
            starts.add(pointers["x"])
            twice(buffers)

    launches: dict[int, int] = {}

    def counting(buffers: Buffers, pointers: dict[str, int]) -> None:
        poisoned = len(set(buffers["y"].tobytes())) == 1
        count = launches[pointers["y"]] = 1 if poisoned else launches[pointers["y"]] + 1
        if count in (1, 400):
            twice(buffers)

    for cheat in (idle_later, counting):
        starts.clear()
        device = Told(lambda buffers: None, seconds=lambda at: 5e-6)
        device.told = cheat
        result = measured(device, HOT)
        assert (result.status, result.time) == ("wrong", None), cheat.__name__
        assert "launches back to back" in (result.reason or "")


def test_inputs_that_begin_later() -> None:
    """A rotated input begins further on in the array, and continues with the array's beginning after its end."""
    long = np.arange(300, dtype=np.float32).reshape(3, 100)
    skipped = ROTATION_BYTES // 4
    assert rotated_input(long).reshape(-1).tolist() == [*range(skipped, 300), *range(skipped)]
    short = np.arange(3, dtype=np.int32)
    assert rotated_input(short).tolist() == [(skipped + at) % 3 for at in range(3)]


def test_large_state_that_begins_late_is_timed_again() -> None:
    """If a large variable changes only in later launches, the samples are repeated with the variable set back."""

    class Replaying(FakeDevice):
        def load(self, *words: Any) -> Any:
            self.module = super().load(*words)
            return self.module

    launches = 0
    replayed = False

    def late(buffers: Buffers) -> None:
        nonlocal launches, replayed
        launches += 1
        variables: tuple[Variable, ...] = device.module.variables
        kept = device.variable("kept", variables)
        replayed = bool(kept[0])
        twice(buffers)
        if launches > 60:
            kept[0] = 1

    device = Replaying(late, seconds=lambda at: 1e-6 if replayed else 1e-4, variables={"kept": bytes(2 << 20)})
    result = measured(device)
    assert result.time is not None
    assert (result.status, result.time.median_s) == ("ok", 1e-4)
    assert [one.variable for one in result.state] == ["kept"]


def test_no_set_of_inputs_is_left_out() -> None:
    """Even if the time limit passes at once, a kernel that is fast on one set of inputs gets the time of the other
    set."""
    known = 0.0

    def teller(buffers: Buffers) -> None:
        nonlocal known
        known = float(buffers["x"].view(np.float32)[0])
        twice(buffers)

    for _ in range(8):
        first: list[float] = []

        def seconds(at: int, first: list[float] = first) -> float:
            first.append(known)
            return 1e-5 if known == first[0] else 1e-4

        result = measured(FakeDevice(teller, seconds=seconds), replace(COLD, max_time=1e-9))
        assert result.time is not None
        assert result.time.median_s == 1e-4


def test_other_places_are_looked_at() -> None:
    """A kernel that stores data in the arrays of another buffer set is wrong, although its own output is right."""
    outputs: set[int] = set()

    def elsewhere(buffers: Buffers, pointers: dict[str, int]) -> None:
        twice(buffers)
        outputs.add(pointers["y"])
        others = sorted(outputs - {pointers["y"]})
        if others and device.samples > 20:
            device.at(others[0], 4)[:] = 1

    device = Told(lambda buffers: None)
    device.told = elsewhere
    result = measured(device)
    assert result.status == "wrong"
    assert gpu_run.ELSEWHERE in (result.reason or "")


def test_what_an_array_is_set_back_from_is_looked_at() -> None:
    """A kernel that writes its result into the copy of its input's initial values is wrong."""

    def prepared(buffers: Buffers) -> None:
        y = buffers["y"].view(np.float32)
        if y[0] >= 2:
            return
        y[:] = buffers["x"].view(np.float32) + y + 2
        place = next(base for base, memory in device.memory.items() if memory is buffers["y"].base)
        copy = next(base for base, memory in device.memory.items() if base > place and memory.size == 4 * COUNT)
        device.memory[copy][:] = buffers["y"]

    device = FakeDevice(prepared)
    result = measured(device, asked=request("random", "y=x+y0+2"))
    assert result.status == "wrong"
    assert gpu_run.ELSEWHERE in (result.reason or "")


def test_inputs_are_held_against_those_before_the_first_launch() -> None:
    """A kernel that overwrites a const input in its first launch, to copy it in later launches, is wrong."""

    def replacing(buffers: Buffers) -> None:
        x, y = buffers["x"].view(np.float32), buffers["y"].view(np.float32)
        if x[0] < 2:
            x += 2
        y[:] = x

    result = measured(FakeDevice(replacing), asked=request(expect="y=x+2"))
    assert result.status == "wrong"
    assert "wrote into x, which is const" in (result.reason or "")


def test_zones_reach_to_the_end_of_the_page() -> None:
    """The guard zone finds a write to the unused end of an array's last page."""

    def beyond(buffers: Buffers) -> None:
        twice(buffers)
        memory = next(m for m in device.memory.values() if m is buffers["y"].base)
        memory[-1] = 0

    class Paged(FakeDevice):
        def bind(self, module: Any, launches: Any, pointers: Any) -> Callable[[], None]:
            sizes = {"x": 4 * COUNT, "y": 4 * COUNT}
            return lambda: self.kernel({name: self.at(pointers[name], sizes[name]) for name in sizes})

    device = Paged(beyond, page_bytes=1 << 20)
    result = measured(device)
    assert result.status == "wrong"
    assert "outside 'y'" in (result.reason or "")


@pytest.mark.parametrize(
    ("expected", "tolerance", "largest"),
    [
        ([1e-7, -5e-7], (1e-5, 1e-6), 5e-7),
        ([1e-7, 2e-6], (1e-5, 1e-6), None),
        ([3.0, -4.0], (1.0, 0.0), 4.0),
        ([0.0, 0.0], (1e-5, 1e-6), None),  # the expected values are zeros
        ([np.inf, 1.0], (1.0, 0.0), None),
        ([np.nan, 1e-7], (1e-5, 1e-6), None),
        ([], (1.0, 1.0), None),
    ],
)
def test_a_tolerance_that_accepts_zeros(
    expected: list[float], tolerance: tuple[float, float], largest: float | None
) -> None:
    """zeros_pass returns the largest value that an output of zeros may miss, or None if zeros do not pass."""
    found = zeros_pass(np.array(expected), Tolerance(*tolerance, "of the test"))
    assert found == (None if largest is None else pytest.approx(largest))


@pytest.mark.parametrize(("expect", "threads"), [("y=2*x", 1), ("y=x@np.ones((n,n))", 4)])
def test_threads_are_those_that_numpy_has(expect: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """--cpu-threads affects only expressions with BLAS; others are timed on one thread, which the result records."""
    monkeypatch.setattr(context, "BASELINE_S", 1e-9)
    series = plan.build([request(expect=expect)])
    run = GpuRun(series.make(), series.cases[0].problem, replace(COLD, cpu_threads=4), FakeDevice(twice))
    assert run.measure_cpu().threads == threads
