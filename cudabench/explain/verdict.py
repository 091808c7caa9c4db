"""Makes texts about a kernel's limits (lower bounds on its time), and finds the rung that removes the longest limit.

A ladder is a series of kernels for the same problem, in which each kernel improves an earlier kernel. A rung is a
kernel of a ladder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from cudabench.explain.bound_texts import ENOUGH_TEXT, EXPLAINED, IN_L1_TEXT, MEANINGS, NAMES, NO_UNITS
from cudabench.records.results import Limit, Result

MOST_SHOWN = 3  # `line` shows at most this many limits; the results file has all of them
LEAST_SHARE = 0.1  # a limit is shown only if it is at least this share of the longest limit
# A rung has removed a limit of another kernel if the same limit of the rung is at most this fraction of it.
REMOVED = 0.8

# For each resource: words. If the chapter's sentence about a kernel contains such a word, the kernel uses less of this
# resource.
_RUNG_WORDS = {
    "shared memory": ("bank", "shuffle", "registers", "no shared memory"),
    "lsu": ("coalesced", "16 bytes", "word", "neighbouring", "shared memory", "registers"),
    "l2": ("coalesced", "neighbouring", "16 bytes", "word", "shared memory"),
    "memory": ("once", "fewer bytes", "in registers"),
    "issue": ("16 bytes", "vector", "a quarter of", "four pixels", "word", "registers"),
    "alu": ("16 bytes", "vector", "four pixels", "word", "registers"),
    "fma": ("tensor cores",),
    "xu": ("nothing is converted", "without branches"),
    "constant": ("shared", "global"),
    "local": ("registers",),
    "atomic": ("shared memory", "shuffle", "block"),
    "latency": ("under way", "before the first is used", "several", "each thread", "UNROLL", "16 bytes"),
    "blocks": ("each thread", "UNROLL", "16 bytes", "vector", "four pixels", "fewer blocks"),
    "tail": ("each row", "cuts", "pieces", "piece"),
    "launch": ("one launch", "single"),
}


def longest_limit_s(result: Result) -> float:
    """Return the longest limit of a result in seconds; infinity without limits. The limit is rounded to three digits,
    because smaller differences between limits mean nothing."""
    return float(f"{result.limits[0].time_s:.3g}") if result.limits else inf


def name(limit: Limit) -> str:
    """Return the name of a limit for a sentence: "shared memory" for a limit of the load/store unit whose explanation
    begins with wavefronts of shared memory."""
    if limit.resource == "lsu" and "shared memory" in limit.detail.split(" and ")[0]:
        return "shared memory"
    return NAMES.get(limit.resource, limit.resource)


def short_time(seconds: float, longest: float) -> str:
    """Return a time as text, in the unit that suits the time `longest`: 61, 36.2, 0.412."""
    factor = _unit(longest)[0]
    value = seconds / factor
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _unit(seconds: float) -> tuple[float, str]:
    return next(((f, u) for f, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= f), (1e-9, "ns"))


def line(result: Result) -> str:
    """Return the limits in one line: 'at least 61 µs on H200: shared memory 61, memory 36, issue 20'; '' if none.

    If the limit of the busiest hardware unit is not shown, it is added.
    """
    if not result.limits:
        return ""
    longest = result.limits[0].time_s
    shown = [limit for limit in result.limits[:MOST_SHOWN] if limit.time_s >= LEAST_SHARE * longest]
    parts = ", ".join(f"{name(limit)} {short_time(limit.time_s, longest)}" for limit in shown)
    unit = busiest_unit(result)
    if unit is not None and unit not in shown:
        parts += f"; of the units {name(unit)} {short_time(unit.time_s, longest)}"
    return f"at least {short_time(longest, longest)} {_unit(longest)[1]} on {result.limits_on}: {parts}"


def legend(resources: Iterable[str]) -> str:
    """Return what the words of a column "held by" mean, in one line; '' without resources."""
    texts = [f"{NAMES[resource]}: {MEANINGS[resource]}" for resource in dict.fromkeys(resources)]
    return f"Held by {'; '.join(texts)}." if texts else ""


# Printed with every table of limits from a datasheet. Such limits lack the launch, so they may be a few nanoseconds.
NOT_OF_A_DATASHEET = "The times of a launch and of block starts are not included, because datasheets lack them."


def of_a_datasheet(result: Result) -> bool:
    """Return whether a result's limits come from a datasheet; such limits do not include the time of a launch."""
    return bool(result.limits) and "(datasheet)" in (result.limits_on or "")


def busiest_unit(result: Result) -> Limit | None:
    """Return the longest limit of a hardware unit, or None; a profiler shows this unit as the busiest unit."""
    return next((limit for limit in result.limits or () if limit.resource not in NO_UNITS), None)


def _busiest_unit_clause(result: Result) -> str:
    """Return a clause on the busiest hardware unit, such as '; of the units L2 has most to do, ...'; '' if the longest
    limit is the limit of this unit."""
    assert result.limits
    unit, longest = busiest_unit(result), result.limits[0]
    if unit is None or unit is longest:
        return ""
    share = f", {unit.time_s / result.true_time.median_s:.0%} of the time" if result.true_time else ""
    least = f", {short_time(unit.time_s, longest.time_s)} {_unit(longest.time_s)[1]} at least{share}"
    # If the launch is the longest limit, the times of the units consist mostly of the launch and say little about the
    # work.
    return f"; of the units {name(unit)} has most to do{'' if longest.resource == 'start' else least}"


def _unexplained_clause(result: Result) -> str:
    """Return a clause with the possible causes of the time that the limits do not explain."""
    waits = any(row.op in ("atomic", "reduction") for row in result.access or ())
    atomics = ", or atomics that wait for one another longer than in the best order" if waits else ""
    enough = any(ENOUGH_TEXT in limit.detail for limit in result.limits or () if limit.resource == "latency")
    rather = " (of loads that queue behind others or wait at barriers, as enough are under way)" if enough else ""
    return f"latency{rather} or imbalance{atomics}"


def sentence(result: Result, ladder: Sequence[Result], ideas: Mapping[str, str]) -> str:
    """Return sentences on a kernel's longest limit and on the rung that removes it; '' without limits.

    `ladder`: results of other kernels for the same problem. `ideas`: by kernel name, the chapter's sentence about each
    kernel of the ladder that is not a detour, in the ladder's order.
    """
    if not result.limits:
        return ""
    longest = result.limits[0]
    what = name(longest)
    if result.true_time is None:
        text = f"Held by {what}: {longest.detail}{_busiest_unit_clause(result)}"
    else:
        share = longest.time_s / result.true_time.median_s
        if share < EXPLAINED:
            hints = [
                limit for limit in result.limits if limit.resource in ("latency", "tail") or IN_L1_TEXT in limit.detail
            ]
            figures = "; ".join(f"{limit.resource}: {limit.detail}" for limit in hints) or "no count shows either"
            return (
                f"No limit explains {EXPLAINED:.0%} of the time (the longest, {what}, {share:.0%}), so what is left is "
                f"{_unexplained_clause(result)}. {figures[0].upper()}{figures[1:]}."
            )
        text = f"{share:.0%} of the time is explained by {what}: {longest.detail}{_busiest_unit_clause(result)}"
    rung = removing_rung(result, ladder, ideas)
    return f"{text}. The kernel {rung} removes this: {ideas[rung]}" if rung else f"{text}."


def removing_rung(result: Result, ladder: Sequence[Result], ideas: Mapping[str, str]) -> str | None:
    """Return the name of the first later rung that removes the longest limit of a kernel, or None.

    A rung is chosen by its limits; if no later rung has limits, by the words in its sentence in the chapter.
    """
    # No rung can remove the time that the launch itself takes.
    if not result.limits or result.kernel not in ideas or result.limits[0].resource == "start":
        return None
    longest = result.limits[0]
    later = list(ideas)[list(ideas).index(result.kernel) + 1 :]
    known = {other.kernel: other.limits for other in ladder if other.limits and other.size == result.size}
    counted = [kernel for kernel in later if kernel in known]
    for kernel in counted:
        same = (limit.time_s for limit in known[kernel] if limit.resource == longest.resource)
        if max(*same, known[kernel][0].time_s, 0.0) <= REMOVED * longest.time_s:
            return kernel
    if counted:
        return None
    words = _RUNG_WORDS.get("shared memory" if name(longest) == "shared memory" else longest.resource, ())
    return next((kernel for kernel in later if any(word in ideas[kernel] for word in words)), None)
