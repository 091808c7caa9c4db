"""Access patterns of lanes and the advice for each, compared with a specialist's advice for a corpus of kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.compile.compiler import compile_ptx
from cudabench.explain import advice
from cudabench.simulator import api as simulator
from cudabench.simulator.count import patterns
from cudabench.simulator.count.counters import REMOTE_COUNTED
from cudabench.simulator.report import Access

N = 1 << 14
SOURCE = r"""
#include <cuda_fp16.h>
#define I (blockIdx.x * blockDim.x + threadIdx.x)
#define X (blockIdx.x * blockDim.x + threadIdx.x)
#define Y (blockIdx.y * blockDim.y + threadIdx.y)
extern "C" {
__global__ void copy(float *out, const float *in) { out[I] = in[I]; }
__global__ void shifted(float *out, const float *in) { out[I] = in[I + 1]; }
__global__ void stencil(float *out, const float *in) { out[I + 1] = in[I] + in[I + 1] + in[I + 2]; }
__global__ void stencil2d(float *out, const float *in, int nx) {
    int p = (Y + 1) * nx + X + 32;
    out[p] = in[p] + in[p - 1] + in[p + 1] + in[p - nx] + in[p + nx];
}
__global__ void reversed(float *out, const float *in, int n) { out[I] = in[n - 1 - I]; }
__global__ void permuted(float *out, const float *in) { out[I] = in[I ^ 5]; }
__global__ void broadcast(float *out, const float *in, const float *w) { out[I] = in[I] * w[blockIdx.x]; }
__global__ void every_second(float *out, const float *in) { out[I] = in[2 * I]; }
__global__ void one_field(float *out, const float4 *p) { out[I] = p[I].y; }
__global__ void wide_particles(float *out, const float *p) { out[I] = p[16 * I] + p[16 * I + 1]; }
__global__ void all_fields(float *out, const float3 *p) { float3 v = p[I]; out[I] = v.x + v.y + v.z; }
__global__ void four_floats(float *out, const float *in) {
    out[I] = in[4 * I] + in[4 * I + 1] + in[4 * I + 2] + in[4 * I + 3];
}
__global__ void float4_load(float4 *out, const float4 *in) { out[I] = in[I]; }
__global__ void int4_store(int4 *out, const int *in) { out[I] = make_int4(in[I], 1, 2, 3); }
__global__ void half2_copy(half2 *out, const half2 *in) { out[I] = __hadd2(in[I], in[I]); }
__global__ void bytes(unsigned char *out, const unsigned char *in) { out[I] = in[I]; }
__global__ void pixels(unsigned char *out, const unsigned char *rgb) {
    out[I] = (rgb[3 * I] + rgb[3 * I + 1] + rgb[3 * I + 2]) / 3;
}
__global__ void own_stretch(float *out, const float *in, int k) {
    float s = 0;
    for (int j = 0; j < k; j++) s += in[I * k + j];
    out[I] = s;
}
__global__ void grid_stride(float *out, const float *in, int n) {
    for (int i = I; i < n; i += gridDim.x * blockDim.x) out[i] = in[i];
}
__global__ void matvec_rows(float *y, const float *A, const float *x, int n) {
    float s = 0;
    for (int j = 0; j < n; j++) s += A[(size_t)I * n + j] * x[j];
    y[I] = s;
}
__global__ void matvec_columns(float *y, const float *A, const float *x, int n) {
    float s = 0;
    for (int j = 0; j < n; j++) s += A[(size_t)j * n + I] * x[j];
    y[I] = s;
}
__global__ void matmul(float *c, const float *a, const float *b, int n) {
    float s = 0;
    for (int k = 0; k < n; k++) s += a[Y * n + k] * b[k * n + X];
    c[Y * n + X] = s;
}
__global__ void transpose(float *out, const float *in, int n) { out[X * n + Y] = in[Y * n + X]; }
__global__ void copy_columns(float *out, const float *in, int n) { out[X * n + Y] = in[X * n + Y]; }
__global__ void copy_rows(float *out, const float *in, int n) { out[Y * n + X] = in[Y * n + X]; }
__global__ void copy_pitch(float *out, const float *in, int n) { if (X < n && Y < n) out[Y * n + X] = in[Y * n + X]; }
__global__ void gather(float *out, const float *in, const int *index) { out[I] = in[index[I]]; }
__global__ void turned(float *out, const float *in, int n, float c, float s) {
    int x = c * X - s * Y + n, y = s * X + c * Y + n;
    out[Y * n + X] = in[(y & n - 1) * n + (x & n - 1)];
}
__global__ void scatter(float *out, const float *in, const int *index) { out[index[I]] = in[I]; }
__global__ void sparse_rows(float *y, const float *values, const int *start) {
    float s = 0;
    for (int j = start[I]; j < start[I + 1]; j++) s += values[j];
    y[I] = s;
}
__global__ void some_lanes(float *out, const float *in) { if (in[I] < 0.2f) out[I] = in[I] * 2; }
__global__ void every_second_lane(float *out, const float *in) { if (threadIdx.x % 2 == 0) out[I] = in[I]; }
__global__ void table(float *out, const float *small, const int *index) { out[I] = small[index[I]]; }
__global__ void histogram(unsigned *bins, const unsigned char *data) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&s[data[I]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
__global__ void global_histogram(unsigned *bins, const unsigned char *data) { atomicAdd(&bins[data[I]], 1u); }
__global__ void float4_to_all(float4 *out, const float4 *in) {
    __shared__ float4 s[128];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    float4 sum = s[0];
    for (int j = 1; j < 128; j++) sum.x += s[j].y * s[j].x + s[j].z * s[j].w;
    out[threadIdx.x] = sum;
}
__global__ void exchanged(float *c, const float *a, const float *b, int n) {
    int row = X, column = Y;
    float s = 0;
    for (int k = 0; k < n; k++) s += a[row * n + k] * b[k * n + column];
    c[row * n + column] = s;
}
__global__ void total_float(float *total, const float *in) { atomicAdd(total, in[I]); }
__global__ void greatest(int *total, const int *in) { atomicMax(total, in[I]); }
__global__ void total_shared(float *total, const float *in) {
    __shared__ float s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    atomicAdd(&s, in[I]);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(total, s);
}
__global__ void count_shared(unsigned *total) {
    __shared__ unsigned s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    atomicAdd(&s, 1u);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(total, s);
}
__global__ void count_all(unsigned *total, const unsigned *in) { atomicAdd(total, in[I]); }
__global__ void tile_column(float *out, const float *in) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void tile_padded(float *out, const float *in) {
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void tile_swizzled(float *out, const float *in) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x ^ threadIdx.y] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y ^ threadIdx.x];
}
__global__ void tile_16(float *out, const float *in) {
    __shared__ float tile[16][16];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void tile_16_padded(float *out, const float *in) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void own_heap(float *out, const float *in) {
    float *p = (float *)malloc(16);
    p[0] = in[I];
    out[I] = p[0];
    free(p);
}
__global__ void own_rows(float *out, const float *in) {
    __shared__ float s[64][32];
    for (int j = 0; j < 32; j++) s[threadIdx.x][j] = in[j * 64 + threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < 32; j++) sum += s[63 - threadIdx.x][j];
    out[threadIdx.x] = sum;
}
__global__ void interleaved(float *out, const float *in) {
    __shared__ float s[512];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        int i = 2 * d * t;
        if (i < 512) s[i] += s[i + d];
        __syncthreads();
    }
    if (t == 0) out[0] = s[0];
}
__global__ void doubling(float *out, const float *in, int n) {
    __shared__ float s[512];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    for (int d = 1; d < n / 2; d *= 2) {
        int i = 2 * d * t;
        if (i < n) s[i] += s[i + d];
        __syncthreads();
    }
    if (t == 0) out[0] = s[0];
}
__global__ void doubling_in_place(int *data, int *sums) {
    int *part = data + blockIdx.x * blockDim.x;
    for (int d = 1; d < blockDim.x; d *= 2) {
        int i = 2 * d * threadIdx.x;
        if (i < blockDim.x) part[i] += part[i + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
__global__ void sequential(float *out, const float *in) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[0] = s[0];
}
__global__ void shared_pairs(float *out, const float *in) {
    __shared__ float s[512];
    s[threadIdx.x] = in[threadIdx.x];
    s[threadIdx.x + 256] = in[threadIdx.x + 256];
    __syncthreads();
    out[threadIdx.x] = s[2 * threadIdx.x];
}
__global__ void scan(float *out, const float *in) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        float v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    out[t] = s[t];
}
__global__ void doubles_in_shared(double *out, const double *in) {
    __shared__ double s[256];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void local_array(float *out, const int *index) {
    float a[16];
    for (int j = 0; j < 16; j++) a[j] = j * 2.0f + index[j];
    out[I] = a[index[I] & 15];
}
__global__ void own_table(float *out, float *in) {
    __shared__ float first[64], second[64];
    first[threadIdx.x] = in[threadIdx.x];
    second[threadIdx.x] = in[threadIdx.x + 64];
    __syncthreads();
    out[threadIdx.x] = first[63 - threadIdx.x] + second[threadIdx.x];
}
__device__ float weights[64];
__global__ void module_variable(float *out, const float *in) { out[I] = in[I] * weights[threadIdx.x]; }
__global__ void from_either(float *out, const float *a, const float *b) {
    const float *p = threadIdx.x & 1 ? a : b;
    out[I] = p[I];
}
}
"""


def uneven(n: int) -> np.ndarray[Any, Any]:
    """Return the start indices of rows with 1 to 13 elements."""
    return (np.arange(n) * 7 + np.arange(n) ** 2 % 7).astype(np.int32)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Return an array of float32 zeros."""
    return np.zeros(shape or N, np.float32)


def some(high: int, count: int = N) -> np.ndarray[Any, Any]:
    """Return random indices below `high`."""
    return np.random.default_rng(5).integers(0, high, count).astype(np.int32)


@dataclass(frozen=True)
class Expected:
    """A kernel of the corpus with its launch, and the words of the advice for accesses, keyed by (array, operation).

    An access that is not listed must get no advice.
    """

    kernel: str
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: dict[str, Any]
    said: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


def linear(kernel: str, said: dict[tuple[str, str], tuple[str, ...]] | None = None, **more: Any) -> Expected:
    """Return a case with arrays `out` and `in`, launched with 16 blocks of 256 threads."""
    return Expected(kernel, 16, 256, {"out": floats(), "in": floats(), **more}, said or {})


COLUMN = "neighbouring threads {} a column"
CORPUS = [
    linear("copy"),
    linear("shifted", {("in", "load"): ("5 sectors where 4 would do", "4 bytes after a multiple of 32")}),
    # A stencil's neighbours are adjacent in any layout, so its loads get no advice.
    linear("stencil", {("out", "store"): ("4 bytes after a multiple of 32",)}),
    Expected("stencil2d", (2, 8), (32, 8), {"out": floats(), "in": floats(), "nx": 128}),
    linear("reversed", n=4096),
    linear("permuted"),
    linear("broadcast", w=floats(64)),
    linear("every_second", {("in", "load"): ("8 sectors where 4 would do", "4 of every 8 bytes")}),
    Expected(
        "one_field", 16, 256, {"out": floats(), "p": floats(N)},
        {("p", "load"): ("16 sectors where 4 would do", "4 of every 16 bytes", "an array for each field")},
    ),
    Expected(
        "wide_particles", 4, 256, {"out": floats(), "p": floats(N)},
        {("p", "load"): ("32 sectors where 4 would do", "8 of every 64 bytes")},
    ),
    Expected("all_fields", 16, 256, {"out": floats(), "p": floats(3 * N)}),
    linear("four_floats", {("in", "load"): ("one access of 16 bytes", "1 request of 16 sectors instead of 4")}),
    Expected("float4_load", 16, 256, {"out": floats(4 * N), "in": floats(4 * N)}),
    Expected("int4_store", 16, 256, {"out": np.zeros(4 * N, np.int32), "in": np.zeros(N, np.int32)}),
    Expected("half2_copy", 16, 256, {"out": np.zeros(2 * N, np.float16), "in": np.zeros(2 * N, np.float16)}),
    Expected("bytes", 16, 256, {"out": np.zeros(N, np.uint8), "in": np.zeros(N, np.uint8)}),
    Expected("pixels", 16, 256, {"out": np.zeros(N, np.uint8), "rgb": np.zeros(3 * N, np.uint8)}),
    Expected(
        "own_stretch", 4, 64, {"out": floats(), "in": floats(), "k": 64},
        {("in", "load"): ("32 sectors where 4 would do", "each thread has a range of its own, 256 bytes")},
    ),
    linear("grid_stride", n=N),
    Expected(
        "matvec_rows", 1, 128, {"y": floats(), "A": floats(), "x": floats(128), "n": 128},
        {("A", "load"): ("32 sectors where 4 would do", "each thread has a range of its own, 512 bytes")},
    ),
    Expected("matvec_columns", 1, 128, {"y": floats(), "A": floats(), "x": floats(128), "n": 128}),
    Expected("matmul", (8, 8), (16, 16), {"c": floats(), "a": floats(), "b": floats(), "n": 128}),
    Expected("matmul", (4, 16), (32, 8), {"c": floats(), "a": floats(), "b": floats(), "n": 128}),
    Expected(
        "transpose", (4, 16), (32, 8), {"out": floats(), "in": floats(), "n": 128},
        {("out", "store"): ("32 sectors where 4 would do", COLUMN.format("write"), "transpose a tile")},
    ),
    Expected(
        "copy_columns", (4, 16), (32, 8), {"out": floats(), "in": floats(), "n": 128},
        {
            ("in", "load"): (COLUMN.format("read"), "let threadIdx.x run along a row"),
            ("out", "store"): (COLUMN.format("write"), "let threadIdx.x run along a row"),
        },
    ),
    Expected("copy_rows", (4, 16), (32, 8), {"out": floats(), "in": floats(), "n": 128}),
    Expected("copy_rows", (8, 8), (16, 16), {"out": floats(), "in": floats(), "n": 128}),
    Expected(
        "copy_rows", (32, 2), (4, 64), {"out": floats(), "in": floats(), "n": 128},
        {
            ("in", "load"): ("8 sectors where 4 would do", "a block of 4 threads in x reads 16 bytes", "8 wide"),
            ("out", "store"): ("8 sectors where 4 would do", "a block of 4 threads in x writes 16 bytes", "8 wide"),
        },
    ),
    Expected(
        "copy_rows", (128, 1), (1, 128), {"out": floats(), "in": floats(), "n": 128},
        {("in", "load"): ("a block of 1 thread in x reads",), ("out", "store"): ("a block of 1 thread in x writes",)},
    ),
    Expected(
        "copy_pitch", (4, 16), (32, 8), {"out": floats(127, 127), "in": floats(127, 127), "n": 127},
        {
            ("in", "load"): ("do not start at a multiple of 32 bytes", "pad the pitch"),
            ("out", "store"): ("do not start at a multiple of 32 bytes", "pad the pitch"),
        },
    ),
    linear("gather", {("in", "load"): ("sort or group the data", "neighbours read neighbours")}, index=some(N)),
    linear("scatter", {("out", "store"): ("sort or group the data", "neighbours write neighbours")}, index=some(N)),
    Expected(
        "table", 16, 256, {"out": floats(), "small": floats(256), "index": some(256)},
        {("small", "load"): ("a copy of its 1 024 bytes in shared memory",)},
    ),
    # The data decide which lanes conflict; there are no rows that padding could help.
    Expected("histogram", 16, 256, {"bins": np.zeros(256, np.uint32), "data": some(256).astype(np.uint8)}),
    Expected(
        "global_histogram", 16, 256, {"bins": np.zeros(256, np.uint32), "data": some(256).astype(np.uint8)},
        {("bins", "atomic"): ("a copy of its 1 024 bytes in shared memory", "once a block")},
    ),
    Expected(
        "total_float", 16, 256, {"total": np.zeros(1, np.float32), "in": floats()},
        {("total", "atomic"): ("all lanes of a warp update one element", "within the warp (shuffles) first")},
    ),
    Expected(
        "greatest", 16, 256, {"total": np.zeros(1, np.int32), "in": np.ones(N, np.int32)},
        {("total", "atomic"): ("all lanes of a warp update one element", "find the greatest", "__reduce_max_sync")},
    ),
    # A float atomic in shared memory is a loop that serves one lane of each word per iteration.
    Expected(
        "total_shared", 16, 256, {"total": np.zeros(1, np.float32), "in": floats()},
        {("s", "atomic"): ("take 96 wavefronts where 3 would do", "32 lanes of a warp update one word", "(shuffles)")},
    ),
    # Counting by one updates a word once for all lanes.
    Expected("count_shared", 16, 256, {"total": np.zeros(1, np.uint32)}),
    Expected(
        "count_all", 16, 256, {"total": np.zeros(1, np.uint32), "in": np.ones(N, np.uint32)},
        {("total", "atomic"): ("all lanes of a warp update one element", "add up within the warp (__reduce_add_sync")},
    ),
    Expected(
        "tile_column", 1, (32, 32), {"out": floats(1024), "in": floats(1024)},
        {("tile", "load"): ("32 wavefronts where 1 would do", "32-way bank conflict", "one element more", "132 bytes")},
    ),
    Expected("tile_padded", 1, (32, 32), {"out": floats(1024), "in": floats(1024)}),
    Expected("tile_swizzled", 1, (32, 32), {"out": floats(1024), "in": floats(1024)}),
    Expected(
        "tile_16", 1, (16, 16), {"out": floats(256), "in": floats(256)},
        {("tile", "load"): ("8 wavefronts where 1 would do", "8-way bank conflict", "in each row")},
    ),
    Expected(
        "own_rows", 1, 64, {"out": floats(64), "in": floats(2048)},
        {
            ("s", "load"): ("32-way bank conflict", "in each row (a pitch of 132 bytes) brings it to 1"),
            ("s", "store"): ("32-way bank conflict", "one element more in each row"),
        },
    ),
    Expected(
        "interleaved", 1, 256, {"out": floats(1), "in": floats(512)},
        {
            ("s", "load"): ("up to 16-way bank conflict", "let neighbouring threads take neighbouring elements"),
            ("s", "store"): ("up to 16-way bank conflict", "let neighbouring threads take neighbouring elements"),
        },
    ),
    Expected("sequential", 1, 256, {"out": floats(1), "in": floats(256)}),
    Expected(
        "shared_pairs", 1, 256, {"out": floats(256), "in": floats(512)},
        {("s", "load"): ("2-way bank conflict", "8 bytes apart", "let neighbouring threads take neighbouring")},
    ),
    Expected("scan", 1, 256, {"out": floats(256), "in": floats(256)}),
    Expected("doubles_in_shared", 1, 256, {"out": np.zeros(256), "in": np.zeros(256)}),
    Expected("float4_to_all", 1, 128, {"out": floats(512), "in": floats(512)}),
    Expected(
        "exchanged", (4, 16), (32, 8), {"c": floats(), "a": floats(), "b": floats(), "n": 128},
        {
            ("a", "load"): ("32 sectors where 1 would do", "exchange threadIdx.x and threadIdx.y"),
            ("c", "store"): ("32 sectors where 4 would do", "let threadIdx.x run along a row"),
        },
    ),
    # A sparse matrix with one thread per row: rows of equal length, and rows whose starts come from data.
    Expected(
        "sparse_rows", 4, 128, {"y": floats(512), "values": floats(4096), "start": np.arange(0, 4104, 8, np.int32)},
        {("values", "load"): ("32 sectors where 4 would do", "a range of its own, 32 bytes", "share one range")},
    ),
    Expected(
        "sparse_rows", 4, 128, {"y": floats(512), "values": floats(4096), "start": uneven(513)},
        {("values", "load"): ("a range of its own, which depends on data", "let the lanes of a warp share one")},
    ),
    # Strides that double: the data are neither structs nor separate ranges.
    Expected(
        "doubling_in_place", 8, 256, {"data": np.ones(2048, np.int32), "sums": np.zeros(8, np.int32)},
        {
            ("data", "load"): ("8 or 16 or 32 or 64 bytes apart; let them take neighbouring elements",),
            ("data", "store"): ("8 or 16 or 32 or 64 bytes apart; let them take neighbouring elements",),
        },
    ),
    # Computed coordinates: sorting would not help.
    Expected(
        "turned", (2, 16), (32, 4), {"out": floats(4096), "in": floats(4096), "n": 64, "c": 0.8, "s": 0.6},
    ),
    # Inactive lanes are not a fault of the access.
    Expected("some_lanes", 16, 64, {"out": floats(), "in": np.random.default_rng(3).random(N, np.float32)}),
    Expected("every_second_lane", 16, 64, {"out": floats(), "in": floats()}),
    # The padding removes the conflicts of the loads; it causes conflicts of stores, since a warp stores two rows.
    Expected(
        "tile_16_padded", 1, (16, 16), {"out": floats(256), "in": floats(256)},
        {
            ("tile", "load"): ("2 wavefronts where 1 would do", "one element more in each row", "brings it to 1"),
            ("tile", "store"): ("2 rows of a warp meet", "with a block 32 threads wide a warp takes one row"),
        },
    ),
    Expected("own_heap", 2, 64, {"out": floats(), "in": floats()}),
    Expected("own_table", 1, 64, {"out": floats(64), "in": floats(128)}),
    Expected("module_variable", 16, 64, {"out": floats(), "in": floats()}),
]  # fmt: skip


@cache
def program() -> simulator.Program:
    """Return the compiled corpus."""
    return simulator.load(compile_ptx(SOURCE, "corpus.cu").ptx)


def launched(case: Expected) -> simulator.Report:
    """Return the report of a case's launch; the arguments have the order of the parameters."""
    arguments = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items()
    }
    return simulator.run(
        program(), case.kernel, case.grid, case.block, [*arguments.values()], names=[*arguments]
    )  # fmt: skip


def said(report: simulator.Report, kernel: str, block: int | tuple[int, ...]) -> dict[tuple[str, str], set[str | None]]:
    """Return the advice, keyed by array and operation."""
    three = ((block,) if isinstance(block, int) else block) + (1, 1)
    found: dict[tuple[str, str], set[str | None]] = {}
    for row, text in zip(report.accesses, advice.advise(report.accesses, {kernel: three[:3]}), strict=True):
        found.setdefault((row.array or row.space, row.op), set()).add(text)
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"{case.kernel}-{case.block}")
def test_advice_is_a_specialists(case: Expected) -> None:
    """Each listed access gets the expected advice, which names its array; every other access gets no advice."""
    report = launched(case)
    found = said(report, case.kernel, case.block)
    assert set(case.said) <= set(found)
    for key, texts in found.items():
        words = case.said.get(key)
        if words is None:
            assert texts == {None}, key
            continue
        spoken = [text for text in texts if text]
        assert spoken, key
        for word in words:
            assert any(word in text for text in spoken), (word, spoken)
        for text in spoken:
            assert key[0] in text


# Patterns -----------------------------------------------------------------------------------------------------------


def rows_of(kernel: str) -> list[Access]:
    """Return the accesses of a kernel's first case in the corpus."""
    return list(launched(next(case for case in CORPUS if case.kernel == kernel)).accesses)


@pytest.mark.parametrize(
    ("kernel", "array", "wanted"),
    [
        ("copy", "in", {"kind": "contiguous", "stride": 4, "offset": 0, "varies": False, "lanes": 32}),
        ("shifted", "in", {"kind": "contiguous", "stride": 4, "offset": 4}),
        ("reversed", "in", {"kind": "contiguous", "stride": -4}),
        ("permuted", "in", {"kind": "permutation"}),
        ("broadcast", "w", {"kind": "broadcast", "stride": 0, "run": 32}),
        ("one_field", "p", {"kind": "stride", "stride": 16}),
        ("float4_load", "in", {"kind": "contiguous", "stride": 16}),
        ("matvec_rows", "A", {"kind": "stride", "stride": 512, "axes": (512, 0, 0)}),
        ("matmul", "a", {"kind": "broadcast", "run": 16, "jump": 512, "axes": (0, 512, 0)}),
        ("matmul", "b", {"kind": "contiguous", "run": 16, "axes": (4, 0, 0)}),
        ("copy_pitch", "in", {"kind": "contiguous", "varies": True, "axes": (4, 508, 0)}),
        ("gather", "in", {"kind": "gather"}),
        ("every_second_lane", "in", {"kind": "contiguous", "stride": 4, "lanes": 16, "gaps": True}),
        ("tile_column", "tile", {"kind": "stride", "stride": 128, "axes": (128, 4, 0)}),
    ],
)
def test_pattern_of_a_load(kernel: str, array: str, wanted: dict[str, Any]) -> None:
    """The pattern of a load has the expected kind, stride, offset and run."""
    row = next(row for row in rows_of(kernel) if row.array == array and row.op == "load")
    assert {name: getattr(row.patterns[0].pattern, name) for name in wanted} == wanted


def test_rows_are_by_instruction_and_array() -> None:
    """A line that loads from two arrays has one row for each; every row has its PTX instruction and its column."""
    rows = [row for row in rows_of("matvec_rows") if row.op == "load"]
    assert {row.array for row in rows} == {"A", "x"}
    assert len({row.line for row in rows}) == 1
    assert len({(row.instruction, row.array) for row in rows}) == len(rows)
    assert all(row.instruction and row.column for row in rows)


def test_shared_variables_are_told_apart() -> None:
    """Two shared arrays have separate rows."""
    rows = rows_of("own_table")
    assert {(row.array, row.op) for row in rows if row.space == "shared"} == {
        ("first", "store"), ("first", "load"), ("second", "store"), ("second", "load"),
    }  # fmt: skip


CLUSTER = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2) halves(int *out) {
    __shared__ int s[64];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned t = threadIdx.x;
    s[t] = s[t + 32] = 0;
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(s, t / 16) + 2 * t, 1);
    cluster.sync();
    *(cluster.map_shared_rank(s, 1 - cluster.block_rank()) + 32 + t) = t;
    cluster.sync();
    out[blockIdx.x * 32 + t] = *(cluster.map_shared_rank(s, 0) + 2 * t) + s[32 + t];
    cluster.sync();
}
"""


@pytest.mark.slow
def test_other_blocks_of_the_cluster_are_counted() -> None:
    """An access to another block's shared memory has a row with one request for each block that a warp accesses; the
    row says that this count is a guess."""
    ptx = compile_ptx(CLUSTER, "cluster.cu", arch="sm_90").ptx
    report = simulator.run(ptx, "halves", 2, 32, [np.zeros(64, np.int32)], names=["out"])
    rows = {
        (row.op, row.line): (row.array, row.requests, row.wavefronts, row.ideal_wavefronts)
        for row in report.accesses
        if row.inexact == REMOTE_COUNTED
    }
    # 16 lanes, two words apart, have no bank conflict; 32 lanes would.
    assert rows["atomic", 10] == ("s", 2, 4, 4)
    assert rows["store", 12] == ("s", 2, 2, 2)
    assert rows["load", 14] == ("s", 2, 4, 2)
    assert len(rows) == 3


def test_module_variables_are_named() -> None:
    """A load from a `__device__` variable has its own row with the variable's name."""
    assert "weights" in {row.array for row in rows_of("module_variable")}


def test_lanes_that_go_to_several_arrays() -> None:
    """A request whose lanes access two arrays is counted once, under both names."""
    report = simulator.run(program(), "from_either", 16, 64, [floats(), floats(), floats()], names=["out", "a", "b"])
    (row,) = [row for row in report.accesses if row.op == "load"]
    assert (set((row.array or "").split(", ")), row.requests) == ({"a", "b"}, 32)


def test_local_memory_is_named() -> None:
    """An array whose index is known only at run time gets the advice for local memory."""
    report = simulator.run(program(), "local_array", 1, 64, [floats(64), some(1000, 64)], names=["out", "index"])
    texts = said(report, "local_array", 64)
    assert any("local memory, which is in device memory" in (text or "") for text in texts["local", "load"])


def test_changing_strides_are_counted_apart() -> None:
    """An instruction whose stride doubles has one pattern for each stride, each with its cost."""
    case = Expected("doubling", 1, 256, {"out": floats(1), "in": floats(512), "n": 512})
    report = launched(case)
    row = next(row for row in report.accesses if row.array == "s" and row.op == "load" and len(row.patterns) > 1)
    strides = {each.pattern.stride: each.pieces / each.requests for each in row.patterns}
    assert strides[8] == 2
    assert strides[16] == 4
    assert sum(each.requests for each in row.patterns) == row.requests
    assert sum(each.pieces for each in row.patterns) == row.wavefronts
    (text,) = said(report, "doubling", 256)["s", "store"] - {None}
    assert "8 or 16 or 32 or 64 bytes apart; let neighbouring threads take neighbouring elements" in (text or "")


@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(-70, 70), st.integers(1, 32), st.integers(-200, 200))
def test_shape_of_two_strides(size: int, inner: int, run: int, outer: int) -> None:
    """For lanes in runs, the reported stride within a run and jump between runs reproduce the addresses."""
    addresses = [100_000 + size * (lane % run * inner + lane // run * outer) for lane in range(32)]
    found = patterns.shape(addresses, size)
    if found.kind in ("gather", "permutation"):
        return
    steps = [after - before for before, after in pairwise(addresses)]
    assert steps.count(found.stride) * 2 >= len(steps) or found.run == 2
    if found.run < 32 and found.jump:
        assert all(
            addresses[lane] == addresses[0] + lane % found.run * found.stride + lane // found.run * found.jump
            for lane in range(32)
        )


@given(st.permutations(range(32)))
def test_shape_of_a_permutation(order: list[int]) -> None:
    """Neighbouring addresses in any order are a permutation or contiguous."""
    assert patterns.shape([4 * lane for lane in order], 4).kind in ("permutation", "contiguous")
