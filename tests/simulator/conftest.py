"""Helpers to run PTX snippets and CUDA source in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.simulator import api as simulator

Array = np.ndarray[Any, Any]
HEAD = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "snippet.cu"\n'
WIDTHS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def evaluate(
    instruction: str,
    result: np.dtype[Any] | type,
    *operands: Array,
    declare: str = "",
    hazards: Collection[str] = frozenset(),
) -> Array:
    """Run one instruction on arrays of operands, one lane each.

    In the text `{d}` is the destination and `{0}`, `{1}`, ... are the operands' registers. Registers have the
    operands' widths (bytes are held in 16 bits). `hazards`: the kinds of hazards that the launch must have.
    """
    dtype = np.dtype(result)
    count = operands[0].size
    names = [f"%x{place}" for place in range(len(operands))]
    lines = [HEAD, ".visible .entry k(.param .u64 out, .param .u32 n"]
    lines += [f", .param .u64 in{place}" for place in range(len(operands))]
    lines += [")\n{\n.reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %a<9>;\n"]

    def bits(width: int) -> str:
        return f".b{max(16, 8 * width)}"

    for name, operand in zip(names, operands, strict=True):
        lines.append(f".reg {bits(operand.itemsize)} {name};\n")
    lines.append(f".reg {bits(dtype.itemsize)} %d;\n{declare}\n")
    lines.append(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 64, %r2;\nld.param.u32 %r4, [n];\n"
        "setp.ge.u32 %p1, %r3, %r4; @%p1 ret;\n"
    )
    for place, (name, operand) in enumerate(zip(names, operands, strict=True)):
        width = operand.itemsize
        lines.append(f"ld.param.u64 %a1, [in{place}]; mul.wide.u32 %a2, %r3, {width}; add.u64 %a1, %a1, %a2;\n")
        lines.append(f"ld.global.{WIDTHS[width]} {name}, [%a1];\n")
    lines.append(".loc 1 7 1\n" + instruction.format(*names, d="%d") + "\n")
    lines.append(f"ld.param.u64 %a1, [out]; mul.wide.u32 %a2, %r3, {dtype.itemsize}; add.u64 %a1, %a1, %a2;\n")
    lines.append(f"st.global.{WIDTHS[dtype.itemsize]} [%a1], %d;\nret;\n}}\n")
    out = np.zeros(count, dtype)
    arguments = [out, count, *(np.ascontiguousarray(operand) for operand in operands)]
    report = simulator.run("".join(lines), "k", -(-count // 64), 64, arguments)
    assert {hazard.kind for hazard in report.hazards} == hazards
    return out


@pytest.fixture(scope="session")
def compiled() -> Callable[..., simulator.Program]:
    """Return a function that compiles CUDA source (kernels are extern "C") with NVRTC, once for each text."""
    if nvrtc_version() is None:
        pytest.skip("needs NVRTC")
    programs: dict[Any, simulator.Program] = {}

    def compile_(source: str, **options: Any) -> simulator.Program:
        key = (source, tuple(sorted(options.items())))
        if key not in programs:
            programs[key] = simulator.load(compile_ptx(source, "test.cu", **options).ptx)
        return programs[key]

    return compile_


@pytest.fixture(scope="session")
def launch(compiled: Callable[..., simulator.Program]) -> Callable[..., simulator.Report]:
    """Return a function that compiles source and launches its kernel `k`."""

    def launch_(source: str, grid: Any, block: Any, arguments: Sequence[Any], **options: Any) -> simulator.Report:
        return simulator.run(compiled(source), options.pop("kernel", "k"), grid, block, arguments, **options)

    return launch_
