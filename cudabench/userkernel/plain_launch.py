"""What a file's own launch of a kernel says outright: literals, macros and constants, nothing computed from others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cudabench.errors import UsageError
from cudabench.toolchain import source
from cudabench.toolchain.named import template_arguments
from cudabench.toolchain.source import KernelSource
from cudabench.toolchain.tokens import spell, split, words_of
from cudabench.userkernel import expressions
from cudabench.userkernel.constants import in_numbers
from cudabench.userkernel.values import CONSTANTS


@dataclass(frozen=True)
class PlainLaunch:
    """A launch as far as its text says it: the template's arguments, grid, block and dynamic shared bytes as numbers,
    '' where they are not plain, and for each argument the whole number that it is, None for another."""

    template: tuple[str, ...] = ()
    grid: str = ""
    block: str = ""
    shared: str = ""
    passed: tuple[int | None, ...] = ()


def find(kernel: KernelSource, text: str, aliases: Mapping[str, str]) -> PlainLaunch:
    """Return the first launch of a kernel whose block is plain, else the first, else one that says nothing."""
    kinds = r"<\s*([^;{}()]*?)\s*>\s*" if kernel.template_parameters else ""
    launch = rf"\b{kernel.name}\s*(?:{kinds})?<\s*<\s*<([^;]*?)>\s*>\s*>\s*\(([^;]*)\)\s*;"
    found = []
    for match in re.finditer(launch, text):
        template, config, passed = match.groups() if kinds else ("", *match.groups())
        how = [spell(part) for part in split(words_of(config), ",")]
        grid, block = (_sides(one, text, aliases) for one in [*how, "", ""][:2])
        shared = str(number(how[2], text, aliases) or "") if len(how) > 2 else ""
        given = tuple(spell(part) for part in split(words_of(template or ""), ",") if part)
        numbers = tuple(number(spell(part), text, aliases) for part in split(words_of(passed), ","))
        found.append(PlainLaunch(given, grid, block, shared, numbers))
    return next((one for one in found if one.block), found[0] if found else PlainLaunch())


def number(words: str, text: str, aliases: Mapping[str, str]) -> int | None:
    """Return the whole number that an expression of literals, macros and constants of a text is, None for another."""

    def bytes_of(match: re.Match[str]) -> str:
        dtype = source.numpy_dtype(match[1], aliases)
        return str(np.dtype(dtype).itemsize) if dtype and dtype != "bfloat16" else match[0]

    words = re.sub(r"\bsizeof\s*\(\s*([\w ]+?)\s*\)", bytes_of, words)
    words = in_numbers(words, text, aliases)
    try:
        value = expressions.parse(words.replace("/", "//"), "a launch", ()).evaluate(CONSTANTS)
    except UsageError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def block_in(kernel: KernelSource, body: str, text: str, aliases: Mapping[str, str], axes: int) -> list[int]:
    """Return the block that a kernel's own constants take for granted, [] where they say none.

    `blockIdx.x*64+threadIdx.x` counts blocks of 64 threads, and a shared array of one extent has an element for each.
    """
    given = template_arguments(kernel)

    def plain(pattern: str) -> int:
        words = next((one for match in re.findall(pattern, body) for one in match if one), "")
        return (number(given.get(words, words), text, aliases) or 0) if words else 0

    own = r"\bblockIdx\.{0}\*(\w+)(?![\w.(])|(?<![\w.])(\w+)\*blockIdx\.{0}\b"
    sides = [plain(own.format(axis)) for axis in "xyz"[:axes]]
    if axes == 1 and not sides[0]:
        sides = [plain(r"\b__shared__ [\w: ]+\[([^\[\]]+)\](?!\[)()") or plain(r"__launch_bounds__\(([^,()]+)()")]
    return sides if all(1 <= side <= 1024 for side in sides) else []


def _sides(words: str, text: str, aliases: Mapping[str, str]) -> str:
    """Return a grid or a block of a launch as an option takes it, '' where it is not plain."""
    if re.fullmatch(r"[^\W\d]\w*", words):
        made = rf"\bdim3\s+(?:[^;()]*\([^;()]*\)\s*,\s*)*{words}\s*(?:=\s*dim3\s*)?[({{]([^;]*?)[)}}]\s*[,;]"
        found = set(re.findall(made, text))
        words = f"dim3({found.pop()})" if len(found) == 1 else words
    inside = re.fullmatch(r"dim3\s*[({](.*)[)}]", words.strip(), re.S)
    parts = split(words_of(inside[1]), ",") if inside else [[words]]
    sides = [number(spell(part), text, aliases) for part in parts]
    while len(sides) > 1 and sides[-1] == 1:
        sides.pop()
    return ",".join(map(str, sides)) if all(sides) and len(sides) <= 3 else ""
