"""Which arrays of a kernel are counters and flags, that must start as zeros: for lines that messages suggest.

Threads add to them by atomics, or wait until they change. Where they hold anything, waiting may never end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.tokens import spell, split, words_of
from cudabench.userkernel.suggested.reach import closing, functions, joined

_DEPTH = 3  # of functions that are given the array
_NOTHING = r"(?:;|\{ ?(?:;|(?:__nanosleep|__threadfence\w*) ?\([^()]*\) ?; ?)* ?\})"  # the body of a loop that waits
_NO_BODY = re.compile(rf" ?{_NOTHING}")
_DO_NOTHING = re.compile(rf"\bdo ?{_NOTHING} ?$")


def counters(kernel: KernelSource, text: str) -> set[str]:
    """Return the arrays of a kernel that it, or a function of its file that it gives them to, counts or waits with."""
    body, whole = joined(kernel.text.partition("{")[2]), joined(text)
    arrays = [one.name for one in kernel.parameters if one.pointer and not one.const and one.name]
    return {name for name in arrays if _counts(name, body, whole, 0)}


def _counts(array: str, body: str, text: str, depth: int) -> bool:
    """Return whether a function's body counts or waits with an array."""
    names = [array, *_pointers_into(array, body)]
    for name in names:
        if re.search(rf"\batomic\w+ ?\( ?(?:\([^()]*\) ?)?&? ?\(? ?{name}\b", body):
            return True
        if any(re.search(rf"(?<![\w.]){name}\b", condition) for condition in _waits(body)):
            return True
    if depth >= _DEPTH:
        return False
    called = (call for name in names for call in _given_to(name, body))
    return any(
        _counts(formal[at], inner, text, depth + 1)
        for function, at in dict.fromkeys(called)
        for formal, inner in functions(function, text)
        if at < len(formal)
    )


def _pointers_into(array: str, body: str) -> list[str]:
    pattern = (
        rf"(?:\* ?(?:(?:const|__restrict__|volatile) )*|\bauto )(\w+) ?= ?(?:\([\w ]+\* ?\) ?)?&? ?{array} ?[+\[;,]"
    )
    return [name for name in re.findall(pattern, body) if name != array]


def _waits(body: str) -> Iterator[str]:
    """Yield the conditions of loops that do nothing else: `while (...);`, `do {} while (...);`."""
    for match in re.finditer(r"\bwhile ?(?=\()", body):
        length = closing(body[match.end() :], "(", ")")
        end = match.end() + length + 1
        before = body[: match.start()].rstrip()
        empty = _DO_NOTHING.search(before) if before.endswith("}") else None
        if length > 0 and (empty or (not _closes_do(before) and _NO_BODY.match(body[end:]))):
            yield body[match.end() : end]


def _closes_do(before: str) -> bool:
    """Return whether a text ends with the body of a `do`."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        depth += (before[at] == "}") - (before[at] == "{")
        if depth == 0:
            return before[at] == "{" and bool(re.search(r"\bdo ?$", before[:at]))
    return False


def _given_to(name: str, body: str) -> Iterator[tuple[str, int]]:
    """Yield the functions that an array, or a place in it, is given to, and as which argument."""
    for match in re.finditer(r"\b(\w+) ?(?:<[\w ,:]*> ?)?(?=\()", body):
        if match[1] in ("if", "for", "while", "return", "sizeof", "switch"):
            continue
        length = closing(body[match.end() :], "(", ")")
        inside = body[match.end() + 1 : match.end() + length]
        if length > 0 and re.search(rf"\b{name}\b", inside):
            for at, part in enumerate(split(words_of(inside), ",")):
                if re.fullmatch(rf"&? ?{name}\b(?: ?[+\[].*)?", spell(part)):
                    yield match[1], at
