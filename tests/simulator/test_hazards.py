"""Hazards: the simulator reports the faults of a kernel, and reports nothing for a correct kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx
from cudabench.simulator import api as simulator

K = 'extern "C" __global__ void k'
ROWS = np.arange(256, dtype=np.float32)


def provoke(
    launch: Callable[..., Any], body: str, block: Any = 32, grid: Any = 1, **options: Any
) -> list[tuple[str, int, str]]:
    """Run a kernel body on (float *o, float *a, int n), return (kind, line, message); the body begins in line 1."""
    report = launch(K + "(float *o, float *a, int n) { int t = threadIdx.x;" + body + "}", grid, block,
                    [np.zeros(256, np.float32), ROWS.copy(), 256], names=["o", "a", "n"], **options)  # fmt: skip
    return [(hazard.kind, hazard.line, hazard.message) for hazard in report.hazards]


def test_a_missing_barrier_is_a_race_that_names_both_lines(launch: Callable[..., Any]) -> None:
    """A read of another thread's word without a barrier is a race; the message names the word and both lines."""
    found = provoke(launch, "__shared__ float tile[256];\ntile[t] = a[t];\no[t] = tile[255 - t];\n", 256)
    assert [(kind, line) for kind, line, _ in found] == [("race", 3)]
    assert "reads tile[255]," in found[0][2]
    assert "line 2" in found[0][2]


def test_writing_over_what_others_still_read(launch: Callable[..., Any]) -> None:
    """A write to a word that other threads read before, without a barrier in between, is a race."""
    body = (
        "__shared__ float s[64]; s[t] = a[t]; __syncthreads();\nfloat v = s[(t + 1) % 64];\n"
        "s[t] = v; __syncthreads(); o[t] = s[t];"
    )
    assert [(kind, line) for kind, line, _ in provoke(launch, body, 64)] == [("race", 3)]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("s[t] = a[t];\no[t] = t == 31 ? s[31] : 7;", []),
        ("s[t] = a[t];\no[t] = t != 31 ? 7 : s[31];", []),
        ("s[t] = a[t];\no[t] = t < 32 ? s[31] : 7;", [2]),
        ("s[t] = a[t]; __syncthreads();\nfloat v = a[t] > 40 ? s[5] : 0; if (t == 8) s[5] = 1; o[t] = v;", [2]),
        ("if (t < 8) s[t] = a[t]; __syncthreads();\no[t] = a[t] < 0 ? s[9] : 7;", []),
        ("if (t < 8) s[t] = a[t]; __syncthreads();\no[t] = a[t] > 0 ? s[9] : 7;", [2]),
        ("s[t] = a[t]; __syncthreads();\nfloat v = s[5]; o[t] = __syncthreads_or(a[t] > 40) ? v : 7;", []),
        ("a[t] = t;\no[t] = t == 31 ? a[31] : 7;", []),
        ("a[t] = t;\no[t] = t > 31 ? a[31] : 7;", [2]),
    ],
)
def test_a_load_whose_value_a_lane_does_not_use(launch: Callable[..., Any], body: str, lines: list[int]) -> None:
    """Compilers load for all lanes where the source loads for some; only lanes that use the value can race, or read
    memory that nothing has written."""
    found = provoke(launch, "__shared__ float s[64];" + body, 64)
    assert [line for _, line, _ in found] == lines


def test_warps_need_their_own_synchronisation(launch: Callable[..., Any]) -> None:
    """Lanes of a warp that exchange values in shared memory need __syncwarp() or a shuffle; volatile is not enough."""
    body = "__shared__ volatile float s[32]; s[t] = a[t];\n{sync}\no[t] = s[31 - t];"
    assert [(kind, line) for kind, line, _ in provoke(launch, body.format(sync=""))] == [("race", 3)]
    assert provoke(launch, body.format(sync="__syncwarp();")) == []
    assert provoke(launch, body.format(sync="__shfl_sync(~0u, t, 0);")) == []


@pytest.mark.slow
def test_a_long_log_keeps_the_synchronisations_between_its_parts(launch: Callable[..., Any]) -> None:
    """The simulator examines a log in parts of 4096 accesses; a __syncwarp() between two parts still orders
    accesses."""
    body = (
        "__shared__ float s[32]; float v = 0; for (int i = 0; i < 3000; i++) {\ns[t] = i; __syncwarp();\n"
        "v += s[31 - t]; __syncwarp(); } o[t] = v;"
    )
    assert provoke(launch, body) == []


ASYNC = """
#define COPY(TO, FROM) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" \\
    ::"r"((unsigned)__cvta_generic_to_shared(TO)), "l"(FROM) : "memory"); \\
    asm volatile("cp.async.commit_group;" ::: "memory")
#define ZEROS(TO) asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 0;" \\
    ::"r"((unsigned)__cvta_generic_to_shared(TO)), "l"(a) : "memory"); \\
    asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(N) asm volatile("cp.async.wait_group " #N ";" ::: "memory")
__shared__ float s[2][64];
#line 1
"""


@pytest.mark.parametrize(
    "body",
    [
        "COPY(&s[0][t], a + t); WAIT(0); float v = s[0][t]; COPY(&s[0][t], a + 64 + t); WAIT(0); o[t] = v + s[0][t];",
        "COPY(&s[0][t], a + t); WAIT(0); s[0][t] += 1; COPY(&s[0][t], a + 64 + t); WAIT(0); o[t] = s[0][t];",
        "COPY(&s[0][t], a + t); WAIT(0); __syncwarp(); float v = s[0][t ^ 1]; __syncwarp();"
        "COPY(&s[0][t], a + 64 + t); WAIT(0); __syncwarp(); o[t] = v + s[0][t ^ 1];",
        "COPY(&s[0][t], a + t); if (t < 16) { COPY(&s[1][t], a + t); WAIT(1); } else WAIT(0); o[t] = s[0][t];",
    ],
    ids=["refill", "store between", "turns in a warp", "uneven groups"],
)
def test_a_slot_is_filled_anew_once_its_last_copy_was_waited_for(launch: Callable[..., Any], body: str) -> None:
    """A thread may start a new asynchronous copy into a slot after its wait for the last copy: its own earlier accesses
    come before the new copy."""
    assert provoke(launch, ASYNC + body, 64) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("COPY(&s[0][t], a + t);\no[t] = s[0][t]; WAIT(0);", "reads s[0], which its own asynchronous copy"),
        ("COPY(&s[0][t], a + t); __syncthreads();\no[t] = s[0][t]; WAIT(0);", "before the copy is waited for"),
        ("COPY(&s[0][t], a + t);\nCOPY(&s[0][t], a + 64 + t); WAIT(0); o[t] = s[0][t];", "asynchronous copy writes"),
        ("COPY(&s[0][t], a + t); WAIT(0);\nCOPY(&s[0][t ^ 1], a + 64 + t); WAIT(0);", "without __syncwarp()"),
        ("ZEROS(&s[0][t]);\ns[0][t] = 0; WAIT(0); o[t] = s[0][t];", "its own asynchronous copy writes"),
        ("COPY(&s[0][t], a + t); if (t >= 16) WAIT(0);\no[t] = s[0][t];", "thread (0, 0, 0) reads"),
        (
            "COPY(&s[0][t], a + t); if (t < 16) { COPY(&s[1][t], a + t); } WAIT(1);\no[t] = s[0][t];",
            "thread (16, 0, 0) reads",
        ),
        ("COPY(&s[0][t], a + t); if (blockIdx.x < 2) WAIT(0);\nif (s[0][t] < 0) o[t] = 1;", "(block (2, 0, 0))"),
    ],
    ids=["read", "barrier", "twice", "other lane", "equal values", "half waits", "uneven groups", "one block"],
)
def test_a_slot_is_nobodys_while_a_copy_flies(launch: Callable[..., Any], body: str, words: str) -> None:
    """An access to the target of an asynchronous copy is a race until the copying thread waits for the copy; a barrier,
    or a wait of another thread, is not enough."""
    found = provoke(launch, ASYNC + body, 64, grid=3 if "blockIdx" in body else 1)
    assert [(kind, line) for kind, line, _ in found] == [("race", 2)]
    assert words in found[0][2]


def test_lanes_that_write_the_same_place(launch: Callable[..., Any]) -> None:
    """Lanes that write different values to one place race, in shared and in global memory; lanes that write equal
    values do not."""
    assert [kind for kind, _, _ in provoke(launch, "o[0] = t;")] == ["race"]
    assert provoke(launch, "o[0] = 1;") == []
    assert [kind for kind, _, _ in provoke(launch, "__shared__ float s; s = t; __syncthreads(); o[t] = s;")] == ["race"]
    assert provoke(launch, "__shared__ float s; s = n; __syncthreads(); o[t] = s;") == []


def test_bytes_of_one_word_do_not_race(launch: Callable[..., Any]) -> None:
    """Threads that write different bytes of one word do not race."""
    body = "__shared__ char s[64]; s[t] = t; s[t] += 1; __syncthreads(); o[t] = s[63 - t];"
    assert provoke(launch, body, 64) == []


def test_atomics_do_not_race_with_atomics_but_with_plain_accesses(launch: Callable[..., Any]) -> None:
    """Atomics do not race with each other; an atomic and a plain access without a barrier in between do."""
    body = "__shared__ int s; if (t == 0) s = 0; {first} atomicAdd(&s, t);\n{second} o[t] = s;"
    assert provoke(launch, body.format(first="__syncthreads();", second="__syncthreads();"), 64) == []
    assert [k for k, _, _ in provoke(launch, body.format(first="", second="__syncthreads();"), 64)] == ["race"]
    assert [k for k, _, _ in provoke(launch, body.format(first="__syncthreads();", second=""), 64)] == ["race"]


def test_global_memory_races_within_a_block(launch: Callable[..., Any]) -> None:
    """In global memory, a read of a neighbour's element needs a barrier; a read of the thread's own element does
    not."""
    assert [kind for kind, _, _ in provoke(launch, "a[t] = t;\no[t] = a[t + 1];", 64)] == ["race"]
    assert provoke(launch, "a[t] = t; __syncthreads();\no[t] = a[t + 1];", 64) == []
    assert provoke(launch, "a[t] += 1; a[t] *= 2; o[t] = a[t];", 64) == []


def test_accesses_past_the_end_name_the_array(launch: Callable[..., Any]) -> None:
    """The message of an out-of-bounds access names the nearest array, the index and the thread."""
    found = provoke(launch, "\no[t + 240] = 1;\nif (t == 3) o[0] = a[-1];")
    assert [(kind, line) for kind, line, _ in found] == [("out-of-bounds", 2), ("out-of-bounds", 3)]
    assert "at o[256], past the end of 'o' (256 elements)" in found[0][2]
    assert "at a[-1], before the start of 'a'" in found[1][2]
    assert "thread (16, 0, 0)" in found[0][2]


def test_null_pointers(launch: Callable[..., Any]) -> None:
    """An access through a null pointer is an out-of-bounds hazard, whose message says "null pointer"."""
    report = launch(K + "(int *p) { p[threadIdx.x] = 1; }", 1, 32, [None])
    assert report.hazards[0].kind == "out-of-bounds"
    assert "null pointer" in report.hazards[0].message
    assert report.hazards[0].count == 32


def test_shared_memory_has_bounds(launch: Callable[..., Any]) -> None:
    """An access past the end of static or dynamic shared memory is an out-of-bounds hazard."""
    found = provoke(launch, "__shared__ float s[32]; s[t] = 1; __syncthreads();\no[t] = s[t + 1];")
    assert [(kind, line) for kind, line, _ in found] == [("out-of-bounds", 2)]
    body = "extern __shared__ float s[];\ns[t] = 1; o[t] = s[t];"
    assert provoke(launch, body, shared_bytes=128) == []
    assert [kind for kind, _, _ in provoke(launch, body, shared_bytes=124)] == [
        "out-of-bounds",
    ] * 1


def test_uninitialised_shared_memory(launch: Callable[..., Any]) -> None:
    """A read of shared memory that no thread wrote is a hazard, whose message names the first thread."""
    found = provoke(launch, "__shared__ float s[64]; if (t < 50) s[t] = 1; __syncthreads();\no[t] = s[t];", 64)
    assert [(kind, line) for kind, line, _ in found] == [("uninitialized-shared", 2)]
    assert "thread (50, 0, 0)" in found[0][2]


@pytest.mark.parametrize(("value", "lines"), [("7", []), ("s[1]", [2])])
def test_shared_memory_under_a_lock(launch: Callable[..., Any], value: str, lines: list[int]) -> None:
    """What threads with a lock write to shared memory counts as written, and their reads of other words are checked."""
    source = (
        K
        + "(int *lock, int *y) { extern __shared__ int s[]; if (threadIdx.x % 32 == 0) { while (atomicCAS(lock, 0, 1));"
        f"__threadfence();\ns[0] = {value}; __threadfence();\natomicExch(lock, 0); }} __syncthreads();\n"
        "y[threadIdx.x] = s[0]; }"
    )
    report = launch(source, 1, 64, [np.zeros(1, np.int32), np.zeros(64, np.int32)], shared_bytes=8)
    assert [(one.kind, one.line) for one in report.hazards] == [("uninitialized-shared", line) for line in lines]


def test_barriers_that_not_all_reach(launch: Callable[..., Any]) -> None:
    """A barrier in a branch that splits a warp is a hazard at both lines if the other threads wait at another
    barrier."""
    found = provoke(launch, "if (t < 40)\n__syncthreads();\n__syncthreads();\no[t] = t;", 64)
    assert [(kind, line) for kind, line, _ in found] == [("divergent-barrier", 2), ("divergent-barrier", 3)]


@pytest.mark.parametrize(
    "body", ["if (t >= 40) return;\n__syncthreads();\no[t] = t;", "if (t < 40) {\n__syncthreads();\no[t] = t; }"]
)
def test_barriers_wait_for_who_has_not_returned(launch: Callable[..., Any], body: str) -> None:
    """A barrier does not wait for threads that have returned."""
    assert provoke(launch, body, 64) == []


@pytest.mark.parametrize(("skipped", "divided"), [(0, False), (32, False), (8, True)])
def test_copies_of_a_barrier_in_an_unrolled_loop(launch: Callable[..., Any], skipped: int, divided: bool) -> None:
    """The compiler copies a barrier of an unrolled loop. Warps at different copies wait at one barrier; it is a hazard
    if the lanes of one warp wait at different copies."""
    body = (
        f"__shared__ float s[64]; float sum = 0;\nfor (int i = t; i < n - {skipped}; i += 64) {{\ns[t] = a[i]; "
        "__syncthreads();\nsum += s[0]; __syncthreads(); }\no[t] = sum;"
    )
    found = [("divergent-barrier", 3), ("divergent-barrier", 4)] if divided else []
    assert [(kind, line) for kind, line, _ in provoke(launch, body, 64)] == found


def test_misaligned_vectors(launch: Callable[..., Any]) -> None:
    """A vector access at an address that is not a multiple of its size is a hazard."""
    found = provoke(launch, "\nfloat2 v = *(float2 *)(a + t); o[t] = v.x + v.y;")
    assert [(kind, line) for kind, line, _ in found] == [("misaligned", 2)]


def test_block_dependent_conflicts_are_found(launch: Callable[..., Any]) -> None:
    """A race that depends on the data and occurs in only one block is reported for that block."""
    report = launch(
        K + "(int *o, const int *step) { __shared__ int s[64]; int t = threadIdx.x; s[t] = t;\n"
        "o[blockIdx.x * 64 + t] = s[(t + step[blockIdx.x]) % 64]; }",
        8, 64, [np.zeros(512, np.int32), np.array([0, 0, 0, 0, 0, 7, 0, 0], np.int32)],
    )  # fmt: skip
    assert [(hazard.kind, hazard.line, hazard.block) for hazard in report.hazards] == [("race", 2, (5, 0, 0))]


@pytest.mark.parametrize("size", [1, 31, 33, 127, 500])
def test_ragged_tiles_raise_no_alarm(launch: Callable[..., Any], size: int) -> None:
    """A tiled transpose with bounds checks is right, without hazards, if the matrix size is not a multiple of the
    tile."""
    source = (
        K
        + """(float *o, const float *a, int nx, int ny) { __shared__ float s[16][17];
      int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
      if (x < nx && y < ny) s[threadIdx.y][threadIdx.x] = a[y * nx + x]; __syncthreads();
      x = blockIdx.y * 16 + threadIdx.x; y = blockIdx.x * 16 + threadIdx.y;
      if (x < ny && y < nx) o[y * ny + x] = s[threadIdx.x][threadIdx.y]; }"""
    )
    a = np.random.default_rng(1).random((size, size + 5), dtype=np.float32)
    o = np.full((size + 5, size), np.nan, np.float32)
    report = launch(source, (-(-(size + 5) // 16), -(-size // 16)), (16, 16), [o, a, size + 5, size])
    assert report.hazards == ()
    assert (o == a.T).all()


def test_rows_that_only_some_blocks_share(launch: Callable[..., Any]) -> None:
    """Elimination without the guard of the pivot row has a race in the block of that row; with the guard it does
    not."""
    source = (
        K + "(float *a, int n, int p) { int c = threadIdx.x, r = blockIdx.x * 4 + threadIdx.y;\n"
        "if (GUARD) a[r * n + c] -= a[p * n + c] * 0.5f; }"
    )
    for guard, blocks in (("r != p", []), ("r < n", [(2, 0, 0)])):
        matrix = np.ones((32, 32), np.float32)
        report = launch(source.replace("GUARD", guard), 8, (32, 4), [matrix, 32, 9])
        assert [hazard.block for hazard in report.hazards] == blocks


# Between blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("\nif (t == 0) o[0] += 1.0f;", "thread (0, 0, 0) of block (0, 0, 0) writes o[0]"),
        ("\nif (t == 0) o[0] = blockIdx.x;", "which block (0, 0, 0) writes in the same line"),
        ("if (t == 0 && blockIdx.x == 0) o[0] = 5;\nif (t == 0) atomicAdd(o, 1.0f);", "updates o[0]"),
        (
            "float v = o[blockIdx.x + 1];\nif (t == 0) o[blockIdx.x] = v + 1;",
            "which block (0, 0, 0) reads in line 1",
        ),
        ("if (t == 0) o[blockIdx.x] = 1;\na[blockIdx.x * 32 + t] += o[0];", "reads o[0]"),
        ("__threadfence();\nif (t == 0) o[0] = blockIdx.x;", "writes in the same line"),
        (
            "__threadfence(); if (t == 0 && blockIdx.x == 0) o[0] = 5; __syncthreads();\n"
            "if (t == 0 && blockIdx.x == 1) o[0] = 6;",
            "which block (0, 0, 0) writes in line 1",
        ),
        (
            "if (t == 0) atomicAdd(a, 1.0f); if (t == 0 && blockIdx.x == 0) o[0] = 5; __syncthreads();\n"
            "if (t == 0 && blockIdx.x == 1) o[0] = 6;",
            "which block (0, 0, 0) writes in line 1",
        ),
        (  # an atomic of a block orders no later accesses of this block
            "if (t == 0) { atomicAdd(a, 1.0f); a[40 + blockIdx.x] = o[(blockIdx.x + 1) % 4]; }\n"
            "if (t == 0) o[blockIdx.x] = 5;",
            "which block (3, 0, 0) reads in line 1",
        ),
        (
            "float v = 1; for (int i = t; i < n; i += 32) v += o[i]; __syncthreads();\nif (t == 0) o[blockIdx.x] += v;",
            "which block (3, 0, 0) reads in line 1;",
        ),
        (
            "\n((char *)o)[blockIdx.x + t] = blockIdx.x;",
            "blocks run in any order: let each block write to its own elements, or use an atomic.",
        ),
    ],
)
def test_blocks_race(launch: Callable[..., Any], body: str, text: str) -> None:
    """Blocks that access one element of global memory without atomics race; the message names the block, the access and
    the line."""
    found = provoke(launch, body, 32, 4)
    assert [(kind, line) for kind, line, _ in found] == [("race", 2)]
    assert text in found[0][2]


def test_a_lane_that_races_with_several_reads_counts_once(launch: Callable[..., Any]) -> None:
    """Four blocks add to one element: four stores race with reads, and three of them also with stores."""
    source = K + "(float *o) { if (threadIdx.x == 0) o[0] += 1 + blockIdx.x; }"
    report = launch(source, 4, 32, [np.zeros(1, np.float32)])
    assert [(hazard.kind, hazard.count) for hazard in report.hazards] == [("race", 7)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "body",
    [
        "if (t == 0) atomicAdd(o, 1.0f);",
        "if (t == 0) o[0] = 1.0f;",
        "o[blockIdx.x * 32 + t] = a[t];",
        "if (t == 0) { o[blockIdx.x] = 1; __threadfence(); if (atomicAdd(a, 1.0f) == 3) o[4] = o[0] + o[3]; }",
        "int *l = (int *)(o + 99); if (t == 0) { while (atomicCAS(l, 0, 1)) ; __threadfence(); o[0] += 1;"
        " __threadfence(); atomicExch(l, 0); }",
        "volatile float *v = o; if (t == 0 && blockIdx.x == 0) v[0] = 1; if (t == 0 && v[0] == 1) a[blockIdx.x] = 0;",
        "((char *)o)[blockIdx.x * 32 + t] = t;",
        # Each block waits for its turn; the block before passes it on by a volatile store, an atomic, or a fence and a
        # store.
        "volatile int *turn = (int *)(o + 99); if (t == 0) { while (*turn != blockIdx.x) ; o[0] = blockIdx.x;"
        " __threadfence(); *turn = blockIdx.x + 1; }",
        pytest.param(
            "int *turn = (int *)(o + 99); if (t == 0) { while (atomicAdd(turn, 0) != blockIdx.x) ; o[0] = blockIdx.x;"
            " __threadfence(); atomicAdd(turn, 1); }",
            marks=pytest.mark.slow,
        ),
        "int *l = (int *)(o + 99); if (t == 0) { while (atomicCAS(l, 0, 1)) ; __threadfence(); a[0] = blockIdx.x;"
        " __threadfence(); *l = 0; }",
    ],
)
def test_blocks_that_do_not_race(launch: Callable[..., Any], body: str) -> None:
    """Blocks that use atomics, equal values, separate elements, or locks and flags with fences do not race."""
    assert provoke(launch, body, 32, 4) == []


@pytest.mark.parametrize(
    "body",
    [
        "if (t == 0) {\no[blockIdx.x] = 1; if (atomicAdd(a, 1.0f) == 3) o[4] = o[0] + o[3]; }",
        "int *l = (int *)(o + 99); if (t == 0) { while (atomicCAS(l, 0, 1)) ; __threadfence();\no[0] += 1;"
        " atomicExch(l, 0); }",
    ],
)
def test_a_missing_fence_is_told_where_the_data_is_written(launch: Callable[..., Any], body: str) -> None:
    """A block that writes data and announces it by an atomic (a count, the release of a lock) needs a fence in between;
    the hazard is at the line of the write."""
    (found,) = provoke(launch, body, 32, 4)
    assert found[:2] == ("missing-fence", 2)
    assert "without __threadfence() in between" in found[2]


def test_launch_bounds_are_kept(launch: Callable[..., Any]) -> None:
    """A launch with more threads per block than the kernel's __launch_bounds__ is an error, as on a GPU."""
    source = 'extern "C" __global__ void __launch_bounds__(64) k(float *o) { o[threadIdx.x] = 1; }'
    out = np.zeros(128, np.float32)
    launch(source, 2, (32, 2), [out])
    with pytest.raises(simulator.LaunchError, match=r"128 threads .* __launch_bounds__ of kernel k, which allow 64"):
        launch(source, 1, 128, [out])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("int q[8]; int r[8];\nfor (int i = 0; i < 8; i++) q[i] = r[i] = a[i];\no[t] = q[t & (n - 1)] + r[t & 7];",
         "of a local array of 32 bytes"),
        ("int q[8] = {};\n q[t & 3] = 1;\no[t] = q[(t & 7) - 1];", "4 B before the start of a local array"),
    ],
)  # fmt: skip
def test_local_arrays_have_bounds(launch: Callable[..., Any], body: str, text: str) -> None:
    """An index outside a local array is a hazard, even if it falls into another local array of the same thread."""
    (found,) = provoke(launch, body, 32)
    assert found[:2] == ("out-of-bounds", 3)
    assert text in found[2]


def test_traps_of_the_compiler_are_hazards(launch: Callable[..., Any]) -> None:
    """A trap that the compiler puts in place of an invalid access is a hazard; a __trap() of the source ends the
    launch."""
    (found,) = provoke(launch, "int *z = 0; if (n > t + 250)\n*z = 5;\no[t] = 1;")
    assert found[0] == "out-of-bounds"
    assert "a trap, which the compiler puts" in found[2]
    with pytest.raises(simulator.KernelTrap):
        provoke(launch, "if (n > t + 250) __trap(); o[t] = 1;")


def test_offsets_hold_in_the_hundredth_array(launch: Callable[..., Any]) -> None:
    """A hazard's message names the array and the element even if the module has a hundred variables."""
    variables = "".join(f"__device__ int v{i}; " for i in range(100))
    use = "".join(f"v{i} + " for i in range(100))
    source = variables + K + f"(int *o) {{ int t = threadIdx.x, s = {use} 0;\no[t] = s; o[(t + 1) % 8] += s + t; }}"
    report = launch(source, 1, 8, [np.zeros(8, np.int32)], names=["o"])
    assert report.hazards
    for hazard in report.hazards:
        assert re.search(r" o\[\d+\]", hazard.message), hazard.message


# Shuffles ------------------------------------------------------------------------------------------------------------


def suspected(launch: Callable[..., Any], body: str, block: Any = 32) -> list[tuple[str, int, int, str]]:
    """Run a kernel body as `provoke` does, return (kind, line, count, message) of its suspicions."""
    report = launch(K + "(float *o, float *a, int n) { int t = threadIdx.x;" + body + "}", 1, block,
                    [np.zeros(256, np.float32), ROWS.copy(), 256], names=["o", "a", "n"])  # fmt: skip
    assert report.hazards == ()
    return [(item.kind, item.line, item.count, item.message) for item in report.suspicions]


@pytest.mark.parametrize(
    ("body", "block", "count", "reader", "source"),
    [
        # source lanes that do not execute the shuffle
        ("float v = a[t];\nif (t < 16) o[t] = __shfl_down_sync(0xffff, v, 8);", 32, 8, 8, 16),
        # source lanes that execute the shuffle, but that the mask leaves out
        ("unsigned m = t < 16 ? 0xffff : 0xffff0000;\no[t] = __shfl_xor_sync(m, a[t], 16);", 32, 32, 0, 16),
        # source lanes that the block does not have
        ("float v = a[t];\no[t] = __shfl_down_sync(0xfffff, v, 4);", 20, 4, 16, 20),
        # source lanes that have returned
        ("if (t >= 24) return;\no[t] = __shfl_sync(0xffffff, a[t], 31);", 32, 24, 0, 31),
    ],
)
def test_undefined_shuffles_are_suspected(
    launch: Callable[..., Any], body: str, block: int, count: int, reader: int, source: int
) -> None:
    """A shuffle from a lane that does not take part gives an undefined value: the report has a suspicion, not a
    hazard."""
    ((kind, line, found, message),) = suspected(launch, body, block)
    assert (kind, line, found) == ("undefined-shuffle", 2, count)
    assert message.startswith(
        f"thread ({reader}, 0, 0) of block (0, 0, 0) takes a value from lane {source} of its warp"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "body",
    [
        "o[t] = __shfl_down_sync(~0u, a[t], 8);",
        "float v = a[t]; if (t < 16) o[t] = __shfl_down_sync(0xffff, v, 8, 16);",
        "float v = a[t]; if (t < 16) o[t] = __shfl_xor_sync(0xffff, v, 8);",
        "unsigned m = t < 16 ? 0xffff : 0xffff0000; o[t] = __shfl_xor_sync(m, a[t], 8);",
        "if (t >= 24) return; o[t] = __shfl_sync(0xffffff, a[t], 23);",
    ],
)
def test_defined_shuffles_are_not_suspected(launch: Callable[..., Any], body: str) -> None:
    """A shuffle whose source lanes all take part (by its mask, width or distance) is not suspected."""
    assert suspected(launch, body) == []


def test_undefined_values_are_poison(launch: Callable[..., Any]) -> None:
    """A sum over 24 threads is NaN if it reads lanes 24 to 31 by shuffles, and right if it uses only lanes 0 to 23."""
    out = np.zeros(256, np.float32)

    def total(step: str) -> float:
        loop = f"float v = a[t]; for (int d = 16; d; d /= 2) {{ {step} }} if (t == 0) o[0] = v;"
        launch(K + "(float *o, float *a) { int t = threadIdx.x;" + loop + "}", 1, 24, [out, ROWS.copy()])
        return float(out[0])

    assert np.isnan(total("v += __shfl_down_sync(~0u, v, d);"))
    assert np.isnan(total("v += __shfl_sync(0xffffff, 1.0f, 31);"))
    assert total("float w = __shfl_down_sync(0xffffff, v, d); if (t + d < 24) v += w;") == sum(range(24))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("store", "races"),
    [
        ("flag[0] = 1;", False),
        ("if (t < 32) flag[0] = 1; else flag[0] = 1;", False),
        ("flag[0] = 1; if (t == 40) flag[0] = 1;", False),
        ("flag[0] = t >> 5;", True),
        ("if (t < 32) flag[0] = 1; else flag[0] = 2;", True),
        ("flag[0] = 1; if (t == 40) flag[0] = 2;", True),
    ],
)
def test_writers_of_one_value_do_not_race(launch: Callable[..., Any], store: str, races: bool) -> None:
    """Warps that write the same value to one place do not race; warps that write different values do."""
    body = f"__shared__ volatile int flag[1];\n{store}\n__syncthreads(); o[t] = flag[0];"
    assert [kind for kind, *_ in provoke(launch, body, 64)] == ["race"] * races


UNDEFINED = """
extern "C" __global__ void sum(float *out, const float *in, int n) {
    float s;
    for (int i = 0; i < n; i++)
        s += in[32 * i + threadIdx.x];
    out[threadIdx.x] = s;
}
extern "C" __global__ void some(float *out, const float *in, int n) {
    float m;
    if (threadIdx.x < n) m = in[threadIdx.x];
    out[threadIdx.x] = m;
}
extern "C" __global__ void unused(float *out, const float *in, int n) {
    float m;
    bool mine = threadIdx.x < n;
    if (mine) m = in[threadIdx.x];
    __syncthreads();
    if (mine) out[threadIdx.x] = m + 1;
}
"""


@pytest.mark.parametrize(("kernel", "line", "thread"), [("sum", 5, 0), ("some", 11, 8)])
def test_undefined_variables_are_poison_and_suspected(kernel: str, line: int, thread: int) -> None:
    """A variable without a value makes the result NaN, and the report has one suspicion, at the line that uses the
    variable."""
    out, data = np.zeros(32, np.float32), np.ones(256, np.float32)
    report = simulator.run(compile_ptx(UNDEFINED, "u.cu").ptx, kernel, 1, 32, [out, data, 8])
    assert np.isnan(out[thread:]).all()
    assert not report.hazards
    (suspicion,) = report.suspicions
    assert (suspicion.kind, suspicion.line, suspicion.thread) == ("undefined-value", line, (thread, 0, 0))


def test_undefined_values_that_nobody_uses_do_no_harm() -> None:
    """An undefined value that no lane stores does not change the results of other lanes, and is not a hazard."""
    out, data = np.zeros(32, np.float32), np.ones(256, np.float32)
    report = simulator.run(compile_ptx(UNDEFINED, "u.cu").ptx, "unused", 1, 32, [out, data, 8])
    assert out.tolist() == [2.0] * 8 + [0.0] * 24
    assert not report.hazards


STRONG = """
extern "C" __global__ void polled(int *x, int *out) {
    __shared__ int count;
    if (threadIdx.x == 0) atomicExch(&count, 0);
    __syncthreads();
    int seen = READ(&count);
    atomicAdd(&count, 1);
    out[threadIdx.x] = seen >= 0 ? READ(x + threadIdx.x) : 0;
    atomicAdd(x + (threadIdx.x + 37) % 64, 1);
}
"""


@pytest.mark.parametrize(("read", "races"), [("*(volatile int *)", False), ("*", True)])
def test_a_strong_read_and_an_atomic_do_not_race(read: str, races: bool) -> None:
    """A volatile read and an atomic of another thread are morally strong, so they do not race; a weak read races. An
    atomicExch() whose result is not used initialises shared memory."""
    x, out = np.zeros(64, np.int32), np.zeros(64, np.int32)
    ptx = compile_ptx(f"#define READ(p) {read}(p)\n{STRONG}", "s.cu").ptx
    report = simulator.run(ptx, "polled", 1, 64, [x, out])
    assert {hazard.kind for hazard in report.hazards} == ({"race"} if races else set())


HANDED_OVER = """
extern "C" __global__ void pipe(const float *x, float *y, int n) {
    __shared__ float tile[2][32];
    int t = threadIdx.x;
    if (t < 32) {
#pragma unroll 1
        for (int k = 0; k < 2; k++) {
            tile[k][t] = x[k * 32 + t];
            asm volatile("bar.arrive %0, 64;" :: "r"(1 + SAME) : "memory");
        }
    } else {
#pragma unroll 1
        for (int k = 0; k < 2; k++) {
            asm volatile("bar.sync %0, 64;" :: "r"(1 + k) : "memory");
            y[k * 32 + t - 32] = tile[k][63 - t];
        }
    }
}
"""


def test_an_arrival_keeps_the_number_of_its_barrier() -> None:
    """A bar.arrive whose barrier number is in a register counts for the number at its execution, although the register
    has changed when other threads wait; with the wrong number, the threads that wait are a hazard."""
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    for number, kinds in (("k", set()), ("0", {"divergent-barrier", "race"})):
        ptx = compile_ptx(f"#define SAME {number}\n{HANDED_OVER}", "p.cu").ptx
        report = simulator.run(ptx, "pipe", 1, 64, [x, y, 64])
        assert {hazard.kind for hazard in report.hazards} <= kinds
        assert bool(report.hazards) == bool(kinds)


PHASES = r"""
extern "C" __global__ void phases(int *out) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], COUNT;" :: "r"(at) : "memory");
    __syncthreads();
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
    for (int done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at), "l"(token) : "memory");
    out[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize("count", [96, 97])
def test_an_mbarrier_with_too_few_arrivals_is_a_deadlock(count: int) -> None:
    """128 threads arrive at an mbarrier. If they do not fill its last phase, the threads with the token of this phase
    wait for ever, also if the phase begins within one step of a warp."""
    ptx = compile_ptx(PHASES.replace("COUNT", str(count)), "m.cu").ptx
    with pytest.raises(simulator.BudgetExceeded) as stopped:
        simulator.run(ptx, "phases", 1, 128, [np.zeros(128, np.int32)])
    (hazard,) = stopped.value.hazards
    assert hazard.kind == "deadlock"
    assert f"{2 * count - 128} of {count} arrivals are missing" in hazard.message


def test_an_mbarrier_with_all_arrivals_ends() -> None:
    """If all threads arrive at an mbarrier that expects them, all threads pass it."""
    out = np.zeros(128, np.int32)
    report = simulator.run(compile_ptx(PHASES.replace("COUNT", "128"), "m.cu").ptx, "phases", 1, 128, [out])
    assert not report.hazards
    assert out.all()


CLUSTERED = r"""
extern "C" __global__ void __cluster_dims__(2, 1, 1) counted(int *count, int *out) {
    if (threadIdx.x == 0) atomicAdd(count + blockIdx.x / 2, 1);
    if (SYNC) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    if (threadIdx.x == 0) out[blockIdx.x] = count[blockIdx.x / 2];
}
"""


@pytest.mark.parametrize("sync", [True, False])
def test_a_counter_is_read_after_other_blocks_have_updated_it(sync: bool) -> None:
    """A plain read of a counter that another block updates is a race, unless a barrier of the cluster orders them."""
    ptx = compile_ptx(f"#define SYNC {int(sync)}\n{CLUSTERED}", "c.cu").ptx
    arrays = [np.zeros(2, np.int32), np.zeros(4, np.int32)]
    report = simulator.run(ptx, "counted", 4, 32, arrays, cluster=(2, 1, 1))
    assert {hazard.kind for hazard in report.hazards} == (set() if sync else {"race"})


TRY_LOCK = (
    "int *lock = (int *)o, *sum = (int *)a;\nif (atomicCAS(lock, 0, 1) == 0) { __threadfence(); *sum += t;"
    " __threadfence(); atomicExch(lock, 0); }"
)
ONCE = "int *lock = (int *)o, *first = (int *)a;\nif (atomicCAS(lock, 0, 1) == 0) { *first = t; __threadfence(); }"
RETRY = (
    "int *lock = (int *)o, *sum = (int *)a;\nfor (bool done = false; !done;) if (atomicCAS(lock, 0, 1) == 0) {"
    " __threadfence(); *sum += t; __threadfence(); atomicExch(lock, 0); done = true; }"
)


@pytest.mark.parametrize(("body", "lines"), [(TRY_LOCK, [2]), (ONCE, []), (RETRY, [])], ids=["try", "once", "retry"])
def test_a_thread_that_misses_a_lock_is_a_suspicion(launch: Callable[..., Any], body: str, lines: list[int]) -> None:
    """A suspicion names the compare-and-swap by which threads did not get a lock if they do not try again; a word that
    one thread sets once is not a lock."""
    source = K + "(float *o, float *a, int n) { int t = threadIdx.x;" + body + "}"
    report = launch(source, 2, 64, [np.zeros(256, np.float32), ROWS.copy(), 256], names=["o", "a", "n"])
    assert report.hazards == ()
    assert [(one.kind, one.line) for one in report.suspicions if one.kind == "lock-missed"] == [
        ("lock-missed", line) for line in lines
    ]


def test_an_accumulator_is_cleared_in_an_earlier_launch(launch: Callable[..., Any]) -> None:
    """If one block clears what the atomics of all blocks add to, the advice is another launch, not a second atomic."""
    body = "\nif (blockIdx.x + t == 0) o[0] = 0;\natomicAdd(o, a[t]);"
    ((kind, line, message),) = provoke(launch, body, grid=4)
    assert (kind, line) == ("race", 3)
    assert "write it in an earlier launch, since an atomic in both lines would not order the two" in message
