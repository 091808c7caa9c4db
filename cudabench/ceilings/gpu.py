"""Measures the ceilings of a GPU. A ceiling has a value only if its kernel's output is correct both before and after
timing.

The process that uses the GPU runs this module as its program.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from cudabench.cards import KINDS, Ceiling
from cudabench.ceilings import benchmark as benchmarks
from cudabench.ceilings import chapter, code
from cudabench.ceilings.arithmetic import CLOCKS
from cudabench.ceilings.benchmark import THREADS, Extent, Microbenchmark, Scale, bytes_of
from cudabench.devices import nvml
from cudabench.devices.protocol import Device, Module, Work
from cudabench.errors import CudabenchError, DeviceError, UsageError
from cudabench.measure.session import FinishedEvent
from cudabench.measure.timing import is_enough, warm_up
from cudabench.measure.worker import ReportProgress, finished_event, serve
from cudabench.occupancy import capability, occupancy
from cudabench.records.launch import POISON
from cudabench.records.plan import Settings
from cudabench.records.results import Timing
from cudabench.results import stats

# The time that a launch should take. The resolution of an event and the time to start a launch are each less than 0.1%
# of this time.
SAMPLE_S = 2e-3
TIMING = Settings(min_time=0.1, max_time=0.6, min_samples=10, cpu=False)
WARM_UP_S = 0.1
TRIES = 5  # number of samples taken to choose a grid and the number of passes
# Blocks per multiprocessor, if the limits of the multiprocessor are not known.
FEWEST_BLOCKS = 4
FLUSHED = 4  # before a cold sample, this many times the size of the L2 is overwritten in memory
HOST_COPIES = 7
# For each energy ceiling: the kernel that runs while the energy is measured.
ENERGY_OF = {"energy-per-byte": "memory-copy", "energy-per-flop": "fp32"}
ENERGY_S = 1.5
IDLE_S = 1.0
NO_TIME = "a simulated driver invents its times: the kernel ran and its result is right"
# A measured clock is reported if it differs from the clock that the driver states by more than this fraction.
OTHER_CLOCK = 0.02


class WrongResult(CudabenchError):
    """The output of a microbenchmark is wrong."""


@dataclass
class Ceilings:
    """Measures ceilings on a device. `settings`: how long to sample. `scale`: the sizes; by default they are chosen for
    the device."""

    device: Device
    settings: Settings = TIMING
    progress: Callable[[str, float], None] = lambda phase, fraction: None
    scale: Scale | None = None
    _loaded: Module | CudabenchError | None = field(default=None, init=False)

    @cached_property
    def _board(self) -> nvml.Board | None:
        return nvml.board(self.device.info.uuid)

    @cached_property
    def sizes(self) -> Scale:
        """The sizes of the microbenchmarks."""
        info = self.device.info
        if self.scale:
            return self.scale
        if info.kind == "simulated":
            return benchmarks.in_simulator(info.compute_capability)
        free = self.device.free_bytes()
        return benchmarks.on_gpu(info.sm_count or 1, info.l2_bytes or 0, free, info.compute_capability)

    @property
    def module(self) -> Module:
        """`ceilings.cu`, compiled and loaded once. If that fails, each use raises the same error."""
        if self._loaded is None:
            self.progress("compiling", 0)
            try:
                self._loaded = self.device.load(benchmarks.source(), {}, ())
            except CudabenchError as error:
                self._loaded = error
        if isinstance(self._loaded, CudabenchError):
            raise self._loaded
        return self._loaded

    def measure(self, name: str) -> Ceiling:
        """Measure the ceiling with this name and return it. If the measurement fails, the ceiling has no value, and its
        `status` and `reason` say why."""
        blank = benchmarks.blank(name)
        if lack := self._missing_feature(name):
            return replace(blank, status="skipped", reason=lack)
        try:
            measured = self._measure(name, blank)
        except WrongResult as error:
            return replace(blank, status="wrong", reason=str(error))
        except CudabenchError as error:
            return replace(blank, status="failed", reason=str(error).rstrip("."))
        except Exception as error:  # an error in one ceiling must not stop the measurement of the others
            return replace(blank, status="failed", reason=f"{type(error).__name__}: {error}")
        # The times of a simulated driver are invented, so no ceiling is computed from them.
        if self.device.info.kind == "simulated":
            return self._with_hashes(replace(blank, reason=NO_TIME, method=measured.method, code=measured.code))
        return self._with_hashes(self._with_theoretical_value(measured))

    def _missing_feature(self, name: str) -> str | None:
        benchmark = chapter.BY_NAME.get(name)
        if benchmark and (lack := benchmark.missing_feature(self.device.info.compute_capability)):
            return lack
        if KINDS[name].group == "energy" and nvml.energy_j(self._board) is None:
            return "NVML does not report the energy of this card: nvidia-ml-py and a card of Volta or later are needed"
        return None

    def _measure(self, name: str, blank: Ceiling) -> Ceiling:
        if blank.group in ("host", "energy"):
            return self._measure_host_copy(name, blank) if blank.group == "host" else self._measure_energy(name, blank)
        measure = self._measure_launch_latency if name == "launch-latency" else self._measure_kernel
        return measure(chapter.BY_NAME[name], blank)

    def _with_theoretical_value(self, ceiling: Ceiling) -> Ceiling:
        top, made_of = chapter.theoretical(ceiling.name, ceiling.group, self.device.info, nvml.link(self._board))
        notes = [made_of, notes_of(ceiling.name, self.device.info.compute_capability)]
        driver_mhz = self.device.info.clocks.get("sm_mhz")
        if ceiling.clock_mhz and driver_mhz and abs(ceiling.clock_mhz / driver_mhz - 1) > OTHER_CLOCK:
            notes.append(f"it ran at {ceiling.clock_mhz:.0f} MHz")
        fraction = ceiling.value / top if top and ceiling.value is not None else None
        return replace(ceiling, theoretical=top, fraction=fraction, reason="; ".join(note for note in notes if note))

    # Kernels --------------------------------------------------------------------------------------------------------

    def _measure_kernel(self, benchmark: Microbenchmark, blank: Ceiling) -> Ceiling:
        loop_code = self._loop_description(benchmark)
        self.progress("running", 0)
        extents = self._extents(benchmark)
        with self._arrays(benchmark, extents[-1]) as pointers:
            trials = [_Trial(self, benchmark, extent, pointers) for extent in extents]
            for trial in trials:
                trial.prepare()
            trial = min(trials, key=lambda candidate: candidate.seconds) if len(trials) > 1 else trials[0]
            trial.verify("before timing")
            timing = self._time(trial.sample)
            clock_mhz = trial.clock_mhz(timing.samples_s[-1])
            trial.verify("after timing")
        filled = self._with_value(
            blank, timing, benchmark.amount(trial.extent), benchmark.method(trial.extent), loop_code
        )
        return replace(filled, clock_mhz=clock_mhz)

    def _with_value(self, blank: Ceiling, timing: Timing, work: float, method: str, loop_code: str = "") -> Ceiling:
        """Return a copy of a ceiling with its value, computed from the time and the amount of work."""
        kind = KINDS[blank.name]
        if kind.less_is_better:
            low, value, high = (seconds / work for seconds in (timing.q1_s, timing.median_s, timing.q3_s))
        else:
            unit = 1e9 if kind.unit == "GB/s" else 1.0
            low, value, high = (work / seconds / unit for seconds in (timing.q3_s, timing.median_s, timing.q1_s))
        return replace(blank, value=value, low=low, high=high, samples=timing.samples, method=method, code=loop_code)

    def _loop_description(self, benchmark: Microbenchmark) -> str:
        """Return a description of a microbenchmark's loop. Raises UnexpectedCode if the code differs from the claim."""
        if not (images := self.module.images([benchmark.function])):
            raise code.UnexpectedCode("the compiler does not keep the machine code")
        claim = chapter.claim_of(benchmark, capability(self.device.info.compute_capability))
        return code.check_loop(images[0][0], images[0][1][0], claim)

    def _with_hashes(self, ceiling: Ceiling) -> Ceiling:
        """Return a copy of a ceiling with the hashes of its kernel's code; return a ceiling without a kernel
        unchanged."""
        benchmark = chapter.BY_NAME.get(ENERGY_OF.get(ceiling.name, ceiling.name))
        images = self.module.images([benchmark.function]) if benchmark else []
        return code.with_hashes(ceiling, images[0][0], self.module.ptx, images[0][1][0]) if images else ceiling

    def _extents(self, benchmark: Microbenchmark) -> list[Extent]:
        """Return the possible sizes of the launch; the last one has the largest arrays. The caller measures with the
        fastest of these sizes."""
        scale = self.sizes
        passes = benchmark.passes(scale)
        first = Extent(scale, 1, passes or 1)
        if benchmark.blocks in ("one", "single"):
            return [first]
        if benchmark.blocks == "empty":
            return [replace(first, grid=scale.sms * scale.empty_blocks)]
        resources = self.module.resources(benchmark.function)
        try:
            fits = occupancy(self.device.info.compute_capability, THREADS, resources.registers, resources.shared_bytes)
            blocks_per_sm = max(1, fits.blocks_per_sm)
        except UsageError:  # the card is newer than the table of occupancy limits
            blocks_per_sm = FEWEST_BLOCKS
        full = replace(first, grid=scale.sms * blocks_per_sm)
        if benchmark.blocks == "fill":
            return [full]
        tiles = benchmark.tiles(scale)
        return [replace(full, grid=min(full.grid, tiles)), replace(full, grid=tiles)]

    @contextmanager
    def _arrays(self, benchmark: Microbenchmark, extent: Extent) -> Iterator[dict[str, int]]:
        """Allocate and fill the arrays of a microbenchmark, yield their addresses by name, and free them at the end."""
        arrays = benchmark.arrays(extent)
        pointers: dict[str, int] = {}
        try:
            for name, content in arrays.items():
                pointers[name] = self.device.allocate(bytes_of(content), own_page=True)
                if not isinstance(content, int):
                    self.device.upload(pointers[name], content)
            if benchmark.cold:
                pointers[_FLUSH] = self.device.allocate(FLUSHED * extent.scale.l2_bytes)
            if launches := benchmark.before(extent):
                self.device.run(self.device.bind(self.module, launches, pointers), "filling arrays")
            yield pointers
        finally:
            if self.device.alive():
                for pointer in pointers.values():
                    self.device.release(pointer)

    def _time(self, sample: Callable[[], float]) -> Timing:
        self.progress("warming up", 0)
        warm_up(sample, min(WARM_UP_S, self.settings.min_time))
        samples: list[float] = []
        start = time.monotonic()
        while not is_enough(samples, time.monotonic() - start, self.settings):
            self.progress("timing", min(len(samples) / self.settings.min_samples, 1.0))
            samples.append(sample())
        return stats.summarize(samples, "hot")

    def _measure_launch_latency(self, benchmark: Microbenchmark, blank: Ceiling) -> Ceiling:
        loop_code = self._loop_description(benchmark)
        extent = Extent(self.sizes, 1, 1)
        work = self.device.bind(self.module, [benchmark.launch(extent)], {})

        def sample() -> float:
            start = time.perf_counter()
            self.device.run(work, "launching")
            return time.perf_counter() - start

        timing = self._time(sample)
        return self._with_value(blank, timing, 1, benchmark.method(extent), loop_code)

    # Host copies ----------------------------------------------------------------------------------------------------

    def _measure_host_copy(self, name: str, blank: Ceiling) -> Ceiling:
        nbytes = self.sizes.host_bytes
        self.progress("running", 0)
        words = benchmarks.pattern(0, nbytes // 4).view(np.uint8)
        memory = self.device.pinned(nbytes) if name.endswith("pinned") else np.empty(nbytes, np.uint8)
        pointer = self.device.allocate(nbytes)
        up = name.startswith("host-to-device")

        def sample() -> float:
            start = time.perf_counter()
            (self.device.upload if up else self.device.download)(pointer, memory)
            if not self.device.alive():
                raise DeviceError("CUDA failed while copying")
            return time.perf_counter() - start

        try:
            if up:
                memory[:] = words
                self.device.run(self.device.fill(pointer, nbytes, POISON), "poisoning")
            else:
                memory[:] = POISON
                self.device.upload(pointer, words)
            samples = [sample() for _ in range(HOST_COPIES)][1:]
            if up:
                memory = np.empty(nbytes, np.uint8)
                self.device.download(pointer, memory)
        finally:
            self.device.release(pointer)
        differ = np.flatnonzero(memory != words)
        if len(differ):
            raise WrongResult(f"byte {int(differ[0])} of the copy differs from the source")
        kind = "page-locked" if name.endswith("pinned") else "pageable"
        method = f"{nbytes / 2**20:g} MiB of {kind} memory, by the host's clock; all bytes compared"
        return self._with_value(blank, stats.summarize(samples, "hot"), nbytes, method)

    # Energy ---------------------------------------------------------------------------------------------------------

    def _measure_energy(self, name: str, blank: Ceiling) -> Ceiling:
        """Measure the energy for a byte that a copy moves, or for a float32 operation: the board's energy without the
        energy that it needs when idle."""
        benchmark = chapter.BY_NAME[ENERGY_OF[name]]
        loop_code = self._loop_description(benchmark)
        self.progress("warming up", 0)
        began, start = self._joules(), time.monotonic()
        # Measure the idle power shortly after a launch, while the card still has its high clocks.
        time.sleep(IDLE_S)
        idle_w = (self._joules() - began) / max(time.monotonic() - start, 1e-9)
        extent = self._extents(benchmark)[-1]
        with self._arrays(benchmark, extent) as pointers:
            trial = _Trial(self, benchmark, extent, pointers)
            trial.prepare()
            trial.verify("before the energy is read")
            repeats = max(1, round(0.05 / trial.seconds))
            began, start, launches = self._joules(), time.monotonic(), 0
            while time.monotonic() - start < ENERGY_S:
                self.progress("timing", min((time.monotonic() - start) / max(ENERGY_S, 1e-9), 1.0))
                self.device.run(_queue_all([trial.work] * repeats), "running for its energy")
                launches += repeats
            seconds, joules = time.monotonic() - start, self._joules() - began
            trial.verify("after the energy was read")
        above_idle = joules - idle_w * seconds
        if above_idle <= 0:
            raise DeviceError(
                f"the board used only its idle power, {idle_w:.0f} W, while it ran: NVML's energy does not change"
            )
        method = (
            f"{benchmark.name} for {seconds:.2g} s: {joules / seconds:.0f} W, less {idle_w:.0f} W idle, over "
            f"{launches} launches"
        )
        value = above_idle / (benchmark.amount(trial.extent) * launches)
        return replace(blank, value=value, samples=1, method=method, code=loop_code)

    def _joules(self) -> float:
        energy = nvml.energy_j(self._board)
        if energy is None:
            raise DeviceError("NVML no longer reports the energy of this card")
        return energy


_FLUSH = "flush"  # the array that is overwritten before cold samples


@dataclass
class _Trial:
    """A microbenchmark with one launch size (`extent`) and the arrays at `pointers`; `seconds` is the time of a
    launch."""

    owner: Ceilings
    benchmark: Microbenchmark
    extent: Extent
    pointers: Mapping[str, int]
    seconds: float = 0.0
    work: Work = field(default=lambda: None, init=False)

    def prepare(self) -> None:
        """Increase the passes until a launch takes long enough, and set `seconds`."""
        most = self.extent.passes
        if self.benchmark.passes(self.extent.scale) is None:
            most = self.extent.scale.most_passes
        while True:
            launch = self.benchmark.launch(self.extent)
            self.work = self.owner.device.bind(self.owner.module, [launch], self.pointers)
            self.seconds = float(np.median([self.sample() for _ in range(TRIES)]))
            if self.seconds >= SAMPLE_S / 2 or self.extent.passes >= most:
                return
            # With few passes, starting the launch may take most of the time, and says little about longer loops. So the
            # number of passes grows by a factor of at most 64 at a time.
            longer = min(64.0, SAMPLE_S / max(self.seconds, 1e-9))
            passes = min(most, max(self.extent.passes + 1, round(self.extent.passes * longer)))
            self.extent = replace(self.extent, passes=passes)

    def sample(self) -> float:
        """Return the seconds of one launch."""
        device = self.owner.device
        fills = [self._fill(name, 0) for name in self.benchmark.zeroed]
        if self.benchmark.cold:
            flush = device.fill(self.pointers[_FLUSH], FLUSHED * self.extent.scale.l2_bytes, 0)
            return device.sample([self.work], "cold", [*fills, flush])
        works = [self.work] * (self.extent.scale.launches if self.benchmark.name == "launch-gap" else 1)
        return device.sample(works, "hot", fills)

    def clock_mhz(self, seconds: float) -> float | None:
        """Return the clock frequency of the multiprocessors during the last launch, which took `seconds`: the number of
        clocks that threads counted, divided by the time. None if the kernel does not count clocks.

        For each block the count of its slowest warp is used, because warps that share a unit do not end together.
        """
        if CLOCKS not in self.benchmark.arrays(self.extent):
            return None
        of_blocks = self._read(CLOCKS, 0, None, "int64").reshape(self.extent.grid, -1)
        clocks = float(np.median(of_blocks.max(axis=1)))
        return clocks / seconds / 1e6 if clocks > 0 and seconds > 0 else None

    def verify(self, when: str) -> None:
        """Overwrite the outputs with POISON, run once more, and check the output. Raises WrongResult."""
        device = self.owner.device
        filled = {a for launch in self.benchmark.before(self.extent) for a in launch.arguments if isinstance(a, str)}
        arrays = self.benchmark.arrays(self.extent)
        poisoned = [n for n, c in arrays.items() if isinstance(c, int) and n not in filled | {*self.benchmark.zeroed}]
        zeros = [self._fill(name, 0) for name in self.benchmark.zeroed]
        device.run(_queue_all([*(self._fill(name, POISON) for name in poisoned), *zeros, self.work]), "verifying")
        if check_launches := self.benchmark.check_launches(self.extent):
            device.run(_queue_all([*zeros, device.bind(self.owner.module, check_launches, self.pointers)]), "verifying")
        if fault := self.benchmark.wrong(self.extent, self._read):
            raise WrongResult(f"{fault} ({when})")

    def _fill(self, name: str, byte: int) -> Work:
        nbytes = bytes_of(self.benchmark.arrays(self.extent)[name])
        return self.owner.device.fill(self.pointers[name], nbytes, byte)

    def _read(self, name: str, first: int = 0, count: int | None = None, dtype: str = "uint32") -> np.ndarray:
        size = np.dtype(dtype).itemsize
        if count is None:
            count = bytes_of(self.benchmark.arrays(self.extent)[name]) // size - first
        content = np.empty(count, dtype)
        self.owner.device.download(self.pointers[name] + first * size, content)
        return content


def _queue_all(works: Sequence[Work]) -> Work:
    def queue() -> None:
        for work in works:
            work()

    return queue


def notes_of(name: str, compute_capability: str) -> str:
    """Return a note for the user on how a ceiling was measured, or ''."""
    major = capability(compute_capability)[0]
    if name in ("tensor-tf32", "tensor-bf16", "tensor-fp16", "tensor-int8") and major == 9:
        return "measured by mma.sync; wgmma, which kernels for sm_90a can use, has its own ceilings"
    if name.startswith("tensor-") and major in (10, 11):
        return "measured by mma.sync; tcgen05, which kernels for exactly this architecture can use, reaches more"
    if name in ("tensor-tf32", "tensor-bf16", "tensor-fp16") and major in (8, 12):
        return "GeForce boards sum in float32 at half the rate of the others"
    return ""


def measuring(
    device: Device, report_progress: ReportProgress, **how: Any
) -> Callable[[tuple[str, Settings]], FinishedEvent]:
    """Return a function that takes the name of a ceiling and settings, measures the ceiling, and returns the result."""
    ceilings: Ceilings | None = None

    def run_task(task: tuple[str, Settings]) -> FinishedEvent:
        nonlocal ceilings
        name, settings = task
        ceilings = ceilings or Ceilings(device, settings, **how)
        ceilings.progress = partial(report_progress, name)
        ceiling = ceilings.measure(name)
        return finished_event(device, ceiling, ceiling.status == "failed")

    return run_task


if __name__ == "__main__":
    serve(sys.argv[1:], measuring)
