"""Counts of sectors and wavefronts against a count lane by lane, for patterns that hypothesis chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.simulator import api as simulator
from cudabench.simulator import values
from cudabench.simulator.count import atomics, banks
from cudabench.simulator.count.requests import sectors as sectors_of
from tests.simulator.conftest import HEAD


def brute(addresses: list[int], width: int) -> tuple[int, int]:
    """Return (sectors, ideal sectors) of one request by a count of its bytes."""
    touched = {address + byte for address in addresses for byte in range(width)}
    return len({byte // 32 for byte in touched}), -(-len(touched) // 32)


def agree(addresses: list[int | None], step: int) -> bool:
    """Return whether the partner of each active lane is inactive or has the same address."""
    return all(a is None or addresses[lane ^ step] in (None, a) for lane, a in enumerate(addresses))


def passes(addresses: list[int | None], width: int, load: bool = True) -> tuple[int, int]:
    """Return (wavefronts, ideal wavefronts) of one request, by half or quarter warps, which are doubled if the lanes of
    a load agree."""
    lanes = 32 if width <= 4 else 128 // width
    if load and lanes < 32 and (agree(addresses, 1) or agree(addresses, 2)):
        lanes *= 2
    total, every = 0, set()
    for start in range(0, 32, lanes):
        words = {
            a // 4 + w for a in addresses[start : start + lanes] if a is not None for w in range(max(1, width // 4))
        }
        load = [0] * 32
        for word in words:
            load[word % 32] += 1
        total += max(load)
        every |= words
    return total, -(-len(every) // 32)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.lists(st.integers(0, 200), min_size=32, max_size=32),
    st.integers(1, 2**32 - 1),
    st.booleans(),
    st.booleans(),
)
def test_wavefronts_equal_a_count_by_hand(width: int, places: list[int], bits: int, load: bool, paired: bool) -> None:
    """The bank model equals a lane-by-lane count for any addresses, widths and active lanes."""
    addresses = np.array(places) * width
    if paired:
        addresses = np.repeat(addresses[:16], 2)
    mask = np.array([bits >> lane & 1 for lane in range(32)], dtype=bool)
    want = passes([int(a) if on else None for a, on in zip(addresses, mask, strict=True)], width, load)
    got = banks.both(addresses.reshape(1, 32), width, mask.reshape(1, 32), load=load)
    assert (int(got[0][0]), int(got[1][0])) == want
    assert int(banks.wavefronts(addresses, width, mask, load=load)) == want[0]
    assert int(banks.both(addresses, width, mask)[1]) == want[1]


def test_wavefronts_of_wide_accesses_as_measured() -> None:
    """The bank model equals the counters of an H200 for 286 requests of 8 and 16 bytes per lane."""
    path = Path(__file__).parent.parent / "data" / "shared_wavefronts_h200.json"
    requests = json.loads(path.read_text())["requests"]
    assert len(requests) == 286
    for request in requests:
        addresses = np.array(request["places"]) * request["width"]
        mask = np.array([request["mask"] >> lane & 1 for lane in range(32)], dtype=bool)
        got = banks.wavefronts(addresses, request["width"], mask, load=request["op"] == "load")
        assert int(got) == request["wavefronts"], request


def test_atomics_as_measured() -> None:
    """The cost of atomics in shared memory equals the counters of an H200 for 248 requests of all kinds."""
    requests = json.loads((Path(__file__).parent.parent / "data" / "atomics_h200.json").read_text())
    assert len(requests) == 248
    for request in requests:
        operation, type_ = request["what"].split(".")
        width = 8 if type_.endswith("64") else 4
        mask = np.array([[request["mask"] >> lane & 1 for lane in range(32)]], dtype=bool)
        how = atomics.served(operation, type_, request["by_one"])
        wavefronts, _, reloads = atomics.shared(np.array([request["places"]]) * width, mask, width, how)
        assert (wavefronts - reloads, reloads) == (request["atomic"], request["load"]), request


@pytest.mark.parametrize(
    ("addresses", "sectors", "ideal"),
    [([0] * 32, 32, 1), (range(0, 128, 4), 4, 4), ([0, 0, 4, 4] * 8, 16, 1), ([0, 0, 0, 32] + [64] * 28, 32, 1)],
)
def test_sectors_of_atomics_on_global_memory(addresses: Sequence[int], sectors: int, ideal: int) -> None:
    """An atomic request counts each sector once for each lane that uses the most used word of that sector."""
    assert atomics.sectors(np.array([list(addresses)]), np.ones((1, 32), bool), 4) == (sectors, ideal, 0)
    twice = np.array([list(addresses)] * 2)
    mask = np.array([[True] * 32, [True] + [False] * 31])
    assert atomics.sectors(twice, mask, 4) == (sectors + 1, ideal + 1, 0)


def program(width: int) -> simulator.Program:
    """Return a kernel in which the first `limit` threads load `width` bytes, at a linear address or at one from an
    index array."""
    vector = {1: "u8 %r9", 2: "u16 %h1", 4: "u32 %r9", 8: "v2.u32 {%r9, %r10}", 16: "v4.u32 {%r9, %r10, %r11, %r12}"}[
        width
    ]
    kind, _, rest = vector.partition(" ")
    return simulator.load(f"""{HEAD}.visible .entry k(.param .u64 in, .param .u32 sx, .param .u32 sy, .param .u32 sb,
 .param .u32 off, .param .u32 limit, .param .u64 index)
{{ .reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<20>; .reg .b64 %a<9>;
 mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.x; ld.param.u32 %r4, [sx]; ld.param.u32 %r5, [sy];
 ld.param.u32 %r6, [sb]; ld.param.u32 %r7, [off]; ld.param.u64 %a1, [in]; mad.lo.u32 %r8, %r1, %r4, %r7;
 mad.lo.u32 %r8, %r2, %r5, %r8; mad.lo.u32 %r8, %r3, %r6, %r8; ld.param.u32 %r13, [limit];
 mov.u32 %r14, %ntid.x; mad.lo.u32 %r15, %r2, %r14, %r1; mad.lo.u32 %r15, %r3, 64, %r15;
 setp.ge.u32 %p1, %r15, %r13; @%p1 ret;
 ld.param.u64 %a4, [index]; setp.eq.u64 %p2, %a4, 0; @%p2 bra GO;
 mul.wide.u32 %a5, %r15, 4; add.u64 %a5, %a5, %a4; .loc 1 1 1
 ld.global.u32 %r8, [%a5];
GO:
 mul.wide.u32 %a2, %r8, {width}; add.u64 %a3, %a1, %a2; .loc 1 5 1
 ld.global.{kind} {rest}, [%a3]; ret; }}""")


PROGRAMS: dict[int, simulator.Program] = {}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 40), st.integers(0, 40), st.integers(0, 70), st.integers(0, 9),
    st.sampled_from([(64, 1), (16, 4), (7, 3), (32, 2), (8, 8)]), st.integers(1, 200), st.booleans(),
)  # fmt: skip
def test_sectors_equal_a_count_by_hand(
    width: int, sx: int, sy: int, sb: int, off: int, block: tuple[int, int], limit: int, lookup: bool
) -> None:
    """The sectors of strided, masked, ragged and indexed loads equal a count by hand, whichever shortcut the simulator
    takes."""
    if width not in PROGRAMS:
        PROGRAMS[width] = program(width)
    code = PROGRAMS[width]
    memory = np.zeros(8192 * 16, np.uint8)
    index = np.random.default_rng(sx + 100 * sy).integers(0, 4000, 400).astype(np.uint32)
    threads = block[0] * block[1]
    report = simulator.run(code, "k", 3, (*block, 1), [memory, sx, sy, sb, off, limit, index if lookup else None])
    assert report.hazards == ()
    want = [0, 0, 0]
    for b in range(3):
        for first in range(0, threads, 32):
            lanes = [t for t in range(first, min(first + 32, threads)) if t + 64 * b < limit]
            if not lanes:
                continue
            element = [
                int(index[t + 64 * b]) if lookup else t % block[0] * sx + t // block[0] * sy + b * sb + off
                for t in lanes
            ]
            some, best = brute([place * width for place in element], width)
            want = [want[0] + 1, want[1] + some, want[2] + best]
    found = [access for access in report.accesses if access.line == 5]
    if not want[0]:
        assert not found
        return
    assert (found[0].requests, found[0].sectors, found[0].ideal_sectors) == tuple(want)
    assert found[0].bytes == width


@pytest.mark.parametrize(("pad", "wavefronts"), [(0, 32), (1, 1), (2, 2), (8, 8)])
def test_column_reads_of_a_padded_tile(launch: Callable[..., Any], pad: int, wavefronts: int) -> None:
    """A read of a column of a 32-wide tile has a 32-way bank conflict; padding by one element removes it."""
    source = (
        'extern "C" __global__ void k(float *o, const float *a) { __shared__ float s[32][32 + PAD];\n'
        " int x = threadIdx.x, y = threadIdx.y;\n s[y][x] = a[y * 32 + x];\n"
        " __syncthreads();\n o[y * 32 + x] = s[x][y]; }"
    )
    a, o = np.random.default_rng(0).random((32, 32), dtype=np.float32), np.zeros((32, 32), np.float32)
    report = launch(source.replace("PAD", str(pad)), 1, (32, 32), [o, a])
    assert (o == a.T).all()
    column = next(access for access in report.accesses if access.space == "shared" and access.op == "load")
    assert column[5:10] == (32, None, None, 32 * wavefronts, 32)
    assert column.line == 5


@given(
    size=st.sampled_from([1, 2, 4, 8, 16, 32]),
    places=st.lists(st.integers(0, 40), min_size=32, max_size=32),
    on=st.lists(st.booleans(), min_size=32, max_size=32),
)
def test_warps_count_alike(size: int, places: list[int], on: list[bool]) -> None:
    """Three equal warps have three times the sectors of one warp, also if lanes are inactive."""
    addresses = np.array([places]) * size
    for mask in (np.array([on]), np.ones((1, 32), bool)):
        pieces, ideal, _ = sectors_of(addresses, mask, size)
        assert sectors_of(np.tile(addresses, (3, 1)), np.tile(mask, (3, 1)), size) == (3 * pieces, 3 * ideal, 0)


@pytest.mark.parametrize("count", [0, 1, 7, 1 << 15])
def test_different_integers_are_those_of_numpy(count: int) -> None:
    """values.different() returns each distinct value once, in ascending order, for few and for many values."""
    found = np.random.default_rng(count).integers(-9, 9, (1, count))
    assert values.different(found).tolist() == np.unique(found).tolist()
