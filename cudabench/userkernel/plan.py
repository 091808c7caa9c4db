"""Turns the options of `run` into cases, and reports every error that can be found before anything runs."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

from cudabench.errors import CudabenchError, UsageError, did_you_mean, refuse
from cudabench.plan.cases import is_glob
from cudabench.plan.series import Series
from cudabench.records.launch import Launch, Source
from cudabench.records.plan import Case, Problem
from cudabench.source.choose_kernel import find_kernel, types_listed
from cudabench.source.files import read_file
from cudabench.source.records import Kernel, SourceFile
from cudabench.source.words import without_comments
from cudabench.userkernel import arguments, constants, pointers, steps, values
from cudabench.userkernel.arguments import NoSuggestion, suggestion_or_reason
from cudabench.userkernel.object_uses import check_no_reference
from cudabench.userkernel.operation import operation_of
from cudabench.userkernel.problem import UserProblem, launch_of, main_dtype, problem_of
from cudabench.userkernel.request import UserRequest, name_of
from cudabench.userkernel.suggestion import Example, file_of, with_headers_nearby
from cudabench.userkernel.values import Array, Record, Scalar


def series(requests: Sequence[UserRequest], command: str = "run") -> list[Series]:
    """Return the series for some requests; requests with the same file, arguments and expectations are in one series.

    `command`: the cudabench command that suggestions in error messages use, such as 'run'.
    """
    groups: dict[str, list[UserRequest]] = {}
    for request in requests:
        groups.setdefault(same_problem(request), []).append(request)
    return [build(group, command) for group in groups.values()]


def same_problem(request: UserRequest) -> str:
    """Return a key that is equal for requests with the same file, arguments and expectations."""
    texts = " ".join((*request.arguments, *request.expect, request.bytes or "", request.flops or ""))
    words = set(re.findall(r"\w+", texts))
    shaping = {name: value for name, value in request.defines.items() if name.partition("(")[0] in words}
    numbers = {name: value for name, value in request.numbers.items() if name in words}
    alike = replace(request, kernels=(), grid=None, block=None, shared=None, cluster=None)
    return repr(replace(alike, defines=shaping, numbers=numbers))


def build(requests: Sequence[UserRequest], command: str = "run") -> Series:
    """Return the series for requests that have the same arguments.

    The requests may differ in kernels, launches and defines. Raises UsageError for an impossible request, and
    CudabenchError for an error in a file.
    """
    builder = _Builder(requests[0], command)
    cases = builder.in_steps() if requests[0].steps else builder.of_kernels(requests)
    return Series(partial(operation_of, builder.problem), tuple(cases), builder.problem.baseline)


class _Builder:
    """Makes the cases of requests with the same arguments.

    `read` sets these attributes: `arguments`: the kernel's arguments; `numbers`: the values of names in expressions;
    `fixed`: the values of --const; `size`: the scalar arguments, by name; `problem`: the user's problem.
    """

    def __init__(self, request: UserRequest, command: str) -> None:
        self.request, self.command = request, command
        for folder in request.include:
            if not Path(folder).is_dir():
                raise UsageError(f"--include {folder} is not a folder: name the folder that holds the headers.")
        self.folders = tuple(str(Path(folder).resolve()) for folder in request.include)
        self.file = file_of(request)
        self.names = list(request.given())

    def in_steps(self) -> list[Case]:
        """Return the case for --step options, in a list: one case with several launches."""
        request = self.request
        given = {option: getattr(request, option) for option in ("grid", "block", "shared", "cluster")}
        refuse(
            *(
                (
                    text is not None,
                    f"--{name} {text} cannot be used with --step: each step has its own {name}, as in {steps.EXAMPLE}.",
                )
                for name, text in given.items()
            ),
            *(
                (True, f"--kernel {name} cannot be used with --step: the steps name their kernels.")
                for name in request.kernels[1:]
            ),
        )

        def kernel(name: str) -> Kernel:
            ((selected, _, _),) = select(self.file, replace(request, kernels=(name,)))
            check_no_reference(self.file, selected)
            return selected

        group = steps.parse(request.steps)
        example = f"cudabench {self.command} {shlex.quote(request.file)} {steps.EXAMPLE} --arg n=4096 ..."
        whole, kernels = steps.combined_signature(group, self.names, kernel, example)
        self.read(whole, [whole], example)
        launches = steps.launches(group, kernels, self.arguments, self.numbers, self.file)
        name = request.kernels[0] if request.kernels else "+".join(kernel.qualified_name for kernel in kernels.values())
        return [self.case(name, launches, request, list(kernels.values()))]

    def of_kernels(self, requests: Sequence[UserRequest]) -> list[Case]:
        """Return one case for each kernel that the requests name."""
        picked = [(*selected, own) for own in requests for selected in select(self.file, own, self.command)]
        kernels = [kernel for kernel, *_ in picked]
        for kernel in kernels:
            check_no_reference(self.file, kernel)
        by_names = (
            kernel for kernel in kernels if {parameter.name for parameter in kernel.parameters} == set(self.names)
        )
        first = next(by_names, kernels[0])
        example = Example(self.request, self.file, first, self.command)
        orders = self.read(first, kernels, example)
        if self.request.save and len(picked) > 1:
            raise UsageError(
                f"--save {self.request.save[0]} with {len(picked)} kernels would keep the last array: name one kernel."
            )
        given = {argument.name: argument.argument for argument in self.arguments}
        cases = []
        for kernel, (_, name, outright, own), order in zip(kernels, picked, orders, strict=True):
            if own.grid is None or own.block is None:
                lack = " and ".join(f"--{option}" for option in ("grid", "block") if getattr(own, option) is None)
                line = arguments.suggestion_or_reason("write", example)
                raise UsageError(f"{kernel.signature} needs {lack} to be launched; {line}")
            numbers, passed = {**self.numbers, **_known_numbers(own)}, tuple(given[argument] for argument in order)
            launch = launch_of(
                kernel.expression, own.grid, own.block, numbers, shared=own.shared, cluster=own.cluster, passed=passed
            )
            cases.append(replace(self.case(name, (launch,), own, [kernel]), named=outright))
        return cases

    def read(self, first: Kernel, kernels: Sequence[Kernel], example: object) -> list[tuple[str, ...]]:
        """Read the arguments for the kernel `first`, and check that they fit all `kernels`.

        Return, for each kernel, the names of the arguments in the order of its parameters.
        """
        request = self.request
        read = arguments.parse_arguments(request.arguments, first, _known_numbers(request), example, self.file)
        self.arguments, orders = pointers.for_each_kernel(read, first, kernels, self.file)
        scalars = {argument.name: argument.value for argument in self.arguments if isinstance(argument, Scalar)}
        self.size = {name: int(value) if isinstance(value, bool) else value for name, value in scalars.items()}
        members = (argument.numbers for argument in self.arguments if isinstance(argument, Record))
        self.numbers = {**values.CONSTANTS, **_known_numbers(request), **self.size, **ChainMap(*members)}
        self.fixed = constants.parse_constants(request.constants, self.file, self.numbers)
        self.problem = problem_of(request, self.arguments, self.numbers, self.fixed)
        return orders

    def case(self, name: str, launches: tuple[Launch, ...], own: UserRequest, kernels: Sequence[Kernel]) -> Case:
        """Return a case; `name`: the name of the case in results; `own`: the request with the defines of the case."""
        request, folder = self.request, str(Path(self.request.file).resolve().parent)
        unset = (constants.unset_options(self.file, kernel, self.fixed) for kernel in kernels)
        return Case(
            operation="run",
            kernel=name,
            id=None,
            function=launches[0].function,
            source=Source(request.file, self.file.text, folder, False, self.folders, request.std),
            problem=Problem(self.size, main_dtype(self.problem), request.seed),
            block=launches[0].block,
            grid=launches[0].grid,
            launches=launches,
            defines=dict(own.defines),
            expects="",
            named=True,
            constants={name: array.tobytes() for name, array in constants.contents(self.fixed, request.seed).items()},
            unset_constants=tuple(dict.fromkeys(chain.from_iterable(unset))),
        )


def problem(request: UserRequest) -> UserProblem:
    """Return the problem of a request for one kernel. Raises the same errors as `build`."""
    return _problem_in(build([request]))


def _problem_in(series: Series) -> UserProblem:
    return cast(UserProblem, cast("partial[Any]", series.make).args[0])


# Two kernels on one set of arguments ----------------------------------------------------------------------------------


def pair(old: UserRequest, new: UserRequest) -> Series:
    """Return a series of two cases, to compare two kernels: the old one first.

    An array that one kernel may write is treated as if both kernels may write it. Raises UsageError if a request gives
    more than one kernel, or if the arguments, --bytes or --flops differ; raises also the same errors as `build`.
    """
    sides = [build([request]) for request in (old, new)]
    for request, side in zip((old, new), sides, strict=True):
        if len(side.cases) != 1:
            names = ", ".join(case.kernel for case in side.cases)
            raise UsageError(f"A side is one kernel, but {request.file} gives {names}: name one with -k.")
    first, second = map(_problem_in, sides)
    _check_same(first, second)
    second_arguments = {argument.name: argument for argument in second.arguments}
    merged = tuple(
        replace(argument, const=argument.const and cast(Array, second_arguments[argument.name]).const)
        if isinstance(argument, Array)
        else argument
        for argument in first.arguments
    )
    cases = tuple(case for side in sides for case in side.cases)
    return Series(partial(operation_of, replace(first, arguments=merged)), cases, sides[0].baseline)


def _check_same(first: UserProblem, second: UserProblem) -> None:
    """Raise UsageError for the first difference in the arguments, --bytes or --flops of two problems."""
    ours, theirs = ({argument.name: argument for argument in problem.arguments} for problem in (first, second))
    if set(ours) != set(theirs):
        raise UsageError(
            f"The two sides take different arguments, {', '.join(ours)} and {', '.join(theirs)}: give both the "
            "same arguments."
        )
    for name, argument in ours.items():
        other = theirs[name]
        if isinstance(argument, Array) and isinstance(other, Array):
            other = replace(other, const=argument.const)
        if repr(argument) != repr(other):
            raise UsageError(
                f"--arg {name} differs between the sides, so their times cannot be compared: "
                f"{_argument_text(argument)} and {_argument_text(other)}; measure them one by one with 'cudabench run'."
            )
    costs = (("--bytes", first.bytes, second.bytes), ("--flops", first.flops, second.flops))
    refuse(
        *(
            (old != new, f"{option} gives {old} for the old side and {new} for the new side: it must be the same.")
            for option, old, new in costs
        )
    )


def _argument_text(argument: Any) -> str:
    if isinstance(argument, Array):
        return f"{argument.dtype}{list(argument.shape)}"
    value = getattr(argument, "value", None)
    return f"{value} ({argument.dtype})" if value is not None else type(argument).__name__.lower()


# Numbers in the options ----------------------------------------------------------------------------------------------


def _known_numbers(request: UserRequest) -> dict[str, int | float]:
    """Return the numbers, by name, that shapes and grids may use besides the arguments, such as TILE of -D TILE=32."""
    return {**request.numbers, **numeric(request.defines)}


def numeric(texts: Mapping[str, str]) -> dict[str, int | float]:
    """Return the values of the texts that are plain numbers, under the same keys; other texts are left out."""
    numbers: dict[str, int | float] = {}
    for name, value in texts.items():
        if re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
            numbers[name] = int(value)
        elif re.fullmatch(r"[+-]?(\d+\.\d*|\.?\d+)(e[+-]?\d+)?f?", value.strip(), re.I):
            numbers[name] = float(value.strip().rstrip("fF"))
    return numbers


# Which kernels -------------------------------------------------------------------------------------------------------


def select(file: SourceFile, request: UserRequest, command: str = "run") -> list[tuple[Kernel, str, bool]]:
    """Return (kernel, the kernel's name in results, whether the request names it without a pattern) for each requested
    kernel."""
    if not request.kernels:
        kernel = _only_kernel(file, request, command)
        return [(kernel, kernel.qualified_name, True)]
    picked: dict[str, tuple[Kernel, str, bool]] = {}
    for name in request.kernels:
        glob = not set(name) & set("<(") and is_glob(name)
        if name != "all" and not glob:
            kernel = _named_kernel(file, name, request, command)
            picked[kernel.expression] = (kernel, name.strip(), True)
            continue
        plain = [kernel for kernel in file.kernels if not kernel.template_parameters]
        matches = [kernel for kernel in plain if not glob or fnmatchcase(kernel.qualified_name, name)]
        if not matches and not glob and file.kernels:  # only templates
            _named_kernel(file, file.kernels[0].qualified_name, request, command)
        if not matches:
            listed = ", ".join(kernel.qualified_name for kernel in file.kernels) or "no __global__ function"
            raise UsageError(
                f"No kernel of {file.path} matches '{name}'; it has {listed}; templates are named by instance."
            )
        for kernel in matches:
            own = find_kernel(file, kernel.qualified_name + types_listed(kernel.parameters) * kernel.overloaded)
            picked.setdefault(own.expression, (own, own.expression, len(matches) == 1))
    return list(picked.values())


def _only_kernel(file: SourceFile, request: UserRequest, command: str) -> Kernel:
    """Return the only kernel of a file; if there is not exactly one, raise UsageError with a suggested command line."""
    try:
        return find_kernel(file)
    except UsageError as error:
        message = str(error)
        if not file.kernels:
            find_folder = with_headers_nearby(request)
            if find_folder is None or not find_folder[1].kernels:
                raise
            request, file = find_folder
            message = f"{request.file} has only kernels from headers, which -I finds"
        easy = (kernel for kernel in file.kernels if _is_runnable(kernel, file))
        raise UsageError(_with_suggestion(message, _first_suggestion(request, file, easy, command))) from None


def _is_runnable(kernel: Kernel, file: SourceFile) -> bool:
    """Return whether a command line can give all arguments of a kernel, and the simulator can run it."""
    try:
        check_no_reference(file, kernel)
        arguments.check_taken(kernel, file)
    except CudabenchError:
        return False
    return "<<<" not in without_comments(kernel.text)  # kernels that launch other kernels are not supported


def _named_kernel(file: SourceFile, name: str, request: UserRequest, command: str) -> Kernel:
    """Return the kernel with this name, as `find_kernel` does.

    If the name is a template's name without template arguments, the error suggests a line of `command` that has them,
    or no line if that is empty.
    """
    try:
        return find_kernel(file, name)
    except UsageError as error:
        own = [kernel for kernel in file.kernels if name.strip() in (kernel.name, kernel.qualified_name)]
        if not command or len(own) != 1 or not own[0].template_parameters:
            raise
        raise UsageError(_with_suggestion(str(error), _suggestion(request, file, own[0], command))) from None


def _first_suggestion(
    request: UserRequest, file: SourceFile, kernels: Iterable[Kernel], command: str
) -> str | NoSuggestion:
    """Return the command line for the first of the kernels whose suggested command line has no gaps (`...`).

    If all command lines have gaps, return the first command line. If no kernel has a command line, return the reason
    (NoSuggestion) for the first kernel.
    """
    lines: list[str | NoSuggestion] = []
    for kernel in chain(kernels, file.kernels[:1]):
        lines.append(_suggestion(request, file, kernel, command))
        if isinstance(lines[-1], str) and arguments.GAP not in lines[-1]:
            return lines[-1]
    return next((line for line in lines if isinstance(line, str)), lines[0])


def _suggestion(request: UserRequest, file: SourceFile, kernel: Kernel, command: str) -> str | NoSuggestion:
    try:
        return str(Example(request, file, kernel, command))
    except NoSuggestion as why:
        return why


def _with_suggestion(message: str, example: str | NoSuggestion) -> str:
    """Return an error message with the suggested command line added.

    If the message names a template instance as an example, the template instance of the command line replaces it.
    """
    message, such_as, _ = message.rstrip(".").partition(", such as '")
    if isinstance(example, NoSuggestion):
        return f"{message}; {example}"
    words = shlex.split(example)
    named = f", such as '{words[words.index('--kernel') + 1]}'" if such_as else ""
    return f"{message}{named}; {arguments.with_gap_note('as in', example)}"


# Every kernel of a file ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelRequests:
    """`requests`: requests for one kernel each; `left_out`: all other kernels of the same files, as 'FILE: NAME'."""

    requests: tuple[UserRequest, ...]
    left_out: tuple[str, ...]


def for_each_kernel(requests: Sequence[UserRequest], command: str) -> KernelRequests:
    """Split requests into requests for one kernel each; a request that names no kernel means all kernels of its file.

    If there are several kernels, each gets only those --arg and --expect options that have names of its parameters.
    Raises UsageError for a file without kernels, for templates that no name instantiates, and for an option that no
    kernel takes. `command`: the cudabench command that suggestions in error messages use.
    """
    stepped = [request for request in requests if request.steps]  # the steps name their kernels and arguments
    picked = [
        (request, kernel, name)
        for request in requests
        if not request.steps
        for kernel, name in _kernels(request, command)
    ]
    single_requests = [
        replace(_for_kernel(request, kernel) if len(picked) > 1 else request, kernels=(name,))
        for request, kernel, name in picked
    ]
    single_requests += stepped
    _check_options_are_used(requests, single_requests, [kernel for _, kernel, _ in picked])
    requested = {(request.file, kernel.qualified_name, kernel.line) for request, kernel, _ in picked}
    left_out = [
        f"{path}: {kernel.qualified_name}"
        for path in dict.fromkeys(request.file for request, _, _ in picked)
        for kernel in read_file(path).kernels
        if not kernel.file and (path, kernel.qualified_name, kernel.line) not in requested
    ]
    return KernelRequests(tuple(single_requests), tuple(left_out))


def _kernels(request: UserRequest, command: str) -> list[tuple[Kernel, str]]:
    """Return (kernel, a name that selects only this kernel) for each kernel of a request."""
    whole = file_of(request)
    own = tuple(kernel for kernel in whole.kernels if not kernel.file)
    # the kernels of headers are used only if the file itself has no kernel
    file = replace(whole, kernels=own) if own else whole
    if not request.kernels:
        if templates := [kernel for kernel in file.kernels if kernel.template_parameters]:
            line = Example(request, whole, templates[0], command)
            names = ", ".join(kernel.qualified_name for kernel in templates)
            verb = "is a template, which runs" if len(templates) == 1 else "are templates, which run"
            raise UsageError(
                f"{request.file}: {names} {verb} only as an instance: name all kernels, "
                f"{suggestion_or_reason('as in', line)}"
            )
        request = replace(request, kernels=("all",))
    try:
        selected = select(file, request)
    except UsageError:
        with contextlib.suppress(UsageError):
            return [(kernel, name) for kernel, name, _ in select(whole, request)]
        raise
    return [(kernel, name) for kernel, name, _ in selected]


def _for_kernel(request: UserRequest, kernel: Kernel) -> UserRequest:
    """Return a copy of a request with only the options for one kernel, and the arguments in the kernel's order.

    If a parameter has no name, the request is returned unchanged. Numbers among the removed arguments can still be used
    in shapes and grids.
    """
    order = [parameter.name for parameter in kernel.parameters]
    if not all(order):
        return request
    given = {name_of(text): text for text in request.arguments}
    return replace(
        request,
        arguments=tuple(given[name] for name in order if name in given),
        expect=tuple(text for text in request.expect if name_of(text) in order),
        save=tuple(text for text in request.save if name_of(text) in order),
        numbers=numeric(request.given()),
    )


def _check_options_are_used(
    requests: Sequence[UserRequest], singles: Sequence[UserRequest], kernels: Sequence[Kernel]
) -> None:
    """Raise UsageError for an --arg or --expect whose name is a parameter of no kernel."""
    names = list(dict.fromkeys(p.name for kernel in kernels for p in kernel.parameters if p.name))
    for option, kind in (("--arg", "arguments"), ("--expect", "expect")):
        used = {text for request in singles for text in getattr(request, kind)}
        unused = next((text for request in requests for text in getattr(request, kind) if text not in used), None)
        if unused is not None:
            raise UsageError(
                f"{option} {unused}: no kernel has a parameter with this name; use one of {', '.join(names)}."
                f"{did_you_mean(name_of(unused), names)}"
            )
