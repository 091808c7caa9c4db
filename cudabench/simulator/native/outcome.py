"""Converts the native engine's counts of launches to an `Outcome`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.grid_races import too_many
from cudabench.simulator.check.hazards import Hazards
from cudabench.simulator.count.shares import Shares
from cudabench.simulator.outcome import Outcome, executed_of
from cudabench.simulator.report import (
    Code,
    Footprint,
    Hazard,
    Imbalance,
    Lines,
    Report,
    greatest,
    summed_by_key,
    summed_codes,
)
from cudabench.simulator.values import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudabench.simulator.native.launch import LaunchCounts
    from cudabench.simulator.plan import Plan
    from cudabench.simulator.program.arguments import Placed


@dataclass(eq=False)
class Finished:
    """One or several launches of a kernel that the native engine has run without hazards.

    `ran`: the counts, or their sums. `code`: the counts of the machine code, or the reason why it was not simulated;
    None if it was not wanted.
    """

    ran: LaunchCounts
    plan: Plan
    placed: Placed
    code: Code | str | None = None

    @cached_property
    def footprint(self) -> Footprint | None:
        """The memory that the launches touch; None if this was not requested."""
        ran, plan = self.ran, self.plan
        if ran.traces is None:
            return None
        return ran.traces.footprint(
            plan, self.placed.space, ran.counts, ran.lanes.totals(), ran.prepared.followed, ran.prepared.chunks
        )

    @cached_property
    def balance(self) -> tuple[Imbalance | None, bool]:
        """The imbalance of the blocks, None if they have similar work; and whether it is known that all blocks execute
        the same instructions and no lanes diverge."""
        ran, executed = self.ran, self.ran.executed
        if ran.shares is None:
            return None, False
        shares = Shares(self.plan.code, ran.shares, ran.prepared.order)
        self.ran = replace(ran, shares=None)  # they may need much memory, and `same_as` still has those of `ran`
        return shares.imbalance(self.plan.grid), shares.alike() and bool(
            (executed["lanes"] == 32 * executed["warps"]).all()
        )

    @cached_property
    def suspicions(self) -> tuple[Hazard, ...]:
        """The note that races between the blocks are not looked for, if the launches have too many threads."""
        plan = self.plan
        hazards = Hazards(plan.code, self.placed.space, plan.shared_size, None, None)
        too_many(hazards, plan.code, plan.grid, plan.block)
        return hazards.records(True)

    @property
    def key(self) -> Any:
        """Launches with equal keys can be added: they are of one kernel and block size, accessed the same arrays, have
        the same sampled patterns, and their lanes parted at the same branches. None: the launches cannot be added."""
        ran, plan, space = self.ran, self.plan, self.placed.space
        if ran.contention:
            return None
        masks = ran.lanes.accessed().tobytes(), (ran.executed["diverged"] > 0).tobytes()
        kernel = id(plan.code), plan.block, plan.shared_size, *ran.prepared.issued.items()
        return kernel, id(space), space.version, id(ran.lanes.last), masks, ran.traces is None

    def plus(self, others: Sequence[Finished]) -> Finished:
        """Return the sum of these launches and others with the same key."""
        every = [self, *others]
        executed, counts = (_sum([getattr(one.ran, name) for one in every]) for name in ("executed", "counts"))
        instructions = sum(one.ran.instructions for one in every)
        lanes = self.ran.lanes._replace(counts=counts)
        ran = replace(
            self.ran, instructions=instructions, executed=executed, counts=counts, lanes=lanes, shares=None, report=None
        )
        found = replace(self, ran=ran, code=summed_codes([one.code for one in every]))
        found.suspicions = summed_by_key(one.suspicions for one in every)
        found.balance = greatest(one.balance[0] for one in every), False
        footprints = [one.footprint for one in every if one.footprint is not None]
        found.footprint = footprints[0].plus(*footprints[1:]) if footprints else None
        return found

    def report(self) -> Report:
        """Return a report whose fields are computed when they are first used."""
        parts = {
            "footprint": lambda: self.footprint, "blocks_alike": lambda: self.balance[1],
            "suspicions": lambda: self.suspicions, "executed": self._executed, "": lambda: self._complete,
        }  # fmt: skip
        known = {} if self.ran.contention else {"contended": ()}
        return Report.lazy(
            parts, finished=self, instructions=self.ran.instructions, engine="native", hazards=(), output="",
            trace=None, **known,
        )  # fmt: skip

    @cached_property
    def _complete(self) -> Report:
        return self.outcome().report()

    def _executed(self) -> Mapping[str, Lines]:
        for lines in self._complete.executed.values():
            lines.code = self.code  # it is known only after the machine code has run, which needs other fields
        return self._complete.executed

    def outcome(self) -> Outcome:
        """Return the outcome of the launches."""
        ran, plan = self.ran, self.plan
        return Outcome(
            "native", plan, self.placed.space, ran.instructions, executed_of(ran.executed.tolist()), ran.lanes.rows(),
            ran.prepared.issued, ran.counts["merged"].sum(axis=1).tolist(), set(), ran.contention, self.footprint,
            self.balance[0], suspicions=self.suspicions, blocks_alike=self.balance[1],
        )  # fmt: skip


def _sum(records: Sequence[Array]) -> Array:
    """Return the sum of arrays of the same records, whose fields are all 64-bit integers."""
    total: Array = np.sum([each.view(np.int64) for each in records], axis=0)
    return total.view(records[0].dtype)
