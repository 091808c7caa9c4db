"""The conditions that a launch stands under: `if (fast) {`, `else`, `case 512:`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from cudabench.userkernel.suggested.host_code import HostCode
from cudabench.userkernel.suggested.host_words import NAME

_MOST = 12  # conditions around a launch


@dataclass(frozen=True)
class Condition:
    """An expression that is true or not where a launch stands, or, with `labels`, one of those of a `switch`; `others`
    are that one's further labels where the launch is its default's."""

    words: list[str]
    holds: bool = True
    labels: tuple[tuple[str, ...], ...] = ()
    others: tuple[tuple[str, ...], ...] = ()
    at: int = 0

    @property
    def chosen(self) -> tuple[str, list[str]] | None:
        """The name and the value that make it so, as far as it is as plain as that; None for another."""
        words = self.words
        if self.labels:
            plain = len(words) == 1 and NAME.fullmatch(words[0])
            return (words[0], list(self.labels[0])) if plain else None
        turned = words[:1] == ["!"]
        plain_words = words[1:] if turned else words
        if len(plain_words) == 1 and NAME.fullmatch(plain_words[0]):
            return plain_words[0], ["1" if self.holds != turned else "0"]
        if self.holds and words[1:3] == ["=", "="] and len(words) == 4 and NAME.fullmatch(words[0]):
            return words[0], words[3:]
        return None


def around(host: HostCode, start: int, at: int) -> Iterator[Condition]:
    """Yield the conditions around a token of a function that begins at another, the innermost first, not too many."""
    return islice(_around(host, start, at), _MOST)


def _around(host: HostCode, start: int, at: int) -> Iterator[Condition]:
    yield from _before(host, _statement(host, start, at))
    depth = 0
    for place in range(at - 1, start, -1):
        depth += (host.words[place] == "}") - (host.words[place] == "{")
        if depth < 0:
            depth = 0
            head = host.opening(place - 1) if host.words[place - 1] == ")" else place
            if host.words[head - 1] == "switch":
                yield _case(host, head, place, at)
            else:
                yield from _before(host, place)


def _statement(host: HostCode, start: int, at: int) -> int:
    """Return where the statement around a token begins, as far as brackets around it go."""
    place, depth = at, 0
    while place > start:
        word = host.words[place - 1]
        depth += (word in ")]") - (word in "([")
        if word in (";", "{", "}", "else") or (word == ":" and host.words[place - 2] != ":"):
            return place
        if word == ")" and depth == 1:
            opening = host.opening(place - 1)
            if host.words[opening - 1] in ("if", "for", "while"):
                return place
            place, depth = opening, 0
            continue
        place -= 1
    return place


def _before(host: HostCode, place: int) -> Iterator[Condition]:
    """Yield the conditions that stand in front of a statement: `if (words)`, `else`, `else if (words)`."""
    while place > 1:
        word = host.words[place - 1]
        if word == ")":
            opening = host.opening(place - 1)
            if host.words[opening - 1] not in ("if", "for", "while"):
                return
            if host.words[opening - 1] == "if":
                yield Condition(host.words[opening + 1 : place - 1], at=opening)
            place = opening - 1
        elif word == "else":
            head = _if_of(host, place - 1)
            if head is None:
                return
            close = host.closing(head + 1, head + 1000)
            yield Condition(host.words[head + 2 : close], holds=False, at=head)
            place = head
        else:
            return


def _if_of(host: HostCode, place: int) -> int | None:
    """Return where the `if` stands that an `else` belongs to."""
    before = place - 1
    if host.words[before] == "}":
        before = host.opening(before) - 1
        opening = host.opening(before) if host.words[before] == ")" else 0
        return opening - 1 if host.words[opening - 1] == "if" else None
    if host.words[before] != ";":
        return None
    at = host.back_to(before, "if", ";")
    return at if host.words[at] == "if" else None


def _case(host: HostCode, head: int, brace: int, at: int) -> Condition:
    """Return the condition of a `switch` whose bracket and brace are given, with the labels above a token."""
    every = _labels(host, brace)
    labels: list[tuple[str, ...]] = []
    default, last = False, brace
    for place, colon, label in every:
        if place >= at:
            break
        stacked = place == last + 1
        labels = [*(labels if stacked else []), *([label] if label else [])]
        default, last = (default and stacked) or not label, colon
    others = tuple(label for _, _, label in every if label and label not in labels) if default else ()
    return Condition(host.words[head + 1 : brace - 1], True, tuple(labels), others, head)


@lru_cache(maxsize=64)
def _labels(host: HostCode, brace: int) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return the labels of a `switch`: where each stands, where its colon does, and its words, () for the default."""
    found: list[tuple[int, int, tuple[str, ...]]] = []
    depth, place = 0, brace + 1
    while place < len(host.words) and depth >= 0:
        word = host.words[place]
        depth += (word == "{") - (word == "}")
        if depth == 0 and word in ("case", "default"):
            colon = next(
                (one for one in range(place, min(place + 40, len(host.words))) if host.words[one] == ":"), place
            )
            found.append((place, colon, tuple(host.words[place + 1 : colon])))
            place = colon
        place += 1
    return found
