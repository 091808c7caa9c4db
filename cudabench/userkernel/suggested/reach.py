"""How far a kernel indexes its arrays, by the bounds that its own text sets: for lines that messages suggest.

Indices are intervals: a number that is passed has its value, a name is bounded by what it is compared with (`i < n`, a
loop's condition, `if (i >= n) return`) and by what it is set to; a block's place is bounded by the grid. A thread's
number in the whole grid is not: a kernel without a guard shall be found out of bounds, not be given more room. What
cannot be read needs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from cudabench.toolchain import places
from cudabench.userkernel.vocabulary import KEYWORDS

Interval = tuple[int, int]

RANDOM_BELOW = 100  # of integers that are drawn at random
_LARGEST = 1 << 40
_DEPTH = 12
_LONGEST = 2000  # characters of an expression that is read
_ALIASES = 3  # of pointers to pointers
_AXES = {"x": 0, "y": 1, "z": 2}
_CAST = re.compile(r"\( ?(?:(?:const|unsigned|signed|long|short|int|char|size_t|s?size_type|u?int\d+_t|uint)\s*)+\)")
_CALLED_CAST = re.compile(r"\b(?:static_cast\s*<[^<>]*>|(?:unsigned|int|size_t|u?int\d+_t|uint)(?=\s*\())")
_SIZEOF = re.compile(r"\bsizeof ?\( ?(\w+) ?\)")
_MARK = "_of_c"  # behind names that Python keeps for itself
_KEYWORD = re.compile(rf"(?<![\w.])({'|'.join(KEYWORDS - {'and', 'or', 'not', 'if', 'else'})})(?!\w)")
_LITERAL = re.compile(r"\b(0[xX][\da-fA-F]+|\d+)[uUlL]+\b")
_PLACE = re.compile(r"\b(threadIdx|blockDim|blockIdx|gridDim)\s*\.\s*([xyz])\b")
_IN_GRID = tuple(
    (axis, re.compile(pattern.replace("AXIS", axis)))
    for axis in "xyz"
    for pattern in (
        r"\bblockIdx_AXIS\s*\*\s*(?P<width>\w+)\s*\+\s*threadIdx_AXIS\b",
        r"(?<![*\w.]\s)(?<![*\w.])(?P<width>\w+)\s*\*\s*blockIdx_AXIS\s*\+\s*threadIdx_AXIS\b",
        r"\bthreadIdx_AXIS\s*\+\s*blockIdx_AXIS\s*\*\s*(?P<width>\w+)(?!\s*[*\w(.])",
        r"\bthreadIdx_AXIS\s*\+\s*(?P<width>\w+)\s*\*\s*blockIdx_AXIS\b(?!\s*\*)",
    )
)
_CAST_OF_POINTER = re.compile(
    r"(?:reinterpret_cast|static_cast|const_cast) ?< ?(?:const )?(\w+)[^<>]*> ?\(|"
    r"\( ?(?:const )?(\w+) ?(?:const )?\* ?\) ?"
)
_NO_CALLS = frozenset("if while for return sizeof reinterpret_cast static_cast const_cast".split())  # noqa: SIM905
_HEAD = re.compile(r" ?(?:# ?pragma unroll\b[^;{}]*? )?(?:for|while|if) ?(?=\()")
_CALL = 400  # characters before an argument in which its call begins
_PASSED_ON = 16  # elements behind a pointer that a function is given
_READERS = re.compile(
    r"\b(?:atomic\w+|__ld\w+|__st\w+)\s*\(\s*(?:\(\s*[\w\s]+\*\s*\)\s*|reinterpret_cast\s*<[^<>]*>\s*\(\s*)?$"
)


@dataclass(frozen=True)
class _Function:
    """A function's parameters, the names that it sets in order, and what it returns."""

    formal: list[str]
    steps: list[tuple[str, str]]
    value: str


class Unread(Exception):
    """An index that cannot be read, or that nothing bounds."""


class Reach:
    """A kernel's text with the numbers that it is given."""

    def __init__(
        self,
        kernel: str,
        file: str,
        sizes: Mapping[str, int],
        block: Sequence[int],
        grid: Sequence[int] = (),
        sizeof: Callable[[str], int | None] = lambda ctype: None,
        held: Mapping[str, int] | None = None,
    ) -> None:
        """Take a kernel's text, that of its file, the numbers by name (`p.n` of a struct's), and the launch.

        `grid` is empty where nothing is known of it; `sizeof` gives the bytes of a type's name; `held` has the largest
        number in arrays that do not hold random ones.
        """
        self.text = joined(kernel)
        self.file = file
        self.sizes = {name.replace(".", "_of_"): value for name, value in sizes.items()}
        self.structs = {name.partition(".")[0] for name in sizes if "." in name}
        self.block = [*block, 1, 1]
        self.grid = [*grid, 1, 1] if grid else []
        self.sizeof = sizeof
        self.held = held or {}
        self._known: dict[str, Interval | None] = {}
        self._functions: dict[str, _Function | None] = {}
        self._given: list[dict[str, Interval]] = []  # to functions that are being read
        self.within = False  # whether the text is that of a function that a kernel calls

    def elements(self, array: str, nbytes: int = 1, depth: int = 0) -> int:
        """Return how many elements of `nbytes` the indices of an array reach over, 0 where none can be read."""
        most = self._largest(subscripts(self.text, array)) + 1
        pointed = rf"(?<![\w)\]]) ?\* ?{array}\b(?! ?[*+\w(])|\b{array} ?->"
        if depth and any(True for _ in self._near(array, pointed)):
            most = max(most, 1)
        for match in self._near(array, rf"\* ?\( ?{array} ?\+ ?"):
            most = max(most, self._largest([_balanced(self.text[match.end() :])]) + 1)
        for match in self._near(array, rf"(?<=[(,)]) ?{array} ?\+ ?(?=[\w(])"):  # f(array + 3 * i)
            before = self.text[max(0, match.start() - _CALL) : match.start()]
            if re.search(r"\* ?\($|\bif ?\($|\bwhile ?\($", before):
                continue
            at = self._largest([_balanced(self.text[match.end() :])])
            if at >= 0 and self._is_passed(before):
                most = max(most, at + (1 if _READERS.search(before) else _PASSED_ON))
        most = max([most, *(self._in_functions(array, nbytes) if not self.within else ())])
        if depth <= _ALIASES:
            for name, ctype, offset, unit in self._aliases(array):
                width = self.sizeof(ctype) or nbytes
                inside = self.elements(name, width, depth + 1)
                ahead = self._largest([offset]) if offset else 0
                if inside and ahead >= 0:
                    start = ahead * (self.sizeof(unit) or nbytes)
                    most = max(most, -(-(start + inside * width) // nbytes))
        return most + sum(self._moves(array)) if most else 0

    def _in_functions(self, array: str, nbytes: int) -> Iterator[int]:
        """Yield how many elements functions reach that are given an array as it is, with what else they are given."""
        for match in self._near(array, rf"\b([^\W\d]\w*) ?(?=\()(?=\([^;{{}}]*(?<![\w.&]){array} ?[,)])"):
            if match[1] in _NO_CALLS:
                continue
            given = _at_commas(self.text[match.end() + 1 : match.end() + closing(self.text[match.end() :], "(", ")")])
            given = [one.strip() for one in given]
            for formal, body in functions(match[1], self.file):
                if array not in given or len(formal) != len(given):
                    continue
                sizes = {own: most for own, one in zip(formal, given, strict=True) if (most := self.largest(one)) >= 0}
                inner = Reach(body, self.file, self.sizes | sizes, self.block, self.grid, self.sizeof, self.held)
                inner.within = True
                yield inner.elements(formal[given.index(array)], nbytes)

    def largest(self, words: str) -> int:
        """Return the largest value of an integer expression, -1 where it cannot be read."""
        return self._largest([words])

    def _largest(self, indices: Iterable[str]) -> int:
        """Return the largest value of expressions, -1 where none can be read."""
        most = -1
        for index in indices:
            try:
                most = max(most, self.interval(index)[1])
            except Unread:
                continue
        return most

    def _is_passed(self, before: str) -> bool:
        """Return whether what follows a text stands among a call's arguments."""
        depth = 0
        for at in range(len(before) - 1, -1, -1):
            depth += (before[at] in ")]") - (before[at] in "([")
            if before[at] in ";{}=":
                return False
            if depth < 0:
                called = re.search(r"(\w+) ?(?:<[^<>;]*> ?)?$", before[:at])
                return bool(called and called[1] not in _NO_CALLS)
        return False

    def _aliases(self, array: str) -> Iterator[tuple[str, str, str, str]]:
        """Yield the pointers into an array: name, the type it points at, how far ahead of its start, and in elements of
        which type; '' for the array's own."""
        pattern = (
            r"(?:(?:(?P<type>\w+) ?(?:const )?|(?P<next>, ?))\* ?(?:(?:const|__restrict__|__restrict|volatile) )*)?"
            rf"\b(?P<name>\w+) ?= ?(?P<value>[^;={{}}]*?(?<![\w.]){array}\b[^;={{}}]*?)(?:;|(?=, ?\*? ?\w+ ?=))"
        )
        for match in self._near(array, pattern):
            if match["name"] == array or not (match["type"] or match["next"] or self._is_pointer(match["name"])):
                continue
            found = _into(match["value"], array)
            if found:
                ctype = found[0] or match["type"] or ""
                yield match["name"], "" if ctype == "auto" else ctype, found[2], found[1]

    def _is_pointer(self, name: str) -> bool:
        declared = rf"\w ?(?:const )?\* ?(?:(?:const|__restrict__) )*{name}\b ?[,;=)]"
        return any(True for _ in self._near(name, declared))

    def _near(self, name: str, pattern: str) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern, none of which goes beyond a statement, in those that have a name."""
        compiled, ends = re.compile(pattern), 0
        for at in self._at.get(name, ()):
            if at >= ends:
                start = max(ends, 1 + max(self.text.rfind(mark, ends, at) for mark in ";{}"))
                ends = self.text.find(";", at) + 1 or len(self.text)
                yield from compiled.finditer(self.text, start, ends)

    @cached_property
    def _at(self) -> dict[str, list[int]]:
        """Where each name of the text stands."""
        found: dict[str, list[int]] = {}
        for match in re.finditer(r"\b[^\W\d]\w*", self.text):
            found.setdefault(match[0], []).append(match.start())
        return found

    def _moves(self, name: str) -> list[int]:
        """Return how far each step that moves a pointer takes it, through the loops around it."""
        found = []
        for match in self._near(name, rf"\b{name} ?\+= ?([^;]+)|\+\+ ?{name}\b(?! ?[\[.])|\b{name} ?\+\+"):
            step = self._largest([_balanced(match[1])]) if match[1] else 1
            found.append(max(0, step) * self._turns(match.start()))
        return found

    def trips(self) -> int:
        """Return how often the innermost of loops that count up runs for a thread, as far as can be read."""
        return max([self._turns(start + 1) for start, *_ in self.loops] or [1])

    def _turns(self, at: int) -> int:
        """Return how often a thread comes to a place by the loops around it; one from the thread on is the launch's."""
        turns = 1
        for start, stop, name, first, last, step in self.loops:
            if start < at < stop and (step or not (self._of_thread(first) and self._of_thread(last))):
                try:
                    stride = max(1, self.interval(step)[0]) if step else 1
                    turns *= max(1, (self._below(name, last)[1] + 1) // stride)
                except Unread:
                    continue
        return turns

    @cached_property
    def loops(self) -> list[tuple[int, int, str, str, str, str]]:
        """The loops that count: where they start and end, their name, its start, their condition, what is added each
        time, '' for one. One that counts down to nothing is as long as one up to where it starts."""
        found = []
        for match in re.finditer(r"\b(for|while) ?(?=\()", self.text):
            behind = match.end() + closing(self.text, "(", ")", match.end()) + 1
            inside = self.text[match.end() + 1 : behind - 1]
            ends = _end(self.text, behind)
            parts = inside.split(";") if match[1] == "for" else ["", inside, self.text[behind:ends]]
            if len(parts) != 3:
                continue
            for name, first, last, step in _counted(*parts):
                found.append((match.start(), ends + 1, name, first, last, step))
                break
        return found

    def _of_thread(self, words: str) -> bool:
        """Return whether an expression hangs on the thread, by its names' own definitions, but for members of structs
        in arrays, which hold anything."""
        words = re.sub(r"\w+ ?\[[^\[\]]*\] ?\. ?\w+", "0", words)
        names = re.findall(r"[^\W\d]\w*", words)
        return bool(_PLACE.search(words)) or any(
            _PLACE.search(text) for name in names for text in self._definitions(name)
        )

    def interval(self, words: str) -> Interval:
        """Return the least and the largest value of an integer expression. Raises Unread."""
        if len(words) > _LONGEST:
            raise Unread
        words = _LITERAL.sub(r"\1", _CALLED_CAST.sub("", _CAST.sub("", words)))
        words = _PLACE.sub(r"\1_\2", words.replace("&&", " and ").replace("||", " or "))
        words = _SIZEOF.sub(lambda match: str(self.sizeof(match[1]) or match[0]), words)
        words = _KEYWORD.sub(rf"\1{_MARK}", words)
        for name in self.structs:
            words = re.sub(rf"\b{name} ?\. ?(\w+)", rf"{name}_of_\1", words)
        words = re.sub(r"(?<!/)/(?!/)", "//", words)
        for axis, pattern in _IN_GRID:
            words = pattern.sub(partial(self._in_grid, axis), words)
        try:
            tree = ast.parse((_choices(words) if "?" in words else words).strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Unread from None
        return self._of(tree, 0)

    def _in_grid(self, axis: str, match: re.Match[str]) -> str:
        """Return a name that nothing bounds for a thread's number along an axis of the grid."""
        width = match["width"]
        if width != f"blockDim_{axis}":
            try:
                if self._of(ast.parse(width, mode="eval").body, 0)[1] != self.block[_AXES[axis]]:
                    return match[0]
            except (Unread, SyntaxError):
                return match[0]
        return f"number_in_grid_{axis}"

    def _of(self, tree: ast.expr, depth: int) -> Interval:
        if depth > 4 * _DEPTH:
            raise Unread
        if isinstance(tree, ast.Constant) and type(tree.value) is int:
            return tree.value, tree.value
        if isinstance(tree, ast.Name):
            name = tree.id.removesuffix(_MARK)
            given = self._given[-1].get(name) if self._given else None
            return given or self._name(name)
        if isinstance(tree, ast.Subscript):
            array = tree.value.id if isinstance(tree.value, ast.Name) else ""
            return 0, self.held.get(array, RANDOM_BELOW - 1)
        if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Subscript):
            return self._of(tree.value, depth + 1)  # a member of a struct in an array
        if isinstance(tree, ast.IfExp):
            parts = [self._of(part, depth + 1) for part in (tree.body, tree.orelse)]
            return min(low for low, _ in parts), max(high for _, high in parts)
        if isinstance(tree, ast.BinOp):
            return self._combined(tree, depth)
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            return self._called(tree.func.id, tree.args, depth)
        raise Unread

    def _combined(self, tree: ast.BinOp, depth: int) -> Interval:
        combine = _BINARY.get(type(tree.op))
        if combine:
            right = self._of(tree.right, depth + 1)
            try:
                left = self._of(tree.left, depth + 1)
            except Unread:
                if isinstance(tree.op, ast.Mod) and right[0] > 0:
                    return 0, right[1] - 1  # of a number that is not negative
                raise
            low, high = combine(left, right)
            if max(abs(low), abs(high)) <= _LARGEST:
                return low, high
        raise Unread

    def _called(self, name: str, arguments: Sequence[ast.expr], depth: int) -> Interval:
        """Return the value of a call: of `min` and `max`, or of a function that only returns an expression."""
        if name in ("min", "max"):
            parts = [self._of(part, depth + 1) for part in arguments]
            pick = min if name == "min" else max
            if parts:
                return pick(low for low, _ in parts), pick(high for _, high in parts)
        if name not in self._functions:
            self._functions[name] = self._function(name)
        found = self._functions[name]
        if found is None or len(found.formal) != len(arguments) or len(self._given) > _DEPTH:
            raise Unread
        given = dict(zip(found.formal, [self._of(part, depth + 1) for part in arguments], strict=True))
        self._given.append(given)
        try:
            for own, words in found.steps:
                given[own] = self.interval(words)
            return self.interval(found.value)
        finally:
            self._given.pop()

    def _function(self, name: str) -> _Function | None:
        """Return a function that sets names and returns an expression of them, None for another."""
        body = r"\s*(?:const\s*)?\{([^{}]*)\breturn\b([^;{}]*);\s*\}"
        match = places.first(re.compile(rf"\b{name}\s*\(([^(){{}};]*)\){body}"), self.file, name)
        if match is None:
            return None
        formal = [re.findall(r"\w+", part.partition("=")[0])[-1:] for part in match[1].split(",")]
        if not all(formal) or re.search(r"\b(?:if|for|while|return)\b", match[2]):
            return None
        steps = []
        for statement in joined(match[2]).split(";"):
            for part in _at_commas(statement):
                left, equals, right = part.partition("=")
                if equals and re.search(r"[\w ]$", left):
                    steps.append((re.findall(r"\w+", left)[-1], right))
        return _Function([part[0] for part in formal], steps, joined(match[3]))

    def _name(self, name: str) -> Interval:
        if name in self._known:
            found = self._known[name]
        else:
            self._known[name] = None  # a name that hangs on itself
            given, self._given = self._given, []
            found = self._known[name] = self._bounded(name) if len(self._known) < 200 else None
            self._given = given
        if found is None:
            raise Unread
        return found

    def _bounded(self, name: str) -> Interval | None:
        place = re.fullmatch(r"(threadIdx|blockDim|blockIdx|gridDim)_([xyz])", name)
        if place:
            side = self.block[_AXES[place[2]]]
            known = {"threadIdx": (0, side - 1), "blockDim": (side, side)}
            if self.grid:
                count = self.grid[_AXES[place[2]]]
                known |= {"blockIdx": (0, count - 1), "gridDim": (count, count)}
            return known.get(place[1])
        if name in self.sizes:
            return self.sizes[name], self.sizes[name]
        value = r"\s*)\(?(\d+)\b"
        written = rf"(?:#\s*define\s+{name}\s+|\b(?:const|constexpr)\b[^;=(){{}}]*\b{name}\s*={value}"
        constant = places.first(re.compile(written), self.file, "#", "const") if self._is_set(name) else None
        if constant:
            return int(constant[1]), int(constant[1])
        bounds = [found for words in self._conditions(name) if (found := self._tried(self._below, name, words))]
        given = [words for words in self._definitions(name) if not re.match(rf"{name} ?[/%&]|{name} ?>>", words)]
        set_ = [found for words in given if (found := self._tried(self.interval, words))]
        low = min([low for low, _ in set_] or [0])
        if bounds:
            return max(low, 0), max(high for _, high in bounds)
        return (low, max(high for _, high in set_)) if set_ and len(set_) == len(given) else None

    def _is_set(self, name: str) -> bool:
        """Return whether the file gives a name a number somewhere."""
        return bool(re.search(rf"{name}\s*=\s*\(?\d", self.file) or re.search(rf"define\s+{name}\s", self.file))

    def _tried(self, read: Callable[..., Interval], *words: str) -> Interval | None:
        try:
            return read(*words)
        except Unread:
            return None

    def _conditions(self, name: str) -> list[str]:
        """Return the comparisons of a name with what is above it."""
        below = re.findall(rf"(?<![\w.])({name} ?<=? ?[^;?&|<>=]+)", self.text)
        leaves = r"(?:\)|\|\|[^;{}&]*\)) ?{? ?(?:return|continue|break)\b"
        out = re.findall(rf"(?<![\w.])({name} ?>=? ?[^;?&|<>={{}}]+?){leaves}", self.text)
        return [_balanced(one) for one in below] + [
            re.sub(r">(=?)", lambda m: "<" if m[1] else "<=", _balanced(one), count=1) for one in out
        ]

    def _below(self, name: str, condition: str) -> Interval:
        match = re.match(rf"{name} ?(<=?|!=) ?(.+)", condition.strip())
        if not match or re.search(rf"\b{name}\b", match[2]):
            raise Unread
        return 0, self.interval(match[2])[1] - (match[1] != "<=")

    def _definitions(self, name: str) -> list[str]:
        return re.findall(rf"(?<![\w.\]>]){name} ?=(?!=) ?([^;=]+?) ?(?:;|,(?= ?\*? ?\w+ ?=))", self.text)


def _end(text: str, at: int) -> int:
    """Return where the statement at a place ends, of heads before it too: `for (...) if (...) { }`."""
    while head := _HEAD.match(text, at):
        at = head.end() + max(closing(text, "(", ")", head.end()) + 1, 0)
    at += text[at : at + 1] == " "
    ends = at + closing(text, "{", "}", at) if text[at : at + 1] == "{" else text.find(";", at)
    return max(ends, at)


def _counted(start: str, condition: str, steps: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the names that a loop counts: with its start, the condition that ends it, and what is added, '' for one."""
    for match in re.finditer(r"(?:\+\+|- ?-) ?(\w+)|\b(\w+) ?(?:(\+\+|- ?-)|([-+])= ?([\w.* ]+))", steps):
        name = match[1] or match[2]
        first = (re.findall(rf"\b{name} ?=(?!=) ?([^;,]+(?:\([^;]*\))?[^;,]*)", start) or ["0"])[-1].strip()
        step = "" if match[5] in (None, "1") else match[5].strip()
        for part in re.split(r"&&", condition):
            if re.match(rf" ?\(? ?{name} ?(?:<=?|!=)", part):
                yield name, first, part.strip(" ()") if "(" not in part[1:] else part.strip(), step
            elif re.match(rf" ?{name} ?>=? ?0 ?$", part):
                yield name, "0", f"{name} <= {first}", step


def _into(value: str, array: str) -> tuple[str, str, str] | None:
    """Return what a pointer into an array points at, in elements of which type it is how far ahead; '' for the array's
    own type. None where the value is no such pointer."""
    value = value.strip()
    cast = _CAST_OF_POINTER.match(value)
    if cast:
        rest = value[cast.end() :].strip()
        if cast[1]:  # reinterpret_cast<T *>(inner) + further
            length = closing("(" + rest, "(", ")") - 1
            inside, further = _into(rest[:length], array), rest[length + 1 :].strip()
            if inside is None or not further:
                return inside and (cast[1], *inside[1:])
            return (cast[1], cast[1], further[1:].strip()) if further[0] == "+" and not inside[2] else None
        inside = _into(rest, array)
        if inside is None or (rest.startswith("(") and closing(rest, "(", ")") == len(rest) - 1):
            return inside and (cast[2], *inside[1:])
        return cast[2], cast[2], inside[2]  # (float4 *)x + i steps by float4
    if value.startswith("(") and closing(value, "(", ")") == len(value) - 1:
        return _into(value[1:-1], array)
    ahead = re.fullmatch(rf"{array}(?: ?\+ ?(.+))?", value) or re.fullmatch(rf"& ?{array} ?\[(.+)\]", value)
    return ("", "", (ahead[1] or "").strip()) if ahead else None


def _choices(words: str) -> str:
    """Return an expression with C's `a ? b : c` as Python's, whatever `a` says."""
    found, at = "", 0
    while at < len(words):
        if words[at] in "([":
            length = closing(words[at:], words[at], {"(": ")", "[": "]"}[words[at]])
            if length > 0:
                inner = ",".join(map(_choices, _at_commas(words[at + 1 : at + length])))
                found += words[at] + inner + words[at + length]
                at += length + 1
                continue
        if words[at] == "?":
            rest, depth = words[at + 1 :], 0
            for place, letter in enumerate(rest):
                depth += (letter in "([?") - (letter in ")]:")
                if depth < 0:
                    return f"({_choices(rest[:place])}) if 0 else ({_choices(rest[place + 1 :])})"
        found += words[at]
        at += 1
    return found


def _at_commas(words: str) -> list[str]:
    """Return what commas outside brackets part."""
    parts, depth = [""], 0
    for letter in words:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@lru_cache(maxsize=8)  # a file is asked for each of its kernel's arrays
def joined(text: str) -> str:
    """Return a text in one line with its operators as written: a preprocessor puts spaces into them."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(
        r"(?<=[-+*/%&|^<>=!]) (?==)|(?<=\+) (?=\+)|(?<=<) (?=<)|(?<=>) (?=>)|(?<=&) (?=&)|(?<=\|) (?=\|)|(?<=-) (?=>)",
        "",
        text,
    )


def subscripts(text: str, array: str) -> list[str]:
    """Return the indices of an array's accesses, as they are written."""
    found = []
    for match in places.matches(re.compile(rf"(?<![\w.>]){re.escape(array)} ?\["), text, array):
        length = closing(text, "[", "]", match.end() - 1)
        if length > 0:
            found.append(text[match.end() : match.end() - 1 + length].strip())
    return found


def functions(name: str, text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the parameters' names and the body of each function of a text that is called so."""
    pattern = re.compile(rf"\b{re.escape(name)}\s*\(([^(){{}};]*)\)\s*\{{")
    for match in places.matches(pattern, text, name):
        start = match.end() - 1
        length = closing(text, "{", "}", start)
        formal = [(re.findall(r"\w+", part.partition("=")[0]) or [""])[-1] for part in match[1].split(",")]
        if length > 0:
            yield formal, text[start + 1 : start + length]


def _balanced(words: str) -> str:
    """Return words up to a bracket that was opened before them, or a comma between them."""
    depth = 0
    for at, letter in enumerate(words):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (depth == 0 and letter == ","):
            return words[:at]
    return words


def closing(text: str, opening: str, closing: str, start: int = 0) -> int:
    """Return how far behind its start a text's bracket is closed that it starts with, -1 where it is not."""
    if text[start : start + 1] not in (opening, closing):
        return 0 if text[start:] else -1
    depth = 0
    for match in re.compile(f"[{re.escape(opening + closing)}]").finditer(text, start):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.start() - start
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
