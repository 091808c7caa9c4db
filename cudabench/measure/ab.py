"""Two kernels on the same memory, their samples interleaved at random: what differs between them is the kernels.

Both are bound to the same buffers, so that inputs, addresses and streams are the same, and verified as any kernel is.
Then samples come in pairs: a place of the memory is drawn, and there one sample of each, in an order drawn anew for
every pair. What clocks, temperature and neighbours do to the card falls on both alike, and what comes first in a pair
says nothing. Between two samples all that kernels write is poisoned or set back, and every output is held against the
reference, as `gpu_run` has it. `results.ab` turns the pairs into a ratio and stops the sampling.

Kernels whose launches are the same instructions, on the same data, with the same arguments and resources have nothing
to be measured: they are not launched, unless `always` says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from cudabench.compile import cubin
from cudabench.errors import CudabenchError, OutOfMemory, UsageError
from cudabench.measure.context import Progress, describe
from cudabench.measure.gpu_run import (
    CLOCK_DROP,
    GROUP_S,
    MAX_GROUP,
    Bound,
    GpuRun,
    Loaded,
    WrongOutput,
    may_repeat,
)
from cudabench.measure.run import Run
from cudabench.measure.sampling import SmClock, hot_runs, slower_inputs, timing_warnings, warm_up
from cudabench.measure.session import Finished
from cudabench.records.planned import Case
from cudabench.records.results import Result, Timing, Warning
from cudabench.results import stats
from cudabench.results.ab import settled
from cudabench.results.warnings import warning

SAME_CODE = "its machine code and launch are the other one's: there is nothing to measure"


@dataclass
class PairedRun(GpuRun):
    """Two kernels of one problem on a GPU. `of` gives what the progress of either is told to, by its place: 0 or 1."""

    of: Callable[[int], Progress] = field(default=lambda at: lambda phase, fraction: None, kw_only=True)

    def measure_pair(self, cases: Sequence[Case], always: bool = False) -> list[Result]:
        """Return the results of both, with as many samples each, in pairs by their place.

        Where one is wrong or fails, neither has a time, and the other is 'skipped'. Both are where their code is the
        same, unless `always`. Raises as `measure` does.
        """
        self.buffer_sets()
        results = [describe(case, f"cuda:{self.device.info.index}") for case in cases]
        loaded: list[Loaded] = []
        at = 0
        try:
            for at, case in enumerate(cases):
                self.progress = self.of(at)
                self.expected(case.expects)
                loaded.append(self._loaded(case, results[at]))
                results[at] = loaded[at].result
            if not always and _code(loaded[0]) == _code(loaded[1]):
                return [replace(result, status="skipped", reason=SAME_CODE) for result in results]
            bound = []
            for at, one in enumerate(loaded):
                self.progress = self.of(at)
                bound.append(self._bound(one))
            timings = self._time_pairs(loaded, bound)
            while any(self._state_missed(one) for one in loaded):
                timings = self._time_pairs(loaded, bound)
            for at, (timing, notes) in enumerate(timings):
                self.progress = self.of(at)
                self._leave_outputs(loaded[at], bound[at])
                results[at] = self._concluded(loaded[at], bound[at], timing, None, notes)
            return results
        except _Wrong as wrong:
            return _stopped(results, wrong.at, loaded[wrong.at].found(wrong.why))
        except WrongOutput as wrong:
            return _stopped(results, at, loaded[at].found(wrong))
        except OutOfMemory:
            raise
        except CudabenchError as error:
            if isinstance(error, UsageError) and cases[at].named:
                raise
            return _stopped(results, at, replace(results[at], status="failed", reason=str(error)))
        finally:
            if self.device.alive():
                for one in loaded:
                    one.state.release()

    def _time_pairs(self, loaded: Sequence[Loaded], bound: Sequence[Bound]) -> list[tuple[Timing, list[Warning]]]:
        """Return the timing of either with its warnings; _Wrong where the output of a timed sample is wrong."""
        device, settings = self.device, self.settings
        befores = [self._befores(one, its) for one, its in zip(loaded, bound, strict=True)]
        typical = []
        for at, its in enumerate(bound):
            self.progress = self.of(at)
            self.progress("warming up", 0)
            typical.append(warm_up(partial(self._sample, its.sites[0].work, "warming up", befores[at][0])))
        repeat = settings.cache == "hot" and all(map(may_repeat, loaded, bound))
        runs = hot_runs(min(typical)) if repeat else 1
        for at, (one, its) in enumerate(zip(loaded, bound, strict=True) if repeat else ()):
            with _blaming(at):
                if self._first_turned_runs(one, its):
                    warm_up(partial(self._sample, its.sites[0].work, "warming up", befores[at][0]))
        clock = SmClock(device.sm_clock_mhz)

        places = len(bound[0].sites)
        inputs = {id(site.inputs) for site in bound[0].sites}
        samples: tuple[list[float], list[float]] = ([], [])
        of_place: list[int] = []
        most = max(1, min(MAX_GROUP, round(GROUP_S / (sum(typical) * runs))))
        for its in bound:
            its.check.start()
        start = time.monotonic()
        stop = False
        while not stop:
            group = self.random.randint((most + 1) // 2, most)
            for turn in self.random.sample(range(places), places):
                device.use_stream(turn)
                if runs > 1:
                    for at, (one, its) in enumerate(zip(loaded, bound, strict=True)):
                        with _blaming(at):
                            self._stop_anywhere(one, its, turn, runs, befores[at][turn])
                for left in range(group - 1, -1, -1):
                    for at in self.random.sample((0, 1), 2):
                        site = bound[at].sites[turn]
                        samples[at].append(device.sample(site.works(runs), settings.cache, befores[at][turn]))
                        if settings.cache == "cold" or left == 0:  # a look at the output is none at warm caches
                            with _blaming(at):
                                self._raise_if_sample_wrong(bound[at].check.timed(site), len(samples[at]), site)
                    of_place.append(turn)
                clock.look(len(of_place))
                elapsed = time.monotonic() - start
                # Every place has its say or, where time is up, every set of inputs.
                if elapsed >= settings.max_time and {id(bound[0].sites[at].inputs) for at in of_place} == inputs:
                    break
            stop = settled(*samples, elapsed, settings)
            self.of(0)("timing", min(elapsed / max(settings.min_time, 1e-9), 1.0))

        device.use_stream(0)
        clocks, clock_after = clock.beside(len(of_place))
        notes: list[list[Warning]] = []
        of_set = [bound[0].sites[place].inputs.problem.seed for place in of_place]
        kept = [*range(len(of_place))]
        for at in (0, 1):
            slower, said = slower_inputs(samples[at], of_set)
            notes.append(said)
            # The pairs of the slower inputs count, for both.
            chosen = set(slower)
            kept = [pair for pair in kept if pair in chosen] or kept
        at_places = [of_place[pair] for pair in kept]
        found = []
        for at in (0, 1):
            of_kept = [samples[at][pair] for pair in kept]
            of_clock = [clocks[pair] for pair in kept] if clocks else ()
            timing = stats.summarize(of_kept, settings.cache, runs, places, at_places, of_clock)
            notes[at] += timing_warnings(timing, elapsed, settings, device.other_processes())
            if clock.first and clock_after and clock_after < clock.first * (1 - CLOCK_DROP):
                notes[at].append(warning("clocks", before=clock.first, after=clock_after))
            found.append((timing, notes[at]))
        return found

    def _leave_outputs(self, loaded: Loaded, bound: Bound) -> None:
        """Take one more sample of a kernel at each site, which does not count, for the last looks."""
        befores = self._befores(loaded, bound)
        for turn, site in enumerate(bound.sites):
            self.device.use_stream(turn)
            self.device.sample([site.work], self.settings.cache, befores[turn])
        self.device.use_stream(0)


class _Wrong(Exception):
    """The output of a timed sample is wrong: of which kernel, and why."""

    def __init__(self, at: int, why: WrongOutput) -> None:
        super().__init__(why.reason)
        self.at, self.why = at, why


@contextmanager
def _blaming(at: int) -> Iterator[None]:
    """Say of which kernel an output is wrong."""
    try:
        yield
    except WrongOutput as wrong:
        raise _Wrong(at, wrong) from None


def _stopped(results: Sequence[Result], at: int, found: Result) -> list[Result]:
    """Return the results where the one at `at` ended the measurement."""
    other = replace(
        results[1 - at], status="skipped", time=None, reason=f"not timed, because the other side is {found.status}"
    )
    return [found, other] if at == 0 else [other, found]


def _code(loaded: Loaded) -> tuple[object, ...] | None:
    """Return what decides a kernel's time besides the card: instructions, data, resources, launches. Kernels whose code
    is not known are the same as none."""
    case = loaded.case
    if not loaded.images:
        return (id(loaded),)
    hidden = (case.source.name, *(f"{folder}/" for folder in case.source.folders))
    return (
        [cubin.code_sha256(image.cubin, [kernel.entry for kernel in image.kernels]) for image in loaded.images],
        [cubin.data_sha256(image.cubin, hidden) for image in loaded.images],
        (loaded.result.registers, loaded.result.local_bytes, loaded.result.shared_bytes),
        [(one.grid, one.block, repr(one.arguments), one.shared_bytes, one.cluster) for one in case.launches],
        dict(case.constants),
    )


def measure(run: Run, always: bool = False) -> tuple[Result, Result]:
    """Measure the two cases of a run's only series and return their results, old first.

    Where the process with the GPU is lost, the one that it ran has failed, and the other is 'skipped'.
    """
    found: dict[int, Result] = {}
    with closing(run.pair(always)) as events:
        for event in events:
            if isinstance(event, Finished):
                found[event.at or 0] = event.result
    if len(found) == 1:
        ((at, result),) = found.items()
        other = describe(run.outcomes[0].series.cases[1 - at], result.device)
        old, new = _stopped([other, other], at, result)
    else:
        old, new = found[0], found[1]
    run.finish()
    return old, new
