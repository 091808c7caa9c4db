"""The request that a `cudabench run` command line makes: its options, stored as the strings that the user wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

# options that may be given at most once and whose value is stored as a string
LAUNCH = ("grid", "block", "bytes", "flops", "shared", "cluster")


@dataclass(frozen=True)
class UserRequest:
    """The options of `run`, from the command line or a profile; most are stored as the strings that the user wrote."""

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
    # Further numbers, by name, that expressions for shapes and grids may use besides the arguments and the defines.
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()  # the values of --step; a request with steps has no grid and no block

    def given(self) -> dict[str, str]:
        """Return the values of --arg, keyed by the argument's name."""
        return {name_of(text): text.partition("=")[2].strip() for text in self.arguments}

    def with_values(self, values: Mapping[str, str]) -> UserRequest:
        """Return a copy of the request in which each argument named in `values` has the value given there."""
        texts = ((name_of(text), text) for text in self.arguments)
        return replace(self, arguments=tuple(f"{n}={values[n]}" if n in values else text for n, text in texts))

    def words(self, command: str = "run") -> list[str]:
        """Return the words of a command line that makes the same request."""
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
    """Return the part NAME of a text NAME=VALUE."""
    return text.partition("=")[0].strip()
