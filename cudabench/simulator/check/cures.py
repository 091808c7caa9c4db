"""Cures for the races of one line: a barrier and its place, or another change.

A cure follows from all racing pairs of accesses: its scope covers the farthest pair of threads, and it stands after the
latest of the earlier accesses. If a barrier advised for one line also orders accesses of another line, their races are
not reported: see `Cuts`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudabench.simulator.check.places import Gap
from cudabench.simulator.program.ptx import Location

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.code import Code

# The scope of the cure of a race.
WARP, BLOCK, GRID = 1, 2, 3
CURES = {WARP: "__syncwarp()", BLOCK: "__syncthreads()"}
NAMES = {WARP: "warp", BLOCK: "block"}


@dataclass
class Cure:
    """The cure for the races of accesses in one line with earlier ones, combined from all that were found.

    barrier: its scope, 0 for none. gaps: its places, by the earlier access's line. splits: its place between the reads
    and the writes of a statement. others: the other changes. waited: whether it follows a wait for a copy.
    """

    barrier: int = 0
    gaps: list[Gap] = field(default_factory=list)
    splits: Gap | None = None
    others: list[str] = field(default_factory=list)
    waited: bool = False

    def add(self, what: str, gap: Gap | None, scope: int, copied: bool) -> None:
        """Add a change other than a barrier (no gap), or the place of a barrier with a scope.

        copied: whether the earlier access was a copy, which its thread has waited for.
        """
        if gap is None:
            if what not in self.others:
                self.others.append(what)
            return
        self.barrier = max(self.barrier, scope)
        self.waited = self.waited or copied
        if gap.kind in ("same", "head", "branches"):
            self.splits = gap
        else:
            self.stand(gap)

    def stand(self, gap: Gap) -> None:
        """Add a place for a barrier; a later one between the same accesses replaces an earlier one."""
        if gap.kind == "turn":
            around = any(
                old.kind == "between" and gap.span[0] <= old.after <= old.before <= gap.span[1] for old in self.gaps
            )
            if not around and all((old.kind, old.loop) != ("turn", gap.loop) for old in self.gaps):
                self.gaps.append(gap)
            return
        for place, old in enumerate(self.gaps):
            if old.kind == "between":
                if (gap.after, gap.before) > (old.after, old.before):
                    self.gaps[place] = gap
                gap = self.gaps[place]
                break
        else:
            self.gaps.append(gap)
        self.gaps = [old for old in self.gaps if old.kind != "turn" or not old.span[0] <= gap.after <= old.span[1]]

    def told(self, race: str) -> str:
        """Return the message of a race with its cure."""
        if self.barrier == BLOCK:
            race = race.replace(f"without {CURES[WARP]}", f"without {CURES[BLOCK]}")
        return f"{race}{self.text()}."

    def text(self) -> str:
        """Return the sentences of a message that say what to do, with the full stop or the colon before them."""
        gaps = [self.splits, *self.gaps] if self.splits else self.gaps
        if not self.barrier or not gaps:
            return f": {', and '.join(self.others)}" if self.others else ""
        name, scope = CURES[self.barrier], NAMES[self.barrier]
        wheres = [_where(gap) for gap in gaps]
        around = list(dict.fromkeys(line for gap in gaps for line in gap.around))
        if self.waited:
            wheres[-1] += ", after the wait for the copy"
        if around:
            conditions = " and ".join(f"the condition in line {line}" for line in around)
            wheres[-1] += f", outside of {conditions}, where all threads of the {scope} come"
        put = f"put {name} {', and '.join(wheres)}"
        if self.splits is not None:
            parts = f"part the condition in line {self.splits.span[0]} in two"
            put = f"{parts if self.splits.kind == 'branches' else 'keep what is read in a variable'}, and {put}"
        text = f". {', and '.join([put[:1].upper() + put[1:], *self.others])}"
        outside = next((gap for gap in gaps if gap.outside), None)
        if outside is not None and outside.is_loop:
            text += (
                f". Not all threads of the {scope} make the same number of iterations of the loop in line "
                f"{outside.outside}: let them, and put the condition around the work in it, not around the barrier"
            )
        elif outside is not None:
            text += (
                f". Not all threads of the {scope} meet the condition in line {outside.outside}: the barrier stands "
                "outside of it, where all of them come. End the condition before the barrier, and repeat it after it"
            )
        leaves = next((gap.leaves for gap in gaps if gap.leaves), 0)
        if leaves:
            text += (
                f". Threads that leave in line {leaves} have to come as well: put its condition around the work instead"
            )
        return text


def place(gap: Gap) -> tuple[str, int]:
    """Return a key that identifies the place of a barrier."""
    return gap.kind, gap.before if gap.kind == "between" else gap.loop or gap.after


def _where(gap: Gap) -> str:
    if gap.kind == "turn":
        braces = ", with braces around both" if gap.bare else ""
        return f"at the end of the body of the loop in line {gap.loop}, after line {gap.after}{braces}"
    if gap.kind == "between" and gap.after >= gap.before:
        return f"in line {gap.after}, between the two statements"
    return {
        "between": f"between line {gap.after} and line {gap.before}",
        "next": f"after line {gap.after}, before its next iteration",
        "same": "between the reads and the writes",
        "head": f"after that, before the condition in line {gap.span[0]}",
        "branches": "between the two parts",
    }[gap.kind]


def find_gap(machine: Machine, earlier: Location, later: Location, scope: int) -> Gap:
    """Return where a barrier can stand between two accesses: by the source if known, else by their lines alone."""
    hazards = machine.hazards
    if hazards.between is not None and earlier.file == later.file:
        divergent = {line for (file, line), reach in machine.diverged.items() if file == later.file and reach <= scope}
        known = hazards.between(
            machine.code.files.get(later.file, ""),
            (earlier.line, earlier.column),
            (later.line, later.column),
            divergent,
        )
        if known is not None:
            return known
    kind = "between" if earlier.line < later.line else "next"
    if earlier.line == later.line:
        kind = "same"
    return Gap(kind, earlier.line, later.line, 0, (later.line, later.line))


def around_barrier(machine: Machine, barrier: Location) -> str:
    """Return why not all threads of a block reach a barrier, by the source, and what to do; empty if unknown."""
    gap = find_gap(machine, barrier, barrier, BLOCK)
    if gap.outside and gap.is_loop:
        return (
            f": not all threads make the same number of iterations of the loop in line {gap.outside}. Let them, and "
            "put the condition around the work, not around the barrier"
        )
    if gap.outside:
        return (
            f": the barrier stands under the condition in line {gap.outside}, which not all threads of the block meet. "
            "Put one barrier after the end of this condition, where all threads of the block come, and repeat the "
            "condition for what is to come after the barrier"
        )
    if gap.leaves:
        return (
            f": the condition in line {gap.leaves} lets some threads leave before. Put it around the work, not around "
            "the barrier"
        )
    return ""


class Cuts:
    """Advised barriers, as if they stood in the kernel.

    Races of other lines that they order are not reported: the first cure mends those, too. Of the lines for which they
    were advised all races are reported, so that their cures get the full scope. gaps: by those lines the places of the
    barriers. times: until when accesses are ordered, within warps and within blocks. scopes: the scope of the barrier
    of each line and of each place. news: whether a barrier was advised, or got a wider scope, since the log was begun.
    """

    def __init__(self, code: Code) -> None:
        ends = (block.terminator for block in code.blocks)
        self.branches = sorted(end.line.ptx_line for end in ends if end is not None and end.kind == "branch")
        self.scopes: dict[object, int] = {}
        self.gaps: dict[tuple[int, int], list[Gap]] = {}
        self.clear()

    def clear(self) -> None:
        """Begin to examine a log."""
        self.times = (0, 0)
        self.news = False
        self.last: MemoryOp | None = None

    def of(self, access: MemoryOp, time: int) -> tuple[int, int]:
        """Return the times until which accesses are ordered before this one; 0 for no cut."""
        last, self.last = self.last, access
        if last is not None:
            for (file, _), gaps in self.gaps.items():
                for gap in gaps:
                    if file == access.location.file and self.crosses(gap, last, access):
                        self.add(self.scopes[place(gap)], time - 1)
        return (0, 0) if (access.location.file, access.location.line) in self.gaps else self.times

    def reach(self, key: object, scope: int) -> int:
        """Note the scope that a barrier needs, and return the scope that it has."""
        known = self.scopes.get(key, 0)
        if scope > known:
            self.news = True
            self.scopes[key] = scope
            if known:
                self.gaps.clear()  # the other races that it mends are determined anew
        return max(scope, known)

    def stand(self, later: Location, gap: Gap) -> None:
        """Note that a barrier was advised for a line."""
        gaps = self.gaps.setdefault((later.file, later.line), [])
        if gap not in gaps:
            gaps.append(gap)
            self.news = True

    def add(self, scope: int, time: int) -> None:
        """Let a barrier stand after the accesses at a time."""
        warp, block = self.times
        self.times = (max(warp, time), block) if scope == WARP else (warp, max(block, time))

    def crosses(self, gap: Gap, last: MemoryOp, access: MemoryOp) -> bool:
        """Return whether a place for a barrier is between two consecutive accesses."""
        before, line = last.location.line, access.location.line
        if not gap.span[0] <= line <= gap.span[1]:
            return False
        if gap.kind == "same":
            return before == line and last.kind == "load" and access.kind == "store"
        if not gap.span[0] <= before <= gap.span[1]:
            return True
        if gap.kind != "turn" or before != line:
            return False
        # In an unrolled loop, an access after a branch or a store is of a later iteration.
        first, then = (bisect_left(self.branches, op.location.ptx_line) for op in (last, access))
        return access.number <= last.number or first != then or (last.kind, access.kind) == ("store", "load")
