"""The report's page as text: its content, that it can be read back, its size, and hostile names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cudabench.errors import CudabenchError, UsageError
from cudabench.explain import recorded
from cudabench.records import file as results
from cudabench.records.file import ResultsFile
from cudabench.records.results import Branch, Counted, Hazard, Imbalance, Limit, Result, Step
from cudabench.records.revisions import CodeDifference
from cudabench.views import plot, quantities, report, roofline
from cudabench.views.report import content, embedded, kernels, samples, source
from tests.conftest import Ran
from tests.reports import H200, HOSTILE, SAMPLES, hostile, ladder, timed

pytestmark = pytest.mark.machine_code

Runner = Callable[..., Ran]
LIMIT = 300_000  # bytes of a page
VOID = {"meta", "input", "br", "img", "link"}


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        """Leave the element."""
        self._inside = ""

    def handle_data(self, data: str) -> None:
        """Record the visible text."""
        if self._inside not in ("script", "style"):
            self.text += data


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(lambda: [ladder()], id="simulated", marks=pytest.mark.slow),
        pytest.param(lambda: [timed()], id="timed", marks=pytest.mark.slow),
        pytest.param(lambda: [timed(), timed(0.8)], id="before and after", marks=pytest.mark.slow),
        pytest.param(lambda: [results.load(H200)], id="recorded on an H200"),
    ],
)
def test_a_page_is_small_and_fetches_nothing(files: Callable[[], list[ResultsFile]]) -> None:
    """A page of 15 kernels with samples and drawings has under 300 kB and references no external resource."""
    page = report.page(files(), ["one.json", "two.json"][: len(files())])
    assert len(page.encode()) < LIMIT
    elements = Elements(page).found
    outside = [(tag, key, value) for tag, has in elements for key, value in has.items() if key in ("src", "href")]
    assert outside
    assert all(key == "href" and value and value.startswith("#") for _, key, value in outside)
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    (policy,) = [has["content"] for tag, has in elements if has.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.slow
def test_the_page_holds_the_results() -> None:
    """The results in a page are those of the file, except thinned samples, which the page mentions."""
    (back,) = [results.parse(text, "page") for text in embedded.embed([ladder()], 10**9).texts]
    assert back == results.parse(ladder().text(), "file")
    thin = embedded.embed([timed()], 10**9)
    (back,) = [results.parse(text, "page") for text in thin.texts]
    assert "samples" in thin.left_out[0]
    for one, other in zip(back.results, timed().results, strict=True):
        assert one.time is not None
        assert other.time is not None
        assert 50 < len(one.time.samples_s) < SAMPLES
        assert one.time.samples == SAMPLES
        assert one.time.median_s == other.time.median_s


@pytest.mark.slow
def test_thinned_samples_are_of_all_places() -> None:
    """Thinned samples come from every buffer set, and each sample keeps its buffer set."""
    result = timed().results[0]
    assert result.time is not None
    places = tuple(k % 6 for k in range(SAMPLES))
    time = replace(result.time, samples_s=tuple(map(float, range(1, SAMPLES + 1))), places=6, samples_place=places)
    thin = embedded.thinned(replace(result, time=time), 3).time
    assert thin is not None
    assert set(thin.samples_place) == set(range(6))
    assert all(place == (sample - 1) % 6 for sample, place in zip(thin.samples_s, thin.samples_place, strict=True))


@pytest.mark.slow
def test_a_large_file_loses_pictures_before_counts() -> None:
    """With little room, the page keeps status, times and sums of accesses, and lists what it left out."""
    held = embedded.embed([timed()], 1)
    (back,) = [results.parse(text, "page") for text in held.texts]
    assert len(held.left_out) > 5
    assert not back.listings
    for one, other in zip(back.results, timed().results, strict=True):
        assert (one.banks, one.steps) == (None, None)
        assert (one.status, one.bandwidth_gbps, one.machine_code) == (
            other.status,
            other.bandwidth_gbps,
            other.machine_code,
        )
        assert sum(row.sectors or 0 for row in one.access or ()) == sum(row.sectors or 0 for row in other.access or ())


@pytest.mark.slow
def test_long_texts_lose_their_ends_last() -> None:
    """If nothing else can be left out, long texts are cut, and the file can still be read."""
    held = embedded.embed([hostile(ladder())], 1)
    assert held.left_out[-1] == "the ends of long texts"
    (back,) = [results.parse(text, "page") for text in held.texts]
    assert len(held.texts[0]) < 40_000
    assert [result.status for result in back.results] == [result.status for result in hostile(ladder()).results]
    assert HOSTILE.startswith(back.results[0].kernel.removesuffix("..."))


@pytest.mark.slow
def test_names_stay_names() -> None:
    """Markup, control codes and 5,000 characters in any text of a file add no element to the page, and no control
    code."""
    page = report.page([hostile(ladder())], [HOSTILE])
    plain = report.page([hostile(ladder(), "x")], ["x"])
    for text in (page, plain):
        assert len(text.encode()) < LIMIT
    kinds = [sorted({tag for tag, _ in Elements(text).found}) for text in (page, plain)]
    assert kinds[0] == kinds[1]
    assert "img" not in kinds[0]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page)
    assert "onerror" not in " ".join(key for _, has in Elements(page).found for key in has)
    (back,) = [results.parse(match[1], "page") for match in results.EMBEDDED_RESULTS.finditer(page)]
    assert back.results[0].hazards
    for text in (back.results[0].kernel, back.results[0].hazards[0].message):
        assert len(text) > len("</script><img src=x onerror=alert(1)>")
        assert HOSTILE.startswith(text.removesuffix("..."))  # the room for the text depends on the host


@pytest.mark.slow
def test_what_a_page_says() -> None:
    """The page shows verdict, GPU, bars against copy and peak, clocks and advice."""
    said = Elements(report.page([timed()], ["run.json"])).text
    assert "prefetch is fastest" in said
    assert "All 15 are right, without a hazard" in said
    assert "NVIDIA H200" in said
    assert re.search(r"copy 0\.1", said)
    assert "peak 4814" in said
    assert "SM clock 1980 MHz before the run and 1965 MHz after it" in said
    assert "bank conflict" in said
    assert "memory 4561 GB/s" in said


def test_bars_are_to_scale() -> None:
    """The widths of a ladder's bars are proportional to the bandwidths."""
    (chart,) = content.page([results.load(H200)], ["h200.json"]).ladders
    file = results.load(H200)
    assert file.device is not None
    rates = [result.bandwidth_gbps or 0 for result in file.results]
    (peak,) = [mark.at for mark in chart.marks if mark.kind == "peak"]
    for rung, rate in zip(chart.rungs, rates, strict=True):
        assert rung.bars[0].width / peak == pytest.approx(rate / (file.device.peak_gbps or 0))


@pytest.mark.slow
def test_two_files_side_by_side() -> None:
    """For two files the page has bars of both, the change of each kernel, and one verdict."""
    page = content.page([timed(), timed(0.8)], ["a/run.json", "b/new.json"])
    assert page.labels == ("before: run", "after: new")
    assert page.verdict.startswith("Before to after: 15 faster.")
    assert page.good == "good"
    for rung in page.ladders[0].rungs:
        assert [bar.run for bar in rung.bars] == [0, 1]
        assert rung.verdict == "faster"
        assert rung.change.startswith("-20")
    assert all(kernel.sides[0].same and not kernel.sides[1].same for kernel in page.kernels)


@pytest.mark.slow
def test_a_page_leads_with_what_is_wrong_and_wastes_most() -> None:
    """The headlines list wrong kernels, hazards, the lowest bound and the most waste in this order, with links."""
    found = [replace(one, limits=(Limit("memory", 1e-6, "bytes"),)) for one in ladder().results]
    clean = content.page([replace(ladder(), results=found)], ["x.json"])
    assert clean.headlines[0].text.startswith("Lowest bound, ")
    worst = clean.headlines[-1]
    name = worst.text.removeprefix("Most waste: ").partition(",")[0]
    assert re.search(r"\dx (sectors|wavefronts).*, line \d+: \S", worst.text)
    assert worst.link == next(kernel.anchor for kernel in clean.kernels if kernel.name == name)
    hazard = Hazard("race", 7, "y[i] = x[i];", (0, 0, 0), (1, 0, 0), 1, "two threads write")
    found[3] = replace(found[3], hazards=(hazard,))
    found[9] = replace(found[9], status="wrong", reason="3 wrong elements")
    page = content.page([replace(ladder(), results=found)], ["x.json"])
    assert [line.text for line in page.headlines][:2] == [
        f"{found[9].kernel} wrong: 3 wrong elements", f"Hazards: {found[3].kernel} (1).",
    ]  # fmt: skip
    assert [line.bad for line in page.headlines] == [True, True, False, False]
    assert [rung.name for rung in page.ladders[0].rungs] == [one.kernel for one in found]
    text = report.page([replace(ladder(), results=found)], ["x.json"])
    assert text.index("3 wrong elements</a>") < text.index('id="ladder"')
    assert not any(line.text.startswith("Lowest") for line in content.page([timed()], ["run.json"]).headlines)


def test_two_files_lead_with_what_got_worse() -> None:
    """For two files, kernels that got worse come first in headlines and ladder; equal kernels are counted."""
    results_ = ladder().results
    grown, fewer = results_[7], results_[2]
    changed = {
        id(grown): replace(grown, instructions=(grown.instructions or 0) * 3, machine_code=None),
        id(fewer): replace(fewer, status="failed", reason="it hung"),
    }
    after = replace(ladder(), results=[changed.get(id(one), one) for one in results_])
    page = content.page([ladder(), after], ["a.json", "b.json"])
    assert page.headlines[0].text.startswith(f"{fewer.kernel}: failed, it hung")
    assert page.headlines[1].text.startswith(f"{grown.kernel}: more, PTX instructions ")
    assert [line.text for line in page.headlines[2:]] == ["13 kernels are the same."]
    assert [rung.name for rung in page.ladders[0].rungs][:2] == [fewer.kernel, grown.kernel]
    assert page.headlines[0].link == page.kernels[0].anchor
    same = content.page([ladder(), ladder()], ["a.json", "b.json"])
    assert [line.text for line in same.headlines] == ["15 kernels are the same."]
    faster = content.page([timed(), timed(0.8)], ["a.json", "b.json"]).headlines
    assert len(faster) == content.MOST_LINES + 1
    assert faster[-1].text == "7 more are not the same."


def test_runs_with_other_blocks_are_side_by_side() -> None:
    """A kernel that each run has once is one row, even with different blocks; a run with several blocks has a row for
    each."""
    first = results.load(H200)
    half = [
        replace(result, block=(16, 16, 1), bandwidth_gbps=(result.bandwidth_gbps or 0) / 2) for result in first.results
    ]
    found = content.page([first, replace(first, results=half)], ["a.json", "b.json"])
    (chart,) = found.ladders
    assert [rung.name for rung in chart.rungs] == [result.kernel for result in first.results]
    assert chart.rungs[0].cells[0] == "2344 → 1172"
    assert [len(kernel.sides) for kernel in found.kernels] == [2] * len(first.results)
    swept = content.page([replace(first, results=[*first.results, *half])], ["a.json"])
    assert [rung.name for rung in swept.ladders[0].rungs][:2] == ["copy-row 32 x 8", "naive-row 32 x 8"]


def test_the_clock_is_beside_the_samples() -> None:
    """The page draws the SM clock in the order of the samples and states its range; thinning keeps the clocks of the
    kept samples."""
    result = timed().results[0]
    assert result.time is not None
    half = SAMPLES // 2
    clocks = (1980,) * half + (1755,) * (SAMPLES - half)
    time = replace(result.time, samples_sm_mhz=clocks)
    strip = samples.strip(time)
    assert strip is not None
    assert strip.clock == "M0 10H500V90H1000"
    assert strip.clock_said == "1755–1980 MHz"
    thin = embedded.thinned(replace(result, time=time), 7).time
    assert thin is not None
    assert thin.samples_sm_mhz == clocks[::7]
    page = report.page([replace(timed(), results=[replace(result, time=time)])], ["a"])
    assert "1755–1980 MHz" in Elements(page).text
    unclocked = samples.strip(result.time)
    assert unclocked is not None
    assert unclocked.clock == ""


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (Counted(128, 65536, True), "on 128 of 65\u202f536 blocks and scaled to all of them."),
        (Counted(64, 64, None), "on all blocks."),
        (Counted(64, 64, False), "on all blocks; its compiler made different code from the measured code."),
    ],
)
def test_a_page_says_where_counts_beside_a_time_are_from(on: Counted, said: str) -> None:
    """For a timed kernel, the page says that the counts are simulated, and for how many blocks."""
    page = report.page([replace(timed(), results=[replace(timed().results[0], counted=on)])], ["a"])
    assert f"The counts are the simulator's, taken after the measurement {said}" in Elements(page).text


def test_options_are_code_in_sentences() -> None:
    """An option in a sentence is marked as code, and all other text is escaped."""
    assert (
        report.sentence_html("add --limits, <b>-- or --x-y")
        == "add <code>--limits</code>, &lt;b&gt;-- or <code>--x-y</code>"
    )


def test_a_wrong_kernel_comes_first() -> None:
    """A wrong kernel makes the verdict bad, has no bar, and its section is open."""
    first, *others = ladder().results
    wrong = replace(first, status="wrong", reason="3 wrong elements")
    page = content.page([replace(ladder(), results=[*others, wrong])], ["x.json"])
    assert page.good == "bad"
    assert "1 wrong of 15" in page.verdict
    (rung,) = [rung for rung in page.ladders[0].rungs if rung.status == "wrong"]
    assert not rung.bars
    assert [kernel.name for kernel in page.kernels if kernel.open] == [first.kernel]


def test_what_holds_up_a_launch_is_said() -> None:
    """The advice includes divergent branches and blocks with much more work than the mean."""
    first = ladder().results[0]
    branch = Branch(9, "if (x)", 8, 8, 0.5, 100, 4.0, "spread this work over its lanes")
    heavy = Imbalance(64, (3, 0, 0), 900, 300.0, 4, True, 9, "if (x)", 0.8, "block (3, 0, 0) executes 3 times the mean")
    said = kernels.advice(replace(first, branches=(branch,), imbalance=heavy))
    assert ("line 9", branch.advice) in said
    assert said[-1] == ("blocks", heavy.advice)
    page = report.page([replace(ladder(), results=[replace(first, imbalance=heavy)])], ["x.json"])
    assert "block (3, 0, 0) executes 3 times the mean" in Elements(page).text


@pytest.mark.slow
def test_a_hundred_kernels() -> None:
    """With many kernels all are in the ladder, only some have a section, and the page stays small."""
    many = [replace(r, kernel=f"k{n}-{r.kernel}") for n in range(7) for r in timed().results]
    page = report.page([replace(timed(), results=many)], ["many.json"])
    assert len(page.encode()) < 2 * LIMIT
    assert page.count('<details class="kernel"') == content.MOST_DETAILED
    assert f"{len(many) - content.MOST_DETAILED} more kernels have no section" in page


def luminance(colour: str) -> float:
    """Return the relative luminance of '#rgb' or '#rrggbb' by WCAG 2."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(scheme: str) -> None:
    """Every text colour has a contrast of at least 4.5 (WCAG) on every background that it is used on."""
    style = (Path(report.__file__).parent / "style.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)")[:2]
    tokens = dict(re.findall(r"--([\w-]+): (#\w+)", light))
    if scheme == "dark":
        tokens |= dict(re.findall(r"--([\w-]+): (#\w+)", dark.partition("@media")[0]))
    on_back = [(name, "back") for name in ("ink", "quiet", "link", "good", "bad", "copy")]
    on_soft = [(name, "soft") for name in ("ink", "quiet", "link")]
    on_heat = [("on-heat", f"h{level}") for level in range(1, source.LEVELS + 1)]
    for text, ground in [*on_back, *on_soft, *on_heat, ("on-served", "served"), ("ink", "pale")]:
        lighter, darker = sorted((luminance(tokens[text]), luminance(tokens[ground])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)


def test_nothing_to_report() -> None:
    """A file without results, and more than four files, are refused."""
    with pytest.raises(CudabenchError, match="lacks results"):
        report.page([replace(ladder(), results=[])], ["empty.json"])
    with pytest.raises(UsageError, match="at most 4"):
        report.page([ladder()] * 5, [f"{n}.json" for n in range(5)])


def test_source_with_heat() -> None:
    """The listing shows the kernel's source with counts per line; the line with the most sectors is hottest, and
    divergence is marked."""
    result = next(r for r in ladder().results if r.kernel == "smem")
    found = source.listing(result, ladder().listings[result.source])
    assert found is not None
    assert found.whole
    assert [name for name, _ in found.headings] == ["sectors", "wavefronts", "executed", "threads"]
    assert any("__global__ void transpose_smem(" in row.text for row in found.rows)
    numbers = [row.number for row in found.rows if row.number]
    assert numbers == sorted(numbers)
    by_line = {row.number: row for row in found.rows}
    sums: dict[int, int] = {}
    for access in result.access or ():
        sums[access.line] = sums.get(access.line, 0) + (access.sectors or 0)
    hottest = max(sums, key=lambda line: sums[line])
    assert by_line[hottest].heat[0].level == source.LEVELS
    assert by_line[hottest].heat[0].text.startswith(quantities.short(sums[hottest], " "))
    parted = [row for row in found.rows if row.heat and row.heat[3].level]
    assert parted
    assert all(float(row.heat[3].text) < 32 for row in parted)
    # Without the source text, only the lines of accesses, branches and hazards are known.
    bare = source.listing(replace(result, lines=None), None)
    assert bare is not None
    assert {row.number for row in bare.rows if row.number} >= set(sums)
    few = source.listing(result, ladder().listings[result.source], 4)
    assert few is not None
    assert hottest in {row.number for row in few.rows}
    assert few.cut == len(numbers) - 4


@pytest.mark.parametrize(("count", "binned"), [(2, False), (150, False), (5000, True)])
def test_samples_are_drawn_in_order(count: int, binned: bool) -> None:
    """Few samples are drawn as dots in order, many samples as bins, and the drawing has a bounded size."""
    time = timed().results[0].time
    assert time is not None
    values = tuple(1e-5 * (1 + 0.1 * k / count) for k in range(count))
    strip = samples.strip(replace(time, samples_s=values, samples=count))
    assert strip is not None
    drawn = strip.medians if binned else strip.dots
    heights = [int(y) for y in re.findall(r"M\d+ (\d+)h0", drawn)]
    assert len(heights) == (samples.BINS if binned else count)
    assert heights == sorted(heights, reverse=True)  # a slower sample is higher up
    assert len(strip.dots + strip.spans + strip.medians) < 6000


def test_roofline_points_and_roofs() -> None:
    """A kernel's point is at its instructions per sector and per second; arrows lead from each rung to the next."""
    (chart,) = roofline.charts([timed()], ["run"])
    kernels = [result.kernel for result in timed().results]
    assert [point.name for point in chart.points] == kernels
    result, point = timed().results[0], chart.points[0]
    assert result.machine_code
    assert result.time
    assert result.machine_code.instructions_executed
    sectors = sum(row.sectors or 0 for row in result.access or ())
    x = result.machine_code.instructions_executed / sectors
    y = result.machine_code.instructions_executed / result.time.median_s / 1e9
    assert f"{y:.3g}" == f"{float(point.said.split(': ')[1].split()[0]):.3g}"
    assert f"{x:.3g}" == f"{float(point.said.split(' at ')[1].split()[0]):.3g}"
    assert 0 < len(chart.arrows) <= len(kernels) - 1
    assert {"memory 4561 GB/s", "copy 0.100 GB/s"} <= {roof.name for roof in chart.roofs}
    labels = [(p.x, p.label_y) for p in chart.points]
    assert len(set(labels)) == len(labels)


def test_roofline_of_what_computes() -> None:
    """With floating-point operations the axes are FLOP per byte and GFLOP/s, under the GPU's roofs; the plot has the
    same points."""
    computing = [replace(result, flops=10**4) for result in timed().results]
    file = replace(timed(), results=computing)
    (chart,) = roofline.charts([file], ["run"])
    assert chart.up == "GFLOP/s"
    assert chart.across == "FLOP per byte that must move"
    assert computing[0].bytes
    assert f" at {10**4 / computing[0].bytes:.3g} " in chart.points[0].said
    assert len({point.x for point in chart.points}) == 1
    assert {"memory 4561 GB/s", "float32 65.7 TFLOP/s"} <= {roof.name for roof in chart.roofs}
    axes = plot.draw([file], ["run"], "roofline").axes[0]
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "o"]
    assert drawn == [(point.x, point.y) for point in chart.points]
    assert {roof.name for roof in chart.roofs} <= {text.get_text() for text in axes.texts}


def test_roofs_of_the_card_that_prices_the_counts() -> None:
    """In the simulator the roofs are those of the GPU in --on and the points are bounds; counts of other code also
    place a kernel."""
    bounds = [replace(result, limits=(Limit("memory", 1e-6, ""),)) for result in ladder().results]
    on = {"card": "X", "memory_gbps": 4000.0, "issue_ginstructions": 1000.0}
    (chart,) = roofline.charts([replace(ladder(), results=bounds, settings={"on": on})], ["run"])
    assert [roof.name for roof in chart.roofs] == ["memory 4000 GB/s", "issue"]
    assert all(point.bound for point in chart.points)
    (chart,) = roofline.charts([replace(ladder(), results=bounds, settings={"on": {"memory_gbps": "x"}})], ["run"])
    assert not chart.roofs
    first = timed().results[0]
    assert first.machine_code
    own = replace(first.machine_code, instructions_executed=None, sha256="other")
    counted = replace(first, machine_code=own, counted=Counted(1, 2, False, first.machine_code.instructions_executed))
    both = [
        roofline.charts([replace(timed(), results=[result])], ["run"])[0].points[0].said for result in (first, counted)
    ]
    assert both[0] == both[1]


def test_no_roofline_says_why() -> None:
    """Simulated results without limits have no roofline, and the page says what is missing."""
    assert not roofline.charts([ladder()], ["run"])
    assert "lacks limits" in roofline.missing(ladder().results)
    assert "--limits" in roofline.missing(results.load(H200).results)


# Recorded data -------------------------------------------------------------------------------------------------------


def of(kernel: str) -> Result:
    """Return a kernel's result from the recorded ladder."""
    return next(result for result in ladder().results if result.kernel == kernel)


def elements(step: Step) -> dict[tuple[int, int, int], int]:
    """Return the element of each thread in a step, by (block x, block y, thread in the block)."""
    return {
        (warp.block[0], warp.block[1], warp.warp * 32 + lane + k): first + k * stride
        for warp in step.warps
        for lane, lanes, first, stride in warp.runs
        for k in range(lanes)
    }


def test_steps_are_what_threads_move() -> None:
    """naive-row reads rows and writes columns of a 12 x 10 matrix: element (y, x) goes to (x, y)."""
    read, write = of("naive-row").steps or ()
    assert (read.op, read.array, read.shape) == ("load", "in", (12, 10))
    assert (write.op, write.array, write.shape) == ("store", "out", (10, 12))
    reads, writes = elements(read), elements(write)
    assert set(reads) == set(writes)
    for thread, element in reads.items():
        row, column = divmod(element, 10)
        assert writes[thread] == column * 12 + row
    steps = of("smem").steps or ()
    assert [(step.space, step.op) for step in steps] == [
        ("global", "load"), ("shared", "store"), ("shared", "load"), ("global", "store"),
    ]  # fmt: skip


def test_lines_hold_the_machine_code() -> None:
    """The executions per line add up to at most the kernel's, and the recorded code is bounded."""
    for result in ladder().results:
        assert result.lines
        assert result.machine_code
        executed = sum(line.executions for line in result.lines)
        assert 0 < executed <= (result.machine_code.instructions_executed or 0)
        assert sum(len(line.code) for line in result.lines) <= recorded.MOST_CODE + len(result.lines)
        assert any(text.startswith(("ST", "@")) for line in result.lines for text in line.code)


def test_pictures_of_banks_are_the_worst() -> None:
    """The recorded bank requests of smem include its conflict, and are few."""
    found = of("smem").banks or ()
    assert 0 < len(found) <= recorded.MOST_BANKS
    assert max(len(request.passes) for request in found) > 1
    assert of("naive-row").banks == ()


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_page_reads_like_its_file(cudabench: Runner, tmp_path: Path) -> None:
    """compare, export and report accept a page like a results file, with the same results."""
    (tmp_path / "r.json").write_text(timed().text())
    assert cudabench("report", "r.json", "-o", "r.html").code == 0
    ran = cudabench("compare", "r.json", "r.html", "--to", "junit")
    assert ran.code == 0
    assert 'failures="0"' in ran.out
    rows = [cudabench("export", name, "--to", "csv").out for name in ("r.json", "r.html")]
    assert rows[0] == rows[1]
    assert cudabench("report", "r.html", "-o", "again.html").code == 0
    again, first = (results.load(tmp_path / name) for name in ("again.html", "r.html"))
    assert [r.kernel for r in again.results] == [r.kernel for r in first.results]


@pytest.mark.slow
def test_two_files_in_one_page(cudabench: Runner, tmp_path: Path) -> None:
    """report reads a page of two files, and export refuses it."""
    for name, factor in (("a.json", 1.0), ("b.json", 0.9)):
        (tmp_path / name).write_text(timed(factor).text())
    assert cudabench("report", "a.json", "b.json", "-o", "two.html").code == 0
    assert len(results.load_all(tmp_path / "two.html")) == 2
    assert cudabench("report", "two.html", "-o", "copy.html").code == 0
    ran = cudabench("export", "two.html", "--to", "csv")
    assert ran.code == 1
    assert "is a page of 2 results files" in ran.err


def test_report_of_a_run(cudabench: Runner, tmp_path: Path) -> None:
    """--report writes a page with the recorded drawings, which --json has too; without them the page names the
    command."""
    ran = cudabench(
        "explain", "transpose", "-k", "smem", "--size", "6", "5", "--report", "r.html", "--json", "r.json", "-q"
    )
    assert ran.code == 0
    for name in ("r.html", "r.json"):
        (result,) = results.load(tmp_path / name).results
        assert result.steps
        assert result.lines
        assert result.banks
        assert result.threads is None
    (bare,) = [replace(r, steps=None, lines=None, banks=None) for r in results.load(tmp_path / "r.json").results]
    page = Elements(report.page([replace(ladder(), results=[bare], listings={})], ["old.json"])).text
    assert "cudabench explain transpose --kernel smem --report page.html" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "-o", "r.html"], "takes at least one results file"),
        (["report", "nowhere.json", "-o", "r.html"], "nowhere.json"),
        (["report", "r.json", "-o", "-"], "is not a file"),
        (["report", "r.json", "-o", "none/r.html"], "does not exist"),
        (["report", "plain.html", "-o", "r.html"], "HTML page without results"),
        (["transpose", "--report", "-"], "is not a file"),
        (["transpose", "--report", "x.html", "--json", "x.html"], "name the same file"),
        (["transpose", "--report", "none/x.html"], "does not exist"),
    ],
)
def test_what_cannot_be_reported(cudabench: Runner, tmp_path: Path, words: list[str], said: str) -> None:
    """A page that cannot be made is refused with one message, and no file is written."""
    (tmp_path / "r.json").write_text(ladder().text())
    (tmp_path / "plain.html").write_text("<!doctype html><title>x</title>")
    ran = cudabench(*words)
    assert ran.code in (1, 2)
    assert said in ran.err
    assert not (tmp_path / "r.html").exists()


def test_report_of_a_diff() -> None:
    """A file of `cudabench diff` becomes a table of kernels by architecture."""
    found = CodeDifference(kernel="f", arch="sm_90", verdict="same", line=3, threads=256)
    page = Elements(report.page([replace(ladder(), results=[], diff=[found])], ["d.json"])).text
    assert "1 kernel on 1 architectures: 1 same." in page
    assert "sm_90" in page


def test_the_page_is_shipped() -> None:
    """Template, style and script are files of the package, and the JSON in a page is plain JSON."""
    page = report.page([ladder()], ["x.json"])
    (held,) = [match[1] for match in results.EMBEDDED_RESULTS.finditer(page)]
    assert json.loads(held)["schema"] == results.SCHEMA
    folder = Path(report.__file__).parent
    assert {path.name for path in folder.iterdir()} >= {"page.html.jinja", "style.css", "page.js"}
