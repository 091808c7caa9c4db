"""One kernel, measured: verify, warm up, sample, verify. The device is an argument; nothing here knows PyCUDA.

The protocol. Two sets of inputs, of different seeds, lie at different places of the memory (see `buffers`). At each,
the output is poisoned, the kernel runs, and the output is compared with the reference. A kernel that leaves variables
of its module changed is launched once more, on the other inputs, and must be right again. Then samples of the kernel
and of a copy of the same bytes alternate, in groups of random length at places in random order, so that both see the
same clocks and the same memory. Before every sample, outside the timed window, all that the kernel writes is poisoned
or set back, module variables take their first values, and shared memory and registers are overwritten; after it the
output is held against the reference, by digest (see `outputs`). Last, outputs are compared in full, inputs must be
unchanged, guard zones around the arrays whole, and the time no shorter than the card allows. Sampling ends by the rule
of `enough`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cudabench.devices.protocol import Device, Module, Work
from cudabench.errors import (
    CudabenchError,
    DeviceUnusable,
    UnsupportedFeature,
    UsageError,
)
from cudabench.explain import machine_code
from cudabench.measure import floors, verify
from cudabench.measure.budget import shortened
from cudabench.measure.buffers import BufferSet, lay_out
from cudabench.measure.context import (
    RunContext,
    TurnedInputs,
    arithmetic_warnings,
    constants_of,
    describe,
    kept_sentence,
    launch_warnings,
    other_architecture,
    right_output,
    state_warnings,
    tolerance_warnings,
    unverified_warnings,
    wrong_reason,
)
from cudabench.measure.modules import code_warnings, kept_in_cache, load
from cudabench.measure.outputs import Others, OutputCheck, Site
from cudabench.measure.sampling import (
    WARM_UP_S,
    SmClock,
    enough,
    hot_runs,
    scale_warnings,
    slower_inputs,
    timing_warnings,
    warm_up,
)
from cudabench.measure.state import KernelState
from cudabench.occupancy import capability, check_resident, most_threads, occupancy
from cudabench.records.launch import Launch
from cudabench.records.planned import Case
from cudabench.records.results import Hazard, Result, Timing, Verification, Warning
from cudabench.results import stats
from cudabench.results.warnings import warning

GROUP_S = 2e-3  # kernel and copy take turns in groups of this length: each change costs a sample its warm caches
MAX_GROUP = 16
CLOCK_DROP = 0.05
ELSEWHERE = "outside its arrays, into memory that it was not given in that launch; --device sim names the line"


class WrongOutput(Exception):
    """A result is wrong: why, and what was found; ends the measurement of one kernel."""

    def __init__(self, reason: str, verification: Verification | None = None, hazards: tuple[Hazard, ...] = ()) -> None:
        super().__init__(reason)
        self.reason, self.verification, self.hazards = reason, verification, hazards


@dataclass
class Loaded:
    """A case with its compiled code and what is known of it so far."""

    case: Case
    result: Result
    module: Module
    state: KernelState
    images: Sequence[machine_code.Image]

    def found(self, wrong: WrongOutput) -> Result:
        """Return the result of a kernel that is wrong."""
        return replace(
            self.result,
            status="wrong",
            reason=wrong.reason,
            verification=wrong.verification,
            hazards=wrong.hazards or None,
            state=self.state.kept,
        )


@dataclass
class Bound:
    """A kernel at every place: what its outputs are held against, how its first runs compared, and the digests of what
    it may not write, from before them."""

    sites: list[Site]
    check: OutputCheck
    before: Verification | None
    unwritten: Sequence[tuple[int, ...]]


@dataclass
class GpuRun(RunContext):
    """The kernels of one run on a GPU: inputs in its memory, samples, figures."""

    device: Device
    random: random.Random = field(default_factory=random.Random, kw_only=True)
    _buffer_sets: tuple[BufferSet, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if self.second_seed is None:  # one that a kernel cannot know; a wrong result names it
            self.second_seed = self.random.randrange(1, 2**31)

    def buffer_sets(self) -> tuple[BufferSet, ...]:
        """Return where the buffers lie; OutOfMemory, before anything runs, where they do not fit."""
        self._buffer_sets = self._buffer_sets or lay_out(self.device, self.operation, self.problem)
        return self._buffer_sets

    def release(self) -> None:
        """Free the buffers; they are made anew when they are needed again."""
        for buffer_set in self._buffer_sets:
            buffer_set.release()
        self._buffer_sets = ()

    # One kernel -------------------------------------------------------------------------------------------------

    def measure(self, case: Case) -> Result:
        """Return the result of one case; errors of the compiler, the launch and the kernel become a failed result.

        A kernel for another generation of GPUs is skipped in a ladder; UnsupportedFeature where it was named.
        """
        blank = describe(case, f"cuda:{self.device.info.index}")
        if case.skip_reason:
            return replace(blank, status="skipped", reason=case.skip_reason)
        if reason := other_architecture(case, self.device.info):
            return replace(blank, status="skipped", reason=reason)
        self.buffer_sets()
        self.expected(case.expects)  # an expectation of the user's that cannot be ends the run, not one kernel
        try:
            if self.settings.cpu:
                self.measure_cpu()
            return self._measure(case, blank)
        except UnsupportedFeature as error:
            if case.named:
                raise
            return replace(blank, status="skipped", reason=str(error))
        except CudabenchError as error:
            if case.peer and isinstance(error, DeviceUnusable):  # a library that is not there
                return replace(blank, status="skipped", reason=str(error))
            if isinstance(error, UsageError) and case.named:
                raise
            return replace(blank, status="failed", reason=str(error))

    def _measure(self, case: Case, result: Result) -> Result:
        loaded = self._loaded(case, result)
        try:
            bound = self._bound(loaded)
            timing, copy, notes = self._time(loaded, bound)
            while self._state_missed(loaded):
                timing, copy, notes = self._time(loaded, bound)
            return self._concluded(loaded, bound, timing, copy, notes)
        except WrongOutput as wrong:
            return loaded.found(wrong)
        finally:
            if self.device.alive():
                loaded.state.release()

    @staticmethod
    def _state_missed(loaded: Loaded) -> bool:
        """Tell whether the kernel changed a variable that was not set back before its samples, since no run before them
        had changed it: then they say nothing."""
        loaded.state.look()
        return loaded.state.missed

    def _loaded(self, case: Case, result: Result) -> Loaded:
        """Return the case compiled, with what its code needs in its result. Raises UsageError for a block that does
        not fit, and the errors of the compiler."""
        self.progress("compiling", 0)
        if case.peer:
            return self._loaded_peer(case, result)
        module = load(self.device, case)
        for name, content in case.constants.items():
            module.set_constant(name, content)
        spent = module.resources(case.function)
        shared, threads = spent.shared_bytes + case.dynamic_shared_bytes, case.threads
        result = replace(
            result,
            registers=spent.registers,
            local_bytes=spent.local_bytes,
            shared_bytes=shared,
            occupancy=occupancy(self.device.info.compute_capability, threads, spent.registers, shared),
            inputs="fixed" if self.fixed else "fresh",
        )
        self._check_resident(module, case.launches)
        images = [
            machine_code.Image(cubin, [machine_code.Kernel(entry) for entry in entries])
            for cubin, entries in module.images([launch.function for launch in case.launches])
        ]
        for image in images:
            machine_code.begin(image.cubin)  # beside the measurement
        fixed = self.operation.constant_memory  # which is filled anew for each set of inputs
        variables = [variable for variable in module.variables if variable.name not in fixed]
        return Loaded(case, result, module, KernelState(self.device, variables), images)

    def _check_resident(self, module: Module, launches: Sequence[Launch]) -> None:
        """Raise NoRoom for a launch of which the GPU holds no block, by what the driver says of the function.
        UnsupportedFeature for clusters of blocks on one that has none."""
        has = self.device.info.compute_capability
        if any(launch.cluster for launch in launches) and capability(has) < (9, 0):
            raise UnsupportedFeature(f"clusters of blocks need compute capability 9.0, and this GPU has {has}.")
        kinds = {(launch.function, math.prod(launch.block), launch.shared_bytes) for launch in launches}
        for function, threads, dynamic in sorted(kinds):
            needs, most = module.resources(function), module.max_threads(function)
            bound = most if most < most_threads(needs.registers) else None  # the driver's counts registers too
            shared = needs.shared_bytes + dynamic
            check_resident(function, has, threads, needs.registers, shared, bound=bound)

    def _loaded_peer(self, case: Case, result: Result) -> Loaded:
        """Return a library's call, ready; DeviceUnusable where the library is not there."""
        call = self.device.peer(self.operation.peer(case.peer), self.operation, self.problem)
        result = replace(result, source=call.version, inputs="fixed" if self.fixed else "fresh")
        return Loaded(case, result, call, KernelState(self.device, call.variables), ())

    def _bound(self, loaded: Loaded) -> Bound:
        """Return the kernel bound to every place after its first runs; WrongOutput where one of them is wrong."""
        case = loaded.case
        sites = self._sites(case, loaded.module)
        check = OutputCheck(self.operation, case.expects, self.operation.saves)
        for site in sites:
            copy = site.buffers.copy()
            if copy:
                copy()  # what it writes is the same from now on
        unwritten = [] if case.source.builtin else [site.buffers.digests(_unwritten(site)) for site in sites]
        before = self._first_runs(case, sites, check, loaded.state)
        return Bound(sites, check, before, unwritten)

    def _concluded(
        self, loaded: Loaded, bound: Bound, timing: Timing, copy: Timing | None, notes: Sequence[Warning]
    ) -> Result:
        """Return the result of a timed kernel whose outputs lie at the sites; WrongOutput where a last look says so."""
        case, state, check = loaded.case, loaded.state, bound.check
        self.progress("verifying", 1)
        verification, outputs = self._last_looks(case, bound.sites, check, bound.before)
        if not case.source.builtin:
            self._inputs_unchanged(bound.sites, bound.unwritten)
        self._nothing_outside(case, bound.sites)
        state.look()
        figures = right_output(self.operation, self.problem, self.inputs, outputs)
        notes = [
            *unverified_warnings(verification, self.expected(case.expects), self.operation.buffers(self.problem)),
            *tolerance_warnings(self.expected(case.expects), self.operation.tolerated(case.expects, self.problem)),
            *code_warnings([loaded.module.ptx], {one.entry for image in loaded.images for one in image.kernels}),
            *state_warnings(state.kept),
            *notes,
        ]
        if verification:
            verification = replace(verification, samples=check.samples)
        arch = "sm_" + self.device.info.compute_capability.replace(".", "")
        code = machine_code.describe_all(loaded.images, arch, loaded.module.ptx)
        result = replace(loaded.result, verification=verification, figures=figures, state=state.kept, machine_code=code)
        stored = [buffer.dtype for buffer in self.operation.buffers(self.problem)]
        notes += arithmetic_warnings(code, self.output_type(), verification, stored)
        measured = self._figures(result, case, timing, copy, notes)
        formats = code.arithmetic if code and code.arithmetic else ()
        if case.peer:
            formats = self.operation.peer(case.peer).arithmetic or (self.problem.dtype,)
        fewest = self.operation.least_flops
        least = fewest(self.problem) if fewest else measured.flops
        reason = floors.impossible(timing.median_s, measured.bytes, least, formats, self.device.info)
        if reason:
            raise WrongOutput(reason, verification)
        return measured

    # Verify -----------------------------------------------------------------------------------------------------

    def _sites(self, case: Case, module: Module) -> list[Site]:
        """Return the kernel bound to every place, where the sets of inputs take turns, with the inputs there."""
        places = self.buffer_sets()
        sets = self.input_sets if len(places) > 1 and not self.fixed else self.input_sets[:1]
        poison = self.input_sets[0].poisons(case.expects)
        # What lies in constant memory too stays as it is there.
        read_only = {b.name for b in places[0].buffers if b.role == "in"} - {*self.operation.constant_memory.values()}
        drawn = read_only & self.drawn  # of what the user fixed, a rotated row of indices could lead anywhere
        later = {
            id(inputs): TurnedInputs(self.operation, inputs.problem, base=inputs, names=frozenset(drawn))
            for inputs in sets
        }
        sites = []
        for at, place in enumerate(places):
            inputs = sets[at % len(sets)]
            place.fill(inputs.arrays)
            contents = constants_of(self.operation, inputs.arrays)
            constants = [partial(module.set_constant, name, content) for name, content in contents.items()]
            turned = None
            if drawn:
                other = self.device.bind(module, case.launches, place.rotated(drawn))
                turned = Site(place, later[id(inputs)], other, None, poison[at % 2], constants)
            work = self.device.bind(module, case.launches, place.addresses)
            sites.append(Site(place, inputs, work, turned, poison[at % 2], constants))
        return sites

    def _first_runs(
        self, case: Case, sites: Sequence[Site], check: OutputCheck, state: KernelState
    ) -> Verification | None:
        """Run the kernel once at every site and return how its outputs compare; WrongOutput where one is wrong."""
        self.progress("running", 0)
        for site in sites:
            self._run(case, site, state)
            state.look()
        self.progress("verifying", 0)
        self._nothing_outside(case, sites)
        first, _ = check.in_full(sites[0], "before")
        for found in (first, *(check.by_digest(site, "before") for site in sites[1:])):
            self._raise_if_wrong(case, found, sites)
        if state.kept and len(sites) > 1:
            # Once more, on other inputs, with what the first launches left.
            for site in (sites[0], sites[1]):
                self._run(case, site, None)
                again = check.by_digest(site, "again")
                if again:
                    raise WrongOutput(f"{wrong_reason(again)}: {kept_sentence(state.kept)}", again)
        return first

    def _run(self, case: Case, site: Site, state: KernelState | None) -> None:
        """Run the kernel once on poisoned outputs; `state` is set back first unless None."""
        for work in (*site.reset(), *(state.reset() if state else ())):
            work()
        self.device.run(site.work, f"running {case.kernel}")

    def _last_looks(
        self, case: Case, sites: Sequence[Site], check: OutputCheck, before: Verification | None
    ) -> tuple[Verification | None, dict[str, np.ndarray]]:
        """Return what all looks say together, with the outputs at the first site; WrongOutput where one is wrong."""
        for site in sites[1:]:
            self._raise_if_wrong(case, check.by_digest(site, "after"), sites)
        after, outputs = check.in_full(sites[0], "after")
        self._raise_if_wrong(case, after, sites)
        return verify.merge(before, after) if before and after else None, outputs

    def _raise_if_wrong(self, case: Case, verification: Verification | None, sites: Sequence[Site]) -> None:
        if verification is None or not verification.mismatches:
            return
        if not case.source.builtin:  # an input that was written into explains a wrong output, not the other way round
            self._inputs_unchanged(sites)
        raise WrongOutput(wrong_reason(verification), verification)

    def _inputs_unchanged(self, sites: Sequence[Site], digests: Sequence[tuple[int, ...]] = ()) -> None:
        """Raise WrongOutput where a kernel wrote into an input; `digests` are of all that it may not write, before."""
        for at, site in enumerate(sites):
            if digests and site.buffers.digests(_unwritten(site)) == digests[at]:
                continue
            for buffer in site.buffers.buffers:
                if buffer.role == "in":
                    found = verify.changed(site.inputs.arrays, site.buffers.download([buffer]))
                    if found:
                        raise WrongOutput(found)
            if digests:
                raise WrongOutput(f"the kernel wrote {ELSEWHERE}")

    def _nothing_outside(self, case: Case, sites: Sequence[Site]) -> None:
        """Raise WrongOutput where a kernel wrote outside an array."""
        for site in sites:
            stray = site.buffers.stray()
            if stray:
                nowhere = (0, 0, 0)
                hazard = Hazard("out-of-bounds", 0, "", nowhere, nowhere, stray.count, str(stray))
                raise WrongOutput(f"{stray}; --device sim names the line", None, (hazard,))

    # Time -------------------------------------------------------------------------------------------------------

    def _time(self, loaded: Loaded, bound: Bound) -> tuple[Timing, Timing | None, list[Warning]]:
        """Return the kernel's timing, the copy's, and warnings; WrongOutput where a timed sample's output is wrong.

        Leaves an output of the kernel at each site.
        """
        device = self.device
        sites, check = bound.sites, bound.check
        befores = self._befores(loaded, bound)
        copies_of = [site.buffers.copy() for site in sites]
        self.progress("warming up", 0)
        settings = shortened(self.settings, self.until)
        first = partial(self._sample, sites[0].work, "warming up", befores[0])
        typical = warm_up(first, budget_s=WARM_UP_S if settings.max_time else 0.0)
        runs = hot_runs(typical) if self.settings.cache == "hot" and may_repeat(loaded, bound) else 1
        if runs > 1 and self._first_turned_runs(loaded, bound):
            warm_up(first)  # again: the references took their time
        copy_runs = 1
        copy_work = copies_of[0]
        if copy_work is not None:
            copy_typical = warm_up(
                lambda: self._sample(copy_work, "warming up"), budget_s=WARM_UP_S / 5 if settings.max_time else 0.0
            )
            copy_runs = hot_runs(copy_typical) if self.settings.cache == "hot" else 1
        clock = SmClock(device.sm_clock_mhz)

        samples: list[float] = []
        of_place: list[int] = []
        copies: list[float] = []
        most = max(1, min(MAX_GROUP, round(GROUP_S / (typical * runs))))
        inputs = {id(site.inputs) for site in sites}
        others = Others(sites, self.random, len(sites) > 1 and not loaded.case.source.builtin)
        check.start()
        start = time.monotonic()
        stop = False
        while not stop:
            group = self.random.randint((most + 1) // 2, most)
            for turn in self.random.sample(range(len(sites)), len(sites)):
                site, copy = sites[turn], copies_of[turn]
                device.use_stream(turn)
                if others.touched([turn]):
                    raise WrongOutput(f"the kernel wrote {ELSEWHERE}")
                if copy is not None:
                    copies += [device.sample([copy] * copy_runs, settings.cache) for _ in range(group)]
                if runs > 1:
                    self._stop_anywhere(loaded, bound, turn, runs, befores[turn])
                works = site.works(runs)
                for left in range(group - 1, -1, -1):
                    samples.append(device.sample(works, settings.cache, befores[turn]))
                    of_place.append(turn)
                    if settings.cache == "cold" or left == 0:  # a look at the output is none at warm caches
                        self._raise_if_sample_wrong(check.timed(site), len(samples), site)
                others.leave(turn)
                clock.look(len(samples))
                elapsed = time.monotonic() - start
                # Every place has its say or, where time is up, every set of inputs: a kernel may know one of them.
                if elapsed >= settings.max_time and {id(sites[at].inputs) for at in of_place} == inputs:
                    break
            stop = enough(samples, elapsed, settings)
            self.progress("timing", min(elapsed / max(settings.min_time, 1e-9), 1.0))

        device.use_stream(0)
        if others.touched(range(len(sites))):
            raise WrongOutput(f"the kernel wrote {ELSEWHERE}")
        for turn in set(range(len(sites))) - set(of_place):  # time was up before their turn; a copy may lie there
            self._run(loaded.case, sites[turn], loaded.state)
        kept, notes = slower_inputs(samples, [sites[place].inputs.problem.seed for place in of_place])
        clocks, clock_after = clock.beside(len(samples))
        timing = stats.summarize(
            [samples[at] for at in kept],
            settings.cache,
            runs,
            len(sites),
            [of_place[at] for at in kept],
            [clocks[at] for at in kept] if clocks else (),
        )
        notes += timing_warnings(timing, elapsed, settings, device.other_processes())
        if clock.first and clock_after and clock_after < clock.first * (1 - CLOCK_DROP):
            notes.append(warning("clocks", before=clock.first, after=clock_after))
        return timing, stats.summarize(copies, settings.cache, copy_runs, len(sites)) if copies else None, notes

    def _turned(self, loaded: Loaded, site: Site) -> Site | None:
        """Return the site whose inputs begin later, where what a kernel makes of them can be looked at."""
        return site.turned if self.operation.turnable and not loaded.case.source.builtin else None

    def _first_turned_runs(self, loaded: Loaded, bound: Bound) -> bool:
        """Run a kernel of the user's once on each set of inputs that begin later, so that later looks are by digest,
        and tell whether there are any; WrongOutput where an output is wrong."""
        self.progress("verifying", 0)
        turned = [found for site in bound.sites if (found := self._turned(loaded, site))]
        for site in {id(site.inputs): site for site in turned}.values():
            self._run(loaded.case, site, loaded.state)
            self._raise_if_wrong(loaded.case, bound.check.in_full(site, "before")[0], bound.sites)
        return bool(turned)

    def _stop_anywhere(self, loaded: Loaded, bound: Bound, turn: int, runs: int, before: Sequence[Work]) -> None:
        """Run a sample that does not count and ends after a launch that nobody can foresee, on either inputs, and hold
        what that one leaves against the reference; WrongOutput where it is wrong.

        Of a sample of many launches only the last one's output is left to look at: a kernel that tells that it is not
        the last one, by where its inputs begin or by a count that it keeps in its output, could be idle in all others.
        """
        if loaded.case.source.builtin:
            return
        site = bound.sites[turn]
        last = self.random.choice([site, self._turned(loaded, site) or site])
        launches = self.random.randint(1, runs)
        self.device.sample(site.works(launches, last), self.settings.cache, before)
        found = bound.check.timed(last)
        if found:
            why = f"the last of {launches} launches back to back: {wrong_reason(found)}"
            raise WrongOutput(why, found)

    def _befores(self, loaded: Loaded, bound: Bound) -> list[list[Work]]:
        """Return, by site, what is queued before a sample and is not timed."""
        local_bytes = loaded.module.resources(loaded.case.function).local_bytes
        kept = self.settings.cache == "cold" and kept_in_cache(loaded.module.ptx)
        found = []
        for site in bound.sites:
            works = [*site.reset(), *loaded.state.reset(), self.device.scrub(local_bytes)]
            if kept:
                works += [self.device.demote(site.buffers.addresses[b.name], b.nbytes) for b in site.buffers.buffers]
            found.append(works)
        return found

    def _raise_if_sample_wrong(self, verification: Verification | None, number: int, site: Site) -> None:
        if verification:
            seed = site.inputs.problem.seed
            inputs = "" if self.fixed else f" (inputs of --seed {seed})"
            reason = f"timed sample {number}{inputs}: {wrong_reason(verification)}"
            raise WrongOutput(reason, replace(verification, samples=number))

    def _sample(self, work: Work, phase: str, before: Sequence[Work] = ()) -> float:
        self.progress(phase, 0)
        return self.device.sample([work], self.settings.cache, before)

    def _figures(self, result: Result, case: Case, timing: Timing, copy: Timing | None, notes: list[Warning]) -> Result:
        info = self.device.info
        nbytes = self.operation.bytes(self.problem)
        flops = self.operation.flops(self.problem) if self.operation.flops else None
        rated = info.kind == "cuda"  # no rate follows from times that are invented
        bandwidth = nbytes / timing.median_s / 1e9 if nbytes and rated else None
        copied = 2 * self.buffer_sets()[0].copy_bytes  # read and written
        copy_gbps = copied / copy.median_s / 1e9 if copy and nbytes and rated else None
        over_l2 = self.operation.footprint(self.problem) / info.l2_bytes if info.l2_bytes else None
        figures = replace(
            result,
            time=timing,
            bytes=nbytes or None,
            flops=flops,
            bandwidth_gbps=bandwidth,
            gflops=flops / timing.median_s / 1e9 if flops and rated else None,
            copy_gbps=copy_gbps,
            copy_fraction=bandwidth / copy_gbps if bandwidth and copy_gbps else None,
            peak_fraction=bandwidth / info.peak_gbps if bandwidth and info.peak_gbps else None,
            speedup_vs_cpu=self.cpu.time_s / timing.median_s if self.cpu and rated else None,
            footprint_over_l2=over_l2,
            cpu=self.cpu,
        )
        if not rated:
            notes = [warning("simulated"), *notes]
        return replace(
            figures, warnings=(*launch_warnings(case), *notes, *scale_warnings(figures, info, self.operation.larger))
        )


def _unwritten(site: Site) -> list[str]:
    """Return the arrays that a kernel must leave as they are, given to it or not."""
    return [*(buffer.name for buffer in site.buffers.buffers if buffer.role == "in"), *site.buffers.withheld]


def may_repeat(loaded: Loaded, bound: Bound) -> bool:
    """Tell whether launches back to back have work to do each time: on changing inputs, without a state."""
    site = bound.sites[0]
    return site.turned is not None and not loaded.state.kept and not _restored(site)


def _restored(site: Site) -> bool:
    """Tell whether the kernel overwrites its inputs, which are then fresh in one run only."""
    return any(buffer.role == "inout" for buffer in site.buffers.buffers)
