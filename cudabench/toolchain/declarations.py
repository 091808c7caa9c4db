"""All declarations of a text, kernels or not: where each stands and which words it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cudabench.toolchain.signatures import template_head
from cudabench.toolchain.tokens import Scan, is_name, opens_scope, words_of

# Directives that matter behind the declaration that they stand in.
_LASTING = ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef", "include")
_NO_FUNCTION = frozenset(["struct", "class", "union", "enum", "typedef", "using", "static_assert"])
_DEPTH = 8  # of classes in classes


@dataclass(frozen=True)
class Declaration:
    """One declaration at namespace scope or of a class: its span and what its words are.

    `head` are the words before a body, or all where there is none; `words` are all. Where a word is a macro, the words
    that it stands for are among them. `members` are a class' own declarations. `body` is where the body of a function
    begins, with what it initialises, None where it has none of its own.
    """

    start: int
    end: int
    head: frozenset[str]
    words: frozenset[str]
    function: bool
    members: tuple[Declaration, ...] = ()
    body: int | None = None


def declarations(text: str, macros: Mapping[str, frozenset[str]] | None = None) -> tuple[Declaration, ...]:
    """Return all declarations at namespace scope, kernels or not, in order.

    `macros` are those of other files, by name with their words; the text's own come on top.
    """
    reader = _Reader(text)
    return reader.declarations({**(macros or {}), **reader.macros()})


def macros_of(text: str) -> dict[str, frozenset[str]]:
    """Return the macros that a text defines, each with the words of all its definitions."""
    return _Reader(text).macros()


def blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with spaces in place of spans; line ends stay, and so do directives that hold for the rest."""
    spans = list(spans)
    kept = [
        (directive.start, directive.end)
        for directive in (_Reader(text).directives if spans else ())
        if directive.word in _LASTING
    ]
    for start, end in spans:
        inside = [(one, two) for one, two in kept if start <= one < end]
        edges = [start, *(edge for span in inside for edge in span), end]
        for one, two in zip(edges[::2], edges[1::2], strict=True):
            text = text[:one] + re.sub(r"[^\n]", " ", text[one:two]) + text[two:]
    return text


def without_bodies(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text in which the bodies at these spans are left out as `blanked` does: their functions are declared."""
    spans = list(spans)
    text = blanked(text, spans)
    for start, _ in spans:
        text = text[:start] + ";" + text[start + 1 :]
    return text


class _Reader(Scan):
    """The declarations at namespace scope and in classes."""

    def declarations(self, macros: Mapping[str, frozenset[str]]) -> tuple[Declaration, ...]:
        self.leave_out(self.hidden_spans())
        return self._declared(0, len(self.words), macros, depth=0)

    def macros(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for directive in self.directives:
            define = re.match(r"(\w+)(?:\([^)]*\))?\s+(.*)", directive.rest, re.S)
            if directive.word == "define" and define:
                found.setdefault(define[1], set()).update(words_of(define[2]))
        return {name: frozenset(words) for name, words in found.items()}

    def _declared(
        self, position: int, stop: int, macros: Mapping[str, frozenset[str]], depth: int
    ) -> tuple[Declaration, ...]:
        """The declarations between two tokens; those of namespaces and `extern "C"` are among them."""
        found = []
        while position < stop:
            if self.is_label(position):
                position += 2
                continue
            macro_end = self._definition_by_macro(position, macros)
            if macro_end is not None:
                words = self.words[position : macro_end + 1]
                function = bool({"{", "template"} & macros[words[0]])
                found.append(self._declaration(words, position, macro_end, macros, function=function))
                position = macro_end + 1
                continue
            words, closing = self.head(position)
            closing = min(closing, stop)
            closer = self.words[closing] if closing < stop else ";"
            first = template_head(words)[1]
            function = "(" in words and "=" not in words[first : words.index("(")]
            function = function and not set(words[first : first + 1]) & _NO_FUNCTION
            if closer == "}" or (closer == "{" and opens_scope(words)):
                position = closing + 1
                continue
            body = None
            if closer == "{" and function:
                begins, closing = self._body(position + first, closing)
                body = self.starts[begins]
            end = body_end = self.matching(closing) if closer == "{" else closing
            if closer == "{" and not function:  # a class or an initialiser goes on to its semicolon
                end = self.head(end + 1)[1]
            end = min(end, stop - 1)
            members: tuple[Declaration, ...] = ()
            a_class = closer == "{" and not function and bool(set(words) & {"struct", "class", "union"})
            if a_class and depth < _DEPTH:
                members = self._declared(closing + 1, min(body_end, stop), macros, depth + 1)
            if words:
                declared = self._declaration(words, position, end, macros, function=function, members=members)
                found.append(replace(declared, body=body))
            position = end + 1
        return tuple(found)

    def _body(self, position: int, brace: int) -> tuple[int, int]:
        """Where a function's body begins, with the list of what a constructor initialises, and the brace of its code.

        `brace` is the first one of its head, which may be of that list.
        """
        depth = seen = 0
        for index in range(position, brace):
            word = self.words[index]
            seen += word == "("
            depth += (word in "([") - (word in ")]")
            if word == ":" and seen and depth == 0:
                while self.words[brace] == "{" and (is_name(self.words[brace - 1]) or self.words[brace - 1] == ">"):
                    following = self.head(self.matching(brace) + 1)[1]
                    if following >= len(self.words) or self.words[following] != "{":
                        break
                    brace = following
                return index, brace
        return brace, brace

    def _declaration(
        self,
        head: Sequence[str],
        first: int,
        last: int,
        macros: Mapping[str, frozenset[str]],
        *,
        function: bool,
        members: tuple[Declaration, ...] = (),
    ) -> Declaration:
        """The declaration of these first words, from a token to another."""
        last = min(last, len(self.words) - 1)
        named, every = (_meant(words, macros) for words in (head, self.words[first : last + 1]))
        return Declaration(self.starts[first], self.end(last), named, every, function, members)

    def _definition_by_macro(self, position: int, macros: Mapping[str, frozenset[str]]) -> int | None:
        """The closing bracket of `MACRO(...)` where the macro writes bodies or semicolons and needs none, else None."""
        words = self.words[position : position + 2]
        if words[1:] != ["("] or not {"{", ";"} & set(macros.get(words[0], ())):
            return None
        depth = 0
        for index in range(position + 1, len(self.words)):
            depth += {"(": 1, ")": -1}.get(self.words[index], 0)
            if depth == 0:
                behind = self.words[index + 1] if index + 1 < len(self.words) else ";"
                return None if behind in "{;" else index
        return None


def _meant(words: Iterable[str], macros: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Words and all that those stand for which are macros."""
    found: set[str] = set()
    waiting = list(words)
    while waiting:
        word = waiting.pop()
        if word not in found:
            found.add(word)
            waiting += macros.get(word, ())
    return frozenset(found)
