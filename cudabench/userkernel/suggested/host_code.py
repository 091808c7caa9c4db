"""The host code of a text by its words: functions, and where a name gets its value."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cudabench.toolchain import places
from cudabench.toolchain.c_types import SPECIFIERS, numpy_dtype
from cudabench.toolchain.tokens import Scan, closing_angle, closing_bracket, opens_scope
from cudabench.userkernel.suggested.callers import Callers
from cudabench.userkernel.suggested.host_words import commas, last_name, without_cast

_ALLOCATORS = frozenset(["cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc"])
_WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (16, 32, 64))


@dataclass(frozen=True)
class Site:
    """Where a launch stands: its words, and the tokens before it that may say what its names are."""

    template: list[str]
    geometry: list[list[str]]
    arguments: list[list[str]]
    visible: tuple[int, int]  # the tokens of its function up to it


class HostCode:
    """The host code of a text."""

    def __init__(self, scan: Scan, aliases: Mapping[str, str]) -> None:
        scan.leave_out(scan.hidden_spans())
        self.words = scan.words
        self.by_word = places.by_word(self.words)
        self.aliases = aliases
        self.bodies: list[tuple[int, int]] = []
        self.outside: list[int] = []  # the tokens at namespace scope
        self._survey(scan)
        self.callers = Callers(scan.text, self.words, self.by_word, self.bodies, self.outside, aliases)

    def _survey(self, scan: Scan) -> None:
        """Note the bodies of functions, and what stands outside all of them."""
        position = 0
        while position < len(self.words):
            head, stop = scan.head(position)
            closer = self.words[stop] if stop < len(self.words) else ";"
            self.outside += range(position, min(stop + 1, len(self.words)))
            if closer == "{" and not opens_scope(head):
                end = scan.matching(stop)
                if "=" in head:
                    self.outside += range(stop + 1, end + 1)
                else:
                    self.bodies.append((position, end))
                position = end + 1
            else:
                position = stop + 1
        self.outside.sort()

    def function_at(self, at: int) -> tuple[int, int]:
        """Return the tokens of the function that a token is in, its own place twice where it is in none."""
        return next((span for span in self.bodies if span[0] <= at <= span[1]), (at, at))

    def closing(self, at: int, stop: int) -> int:
        """Return where the bracket at a token is closed, or the last token before `stop`."""
        return closing_bracket(self.words[at:stop], 0) + at

    def places_of(self, name: str, start: int, stop: int) -> list[int]:
        """Return where a word stands from a token to before another."""
        found = self.by_word.get(name, [])
        return found[bisect_left(found, start) : bisect_left(found, stop)]

    @cached_property
    def outside_of(self) -> dict[str, list[int]]:
        """Where each word stands outside of functions."""
        found: dict[str, list[int]] = {}
        for at in self.outside:
            found.setdefault(self.words[at], []).append(at)
        return found

    def stands(self, at: int, marks: str) -> bool:
        """Return whether marks stand from a token on."""
        return "".join(self.words[at : at + len(marks)]) == marks

    def opening(self, at: int) -> int:
        """Return where the bracket is opened that is closed at a token; the token's place where it closes none."""
        depth = 0
        for place in range(at, max(-1, at - 4000), -1):
            depth += (self.words[place] in (")", "}", "]")) - (self.words[place] in ("(", "{", "["))
            if depth <= 0:
                return place
        return at

    # Where a name gets its value ------------------------------------------------------------------------------------

    def definitions(self, name: str, site: Site, before: int) -> list[tuple[int, list[str]]]:
        """Return where a name is given a value, in order: `T name = words`, `name = words`, `dim3 name(words)`."""
        start, stop = site.visible
        inside = self.places_of(name, start, min(before, stop))
        found = [one for at in inside if (one := self._definition(at))]
        if found:
            return found
        return [one for at in self.outside_of.get(name, ()) if at < before and (one := self._definition(at))]

    def _definition(self, at: int) -> tuple[int, list[str]] | None:
        before, behind = self.words[at - 1] if at else ";", self.words[at + 1] if at + 1 < len(self.words) else ""
        if before in (".", "::") or self.stands(at - 2, "->"):
            return None
        if behind == "=" and self.words[at + 2] != "=":
            words = self.until(at + 2)
            return at, ["dim3", *words] if words[:1] == ["{"] and self._in_dim3(at) else words
        if behind in ("(", "{") and before in ("dim3", ",") and self._in_dim3(at):
            close = self.closing(at + 1, at + 400)
            return at, ["dim3", *self.words[at + 1 : close + 1]]
        if behind in ("(", "{") and before in SPECIFIERS - {"void"} | {"size_t", "uint"}:
            close = self.closing(at + 1, at + 400)
            return (at, self.words[at + 2 : close]) if self.words[close + 1 : close + 2] in ([";"], [","]) else None
        return None

    def is_given(self, name: str, site: Site, whole: bool = True) -> bool:
        """Return whether a name is a parameter of the launch's function, one that is a `whole` number."""
        start, stop = site.visible
        if self.words[start] == "template":
            start += closing_angle(self.words[start : start + 400], 1)
        brace = next((at for at in range(start, stop) if self.words[at] == "{"), start)
        for at in range(start, brace):
            if self.words[at] == name and self.words[at + 1] in (",", ")", "="):
                return not whole or numpy_dtype(self.words[at - 1], self.aliases) in _WHOLE
        return False

    def _in_dim3(self, at: int) -> bool:
        """Return whether the declaration around a token is of dim3."""
        start = at
        while start > max(at - 80, 0) and self.words[start - 1] not in (";", "{", "}"):
            start -= 1
        return "dim3" in self.words[start : min(start + 3, at)]

    def members(self, name: str, site: Site, before: int) -> dict[str, tuple[int, list[str]]]:
        """Return the assignments to a dim3's members: `name.x = words`."""
        found = {}
        for at in self.places_of(name, site.visible[0], min(before, site.visible[1])):
            named = self.words[at + 1] == "." and self.words[at + 2] in ("x", "y", "z")
            if named and self.words[at + 3] == "=" and self.words[at + 4] != "=":
                found[self.words[at + 2]] = (at, self.until(at + 4))
        return found

    def counted_up(self, name: str, site: Site, before: int) -> bool:
        """Return whether a name, or a member of it, is changed in steps, `n *= 2`: only a run knows the last."""
        for at in self.places_of(name, site.visible[0], min(before, site.visible[1])):
            behind = self.words[at + 1 : at + 5]
            behind = behind[2:] if behind[:1] == ["."] else behind
            if behind[1:2] == ["="] and behind[0] in "*+-/%|&^":
                return True
            if behind[:2] in (["+", "+"], ["-", "-"]) or behind[:3] in (["<", "<", "="], [">", ">", "="]):
                return True
        return False

    def until(self, at: int) -> list[str]:
        """Return the words up to the ';' or ',' that ends an initialiser."""
        depth, end = 0, at
        while end < min(len(self.words), at + 400):
            word = self.words[end]
            if depth == 0 and word in (";", ",", ")", "}"):
                break
            depth += (word in "([{") - (word in ")]}")
            end += 1
        return self.words[at:end]

    def allocations(self, name: str, site: Site) -> list[tuple[int, list[str]]]:
        """Return the sizes with which an array is allocated before a launch, in order."""
        found = []
        for at in sorted(at for word in _ALLOCATORS for at in self.places_of(word, *site.visible)):
            if self.words[at + 1 : at + 2] in (["("], ["<"]):
                opening = at + 1 if self.words[at + 1] == "(" else closing_angle(self.words[at : at + 60], 1) + at + 1
                inner = commas(self.words[opening + 1 : self.closing(opening, at + 400)])
                if len(inner) >= 2 and last_name(without_cast(inner[0])) == name:
                    found.append((at, inner[1]))
        return found

    def symbols(self) -> list[tuple[str, list[str]]]:
        """Return what host code copies to symbols: `cudaMemcpyToSymbol(symbol, &value, ...)`."""
        found = []
        for at in self.by_word.get("cudaMemcpyToSymbol", ()):
            if self.words[at + 1 : at + 2] == ["("]:
                inner = commas(self.words[at + 2 : self.closing(at + 1, at + 200)])
                if len(inner) >= 2:
                    found.append((last_name(without_cast(inner[0])), without_cast(inner[1])))
        return found

    def function(self, name: str) -> tuple[list[str], list[str]] | None:
        """Return the parameters and the value of a function that only returns an expression."""
        for start, end in self.bodies:
            if name not in self.words[start : min(start + 40, end + 1)]:
                continue
            words = self.words[start : end + 1]
            if "{" not in words or "return" not in words:
                continue
            brace, at = words.index("{"), words.index(name)
            if at + 1 >= brace or words[at + 1] != "(" or words[brace + 1] != "return":
                continue
            formal = [part[-1] for part in commas(words[at + 2 : closing_bracket(words, at + 1)]) if part]
            return formal, words[brace + 2 : words.index(";", brace)]
        return None
