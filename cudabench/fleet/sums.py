"""Sums over cards: medians and deviations by model and kernel, who lies beyond, and who gets slower.

One row is the cost of one kernel on one card in one folder; costs are compared as ratios to the median of the cards of
the same model. NumPy does the sums of what fits the memory, DuckDB the same sums on disk: both give the same numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cudabench.errors import CudabenchError
from cudabench.records.fleet import Rule
from cudabench.system import interrupts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# A MAD times this estimates the standard deviation of normal noise: 1 / the normal quantile of 3/4 (Rousseeuw and
# Croux, Alternatives to the median absolute deviation, JASA 88, 1993).
MAD_TO_SIGMA = 1.4826
FEWEST = 3  # of two cards nobody can say which one is as it should be
MEMORY = "1GB"  # that DuckDB takes before it goes to disk
AT_ONCE = 100_000  # rows that are put into the database together


class Rows(NamedTuple):
    """Costs as columns: each of a card in a folder, of a model, in what was measured; all but the cost are numbers of
    lists."""

    folder: Ints
    card: Ints
    model: Ints
    label: Ints
    cost: Floats


@dataclass(frozen=True)
class Groups:
    """By model and label, sorted: how many cards, the median cost, the MAD over it, who is worst, who is slow."""

    model: Ints
    label: Ints
    cards: Ints
    median: Floats
    mad: Floats
    worst: Floats
    worst_card: Ints
    slow: Ints


@dataclass(frozen=True)
class Beyond:
    """Cards that are slow in a label, by card and then by ratio, the worst first; `ratio` is cost over median."""

    card: Ints
    label: Ints
    cost: Floats
    ratio: Floats
    mad: Floats


@dataclass(frozen=True)
class Typical:
    """By card, sorted: the median of its ratios and how many there are."""

    card: Ints
    ratio: Floats
    labels: Ints


@dataclass(frozen=True)
class Change:
    """Cards that got slower, by card and label: the last ratio over the median of those before."""

    card: Ints
    label: Ints
    change: Floats


@dataclass(frozen=True)
class Dots:
    """Every ratio of a folder."""

    card: Ints
    model: Ints
    label: Ints
    ratio: Floats


class Sums(Protocol):
    """Rows of all folders. `close` lets go of what they are kept in."""

    def add(self, rows: Rows) -> None:
        """Take rows."""

    def groups(self, folder: int, rule: Rule) -> Groups:
        """Return the sums of a folder by model and label."""

    def beyond(self, folder: int, rule: Rule) -> Beyond:
        """Return who is slow in a folder."""

    def typical(self, folder: int) -> Typical:
        """Return the cards of a folder."""

    def changes(self, last: int, rule: Rule) -> Change:
        """Return who got slower from the folders before `last` to that one."""

    def dots(self, folder: int, cards: Iterable[int] | None = None) -> Dots:
        """Return every ratio of a folder, or those of some cards."""

    def close(self) -> None:
        """Let go."""


def limit(mad: Any, rule: Rule) -> Any:
    """Return the ratio over which a card is slow, for a MAD over the median."""
    return 1 + np.maximum(rule.over, rule.mads * MAD_TO_SIGMA * mad)


# In memory -----------------------------------------------------------------------------------------------------------


_KIND = [("folder", "i8"), ("card", "i8"), ("model", "i8"), ("label", "i8"), ("cost", "f8")]


class InMemory:
    """Rows in arrays, sums by NumPy."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []
        self._rows: NDArray[Any] | None = None

    def add(self, rows: Rows) -> None:
        """Take rows."""
        self._parts.append(rows)
        self._rows = None

    def _ratios(self, folder: int) -> tuple[NDArray[Any], NDArray[Any], Ints, Floats, Floats]:
        """Return a folder's rows, its groups (model, label), each row's group, the medians, and each row's ratio."""
        if self._rows is None:
            self._rows = np.empty(sum(len(part.cost) for part in self._parts), _KIND)
            for name, _ in _KIND:
                if self._parts:
                    self._rows[name] = np.concatenate([getattr(part, name) for part in self._parts])
        rows = self._rows[self._rows["folder"] == folder]
        keys, group = _grouped(rows, ("model", "label"))
        medians = _medians(group, rows["cost"], len(keys))
        return rows, keys, group, medians, rows["cost"] / medians[group]

    def groups(self, folder: int, rule: Rule) -> Groups:
        """Return the sums of a folder by model and label."""
        rows, keys, group, medians, ratio = self._ratios(folder)
        mad = _medians(group, np.abs(ratio - 1), len(keys))
        cards = np.bincount(group, minlength=len(keys))
        # The last of each group in the order of its ratios; of equal ones the card that was read first.
        order = np.lexsort((-rows["card"], ratio, group))
        last = order[np.cumsum(cards) - 1]
        slow = (ratio > limit(mad, rule)[group]) & (cards[group] >= FEWEST)
        return Groups(
            keys["model"], keys["label"], cards, medians, mad, ratio[last], rows["card"][last],
            np.bincount(group[slow], minlength=len(keys)),
        )  # fmt: skip

    def beyond(self, folder: int, rule: Rule) -> Beyond:
        """Return who is slow in a folder."""
        rows, keys, group, _, ratio = self._ratios(folder)
        mad = _medians(group, np.abs(ratio - 1), len(keys))[group]
        cards = np.bincount(group, minlength=len(keys))[group]
        at = np.flatnonzero((ratio > limit(mad, rule)) & (cards >= FEWEST))
        at = at[np.lexsort((rows["label"][at], -ratio[at], rows["card"][at]))]
        return Beyond(rows["card"][at], rows["label"][at], rows["cost"][at], ratio[at], mad[at])

    def typical(self, folder: int) -> Typical:
        """Return the cards of a folder."""
        rows, _, _, _, ratio = self._ratios(folder)
        cards, group = np.unique(rows["card"], return_inverse=True)
        return Typical(cards, _medians(group, ratio, len(cards)), np.bincount(group, minlength=len(cards)))

    def changes(self, last: int, rule: Rule) -> Change:
        """Return who got slower from the folders before `last` to that one."""
        parts = []
        for folder in range(last + 1):
            rows, _, _, _, ratio = self._ratios(folder)
            parts.append((rows, ratio, np.full(len(rows), folder == last)))
        rows = np.concatenate([part[0] for part in parts])
        ratio, now = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
        keys, pair = _grouped(rows, ("card", "label"))
        before = _medians(pair[~now], ratio[~now], len(keys))
        rows, pair, change = rows[now], pair[now], ratio[now] / before[pair[now]]
        known = np.isfinite(change)
        rows, change = rows[known], change[known]
        keys, group = _grouped(rows, ("model", "label"))
        median = _medians(group, change, len(keys))
        mad = _medians(group, np.abs(change / median[group] - 1), len(keys))
        many = np.bincount(group, minlength=len(keys)) >= FEWEST
        at = np.flatnonzero((change / median[group] > limit(mad, rule)[group]) & (change > 1 + rule.over) & many[group])
        at = at[np.lexsort((rows["label"][at], rows["card"][at]))]
        return Change(rows["card"][at], rows["label"][at], change[at])

    def dots(self, folder: int, cards: Iterable[int] | None = None) -> Dots:
        """Return every ratio of a folder, or those of some cards."""
        rows, _, _, _, ratio = self._ratios(folder)
        kept = np.ones(len(rows), bool) if cards is None else np.isin(rows["card"], [*cards])
        rows, ratio = rows[kept], ratio[kept]
        order = np.lexsort((rows["label"], rows["card"]))
        return Dots(rows["card"][order], rows["model"][order], rows["label"][order], ratio[order])

    def close(self) -> None:
        """Let go of the rows."""
        self._parts.clear()


def _grouped(rows: NDArray[Any], by: tuple[str, str]) -> tuple[NDArray[Any], Ints]:
    """Return the different pairs of two columns, sorted, and the number of each row's pair."""
    pairs = np.empty(len(rows), [(name, "i8") for name in by])
    for name in by:
        pairs[name] = rows[name]
    keys, inverse = np.unique(pairs, return_inverse=True)
    return keys, inverse.reshape(-1)


def _medians(group: Ints, values: Floats, groups: int) -> Floats:
    """Return the median of the values of each group, NaN for an empty one."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=groups)
    start = np.cumsum(counts) - counts
    ordered = np.append(values[order], np.nan)
    low, high = start + np.maximum(counts - 1, 0) // 2, start + counts // 2
    empty = counts == 0
    low, high = np.where(empty, len(values), low), np.where(empty, len(values), high)
    medians: Floats = ordered[low] + (ordered[high] - ordered[low]) / 2
    return medians


# On disk -------------------------------------------------------------------------------------------------------------


class OnDisk:
    """Rows in a DuckDB database in a folder of its own, which sorts on disk what does not fit its memory.

    Raises CudabenchError where DuckDB is not installed.
    """

    def __init__(self) -> None:
        try:
            import duckdb
        except ImportError:
            raise CudabenchError(
                "So many shards need DuckDB, which is not here: pip install 'cudabench[fleet]'."
            ) from None
        self._folder = tempfile.TemporaryDirectory(prefix="cudabench-fleet-")
        path = Path(self._folder.name)
        settings: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": str(path / "spilled")}
        self._refused: type[Exception] = duckdb.Error
        self._base: Any = duckdb.connect(str(path / "costs.db"), config=settings)
        self._run(
            "CREATE TABLE cost (folder BIGINT, card BIGINT, model BIGINT, label BIGINT, cost DOUBLE, ratio DOUBLE)"
        )
        self._waiting: list[Rows] = []
        self._summed = False

    def add(self, rows: Rows) -> None:
        """Take rows."""
        self._waiting.append(rows)
        self._summed = False
        if sum(len(part.cost) for part in self._waiting) >= AT_ONCE:
            self._insert()

    def _insert(self) -> None:
        """Put the rows that wait into the database; many at once, since each time costs as much as some thousand."""
        if self._waiting:
            part = {name: np.concatenate([getattr(part, name) for part in self._waiting]) for name in Rows._fields}
            self._waiting.clear()
            self._base.register("part", part)
            self._run("INSERT INTO cost SELECT folder, card, model, label, cost, NULL FROM part")
            self._base.unregister("part")

    def _run(self, query: str, *values: Any) -> dict[str, Any]:
        """Return the columns of a query's answer, by name. Raises CudabenchError where it does not fit the disk."""
        try:
            with interrupts.heard():
                found: dict[str, Any] = self._base.execute(query, values).fetchnumpy()
        except self._refused as error:
            why = str(error).splitlines()[0]
            raise CudabenchError(f"DuckDB cannot sum so many shards in {self._folder.name}: {why}.") from None
        return found

    def _fetch(self, query: str, *values: Any) -> list[Any]:
        """Return the columns of a query's answer."""
        self._insert()
        if not self._summed:
            # The sums that all others are made of: every ratio, and what is in the middle of each group.
            self._run(
                """
                CREATE OR REPLACE TABLE middle AS
                SELECT folder, model, label, count(*) AS cards, median(cost) AS median, 0.0::DOUBLE AS mad
                FROM cost GROUP BY ALL;
                UPDATE cost SET ratio = cost / median FROM middle
                WHERE cost.folder = middle.folder AND cost.model = middle.model AND cost.label = middle.label;
                UPDATE middle SET mad = found.mad FROM (
                    SELECT folder, model, label, median(abs(ratio - 1)) AS mad FROM cost GROUP BY ALL
                ) AS found
                WHERE found.folder = middle.folder AND found.model = middle.model AND found.label = middle.label
                """
            )
            self._summed = True
        return list(self._run(query, *values).values())

    def groups(self, folder: int, rule: Rule) -> Groups:
        """Return the sums of a folder by model and label."""
        return Groups(
            *self._fetch(
                f"""
                SELECT model, label, any_value(cards), any_value(median), any_value(mad), max(ratio),
                    arg_max(card, {{'ratio': ratio, 'first': -card}}),
                    count(*) FILTER (ratio > {_LIMIT} AND cards >= {FEWEST})
                FROM cost JOIN middle USING (folder, model, label) WHERE folder = $3
                GROUP BY model, label ORDER BY model, label
                """,
                rule.over,
                rule.mads,
                folder,
            )
        )

    def beyond(self, folder: int, rule: Rule) -> Beyond:
        """Return who is slow in a folder."""
        return Beyond(
            *self._fetch(
                f"""
                SELECT card, label, cost, ratio, mad FROM cost JOIN middle USING (folder, model, label)
                WHERE folder = $3 AND ratio > {_LIMIT} AND cards >= {FEWEST} ORDER BY card, ratio DESC, label
                """,
                rule.over,
                rule.mads,
                folder,
            )
        )

    def typical(self, folder: int) -> Typical:
        """Return the cards of a folder."""
        return Typical(
            *self._fetch(
                "SELECT card, median(ratio), count(*) FROM cost WHERE folder = $1 GROUP BY card ORDER BY card", folder
            )
        )

    def changes(self, last: int, rule: Rule) -> Change:
        """Return who got slower from the folders before `last` to that one."""
        return Change(
            *self._fetch(
                f"""
                WITH past AS (SELECT card, label, median(ratio) AS before FROM cost WHERE folder < $3 GROUP BY ALL),
                change AS (
                    SELECT card, model, label, ratio / before AS change FROM cost JOIN past USING (card, label)
                    WHERE folder = $3
                ),
                usual AS (SELECT model, label, median(change) AS usual, count(*) AS cards FROM change GROUP BY ALL),
                spread AS (
                    SELECT model, label, usual, cards, median(abs(change / usual - 1)) AS mad
                    FROM change JOIN usual USING (model, label) GROUP BY ALL
                )
                SELECT card, label, change FROM change JOIN spread USING (model, label)
                WHERE change / usual > {_LIMIT} AND change > 1 + $1 AND cards >= {FEWEST} ORDER BY card, label
                """,
                rule.over,
                rule.mads,
                last,
            )
        )

    def dots(self, folder: int, cards: Iterable[int] | None = None) -> Dots:
        """Return every ratio of a folder, or those of some cards."""
        chosen = "" if cards is None else "AND card IN (SELECT unnest($2::BIGINT[]))"
        more = () if cards is None else ([*map(int, cards)],)
        query = f"SELECT card, model, label, ratio FROM cost WHERE folder = $1 {chosen} ORDER BY card, label"
        return Dots(*self._fetch(query, folder, *more))

    def close(self) -> None:
        """Delete the database."""
        self._base.close()
        self._folder.cleanup()


# `limit` with the rule's numbers as the first two values of a query.
_LIMIT = f"1 + greatest($1, $2 * {MAD_TO_SIGMA} * mad)"
