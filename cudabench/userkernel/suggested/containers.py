"""The containers and the fixed arrays that host code declares: `std::vector<float> v(n)`, `float h[N]`."""

from __future__ import annotations

from dataclasses import dataclass

from cudabench.toolchain.c_types import SPECIFIERS, numpy_dtype, vector_type
from cudabench.toolchain.tokens import closing_angle, spell
from cudabench.userkernel.suggested.host_code import HostCode, Site
from cudabench.userkernel.suggested.host_words import NAME, commas, pointed

_ON_DEVICE = frozenset(["device_vector", "universal_vector"])
_CONTAINERS = _ON_DEVICE | {"vector", "host_vector", "array", "pinned_vector"}


@dataclass(frozen=True)
class Container:
    """A container or array: where it is declared, the type of an element, and how many there are along each side, as
    expressions, or the name of a container that has as many."""

    at: int
    element: list[str]
    sides: list[list[str]]
    like: str = ""
    on_device: bool = False
    container: bool = True


def find(host: HostCode, name: str, site: Site) -> Container | None:
    """Return what is declared under a name before a launch, the last where there are several."""
    found: Container | None = None
    inside = host.places_of(name, *site.visible)
    for at in inside or host.outside_of.get(name, []):
        if host.stands(at + 1, ".resize("):
            sides = commas(host.words[at + 4 : host.closing(at + 3, at + 200)])
            found = found and Container(at, found.element, sides[:1], "", found.on_device)
        else:
            found = _declared(host, at) or found
    return found


def _declared(host: HostCode, at: int) -> Container | None:
    kind = host.words[host.declaration(at) : at]
    named = next((place for place, word in enumerate(kind) if word in _CONTAINERS), None)
    if named is not None and kind[named + 1 : named + 2] == ["<"]:
        end = closing_angle(kind, named + 1)
        before = kind[end + 1 :]
        inner = commas(kind[named + 2 : end])
        if end < len(kind) and (not before or before[-1] == ",") and inner:
            return _filled(host, at, kind[named], inner)
        return None
    own = [word for word in kind if word not in ("const", "static", "constexpr", "__restrict__")]
    known = numpy_dtype(spell(own), host.aliases) or vector_type(spell(own), host.aliases)
    if host.words[at + 1 : at + 2] == ["["] and own and (known or set(own) <= SPECIFIERS):
        return _fixed(host, at, own)
    return None


def _filled(host: HostCode, at: int, kind: str, inner: list[list[str]]) -> Container | None:
    on_device = kind in _ON_DEVICE
    if kind == "array":
        return Container(at, inner[0], inner[1:2]) if len(inner) > 1 else None
    opening = at + 1
    if host.words[opening] == "=" and host.words[opening + 1] == "{":
        opening += 1
    mark = host.words[opening]
    if mark == "=":
        return Container(at, inner[0], [], pointed(host.until(opening + 1)), on_device)
    if mark not in ("(", "{"):
        return Container(at, inner[0], [["?"]], "", on_device)
    given = commas(host.words[opening + 1 : host.closing(opening, at + 4000)])
    if mark == "{":
        return Container(at, inner[0], [[str(len(given))]], "", on_device)
    if not given:
        return None
    other = given[0][0] if NAME.fullmatch(given[0][0]) else ""
    whole = len(given[0]) == 1 and len(given) == 1 and is_container(host, other, at)
    if whole or (len(given) == 2 and "begin" in given[0]):
        return Container(at, inner[0], [], other, on_device)
    return Container(at, inner[0], given[:1], "", on_device)


def is_container(host: HostCode, name: str, before: int) -> bool:
    """Return whether a name is declared as a container before a place in its function."""
    span = (host.function_at(before)[0], before)
    return any(found.container for at in host.places_of(name, *span) if (found := _declared(host, at)))


def _fixed(host: HostCode, at: int, element: list[str]) -> Container | None:
    sides, place = [], at + 1
    while host.words[place] == "[":
        close = host.closing(place, place + 60)
        sides.append(host.words[place + 1 : close])
        place = close + 1
    if sides and not sides[0] and host.words[place] == "=" and host.words[place + 1] == "{":
        given = commas(host.words[place + 2 : host.closing(place + 1, place + 4000)])
        sides[0] = [str(len(given))]
    return Container(at, element, sides, container=False) if all(sides) else None
