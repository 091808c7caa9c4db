"""Limits against recorded times: how much of what a kernel took its longest limit explains, and whether none is broken.

`python benchmarks/limits_against_times.py [CARD] [TIMES.json]`: counts every kernel of the recorded times in the
simulator, on a sample of its blocks, prices the counts with a card's ceilings and prints limit over time. No GPU is
used. What is to be reached: no time under 0.97 of its limit; the longest limit at least 0.6 of the time for 80% of the
kernels; 90% of the pairs whose times differ by more than 10% in the order of their limits; and the resource that Nsight
Compute reports busiest among those that hold the kernel for 90%.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from cudabench import operations
from cudabench.cards.load import load
from cudabench.devices.sim import SimDevice
from cudabench.measure import limited
from cudabench.model import Limit, Settings
from cudabench.plan import cases

TIMES = Path(__file__).parent / "results" / "ladders_h200.json"
BROKEN, EXPLAINED, APART = 0.97, 0.6, 0.1
# What Nsight Compute calls busy, and the limits that say the same.
MEANS = {
    "issue": ("issue", "alu", "fma"),
    "lsu": ("lsu",),
    "l2": ("l2", "memory"),
    "dram": ("memory", "l2"),
    "fma": ("fma", "issue"),
}
NEAR = 0.8  # of the longest: a limit that holds the kernel as well


class Row(NamedTuple):
    """One kernel: recorded seconds, its limits, what Nsight Compute found busiest and how busy."""

    operation: str
    kernel: str
    size: tuple[int, ...]
    seconds: float
    limits: tuple[Limit, ...]
    busiest: str | None
    share: float

    @property
    def ratio(self) -> float:
        """The longest limit over the time."""
        return self.limits[0].time_s / self.seconds


def rows(card_name: str, recorded: list[dict[str, Any]]) -> list[Row]:
    """Return the limits of each recorded kernel."""
    card = load(card_name)
    device = SimDevice("sm_" + card.device.compute_capability.replace(".", ""))
    found = []
    inputs: dict[object, Any] = {}
    for one in recorded:
        operation = operations.get(one["operation"])
        request = cases.Request(kernels=(one["kernel"],), size=tuple(one["size"]) if one.get("size") else None)
        (case,) = cases.build(operation, request)
        key = (one["operation"], tuple(case.problem.size.values()))
        if key not in inputs:
            inputs.clear()
            inputs[key] = operation.inputs(case.problem)
        run = limited.sampled(device, case, operation, case.problem, inputs[key], seconds=600)
        found_limits = limited.limits_of(device, case, run, card, Settings(), operation.bytes(case.problem) or None)
        busy = {name: one[name] for name in MEANS if one.get(name) is not None}
        busiest = max(busy, key=lambda name: busy[name]) if busy else None
        row = Row(
            one["operation"], one["kernel"], tuple(case.problem.size.values()), one["seconds"], found_limits, busiest,
            busy.get(busiest or "", 0.0),
        )  # fmt: skip
        found.append(row)
        three = ", ".join(f"{limit.resource} {limit.time_s * 1e6:.1f}" for limit in row.limits[:4])
        busiest_text = f"{row.busiest} {row.share:.0f}%" if row.busiest else ""
        print(
            f"{row.operation:10} {row.kernel:17} {'x'.join(map(str, row.size)):12} {row.seconds * 1e6:9.1f} "
            f"{row.ratio:6.2f}  {busiest_text:10} {three}",
            flush=True,
        )
        if "-v" in sys.argv:
            for limit in row.limits:
                print(f"{'':12}{limit.resource:8} {limit.time_s * 1e6:9.2f}  {limit.detail}")
    return found


def summary(found: list[Row]) -> None:
    """Print what the targets ask for."""
    broken = [row for row in found if row.seconds < BROKEN * row.limits[0].time_s]
    print(
        f"\nfaster than {BROKEN} of the limit: {len(broken)} of {len(found)}"
        f" {[(r.operation, r.kernel) for r in broken]}"
    )
    explained = [row for row in found if row.ratio >= EXPLAINED]
    print(f"the longest limit is at least {EXPLAINED} of the time: {len(explained)} of {len(found)}")
    unexplained = [f"{row.operation} {row.kernel} ({row.limits[0].resource})" for row in found if row not in explained]
    print(f"  not: {', '.join(unexplained)}")
    right = pairs = 0
    for a, b in combinations(found, 2):
        if (
            a.operation == b.operation
            and a.size == b.size
            and abs(a.seconds - b.seconds) > APART * min(a.seconds, b.seconds)
        ):
            pairs += 1
            right += (a.limits[0].time_s < b.limits[0].time_s) == (a.seconds < b.seconds)
    print(f"pairs of a ladder whose times differ by over {APART:.0%}, in the order of their limits: {right} of {pairs}")
    known = [row for row in found if row.busiest]
    same = [
        row
        for row in known
        if any(
            limit.resource in MEANS[row.busiest or ""]
            for limit in row.limits
            if limit.time_s >= NEAR * row.limits[0].time_s
        )
    ]
    print(
        f"what Nsight Compute reports busiest is among the limits within {NEAR} of the longest:"
        f" {len(same)} of {len(known)}"
    )
    for row in known:
        if row not in same:
            print(
                f"  not: {row.operation} {row.kernel}: {row.busiest} {row.share:.0f}%, limit {row.limits[0].resource}"
            )


def main() -> None:
    """Count, price, print."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    card = words[0] if words else "h200"
    recorded = json.loads(Path(words[1] if len(words) > 1 else TIMES).read_text())
    only = words[2].split(",") if len(words) > 2 else None
    print(f"on {load(card).title}; times: {recorded['device']}, driver {recorded['driver']}, {recorded['how']}\n")
    print(f"{'operation':10} {'kernel':17} {'size':12} {'us':>9} {'limit/t':>7} {'busiest':10} longest limits in us")
    summary(rows(card, [one for one in recorded["kernels"] if only is None or one["operation"] in only]))


if __name__ == "__main__":
    main()
