"""The values of host code's expressions: of a launch's grid and block, its numbers, and its arrays' bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from cudabench.toolchain.c_types import numpy_dtype, vector_type
from cudabench.toolchain.tokens import spell
from cudabench.userkernel.suggested import containers
from cudabench.userkernel.suggested.allocations import allocations, extent
from cudabench.userkernel.suggested.function_calls import chains
from cudabench.userkernel.suggested.host_code import Head, HostCode, Site, pitch_of
from cudabench.userkernel.suggested.host_expressions import DEPTH, UNREAD, Expression, Number, Unknown, Value
from cudabench.userkernel.suggested.host_words import NAME, commas, last_name, pointed, without_cast

UP = "^"  # before a name that is one of the place where the launch's function is called
_HOPS = 8  # of pointers that are others
_OTHERS = 8  # functions that may allocate what a launch is given
_MADE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"make_cudaPitchedPtr": ("ptr", "pitch", "xsize", "ysize"), "make_cudaExtent": ("width", "height", "depth")}
)
_LOOKS = 1000  # at names of one launch: each may be set in several places, whose names may too


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
        return Expression(self, words, before, local or {}).whole()

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
