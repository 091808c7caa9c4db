"""A user's problem: the arguments, the expected outputs, and the bytes and flops of a launch.

A problem consists of plain data, so that it can be sent to the process that uses the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.plan.limits import check_block, check_cluster, check_grid, check_shared
from cudabench.records.launch import Dim, Launch
from cudabench.system.outputs import check_target
from cudabench.userkernel import arguments, expressions
from cudabench.userkernel.expressions import Expression
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.values import Argument, Array, arrays_of, conform, load, numbers_of

# Expectations: --expect NAME=... -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expectation:
    """The expected content of the array `name` after the launch: the expression `text`, or the file `path`."""

    name: str
    text: str
    path: str | None = None
    # The left side of --expect if it is an expression, such as np.sum(y), instead of the name of an array.
    function: str = ""

    @property
    def option(self) -> str:
        """The option as error messages show it."""
        return f"--expect '{self.function or self.name}={self.text}'"


def split_expectation(text: str) -> tuple[str, str]:
    """Return the two sides of an --expect option, split at the first '=' that is not in brackets or in a comparison."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "=" and depth == 0 and text[at + 1 : at + 2] != "=" and text[at - 1 : at] not in tuple("=<>!"):
            return text[:at].strip(), text[at + 1 :].strip()
    body = re.sub(r"^\s*lambda\b[^:]*:\s*", "", text)
    if body != text:
        raise UsageError(
            f"--expect '{text}' is a function, and takes an expression of the arguments by their names: write --expect "
            f"'NAME={body}', where NAME is the array that the kernel writes."
        )
    raise UsageError(f"--expect '{text}' is not NAME=VALUE: write --expect 'y=a*x+y0' or y=@FILE.npy.")


def file_content(expectation: Expectation) -> np.ndarray:
    """Return the array in an expectation's file; an array of records is returned as its bytes (uint8)."""
    assert expectation.path is not None
    return numbers_of(load(expectation.path, expectation.option))


def fields_of(expectation: Expectation) -> np.dtype[Any] | None:
    """Return the NumPy type of the records in an expectation's file; None without a file or records."""
    if expectation.path is None:
        return None
    kind = load(expectation.path, expectation.option).dtype
    return kind if kind.names else None


def leaves(array: np.ndarray, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, array) of each number field of an array of records, with names like p.a and p.inner.b.

    Padding is left out.
    """
    if not array.dtype.names:
        yield path, np.ascontiguousarray(array)
        return
    for name in array.dtype.names:
        yield from leaves(array[name], f"{path}.{name}")


# The problem ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UserProblem:
    """All data that `operation_of` needs to make the operation.

    `numbers`: the values of the names in expressions. `bytes`, `flops`: values of --bytes and --flops, or 0. `save`:
    (array name, path) of each --save. `constants`: the values of --const.
    """

    request: UserRequest
    arguments: tuple[Argument, ...]
    numbers: Mapping[str, Any]
    expectations: tuple[Expectation, ...]
    bytes: int
    flops: int
    save: tuple[tuple[str, str], ...]
    constants: tuple[Array, ...] = ()

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays among the arguments, and the arrays that struct arguments point to."""
        return arrays_of(self.arguments)

    @property
    def baseline(self) -> bool:
        """Whether an expected expression reads an array; if none does, the CPU baseline is not worth timing."""
        arrays = {name for array in self.arrays for name in (array.name, self.initial_name(array.name))}
        return any(
            self.parsed(expectation).names & arrays for expectation in self.expectations if expectation.path is None
        )

    def array(self, name: str) -> Array:
        """Return the array with this name."""
        return next(array for array in self.arrays if array.name == name)

    def initial_name(self, name: str) -> str:
        """Return the name by which expressions use an array's values before the launch.

        The name is y0 for the array y, or y_before if a parameter is called y0.
        """
        return f"{name}_before" if any(argument.name == f"{name}0" for argument in self.arguments) else f"{name}0"

    def function(self, expectation: Expectation) -> Expression:
        """Parse and check the function on the left side of an expectation."""
        return expressions.parse(
            expectation.function, "--expect", [*self.numbers, expectation.name], arrays=True, label=expectation.option
        )

    def parsed(self, expectation: Expectation) -> Expression:
        """Parse and check the expression on the right side of an expectation."""
        arrays = [array.name for array in self.arrays]
        fixed = [constant.name for constant in self.constants]
        known = [*self.numbers, *fixed, *arrays, *(self.initial_name(name) for name in arrays)]
        return expressions.parse(expectation.text, "--expect", known, arrays=True, label=expectation.option)


# Making and checking it ----------------------------------------------------------------------------------------------


def problem_of(
    request: UserRequest, read: Sequence[Argument], numbers: Mapping[str, Any], constants: Sequence[Array] = ()
) -> UserProblem:
    """Return the problem of a request.

    `read`: the arguments of the request. `numbers`: the values of the names that expressions may use. Raises UsageError
    for an expectation, a tolerance or a --save that does not fit the arguments, and CudabenchError for a path that
    cannot be written.
    """
    for option, bound in (("--rtol", request.rtol), ("--atol", request.atol)):
        if bound is not None and not 0 <= bound < float("inf"):
            raise UsageError(f"{option} {bound:g} is not a tolerance: give a number of at least 0, such as 1e-5.")
    expectations = [_expectation(text, read, numbers) for text in request.expect]
    saves = tuple(arguments.split_name_value(text, "--save", "y=y.npy") for text in request.save)
    nbytes, flops = number(request.bytes, "--bytes", numbers), number(request.flops, "--flops", numbers)
    problem = UserProblem(
        request, tuple(read), dict(numbers), tuple(expectations), nbytes, flops, saves, tuple(constants)
    )
    for at, expectation in enumerate(expectations):
        before = [other.function for other in expectations[:at] if other.name == expectation.name]
        array = _known_array(expectation.name, problem, expectation.option)
        refuse(
            (
                (before and not (expectation.function and all(before))) or expectation.function in before,
                f"{expectation.option}: {expectation.name} is expected twice: keep one.",
            ),
            (
                array.const,
                f"{expectation.option}: {array.name} is const in the signature, so the kernel cannot write it. "
                "It is always checked to be unchanged: remove this.",
            ),
        )
        _check_expectation(expectation, array, problem)
    for name, path in saves:
        _known_array(name, problem, f"--save {name}={path}")
        check_target(Path(path), "--save")
    return problem


def _expectation(text: str, read: Sequence[Argument], numbers: Mapping[str, Any]) -> Expectation:
    """Read an --expect option; its left side is an array or a function of an array, as in np.sum(y)=1."""
    left, right = split_expectation(text)
    if not re.search(r"\W", left) or not left:
        name, value = arguments.split_name_value(text, "--expect", "'y=a*x+y0' or y=@FILE.npy")
        return Expectation(name, value, value[1:] if value.startswith("@") else None)
    option = f"--expect '{left}={right}'"
    arrays = [array.name for array in arrays_of(read)]
    named = expressions.parse(left, "--expect", [*numbers, *arrays], arrays=True, label=option).names & set(arrays)
    refuse(
        (
            len(named) != 1,
            f"{option}: the left side must be an array or a function of an array, such as "
            f"np.sum({(arrays or ['y'])[-1]}).",
        ),
        (
            not right or right.startswith("@"),
            f"{option}: compare a function with an expression, and a file with a whole array.",
        ),
    )
    return Expectation(next(iter(named)), right, function=left)


def _known_array(name: str, problem: UserProblem, option: str) -> Array:
    array = next((array for array in problem.arrays if array.name == name), None)
    if array is None:
        names = [array.name for array in problem.arrays]
        scalar = any(argument.name == name for argument in problem.arguments)
        what = f"{name} is not an array" if scalar else f"'{name}' is unknown"
        raise UsageError(f"{option}: {what}; the arrays are {', '.join(names) or 'none'}.{did_you_mean(name, names)}")
    return array


def _check_expectation(expectation: Expectation, array: Array, problem: UserProblem) -> None:
    """Raise UsageError for an expectation that cannot be compared: a wrong file, or names that have no value."""
    if expectation.path is not None:
        conform(file_content(expectation), array.name, array.shape, array.dtype, expectation.option, constant=False)
        return
    if expectation.function:
        problem.function(expectation)
    expected = {item.name for item in problem.expectations} & {item.name for item in problem.arrays}
    empty = {
        name: array.name
        for array in problem.arrays
        if array.init == "empty"
        for name in (array.name, problem.initial_name(array.name))
    }
    for name in sorted(problem.parsed(expectation).names):
        refuse(
            (
                name in expected,
                f"{expectation.option}: {name} is what the kernel writes; write {problem.initial_name(name)} for its "
                "values before the launch.",
            ),
            (
                name in empty,
                f"{expectation.option}: {empty.get(name)} starts empty, so it lacks values before the launch.",
            ),
        )


# Numbers -------------------------------------------------------------------------------------------------------------


def number(text: str | None, option: str, numbers: Mapping[str, Any]) -> int:
    """Return the value of an option such as --bytes, rounded to a whole number; 0 if the option is not given."""
    if text is None:
        return 0
    value = expressions.parse(text, option, numbers).evaluate(numbers)
    if isinstance(value, float) and np.isfinite(value):
        value = round(value)
    return arguments.as_whole_number(value, f"{option} '{text}'", least=0)


def dimensions(text: str, option: str, numbers: Mapping[str, Any]) -> Dim:
    """Return the (x, y, z) of a block or grid that is given as 'X', 'X,Y' or 'X,Y,Z'; missing sides are 1.

    Each side may be an expression; 32x8 means 32,8.
    """
    if re.fullmatch(r"\s*\d+(\s*x\s*\d+){1,2}\s*", text):
        text = text.replace("x", ",")
    value = expressions.parse(text, option, numbers).evaluate(numbers)
    values = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(values) <= 3:
        raise UsageError(f"{option} '{text}' has {len(values)} numbers: write X, X,Y or X,Y,Z.")
    x, y, z = (*(arguments.as_whole_number(value, f"{option} '{text}'") for value in values), 1, 1)[:3]
    return (x, y, z)


def launch_of(
    function: str,
    grid: str,
    block: str,
    numbers: Mapping[str, Any],
    *,
    shared: str | None,
    cluster: str | None = None,
    option: str = "",
    passed: tuple[Any, ...] = (),
) -> Launch:
    """Return the launch of `function` with the sizes that the texts of the options give.

    `shared`: dynamic shared memory in bytes; `cluster`: blocks per cluster; `passed`: the arguments. `option`: the name
    to use in error messages in place of --grid, --block and so on. Raises UsageError for a launch that no device can
    run.
    """
    sides = {"block": block, "grid": grid, **({"cluster": cluster} if cluster is not None else {})}
    extents = {name: dimensions(text, option or f"--{name}", numbers) for name, text in sides.items()}
    check_block(extents["block"])
    check_grid(extents["grid"])
    nbytes = number(shared, option or "--shared", numbers)
    check_shared(nbytes, f"{option or '--shared'} {shared} asks for", "ask for less")
    if cluster is not None:
        check_cluster(extents["cluster"], extents["grid"])
    return Launch(function, extents["grid"], extents["block"], passed, nbytes, cluster=extents.get("cluster"))


def main_dtype(problem: UserProblem) -> str:
    """Return the element type to show in results: that of the first expected array, else of another array, else ''."""
    expected = [expectation.name for expectation in problem.expectations]
    ranked = sorted(problem.arrays, key=lambda array: (array.name not in expected, array.const))
    return ranked[0].dtype if ranked else ""
