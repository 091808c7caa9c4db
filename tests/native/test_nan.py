"""NaNs, and ties of tf32, have the bits that an H100 gives (driver 580, CUDA 13.0, by inline PTX)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engines import both, loaded
from tests.native.test_scalar import HEAD, THREADS, kernel, plain

A, B, C = 0xFFF800000000000A, 0x7FF800000000000B, 0x7FF800000000000C
ONE, INFINITY = 0x3FF0000000000000, 0x7FF0000000000000
F32 = [
    (f"{op}.f32", operands, 0x7FFFFFFF)
    for op, operands in {
        "add.rn": (0xFFC12345, 0x3F800000), "add.rz": (0x7F812345, 0x3F800000), "sub.rn": (0x7F800000, 0x7F800000),
        "mul.rn": (0x7F800000, 0), "fma.rn": (0x3F800000, 0x3F800000, 0xFFC12345), "div.rn": (0xFFC12345, 0x7FC54321),
        "fma.rz": (0xFFC12345, 0x7FC54321, 0x7FC11111), "sqrt.rn": (0xBF800000,), "rcp.rn": (0xFFC12345,),
        "neg": (0x7FC12345,), "abs": (0xFFC12345,), "min": (0xFFC12345, 0x7FC54321), "cvt.rni.f32": (0xFFC12345,),
        "min.NaN": (0x7FC12345, 0x3F800000), "sin.approx": (0x7F800000,), "lg2.approx": (0xBF800000,),
        "tanh.approx": (0xFFC12345,),
    }.items()
]  # fmt: skip
F64 = [
    ("add.rn.f64", (A, B), B), ("add.rn.f64", (A, ONE), A), ("sub.rn.f64", (ONE, B), B), ("mul.rn.f64", (A, B), B),
    ("mul.rn.f64", (INFINITY, 0), 0xFFF8000000000000), ("add.rn.f64", (0x7FF0000000000001, ONE), 0x7FF8000000000001),
    ("fma.rn.f64", (A, B, C), B), ("fma.rn.f64", (A, ONE, C), C), ("fma.rz.f64", (INFINITY, 0, C), C),
    ("div.rn.f64", (A, B), A), ("div.rn.f64", (ONE, B), B), ("sqrt.rn.f64", (0xBFF0000000000000,), 0xFFF8000000000000),
    ("rcp.rn.f64", (0x7FF0000000000001,), 0x7FF8000000000001), ("min.f64", (A, B), B), ("max.f64", (A, ONE), ONE),
    ("neg.f64", (A,), A), ("abs.f64", (A,), A), ("copysign.f64", (A, B), 0xFFF800000000000B),
]  # fmt: skip
BETWEEN = [
    ("cvt.f64.f32", "f64", "f32", 0xFF812345, 0xFFF82468A0000000), ("cvt.rn.f32.f64", "f32", "f64", A, 0xFFC00000),
    ("cvt.rn.f16.f32", "f16", "f32", 0xFFC12345, 0x7FFF), ("cvt.rn.f16.f64", "f16", "f64", A, 0xFE00),
    ("cvt.f32.f16", "f32", "f16", 0xFC05, 0x7FFFFFFF), ("cvt.f64.f16", "f64", "f16", 0xFC05, 0xFFF8140000000000),
    ("cvt.f32.bf16", "f32", "bf16", 0xFF85, 0xFF850000), ("cvt.rn.bf16.f32", "bf16", "f32", 0xFFC12345, 0x7FFF),
    ("cvt.rn.tf32.f32", "b32", "f32", 0xFF812345, 0x7FFFE000), ("neg.f16", "f16", "f16", 0xFE05, 0x7FFF),
    ("cvt.rna.tf32.f32", "b32", "f32", 0xFF812345, 0xFF812000),
    ("cvt.rn.tf32.f32", "b32", "f32", 0x3F801000, 0x3F800000),
    ("cvt.rna.tf32.f32", "b32", "f32", 0x3F801000, 0x3F802000), ("abs.bf16", "bf16", "bf16", 0xFFC5, 0x7FFF),
]  # fmt: skip
CASES = [
    *((opcode, type_, [type_] * len(given), given, result) for type_, rows in (("f32", F32), ("f64", F64))
      for opcode, given, result in rows),
    *((opcode, into, [of], (given,), result) for opcode, into, of, given, result in BETWEEN),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "into", "types", "given", "result"), CASES, ids=lambda value: str(value)[:24])
def test_bits(opcode: str, into: str, types: list[str], given: tuple[int, ...], result: int) -> None:
    """Both engines give the bits that the H100 gave for each instruction and its operands."""
    text, results, sources = plain(opcode, into, *types)
    program = loaded(HEAD + kernel("k", text, results, sources))
    words = np.concatenate([*(np.full(THREADS, bits, np.uint64) for bits in given), np.ones(THREADS, np.uint64)])
    found = both(program, "k", THREADS // 96, 96, [np.zeros(THREADS * 2, np.uint64), words])
    assert not isinstance(found.ran, str), found.ran
    assert {hex(word) for word in found.numpy[0]} == {hex(result)}
    assert {hex(word) for word in found.native[0]} == {hex(result)}
