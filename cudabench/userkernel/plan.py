"""From the arguments of `run` to an operation and its cases: all that can be known wrong is found here.

An `Operation` holds functions, which cannot travel to the process that owns the GPU; a `Work` can, and `operation_of`
makes the operation from it there.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError, UsageError, did_you_mean
from cudabench.floats import from_bfloat16, to_bfloat16
from cudabench.model import Baseline, Buffer, Case, Dim, Launch, Operation, Problem, Source, Tolerance
from cudabench.operations import blas
from cudabench.outputs import check_target
from cudabench.plan.cases import check_block, check_grid
from cudabench.toolchain import source
from cudabench.toolchain.source import KernelSource, Parameter, SourceFile
from cudabench.userkernel import arguments, expressions
from cudabench.userkernel.arguments import Argument, Array, Scalar
from cudabench.userkernel.expressions import Expression

Arrays = dict[str, np.ndarray]

MAX_SHARED = 232448  # bytes a block can have on any card (227 KiB, compute capability 9.0)

# Relative and absolute tolerances by the type of an output; integers must be exact.
TOLERANCES = {
    "bfloat16": (1e-2, 1e-3),
    "float16": (2e-3, 2e-4),
    "float32": (1e-5, 1e-6),
    "float64": (1e-12, 1e-13),
    "complex64": (1e-5, 1e-6),
    "complex128": (1e-12, 1e-13),
}


@dataclass(frozen=True)
class Request:
    """What the command line, or a profile, asks for: the texts of the options."""

    file: str
    kernels: tuple[str, ...] = ()
    grid: str | None = None
    block: str | None = None
    arguments: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    bytes: str | None = None
    flops: str | None = None
    shared: str | None = None
    rtol: float | None = None
    atol: float | None = None
    save: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Expectation:
    """What an array must hold after the launch: an expression, or the content of a file."""

    name: str
    text: str
    path: str | None = None

    @property
    def option(self) -> str:
        """How errors call it."""
        return f"--expect '{self.name}={self.text}'"


@dataclass(frozen=True)
class Work:
    """Everything about a problem that its operation is made of; plain data."""

    file: str
    arguments: tuple[Argument, ...]
    numbers: Mapping[str, Any]
    expectations: tuple[Expectation, ...]
    bytes: int
    bytes_formula: str
    flops: int
    flops_formula: str
    rtol: float | None
    atol: float | None
    save: tuple[tuple[str, str], ...]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arguments that are arrays."""
        return tuple(one for one in self.arguments if isinstance(one, Array))

    @property
    def baseline(self) -> bool:
        """Whether there is an expression that computes something, to time on the CPU."""
        return any(self.parsed(one).names for one in self.expectations if one.path is None)

    def array(self, name: str) -> Array:
        """Return the array of this name."""
        return next(array for array in self.arrays if array.name == name)

    def before(self, name: str) -> str:
        """Return the name of an array's values before the launch: y0, or y_before where a parameter is called y0."""
        return f"{name}_before" if any(one.name == f"{name}0" for one in self.arguments) else f"{name}0"

    def parsed(self, expectation: Expectation) -> Expression:
        """Return an expectation's expression, parsed and checked."""
        arrays = [array.name for array in self.arrays]
        known = [*self.numbers, *arrays, *(self.before(name) for name in arrays)]
        label = f"--expect '{expectation.name}={expectation.text}'"
        return expressions.parse(expectation.text, "--expect", known, arrays=True, label=label)


@dataclass(frozen=True)
class Part:
    """Kernels that run on one set of arguments: `make` makes their operation, in any process."""

    make: Callable[[], Operation]
    cases: tuple[Case, ...]
    baseline: bool


def parts(requests: Sequence[Request]) -> list[Part]:
    """Return the requests' parts: those that ask for the same file, arguments and results are one, to be compared."""
    groups: dict[Any, list[Request]] = {}
    for request in requests:
        texts = " ".join((*request.arguments, *request.expect, request.bytes or "", request.flops or ""))
        shaping = {name: value for name, value in request.defines.items() if re.search(rf"\b{name}\b", texts)}
        key = replace(request, kernels=(), grid=None, block=None, shared=None, defines=shaping)
        groups.setdefault(repr(key), []).append(request)
    return [build(group) for group in groups.values()]


def build(requests: Sequence[Request]) -> Part:
    """Return what requests on one set of arguments ask for.

    They differ in kernels, launches and defines at most. Raises UsageError for what cannot be, and CudabenchError for a
    file's fault.
    """
    request = requests[0]
    file = source.read(request.file)
    picked = [(*kernel, each) for each in requests for kernel in select(file, each)]
    kernels = [kernel for kernel, *_ in picked]
    names = [text.partition("=")[0].strip() for text in request.arguments]
    first = next((kernel for kernel in kernels if [one.name for one in kernel.parameters] == names), kernels[0])
    aliases = aliases_of(file, request.defines, request.include)
    example = example_line(request, file, first, aliases)
    read = arguments.read(request.arguments, first, aliases, _numeric(request.defines), example)
    read, orders = arguments.shared(read, first, kernels, aliases)
    size = {one.name: int(v) if isinstance(v := one.value, bool) else v for one in read if isinstance(one, Scalar)}
    work = _work(request, file, read, {**arguments.CONSTANTS, **_numeric(request.defines), **size})
    if request.save and len(picked) > 1:
        raise UsageError(
            f"--save {request.save[0]} with {len(picked)} kernels would keep the last one's: name one kernel."
        )
    text = Source(request.file, file.text, str(Path(request.file).resolve().parent), False, _folders(request))
    problem = Problem(size, _dtype(work), request.seed)
    by_name = {one.name: one for one in read}
    cases = []
    for (kernel, name, outright, own), order in zip(picked, orders, strict=True):
        grid, block, shared = _launch(own, kernel, {**arguments.CONSTANTS, **_numeric(own.defines), **size}, example)
        passed = tuple(one.name if isinstance(one, Array) else one.argument for one in map(by_name.__getitem__, order))
        cases.append(
            Case(
                operation="run",
                kernel=name,
                id=None,
                function=kernel.expression,
                source=text,
                problem=problem,
                block=block,
                grid=grid,
                launches=(Launch(kernel.expression, grid, block, passed, shared),),
                defines=dict(own.defines),
                expects="",
                named=outright,
            )
        )
    return Part(partial(operation_of, work), tuple(cases), work.baseline)


def _launch(request: Request, kernel: KernelSource, numbers: Mapping[str, Any], example: str) -> tuple[Dim, Dim, int]:
    """Return grid, block and dynamic shared bytes."""
    if request.grid is None or request.block is None:
        lack = " and ".join(f"--{name}" for name in ("grid", "block") if getattr(request, name) is None)
        raise UsageError(f"{kernel.signature} needs {lack} to be launched; write: {example}")
    block, grid = _dim(request.block, "--block", numbers), _dim(request.grid, "--grid", numbers)
    check_block(block)
    check_grid(grid)
    shared = _number(request.shared, "--shared", numbers)
    if shared > MAX_SHARED:
        raise UsageError(f"--shared {request.shared} gives {shared} bytes; a block has {MAX_SHARED} at most.")
    return grid, block, shared


# Which kernels -------------------------------------------------------------------------------------------------------


def select(file: SourceFile, request: Request) -> list[tuple[KernelSource, str, bool]]:
    """Return the kernels of a file that are asked for, each with the name in the report and whether it was named."""
    if not request.kernels:
        try:
            kernel = source.find(file)
        except UsageError as error:
            if len(file.kernels) < 2:
                raise
            example = example_line(request, file, file.kernels[0], {})
            raise UsageError(f"{str(error).rstrip('.')}; as in: {example}") from None
        return [(kernel, kernel.qualified_name, True)]
    picked: dict[str, tuple[KernelSource, str, bool]] = {}
    for name in request.kernels:
        glob = not set(name) & set("<(") and bool(set(name) & set("*?["))
        if name != "all" and not glob:
            kernel = source.find(file, name)
            picked[kernel.expression] = (kernel, name.strip(), True)
            continue
        found = [
            kernel
            for kernel in file.kernels
            if not kernel.template_parameters and (not glob or fnmatchcase(kernel.qualified_name, name))
        ]
        if not found:
            listed = ", ".join(kernel.qualified_name for kernel in file.kernels) or "no __global__ function"
            raise UsageError(
                f"No kernel of {file.path} matches '{name}'; it has {listed}; templates are named by instance."
            )
        for kernel in found:
            types = ", ".join(parameter.ctype for parameter in kernel.parameters)
            own = source.find(file, f"{kernel.qualified_name}({types})" if kernel.overloaded else kernel.qualified_name)
            picked.setdefault(own.expression, (own, own.expression, len(found) == 1))
    return list(picked.values())


_STRUCTS = re.compile(
    r"\b(?:struct|class|union)\s+(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?(\w+)\s*[{:]"
    r"|\btypedef\s+(?:struct|union)\b[^{};]*\{[^{}]*\}\s*(\w+)\s*;"
)


def _folders(request: Request) -> tuple[str, ...]:
    for folder in request.include:
        if not Path(folder).is_dir():
            raise UsageError(f"--include {folder} is no folder: name the one that holds the headers.")
    return tuple(str(Path(folder).resolve()) for folder in request.include)


def aliases_of(file: SourceFile, defines: Mapping[str, str], include: Sequence[str] = ()) -> dict[str, str]:
    """Return the type names of a file and of the headers that it includes, beside it or in a folder; -D wins.

    A struct stands for itself, as 'struct P'.
    """
    found = dict(file.aliases)

    def structs(text: str) -> None:
        for match in _STRUCTS.finditer(text):
            name = match[1] or match[2]
            found.setdefault(name, f"struct {name}")

    structs(file.text)
    seen: set[Path] = set()
    waiting = [(Path(file.path), file.text)]
    while waiting and len(seen) < 32:
        path, text = waiting.pop()
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', text, re.M):
            places = (folder / name for folder in (path.parent, *map(Path, include)))
            header = next((place for place in places if place.is_file()), None)
            if header is None or header in seen:
                continue
            seen.add(header)
            try:
                parsed = source.read(header)
            except CudabenchError:  # the compiler says it better
                continue
            for alias, meaning in parsed.aliases.items():
                found.setdefault(alias, meaning)
            structs(parsed.text)
            waiting.append((header, parsed.text))
    return {**found, **defines}


def _numeric(defines: Mapping[str, str]) -> dict[str, int | float]:
    """Return the defines that are numbers: `-D TILE=32` makes TILE a name for shapes and grids."""
    found: dict[str, int | float] = {}
    for name, value in defines.items():
        if re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
            found[name] = int(value)
        elif re.fullmatch(r"[+-]?(\d+\.\d*|\.?\d+)(e[+-]?\d+)?f?", value.strip(), re.I):
            found[name] = float(value.strip().rstrip("fF"))
    return found


# A right line, for messages ------------------------------------------------------------------------------------------


def example_line(request: Request, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]) -> str:
    """Return a whole command line for a kernel, from its signature and what was given already."""
    name = kernel.expression or kernel.qualified_name
    if kernel.template_parameters and "<" not in name:
        name += f"<{', '.join('float' if p.type == 'typename' else '32' for p in kernel.template_parameters)}>"
        kernel = source.find(file, name)
    given = dict(text.partition("=")[::2] for text in request.arguments)
    whole = [p.name for p in kernel.parameters if not p.pointer and _kind(p, aliases) in ("i", "u")]
    count = next((name for name in whole if name), "")
    outputs = [p for p in kernel.parameters if p.pointer and not p.const]
    words, expect = [], [word for text in request.expect for word in ("--expect", text)]
    for at, parameter in enumerate(kernel.parameters):
        own = parameter.name or f"arg{at}"
        if parameter.pointer:
            start = "zeros" if outputs and parameter is outputs[-1] else "random"
            value = f"{arguments.like(parameter, aliases)}[{count or 1 << 20}]:{start}"
        else:
            value = "1048576" if own == count else "1024" if own in whole else "2.5"
        words += ["--arg", f"{own}={given.get(own, value)}"]
    if not expect and outputs:
        expect = ["--expect", f"{outputs[-1].name or 'y'}=..."]
    launch = ["--grid", request.grid or f"cdiv({count or 1 << 20},256)", "--block", request.block or "256"]
    return " ".join(map(shlex.quote, ["cudabench", "run", file.path, "--kernel", name, *launch, *words, *expect]))


def _kind(parameter: Parameter, aliases: Mapping[str, str]) -> str:
    dtype = source.numpy_dtype(parameter.type, aliases)
    return np.dtype(dtype).kind if dtype else ""


# Expectations, bytes, dimensions -------------------------------------------------------------------------------------


def _work(request: Request, file: SourceFile, read: Sequence[Argument], numbers: Mapping[str, Any]) -> Work:
    for option, bound in (("--rtol", request.rtol), ("--atol", request.atol)):
        if bound is not None and not 0 <= bound < float("inf"):
            raise UsageError(f"{option} {bound:g} is no tolerance: give a number of at least 0, such as 1e-5.")
    expectations = []
    for text in request.expect:
        name, value = arguments.named(text, "--expect", "'y=a*x+y0' or y=@FILE.npy")
        expectations.append(Expectation(name, value, value[1:] if value.startswith("@") else None))
    saves = tuple(arguments.named(text, "--save", "y=y.npy") for text in request.save)
    work = Work(
        file=file.path,
        arguments=tuple(read),
        numbers=dict(numbers),
        expectations=tuple(expectations),
        bytes=_number(request.bytes, "--bytes", numbers),
        bytes_formula=request.bytes or "",
        flops=_number(request.flops, "--flops", numbers),
        flops_formula=request.flops or "",
        rtol=request.rtol,
        atol=request.atol,
        save=saves,
    )
    for at, expectation in enumerate(expectations):
        if expectation.name in [other.name for other in expectations[:at]]:
            raise UsageError(f"{expectation.option}: {expectation.name} is expected twice: keep one.")
        array = _known_array(expectation.name, work, expectation.option)
        if array.const:
            raise UsageError(
                f"{expectation.option}: {array.name} is const in the signature, so the kernel cannot write it; it is "
                "checked to be unchanged anyhow."
            )
        _check_expectation(expectation, array, work)
    for name, path in saves:
        _known_array(name, work, f"--save {name}={path}")
        check_target(Path(path), "--save")
    return work


def _known_array(name: str, work: Work, option: str) -> Array:
    found = next((array for array in work.arrays if array.name == name), None)
    if found is None:
        names = [array.name for array in work.arrays]
        scalar = any(one.name == name for one in work.arguments)
        what = f"{name} is no array" if scalar else f"there is no array '{name}'"
        raise UsageError(f"{option}: {what}; the kernel has {', '.join(names) or 'none'}.{did_you_mean(name, names)}")
    return found


def _check_expectation(expectation: Expectation, array: Array, work: Work) -> None:
    """Refuse what can be known wrong of an expectation before anything runs."""
    if expectation.path is not None:
        _conform(arguments.load(expectation.path, expectation.option), array, expectation.option, constant=False)
        return
    names = work.parsed(expectation).names
    expected = {one.name for one in work.expectations}
    for name in sorted(names):
        written = next((one for one in work.arrays if name == one.name and one.name in expected), None)
        if written is not None:
            raise UsageError(
                f"{expectation.option}: {name} is what the kernel writes; write {work.before(name)} for its values "
                "before the launch."
            )
        empty = next(
            (one for one in work.arrays if one.init == "empty" and name in (one.name, work.before(one.name))), None
        )
        if empty is not None:
            raise UsageError(f"{expectation.option}: {empty.name} starts empty, so it has no values before the launch.")


def _number(text: str | None, option: str, numbers: Mapping[str, Any]) -> int:
    if text is None:
        return 0
    value = expressions.parse(text, option, numbers).evaluate(numbers)
    if isinstance(value, float) and np.isfinite(value):
        value = round(value)
    return arguments.whole(value, f"{option} '{text}'", least=0)


def _dim(text: str, option: str, numbers: Mapping[str, Any]) -> Dim:
    """Return 'X', 'X,Y' or 'X,Y,Z' of expressions as a full block or grid; 32x8 means 32,8."""
    if re.fullmatch(r"\s*\d+(\s*x\s*\d+){1,2}\s*", text):
        text = text.replace("x", ",")
    value = expressions.parse(text, option, numbers).evaluate(numbers)
    values = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(values) <= 3:
        raise UsageError(f"{option} '{text}' has {len(values)} numbers: write X, X,Y or X,Y,Z.")
    x, y, z = (*(arguments.whole(one, f"{option} '{text}'") for one in values), 1, 1)[:3]
    return (x, y, z)


def _dtype(work: Work) -> str:
    """Return the type that the report names: of the first output."""
    expected = [one.name for one in work.expectations]
    ranked = sorted(work.arrays, key=lambda array: (array.name not in expected, array.const))
    return ranked[0].dtype if ranked else ""


# The operation -------------------------------------------------------------------------------------------------------


def operation_of(work: Work) -> Operation:
    """Return the operation of a kernel of the user's own."""
    return Operation(
        name="run",
        summary=work.file,
        source=work.file,
        dimensions=(),
        default_size=(),
        block_dimensions=3,
        dtypes={},
        kernels=(),
        buffers=lambda problem: tuple(
            Buffer(one.name, one.shape, one.storage, "in" if one.const else "out" if one.init == "empty" else "inout")
            for one in work.arrays
        ),
        arguments=lambda problem: (),
        inputs=lambda problem: {
            one.name: one.make(problem.seed, at) for at, one in enumerate(work.arrays) if one.init != "empty"
        },
        reference=lambda problem, inputs: _reference(work, inputs),
        baseline=Baseline(_baseline_name(work), lambda inputs, outputs, threads: _on_cpu(work, inputs, threads)),
        tolerance=lambda problem: _tolerance(work),
        bytes=lambda problem: work.bytes,
        bytes_formula=work.bytes_formula,
        flops=(lambda problem: work.flops) if work.flops else None,
        flops_formula=work.flops_formula,
        saves=tuple(name for name, _ in work.save),
        save=(lambda problem, outputs: _save(work, outputs)) if work.save else None,
        smaller="smaller arrays",
        larger="larger arrays",
    )


def _values(work: Work, inputs: Mapping[str, np.ndarray], names: frozenset[str], wide: bool) -> dict[str, Any]:
    """Return what the names of an expression mean; `wide` has floats in double precision."""
    values = dict(work.numbers)
    for array in work.arrays:
        for name in (work.before(array.name), array.name):
            if name in names and array.name in inputs:
                held = inputs[array.name]
                held = from_bfloat16(held) if array.dtype == "bfloat16" else held
                values[name] = _widened(held) if wide else held
    return values


def _widened(array: np.ndarray) -> np.ndarray:
    wider = {"float16": np.float64, "float32": np.float64, "complex64": np.complex128}.get(array.dtype.name)
    return array.astype(wider) if wider else array


def _reference(work: Work, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Return what the expected arrays must hold. Floats are computed in double precision, then rounded once."""
    expected = {}
    for one in work.expectations:
        array = work.array(one.name)
        if one.path is not None:
            expected[one.name] = _conform(arguments.load(one.path, one.option), array, one.option, constant=False)
            continue
        expression = work.parsed(one)
        arrays = {name for each in work.arrays for name in (each.name, work.before(each.name))}
        value = expression.evaluate(_values(work, inputs, expression.names, wide=True), limit=arguments.host_memory())
        expected[one.name] = _conform(value, array, one.option, constant=not expression.names & arrays)
    return expected


def _baseline_name(work: Work) -> str:
    text = ", ".join(f"{one.name}={one.text}" for one in work.expectations if one.path is None)
    uses_blas = re.search(r"@|\bnp\.(dot|matmul|inner|vdot)\b", text)
    return blas.named(f"NumPy {text}") if uses_blas else f"NumPy {text}"


def _on_cpu(work: Work, inputs: Mapping[str, np.ndarray], threads: int) -> None:
    with blas.limited(threads):
        for one in work.expectations:
            if one.path is None:
                expression = work.parsed(one)
                expression.evaluate(_values(work, inputs, expression.names, wide=False), limit=arguments.host_memory())


def _conform(value: Any, array: Array, option: str, *, constant: bool) -> np.ndarray:
    """Return an expected value as the array's shape and type; UsageError where it is of others."""
    if isinstance(value, (tuple, list)):
        raise UsageError(f"{option} is a list of {len(value)} values: write np.array(...) or np.stack(...).")
    value = np.asarray(value)
    shape = arguments.shape_text(array.shape)
    if value.shape != array.shape:
        fills = constant and value.ndim == 0
        if not fills and not (value.ndim == 0 and array.shape == (1,)):
            have = f"has shape {arguments.shape_text(value.shape)}" if value.ndim else "is one number"
            hint = " Write np.reshape(...)." if value.size == int(np.prod(array.shape)) else ""
            raise UsageError(f"{option} {have}; {array.name} has shape {shape}.{hint}")
        value = np.broadcast_to(value, array.shape)
    if array.dtype == "bfloat16" and value.dtype != np.uint16:  # a file may hold the bits
        exact = _conform(value, replace(array, dtype="float32"), option, constant=constant)
        return to_bfloat16(exact)
    kind = np.dtype(array.storage)
    if value.dtype == kind:
        return np.ascontiguousarray(value)
    whole = value.dtype.kind in "iub" and kind.kind in "iub"
    if not whole and not np.can_cast(value.dtype, kind, "same_kind"):
        repair = f"np.{array.dtype}(...)" if kind.kind in "iu" and value.dtype.kind == "f" else "np.real(...)"
        raise UsageError(f"{option} has type {value.dtype}; {array.name} is {array.dtype}: write {repair} around it.")
    if whole and kind.kind != "b":
        limits = np.iinfo(kind)
        if value.size and not (limits.min <= int(value.min()) and int(value.max()) <= limits.max):
            raise UsageError(
                f"{option} runs from {int(value.min())} to {int(value.max())}; {array.name}, {array.dtype}, holds "
                f"{limits.min} to {limits.max}: write np.{array.dtype}(...) around it to wrap as C does."
            )
    elif whole and value.dtype.kind != "b" and value.size and not {*np.unique(value)} <= {0, 1}:
        raise UsageError(f"{option} has other values than 0 and 1; {array.name} is bool: write a comparison.")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.astype(kind))


def _tolerance(work: Work) -> Tolerance:
    """Return the tolerance of each expected array: as given, or by its type."""
    each = {}
    for one in work.expectations:
        dtype = work.array(one.name).dtype
        rtol, atol = TOLERANCES.get(dtype, (0.0, 0.0))
        rtol = rtol if work.rtol is None else work.rtol
        atol = atol if work.atol is None else work.atol
        given = work.rtol is not None or work.atol is not None
        reason = "as given" if given else f"the default for {dtype}"
        each[one.name] = Tolerance(rtol, atol, reason, bfloat16=dtype == "bfloat16")
    widest = max(each.values(), key=lambda one: one.rtol, default=Tolerance(0.0, 0.0, "nothing is expected"))
    return Tolerance(widest.rtol, widest.atol, widest.reason, each)


def _save(work: Work, outputs: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of --save, each beside its place and then renamed: whole or not at all."""
    import tempfile

    for name, text in work.save:
        path = Path(text)
        temporary = None
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
                temporary = Path(stream.name)
                np.save(stream, outputs[name], allow_pickle=False)
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            temporary.replace(path)
        except OSError as error:
            raise CudabenchError(f"--save {name}={text} cannot be written: {error.strerror or error}.") from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
