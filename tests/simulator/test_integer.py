"""Integer instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from tests.simulator.conftest import Array, evaluate

EDGES = {
    bits: [0, 1, 2, 3, 31, 32, 33, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, (1 << bits) - 2]
    for bits in (16, 32, 64)
}


def numbers(bits: int, count: int, seed: int) -> Array:
    """Return random integers, each with a random number of bits."""
    rng = np.random.default_rng(seed)
    raw = [int(rng.integers(0, 1 << 63)) * 2 + int(rng.integers(2)) for _ in range(count)]
    lengths = rng.integers(1, bits + 1, count)
    values = [value & ((1 << int(length)) - 1) for value, length in zip(raw, lengths, strict=True)]
    return np.array(values, dtype=np.uint64).astype(f"u{bits // 8}")


def pairs(bits: int) -> tuple[Array, Array]:
    """Return operands: all pairs of edges, then random ones."""
    edges = EDGES[bits]
    first = np.array([x for x in edges for _ in edges], dtype=np.uint64).astype(f"u{bits // 8}")
    second = np.array([y for _ in edges for y in edges], dtype=np.uint64).astype(f"u{bits // 8}")
    return np.concatenate([first, numbers(bits, 150, 1)]), np.concatenate([second, numbers(bits, 150, 2)])


def signed(value: int, bits: int) -> int:
    """Return the two's complement value of some bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def read(value: int, type_: str) -> int:
    """Return the bits of an operand as a number of the type."""
    bits = int(type_[1:])
    return signed(value, bits) if type_[0] == "s" else value & ((1 << bits) - 1)


def quotient(x: int, y: int) -> int:
    """Return the quotient as C defines it, and -1 for a divisor of 0."""
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


TWO: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda x, y, bits: x + y,
    "sub": lambda x, y, bits: x - y,
    "mul.lo": lambda x, y, bits: x * y,
    "mul.hi": lambda x, y, bits: (x * y) >> bits,
    "div": lambda x, y, bits: quotient(x, y),
    "rem": lambda x, y, bits: x - quotient(x, y) * y if y else x,
    "min": lambda x, y, bits: min(x, y),
    "max": lambda x, y, bits: max(x, y),
}


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", TWO)
def test_arithmetic_wraps_like_python_ints_modulo_two_to_the_width(name: str, type_: str) -> None:
    """Every two-operand instruction equals the same operation on Python ints."""
    bits = int(type_[1:])
    x, y = pairs(bits)
    hazards = {"undefined-value"} if name in ("div", "rem") and not y.all() else set()
    got = evaluate(f"{name}.{type_} {{d}}, {{0}}, {{1}};", x.dtype, x, y, hazards=hazards)
    want = [
        TWO[name](read(int(a), type_), read(int(b), type_), bits) & ((1 << bits) - 1) for a, b in zip(x, y, strict=True)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("name", ["and", "or", "xor"])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(name: str, bits: int) -> None:
    """and, or and xor equal NumPy's bitwise functions."""
    x, y = pairs(bits)
    ufunc = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    assert (evaluate(f"{name}.b{bits} {{d}}, {{0}}, {{1}};", x.dtype, x, y) == ufunc(x, y)).all()


@pytest.mark.parametrize("type_", ["b16", "b32", "b64"])
def test_shl_gives_zero_beyond_the_width(type_: str) -> None:
    """shl by the width or more gives 0."""
    bits = int(type_[1:])
    x, y = pairs(bits)
    amount = (y % (2 * bits)).astype(np.uint32)
    want = [(int(a) << int(b)) & ((1 << bits) - 1) for a, b in zip(x, amount, strict=True)]
    assert evaluate(f"shl.{type_} {{d}}, {{0}}, {{1}};", x.dtype, x, amount).tolist() == want


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_shr_fills_with_the_sign(type_: str) -> None:
    """shr shifts in the sign, or 0 for unsigned types, also by the width or more."""
    bits = int(type_[1:])
    x, y = pairs(bits)
    amount = (y % (2 * bits)).astype(np.uint32)
    want = [(read(int(a), type_) >> int(b)) & ((1 << bits) - 1) for a, b in zip(x, amount, strict=True)]
    assert evaluate(f"shr.{type_} {{d}}, {{0}}, {{1}};", x.dtype, x, amount).tolist() == want


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_funnel_shift(side: str, mode: str) -> None:
    """shf shifts a pair of registers; .clamp limits the count to 32, .wrap takes it modulo 32."""
    low, high = pairs(32)
    amount = np.arange(low.size, dtype=np.uint32) % 70
    got = evaluate(f"shf.{side}.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}};", np.uint32, low, high, amount)
    for a, b, c, d in zip(low.tolist(), high.tolist(), amount.tolist(), got.tolist(), strict=True):
        steps = min(c, 32) if mode == "clamp" else c & 31
        both = (b << 32) | a
        assert d == (((both << steps) >> 32) if side == "l" else both >> steps) & 0xFFFFFFFF


@pytest.mark.parametrize("form", ["lo", "hi", "wide"])
@pytest.mark.parametrize("type_", ["u32", "s32"])
def test_mad(form: str, type_: str) -> None:
    """mad adds to the low half, to the high half or to the whole product."""
    x, y = pairs(32)
    out = 64 if form == "wide" else 32
    z = numbers(out, x.size, 3)
    got = evaluate(f"mad.{form}.{type_} {{d}}, {{0}}, {{1}}, {{2}};", z.dtype, x, y, z)
    for a, b, c, d in zip(x.tolist(), y.tolist(), z.tolist(), got.tolist(), strict=True):
        product = read(a, type_) * read(b, type_)
        assert d == ((product >> 32 if form == "hi" else product) + c) & ((1 << out) - 1)


def test_carry_chains_add_and_subtract_128_bits() -> None:
    """add.cc / addc.cc and sub.cc / subc carry from word to word."""
    a, b = pairs(64)
    c, d = numbers(64, a.size, 5), numbers(64, a.size, 6)
    for first, second, sign in (("add.cc.u64", "addc.u64", 1), ("sub.cc.u64", "subc.u64", -1)):
        text = f"{first} %t, {{0}}, {{1}}; {second} {{d}}, {{2}}, {{3}};"
        got = evaluate(text, np.uint64, a, b, c, d, declare=".reg .b64 %t;")
        for p, q, r, s, result in zip(a.tolist(), b.tolist(), c.tolist(), d.tolist(), got.tolist(), strict=True):
            assert result == (((p | r << 64) + sign * (q | s << 64)) >> 64) & (2**64 - 1)


@pytest.mark.parametrize(
    ("first", "second", "carries"),
    [
        ("sub.cc.u32", "addc.u32", lambda x, y: x >= y),
        ("add.cc.u32", "subc.u32", lambda x, y: x + y >= 2**32),
    ],
)
def test_carry_and_borrow_share_one_flag(first: str, second: str, carries: Callable[[int, int], bool]) -> None:
    """Additions and subtractions share one carry flag, as in the code of ptxas: a subtraction without a borrow sets
    it."""
    x, y = pairs(32)
    got = evaluate(f"{first} %t, {{0}}, {{1}}; {second} {{d}}, 5, 0;", np.uint32, x, y, declare=".reg .b32 %t;")
    base = 5 if second == "addc.u32" else 4
    assert got.tolist() == [base + carries(p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)]


@pytest.mark.parametrize("type_", ["unsigned __int128", "__int128"])
def test_128_bit_division(launch: Callable[..., Any], type_: str) -> None:
    """Quotients and remainders of 128-bit integers equal those of C."""
    source = f"""extern "C" __global__ void k({type_} *q, {type_} *r, const {type_} *n, const {type_} *d)
{{ int i = blockIdx.x * blockDim.x + threadIdx.x; q[i] = n[i] / d[i]; r[i] = n[i] % d[i]; }}"""
    rng = np.random.default_rng(11)
    count, half = 256, (1 << 64) - 1

    def sized() -> int:
        return int.from_bytes(rng.bytes(16), "little") >> int(rng.integers(0, 128))

    tops = [sized() for _ in range(count - 4)] + [2**128 - 1, 2**127, 0, 7]
    unders = [sized() or 1 for _ in range(count - 4)] + [1, 2**128 - 1, 5, 2**127]

    def words(numbers_: list[int]) -> Array:
        return np.array([part for number in numbers_ for part in (number & half, number >> 64)], np.uint64)

    q, r = np.zeros(2 * count, np.uint64), np.zeros(2 * count, np.uint64)
    launch(source, count // 32, 32, [q, r, words(tops), words(unders)])
    letter = "u128" if type_.startswith("unsigned") else "s128"
    for i, (top, under) in enumerate(zip(tops, unders, strict=True)):
        x, y = read(top, letter), read(under, letter)
        assert int(q[2 * i]) | int(q[2 * i + 1]) << 64 == quotient(x, y) % 2**128
        assert int(r[2 * i]) | int(r[2 * i + 1]) << 64 == (x - quotient(x, y) * y) % 2**128


DPX: dict[str, Callable[[int, int, int], int]] = {
    "__viaddmax_s32_relu": lambda a, b, c: max(a + b, c, 0),
    "__viaddmin_s32_relu": lambda a, b, c: max(min(a + b, c), 0),
    "__vimax3_s32_relu": lambda a, b, c: max(a, b, c, 0),
    "__vimin3_s16x2_relu": lambda a, b, c: max(min(a, b, c), 0),
    "__viaddmax_s16x2_relu": lambda a, b, c: max(a + b, c, 0),
    "__viaddmax_u16x2": lambda a, b, c: max(a + b, c),
    "__vimin3_u32": lambda a, b, c: min(a, b, c),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", DPX)
def test_dynamic_programming_instructions(compiled: Callable[..., Any], name: str, arch: str) -> None:
    """CUDA's DPX functions equal their definition; the operands are small enough that the sums do not overflow."""
    source = (
        'extern "C" __global__ void k(unsigned *o, const unsigned *a, const unsigned *b, const unsigned *c)'
        f"{{ int i = threadIdx.x; o[i] = {name}(a[i], b[i], c[i]); }}"
    )
    bits, signs = (16 if "16x2" in name else 32), "_s" in name
    rng = np.random.default_rng(5)
    low, high = (-(1 << (bits - 2)), 1 << (bits - 2)) if signs else (0, 1 << (bits - 2))
    lanes = rng.integers(low, high, (3, 64, 32 // bits))
    packed = [sum((part[:, k] & ((1 << bits) - 1)) << (bits * k) for k in range(32 // bits)) for part in lanes]
    out = np.zeros(64, np.uint32)
    simulator.run(compiled(source, arch=arch), "k", 1, 64, [out, *(part.astype(np.uint32) for part in packed)])
    for place in range(64):
        for k in range(32 // bits):
            want = DPX[name](*(int(lanes[which, place, k]) for which in range(3)))
            assert read(int(out[place]) >> (bits * k), f"{'s' if signs else 'u'}{bits}") == want


def test_mad_carry_chain_multiplies_64_bits() -> None:
    """mad.lo.cc and madc.hi, which compilers use for a 64-bit product, pass the carry on."""
    x, y = pairs(32)
    z, high = numbers(32, x.size, 8), numbers(32, x.size, 9)
    got = evaluate(
        "mad.lo.cc.u32 %t, {0}, {1}, {2}; madc.hi.u32 {d}, {0}, {1}, {3};",
        np.uint32,
        x,
        y,
        z,
        high,
        declare=".reg .b32 %t;",
    )
    for a, b, c, h, d in zip(x.tolist(), y.tolist(), z.tolist(), high.tolist(), got.tolist(), strict=True):
        assert d == ((a * b + (c | h << 32)) >> 32) & 0xFFFFFFFF


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_bit_fields(type_: str) -> None:
    """bfe extracts a bit field and extends its sign; bfi inserts a bit field."""
    bits = int(type_[1:])
    x, y = pairs(bits)
    rng = np.random.default_rng(4)
    start, length = (rng.integers(0, bits + 8, x.size).astype(np.uint32) for _ in range(2))
    got = evaluate(f"bfe.{type_} {{d}}, {{0}}, {{1}}, {{2}};", x.dtype, x, start, length)
    for a, p, n, d in zip(x.tolist(), start.tolist(), length.tolist(), got.tolist(), strict=True):
        # The pseudocode of PTX ISA 9.7.1.19.
        msb = bits - 1
        sign = 0 if type_[0] == "u" or n == 0 else (a >> min(p + n - 1, msb)) & 1
        want = sum((((a >> (p + i)) & 1) if i < n and p + i <= msb else sign) << i for i in range(bits))
        assert d == want
    if type_[0] == "u":
        got = evaluate(f"bfi.b{bits} {{d}}, {{0}}, {{1}}, {{2}}, {{3}};", x.dtype, x, y, start, length)
        for a, b, p, n, d in zip(x.tolist(), y.tolist(), start.tolist(), length.tolist(), got.tolist(), strict=True):
            want = b
            for i in range(n):
                if p + i < bits:
                    want = (want & ~(1 << (p + i))) | (((a >> i) & 1) << (p + i))
            assert d == want


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts(bits: int) -> None:
    """popc, clz, brev and bfind equal the same functions of Python integers."""
    x, _ = pairs(bits)
    values = x.tolist()
    assert evaluate(f"popc.b{bits} {{d}}, {{0}};", np.uint32, x).tolist() == [bin(v).count("1") for v in values]
    assert evaluate(f"clz.b{bits} {{d}}, {{0}};", np.uint32, x).tolist() == [bits - v.bit_length() for v in values]
    assert evaluate(f"brev.b{bits} {{d}}, {{0}};", x.dtype, x).tolist() == [
        int(f"{v:0{bits}b}"[::-1], 2) for v in values
    ]
    want = [(v.bit_length() - 1) & 0xFFFFFFFF for v in values]
    assert evaluate(f"bfind.u{bits} {{d}}, {{0}};", np.uint32, x).tolist() == want
    flipped = [(~v & ((1 << bits) - 1)) if v >> (bits - 1) else v for v in values]
    want = [(v.bit_length() - 1) & 0xFFFFFFFF for v in flipped]
    assert evaluate(f"bfind.s{bits} {{d}}, {{0}};", np.uint32, x).tolist() == want


@pytest.mark.parametrize("table", [0xE8, 0x96, 0x00, 0xFF, 0xCA, 0x17])
def test_lop3_follows_its_table(table: int) -> None:
    """lop3 looks up each triple of bits in its table."""
    x, y = pairs(32)
    z = numbers(32, x.size, 7)
    got = evaluate(f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table:#x};", np.uint32, x, y, z)
    for a, b, c, d in zip(x.tolist(), y.tolist(), z.tolist(), got.tolist(), strict=True):
        assert d == sum(
            (table >> (((a >> i & 1) << 2) | ((b >> i & 1) << 1) | (c >> i & 1)) & 1) << i for i in range(32)
        )


def test_prmt_picks_bytes() -> None:
    """prmt selects bytes of two registers, or copies of a byte's sign bit."""
    x, y = pairs(32)
    control = numbers(32, x.size, 10)
    got = evaluate("prmt.b32 {d}, {0}, {1}, {2};", np.uint32, x, y, control)
    for a, b, c, d in zip(x.tolist(), y.tolist(), control.tolist(), got.tolist(), strict=True):
        pool = (a | b << 32).to_bytes(8, "little")
        picked = []
        for place in range(4):
            selector = c >> 4 * place & 15
            byte = pool[selector & 7]
            picked.append((255 if byte & 128 else 0) if selector & 8 else byte)
        assert d == int.from_bytes(bytes(picked), "little")


def test_sad_and_dot_products() -> None:
    """sad adds an absolute difference; dp4a and dp2a add products of bytes."""
    x, y = pairs(32)
    z = numbers(32, x.size, 11)
    got = evaluate("sad.s32 {d}, {0}, {1}, {2};", np.uint32, x, y, z)
    assert got.tolist() == [
        (abs(signed(a, 32) - signed(b, 32)) + c) & 0xFFFFFFFF
        for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    got = evaluate("dp4a.s32.u32 {d}, {0}, {1}, {2};", np.uint32, x, y, z)
    for a, b, c, d in zip(x.tolist(), y.tolist(), z.tolist(), got.tolist(), strict=True):
        total = signed(c, 32) + sum(signed(a >> 8 * i, 8) * (b >> 8 * i & 255) for i in range(4))
        assert d == total & 0xFFFFFFFF
    got = evaluate("dp2a.hi.u32.s32 {d}, {0}, {1}, {2};", np.uint32, x, y, z)
    for a, b, c, d in zip(x.tolist(), y.tolist(), z.tolist(), got.tolist(), strict=True):
        total = signed(c, 32) + sum((a >> 16 * i & 0xFFFF) * signed(b >> 8 * (i + 2), 8) for i in range(2))
        assert d == total & 0xFFFFFFFF


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("target", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("sat", ["", ".sat"])
def test_integer_conversions(target: str, source: str, sat: str) -> None:
    """cvt truncates or extends by the source's sign; with .sat it clamps."""
    if sat and target == source:
        return
    bits = max(16, int(source[1:]))
    x, _ = pairs(bits)
    out = int(target[1:])
    got = evaluate(f"cvt{sat}.{target}.{source} {{d}}, {{0}};", f"u{max(16, out) // 8}", x)
    low, high = (-(1 << (out - 1)), (1 << (out - 1)) - 1) if target[0] == "s" else (0, (1 << out) - 1)
    for a, d in zip(x.tolist(), got.tolist(), strict=True):
        value = read(a, source)
        want = max(low, min(high, value)) if sat else read(value, target)
        assert d == want & ((1 << max(16, out)) - 1)


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_arithmetic_on_indices_wraps(type_: str, compiled: Callable[..., object]) -> None:
    """Arithmetic on threadIdx and blockIdx wraps like integer arithmetic."""
    del compiled
    from cudabench.simulator import api as simulator
    from tests.simulator.conftest import HEAD

    bits = int(type_[1:])
    wide = bits == 64
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .{type_} f)
{{ .reg .b32 %r<9>; .reg .b64 %a<9>; .reg .{type_} %v<9>;
 mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 32, %r2;
 {"cvt.u64.u32 %v1, %r3;" if wide else "mov.u32 %v1, %r3;"} ld.param.{type_} %v2, [f];
 mad.lo.{type_} %v3, %v1, %v2, %v2; sub.{type_} %v4, %v3, %v1; shl.b{bits} %v5, %v4, 3; neg.s{bits} %v6, %v5;
 add.{type_} %v6, %v6, 7; ld.param.u64 %a1, [out]; mul.wide.u32 %a2, %r3, {bits // 8}; add.u64 %a1, %a1, %a2;
 st.global.b{bits} [%a1], %v6; ret; }}"""
    program = simulator.load(text)
    for factor in (0, 1, -1, 5, 1 << 28, (1 << (bits - 1)) - 1, -(1 << (bits - 1)), 0x12345678):
        if type_[0] == "u" and factor < 0:
            continue
        out = np.zeros(128, f"u{bits // 8}")
        simulator.run(program, "k", 4, 32, [out, factor])
        want = [(-((i * factor + factor - i) << 3) + 7) & ((1 << bits) - 1) for i in range(128)]
        assert out.tolist() == want


@pytest.mark.parametrize("literal", [-16, -1, 2**63, 2**64 - 16])
def test_64_bit_literals_are_no_addresses(literal: int) -> None:
    """A 64-bit literal with its upper bits set is a number, not the address of a module variable."""
    values = numbers(64, 40, 5)
    got = evaluate(f"and.b64 {{d}}, {{0}}, {literal};", np.uint64, values)
    assert [int(x) for x in got] == [int(x) & literal & (2**64 - 1) for x in values]
