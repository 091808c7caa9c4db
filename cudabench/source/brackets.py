"""Text with brackets, as options and C have it: where one is closed, and what separators outside of all part."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "([{", ")]}"
_QUOTED_OR_LETTER = re.compile(r'"[^"]*"|\'[^\']*\'|.', re.S)


def split(text: str, separator: str = ",") -> list[str]:
    """Return the parts of a text between separators that stand in no brackets and no quotes, without blanks around."""
    parts, depth, start = [], 0, 0
    for match in _QUOTED_OR_LETTER.finditer(text):
        depth += (match[0] in _OPEN) - (match[0] in _CLOSE)
        if match[0] == separator and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def listed(text: str) -> list[str]:
    """Return the parts between commas that are not empty."""
    return [part for part in split(text) if part]


def closing(text: str, start: int) -> int | None:
    """Return where the bracket that opens at a place is closed, None where it never is."""
    depth = 0
    for match in _QUOTED_OR_LETTER.finditer(text, start):
        depth += (match[0] in _OPEN) - (match[0] in _CLOSE)
        if depth == 0:
            return match.start()
    return None
