"""Finds closing brackets in a text (an option or C code), and splits a text at separators outside of brackets."""

from __future__ import annotations

import re
from collections.abc import Iterator

# '<<' and '->' are tokens of their own, so that their '<' and '>' do not count as brackets
_TOKEN = re.compile(r'"[^"]*"|\'[^\']*\'|<<|->|.', re.S)


def _depths(text: str, start: int, angles: bool) -> Iterator[tuple[re.Match[str], int]]:
    """Yield (token, number of brackets that are open after it) for each token of a text."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        depth += match[0] in (*"([{", *"<" * angles)
        depth -= match[0] in (*")]}", *">" * angles) and depth > 0
        yield match, depth


def split(text: str, separator: str = ",", *, angles: bool = False) -> list[str]:
    """Split a text at the separators that are outside of brackets and quotes; return the parts, stripped.

    angles: whether < and > count as brackets, as in C++ templates.
    """
    parts, start = [], 0
    for match, depth in _depths(text, 0, angles):
        if match[0] == separator and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def listed(text: str, *, angles: bool = False) -> list[str]:
    """Return the non-empty parts of a text between commas (see `split`)."""
    return [part for part in split(text, angles=angles) if part]


def closing(text: str, start: int, *, angles: bool = False) -> int | None:
    """Return the position of the bracket that closes the one at `start`, or None."""
    return next((match.start() for match, depth in _depths(text, start, angles) if depth == 0), None)
