"""A kernel's result from the evidence of it: what it left and keeps, and what its code is; with warnings of those."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cudabench.measure import verify
from cudabench.measure.context import Arrays, RunContext
from cudabench.records.launch import WARP
from cudabench.records.planned import Buffer, Case, Tolerance
from cudabench.records.results import Hazard, MachineCode, Result, StateVariable, Verification, Warning
from cudabench.results.warnings import warning

Notes = Mapping[str, Sequence[Warning]]  # by what they are of

# The order of warnings, by what they are of.
MEASURED = ("launch", "simulated", "unverified", "tolerance", "code", "state", "timing", "arithmetic", "scale")
SIMULATED = (
    "unverified", "extent", "arithmetic", "tolerance", "launch", "state", "code", "leak", "unreached", "suspected",
    "costly",
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
    result: Result, run: RunContext, case: Case, evidence: Evidence
) -> tuple[Result, dict[str, list[Warning]]]:
    """Return the result with its evidence, and the warnings that follow from that."""
    verification, expected = evidence.verification, run.expected(case.expects)
    buffers = run.operation.buffers(run.problem)
    types = {one.dtype for one in buffers if one.role in ("out", "inout")}
    notes = {
        "launch": launch_warnings(case),
        "unverified": unverified_warnings(verification, expected, buffers),
        "tolerance": tolerance_warnings(expected, run.operation.tolerated(case.expects, run.problem)),
        "code": code_warnings(evidence.ptx, evidence.entries),
        "state": [warning("state", variables=_variables(evidence.state))] if evidence.state else [],
        "arithmetic": arithmetic_warnings(
            evidence.code, types.pop() if len(types) == 1 else "", verification, [one.dtype for one in buffers]
        ),
    }
    state = tuple(evidence.state)
    return replace(result, verification=verification, state=state, machine_code=evidence.code), notes


def warned(result: Result, notes: Notes, order: Sequence[str]) -> Result:
    """Return the result with its warnings in an order of what they are of."""
    return replace(result, warnings=tuple(note for kind in order for note in notes.get(kind, ())))


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
    if first is None:
        return "the output is right"
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

    Products of bytes are none where arrays are `stored` as bytes.
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


def tolerance_warnings(expected: Arrays, tolerance: Tolerance) -> list[Warning]:
    """Return what is to be said of a tolerance that accepts zeros for something else."""
    found = (
        (name, verify.zeros_pass(array, tolerance.of(name)), tolerance.of(name)) for name, array in expected.items()
    )
    return [
        warning("tolerance", name=name, largest=largest, atol=own.atol, rtol=own.rtol)
        for name, largest, own in found
        if largest is not None
    ]


def _variables(state: Sequence[StateVariable]) -> str:
    """Return variables in words: 'count' (line 3), 'table'."""
    return ", ".join(f"'{v.variable}'" + (f" (line {v.line})" if v.line else "") for v in state)


def launch_warnings(case: Case) -> list[Warning]:
    """Return what the launch itself gives away."""
    unset = [
        warning("constant", kernel=case.kernel, name=name, value=value or "...")
        for name, _, value in (one.partition("=") for one in case.unset_constants)
    ]
    threads = case.threads
    if threads % WARP == 0:
        return unset
    said, leave = ("1 thread", "leaves") if threads == 1 else (f"{threads} threads", "leave")
    return [*unset, warning("partial-warp", threads=said, leave=leave, idle=-threads % WARP, warp=WARP)]


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
    ends = {side: [one.name for one in buffers if f"{side} of '{one.name}'" in " ".join(beyond)] for side in _SIDES}
    names = [name for name in ends["past the end"] if name not in ends["before the start"]]  # no size is enough then
    return [warning("extent", name=names[0])] if names else []


_SIDES = ("past the end", "before the start")


# Words of PTX that keep lines in the L2, or bring them there, beyond what a plain access does.
EVICTION = ("evict_last", "createpolicy", "prefetch.global", "bulk.prefetch", "discard.global", "applypriority")
_OPCODE = re.compile(
    r"^\s*(?:\{\s*)?(?:@!?[%\w]+\s+)?([a-z][\w.:]*)", re.M
)  # of an instruction, no file name or comment
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


def opcodes(ptx: str) -> set[str]:
    """Return the opcodes of PTX with their modifiers, such as 'ld.global.L2::evict_last.f32'."""
    return set(_OPCODE.findall(ptx))


def kept_in_cache(ptx: str) -> bool:
    """Tell whether code asks the L2 to keep lines."""
    return any("evict_last" in opcode for opcode in opcodes(ptx))


def code_warnings(texts: Iterable[str], entries: Collection[str] = ()) -> list[Warning]:
    """Return what is to be said of instructions that reach beyond the launch, cache hints and the device's heap, in
    PTX; of the kernels in it only of those that are launched, where they are known."""
    ptx = "\n".join(_launched(text, entries) for text in texts)
    used = opcodes(ptx)
    hints = [word for word in EVICTION if any(word in opcode for opcode in used)]
    notes = [warning("eviction", hints=", ".join(hints))] if hints else []
    return [*notes, warning("malloc")] if _MALLOC.search(ptx) else notes
