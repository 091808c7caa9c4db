"""Reads the nesting of statements in a source text, to find where the user can insert a barrier between two accesses.

Positions in the text are token numbers. A path is the list of the nested statements around a token, the outermost
first."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath

from cudabench.simulator.check.places import Gap
from cudabench.source.words import DIRECTIVE, blank, closing_bracket, without_comments, words_with_positions

LOOPS = ("for", "while", "do")
MOST_CALL_DEPTH = 8  # calls within calls are followed to this depth
EXITS = ("return", "break", "continue", "goto")


@dataclass(eq=False)
class Statement:
    """A statement. `kind`: such as 'if', 'for', 'block' or 'plain'. `first`, `last`: the first and the last token.
    `head`: the last token of the statement's head, such as `if (...)`. `bodies`: the lists of statements inside it."""

    kind: str
    first: int
    head: int
    last: int
    bodies: list[list[Statement]] = field(default_factory=list)


@dataclass
class Step:
    """A statement around a token. `list`: the list that contains the statement. `index`: its index in this list."""

    list: list[Statement]
    index: int

    @property
    def statement(self) -> Statement:
        """The statement itself."""
        return self.list[self.index]


def barrier_gap(
    texts: Mapping[str, str], file: str, earlier: tuple[int, int], later: tuple[int, int], divergent: Collection[int]
) -> Gap | None:
    """Return where a barrier can be inserted between an access and a later access, or None if no place is found.

    `texts`: the sources by name. `file`: the name of the source with both accesses. `earlier`, `later`: the line and
    column of the two accesses. `divergent`: the lines with divergent conditions.
    """
    text = next((source for name, source in texts.items() if PurePath(name).name == PurePath(file).name), None)
    return None if text is None else _GapFinder(_read(text), divergent).find(earlier, later)


@lru_cache(maxsize=8)
def _read(text: str) -> Statements:
    return Statements(text)


class Statements:
    """The statements of all functions in a text. `words`: the tokens of the text. `starts`: the position of each token
    in the text. `functions`: see `_functions`."""

    def __init__(self, text: str) -> None:
        placed = words_with_positions(_visible_code(text))
        self.starts, self.words = [at for at, _ in placed], [word for _, word in placed]
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.functions = list(self._functions())

    def line(self, token: int) -> int:
        """Return the line of a token."""
        return bisect_right(self.lines, self.starts[token])

    # Reading.

    def _functions(self) -> Iterator[tuple[int, int, list[Statement]]]:
        """Yield (first token, last token, statements) of the body of each function, also in classes and namespaces."""
        at = 0
        while at < len(self.words):
            if self.words[at] == "{" and at and self.words[at - 1] in (")", "const", "noexcept", "override", "final"):
                first, at = at, closing_bracket(self.words, at)
                yield first, at, self._list(first + 1, at)
            at += 1

    def _list(self, at: int, end: int) -> list[Statement]:
        statements = []
        while at < end:
            statements.append(self._statement(at, end))
            at = statements[-1].last + 1
        return statements

    def _statement(self, at: int, end: int) -> Statement:
        word, following = self.words[at], self.words[at + 1 : min(at + 3, end)]
        if word == "{":
            last = min(closing_bracket(self.words, at), end)
            return Statement("block", at, at, last, [self._list(at + 1, last)])
        if word == "do" and at + 1 < end:
            body = self._statement(at + 1, end)
            return Statement("do", at, at, self._plain_end(body.last + 1, end), [_body_statements(body)])
        if word not in ("if", "for", "while", "switch") or "(" not in following:
            return Statement("plain", at, at, self._plain_end(at, end))
        head = min(closing_bracket(self.words[:end], at + 1 + following.index("(")), end - 1)
        governed = [self._statement(head + 1, end)] if head + 1 < end else []
        otherwise = governed[-1].last + 2 if governed else end  # the token after an `else`
        if word == "if" and self.words[otherwise - 1 : otherwise] == ["else"] and otherwise < end:
            governed.append(self._statement(otherwise, end))
        return Statement(word, at, head, governed[-1].last if governed else head, list(map(_body_statements, governed)))

    def _plain_end(self, at: int, end: int) -> int:
        """Return the last token of a plain statement; `case x:` and `default:` are treated as separate statements."""
        labelled = self.words[at : at + 1] in (["case"], ["default"])
        while at < end:
            if self.words[at] in ("(", "[", "{"):
                at = closing_bracket(self.words[:end], at)
            elif self.words[at] == ";" or (labelled and self.words[at] == ":"):
                return at
            at += 1
        return end - 1

    # Places.

    def token(self, place: tuple[int, int]) -> int:
        """Return the token at a (line, column), or -1."""
        line, column = place
        if not 0 < line <= len(self.lines):
            return -1
        token = bisect_right(self.starts, self.lines[line - 1] + max(column - 1, 0)) - 1
        if token + 1 < len(self.words) and (token < 0 or self.line(token) < line):
            token += 1
        return token

    def function(self, token: int) -> int:
        """Return the index of the function that contains a token, or -1."""
        return next((at for at, (first, last, _) in enumerate(self.functions) if first <= token <= last), -1)

    def calls(self, function: int) -> list[int]:
        """Return the tokens at which other functions call the function with this index."""
        at, depth = self.functions[function][0] - 1, 0
        # Skip `const` and `noexcept` between the parameters and the body.
        while at > 0 and (depth or self.words[at] != ")"):
            at -= 1
        while at > 0:
            depth += (self.words[at] == ")") - (self.words[at] == "(")
            at -= 1
            if depth == 0:
                break
        called = [i for i, word in enumerate(self.words) if word == self.words[at]]
        called = [i for i in called if self.words[i + 1 : i + 2] in (["("], ["<"])]
        return [i for i in called if self.function(i) not in (-1, function)]

    def common_function(self, a: int, b: int) -> tuple[list[Step], list[Step], bool]:
        """Return (path to token a, path to token b, whether b runs in the next iteration of a loop around the call).

        If the tokens are in different functions, a and b are replaced by the tokens of the calls, in one function, that
        lead to them. If the accesses are made in two calls of the same function, a and b are replaced by these calls.
        If there is no common function, both paths are empty.
        """
        for _ in range(MOST_CALL_DEPTH):
            first, second = self.function(a), self.function(b)
            if -1 in (first, second):
                break
            if first != second:
                calls = [(at, b) for at in self.calls(first)] + [(a, at) for at in self.calls(second)]
                same = [pair for pair in calls if self.function(pair[0]) == self.function(pair[1])]
                if not calls:
                    break
                # Choose the last pair in which the call of a is before the call of b. If there is no such pair, choose
                # the first pair.
                before = [pair for pair in same if pair[0] < pair[1]]
                a, b = max(before) if before else min(same or calls)
                continue
            paths = self.enclosing(a), self.enclosing(b)
            again = a > b and not any(step.statement.kind in LOOPS for step in paths[0])
            sites = self.calls(first) if again else []
            if not sites:
                return *paths, False
            inside = [at for at in sites if self.function(at) == self.function(sites[0])]
            a, b = inside[0], inside[min(1, len(inside) - 1)]
            if a == b:
                return self.enclosing(a), self.enclosing(b), True
        return [], [], False

    def enclosing(self, token: int) -> list[Step]:
        """Return the nested statements around a token, the outermost first."""
        inside = next((body for first, last, body in self.functions if first <= token <= last), [])
        steps: list[Step] = []
        while (
            index := next((at for at, item in enumerate(inside) if item.first <= token <= item.last), None)
        ) is not None:
            steps.append(Step(inside, index))
            bodies = inside[index].bodies if token > inside[index].head or inside[index].kind == "do" else []
            inside = next((item for item in bodies if item and item[0].first <= token <= item[-1].last), [])
        return steps


class _GapFinder:
    """Finds where barriers can be inserted between statements; `divergent`: the lines with divergent conditions."""

    def __init__(self, text: Statements, divergent: Collection[int]) -> None:
        self.text, self.line, self.divergent = text, text.line, divergent

    def find(self, earlier: tuple[int, int], later: tuple[int, int]) -> Gap | None:
        """Return where a barrier can be inserted between two accesses, or None; see `barrier_gap`."""
        a, b, again = self.text.common_function(self.text.token(earlier), self.text.token(later))
        if not a or not b:
            return None
        if again:
            return self._at_loop_end(a, b, _loop(a, len(a) - 1), later[0])
        level = 0
        while (
            level + 1 < min(len(a), len(b))
            and a[level].index == b[level].index
            and a[level + 1].list is b[level + 1].list
        ):
            level += 1
        step, other = a[level], b[level]
        loop = _loop(a, level)
        if step.index < other.index:
            return self._between(a, b, level)
        if step.index > other.index:
            # If no loop contains both statements, other threads executed the later statement of the text first.
            return self._between(b, a, level) if loop is None else self._at_loop_end(a, b, loop, later[0])
        inner = step.statement
        a_in, b_in = len(a) > level + 1, len(b) > level + 1
        around = {"if": loop, "switch": loop, **dict.fromkeys(LOOPS, level)}.get(inner.kind)
        if a_in and not b_in and around is not None:
            return self._at_loop_end(a, b, around, later[0])
        if inner.kind == "do" and b_in and not a_in:
            # The later access is in the condition at the end of the loop.
            tail = self.line(inner.last)
            return self._gap(tail, tail, inner, a, level + 1)._replace(kind="head", span=(tail, tail))
        if inner.kind in LOOPS and b_in and not a_in:
            first = self.line(inner.bodies[0][0].first)
            place = self._gap(self.line(inner.head), first, b[level + 1].statement, a, level + 1)
            return place._replace(around=self._conditions(b[level + 1 :]))
        kind = "same" if not (a_in or b_in) else "branches" if a_in and b_in else "head"
        place = self._gap(self.line(inner.head), self.line(inner.first), inner, a, level + (a_in or b_in))
        loop_end = self._at_loop_end(a, b, loop, later[0])
        line = earlier[0]
        if kind == "same" and line == later[0] and sum(self.line(item.first) == line for item in step.list) > 1:
            loop_end = place._replace(kind="between", after=line, before=line)
        if kind == "same" and inner.kind in LOOPS:  # the PTX has only the line of the loop for an access in its body
            own = self.line(inner.first)
            bare = self.text.words[inner.head + 1] != "{"
            loop_end = place._replace(kind="iteration", after=self.line(inner.last), loop=own, bare=bare)
        return place._replace(kind=kind, in_loop=loop_end)

    def _between(self, a: list[Step], b: list[Step], level: int) -> Gap:
        first, second = a[level].statement, b[level].statement
        between = Step(a[level].list[a[level].index + 1 :], b[level].index - a[level].index - 1)
        # All threads must reach the barrier, so it must come before a statement in which some threads exit or return.
        left = self._exit_line(between)
        place = self._gap(self.line(first.last), left or self.line(second.first), second, a, level)
        return place._replace(around=self._conditions(a[level:], b[level:]))

    def _at_loop_end(self, a: list[Step], b: list[Step], loop: int | None, line: int) -> Gap | None:
        """Return the position at the end of a loop's body, or None; `loop`: the loop's index in both paths."""
        if loop is None or loop + 1 >= len(a):
            return None
        head, own = a[loop].statement, a[loop + 1].statement
        target = b[loop + 1].statement if loop + 1 < len(b) else head
        place = self._gap(self.line(own.last), 0, target, a, loop + 1)
        return place._replace(
            kind="iteration",
            bare=self.text.words[head.head + 1] != "{",
            loop=self.line(head.first),
            span=(self.line(head.first), self.line(target.last) if own is not target is not head else line),
            around=self._conditions(a[loop + 1 :], b[loop + 1 :]),
        )

    def _gap(self, after: int, before: int, target: Statement, path: list[Step], level: int) -> Gap:
        """Return the position of a barrier between the lines `after` and `before`, with the divergent statements around
        it. `target`: the statement after the barrier. `level`: the index in `path` of the statement beside the barrier.
        """
        outside = next((step.statement for step in path[:level] if self._diverges(step.statement)), None)
        return Gap(
            "between",
            after,
            before,
            0,
            (self.line(target.first), self.line(target.last)),
            outside=self.line(outside.first) if outside else 0,
            is_loop=outside is not None and outside.kind in LOOPS,
            leaves=next(filter(None, map(self._exit_line, path[: level + 1])), 0),
        )

    def _diverges(self, statement: Statement) -> bool:
        """Return whether a statement's condition is divergent."""
        lines = {
            *range(self.line(statement.first), self.line(statement.head) + 1),
            self.line(statement.last) if statement.kind == "do" else 0,
        }
        return statement.kind not in ("plain", "block") and not lines.isdisjoint(self.divergent)

    def _conditions(self, *paths: Sequence[Step]) -> tuple[int, ...]:
        """Return the lines of the outermost divergent statements of the paths, without repetitions."""
        statements = (next((step.statement for step in path if self._diverges(step.statement)), None) for path in paths)
        return tuple(dict.fromkeys(self.line(statement.first) for statement in statements if statement is not None))

    def _exit_line(self, step: Step) -> int:
        """Return the line of an earlier divergent `if` in the same list in which threads return or jump, or 0."""
        conditions = (item for item in step.list[: step.index] if item.kind == "if" and self._diverges(item))
        leaving = (
            condition
            for condition in conditions
            if not {*EXITS}.isdisjoint(self.text.words[condition.first : condition.last])
        )
        return next((self.line(item.first) for item in leaving), 0)


def _loop(path: list[Step], level: int) -> int | None:
    """Return the index in a path of the innermost loop before index `level`, or None."""
    return next((at for at in range(level - 1, -1, -1) if path[at].statement.kind in LOOPS), None)


def _body_statements(statement: Statement) -> list[Statement]:
    """Return the statements inside a block; for another statement, a list that contains only this statement."""
    return statement.bodies[0] if statement.kind == "block" else [statement]


def _visible_code(text: str) -> str:
    """Return a text in which comments, directives and skipped code are replaced by blanks; positions do not change.

    The first branch of `#if 0` is skipped, and so are the branches of `#if 1` except the first. If a branch of an `#if`
    has unbalanced braces (such as two function heads for one body), only the first branch is kept.
    """
    plain = without_comments(text)
    hidden: list[tuple[int, int]] = []
    opened: list[list[re.Match[str]]] = []
    for directive in DIRECTIVE.finditer(plain):
        hidden.append(directive.span())
        word = directive[1]
        if word in ("if", "ifdef", "ifndef"):
            opened.append([directive])
        elif opened and word.startswith("el"):
            opened[-1].append(directive)
        elif opened and word == "endif":
            group = [*opened.pop(), directive]
            branches = [(before.end(), after.start()) for before, after in pairwise(group)]
            condition = group[0][2].strip("() \t") if group[0][1] == "if" else ""
            uneven = any(plain.count("{", *branch) != plain.count("}", *branch) for branch in branches)
            if condition in ("0", "false"):
                hidden.append(branches[0])
            elif condition in ("1", "true") or (len(branches) > 1 and uneven):
                hidden += branches[1:]
    for start, end in hidden:
        plain = plain[:start] + blank(plain[start:end]) + plain[end:]
    return plain
