"""Measures a kernel on a GPU: verify, warm up, sample, verify. This module does not import PyCUDA; it gets the device.

The protocol: two sets of inputs, made from different seeds, are at different places of the memory (see `buffers`). At
each place the output is poisoned (filled with a byte), the kernel runs, and the output is compared with the reference.
If the kernel changes variables of its module, it is launched again on the other inputs, and its output must be correct
again. Then the kernel is sampled (see `timing`). Before every sample, while no time is measured, all written buffers
are poisoned or restored, module variables are reset, and shared memory and registers are overwritten. After the sample
the output is compared with the reference by digest (see `outputs`). At the end, outputs are compared in full, inputs
and guard zones must be unchanged, and the time must not be shorter than the card allows.

A pair is two kernels that are compared; both are measured by the same protocol. If the launches of both have the same
instructions, data, arguments and resources, the pair is not measured, unless `always` is set.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from cudabench.cards.rates import PER_CLOCK
from cudabench.compile import cubin
from cudabench.devices.protocol import Device, Linked, Module, Work
from cudabench.errors import CudabenchError, DeviceUnusable, OutOfMemory, UnsupportedFeature, UsageError
from cudabench.explain import machine_code
from cudabench.measure import verify
from cudabench.measure.buffers import BufferSet, allocate_places
from cudabench.measure.context import (
    MEASURED,
    Evidence,
    InputSet,
    RunContext,
    changed_state_sentence,
    conclude,
    constants_of,
    describe,
    kept_in_cache,
    stopped_pair,
    wrong_reason,
)
from cudabench.measure.outputs import ELSEWHERE, KernelState, OutputCheck, Site, WrongOutput
from cudabench.measure.timing import Sampler, scale_warnings
from cudabench.occupancy import capability, check_resident, most_threads, occupancy
from cudabench.records.launch import Launch
from cudabench.records.plan import Case
from cudabench.records.results import DeviceInfo, Result, Timing, Verification
from cudabench.results.warnings import warning

if TYPE_CHECKING:
    from cudabench.devices import cuda

SAME_CODE = "its machine code and launch equal the other kernel's: there is nothing to measure"


@dataclass
class Subject:
    """A kernel under measurement, with its compiled code and its measurements so far.

    These fields are set when the kernel is bound to its buffers: `sites`; `before`, the verification of the first runs;
    `read_only_digests`, for each site the digests of read-only memory before the first runs. These fields are set while
    the kernel is sampled: `untimed_works`, for each site the works before a sample; `typical`, the time of a launch,
    and `samples`, the times of all samples, in seconds.
    """

    case: Case
    result: Result
    module: Module
    state: KernelState
    check: OutputCheck
    images: Sequence[machine_code.Image] = ()
    sites: Sequence[Site] = ()
    before: Verification | None = None
    read_only_digests: Sequence[tuple[int, ...]] = ()
    untimed_works: Sequence[Sequence[Work]] = ()
    typical: float = 0.0
    samples: list[float] = field(default_factory=list)

    def may_repeat(self) -> bool:
        """Return whether every launch must do the whole work if the kernel is launched several times in a row: inputs
        change between launches, and no launch changes module variables or overwrites its inputs."""
        site = self.sites[0]
        restored = any(buffer.role == "inout" for buffer in site.buffers.buffers)
        return site.rotated is not None and not self.state.changed_variables and not restored


@dataclass
class GpuRun(RunContext):
    """Measures the kernels of a run on a GPU. `at`: the index of the current kernel in a pair. `next_case`: the next
    case, which is compiled in the background."""

    device: Device
    at: int = field(default=0, init=False)
    next_case: Case | None = field(default=None, init=False)
    random: random.Random = field(default_factory=random.Random, kw_only=True)
    _buffer_sets: tuple[BufferSet, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        # A random seed: nobody can make a kernel for its inputs in advance. The message on a wrong result has the seed.
        self.second_seed = self.random.randrange(1, 2**31)

    def buffer_sets(self) -> tuple[BufferSet, ...]:
        """Return the buffers of each place; the first call allocates them. Raises OutOfMemory if they do not fit."""
        self._buffer_sets = self._buffer_sets or allocate_places(self.device, self.operation, self.problem)
        return self._buffer_sets

    def release(self) -> None:
        """Free the buffers. `buffer_sets` allocates new buffers when they are needed again."""
        for buffer_set in self._buffer_sets:
            buffer_set.release()
        self._buffer_sets = ()

    def poison_other_places(self, subject: Subject, place: int) -> None:
        """Poison the outputs at all other places that have the same inputs as `place`, because the kernel could find
        correct outputs there and copy them."""
        for at, site in enumerate(subject.sites):
            if at != place and site.inputs is subject.sites[place].inputs:
                for work in site.buffers.reset(site.poison):
                    work()

    # One kernel -------------------------------------------------------------------------------------------------

    def prepare_shared(self, blank: Result) -> Result:
        """Allocate the buffers, and return the blank result unchanged."""
        self.buffer_sets()
        return blank

    def run_case(self, case: Case, blank: Result) -> Result:
        """Measure the CPU baseline, if requested, and the kernel, and return the kernel's result."""
        if self.settings.cpu:
            self.measure_cpu()
        return self._measure([case], [blank])[0]

    def is_skipped(self, case: Case, error: CudabenchError) -> bool:
        """Return whether the case calls a library that is not installed."""
        return bool(case.peer) and isinstance(error, DeviceUnusable)

    def measure_pair(self, cases: Sequence[Case], always: bool = False) -> list[Result]:
        """Measure two cases together, and return their results. Samples are taken in pairs: a sample of each kernel at
        the same place.

        If a kernel is wrong or fails, the other kernel gets the status 'skipped', and no result has a time. Both are
        'skipped' if their code is the same, unless `always` is set. Raises OutOfMemory, and UsageError for a kernel
        that the user named.
        """
        self.buffer_sets()
        results = [describe(case, self.name) for case in cases]
        self.at = 0
        try:
            return self._measure(cases, results, always)
        except OutOfMemory:
            raise
        except CudabenchError as error:
            if isinstance(error, UsageError) and cases[self.at].named:
                raise
            return stopped_pair(results, self.at, replace(results[self.at], status="failed", reason=str(error)))

    def _measure(self, cases: Sequence[Case], results: list[Result], always: bool = True) -> list[Result]:
        """Measure one case, or a pair, and return the results. `results`: the blank results, which are updated."""
        subjects: list[Subject] = []
        try:
            for self.at, case in enumerate(cases):
                self.expected(case.expects)
                subjects.append(self._load(case, results[self.at]))
                results[self.at] = subjects[self.at].result
            if not always and same_code(*subjects):
                return [replace(result, status="skipped", reason=SAME_CODE) for result in results]
            for self.at, subject in enumerate(subjects):
                self._bind(subject)
            for part in self.next_case.parts if self.next_case else ():
                self.device.begin(part.source, part.defines, [launch.function for launch in part.launches])
            repeat = True
            while repeat:
                sampler = Sampler(self, subjects)
                sampler.sample()
                for subject in subjects:
                    subject.state.note_changes()
                # If the samples changed a variable that was not reset before each sample, the samples are invalid and
                # are repeated.
                repeat = any(subject.state.has_unreset_change for subject in subjects)
            for self.at, subject in enumerate(subjects):
                results[self.at] = self._final_result(subject, sampler)
            return results
        except WrongOutput as wrong:
            wrong_result = replace(
                subjects[self.at].result,
                status="wrong",
                reason=wrong.reason,
                verification=wrong.verification,
                hazards=wrong.hazards or None,
                state=subjects[self.at].state.changed_variables,
            )
            return stopped_pair(results, self.at, wrong_result)
        finally:
            if self.device.alive():
                for subject in subjects:
                    subject.state.release()

    def untimed_works(self, subject: Subject) -> list[list[Work]]:
        """Return, for each site, the list of untimed works that run before each sample."""
        local_bytes = subject.module.resources(subject.case.function).local_bytes
        kept = self.settings.cache == "cold" and kept_in_cache(subject.module.ptx)
        return [
            [
                *site.reset(),
                *subject.state.reset(),
                self.device.scrub(local_bytes),
                *(self.device.demote(site.buffers.addresses[b.name], b.nbytes) for b in site.buffers.buffers if kept),
            ]
            for site in subject.sites
        ]

    def _load(self, case: Case, result: Result) -> Subject:
        """Compile a case, and return it with its resources in the result.

        Raises UsageError for a block that does not fit, DeviceUnusable for a library that is not installed, and the
        errors of the compiler.
        """
        check = OutputCheck(case.expects, self.operation.saves)
        inputs: Literal["fixed", "fresh"] = "fixed" if self.inputs_are_fixed else "fresh"
        self.progress("compiling", 0)
        if case.peer:
            call = self.device.peer(self.operation.peer(case.peer), self.operation, self.problem)
            result = replace(result, source=call.version, inputs=inputs)
            return Subject(case, result, call, KernelState(self.device, call.variables), check)
        module = load_module(self.device, case)
        for name, content in case.constants.items():
            module.set_constant(name, content)
        resources = module.resources(case.function)
        shared, threads = resources.shared_bytes + case.dynamic_shared_bytes, case.threads
        result = replace(
            result,
            registers=resources.registers,
            local_bytes=resources.local_bytes,
            shared_bytes=shared,
            occupancy=occupancy(self.device.info.compute_capability, threads, resources.registers, shared),
            inputs=inputs,
        )
        self._check_resident(module, case.launches)
        images = [
            machine_code.Image(cubin, [machine_code.Kernel(entry) for entry in entries])
            for cubin, entries in module.images([launch.function for launch in case.launches])
        ]
        for image in images:
            machine_code.start_disassembly(
                image.cubin
            )  # read the machine code in the background during the measurement
        # These variables get their values from the inputs when the kernel is bound, so they are not reset.
        fixed = self.operation.constant_memory
        variables = [variable for variable in module.variables if variable.name not in fixed]
        return Subject(case, result, module, KernelState(self.device, variables), check, images)

    def _check_resident(self, module: Module, launches: Sequence[Launch]) -> None:
        """Raise BlockDoesNotFit for a launch whose block needs more resources, by the numbers of the driver, than a
        multiprocessor has, and UnsupportedFeature for clusters on a GPU that does not support clusters."""
        version = self.device.info.compute_capability
        if any(launch.cluster for launch in launches) and capability(version) < (9, 0):
            raise UnsupportedFeature(f"clusters of blocks need compute capability 9.0, and this GPU has {version}.")
        shapes = {(launch.function, math.prod(launch.block), launch.shared_bytes) for launch in launches}
        for function, threads, dynamic in sorted(shapes):
            needs = module.resources(function)
            most = needs.max_threads or 0
            # If the registers allow fewer threads, they are the real limit, not `most`.
            bound = most if most < most_threads(needs.registers) else None
            shared = needs.shared_bytes + dynamic
            check_resident(function, version, threads, needs.registers, shared, bound=bound)

    def _bind(self, subject: Subject) -> None:
        """Bind the kernel to the buffers of every place, run the kernel once at each place and verify its outputs.

        Raises WrongOutput if an output is wrong.
        """
        subject.sites = self._bind_sites(subject.case, subject.module)
        for site in subject.sites:
            if copy := site.buffers.copy():
                copy()  # before the digests are computed, so that later copies do not change the target's content
        if not subject.case.source.builtin:
            subject.read_only_digests = [site.buffers.digests(site.buffers.read_only) for site in subject.sites]
        for place, site in enumerate(subject.sites):
            self.progress("running", 0)
            self.launch(subject, place)
            subject.state.note_changes()
            self.progress("verifying", 0)
            verification = (
                subject.check.compare_by_digest(site, "before")
                if place
                else subject.check.compare_in_full(site, "before")[0]
            )
            subject.before = subject.before or verification
            self.raise_if_wrong(subject, verification)
        self._check_guard_zones(subject)
        if subject.state.changed_variables and len(subject.sites) > 1:
            # Launch again at two places. The variables that the first launches changed are not reset.
            for place in range(2):
                self.launch(subject, place, reset=False)
                if again := subject.check.compare_by_digest(subject.sites[place], "again"):
                    raise WrongOutput(
                        f"{wrong_reason(again)}: {changed_state_sentence(subject.state.changed_variables)}", again
                    )

    def _final_result(self, subject: Subject, sampler: Sampler) -> Result:
        """Compare a timed kernel's last outputs for each set of inputs, and return the kernel's result.

        A kernel of a pair is launched again to get these outputs. Raises WrongOutput if an output is wrong.
        """
        case, (timing, timed) = subject.case, sampler.timings[self.at]
        last = () if sampler.pair else sampler.of_place[::-1]
        self.progress("verifying", 1)
        count = len({id(site.inputs) for site in subject.sites})
        for at in range(count)[::-1]:
            place = next((place for place in last if place % count == at), at)
            if not last:
                self.launch(subject, place)
            if at:
                self.raise_if_wrong(subject, subject.check.compare_by_digest(subject.sites[place], "after"))
        after, outputs = subject.check.compare_in_full(subject.sites[place], "after")
        self.raise_if_wrong(subject, after)
        verification = verify.merge(subject.before, after) if subject.before and after else None
        if not case.source.builtin:
            self._check_inputs(subject, subject.read_only_digests)
        self._check_guard_zones(subject)
        subject.state.note_changes()
        arch = "sm_" + self.device.info.compute_capability.replace(".", "")
        entries = {kernel.entry for image in subject.images for kernel in image.kernels}
        evidence = Evidence(
            verification and replace(verification, samples=subject.check.samples),
            subject.state.changed_variables,
            machine_code.describe_all(subject.images, arch, subject.module.ptx),
            [subject.module.ptx],
            entries,
        )
        measured = self._with_rates(replace(subject.result, figures=self.figures(outputs)), timing, sampler.copy)
        formats = evidence.code.arithmetic if evidence.code and evidence.code.arithmetic else ()
        if case.peer:
            formats = self.operation.peer(case.peer).arithmetic or (self.problem.dtype,)
        least_flops = self.operation.least_flops
        least = least_flops(self.problem) if least_flops else measured.flops
        if reason := impossible_time(timing.median_s, measured.bytes, least, formats, self.device.info):
            raise WrongOutput(reason, evidence.verification)
        notes = {
            "timing": timed,
            "scale": scale_warnings(measured, self.device.info, self.operation.larger),
            "simulated": [warning("simulated")] if self.device.info.kind != "cuda" else [],
        }
        return conclude(measured, self, case, evidence, notes, MEASURED)

    # Verify -----------------------------------------------------------------------------------------------------

    def _bind_sites(self, case: Case, module: Module) -> list[Site]:
        """Return a site for every place: the kernel bound to the buffers of the place. Every second site has the second
        set of inputs."""
        self.progress("copying inputs", 0)
        places = self.buffer_sets()
        sets = self.input_sets if len(places) > 1 and not self.inputs_are_fixed else self.input_sets[:1]
        poison = self.input_sets[0].poisons(case.expects)
        # Do not rotate inputs whose values are also in constant memory.
        read_only = {b.name for b in places[0].buffers if b.role == "in"} - {*self.operation.constant_memory.values()}
        # Rotate only random inputs, because the values of other inputs may be indices.
        rotatable = read_only & self.random_inputs
        later = {id(inputs): InputSet(self.operation, inputs.problem, inputs, frozenset(rotatable)) for inputs in sets}
        sites = []
        for at, place in enumerate(places):
            inputs = sets[at % len(sets)]
            place.fill(inputs.arrays)
            contents = constants_of(self.operation, inputs.arrays)
            constants = [partial(module.set_constant, name, content) for name, content in contents.items()]
            rotated = None
            if rotatable:
                rotated_work = self.device.bind(module, case.launches, place.rotated_addresses(rotatable))
                rotated = Site(place, later[id(inputs)], rotated_work, None, poison[at % 2], constants)
            work = self.device.bind(module, case.launches, place.addresses)
            sites.append(Site(place, inputs, work, rotated, poison[at % 2], constants))
        return sites

    def launch(self, subject: Subject, place: int, *, rotated: bool = False, reset: bool = True) -> None:
        """Poison the outputs at a place and at other places with the same inputs, and run the kernel once at the place.

        `rotated`: whether the kernel gets the rotated inputs. `reset`: whether the module's variables are reset first.
        """
        site = (subject.sites[place].rotated if rotated else None) or subject.sites[place]
        self.poison_other_places(subject, place)
        for work in (*site.reset(), *(subject.state.reset() if reset else ())):
            work()
        self.device.run(site.work, f"running {subject.case.kernel}")

    def raise_if_wrong(self, subject: Subject, verification: Verification | None) -> None:
        """Raise WrongOutput if the verification has wrong elements. If the kernel wrote outside of its arrays or into
        an input, the reason of the exception names this write instead."""
        if verification is None or not verification.mismatches:
            return
        self._check_guard_zones(subject)
        # Check the inputs first: if the kernel changed one, this explains a wrong output.
        if not subject.case.source.builtin:
            self._check_inputs(subject)
        raise WrongOutput.of(verification)

    def _check_inputs(self, subject: Subject, digests: Sequence[tuple[int, ...]] = ()) -> None:
        """Raise WrongOutput if a kernel changed an input. `digests`: if given, the digests of each site's read-only
        memory before the first run; any change of this memory then raises WrongOutput too."""
        for at, site in enumerate(subject.sites):
            if digests and site.buffers.digests(site.buffers.read_only) == digests[at]:
                continue
            for buffer in site.buffers.buffers:
                if buffer.role == "in" and (
                    sentence := verify.changed(site.inputs.arrays, site.buffers.download([buffer]))
                ):
                    raise WrongOutput(sentence)
            if digests:
                raise WrongOutput(f"the kernel wrote {ELSEWHERE}")

    def _check_guard_zones(self, subject: Subject) -> None:
        """Raise WrongOutput if a kernel wrote into a guard zone around an array."""
        for hazard in filter(None, (site.buffers.guard_zone_hazard() for site in subject.sites)):
            raise WrongOutput(f"{hazard.message}; --device sim names the line", None, (hazard,))

    def _with_rates(self, result: Result, timing: Timing, copy: Timing | None) -> Result:
        """Return the result with its time and the rates that follow from it."""
        info = self.device.info
        nbytes = self.operation.bytes(self.problem)
        flops = self.operation.flops(self.problem) if self.operation.flops else None
        rated = info.kind == "cuda"  # the times of a simulated GPU are invented, so no rates are computed from them
        bandwidth = nbytes / timing.median_s / 1e9 if nbytes and rated else None
        copied = 2 * self.buffer_sets()[0].copy_bytes  # a copy reads and writes each byte
        copy_gbps = copied / copy.median_s / 1e9 if copy and nbytes and rated else None
        over_l2 = self.operation.footprint(self.problem) / info.l2_bytes if info.l2_bytes else None
        return replace(
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


def same_code(subject: Subject, other: Subject) -> bool:
    """Return whether two kernels have the same instructions, data, arguments and resources; False if the machine code
    of a kernel is unknown."""
    return bool(subject.images and other.images) and _code_identity(subject) == _code_identity(other)


def _code_identity(subject: Subject) -> tuple[object, ...]:
    """Return hashes of a kernel's instructions and data, its resources, launches and constants. Kernels for which all
    of these are equal must take the same time."""
    case = subject.case
    hidden = (case.source.name, *(f"{folder}/" for folder in case.source.folders))
    return (
        [cubin.code_sha256(image.cubin, [kernel.entry for kernel in image.kernels]) for image in subject.images],
        [cubin.data_sha256(image.cubin, hidden) for image in subject.images],
        (subject.result.registers, subject.result.local_bytes, subject.result.shared_bytes),
        [
            (launch.grid, launch.block, repr(launch.arguments), launch.shared_bytes, launch.cluster)
            for launch in case.launches
        ],
        dict(case.constants),
    )


def load_module(device: Device, case: Case) -> Module:
    """Return the module of a case; if the launches need several sources, it combines the modules of these sources."""
    by_function: dict[str, cuda.Module] = {}
    for part in case.parts:
        names = [launch.function for launch in part.launches]
        clusters = {"clusters": True} if any(launch.cluster for launch in part.launches) else {}
        by_function |= dict.fromkeys(names, device.load(part.source, part.defines, names, **clusters))
    return Linked(by_function) if len(case.parts) > 1 else next(iter(by_function.values()))


# The shortest time ----------------------------------------------------------------------------------------------------

# The card sets a lower bound on every measured time. The first bound: the bytes that must move between memory and chip,
# minus the size of the L2, divided by the theoretical bandwidth. The second bound: the number of operations, divided by
# the rate of the fastest arithmetic in the code. The rates in `cudabench.cards.rates` are upper bounds.
_FORMATS = {"tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "fp8": "float8"}
# By tested compute capability and number format: fused multiply-adds per clock and SM. A multiply-add is two
# operations.
FMA_PER_CLOCK: Mapping[str, Mapping[str, int]] = {
    name: {
        "float32": rates.fp32,
        "float64": max(rates.fp64, rates.tensor.get("fp64", 0)),
        **{_FORMATS[number]: per_clock for number, per_clock in rates.tensor.items() if number in _FORMATS},
    }
    for name, rates in PER_CLOCK.items()
    if name in ("7.5", "8.0", "8.6", "8.9", "9.0")
}


def bytes_floor(nbytes: int, info: DeviceInfo) -> float | None:
    """Return the least seconds in which a card moves these bytes; None if its peak bandwidth is unknown."""
    if not info.peak_gbps:
        return None
    return max(0, nbytes - (info.l2_bytes or 0)) / (info.peak_gbps * 1e9)


def flops_floor(flops: int, arithmetic: Iterable[str], info: DeviceInfo) -> float | None:
    """Return the least seconds that a card needs for `flops` operations in the fastest of the given number formats,
    such as 'float32' or 'tf32'; None if a rate is unknown."""
    rates = FMA_PER_CLOCK.get(info.compute_capability, {})
    clock = info.clocks.get("sm_mhz")
    per_clock = [rates.get(name) for name in arithmetic]
    if not per_clock or None in per_clock or not clock or not info.sm_count:
        return None
    return flops / (2 * max(rate for rate in per_clock if rate) * info.sm_count * clock * 1e6)


def impossible_time(
    median_s: float, nbytes: int | None, flops: int | None, arithmetic: Iterable[str], info: DeviceInfo
) -> str | None:
    """Return a sentence if a median time is shorter than the card allows, with the possible reasons; else None."""
    # All names except "approximate" are number formats.
    names = tuple(name for name in arithmetic if name != "approximate")
    peak = f"at the {info.peak_gbps or 0:.0f} GB/s of {info.name}, without the bytes that its L2 cache holds"
    operations = f"{flops} operations in {' and '.join(names)}"
    causes = ("fewer bytes move than --bytes says", "it needs fewer operations than --flops says")
    floors = (
        (nbytes and bytes_floor(nbytes, info), f"{nbytes} bytes take at least", peak, causes[0]),
        (flops and flops_floor(flops, names, info), f"{operations} take at least", f"on {info.name}", causes[1]),
    )
    for least_s, work, bound, alternative in floors:
        if least_s is not None and median_s < least_s:
            return (
                f"{median_s * 1e6:.4g} us is impossible: {work} {least_s * 1e6:.4g} us {bound}; either the kernel does "
                f"not do the work, or {alternative}"
            )
    return None
