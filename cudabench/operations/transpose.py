"""Matrix transpose: out[x][y] = in[y][x] for a ROWS x COLS matrix, row-major; the output is COLS x ROWS.

In the source of the kernels, COLS is called nx, and ROWS is called ny.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cudabench.operations.shared import (
    Arrays,
    grid_of_tiles,
    grid_over,
    in_static_shared,
    in_strips,
    itemsize,
    number,
    pieces,
    random_array,
    rungs,
)
from cudabench.records.launch import WARP, Dim, cdiv
from cudabench.records.plan import EXACT, Baseline, Buffer, Geometry, Kernel, Operation, Peer, Problem
from cudabench.system.children import processors

CPU_TILE = (64, 256)  # the CPU baseline processes this many rows and columns of the output at a time

# Geometry: which grid covers the matrix ------------------------------------------------------------------------------


over_input, over_output = grid_over("cols", "rows"), grid_over("rows", "cols")
rung = rungs("transpose", 32, 8)


def over_tiles(g: Geometry) -> Dim:
    """Return the grid that has a block for each square tile of the input."""
    return (cdiv(g.size["cols"], g["TILE"]), cdiv(g.size["rows"], g["TILE"]), 1)


def short_tiles(g: Geometry) -> dict[str, str]:
    """Return the compiler defines for a matrix of which one side is at most half of the usual tile's side; {} for other
    matrices.

    The tile is then as short as that side of the matrix, and up to 1024 elements long. If the tile has all rows of the
    matrix, no rows are read ahead (LEAD is 0). The defines also set how many iterations of a loop are in flight at once
    (VUNROLL) and, for elements of at least 4 bytes, for how many resident threads the compiler limits registers
    (RESIDENT). On an H200 the tile needs 43% less time for 3000000 x 3 floats, and 89% less for 3 x 3000000; the other
    settings gain 1 to 5%.
    """
    vec, rows, cols = g["VEC"], g.size["rows"], g.size["cols"]
    wide, high = 16 * vec, 128 if g.itemsize < 4 or g.threads > 256 else 64
    narrow = cols <= wide // 2
    if narrow:
        short = max(vec, 1 << (cols - 1).bit_length())
        chosen = {"VTILE_X": short, "VTILE_Y": min(wide * high // short, 1024), "LEAD": g["LEAD"]}
    elif rows <= high // 2:
        short = max(4, vec, 1 << (rows - 1).bit_length())  # each thread reads four rows
        chosen = {"VTILE_X": min(wide * high // short, 1024), "VTILE_Y": short, "LEAD": 0}
    else:
        return {}
    aligned = rows % vec == 0 and cols % vec == 0
    if g.itemsize >= 4:
        chosen["RESIDENT"] = 1536 if aligned else 1280
    if aligned:
        chosen["VUNROLL"] = 1
    elif not narrow or (cols % vec == 0 and g.itemsize >= 4):
        chosen["VUNROLL"] = 4
    return {name: str(value) for name, value in chosen.items()}


def fetched_tiles(g: Geometry) -> dict[str, str]:
    """Return the compiler defines of the kernel `prefetch`: the defines of the kernel `vector`, and FETCH, how many
    bytes the L2 fetches for a read.

    FETCH is 256 if rows are longer than 256 bytes and not a multiple of 256; else FETCH keeps its default, 128. On an
    H200 and 16384 x 16383 floats, 256 takes 4% less time than 32, and 128 takes 3% less. For aligned rows, 256 takes up
    to 1% more time than 32, and 128 up to 1% less.
    """
    pitch = g.size["cols"] * g.itemsize
    return short_tiles(g) | ({"FETCH": "256"} if pitch > 256 and pitch % 256 else {})


def ragged_tiles(g: Geometry) -> dict[str, str]:
    """Return the compiler defines of `ragged`, the kernel for unaligned rows.

    RLEAD is 0 (no rows are read ahead) if all rows of the output are aligned to 32 bytes; this saves 1.5% of the time
    on an H200 for 16384 x 16383 floats, because no row is read twice. LANES makes the tile narrower for few columns;
    this saves 49% of the time for 1000001 x 33 elements of float16. RAGGED_BLOCKS is 5 (one more block of 256 threads
    per SM) if with 5 blocks all tiles run at once on 132 SMs. A thread then has a quarter fewer registers; the kernel
    takes 8% less time for 1000 x 3333 floats, but would take 1% more for 16384 x 16383.
    """
    lead = 0 if g.size["rows"] * g.itemsize % 32 == 0 else g["RLEAD"]
    chosen = {} if lead else {"RLEAD": "0"}
    across, down = g["RTILE_X"], g["RHIGH"] - lead
    for lanes in (8, 16):
        narrower = (lanes if g.itemsize < 4 else lanes - 1) * g["VEC"]
        if g.size["cols"] <= narrower < across:
            chosen["LANES"], across = str(lanes), narrower
    # Do not replace tiles that are impossible, because a later rule refuses them. With small elements, the shared
    # memory of an SM has no space for one more tile, so RAGGED_BLOCKS is not set.
    complete = g.threads == 256 and across >= 1 and down >= 1 and g.itemsize >= 4
    if complete and cdiv(g.size["cols"], across) * cdiv(g.size["rows"], down) <= 5 * 132:
        chosen["RAGGED_BLOCKS"] = "5"
    return chosen


def read_ahead(value: int, g: Geometry) -> str | None:
    """Check RLEAD, the elements that are read ahead so that 16-byte vectors can be written at aligned addresses.

    Return None if RLEAD is allowed, else the rule. RLEAD may be 0 only if all rows of the output are aligned to 16
    bytes.
    """
    least, most = 16 // g.itemsize, 128 // g.itemsize
    aligned = g.size["rows"] * g.itemsize % 16 == 0
    if (value == 0 and aligned) or (least <= value <= most and value & (value - 1) == 0):
        return None
    return f"{'0 or ' if aligned else ''}a power of two from {least} to {most}"


# Padding: how many unused elements after every row of a tile avoid bank conflicts -----------------------------------


# The function's values are cached, because three kernels need the same padding, and a sweep needs it again for each
# block and element type.
@lru_cache(maxsize=256)
def padding(block: Dim, itemsize: int) -> int:
    """Return the padding, in elements, with which smem-pad needs the fewest wavefronts for a block of (bx, by) threads;
    if several paddings need equally few, return the smallest.

    Thread t stores element t of the tile, and loads element (t % by) * bx + t / by. The padding, IPAD elements, follows
    every row of the tile; if rows are shorter than 128 bytes (32 banks), it follows every 128 bytes.
    """
    from cudabench.simulator.count.banks import wavefronts

    bx, by = block[0], block[1]
    threads = bx * by
    row = max(bx, 128 // itemsize)
    lanes = np.arange(cdiv(threads, WARP) * WARP).reshape(-1, WARP)
    active = lanes < threads
    element = np.minimum(lanes, threads - 1)
    turned = element % by * bx + element // by

    def cost(pad: int) -> int:
        return sum(
            int(wavefronts((i + i // row * pad) * itemsize, itemsize, active, load=load).sum())
            for i, load in ((element, False), (turned, True))
        )

    return min(range(128 // min(itemsize, 4) + 1), key=lambda pad: (cost(pad), pad))


def padded(name: str, count_name: str = "") -> Kernel:
    """Return a kernel with padded tiles. `count_name`: the constant that sets how many tiles a block has side by side;
    '' means one."""
    fits = in_static_shared(lambda g: (g[count_name] if count_name else 1) * g.call("PADDED", g["BLOCK"]))
    return rung(
        name,
        grid_over("cols", "rows", count_name),
        constants={"IPAD": number(0, 1024, fits)},
        defines=lambda g: {"IPAD": str(padding(g.block, g.itemsize))},
    )


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return the matrix, ROWS x COLS."""
    rng = np.random.default_rng(problem.seed)
    return {"in": random_array(rng, (problem.size["rows"], problem.size["cols"]), problem.dtype)}


def copied(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the expected output of a copy kernel: the input's bytes in the input's order."""
    return {"out": arrays["in"].reshape(problem.size["cols"], problem.size["rows"])}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Transpose with NumPy; each thread has a strip of the output's rows.

    Each tile is first copied to a small buffer, because the rows of the small buffer do not compete for the same cache
    lines.
    """
    matrix, out = arrays["in"], outputs["out"]

    def work(strip: slice) -> None:
        tile = np.empty((CPU_TILE[1], CPU_TILE[0]), matrix.dtype)
        for rows in pieces(strip, CPU_TILE[0]):
            for columns in pieces(slice(0, len(matrix)), CPU_TILE[1]):
                view = tile[: columns.stop - columns.start, : rows.stop - rows.start]
                np.copyto(view, matrix[columns, rows])
                np.copyto(out[rows, columns], view.T)

    in_strips(len(out), threads, work)


def transposed(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the transposed matrix."""
    out = np.empty((problem.size["cols"], problem.size["rows"]), arrays["in"].dtype)
    on_cpu(arrays, {"out": out}, processors())
    return {"out": out}


# The kernels only move elements, so `unsigned short` can stand for float16, and the source file needs no header for
# float16.
TYPES = {"float32": "float", "float64": "double", "float16": "unsigned short", "int32": "int", "int8": "signed char"}
VECTORS = {"RESIDENT": number(32, 2048), "VUNROLL": number(1, 64)}

OPERATION = Operation(
    name="transpose",
    summary="out[x][y] = in[y][x]",
    source="transpose.cu",
    dimensions=("rows", "cols"),
    default_size=(4096, 4096),
    block_dimensions=2,
    dtypes=TYPES,
    kernels=(
        rung("copy-row", over_input, expected=copied),
        rung("naive-row", over_input),
        rung("smem", over_input),
        padded("smem-pad"),
        padded("smem-unroll-pad", "TILES"),
        rung("copy-col", over_output, expected=copied, detour=True),
        rung("naive-col", over_output, detour=True),
        rung("naive-col-unroll", grid_over("rows", "cols", "UNROLL"), constants={"UNROLL": number(1, 64)}, detour=True),
        rung("diagonal-row", over_input, detour=True),
        rung("diagonal-col", over_output, detour=True),
        rung(
            "tile-rows",
            over_tiles,
            constants={"TILE": number(1, 128, in_static_shared(lambda g: g["TILE"] * (g["TILE"] + 1)))},
        ),
        rung(
            "swizzle",
            over_tiles,
            constants={"TILE": number(1, 128, in_static_shared(lambda g: g["TILE"] ** 2), power=True)},
        ),
        rung(
            "vector",
            grid_of_tiles(cols="VTILE_X", rows="VTILE_Y"),
            constants=VECTORS,
            defines=short_tiles,
            chapter="transpose_fast.cu",
        ),
        rung(
            "ragged",
            grid_of_tiles(cols="RTILE_X", rows="RTILE_Y"),
            constants={"LANES": number(8, 32, power=True), "RAGGED_BLOCKS": number(1, 8), "RLEAD": read_ahead},
            defines=ragged_tiles,
            shared_bytes=lambda g: g["RTILE_X"] * g["RHIGH"] * g.itemsize,
            dtypes=("float32", "int32", "float16", "int8"),
            detour=True,
            chapter="transpose_ragged.cu",
        ),
        rung(
            "prefetch",
            grid_of_tiles(cols="VTILE_X", rows="VTILE_Y"),
            constants={"FETCH": number(64, 256, power=True), **VECTORS},
            defines=fetched_tiles,
            chapter="transpose_fast.cu",
        ),
    ),
    buffers=lambda problem: (
        Buffer("in", (problem.size["rows"], problem.size["cols"]), problem.dtype, "in"),
        Buffer("out", (problem.size["cols"], problem.size["rows"]), problem.dtype, "out"),
    ),
    arguments=lambda problem: ("in", "out", np.int32(problem.size["cols"]), np.int32(problem.size["rows"])),
    inputs=inputs,
    reference=transposed,
    baseline=Baseline("numpy.copyto(out, in.T), by tiles", on_cpu),
    tolerance=lambda problem: EXACT,
    bytes=lambda problem: 2 * problem.size["rows"] * problem.size["cols"] * itemsize(problem),
    bytes_formula="2 * ROWS * COLS * sizeof(T)",
    peers=(
        Peer("cublas", "cublas", "cublas<t>geam", ("float32", "float64")),
        Peer("torch", "torch", "out.copy_(in.t())", tuple(TYPES)),
        Peer("torch-compiled", "torch", "torch.compile: out.copy_(in.t())", tuple(TYPES)),
    ),
)
