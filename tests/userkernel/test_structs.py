"""Structs by value with pointers in them, structs with methods, and clusters of a launch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.source.files import parse_text
from cudabench.source.named_types import layout_of
from tests.conftest import Ran

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
Runner = Callable[..., Ran]

SOURCE = """
struct Node { int v; };
struct Matrix {
    int rows, cols;
    float *data;
    __host__ __device__ Matrix() : rows(0), cols(0), data(nullptr) {}
    __device__ float &at(int r, int c) const { if (r < 0) { return data[0]; } return data[r * cols + c]; }
    __device__ inline float operator()(int r, int c) const { return data[r * cols + c]; }
};
class Parameters {
public:
    float scale;
    const float *__restrict__ bias;
    struct Node *nodes;
    static constexpr int N = 3;
    int *hits[2];
    Matrix inner;
};
union Either { float f; int *p; };
struct Odd { Either e; };
struct Deep { float **rows; };
__global__ void twice(Matrix in, Matrix out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < in.rows * in.cols) out.data[i] = 2 * in.data[i];
}
__global__ void deep(Parameters p, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    p.inner.data[i] = p.scale * x[i] + (p.bias ? p.bias[i] : 1.f);
    if (p.hits[1]) p.hits[1][i] = i;
    if (p.nodes) p.hits[0][i] = p.nodes[i].v;
}
__global__ void odd(Odd o, int n) {}
__global__ void rows(Deep d, int n) {}
"""
POINTED = """
struct Pair { unsigned key; unsigned value; };
template <typename T> struct vec3 {
    T x, y, z;
    __device__ vec3(T a) : x(a), y(a), z(a) {}
    __device__ vec3 &operator+=(const vec3 &o) { x += o.x; return *this; }
};
using Vector = vec3<float>;
template <typename T> struct View { int count; T *data; };
__global__ void swapped(Pair *p, Vector *v, View<float> w)
{
    int i = threadIdx.x;
    if (i >= w.count) return;
    Pair old = p[i];
    p[i].key = old.value;
    p[i].value = old.key;
    v[i].z += w.data[i];
}
"""
OUT = "out={rows: 10, cols: 12, data: float32[10,12]:empty}"


@pytest.fixture
def run(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run a kernel of SOURCE in the simulator with four blocks of 32 threads."""
    (tmp_path / "s.cu").write_text(SOURCE)

    def ran(kernel: str, arguments: list[str], *words: str) -> Ran:
        listed = [word for argument in arguments for word in ("--arg", argument)]
        return cudabench("run", "s.cu", "-k", kernel, "-g", 4, "-b", 32, *listed, *words, "--device", "sim", "--no-cpu")

    return ran


def test_layout() -> None:
    """Methods, access specifiers and static members do not affect a layout; a pointer has 8 bytes."""
    found = layout_of("Parameters", parse_text(SOURCE, "t.cu"))
    assert found is not None
    assert [(name, offset) for name, offset, _ in found.members] == [
        ("scale", 0), ("bias", 8), ("nodes", 16), ("hits", 24), ("inner", 40)
    ]  # fmt: skip
    assert (found.size, found.align) == (56, 8)
    assert layout_of("Odd", parse_text(SOURCE, "t.cu")) is None
    assert layout_of("Deep", parse_text(SOURCE, "t.cu")) is None


def test_arrays_behind_pointers(run: Runner, tmp_path: Path) -> None:
    """An array behind a struct's pointer is filled, verified and saved as STRUCT_MEMBER, also from a file."""
    np.save(tmp_path / "in.npy", np.arange(120, dtype=np.float32).reshape(10, 12))
    for how in ("float32[10,12]:random", f"@{tmp_path}/in.npy"):
        saved = ("--save", f"out_data={tmp_path}/out.npy")
        ran = run("twice", [f"in={{10, 12, {how}}}", OUT], "--expect", "out_data=2*in_data", *saved)
        assert ran.code == 0, ran.out + ran.err
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), 2 * np.load(tmp_path / "in.npy"))
    wrong = run("twice", [f"in={{10, 12, @{tmp_path}/in.npy}}", OUT], "--expect", "out_data=3*in_data")
    assert wrong.code == 3
    assert "out_data[0, 1]: got 2, expected 3" in wrong.out


def test_nested_shared_and_null(run: Runner) -> None:
    """A struct's pointer may be null, point to another argument's array, or be in an array or an inner struct."""
    base = "scale: 2.5, nodes: {nodes}, hits: [{hits}], inner: {{1, 2, float32[n]:empty}}"
    rest = ["x=float32[n]:random", "n=100"]
    one = base.format(nodes="null", hits="null, null")
    ran = run("deep", [f"p={{bias: x, {one}}}", *rest], "--expect", "p_inner_data=p_scale*x+x")
    assert ran.code == 0, ran.out + ran.err
    two = base.format(nodes="uint8[4*n]:ones", hits="int32[n]:empty, int32[n]:empty")
    ran = run(
        "deep", [f"p={{bias: null, {two}}}", *rest], "--expect", "p_inner_data=p_scale*x+1",
        "--expect", "p_hits_0=np.full(n,16843009)", "--expect", "p_hits_1=np.arange(n)",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err


def test_guards_and_names(run: Runner) -> None:
    """An access past such an array is a hazard with the array's name."""
    short = "p={2.5, x, null, [null, int32[n-9]:empty], {1, 2, float32[n]:empty}}"
    ran = run("deep", [short, "x=float32[n]:random", "n=100"])
    assert ran.code == 3
    assert "past the end of 'p_hits_1' (91 elements)" in " ".join(ran.out.split())


def test_pointers_to_structs(cudabench: Runner, tmp_path: Path) -> None:
    """A pointer to a struct with members of one type takes an array of that type, also for templates."""
    (tmp_path / "p.cu").write_text(POINTED)
    ran = cudabench(
        "run", "p.cu", "-g", 1, "-b", 32, "--arg", "p=uint32[n,2]:random", "--arg", "v=float32[3*n]:random", "--arg",
        "w={count: n, data: float32[n]:random}", "-D", "n=20", "--expect", "p=p0[:,::-1]",
        "--expect", "v[2::3]=v0[2::3]+w_data", "--device", "sim", "--no-cpu",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    odd = ("--arg", "v=float32[59]:random", "--arg", "w={20, null}")
    ran = cudabench("run", "p.cu", "-g", 1, "-b", 32, "--arg", "p=uint8[160]:zeros", *odd, "--device", "sim")
    assert ran.code == 2
    assert "59 elements of float32 are not a multiple of the 3 in Vector" in ran.err


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        ("twice", ["in={rows: 10, cols: 12, dat: null}", OUT], "lacks a member 'dat'; it has rows, cols, data"),
        ("twice", ["in={10, 12, int32[10,12]:random}", OUT], "--arg in: data: int32[10,12]:random: in_data is"),
        ("twice", ["in={10, 12, 5}", OUT], "write 'data: float32[n]:random'"),
        ("twice", ["in=5", OUT], "write --arg 'in={rows: 1, cols: 1, data: float32[1024]:random}'"),
        ("deep", ["p={1, x, null, [null, null], {1, 2, x}}", "x=float32[n]:random", "n=9"], "x is const in deep("),
        ("odd", ["o={1}", "n=9"], "a struct whose members are not known here (a union,"),
        ("rows", ["d={null}", "n=9"], "pointers to pointers"),
    ],
)
def test_what_no_struct_is(run: Runner, kernel: str, arguments: list[str], message: str) -> None:
    """An argument that does not match the struct is refused with one that does."""
    ran = run(kernel, arguments)
    assert ran.code == 2
    assert message in ran.err


# Clusters ------------------------------------------------------------------------------------------------------------

CLUSTERS = """
#include <cooperative_groups.h>
__global__ void sums(const float *x, float *y)
{
    __shared__ float s;
    cooperative_groups::cluster_group c = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    atomicAdd(&s, x[blockIdx.x * blockDim.x + threadIdx.x]);
    c.sync();
    float total = 0;
    for (unsigned r = 0; r < c.num_blocks(); r++) total += *c.map_shared_rank(&s, r);
    if (threadIdx.x == 0) y[blockIdx.x] = total;
    c.sync();
}
__global__ void __cluster_dims__(2, 1, 1) own(const float *x, float *y) { y[blockIdx.x] = x[blockIdx.x]; }
"""


@pytest.fixture
def clusters(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run one of the kernels above with eight blocks."""
    (tmp_path / "c.cu").write_text(CLUSTERS)

    def ran(kernel: str, *words: str) -> Ran:
        arguments = ("--arg", "x=float32[256]:random", "--arg", "y=float32[8]:empty")
        launch = ("-k", kernel, "-g", 8, "-b", 32)
        return cudabench("run", "c.cu", *launch, *arguments, *words, "--device", "sim", "--no-cpu")

    return ran


@pytest.mark.slow
def test_clusters_of_a_launch(clusters: Runner, tmp_path: Path) -> None:
    """--cluster groups blocks, and the results file records it; without --cluster each block is alone."""
    both = "y=np.repeat(np.sum(np.reshape(x,(2,128)),1),4)"
    assert clusters("sums", "--cluster", "4", "--expect", both, "--json", str(tmp_path / "r.json")).code == 0
    assert json.loads((tmp_path / "r.json").read_text())["results"][0]["cluster"] == [4, 1, 1]
    assert (
        clusters("sums", "--expect", "y=np.sum(np.reshape(x,(8,32)),1)", "--json", str(tmp_path / "r.json")).code == 0
    )
    assert json.loads((tmp_path / "r.json").read_text())["results"][0]["cluster"] is None


@pytest.mark.parametrize(
    ("kernel", "cluster", "message"),
    [
        ("sums", "3", "--cluster 3 does not divide the grid 8: x = 8 is not a multiple of 3; use --grid with x = 9"),
        ("sums", "32", "--cluster 32 has 32 blocks; CUDA allows 16 a cluster"),
        pytest.param(
            "own", "4", "is compiled for clusters of 2 x 1 x 1 blocks: leave --cluster out", marks=pytest.mark.slow
        ),
    ],
)
def test_what_no_cluster_is(clusters: Runner, kernel: str, cluster: str, message: str) -> None:
    """A cluster that no GPU can launch is refused with the repair."""
    ran = clusters(kernel, "--cluster", cluster)
    assert ran.code == 2
    assert message in ran.err


STARTS = {
    "numbers": ("int a{3}, b = max(1, 2), c[2] = {1, 2}; float f = 1.f, g;", [0, 4, 8, 16, 20], 24),
    "objects": ("float size = 1; float3 at; float3 tint = make_float3(1, 2, 3);", [0, 4, 16], 28),
    "pointers": ("float *p = nullptr, *q{}; int n = 0;", [0, 8, 16], 24),
    "beside methods": (
        "int a; bool operator==(const S &o) const { return a == o.a; } S &operator=(const S &) = default;\n"
        "explicit S(int v = 3) : a{v}, b(v) {} void set(int v = 2) { int w = v; a = w; } int b = 1;", [0, 4], 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_members_that_start_as_something(name: str) -> None:
    """Default member initialisers do not change a struct's layout."""
    body, offsets, size = STARTS[name]
    layout = layout_of("S", parse_text(f"struct S {{ {body} }};", "t.cu"))
    assert layout is not None
    assert ([offset for _, offset, _ in layout.members], layout.size) == (offsets, size)
