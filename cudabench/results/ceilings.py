"""Formats ceilings (the highest rates of a card) as text, and compares the ceilings of two files. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cudabench.cards import KINDS, Ceiling
from cudabench.errors import CudabenchError, UsageError
from cudabench.records.file import ResultsFile
from cudabench.records.results import DeviceInfo
from cudabench.results import units
from cudabench.results.columns import NOTHING, Column, percent
from cudabench.results.groups import grouped

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
WORDS = {"ok": "", "wrong": "WRONG", "failed": "FAILED", "skipped": "skipped"}
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p"))


def value(amount: float | None, unit: str) -> str:
    """Return a value of a ceiling in the unit that people use: 4.24 TB/s, 61.7 TFLOP/s, 640.1 ns, 14.2 pJ/byte."""
    if amount is None or not math.isfinite(amount):
        return NOTHING
    if unit == "s":
        return units.seconds(amount)
    if unit.startswith("J/"):
        factor, prefix = next(((f, p) for f, p in _SMALL if amount >= f), _SMALL[-1])
        return f"{units.digits(amount / factor)} {prefix}{unit}"
    if unit == "GB/s":
        amount, unit = amount * 1e9, "B/s"
    factor, prefix = next(((f, p) for f, p in _PREFIXES if amount >= f), _PREFIXES[-1])
    space = "" if unit in ("B/s", "FLOP/s") else " "
    return f"{units.digits(amount / factor)} {prefix}{space if prefix else ''}{unit}"


def group_of(ceiling: Ceiling) -> str:
    """Return the group of a ceiling: for a known ceiling the group of this version, since older files differ."""
    kind = KINDS.get(ceiling.name)
    return kind.group if kind else ceiling.group


def groups(ceilings: Iterable[Ceiling]) -> dict[str, list[Ceiling]]:
    """Return a dict of the ceilings by group; groups and ceilings are in their order in `ceilings`."""
    return grouped((group_of(ceiling), ceiling) for ceiling in ceilings)


def at_its_clock(ceiling: Ceiling, named_mhz: float | None) -> tuple[float | None, float | None]:
    """Return (the value that the card allows at the clock of the measurement, the fraction of this value that was
    reached); (None, None) if this clock or another needed number is unknown. `named_mhz`: the driver's clock, for which
    the theoretical value was computed.
    """
    figures = (ceiling.clock_mhz, ceiling.theoretical, ceiling.value, named_mhz)
    if not all(figure and 0 < figure < math.inf for figure in figures):
        return None, None
    clock_mhz, theoretical, amount, named = (float(figure or 0) for figure in figures)
    top = theoretical * clock_mhz / named
    return top, amount / top


def heading(ceilings: Iterable[Ceiling]) -> str:
    """Return the heading of the column of values: "measured", or "datasheet" if no ceiling was measured."""
    sources = {ceiling.source for ceiling in ceilings if ceiling.value is not None}
    return next(iter(sources)) if len(sources) == 1 else "measured"


def clock_columns(named_mhz: float | None) -> list[Column[Ceiling]]:
    """Return two columns: the clock of the measurement, and which fraction of this clock's value was reached."""
    return [
        Column(
            "ran at", lambda ceiling: f"{ceiling.clock_mhz:.0f} MHz" if ceiling.clock_mhz else NOTHING, expendable=3
        ),
        Column("of that", lambda ceiling: percent_text(at_its_clock(ceiling, named_mhz)[1]), expendable=3),
    ]


def percent_text(fraction: float | None) -> str:
    """Return a fraction as a percentage; "-" for None, and for infinity or NaN, which a damaged file may contain."""
    return percent(fraction) if fraction is not None and math.isfinite(fraction) else NOTHING


def is_over(ceiling: Ceiling) -> bool:
    """Return whether the measured value of a ceiling exceeds the value that clocks and hardware units allow."""
    return ceiling.status == "ok" and ceiling.fraction is not None and 1.0005 <= ceiling.fraction < math.inf


def notes_of(ceilings: Sequence[Ceiling], device: DeviceInfo | None) -> list[str]:
    """Return sentences on the ceilings without a value, with a note in `reason`, or above what clocks and units allow.

    Ceilings with the same reason share one sentence.
    """

    def why(ceiling: Ceiling) -> str:
        if ceiling.status != "ok":
            return f"{WORDS[ceiling.status]}: {ceiling.reason}"
        return "" if ceiling.value is None else _SHOWN.sub("", ceiling.reason.partition("; ")[2])

    driver_mhz = device.clocks.get("sm_mhz") if device else None
    names_by_reason = grouped((why(ceiling), ceiling.name) for ceiling in ceilings)
    notes = [f"{', '.join(names)}: {reason}." for reason, names in names_by_reason.items() if reason]
    return notes + [f"{ceiling.name}: {_why_over(ceiling, driver_mhz)}." for ceiling in ceilings if is_over(ceiling)]


# The parts of a ceiling's reason that the table or `_why_over` shows in another form.
_SHOWN = re.compile(r"(?:^|; )(?:it ran at \d+ MHz|more than that: [^;]*)")


def _why_over(ceiling: Ceiling, named_mhz: float | None) -> str:
    """Return why a ceiling may exceed what clocks and units allow, as text."""
    made_of = ceiling.reason.partition("; ")[0]
    text = f"{units.percent(ceiling.fraction or 0)} of what {made_of or 'clocks and units'} allow"
    top, reached = at_its_clock(ceiling, named_mhz)
    if top is None or reached is None or ceiling.clock_mhz is None:
        return f"{text}: its clock was not counted, and may be higher than the driver's clock"
    if reached < 1.0005:
        return f"{text}: it ran at {ceiling.clock_mhz:.0f} MHz, more than the driver's clock"
    return (
        f"{text}, and {units.percent(reached)} of the {value(top, ceiling.unit)} that they allow at the "
        f"{ceiling.clock_mhz:.0f} MHz counted in one launch: either the clock was higher in the samples, or "
        "their times are too short"
    )


# Two runs on one card differ by about 1%.
SAME_WITHIN = 0.02
# Two runs of these ceilings on the same card and host may differ by a factor of two.
UNSTEADY = ("host-to-device-pageable", "device-to-host-pageable")


@dataclass(frozen=True)
class Row:
    """One ceiling in two files.

    `better`: how many times as good the new value is, or None if a value is missing; `by_units`: whether theoretical
    values are compared, because one value is measured and the other is from a datasheet.
    """

    name: str
    group: str
    unit: str
    base: Ceiling | None
    new: Ceiling | None
    better: float | None
    by_units: bool = False


@dataclass(frozen=True)
class Comparison:
    """The ceilings of two files. `means`: the geometric mean of `better` for each group that both files have."""

    base: ResultsFile
    new: ResultsFile
    rows: tuple[Row, ...]
    means: dict[str, float]

    @property
    def by_units(self) -> bool:
        """Whether a measured card is compared with a datasheet."""
        return any(row.by_units for row in self.rows)

    @property
    def lost(self) -> tuple[Row, ...]:
        """The rows of the ceilings that have a value in the base, but not in the new file."""
        return tuple(row for row in self.rows if _has(row.base) and not _has(row.new))


def _has(ceiling: Ceiling | None) -> bool:
    return ceiling is not None and ceiling.status == "ok" and ceiling.value is not None and 0 < ceiling.value < math.inf


def compare(base: ResultsFile, new: ResultsFile) -> Comparison:
    """Return the comparison of two files' ceilings: those of the new file in its order, then those only in the base.

    Raises UsageError if no ceiling has a value in both files.
    """
    before = {ceiling.name: ceiling for ceiling in base.ceilings}
    after = {ceiling.name: ceiling for ceiling in new.ceilings}
    rows = []
    for name in dict.fromkeys([*after, *before]):
        old, latest = before.get(name), after.get(name)
        shown = latest or old
        assert shown is not None
        by_units = _has(old) and _has(latest) and old is not None and latest is not None and old.source != latest.source
        ratio = better(units_of(old), units_of(latest)) if by_units else better(old, latest)
        rows.append(Row(name, group_of(shown), shown.unit, old, latest, ratio, by_units))
    if all(row.better is None for row in rows):
        raise UsageError(
            "One file has measured ceilings, the other a datasheet's, and the measured card's clocks and units are not "
            "known: measure both cards with 'cudabench ceilings'."
            if any(_has(row.base) and _has(row.new) for row in rows)
            else "The files share no ceiling with a value in both: measure the same ceilings on a GPU with "
            "'cudabench ceilings'."
        )
    logs = grouped((row.group, math.log(row.better)) for row in rows if row.better is not None)
    means = {group: math.exp(sum(group_logs) / len(group_logs)) for group, group_logs in logs.items()}
    return Comparison(base, new, tuple(rows), means)


def better(base: Ceiling | None, new: Ceiling | None) -> float | None:
    """Return how many times as good the new ceiling is, or None.

    Return None if a value is missing. Also return None if one value is measured and the other is from a datasheet,
    because the ratio of these says nothing about the cards.
    """
    if not (base and new and _has(base) and _has(new)) or (base.unit, base.source) != (new.unit, new.source):
        return None
    assert base.value is not None
    assert new.value is not None
    ratio = new.value / base.value
    return 1 / ratio if less_is_better(new) else ratio


def units_of(ceiling: Ceiling | None) -> Ceiling | None:
    """Return a copy of a ceiling whose value is the theoretical value, as in a datasheet."""
    if ceiling is None or ceiling.source == "datasheet":
        return ceiling
    return replace(ceiling, value=ceiling.theoretical, source="datasheet")


def less_is_better(ceiling: Ceiling) -> bool:
    """Return whether a smaller value is better, from the known ceilings or else from the unit."""
    kind = KINDS.get(ceiling.name)
    return kind.less_is_better if kind else ceiling.unit == "s" or ceiling.unit.startswith("J/")


def names_of(comparison: Comparison, labels: Sequence[str]) -> tuple[str, str]:
    """Return the names of the two sides: the cards' names if they differ, else `labels`, the files' names."""
    cards = [file.device.name if file.device else "" for file in (comparison.base, comparison.new)]
    if all(cards) and cards[0] != cards[1]:
        return cards[0], cards[1]
    return labels[0], labels[1]


def verdict(comparison: Comparison, labels: Sequence[str]) -> str:
    """Return a sentence with the groups in which each side is better: 'NVIDIA H200 is ahead in memory (1.42x); ...'."""
    base, new = names_of(comparison, labels)
    ahead = {group: mean for group, mean in comparison.means.items() if mean > 1 + SAME_WITHIN}
    behind = {group: 1 / mean for group, mean in comparison.means.items() if 1 / mean > 1 + SAME_WITHIN}
    level = [group for group in comparison.means if group not in ahead and group not in behind]

    def listed(group_means: dict[str, float]) -> str:
        ordered = sorted(group_means.items(), key=lambda item: -item[1])
        return ", ".join(f"{group} ({times(mean)})" for group, mean in ordered)

    texts = [f"{new} is ahead in {listed(ahead)}"] if ahead else []
    texts += [f"{base} is ahead in {listed(behind)}"] if behind else []
    if level:
        texts.append(f"{'both' if texts else f'{base} and {new}'} are within {SAME_WITHIN:.0%} in {', '.join(level)}")
    return "; ".join(texts) + "."


def times(ratio: float) -> str:
    """Return a ratio as text: 1.42x."""
    return f"{units.digits(ratio, 3)}x"


def failures(comparison: Comparison, threshold: float | None, strict: bool) -> list[str]:
    """Return a sentence for each ceiling that is worse by more than the threshold or, with `strict`, lost its value.

    The threshold does not apply to copies of pageable memory, whose values differ much between two runs on one card.
    """
    sentences = []
    for row in comparison.rows:
        if (
            row.name not in UNSTEADY
            and threshold is not None
            and row.better is not None
            and 1 / row.better - 1 > threshold
        ):
            sentences.append(
                f"{row.name} is worse by {1 / row.better - 1:.1%}, more than {threshold * 100:.3g}%: "
                f"{value(row.base.value if row.base else None, row.unit)} -> "
                f"{value(row.new.value if row.new else None, row.unit)}."
            )
    if strict:
        for row in comparison.lost:
            why = (row.new.reason if row.new else "") or "it was not measured"
            sentences.append(f"{row.name} lost its value: {why}.")
    return sentences


def document(names: Sequence[str], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the comparisons of the first file with each other file as a dict for JSON."""
    return {
        "files": list(names),
        "comparisons": [
            {
                "base": names[0],
                "new": label,
                "verdict": verdict(comparison, (names[0], label)),
                "geometric_means": comparison.means,
                "ceilings": [asdict(row) for row in comparison.rows],
            }
            for label, comparison in zip(names[1:], comparisons, strict=True)
        ],
    }


def refuse(files: Sequence[ResultsFile], names: Sequence[str], doing: str, instead: str) -> None:
    """Raise CudabenchError if a file contains ceilings. `doing`: the text after 'which' in the message; `instead`: the
    text that says what to do."""
    for file, name in zip(files, names, strict=True):
        if file.ceilings:
            raise CudabenchError(f"{name} holds ceilings, which {doing}: {instead}.")


def all_ceilings(files: Sequence[ResultsFile], names: Sequence[str]) -> bool:
    """Return whether all files contain ceilings and no results of kernels.

    Raises UsageError if only some files do, because such files cannot be compared.
    """
    holding = [bool(file.ceilings) and not file.results for file in files]
    if any(holding) and not all(holding):
        present, missing = holding.index(True), holding.index(False)
        raise UsageError(f"{names[present]} holds ceilings and {names[missing]} does not: name files of one kind.")
    return any(holding)
