"""Helpers for libclang's cursors (nodes of the syntax tree): their position in a file, and the errors there.

This module is used in the parsing process only.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from clang.cindex import Cursor, CursorKind, Diagnostic, File, SourceRange, TranslationUnit, conf

from cudabench.source.words import WORD

MOST_FAULTS = 500
METHODS = (CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.CONVERSION_FUNCTION)
FUNCTIONS = (CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.DESTRUCTOR, *METHODS)
TEMPLATES = (CursorKind.CLASS_TEMPLATE, CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION)
RECORDS = (CursorKind.STRUCT_DECL, CursorKind.CLASS_DECL, CursorKind.UNION_DECL, *TEMPLATES)


@dataclass(frozen=True)
class Fault:
    """An error that the parser reports; `offset`: the position in the file, in bytes."""

    file: str
    offset: int
    message: str


@dataclass
class Text:
    """A file's text, with conversions of positions: libclang counts bytes, and Python counts characters."""

    path: str
    text: str
    faults: list[int] = field(default_factory=list)  # sorted positions of the errors, in bytes
    _bytes: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        self._bytes = None if self.text.isascii() else self.text.encode()

    def at(self, offset: int) -> int:
        """Convert an offset in bytes to a position in the text, in characters."""
        return offset if self._bytes is None else len(self._bytes[:offset].decode(errors="ignore"))

    def byte_offset(self, at: int) -> int:
        """Convert a position in the text, in characters, to an offset in bytes."""
        return at if self._bytes is None else len(self.text[:at].encode())

    def slice(self, start: int, end: int) -> str:
        """Return the text between two offsets in bytes."""
        return self.text[start:end] if self._bytes is None else self._bytes[start:end].decode(errors="replace")

    def faults_in(self, start: int, end: int) -> list[int]:
        """Return the positions of the errors between two offsets in bytes."""
        return self.faults[bisect_left(self.faults, start) : bisect_left(self.faults, end)]


@dataclass(frozen=True)
class Span:
    """The part of a file that a cursor covers; `start`, `end`: offsets in bytes, `end` exclusive."""

    file: str
    start: int
    end: int


def span(cursor: Cursor) -> Span:
    """Return the part of a file that a cursor covers; for code from a macro, the place where the macro is used."""
    start, end = cursor.extent.start, cursor.extent.end
    return Span(start.file.name if start.file else "", start.offset, end.offset)


def file_of(cursor: Cursor) -> str:
    """Return the name of the file that contains a cursor."""
    file = cursor.location.file
    return file.name if file else ""


def has(cursor: Cursor, kind: CursorKind) -> bool:
    """Return whether a cursor has a child of this kind, such as an attribute."""
    return any(child.kind == kind for child in cursor.get_children())


_ON_DEVICE = frozenset(["__global__", "__device__", "__constant__", "__managed__", "constexpr", "consteval"])
_STATIC = re.compile(r"\bstatic\b(?!\s+(?:const|constexpr|__shared__)\b)")


def is_on_device(cursor: Cursor, head: str) -> bool:
    """Return whether a declaration is for the device; `head`: the text of the declaration up to the body."""
    attributes = (CursorKind.CUDADEVICE_ATTR, CursorKind.CUDAGLOBAL_ATTR)
    return any(child.kind in attributes for child in cursor.get_children()) or not _ON_DEVICE.isdisjoint(
        WORD.findall(head)
    )


def is_private(cursor: Cursor, plain: str) -> bool:
    """Return whether a declaration is, or contains, a device variable that only this file can write.

    `plain`: the declaration's text without comments. Such variables are static, or in an anonymous namespace.
    """
    if cursor.kind == CursorKind.VAR_DECL:
        unseen = cursor.linkage.name in ("INTERNAL", "UNIQUE_EXTERNAL")
        return unseen and not cursor.type.is_const_qualified() and is_on_device(cursor, plain)
    head, _, body = plain.partition("{")
    return _STATIC.search(body) is not None and is_on_device(cursor, head)


def faults_of(unit: TranslationUnit) -> Iterator[Fault]:
    """Yield the errors among the parser's first `MOST_FAULTS` messages."""
    for diagnostic in list(unit.diagnostics)[:MOST_FAULTS]:
        if diagnostic.severity >= Diagnostic.Error and diagnostic.location.file:
            yield Fault(diagnostic.location.file.name, diagnostic.location.offset, diagnostic.spelling)


def local_names(cursor: Cursor) -> set[str]:
    """Return the names that are declared inside a function: parameters, variables, types."""
    names: set[str] = set()

    def visit(child: Cursor, parent: Cursor, data: object) -> int:
        kind = child._kind_id
        if kind in _LOCAL:
            names.add(child.spelling)
        return _OVER if _FIRST_EXPRESSION <= kind < _FIRST_STATEMENT else _INTO

    conf.lib.clang_visitChildren(cursor, _VISITOR(visit), None)
    return names


# defined here, because clang.cindex names its visitor type differently in each version
_VISITOR = ctypes.CFUNCTYPE(ctypes.c_int, Cursor, Cursor, ctypes.py_object)
_LOCAL = frozenset(
    kind.value
    for kind in (CursorKind.PARM_DECL, CursorKind.VAR_DECL, CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL)
)
_FIRST_EXPRESSION, _FIRST_STATEMENT = 100, 200
_OVER, _INTO = 1, 2  # return values of a visitor: skip the children of the cursor, or visit them


_INTEGER = 1  # the value of CXEval_Int


def integer_value(cursor: Cursor) -> int | None:
    """Return the value of a cursor that is a constant integer expression; None for other cursors."""
    library = conf.lib
    library.clang_Cursor_Evaluate.argtypes, library.clang_Cursor_Evaluate.restype = [Cursor], ctypes.c_void_p
    library.clang_EvalResult_getKind.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsLongLong.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
    result = library.clang_Cursor_Evaluate(cursor)
    if not result or library.clang_EvalResult_getKind(result) != _INTEGER:
        return None
    return int(library.clang_EvalResult_getAsLongLong(result))


def template_of(cursor: Cursor) -> Cursor | None:
    """Return the template from which an instance was made; None if the cursor is not an instance."""
    template = conf.lib.clang_getSpecializedCursorTemplate(cursor)
    if template is None or conf.lib.clang_Cursor_isNull(template):
        return None
    # the bindings need this attribute; since version 20 only their own properties set it, not this function
    template._tu = cursor._tu
    return template


class _Ranges(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint), ("ranges", ctypes.POINTER(SourceRange)))


def skipped_ranges(unit: TranslationUnit, name: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end), in bytes, of each part of a file that an #if skips.

    The unit must have been parsed with the option for a detailed preprocessing record.
    """
    function = conf.lib.clang_getSkippedRanges
    function.argtypes, function.restype = [TranslationUnit, File], ctypes.POINTER(_Ranges)
    ranges = function(unit, unit.get_file(name))
    for at in range(ranges.contents.count if ranges else 0):
        skipped = ranges.contents.ranges[at]
        yield skipped.start.offset, skipped.end.offset
