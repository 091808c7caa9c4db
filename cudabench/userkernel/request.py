"""The request of `cudabench run`, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

LAUNCH = ("grid", "block", "bytes", "flops", "shared", "cluster")  # options with a single text


@dataclass(frozen=True)
class UserRequest:
    """The request of the command line or a profile: the texts of the options."""

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
    # Names for shapes and grids besides the arguments and defines.
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()  # launches in order, instead of grid and block

    def given(self) -> dict[str, str]:
        """Return --arg values by name."""
        return {name_of(text): text.partition("=")[2].strip() for text in self.arguments}

    def with_values(self, values: Mapping[str, str]) -> UserRequest:
        """Return the request with other values for the named arguments."""
        texts = ((name_of(text), text) for text in self.arguments)
        return replace(self, arguments=tuple(f"{n}={values[n]}" if n in values else text for n, text in texts))

    def words(self, command: str = "run") -> list[str]:
        """Return the command line of this request."""
        words = ["cudabench", command, self.file]
        numbers = ((f"--{name}", getattr(self, name)) for name in ("rtol", "atol"))
        options: tuple[tuple[str, Iterable[str | None]], ...] = (
            ("--kernel", self.kernels),
            ("-I", self.include),
            ("-D", [f"{name}={text}" for name, text in self.defines.items()]),
            ("--std", [self.std or None]),
            *((f"--{name}", [getattr(self, name)]) for name in LAUNCH),
            ("--step", self.steps),
            ("--arg", self.arguments),
            ("--expect", self.expect),
            ("--const", self.constants),
            *((option, [None if number is None else f"{number:g}"]) for option, number in numbers),
            ("--seed", [str(self.seed) if self.seed else None]),
        )
        given = ((option, text) for option, texts in options for text in texts if text is not None)
        return [*words, *chain.from_iterable(given)]


def name_of(text: str) -> str:
    """Return the name in a text of NAME=VALUE."""
    return text.partition("=")[0].strip()
