"""Measure how much faster one worker for all cases of `run --fuzz` is than one process per case. Needs a GPU:

    python benchmarks/fuzz_cases.py [CASES [ROUNDS]]

Each kernel is fuzzed with CASES (20) cases: in turn, one worker runs all cases, and a new worker runs each case. A
worker starts Python, imports PyCUDA, makes a context and loads the protocol's kernels; the column `a case` is the
remaining time. Kernels are compiled before the clock starts; later they come from PyCUDA's cache.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from cudabench.devices import Choice
from cudabench.measure.fuzz import Fuzz
from cudabench.measure.session import Budget, Make, Session, SilentProgress
from cudabench.records.plan import Case, Settings
from cudabench.records.results import Result
from cudabench.userkernel.request import UserRequest

KERNELS = """
__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

__global__ void row_sums(int rows, int columns, const float *x, float *y)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0;
    for (int i = 0; i < columns; i++)
        sum += x[row * (size_t)columns + i];
    y[row] = sum;
}
"""

REQUESTS = {
    "saxpy": (("n=1048576", "a=2.5", "x=float32[n]:random", "y=float32[n]:random"), "y=a*x+y0", "cdiv(n,256)"),
    "row_sums": (
        ("rows=1024", "columns=1024", "x=float32[rows,columns]:random", "y=float32[rows]:empty"),
        "y=np.sum(x,axis=1)",
        "cdiv(rows,256)",
    ),
}


class Alone(Session):
    """A session that starts a new worker for each case."""

    def result(self, make: Make, case: Case, budget: Budget | None = None, left: int = 1) -> Result:
        """Return the result of a case."""
        self.end()
        return super().result(make, case, budget, left)


def seconds(request: UserRequest, cases: int, session: type[Session]) -> float:
    """Fuzz a kernel and return the seconds that all cases took."""
    fuzz = Fuzz(request, Choice("cuda"), Settings(), cases)
    fuzz.session = session(fuzz.device, fuzz.settings)
    start = time.monotonic()
    record = fuzz.run(SilentProgress().show_progress)
    took = time.monotonic() - start
    if record.failed or record.cases != cases:
        sys.exit(f"{request.kernels[0]}: {record}")
    return took


def main(cases: int, rounds: int) -> None:
    """Print a line for each kernel."""
    print(f"{cases} cases, median of {rounds} rounds, in s")
    print(f"{'kernel':<12}{'one worker':>12}{'one each':>12}{'ratio':>8}{'a case':>10}{'a worker':>10}")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.cu"
        file.write_text(KERNELS)
        for name, (arguments, expect, grid) in REQUESTS.items():
            request = UserRequest(str(file), (name,), grid, "256", arguments, (expect,))
            seconds(request, 1, Session)
            found = [[seconds(request, cases, session) for session in (Session, Alone)] for _ in range(rounds)]
            together, alone = (median(column) for column in zip(*found, strict=True))
            start = (alone - together) / (cases - 1)
            print(
                f"{name:<12}{together:>12.2f}{alone:>12.2f}{alone / together:>8.1f}"
                f"{(together - start) / cases:>10.3f}{start:>10.3f}",
                flush=True,
            )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    main(*(given + [20, 3][len(given) :]))
