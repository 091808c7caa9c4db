"""A fake GPU for the ceilings, and its worker: host memory, simulated kernels, and an invented clock."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from cudabench.ceilings import benchmark
from cudabench.compile import compiler
from cudabench.compile.record import Compiled, Resources
from cudabench.devices.sim import argument_of
from cudabench.records.launch import Launch, Source
from cudabench.records.results import DeviceInfo
from cudabench.simulator import api as simulator

INFO = DeviceInfo(
    "NVIDIA Fake", "cuda", "9.0", sm_count=2, l2_bytes=1 << 17, peak_gbps=4800.0,
    clocks={"sm_mhz": 1980, "memory_mhz": 3201}, uuid="GPU-fake", memory_bytes=1 << 30, index=0,
)  # fmt: skip


load = functools.cache(simulator.load)  # the chapter has no state between launches


class Module:
    """The chapter, compiled for the GPU."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled, self.program = compiled, load(compiled.ptx)
        self.variables: tuple[Any, ...] = ()
        self.ptx = compiled.ptx

    def images(self, names: Sequence[str]) -> list[tuple[bytes, list[str]]]:
        """Return the cubin."""
        assert self.compiled.cubin is not None
        return [(self.compiled.cubin, [self.compiled.entry(name) for name in names])]

    def resources(self, name: str) -> Resources:
        """Return the resources that ptxas reports."""
        return self.compiled.resources[self.compiled.entry(name)]


class SimulatedGpu:
    """The part of a device that ceilings use. `faults` has, by kernel, a function that spoils the arrays after a
    launch; a kernel in `dying` ends the context."""

    def __init__(self, info: DeviceInfo = INFO) -> None:
        self.info = info
        self.arena = np.full(1 << 24, 0xA5, np.uint8)
        self.memory: dict[int, np.ndarray] = {}
        self.faults: dict[str, Callable[[dict[str, np.ndarray]], None]] = {}
        self.dying: set[str] = set()
        self.seconds = 4e-4  # of every launch
        self.dead = False
        self.texts: list[str] = []
        self.done: set[int] = set()

    def load(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> Module:
        """Compile for the card's capability."""
        self.texts.append(source.text)
        arch = "sm_" + self.info.compute_capability.replace(".", "")
        return Module(
            compiler.compile_cubin(source.text, source.name, arch=arch, defines=defines, include_dirs=source.folders)
        )

    def free_bytes(self) -> int:
        """Return 1 GiB."""
        return 1 << 30

    def allocate(self, nbytes: int, *, own_page: bool = False) -> int:
        """Return an address that no other allocation overlaps."""
        pointer = max((base + array.size + 8191 for base, array in self.memory.items()), default=4096) // 4096 * 4096
        self.memory[pointer] = self.arena[pointer : pointer + nbytes]
        return pointer

    def release(self, pointer: int) -> None:
        """Free an allocation."""
        del self.memory[pointer]

    def _at(self, pointer: int, nbytes: int) -> np.ndarray:
        base = max(b for b in self.memory if b <= pointer)
        return self.memory[base][pointer - base :][:nbytes]

    def upload(self, pointer: int, array: np.ndarray) -> None:
        """Copy an array to the device."""
        self._at(pointer, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def download(self, pointer: int, array: np.ndarray) -> None:
        """Copy an array from the device."""
        array.reshape(-1).view(np.uint8)[:] = self._at(pointer, array.nbytes)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return host memory."""
        return np.empty(nbytes, np.uint8)

    def fill(self, pointer: int, nbytes: int, byte: int) -> Callable[[], None]:
        """Return a function that fills memory with a byte."""
        return lambda: self._at(pointer, nbytes).fill(byte)

    def bind(self, module: Module, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Callable[[], None]:
        """Return a function that simulates the launches."""

        def work() -> None:
            arrays = {name: self.memory[pointer] for name, pointer in pointers.items()}
            for launch in launches:
                if launch.function in self.dying:
                    self.dead = True
                simulator.run(
                    module.program,
                    module.compiled.entry(launch.function),
                    launch.grid,
                    launch.block,
                    [argument_of(a, arrays) for a in launch.arguments],
                    shared_bytes=launch.shared_bytes,
                    # A launch may follow addresses that another launch stored.
                    beside={str(base): array for base, array in self.memory.items()},
                    first_slot=8,
                )
                if launch.function in self.faults:
                    self.faults[launch.function](arrays)

        return work

    def run(self, work: Callable[[], None], doing: str) -> None:
        """Run at once; raises DeviceError if the context has died."""
        from cudabench.errors import DeviceError

        work()
        if self.dead:
            raise DeviceError(f"CUDA failed while {doing}: an illegal memory access was encountered.")

    def sample(self, works: Sequence[Callable[[], None]], cache: str, before: Sequence[Any] = ()) -> float:
        """Return the invented seconds; each work is simulated only the first time."""
        for work in (*before, *dict.fromkeys(works)):
            if id(work) not in self.done:
                self.done.add(id(work))
                self._kept = (*getattr(self, "_kept", ()), work)  # keep the work, since its id could be reused
                self.run(work, "timing the kernel")
        return self.seconds

    def alive(self) -> bool:
        """Return whether the context is alive."""
        return not self.dead


def scale(capability: str = "9.0") -> benchmark.Scale:
    """Return the problem sizes for the simulator."""
    return benchmark.in_simulator("sm_" + capability.replace(".", ""))


if __name__ == "__main__":
    import os
    from dataclasses import replace

    from cudabench.ceilings import gpu
    from cudabench.ceilings.gpu import measuring
    from cudabench.measure.worker import serve

    gpu.WARM_UP_S = 0.0
    spoilt = os.environ.get("CEILINGS_DIE", "")

    def run(device: Any, report_progress: Any) -> Callable[[Any], Any]:
        """Measure on the simulated GPU; the kernel named in CEILINGS_DIE ends its context."""
        device.dying = {spoilt} if spoilt else set()
        run_task = measuring(device, report_progress, scale=scale())
        return lambda task: run_task((task[0], replace(task[1], min_time=0.0, max_time=9.0, min_samples=1)))

    serve(sys.argv[1:], run, lambda index, primary: nullcontext(SimulatedGpu()))
