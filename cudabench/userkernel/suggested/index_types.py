"""Which type parameters of a kernel template stand for whole numbers, by their use: for lines that messages suggest.

A type whose numbers are indices, sizes, bits or remainders is an integer; a float in its place compiles seldom and is
right never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudabench.toolchain.kernels import KernelSource
from cudabench.userkernel.suggested.reach import joined, subscripts

_NAMED = re.compile(
    r"i(?:nde)?x(?:_?t(?:ype)?)?$|^ind(?:ex|ices)|^int(?:eger)?(?:_?t(?:ype)?)?$|^off(?:set)?|^ordinal", re.I
)
_INTEGER = r"(?:int|unsigned|long|size_t|u?int\d+_t|auto)"
_PLACE = r"(?:threadIdx|blockIdx|blockDim|gridDim)\b"
_BITS = r"(?:%|<<|>>|(?<![&])&(?!&)|(?<!\|)\|(?!\|)|\^)"
_TO_WHOLE = re.compile(
    r"\( ?(?:unsigned )?(?:int|long|size_t|u?int\d+_t) ?\)|static_cast ?<|__\w+2\w*int|\bfloor|\bround"
)


def is_whole(own: str, kernel: KernelSource) -> bool:
    """Return whether a type parameter of a template is one of whole numbers: by its name, or by what it does."""
    if _NAMED.search(own) or own == "I":
        return True
    text = re.sub(rf"\b({own}) ?(const )?&+", r"\1 ", joined(kernel.text).partition(">")[2])
    scalars, arrays = _declared(own, text)
    if any(re.search(rf"\b{own} {name} ?= ?[^;]*\b{_PLACE}", text) for name in scalars):
        return True
    if any(re.search(rf"\bfor ?\( ?(?:const )?{own} {name}\b", text) for name in scalars):
        return True
    values = [*(rf"(?<![\w.>]){name}\b(?! ?[\[(.])" for name in scalars)]
    values += [rf"(?<![\w.>]){name} ?\[(?:[^\[\]]|\[[^\[\]]*\])*\]" for name in arrays]
    indices = [index for index in _indices(text) if not _TO_WHOLE.search(index)]
    counters = _counters(own, text)
    for value in values:
        if re.search(rf"{value} ?{_BITS}|[\w)\]] ?{_BITS}=? ?{value}", text):
            return True
        if any(re.search(value, index) for index in indices):
            return True
        if any(re.search(rf"\b{one} ?(?:<=?|>=) ?{value}", text) for one in counters):
            return True
        copies = re.findall(rf"\b{_INTEGER} (\w+) ?= ?{value} ?[;,]", text)
        if any(re.search(rf"(?<![\w.]){one}\b(?! ?[\[(])", index) for one in copies for index in indices):
            return True
    return False


def _declared(own: str, text: str) -> tuple[set[str], set[str]]:
    """Return the names of a type's numbers and of its arrays. `LOOP(T, i, n)`, a macro's, declares one too."""
    scalars: set[str] = set()
    arrays: set[str] = set()
    pattern = rf"\b{own} (?:const )?((?:\* ?(?:(?:const|__restrict__|__restrict|volatile) )*)*)(\w+) ?(?=([\[=;,):]))"
    for pointer, name, behind in re.findall(pattern, re.sub(rf"\b({own})(?=\*)", r"\1 ", text)):
        (arrays if pointer or behind == "[" else scalars).add(name)
    scalars |= set(re.findall(rf"\w ?\( ?{own} ?, ?([^\W\d]\w*) ?,", text))
    return scalars, arrays


def _indices(text: str) -> Iterator[str]:
    """Yield the indices of all that is subscripted, but for those in declarations."""
    for name in set(re.findall(r"\b([^\W\d]\w*) ?\[", text)):
        yield from subscripts(text, name)


def _counters(own: str, text: str) -> set[str]:
    """Return the whole numbers that count elements: from a thread's place on, or in a loop."""
    kind = rf"(?:{_INTEGER}|{own}) "
    found = set(re.findall(rf"\b{kind}(\w+) ?= ?[^;]*\b{_PLACE}", text))
    return found | set(re.findall(rf"\bfor ?\( ?{kind}(\w+) ?=", text))
