"""The ways in which host code launches: by CUDA's functions, through its own, under conditions, on kinds of memory."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.toolchain import source
from cudabench.toolchain.compiler import nvrtc_version
from cudabench.userkernel.suggested import host_launch
from cudabench.userkernel.suggested.host_launch import HostLaunch
from tests.conftest import Ran
from tests.test_suggestions import check_line

needs_simulator = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

SCALE = """#include <cuda_runtime.h>
__global__ void scale(float *x, float f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= f; }
"""
ROWS = """#include <cuda_runtime.h>
__global__ void gain(float *img, size_t pitch, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) { float *row = (float *)((char *)img + y * pitch); row[x] *= 2; } }
"""
GIVEN = ["--grid cdiv(n,64)", "--block 64", "x=float32[n]", "f=3.5", "n=1000"]  # of SCALE, however it is launched
MAIN = "int main() { int n = 1000; float f = 3.5f, *d; cudaMalloc(&d, n * sizeof(float)); "

# Host code behind a kernel, and what the line has in it.
FILES = {
    "cudaLaunchKernel": (
        f"{SCALE}{MAIN}void *args[] = {{&d, (void *)&f, &n}};\n"
        "  cudaLaunchKernel((const void *)scale, dim3((n + 63) / 64), dim3(64), args, 0, nullptr); }",
        GIVEN,
    ),
    "arguments one by one, and a variable for the kernel": (
        f"{SCALE}{MAIN}void *args[3]; args[0] = &d; args[1] = &f; args[2] = &n; auto own = (void *)&scale;\n"
        "  cudaLaunchKernel(own, (n + 63) / 64, 64, args); }",
        GIVEN,
    ),
    "an instance of a template by its address": (
        "template <typename T> __global__ void plus(T *x, T a) { x[blockIdx.x * blockDim.x + threadIdx.x] += a; }\n"
        "int main() { double a = 2, *d; cudaMalloc(&d, 96 * sizeof(double)); void *args[] = {&d, &a};\n"
        "  cudaLaunchKernel(reinterpret_cast<const void *>(&plus<double>), dim3(3), dim3(32), args, 0, 0); }",
        ["--kernel plus<double>", "--grid 3", "--block 32", "x=float64[96]", "a=2.0"],
    ),
    "the size of a struct that a kernel takes behind a number": (
        "struct State { unsigned a; double b[3]; int c; };\n"
        "__global__ void init(int *p, int n, State *s) { int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) { s[i].b[2] = 1; s[i].c = p[i]; } }\n"
        "int main() { int n = 1000, *p; State *s; cudaMalloc(&p, n * sizeof(int)); cudaMalloc(&s, sizeof(State) * n);\n"
        "  init<<<n / 250, 250>>>(p, n, s); }",
        ["p=int32[n]", "s=uint8[40*n]"],
    ),
    "numbers that a user types": (
        f"#include <stdio.h>\n#include <iostream>\n{SCALE}int main() {{ int n = 0, m = 1; float *d;\n"
        '  scanf("%d", &n); std::cin >> m; cudaMalloc(&d, n * sizeof(float));\n'
        "  scale<<<(n + 63) / 64, 64>>>(d, 3.5f, n); }",
        ["--grid cdiv(n,64)", "--block 64", "x=float32[n]", "n=1048576"],
    ),
    "loops whose third part is an assignment": (
        "__global__ void swap(float *a, int j, int k) { int i = blockIdx.x * blockDim.x + threadIdx.x, p = i ^ j;\n"
        "  if (p > i && ((i & k) == 0) == (a[i] > a[p])) { float t = a[i]; a[i] = a[p]; a[p] = t; } }\n"
        "int main() { int n = 512, j, k; float *d; cudaMalloc(&d, n * sizeof(float));\n"
        "  for (k = 2; k <= n; k = 2 * k) for (j = k >> 1; j > 0; j = j / 2) swap<<<n / 128, 128>>>(d, j, k); }",
        ["--grid 4", "--block 128", "a=float32[512]", "j=1", "k=2"],
    ),
    "a pitch that follows from a smaller row": (
        "__global__ void total(const float *a, size_t pitch, int w, int h, float *out) { float sum = 0;\n"
        "  for (int r = 0; r < h; r++) { const float *row = (const float *)((const char *)a + r * pitch);\n"
        "    for (int c = 0; c < w; c++) sum += row[c]; }\n"
        "  out[blockIdx.x * blockDim.x + threadIdx.x] = sum; }\n"
        "int main() { const int w = 4096, h = 4096; float *a, *out; size_t pitch = 0;\n"
        "  cudaMallocPitch(&a, &pitch, w * sizeof(float), h); cudaMalloc(&out, 640 * sizeof(float));\n"
        "  total<<<5, 128>>>(a, pitch, w, h, out); }",
        ["--grid 5", "--block 128", "pitch=512", "w=64", "h=64", "a=float32[16*pitch]"],
    ),
    "cudaLaunchCooperativeKernel": (
        "#include <cooperative_groups.h>\n__global__ void turn(float *a, int n) {\n"
        "  auto g = cooperative_groups::this_grid(); int i = g.thread_rank(); float v = i < n ? a[n - 1 - i] : 0;\n"
        "  g.sync(); if (i < n) a[i] = v; }\n"
        "int main() { int n = 500; float *d; cudaMalloc(&d, n * sizeof(float));\n"
        "  void *all[] = {(void *)&d, (void *)&n}; dim3 g(8, 1, 1), b(64, 1, 1);\n"
        "  cudaLaunchCooperativeKernel((void *)turn, g, b, all, 0, NULL); }",
        ["--grid cdiv(n,64)", "--block 64", "a=float32[n]", "n=500"],
    ),
    "cudaLaunchKernelEx with a cluster": (
        "#include <cooperative_groups.h>\n__global__ void swap(int *x) { __shared__ int s[64];\n"
        "  auto c = cooperative_groups::this_cluster(); int i = blockIdx.x * 64 + threadIdx.x;\n"
        "  s[threadIdx.x] = x[i]; c.sync(); int v = c.map_shared_rank(s, c.block_rank() ^ 1)[threadIdx.x];\n"
        "  c.sync(); x[i] = v; }\n"
        "int main() { int *d, many = 2; cudaMalloc(&d, 512 * sizeof(int)); cudaLaunchConfig_t config = {0};\n"
        "  config.gridDim = 8; config.blockDim = 64; cudaLaunchAttribute attribute[1];\n"
        "  attribute[0].id = cudaLaunchAttributeClusterDimension; attribute[0].val.clusterDim.x = many;\n"
        "  attribute[0].val.clusterDim.y = 1; attribute[0].val.clusterDim.z = 1;\n"
        "  config.attrs = attribute; config.numAttrs = 1; cudaLaunchKernelEx(&config, swap, d); }",
        ["--grid 8", "--block 64", "--cluster 2", "x=int32[512]"],
    ),
    "cudaLaunchKernelExC with a config in braces": (
        f"{SCALE}{MAIN}cudaLaunchConfig_t config = {{dim3((n + 63) / 64), dim3(64), 0, 0, nullptr, 0}};\n"
        "  void *args[] = {&d, &f, &n}; cudaLaunchKernelExC(&config, (const void *)scale, args); }",
        GIVEN,
    ),
    "cuLaunchKernel": (
        'extern "C" __global__ void scale(float *x, float f, int n) {\n'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= f; }\n"
        'int main() { CUfunction fn; cuModuleGetFunction(&fn, module, "scale"); int n = 1000; float f = 3.5f;\n'
        "  CUdeviceptr d; cuMemAlloc(&d, n * sizeof(float)); void *args[] = {&d, &f, &n};\n"
        "  cuLaunchKernel(fn, (n + 63) / 64, 1, 1, 64, 1, 1, 0, NULL, args, NULL); }",
        GIVEN,
    ),
    "a function that is given the kernel and what it takes": (
        "template <typename K, typename... A> void start(K kernel, int n, A... given) {\n"
        f"  kernel<<<(n + 63) / 64, 64>>>(given...); }}\n{SCALE}{MAIN}start(scale, n, d, f, n); }}",
        GIVEN,
    ),
    "a table of kernels": (
        "struct Entry { const char *name; void (*kernel)(float *, float, int); };\n"
        f'{SCALE}static Entry table[] = {{{{"scale", scale}}}};\n{MAIN}for (auto &one : table)\n'
        "  one.kernel<<<(n + 63) / 64, 64>>>(d, f, n); }",
        GIVEN,
    ),
    "sizes and arrays of the callers": (
        f"{SCALE}void go(float *x, float f, int count, int threads = 32) {{\n"
        "  scale<<<(count + threads - 1) / threads, threads>>>(x, f, count); }\n"
        f"{MAIN}go(d, f, n, 64); }}",
        GIVEN,
    ),
    "a class that keeps its size and its array": (
        f"{SCALE}class Field {{ public: explicit Field(int n) : n_(n) {{ cudaMalloc(&d_, n_ * sizeof(float)); }}\n"
        "  void scaled(float f) { scale<<<(n_ + 63) / 64, 64>>>(d_, f, n_); } private: int n_; float *d_; };\n"
        "int main() { Field field(1000); field.scaled(3.5f); }",
        GIVEN,
    ),
    "a class whose functions stand outside it": (
        f"{SCALE}struct Field {{ int n; float *d; Field(int many); void scaled(float f); }};\n"
        "Field::Field(int many) { n = many; cudaMalloc(&d, n * sizeof(float)); }\n"
        "void Field::scaled(float f) { scale<<<(n + 63) / 64, 64>>>(d, f, n); }\n"
        "int main() { Field field(1000); field.scaled(3.5f); }",
        GIVEN,
    ),
    "arrays that another function allocates": (
        f"float *d_x;\n{SCALE}void init(int n) {{ cudaMalloc(&d_x, 2 * n * sizeof(float)); }}\n"
        "int main() { int n = 1000; init(n); scale<<<(n + 63) / 64, 64>>>(d_x, 3.5f, n); }",
        ["--grid cdiv(n,64)", "x=float32[2*n]"],
    ),
    "an allocation by a function of one's own": (
        f"{SCALE}void reserve(float **p, size_t count) {{ cudaMalloc((void **)p, count * sizeof(float)); }}\n"
        "int main() { int n = 1000; float *d; reserve(&d, 3 * n); scale<<<(n + 63) / 64, 64>>>(d, 3.5f, n); }",
        ["x=float32[3*n]"],
    ),
    "containers": (
        f"#include <vector>\n#include <thrust/device_vector.h>\n{SCALE}int main() {{ std::vector<float> h(1000, 1.f);\n"
        "  thrust::device_vector<float> other(5), d = h; int n = static_cast<int>(h.size());\n"
        "  scale<<<(d.size() + 63) / 64, 64>>>(thrust::raw_pointer_cast(d.data()), 3.5f, n); }",
        GIVEN,
    ),
    "arrays of a fixed size": (
        "__global__ void sum(int *c, const int *a) { c[threadIdx.x] += a[threadIdx.x]; }\n"
        "int main() { const int a[] = {1, 2, 3, 4, 5, 6}; int *c, *d; cudaMalloc(&c, sizeof(a));\n"
        "  cudaMalloc(&d, sizeof a); sum<<<1, sizeof(a) / sizeof(a[0])>>>(c, d); }",
        ["--block 6", "c=int32[6]", "a=int32[6]"],
    ),
    "the case of a switch": (
        "template <int BLOCK> __global__ void sum(const int *in, int *out) { __shared__ int s[BLOCK];\n"
        "  s[threadIdx.x] = in[blockIdx.x * BLOCK + threadIdx.x]; __syncthreads();\n"
        "  if (!threadIdx.x) { int t = 0; for (int i = 0; i < BLOCK; i++) t += s[i]; out[blockIdx.x] = t; } }\n"
        "void go(int n, int threads, const int *in, int *out) { int blocks = n / threads; switch (threads) {\n"
        "  case 512: sum<512><<<blocks, threads>>>(in, out); break;\n"
        "  case 128: sum<128><<<blocks, threads>>>(in, out); break; default: sum<32><<<1, 32>>>(in, out); } }\n"
        "int main() { int n = 1024, *a, *b; cudaMalloc(&a, n * sizeof(int)); cudaMalloc(&b, n); go(n, 128, a, b); }",
        ["--kernel sum<128>", "--grid 8", "--block 128", "in=int32[1024]", "out=int32[256]"],
    ),
    "what an option that is not given leaves out": (
        "template <bool FAST> __global__ void mul(float *x) { x[threadIdx.x] *= FAST ? 2 : 3; }\n"
        "int main(int argc, char **argv) { bool fast = argc > 1; float *d; cudaMalloc(&d, 256);\n"
        "  if (fast) mul<true><<<1, 64>>>(d); else mul<false><<<1, 32>>>(d); }",
        ["--kernel mul<false>", "--block 32"],
    ),
    "the first turn of a loop": (
        "__global__ void sort(int *a, int j, int k) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x, o = i ^ j;\n"
        "  if (o > i && (a[i] > a[o]) == ((i & k) == 0)) { int t = a[i]; a[i] = a[o]; a[o] = t; } }\n"
        "int main() { const int n = 256; int *d; cudaMalloc(&d, n * sizeof(int));\n"
        "  for (int k = 2; k <= n; k <<= 1) for (int j = k >> 1; j > 0; j /= 2) sort<<<n / 64, 64>>>(d, j, k); }",
        ["--grid 4", "--block 64", "a=int32[256]", "j=1", "k=2"],
    ),
    "cudaMallocPitch": (
        f"{ROWS}int main() {{ int w = 100, h = 20; float *d; size_t pitch;\n"
        "  cudaMallocPitch((void **)&d, &pitch, w * sizeof(float), h);\n"
        "  gain<<<dim3((w + 15) / 16, (h + 15) / 16), dim3(16, 16)>>>(d, pitch, w, h); }",
        ["--grid 7,2", "--block 16,16", "pitch=512", "img=float32[5*pitch]", "w=100", "h=20"],
    ),
    "cudaMalloc3D by its parts": (
        f"{ROWS}int main() {{ int w = 150, h = 20; cudaPitchedPtr p; cudaExtent e = make_cudaExtent(w * 4, h, 1);\n"
        "  cudaMalloc3D(&p, e); gain<<<dim3(10, 2), dim3{16, 16}>>>((float *)p.ptr, p.pitch, w, h); }",
        ["--grid 10,2", "pitch=1024", "w=150"],
    ),
    "cudaPitchedPtr by value": (
        "__global__ void shade(cudaPitchedPtr p, int w) { int x = threadIdx.x; char *row = (char *)p.ptr +\n"
        "  blockIdx.x * p.pitch; if (x < w) ((float *)row)[x] = x; }\n"
        "int main() { int w = 60; cudaPitchedPtr p; cudaMalloc3D(&p, make_cudaExtent(w * sizeof(float), 8, 1));\n"
        "  shade<<<8, 64>>>(p, w); }",
        ["--grid 8", "--block 64", "p={ptr: float32[1024]:random, pitch: 512, xsize: 240, ysize: 8}"],
    ),
    "members of a struct": (
        "struct Matrix { int w, h; float *at; };\n__global__ void add(Matrix m, float b) {\n"
        "  int x = threadIdx.x, y = blockIdx.x; if (x < m.w && y < m.h) m.at[y * m.w + x] += b; }\n"
        "int main() { Matrix m; m.w = 40; m.h = 6; cudaMalloc(&m.at, m.w * m.h * sizeof(float));\n"
        "  add<<<m.h, 64>>>(m, 0.5f); }",
        ["--grid 6", "m={w: 40, h: 6, at: float32[240]:random}", "b=0.5"],
    ),
    "what the members of options start as": (
        f"struct Options {{ int count = 1000; float f = 3.5f; }};\n{SCALE}void go(const Options &o) {{ float *d;\n"
        "  cudaMalloc(&d, o.count * sizeof(*d)); scale<<<(o.count + 63) / 64, 64>>>(d, o.f, o.count); }\n"
        "int main(int argc, char **argv) { Options own; if (argc > 1) own.count = atoi(argv[1]); go(own); }",
        GIVEN,
    ),
    "a function whose head is faulty beside one": (
        f"{SCALE}void broken(float *x {{ scale<<<1, 1>>>(x, 1, 1); }}\n{MAIN}scale<<<(n + 63) / 64, 64>>>(d, f, n); }}",
        GIVEN,
    ),
}


@needs_simulator
@pytest.mark.parametrize("name", FILES)
def test_the_line_launches_as_the_host_code_does(name: str, cudabench: Callable[..., Ran]) -> None:
    """The line has the host's grid, block, sizes, numbers and instance, and runs without a hazard."""
    check_line(cudabench, *FILES[name])


def test_a_pitched_pointer_of_which_nothing_says_how_large_it_is(cudabench: Callable[..., Ran]) -> None:
    """No pitch is made up, for with a wrong one a right kernel looks wrong: the message says what to give."""
    Path("k.cu").write_text(
        "__global__ void shade(cudaPitchedPtr p) { ((float *)p.ptr)[threadIdx.x + blockIdx.x * p.pitch / 4] = 1; }"
    )
    ran = cudabench("run", "k.cu")
    assert ran.code == 2
    assert "nothing here says how large the memory of 'cudaPitchedPtr p' is: give --arg 'p={ptr: " in ran.err


def launch(host: str, before: str = "", kernel: str = SCALE, name: str = "scale") -> HostLaunch | None:
    """Return what is read of host code behind a kernel."""
    file = source.parse(f"{kernel}{before}int main(int argc, char **argv) {{ {host} }}", "k.cu")
    own = next(one for one in file.kernels if one.name == name)
    return host_launch.find(file.text, own, {"n": 256}, file.aliases)


@pytest.mark.parametrize(
    ("before", "host", "grid", "n"),
    [
        # A parameter hides a constant of the file, and an unread one does not show it.
        ("const int n = 77; void go(float *d, int n) { scale<<<n, 32>>>(d, 1, n); }", "go(p, 5);", 5, 5),
        ("const int n = 77; void go(float *d, int n) { scale<<<n, 32>>>(d, 1, n); }", "", 256, 256),
        # The first call of two; a call by another number of arguments is of another function.
        ("void go(float *d, int n) { scale<<<n, 32>>>(d, 1, n); }", "go(a, 3); go(b, 4);", 3, 3),
        ("void go(float *d, int n) { scale<<<n, 32>>>(d, 1, n); }", "go(a); go(b, 4);", 4, 4),
        ("void go(float *d, int n = 6) { scale<<<n, 32>>>(d, 1, n); }", "go(a);", 6, 6),
        # A launch behind what only an option asks for is not the one.
        ("", "if (argc > 2) { scale<<<9, 32>>>(a, 1, 9); } else { scale<<<2, 32>>>(a, 1, 2); }", 2, 2),
        ("", "if (argc > 2) scale<<<9, 32>>>(a, 1, 9);", 9, 9),  # unless there is no other
        ("", "int m = 2; switch (m) { case 1: scale<<<1, 32>>>(a, 1, 1); break; case 2: case 3:\n"
         "  scale<<<3, 32>>>(a, 1, 3); }", 3, 3),
        ("", "int m = 7; switch (m) { case 7: scale<<<1, 32>>>(a, 1, 1); break; default:\n"
         "  scale<<<3, 32>>>(a, 1, 3); }", 1, 1),
        # A number that a loop before has changed is not known, one that the loop around counts is at its start.
        ("", "int turn; for (turn = 0; turn < 8; turn++) q(); scale<<<4, 32>>>(a, 1, turn);", 4, 256),
        ("", "for (int i = 3; i < 8; i++) { scale<<<4, 32>>>(a, 1, i); }", 4, 3),
        ("", "std::vector<int> v; v.push_back(1); scale<<<4, 32>>>(a, 1, v.size());", 4, None),
    ],
)  # fmt: skip
def test_which_launch_and_which_numbers(before: str, host: str, grid: int, n: int | None) -> None:
    """Calls, conditions and loops choose what is read; what none of them says is left to be assumed."""
    found = launch(host, before)
    assert found is not None
    assert found.grid == (grid, 1, 1)
    assert found.numbers.get(2) == n


def test_a_variable_of_another_function_is_another() -> None:
    """An array's size is not taken from a function that has its own variable of the same name."""
    found = launch("float *d; load(&d); scale<<<1, 32>>>(d, 1, 5);", "void other() { float *d; cudaMalloc(&d, 4); }\n")
    assert found is not None
    assert found.nbytes == {}


def test_the_kernel_that_a_variable_holds_is_told_from_others() -> None:
    """Two kernels go through one function with different blocks: each has its own."""
    other = SCALE.replace("scale", "other").replace("#include <cuda_runtime.h>", "")
    start = "template <class K> void start(K kernel, int b, float *d, int n) { kernel<<<n, b>>>(d, 1, n); }\n"
    host = "start(other, 32, p, 3); start(scale, 96, p, 7);"
    one, two = launch(host, other + start), launch(host, other + start, name="other")
    assert one is not None
    assert two is not None
    assert (one.grid, one.block, two.grid, two.block) == ((7, 1, 1), (96, 1, 1), (3, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("name", FILES)
def test_broken_host_code_is_read_as_far_as_it_goes(name: str) -> None:
    """Host code that ends anywhere, or lacks words, raises nothing and ends."""
    file = source.parse(FILES[name][0], "k.cu")
    kernel = file.kernels[0]
    head, words = file.text[: kernel.end], shlex.shlex(file.text[kernel.end :], punctuation_chars=False)
    words.quotes, words.commenters = "", ""
    tail = list(words)
    chance = random.Random(name)
    for _ in range(40):
        cut = list(tail)
        del cut[chance.randrange(len(cut)) :: chance.choice([1, 7, 19])]
        text = f"{head} {' '.join(cut)}"
        found = host_launch.find(text, kernel, {"n": 64}, file.aliases, chance.random() < 0.5)
        assert found is None or isinstance(found, HostLaunch)
