"""Samples of a kernel beside those of a copy, or of two kernels in turn, until they are enough.

Samples come in groups of random length at places of the memory in random order. Beside one kernel a copy of the same
bytes is timed. Two kernels are bound to the same buffers, so that inputs, addresses and streams are the same: what
differs between them is the kernels. Their samples come in pairs, in an order drawn anew for each. What clocks,
temperature and neighbours do to the card falls on both alike, and what comes first in a pair says nothing. Between two
samples all that kernels write is poisoned or set back, and every output is held against the reference.
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
from cudabench.records.planned import Settings
from cudabench.records.results import DeviceInfo, Result, Timing, Warning
from cudabench.results import stats
from cudabench.results.warnings import warning

if TYPE_CHECKING:
    from cudabench.measure.gpu_run import GpuRun, Subject

GROUP_S = 2e-3  # kernel and copy take turns in groups of this length: each change costs a sample its warm caches
MAX_GROUP = 16
ALWAYS_LEFT, ONE_LEFT_IN = 4, 4  # turns of a place after which its outputs are noted: the first, then one in some
CLOCK_DROP = 0.05
RELATIVE_CI = 0.005  # of the median: the precision at which sampling stops
WARM_UP_S = 0.15
WARM_UP_STEADY = 0.01  # successive groups that differ less than this are warm
HOT_SAMPLE_S = 2e-3  # back-to-back runs fill this, so that what the first and the last do alone is under a percent
MAX_HOT_RUNS = 400  # as many launches as can wait behind a blocked stream
L2_ASSISTED = 4  # footprint over L2 under which the cache helps (measured: gone at 2 to 4 times)
DISPERSION = 0.05
INPUTS_DIFFER = 0.05  # medians of two sets of inputs that differ by more are two levels, not noise
FEWEST_OF_A_SET = 5
CLOCK_EVERY_S = 0.02  # NVML itself looks at the clock no oftener
CLOCK_SHARE = 0.02


class Sampler:
    """Samples of the kernels of a run, one or two, which are bound to its places. `timings`, each with its warnings,
    and `copy` are what came of them."""

    def __init__(self, run: GpuRun, own: Sequence[Subject]) -> None:
        self.run, self.device, self.settings = run, run.device, shortened(run.settings, run.until)
        self.own, self.sites, self.pair = own, own[0].sites, len(own) > 1
        for subject in own:
            subject.befores, subject.samples = run.befores(subject), []
        self.copies_of = [None if self.pair else site.buffers.copy() for site in self.sites]
        self.runs = self.copy_runs = 1
        self.of_place: list[int] = []
        self.copies: list[float] = []
        self.watched = len(self.sites) > 1 and not self.pair and not own[0].case.source.builtin
        self.visits: Counter[int] = Counter()
        self.left: dict[int, tuple[int, ...]] = {}  # digests of what samples left at a place

    def sample(self) -> None:
        """Warm up and sample; WrongOutput where a sample's output is wrong."""
        self._warm_up_all()
        self.clock = SmClock(self.device.sm_clock_mhz)
        for subject in self.own:
            subject.check.start()
        self._until_enough()
        self.device.use_stream(0)
        self._check_touched(range(len(self.sites)))
        self.timings = self._timings()
        places = len(self.sites)
        self.copy = stats.summarize(self.copies, self.settings.cache, self.copy_runs, places) if self.copies else None

    def _warm_up_all(self) -> None:
        """Have the clocks up, and find how many runs make a sample."""
        hot = self.settings.cache == "hot"
        budget_s = WARM_UP_S if self.settings.max_time else 0.0
        for subject in self._in_turn():
            self.run.alone(subject, 0)
            subject.typical = self._warm_up(subject.sites[0].work, subject.befores[0], budget_s)
        if hot and all(subject.may_repeat() for subject in self.own):
            self.runs = hot_runs(min(subject.typical for subject in self.own))
        for subject in self._in_turn() if self.runs > 1 else ():
            if self._first_rotated_runs(subject):
                self.run.alone(subject, 0)
                # Again: the references took their time.
                self._warm_up(subject.sites[0].work, subject.befores[0], WARM_UP_S)
        if self.copies_of[0] is not None:
            typical = self._warm_up(self.copies_of[0], (), budget_s / 5)
            self.copy_runs = hot_runs(typical) if hot else 1

    def _in_turn(self, order: Sequence[int] = ()) -> Iterator[Subject]:
        for at in order or range(len(self.own)):
            self.run.at = at
            yield self.own[at]

    def _warm_up(self, work: Work, before: Sequence[Work], budget_s: float) -> float:
        def sample() -> float:
            self.run.progress("warming up", 0)
            return self.device.sample([work], self.settings.cache, before)

        return warm_up(sample, budget_s)

    def _until_enough(self) -> None:
        settings, random = self.settings, self.run.random
        most = max(1, min(MAX_GROUP, round(GROUP_S / (sum(subject.typical for subject in self.own) * self.runs))))
        inputs = {id(site.inputs) for site in self.sites}
        first, *second = [subject.samples for subject in self.own]
        if second:
            from cudabench.results.ab import enough_pairs
        start = time.monotonic()
        self.run.at = 0
        self.run.progress("timing", 0)
        stop = False
        while not stop:
            group = random.randint((most + 1) // 2, most)
            for place in random.sample(range(len(self.sites)), len(self.sites)):
                self._group(place, group)
                self.elapsed = time.monotonic() - start
                # Every place has its say or, where time is up, every set of inputs: a kernel may know one of them.
                reached = {id(self.sites[at].inputs) for at in self.of_place}
                if self.elapsed >= settings.max_time and reached == inputs:
                    break
            elapsed = self.elapsed
            stop = enough_pairs(first, second[0], elapsed, settings) if second else enough(first, elapsed, settings)
            self.run.at = 0
            self.run.progress("timing", min(self.elapsed / max(settings.min_time, 1e-9), 1.0))

    def _group(self, place: int, group: int) -> None:
        """Take a group of samples of everything at a place."""
        run, cache = self.run, self.settings.cache
        self.device.use_stream(place)
        noted = [at for at in self.left if at != place and self.sites[at].inputs is self.sites[place].inputs]
        self._check_touched([place, *noted])
        self.run.alone(self.own[0], place)
        self.left |= {other: self._written(other) for other in noted}
        if (copy := self.copies_of[place]) is not None:
            self.copies += [self.device.sample([copy] * self.copy_runs, cache) for _ in range(group)]
        for subject in self._in_turn() if self.runs > 1 else ():
            self._check_random_stop(subject, place)
        for left in range(group - 1, -1, -1):
            for subject in self._in_turn(run.random.sample((0, 1), 2) if self.pair else (0,)):
                site = subject.sites[place]
                subject.samples.append(self.device.sample(site.works(self.runs), cache, subject.befores[place]))
                # With hot caches only the last output is checked: a look would cool the cache.
                if (cache == "cold" or left == 0) and (found := subject.check.check_sample(site)):
                    inputs = "" if run.fixed else f" (inputs of --seed {site.inputs.problem.seed})"
                    number = len(subject.samples)
                    raise WrongOutput.of(found, f"timed sample {number}{inputs}: ", samples=number)
            self.of_place.append(place)
        self.visits[place] += 1
        if self.watched and (self.visits[place] <= ALWAYS_LEFT or not run.random.randrange(ONE_LEFT_IN)):
            self.left[place] = self._written(place)
        self.clock.read_if_due(len(self.of_place))

    def _written(self, place: int) -> tuple[int, ...]:
        buffers = self.sites[place].buffers
        return buffers.digests(buffers.written)

    def _check_touched(self, places: Iterable[int]) -> None:
        """Raise WrongOutput where launches at other places wrote to one of these: before a place's next turn nothing
        but the kernel has been at work there. What lies there is noted at turns that a kernel cannot know."""
        if any(self.left.pop(place) != self._written(place) for place in places if place in self.left):
            raise WrongOutput(f"the kernel wrote {ELSEWHERE}")

    def _rotated(self, subject: Subject, site: Site) -> Site | None:
        """Return the site whose inputs begin later, where what a kernel makes of them can be looked at."""
        return site.rotated if self.run.operation.rotatable and not subject.case.source.builtin else None

    def _first_rotated_runs(self, subject: Subject) -> bool:
        """Run a kernel of the user's once on each set of inputs that begin later, so that later looks are by digest,
        and tell whether there are any; WrongOutput where an output is wrong."""
        self.run.progress("verifying", 0)
        rotated = {place: found for place, site in enumerate(subject.sites) if (found := self._rotated(subject, site))}
        for place in {id(site.inputs): place for place, site in rotated.items()}.values():
            self.run.launch(subject, place, rotated=True)
            self.run.raise_if_wrong(subject, subject.check.in_full(rotated[place], "before")[0])
        return bool(rotated)

    def _check_random_stop(self, subject: Subject, place: int) -> None:
        """Run a sample that does not count and ends after a launch that nobody can foresee, on either inputs, and hold
        what that one leaves against the reference; WrongOutput where it is wrong.

        Of a sample of many launches only the last one's output is left to look at: a kernel that tells that it is not
        the last one, by where its inputs begin or by a count that it keeps in its output, could be idle in all others.
        """
        if subject.case.source.builtin:
            return
        site = subject.sites[place]
        last = self.run.random.choice([site, self._rotated(subject, site) or site])
        launches = self.run.random.randint(1, self.runs)
        self.device.sample(site.works(launches, last), self.settings.cache, subject.befores[place])
        if found := subject.check.check_sample(last):
            raise WrongOutput.of(found, f"the last of {launches} launches back to back: ")

    def _timings(self) -> list[tuple[Timing, list[Warning]]]:
        """Return what the samples of each kernel say, and what they say against themselves."""
        clocks, clock_after = self.clock.beside(len(self.of_place))
        of_set = [self.sites[place].inputs.problem.seed for place in self.of_place]
        chosen = [slower_inputs(subject.samples, of_set) for subject in self.own]
        kept = [*range(len(self.of_place))]
        for slower, _ in chosen:  # the samples on the slower inputs count: of a pair's for both
            kept = sorted({*kept} & {*slower}) or kept
        found = []
        for subject, (_, warnings) in zip(self.own, chosen, strict=True):
            timing = stats.summarize(
                [subject.samples[at] for at in kept],
                self.settings.cache,
                self.runs,
                len(self.sites),
                [self.of_place[at] for at in kept],
                [clocks[at] for at in kept] if clocks else (),
            )
            warnings += timing_warnings(timing, self.elapsed, self.settings, self.device.other_processes())
            if self.clock.first and clock_after and clock_after < self.clock.first * (1 - CLOCK_DROP):
                warnings.append(warning("clocks", before=self.clock.first, after=clock_after))
            found.append((timing, warnings))
        return found


# When to stop, when clocks are up, what samples say against themselves ------------------------------------------------


class SmClock:
    """The SM clock beside a kernel's samples, in MHz: read between them, never within a timed region.

    `read` is the device's. It is asked every CLOCK_EVERY_S, or as seldom as keeps what it takes under CLOCK_SHARE of
    the time, so that reading does not load the card.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._readings: list[tuple[int, int]] = []  # how many samples were taken before, and the clock
        self._next = 0.0
        self.first = self._ask(0)

    def read_if_due(self, samples: int) -> None:
        """Read the clock after so many samples, if it is time to."""
        if self.first is not None and time.monotonic() >= self._next:
            self._ask(samples)

    def beside(self, samples: int) -> tuple[tuple[int, ...], int | None]:
        """Return the clock beside each of all samples, the first reading after it, and the one at the end, which is
        taken now; () and None where the device does not tell."""
        last = self._ask(samples) if self.first is not None else None
        if last is None:
            return (), None
        taken, clocks = (np.array(column) for column in zip(*self._readings, strict=True))
        return tuple(map(int, clocks[np.searchsorted(taken, np.arange(samples), side="right")])), last

    def _ask(self, samples: int) -> int | None:
        start = time.monotonic()
        clock = self._read()
        end = time.monotonic()
        self._next = end + max(CLOCK_EVERY_S, (end - start) / CLOCK_SHARE)
        if clock is not None:
            self._readings.append((samples, clock))
        return clock


def shortened(settings: Settings, until: float | None) -> Settings:
    """Return settings that sample no longer than until an instant, but long enough for the fewest samples."""
    if until is None:
        return settings
    left = max(until - time.monotonic(), 0.0)
    return replace(settings, max_time=min(settings.max_time, left), min_time=min(settings.min_time, left))


def enough(samples: Sequence[float], elapsed: float, settings: Settings) -> bool:
    """Tell whether to stop: at least min_samples, min_time and a 95% interval of the median under 0.5%; or max_time.

    Times are of the clock on the wall, flushes and copies included.
    """
    many = len(samples) >= settings.min_samples and elapsed >= settings.min_time
    return elapsed >= settings.max_time or (many and stats.relative_ci(samples) < RELATIVE_CI)


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
    """Return how many back-to-back runs make a hot sample that an event resolves: one, or an even number."""
    return 2 * max(1, min(MAX_HOT_RUNS // 2, round(HOT_SAMPLE_S / typical_s / 2))) if typical_s < HOT_SAMPLE_S else 1


def slower_inputs(samples: Sequence[float], of_set: Sequence[int]) -> tuple[list[int], list[Warning]]:
    """Return which samples count, with a warning where one set of inputs is served faster than the other.

    Both sets are drawn alike, so a kernel that is faster on one of them knows its inputs: the slower set counts.
    """
    by_set = {name: [s for s, of in zip(samples, of_set, strict=True) if of == name] for name in dict.fromkeys(of_set)}
    everything = list(range(len(samples)))
    ranked = sorted(by_set.items(), key=lambda item: float(np.median(item[1])))
    (fast, quick), (slow, lasting) = ranked[0], ranked[-1]
    ratio = float(np.median(lasting) / np.median(quick))
    if len(ranked) < 2 or min(len(quick), len(lasting)) < FEWEST_OF_A_SET or ratio < 1 + INPUTS_DIFFER:
        return everything, []
    return [at for at in everything if of_set[at] == slow], [warning("inputs", slow=slow, fast=fast, ratio=ratio)]


def timing_warnings(
    timing: Timing, elapsed: float, settings: Settings, other_processes: Sequence[str] = ()
) -> list[Warning]:
    """Return what the samples say against themselves; `others` are processes that use the GPU besides."""
    notes = [warning("shared-gpu", others=", ".join(other_processes))] if other_processes else []
    spread, other = stats.dispersion(timing), ", ".join(other_processes) or "something else"
    if spread > DISPERSION:
        notes.append(warning("dispersion", spread=spread, min_time=settings.min_time, other=other))
    if timing.relative_ci >= RELATIVE_CI and elapsed >= settings.max_time:
        notes.append(warning("imprecise", elapsed=elapsed, known=timing.relative_ci, wanted=RELATIVE_CI))
    return notes


def scale_warnings(result: Result, info: DeviceInfo, larger: str = "a larger --size") -> list[Warning]:
    """Return what the caches do to the figure."""
    if result.peak_fraction is not None and result.peak_fraction > 1:
        return [warning("over-peak", bandwidth=result.bandwidth_gbps, fraction=result.peak_fraction, larger=larger)]
    footprint = result.footprint_over_l2
    if footprint is None or footprint >= L2_ASSISTED or not info.l2_bytes:
        return []
    share = f"{footprint:.2g} times" if footprint >= 0.01 else "less than a hundredth of"
    return [
        warning("l2-assisted", share=share, l2_mib=info.l2_bytes / 2**20, larger=larger, enough=L2_ASSISTED),
    ]
