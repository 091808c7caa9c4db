"""The outcome of a launch, in the same form for both engines, and the conversion of an outcome into a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from cudabench.simulator.count import order
from cudabench.simulator.count.atomics import ONE_LANE
from cudabench.simulator.count.counters import NO_ARRAY, REMOTE_COUNTED, ArrayKey, Row
from cudabench.simulator.count.executed import branches, executed_lines
from cudabench.simulator.heap import PLACED, HeapRegion
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.plan import Plan
from cudabench.simulator.report import (
    Access,
    Contended,
    Engine,
    Executed,
    Footprint,
    Hazard,
    Imbalance,
    PatternCount,
    Report,
    collected,
)
from cudabench.symbols import plain_name

if TYPE_CHECKING:
    from cudabench.simulator.count.trace import Trace


NEVER = Executed()


def executed_of(blocks: Iterable[Sequence[int]]) -> list[Executed]:
    """Return an `Executed` for each basic block; `blocks`: for each basic block, the values of the fields."""
    return [Executed(*times) if times[0] else NEVER for times in blocks]


@dataclass
class Outcome:
    """The counts and hazards that an engine found in a launch that has ended. An instruction is given by its number in
    the code.

    `executed`: for each basic block, how often it ran. `rows`: the counts by memory instruction and array. `issued`:
    for each memory instruction that differs in the machine code, how to count its accesses: see `merged` of
    `launch.run`. `merged`: for each memory instruction, how many of its requests the machine code merges into requests
    of other instructions. `remote`: the instructions that accessed the shared memory of other blocks. `contended`: for
    each atomic instruction on global memory, (hits of the most used address, number of blocks that they come from,
    whether the kernel uses the result).
    """

    engine: Engine
    plan: Plan
    space: AddressSpace
    instructions: int
    executed: list[Executed]
    rows: Mapping[tuple[int, ArrayKey], Row]
    issued: Mapping[int, tuple[int, int]]
    merged: list[int]
    remote: set[int]
    contended: Mapping[int, tuple[int | None, int | None, bool]]
    footprint: Footprint | None
    imbalance: Imbalance | None
    hazards: tuple[Hazard, ...] = ()
    suspicions: tuple[Hazard, ...] = ()
    output: str = ""
    trace: Trace | None = None
    stack_bytes: int = 0
    blocks_alike: bool = False

    def report(self) -> Report:
        """Return the report of the launch."""
        code, plan = self.plan.code, self.plan
        if self.trace is not None:
            self.trace.variables = self._shared_variables()
        contended = []
        for number, (hits, blocks, returns) in sorted(self.contended.items(), key=itemgetter(0)):
            location = code.accesses[number].location
            file = code.files.get(location.file, "")
            contended.append(Contended(file, location.line, location.ptx_line, returns, hits, blocks))
        return Report(
            self.instructions, self._accesses(), self.hazards, self.output, self.trace, self.suspicions,
            {code.name: executed_lines(plan.flow, self.executed)},
            branches(code, self.executed, plan.flow), tuple(contended), self.footprint, self.imbalance, self.engine,
            self.stack_bytes, self.blocks_alike and all(times.lanes == 32 * times.warps for times in self.executed),
        )  # fmt: skip

    def _accesses(self) -> tuple[Access, ...]:
        """Return the counts for each instruction and array, in source order."""
        # The copies of an inlined function have the same key, so their counts are added.
        found = collected(map(self._access, self.rows.values()), attrgetter("key"))
        for number, (line, issued) in self.issued.items():
            away = self.merged[number]
            leads = (key for key, access in found.items() if access.instruction == line)
            if away and not issued and (leader := next(leads, None)) is not None:
                found[leader] = found[leader]._replace(merged=found[leader].merged + away)
        return tuple(access for _, access in sorted(found.items(), key=itemgetter(0)))

    def _shared_variables(self) -> tuple[tuple[str, int, int], ...]:
        """Return (name, offset in bytes, size in bytes) of each variable in shared memory."""
        names, size = self.plan.code.shared_names, self.plan.shared_size
        return tuple((plain_name(name), start, nbytes or size - start) for name, start, nbytes in names)

    def _access(self, row: Row) -> Access:
        """Return the record of one instruction's accesses to one array; it includes the reason why the counters of a
        GPU may differ."""
        code, flow = self.plan.code, self.plan.flow
        location, space, op, size, what = code.accesses[row.number]
        line = location.ptx_line
        issued = self.issued.get(row.number, (0, size))[1]
        examples = row.patterns.items()
        counts = [PatternCount(each.pattern, r, p, i, each.example) for each, (r, p, i) in examples]
        patterns = tuple(sorted(counts, key=lambda each: -each.requests))
        requests, pieces, ideal = row.totals
        slots: list[Any] = (
            [] if row.array == NO_ARRAY else [*row.array] if isinstance(row.array, tuple) else [row.array]
        )
        regions = [self.space.slots[slot] for slot in slots] if space in ("global", "constant") else []
        array, start, nbytes = None, 0, 0
        if regions:
            array = ", ".join(dict.fromkeys(plain_name(region.name) for region in regions))
            start, nbytes = regions[0].base, regions[0].size
        elif slots and space == "shared" and code.shared_names:
            array, start, nbytes = self._shared_variables()[slots[0]]
        least = next(iter(row.patterns)).least
        first = start if least is None else least
        inexact = flow.order_dependent.get(line) or (order.RETRIES if row.reloads else None)
        inexact = inexact or (REMOTE_COUNTED if row.number in self.remote else None)
        inexact = inexact or (PLACED if any(isinstance(region, HeapRegion) for region in regions) else None)
        by_data = any(each.pattern.kind == "gather" for each in row.patterns) and line in flow.data_dependent_addresses
        banked = space in ("shared", "constant")  # in these state spaces, the pieces are wavefronts
        return Access(
            code.files.get(location.file, ""), location.line, space, op, size if issued == ONE_LANE else issued,
            requests, None if banked else pieces, None if banked else ideal, pieces if banked else None,
            ideal if banked else None, kernel=code.name, column=location.column, instruction=line, array=array,
            array_bytes=nbytes, start=start, patterns=patterns, first=first, step=row.step, what=what,
            reloads=row.reloads, aggregated=issued == ONE_LANE, inexact=inexact, by_data=by_data,
        )  # fmt: skip
