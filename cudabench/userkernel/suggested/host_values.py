"""The values of host code's expressions: of a launch's grid and block, its numbers, and its arrays' bytes."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType

from cudabench.toolchain.c_types import SPECIFIERS, numpy_dtype, vector_type
from cudabench.toolchain.tokens import closing_angle, closing_bracket, spell
from cudabench.userkernel.suggested import containers
from cudabench.userkernel.suggested.allocations import allocations, extent
from cudabench.userkernel.suggested.function_calls import chains
from cudabench.userkernel.suggested.host_code import Head, HostCode, Site, pitch_of
from cudabench.userkernel.suggested.host_words import NAME, commas, is_type, last_name, literal, pointed, without_cast

DEPTH = 40  # of names that lead to names
UP = "^"  # before a name that is one of the place where the launch's function is called
_HOPS = 8  # of pointers that are others
_OTHERS = 8  # functions that may allocate what a launch is given
_MADE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"make_cudaPitchedPtr": ("ptr", "pitch", "xsize", "ysize"), "make_cudaExtent": ("width", "height", "depth")}
)
_LOOKS = 1000  # at names of one launch: each may be set in several places, whose names may too

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


class Reader:
    """The values of a launch's expressions; `fixed` are names whose value is given."""

    def __init__(self, host: HostCode, site: Site, fixed: Mapping[str, Value], spare: int = 0) -> None:
        """Take the host code, the launch, and names with their values; `spare` is what callers may give for a name or
        a member of which nothing is said, 0 where it shall be unknown."""
        self.host = host
        self.site = site
        self.fixed = fixed
        self.spare = spare
        self.depth = 0
        self.looks = 0

    def number(self, words: list[str]) -> Number | None:
        """Return an expression's value, None where it cannot be read or is no number."""
        try:
            value = self.value(words, self.site.visible[1])
        except UNREAD:
            return None
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    def geometry(self, words: list[str]) -> tuple[int, int, int] | None:
        """Return a grid or a block."""
        try:
            value = self.value(words, self.site.visible[1])
        except UNREAD:
            return None
        sizes = value if isinstance(value, tuple) else (int(value), 1, 1)
        return sizes if all(0 < size < 1 << 31 for size in sizes) else None

    @cached_property
    def outer(self) -> Reader | None:
        """The values where the launch's function is called, None where nothing calls it."""
        if self.site.caller is None:
            return None
        fixed = {name[1:]: value for name, value in self.fixed.items() if name[0] == UP}
        return Reader(self.host, self.site.caller, fixed)

    def allocated(self, words: list[str], depth: int = 0) -> int | None:
        """Return the bytes of the array that an argument is, or points into."""
        name = pointed(words)
        self.looks += 1
        if not name or depth > _HOPS or self.looks > _LOOKS:
            return None
        if found := self._allocated_as(name, self.site):
            return found
        defined = self.host.definitions(name, self.site, self.site.visible[1])
        for _, value in reversed(defined):
            if pointed(value) not in ("", name) and (found := self.allocated(value, depth + 1)):
                return found
        if name in self.site.given and self.outer:
            return self.outer.allocated(self.site.given[name], depth + 1)
        return self._allocated_by_others(name)

    def _allocated_as(self, name: str, site: Site) -> int | None:
        """Return the bytes that an allocation before a place gives an array, or a container's elements take."""
        for at, size in reversed(allocations(self.host, name, site)):
            value = self._tried(size, at)
            if isinstance(value, int | float) and 0 < value < 1 << 40:
                return int(value)
        found = containers.find(self.host, name, site)
        if found is None or not found.on_device:
            return None
        try:
            count, width = self.count(name, site.visible[1]), self.sizeof(found.element, site.visible[1])
        except UNREAD:
            return None
        return count * width or None

    def _allocated_by_others(self, name: str) -> int | None:
        """Return the bytes that other functions allocate: for a name outside of all functions, or for one whose address
        a function of the text is given before the launch."""
        for at, function, inner in self.host.address_takers(name, self.site):
            for body in self.host.functions(function):
                head = self.host.head_at(body[1])
                taken = [order for order, words in enumerate(inner) if pointed(words) == name]
                if head and taken and len(inner) <= len(head.parameters):
                    visible = (self.site.visible[0], at)
                    caller = Site([], [], [], visible, caller=self.site.caller, given=self.site.given)
                    given = dict(zip(head.parameters, inner, strict=False))
                    site = Site([], [], [], body, caller=caller, given=given)
                    own = Reader(self.host, site, {UP + one: value for one, value in self.fixed.items()})
                    if found := own._allocated_as(head.parameters[taken[0]], site):
                        return found
        for span in self.host.sharing(name, self.site)[:_OTHERS]:
            for site in chains(self.host, Site([], [], [], span)):
                if found := Reader(self.host, site, {})._allocated_as(name, site):
                    return found
        return None

    def _tried(self, words: list[str], before: int) -> Value | None:
        try:
            return self.value(words, before)
        except UNREAD:
            return None

    def name(self, name: str, before: int) -> Value:
        """Return what a name stands for at a place; the last value that can be read. One with a mark for each call
        between is looked up where the launch's function is called."""
        if name[0] == UP:
            if self.outer is None:
                raise Unknown
            return self.outer.name(name[1:], self.outer.site.visible[1])
        if name in self.fixed:
            return self.fixed[name]
        if name == "argc":
            return 1
        self.depth += 1
        self.looks += 1
        try:
            if self.depth > DEPTH or self.looks > _LOOKS:
                raise Unknown
            if self.host.counted_up(name, self.site, before):
                raise Unknown
            parts = self.host.members(name, self.site, before)
            found = self._defined(name, before)
            if found is not None:
                return self._changed(found, parts) if parts else found
            if parts:
                return self._changed((1, 1, 1), parts)
            if (number := self.host.callers.value(name, before)) is not None:
                return number
            if self.spare and self.host.is_given(name, self.site):
                return self.spare
            raise Unknown
        finally:
            self.depth -= 1

    def _defined(self, name: str, before: int) -> Value | None:
        """Return the last value that can be read of a name: what its function sets, a caller gives, or the default."""
        found = self.host.definitions(name, self.site, before)
        passed = self.site.given.get(name) if self.outer else None
        head: Head | None = self.host.head_at(self.site.visible[1]) if passed else None
        for at, words in reversed(found):
            if head and at < head.span[1]:
                continue  # a default, and the caller gives another
            try:
                return self.value(words, at)
            except (Unknown, IndexError):
                continue
        if passed and self.outer:
            return self.outer.value(passed, self.outer.site.visible[1])
        return self._of_class(name, before) if not found else None

    def _of_class(self, name: str, before: int) -> Value | None:
        """Return what another function of the launch's class says: a member that it sets, or a parameter of it."""
        head, here = self.host.head_at(before), self.host.head_at(self.site.visible[1])
        if head and here and head.span != here.span and name in head.parameters:
            own = Site([], [], [], (head.span[0], before))
            for chain in chains(self.host, own):
                words = chain.given.get(name, head.defaults.get(name, []))
                number = Reader(self.host, chain.caller or own, {}).number(words) if words else None
                if number is not None:
                    return number
        for span in self.host.peers(self.site) if here and here.owner and head == here else ():
            site = Site([], [], [], span)
            for at, words in reversed(self.host.definitions(name, site, span[1])):
                if (value := self._tried(words, at)) is not None:
                    return value
        return None

    def count(self, name: str, before: int) -> int:
        """Return the elements of a container: `std::vector<T> name(words)`, `T name[words]`."""
        if name in self.site.given and self.outer:
            return self.outer.count(pointed(self.site.given[name]), self.outer.site.visible[1])
        found = containers.find(self.host, name, self.site)
        if found is None:
            raise Unknown
        if found.like and found.like != name:
            return self.count(found.like, before)
        count = 1
        for words in found.sides:
            side = self.value(words, found.at)
            if isinstance(side, tuple):
                raise Unknown
            count *= int(side)
        return count

    def members(self, words: list[str]) -> dict[str, Number]:
        """Return what can be read of a struct that is passed by value: its numbers, and the bytes of its arrays, by the
        members' names or, in an initialiser without these, their places."""
        words = without_cast(words)
        if len(words) != 1 or not NAME.fullmatch(words[0]):
            return {}
        name, before = words[0], self.site.visible[1]
        if name in self.site.given and self.outer:
            return self.outer.members(self.site.given[name])
        initial, set_ = self.host.parts_of(name, self.site, before)
        found: dict[str, Number] = {}
        for own, value in initial.items():
            number = self._tried(value, before)
            read = number if isinstance(number, int | float) else self.allocated(value)
            found |= {own: read} if read is not None else {}
        for own in (*set_, *_MADE["make_cudaPitchedPtr"]):
            read = self.number([name, ".", own]) if own != "ptr" else None
            read = self.allocated([name, ".", own]) if read is None else read
            found |= {own: read} if read is not None else {}
        return found

    def member(self, name: str, member: str, before: int) -> Value:
        """Return a member of an object: as it was assigned last, or of a pitched pointer."""
        given = self.site.given.get(name)
        if given and self.outer and len(given := without_cast(given)) == 1:
            return self.outer.member(given[0], member, self.outer.site.visible[1])
        for at, words in reversed(self.host.assigned_members(name, member, self.site, before)):
            if (value := self._tried(words, at)) is not None:
                return value
        if member in ("pitch", "xsize", "ysize"):
            for at, function, inner in self.host.calls(["cudaMalloc3D"], self.site.visible[0], before):
                if function and len(inner) == 2 and last_name(without_cast(inner[0])) == name:
                    sides = extent(self.host, inner[1:], self.site, at)
                    if sides:
                        return self.value(pitch_of(sides[0]) if member == "pitch" else sides[member == "ysize"], at)
        for at, words in reversed(self.host.definitions(name, self.site, before)):
            order, inner = _MADE.get((words or [""])[0], ()), commas(words[2:-1])
            if member in order[: len(inner)]:
                return self.value(inner[order.index(member)], at)
        for at, words in self.host.member_defaults(self.host.scalar_type(name, self.site), member):
            return self.value(words, at)
        raise Unknown

    def _changed(self, value: Value, parts: Mapping[str, tuple[int, list[str]]]) -> Value:
        sizes = list(value if isinstance(value, tuple) else (int(value), 1, 1))
        for axis, (at, words) in parts.items():
            part = self.value(words, at)
            if isinstance(part, tuple):
                raise Unknown
            sizes["xyz".index(axis)] = int(part)
        return (sizes[0], sizes[1], sizes[2])

    def value(self, words: list[str], before: int, local: Mapping[str, Value] | None = None) -> Value:
        """Return the value of a C expression whose names are looked up before a token."""
        return _Expression(self, words, before, local or {}).whole()

    def sizeof(self, words: list[str], before: int) -> int:
        """Return the size of a type, or of a name's type where that is a plain number."""
        bare = [word for word in words if word not in ("const", "struct")]
        if bare[-1:] == ["*"]:
            return 8
        dtype = numpy_dtype(spell(bare), self.host.aliases)
        vector = vector_type(spell(bare), self.host.aliases)
        if dtype or vector:
            digits = re.search(r"\d+$", dtype or (vector or ("",))[0])
            return (int(digits[0]) // 8 if digits else 1) * (vector[1] if vector and not dtype else 1)
        if (size := self._size_of_object(words, before)) is not None:
            return size
        kind, _, count = self.host.aliases.get(f"elements of {''.join(bare)}", "").partition(" ")
        digits = re.search(r"\d+$", kind)
        if count and digits:
            return int(count) * int(digits[0]) // 8
        raise Unknown

    def _size_of_object(self, words: list[str], before: int) -> int | None:
        """Return the bytes of an array, of an element of one, `*name` and `name[0]`, or of a template's type."""
        named = [word for word in words if NAME.fullmatch(word)]
        if len(named) != 1:
            return None
        name = named[0]
        found = containers.find(self.host, name, self.site)
        if found and not found.container and words == [name]:
            return self.count(name, before) * self.sizeof(found.element, before)
        element = found.element if found else self.host.element_of(name, self.site)
        if element and (words[0] == "*" or words[-1] == "]") and element != words:
            return self.sizeof(element, before)
        if words == [name] and (kind := self.host.callers.type_at(name, before)) and kind != name:
            return self.sizeof(kind.split(), before)
        if words == [name] and (kind_words := self.host.scalar_type(name, self.site)):
            return self.sizeof(kind_words, before)
        return None


class _Expression:
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
