"""How far a kernel indexes its arrays, read from its text."""

from __future__ import annotations

import pytest

from cudabench.toolchain import source
from cudabench.userkernel.suggested import host_launch
from cudabench.userkernel.suggested.callers import is_sure
from cudabench.userkernel.suggested.covered import Covered
from cudabench.userkernel.suggested.orders import is_offsets
from cudabench.userkernel.suggested.reach import Reach

SIZES = {"n": 100, "m": 7}
# The body of a kernel, and how many elements of x its indices reach over; 0 where nothing bounds them.
BODIES = {
    "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 0;": 100,
    "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; x[2 * i + 1] = 0;": 200,
    "int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = 0;": 0,
    "x[threadIdx.x] = x[threadIdx.x + 1];": 33,
    "for (int i = threadIdx.x; i <= n; i += blockDim.x) x[i * m] = 0;": 701,
    "for (int t = 0; t < m; t++) for (int i = 0; i < n; ++i) x[(t + 1) * n + i] = 0;": 800,
    "for ( int i = threadIdx . x ; i < n * m ; i + = 32 ) x [ i ] + = 1 ;": 700,
    "size_t i = n / 8u; x[static_cast<int>(i) % m] = x[(int)threadIdx.x >> 2];": 8,
    "int i = threadIdx.x & 15; x[min(i, m)] = x[WIDE];": 65,
    "x[y[threadIdx.x]] = 0;": 100,
    "int i = blockIdx.x * blockDim.x + threadIdx.x; x[i % m] = 0;": 7,
    "int row = blockIdx.x; x[row * n + threadIdx.x] = 0;": 332,
    "int i = blockIdx.x * 32 + threadIdx.x; x[i] = 0;": 0,
    "int i = blockIdx.x * 16 + threadIdx.x; x[i] = 0;": 80,
    "x[n > 7 ? m : (m ? 2 : n)] = 0;": 101,
    "x[flat(threadIdx.x, m, n)] = 0;": 3108,
    "x[tile(threadIdx.x, m)] = 0;": 56,
    "x += blockIdx.x * n; x[m] = 0;": 308,
    "float4 *q = (float4 *)x + m; q[1] = 0;": 36,
    "float4 *q = reinterpret_cast<float4 *>(x + m); *q = 0;": 11,
    "float *p = x + n; float *q = p; q[m] = 0;": 108,
    "float *p = &x[m]; for (int t = 0; t < n; t++) { *p = 0; ++p; }": 108,
    "float *p = x; for (int t = 0; t < m; t++) { p[2] = 0; p += n; }": 703,
    "int i = n; i = i / 2; x[i] = 0; put(x + 3);": 101,
    "put(y, x + 2 * n); atomicAdd(x + 3 * n, 1);": 301,
    "x[p.rows * 10] = 0;": 51,
    "const int *q = y + 4, *p = x + m * 2, *r = y; p[n] = *q + *r;": 115,
    "x[ ( size_t ) threadIdx.x * m ] = 0;": 218,
    "for (int i = z[threadIdx.x].first; i < z[threadIdx.x].first + m; i++) x[i] = 0;": 1006,
    "x[z[threadIdx.x]] = 0;": 1000,
    "int in = n / 2, or_ = 1; x[in * sizeof(float) + or_] = 0;": 202,
    "x[unknown(3)] = x[i] = 0; while (i) i = i + 1;": 0,
}


@pytest.mark.parametrize("body", BODIES)
def test_indices_reach_over_what_bounds_them(body: str) -> None:
    """Guards, loops, definitions, casts and the file's constants bound an index; a block's place does where it is no
    part of a thread's number in the grid. Pointers into an array are followed, and functions of one expression."""
    head = (
        "__device__ int flat(int a, int b, int c) { return a * c + b; }\n#define WIDE 64\n"
        "__device__ int tile(int i, int m) { int at, by = m; at = i / 4; return at * by + i % by; }\n"
    )
    file = f"__global__ void k(float *x, int *y, int *z, int n, int m, P p) {{ {body} }}"
    sizes = {"float": 4, "float4": 16}
    reach = Reach(file, head + file, SIZES | {"p.rows": 5}, [32], [4], sizes.get, {"z": 999})
    assert reach.elements("x", 4) == BODIES[body]


def test_loops_that_a_thread_runs_are_multiplied() -> None:
    """Nested loops count together, those beside each other do not; one that starts at the thread is the launch's."""
    text = (
        "__global__ void k(int n, int m) { for (int i = threadIdx.x; i < n; i++) f(i);\n"
        "  for (int a = 0; a < n; a++) { for (int b = 0; b < m; b += 2) f(b); for (int c = 0; c < m; c++) f(c); }\n"
        "  for (int i = threadIdx.x; i < n; i += blockDim.x) f(i); }"
    )
    assert Reach(text, text, SIZES, [32]).trips() == 700


def test_offsets_are_read_at_neighbours_and_not_written() -> None:
    """An array is one of offsets where an index and the next are both read; one that is written is not."""
    assert is_offsets("for (int j = p[r]; j < p[r + 1]; j++) s += x[j];", "p")
    assert not is_offsets("p[i] = p[i + 1];", "p")
    assert not is_offsets("s = p[i] + p[i + 2];", "p")


def test_members_of_structs_in_arrays_bound_a_loop() -> None:
    """A loop between members of a thread's struct may be as long as they are large; one of the launch's is no loop."""
    text = "for (int i = z[threadIdx.x].first; i < z[threadIdx.x].last; i++) ; for (int j = threadIdx.x; j < n; j++) ;"
    assert Reach(text, text, {"n": 5000}, [32], [4], {}.get, {"z": 99}).trips() == 99


def covering(text: str, extents: list[str], wide: int) -> list[str]:
    """Return what the axes of a grid cover by a kernel's body."""
    return Covered(f"__global__ void k() {{ {text} }}", extents).axes(wide)


ROW = "int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y; "


@pytest.mark.parametrize(
    ("body", "axes"),
    [
        (ROW + "int k = blockIdx.z; if (i < w && j < h && k < d) x[0] = 1;", ["w", "h", "d"]),
        (ROW + "if (j >= (int)w || i >= h - 1) return; x[blockIdx.z * w * h] = 1;", ["h", "w", "d"]),
        (ROW + "x[(blockIdx.z * h + j) * w + i] = 1;", ["w", "h", "d"]),
        (ROW + "if (i < n + m) x[i] = blockIdx.z;", ["w", "h", "d"]),
        (ROW + "int z = blockIdx.z, c = z / d; if (i < w && j < h && c < n) x[i] = 1;", ["w", "h", "d*n"]),
        (ROW + "int end = h - 2; if (i + 1 < end && j < w) x[i] = 1;", ["h", "w", ""]),
        ("int i = threadIdx.x; if (i < w) x[i] = 1;", ["", "", ""]),
    ],
)
def test_axes_cover_what_guards_and_indices_name(body: str, axes: list[str]) -> None:
    """A guard names an axis's extent, through a cast, a local and a division; then rows of an index do, then order."""
    assert covering(body, ["w", "h", "d", "n", "m"], 3) == axes


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        ("int i = blockIdx.x * blockDim.x + threadIdx.x;", 8),
        ("int b = blockIdx.x; int i = b * blockDim.x + threadIdx.x; x[b * 1024 + n] = i;", 8),
        ("int i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;", 16),
        ("int i = 2 * 64 * blockIdx.x; x[i] = 0;", 128),
        ("int i = (threadIdx.x + 4) + blockIdx.x * blockDim.y;", 4),
        ("int row = blockIdx.x; for (int i = threadIdx.x; i < n; i++) x[row * half + i] = 0;", 1),
        ("x[blockIdx.x * n + threadIdx.x] = 0;", 1),
        ("int many = blockDim.x, i = blockIdx.x * many + threadIdx.x;", 8),
        ("x[place()] = 0;", 8),
    ],
)
def test_blocks_are_apart_by_what_their_place_is_multiplied_with(body: str, apart: int) -> None:
    """A block's elements along x: the threads of one that has 8 by 4, a tile's side, or one where rows start there."""
    covered = Covered(f"__global__ void k() {{ {body} }}", ["n"])
    assert covered.tile("x", [8, 4, 1], lambda word: int(word) if word.isdigit() else 0) == apart


def test_the_most_launches_of_a_file_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that says all is taken; where none does, only so many are read."""
    kernel = "__global__ void k(float *x, int n) { x[n] = 0; }\n"
    read = []
    before = host_launch.Host.read
    monkeypatch.setattr(host_launch.Host, "read", lambda *given: read.append(1) or before(*given))
    for allocates, many in (("cudaMalloc(&d, 4 * n);", 1), ("", 100)):
        text = kernel + "".join(
            f"void go{at}(int n) {{ float *d; {allocates} k<<<(n + 31) / 32, 32>>>(d, n); }}\n" for at in range(150)
        )
        read.clear()
        launch = host_launch.find(text, source.parse(text, "k.cu").kernels[0], {"n": 64}, {})
        assert launch is not None
        assert launch.grid == (2, 1, 1)
        assert len(read) == many


@pytest.mark.parametrize("brace", ["", "{"])
@pytest.mark.parametrize("between", ["", "if (m) ", "\n#pragma unroll 4\n"])
def test_loops_without_braces_are_nested_too(brace: str, between: str) -> None:
    """A loop that is the whole body of another multiplies it, behind a condition or a pragma as well."""
    inner = f"for (int j = 0; j < m; j++) {brace} x[i] += j;{' }' if brace else ''}"
    text = f"for (int i = 0; i < n; i++) {between}{inner} for (int k = 0; k < n; k++) x[k] = 0;"
    assert Reach(text, text, SIZES, [32], [4]).trips() == 700


@pytest.mark.parametrize(
    ("word", "sure"), [("__nv_bfloat16", True), ("float4", True), ("-3", True), ("T", False), ("void", False)]
)
def test_which_arguments_of_templates_are_sure(word: str, sure: bool) -> None:
    """Literals and types of CUDA's headers stand for themselves wherever they are written; other names may not."""
    assert is_sure(word) is sure
