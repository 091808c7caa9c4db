"""What `cudabench run` is asked for, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class UserRequest:
    """What the command line, or a profile, asks for: the texts of the options."""

    file: str
    kernels: tuple[str, ...] = ()
    grid: str | None = None
    block: str | None = None
    arguments: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    bytes: str | None = None
    flops: str | None = None
    shared: str | None = None
    cluster: str | None = None
    rtol: float | None = None
    atol: float | None = None
    constants: tuple[str, ...] = ()
    save: tuple[str, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    std: str = ""
    seed: int = 0
    # What shapes and grids may name besides the arguments and defines.
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()  # launches in order, in place of grid and block

    def given(self) -> dict[str, str]:
        """Return --arg values by name."""
        return {name_of(text): text.partition("=")[2].strip() for text in self.arguments}


def name_of(text: str) -> str:
    """Return what a text of NAME=VALUE names."""
    return text.partition("=")[0].strip()
