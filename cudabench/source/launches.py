"""Reads launches in host code, such as `f<float, 8><<<grid, block, shared>>>(x, n)`, into records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from clang.cindex import Cursor, CursorKind

from cudabench.source.cursors import Text, file_of, integer_value, span
from cudabench.source.records import HostLaunch
from cudabench.source.words import listed_words

_CONFIGURES = ("cudaConfigureCall", "__cudaPushCallConfiguration")
_DEPTH = 16  # the maximum depth of nested syntax nodes around the numbers of a dim3


def launches_in(parent: Cursor, name: str, texts: Mapping[str, Text]) -> Iterator[HostLaunch]:
    """Yield the launches of kernels with this name in the files `texts`, in the order of the code."""
    for outer in parent.get_children():
        for cursor in outer.walk_preorder() if file_of(outer) in texts else ():
            parts = list(cursor.get_children()) if cursor.kind == CursorKind.CALL_EXPR else []
            if len(parts) < 2 or parts[1].spelling not in _CONFIGURES:
                continue
            callee, how, *passed = parts
            place = span(callee)
            written = texts[place.file].slice(place.start, place.end) if place.file in texts else ""
            match = re.fullmatch(r".*?(\w+)\s*(?:<(.*)>)?\s*", written.partition("<<<")[0], re.S)
            if match and match[1] == name:
                template = tuple(listed_words(match[2] or ""))
                grid, block, shared = (list(how.get_children())[1:4] + [None] * 3)[:3]
                numbers = tuple(map(_number, passed))
                yield HostLaunch(template, _sides(grid), _sides(block), _number(shared), numbers)


def _number(cursor: Cursor | None) -> int | None:
    value = None if cursor is None else integer_value(cursor)
    return value if value is not None and value >= 0 else None


def _sides(cursor: Cursor | None, depth: int = 0) -> tuple[int, ...]:
    """Return the numbers of a dim3 without trailing 1s, such as (16, 16); () if they are not known."""
    if cursor is None or depth > _DEPTH:
        return ()
    if cursor.kind == CursorKind.DECL_REF_EXPR:
        declared = cursor.referenced
        return _sides(declared, depth + 1) if declared is not None and declared.kind == CursorKind.VAR_DECL else ()
    parts = [
        child for child in cursor.get_children() if child.kind not in (CursorKind.TYPE_REF, CursorKind.NAMESPACE_REF)
    ]
    if len(parts) == 1 and parts[0].type.get_canonical().spelling.endswith("dim3"):
        return _sides(parts[0], depth + 1)
    sides = [_number(part) or 0 for part in parts]
    while len(sides) > 1 and sides[-1] == 1:
        sides.pop()
    return tuple(sides) if all(sides) and len(sides) <= 3 else ()
