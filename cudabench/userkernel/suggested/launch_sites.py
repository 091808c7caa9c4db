"""Where host code launches a kernel, by its name or by a variable that holds it."""

from __future__ import annotations

from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.tokens import closing_angle
from cudabench.userkernel.suggested.host_code import HostCode, Site
from cudabench.userkernel.suggested.host_words import NAME, commas


def sites(host: HostCode, kernel: KernelSource) -> list[Site]:
    """Return the launches of a kernel in the order of the text; where none names it, those by a variable."""
    return _launches(host, kernel.name) or _by_pointer(host, len(kernel.parameters))


def _by_pointer(host: HostCode, parameters: int) -> list[Site]:
    """Return the launches through a variable that holds a kernel, with as many arguments as one takes."""
    heads = {at - 1 for at in host.by_word.get("<", ()) if host.stands(at, "<<<")}
    names = {host.words[at] for at in heads if NAME.fullmatch(host.words[at])}
    held = {one for one in names if _is_declared(host, one)}
    return [site for name in sorted(held) for site in _launches(host, name) if len(site.arguments) == parameters]


def _is_declared(host: HostCode, name: str) -> bool:
    """Return whether a name is a variable: `name = words`, or a function's parameter."""
    return any(host.words[at + 1 : at + 2] in (["="], [";"], [","], [")"]) for at in host.by_word.get(name, ()))


def _launches(host: HostCode, name: str) -> list[Site]:
    """Return the launches `name<arguments><<<geometry>>>(arguments)`."""
    found = []
    for at in host.by_word.get(name, ()):
        behind, template = at + 1, []
        if host.stands(behind, "<") and not host.stands(behind, "<<<"):
            end = closing_angle(host.words[behind : behind + 400], 0) + behind
            template, behind = host.words[behind + 1 : end], end + 1
        if not host.stands(behind, "<<<"):
            continue
        end, depth = behind + 3, 0
        while end < min(len(host.words), behind + 400) and not (depth == 0 and host.stands(end, ">>>")):
            depth += (host.words[end] in "([{") - (host.words[end] in ")]}")
            end += 1
        if not host.stands(end + 3, "("):
            continue
        close = host.closing(end + 3, end + 1000)
        geometry, arguments = commas(host.words[behind + 3 : end]), commas(host.words[end + 4 : close])
        found.append(Site(template, geometry, arguments, (host.function_at(at)[0], at)))
    return found
