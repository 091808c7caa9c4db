"""The simulator as a device: compile to PTX, run every launch, count and check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from cudabench import compiler, simulator
from cudabench.errors import CudabenchError, UnsupportedFeature
from cudabench.model import Case, DeviceInfo, Launch, Resources
from cudabench.occupancy import Occupancy, occupancy

Arrays = dict[str, np.ndarray]
POISON = 0xFF


@dataclass(frozen=True)
class Run:
    """What a kernel did: the report of all its launches together, and what ptxas spends on it."""

    report: simulator.Report
    resources: Resources
    occupancy: Occupancy


@dataclass
class SimDevice:
    """A simulated GPU of one architecture, such as sm_90."""

    architecture: str
    info: DeviceInfo = field(init=False)
    _compiled: dict[object, tuple[simulator.Program, Mapping[str, str]]] = field(default_factory=dict)
    _spent: dict[object, Mapping[str, compiler.Resources]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        capability = capability_of(self.architecture)
        self.info = DeviceInfo(f"Simulator of {self.architecture}", "sim", capability)

    def load(self, case: Case) -> tuple[simulator.Program, Mapping[str, str]]:
        """Return the program of a case and its functions' entry names. Raises CompilerError.

        Raises UnsupportedFeature, with all of them, where the kernel uses what the simulator lacks.
        """
        functions = list(dict.fromkeys(launch.function for launch in case.launches))
        # A chapter's kernels are extern "C": compiled once, it serves them all.
        names = () if case.source.builtin else tuple(functions)
        key = (case.source, tuple(case.defines.items()), names)
        if key not in self._compiled:
            compiled = compiler.compile_ptx(
                case.source.text,
                case.source.name,
                arch=self.architecture,
                defines=case.defines,
                include_dirs=case.source.folders,
                names=names,
            )
            self._compiled[key] = (simulator.load(compiled.ptx), compiled.lowered)
        program, lowered = self._compiled[key]
        lacks = [lack for function in functions for lack in program.unsupported(lowered.get(function, function))]
        if lacks:
            listed = "; ".join(dict.fromkeys(f"{lack.file}:{lack.line}: {lack.feature}" for lack in lacks))
            raise UnsupportedFeature(f"{case.kernel} uses what the simulator lacks ({listed}): run it on a GPU.")
        return program, lowered

    def spent(self, case: Case) -> tuple[Resources, Occupancy]:
        """Return what ptxas spends on the kernel's main function, and the occupancy that follows."""
        _, lowered = self.load(case)
        key = (case.source, tuple(case.defines.items()), None if case.source.builtin else case.function)
        if key not in self._spent:
            with demangled(lowered):
                self._spent[key] = compiler.resources(
                    case.source.text,
                    case.source.name,
                    arch=self.architecture,
                    defines=case.defines,
                    include_dirs=case.source.folders,
                    names=[case.function],
                )
        of = self._spent[key][lowered.get(case.function, case.function)]
        dynamic = max(launch.shared_bytes for launch in case.launches)
        resources = Resources(of.registers, of.shared_bytes + dynamic, of.local_bytes)
        threads = case.block[0] * case.block[1] * case.block[2]
        capability, shared = self.info.compute_capability, resources.shared_bytes
        return resources, occupancy(capability, threads, of.registers, shared, barriers=of.barriers)

    def run(self, case: Case, arrays: Arrays, *, trace: bool, progress: Callable[[float], None]) -> Run:
        """Run all launches of a case on arrays, which change in place."""
        program, lowered = self.load(case)
        resources, fits = self.spent(case)
        reports = []
        for done, launch in enumerate(case.launches):

            def inside(blocks: int, of: int, done: int = done) -> None:
                progress((done + blocks / of) / len(case.launches))

            with demangled(lowered):
                report = simulator.run(
                    program,
                    lowered.get(launch.function, launch.function),
                    launch.grid,
                    launch.block,
                    [arrays[a] if isinstance(a, str) else a for a in launch.arguments],
                    shared_bytes=launch.shared_bytes,
                    names=_names(launch),
                    trace=trace,
                    progress=inside,
                )
            reports.append(report)
        return Run(simulator.merge(reports), resources, fits)


@contextmanager
def demangled(lowered: Mapping[str, str]) -> Iterator[None]:
    """Let errors name functions as the user does."""
    try:
        yield
    except CudabenchError as error:
        message = str(error)
        for name, entry in lowered.items():
            message = message.replace(entry, name)
        raise type(error)(message) from error


def poisoned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of 0xFF bytes."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8).fill(POISON)
    return array


def capability_of(architecture: str) -> str:
    """Return 'sm_90' as '9.0'."""
    digits = architecture.removeprefix("sm_").rstrip("af")
    return f"{digits[:-1]}.{digits[-1]}"


def _names(launch: Launch) -> list[str]:
    return [a if isinstance(a, str) else "" for a in launch.arguments]
