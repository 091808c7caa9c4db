"""The advice that removes the races of one source line (the "cure"): a barrier with its place, or another change.

The cure is computed from all racing pairs of accesses. The barrier is __syncthreads() if any of the pairs is in two
warps, else __syncwarp(). The advised barrier is after the last of the earlier accesses. If the barrier for one line
also orders the accesses of another line, the races of that line are not reported: see `AdvisedBarriers`.
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

# The scope of a cure: the threads that its barrier must order. GRID means threads of several blocks, which a barrier
# cannot order.
WARP, BLOCK, GRID = 1, 2, 3
CURES = {WARP: "__syncwarp()", BLOCK: "__syncthreads()"}
ITERATIONS = (
    ": not all threads make the same number of iterations of {}. Let all threads make the same number, and put the "
    "condition around the work, not around the barrier"
)
NAMES = {WARP: "warp", BLOCK: "block"}


@dataclass
class Cure:
    """The cure for all races that were found between the accesses of one line and earlier accesses.

    barrier: the scope of the barrier, 0 for no barrier. gaps: the places where a barrier is needed. splits: the place
    of a barrier that divides a statement into its reads and its writes, if there is one. changes: descriptions of the
    changes that are not barriers. waited: whether the barrier must come after the wait for an asynchronous copy.
    """

    barrier: int = 0
    gaps: list[Gap] = field(default_factory=list)
    splits: Gap | None = None
    changes: list[str] = field(default_factory=list)
    waited: bool = False

    def add(self, what: str, gap: Gap | None, scope: int, copied: bool) -> None:
        """Add the place of a barrier with its scope; without a gap, add the change that `what` describes.

        copied: whether the earlier access was an asynchronous copy that its thread has waited for.
        """
        if gap is None:
            if not any(other.startswith(what) for other in self.changes):
                self.changes = [*(other for other in self.changes if not what.startswith(other)), what]
            return
        self.barrier = max(self.barrier, scope)
        self.waited = self.waited or copied
        if gap.kind in ("same", "head", "branches"):
            self.splits = gap
        else:
            self.stand(gap)

    def stand(self, gap: Gap) -> None:
        """Add a place for a barrier; of several places of kind 'between', keep the last in the source."""
        if gap.kind == "iteration":
            around = any(
                old.kind == "between" and gap.span[0] <= old.after <= old.before <= gap.span[1] for old in self.gaps
            )
            if not around and all((old.kind, old.loop) != ("iteration", gap.loop) for old in self.gaps):
                self.gaps.append(gap)
            return
        gap = max([gap, *(old for old in self.gaps if old.kind == "between")], key=lambda one: (one.after, one.before))
        others = [old for old in self.gaps if old.kind != "between" and old != gap]
        inside = [old for old in others if old.kind == "iteration" and old.span[0] <= gap.after <= old.span[1]]
        self.gaps = [gap, *(old for old in others if old not in inside)]

    def message(self, race: str) -> str:
        """Return the message of a race, followed by its cure."""
        if self.barrier == BLOCK:
            race = race.replace(f"without {CURES[WARP]}", f"without {CURES[BLOCK]}")
        return f"{race}{self.text()}."

    def text(self) -> str:
        """Return the part of a message that says what to do, beginning with the full stop or colon before it."""
        gaps = [self.splits, *self.gaps] if self.splits else self.gaps
        if not self.barrier or not gaps:
            return f": {', and '.join(self.changes)}" if self.changes else ""
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
            parts = f"split the condition in line {self.splits.span[0]} in two"
            put = f"{parts if self.splits.kind == 'branches' else 'keep what is read in a variable'}, and {put}"
        text = f". {', and '.join([put[:1].upper() + put[1:], *self.changes])}"
        outside = next((gap for gap in gaps if gap.outside), None)
        if outside is not None and outside.is_loop:
            text += (
                f". Not all threads of the {scope} make the same number of iterations of the loop in line "
                f"{outside.outside}: let all threads make the same number, and put the condition around the work in "
                "the loop, not around the barrier"
            )
        elif outside is not None:
            text += (
                f". Not all threads of the {scope} meet the condition in line {outside.outside}: the barrier stands "
                "outside of it, where all of them come. End the condition before the barrier, and repeat it after it"
            )
        leaves = next((gap.leaves for gap in gaps if gap.leaves), 0)
        if leaves:
            text += (
                f". Threads that leave in line {leaves} must also reach the barrier: put the condition around the work "
                "instead"
            )
        return text


def place(gap: Gap) -> tuple[str, int]:
    """Return a key that is equal for gaps with the same place of the barrier."""
    return gap.kind, gap.before if gap.kind == "between" else gap.loop or gap.after


def _where(gap: Gap) -> str:
    if gap.kind == "iteration":
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
    """Return where a barrier can stand between two accesses.

    The source decides if it is known; without it, only the line numbers of the accesses are used.
    """
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


def advice_at_barrier(machine: Machine, barrier: Location, branch: int = 0, loop: str = "") -> str:
    """Return the part of a message that says why some threads miss a barrier, and what to do; '' if unknown.

    The source decides if it is known; else these: branch: the line of the branch where the threads diverge, 0 if
    unknown. loop: the name of the loop around the barrier of which the threads make different numbers of iterations.
    """
    gap = find_gap(machine, barrier, barrier, BLOCK)
    if loop or (gap.outside and gap.is_loop):
        return ITERATIONS.format(loop or f"the loop in line {gap.outside}")
    if gap.leaves and not gap.outside:
        return (
            f": the condition in line {gap.leaves} lets some threads leave before the barrier. Put it around the work, "
            "not around the barrier"
        )
    if not gap.outside and not branch:
        return ""
    return (
        f": the barrier stands under the condition in line {gap.outside or branch}, which not all threads of the block "
        "meet. Put one barrier after the end of this condition, where all threads of the block come, and repeat the "
        "condition for what is to come after the barrier"
    )


class AdvisedBarriers:
    """The barriers that cures advise. The race checks treat these barriers as if the kernel had them.

    If such a barrier orders the accesses of another line, the races of that line are not reported, because the same
    barrier removes them. For the line that the barrier was advised for, all races are reported, so that the scope of
    the barrier becomes wide enough for all these races.

    gaps: the places of the barriers, by (file, line) that they were advised for. times: (time within warps, time within
    blocks) until which the barriers order accesses. scopes: the scope of the barrier, by line and by place. news:
    whether a barrier was advised, or got a wider scope, since `clear`.
    """

    def __init__(self, code: Code) -> None:
        ends = (block.terminator for block in code.blocks)
        self.branches = sorted(end.line.ptx_line for end in ends if end is not None and end.kind == "branch")
        self.scopes: dict[object, int] = {}
        self.gaps: dict[tuple[int, int], list[Gap]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the times of the barriers, before a log is examined from its start."""
        self.times = (0, 0)
        self.news = False
        self.last: MemoryOp | None = None

    def of(self, access: MemoryOp, time: int) -> tuple[int, int]:
        """Return the times (within warps, within blocks) until which accesses are ordered before this access.

        0 means that no barrier is advised. time: the time of this access.
        """
        last, self.last = self.last, access
        if last is not None:
            for (file, _), gaps in self.gaps.items():
                for gap in gaps:
                    if file == access.location.file and self.crosses(gap, last, access):
                        self.add(self.scopes[place(gap)], time - 1)
        return (0, 0) if (access.location.file, access.location.line) in self.gaps else self.times

    def reach(self, key: object, scope: int) -> int:
        """Widen the scope of the barrier with this key to at least `scope`, and return its scope."""
        known = self.scopes.get(key, 0)
        if scope > known:
            self.news = True
            self.scopes[key] = scope
            if known:
                # A barrier of a wider scope removes other races, so the gaps are cleared and the next examination finds
                # new ones.
                self.gaps.clear()
        return max(scope, known)

    def stand(self, later: Location, gap: Gap) -> None:
        """Record that a barrier at `gap` is advised for the line of the access `later`."""
        gaps = self.gaps.setdefault((later.file, later.line), [])
        if gap not in gaps:
            gaps.append(gap)
            self.news = True

    def add(self, scope: int, time: int) -> None:
        """Treat all accesses until `time` as ordered by a barrier of this scope before the later ones."""
        warp, block = self.times
        self.times = (max(warp, time), block) if scope == WARP else (warp, max(block, time))

    def crosses(self, gap: Gap, last: MemoryOp, access: MemoryOp) -> bool:
        """Return whether the barrier at `gap` is between two accesses that follow each other in the log."""
        before, line = last.location.line, access.location.line
        if not gap.span[0] <= line <= gap.span[1]:
            return False
        if gap.kind == "same":
            return before == line and last.kind == "load" and access.kind == "store"
        if not gap.span[0] <= before <= gap.span[1]:
            return True
        if gap.kind != "iteration" or before != line:
            return False
        # In an unrolled loop, an access after a branch, or a load after a store, belongs to a later iteration.
        first, then = (bisect_left(self.branches, op.location.ptx_line) for op in (last, access))
        return access.number <= last.number or first != then or (last.kind, access.kind) == ("store", "load")
