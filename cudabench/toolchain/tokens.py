"""CUDA source text into tokens, comments and directives, and what the words of a declaration are put together from."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

_LEXEME = re.compile(
    r"""
      (?P<directive> ^[ \t]*\#(?: \\\n | "(?:\\.|[^"\\\n])*" | /\*.*?\*/ | [^\n] )* )
    | (?P<blank>     \n+ | [^\S\n]+ )
    | (?: (?P<comment>   //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<string>    (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)" | "(?:\\.|[^"\\\n])*"? )
    | (?P<number>    \.?\d(?:[eEpP][+-]|'?\w|\.)* )
    | (?P<character> '(?:\\.|[^'\\\n])*'? )
    | (?P<word>      [^\W\d]\w* )
    | (?P<mark>      ::|\S )
      ) [^\S\n]*  # indentation is a blank of its own: a directive begins with it
    """,
    re.X | re.S | re.M,
)
_START = itemgetter(1)  # of a token
_LARGE, _HUGE = 1 << 18, 1 << 22  # characters of a text: of few such the tokens are kept, and of none
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A lexeme with its span in the text; `kind` is the name of its group in the pattern."""

    text: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Directive:
    """A line of the preprocessor: its word, the rest without comments, its span in the text."""

    word: str
    rest: str
    start: int
    end: int


@functools.lru_cache(maxsize=128)  # a header is read for each of what is left out of it
def _lexed(text: str) -> tuple[tuple[Token, ...], tuple[Token, ...], tuple[Directive, ...]]:
    """Cut a text into tokens, comments and directives."""
    comments: list[Token] = []
    directives: list[Directive] = []
    tokens: list[Token] = []
    for match in _LEXEME.finditer(text):
        kind = str(match.lastgroup)
        if kind == "blank":
            continue
        if kind == "directive":
            parts = re.match(r"\s*#\s*(\w*)(.*)", match[kind], re.S)
            assert parts is not None
            rest = re.sub(r"/\*.*?\*/|//.*|\\\n", " ", parts[2], flags=re.S).strip()
            directives.append(Directive(parts[1], rest, *match.span(kind)))
        else:
            start, end = match.span(kind)
            (comments if kind == "comment" else tokens).append(Token(match[kind], start, end, kind))
    return tuple(tokens), tuple(comments), tuple(directives)


_lexed_large = functools.lru_cache(maxsize=2)(_lexed.__wrapped__)  # a text that the preprocessor read, and one more


class Scan:
    """The lexemes of a text in order, and the spans that no compiler sees."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        lexed = _lexed if len(text) <= _LARGE else _lexed_large if len(text) <= _HUGE else _lexed.__wrapped__
        tokens, comments, directives = lexed(text)
        self.tokens, self.comments, self.directives = list(tokens), list(comments), list(directives)

    def hidden_spans(self) -> list[tuple[int, int]]:
        """The spans that no compiler sees, or that would break the balance of braces.

        Hidden are the branch of `#if 0`, the rest behind `#if 1`, and, where the branches of one `#if` open or close
        different numbers of braces (two heads for one body), all but the first.
        """
        spans: list[tuple[int, int]] = []
        stack: list[list[Directive]] = []
        for directive in self.directives:
            if directive.word in ("if", "ifdef", "ifndef"):
                stack.append([directive])
            elif directive.word in ("else", "elif", "elifdef", "elifndef") and stack:
                stack[-1].append(directive)
            elif directive.word == "endif" and stack:
                group = [*stack.pop(), directive]
                branches = [(one.end, two.start) for one, two in pairwise(group)]
                condition = group[0].rest.strip("() \t") if group[0].word == "if" else ""
                if condition in ("0", "false"):
                    spans.append(branches[0])
                elif condition in ("1", "true") or (len(branches) > 1 and any(map(self._unbalanced, branches))):
                    spans += branches[1:]
        return spans

    def _unbalanced(self, span: tuple[int, int]) -> bool:
        first, last = (bisect_left(self.tokens, place, key=_START) for place in span)
        braces = Counter(token.text for token in self.tokens[first:last])
        return braces["{"] != braces["}"]

    def leave_out(self, spans: Sequence[tuple[int, int]]) -> None:
        """Drop the tokens that start within spans."""
        for start, end in spans:
            first, last = (bisect_left(self.tokens, place, key=_START) for place in (start, end))
            del self.tokens[first:last]

    def head(self, position: int) -> tuple[list[Token], int]:
        """The tokens of a declaration up to its ';', '{' or a scope's '}', and that one's index."""
        depth = 0
        for index in range(position, len(self.tokens)):
            text = self.tokens[index].text
            if text in "([":
                depth += 1
            elif text in ")]":
                depth = max(depth - 1, 0)
            elif depth == 0 and text in ("{", "}", ";"):
                return self.tokens[position:index], index
        return self.tokens[position:], len(self.tokens)

    def matching(self, position: int) -> int:
        """The index of the brace that closes the one at `position`, or the last token where the file ends before."""
        depth = 0
        for index in range(position, len(self.tokens)):
            depth += {"{": 1, "}": -1}.get(self.tokens[index].text, 0)
            if depth == 0:
                return index
        return len(self.tokens) - 1

    def is_label(self, position: int) -> bool:
        """Whether `public:` or the like stands here."""
        words = [token.text for token in self.tokens[position : position + 2]]
        return words[1:] == [":"] and words[0] in ("public", "protected", "private")


def opens_scope(words: Sequence[str]) -> bool:
    """Return whether the words before a brace open a namespace or an `extern "C"`."""
    if list(words) == ["extern", '"C"'] or list(words) == ["extern", '"C++"']:
        return True
    return words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"]


# Words ----------------------------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """Return the lexemes of a text, comments left out."""
    found = ((match, str(match.lastgroup)) for match in _LEXEME.finditer(text))
    return [match[kind] for match, kind in found if kind not in ("blank", "comment")]


def spell(words: Iterable[str]) -> str:
    """Words in one spelling: a space between names and behind commas, none elsewhere."""
    text = ""
    for word in words:
        gap = text[-1:].isalnum() or text[-1:] in ("_", ">")
        if text and (text[-1] == "," or (gap and (word[0].isalnum() or word[0] in "_("))):
            text += " "
        text += word
    return text


def split(words: Sequence[str], separator: str) -> list[list[str]]:
    """Split at separators outside all brackets, angle ones included; a shift opens none."""
    parts: list[list[str]] = [[]]
    depth = 0
    for index, word in enumerate(words):
        shift = word == "<" and "<" in (*words[max(index - 1, 0) : index], *words[index + 1 : index + 2])
        if word in ("(", "[", "{", "<") and not shift:
            depth += 1
        elif word in (")", "]", "}", ">") and depth > 0:
            depth -= 1
        if word == separator and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def closing_bracket(words: Sequence[str], position: int) -> int:
    """The index of what closes the bracket at `position`, or of the last word where nothing does."""
    opening, closing, depth = words[position], _BRACKETS[words[position]], 0
    for index in range(position, len(words)):
        depth += (words[index] == opening) - (words[index] == closing)
        if depth == 0:
            return index
    return len(words) - 1


def closing_angle(words: Sequence[str], position: int) -> int:
    """The '>' that closes the '<' at `position`; comparisons of a default stand in brackets, as C++ demands."""
    depth, index = 0, position
    while index < len(words):
        if words[index] in _BRACKETS:
            index = closing_bracket(words, index)
        depth += {"<": 1, ">": -1}.get(words[index], 0)
        if depth == 0:
            return index
        index += 1
    return len(words) - 1


def opening_angle(words: Sequence[str], position: int) -> int:
    """The index of the '<' that the '>' at `position` closes, or 0 where there is none."""
    depth = 0
    for index in range(position, -1, -1):
        depth += {">": 1, "<": -1}.get(words[index], 0)
        if depth == 0:
            return index
    return 0
