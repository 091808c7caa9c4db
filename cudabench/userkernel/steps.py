"""`--step`: several launches, one after another as in host code, that share one set of arguments.

    partial<<<cdiv(n,256), 256>>>(x, sums, n)
    { red<<<g, 256>>>(u, n); black<<<g, 256>>>(u, n) } * 100
    heat<<<(cdiv(m,16), cdiv(n,16)), (16, 16)>>>(a, b, m, n) * steps swap(a, b)

`* COUNT` repeats a launch or a group in braces. `swap(a, b)` exchanges the two arrays after each repetition, as host
code swaps its pointers. A number argument may be an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.records.launch import Launch, Surface
from cudabench.source import brackets
from cudabench.source.records import Kernel, Parameter, SourceFile
from cudabench.userkernel import arguments, expressions, textures
from cudabench.userkernel.object_uses import STEPS
from cudabench.userkernel.pointers import check_takes
from cudabench.userkernel.problem import launch_of, number
from cudabench.userkernel.values import Argument, Array, BufferView, Null, Scalar

MOST_LAUNCHES = 10_000
EXAMPLE = "--step 'f<<<cdiv(n,256), 256>>>(x, y, n)'"


@dataclass(frozen=True)
class Call:
    """One launch in the text of --step; all fields are parts of this text; `passed`: the arguments of the launch."""

    kernel: str
    grid: str
    block: str
    shared: str
    passed: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Launches that are repeated `count` times; `swaps`: pairs of arrays to exchange after each repetition."""

    members: tuple[Call | Group, ...]
    count: str = "1"
    swaps: tuple[tuple[str, str], ...] = ()

    def calls(self) -> list[Call]:
        """Return the launches in the group in order, without repetitions."""
        inner = (member.calls() if isinstance(member, Group) else [member] for member in self.members)
        return list(chain.from_iterable(inner))

    def swapped(self) -> set[str]:
        """Return the names of all arrays that are exchanged in the group."""
        return set(chain(*self.swaps, *(member.swapped() for member in self.members if isinstance(member, Group))))


def parse(texts: Sequence[str]) -> Group:
    """Parse the texts of the --step options. Raises UsageError for a text that is not a step."""
    return Group(tuple(member for text in texts for member in _members(text, text)))


def combined_signature(
    group: Group, names: Sequence[str], kernel: Callable[[str], Kernel], example: str
) -> tuple[Kernel, dict[str, Kernel]]:
    """Return (a kernel record with one parameter for each --arg name, the kernels of the steps by name).

    The parameters are in the order of `names`. Each has the type of the first kernel parameter to which a step passes
    the name; a name that is only used in expressions is a number. kernel: a function that finds a kernel by its name.
    Raises UsageError for a launch with too many or too few arguments, and for a name without --arg.
    """
    kernels = {call.kernel: kernel(call.kernel) for call in group.calls()}
    by_text: dict[str, Parameter] = {}
    for call in group.calls():
        called = kernels[call.kernel]
        if len(call.passed) != len(called.parameters):
            raise UsageError(
                f"--step: {called.signature} takes {len(called.parameters)} arguments, {call.kernel}<<<...>>> passes "
                f"{len(call.passed)}."
            )
        for text, parameter in zip(call.passed, called.parameters, strict=True):
            if not re.fullmatch(r"[^\W\d]\w*", text):
                continue
            if text not in names:
                raise UsageError(
                    f"--step: {call.kernel} is passed '{text}', which lacks an --arg.{did_you_mean(text, names)} "
                    f"Write --arg {text}=..., as in: {example}"
                )
            have = by_text.setdefault(text, replace(parameter, name=text))
            if have.pointer and parameter.pointer:
                by_text[text] = replace(have, const=have.const and parameter.const)
    for name in group.swapped() & by_text.keys():
        by_text[name] = replace(by_text[name], const=False)
    parameters = tuple(by_text.get(name, Parameter(name, "double")) for name in names)
    whole = replace(
        next(iter(kernels.values())), parameters=parameters, template_parameters=(), expression=STEPS,
        text="\n".join(kernel.text for kernel in kernels.values()),
    )  # fmt: skip
    return whole, kernels


def launches(
    group: Group, kernels: Mapping[str, Kernel], given: Sequence[Argument], numbers: Mapping[str, Any], file: SourceFile
) -> tuple[Launch, ...]:
    """Return all launches in order, with repetitions. Raises UsageError for an impossible launch, and for too many."""
    by_name = {argument.name: argument for argument in given}
    done: list[Launch] = []

    @cache
    def shape(call: Call) -> Launch:
        function, shared = kernels[call.kernel].expression, call.shared or None
        return launch_of(function, call.grid, call.block, numbers, shared=shared, option="--step")

    def launch(call: Call, places: Mapping[str, str]) -> Launch:
        kernel, bare = kernels[call.kernel], shape(call)
        passed = (
            _passed_value(places.get(text, text), parameter, kernel, by_name, numbers, file)
            for text, parameter in zip(call.passed, kernel.parameters, strict=True)
        )
        return replace(bare, arguments=tuple(passed))

    def follow(group: Group, places: dict[str, str]) -> None:
        count = number(group.count, "--step", numbers)
        if count < 1:
            raise UsageError(f"--step: '* {group.count}' gives {count}; a count is at least 1.")
        refuse(
            *(
                (
                    not isinstance(by_name.get(name), (Array, BufferView)),
                    f"--step: swap({', '.join(pair)}): '{name}' is not an array of --arg.",
                )
                for pair in group.swaps
                for name in pair
            )
        )
        for _ in range(count):
            for member in group.members:
                if isinstance(member, Group):
                    follow(member, places)
                else:
                    if len(done) >= MOST_LAUNCHES:
                        raise UsageError(f"--step: more than {MOST_LAUNCHES} launches; repeat them less often.")
                    done.append(launch(member, places))
            for left, right in group.swaps:
                places[left], places[right] = places.get(right, right), places.get(left, left)

    follow(group, {})
    return tuple(done)


def _passed_value(
    text: str,
    parameter: Parameter,
    kernel: Kernel,
    by_name: Mapping[str, Argument],
    numbers: Mapping[str, Any],
    file: SourceFile,
) -> Any:
    """Return the value to pass for a parameter; `text`: the argument in the step: a name, an expression or null."""
    where = f"--step: {text}"
    if text in ("null", "nullptr", "NULL") and parameter.pointer:
        return Null(text).argument
    argument, wanted = by_name.get(text), parameter.number
    if argument is not None:
        if isinstance(argument.argument, Surface) and parameter.type == textures.TYPE:
            repair = f"add --arg 't=texture({text})' and pass t"
            raise UsageError(f"{where} is a surface; {kernel.signature} reads a texture: {repair}.")
        check_takes(argument, parameter, kernel, file, f"{where} in {kernel.signature}")
        if not isinstance(argument, Scalar) or wanted in (None, argument.dtype):
            return argument.argument
    elif parameter.pointer or parameter.type in textures.OBJECTS:
        needed = textures.OBJECTS.get(parameter.type, "a pointer: give it an array of --arg")
        raise UsageError(f"{where}: '{parameter}' of {kernel.signature} is {needed}.")
    if wanted is None or np.dtype(wanted).kind == "c":
        raise UsageError(f"{where}: {kernel.signature} takes '{parameter}' there; pass an --arg by its name.")
    value = expressions.parse(text, "--step", numbers).evaluate(numbers)
    return Scalar(text, wanted, arguments.convert_number(value, wanted, where, parameter)).argument


# The text ------------------------------------------------------------------------------------------------------------


def _members(text: str, whole: str) -> list[Call | Group]:
    """Parse launches and groups that are separated by semicolons; `whole`: the whole step, for error messages."""
    steps: list[Call | Group] = []
    for part in filter(None, brackets.split(text, ";")):
        if part.startswith("{"):
            end = _closing_bracket(part, 0, whole)
            members: list[Call | Group] = _members(part[1:end], whole)
            rest = part[end + 1 :]
        else:
            call, rest = _call(part, whole)
            members = [call]
        count, swaps = _suffix(rest, whole)
        steps.append(members[0] if rest.strip() == "" and len(members) == 1 else Group(tuple(members), count, swaps))
    if not steps:
        raise UsageError(f"--step '{whole}' is empty: write {EXAMPLE}.")
    return steps


def _call(text: str, whole: str) -> tuple[Call, str]:
    """Parse the launch at the beginning of a text; return the launch and the rest of the text."""
    name, opened, rest = text.partition("<<<")
    inside, closed, rest = rest.partition(">>>")
    rest = rest.strip()
    if not (opened and closed and name.strip() and rest.startswith("(")):
        raise UsageError(f"--step '{whole}' is not a launch: write {EXAMPLE}.")
    how = [_without_dim3(part) for part in brackets.split(inside)]
    if not 2 <= len(how) <= 4:
        raise UsageError(f"--step '{whole}': <<<{inside}>>> takes a grid and a block: write {EXAMPLE}.")
    end = _closing_bracket(rest, 0, whole)
    passed = tuple(brackets.split(rest[1:end])) if rest[1:end].strip() else ()
    return Call(name.strip(), how[0], how[1], how[2] if len(how) > 2 else "", passed), rest[end + 1 :]


def _suffix(text: str, whole: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Parse the text after a launch or group; return the count and the pairs of arrays to swap."""
    count, swaps = "1", []
    if text.strip().startswith("*"):
        head, swap, tail = text.strip()[1:].partition("swap")
        count, text = head.strip(), swap + tail
    while text.strip():
        match = re.match(r"\s*,?\s*swap\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", text)
        if match is None:
            raise UsageError(f"--step '{whole}': '{text.strip()}' is neither '* COUNT' nor 'swap(a, b)'.")
        swaps.append((match[1], match[2]))
        text = text[match.end() :]
    return count, tuple(swaps)


def _without_dim3(text: str) -> str:
    """Return a grid or block without dim3 and brackets: '4,4' for 'dim3(4,4)'."""
    text = re.sub(r"^dim3\s*(?=\()", "", text.strip())
    return text[1:-1] if text.startswith("(") and _closing_bracket(text, 0, text) == len(text) - 1 else text


def _closing_bracket(text: str, start: int, whole: str) -> int:
    """Return the position of the bracket that closes the one at `start`. Raises UsageError if there is none."""
    end = brackets.closing(text, start)
    if end is None:
        raise UsageError(f"--step '{whole}': a '{text[start]}' is never closed.")
    return end
