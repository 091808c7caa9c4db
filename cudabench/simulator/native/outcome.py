"""Converts the native engine's counts of a launch to an `Outcome`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudabench.simulator.check.grid_races import too_many
from cudabench.simulator.check.hazards import Hazards
from cudabench.simulator.outcome import Outcome, executed_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudabench.simulator.count.shares import Shares
    from cudabench.simulator.native.launch import LaunchCounts
    from cudabench.simulator.plan import Plan
    from cudabench.simulator.program.arguments import Placed


def outcome(
    ran: LaunchCounts, plan: Plan, placed: Placed, issued: Mapping[int, tuple[int, int]], shares: Shares | None
) -> Outcome:
    """Return the `Outcome` of a launch that the native engine has run.

    issued: as in `Counters`; shares: an empty `Shares`, if the imbalance of the blocks is wanted, otherwise None.
    """
    rows = ran.lanes.rows()
    footprint = None
    if ran.traces is not None:
        counted = {key: row.totals for key, row in rows.items()}
        footprint = ran.traces.footprint(
            plan, placed.space, ran.counts, counted, ran.prepared.followed, ran.prepared.chunks
        )
    imbalance, alike = None, False
    if shares is not None and ran.shares is not None:
        shares.take(ran.shares, ran.prepared.order)
        imbalance, alike = shares.imbalance(plan.grid), shares.alike()
    hazards = Hazards(plan.code, placed.space, plan.shared_size, None, None)
    too_many(hazards, plan.code, plan.grid, plan.block)
    return Outcome(
        "native", plan, placed.space, ran.instructions, executed_of(ran.executed.tolist()), rows, issued,
        ran.counts["merged"].sum(axis=1).tolist(), set(), ran.contention, footprint,
        imbalance, suspicions=hazards.records(True), blocks_alike=alike,
    )  # fmt: skip
