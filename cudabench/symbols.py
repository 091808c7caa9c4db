"""Demangles C++ names, as they appear in a cubin or in PTX (Itanium C++ ABI)."""

from __future__ import annotations

import re
from functools import lru_cache


def readable(text: str) -> str:
    """Return a text in which mangled names are demangled: '_ZN2ns1fEPf' becomes 'ns::f'."""
    return re.sub(r"\b_Z\w+", lambda match: _demangled(match[0]), text)


def _demangled(symbol: str) -> str:
    names, at = [], len("_Z")
    while at < len(symbol) and symbol[at] in "ZNKL":
        at += 1
    while match := re.compile(r"\d+").match(symbol, at):
        at = match.end() + int(match[0])
        names.append(symbol[match.end() : at])
    return "::".join(name for name in names if not name.startswith("_GLOBAL__N")) or symbol


@lru_cache(maxsize=4096)
def plain_name(symbol: str) -> str:
    """Return the last part of a symbol's name, without namespaces; the symbol is mangled or plain ('ns::f').

    >>> plain_name("_ZZ4bumpE5count"), plain_name("_ZN2ns5tableE"), plain_name("_ZL4flag"), plain_name("total")
    ('count', 'table', 'flag', 'total')
    >>> plain_name("_ZZ6kernelILi8EEvPfE4tile"), plain_name("_ZZ6kernelILi8EEvPfE4tile_0"), plain_name("_ZZ1kPiE1s_$_0")
    ('tile', 'tile', 's')
    """
    symbol = symbol.rpartition("::")[2]
    if not symbol.startswith("_Z"):
        return symbol
    # A number in the symbol may be a template argument, or the length of the name after the number. The name is the
    # last part if only closing letters and suffixes such as '_0' follow it.
    for match in re.finditer(r"(?<!\d)(\d+)(?=[A-Za-z_])", symbol):
        end = match.end() + int(match[0])
        if end <= len(symbol) and re.fullmatch(r"E*(_\d*_?)?(\$_\d+)?", symbol[end:]):
            return symbol[match.end() : end]
    return symbol
