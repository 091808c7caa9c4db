"""Where host code calls its own functions, and what it passes: how the numbers of a launch come to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cudabench.toolchain.tokens import closing_angle
from cudabench.userkernel.suggested.host_code import Head, HostCode, Site
from cudabench.userkernel.suggested.host_words import NAME, commas, without_cast

_CALLS = 8  # of a function that are looked at
_LEVELS = 4  # of functions that call each other
_BEFORE_CALLS = frozenset(["return", "else", "do", "throw", "case", "new", "co_return"])
_MAKERS = frozenset(["make_unique", "make_shared"])


def chains(host: HostCode, site: Site, level: int = 0) -> Iterator[Site]:
    """Yield a site for each call of its function, the calls of that one's function with it; itself where none is."""
    head = host.head_at(site.visible[1])
    many = 0
    if head and head.parameters and level < _LEVELS:
        for at, arguments in _calls(host, head):
            given = _given(head, arguments)
            if given is None:
                continue
            outer = Site([], [], [], (host.function_at(at)[0], at))
            for caller in chains(host, outer, level + 1):
                yield replace(site, caller=caller, given=given)
                many += 1
                if many >= _CALLS:
                    return
    if not many:
        yield site


def _calls(host: HostCode, head: Head) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield the calls of a function outside itself, or of a constructor: where, and what is given."""
    words = host.words
    own = host.function_at(head.span[0])
    for at in host.by_word.get(head.name, ()):
        span = host.function_at(at)
        if span[0] == span[1] or (own[0] <= at <= own[1] and not head.owner):
            continue
        around = host.head_at(at)
        if head.span[0] <= at <= head.span[1] or (around and around.span == head.span):
            continue
        opening, before = at + 1, words[at - 1]
        if head.owner == head.name:  # `Name name(arguments)`, `new Name(arguments)`, `make_unique<Name>(arguments)`
            if (words[opening] == ">" and words[at - 2] in _MAKERS) or NAME.fullmatch(words[opening]):
                opening += 1
        else:
            if NAME.fullmatch(before) and before not in _BEFORE_CALLS:
                continue
            if words[opening] == "<":
                opening += closing_angle(words[opening : opening + 100], 0) + 1
        if words[opening : opening + 1] in (["("], ["{"]):
            close = host.closing(opening, opening + 1000)
            if words[close + 1 : close + 2] != ["{"]:
                yield at, commas(words[opening + 1 : close])


def _given(head: Head, arguments: list[list[str]]) -> dict[str, list[str]] | None:
    """Return what a call gives the parameters, a pack's by numbers; None for a call of another function."""
    names = head.parameters
    if not head.packed:
        if len(arguments) > len(names) or any(one not in head.defaults for one in names[len(arguments) :]):
            return None
        return dict(zip(names, arguments, strict=False))
    if len(arguments) < len(names) - 1:
        return None
    given = dict(zip(names[:-1], arguments, strict=False))
    rest = arguments[len(names) - 1 :]
    return given | {packed(names[-1], at): words for at, words in enumerate(rest)}


def packed(name: str, at: int) -> str:
    """Return the name under which a call gives an argument of a pack."""
    return f"{name}__{at}"


def unpacked(site: Site) -> Site:
    """Return a launch whose arguments are named one by one where they are a pack: `kernel<<<g, b>>>(args...)`."""
    found: list[list[str]] = []
    for words in site.arguments:
        if words[-3:] != [".", ".", "."]:
            found.append(words)
            continue
        inner = words[:-3]
        if "forward" in inner and inner[-1] == ")":
            inner = inner[inner.index("(") + 1 : -1]
        name = (without_cast(inner) or [""])[-1]
        at = 0
        while packed(name, at) in site.given:
            found.append([packed(name, at)])
            at += 1
    return replace(site, arguments=found)
