"""The simulator as a device: the module variables that launches change, and their reset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cudabench.devices.sim import SimDevice
from cudabench.records.launch import Launch, Source, Unit
from cudabench.records.plan import Case
from cudabench.records.results import StateVariable
from tests.ladders import build, needs_compiler

STATE = """namespace ns { __device__ int total; __device__ int calm = 7; }
__constant__ int table[2] = {3, 4};

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    static unsigned calls;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) {
        calls++;
        ns::total += table[1];
        ns::calm = 7;
    }
    if (i < n)
        c[i] = a[i] + b[i];
}
"""
OTHER = '__device__ int mark = 1; extern "C" __global__ void tell(float *c) { mark = 2; c[0] = mark; }\n'


def case_of(text: str, **changes: object) -> Case:
    """Return a case of vecadd with this source text."""
    _, (case,) = build("vecadd", "naive", size=(100,))
    source = Source("own.cu", text, builtin=False)
    launches = tuple(replace(launch, function="add") for launch in case.launches)
    return replace(case, source=source, function="add", launches=launches, **changes)


def launch(device: SimDevice, case: Case) -> None:
    """Run a case on inputs of ones."""
    arrays = {name: np.ones(100, np.float32) for name in "abc"}
    report = device.run(case, arrays, trace=False, progress=lambda fraction: None).report
    assert report.hazards == ()


@needs_compiler
def test_state_is_told_and_reset() -> None:
    """The device lists the module variables that launches changed, with their lines; a reset restores all initial
    values."""
    device, case = SimDevice("sm_90"), case_of(STATE)
    assert device.changed(case) == []
    launch(device, case)
    told = device.changed(case)
    assert sorted(told, key=lambda variable: variable.variable) == [
        StateVariable("calls", 6), StateVariable("total", 1)
    ]  # fmt: skip
    device.reset(case)
    assert device.changed(case) == []
    program = device.load(case).program
    assert program.variable("_ZN2ns4calmE").view(np.int32).tolist() == [7]
    assert program.variable("table").view(np.int32).tolist() == [3, 4]
    launch(device, case)
    assert program.variable("_ZN2ns5totalE").view(np.int32).tolist() == [4]


@needs_compiler
def test_state_of_every_source_of_a_case() -> None:
    """For a case whose launches have several sources, the device lists and resets the variables of every source."""
    device = SimDevice("sm_90")
    unit = Unit(Source("other.cu", OTHER, builtin=False), {})
    case = case_of(STATE)
    case = replace(case, launches=(*case.launches, Launch("tell", (1, 1, 1), (1, 1, 1), ("c",), unit=unit)))
    launch(device, case)
    assert {variable.variable for variable in device.changed(case)} == {"calls", "total", "mark"}
    device.reset(case)
    assert device.changed(case) == []
