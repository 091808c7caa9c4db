"""Statistics over cards: medians and deviations by model and kernel, slow cards, and cards that become slower.

A row is the cost of one kernel on one card in one folder. Costs are compared as ratios to the median cost of the cards
of the same model. Functions return tables (record arrays); their docstrings name the columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cudabench.records.fleet import Rule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Table = Any  # a numpy.recarray

# The MAD (median absolute deviation) times this number estimates the standard deviation of normally distributed noise.
# The number is 1 / q, where q is the 3/4 quantile of the normal distribution (Rousseeuw and Croux, Alternatives to the
# median absolute deviation, JASA 88, 1993).
MAD_TO_SIGMA = 1.4826
FEWEST = 3  # the fewest cards that can be compared; if two cards differ, either may be the normal one


def limit(mad: Any, rule: Rule) -> Any:
    """Return the ratio to the median above which a card is slow. `mad`: the MAD of the ratios."""
    return 1 + np.maximum(rule.over, rule.mads * MAD_TO_SIGMA * mad)


class CostStatistics:
    """The rows of all folders. Cards, models and labels are given as indices into lists of the caller."""

    def __init__(self) -> None:
        self._parts: defaultdict[int, list[Table]] = defaultdict(list)
        self._tables: dict[int, Table] = {}

    def add(self, folder: int, card: Ints, model: Ints, label: Ints, cost: Floats) -> None:
        """Add rows to a folder. Each argument is a column, with one element per row."""
        self._parts[folder].append(_table(card=card, model=model, label=label, cost=cost))
        self._tables.pop(folder, None)

    def _rows(self, folder: int) -> Table:
        """Return a folder's rows with more columns. Rows with the same model and label form a group.

        Added columns: ratio; group: the number of the row's group; cards: how many rows the group has; median: the
        median of the group's costs; mad: the MAD of the group's ratios.
        """
        if folder not in self._tables:
            rows = _joined([_NO_ROWS, *self._parts[folder]])
            group = _groups(rows.model, rows.label)
            median = _medians(group, rows.cost)
            ratio = rows.cost / median
            self._tables[folder] = _table(
                card=rows.card, model=rows.model, label=rows.label, cost=rows.cost, ratio=ratio, group=group,
                cards=np.bincount(group)[group], median=median, mad=_medians(group, np.abs(ratio - 1)),
            )  # fmt: skip
        return self._tables[folder]

    def groups(self, folder: int, rule: Rule) -> Table:
        """Return a row for each model and label, sorted by both.

        Columns: model, label, cards, median, mad; worst: the largest ratio; worst_card: the card that has this ratio;
        slow: how many cards are slow.
        """
        rows = self._rows(folder)
        # Select the row with the largest ratio in each group. If ratios are equal, select the card that was read first.
        order = np.lexsort((-rows.card, rows.ratio, rows.group))
        last = rows[order[np.cumsum(np.bincount(rows.group)) - 1]]
        slow = np.bincount(rows.group[_slow(rows, rule)], minlength=len(last))
        return _table(
            model=last.model, label=last.label, cards=last.cards, median=last.median, mad=last.mad, worst=last.ratio,
            worst_card=last.card, slow=slow,
        )  # fmt: skip

    def slow_rows(self, folder: int, rule: Rule) -> Table:
        """Return the slow rows (card, label, cost, ratio, mad), sorted by card, then by ratio, the largest first."""
        rows = self._rows(folder)
        rows = rows[_slow(rows, rule)]
        return rows[np.lexsort((rows.label, -rows.ratio, rows.card))]

    def card_medians(self, folder: int) -> Table:
        """Return a row for each card, sorted.

        Columns: card; ratio: the median of its ratios; labels: how many ratios the card has.
        """
        rows = self._rows(folder)
        cards, first, group, labels = np.unique(rows.card, return_index=True, return_inverse=True, return_counts=True)
        return _table(card=cards, ratio=_medians(group, rows.ratio)[first], labels=labels)

    def changes(self, last: int, rule: Rule) -> Table:
        """Return the rows of folder `last` that became slower than in the folders before (card, label, change).

        The rows are sorted by card and label. `change` is the last ratio divided by the median of the earlier ratios.
        """
        rows = _joined([self._rows(folder) for folder in range(last + 1)])
        now = np.arange(len(rows)) >= len(rows) - len(self._rows(last))
        pair = _groups(rows.card, rows.label)
        before = np.full(pair.max(initial=-1) + 1, np.nan)
        before[pair[~now]] = _medians(pair[~now], rows.ratio[~now])
        rows, change = rows[now], rows.ratio[now] / before[pair[now]]
        rows, change = rows[np.isfinite(change)], change[np.isfinite(change)]
        group = _groups(rows.model, rows.label)
        usual = change / _medians(group, change)
        mad = _medians(group, np.abs(usual - 1))
        slow = (usual > limit(mad, rule)) & (change > 1 + rule.over) & (np.bincount(group)[group] >= FEWEST)
        slowed = _table(card=rows.card[slow], label=rows.label[slow], change=change[slow])
        return slowed[np.lexsort((slowed.label, slowed.card))]

    def ratios(self, folder: int, cards: Iterable[int] | None = None) -> Table:
        """Return the ratios of all cards or of some (card, model, label, ratio), sorted by card and label."""
        rows = self._rows(folder)
        rows = rows if cards is None else rows[np.isin(rows.card, [*cards])]
        return rows[np.lexsort((rows.label, rows.card))]


def _table(**columns: Any) -> Table:
    return np.rec.fromarrays([*columns.values()], names=",".join(columns))  # type: ignore[call-overload]


_NO_ROWS = _table(**dict.fromkeys(("card", "model", "label"), np.empty(0, np.int64)), cost=np.empty(0))


def _joined(parts: Sequence[Table]) -> Table:
    return np.concatenate(parts).view(np.recarray)


def _slow(rows: Table, rule: Rule) -> NDArray[np.bool_]:
    slow: NDArray[np.bool_] = (rows.ratio > limit(rows.mad, rule)) & (rows.cards >= FEWEST)
    return slow


def _groups(first: Ints, second: Ints) -> Ints:
    """Return for each row the number of its pair (first, second); the sorted distinct pairs are numbered from 0."""
    return np.unique(first * (second.max(initial=0) + 1) + second, return_inverse=True)[1].reshape(-1)


def _medians(group: Ints, values: Floats) -> Floats:
    """Return for each row the median of the values in its group; `group` holds the number of each row's group."""
    order = np.lexsort((values, group))
    counts = np.bincount(group)
    start = np.cumsum(counts) - counts
    ordered = np.append(values[order], np.nan)  # the NaN at the end gives a valid index to a group without values
    low, high = ordered[start + np.maximum(counts - 1, 0) // 2], ordered[start + counts // 2]
    medians: Floats = (low + (high - low) / 2)[group]
    return medians
