"""Each arithmetic instruction gives the same bits on the native engine as on the NumPy engine."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudabench.simulator.program.ptx import BITS
from cudabench.system import native
from tests.engines import both, loaded

pytestmark = [pytest.mark.engine, pytest.mark.skipif(native.library() is None, reason="needs the native engine")]

THREADS = 288
HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"
SPECIAL = {
    "f16": [0, 0x8000, 1, 0x83FF, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01],
    "bf16": [0, 0x8000, 1, 0x80, 0x7F, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x3F00],
    "f32": [
        0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x80800001, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
        0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x3F000000, 0x4F000000, 0xCF000000, 0x5F000000, 0x477FF000,
        0x33000001, 0x3F7FFFFF, 0x40490FDB, 0xC2FE0000, 0x387FFFFF, 0x3EAAAAAB, 0x4B800001, 0x477FE000,
        0xC0200000, 0x42FE0000,
    ],
    "f64": [
        0, 1 << 63, 1, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000,
        0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
        0xFFF8000000012345, 0x41E0000000000000, 0xC1E0000000000000, 0x43E0000000000000, 0xC3E0000000000000,
        0x43F0000000000000, 0x3FE0000000000000, 0x47EFFFFFF0000000, 0x36A0000000000000, 0x4004000000000000,
        0x3810000000000000, 0x40EFFE0000000000, 0x3FDFFFFFFFFFFFFF,
    ],
}  # fmt: skip
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def values(type_: str, draw: np.random.Generator) -> Any:
    """Return operands of a type as 64-bit words: random bits, special values, and ordinary numbers."""
    bits = BITS[type_]
    if type_.endswith("x2"):
        part = type_[:-2]
        return values(part, draw) | values(part, draw) << np.uint64(bits // 2)
    words = draw.integers(0, 1 << 64, THREADS, np.uint64)
    if bits < 64:
        words &= np.uint64((1 << bits) - 1)
    places = draw.integers(0, 4, THREADS)
    if type_ in SPECIAL:
        special = np.array(SPECIAL[type_], np.uint64)
        if type_ == "bf16":
            ordinary = (draw.normal(0, 3, THREADS).astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
        else:
            ordinary = draw.normal(0, 3, THREADS).astype(FLOATS[type_]).view(f"u{bits // 8}").astype(np.uint64)
    else:
        top = 1 << bits
        special = np.array([0, 1, 2, top - 1, top // 2, top // 2 - 1, top - 2, top // 3], np.uint64)
        ordinary = draw.integers(0, 70, THREADS, np.uint64)
    chosen = draw.choice(special, THREADS)
    return np.where(places == 0, chosen, np.where(places < 3, ordinary, words))


def register(type_: str) -> str:
    """Return the letter of the registers of a type."""
    return {1: "p", 8: "c", 16: "h", 32: "r", 64: "d"}[BITS[type_]]


def kernel(name: str, text: str, results: list[str], types: list[str]) -> str:
    """Return the PTX of an instruction, with destinations in place of <D0>, <D1>, ... and sources in place of <A>, <B>,
    <C>, <E>.

    The kernel executes the instruction in all lanes and stores to the first array, then under a guard and stores to the
    second.
    """
    lines = [
        "ld.param.u64 %out, [out];", "ld.param.u64 %given, [given];", "mov.u32 %i, %ctaid.x;", "mov.u32 %n, %ntid.x;",
        "mov.u32 %t, %tid.x;", "mad.lo.s32 %i, %i, %n, %t;", "mul.wide.u32 %at, %i, 8;", "add.s64 %at, %at, %given;",
        f"ld.global.u64 %word, [%at+{8 * THREADS * len(types)}];", "cvt.u32.u64 %t, %word;", "and.b32 %t, %t, 1;",
        "setp.eq.u32 %guard, %t, 1;",
    ]  # fmt: skip
    names = {}
    for place, (letter, type_) in enumerate(zip("ABCE", types, strict=False)):
        names[letter] = f"%{register(type_)}{place}"
        lines.append(f"ld.global.u64 %word, [%at+{8 * THREADS * place}];")
        if type_ == "pred":
            lines += ["cvt.u32.u64 %t, %word;", "and.b32 %t, %t, 1;", f"setp.ne.u32 {names[letter]}, %t, 0;"]
        else:
            lines.append(f"{'mov.b64' if BITS[type_] == 64 else f'cvt.u{BITS[type_]}.u64'} {names[letter]}, %word;")
    for place, type_ in enumerate(results):
        names[f"D{place}"] = f"%{register(type_)}{8 + place}"
    for word in sorted(names, key=len, reverse=True):
        text = text.replace(f"<{word}>", names[word])
    lines += ["mul.wide.u32 %at, %i, 8;", "add.s64 %at, %at, %out;"]
    for guarded in (False, True):
        if guarded:
            for place, type_ in enumerate(results):
                zero = {"pred": "setp.ne.u32 {0}, %n, %n;"}.get(
                    type_, "cvt.u{1}.u32 {0}, %n;" if BITS[type_] != 32 else "mov.b32 {0}, %n;"
                )
                lines.append(zero.format(names[f"D{place}"], BITS[type_]))
        lines += [f"{'@%guard ' * guarded}{one.strip()};" for one in text.split(";")]
        for place, type_ in enumerate(results):
            into = names[f"D{place}"]
            offset = 8 * THREADS * (place + len(results) * guarded)
            if type_ == "pred":
                lines += [f"selp.u32 %t, 1, 0, {into};", "cvt.u64.u32 %word, %t;"]
            else:
                lines.append(f"{'mov.b64' if BITS[type_] == 64 else f'cvt.u64.u{BITS[type_]}'} %word, {into};")
            lines.append(f"st.global.u64 [%at+{offset}], %word;")
    body = "\n".join(lines)
    return f"""
.visible .entry {name}(.param .u64 out, .param .u64 given)
{{
.reg .pred %p<16>, %guard; .reg .b8 %c<16>; .reg .b16 %h<16>; .reg .b32 %r<16>, %i, %n, %t; .reg .b64 %d<16>;
.reg .b64 %out, %given, %at, %word;
{body}
ret;
}}
"""


def plain(opcode: str, result: str, *types: str) -> tuple[str, list[str], list[str]]:
    """Return a case of an instruction with one destination."""
    return (
        f"{opcode} <D0>, " + ", ".join(f"<{letter}>" for letter, _ in zip("ABCE", types, strict=False)),
        [result],
        [*types],
    )


WIDTHS = (16, 32, 64)
INTEGERS = [f"{sign}{bits}" for bits in WIDTHS for sign in "us"]
ROUNDINGS = ("rn", "rz", "rm", "rp")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def integer_cases() -> dict[str, list[Any]]:
    """Return the cases of integer instructions by family."""
    wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
    found: dict[str, list[Any]] = {
        "sums": [plain(f"{op}.{t}", t, t, t) for op in ("add", "sub") for t in INTEGERS]
        + [plain(f"{op}.sat.s32", "s32", "s32", "s32") for op in ("add", "sub")]
        + [plain(f"neg.{t}", t, t) for t in ("s16", "s32", "s64")]
        + [plain(f"{op}.u16x2", "u32", "u32", "u32") for op in ("add", "min", "max")]
        + [plain("max.s16x2", "u32", "u32", "u32"), plain("min.relu.s16x2", "u32", "u32", "u32")],
        "products": [plain(f"mul.{form}.{t}", t, t, t) for form in ("lo", "hi") for t in INTEGERS]
        + [plain(f"mad.{form}.{t}", t, t, t, t) for form in ("lo", "hi") for t in INTEGERS]
        + [plain(f"mul.wide.{t}", wide[t], t, t) for t in wide]
        + [plain(f"mad.wide.{t}", wide[t], t, t, wide[t]) for t in wide]
        + [plain("mad.hi.sat.s32", "s32", "s32", "s32", "s32")]
        + [plain(f"mul24.{form}.{t}", t, t, t) for form in ("lo", "hi") for t in ("u32", "s32")]
        + [plain(f"mad24.{form}.{t}", t, t, t, t) for form in ("lo", "hi") for t in ("u32", "s32")],
        "quotients": [plain(f"{op}.{t}", t, t, t) for op in ("div", "rem") for t in INTEGERS],
        "extremes": [plain(f"{op}.{t}", t, t, t) for op in ("min", "max") for t in INTEGERS]
        + [plain(f"{op}.relu.s32", "s32", "s32", "s32") for op in ("min", "max")]
        + [plain(f"abs.{t}", t, t) for t in ("s16", "s32", "s64")]
        + [plain(f"sad.{t}", t, t, t, t) for t in INTEGERS],
        "carries": [
            (f"{x}.cc.{t} <D0>, <A>, <B>; {y}.cc.{t} <D1>, <C>, <E>; {y}.{t} <D2>, <A>, <C>", [t] * 3, [t] * 4)
            for x, y in (("add", "addc"), ("sub", "subc"), ("sub", "addc")) for t in ("u32", "u64")
        ]
        + [(f"mad.lo.cc.{t} <D0>, <A>, <B>, <C>; madc.hi.{t} <D1>, <A>, <B>, <E>", [t] * 2, [t] * 4)
           for t in ("u32", "s32", "u64", "s64")],
        "logic": [plain(f"{op}.b{n}", f"b{n}", f"b{n}", f"b{n}") for op in ("and", "or", "xor") for n in WIDTHS]
        + [plain(f"{op}.b{n}", f"b{n}", f"b{n}") for op in ("not", "cnot") for n in WIDTHS]
        + [(f"lop3.b32 <D0>, <A>, <B>, <C>, {table}", ["b32"], ["b32"] * 3)
           for table in (0, 0x96, 0xE8, 0xCA, 0x7F, 1)],
        "shifts": [plain(f"shl.b{n}", f"b{n}", f"b{n}", "u32") for n in WIDTHS]
        + [plain(f"shr.{t}", t, t, "u32") for t in INTEGERS]
        + [plain(f"shf.{way}.{mode}.b32", "b32", "b32", "b32", "u32") for way in "lr" for mode in ("clamp", "wrap")],
        "fields": [plain(f"bfe.{t}", t, t, "u32", "u32") for t in INTEGERS[2:]]
        + [plain(f"bfi.b{n}", f"b{n}", f"b{n}", f"b{n}", "u32", "u32") for n in (32, 64)]
        + [plain(f"{op}.b{n}", "u32", f"b{n}") for op in ("popc", "clz") for n in (32, 64)]
        + [plain(f"brev.b{n}", f"b{n}", f"b{n}") for n in (32, 64)]
        + [plain(f"bfind.{more}{t}", "u32", t) for more in ("", "shiftamt.") for t in INTEGERS[2:]]
        + [plain("fns.b32", "b32", "b32", "u32", "s32")]
        + [plain(f"bmsk.{mode}.b32", "b32", "u32", "u32") for mode in ("clamp", "wrap")]
        + [plain(f"szext.{mode}.{t}", t, t, "u32") for mode in ("clamp", "wrap") for t in ("u32", "s32")],
        "bytes": [plain(f"prmt.b32{mode}", "b32", "b32", "b32", "b32") for mode in
                  ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")]
        + [plain(f"dp4a.{x}.{y}", "b32", "b32", "b32", "b32") for x in ("u32", "s32") for y in ("u32", "s32")]
        + [plain(f"dp2a.{half}.{x}.{y}", "b32", "b32", "b32", "b32")
           for half in ("lo", "hi") for x in ("u32", "s32") for y in ("u32", "s32")],
    }  # fmt: skip
    return found


def move_cases() -> dict[str, list[Any]]:
    """Return the cases of moves, comparisons and selections by family."""
    tested = [*INTEGERS, "f32", "f64"]
    names = {t: COMPARE if t in INTEGERS else COMPARE + UNORDERED for t in (*tested, "f16", "bf16")}
    return {
        "moves": [plain(f"mov.{t}", t, t) for t in ("b16", "b32", "b64", "f32", "f64", "pred")]
        + [
            ("mov.b64 {<D0>, <D1>}, <A>", ["b32"] * 2, ["b64"]), ("mov.b64 {_, <D0>}, <A>", ["b32"], ["b64"]),
            ("mov.b32 {<D0>, <D1>}, <A>", ["b16"] * 2, ["b32"]),
            ("mov.b64 {<D0>, <D1>, <D2>, <D3>}, <A>", ["b16"] * 4, ["b64"]),
            ("mov.b64 <D0>, {<A>, <B>}", ["b64"], ["b32"] * 2), ("mov.b32 <D0>, {<A>, <B>}", ["b32"], ["b16"] * 2),
            ("mov.b64 <D0>, {<A>, <B>, <C>, <E>}", ["b64"], ["b16"] * 4), ("mov.b32 <D0>, 0f40490FDB", ["b32"], []),
            ("mov.b64 <D0>, 0dC0091EB851EB851F", ["b64"], []), ("mov.b16 <D0>, -3", ["b16"], []),
            ("mov.u32 <D0>, %laneid", ["b32"], []), ("mov.u32 <D0>, WARP_SZ", ["b32"], []),
            *((f"cvta.{to}{space}.u64 <D0>, <A>", ["b64"], ["b64"])
              for to in ("", "to.") for space in ("global", "shared", "local", "const", "param")),
            *((f"isspacep.{space} <D0>, <A>", ["pred"], ["b64"]) for space in ("global", "shared", "local", "const")),
        ],
        "setp": [plain(f"setp.{name}.{t}", "pred", t, t) for t in tested for name in names[t]]
        + [plain(f"setp.{name}.{t}", "pred", t, t) for t in ("u32", "u64") for name in ("lo", "ls", "hi", "hs")]
        + [plain(f"setp.{name}.b32", "pred", "b32", "b32") for name in ("eq", "ne")]
        + [plain(f"setp.{name}.ftz.f32", "pred", "f32", "f32") for name in COMPARE + UNORDERED],
        "setp_combined": [
            (f"setp.{name}.{how}.{t} <D0>|<D1>, <A>, <B>, {flip}<C>", ["pred"] * 2, [t, t, "pred"])
            for name in ("lt", "ne") for how in ("and", "or", "xor") for t in ("s32", "u64", "f32")
               for flip in ("", "!")
        ]
        + [(f"setp.{name}.f32 <D0>|<D1>, <A>, <B>", ["pred"] * 2, ["f32"] * 2) for name in ("lt", "geu")]
        + [("setp.lt.and.s32 <D0>, <A>, <B>, <C>", ["pred"], ["s32", "s32", "pred"])]
        + [plain(f"setp.{name}.{t}", "pred", t, t) for t in ("f16", "bf16") for name in names[t]]
        + [(f"setp.{name}.{t} <D0>|<D1>, <A>, <B>", ["pred"] * 2, [t] * 2)
           for name in ("lt", "neu") for t in ("f16x2", "bf16x2")],
        "set": [plain(f"set.{name}.{result}.{t}", result, t, t)
                for name in ("lt", "ge") for result in ("u32", "s32", "f32")
                   for t in ("u32", "s32", "f32", "u64", "f64")]
        + [("set.gt.and.u32.s32 <D0>, <A>, <B>, <C>", ["u32"], ["s32", "s32", "pred"])]
        + [plain(f"set.gt.{t}.{t}", t, t, t) for t in HALVES],
        "selections": [plain(f"selp.{t}", t, t, t, "pred") for t in ("b16", "b32", "b64", "f32", "f64")]
        + [("selp.b32 <D0>, 7, <A>, <B>", ["b32"], ["b32", "pred"])]
        + [plain(f"slct.{t}.{by}", t, t, t, by) for t in ("u32", "s64", "f32", "f64", "b16")
           for by in ("s32", "f32")],
        "predicates": [plain(f"{op}.pred", "pred", "pred", "pred") for op in ("and", "or", "xor")]
        + [plain("not.pred", "pred", "pred"), ("and.pred <D0>, <A>, !<B>", ["pred"], ["pred"] * 2)],
    }  # fmt: skip


def float_cases() -> dict[str, list[Any]]:
    """Return the cases of floating-point arithmetic by family."""
    found: dict[str, list[Any]] = {}
    for t in ("f32", "f64"):
        more = ("", ".ftz", ".sat", ".ftz.sat") if t == "f32" else ("",)
        found[f"arithmetic_{t}"] = [
            plain(f"{op}.{mode}{words}.{t}", t, t, t)
            for op in ("add", "sub", "mul")
            for mode in ROUNDINGS
            for words in more
        ]
        found[f"fma_{t}"] = [plain(f"fma.{mode}{words}.{t}", t, t, t, t) for mode in ROUNDINGS for words in more]
        found[f"quotients_{t}"] = [
            plain(f"{op}.{mode}{words}.{t}", t, *[t] * count)
            for op, count in (("div", 2), ("sqrt", 1), ("rcp", 1)) for mode in ROUNDINGS for words in more[:2]
        ]  # fmt: skip
        found[f"signs_{t}"] = [
            *(plain(f"{op}{words}.{t}", t, t) for op in ("abs", "neg") for words in more[:2]),
            plain(f"copysign.{t}", t, t, t),
            *(plain(f"{op}{words}.{t}", t, t, t) for op in ("min", "max")
              for words in (more[:1] if t == "f64" else
                            ("", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"))),
            *(plain(f"testp.{name}.{t}", "pred", t)
              for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")),
        ]  # fmt: skip
    found["signs_f32"] += [plain(f"{op}{words}.f32", "f32", "f32", "f32", "f32")
                           for op in ("min", "max") for words in ("", ".NaN", ".NaN.abs")]  # fmt: skip
    found["approximate"] = [
        *(plain(f"{op}.approx{words}.f32", "f32", *["f32"] * count) for words in ("", ".ftz")
          for op, count in (("div", 2), ("sqrt", 1), ("rcp", 1), ("rsqrt", 1), ("sin", 1), ("cos", 1),
                            ("ex2", 1), ("lg2", 1))),
        plain("tanh.approx.f32", "f32", "f32"), plain("div.full.f32", "f32", "f32", "f32"),
        plain("rsqrt.approx.f64", "f64", "f64"), plain("rcp.approx.ftz.f64", "f64", "f64"),
        plain("rsqrt.approx.ftz.f64", "f64", "f64"),
    ]  # fmt: skip
    found["pairs_f32"] = [plain(f"{op}.rn{words}.f32x2", "f32x2", *["f32x2"] * count) for words in ("", ".ftz")
                          for op, count in (("add", 2), ("mul", 2), ("fma", 3))]  # fmt: skip
    found["halves"] = [
        plain(f"{op}{words}.{t}", t, *[t] * count) for t in HALVES
        for op, count, words in (
            ("add.rn", 2, ""), ("sub.rn", 2, ""), ("mul.rn", 2, ""), ("fma.rn", 3, ""), ("fma.rn", 3, ".relu"),
            ("abs", 1, ""), ("neg", 1, ""), ("min", 2, ""), ("max", 2, ""), ("min.NaN", 2, ""),
            ("max", 2, ".NaN.xorsign.abs"),
            ("tanh.approx", 1, ""), ("max", 3, ""),
            *((("add", 2, ".ftz.sat"), ("mul", 2, ".sat"), ("fma.rn", 3, ".ftz.sat"), ("ex2.approx", 1, ""))
              if t.startswith("f16") else (("ex2.approx", 1, ".ftz"),)),
        )
    ]  # fmt: skip
    return found


def conversion_cases() -> dict[str, list[Any]]:
    """Return the cases of conversions by family."""
    whole = ["u8", "s8", *INTEGERS]
    found: dict[str, list[Any]] = {
        "integers": [plain(f"cvt{sat}.{to}.{t}", to, t) for sat in ("", ".sat") for to, t in product(whole, whole)]
        + [(f"cvt.{to}.{t} <D0>, <A>", ["b64"], [t]) for to in whole for t in ("s32", "u16")]
        + [(f"cvt.{to}.{t} <D0>, <A>", [to], ["b64"]) for to in ("s32", "u64") for t in ("s8", "u8", "s16", "u32")],
        "to_integers": [
            plain(f"cvt.{mode}{words}.{to}.{t}", to, t)
            for mode in ("rni", "rzi", "rmi", "rpi") for to in whole for t in ("f16", "bf16", "f32", "f64")
            for words in (("", ".ftz") if t == "f32" else ("",))
        ],
        "from_integers": [
            plain(f"cvt.{mode}{words}.{to}.{t}", to, t)
            for mode in ROUNDINGS for to in ("f32", "f64", "f16", "bf16") for t in whole for words in ("", ".sat")
            if not (t[1:] == "64" and (to == "bf16" or (to == "f16" and mode != "rn")))
        ],
        "floats": [plain(f"cvt.{mode}{words}.f32.f64", "f32", "f64") for mode in ROUNDINGS
           for words in ("", ".ftz", ".sat")]
        + [plain(f"cvt{words}.f64.f32", "f64", "f32") for words in ("", ".ftz", ".sat")]
        + [plain(f"cvt{words}.{to}.{t}", to, t) for to in ("f32", "f64") for t in ("f16", "bf16")
           for words in ("", ".sat")]
        + [plain(f"cvt.{mode}{words}.f16.{t}", "f16", t) for mode in ROUNDINGS for t in ("f32", "f64", "bf16")
           for words in ("", ".sat", ".relu")]
        + [plain(f"cvt.{mode}{words}.bf16.{t}", "bf16", t) for mode in ROUNDINGS for t in ("f32", "f64", "f16")
           for words in ("", ".relu")]
        + [plain(f"cvt.{mode}.{t}.{t}", t, t) for mode in ("rni", "rzi", "rmi", "rpi")
           for t in ("f16", "bf16", "f32", "f64")]
        + [plain(f"cvt{words}.f32.f32", "f32", "f32") for words in
           (".ftz", ".sat", ".ftz.sat", ".rni.ftz", ".rzi.sat")]
        + [plain(f"cvt.{mode}.tf32.f32", "b32", "f32") for mode in ("rna", "rn")],
        "pairs": [plain(f"cvt.rn{words}.{t}.f32", "b32", "f32", "f32") for t in ("f16x2", "bf16x2")
           for words in ("", ".relu")]
        + [plain(f"cvt.rz.{t}.f32", "b32", "f32", "f32") for t in ("f16x2", "bf16x2")]
        + [plain(f"cvt.pack.sat.{to}.s32.b32", "b32", "s32", "s32", "b32") for to in ("u8", "s8")]
        + [plain(f"cvt.pack.sat.{to}.s32", "b32", "s32", "s32") for to in ("u16", "s16")],
    }  # fmt: skip
    return found


FAMILIES = {**integer_cases(), **move_cases(), **float_cases(), **conversion_cases()}


def same(text: str, results: list[str], types: list[str], seed: int, block: int = 96) -> str:
    """Run one case on both engines; return "" if they agree, else the difference."""
    draw = np.random.default_rng(seed)
    given_ = np.concatenate([*(values(type_, draw) for type_ in types), draw.integers(0, 1 << 32, THREADS, np.uint64)])
    program = loaded(HEAD + kernel("k", text, results, types))
    out = np.zeros(THREADS * 2 * len(results), np.uint64)
    found = both(program, "k", THREADS // block, block, [out, given_])
    if isinstance(found.ran, str):
        return f"{text}: {found.ran}"
    if found.ran.instructions != found.report.instructions:
        return f"{text}: {found.ran.instructions} instructions for {found.report.instructions}"
    wrong = np.flatnonzero(found.numpy[0] != found.native[0])
    if not wrong.size:
        return ""
    rows = [
        (
            *(hex(given_[place % THREADS + THREADS * number]) for number in range(len(types))),
            hex(found.numpy[0][place]), hex(found.native[0][place]),
        )
        for place in wrong[:4]
    ]  # fmt: skip
    return f"{text}: {wrong.size} differ: (operands, NumPy, native) {rows}"


@pytest.mark.sampled(30)
@pytest.mark.parametrize("family", FAMILIES)
def test_instructions_of_a_family_have_the_same_bits(family: str) -> None:
    """Instructions agree on random, special and ordinary values, with full, partly filled and guarded warps."""
    wrong = [same(*case, seed, block=(96, 48)[seed % 2]) for seed, case in enumerate(FAMILIES[family])]
    assert not (found := [one for one in wrong if one]), "\n".join(found)


SINGLE = [case for family in FAMILIES.values() for case in family if len(case[1]) == 1 and ";" not in case[0]]
POOL = {"b16": 3, "b32": 4, "b64": 3, "pred": 2}
STEP = st.tuples(
    st.sampled_from(SINGLE), st.lists(st.integers(0, 11), min_size=5, max_size=5),
    st.sampled_from((None, False, True)),
)  # fmt: skip


def pooled(type_: str, number: int) -> str:
    """Return one of the registers of a type that a random kernel uses."""
    pool = "pred" if type_ == "pred" else f"b{BITS[type_]}"
    return f"%{register(pool)}{number % POOL[pool]}"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=25), st.integers(0, 1 << 30))
def test_random_expressions_have_the_same_bits(steps: list[Any], seed: int) -> None:
    """Random instructions agree, each on the results of earlier instructions and under guards that the kernel
    computes."""
    lines = [
        "ld.param.u64 %out, [out];", "ld.param.u64 %given, [given];", "mov.u32 %i, %tid.x;",
        "mul.wide.u32 %at, %i, 8;", "add.s64 %given, %given, %at;", "add.s64 %out, %out, %at;",
    ]  # fmt: skip
    names = [(pool, f"%{register(pool)}{number}") for pool, count in POOL.items() for number in range(count)]
    for place, (pool, name) in enumerate(names):
        lines += [f"ld.global.u64 %word, [%given+{8 * THREADS * place}];", "cvt.u32.u64 %t, %word;"]
        lines.append(f"setp.lt.s32 {name}, %t, 0;" if pool == "pred" else f"cvt.u{pool[1:]}.u64 {name}, %word;")
    for (text, results, types), numbers, guard in steps:
        if any(BITS[type_] == 8 for type_ in (*results, *types)):
            continue
        for letter, type_, number in zip(("D0", *"ABCE"), (*results, *types), numbers, strict=False):
            text = text.replace(f"<{letter}>", pooled(type_, number))
        if text.startswith(("div.u", "div.s", "rem.")):  # The native engine stops at a divisor that is zero.
            divisor = text.split(", ")[2]
            lines.append(f"or.b{types[1][1:]} {divisor}, {divisor}, 1;")
        lines.append(f"{'' if guard is None else '@!%p0 ' if guard else '@%p0 '}{text};")
    for place, (pool, name) in enumerate(names):
        lines.append(f"selp.u64 %word, 1, 0, {name};" if pool == "pred" else f"cvt.u64.u{pool[1:]} %word, {name};")
        lines.append(f"st.global.u64 [%out+{8 * THREADS * place}], %word;")
    lines.append("@%p0 setp.lt.s32 %p0|%p1, %r0, %r1;")  # an instruction that changes its own guard
    for number in range(2):
        lines += [
            f"selp.u64 %word, 1, 0, %p{number};",
            f"st.global.u64 [%out+{8 * THREADS * (len(names) + number)}], %word;",
        ]
    registers = " ".join(f".reg .{pool} %{register(pool)}<{count}>;" for pool, count in POOL.items())
    body = "\n".join(lines)
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u64 given)
{{
{registers} .reg .b32 %i, %t; .reg .b64 %at, %word, %out, %given;
{body}
ret;
}}
"""
    draw = np.random.default_rng(seed)
    types = {"b16": "f16", "b32": "f32", "b64": "f64", "pred": "b64"}
    given_ = np.concatenate([values(types[pool], draw) for pool, _ in names])
    found = both(loaded(text), "k", 1, THREADS, [np.zeros(THREADS * (len(names) + 2), np.uint64), given_])
    assert not isinstance(found.ran, str), f"{found.ran}\n{text}"
    assert found.same(), text
    assert found.ran.instructions == found.report.instructions


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_register_that_nothing_has_written_is_suspected(bits: int, written: bool) -> None:
    """A read of an unwritten register in an active lane stops the native engine; a register that all lanes wrote on
    another path does not."""
    text = f"""{HEAD}.visible .entry k(.param .u64 out)
{{
.reg .pred %p; .reg .b{bits} %x; .reg .b32 %i; .reg .b64 %at, %word;
ld.param.u64 %at, [out]; mov.u32 %i, %tid.x; mul.wide.u32 %word, %i, 8; add.s64 %at, %at, %word;
setp.lt.u32 %p, %i, {32 if written else 31};
@%p mov.b{bits} %x, 1;
add.u{bits} %x, %x, 1;
{"mov.b64" if bits == 64 else f"cvt.u64.u{bits}"} %word, %x;
st.global.u64 [%at], %word;
ret;
}}
"""
    found = both(loaded(text), "k", 1, 32, [np.zeros(32, np.uint64)])
    assert written != isinstance(found.ran, str)
    assert isinstance(found.ran, str) is ("nothing has written" in str(found.ran))


ORDINARY = """
#include <cuda_fp16.h>
extern "C" __global__ void ordinary(const float *a, const int *b, const double *c, float *f, int *i, double *d, int n)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float x = a[at], y = x / (b[at] & 7);
    int k = b[at], m = (at % 7) - 3;
    f[at] = expf(x) + logf(fabsf(x)) * powf(fabsf(y), 0.3f) + tanhf(x) - __sinf(y) + rsqrtf(fmaxf(x, 0.5f));
    half2 h = __floats2half2_rn(x, y);
    h = __hfma2(h, h, __float2half2_rn(1.5f));
    f[at] += __low2float(h) * __high2float(h) + erff(y) + fmodf(x, 3.0f) + rintf(x) + (x < y ? 1.0f : 2.0f);
    i[at] = k / (m ? m : 5) + k % 13 + __popc(k) + __clz(k) + (int)x + max(k, m) + __brev(k) + __byte_perm(k, m, 0x5410)
        + (int)(((long long)k * k) >> 9) + (k << (at & 31)) + __dp4a(k, m, at);
    double z = c[at];
    d[at] = sqrt(fabs(z)) + z / (k | 1) + exp(z * 0.01) + floor(z) + (long long)z + fma(z, z, 1.0)
        + __double2float_rz(z);
}
"""


def test_an_ordinary_kernel_has_the_same_bits() -> None:
    """A compiled kernel with functions of floats, halves and integers gives the same bits on both engines."""
    draw = np.random.default_rng(7)
    n = 1000
    arrays = [draw.normal(0, 20, n).astype(np.float32), draw.integers(-(1 << 31), 1 << 31, n).astype(np.int32),
              draw.normal(0, 1e3, n), np.zeros(n, np.float32), np.zeros(n, np.int32), np.zeros(n)]  # fmt: skip
    found = both(loaded(ORDINARY), "ordinary", 8, 128, [*arrays, n])
    assert not isinstance(found.ran, str), found.ran
    assert found.same()
    assert found.ran.instructions == found.report.instructions
