"""Which extent of a problem each axis of a grid covers, and how much of it a block: for lines that messages suggest.

By a kernel's guards and indices, not by the order of its parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

from cudabench.userkernel.suggested.reach import joined

_HOPS = 3  # from a name to those that are computed of it
_VALUE = re.compile(r"(?<![\w.\]>])([^\W\d]\w*) ?=(?!=) ?([^;=]+?) ?(?:;|,(?= ?\*? ?\w+ ?=))")
_PLACE = re.compile(r"\bblockIdx ?\. ?([xyz])\b")


class Covered:
    """A kernel's text with the names of its extents."""

    def __init__(self, kernel: str, extents: Sequence[str]) -> None:
        """Take a kernel's text, with its head, and its parameters that are extents."""
        self.text = joined(kernel.partition("{")[2])
        self.extents = extents
        self.values: dict[str, str] = {}  # the first of each name: a transpose sets its places again
        for name, value in _VALUE.findall(self.text):
            self.values.setdefault(name, value)

    def axes(self, wide: int) -> list[str]:
        """Return the extents that the first `wide` axes of a grid cover, '' for one of which the text says nothing.

        `if (z < depth)` says it, so does `(z * height + y) * width + x` of all axes but the slowest. That one covers
        what is left, if it is not what it steps by.
        """
        places = [list(self._places(axis)) for axis in "xyz"[:wide]]
        found = [next((own for one in part if (own := self._bound(one))), "") for part in places]
        for at, part in enumerate(places):
            if not found[at]:
                found[at] = next((own for one in part if (own := self._within(one)) not in found), "")
        for at, part in enumerate(places):
            if not found[at] and part:
                taken = {*"*".join(found).split("*"), *(one for name in part for one in self._steps(name))}
                found[at] = next((own for own in self.extents if own not in taken), "")
        return found

    def guarded(self) -> str:
        """Return the one extent that guards a thread's number along x, '' where there are several or none; with the
        threads that share a number, `32*rows`, where they are a warp for each."""
        bounds = {own for one in self._places("x") if (own := self._bound(one))}
        shared = {self._shared(one) for one in self.values if _PLACE.search(self.values[one]) and self._is_place(one)}
        many = max(shared, default=1)
        return "".join(f"{many}*{own}" if many > 1 else own for own in bounds) if len(bounds) == 1 else ""

    def used(self, axis: str) -> bool:
        """Return whether blocks along an axis may do different work: the text asks for that place, or for none."""
        asked = set(_PLACE.findall(self.text))
        return not asked or axis in asked

    def tile(self, axis: str, block: Sequence[int], constant: Callable[[str], int]) -> int:
        """Return how many elements blocks along an axis are apart: `blockIdx.y * 32` of which 8 are threads is 32.

        `block` has three sides; `constant` gives the number that a name stands for, 0 for another.
        """
        own = rf"blockIdx ?\. ?{axis}\b"
        if not re.search(own, self.text):
            return block["xyz".index(axis)]  # a function that it calls reads it
        names = "|".join([own, *(rf"\b{name}\b" for name, value in self.values.items() if re.fullmatch(own, value))])
        side = r"(?:blockDim ?\. ?[xyz]|\b\w+\b)"
        behind = rf"(?:{names}) ?\)? ?\* ?(?:\( ?\w+ ?\) ?)?\(? ?({side}(?: ?\* ?\d+)*) ?\)?"
        before = rf"((?:\d+ ?\* ?)*{side}) ?\* ?(?:\( ?\w+ ?\) ?)?(?:{names})"
        sides, of_threads = [1], list[int]()
        for match in re.finditer(rf"{behind}|{before}", self.text):
            words = [one.strip() for one in (match[1] or match[2]).split("*")]
            places = [re.fullmatch(r"blockDim ?\. ?([xyz])", self.values.get(one, one)) for one in words]
            known = math.prod(
                block["xyz".index(place[1])] if place else constant(one)
                for one, place in zip(words, places, strict=True)
            )
            on_threads = self._is_thread(self.text[match.end() :])
            if not known and not set(words) & set(self.extents) and on_threads:
                known = block["xyz".index(axis)]
            (of_threads if known and on_threads else sides).append(known)
        return max(of_threads or sides)

    def _is_thread(self, behind: str) -> bool:
        """Return whether a text goes on by adding a thread's place in its block."""
        added = re.match(r" ?\)? ?\+ ?(\w+)", behind)
        if not added or re.search(rf"\bfor ?\((?: ?\w+)* {added[1]} ?=", self.text):  # rows start there
            return False
        return added[1] == "threadIdx" or self.values.get(added[1], "").startswith("threadIdx")

    def _places(self, axis: str) -> Iterator[str]:
        """Yield patterns of what tells a thread's place along an axis: names, and the block's own, the last."""
        for name, value in self.values.items():
            if set(_PLACE.findall(value)) == {axis} and self._is_place(name):
                yield rf"(?<![\w.>]){name}\b"
        own = rf"\bblockIdx ?\. ?{axis}\b"
        if re.search(own, self.text):
            yield own

    def _is_place(self, name: str) -> bool:
        return "[" not in self.values[name] and "?" not in self.values[name]

    def _shared(self, name: str) -> int:
        """Return how many threads share a number: 32 of `i / 32` and `i >> 5`."""
        value = self.values[name].replace("warpSize", "32")
        divided = re.search(r"\) ?(?:/ ?(\d+)|>> ?(\d+))$", value)
        return (int(divided[1]) if divided[1] else 1 << min(int(divided[2]), 10)) if divided else 1

    def _bound(self, place: str, hops: int = 0) -> str:
        """Return the extent that a place is compared with, or that what it is computed of is: '' for none.

        For `k = z / n` that is bounded by m it is `n*m`.
        """
        cast = r"(?:\( ?[\w ]+\) ?)?"
        compared = (
            rf"{place}(?: ?\+ ?\w+)? ?(?:<=?|>=)(?![<=]) ?{cast}\(? ?([^\W\d]\w*)\b(?! ?(?:[\[(.]|[+*] ?[^\W\d]))"
        )
        for words in re.findall(compared, self.text):
            if words in self.extents:
                return str(words)
            local = self.values.get(words, "")
            if all(one.strip() in self.extents for one in local.split("*")):
                return local.replace(" ", "")
            if own := next((one for one in re.findall(r"\w+", local) if one in self.extents), ""):
                return own
        if hops >= _HOPS:
            return ""
        for name, value in self.values.items():
            divided = re.fullmatch(rf"\(? ?{place} ?/ ?(\w+) ?\)?", value)
            outer = self._bound(rf"(?<![\w.>]){name}\b", hops + 1) if divided else ""
            if divided and outer and divided[1] in self.extents:
                return f"{divided[1]}*{outer}"
        return ""

    def _within(self, place: str) -> str:
        """Return the extent whose multiples a place is added to, as in `a * extent + place`; '' for none."""
        names = "|".join(map(re.escape, self.extents))
        found = re.search(rf"\* ?({names}) ?\)? ?\+ ?{place}(?! ?\*)", self.text) if names else None
        return found[1] if found else ""

    def _steps(self, place: str) -> set[str]:
        """Return the extents that a place is multiplied with."""
        factors = re.findall(rf"{place} ?\)?((?: ?\* ?\(?(?: ?\w+ ?\))? ?\w+)+)", self.text)
        return {word for part in factors for word in re.findall(r"\w+", part) if word in self.extents}
