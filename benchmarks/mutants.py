"""Mutants of the chapters: which small faults the simulator finds, and which it does not.

    python benchmarks/mutants.py [OPERATION[:FUNCTION] ...] [--jobs N] [--keep FILE]     # an hour of one core for all

Each mutant changes one line of a chapter, in a kernel or in a device function that kernels call: a barrier or a fence
is dropped, a guard too, `<` becomes `<=`, an index is shifted by one, a row of a shared tile is shorter by one. It is
found where one of the rungs that use the function ends with a hazard or a wrong result (exit code 3 of the command),
at one of the sizes, blocks, grids, types and architectures of `TRIES`, or of `PLAIN` where it is compiled without
optimisation as well, as by `check`; the rung itself is right at all of them, which is held. One that only fails, since
it never ends, counts for itself, and one that the compiler refuses is none. Prints those that are not found.
`EQUIVALENT` says of which ones it is known that they do no harm, `UNSEEN` of which ones that they would and that the
simulator does not see it. Ends with exit code 1 where one is neither found nor explained.

Each mutant has a process of its own, `--jobs` of them at a time: one that crashes, or that lasts longer than `--limit`
seconds, fails alone. `--keep` appends how each ends to a file, one JSON list a line, as soon as it has, and runs none
that the file has of a chapter with this text and tried like this: a run that was interrupted, which prints what it has,
goes on there. `--again` runs only those that an earlier output calls NOT FOUND, failed or refused, and `--every` one of
N. What is printed last are the rows of the record's table.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout, whatever is installed

from cudabench import operations
from cudabench.compile import nvrtc
from cudabench.devices.sim import SimDevice
from cudabench.errors import CompilerError, CudabenchError
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.plan import cases, chapters
from cudabench.plan.cases import Request
from cudabench.records.launch import Source
from cudabench.records.planned import Case, Settings
from cudabench.simulator.isa import instructions  # noqa: F401  loaded here, and not in each process
from cudabench.source.files import parse_text
from cudabench.system import confined

SIZES = {1: (100_003,), 2: (67, 133), 3: (67, 70, 133)}
# Panels, turns and tiles of `blocked` so small that little is unrolled and a small matrix has many of them.
NARROW = {"WIDEST": "4", "PANEL": "64", "OUTER": "8", "SPREAD_ROWS": "8", "SUMS_Y": "4", "SUMS_X": "4", "STEP": "4"}
# Panels of more rows a thread, which no such matrix has.
FULLER = r"case (?:4|8|16): PANEL_OF|(?:case (?:2|4|8)|default): CLUSTER_OF"
# Functions of the last rungs alone, and what their blocks have in common with `blocked` but for one place.
OF_LAST = (
    "update", "spread", "solve_spread_left", "solve_update_left", "solve_back", "cluster_rank", "cluster_barrier",
    "in_block", "eliminate_in_cluster", "solve_panel_cluster",
)  # fmt: skip
SMALL = {"TM": "4", "TN": "4", "TK": "4"}
TILED = ("registers", "vector", "double-buffer")
RAGGED = ("naive", "warp", "vector", "split", "short")  # rungs of matvec that take any grid
# What is tried of an operation, in this order, until a mutant is found; without an entry its size alone.
# `only`: the rungs that are tried with the settings; `of`: the functions whose mutants are; `architecture`: other than
# sm_90; `without`: lines of the chapter that are left out for them, since they take the compiler long.
TRIES: dict[str, tuple[dict[str, Any], ...]] = {
    # The second has blocks enough that not all run at once, and a mutant's last block reads what others left.
    "distance": ({}, {"size": (400_003,)}, {"block": (48,)}),
    "matvec": (
        {},
        {"block": (48,)},
        {"block": (1024,)},
        {"grid": (1000,), "only": RAGGED},
        {"size": (33, 20_000), "only": ("split",)},  # long rows, whose pieces are joined
        {"size": (33, 20_000), "block": (48,), "only": ("split",)},
    ),
    # 110 columns end in the second of two tiles of 32; without padding a tile has no room to spare.
    # `ragged` has tiles of 56 rows, of 64 where rows of the output start at 32 bytes: inside, cut off, and just ending.
    "transpose": (
        {},
        {"size": (67, 110)},
        {"defines": {"IPAD": "0"}},
        {"grid": (999,)},
        {"size": (250, 133), "only": ("ragged",)},
        {"size": (192, 133), "only": ("ragged",)},
        {"size": (64, 124), "only": ("ragged",)},  # whose last tile ends with the matrix
        {"dtype": "int8", "size": (257, 131), "only": ("ragged",)},
        {"dtype": "int8", "size": (64, 144), "only": ("vector",), "of": ("turn_bytes",)},
    ),
    # Sizes of one block come together, since what is compiled is kept. Small tiles compile fast, and their rings of
    # stages turn often. Blocks that are not square have threads to spare; 72 is whole steps, 150 more than one tile.
    "matmul": (
        {"block": (8, 8), "defines": {"WTM": "4", "WTN": "4", "WTK": "8"}, "only": ("warp-tile",)},
        {"block": (8, 8), "defines": SMALL, "only": TILED},
        {},
        {"size": (67, 72, 133)},
        {"size": (150, 24, 150)},
        {"size": (66, 36, 132)},  # whole vectors, no whole tile
        {"size": (136, 200, 136), "only": ("tensor", "sliced", "wgmma", "wgmma-split")},
        {"size": (66, 64, 132), "only": ("tensor", "sliced", "wgmma", "wgmma-split")},  # whole steps
        {"dtype": "float16", "only": ("half",)},
        {"dtype": "float16", "size": (136, 64, 136), "only": ("half",)},
        {"dtype": "float16", "size": (136, 72, 136), "block": (32, 12), "only": ("half",)},
        {"dtype": "float16", "size": (136, 328, 136), "only": ("half",)},
        {"defines": {"SLICES": "4"}, "size": (66, 36, 132), "only": ("sliced",)},
        {"defines": {"SLICES": "4"}, "size": (67, 70, 133), "only": ("sliced",)},
        # Whole tiles, without any check; and steps enough that each stage of a ring is filled twice.
        {
            "block": (8, 8),
            "size": (64, 64, 64),
            "defines": {"WTM": "4", "WTN": "4", "WTK": "8"},
            "only": ("warp-tile",),
        },
        {"size": (132, 264, 132), "only": ("tma-split",), "of": ("matmul_tma_split",)},
        {"block": (32, 6), "size": (150, 24, 150), "only": ("tensor", "sliced")},  # rows that threads share unevenly
        {"block": (32, 8), "only": ("naive", "tiled", *TILED)},
        {"block": (8, 32), "only": ("naive", "tiled", *TILED)},
        {"architecture": "sm_75", "size": (66, 36, 132), "only": ("warp-tile",)},
        {"architecture": "sm_80", "dtype": "float64", "size": (66, 36, 132), "only": ("tensor",)},
    ),
    "pi": ({}, {"block": (48,)}),
    # 20 columns are all edge; of 1024 a warp of `pairs` has a part, which half a warp would not do.
    "blur": (
        {},
        {"dtype": "uint8"},
        {"size": (67, 256)},
        {"block": (8, 6)},
        {"dtype": "uint8", "size": (67, 256)},
        {"dtype": "uint8", "size": (67, 20), "only": ("strip", "pairs")},
        {"dtype": "uint8", "size": (20, 1024), "block": (48, 1), "only": ("pairs",)},
        {"dtype": "uint8", "options": {"radius": 2}, "only": ("pairs",)},
        {"dtype": "uint8", "size": (20, 1040), "options": {"radius": 3}, "only": ("bands",)},
        # Strips that end just where the picture does, below and to the right.
        {"dtype": "uint8", "size": (23, 2000), "options": {"radius": 3}, "only": ("bands",)},
        {"dtype": "uint8", "size": (20, 1040), "block": (48, 1), "only": ("bands",)},
        # Warps inside, and such as have the end of one row of blocks and the beginning of the next.
        {"dtype": "uint8", "size": (40, 1040), "options": {"radius": 2}, "only": ("stacked",)},
        {"size": (40, 400), "options": {"radius": 2}, "only": ("stacked",)},
        {"dtype": "uint8", "size": (67, 515), "only": ("stacked",)},
    ),
    # Small blocks leave many candidates. Where N + 1 is a multiple of 32 the matrix has no room to spare; 64 rows end
    # where a turn of `fused` does; a uniform matrix lets no row stand out; 150 columns are two blocks of `blocked`.
    "solve": (
        {"size": (40,), "block": (8, 4), "only": ("gauss-jordan", "aligned", "fused")},
        {"size": (40,), "block": (8, 4), "defines": NARROW, "without": FULLER, "only": ("blocked",)},
        {"size": (70,), "block": (8, 4), "defines": NARROW, "without": FULLER, "only": ("blocked",)},
        {
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("lower", "cluster"),
            "of": OF_LAST,
        },
        # Rows in more than one block of a cluster.
        {
            "size": (70,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("cluster",),
            "of": ("eliminate_in_cluster",),
        },
        {"size": (40,), "block": (8, 4), "only": ("blocked",)},
        {"size": (150,), "block": (8, 4), "only": ("blocked",)},
        {"size": (63,), "block": (8, 4), "only": ("gauss-jordan", "aligned", "fused")},
        {"size": (70,), "block": (8, 4), "only": ("gauss-jordan", "fused")},
        {"size": (64,), "block": (8, 4), "only": ("fused",)},
        {"size": (40,), "block": (8, 4), "grid": (1, 1), "only": ("fused",)},
        {"size": (70,), "options": {"matrix": "uniform"}, "seed": 1, "only": ("fused",)},
        {"size": (150,), "only": ("blocked",)},
        # More rows than a block of threads holds: the first panels are single columns, in memory.
        {
            "size": (517,),
            "block": (8, 4),
            "defines": NARROW | {"PANEL": "32"},
            "only": ("blocked",),
            "of": ("eliminate_column",),
        },
        {
            "architecture": "sm_75",
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("blocked",),
        },
    ),
}
# With what they are compiled without optimisation; without an entry the size alone.
PLAIN: dict[str, tuple[dict[str, Any], ...]] = {
    "blur": (
        {"bounds": True, "size": (40, 130)},
        {"bounds": True, "size": (40, 130), "dtype": "uint8"},
        {"bounds": True, "size": (9, 48), "dtype": "uint8", "only": ("bands",)},  # whole words a row
        {"bounds": True, "size": (20, 64), "only": ("stacked",)},
        {"bounds": True, "size": (20, 64), "dtype": "uint8", "options": {"radius": 2}, "only": ("stacked",)},
    ),
    "matmul": (
        {"bounds": True, "size": (66, 36, 132)},
        {"bounds": True, "size": (72, 40, 136), "dtype": "float16", "only": ("half", "tma")},
        # Rows that are no whole vectors, and more of them than a tile has.
        {"bounds": True, "block": (8, 8), "size": (67, 38, 133), "defines": SMALL, "only": TILED},
        {"bounds": True, "size": (67, 38, 133), "only": ("warp-tile", "tensor", "sliced")},
        {"bounds": True, "size": (150, 24, 150), "only": ("wgmma", "wgmma-split")},
    ),
    "matvec": ({"bounds": True, "size": (67, 130)},),
    "transpose": (
        {"bounds": True},
        {"bounds": True, "dtype": "int8", "size": (257, 131), "only": ("ragged",)},
        {"bounds": True, "dtype": "int8", "size": (64, 144), "only": ("vector",), "of": ("turn_bytes",)},
    ),
    "solve": (
        {"bounds": True, "size": (40,), "block": (8, 4), "only": ("fused",)},
        {
            "bounds": True,
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("blocked",),
        },
        {
            "bounds": True,
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("cluster",),
            "of": ("eliminate_in_cluster",),
        },
        # The last panel has fewer columns than the registers.
        {
            "bounds": True,
            "size": (42,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("blocked",),
            "of": ("move_columns",),
        },
    ),
}
RULES = {
    "drop a barrier": (r"__sync(threads|warp)\(\)", ";"),
    "drop a fence": (r"__threadfence(_block)?\(\)", ";"),
    "drop a guard": (r"\bif \(((?:[^()]|\([^()]*\))*)\)$", "if (false)"),
    "< to <=": (r"(?<=[\w)\]] )<(?= [\w(])", "<="),
    "shift an index": (r"\[threadIdx\.([xy])\]", r"[threadIdx.\1 + 1]"),
    "shrink a tile": (r"(__shared__ .*\[[^]]+)\];", r"\1 - 1];"),
}
NO_STEP = "one more step, in which no thread has a partner"
ZEROS_UNREAD = "a step beyond the matrix copies zeros, which nobody reads"
PAST_TILE = "the vector beyond is past the tile, which is checked"
INTO_PADDING = "the vector beyond lies in the rows' padding, which nobody reads"
LAST_TURN = "the turn at the end is left at once, or finds nothing to do"
# By operation, rule and the line's text; '#2' is the second line of a kernel with this text.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("matvec", "< to <=", "while (half < BDIMX)"): NO_STEP,
    (
        "solve",
        "< to <=",
        "return q.size > p.size || (q.size == p.size && q.at < p.at) ? q : p;",
    ): "two candidates of one place are the same",
    ("blur", "< to <=", "for (int r = 0; r < K - 1; r++)"): "the row is read again at once, to the same place",
    (
        "blur",
        "< to <=",
        "int rows = nx < 2 * MARGIN ? height : min(height, 2 * RADIUS + 1);  "
        "// one more than strips miss, see blur_strip",
    ): "a picture of just two margins is all edge either way",
    ("blur", "< to <=", "x += x < MARGIN ? 0 : nx - 2 * MARGIN;"): "a margin is a column wider than strips leave out",
    ("distance", "< to <=", "if (start < n)  // the last tile, one block's"): LAST_TURN,
    ("transpose", "< to <=", "for (unsigned first = 0; first < count; first += BLOCK) {"): LAST_TURN,
    (
        "transpose",
        "< to <=",
        'extern "C" __global__ void __launch_bounds__(BLOCK, BLOCK < 256 ? 4 : RESIDENT / BLOCK)',
    ): "asks the compiler for fewer or more registers a thread",
    (
        "distance",
        "drop a fence",
        "__threadfence();  // the sums are read after the count",
    ): "the sums are read as volatile, as in the programming guide",
    (
        "pi",
        "< to <=",
        "for (size_t i = ((size_t)blockIdx.x * BDIMX + threadIdx.x) * STEPS; i < n; "
        "i += (size_t)gridDim.x * BDIMX * STEPS) {",
    ): "the turn at i = n adds nothing: the loop over the steps that are left is empty",
    (
        "transpose",
        "< to <=",
        "for (int k = 0; k < UNROLL; k++, ix += BDIMX)",
    ): "the next block copies the same elements to the same places",
    (
        "transpose",
        "shrink a tile",
        "__shared__ T tile[TILE][TILE + 1];",
    ): "the column only spreads the others over the banks",
    (
        "transpose",
        "< to <=",
        "if (INSIDE || (y + r * VEC < ny && x0 + v * VEC < nx + before))",
    ): "a row beyond the matrix goes to places that nobody writes from",
    (
        "transpose",
        "< to <=",
        "if (INSIDE || (y + r < ny && x < nx))",
    ): "a row beyond the matrix goes to places that nobody writes from",
    (
        "transpose",
        "< to <=",
        "if (before[r] && (INSIDE || (y + r < ny && x + VEC - before[r] < nx)))",
    ): "a row beyond the matrix goes to places that nobody writes from",
    ("transpose", "drop a guard", "if (x0 >= nx)"): "a tile beyond the matrix checks each access",
    ("matmul", "< to <=", "for (int turn = 0; turn < WTK; turn++)"): "no copy has its turn after the last",
    (
        "matmul",
        "< to <=",
        "for (size_t row0 = (size_t)blockIdx.y * BDIMY; row0 < m; row0 += (size_t)gridDim.y * BDIMY)",
    ): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t col0 = (size_t)blockIdx.x * BDIMX; col0 < n; col0 += (size_t)gridDim.x * BDIMX) {",
    ): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t row0 = (size_t)blockIdx.y * TILE_M; row0 < m; row0 += (size_t)gridDim.y * TILE_M)",
    ): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t col0 = (size_t)blockIdx.x * TILE_N; col0 < n; col0 += (size_t)gridDim.x * TILE_N) {",
    ): "a tile beyond the matrix checks each access",
    ("matmul", "< to <=", "for (size_t k0 = 0; k0 < k; k0 += STEP) {"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "for (unsigned k0 = 0; k0 < k; k0 += XTK)"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "for (int k0 = 0; k0 < k; k0 += step) {"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "for (int k0 = 0; k0 < k; k0 += 64)"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "for (int k0 = 0; k0 < k; k0 += 64) {"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "for (int k0 = 0; k0 < k; k0 += 32) {"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "if (part < half)"): "a part that has left its sums adds to what nobody reads",
    (
        "matmul",
        "< to <=",
        "if (tall % apart_a == 0 || row_a + e * apart_a < tall)",
    ): "the threads of every block share these rows evenly, so that no check is compiled",
    (
        "matmul",
        "< to <=",
        "copy_async<sizeof(T) < 4 ? 4 : sizeof(T)>(to + e, from + e, e < left);",
    ): "an element of 4 bytes is copied as 4 bytes",
    ("matmul", "< to <=", "if (k0 < k) {"): ZEROS_UNREAD,
    ("matmul", "< to <=", "if (k0 < k) { #2"): ZEROS_UNREAD,
    ("matmul", "< to <=", "for (unsigned e = 0; e < EACH_A; e++) {"): PAST_TILE,
    ("matmul", "< to <=", "for (unsigned e = 0; e < EACH_A; e++) { #2"): PAST_TILE,
    ("matmul", "< to <=", "for (unsigned e = 0; e < EACH_B; e++) {"): PAST_TILE,
    ("matmul", "< to <=", "for (unsigned e = 0; e < EACH_B; e++) { #2"): PAST_TILE,
    ("matmul", "< to <=", "for (unsigned i = idx; i < VECS_A; i += BLOCK) {"): INTO_PADDING,
    ("matmul", "< to <=", "if (i < VECS_A)"): "a vector too many is read, and stored nowhere",
    ("matmul", "< to <=", "if (i < VECS_B)"): "a vector too many is read, and stored nowhere",
    ("matmul", "< to <=", "if (i < VECS_A) #2"): INTO_PADDING,
    (
        "matmul",
        "< to <=",
        "if (sizeof(T) < 4)  // cp.async copies at least 4 bytes",
    ): "what may be copied without registers is copied through them",
    ("matmul", "< to <=", "for (size_t k0 = 0; k0 < k; k0 += TK) {"): "a step beyond the matrix adds zeros",
    ("matvec", "< to <=", "if (warp < WARPS) {"): "the sum of a warp that is not full lies where nobody reads",
    (
        "blur",
        "< to <=",
        "for (int c = 0; c < WIDE; c++)",
    ): "the next block computes the same columns, and what is beyond the row is checked",
    (
        "blur",
        "< to <=",
        "if (nx >= 2 * MARGIN && strip.begin < strip.end) {",
    ): "a strip without rows writes none, and what it reads is in the picture",
    (
        "blur",
        "< to <=",
        "for (int w = 0; w < WORDS; w++)",
    ): "a bit more is set, which stands for no word",
    (
        "blur",
        "< to <=",
        "if (x + w * SPAN / WORDS < REACH || x + (w + 1) * SPAN / WORDS + REACH > nx)",
    ): "a word that touches no edge goes the way of those that do, to the same means",
    (
        "blur",
        "< to <=",
        "for (int word = 0; word < 6; word++)",
    ): "the word beyond is no neighbour of any, which is checked",
    (
        "blur",
        "< to <=",
        "if (column > 0 && (column + 2 * WARP) * BAND_GROUP < nx && top >= 0 && top + BAND_STEPS <= height)",
    ): "the group that ends the row belongs to the last lane, which only lends",
    (
        "blur",
        "< to <=",
        "if (nx >= 2 * MARGIN && top < height - RADIUS - 1)",
    ): "a strip without rows writes none, and what it reads is in the picture",
    (
        "blur",
        "< to <=",
        "if (column > 0 && (column + WARP + SIDE) * SPAN < nx && top >= RADIUS && "
        "top + STACK_ROWS + RADIUS <= height) {",
    ): "a warp that has none of the edge goes the way of those that have some, to the same means",
    (
        "solve",
        "shrink a tile",
        "__shared__ T factors[WIDEST][SPREAD_ROWS + 1];",
    ): "the column only spreads the others over the banks",
    (
        "solve",
        "shrink a tile",
        "__shared__ T next[WIDEST][SPREAD_ROWS + 1];",
    ): "the column only spreads the others over the banks",
    (
        "solve",
        "< to <=",
        "if (outer + i % outer_cols < col || outer + i % outer_cols >= col + cols)",
    ): "column `col` of the tile is read by nobody",
    (
        "solve",
        "< to <=",
        "for (int c = 0; c < COLS; c++, to += n)",
    ): "column COLS is none of the panel's, which is checked",
    ("solve", "< to <=", "if (stage < steps)"): ZEROS_UNREAD,
    (
        "solve",
        "< to <=",
        "for (int i = idx; i < left; i += PANEL) {",
    ): "the strip's next column is laid anew before anyone reads it",
    ("solve", "< to <=", "if (step + STAGES - 1 < steps)"): ZEROS_UNREAD,
    ("solve", "< to <=", "if (c < col || c >= col + cols)"): "column `col` of the pivot rows is read by nobody",
    ("matvec", "< to <=", "for (unsigned j = 0; j < ROWS / 2; j++)"): "the row beyond is checked",
    ("matvec", "< to <=", "if (j < half) {"): "a sum that was given away changes",
    (
        "matvec",
        "< to <=",
        "if (threadIdx.x / WARP < WARPS) {",
    ): "what is left of a warp computes rows of the next block, as that does",
    ("solve", "< to <=", "if (c < cols)"): "column `cols` of the strip is laid anew before anyone reads it",
    (
        "solve",
        "< to <=",
        "held[r][c] = inside && c < cols ? *from : (T)0;",
    ): "column `cols` of a panel is stored nowhere",
    (
        "solve",
        "< to <=",
        "factors[c][r] = c < cols && at[r] < n ? *element_of_strip : (T)0;",
    ): "column `cols` of the factors is read by nobody",
    (
        "matmul",
        "< to <=",
        "*(Pair *)(c + row * n + col) = {(T)sum[i], (T)sum[i + 2 < COUNT ? i + 2 : i]};",
    ): "the last sum but one is none that begins a pair, which is checked",
    (
        "solve",
        "< to <=",
        "for (int r = 0; r < HOLDS; r++)",
    ): "the row beyond is none that the thread has, which is checked",
    (
        "transpose",
        "< to <=",
        "for (unsigned c = 0; c < VEC; c++)",
    ): "only where the matrix ends within the vector, which is checked",
    (
        "matmul",
        "< to <=",
        "for (int stage = 0; stage < ESTAGES; stage++)",
    ): "a barrier more lies in the room that aligning the tiles leaves, and nobody uses it",
    ("blur", "drop a guard", "if (sizeof(T) > 1)"): "the rung takes bytes alone",
    (
        "blur",
        "< to <=",
        "for (int w = -NEAR; w < WORDS + NEAR; w++)",
    ): "the word beyond holds no neighbour, which is checked",
}
# The reasons are those of docs/simulator.md.
UNSEEN: dict[tuple[str, str, str], str] = {
    (
        "blur",
        "< to <=",
        "for (int j = 0; j < 4; j++)",
    ): "a word too many lies behind an array of registers that a lambda has by reference, and no mean has it",
    (
        "blur",
        "drop a guard",
        "if (BLOCK % WARP && thread / WARP >= WARPS)",
    ): "what the rest of a warp writes the block below writes again, in the simulator's order",
    (
        "blur",
        "< to <=",
        "stack_ragged(in, out, nx, height, x, top, lane >= SIDE && lane < SIDE + writers);",
    ): "what a lane without its right half writes the strip to its right writes again, in the simulator's order",
    (
        "blur",
        "< to <=",
        "for (int b = 0; b < 4; b++) {",
    ): "a shift by 32 bits, undefined in C++: the compiler makes the same PTX of it, without optimisation PTX gives 0",
    (
        "matmul",
        "drop a barrier",
        "__syncwarp();",
    ): "one lane arrives at an mbarrier for its warp, whose other lanes' stores count as ordered",
}
KEYS = {"architecture", "only", "of", "bounds", "without"}  # of a try, that are no part of a request
LINE = re.compile(r"(\S+) (\S+), line (\d+), ([^:]+): .*\((?:NOT FOUND|failed|refused)")
DEVICE = re.compile(r"^(?:template <[^\n]*>\s)?__device__ [^\n;{]*?(\w+)\(", re.MULTILINE)


class Mutant(NamedTuple):
    """One changed line of a chapter; before: its text, with '#2' where the kernel has it a second time."""

    rule: str
    line: int
    before: str
    after: str

    def of(self, text: str) -> str:
        """Return a chapter's text, or a case's, whose lines are as many, with the changed line."""
        lines = text.splitlines()
        return "\n".join([*lines[: self.line - 1], self.after, *lines[self.line :]]) + "\n"


def mutants(text: str, first: int, last: int) -> Iterator[Mutant]:
    """Yield the mutants of the lines from first to last of a chapter."""
    lines = text.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(first, last + 1):
        line = lines[number - 1]
        for rule, (pattern, into) in RULES.items():
            if line.lstrip().startswith(("//", "#")) or not re.search(pattern, line):
                continue
            if rule == "drop a guard" and lines[number].strip() != "return;":
                continue
            changed = re.sub(pattern, into, line, count=1)
            seen[rule, line.strip()] += 1
            times = seen[rule, line.strip()]
            before = line.strip() + (f" #{times}" if times > 1 else "")
            yield Mutant(rule, number, before, changed)


class Function(NamedTuple):
    """A kernel or a device function of a chapter: its lines, from 1 on, and its text."""

    name: str
    first: int
    last: int
    text: str


def functions(text: str) -> list[Function]:
    """Return the functions of a chapter in its order. Overloads are several of one name."""
    spans = [(one.name, text.rindex("\n", 0, one.start) + 1, one.end) for one in parse_text(text, "").kernels]
    for match in DEVICE.finditer(text):
        line_end, end = text.index("\n", match.end()), text.find("\n}", match.end()) + 2
        spans.append((match[1], match.start(), line_end if text[line_end - 1] == "}" else end))
    found = [
        Function(name, text.count("\n", 0, at) + 1, text.count("\n", 0, end) + 1, text[at:end])
        for name, at, end in spans
    ]
    return sorted(found, key=lambda one: one.first)


def used(name: str, chapter: list[Function]) -> set[str]:
    """Return the names of the functions that a kernel calls, itself and those that these call among them."""
    found: set[str] = set()
    more = {name}
    while more:
        found |= more
        code = [re.sub("//.*", "", one.text) for one in chapter if one.name in more]
        words = {word for text in code for word in re.findall(r"\w+", text)}
        more = {one.name for one in chapter if one.name in words} - found
    return found


class Try(NamedTuple):
    """One rung at one of the settings of `TRIES` or `PLAIN`; at: its place among those of its operation."""

    at: int
    settings: dict[str, Any]
    rung: str
    case: Case


class Task(NamedTuple):
    """A mutant and what it is tried at, in order; without a mutant, the one rung that is tried by itself."""

    name: str
    function: str
    mutant: Mutant | None
    content: str
    tries: tuple[Try, ...]

    @property
    def which(self) -> str:
        """What it is called in the output."""
        if self.mutant is None:
            return f"{self.name} {self.tries[0].rung}, by itself"
        return f"{self.name} {self.function}, line {self.mutant.line}, {self.mutant.rule}"


class End(NamedTuple):
    """How a task ended, why, at which of the settings and with which rung, and how many seconds it took."""

    end: str
    said: str
    settings: dict[str, Any]
    rung: str
    seconds: float


def main() -> int:
    """Run the mutants of the operations that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", metavar="OPERATION[:FUNCTION]")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--limit", type=float, default=1200, metavar="SECONDS")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--again", type=Path, metavar="LOG")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    given = parser.parse_args()
    again = None if given.again is None else {match.groups() for match in LINE.finditer(given.again.read_text())}
    tasks = [
        task
        for words in given.operations or operations.SUMMARIES
        for number, task in enumerate(tasks_of(*words.partition(":")[::2], again=again))
        if number % given.every == 0
    ]
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background process would ignore the first
        signal.signal(number, signal.default_int_handler)
    total, whole = ends_of(tasks, given.jobs, given.keep, given.limit)
    return 130 if not whole else 1 if total["NOT FOUND"] + total["failed"] else 0


ENDS = ("found", "refused", "failed", "equivalent", "not seen", "NOT FOUND")


def words_of(counts: Counter[str]) -> str:
    """Return how many mutants ended how, in words."""
    return ", ".join(f"{counts[one]} {one}" for one in ENDS if counts[one] or one == ENDS[0])


def tasks_of(name: str, only: str = "", again: set[tuple[str, ...]] | None = None) -> Iterator[Task]:
    """Yield the mutants of an operation, or of one function, with what they are tried at."""
    settings_of = (*TRIES.get(name, ({},)), *PLAIN.get(name, ({"bounds": True},)))
    cases = [
        (settings, rung.name, case)
        for settings in settings_of
        for rung in operations.get(name).kernels
        if (case := case_of(name, rung.name, settings)) is not None
    ]
    tries = [Try(at, *one) for at, one in enumerate(cases)]
    for file, text, function, calls in every_function(name):
        if only not in ("", function.name):
            continue
        users = tuple(
            one
            for one in tries
            if one.case.source.name.endswith(f"/{file}")
            and function.name in one.settings.get("of", (function.name,))
            and any(function.name in calls.get(launch.function, ()) for launch in one.case.launches)
        )
        for mutant in mutants(text, function.first, function.last) if users else ():
            if again is None or (name, function.name, str(mutant.line), mutant.rule) in again:
                tried = [(one.settings, one.rung) for one in users]
                content = hashlib.sha256((mutant.of(text) + repr(tried)).encode()).hexdigest()
                yield Task(name, function.name, mutant, content, users)


def every_function(name: str) -> Iterator[tuple[str, str, Function, dict[str, set[str]]]]:
    """Yield the functions of an operation's chapters: the file, its text with its headers in it, the function, and the
    functions that each of the text calls."""
    for file in chapters.names(operations.get(name)):
        text = inlined(chapters.read_chapter(file))
        chapter = functions(text)
        calls = {one.name: used(one.name, chapter) for one in chapter}
        yield from ((file, text, one, calls) for one in chapter)


def inlined(source: Source) -> str:
    """Return a chapter's text with its headers in the places of their #includes."""
    text = source.text
    for header, own in chapters.headers(source).items():
        first, *more = text.split(f'#include "{header}"\n')
        text = first + (own + "".join(more) if more else "")
    return text


def ends_of(
    tasks: Sequence[Task], jobs: int = 1, keep: Path | None = None, limit: float = 1200
) -> tuple[Counter[str], bool]:
    """Run mutants, some at a time; print those that are not found. Return how many ended how, and whether all did."""
    nvrtc.load()
    kept = ends_kept(keep)
    found = {n: kept[task.name, task.content] for n, task in enumerate(tasks) if (task.name, task.content) in kept}
    left = [n for n in range(len(tasks)) if n not in found]
    rungs = {(tasks[n].name, one.at): Task(tasks[n].name, "", None, "", (one,)) for n in left for one in tasks[n].tries}
    right: dict[tuple[str, int], float] = {}  # how long the rungs themselves take
    wrong: list[str] = []
    whole = True
    began = time.monotonic()

    def say(done: int, of: int, which: str, end: End) -> None:
        at = f"[{done} of {of}, {time.monotonic() - began:.0f} s]"
        print(f"{at} {which}: {end.end} after {end.seconds:.1f} s", file=sys.stderr, flush=True)

    try:
        with contextlib.closing(pool(list(rungs.items()), {}, jobs, limit)) as ended:
            for done, (where, end) in enumerate(ended, 1):
                say(done, len(rungs), rungs[where].which, end)
                right[where] = end.seconds
                if end.end != "ok":
                    wrong.append(f"{rungs[where].which}, is {end.end}: {end.settings}: {end.said}")
        # What is tried at everything first: the last ones are then short.
        left.sort(key=lambda n: -likely(tasks[n], right))
        with contextlib.closing(pool([(n, tasks[n]) for n in left], right, jobs, limit)) as ended:
            for done, (number, end) in enumerate(ended, 1):
                found[number] = end
                if keep is not None:
                    append(keep, tasks[number], end)
                say(done, len(left), tasks[number].which, end)
    except KeyboardInterrupt:
        whole = False
    total = said_of(tasks, found)
    for sentence in wrong:
        print(sentence)
    if not whole:
        print(f"interrupted: {len(tasks) - len(found)} of {len(tasks)} have not ended")
    total += Counter(failed=len(wrong))
    return total, whole


def likely(task: Task, right: dict[tuple[str, int], float]) -> float:
    """Return the seconds that a task may take: one that is listed is tried at everything, another at a few."""
    assert task.mutant is not None
    each = [right.get((task.name, one.at), 0) for one in task.tries]
    key = (task.name, task.mutant.rule, task.mutant.before)
    return sum(each) if key in EQUIVALENT or key in UNSEEN else sum(each[:3])


def said_of(tasks: Sequence[Task], found: dict[int, End]) -> Counter[str]:
    """Print how mutants ended, in the chapters' order, and how many how as rows of a table. Return the latter."""
    by_name: dict[str, Counter[str]] = {}
    shown: dict[tuple[str, str, str], bool] = {}  # of what is listed, whether all mutants of such lines are found
    for number, task in enumerate(tasks):
        mutant, ended = task.mutant, found.get(number)
        if mutant is None or ended is None:
            continue
        key = (task.name, mutant.rule, mutant.before)
        end, said = ended.end, ended.said
        if key in EQUIVALENT or key in UNSEEN:
            shown[key] = end != "ok" and shown.get(key, True)
        if end == "ok":
            said = EQUIVALENT.get(key) or UNSEEN.get(key) or ""
            end = "equivalent" if key in EQUIVALENT else "not seen" if key in UNSEEN else "NOT FOUND"
        by_name.setdefault(task.name, Counter())[end] += 1
        if end != "found":
            print(f"{task.which}: {mutant.after.strip()} ({end}{': ' * bool(said)}{said})")
        elif ended.settings:
            print(f"{task.which}: found by {ended.rung} with {ended.settings}")
    for key, found_all in shown.items():
        if found_all:
            print(f"{': '.join(key)}: is listed with a reason, and found")
    for name, counts in by_name.items():
        print(f"{name}: " + words_of(counts))
    total = sum(by_name.values(), Counter())
    print("all: " + words_of(total), flush=True)
    for name, counts in (*by_name.items(), ("all", total)):
        numbers = [counts[one] for one in ("found", "equivalent", "not seen", "refused")]
        print("|", " | ".join(map(str, (name, counts.total(), *numbers, counts["NOT FOUND"] + counts["failed"]))), "|")
    return total


def pool(
    tasks: Sequence[tuple[Any, Task]], right: dict[tuple[str, int], float], jobs: int, limit: float
) -> Iterator[tuple[Any, End]]:
    """Yield how tasks ended, each under what it is called, as they do; so many at a time, each in a process of its own.

    A process that ends by itself, or that lasts longer than the limit in seconds, fails its task. Closed before its
    end, this ends all processes.
    """
    fork = multiprocessing.get_context("fork")
    waiting = list(tasks)[::-1]
    running: dict[Connection, tuple[Any, BaseProcess, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                key, task = waiting.pop()
                out_of, back = fork.Pipe(duplex=False)
                process = fork.Process(target=work, args=(task, right, back), daemon=True)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of threads, whose locks no child takes
                    process.start()
                back.close()
                running[out_of] = (key, process, time.monotonic())
            ready = wait(list(running), timeout=1)
            for out_of, (key, process, start) in list(running.items()):
                seconds = time.monotonic() - start
                if out_of in ready:
                    try:
                        end = End(*out_of.recv(), seconds)
                    except EOFError:
                        process.join()
                        end = End("failed", f"its process ended with {process.exitcode}", {}, "", seconds)
                elif seconds > limit:
                    end = End("failed", f"no end within {limit:g} s", {}, "", seconds)
                else:
                    continue
                del running[out_of]
                finish(process, out_of)
                yield key, end
    finally:
        for out_of, (_, process, _) in running.items():
            finish(process, out_of)


def finish(process: BaseProcess, out_of: Connection) -> None:
    """End a process that has said all, or that is not to say any more."""
    process.kill()  # its compiler notices that nobody asks any more
    process.join()
    out_of.close()


def work(task: Task, right: dict[tuple[str, int], float], back: Connection) -> None:
    """Be the process of a task: try it until it shows, and say how it ended, all of `End` but the seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    confined.die_with_parent()
    end, said, one = "ok", "", task.tries[0]
    try:
        for one in task.tries:
            text = one.case.source.text
            # On a machine with other work a run may take far longer than another.
            seconds = 60 + 20 * right[task.name, one.at] if task.mutant else 1200
            changed = task.mutant.of(text) if task.mutant else text + "\n"
            end, said = end_of(task.name, one.case, changed, one.settings, seconds)
            if end != "ok":
                break
    except Exception as error:  # a defect, of which others are to be told
        end, said = "failed", f"{type(error).__name__}: {error}"
    back.send((end, said, one.settings, one.rung))


def append(keep: Path, task: Task, end: End) -> None:
    """Append how a mutant ended to a file, at once, so that no interruption takes it back."""
    line = json.dumps([task.name, task.content, end.end, end.said, end.settings, end.rung, task.which, end.seconds])
    with keep.open("ab+") as file:
        cut = file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"  # by an end in the middle of a line
        file.write(b"\n" * bool(cut) + line.encode() + b"\n")


def ends_kept(keep: Path | None) -> dict[tuple[str, str], End]:
    """Return how mutants ended in earlier runs, by operation and changed chapter."""
    lines = keep.read_text(encoding="utf-8").splitlines() if keep is not None and keep.exists() else []
    found = {}
    for line in lines:
        with contextlib.suppress(ValueError):  # the last one, of a machine that was taken away
            name, content, end, said, settings, rung, _, *seconds = json.loads(line)
            found[name, content] = End(end, said, settings, rung, *seconds or [0.0])
    return found


def case_of(name: str, kernel: str, settings: dict[str, Any]) -> Case | None:
    """Return a kernel's case with settings of `TRIES`; None where the kernel does not take them."""
    operation = operations.get(name)
    if "only" in settings and kernel not in settings["only"]:
        return None
    options = {option.name: option.default for option in operation.options} | settings.get("options", {})
    size = settings.get("size", SIZES[len(operation.dimensions)])
    own = {key: value for key, value in settings.items() if key not in KEYS}
    request = Request(kernels=(kernel,), **{**own, "size": size, "options": options})
    try:
        case = cases.build(operation, request)[0]
    except CudabenchError:
        return None
    return None if case.skip_reason else replace(case, source=replace(case.source, text=inlined(case.source)))


def end_of(name: str, case: Case, text: str, settings: dict[str, Any], timeout: float) -> tuple[str, str]:
    """Return how a case with this text ends within a time in seconds, and why: 'ok', 'found' (a wrong result or a
    hazard), 'refused' (by the compiler) or 'failed'."""
    if "without" in settings:
        text = re.sub(settings["without"], "//", text)
    changed = replace(case, source=replace(case.source, text=text), named=False, bounds="bounds" in settings)
    device = SimDevice(settings.get("architecture", "sm_90"))
    run = SimulatedRun(operations.get(name), changed.problem, Settings(cpu=False, timeout=timeout), device)
    run.disassemble = False
    try:
        for part in changed.parts:
            device.load(part)
    except CompilerError as error:
        return "refused", str(error)
    result = run.measure(changed)
    return ENDS_OF[result.status], result.reason or ""


ENDS_OF = {"ok": "ok", "wrong": "found", "failed": "failed", "skipped": "refused"}


if __name__ == "__main__":
    sys.exit(main())
