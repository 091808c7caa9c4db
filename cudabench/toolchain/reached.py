"""The names that a kernel's code comes to: its own and those of the functions and classes that it calls."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.tokens import Scan, opens_scope

_NAME = re.compile(r"[^\W\d]\w*")
# Words that stand before a name that they do not declare.
_NO_TYPES = frozenset(
    """return else case goto throw new delete sizeof typename struct class enum typedef using""".split()  # noqa: SIM905
)
_BEHIND = frozenset(["=", ";", "[", ",", "(", ")", "{", ":"])


def names(text: str, kernel: KernelSource) -> frozenset[str]:
    """Return the names outside of functions that a kernel reads, writes or calls, also through functions of its text.

    `text` is the source that has the kernel. A name that a function declares for itself, as a parameter or a variable,
    is not one of them. Macros are not followed: give a text that the preprocessor has read.
    """
    bodies = _used_by(text)
    found: set[str] = set()
    waiting = _free(Scan(kernel.text).words)
    while waiting:
        found |= waiting
        waiting = {name for known in waiting for name in bodies.get(known, ())} - found
    return frozenset(found)


@functools.lru_cache(maxsize=4)  # a text is asked for each of its kernels
def _used_by(text: str) -> Mapping[str, set[str]]:
    """The names that each function and class of a text uses, by its own name; not to be changed."""
    bodies: dict[str, set[str]] = {}
    for head, body in _definitions(Scan(text)):
        own = _free(head + body)
        for name in _defined(head):
            bodies.setdefault(name, set()).update(own)
    return bodies


def large_functions(text: str, tokens: int) -> frozenset[str]:
    """Return the functions and classes at namespace scope, none of them a kernel, of more than so many tokens."""
    found = _definitions(Scan(text))
    return frozenset(name for head, body in found if len(body) > tokens for name in _defined(head))


def _definitions(scan: Scan) -> Iterator[tuple[list[str], list[str]]]:
    """The head and the body of each function and class at namespace scope."""
    scan.leave_out(scan.hidden_spans())
    position = 0
    while position < len(scan.words):
        head, stop = scan.head(position)
        if stop < len(scan.words) and scan.words[stop] == "{" and not opens_scope(head):
            end = scan.matching(stop)
            if "__global__" not in head:
                yield head, scan.words[stop : end + 1]
            position = end + 1
        else:
            position = stop + 1


def _defined(head: list[str]) -> Iterator[str]:
    """The name of a function, `name(...)`, or of a class, `struct name`."""
    for at, word in enumerate(head[:-1]):
        if word in ("struct", "class", "union"):
            yield head[at + 1]
        elif head[at + 1] == "(" and _NAME.fullmatch(word):
            yield word
            return
    if len(head) > 1 and head[-2] in ("struct", "class", "union"):
        yield head[-1]


def _free(words: list[str]) -> set[str]:
    """The names in a definition but those that it declares and those of members."""
    used: set[str] = set()
    declared: set[str] = set()
    for at, word in enumerate(words):
        if not _NAME.fullmatch(word):
            continue
        before = words[at - 1] if at else ""
        if before == "." or words[max(at - 2, 0) : at] == ["-", ">"]:
            continue
        behind = words[at + 1] if at + 1 < len(words) else ";"
        typed = _typed(words, at)
        (declared if typed and behind in _BEHIND and behind != "(" else used).add(word)
    return used - declared


def _typed(words: list[str], at: int) -> bool:
    """Whether a type stands before the name at `at`: `int i`, `float *p`, `int i = 0, j`."""
    before = words[at - 1] if at else ""
    if before == ",":
        return _in_declaration(words, at)
    if before in ("*", "&", ">"):
        return words[at + 1 : at + 2] in (["="], [";"], [","], [")"], ["["]) and _starts_statement(words, at)
    return bool(_NAME.fullmatch(before)) and before not in _NO_TYPES


def _in_declaration(words: list[str], at: int) -> bool:
    """Whether the name at `at`, behind a comma, is one more variable of a declaration: `int i = 0, j;`."""
    start, depth = at - 1, 0
    while start >= 0 and (depth or words[start] not in (";", "{", "}", "(", "[")):
        depth += (words[start] in (")", "]")) - (words[start] in ("(", "["))
        start -= 1
    first = words[start + 1 : start + 3]
    return (
        (start < 0 or words[start] in (";", "{", "}"))
        and len(first) == 2
        and all(_NAME.fullmatch(word) or word == "*" for word in first)
        and first[0] not in _NO_TYPES
    )


def _starts_statement(words: list[str], at: int) -> bool:
    """Whether only a type stands between a `;`, a brace, a comma or a bracket and the name at `at`: `float *p`."""
    start = at - 1
    while start >= 0 and (words[start] in ("*", "&", ">", "<", "::") or _NAME.fullmatch(words[start])):
        start -= 1
    first = words[start + 1]
    return bool(_NAME.fullmatch(first)) and first not in _NO_TYPES and words[max(start, 0)] in (";", "{", "}", "(", ",")
