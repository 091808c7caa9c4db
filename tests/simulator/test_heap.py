"""The device's heap: malloc, free, new and delete in kernels, and hazards of their misuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator

SOURCE = """
extern "C" __global__ void lists(int *out, int n) {
    struct Node { int value; Node *next; };
    Node *head = nullptr;
    for (int i = 0; i < n; i++) { Node *one = new Node{i * (int)threadIdx.x, head}; head = one; }
    int sum = 0;
    while (head) { Node *old = head; sum += old->value; head = old->next; delete old; }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void beyond(int *out, int n) { int *p = (int *)malloc(n * 4); p[n] = 1; free(p); }
extern "C" __global__ void late(int *out, int n) { int *p = (int *)malloc(n * 4); free(p); out[0] = p[1]; }
extern "C" __global__ void twice(int *out, int n) { void *p = malloc(n); if (out[0] == 0) free(p); free(p); }
extern "C" __global__ void strange(int *out, int n) { int *p = (int *)malloc(n * 8); free(p + n); free(p); free(out); }
extern "C" __global__ void large(int *out, int n) {
    char *p = (char *)malloc(n);
    out[threadIdx.x] = p != nullptr;
    if (p) p[n - 1] = 1;
    free(p);
}
__device__ int *kept;
extern "C" __global__ void keep(int *out, int n) { if (threadIdx.x == 0) { kept = new int[n]; kept[n - 1] = 5; } }
extern "C" __global__ void use(int *out, int n) { if (threadIdx.x == 0) { out[0] = kept[n - 1]; delete[] kept; } }
extern "C" __global__ void together(int *out, int n) {
    __shared__ int *p;
    if (threadIdx.x == 0) p = new int[blockDim.x];
    __syncthreads();
    atomicAdd(&p[threadIdx.x], 1);
    p[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = p[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) delete[] p;
}
"""


@pytest.fixture
def program(compiled: Callable[..., simulator.Program]) -> simulator.Program:
    """The kernels above, with an empty heap."""
    program = compiled(SOURCE)
    program.reset()
    return program


def launch(program: simulator.Program, kernel: str, n: int, lanes: int = 32) -> tuple[np.ndarray[Any, Any], Any]:
    """Run a kernel in one block; return its output and the report."""
    out = np.zeros(lanes, np.int32)
    return out, simulator.run(program, kernel, 1, lanes, [out, np.int32(n)])


def test_each_lane_has_a_list_of_its_own(program: simulator.Program) -> None:
    """Each lane builds a list with new and deletes it; then the heap has no leak."""
    out, report = launch(program, "lists", 6)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, 15 * np.arange(32))
    assert program.heap is not None
    assert program.heap.leaks() == ()


@pytest.mark.parametrize(
    ("kernel", "kind", "line", "said"),
    [
        ("beyond", "out-of-bounds", 10, "writes 4 bytes at byte 20 of the 20 bytes that line 10 allocated"),
        ("late", "use-after-free", 11, "reads 4 bytes at byte 4 of the 20 bytes that line 11 allocated, freed on"),
        ("twice", "use-after-free", 12, "frees the 5 bytes that line 12 allocated, freed on line 12 a second time"),
    ],
)
def test_misuse_is_a_hazard(program: simulator.Program, kernel: str, kind: str, line: int, said: str) -> None:
    """An access past the end of an allocation or after free, and a second free, is a hazard of each lane; its message
    gives the allocation."""
    _, report = launch(program, kernel, 5)
    assert [(one.kind, one.line, one.count) for one in report.hazards] == [(kind, line, 32)]
    assert report.hazards[0].message.startswith("thread (0, 0, 0) of block (0, 0, 0)")
    assert said in report.hazards[0].message


def test_what_malloc_did_not_give_cannot_be_freed(program: simulator.Program) -> None:
    """free() of a pointer into an allocation, or of a pointer to an argument, is a hazard."""
    _, report = launch(program, "strange", 4, 1)
    (hazard,) = report.hazards
    assert (hazard.kind, hazard.count) == ("out-of-bounds", 2)
    assert "frees byte 16 of the device's heap, which malloc did not return" in hazard.message


def test_a_full_heap_gives_null(program: simulator.Program) -> None:
    """malloc returns null if the heap is full: 8 MiB hold seven allocations of 1 MiB; freed memory is used again."""
    for _ in range(3):
        out, report = launch(program, "large", 1 << 20)
        assert report.hazards == ()
        np.testing.assert_array_equal(out, np.arange(32) < 7)


def test_memory_outlives_a_launch_and_is_a_leak_until_freed(program: simulator.Program) -> None:
    """A kernel reads and frees memory that an earlier kernel allocated; until then the memory is reported as a leak."""
    assert program.heap is not None
    launch(program, "keep", 9)
    (leak,) = program.heap.leaks()
    assert (leak.line, leak.allocations, leak.bytes) == (21, 1, 36)
    out, report = launch(program, "use", 9)
    assert out[0] == 5
    assert report.hazards == ()
    assert program.heap.leaks() == ()


def test_a_block_shares_memory(program: simulator.Program) -> None:
    """All threads of a block may use memory that one thread allocated."""
    out, report = launch(program, "together", 0)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, np.arange(32)[::-1])


def test_a_kernel_that_only_frees_has_a_heap(compiled: Callable[..., simulator.Program]) -> None:
    """In a kernel that only frees, free() of an unknown address is a hazard, and free() of null is not."""
    source = 'extern "C" __global__ void k(char **given) { cudaFree(given[threadIdx.x]); }'
    report = simulator.run(compiled(source), "k", 1, 2, [np.array([0, 1 << 41], np.int64)])
    (hazard,) = report.hazards
    assert (hazard.kind, hazard.line) == ("out-of-bounds", 1)
    assert "frees address 0x20000000000, which malloc did not return" in hazard.message
