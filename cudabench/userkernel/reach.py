"""How far a kernel indexes its arrays, by the bounds that its own text sets: for lines that messages suggest.

Indices are intervals: a number that is passed has its value, a name is bounded by what it is compared with (`i < n`, a
loop's condition, `if (i >= n) return`) and by what it is set to. Where a block lies in the grid bounds nothing: a
kernel without a guard shall be found out of bounds, not be given more room. What cannot be read needs nothing.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

Interval = tuple[int, int]

RANDOM_BELOW = 100  # of integers that are drawn at random
_LARGEST = 1 << 40
_DEPTH = 12
_AXES = {"x": 0, "y": 1, "z": 2}
_CAST = re.compile(r"\((?:(?:const|unsigned|signed|long|short|int|char|size_t|s?size_type|u?int\d+_t|uint)\s*)+\)")
_CALLED_CAST = re.compile(r"\b(?:static_cast\s*<[^<>]*>|(?:unsigned|int|size_t|u?int\d+_t|uint)(?=\s*\())")
_LITERAL = re.compile(r"\b(0[xX][\da-fA-F]+|\d+)[uUlL]+\b")
_PLACE = re.compile(r"\b(threadIdx|blockDim|blockIdx|gridDim)\s*\.\s*([xyz])\b")


class Unread(Exception):
    """An index that cannot be read, or that nothing bounds."""


class Reach:
    """A kernel's text with the numbers that it is given."""

    def __init__(self, kernel: str, file: str, sizes: Mapping[str, int], block: Sequence[int]) -> None:
        self.text = _joined(kernel)
        self.file = file
        self.sizes = sizes
        self.block = [*block, 1, 1]
        self._known: dict[str, Interval | None] = {}

    def elements(self, array: str) -> int:
        """Return how many elements the indices of an array reach over, 0 where none can be read."""
        most = 0
        for index in subscripts(self.text, array):
            try:
                most = max(most, self.interval(index)[1] + 1)
            except Unread:
                continue
        return most

    def trips(self) -> int:
        """Return how often the innermost of loops that count up runs for a thread, as far as can be read."""
        most = 1
        open_: list[tuple[int, int]] = []
        for start, stop, name, first, last, step in self._loops():
            open_ = [(end, times) for end, times in open_ if end > start]
            try:
                if step or not (_PLACE.search(first) or self._of_thread(first)):
                    stride = max(1, self.interval(step)[0]) if step else 1
                    open_.append((stop, max(1, (self._below(name, last)[1] + 1) // stride)))
            except Unread:
                continue
            most = max(most, math.prod(times for _, times in open_))
        return most

    def _loops(self) -> Iterator[tuple[int, int, str, str, str, str]]:
        """Yield the loops that count up: where they start and end, their name, its start, their condition, what is
        added each time, '' for one."""
        text = self.text.replace("for(", "for (")
        head = re.compile(
            r"\bfor \( ?(?:[\w:]+ )*?(\w+) ?= ?([^;]+?) ?; ?([^;]+?) ?; ?(?:\+\+ ?\1|\1 ?\+\+|\1 ?\+= ?([\w.* ]+?)) ?\)"
        )
        for match in head.finditer(text):
            stop = match.end()
            body = text[stop:].lstrip()
            length = _closing(body, "{", "}") if body.startswith("{") else body.find(";")
            step = "" if match[4] in (None, "1") else match[4]
            yield match.start(), stop + max(length, 0) + 1, match[1], match[2], match[3], step

    def _of_thread(self, words: str) -> bool:
        """Return whether an expression hangs on the thread, by its names' own definitions."""
        names = re.findall(r"[^\W\d]\w*", words)
        return any(_PLACE.search(text) for name in names for text in self._definitions(name))

    def interval(self, words: str) -> Interval:
        """Return the least and the largest value of an integer expression. Raises Unread."""
        words = _LITERAL.sub(r"\1", _CALLED_CAST.sub("", _CAST.sub("", words)))
        words = _PLACE.sub(r"\1_\2", words.replace("&&", " and ").replace("||", " or "))
        words = re.sub(r"(?<!/)/(?!/)", "//", words)
        try:
            tree = ast.parse(words.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Unread from None
        return self._of(tree, 0)

    def _of(self, tree: ast.expr, depth: int) -> Interval:
        if depth > 4 * _DEPTH:
            raise Unread
        if isinstance(tree, ast.Constant) and type(tree.value) is int:
            return tree.value, tree.value
        if isinstance(tree, ast.Name):
            return self._name(tree.id)
        if isinstance(tree, ast.Subscript):
            return 0, RANDOM_BELOW - 1
        if isinstance(tree, ast.BinOp):
            combine = _BINARY.get(type(tree.op))
            if combine:
                low, high = combine(self._of(tree.left, depth + 1), self._of(tree.right, depth + 1))
                if max(abs(low), abs(high)) <= _LARGEST:
                    return low, high
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in ("min", "max"):
            parts = [self._of(part, depth + 1) for part in tree.args]
            pick = min if tree.func.id == "min" else max
            if parts:
                return pick(low for low, _ in parts), pick(high for _, high in parts)
        raise Unread

    def _name(self, name: str) -> Interval:
        if name in self._known:
            found = self._known[name]
        else:
            self._known[name] = None  # a name that hangs on itself
            found = self._known[name] = self._bounded(name) if len(self._known) < 200 else None
        if found is None:
            raise Unread
        return found

    def _bounded(self, name: str) -> Interval | None:
        place = re.fullmatch(r"(threadIdx|blockDim|blockIdx|gridDim)_([xyz])", name)
        if place:
            side = self.block[_AXES[place[2]]]
            return {"threadIdx": (0, side - 1), "blockDim": (side, side)}.get(place[1])
        if name in self.sizes:
            return self.sizes[name], self.sizes[name]
        constant = re.search(
            rf"(?:#\s*define\s+{name}\s+|\b(?:const|constexpr)\b[^;=(){{}}]*\b{name}\s*=\s*)\(?(\d+)\b", self.file
        )
        if constant:
            return int(constant[1]), int(constant[1])
        bounds = [found for words in self._conditions(name) if (found := self._tried(self._below, name, words))]
        set_ = [found for words in self._definitions(name) if (found := self._tried(self.interval, words))]
        low = min([low for low, _ in set_] or [0])
        if bounds:
            return max(low, 0), max(high for _, high in bounds)
        return (low, max(high for _, high in set_)) if set_ and len(set_) == len(self._definitions(name)) else None

    def _tried(self, read: Callable[..., Interval], *words: str) -> Interval | None:
        try:
            return read(*words)
        except Unread:
            return None

    def _conditions(self, name: str) -> list[str]:
        """Return the comparisons of a name with what is above it."""
        below = re.findall(rf"(?<![\w.])({name} ?<=? ?[^;?&|<>=]+)", self.text)
        out = re.findall(rf"(?<![\w.])({name} ?>=? ?[^;?&|<>={{}}]+?)\) ?{{? ?(?:return|continue|break)\b", self.text)
        return [_balanced(one) for one in below] + [
            re.sub(r">(=?)", lambda m: "<" if m[1] else "<=", _balanced(one), count=1) for one in out
        ]

    def _below(self, name: str, condition: str) -> Interval:
        match = re.match(rf"{name} ?(<=?|!=) ?(.+)", condition.strip())
        if not match or re.search(rf"\b{name}\b", match[2]):
            raise Unread
        return 0, self.interval(match[2])[1] - (match[1] != "<=")

    def _definitions(self, name: str) -> list[str]:
        return re.findall(rf"(?<![\w.\]>]){name} ?=(?!=) ?([^;=]+?) ?(?:;|,(?= ?\w+ ?=))", self.text)


def _joined(text: str) -> str:
    """Return a text in one line with its operators as written: a preprocessor puts spaces into them."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(
        r"(?<=[-+*/%&|^<>=!]) (?==)|(?<=\+) (?=\+)|(?<=<) (?=<)|(?<=>) (?=>)|(?<=&) (?=&)|(?<=\|) (?=\|)", "", text
    )


def subscripts(text: str, array: str) -> list[str]:
    """Return the indices of an array's accesses, as they are written."""
    found = []
    for match in re.finditer(rf"(?<![\w.>]){re.escape(array)} ?\[", text):
        length = _closing(text[match.end() - 1 :], "[", "]")
        if length > 0:
            found.append(text[match.end() : match.end() - 1 + length].strip())
    return found


def is_offsets(kernel: str, array: str) -> bool:
    """Return whether an array says where rows begin: `array[i]` and `array[i + 1]` are both read, none is written."""
    text = re.sub(r"\s+", "", kernel)
    if re.search(rf"(?<![\w.>]){re.escape(array)}\[[^\]]*\](?:=(?!=)|[-+*/|&^]=|\+\+|--)", text):
        return False
    indices = {index.strip("()") for index in subscripts(text, array)}
    return any(f"{index}+1" in indices or f"1+{index}" in indices for index in indices)


def _balanced(words: str) -> str:
    """Return words up to a bracket that was opened before them, or a comma between them."""
    depth = 0
    for at, letter in enumerate(words):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (depth == 0 and letter == ","):
            return words[:at]
    return words


def _closing(text: str, opening: str, closing: str) -> int:
    """Return where the bracket that a text starts with is closed, -1 where it is not."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == opening) - (letter == closing)
        if depth == 0:
            return at
    return -1


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        raise Unread
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


def _remainder(a: Interval, b: Interval) -> Interval:
    if a[0] < 0 or b[0] <= 0:
        raise Unread
    return 0, min(a[1], b[1] - 1)


def _left(a: Interval, b: Interval) -> Interval:
    if b[0] < 0 or b[1] > 32:
        raise Unread
    return _product(a, (1 << b[0], 1 << b[1]))


def _right(a: Interval, b: Interval) -> Interval:
    if b[0] < 0 or b[1] > 62:
        raise Unread
    return _quotient(a, (1 << b[0], 1 << b[1]))


def _masked(a: Interval, b: Interval) -> Interval:
    if a[0] < 0 or b[0] < 0:
        raise Unread
    return 0, min(a[1], b[1])


_BINARY: Mapping[type[ast.operator], Callable[[Interval, Interval], Interval]] = {
    ast.Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ast.Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ast.Mult: _product,
    ast.FloorDiv: _quotient,
    ast.Mod: _remainder,
    ast.LShift: _left,
    ast.RShift: _right,
    ast.BitAnd: _masked,
}
