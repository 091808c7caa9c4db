"""Groups the results of a page by problem and kernel. A kernel has one result for each run in which it was executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from cudabench.errors import CudabenchError
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import Result
from cudabench.results import compare, units
from cudabench.results.groups import grouped
from cudabench.views.quantities import Quantity, quantities


@dataclass
class Entry:
    """One kernel of a problem.

    `results`: for each run, by number, the index of the result in the run's file, and the result.
    """

    name: str
    results: dict[int, tuple[int, Result]]

    @property
    def last(self) -> Result:
        """The result of the newest run that has the kernel."""
        return self.results[max(self.results)][1]

    @property
    def status(self) -> str:
        """The status in the newest run that has the kernel."""
        return self.last.status

    @property
    def runs(self) -> list[tuple[int, Result]]:
        """(run, result) for each run that has the kernel, the oldest first."""
        return [(run, result) for run, (_, result) in sorted(self.results.items())]


def groups_of(files: Sequence[ResultsFile]) -> dict[str, list[Entry]]:
    """Return the kernels of each problem, in the order of the files. A kernel that several runs have is one entry."""
    groups: dict[str, list[Entry]] = {}
    entries: dict[tuple[object, ...], Entry] = {}
    blocks = grouped(
        ((run, problem(result), result.kernel), result.block)
        for run, file in enumerate(files)
        for result in file.results
    )
    several = {(title, kernel) for (_, title, kernel), blocks_found in blocks.items() if len(set(blocks_found)) > 1}
    for run, file in enumerate(files):
        times: Counter[tuple[object, ...]] = Counter()
        for at, result in enumerate(file.results):
            title = problem(result)
            card = result.device if len(file.devices) > 1 else ""
            # If each run has only one block size for a kernel, the results of all runs form one entry, even if this
            # block size differs between the runs.
            block = result.block if (title, result.kernel) in several else None
            key = (title, result.kernel, block, card)
            times[key] += 1
            entry_key = (*key, times[key])
            if entry_key not in entries:
                name = result.kernel + (f" {dim_text(result.block)}" if block else "") + (f" on {card}" if card else "")
                entries[entry_key] = Entry(name + (f" ({times[key]})" if times[key] > 1 else ""), {})
                groups.setdefault(title, []).append(entries[entry_key])
            entries[entry_key].results[run] = (at, result)
    return groups


def worst_first(groups: Mapping[str, Sequence[Entry]], changes: Sequence[compare.Row]) -> dict[str, list[Entry]]:
    """Return kernels and problems sorted by their changes, the worst first; without changes, in the given order."""
    places = {id(row.new or row.base): at for at, row in enumerate(changes)}

    def place(entry: Entry) -> int:
        return places.get(id(entry.last), len(places))

    ordered = {title: sorted(entries, key=place) for title, entries in groups.items()}
    return dict(sorted(ordered.items(), key=lambda group: place(group[1][0])))


def problem(result: Result) -> str:
    """Return the problem of a result: 'transpose 4096 x 4096 float32', or 'saxpy.cu n=4096' for a user's kernel."""
    what = PurePath(result.source).name if result.operation == "run" else result.operation
    return " ".join(part for part in (what, units.size(result), result.dtype) if part)


def best_of(entries: Sequence[Entry]) -> Entry | None:
    """Return the correct kernel that is best by the first quantity; None if no kernel is correct."""
    correct = [entry for entry in entries if entry.status == "ok"]
    available = quantities_of([entry.last for entry in correct])
    if not available:
        return correct[0] if correct else None
    scored = [(value, entry) for entry in correct if (value := available[0].value(entry.last)) is not None]
    return (max if available[0].more else min)(scored, key=lambda pair: pair[0])[1] if scored else None


def open_at_first(entries: Sequence[Entry], best: Entry | None) -> Entry | None:
    """Return the kernel whose section is open at first: the best one, or in the simulator the most wasteful one."""
    if best is None or best.last.time is not None:
        return best or (entries[0] if entries else None)

    def waste(entry: Entry) -> float:
        return max(
            (ratio_to_ideal(quantity, entry.last) or 0.0 for quantity in quantities_of([entry.last])), default=0.0
        )

    return max(entries, key=waste)


def ratio_to_ideal(quantity: Quantity, result: Result) -> float | None:
    """Return a result's value divided by its ideal value; None if one of them is missing or zero."""
    value, ideal = quantity.value(result), quantity.ideal(result)
    return value / ideal if value and ideal else None


def quantities_of(results: Sequence[Result]) -> list[Quantity]:
    """Return the quantities to draw for these results; empty if there are none."""
    try:
        return quantities(results) if results else []
    except CudabenchError:
        return []
