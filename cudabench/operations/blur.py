"""Box blur: in each channel, a pixel becomes the mean of its (2 r + 1)^2 neighbours, without those outside of the
picture.

A row of COLS pixels has COLS * CHANNELS elements; the kernels' grids cover elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.errors import UsageError
from cudabench.operations import images
from cudabench.operations.shared import Arrays, in_strips, itemsize, number, pieces, random_array, rungs, unit
from cudabench.records.launch import WARP, Dim, cdiv
from cudabench.records.plan import Baseline, Buffer, Geometry, Kernel, Operation, Option, Peer, Problem, Tolerance

MAX_RADIUS = 1000
MAX_CHANNELS = 4
# The largest number of blocks that compute the edge of the picture: two for each SM of a large card. For blur_pairs it
# is one for each SM, because blur_pairs is faster if the edge's blocks occupy a smaller part of the SMs. For pictures
# of at least LARGE elements blur_pairs has half as many; the edge is still ready before the rest of the picture.
MOST_BORDER_BLOCKS, MOST_BORDER_BLOCKS_OF_PAIRS = 264, 132
LARGE = 1 << 27  # elements
rung = rungs("blur", 128, 1)
# The CPU processes this many bytes of rows at a time, so that the rows stay in its cache.
STRIP_BYTES = 1 << 18


# Options -------------------------------------------------------------------------------------------------------------


def radius(problem: Problem) -> int:
    """Return the radius. Raises UsageError if it is out of range."""
    value = int(problem.options.get("radius", 1))
    if not 0 <= value <= MAX_RADIUS:
        raise UsageError(f"--radius {value} is out of range: it is 0 to {MAX_RADIUS}.")
    return value


def channels(problem: Problem) -> int:
    """Return the number of channels (values of a pixel): that of the picture or of the option --channels, or 1 if
    neither is given.

    Raises UsageError if the two disagree.
    """
    channels = problem.options.get("channels")
    picture = images.load(problem.options)
    if channels is not None and not 1 <= channels <= MAX_CHANNELS:
        raise UsageError(f"--channels {channels} is out of range: it is 1 to {MAX_CHANNELS}.")
    if picture is None:
        return 1 if channels is None else int(channels)
    if channels not in (None, picture.shape[2]):
        raise UsageError(f"--channels {channels} contradicts the picture, which has {picture.shape[2]}: leave it out.")
    return int(picture.shape[2])


# Geometry ------------------------------------------------------------------------------------------------------------


def columns(g: Geometry) -> int:
    """Return the number of elements in a row."""
    return elements(g.problem) // g.size["rows"]


def over_elements(across: str = "", down: str = "") -> Callable[[Geometry], Dim]:
    """Return a function that computes the grid over all elements. `across` and `down` name the constants that set how
    many columns and rows a thread has; '' means one."""
    return lambda g: (
        cdiv(columns(g), g.block[0] * (g[across] if across else 1)),
        cdiv(g.size["rows"], g.block[1] * (g[down] if down else 1)),
        1,
    )


def too_large(g: Geometry, most: int) -> str | None:
    """Return the reason why a kernel refuses the radius, or None if it is at most `most`, so that the kernel's sums fit
    the registers."""
    reach, why = radius(g.problem), "needs too many sums in registers: this kernel takes up to"
    return f"--radius {reach} {why} {most}" if reach > most else None


def sliding_sums_fit(g: Geometry, across: int = 1) -> str | None:
    """Return the reason why the sums of a thread that slides down `across` columns do not fit registers, or None."""
    return too_large(g, (min(g["MAX_SUMS"] // across, g["MAX_K"]) - 1) // 2)


def strips_fit(g: Geometry) -> str | None:
    """Return the reason why a kernel that divides the picture into strips refuses the block (less than a warp) or the
    radius (too large), or None."""
    if g["WARPS"] == 0:
        return f"warps slide down, so a block needs at least {WARP} threads"
    return too_large(g, g["MAX_STRIP"])


def has_writers(g: Geometry) -> str | None:
    """Return None if a warp has lanes that write, besides the lanes that only give their columns to neighbours; else
    return the rule for BYTES."""
    if radius(g.problem) > g["MAX_STRIP"] or writers(g) > 0:
        return None
    return f"more: a radius of {radius(g.problem)} reaches over all {WARP} lanes"


def writers(g: Geometry) -> int:
    """Return how many lanes of a warp write results. With ragged rows, one more lane at each end of the warp does not
    write."""
    return WARP - 2 * g["SIDE"] - 2 * ragged(g)


def ragged(g: Geometry, span: int = 0) -> int:
    """Return 1 if the row length is not a multiple of `span` elements (by default, a lane's elements), else 0."""
    return int(columns(g) % (span or g["SPAN"]) > 0)


def over_strips(rows: str) -> Callable[[Geometry], Dim]:
    """Return a function that computes the grid: the blocks of the edge, then enough blocks for a warp per strip.

    `rows`: the name of the constant that sets the rows of a strip.
    """

    def grid(g: Geometry) -> Dim:
        strips = cdiv(cdiv(columns(g), g["SPAN"]) + ragged(g), writers(g))
        return (g["BORDER_BLOCKS"] + cdiv(strips * cdiv(g.size["rows"], g[rows]), g["WARPS"]), 1, 1)

    return grid


def edge_blocks(g: Geometry, margin: int, most: int) -> str:
    """Return the number of blocks that fill in the edge, at most `most`, as text.

    Each thread of these blocks slides down one column of the left or right edge, or computes an element of the first or
    last rows.
    """
    width, rows = columns(g), g.size["rows"]
    whole_rows = min(rows, 2 * radius(g.problem) + 1) if width >= 2 * margin else rows
    sliding_sums_fit = cdiv(rows - whole_rows, g["BORDER_ROWS"]) * 2 * margin
    return str(min(most, cdiv(max(sliding_sums_fit, whole_rows * width), g.threads)))


def with_edge(g: Geometry) -> dict[str, str]:
    """Return the compiler define for the number of blocks that fill in the edge."""
    return {"BORDER_BLOCKS": edge_blocks(g, g["MARGIN"], MOST_BORDER_BLOCKS)}


def paired(g: Geometry) -> dict[str, str]:
    """Return the compiler defines of `pairs` and `bands`: the blocks that fill in the edge, and 16 bytes per lane.

    For ragged rows, which need more registers, fewer rows are loaded ahead.
    """
    ahead = {"PAIR_AHEAD": "3"} if columns(g) % 16 else {}
    large = elements(g.problem) >= LARGE and radius(g.problem) <= 1
    most = MOST_BORDER_BLOCKS_OF_PAIRS // 2 if large else MOST_BORDER_BLOCKS_OF_PAIRS
    return {"BYTES": "16", "BORDER_BLOCKS": edge_blocks(g, g["REACH"] + 16, most), **ahead}


def stacked(g: Geometry) -> dict[str, str]:
    """Return the compiler defines of `stacked`. For rows that are a multiple of 16 bytes, they set 16 bytes per lane.
    For other rows, they set the number of blocks for the edge and, for uint8, also longer strips."""
    if not ragged(g, 16 // g.itemsize):
        return {"BYTES": "16", "STACK_APART": str(int(strips_restart(g)))}
    return with_edge(g) if g.itemsize > 1 else {**paired(g), "STACK_ROWS": "5"}


def strips_restart(g: Geometry) -> bool:
    """Return whether the work grows by at most 1/64 if strips begin anew in each row of blocks, instead of continuing
    from the end of one row of blocks at the start of the next row."""
    span = 16 // g.itemsize
    side = cdiv(radius(g.problem) * channels(g.problem), span)
    groups, most = columns(g) // span, WARP - 2 * side
    return 64 * cdiv(groups, most) * most <= 65 * (groups + side)


def over_stacks(g: Geometry) -> Dim:
    """Return the grid of `stacked`, in which the warps of a block process strips that lie below each other. For rows
    that are a multiple of 16 bytes the grid has no blocks for the edge."""
    if ragged(g) and g.itemsize > 1:
        return over_strips("STRIP_ROWS")(g)
    groups, stacks = columns(g) // g["SPAN"], cdiv(g.size["rows"], g["WARPS"] * g["STACK_ROWS"])
    if ragged(g):
        return (g["BORDER_BLOCKS"] + cdiv(groups + 2, writers(g)) * stacks, 1, 1)
    if g["STACK_APART"]:
        return (cdiv(groups, writers(g)) * stacks, 1, 1)
    return (cdiv((groups + g["SIDE"]) * stacks, writers(g)), 1, 1)


def over_bands(g: Geometry) -> Dim:
    """Return the grid of `bands`, with a warp for each band of rows of each strip. For ragged rows `bands` has the grid
    of `pairs`."""
    if ragged(g):
        return over_strips("PAIR_ROWS")(g)
    groups = columns(g) // g["BAND_GROUP"] + 1
    warps = cdiv(groups * cdiv(g.size["rows"], g["BAND_ROWS"]), 2 * WARP - g["BAND_LENT"])
    return (cdiv(warps, g["WARPS"]), 1, 1)


def bands_fit(g: Geometry) -> str | None:
    """Return the reason why `bands` refuses the radius (neighbours are further than the adjacent lane's word) or the
    block (too few or too many threads), or None."""
    if radius(g.problem) * channels(g.problem) > g["MOST_REACH"]:
        return f"neighbours are at most {g['MOST_REACH']} bytes away, --radius times the channels"
    if g.threads > g["BAND_THREADS"]:
        return f"the sums leave registers for {g['BAND_THREADS']} threads"
    return strips_fit(g)


def tiled(name: str, sums: bool) -> Kernel:
    """Return a kernel with a tile of the picture in shared memory; `sums`: whether shared memory also has sums along
    rows."""

    def shared(g: Geometry) -> int:
        return cdiv(g["TILE_X"] * g["TILE_Y"] * g.itemsize, 16) * 16 + (g.block[0] * g["TILE_Y"] * 4 if sums else 0)

    return rung(name, over_elements(), (16, 16), shared_bytes=shared)


# The operation -------------------------------------------------------------------------------------------------------


def shape(problem: Problem) -> tuple[int, ...]:
    """Return the shape of the picture: (rows, columns), or (rows, columns, channels) if there are several channels."""
    size = (problem.size["rows"], problem.size["cols"])
    return size if channels(problem) == 1 else (*size, channels(problem))


def inputs(problem: Problem) -> Arrays:
    """Return the arrays `in` and `radius`; `in` is the picture of --image with levels 0 to 255, or random elements."""
    picture = images.load(problem.options)
    if picture is None:
        picture = random_array(np.random.default_rng(problem.seed), shape(problem), problem.dtype)
    return {"in": picture.reshape(shape(problem)).astype(problem.dtype), "radius": np.array(radius(problem))}


def window(array: np.ndarray, reach: int, axis: int) -> np.ndarray:
    """Return for each element the sum of itself and of the existing neighbours along an axis, `reach` on each side."""
    sums: np.ndarray = array.copy()
    into, out_of = np.moveaxis(sums, axis, 0), np.moveaxis(array, axis, 0)
    for d in range(1, min(reach, len(into) - 1) + 1):
        into[d:] += out_of[:-d]
        into[:-d] += out_of[d:]
    return sums


def blur(source: np.ndarray, target: np.ndarray, reach: int, wide: type, strip: slice) -> None:
    """Fill the rows `strip` of the target with means. Sums have the type `wide`; the rows are processed a few at a
    time."""
    height, width = source.shape[:2]
    rows = max(4 * reach, STRIP_BYTES // (source[0].size * np.dtype(wide).itemsize), 1)
    down, across = (window(np.ones(length, int), reach, 0) for length in (height, width))
    across = across.reshape(-1, *[1] * (source.ndim - 2))
    for piece in pieces(strip, rows):
        first_row = max(piece.start - reach, 0)
        near: np.ndarray = source[first_row : piece.stop + reach].astype(wide)
        sums = window(window(near, reach, 1), reach, 0)[piece.start - first_row : piece.stop - first_row]
        counts = down[piece].reshape(-1, *[1] * (source.ndim - 1)) * across
        if sums.dtype.kind == "f":
            np.divide(sums, counts, out=target[piece], casting="same_kind")
        else:
            np.floor_divide(sums + counts // 2, counts, out=target[piece], casting="unsafe")


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the means: in float64 for floats; for whole numbers they are exact, with halves rounded up."""
    floats = arrays["in"].dtype.kind == "f"
    out = np.empty(arrays["in"].shape, np.float64 if floats else arrays["in"].dtype)
    blur(arrays["in"], out, radius(problem), np.float64 if floats else np.int64, slice(0, len(out)))
    return {"out": out}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Blur with NumPy: sums along rows, then along columns; each thread has a strip of the rows."""
    source, target, reach = arrays["in"], outputs["out"], int(arrays["radius"])
    wide = np.float32 if source.dtype.kind == "f" else np.int32
    in_strips(len(target), threads, lambda strip: blur(source, target, reach, wide, strip))


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: for floats an upper bound of the sum's rounding error, for uint8 one level."""
    if problem.dtype == "uint8":
        return Tolerance(0.0, 1.0, "some kernels cut instead of rounding to the nearest level")
    reason = "a sum of n positive terms rounds n - 1 times, the mean thrice more at most"
    return Tolerance(((2 * radius(problem) + 1) ** 2 + 2) * unit(problem), 0.0, reason)


def arguments(problem: Problem) -> tuple[object, ...]:
    """Return the arguments that all kernels take."""
    return ("in", "out", np.int32(problem.size["cols"]), np.int32(problem.size["rows"]))


def elements(problem: Problem) -> int:
    """Return the number of elements of the picture."""
    return problem.size["rows"] * problem.size["cols"] * channels(problem)


def save(problem: Problem, outputs: Arrays) -> None:
    """Write the blurred picture if the options request it."""
    picture = outputs["out"]
    if picture.dtype.kind == "f" and not problem.options.get("image"):
        # Random elements are in [0, 1); an image file needs 0 to 255.
        picture = picture * 255
    images.save(problem.options, picture)


BORDER = {"BORDER_BLOCKS": number(1, 1 << 16)}

OPERATION = Operation(
    name="blur",
    summary="out = mean of the (2 r + 1)^2 neighbours inside the picture",
    source="blur.cu",
    dimensions=("rows", "cols"),
    default_size=(4320, 7680),
    simulated_size=(1080, 1920),
    block_dimensions=2,
    dtypes={"float32": "float", "uint8": "unsigned char"},
    kernels=(
        rung("naive", over_elements(), block=(16, 16)),
        tiled("smem", sums=False),
        tiled("separable", sums=True),
        rung("slide", over_elements(down="ROWS"), constants={"TURNS": number(1, 64)}, refuses=sliding_sums_fit),
        rung(
            "vector",
            over_elements("WIDE", "ROWS"),
            constants={"TURNS": number(1, 64), "WIDE": number(1, 16, power=True)},
            refuses=lambda g: sliding_sums_fit(g, g["WIDE"]),
            # A thread computes 16 bytes at a time, but only 8 elements if each element is one byte.
            defines=lambda g: {"WIDE": str(8 if g.itemsize == 1 else 16 // g.itemsize)},
        ),
        rung(
            "strip",
            over_strips("STRIP_ROWS"),
            constants={"BYTES": number(4, 16, has_writers, power=True), "STRIP_TURNS": number(1, 64), **BORDER},
            refuses=strips_fit,
            defines=with_edge,
            chapter="blur_strips.cu",
        ),
        rung(
            "pairs",
            over_strips("PAIR_ROWS"),
            constants={"PAIR_ROWS": number(1, 4096), "PAIR_AHEAD": number(1, 16), **BORDER},
            refuses=strips_fit,
            defines=paired,
            dtypes=("uint8",),
            chapter="blur_strips.cu",
        ),
        rung(
            "bands",
            over_bands,
            constants={"BAND_ROWS": number(1, 4096), "BAND_AHEAD": number(1, 16)},
            refuses=bands_fit,
            defines=paired,
            passed=lambda g: arguments(g.problem),
            shared_bytes=lambda g: 0 if ragged(g) else g["WARPS"] * g["BAND_RING"] * g["BAND_ROW"],
            dtypes=("uint8",),
            architecture="sm_80",
            chapter="blur_bands.cu",
        ),
        rung(
            "stacked",
            over_stacks,
            constants={
                "STACK_ROWS": number(1, 64),
                "STACK_THREADS": number(32, 2048),
                "STACK_APART": number(0, 1),
                **BORDER,
            },
            refuses=strips_fit,
            defines=stacked,
            chapter="blur_stacked.cu",
        ),
    ),
    buffers=lambda problem: (
        Buffer("in", shape(problem), problem.dtype, "in"),
        Buffer("out", shape(problem), problem.dtype, "out"),
    ),
    arguments=arguments,
    inputs=inputs,
    reference=reference,
    baseline=Baseline("numpy, sums along rows, then along columns, in strips", on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: 2 * elements(problem) * itemsize(problem),
    bytes_formula="2 * ROWS * COLS * CHANNELS * sizeof(T)",
    flops=lambda problem: (2 * radius(problem) + 1) ** 2 * elements(problem),
    flops_formula="(2 r + 1)^2 * ROWS * COLS * CHANNELS, by the definition",
    # With running sums a kernel needs only a few operations per element, whatever the radius, and an operation can
    # process four bytes. The smallest number of operations is not known, so it is given as 0.
    least_flops=lambda problem: 0,
    peers=(
        Peer("torch", "torch", "avg_pool2d", ("float32",)),
        Peer("torch-compiled", "torch", "torch.compile: avg_pool2d", ("float32",)),
    ),
    options=(
        Option("radius", int, 1, "R", "Neighbours to each side."),
        Option("channels", int, None, "N", "Values of a pixel. Default: 1 or the picture's."),
        *images.OPTIONS,
    ),
    defines=lambda problem: {
        "RADIUS": str(radius(problem)),
        "CHANNELS": str(channels(problem)),
        "STACK_RAGGED": str(int(problem.size["cols"] * channels(problem) * itemsize(problem) % 16 > 0)),
    },
    size=images.size,
    save=save,
)
