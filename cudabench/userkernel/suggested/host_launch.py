"""How a file's own host code launches a kernel: its grid, its block, the numbers it passes and the arrays it allocates.

Only for lines that messages suggest: what cannot be read is left to a guess, and nothing is run. Host code is followed
as far as an eye would: names back to what was assigned to them last, in the launch's function or outside all functions.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate

from cudabench.toolchain import places
from cudabench.toolchain.c_types import SPECIFIERS, canonical, numpy_dtype, vector_type
from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.tokens import Scan, closing_angle, closing_bracket, opens_scope, spell, split
from cudabench.userkernel.suggested.callers import Callers

MOST_THREADS = 1 << 20  # of a launch that a message suggests: some seconds in the simulator
MOST_BYTES = 1 << 30  # of an array
# Of a side of a launch that hangs on what only callers know: the largest of the first that is not too large, or, where
# host code divides it by so much that nothing is left, the least of the others that leaves something.
_SPARE = (64, 16, 4, 1 << 10, 1 << 12, 1 << 16, 1 << 20)
_DEPTH = 40  # of names that lead to names
_LAUNCHES = 100  # of a kernel that are looked at
_ALL_KNOWN = 3
_LOOKS = 1000  # at names of one launch: each may be set in several places, whose names may too
_ALLOCATORS = frozenset(["cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc"])
_WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (16, 32, 64))
_NAME = re.compile(r"[^\W\d]\w*")

Number = int | float
Value = int | float | tuple[int, int, int]


class Unknown(Exception):
    """An expression that cannot be read, or hangs on what only a run knows."""


@dataclass(frozen=True)
class HostLaunch:
    """One launch: `template` holds the template's arguments, `numbers` those of the kernel's parameters that are
    numbers, `nbytes` the arrays' sizes, each by the parameter's place, `constants` what was copied to `__constant__`
    variables before, `cleared` the places of arrays that are set to zero for it; what could not be read is absent.
    `spare`: whether grid and block hang on what only callers know."""

    template: tuple[str, ...] = ()
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared: int = 0
    numbers: Mapping[int, Number] = field(default_factory=dict)
    nbytes: Mapping[int, int] = field(default_factory=dict)
    constants: Mapping[str, Number] = field(default_factory=dict)
    spare: bool = False
    cleared: frozenset[int] = frozenset()


def find(
    text: str,
    kernel: KernelSource,
    assumed: Mapping[str, int],
    aliases: Mapping[str, str],
    ragged: bool = False,
    most: int = 0,
) -> HostLaunch | None:
    """Return the launch of a kernel that says most, or None where there is none.

    `assumed` has a value for each parameter that is an extent of the problem, for launches in functions that are given
    it, and for all where the launch shall be `ragged`. A launch that is too large for a first look, or has more than
    `most` threads where that is not 0, is made smaller by halving the numbers that it hangs on.
    """
    by_name = re.compile(rf"\b{re.escape(kernel.name)}\b[^;{{}}]*?<\s*<\s*<")
    by_pointer = re.compile(rf"\b{re.escape(kernel.name)}\s*[<;,)][^;{{}}]*[;,}}]")
    if not places.first(by_name, text, kernel.name) and not places.first(by_pointer, text[kernel.end :], kernel.name):
        return None
    host = host_of(text, tuple(aliases.items()))
    best: HostLaunch | None = None
    sites = host.launches(kernel.name) or host.launches_by_pointer(len(kernel.parameters))
    for at in sites[:_LAUNCHES]:
        launch = host.read(at, kernel, assumed, ragged, most or MOST_THREADS)
        if launch and (best is None or _known(launch) > _known(best)):
            best = launch
        if best and _known(best) == _ALL_KNOWN:
            break
    return best


@lru_cache(maxsize=4)  # a line is found in several looks at one text
def host_of(text: str, aliases: tuple[tuple[str, str], ...]) -> Host:
    """Return the host code of a text."""
    return Host(Scan(text), dict(aliases))


def _known(launch: HostLaunch) -> int:
    """Return how many are known of block, grid, and an array's size with that: `_ALL_KNOWN` at the most."""
    return (launch.block is not None) + (launch.grid is not None) + (launch.grid is not None and bool(launch.nbytes))


@dataclass(frozen=True)
class _Site:
    """Where a launch stands: its words, and the tokens before it that may say what its names are."""

    template: list[str]
    geometry: list[list[str]]
    arguments: list[list[str]]
    visible: tuple[int, int]  # the tokens of its function up to it


class Host:
    """The host code of a text."""

    def __init__(self, scan: Scan, aliases: Mapping[str, str]) -> None:
        scan.leave_out(scan.hidden_spans())
        self.words = scan.words
        self.by_word = places.by_word(self.words)
        self.aliases = aliases
        self.bodies: list[tuple[int, int]] = []
        self.outside: list[int] = []  # the tokens at namespace scope
        self._survey(scan)
        self.callers = Callers(scan.text, self.words, self.by_word, self.bodies, self.outside, aliases)

    def _survey(self, scan: Scan) -> None:
        """Note the bodies of functions, and what stands outside all of them."""
        position = 0
        while position < len(self.words):
            head, stop = scan.head(position)
            closer = self.words[stop] if stop < len(self.words) else ";"
            self.outside += range(position, min(stop + 1, len(self.words)))
            if closer == "{" and not opens_scope(head):
                end = scan.matching(stop)
                if "=" in head:
                    self.outside += range(stop + 1, end + 1)
                else:
                    self.bodies.append((position, end))
                position = end + 1
            else:
                position = stop + 1
        self.outside.sort()

    def launches_by_pointer(self, parameters: int) -> list[_Site]:
        """Return the launches through a variable that holds a kernel, with as many arguments as one takes."""
        heads = {at - 1 for at in self.by_word.get("<", ()) if self._is(at, "<<<")}
        names = {self.words[at] for at in heads if _NAME.fullmatch(self.words[at])}
        held = {one for one in names if self._is_declared(one)}
        return [site for name in sorted(held) for site in self.launches(name) if len(site.arguments) == parameters]

    def _is_declared(self, name: str) -> bool:
        """Return whether a name is a variable: `name = words`, or a function's parameter."""
        return any(self.words[at + 1 : at + 2] in (["="], [";"], [","], [")"]) for at in self.by_word.get(name, ()))

    def launches(self, name: str) -> list[_Site]:
        """Return the launches of a kernel in the order of the text."""
        found = []
        for at in self.by_word.get(name, ()):
            behind, template = at + 1, []
            if self._is(behind, "<") and not self._is(behind, "<<<"):
                end = closing_angle(self.words[behind : behind + 400], 0) + behind
                template, behind = self.words[behind + 1 : end], end + 1
            if not self._is(behind, "<<<"):
                continue
            end, depth = behind + 3, 0
            while end < min(len(self.words), behind + 400) and not (depth == 0 and self._is(end, ">>>")):
                depth += (self.words[end] in "([{") - (self.words[end] in ")]}")
                end += 1
            if not self._is(end + 3, "("):
                continue
            close = self._closing(end + 3, end + 1000)
            body = next(((start, stop) for start, stop in self.bodies if start <= at <= stop), (at, at))
            found.append(
                _Site(
                    template,
                    _commas(self.words[behind + 3 : end]),
                    _commas(self.words[end + 4 : close]),
                    (body[0], at),
                )
            )
        return found

    def _closing(self, at: int, stop: int) -> int:
        """Return where the bracket at a token is closed, or the last token before `stop`."""
        return closing_bracket(self.words[at:stop], 0) + at

    def _places(self, name: str, start: int, stop: int) -> list[int]:
        """Return where a word stands from a token to before another."""
        found = self.by_word.get(name, [])
        return found[bisect_left(found, start) : bisect_left(found, stop)]

    @cached_property
    def _outside(self) -> dict[str, list[int]]:
        """Where each word stands outside of functions."""
        found: dict[str, list[int]] = {}
        for at in self.outside:
            found.setdefault(self.words[at], []).append(at)
        return found

    def _is(self, at: int, marks: str) -> bool:
        return "".join(self.words[at : at + len(marks)]) == marks

    def read(
        self, site: _Site, kernel: KernelSource, assumed: Mapping[str, int], ragged: bool, most: int
    ) -> HostLaunch | None:
        """Return what can be read of a launch; smaller where it has more than `most` threads, or too large arrays."""
        places = {
            at: words
            for at, (parameter, words) in enumerate(zip(kernel.parameters, site.arguments, strict=False))
            if not parameter.pointer
        }
        roots = {}
        formal = {parameter.name for parameter in kernel.parameters}
        for at, words in places.items():
            parameter = kernel.parameters[at]
            root = self._root(words, site)
            # A constant of the file that the kernel reads itself keeps its value.
            free = root in formal or not re.search(rf"\b{re.escape(root)}\b", kernel.text)
            if root and free and numpy_dtype(parameter.type, self.aliases) not in (None, "bool"):
                roots[root] = at
        fixed: dict[str, Value] = {}
        for root, at in roots.items():
            own = kernel.parameters[at].name
            given = not self.definitions(root, site, site.visible[1])
            if own in assumed and (given or (ragged and self._known(root, site, {}))):
                fixed[root] = assumed[own]
        for root, at in roots.items():
            own = kernel.parameters[at].name
            if own in assumed and root not in fixed and not self._known(root, site, fixed):
                fixed[root] = assumed[own]
        chosen = self._conditions(site)
        fixed = {**chosen, **fixed}
        launch = self._with(site, kernel, places, fixed)
        for halvings in range(1, 40):
            if launch is None or not _too_large(launch, most):
                return launch
            smaller = dict(fixed)
            for root in roots:
                if not (root in fixed or self._known(root, site, {})):
                    continue
                value = _Reader(self, site, fixed).name(root, site.visible[1])
                if isinstance(value, int) and value >> halvings >= 64:
                    smaller[root] = value >> halvings
            if smaller == fixed:
                break
            launch = self._with(site, kernel, places, smaller)
        return launch

    def _conditions(self, site: _Site) -> dict[str, Value]:
        """Return the names that a launch stands under the condition of: `if (name) {`, `if (!name) {`, `else {`."""
        found: dict[str, Value] = {}
        start, at = site.visible
        depth = 0
        for place in range(at - 1, start, -1):
            depth += (self.words[place] == "}") - (self.words[place] == "{")
            if depth >= 0:
                continue
            depth, head = 0, place
            turned = self.words[place - 1] == "else"
            if turned:  # the condition's block ends before it
                head = self._opening(place - 2)
            opening = self._opening(head - 1)
            condition = self.words[opening + 1 : head - 1]
            plain = condition[1:] if condition[:1] == ["!"] else condition
            if self.words[opening - 1] == "if" and len(plain) == 1 and _NAME.fullmatch(plain[0]):
                found.setdefault(plain[0], int((condition == plain) != turned))
        return found

    def _opening(self, at: int) -> int:
        """Return where the bracket is opened that is closed at a token; the token's place where it closes none."""
        depth = 0
        for place in range(at, max(-1, at - 4000), -1):
            depth += (self.words[place] in (")", "}", "]")) - (self.words[place] in ("(", "{", "["))
            if depth <= 0:
                return place
        return at

    def _known(self, name: str, site: _Site, fixed: Mapping[str, Value]) -> bool:
        try:
            _Reader(self, site, fixed).name(name, site.visible[1])
        except (Unknown, ArithmeticError, ValueError, TypeError, IndexError, RecursionError):
            return False
        return True

    def _root(self, words: list[str], site: _Site) -> str:
        """Return the name that an argument is another name of, '' where it is an expression."""
        for _ in range(_DEPTH):
            words = _without_cast(words)
            if len(words) != 1 or not _NAME.fullmatch(words[0]):
                return ""
            name = words[0]
            found = self.definitions(name, site, site.visible[1])
            words = _without_cast(found[-1][1]) if found and found[-1][1] else []
            if len(words) != 1 or not _NAME.fullmatch(words[0]) or words[0] == name:
                return name
        return ""

    def _with(
        self, site: _Site, kernel: KernelSource, places: Mapping[int, list[str]], fixed: Mapping[str, Value]
    ) -> HostLaunch | None:
        reader = _Reader(self, site, fixed)
        grid, block = (reader.geometry(words) for words in (*site.geometry, [], [])[:2])
        spared = self._spared(site, fixed) if grid is None or block is None else None
        if spared:
            grid, block = spared
        shared = reader.number(site.geometry[2]) if len(site.geometry) > 2 else None
        numbers = {at: value for at, words in places.items() if (value := reader.number(words)) is not None}
        nbytes = {
            at: value
            for at, (parameter, words) in enumerate(zip(kernel.parameters, site.arguments, strict=False))
            if parameter.pointer and (value := reader.allocated(words)) is not None
        }
        template = []
        for words in split(site.template, ",") if site.template else []:
            value = None if canonical(spell(words)) in SPECIFIERS else reader.number(words)
            template.append(spell(words) if value is None else str(value))
        template += self._deduced(site, kernel, len(template))
        constants = {}
        for symbol, source in self.symbols():
            value = reader.number(source)
            if value is not None:
                constants[symbol] = value
        cleared = frozenset(
            at
            for at, (parameter, words) in enumerate(zip(kernel.parameters, site.arguments, strict=False))
            if parameter.pointer and not parameter.const and words and self._is_cleared(words[0], site)
        )
        return HostLaunch(
            tuple(template), grid, block, int(shared or 0), numbers, nbytes, constants, spared is not None, cleared
        )

    def _is_cleared(self, name: str, site: _Site) -> bool:
        """Return whether an array holds zeros at a launch: by cudaMemset and nothing after it, or from its start."""
        start, stop = site.visible
        last = next((at for at in range(stop - 1, start, -1) if self.words[at] == name), None)
        if last is not None:
            before = last - 1
            if self.words[before] == ")":  # a cast's
                before = self._opening(before) - 1
            if self.words[before] == "(" and self.words[before - 1] in ("cudaMemset", "cudaMemsetAsync"):
                return self.words[last + 1 : last + 4] == [",", "0", ","]
        found = self.definitions(name, site, stop)
        return bool(found and found[-1][1] and {"zeros", "zeros_like"} & set(found[-1][1]))

    def _spared(
        self, site: _Site, fixed: Mapping[str, Value]
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        """Return a grid and a block where only callers know what they hang on; such a block is one thread deep."""
        least = _Reader(self, site, fixed, 1).geometry((*site.geometry, [], [])[1])
        for spare in _SPARE:
            reader = _Reader(self, site, fixed, spare)
            grid, block = (reader.geometry(words) for words in (*site.geometry, [], [])[:2])
            if grid and block and least and math.prod(grid) * math.prod(block) <= MOST_THREADS:
                return grid, (block[0], least[1], least[2])
        return None

    def _deduced(self, site: _Site, kernel: KernelSource, known: int) -> list[str]:
        """Return the template's arguments behind the first `known`, by the types of the launch's arguments."""
        found: list[str] = []
        for wanted in kernel.template_parameters[known:]:
            if wanted.type == "typename...":
                rest = site.arguments[len(kernel.parameters) - 1 :]
                packed = [self._type(words, site) for words in rest]
                return found + packed if all(packed) else []
            takers = (
                at for at, p in enumerate(kernel.parameters) if p.type == wanted.name and at < len(site.arguments)
            )
            ctype = next((one for at in takers if (one := self._type(site.arguments[at], site))), wanted.default)
            if wanted.type != "typename" or not ctype:
                return []
            found.append(ctype)
        return found

    def _type(self, words: list[str], site: _Site) -> str:
        """Return the type of a launch's argument without its pointer: of a cast, a literal, or a name's declaration."""
        if words[:1] == ["("] and _is_type(words[1 : (end := closing_bracket(words, 0))]) and end + 1 < len(words):
            return spell([word for word in words[1:end] if word not in ("*", "const")])
        words = _without_cast(words)
        if len(words) == 1 and re.match(r"\.?\d", words[0]):
            number = _literal(words[0])
            return "int" if isinstance(number, int) else "float" if words[0][-1] in "fF" else "double"
        name = _last_name(words)
        for at in [*self._places(name, *site.visible), *self._outside.get(name, ())]:
            start = at
            while start > 0 and self.words[start - 1] not in (";", "{", "}", "(", "<"):
                start -= 1
            kind = []
            for word in self.words[start:at]:
                if word in ("*", ",", "="):
                    break
                kind.append(word)
            kind = [word for word in kind if word not in ("const", "static", "constexpr")]
            if kind and kind[-1] != name and numpy_dtype(spell(kind), self.aliases):
                return spell(kind)
        return ""

    # Where a name gets its value ------------------------------------------------------------------------------------

    def definitions(self, name: str, site: _Site, before: int) -> list[tuple[int, list[str]]]:
        """Return where a name is given a value, in order: `T name = words`, `name = words`, `dim3 name(words)`."""
        start, stop = site.visible
        inside = self._places(name, start, min(before, stop))
        found = [one for at in inside if (one := self._definition(at))]
        if found:
            return found
        return [one for at in self._outside.get(name, ()) if at < before and (one := self._definition(at))]

    def _definition(self, at: int) -> tuple[int, list[str]] | None:
        before, behind = self.words[at - 1] if at else ";", self.words[at + 1] if at + 1 < len(self.words) else ""
        if before in (".", "::") or self._is(at - 2, "->"):
            return None
        if behind == "=" and self.words[at + 2] != "=":
            words = self._until(at + 2)
            return at, ["dim3", *words] if words[:1] == ["{"] and self._in_dim3(at) else words
        if behind in ("(", "{") and before in ("dim3", ",") and self._in_dim3(at):
            close = self._closing(at + 1, at + 400)
            return at, ["dim3", *self.words[at + 1 : close + 1]]
        if behind in ("(", "{") and before in SPECIFIERS - {"void"} | {"size_t", "uint"}:
            close = self._closing(at + 1, at + 400)
            return (at, self.words[at + 2 : close]) if self.words[close + 1 : close + 2] in ([";"], [","]) else None
        return None

    def is_given(self, name: str, site: _Site, whole: bool = True) -> bool:
        """Return whether a name is a parameter of the launch's function, one that is a `whole` number."""
        start, stop = site.visible
        if self.words[start] == "template":
            start += closing_angle(self.words[start : start + 400], 1)
        brace = next((at for at in range(start, stop) if self.words[at] == "{"), start)
        for at in range(start, brace):
            if self.words[at] == name and self.words[at + 1] in (",", ")", "="):
                return not whole or numpy_dtype(self.words[at - 1], self.aliases) in _WHOLE
        return False

    def _in_dim3(self, at: int) -> bool:
        """Return whether the declaration around a token is of dim3."""
        start = at
        while start > max(at - 80, 0) and self.words[start - 1] not in (";", "{", "}"):
            start -= 1
        return "dim3" in self.words[start : min(start + 3, at)]

    def members(self, name: str, site: _Site, before: int) -> dict[str, tuple[int, list[str]]]:
        """Return the assignments to a dim3's members: `name.x = words`."""
        found = {}
        for at in self._places(name, site.visible[0], min(before, site.visible[1])):
            named = self.words[at + 1] == "." and self.words[at + 2] in ("x", "y", "z")
            if named and self.words[at + 3] == "=" and self.words[at + 4] != "=":
                found[self.words[at + 2]] = (at, self._until(at + 4))
        return found

    def counted_up(self, name: str, site: _Site, before: int) -> bool:
        """Return whether a name, or a member of it, is changed in steps, `n *= 2`: only a run knows the last."""
        for at in self._places(name, site.visible[0], min(before, site.visible[1])):
            behind = self.words[at + 1 : at + 5]
            behind = behind[2:] if behind[:1] == ["."] else behind
            if behind[1:2] == ["="] and behind[0] in "*+-/%|&^":
                return True
            if behind[:2] in (["+", "+"], ["-", "-"]) or behind[:3] in (["<", "<", "="], [">", ">", "="]):
                return True
        return False

    def first_turn(self, name: str, site: _Site) -> tuple[int, list[str]]:
        """Return where a loop around a launch starts to count with a name, and from what. Raises Unknown where none
        does, or where the name is changed between there and the launch."""
        start, stop = site.visible
        for at in reversed(self._places(name, start, stop)):
            head = at - 1
            while head > start and at - head < 4 and _NAME.fullmatch(self.words[head]):
                head -= 1
            if self.words[head] != "(" or self.words[head - 1] != "for" or self.words[at + 1] != "=":
                continue
            close = self._closing(head, head + 400)
            body = self.words[close + 1 : stop]
            around = close < stop and all(
                depth >= 0 for depth in accumulate((one == "{") - (one == "}") for one in body)
            )
            if around and (body[:1] == ["{"] or ";" not in _outside_brackets(body)):
                if self._changes(name, close + 1, stop):
                    break
                return at, self._until(at + 2)
        raise Unknown

    def _changes(self, name: str, start: int, stop: int) -> bool:
        """Return whether a name is given another value between two tokens."""
        for at in self._places(name, start, stop):
            behind, before = "".join(self.words[at + 1 : at + 4]), "".join(self.words[max(at - 2, 0) : at])
            if re.match(r"=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--", behind) or before in ("++", "--"):
                return True
        return False

    def _until(self, at: int) -> list[str]:
        """Return the words up to the ';' or ',' that ends an initialiser."""
        depth, end = 0, at
        while end < min(len(self.words), at + 400):
            word = self.words[end]
            if depth == 0 and word in (";", ",", ")", "}"):
                break
            depth += (word in "([{") - (word in ")]}")
            end += 1
        return self.words[at:end]

    def allocations(self, name: str, site: _Site) -> list[tuple[int, list[str]]]:
        """Return the sizes with which an array is allocated before a launch, in order."""
        found = []
        for at in sorted(at for word in _ALLOCATORS for at in self._places(word, *site.visible)):
            if self.words[at + 1 : at + 2] in (["("], ["<"]):
                opening = at + 1 if self.words[at + 1] == "(" else closing_angle(self.words[at : at + 60], 1) + at + 1
                inner = _commas(self.words[opening + 1 : self._closing(opening, at + 400)])
                if len(inner) >= 2 and _last_name(_without_cast(inner[0])) == name:
                    found.append((at, inner[1]))
        return found

    def symbols(self) -> list[tuple[str, list[str]]]:
        """Return what host code copies to symbols: `cudaMemcpyToSymbol(symbol, &value, ...)`."""
        found = []
        for at in self.by_word.get("cudaMemcpyToSymbol", ()):
            if self.words[at + 1 : at + 2] == ["("]:
                inner = _commas(self.words[at + 2 : self._closing(at + 1, at + 200)])
                if len(inner) >= 2:
                    found.append((_last_name(_without_cast(inner[0])), _without_cast(inner[1])))
        return found

    def function(self, name: str) -> tuple[list[str], list[str]] | None:
        """Return the parameters and the value of a function that only returns an expression."""
        for start, end in self.bodies:
            if name not in self.words[start : min(start + 40, end + 1)]:
                continue
            words = self.words[start : end + 1]
            if "{" not in words or "return" not in words:
                continue
            brace, at = words.index("{"), words.index(name)
            if at + 1 >= brace or words[at + 1] != "(" or words[brace + 1] != "return":
                continue
            formal = [part[-1] for part in _commas(words[at + 2 : closing_bracket(words, at + 1)]) if part]
            return formal, words[brace + 2 : words.index(";", brace)]
        return None


def _too_large(launch: HostLaunch, most: int) -> bool:
    if launch.grid and launch.block and math.prod(launch.grid) * math.prod(launch.block) > most:
        return True
    return any(value > MOST_BYTES for value in launch.nbytes.values())


def _outside_brackets(words: list[str]) -> list[str]:
    """Return the words that stand in no round brackets."""
    found, depth = [], 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0:
            found.append(word)
    return found


def _commas(words: list[str]) -> list[list[str]]:
    """Split at commas outside brackets, also where `<` compares."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _without_cast(words: list[str]) -> list[str]:
    """Return an expression without the casts, the brackets and the `&` before it."""
    for _ in range(8):
        if words[:1] == ["&"]:
            words = words[1:]
        elif words[:1] == ["("] and closing_bracket(words, 0) == len(words) - 1:
            words = words[1:-1]
        elif words[:1] == ["("] and _is_type(words[1 : (end := closing_bracket(words, 0))]) and end + 1 < len(words):
            words = words[end + 1 :]
        elif words[:1] in (["static_cast"], ["reinterpret_cast"], ["const_cast"]) and "(" in words:
            words = words[words.index("(") + 1 : -1]
        else:
            break
    return words


def _last_name(words: list[str]) -> str:
    """Return the name of an array: `d_a`, `data.d_a`, `&d_a[0]` without what follows it."""
    names = [word for word in words if _NAME.fullmatch(word)]
    return names[-1] if names and "(" not in words else ""


def _is_type(words: Sequence[str]) -> bool:
    bare = [word for word in words if word not in ("*", "const", "struct", "&", "::")]
    if not bare or not all(_NAME.fullmatch(word) for word in bare):
        return False
    return words[-1] == "*" or numpy_dtype(spell(bare)) is not None or vector_type(spell(bare)) is not None


# Expressions ---------------------------------------------------------------------------------------------------------

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


class _Reader:
    """The values of a launch's expressions; `fixed` are names whose value is given."""

    def __init__(self, host: Host, site: _Site, fixed: Mapping[str, Value], spare: int = 0) -> None:
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
        except (Unknown, ArithmeticError, ValueError, TypeError, IndexError, RecursionError):
            return None
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    def geometry(self, words: list[str]) -> tuple[int, int, int] | None:
        """Return a grid or a block."""
        try:
            value = self.value(words, self.site.visible[1])
        except (Unknown, ArithmeticError, ValueError, TypeError, IndexError, RecursionError):
            return None
        sizes = value if isinstance(value, tuple) else (int(value), 1, 1)
        return sizes if all(0 < size < 1 << 31 for size in sizes) else None

    def allocated(self, words: list[str]) -> int | None:
        """Return the bytes of the array that an argument is, or points into."""
        words = _without_cast(words)
        name = next((word for word in words if _NAME.fullmatch(word)), "")
        if words[1:2] == ["."] or words[1:3] == ["-", ">"]:
            name = _last_name(words)
        for at, size in reversed(self.host.allocations(name, self.site)):
            try:
                value = self.value(size, at)
            except (Unknown, ArithmeticError, ValueError, TypeError, IndexError, RecursionError):
                continue
            if isinstance(value, int | float) and 0 < value < 1 << 40:
                return int(value)
        return None

    def name(self, name: str, before: int) -> Value:
        """Return what a name stands for at a place; the last value that can be read."""
        if name in self.fixed:
            return self.fixed[name]
        if name == "argc":
            return 1
        self.depth += 1
        self.looks += 1
        try:
            if self.depth > _DEPTH or self.looks > _LOOKS:
                raise Unknown
            if self.host.counted_up(name, self.site, before):
                at, words = self.host.first_turn(name, self.site)
                return self.value(words, at)
            parts = self.host.members(name, self.site, before)
            for at, words in reversed(self.host.definitions(name, self.site, before)):
                try:
                    value = self.value(words, at)
                except (Unknown, IndexError):
                    continue
                return self._changed(value, parts) if parts else value
            if parts:
                return self._changed((1, 1, 1), parts)
            if (number := self.host.callers.value(name, before)) is not None:
                return number
            if self.spare and self.host.is_given(name, self.site):
                return self.spare
            raise Unknown
        finally:
            self.depth -= 1

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
        kind, _, count = self.host.aliases.get(f"elements of {''.join(bare)}", "").partition(" ")
        digits = re.search(r"\d+$", kind)
        if count and digits:
            return int(count) * int(digits[0]) // 8
        raise Unknown


class _Expression:
    """A C expression by words, read once from the left."""

    def __init__(self, reader: _Reader, words: list[str], before: int, local: Mapping[str, Value]) -> None:
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
            if _is_type(inner) and self.peek() and (self.peek() == "(" or re.match(r"[\w.]", self.peek())):
                return self._cast(inner, self.unary())
            return self._member(self.reader.value(inner, self.before, self.local))
        if re.match(r"\.?\d", word):
            return _literal(word)
        if word in ("true", "false"):
            return int(word == "true")
        if not _NAME.fullmatch(word):
            raise Unknown
        return self._named(word)

    def _named(self, word: str) -> Value:
        while self.peek() == "::" and self.at + 1 < len(self.words):
            word = self.words[self.at + 1]
            self.at += 2
        if word == "sizeof":
            inner = self._brackets()
            return self.reader.sizeof(inner, self.before)
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
        given = self.reader.spare and self.reader.host.is_given(word, self.reader.site, whole=False)
        if given and (found := self._passed_member()):
            return found
        return self._member(self.reader.name(word, self.before))

    def _passed_member(self) -> int:
        """Return what callers may give for `.size(0)` or `->rows`, where it stands next, 0 for a dim3's `.x`.

        A struct's number is 1, as in the value that a line gives it.
        """
        found = 0
        while True:
            step = 1 if self.peek() == "." else 2 if self.words[self.at : self.at + 2] == ["-", ">"] else 0
            name = self.words[self.at + step : self.at + step + 1]
            if not step or not name or not _NAME.fullmatch(name[0]) or name[0] in ("x", "y", "z"):
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
        values = [self.reader.value(part, self.before, self.local) for part in _commas(inner)]
        if name == "dim3":
            if len(values) == 1 and isinstance(values[0], tuple):
                return values[0]
            sizes = [int(value) for value in values if not isinstance(value, tuple)] + [1, 1, 1]
            return (sizes[0], sizes[1], sizes[2])
        if name in _CALLS and not any(isinstance(value, tuple) for value in values):
            return _CALLS[name](*values)
        if (_is_type([name]) or " " in name) and len(values) == 1:
            return self._cast(name.split(), values[0])
        found = self.reader.host.function(name)
        if found is None or len(found[0]) != len(values) or self.reader.depth > _DEPTH:
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


def _literal(word: str) -> Number:
    """Return a literal's value: `0x1F`, `1024u`, `1e-3f`, `1'000`."""
    text = word.replace("'", "").lower()
    if text.startswith("0x"):
        return int(text.rstrip("ul"), 16)
    if re.fullmatch(r"\d+[ul]*", text):
        return int(text.rstrip("ul"), 8 if re.match(r"0\d", text) else 10)
    return float(text.rstrip("fl"))
