"""What measuring and simulating a kernel share: inputs, references, the CPU baseline, what becomes of an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cudabench.errors import CudabenchError, UnsupportedFeature, UsageError
from cudabench.measure import verify
from cudabench.measure.buffers import turned
from cudabench.occupancy import capability
from cudabench.records.launch import POISON
from cudabench.records.planned import Baseline, Case, Operation, Problem, Settings
from cudabench.records.results import CpuTime, DeviceInfo, Result, Verification

Arrays = dict[str, np.ndarray]
Progress = Callable[[str, float], None]

BASELINE_S = 0.4


@dataclass
class InputSet:
    """Inputs of one seed and the right outputs for them, in host memory, made when first needed.

    `turned` names the arrays that begin later than those of `base`; see `buffers`.
    """

    operation: Operation
    problem: Problem
    base: InputSet | None = None
    turned: frozenset[str] = frozenset()
    _references: dict[str, Arrays] = field(default_factory=dict, init=False)
    _poisons: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    @cached_property
    def arrays(self) -> Arrays:
        """The seeded inputs, as a kernel reads them."""
        if self.base is None:
            return self.operation.inputs(self.problem)
        return {name: turned(one) if name in self.turned else one for name, one in self.base.arrays.items()}

    def expected(self, name: str) -> Arrays:
        """Return the right outputs of a kernel, by the `expects` of its case."""
        name = name if self.operation.has_own(name) else ""
        if name not in self._references:
            self._references[name] = self.operation.right(name, self.problem, self.arrays)
        return self._references[name]

    def poisons(self, name: str) -> tuple[int, int]:
        """Return the `poison_bytes` for the same outputs, found once for all kernels that they are expected of."""
        if name not in self._poisons:
            self._poisons[name] = poison_bytes(self.expected(name))
        return self._poisons[name]

    def compare(self, expects: str, got: Arrays, when: str) -> Verification | None:
        """Return how outputs compare with what is expected; None where nothing is."""
        expected, tolerance = self.expected(expects), self.operation.tolerated(expects, self.problem)
        return verify.compare_all(expected, got, tolerance, checked=when) if expected else None

    def differing(self, other: InputSet) -> frozenset[str]:
        """Return the inputs that another set has other bytes of: those that a seed decides."""
        mine, others = self.arrays, other.arrays
        return frozenset(name for name in mine if not np.array_equal(_bytes(mine[name]), _bytes(others[name])))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@dataclass
class RunContext:
    """What the kernels of one run share on the host: two sets of inputs, of --seed and of another seed."""

    operation: Operation
    problem: Problem
    settings: Settings
    progress: Progress = field(default=lambda phase, fraction: None, kw_only=True)
    cpu: CpuTime | None = field(default=None, kw_only=True)
    second_seed: int | None = field(default=None, kw_only=True)
    until: float | None = field(default=None, kw_only=True)  # of time.monotonic(): the end of the kernel in hand

    @cached_property
    def input_sets(self) -> tuple[InputSet, InputSet]:
        """The inputs of --seed, and others: of `second_seed`, or of the seed that follows."""
        seed = self.problem.seed + 1 if self.second_seed is None else self.second_seed
        return InputSet(self.operation, self.problem), InputSet(self.operation, replace(self.problem, seed=seed))

    @cached_property
    def drawn(self) -> frozenset[str]:
        """The inputs that the seed decides, by name."""
        self.progress("making inputs", 0)
        first, second = self.input_sets
        return first.differing(second)

    @property
    def fixed(self) -> bool:
        """Whether the seed decides nothing: the user fixed all inputs, or there are none."""
        return not self.drawn

    @property
    def inputs(self) -> Arrays:
        """The inputs of --seed."""
        self.progress("making inputs", 0)
        return self.input_sets[0].arrays

    def expected(self, name: str) -> Arrays:
        """Return the right outputs of a kernel for the inputs of --seed, by the `expects` of its case."""
        self.progress("computing the reference", 0)
        return self.input_sets[0].expected(name)

    def figures(self, outputs: Arrays) -> dict[str, float]:
        """Keep a right output where the options say so, and return the figures about it."""
        if self.operation.save:
            self.operation.save(self.problem, outputs)
        return self.operation.figures(self.problem, self.inputs, outputs) if self.operation.figures else {}

    def answer(
        self,
        case: Case,
        info: DeviceInfo,
        device: str,
        work: Callable[[Result], Result],
        skips: Callable[[CudabenchError], bool],
        *,
        alone: bool = True,
    ) -> Result:
        """Return the result of one case, which `work` makes of a blank one; errors of the compiler, the launch and the
        kernel become a failed result, or a skipped one where `skips` says so.

        A kernel for another generation of GPUs is skipped in a ladder; UnsupportedFeature where it was named. `alone`:
        no other card runs it.
        """
        blank = describe(case, device)
        if reason := case.skip_reason or other_architecture(case, info, alone=alone):
            return replace(blank, status="skipped", reason=reason)
        blank = self.ready(blank)
        self.expected(case.expects)  # an expectation of the user's that cannot be ends the run, not one kernel
        try:
            return work(blank)
        except UnsupportedFeature as error:
            if case.named and alone:
                raise
            return replace(blank, status="skipped", reason=str(error))
        except CudabenchError as error:
            if skips(error):
                return replace(blank, status="skipped", reason=str(error))
            if isinstance(error, UsageError) and case.named:
                raise
            return replace(blank, status="failed", reason=str(error))

    def ready(self, blank: Result) -> Result:
        """Take what all kernels need and return a blank result; what is raised here ends the run."""
        return blank

    def measure_cpu(self) -> CpuTime:
        """Return the time of the CPU baseline, measured once."""
        if self.cpu is None:
            threads = self.settings.cpu_threads
            self.cpu = time_baseline(self.operation, self.problem, self.inputs, threads, self.progress)
        return self.cpu


def time_baseline(operation: Operation, problem: Problem, arrays: Arrays, threads: int, progress: Progress) -> CpuTime:
    """Return the median time of the CPU baseline over runs that fill 0.4 s; the first, which touches the pages, is left
    out unless it alone takes longer."""
    baseline: Baseline = operation.baseline
    threads = threads if baseline.threaded else 1
    outputs = {
        b.name: arrays[b.name].copy() if b.role == "inout" else np.empty(b.shape, b.dtype)
        for b in operation.buffers(problem)
        if b.role in ("out", "inout")
    }
    times: list[float] = []
    begin = time.perf_counter()
    with baseline.prepared(arrays, outputs, threads) as work:
        while time.perf_counter() - begin < BASELINE_S or not times:
            progress("timing the CPU", min((time.perf_counter() - begin) / BASELINE_S, 1.0))
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    median = float(np.median(times[1:] or times))
    nbytes = operation.bytes(problem)
    return CpuTime(median, nbytes / median / 1e9 if nbytes else None, threads, baseline.implementation)


def constants_of(operation: Operation, inputs: Arrays) -> dict[str, bytes]:
    """Return what the operation's `__constant__` variables hold for some inputs, as bytes."""
    return {variable: inputs[buffer].tobytes() for variable, buffer in operation.constant_memory.items()}


def describe(case: Case, device: str) -> Result:
    """Return the part of a result that is known before anything runs."""
    return Result(
        operation=case.operation,
        kernel=case.kernel,
        id=case.id,
        function=case.function,
        source=case.source.name,
        size=case.problem.size,
        dtype=case.problem.dtype,
        block=case.block,
        grid=case.grid,
        cluster=case.cluster,
        device=device,
        status="ok",
        parameters=case.parameters,
        chosen=case.chosen,
        peer=case.peer.partition("-")[0] or None,
    )


def stopped(results: Sequence[Result], at: int, found: Result) -> list[Result]:
    """Return the results of a pair where the one at `at` ended the measurement."""
    reason = f"not timed, because the other side is {found.status}"
    other = [replace(one, status="skipped", time=None, reason=reason) for one in results]
    return [*other[:at], found, *other[at + 1 :]]


def other_architecture(case: Case, info: DeviceInfo, *, alone: bool = True) -> str | None:
    """Return why a GPU has not the instructions of a kernel, None where it has; alone: with what would mend it, where
    no other card runs.

    sm_90a names GPUs of 9.0 alone, sm_80 those of 8.0 and later.
    """
    if not case.architecture:
        return None
    wanted, found = capability(case.architecture), capability(info.compute_capability)
    plain = case.architecture.rstrip("af")
    if found == wanted or (plain == case.architecture and found > wanted):
        return None
    later = " and later" if plain == case.architecture else ""
    return (
        f"{case.kernel} has instructions that only GPUs of compute capability {wanted[0]}.{wanted[1]}{later} have, "
        f"and this one has {info.compute_capability}" + (f": use --device sim:{plain}" if alone else "")
    )


# Bytes that memory is poisoned with. All ones come first: NaN in every floating-point type.
POISONS = (POISON, 0xC7, 0x5B, 0x9D)


def poison_bytes(expected: Arrays) -> tuple[int, int]:
    """Return the two bytes to poison outputs with that are least often the right answer: an output that nobody wrote
    must not look right under both, and under the first not if that can be."""

    def hits(byte: int) -> int:
        return sum(
            int(np.count_nonzero(a == np.frombuffer(bytes([byte]) * a.itemsize, a.dtype)[0])) for a in expected.values()
        )

    first, second, *_ = sorted(POISONS, key=hits)
    return first, second
