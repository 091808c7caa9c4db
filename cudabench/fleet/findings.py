"""The findings of a fleet's shards: slow cards with the cause, missing cards, and cards that become slower.

The cost of a kernel on a card is its time; the cost of a ceiling is its value or, if a larger value is better, the
inverse of the value. A card is slow in a kernel if its cost is above the median of its model by more than `Rule.mads`
scaled MADs (median absolute deviations) and also by more than the fraction `Rule.over`. With the first limit alone, in
a fleet with little noise, cards that are only one percent slower would be reported. With the second limit alone, in a
fleet with much noise, normal cards would be reported. The clocks of a slow card under load then show whether a lower
clock is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from cudabench.fleet import place, reading
from cudabench.fleet.sums import FEWEST, MAD_TO_SIGMA, CostStatistics, Table, limit
from cudabench.records.fleet import Card, Cause, Damaged, Fleet, Group, Load, Measurement, Rule, Slow, SlowCard, Slowing

RULE = Rule(mads=5.0, over=0.03)
LOW_CLOCK = 0.01  # a clock is called low if it is at least this fraction below the usual clock
MOST_DATED_FILES = 20  # to find the date of a folder, at most this many of its files are read
UNKNOWN_MODEL = "unknown card"


@dataclass
class NameNumbers:
    """Gives each distinct name a number, in the order of first use: `names[numbers[name]] == name`."""

    names: list[Any] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)

    def __getitem__(self, name: object) -> int:
        if (number := self.numbers.setdefault(name, len(self.names))) == len(self.names):
            self.names.append(name)
        return number


@dataclass
class Folder:
    """A folder of shards.

    `cards`: the cards by their id; `damaged`: the files that are not shards; `simulated`: how many of the cards are
    simulators.
    """

    path: Path
    cards: dict[str, Card] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)
    simulated: int = 0


@dataclass
class Report:
    """The folders of shards, oldest first, and the costs from all of them.

    `findings` and `ratios` describe the last folder.
    """

    folders: list[Folder]
    statistics: CostStatistics = field(default_factory=CostStatistics)
    ids: NameNumbers = field(default_factory=NameNumbers)
    models: NameNumbers = field(default_factory=NameNumbers)
    labels: NameNumbers = field(default_factory=NameNumbers)

    def findings(self, rule: Rule = RULE, expected: Iterable[str] = ()) -> Fleet:
        """Return the findings. `expected` are the ids of cards that must have a shard."""
        last = len(self.folders) - 1
        folder = self.folders[last]
        cards = {**folder.cards, **self._missing(expected)}
        slow = self._slow(rule, cards)
        return Fleet(
            rule=rule,
            folders=tuple(str(item.path) for item in self.folders),
            cards=tuple(cards.values()),
            measurements=tuple(self._measurements(last, rule)),
            slow=tuple(slow),
            groups=tuple(self._groups(last, cards, {item.id for item in slow})),
            slowing=tuple(self._slowing(last, rule)) if last else (),
            damaged=tuple(folder.damaged),
        )

    def ratios(self) -> Table:
        """Return a table with, for every kernel and card, the cost divided by the median cost on cards of the same
        model."""
        return self.statistics.ratios(len(self.folders) - 1)

    @property
    def simulated(self) -> int:
        """How many cards of the last folder are simulators (a simulator measures no times)."""
        return self.folders[-1].simulated

    def _missing(self, expected: Iterable[str]) -> dict[str, Card]:
        """Return, by id, the cards that are in earlier folders or in `expected`, but not in the last folder."""
        *earlier, last = self.folders
        unread = {damaged.file: f"its shard cannot be read: {damaged.reason}" for damaged in last.damaged}
        missing: dict[str, Card] = {}
        for folder in earlier:
            for name, card in folder.cards.items():
                if name not in last.cards and (card.status != "missing" or name.startswith(("GPU-", "MIG-"))):
                    reason = unread.get(place.file_name(name), f"it is in {folder.path}, but not in {last.path}")
                    missing[name] = replace(card, status="missing", reason=reason, load=None, health=None, slurm={})
        for name in expected:
            if name not in last.cards and name not in missing:
                reason = unread.get(place.file_name(name), "it is expected, but lacks a shard")
                missing[name] = Card(name, "missing", reason)
        return missing

    def _measurements(self, folder: int, rule: Rule) -> Iterator[Measurement]:
        for row in self.statistics.groups(folder, rule):
            label, mad, cards = self.labels.names[row.label], float(row.mad), int(row.cards)
            yield Measurement(
                model=self.models.names[row.model],
                **label._asdict(),
                cards=cards,
                median=_value(label, float(row.median)),
                mad=mad,
                limit=float(limit(mad, rule)) if cards >= FEWEST else None,
                slow=int(row.slow),
                worst=float(row.worst),
                worst_card=self.ids.names[row.worst_card],
            )

    def _slow(self, rule: Rule, cards: dict[str, Card]) -> list[SlowCard]:
        last = len(self.folders) - 1
        labels_of = {int(row.card): int(row.labels) for row in self.statistics.card_medians(last)}
        usual = usual_clocks(cards.values())
        slow_cards = []
        for number, group in groupby(self.statistics.slow_rows(last, rule), key=lambda row: int(row.card)):
            card = cards[self.ids.names[number]]
            clock, load = clock_ratio(card, usual), card.load
            rows = []
            for row in group:
                label, ratio, mad = self.labels.names[row.label], float(row.ratio), float(row.mad)
                rows.append(
                    Slow(
                        label.operation, label.kernel, label.problem, _value(label, float(row.cost)), ratio,
                        (ratio - 1) / (MAD_TO_SIGMA * mad) if mad else None, None if clock is None else ratio / clock,
                    )
                )  # fmt: skip
            slow_cards.append(
                SlowCard(
                    card.id, cause(rows, clock, rule), load.sm_mhz if load else None,
                    usual.get(card.model or "", (None, None))[0], load.throttle if load else (), tuple(rows),
                    labels_of[number],
                )
            )  # fmt: skip
        return sorted(slow_cards, key=lambda slow: -slow.kernels[0].ratio)

    def _groups(self, folder: int, cards: dict[str, Card], slow: set[str]) -> Iterator[Group]:
        ratios = {self.ids.names[row.card]: float(row.ratio) for row in self.statistics.card_medians(folder)}
        kinds: tuple[Literal["model", "rack", "host"], ...] = ("model", "rack", "host")
        for kind in kinds:
            members: dict[str, list[Card]] = {}
            for card in cards.values():
                if (name := getattr(card, kind)) is not None:
                    members.setdefault(name, []).append(card)
            for name, group in sorted(members.items()):
                known_ratios = [ratios[card.id] for card in group if card.id in ratios]
                ok = sum(card.status == "ok" for card in group)
                slow_count = sum(card.id in slow for card in group)
                yield Group(kind, name, ok, slow_count, len(group) - ok, median(known_ratios) if known_ratios else None)

    def _slowing(self, last: int, rule: Rule) -> list[Slowing]:
        worst: dict[int, Table] = {}
        for row in self.statistics.changes(last, rule):
            if row.card not in worst or row.change > worst[row.card].change:
                worst[int(row.card)] = row
        past = [
            {(row.card, row.label): float(row.ratio) for row in self.statistics.ratios(folder, worst)}
            for folder in range(last + 1 if worst else 0)
        ]
        slowing = []
        for card, row in worst.items():
            label, ratios = self.labels.names[row.label], tuple(ratio.get((card, row.label)) for ratio in past)
            name = self.ids.names[card]
            slowing.append(Slowing(name, label.operation, label.kernel, label.problem, ratios, float(row.change)))
        return sorted(slowing, key=lambda row: -row.change)


def load(paths: Sequence[Path]) -> Report:
    """Return a report on folders of shards.

    The folders are sorted by the time of their shards, if each folder has a time.

    Raises CudabenchError if a folder cannot be read.
    """
    names = {path: reading.shard_names(path) for path in paths}
    times = {path: _folder_time(path, files) for path, files in names.items()}
    order = sorted(names, key=lambda path: times[path]) if all(times.values()) else [*names]
    report = Report([Folder(path) for path in order])
    for number, path in enumerate(order):
        files = frozenset(names[path])
        for chunk in reading.read_shards(path, names[path]):
            _add_chunk(report, number, chunk, files)
    return report


def _folder_time(path: Path, files: Sequence[str]) -> str:
    """Return the time (UTC) at which a folder's shards were written, from the first shard that has a time; else ''."""
    for name in files[:MOST_DATED_FILES]:
        with suppress(reading.Unreadable):
            cards = reading.shards(name, reading.content(str(path / name)))
            if cards and cards[0].utc:
                return cards[0].utc
    return ""


def _add_chunk(report: Report, number: int, chunk: reading.Chunk, files: frozenset[str]) -> None:
    """Add the cards and costs of some files, which belong to folder `number`, to a report."""
    folder, kept, cards, models = report.folders[number], [], [], []
    for shard in chunk.cards:
        own_file = place.file_name(shard.card.id)
        kept.append(shard.card.id not in folder.cards and (own_file == shard.file or own_file not in files))
        if not kept[-1]:
            folder.damaged.append(Damaged(shard.file, f"another file has the same card, {shard.card.id}"))
            continue
        folder.cards[shard.card.id] = shard.card
        folder.simulated += shard.simulated
        cards.append(report.ids[shard.card.id])
        models.append(report.models[shard.card.model or UNKNOWN_MODEL])
    folder.damaged += chunk.damaged
    counts = np.array(chunk.counts, np.int64)
    of_kept = np.array(kept, bool)  # without a dtype, an empty list would become an array of floats
    chosen, counts = np.repeat(of_kept, counts), counts[of_kept]
    labels = np.array([report.labels[label] for label in chunk.labels], np.int64)[chunk.label[chosen]]
    card, model = (np.repeat(np.array(numbers, np.int64), counts) for numbers in (cards, models))
    report.statistics.add(number, card, model, labels, chunk.cost[chosen])


def _value(label: reading.Label, cost: float) -> float:
    return cost if label.less_is_better else 1 / cost


# Clocks --------------------------------------------------------------------------------------------------------------


def usual_clocks(cards: Iterable[Card]) -> dict[str, tuple[float | None, float | None]]:
    """Return for each model the median clocks under load, in MHz: (multiprocessors, memory); None if unknown."""
    loads: dict[str, list[Load]] = {}
    for card in cards:
        if card.load and card.model:
            loads.setdefault(card.model, []).append(card.load)
    return {
        model: (
            _median_clock(load.sm_mhz for load in model_loads),
            _median_clock(load.memory_mhz for load in model_loads),
        )
        for model, model_loads in loads.items()
    }


def _median_clock(clocks: Iterable[float | None]) -> float | None:
    known = [clock for clock in clocks if clock and clock > 0]
    return median(known) if known else None


def clock_ratio(card: Card, usual: Mapping[str, tuple[float | None, float | None]]) -> float | None:
    """Return the usual clock divided by the card's clock, such as 1.1; 1 if the card's clocks are not low.

    The result is the larger ratio of the multiprocessors' clock and the memory's clock. It is None if the clock of the
    multiprocessors is not known.
    """
    if not card.load or not card.load.sm_mhz or card.load.sm_mhz <= 0:
        return None
    pairs = zip(usual.get(card.model or "", (None, None)), (card.load.sm_mhz, card.load.memory_mhz), strict=True)
    ratio = max((middle / clock for middle, clock in pairs if middle and clock and clock > 0), default=1.0)
    return ratio if ratio > 1 + LOW_CLOCK else 1.0


def cause(rows: Sequence[Slow], clock: float | None, rule: Rule) -> Cause:
    """Return how far a lower clock explains why the kernels are slow on a card: fully, partly, not at all, or unknown.
    `clock`: the result of `clock_ratio`."""
    if clock is None or clock == 1:
        return "unknown" if clock is None else "not clock"
    unexplained = max(row.ratio for row in rows) / clock
    return "clock" if unexplained <= 1 + rule.over else "partly clock"
