"""Calls that the simulator does not inline: recursion, function pointers, virtual functions, and the limit of nested
calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudabench.simulator import api as simulator

Launch = Callable[..., simulator.Report]


def test_lanes_recurse_to_depths_of_their_own(launch: Launch) -> None:
    """Each lane may recurse to another depth: every lane computes its Fibonacci number, also in a partly filled
    warp."""
    source = """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void k(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = fib(x[i]) * 1000 + x[i];
}"""
    x = np.arange(100, dtype=np.int32) * 7 % 13
    numbers = [0, 1]
    while len(numbers) < 13:
        numbers.append(numbers[-1] + numbers[-2])
    expected = np.array(numbers)[x] * 1000 + x
    assert launch(source, 3, 40, [x, np.int32(100)]).hazards == ()
    np.testing.assert_array_equal(x, expected)


def test_each_activation_has_local_arrays_of_its_own(launch: Launch) -> None:
    """Each call of a function has a separate local array: two functions that call each other keep their arrays during
    deeper calls."""
    source = """
__device__ void odd(int *out, int n, int pick);
__device__ __noinline__ void even(int *out, int n, int pick) {
    int own[4];
    for (int i = 0; i < 4; i++) own[i] = n * 10 + i;
    if (n > 0) odd(out, n - 1, pick);
    out[n] = own[pick];
}
__device__ __noinline__ void odd(int *out, int n, int pick) {
    int own[2] = {-n, -n - 100};
    if (n > 0) even(out, n - 1, pick);
    out[n] = own[pick & 1];
}
extern "C" __global__ void k(int *x) {
    int found[8];
    even(found, 6 - threadIdx.x % 3 * 2, threadIdx.x % 4);
    for (int i = 0; i < 7 - threadIdx.x % 3 * 2; i++) x[threadIdx.x * 8 + i] = found[i];
}"""
    x = np.full((32, 8), -7, np.int32)
    expected = x.copy()
    for thread in range(32):
        for n in range(7 - thread % 3 * 2):
            expected[thread, n] = n * 10 + thread % 4 if n % 2 == 0 else -n - 100 * (thread % 2)
    report = launch(source, 1, 32, [x])
    assert report.hazards == ()
    np.testing.assert_array_equal(x, expected)


def test_a_recursion_without_end_is_refused(launch: Launch) -> None:
    """A recursion deeper than 1024 calls ends the launch with an error that names the function."""
    source = """
__device__ __noinline__ int down(int *x, int n) { return n == *x ? n : down(x, n + 1) + 1; }
extern "C" __global__ void k(int *x) { x[1] = down(x, 0); }"""
    with pytest.raises(simulator.KernelTrap, match=r"has more than 1024 nested calls of down.*that the recursion ends"):
        launch(source, 1, 32, [np.array([-1, 0], np.int32)])
    x = np.array([40, 0], np.int32)
    launch(source, 1, 32, [x])
    assert x[1] == 80


TABLES = """
struct Pair { int first; double second; };
typedef double (*Op)(Pair, int);
__device__ double sum(Pair p, int x) { return p.first + p.second + x; }
__device__ double product(Pair p, int x) { return p.second * x; }
__device__ double nested(Pair p, int x);
__device__ Op table[] = {sum, product, nested, nullptr};
__constant__ Op fixed[] = {product, sum};
__device__ double nested(Pair p, int x) { return fixed[p.first & 1](p, x) - table[0](p, x + 1); }
extern "C" __global__ void k(double *out, int shift) {
    Pair p{(int)threadIdx.x, threadIdx.x * 0.5};
    out[threadIdx.x] = table[(threadIdx.x + shift) % 3](p, 3) + fixed[0](p, 2);
}
extern "C" __global__ void none(double *out, int which) { out[threadIdx.x] = table[which](Pair{1, 2.0}, 3); }
"""


@pytest.mark.parametrize("shift", [0, 1])
def test_tables_of_functions(launch: Launch, shift: int) -> None:
    """Lanes of one warp call different functions through tables in global and constant memory, also from within such a
    function."""

    def total(i: int, x: int) -> float:
        return i + i * 0.5 + x

    def call(which: int, i: int) -> float:
        inner = total(i, 3) if i & 1 else i * 0.5 * 3
        return (total(i, 3), i * 0.5 * 3, inner - total(i, 4))[which]

    out = np.zeros(64)
    assert launch(TABLES, 1, 64, [out, np.int32(shift)]).hazards == ()
    np.testing.assert_array_equal(out, [call((i + shift) % 3, i) + i * 0.5 * 2 for i in range(64)])


def test_a_call_through_a_null_pointer_is_named(launch: Launch) -> None:
    """The error of a call through a null function pointer names the line and the block."""
    with pytest.raises(
        simulator.KernelTrap, match=r"calls through a null pointer, at test\.cu:14 in block \(0, 0, 0\)"
    ):
        launch(TABLES, 1, 32, [np.zeros(32), np.int32(3)], kernel="none")


def test_virtual_functions(launch: Launch) -> None:
    """Virtual methods of objects of two classes in one warp, created by new and destroyed by delete, give the right
    results."""
    source = """
struct Shape { __device__ virtual float area(float k) const = 0; __device__ virtual ~Shape() {} };
struct Box : Shape { float a; __device__ Box(float a) : a(a) {}
    __device__ float area(float k) const override { return a * a + k; } };
struct Disc : Shape { float r; int n; __device__ Disc(float r, int n) : r(r), n(n) {}
    __device__ float area(float k) const override { return 3 * r + n * k; } };
extern "C" __global__ void k(float *out) {
    Shape *one = threadIdx.x % 3 ? (Shape *)new Box(threadIdx.x) : (Shape *)new Disc(threadIdx.x, 2);
    out[threadIdx.x] = one->area(0.5f);
    delete one;
}"""
    out = np.zeros(48, np.float32)
    assert launch(source, 1, 48, [out]).hazards == ()
    i = np.arange(48)
    np.testing.assert_array_equal(out, np.where(i % 3, i * i + 0.5, 3 * i + 1))


def test_a_barrier_in_a_shared_function(launch: Launch) -> None:
    """Barriers work within a function that is called through a pointer, and after the call."""
    source = """
__device__ int rotate(int *s, int i) { s[i] = i; __syncthreads(); return s[(i + 1) % 64]; }
__device__ int (*table[])(int *, int) = {rotate};
extern "C" __global__ void k(int *out, int which) {
    __shared__ int s[64];
    int got = table[which](s, threadIdx.x);
    __syncthreads();
    s[threadIdx.x] = got;
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}"""
    out = np.zeros(64, np.int32)
    assert launch(source, 1, 64, [out, np.int32(0)]).hazards == ()
    np.testing.assert_array_equal(out, (64 - np.arange(64)) % 64)
