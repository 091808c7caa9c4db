"""Runs the microbenchmarks in the simulator: each kernel at its smallest size, only to verify its output, not to time
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cudabench.cards import Ceiling
from cudabench.ceilings import benchmark as benchmarks
from cudabench.ceilings import chapter, code
from cudabench.ceilings.benchmark import Extent, Microbenchmark, bytes_of
from cudabench.devices.sim import SimDevice
from cudabench.errors import CudabenchError, UnsupportedFeature
from cudabench.occupancy import capability
from cudabench.records.launch import POISON, Launch
from cudabench.records.plan import Case, Problem

NO_TIME = "the simulator does not measure time: the kernel ran and its result is right"
ARRAY_SPACING = 4096  # the least distance between two arrays, in bytes
NO_KERNEL = "the simulator lacks a host link, clock and power to measure"


@dataclass
class SimulatedCeilings:
    """Runs microbenchmarks on a simulated device."""

    device: SimDevice
    progress: Callable[[str, float], None] = lambda phase, fraction: None
    _held: dict[str, str] = field(default_factory=dict, init=False)

    def measure(self, name: str) -> Ceiling:
        """Run a microbenchmark and return its ceiling without a value; if the output is wrong, the ceiling's `reason`
        says how."""
        blank = benchmarks.blank(name)
        benchmark = chapter.BY_NAME.get(name)
        if benchmark is None:
            return replace(blank, status="skipped", reason=NO_KERNEL)
        if lack := benchmark.missing_feature(self.device.info.compute_capability):
            return replace(blank, status="skipped", reason=lack)
        try:
            return self._verify(benchmark, blank)
        except UnsupportedFeature as error:
            return replace(blank, status="skipped", reason=str(error).rstrip("."))
        except CudabenchError as error:
            return replace(blank, status="failed", reason=str(error).rstrip("."))

    def _verify(self, benchmark: Microbenchmark, blank: Ceiling) -> Ceiling:
        scale = benchmarks.in_simulator(self.device.architecture)
        single = benchmark.blocks in ("one", "single")
        passes = benchmark.passes(scale) or scale.most_passes
        blocks_per_sm = scale.empty_blocks if benchmark.blocks == "empty" else 1
        extent = Extent(scale, 1 if single else scale.sms * blocks_per_sm, passes)
        self.progress("compiling", 0)
        launches = [*benchmark.before(extent), benchmark.launch(extent)]
        case = case_of(benchmark, launches)
        compiled = self.device.load(case).compiled
        loop_code = ""
        if compiled.cubin is not None:
            claim = chapter.claim_of(benchmark, capability(self.device.architecture))
            entry = compiled.entry(benchmark.function)
            loop_code = code.check_loop(compiled.cubin, entry, claim)
            blank = code.with_hashes(blank, compiled.cubin, compiled.ptx, entry)
        arrays = _place_arrays(benchmark.arrays(extent))
        for name in benchmark.zeroed:
            arrays[name][:] = 0
        self.progress("running", 0)
        report = self.device.run(case, arrays, trace=False, progress=lambda done: self.progress("running", done)).report
        if report.hazards:
            return replace(blank, status="wrong", reason=report.hazards[0].message, code=loop_code)
        if check_launches := benchmark.check_launches(extent):
            for name in benchmark.zeroed:
                arrays[name][:] = 0
            self.device.run(case_of(benchmark, check_launches), arrays, trace=False, progress=lambda done: None)

        def read(name: str, first: int = 0, count: int | None = None, dtype: str = "uint32") -> np.ndarray:
            elements = arrays[name].view(dtype)
            return elements[first : None if count is None else first + count]

        if fault := benchmark.wrong(extent, read):
            return replace(blank, status="wrong", reason=fault, code=loop_code)
        return replace(blank, reason=NO_TIME, method=benchmark.method(extent), code=loop_code)


def _place_arrays(contents: Mapping[str, np.ndarray | int]) -> dict[str, np.ndarray]:
    """Return arrays at increasing addresses, by name; an array without content is filled with POISON."""
    sizes = [-(-bytes_of(content) // ARRAY_SPACING) * ARRAY_SPACING + ARRAY_SPACING for content in contents.values()]
    memory = np.full(sum(sizes), POISON, np.uint8)
    placed: dict[str, np.ndarray] = {}
    for (name, content), end in zip(contents.items(), np.cumsum(sizes), strict=True):
        placed[name] = memory[end - sizes[len(placed)] :][: bytes_of(content)]
        if not isinstance(content, int):
            placed[name] = placed[name].view(content.dtype)
            placed[name][:] = content
    return placed


def case_of(benchmark: Microbenchmark, launches: Sequence[Launch]) -> Case:
    """Return launches of `ceilings.cu` as a case, with the function, grid and block of the last launch."""
    last = launches[-1]
    return Case(
        operation="ceilings",
        kernel=benchmark.name,
        id=None,
        function=last.function,
        source=benchmarks.source(),
        problem=Problem({}, "uint32"),
        block=last.block,
        grid=last.grid,
        launches=tuple(launches),
        defines={},
        expects=benchmark.name,
    )
