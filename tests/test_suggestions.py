"""The line that a message suggests: it launches as the file's own host code does, and it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cudabench.toolchain import older, reached, source, vector_math
from cudabench.toolchain.compiler import nvrtc_version
from cudabench.userkernel import constants
from cudabench.userkernel.suggested import example, host_launch
from cudabench.userkernel.suggested.host_launch import HostLaunch
from tests.conftest import Ran

needs_simulator = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

SUM = """
#define TILE 64
#define CEIL(a, b) (((a) + (b) - 1) / (b))
__global__ void tile_sum(const float *in, float *out, int n) {
  __shared__ float s[TILE];
  int i = blockIdx.x * TILE + threadIdx.x;
  s[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  if (!threadIdx.x) { float t = 0; for (int k = 0; k < TILE; k++) t += s[k]; out[blockIdx.x] = t; }
}
"""
# Sources, what the line has in it, and why a guess without the host code would not run.
FILES = {
    "a block as large as its tile": (
        SUM + "int main() { const int n = 1000; float *a, *b; CHECK(cudaMalloc((void **)&a, n * sizeof(float)));\n"
        "  cudaMalloc(&b, CEIL(n, TILE) * sizeof(float)); tile_sum<<<CEIL(n, TILE), TILE>>>(a, b, n); }",
        ["--grid cdiv(n,64)", "--block 64", "in=float32[n]:random", "out=float32[16]:zeros", "n=1000"],
    ),
    "a launch that is too large for a first look": (
        SUM + "int main(int argc, char **argv) { int n = argc > 1 ? atoi(argv[1]) : 1 << 26; float *a, *b;\n"
        "  int bytes = n * sizeof(float); cudaMalloc(&a, bytes); cudaMalloc(&b, bytes / TILE);\n"
        "  dim3 block = {TILE, 1, 1}, grid; grid.x = CEIL(n, block.x); tile_sum<<<grid, block>>>(a, b, n); }",
        ["--grid cdiv(n,64)", "--block 64", "in=float32[n]:random", "n=65536"],
    ),
    "a function that is given the sizes": (
        "__global__ void fill(float *image, int w, int h) { int x = blockIdx.x * blockDim.x + threadIdx.x,\n"
        "  y = blockIdx.y * blockDim.y + threadIdx.y; if (x < w && y < h) image[y * w + x] = x; }\n"
        "static int up(int a, int b) { return (a + b - 1) / b; }\n"
        "void clear(float *image, int w, int h) { dim3 b(32, 4), g(up(w, b.x), up(h, b.y));\n"
        "  fill<<<g, b>>>(image, w, h); }",
        ["--grid 8,64", "--block 32,4", "w=256", "h=256", "image=float32[w*h]:zeros"],
    ),
    "dynamic shared memory and a constant": (
        "__constant__ int length;\n__global__ void back(int *a) { extern __shared__ int s[]; int i = threadIdx.x;\n"
        "  s[i] = a[i]; __syncthreads(); a[i] = s[length - 1 - i]; }\n"
        "int main() { int n = 96; int *d; cudaMalloc(&d, n * sizeof(int)); cudaMemcpyToSymbol(length, &n, sizeof(n));\n"
        "  back<<<1, n, n * sizeof(int)>>>(d); }",
        ["--grid 1", "--block 96", "--shared 384", "--const length=96", "a=int32[96]"],
    ),
    "a template's arguments from constants and from what is passed": (
        "template <int WIDTH, typename T> __global__ void wide(T *x, T scale) { __shared__ T s[WIDTH];\n"
        "  s[threadIdx.x] = x[threadIdx.x] * scale; x[threadIdx.x] = s[threadIdx.x]; }\n"
        "const unsigned W = 48;\nint main() { double *d; cudaMalloc(&d, W * sizeof(double));\n"
        "  wide<W><<<1, W>>>(d, 2.0); }",
        ["--kernel wide<48, double>", "--block 48", "x=float64[48]", "scale=2.0"],
    ),
    "bytes of pixels": (
        "__global__ void paint(unsigned char *p) { int i = blockIdx.x * blockDim.x + threadIdx.x; p[i * 4 + 0] = 9;\n"
        "  p[i * 4 + 3] = 255; }\nint main() { Bitmap b; paint<<<4, 32>>>(b.bytes()); }",
        ["--grid 4", "--block 32", "p=uint8[512]:zeros"],
    ),
    "types of a header that is missing": (
        "#include <far/away.h>\n__global__ void add(index_t n, const real *x, real *y) {\n"
        "  index_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = y[i] + x[i]; }",
        ["-D index_t=int", "-D real=float", "x=float32[n]:random"],
    ),
    "blocks of two axes, threads of one": (
        "__global__ void flat(float *x, int n, int m) { int i = (blockIdx.x + blockIdx.y * gridDim.x) * blockDim.x +\n"
        "  threadIdx.x; if (i < n) x[i] = x[i] + m; }\n"
        "void go(float *x, int n) { flat<<<grid_of(n), BLOCK>>>(x, n, 1); }",
        ["--block 256", "--grid cdiv(n*m,256)"],
    ),
    "a pack of parameters": (
        "template <typename... Ts> __global__ void many(float *y, Ts... ts) { y[threadIdx.x] = (ts + ...); }\n"
        "int main() { float *y; int k = 3; cudaMalloc(&y, 32 * 4); many<<<1, 32>>>(y, k, 2.5f); }",
        ["--kernel many<int, float>", "ts0=3", "ts1=2.5"],
    ),
    "what is only read is random, what is added to zero": (
        "__global__ void count(int *bins, int *data, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) atomicAdd(&bins[data[i] % 8], 1); }\n"
        "int main() { int *b, *d, n = 640; cudaMalloc(&b, 32); cudaMalloc(&d, n * 4);\n"
        "  count<<<n / 64, 64>>>(b, d, n); }",
        ["bins=int32[8]:zeros", "data=int32[n]:random", "--grid cdiv(n,64)"],
    ),
    "offsets of rows, which rise, and the columns between them": (
        "__global__ void rows(const int *first, const int *column, const float *x, float *y, int n) {\n"
        "  int row = blockIdx.x * blockDim.x + threadIdx.x; if (row >= n) return; float sum = 0;\n"
        "  for (int at = first[row]; at < first[row + 1]; at++) sum += x[column[at]]; y[row] = sum; }",
        [":i0", "column=int32[n]:random", "y=float32[n]:zeros"],
    ),
    "an index that goes a step further than the product of the extents": (
        "__global__ void walk(const float *noise, float *path, int length, int walkers) {\n"
        "  int who = blockIdx.x * blockDim.x + threadIdx.x; if (who >= walkers) return; path[who] = 0;\n"
        "  for (int t = 0; t < length; t++)\n"
        "    path[(t + 1) * walkers + who] = path[t * walkers + who] + noise[t * walkers + who]; }",
        ["path=float32[(length+1)*walkers]", "noise=float32[length*walkers]:random"],
    ),
    "a square of the one extent": (
        "__global__ void product(const float *a, const float *b, float *c, int n) {\n"
        "  int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n && j < n) { float s = 0; for (int k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];\n"
        "    c[i * n + j] = s; } }",
        ["a=float32[n*n]:random", "c=float32[n*n]:zeros", "n=256"],
    ),
    "a block for each row": (
        "__global__ void centre(float *x, int rows, int columns) { __shared__ float s[256]; int row = blockIdx.x;\n"
        "  float sum = 0; for (int j = threadIdx.x; j < columns; j += 256) sum += x[row * columns + j];\n"
        "  s[threadIdx.x] = sum; __syncthreads();\n"
        "  if (threadIdx.x == 0) { for (int k = 1; k < 256; k++) sum += s[k]; x[row * columns] -= sum; } }",
        ["--grid rows", "--block 256", "x=float32[rows*columns]"],
    ),
    "a launch by a pointer to the kernel": (
        "template <int K> __global__ void wide(float *x, int n) { __shared__ float s[96]; s[threadIdx.x] = K;\n"
        "  int i = blockIdx.x * 96 + threadIdx.x; __syncthreads(); if (i < n) x[i] = x[i] + s[95 - threadIdx.x]; }\n"
        "typedef void (*chosen_t)(float *, int);\nstatic chosen_t choose(int k) { if (k == 1) return wide<1>;\n"
        "  return wide<2>; }\nvoid go(float *x, int n) { chosen_t chosen = choose(2); dim3 block(96);\n"
        "  dim3 grid((n + 95) / 96); chosen<<<grid, block>>>(x, n); }",
        ["--block 96", "--grid cdiv(n,96)"],
    ),
    "the functor that takes as many as the kernel gives": (
        "namespace ops { struct Negate { __device__ float operator()(float a) { return -a; } };\n"
        "struct Add { __device__ float operator()(float a, float b) { return a + b; } };\n"
        "template <typename F> __global__ void map(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) x[i] = F()(x[i], 1.f); }\n}",
        ["--kernel ops::map<ops::Add>"],
    ),
    "constants of a length that a constant has": (
        "const unsigned MOST = 64u;\n__constant__ float taps[MOST];\n"
        "__global__ void fir(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) x[i] = x[i] * taps[i % MOST]; }",
        ["--const taps=float32[64]:random"],
    ),
    "a block that the number of elements would be too large for": (
        "__global__ void show(int n, float *x) { if (threadIdx.x < n) x[threadIdx.x] = x[threadIdx.x] + n; }\n"
        "void go(int n, float *x) { show<<<1, 2 * n>>>(n, x); }",
        ["--grid 1", "--block 512", "n=256"],
    ),
    "an array that a function is given": (
        "__device__ void rotate(float *p) { float t = p[0]; p[0] = p[1]; p[1] = p[2]; p[2] = t; }\n"
        "__global__ void turn(float *p) { rotate(p); }\nvoid go(float *p) { turn<<<1, 1>>>(p); }",
        ["--grid 1", "--block 1", "p=float32[64]"],
    ),
    "an enumeration by a typedef": (
        "typedef enum { SUM, LARGEST } how_t;\ntemplate <how_t HOW, typename T> __global__ void join(T *x, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = HOW == SUM ? x[i] + 1 : max(x[i], T(1)); }",
        ["--kernel join<SUM, float>"],
    ),
    "a block that a flag of the template turns": (
        "#define W 32\n#define H 8\ntemplate <bool turned> __global__ void tile(const float *in, float *out, int n) {\n"
        "  __shared__ float t[W][W + 1]; int a = turned ? threadIdx.y : threadIdx.x, b = turned ? threadIdx.x :\n"
        "  threadIdx.y; for (int j = 0; j < W; j += H) t[b + j][a] = in[(b + j) * n + a]; __syncthreads();\n"
        "  for (int j = 0; j < W; j += H) out[(b + j) * n + a] = t[a][b + j]; }\n"
        "void go(const float *in, float *out, int n, bool turned) { dim3 block(turned ? H : W, turned ? W : H);\n"
        "  if (turned) { tile<true><<<1, block>>>(in, out, n); } else { tile<false><<<1, block>>>(in, out, n); } }",
        ["--kernel tile<true>", "--block 8,32"],
    ),
    "rows and columns that the kernel is not given": (
        "__global__ void scale(const float *in, float *out, float a) {\n"
        "  out[blockIdx.x * blockDim.x + threadIdx.x] = a * in[blockIdx.x * blockDim.x + threadIdx.x];\n"
        "  if (threadIdx.y) out[0] = 0; }\n"
        "void go(const float *in, float *out, int rows, int width, int deep) {\n"
        "  scale<<<rows, dim3(width, deep)>>>(in, out, 2.f); }",
        ["--grid 16", "--block 16", "in=float32[256]:random", "a=2.0"],
    ),
    "pointers into arrays, through a function, four at a time": (
        "__device__ int flat(int a, int b, int width) { return a * width + b; }\n"
        "__global__ void quads(const float *in, float *out, int rows, int width) {\n"
        "  int at = flat(blockIdx.x, threadIdx.x, blockDim.x); if (at >= rows * width) return;\n"
        "  const float4 *from = (const float4 *)in + at; float4 *to = reinterpret_cast<float4 *>(out + 4 * at);\n"
        "  *to = from[0]; }",
        ["in=float32[4*rows*width]:random", "out=float32[4*rows*width]:zeros"],
    ),
    "a row of a block, as far as the grid reaches": (
        "__global__ void head(const float *x, float *y, int width) { int row = blockIdx.x;\n"
        "  float s = 0; for (int j = threadIdx.x; j < width; j += blockDim.x) s += x[row * width + j];\n"
        "  atomicAdd(&y[row], s); }\nvoid go(const float *x, float *y, int batch, int width) {\n"
        "  head<<<batch * 2, 32>>>(x, y, width); }",
        ["--grid 128", "x=float32[128*width]:random"],
    ),
    "places that are written to differ": (
        "__global__ void scatter(const float *x, const int *to, float *y, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int j = to[i]; y[j] = x[i]; }",
        ["to=int32[n]:permutation", "y=float32[n]:zeros"],
    ),
    "cursors that are counted up start apart": (
        "__global__ void order(const int *key, int *next, int *sorted, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n"
        "  int at = atomicAdd(&next[key[i]], 1); sorted[at] = i; }",
        ["key=int32[n]:permutation", "next=int32[n+1]:i0"],
    ),
    "a function as a template's argument, of who calls the launch": (
        "typedef float (*what_t)(float);\n__device__ float twice(float a) { return 2 * a; }\n"
        "template <int K, what_t what, typename T> __global__ void map(T *x, int n) {\n"
        "  int i = blockIdx.x * K + threadIdx.x; if (i < n) x[i] = what(x[i]); }\n"
        "template <int K, what_t f, typename T> void launch(T *x, int n) { map<K, f><<<(n + K - 1) / K, K>>>(x, n); }\n"
        "void go(double *x, int n) { launch<96, twice>(x, n); }",
        ["--kernel map<96, twice, float>", "--block 96"],
    ),
    "a function as a template's argument, of which nothing is said": (
        "using what_t = float (*)(float, int);\n__device__ float one(float a) { return a; }\n"
        "__device__ float power(float a, int n) { return n ? a : 1; }\n"
        "template <what_t what> __global__ void map(float *x, int n) {\n"
        "  if (threadIdx.x < n) x[threadIdx.x] = what(1, n); }",
        ["--kernel map<power>"],
    ),
    "a type that a namespace names": (
        "namespace own { typedef int count_t; template <typename T, bool UP> __global__ void shift(T *x, int n) {\n"
        "  if (threadIdx.x < n) x[threadIdx.x] += UP ? 1 : -1; }\n"
        "template <bool UP> void go(int *x, int n) { shift<count_t, UP><<<1, 32>>>(x, n); }\n"
        "void up(int *x, int n) { go<false>(x, n); } }",
        ["--kernel own::shift<int, false>"],
    ),
    "traits that host code puts together": (
        "template <int THREADS_, bool EVEN_, typename T_> struct Traits { using T = T_;\n"
        "  static constexpr int THREADS = THREADS_; static constexpr bool EVEN = EVEN_; };\n"
        "template <typename K> __global__ void run(typename K::T *x) { __shared__ typename K::T s[K::THREADS];\n"
        "  s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[K::THREADS - 1 - threadIdx.x]; }\n"
        "template <int THREADS, typename T> void launch(T *x, bool even) { constexpr int K = 1;\n"
        "  SWITCH(even, EVEN, [&] { using Own = Traits<THREADS, EVEN, T>; auto f = &run<Own>;\n"
        "    f<<<K, THREADS>>>(x); }); }\n"
        "template <typename T> void pick(T *x) { launch<64, T>(x, true); }\ntemplate void pick<float>(float *x);",
        ["--kernel run<Traits<64, true, float>>", "--block 64"],
    ),
    "traits that the file has": (
        "struct Wrong { static const int WIDTH = 2; }; struct Right { static const int WIDTH = 4, HEIGHT = 8; };\n"
        "template <typename S> __global__ void area(int *x) { x[threadIdx.x] = S::WIDTH * S::HEIGHT; }",
        ["--kernel area<Right>"],
    ),
    "a number that is called after others": (
        "__global__ void flat(float *x, long rows, long columns, long rows_columns) {\n"
        "  long i = blockIdx.x * (long)blockDim.x + threadIdx.x; if (i >= rows_columns) return;\n"
        "  x[i / columns * columns + i % columns] = i; }",
        ["rows=256", "rows_columns=65536"],
    ),
    "a block that is the extents' quotient": (
        "template <int SIZE> __global__ void heads(float *x, int C, int H) { __shared__ float s[SIZE];\n"
        "  s[threadIdx.x] = x[blockIdx.x * SIZE + threadIdx.x]; __syncthreads(); float t = 0;\n"
        "  for (int j = 0; j < SIZE; j++) t += s[j]; x[blockIdx.x * SIZE + threadIdx.x] = t; }\n"
        "void go(float *x, int C, int H) { heads<256><<<H, C / H>>>(x, C, H); }",
        ["--kernel heads<256>", "--grid 1 ", "--block 256", "H=1"],
    ),
    "rows that lie apart": (
        "__global__ void copy(const float *in, int in_stride, float *out, int ldo, int rows, int columns) {\n"
        "  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (i < rows && j < columns) out[i * ldo + j] = in[i * in_stride + j]; }",
        ["in_stride=256", "ldo=256", "columns=256"],
    ),
    "steps along numbered axes": (
        "__global__ void copy(const char *in, long nb01, long nb02, float *out, long s1, long s2, int n) {\n"
        "  const float *row = (const float *)(in + blockIdx.y * nb01 + blockIdx.z * nb02);\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) out[i + blockIdx.y * s1 + blockIdx.z * s2] = row[i]; }\n"
        "void go(const char *in, float *out, int n, int m) { dim3 grid((n + 31) / 32, m, m);\n"
        "  copy<<<grid, 32>>>(in, n * 4, n * m * 4, out, n, n * m, n); }",
        ["--grid 32,4,4", "s1=1000", "nb02=4000000", "in=int8[12016000]:random"],
    ),
    "lengths of a small problem": (
        "__global__ void last(const float *x, const int *length, float *y, int N, int T, int U, int V, int W, int Z)\n"
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < N) y[i] = x[i * T + length[i] - 1]; }",
        ["length=int32[N*T*U]:integers(1,16)", "T=16"],
    ),
    "a struct's numbers are what a launch of them hangs on": (
        "struct Shape { int rows, columns, stride; float *out; };\n"
        "__global__ void mark(Shape p) { p.out[blockIdx.x * p.stride + threadIdx.x * p.columns] = 1; }\n"
        "void go(Shape &p) { mark<<<p.rows, p.columns>>>(p); }",
        ["--grid 1 ", "--block 1 "],
    ),
    "a type of indices, of sizes and of bits beside one of numbers": (
        "template <typename T, typename S, typename K, typename N> __global__ void pick(const T *x, const S *where,\n"
        "    const K *key, T *y, N n) { for (N i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x *\n"
        "    blockDim.x) y[i] = (key[i] & 1) ? x[where[i]] : T(0); }",
        ["--kernel pick<float, int, int, int>", "x=float32[n]", "n=1000"],
    ),
    "indices that go through a number of their own": (
        "template <typename V, typename J> __global__ void gather(const V *x, const J *at, V *y, const J count) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= count) return; const int j = at[i]; y[i] = x[j]; }",
        ["--kernel gather<float, int>", "at=int32[count]:random"],
    ),
    "floats that are turned into indices stay floats": (
        "template <typename T> __global__ void bins(const T *x, int *count, T width, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n || x[i] < T(0)) return;\n"
        "  int bin = (int)(x[i] / width); if (bin < n) atomicAdd(&count[bin], 1); }",
        ["--kernel bins<float>"],
    ),
    "a functor that is a parameter": (
        "struct Half { __device__ float operator()(float a) const { return a / 2; } };\n"
        "struct Sum { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };\n"
        "template <typename Op> __global__ void map(const float *x, float *y, int n, Op op) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = op(x[i], 1.f); }",
        ["--kernel map<Sum>", "op={}"],
    ),
    "counters and flags that are waited for, in functions too": (
        "__device__ void arrive(unsigned *lock, unsigned all) { unsigned *own = lock + 1; __syncthreads();\n"
        "  if (threadIdx.x == 0) { atomicAdd(own, 1u); do { } while (atomicAdd(own, 0u) < all); } __syncthreads(); }\n"
        "__global__ void relay(unsigned *ticket, volatile int *flag, const float *x, float *y, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (blockIdx.x > 0 && threadIdx.x == 0)\n"
        "    while (flag[blockIdx.x - 1] == 0) { }\n"
        "  arrive(ticket, 1); if (i < n) y[i] = x[i]; __threadfence(); __syncthreads();\n"
        "  if (threadIdx.x == 0) flag[blockIdx.x] = 1; }",
        ["ticket=uint32[n]:zeros", "flag=int32[n]:zeros", "x=float32[n]:random"],
    ),
    "what host code sets to zero": (
        "__global__ void add(const float *x, float *sum, float *old, float *y, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { y[i] = sum[i] + old[i]; sum[i] += x[i];\n"
        "    old[i] = y[i]; } }\n"
        "void go(const float *x, float *y, int n) { float *s, *o; cudaMalloc(&s, n * 4); cudaMalloc(&o, n * 4);\n"
        "  cudaMemset(o, 0, n * 4); cudaMemset((void *)s, 0, n * 4); cudaMemcpy(o, y, n * 4, cudaMemcpyDefault);\n"
        "  add<<<n / 250, 250>>>(x, s, o, y, n); }",
        ["sum=float32[n]:zeros", "old=float32[n]:random"],
    ),
    "dynamic shared memory of a function, and a block that the template says": (
        "template <int blockSize> __device__ float total(float own) { extern float __shared__ part[];\n"
        "  part[threadIdx.x] = own; __syncthreads();\n"
        "  float sum = 0; for (int i = 0; i < blockSize; i++) sum += part[i]; return sum; }\n"
        "template <int blockSize> __global__ void sums(const float *x, float *y, int n) {\n"
        "  float sum = total<blockSize>(x[blockIdx.x * blockSize + threadIdx.x]);\n"
        "  if (!threadIdx.x) y[blockIdx.x] = sum; }\n"
        "void go(int n, int threads, int blocks, float *x, float *y) { dim3 b(threads, 1, 1), g(blocks, 1, 1);\n"
        "  switch (threads) { case 128: sums<128><<<g, b, threads * sizeof(float)>>>(x, y, n); } }",
        ["--kernel sums<128>", "--block 128", "--shared 512"],
    ),
    "all blocks at once, which a function waits for": (
        "#include <cooperative_groups.h>\n__device__ void meet() { cooperative_groups::this_grid().sync(); }\n"
        "__global__ void twice(float *x, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;\n"
        "    i += gridDim.x * blockDim.x) x[i] *= 2; meet(); }",
        ["--grid 32"],
    ),
    "a block that constants say": (
        "#define BW 32\n#define BH 4\n__global__ __launch_bounds__(BW * BH) void edges(const float *in, float "
        "*out, int w,\n"
        "  int h) { __shared__ float s[BH + 2][BW + 2]; int x = blockIdx.x * BW + threadIdx.x, y = blockIdx.y * "
        "BH + threadIdx.y;\n"
        "  for (int j = threadIdx.y; j < BH + 2; j += BH) for (int i = threadIdx.x; i < BW + 2; i += BW) {\n"
        "    int u = min(max(int(blockIdx.x * BW) + i - 1, 0), w - 1), v = min(max(int(blockIdx.y * BH) + j - "
        "1, 0), h - 1);\n"
        "    s[j][i] = in[v * w + u]; }\n"
        "  __syncthreads(); if (x < w && y < h) out[y * w + x] = s[threadIdx.y][threadIdx.x] - "
        "s[threadIdx.y + 2][threadIdx.x]; }",
        ["--grid cdiv(w,32),cdiv(h,4)", "--block 32,4"],
    ),
    "a tile that a smaller block takes in steps": (
        "const int TILE = 32, ROWS = 8;\n__global__ void turn(const float *in, float *out, int w, int h) {\n"
        "  __shared__ float s[TILE][TILE + 1]; int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + "
        "threadIdx.y;\n"
        "  for (int j = 0; j < 32; j += 8) if (x < w && y + j < h) s[threadIdx.y + j][threadIdx.x] = in[(y + j) "
        "* w + x];\n"
        "  __syncthreads(); x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;\n"
        "  for (int j = 0; j < 32; j += 8) if (x < h && y + j < w) out[(y + j) * h + x] = "
        "s[threadIdx.x][threadIdx.y + j]; }",
        ["--block 32,8"],
    ),
    "several elements a thread, a block apart": (
        "__global__ void four(float *x, int n) { int i = blockIdx.x * 512 + threadIdx.x;\n"
        "  for (int k = 0; k < 4; k++) if (i + k * 128 < n) x[i + k * 128] += 1; }",
        ["--block 128"],
    ),
    "names that several loops have": (
        "__global__ void sums(const float *x, float *out, int n) { float part[4];\n"
        "  for (int i = 0; i < 4; i++) part[i] = 0;\n"
        "  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)\n"
        "    part[i % 4] += x[i];\n"
        "  atomicAdd(out, part[0] + part[1] + part[2] + part[3]); }",
        ["n=1000"],
    ),
    "a remainder that is not refused": (
        "__global__ void hashed(float *x, int n, int m) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) x[i] = i % 997 + m % 991; }",
        ["n=256", "m=256"],
    ),
    "launch bounds and one axis": (
        "__global__ void __launch_bounds__(128) part(float *x, int w, int h) { int i = blockIdx.x * 32 + threadIdx.x;\n"
        "  int j = blockIdx.y * blockDim.y + threadIdx.y; if (i < w && j < h) x[j * w + i] = i; }",
        ["--block 32,4"],
    ),
    "a dimension that local arrays have room for": (
        "__global__ void lengths(const float *x, float *out, int n, int dim) { int i = blockIdx.x * blockDim.x "
        "+ threadIdx.x;\n"
        "  if (i >= n) return; float at[3], sum = 0; for (int d = 0; d < dim; ++d) at[d] = x[i * dim + d];\n"
        "  for (int d = 0; d < dim; ++d) sum += at[d] * at[d]; out[i] = sum; }",
        ["dim=3"],
    ),
    "an index of an array in a struct": (
        "struct Shape { int sides[4]; int dims; Shape() : sides{1, 1, 1, 1}, dims(4) {} };\n"
        "__global__ void side(int *x, Shape shape, int at) { x[threadIdx.x] = shape.sides[at]; }",
        ["at=3", "shape={sides: [1, 1, 1, 1], dims: 1}"],
    ),
    "numbers that are refused unless they are multiples": (
        "#include <cassert>\n__global__ void rows(const float *x, float *out, int n, int m) { assert(n % 6 == 0);\n"
        "  if (m % 7) __trap(); int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = "
        "x[i / 6 * 6 + (i + m) % 6]; }",
        ["n=252", "m=252"],
    ),
    "a number of eight bits": (
        "__global__ void masked(unsigned char *x, int n, unsigned char bits) { int i = blockIdx.x * blockDim.x "
        "+ threadIdx.x;\n"
        "  if (i < n) x[i] &= bits; }",
        ["bits=255"],
    ),
    "pointers that move by what brackets hold": (
        "__global__ void pad(float *to, const float *from, int w, int h, int more) {\n"
        "  int j = blockIdx.x * blockDim.x + threadIdx.x; if (j >= h || more < 0) return;\n"
        "  to += j * (w + more); from += j * (w); for (int i = 0; i < w; ++i) to[i] = from[i]; }",
        [],
    ),
    "an array that a function is given indexes it": (
        "struct Node { int left, right; };\n"
        "__device__ void start(Node *nodes, int at) { Node *own = &nodes[at]; own->left = own->right = -1; }\n"
        "__global__ void starts(Node *nodes, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= "
        "n) return;\n"
        "  start(nodes, i); if (i < n - 1) start(nodes, n + i); }",
        [],
    ),
    "rows that a loop goes from the end of one to that of the next": (
        "__global__ void ends(const int *rows, int *out, int n, int m) { int i = blockIdx.x * blockDim.x + "
        "threadIdx.x;\n"
        "  if (i > 0 && i < n) for (int r = rows[i - 1]; r < rows[i]; r++) out[r % m] = i; }",
        [":i0"],
    ),
    "segments by where they begin and their lengths": (
        "__global__ void fill(const int *first, const int *count, int *out, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; int at = first[i];\n"
        "  for (int j = 0; j < count[i]; j++) out[at + j] = i; }",
        [":i0", "count=int32[n]:ones"],
    ),
    "a constant's size by constants of constants": (
        "#define RADIUS 2 // of a patch\n#define SIDE (2 * RADIUS + 1)\nconstexpr int MANY = SIDE * SIDE;\n"
        "__constant__ float weights[3 * SIDE * (MANY)];\n"
        "__global__ void weigh(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] *= weights[i "
        "% (3 * SIDE * MANY)]; }",
        ["--const weights=float32["],
    ),
    "a type of OpenCV's": (
        "#include <opencv2/opencv.hpp>\n__global__ void invert(uchar *x, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 255 - x[i]; }",
        ["-D uchar=unsigned char", "x=uint8[n]"],
    ),
    "choices and where something begins": (
        "__global__ void shifted(float *x, const float *y, int n, int use_bias, int z0) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = y[i + z0] + use_bias; }",
        ["use_bias=1", "z0=0"],
    ),
    "a block's sides as a build's macros": (
        "__global__ void add(float *x, int w, int h) { int i = blockIdx.x * block_x + threadIdx.x;\n"
        "  int j = block_y * blockIdx.y + threadIdx.y; if (i < w && j < h) x[j * w + i] += block_x; }",
        ["-D block_x=16 -D block_y=16", "--block 16,16"],
    ),
    "all blocks at once": (
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
        "__global__ void twice(float *x, int n) { cg::grid_group all = cg::this_grid();\n"
        "  for (int i = all.thread_rank(); i < n; i += all.size()) x[i] *= 2; all.sync(); }",
        ["--grid 32"],
    ),
    "layers along z that a guard names": (
        "__global__ void add(const float *a, float *c, int width, int height, int batch) {\n"
        "  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;\n"
        "  if (x < width && y < height && z < batch) { int i = (z * height + y) * width + x; c[i] += a[i]; } }",
        ["--grid cdiv(width,16),cdiv(height,16),batch", "--block 16,16"],
    ),
    "layers along z without a guard, after the axes that have one": (
        "__global__ void turn(const float *in, float *out, int rows, int cols, int planes) { __shared__ float "
        "t[32][33];\n"
        "  const float *a = in + (size_t)blockIdx.z * rows * cols; float *b = out + (size_t)blockIdx.z * rows * cols;\n"
        "  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y; for (int j = 0; j < 32; j += 8)\n"
        "    if (x < cols && y + j < rows) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * cols + x];\n"
        "  __syncthreads(); x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;\n"
        "  for (int j = 0; j < 32; j += 8) if (x < rows && y + j < cols) b[(y + j) * rows + x] = "
        "t[threadIdx.x][threadIdx.y + j]; }",
        ["--grid cdiv(cols,32),cdiv(rows,32),planes", "--block 32,8"],
    ),
    "layers along z beside a loop that strides by the grid": (
        "__global__ void shift(const float *x, float *y, const float *mean, int channels, int height, int width) {\n"
        "  int c = blockIdx.y, n = blockIdx.z, many = height * width; long first = ((long)n * channels + c) * many;\n"
        "  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < many; i += gridDim.x * blockDim.x)\n"
        "    if (n < 2) y[first + i] = x[first + i] - mean[c]; }",
        ["--grid cdiv(height*width,256),channels,1", "--block 256"],
    ),
    "layers along z that two extents share": (
        "__global__ void blur(const float *x, float *y, int N, int H, int W, int K, int pad) {\n"
        "  int Q = W + 2 * pad - 2, P = H + 2 * pad - 2; int q = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  int p = blockIdx.y * blockDim.y + threadIdx.y; int nk = blockIdx.z, n = nk / K, k = nk % K;\n"
        "  if (p >= P || q >= Q || n >= N) return; y[((n * K + k) * P + p) * Q + q] = x[(n * H + p) * W + q] * k; }",
        ["--grid cdiv(W,16),cdiv(H,16),K*N"],
    ),
    "heads and batches by how they are counted, and pointers of one declaration": (
        "__global__ void attend(const float *q, const float *k, float *o, int B, int H, int T, int D) {\n"
        "  int b = blockIdx.z, h = blockIdx.y, t = blockIdx.x * blockDim.x + threadIdx.x; if (t >= T) return;\n"
        "  const float *own = q + ((b * H + h) * T + t) * D, *all = k + (b * H + h) * T * D; float s = 0;\n"
        "  for (int j = 0; j <= t; j++) for (int d = 0; d < D; d++) s += own[d] * all[j * D + d];\n"
        "  o[(b * H + h) * T + t] = s; }",
        ["--grid cdiv(T,256),H,B", "q=float32[65536]", "k=float32[65536]"],
    ),
    "a block for each place, with casts that a header spaces": (
        "#include <cuda_fp16.h>\n__global__ void turned(half *q, const float *t, int batch, int heads, int "
        "seq_len, int head_dim) {\n"
        "  int pos = blockIdx.x, head = blockIdx.y, b = blockIdx.z, half_dim = head_dim / 2;\n"
        "  half *p = q + (((size_t)b * heads + head) * seq_len + pos) * head_dim;\n"
        "  for (int i = threadIdx.x; i < half_dim; i += blockDim.x) p[i] = t[pos * half_dim + i]; }",
        ["--grid seq_len,heads,batch"],
    ),
    "an axis that no block asks for, and rows of warps": (
        "__global__ void gemv(const double *A, const double *x, double *y, int M, int N) { double s = 0;\n"
        "  int row = blockIdx.x * blockDim.y + threadIdx.y; if (row >= M) return;\n"
        "  for (int c = threadIdx.x; c < N; c += blockDim.x) s += A[row * N + c] * x[c];\n"
        "  for (int o = 16; o; o /= 2) s += __shfl_down_sync(~0u, s, o); if (threadIdx.x == 0) y[row] = s; }",
        ["--grid cdiv(M,8),1", "--block 32,8"],
    ),
    "the one extent that a guard names, a warp for each": (
        "__global__ void norms(const float *x, float *y, int rows, int cols) {\n"
        "  int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31; if (row >= rows) return;\n"
        "  float s = 0; for (int c = lane; c < cols; c += 32) s += x[row * cols + c] * x[row * cols + c];\n"
        "  for (int o = 16; o; o /= 2) s += __shfl_down_sync(~0u, s, o); if (lane == 0) y[row] = s; }",
        ["--grid cdiv(32*rows,256)"],
    ),
    "a block that a padded tile has room for": (
        "#define RADIUS 3\n#define MANY 128\n__global__ void smooth(const float *in, float *out, int n) {\n"
        "  __shared__ float t[MANY + 2 * RADIUS]; int g = threadIdx.x + blockIdx.x * blockDim.x, l = "
        "threadIdx.x + RADIUS;\n"
        "  t[l] = g < n ? in[g] : 0; if (threadIdx.x < RADIUS) { t[l - RADIUS] = g >= RADIUS && g - RADIUS < n "
        "? in[g - "
        "RADIUS] : 0;\n"
        "    t[l + MANY] = g + MANY < n ? in[g + MANY] : 0; } __syncthreads(); float s = 0;\n"
        "  for (int o = -RADIUS; o <= RADIUS; o++) s += t[l + o]; if (g < n) out[g] = s; }",
        ["--grid cdiv(n,128)", "--block 128"],
    ),
    "two elements of shared memory a thread": (
        "#define MANY 128\n__global__ void pairs(const float *in, float *out, int n) { __shared__ float t[2 * MANY];\n"
        "  int tid = threadIdx.x, base = 2 * MANY * blockIdx.x; t[2 * tid] = base + 2 * tid < n ? in[base + 2 * "
        "tid] : 0;\n"
        "  t[2 * tid + 1] = base + 2 * tid + 1 < n ? in[base + 2 * tid + 1] : 0; __syncthreads();\n"
        "  if (base + 2 * tid < n) out[base + 2 * tid] = t[2 * tid] + t[2 * tid + 1]; }",
        ["--grid cdiv(n,256)", "--block 128"],
    ),
    "a width that a constant array has room for": (
        "__constant__ float mask[7];\n__global__ void convolve(const float *in, float *out, int width, int "
        "mask_width)\n"
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= width) return; float s = 0;\n"
        "  for (int j = 0; j < mask_width; j++) if (i + j < width) s += in[i + j] * mask[j]; out[i] = s; }",
        ["--grid cdiv(width,256)", "mask_width=7"],
    ),
    "an image by its offset, of one extent for both sides": (
        "__global__ void paint(unsigned char *p, int DIM) { int x = threadIdx.x + blockIdx.x * blockDim.x;\n"
        "  int y = threadIdx.y + blockIdx.y * blockDim.y, offset = x + y * blockDim.x * gridDim.x;\n"
        "  p[offset * 4 + 0] = x - DIM / 2; p[offset * 4 + 3] = 255; }",
        ["p=uint8[4*DIM*DIM]"],
    ),
    "a pitch in bytes": (
        "__global__ void scale(float *img, size_t pitch, int width, int height) {\n"
        "  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (x < width && y < height) { float *row = (float *)((char *)img + y * pitch); row[x] *= 2; } }",
        ["pitch=1024", "img=float32[width*height]"],
    ),
    "steps of rows": (
        "__global__ void invert(const unsigned char *src, int src_step, unsigned char *dst, int dst_step, int cols,\n"
        "  int rows) {\n"
        "  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (x < cols && y < rows) dst[y * dst_step + x] = 255 - src[y * src_step + x]; }",
        ["src_step=256", "dst_step=256", "src=uint8[cols*rows]"],
    ),
    "what is read holds data though it stands last": (
        "__global__ void weigh(unsigned char *from, unsigned char *to, int n, double *weights) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n"
        "  unsigned char *own = to + i; own[0] = from[i] * weights[i % 16]; }",
        ["from=uint8[n]:random", "to=uint8[n]:zeros", "weights=float64[n]:random"],
    ),
    "a turn of a host's loop on data to sort": (
        "__global__ void step(int *a, int j, int k) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x, o = i ^ j;\n"
        "  if (o > i && (a[i] > a[o]) == !(i & k)) { int t = a[i]; a[i] = a[o]; a[o] = t; } }\n"
        "int main() { int n = 64, *a; cudaMalloc(&a, n * sizeof(int)); for (int k = 2; k <= n; k <<= 1)\n"
        "  for (int j = k >> 1; j > 0; j >>= 1) step<<<n / 16, 16>>>(a, j, k); }",
        ["--grid 4", "a=int32[64]:random", "j=1", "k=2"],
    ),
    "a column of a loop over columns": (
        "__global__ void scale(float *a, int n, int k) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i > k && i < n) a[i * n + k] /= a[k * n + k]; }\n"
        "void solve(float *h, int n) { float *a; cudaMalloc(&a, n * n * sizeof(float)); int k = 7;\n"
        "  for (k = 0; k < n - 1; k++) { scale<<<(n + 15) / 16, 16>>>(a, n, k); cudaDeviceSynchronize(); } }",
        ["a=float32[n*n]:random", "k=0"],
    ),
    "a caller's size that is divided by a whole block": (
        "const int SIDE = 1024;\n__global__ void scan(float *x, float *sums, int n) { __shared__ float s[SIDE];\n"
        "  s[threadIdx.x] = x[blockIdx.x * n + threadIdx.x]; __syncthreads();\n"
        "  if (threadIdx.x == 0) sums[blockIdx.x] = s[n - 1]; }\n"
        "void all(float *x, float *sums, int n) { float *total; cudaMalloc(&total, sizeof(float)); n = n / 2;\n"
        "  scan<<<n / SIDE, SIDE>>>(x, sums, SIDE); scan<<<1, n / SIDE>>>(sums, total, n / SIDE); }",
        ["--block 1024", "n=1024"],
    ),
    "the C library's short names of types": (
        "#include <sys/types.h>\n#include <cstdint>\nstatic int up(int a) { return a; }\nu_int *of(int n);\n"
        "__global__ void mix(u_int *a, u_char *b, u_int64_t c, ssize_t n, intmax_t m, std::uintmax_t k) {\n"
        "  ssize_t i = threadIdx.x; if (i < n) a[i] = b[i] + c + m + k; }",
        ["a=uint32[", "b=uint8["],
    ),
    "constants that nothing sets are sides": (
        "__constant__ int wide, high;\n__global__ void below(float *to, const float *from) {\n"
        "  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (x < wide && y < high - 1) to[x + y * wide] = from[x + (y + 1) * wide]; }",
        ["--grid 16,16 ", "--block 16,16", "--const wide=256", "--const high=256", "to=float32[65536]:zeros"],
    ),
    "a number behind a pointer": (
        "__global__ void pick(const int *n, const int *at, float *x) { int i = threadIdx.x;\n"
        "  if (i < *n) x[at[i]] = 2 * *n; }",
        ["n=int32[1]:full(16)"],
    ),
    "types of cuFFT without its header": (
        "#include <cufft.h>\n__global__ void power(const cufftDoubleComplex *z, cufftDoubleReal *p, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) p[i] = z[i].x * z[i].x + z[i].y * z[i].y + cuCabs(z[i]); }",
        ["--arg z=complex128[n]:random", "--arg p=float64[n]:zeros"],
    ),
    "a kernel that is called as a function of CUDA's": (
        "__global__ void norm(const float *x, float *y, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fabsf(x[i]); }",
        ["--kernel norm(const float*, float*, int)"],
    ),
    "scaled in place": (
        "__global__ void gain(float2 *z, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) { z[i].x *= by; z[i].y /= by; } }",
        ["z=float32[2*n]:random"],
    ),
    "a kernel that never asks which block it is in": (
        "extern __shared__ float s[];\n__global__ void total(const float *x, float *sum, int n) {\n"
        "  int t = threadIdx.x; s[t] = x[t]; __syncthreads();\n"
        "  for (int d = n >> 1; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }\n"
        "  if (t == 0) *sum = s[0]; }",
        ["--grid 1 ", "--block 256", "n=256"],
    ),
    "a parameter that is called the block's side": (
        "extern __shared__ int tile[];\n__global__ void turn(int *m, int N, int BLOCK_SIZE) {\n"
        "  int x = threadIdx.x, y = threadIdx.y, at = blockIdx.x * BLOCK_SIZE * BLOCK_SIZE;\n"
        "  tile[y * BLOCK_SIZE + x] = m[at + y * BLOCK_SIZE + x]; __syncthreads();\n"
        "  m[at + y * BLOCK_SIZE + x] = tile[x * BLOCK_SIZE + y]; }",
        ["--block 16,16", "BLOCK_SIZE=16"],
    ),
    "members that start as objects": (
        "struct V { float x, y, z; __device__ V(float a = 0) : x(a), y(a), z(a) {} };\n"
        "class Ball { public: float size = 1; V at; V tint = V(3); };\n"
        "__global__ void sizes(const Ball *balls, float *out, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) out[i] = balls[i].size + balls[i].tint.z; }",
        ["balls=float32[7*n]:random"],
    ),
}


def suggested(text: str) -> list[str]:
    """Return the words of the line in a message."""
    match = re.search(r"(?:write|as in): cudabench (run .*)", text)
    assert match, text
    return shlex.split(match[1])


def check_line(cudabench: Callable[..., Ran], text: str, parts: Sequence[str]) -> None:
    """Assert that the line for a file has these parts, and runs without a hazard."""
    Path("k.cu").write_text(text)
    words = suggested(cudabench("run", "k.cu").err)
    for part in parts:
        assert part in " ".join(words)
    ran = cudabench(*words, "--device", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err


@needs_simulator
@pytest.mark.parametrize("name", FILES)
def test_the_line_launches_as_the_host_code_does(
    name: str, cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the host's grid, block, sizes and numbers, and runs without a hazard."""
    monkeypatch.setattr(host_launch, "MOST_THREADS", 1 << 16)  # a first look takes no time here
    monkeypatch.setattr(example, "ELEMENTS", 1000)
    check_line(cudabench, *FILES[name])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "struct Row { int n; float *at; };\n__global__ void sums(Row *rows, float *out) { float s = 0;\n"
            "  for (int i = 0; i < rows[threadIdx.x].n; i++) s += rows[threadIdx.x].at[i]; out[threadIdx.x] = s; }",
            "no line can be suggested, for 'Row* rows' of sums is an array of structs with pointers in memory ('at'), "
            "which no --arg can set: write a __global__ function beside it that takes 'at' as an array of its own",
        ),
        (
            "template <typename K> __global__ void run(float *x) { x[threadIdx.x] = K::FIRST + K::SECOND; }",
            "no line can be suggested, for K of run is a type with K::FIRST, K::SECOND that nothing here says: name an "
            "instance, --kernel 'run<TYPE>'",
        ),
        (
            "template <typename F> __global__ void run(float *x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); }",
            "for F of run is a type that the kernel calls, as a functor that nothing here says",
        ),
        (
            "template <template <typename> class R> __global__ void run(float *x) { x[0] = R<float>()(x[1]); }",
            "for R of run is a class template that nothing here says",
        ),
        (
            "#include <far/node.h>\n__global__ void run(Node *nodes, float *x) {\n"
            "  Node &own = nodes[0]; x[0] = own.size; }",
            "nothing here declares the class Node of run: name the folder of the header that declares it with -I",
        ),
        (
            "#include <far/info.h>\n__global__ void run(float *x, far::Info<float, int> info) { x[0] = info.size; }",
            "takes 'far::Info<float, int> info' by value, a struct whose members are not known here",
        ),
    ],
)
def test_what_has_no_line_says_what_to_write(text: str, part: str, cudabench: Callable[..., Ran]) -> None:
    """A type of which nothing says what it is: no line that cannot work, but what the user has to give."""
    Path("k.cu").write_text(text)
    for command in ("run", "check"):
        ran = cudabench(command, "k.cu")
        assert (ran.code, part in ran.err, "=2.5" in ran.err) == (2, True, False), ran.err
    Path("k.cu").write_text(text + "\n__global__ void plain(float *x) { x[threadIdx.x] = 1; }")
    assert suggested(cudabench("run", "k.cu").err)[3] == "plain"


def test_a_generators_state_is_a_type_of_curand(cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """A template's parameter for it is curandState, of which there is no line where curand's header is missing."""
    Path("k.cu").write_text(
        "#include <curand_kernel.h>\ntemplate <typename S> __global__ void draw(float *x, S *states) {\n"
        "  S own = states[threadIdx.x]; x[threadIdx.x] = curand_uniform(&own); states[threadIdx.x] = own; }\n"
    )
    monkeypatch.setattr("cudabench.toolchain.toolkit.of_device_libraries", lambda *texts: [Path()])
    words = suggested(cudabench("run", "k.cu").err)
    assert words[3] == "draw<curandState>"
    assert "-D" not in words
    monkeypatch.setattr("cudabench.toolchain.toolkit.of_device_libraries", lambda *texts: [])
    said = cudabench("run", "k.cu").err
    assert "for 'curandState* states' of draw is of <curand_kernel.h>, which is not here: pip install" in said


@needs_simulator
def test_a_kernel_that_a_header_declares_otherwise(cudabench: Callable[..., Ran]) -> None:
    """A declaration with other parameters makes an overload, which the compiler has to be told apart."""
    Path("k.h").write_text("template <typename T, int K> __global__ void f(int n, int width, T *x);\n")
    Path("k.cu").write_text(
        '#include "k.h"\ntemplate <typename T, int K> __global__ void f(int n, T *x) {\n'
        "  if (threadIdx.x < n) x[threadIdx.x] = K; }\n"
    )
    words = suggested(cudabench("run", "k.cu").err)
    ran = cudabench(*words, "--device", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err


@needs_simulator
@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_a_fault_of_guessed_arguments_is_said_to_be_one(command: str, cudabench: Callable[..., Ran]) -> None:
    """What a suggested line guessed is named beside the hazard; with one's own numbers nothing is said of it."""
    Path("k.cu").write_text(
        "__global__ void put(int *y, const int *to, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) y[to[i] / 2] = i; }\n"
    )
    line = shlex.split(cudabench(command, "k.cu").err.partition("write: cudabench ")[2])
    ran = cudabench(*line, "-d", "sim")
    said = " ".join((ran.out + ran.err).split())
    assert ran.code == 3
    assert re.search("race(,| on) line 2", said)
    assert re.search(
        r"nothing in k\.cu says to=int32\[n\]:permutation, n=\d+, --grid cdiv\(n,256\), --block 256, which", said
    )
    own = [word.replace("n=1048576", "n=4096").replace("n=10007", "n=4096") for word in line]
    ran = cudabench(*own, "-d", "sim")
    assert ran.code == 3
    assert "a suggested line guesses" not in " ".join((ran.out + ran.err).split())


@needs_simulator
def test_what_host_code_says_is_no_guess(cudabench: Callable[..., Ran]) -> None:
    """A launch of main's with its sizes: a fault is the kernel's; a guessed number that an assertion refuses is not."""
    Path("k.cu").write_text(
        "__global__ void past(float *x, int n) { x[blockIdx.x * 32 + threadIdx.x + 1] = n; }\n"
        "int main() { int n = 64; float *x; cudaMalloc(&x, n * sizeof(float)); past<<<n / 32, 32>>>(x, n); }\n"
    )
    ran = cudabench(*suggested(cudabench("run", "k.cu").err), "-d", "sim", "--no-cpu")
    assert (ran.code, "guessed" in ran.err) == (3, False)
    Path("a.cu").write_text(
        "#include <cassert>\n__global__ void three(float *x, int n) { assert(n * n == 9); x[threadIdx.x % n] = 1; }\n"
    )
    ran = cudabench(*suggested(cudabench("run", "a.cu").err), "-d", "sim", "--no-cpu")
    said = " ".join((ran.out + ran.err).split())
    assert ran.code == 1
    assert "assertion 'n * n == 9' failed" in said
    assert "which is what a suggested line guesses" in said


def test_the_files_own_kernel_comes_first(cudabench: Callable[..., Ran]) -> None:
    """Kernels of headers stand behind, overloads with their types; the line is for the file's own."""
    Path("book.h").write_text("__global__ void show(float *x) {}\n__global__ void show(int *x) {}\n")
    Path("k.cu").write_text('#include "book.h"\n__global__ void own(float *x) { *x = 1; }\n')
    said = cudabench("run", "k.cu").err
    assert "has 3 kernels: choose one with --kernel: own, show(float*), show(int*); as in:" in said
    assert suggested(said)[3] == "own"


@needs_simulator
def test_check_sees_kernels_of_headers_alone(cudabench: Callable[..., Ran]) -> None:
    """A file that only includes its kernels is checked for theirs, and a constant's warning has a value for it."""
    Path("k.cuh").write_text(
        "struct Light { float x, y, z; };\n__constant__ Light lights[4];\n"
        "template <int N> __global__ void lit(float *x) { x[threadIdx.x] = lights[threadIdx.x % N].y; }\n"
    )
    Path("k.cu").write_text('#include "k.cuh"\nint main() { lit<4><<<1, 32>>>(nullptr); }\n')
    words = shlex.split(cudabench("check", "k.cu").err.partition("as in: cudabench ")[2])
    assert words[3] == "lit<4>"
    ran = cudabench("check", "k.cu", "-k", "lit<4>", "-g", 1, "-b", 32, "--arg", "x=float32[32]:zeros")
    assert ran.code == 0, ran.out + ran.err
    assert "add --const 'lights=float32[4,3]:random'" in " ".join(ran.out.split())
    assert cudabench(*words, "--device", "sim").code == 0


def test_headers_around_the_file_are_named(cudabench: Callable[..., Ran]) -> None:
    """A project's include folder beside the source's is found, also where a header asks for it, and is in the line."""
    for folder in ("src", "include"):
        Path(folder).mkdir()
    Path("src/own.h").write_text('#include "types.h"\n')
    Path("include/types.h").write_text("typedef double real;\nenum Kind { ONE, TWO };\n")
    Path("src/k.cu").write_text(
        '#include "own.h"\n__global__ void f(real *x, int n, Kind kind) { int i = threadIdx.x;\n'
        "  if (i < n && kind == TWO) x[i] = 1; }\nvoid go(real *x, int n) { f<<<1, 32>>>(x, n, TWO); }\n"
    )
    words = suggested(cudabench("run", "src/k.cu").err)
    assert words[words.index("-I") + 1] == "include"
    assert {"x=float64[n]:zeros", "kind=1"} <= set(words)
    if nvrtc_version() is not None:
        assert cudabench(*words, "--device", "sim", "--no-cpu").code == 0
        ran = cudabench("run", "src/k.cu", "-g", 1, "-b", 1, "-D", "real=double", "-D", "Kind=int", *words[-6:])
        assert "name its folder with -I include" in " ".join((ran.out + ran.err).split())


@needs_simulator
@pytest.mark.parametrize("template", ["", "template <int K> "])
def test_types_are_those_of_the_headers_that_the_line_names(template: str, cudabench: Callable[..., Ran]) -> None:
    """A macro of a header that the line's -I brings is the type, and is not guessed beside it."""
    for folder in ("src", "include"):
        Path(folder).mkdir()
    Path("include/types.h").write_text("#define REAL double\n#define COUNT unsigned\n")
    Path("src/k.cu").write_text(
        f'#include "types.h"\n{template}__global__ void f(REAL *x, const COUNT *c, int n) {{ int i = threadIdx.x;\n'
        "  if (i < n) x[i] = c[i]; }\n"
    )
    words = suggested(cudabench("run", "src/k.cu").err)
    assert {"x=float64[n]:zeros", "c=uint32[n]:random"} <= set(words)
    assert "-D" not in words
    assert cudabench(*words, "--device", "sim", "--no-cpu").code == 0


def test_a_header_of_cuda_or_the_standard_library_is_not_a_projects_own(cudabench: Callable[..., Ran]) -> None:
    """Copies of cub and files that are called as standard headers are would hide those that the compiler has."""
    Path("Makefile").touch()
    for header in ("third_party/cub/cub.cuh", "text/string.h", "text/own.h"):
        Path(header).parent.mkdir(parents=True, exist_ok=True)
        Path(header).write_text("#error of another release\n" if "own" not in header else "")
    Path("k.cu").write_text(
        "#include <string.h>\n#include <cub/cub.cuh>\n__global__ void f(float *x) { x[threadIdx.x] = 1; }\n"
    )
    assert "-I" not in suggested(cudabench("run", "k.cu").err)
    Path("k.cu").write_text('#include "own.h"\n__global__ void f(float *x) { x[threadIdx.x] = 1; }\n')
    words = suggested(cudabench("run", "k.cu").err)
    assert words[words.index("-I") + 1].endswith("text")


@needs_simulator
def test_kernels_of_headers_nearby_and_behind_a_macro(cudabench: Callable[..., Ran]) -> None:
    """A file with no kernel of its own but of a header that -I finds, and one whose kernels a build's macro shows."""
    for folder in ("src", "include"):
        Path(folder).mkdir()
    Path("include/k.cuh").write_text(
        "__global__ void fill(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] = n; }\n"
    )
    Path("src/k.cu").write_text('#include "k.cuh"\nvoid go(float *x, int n) { fill<<<1, 32>>>(x, n); }\n')
    said = cudabench("run", "src/k.cu").err
    assert "src/k.cu has no kernel but those of headers, which -I finds; as in: " in said
    Path("m.cu").write_text(
        "#ifdef WITH_GPU\n#if 1\n__global__ void fill(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] = n; }\n"
        "#endif\n#endif\n"
    )
    for text in (said, cudabench("run", "m.cu").err):
        words = suggested(text)
        assert cudabench(*words, "--device", "sim", "--no-cpu").code == 0
    assert "WITH_GPU=1" in words


def test_a_template_that_is_named_has_a_line_too(cudabench: Callable[..., Ran]) -> None:
    """--kernel with a template's bare name gives the line with its arguments."""
    text, _ = FILES["a template's arguments from constants and from what is passed"]
    Path("k.cu").write_text(text)
    said = cudabench("run", "k.cu", "-k", "wide").err
    assert "name an instantiation, such as 'wide<48, double>'; as in: " in said
    assert suggested(said)[3] == "wide<48, double>"


def launch(host: str, kernel: str = "__global__ void f(float *x, int n) { x[threadIdx.x] = n; }") -> HostLaunch | None:
    """Return what is read of host code in front of `f<<<g, b>>>(x, n)`."""
    text = f"{kernel}\nint main(int argc, char **argv) {{ {host} }}"
    file = source.parse(text, "k.cu")
    return host_launch.find(file.text, file.kernels[0], {"n": 256}, file.aliases)


@pytest.mark.parametrize(
    ("host", "grid", "block"),
    [
        ("f<<<3, 1 << 5>>>(x, 1)", (3, 1, 1), (32, 1, 1)),
        ("dim3 g = dim3(2, 3), b(4, 5, 6); f<<<g, b>>>(x, 1)", (2, 3, 1), (4, 5, 6)),
        ("const int k = 100; f<<<(int)ceil(k / (float)32), min(k, 64)>>>(x, k)", (4, 1, 1), (64, 1, 1)),
        ("int b = 8; if (argc > 1) b = atoi(argv[1]); f<<<b * 2, b>>>(x, 1)", (16, 1, 1), (8, 1, 1)),
        ("dim3 b; b.x = 16; b.y = 0x2u; f<<<5, b, 0, stream>>>(x, 1)", (5, 1, 1), (16, 2, 1)),
        ("int g = devices() > 1 ? 7 : 9; f<<<g, 32>>>(x, 1)", (9, 1, 1), (32, 1, 1)),
        ("int g = 1; while (g < n) g *= 2; f<<<g, 32>>>(x, 1)", None, (32, 1, 1)),  # only a run knows
        ("f<<<props.blocks, 64>>>(x, 1)", None, (64, 1, 1)),
        ("int g = g + 1; f<<<g, 1 / 0>>>(x, 1)", None, None),
        ("f<<<blocks(3), 32>>>(x, 1)", None, (32, 1, 1)),
        ("f<<<, >>>(x, 1)", None, None),
    ],
)
def test_geometry_is_read_where_it_can_be(
    host: str, grid: tuple[int, int, int] | None, block: tuple[int, int, int] | None
) -> None:
    """Names, dim3 in its spellings, calls and choices; what hangs on a run is left open."""
    found = launch(host)
    assert (found.grid, found.block) == (grid, block) if found else (grid, block) == (None, None)


def test_a_file_without_a_launch_has_none() -> None:
    """No launch, a launch of another kernel, and an unfinished one are none."""
    assert launch("") is None
    assert launch("other<<<1, 32>>>(x, 1);") is None
    assert launch("f<<<1, 32") is None


def test_names_that_a_kernel_comes_to() -> None:
    """Through functions that it calls, but not those of its own variables and parameters."""
    text = (
        "__constant__ float s[4], far, other;\n__device__ float use(int k) { return s[k]; }\n"
        "__device__ float unused() { return other; }\n"
        "__global__ void reads(float *x) { *x = use(1); }\n"
        "__global__ void shadows(float *far, int n) { float *s = far, other = 1;\n"
        "  for (int i = 0, k; i < n; i++) s[i] = other; }\n"
    )
    file = source.parse(text, "k.cu")
    reads, shadows = file.kernels
    assert reached.names(text, reads) >= {"use", "s"}
    assert constants.unset(file, reads, ()) == ["s"]
    assert constants.unset(file, shadows, ()) == []


def test_constants_of_one_declaration() -> None:
    """Each is found with its type and extents, and whether it starts as something."""
    text = (
        "static __constant__ const float a, b[3][N] , c = 2;\n__constant__ __align__(16) float4 t[2];\n"
        "namespace n { __constant__ struct P p; }\n__constant__ int table[] = {1, 2};\n"
    )
    assert constants.declared(source.parse(text, "k.cu")) == {
        "a": ("float", "", False),
        "b": ("float", "[3][N]", False),
        "c": ("float", "", True),
        "t": ("float4", "[2]", False),
        "p": ("P", "", False),
        "table": ("int", "[]", True),
    }


def test_older_names_are_told_by_what_a_compiler_says() -> None:
    """The definitions come in where a name is unknown or the assembler wants a mask, and not otherwise."""
    assert older.needed('k.cu(3): error: identifier "__shfl_xor" is undefined')
    assert older.needed("ptxas line 9: error: Instruction 'vote' without '.sync' is not supported on .target sm_70")
    assert not older.needed('k.cu(3): error: identifier "shuffle" is undefined')


def test_vector_math_stands_for_the_samples_header_alone() -> None:
    """Its text declares each function once, and no header of the user's own is replaced."""
    heads = re.findall(r"__device__ (\S.*?\))\s*\{", vector_math.TEXT)
    assert len(heads) == len(set(heads)) > 200


def test_utf_16_is_refused_by_name(cudabench: Callable[..., Ran]) -> None:
    """A file that an editor wrote in UTF-16 is told so."""
    Path("k.cu").write_text("__global__ void f() {}\n", encoding="utf-16")
    ran = cudabench("run", "k.cu")
    assert (ran.code, ran.err) == (
        1,
        "Error: k.cu is written in UTF-16, which no compiler of CUDA's reads: save it as UTF-8.\n",
    )


@needs_simulator
def test_an_array_that_is_too_small_is_said_to_be_as_given(cudabench: Callable[..., Ran]) -> None:
    """Out of bounds where nothing holds the output: --arg may be at fault, which a warning says; else it does not."""
    Path("pairs.cu").write_text(
        "__global__ void pairs(float *out, const float *in, int n) { int i = threadIdx.x;\n"
        "  if (i < n) { out[2 * i] = in[i]; out[2 * i + 1] = 0; } }\n"
    )
    line = ["run", "pairs.cu", "-g", 1, "-b", 32, "--arg", "out=float32[n]:zeros", "--arg", "in=float32[n]:random"]
    line += ["--arg", "n=32", "-d", "sim", "--no-cpu"]
    ran = cudabench(*line)
    assert ran.code == 3
    said = "out is as large as --arg says: if callers give the kernel more, give out more elements"
    assert said in " ".join(ran.err.split())
    assert said not in " ".join(cudabench(*line, "--expect", "out=out0").err.split())
    assert said in " ".join(cudabench("check", *line[1:-1]).out.split())


def test_names_that_lead_to_each_other_end_the_search(cudabench: Callable[..., Ran]) -> None:
    """Sizes that host code sets in turn from one another are left unread, in no time."""
    turns = " ".join(f"a{k} = a{(k + 1) % 8} + a{(k + 3) % 8} + b; a{k} = a{(k + 5) % 8} * 2 + b;" for k in range(8))
    Path("k.cu").write_text(
        "__global__ void fill(float *x, int n) { int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] = i; }\n"
        f"void go(float *x, int b) {{ int a0, a1, a2, a3, a4, a5, a6, a7; {turns * 4} fill<<<a0, a1>>>(x, a2); }}\n"
    )
    assert suggested(cudabench("run", "k.cu").err)[3] == "fill"


@needs_simulator
@pytest.mark.parametrize(
    "loop",
    [
        "for (int j = 0; j < n; ++j) t += x[j];",
        "int j = 0; while (j < n) { t += x[j]; j++; }",
        "for (int j = n - 1; j >= 0; --j) t += x[j];",
        "for (int j = i; j < n; j++) t += x[j];",
        "for (int b = 0; b < (n + 63) / 64; ++b) for (int j = 0; j < 64 && b * 64 + j < n; ++j) t += x[b * 64 + j];",
    ],
)
@pytest.mark.parametrize("host", [False, True])
def test_a_thread_that_loops_over_all_makes_a_problem_small(
    loop: str, host: bool, cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all threads do together is some seconds in the simulator, though main's n be larger; its launch stays."""
    monkeypatch.setattr(example, "MOST_TURNS", 1 << 16)
    text = "__global__ void sums(const float *x, float *out, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    text += f"  if (i >= n) return; float t = 0; {loop} out[i] = t; }}\n"
    if host:
        text += "int main() { int n = 1 << 15; float *x, *y; cudaMalloc(&x, n * sizeof(float));\n"
        text += "  cudaMalloc(&y, n * sizeof(float)); sums<<<(n + 63) / 64, 64>>>(x, y, n); }\n"
    Path("k.cu").write_text(text)
    words = suggested(cudabench("run", "k.cu").err)
    n = int(next(word for word in words if word.startswith("n=")).partition("=")[2])
    assert 16 <= n <= 256
    assert ("--block 64" in " ".join(words)) == host
    assert cudabench(*words, "--device", "sim", "--no-cpu").code == 0


def test_random_numbers_without_their_header_have_no_line(
    cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that seeds a generator of its own says what to install, not a line that does not compile."""
    Path("k.cu").write_text(
        "#include <curand_kernel.h>\n__global__ void draw(float *x, int n) { curandState own;\n"
        "  curand_init(1, threadIdx.x, 0, &own); if (threadIdx.x < n) x[threadIdx.x] = curand_uniform(&own); }\n"
    )
    monkeypatch.setattr("cudabench.toolchain.toolkit.of_device_libraries", lambda *texts: [])
    said = cudabench("run", "k.cu").err
    assert "draw draws random numbers by <curand_kernel.h>, which is not here: pip install nvidia-curand" in said
    monkeypatch.setattr("cudabench.toolchain.toolkit.of_device_libraries", lambda *texts: [Path()])
    assert suggested(cudabench("run", "k.cu").err)[3] == "draw"


def test_numbers_of_the_hosts_launch_are_no_guesses(cudabench: Callable[..., Ran]) -> None:
    """A fault of a launch whose numbers all stand in the file is the kernel's, also where `check` would guess them."""
    Path("k.cu").write_text(
        "#define N 400\n__global__ void pairs(float *x, int n) { int i = 2 * threadIdx.x; x[i] += x[i + 1]; }\n"
        "int main() { float *x; cudaMalloc(&x, N * sizeof(float)); pairs<<<1, 256>>>(x, N); }\n"
    )
    for command in ("run", "check"):
        words = shlex.split(re.search(r"write: cudabench (.*)", cudabench(command, "k.cu").err)[1])  # type: ignore[index]
        ran = cudabench(*words, "--device", "sim")
        assert (ran.code, "past the end of 'x'" in ran.out) == (3, True)
        assert "suggested line guesses" not in ran.out + ran.err


@pytest.mark.parametrize(("low", "said"), [(5, True), (3, False)])
def test_a_launch_that_comes_to_no_store_says_so(low: int, said: bool, cudabench: Callable[..., Ran]) -> None:
    """`clean` of a kernel of which every thread left at once is not said without that."""
    Path("k.cu").write_text(
        "__global__ void sort(int *a, int low, int high) { if (low < high && threadIdx.x == 0) a[low] = a[high]; }"
    )
    given = ["-k", "sort", "-g", 1, "-b", 32, "--arg", "a=int32[8]:arange", "--arg", f"low={low}", "--arg", "high=5"]
    for command in ("run", "check", "explain"):
        ran = cudabench(command, "k.cu", *given, *(["--device", "sim"] if command == "run" else []))
        assert (ran.code, "no thread wrote anything" in ran.out + ran.err) == (0, said)
    checked = cudabench("check", "k.cu", *given).out
    assert "1 block of 32 threads" in checked


def test_a_kernel_without_stores_is_not_said_to_miss_them(cudabench: Callable[..., Ran]) -> None:
    """A kernel that only prints has nothing to write."""
    Path("k.cu").write_text('#include <cstdio>\n__global__ void greet(int n) { if (n > 3) printf("hi %d", n); }')
    ran = cudabench("check", "k.cu", "-k", "greet", "-g", 1, "-b", 1, "--arg", "n=1")
    assert (ran.code, "no thread wrote" in ran.out, "1 block of 1 thread" in ran.out) == (0, False, True)
