"""Takes samples (timed runs) of a kernel and a copy, or of two kernels, until there are enough.

A place is one allocation of all buffers (see `buffers`). The places are visited in random order; at each visit a random
number of samples (a group) is taken. With one kernel, a copy of as many bytes is timed too. Two kernels use the same
buffers, so that both have the same inputs, addresses and streams. Their samples are taken in pairs, in random order
within each pair, so that clocks, temperature and other users of the card affect both kernels in the same way. Between
two samples all written buffers are poisoned or restored, and every output is verified.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cudabench.devices.protocol import Work
from cudabench.measure.outputs import ELSEWHERE, Site, WrongOutput
from cudabench.records.plan import Settings
from cudabench.records.results import DeviceInfo, Result, Timing, Warning
from cudabench.results import stats
from cudabench.results.warnings import warning

if TYPE_CHECKING:
    from cudabench.measure.gpu_run import GpuRun, Subject

# Seconds for a group of samples of the kernel or of the copy. The groups alternate, and each change costs a sample with
# cold caches.
GROUP_S = 2e-3
MAX_GROUP = 16
# After a visit to a place, digests of the place's outputs are stored: always for the first ALWAYS_LEFT visits, then on
# average for one visit in ONE_LEFT_IN.
ALWAYS_LEFT, ONE_LEFT_IN = 4, 4
CLOCK_DROP = 0.05  # a warning is given if the clock falls by more than this share
RELATIVE_CI = 0.005  # sampling stops when the confidence interval is narrower than this share of the median
WARM_UP_S = 0.15
# The warm-up ends when a group of samples is at most this share faster than the earlier groups, because then the clocks
# no longer rise.
WARM_UP_STEADY = 0.01
# Seconds of a sample with hot caches. With this length, the first and the last launch change the mean by less than 1%.
HOT_SAMPLE_S = 2e-3
MAX_HOT_RUNS = 400  # the most launches that can wait in a blocked stream
# There is a warning that the L2 may help if a kernel's arrays are smaller than this many times the L2. Measurements
# with arrays of 2 to 4 times the L2 showed no effect.
L2_ASSISTED = 4
DISPERSION = 0.05  # a warning is given if the samples vary by more than this
INPUTS_DIFFER = 0.05  # if the medians for two sets of inputs differ by more than this share, noise is not the reason
FEWEST_OF_A_SET = 5  # the medians are compared only if each set of inputs has at least this many samples
CLOCK_EVERY_S = 0.02  # NVML itself updates the clock only once in this many seconds
CLOCK_SHARE = 0.02  # reading the clock may take at most this share of the time


class Sampler:
    """Samples one or two kernels of a run at all places.

    These fields are set after `sample`: `timings`, for each kernel (timing, warnings about the timing); `copy`, the
    timing of the copy or None; `of_place`, for each sample the number of its place.
    """

    def __init__(self, run: GpuRun, subjects: Sequence[Subject]) -> None:
        self.run, self.device, self.settings = run, run.device, settings_until(run.settings, run.until)
        self.subjects, self.sites, self.pair = subjects, subjects[0].sites, len(subjects) > 1
        for subject in subjects:
            subject.untimed_works, subject.samples = run.untimed_works(subject), []
        self.copies_of = [None if self.pair else site.buffers.copy() for site in self.sites]
        self.runs = self.copy_runs = 1
        self.of_place: list[int] = []
        self.copies: list[float] = []
        self.watched = len(self.sites) > 1 and not self.pair and not subjects[0].case.source.builtin
        self.visits: Counter[int] = Counter()
        # For each place: digests of the outputs after the last samples there.
        self.left: dict[int, tuple[int, ...]] = {}

    def sample(self) -> None:
        """Warm up and sample. Raises WrongOutput if a sample's output is wrong."""
        self._warm_up_all()
        self.clock = SmClock(self.device.sm_clock_mhz)
        for subject in self.subjects:
            subject.check.start()
        self._sample_until_enough()
        self.device.use_stream(0)
        self._check_other_places(range(len(self.sites)))
        self.timings = self._timings()
        places = len(self.sites)
        self.copy = stats.summarize(self.copies, self.settings.cache, self.copy_runs, places) if self.copies else None

    def _warm_up_all(self) -> None:
        """Run the kernels and the copy until the card's clocks have risen, and set the launches of a sample, `runs`."""
        hot = self.settings.cache == "hot"
        budget_s = WARM_UP_S if self.settings.max_time else 0.0
        for subject in self._each_subject():
            self.run.poison_other_places(subject, 0)
            subject.typical = self._warm_up(subject.sites[0].work, subject.untimed_works[0], budget_s)
        if hot and all(subject.may_repeat() for subject in self.subjects):
            self.runs = hot_runs(min(subject.typical for subject in self.subjects))
        for subject in self._each_subject() if self.runs > 1 else ():
            if self._check_rotated_inputs(subject):
                self.run.poison_other_places(subject, 0)
                # The card was idle while the host computed the references, so warm it up again.
                self._warm_up(subject.sites[0].work, subject.untimed_works[0], WARM_UP_S)
        if self.copies_of[0] is not None:
            typical = self._warm_up(self.copies_of[0], (), budget_s / 5)
            self.copy_runs = hot_runs(typical) if hot else 1

    def _each_subject(self, order: Sequence[int] = ()) -> Iterator[Subject]:
        for at in order or range(len(self.subjects)):
            self.run.at = at
            yield self.subjects[at]

    def _warm_up(self, work: Work, before: Sequence[Work], budget_s: float) -> float:
        def sample() -> float:
            self.run.progress("warming up", 0)
            return self.device.sample([work], self.settings.cache, before)

        return warm_up(sample, budget_s)

    def _sample_until_enough(self) -> None:
        settings, random = self.settings, self.run.random
        most = max(1, min(MAX_GROUP, round(GROUP_S / (sum(subject.typical for subject in self.subjects) * self.runs))))
        inputs = {id(site.inputs) for site in self.sites}
        first, *second = [subject.samples for subject in self.subjects]
        if second:
            from cudabench.results.ab import enough_pairs
        start = time.monotonic()
        self.run.at = 0
        self.run.progress("timing", 0)
        stop = False
        while not stop:
            group = random.randint((most + 1) // 2, most)
            for place in random.sample(range(len(self.sites)), len(self.sites)):
                self._sample_group(place, group)
                self.elapsed = time.monotonic() - start
                # Visit every place. If the time is over, stop as soon as each set of inputs was used at least once,
                # since a kernel may be made for only one of the sets.
                reached = {id(self.sites[at].inputs) for at in self.of_place}
                if self.elapsed >= settings.max_time and reached == inputs:
                    break
            elapsed = self.elapsed
            stop = enough_pairs(first, second[0], elapsed, settings) if second else is_enough(first, elapsed, settings)
            self.run.at = 0
            self.run.progress("timing", min(self.elapsed / max(settings.min_time, 1e-9), 1.0))

    def _sample_group(self, place: int, group: int) -> None:
        """Take `group` samples of each kernel and of the copy at a place, and check their outputs.

        Raises WrongOutput if an output is wrong.
        """
        run, cache = self.run, self.settings.cache
        self.device.use_stream(place)
        noted_places = [at for at in self.left if at != place and self.sites[at].inputs is self.sites[place].inputs]
        self._check_other_places([place, *noted_places])
        self.run.poison_other_places(self.subjects[0], place)
        self.left |= {noted_place: self._output_digests(noted_place) for noted_place in noted_places}
        if (copy := self.copies_of[place]) is not None:
            self.copies += [self.device.sample([copy] * self.copy_runs, cache) for _ in range(group)]
        for subject in self._each_subject() if self.runs > 1 else ():
            self._check_random_stop(subject, place)
        for remaining in range(group - 1, -1, -1):
            for subject in self._each_subject(run.random.sample((0, 1), 2) if self.pair else (0,)):
                site = subject.sites[place]
                subject.samples.append(self.device.sample(site.works(self.runs), cache, subject.untimed_works[place]))
                # With hot caches only the output of the last sample is checked, because the check itself changes the
                # cache.
                if (cache == "cold" or remaining == 0) and (wrong := subject.check.check_sample(site)):
                    inputs = "" if run.inputs_are_fixed else f" (inputs of --seed {site.inputs.problem.seed})"
                    number = len(subject.samples)
                    raise WrongOutput.of(wrong, f"timed sample {number}{inputs}: ", samples=number)
            self.of_place.append(place)
        self.visits[place] += 1
        if self.watched and (self.visits[place] <= ALWAYS_LEFT or not run.random.randrange(ONE_LEFT_IN)):
            self.left[place] = self._output_digests(place)
        self.clock.read_if_due(len(self.of_place))

    def _output_digests(self, place: int) -> tuple[int, ...]:
        buffers = self.sites[place].buffers
        return buffers.digests(buffers.writable)

    def _check_other_places(self, places: Iterable[int]) -> None:
        """Raise WrongOutput if the outputs at these places have changed since their digests were stored: launches at
        other places wrote to them. Digests are stored after random visits, which a kernel cannot predict."""
        if any(self.left.pop(place) != self._output_digests(place) for place in places if place in self.left):
            raise WrongOutput(f"the kernel wrote {ELSEWHERE}")

    def _rotated_site(self, subject: Subject, site: Site) -> Site | None:
        """Return the site with rotated inputs (see `buffers`) if outputs for rotated inputs can be verified; else
        None."""
        return site.rotated if self.run.operation.rotatable and not subject.case.source.builtin else None

    def _check_rotated_inputs(self, subject: Subject) -> bool:
        """Run a user's kernel once on each set of rotated inputs, and compare the outputs in full, so that later checks
        can use digests. Return whether there are rotated inputs.

        Raises WrongOutput if an output is wrong.
        """
        self.run.progress("verifying", 0)
        rotated = {
            place: rotated_site
            for place, site in enumerate(subject.sites)
            if (rotated_site := self._rotated_site(subject, site))
        }
        for place in {id(site.inputs): place for place, site in rotated.items()}.values():
            self.run.launch(subject, place, rotated=True)
            self.run.raise_if_wrong(subject, subject.check.compare_in_full(rotated[place], "before")[0])
        return bool(rotated)

    def _check_random_stop(self, subject: Subject, place: int) -> None:
        """Run an untimed sample with a random number of launches, the last one on randomly chosen inputs, and verify
        its output.

        Only the last launch of a sample leaves an output to verify. If a kernel could tell from its addresses, or from
        a counter in its output, that a launch is not the last one, it could skip the work.

        Raises WrongOutput if the output is wrong.
        """
        if subject.case.source.builtin:
            return
        site = subject.sites[place]
        last = self.run.random.choice([site, self._rotated_site(subject, site) or site])
        launches = self.run.random.randint(1, self.runs)
        self.device.sample(site.works(launches, last), self.settings.cache, subject.untimed_works[place])
        if wrong := subject.check.check_sample(last):
            raise WrongOutput.of(wrong, f"the last of {launches} launches back to back: ")

    def _timings(self) -> list[tuple[Timing, list[Warning]]]:
        """Return (timing, warnings about it) for each kernel."""
        clocks, clock_after = self.clock.clock_of_samples(len(self.of_place))
        of_set = [self.sites[place].inputs.problem.seed for place in self.of_place]
        chosen = [slower_inputs(subject.samples, of_set) for subject in self.subjects]
        counted = [*range(len(self.of_place))]
        # Use only the samples on the slower inputs; for a pair of kernels, only samples on the slower inputs of both.
        for slower, _ in chosen:
            counted = sorted({*counted} & {*slower}) or counted
        timings = []
        for subject, (_, warnings) in zip(self.subjects, chosen, strict=True):
            timing = stats.summarize(
                [subject.samples[at] for at in counted],
                self.settings.cache,
                self.runs,
                len(self.sites),
                [self.of_place[at] for at in counted],
                [clocks[at] for at in counted] if clocks else (),
            )
            warnings += timing_warnings(timing, self.elapsed, self.settings, self.device.other_processes())
            if self.clock.first and clock_after and clock_after < self.clock.first * (1 - CLOCK_DROP):
                warnings.append(warning("clocks", before=self.clock.first, after=clock_after))
            timings.append((timing, warnings))
        return timings


# Clock, end of sampling, warm-up, warnings ---------------------------------------------------------------------------


class SmClock:
    """Readings of the SM clock in MHz, taken between samples and never while one is timed.

    `read`: the device's function that reads the clock. It is called every CLOCK_EVERY_S seconds, or less often if
    reading would take more than CLOCK_SHARE of the time. `first`: the first reading, None if the clock is unknown.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._readings: list[tuple[int, int]] = []  # (number of samples before the reading, clock)
        self._next = 0.0
        self.first = self._take_reading(0)

    def read_if_due(self, samples: int) -> None:
        """Read the clock if the last reading is old enough. `samples`: how many samples have been taken so far."""
        if self.first is not None and time.monotonic() >= self._next:
            self._take_reading(samples)

    def clock_of_samples(self, samples: int) -> tuple[tuple[int, ...], int | None]:
        """Return (the clock of each sample, the clock now). The clock of a sample is the first reading after it.

        If the clock is unknown, return ((), None).
        """
        last = self._take_reading(samples) if self.first is not None else None
        if last is None:
            return (), None
        sample_counts, clocks = (np.array(column) for column in zip(*self._readings, strict=True))
        return tuple(map(int, clocks[np.searchsorted(sample_counts, np.arange(samples), side="right")])), last

    def _take_reading(self, samples: int) -> int | None:
        start = time.monotonic()
        clock = self._read()
        end = time.monotonic()
        self._next = end + max(CLOCK_EVERY_S, (end - start) / CLOCK_SHARE)
        if clock is not None:
            self._readings.append((samples, clock))
        return clock


def settings_until(settings: Settings, until: float | None) -> Settings:
    """Return the settings with sampling times so short that sampling ends at the time.monotonic() `until`."""
    if until is None:
        return settings
    remaining = max(until - time.monotonic(), 0.0)
    return replace(settings, max_time=min(settings.max_time, remaining), min_time=min(settings.min_time, remaining))


def is_enough(samples: Sequence[float], elapsed: float, settings: Settings) -> bool:
    """Return whether to stop sampling: if the 95% confidence interval of the median is narrower than 0.5% of the median
    (but not before min_samples and min_time), or if max_time is over.

    `elapsed`: the wall-clock time of sampling so far, with cache flushes and copies.
    """
    sampled_enough = len(samples) >= settings.min_samples and elapsed >= settings.min_time
    return elapsed >= settings.max_time or (sampled_enough and stats.relative_ci(samples) < RELATIVE_CI)


def warm_up(sample: Callable[[], float], budget_s: float = WARM_UP_S) -> float:
    """Call `sample` until the card's clocks have risen, and return the typical time of a sample in seconds.

    The clocks of an idle card rise within tens of milliseconds of work. The warm-up ends when a group of samples is at
    most 1% faster than earlier groups and `budget_s` of wall-clock time has passed, or after ten times `budget_s`.
    """
    start = time.monotonic()
    fastest = float("inf")
    per_group = 5 if sample() < budget_s / 10 else 1
    while True:
        group = float(np.median([sample() for _ in range(per_group)]))
        elapsed = time.monotonic() - start
        steady = group > fastest * (1 - WARM_UP_STEADY)
        if (steady and elapsed >= budget_s) or elapsed >= 10 * budget_s:
            return group
        fastest = min(group, fastest)


def hot_runs(typical_s: float) -> int:
    """Return how many launches in a row a hot sample has, one or an even number, if a launch takes `typical_s`."""
    return 2 * max(1, min(MAX_HOT_RUNS // 2, round(HOT_SAMPLE_S / typical_s / 2))) if typical_s < HOT_SAMPLE_S else 1


def slower_inputs(samples: Sequence[float], of_set: Sequence[int]) -> tuple[list[int], list[Warning]]:
    """Return (indices of the samples to use, warnings). If the kernel is clearly faster on one set of inputs, only the
    samples on the slower set are used, and there is a warning.

    Both sets have the same distribution, so a kernel that is faster on one of them has been made for these inputs.
    `of_set`: for each sample, the seed of its set of inputs.
    """
    by_set = {key: [s for s, seed in zip(samples, of_set, strict=True) if seed == key] for key in dict.fromkeys(of_set)}
    indices = list(range(len(samples)))
    ranked = sorted(by_set.items(), key=lambda item: float(np.median(item[1])))
    (fast, fast_samples), (slow, slow_samples) = ranked[0], ranked[-1]
    ratio = float(np.median(slow_samples) / np.median(fast_samples))
    if len(ranked) < 2 or min(len(fast_samples), len(slow_samples)) < FEWEST_OF_A_SET or ratio < 1 + INPUTS_DIFFER:
        return indices, []
    return [at for at in indices if of_set[at] == slow], [warning("inputs", slow=slow, fast=fast, ratio=ratio)]


def timing_warnings(
    timing: Timing, elapsed: float, settings: Settings, other_processes: Sequence[str] = ()
) -> list[Warning]:
    """Return the warnings about a kernel's samples. `elapsed`: the time of sampling. `other_processes`: the processes
    that also use the GPU."""
    notes = [warning("shared-gpu", others=", ".join(other_processes))] if other_processes else []
    spread, suspects = stats.dispersion(timing), ", ".join(other_processes) or "something else"
    if spread > DISPERSION:
        notes.append(warning("dispersion", spread=spread, min_time=settings.min_time, other=suspects))
    if timing.relative_ci >= RELATIVE_CI and elapsed >= settings.max_time:
        notes.append(warning("imprecise", elapsed=elapsed, known=timing.relative_ci, wanted=RELATIVE_CI))
    return notes


def scale_warnings(result: Result, info: DeviceInfo, larger: str = "a larger --size") -> list[Warning]:
    """Return the warnings that caches may have improved the figures of a result. `larger`: the option that gives a
    larger problem."""
    if result.peak_fraction is not None and result.peak_fraction > 1:
        return [warning("over-peak", bandwidth=result.bandwidth_gbps, fraction=result.peak_fraction, larger=larger)]
    footprint = result.footprint_over_l2
    if footprint is None or footprint >= L2_ASSISTED or not info.l2_bytes:
        return []
    share = f"{footprint:.2g} times" if footprint >= 0.01 else "less than a hundredth of"
    return [warning("l2-assisted", share=share, l2_mib=info.l2_bytes / 2**20, larger=larger, enough=L2_ASSISTED)]
