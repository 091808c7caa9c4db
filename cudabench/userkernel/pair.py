"""Two kernels of the user's own on one set of arguments: of one file or two, or one with two sets of macros."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from cudabench.errors import UsageError
from cudabench.plan.series import Series
from cudabench.userkernel import plan
from cudabench.userkernel.operation import operation_of
from cudabench.userkernel.problem import UserProblem
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.values import Array


def pair(old: UserRequest, new: UserRequest) -> Series:
    """Return the two kernels as a series of two cases, old first.

    An array that either may write is one that both may. Raises UsageError where a side is not one kernel or the two
    do not have the same arguments, expectations and bytes; otherwise as `plan.build`.
    """
    sides = [plan.build([request]) for request in (old, new)]
    for request, side in zip((old, new), sides, strict=True):
        if len(side.cases) != 1:
            names = ", ".join(case.kernel for case in side.cases)
            raise UsageError(f"A side is one kernel; {request.file} gives {names}: name one with -k.")
    first, second = (cast(UserProblem, cast("partial[Any]", side.make).args[0]) for side in sides)
    _check_same(first, second)
    others = {one.name: one for one in second.arguments}
    merged = tuple(
        replace(one, const=one.const and cast(Array, others[one.name]).const) if isinstance(one, Array) else one
        for one in first.arguments
    )
    cases = tuple(case for side in sides for case in side.cases)
    return Series(partial(operation_of, replace(first, arguments=merged)), cases, sides[0].baseline)


def _check_same(first: UserProblem, second: UserProblem) -> None:
    """Raise UsageError for the first thing in which two problems differ; --expect is one text for both."""
    ours, theirs = ({one.name: one for one in problem.arguments} for problem in (first, second))
    if set(ours) != set(theirs):
        raise UsageError(
            f"The two sides take other arguments, {', '.join(ours)} and {', '.join(theirs)}: they are compared on the "
            "same ones."
        )
    for name, one in ours.items():
        other = theirs[name]
        if isinstance(one, Array) and isinstance(other, Array):
            other = replace(other, const=one.const)
        if repr(one) != repr(other):
            raise UsageError(
                f"--arg {name} is not the same for both sides, so their times do not compare: {_told(one)} and "
                f"{_told(other)}; measure them one by one with 'cudabench run'."
            )
    for option, before, after in (("--bytes", first.bytes, second.bytes), ("--flops", first.flops, second.flops)):
        if before != after:
            raise UsageError(f"{option} gives {before} for the old side and {after} for the new one: it must be one.")


def _told(argument: Any) -> str:
    if isinstance(argument, Array):
        return f"{argument.dtype}{list(argument.shape)}"
    value = getattr(argument, "value", None)
    return f"{value} ({argument.dtype})" if value is not None else type(argument).__name__.lower()
