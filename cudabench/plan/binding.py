"""Finds which argument of a built-in kernel each parameter of a user's function takes.

A parameter is bound by its name; an array with another name, by `const`; what is left, by its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cudabench.source.records import Parameter

# Names of one meaning. Sizes: rows and columns; arrays: input and output.
_ALIKE = (
    {"rows", "nrows", "numrows", "ny", "height", "h", "m"},
    {"cols", "ncols", "numcols", "columns", "nx", "width", "w", "n"},
    {"in", "input", "idata", "src", "source"},
    {"out", "output", "odata", "dst", "dest", "destination"},
)
_Alike = Callable[[Parameter, Parameter], bool]


@dataclass(frozen=True)
class Binding:
    """How a user's function gets its arguments.

    `order`: for each of its parameters, the index of the argument that it takes. `unsure`: the pairs that may be wrong,
    such as 'p as nx, q as ny': those that only their place tells, and numbers with other names; or ''.
    """

    order: tuple[int, ...]
    unsure: str


def bind(own: Sequence[Parameter], expected: Sequence[Parameter]) -> Binding:
    """Return the binding of a function's parameters `own` to the `expected` ones, of which there are as many."""
    bound: dict[int, int] = {}
    for alike in (_same_name, _same_meaning):
        bound |= _pairs(own, expected, bound, alike)
    pointers = [at for at, parameter in enumerate(own) if parameter.pointer and at not in bound]
    others = [at for at, parameter in enumerate(expected) if parameter.pointer and at not in bound.values()]
    if sorted(own[at].const for at in pointers) == sorted(expected[at].const for at in others):
        for const in (True, False):
            ours = [at for at in pointers if own[at].const == const]
            theirs = [at for at in others if expected[at].const == const]
            if len(ours) == 1:
                bound[ours[0]] = theirs[0]
    left = [at for at in range(len(own)) if at not in bound]
    free = [at for at in range(len(expected)) if at not in bound.values()]
    placed = []
    for pointer in (True, False):
        ours = [at for at in left if own[at].pointer == pointer]
        theirs = [at for at in free if expected[at].pointer == pointer]
        if len(ours) != len(theirs):  # the types do not fit, which the caller reports
            return Binding(tuple(range(len(own))), "")
        bound |= zip(ours, theirs, strict=True)
        placed += list(zip(ours, theirs, strict=True)) if len(ours) > 1 else []
    numbers = {
        pair for pair in bound.items() if not own[pair[0]].pointer and not _same_name(own[pair[0]], expected[pair[1]])
    }
    unsure = sorted({*placed, *(numbers if len(numbers) > 1 else ())})
    text = ", ".join(f"{own[one].name or f'arg{one}'} as {expected[other].name}" for one, other in unsure)
    return Binding(tuple(bound[at] for at in range(len(own))), text)


def _pairs(
    own: Sequence[Parameter], expected: Sequence[Parameter], bound: dict[int, int], alike: _Alike
) -> dict[int, int]:
    """Return the pairs of parameters, not yet bound, of which each is like only the other."""
    left = [at for at in range(len(own)) if at not in bound]
    free = [at for at in range(len(expected)) if at not in bound.values()]
    found = [(one, other) for one in left for other in free if alike(own[one], expected[other])]
    ours, theirs = [one for one, _ in found], [other for _, other in found]
    return {one: other for one, other in found if ours.count(one) == theirs.count(other) == 1}


def _same_name(one: Parameter, other: Parameter) -> bool:
    return one.pointer == other.pointer and _plain(one) == _plain(other)


def _same_meaning(one: Parameter, other: Parameter) -> bool:
    return one.pointer == other.pointer and any({_plain(one), _plain(other)} <= names for names in _ALIKE)


def _plain(parameter: Parameter) -> str:
    """Return a parameter's name without case, underscores and the prefix of device memory."""
    name = parameter.name.lower().replace("_", "")
    return name.removeprefix("d") if parameter.pointer and parameter.name.lower().startswith("d_") else name
