"""Where words stand in a long text, so that a pattern is tried there alone.

A search that may begin anywhere tries every character: of a file with its headers these are a million and more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def matches(pattern: re.Pattern[str], text: str, *words: str) -> Iterator[re.Match[str]]:
    """Yield what `pattern.finditer(text)` does, of a pattern whose every match begins with one of the words."""
    ends = 0
    for at in sorted(at for word in words for at in _finds(word, text)):
        if at >= ends and (match := pattern.match(text, at)):
            ends = match.end()
            yield match


def first(pattern: re.Pattern[str], text: str, *words: str) -> re.Match[str] | None:
    """Return what `pattern.search(text)` does, of a pattern whose every match begins with one of the words."""
    return next(matches(pattern, text, *words), None)


def _finds(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)
