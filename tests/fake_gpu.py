"""A worker whose GPU is host memory: the session, the worker and the protocol are the real ones, only the kernels and
the clock are invented. Run by the session in a process of its own.

A kernel's name says what it does: `double` writes 2 * x into y; `double_slow` takes 1% longer; `double_late` is wrong
from its 40th launch; `double_wrong` always; `double_dies` takes the process with it. TICK of the macros is the time of
a sample in microseconds, NOISE=0 leaves its scatter out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.devices import cuda
from cudabench.measure import worker
from cudabench.model import Launch, Source
from tests.conftest import FakeDevice


class FakeGpu(FakeDevice):
    """Host memory with a clock that drifts and ticks every 32 ns."""

    def __init__(self, index: int = 0, *, primary: bool = False) -> None:
        super().__init__(lambda buffers: None)
        self.random = np.random.default_rng(7)
        self.launched = 0

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def load(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> Any:
        """Return a module that remembers its macros."""
        module = super().load(source, defines, names)
        module.defines = dict(defines)
        return module

    def bind(self, module: Any, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Callable[[], None]:
        """Return the kernel that the launch's function names."""
        name = launches[0].function
        super_bind = super().bind

        def kernel(buffers: dict[str, np.ndarray]) -> None:
            self.launched += 1
            if "dies" in name:
                os._exit(9)
            wrong = "wrong" in name or ("late" in name and self.launched > 40)
            buffers["y"].view(np.float32)[:] = (3 if wrong else 2) * buffers["x"].view(np.float32)

        self.kernel = kernel
        inner = super_bind(module, launches, pointers)

        def work() -> None:
            self.kernel = kernel
            inner()

        defines = getattr(module, "defines", {})
        work.seconds = (  # type: ignore[attr-defined]
            float(defines.get("TICK", 20)) * 1e-6 * (1.01 if "slow" in name else 1.0),
            float(defines.get("NOISE", 1)),
        )
        return work

    def sample(
        self, works: Sequence[Callable[[], None]], cache: str, before: Sequence[Callable[[], None]] = ()
    ) -> float:
        """Run, and return an invented time: the card warms up by 10% in a thousand samples."""
        for work in (*before, *works):
            work()
        self.samples += 1
        base, noise = getattr(works[-1], "seconds", (1e-5, 1.0))
        level = base * (1 + 1e-4 * self.samples) * (1 + 0.005 * noise * float(self.random.standard_normal()))
        return round(level / 32e-9) * 32e-9


if __name__ == "__main__":
    cuda.CudaDevice = FakeGpu  # type: ignore[assignment, misc]
    worker.main(int(sys.argv[1]), int(sys.argv[2]))
