"""Variables that outlive a launch, and lower bounds of a kernel's time."""

from __future__ import annotations

import pytest

from cudabench.compile.cubin import declared_at
from cudabench.measure import gpu_run
from cudabench.records.results import DeviceInfo
from cudabench.symbols import plain_name

SOURCE = """static __device__ int counter;
namespace { __device__ int hidden; }
namespace ns { __device__ float table[8]; }
__constant__ int fixed[4];
extern "C" __global__ void bump(int *out)
{
    static int local = 5;
    out[0] = local++ + counter++ + hidden++ + fixed[threadIdx.x] + int(ns::table[0]++);
}
"""


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("counter", "counter"),
        ("_ZL7counter", "counter"),
        ("_ZN2ns5tableE", "table"),
        ("_ZZ4bumpE5local", "local"),
        ("_ZN12_GLOBAL__N__6hiddenE", "hidden"),
        ("_Z", "_Z"),
        ("_Z99short", "_Z99short"),
    ],
)
def test_plain_names(symbol: str, name: str) -> None:
    """The plain name is the last name of a mangled symbol; a symbol that is not mangled stays."""
    assert plain_name(symbol) == name


DECLARED = [("counter", 1), ("hidden", 2), ("table", 3), ("fixed", 4), ("local", 7), ("bump", None)]


@pytest.mark.parametrize(("name", "line"), DECLARED)
def test_where_a_variable_is_declared(name: str, line: int | None) -> None:
    """The declaration of each writable variable is found in the source, constant memory and function statics
    included."""
    assert declared_at(SOURCE, name) == line


H200 = DeviceInfo(
    "H200", "cuda", "9.0", sm_count=132, l2_bytes=60 << 20, peak_gbps=4800.0, clocks={"sm_mhz": 1980, "memory_mhz": 1}
)


def test_a_time_under_the_floor_of_bytes_is_impossible() -> None:
    """Bytes that may stay in the L2 cache do not count for the lower bound; the message suspects the kernel and
    --bytes."""
    least = (10**9 - (60 << 20)) / 4800e9
    assert gpu_run.bytes_floor(10**9, H200) == pytest.approx(least)
    assert gpu_run.impossible_time(least * 1.001, 10**9, None, (), H200) is None
    said = gpu_run.impossible_time(least * 0.999, 10**9, None, (), H200)
    assert said is not None
    assert "--bytes" in said
    assert "kernel" in said
    assert gpu_run.impossible_time(1e-9, 60 << 20, None, (), H200) is None  # all of it fits in the cache


def test_a_time_under_the_floor_of_operations_is_impossible() -> None:
    """The fastest arithmetic that the code uses gives the lower bound; an unknown rate gives no lower bound."""
    least = 10**12 / (2 * 128 * 132 * 1980e6)
    assert gpu_run.flops_floor(10**12, ["float32"], H200) == pytest.approx(least)
    assert gpu_run.impossible_time(least * 0.99, None, 10**12, ["float32"], H200) is not None
    assert gpu_run.impossible_time(least * 0.99, None, 10**12, ["float32", "tf32"], H200) is None
    assert gpu_run.flops_floor(10**12, ["float32", "octal"], H200) is None
    assert gpu_run.flops_floor(10**12, [], H200) is None
