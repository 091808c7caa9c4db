"""Derives from a kernel's text how many elements of each array its indices can reach.

An index is bounded by the conditions around it (`if`, `for`, `while`, `?:`, an early `return`), by the values of its
local variables, and by the launch. The bound is a polynomial in the whole-number parameters: with `r < rows` and
`c < cols`, the largest value of `r * cols + c` is `rows * cols - 1`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cudabench.source.brackets import closing

# matches an index in brackets, which may itself contain an index in brackets
INDEXED = r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]"
# the atomic functions, and the constructor of cuda::atomic_ref
ATOMIC = r"\batomic\w+(?:<[^<>;]*>)?(?:\w+)?\("
# what stands after the name of a variable that changes
_CHANGE = r"(?:\+\+|--|(?:[-+*/%^|&]|>>|<<)=(?!=))"
# A polynomial maps the factors of a term, sorted, to the term's coefficient.
_Polynomial = Mapping[tuple[str, ...], int]
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_LIMITS = {"threadIdx": "blockDim", "blockIdx": "gridDim"}
_DEPTH = 16  # of variables that are defined by others


class _Unknown(Exception):
    """The source does not show a bound."""


def _sum(left: _Polynomial, right: _Polynomial, sign: int = 1) -> _Polynomial:
    total = {term: left.get(term, 0) + sign * right.get(term, 0) for term in {**left, **right}}
    return {term: count for term, count in total.items() if count}


def _product(left: _Polynomial, right: _Polynomial) -> _Polynomial:
    total: _Polynomial = {}
    for one, count in left.items():
        for other, times in right.items():
            total = _sum(total, {tuple(sorted((*one, *other))): count * times})
    return total


def _number(value: int) -> _Polynomial:
    return {(): value} if value else {}


@dataclass(frozen=True)
class _Condition:
    """A comparison that bounds `name`, a variable or an index as written: it is less than `limit` (plus `more`).

    It holds from `start` to `end` in the text.
    """

    name: str
    limit: str
    more: int
    start: int
    end: int


@dataclass(frozen=True)
class Extents:
    """The extents of a kernel's arrays.

    `body`: the kernel's text without needless blanks and casts. `numbers`: the names of its whole-number parameters, in
    their order. `launch`: the value of `blockDim.x`, `gridDim.x` and so on, where it is known: a number, or an
    expression.
    """

    body: str
    numbers: Sequence[str]
    launch: Mapping[str, str]
    _conditions: list[_Condition] = field(init=False)
    _values: list[tuple[str, str, int]] = field(init=False)
    _changed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_conditions", list(_conditions(self.body)))
        values = re.finditer(r"(?<![\w.\])])(\w+)=(?!=)", self.body)
        given = [(match[1], _until_comma(self.body[match.end() :]), match.end()) for match in values]
        object.__setattr__(self, "_values", given)
        changes = re.findall(rf"\b(\w+){_CHANGE}|(?:\+\+|--)(\w+)", self.body)
        object.__setattr__(self, "_changed", frozenset("".join(names) for names in changes))

    def of(self, own: str) -> str | None:
        """Return the number of elements of the array `own` that the kernel can reach, such as 'rows*cols'.

        Return None if the source does not show it, and '' if the kernel does not index the array itself.
        """
        reached: set[tuple[tuple[str, ...], int]] = set()
        try:
            indices = list(self._indices(own))
            for index, at in indices:
                reached.add(_term(_sum(self._most(index, at), _number(1))))
        except (_Unknown, RecursionError):
            return None
        # the term that contains all the others; a number counts as smaller than a term with a size
        most = [one for one in reached if all(_contains(one, other) for other in reached)]
        return self._text(*most[0]) if most else None if indices else ""

    def _text(self, factors: tuple[str, ...], count: int) -> str:
        order = {name: at for at, name in enumerate(self.numbers)}
        words = sorted(factors, key=lambda name: order.get(name, -1))
        return "*".join([str(count)] * (count > 1 or not words) + words)

    def _indices(self, own: str, depth: int = 0) -> Iterator[tuple[str, int]]:
        """Yield (index, position) for each use of an array.

        A use as an argument of another function yields nothing. Raises _Unknown if the pointer itself changes.
        """
        if own in self._changed or depth > _DEPTH:
            raise _Unknown
        for match in re.finditer(rf"(?<![\w.]){re.escape(own)}\b", self.body):
            before, after = self.body[: match.start()], self.body[match.end() :]
            if index := re.match(INDEXED, after):
                yield index[0][1:-1], match.start()
            elif before.endswith("*(") and not re.search(r"[\w)\]]\*\($", before):
                yield _offset(after), match.start()
            elif re.search(r"(?:^|[^\w)\]])\*$", before) or re.search(rf"{ATOMIC}$", before):
                yield _offset(after) if before.endswith("(") else "0", match.start()
            elif alias := re.search(r"(?:[*&]|\bauto )(?:(?:__restrict__|const) )*(\w+)=$", before):
                start = _offset(after)
                yield from ((f"({start})+({index})", at) for index, at in self._indices(alias[1], depth + 1))

    def _most(self, text: str, at: int, depth: int = 0) -> _Polynomial:
        """Return the largest value of an expression at a position in the text."""
        if depth > _DEPTH:
            raise _Unknown
        text = text.strip()
        if (known := self._from_conditions(text, at, depth, everywhere=text.isidentifier())) is not None:
            return known
        text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
        text = re.sub(r"\bstatic_cast<[\w ]+>", "", text).replace("::", "")
        try:
            node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError):
            raise _Unknown from None
        return self._most_of(node, at, depth)

    def _most_of(self, node: ast.expr, at: int, depth: int) -> _Polynomial:
        match node:
            case ast.Constant(value=int(value)):
                return _number(value)
            case ast.Name(name):
                return self._most_of_name(name, at, depth)
            case ast.Attribute(ast.Name("blockDim" | "gridDim" as name), axis):
                return self._extent_of_launch(name, axis)
            case ast.Attribute(ast.Name("threadIdx" | "blockIdx" as name), axis):
                return _sum(self._extent_of_launch(_LIMITS[name], axis), _number(1), -1)
            case ast.Call(ast.Name("min"), [one, other]):
                return self._least_of((one, other), at, depth)
            case ast.BinOp(left, sign, right):
                return self._most_of_operation(left, sign, right, at, depth)
        raise _Unknown

    def _extent_of_launch(self, name: str, axis: str) -> _Polynomial:
        extent = self.launch.get(f"{name}.{axis}")
        if not extent or "..." in extent:
            raise _Unknown
        return _number(int(extent)) if extent.isdigit() else {(extent,): 1}

    def _most_of_operation(
        self, left: ast.expr, sign: ast.operator, right: ast.expr, at: int, depth: int
    ) -> _Polynomial:
        if isinstance(sign, ast.Sub):
            return _sum(self._part(left, at, depth), self._least(right, at, depth), -1)
        by = self._part(right, at, depth)
        if isinstance(sign, ast.Mod):
            return _sum(by, _number(1), -1)
        if isinstance(sign, ast.BitAnd):
            return by
        if isinstance(sign, ast.Div | ast.RShift | ast.LShift):
            if not set(by) <= {()} or by.get((), 0) < isinstance(sign, ast.Div):
                raise _Unknown
            number = by.get((), 0) if isinstance(sign, ast.Div) else 1 << min(by.get((), 0), 64)
            if not isinstance(sign, ast.LShift):
                return self._quotient(left, number, at, depth)
            return _product(self._part(left, at, depth), _number(number))
        if isinstance(sign, ast.Add | ast.Mult):
            combine = _sum if isinstance(sign, ast.Add) else _product
            return combine(self._part(left, at, depth), by)
        raise _Unknown

    def _part(self, node: ast.expr, at: int, depth: int) -> _Polynomial:
        return self._most(ast.unparse(node).replace(" ", ""), at, depth + 1)

    def _least(self, node: ast.expr, at: int, depth: int) -> _Polynomial:
        """Return the least value of an expression: its value if that is fixed, else 0."""
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - {"blockDim", "gridDim"}
        if any(value.startswith("-") for name, value, _ in self._values if name in names):
            raise _Unknown
        return self._part(node, at, depth) if names <= set(self.numbers) else {}

    def _least_of(self, nodes: Sequence[ast.expr], at: int, depth: int) -> _Polynomial:
        """Return the largest value of min(...): that of the first argument with a known one."""
        for node in nodes:
            try:
                return self._part(node, at, depth)
            except _Unknown:
                continue
        raise _Unknown

    def _quotient(self, node: ast.expr, divisor: int, at: int, depth: int) -> _Polynomial:
        most = self._part(node, at, depth)
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if names and names <= set(self.numbers):  # a fixed value, rounded down
            factors, count = _term(most)
            return {(f"({self._text(factors, count)}//{divisor})",): 1}
        factors, count = _term(_sum(most, _number(1)))
        if not factors:
            return _number(-(-count // divisor) - 1)
        return _sum({(f"cdiv({self._text(factors, count)},{divisor})",): 1}, _number(1), -1)

    def _most_of_name(self, name: str, at: int, depth: int) -> _Polynomial:
        if name in self.numbers and name not in self._changed:
            return {(name,): 1}
        given = [(value, end) for own, value, end in self._values if own == name and end <= at]
        if not given or (name in self._changed and not _only_falls(name, self.body)):
            raise _Unknown
        return self._most(*given[-1], depth + 1)

    def _is_local(self, name: str) -> bool:
        return any(name == own for own, _, _ in self._values)

    def _from_conditions(self, text: str, at: int, depth: int, everywhere: bool) -> _Polynomial | None:
        """Return the largest value of `text` by the innermost condition around a position.

        everywhere: if there is no condition around the position, use one elsewhere that compares with a parameter. Then
        an access that lacks its guard reaches beyond the array, and the fault shows.
        """
        if text.isdigit() or text in self.numbers or (text.isidentifier() and not self._is_local(text)):
            return None
        own = [one for one in self._conditions if one.name == text]
        inner = sorted((one for one in own if one.start <= at < one.end), key=lambda one: -one.start)
        outer = (
            [one for one in own if set(re.findall(r"[^\W\d]\w*", one.limit)) & set(self.numbers)] if everywhere else []
        )
        for one in (*inner, *outer):
            try:
                return _sum(self._most(one.limit, one.start, depth + 1), _number(one.more - 1))
            except _Unknown:
                continue
        return None


def _term(extent: _Polynomial) -> tuple[tuple[str, ...], int]:
    """Return (factors, coefficient) of the only positive term of an extent.

    Terms with a minus are left out: who skips the last element has it. Raises _Unknown if two terms have a plus, as in
    n + 1: whether the array is longer, or the index is wrong, the source does not show.
    """
    positive = [(factors, count) for factors, count in extent.items() if count > 0]
    if len(positive) != 1:
        raise _Unknown
    return positive[0]


def _contains(one: tuple[tuple[str, ...], int], other: tuple[tuple[str, ...], int]) -> bool:
    (factors, count), (others, times) = one, other
    rest = list(factors)
    for factor in others:
        if factor not in rest:
            return False
        rest.remove(factor)
    return bool(rest) or count >= times


def _offset(after: str) -> str:
    """Return what is added to a pointer whose name is just before this text: 'i*n' for '+i*n;'."""
    return _until_comma(after[1:]) if after.startswith("+") else "0"


def _until_comma(text: str) -> str:
    """Return a text up to the first comma, semicolon or closing bracket outside of its own brackets."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth < 0 or (letter in ",;" and depth == 0):
            return text[:at]
    return text


def _only_falls(name: str, body: str) -> bool:
    """Return whether a variable, after its first value, only gets smaller."""
    falls = len(re.findall(rf"\b{name}(?:--|(?:[-/]|>>)=)|--{name}\b", body))
    changes = len(re.findall(rf"\b{name}{_CHANGE}|(?:\+\+|--){name}\b", body))
    return falls == changes and len(re.findall(rf"(?<![\w.]){name}=(?!=)", body)) == 1


def _conditions(body: str) -> Iterator[_Condition]:
    """Yield the comparisons in a text that bound a variable or an expression from above."""
    side = r"[\w.+*/%()-]+?"
    for match in re.finditer(
        rf"(?<=[(;&|=,!?])(?!(?:if|for|while|return)\b)\(*({side})([<>]=?)(?!<|>)({side})\)*?(?=[;)&|?,])", body
    ):
        left, sign, right = match[1], match[2], match[3]
        statement = _statement(body, match.start())
        if statement is None:
            continue
        start, end, leaves = statement
        for name, by, limit in ((left, sign, right), (right, _FLIPPED[sign], left)):
            bare = name if name.count("(") == name.count(")") else name.lstrip("(")
            plain = limit.rstrip(")") if limit.count("(") != limit.count(")") else limit
            if leaves and by in (">", ">="):
                yield _Condition(bare, plain, int(by == ">"), start, end)
            elif not leaves and by in ("<", "<="):
                yield _Condition(bare, plain, int(by == "<="), match.start(), end)


def _statement(body: str, at: int) -> tuple[int, int, bool] | None:
    """Return (start, end, leaves) of the text for which the condition at a position decides.

    leaves: whether it is what follows `if (...) return;` or `continue`, for which the condition does not hold.
    """
    opened = [
        match
        for match in re.finditer(r"\b(if|for|while)\(", body[: at + 1])
        if (closing(body, match.end() - 1) or 0) > at
    ]
    if not opened:
        stop = re.compile(r"[;{}]").search(body, at)
        return (at, stop.start(), False) if stop else None
    close = closing(body, opened[-1].end() - 1)
    assert close is not None
    inside = body[close + 1 :]
    if left := re.match(r"(?:\{)?(?:return|continue|break)\b[^;]*;(?:\})?", inside):
        start = close + 1 + left.end()
        depth = 0
        for place in range(start, len(body)):
            depth += (body[place] == "{") - (body[place] == "}")
            if depth < 0:
                return start, place, True
        return start, len(body), True
    return at, _end_of_statement(body, close + 1), False


def _end_of_statement(body: str, start: int) -> int:
    """Return the end of the statement that starts at a position."""
    if body[start : start + 1] == "{":
        return closing(body, start) or len(body)
    if head := re.compile(r"(?:else )?(?:if|for|while)\(").match(body, start):
        close = closing(body, head.end() - 1)
        return len(body) if close is None else _end_of_statement(body, close + 1)
    depth = 0
    for at in range(start, len(body)):
        depth += (body[at] in "({") - (body[at] in ")}")
        if depth < 0 or (body[at] == ";" and depth == 0):
            return at
    return len(body)
