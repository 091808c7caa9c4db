"""Splits C++ text into words (names, numbers, strings, symbols), and joins words to text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from cudabench.source.brackets import listed

_LEXEME = re.compile(
    r"""
      (?P<comment> //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<word>   (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
                  | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?
                  | [^\W\d]\w* | \.?\d(?:[eEpP][+-]|'?\w|\.)* | :: | \S )
    """,
    re.X | re.S,
)
_COMMENT_OR_STRING = re.compile(
    r"""
      (?P<comment> //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<number>   \d(?:'?\w)+ )
    | (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
    | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?
    """,
    re.X | re.S,
)
WORD = re.compile(r"[^\W\d]\w*")
NAME_USE = re.compile(r"(?<![\w.])(?<!->)[^\W\d]\w*")  # matches a name, but not a member's name after '.' or '->'
# matches a directive; comments must have been removed from the text
DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(\w*)((?:\\\n|[^\n])*)", re.M)
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def words_of(text: str) -> list[str]:
    """Return the words of a text, without comments."""
    return [word for _, word in words_with_positions(text)]


def words_with_positions(text: str) -> list[tuple[int, str]]:
    """Return (position, word) of each word of a text, without comments."""
    return [(match.start(), match["word"]) for match in _LEXEME.finditer(text) if match["word"] is not None]


def without_comments(text: str) -> str:
    """Return a text in which blanks replace comments and the contents of strings; all positions stay the same."""

    def blanked(match: re.Match[str]) -> str:
        lexeme = match[0]
        if match["number"]:
            return lexeme
        return blank(lexeme) if match["comment"] else lexeme[0] + blank(lexeme[1:-1]) + lexeme[-1:] * (len(lexeme) > 1)

    return _COMMENT_OR_STRING.sub(blanked, text)


def blank(text: str) -> str:
    """Return blanks of the same length as the text; line ends are kept."""
    return re.sub(r"[^\n]", " ", text)


def macros_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, '(parameters)' or '', replacement text) of each macro that a text without comments defines."""
    for directive in DIRECTIVE.finditer(text):
        macro = re.match(r"[ \t]+(\w+)(\([^)\n]*\))?(.*)", directive[2], re.S) if directive[1] == "define" else None
        if macro:
            yield macro[1], macro[2] or "", macro[3].replace("\\\n", " ").strip()


def join_words(words: Iterable[str]) -> str:
    """Join words to text, with spaces only between names and after commas."""
    text = ""
    for word in words:
        gap = text[-1:].isalnum() or text[-1:] in ("_", ">")
        if text and (text[-1] == "," or (gap and (word[0].isalnum() or word[0] in "_("))):
            text += " "
        text += word
    return text


def respelled(text: str) -> str:
    """Return a text in the spelling of `join_words`: 'float *' becomes 'float*'."""
    return join_words(words_of(text))


def listed_words(text: str) -> list[str]:
    """Return the parts between commas, such as template arguments or types, each in the spelling of `join_words`."""
    return list(map(respelled, listed(without_comments(text), angles=True)))


def closing_bracket(words: Sequence[str], position: int) -> int:
    """Return the index of the bracket that closes the one at `position`; without it, the index of the last word."""
    opening, closing = words[position], _BRACKETS[words[position]]
    steps = ((words[index] == opening) - (words[index] == closing) for index in range(position, len(words)))
    return next((position + at for at, depth in enumerate(accumulate(steps)) if depth == 0), len(words) - 1)
