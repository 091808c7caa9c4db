"""Loads and stores give the same bits and counts on the native engine as on the NumPy engine."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.simulator import api
from cudabench.simulator.count import banks, requests
from cudabench.system import native
from tests.engines import Both, both, loaded

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

SHARED_WINDOW, LOCAL_WINDOW = 1 << 37, 1 << 38
TYPES = ["u8", "s8", "u16", "s16", "u32", "s32", "f32", "u64", "f64"]
WIDTHS = {name: int(name[1:]) // 8 for name in TYPES}
BYTES = 4096  # of the array, or of each other memory, that a kernel reads

# Each thread reads its offset from `where`, loads from or stores to that offset, and stores its value to `out`.
KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.const .align 16 .b8 fixed[{bytes}]{content};
.visible .entry k(.param .u64 a, .param .u64 where, .param .u64 out, .param .u32 n)
{{
    .reg .pred %p<4>;
    .reg .b16 %h<9>;
    .reg .b32 %r<20>;
    .reg .b64 %d<40>;
    .shared .align 16 .b8 tile[{bytes}];
    .local .align 16 .b8 depot[64];
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [where];
    ld.param.u64 %d3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    mul.wide.s32 %d4, %r5, 8;
    add.s64 %d5, %d2, %d4;
    mul.wide.s32 %d6, %r5, 32;
    add.s64 %d7, %d3, %d6;
    mul.wide.s32 %d8, %r4, 16;
    add.s64 %d9, %d1, %d8;
    mov.u64 %d20, tile;
    add.s64 %d10, %d20, %d8;
    mov.u64 %d21, depot;
    mov.u64 %d22, fixed;
    mov.u64 %d23, a;
    {before}
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra END;
    ld.global.u64 %d11, [%d5];
    {body}
END:
    ret;
}}
"""
FILL_SHARED = """
    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d9];
    st.shared.v4.u32 [%d10], {%r10, %r11, %r12, %r13};
    bar.sync 0;"""


def kernel(body: str, before: str = "") -> api.Program:
    """Return a program that executes `body`, where %d11 is the thread's offset; `before` comes before the bounds
    check."""
    initial = " = {" + ", ".join(str(place * 7 % 251) for place in range(BYTES)) + "}" if "%d22" in body else ""
    return loaded(KERNEL.format(bytes=BYTES, content=initial, body=body, before=before))


def launch(program: api.Program, where: np.ndarray, block: int, n: int | None = None, grid: int | None = None) -> Both:
    """Run the kernel with an offset for each thread."""
    a = np.random.default_rng(7).integers(0, 256, BYTES, np.uint8)
    count = len(where) if n is None else n
    arguments = [a, where.astype(np.int64), np.zeros(32 * max(len(where), block), np.uint8), count]
    found = both(program, "k", grid or -(-count // block), block, arguments)
    assert not isinstance(found.ran, str), found.ran
    return found


def counted(found: Both, program: api.Program, kernel_name: str = "k") -> None:
    """Assert that both engines give the same bits and the same counts."""
    assert found.same()
    assert not isinstance(found.ran, str)
    assert found.ran.instructions == found.report.instructions
    mine: Counter[Any] = Counter()
    for access, row in zip(program.code(kernel_name).accesses, found.ran.counts, strict=True):
        for name in ("requests", "pieces", "ideal", "merged"):
            mine[access.location.ptx_line, access.space, name] += int(row[name].sum())
    theirs: Counter[Any] = Counter()
    for one in found.report.accesses:
        pieces = one.wavefronts if one.sectors is None else one.sectors
        ideal = one.ideal_wavefronts if one.ideal_sectors is None else one.ideal_sectors
        for name, value in (("requests", one.requests), ("pieces", pieces), ("ideal", ideal), ("merged", one.merged)):
            theirs[one.instruction, one.space, name] += value
    assert +mine == +theirs


def registers(type_: str, count: int, wide: int = 0) -> str:
    """Return a vector operand for elements of a type; wide: the bits of its registers, if they are wider than the
    type."""
    width = wide or max(16, int(type_[1:]))
    names = [f"%{'h' if width == 16 else 'r' if width == 32 else 'd'}{place}" for place in range(1, 9)]
    shift = {16: 0, 32: 9, 64: 29}[width]
    named = [f"{name[:2]}{int(name[2:]) + shift}" for name in names[:count]]
    return named[0] if count == 1 else "{" + ", ".join(named) + "}"


def places(kind: str, size: int, count: int, room: int = BYTES) -> np.ndarray:
    """Return the offset of each thread, in bytes."""
    lanes, most = np.arange(count), room // size
    draw = np.random.default_rng(size + count)
    index = {
        "neighbours": lanes, "same": 0 * lanes + 3, "strided": 3 * lanes, "backwards": -lanes - 1,
        "random": draw.integers(0, most, count), "pairs": lanes // 2, "shuffled": lanes ^ 5,
        "rows": lanes % 8 + lanes // 8 * 24,
    }[kind]  # fmt: skip
    return index % most * size


KINDS = ["neighbours", "same", "strided", "backwards", "random", "pairs", "shuffled", "rows"]
FORMS = [(type_, count) for type_ in TYPES for count in (1, 2, 4) if WIDTHS[type_] * count <= 32]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}x{form[1]}")
@pytest.mark.parametrize("space", ["global", "shared", "local", "const", "param"])
def test_loads_of_all_widths(form: tuple[str, int], space: str) -> None:
    """A load of each type and vector from each memory gives the bits and the cost of the NumPy engine."""
    type_, count = form
    size = WIDTHS[type_] * count
    if size > 16 and space in ("shared", "param"):
        return
    vector = f".v{count}" if count > 1 else ""
    base = {"global": "%d1", "shared": "%d20", "local": "%d21", "const": "%d22", "param": "%d23"}[space]
    before = FILL_SHARED if space == "shared" else ""
    body = f"add.s64 %d12, {base}, %d11;\n"
    if space == "local":
        body += "".join(f"st.local.u64 [%d21+{at}], %d1{at % 2};\n" for at in range(0, 64, 8))
    got = registers(type_, count)
    body += f"ld.{space}{vector}.{type_} {got}, [%d12];\nst.global{vector}.{type_} [%d7], {got};"
    program = kernel(body, before)
    for kind in KINDS:
        room = {"local": 64, "param": 16}.get(space, BYTES)
        for block, threads in ((256, 256), (48, 96), (64, 37)):
            if space == "shared" and block < 256:
                continue
            counted(launch(program, places(kind, size, threads, room), block), program)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}x{form[1]}")
@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_stores_of_all_widths(form: tuple[str, int], space: str) -> None:
    """A store of each type and vector to each memory gives the bits and the cost of the NumPy engine."""
    type_, count = form
    size = WIDTHS[type_] * count
    if size > 16 and space == "shared":
        return
    vector = f".v{count}" if count > 1 else ""
    base = {"global": "%d3", "shared": "%d20", "local": "%d21"}[space]
    data = registers(type_, count)
    body = f"ld.global{vector}.{type_} {data}, [%d1+64];\nadd.s64 %d12, {base}, %d11;\n"
    body += f"st.{space}{vector}.{type_} [%d12], {data};\n"
    if space != "global":
        body += f"ld.{space}{vector}.{type_} {data}, [%d12];\nst.global{vector}.{type_} [%d7], {data};"
    program = kernel(body, FILL_SHARED if space == "shared" else "")
    for kind in ("neighbours", "backwards", "shuffled", "strided"):
        threads = 256 if size * 256 <= BYTES else 128
        room = {"local": 64, "shared": BYTES}.get(space, 32 * 256)
        counted(launch(program, places(kind, size, threads, room), 256), program)


@pytest.mark.parametrize("type_", ["u8", "s8", "u16", "s16", "u32", "s32"])
@pytest.mark.parametrize("wide", [16, 32, 64])
def test_registers_wider_than_what_they_take(type_: str, wide: int) -> None:
    """A load into a wider register extends with zeros or the sign; a store takes the low bits of a wider register."""
    if wide < int(type_[1:]):
        return
    got = registers(type_, 2, wide)
    body = f"add.s64 %d12, %d1, %d11;\nld.global.v2.{type_} {got}, [%d12];\nst.global.v2.b{wide} [%d7], {got};\n"
    program = kernel(body + f"st.global.v2.{type_} [%d7+16], {got};")
    counted(launch(program, places("random", 2 * WIDTHS[type_], 70), 64), program)


@pytest.mark.parametrize("threads", [1, 31, 40, 56])
def test_generic_addresses_of_several_memories(threads: int) -> None:
    """Generic addresses agree if lanes of one warp access shared, local, global and parameter memory."""
    body = f"""
    st.local.u64 [%d21], %d4;
    st.local.u64 [%d21+8], %d6;
    add.s64 %d12, %d20, {SHARED_WINDOW};
    add.s64 %d13, %d21, {LOCAL_WINDOW};
    mov.u64 %d14, %d1;
    setp.lt.s32 %p2, %r4, 9;
    @%p2 mov.u64 %d14, %d12;
    setp.ge.s32 %p3, %r4, 23;
    @%p3 mov.u64 %d14, %d13;
    setp.ge.s32 %p3, %r4, 41;
    add.s64 %d15, %d12, 64;
    @%p3 mov.u64 %d14, %d15;
    add.s64 %d14, %d14, %d11;
    ld.u32 %r15, [%d14];
    st.u32 [%d14], %r15;
    ld.u32 %r16, [%d23];
    st.global.v2.u32 [%d7], {{%r15, %r16}};"""
    program = kernel(body, FILL_SHARED)
    found = launch(program, places("neighbours", 4, 256, 64), 256, threads, 1)
    counted(found, program)


def test_lanes_that_go_to_two_arrays() -> None:
    """A request whose lanes access several arrays counts once."""
    body = """
    mov.u64 %d14, %d1;
    setp.lt.s32 %p2, %r4, 9;
    @%p2 mov.u64 %d14, %d2;
    add.s64 %d14, %d14, %d11;
    ld.global.u32 %r15, [%d14];
    st.global.u32 [%d7], %r15;"""
    program = kernel(body)
    counted(launch(program, places("neighbours", 4, 100), 64), program)


def test_short_addresses_of_shared_memory() -> None:
    """A 32-bit shared address is signed when the engines add its offset."""
    body = """
    mad.lo.s32 %r15, %r4, -4, -200;
    ld.shared.u32 %r16, [%r15+1224];
    st.shared.u32 [%r15+1224], %r16;
    st.global.u32 [%d7], %r16;"""
    program = kernel(body, FILL_SHARED)
    counted(launch(program, np.arange(256), 256), program)


COPIES = """
extern "C" __global__ void copies(const char *in, char *out, int n, int padded)
{
    __shared__ __align__(16) char tile[2][64 * 48];
    unsigned at = (unsigned)__cvta_generic_to_shared(&tile[0][threadIdx.x * (padded ? 48 : 16)]);
    for (int step = 0; step < 2; step++) {
        int place = (step * 64 + threadIdx.x) * SIZE, bytes = place < n ? SIZE : 0;
        asm volatile("cp.async.WAY.shared.global [%0], [%1], SIZE, %2;"
                     ::"r"(at + step * 64 * 48), "l"(in + place), "r"(bytes));
        asm volatile("cp.async.commit_group;");
    }
    asm volatile("cp.async.wait_group WAIT;");
    MEET
    const char *mine = tile[WHICH] + (threadIdx.x ^ OTHER) * (padded ? 48 : 16);
    for (int byte = 0; byte < SIZE; byte++) out[threadIdx.x * SIZE + byte] = mine[byte];
}
"""


def copies(
    size: int = 16, wait: int = 0, which: int = 1, other: int = 1, meet: str = "__syncthreads();"
) -> api.Program:
    """Return a program with two asynchronous copies, one of which it reads."""
    words = {
        "SIZE": size,
        "WAIT": wait,
        "WHICH": which,
        "OTHER": other,
        "MEET": meet,
        "WAY": "cg" if size == 16 else "ca",
    }
    source = COPIES
    for name, value in words.items():
        source = source.replace(name, str(value))
    return loaded(source)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("padded", [0, 1])
@pytest.mark.parametrize("whole", [64, 128, 37])
def test_asynchronous_copies(size: int, padded: int, whole: int) -> None:
    """Asynchronous copies with a wait, some of which read no bytes, have the bits and counts of the NumPy engine."""
    program = copies(size)
    given = np.random.default_rng(1).integers(0, 256, 128 * size, np.uint8)
    found = both(program, "copies", 1, 64, [given, np.zeros(64 * size, np.uint8), whole * size, padded])
    assert not isinstance(found.ran, str), found.ran
    counted(found, program, "copies")


@pytest.mark.parametrize(
    "fault", [{"wait": 1}, {"meet": ""}, {"wait": 1, "other": 0}, {"wait": 2, "which": 0, "other": 0}], ids=str
)
def test_asynchronous_copies_that_are_read_too_soon(fault: dict[str, Any]) -> None:
    """A read of a copy that is not complete, or for which only another thread waited, stops the native engine."""
    found = both(copies(**fault), "copies", 1, 64, [np.zeros(2048, np.uint8), np.zeros(1024, np.uint8), 2048, 0])
    assert isinstance(found.ran, str)
    assert found.report.hazards


def test_the_first_of_two_copies_may_be_read_while_the_second_is_under_way() -> None:
    """After wait_group 1 a kernel may read all copies but the latest."""
    found = both(
        copies(wait=1, which=0), "copies", 1, 64, [np.zeros(2048, np.uint8), np.zeros(1024, np.uint8), 2048, 0]
    )
    assert not isinstance(found.ran, str), found.ran
    assert not found.report.hazards


@pytest.mark.parametrize("issued", [(0, 16), (4, 8), (0, 0)])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_requests_as_the_machine_code_has_them(space: str, issued: tuple[int, int]) -> None:
    """An access that the machine code merges or widens counts as in the machine code."""
    base = {"global": "%d1", "shared": "%d20"}[space]
    body = f"add.s64 %d12, {base}, %d11;\nld.{space}.u32 %r15, [%d12];\nst.global.u32 [%d7], %r15;"
    program = kernel(body, FILL_SHARED if space == "shared" else "")
    line = next(a.location.ptx_line for a in program.code("k").accesses[::-1] if a.kind == "load")
    a = np.zeros(BYTES + 16, np.uint8)
    arguments = [a, places("strided", 16, 250), np.zeros(32 * 256, np.uint8), 250]
    found = both(program, "k", 1, 256, arguments, merged={line: issued})
    assert not isinstance(found.ran, str), found.ran
    if issued[1]:
        counted(found, program)
    else:
        assert found.ran.counts["merged"].sum() == 8


def test_eight_elements_a_lane() -> None:
    """Vectors of eight words per lane give the bits and counts of the NumPy engine."""
    data = registers("u32", 8)
    body = f"add.s64 %d12, %d1, %d11;\nld.global.v8.b32 {data}, [%d12];\nst.global.v8.b32 [%d7], {data};"
    program = kernel(body)
    counted(launch(program, places("shuffled", 32, 128), 64), program)


LADDER = """
extern "C" __global__ void rows(const float *a, const int *where, float *out, int n)
{
    __shared__ float tile[16][17];
    int x = threadIdx.x, y = threadIdx.y, i = blockIdx.x * 16 + y, j = blockIdx.y * 16 + x;
    float sum = 0;
    tile[x][y] = i < n && j < n ? a[i * n + j] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += tile[k][x] * a[k * n];
    for (int k = 0; k < n; k += 7) sum += a[j % n * n + k];
    if (i < n && j < n) out[j * n + i] = sum + a[where[i * n + j]];
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_what_lanes_did(threads: int) -> None:
    """Patterns, first addresses and steps of the main pattern are those of the NumPy engine, and the counts of patterns
    add up."""
    n, draw = 50, np.random.default_rng(3)
    a, where = draw.random(n * n).astype(np.float32), draw.integers(0, n * n, n * n, np.int32)
    found = both(loaded(LADDER), "rows", (4, 4), (16, 16), [a, where, np.zeros(n * n, np.float32), n], threads=threads)
    assert found.told is not None, found.ran
    assert found.same()
    for mine, theirs in zip(found.told.accesses, found.report.accesses, strict=True):
        for name in ("kind", "stride", "run", "jump", "lanes"):
            assert getattr(mine.patterns[0].pattern, name) == getattr(theirs.patterns[0].pattern, name), theirs
        assert mine.step == theirs.step
        assert mine.patterns[0].pattern.axes == (theirs.patterns[0].pattern.axes or mine.patterns[0].pattern.axes)
        assert sum(one.requests for one in mine.patterns) == mine.requests == theirs.requests
        assert sum(one.pieces for one in mine.patterns) == (mine.wavefronts if mine.sectors is None else mine.sectors)
        if mine.space == "global":
            assert mine.first == theirs.first


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r15, [%d1+4096];", "ld.global.u32 %r15, [%d1+2];", "st.shared.u32 [%d20+4096], %r1;",
        "ld.global.u32 %r15, [0];", "ld.local.u64 %d12, [%d21+60];", "ld.shared.u32 %r15, [%d20+-4];",
        "st.const.u32 [%d22], %r1;", "ld.volatile.global.u32 %r15, [%d1];", "ld.param.u32 %r15, [%d23+40];",
    ],
)  # fmt: skip
def test_what_is_not_clean_is_left_to_the_numpy_engine(body: str) -> None:
    """A faulty address or an ordered access stops the native engine, which restores memory."""
    body = body.replace("ld.param.u32 %r15, [%d23+40]", "add.s64 %d24, %d23, %d8; ld.param.u32 %r15, [%d24+40]")
    program = kernel("st.global.u32 [%d7], 7;\n" + body)
    a = np.zeros(BYTES, np.uint8)
    arguments = [a, np.zeros(64, np.int64), np.zeros(64 * 32, np.uint8), 64]
    try:
        found = both(program, "k", 2, 32, arguments)
    except Exception:
        return  # the NumPy engine raises its own error
    assert isinstance(found.ran, str)
    assert not found.native[2].any()


@st.composite
def _requests(draw: Any, room: int) -> tuple[np.ndarray, np.ndarray, int]:
    size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    most = draw(st.sampled_from([1, 4, 40, room // size]))
    form = draw(st.sampled_from(["any", "steps", "pairs"]))
    index = np.array(draw(st.lists(st.integers(0, most - 1), min_size=32, max_size=32)))
    if form == "steps":
        index = index[0] + np.arange(32) * draw(st.integers(-9, 40))
        index = index - index.min()
    elif form == "pairs":
        index = index[np.arange(32) // 2 * 2]
    return index % (room // size) * size, np.array(draw(_masks)), size


_masks = st.one_of(
    st.just([True] * 32), st.lists(st.booleans(), min_size=32, max_size=32).filter(any),
    st.integers(1, 32).map(lambda count: [lane < count for lane in range(32)]),
)  # fmt: skip


def _cost(address: np.ndarray, mask: np.ndarray, size: int, what: int) -> tuple[int, int]:
    found = (ctypes.c_int64 * 2)()
    address, bits = address.astype(np.int64), sum(1 << lane for lane in range(32) if mask[lane])
    native.library().cudabench_cost(
        ctypes.c_void_p(address.ctypes.data), ctypes.c_uint32(bits), ctypes.c_int64(size), what, found
    )
    return found[0], found[1]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(_requests(1 << 16), st.integers(0, 2))
def test_any_request_costs_what_the_numpy_engine_says(request: Any, what: int) -> None:
    """Sectors, wavefronts and their ideal counts agree for random addresses and lanes."""
    address, mask, size = request
    if what:
        expected = [int(one) for one in banks.both(address, size, mask, load=what == 1)]
    else:
        expected = [*requests.sectors(address.reshape(1, 32), mask.reshape(1, 32), size)[:2]]
    assert [*_cost(address, mask, size, what)] == expected
