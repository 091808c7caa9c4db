"""Do the verdicts of `cudabench compare` hold? Run `python benchmarks/verdicts.py [RESULTS.json] [PAIRS]`.

Each trial makes two runs of one kernel from the samples of a recorded H200 run and lets compare judge them. A run is
made so that it has what real runs have: stretches of the recorded samples in their order, drawn anew (so the two levels
between which samples alternate keep their pattern, and their shares move), times one offset for the whole run, drawn
anew too, with a standard deviation of OFFSET (so that two runs of one kernel differ by up to a percent), plus a slow
drift of DRIFT from the first sample to the last. The new run is slowed by a known factor. The table counts verdicts.

The second table shows what an interval from samples alone, without the term between runs, would say of the same runs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from cudabench import compare, results, stats
from cudabench.model import Result
from cudabench.results import ResultsFile

RECORDED = Path(__file__).parent.parent / "tests" / "data" / "h200.json"
OFFSET = 0.003  # of a run: 99% of the pairs then differ by less than 1.1%
DRIFT = 0.002
SAMPLES = 1000
THRESHOLD = 0.05
SLOWED = (0.0, 0.01, 0.03, 0.06, 0.12)
WORDS = ("faster", "same", "unclear", "slower")


def another_run(result: Result, slowed: float, rng: np.random.Generator, offset: float = OFFSET) -> Result:
    """Return a run of the same kernel as another process would measure it, slowed by a fraction."""
    assert result.time is not None
    recorded = np.asarray(result.time.samples_s)
    stretch = 40
    starts = rng.integers(0, len(recorded) - stretch, -(-SAMPLES // stretch))
    samples = np.concatenate([recorded[at : at + stretch] for at in starts])[:SAMPLES]
    level = (1 + slowed) * (1 + offset * rng.standard_normal())
    drift = 1 + DRIFT * rng.standard_normal() * np.linspace(-0.5, 0.5, SAMPLES)
    return replace(result, time=stats.summarize((samples * level * drift).tolist(), result.time.cache))


def trials(
    file: ResultsFile, slowed: float, pairs: int, rng: np.random.Generator, run_to_run: float = compare.RUN_TO_RUN
) -> dict[str, int]:
    """Return how often each verdict fell, and how often --fail-on-regression would have failed, over all kernels."""
    tally = dict.fromkeys((*WORDS, "fails"), 0)
    for _ in range(pairs):
        base = replace(file, results=[another_run(r, 0.0, rng) for r in file.results])
        new = replace(file, results=[another_run(r, slowed, rng) for r in file.results])
        comparison = compare.compare(base, new, threshold=THRESHOLD, run_to_run=run_to_run)
        for row in comparison.rows:
            tally[row.verdict] += 1
        tally["fails"] += len(compare.failures(comparison, THRESHOLD))
    return tally


def table(file: ResultsFile, pairs: int, run_to_run: float) -> str:
    """Return the verdicts by slow-down, in percent of all comparisons."""
    rng = np.random.default_rng(0)
    total = pairs * len(file.results)
    lines = [f"{'slowed by':>10}  " + "  ".join(f"{word:>8}" for word in (*WORDS, "exit 4"))]
    for slowed in SLOWED:
        tally = trials(file, slowed, pairs, rng, run_to_run)
        lines.append(f"{slowed:>10.0%}  " + "  ".join(f"{count / total:>8.1%}" for count in tally.values()))
    return "\n".join(lines)


def main() -> None:
    """Print both tables."""
    file = results.load(sys.argv[1] if len(sys.argv) > 1 else RECORDED)
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    kernels = ", ".join(result.kernel for result in file.results)
    print(f"{pairs} pairs of runs of {kernels}; --fail-on-regression {THRESHOLD:.0%}")
    allowed = compare.RUN_TO_RUN
    print(f"\nAs compare judges, two runs allowed to differ by {allowed:.1%}:\n{table(file, pairs, allowed)}")
    compare.SPREAD_SHARE = 0.0
    print(f"\nFrom the samples alone:\n{table(file, pairs, 0.0)}")


if __name__ == "__main__":
    main()
