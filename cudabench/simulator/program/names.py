"""Names of variables as the source has them."""

from __future__ import annotations

from functools import cache

from cudabench.toolchain.cubin import plain_name


@cache
def readable(name: str) -> str:
    """Return the source name of a variable."""
    return plain_name(name.rpartition("::")[2])
