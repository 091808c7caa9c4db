"""Compare random kernels with defined results on a GPU and in the simulator, bit by bit.

    python benchmarks/random_kernels.py generate 2000 --folder build/random     # anywhere; takes minutes
    python benchmarks/random_kernels.py check --folder build/random             # on a GPU; names what differs
    python benchmarks/random_kernels.py explain --folder build/random           # anywhere; the statements at fault

Every kernel is a function of its seed alone. `generate` computes kernels in the simulator and writes expected.npz, 8
bytes per kernel: a digest of its outputs. `check` generates the same kernels again, compiles them for the installed
GPU, launches them, and keeps the outputs of those that differ (differing.npz, 4 KB each); `explain` compares those with
the simulator's outputs and prints the variables that differ and the statement of the first.

A kernel mixes integers of 8 to 128 bits, floats, doubles and halves with all roundings, conversions, shuffles, votes,
shared memory, atomics, loops, switches, branches and local arrays. Its results are defined: shifts stay in range,
divisors are not zero, signed products do not overflow (`__mul24` too), atomics commute, all lanes reach each warp-wide
function, the compiler cannot fuse the products and sums, and a NaN counts as one value whose sign is not used
(docs/simulator.md: what PTX leaves open).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.compile.compiler import compile_cubin, compile_ptx
from cudabench.simulator import api as simulator

KERNELS_A_FILE = 25
BLOCKS, THREADS, WORDS = 2, 64, 4
INPUTS = 16  # number of 64-bit words that each thread reads
MULTIPLIER = 0x9E3779B97F4A7C15
Array = np.ndarray[Any, Any]

HEAD = """#include <cuda_fp16.h>
#include <cuda_bf16.h>

typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned u32; typedef long long i64; typedef unsigned long long u64;
typedef __int128 i128; typedef unsigned __int128 u128; typedef __half f16; typedef __nv_bfloat16 b16;

__device__ u64 bits(u64 x) { return x; }
__device__ u64 bits(i64 x) { return x; }
__device__ u64 bits(u32 x) { return x; }
__device__ u64 bits(i32 x) { return (u32)x; }
__device__ u64 bits(u16 x) { return x; }
__device__ u64 bits(i16 x) { return (u16)x; }
__device__ u64 bits(u8 x) { return x; }
__device__ u64 bits(i8 x) { return (u8)x; }
__device__ u64 bits(u128 x) { return (u64)x * 31 + (u64)(x >> 64); }
__device__ u64 bits(i128 x) { return bits((u128)x); }
__device__ u64 bits(float x) { return isnan(x) ? 7 : __float_as_uint(x); }
__device__ u64 bits(double x) { return isnan(x) ? 7 : __double_as_longlong(x); }
__device__ u64 bits(f16 x) { return __hisnan(x) ? 7 : __half_as_ushort(x); }
__device__ u64 bits(b16 x) { return __hisnan(x) ? 7 : __bfloat16_as_ushort(x); }
"""

UNSIGNED = ("u8", "u16", "u32", "u64", "u128")
SIGNED = ("i8", "i16", "i32", "i64", "i128")
INTEGERS = UNSIGNED + SIGNED
FLOATS = ("f32", "f64", "f16", "b16")
C = {"f32": "float", "f64": "double"}
BITS = {name: int(name[1:]) for name in INTEGERS}
ROUNDINGS = ("rn", "rz", "ru", "rd")


class Writer:
    """Writes one kernel: each statement computes a new variable from older variables."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.variables: dict[str, list[str]] = {type_: [] for type_ in (*INTEGERS, *FLOATS)}
        self.count = 0
        self.depth = 1

    # Choices

    def pick(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return choices[int(self.random.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        """Return a number of low <= x < high."""
        return int(self.random.integers(low, high))

    def any(self, type_: str) -> str:
        """Return a variable of a type; recent variables are returned more often."""
        names = self.variables[type_]
        return names[max(self.number(0, len(names)), self.number(0, len(names)))]

    def add(self, text: str) -> None:
        """Write a line."""
        self.lines.append("    " * self.depth + text)

    def let(self, type_: str, value: str) -> str:
        """Declare a variable with a value and return its name."""
        self.count += 1
        name = f"v{self.count}"
        self.add(f"{C.get(type_, type_)} {name} = {value};")
        self.variables[type_].append(name)
        return name

    # The kernel

    def kernel(self, name: str) -> str:
        """Return the text of a kernel."""
        self.add("const u32 t = threadIdx.x, at = blockIdx.x * blockDim.x + t;")
        self.add(f"const u64 *x = in + at * {INPUTS};")
        for place, type_ in enumerate(("u64", "u64", "u32", "u32", "u16", "u8")):
            self.let(type_, f"({type_})x[{place}]")
        self.let("u128", "(u128)x[6] << 64 | x[7]")
        self.let("u128", "(u128)(x[6] >> 40) << 3 | x[8] & 0xff")
        for type_ in SIGNED:
            self.let(type_, f"({type_}){self.any('u' + type_[1:])}")
        self.let("f32", "__uint_as_float((u32)x[9])")
        self.let("f32", "__uint2float_rn((u32)x[10]) * 0.0078125f")
        self.let("f64", "__longlong_as_double(x[11])")
        self.let("f64", "__ll2double_rn((i64)x[12]) * 0.000030517578125")
        self.let("f16", "__ushort_as_half((u16)x[13])")
        self.let("b16", "__ushort_as_bfloat16((u16)x[14])")
        self.let("f16", "__float2half_rn((float)(i8)x[15])")
        self.let("b16", "__float2bfloat16_rn((float)(i8)x[15])")
        for _ in range(self.number(14, 30)):
            self.pick(*COLLECTIVE, *PLAIN, *PLAIN, *PLAIN)(self)
        sums: list[list[str]] = [[] for _ in range(WORDS)]
        every = [name for names in self.variables.values() for name in names]
        for place, variable in enumerate(every):
            sums[place % WORDS].append(variable)
        for word, names in enumerate(sums):
            self.add(f"u64 s{word} = 0;")
            for variable in names:
                self.add(f"s{word} = s{word} * {MULTIPLIER:#x}ull + bits({variable});")
            self.add(f"out[at * {WORDS} + {word}] = s{word};")
        head = f'extern "C" __global__ void {name}(const u64 *in, u64 *out)\n{{\n'
        return head + "    __shared__ u64 tile[64];\n    __shared__ u32 cells[8];\n" + "\n".join(self.lines) + "\n}\n"


# Statements of one lane ----------------------------------------------------------------------------------------------


def arithmetic(w: Writer) -> None:
    """Sums, products, logic operations and shifts of integers, which wrap around."""
    type_ = w.pick(*INTEGERS)
    u, n = "u" + type_[1:], BITS[type_]
    x, y, z = w.any(type_), w.any(type_), w.any("u32")
    amount = f"({z} & {n - 1})"
    value = w.pick(
        f"({u}){x} + ({u}){y}", f"({u}){x} - ({u}){y}", f"(u128)({u}){x} * ({u}){y}", f"{x} & {y}", f"{x} | ~{y}",
        f"{x} ^ {y}", f"({u})(({u}){x} << {amount})", f"{x} >> {amount}", f"({u})0 - ({u}){x}",
    )  # fmt: skip
    w.let(type_, f"({type_})({value})")


def division(w: Writer) -> None:
    """Quotients and remainders of integers, with a positive divisor."""
    type_ = w.pick(*INTEGERS)
    half = (1 << (BITS[type_] - 1)) - 1
    mask = w.pick("~0ull", hex(min(half, 2**63 - 1)), "0xff") if type_[0] == "u" else hex(min(half, 2**63 - 1))
    w.let(type_, f"({type_})({w.any(type_)} {w.pick('/', '%')} ({type_})(({w.any(type_)} & ({type_}){mask}) | 1))")


def choice(w: Writer) -> None:
    """Comparisons and selections between two values."""
    type_ = w.pick(*INTEGERS, "f32", "f64")
    x, y, operator = w.any(type_), w.any(type_), w.pick("<", "<=", ">", ">=", "==", "!=")
    other = w.pick(*INTEGERS, *FLOATS)
    w.let(other, f"{x} {operator} {y} ? {w.any(other)} : {w.any(other)}")


def resize(w: Writer) -> None:
    """Conversions between integer types."""
    into = w.pick(*INTEGERS)
    w.let(into, f"({into}){w.any(w.pick(*INTEGERS))}")


def bit_functions(w: Writer) -> None:
    """Expressions with bit functions (__popc, __clz ...), high halves of products (__mulhi), and sums of bytes (__dp4a
    ...)."""
    x, y, z = (w.any("u32") for _ in range(3))
    p, q = w.any("u64"), w.any("u64")
    i, j, k = (w.any("i32") for _ in range(3))
    type_, value = w.pick(
        ("i32", f"__clz({i})"), ("i32", f"__clzll({p})"), ("i32", f"__ffs({i})"), ("i32", f"__ffsll({p})"),
        ("i32", f"__popc({x})"), ("i32", f"__popcll({p})"), ("u32", f"__brev({x})"), ("u64", f"__brevll({p})"),
        ("u32", f"__byte_perm({x}, {y}, {z} & 0x7777)"), ("u32", f"__funnelshift_l({x}, {y}, {z})"),
        ("u32", f"__funnelshift_rc({x}, {y}, {z})"), ("u32", f"__funnelshift_r({x}, {y}, {z})"),
        ("u32", f"__funnelshift_lc({x}, {y}, {z})"), ("i32", f"__mulhi({i}, {j})"), ("u32", f"__umulhi({x}, {y})"),
        ("i64", f"__mul64hi((i64){p}, (i64){q})"), ("u64", f"__umul64hi({p}, {q})"), ("u32", f"__usad({x}, {y}, {z})"),
        ("i32", f"__dp4a({i}, {j}, {k} & 0xffff)"), ("u32", f"__dp4a({x}, {y}, {z} & 0xffff)"),
        ("u32", f"__sad({i} >> 2, {j} >> 2, {z})"), ("u32", f"__umul24({x}, {y})"),
        ("i32", f"__mul24({i} & 0xff007fff, {j} & 0xff007fff)"),
        ("i32", f"__vimax3_s32({i}, {j}, {k})"), ("i32", f"__vimin3_s32_relu({i}, {j}, {k})"),
        ("u32", f"__vimax3_u16x2({x}, {y}, {z})"), ("u32", f"__vimin3_s16x2_relu({x}, {y}, {z})"),
        ("i32", f"__hadd({i}, {j})"), ("u32", f"__urhadd({x}, {y})"), ("i32", f"min({i}, {j})"),
        ("u64", f"max({p}, {q})"), ("u32", f"__fns({x}, {y} & 31, 1 + ({z} & 3))"),
    )  # fmt: skip
    w.let(type_, value)


def floating(w: Writer) -> None:
    """Arithmetic of floats and doubles with every rounding, in forms that the compiler cannot fuse."""
    letter, type_ = w.pick(("f", "f32"), ("d", "f64"))
    x, y, z = (w.any(type_) for _ in range(3))
    r, s = w.pick(*ROUNDINGS), "f" if letter == "f" else ""
    fused = f"__fma{'f' if s else ''}_{r}({x}, {y}, {z})"
    sign = f"copysign{s}({x}, isnan({y}) ? {x} : {y})"
    w.let(
        type_,
        w.pick(
            f"__{letter}add_{r}({x}, {y})", f"__{letter}sub_{r}({x}, {y})", f"__{letter}mul_{r}({x}, {y})",
            fused, f"__{letter}div_{r}({x}, {y})", f"__{letter}sqrt_{r}(fabs{s}({x}))", f"__{letter}rcp_{r}({x})",
            f"fmin{s}({x}, {y})", f"fmax{s}({x}, {y})", sign, f"floor{s}({x})", f"ceil{s}({x})",
            f"trunc{s}({x})", f"rint{s}({x})", f"-{x}", f"fabs{s}({x})",
        ),
    )  # fmt: skip


def halves(w: Writer) -> None:
    """Arithmetic of halves, alone and in pairs, in forms that the compiler cannot fuse."""
    type_ = w.pick("f16", "b16")
    pair, back = ("__half2", "__halves2half2") if type_ == "f16" else ("__nv_bfloat162", "__halves2bfloat162")
    x, y, z = (w.any(type_) for _ in range(3))
    if w.number(0, 3):
        w.let(
            type_,
            w.pick(
                f"__hadd_rn({x}, {y})", f"__hsub_rn({x}, {y})", f"__hmul_rn({x}, {y})", f"__hfma({x}, {y}, {z})",
                f"__hfma_relu({x}, {y}, {z})", f"__hneg({x})", f"__habs({x})", f"__hmin({x}, {y})",
                f"__hmax({x}, {y})", f"__hmax_nan({x}, {y})", f"__hlt({x}, {y}) ? {z} : {x}",
                f"__hgeu({x}, {y}) ? {z} : {y}",
            ),
        )  # fmt: skip
        return
    name = w.pick("__hadd2_rn", "__hsub2_rn", "__hmul2_rn", "__hmin2", "__hmax2")
    w.count += 1
    w.add(f"{pair} v{w.count} = {name}({back}({x}, {y}), {back}({z}, {x}));")
    w.let(type_, f"{w.pick('__low2', '__high2')}{'half' if type_ == 'f16' else 'bfloat16'}(v{w.count})")


def conversion(w: Writer) -> None:
    """Conversions between integers and floats with every rounding; values out of range are clamped."""
    words = {"i32": "int", "u32": "uint", "i64": "ll", "u64": "ull", "i16": "short", "u16": "ushort"}
    floats = {"f32": "float", "f64": "double", "f16": "half", "b16": "bfloat16"}
    r = w.pick(*ROUNDINGS)
    wide = w.pick("i32", "u32", "i64", "u64")
    kind = w.number(0, 5)
    if kind == 0:
        type_ = w.pick(*FLOATS)
        into = w.pick(*words) if type_ in ("f16", "b16") else wide
        w.let(into, f"__{floats[type_]}2{words[into]}_{r}({w.any(type_)})")
    elif kind == 1:
        type_ = w.pick("f32", "f16", "b16")
        source = w.pick(*words) if type_ != "f32" else wide
        w.let(type_, f"__{words[source]}2{floats[type_]}_{r}({w.any(source)})")
    elif kind == 2:
        source = w.pick("i64", "u64")
        w.let("f64", f"__{words[source]}2double_{r}({w.any(source)})")
    elif kind == 3:
        type_, source = w.pick(("f32", "f64"), ("f16", "f32"), ("b16", "f32"))
        w.let(type_, f"__{floats[source]}2{floats[type_]}_{r}({w.any(source)})")
    else:
        type_, source = w.pick(("f64", "f32"), ("f32", "f16"), ("f32", "b16"))
        call = f"({C[type_]}){w.any(source)}" if source == "f32" else f"__{floats[source]}2float({w.any(source)})"
        w.let(type_, call)


SIMPLE = (arithmetic, division, choice, resize, bit_functions, floating, halves, conversion)


# Statements with other statements inside -----------------------------------------------------------------------------


def inside(w: Writer, targets: dict[str, str], statements: int) -> None:
    """Write statements in braces, and assign values of the variables declared there to the targets (variable names
    keyed by type)."""
    before = {type_: list(names) for type_, names in w.variables.items()}
    w.depth += 1
    for _ in range(statements):
        w.pick(*SIMPLE)(w)
    for type_, name in targets.items():
        operator = "" if type_ in FLOATS else w.pick("", "^", "+", "|")
        value = w.any(type_)
        w.add(f"{name} = {value};" if not operator else f"{name} = ({type_})({name} {operator} {value});")
    w.depth -= 1
    w.variables = before


def results(w: Writer) -> dict[str, str]:
    """Declare the variables that a branch or a loop may change."""
    types = dict.fromkeys(w.pick(*INTEGERS, *FLOATS) for _ in range(2))
    return {type_: w.let(type_, w.any(type_)) for type_ in types if type_ not in ("i128", "i64", "i32", "i16", "i8")}


def branch(w: Writer) -> None:
    """An if statement with an else, whose condition differs by lane."""
    targets = results(w)
    w.add(f"if ({w.any('u32')} & {w.pick(1, 3, 16)}) {{")
    inside(w, targets, w.number(1, 4))
    if w.number(0, 2):
        w.add("} else {")
        inside(w, targets, w.number(1, 3))
    w.add("}")


def switch(w: Writer) -> None:
    """A switch with up to six cases, some of which fall through."""
    targets = results(w)
    ways = w.number(2, 7)
    w.add(f"switch ({w.any('u32')} % {ways}u) {{")
    for way in range(ways - 1):
        w.add(f"case {way}: {{")
        inside(w, targets, w.number(1, 3))
        w.add("}" if w.number(0, 4) == 0 else "} break;")
    w.add("default: {")
    inside(w, targets, 1)
    w.add("} }")


def loop(w: Writer) -> None:
    """A loop whose number of iterations differs by lane, and which may break early."""
    targets = results(w)
    w.count += 1
    counter = f"turn{w.count}"
    w.add(w.pick("", "#pragma unroll 1", "#pragma unroll 2"))
    w.add(f"for (u32 {counter} = 0; {counter} < ({w.any('u32')} & 7); {counter}++) {{")
    inside(w, targets, w.number(1, 4))
    if w.number(0, 2) and targets:
        name = next(iter(targets.values()))
        w.add(f"    if (bits({name}) % {w.number(3, 9)} == {counter}) break;")
    w.add("}")


def local_array(w: Writer) -> None:
    """A local array with indices that the compiler does not know."""
    type_ = w.pick("u8", "u16", "u32", "u64")
    w.count += 1
    name = f"q{w.count}"
    w.add(f"{type_} {name}[8];")
    w.add(f"for (u32 i = 0; i < 8; i++) {name}[i] = ({type_})({w.any(type_)} * (i + 1) ^ {w.any('u32')});")
    w.add(f"{name}[{w.any('u32')} & 7] += {w.any(type_)};")
    w.let(type_, f"{name}[{w.any('u32')} & 7] ^ {name}[{w.number(0, 8)}]")


# Statements of a warp or a block -------------------------------------------------------------------------------------


def shuffle(w: Writer) -> None:
    """Shuffles of all kinds and widths."""
    type_ = w.pick("u32", "i32", "u64", "f32", "f64")
    x, width = w.any(type_), w.pick(32, 32, 16, 8, 4)
    w.let(
        type_,
        w.pick(
            f"__shfl_sync(~0u, {x}, {w.any('u32')} & 31, {width})", f"__shfl_xor_sync(~0u, {x}, {w.number(1, width)})",
            f"__shfl_up_sync(~0u, {x}, {w.number(1, width)}, {width})",
            f"__shfl_down_sync(~0u, {x}, {w.number(1, width)}, {width})",
        ),
    )  # fmt: skip


def vote(w: Writer) -> None:
    """Votes, matches and reductions over the warp."""
    x, y, bit = w.any("u32"), w.any("i32"), 1 << w.number(0, 32)
    type_, value = w.pick(
        ("u32", f"__ballot_sync(~0u, {x} & {bit}u)"), ("i32", f"__any_sync(~0u, ({x} & 0xff) == 7)"),
        ("i32", f"__all_sync(~0u, {x} != 7)"), ("u32", f"__match_any_sync(~0u, {x} & 3)"),
        ("u32", f"__reduce_add_sync(~0u, {x})"), ("i32", f"__reduce_min_sync(~0u, {y})"),
        ("u32", f"__reduce_xor_sync(~0u, {x})"), ("u32", f"__reduce_max_sync(~0u, {x})"),
        ("i32", f"__syncthreads_count({x} & {bit}u)"), ("i32", f"__syncthreads_or({x} == 7)"),
    )  # fmt: skip
    w.let(type_, value)


def exchange(w: Writer) -> None:
    """A value of another thread of the block, through shared memory."""
    w.add("__syncthreads();")
    w.add(f"tile[t] = {w.any('u64')};")
    w.add("__syncthreads();")
    place = w.pick("63 - t", f"t ^ {w.number(1, 64)}", f"{w.any('u32')} & 63", f"(t + {w.number(1, 64)}) % 64")
    w.let("u64", f"tile[{place}]")


def shared_atomics(w: Writer) -> None:
    """Atomics on a few words of shared memory; their order does not change the result."""
    w.add("__syncthreads();")
    w.add("if (t < 8) cells[t] = (u32)in[t];")
    w.add("__syncthreads();")
    name, call = w.pick(
        ("", "atomicAdd"), ("", "atomicMin"), ("", "atomicMax"), ("", "atomicAnd"), ("", "atomicOr"), ("", "atomicXor")
    )
    w.add(f"{name}{call}(&cells[{w.any('u32')} & 7], {w.any('u32')});")
    w.add("__syncthreads();")
    w.let("u32", f"cells[{w.any('u32')} & 7]")


def own_atomics(w: Writer) -> None:
    """Atomics on a word that only this thread uses, so that the returned value is defined."""
    w.add(f"out[at * {WORDS}] = {w.any('u64')};")
    x, y = w.any("u64"), w.any("u64")
    word, low = f"&out[at * {WORDS}]", f"(u32 *)&out[at * {WORDS}]"
    type_, value = w.pick(
        ("u64", f"atomicAdd({word}, {x})"), ("u64", f"atomicExch({word}, {x})"), ("u64", f"atomicMax({word}, {x})"),
        ("u64", f"atomicCAS({word}, {x}, {y})"), ("u32", f"atomicInc({low}, (u32){x})"),
        ("u32", f"atomicDec({low}, (u32){x})"), ("i32", f"atomicMin((i32 *){low}, (i32){x})"),
        ("u32", f"atomicSub({low}, (u32){x})"),
    )  # fmt: skip
    w.let(type_, value)
    w.let("u64", f"out[at * {WORDS}]")


PLAIN: tuple[Callable[[Writer], None], ...] = (*SIMPLE, branch, switch, loop, local_array)
COLLECTIVE: tuple[Callable[[Writer], None], ...] = (shuffle, vote, exchange, shared_atomics, own_atomics)


# Files --------------------------------------------------------------------------------------------------------------


def source(first: int, count: int) -> str:
    """Return a file of kernels k<seed>, for `count` seeds starting with `first`."""
    return HEAD + "".join("\n" + Writer(seed).kernel(f"k{seed}") for seed in range(first, first + count))


def inputs() -> Array:
    """Return the input of all kernels: random words of random length, and extreme values."""
    rng = np.random.default_rng(1)
    size = BLOCKS * THREADS * INPUTS
    words = rng.integers(0, 2**64, size, dtype=np.uint64) >> rng.integers(0, 64, size).astype(np.uint64)
    raw = rng.random(size) < 0.5
    words = np.where(raw, rng.integers(0, 2**64, size, dtype=np.uint64), words)
    edges = np.array([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 0x7F800000, 0xFF7FFFFF, 0x3FF0000000000000], np.uint64)
    return np.where(rng.random(size) < 0.1, rng.choice(edges, size), words)


def simulated(first: int, count: int, arch: str = "sm_90") -> Array:
    """Return the outputs of a file's kernels in the simulator, (kernels, blocks * threads * words).

    Raises RuntimeError if a kernel has a hazard, since its result would not be defined.
    """
    program = simulator.load(compile_ptx(source(first, count), "random.cu", arch=arch).ptx)
    data, found = inputs(), []
    for seed in range(first, first + count):
        out = np.zeros(BLOCKS * THREADS * WORDS, np.uint64)
        report = simulator.run(program, f"k{seed}", BLOCKS, THREADS, [data, out])
        if report.hazards:
            raise RuntimeError(f"k{seed} has hazards: {report.hazards[0].message}")
        found.append(out)
    return np.array(found)


def parts(count: int, first: int) -> Iterator[tuple[int, int]]:
    """Yield the first seed and the number of kernels of each file."""
    for start in range(first, first + count, KERNELS_A_FILE):
        yield start, min(KERNELS_A_FILE, first + count - start)


def digest(*pieces: bytes) -> int:
    """Return a 64-bit digest of some bytes."""
    return int.from_bytes(hashlib.blake2b(b"".join(pieces), digest_size=8).digest(), "little")


def text_digest(first: int, count: int) -> int:
    """Return a digest of the kernels' text and inputs; both machines must have the same digest."""
    return digest(source(first, count).encode(), inputs().tobytes())


def expected(first: int, count: int) -> Array:
    """Return the digests of a file: first of the file's text, then of each kernel's outputs in the simulator."""
    outputs = [digest(out.tobytes()) for out in simulated(first, count)]
    return np.array([text_digest(first, count), *outputs], np.uint64)


def generate(count: int, first: int, folder: Path, jobs: int) -> None:
    """Write the digests of the kernels' outputs in the simulator."""
    folder.mkdir(parents=True, exist_ok=True)
    starts, numbers = zip(*parts(count, first), strict=True)
    began = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        found = {str(start): part for start, part in zip(starts, pool.map(expected, starts, numbers), strict=True)}
    np.savez_compressed(folder / "expected.npz", **found)  # type: ignore[arg-type]
    size = (folder / "expected.npz").stat().st_size
    print(f"{count} kernels in {time.perf_counter() - began:.0f} s, {size / 1e3:.0f} kB: {folder / 'expected.npz'}")


def machine_code(first: int, count: int, arch: str) -> tuple[int, bytes]:
    """Return the digest of a file's text, and the file's machine code for an architecture."""
    cubin = compile_cubin(source(first, count), f"random_{first}.cu", arch=arch, backend="nvrtc").cubin
    assert cubin is not None
    return text_digest(first, count), cubin


def check(folder: Path, jobs: int) -> int:
    """Run the kernels on the GPU, keep the outputs that differ from the simulator's, and return their number."""
    import pycuda.driver as cuda

    began = time.perf_counter()
    cuda.init()
    device = cuda.Device(0)
    arch = "sm_{}{}".format(*device.compute_capability())
    wanted = dict(np.load(folder / "expected.npz"))
    starts = [int(name) for name in wanted]
    counts = [digests.size - 1 for digests in wanted.values()]
    # The pool starts before the CUDA context is made, because a forked process must not inherit a context.
    with ProcessPoolExecutor(jobs) as pool:
        files = list(pool.map(machine_code, starts, counts, [arch] * len(starts)))
    compiled = time.perf_counter()
    differing: dict[str, Array] = {}
    context = device.make_context()
    try:
        data = cuda.to_device(inputs())
        for first, digests, (text, cubin) in zip(starts, wanted.values(), files, strict=True):
            if text != int(digests[0]):
                sys.exit(f"kernels from {first} on are written differently here: another NumPy than generate's?")
            module = cuda.module_from_buffer(cubin)
            for seed, want in enumerate(digests[1:].tolist(), first):
                out = np.zeros(BLOCKS * THREADS * WORDS, np.uint64)
                memory = cuda.to_device(out)
                module.get_function(f"k{seed}")(data, memory, grid=(BLOCKS, 1), block=(THREADS, 1, 1))
                cuda.memcpy_dtoh(out, memory)
                if digest(out.tobytes()) != want:
                    differing[f"k{seed}"] = out
    finally:
        context.pop()
    ended = time.perf_counter()
    kernels = sum(counts)
    np.savez_compressed(folder / "differing.npz", **differing)  # type: ignore[arg-type]
    if differing:
        print(f"differ: {' '.join(differing)}; their outputs are in {folder / 'differing.npz'}, for explain")
    print(f"{kernels - len(differing)} of {kernels} kernels equal on {device.name()} ({arch})")
    print(f"{compiled - began:.0f} s to compile with {jobs} processes, {ended - compiled:.0f} s to run")
    return len(differing)


def explain(folder: Path) -> int:
    """Print the variables that differ in the kernels that `check` kept; return how many kernels still differ."""
    still = 0
    for name, theirs in np.load(folder / "differing.npz").items():
        seed = int(name[1:])
        ours = simulated(seed, 1)[0]
        if np.array_equal(ours, theirs):
            print(f"{name}: equal")
            continue
        still += 1
        writer = Writer(seed)
        text = writer.kernel(name)
        order = [variable for names in writer.variables.values() for variable in names]
        types = {variable: type_ for type_, names in writer.variables.items() for variable in names}
        places = np.flatnonzero(ours != theirs)
        print(f"{name}: {places.size} of {ours.size} words differ")
        found = Counter(blame(int(ours[p]), int(theirs[p]), order[int(p) % WORDS :: WORDS]) for p in places)
        for (variable, change), times in sorted(found.items(), key=lambda item: int(item[0][0][1:]))[:5]:
            print(f"  {types[variable]} {variable} by {change:#x}, {times} times:")
            lines = [line.strip() for line in text.splitlines() if re.search(rf"\b{variable} = ", line)]
            print("".join(f"    {line}\n" for line in lines), end="")
    print(f"{still} kernels differ")
    return still


def blame(ours: int, theirs: int, variables: list[str]) -> tuple[str, int]:
    """Return the variable that explains the difference of a word by the smallest change, and this change."""
    modulus, back = 2**64, pow(MULTIPLIER, -1, 2**64)
    change, best = (theirs - ours) % modulus, []
    for variable in reversed(variables):
        signed = change - modulus if change >> 63 else change
        best.append((abs(signed), variable, signed))
        change = change * back % modulus
    _, variable, signed = min(best)
    return variable, signed


def main() -> None:
    """Generate, check or explain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("generate", "check", "explain"))
    parser.add_argument("count", type=int, nargs="?", default=2000, help="kernels to generate")
    parser.add_argument("--first", type=int, default=0, help="seed of the first kernel")
    parser.add_argument("--folder", type=Path, default=Path("build/random"))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    if given.what == "generate":
        generate(given.count, given.first, given.folder, given.jobs)
    elif check(given.folder, given.jobs) if given.what == "check" else explain(given.folder):
        sys.exit(1)


if __name__ == "__main__":
    main()
