"""Makes records of the parameters of kernels and templates, from libclang's types and the text of the source."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate, repeat

from clang.cindex import Cursor, CursorKind, Type, TypeKind

from cudabench.source.brackets import split
from cudabench.source.cursors import Text, span
from cudabench.source.records import Parameter, TemplateParameter
from cudabench.source.words import closing_bracket, join_words, respelled, without_comments, words_of

ARRAYS = (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.VARIABLEARRAY, TypeKind.DEPENDENTSIZEDARRAY)
_FUNCTIONS = (TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO)
_QUALIFIERS = frozenset(["const", "volatile", "register", "restrict", "__restrict__", "__restrict"])
_ATTRIBUTE = re.compile(
    r"\[\[.*?\]\]|\b(?:__attribute__|__align__|alignas|__builtin_align__)\s*"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
)
DEPENDENT = "type-parameter-"


def parameter_of(cursor: Cursor, text: Text, macros: Collection[str]) -> Parameter:
    """Return the record of a function's parameter.

    The type of the parameter is written as in the source, unless it contains one of `macros`.
    """
    place = span(cursor)
    written = _words(without_comments(text.slice(place.start, place.end))) if place.file == text.path else []
    faulty = bool(text.faults_in(place.start, place.end))
    parameter = parameter_from(cursor.spelling, cursor.type)
    restrict = parameter.restrict or any(map(is_restrict, range(len(written)), repeat(written)))
    if faulty:
        parameter = _unparsed_parameter(cursor.spelling, written)
    elif not set(written) & set(macros):
        own = _type_in(written, cursor.spelling, parameter.pointer)
        parameter = replace(parameter, type=own or parameter.type)
    return replace(parameter, restrict=restrict)


def is_restrict(at: int, words: Sequence[str]) -> bool:
    """Return whether the word at index `at` of a parameter is `__restrict__` or a macro for it.

    A word such as ns::Restrict, or one inside template arguments, is a type instead.
    """
    before = words[:at]
    return "restrict" in words[at].lower() and before[-1:] != ["::"] and before.count("<") == before.count(">")


def parameter_from(name: str, kind: Type) -> Parameter:
    """Return the record of a parameter with this name and libclang type."""
    canonical = kind.get_canonical()
    meaning = "" if DEPENDENT in canonical.spelling else plain(canonical)
    pointee = None
    if canonical.kind in ARRAYS:
        pointee = (kind if kind.kind in ARRAYS else canonical).element_type
        meaning = meaning and f"{plain(pointee.get_canonical())}*"
    elif canonical.kind == TypeKind.POINTER and canonical.get_pointee().kind not in _FUNCTIONS:
        sugared = kind.get_pointee()
        pointee = sugared if sugared.kind != TypeKind.INVALID else canonical.get_pointee()
    if pointee is None:
        return Parameter(name, unqualified(kind), meaning=meaning)
    element = pointee
    while element.kind in ARRAYS:
        element = element.element_type
    const = pointee.is_const_qualified() or element.is_const_qualified()
    return Parameter(name, unqualified(pointee), True, const, kind.is_restrict_qualified(), meaning)


def unqualified(kind: Type) -> str:
    """Return a type's name in the spelling of `join_words`, without const, volatile and restrict."""
    return join_words(_unqualified(words_of(kind.spelling)))


def _unqualified(words: Sequence[str]) -> list[str]:
    """Return the words of a type without const and other qualifiers; those inside template arguments stay."""
    depths = accumulate((word == "<") - (word == ">") for word in words)
    return [word for word, depth in zip(words, depths, strict=True) if depth > 0 or word not in _QUALIFIERS]


def plain(kind: Type) -> str:
    """Return a type's name in the spelling of `join_words`, without restrict."""
    return join_words(word for word in words_of(kind.spelling) if word != "__restrict")


def _words(written: str) -> list[str]:
    """Return the words of a parameter, without its default value, attributes and storage class."""
    words = words_of(_ATTRIBUTE.sub(" ", split(written, "=", angles=True)[0]))
    return [word for word in words if word not in ("__grid_constant__", "volatile", "register")]


def _type_in(words: list[str], name: str, pointer: bool) -> str:
    """Return the type of a parameter (of the pointee, if `pointer`) as written; '' if it cannot be read from the
    words."""
    if "(" in words or (name and name not in words):
        return ""
    cut = words.index("[") if "[" in words else len(words)
    words, dimensions = words[:cut], words[cut:]
    if name and words[-1:] != [name]:
        return ""
    words = words[: len(words) - bool(name)]
    if dimensions:
        words, dimensions = [*words, "*"], dimensions[closing_bracket(dimensions, 0) + 1 :]
    before, behind = _split_at_star(words) if pointer else (words, [])
    return "" if ">" in behind or (pointer and "*" not in words) else join_words([*_unqualified(before), *dimensions])


def _split_at_star(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before and after the last star; without a star, all words and []."""
    at = max((at for at, word in enumerate(words) if word == "*"), default=len(words))
    return words[:at], words[at + 1 :]


def _unparsed_parameter(name: str, words: list[str]) -> Parameter:
    """Return the record of a parameter whose type the parser does not know, made from its words."""
    pointer = "*" in words and "(" not in words
    ctype = _type_in(words, name, pointer) or join_words(_unqualified(words))
    return Parameter(name, ctype, pointer, pointer and "const" in _split_at_star(words)[0])


def template_parameters(cursor: Cursor, text: Text) -> tuple[TemplateParameter, ...]:
    """Return the records of a template's parameters."""
    kinds = (
        CursorKind.TEMPLATE_TYPE_PARAMETER, CursorKind.TEMPLATE_NON_TYPE_PARAMETER,
        CursorKind.TEMPLATE_TEMPLATE_PARAMETER,
    )  # fmt: skip
    parameters = []
    for child in (parameter for parameter in cursor.get_children() if parameter.kind in kinds):
        place = span(child)
        written = text.slice(place.start, place.end) if place.file == text.path else ""
        whole, *default = split(without_comments(written), "=", angles=True)
        head = words_of(whole)
        name = child.spelling
        head = head[:-1] if name and head[-1:] == [name] else head
        dots = "..." if join_words(head).endswith("...") else ""
        kind = ["typename" if word == "class" else word for word in head if word not in ("const", ".")]
        if child.kind == CursorKind.TEMPLATE_NON_TYPE_PARAMETER and not kind:
            kind = [unqualified(child.type)]
        parameters.append(TemplateParameter(name, join_words(kind) + dots, respelled(default[0]) if default else ""))
    return tuple(parameters)
