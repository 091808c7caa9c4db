"""Compare limits with recorded times: the fraction of a kernel's time that its longest limit explains, and whether the
limit is a true lower bound.

`python benchmarks/limits_against_times.py [CARD TIMES.json ...]` counts every kernel of the recorded times (of
record_ladders.py) in the simulator, on a sample of its blocks, prices the counts with the card's ceilings and prints
limit over time; several cards of one architecture share the counts. It needs no GPU. The targets: no time is under 0.97
of its limit; the longest limit is at least 0.6 of the time for 80% of the kernels; 90% of the pairs whose times differ
by more than 10% have the order of their limits; and for 90% of the kernels, Nsight Compute's busiest resource is among
the limiting ones.

The last target is checked three times. With all limits: is Nsight Compute's busiest unit among the limits within 0.8 of
the longest? It has no counter for block starts, waiting, idle SMs or the launch (`NO_UNITS`), so rows with such a limit
rarely agree. With the limits of units only: is its busiest unit among those within 0.8 of the longest? Units without a
recorded counter, such as constants, disagree. And strictly: is it the longest of those by name, where memory and L2 are
two units, and pipes are not issue slots? All three leave out the time of the launch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from cudabench import operations
from cudabench.cards.load import Card, load_card
from cudabench.devices.sim import SimDevice
from cudabench.explain.bound_texts import NO_UNITS
from cudabench.explain.card_rates import LAUNCH_SHARE
from cudabench.measure import counting
from cudabench.plan import cases
from cudabench.records.plan import Settings
from cudabench.records.results import Limit

RESULTS = Path(__file__).parent / "results"
BROKEN, EXPLAINED, APART = 0.97, 0.6, 0.1
# For each unit that Nsight Compute can report as busiest: the names of the limits of that unit.
MEANS = {
    "issue": ("issue", "alu", "fma"),
    "lsu": ("lsu",),
    "l2": ("l2", "memory"),
    "dram": ("memory", "l2"),
    "fma": ("fma", "issue"),
    "alu": ("alu", "issue"),
    "xu": ("xu", "issue"),
    "fp64": ("fp64", "issue"),
    "tensor": ("tensor", "issue"),
}
NEAR = 0.8  # a limit that is at least this fraction of the longest limit counts as limiting the kernel too


class Row(NamedTuple):
    """One kernel: its recorded seconds, its limits, and the unit that Nsight Compute reports as busiest, with the
    unit's share."""

    operation: str
    kernel: str
    size: tuple[int, ...]
    seconds: float
    limits: tuple[Limit, ...]
    busiest: str | None
    share: float
    launch: float = 0.0  # seconds for starting a launch, which every limit includes

    @property
    def ratio(self) -> float:
        """The longest limit divided by the measured time."""
        return self.limits[0].time_s / self.seconds


def rows(recorded: list[tuple[str, list[dict[str, Any]]]]) -> list[list[Row]]:
    """Return for each card a row with the limits of each recorded kernel."""
    cards = [load_card(name) for name, _ in recorded]
    device = SimDevice("sm_" + cards[0].device.compute_capability.replace(".", ""))
    times = [
        {(record["operation"], record["kernel"], tuple(record["size"])): record for record in kernels}
        for _, kernels in recorded
    ]
    found: list[list[Row]] = [[] for _ in cards]
    inputs: dict[object, Any] = {}
    for name, kernel, size in dict.fromkeys(key for kernels in times for key in kernels):
        operation = operations.get(name)
        options = {option.name: option.default for option in operation.options}
        (case,) = cases.build(operation, cases.Request(kernels=(kernel,), size=size, options=options))
        if (name, size) not in inputs:
            inputs.clear()
            inputs[name, size] = operation.inputs(case.problem)
        run = counting.run_sample(device, case, operation, case.problem, inputs[name, size], seconds=600)
        for card, kernels, card_rows in zip(cards, times, found, strict=True):
            if (name, kernel, size) not in kernels:
                continue
            record = kernels[name, kernel, size]
            moved = operation.bytes(case.problem) or None
            limits = counting.limits_by_card(device, case, run, [card], Settings(), moved)[0].limits
            busy = {unit: record[unit] for unit in MEANS if record.get(unit) is not None}
            busiest = max(busy, key=lambda unit: busy[unit]) if busy else None
            share, launch = busy.get(busiest or "", 0.0), launched(card)
            row = Row(name, kernel, size, record["seconds"], limits, busiest, share, launch)
            card_rows.append(row)
            print(card.title, text(row), flush=True, file=sys.stderr)
    return found


def launched(card: Card) -> float:
    """Return the seconds of an empty launch on a card; every limit includes them."""
    return LAUNCH_SHARE * (card.value("launch-alone") or 0.0)


def text(row: Row) -> str:
    """Return a line of the table."""
    longest = ", ".join(f"{limit.resource} {limit.time_s * 1e6:.1f}" for limit in row.limits[:4])
    busiest = f"{row.busiest} {row.share:.0f}%" if row.busiest else ""
    return (
        f"{row.operation:10} {row.kernel:17} {'x'.join(map(str, row.size)):14} {row.seconds * 1e6:9.1f} "
        f"{row.ratio:6.2f}  {busiest:10} {longest}"
    )


def summary(found: list[Row]) -> None:
    """Print for each target how many kernels meet it."""
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
    same = [row for row in known if agrees(row, row.limits)]
    print(
        f"what Nsight Compute reports busiest is among the limits within {NEAR} of the longest:"
        f" {len(same)} of {len(known)}"
    )
    rows = [row for row in known if row.limits[0].resource not in NO_UNITS]
    print(f"  of those whose longest limit is a unit's: {sum(row in same for row in rows)} of {len(rows)}")
    among = [row for row in known if agrees(row, of_units(row))]
    print(f"  of the units alone, among those within {NEAR} of the longest unit's: {len(among)} of {len(known)}")
    exactly = [row for row in known if of_units(row)[:1] and of_units(row)[0].resource == called(row.busiest)]
    print(f"  of the units alone, the longest itself: {len(exactly)} of {len(known)}")
    for row in known:
        if row not in same:
            units = of_units(row)
            agreed = "" if row in among else " (nor that)"
            unit = f"{units[0].resource}{agreed}" if units else "none"
            print(
                f"  not: {row.operation} {row.kernel} {'x'.join(map(str, row.size))}: {row.busiest} {row.share:.0f}%,"
                f" limit {row.limits[0].resource}, of the units {unit}"
            )


def agrees(row: Row, limits: Sequence[Limit]) -> bool:
    """Return whether the unit that Nsight Compute reports as busiest has a limit nearly as long as the first of
    `limits`."""
    return any(
        limit.resource in MEANS[row.busiest or ""]
        for limit in limits
        if limit.time_s - row.launch >= NEAR * (limits[0].time_s - row.launch)
    )


def of_units(row: Row) -> list[Limit]:
    """Return the limits of units, longest first."""
    return [limit for limit in row.limits if limit.resource not in NO_UNITS]


def called(unit: str | None) -> str | None:
    """Return the name of the limit for a unit of Nsight Compute."""
    return "memory" if unit == "dram" else unit


def main() -> None:
    """Count, price and print."""
    words = sys.argv[1:] or ["h200", str(RESULTS / "ladders_h200.json"), "h100", str(RESULTS / "ladders_h100.json")]
    if len(words) % 2:
        sys.exit(__doc__)
    recorded = [(card, json.loads(Path(file).read_text())) for card, file in zip(words[::2], words[1::2], strict=True)]
    for (card, content), found in zip(recorded, rows([(c, r["kernels"]) for c, r in recorded]), strict=True):
        print(f"on {load_card(card).title}; times: {content['device']}, driver {content['driver']}, {content['how']}\n")
        print(
            f"{'operation':10} {'kernel':17} {'size':14} {'us':>9} {'limit/t':>7} {'busiest':10} longest limits in us"
        )
        print("\n".join(map(text, found)))
        summary(found)
        print()


if __name__ == "__main__":
    main()
