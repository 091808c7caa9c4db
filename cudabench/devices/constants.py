"""The compiler's names of `__constant__` variables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudabench.errors import UsageError


def constant_symbols(name: str) -> list[str]:
    """Return the symbols that a variable may have: plain, static, in namespaces (Itanium C++ ABI, 5.1)."""
    *spaces, own = name.split("::")
    if not spaces:
        return [own, f"_ZL{len(own)}{own}", f"_ZN12_GLOBAL__N_1L{len(own)}{own}E", f"_ZN12_GLOBAL__N_1{len(own)}{own}E"]
    inside = "".join(f"{len(space)}{space}" for space in spaces)
    return [f"_ZN{inside}{len(own)}{own}E", f"_ZN{inside}L{len(own)}{own}E"]


def constant_name(name: str, symbols: Iterable[str]) -> str | None:
    """Return the module's symbol of a variable, or None."""
    there = list(symbols)
    if exact := next((symbol for symbol in constant_symbols(name) if symbol in there), None):
        return exact
    own = name.rpartition("::")[2]
    ending = re.compile(rf"_Z\w*{len(own)}{own}E?")
    matches = [symbol for symbol in there if ending.fullmatch(symbol)]
    return matches[0] if len(matches) == 1 else None


def check_constant(name: str, content: bytes, size: int) -> None:
    """Raise UsageError if a value and its variable differ in size."""
    if len(content) != size:
        raise UsageError(f"--const {name}: the value has {len(content)} bytes, the variable {size}: give {size} bytes.")
