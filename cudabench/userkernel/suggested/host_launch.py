"""How a file's own host code launches a kernel: its grid, its block, the numbers it passes and the arrays it allocates.

Only for lines that messages suggest: what cannot be read is left to a guess, and nothing is run. Host code is followed
as far as an eye would: names back to what was assigned to them last, in the launch's function or outside all functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from cudabench.toolchain import places
from cudabench.toolchain.c_types import SPECIFIERS, canonical, numpy_dtype
from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.tokens import Scan, closing_bracket, spell, split
from cudabench.userkernel.suggested.conditions import around
from cudabench.userkernel.suggested.host_code import HostCode, Site
from cudabench.userkernel.suggested.host_expressions import DEPTH, UNREAD, Number, Value
from cudabench.userkernel.suggested.host_values import UP, Reader
from cudabench.userkernel.suggested.host_words import NAME, is_type, last_name, literal, without_cast
from cudabench.userkernel.suggested.launch_sites import sites

MOST_THREADS = 1 << 20  # of a launch that a message suggests: some seconds in the simulator
MOST_BYTES = 1 << 30  # of an array
# Of a side of a launch that hangs on what only callers know: the largest of the first that is not too large, or, where
# host code divides it by so much that nothing is left, the least of the others that leaves something.
_SPARE = (64, 16, 4, 1 << 10, 1 << 12, 1 << 16, 1 << 20)
LEAST = 64  # of a number by which a launch is made smaller
_LAUNCHES = 100  # of a kernel that are looked at
_ALL_KNOWN = 3


@dataclass(frozen=True)
class HostLaunch:
    """One launch: `template` holds the template's arguments, `numbers` those of the kernel's parameters that are
    numbers, `nbytes` the arrays' sizes, each by the parameter's place, `constants` what was copied to `__constant__`
    variables before, `cleared` the places of arrays that are set to zero for it; what could not be read is absent.
    `spare`: whether grid and block hang on what only callers know. `cluster`: blocks, None where nothing says any.
    `members`: by the parameter's place, the numbers in a struct and the bytes of the arrays that it points at."""

    template: tuple[str, ...] = ()
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared: int = 0
    numbers: Mapping[int, Number] = field(default_factory=dict)
    nbytes: Mapping[int, int] = field(default_factory=dict)
    constants: Mapping[str, Number] = field(default_factory=dict)
    spare: bool = False
    cleared: frozenset[int] = frozenset()
    cluster: tuple[int, int, int] | None = None
    members: Mapping[int, Mapping[str, Number]] = field(default_factory=dict)


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
    named = re.compile(rf"\b{re.escape(kernel.name)}\b")
    launches = re.compile(r"<\s*<\s*<|\bcu(?:da)?Launch(?:Cooperative)?Kernel")
    if not launches.search(text) or not any(
        match.end() <= kernel.start or match.start() >= kernel.end for match in places.matches(named, text, kernel.name)
    ):
        return None
    host = host_of(text, tuple(aliases.items()))
    best: HostLaunch | None = None
    unreached: list[Site] = []
    for at in islice(sites(host, kernel), _LAUNCHES):
        if not host.is_reached(at):
            unreached.append(at)
            continue
        best = _better(best, host.read(at, kernel, assumed, ragged, most or MOST_THREADS))
        if best and _known(best) == _ALL_KNOWN:
            return best
    for at in unreached if best is None else ():
        best = _better(best, host.read(at, kernel, assumed, ragged, most or MOST_THREADS))
    return best


def _better(one: HostLaunch | None, other: HostLaunch | None) -> HostLaunch | None:
    """Return the launch of which more is known, the first of two alike."""
    return other if other and (one is None or _known(other) > _known(one)) else one


def _at_least(value: int, halvings: int) -> int:
    """Return a number halved so often, but never below `LEAST`: one that is already less keeps its value."""
    while halvings and value >> 1 >= LEAST:
        value, halvings = value >> 1, halvings - 1
    return value


@lru_cache(maxsize=4)  # a line is found in several looks at one text
def host_of(text: str, aliases: tuple[tuple[str, str], ...]) -> Host:
    """Return the host code of a text."""
    return Host(Scan(text), dict(aliases))


def _known(launch: HostLaunch) -> int:
    """Return how many are known of block, grid, and an array's size with that: `_ALL_KNOWN` at the most."""
    return (launch.block is not None) + (launch.grid is not None) + (launch.grid is not None and bool(launch.nbytes))


class Host(HostCode):
    """The host code of a text, and its launches."""

    def read(
        self, site: Site, kernel: KernelSource, assumed: Mapping[str, int], ragged: bool, most: int
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
            name = root.strip(UP)
            # A constant of the file that the kernel reads itself keeps its value.
            free = name in formal or not re.search(rf"\b{re.escape(name)}\b", kernel.text)
            if root and free and numpy_dtype(parameter.type, self.aliases) not in (None, "bool"):
                roots[root] = at
        fixed: dict[str, Value] = {}
        for root, at in roots.items():
            own = kernel.parameters[at].name
            if own not in assumed:
                continue
            known = self._known(root, site, {})
            undefined = not known and (root[0] == UP or not self.definitions(root, site, site.visible[1]))
            if undefined or (ragged and known):
                fixed[root] = assumed[own]
        for root, at in roots.items():
            own = kernel.parameters[at].name
            if own in assumed and root not in fixed and not self._known(root, site, fixed):
                fixed[root] = assumed[own]
        fixed = {**self._chosen(site), **fixed}
        launch = self._with(site, kernel, places, fixed)
        whole = self._halved(roots, site, fixed)
        before = fixed
        for halvings in range(1, 40):
            if launch is None or not _too_large(launch, most):
                return launch
            halved = {root: _at_least(value, halvings) for root, value in whole.items()}
            smaller = {**fixed, **{root: value for root, value in halved.items() if value < whole[root]}}
            if smaller == before:
                break
            launch, before = self._with(site, kernel, places, smaller), smaller
        return launch

    def _halved(self, roots: Iterable[str], site: Site, fixed: Mapping[str, Value]) -> dict[str, int]:
        """Return the whole numbers that a launch is made smaller by: those that no other of them says, as rows say
        what a pitch is."""
        found: dict[str, int] = {}
        for root in roots:
            if not (root in fixed or self._known(root, site, {})):
                continue
            with suppress(*UNREAD):
                value = Reader(self, site, fixed).name(root, site.visible[1])
                found |= {root: value} if isinstance(value, int) else {}
        free: dict[str, int] = {}
        for root, value in found.items():
            less = {other: size // 2 for other, size in found.items() if other != root}
            with suppress(*UNREAD):
                if root in fixed or Reader(self, site, {**fixed, **less}).name(root, site.visible[1]) == value:
                    free[root] = value
        return free

    def _chosen(self, site: Site) -> dict[str, Value]:
        """Return the names that a launch stands under the condition of, each with what it is there."""
        found: dict[str, Value] = {}
        for condition in around(self, *site.visible):
            name, words = condition.chosen or ("", [])
            value = Reader(self, site, {}).number(words) if name else None
            if value is not None and not (condition.labels and self._known(name, site, {})):
                found.setdefault(name, value)
        return found

    def is_reached(self, site: Site) -> bool:
        """Return whether no condition around a launch, or a call that leads to it, is known not to hold."""
        reader = Reader(self, site, {})
        for condition in around(self, *site.visible):
            value = reader.number(condition.words)
            if value is None:
                continue
            if condition.labels or condition.others:
                labels = [reader.number(list(one)) for one in condition.labels]
                others = [reader.number(list(one)) for one in condition.others]
                known = None not in labels and None not in others
                if known and value not in labels and (value in others or not condition.others):
                    return False
            elif bool(value) != condition.holds:
                return False
        return site.caller is None or self.is_reached(site.caller)

    def _known(self, name: str, site: Site, fixed: Mapping[str, Value]) -> bool:
        try:
            Reader(self, site, fixed).name(name, site.visible[1])
        except UNREAD:
            return False
        return True

    def _root(self, words: list[str], site: Site) -> str:
        """Return the name that an argument is another name of, '' where it is an expression; marked for each call that
        leads from it to the launch."""
        start, mark, last, before = site, "", "", ""
        for _ in range(DEPTH):
            words = without_cast(words)
            if len(words) != 1 or not NAME.fullmatch(words[0]):
                return last
            name = words[0]
            found = self.definitions(name, site, site.visible[1])
            words = without_cast(found[-1][1]) if found and found[-1][1] else []
            if not words and name in site.given and site.caller:
                words, last = site.given[name], mark + name
                site, mark = site.caller, mark + UP
            elif len(words) != 1 or not NAME.fullmatch(words[0]) or words[0] == name:
                own = mark + name  # a constructor's parameter is known by what it sets alone
                return before if before and self._known(before, start, {}) > self._known(own, start, {}) else own
            before = mark + name if site is start else last
        return ""

    def _with(
        self, site: Site, kernel: KernelSource, places: Mapping[int, list[str]], fixed: Mapping[str, Value]
    ) -> HostLaunch | None:
        reader = Reader(self, site, fixed)
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
        for words in split(site.kernel, ",") if site.kernel else []:
            typed = canonical(spell(words)) in SPECIFIERS or words in (["true"], ["false"])
            value = None if typed else reader.number(words)
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
        cluster = reader.geometry(site.cluster) if site.cluster else None
        if cluster and grid:  # a grid made smaller still is of whole clusters
            x, y, z = (-(-side // many) * many for side, many in zip(grid, cluster, strict=True))
            grid = (x, y, z)
        members = {
            at: own
            for at, words in places.items()
            if numpy_dtype(kernel.parameters[at].type, self.aliases) is None and (own := reader.members(words))
        }
        return HostLaunch(
            template=tuple(template),
            grid=grid,
            block=block,
            shared=int(shared or 0),
            numbers=numbers,
            nbytes=nbytes,
            constants=constants,
            spare=spared is not None,
            cleared=cleared,
            cluster=cluster,
            members=members,
        )

    def _is_cleared(self, name: str, site: Site) -> bool:
        """Return whether an array holds zeros at a launch: by cudaMemset and nothing after it, or from its start."""
        start, stop = site.visible
        last = next((at for at in range(stop - 1, start, -1) if self.words[at] == name), None)
        if last is not None:
            before = last - 1
            if self.words[before] == ")":  # a cast's
                before = self.opening(before) - 1
            if self.words[before] == "(" and self.words[before - 1] in ("cudaMemset", "cudaMemsetAsync"):
                return self.words[last + 1 : last + 4] == [",", "0", ","]
        found = self.definitions(name, site, stop)
        return bool(found and found[-1][1] and {"zeros", "zeros_like"} & set(found[-1][1]))

    def _spared(
        self, site: Site, fixed: Mapping[str, Value]
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        """Return a grid and a block where only callers know what they hang on; such a block is one thread deep."""
        least = Reader(self, site, fixed, 1).geometry((*site.geometry, [], [])[1])
        for spare in _SPARE:
            reader = Reader(self, site, fixed, spare)
            grid, block = (reader.geometry(words) for words in (*site.geometry, [], [])[:2])
            if grid and block and least and math.prod(grid) * math.prod(block) <= MOST_THREADS:
                return grid, (block[0], least[1], least[2])
        return None

    def _deduced(self, site: Site, kernel: KernelSource, known: int) -> list[str]:
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

    def _type(self, words: list[str], site: Site) -> str:
        """Return the type of a launch's argument without its pointer: of a cast, a literal, or a name's declaration."""
        if words[:1] == ["("] and is_type(words[1 : (end := closing_bracket(words, 0))]) and end + 1 < len(words):
            return spell([word for word in words[1:end] if word not in ("*", "const")])
        words = without_cast(words)
        if len(words) == 1 and re.match(r"\.?\d", words[0]):
            number = literal(words[0])
            return "int" if isinstance(number, int) else "float" if words[0][-1] in "fF" else "double"
        name = last_name(words)
        for at in [*self.places_of(name, *site.visible), *self.outside_of.get(name, ())]:
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


def _too_large(launch: HostLaunch, most: int) -> bool:
    if launch.grid and launch.block and math.prod(launch.grid) * math.prod(launch.block) > most:
        return True
    return any(value > MOST_BYTES for value in launch.nbytes.values())
