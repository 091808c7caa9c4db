"""The simulator as a device: compiles kernels to PTX, runs every launch, counts accesses and checks for hazards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from cudabench.cards.load import Card
from cudabench.compile import compiler, cubin
from cudabench.compile.limits import CompilerStopped
from cudabench.compile.record import Compiled, Resources
from cudabench.devices.constants import check_constant, constant_name
from cudabench.devices.protocol import OVER_BUFFERS
from cudabench.errors import BlockDoesNotFit, CompilerError, CudabenchError, UnsupportedFeature
from cudabench.occupancy import MAX_THREADS_PER_BLOCK, Occupancy, capability, check_resident, occupancy
from cudabench.records.launch import LARGE, POISON, ByValue, Dim, Launch, Rows, Surface, TensorMap, Texture
from cudabench.records.plan import Case
from cudabench.records.results import DeviceInfo, StateVariable, Watch
from cudabench.simulator import api as simulator
from cudabench.simulator.errors import remedy
from cudabench.simulator.machine_code import image
from cudabench.simulator.machine_code.image import Kernel
from cudabench.simulator.machine_code.launch import MachineCodeRequest
from cudabench.symbols import plain_name, readable
from cudabench.system import native

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Launched:
    """The launches of a case that have the same function, grid, block, shared memory and cluster.

    `launch`: the first of these launches; `times`: the number of launches; `report`: their reports, merged into one.
    """

    launch: Launch
    times: int
    report: simulator.Report


@dataclass(frozen=True)
class Run:
    """The run of a case. `report`: the merged report of all launches; `resources`, `occupancy`: those of the case's
    main function, with dynamic shared memory. `launched`: if footprints were requested, the groups of equal launches,
    in the order of each group's first launch; else empty."""

    report: simulator.Report
    resources: Resources
    occupancy: Occupancy
    launched: tuple[Launched, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """A compiled source file, and the program that the simulator made of its PTX."""

    compiled: Compiled
    program: simulator.Program


@dataclass
class SimDevice:
    """A simulated GPU of one architecture, such as sm_90."""

    architecture: str
    info: DeviceInfo = field(init=False)
    _loaded: dict[object, Loaded] = field(default_factory=dict)

    def __post_init__(self) -> None:
        major, minor = capability(self.architecture)
        self.info = DeviceInfo(f"Simulator of {self.architecture}", "sim", f"{major}.{minor}")
        # This builds the native engine if needed. Do it now, because forked processes have a memory limit that may be
        # too low.
        native.library()

    def load(self, case: Case) -> Loaded:
        """Compile a case's own source.

        Raises CompilerError, or UnsupportedFeature if ptxas refuses a kernel that the simulator cannot run either.
        """
        case = case.parts[0]
        functions = tuple(dict.fromkeys(launch.function for launch in case.launches))
        # The kernels of a file in kernels_cu/ are extern "C", so their names need not be requested. One compilation
        # serves all kernels of the file.
        names = () if case.source.builtin else functions
        key = (case.source, tuple(case.defines.items()), names)
        if key not in self._loaded:
            self._loaded[key] = self._load(case, functions, names)
        return self._loaded[key]

    def _load(self, case: Case, functions: Sequence[str], names: Sequence[str]) -> Loaded:
        def compiled(compile: Callable[..., Compiled]) -> Loaded:
            record = compile(
                case.source.text,
                case.source.name,
                arch=self.architecture,
                defines=case.defines,
                include_dirs=case.source.folders,
                names=names,
                std=case.source.std,
            )
            return Loaded(record, simulator.load(record.ptx))

        if case.source.debug:
            return compiled(partial(compiler.compile_ptx, debug=True))
        try:
            return compiled(compiler.compile_cubin)
        except (CompilerStopped, compiler.RefusedAsCode):
            raise
        except CompilerError:
            # ptxas may refuse a feature that the simulator lacks too. In this case the simulator's error is raised,
            # because its message is better.
            without_ptxas = compiled(compiler.compile_ptx)
            refuse_unsupported(case, without_ptxas, functions)
            with user_names_in_errors(without_ptxas.compiled.lowered):
                raise

    def _optimised(self, case: Case) -> Compiled:
        """Return a case's optimised code, whose resources ptxas reports; other code runs only in the simulator."""
        return self.load(replace(case, source=replace(case.source, debug=False))).compiled

    def resources_of(self, case: Case) -> tuple[Resources, Occupancy]:
        """Return the resources of a case's main function, with its dynamic shared memory, and its occupancy."""
        compiled = self._optimised(case)
        static = compiled.resources[compiled.entry(case.function)]
        resources = replace(static, shared_bytes=static.shared_bytes + case.dynamic_shared_bytes)
        registers, barriers = static.registers, static.barriers
        fits = occupancy(self.architecture, case.threads, registers, resources.shared_bytes, barriers=barriers)
        return resources, fits

    def check_resident(self, case: Case) -> None:
        """Raise BlockDoesNotFit for a launch whose block does not fit a multiprocessor of this architecture.

        Code that was compiled without optimisation is not checked, because it runs only in the simulator, and ptxas
        does not report its resources.
        """
        for part in case.parts:
            compiled = self.load(part).compiled
            shapes = {(launch.function, math.prod(launch.block), launch.shared_bytes) for launch in part.launches}
            for function, threads, dynamic in sorted(shapes):
                needs = compiled.resources.get(compiled.entry(function))
                if needs is not None and threads <= MAX_THREADS_PER_BLOCK:  # the simulator itself refuses more threads
                    shared, bound = needs.shared_bytes + dynamic, needs.max_threads
                    check_resident(function, self.architecture, threads, needs.registers, shared, bound=bound)

    def blocks_at_once(self, case: Case, card: Card) -> dict[object, tuple[str, int]]:
        """Return (the card's name, how many of the blocks it holds at once) for the launches of a case whose blocks may
        wait for each other, keyed by `_shape`.

        Raises BlockDoesNotFit for a launch that synchronises its grid, if the card cannot hold all its blocks at once.
        """
        found: dict[object, tuple[str, int]] = {}
        for part in case.parts:
            compiled, program = self._optimised(part), self.load(part).program
            for launch in part.launches:
                held = self.blocks_held(compiled, program, launch, card)
                if held is None:
                    continue
                blocks, (name, most) = math.prod(launch.grid), held
                if program.code(compiled.entry(launch.function)).cooperative and blocks > most:
                    sms = card.device.sm_count or 1
                    raise BlockDoesNotFit(
                        f"{case.kernel} synchronises its grid, so all {blocks} blocks must run at once, and the {name} "
                        f"holds {most} ({sms} SMs x {most // sms}): use a smaller grid, and let each thread do more."
                    )
                found[_shape(launch)] = held
        return found

    def blocks_held(
        self, compiled: Compiled, program: simulator.Program, launch: Launch, card: Card
    ) -> tuple[str, int] | None:
        """Return (the card's name, how many blocks of a launch it holds at once); None if this is not known, or if the
        blocks do not wait for each other. `compiled`: the optimised code."""
        entry = compiled.entry(launch.function)
        code, needs = program.code(entry), compiled.resources.get(entry)
        if needs is None or not (code.polling or code.cooperative):
            return None
        fits = occupancy(
            self.architecture, math.prod(launch.block), needs.registers, needs.shared_bytes + launch.shared_bytes,
            barriers=needs.barriers,
        )  # fmt: skip
        held = fits.blocks_per_sm * (card.device.sm_count or 0)
        return (card.title.partition(" (")[0], held) if held else None

    def reset(self, case: Case) -> None:
        """Set the `__device__` and `__constant__` variables of a case's sources back to their initial values. Without a
        reset, variables keep their values between launches, as on a GPU."""
        for part in case.parts:
            self.load(part).program.reset()

    def changed(self, case: Case) -> list[StateVariable]:
        """Return the module variables whose values differ from their initial values, after the launches since the last
        `reset`."""
        variables = []
        for part in case.parts:
            for symbol in self.load(part).program.changed():
                name = plain_name(symbol)
                variables.append(StateVariable(name, cubin.declared_at(part.source.text, name)))
        return variables

    def leaks(self, case: Case) -> list[simulator.Leak] | None:
        """Return the allocations on the device's heap (malloc in kernels) that were not freed since the last `reset`;
        None if the kernels do not use the heap."""
        heaps = [heap for part in case.parts if (heap := self.load(part).program.heap) is not None]
        return [leak for heap in heaps for leak in heap.leaks()] if heaps else None

    def blocks(self, case: Case) -> dict[str, Dim]:
        """Return the block size of each kernel of a case, keyed by the name of the kernel's PTX function."""
        blocks: dict[str, Dim] = {}
        for part in case.parts:
            compiled = self.load(part).compiled
            blocks |= {compiled.entry(launch.function): launch.block for launch in part.launches}
        return blocks

    def block_dependences(self, case: Case) -> tuple[bool, bool]:
        """Return two bools: whether blocks of a case's kernels may exchange data during a launch, and whether blocks
        may wait for each other."""
        loaded = [(self.load(part), launch.function) for part in case.parts for launch in part.launches]
        codes = [loaded_part.program.code(loaded_part.compiled.entry(function)) for loaded_part, function in loaded]
        return any(code.communicates for code in codes), any(code.polling for code in codes)

    def run(
        self,
        case: Case,
        arrays: Arrays,
        *,
        trace: Watch,
        progress: Callable[[float], None],
        merged: Mapping[str, Mapping[int, tuple[int, int]]] | None = None,
        seconds: float | None = None,
        footprint: bool = False,
        sample: tuple[int, int] | None = None,
        machine: Mapping[str, MachineCodeRequest] | None = None,
        card: Card | None = None,
        **how: Any,
    ) -> Run:
        """Run all launches of a case on `arrays`, which the launches change in place.

        `seconds`: the time limit of all launches together. `footprint`: whether to count which memory is touched.
        `sample`: (threads, blocks); of a larger launch, only as many blocks run as have about this number of threads,
        but at least this number of blocks; the arrays then lack the launch's whole result. `merged`, `machine`: by
        function, the arguments of `simulator.run` with these names; `machine` is machine code that runs in addition if
        a launch needs it (see `report.Code`). `card`: the card whose number of multiprocessors says how many blocks run
        at once. For the other arguments see `simulator.run`.

        Raises BudgetExceeded if the launches take longer than `seconds`, and UsageError for a launch that GPUs of the
        architecture cannot run.
        """
        loaded_by_function = {
            launch.function: loaded_part
            for part_case in case.parts
            for loaded_part in [self.load(part_case)]
            for launch in part_case.launches
        }
        self.check_resident(case)
        resident = {} if card is None else self.blocks_at_once(case, card)
        resources, fits = self.resources_of(case)
        reports: list[simulator.Report] = []
        for name, content in case.constants.items():
            for loaded in {id(loaded): loaded for loaded in loaded_by_function.values()}.values():
                set_constant(loaded.program, name, content)
        # If a launch stores a pointer, a later launch may use it.
        neighbours = arrays if len(case.launches) > 1 else None
        first_slot = max(loaded.program.slots for loaded in loaded_by_function.values())
        end = math.inf if seconds is None else time.monotonic() + seconds
        for done, launch in enumerate(case.launches):

            def inside(blocks: int, total: int, finished: int = done) -> None:
                progress((finished + blocks / total) / len(case.launches))

            loaded = loaded_by_function[launch.function]
            with user_names_in_errors(loaded.compiled.lowered, reports):
                report = simulator.run(
                    loaded.program,
                    loaded.compiled.entry(launch.function),
                    launch.grid,
                    launch.block,
                    [argument_of(a, arrays) for a in launch.arguments],
                    shared_bytes=launch.shared_bytes,
                    names=[
                        a if isinstance(a, str) else a.buffer if isinstance(a, OVER_BUFFERS) else ""
                        for a in launch.arguments
                    ],
                    trace=trace,
                    progress=inside,
                    merged=(merged or {}).get(launch.function),
                    seconds=end - time.monotonic(),
                    footprint=footprint,
                    sample=None if sample is None else max(sample[1], sample[0] // math.prod(launch.block)),
                    cluster=launch.cluster,
                    beside=neighbours,
                    first_slot=first_slot,
                    machine=(machine or {}).get(launch.function),
                    resident=resident.get(_shape(launch)),
                    **how,
                )
            reports.append(report)
        launch_kinds: dict[object, list[int]] = {}
        for number, launch in enumerate(case.launches if footprint else ()):
            launch_kinds.setdefault(_shape(launch), []).append(number)
        launched = tuple(
            Launched(case.launches[numbers[0]], len(numbers), simulator.merge(reports[number] for number in numbers))
            for numbers in launch_kinds.values()
        )
        # The merged reports of the groups are enough for sums. Hazards, printed text and traces need the launches in
        # their order.
        ordered = any(
            report.hazards or report.suspicions or report.output or report.contended or report.trace
            for report in reports
        )
        report_of_all = simulator.merge(reports if ordered or not launched else (kind.report for kind in launched))
        return Run(report_of_all, resources, fits, launched)


def _shape(launch: Launch) -> object:
    """Return a key that is equal for launches that differ in their arguments only."""
    return launch.function, launch.grid, launch.block, launch.shared_bytes, launch.cluster


def refuse_unsupported(case: Case, loaded: Loaded, functions: Sequence[str]) -> None:
    """Raise UnsupportedFeature if the case's functions use features that the simulator lacks; the message lists all of
    them, with their lines."""
    if lacks := [lack for name in functions for lack in loaded.program.unsupported(loaded.compiled.entry(name))]:
        features = (f"{lack.file}:{lack.line}: {readable(lack.feature)}" for lack in lacks)
        listed = "; ".join(dict.fromkeys(features))
        raise UnsupportedFeature(f"{case.kernel} uses features that the simulator lacks ({listed}): {remedy(listed)}.")


def machine_code_of(compiled: Compiled, function: str) -> Kernel | str:
    """Return the machine code of a function, or the reason (text) why it cannot be read."""
    return "there is none" if compiled.cubin is None else image.readable(compiled.cubin, compiled.entry(function))


@contextmanager
def user_names_in_errors(lowered: Mapping[str, str], before: Sequence[simulator.Report] = ()) -> Iterator[None]:
    """Context that changes the errors raised in it: messages name functions as the user does (`lowered` maps the user's
    names to the compiler's), and BudgetExceeded also gets the hazards of the earlier launches' reports (`before`)."""
    try:
        yield
    except CudabenchError as error:
        message = str(error)
        for name, entry in lowered.items():
            message = message.replace(entry, name)
        renamed = type(error)(message)
        vars(renamed).update(vars(error))
        if isinstance(renamed, simulator.BudgetExceeded):
            renamed.hazards = (*(hazard for report in before for hazard in report.hazards), *renamed.hazards)
        raise renamed from error


def poisoned_array(
    shape: tuple[int, ...], dtype: str, byte: int = POISON, into: np.ndarray | None = None
) -> np.ndarray:
    """Return an array filled with one byte, by default 0xFF. `into`: an array that is reused if it has this shape and
    type."""
    fits = into is not None and (into.shape, into.dtype) == (shape, np.dtype(dtype))
    array = into if into is not None and fits else np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8).fill(byte)
    return array


def scratch_array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array that looks like unwritten memory; its elements are alternately POISON and LARGE bytes.

    A kernel that multiplies the elements by zero gets NaN from POISON; a search for the largest value gives LARGE.
    """
    array = poisoned_array(shape, dtype)
    array.reshape(-1)[1::2] = poisoned_array((1,), dtype, LARGE)
    return array


def set_constant(program: simulator.Program, name: str, content: bytes) -> None:
    """Write a `__constant__` variable. A variable that no kernel reads is not in the program, and is ignored.

    Raises UsageError if `content` does not have the variable's size.
    """
    symbol = constant_name(name, program.module.variables)
    if symbol is None:
        return
    data = program.variable(symbol)
    check_constant(name, content, data.size)
    data[:] = np.frombuffer(content, np.uint8)


def argument_of(argument: Any, arrays: Arrays) -> Any:
    """Return an argument of a launch in the form that `simulator.run` takes."""
    match argument:
        case Surface() | Texture():
            left_out = ("buffer", "dtype", "shape")
            how = {
                member.name: getattr(argument, member.name)
                for member in fields(argument)
                if member.name not in left_out
            }
            return simulator.Texture(arrays[argument.buffer].reshape(argument.shape), **how)
        case TensorMap():
            return simulator.TensorMap(
                arrays[argument.buffer], argument.box, argument.sizes, argument.strides, argument.steps,
                argument.swizzle, argument.fill, argument.dtype,
            )  # fmt: skip
        case Rows():
            return simulator.Rows(arrays[argument.buffer], argument.count, argument.pitch)
        case str():
            return arrays[argument]
        case ByValue(content=content, pointers=pointers) if pointers:
            return simulator.Struct(content, tuple((offset, buffer, arrays[buffer]) for offset, buffer in pointers))
        case ByValue():
            return argument.content
    return argument
