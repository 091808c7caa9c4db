"""Control flow, calls, memories, warps: kernels of CUDA C++ against NumPy."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx, nvcc_version
from cudabench.simulator import api as simulator
from tests.simulator.conftest import HEAD

K = 'extern "C" __global__ void k'


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
@pytest.mark.parametrize("n", [1, 31, 33, 127, 1000])
def test_awkward_sizes(launch: Callable[..., Any], compiled: Callable[..., Any], n: int, arch: str) -> None:
    """A kernel with a bounds check is right for partly filled blocks, for partly filled warps, and for PTX of three
    architectures."""
    source = (
        K + "(float *y, const float *x, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
        " if (i < n) y[i] = a * x[i] + y[i]; }"
    )
    for block in (1, 33, 48, 128):
        x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
        report = simulator.run(compiled(source, arch=arch), "k", -(-n // block), block, [y, x, 2.0, n])
        assert report.hazards == ()
        assert (y == 2 * x + 1).all()
        loads = [access for access in report.accesses if access.op == "load"]
        assert sum(access.requests for access in loads) == 2 * sum(
            -(-min(block, n - first) // 32) for first in range(0, n, block)
        )


def test_divergence_meets_again(launch: Callable[..., Any]) -> None:
    """Nested loops with break and continue give right results if their trip counts differ by lane."""
    source = (
        K
        + """(int *o, int n) { int t = threadIdx.x, s = 0;
      for (int i = 0; i < t % 7; i++) {
        if (i % 2) { for (int j = 0; j < i + t % 3; j++) { if (j == 4) break;
          if ((i + j) % 3 == 0) continue; s += i * j; } }
        else s -= t;
        if (s > n) break;
      } o[t] = s; }"""
    )

    def one(t: int, n: int) -> int:
        s = 0
        for i in range(t % 7):
            if i % 2:
                for j in range(i + t % 3):
                    if j == 4:
                        break
                    if (i + j) % 3 == 0:
                        continue
                    s += i * j
            else:
                s -= t
            if s > n:
                break
        return s

    out = np.zeros(64, np.int32)
    launch(source, 1, 64, [out, 3])
    assert out.tolist() == [one(t, 3) for t in range(64)]


def test_switch_calls_and_structs(launch: Callable[..., Any]) -> None:
    """A branch table, a function that is not inlined, a struct by value and a pointer to a local variable work in one
    kernel."""
    source = (
        """struct S { int a; float b; double c; };
    __device__ __noinline__ float helper(float x, int *q) { *q += 3; return x * *q; }
    __device__ __noinline__ int pick(int k) { switch (k) { case 0: return 5; case 1: return 7; case 2: return 11;
      case 3: return 13; case 4: return 17; case 5: return 19; default: return -1; } }
    """
        + K
        + "(float *o, S s) { int t = threadIdx.x, q = pick(t % 8); o[t] = helper(s.b, &q) + q + s.a + (float)s.c; }"
    )
    out = np.zeros(40, np.float32)
    launch(source, 1, 40, [out, struct.pack("<ifd", 2, 1.5, 0.25)])
    table = [5, 7, 11, 13, 17, 19, -1, -1]
    assert out.tolist() == [1.5 * (table[t % 8] + 3) + table[t % 8] + 3 + 2.25 for t in range(40)]


def test_local_arrays_with_computed_index(launch: Callable[..., Any]) -> None:
    """Each thread has a separate local array, also with indices from memory."""
    source = (
        K
        + """(int *o, const int *k, int n) { int st[16]; int s = 0;
      for (int i = 0; i < 16; i++) st[i] = i * threadIdx.x;
      for (int i = 0; i < n; i++) { st[k[i] & 15] += i; s += st[(k[i] + threadIdx.x) & 15]; } o[threadIdx.x] = s; }"""
    )
    keys = np.random.default_rng(1).integers(0, 99, 40).astype(np.int32)
    out = np.zeros(64, np.int32)
    report = launch(source, 1, 64, [out, keys, 40])

    def one(t: int) -> int:
        st, s = [i * t for i in range(16)], 0
        for i, key in enumerate(keys.tolist()):
            st[key & 15] += i
            s += st[(key + t) & 15]
        return s

    assert out.tolist() == [one(t) for t in range(64)]
    assert report.hazards == ()
    assert any(access.space == "local" for access in report.accesses)


def test_module_variables_persist_and_constants_are_set(compiled: Callable[..., Any]) -> None:
    """Module variables have initial values, keep their values between launches, and are writable from Python."""
    program = compiled(
        "__constant__ float c[4] = {1, 2, 3, 4}; __device__ int count = 5; __device__ int *where = &count;\n"
        + K
        + "(float *o) { o[threadIdx.x] = c[threadIdx.x & 3]; if (threadIdx.x == 0) *where += 1; }"
    )
    out = np.zeros(8, np.float32)
    for _ in range(3):
        simulator.run(program, "k", 1, 8, [out])
    assert out.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    assert program.variable("count").view(np.int32)[0] == 8
    program.variable("c")[:] = np.arange(4, dtype=np.float32).view(np.uint8)
    simulator.run(program, "k", 1, 8, [out])
    assert out.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    program.reset()
    assert program.variable("count").view(np.int32)[0] == 5


def test_warp_instructions(launch: Callable[..., Any]) -> None:
    """Shuffles, votes, matches and reductions use the lanes of each warp."""
    source = (
        K
        + """(unsigned *o, const int *a) { int t = threadIdx.x, p;
      o[t] = __ballot_sync(~0u, a[t] > 50); o[t + 64] = __any_sync(~0u, a[t] == 7);
      o[t + 128] = __match_any_sync(~0u, a[t] % 5);
      o[t + 192] = __reduce_add_sync(~0u, (unsigned)a[t]); o[t + 256] = __shfl_up_sync(~0u, a[t], 3);
      o[t + 320] = __shfl_xor_sync(~0u, a[t], 5, 8); o[t + 384] = __shfl_sync(~0u, a[t], t / 2);
      o[t + 448] = __match_all_sync(~0u, t / 32, &p) + p; o[t + 512] = __shfl_down_sync(~0u, a[t], 2, 16); }"""
    )
    a = np.random.default_rng(2).integers(0, 100, 64).astype(np.int32)
    out = np.zeros((9, 64), np.uint32)
    assert launch(source, 1, 64, [out, a]).hazards == ()
    t = np.arange(64)
    warp = (t // 32) * 32
    for lane in t.tolist():
        own = a[lane // 32 * 32 : lane // 32 * 32 + 32]
        assert out[0, lane] == sum(int(v > 50) << i for i, v in enumerate(own))
        assert out[1, lane] == int((own == 7).any())
        assert out[2, lane] == sum(int(v % 5 == a[lane] % 5) << i for i, v in enumerate(own))
        assert out[3, lane] == own.sum()
    assert (out[4] == np.where(t % 32 >= 3, a[np.maximum(t - 3, 0)], a)).all()
    assert (out[5] == a[t ^ 5]).all()
    assert (out[6] == a[warp + (t // 2) % 32]).all()
    assert (out[7] == np.uint32(0)).all()  # the mask of all ones plus 1
    assert (out[8] == np.where(t % 16 < 14, a[np.minimum(t + 2, 63)], a)).all()


def test_atomics_serialise(launch: Callable[..., Any]) -> None:
    """Atomics on one address give the results of some serial order, also if the kernel uses their return values."""
    source = (
        K
        + """(int *o, float *f, unsigned *w, int *old) { int t = blockIdx.x * blockDim.x + threadIdx.x;
      atomicAdd(o, t); atomicMax(o + 1, t); atomicMin(o + 2, -t); atomicOr(o + 3, 1 << (t % 31)); atomicXor(o + 4, t);
      atomicAdd(f, 1.5f); atomicInc(w, 10); atomicDec(w + 1, 7);
      old[t] = atomicAdd(o + 5 + t % 3, 2); old[t + 512] = atomicExch(o + 8, t);
      old[t + 1024] = atomicCAS(o + 9, 0, t + 1);
      old[t + 1536] = atomicInc(w + 2, 5); }"""
    )
    o, f, w, old = np.zeros(16, np.int32), np.zeros(1, np.float32), np.zeros(3, np.uint32), np.zeros((4, 512), np.int32)
    assert launch(source, 4, 128, [o, f, w, old]).hazards == ()
    t = np.arange(512)
    assert o[:5].tolist() == [t.sum(), 511, -511, 2**31 - 1, np.bitwise_xor.reduce(t)]
    assert f[0] == 768
    assert w.tolist() == [512 % 11, (0 - 512) % 8, 512 % 6]
    for rest in range(3):
        assert sorted(old[0, rest::3]) == list(range(0, 2 * len(t[rest::3]), 2))
    assert sorted([*old[1].tolist(), int(o[8])]) == [0, *range(512)]
    winner = np.flatnonzero(old[2] == 0)
    assert winner.size == 1
    assert o[9] == winner[0] + 1
    assert sorted(np.bincount(old[3]).tolist()) == [85, 85, 85, 85, 86, 86]


def test_a_lock_is_no_livelock(launch: Callable[..., Any]) -> None:
    """Lanes that spin on a lock let the lane that holds the lock run."""
    source = (
        K
        + """(int *lock, volatile int *v) { bool done = false; while (!done) { if (atomicCAS(lock, 0, 1) == 0) {
      *v += 1; __threadfence(); atomicExch(lock, 0); done = true; } } }"""
    )
    lock, value = np.zeros(1, np.int32), np.zeros(1, np.int32)
    launch(source, 2, 64, [lock, value])
    assert value[0] == 128


@pytest.mark.slow
def test_a_block_at_a_barrier_goes_on_while_another_spins(launch: Callable[..., Any]) -> None:
    """A block may wait for a value that another block writes after a barrier."""
    source = (
        K
        + """(volatile int *flag, int *out) {
      if (blockIdx.x == 0) { __syncthreads(); if (threadIdx.x == 0) *flag = 7; }
      else { while (*flag == 0) {} out[threadIdx.x] = *flag; } }"""
    )
    flag, out = np.zeros(1, np.int32), np.zeros(32, np.int32)
    launch(source, 2, 32, [flag, out])
    assert (out == 7).all()


def test_printf_formats_like_c(launch: Callable[..., Any]) -> None:
    """printf formats integers, floats, strings, widths and percent signs as C does."""
    source = (
        "#include <stdio.h>\n"
        + K
        + '(int n) { printf("%d %5.2f|%-4s|%x %lld %c %u%%\\n", n, 1.5, "ab", 255, 1LL << 40, 65, 3u); }'
    )
    assert launch(source, 1, 2, [-7]).output == "-7  1.50|ab  |ff 1099511627776 A 3%\n" * 2


def test_assert_names_the_thread(launch: Callable[..., Any]) -> None:
    """A failed assert ends the launch with an error that names the expression, line, block and thread."""
    source = "#include <assert.h>\n" + K + "(int n) { assert((int)threadIdx.x < n); }"
    with pytest.raises(
        simulator.KernelAssert, match=r"\(int\)threadIdx.x < n.*test.cu:2 .*block \(0, 0, 0\), thread \(5, 0, 0\)"
    ):
        launch(source, 1, 32, [5])


def test_the_budget_stops_endless_kernels(launch: Callable[..., Any]) -> None:
    """An endless loop ends with an error that names its line."""
    with pytest.raises(simulator.BudgetExceeded, match=r"test.cu:2"):
        launch(K + "(volatile int *p) {\n while (p[0] == 0) p[1] = 1; }", 1, 32, [np.zeros(2, np.int32)], budget=10000)


def test_what_is_lacking_is_refused_where_it_is_executed(compiled: Callable[..., simulator.Program]) -> None:
    """A program lists its unsupported features with their lines before a launch; the launch fails only if it executes
    one of them."""
    program = compiled(
        K + "(int *o, int n) {\n"
        ' if (n > 1) asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], 1;" :: "l"(o));\n'
        " if (n > 0)\n"
        '  asm volatile("{ .reg .b64 p; alloca.u64 p, 8; }");\n'
        " o[2] = 7;\n}"
    )
    found = {(item.line, item.feature.split(" (")[0]) for item in program.unsupported("k")}
    assert found == {(2, "multimem"), (4, "dynamic stack allocation")}
    out = np.zeros(4, np.int32)
    simulator.run(program, "k", 1, 1, [out, 0])
    assert out[2] == 7
    with pytest.raises(simulator.UnsupportedKernel, match=r"test\.cu:4: dynamic stack.*\): run it on a GPU"):
        simulator.run(program, "k", 1, 1, [out, 1])


def test_unknown_instructions_are_refused_by_name() -> None:
    """A program lists an unknown instruction as unsupported."""
    program = simulator.load(
        HEAD + ".visible .entry k() {\n.reg .b32 %r<3>;\n.loc 1 9 1\nfrobnicate.b32 %r1, %r2;\nret;\n}"
    )
    assert program.unsupported("k") == (simulator.Unsupported("snippet.cu", 9, "instruction frobnicate.b32"),)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "text"),
    [
        (1, 1025, 0, "1025"), (1, (32, 32, 2), 0, "2048"), (1, (1, 1, 65), 0, "65"), ((1, 65536), 1, 0, "65536"),
        (2**31, 1, 0, "2147483648"), (1, 1, 300000, "300000"), (0, 1, 0, "at least 1"),
    ],
)  # fmt: skip
def test_launches_over_the_limits_are_refused(grid: Any, block: Any, shared: int, text: str) -> None:
    """A launch over a limit of the hardware is an error that gives the value."""
    program = simulator.load(HEAD + ".visible .entry k() {\nret;\n}")
    with pytest.raises(simulator.LaunchError, match=text):
        simulator.run(program, "k", grid, block, [], shared_bytes=shared)


def test_wrong_arguments_are_refused(compiled: Callable[..., Any]) -> None:
    """A wrong number of arguments, an array that is not contiguous, a value out of range, and an unknown kernel are
    errors."""
    program = compiled(K + "(float *o, int n) { o[0] = n; }")
    out = np.zeros(4, np.float32)
    for arguments, text in (
        ([out], "takes 2"),
        ([np.zeros((4, 4), np.float32).T[::2], 1], "contiguous"),
        ([out, 2**40], "does not fit"),
        ([out, 1.5], "integer"),
    ):
        with pytest.raises(simulator.LaunchError, match=text):
            simulator.run(program, "k", 1, 1, arguments)
    with pytest.raises(simulator.LaunchError, match=r"no kernel 'q'.*has: k"):
        simulator.run(program, "q", 1, 1, [out, 1])
    out.flags.writeable = False
    with pytest.raises(simulator.KernelTrap, match="read-only"):
        simulator.run(program, "k", 1, 1, [out, 1], names=["o", "n"])


def test_dynamic_shared_memory_and_barrier_reductions(launch: Callable[..., Any]) -> None:
    """A block reduction in dynamic shared memory, and __syncthreads_count, give the sums of NumPy."""
    source = (
        K
        + """(float *o, int *c, const float *x, int n) { extern __shared__ float s[]; int t = threadIdx.x;
      int i = blockIdx.x * blockDim.x + t; s[t] = i < n ? x[i] : 0; __syncthreads();
      for (int w = blockDim.x / 2; w > 0; w /= 2) { if (t < w) s[t] += s[t + w]; __syncthreads(); }
      if (t == 0) o[blockIdx.x] = s[0];
      int m = __syncthreads_count(i < n && x[i] > 50); if (t == 0) c[blockIdx.x] = m; }"""
    )
    x = np.arange(1000, dtype=np.float32) % 100
    o, c = np.zeros(8, np.float32), np.zeros(8, np.int32)
    assert launch(source, 8, 128, [o, c, x, 1000], shared_bytes=512).hazards == ()
    padded = np.append(x, np.zeros(24, np.float32)).reshape(8, 128)
    assert (o == padded.sum(1)).all()
    assert (c == (padded > 50).sum(1)).all()


def test_generic_pointers_reach_every_space(launch: Callable[..., Any]) -> None:
    """A pointer chosen at run time may point to shared, local or global memory, differently in each lane."""
    source = (
        """__device__ __noinline__ int read(const int *p) { return *p; }
    """
        + K
        + """(int *o, const int *g) { __shared__ int s[32]; int l[4], t = threadIdx.x;
      s[t] = 100 + t; l[t & 3] = 200 + t;
      __syncthreads(); o[t] = read(t % 3 == 0 ? g + t : t % 3 == 1 ? s + t : l + (t & 3)); }"""
    )
    out = np.zeros(32, np.int32)
    assert launch(source, 1, 32, [out, np.arange(32, dtype=np.int32)]).hazards == ()
    assert out.tolist() == [[t, 100 + t, 200 + t][t % 3] for t in range(32)]


def test_overlapping_arrays_are_one_memory(launch: Callable[..., Any]) -> None:
    """Two arguments that are views of one array both access that array."""
    source = K + "(int *a, const int *b) { a[threadIdx.x] = b[threadIdx.x] + 1; }"
    memory = np.arange(64, dtype=np.int32)
    launch(source, 1, 32, [memory[:32], memory[32:]])
    assert (memory[:32] == np.arange(33, 65)).all()


def test_the_trace_tells_which_element_each_thread_touches(launch: Callable[..., Any]) -> None:
    """The trace gives the element that each thread reads and writes, and the shared addresses of the first warp."""
    source = (
        K
        + """(float *out, const float *in, int nx, int ny) { __shared__ float s[4][4];
      int x = threadIdx.x, y = threadIdx.y;
      if (x < nx && y < ny) s[y][x] = in[y * nx + x]; __syncthreads();
      if (x < nx && y < ny) out[x * ny + y] = s[y][x]; }"""
    )
    out = np.zeros((3, 2), np.float32)
    report = launch(source, 1, (4, 4), [out, np.arange(6, dtype=np.float32).reshape(2, 3), 3, 2], trace=True)
    (load, store), first_warp = report.trace.accesses, [(x, y, 0) for y in range(4) for x in range(4)]
    reads, writes = (
        {thread: place // 4 for thread, place in zip(first_warp, request.addresses, strict=False) if place is not None}
        for request in (load, store)
    )
    assert load.threads[:16] == tuple(first_warp)
    assert reads == {(x, y, 0): y * 3 + x for x in range(3) for y in range(2)}
    assert writes == {(x, y, 0): x * 2 + y for x in range(3) for y in range(2)}
    assert [request.op for request in report.trace.shared] == ["store", "load"]
    first = [(y * 4 + x) * 4 if x < 3 and y < 2 else None for y in range(4) for x in range(4)]
    assert report.trace.shared[0].addresses == (*first, *[None] * 16)


def test_reports_merge(launch: Callable[..., Any]) -> None:
    """merge() adds the counts of several launches, also those of their hazards."""
    source = K + "(int *o, int n) { int i = blockIdx.x * 32 + threadIdx.x; if (i < n) o[i] = i; }"
    out = np.zeros(40, np.int32)
    reports = [launch(source, 2, 32, [out, 42]) for _ in range(3)]
    total = simulator.merge(reports)
    assert total.instructions == 3 * reports[0].instructions
    assert total.accesses[0].requests == 3 * reports[0].accesses[0].requests
    assert total.hazards[0].count == 6
    assert total.hazards[0].kind == "out-of-bounds"


def test_ptx_of_nvcc_runs_as_well() -> None:
    """PTX from nvcc gives the right result without hazards."""
    if nvcc_version() is None:
        pytest.skip("needs nvcc")
    body = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = sinf(x[i]); }"
    source = K + "(float *y, const float *x, int n) " + body
    x, y = np.linspace(-1e5, 1e5, 200, dtype=np.float32), np.zeros(200, np.float32)
    report = simulator.run(compile_ptx(source, "test.cu", backend="nvcc").ptx, "k", 2, 128, [y, x, 200])
    np.testing.assert_allclose(y, np.sin(x.astype(np.float64)), atol=2e-7)
    assert report.hazards == ()


def test_launches_that_share_a_plan_do_not_share_their_outcome() -> None:
    """Races, uninitialised reads and counts of a launch depend on the data of that launch, not on earlier launches."""
    program = simulator.load(
        compile_ptx(
            """extern "C" __global__ void k(int *out, const int *place) {
    __shared__ int s[64];
    s[place[threadIdx.x]] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}""",
            "plan.cu",
        ).ptx
    )
    right, conflict = np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32) // 2 * 2
    out = np.zeros(64, np.int32)
    first = simulator.run(program, "k", 1, 64, [out, right])
    assert not first.hazards
    assert out.tolist() == right.tolist()
    wrong = simulator.run(program, "k", 1, 64, [out, conflict])
    assert {hazard.kind for hazard in wrong.hazards} == {"race", "uninitialized-shared"}
    assert simulator.run(program, "k", 1, 64, [out, right]) == first


def test_const_addresses_are_told_from_others() -> None:
    """isspacep.const is true for a constant variable, and false for a read-only array argument."""
    text = """.version 8.0
.target sm_90
.address_size 64
.const .align 4 .u32 table = 7;
.visible .entry k(.param .u64 out, .param .u64 in) {
.reg .pred %p<3>;
.reg .b32 %r<3>;
.reg .b64 %d<5>;
ld.param.u64 %d1, [out];
ld.param.u64 %d2, [in];
mov.u64 %d3, table;
isspacep.const %p1, %d3;
isspacep.const %p2, %d2;
selp.u32 %r1, 1, 0, %p1;
selp.u32 %r2, 1, 0, %p2;
st.global.u32 [%d1], %r1;
st.global.u32 [%d1+4], %r2;
ret;
}"""
    out, data = np.zeros(2, np.uint32), np.zeros(1, np.uint32)
    data.flags.writeable = False
    simulator.run(text, "k", 1, 1, [out, data])
    assert out.tolist() == [1, 0]


def test_the_alignment_of_a_pointers_target_is_not_that_of_the_parameter() -> None:
    """`.ptr .align 1` says how the memory is aligned that a pointer points to; the pointer itself has 8 bytes."""
    text = (
        ".version 8.8\n.target sm_120\n.address_size 64\n"
        ".visible .entry f(.param .u32 n, .param .u64 .ptr .global .align 1 x, .param .align 16 .b8 s[32]) { ret; }"
    )
    parameters = simulator.load(text).kernels["f"].parameters
    assert [(one.align, one.size) for one in parameters] == [(4, 4), (8, 8), (16, 32)]
