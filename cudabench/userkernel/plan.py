"""From the options of `run` to cases: all that can be known wrong before anything runs is found here."""

from __future__ import annotations

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
from cudabench.launchable import MAX_SHARED
from cudabench.model import Case, Dim, Launch, Problem, Source
from cudabench.plan.limits import check_block, check_cluster, check_grid
from cudabench.plan.series import Series
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.records import Kernel, SourceFile
from cudabench.source.words import words_of
from cudabench.userkernel import arguments, constants, references, steps, values
from cudabench.userkernel.arguments import NoLine
from cudabench.userkernel.operation import operation_of
from cudabench.userkernel.problem import UserProblem, dimensions, main_dtype, number, problem_of
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.suggestion import Example, file_of, with_headers_nearby
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
    folders = _folders(request)
    file = file_of(request)
    aliases = {**file.types, **request.defines}
    if request.steps:
        return _in_steps(request, file, folders, aliases, command)
    picked = [
        (kernel, name, outright, each) for each in requests for kernel, name, outright in select(file, each, command)
    ]
    kernels = [kernel for kernel, *_ in picked]
    for kernel in kernels:
        references.check_no_reference(file, kernel, aliases)
    names = [text.partition("=")[0].strip() for text in request.arguments]
    first = next((kernel for kernel in kernels if {one.name for one in kernel.parameters} == set(names)), kernels[0])
    example = Example(request, file, first, aliases, command)
    read = arguments.read(request.arguments, first, aliases, _known(request), example, file)
    read, orders = arguments.shared(read, first, kernels, aliases)
    size = {one.name: int(v) if isinstance(v := one.value, bool) else v for one in read if isinstance(one, Scalar)}
    members = {name: value for one in read if isinstance(one, Record) for name, value in one.numbers.items()}
    numbers = {**values.CONSTANTS, **_known(request), **size, **members}
    fixed = constants.read(request.constants, file, aliases, numbers)
    user_problem = problem_of(request, file, read, numbers, fixed)
    set_ = {name: array.tobytes() for name, array in constants.contents(fixed, request.seed).items()}
    if request.save and len(picked) > 1:
        raise UsageError(
            f"--save {request.save[0]} with {len(picked)} kernels would keep the last one's: name one kernel."
        )
    text = Source(request.file, file.text, str(Path(request.file).resolve().parent), False, folders, request.std)
    problem = Problem(size, main_dtype(user_problem), request.seed)
    by_name = {one.name: one for one in read}
    cases = []
    for (kernel, name, outright, own), order in zip(picked, orders, strict=True):
        grid, block, shared, cluster = _launch(own, kernel, {**numbers, **_known(own)}, example)
        passed = tuple(by_name[one].argument for one in order)
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
                launches=(Launch(kernel.expression, grid, block, passed, shared, cluster=cluster),),
                defines=dict(own.defines),
                expects="",
                named=outright,
                constants=set_,
                unset_constants=tuple(constants.options(file, kernel, fixed, aliases)),
            )
        )
    return Series(partial(operation_of, user_problem), tuple(cases), user_problem.baseline)


def _in_steps(
    request: UserRequest,
    file: SourceFile,
    folders: tuple[str, ...],
    aliases: Mapping[str, str],
    command: str,
) -> Series:
    """Return what a request with --step asks for: one case of several launches."""
    own = ("grid", "block", "shared", "cluster")
    for option, given in ((f"--{name}", getattr(request, name)) for name in own):
        if given is not None:
            raise UsageError(f"{option} {given} beside --step: each step says its own, as in {steps.EXAMPLE}.")
    if len(request.kernels) > 1:
        raise UsageError(f"--kernel {request.kernels[1]} beside --step: the steps name their kernels.")

    def kernel(name: str) -> Kernel:
        ((found, _, _),) = select(file, replace(request, kernels=(name,)))
        references.check_no_reference(file, found, aliases)
        return found

    group = steps.parse(request.steps)
    names = [text.partition("=")[0].strip() for text in request.arguments]
    example = f"cudabench {command} {shlex.quote(request.file)} {steps.EXAMPLE} --arg n=4096 ..."
    whole, kernels = steps.union(group, names, kernel, example)
    read = arguments.read(request.arguments, whole, aliases, _known(request), example, file)
    size = {one.name: int(v) if isinstance(v := one.value, bool) else v for one in read if isinstance(one, Scalar)}
    members = {name: value for one in read if isinstance(one, Record) for name, value in one.numbers.items()}
    numbers = {**values.CONSTANTS, **_known(request), **size, **members}
    fixed = constants.read(request.constants, file, aliases, numbers)
    user_problem = problem_of(request, file, read, numbers, fixed)
    launches = steps.launches(group, kernels, read, numbers, aliases)
    unset = dict.fromkeys(name for one in kernels.values() for name in constants.options(file, one, fixed, aliases))
    case = Case(
        operation="run",
        kernel=request.kernels[0] if request.kernels else "+".join(one.qualified_name for one in kernels.values()),
        id=None,
        function=launches[0].function,
        source=Source(request.file, file.text, str(Path(request.file).resolve().parent), False, folders, request.std),
        problem=Problem(size, main_dtype(user_problem), request.seed),
        block=launches[0].block,
        grid=launches[0].grid,
        launches=launches,
        defines=dict(request.defines),
        expects="",
        named=True,
        constants={name: array.tobytes() for name, array in constants.contents(fixed, request.seed).items()},
        unset_constants=tuple(unset),
    )
    return Series(partial(operation_of, user_problem), (case,), user_problem.baseline)


def problem(request: UserRequest) -> UserProblem:
    """Return the problem of a request for one kernel. Raises as `build` does."""
    maker = build([request]).make
    assert isinstance(maker, partial)
    return cast(UserProblem, maker.args[0])


def _launch(
    request: UserRequest, kernel: Kernel, numbers: Mapping[str, Any], example: object
) -> tuple[Dim, Dim, int, Dim | None]:
    """Return grid, block, dynamic shared bytes, and the blocks of a cluster where they are said."""
    if request.grid is None or request.block is None:
        lack = " and ".join(f"--{name}" for name in ("grid", "block") if getattr(request, name) is None)
        raise UsageError(f"{kernel.signature} needs {lack} to be launched; {arguments.offered('write', example)}")
    block, grid = dimensions(request.block, "--block", numbers), dimensions(request.grid, "--grid", numbers)
    check_block(block)
    check_grid(grid)
    shared = number(request.shared, "--shared", numbers)
    if shared > MAX_SHARED:
        raise UsageError(f"--shared {request.shared} gives {shared} bytes; a block has {MAX_SHARED} at most.")
    if request.cluster is None:
        return grid, block, shared, None
    cluster = dimensions(request.cluster, "--cluster", numbers)
    check_cluster(cluster, grid)
    return grid, block, shared, cluster


def _folders(request: UserRequest) -> tuple[str, ...]:
    for folder in request.include:
        if not Path(folder).is_dir():
            raise UsageError(f"--include {folder} is no folder: name the one that holds the headers.")
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


def select(file: SourceFile, request: UserRequest, command: str = "run") -> list[tuple[Kernel, str, bool]]:
    """Return the kernels of a file that are asked for, each with the name in the report and whether it was named."""
    if not request.kernels:
        try:
            kernel = find_kernel(file)
        except UsageError as error:
            said = str(error)
            if not file.kernels:
                nearby = with_headers_nearby(request)
                if nearby is None or not nearby[1].kernels:
                    raise
                request, file = nearby
                said = f"{request.file} has no kernel but those of headers, which -I finds"
            aliases = {**file.types, **request.defines}
            easy = (k for k in file.kernels if _easy(k, file, aliases))
            raise UsageError(_with_line(said, _first_line(request, file, easy, aliases, command))) from None
        return [(kernel, kernel.qualified_name, True)]
    picked: dict[str, tuple[Kernel, str, bool]] = {}
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
            own = find_kernel(file, f"{kernel.qualified_name}({types})" if kernel.overloaded else kernel.qualified_name)
            picked.setdefault(own.expression, (own, own.expression, len(found) == 1))
    return list(picked.values())


def _easy(kernel: Kernel, file: SourceFile, aliases: Mapping[str, str]) -> bool:
    """Return whether a command line can launch a kernel."""
    try:
        references.check_no_reference(file, kernel, aliases)
    except CudabenchError:
        return False
    return not _launches_kernels(kernel) and all(
        arguments.takes(parameter, file, aliases) for parameter in kernel.parameters
    )


def _found(file: SourceFile, name: str, request: UserRequest, command: str) -> Kernel:
    """Return `find_kernel`; where it names a template without its arguments, the error has a line with them."""
    try:
        return find_kernel(file, name)
    except UsageError as error:
        own = [kernel for kernel in file.kernels if name.strip() in (kernel.name, kernel.qualified_name)]
        if len(own) != 1 or not own[0].template_parameters:
            raise
        aliases = {**file.types, **request.defines}
        try:
            line: str | NoLine = str(Example(request, file, own[0], aliases, command))
        except NoLine as none:
            line = none
        raise UsageError(_with_line(str(error), line)) from None


def _first_line(
    request: UserRequest, file: SourceFile, kernels: Iterable[Kernel], aliases: Mapping[str, str], command: str
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


def _launches_kernels(kernel: Kernel) -> bool:
    """Return whether a kernel may launch kernels itself, which is refused where it does."""
    words = words_of(kernel.text)
    return any(words[at : at + 3] == ["<", "<", "<"] for at in range(len(words)))
