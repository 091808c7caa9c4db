"""Extracts the part of a source that the requested kernels use; blanks replace all other text, so lines keep their
numbers.

These parts are kept: preprocessor directives, `using namespace`, and each declaration whose name the kernels use,
directly or through functions, classes, template arguments and macros. Only names are compared: all overloads,
specialisations and inner scopes of a used name are kept. Declarations that are used without a name are kept too:
operators and conversions (a class is kept whole), and assertions. Host functions are kept without their bodies, so that
the compiler refuses calls to them. If a used macro joins names with ##, all names are treated as used.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from clang.cindex import Cursor, CursorKind

from cudabench.compile import stand_ins
from cudabench.errors import CudabenchError
from cudabench.source import clang_parse
from cudabench.source.cursors import FUNCTIONS, RECORDS, file_of, has, is_on_device, is_private, skipped_ranges, span
from cudabench.source.records import Task
from cudabench.source.words import DIRECTIVE, NAME_USE, WORD, blank, macros_of, without_comments
from cudabench.system import limited_process

# Names that C++ code uses although they are not in its text: in range-based for loops, and in structured bindings.
_IMPLICIT_NAMES = (
    (re.compile(r"\bfor\s*\([^;{}]*?[^:;]:[^:]"), {"begin", "end"}),
    (re.compile(r"\bauto\b[\s&]*\["), {"get", "tuple_size", "tuple_element"}),
)
_BODIES = (CursorKind.COMPOUND_STMT, CursorKind.CXX_TRY_STMT)
_KEPT_KINDS = (CursorKind.USING_DIRECTIVE, CursorKind.NAMESPACE_ALIAS, CursorKind.STATIC_ASSERT)
_VARIABLES = (CursorKind.PARM_DECL, CursorKind.VAR_DECL)
_INSTANCE = re.compile(r"(?:extern\s+)?template\b(?!\s*<)")  # matches an explicit instantiation of a template
# Matches the beginning of a statement, up to the names that the statement declares: `using T =`, `typedef void (*F)`,
# `int f(`.
_HEAD = re.compile(r"(?:template\s*<[^;{()]*>)?[^;{(=]*(?:\(\s*\*[^()]*\)|.)?", re.S)
# CXTranslationUnit_DetailedPreprocessingRecord; without it, the parser does not report which text an #if skips
_DETAILED = 0x01
_Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Host:
    """A host function whose body was removed; `file`: '' for the source itself; `line`: where the body began, from
    1."""

    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Part:
    """The part of a source and its headers that the kernels use.

    texts: the texts by path; the source's own has the key ''. hosts: the host functions whose bodies were removed.
    missing: the names of missing headers. spaces: the namespaces that `using namespace` names but nothing declares.
    """

    texts: Mapping[str, str]
    hosts: tuple[Host, ...]
    missing: tuple[str, ...]
    spaces: tuple[str, ...]


def device_part(task: Task, kernels: Collection[str], words: Collection[str], front: str) -> Part | None:
    """Return the part of a file, and of the user's headers, that these kernels use; without names, all kernels.

    words: names in the kernels' template arguments, which are used too. front: declarations to put before the file.
    Return None if the kernels are not found, or if the parser fails.
    """
    try:
        return clang_parse.run_bounded(
            functools.partial(_device_part, task, frozenset(kernels), frozenset(words), front)
        )
    except (limited_process.TimeLimitReached, limited_process.MemoryLimitReached, CudabenchError, RecursionError):
        return None


def _device_part(task: Task, kernels: frozenset[str], words: frozenset[str], front: str) -> Part | None:
    """Do the work of `device_part`, in the process with limits."""
    declarations, faults, _ = clang_parse.parse_with_stand_ins(task, front, _DETAILED)
    files: list[_File] = []
    for name, text in declarations.texts.items():
        if not name.startswith(str(stand_ins.FOLDER)):
            at = [fault.offset for fault in faults if fault.file == name]
            files.append(_File(name, text, at, list(skipped_ranges(declarations.unit, name)), declarations.unit.cursor))
    if not _mark_used(files, _macros(files, task.defines), kernels, words):
        return None
    paths = {file.name: "" if file.name == task.name else file.name for file in files}
    hosts = (
        Host(called, paths[file.name], file.text.count("\n", 0, at) + 1)
        for file in files
        for piece in file.pieces
        for called, at in (piece.hosts if piece.kept else ())
    )
    missing = (re.match(r"'([^']+)' file not found", fault.message) for fault in faults)
    return Part(
        {paths[file.name]: file.part() for file in files},
        tuple(hosts),
        tuple(dict.fromkeys(match[1] for match in missing if match)),
        tuple(dict.fromkeys(name for file in files for name in file.spaces)),
    )


@dataclass
class _Declaration:
    """A declaration: its (start, end) in bytes, and the names by which other code uses it.

    required: whether the declaration is kept even if none of its names is used. kept: whether the part contains the
    declaration. removed: the bodies of host functions in it. hosts: (name, offset of the body) of these functions.
    uncallable: whether it is a host function with parameters of unknown types, which no kernel can call.
    """

    start: int
    end: int
    names: set[str]
    cursors: list[Cursor] = field(default_factory=list)
    required: bool = False
    kernel: bool = False
    uncallable: bool = False
    removed: _Spans = field(default_factory=list)
    hosts: list[tuple[str, int]] = field(default_factory=list)
    kept: bool = False

    def add(self, other: _Declaration) -> None:
        """Merge a declaration that begins within this one: `struct V {...} v;`, `int a, b;`, or code from a macro."""
        self.end = max(self.end, other.end)
        self.names |= other.names
        self.cursors += other.cursors
        self.required |= other.required
        self.kernel |= other.kernel
        self.uncallable &= other.uncallable
        self.removed += other.removed
        self.hosts += other.hosts


class _File:
    """The source or one of the user's headers, with its declarations at namespace scope; positions are in bytes.

    pieces: the declarations. frames: the beginnings and closing braces of scopes such as namespaces, which are kept.
    removed: declarations that are always removed. spaces: names after `using namespace` that the parser does not know.
    """

    def __init__(self, name: str, text: str, faults: list[int], skipped: _Spans, top: Cursor) -> None:
        self.name, self.faults, self.skipped = name, faults, skipped
        # each byte becomes one character, because the parser's positions count bytes
        self.text = text.encode(errors="surrogateescape").decode("latin-1")
        self.plain = without_comments(self.text)
        self.directives = list(DIRECTIVE.finditer(self.plain))
        self.pieces: list[_Declaration] = []
        self.frames: _Spans = []
        self.removed: _Spans = []
        self.spaces: list[str] = []
        self._scope(top)
        self._add_unread()

    # Reading ---------------------------------------------------------------------------------------------------------

    def _scope(self, parent: Cursor) -> None:
        """Add the declarations in a scope, and in its inner namespaces."""
        for cursor in parent.get_children():
            place, kind = span(cursor), cursor.kind
            if place.file != self.name or place.end <= place.start:
                continue
            written = self.plain[place.start : place.end]
            space = kind == CursorKind.NAMESPACE
            unexposed = kind == CursorKind.UNEXPOSED_DECL and re.match(r'extern\s*"', written)
            if space or kind == CursorKind.LINKAGE_SPEC or unexposed:
                if space or re.match(r'extern\s*"[^"]*"\s*\{|\w+\s*(?:\(|$)', written):
                    self._add_frame(place.start, place.end)
                self._scope(cursor)
            elif _INSTANCE.match(written):
                # an explicit instantiation is dropped, because the compiler makes the requested instances anyway
                self.removed.append((place.start, place.end))
            elif kind.is_declaration() and written.strip("; \n"):
                self._declaration(cursor, _Declaration(place.start, place.end, set(_names(cursor, written)), [cursor]))

    def _add_frame(self, start: int, end: int) -> None:
        """Keep the beginning and the closing brace of a scope; both may come from macros."""
        macro = re.compile(r"(?!namespace\b|inline\b|extern\b)\w+[ \t]*(?:\([^()]*\))?").match(self.plain, start, end)
        if macro and macro.end() == end:
            return  # one macro expands to the whole scope, so the scope is treated as a single declaration
        opened = macro.end() if macro else self.plain.find("{", start) + 1
        closing = re.compile(r"\w+(?:\([^()]*\))?\Z").search(self.plain, opened, end)
        self.frames += [(start, opened), (closing.start() if closing else end - 1, end)]

    def _declaration(self, cursor: Cursor, piece: _Declaration) -> None:
        piece.required = (
            cursor.kind in _KEPT_KINDS or not piece.names or any(name.startswith("operator") for name in piece.names)
        )
        if cursor.kind in FUNCTIONS:
            body = self._body(cursor)
            head = self.plain[piece.start : body or piece.end]
            piece.kernel = "__global__" in head or has(cursor, CursorKind.CUDAGLOBAL_ATTR)
            if not is_on_device(cursor, head):
                if cursor.semantic_parent is not None and cursor.semantic_parent.kind in RECORDS:
                    self.removed.append((piece.start, piece.end))
                    return  # a member function that is defined outside its class; the class has the declaration
                # A function whose only errors are in its parameters cannot be called. An error before its name does not
                # count, because the unknown word there may be a macro for `__device__`.
                faults = [at - cursor.location.offset for at in self.faults if piece.start <= at < (body or piece.end)]
                piece.uncallable = bool(faults) and faults == [at for at in faults if at >= 0]
                self._drop_body(piece, cursor, body)
        elif cursor.kind in RECORDS:
            self._drop_bodies(piece, cursor)
        if self.pieces and piece.start < self.pieces[-1].end:
            self.pieces[-1].add(piece)
        else:
            self.pieces.append(piece)
        self._extend(self.pieces[-1])

    def _body(self, cursor: Cursor) -> int | None:
        """Return the start of a function's body or of a constructor's initialisers; None if a macro makes the body."""
        bodies = [span(child).start for child in cursor.get_children() if child.kind in _BODIES]
        if not bodies or self.plain[bodies[-1]] not in "{t":
            return None
        depth = 0
        for match in re.compile(r"::|[():]").finditer(self.plain, cursor.location.offset, bodies[-1]):
            depth += (match[0] == "(") - (match[0] == ")")
            if match[0] == ":" and depth == 0:
                return match.start()
        return bodies[-1]

    def _drop_body(self, piece: _Declaration, cursor: Cursor, body: int | None) -> None:
        """Mark the body of a host function as removed."""
        if body:
            name = re.match(r"operator\W*|~?\w+", cursor.spelling)
            piece.removed.append((body, span(cursor).end))
            piece.hosts.append((name[0].strip() if name else "", body))

    def _drop_bodies(self, piece: _Declaration, cursor: Cursor) -> None:
        """Mark the bodies of a class's host functions as removed."""
        for child in cursor.get_children():
            member = next(child.get_children(), child) if child.kind == CursorKind.FRIEND_DECL else child
            if member.kind in RECORDS:
                self._drop_bodies(piece, member)
            elif member.kind in FUNCTIONS and (place := span(member)).file == self.name:
                body = self._body(member)
                if not is_on_device(member, self.plain[place.start : body or place.end]):
                    self._drop_body(piece, member, body)

    def _extend(self, piece: _Declaration) -> None:
        """Extend a declaration by its semicolon, and by words before it that the parser ignores, such as attributes."""
        last = piece.cursors[-1]
        piece.end = self._end_of(piece, whole=last.kind in FUNCTIONS and last.is_definition())
        ends = [self.plain.rfind(mark, 0, piece.start) + 1 for mark in ";{}"]
        ends += [opened for _, opened in self.frames if opened <= piece.start]
        ends += [directive.end() for directive in self.directives if directive.end() <= piece.start]
        piece.start = max(ends)

    def _end_of(self, piece: _Declaration, *, whole: bool) -> int:
        """Return the real end of a declaration; the parser may have read only its beginning.

        `whole`: whether the declaration is a function with a body.
        """
        plain, start, end = self.plain, piece.start, piece.end
        depth = plain.count("{", start, end) - plain.count("}", start, end)
        # the end is already correct, except that a semicolon may follow
        if depth == 0 and (whole or plain[end - 1] in "};"):
            return re.compile(r"(?:\s*;)?").match(plain, end).end()  # type: ignore[union-attr]
        for match in re.compile(r"[{};]").finditer(plain, end):
            depth += (match[0] == "{") - (match[0] == "}")
            if depth < 0:
                break
            closed = match[0] == "}" and re.compile(r"\s*[^\s;,)=]").match(plain, match.end())
            if depth == 0 and (match[0] == ";" or closed):
                return match.end()
        return end

    def _add_unread(self) -> None:
        """Add the statements that the parser ignored, such as `unknown_t f(...)`; they may declare names."""
        unread = bytearray(self.plain, "latin-1")
        read = [(piece.start, piece.end) for piece in self.pieces]
        for start, end in (
            *self.frames,
            *self.removed,
            *(directive.span() for directive in self.directives),
            *self.skipped,
            *read,
        ):
            unread[start:end] = b" " * (end - start)
        for match in re.finditer(r"\w[^;}]*[;}]?", unread.decode("latin-1")):
            if _INSTANCE.match(match[0]):
                continue
            space = re.match(r"using\s+namespace\s+([\w:]+)\s*;", match[0])
            self.spaces += [space[1]] if space else []
            head = _HEAD.match(match[0])
            names = set(re.findall(r"([^\W\d]\w*)\s*[=;({\[,<:)]", head[0])) if head and not space else set()
            self.pieces.append(_Declaration(*match.span(), names or {""}, required=bool(space)))

    # The resulting text
    # --------------------------------------------------------------------------------------------------

    def part(self) -> str:
        """Return the file's text with blanks in place of all text that is not kept."""
        kept = [(piece.start, piece.end) for piece in self.pieces if piece.kept]
        dropped = [(piece.start, piece.end) for piece in self.pieces if not piece.kept]
        gone = [span for piece in self.pieces if piece.kept for span in piece.removed]
        skipped = [span for span in self.skipped if not _within(span[0], kept + dropped)]
        directives = [
            directive.span()
            for directive in self.directives
            if directive[1] != "pragma" or not _within(directive.start(), dropped + gone)
        ]
        text = list(blank(self.text))
        for start, end in (*self.frames, *skipped, *kept):
            text[start:end] = self.text[start:end]
        for start, end in gone:
            text[start:end] = ";" + blank(self.text[start + 1 : end])
        for start, end in directives:
            text[start:end] = self.text[start:end]
        return "".join(text).encode("latin-1").decode(errors="surrogateescape")

    # Names -----------------------------------------------------------------------------------------------------------

    def used_names(self, piece: _Declaration, declared: Collection[str], macros: Mapping[str, str]) -> set[str]:
        """Return the names that a declaration uses, also through macros, except the names of its local variables.

        `declared`: all names that the files declare; `macros`: the texts of macros by name.
        """
        matches = NAME_USE.finditer(self.plain, piece.start, piece.end)
        words = [match for match in matches if not _within(match.start(), piece.removed)]
        reaches = any(match[0] in declared and match[0] not in piece.names for match in words)
        functions = [cursor for cursor in piece.cursors if reaches and cursor.kind in FUNCTIONS]
        own = {at for cursor in functions for at in self._locals(cursor)}
        used = {match[0] for match in words if match.start() not in own}
        texts = [self.plain[piece.start : piece.end]]
        more = used
        while meanings := [macros[name] for name in more & macros.keys()]:
            texts += meanings
            more = {word for meaning in meanings for word in NAME_USE.findall(meaning)} - used
            used = used | more
        return used.union(*(names for pattern, names in _IMPLICIT_NAMES if any(map(pattern.search, texts))))

    def _locals(self, cursor: Cursor) -> Iterator[int]:
        """Yield the positions where a function uses its own parameters and local variables."""
        whole = span(cursor)
        for inner in cursor.walk_preorder():
            named = inner.referenced if inner.kind == CursorKind.DECL_REF_EXPR else inner
            if named is None or named.kind not in _VARIABLES:
                continue
            own = named == inner or (file_of(named) == whole.file and whole.start <= named.location.offset < whole.end)
            if own and inner.spelling and self.plain.startswith(inner.spelling, inner.location.offset):
                yield inner.location.offset

    def is_private(self, piece: _Declaration) -> bool:
        """Return whether a declaration is, or contains, a device variable that only this file can write."""
        kinds = (CursorKind.VAR_DECL, *(() if piece.kernel else FUNCTIONS))
        written = self.plain[piece.start : piece.end]
        return any(cursor.kind in kinds and is_private(cursor, written) for cursor in piece.cursors)


def _within(at: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _names(cursor: Cursor, written: str) -> Iterator[str]:
    """Yield the names by which other code uses a declaration; for a member, the name of its outermost class."""
    owner, outer = cursor.semantic_parent, None
    while owner is not None and owner.kind in RECORDS:
        outer, owner = owner, owner.semantic_parent
    if outer is not None:
        yield outer.spelling
    elif cursor.kind == CursorKind.USING_DECLARATION:
        yield WORD.findall(written)[-1]
    elif cursor.kind == CursorKind.ENUM_DECL:
        yield from (enumerator.spelling for enumerator in (*cursor.get_children(), cursor))
    elif guide := re.match(r"<deduction guide for (\w+)>", cursor.spelling):
        yield guide[1]
    elif cursor.kind not in _KEPT_KINDS and (name := re.match(r"operator\b.*|\w+", cursor.spelling)):
        yield name[0]


def _macros(files: Iterable[_File], defines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a dict from each macro's name to the texts of all its definitions, joined."""
    texts: dict[str, str] = defaultdict(str)
    for name, parameters, meaning in (macro for file in files for macro in macros_of(file.plain)):
        texts[name] += f" {parameters} {meaning}"
    for name, value in defines:
        texts[name.partition("(")[0]] += " " + value
    return dict(texts)


def _mark_used(
    files: Collection[_File], macros: Mapping[str, str], kernels: frozenset[str], words: frozenset[str]
) -> bool:
    """Mark the declarations that the kernels use as kept; return False if no requested kernel is found."""
    pieces = [(file, piece) for file in files for piece in file.pieces]
    declared = {name for _, piece in pieces for name in piece.names}
    reached = set(words)
    all_kernels = not kernels
    while True:
        changed = False
        for file, piece in pieces:
            requested = piece.kernel and (all_kernels or bool(piece.names & kernels))
            if piece.kept or piece.uncallable or piece.names == {"main"}:
                continue
            if requested or piece.required or piece.names & reached:
                piece.kept = changed = True
                reached |= file.used_names(piece, declared, macros)
        if changed:
            continue
        if any("##" in macros[name] for name in reached & macros.keys()) and not declared <= reached:
            reached |= declared
        elif not all_kernels and any(piece.kept and file.is_private(piece) for file, piece in pieces):
            # if other kernels write a private variable, the code differs, so all kernels of the file are kept
            all_kernels = True
        else:
            return any(piece.kept and piece.kernel for _, piece in pieces)
