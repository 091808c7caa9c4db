"""Finds the reasons why kernels of a ladder are far slower than the fastest kernel of the table. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cudabench.records.launch import cdiv
from cudabench.records.results import Result
from cudabench.results.groups import grouped
from cudabench.source.comments import sentences

# SLOW_FRACTION: a kernel below this fraction of the fastest row's speed is slow. LOW_USE_FRACTION: a low use of SMs is
# a reason if the kernel's share of busy SMs is at most this fraction of the fastest row's share.
SLOW_FRACTION, LOW_USE_FRACTION = 0.5, 0.75


def slow_rungs(
    results: Sequence[Result], sms: Mapping[str, int], comments: Callable[[], Mapping[str, str]]
) -> Iterator[tuple[Result, Result, float, str]]:
    """For each kernel far slower than the fastest row of its size and device, yield (kernel, row, fraction, reason).

    `row`: the fastest row. `fraction`: the kernel's speed divided by the speed of the fastest row. `reason`: a text, or
    '', that names the resources of which the kernel uses less, and the bottleneck that remains according to the
    kernel's comment. A kernel with known limits is left out, because its limits explain more. `sms`: the number of
    multiprocessors by device. `comments`: a function that returns the chapter's comments by kernel.
    """
    timed = (((r.device, *r.size.values()), (r.true_time.median_s, r)) for r in results if r.true_time)
    for group in grouped(timed).values():
        least, best = min(group, key=lambda row: row[0])
        for median, rung in group:
            if least < SLOW_FRACTION * median and rung.id is not None and not rung.limits:
                remains = _remaining_bottleneck(rung, comments().get(rung.kernel, ""))
                yield rung, best, least / median, " ".join((*_lower_use(rung, best, sms.get(rung.device, 0)), *remains))


def _lower_use(rung: Result, best: Result, sms: int) -> Iterator[str]:
    counts = [math.prod(row.grid) for row in (rung, best)]
    busy, best_busy = (
        count / (sms * cdiv(count, sms)) if count and sms else 1.0 for count in counts
    )  # the grid of a library's kernel is not known
    if busy <= LOW_USE_FRACTION * best_busy:
        yield f"Its {counts[0]} blocks keep {busy:.0%} of {sms} multiprocessors at work on average."
    fit, best_fraction = rung.occupancy, best.occupancy.fraction if best.occupancy else 1.0
    if fit and fit.fraction <= SLOW_FRACTION * best_fraction:
        yield f"A multiprocessor holds {fit.fraction:.0%} of the warps that it could, limited by {fit.limited_by}."
    if spilled := rung.machine_code.spill_bytes if rung.machine_code else 0:
        yield f"{spilled} bytes a thread are spilled to local memory for lack of registers."


def _remaining_bottleneck(rung: Result, comment: str) -> list[str]:
    """Return the last sentences of a comment, from the sentence that says which bottleneck remains.

    If memory remains as the bottleneck, return none of these, because the fastest row has the same bottleneck. A
    sentence on rows of partial vectors is handled separately: it is returned only if the size has such rows.
    """
    itemsize = int(re.sub(r"\D", "", rung.dtype) or 0) // 8
    ragged = any(int(extent) * itemsize % 16 for extent in rung.size.values())
    texts = sentences(comment)
    texts = texts[next((at for at, sentence in enumerate(texts) if at and "remain" in sentence.lower()), len(texts)) :]
    memory = any("remains is the memory" in sentence for sentence in texts)
    return [sentence for sentence in texts if (ragged if re.search("multiples? of|agged", sentence) else not memory)]
