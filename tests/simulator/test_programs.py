"""Programs: the parse of a function, done once, and the state that a program keeps between launches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from cudabench.simulator.errors import PtxError
from cudabench.simulator.program import ptx_parser

TWO = """.version 8.0
.target sm_90
.address_size 64
.visible .entry whole(.param .u64 whole_param_0)
{
    ret;
}
.visible .entry broken(.param .u64 broken_param_0)
{
    mov.u32 %r1, <;
    ret;
}
"""


def test_only_a_function_that_is_launched_is_parsed() -> None:
    """A kernel whose body does not parse is an error only when that kernel is launched."""
    program = simulator.load(TWO)
    assert [*program.kernels] == ["whole", "broken"]
    assert simulator.run(program, "whole", 1, 32, [np.zeros(1)]).hazards == ()
    with pytest.raises(PtxError):
        simulator.run(program, "broken", 1, 32, [np.zeros(1)])


def test_functions_are_parsed_once() -> None:
    """A second lookup of a function returns the same object."""
    functions = ptx_parser.parse(TWO).functions
    assert functions["whole"] is functions["whole"]
    assert (len(functions), [*functions.entries], [*functions.holding]) == (2, ["whole", "broken"], [])


def test_counts_after_a_reset_do_not_depend_on_earlier_launches(compiled: Callable[..., simulator.Program]) -> None:
    """The simulator examines later launches of a kernel less often; after a reset it examines the next launch like the
    first."""
    source = """
extern "C" __global__ void k(const float *in, float *out, int step) {
    out[threadIdx.x] = in[threadIdx.x * step];
}"""
    x, y = np.ones(2048, np.float32), np.zeros(32, np.float32)

    def patterns(program: simulator.Program, *steps: int) -> list[object]:
        reports = [simulator.run(program, "k", 1, 32, [x, y, np.int32(step)]) for step in steps]
        return [row.patterns for row in reports[-1].accesses]

    program = compiled(source)
    alone = patterns(program, 16)
    program.reset()
    patterns(program, *[1] * 9)
    program.reset()
    assert patterns(program, 16) == alone
