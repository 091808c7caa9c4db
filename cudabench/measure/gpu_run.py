"""One kernel, measured: verify, warm up, sample, verify. The device is an argument; nothing here knows PyCUDA.

The protocol: the output is poisoned before the first launch and compared with the reference before and after timing.
Samples of the kernel and of a copy of the same bytes alternate, so that both see the same clocks and the same memory;
a small problem is sampled at several places of the memory in turn (`placement`).
A buffer that the kernel reads and writes is set back before every sample, outside the timed window.
Sampling ends by the rule of `enough`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cudabench.devices.protocol import Device, Work
from cudabench.errors import CudabenchError, DeviceError, OutOfMemory, UsageError
from cudabench.measure import verify
from cudabench.measure.buffers import BufferSet, place
from cudabench.measure.context import (
    Arrays,
    RunContext,
    compare,
    describe,
    launch_warnings,
    right_output,
    unverified_warnings,
    wrong_reason,
)
from cudabench.model import (
    Case,
    DeviceInfo,
    Result,
    Settings,
    Timing,
    Verification,
    Warning,
)
from cudabench.occupancy import occupancy
from cudabench.results import stats

RELATIVE_CI = 0.005  # of the median: the precision at which sampling stops
WARM_UP_S = 0.15
WARM_UP_STEADY = 0.01  # successive groups that differ less than this are warm
HOT_SAMPLE_S = 2e-3  # back-to-back runs fill this, so that what the first and the last do alone is under a percent
MAX_HOT_RUNS = 400  # as many launches as can wait behind a held stream
GROUP_S = 2e-3  # kernel and copy take turns in groups of this length: each change costs a sample its warm caches
MAX_GROUP = 16
L2_ASSISTED = 4  # footprint over L2 under which the cache helps (measured: gone at 2 to 4 times)
DISPERSION = 0.05
CLOCK_DROP = 0.05


@dataclass
class GpuRun(RunContext):
    """The kernels of one run on a GPU: inputs in its memory, samples, figures."""

    device: Device
    _places: tuple[BufferSet, ...] = field(default=(), init=False)

    def places(self) -> tuple[BufferSet, ...]:
        """Return where the buffers lie; OutOfMemory, before anything runs, where they do not fit."""
        self._places = self._places or place(self.device, self.operation, self.problem)
        return self._places

    def release(self) -> None:
        """Free the buffers; they are made anew when they are needed again."""
        for placement in self._places:
            for address in placement.addresses.values():
                self.device.release(address)
        self._places = ()

    # One kernel -------------------------------------------------------------------------------------------------

    def measure(self, case: Case) -> Result:
        """Return the result of one case; errors of the compiler, the launch and the kernel become a failed result."""
        blank = describe(case, f"cuda:{self.device.info.index}")
        if case.skip_reason:
            return replace(blank, status="skipped", reason=case.skip_reason)
        self.places()
        self.expected(case.expects)  # an expectation of the user's that cannot be ends the run, not one kernel
        try:
            if self.settings.cpu:
                self.measure_cpu()
            return self._measure(case, blank)
        except OutOfMemory:
            raise
        except CudabenchError as error:
            if isinstance(error, UsageError) and case.named:
                raise
            return replace(blank, status="failed", reason=str(error))

    def _measure(self, case: Case, result: Result) -> Result:
        self.progress("compiling", 0)
        module = self.device.load(case.source, case.defines, [launch.function for launch in case.launches])
        spent = module.resources(case.function)
        shared, threads = spent.shared_bytes + case.dynamic_shared_bytes, case.threads
        result = replace(
            result,
            registers=spent.registers,
            local_bytes=spent.local_bytes,
            shared_bytes=shared,
            occupancy=occupancy(self.device.info.compute_capability, threads, spent.registers, shared),
        )
        most = module.max_threads(case.function)
        if threads > most:
            raise DeviceError(
                f"A block of {threads} threads does not fit: by its launch bounds and {spent.registers} registers a "
                f"thread {case.function} takes at most {most}; use a smaller --block."
            )
        places = self.places()
        works = []
        for placement in places:
            placement.fill(self.inputs)
            works.append(self.device.bind(module, case.launches, placement.addresses))
        expected = self.expected(case.expects)
        self.progress("running", 0)
        for work in works:
            self.device.run(work, f"running {case.kernel}")
        self.progress("verifying", 0)
        before, _ = self._verify(case, expected, "before", places[0])
        if before and before.mismatches:
            return self._wrong(result, case, before)

        timing, copy, notes = self._time(works)
        self.progress("verifying", 1)
        verification = before
        for placement in places:
            after, got = self._verify(case, expected, "after", placement)
            verification = verify.merge(verification, after) if verification and after else None
        wrong = self._wrong(result, case, verification)
        if wrong.status == "wrong":
            return wrong
        figures = right_output(self.operation, self.problem, self.inputs, got)
        notes = [*unverified_warnings(verification, expected, self.operation.buffers(self.problem)), *notes]
        return self._figures(replace(result, verification=verification, figures=figures), case, timing, copy, notes)

    def _verify(
        self, case: Case, expected: Arrays, when: str, placement: BufferSet
    ) -> tuple[Verification | None, Arrays]:
        """Return how the outputs at a place compare with the reference, None where nothing is expected, and them."""
        wanted = {*expected, *self.operation.saves}
        got = placement.download(b for b in placement.buffers if b.name in wanted)
        return compare(expected, got, self.operation.tolerated(case.expects, self.problem), when), got

    def _wrong(self, result: Result, case: Case, verification: Verification | None) -> Result:
        """Return the result as wrong, with the reason, where an output is or a user's kernel wrote into an input."""
        # Before the outputs: one that comes of a spoilt input is no news.
        reason = None if case.source.builtin else self._written()
        if reason is None and verification and verification.mismatches:
            reason = wrong_reason(verification)
        return replace(result, status="wrong" if reason else "ok", reason=reason, verification=verification)

    def _written(self) -> str | None:
        """Return a sentence about an input that the kernel wrote into, or None."""
        for placement in self.places():
            for buffer in placement.buffers:
                if buffer.role == "in":
                    found = verify.changed(self.inputs, placement.download([buffer]))
                    if found:
                        return found
        return None

    def _time(self, works: Sequence[Work]) -> tuple[Timing, Timing | None, list[Warning]]:
        """Return the kernel's timing, the copy's, and warnings. `works` are the kernel, one for each place.

        Ends each place with a run of the kernel, so that its output stands.
        """
        device, settings = self.device, self.settings
        turns = [
            (work, placement.restore(), placement.copy()) for work, placement in zip(works, self.places(), strict=True)
        ]
        first, first_restore, first_copy = turns[0]
        self.progress("warming up", 0)
        typical = warm_up(lambda: self._sample(first, "warming up", first_restore))
        # Inputs that the kernel overwrites are fresh in one run only.
        runs = hot_runs(typical) if settings.cache == "hot" and first_restore is None else 1
        copy_runs = runs
        if first_copy is not None:
            copy_typical = warm_up(lambda: self._sample(first_copy, "warming up"), budget_s=WARM_UP_S / 5)
            copy_runs = hot_runs(copy_typical) if settings.cache == "hot" else 1
        clock_before = device.sm_clock_mhz()

        samples: list[float] = []
        copies: list[float] = []
        group = max(1, min(MAX_GROUP, round(GROUP_S / (typical * runs))))
        start = time.monotonic()
        stop = False
        while not stop:
            for turn, (work, restore, copy) in enumerate(turns):
                device.use_stream(turn)
                if copy is not None:
                    copies += [device.sample(copy, settings.cache, copy_runs) for _ in range(group)]
                samples += [device.sample(work, settings.cache, runs, restore) for _ in range(group)]
                elapsed = time.monotonic() - start
                if elapsed >= settings.max_time:  # else every place has its say
                    break
            stop = enough(samples, elapsed, settings)
            self.progress("timing", min(elapsed / max(settings.min_time, 1e-9), 1.0))

        device.use_stream(0)
        timing = stats.summarize(samples, settings.cache, runs, len(turns))
        notes = timing_warnings(timing, elapsed, settings)
        clock_after = device.sm_clock_mhz()
        if clock_before and clock_after and clock_after < clock_before * (1 - CLOCK_DROP):
            notes.append(
                Warning(
                    "clocks",
                    f"the SM clock fell from {clock_before} to {clock_after} MHz while timing; the card throttles: "
                    "let it cool or raise --min-time",
                )
            )
        return timing, stats.summarize(copies, settings.cache, copy_runs, len(turns)) if copies else None, notes

    def _sample(self, work: Work, phase: str, before: Work | None = None) -> float:
        self.progress(phase, 0)
        return self.device.sample(work, self.settings.cache, 1, before)

    def _figures(self, result: Result, case: Case, timing: Timing, copy: Timing | None, notes: list[Warning]) -> Result:
        info = self.device.info
        nbytes = self.operation.bytes(self.problem)
        flops = self.operation.flops(self.problem) if self.operation.flops else None
        bandwidth = nbytes / timing.median_s / 1e9 if nbytes else None
        copy_gbps = nbytes / 2 * 2 / copy.median_s / 1e9 if copy and nbytes else None
        over_l2 = self.operation.footprint(self.problem) / info.l2_bytes if info.l2_bytes else None
        figures = replace(
            result,
            time=timing,
            bytes=nbytes or None,
            flops=flops,
            bandwidth_gbps=bandwidth,
            gflops=flops / timing.median_s / 1e9 if flops else None,
            copy_gbps=copy_gbps,
            copy_fraction=bandwidth / copy_gbps if bandwidth and copy_gbps else None,
            peak_fraction=bandwidth / info.peak_gbps if bandwidth and info.peak_gbps else None,
            speedup_vs_cpu=self.cpu.time_s / timing.median_s if self.cpu else None,
            footprint_over_l2=over_l2,
            cpu=self.cpu,
        )
        return replace(
            figures, warnings=(*launch_warnings(case), *notes, *scale_warnings(figures, info, self.operation.larger))
        )


# Rules ---------------------------------------------------------------------------------------------------------------


def enough(samples: Sequence[float], elapsed: float, settings: Settings) -> bool:
    """Tell whether to stop: at least min_samples, min_time and a 95% interval of the median under 0.5%; or max_time.

    Times are of the clock on the wall, flushes and copies included.
    """
    if elapsed >= settings.max_time:
        return True
    if len(samples) < settings.min_samples or elapsed < settings.min_time:
        return False
    return stats.relative_ci(samples) < RELATIVE_CI


def warm_up(sample: Callable[[], float], budget_s: float = WARM_UP_S) -> float:
    """Sample until the clocks are up, and return the typical time in seconds.

    The clocks of an idle card rise within tens of milliseconds of work. Groups of samples follow each other until one
    is no faster than the one before by more than 1%, and at least `budget_s` of wall clock has passed.
    """
    start = time.monotonic()
    before = float("inf")
    per_group = 5 if sample() < budget_s / 10 else 1
    while True:
        group = float(np.median([sample() for _ in range(per_group)]))
        elapsed = time.monotonic() - start
        steady = group > before * (1 - WARM_UP_STEADY)
        if (steady and elapsed >= budget_s) or elapsed >= 10 * budget_s:
            return group
        before = min(group, before)


def hot_runs(typical_s: float) -> int:
    """Return how many back-to-back runs make a hot sample that an event resolves."""
    return max(1, min(MAX_HOT_RUNS, round(HOT_SAMPLE_S / typical_s)))


def timing_warnings(timing: Timing, elapsed: float, settings: Settings) -> list[Warning]:
    """Return what the samples say against themselves."""
    notes = []
    spread = stats.dispersion(timing)
    if spread > DISPERSION:
        notes.append(
            Warning(
                "dispersion",
                f"half of the samples spread over {spread:.1%} of the median: something else uses the GPU, or its "
                f"clocks move; raise --min-time (now {settings.min_time:g})",
            )
        )
    if timing.relative_ci >= RELATIVE_CI and elapsed >= settings.max_time:
        notes.append(
            Warning(
                "imprecise",
                f"after --max-time {settings.max_time:g} s the median is known to {timing.relative_ci:.1%} only, not "
                f"{RELATIVE_CI:.1%}",
            )
        )
    return notes


def scale_warnings(result: Result, info: DeviceInfo, larger: str = "a larger --size") -> list[Warning]:
    """Return what the caches do to the figure."""
    notes = []
    if result.peak_fraction is not None and result.peak_fraction > 1:
        notes.append(
            Warning(
                "over-peak",
                f"{result.bandwidth_gbps:.0f} GB/s is {result.peak_fraction:.0%} of the memory's peak: the L2 cache "
                f"serves part of it; use {larger}",
            )
        )
    elif result.footprint_over_l2 is not None and result.footprint_over_l2 < L2_ASSISTED and info.l2_bytes:
        notes.append(
            Warning(
                "l2-assisted",
                f"the arrays are {result.footprint_over_l2:.2g} times the {info.l2_bytes / 2**20:.0f} MiB L2 cache, "
                f"which still holds part of the output when the clock stops; {larger}, over {L2_ASSISTED} times the "
                "cache, would show the memory's own speed",
            )
        )
    return notes
