"""The preprocessor's work on a source and the headers of the user's own, so that the reader sees what a compiler does.

Kernels that macros write or that stand in headers, types that an `#if` chooses. Only for reading: what is compiled is
the file itself. CUDA's headers and the host's are left out, so a condition takes what they define as undefined.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudabench import outputs
from cudabench.toolchain.tokens import put_together

MOST_WORDS = 500_000  # of the result: some thirty thousand lines
MOST_FILES = 64
_DEPTH = 100  # of macros in macros, and of files in files
# What nvcc and NVRTC define. A kernel's signature hardly hangs on more.
_PREDEFINED = {
    "__CUDACC__": "1",
    "__NVCC__": "1",
    "__CUDA_ARCH__": "900",
    "__CUDACC_VER_MAJOR__": "13",
    "__CUDACC_VER_MINOR__": "0",
    "CUDART_VERSION": "13000",
    "CUDA_VERSION": "13000",
    "__cplusplus": "201703L",
    "__linux__": "1",
    "__x86_64__": "1",
    "__GNUC__": "13",
    "__LINE__": "0",
    "__FILE__": '""',
    "__COUNTER__": "0",
}
_WORD = re.compile(
    r"""
      (?P<gone>   //[^\n]* | /\*.*?(?:\*/|\Z) | [ \t\r\f\v]+ )
    | (?P<word>   (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
                  | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?
                  | \.?\d(?:[eEpP][+-]|'?\w|\.)* | [^\W\d]\w* | \#\# | :: | && | \|\| | [=!<>]= | \S )
    | (?P<end>    \n )
    """,
    re.X | re.S,
)
_NAME = re.compile(r"[^\W\d]\w*")


class TooMuch(Exception):
    """A text whose expansion is without bounds."""


@dataclass(frozen=True)
class _Macro:
    """`parameters` is None for an object-like macro; a last one '...' takes what is left."""

    body: tuple[str, ...]
    parameters: tuple[str, ...] | None = None

    @functools.cached_property
    def formal(self) -> tuple[str, ...]:
        """The names of the parameters."""
        names = self.parameters or ()
        return names[:-1] if names[-1:] == ("...",) else names

    @functools.cached_property
    def steps(self) -> list[tuple[str, list[str]]]:
        """The body in order: "words" as they are, and parameters: "quoted", "pasted" to others, or a "value"."""
        found: list[tuple[str, list[str]]] = []
        at = 0
        while at < len(self.body):
            word, behind = self.body[at], self.body[at + 1] if at + 1 < len(self.body) else ""
            at += 1
            if word == "#" and behind in self.formal:
                found.append(("quoted", [behind]))
                at += 1
            elif word in self.formal:
                pasted = "##" in (self.body[at - 2] if at > 1 else "", behind)
                found.append(("pasted" if pasted else "value", [word]))
            elif found and found[-1][0] == "words":
                found[-1][1].append(word)
            else:
                found.append(("words", [word]))
        return found


@dataclass
class _State:
    folders: tuple[Path, ...]
    macros: dict[str, _Macro]
    out: list[list[str]] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    once: set[Path] = field(default_factory=set)
    files: int = 0
    words: int = 0


def expand(text: str, path: str | Path, defines: Mapping[str, str], folders: Sequence[str | Path] = ()) -> str | None:
    """Return a source's text after preprocessing, without comments; None where it is without bounds.

    `folders` are searched for what it includes, after its own; what is in none of them is left out.
    """
    state = _State(tuple(map(Path, folders)), {})
    for name, value in {**_PREDEFINED, **defines}.items():
        _define(state, _lines(f"#define {name} {value or '1'}")[0][2:])
    try:
        _file(state, text, Path(path), 0)
    except (TooMuch, RecursionError):
        return None
    return put_together(state.out)


# Lines and directives ------------------------------------------------------------------------------------------------


def _file(state: _State, text: str, path: Path, depth: int) -> None:
    """Process one file's text."""
    text = re.sub(r"\\\r?\n", "", text)
    conditions: list[list[bool]] = []  # for each open #if: whether this branch holds, and whether one did
    for line in _lines(text):
        if line[:1] != ["#"]:
            if all(holds for holds, _ in conditions):
                state.pending += [*line, "\n"]
            continue
        word, rest = (line[1] if len(line) > 1 else ""), line[2:]
        outer = all(holds for holds, _ in conditions[:-1])
        if word in ("if", "ifdef", "ifndef"):
            holds = all(holds for holds, _ in conditions) and _holds(state, word, rest, path)
            conditions.append([holds, holds])
        elif word in ("elif", "elifdef", "elifndef", "else") and conditions:
            had = conditions[-1][1]
            holds = outer and not had and (word == "else" or _holds(state, word.removeprefix("el"), rest, path))
            conditions[-1] = [holds, had or holds]
        elif word == "endif" and conditions:
            conditions.pop()
        elif all(holds for holds, _ in conditions):
            if word == "define":
                _flush(state)
                _define(state, rest)
            elif word == "undef" and rest:
                _flush(state)
                state.macros.pop(rest[0], None)
            elif word == "pragma" and rest[:1] == ["once"]:
                state.once.add(path.resolve())
            elif word in ("include", "include_next"):
                _flush(state)
                _include(state, rest, path, depth)
    if depth == 0:
        _flush(state)


@functools.lru_cache(maxsize=128)  # a header is read again with other macros and folders
def _lines(text: str) -> tuple[list[str], ...]:
    """The words of each line, not to be changed; a comment over several lines is a space."""
    return tuple(_words_by_line(text))


def _words_by_line(text: str) -> Iterator[list[str]]:
    line: list[str] = []
    previous = -1
    for match in _WORD.finditer(text):
        if match["end"] is not None:
            yield line
            line = []
        elif match["word"] is not None:
            # `#define f (x)` is no macro with a parameter: the gap is kept as a word.
            gap = len(line) == 3 and line[:2] == ["#", "define"] and match["word"] == "(" and previous != match.start()
            line += ["", match["word"]] if gap else [match["word"]]
            previous = match.end()
    yield line


def _define(state: _State, words: Sequence[str]) -> None:
    """Enter a macro: `N 3`, `F ( x , y ) x + y`."""
    if not words or not _NAME.fullmatch(words[0]):
        return
    if words[1:2] != ["("] or ")" not in words:
        state.macros[words[0]] = _Macro(tuple(word for word in words[1:] if word))
        return
    closing = words.index(")")
    formal = [word for word in words[2:closing] if word not in (",", ".")]
    if "." in words[2:closing]:  # `...` takes the rest, as __VA_ARGS__ or under the name before it
        formal += ["..."] if words[closing - 4 : closing - 3] not in ([","], ["("]) else ["__VA_ARGS__", "..."]
    state.macros[words[0]] = _Macro(tuple(words[closing + 1 :]), tuple(formal))


def _include(state: _State, rest: Sequence[str], path: Path, depth: int) -> None:
    """Process a file of the user's own in the place of its name."""
    name = _included(_expanded(state, list(rest), frozenset(), 0) if rest and _NAME.match(rest[0]) else rest)
    found = _find(state, name, path)
    if found is None or found.resolve() in state.once:
        return
    state.files += 1
    if state.files > MOST_FILES or depth >= _DEPTH:
        raise TooMuch
    outputs.note_read(found)
    try:
        text = found.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError:
        return
    _file(state, text, found, depth + 1)


def _included(words: Sequence[str]) -> str:
    text = "".join(words)
    match = re.match(r'"([^"]+)"|<([^>]+)>', text)
    return (match[1] or match[2]) if match else ""


def _find(state: _State, name: str, path: Path) -> Path | None:
    if not name or Path(name).is_absolute():
        return None
    return next((one for folder in (path.parent, *state.folders) if (one := folder / name).is_file()), None)


# Macros --------------------------------------------------------------------------------------------------------------


def _flush(state: _State) -> None:
    """Put what was read since the last change of the macros into the result."""
    words = _expanded(state, state.pending, frozenset(), 0)
    state.pending = []
    state.out.append(words)


def _count(state: _State, words: Sequence[str]) -> None:
    state.words += len(words)
    if state.words > MOST_WORDS:
        raise TooMuch


def _expanded(state: _State, words: list[str], hidden: frozenset[str], depth: int) -> list[str]:
    """Words with all macros replaced but the hidden ones."""
    if depth > _DEPTH:
        raise TooMuch
    _count(state, words)
    if state.macros.keys().isdisjoint(words):
        return list(words)
    out: list[str] = []
    at = inserted = 0
    named = deque(index for index, word in enumerate(words) if word in state.macros)
    while named:
        place = named.popleft() + inserted
        if place < at:  # an argument
            continue
        out += words[at:place]
        word, at = words[place], place + 1
        macro = state.macros[word]
        if word in hidden:
            out.append(word)
            continue
        if macro.parameters is None:
            body = _pasted(list(macro.body))
        else:
            opening = next((index for index in range(at, len(words)) if words[index] != "\n"), len(words))
            arguments, end = _arguments(words, opening)
            if arguments is None:
                out.append(word)
                continue
            at = end
            body = _substituted(state, macro, arguments, hidden, depth)
        body = _expanded(state, body, hidden | {word}, depth + 1)
        last = state.macros.get(body[-1]) if body and body[-1] not in hidden | {word} else None
        if last is not None and last.parameters is not None and words[at : at + 1] == ["("]:
            words[at:at] = [body.pop()]  # its arguments stand behind the macro that gave its name
            inserted += 1
            named.appendleft(at - inserted)
        out += body
    return out + words[at:]


def _arguments(words: Sequence[str], opening: int) -> tuple[list[list[str]] | None, int]:
    """The arguments between the brackets at `opening`, and the index behind; None where there are no brackets."""
    if opening >= len(words) or words[opening] != "(":
        return None, opening
    arguments: list[list[str]] = [[]]
    depth = 0
    for index in range(opening, len(words)):
        word = words[index]
        if word == "(":
            depth += 1
            if index == opening:
                continue
        elif word == ")":
            depth -= 1
            if depth == 0:
                return arguments, index + 1
        if word == "," and depth == 1:
            arguments.append([])
        elif word != "\n":
            arguments[-1].append(word)
    return None, opening


def _substituted(
    state: _State, macro: _Macro, arguments: list[list[str]], hidden: frozenset[str], depth: int
) -> list[str]:
    """A function-like macro's body with its arguments in it."""
    formal = macro.formal
    if macro.parameters and macro.parameters[-1] == "...":
        fixed = len(formal) - 1
        rest = [word for one in arguments[fixed:] for word in (*one, ",")][:-1]
        arguments = [*arguments[:fixed], rest]
    given = dict(zip(formal, [*arguments, *([] for _ in formal)], strict=False))
    whole: dict[str, list[str]] = {}  # as the body takes them
    body: list[str] = []
    for kind, words in macro.steps:
        if kind == "words":
            body += words
            continue
        (word,) = words
        if kind == "quoted":
            quoted = " ".join(given[word]).replace("\\", "\\\\").replace('"', '\\"')
            body.append(f'"{quoted}"')
        elif kind == "pasted":
            body += given[word] or [""]
        else:
            if word not in whole:
                whole[word] = _expanded(state, list(given[word]), hidden, depth + 1)
            body += whole[word]
    return _pasted(body)


def _pasted(words: list[str]) -> list[str]:
    """Words with those around '##' made one."""
    if "##" not in words:
        return [word for word in words if word]
    out: list[str] = []
    at = 0
    while at < len(words):
        if words[at] == "##" and out and at + 1 < len(words):
            out[-1] += words[at + 1]
            at += 1
        else:
            out.append(words[at])
        at += 1
    return [word for word in out if word]


# Conditions ----------------------------------------------------------------------------------------------------------

_OPERATORS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"<<": lambda a, b: a << min(b, 64) if b >= 0 else 0, ">>": lambda a, b: a >> min(b, 64) if b >= 0 else 0},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0},
)


def _holds(state: _State, word: str, rest: Sequence[str], path: Path) -> bool:
    """Whether the condition of `#if`, `#ifdef` or `#ifndef` holds."""
    if word != "if":
        return bool(rest) and (rest[0] in state.macros) == (word == "ifdef")
    words: list[str] = []
    at = 0
    rest = [one for one in rest if one]
    while at < len(rest):
        one = rest[at]
        if one == "defined":
            bracket = rest[at + 1 : at + 2] == ["("]
            name = rest[at + 1 + bracket : at + 2 + bracket]
            words.append(str(int(bool(name) and name[0] in state.macros)))
            at += 2 + 2 * bracket
        elif one.startswith("__has_include") and ")" in rest[at:]:
            end = rest.index(")", at)
            words.append(str(int(_find(state, _included(rest[at + 2 : end]), path) is not None)))
            at = end + 1
        else:
            words.append(one)
            at += 1
    return bool(_Condition([one for one in _expanded(state, words, frozenset(), 0) if one != "\n"]).value())


class _Condition:
    """The whole number that an expression of `#if` is; what cannot be read is 0, as an unknown name is."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.at = 0

    def value(self) -> int:
        left = self._binary(0)
        if self.words[self.at : self.at + 1] == ["?"]:
            self.at += 1
            first = self.value()
            self.at += self.words[self.at : self.at + 1] == [":"]
            second = self.value()
            return first if left else second
        return left

    def _binary(self, level: int) -> int:
        if level == len(_OPERATORS):
            return self._unary()
        left = self._binary(level + 1)
        while self._operator() in _OPERATORS[level]:
            name = self._operator()
            self.at += len(name) if name in ("<<", ">>") else 1
            left = int(_OPERATORS[level][name](left, self._binary(level + 1)))
            left = left if -(1 << 64) < left < 1 << 64 else 0
        return left

    def _operator(self) -> str:
        two = "".join(self.words[self.at : self.at + 2])
        return two if two in ("<<", ">>") else "".join(self.words[self.at : self.at + 1])

    def _unary(self) -> int:
        word = "".join(self.words[self.at : self.at + 1])
        self.at += 1
        if word in ("!", "-", "+", "~"):
            value = self._unary()
            return {"!": int(not value), "-": -value, "+": value, "~": ~value}[word]
        if word == "(":
            value = self.value()
            self.at += self.words[self.at : self.at + 1] == [")"]
            return value
        if word in ("true", "false"):
            return int(word == "true")
        if _NAME.match(word) and self.words[self.at : self.at + 1] == ["("]:  # __has_builtin(x) and the like
            depth = 0
            while self.at < len(self.words):
                depth += {"(": 1, ")": -1}.get(self.words[self.at], 0)
                self.at += 1
                if depth == 0:
                    break
            return 0
        number = re.fullmatch(r"(0[xX][\da-fA-F']+|0[bB][01']+|[\d']+)[uUlLzZ]*", word)
        if number is None:
            return 0
        digits = number[1].replace("'", "")
        if re.fullmatch(r"0[0-7]+", digits):
            return int(digits, 8)
        return int(digits, 0) if digits[:2].lower() in ("0x", "0b") else int(digits or "0")
