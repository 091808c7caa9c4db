"""The host code of a text by its words: functions, and where a name gets its value."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cudabench.toolchain import places
from cudabench.toolchain.c_types import SPECIFIERS, numpy_dtype
from cudabench.toolchain.tokens import Scan, closing_angle, closing_bracket, opens_scope
from cudabench.userkernel.suggested.callers import Callers
from cudabench.userkernel.suggested.host_words import NAME, commas, is_type, last_name, without_cast

_BEHIND = 16  # tokens put behind a text, so that what ends amid a statement has some to look at
_WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (16, 32, 64))
_READERS = frozenset(["scanf", "fscanf", "sscanf", "scanf_s", "fscanf_s", "sscanf_s", "fread"])


@dataclass(frozen=True)
class Site:
    """Where a launch stands, or a call of the function that launches: its words, and the tokens before it that may say
    what its names are.

    `caller` is where its function is called, `given` what that call passes, by the names of the parameters.
    """

    kernel: list[str]  # what is launched, or the arguments of the template that it is
    geometry: list[list[str]]  # grid, block, shared bytes
    arguments: list[list[str]]
    visible: tuple[int, int]  # the tokens of its function up to it
    cluster: list[str] = field(default_factory=list)
    caller: Site | None = None
    given: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """The head of a function: its name, its parameters with their defaults, and its tokens up to the opening brace."""

    name: str
    parameters: tuple[str, ...]
    defaults: Mapping[str, list[str]]
    span: tuple[int, int]
    packed: bool = False  # the last parameter is a pack
    owner: str = ""  # the class that it is a member of


class HostCode:
    """The host code of a text."""

    def __init__(self, scan: Scan, aliases: Mapping[str, str]) -> None:
        scan.leave_out(scan.hidden_spans())
        self.words = scan.words
        self.by_word = places.by_word(self.words)
        self.aliases = aliases
        self.bodies: list[tuple[int, int]] = []
        self.outside: list[int] = []  # the tokens at namespace scope
        self._heads: dict[int, Head | None] = {}
        self._survey(scan)
        self.words = [*self.words, *[";"] * _BEHIND]
        self.callers = Callers(scan.text, self.words, self.by_word, self.bodies, self.outside, aliases)

    def _survey(self, scan: Scan) -> None:
        """Note the bodies of functions, and what stands outside all of them."""
        position = 0
        while position < len(self.words):
            head, stop = scan.head(position)
            stop = self._faulty(position, stop, scan) or stop
            closer = self.words[stop] if stop < len(self.words) else ";"
            self.outside += range(position, min(stop + 1, len(self.words)))
            if closer == "{" and not opens_scope(head):
                end = scan.matching(stop)
                if _is_initialised(head):
                    self.outside += range(stop + 1, end + 1)
                else:
                    self.bodies.append((position, end))
                position = end + 1
            else:
                position = stop + 1
        self.outside.sort()

    def _faulty(self, position: int, stop: int, scan: Scan) -> int:
        """Return where the body begins of a function whose head lacks a closing bracket, 0 where none is lacking."""
        depth = 0
        for at in range(position, stop):
            depth += (self.words[at] in "([") - (self.words[at] in ")]")
            if self.words[at] == "{" and depth > 0:
                behind = scan.matching(at) + 1
                if self.words[behind : behind + 1] not in ([")"], [","], ["("]):
                    return at
        return 0

    def head_at(self, at: int) -> Head | None:
        """Return the head of the function that a token is in, one in a class's body too; None where it is in none."""
        if at not in self._heads:
            self._heads[at] = self._find_head(at)
        return self._heads[at]

    def _find_head(self, at: int) -> Head | None:
        start, end = self.function_at(at)
        if start == end:
            return None
        opened, first, owner = self._opened(start, at), start, ""
        outer = self.words[start : opened[0]] if opened else []
        if _opens_class(outer):
            owner, opened = _class_name(outer), opened[1:]
            first = opened[0] if opened else start
            depth = 0
            while opened and first > start and not (depth == 0 and self.words[first - 1] in (";", "{", "}")):
                first -= 1
                depth += (self.words[first] == ")") - (self.words[first] == "(")
                if self.words[first] == ":" and self.words[first - 1] in ("public", "private", "protected"):
                    first += 1
                    break
        if not opened:
            return None
        return self._head(first, opened[0], owner)

    def _opened(self, start: int, at: int) -> list[int]:
        """Return the braces from a token on that are still open at another."""
        opened: list[int] = []
        for place in range(start, at):
            if self.words[place] == "{":
                opened.append(place)
            elif self.words[place] == "}" and opened:
                opened.pop()
        return opened

    def _head(self, start: int, brace: int, owner: str) -> Head | None:
        begin = start
        if self.words[start] == "template":
            begin += closing_angle(self.words[start:brace], 1) + 1
        opening = next((at for at in range(begin, brace) if self.words[at] == "("), 0)
        if not opening or not NAME.fullmatch(self.words[opening - 1]):
            return None
        close = self.closing(opening, brace)
        names, defaults, packed = [], {}, False
        for part in commas(self.words[opening + 1 : close]):
            own = part[: part.index("=")] if "=" in part else part
            while own[-1:] == ["]"] and "[" in own:
                own = own[: len(own) - 1 - own[::-1].index("[")]
            name = next((word for word in reversed(own) if NAME.fullmatch(word)), "")
            names.append(name)
            packed = "." in own
            if "=" in part:
                defaults[name] = part[part.index("=") + 1 :]
        if self.words[opening - 2] == "::" and not owner:
            owner = self.words[opening - 3]
        return Head(self.words[opening - 1], tuple(names), defaults, (start, brace), packed, owner)

    def function_at(self, at: int) -> tuple[int, int]:
        """Return the tokens of the function that a token is in, its own place twice where it is in none."""
        order = bisect_right(self.bodies, (at, len(self.words))) - 1
        return self.bodies[order] if order >= 0 and at <= self.bodies[order][1] else (at, at)

    def closing(self, at: int, stop: int) -> int:
        """Return where the bracket at a token is closed, or the last token before `stop`; its place where none is."""
        if at >= len(self.words) or self.words[at] not in ("(", "[", "{"):
            return at
        return closing_bracket(self.words[at:stop], 0) + at

    def places_of(self, name: str, start: int, stop: int) -> list[int]:
        """Return where a word stands from a token to before another."""
        found = self.by_word.get(name, [])
        return found[bisect_left(found, start) : bisect_left(found, stop)]

    @cached_property
    def outside_of(self) -> dict[str, list[int]]:
        """Where each word stands outside of functions."""
        found: dict[str, list[int]] = {}
        for at in self.outside:
            found.setdefault(self.words[at], []).append(at)
        return found

    def stands(self, at: int, marks: str) -> bool:
        """Return whether marks stand from a token on."""
        return "".join(self.words[at : at + len(marks)]) == marks

    def opening(self, at: int) -> int:
        """Return where the bracket is opened that is closed at a token; the token's place where it closes none."""
        depth = 0
        for place in range(at, max(-1, at - 4000), -1):
            depth += (self.words[place] in (")", "}", "]")) - (self.words[place] in ("(", "{", "["))
            if depth <= 0:
                return place
        return at

    def back_to(self, at: int, *marks: str) -> int:
        """Return where the nearest of some words stands before a token in the same brackets, where those are opened if
        none does, 0 if that is far."""
        depth = 0
        for place in range(at - 1, max(at - 400, 0), -1):
            depth += (self.words[place] in (")", "}", "]")) - (self.words[place] in ("(", "{", "["))
            if depth < 0 or (depth == 0 and self.words[place] in marks):
                return place
        return 0

    # Where a name gets its value ------------------------------------------------------------------------------------

    def definitions(self, name: str, site: Site, before: int) -> list[tuple[int, list[str]]]:
        """Return where a name is given a value, in order: `T name = words`, `name = words`, `dim3 name(words)`."""
        start, stop = site.visible
        inside = self.places_of(name, start, min(before, stop))
        found = [one for at in inside if not self._in_step(at) and (one := self._definition(at))]
        read = [at for at in inside if self._is_input(at)]
        if found or read:
            return [one for one in found if not read or one[0] > read[-1]]
        head = self.head_at(stop)
        if head and name in head.parameters:
            return []
        return [one for at in self.outside_of.get(name, ()) if at < before and (one := self._definition(at))]

    def _definition(self, at: int) -> tuple[int, list[str]] | None:
        before, behind = self.words[at - 1] if at else ";", self.words[at + 1] if at + 1 < len(self.words) else ""
        if before in (".", "::") or self.stands(at - 2, "->"):
            return None
        if before == "&" or behind in (",", ")"):
            return self._filled(at)
        if behind == "=" and self.words[at + 2] != "=":
            words = self.until(at + 2)
            return at, ["dim3", *words] if words[:1] == ["{"] and self._in_dim3(at) else words
        if behind in ("(", "{") and before in ("dim3", ",") and self._in_dim3(at):
            close = self.closing(at + 1, at + 400)
            return at, ["dim3", *self.words[at + 1 : close + 1]]
        if behind in ("(", "{") and before in SPECIFIERS - {"void"} | {"size_t", "uint"}:
            close = self.closing(at + 1, at + 400)
            return (at, self.words[at + 2 : close]) if self.words[close + 1 : close + 2] in ([";"], [","]) else None
        if behind in ("(", "{") and before in (":", ",") and self._initialises(at):
            close = self.closing(at + 1, at + 400)
            words, place = self.words[at + 2 : close], close + 1
            while self.words[place : place + 1] == [","] and self.words[place + 2 : place + 3] in (["("], ["{"]):
                place = self.closing(place + 2, place + 400) + 1
            return place + 1, words  # read where the constructor's parameters are known
        return None

    def _initialises(self, at: int) -> bool:
        """Return whether a name stands in a constructor's list of initialisers: `: a(1), name(2)`."""
        place = at - 1
        while self.words[place] == "," and self.words[place - 1] in (")", "}"):
            place = self.opening(place - 1) - 2
        return self.words[place] == ":" and self.words[place - 1] == ")"

    def _filled(self, at: int) -> tuple[int, list[str]] | None:
        """Return what a call of CUDA writes to a name that it is given the address of: a pitch, a mapped pointer."""
        place, behind = self._before_address(at), 0
        while self.words[place] == "," and behind < 2:  # arguments before it
            place, behind = self.back_to(place, ","), behind + 1
        name = self.words[place - 1] if self.words[place] == "(" else ""
        if (name, behind) not in (("cudaMallocPitch", 1), ("cuMemAllocPitch", 1), ("cudaHostGetDevicePointer", 0)):
            return None
        inner = commas(self.words[place + 1 : self.closing(place, place + 400)])
        if len(inner) < 3:
            return None
        return at, inner[1] if behind == 0 else pitch_of(inner[2])

    def _before_address(self, at: int) -> int:
        """Return what stands in front of a name, of its `&` and of casts: `f((void **)&name)`."""
        place = at - 1
        while self.words[place] in ("&", ")"):
            opening = place
            if self.words[place] == ")":
                opening = self.opening(place)
                if not is_type(self.words[opening + 1 : place]):
                    break
            place = opening - 1
        return place

    def is_given(self, name: str, site: Site, whole: bool = True) -> bool:
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

    def members(self, name: str, site: Site, before: int) -> dict[str, tuple[int, list[str]]]:
        """Return the assignments to a dim3's members: `name.x = words`."""
        found = {}
        for at in self.places_of(name, site.visible[0], min(before, site.visible[1])):
            named = self.words[at + 1] == "." and self.words[at + 2] in ("x", "y", "z")
            if named and self.words[at + 3] == "=" and self.words[at + 4] != "=":
                found[self.words[at + 2]] = (at, self.until(at + 4))
        return found

    def counted_up(self, name: str, site: Site, before: int) -> bool:
        """Return whether a name, or a member of it, is changed in steps, `n *= 2`: only a run knows the last.

        What a loop around a place counts has its first value there.
        """
        start, stop = site.visible[0], min(before, site.visible[1])
        found = self.places_of(name, start, stop)
        for head, close in self._loops_around(start, stop) if any(map(self._is_stepped, found)) else ():
            if any(self.words[at + 1] == "=" for at in found if head < at < close):
                found = [at for at in found if at > close]
        return any(map(self._is_stepped, found))

    def _in_step(self, at: int) -> bool:
        """Return whether a token is in what a loop does after each turn: behind the second ';' of `for (...)`."""
        for mark in (";", ";", "("):
            at = self.back_to(at, ";")
            if self.words[at] != mark:
                return False
        return self.words[at - 1] == "for"

    def _is_input(self, at: int) -> bool:
        """Return whether a name is read into where it stands: `scanf("%d", &name)`, `cin >> name`."""
        if self.words[at - 1] == "&":
            start = self.back_to(at, ";")
            return self.words[start] == "(" and self.words[start - 1] in _READERS
        if not self.stands(at - 2, ">>"):
            return False
        start = at
        while start > max(at - 40, 0) and self.words[start - 1] not in (";", "{", "}", "(", "=", ","):
            start -= 1
        return "cin" in self.words[start : start + 3]

    def _is_stepped(self, at: int) -> bool:
        behind = self.words[at + 1 : at + 5]
        if behind[:1] == ["="] and behind[1:2] != ["="] and self._in_step(at):
            return True
        behind = behind[2:] if behind[:1] == ["."] else behind
        if behind[1:2] == ["="] and behind[0] in "*+-/%|&^":
            return True
        return behind[:2] in (["+", "+"], ["-", "-"]) or behind[:3] in (["<", "<", "="], [">", ">", "="])

    def _loops_around(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the brackets of the `for (...)` around a place, the outermost first."""
        heads = ((at + 1, self.closing(at + 1, at + 400)) for at in self.places_of("for", start, stop))
        return [(opening, close) for opening, close in heads if close < stop and self._lasts(close + 1, stop)]

    def _lasts(self, start: int, stop: int) -> bool:
        """Return whether the statement that begins at a token has not ended before another."""
        depth = 0
        for at in range(start, stop):
            depth += (self.words[at] in "([{") - (self.words[at] in ")]}")
            if depth < 0 or (depth == 0 and self.words[at] in (";", "}")):
                return False
        return True

    def until(self, at: int) -> list[str]:
        """Return the words up to the ';' or ',' that ends an initialiser."""
        depth, end = 0, at
        while end < min(len(self.words), at + 400):
            word = self.words[end]
            if depth == 0 and word in (";", ",", ")", "}"):
                break
            depth += (word in "([{") - (word in ")]}")
            end += 1
        return self.words[at:end]

    def calls(self, names: Iterable[str], start: int, stop: int) -> Iterator[tuple[int, str, list[list[str]]]]:
        """Yield the calls of functions between two tokens, in order: where, of which, and the arguments."""
        for at in sorted(at for name in names for at in self.places_of(name, start, stop)):
            if self.words[at + 1 : at + 2] in (["("], ["<"]):
                opening = at + 1
                if self.words[opening] == "<":
                    opening += closing_angle(self.words[at : at + 60], 1)
                if self.words[opening : opening + 1] == ["("]:
                    yield at, self.words[at], commas(self.words[opening + 1 : self.closing(opening, at + 1000)])

    def declaration(self, at: int) -> int:
        """Return where the declaration around a declared name begins: `T a(1), *b = c, name`."""
        place = at
        while place > max(at - 400, 0):
            before = self.words[place - 1]
            if before in (")", "]") or (before == "}" and self.words[place] == ","):
                place = self.opening(place - 1)
            elif before in (";", "{", "}", "("):
                break
            else:
                place -= 1
        return place

    def address_takers(self, name: str, site: Site) -> list[tuple[int, str, list[list[str]]]]:
        """Return the calls of the text's functions before a launch that are given the address of a name."""
        found = []
        for at in self.places_of(name, *site.visible):
            place = self._before_address(at)
            while self.words[place] == ",":
                place = self.back_to(place, ",")
            if self.words[place] == "(" and self.functions(self.words[place - 1]):
                inner = commas(self.words[place + 1 : self.closing(place, place + 400)])
                found.append((place - 1, self.words[place - 1], inner))
        return found

    def functions(self, name: str) -> list[tuple[int, int]]:
        """Return the bodies of the functions outside of classes that are called so."""
        return self._functions.get(name, [])

    def sharing(self, name: str, site: Site) -> list[tuple[int, int]]:
        """Return the bodies of other functions that use the same variable: one outside of functions, or a member."""
        if any(map(self._is_declared_at, self.places_of(name, *site.visible))) or self.is_given(
            name, site, whole=False
        ):
            return []
        spans = list(dict.fromkeys(map(self.function_at, self.by_word.get(name, ()))))
        if not any(map(self._is_declared_at, self.outside_of.get(name, ()))):
            peers = self.peers(site)
            spans = [span for span in spans if span in peers]
        own = self.function_at(site.visible[0])
        return [span for span in spans if span != own and span[0] != span[1]]

    def _is_declared_at(self, at: int) -> bool:
        """Return whether a variable is declared at a token: `T *a, *name`, no parameter."""
        start = self.declaration(at)
        kind = self.words[start:at]
        named = bool(kind) and kind[0] not in ("return", "delete") and NAME.fullmatch(kind[0]) is not None
        plain = all(NAME.fullmatch(word) or word in ("*", ",", "::", "<", ">", "&", "=", "0") for word in kind)
        formal = self.words[start - 1] in ("(", ",")
        return named and plain and not formal and self.words[at - 1] not in ("=", ".", "&")

    def peers(self, site: Site) -> list[tuple[int, int]]:
        """Return the bodies of the other functions of the class that a launch's function is a member of."""
        own = self.head_at(site.visible[1])
        if own is None or not own.owner:
            return []
        found = [span for span, name in self._classes if name == own.owner]
        heads = ((span, self.head_at(span[1])) for span in self.bodies)
        return found + [span for span, head in heads if head and head.owner == own.owner and head.span != own.span]

    @cached_property
    def _classes(self) -> list[tuple[tuple[int, int], str]]:
        heads = ((span, self.words[span[0] : min(span[0] + 60, span[1])]) for span in self.bodies)
        outer = ((span, words[: words.index("{")]) for span, words in heads if "{" in words)
        return [(span, _class_name(words)) for span, words in outer if _opens_class(words)]

    @cached_property
    def _functions(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for span in self.bodies:
            head = self.head_at(span[1])
            if head:
                found.setdefault(head.name, []).append(span)
        return found

    def assigned_members(self, name: str, member: str, site: Site, before: int) -> list[tuple[int, list[str]]]:
        """Return the assignments `name.member = words`, `name->member = words` before a place."""
        found = []
        for at in self.places_of(member, site.visible[0], min(before, site.visible[1])):
            owner = at - 2 if self.words[at - 1] == "." else at - 3 if self.stands(at - 2, "->") else at
            if self.words[owner] == name != self.words[at] and self.words[at + 1] == "=" != self.words[at + 2]:
                found.append((at, self.until(at + 2)))
        return found

    def parts_of(self, name: str, site: Site, before: int) -> tuple[dict[str, list[str]], list[str]]:
        """Return what an object's initialiser gives its members, by their names or places, and the members that are set
        or filled by calls after it: `name.member = words`, `f(&name.member, ...)`."""
        initial: dict[str, list[str]] = {}
        set_: list[str] = []
        for at in self.places_of(name, site.visible[0], min(before, site.visible[1])):
            opening = at + 1 + (self.words[at + 1] == "=")
            if self.words[opening] == "{":
                inner = commas(self.words[opening + 1 : self.closing(opening, opening + 400)])
                for order, words in enumerate(inner):
                    named = words[:1] == ["."] and "=" in words
                    initial |= {words[1]: words[words.index("=") + 1 :]} if named else {str(order): words}
            elif self.words[at + 1] == "." and NAME.fullmatch(self.words[at + 2]):
                set_.append(self.words[at + 2])
        return initial, list(dict.fromkeys(set_))

    def member_defaults(self, kind: list[str], member: str) -> list[tuple[int, list[str]]]:
        """Return the initialisers of a member in the class that a type's words name."""
        spans = [span for span, name in self._classes if kind[:1] == [name]]
        found = [at for span in spans for at in self.places_of(member, *span) if self.words[at + 1] == "="]
        return [(at, self.until(at + 2)) for at in found]

    def element_of(self, name: str, site: Site) -> list[str]:
        """Return the type that a pointer's declaration points at, [] where none is seen."""
        return self._declared(name, site, "*")

    def scalar_type(self, name: str, site: Site) -> list[str]:
        """Return the type of a variable that is neither pointer nor array, [] where no declaration is seen."""
        return self._declared(name, site, "")

    def _declared(self, name: str, site: Site, mark: str) -> list[str]:
        for at in [*self.places_of(name, *site.visible), *self.outside_of.get(name, ())]:
            if self.words[at + 1] == "*" or NAME.fullmatch(self.words[at + 1]):
                continue  # a type: `f(int n, name *p)`
            start = self.declaration(at)
            kind = [word for word in self.words[start:at] if word not in ("const", "static", "constexpr", "struct")]
            own, stars = kind[:1], kind[1:]
            while stars and stars[0] in SPECIFIERS:
                own, stars = [*own, stars[0]], stars[1:]
            plain = not stars or (stars[0] == "*" and all(word in "*," or NAME.fullmatch(word) for word in stars))
            if own and NAME.fullmatch(own[0]) and plain and bool(stars and stars[-1] == "*") == bool(mark):
                return own
        return []

    def symbols(self) -> list[tuple[str, list[str]]]:
        """Return what host code copies to symbols: `cudaMemcpyToSymbol(symbol, &value, ...)`."""
        calls = self.calls(["cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync"], 0, len(self.words))
        return [(last_name(without_cast(inner[0])), without_cast(inner[1])) for _, _, inner in calls if len(inner) >= 2]

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
            formal = [part[-1] for part in commas(words[at + 2 : closing_bracket(words, at + 1)]) if part]
            return formal, words[brace + 2 : words.index(";", brace)]
        return None


def _is_initialised(head: list[str]) -> bool:
    """Return whether a head is a variable's, `T name = {`, and no function's."""
    depth = 0
    for at, word in enumerate(head):
        depth += (word in "([") - (word in ")]")
        if word == "=" and depth == 0 and head[at - 1] != "operator":
            return True
    return False


def pitch_of(width: list[str]) -> list[str]:
    """Return the bytes from row to row that cudaMallocPitch chooses for rows of `width` bytes: GPUs of today take the
    next multiple of 512."""
    return ["(", "(", "(", *width, ")", "+", "511", ")", "/", "512", "*", "512", ")"]


def _opens_class(words: list[str]) -> bool:
    return bool({"class", "struct"} & set(words)) and "(" not in words


def _class_name(words: list[str]) -> str:
    """Return the name of a class by the words in front of its body."""
    end = words.index(":") if ":" in words else len(words)
    return next((word for word in reversed(words[:end]) if NAME.fullmatch(word) and word != "final"), "")
