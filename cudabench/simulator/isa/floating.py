"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5).

float32 and float64 results are rounded as the instruction says. The `.approx` functions are computed in full
precision, which lies within the error that the PTX ISA allows them. Half precision is computed wider and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.count import detours
from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import DTYPES, Array, as_array, truth

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


FLOATS = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2", "f32x2")
SPARSE = 8  # one lane of so many active, and a costly function is computed for those alone
_F32, _F64 = rounding.F32, rounding.F64
ROUNDINGS = ("rn", "rz", "rm", "rp")
Function = Callable[..., Array]


def rounding_mode(ins: Instruction) -> str:
    """Return rn, rz, rm or rp; nearest is the default."""
    return next((word for word in ins.modifiers if word in ROUNDINGS), "rn")


def compute_halves(function: Function, type_: str) -> Function:
    """Return the function on bits of f16, bf16 or packed pairs, computed in float64 and rounded once."""

    def unpack(bits: Array) -> Array:
        if type_.startswith("bf16"):
            return rounding.from_bf16(bits).astype(np.float64)
        return bits.view(np.float16).astype(np.float64)

    def pack(result: Array) -> Array:
        if type_.startswith("bf16"):
            return rounding.to_bf16(result)
        return np.where(np.isnan(result), np.uint16(0x7FFF), result.astype(np.float16).view(np.uint16))

    def single(*arguments: Array) -> Array:
        return pack(function(*[unpack(argument) for argument in arguments]))

    def double(*arguments: Array) -> Array:
        low = single(*[(argument & np.uint32(0xFFFF)).astype(np.uint16) for argument in arguments])
        high = single(*[(argument >> np.uint32(16)).astype(np.uint16) for argument in arguments])
        return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))

    return double if type_.endswith("x2") else single


def compute_pairs(function: Function) -> Function:
    """Return the function on 64-bit registers that hold two float32."""

    def pair(*arguments: Array) -> Array:
        halves = []
        for shift in (0, 32):
            parts = [(argument >> np.uint64(shift)).astype(np.uint32).view(np.float32) for argument in arguments]
            halves.append(function(*parts).view(np.uint32).astype(np.uint64))
        return halves[0] | (halves[1] << np.uint64(32))

    return pair


def build_float(builder: Builder, ins: Instruction, function: Function, type_: str) -> Run:
    """Return the run of a floating-point instruction on all its source operands."""
    if type_ not in FLOATS:
        raise refuse(ins)
    flushed, saturated = "ftz" in ins.modifiers, "sat" in ins.modifiers
    relu = "relu" in ins.modifiers
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

    bits = type_
    if type_ in ("f16", "bf16"):
        bits = "b16"
    elif type_ in ("f16x2", "bf16x2"):
        bits = "b32"
    elif type_ == "f32x2":
        bits = "b64"
    if type_ == "f32x2":
        function = compute_pairs(function)
    elif bits != type_:
        function = compute_halves(function, type_)
    target = builder.target(ins.operands[0])
    sources = tuple(
        builder.source(operand, bits if type_ not in ("f32", "f64") else type_) for operand in ins.operands[1:]
    )
    dtype = DTYPES[bits]
    compute = function
    if len(sources) == 2:
        first, second = sources

        def run_two(machine: Machine) -> None:
            registers, chunk = machine.registers, machine.chunk
            machine.put(
                target, compute(as_array(registers[first], dtype, chunk), as_array(registers[second], dtype, chunk))
            )

        return run_two

    def run(machine: Machine) -> None:
        registers, chunk = machine.registers, machine.chunk
        machine.put(target, compute(*[as_array(registers[source], dtype, chunk) for source in sources]))

    def run_where_active(machine: Machine) -> None:
        mask = machine.mask
        values = [as_array(machine.registers[source], dtype, machine.chunk) for source in sources]
        shape = np.broadcast_shapes(*(value.shape for value in values))
        if mask is None or mask.shape != shape or SPARSE * np.count_nonzero(mask) > mask.size:
            machine.put(target, compute(*values))
            return
        result = np.zeros(mask.shape, dtype=dtype)
        result[mask] = compute(*[np.broadcast_to(value, mask.shape)[mask] for value in values])
        machine.put(target, result)

    return run_where_active if function is rounding.fma64 else run


def counted(builder: Builder, ins: Instruction, run: Run) -> Run:
    """Return the run of a division or root that also notes which lanes call the subroutine behind the kernel."""
    rule = detours.rule(ins.opcode, ins.modifiers)
    if rule is None:
        return run
    dtype, line = DTYPES[ins.modifiers[-1]], ins.location.ptx_line
    sources = tuple(builder.source(operand, ins.modifiers[-1]) for operand in ins.operands[1:])

    def run_counted(machine: Machine) -> None:
        values = [as_array(machine.registers[source], dtype, machine.chunk) for source in sources]
        called = rule(*values)
        if called.any():
            machine.detour(line, called, values[0] == 0)
        run(machine)

    return run_counted


def _directed(ins: Instruction, plain: Function, directed: Callable[..., Array]) -> Function:
    mode = rounding_mode(ins)
    if mode == "rn":
        return plain
    return lambda *arguments: directed(*arguments, mode)


@instruction("add", types=FLOATS)
def build_add(builder: Builder, ins: Instruction) -> Run:
    """Build add."""
    return build_float(builder, ins, _directed(ins, np.add, rounding.add), ins.modifiers[-1])


@instruction("sub", types=FLOATS)
def build_sub(builder: Builder, ins: Instruction) -> Run:
    """Build sub."""
    function = _directed(ins, np.subtract, lambda x, y, mode: rounding.add(x, -y, mode))
    return build_float(builder, ins, function, ins.modifiers[-1])


@instruction("mul", types=FLOATS)
def build_mul(builder: Builder, ins: Instruction) -> Run:
    """Build mul."""
    return build_float(builder, ins, _directed(ins, np.multiply, rounding.multiply), ins.modifiers[-1])


def _fma(ins: Instruction) -> Function:
    type_ = ins.modifiers[-1]
    if type_ in ("f32", "f32x2"):
        return _directed(ins, rounding.fma32, rounding.fma)
    if type_ == "f64":
        return _directed(ins, rounding.fma64, rounding.fma)
    # The product of two halves is exact in float64; the sum with a bfloat16 may not be.
    return lambda x, y, z: rounding.odd_sum(x * y, z)


@instruction("fma")
def build_fma(builder: Builder, ins: Instruction) -> Run:
    """Build fma."""
    return build_float(builder, ins, _fma(ins), ins.modifiers[-1])


@instruction("mad", types=FLOATS)
def build_mad(builder: Builder, ins: Instruction) -> Run:
    """Build mad; for floats it is fma."""
    return build_float(builder, ins, _fma(ins), ins.modifiers[-1])


@instruction("div", types=FLOATS)
def build_div(builder: Builder, ins: Instruction) -> Run:
    """Build div; .approx and .full are rounded to nearest."""
    run = build_float(builder, ins, _directed(ins, np.divide, rounding.divide), ins.modifiers[-1])
    return counted(builder, ins, run)


def smallest(x: Array, y: Array) -> Array:
    """Return the minimum, a number before NaN, -0 below +0 (PTX ISA: min)."""
    found = np.fmin(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), found)


def largest(x: Array, y: Array) -> Array:
    """Return the maximum, a number before NaN, +0 above -0."""
    found = np.fmax(x, y)
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), found)


@instruction("min", "max", types=FLOATS)
def build_min(builder: Builder, ins: Instruction) -> Run:
    """Build min and max, with two or three operands."""
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


@instruction("abs", types=FLOATS)
def build_abs(builder: Builder, ins: Instruction) -> Run:
    """Build abs."""
    return build_float(builder, ins, np.abs, ins.modifiers[-1])


@instruction("neg", types=FLOATS)
def build_neg(builder: Builder, ins: Instruction) -> Run:
    """Build neg."""
    return build_float(builder, ins, np.negative, ins.modifiers[-1])


@instruction("copysign")
def build_copysign(builder: Builder, ins: Instruction) -> Run:
    """Build copysign: the sign of a with the size of b."""
    return build_float(builder, ins, lambda x, y: np.copysign(y, x), ins.modifiers[-1])


def _wide(function: Function) -> Function:
    """Return a function computed in float64 and rounded to its argument's type."""

    def compute(x: Array) -> Array:
        return function(x.astype(np.float64)).astype(x.dtype)

    return compute


def _sine(x: Array) -> Array:
    return np.sin(np.where(np.isinf(x), np.nan, x))


def _cosine(x: Array) -> Array:
    return np.cos(np.where(np.isinf(x), np.nan, x))


@instruction("sqrt")
def build_sqrt(builder: Builder, ins: Instruction) -> Run:
    """Build sqrt."""
    run = build_float(builder, ins, _directed(ins, np.sqrt, rounding.square_root), ins.modifiers[-1])
    return counted(builder, ins, run)


@instruction("rcp")
def build_rcp(builder: Builder, ins: Instruction) -> Run:
    """Build rcp; rcp.approx.ftz.f64 keeps the upper 20 bits of the mantissa, as the PTX ISA defines it."""
    type_ = ins.modifiers[-1]
    if type_ == "f64" and "approx" in ins.modifiers:
        return build_float(builder, ins._replace(modifiers=("f64",)), _upper(lambda x: 1.0 / x), type_)
    function = _directed(ins, lambda x: x.dtype.type(1) / x, lambda x, mode: rounding.divide(np.ones_like(x), x, mode))
    return counted(builder, ins, build_float(builder, ins, function, type_))


def _upper(function: Function) -> Function:
    def compute(x: Array) -> Array:
        x = (x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
        found = rounding.flush(function(rounding.flush(x)))
        return (found.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    return compute


@instruction("rsqrt")
def build_rsqrt(builder: Builder, ins: Instruction) -> Run:
    """Build rsqrt."""
    type_ = ins.modifiers[-1]
    if type_ == "f64" and "ftz" in ins.modifiers:
        return build_float(builder, ins._replace(modifiers=("f64",)), _upper(lambda x: 1.0 / np.sqrt(x)), type_)
    return counted(builder, ins, build_float(builder, ins, _wide(lambda x: 1.0 / np.sqrt(x)), type_))


def _unary(name: str, function: Function) -> None:
    @instruction(name)
    def build(builder: Builder, ins: Instruction) -> Run:
        return build_float(builder, ins, _wide(function), ins.modifiers[-1])


_unary("sin", _sine)
_unary("cos", _cosine)
_unary("ex2", np.exp2)
_unary("lg2", np.log2)
_unary("tanh", np.tanh)


@instruction("testp")
def build_testp(builder: Builder, ins: Instruction) -> Run:
    """Build testp: the class of a float."""
    kind, type_ = ins.modifiers[0], ins.modifiers[-1]
    target = builder.target(ins.operands[0])
    source = builder.source(ins.operands[1], type_)
    dtype = DTYPES[type_]
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(dtype).tiny),
        "subnormal": lambda x: (np.abs(x) < np.finfo(dtype).tiny) & (x != 0),
    }
    if kind not in tests:
        raise refuse(ins)
    test = tests[kind]

    def run(machine: Machine) -> None:
        machine.put(target, truth(test(machine.array(source, dtype))))

    return run
