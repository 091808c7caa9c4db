"""What a fleet's shards say together: who is slow and why, who is missing, who gets slower.

A card is slow in a kernel where its cost lies over the median of the cards of its model by more than `Rule.mads` scaled
MADs and by more than `Rule.over`: the first alone would call a quiet fleet's last percent slow, the second a noisy
fleet's every tail. The clocks of the multiprocessors and of the memory under load then tell a card that runs at a lower
clock from one that is slow at the same clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from cudabench.fleet import place, reading
from cudabench.fleet.sums import FEWEST, MAD_TO_SIGMA, Dots, InMemory, OnDisk, Rows, Sums, limit
from cudabench.records.fleet import Card, Cause, Damaged, Fleet, Group, Measurement, Rule, Slow, SlowCard, Slowing

RULE = Rule(mads=5.0, over=0.03)
IN_MEMORY = 10_000  # shards that are summed without DuckDB
LOW_CLOCK = 0.01  # a clock that is lower than usual by more is low
PEEKED = 20  # files of a folder that are asked when it was written
UNKNOWN_MODEL = "unknown card"


@dataclass
class Numbered:
    """Names by number, in the order in which they came."""

    names: list[object] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)

    def __getitem__(self, name: object) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.names)
            self.names.append(name)
        return self.numbers[name]


@dataclass
class Folder:
    """A folder that was read: its cards by id, its damaged files, how many are the simulator."""

    path: Path
    cards: dict[str, Card] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)
    simulated: int = 0


@dataclass
class Report:
    """Folders, oldest first, and the sums over them; `findings` and `dots` are of the last."""

    folders: list[Folder]
    sums: Sums
    ids: Numbered
    models: Numbered
    labels: Numbered

    def findings(self, rule: Rule = RULE, expected: Iterable[str] = ()) -> Fleet:
        """Return what the shards say. `expected` are ids of cards that should be there."""
        last = len(self.folders) - 1
        folder = self.folders[last]
        cards = {**folder.cards, **self._missing(expected)}
        slow = self._slow(rule, cards)
        return Fleet(
            rule=rule,
            folders=tuple(str(each.path) for each in self.folders),
            cards=tuple(cards.values()),
            measurements=tuple(self._measurements(last, rule)),
            slow=tuple(slow),
            groups=tuple(self._groups(last, cards, {each.id for each in slow})),
            slowing=tuple(self._slowing(last, rule)) if last else (),
            damaged=tuple(folder.damaged),
        )

    def dots(self) -> Dots:
        """Return the ratio of every kernel on every card."""
        return self.sums.dots(len(self.folders) - 1)

    @property
    def simulated(self) -> int:
        """Return how many cards of the last folder are the simulator, which times nothing."""
        return self.folders[-1].simulated

    def _label(self, number: int) -> reading.Label:
        found = self.labels.names[number]
        assert isinstance(found, reading.Label)
        return found

    def _missing(self, expected: Iterable[str]) -> dict[str, Card]:
        """Return the cards that an earlier folder has or somebody expects, and the last one has not."""
        *earlier, last = self.folders
        found = {}
        unread = {each.file: each.reason for each in last.damaged}
        for folder in earlier:
            for card in folder.cards.values():
                if card.id not in last.cards and (card.status != "missing" or card.id.startswith(("GPU-", "MIG-"))):
                    why = unread.get(place.file_name(card.id))
                    reason = (
                        f"its shard cannot be read: {why}" if why else f"it is in {folder.path} and not in {last.path}"
                    )
                    found[card.id] = replace(card, status="missing", reason=reason, load=None, health=None, slurm={})
        for name in expected:
            if name not in last.cards and name not in found:
                why = unread.get(place.file_name(name))
                reason = f"its shard cannot be read: {why}" if why else "it is expected and has no shard"
                found[name] = Card(name, "missing", reason)
        return found

    def _measurements(self, folder: int, rule: Rule) -> list[Measurement]:
        sums = self.sums.groups(folder, rule)
        found = []
        for at in range(len(sums.label)):
            label = self._label(sums.label[at])
            mad, cards = float(sums.mad[at]), int(sums.cards[at])
            found.append(
                Measurement(
                    model=str(self.models.names[sums.model[at]]),
                    operation=label.operation,
                    kernel=label.kernel,
                    problem=label.problem,
                    unit=label.unit,
                    less_is_better=label.less_is_better,
                    cards=cards,
                    median=_value(label, float(sums.median[at])),
                    mad=mad,
                    limit=float(limit(mad, rule)) if cards >= FEWEST else None,
                    slow=int(sums.slow[at]),
                    worst=float(sums.worst[at]),
                    worst_card=str(self.ids.names[sums.worst_card[at]]),
                )
            )
        return found

    def _slow(self, rule: Rule, cards: dict[str, Card]) -> list[SlowCard]:
        last = len(self.folders) - 1
        sums, typical = self.sums.beyond(last, rule), self.sums.typical(last)
        if not len(sums.card):
            return []
        usual = usual_clocks(cards.values())
        labels_of = dict(zip(typical.card.tolist(), typical.labels.tolist(), strict=True))
        starts = np.flatnonzero(np.append(True, np.diff(sums.card) != 0))
        found = []
        for start, end in zip(starts, [*starts[1:], len(sums.card)], strict=True):
            card = cards[str(self.ids.names[sums.card[start]])]
            clock = clock_ratio(card, usual)
            rows = []
            for at in range(start, end):
                label, ratio, mad = self._label(sums.label[at]), float(sums.ratio[at]), float(sums.mad[at])
                rows.append(
                    Slow(
                        label.operation, label.kernel, label.problem, _value(label, float(sums.cost[at])), ratio,
                        (ratio - 1) / (MAD_TO_SIGMA * mad) if mad else None, None if clock is None else ratio / clock,
                    )
                )  # fmt: skip
            load = card.load
            found.append(
                SlowCard(
                    card.id, cause(rows, clock, rule), load.sm_mhz if load else None,
                    usual.get(card.model or "", (None, None))[0], load.throttle if load else (), tuple(rows),
                    labels_of[int(sums.card[start])],
                )
            )  # fmt: skip
        return sorted(found, key=lambda each: -each.kernels[0].ratio)

    def _groups(self, folder: int, cards: dict[str, Card], slow: set[str]) -> list[Group]:
        typical = self.sums.typical(folder)
        ratios = dict(zip(typical.card.tolist(), typical.ratio.tolist(), strict=True))
        kinds: tuple[Literal["model", "rack", "host"], ...] = ("model", "rack", "host")
        found = []
        for kind in kinds:
            members: dict[str, list[Card]] = {}
            for card in cards.values():
                name = getattr(card, kind)
                if name is not None:
                    members.setdefault(name, []).append(card)
            for name, group in sorted(members.items()):
                known = [r for card in group if (r := ratios.get(self.ids.numbers.get(card.id, -1))) is not None]
                found.append(
                    Group(
                        kind, name, sum(card.status == "ok" for card in group), sum(card.id in slow for card in group),
                        sum(card.status != "ok" for card in group), median(known) if known else None,
                    )
                )  # fmt: skip
        return found

    def _slowing(self, last: int, rule: Rule) -> list[Slowing]:
        sums = self.sums.changes(last, rule)
        worst: dict[int, tuple[int, float]] = {}
        for card, label, change in zip(sums.card.tolist(), sums.label.tolist(), sums.change.tolist(), strict=True):
            if card not in worst or change > worst[card][1]:
                worst[card] = (label, change)
        if not worst:
            return []
        past = []
        for folder in range(last + 1):
            dots = self.sums.dots(folder, worst)
            rows = zip(dots.card.tolist(), dots.label.tolist(), dots.ratio.tolist(), strict=True)
            past.append({(card, label): ratio for card, label, ratio in rows})
        found = []
        for card, (number, change) in worst.items():
            label = self._label(number)
            ratios = tuple(ratio.get((card, number)) for ratio in past)
            name = str(self.ids.names[card])
            found.append(Slowing(name, label.operation, label.kernel, label.problem, ratios, change))
        return sorted(found, key=lambda each: -each.change)


def load(paths: Sequence[Path], in_memory: int = IN_MEMORY) -> Report:
    """Return a report of folders of shards; more shards than `in_memory` are summed on disk.

    The folders are put in the order of their shards' times, where each has one. Raises CudabenchError where a folder
    cannot be read, and where many shards need DuckDB and it is not there.
    """
    names = {path: reading.listed(path) for path in paths}
    times = {path: _written(path, files) for path, files in names.items()}
    order = sorted(names, key=lambda path: times[path]) if all(times.values()) else [*names]
    sums: Sums = InMemory() if sum(map(len, names.values())) <= in_memory else OnDisk()
    report = Report([Folder(path) for path in order], sums, Numbered(), Numbered(), Numbered())
    for number, path in enumerate(order):
        files = frozenset(names[path])
        for chunk in reading.read(path, names[path]):
            _take(report, number, chunk, files)
    return report


def _written(path: Path, files: Sequence[str]) -> str:
    """Return when the first shard of a folder that says so was written."""
    for name in files[:PEEKED]:
        try:
            found = reading.shards(name, reading.content(str(path / name)))
        except reading.Unreadable:
            continue
        if found and found[0].utc:
            return found[0].utc
    return ""


def _take(report: Report, number: int, chunk: reading.Chunk, files: frozenset[str]) -> None:
    """Put what some files of a folder hold into a report."""
    folder, kept, cards, models = report.folders[number], [], [], []
    for found in chunk.cards:
        own = place.file_name(found.card.id)
        kept.append(found.card.id not in folder.cards and (own == found.file or own not in files))
        if not kept[-1]:
            folder.damaged.append(Damaged(found.file, f"it is of the same card as another, {found.card.id}"))
            continue
        folder.cards[found.card.id] = found.card
        folder.simulated += found.simulated
        cards.append(report.ids[found.card.id])
        models.append(report.models[found.card.model or UNKNOWN_MODEL])
    folder.damaged += chunk.damaged
    counts = np.array([found.values for found in chunk.cards], np.int64)
    of_kept = np.array(kept, bool)  # without a card, too
    chosen, counts = np.repeat(of_kept, counts), counts[of_kept]
    labels = np.array([report.labels[label] for label in chunk.labels], np.int64)[chunk.label[chosen]]
    rows = len(labels)
    report.sums.add(
        Rows(np.full(rows, number), np.repeat(np.array(cards, np.int64), counts),
             np.repeat(np.array(models, np.int64), counts), labels, chunk.cost[chosen])
    )  # fmt: skip


def _value(label: reading.Label, cost: float) -> float:
    return cost if label.less_is_better else 1 / cost


# Clocks --------------------------------------------------------------------------------------------------------------


def usual_clocks(cards: Iterable[Card]) -> dict[str, tuple[float | None, float | None]]:
    """Return by model the median clocks of multiprocessors and memory under load, in MHz; None where none is known."""
    seen: dict[str, tuple[list[float], list[float]]] = {}
    for card in cards:
        if card.load and card.model:
            pair = seen.setdefault(card.model, ([], []))
            for clocks, clock in zip(pair, (card.load.sm_mhz, card.load.memory_mhz), strict=True):
                if clock and clock > 0:
                    clocks.append(clock)
    return {model: (_middle(sm), _middle(memory)) for model, (sm, memory) in seen.items()}


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def clock_ratio(card: Card, usual: dict[str, tuple[float | None, float | None]]) -> float | None:
    """Return the usual clock over a card's, the larger of multiprocessors' and memory's; 1 where neither is low.

    None where the clock of the multiprocessors is not known.
    """
    clocks = (card.load.sm_mhz, card.load.memory_mhz) if card.load else (None, None)
    if not clocks[0] or clocks[0] <= 0:
        return None
    pairs = zip(usual.get(card.model or "", (None, None)), clocks, strict=True)
    ratios = [middle / clock for middle, clock in pairs if middle and clock and clock > 0]
    found = max(ratios, default=1.0)
    return found if found > 1 + LOW_CLOCK else 1.0


def cause(rows: Sequence[Slow], clock: float | None, rule: Rule) -> Cause:
    """Return what a card's clock has to do with the kernels that it is slow in."""
    if clock is None:
        return "unknown"
    if clock == 1:
        return "not clock"
    left = max(row.ratio for row in rows) / clock
    return "clock" if left <= 1 + rule.over else "partly clock"
