"""Turns libclang's cursors into records of kernels, types and constants. Runs in the parsing process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from ctypes import c_void_p
from dataclasses import dataclass, replace

from clang.cindex import Cursor, CursorKind, TranslationUnit, Type, TypeKind, _CXString, conf

from cudabench.source import cursors
from cudabench.source.comments import comment_above
from cudabench.source.cursors import FUNCTIONS, METHODS, RECORDS, TEMPLATES, Fault, Span, Text, file_of, has, span
from cudabench.source.launches import launches_in
from cudabench.source.layouts import layout_of, typed
from cudabench.source.parameters import parameter_from, parameter_of, plain, template_parameters, unqualified
from cudabench.source.records import Answer, Constant, Kernel, Layout, Parameter, Reading, SourceFile, Task
from cudabench.source.types import numpy_type
from cudabench.source.words import NAME_USE, macros_of, respelled, without_comments

# The compiler inlines a function with up to this many words into every kernel that calls it. Whether it inlines a
# larger function depends on the callers.
_MOST_INLINED_WORDS = 200
QUERY = "cudabench_query_"
_ALIASES = (CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL)
_OPAQUE = re.compile(r"variable has incomplete type|implicit instantiation of undefined template")

# CUDA's functions that are not in a namespace (CUDA Math API). A kernel with one of these names is an overload of this
# function.
_MATH = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn
ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround max min modf nan nearbyint nextafter norm norm3d
norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn
sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn"""
_OF_CUDA = frozenset(
    [*_MATH.split(), *(f"{name}f" for name in _MATH.split()), "labs", "llabs", "llmax", "llmin", "umax", "umin"]
)


@dataclass(frozen=True)
class Declarations:
    """The declarations of a file. `faults` and `bodies` (of functions) serve to find missing names."""

    reading: Reading
    faults: tuple[Fault, ...]
    bodies: tuple[tuple[int, int], ...]  # (start, end) of each body, in bytes; only bodies in the file itself
    unit: TranslationUnit
    texts: Mapping[str, str]  # the texts of the file and of the user's headers, keyed by file name
    incomplete: tuple[str, ...]  # instances of class templates that the parser has not instantiated


@dataclass(frozen=True)
class _Scope:
    names: tuple[str, ...] = ()
    start: int | None = None  # the offset of an `extern "C"` without braces that precedes the declaration, or None


def read_unit(unit: TranslationUnit, task: Task, texts: Mapping[str, str]) -> Declarations:
    """Return what libclang's translation unit declares; `texts`: the files to read, by name."""
    return _Collector(unit, task, texts).read()


class _Collector:
    """Collects the declarations of a file and of the user's headers that it includes."""

    def __init__(self, unit: TranslationUnit, task: Task, texts: Mapping[str, str]) -> None:
        self.unit, self.task, self.path = unit, task, task.name
        self.faults = tuple(cursors.faults_of(unit))
        self.texts = {name: Text(name, text) for name, text in texts.items()}
        for fault in self.faults:
            # An error about an incomplete type is ignored, because this type is known by its name.
            if fault.file in self.texts and not _OPAQUE.match(fault.message):
                self.texts[fault.file].faults.append(fault.offset)
        for text in self.texts.values():
            text.faults.sort()
        self.plain = {name: without_comments(text.text) for name, text in self.texts.items()}
        self.macros: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # only macros with parameters
        for name in self.texts:
            for macro, parameters, meaning in macros_of(self.plain[name]):
                (self.functions if parameters else self.macros).setdefault(macro, meaning)
        self.kernels: list[tuple[Kernel, tuple[str, ...]]] = []  # (kernel, types of its parameters)
        self.declared: set[tuple[str, tuple[str, ...]]] = set()
        self.prototype_comments: dict[tuple[str, tuple[str, ...]], str] = {}
        self.types: dict[str, str] = {}
        self.layouts: dict[str, Layout] = {}
        self.constants: list[Constant] = []
        self.references: dict[str, str] = {}
        self.uses: dict[str, set[str]] = {}
        self.numbers: dict[str, str] = {}
        self.large: set[str] = set()
        self.private = False
        self.bodies: list[tuple[int, int]] = []
        self.answers: dict[int, Answer] = {}
        self.incomplete: dict[str, None] = {}

    def read(self) -> Declarations:
        """Read all declarations and return them."""
        task = self.task
        for name, meaning in self._macro_types().items():
            self.types.setdefault(name, meaning)
        self._scope(self.unit.cursor, _Scope())
        for at, question in enumerate(task.questions):
            if question.launches:
                self.answers[at] = Answer(launches=tuple(launches_in(self.unit.cursor, question.text, self.texts)))
            if question.type and (layout := self.answers.get(at, Answer()).layout):
                self.layouts.setdefault(question.text, replace(layout, ctype=question.text))
        file = SourceFile(
            task.path, task.text, self._kernels(), {**self.types, **dict(task.defines)}, self.layouts,
            tuple(self.constants), self.references, {**self.macros, **self.numbers}, frozenset(self.large),
            self.private, task,
        )  # fmt: skip
        answers = tuple(self.answers.get(at, Answer()) for at in range(max(self.answers, default=-1) + 1))
        texts = {name: text.text for name, text in self.texts.items()}
        return Declarations(
            Reading(file, answers), self.faults, tuple(self.bodies), self.unit, texts, tuple(self.incomplete)
        )

    # Scopes ----------------------------------------------------------------------------------------------------------

    def _scope(self, parent: Cursor, scope: _Scope) -> None:
        for cursor in parent.get_children():
            if cursor.kind in (CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL):
                self._linkage(cursor, scope)
            elif file_of(cursor) not in self.texts:
                continue
            elif cursor.kind == CursorKind.NAMESPACE:
                name = "" if cursor.is_anonymous() else cursor.spelling
                self._scope(cursor, replace(scope, names=(*scope.names, name)))
            elif cursor.kind in (CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE):
                self._function(cursor, scope)
            elif cursor.kind in RECORDS:
                self._record(cursor, scope)
            elif cursor.kind in _ALIASES:
                self._alias(cursor, scope)
            elif cursor.kind == CursorKind.ENUM_DECL:
                self._name_type(cursor.spelling, scope, self._numbers(cursor))
            elif cursor.kind == CursorKind.VAR_DECL:
                self._variable(cursor)

    def _linkage(self, cursor: Cursor, scope: _Scope) -> None:
        place = span(cursor)
        if place.file not in self.texts:
            return
        written = self.texts[place.file].slice(place.start, place.end)
        bare_c = re.match(r'extern\s*"C"(?!\s*\{)', written)
        self._scope(cursor, replace(scope, start=place.start if bare_c else None))

    def _faulty(self, cursor: Cursor) -> bool:
        """Return whether a declaration has an error. In a class, errors in functions and initialisers are ignored."""
        place = span(cursor)
        faults = self.texts[place.file].faults_in(place.start, place.end) if place.file in self.texts else []
        if faults and cursor.kind in RECORDS:
            # an instance has no members here, so the members of its template are used
            template = cursors.template_of(cursor)
            parts = list(cursor.get_children()) or list(template.get_children() if template else ())
            within = [span(child) for child in parts if child.kind in (*FUNCTIONS, CursorKind.FIELD_DECL)]
            faults = [at for at in faults if not any(member.start <= at < member.end for member in within)]
        return bool(faults or conf.lib.clang_isInvalidDeclaration(cursor))

    def _plain(self, place: Span) -> str:
        """Return a part of a file without comments and strings; '' if its file is unknown because of an error."""
        text = self.texts.get(place.file)
        return "" if text is None else self.plain[place.file][text.at(place.start) : text.at(place.end)]

    # Types -----------------------------------------------------------------------------------------------------------

    def _name_type(self, name: str, scope: _Scope, meaning: str) -> None:
        for spelling in dict.fromkeys((name, _qualified((*scope.names, name)))):
            if spelling and spelling != meaning:
                self.types.setdefault(spelling, meaning)

    def _alias(self, cursor: Cursor, scope: _Scope) -> None:
        if cursor.spelling.startswith(QUERY):
            self._answer(cursor)
        if cursor.spelling.startswith(QUERY) or self._faulty(cursor):
            return
        kind = cursor.underlying_typedef_type
        declared = kind.get_canonical().get_declaration()
        if kind.get_canonical().kind == TypeKind.ENUM:
            self._name_type(cursor.spelling, scope, self._numbers(declared))
        elif declared.is_anonymous() or unqualified(kind) in (cursor.spelling, f"struct {cursor.spelling}"):
            self._name_type(cursor.spelling, scope, f"struct {cursor.spelling}")
        else:
            self._name_type(cursor.spelling, scope, plain(kind))
        if kind.get_canonical().kind == TypeKind.RECORD:
            self._add_layout(cursor.spelling, scope, kind)

    def _numbers(self, cursor: Cursor) -> str:
        """Return the integer type of an enumeration; int if none is declared and its values fit."""
        kind, head = unqualified(cursor.enum_type), self._plain(span(cursor)).partition("{")[0]
        return "int" if kind == "unsigned int" and ":" not in head else kind

    def _record(self, cursor: Cursor, scope: _Scope) -> None:
        if not cursor.spelling or not cursor.is_definition():
            return
        if span(cursor).file in self.texts:
            self._record_uses(cursor.spelling, self._plain(span(cursor)))
        for child in cursor.get_children():
            if child.kind in METHODS:
                self._body(child)
        if cursor.kind in TEMPLATES or cursor.is_anonymous():
            return
        name = respelled(cursor.displayname) or cursor.spelling
        self._name_type(name, scope, f"struct {name}")
        self._add_layout(name, scope, cursor.type)
        for child in cursor.get_children():
            if child.kind in _ALIASES:
                for spelling in (f"{name}::{child.spelling}", _qualified((*scope.names, name, child.spelling))):
                    self.types.setdefault(spelling, unqualified(child.underlying_typedef_type))
            elif child.kind in RECORDS:
                self._record(child, _Scope((*scope.names, name)))

    def _add_layout(self, name: str, scope: _Scope, kind: Type) -> None:
        layout = layout_of(kind, self._faulty)
        self._note_instance(kind)
        if layout:
            for spelling in (name, _qualified((*scope.names, name))):
                self.layouts.setdefault(spelling, replace(layout, ctype=name))

    def _note_instance(self, kind: Type) -> None:
        """Add the layout of a class template instance, or list the instance as incomplete."""
        canonical = (kind.get_pointee() if kind.get_canonical().kind == TypeKind.POINTER else kind).get_canonical()
        name = unqualified(canonical)
        declared = canonical.get_declaration()
        if canonical.kind != TypeKind.RECORD or "<" not in name or "(" in name or file_of(declared) not in self.texts:
            return
        if canonical.get_size() < 0:
            self.incomplete.setdefault(name)
        elif layout := layout_of(canonical, self._faulty):
            self.layouts.setdefault(name, layout)

    def _typed(self, parameter: Parameter, kind: Type) -> Parameter:
        """Return the parameter with the fields that its resolved type `kind` sets; for an enumeration, the integer
        type."""
        param = typed(parameter, kind, self._faulty)
        inner = kind.get_canonical()
        while inner.kind == TypeKind.POINTER:
            inner = inner.get_pointee()
        return replace(param, element=self._numbers(inner.get_declaration())) if inner.kind == TypeKind.ENUM else param

    def _macro_types(self) -> dict[str, str]:
        """Return the macros whose text may be a type, such as 'float *'."""
        return {name: value for name, value in self.macros.items() if re.fullmatch(r"[^\W\d][\w:\s*]*", value)}

    # Functions -------------------------------------------------------------------------------------------------------

    def _body(self, cursor: Cursor) -> None:
        bodies = (span(child) for child in cursor.get_children() if child.kind == CursorKind.COMPOUND_STMT)
        self.bodies += [(place.start, place.end) for place in bodies if place.file == self.path]

    def _function(self, cursor: Cursor, scope: _Scope) -> None:
        self._body(cursor)
        if has(cursor, CursorKind.CUDAGLOBAL_ATTR):
            self._kernel(cursor, scope)
            return
        place = span(cursor)
        if place.file in self.texts and cursor.is_definition():
            self._record_uses(cursor.spelling, plain := self._plain(place), cursors.local_names(cursor))
            self.private |= cursors.is_private(cursor, plain)

    def _record_uses(self, name: str, plain: str, own: Collection[str] = ()) -> None:
        """Record the names that a function or class uses, except the names in `own`, and whether it is large."""
        self.uses.setdefault(name, set()).update(set(NAME_USE.findall(plain)).difference(own))
        if len(re.findall(r"\w+", plain)) > _MOST_INLINED_WORDS:
            self.large.add(name)

    def _kernel(self, cursor: Cursor, scope: _Scope) -> None:
        place = span(cursor)
        text = self.texts.get(place.file)
        if text is None:
            return
        start = place.start if scope.start is None else scope.start
        start = text.byte_offset(_with_brackets(text.text, text.at(start)))
        formal = [child for child in cursor.get_children() if child.kind == CursorKind.PARM_DECL]
        hidden = {*self.functions, *(self.macros.keys() - self._macro_types().keys())}
        parameters = tuple(
            self._typed(parameter_of(formal_cursor, text, hidden), formal_cursor.type) for formal_cursor in formal
        )
        for parameter in formal if cursor.kind == CursorKind.FUNCTION_DECL else ():
            self._note_instance(parameter.type)
        key = tuple(plain(parameter.type.get_canonical()) for parameter in formal)
        name = cursor.spelling.partition("<")[0]
        whole = _qualified((*scope.names, name))
        self.declared.add((whole, key))
        written = text.slice(start, place.end)
        if "{" not in written:
            written = _pretty(cursor)  # a macro expands to the whole kernel, so the source text does not show it
        comment = comment_above(text.text, text.at(start))
        if not cursor.is_definition():
            self.prototype_comments[whole, key] = self.prototype_comments.get((whole, key)) or comment
            return
        kernel = Kernel(
            name=name, qualified_name=whole, parameters=parameters, comment=comment, line=cursor.location.line,
            template_parameters=template_parameters(cursor, text), start=text.at(start), end=text.at(place.end),
            text=written, expression=whole, file="" if place.file == self.path else place.file,
            names=frozenset(NAME_USE.findall(self._plain(place))) - cursors.local_names(cursor),
        )  # fmt: skip
        self.kernels.append((kernel, key))

    def _kernels(self) -> tuple[Kernel, ...]:
        # matches a specialisation of a template, which is launched through its primary template
        specialised = re.compile(r"template\s*<\s*>")
        primary = {kernel.qualified_name for kernel, _ in self.kernels if not specialised.match(kernel.text)}
        kept: dict[tuple[str, tuple[str, ...]], Kernel] = {}
        for kernel, key in sorted(self.kernels, key=lambda entry: entry[0].qualified_name not in primary):
            if kernel.qualified_name not in primary or not specialised.match(kernel.text):
                kept.setdefault((kernel.qualified_name, key), kernel)
        counts = Counter(name for name, _ in self.declared)
        for name, body in (*self.macros.items(), *self.functions.items()):
            self.uses.setdefault(name, set()).update(NAME_USE.findall(body))
        kernels = [
            replace(
                kernel,
                comment=kernel.comment or self.prototype_comments.get(key, ""),
                overloaded=counts[kernel.qualified_name] > 1 or kernel.qualified_name in _OF_CUDA,
                names=self._with_indirect_names(kernel.names),
            )
            for key, kernel in kept.items()
        ]
        return tuple(sorted(kernels, key=lambda kernel: (bool(kernel.file), kernel.start if not kernel.file else 0)))

    def _with_indirect_names(self, names: frozenset[str]) -> frozenset[str]:
        while more := {reached for name in names for reached in self.uses.get(name, ())} - names:
            names |= more
        return names

    # Variables -------------------------------------------------------------------------------------------------------

    def _variable(self, cursor: Cursor) -> None:
        kind = cursor.type
        type_name = unqualified(kind.get_canonical())
        if type_name.startswith(("texture<", "surface<")):
            self.references[cursor.spelling] = type_name
        if file_of(cursor) not in self.texts:
            return
        place = span(cursor)
        self.private |= cursors.is_private(cursor, self._plain(place))
        if kind.is_const_qualified() and numpy_type(type_name) and (value := cursors.integer_value(cursor)) is not None:
            self.numbers.setdefault(cursor.spelling, str(value))
        if not has(cursor, CursorKind.CUDACONSTANT_ATTR):
            return
        faulty = self._faulty(cursor)
        extents: list[int] = []
        while kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.VARIABLEARRAY):
            extents.append(kind.element_count if kind.kind == TypeKind.CONSTANTARRAY else 0)
            kind = kind.element_type
        layout = None if faulty else layout_of(kind, self._faulty)
        behind = self.texts[place.file].slice(cursor.location.offset + len(cursor.spelling.encode()), place.end)
        starts = re.match(r"\s*(?:\[[^\[\]]*\]\s*)*[={(]", behind) is not None
        self.constants.append(Constant(cursor.spelling, unqualified(kind), tuple(extents), starts, layout))

    # Answers ---------------------------------------------------------------------------------------------------------

    def _answer(self, cursor: Cursor) -> None:
        name, kind = cursor.spelling.removeprefix(QUERY), cursor.underlying_typedef_type.get_canonical()
        answer = Answer()
        if not self._faulty(cursor) and kind.get_pointee().kind == TypeKind.FUNCTIONPROTO:
            types = kind.get_pointee().argument_types()
            answer = Answer(tuple(self._typed(parameter_from("", kind), kind) for kind in types))
        elif not self._faulty(cursor):
            answer = Answer(None, layout_of(kind, self._faulty))
        if name.isdigit():
            self.answers[int(name)] = answer


def _qualified(names: Iterable[str]) -> str:
    """Join the names of scopes and a name: 'ns::f'."""
    return "::".join(filter(None, names))


def _pretty(cursor: Cursor) -> str:
    """Return a function's text with its macros expanded."""
    # this makes a new function object, so the types set below do not change the object that the bindings use
    function = conf.lib["clang_getCursorPrettyPrinted"]
    function.argtypes, function.restype = [Cursor, c_void_p], _CXString
    return str(_CXString.from_result(function(cursor, None)))


def _with_brackets(text: str, start: int) -> int:
    """Return the start of a declaration, including attributes such as `[[nodiscard]]` before its first word."""
    before = re.search(r"(?:\[\[[^\[\]]*\]\]\s*)+\Z", text[max(start - 200, 0) : start])
    return start - len(before[0]) if before else start
