"""Turns a user's request into launches, and finds every error that can be known before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.plan import chapters
from cudabench.plan.binding import Binding, bind
from cudabench.plan.constants import Constants, Macro, NotANumber
from cudabench.plan.limits import MAX_DIMENSION, check_block, check_grid, check_memory, check_shared
from cudabench.records.launch import Dim, Launch, Source, Unit, dim3, dim_text
from cudabench.records.plan import LIBRARIES, Buffer, Case, Geometry, Kernel, Operation, Problem
from cudabench.source import records
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import parse_text, read_file, without_kernels
from cudabench.source.types import numpy_type

Compilation = tuple[Source, tuple[tuple[str, str], ...]]  # the input of one compilation: a source and its macros


@dataclass(frozen=True)
class Request:
    """The options that a user gives for one operation; None means the default of the kernel or operation.

    `kernels`: names, ids or globs. `source`: a file with kernels that replace the built-in kernels. `peers`: libraries
    or library calls.
    """

    kernels: tuple[str, ...] = ()
    block: tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None
    size: tuple[int, ...] | None = None
    dtype: str | None = None
    seed: int = 0
    source: str | None = None
    defines: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectedKernel:
    """A kernel to run. `text`: the source of the kernel's function; `named`: whether the user named the kernel exactly.

    `rung`: the built-in kernel whose grid and launches are used. `replaced`: maps functions of the rung's launches to
    the functions of a user's file that replace them; both must have alike parameters. Empty for a built-in kernel.
    """

    kernel: Kernel
    text: Source
    named: bool
    rung: Kernel
    replaced: Mapping[str, records.Kernel] = field(default_factory=dict)


def build(operation: Operation, request: Request) -> list[Case]:
    """Return the cases of a request, in the order of the requested names; without names, in the order of the ladder.

    Raises UsageError if a kernel that was named exactly cannot run. Another kernel that cannot run becomes a case with
    a `skip_reason`.
    """
    problem = problem_of(operation, request)
    if request.source is None:
        selection = [
            _builtin_kernel(operation, kernel, named) for kernel, named in select_kernels(operation, request.kernels)
        ]
    else:
        selection = _kernels_from_file(operation, request.source, request.kernels)
    cases = []
    for selected in selection:
        try:
            cases.append(replace(_case(operation, selected, problem, request), named=selected.named))
        except (UsageError, NotANumber) as error:
            constants_differ = f"The constants of {selected.kernel.name} contradict each other: {error}."
            reason = constants_differ if isinstance(error, NotANumber) else str(error)
            if selected.named:
                raise UsageError(reason) from None
            cases.append(replace(_case_without_plan(operation, selected, problem), skip_reason=reason))
    if all(case.skip_reason for case in cases):
        raise UsageError(cases[0].skip_reason or "")
    return [*_without_other_kernels(cases), *_peers(operation, problem, request.peers)]


def _peers(operation: Operation, problem: Problem, names: Sequence[str]) -> list[Case]:
    """Return the cases of library calls. `names`: from --peer; a name of a library means all calls of the library."""
    chosen: set[str] = set()
    available = list(dict.fromkeys(word for peer in operation.peers for word in (peer.library, peer.name)))
    repair = f"use {', '.join(available)}" if available else "no library supports it"
    for name in names:
        of_library = [peer for peer in operation.peers if name in (peer.library, peer.name)]
        supported = {peer.name for peer in of_library if problem.dtype in peer.dtypes}
        types = ", ".join(dict.fromkeys(dtype for peer in of_library for dtype in peer.dtypes))
        lack = f"lacks a call of {LIBRARIES[name]}" if name in LIBRARIES else f"cannot call '{name}'"
        refuse(
            (not of_library, f"--peer {name}: {operation.name} {lack}; {repair}.{did_you_mean(name, available)}"),
            (not supported, f"--peer {name} has no {problem.dtype} form of {operation.name}: use {types}."),
        )
        chosen |= supported
    return [
        replace(
            _case_without_launches(operation, problem, peer.name, peer.call, Source(LIBRARIES[peer.library], "")),
            expects=peer.name if peer.expected or peer.tolerance else "",
            skip_reason=peer.refuses(problem),
            peer=peer.name,
        )
        for peer in operation.peers
        if peer.name in chosen
    ]


def _case_without_launches(operation: Operation, problem: Problem, name: str, function: str, text: Source) -> Case:
    """Return a case without launches."""
    no_dim = (0, 0, 0)
    return Case(operation.name, name, None, function, text, problem, no_dim, no_dim, (), {}, "")


def problem_of(operation: Operation, request: Request) -> Problem:
    """Return the problem of a request (size, type, seed, options); all kernels of the request get this problem."""
    size = _size(operation, request.size, operation.size(request.options))
    dtype = request.dtype or next(iter(operation.dtypes))
    if dtype not in operation.dtypes:
        raise UsageError(
            f"{operation.name} lacks kernels for '{dtype}': use {', '.join(operation.dtypes)}."
            f"{did_you_mean(dtype, operation.dtypes)}"
        )
    problem = Problem(size, dtype, request.seed, request.options)
    check_memory(operation, problem)
    return problem


def _without_other_kernels(cases: Sequence[Case]) -> list[Case]:
    """Return copies of the cases in whose sources the kernels that no case needs are removed, to save compile time.

    Cases with the same source and macros keep the same kernels, so that one compilation serves all of them.
    """
    needed: dict[Compilation, set[str]] = {}
    for case in cases:
        # There may be thousands of launches of the same few kernels.
        distinct = {(id(launch.unit), launch.function): launch for launch in case.launches}
        for launch in distinct.values():
            needed.setdefault(_compilation_of(case, launch.unit), set()).add(launch.function)

    def reduced(case: Case, unit: Unit | None) -> Source:
        key = _compilation_of(case, unit)
        return _without_kernels(key[0], frozenset(needed.get(key, ())))

    reduced_cases = []
    for case in cases:
        units = {
            id(launch.unit): replace(launch.unit, source=reduced(case, launch.unit))
            for launch in case.launches
            if launch.unit
        }
        launches = tuple(
            replace(launch, unit=units[id(launch.unit)]) if launch.unit else launch for launch in case.launches
        )
        source = reduced(case, None) if case.source.builtin else case.source
        reduced_cases.append(replace(case, source=source, launches=launches))
    return reduced_cases


def _compilation_of(case: Case, unit: Unit | None) -> Compilation:
    """Return the source and macros to compile for a launch: those of its unit, or those of the case without a unit."""
    source, defines = (unit.source, unit.defines) if unit else (case.source, case.defines)
    return source, tuple(sorted(defines.items()))


@lru_cache(maxsize=64)  # a sweep needs the same source for every block
def _without_kernels(chapter: Source, kernels: frozenset[str]) -> Source:
    return replace(chapter, text=without_kernels(chapter.text, kernels))


# Chosen kernels ------------------------------------------------------------------------------------------------------


def select_kernels(operation: Operation, names: Sequence[str]) -> list[tuple[Kernel, bool]]:
    """Return (kernel, whether it was named exactly) for each kernel that the names, ids or globs in `names` select.

    Without names, return the whole ladder.
    """
    selection: dict[str, tuple[Kernel, bool]] = {}
    for name in names or ("all",):
        for kernel, named in _matching_kernels(operation, name):
            selection[kernel.name] = (kernel, named or selection.get(kernel.name, (kernel, False))[1])
    return list(selection.values())


def is_glob(name: str) -> bool:
    """Return whether a name is a glob, such as 'smem*'."""
    return bool(set(name) & set("*?["))


def _matching_kernels(operation: Operation, name: str) -> list[tuple[Kernel, bool]]:
    kernels = operation.kernels
    if name == "all":
        return [(kernel, False) for kernel in kernels]
    if name.isdecimal() and name.isascii() and len(name) < 10:
        if int(name) >= len(kernels):
            raise UsageError(f"{operation.name} lacks a kernel {name}: its ids are 0 to {len(kernels) - 1}.")
        return [(kernels[int(name)], True)]
    if is_glob(name):
        if matching := [(kernel, False) for kernel in kernels if fnmatchcase(kernel.name, name)]:
            return matching
        raise UsageError(
            f"No kernel of {operation.name} matches '{name}'; 'cudabench list {operation.name}' shows them."
        )
    names = [kernel.name for kernel in kernels]
    exact = [kernel for kernel in kernels if name in (kernel.name, kernel.function)][:1]
    matched = exact or [k for k in kernels if name.lower() in (k.name.lower(), k.function.lower())]
    if len(matched) == 1:
        return [(matched[0], True)]
    raise UsageError(f"{operation.name} lacks a kernel '{name}'.{did_you_mean(name, names)} Use {', '.join(names)}.")


def _kernels_from_file(operation: Operation, path: str, names: Sequence[str]) -> list[SelectedKernel]:
    """Return the kernels to run if the user gives a source file.

    A name is the name of a function of the file, or of a built-in kernel (rung). A rung's function is replaced by the
    file's function with the same name, or by the file's only function; it gets the rung's block and grid. A rung for
    which the file has no function runs unchanged, for comparison.
    """
    file = read_file(path)
    folder = str(Path(path).resolve().parent)
    copied = (str(chapters.folder()),)  # a user's copy of a file in kernels_cu/ includes headers from kernels_cu/
    text = Source(str(path), file.text, folder=folder, builtin=False, include=copied)
    if not names:
        return [_user_kernel(operation, file, text, find_kernel(file))]
    if names == ("all",):
        names = tuple(kernel.name for kernel in file.kernels)
    selection: list[SelectedKernel] = []
    functions = list(dict.fromkeys(kernel.name for kernel in file.kernels))
    for name in names:
        if name in functions:
            selection.append(_user_kernel(operation, file, text, find_kernel(file, name)))
            continue
        for kernel, named in _matching_kernels(operation, name):
            only_function = next(iter(functions)) if len(functions) == 1 and len(names) == 1 and named else ""
            function_name = kernel.function if kernel.function in functions else only_function
            replacement = (
                _user_kernel(operation, file, text, find_kernel(file, function_name), kernel) if function_name else None
            )
            selection.append(
                replace(replacement, named=named) if replacement else _builtin_kernel(operation, kernel, named)
            )
    if not any(selected.replaced for selected in selection):
        raise UsageError(
            f"{path} lacks a kernel for {', '.join(names)}; it has {', '.join(functions) or 'no __global__ function'}: "
            "name one of them with --kernel."
        )
    return selection


def _builtin_kernel(operation: Operation, kernel: Kernel, named: bool) -> SelectedKernel:
    return SelectedKernel(kernel, chapters.chapter_of(operation, kernel), named, kernel)


def _user_kernel(
    operation: Operation, file: records.SourceFile, text: Source, function: records.Kernel, rung: Kernel | None = None
) -> SelectedKernel:
    """Return a kernel for a user's function, with the block and grid of a rung: `rung`; or else the rung whose function
    has the same name as the user's function; or else the operation's first kernel.

    If the rung launches several functions, the user's function replaces the function with the same name, or else the
    rung's main function. The rung's other functions stay built-in, unless the file has functions with the same names.
    """
    name = rung.name if rung else function.name
    alike = (kernel for kernel in operation.kernels if kernel.function == function.name)
    rung = rung or next(alike, operation.plain)
    replaced = {rung.function: function}
    if rung.launches is not None:
        chapter = chapters.functions(chapters.name(operation, rung))
        if function.name in chapter and function.name != rung.function:
            replaced = {function.name: function}
        replaced |= {
            kernel.name: find_kernel(file, kernel.name)
            for kernel in file.kernels
            if kernel.name in chapter and kernel.name not in replaced and kernel.name != function.name
        }
    return SelectedKernel(replace(rung, name=name, function=function.expression), text, True, rung, replaced)


def _launch_user_functions(
    operation: Operation, selected: SelectedKernel, launches: Sequence[Launch], chapter: Unit, problem: Problem
) -> tuple[list[Launch], str]:
    """Return a rung's launches, in which the user's functions replace the built-in ones, and `Case.unsure`.

    Raises UsageError if no launch uses a function of the user.
    """
    bindings: dict[str, Binding] = {}
    result = []
    for launch in launches:
        function = selected.replaced.get(launch.function)
        if function is None:
            result.append(replace(launch, unit=chapter))
            continue
        if launch.function not in bindings:
            bindings[launch.function] = _binding(operation, selected, function, launch, problem)
        arguments = tuple(launch.arguments[i] for i in bindings[launch.function].order)
        result.append(replace(launch, function=function.expression, arguments=arguments))
    if not bindings:
        function = next(iter(selected.replaced.values()))
        launched = ", ".join(dict.fromkeys(launch.function for launch in launches))
        raise UsageError(
            f"{selected.text.name}:{function.line}: {selected.rung.name} launches {launched} here, not "
            f"{function.name}: name a kernel that does with --kernel."
        )
    return result, ", ".join(binding.unsure for binding in bindings.values() if binding.unsure)


def _binding(
    operation: Operation, selected: SelectedKernel, function: records.Kernel, launch: Launch, problem: Problem
) -> Binding:
    """Return which arguments of a launch the parameters of a user's function take.

    Raises UsageError if the function's parameters do not fit the arguments.
    """
    file = parse_text(selected.text.text, selected.text.name)
    chapter = chapters.functions(chapters.name(operation, selected.rung))[launch.function]
    buffers = {buffer.name: buffer for buffer in operation.buffers(problem)}
    ctype, expected = operation.dtypes[problem.dtype], chapter.parameters
    passed = [buffers.get(given, given) if isinstance(given, str) else given for given in launch.arguments]
    binding = bind(function.parameters, expected) if len(function.parameters) == len(expected) else None
    if binding is None or not all(
        _accepts(parameter, expected[at], passed[at], ctype, file.types)
        for parameter, at in zip(function.parameters, binding.order, strict=True)
    ):
        taker = (
            "its kernels take" if selected.rung.launches is None else f"{launch.function} of {selected.rung.name} takes"
        )
        raise UsageError(
            f"{selected.text.name}:{function.line}: {operation.name} cannot call {function.signature}; {taker} "
            f"({', '.join(str(parameter) for parameter in expected)}), with T = {ctype}."
        )
    return binding


def _accepts(
    parameter: records.Parameter, expected: records.Parameter, passed: Any, ctype: str, types: Mapping[str, str]
) -> bool:
    """Return whether a parameter of a user's function can take a buffer or scalar: `half *` takes float16.

    `expected`: the parameter of the built-in function; `ctype`: the C type of elements; `types`: the file's own names
    of types.
    """
    if parameter.pointer != isinstance(passed, Buffer):
        return False
    # The command line may set the macro T, even if the file gives it a default.
    type_name = numpy_type(ctype) if parameter.type == "T" else numpy_type(parameter.type, types)
    if type_name is None:  # files in kernels_cu/, and copies of them, derive types such as S from T
        return parameter.type == expected.type
    a, b = np.dtype(type_name), np.dtype(passed.dtype)
    return a.itemsize == b.itemsize and (parameter.pointer or (a.kind == "f") == (b.kind == "f"))


# Size, block and grid ------------------------------------------------------------------------------------------------


def _size(operation: Operation, requested: tuple[int, ...] | None, required: tuple[int, ...] | None) -> dict[str, int]:
    names = operation.dimensions
    values = requested or required or operation.default_size
    if required and values != required:
        raise UsageError(
            f"--size {' '.join(map(str, values))} contradicts the other options, which give "
            f"{' '.join(map(str, required))}: leave --size out."
        )
    if len(values) == 1 and len(names) > 1:
        values = values * len(names)  # a single number is the size in every dimension
    if len(values) != len(names):
        raise UsageError(
            f"--size {' '.join(map(str, values))} has {len(values)} numbers; {operation.name} takes "
            f"{' '.join(name.upper() for name in names)}."
        )
    for value in values:
        if not 1 <= value <= MAX_DIMENSION:
            raise UsageError(f"--size {value} is out of range: each number is 1 to {MAX_DIMENSION}.")
    return dict(zip(names, values, strict=True))


def _case(operation: Operation, selected: SelectedKernel, problem: Problem, request: Request) -> Case:
    kernel = selected.kernel
    block = dim3(request.block or kernel.block)
    check_block(block)
    refuse(
        (
            any(extent > 1 for extent in block[operation.block_dimensions :]),
            f"--block {dim_text(block)} has too many numbers: {operation.name} takes "
            f"{operation.block_dimensions}, such as {dim_text((prod(block), 1, 1))}.",
        ),
        (
            kernel.dtypes and problem.dtype not in kernel.dtypes,
            f"{kernel.name} has no {problem.dtype} form: use {', '.join(kernel.dtypes or ())}.",
        ),
    )
    fixed = _option_macros(operation, problem, block)
    chapter = chapters.chapter_of(operation, selected.rung)
    macros = chapters.macros(chapter)
    user_defines = request.defines
    if selected.text.builtin:
        _check_defines(operation, fixed, request.defines)
        user_defines = {name: text for name, text in request.defines.items() if name in kernel.constants}
    else:
        macros = _with_user_macros(macros, chapters.macros(selected.text), fixed | dict(user_defines), problem)
    inputs, defines = _geometry(kernel, problem, block, macros, fixed, user_defines)
    ruled = kernel.constants if selected.text.builtin else {}  # the rules on constants apply only to built-in kernels
    for name in (name for name in ruled if name in user_defines):
        if reason := ruled[name](inputs[name], inputs):
            raise UsageError(f"--define {name}={user_defines[name]} is refused: {kernel.name} takes {reason}.")
    if reason := kernel.refuses(inputs):
        raise UsageError(f"{kernel.name} cannot take --block {dim_text(block, 1)}: {reason}.")
    for name in (name for name in ruled if name not in user_defines):
        if reason := ruled[name](inputs[name], inputs):
            raise UsageError(
                f"{kernel.name} cannot take --block {dim_text(block)}: its {name} is {inputs[name]}, but must "
                f"be {reason}."
            )
    needed_grid = kernel.grid(inputs)
    grid = dim3(request.grid) if request.grid else needed_grid
    check_grid(grid, "" if request.grid else " A larger --block needs fewer blocks.")
    if not kernel.any_grid and any(have < need for have, need in zip(grid, needed_grid, strict=True)):
        raise UsageError(
            f"--grid {dim_text(grid)} cannot cover {' x '.join(map(str, problem.size.values()))} with {kernel.name} "
            f"and a block of {dim_text(block)}: it takes {dim_text(needed_grid)}; leave --grid out to use it."
        )
    if kernel.launches is None:
        arguments, shared = operation.arguments(problem), kernel.shared_bytes(inputs)
        launches = [Launch(selected.rung.function, grid, block, arguments, shared)]
    else:
        launches = list(kernel.launches(inputs, grid))
    check_shared(
        max(launch.shared_bytes for launch in launches),
        f"{kernel.name} needs",
        "make the block, or the constants and options that set it, smaller",
    )
    unsure = ""
    if not selected.text.builtin:
        launches, unsure = _launch_user_functions(operation, selected, launches, Unit(chapter, defines), problem)
        source_text = chapters.with_headers(selected.text)
        used = {name: text for name, text in defines.items() if _expects_macro(source_text, name)}
        defines = used | dict(request.defines)
    chosen = {} if kernel.launches else _rule_constants(kernel, inputs, macros, {**fixed, **user_defines})
    return replace(
        _case_without_plan(operation, selected, problem),
        block=block,
        grid=grid,
        launches=tuple(launches),
        unsure=unsure,
        defines=defines,
        chosen={name: text for name, text in chosen.items() if name in defines},
    )


# The constants of a source file --------------------------------------------------------------------------------------


def geometry(operation: Operation, kernel: Kernel, problem: Problem, block: Dim) -> Geometry:
    """Return the input of a kernel's rules for a problem and a block, without macros from the command line."""
    fixed = _option_macros(operation, problem, block)
    return _geometry(kernel, problem, block, chapters.macros(chapters.chapter_of(operation, kernel)), fixed, {})[0]


def _option_macros(operation: Operation, problem: Problem, block: Dim) -> dict[str, str]:
    """Return the macros that options set: T, BDIMX, BDIMY, and macros of the operation, such as RADIUS."""
    sides = {"BDIMX": str(block[0]), "BDIMY": str(block[1])}
    return {"T": operation.dtypes[problem.dtype], **sides, **operation.defines(problem)}


def _geometry(
    kernel: Kernel,
    problem: Problem,
    block: Dim,
    macros: Mapping[str, Macro],
    fixed: Mapping[str, str],
    typed: Mapping[str, str],
) -> tuple[Geometry, dict[str, str]]:
    """Return the input of the kernel's rules, and the macros with which its source is compiled.

    `macros`: the macros of the source; `fixed`: macros that options set; `typed`: macros from --define. Constants from
    --define are evaluated here, so that the compiler and the kernel's rules get the same numbers.
    """
    itemsize = np.dtype(problem.dtype).itemsize
    inputs = Geometry(problem, block, Constants(macros, {**fixed, **typed}, itemsize))
    numbers = dict(typed)
    for name in (name for name in typed if name in kernel.constants):
        try:
            numbers[name] = str(inputs[name])
        except NotANumber as error:
            raise UsageError(f"--define {name}={typed[name]}: {kernel.name} needs a whole number ({error}).") from None
    defines = {**fixed, **kernel.defines(inputs), **numbers}
    return Geometry(problem, block, Constants(macros, defines, itemsize)), defines


def _rule_constants(
    kernel: Kernel, inputs: Geometry, macros: Mapping[str, Macro], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the constants of the source that the kernel's own rule (`defines`) sets to other values, as text."""
    plain = Constants(macros, given, inputs.itemsize)
    ruled = (name for name in kernel.defines(inputs) if name in macros and name not in given)
    return {name: str(inputs[name]) for name in ruled if inputs[name] != plain[name]}


def _check_defines(operation: Operation, fixed: Mapping[str, str], user_defines: Mapping[str, str]) -> None:
    """Raise UsageError for a macro from --define that is not a constant of the operation, or that another option
    sets."""
    allowed = {name for kernel in operation.kernels for name in kernel.constants}
    flags = {"T": "--dtype", "BFLOAT16": "--dtype", "BDIMX": "--block", "BDIMY": "--block"}
    flags |= {option.name.upper(): f"--{option.name}" for option in operation.options}
    listed = f"it has {', '.join(sorted(allowed))}" if allowed else "it has no constants"
    for name, text in ((name, text) for name, text in user_defines.items() if name not in allowed):
        refuse(
            (name in fixed, f"--define {name}={text}: {flags.get(name, '--size')} sets {name}; use that."),
            (
                any(name in chapters.macros(chapters.read_chapter(file)) for file in chapters.names(operation)),
                f"--define {name}={text}: {name} of {operation.name} follows from other constants and cannot be set; "
                f"among the constants that can be set, {listed}.",
            ),
            (
                True,
                f"--define {name}={text} is not a constant of {operation.name}: {listed}.{did_you_mean(name, allowed)}",
            ),
        )


def _with_user_macros(
    chapter: Mapping[str, Macro], file_macros: Mapping[str, Macro], defines: Mapping[str, str], problem: Problem
) -> dict[str, Macro]:
    """Return the macros of a built-in file (`chapter`), in which macros of a user's file replace macros with the same
    name, unless their value cannot be computed."""
    itemsize = np.dtype(problem.dtype).itemsize
    merged = {**chapter, **{name: macro for name, macro in file_macros.items() if name in chapter}}
    values = Constants(merged, defines, itemsize)
    for name in file_macros:
        if name in chapter and merged[name].parameters is None:
            try:
                values[name]
            except NotANumber:
                merged[name] = chapter[name]
    return merged


def _expects_macro(text: str, name: str) -> bool:
    """Return whether a macro must be defined for a user's file: if the file uses its name, but not as the name of a
    template parameter. A macro T would break templates with a parameter T in the headers that the file includes.
    """
    return bool(re.search(rf"\b{name}\b", text)) and not re.search(rf"\b(typename|class)\s+{name}\b", text)


def _case_without_plan(operation: Operation, selected: SelectedKernel, problem: Problem) -> Case:
    """Return the case of a kernel without launches. They are added later, except for a skipped kernel."""
    kernel, overrides = selected.kernel, (selected.kernel.expected, selected.kernel.tolerance)
    # The name of the first kernel with the same expected output and tolerance; '' if the operation's are used.
    expects = (
        next(k.name for k in operation.kernels if (k.expected, k.tolerance) == overrides) if any(overrides) else ""
    )
    return replace(
        _case_without_launches(operation, problem, kernel.name, kernel.function, selected.text),
        id=operation.kernel_id(kernel.name),
        expects=expects,
        architecture=kernel.architecture if selected.text.builtin else "",
    )


def parse_defines(texts: Sequence[str]) -> dict[str, str]:
    """Return the dict of macros for texts of the form NAME=VALUE; NAME alone means NAME=1.

    Raises UsageError for other texts.
    """
    defines = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*(\([\w,\s.]*\))?", name):
            raise UsageError(f"--define {text} does not name a macro: write NAME=VALUE, as in -D IPAD=2.")
        defines[name] = value if equals else "1"
    return defines
