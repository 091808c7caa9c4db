"""Plots: their content, that they are reproducible, and what cannot be drawn."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cudabench.errors import CudabenchError, UsageError
from cudabench.records.file import ResultsFile
from cudabench.records.results import Limit, Result
from cudabench.views import figures, plot
from tests.conftest import Ran, on_cards
from tests.results.test_compare import RECORDED, changed, failed, simulated, slowed, wrong

Runner = Callable[..., Ran]


def other_card(file: ResultsFile = RECORDED) -> ResultsFile:
    """Return the file with another GPU as its device."""
    assert RECORDED.device is not None
    return replace(file, devices=[replace(RECORDED.device, name="A100", uuid="GPU-2", peak_gbps=2039.0)])


def of_size(n: int, file: ResultsFile = RECORDED) -> ResultsFile:
    """Return the file with another problem size."""
    return replace(file, results=[replace(r, size={"rows": n, "cols": n}) for r in file.results])


def swept(*blocks: tuple[int, int]) -> ResultsFile:
    """Return a file like that of a sweep of smem."""
    smem = next(r for r in RECORDED.results if r.kernel == "smem")
    results = [slowed(1 + 0.1 * at)(replace(smem, block=(x, y, 1))) for at, (x, y) in enumerate(blocks)]
    return replace(RECORDED, results=results)


def texts(figure: Any) -> list[str]:
    """Return all texts of a figure."""
    from matplotlib.text import Text

    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


# What is drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ([RECORDED], "ladder"),
        ([RECORDED, other_card()], "ladder"),
        ([of_size(512), of_size(1024)], "size"),
        ([swept((32, 8), (16, 16), (8, 32))], "sweep"),
        ([simulated()], "ladder"),
    ],
)
def test_kind(files: Sequence[ResultsFile], kind: str) -> None:
    """The kind of plot follows from the files."""
    assert plot.kind_of(files) == kind


def test_ladder_names_kernels_and_scale() -> None:
    """A ladder has a bar per kernel in the file's order, with its bandwidth, and lines for copy and peak."""
    figure = plot.draw([RECORDED], ["run.json"])
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [r.kernel for r in RECORDED.results]
    assert [round(bar.get_width()) for bar in axes.patches] == [round(r.bandwidth_gbps or 0) for r in RECORDED.results]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first kernel is on top
    written = texts(figure)
    assert {"copy\n3725", "peak\n4814", "3663", "transpose 4096 x 4096 float32 on NVIDIA H200, cold L2"} <= set(written)


def test_wrong_has_no_bar() -> None:
    """A wrong or failed kernel has a word instead of a bar."""
    figure = plot.draw([changed(smem=wrong, vector=failed)], ["run.json"])
    assert len(figure.axes[0].patches) == len(RECORDED.results) - 2
    assert {"wrong", "failed"} <= set(texts(figure))


def test_two_cards_have_their_own_scale() -> None:
    """Bars of two GPUs differ in colour and hatch, and each GPU has labelled lines for copy and peak."""
    figure = plot.draw([RECORDED, other_card()], ["a.json", "b.json"])
    bars = figure.axes[0].patches
    assert {bar.get_hatch() for bar in bars} == {"", "///"}
    assert len({bar.get_facecolor() for bar in bars}) == 2
    said = set(texts(figure))
    assert {"NVIDIA H200", "A100", "copy of NVIDIA H200, 3725", "peak of NVIDIA H200, 4814"} <= said
    assert {line.rpartition(",")[0] for line in said} >= {"copy of A100", "peak of A100"}


def test_cards_of_one_run_stand_side_by_side() -> None:
    """A run on several GPUs has a bar per GPU and kernel, and over sizes a curve per GPU."""
    figure = plot.draw([on_cards(RECORDED, "GPU-a", "GPU-b")], ["all.json"])
    assert len([bar for bar in figure.axes[0].patches if bar.get_hatch() is not None]) == 2 * len(RECORDED.results)
    assert {"all cuda:0", "all cuda:1"} <= set(texts(figure))
    files = [on_cards(of_size(n), "GPU-a", "GPU-b") for n in (512, 1024)]
    (axes,) = plot.draw(files, ["a.json", "b.json"]).axes
    labels = {line.get_label() for line in axes.lines}
    assert {"smem, NVIDIA H200 (cuda:0)", "smem, NVIDIA H200 (cuda:1)"} <= labels


def test_colours_are_of_cards() -> None:
    """All curves of a GPU have one colour; the colours of GPUs also differ in lightness, for colour-blind readers."""
    import matplotlib.colors

    both = [of_size(512), of_size(1024), other_card(of_size(512)), other_card(of_size(1024))]
    (axes,) = plot.draw(both, ["a", "b", "c", "d"]).axes
    by_card: dict[str, set[str]] = {"NVIDIA H200": set(), "A100": set()}
    for line in axes.lines:
        for card, colours in by_card.items():
            if str(line.get_label()).endswith(f", {card}"):
                colours.add(str(line.get_color()))
    assert [len(colours) for colours in by_card.values()] == [1, 1]
    light = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(matplotlib.colors.to_rgb, figures.COLOURS)]
    assert all(abs(one - other) > 0.08 for at, one in enumerate(light) for other in light[:at])


def test_the_simulator_over_sizes() -> None:
    """Over sizes, sectors, wavefronts and (if priced) the lower bound are separate charts, with the ideal counts."""
    files = [of_size(n, simulated()) for n in (512, 1024)]
    figure = plot.draw(files, ["a", "b"])
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "global sectors, less is better",
        "shared wavefronts, less is better",
    ]
    assert "the least that would do" in texts(figure)
    priced = [
        replace(file, results=[replace(r, limits=(Limit("memory", 1e-6, ""),)) for r in file.results]) for file in files
    ]
    assert plot.draw(priced, ["a", "b"]).axes[-1].get_ylabel() == "at least, in µs, less is better"


def test_a_roofline_of_two_cards() -> None:
    """A roofline of two GPUs has a roof per GPU, in the GPU's colour, with a legend."""
    files = []
    for name, gbps in (("one", 4000.0), ("two", 2000.0)):
        results = [replace(result, flops=10**9) for result in RECORDED.results]
        roof = {"card": name, "memory_gbps": gbps, "float32_gflops": 10 * gbps}
        files.append(replace(RECORDED, results=results, settings={"on": roof}))
    figure = plot.draw(files, ["a", "b"], "roofline")
    assert {"one", "two", "memory 4000 GB/s", "memory 2000 GB/s", "float32 20.0 TFLOP/s"} <= set(texts(figure))
    points = {str(line.get_color()) for line in figure.axes[0].lines if line.get_marker() == "o"}
    roofs = {str(line.get_color()) for line in figure.axes[0].lines if line.get_marker() != "o"}
    assert roofs == set(figures.COLOURS[:2])
    assert points


def test_limits_over_sizes_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a kernel's limits are known, a thinner line shows the lower bound below its curve."""
    monkeypatch.setattr(
        plot, "least_time", lambda result: result.time.median_s / 2 if result.kernel == "smem" else None
    )
    (axes,) = plot.draw([of_size(512), of_size(1024)], ["a", "b"]).axes
    curves = {line.get_label(): line for line in axes.lines}
    assert [label for label in curves if str(label).startswith("least")] == ["least of smem"]
    assert list(curves["least of smem"].get_ydata()) == [y / 2 for y in curves["smem"].get_ydata()]
    assert curves["least of smem"].get_linewidth() < curves["smem"].get_linewidth()


def test_sizes_are_curves() -> None:
    """Over sizes, each kernel's time is a curve with a distinct marker on logarithmic axes, with curves for copy and
    peak."""
    figure = plot.draw([of_size(2048), of_size(512), of_size(1024)], ["a", "b", "c"])
    (axes,) = figure.axes
    curves = {line.get_label(): line for line in axes.lines}
    assert {r.kernel for r in RECORDED.results} | {"copy", "peak"} <= set(curves)
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylabel()) == ("log", "log", "time in µs, less is better")
    assert {"50", "100", "200"} <= {label.get_text() for label in axes.get_yticklabels()}
    smem = next(r for r in RECORDED.results if r.kernel == "smem")
    assert smem.time is not None
    assert list(curves["smem"].get_ydata()) == [smem.time.median_s * 1e6] * 3
    assert smem.bytes is not None
    assert curves["peak"].get_ydata()[0] == pytest.approx(smem.bytes / 4814.0 / 1e3, rel=1e-3)
    assert list(curves["smem"].get_xdata()) == [512**2, 1024**2, 2048**2]
    looks = {
        (curves[r.kernel].get_marker(), str(curves[r.kernel].get_linestyle()), curves[r.kernel].get_color())
        for r in RECORDED.results
    }
    assert len(looks) == len(RECORDED.results)
    assert next(label.get_text() for label in axes.get_xticklabels()) == "512 x 512"


def test_sweep_is_a_map() -> None:
    """A two-dimensional sweep is a map with the blocks on its axes and a frame around the best."""
    figure = plot.draw([swept((32, 8), (16, 16), (8, 32), (64, 8))], ["s.json"])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "16", "32", "64"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["8", "16", "32"]
    frames = [patch for patch in axes.patches if patch.get_linewidth() == 2]
    assert [(round(f.get_x() + 0.46), round(f.get_y() + 0.44)) for f in frames] == [(2, 0)]


def test_sweep_of_lines() -> None:
    """A sweep of one-dimensional blocks is a curve with a label at the best point."""
    figure = plot.draw([swept((32, 1), (64, 1), (128, 1))], ["s.json"])
    assert "32: 1894" in texts(figure)


def test_simulator_draws_counts() -> None:
    """A simulator's ladder shows sectors and wavefronts, with the ideal counts."""
    figure = plot.draw([simulated()], ["s.json"])
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["global sectors, less is better", "shared wavefronts, less is better"]
    assert "the least that would do" in texts(figure)


# What cannot be ------------------------------------------------------------------------------------------------------


def change_all(change: Callable[[Result], Result]) -> ResultsFile:
    """Return the recorded file with every result changed."""
    return replace(RECORDED, results=[change(r) for r in RECORDED.results])


@pytest.mark.parametrize(
    ("files", "kind", "error", "message"),
    [
        ([change_all(wrong)], None, CudabenchError, "nothing to draw: no right result"),
        ([replace(RECORDED, results=[])], None, CudabenchError, "nothing to draw: the files lack results"),
        ([RECORDED], "sweep", UsageError, "shows one kernel, but the files hold copy-row"),
        ([RECORDED], "size", UsageError, "one kernel at two sizes or more"),
        (
            [RECORDED, change_all(lambda r: replace(r, operation="blur"))],
            None,
            UsageError,
            "shows one operation, but the files hold blur, transpose",
        ),
    ],
)
def test_what_cannot_be_drawn(
    files: Sequence[ResultsFile], kind: str | None, error: type[CudabenchError], message: str
) -> None:
    """Unsuitable files are refused with the reason."""
    with pytest.raises(error, match=message):
        plot.draw(files, ["a.json", "b.json"][: len(files)], kind)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib, the error has the install command."""
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(CudabenchError, match=r"pip install 'cudabench\[plot\]'"):
        plot.draw([RECORDED], ["run.json"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a$b^c$d", "$\\frac{", "x\x1b[31m\x00\u202e", "\ud800", "two\nlines", "<svg>&"])
def test_any_name_is_drawn(name: str) -> None:
    """Any name from a file is drawn as plain text, without formulas or control codes."""
    results = [replace(result, kernel=name, size={name: 3}) for result in RECORDED.results[:1]]
    device = replace(RECORDED.devices[0], name=name)
    file = replace(RECORDED, results=results, devices=[device])
    content = plot.render(plot.draw([file], [name], "ladder"), "svg")
    shown = ElementTree.fromstring(content)
    assert shown.tag.endswith("svg")
    assert not re.search(rb"[\x00-\x08\x0b-\x1f]", content)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), pytest.param("pdf", b"%PDF", marks=pytest.mark.slow)]
)
def test_command(cudabench: Runner, tmp_path: Path, suffix: str, magic: bytes) -> None:
    """The suffix chooses the format, and the same results give the same bytes."""
    (tmp_path / "run.json").write_text(RECORDED.text())
    for name in ("one", "two"):
        ran = cudabench("plot", "run.json", "-o", f"{name}.{suffix}")
        assert (ran.code, ran.out, ran.err) == (0, "", "")
    content = (tmp_path / f"one.{suffix}").read_bytes()
    assert content.startswith(magic)
    assert content == (tmp_path / f"two.{suffix}").read_bytes()
    if suffix == "svg":
        assert ElementTree.fromstring(content).tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("run.json", 2, "write: cudabench plot run.json -o plot.svg"),
        ("-o x.svg", 2, "plot takes at least one results file"),
        (
            "run.json -o x.svq",
            2,
            "--output x.svq needs the ending of a picture: use .svg, .png, .pdf. Did you mean 'svg'?",
        ),
        ("run.json -o no/x.svg", 1, "the folder no does not exist"),
        ("none.json -o x.svg", 1, "none.json: no such file."),
        ("run.json -o x.svg --kind pie", 2, "'pie' is not one of"),
    ],
)
def test_bad_input(cudabench: Runner, tmp_path: Path, words: str, code: int, message: str) -> None:
    """Each bad command line gives one message and its exit code, and writes no file."""
    (tmp_path / "run.json").write_text(RECORDED.text())
    ran = cudabench("plot", *words.split())
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
