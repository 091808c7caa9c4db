"""A results file to export, and the names that all formats use for its kernels, problems and sizes."""

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
    """A results file, its name, and the time when it was written, which the file itself does not contain."""

    file: ResultsFile
    name: str = "results.json"
    when: datetime = EPOCH

    @classmethod
    def load(cls, path: str) -> Run:
        """Return a results file, or the file of a card that cudabench knows by name, such as h100.

        Raises CudabenchError as `results.file.load` does.
        """
        file = cards.load_file_or_card(path)
        when = EPOCH if cards.known_card(path) else datetime.fromtimestamp(Path(path).stat().st_mtime, timezone.utc)
        return cls(file, path, when)


def short_size(result: Result) -> str:
    """Return a size without blanks: '4096x4096', or 'n=64,a=2.5' for a user's own kernel."""
    return units.size(result).replace(" ", "")


def title(result: Result) -> str:
    """Return the problem of a result, such as 'transpose 4096 x 4096 float32'."""
    return " ".join(part for part in (result.operation, units.size(result), result.dtype) if part)


def name(result: Result, file: ResultsFile) -> str:
    """Return a name that is the same in every run, such as 'transpose smem-pad 32x8 4096x4096 float32'.

    If the file holds several cards, the name includes the card.
    """
    block = dim_text(result.block, 2).replace(" ", "") if result.block[0] else ""
    card = result.device if len(file.devices) > 1 else ""
    parts = (result.operation, result.kernel, units.variant(result), block, short_size(result), result.dtype, card)
    return " ".join(part for part in parts if part)


def right_results(runs: Sequence[Run]) -> Iterator[tuple[Result, ResultsFile, str]]:
    """Yield (result, file, name) for each correct result.

    If a name occurs in several runs, the run's label is added to the name.
    """
    in_runs = Counter(
        result_name for run in runs for result_name in {name(result, run.file) for result in run.file.results}
    )
    for run, label in zip(runs, labels_of(runs), strict=True):
        for result in run.file.results:
            own_name = name(result, run.file)
            if result.status == "ok":
                yield result, run.file, f"{own_name} {label}" if in_runs[own_name] > 1 else own_name


def nothing_right(runs: Sequence[Run], lacking: str) -> CudabenchError:
    """Return the error for runs that have no correct result with the value that a format needs.

    `lacking`: the value.
    """
    held = "hold" if len(runs) > 1 else "holds"
    return CudabenchError(f"{', '.join(run.name for run in runs)} {held} no right result with a {lacking}.")


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Return the labels of runs: short names of their files."""
    return short_names([run.name for run in runs])


def short_names(names: Sequence[str]) -> list[str]:
    """Return the file names without folder and suffix if these are distinct, else the names unchanged."""
    stems = [Path(name).stem for name in names]
    return stems if len(set(stems)) == len(stems) else list(names)


def missed(result: Result, file: ResultsFile) -> str | None:
    """Return a sentence on the first threshold that a correct result missed; None if it missed none."""
    return next((miss.sentence for miss in thresholds.missed_thresholds(result, file.settings)), None)


def total(result: Result, space: str, op: str | None = None) -> Cost | None:
    """Return the cost of a result's accesses to a memory space; None if they were not counted."""
    return None if result.access is None else sum_of(result.access, space, op)


def hazards(result: Result) -> int | None:
    """Return how often hazards occurred; None if the kernel was not checked for hazards."""
    return None if result.hazards is None else sum(hazard.count for hazard in result.hazards)
