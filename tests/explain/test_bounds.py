"""Results without a GPU: lower bounds on a card, wasted accesses, the order of kernels, and counts without a card."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudabench.cli import pricing
from cudabench.devices import Choice
from cudabench.errors import CudabenchError
from cudabench.explain.accesses import excesses, wasted
from cudabench.measure import simulated_run
from cudabench.measure.context import describe
from cudabench.records.results import Access, Hazard, Limit, Result, Verification
from cudabench.results import sweep_points
from cudabench.views import headlines, table
from tests.conftest import Ran
from tests.ladders import build, needs_compiler

pytestmark = pytest.mark.machine_code

Runner = Callable[..., Ran]
LADDER = ("transpose", "--size", 64, 64, "-d", "sim", "--no-cpu")
KERNEL = """
__global__ void even(int n, const float *x, float *y)
{
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = x[i];
}
__global__ void dense(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""
RUN = (
    "even.cu", "-k", "all", "--grid", "cdiv(n,64)", "--block", 64, "--arg", "n=1000", "--arg", "x=float32[n]:random",
    "--arg", "y=float32[n]:zeros", "-d", "sim", "--no-cpu",
)  # fmt: skip


def result(kernel: str, bound_us: float | None, sectors: int = 4, wavefronts: int = 0, **other: Any) -> Result:
    """Return a result with a lower bound by memory; its accesses could do with four sectors and one wavefront."""
    (case,) = build("transpose", "smem", size=(64, 64))[1]
    access = [Access(7, "  y[i] =  x[i];", "global", "store", 4, 1, sectors=sectors, ideal_sectors=4)]
    if wavefronts:
        access.append(Access(9, "t[j];", "shared", "load", 4, 1, wavefronts=wavefronts, ideal_wavefronts=1))
    limits = (Limit("memory", bound_us * 1e-6, "bytes"),) if bound_us else None
    base = describe(case, "sim:sm_90")
    found = replace(base, kernel=kernel, access=tuple(access), limits=limits, limits_on="H100 (measured)", hazards=())
    return replace(found, **other)


def test_bounds_that_tie_are_ordered_by_waste() -> None:
    """Lower bounds that are equal to three digits tie; the kernel with the least waste comes first, in a ladder and a
    sweep."""
    results = [
        result("wasteful", 36.62, sectors=8), result("slow", 42.4), result("good", 36.58), result("banks", 36.6, 4, 3)
    ]  # fmt: skip
    assert headlines.lowest_line(results) == "Lowest bound, 36.6 µs: good, banks, wasteful, held by memory."
    assert [one.kernel for one in sorted(results, key=sweep_points.cost)] == ["good", "banks", "wasteful", "slow"]
    assert [one.kernel for one in sweep_points.best(results)] == ["good"]
    other = result("other", 36.6, limits=(Limit("l2", 36.6e-6, "sectors"),))
    assert headlines.lowest_line([results[2], other]).endswith("good, held by memory; other, held by L2.")
    assert headlines.lowest_line(results[:1]) == headlines.lowest_line([results[0], result("none", None)]) == ""


def test_waste_is_what_exceeds_the_ideal_in_both_units() -> None:
    """Excess sectors and wavefronts share one cell, the more expensive first; the line with the most waste is named."""
    one = result("one", 1.0, sectors=8, wavefronts=3)
    assert headlines.waste(one) == "2x sectors, 3x wavefronts"
    assert wasted(one.access or ()) == 4 * 1.75 + 2
    assert headlines.waste_line(one, "one") == "Most waste: one, 2x sectors, 3x wavefronts, line 7: y[i] = x[i];"
    assert excesses(result("fine", 1.0).access or ()) == []
    assert headlines.waste_line(result("fine", 1.0), "fine") == ""


def test_columns_that_say_nothing_are_left_out() -> None:
    """Hazards, verification and shared memory have a column only if some kernel has a value there."""
    verified = Verification(0, None, 0.0, 0.0, ("simulated",))
    right = [result("a", 1.0, verification=verified), result("b", 2.0, verification=verified)]
    assert not {"hazards", "verified", "shared\nwavefronts"} & {c.heading for c in table.bounded_columns(right)}
    race = Hazard("race", 7, "", (0, 0, 0), (0, 0, 0), 1, "two threads")
    other = [*right, result("c", 1.0, wavefronts=2, hazards=(race,), status="wrong")]
    assert {"hazards", "verified", "shared\nwavefronts"} <= {c.heading for c in table.bounded_columns(other)}
    skipped = replace(right[0], status="skipped", limits=None)
    (at_least,) = (column for column in table.bounded_columns(right) if column.heading == "at least")
    unpriced = result("c", None)
    assert [at_least.text(one) for one in (right[0], skipped, unpriced)] == ["1.00 µs", "skipped", "not priced"]


@pytest.mark.parametrize(
    ("given", "choice", "title"),
    [
        (None, Choice("sim"), "H100 80GB HBM3 (measured)"),
        ("none", Choice("sim"), None),
        ("none", Choice("cuda"), None),
        (None, Choice("cuda"), None),
        (None, Choice("sim", architecture="sm_90a"), "H100 80GB HBM3 (measured)"),
        (None, Choice("sim", architecture="sm_80"), None),
        ("a100", Choice("sim", architecture="sm_80"), "A100-SXM4-80GB (datasheet)"),
    ],
)
def test_the_default_card(given: str | None, choice: Choice, title: str | None) -> None:
    """The simulator's counts are priced on an H100 if sm_90 code ran, on the card that --on names, or on no card."""
    cards = pricing.cards_of_one({"card": given, "limits": False}, choice)
    assert [card.title for card in cards] == ([title] if title else [])
    assert all(card.chosen_by_user == (given is not None) for card in cards)


@pytest.mark.slow
@needs_compiler
def test_the_ladder_on_the_default_card(cudabench: Runner) -> None:
    """The first line names the card; bounds and waste come first; lowest bound, most waste, a command and changed
    constants follow. The results file has the same, and says that the card is the default."""
    ran = cudabench(*LADDER, "-k", "naive-row", "-k", "smem", "-k", "smem-pad", "--json", "r.json")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "H100 80GB HBM3 (measured)" in lines[0]
    assert ran.out.count("H100") == 1
    assert "fastest" not in ran.out
    assert re.split(r"\s{2,}", lines[4].strip())[:5] == ["id", "kernel", "at least", "held by", "waste"]
    assert lines[8].endswith("Counts: per request (ideal); instructions of the machine code.")
    assert lines[9] == "Held by the launch: it takes longer than any bound on the work."
    assert sum(line.startswith("Lowest bound, ") for line in lines) == 1
    (waste,) = (line for line in lines if line.startswith("Most waste: "))
    assert waste.startswith("Most waste: naive-row, 4.5x sectors, line ")
    assert "Different from the source: IPAD=4, not 1 (smem-pad)." in lines
    (more,) = (line for line in lines if line.startswith("More: "))
    assert cudabench(*shlex.split(more)[2:]).code == 0
    document = json.loads(Path("r.json").read_text())
    assert document["settings"]["on"]["default"] is True
    assert {one["limits_on"] for one in document["results"]} == {"H100 80GB HBM3 (measured)"}
    assert [one["chosen"] for one in document["results"]] == [{}, {}, {"IPAD": "4"}]
    assert all(one["time"] is None and one["bandwidth_gbps"] is None for one in document["results"])


@pytest.mark.slow
@needs_compiler
def test_counts_alone(cudabench: Runner) -> None:
    """--on none gives no lower bound; counts per request stand beside their ideal; a constant from -D is not listed as
    chosen."""
    ran = cudabench(*LADDER, "-k", "smem-pad", "--on", "none", "-D", "IPAD=2", "--json", "r.json")
    assert ran.code == 0
    assert "at least" not in ran.out
    assert "Sectors and wavefronts are per request" in ran.out
    assert "Other than" not in ran.out
    document = json.loads(Path("r.json").read_text())
    assert "on" not in document["settings"]
    assert [(one["limits"], one["chosen"]) for one in document["results"]] == [(None, {})]


@needs_compiler
def test_a_kernel_without_a_price(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that cannot be priced says so in its row and keeps its counts; the other rows are complete."""
    priced = simulated_run.limits_by_card

    def by_card(device: Any, case: Any, *rest: Any) -> Any:
        if case.kernel == "smem":
            raise CudabenchError("no such code")
        return priced(device, case, *rest)

    monkeypatch.setattr(simulated_run, "limits_by_card", by_card)
    ran = cudabench(*LADDER, "-k", "smem", "-k", "smem-pad")
    assert ran.code == 0
    rows = {line.split()[1]: line for line in ran.out.splitlines() if line.strip()[:1].isdigit()}
    assert "not priced" in rows["smem"]
    assert "4.5 (1)" in rows["smem"]
    assert " µs " in rows["smem-pad"]


@pytest.mark.slow
@pytest.mark.machine_code
@needs_compiler
def test_a_sweep_does_not_prefer_waste(cudabench: Runner) -> None:
    """Among equal lower bounds, a sweep prefers padding without bank conflicts to padding with 4.5 times the
    wavefronts."""
    ran = cudabench(
        "sweep", "transpose", "-k", "smem-pad", "-b", 32, 8, "-D", "IPAD=0,1,4", "--size", 64, 64, "-d", "sim"
    )
    assert ran.code == 0
    assert "Best: IPAD=4, at least " in ran.out
    worst, default = (line for line in ran.out.splitlines() if "4.5x wavefronts" in line)
    assert worst.split()[0] == "0"
    assert default.startswith("The default block 32 x 8: ")


@pytest.mark.slow
@needs_compiler
def test_kernels_of_a_file(cudabench: Runner, tmp_path: Path) -> None:
    """Kernels of a file get the same table, and the command below it explains the kernel with the most waste."""
    (tmp_path / "even.cu").write_text(KERNEL)
    ran = cudabench("run", *RUN)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "Most waste: even, 2x sectors, line 5: if (i < n) y[i] = x[i];" in lines
    (more,) = (line for line in lines if line.startswith("More: "))
    explained = cudabench(*shlex.split(more)[2:])
    assert explained.code == 0
    assert explained.out.strip().splitlines()[0].startswith("run even, ")
    assert explained.out.strip().splitlines()[1].startswith("line 5: ")  # the advice comes before the explanation
