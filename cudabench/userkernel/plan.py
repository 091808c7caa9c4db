"""From the options of `run` to cases: all that can be known wrong before anything runs is found here."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

from cudabench.errors import CudabenchError, UsageError
from cudabench.model import Case, Launch, Problem, Source
from cudabench.plan.series import Series
from cudabench.toolchain import source
from cudabench.toolchain.source import KernelSource, SourceFile
from cudabench.toolchain.tokens import words_of
from cudabench.userkernel import arguments, constants, passed, references, steps, values
from cudabench.userkernel.arguments import NoLine
from cudabench.userkernel.operation import operation_of
from cudabench.userkernel.problem import UserProblem, launch_of, main_dtype, problem_of
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.suggestion import Example, with_headers_nearby
from cudabench.userkernel.type_names import aliases_of
from cudabench.userkernel.values import Record, Scalar


def series(requests: Sequence[UserRequest], command: str = "run") -> list[Series]:
    """Return the requests as series: those on the same file, arguments and expectations are one, to be compared.

    `command` is what errors suggest a line of.
    """
    groups: dict[str, list[UserRequest]] = {}
    for request in requests:
        groups.setdefault(same_problem(request), []).append(request)
    return [build(group, command) for group in groups.values()]


def same_problem(request: UserRequest) -> str:
    """Return what is the same for requests on the same file, arguments and expectations."""
    texts = " ".join((*request.arguments, *request.expect, request.bytes or "", request.flops or ""))
    words = set(re.findall(r"\w+", texts))
    shaping = {name: value for name, value in request.defines.items() if name.partition("(")[0] in words}
    numbers = {name: value for name, value in request.numbers.items() if name in words}
    alike = replace(request, kernels=(), grid=None, block=None, shared=None, cluster=None)
    return repr(replace(alike, defines=shaping, numbers=numbers))


def build(requests: Sequence[UserRequest], command: str = "run") -> Series:
    """Return what requests on one set of arguments ask for.

    They differ in kernels, launches and defines at most. Raises UsageError for what cannot be, and CudabenchError for a
    file's fault.
    """
    request = requests[0]
    written = source.read(request.file)
    folders = _folders(request)
    file = source.preprocessed(written, request.defines, folders)
    aliases = aliases_of(file, request.defines, request.include)

    def resolved(kernel: KernelSource) -> KernelSource:
        found = source.resolved(kernel, aliases)
        references.check_no_reference(file, found, aliases)
        return found

    names = list(request.given())
    example: object
    if request.steps:
        _check_beside_steps(request)

        def of_step(name: str) -> KernelSource:
            ((found, _, _),) = selected(file, written, replace(request, kernels=(name,)))
            return resolved(found)

        group = steps.parse(request.steps)
        example = f"cudabench {command} {shlex.quote(request.file)} {steps.EXAMPLE} --arg n=4096 ..."
        first, by_name = steps.union(group, names, of_step, example)
        kernels = list(by_name.values())
    else:
        picked = [(*one, each) for each in requests for one in selected(file, written, each, command)]
        kernels = [resolved(kernel) for kernel, *_ in picked]
        by_names = (kernel for kernel in kernels if {one.name for one in kernel.parameters} == set(names))
        first = next(by_names, kernels[0])
        example = Example(request, file, first, aliases, command)
        if request.save and len(picked) > 1:
            raise UsageError(
                f"--save {request.save[0]} with {len(picked)} kernels would keep the last one's: name one kernel."
            )
    read = arguments.read(request.arguments, first, aliases, _known(request), example, file.text)
    if not request.steps:
        read, orders = passed.for_each_kernel(read, first, kernels, aliases)
    size = {one.name: int(v) if isinstance(v := one.value, bool) else v for one in read if isinstance(one, Scalar)}
    members = {name: value for one in read if isinstance(one, Record) for name, value in one.numbers.items()}
    numbers = {**values.CONSTANTS, **_known(request), **size, **members}
    fixed = constants.read(request.constants, file, aliases, numbers)
    user_problem = problem_of(request, file, read, numbers, fixed)
    text = Source(request.file, written.text, str(Path(request.file).resolve().parent), False, folders, request.std)
    set_ = {name: array.tobytes() for name, array in constants.contents(fixed, request.seed).items()}

    def case(name: str, launches: tuple[Launch, ...], own: UserRequest, named: bool, *used: KernelSource) -> Case:
        unset = dict.fromkeys(name for kernel in used for name in constants.options(file, kernel, fixed, aliases))
        return Case(
            operation="run",
            kernel=name,
            id=None,
            function=launches[0].function,
            source=text,
            problem=Problem(size, main_dtype(user_problem), request.seed),
            block=launches[0].block,
            grid=launches[0].grid,
            launches=launches,
            defines=dict(own.defines),
            expects="",
            named=named,
            constants=set_,
            unset_constants=tuple(unset),
        )

    if request.steps:
        name = request.kernels[0] if request.kernels else "+".join(one.qualified_name for one in kernels)
        launches = steps.launches(group, by_name, read, numbers, aliases)
        cases = [case(name, launches, request, True, *kernels)]
    else:
        given = {one.name: one.argument for one in read}
        cases = [
            case(name, (_launch(own, kernel, {**numbers, **_known(own)}, example, [given[one] for one in order]),),
                 own, outright, kernel)
            for kernel, (_, name, outright, own), order in zip(kernels, picked, orders, strict=True)
        ]  # fmt: skip
    return Series(partial(operation_of, user_problem), tuple(cases), user_problem.baseline)


def _check_beside_steps(request: UserRequest) -> None:
    """Raise UsageError for options that steps say themselves."""
    for option in ("grid", "block", "shared", "cluster"):
        given = getattr(request, option)
        if given is not None:
            raise UsageError(f"--{option} {given} beside --step: each step says its own, as in {steps.EXAMPLE}.")
    if len(request.kernels) > 1:
        raise UsageError(f"--kernel {request.kernels[1]} beside --step: the steps name their kernels.")


def problem(request: UserRequest) -> UserProblem:
    """Return the problem of a request for one kernel. Raises as `build` does."""
    maker = build([request]).make
    assert isinstance(maker, partial)
    return cast(UserProblem, maker.args[0])


def _launch(
    request: UserRequest, kernel: KernelSource, numbers: Mapping[str, Any], example: object, given: Sequence[Any]
) -> Launch:
    """Return the launch that grid, block, dynamic shared bytes and, where it is said, a cluster make."""
    if request.grid is None or request.block is None:
        lack = " and ".join(f"--{name}" for name in ("grid", "block") if getattr(request, name) is None)
        raise UsageError(f"{kernel.signature} needs {lack} to be launched; {arguments.offered('write', example)}")
    shared, cluster = request.shared, request.cluster
    launch = launch_of(kernel.expression, request.grid, request.block, numbers, shared=shared, cluster=cluster)
    return replace(launch, arguments=tuple(given))


def _folders(request: UserRequest) -> tuple[str, ...]:
    for folder in request.include:
        if not Path(folder).is_dir():
            raise UsageError(f"--include {folder} is not a folder: name the one that holds the headers.")
    return tuple(str(Path(folder).resolve()) for folder in request.include)


def _known(request: UserRequest) -> dict[str, int | float]:
    """Return what shapes and grids may name besides the arguments: `-D TILE=32` makes TILE a name."""
    return {**request.numbers, **numeric(request.defines)}


def numeric(texts: Mapping[str, str]) -> dict[str, int | float]:
    """Return the texts that are numbers."""
    found: dict[str, int | float] = {}
    for name, value in texts.items():
        if re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
            found[name] = int(value)
        elif re.fullmatch(r"[+-]?(\d+\.\d*|\.?\d+)(e[+-]?\d+)?f?", value.strip(), re.I):
            found[name] = float(value.strip().rstrip("fF"))
    return found


# Which kernels -------------------------------------------------------------------------------------------------------


def selected(
    file: SourceFile, written: SourceFile, request: UserRequest, command: str = "run"
) -> list[tuple[KernelSource, str, bool]]:
    """Return `select` of a file as the compiler reads it; a kernel that only its text shows is for the compiler.

    Where neither has it, the error is that of the first.
    """
    try:
        return select(file, request, command)
    except UsageError:
        if not request.kernels or file is written:
            raise
        with contextlib.suppress(UsageError):
            return select(written, request, command)
        raise


def select(file: SourceFile, request: UserRequest, command: str = "run") -> list[tuple[KernelSource, str, bool]]:
    """Return the kernels of a file that are asked for, each with the name in the report and whether it was named."""
    if not request.kernels:
        try:
            kernel = source.find(file)
        except UsageError as error:
            said = str(error)
            if not file.kernels:
                nearby = with_headers_nearby(request)
                if nearby is None or not nearby[1].kernels:
                    raise
                request, file = nearby
                said = f"{request.file} has no kernel but those of headers, which -I finds"
            aliases = aliases_of(file, request.defines, request.include)
            easy = (k for k in file.kernels if _easy(k, file, aliases))
            raise UsageError(_with_line(said, _first_line(request, file, easy, aliases, command))) from None
        return [(kernel, kernel.qualified_name, True)]
    picked: dict[str, tuple[KernelSource, str, bool]] = {}
    for name in request.kernels:
        glob = not set(name) & set("<(") and bool(set(name) & set("*?["))
        if name != "all" and not glob:
            kernel = _found(file, name, request, command)
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


def _easy(kernel: KernelSource, file: SourceFile, aliases: Mapping[str, str]) -> bool:
    """Return whether a command line can launch a kernel."""
    try:
        references.check_no_reference(file, kernel, aliases)
    except CudabenchError:
        return False
    return not _launches_kernels(kernel) and all(
        arguments.takes(parameter, file.text, aliases) for parameter in kernel.parameters
    )


def _found(file: SourceFile, name: str, request: UserRequest, command: str) -> KernelSource:
    """Return `source.find`; where it names a template without its arguments, the error has a line with them."""
    try:
        return source.find(file, name)
    except UsageError as error:
        own = [kernel for kernel in file.kernels if name.strip() in (kernel.name, kernel.qualified_name)]
        if len(own) != 1 or not own[0].template_parameters:
            raise
        aliases = aliases_of(file, request.defines, request.include)
        try:
            line: str | NoLine = str(Example(request, file, own[0], aliases, command))
        except NoLine as none:
            line = none
        raise UsageError(_with_line(str(error), line)) from None


def _first_line(
    request: UserRequest, file: SourceFile, kernels: Iterable[KernelSource], aliases: Mapping[str, str], command: str
) -> str | NoLine:
    """Return the first line of the kernels that has no gap, else the first one, or why the first of them, or of the
    file, has none."""
    why: NoLine | None = None
    first = ""
    for kernel in chain(kernels, file.kernels[:1]):
        try:
            line = str(Example(request, file, kernel, aliases, command))
        except NoLine as error:
            why = why or error
            continue
        if arguments.GAP not in line:
            return line
        first = first or line
    if first:
        return first
    assert why is not None
    return why


def _with_line(said: str, example: str | NoLine) -> str:
    """Return an error with a line that would do; where it names an instance of a template, that of the line."""
    said, such_as, _ = said.rstrip(".").partition(", such as '")
    if isinstance(example, NoLine):
        return f"{said}; {example}"
    words = shlex.split(example)
    named = f", such as '{words[words.index('--kernel') + 1]}'" if such_as else ""
    return f"{said}{named}; {arguments.led('as in', example)}"


def _launches_kernels(kernel: KernelSource) -> bool:
    """Return whether a kernel may launch kernels itself, which is refused where it does."""
    words = words_of(kernel.text)
    return any(words[at : at + 3] == ["<", "<", "<"] for at in range(len(words)))
