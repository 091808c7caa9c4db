"""From what the user asks for to launches: every mistake that can be known before anything runs is found here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.model import (
    MAX_BLOCK,
    MAX_GRID,
    MAX_THREADS_PER_BLOCK,
    Case,
    Dim,
    Kernel,
    Launch,
    Operation,
    Problem,
    Source,
    dim3,
    dim_text,
)
from cudabench.plan import chapters
from cudabench.toolchain import source

MAX_DIMENSION = 2**31 - 1  # sizes reach the kernels as int


@dataclass(frozen=True)
class Request:
    """What the command line asks for of one operation; what is None takes the kernel's own."""

    kernels: tuple[str, ...] = ()
    block: tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None
    size: tuple[int, ...] | None = None
    dtype: str | None = None
    seed: int = 0
    source: str | None = None
    defines: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def build(operation: Operation, request: Request) -> list[Case]:
    """Return the cases of a request in ladder order, or in the order of the names given.

    A kernel that was asked for by name and cannot run is a UsageError; one that came with the ladder or a glob is a
    case with a `skip_reason`.
    """
    size = _size(operation, request.size, operation.size(request.options))
    problem = Problem(size, _dtype(operation, request.dtype), request.seed, request.options)
    if request.source is None:
        chapter = chapters.read(operation.source)
        picked = [(kernel, chapter, named) for kernel, named in select(operation, request.kernels)]
    else:
        picked = _from_file(operation, request.source, request.kernels)
    cases = []
    for kernel, text, named in picked:
        try:
            cases.append(replace(_case(operation, kernel, text, problem, request), named=named))
        except UsageError as error:
            if named or len(picked) == 1:
                raise
            cases.append(replace(_unplanned(operation, kernel, text, problem), skip_reason=str(error)))
    if all(case.skip_reason for case in cases):
        raise UsageError(cases[0].skip_reason or "")
    return _without_other_kernels(cases)


def _without_other_kernels(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with what they need of a chapter: compiling the rest may take seconds."""
    wanted = frozenset(launch.function for case in cases for launch in case.launches)
    return [replace(c, source=_reduced(c.source, wanted)) if c.source.builtin else c for c in cases]


@lru_cache(maxsize=16)  # a sweep asks for the same part once a block
def _reduced(chapter: Source, wanted: frozenset[str]) -> Source:
    return replace(chapter, text=source.without_kernels(chapter.text, wanted))


# Which kernels ------------------------------------------------------------------------------------------------------


def select(operation: Operation, names: Sequence[str]) -> list[tuple[Kernel, bool]]:
    """Return the kernels that names, ids and globs mean, each with whether it was named outright; none = the ladder."""
    picked: dict[str, tuple[Kernel, bool]] = {}
    for name in names or ("all",):
        for kernel, named in _matching(operation, name):
            already = picked.get(kernel.name)
            picked[kernel.name] = (kernel, named or bool(already and already[1]))
    return list(picked.values())


def _matching(operation: Operation, name: str) -> list[tuple[Kernel, bool]]:
    kernels = operation.kernels
    if name == "all":
        return [(kernel, False) for kernel in kernels]
    if name.isdecimal() and name.isascii() and len(name) < 10:
        if int(name) >= len(kernels):
            raise UsageError(f"{operation.name} has no kernel {name}: its ids are 0 to {len(kernels) - 1}.")
        return [(kernels[int(name)], True)]
    if set(name) & set("*?["):
        found = [(kernel, False) for kernel in kernels if fnmatchcase(kernel.name, name)]
        if not found:
            raise UsageError(
                f"No kernel of {operation.name} matches '{name}'; 'cudabench list {operation.name}' shows them."
            )
        return found
    for kernel in kernels:
        if name in (kernel.name, kernel.function):
            return [(kernel, True)]
    known = [kernel.name for kernel in kernels]
    raise UsageError(f"{operation.name} has no kernel '{name}'.{did_you_mean(name, known)} It has {', '.join(known)}.")


def _from_file(operation: Operation, path: str, names: Sequence[str]) -> list[tuple[Kernel, Source, bool]]:
    """Return the kernels of a user's file, each with the geometry of the rung that it stands for, and built-in ones.

    A name stands for a function of the file, or for a rung: then the file's function for it is the one called the same,
    or the file's only one. A rung that the file has no function for is the built-in one, to compare with.
    """
    file = source.read(path)
    text = Source(str(path), file.text, folder=str(Path(path).resolve().parent), builtin=False)
    if not names:
        return [(_own(operation, source.find(file)), text, True)]
    if names == ("all",):
        names = tuple(kernel.name for kernel in file.kernels)
    picked: list[tuple[Kernel, Source, bool]] = []
    functions = {kernel.name: kernel for kernel in file.kernels}
    used = False
    chapter = chapters.read(operation.source)
    for name in names:
        if name in functions:
            picked.append((_own(operation, source.find(file, name)), text, True))
            used = True
            continue
        for kernel, named in _matching(operation, name):
            if kernel.function in functions:
                own = functions[kernel.function]
            elif len(functions) == 1 and len(names) == 1 and named:
                own = next(iter(functions.values()))
            else:
                picked.append((kernel, chapter, named))
                continue
            picked.append((_own(operation, source.find(file, own.name), kernel), text, named))
            used = True
    if not used:
        raise UsageError(
            f"{path} has no kernel for {', '.join(names)}; it has {', '.join(functions) or 'no __global__ function'}: "
            "name one of them with --kernel."
        )
    return picked


def _own(operation: Operation, function: source.KernelSource, rung: Kernel | None = None) -> Kernel:
    """Return a kernel for a user's function: a rung's name and geometry, or one element a thread."""
    named = rung
    rung = rung or next((kernel for kernel in operation.kernels if kernel.function == function.name), None)
    rung = rung or operation.plain
    own = replace(rung, name=named.name if named else function.name, function=function.expression)
    launches = rung.launches
    if launches is None:
        return own

    # Where a rung is several launches, the user's function takes the place of the first.
    def renamed(problem: Problem, block: Dim, grid: Dim) -> list[Launch]:
        return [
            replace(launch, function=own.function) if launch.function == rung.function else launch
            for launch in launches(problem, block, grid)
        ]

    return replace(own, launches=renamed)


def _arguments(operation: Operation, kernel: Kernel, text: Source, problem: Problem) -> tuple[Any, ...]:
    """Return the operation's arguments in the order of a kernel's parameters, or refuse the parameters.

    In a user's file the pointers are told apart by const where the function says it: an input that comes second is
    still the input.
    """
    arguments = operation.arguments(problem)
    if text.builtin:
        return arguments
    file = source.parse(text.text, text.name)
    own = source.find(file, kernel.function)
    wanted = source.parse(chapters.read(operation.source).text, operation.source).kernels[0].parameters
    ctype = operation.dtypes[problem.dtype]
    fits = len(own.parameters) == len(wanted) and all(
        _same_kind(a, b, ctype, file.aliases) for a, b in zip(own.parameters, wanted, strict=True)
    )
    if not fits:
        raise UsageError(
            f"{text.name}:{own.line}: {operation.name} cannot call {own.signature}; its kernels take "
            f"({', '.join(str(parameter) for parameter in wanted)}), with T = {ctype}."
        )
    pointers = [i for i, parameter in enumerate(wanted) if parameter.pointer]
    theirs = [own.parameters[i].const for i in pointers]
    ours = [wanted[i].const for i in pointers]
    if len(pointers) == 2 and theirs == ours[::-1] and theirs[0] != theirs[1]:
        first, second = pointers
        swapped = list(arguments)
        swapped[first], swapped[second] = arguments[second], arguments[first]
        return tuple(swapped)
    return arguments


def _same_kind(own: source.Parameter, wanted: source.Parameter, ctype: str, aliases: Mapping[str, str]) -> bool:
    """Tell whether a parameter takes the bits that the ladder's takes: `half` fits unsigned short."""
    if own.pointer != wanted.pointer:
        return False
    # T may be the macro that the command line defines, even where the file has a default of its own for it.
    have = source.numpy_dtype(ctype) if own.type == "T" else source.numpy_dtype(own.type, aliases)
    want = source.numpy_dtype(ctype if wanted.type == "T" else wanted.type)
    if have is None or want is None:
        return False
    a, b = np.dtype(have), np.dtype(want)
    return a.itemsize == b.itemsize and (own.pointer or (a.kind == "f") == (b.kind == "f"))


# Their size, block and grid -----------------------------------------------------------------------------------------


def _size(operation: Operation, given: tuple[int, ...] | None, demanded: tuple[int, ...] | None) -> dict[str, int]:
    names = operation.dimensions
    values = given or demanded or operation.default_size
    if demanded and values != demanded:
        raise UsageError(
            f"--size {' '.join(map(str, values))} contradicts the other options, which give "
            f"{' '.join(map(str, demanded))}: leave --size out."
        )
    if len(values) == 1 and len(names) > 1:
        values = values * len(names)  # one number: square
    if len(values) != len(names):
        raise UsageError(
            f"--size {' '.join(map(str, values))} has {len(values)} numbers; {operation.name} takes "
            f"{' '.join(name.upper() for name in names)}."
        )
    for value in values:
        if not 1 <= value <= MAX_DIMENSION:
            raise UsageError(f"--size {value} is out of range: each number is 1 to {MAX_DIMENSION}.")
    return dict(zip(names, values, strict=True))


def _dtype(operation: Operation, name: str | None) -> str:
    if name is None:
        return next(iter(operation.dtypes))
    if name not in operation.dtypes:
        raise UsageError(
            f"{operation.name} has no kernels for '{name}': use {', '.join(operation.dtypes)}."
            f"{did_you_mean(name, operation.dtypes)}"
        )
    return name


def check_block(block: Dim) -> None:
    """Raise UsageError for a block that no CUDA device launches."""
    threads = block[0] * block[1] * block[2]
    for value, limit, axis in zip(block, MAX_BLOCK, "xyz", strict=True):
        if value < 1:
            raise UsageError(f"--block {dim_text(block)} is no block: each number is at least 1.")
        if value > limit and threads <= MAX_THREADS_PER_BLOCK:
            raise UsageError(f"--block {dim_text(block)} has {axis} = {value}; CUDA allows at most {limit}.")
    if threads > MAX_THREADS_PER_BLOCK:
        raise UsageError(
            f"--block {dim_text(block)} has {threads} threads; CUDA allows {MAX_THREADS_PER_BLOCK} a block, "
            f"such as {_fitting_block(block)}."
        )


def _fitting_block(block: Dim) -> str:
    """Return the block with its y (or x) reduced until it fits."""
    x, y, z = block
    while x * y * z > MAX_THREADS_PER_BLOCK:
        if z > 1:
            z = (z + 1) // 2
        elif y > 1:
            y = (y + 1) // 2
        else:
            x = MAX_THREADS_PER_BLOCK
    return dim_text((x, y, z))


def check_grid(grid: Dim, why: str = "") -> None:
    """Raise UsageError for a grid that no CUDA device launches."""
    for value, limit, axis in zip(grid, MAX_GRID, "xyz", strict=True):
        if value < 1:
            raise UsageError(f"--grid {dim_text(grid)} is no grid: each number is at least 1.")
        if value > limit:
            raise UsageError(f"The grid {dim_text(grid)} has {axis} = {value}; CUDA allows at most {limit}.{why}")


def _case(operation: Operation, kernel: Kernel, text: Source, problem: Problem, request: Request) -> Case:
    itemsize = np.dtype(problem.dtype).itemsize
    block = dim3(request.block or kernel.block)
    check_block(block)
    if any(extent > 1 for extent in block[operation.block_dimensions :]):
        threads = block[0] * block[1] * block[2]
        raise UsageError(
            f"--block {dim_text(block)} has too many numbers: {operation.name} takes "
            f"{operation.block_dimensions}, such as {dim_text((threads, 1, 1))}."
        )
    if kernel.dtypes and problem.dtype not in kernel.dtypes:
        raise UsageError(f"{kernel.name} has no {problem.dtype} form: use {', '.join(kernel.dtypes)}.")
    reason = kernel.refuses(block, itemsize)
    if reason:
        raise UsageError(f"{kernel.name} cannot take --block {dim_text(block, 1)}: {reason}.")
    needed = kernel.grid(problem, block)
    grid = dim3(request.grid) if request.grid else needed
    check_grid(grid, "" if request.grid else " A larger --block needs fewer blocks.")
    if not kernel.any_grid and any(have < need for have, need in zip(grid, needed, strict=True)):
        raise UsageError(
            f"--grid {dim_text(grid)} cannot cover {_size_text(problem)} with {kernel.name} and a block of "
            f"{dim_text(block)}: it takes {dim_text(needed)}; leave --grid out to get that."
        )
    ctype = operation.dtypes[problem.dtype]
    if kernel.launches is None:
        arguments = _arguments(operation, kernel, text, problem)
        launches: tuple[Launch, ...] = (
            Launch(kernel.function, grid, block, arguments, kernel.shared_bytes(block, itemsize)),
        )
    else:
        launches = tuple(kernel.launches(problem, block, grid))
    defines = {"T": ctype, "BDIMX": str(block[0]), "BDIMY": str(block[1])} | operation.defines(problem)
    defines |= kernel.defines(block, itemsize)
    if not text.builtin:
        defines = {name: value for name, value in defines.items() if _expects_macro(text.text, name)}
    return replace(
        _unplanned(operation, kernel, text, problem),
        block=block,
        grid=grid,
        launches=launches,
        defines=defines | dict(request.defines),
    )


def _expects_macro(text: str, name: str) -> bool:
    """Tell whether a user's file wants a macro: it says the name, and not as a template parameter of its own.

    Defined all the same, `T` would end in the templates of the headers that the file includes.
    """
    return bool(re.search(rf"\b{name}\b", text)) and not re.search(rf"\b(typename|class)\s+{name}\b", text)


def _expects(operation: Operation, kernel: Kernel) -> str:
    """Return the name of the rung whose expected output this kernel has, or '' for the operation's reference."""
    return next((k.name for k in operation.kernels if k.expected and k.expected is kernel.expected), "")


def _unplanned(operation: Operation, kernel: Kernel, text: Source, problem: Problem) -> Case:
    """Return a case without launches, as a kernel that is skipped has it."""
    nothing = (0, 0, 0)
    return Case(
        operation=operation.name,
        kernel=kernel.name,
        id=operation.kernel_id(kernel.name),
        function=kernel.function,
        source=text,
        problem=problem,
        block=nothing,
        grid=nothing,
        launches=(),
        defines={},
        expects=_expects(operation, kernel),
    )


def _size_text(problem: Problem) -> str:
    return " x ".join(str(value) for value in problem.size.values())


def parse_defines(texts: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE texts as a mapping; NAME alone means 1. Raises UsageError for what is no macro."""
    defines = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"--define {text} names no macro: write NAME=VALUE, as in -D IPAD=2.")
        defines[name] = value if equals else "1"
    return defines
