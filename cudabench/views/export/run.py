"""One results file to be exported, and the names that all formats give to what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cudabench.cards import load as cards
from cudabench.errors import CudabenchError
from cudabench.explain.accesses import Cost
from cudabench.explain.accesses import total as sum_of
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import Result
from cudabench.results import thresholds, units

EPOCH = datetime.fromtimestamp(0, timezone.utc)


@dataclass(frozen=True)
class Run:
    """A results file with its name and when it was written: results files of this schema hold no date."""

    file: ResultsFile
    name: str = "results.json"
    when: datetime = EPOCH

    @classmethod
    def load(cls, path: str) -> Run:
        """Read a results file, or a card's by its name. Raises CudabenchError as `results.file.load` does."""
        file = cards.load_named(path)
        when = EPOCH if cards.known_card(path) else datetime.fromtimestamp(Path(path).stat().st_mtime, timezone.utc)
        return cls(file, path, when)


def short_size(result: Result) -> str:
    """Return a size without blanks: 4096x4096, or n=64,a=2.5 for a kernel of the user's own."""
    return units.size(result).replace(" ", "")


def title(result: Result) -> str:
    """Return the problem of a result: transpose 4096 x 4096 float32."""
    return " ".join(part for part in (result.operation, units.size(result), result.dtype) if part)


def name(result: Result, file: ResultsFile) -> str:
    """Return a name that stays the same from run to run: transpose smem-pad 32x8 4096x4096 float32.

    Where the file holds several cards, the card is a part of it.
    """
    block = dim_text(result.block, 2).replace(" ", "") if result.block[0] else ""
    card = result.device if len(file.devices) > 1 else ""
    parts = (result.operation, result.kernel, units.variant(result), block, short_size(result), result.dtype, card)
    return " ".join(part for part in parts if part)


def right_results(runs: Sequence[Run]) -> Iterator[tuple[Result, ResultsFile, str]]:
    """Yield the right results with their files and names; a name that several runs share has the run's in it."""
    in_runs = Counter(one for run in runs for one in {name(result, run.file) for result in run.file.results})
    for run, label in zip(runs, labels_of(runs), strict=True):
        for result in run.file.results:
            own = name(result, run.file)
            if result.status == "ok":
                yield result, run.file, f"{own} {label}" if in_runs[own] > 1 else own


def nothing_right(runs: Sequence[Run], lacking: str) -> CudabenchError:
    """Return the error of runs without a right result that a format can hold: what they lack, and what follows."""
    held = "hold" if len(runs) > 1 else "holds"
    return CudabenchError(f"{', '.join(run.name for run in runs)} {held} no right result with a {lacking}.")


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Return what to call runs: their files' short names."""
    return short_names([run.name for run in runs])


def short_names(names: Sequence[str]) -> list[str]:
    """Return file names without folder and suffix where they stay apart, else as they are."""
    stems = [Path(name).stem for name in names]
    return stems if len(set(stems)) == len(stems) else list(names)


def missed(result: Result, file: ResultsFile) -> str | None:
    """Return which threshold of its run a right result missed first, as a sentence, or None."""
    return next((miss.sentence for miss in thresholds.missed(result, file.settings)), None)


def total(result: Result, space: str, op: str | None = None) -> Cost | None:
    """Return the cost of a result's accesses to a space, or None where nothing was counted."""
    return None if result.access is None else sum_of(result.access, space, op)


def hazards(result: Result) -> int | None:
    """Return how often hazards occurred, or None where nobody looked."""
    return None if result.hazards is None else sum(hazard.count for hazard in result.hazards)
