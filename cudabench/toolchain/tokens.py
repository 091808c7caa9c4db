"""CUDA source text into tokens and directives, for the statements of a function, whose places no compiler tells."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise

# A lexeme with the blanks behind it, so that what is found lies end to end: from its lengths follows where each starts.
# Blanks before a directive are none of these: they are its own, as it begins with its line.
_ANY = r"""
      ^[ \t]*\#(?: \\\n | "(?:\\.|[^"\\\n])*" | /\*.*?\*/ | [^\n] )*
    | (?: RAW [^\W\d]\w* | \.?\d(?:[eEpP][+-]|'?\w|\.)* | REMARK | QUOTED | ::|\S )
      (?: [^\S\n]+ | \n(?![ \t]*\#) )*
    | \n+ | [^\S\n]+
"""
_REMARK = r"""(?: //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) )"""
_QUOTED = r"""(?: "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'? )"""
_RAW = r"""(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)" |"""
_FLAGS = re.X | re.S | re.M
_LEXEME, _LEXEME_OR_RAW = (
    re.compile(_ANY.replace("RAW", raw).replace("REMARK", _REMARK).replace("QUOTED", _QUOTED), _FLAGS)
    for raw in ("", _RAW)
)
_WITH_BLANKS = re.compile(f"{_REMARK} | {_QUOTED}", _FLAGS)
_COMMENT = ("//", "/*")
_LARGE, _HUGE = 1 << 18, 1 << 22  # characters of a text: of few such the tokens are kept, and of none


@dataclass(frozen=True)
class Directive:
    """A line of the preprocessor: its word, the rest without comments, its span in the text."""

    word: str
    rest: str
    start: int
    end: int


@dataclass(frozen=True)
class _Lexed:
    """A text's tokens, each with its start, and its directives; not to be changed."""

    words: list[str]
    starts: list[int]
    directives: list[Directive]

    @functools.cached_property
    def closings(self) -> dict[int, int]:
        """The index of the brace that closes one, by that one's."""
        return _closings(self.words)


def _closings(words: Sequence[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    opened: list[int] = []
    for index in [at for at, word in enumerate(words) if word == "{" or word == "}"]:
        if words[index] == "{":
            opened.append(index)
        elif opened:
            found[opened.pop()] = index
    return found


def _chunks(text: str) -> list[str]:
    """Cut a text into lexemes, each with the blanks behind it."""
    return [match[0] for match in _LEXEME_OR_RAW.finditer(text)] if 'R"' in text else _LEXEME.findall(text)


@functools.lru_cache(maxsize=128)
def _lexed(text: str) -> _Lexed:
    """Cut a text into tokens and directives."""
    return _cut(text)


_lexed_large = functools.lru_cache(maxsize=2)(_lexed.__wrapped__)  # a text, and one more


def _cut(text: str) -> _Lexed:
    chunks = _chunks(text)
    starts = list(accumulate(map(len, chunks), initial=0))
    words = list(map(str.rstrip, chunks))
    directives: list[Directive] = []
    # All else is a token as it is.
    special = {one for one in set(words) if one[:1] in ("", "#", '"', "'", " ", "\t") or one.startswith(_COMMENT)}
    kept = bytearray(b"\1") * len(words)
    for at in [at for at, word in enumerate(words) if word in special]:
        word, start = words[at], starts[at]
        if word[:1] in ('"', "'"):
            words[at] = _without_blanks(chunks[at])
            continue
        if not word.startswith(_COMMENT) and word and (word[0] != "#" or start == 0 or text[start - 1] == "\n"):
            directives.append(_directive(chunks[at], start))
        elif word and not word.startswith(_COMMENT):
            continue  # a '#' within a line
        kept[at] = 0
    return _Lexed(list(compress(words, kept)), list(compress(starts, kept)), directives)


def _without_blanks(chunk: str) -> str:
    """A string or a character without the blanks behind it; one that is not closed ends with its own."""
    match = _WITH_BLANKS.match(chunk)
    assert match is not None
    return match[0]


def _directive(text: str, start: int) -> Directive:
    parts = re.match(r"\s*#\s*(\w*)(.*)", text, re.S)
    assert parts is not None
    rest = re.sub(r"/\*.*?\*/|//.*|\\\n", " ", parts[2], flags=re.S).strip()
    return Directive(parts[1], rest, start, start + len(text))


class Scan:
    """The lexemes of a text in order, and the spans that no compiler sees.

    `words` are its tokens, `starts` where each begins in the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        lexed = _lexed if len(text) <= _LARGE else _lexed_large if len(text) <= _HUGE else _lexed.__wrapped__
        self._lexed = lexed(text)
        self.words, self.starts = list(self._lexed.words), list(self._lexed.starts)
        self.directives = self._lexed.directives
        self._closings: dict[int, int] | None = None

    @functools.cached_property
    def line_starts(self) -> list[int]:
        """Where the lines of the text begin."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

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
        first, last = (bisect_left(self.starts, place) for place in span)
        words = self.words[first:last]
        return words.count("{") != words.count("}")

    def leave_out(self, spans: Sequence[tuple[int, int]]) -> None:
        """Drop the tokens that start within spans."""
        for start, end in spans:
            first, last = (bisect_left(self.starts, place) for place in (start, end))
            if first < last:
                del self.words[first:last], self.starts[first:last]
                self._closings = None

    def matching(self, position: int) -> int:
        """The index of the brace that closes the one at `position`, or the last token where the file ends before."""
        if self._closings is None:
            whole = len(self.words) == len(self._lexed.words)
            self._closings = self._lexed.closings if whole else _closings(self.words)
        return self._closings.get(position, len(self.words) - 1)
