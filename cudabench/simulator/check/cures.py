"""What mends the races of one line: a barrier and where it stands, or what else has to be done.

A cure follows from all pairs of accesses that were found: it reaches the farthest pair of threads, and comes after the
latest of the accesses before. Where a barrier that is advised for one line orders accesses of another one as well,
those are not told: see `Cuts`.
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

# How far the cure of a race has to reach.
WARP, BLOCK, GRID = 1, 2, 3
CURES = {WARP: "__syncwarp()", BLOCK: "__syncthreads()"}
NAMES = {WARP: "warp", BLOCK: "block"}


@dataclass
class Cure:
    """What mends the races of accesses in one line with earlier ones, put together from what is found.

    barrier: how far it has to reach, 0 for none. gaps: where it stands, by the earlier access's line. splits: whether
    it comes between what a statement reads and what it writes. others: what is to be done besides. waited: whether it
    comes after a wait for an asynchronous copy.
    """

    barrier: int = 0
    gaps: list[Gap] = field(default_factory=list)
    splits: Gap | None = None
    others: list[str] = field(default_factory=list)
    waited: bool = False

    def add(self, what: str, gap: Gap | None, scope: int, copied: bool) -> None:
        """Add what is to be done besides a barrier, or where one stands that reaches so far.

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
        """Add a place for a barrier; a later one between the same accesses does for an earlier one."""
        if gap.kind == "turn":
            around = any(
                one.kind == "between" and gap.span[0] <= one.after <= one.before <= gap.span[1] for one in self.gaps
            )
            if not around and all((one.kind, one.loop) != ("turn", gap.loop) for one in self.gaps):
                self.gaps.append(gap)
            return
        for place, one in enumerate(self.gaps):
            if one.kind == "between":
                if (gap.after, gap.before) > (one.after, one.before):
                    self.gaps[place] = gap
                gap = self.gaps[place]
                break
        else:
            self.gaps.append(gap)
        self.gaps = [one for one in self.gaps if one.kind != "turn" or not one.span[0] <= gap.after <= one.span[1]]

    def told(self, race: str) -> str:
        """Return the message of a race with its cure."""
        if self.barrier == BLOCK:
            race = race.replace(f"without {CURES[WARP]}", f"without {CURES[BLOCK]}")
        return f"{race}{self.text()}."

    def text(self) -> str:
        """Return the sentences of a message that say what to do, with the point or the colon before them."""
        gaps = [self.splits, *self.gaps] if self.splits else self.gaps
        if not self.barrier or not gaps:
            return f": {', and '.join(self.others)}" if self.others else ""
        name, scope = CURES[self.barrier], NAMES[self.barrier]
        wheres = [_where(one) for one in gaps]
        around = list(dict.fromkeys(line for one in gaps for line in one.around))
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
        outside = next((one for one in gaps if one.outside), None)
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
        leaves = next((one.leaves for one in gaps if one.leaves), 0)
        if leaves:
            text += (
                f". Threads that leave in line {leaves} have to come as well: put its condition around the work instead"
            )
        return text


def place(gap: Gap) -> tuple[str, int]:
    """Return what tells the place of a barrier from others."""
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
    """Return where a barrier can stand between two accesses: as the source says, else by their lines alone."""
    hazards = machine.hazards
    if hazards.between is not None and earlier.file == later.file:
        parted = {line for (file, line), far in machine.parted.items() if file == later.file and far <= scope}
        found = hazards.between(
            machine.code.files.get(later.file, ""), (earlier.line, earlier.column), (later.line, later.column), parted
        )
        if found is not None:
            return found
    kind = "between" if earlier.line < later.line else "next"
    if earlier.line == later.line:
        kind = "same"
    return Gap(kind, earlier.line, later.line, 0, (later.line, later.line))


def around_barrier(machine: Machine, barrier: Location) -> str:
    """Return why not all threads of a block come to a barrier, as the source says, and what to do; empty if unknown."""
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
    """Barriers that were advised, as if they stood in the kernel.

    What they order is told of no other line: that is mended with the first. Of the lines for which they were advised
    all is told, so that their cures reach far enough. gaps: by those lines where the barriers stand. times: until when
    accesses are ordered, within warps and within blocks. scopes: how far the barrier of each line and in each place has
    to reach. news: whether a barrier was advised, or reaches farther, that had not been known when the log was begun.
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
        """Return until when accesses are ordered before this one; 0 for no cut."""
        last, self.last = self.last, access
        if last is not None:
            for (file, _), gaps in self.gaps.items():
                for gap in gaps:
                    if file == access.location.file and self.crosses(gap, last, access):
                        self.add(self.scopes[place(gap)], time - 1)
        return (0, 0) if (access.location.file, access.location.line) in self.gaps else self.times

    def reach(self, of: object, scope: int) -> int:
        """Note how far a barrier has to reach, and return how far it does."""
        known = self.scopes.get(of, 0)
        if scope > known:
            self.news = True
            self.scopes[of] = scope
            if known:
                self.gaps.clear()  # what it mends besides is found anew
        return max(scope, known)

    def stand(self, later: Location, gap: Gap) -> None:
        """Note that a barrier was advised for a line."""
        gaps = self.gaps.setdefault((later.file, later.line), [])
        if gap not in gaps:
            gaps.append(gap)
            self.news = True

    def add(self, scope: int, time: int) -> None:
        """Let a barrier stand after what was done at a time."""
        warp, block = self.times
        self.times = (max(warp, time), block) if scope == WARP else (warp, max(block, time))

    def crosses(self, gap: Gap, last: MemoryOp, access: MemoryOp) -> bool:
        """Return whether a place for a barrier lies between two accesses, of which one came after the other."""
        before, line = last.location.line, access.location.line
        if not gap.span[0] <= line <= gap.span[1]:
            return False
        if gap.kind == "same":
            return before == line and last.kind == "load" and access.kind == "store"
        if not gap.span[0] <= before <= gap.span[1]:
            return True
        if gap.kind != "turn" or before != line:
            return False
        # In a loop that the compiler unrolled, what comes after a branch or a store is of a later turn.
        first, then = (bisect_left(self.branches, one.location.ptx_line) for one in (last, access))
        return access.number <= last.number or first != then or (last.kind, access.kind) == ("store", "load")
