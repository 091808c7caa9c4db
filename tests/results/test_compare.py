"""Comparing results files: reading, verdicts and their properties, exit codes, and the output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.cli.arguments import percentage
from cudabench.errors import CudabenchError, UsageError
from cudabench.records import file as results
from cudabench.records.file import ResultsFile
from cudabench.records.results import Access, DeviceInfo, Hazard, MachineCode, Result
from cudabench.results import compare, ratio, stats
from tests.conftest import Ran, on_cards

DATA = Path(__file__).parents[1] / "data"
RECORDED = results.load(DATA / "h200.json")
Runner = Callable[..., Ran]
Change = Callable[[Result], Result]


def slowed(factor: float) -> Change:
    """Return a change that multiplies all samples of a result by a factor."""

    def change(result: Result) -> Result:
        assert result.time is not None
        assert result.bandwidth_gbps is not None
        time = stats.summarize([sample * factor for sample in result.time.samples_s], result.time.cache)
        return replace(result, time=time, bandwidth_gbps=result.bandwidth_gbps / factor)

    return change


def changed(file: ResultsFile = RECORDED, **changes: Change) -> ResultsFile:
    """Return a file with changed kernels; keywords are kernel names with _ for -."""
    return replace(
        file, results=[changes.get(r.kernel.replace("-", "_"), lambda result: result)(r) for r in file.results]
    )


def wrong(result: Result) -> Result:
    """Return a result with status wrong."""
    return replace(result, status="wrong", reason="3 wrong elements", time=None, bandwidth_gbps=None)


def failed(result: Result) -> Result:
    """Return a result with status failed."""
    return replace(result, status="failed", reason="an illegal address", time=None, bandwidth_gbps=None)


def simulated(**counts: int) -> ResultsFile:
    """Return a simulator's results file with one kernel and these counts."""
    have = {"sectors": 1024, "wavefronts": 256, "instructions": 5000, "hazards": 0} | counts
    access = (
        Access(12, "out[i] = in[i];", "global", "load", 4, 128, have["sectors"], 512),
        Access(13, "tile[j]", "shared", "load", 4, 128, None, None, have["wavefronts"], 128),
    )
    hazard = Hazard("race", 20, "tile[k]", (0, 0, 0), (1, 0, 0), have["hazards"], "threads 0 and 1 race on tile[0]")
    return ResultsFile(
        settings={},
        tool={},
        host={},
        devices=[DeviceInfo("Simulator of sm_90", "sim", "9.0")],
        results=[
            replace(
                RECORDED.results[0],
                device="sim",
                time=None,
                bandwidth_gbps=None,
                copy_gbps=None,
                access=access,
                hazards=(hazard,) if have["hazards"] else (),
                instructions=have["instructions"],
            )
        ],
    )


@pytest.fixture
def compared(cudabench: Runner, tmp_path: Path) -> Callable[..., Ran]:
    """Write files and run `cudabench compare` on them."""

    def run(*files: ResultsFile, options: str = "") -> Ran:
        names = []
        for at, file in enumerate(files):
            names.append(f"{'base' if at == 0 else f'new{at}'}.json")
            (tmp_path / names[-1]).write_text(file.text())
        return cudabench("compare", *names, *options.split())

    return run


def rows(comparison: compare.Comparison) -> dict[str, compare.Row]:
    """Return the rows by kernel."""
    return {row.key.kernel: row for row in comparison.rows}


# Reading -------------------------------------------------------------------------------------------------------------


def test_round_trip() -> None:
    """Reading a written file gives the same results."""
    assert results.parse(RECORDED.text(), "x") == RECORDED
    assert results.parse(simulated(hazards=2).text(), "x").results == simulated(hazards=2).results


def test_unknown_keys_are_ignored_and_missing_ones_empty() -> None:
    """The reader ignores unknown keys and fills missing ones; only operation, kernel and status are required."""
    document = {
        "schema": "cudabench/0",
        "results": [{"operation": "transpose", "kernel": "smem", "status": "ok", "later": {"x": 1}}],
    }
    (result,) = results.parse(json.dumps(document), "x").results
    assert (result.kernel, result.block, result.time, dict(result.size)) == ("smem", (0, 0, 0), None, {})


def test_results_of_own_kernels() -> None:
    """The size of a user's kernel is its scalar arguments, shown with their names."""
    own = replace(RECORDED.results[0], operation="run", size={"n": 4096, "a": 2.5})
    file = results.parse(replace(RECORDED, results=[own]).text(), "x")
    assert file.results == [own]
    (row,) = compare.compare(file, file).rows
    assert compare.size_text(row.key) == "n=4096, a=2.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x is empty"),
        ("hello", "x is not JSON (line 1"),
        ("[1, 2]", 'x is not a cudabench results file: it lacks "schema"'),
        ('{"a": 1}', 'x is not a cudabench results file: it lacks "schema"'),
        ('{"schema": "nvbench/1", "results": []}', "its schema is 'nvbench/1', not 'cudabench/1'"),
        ('{"schema": "cudabench/2", "results": []}', "x has schema cudabench/2; cudabench "),
        ('{"schema": "cudabench/1"}', 'it lacks the list "results"'),
        ('{"schema": "cudabench/1", "results": [3]}', "results[0] is 3, not an object"),
        ('{"schema": "cudabench/1", "results": [{"operation": "t", "status": "ok"}]}', 'results[0] lacks "kernel"'),
        (
            '{"schema": "cudabench/1", "results": [{"operation": "t", "kernel": "k", "status": "fine"}]}',
            'results[0].status is "fine", not one of ok, wrong, failed, skipped',
        ),
        (
            '{"schema": "cudabench/1", "results": [{"operation": "t", "kernel": "k", "status": "ok", '
            '"time": {"median_s": "fast"}}]}',
            'results[0].time.median_s is "fast", not a number',
        ),
    ],
)
def test_what_is_no_results_file(text: str, message: str) -> None:
    """Each invalid file is refused with one message that says what is wrong."""
    with pytest.raises(CudabenchError) as caught:
        results.parse(text, "x")
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


def test_newer_schema_names_both() -> None:
    """The error for a newer schema names that schema and the newest readable one."""
    with pytest.raises(CudabenchError, match=r"schema cudabench/7; .* reads up to cudabench/1: upgrade cudabench\."):
        results.parse('{"schema": "cudabench/7"}', "x")


TEXT = RECORDED.text()


@given(st.integers(1, len(TEXT) - 3))
@settings(max_examples=60, deadline=None)
def test_every_cut_is_found(length: int) -> None:
    """A file that is cut off at any byte is refused."""
    with pytest.raises(CudabenchError, match=r"cut off|not JSON"):
        results.parse(TEXT[:length], "x")


# Ratios --------------------------------------------------------------------------------------------------------------


levels = st.integers(0, 2**31)


def run_of(seed: int, level: float, noise: float = 0.01, n: int = 200) -> Any:
    """Return a timing with samples of a seeded normal distribution."""
    rng = np.random.default_rng(seed)
    return stats.summarize((level * (1 + noise * rng.standard_normal(n))).tolist(), "cold")


@given(levels, st.floats(0.5, 2))
@settings(max_examples=30, deadline=None)
def test_swapping_inverts(seed: int, level: float) -> None:
    """Swapping base and new inverts the ratio and its interval."""
    a, b = run_of(seed, 1e-4), run_of(seed + 1, level * 1e-4)
    there, back = ratio.time_ratio(a, b), ratio.time_ratio(b, a)
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert there.high * back.low == pytest.approx(1)


@given(levels, st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_length_does_not_matter(seed: int, factor: float) -> None:
    """Scaling all times by one factor keeps the ratio, and nearly the interval, for times from a millisecond on."""
    a, b = run_of(seed, 1.0), run_of(seed + 1, 1.1)
    scaled = [stats.summarize([s * factor for s in t.samples_s], "cold") for t in (a, b)]
    one, other = ratio.time_ratio(a, b), ratio.time_ratio(*scaled)
    assert other.value == pytest.approx(one.value)
    assert (other.low, other.high) == pytest.approx((one.low, one.high), rel=2e-3)


@given(levels, st.floats(0, 0.2), st.integers(8, 100))
@settings(max_examples=40, deadline=None)
def test_interval_holds_ratio_and_run_to_run(seed: int, noise: float, n: int) -> None:
    """The interval contains the ratio, and is at least as wide as the difference between two runs."""
    found = ratio.time_ratio(run_of(seed, 1.0, noise, n), run_of(seed + 1, 1.0, noise, n))
    assert found.low <= found.value / (1 + ratio.RUN_TO_RUN) * (1 + 1e-9)
    assert found.high >= found.value * (1 + ratio.RUN_TO_RUN) * (1 - 1e-9)


@pytest.mark.slow
@given(levels, st.floats(1e-6, 2e-5))
@settings(max_examples=30, deadline=None)
def test_short_times_are_known_less(seed: int, level: float) -> None:
    """A shorter kernel has a wider interval, because two runs differ by a fixed time as well as by a fraction."""
    found, longer = (
        ratio.time_ratio(run_of(seed, each, 0.001), run_of(seed + 1, each, 0.001)) for each in (level, 10 * level)
    )
    assert longer.low > found.low
    assert longer.high < found.high
    assert found.high > found.value * (1 + 0.9 * ratio.RUN_TO_RUN_S / level)


def test_repeatable() -> None:
    """The same files give the same interval every time."""
    a, b = run_of(1, 1.0), run_of(2, 1.0)
    assert ratio.time_ratio(a, b) == ratio.time_ratio(a, b)


def test_drift_widens_the_interval() -> None:
    """Samples that drift give a wider interval than the same samples in random order."""
    rng = np.random.default_rng(0)
    drifting = np.linspace(0.9, 1.1, 400) + 0.001 * rng.standard_normal(400)
    shuffled = rng.permutation(drifting)
    still = run_of(3, 1.0)
    wide, narrow = (
        ratio.time_ratio(still, stats.summarize(samples.tolist(), "cold"), run_to_run=0.0)
        for samples in (drifting, shuffled)
    )
    assert wide.high / wide.low > narrow.high / narrow.low


def test_very_many_samples() -> None:
    """Runs of 100 000 samples can be compared."""
    found = ratio.time_ratio(run_of(1, 1.0, n=100_000), run_of(2, 1.05, n=100_000))
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(1.05, rel=1e-3)


def test_resolution_counts() -> None:
    """A kernel of 40 clock ticks is not called slower for one tick."""
    tick = 32e-9
    a = stats.summarize([40 * tick] * 50 + [41 * tick] * 3, "cold")
    b = stats.summarize([41 * tick] * 50 + [42 * tick] * 3, "cold")
    assert compare.interval_verdict(ratio.time_ratio(a, b), 0.05) == "unclear"


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.001, 1.2, "slower"),
        (0.8, 0.999, "faster"),
        (0.98, 1.02, "same"),
        (0.98, 1.06, "unclear"),
        (0.9, 1.01, "unclear"),
        (1.0, 1.02, "same"),
        (1.0, 1.5, "unclear"),
        (0.7, 1.0, "unclear"),
    ],
)
def test_verdicts(low: float, high: float, word: str) -> None:
    """An interval that excludes 1 is a change, one within the margin around 1 is the same, and any other is unclear."""
    assert compare.interval_verdict(ratio.Ratio((low * high) ** 0.5, low, high), 0.03) == word


# Matching ------------------------------------------------------------------------------------------------------------


def test_same_file_is_same() -> None:
    """A file compared with itself is the same in every row, with ratio 1."""
    comparison = compare.compare(RECORDED, RECORDED)
    assert {row.verdict for row in comparison.rows} == {"same"}
    assert {row.ratio.value for row in comparison.rows if row.ratio} == {1.0}
    assert comparison.changed == ()


def test_slower_and_faster() -> None:
    """A slowed kernel gets the verdict slower, a sped-up kernel faster, and the others same."""
    found = rows(compare.compare(RECORDED, changed(smem=slowed(1.06), vector=slowed(0.9))))
    assert found["smem"].verdict == "slower"
    assert found["smem"].ratio is not None
    assert found["smem"].ratio.value == pytest.approx(1.06)
    assert found["vector"].verdict == "faster"
    assert found["naive-row"].verdict == "same"


def test_missing_and_new() -> None:
    """Kernels in only one file are listed as new or missing; they fail only with --strict."""
    base = replace(RECORDED, results=RECORDED.results[1:])
    new = replace(RECORDED, results=RECORDED.results[:-1])
    comparison = compare.compare(base, new)
    assert [r.key.kernel for r in comparison.rows if r.verdict == "new"] == ["copy-row"]
    assert [r.key.kernel for r in comparison.rows if r.verdict == "missing"] == ["vector"]
    assert compare.failures(comparison, 0.05) == []
    assert [f.code for f in compare.failures(comparison, 0.05, strict=True)] == [4]


def test_another_block_is_another_measurement() -> None:
    """A kernel with another block is not compared with it."""
    new = changed(smem=lambda r: replace(r, block=(16, 16, 1)))
    found = [row.verdict for row in compare.compare(RECORDED, new).rows if row.key.kernel == "smem"]
    assert found == ["new", "missing"]


def test_skipped_is_not_measured() -> None:
    """A skipped kernel counts as missing, not as failed."""
    new = changed(smem=lambda r: replace(r, status="skipped", block=(0, 0, 0), time=None))
    assert rows(compare.compare(RECORDED, new))["smem"].verdict == "missing"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: replace(r, operation="matmul"), "the base has the operation transpose, the new one matmul"),
        (lambda r: replace(r, size={"rows": 1, "cols": 2}), "the base has the size 4096 x 4096, the new one 1 x 2"),
        (lambda r: replace(r, dtype="int8"), "the base has the dtype float32, the new one int8"),
        (lambda r: replace(r, kernel="mine"), "the new one mine"),
        (lambda r: replace(r, block=(8, 8, 1)), "the base has the block 32 x 8, the new one 8 x 8"),
    ],
)
def test_nothing_in_common(change: Change, message: str) -> None:
    """Files without a common measurement are refused; the message names the first property that always differs."""
    with pytest.raises(UsageError, match=message):
        compare.compare(RECORDED, replace(RECORDED, results=[change(r) for r in RECORDED.results]))


def test_gpu_and_simulator_have_nothing_in_common() -> None:
    """A file of a GPU is not compared with one of the simulator."""
    with pytest.raises(UsageError, match="base ran on a GPU, the new one in the simulator"):
        compare.compare(RECORDED, simulated())


def test_same_gpu_by_uuid_then_name() -> None:
    """Two devices are the same GPU by UUID, or by name if a UUID is missing; same_model compares names only."""
    a = DeviceInfo("H200", "cuda", "9.0", uuid="GPU-1")
    assert compare.same_gpu(a, a)
    assert not compare.same_gpu(a, replace(a, uuid="GPU-2"))
    assert compare.same_gpu(a, replace(a, uuid="GPU-2"), same_model=True)
    assert compare.same_gpu(a, replace(a, uuid=None))
    assert not compare.same_gpu(a, replace(a, uuid=None, name="A100"))


def test_other_gpu_has_no_verdict() -> None:
    """Results of another GPU are shown, and never fail."""
    slow = changed(**{r.kernel.replace("-", "_"): slowed(3) for r in RECORDED.results})
    assert RECORDED.device is not None
    other = replace(slow, devices=[replace(RECORDED.device, name="A100", uuid="GPU-2")])
    comparison = compare.compare(RECORDED, other, threshold=0.05)
    assert comparison.scope == "hardware"
    assert {row.verdict for row in comparison.rows} == {"shown"}
    assert compare.failures(comparison, 0.05, strict=True) == []


def test_noisier_machines_still_have_sames() -> None:
    """`same` is possible for any allowed noise, because its margin grows with the noise."""
    for noise in (0.0, 0.015, 0.05):
        comparison = compare.compare(RECORDED, RECORDED, run_to_run=noise)
        assert {row.verdict for row in comparison.rows} == {"same"}


def test_few_samples_are_unclear() -> None:
    """Too few samples give the verdict unclear."""

    def few(result: Result) -> Result:
        assert result.time is not None
        return replace(result, time=stats.summarize([s * 2 for s in result.time.samples_s[:5]], "cold"))

    row = rows(compare.compare(RECORDED, changed(smem=few)))["smem"]
    assert (row.verdict, row.reason) == ("unclear", "5 samples, at least 8 are needed")


def test_cold_and_hot_are_unclear() -> None:
    """Cold against hot L2 cache gives the verdict unclear."""

    def hot(result: Result) -> Result:
        assert result.time is not None
        return replace(result, time=replace(result.time, cache="hot"))

    row = rows(compare.compare(RECORDED, changed(smem=hot)))["smem"]
    assert (row.verdict, row.reason) == ("unclear", "cold against hot L2")


def test_another_option_is_another_problem() -> None:
    """Blurs with different radii are unclear, because the problem differs; a different output file does not matter."""

    def with_options(**options: object) -> ResultsFile:
        return replace(RECORDED, settings={**RECORDED.settings, "options": options})

    comparison = compare.compare(with_options(radius=2), with_options(radius=5), threshold=0.0)
    assert {(row.verdict, row.reason) for row in comparison.rows} == {
        ("unclear", "another problem: radius=2 -> radius=5")
    }
    saved = compare.compare(with_options(radius=2, save="a.png"), with_options(radius=2, save="b.png"))
    assert {row.verdict for row in saved.rows} == {"same"}


def test_a_slower_card_is_not_a_slower_kernel() -> None:
    """If the copy of the same run slowed down as much as the kernel, the verdict is unclear."""

    def throttled(result: Result) -> Result:
        assert result.copy_gbps is not None
        return replace(slowed(1.08)(result), copy_gbps=result.copy_gbps / 1.08)

    row = rows(compare.compare(RECORDED, changed(smem=throttled), threshold=0.05))["smem"]
    assert (row.verdict, row.reason) == ("unclear", "the copy is 8.0% slower too: the card changed")


def test_a_short_copy_excuses_nothing() -> None:
    """A copy of a few microseconds varies too much to show that the GPU changed."""

    def with_short_copy(result: Result) -> Result:
        assert result.bytes is not None
        return replace(result, copy_gbps=result.bytes / 4e-6 / 1e9)

    def throttled(result: Result) -> Result:
        assert result.bytes is not None
        return replace(slowed(1.08)(result), copy_gbps=result.bytes / 4.32e-6 / 1e9)

    row = rows(compare.compare(changed(smem=with_short_copy), changed(smem=throttled), threshold=0.05))["smem"]
    assert row.verdict == "slower"


def test_short_kernels_say_why_they_are_unclear() -> None:
    """The reason for an unclear short kernel is the fixed difference between runs."""

    def short(result: Result) -> Result:
        return replace(result, time=run_of(1, 4e-6))

    row = rows(compare.compare(changed(smem=short), changed(smem=short), threshold=0.05))["smem"]
    assert row.verdict == "unclear"
    assert row.reason is not None
    assert "times this short differ by 0.25 µs from run to run" in row.reason


# Several cards of one host -------------------------------------------------------------------------------------------


def test_cards_survive_the_file(tmp_path: Path) -> None:
    """A file of several GPUs is read back with each result on its GPU."""
    on_cards(RECORDED, "GPU-a", "GPU-b").write(tmp_path / "all.json")
    file = results.load(tmp_path / "all.json")
    assert [device.uuid for device in file.devices] == ["GPU-a", "GPU-b"]
    owners = [file.device_of(result) for result in file.results]
    assert [owner.uuid for owner in owners if owner] == ["GPU-a"] * 6 + ["GPU-b"] * 6
    parts = file.by_device()
    assert [(part.device.uuid, len(part.results)) for part in parts if part.device] == [("GPU-a", 6), ("GPU-b", 6)]


def test_cards_match_by_uuid() -> None:
    """Each GPU is compared with the GPU of the same UUID, also if the host numbers them differently."""
    base = on_cards(RECORDED, "GPU-a", "GPU-b")
    new = on_cards(RECORDED, "GPU-b", "GPU-a")
    slow = [slowed(1.1)(r) if (r.kernel, r.device) == ("smem", "cuda:0") else r for r in new.results]
    comparison = compare.compare(base, replace(new, results=slow), threshold=0.05)
    assert comparison.scope == "gpu"
    assert [(row.key.card, row.key.kernel) for row in comparison.rows if row.verdict == "slower"] == [("GPU-b", "smem")]
    assert comparison.count("same") == 11
    (failure,) = compare.failures(comparison, 0.05)
    assert failure.message.startswith("smem (32 x 8) on GPU-b is 10.0% slower")


def test_several_files_of_cards(cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table of several files, a row is one GPU by UUID, independent of its number."""
    monkeypatch.chdir(tmp_path)
    for name, uuids in (("a", "bc"), ("b", "cb"), ("c", "cd")):
        on_cards(RECORDED, *(f"GPU-{uuid}" for uuid in uuids)).write(tmp_path / f"{name}.json")
    ran = cudabench("compare", "a.json", "b.json", "c.json")
    found = {line.split()[4]: line.count(" µs") for line in ran.out.splitlines() if line.startswith("smem ")}
    assert found == {"GPU-b": 2, "GPU-c": 3, "GPU-d": 1}


def test_one_card_of_several() -> None:
    """A run on one GPU is compared with that GPU's part of a run on all GPUs; the other GPU is missing."""
    assert RECORDED.device is not None
    one = replace(RECORDED.device, uuid="GPU-b", index=0)
    comparison = compare.compare(on_cards(RECORDED, "GPU-a", "GPU-b"), replace(RECORDED, devices=[one]))
    assert comparison.scope == "gpu"
    assert (comparison.count("same"), comparison.count("missing")) == (6, 6)


def test_other_cards_throughout() -> None:
    """Runs on two hosts without a common GPU are shown side by side; with same_model they are compared in order."""
    comparison = compare.compare(
        on_cards(RECORDED, "GPU-a", "GPU-b"), on_cards(RECORDED, "GPU-c", "GPU-d"), threshold=0.05
    )
    assert comparison.scope == "hardware"
    assert comparison.count("shown") == 12
    paired = compare.compare(
        on_cards(RECORDED, "GPU-a", "GPU-b"), on_cards(RECORDED, "GPU-c", "GPU-d"), same_model=True
    )
    assert (paired.scope, paired.count("same")) == ("gpu", 12)


def test_cards_are_shown(cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heading lists all GPUs."""
    on_cards(RECORDED, "GPU-a", "GPU-b").write(tmp_path / "all.json")
    monkeypatch.chdir(tmp_path)
    ran = cudabench("compare", "all.json", "all.json")
    assert ran.code == 0
    assert "cuda:0 NVIDIA H200 (GPU-a)" in ran.out
    assert "cuda:1 NVIDIA H200 (GPU-b)" in ran.out
    assert "12 compared: 12 same" in ran.out


def test_differences_are_named() -> None:
    """Different versions, drivers and settings are listed."""
    assert RECORDED.device is not None
    new = replace(
        RECORDED,
        tool={**RECORDED.tool, "nvcc": "13.1"},
        settings={**RECORDED.settings, "defines": {"IPAD": "2"}},
        devices=[replace(RECORDED.device, driver="590")],
    )
    assert compare.compare(RECORDED, new).changed == (
        "nvcc 13.0.88 -> 13.1",
        "driver 580.159.04 (CUDA 13.0) -> 590",
        "defines none -> IPAD=2",
    )


# What fails ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        (slowed(1.0), "--fail-on-regression 5%", 0),
        (slowed(1.03), "--fail-on-regression 5%", 0),
        (slowed(1.06), "--fail-on-regression 5%", 4),
        (slowed(1.06), "--fail-on-regression 10%", 0),
        (slowed(1.06), "", 0),
        (slowed(0.5), "--fail-on-regression 5% --strict", 0),
        (wrong, "", 3),
        (failed, "", 1),
    ],
)
def test_exit_codes(compared: Callable[..., Ran], change: Change, options: str, code: int) -> None:
    """A regression over the threshold gives exit code 4, a kernel that is now wrong 3, and one that now fails 1."""
    assert compared(RECORDED, changed(smem=change), options=options).code == code


def test_wrong_outweighs_slow(compared: Callable[..., Ran]) -> None:
    """With a wrong and a slower kernel, the exit code is 3 and the messages name both."""
    ran = compared(RECORDED, changed(smem=wrong, vector=slowed(1.2)), options="--fail-on-regression 5%")
    assert ran.code == 3
    assert "smem (32 x 8) is wrong and was right: 3 wrong elements." in ran.err
    assert "vector (32 x 8) is 20.0% slower" in ran.err
    assert "over --fail-on-regression 5%." in ran.err


def test_wrong_in_both_is_no_news(compared: Callable[..., Ran]) -> None:
    """A kernel that is wrong in both files does not fail; one that is right again is shown as mended."""
    both = changed(smem=wrong)
    assert compared(both, both).code == 0
    mended = compared(both, RECORDED)
    assert mended.code == 0
    assert "mended" in mended.out


def test_unclear_fails_only_strict(compared: Callable[..., Ran]) -> None:
    """A kernel with noisy samples is unclear: it passes, and fails with --strict."""
    rng = np.random.default_rng(0)

    def noisy(result: Result) -> Result:
        assert result.time is not None
        return replace(
            result,
            time=stats.summarize(
                [s * (1 + 0.3 * rng.standard_normal() ** 2) for s in result.time.samples_s[:40]], "cold"
            ),
        )

    base, new = changed(smem=noisy), changed(smem=noisy)
    assert compared(base, new, options="--fail-on-regression 5%").code == 0
    ran = compared(base, new, options="--fail-on-regression 5% --strict")
    assert ran.code == 4
    assert "smem (32 x 8) is unclear: a change of" in ran.err


@pytest.mark.parametrize(
    ("counts", "word", "code"),
    [
        ({}, "same", 0),
        ({"sectors": 1025}, "more", 4),
        ({"wavefronts": 300}, "more", 4),
        ({"instructions": 5001}, "more", 4),
        ({"sectors": 500}, "fewer", 0),
        ({"sectors": 500, "instructions": 6000}, "mixed", 4),
        ({"hazards": 2}, "WRONG", 3),
    ],
)
def test_simulator_compares_counts(compared: Callable[..., Ran], counts: dict[str, int], word: str, code: int) -> None:
    """Counts are exact: any count that grew fails a gate of 0%, and a new hazard is wrong."""
    ran = compared(simulated(), simulated(**counts), options="--fail-on-regression 0%")
    assert ran.code == code
    assert word in ran.out


@pytest.mark.parametrize(("sectors", "code"), [(1280, 0), (1281, 4)])
def test_counts_at_the_gate(compared: Callable[..., Ran], sectors: int, code: int) -> None:
    """A count that grew exactly by the allowed percentage passes; one more fails."""
    assert compared(simulated(), simulated(sectors=sectors), options="--fail-on-regression 25%").code == code


def test_the_worst_stands_first(compared: Callable[..., Ran]) -> None:
    """Kernels that got worse come first, then those that got better, then equal ones."""
    names = {"equal": 1024, "better": 500, "worse": 1100, "worst": 4000}

    def file(sectors: dict[str, int]) -> ResultsFile:
        results = [replace(simulated(sectors=n).results[0], kernel=name) for name, n in sectors.items()]
        return replace(simulated(), results=results)

    def shown(out: str) -> list[str]:
        """Return the kernels in the order in which the text has them first."""
        return list(dict.fromkeys(re.findall(rf"\b(?:{'|'.join(names)})\b(?= \(|\s+32|\s+\|)", out)))

    base, new = file(dict.fromkeys(names, 1024)), file(names)
    for options in ("", "--to markdown", "--to github", "--to junit"):
        assert shown(compared(base, new, options=options).out) == ["worst", "worse", "better", "equal"], options
    ran = compared(base, base, new)
    assert shown(ran.out) == ["worst", "worse", "better", "equal"]


def test_counts_without_a_device(compared: Callable[..., Ran]) -> None:
    """Simulator files without a device are compared by counts."""
    base, new = (replace(file, devices=[]) for file in (simulated(), simulated(sectors=2000)))
    ran = compared(base, new, options="--fail-on-regression 0%")
    assert ran.code == 4
    assert "global sectors 1 024 -> 2 000 (+95%)" in ran.out


def test_hazards_that_grow(compared: Callable[..., Ran]) -> None:
    """More hazards than in the base are a regression."""
    assert compared(simulated(hazards=2), simulated(hazards=3), options="--fail-on-regression 0%").code == 4
    assert compared(simulated(hazards=2), simulated(hazards=2), options="--fail-on-regression 0%").code == 0


# Real runs -----------------------------------------------------------------------------------------------------------

# Samples in nanoseconds of runs on H200s, minutes apart, one row per run: `benchmarks/verdicts.py excerpt`.
RUNS = np.load(DATA / "runs_h200.npz")
UNCHANGED = [name for name in RUNS.files if not name.startswith(("slowed", "chase")) or "-0/" in name]


def judged(base: str, new: str) -> Counter[str]:
    """Return the verdicts of all pairs of runs, and how many pairs fail `--fail-on-regression 5%`."""

    def files(name: str) -> list[ResultsFile]:
        timings = [stats.summarize((run * 1e-9).tolist(), "cold") for run in RUNS[name]]
        return [replace(RECORDED, results=[replace(RECORDED.results[0], time=time)]) for time in timings]

    pairs = combinations(files(base), 2) if base == new else product(files(base), files(new))
    found: Counter[str] = Counter()
    for before, after in pairs:
        comparison = compare.compare(before, after, threshold=0.05)
        found[comparison.rows[0].verdict] += 1
        found["exit 4"] += len(compare.failures(comparison, 0.05))
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged_kernels_are_not_called_changed(name: str) -> None:
    """Repeated runs of an unchanged kernel on one GPU are never called slower or faster."""
    found = judged(name, name)
    assert found.keys() <= {"same", "unclear", "exit 4"}
    assert found["exit 4"] == 0
    if RUNS[name].mean() > 10_000:  # shorter kernels may be unclear
        assert found["unclear"] == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kernel", ["slowed/stream", "slowed/arithmetic", "chase/chase"])
@pytest.mark.parametrize("percent", [3, 6, 12])
def test_slowed_kernels_are_called_slower(kernel: str, percent: int) -> None:
    """A kernel with 3, 6 or 12% more work is slower in every pair of runs, and fails a 5% gate if it is over 5%."""
    task, _, name = kernel.partition("/")
    found = judged(f"{task}-0/{name}", f"{task}-{percent}/{name}")
    assert found["slower"] == 400
    assert found["exit 4"] == (400 if percent > 5 else 0)


def test_samples_alone_would_call_noise_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the terms for run-to-run differences, over a quarter of the pairs of an unchanged kernel would be
    changes."""
    monkeypatch.setattr(ratio, "SPREAD_SHARE", 0.0)
    runs = [stats.summarize((run * 1e-9).tolist(), "cold") for run in RUNS["transpose-1024/vector"]]
    ratios = [ratio.time_ratio(a, b, run_to_run=0.0, run_to_run_s=0.0) for a, b in combinations(runs, 2)]
    called = sum(found.low > 1 or found.high < 1 for found in ratios)
    assert called > len(ratios) / 4


# The command ---------------------------------------------------------------------------------------------------------


def test_report(compared: Callable[..., Ran]) -> None:
    """The table has times, ratio, interval and verdict, and a summary line below."""
    ran = compared(RECORDED, changed(smem=slowed(1.06)))
    assert "NVIDIA H200" in ran.out
    line = next(line for line in ran.out.splitlines() if line.startswith("smem "))
    assert line.split()[:9] == ["smem", "32", "x", "8", "70.88", "µs", "75.13", "µs", "1.060"]
    assert line.rstrip().endswith("6.0% slower")
    assert "6 compared: 1 slower, 5 same; geometric mean of the ratios 1.010." in ran.out
    assert ran.err == ""


def test_hardware_table(compared: Callable[..., Ran]) -> None:
    """Two GPUs are shown with bandwidth, fractions of copy and peak, and the ratio of speeds."""
    assert RECORDED.device is not None
    other = changed(replace(RECORDED, devices=[replace(RECORDED.device, name="A100", uuid="GPU-2")]), smem=slowed(2))
    ran = compared(RECORDED, other, options="--fail-on-regression 5%")
    assert ran.code == 0
    assert "base GB/s  of copy  of peak  new GB/s  of copy  of peak  ratio" in ran.out
    line = next(line for line in ran.out.splitlines() if line.startswith("smem "))
    assert line.split()[4:] == ["1894", "50.8%", "39.3%", "946.8", "50.8%", "39.3%", "0.50"]
    assert "--fail-on-regression was not applied: the GPUs differ." in ran.err
    assert "NVIDIA H200 is 1.12 times as fast as A100, by the geometric mean of 6 kernels." in ran.out
    mixed = changed(other, naive_row=slowed(0.9))
    assert "A100 is ahead in naive-row (32 x 8)." in compared(RECORDED, mixed).out.replace("\n", " ")


def test_same_machine_code_is_named(compared: Callable[..., Ran]) -> None:
    """Kernels with the same machine code are listed; if such a kernel is slower, the output says that the code is not
    the cause."""

    def code(sha256: str) -> Change:
        return lambda result: replace(result, machine_code=MachineCode("sm_90", sha256))

    base = changed(naive_row=code("a"), smem=code("b"))
    slow = changed(naive_row=lambda r: code("a")(slowed(1.2)(r)), smem=code("c"))
    comparison = compare.compare(base, slow)
    assert {name: row.same_code for name, row in rows(comparison).items() if row.same_code is not None} == {
        "naive-row": True,
        "smem": False,
    }
    said = compared(base, slow).out
    assert "Same machine code in both: naive-row (32 x 8)." in said
    assert "So the code did not change naive-row (32 x 8)" in said
    assert "Same machine code" not in compared(RECORDED, slow).out
    assert "Machine code: it differs in every kernel." in compared(base, changed(naive_row=code("d"))).out


def test_several_files(compared: Callable[..., Ran]) -> None:
    """Several files give one table, each file compared with the first, with the total spread in the last column."""
    ran = compared(RECORDED, changed(smem=slowed(1.1)), changed(smem=slowed(0.9)), options="--fail-on-regression 5%")
    assert ran.code == 4
    assert "kernel           block       base                   new1                   new2" in ran.out
    line = next(line for line in ran.out.splitlines() if line.startswith("smem "))
    assert line.rstrip().endswith("77.97 µs 1.100 slower  63.79 µs 0.900 faster  22.2%")


def test_first_run_passes(compared: Callable[..., Ran], cudabench: Runner) -> None:
    """Without a baseline file the comparison passes and shows how to keep one, but a wrong result still fails."""
    compared(RECORDED, RECORDED)
    ran = cudabench("compare", "none.json", "new1.json", "--fail-on-regression", "5%", "--strict")
    assert ran.code == 0
    assert "First run: none.json does not exist" in ran.out
    assert "cp new1.json none.json" in ran.out
    compared(RECORDED, changed(smem=wrong))
    assert cudabench("compare", "none.json", "new1.json").code == 3
    missing = cudabench("compare", "bass.json", "new1.json", "--require-base")
    assert missing.code == 1
    assert missing.err == "Error: bass.json: no such file. Did you mean 'base.json'?\n"


def test_json(compared: Callable[..., Ran]) -> None:
    """--json - writes every row and every failure, and standard output has nothing else."""
    ran = compared(RECORDED, changed(smem=slowed(1.5)), options="--fail-on-regression 5% --json -")
    document = ran.json
    assert document["schema"] == "cudabench-comparison/1"
    assert document["exit_code"] == ran.code == 4
    row = next(r for r in document["comparisons"][0]["rows"] if r["kernel"] == "smem")
    assert row["verdict"] == "slower"
    assert row["ratio"] == pytest.approx(1.5)
    assert row["ratio_low"] < row["ratio"] < row["ratio_high"]
    assert [f["exit_code"] for f in document["failures"]] == [4]


def test_markdown(compared: Callable[..., Ran]) -> None:
    """With --markdown the tables have GitHub's format."""
    lines = compared(RECORDED, RECORDED, options="--markdown").out.splitlines()
    assert "| kernel | block | base | new | ratio | interval | verdict |" in lines
    at = lines.index("| :-- | :-- | --: | --: | --: | --: | :-- |")
    assert lines[at + 1].startswith("| copy-row | 32 x 8 | 57.28 µs |")


def test_quiet(compared: Callable[..., Ran]) -> None:
    """With -q only the failures are printed."""
    ran = compared(RECORDED, changed(smem=wrong), options="-q")
    assert (ran.code, ran.out) == (3, "")
    assert "smem (32 x 8) is wrong" in ran.err


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("not a file of ours", 1, "new.json is not JSON"),
        ('{"schema": "cudabench/99", "results": []}', 1, "new.json has schema cudabench/99"),
        (RECORDED.text()[:3000], 1, "new.json is cut off"),
        ('{"schema": "cudabench/1", "results": []}', 1, "new.json holds no results"),
        (simulated().text(), 2, "The files share no measurement"),
        (None, 1, "new.json: no such file."),
    ],
)
def test_bad_files(cudabench: Runner, tmp_path: Path, content: str | None, code: int, message: str) -> None:
    """Each bad file gives one message on standard error, and its exit code."""
    (tmp_path / "base.json").write_text(RECORDED.text())
    if content is not None:
        (tmp_path / "new.json").write_text(content)
    ran = cudabench("compare", "base.json", "new.json")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"Error: {message}")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("text", ["abc", "-5%", "%", "5 percent", "nan%", "inf%", "1e1%", "5%%", ""])
def test_no_percentage(compared: Callable[..., Ran], text: str, cudabench: Runner) -> None:
    """A wrong percentage is a usage error that shows the right spelling."""
    compared(RECORDED, RECORDED)
    ran = cudabench("compare", "base.json", "new1.json", f"--fail-on-regression={text}")
    assert ran.code == 2
    assert f"'{text}' is not a percentage: write it like 5%." in ran.err


@pytest.mark.parametrize(("text", "fraction"), [("5", 0.05), ("5%", 0.05), ("1", 0.01), ("0", 0), ("0.5%", 0.005)])
def test_percentage(text: str, fraction: float) -> None:
    """A number is a percentage, with or without the % sign."""
    assert percentage(text) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["0.05", ".5", "0.999"])
def test_percentage_or_fraction(compared: Callable[..., Ran], text: str, cudabench: Runner) -> None:
    """A bare number under 1 is ambiguous, so it is refused with both spellings."""
    compared(RECORDED, RECORDED)
    ran = cudabench("compare", "base.json", "new1.json", f"--fail-on-regression={text}")
    assert ran.code == 2
    assert f"'{text}' may be a percentage or a fraction: write {text}% or {float(text) * 100:g}%." in ran.err


def test_junit(compared: Callable[..., Ran], cudabench: Runner) -> None:
    """In --to junit, a regression and a wrong kernel are failed tests, and a missing kernel is skipped."""
    new = changed(smem=slowed(1.2), vector=wrong)
    dropped = replace(new, results=[r for r in new.results if r.kernel != "naive-row"])
    ran = compared(RECORDED, dropped, options="--fail-on-regression 5% --to junit")
    assert ran.code == 3
    (suite,) = ElementTree.fromstring(ran.out)
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "1")
    assert suite.get("tests") == str(len(RECORDED.results)) == str(len(suite.findall("testcase")))
    failures = {case.get("name"): failure for case in suite if (failure := case.find("failure")) is not None}
    assert {name: failure.get("type") for name, failure in failures.items()} == {
        "transpose smem 32x8 4096x4096 float32": "regression",
        "transpose vector 32x8 4096x4096 float32": "wrong",
    }
    assert "20.0% slower" in str(failures["transpose smem 32x8 4096x4096 float32"].text)
    (skipped,) = (case for case in suite if case.find("skipped") is not None)
    assert skipped.get("name") == "transpose naive-row 32x8 4096x4096 float32"
    assert "smem (32 x 8): slower, 70.88 µs -> " in str(suite.findtext("system-out"))
    assert suite.get("timestamp") == "1970-01-01T00:00:00"
    dated = replace(RECORDED, provenance={"utc": "2026-03-04T05:06:07+00:00"})
    (other,) = ElementTree.fromstring(compared(RECORDED, dated, options="--to junit").out)
    assert other.get("timestamp") == "2026-03-04T05:06:07"
    compared(RECORDED, dropped)
    # Into a file, with the same exit code; without a gate, a slower kernel passes.
    ran = cudabench("compare", "base.json", "new1.json", "--to", "junit", "-o", "c.xml")
    assert (ran.code, ran.out) == (3, "")
    (suite,) = ElementTree.parse("c.xml").getroot()
    assert suite.get("failures") == "1"


def test_junit_of_counts_and_of_several_files(compared: Callable[..., Ran]) -> None:
    """A count that grew is a failed test; each file has a separate suite; --strict fails for a missing kernel."""
    ran = compared(simulated(), simulated(sectors=2000), simulated(), options="--fail-on-regression 0% --to junit")
    assert ran.code == 4
    first, second = ElementTree.fromstring(ran.out)
    assert "base.json -> new1.json" in str(first.get("name"))
    assert [suite.get("failures") for suite in (first, second)] == ["1", "0"]
    assert "global sectors 1024 -> 2000" in str(first.find("testcase/failure").text)  # type: ignore[union-attr]
    dropped = replace(RECORDED, results=RECORDED.results[1:])
    (suite,) = ElementTree.fromstring(compared(RECORDED, dropped, options="--strict --to junit").out)
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "0")


def test_unverified_kernels_are_compared(compared: Callable[..., Ran]) -> None:
    """A kernel whose output was not verified is compared like others, and a line names it."""
    unverified = replace(simulated(), results=[replace(result, verification=None) for result in simulated().results])
    ran = compared(simulated(), unverified, options="--fail-on-regression 0%")
    assert (ran.code, "Unverified in new1.json: copy-row" in ran.out) == (0, True)
    assert "Unverified" not in compared(simulated(), simulated()).out


def test_github(
    compared: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cudabench: Runner
) -> None:
    """In --to github each failure is an error at its line, a tolerated slowdown is a warning, and the step summary gets
    the tables."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    (tmp_path / "summary.md").write_text("before\n")
    ran = compared(simulated(), simulated(wavefronts=300), options="--fail-on-regression 5% --to github -q")
    assert ran.code == 4
    assert ran.out == (
        "::error file=kernels_cu/transpose.cu,line=13,title=cudabench%3A regression::"
        "copy-row (32 x 8) takes more: shared wavefronts 256 -> 300, over --fail-on-regression 5%25\n"
    )
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("before\n")
    assert "| copy-row | 32 x 8 | more |" in summary
    assert "\x1b" not in summary
    passed = cudabench("compare", "base.json", "new1.json", "--to", "github")
    assert passed.code == 0
    assert "::warning file=kernels_cu/transpose.cu,line=13,title=cudabench%3A regression::copy-row" in passed.out
    assert "what changed" in passed.out  # the log has the table
    hazard = compared(simulated(), simulated(hazards=2), options="--to github -q")
    assert hazard.code == 3
    assert "line=20,title=cudabench%3A wrong::" in hazard.out
    slow = compared(RECORDED, changed(smem=slowed(1.2)), options="--fail-on-regression 5% --to github -o a.txt")
    assert (slow.code, slow.out) == (4, "")
    assert "20.0%25 slower" in Path("a.txt").read_text()


def test_annotations_are_the_only_commands(compared: Callable[..., Ran]) -> None:
    """Text from a results file cannot start a workflow command or end a property."""

    def hostile(result: Result) -> Result:
        source = "a,line=9::x.cu\n::set-output name=a::b"
        return replace(wrong(result), reason="bad\n::error::mine", source=source)

    ran = compared(RECORDED, changed(smem=hostile), options="--to github")
    commands = [line for line in ran.out.splitlines() if line.lstrip().startswith("::")]
    assert len(commands) == 1
    assert "file=a%2Cline=9%3A%3Ax.cu%0A%3A%3Aset-output name=a%3A%3Ab,line=1," in commands[0]
    assert "bad%0A::error::mine" in commands[0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--markdown --to junit", "--markdown is --to markdown, and --to junit is given"),
        ("--to junit --json -", "both write to standard output"),
        ("--to xml", "'xml' is not one of"),
        ("--to markdown -o nowhere/x.md", "the folder nowhere does not exist"),
    ],
)
def test_targets_that_cannot_be(compared: Callable[..., Ran], options: str, text: str) -> None:
    """Contradictory options and missing folders are refused before anything is written."""
    ran = compared(RECORDED, RECORDED, options=options)
    assert ran.code in (1, 2)
    assert ran.out == ""
    assert text in ran.err


def test_markdown_into_a_file(compared: Callable[..., Ran]) -> None:
    """--to markdown equals --markdown, and -o writes it to a file."""
    shown = compared(RECORDED, RECORDED, options="--markdown").out
    assert compared(RECORDED, RECORDED, options="--to markdown").out == shown
    assert compared(RECORDED, RECORDED, options="--to markdown -o t.md").out == ""
    assert Path("t.md").read_text() == shown


def test_one_file_is_a_usage_error(compared: Callable[..., Ran]) -> None:
    """A single file gives exit code 2."""
    assert compared(RECORDED).code == 2


def test_unwritable_json(compared: Callable[..., Ran]) -> None:
    """--json with a missing folder is refused before the comparison."""
    ran = compared(RECORDED, RECORDED, options="--json nowhere/x.json")
    assert ran.code == 1
    assert "the folder nowhere does not exist" in ran.err
    assert ran.out == ""


def test_noise_default_is_the_documented_one(compared: Callable[..., Ran]) -> None:
    """The command's default noise equals compare's constant, which the help text cannot import."""
    from cudabench.cli.compare import command

    default = next(p for p in command.params if p.name == "noise").default
    assert percentage(default) == ratio.RUN_TO_RUN


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["compare", "export", "plot"])
def test_help_is_light(name: str) -> None:
    """--help does not import NumPy, PyCUDA, the simulator, rich or matplotlib."""
    code = (
        f"import sys; from cudabench import cli; cli.invoke([{name!r}, '--help']);"
        "bad = [m for m in ('numpy', 'pycuda', 'cudabench.simulator', 'rich', 'matplotlib') if m in sys.modules];"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert f"Usage: cudabench {name}" in done.stdout


def test_changed_requests_of_a_profile_are_named_by_kernel_and_field() -> None:
    """Of a profile's requests, the comparison names the kernel and the field that changed, not whole records."""
    requests = [{"kernels": ["f"], "grid": "4", "block": "64"}, {"kernels": ["g"], "grid": "8", "block": "64"}]
    base = ResultsFile({"requests": requests}, {}, {})
    new = ResultsFile({"requests": [requests[0] | {"block": "128"}, {"kernels": ["h"], "grid": "8"}]}, {}, {})
    assert compare.differences(base, new) == ("f: block 64 -> 128",)
