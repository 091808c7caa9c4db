"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5).

float32 and float64 results are rounded as the instruction says. The `.approx` functions are computed in full
precision, which is within the error that the PTX ISA allows. Half precision is computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cudabench.floats import from_bfloat16
from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.elementwise import elementwise, in_parts
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import Array

FLOATS = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2", "f32x2")
ROUNDINGS = ("rn", "rz", "rm", "rp")
Function = Callable[..., Array]


def rounding_mode(ins: Instruction) -> str:
    """Return the rounding modifier of an instruction, rn, rz, rm, rp or rna; without one, rn."""
    return next((word for word in ins.modifiers if word in (*ROUNDINGS, "rna")), "rn")


def from_halves(bits: Array, type_: str) -> Array:
    """Return the floats that 16-bit patterns stand for: float16, or bfloat16 converted to float32."""
    return from_bfloat16(bits) if type_.startswith("bf16") else bits.view(np.float16)


def compute_halves(function: Function, type_: str) -> Function:
    """Return `function` for operands of `type_`, which are bit patterns: f16, bf16, or a packed pair of either.

    It computes in float64 and rounds the result once.
    """

    def pack(result: Array) -> Array:
        if type_.startswith("bf16"):
            return rounding.to_bf16(result)
        return rounding.with_nan(result.astype(np.float16)).view(np.uint16)

    def single(*arguments: Array) -> Array:
        return pack(function(*[from_halves(argument, type_).astype(np.float64) for argument in arguments]))

    return in_parts(single, 16, 32) if type_.endswith("x2") else single


def build_float(builder: Builder, ins: Instruction, function: Function, type_: str, *, keeps_nan: bool = False) -> Run:
    """Return the function that executes a floating-point instruction, whose result is `function` of its operands.

    keeps_nan: leave NaN results as `function` returns them, instead of replacing them by the hardware's NaN.
    """
    if type_ not in FLOATS:
        raise refuse(ins)
    flushed, saturated, relu = (word in ins.modifiers for word in ("ftz", "sat", "relu"))
    if type_ in ("f32", "f32x2", "f64") and not keeps_nan:
        function = _with_nan(function, ins.opcode)
    if flushed or saturated or relu:
        inner = function

        def function(*arguments: Array) -> Array:
            if flushed:
                arguments = tuple(rounding.flush(argument) for argument in arguments)
            result = inner(*arguments)
            if flushed:
                result = rounding.flush(result)
            if relu:
                result = np.where(np.isnan(result), result, np.maximum(result, result.dtype.type(0)))
            return rounding.saturate(result) if saturated else result

    bits = type_ if type_ in ("f32", "f64") else f"b{BITS[type_]}"
    if type_ == "f32x2":
        on_floats = function  # a register of 64 bits holds two floats
        function = in_parts(lambda *parts: on_floats(*[x.view(np.float32) for x in parts]).view(np.uint32), 32, 64)
    elif bits != type_:
        function = compute_halves(function, type_)
    return elementwise(builder, ins, (bits,) * len(ins.operands[1:]), bits, function)


def _with_nan(function: Function, opcode: str) -> Function:
    """Return `function`, changed to return the hardware's NaNs.

    If several operands are NaN, the opcode decides which of them float64 propagates.
    """
    order = {"div": (1, 0), "fma": (0, 2, 1), "mad": (0, 2, 1)}.get(opcode)

    def compute(*operands: Array) -> Array:
        result = function(*operands)
        return rounding.with_nan(result, *(operands if order is None else [operands[place] for place in order]))

    return compute


def _wide(function: Function) -> Function:
    """Return `function`, changed to compute in float64 and to round to the type of its argument."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


def _upper(function: Function) -> Function:
    """Return `function`, changed to use only the upper 32 bits of its float64 argument and result.

    These hold 20 bits of the mantissa.
    """
    high = np.uint64(0xFFFFFFFF00000000)

    def compute(x: Array) -> Array:
        x = (x.view(np.uint64) & high).view(np.float64)
        result = rounding.flush(function(rounding.flush(x)))
        return (result.view(np.uint64) & high).view(np.float64)

    return compute


# For each opcode: the function that rounds to nearest (also used for .approx and .full), then two items for directed
# rounding: the name in `rounding.rounded`, and a function that returns the operands for it.
_ROUNDED: dict[str, tuple[Function, str, Callable[..., tuple[Array, ...]]]] = {
    "add": (np.add, "add", lambda x, y: (x, y)),
    "sub": (np.subtract, "add", lambda x, y: (x, -y)),
    "mul": (np.multiply, "mul", lambda x, y: (x, y)),
    "div": (np.divide, "div", lambda x, y: (x, y)),
    "sqrt": (np.sqrt, "sqrt", lambda x: (x,)),
    "rcp": (np.reciprocal, "div", lambda x: (np.ones_like(x), x)),
}
_ROOT: Function = lambda x: 1.0 / np.sqrt(x)  # noqa: E731
_EXACT: dict[str, Function] = {
    "abs": np.abs, "neg": np.negative, "copysign": lambda x, y: np.copysign(y, x), "rsqrt": _wide(_ROOT),
    "sin": _wide(lambda x: np.sin(np.where(np.isinf(x), np.nan, x))),
    "cos": _wide(lambda x: np.cos(np.where(np.isinf(x), np.nan, x))),
    "ex2": _wide(np.exp2), "lg2": _wide(np.log2), "tanh": _wide(np.tanh),
}  # fmt: skip


@instruction(*_ROUNDED, *_EXACT, types=FLOATS)
def _arithmetic(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    # Only rcp and rsqrt, for which the PTX ISA defines that the lower 32 bits are ignored.
    if type_ == "f64" and {"approx", "ftz"} <= set(ins.modifiers):
        function = _upper(np.reciprocal if ins.opcode == "rcp" else _ROOT)
        return build_float(builder, ins._replace(modifiers=("f64",)), function, type_, keeps_nan=True)
    function, name, operands = _ROUNDED.get(ins.opcode) or (_EXACT[ins.opcode], "", None)
    mode = rounding_mode(ins)
    if operands is not None and mode != "rn":
        function = lambda *arguments: rounding.rounded(name, mode, *operands(*arguments))  # noqa: E731
    return build_float(builder, ins, function, type_, keeps_nan=ins.opcode == "copysign")


@instruction("fma", "mad", types=FLOATS)
def _fma(builder: Builder, ins: Instruction) -> Run:
    type_, mode = ins.modifiers[-1], rounding_mode(ins)
    # The product of two halves is exact in float64. The sum with a bfloat16 may be inexact, so it is rounded to odd.
    function: Function = lambda x, y, z: rounding.odd_sum(x * y, z)  # noqa: E731
    if type_ in ("f32", "f32x2", "f64"):
        function = rounding.fma64 if type_ == "f64" else rounding.fma32
        function = function if mode == "rn" else partial(rounding.rounded, "fma", mode)
    return build_float(builder, ins, function, type_)


def smallest(x: Array, y: Array) -> Array:
    """Return the minimum as PTX min defines it: if one operand is NaN, the other; -0 is less than +0."""
    result = np.fmin(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), result)


def largest(x: Array, y: Array) -> Array:
    """Return the maximum as PTX max defines it: if one operand is NaN, the other; +0 is greater than -0."""
    result = np.fmax(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), result)


@instruction("min", "max", types=FLOATS)
def _extreme(builder: Builder, ins: Instruction) -> Run:
    pick = smallest if ins.opcode == "min" else largest
    propagates_nan, by_size = "NaN" in ins.modifiers, "abs" in ins.modifiers

    def function(*arguments: Array) -> Array:
        result = np.abs(arguments[0]) if by_size else arguments[0]
        for argument in arguments[1:]:
            result = pick(result, np.abs(argument) if by_size else argument)
        if "xorsign" in ins.modifiers:
            sign = np.logical_xor(np.signbit(arguments[0]), np.signbit(arguments[1]))
            result = np.copysign(result, np.where(sign, -1.0, 1.0).astype(result.dtype))
        if propagates_nan:
            for argument in arguments:
                result = np.where(np.isnan(argument), argument.dtype.type(np.nan), result)
        return result

    return build_float(builder, ins, function, ins.modifiers[-1])


_TESTS: dict[str, Function] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "subnormal": lambda x: (np.abs(x) < np.finfo(x.dtype).tiny) & (x != 0),
}


@instruction("testp", types=("f32", "f64"))
def _testp(builder: Builder, ins: Instruction) -> Run:
    test, type_ = _TESTS.get(ins.modifiers[0]), ins.modifiers[-1]
    if test is None:
        raise refuse(ins)
    return elementwise(builder, ins, (type_,), "pred", test)
