"""An address space that several launches share, and launches without checks."""

from __future__ import annotations

import struct
from unittest.mock import patch

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx
from cudabench.programs.launches import Geometry, LaunchGroup
from cudabench.simulator import api as simulator
from cudabench.system import native
from tests.engines import loaded

KERNELS = """
__device__ int total = 40;
extern "C" __global__ void add(const float *a, const float *b, float *sum, int n)
{
    __shared__ float kept[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    if (i < n)
        sum[i] = kept[threadIdx.x] + b[i];
}
extern "C" __global__ void count(int *out)
{
    atomicAdd(&total, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        out[0] = total;
}
extern "C" __global__ void local(const int *places, int *out)
{
    int own[8];
    for (int k = 0; k < 8; k++)
        own[k] = places[k] * threadIdx.x;
    out[threadIdx.x] = own[places[threadIdx.x & 7]];
}
"""
OTHER = """
__device__ int mine = 7;
extern "C" __global__ void store(int *out) { out[threadIdx.x] = mine + threadIdx.x; }
"""
THREADS = 64


@pytest.fixture(scope="module")
def ptx() -> str:
    """Return the kernels' PTX."""
    return compile_ptx(KERNELS, "k.cu", arch="sm_90").ptx


class Host:
    """A program in an address space that several launches share, as in a host program."""

    def __init__(self, ptx: str) -> None:
        self.space = simulator.AddressSpace()
        self.program = simulator.load(ptx, space=self.space)

    def launch(self, kernel: str, arguments: bytes, checked: bool, grid: int = 4) -> simulator.Report:
        """Launch a kernel with the bytes of its parameters."""
        raw = arguments.ljust(self.program.code(kernel).parameter_bytes, b"\0")
        placed = simulator.Placed(self.space, raw)
        return simulator.run(self.program, kernel, grid, THREADS, placed, checked=checked)


@pytest.mark.engine
@pytest.mark.skipif(native.library() is None, reason="needs the native engine")
@pytest.mark.parametrize("checked", [True, False])
def test_launches_share_memory(ptx: str, checked: bool) -> None:
    """A launch reads what earlier launches wrote to allocations, to host arrays and to module variables, also with two
    programs."""
    host = Host(ptx)
    other = simulator.load(compile_ptx(OTHER, "k.cu", arch="sm_90").ptx, space=host.space)
    given = np.arange(1024, dtype=np.float32)
    a = host.space.allocate(given.view(np.uint8), "a")
    b, out = host.space.allocate(4096, "b"), host.space.allocate(4 * THREADS)
    host.space.bytes_at(b).view(np.float32)[:] = 2
    for _ in range(3):
        report = host.launch("add", struct.pack("<QQQi", a, b, b, 1000), checked, 16)
        assert not report.hazards
        assert report.engine == "native"
        assert bool(report.instructions) == checked
        assert bool(report.accesses) == checked
    assert host.space.bytes_at(b).view(np.float32).tolist() == [*(3.0 * given[:1000] + 2), *[2.0] * 24]
    host.launch("count", struct.pack("<Q", out), checked, 1)
    assert host.program.variable("total").view(np.int32)[0] == 40 + THREADS
    assert host.space.bytes_at(host.program.address("total")).view(np.int32)[0] == 40 + THREADS
    simulator.run(other, "store", 1, THREADS, simulator.Placed(host.space, struct.pack("<Q", out)), checked=checked)
    assert host.space.bytes_at(out).view(np.int32).tolist() == [7 + thread for thread in range(THREADS)]


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["native", "numpy"])
@pytest.mark.parametrize("checked", [True, False])
def test_stray_accesses_are_named(ptx: str, engine: str, checked: bool) -> None:
    """An out-of-bounds, misaligned or use-after-free access is a hazard, with and without checks; writes within bounds
    take place."""
    if engine == "native" and native.library() is None:
        pytest.skip("needs the native engine")
    with patch.dict("os.environ", CUDABENCH_ENGINE=engine):
        host = Host(ptx)
        a, b, short = (host.space.allocate(size, name) for size, name in ((4096, "a"), (4096, "b"), (400, "short")))
        host.space.bytes_at(b).view(np.float32)[:] = 1

        def told(*arguments: int) -> list[tuple[str, str]]:
            report = host.launch("add", struct.pack("<QQQi", *arguments), checked)
            return [(one.kind, one.message) for one in report.hazards]

        assert told(a, b, short, 100) == []
        ((kind, message),) = told(a, b, short, 101)
        assert kind == "out-of-bounds"
        assert "'short'" in message
        assert host.space.bytes_at(short).view(np.float32).tolist() == [1.0] * 100
        assert {kind for kind, _ in told(a + 2, b, a, 64)} == {"misaligned"}
        assert {kind for kind, _ in told(0, b, a, 64)} == {"out-of-bounds"}
        host.space.free(b)
        ((kind, message),) = told(a, b, a, 64)
        assert kind == "use-after-free"
        assert "'b' (1024 elements), which was freed" in message
        with pytest.raises(KeyError):
            host.space.free(b)
        with pytest.raises(KeyError):
            host.space.free(a + 4)
        host.program.unload()
        out = host.space.allocate(4)
        assert [one.kind for one in host.launch("count", struct.pack("<Q", out), checked, 1).hazards] == [
            "use-after-free"
        ] * 2


def test_slots_are_given_again(ptx: str) -> None:
    """An address space reuses the slots of freed allocations, but not those of the last 256."""
    host = Host(ptx)
    addresses = []
    for _ in range(1000):
        addresses.append(host.space.allocate(16))
        host.space.free(addresses[-1])
    assert len(host.space.slots) < 300
    assert len(set(addresses)) < 300
    assert len(set(addresses[-256:])) == 256


@pytest.mark.engine
@pytest.mark.skipif(native.library() is None, reason="needs the native engine")
@pytest.mark.parametrize("kernel", ["add", "count", "local"])
def test_unchecked_launches_leave_the_same_bits(kernel: str) -> None:
    """A launch without checks writes the same bits as a launch with checks, and counts no instructions."""
    program = loaded(KERNELS)
    draw, left = np.random.default_rng(5), []
    floats, places = draw.random((2, 300), np.float32), draw.integers(0, 8, 8).astype(np.int32)
    for checked in (True, False):
        program.reset()
        out = np.zeros(300, np.int32)
        arguments = {"add": [*floats, out, 290], "count": [out], "local": [places, out]}[kernel]
        grid = {"add": 5, "count": 1, "local": 1}[kernel]
        report = simulator.run(program, kernel, grid, THREADS, arguments, checked=checked)
        assert bool(report.instructions) == checked
        assert report.engine == "native"
        assert not report.hazards
        left.append(out.tobytes() + program.variable("total").tobytes())
    assert left[0] == left[1]


@pytest.mark.engine
@pytest.mark.skipif(native.library() is None, reason="needs the native engine")
def test_padding_is_named_and_holds_what_is_written(ptx: str) -> None:
    """An access just past an allocation is a hazard, and accesses the padding as on a GPU; an access beyond the padding
    does not take place. Later launches without checks do not report the access again."""
    host = Host(ptx)
    a, b = (host.space.allocate(np.ones(THREADS, np.float32).view(np.uint8), name) for name in "ab")
    data = np.zeros(4096, np.uint8)
    out = host.space.allocate(data[: 4 * THREADS], "out")
    host.space.slots[out >> 40].pad(data)
    inside, past, far = out, out + 16, out + 4096
    found = [
        [(one.kind, one.padding, one.count) for one in host.launch("add", arguments, checked, 1).hazards]
        for place, checked in ((inside, True), (past, True), (past, False), (past, False), (far, True))
        for arguments in [struct.pack("<QQQi", a, b, place, THREADS)]
    ]
    assert found == [
        [],
        [("out-of-bounds", True, 4)],
        [],  # an earlier launch reported this access
        [],
        [("out-of-bounds", False, THREADS)],
    ]
    assert data.view(np.float32)[: THREADS + 4].all()
    assert not data.view(np.float32)[THREADS + 4 :].any()


@pytest.mark.engine
@pytest.mark.skipif(native.library() is None, reason="needs the native engine")
def test_launches_that_count_alike_share_a_report(ptx: str) -> None:
    """Most launches with equal counts share one report, whatever their arguments; a merge counts this report once per
    launch."""
    host = Host(ptx)
    places = [host.space.allocate(4 * THREADS, name) for name in "abcd"]
    kind = LaunchGroup(Geometry((1, 1, 1), (THREADS, 1, 1), 0, None))
    single: list[simulator.Report] = []
    for turn in range(40):
        to = places[2 + turn % 2]
        single.append(host.launch("add", struct.pack("<QQQi", *places[:2], to, THREADS), True, 1))
        kind.add_report(single[-1])
    assert len({id(one) for one in single}) < 20
    every, merged = simulator.merge(single), kind.merged()
    assert merged.instructions == every.instructions
    assert [(one.array, one.requests, one.sectors) for one in merged.accesses] == [
        (one.array, one.requests, one.sectors) for one in every.accesses
    ]
    assert merged.footprint == every.footprint
