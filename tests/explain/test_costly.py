"""Arithmetic that is unexpectedly expensive is named with its lines, and only where it runs."""

from __future__ import annotations

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx
from cudabench.explain.costly import hidden_costs, literals, literals_of_macros
from cudabench.simulator import api as simulator
from cudabench.simulator.report import Executed
from tests.ladders import needs_compiler

pytestmark = pytest.mark.machine_code

SOURCE = """extern "C" __global__ void k(long long *q, float *f, const long long *a, const long long *b, float scale) {
    int i = threadIdx.x;
    q[i] = a[i] / b[i];
    f[i] = f[i] * 3.14;
    f[i] = f[i] * 2.0f + scale;
    double sum = 0;
    for (int j = 0; j < 4; j++) sum += f[i];
    f[i] = sum;
    f[i] += sinf(f[i]);
    if (scale < 0) q[i] %= b[i + 1];
}
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    """Return the kernel's PTX."""
    return compile_ptx(SOURCE, "costly.cu").ptx


@needs_compiler
@pytest.mark.parametrize(
    ("large", "scale", "want"),
    [
        (10**12, 1.0, {"division": (3,), "double": (4,)}),
        (10**12, -1.0, {"division": (3, 10), "double": (4,)}),
        (10, 1.0, {"double": (4,)}),
    ],
    ids=["wide", "branch", "narrow"],
)
def test_lines(ptx: str, large: int, scale: float, want: dict[str, tuple[int, ...]]) -> None:
    """A division is named where its operands need 64 bits; intended sums in double and accurate functions are not
    named."""
    a, b = np.full(65, large, np.int64), np.full(65, large // 3 if large > 10 else 3, np.int64)
    arguments = [np.zeros(64, np.int64), np.ones(64, np.float32), a, b, np.float32(scale)]
    report = simulator.run(ptx, "k", 1, 64, arguments)
    found = hidden_costs(ptx.splitlines(), report.executed["k"], "costly.cu")
    assert {costly.kind: costly.lines for costly in found} == want
    assert {costly.instructions for costly in found if costly.kind == "division"} <= {2 * len(want.get("division", ()))}


def test_other_files_are_not_named() -> None:
    """A line of a header, or a line that never ran, is not named."""
    lines = ['.file 1 "costly.cu"', '.file 2 "math.h"', ".loc 2 7 1", "div.s64 %rd1, %rd2, %rd3;", ".loc 1 9 1"]
    lines += ["div.s64 %rd1, %rd2, %rd3;"]
    ran = {4: Executed(3, 96), 6: Executed()}
    assert hidden_costs(lines, ran, "costly.cu") == []
    assert hidden_costs(lines, {**ran, 6: Executed(2, 64)}, "costly.cu")[0].instructions == 2


def test_literals_of_macros() -> None:
    """A line without a literal gets the literals of the macros that it uses, and no others."""
    source = "#define DX 0.01 // spacing\n# define DT 0.5f\n#define FAR 3.0\n"
    assert literals(["u / (DX * DX) + DT;"]) == []
    assert literals_of_macros(["u / (DX * DX) + DT;"], source) == ["0.01"]
