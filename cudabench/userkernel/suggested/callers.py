"""What the templates of a text are given by those who call them: for lines that messages suggest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cudabench.toolchain import places
from cudabench.toolchain.c_types import SPECIFIERS, canonical, numpy_dtype
from cudabench.toolchain.source import Parameter
from cudabench.toolchain.tokens import closing_angle, spell, split
from cudabench.userkernel import pointers

_DEPTH = 6  # of templates that are called by templates
_LOOKS = 400  # at names of one instance
_FUNCTION = r"\b(?:__device__|__host__|inline)\b[^;{{}}()=]*\b{}\s*\("
_LITERAL = re.compile(r"true|false|-?\d\w*")


def is_sure(word: str) -> bool:
    """Return whether a template's argument is a literal or the name of a type of CUDA's or of a number."""
    known = word != "void" and pointers.elements(Parameter("", word), {})
    return bool(_LITERAL.fullmatch(word) or numpy_dtype(word) or known)


class Callers:
    """What a text's templates are given, followed from a name back to where a literal, a type or a function stands."""

    def __init__(
        self,
        text: str,
        words: list[str],
        by_word: Mapping[str, Sequence[int]],
        bodies: Sequence[tuple[int, int]],
        outside: Sequence[int],
        aliases: Mapping[str, str],
    ) -> None:
        """Take a text with its words, the places of each of these, the spans of its functions among the words, the
        places outside all of them, and what its names of types mean."""
        self.text = text
        self.aliases = aliases
        self.words = words
        self.by_word = by_word
        self.bodies = bodies
        self.constants = {words[at] for at in outside if words[at + 1 : at + 2] == ["="]}
        self._declared: dict[str, bool] = {}
        self.looks = 0

    def named(self, name: str) -> Iterator[list[str]]:
        """Yield the arguments of each `name<...>`, '' for one that cannot be read; those that are all read first."""
        self.looks = 0
        found = [self._read(arguments, at, 0) for at, arguments in self._mentions(name)]
        yield from sorted(found, key=lambda words: words.count(""))

    def value(self, name: str, at: int) -> int | None:
        """Return the number that a template's parameter stands for at a place, None where none is known."""
        body = next((span for span in self.bodies if span[0] <= at <= span[1]), None)
        if body is None or name not in self._template(body[0])[0]:
            return None
        self.looks = 0
        found = self._argument([name], at, 0)
        return int(found) if re.fullmatch(r"-?\d{1,9}", found) else None

    def type_at(self, name: str, at: int) -> str:
        """Return the type that a template's parameter stands for at a place, '' where none is known."""
        body = next((span for span in self.bodies if span[0] <= at <= span[1]), None)
        if body is None or name not in self._template(body[0])[0]:
            return ""
        self.looks = 0
        return self._argument([name], at, 0)

    def _mentions(self, name: str) -> Iterator[tuple[int, list[list[str]]]]:
        """Yield where a name stands with arguments in angle brackets, and these."""
        for at in self.by_word.get(name, ()):
            if self.words[at + 1 : at + 2] == ["<"] and self.words[at + 2 : at + 3] != ["<"]:
                end = closing_angle(self.words[at : at + 400], 1) + at
                if end < min(len(self.words), at + 400):
                    yield at, split(self.words[at + 2 : end], ",")

    def _read(self, arguments: Sequence[list[str]], at: int, depth: int) -> list[str]:
        return [self._argument(words, at, depth) for words in arguments]

    def _argument(self, words: Sequence[str], at: int, depth: int) -> str:
        """Return a template's argument without names that only its place knows, '' where that cannot be."""
        self.looks += 1
        if depth > _DEPTH or self.looks > _LOOKS or not words:
            return ""
        text = spell(words)
        if is_sure(text):
            return text
        if numpy_dtype(text, self.aliases):
            return canonical(text, self.aliases)  # a name of a namespace is none outside it
        if "<" in words and words[-1] == ">":
            start = list(words).index("<")
            own = spell(words[:start])
            inner = self._read(split(words[start + 1 : -1], ","), at, depth + 1)
            kinds = self._kinds(words[start - 1])
            inner = [one or _by_kind(kind) for one, kind in zip(inner, kinds, strict=False)] or inner
            return f"{own}<{', '.join(inner)}>" if inner and all(inner) else ""
        if len(words) != 1:
            return text if "::" in words and self._is_declared(words[-1]) else ""
        name = words[0]
        body = next((span for span in self.bodies if span[0] <= at <= span[1]), None)
        if body:
            for place in range(body[0], at):
                if self.words[place : place + 3] == ["using", name, "="]:
                    end = self.words.index(";", place)
                    return self._argument(self.words[place + 3 : end], at, depth + 1)
                if self.words[place : place + 2] == [name, "="] and self.words[place - 1] in SPECIFIERS:
                    text = self.words[place + 2]
                    return text if is_sure(text) and self.words[place + 3] == ";" else ""
            formal, function = self._template(body[0])
            if name in formal:
                order = formal.index(name)
                calls = (
                    (call, given[order])
                    for call, given in self._mentions(function)
                    if order < len(given) and not body[0] <= call <= body[1]
                )
                return next((found for call, one in calls if (found := self._argument(one, call, depth + 1))), "")
        return name if self._is_declared(name) else ""

    def _template(self, at: int) -> tuple[list[str], str]:
        """Return the parameters of the function template that begins at a token, and its name."""
        if self.words[at] != "template":
            return [], ""
        end = closing_angle(self.words[at : at + 400], 1) + at
        parts = split(self.words[at + 2 : end], ",")
        if any("." in part for part in parts):
            return [], ""  # a pack takes what stands for those behind it
        formal = [part[: part.index("=")][-1] if "=" in part else part[-1] for part in parts if part]
        opening = next((place for place in range(end, min(end + 60, len(self.words))) if self.words[place] == "("), end)
        return formal, self.words[opening - 1]

    def _kinds(self, name: str) -> list[str]:
        """Return what a class template takes: 'bool', 'int', 'typename'."""
        pattern = rf"\btemplate\s*<([^<>]*)>\s*(?:struct|class)\s+(?:\w+\s*\([^()]*\)\s*)?{name}\b"
        match = places.first(re.compile(pattern), self.text, "template")
        return [part.split()[0] for part in match[1].split(",") if part.split()] if match else []

    def _is_declared(self, name: str) -> bool:
        """Return whether a name is a function, a type, an enumerator or a constant of the text, and no parameter."""
        if name not in self._declared:
            one = re.escape(name)
            self._declared[name] = name in self.constants or any(
                places.first(re.compile(pattern), self.text, *words)
                for pattern, *words in (
                    (rf"\b(?:struct|class|enum)\s+(?:class\s+)?{one}\b", "struct", "class", "enum"),
                    (rf"\benum\b[^;{{}}]*\{{[^{{}}]*\b{one}\b[^{{}}]*\}}", "enum"),
                    (rf"\busing\s+{one}\s*=(?!\s*typename)", "using"),
                    (rf"\btypedef\b[^;{{}}]*\b{one}\s*;", "typedef"),
                    (_FUNCTION.format(one), "__device__", "__host__", "inline"),
                )
                if name in self.text
            )
        return self._declared[name]


def _by_kind(kind: str) -> str:
    """Return what a class template is given where only its place knows: a choice may be made either way."""
    return "true" if kind == "bool" else ""
