"""Which values a kernel's own text leaves its whole numbers: for lines that messages suggest.

A number that counts the elements of an array of a fixed size is no larger than that, and one whose remainder a kernel
takes is a multiple.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from cudabench.toolchain import places
from cudabench.userkernel.suggested.reach import Reach, joined

_OF_FILE = re.compile(r"__(?:constant|device)__\s[^;{}()=\[\]]*?(\w+)\s*((?:\[[^\[\];]+\]\s*)+)[;=,{]")
_LEAVES = r"(?:__trap|return|asm|printf|assert)\b"


def fitted(own: str, value: int, dtype: str, room: int | None, text: str, ragged: bool) -> int:
    """Return the value nearest below one that a parameter's type, the arrays that it counts and its remainders leave.

    A `ragged` value stays one unless the kernel refuses it.
    """
    most = min([int(np.iinfo(dtype).max), *([room] if room else [])])
    value = min(value, most)
    remainder = rf"(?<![\w.]){own} ?% ?(\d+)[uU]? ?"
    refused = rf"\bassert ?\([^;]*{remainder}==? ?0|\bif ?\( ?{remainder}(?:!= ?0 ?|> ?0 ?)?\) ?{{? ?{_LEAVES}"
    text = joined(text)
    if not ragged:
        step = _common(re.findall(remainder, text))
        value -= value % step if step <= value else 0
    step = _common([one for pair in re.findall(refused, text) for one in pair if one])
    return max(value - value % step, step) if step <= most else value


def _common(words: Sequence[str]) -> int:
    """Return the least number that all these divide."""
    return math.lcm(*(int(word) for word in words if 0 < int(word) <= 1 << 12))


def room_for(own: str, reach: Reach, members: Mapping[tuple[str, str], int]) -> int | None:
    """Return the largest value of a number for which arrays of fixed size have room, that it is an index of or bounds a
    loop over: those that a kernel or its file declares, and `members` of its structs. None where there are none."""
    text, most = reach.text, []

    def beyond(index: str, at: int) -> int | None:
        """Return how far an index at a place goes beyond the number less one, None where it does not hang on it."""
        if index == own:
            return 1
        for start, stop, name, _, last, _ in reach.loops:
            if name == index and start < at < stop and (bound := re.fullmatch(rf"{name} ?(<=?) ?{own}", last.strip())):
                return 1 if bound[1] == "<=" else 0
        return None

    for (struct, member), count in members.items():
        for match in re.finditer(rf"(?<![\w.>]){struct} ?\. ?{member} ?\[ ?(\w+) ?\]", text):
            if (further := beyond(match[1], match.start())) is not None:
                most.append(count - further)
    arrays = [(match[1], match[2], -1) for match in places.matches(_OF_FILE, reach.file, "__constant__", "__device__")]
    for declared in re.finditer(r"\w ?\*? ?\b([^\W\d]\w*) ?((?:\[[^\[\];]+\] ?)+)(?==(?!=)|;|,)", text):
        before = re.search(r"([^\W\d]\w*)[ *]+$", text[: declared.start(1)])
        if before and before[1] not in ("return", "else", "case"):
            arrays.append((declared[1], declared[2], declared.start(1)))
    for name, written, declared_at in arrays:
        sides = re.findall(r"\[([^\[\]]+)\]", written)
        for used in re.finditer(rf"(?<![\w.>]){name} ?((?:\[[^\[\]]+\] ?)+)", text):
            for side, index in zip(sides, re.findall(r"\[([^\[\]]+)\]", used[1]), strict=False):
                further = None if used.start() == declared_at else beyond(index.strip(), used.start())
                extent = reach.largest(side) if further is not None else 0
                if further is not None and extent > 0:
                    most.append(extent - further)
    return min((one for one in most if one > 0), default=None)
