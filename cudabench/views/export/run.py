"""A results file to export, and the names that all formats use for its content."""

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
    """A results file with its name and the time of writing, which the schema lacks."""

    file: ResultsFile
    name: str = "results.json"
    when: datetime = EPOCH

    @classmethod
    def load(cls, path: str) -> Run:
        """Read a results file, or a card's by its name. Raises CudabenchError as `results.file.load` does."""
        file = cards.load_file_or_card(path)
        when = EPOCH if cards.known_card(path) else datetime.fromtimestamp(Path(path).stat().st_mtime, timezone.utc)
        return cls(file, path, when)


def short_size(result: Result) -> str:
    """Return a size without blanks: 4096x4096, or n=64,a=2.5 for a user's own kernel."""
    return units.size(result).replace(" ", "")


def title(result: Result) -> str:
    """Return the problem of a result: transpose 4096 x 4096 float32."""
    return " ".join(part for part in (result.operation, units.size(result), result.dtype) if part)


def name(result: Result, file: ResultsFile) -> str:
    """Return a name that stays the same from run to run: transpose smem-pad 32x8 4096x4096 float32.

    If the file holds several cards, the name includes the card.
    """
    block = dim_text(result.block, 2).replace(" ", "") if result.block[0] else ""
    card = result.device if len(file.devices) > 1 else ""
    parts = (result.operation, result.kernel, units.variant(result), block, short_size(result), result.dtype, card)
    return " ".join(part for part in parts if part)


def right_results(runs: Sequence[Run]) -> Iterator[tuple[Result, ResultsFile, str]]:
    """Yield the correct results with their files and names; a name that several runs share includes the run's name."""
    in_runs = Counter(
        result_name for run in runs for result_name in {name(result, run.file) for result in run.file.results}
    )
    for run, label in zip(runs, labels_of(runs), strict=True):
        for result in run.file.results:
            own_name = name(result, run.file)
            if result.status == "ok":
                yield result, run.file, f"{own_name} {label}" if in_runs[own_name] > 1 else own_name


def nothing_right(runs: Sequence[Run], lacking: str) -> CudabenchError:
    """Return the error of runs without a correct result for a format. lacking: the missing value."""
    held = "hold" if len(runs) > 1 else "holds"
    return CudabenchError(f"{', '.join(run.name for run in runs)} {held} no right result with a {lacking}.")


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Return the labels of runs: their files' short names."""
    return short_names([run.name for run in runs])


def short_names(names: Sequence[str]) -> list[str]:
    """Return file names without folder and suffix if these names are distinct, else the whole names."""
    stems = [Path(name).stem for name in names]
    return stems if len(set(stems)) == len(stems) else list(names)


def missed(result: Result, file: ResultsFile) -> str | None:
    """Return a sentence on the first threshold that a correct result missed, or None."""
    return next((miss.sentence for miss in thresholds.missed(result, file.settings)), None)


def total(result: Result, space: str, op: str | None = None) -> Cost | None:
    """Return the cost of a result's accesses to a space, or None if they were not counted."""
    return None if result.access is None else sum_of(result.access, space, op)


def hazards(result: Result) -> int | None:
    """Return how often hazards occurred, or None if they were not checked."""
    return None if result.hazards is None else sum(hazard.count for hazard in result.hazards)
