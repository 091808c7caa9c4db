"""Finds `__constant__` variables in a module: translates C++ names into the compiler's symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudabench.errors import UsageError


def constant_symbols(name: str) -> list[str]:
    """Return the symbols that the compiler may give a variable: plain, static, or in namespaces (Itanium C++ ABI,
    5.1)."""
    *spaces, var = name.split("::")
    if not spaces:
        return [var, f"_ZL{len(var)}{var}", f"_ZN12_GLOBAL__N_1L{len(var)}{var}E", f"_ZN12_GLOBAL__N_1{len(var)}{var}E"]
    namespaces = "".join(f"{len(space)}{space}" for space in spaces)
    return [f"_ZN{namespaces}{len(var)}{var}E", f"_ZN{namespaces}L{len(var)}{var}E"]


def constant_name(name: str, symbols: Iterable[str]) -> str | None:
    """Return the symbol of the variable `name` among a module's symbols, or None if not exactly one symbol matches."""
    candidates = list(symbols)
    if exact := next((symbol for symbol in constant_symbols(name) if symbol in candidates), None):
        return exact
    last = name.rpartition("::")[2]
    ending = re.compile(rf"_Z\w*{len(last)}{last}E?")
    matches = [symbol for symbol in candidates if ending.fullmatch(symbol)]
    return matches[0] if len(matches) == 1 else None


def check_constant(name: str, content: bytes, size: int) -> None:
    """Raise UsageError if a value for a variable does not have the variable's `size` in bytes."""
    if len(content) != size:
        raise UsageError(f"--const {name}: the value has {len(content)} bytes, the variable {size}: give {size} bytes.")
