"""Which values a kernel's own text leaves its whole numbers: for lines that messages suggest.

A number that counts the elements of an array of a fixed size is no larger than that, and one whose remainder a kernel
takes is a multiple.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from cudabench.userkernel.reach import Reach, joined

_LEAVES = r"(?:__trap|return|asm|printf|assert)\b"


def fitted(own: str, value: int, dtype: str, room: int | None, text: str, ragged: bool) -> int:
    """Return the value nearest below one that a parameter's type, the arrays that it counts and its remainders leave.

    A `ragged` value stays one unless the kernel refuses it.
    """
    most = min([int(np.iinfo(dtype).max), *([room] if room else [])])
    value = min(value, most)
    step = math.lcm(*_divisors(own, joined(text), ragged))
    return max(value - value % step, step) if step <= most else value


def _divisors(own: str, text: str, ragged: bool) -> list[int]:
    """Return what a number must be a multiple of: `n % 3` of a kernel."""
    remainder = rf"(?<![\w.]){own} ?% ?(\d+)[uU]? ?"
    refused = rf"\bassert ?\([^;]*{remainder}==? ?0|\bif ?\( ?{remainder}(?:!= ?0 ?|> ?0 ?)?\) ?{{? ?{_LEAVES}"
    found = re.findall(refused, text) if ragged else re.findall(rf"{remainder}()", text)
    return [int(one) for pair in found for one in pair if one and 0 < int(one) <= 1 << 12]


def room_for(own: str, reach: Reach, members: Mapping[tuple[str, str], int]) -> int | None:
    """Return the largest value of a number for which arrays of fixed size have room, that it is an index of or bounds a
    loop over: those that a kernel declares, and `members` of its structs. None where there are none."""
    text, most = reach.text, []
    over = dict[str, int]()  # the names that run up to the number, and how far beyond it
    for match in re.finditer(rf"(?<![\w.])(\w+) ?(<=?) ?{own} ?[;&)]", text):
        over[match[1]] = 1 if match[2] == "<=" else 0
    for (struct, member), count in members.items():
        for index in re.findall(rf"(?<![\w.>]){struct} ?\. ?{member} ?\[ ?(\w+) ?\]", text):
            if index == own or index in over:
                most.append(count - (1 if index == own else over[index]))
    for declared in re.finditer(r"\w ?\*? ?\b([^\W\d]\w*) ?((?:\[[^\[\];]+\] ?)+)(?==(?!=)|;|,)", text):
        name, sides = declared[1], re.findall(r"\[([^\[\]]+)\]", declared[2])
        before = re.search(r"([^\W\d]\w*)[ *]+$", text[: declared.start(1)])
        if before is None or before[1] in ("return", "else", "case"):
            continue
        for used in re.finditer(rf"(?<![\w.>]){name} ?((?:\[[^\[\]]+\] ?)+)", text):
            for side, index in zip(sides, re.findall(r"\[([^\[\]]+)\]", used[1]), strict=False):
                index = index.strip()
                if used.start() == declared.start(1) or (index != own and index not in over):
                    continue
                extent = reach.largest(side)
                if extent > 0:
                    most.append(extent - (1 if index == own else over[index]))
    return min((one for one in most if one > 0), default=None)
