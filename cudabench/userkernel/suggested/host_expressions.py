"""C expressions of host code by their words: operators, casts, calls of functions that only return an expression."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cudabench.toolchain.c_types import SPECIFIERS, numpy_dtype
from cudabench.toolchain.tokens import closing_angle, closing_bracket, spell
from cudabench.userkernel.suggested.host_words import NAME, commas, is_type, literal

if TYPE_CHECKING:
    from cudabench.userkernel.suggested.host_values import Reader

DEPTH = 40  # of names that lead to names

Number = int | float
Value = int | float | tuple[int, int, int]


class Unknown(Exception):
    """An expression that cannot be read, or hangs on what only a run knows."""


UNREAD = (Unknown, ArithmeticError, ValueError, TypeError, IndexError, RecursionError)


_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_MARKS = sorted((mark for level in _LEVELS for mark in level), key=len, reverse=True)


def _divided(a: Number, b: Number) -> Number:
    if b == 0:
        raise Unknown
    if isinstance(a, int) and isinstance(b, int):
        return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    return a / b


def _shifted(a: Number, b: Number, by: Callable[[int, int], int]) -> int:
    if not (isinstance(a, int) and isinstance(b, int) and 0 <= b < 64):
        raise Unknown
    return by(a, b)


def _bits(by: Callable[[int, int], int]) -> Callable[[Number, Number], int]:
    return lambda a, b: by(int(a), int(b))


_BINARY: Mapping[str, Callable[[Number, Number], Number]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "|": _bits(operator.or_),
    "^": _bits(operator.xor),
    "&": _bits(operator.and_),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<<": lambda a, b: _shifted(a, b, operator.lshift),
    ">>": lambda a, b: _shifted(a, b, operator.rshift),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda a, b: a - b * int(_divided(int(a), int(b))),
}
_CALLS: Mapping[str, Callable[..., Number]] = {
    "ceil": lambda x: float(math.ceil(x)),
    "ceilf": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "sqrt": math.sqrt,
    "log2": math.log2,
    "pow": lambda a, b: float(a) ** float(b),
    "min": min,
    "max": max,
    "abs": abs,
}


class Expression:
    """A C expression by words, read once from the left."""

    def __init__(self, reader: Reader, words: list[str], before: int, local: Mapping[str, Value]) -> None:
        self.reader = reader
        self.words = words
        self.before = before
        self.local = local
        self.at = 0

    def whole(self) -> Value:
        """Return the value; Unknown where words are left over."""
        if not self.words:
            raise Unknown
        value = self.ternary()
        if self.at != len(self.words):
            raise Unknown
        return value

    def ternary(self) -> Value:
        """Return the value of `a ? b : c`; where only a run knows which, of the one that can be read."""
        start, known = self.at, True
        try:
            value = self.binary(0)
        except Unknown:
            rest = self.words[start:]
            if "?" not in rest or ":" not in rest:
                raise
            self.at, value, known = start + rest.index("?"), 0, False
        if self.peek() != "?":
            return value
        self.at += 1
        first = self._branch()
        if self.peek() != ":":
            raise Unknown
        self.at += 1
        second = self._branch()
        chosen = first if value and first is not None else second
        if chosen is None or (chosen == 0 and not known):  # 0 stands for what is not there
            raise Unknown
        return chosen

    def _branch(self) -> Value | None:
        try:
            return self.ternary()
        except Unknown:
            depth = 0
            while self.at < len(self.words) and not (depth == 0 and self.words[self.at] in (":", ")", ",")):
                depth += (self.words[self.at] in "([") - (self.words[self.at] in ")]")
                self.at += 1
            return None

    def peek(self) -> str:
        """Return the next word, '' at the end."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def _mark(self) -> str:
        return next((mark for mark in _MARKS if "".join(self.words[self.at : self.at + len(mark)]) == mark), "")

    def binary(self, level: int) -> Value:
        """Return the value of operators of a level and those that bind closer."""
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (mark := self._mark()) in _LEVELS[level]:
            self.at += len(mark)
            right = self.binary(level + 1)
            if isinstance(left, tuple) or isinstance(right, tuple):
                raise Unknown
            left = _BINARY[mark](left, right)
            if isinstance(left, int) and abs(left) >= 1 << 64:
                raise Unknown
        return left

    def unary(self) -> Value:
        """Return the value of what operators stand between: a number, a name, a call, brackets, a cast."""
        word = self.peek()
        self.at += 1
        if word in ("-", "+", "!", "~"):
            value = self.unary()
            if isinstance(value, tuple):
                raise Unknown
            return {"-": -value, "+": value, "!": int(not value), "~": ~int(value)}[word]
        if word == "(":
            close = closing_bracket(self.words, self.at - 1)
            inner = self.words[self.at : close]
            self.at = close + 1
            if is_type(inner) and self.peek() and (self.peek() == "(" or re.match(r"[\w.]", self.peek())):
                return self._cast(inner, self.unary())
            return self._member(self.reader.value(inner, self.before, self.local))
        if re.match(r"\.?\d", word):
            return literal(word)
        if word in ("true", "false"):
            return int(word == "true")
        if not NAME.fullmatch(word):
            raise Unknown
        return self._named(word)

    def _named(self, word: str) -> Value:
        while self.peek() == "::" and self.at + 1 < len(self.words):
            word = self.words[self.at + 1]
            self.at += 2
        if word == "sizeof":
            if self.peek() == "(":
                return self.reader.sizeof(self._brackets(), self.before)
            start, self.at = self.at, self.at + (2 if self.peek() == "*" else 1)
            return self.reader.sizeof(self.words[start : self.at], self.before)
        while word in SPECIFIERS and self.peek() in SPECIFIERS:
            word, self.at = f"{word} {self.peek()}", self.at + 1
        if self.peek() == "<" and word in ("min", "max", "static_cast"):
            end = closing_angle(self.words, self.at)
            kind, self.at = self.words[self.at + 1 : end], end + 1
            if word == "static_cast":
                return self._cast(kind, self.reader.value(self._brackets(), self.before, self.local))
        if self.peek() in ("(", "{") and (self.peek() == "(" or word == "dim3"):
            inner = self._brackets()
            return self._member(self._call(word, inner))
        if word in self.local:
            return self._member(self.local[word])
        if (found := self._of_object(word)) is not None:
            return found
        given = self.reader.spare and self.reader.host.is_given(word, self.reader.site, whole=False)
        if given and (found := self._passed_member()):
            return found
        return self._member(self.reader.name(word, self.before))

    def _of_object(self, name: str) -> Value | None:
        """Return `name.size()` of a container, `name.member` of a struct, `this->name`; None where none stands next or
        can be read."""
        step = 1 if self.peek() == "." else 2 if self.words[self.at : self.at + 2] == ["-", ">"] else 0
        member = "".join(self.words[self.at + step : self.at + step + 1]) if step else ""
        if not NAME.fullmatch(member):
            return None
        start, self.at = self.at, self.at + step + 1
        try:
            if name == "this":
                return self._member(self.reader.name(member, self.before))
            if self.peek() == "(" and member in ("size", "length"):
                self._brackets()
                return self.reader.count(name, self.before)
            if self.peek() != "(" and member not in ("x", "y", "z"):
                return self._member(self.reader.member(name, member, self.before))
        except UNREAD:
            pass
        self.at = start
        return None

    def _passed_member(self) -> int:
        """Return what callers may give for `.size(0)` or `->rows`, where it stands next, 0 for a dim3's `.x`.

        A struct's number is 1, as in the value that a line gives it.
        """
        found = 0
        while True:
            step = 1 if self.peek() == "." else 2 if self.words[self.at : self.at + 2] == ["-", ">"] else 0
            name = self.words[self.at + step : self.at + step + 1]
            if not step or not name or not NAME.fullmatch(name[0]) or name[0] in ("x", "y", "z"):
                return found
            self.at, found = self.at + step + 1, 1
            if self.peek() == "(":
                self._brackets()
                found = self.reader.spare

    def _brackets(self) -> list[str]:
        if self.peek() not in ("(", "{"):
            raise Unknown
        close = closing_bracket(self.words, self.at)
        inner, self.at = self.words[self.at + 1 : close], close + 1
        return inner

    def _call(self, name: str, inner: list[str]) -> Value:
        values = [self.reader.value(part, self.before, self.local) for part in commas(inner)]
        if name == "dim3":
            if len(values) == 1 and isinstance(values[0], tuple):
                return values[0]
            sizes = [int(value) for value in values if not isinstance(value, tuple)] + [1, 1, 1]
            return (sizes[0], sizes[1], sizes[2])
        if name in _CALLS and not any(isinstance(value, tuple) for value in values):
            return _CALLS[name](*values)
        typed = is_type([name]) or " " in name or self.reader.host.callers.type_at(name, self.before)
        if typed and len(values) == 1:
            return self._cast(name.split(), values[0])
        found = self.reader.host.function(name)
        if found is None or len(found[0]) != len(values) or self.reader.depth > DEPTH:
            raise Unknown
        self.reader.depth += 1
        try:
            return self.reader.value(found[1], self.before, dict(zip(found[0], values, strict=True)))
        finally:
            self.reader.depth -= 1

    def _cast(self, kind: list[str], value: Value) -> Value:
        if isinstance(value, tuple):
            raise Unknown
        dtype = numpy_dtype(spell(kind), self.reader.host.aliases) or ""
        return float(value) if dtype.startswith("float") else int(value)

    def _member(self, value: Value) -> Value:
        """Return a dim3's part, where one is asked for."""
        if self.peek() == "." and self.words[self.at + 1 : self.at + 2] in (["x"], ["y"], ["z"]):
            axis = "xyz".index(self.words[self.at + 1])
            self.at += 2
            return value[axis] if isinstance(value, tuple) else (value if axis == 0 else 1)
        return value
