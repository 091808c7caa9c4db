"""The constants of a source file, read from its `#define`s, so that the host's rules need not repeat them.

A constant that a user may set stands in the file as

    #ifndef STAGES
    #define STAGES 3  // steps whose tiles are in shared memory
    #endif

and what follows from it as a plain `#define`. Both are whole numbers by C's arithmetic, which is what is evaluated
here: integers, `sizeof(T)`, casts, other constants, macros with parameters, comparisons and the conditional operator.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from cudabench.source.words import macros_of, without_remarks


@dataclass(frozen=True)
class Macro:
    """A `#define`: its parameters (None for a constant), its text, and whether `#ifndef` lets a user set it."""

    text: str
    parameters: tuple[str, ...] | None = None
    guarded: bool = False


class NotANumber(ValueError):
    """Raised for a text that is not a constant whole number."""


_GUARDED = re.compile(
    r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n[ \t]*#[ \t]*define[ \t]+\1\b.*\n[ \t]*#[ \t]*endif\b", re.M
)


@lru_cache(maxsize=32)
def read(text: str) -> Mapping[str, Macro]:
    """Return the macros of a source text by name; of several definitions of one name the first."""
    plain = without_remarks(text)
    guarded, code = set(_GUARDED.findall(plain)), set(re.findall(r"#[ \t]*define[ \t]+(\w+).*\\\n", plain))
    found: dict[str, Macro] = {}
    for name, parameters, body in macros_of(plain):
        names = tuple(part.strip() for part in parameters[1:-1].split(",")) if parameters else None
        if name not in code:  # over several lines stands code
            found.setdefault(name, Macro(body or "1", names, name in guarded))
    return found


@dataclass(frozen=True)
class Constants:
    """The constants in force: a file's macros, and the texts that the command line defines in their place.

    `itemsize` is that of T. Indexing evaluates: KeyError for an unknown name, NotANumber for what has no value.
    """

    macros: Mapping[str, Macro]
    given: Mapping[str, str]
    itemsize: int
    _known: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict, compare=False, repr=False)

    def __getitem__(self, name: str) -> int:
        return self._value(name, self._text(name), {}, ())

    def call(self, name: str, *arguments: int) -> int:
        """Return the value of a macro with parameters."""
        macro = self.macros[name]
        values = dict(zip(macro.parameters or (), arguments, strict=True))
        return self._value(name, macro.text, values, ())

    def evaluate(self, text: str) -> int:
        """Return the value of an expression over the constants."""
        return self._evaluate(text, {}, ())

    def _text(self, name: str) -> str:
        if name in self.given:
            return self.given[name]
        return self.macros[name].text

    def _value(self, name: str, text: str, values: Mapping[str, int], inside: tuple[str, ...]) -> int:
        """Return the value of a macro, evaluated once: those that are made of others twice would double the time."""
        key = name, tuple(values.values())
        if key not in self._known:
            self._known[key] = self._evaluate(text, values, (*inside, name))
        return self._known[key]

    def _evaluate(self, text: str, values: Mapping[str, int], inside: tuple[str, ...]) -> int:
        def lookup(name: str, arguments: Sequence[int] | None) -> int:
            if name == "sizeof":  # of a type in brackets; only T has a size here
                return self.itemsize
            if arguments is None and name in values:
                return values[name]
            if name in inside[1:] or len(inside) > 64:
                raise NotANumber(f"{name} is defined by itself")
            if name not in self.given and name not in self.macros:
                raise NotANumber(f"{name} is not a constant")
            macro = None if name in self.given else self.macros[name]
            if arguments is None:
                return self._value(name, self._text(name), {}, inside)
            if macro is None or macro.parameters is None or len(macro.parameters) != len(arguments):
                raise NotANumber(f"{name} is called with {len(arguments)} arguments")
            return self._value(name, macro.text, dict(zip(macro.parameters, arguments, strict=True)), inside)

        tree = _parsed(text)
        try:
            return tree(lookup)
        except (ZeroDivisionError, OverflowError, ValueError, RecursionError) as error:
            raise NotANumber(f"'{text}' has no value ({error})") from None


# C's arithmetic of whole numbers ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*(?![\w.])|(\w+)|(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^~!?:(),]))"
)
_TYPE_WORDS = frozenset(["int", "unsigned", "signed", "long", "short", "char", "size_t", "const", "bool"])
Lookup = Callable[[str, Sequence[int] | None], int]  # the value of a name, or of a macro with arguments
Value = Callable[[Lookup], int]


@lru_cache(maxsize=1024)  # the same few texts are asked for at each launch
def _parsed(text: str) -> Value:
    """Return what evaluates an expression; parts that C would not evaluate are not. Raises NotANumber."""
    return _Parser(text).value()


class _Parser:
    """An expression on its way to what evaluates it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan(text))
        self._at = 0

    def value(self) -> Value:
        """Return the whole text's value. Raises NotANumber."""
        try:
            tree = self._conditional()
        except (RecursionError, ValueError):  # also of a number with thousands of digits
            raise self._wrong() from None
        if self._at != len(self._tokens):
            raise self._wrong()
        return tree

    def _scan(self, text: str) -> Iterator[str]:
        at, text = 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong()
            at = match.end()
            yield match[1] or match[2] or match[3]

    def _wrong(self) -> NotANumber:
        return NotANumber(f"'{self._text}' is not a whole number")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, token: str | None = None) -> str:
        found = self._peek()
        if not found or token not in (None, found):
            raise self._wrong()
        self._at += 1
        return found

    def _conditional(self) -> Value:
        test = self._binary(0)
        if self._peek() != "?":
            return test
        self._take()
        yes = self._conditional()
        self._take(":")
        no = self._conditional()
        return lambda lookup: yes(lookup) if test(lookup) else no(lookup)

    def _binary(self, least: int) -> Value:
        """Return the value of operators that bind at least as closely as given."""
        left = self._unary()
        while (found := _OPERATORS.get(self._peek())) and found[0] >= least:
            left = _joined(self._take(), left, self._binary(found[0] + 1))
        return left

    def _unary(self) -> Value:
        token = self._take()
        if token in "-+~!":
            inner = self._unary()
            return {
                "-": lambda lookup: -inner(lookup),
                "+": inner,
                "~": lambda lookup: ~inner(lookup),
                "!": lambda lookup: int(not inner(lookup)),
            }[token]
        if token == "(":
            if self._cast():
                return self._unary()
            inner = self._conditional()
            self._take(")")
            return inner
        if token[0].isdigit():
            number = int(token, 16) if token[:2] in ("0x", "0X") else int(token)
            return lambda lookup: number
        if not (token[0].isalpha() or token[0] == "_"):
            raise self._wrong()
        if token == "sizeof":
            self._take("(")
            if self._take() != "T":
                raise self._wrong()
            self._take(")")
            return lambda lookup: lookup("sizeof", None)
        if self._peek() != "(":
            return lambda lookup: lookup(token, None)
        self._take()
        arguments = [self._conditional()]
        while self._peek() == ",":
            self._take()
            arguments.append(self._conditional())
        self._take(")")
        return lambda lookup: lookup(token, [argument(lookup) for argument in arguments])

    def _cast(self) -> bool:
        """Step over `int)` and the like behind an opening bracket, and tell whether it was there."""
        end = self._at
        while end < len(self._tokens) and self._tokens[end] in _TYPE_WORDS:
            end += 1
        if end == self._at or end == len(self._tokens) or self._tokens[end] != ")":
            return False
        self._at = end + 1
        return True


def _quotient(a: int, b: int) -> int:
    """Divide as C does: cut towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# How closely each binds, and its value; those of || and && are in `_joined`.
_OPERATORS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (0, operator.or_),
    "&&": (1, operator.and_),
    "|": (2, operator.or_),
    "^": (3, operator.xor),
    "&": (4, operator.and_),
    "==": (5, operator.eq),
    "!=": (5, operator.ne),
    "<": (6, operator.lt),
    ">": (6, operator.gt),
    "<=": (6, operator.le),
    ">=": (6, operator.ge),
    "<<": (7, lambda a, b: a << min(b, 64)),
    ">>": (7, operator.rshift),
    "+": (8, operator.add),
    "-": (8, operator.sub),
    "*": (9, operator.mul),
    "/": (9, _quotient),
    "%": (9, lambda a, b: a - _quotient(a, b) * b),
}


def _joined(sign: str, left: Value, right: Value) -> Value:
    """Return an operation on two values; macros that square each other would fill the memory."""
    if sign == "&&":
        return lambda lookup: int(bool(left(lookup)) and bool(right(lookup)))
    if sign == "||":
        return lambda lookup: int(bool(left(lookup)) or bool(right(lookup)))

    def value(lookup: Lookup) -> int:
        found = int(_OPERATORS[sign][1](left(lookup), right(lookup)))
        if abs(found) >> 128:
            raise OverflowError("a number in it has over 128 bits")
        return found

    return value
