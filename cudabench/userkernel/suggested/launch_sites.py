"""Where host code launches a kernel: by its name or by a variable that holds it, in `<<<>>>` or by CUDA's functions,
and for which calls of the function that does so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.tokens import opening_angle
from cudabench.userkernel.suggested import launch_calls
from cudabench.userkernel.suggested.function_calls import chains, unpacked
from cudabench.userkernel.suggested.host_code import HostCode, Site
from cudabench.userkernel.suggested.host_words import NAME, commas, without_cast

_HOPS = 6  # of names that hold what others hold
_ANGLES = 400  # words of a template's arguments, or of a grid and a block

_BEFORE_VALUES = frozenset(["=", ",", "(", "{", "&", ")", ":", "?", "return", "::"])
_BEHIND_VALUES = ([","], [";"], [")"], ["}"], ["<"])


def sites(host: HostCode, kernel: KernelSource) -> Iterator[Site]:
    """Yield the launches of a kernel in the order of the text, each for every call of its function, with the arguments
    of the template in place of its name; where none is sure, those by a variable of which nothing says what it holds.
    """
    sure = False
    unsure = []
    for launch in _all(host):
        if _names(launch.kernel, kernel.name) is None and not _may_hold(host, launch, kernel):
            continue
        for chain in chains(host, launch):
            template = _held(host, chain, kernel.name)
            if template is not None:
                sure = True
                yield unpacked(replace(chain, kernel=template))
            elif _names(launch.kernel, kernel.name) is None:
                unsure.append(unpacked(replace(chain, kernel=[])))
    if not sure:
        yield from (site for site in unsure if len(site.arguments) == len(kernel.parameters))


@lru_cache(maxsize=4)  # a text is asked for each of its kernels
def _all(host: HostCode) -> list[Site]:
    """Return all launches of a text."""
    found = [*_by_marks(host), *launch_calls.sites(host)]
    return sorted(found, key=lambda site: site.visible[1])


def _by_marks(host: HostCode) -> Iterator[Site]:
    """Yield the launches `name<arguments><<<geometry>>>(arguments)`."""
    for at in host.by_word.get("<", ()):
        if not host.stands(at, "<<<") or host.words[at - 1] == "<":
            continue
        end, depth = at + 3, 0
        while end < min(len(host.words), at + _ANGLES) and not (depth == 0 and host.stands(end, ">>>")):
            depth += (host.words[end] in "([{") - (host.words[end] in ")]}")
            end += 1
        if not host.stands(end + 3, "("):
            continue
        start = _start(host, at)
        geometry = commas(host.words[at + 3 : end])
        arguments = commas(host.words[end + 4 : host.closing(end + 3, end + 1000)])
        yield Site(host.words[start:at], geometry, arguments, (host.function_at(start)[0], start))


def _start(host: HostCode, at: int) -> int:
    """Return where the words begin that name what `<<<` launches: `space::name<T>`, `table[i].kernel`, `(*kernel)`."""
    place = at - 1
    while place > 0:
        if host.words[place] == ">":
            first = max(place - _ANGLES, 0)
            place = opening_angle(host.words[first : place + 1], place - first) + first - 1
        while place > 0 and host.words[place] in ("]", ")"):
            opening = host.opening(place)
            if host.words[opening] != "[":
                return opening
            place = opening - 1
        if host.words[place - 1] in (".", "::"):
            place -= 2
        elif host.stands(place - 2, "->"):
            place -= 3
        else:
            return place
    return 0


def _names(words: list[str], name: str) -> list[str] | None:
    """Return the arguments of a template that words name, [] for none; None where they name something else."""
    words = without_cast(words)
    while len(words) > 2 and words[1] == "::":
        words = words[2:]
    if words[:1] == ["::"] or words[:1] == ["template"]:
        words = words[1:]
    if words[:1] != [name] or (words[1:] and not (words[1] == "<" and words[-1] == ">")):
        return None
    return words[2:-1]


def _may_hold(host: HostCode, launch: Site, kernel: KernelSource) -> bool:
    """Return whether a variable, a member or an element of a table is launched, and the kernel is a value somewhere."""
    words = without_cast(launch.kernel)
    while words[:1] == ["*"]:
        words = words[1:]
    if not words or not NAME.fullmatch(words[0]) or words[-1] == ">":
        return False
    if host.by_word.get(f'"{kernel.name}"'):
        return True
    return any(
        host.words[at + 1 : at + 2] in _BEHIND_VALUES and host.words[at - 1] in _BEFORE_VALUES
        for at in host.by_word.get(kernel.name, ())
    ) and _is_variable(host, words[-1] if NAME.fullmatch(words[-1]) else words[0])


def _is_variable(host: HostCode, name: str) -> bool:
    """Return whether a name is declared as a variable, a parameter or a member."""
    behind = (["="], [";"], [","], [")"], ["["])
    return any(host.words[at + 1 : at + 2] in behind for at in host.by_word.get(name, ()))


def _held(host: HostCode, site: Site, name: str, words: list[str] | None = None, hops: int = 0) -> list[str] | None:
    """Return the arguments of the template of a kernel that words stand for at a launch; None where they do not, or
    nothing says so."""
    words = without_cast(site.kernel if words is None else words)
    while words[:1] == ["*"]:
        words = without_cast(words[1:])
    found = _names(words, name)
    if found is not None or hops > _HOPS:
        return found
    if len(words) != 1 or not NAME.fullmatch(words[0]):
        return None
    own = words[0]
    for at in reversed(host.places_of(own, *site.visible) or host.outside_of.get(own, [])):
        value = _assigned(host, at, name)
        found = _held(host, site, name, value, hops + 1) if value and value != words else None
        if found is not None:
            return found
    if own in site.given and site.caller:
        return _held(host, site.caller, name, site.given[own], hops + 1)
    return None


def _assigned(host: HostCode, at: int, name: str) -> list[str]:
    """Return what a variable is set to at a token: `name = words`, `(*name)(types) = words`, or by a call that has the
    kernel's name in quotes, as `cuModuleGetFunction(&name, module, "kernel")`."""
    place = at + 1
    if host.words[at - 1] == "*" and host.words[place : place + 2] == [")", "("]:
        place = host.closing(place + 1, place + 200) + 1
    quoted = f'"{name}"'
    if host.words[place] == "=" != host.words[place + 1]:
        words = host.until(place + 1)
        return [name] if quoted in words else words
    if host.words[at - 1] == "&" and quoted in host.until(at):
        return [name]
    statement = host.words[at : at + 40]
    end = statement.index(";") if ";" in statement else 0
    return [name] if host.words[at - 1] == "&" and quoted in statement[:end] else []
