"""The variations of a sweep over a user's own kernel.

Options of `run` may list several values. Each combination of values is a point of the sweep, and gives one request.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudabench.errors import UsageError, did_you_mean
from cudabench.occupancy import MAX_THREADS_PER_BLOCK
from cudabench.plan.series import Series
from cudabench.plan.space import (
    MOST_COMBINATIONS,
    Axis,
    Point,
    Values,
    axis_groups,
    block_range,
    blocks,
    combinations,
    sizes,
    values_of,
)
from cudabench.plan.space import combination_count as count_of
from cudabench.source.brackets import split
from cudabench.userkernel import expressions, plan
from cudabench.userkernel.arguments import split_name_value
from cudabench.userkernel.request import LAUNCH, UserRequest, name_of

BLOCK_NAMES = ("bx", "by", "bz")
RANGE = re.compile(r"\s*\d+:\d+(:\d+)?\s*", re.ASCII)
# matches a whole number, with or without a type before it, such as int32:4096
WHOLE = re.compile(r"\s*(\w+\s*:)?\s*\d+\s*")
NUMBER = r"(\w+\s*:)?\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
# Fields of a request whose texts may contain the {NAME} of a --param, or names of numbers.
LISTS = ("arguments", "expect", "constants")


@dataclass
class Space:
    """All variations of a request in a sweep.

    `axes`: the options that vary, with values. `groups`: the axes in groups; axes in one group vary together (--zip).
    `where`: the text of --where.
    """

    request: UserRequest
    axes: tuple[Axis, ...]
    groups: list[tuple[Axis, ...]]
    where: str | None = None
    _series: dict[str, Series] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of combinations, including those that --where excludes."""
        return count_of(self.groups)

    def combinations(self) -> Iterator[Values]:
        """Yield the combinations that --where allows and a GPU can launch. Raises UsageError for too many
        combinations."""
        if self.count > MOST_COMBINATIONS:
            raise UsageError(
                f"The sweep has {self.count} combinations; at most {MOST_COMBINATIONS} are allowed: take fewer "
                "values, or vary values together with --zip."
            )
        yield from filter(self.admits, combinations(self.groups))

    def admits(self, values: Values) -> bool:
        """Return whether --where allows a combination, and its block has no more threads than a GPU can launch."""
        if math.prod(int(values[name]) for name in BLOCK_NAMES if name in values) > MAX_THREADS_PER_BLOCK:
            # a combination of ranges can give an impossible block; such a point is skipped without a message
            return False
        if not self.where:
            return True
        request = self.request_at(values)
        texts = {name: text.rpartition(":")[2] for name, text in request.given().items() if "[" not in text}
        known = {**plan.numeric(texts), **plan.numeric(request.defines), **request.numbers}
        return bool(expressions.parse(self.where, "--where", known).evaluate(known))

    def request_at(self, values: Values) -> UserRequest:
        """Return the request for a combination of values."""
        kinds = {axis.name: axis.kind for axis in self.axes}

        def of(kind: str) -> dict[str, str]:
            return {name: text for name, text in values.items() if kinds[name] == kind}

        texts, blocks = of("parameter"), of("block")

        def replace_names(text: str) -> str:
            return re.sub(r"\{(\w+)\}", lambda match: texts.get(match[1], match[0]), text)

        block = self.request.block
        if blocks:
            parts = split(block) if block else [""] * len(blocks)
            block = ",".join(blocks.get(own, part) for own, part in zip(BLOCK_NAMES, parts, strict=False))
        taken = {*self.request.defines, *values, *self.request.given()}
        sides = zip(BLOCK_NAMES, (block or "").split(","), strict=False)
        fixed = {name: text.strip() for name, text in sides if text.strip().isdecimal() and name not in taken}
        request = replace(self.request.with_values(of("argument")), block=block)
        return replace(
            _rewrite(request, replace_names, replace_names, LISTS),
            kernels=tuple(map(replace_names, of("kernel").values() or request.kernels)),
            defines={name: replace_names(values.get(name, text)) for name, text in request.defines.items()},
            numbers={**request.numbers, **plan.numeric({**fixed, **texts, **blocks})},
        )

    def point(self, values: Values) -> Point:
        """Return the planned point for a combination. Raises UsageError if it cannot be launched; see `plan.build`."""
        request = self.request_at(values)
        own = plan.build([request], "sweep")
        if len(own.cases) != 1:
            names = ", ".join(case.kernel for case in own.cases)
            raise UsageError(f"A sweep takes one kernel, but '{request.kernels[0]}' means {names}: name one of them.")
        case = replace(own.cases[0], named=False, parameters=dict(values))
        # Points with the same arguments share one series, so that inputs and expected outputs are computed only once.
        return Point(values, self._series.setdefault(plan.same_problem(request), replace(own, cases=())), case)

    def first(self) -> Point:
        """Return the point of the first combination that can be launched. Raises UsageError if there is none."""
        refused: UsageError | None = None
        for values in self.combinations():
            try:
                return self.point(values)
            except UsageError as error:
                refused = refused or error
        raise refused or UsageError(f"--where '{self.where}' does not hold for any of the {self.count} combinations.")

    def command(self, values: Values) -> list[str]:
        """Return the words of a `run` command that runs a single point."""
        request = self.request_at(values)

        def replace_names(text: str) -> str:
            for name, value in request.numbers.items():
                text = re.sub(rf"\b{name}\b", str(value), text)
            return text

        def replace_in_value(text: str) -> str:
            name, equals, value = text.partition("=")
            return f"{name}{equals}{replace_names(value)}" if equals else text

        return _rewrite(request, replace_names, replace_in_value, (*LISTS, "steps")).words()

    def fixed(self) -> dict[str, Any]:
        """Return the options that do not vary, as plain values; used to compare two sweeps."""
        swept = {axis.name for axis in self.axes}
        kept = {name: getattr(self.request, name) for name in ("file", *LAUNCH, "rtol", "atol", "std", "seed")}
        kept |= {name: list(getattr(self.request, name)) for name in ("steps", "expect", "constants", "include")}
        kept["arguments"] = [argument for argument in self.request.arguments if name_of(argument) not in swept]
        kept["defines"] = {name: text for name, text in self.request.defines.items() if name not in swept}
        kept["kernels"] = [] if "kernel" in swept else list(self.request.kernels)
        return kept


def _rewrite(
    request: UserRequest,
    replace_names: Callable[[str], str],
    replace_in_item: Callable[[str], str],
    lists: Sequence[str],
) -> UserRequest:
    """Return a copy of a request with changed texts.

    `replace_names` is applied to the value of each option in LAUNCH, and `replace_in_item` to each text in the fields
    that `lists` names.
    """
    changed: dict[str, Any] = {
        name: replace_names(text) for name in LAUNCH if (text := getattr(request, name)) is not None
    }
    changed |= {name: tuple(map(replace_in_item, getattr(request, name))) for name in lists}
    return replace(request, **changed)


# From the options ----------------------------------------------------------------------------------------------------


def space_of(
    request: UserRequest,
    parameters: Sequence[str] = (),
    zips: Sequence[str] = (),
    where: str | None = None,
    sizes: str | None = None,
) -> Space:
    """Return the variations that a request with lists of values describes.

    `parameters`: the texts NAME=V1,V2 of --param; `zips`, `where`, `sizes`: the texts of these options.
    """
    axes: list[Axis] = []
    if len(request.kernels) > 1:
        axes.append(Axis("kernel", request.kernels, "kernel"))
    block_axes, automatic = _block_axes(request)
    defined = [Axis(name, values, "define") for name, text in request.defines.items()
               if len(values := values_of(text, f"-D {name}=") if text else ("",)) > 1]  # fmt: skip
    given = [_parameter(text, request) for text in parameters]
    args = [axis for text in request.arguments if (axis := _argument(text))]
    if sizes is not None:
        size, kind, swept = swept_size(request, sizes)
        if any(axis.name == size for axis in args):
            raise UsageError(f"--sizes {sizes} and --arg {size} both list values of {size}: keep one.")
        args.append(Axis(size, tuple(f"{kind}{value}" for value in swept), "argument", True))
    axes += [*given, *defined, *block_axes, *args]
    names = [axis.name for axis in axes]
    taken = [*names, *(name_of(argument) for argument in request.arguments if not _argument(argument)),
             *(name for name in request.defines if name not in names)]  # fmt: skip
    for name in names:
        if taken.count(name) > 1 and not (sizes is not None and name in {a.name for a in args}):
            raise UsageError(f"{name} names two things in this sweep: rename one of them.")
    known = [axis.name for axis in given]
    for text in request.kernels:
        if unknown := next((name for name in re.findall(r"\{(\w+)\}", text) if name not in known), None):
            raise UsageError(
                f"-k '{text}' has {{{unknown}}}, but --param {unknown} is missing.{did_you_mean(unknown, known)}"
            )
    if not axes:
        raise UsageError(
            "A sweep has nothing to vary: give a list, as in -D TILE=8,16,32, --param BM=32,64 for {BM} in -k, "
            "--block 64:1024, --arg n=1024,4096."
        )
    return Space(request, tuple(axes), axis_groups(axes, [*zips, *([automatic] if automatic else [])]), where)


def _parameter(text: str, request: UserRequest) -> Axis:
    """Return the axis for the --param NAME=V1,V2. Raises UsageError if no option uses NAME."""
    name, value = split_name_value(text, "--param", "BM=32,64,128")
    inside = [*request.arguments, *request.constants]
    elsewhere = [*request.kernels, *request.expect, *request.defines.values()]
    launch = [getattr(request, field) or "" for field in LAUNCH]
    bare = re.compile(rf"\b{re.escape(name)}\b")
    in_braces = f"{{{name}}}" in "".join((*inside, *elsewhere))
    if not in_braces and not any(map(bare.search, (*launch, *inside, *request.expect))):
        raise UsageError(f"--param {text} is not used; write {{{name}}} in -k or --arg, or {name} in --grid.")
    return Axis(name, values_of(value, f"--param {name}="), "parameter", f"{{{name}}}" in "".join(inside))


def _argument(text: str) -> Axis | None:
    """Return the axis of an --arg that lists several values, or None.

    The listed values are numbers, arrays, or initial contents of one array.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or value.startswith("@"):
        return None
    if re.fullmatch(r"(\w+\s*:)?\d+\.\.\d+([*+]\d+)?", value, re.ASCII):
        kind, colon, numbers = value.rpartition(":")
        values = values_of(numbers, f"--arg {name}=")
        return Axis(name, tuple(f"{kind}{colon}{number}" for number in values), "argument", True)
    parts = split(value)
    if len(parts) < 2:
        return None
    values_of(value, f"--arg {name}=")
    plain = all(re.fullmatch(NUMBER, part, re.I | re.ASCII) for part in parts)
    colon = ":" if plain else "]:"
    head, separator, _ = parts[0].rpartition(colon)
    if not plain and not separator:
        return None
    return Axis(name, tuple(p if colon in p else f"{head}{separator}{p}" for p in parts), "argument", True)


def _block_axes(request: UserRequest) -> tuple[list[Axis], str]:
    """Return (the axes of the block, named bx, by, bz; the text of the --zip that varies bx and by together, or '').

    Each range in --block gives an axis. Without --block, if --grid uses these names, the axes list usual block sizes.
    """
    if request.block is not None:
        parts = split(request.block)
        axes = [
            Axis(own, tuple(map(str, block_range(part.strip()))), "block")
            for own, part in zip(BLOCK_NAMES, parts, strict=False)
            if RANGE.fullmatch(part)
        ]
        if not axes and all(part.isdecimal() for part in parts) and math.prod(map(int, parts)) > MAX_THREADS_PER_BLOCK:
            least, most = min(parts, key=int), max(parts, key=int)
            raise UsageError(
                f"--block {request.block} is one block of {' x '.join(parts)} threads, and CUDA allows "
                f"{MAX_THREADS_PER_BLOCK}: to try several blocks, write a range, such as --block {least}:{most}, or "
                f"--block B with -D B={request.block}."
            )
        return axes, ""
    grid = request.grid or ""
    dimensions = 2 if re.search(r"\bby\b", grid) else 1 if re.search(r"\bbx\b", grid) else 0
    chosen = blocks(dimensions) if dimensions else []
    axes = [Axis(BLOCK_NAMES[at], tuple(str(block[at]) for block in chosen), "block") for at in range(dimensions)]
    return axes, "bx,by" if dimensions == 2 else ""


def requests_for_sizes(request: UserRequest, text: str) -> list[UserRequest]:
    """Return a request for each size in the text of --sizes.

    The text is like 'n=A..B*2'; the name can be omitted if exactly one --arg is a whole number.
    """
    name, kind, values = swept_size(request, text)
    if request.save:
        raise UsageError(
            f"--save {request.save[0]} with --sizes would keep only the last array: leave one of them out."
        )
    return [request.with_values({name: f"{kind}{size}"}) for size in values]


def swept_size(request: UserRequest, text: str) -> tuple[str, str, tuple[int, ...]]:
    """Return (name of the argument that --sizes varies, the type written before its value: 'int32:' or '', sizes)."""
    given = request.given()
    name, equals, values = text.rpartition("=")
    name = name.strip()
    if not equals:
        whole = [name for name, value in given.items() if WHOLE.fullmatch(value)]
        if len(whole) != 1:
            several = f"{', '.join(whole)} are whole numbers" if whole else "no --arg is a whole number"
            raise UsageError(f"--sizes {text} needs a name: {(whole or ['n'])[0]}={text}; {several}.")
        (name,) = whole
    elif name not in given:
        raise UsageError(
            f"--sizes {text}: --arg {name} is missing; use {', '.join(given) or 'none'}.{did_you_mean(name, given)}"
        )
    kind = match[1] if (match := WHOLE.fullmatch(given[name])) and match[1] else ""
    return name, kind, sizes(values)
