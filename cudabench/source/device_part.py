"""The part of a source that the asked kernels come to: all else is blank, and every line stays where it is.

Kept are directives, `using namespace`, and each declaration of a name that the kernels reach, through functions,
classes, template arguments and macros. Names alone decide: every overload, specialisation and inner scope stays.
So does what is used without a name: operators and conversions (a class stays whole), assertions. Of a function for the
host only the head stays: who calls it is refused. Where a reached macro puts names together, all names are reached.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudabench import confined
from cudabench.errors import CudabenchError
from cudabench.source import clang_parse
from cudabench.source.records import Task
from cudabench.source.words import without_remarks
from cudabench.toolchain import limits, stand_ins

if TYPE_CHECKING:
    from clang.cindex import Cursor

    from cudabench.source.cursors import Fault

_WORD = re.compile(r"[^\W\d]\w*")
_USED = re.compile(r"(?<![\w.])(?<!->)[^\W\d]\w*")  # a name behind a '.' is looked up in a class, which is whole
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)(?:\\\n|[^\n])*", re.M)
_PRAGMA = re.compile(r"[ \t]*#[ \t]*pragma\b")
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)")
_ON_DEVICE = frozenset(["__global__", "__device__", "__constant__", "__managed__", "constexpr", "consteval"])
# What C++ looks up without its name in the text: in loops over a range and in structured bindings.
_UNNAMED = (
    (re.compile(r"\bfor\s*\([^;{}]*?[^:;]:[^:]"), {"begin", "end"}),
    (re.compile(r"\bauto\b[\s&]*\["), {"get", "tuple_size", "tuple_element"}),
)
_RECORDS = ("STRUCT_DECL", "CLASS_DECL", "UNION_DECL", "CLASS_TEMPLATE", "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION")
_FUNCTIONS = (
    "FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION",
)  # fmt: skip
_SCOPES = ("NAMESPACE", "LINKAGE_SPEC")
_ALWAYS = ("USING_DIRECTIVE", "NAMESPACE_ALIAS", "STATIC_ASSERT")
# Of a statement, as far as the names that it declares: `using T =`, `typedef void (*F)`, `int f(`.
_HEAD = re.compile(r"(?:template\s*<[^;{()]*>)?[^;{(=]*(?:\(\s*\*[^()]*\)|.)?", re.S)
_DETAILED = 0x01  # so that libclang knows which ranges conditions skip


@dataclass(frozen=True)
class Host:
    """A function for the host of which only the head is left: its name and place."""

    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Part:
    """The texts by their path, the source's own under '', functions without bodies, headers that are not there.

    spaces: namespaces that are used and not declared.
    """

    texts: Mapping[str, str]
    hosts: tuple[Host, ...]
    missing: tuple[str, ...]
    spaces: tuple[str, ...]


def device_part(task: Task, kernels: Collection[str], words: Collection[str], front: str) -> Part | None:
    """Return the part of a file, and of the user's headers, that kernels of these names come to; of none, all do.

    words: what the kernels' template arguments name. front: declarations to read the file behind. None where no such
    kernel is found, or the parser gives up.
    """
    work = functools.partial(_made, task, frozenset(kernels), frozenset(words), front)
    try:
        seconds = min(clang_parse.MOST_SECONDS, limits.compile_seconds())
        return confined.call(work, seconds=seconds, memory=clang_parse.MOST_BYTES)
    except (confined.TooLong, confined.TooMuch, CudabenchError, RecursionError):
        return None


def _made(task: Task, kernels: frozenset[str], words: frozenset[str], front: str) -> Part | None:
    """Runs in the process that may be ended."""
    from cudabench.source.cursors import faults_of, skipped_ranges
    from cudabench.source.missing import ROUNDS, Missing

    if confined.FORKS:  # the library tells of its crash on standard error
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    lacks = Missing()
    faults: list[Fault] = []
    for _ in range(ROUNDS):
        unit, texts = clang_parse.unit_of(task, front + lacks.text(), options=_DETAILED)
        faults = faults or list(faults_of(unit, clang_parse.MOST_FAULTS))
        if not lacks.learn(clang_parse.found_in(task, unit, texts), task.name, task.text):
            break
    files = {name: _File(name, text) for name, text in texts.items() if not name.startswith(str(stand_ins.FOLDER))}
    for fault in faults:
        if fault.file in files:
            files[fault.file].faults.append(fault.offset)
    for file in files.values():
        file.skipped = list(skipped_ranges(unit, file.name))
        _Reader(file).scope(unit.cursor)
        file.add_unread()
    macros = _macros(files.values(), task.defines)
    if not _keep(files.values(), macros, kernels, words):
        return None
    hosts = tuple(host for file in files.values() for host in file.hosts(file.name if file.name != task.name else ""))
    parts = {("" if name == task.name else name): file.part() for name, file in files.items()}
    missing = (re.match(r"'([^']+)' file not found", fault.said) for fault in faults)
    spaces = dict.fromkeys(name for file in files.values() for name in file.spaces)
    return Part(parts, hosts, tuple(dict.fromkeys(one[1] for one in missing if one)), tuple(spaces))


@dataclass
class _Piece:
    """A declaration: its bytes, the names by which code comes to it; `gone` are bodies of functions for the host."""

    start: int
    end: int
    names: set[str]
    cursors: list[Cursor]
    always: bool = False
    kernel: bool = False
    host: bool = False  # a function
    faulty: bool = False  # in what it takes
    gone: list[tuple[int, int]] = field(default_factory=list)
    kept: bool = False


class _File:
    """A text of the user's, in bytes, with its declarations."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text.encode(errors="surrogateescape").decode("latin-1")  # places are bytes
        self.plain = without_remarks(self.text)
        self.pieces: list[_Piece] = []
        self.frames: list[tuple[int, int]] = []  # heads and braces of scopes
        self.skipped: list[tuple[int, int]] = []
        self.faults: list[int] = []
        self.gone: list[tuple[int, int]] = []  # what no kernel can come to
        self.spaces: list[str] = []

    def add_unread(self) -> None:
        """Add the statements that the parser made nothing of: they may declare what stands at their end."""
        directives = [match.span() for match in _DIRECTIVE.finditer(self.plain)]
        left = bytearray(self.plain, "latin-1")
        read = [(one.start, one.end) for one in self.pieces]
        for start, end in (*self.frames, *self.gone, *directives, *self.skipped, *read):
            left[start:end] = b" " * (end - start)
        for match in re.finditer(r"\w[^;}]*[;}]?", left.decode("latin-1")):
            if space := re.match(r"using\s+namespace\s+([\w:]+)\s*;", match[0]):
                self.spaces.append(space[1])
                self.pieces.append(_Piece(*match.span(), {""}, [], always=True))
                continue
            head = _HEAD.match(match[0])
            names = set(re.findall(r"([^\W\d]\w*)\s*[=;({\[,<:)]", head[0])) if head else set()
            self.pieces.append(_Piece(*match.span(), names or {""}, []))

    def words(self, piece: _Piece) -> Iterator[re.Match[str]]:
        """Yield the words of what is kept of a declaration."""
        for match in _USED.finditer(self.plain, piece.start, piece.end):
            if not any(start <= match.start() < end for start, end in piece.gone):
                yield match

    def part(self) -> str:
        """Return the text with blanks in place of what is not kept."""
        blank = [(one.start, one.end) for one in self.pieces if not one.kept]
        gone = [span for one in self.pieces if one.kept for span in one.gone]
        directives = [
            match.span()
            for match in _DIRECTIVE.finditer(self.plain)
            if not (_PRAGMA.match(match[0]) and any(start <= match.start() < end for start, end in (*blank, *gone)))
        ]
        skipped = [span for span in self.skipped if not any(one.start <= span[0] < one.end for one in self.pieces)]
        shown = bytearray(len(self.text))
        for start, end in (*self.frames, *skipped, *((one.start, one.end) for one in self.pieces if one.kept)):
            shown[start:end] = b"\1" * (end - start)
        for start, end in gone:
            shown[start:end] = bytes(end - start)
        for start, end in directives:
            shown[start:end] = b"\1" * (end - start)
        text = [one if shown[at] or one == "\n" else " " for at, one in enumerate(self.text)]
        for start, _ in gone:
            text[start] = ";"
        return "".join(text).encode("latin-1").decode(errors="surrogateescape")

    def hosts(self, name: str) -> Iterator[Host]:
        """Yield the functions whose bodies are gone."""
        for piece in self.pieces:
            for start, _ in piece.gone if piece.kept else ():
                head = self.plain[max(piece.start, self.plain.rfind("}", 0, start)) : start]
                called = re.search(r"(operator\s*\W*|~?[^\W\d]\w*)\s*\(", head)
                yield Host(called[1].strip() if called else "", name, self.text.count("\n", 0, start) + 1)


class _Reader:
    """What a file declares at namespace scope."""

    def __init__(self, file: _File) -> None:
        self.file = file

    def scope(self, parent: Cursor) -> None:
        """Add the declarations of a scope."""
        from cudabench.source.cursors import span

        for cursor in parent.get_children():
            place = span(cursor)
            if place.file != self.file.name or place.end <= place.start:
                continue
            kind = cursor.kind.name
            written = self.file.plain[place.start : place.end]
            if kind in _SCOPES or (kind == "UNEXPOSED_DECL" and re.match(r'extern\s*"', written)):
                if kind == "NAMESPACE" or re.match(r'extern\s*"[^"]*"\s*\{|\w+\s*(?:\(|$)', written):
                    self._frame(place.start, place.end)
                self.scope(cursor)
            elif cursor.kind.is_declaration() and written.strip("; \n"):
                self._piece(cursor, place.start, place.end, written)

    def _frame(self, start: int, end: int) -> None:
        """Keep the head and the closing brace of a scope, which macros may write."""
        plain = self.file.plain
        macro = re.compile(r"(?!namespace\b|inline\b|extern\b)\w+[ \t]*(?:\([^()]*\))?").match(plain, start, end)
        if macro and macro.end() == end:
            return  # it writes all of the scope: a declaration
        opened = macro.end() if macro else plain.find("{", start) + 1
        closing = re.compile(r"\w+(?:\([^()]*\))?\Z").search(plain, opened, end)
        self.file.frames += [(start, opened), (closing.start() if closing else end - 1, end)]

    def _piece(self, cursor: Cursor, start: int, end: int, written: str) -> None:
        file, kind = self.file, cursor.kind.name
        if re.match(r"(?:extern\s+)?template\b(?!\s*<)", written):
            file.gone.append((start, end))
            return  # an instantiation; what is asked for is made for its name
        piece = _Piece(start, end, set(_names(cursor, written)), [cursor])
        piece.always = kind in _ALWAYS or not piece.names or any(one.startswith("operator") for one in piece.names)
        if kind in _FUNCTIONS:
            body = _body(cursor, file)
            head = file.plain[start : body or end]
            piece.kernel = "__global__" in head or any(one.kind.name == "CUDAGLOBAL_ATTR" for one in _children(cursor))
            piece.host = not _on_device(cursor, head)
            # In its parameters: in front of them an unknown word may say that it is for the device.
            inside, front = (
                any(first <= at < last for at in file.faults)
                for first, last in ((cursor.location.offset, body or end), (start, cursor.location.offset))
            )
            piece.faulty = inside and not front
            member = cursor.semantic_parent is not None and cursor.semantic_parent.kind.name in _RECORDS
            if piece.host and member:
                file.gone.append((start, end))
                return  # its class has the head
            if piece.host and body:
                piece.gone.append((body, end))
        elif kind in _RECORDS:
            piece.gone += _bodies_of_hosts(cursor, file)
        before = file.pieces[-1] if file.pieces else None
        if before and start < before.end:  # `struct V {...} v;`, `int a, b;`, what a macro writes
            before.names |= piece.names
            before.end = max(before.end, end)
            before.cursors += piece.cursors
            before.always |= piece.always
            before.kernel |= piece.kernel
            before.host &= piece.host
            before.gone += piece.gone
        else:
            file.pieces.append(piece)
            before = piece
        self._widen(before)

    def _widen(self, piece: _Piece) -> None:
        """Take in the semicolon, and the words in front that the parser makes nothing of, such as attributes."""
        plain = self.file.plain
        last = piece.cursors[-1]
        whole = last.kind.name in _FUNCTIONS and last.is_definition()
        piece.end = _end_of(plain, piece.start, piece.end, whole=whole)
        start = max(plain.rfind(mark, 0, piece.start) + 1 for mark in ";{}")
        start = max([start, *(opened for _, opened in self.file.frames if opened <= piece.start)])
        piece.start = max([start, *(match.end() for match in _DIRECTIVE.finditer(plain, start, piece.start))])


def _end_of(plain: str, start: int, end: int, *, whole: bool) -> int:
    """Return where a declaration ends, of which the parser may have read the beginning alone: behind its semicolon."""
    depth = plain.count("{", start, end) - plain.count("}", start, end)
    closed = depth == 0 and (whole or plain[end - 1] in "};")  # at most the semicolon is left
    for match in re.compile(r"[{};]").finditer(plain, end):
        if closed and plain[end : match.start()].strip():
            return end
        if match[0] == ";" and depth == 0:
            return match.end()
        if closed or (match[0] == "}" and depth == 0):
            return end
        depth += 1 if match[0] == "{" else -1 if match[0] == "}" else 0
        if match[0] == "}" and depth == 0 and re.compile(r"\s*[^\s;,)=]").match(plain, match.end()):
            return match.end()
    return end


def _children(cursor: Cursor) -> list[Cursor]:
    return list(cursor.get_children())


def _names(cursor: Cursor, written: str) -> Iterator[str]:
    """Yield the names by which code comes to a declaration; a member's is that of its outermost class."""
    owner, outer = cursor.semantic_parent, None
    while owner is not None and owner.kind.name in _RECORDS:
        outer, owner = owner, owner.semantic_parent
    if outer is not None:
        yield outer.spelling
        return
    kind = cursor.kind.name
    if kind == "USING_DECLARATION":
        yield _WORD.findall(written)[-1]
    elif kind == "ENUM_DECL":
        yield from (one.spelling for one in _children(cursor))
        yield cursor.spelling
    elif guide := re.match(r"<deduction guide for (\w+)>", cursor.spelling):
        yield guide[1]
    elif kind not in _ALWAYS and (name := re.match(r"operator\b.*|\w+", cursor.spelling)):
        yield name[0]


def _body(cursor: Cursor, file: _File) -> int | None:
    """Return where a function's body begins, with what a constructor initialises; None where a macro writes it."""
    from cudabench.source.cursors import span

    bodies = [span(one).start for one in _children(cursor) if one.kind.name in ("COMPOUND_STMT", "CXX_TRY_STMT")]
    if not bodies or file.plain[bodies[-1]] not in "{t":
        return None
    depth = 0
    for match in re.compile(r"::|[():]").finditer(file.plain, cursor.location.offset, bodies[-1]):
        depth += (match[0] == "(") - (match[0] == ")")
        if match[0] == ":" and depth == 0:
            return match.start()
    return bodies[-1]


def _on_device(cursor: Cursor, head: str) -> bool:
    attributes = {one.kind.name for one in _children(cursor)}
    return bool(attributes & {"CUDADEVICE_ATTR", "CUDAGLOBAL_ATTR"} or _ON_DEVICE & set(_WORD.findall(head)))


def _bodies_of_hosts(cursor: Cursor, file: _File) -> Iterator[tuple[int, int]]:
    """Yield the bodies of a class's functions that are for the host."""
    from cudabench.source.cursors import span

    for one in _children(cursor):
        member = next(iter(_children(one)), one) if one.kind.name == "FRIEND_DECL" else one
        if member.kind.name in _RECORDS:
            yield from _bodies_of_hosts(member, file)
        elif member.kind.name in _FUNCTIONS and span(member).file == file.name:
            place, body = span(member), _body(member, file)
            if body and not _on_device(member, file.plain[place.start : body]):
                yield body, place.end


def _macros(files: Iterable[_File], defines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the macros with all that they stand for."""
    found: dict[str, str] = {}
    for file in files:
        for match in _DIRECTIVE.finditer(file.plain):
            if define := _DEFINE.match(match[0]):
                found[define[1]] = found.get(define[1], "") + define[2]
    for name, value in defines:
        found[name.partition("(")[0]] = found.get(name, "") + " " + value
    return found


def _keep(files: Collection[_File], macros: Mapping[str, str], kernels: frozenset[str], words: frozenset[str]) -> bool:
    """Mark what the kernels reach; False where that is not known."""
    pieces = [(file, piece) for file in files for piece in file.pieces]
    declared = {name for _, piece in pieces for name in piece.names}
    reached = set(words)
    every = not kernels
    while True:
        found = False
        for file, piece in pieces:
            asked = piece.kernel and (every or bool(piece.names & kernels))
            if piece.kept or not (asked or piece.always or piece.names & reached) or piece.names == {"main"}:
                continue
            if piece.host and piece.faulty:
                continue  # no kernel can call it
            piece.kept = found = True
            reached |= _reached(file, piece, declared, macros)
        if found:
            continue
        if any("##" in macros[name] for name in reached & macros.keys()) and not declared <= reached:
            reached |= declared
        elif not every and any(piece.kept and _is_of_file(file, piece) for file, piece in pieces):
            every = True  # who else writes such a variable decides what the compiler makes of it
        else:
            return any(piece.kept and piece.kernel for _, piece in pieces)


def _reached(file: _File, piece: _Piece, declared: Collection[str], macros: Mapping[str, str]) -> set[str]:
    """Return the names that a declaration uses, but where variables of its own have them."""
    words = list(file.words(piece))
    own: set[int] = set()
    if any(match[0] in declared and match[0] not in piece.names for match in words):
        own = {at for cursor in piece.cursors if cursor.kind.name in _FUNCTIONS for at in _locals(cursor, file)}
    found = {match[0] for match in words if match.start() not in own}
    texts = [file.plain[piece.start : piece.end]]
    waiting = found & macros.keys()
    while waiting:
        texts += [macros.get(name, "") for name in waiting]
        more = {word for name in waiting for word in _USED.findall(macros[name])} - found
        found |= more
        waiting = more & macros.keys()
    for pattern, names in _UNNAMED:
        if any(map(pattern.search, texts)):
            found |= names
    return found


def _locals(cursor: Cursor, file: _File) -> Iterator[int]:
    """Yield where a function names its own parameters and variables."""
    from cudabench.source.cursors import span

    whole = span(cursor)
    for one in cursor.walk_preorder():
        kind = one.kind.name
        if kind == "DECL_REF_EXPR":
            meant = one.referenced
            if meant is None or meant.kind.name not in ("PARM_DECL", "VAR_DECL"):
                continue
            if not (meant.location.file and meant.location.file.name == whole.file):
                continue
            if not whole.start <= meant.location.offset < whole.end:
                continue
        elif kind not in ("PARM_DECL", "VAR_DECL"):
            continue
        at = one.location.offset
        if one.spelling and file.plain.startswith(one.spelling, at):
            yield at


def _is_of_file(file: _File, piece: _Piece) -> bool:
    """Tell whether a declaration is, or has, a variable of the device that only this file knows and may write."""
    for cursor in piece.cursors:
        if cursor.kind.name == "VAR_DECL":
            hidden = cursor.linkage.name in ("INTERNAL", "UNIQUE_EXTERNAL") and not cursor.type.is_const_qualified()
            if hidden and _ON_DEVICE & set(_WORD.findall(file.plain[piece.start : piece.end])):
                return True
        elif cursor.kind.name in _FUNCTIONS and not piece.kernel:
            body = file.plain[piece.start : piece.end].partition("{")[2]
            if re.search(r"\bstatic\b(?!\s+(?:const|constexpr|__shared__)\b)", body):
                return True
    return False
