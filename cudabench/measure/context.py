"""The common part of measuring and simulating a kernel: makes inputs and references, times the CPU baseline, and turns
errors into results. It also makes a result and its warnings from verification, changed variables and machine code."""

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
from cudabench.records.plan import Baseline, Buffer, Case, Operation, Problem, Settings
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

BASELINE_S = 0.2


@dataclass
class InputSet:
    """The inputs of one seed and the expected outputs, in host memory; both are computed when first needed.

    `base`, `rotated`: if given, the inputs are the arrays of `base`, but the arrays named in `rotated` are rotated: a
    kernel gets addresses that are some bytes later, see `buffers`.
    """

    operation: Operation
    problem: Problem
    base: InputSet | None = None
    rotated: frozenset[str] = frozenset()
    _references: dict[str, Arrays] = field(default_factory=dict, init=False)
    _poisons: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    @cached_property
    def arrays(self) -> Arrays:
        """The input arrays by name, as the kernel reads them."""
        if self.base is None:
            return self.operation.inputs(self.problem)
        return {
            name: rotated_input(array) if name in self.rotated else array for name, array in self.base.arrays.items()
        }

    def expected(self, name: str, begin: Callable[[], None] = lambda: None) -> Arrays:
        """Return the expected outputs by name. `name`: the `expects` of a case, which selects one of the operation's
        references. `begin`: a function that is called before the outputs are computed."""
        name = name if self.operation.has_own(name) else ""
        if name not in self._references:
            begin()
            self._references[name] = self.operation.right(name, self.problem, self.arrays)
        return self._references[name]

    def poisons(self, name: str) -> tuple[int, int]:
        """Return the `poison_bytes` for the expected outputs; cached for all kernels with the same `expects`."""
        if name not in self._poisons:
            self._poisons[name] = poison_bytes(self.expected(name))
        return self._poisons[name]

    def compare(self, expects: str, got: Arrays, when: str) -> Verification | None:
        """Compare outputs with the expected outputs, and return the verification; None if no outputs are expected.
        `when`: the point of the run at which the outputs were read, such as "before"."""
        expected, tolerance = self.expected(expects), self.operation.tolerated(expects, self.problem)
        return verify.compare_all(expected, got, tolerance, checked=when) if expected else None


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two flat arrays are equal; the comparison stops at the first chunk that differs."""
    chunks = pieces(slice(0, max(first.size, second.size)), verify.CHUNK)
    return all(np.array_equal(first[chunk], second[chunk]) for chunk in chunks)


@dataclass
class RunContext:
    """The data on the host that all kernels of a run use, with two sets of inputs: for --seed and for another seed.

    `cards`: the cards for which lower bounds are computed from the simulator's counts. `output`: in the simulator, the
    text that the last kernel printed.
    """

    operation: Operation
    problem: Problem
    settings: Settings
    device: Any
    progress: Callable[[str, float], None] = field(default=lambda phase, fraction: None, kw_only=True)
    cpu: CpuTime | None = field(default=None, kw_only=True)
    cards: Sequence[Card] = field(default=(), kw_only=True)
    output: str = field(default="", init=False)
    second_seed: int | None = field(default=None, init=False)
    until: float | None = field(default=None, kw_only=True)  # the time.monotonic() at which the current kernel must end

    @cached_property
    def input_sets(self) -> tuple[InputSet, InputSet]:
        """The inputs for --seed, and those for `second_seed`, which is --seed + 1 by default."""
        seed = self.problem.seed + 1 if self.second_seed is None else self.second_seed
        return InputSet(self.operation, self.problem), InputSet(self.operation, replace(self.problem, seed=seed))

    @cached_property
    def random_inputs(self) -> frozenset[str]:
        """The names of the inputs that depend on the seed."""
        self.progress("making inputs", 0)
        first, second = (
            {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in input_set.arrays.items()}
            for input_set in self.input_sets
        )
        return frozenset(name for name, first_bytes in first.items() if not _equal(first_bytes, second[name]))

    @property
    def inputs_are_fixed(self) -> bool:
        """Whether no input depends on the seed."""
        return not self.random_inputs

    @property
    def inputs(self) -> Arrays:
        """The input arrays for --seed, by name."""
        self.progress("making inputs", 0)
        return self.input_sets[0].arrays

    def expected(self, name: str) -> Arrays:
        """Return the expected outputs, by name, for the inputs of --seed; `name`: the `expects` of a case."""
        return self.input_sets[0].expected(name, partial(self.progress, "computing the reference", 0))

    def figures(self, outputs: Arrays) -> dict[str, float]:
        """Save a correct output if an option requests this, and return numbers that describe the output, by name, such
        as its error."""
        if self.operation.save:
            self.operation.save(self.problem, outputs)
        return self.operation.figures(self.problem, self.inputs, outputs) if self.operation.figures else {}

    def measure(self, case: Case) -> Result:
        """Return the result of a case. If the compiler, the launch or the kernel fails, the status of the result is
        'failed' or 'skipped'.

        A kernel for another generation of GPUs, or with an unsupported feature, is skipped. But if the user named the
        kernel, UnsupportedFeature is raised, unless another card of the run may be able to run the kernel. For a named
        kernel UsageError (wrong options) is raised too.
        """
        self.output = ""
        alone = len(self.cards) < 2
        blank = describe(case, self.name)
        if reason := case.skip_reason or other_architecture(case, self.device.info, alone=alone):
            return replace(blank, status="skipped", reason=reason)
        blank = self.prepare_shared(blank)
        # An impossible expectation raises an error here, outside of `try`, and so ends the whole run.
        self.expected(case.expects)
        try:
            return self.run_case(case, blank)
        except CudabenchError as error:
            unsupported = isinstance(error, UnsupportedFeature)
            skipped = unsupported or self.is_skipped(case, error)
            if case.named and ((unsupported and alone) or (isinstance(error, UsageError) and not skipped)):
                raise
            return replace(blank, status="skipped" if skipped else "failed", reason=str(error))

    @property
    def name(self) -> str:
        """The device's name in results."""
        info = self.device.info
        return f"sim:{self.device.architecture}" if info.kind == "sim" else f"cuda:{info.index}"

    def prepare_shared(self, blank: Result) -> Result:
        """Prepare the data that all kernels use, and return the blank result, in which fields may be set. An error in
        this method ends the whole run."""
        raise NotImplementedError

    def run_case(self, case: Case, blank: Result) -> Result:
        """Return the result of a case that this device can run."""
        raise NotImplementedError

    def is_skipped(self, case: Case, error: CudabenchError) -> bool:
        """Return whether a case that raised this error gets the status 'skipped' instead of 'failed'."""
        raise NotImplementedError

    def measure_cpu(self) -> CpuTime:
        """Return the median time of the CPU baseline; only the first call measures it.

        The baseline runs repeatedly for BASELINE_S seconds, and at least twice if the first run is shorter than twice
        this time. The time of the first run, which touches new pages, is used only if it ran once.
        """
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
            while time.perf_counter() - begin < BASELINE_S or len(times) < (2 if sum(times) < 2 * BASELINE_S else 1):
                self.progress("timing the CPU", min((time.perf_counter() - begin) / BASELINE_S, 1.0))
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
        median = float(np.median(times[1:] or times))
        nbytes = self.operation.bytes(self.problem)
        self.cpu = CpuTime(median, nbytes / median / 1e9 if nbytes else None, threads, baseline.implementation)
        return self.cpu


def constants_of(operation: Operation, inputs: Arrays) -> dict[str, bytes]:
    """Return the contents of the operation's `__constant__` variables for these inputs, as bytes by variable name."""
    return {variable: inputs[buffer].tobytes() for variable, buffer in operation.constant_memory.items()}


def describe(case: Case, device: str) -> Result:
    """Return a result with the fields that are known before the kernel runs; other fields have their defaults."""
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


def stopped_pair(results: Sequence[Result], at: int, ended: Result) -> list[Result]:
    """Return the results of a pair whose measurement ended early, because kernel number `at` got the result `ended`;
    the other kernel gets the status 'skipped'."""
    reason = f"not timed, because the other side is {ended.status}"
    stopped = [replace(result, status="skipped", time=None, reason=reason) for result in results]
    return [*stopped[:at], ended, *stopped[at + 1 :]]


def other_architecture(case: Case, info: DeviceInfo, *, alone: bool = True) -> str | None:
    """Return a sentence that names the GPUs that a kernel needs, if the GPU `info` cannot run the kernel; else None.

    `alone`: whether the run uses no other card; the sentence then also says what to do. A kernel with architecture
    sm_90a runs only on GPUs of compute capability 9.0; with sm_80 it runs on 8.0 and later.
    """
    if not case.architecture:
        return None
    required, actual = capability(case.architecture), capability(info.compute_capability)
    plain = case.architecture.rstrip("af")
    if actual == required or (plain == case.architecture and actual > required):
        return None
    later = " and later" if plain == case.architecture else ""
    return (
        f"{case.kernel} needs a GPU of compute capability {required[0]}.{required[1]}{later}, and this one has "
        f"{info.compute_capability}" + (f": use --device sim:{plain}" if alone else "")
    )


# Bytes to fill memory with before a kernel writes it. The first byte, 0xFF, makes NaN in every floating-point type.
POISONS = (POISON, 0xC7, 0x5B, 0x9D)


def poison_bytes(expected: Arrays) -> tuple[int, int]:
    """Return the two poison bytes whose values occur least often in the expected outputs. An element that the kernel
    did not write then differs from the expected element for at least one of the bytes."""
    flat = [array.reshape(-1) for array in expected.values()]
    chunks = [array[chunk] for array in flat for chunk in pieces(slice(0, array.size), verify.CHUNK)]

    def count_bytes(chunk: np.ndarray) -> list[int]:
        values = (np.frombuffer(bytes([byte]) * chunk.itemsize, chunk.dtype)[0] for byte in POISONS)
        return [int(np.count_nonzero(chunk == value)) for value in values]

    counts = dict(zip(POISONS, map(sum, zip(*on_threads(count_bytes, chunks), strict=True)), strict=False))
    first, second, *_ = sorted(POISONS, key=lambda byte: counts.get(byte, 0))
    return first, second


# The result ----------------------------------------------------------------------------------------------------------

Notes = Mapping[str, Sequence[Warning]]  # the warnings of each kind

# The kinds of warnings in the order in which a result lists them: MEASURED for a kernel on a GPU, SIMULATED for one in
# the simulator.
MEASURED = (
    "launch",
    "simulated",
    "binding",
    "unverified",
    "tolerance",
    "code",
    "state",
    "timing",
    "arithmetic",
    "scale",
)
SIMULATED = (
    "differs", "binding", "unverified", "extent", "arithmetic", "tolerance", "launch", "state", "code", "leak", "stack",
    "compiler", "unreached", "suspected", "costly",
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """The facts about a kernel that ran. `verification`: the comparison of the outputs, None if nothing was expected.
    `state`: the module variables that launches changed. `code`: the machine code. `ptx`: the PTX texts. `entries`: the
    names of the launched PTX functions."""

    verification: Verification | None
    state: Sequence[StateVariable]
    code: MachineCode | None
    ptx: Sequence[str]
    entries: Collection[str]


def conclude(
    result: Result, run: RunContext, case: Case, evidence: Evidence, extra: Notes, order: Sequence[str]
) -> Result:
    """Return the result with the evidence and with warnings: those that follow from the evidence, and those in `extra`.
    `order`: the kinds of warnings, in the order in which the result lists them."""
    verification, expected = evidence.verification, run.expected(case.expects)
    buffers = run.operation.buffers(run.problem)
    types = {buffer.dtype for buffer in buffers if buffer.role in ("out", "inout")}
    notes: Notes = {
        "launch": launch_warnings(case),
        "binding": binding_warnings(case, verification),
        "unverified": unverified_warnings(verification, expected, buffers),
        "tolerance": [
            warning("tolerance", name=name, largest=largest, atol=tolerance.atol, rtol=tolerance.rtol)
            for name, array in expected.items()
            for tolerance in [run.operation.tolerated(case.expects, run.problem).of(name)]
            if (largest := verify.zeros_pass(array, tolerance)) is not None
        ],
        # If the simulator has counted the heap memory that leaks, the general warning about malloc is not needed.
        "code": [
            note
            for note in code_warnings(evidence.ptx, evidence.entries)
            if note.code != "malloc" or "leak" not in extra
        ],
        "state": [warning("state", variables=_variables(evidence.state))] if evidence.state else [],
        "arithmetic": arithmetic_warnings(
            evidence.code, types.pop() if len(types) == 1 else "", verification, [buffer.dtype for buffer in buffers]
        ),
        **extra,
    }
    warnings = tuple(note for kind in order for note in notes.get(kind, ()))
    state = tuple(evidence.state)
    return replace(result, verification=verification, state=state, machine_code=evidence.code, warnings=warnings)


CHECK_TIMES = {
    "before": "before timing",
    "timed": "of a timed sample",
    "after": "after timing",
    "again": "of a second launch",
    "simulated": "simulated",
}


def _number(value: float) -> str:
    """Return a number as text; an integer with all its digits."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:g}"


def wrong_reason(verification: Verification) -> str:
    """Return a text that describes a wrong output: how many elements are wrong, and the first wrong element."""
    first = verification.first
    assert first is not None
    bound = f", accepted: {verification.atol:g} + {verification.rtol:g} * |expected|" if verification.rtol else ""
    wrong = "1 wrong element" if verification.mismatches == 1 else f"{verification.mismatches} wrong elements"
    return (
        f"{wrong} ({CHECK_TIMES[verification.checked[-1]]}), first "
        f"{verify.element_name(first.output, first.index)}: "
        f"got {_number(first.got)}, expected {_number(first.expected)}{bound}"
    )


def changed_state_sentence(state: Sequence[StateVariable]) -> str:
    """Return a text with the reason why a second launch gave a wrong output: the variables that launches change."""
    return f"launches change {_variables(state)}, and the output must not depend on such values"


NARROWER = {
    "float64": ("float32", "tf32", "bfloat16", "float16", "float8", "int8"),
    "float32": ("tf32", "bfloat16", "float16", "float8", "int8"),
}


def arithmetic_warnings(
    code: MachineCode | None, dtype: str, verification: Verification | None, stored: Iterable[str] = ()
) -> list[Warning]:
    """Return a list with a warning if the code computes approximately, or in a narrower format than that of its data;
    else an empty list.

    `dtype`: the type of the outputs. `stored`: the types of all arrays; if an array has the type int8 or uint8, the
    code may compute in int8 without a warning.
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
    """Return the names of variables as text, with their lines: "'count' (line 3), 'table'"."""
    return ", ".join(f"'{v.variable}'" + (f" (line {v.line})" if v.line else "") for v in state)


def launch_warnings(case: Case) -> list[Warning]:
    """Return the warnings about the launch: `__constant__` variables that were not set, and a partial last warp."""
    unset = [
        warning("constant", kernel=case.kernel, name=name, value=value or "...")
        for name, _, value in (unset_constant.partition("=") for unset_constant in case.unset_constants)
    ]
    threads = case.threads
    if threads % WARP == 0:
        return unset
    count, verb = ("1 thread", "leaves") if threads == 1 else (f"{threads} threads", "leave")
    return [*unset, warning("partial-warp", threads=count, leave=verb, idle=-threads % WARP, warp=WARP)]


def binding_warnings(case: Case, verification: Verification | None) -> list[Warning]:
    """Return a list with the warning that a wrong kernel may have been called with other arguments than meant."""
    wrong = verification is not None and verification.mismatches > 0
    return [warning("binding", pairs=case.unsure)] if wrong and case.unsure else []


def unverified_warnings(
    verification: Verification | None, expected: Arrays, buffers: Sequence[Buffer]
) -> list[Warning]:
    """Return a list with the warning that no output, or only some of the outputs, were compared; empty if all were."""
    if verification is None:
        return [warning("unverified")]
    names = [buffer.name for buffer in buffers if buffer.role == "out" and buffer.name not in expected]
    verb = "is" if len(names) == 1 else "are"
    return [warning("not-compared", names=", ".join(names), verb=verb, first=names[0])] if names else []


def extent_warnings(
    verification: Verification | None, hazards: Sequence[Hazard], buffers: Sequence[Buffer]
) -> list[Warning]:
    """Return a list with the warning that an array may be too short, if an unverified kernel accessed memory past the
    end of the array; else an empty list."""
    if verification is not None:
        return []
    messages = [hazard.message for hazard in hazards if hazard.kind == "out-of-bounds"]
    past_end, before_start = (
        [buffer.name for buffer in buffers if f"{side} of '{buffer.name}'" in " ".join(messages)]
        for side in ("past the end", "before the start")
    )
    # A larger array does not repair accesses before its start, nor an index that is a negative number read as unsigned.
    wrapped = [int(number) >= 1 << 31 for message in messages for number in re.findall(r"\[(\d+)\]", message)]
    names = [name for name in past_end if name not in before_start and not any(wrapped)]
    return [warning("extent", name=names[0])] if names else []


# Words in PTX opcodes that tell the L2 to keep cache lines, to drop them, or to load them in advance.
EVICTION = ("evict_last", "createpolicy", "prefetch.global", "bulk.prefetch", "discard.global", "applypriority")
# Matches an opcode with its modifiers, such as 'ld.global.L2::evict_last.f32', but no file name and no comment.
_OPCODE = re.compile(r"^\s*(?:\{\s*)?(?:@!?[%\w]+\s+)?([a-z][\w.:]*)", re.M)
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|extern|weak)\s+)*\.(?:entry\s+([\w$]+)|func\b)", re.M)
_MALLOC = re.compile(r"^\s*(?:@!?[%\w]+\s+)?call(?:\.uni)?\b[^;]*\bmalloc\b", re.M)


def _launched(ptx: str, entries: Collection[str]) -> str:
    """Return a PTX text without the kernels that are not in `entries`; functions stay."""
    heads = list(_FUNCTION.finditer(ptx)) if entries else []
    end = len(ptx)
    for head in reversed(heads):
        if head[1] is not None and head[1] not in entries:
            ptx = ptx[: head.start()] + ptx[end:]
        end = head.start()
    return ptx


def kept_in_cache(ptx: str) -> bool:
    """Return whether a PTX text has an instruction that asks the L2 to keep lines."""
    return any("evict_last" in opcode for opcode in _OPCODE.findall(ptx))


def code_warnings(texts: Iterable[str], entries: Collection[str] = ()) -> list[Warning]:
    """Return the warnings for PTX instructions whose effects outlast the launch: cache hints, and malloc on the device.

    `entries`: the names of the launched kernels; other kernels in the PTX are ignored.
    """
    ptx = "\n".join(_launched(text, entries) for text in texts)
    used = set(_OPCODE.findall(ptx))
    hints = [hint for hint in EVICTION if any(hint in opcode for opcode in used)]
    notes = [warning("eviction", hints=", ".join(hints))] if hints else []
    return [*notes, warning("malloc")] if _MALLOC.search(ptx) else notes
