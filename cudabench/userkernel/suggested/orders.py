"""What arrays of whole numbers must hold, as far as a kernel's text shows: for lines that messages suggest.

Offsets of rows rise, places that are written to differ from each other, and cursors that threads count up start where
each other's do not. All other arrays may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from cudabench.toolchain.kernels import KernelSource
from cudabench.userkernel.pointers import like
from cudabench.userkernel.suggested.reach import closing, joined, subscripts

OFFSETS = "i0"  # rows of one element each; of cursors, places of one element each
PLACES = "permutation"
COUNTS = "ones"  # of segments, where each begins behind the one before


def starts(kernel: KernelSource, aliases: Mapping[str, str]) -> dict[str, str]:
    """Return how arrays start that hold offsets, counts, cursors or places, by their names."""
    text = joined(kernel.text)
    whole = [one.name for one in kernel.parameters if one.pointer and one.name and _is_whole(like(one, aliases))]
    found = {name: OFFSETS for name in whole if is_offsets(kernel.text, name)}
    for name, keys in _cursors(text, whole):
        found |= {name: OFFSETS, **dict.fromkeys(keys, PLACES)}
    for first, count in _segments(text, whole):
        found |= {first: OFFSETS, count: COUNTS}
    for name in whole:
        if name not in found and _is_place(text, name):
            found[name] = PLACES
    return found


def _segments(text: str, whole: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the arrays that say where segments begin, each with the one of their lengths: `x[first[i] + j]` in a loop
    over `j < count[i]`."""
    tight = text.replace(" ", "")
    for name, count, index in re.findall(r"(\w+)=0;\1<(\w+)\[(\w+)\];", tight):
        for first in whole:
            start = rf"{first}\[{index}\]"
            named = re.findall(rf"(\w+) ?= ?{first} ?\[ ?{index} ?\] ?;", text)
            any_ = "|".join([start, *named])
            if first != count in whole and re.search(rf"\[(?:(?:{any_})\+{name}|{name}\+(?:{any_}))\]", tight):
                yield first, count


def _is_whole(kind: str) -> bool:
    return kind != "bfloat16" and np.dtype(kind).kind in "iu" and np.dtype(kind).itemsize >= 2


def is_offsets(kernel: str, array: str) -> bool:
    """Return whether an array says where rows begin: `array[i]` and `array[i + 1]` are both read, or a loop goes from
    one of its numbers to another; none is written."""
    text = re.sub(r"\s+", "", kernel)
    if re.search(rf"(?<![\w.>]){re.escape(array)}\[[^\]]*\](?:=(?!=)|[-+*/|&^]=|\+\+|--)", text):
        return False
    name = rf"{re.escape(array)}\[[^;\[\]]*\]"
    if re.search(rf"\bfor\(\w+={name};\w+<=?{name};", text):
        return True
    indices = {index.strip("()") for index in subscripts(text, array)}
    return any(f"{index}+1" in indices or f"1+{index}" in indices for index in indices)


def _written(text: str) -> Iterator[str]:
    """Yield the indices of what is written to, `+=` too."""
    for match in re.finditer(r"\b\w+ ?\[", text):
        length = closing(text[match.end() - 1 :], "[", "]")
        behind = text[match.end() - 1 + length + 1 :] if length > 0 else ""
        if re.match(r" ?(?:[-+*/|&^]|<<|>>)?=(?!=)", behind):
            yield text[match.end() : match.end() - 1 + length]


def _is_place(text: str, name: str) -> bool:
    """Return whether numbers of an array, and none of its own places, say where something is written."""
    names = set(re.findall(rf"\b(\w+) ?= ?(?:\([\w ]+\) ?|static_cast ?<[^<>]*> ?\( ?)?{name} ?\[", text))
    uses = [rf"\b{name} ?\[", *(rf"\b{one}\b" for one in names)]
    return any(re.search(use, index) for index in _written(text) for use in uses)


def _cursors(text: str, whole: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the arrays of which atomics take the places that are written to next, each with the arrays of its keys."""
    for match in re.finditer(r"\b(\w+) ?= ?(?:\([\w ]+\) ?)?atomic(?:Add|Inc) ?\(", text):
        length = closing(text[match.end() - 1 :], "(", ")")
        inside = text[match.end() : match.end() - 1 + length]
        named = [one for one in re.findall(r"\w+", inside) if one in whole]
        if named and any(index.strip() == match[1] for index in _written(text)) and re.search(r"[\[+]", inside):
            yield named[0], named[1:]
