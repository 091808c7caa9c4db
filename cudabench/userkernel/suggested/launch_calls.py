"""Launches by functions of CUDA: cudaLaunchKernel and its like, with an array of the arguments' addresses or a config.

CUDA runtime API reference, execution control; CUDA driver API reference, execution control.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from cudabench.userkernel.suggested.host_code import HostCode, Site
from cudabench.userkernel.suggested.host_words import commas, last_name, without_cast

_RUNTIME = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
_DRIVER = ("cuLaunchKernel", "cuLaunchCooperativeKernel")
_BY_CONFIG = ("cudaLaunchKernelEx", "cudaLaunchKernelExC", "cuLaunchKernelEx")
_SIDES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"gridDim": ("gridDimX", "gridDimY", "gridDimZ"), "blockDim": ("blockDimX", "blockDimY", "blockDimZ")}
)
_MEMBERS = ("gridDim", "blockDim", "dynamicSmemBytes")


def sites(host: HostCode) -> Iterator[Site]:
    """Yield the launches in the order of the text."""
    for at, function, inner in host.calls((*_RUNTIME, *_DRIVER, *_BY_CONFIG), 0, len(host.words)):
        visible = (host.function_at(at)[0], at)
        bare = Site([], [], [], visible)
        if function in _RUNTIME and len(inner) >= 3:
            arguments = _addressed(host, inner[3:4], bare)
            yield Site(inner[0], [*inner[1:3], *inner[4:5]], arguments, visible)
        elif function in _DRIVER and len(inner) >= 9:
            geometry = [_dim3(inner[1:4]), _dim3(inner[4:7]), inner[7]]
            yield Site(inner[0], geometry, _addressed(host, inner[9:10], bare), visible)
        elif function in _BY_CONFIG and len(inner) >= 2:
            geometry, cluster = _configured(host, last_name(without_cast(inner[0])), bare)
            arguments = inner[2:] if function == "cudaLaunchKernelEx" else _addressed(host, inner[2:3], bare)
            yield Site(inner[1], geometry, arguments, visible, cluster)


def _dim3(sides: list[list[str]]) -> list[str]:
    words = ["dim3", "("]
    for side in sides:
        words += [*side, ","]
    return [*words[:-1], ")"]


def _addressed(host: HostCode, given: list[list[str]], site: Site) -> list[list[str]]:
    """Return the arguments whose addresses an array holds: `void *args[] = {&a, (void *)&b}`; [] where none is seen."""
    words = without_cast(given[0]) if given else []
    if "{" in words:  # `(void *[]){&a, &b}`
        inner = words[words.index("{") + 1 : -1]
        return [without_cast(one) for one in commas(inner)]
    name = last_name(words[:1])
    found: list[list[str]] = []
    for at in host.places_of(name, *site.visible) or host.outside_of.get(name, []):
        place, inside = at + 1, []
        if host.words[place] == "[":
            close = host.closing(place, place + 40)
            inside, place = host.words[place + 1 : close], close + 1
        if host.words[place] == "=" and host.words[place + 1] == "{":
            place += 1
        elif host.words[place] == "=" and len(inside) == 1 and inside[0].isdigit():  # `args[0] = &a`
            order = int(inside[0])
            found += [[]] * (order + 1 - len(found))
            found[order] = without_cast(host.until(place + 1))
            continue
        if host.words[place] == "{":
            found = [without_cast(one) for one in commas(host.words[place + 1 : host.closing(place, place + 2000)])]
    while found and found[-1] in ([], ["0"], ["NULL"], ["nullptr"]):
        found.pop()
    return found


def _configured(host: HostCode, name: str, site: Site) -> tuple[list[list[str]], list[str]]:
    """Return the geometry of a `cudaLaunchConfig_t`, by its members or its initialiser, and the cluster of its
    attributes."""
    found: dict[str, list[str]] = {member: [] for member in _MEMBERS}
    before = site.visible[1]
    for at in host.places_of(name, *site.visible):
        opening = at + 2 if host.words[at + 1] == "=" else at + 1
        if host.words[opening] == "{":
            inner = commas(host.words[opening + 1 : host.closing(opening, opening + 400)])
            for order, words in enumerate(inner):
                if words[0] == "." and "=" in words:
                    found[words[1]] = _typed(words[words.index("=") + 1 :])
                elif len(inner) > 1 and order < len(_MEMBERS):
                    found[_MEMBERS[order]] = _typed(words)
    for member in _MEMBERS:
        for _, words in host.assigned_members(name, member, site, before):
            found[member] = _typed(words)
        sides = dict(_sides(host, member, site))
        sides |= {
            axis: host.assigned_members(name, one, site, before)[-1][1]
            for axis, one in zip("xyz", _SIDES.get(member, ()), strict=False)
            if host.assigned_members(name, one, site, before)
        }
        if "x" in sides:
            found[member] = _dim3([sides.get(axis, ["1"]) for axis in "xyz"])
    if not found["dynamicSmemBytes"]:
        shared = host.assigned_members(name, "sharedMemBytes", site, before)
        found["dynamicSmemBytes"] = shared[-1][1] if shared else ["0"]
    return [found[member] for member in _MEMBERS], _cluster(host, site)


def _typed(words: list[str]) -> list[str]:
    return ["dim3", *words] if words[:1] == ["{"] else words


def _sides(host: HostCode, member: str, site: Site) -> Iterator[tuple[str, list[str]]]:
    """Yield what `.member.x = words` assigns."""
    for at in host.places_of(member, *site.visible):
        words = host.words[at + 1 : at + 5]
        if len(words) == 4 and words[0] == "." and words[1] in ("x", "y", "z") and words[2] == "=" != words[3]:
            yield words[1], host.until(at + 4)


def _cluster(host: HostCode, site: Site) -> list[str]:
    """Return the blocks of a cluster as attributes say them: `attr.val.clusterDim.x = 2` or `= {2, 1, 1}`."""
    found: list[str] = []
    for at in host.places_of("clusterDim", *site.visible):
        if host.words[at + 1] == "=":
            found = _typed(host.until(at + 2))
    sides = dict(_sides(host, "clusterDim", site))
    return _dim3([sides.get(axis, ["1"]) for axis in "xyz"]) if "x" in sides else found
