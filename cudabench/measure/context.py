"""What measuring and simulating a kernel share: inputs, references, the CPU baseline, what becomes of an error; and a
result from the evidence of a kernel, what it left and keeps, and what its code is, with warnings of those."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from cudabench.cards.load import Card
from cudabench.errors import CudabenchError, UnsupportedFeature, UsageError
from cudabench.measure import verify
from cudabench.measure.buffers import rotated_input
from cudabench.occupancy import capability
from cudabench.operations.shared import pieces
from cudabench.records.launch import POISON, WARP
from cudabench.records.planned import Baseline, Buffer, Case, Operation, Problem, Settings
from cudabench.records.results import (
    CpuTime,
    DeviceInfo,
    Hazard,
    MachineCode,
    Result,
    StateVariable,
    Verification,
    Warning,
)
from cudabench.results.warnings import warning
from cudabench.system.children import on_threads

Arrays = dict[str, np.ndarray]

BASELINE_S = 0.4


@dataclass
class InputSet:
    """Inputs of one seed and the right outputs for them, in host memory, made when first needed.

    `rotated` names the arrays that begin later than those of `base`; see `buffers`.
    """

    operation: Operation
    problem: Problem
    base: InputSet | None = None
    rotated: frozenset[str] = frozenset()
    _references: dict[str, Arrays] = field(default_factory=dict, init=False)
    _poisons: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    @cached_property
    def arrays(self) -> Arrays:
        """The seeded inputs, as a kernel reads them."""
        if self.base is None:
            return self.operation.inputs(self.problem)
        return {
            name: rotated_input(array) if name in self.rotated else array for name, array in self.base.arrays.items()
        }

    def expected(self, name: str, begin: Callable[[], None] = lambda: None) -> Arrays:
        """Return the right outputs of a kernel, by the `expects` of its case; `begin`: called if they are computed."""
        name = name if self.operation.has_own(name) else ""
        if name not in self._references:
            begin()
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


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Tell whether flat arrays are the same; of others the first difference ends it."""
    parts = pieces(slice(0, max(first.size, second.size)), verify.CHUNK)
    return all(np.array_equal(first[part], second[part]) for part in parts)


@dataclass
class RunContext:
    """What the kernels of one run share on the host: two sets of inputs, of --seed and of another seed. `cards` price
    the counts of the simulator, where `output` is what the last kernel printed."""

    operation: Operation
    problem: Problem
    settings: Settings
    device: Any
    progress: Callable[[str, float], None] = field(default=lambda phase, fraction: None, kw_only=True)
    cpu: CpuTime | None = field(default=None, kw_only=True)
    cards: Sequence[Card] = field(default=(), kw_only=True)
    output: str = field(default="", init=False)
    second_seed: int | None = field(default=None, init=False)
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
        first, second = (
            {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in input_set.arrays.items()}
            for input_set in self.input_sets
        )
        return frozenset(name for name, own in first.items() if not _equal(own, second[name]))

    @property
    def fixed(self) -> bool:
        """Whether the seed decides nothing: there are no inputs, or the user fixed them all."""
        return not self.drawn

    @property
    def inputs(self) -> Arrays:
        """The inputs of --seed."""
        self.progress("making inputs", 0)
        return self.input_sets[0].arrays

    def expected(self, name: str) -> Arrays:
        """Return the right outputs of a kernel for the inputs of --seed, by the `expects` of its case."""
        return self.input_sets[0].expected(name, partial(self.progress, "computing the reference", 0))

    def figures(self, outputs: Arrays) -> dict[str, float]:
        """Keep a right output where the options say so, and return the figures about it."""
        if self.operation.save:
            self.operation.save(self.problem, outputs)
        return self.operation.figures(self.problem, self.inputs, outputs) if self.operation.figures else {}

    def measure(self, case: Case) -> Result:
        """Return the result of one case; errors of the compiler, the launch and the kernel become a failed result, or a
        skipped one.

        A kernel for another generation of GPUs is skipped in a ladder, and where another card may run it;
        UnsupportedFeature where it was named.
        """
        self.output = ""
        alone = len(self.cards) < 2
        blank = describe(case, self.name)
        if reason := case.skip_reason or other_architecture(case, self.device.info, alone=alone):
            return replace(blank, status="skipped", reason=reason)
        blank = self.ready(blank)
        self.expected(case.expects)  # an expectation of the user's that cannot be ends the run, not one kernel
        try:
            return self.work(case, blank)
        except CudabenchError as error:
            unsupported = isinstance(error, UnsupportedFeature)
            skipped = unsupported or self.skips(case, error)
            if case.named and ((unsupported and alone) or (isinstance(error, UsageError) and not skipped)):
                raise
            return replace(blank, status="skipped" if skipped else "failed", reason=str(error))

    @property
    def name(self) -> str:
        """The device, as results name it."""
        info = self.device.info
        return f"sim:{self.device.architecture}" if info.kind == "sim" else f"cuda:{info.index}"

    def ready(self, blank: Result) -> Result:
        """Take what all kernels need and return a blank result; what is raised here ends the run."""
        raise NotImplementedError

    def work(self, case: Case, blank: Result) -> Result:
        """Return the result of a case that this device takes."""
        raise NotImplementedError

    def skips(self, case: Case, error: CudabenchError) -> bool:
        """Tell whether a case that an error ended is skipped, and has not failed."""
        raise NotImplementedError

    def measure_cpu(self) -> CpuTime:
        """Return the median time of the CPU baseline over runs that fill 0.4 s, measured once; the first, which touches
        the pages, is left out unless it alone takes longer."""
        if self.cpu is not None:
            return self.cpu
        baseline: Baseline = self.operation.baseline
        arrays, threads = self.inputs, self.settings.cpu_threads if baseline.threaded else 1
        outputs = {
            b.name: arrays[b.name].copy() if b.role == "inout" else np.empty(b.shape, b.dtype)
            for b in self.operation.buffers(self.problem)
            if b.role in ("out", "inout")
        }
        times: list[float] = []
        begin = time.perf_counter()
        with baseline.prepared(arrays, outputs, threads) as work:
            while time.perf_counter() - begin < BASELINE_S or not times:
                self.progress("timing the CPU", min((time.perf_counter() - begin) / BASELINE_S, 1.0))
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
        median = float(np.median(times[1:] or times))
        nbytes = self.operation.bytes(self.problem)
        self.cpu = CpuTime(median, nbytes / median / 1e9 if nbytes else None, threads, baseline.implementation)
        return self.cpu


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


def stopped_pair(results: Sequence[Result], at: int, found: Result) -> list[Result]:
    """Return the results of a pair where the one at `at` ended the measurement."""
    reason = f"not timed, because the other side is {found.status}"
    other = [replace(result, status="skipped", time=None, reason=reason) for result in results]
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
    flat = [array.reshape(-1) for array in expected.values()]
    parts = [array[part] for array in flat for part in pieces(slice(0, array.size), verify.CHUNK)]

    def hits(part: np.ndarray) -> list[int]:
        values = (np.frombuffer(bytes([byte]) * part.itemsize, part.dtype)[0] for byte in POISONS)
        return [int(np.count_nonzero(part == value)) for value in values]

    counts = dict(zip(POISONS, map(sum, zip(*on_threads(hits, parts), strict=True)), strict=False))
    first, second, *_ = sorted(POISONS, key=lambda byte: counts.get(byte, 0))
    return first, second


# The result ----------------------------------------------------------------------------------------------------------

Notes = Mapping[str, Sequence[Warning]]  # by what they are of

# The order of warnings, by what they are of.
MEASURED = ("launch", "simulated", "unverified", "tolerance", "code", "state", "timing", "arithmetic", "scale")
SIMULATED = (
    "differs", "unverified", "extent", "arithmetic", "tolerance", "launch", "state", "code", "leak", "unreached",
    "suspected", "costly",
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """What is known of a kernel that ran. `entries`: the functions of the PTX that it launches."""

    verification: Verification | None
    state: Sequence[StateVariable]
    code: MachineCode | None
    ptx: Sequence[str]
    entries: Collection[str]


def concluded(
    result: Result, run: RunContext, case: Case, evidence: Evidence, more: Notes, order: Sequence[str]
) -> Result:
    """Return the result with its evidence, and with warnings, those that follow from that and `more`, in an order of
    what they are of."""
    verification, expected = evidence.verification, run.expected(case.expects)
    buffers = run.operation.buffers(run.problem)
    types = {buffer.dtype for buffer in buffers if buffer.role in ("out", "inout")}
    notes: Notes = {
        "launch": launch_warnings(case),
        "unverified": unverified_warnings(verification, expected, buffers),
        "tolerance": [
            warning("tolerance", name=name, largest=largest, atol=own.atol, rtol=own.rtol)
            for name, array in expected.items()
            for own in [run.operation.tolerated(case.expects, run.problem).of(name)]
            if (largest := verify.zeros_pass(array, own)) is not None  # zeros are accepted for something else
        ],
        # Where the simulator counted what is left on the heap, frees need no note.
        "code": [
            note
            for note in code_warnings(evidence.ptx, evidence.entries)
            if note.code != "malloc" or "leak" not in more
        ],
        "state": [warning("state", variables=_variables(evidence.state))] if evidence.state else [],
        "arithmetic": arithmetic_warnings(
            evidence.code, types.pop() if len(types) == 1 else "", verification, [buffer.dtype for buffer in buffers]
        ),
        **more,
    }
    warnings = tuple(note for kind in order for note in notes.get(kind, ()))
    state = tuple(evidence.state)
    return replace(result, verification=verification, state=state, machine_code=evidence.code, warnings=warnings)


LOOKS = {
    "before": "before timing",
    "timed": "of a timed sample",
    "after": "after timing",
    "again": "of a second launch",
    "simulated": "simulated",
}


def wrong_reason(verification: Verification) -> str:
    """Return one sentence about what is wrong with an output."""
    first = verification.first
    assert first is not None
    index = f"[{', '.join(str(i) for i in first.index)}]" if first.index else ""
    bound = f", accepted: {verification.atol:g} + {verification.rtol:g} * |expected|" if verification.rtol else ""
    return (
        f"{verification.mismatches} wrong elements ({LOOKS[verification.checked[-1]]}), first {first.output}{index}: "
        f"got {first.got:g}, expected {first.expected:g}{bound}"
    )


def kept_sentence(state: Sequence[StateVariable]) -> str:
    """Return why a second launch can be wrong: what the first left, with the lines of the source."""
    return f"launches leave {_variables(state)} changed, and what is kept must not decide the output"


NARROWER = {
    "float64": ("float32", "tf32", "bfloat16", "float16", "float8", "int8"),
    "float32": ("tf32", "bfloat16", "float16", "float8", "int8"),
}


def arithmetic_warnings(
    code: MachineCode | None, dtype: str, verification: Verification | None, stored: Iterable[str] = ()
) -> list[Warning]:
    """Return what is to be said of code that computes in a narrower format than that of its data, or approximately.

    Products of bytes get no note where arrays are `stored` as bytes.
    """
    used = code.arithmetic if code and code.arithmetic else ()
    narrower = {*NARROWER.get(dtype, ()), "approximate"} - ({"int8"} if {"int8", "uint8"} & set(stored) else set())
    narrow = [name for name in used if name in narrower]
    if not narrow or dtype not in NARROWER or verification is None or verification.largest_error_ulp is None:
        return []
    return [
        warning(
            "arithmetic",
            formats=", ".join(narrow),
            dtype=dtype,
            ulp=verification.largest_error_ulp,
            rtol=verification.rtol,
        )
    ]


def _variables(state: Sequence[StateVariable]) -> str:
    """Return variables in words: 'count' (line 3), 'table'."""
    return ", ".join(f"'{v.variable}'" + (f" (line {v.line})" if v.line else "") for v in state)


def launch_warnings(case: Case) -> list[Warning]:
    """Return what the launch itself gives away."""
    unset = [
        warning("constant", kernel=case.kernel, name=name, value=value or "...")
        for name, _, value in (unset_constant.partition("=") for unset_constant in case.unset_constants)
    ]
    threads = case.threads
    if threads % WARP == 0:
        return unset
    count, leave = ("1 thread", "leaves") if threads == 1 else (f"{threads} threads", "leave")
    return [*unset, warning("partial-warp", threads=count, leave=leave, idle=-threads % WARP, warp=WARP)]


def unverified_warnings(
    verification: Verification | None, expected: Arrays, buffers: Sequence[Buffer]
) -> list[Warning]:
    """Return what is to be said of a result, or of an output of it, that nothing was compared with."""
    if verification is None:
        return [warning("unverified")]
    names = [buffer.name for buffer in buffers if buffer.role == "out" and buffer.name not in expected]
    verb = "is" if len(names) == 1 else "are"
    return [warning("not-compared", names=", ".join(names), verb=verb, first=names[0])] if names else []


def extent_warnings(
    verification: Verification | None, hazards: Sequence[Hazard], buffers: Sequence[Buffer]
) -> list[Warning]:
    """Return what is to be said of an array that a kernel went beyond, where nothing holds its output."""
    if verification is not None:
        return []
    beyond = [hazard.message for hazard in hazards if hazard.kind == "out-of-bounds"]
    past, before = (
        [buffer.name for buffer in buffers if f"{side} of '{buffer.name}'" in " ".join(beyond)]
        for side in ("past the end", "before the start")
    )
    names = [name for name in past if name not in before]  # no size is enough then
    return [warning("extent", name=names[0])] if names else []


# Words of PTX that keep lines in the L2, or bring them there, beyond what a plain access does.
EVICTION = ("evict_last", "createpolicy", "prefetch.global", "bulk.prefetch", "discard.global", "applypriority")
# Opcodes with their modifiers, such as 'ld.global.L2::evict_last.f32': of instructions, no file name or comment.
_OPCODE = re.compile(r"^\s*(?:\{\s*)?(?:@!?[%\w]+\s+)?([a-z][\w.:]*)", re.M)
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|extern|weak)\s+)*\.(?:entry\s+([\w$]+)|func\b)", re.M)
_MALLOC = re.compile(r"^\s*(?:@!?[%\w]+\s+)?call(?:\.uni)?\b[^;]*\bmalloc\b", re.M)


def _launched(ptx: str, entries: Collection[str]) -> str:
    """Return PTX without the kernels that are not among these entries."""
    heads = list(_FUNCTION.finditer(ptx)) if entries else []
    end = len(ptx)
    for head in reversed(heads):
        if head[1] is not None and head[1] not in entries:
            ptx = ptx[: head.start()] + ptx[end:]
        end = head.start()
    return ptx


def kept_in_cache(ptx: str) -> bool:
    """Tell whether code asks the L2 to keep lines."""
    return any("evict_last" in opcode for opcode in _OPCODE.findall(ptx))


def code_warnings(texts: Iterable[str], entries: Collection[str] = ()) -> list[Warning]:
    """Return what is to be said of instructions that reach beyond the launch, cache hints and the device's heap, in
    PTX; of the kernels in it only of those that are launched, where they are known."""
    ptx = "\n".join(_launched(text, entries) for text in texts)
    used = set(_OPCODE.findall(ptx))
    hints = [word for word in EVICTION if any(word in opcode for opcode in used)]
    notes = [warning("eviction", hints=", ".join(hints))] if hints else []
    return [*notes, warning("malloc")] if _MALLOC.search(ptx) else notes
