"""The simulator's counts and hazards as records of a result, with advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudabench import simulator
from cudabench.devices import sim
from cudabench.explain import advice
from cudabench.occupancy import Occupancy
from cudabench.records.launch import Dim
from cudabench.records.planned import Case, Operation, Problem
from cudabench.records.results import Access, Branch, Hazard, Imbalance, Pattern, Result

SMS = 132  # of an H100 or H200, whether all blocks run at once: on smaller GPUs fewer do

_SAME_OF_ACCESS = (
    "line", "space", "op", "bytes", "requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged",
    "array", "inexact",
)  # fmt: skip
_SAME_OF_IMBALANCE = ("blocks", "busiest", "instructions", "mean", "over", "last", "line", "share")
_SAME_OF_HAZARD = ("kind", "line", "block", "thread", "count", "message")


def _same(one: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def counted(
    result: Result, case: Case, run: sim.Run, operation: Operation, problem: Problem, blocks: Mapping[str, Dim]
) -> Result:
    """Return a result with what the simulator counted."""
    report = run.report
    return replace(
        result,
        registers=run.resources.registers,
        shared_bytes=run.resources.shared_bytes,
        local_bytes=run.resources.local_bytes,
        occupancy=run.occupancy,
        bytes=operation.bytes(problem) or None,
        flops=operation.flops(problem) if operation.flops else None,
        instructions=report.instructions,
        access=access_rows(report.accesses, report, case, blocks),
        branches=tuple(_branch(branch, case, report.instructions) for branch in report.branches),
        hazards=hazards_of(report.hazards, case),
        imbalance=report.imbalance and _imbalance(report.imbalance, case, run.occupancy),
    )


def access_rows(
    rows: Sequence[simulator.Access], report: simulator.Report, case: Case, blocks: Mapping[str, Dim]
) -> tuple[Access, ...]:
    """Return the accesses of a result: the simulator's rows with advice and with what the report knows of atomics."""
    said = advice.advise(rows, blocks)
    own = tuple(_access(row, case, text) for row, text in zip(rows, said, strict=True))
    return _contended(own, rows, report.contended, case)


def _access(access: simulator.Access, case: Case, said: str | None) -> Access:
    return Access(
        **_same(access, _SAME_OF_ACCESS),
        source=line_text(case, access.file, access.line),
        advice=said,
        column=access.column or None,
        instruction=access.instruction or None,
        pattern=_pattern(access),
    )


def _pattern(access: simulator.Access) -> Pattern | None:
    if not access.patterns:
        return None
    most, requests, *_ = access.patterns[0]
    irregular = most.kind in ("gather", "permutation", "single")
    return Pattern(
        kind=most.kind,
        stride_bytes=None if irregular else most.stride,
        offset_bytes=None if most.varies else most.offset,
        lanes=most.lanes,
        run=most.run,
        jump_bytes=most.jump or None,
        share=requests / access.requests,
    )


def _contended(
    rows: tuple[Access, ...], counted: Sequence[simulator.Access], contended: Sequence[simulator.Contended], case: Case
) -> tuple[Access, ...]:
    """Return the rows with what is known of their atomics: whether they are reductions, and where they meet."""
    by_instruction: dict[tuple[int, str, int | None], list[simulator.Contended]] = {}
    for atomic in contended:
        place = (atomic.line, line_text(case, atomic.file, atomic.line), atomic.instruction or None)
        by_instruction.setdefault(place, []).append(atomic)
    found = []
    for row, own in zip(rows, counted, strict=True):
        atomics = by_instruction.get((row.line, row.source, row.instruction), [])
        if row.op not in ("atomic", "reduction") or row.space != "global" or not atomics:
            found.append(row)
            continue
        most = max(atomics, key=lambda atomic: atomic.hottest or 0)
        said = advice.contention(own, most.hottest, most.blocks)
        if said is None or (row.advice and row.pattern and row.pattern.kind == "gather"):
            said = row.advice  # a histogram's bins are hit often, and not all by one warp
        elif row.array:
            said = f"{row.array}: {said}"
        op = "atomic" if any(atomic.returns for atomic in atomics) else "reduction"
        found.append(replace(row, op=op, hottest=most.hottest, hottest_blocks=most.blocks, advice=said))
    return tuple(found)


def _branch(branch: simulator.Branch, case: Case, instructions: int) -> Branch:
    return Branch(
        line=branch.line,
        source=line_text(case, branch.file, branch.line),
        executions=branch.executions,
        divergent=branch.parted,
        lanes_taken=branch.taken / branch.lanes if branch.lanes else 0.0,
        instructions=branch.instructions,
        threads_per_instruction=branch.threads / branch.instructions if branch.instructions else None,
        advice=advice.parted(branch, instructions),
    )


def _imbalance(found: simulator.Imbalance, case: Case, fits: Occupancy | None) -> Imbalance | None:
    advised = advice.unbalanced(found, SMS, fits.blocks_per_sm if fits else 1)
    if advised is None:
        return None
    source = line_text(case, found.file, found.line)
    return Imbalance(**_same(found, _SAME_OF_IMBALANCE), source=source, advice=advised)


def hazards_of(found: Iterable[simulator.Hazard], case: Case) -> tuple[Hazard, ...]:
    """Return the simulator's hazards as a result has them."""
    return tuple(Hazard(**_same(one, _SAME_OF_HAZARD), source=line_text(case, one.file, one.line)) for one in found)


def line_text(case: Case, file: str, number: int) -> str:
    """Return the text of a source line, or the file's name where the line is in a header."""
    sources = [part.source for part in case.parts]
    source = next((s for s in sources if not file or file.endswith(s.name.rsplit("/", 1)[-1])), None)
    if source is None:
        return f"({file.rsplit('/', 1)[-1]})"
    lines = source.text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def hazard_reason(hazards: Sequence[Hazard | simulator.Hazard]) -> str:
    """Return the first hazard, and how many others there are."""
    first = hazards[0]
    more = f", and {len(hazards) - 1} more" if len(hazards) > 1 else ""
    return f"{first.kind} on line {first.line}: {first.message.rstrip('.')}{more}"


def texts_of(case: Case) -> dict[str, str]:
    """Return the texts of a case's sources by their names."""
    return {part.source.name: part.source.text for part in case.parts}
