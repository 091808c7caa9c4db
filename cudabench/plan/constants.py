"""Evaluates the constants that a source file defines with `#define`, so that Python code need not repeat the numbers.

A constant that a user may set has the form

    #ifndef STAGES
    #define STAGES 3  // steps whose tiles are in shared memory
    #endif

and a constant that is computed from other constants is a `#define` without `#ifndef`. All constants are whole numbers.
This module evaluates the text of a constant as C does: integers, `sizeof(T)`, casts, other constants, macros with
parameters, arithmetic, comparisons and the conditional operator.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from cudabench.source.words import macros_of, without_comments


@dataclass(frozen=True)
class Macro:
    """A `#define`: its parameters (None for a constant), its text, and whether `#ifndef` lets a user set it."""

    text: str
    parameters: tuple[str, ...] | None = None
    guarded: bool = False


class NotANumber(ValueError):
    """The text is not a constant whole number."""


_GUARDED = re.compile(
    r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n[ \t]*#[ \t]*define[ \t]+\1\b.*\n[ \t]*#[ \t]*endif\b", re.M
)


@lru_cache(maxsize=32)
def read_macros(text: str) -> Mapping[str, Macro]:
    """Return the macros of a source text by name; if a name is defined several times, the first definition."""
    plain = without_comments(text)
    guarded, code = set(_GUARDED.findall(plain)), set(re.findall(r"#[ \t]*define[ \t]+(\w+).*\\\n", plain))
    macros: dict[str, Macro] = {}
    for name, parameters, body in macros_of(plain):
        names = tuple(parameter.strip() for parameter in parameters[1:-1].split(",")) if parameters else None
        if name not in code:  # `code`: the macros of several lines; they contain code, not a number
            macros.setdefault(name, Macro(body or "1", names, name in guarded))
    return macros


@dataclass(frozen=True)
class Constants:
    """The constants of a file. `macros`: the file's macros; `given`: definitions that replace macros of the file.

    `itemsize`: the value of sizeof(T). `constants[name]` evaluates a constant; this raises KeyError for an unknown
    name, and NotANumber if the constant is not a number.
    """

    macros: Mapping[str, Macro]
    given: Mapping[str, str]
    itemsize: int
    _cache: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict, compare=False, repr=False)

    def __getitem__(self, name: str) -> int:
        return self._value(name, self._macro(name).text, {}, ())

    def call(self, name: str, *arguments: int) -> int:
        """Return the value of a macro with parameters."""
        macro = self.macros[name]
        return self._value(name, macro.text, dict(zip(macro.parameters or (), arguments, strict=True)), ())

    def evaluate(self, text: str) -> int:
        """Return the value of an expression that may use the constants."""
        return self._evaluate(text, {}, ())

    def _macro(self, name: str) -> Macro:
        return Macro(self.given[name]) if name in self.given else self.macros[name]

    def _value(self, name: str, text: str, values: Mapping[str, int], active: tuple[str, ...]) -> int:
        """Return the value of a macro, from a cache. Without the cache, the time would double with each level of macros
        that use another macro twice."""
        key = name, tuple(values.values())
        if key not in self._cache:
            self._cache[key] = self._evaluate(text, values, (*active, name))
        return self._cache[key]

    def _evaluate(self, text: str, values: Mapping[str, int], active: tuple[str, ...]) -> int:
        def lookup(name: str, arguments: Sequence[int] | None) -> int:
            if name.endswith(")"):  # only sizeof(T) ends with a bracket
                return self.itemsize
            if arguments is None and name in values:
                return values[name]
            if name in active[1:] or len(active) > 64:
                raise NotANumber(f"{name} is defined by itself")
            if name not in self.given and name not in self.macros:
                raise NotANumber(f"{name} is not a constant")
            macro, bound = self._macro(name), {}
            if arguments is not None:
                if macro.parameters is None or len(macro.parameters) != len(arguments):
                    raise NotANumber(f"{name} is called with {len(arguments)} arguments")
                bound = dict(zip(macro.parameters, arguments, strict=True))
            return self._value(name, macro.text, bound, active)

        tree = _parsed(text)
        try:
            return tree(lookup)
        except (ZeroDivisionError, OverflowError, ValueError, RecursionError) as error:
            raise NotANumber(f"'{text}' lacks a value ({error})") from None


# C's arithmetic of whole numbers ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*(?![\w.])|(sizeof\s*\(\s*T\s*\)|(?!sizeof\b)\w+)"
    r"|(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^~!?:(),]))"
)
_CAST = re.compile(r"(?<!\w)\((?:\s*\b(?:int|unsigned|signed|long|short|char|size_t|const|bool)\b)+\s*\)")
# Returns the value of a name, or of a macro that is called with arguments.
Lookup = Callable[[str, Sequence[int] | None], int]
Value = Callable[[Lookup], int]


@lru_cache(maxsize=1024)  # all launches need the same few expressions
def _parsed(text: str) -> Value:
    """Parse an expression and return a function that evaluates the expression. As in C, operands that are not needed
    are not evaluated. Raises NotANumber for a text that is not an expression."""
    fault = NotANumber(f"'{text}' is not a whole number")
    try:
        parser = _Parser(_CAST.sub(" ", text).strip())
        tree = parser.conditional()
    except (RecursionError, ValueError):  # a number with thousands of digits raises ValueError
        raise fault from None
    if parser.tokens:
        raise fault
    return tree


class _Parser:
    """Parses an expression into functions that evaluate it. `tokens`: the remaining tokens, in reverse order.

    Raises ValueError for a text that is not an expression.
    """

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError
            at = match.end()
            self.tokens.append(match[1] or match[2] or match[3])
        self.tokens.reverse()

    def _peek(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def _take(self, token: str = "") -> str:
        if not self.tokens or token not in ("", self.tokens[-1]):
            raise ValueError
        return self.tokens.pop()

    def conditional(self) -> Value:
        """Parse an expression, up to a comma or closing parenthesis, and return a function that evaluates it."""
        test = self._binary(0)
        if self._peek() != "?":
            return test
        self._take()
        yes = self.conditional()
        self._take(":")
        no = self.conditional()
        return lambda lookup: yes(lookup) if test(lookup) else no(lookup)

    def _binary(self, least: int) -> Value:
        """Parse binary operators of at least the precedence `least`, and return a function that evaluates them."""
        left = self._unary()
        while (entry := _OPERATORS.get(self._peek())) and entry[0] >= least:
            left = _binary_operation(self._take(), left, self._binary(entry[0] + 1))
        return left

    def _unary(self) -> Value:
        token = self._take()
        if token in _SIGNS:
            sign, inner = _SIGNS[token], self._unary()
            return lambda lookup: sign(inner(lookup))
        if token == "(":
            inner = self.conditional()
            self._take(")")
            return inner
        if token[0].isdigit():
            number = int(token, 16) if token[:2] in ("0x", "0X") else int(token)
            return lambda lookup: number
        if not (token[0].isalpha() or token[0] == "_"):
            raise ValueError
        if self._peek() != "(":
            return lambda lookup: lookup(token, None)
        self._take()
        arguments = [self.conditional()]
        while self._peek() == ",":
            self._take()
            arguments.append(self.conditional())
        self._take(")")
        return lambda lookup: lookup(token, [argument(lookup) for argument in arguments])


_SIGNS: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "!": lambda value: int(not value),
}


def _quotient(a: int, b: int) -> int:
    """Divide as C does: the quotient is truncated towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# For each operator: (precedence, function that computes the result). The functions of || and && are not used: see
# `_binary_operation`.
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


def _binary_operation(sign: str, left: Value, right: Value) -> Value:
    """Return a function that evaluates a binary operator. The function raises OverflowError for a number of over 128
    bits; a chain of macros that square each other could make huge numbers."""
    if sign == "&&":
        return lambda lookup: int(bool(left(lookup)) and bool(right(lookup)))
    if sign == "||":
        return lambda lookup: int(bool(left(lookup)) or bool(right(lookup)))

    def value(lookup: Lookup) -> int:
        result = int(_OPERATORS[sign][1](left(lookup), right(lookup)))
        if abs(result) >> 128:
            raise OverflowError("a number in it has over 128 bits")
        return result

    return value
