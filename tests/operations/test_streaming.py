"""vecadd, distance, pi, matvec, grayscale and blur: references, geometry, refusals, pictures, and blur's options."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench import operations
from cudabench.devices.sim import poisoned_array
from cudabench.errors import CudabenchError, UsageError
from cudabench.measure import verify
from cudabench.operations import blur, distance, images, matvec, pi, shared
from cudabench.records.plan import Problem
from tests.ladders import build, needs_compiler, problem, simulated, simulator

# Inputs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int32", "int64"])
@pytest.mark.parametrize("size", [100, 255, 400])
def test_pieces_of_random_arrays_are_what_one_thread_draws(
    monkeypatch: pytest.MonkeyPatch, dtype: str, size: int
) -> None:
    """Drawing an array in pieces with several threads gives the numbers of one generator, also after an odd length."""
    whole = np.random.default_rng(7)
    serial = [shared.random_array(whole, (size, 3), dtype) for _ in range(3)]
    monkeypatch.setattr(shared, "PIECE", 64)
    parted = np.random.default_rng(7)
    assert all(np.array_equal(shared.random_array(parted, (size, 3), dtype), one) for one in serial)


# References ----------------------------------------------------------------------------------------------------------


@pytest.mark.distance
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_distance_is_that_of_exact_arithmetic(dtype: str) -> None:
    """The reference agrees with a sum of fractions, and the largest sum of integers fits in 64 bits."""
    at = problem("distance", 257, dtype=dtype)
    arrays = distance.inputs(at)
    exact = sum(
        (Fraction(a) - Fraction(b)) ** 2 for a, b in zip(arrays["a"].tolist(), arrays["b"].tolist(), strict=True)
    )
    assert distance.reference(at, arrays)["out"][0] == pytest.approx(math.sqrt(exact), rel=1e-15)
    assert (2**16 - 1) ** 2 * (2**31 - 1) < 2**63


@pytest.mark.pi
@pytest.mark.parametrize("n", [1, 2, 33, 1000])
def test_pi_is_the_midpoint_rule(n: int) -> None:
    """The reference is the sum of the midpoint rule, not pi."""
    exact = sum(Fraction(4) / (1 + Fraction(2 * i + 1, 2 * n) ** 2) for i in range(n)) / n
    assert pi.midpoint_sum(n) == pytest.approx(float(exact), rel=1e-15)


@pytest.mark.pi
def test_pi_from_the_formula_joins_the_sum() -> None:
    """Where the reference switches from the sum to the formula, the error of the rule is h^2 / 12."""
    n = pi.DIRECT
    assert pi.midpoint_sum(n) == pytest.approx(math.pi + 1 / (12 * n * n), abs=1e-15)
    assert pi.midpoint_sum(2 * n) == pytest.approx(math.pi, abs=1e-12)


@pytest.mark.pi
def test_pi_reports_its_error() -> None:
    """The figures have the error against pi and the error of the rule."""
    at = problem("pi", 10)
    figures = pi.figures(at, {}, {"out": np.array([3.2])})
    assert figures["error_against_pi"] == pytest.approx(3.2 - math.pi)
    assert figures["error_of_the_rule"] == pytest.approx(1 / 1200, rel=0.01)


@pytest.mark.matvec
def test_matvec_reference_leaves_the_padding_out() -> None:
    """The product uses only the columns; the padding between rows is NaN."""
    at = problem("matvec", 5, 7)
    arrays = matvec.inputs(at)
    assert arrays["A"].shape == (5, 8)
    assert np.isnan(arrays["A"][:, 7:]).all()
    expected = [
        math.fsum(float(a) * float(x) for a, x in zip(row, arrays["x"], strict=False)) for row in arrays["A"][:, :7]
    ]
    assert matvec.reference(at, arrays)["y"] == pytest.approx(expected, rel=1e-14)


@pytest.mark.matvec
@pytest.mark.parametrize("cols", [64, 2**14, 2**18])
def test_matvec_tolerance_sees_a_missing_product(cols: int) -> None:
    """The tolerance is smaller than a missing product, and larger than the error of one long chain of additions."""
    at = problem("matvec", 8, cols)
    arrays = matvec.inputs(at)
    chain = np.cumsum(arrays["A"][:, :cols] * arrays["x"], axis=1, dtype=np.float32)[:, -1]
    tolerance = matvec.tolerance(at)
    assert verify.compare(matvec.reference(at, arrays)["y"], chain, tolerance).mismatches == 0
    assert tolerance.atol + tolerance.rtol * 3 * cols**0.5 < 0.1


@pytest.mark.grayscale
def test_grey_is_the_weighted_mean_rounded() -> None:
    """Every grey value is the exact weighted sum, with halves rounded up."""
    at = problem("grayscale", 17, 19)
    operation = operations.get("grayscale")
    arrays = operation.inputs(at)
    grey = operation.reference(at, arrays)["grey"]
    for (r, g, b), level in zip(arrays["rgb"].reshape(-1, 3).tolist(), grey.reshape(-1).tolist(), strict=True):
        exact = Fraction(21 * r + 72 * g + 7 * b, 100)
        assert level == math.floor(exact + Fraction(1, 2))


@pytest.mark.blur
@pytest.mark.parametrize(("dtype", "radius", "channels"), list(product(["float32", "uint8"], [0, 1, 3, 9], [1, 3])))
def test_blur_is_the_mean_of_the_neighbours_inside(dtype: str, radius: int, channels: int) -> None:
    """Each element is the mean of its neighbours by brute force, also with a radius beyond the picture."""
    at = problem("blur", 7, 9, dtype=dtype, radius=radius, channels=channels)
    arrays = blur.inputs(at)
    out = blur.reference(at, arrays)["out"].reshape(7, 9, channels)
    source = arrays["in"].reshape(7, 9, channels).astype(np.float64)
    for y, x in product(range(7), range(9)):
        near = source[max(0, y - radius) : y + radius + 1, max(0, x - radius) : x + radius + 1]
        mean = near.reshape(-1, channels).mean(axis=0)
        expected = np.floor(mean + 0.5 + 1e-9) if dtype == "uint8" else mean
        assert out[y, x] == pytest.approx(expected, rel=1e-12)


@pytest.mark.blur
def test_blur_counts_four_at_a_corner_and_six_at_an_edge() -> None:
    """With radius 1 a pixel has 4, 6 or 9 neighbours inside the picture."""
    counts = np.outer(*(blur.window(np.ones(length, int), 1, 0) for length in (4, 5)))
    assert counts[0].tolist() == [4, 6, 6, 6, 4]
    assert counts[1].tolist() == [6, 9, 9, 9, 6]


@pytest.mark.parametrize(
    ("name", "size", "options", "nbytes", "flops"),
    [
        ("vecadd", (1000,), {}, 12_000, 1000),
        ("distance", (1000,), {}, 8_000, 3000),
        ("pi", (1000,), {}, 0, 6000),
        ("matvec", (10, 7), {}, 4 * (70 + 17), 140),
        ("grayscale", (10, 7), {}, 280, 350),
        ("blur", (10, 7), {"radius": 2, "channels": 3}, 2 * 210 * 4, 25 * 210),
    ],
)
def test_declared_work(name: str, size: tuple[int, ...], options: dict[str, Any], nbytes: int, flops: int) -> None:
    """The declared bytes and operations are those of the formulas."""
    operation, at = operations.get(name), problem(name, *size, **options)
    assert operation.bytes(at) == nbytes
    assert operation.flops is not None
    assert operation.flops(at) == flops


# Geometry and refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernel", "request_", "grid"),
    [
        ("vecadd", "naive", {"size": (1000,)}, (4, 1, 1)),
        ("vecadd", "vector", {"size": (1025,)}, (2, 1, 1)),
        ("vecadd", "vector", {"size": (1025,), "dtype": "float64"}, (3, 1, 1)),
        ("vecadd", "grid-stride", {"size": (2**30,)}, (4224, 1, 1)),
        ("distance", "two-pass", {"size": (100,)}, (1, 1, 1)),
        ("distance", "single-pass", {"size": (2**28,)}, (528, 1, 1)),
        ("matvec", "naive", {"size": (1000, 5)}, (4, 1, 1)),
        ("matvec", "block", {"size": (1000, 5)}, (1000, 1, 1)),
        ("matvec", "warp", {"size": (1000, 5), "block": (100,)}, (334, 1, 1)),
        ("matvec", "short", {"size": (1000, 8), "block": (128,)}, (4, 1, 1)),
        ("grayscale", "naive", {"size": (62, 76)}, (5, 4, 1)),
        ("grayscale", "vector", {"size": (62, 76)}, (2, 1, 1)),
        ("blur", "naive", {"size": (62, 76), "options": {"channels": 3}}, (15, 4, 1)),
        ("blur", "vector", {"size": (62, 76), "block": (32, 2)}, (1, 6, 1)),
        ("blur", "strip", {"size": (62, 121)}, (3 + 5, 1, 1)),
        ("blur", "strip", {"size": (62, 480), "dtype": "uint8", "block": (32, 1)}, (45 + 5, 1, 1)),
        ("blur", "pairs", {"size": (62, 480), "dtype": "uint8", "block": (32, 1)}, (45 + 7, 1, 1)),
        ("blur", "pairs", {"size": (62, 30000), "dtype": "uint8"}, (132 + 111, 1, 1)),
        ("blur", "pairs", {"size": (16384, 16384), "dtype": "uint8"}, (66 + 14342, 1, 1)),
        ("blur", "bands", {"size": (62, 4800), "dtype": "uint8"}, (9, 1, 1)),
        ("blur", "bands", {"size": (15999, 16001), "dtype": "uint8"}, (66 + 14400, 1, 1)),
        ("blur", "stacked", {"size": (62, 4800), "dtype": "uint8"}, (40, 1, 1)),
        ("blur", "stacked", {"size": (62, 4832), "dtype": "uint8"}, (41, 1, 1)),
        ("blur", "stacked", {"size": (62, 4801), "dtype": "uint8"}, (113 + 44, 1, 1)),
        ("blur", "stacked", {"size": (62, 480)}, (32, 1, 1)),
        ("blur", "stacked", {"size": (62, 121)}, (3 + 5, 1, 1)),
    ],
)
def test_grid(name: str, kernel: str, request_: dict[str, Any], grid: tuple[int, int, int]) -> None:
    """The default grid covers the problem, and a striding kernel has a small grid."""
    assert build(name, kernel, **request_)[1][0].grid == grid


@pytest.mark.parametrize(
    ("name", "kernel", "request_", "message"),
    [
        ("vecadd", "naive", {"block": (32, 8)}, "takes 1, such as 256"),
        ("matvec", "warp", {"block": (31,)}, "a block needs at least 32 threads"),
        ("distance", "shuffle", {"grid": (2**20 + 1,)}, "more partial sums than"),
        ("pi", "steps", {"grid": (2**20 + 1,)}, "more than"),
        ("blur", "naive", {"options": {"radius": -1}}, "--radius -1 is out of range"),
        ("blur", "naive", {"options": {"channels": 5}}, "--channels 5 is out of range"),
        ("blur", "vector", {"options": {"radius": 8}}, "this kernel takes up to 7"),
        ("blur", "strip", {"options": {"radius": 8}}, "this kernel takes up to 7"),
        ("blur", "strip", {"block": (7, 3)}, "a block needs at least 32 threads"),
        ("blur", "pairs", {"dtype": "uint8", "options": {"radius": 8}}, "this kernel takes up to 7"),
        (
            "blur",
            "bands",
            {"dtype": "uint8", "options": {"radius": 2, "channels": 3}},
            "at most 4 bytes away",
        ),
        ("blur", "bands", {"dtype": "uint8", "block": (1024, 1)}, "registers for 512 threads"),
        ("blur", "smem", {"options": {"radius": 200}}, "KiB of shared memory"),
        ("grayscale", "naive", {"dtype": "float32"}, "lacks kernels for 'float32'"),
    ],
)
def test_refusals(name: str, kernel: str, request_: dict[str, Any], message: str) -> None:
    """A request that a kernel cannot run is refused with the reason, before it runs."""
    with pytest.raises(UsageError, match=message):
        build(name, kernel, **request_)


@pytest.mark.blur
def test_the_ladder_goes_on_without_a_refused_rung() -> None:
    """With a radius too large for registers, those rungs are skipped and the other rungs run."""
    _, ladder = build("blur", size=(50, 50), options={"radius": 20})
    assert [case.kernel for case in ladder if case.skip_reason] == [
        "slide",
        "vector",
        "strip",
        "pairs",
        "bands",
        "stacked",
    ]


@pytest.mark.matvec
def test_split_leaves_the_second_launch_out() -> None:
    """With enough rows for all blocks, `split` writes to y in one launch; a few long rows are split and joined by a
    second launch."""
    _, (many,) = build("matvec", "split", size=(2**15, 4096))
    assert [launch.function for launch in many.launches] == ["matvec_split"]
    assert many.launches[0].arguments[2] == "y"
    operation, (few,) = build("matvec", "split", size=(3, 2**20))
    assert [launch.function for launch in few.launches] == ["matvec_split", "matvec_join"]
    (scratch,) = (buffer for buffer in operation.buffers(few.problem) if buffer.role == "scratch")
    assert scratch.shape[1] >= int(few.launches[1].arguments[3])


@pytest.mark.distance
def test_own_first_pass_keeps_the_second(tmp_path: Path) -> None:
    """A user's function replaces the first launch of a rung, and the second launch stays."""
    own = tmp_path / "own.cu"
    own.write_text('extern "C" __global__ void mine(const float *a, const float *b, float *partial, int n) {}\n')
    _, (case,) = build("distance", "two-pass", source=str(own), size=(100,))
    assert [launch.function for launch in case.launches] == ["mine", "distance_finish"]


# Pictures ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Return the path of a colour picture of 62 rows by 76 columns."""
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "photo.png"
    levels = np.random.default_rng(5).integers(0, 256, (62, 76, 3), dtype=np.uint8)
    image.fromarray(levels).save(path)
    return path


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("grayscale",), (62, 76)),
        pytest.param(("blur", "-t", "uint8", "-k", "vector"), (62, 76, 3), marks=pytest.mark.slow),
        (("blur", "-k", "naive", "--radius", "2"), (62, 76, 3)),
    ],
)
def test_picture_in_and_out(
    cudabench: Callable[..., Any], picture: Path, words: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    """A picture sets the size, and --save writes the result as a picture."""
    from PIL import Image

    target = picture.with_name("result.png")
    ran = cudabench(*words, "--image", picture, "--save", target, "--device", "sim", "--no-cpu", "--json", "-")
    assert ran.code == 0, ran.err
    assert {tuple(result["size"].values()) for result in ran.json["results"]} == {(62, 76)}
    operation = operations.get(words[0])
    options = {option.name: option.default for option in operation.options} | {"image": str(picture)}
    at = Problem({"rows": 62, "cols": 76}, "uint8", 0, options | ({"radius": 2} if "--radius" in words else {}))
    (expected,) = operation.reference(at, operation.inputs(at)).values()
    got = np.array(Image.open(target))
    assert got.shape == shape
    assert np.abs(got.astype(int) - expected).max() <= 1


@pytest.mark.blur
def test_grey_picture_has_one_channel(tmp_path: Path) -> None:
    """A grey picture is blurred with one channel."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((5, 6), np.uint8)).save(tmp_path / "grey.png")
    options = {"image": str(tmp_path / "grey.png")}
    assert images.size(options) == (5, 6)
    assert blur.channels(Problem({"rows": 5, "cols": 6}, "uint8", 0, options)) == 1


def test_picture_errors(tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing file, unreadable picture, other size, other channels, bad target and missing Pillow each give their own
    message."""
    (tmp_path / "text.png").write_text("no picture")
    for options, message in (
        ({"image": "nope.png"}, "nope.png does not exist"),
        ({"image": str(tmp_path / "text.png")}, "cannot read it as a picture"),
        ({"save": str(tmp_path / "no" / "x.png")}, "does not exist; make it first"),
        ({"save": str(tmp_path / "x.zzz")}, "'.zzz' is not the ending of a picture format"),
    ):
        with pytest.raises(CudabenchError, match=message):
            build("grayscale", options=options)
    with pytest.raises(UsageError, match="--size 5 5 contradicts"):
        build("grayscale", size=(5, 5), options={"image": str(picture)})
    with pytest.raises(UsageError, match="contradicts the picture, which has 3"):
        build("blur", options={"image": str(picture), "channels": 1})
    monkeypatch.setitem(sys.modules, "PIL", None)
    images._load.cache_clear()
    with pytest.raises(CudabenchError, match=r"pip install 'cudabench\[image\]'"):
        build("grayscale", options={"image": str(picture)})


# In the simulator, beyond the tests of every kernel (test_ladders.py) ------------------------------------------------


def slow(*values: Any) -> Any:
    """Return test parameters that are marked slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.blur
@needs_compiler
@pytest.mark.parametrize(
    ("request_", "sizes"),
    [
        ({}, [(40, 200)]),
        ({"options": {"radius": 3, "channels": 3}}, [(1, 1), (31, 33), (10, 64)]),
        ({"options": {"radius": 40}}, [(13, 33)]),
        ({"dtype": "uint8"}, [(20, 208)]),
        ({"dtype": "uint8", "options": {"radius": 2, "channels": 3}}, [(31, 33)]),
    ],
    ids=str,
)
def test_blur_options(request_: dict[str, Any], sizes: list[tuple[int, int]]) -> None:
    """Every rung is right for several radii, numbers of channels and types."""
    assert [fault for size in sizes for fault in simulated("blur", size=size, **request_)] == []


@pytest.mark.slow
@pytest.mark.blur
@needs_compiler
@pytest.mark.parametrize(
    ("request_", "sizes"),
    [
        ({}, [(70, 300), (13, 1003)]),
        ({"block": (9, 8), "options": {"radius": 7, "channels": 4}}, [(40, 103)]),
        ({"dtype": "uint8"}, [(33, 503), (9, 1024)]),
        ({"dtype": "uint8", "options": {"radius": 3, "channels": 3}}, [(40, 173), (40, 176)]),
        ({"dtype": "uint8", "options": {"radius": 0}}, [(20, 700)]),
    ],
    ids=str,
)
def test_blur_strips(request_: dict[str, Any], sizes: list[tuple[int, int]]) -> None:
    """The strip kernels are right for pictures of several strips, with aligned and with ragged rows."""
    rungs = ("strip", "stacked", *(("pairs",) if request_.get("dtype") == "uint8" else ()))
    assert [fault for rung in rungs for size in sizes for fault in simulated("blur", rung, size=size, **request_)] == []


@pytest.mark.slow
@pytest.mark.blur
@needs_compiler
@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((23, 64), {"radius": 1, "channels": 3}),
        ((3, 16), {"radius": 2}),
        slow((12, 32), {"radius": 2, "channels": 2}),
        slow((21, 1200), {"radius": 4}),
        slow((5, 48), {"radius": 0}),
    ],
)
def test_blur_bands(size: tuple[int, int], options: dict[str, Any]) -> None:
    """`bands` is right for every reach, in pictures of several strips and in pictures that fit in one lane."""
    assert simulated("blur", "bands", size=size, dtype="uint8", options=options) == []


@pytest.mark.sampled(4)
@pytest.mark.blur
@needs_compiler
@pytest.mark.parametrize(
    ("size", "request_"),
    [
        ((40, 1040), {"dtype": "uint8"}),  # warps inside a row, at either end of it, and at both ends
        ((40, 960), {"dtype": "uint8", "options": {"radius": 3}}),  # each row of blocks has separate strips
        ((40, 960), {"dtype": "uint8", "defines": {"STACK_APART": "0"}}),
        ((70, 1200), {"options": {"radius": 3}}),
        ((40, 515), {"dtype": "uint8", "options": {"radius": 2}}),
        ((1, 16), {"dtype": "uint8"}),
        ((3, 4), {}),
        slow((90, 400), {"options": {"radius": 7, "channels": 4}, "block": (45, 1)}),
        slow((90, 407), {"dtype": "uint8", "options": {"radius": 5, "channels": 2}, "block": (33, 3)}),
        slow((33, 640), {"dtype": "uint8", "options": {"radius": 0}}),
        slow((33, 640), {"defines": {"STACK_ROWS": "7"}, "block": (1024, 1)}),
    ],
    ids=str,
)
def test_blur_stacked(size: tuple[int, int], request_: dict[str, Any]) -> None:
    """`stacked` is right where strips meet vertically, and where one row of blocks ends and the next begins."""
    assert simulated("blur", "stacked", size=size, **request_) == []


@pytest.mark.slow
@pytest.mark.sampled(12)
@needs_compiler
@pytest.mark.parametrize(
    ("name", "rungs", "options"),
    [
        ("grayscale", (), {}),
        slow("blur", (), {}),
        slow("blur", ("pairs",), {"radius": 3}),
        ("blur", ("stacked",), {"radius": 2}),
        slow("blur", ("stacked",), {"radius": 3, "channels": 3}),
        slow("blur", ("stacked",), {"radius": 7}),
        ("blur", ("bands",), {"radius": 3}),
        slow("blur", ("bands",), {"radius": 1, "channels": 3}),
        slow("blur", ("strip", "pairs"), {"radius": 6}),
        slow("blur", ("strip", "pairs"), {"radius": 7}),
    ],
)
def test_bytes_are_exact_but_for_halves(name: str, rungs: tuple[str, ...], options: dict[str, Any]) -> None:
    """The rungs with integer arithmetic agree exactly with the reference for uint8."""
    sizes = [(30, 2160) if "bands" in rungs else (40, 728)]  # warps with neighbours on all sides; ragged rows
    if "stacked" in rungs:
        sizes.append((23, 1040))  # the edge of the picture lies in the strips
    operation = operations.get(name)
    for case in chain.from_iterable(build(name, *rungs, size=s, dtype="uint8", options=options)[1] for s in sizes):
        if case.skip_reason or case.function in ("grayscale_naive", "grayscale_words"):
            continue
        inputs = operation.inputs(case.problem)
        arrays = {
            b.name: inputs[b.name] if b.role == "in" else poisoned_array(b.shape, b.dtype)
            for b in operation.buffers(case.problem)
        }
        simulator().run(case, arrays, trace=False, progress=lambda fraction: None)
        for key, expected in operation.reference(case.problem, inputs).items():
            assert np.array_equal(arrays[key], expected), case.kernel
