"""Options with one to three numbers, and a command that reads them: `--block 32 8`, `--block 32`, `--block 32,8`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import click

from cudabench.cli.help import Headed

MAX_DIGITS = 18  # any such number fits 64 bits, and Python reads it whatever its own limit


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Whole numbers joined by commas or x. `most` is how many there may be."""

    name = "numbers"

    def __init__(self, most: int) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers, or fail with the word that is none."""
        if isinstance(value, tuple):
            return value
        option = param.opts[-1] if param else "this option"
        numbers = []
        for word in re.split(r",|(?<=\d)x(?=[+-]?\d)", str(value)):
            if not re.fullmatch(r"[+-]?\d+", word, re.ASCII):
                self.fail(f"{option} '{word}' is not a whole number.")
            if len(word) > MAX_DIGITS:
                self.fail(f"{option} '{word}' is out of range: it has {len(word)} digits.")
            numbers.append(int(word))
        if len(numbers) > self.most:
            self.fail(f"{option} takes at most {self.most} numbers, not {len(numbers)}.")
        return tuple(numbers)


class Finite(click.FloatRange):
    """A number in a range, neither infinite nor nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail where it is infinite or nan."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


class SpreadCommand(Headed):
    """A command whose number options may stand as separate words.

    click's options take a fixed count of words. Here the numbers that follow such an option, as many as it can take,
    are joined to one word before click sees them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the numbers of each number option, then parse."""
        return super().parse_args(ctx, self.joined(args))

    def joined(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with the numbers of each number option as one word."""
        spreads = {
            name: param.type.most for param in self.params if isinstance(param.type, Numbers) for name in param.opts
        }
        joined: list[str] = []
        words = iter(range(len(args)))
        for at in words:
            word = args[at]
            joined.append(word)
            if word == "--":
                joined.extend(args[at + 1 :])
                break
            if word not in spreads or at + 1 == len(args):
                continue
            values = [args[at + 1]]
            while (
                len(values) < spreads[word]
                and at + 1 + len(values) < len(args)
                and re.match(r"-?\d", args[at + 1 + len(values)])
            ):
                values.append(args[at + 1 + len(values)])
            # As one word with '=' a negative number is a value and no option.
            if word.startswith("--"):
                joined[-1] = f"{word}={','.join(values)}"
            else:
                joined[-1] = f"{word}{','.join(values)}"
            for _ in values:
                next(words)
        return joined
