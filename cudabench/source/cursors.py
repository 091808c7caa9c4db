"""Facts from libclang's cursors: their place in a file, and its errors. Loaded in the parsing process."""

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
    """An error of the parser: its position in bytes, and its text."""

    file: str
    offset: int
    said: str


@dataclass
class Text:
    """A file's text. The parser counts bytes, Python characters."""

    path: str
    text: str
    faults: list[int] = field(default_factory=list)  # positions of errors in bytes, in order
    _bytes: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        self._bytes = None if self.text.isascii() else self.text.encode()

    def at(self, offset: int) -> int:
        """Return the position of a byte in the text."""
        return offset if self._bytes is None else len(self._bytes[:offset].decode(errors="ignore"))

    def place(self, at: int) -> int:
        """Return the byte of a position in the text."""
        return at if self._bytes is None else len(self.text[:at].encode())

    def slice(self, start: int, end: int) -> str:
        """Return the text between two bytes."""
        return self.text[start:end] if self._bytes is None else self._bytes[start:end].decode(errors="replace")

    def faults_in(self, start: int, end: int) -> list[int]:
        """Return the errors between two bytes."""
        return self.faults[bisect_left(self.faults, start) : bisect_left(self.faults, end)]


@dataclass(frozen=True)
class Span:
    """The place of a cursor: the file's name, its first byte, the byte after its last."""

    file: str
    start: int
    end: int


def span(cursor: Cursor) -> Span:
    """Return the place of a cursor; the text of a macro has the place of the macro's use."""
    start, end = cursor.extent.start, cursor.extent.end
    return Span(start.file.name if start.file else "", start.offset, end.offset)


def file_of(cursor: Cursor) -> str:
    """Return the name of a cursor's file."""
    file = cursor.location.file
    return file.name if file else ""


def has(cursor: Cursor, kind: CursorKind) -> bool:
    """Return whether a cursor has a child of a kind, such as an attribute."""
    return any(child.kind == kind for child in cursor.get_children())


_ON_DEVICE = frozenset(["__global__", "__device__", "__constant__", "__managed__", "constexpr", "consteval"])
_STATIC = re.compile(r"\bstatic\b(?!\s+(?:const|constexpr|__shared__)\b)")


def is_on_device(cursor: Cursor, head: str) -> bool:
    """Return whether a declaration with these first words is for the device."""
    attributes = (CursorKind.CUDADEVICE_ATTR, CursorKind.CUDAGLOBAL_ATTR)
    return any(child.kind in attributes for child in cursor.get_children()) or not _ON_DEVICE.isdisjoint(
        WORD.findall(head)
    )


def is_private(cursor: Cursor, plain: str) -> bool:
    """Return whether a declaration is or contains a device variable that only this file can write."""
    if cursor.kind == CursorKind.VAR_DECL:
        unseen = cursor.linkage.name in ("INTERNAL", "UNIQUE_EXTERNAL")
        return unseen and not cursor.type.is_const_qualified() and is_on_device(cursor, plain)
    head, _, body = plain.partition("{")
    return _STATIC.search(body) is not None and is_on_device(cursor, head)


def faults_of(unit: TranslationUnit) -> Iterator[Fault]:
    """Yield at most `MOST_FAULTS` errors."""
    for diagnostic in list(unit.diagnostics)[:MOST_FAULTS]:
        if diagnostic.severity >= Diagnostic.Error and diagnostic.location.file:
            yield Fault(diagnostic.location.file.name, diagnostic.location.offset, diagnostic.spelling)


def local_names(cursor: Cursor) -> set[str]:
    """Return the names that a function declares: parameters, variables, types."""
    names: set[str] = set()

    def visit(child: Cursor, parent: Cursor, data: object) -> int:
        kind = child._kind_id
        if kind in _LOCAL:
            names.add(child.spelling)
        return _OVER if _FIRST_EXPRESSION <= kind < _FIRST_STATEMENT else _INTO

    conf.lib.clang_visitChildren(cursor, _VISITOR(visit), None)
    return names


_VISITOR = ctypes.CFUNCTYPE(ctypes.c_int, Cursor, Cursor, ctypes.py_object)  # clang.cindex's own, whose name differs
_LOCAL = frozenset(
    kind.value
    for kind in (CursorKind.PARM_DECL, CursorKind.VAR_DECL, CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL)
)
_FIRST_EXPRESSION, _FIRST_STATEMENT = 100, 200
_OVER, _INTO = 1, 2  # answers of a visitor: skip a cursor's children, or visit them


_INTEGER = 1  # the kind of value


def whole(cursor: Cursor) -> int | None:
    """Return the value of an integer constant, or None."""
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
    """Return the template of an instance, or None."""
    template = conf.lib.clang_getSpecializedCursorTemplate(cursor)
    if template is None or conf.lib.clang_Cursor_isNull(template):
        return None
    template._tu = cursor._tu  # since version 20 only the bindings' own properties set it
    return template


class _Ranges(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint), ("ranges", ctypes.POINTER(SourceRange)))


def skipped_ranges(unit: TranslationUnit, name: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file, in bytes, that its conditions skip. The unit must be parsed in detail."""
    function = conf.lib.clang_getSkippedRanges
    function.argtypes, function.restype = [TranslationUnit, File], ctypes.POINTER(_Ranges)
    ranges = function(unit, unit.get_file(name))
    for at in range(ranges.contents.count if ranges else 0):
        skipped = ranges.contents.ranges[at]
        yield skipped.start.offset, skipped.end.offset
