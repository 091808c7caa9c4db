"""Several cards at once: known cards, peaks that follow from their datasheets, and the table of --on with a list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudabench.cards import load as cards
from cudabench.cards import selection
from cudabench.cards.datasheets import SHEETS
from cudabench.cards.load import load_file_or_card
from cudabench.cli import pricing
from cudabench.compile import compiler
from cudabench.errors import UsageError
from cudabench.records.file import is_on_another_card
from tests.ladders import needs_compiler

Runner = Callable[..., Any]

# TFLOP/s of float32 and GB/s of memory, from NVIDIA's datasheets and product pages.
PUBLISHED = {
    "a100": (19.5, 2039), "l4": (30.3, 300), "t4": (8.1, 320), "rtx4090": (82.6, 1008), "rtx5090": (104.8, 1792),
    "b200": (75, 8000), "gh200": (67, 4000), "l40s": (91.6, 864), "l40": (90.5, 864), "a40": (37.4, 696),
    "a30": (10.3, 933), "a10": (31.2, 600), "a6000": (38.7, 768), "rtx6000ada": (91.1, 960), "rtx5080": (56.3, 960),
    "rtx5070ti": (43.9, 896), "rtx5070": (30.9, 672), "rtx4080": (48.7, 716.8), "rtx4070ti": (40.1, 504),
    "rtx4070": (29.1, 504), "rtx4060": (15.1, 272), "rtx3090": (35.6, 936), "rtx3080": (29.8, 760),
    "rtx3070": (20.3, 448), "rtx3060": (12.7, 360), "rtx2080ti": (13.4, 616), "orin": (5.3, 204.8),
}  # fmt: skip
# TFLOP/s of dense float16 products summed in float32, for one board of each architecture.
TENSOR = {"t4": 65, "a100": 312, "rtx3090": 71, "a40": 149.7, "rtx4090": 165.2, "l4": 121, "rtx5090": 209.5}

SAXPY = """
__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
SHARED = """
__global__ void turn(float *x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[(threadIdx.x + 1) % 32];
}
"""
LAUNCH = (
    "--grid", "cdiv(n,256)", "--block", 256, "--arg", "n=65536", "--arg", "a=2.5", "--arg", "x=float32[n]:random",
    "--arg", "y=float32[n]:random", "--expect", "y=a*x+y0", "--no-cpu",
)  # fmt: skip


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    """Return a user's kernel."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    return tmp_path / "saxpy.cu"


def rows(out: str) -> dict[str, list[str]]:
    """Return the words of each row in the table of cards, keyed by card."""
    lines = iter(out.splitlines())
    next(line for line in lines if line.startswith("card "))
    found: dict[str, list[str]] = {}
    for line in lines:
        if not line.strip():
            break
        found[line.split()[0]] = line.split()
    return found


# Known cards ---------------------------------------------------------------------------------------------------------


def test_every_sheet_is_held_against_what_is_published() -> None:
    """Every card with a datasheet has a published peak in the table above, and card names are unique."""
    assert set(PUBLISHED) == set(SHEETS)
    assert len({card.device.name for card in map(cards.load_card, cards.NAMES)}) == len(cards.NAMES)


@pytest.mark.parametrize("name", SHEETS)
def test_what_follows_from_a_sheet(name: str) -> None:
    """The peaks that follow from SMs, clock, bus and rates are within 2% of the published peaks."""
    card, (tflops, gbps) = cards.load_card(name), PUBLISHED[name]
    assert (card.value("fp32") or 0) / 1e12 == pytest.approx(tflops, rel=0.02)
    assert card.device.peak_gbps == pytest.approx(gbps, rel=0.02)
    assert card.value("memory-read") == card.device.peak_gbps
    if name in TENSOR:
        assert (card.value("tensor-fp16") or 0) / 1e12 == pytest.approx(TENSOR[name], rel=0.02)


@pytest.mark.parametrize("word", ["RTX 4090", "rtx-4090", "4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090"])
def test_spellings_of_a_card(word: str) -> None:
    """Every spelling of a card's name loads the same card."""
    assert cards.load_card(word).key == "rtx4090"


def test_all_and_lists() -> None:
    """`all` selects every card once, and a list keeps its order."""
    assert [card.key for card in selection.cards_of_option("all")] == list(cards.NAMES)
    assert [card.key for card in selection.cards_of_option("t4, H100")] == ["t4", "h100"]
    assert not selection.names_several("h100")
    cards_of_two = selection.cards_of_option("t4,h100")
    assert [card.per_hour for card in selection.with_prices(cards_of_two, "H100=2.5")] == [None, 2.5]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "h100,,t4"), "nothing between two commas"),
        (("--on", "h100,H100"), "names h100 twice"),
        (("--on", "h100,rtx409O"), "Did you mean 'rtx4090'"),
        (("--on", "h100,all"), "write --on all"),
        (("--on", "none,h100"), "write --on none"),
        (("--on", "h100", "--on", "t4"), "--on h100,t4"),
        (("--on", "h100,t4", "--price", "a100=2"), "not one of the cards of --on (h100, t4)"),
        (("--on", "h100,t4", "--price", "h100=-1"), "0 or more"),
        (("--on", "h100,t4", "--price", "h100=nan"), "0 or more"),
        (("--on", "h100,t4", "--price", "h100=x"), "x is not a number"),
        (("--on", "h100,t4", "--price", "h100"), "not a card with its price"),
        (("--on", "h100,t4", "--price", "h100=1,H100=2"), "two prices of h100"),
        (("--price", "h100=1"), "as in --on h100,l4"),
        (("--on", "h100,t4", "-d", "sim:sm_90"), "contradict each other"),
        (("--on", "h100,t4", "-d", "cuda"), "use --limits"),
        (("--on", "h100,t4", "--print", "registers"), "one card with --on"),
        (("--on", "h100,t4", "--fuzz", 3), "takes one card"),
    ],
)
def test_what_names_no_cards(cudabench: Runner, saxpy: Path, words: tuple[object, ...], said: str) -> None:
    """Each mistake is a usage error that says what to write."""
    ran = cudabench("run", saxpy, *LAUNCH, *words)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert said in ran.err.replace("\n", " ")


@needs_compiler
def test_cards_newer_than_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """`all` leaves out cards that an older NVRTC does not support, and says so; a named card of that kind is an
    error."""
    monkeypatch.setattr(compiler, "supported_architectures", lambda backend: ("sm_75", "sm_80", "sm_90"))
    found = pricing.several_cards({"card": "all", "device": "sim"})
    assert found is not None
    assert {card.architecture for card in found.cards} == {"sm_75", "sm_80", "sm_90"}
    assert "Left out, because NVRTC is older: l4, " in (found.choices[0].note or "")
    with pytest.raises(UsageError, match="does not compile for sm_120"):
        pricing.several_cards({"card": "h100,rtx5090", "device": "sim"})


# The table -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compiler
def test_a_row_a_card(cudabench: Runner, saxpy: Path) -> None:
    """The table lists the best card first, with the source of its figures, its limiting resource and its time relative
    to the best. The cards are compared by resources for which all have figures; a card's bound has all of its own."""
    ran = cudabench("run", saxpy, *LAUNCH, "--on", "t4,h100,rtx4090", "--json", "r.json")
    assert ran.code == 0, ran.err
    found = rows(ran.out)
    assert list(found) == ["h100", "rtx4090", "t4"]
    assert found["h100"][-1] == "1.00x"
    assert ("measured" in found["h100"], "datasheet" in found["t4"], "memory" in found["t4"]) == (True, True, True)
    assert found["t4"][found["t4"].index("datasheet") + 1] == "1.638"  # 65536 x 8 bytes at 320 GB/s take this many µs
    legend = "Compared: without the launch, latency, block starts, whose figures some of these cards lack."
    assert legend in ran.out
    alone = cudabench("run", saxpy, *LAUNCH, "--on", "h100,h200")
    assert "ompared" not in alone.out
    # the bound of a card is the same number in every table
    (one, several) = (each["h100"][each["h100"].index("measured") + 1] for each in (found, rows(alone.out)))
    assert one == several


@pytest.mark.slow
@needs_compiler
def test_the_file_of_several_cards(cudabench: Runner, saxpy: Path) -> None:
    """The results file has one result per architecture, with the lower bounds of each card and those of the first card
    as the result's own; they equal the bounds of a run with one card, and other commands read the file."""
    cudabench("run", saxpy, *LAUNCH, "--on", "h100,l4,rtx4090", "--json", "several.json", "-q")
    cudabench("run", saxpy, *LAUNCH, "--on", "rtx4090", "--json", "one.json", "-q")
    written, one = (json.loads(Path(name).read_text()) for name in ("several.json", "one.json"))
    assert [result["device"] for result in written["results"]] == ["sim:sm_90", "sim:sm_89"]
    ada = written["results"][1]
    assert [each["card"] for each in ada["limits_by_card"]] == ["l4", "rtx4090"]
    assert (ada["limits"], ada["limits_on"]) == (ada["limits_by_card"][0]["limits"], "L4 (datasheet)")
    assert ada["limits_by_card"][1]["limits"] == one["results"][0]["limits"]
    assert one["results"][0]["limits_by_card"] is None
    assert written["settings"]["on_cards"] == {"h100": "sm_90", "l4": "sm_89", "rtx4090": "sm_89"}
    file = load_file_or_card("several.json")
    assert [is_on_another_card(file, result) for result in file.results] == [False, True]
    assert [file.device_of(result).label for result in file.results] == ["sim:sm_90", "sim:sm_89"]  # type: ignore[union-attr]
    ran = cudabench("compare", "several.json", "several.json")
    assert (ran.code, "2 same" in ran.out) == (0, True), ran.err
    for words in (("report", "several.json", "-o", "p.html"), ("export", "several.json", "--to", "markdown")):
        assert cudabench(*words).code == 0


@pytest.mark.slow
@needs_compiler
def test_prices(cudabench: Runner, saxpy: Path) -> None:
    """The price of a million launches is their shortest time in hours times the card's price; a card without a price
    has an empty cell, and a single card may have a price."""
    ran = cudabench("run", saxpy, *LAUNCH, "--on", "t4,l4,a10", "--price", "t4=0.36,l4=7200")
    found = rows(ran.out)
    assert found["t4"][-2:] == ["0.36", "0.000164"]  # 1.638 s at a price of 0.36 an hour
    assert found["a10"][-2:] == ["-", "-"]
    assert "Cheapest: t4, 0.000164 a million launches" in ran.out
    alone = cudabench("run", saxpy, *LAUNCH, "--on", "t4", "--price", "t4=3600")
    assert rows(alone.out)["t4"][-2:] == ["3600", "1.64"]


@pytest.mark.slow
@needs_compiler
def test_what_a_card_cannot_run(cudabench: Runner, tmp_path: Path) -> None:
    """A card that lacks shared memory or instructions says so in its row; if no card can run the kernel, or it does not
    compile, the exit code shows it."""
    (tmp_path / "turn.cu").write_text(SHARED)
    launch = ("--grid", 1, "--block", 32, "--arg", "x=float32[32]:random")
    ran = cudabench("run", "turn.cu", *launch, "--shared", 120000, "--on", "l4,a100,t4")
    assert ran.code == 0, ran.err
    assert list(rows(ran.out)) == ["a100", "l4", "t4"]
    assert "t4: cannot run: turn cannot run with 120000 bytes of shared memory a block: sm_75 allows 65536" in ran.out
    assert cudabench("run", "turn.cu", *launch, "--shared", 120000, "--on", "l4,t4").code == 5
    (tmp_path / "proxy.cu").write_text('__global__ void k(float *x) { asm volatile("fence.proxy.async;"); *x = 1; }')
    ran = cudabench("run", "proxy.cu", "--grid", 1, "--block", 1, "--arg", "x=float32[1]:empty", "--on", "t4,h100")
    assert (ran.code, "t4: cannot run: " in ran.out, "sm_90 or higher" in ran.out) == (0, True, True), ran.err
    (tmp_path / "bad.cu").write_text("__global__ void k(float *x) { *x = 1 }")
    ran = cudabench("run", "bad.cu", "--grid", 1, "--block", 1, "--arg", "x=float32[1]:empty", "--on", "t4,h100,l4")
    assert (ran.code, "t4, h100, l4: failed: " in ran.out) == (1, True), ran.err


@pytest.mark.slow
@needs_compiler
def test_a_wrong_kernel_has_no_bound(cudabench: Runner, saxpy: Path) -> None:
    """A wrong kernel has no time on any card, and gives exit code 3."""
    saxpy.write_text(SAXPY.replace("+ y[i]", "- y[i]"))
    ran = cudabench("run", saxpy, *LAUNCH, "--on", "t4,h100")
    assert ran.code == 3
    assert all("WRONG" in row for row in rows(ran.out).values())


@pytest.mark.slow
@needs_compiler
@pytest.mark.transpose
def test_a_ladder_on_several_cards(cudabench: Runner) -> None:
    """A card's row names the kernel with the lowest bound and how many tie; a second table has every kernel on every
    card."""
    ran = cudabench("transpose", "-k", "naive-row", "-k", "smem", "-k", "smem-pad", "--size", 256, "--on", "a100,t4")
    assert ran.code == 0, ran.err
    assert {row[row.index("datasheet") + 1] for row in rows(ran.out).values()} <= {"smem", "smem-pad"}
    grid = ran.out.split("\nkernel ")[1].splitlines()
    assert [line.split()[0] for line in grid[1:4]] == ["naive-row", "smem", "smem-pad"]
    assert grid[0].split() == ["a100", "t4"]


@pytest.mark.slow
@needs_compiler
@pytest.mark.transpose
def test_sweep_and_explain(cudabench: Runner) -> None:
    """A sweep names each card's best point and runs once per architecture; `explain` prints the table, then the lines
    of the first card's code. A sweep of several cards cannot be resumed."""
    words = ("transpose", "-k", "smem", "--block", 32, "8:16", "--size", 128, "--on", "t4,h100,h200")
    ran = cudabench("sweep", *words, "--json", "s.json")
    assert ran.code == 0, ran.err
    assert set(rows(ran.out)) == {"t4", "h100", "h200"}
    assert "Repeat: cudabench transpose -k smem --block 32" in ran.out
    assert [r["device"] for r in json.loads(Path("s.json").read_text())["results"]] == ["sim:sm_75"] * 2 + [
        "sim:sm_90"
    ] * 2
    assert cudabench("sweep", *words, "--resume", "s.json").code == 2
    ran = cudabench("explain", "transpose", "smem", "--size", 64, "--on", "t4,h100")
    assert set(rows(ran.out)) == {"t4", "h100"}
    assert "Line by line in the code of t4, sm_75:" in ran.out
    assert ran.out.count("transpose smem, 64 x 64") == 1


# Ceilings of two cards -----------------------------------------------------------------------------------------------


def test_a_datasheet_beside_a_measurement(cudabench: Runner) -> None:
    """A datasheet and a measurement are compared by the ceilings that units allow, both are marked, and only ceilings
    of both are shown; the JSON has all."""
    ran = cudabench("compare", "rtx4090", "h100", "--json", "c.json")
    assert ran.code == 0, ran.err
    assert "GeForce RTX 4090: datasheet" in ran.out
    assert "H100 80GB HBM3: its units" in ran.out
    row = next(line.split() for line in ran.out.splitlines() if "memory-read" in line)
    assert row == ["memory-read", "1.008", "TB/s", "3.352", "TB/s", "3.33x", "3.112", "TB/s"]
    assert "launch-alone" not in ran.out
    written = json.loads(Path("c.json").read_text())["comparisons"][0]["ceilings"]
    by_name = {row["name"]: row for row in written}
    assert (by_name["fp32"]["by_units"], by_name["launch-alone"]["better"]) == (True, None)
    back = cudabench("compare", "h100", "rtx4090").out
    assert "0.30x" in next(line for line in back.splitlines() if "memory-read" in line)


def test_cards_of_no_file(cudabench: Runner) -> None:
    """A card that has only a datasheet is compared and exported by its name, as one with a file is."""
    assert "1.78x" in cudabench("compare", "4090", "rtx5090").out
    assert "NVIDIA A10" in cudabench("export", "a10", "--to", "markdown").out


def test_an_unknown_card_lists_those_that_are_known() -> None:
    """The error for an unknown card suggests a similar name and lists all names."""
    with pytest.raises(UsageError, match=r"is not a known card. Did you mean 'rtx3080'.* orin"):
        cards.load_card("rtx3O80")
