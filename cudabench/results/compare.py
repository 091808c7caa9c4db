"""Compares two results files. Pure functions: records in, records out.

The ratio of times is the new median divided by the base's median, with an interval from the module `ratio`.

The verdict is `slower` if the whole interval is above 1, and `faster` if it is below 1. It is `same` if the interval
contains 1 and no value in it exceeds the allowed change. It is `unclear` otherwise, or with too few samples.

Counts of the simulator are exact: every difference is shown, and a count that grew by more than allowed is a failure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

from cudabench.errors import EXIT_FAILED, EXIT_THRESHOLD, EXIT_WRONG, UsageError, most_serious
from cudabench.explain.accesses import total, unit
from cudabench.records.file import ResultsFile
from cudabench.records.launch import Dim, dim_text
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import units
from cudabench.results.ratio import RUN_TO_RUN, RUN_TO_RUN_S, Ratio, time_ratio
from cudabench.results.thresholds import THRESHOLDS

SAME_WITHIN = 0.03  # twice RUN_TO_RUN; a larger threshold is used instead
# With at least this many samples, the range of the samples is a 99% interval of the median for every distribution. With
# 7 samples it is not: 2 * (1/2)^7 > 0.01.
MIN_SAMPLES = 8
# If the speed of the copy changed by more than this fraction, the card itself became faster or slower.
COPY_MOVED = 0.02

COUNTED_SPACES = ("global", "local", "shared", "constant")

# WHERE maps a kind of device to its words in messages. CHANGES: the verdicts on a kernel with the same problem on both
# sides.
WHERE = {"cuda": "on a GPU", "simulated": "through a simulated driver", "sim": "in the simulator"}
CHANGES = frozenset({"faster", "slower", "same", "fewer", "more", "mixed"})

Scope = Literal["gpu", "hardware", "counts"]
Verdict = Literal[
    "faster", "slower", "same", "unclear", "fewer", "more", "mixed", "wrong", "failed", "mended", "still wrong",
    "still failed", "new", "missing", "shown",
]  # fmt: skip

ORDER: tuple[Verdict, ...] = (
    "wrong", "failed", "slower", "more", "mixed", "unclear", "same", "fewer", "faster", "mended", "still wrong",
    "still failed",
)  # fmt: skip
# The order in which rows are shown. Rows with the verdict "same" come last.
WORST = (*(word for word in ORDER if word != "same"), "missing", "new", "same")


@dataclass(frozen=True)
class Key:
    """The key of a measurement: two results with equal keys are compared.

    `kind`: the kind of device; `card`: the card, if a file has results of several cards; `occurrence`: a number, from
    0, that distinguishes results with otherwise equal keys.
    """

    operation: str
    kernel: str
    size: tuple[tuple[str, float], ...]
    dtype: str
    block: Dim
    kind: str
    card: str = ""
    occurrence: int = 0


@dataclass(frozen=True)
class Count:
    """One count of the simulator in both files."""

    name: str
    base: int
    new: int


@dataclass(frozen=True)
class Row:
    """One kernel: its results in both files, and the verdict. `reason`: why there is no clear verdict."""

    key: Key
    base: Result | None
    new: Result | None
    verdict: Verdict
    ratio: Ratio | None = None
    reason: str | None = None
    counts: tuple[Count, ...] = ()

    @property
    def same_code(self) -> bool | None:
        """Whether both sides ran the same machine code; None if the code of a side is not known."""
        codes = [side.machine_code for side in (self.base, self.new) if side and side.machine_code]
        return (codes[0].arch, codes[0].sha256) == (codes[1].arch, codes[1].sha256) if len(codes) == 2 else None

    @property
    def grown(self) -> tuple[Count, ...]:
        """The counts that grew."""
        return tuple(count for count in self.counts if count.new > count.base)

    def grown_over(self, threshold: float) -> tuple[Count, ...]:
        """Return the counts that grew by more than the fraction `threshold`.

        A count that was zero and grew is among them.
        """
        margin = threshold * (1 + 1e-9)  # allow for rounding: 0.29 * 100 is 28.999999999999996
        return tuple(count for count in self.grown if count.new - count.base > margin * count.base)


@dataclass(frozen=True)
class Comparison:
    """The rows of two files: first the rows of the new file, in its order, then the rows that only the base has.

    `scope`: "gpu" if times on one GPU are compared, "hardware" for times on two GPUs (without a verdict), "counts" for
    counts of the simulator. `changed`: other differences between the two runs, such as versions.
    """

    base: ResultsFile
    new: ResultsFile
    scope: Scope
    rows: tuple[Row, ...]
    changed: tuple[str, ...] = ()

    @property
    def geometric_mean(self) -> float | None:
        """The geometric mean of the ratios; None without ratios."""
        # Rows of different problems, or with cold and hot caches, also have a ratio, which is not in the mean.
        comparable = CHANGES | {"shown"}
        logs = [math.log(row.ratio.value) for row in self.rows if row.ratio and row.verdict in comparable]
        return math.exp(sum(logs) / len(logs)) if logs else None

    def count(self, verdict: Verdict) -> int:
        """Return how many rows have this verdict."""
        return sum(row.verdict == verdict for row in self.rows)


@dataclass(frozen=True)
class Failure:
    """A reason why a comparison fails: the exit code, a sentence without its full stop, and the row of the kernel."""

    code: int
    message: str
    row: Row


# Matching ------------------------------------------------------------------------------------------------------------


def compare(
    base: ResultsFile,
    new: ResultsFile,
    *,
    threshold: float | None = None,
    run_to_run: float = RUN_TO_RUN,
    same_model: bool = False,
) -> Comparison:
    """Return the comparison of new with base.

    `threshold`: the allowed slow-down, as a fraction. `run_to_run`: replaces RUN_TO_RUN. `same_model`: whether two
    cards with the same name are treated as one GPU. Raises UsageError for files that share no measurement.
    """
    before, after = results_by_key(base), results_by_key(new)
    if before and after and not set(before) & set(after):
        raise UsageError(nothing_in_common(before, after))
    simulated = {key.kind for key in (*before, *after)} == {"sim"}
    scope: Scope = "counts" if simulated else _scope(base, new, same_model)
    if len(base.devices) > 1 or len(new.devices) > 1:
        before, after = _by_card(base, new, scope, same_model)
    margin = max(threshold or 0.0, SAME_WITHIN, 2 * run_to_run)
    rows = [_row(key, before.get(key), result, scope, margin, run_to_run) for key, result in after.items()]
    rows += [_row(key, result, None, scope, margin, run_to_run) for key, result in before.items() if key not in after]
    # Operation options, such as the radius of a blur, change the problem, even if the size is the same.
    old, fresh = (
        {name: value for name, value in (file.settings.get("options") or {}).items() if name not in ("image", "save")}
        for file in (base, new)
    )
    if old != fresh:
        reason = f"another problem: {_value(old)} -> {_value(fresh)}"
        rows = [replace(r, verdict="unclear", reason=reason) if r.verdict in CHANGES else r for r in rows]
    return Comparison(base, new, scope, tuple(rows), differences(base, new))


def results_by_key(file: ResultsFile) -> dict[Key, Result]:
    """Return the results of a file by key; skipped results are left out."""
    occurrences: Counter[Key] = Counter()
    results = {}
    for result in (row for row in file.results if row.status != "skipped"):
        kind = "sim" if result.device.startswith("sim") else _kind(file.device_of(result))
        kernel = f"{result.kernel} {units.variant(result)}".rstrip()
        key = Key(result.operation, kernel, tuple(result.size.items()), result.dtype, result.block, kind or "cuda")
        results[replace(key, occurrence=occurrences[key])] = result
        occurrences[key] += 1
    return results


def _by_card(
    base: ResultsFile, new: ResultsFile, scope: Scope, same_model: bool
) -> tuple[dict[Key, Result], dict[Key, Result]]:
    """Return the results of both files by key, with the card in the key.

    In scope "hardware", the n-th card of the base is compared with the n-th card of the new file; in other scopes, each
    card is compared with the same card.
    """
    unmatched, new_files = base.by_device(), new.by_device()
    pairs: list[tuple[ResultsFile | None, ...]] = []
    if scope == "hardware":
        pairs += zip_longest(unmatched, new_files)
    else:
        for after_file in new_files:
            match = next((file for file in unmatched if _alike(file.device, after_file.device, same_model)), None)
            unmatched = [file for file in unmatched if file is not match]
            pairs.append((match, after_file))
        pairs += [(file, None) for file in unmatched]
    before: dict[Key, Result] = {}
    after: dict[Key, Result] = {}
    for pair in pairs:
        card = _card(*(side.device if side else None for side in pair))
        for by_key, side in zip((before, after), pair, strict=True):
            by_key |= {replace(key, card=card): result for key, result in results_by_key(side).items()} if side else {}
    return before, after


def _card(old: DeviceInfo | None, new: DeviceInfo | None) -> str:
    """Return the name of a card for the key: its UUID if both files have the same card, else its label (cuda:1)."""
    device = new or old
    if device is None:
        return ""
    same_card = old is None or new is None or old.uuid == new.uuid
    return device.uuid[:12] if same_card and device.uuid else device.label


def nothing_in_common(before: Iterable[Key], after: Iterable[Key]) -> str:
    """Return the error sentence for two files without a common key. It names a property in which all results differ."""
    before, after = list(before), list(after)
    texts: dict[str, Callable[[Key], str]] = {
        "kind": lambda key: WHERE[key.kind],
        "operation": lambda key: key.operation,
        "size": size_text,
        "dtype": lambda key: key.dtype,
        "kernel": lambda key: key.kernel,
        "block": lambda key: dim_text(key.block, 2),
    }
    for attribute, text in texts.items():
        ours, theirs = (list(dict.fromkeys(map(text, keys))) for keys in (before, after))
        if not set(ours) & set(theirs):
            verb = "ran" if attribute == "kind" else f"has the {attribute}"
            return f"The files share no measurement: the base {verb} {_listed(ours)}, the new one {_listed(theirs)}."
    return "The files share no measurement: every kernel differs in size, type or block."


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")


def size_text(key: Key) -> str:
    """Return the size in a key as text."""
    return units.size_text(key.operation, key.size)


def _kind(device: DeviceInfo | None) -> str | None:
    return device.kind if device else None


def same_gpu(a: DeviceInfo, b: DeviceInfo, same_model: bool = False) -> bool:
    """Return whether two devices are the same GPU: by their UUIDs if both have one, else by name.

    With `same_model`, only the names are compared.
    """
    by_uuid = a.uuid and b.uuid and not same_model
    return a.kind == b.kind and (a.uuid == b.uuid if by_uuid else a.name == b.name)


def _alike(a: DeviceInfo | None, b: DeviceInfo | None, same_model: bool) -> bool:
    # A file without a device comes from a run that was interrupted early. It has no results, so it conflicts with
    # nothing.
    return a is None or b is None or same_gpu(a, b, same_model)


def _scope(base: ResultsFile, new: ResultsFile, same_model: bool) -> Literal["gpu", "hardware", "counts"]:
    if _kind(base.device) == _kind(new.device) == "sim":
        return "counts"
    pairs = ((old_file.device, new_file.device) for old_file in base.by_device() for new_file in new.by_device())
    return "gpu" if any(_alike(*pair, same_model) for pair in pairs) else "hardware"


# Differences in these settings are not shown, because they do not change what is measured, or are shown elsewhere.
QUIET_SETTINGS = {
    "kernels", "block", "size", "dtype", "device", "timeout", "cpu", "cpu_threads", "jobs", "sim_threads", "on",
    "sweep", *THRESHOLDS,
}  # fmt: skip


def differences(base: ResultsFile, new: ResultsFile) -> tuple[str, ...]:
    """Return the differences between two runs other than their results: versions, driver, settings.

    Each is a text, such as 'nvcc 12.9 -> 13.0'.
    """

    def changes(before: Any, after: Any, skip: set[str], lead: str = "") -> list[str]:
        names = [name for name in {**before, **after} if name not in skip and before.get(name) != after.get(name)]
        labels = {"version": "cudabench"}
        return [f"{lead}{labels.get(n, n)} {_value(before.get(n))} -> {_value(after.get(n))}" for n in names]

    drivers = ({"driver": f.device.driver, "simulated": f.device.name} if f.device else {} for f in (base, new))
    old_driver, new_driver = drivers
    simulated = _kind(base.device) == _kind(new.device) == "sim"
    return (
        *changes(base.tool, new.tool, {"name"}),
        *changes(old_driver, new_driver, {"driver"} if simulated else {"simulated"}),
        *changes(base.settings, new.settings, {*QUIET_SETTINGS, "requests"}),
        *(text for old, now, label in _requests(base, new) for text in changes(old, now, {"kernels"}, f"{label}: ")),
    )


def _requests(base: ResultsFile, new: ResultsFile) -> Iterator[tuple[Any, Any, str]]:
    """Yield (old settings, new settings, names of its kernels) for each request of a profile that both runs have."""
    old, now = (
        {", ".join(request.get("kernels") or ()): request for request in file.settings.get("requests") or ()}
        for file in (base, new)
    )
    for label in [label for label in old if label in now]:
        yield old[label], now[label], label


def _value(value: Any) -> str:
    if value is None or value in ({}, [], ""):
        return "none"
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items())
    return str(value)


# One kernel ----------------------------------------------------------------------------------------------------------


def _row(key: Key, base: Result | None, new: Result | None, scope: str, margin: float, run_to_run: float) -> Row:
    row = partial(Row, key, base, new)
    if new is None:
        return row("missing")
    fault: Verdict = "wrong" if new.status == "wrong" else "failed"
    if base is None:
        return row("new" if new.status == "ok" else fault, reason=new.reason)
    before, after = counts(base), counts(new)
    row = partial(row, counts=tuple(Count(name, before[name], after[name]) for name in after if name in before))
    if new.status != "ok" and new.status == base.status:
        return row("still wrong" if new.status == "wrong" else "still failed")
    if new.status != "ok":
        return row(fault, reason=new.reason)
    if base.status != "ok":
        return row("mended")
    if after.get("hazards", 0) > 0 == before.get("hazards"):
        return row("wrong", reason=new.hazards[0].message if new.hazards else None)
    if key.kind == "simulated":
        return row("unclear", reason="a simulated driver made up the times")
    if key.kind == "sim":
        return _counted(row("unclear", reason="no counts in one file"))
    row = partial(Row, key, base, new)  # if a kernel has a time, the time decides, not the counts
    if scope == "hardware":
        ratio = new.time.median_s / base.time.median_s if base.time and new.time else None
        return row("shown", Ratio(ratio, ratio, ratio) if ratio else None)
    return row(*_timed(base, new, margin, run_to_run))


def _timed(base: Result, new: Result, margin: float, run_to_run: float) -> tuple[Verdict, Ratio | None, str | None]:
    """Return (verdict, ratio or None, why the verdict is not clear or None) for two measured results."""
    if base.time is None or new.time is None:
        return "unclear", None, "one of the files lacks a time"
    if min(base.time.median_s, new.time.median_s, *base.time.samples_s, *new.time.samples_s) <= 0:
        return "unclear", None, "a time of zero"
    ratio = time_ratio(base.time, new.time, run_to_run)
    if base.time.cache != new.time.cache:
        return "unclear", ratio, f"{base.time.cache} against {new.time.cache} L2"
    fewest = min(len(base.time.samples_s), len(new.time.samples_s))
    if fewest < MIN_SAMPLES:
        return "unclear", ratio, f"{fewest} samples, at least {MIN_SAMPLES} are needed"
    outcome = interval_verdict(ratio, margin)
    if outcome == "unclear":
        short = RUN_TO_RUN_S / min(base.time.median_s, new.time.median_s) > run_to_run
        note = f": times this short differ by {RUN_TO_RUN_S * 1e6:g} µs from run to run" if short else ""
        return outcome, ratio, f"a change of {ratio.reach:.1%} is possible{note}"
    if outcome != "same" and base.copy_gbps and new.copy_gbps and base.bytes:
        copy = base.copy_gbps / new.copy_gbps  # the ratio of the copy's times, new to old
        # Draw conclusions from the copy only if it takes long enough.
        long = RUN_TO_RUN_S * base.copy_gbps * 1e9 / base.bytes <= COPY_MOVED
        if long and abs(math.log(copy)) > math.log1p(COPY_MOVED) and ratio.low / copy <= 1 <= ratio.high / copy:
            direction, by = "slower" if copy > 1 else "faster", max(copy, 1 / copy) - 1
            return "unclear", ratio, f"the copy is {by:.1%} {direction} too: the card changed"
    return outcome, ratio, None


def interval_verdict(ratio: Ratio, margin: float) -> Literal["slower", "faster", "same", "unclear"]:
    """Return the verdict for the interval of a ratio.

    It is `same` only if no value in the interval differs from 1 by more than `margin`, a fraction.
    """
    if ratio.low > 1:
        return "slower"
    if ratio.high < 1:
        return "faster"
    return "same" if ratio.reach <= margin else "unclear"


# Counts --------------------------------------------------------------------------------------------------------------


def counts(result: Result) -> dict[str, int]:
    """Return the simulator's counts of a result by name, summed over the kernel.

    Counts that were not taken are left out.
    """
    spaces = () if result.access is None else COUNTED_SPACES
    counted = {f"{space} {unit(space)}": total(result.access or (), space).actual for space in spaces}
    counted |= {} if result.instructions is None else {"PTX instructions": result.instructions}
    counted |= {} if result.hazards is None else {"hazards": sum(hazard.count for hazard in result.hazards)}
    return counted


def _counted(row: Row) -> Row:
    """Return the row with the verdict that its counts give; a row without counts is returned unchanged."""
    if not row.counts:
        return row
    grown, fallen = any(c.new > c.base for c in row.counts), any(c.new < c.base for c in row.counts)
    outcome: Verdict = "mixed" if grown and fallen else "more" if grown else "fewer" if fallen else "same"
    return replace(row, verdict=outcome, reason=None)


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows sorted by verdict, the worst first; for equal verdicts, the largest change first."""

    def rank(row: Row) -> tuple[int, float, float]:
        position = WORST.index(row.verdict) if row.verdict in WORST else len(WORST)
        largest = max((abs(count.new / count.base - 1) if count.base else math.inf for count in row.grown), default=0.0)
        return position, -abs(math.log(row.ratio.value)) if row.ratio and row.ratio.value > 0 else 0.0, -largest

    return sorted(rows, key=rank)


# Failures ------------------------------------------------------------------------------------------------------------


def failures(comparison: Comparison, threshold: float | None, strict: bool = False) -> list[Failure]:
    """Return the reasons why a comparison fails, with their exit codes.

    Always: a kernel that became wrong (exit code 3), or that failed and did not fail before (1). With `threshold`: a
    kernel with the verdict `slower` that is slower by more than this, and in the simulator a count that grew by more
    than this (4). With `strict`: an unclear or missing kernel (4).
    """
    failed = []
    gate = f"over --fail-on-regression {(threshold or 0.0) * 100:.4g}%"
    for row in comparison.rows:
        name = name_of(row.key)
        reason = f": {row.reason}" if row.reason else ""
        if row.verdict == "wrong":
            failure = EXIT_WRONG, f"{name} is wrong{' and was right' if row.base else ''}{reason}"
        elif row.verdict == "failed":
            failure = EXIT_FAILED, f"{name} failed{' and ran before' if row.base else ''}{reason}"
        elif threshold is not None and row.verdict != "unclear" and (over := row.grown_over(threshold)):
            grown = ", ".join(f"{count.name} {count.base} -> {count.new}" for count in over)
            failure = EXIT_THRESHOLD, f"{name} takes more: {grown}, {gate}"
        elif threshold is not None and row.verdict == "slower" and row.ratio and row.ratio.change > threshold:
            interval = f"{row.ratio.low - 1:+.1%} to {row.ratio.high - 1:+.1%}"
            failure = EXIT_THRESHOLD, f"{name} is {row.ratio.change:.1%} slower ({interval}), {gate}"
        elif strict and row.verdict in ("unclear", "missing"):
            failure = EXIT_THRESHOLD, f"{name} is {row.verdict}{reason}, and --strict requires a clear verdict"
        else:
            continue
        failed.append(Failure(*failure, row))
    return failed


def name_of(key: Key) -> str:
    """Return the name of a measurement for a sentence, such as 'smem-pad (32 x 8)'."""
    block = f" ({dim_text(key.block, 2)})" if key.block[0] else ""
    return key.kernel + block + (f" on {key.card}" if key.card else "")


# For scripts ---------------------------------------------------------------------------------------------------------


def document(names: Sequence[str], comparisons: Sequence[Comparison], failed: Sequence[Failure]) -> dict[str, Any]:
    """Return the comparisons of the first file with each other file as a dict for JSON; times are in seconds."""
    return {
        "schema": "cudabench-comparison/1",
        "base": names[0],
        "comparisons": [
            {
                "new": name,
                "scope": comparison.scope,
                "geometric_mean": comparison.geometric_mean,
                "changed": list(comparison.changed),
                "rows": [_plain(row) for row in comparison.rows],
            }
            for name, comparison in zip(names[1:], comparisons, strict=True)
        ],
        "failures": [{"exit_code": failure.code, "message": failure.message} for failure in failed],
        "exit_code": most_serious(failure.code for failure in failed),
    }


def _plain(row: Row) -> dict[str, Any]:
    def seconds(result: Result | None) -> float | None:
        return result.time.median_s if result and result.time else None

    return {
        "operation": row.key.operation,
        "kernel": row.key.kernel,
        "size": dict(row.key.size),
        "dtype": row.key.dtype,
        "block": list(row.key.block),
        "device": result.device if (result := row.new or row.base) else "",
        "verdict": row.verdict,
        "reason": row.reason,
        "same_machine_code": row.same_code,
        "base_s": seconds(row.base),
        "new_s": seconds(row.new),
        "ratio": row.ratio.value if row.ratio else None,
        "ratio_low": row.ratio.low if row.ratio else None,
        "ratio_high": row.ratio.high if row.ratio else None,
        "counts": {count.name: {"base": count.base, "new": count.new} for count in row.counts},
    }
