"""Types of options: numbers (`--block 32 8`, `32,8`, `32x8`), finite numbers, percentages, orders of blocks."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from cudabench.errors import UsageError

MAX_DIGITS = 18  # a number with at most this many digits fits in 64 bits, and Python converts it without an error


BETWEEN = re.compile(r",|(?<=\d)x(?=[+-]?\d)")  # separators of numbers within a word
POWER = re.compile(r"(\d{1,4})(<<|\*\*|\^|e)(\d{1,2})", re.ASCII)
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
# Suffixes with two meanings: k may mean 1024 or 1000. Each suffix has the exponent of the power of 1024 (or of 1000).
UNCLEAR = {"k": 1, "m": 2, "g": 3}


def whole(word: str) -> int | None:
    """Return the whole number that a word means; None if the word is not a whole number.

    Forms: 1048576, 1_048_576, 1e6, 1<<20, 2**20, 2^20, 1Mi.
    """
    plain = word.replace("_", "") if re.fullmatch(r"\d{1,3}(_\d{3})+", word, re.ASCII) else word
    if re.fullmatch(r"[+-]?\d+", plain, re.ASCII):
        return int(plain) if len(plain) <= MAX_DIGITS else None
    number = None
    if power := POWER.fullmatch(word):
        base, exponent = int(power[1]), int(power[3])
        shifted = {"<<": 2, "e": 10}.get(power[2])
        number = base * shifted**exponent if shifted else base**exponent
    elif plain[-2:] in BINARY and plain[:-2].isdecimal() and plain.isascii() and len(plain) <= MAX_DIGITS:
        number = int(plain[:-2]) * BINARY[plain[-2:]]
    return number if number is None or number < 10**MAX_DIGITS else None


def _thousands(word: str) -> tuple[int, ...]:
    """Return both numbers that a word such as 4k may mean, (4096, 4000); empty for a word without such a suffix."""
    match = re.fullmatch(r"(\d{1,6})([kmg])b?", word.lower(), re.ASCII)
    return tuple(int(match[1]) * base ** UNCLEAR[match[2]] for base in (1024, 1000)) if match else ()


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on
    """The type of a value with at most `most` whole numbers, joined by commas or by x."""

    name = "numbers"
    glue = ","  # the character that joins numbers which the user gave as separate words

    def __init__(self, most: int) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers as a tuple. Fails at the first word that is not a number."""
        if isinstance(value, tuple):
            return value
        option = param.opts[-1] if param else "this option"
        numbers = []
        for word in BETWEEN.split(str(value)):
            number = whole(word)
            if number is not None:
                numbers.append(number)
            elif re.fullmatch(r"[+-]?\d+", word, re.ASCII):
                self.fail(f"{option} '{word}' is out of range: it has {len(word)} digits.")
            elif meanings := _thousands(word):
                raise UsageError(
                    f"{option} {word} means {' or '.join(f'{meaning:,}' for meaning in meanings)}: write "
                    f"{option} {meanings[0]} or {option} {meanings[1]}."
                )
            else:
                self.fail(f"{option} '{word}' is not a whole number.")
        if len(numbers) > self.most:
            self.fail(f"{option} takes at most {self.most} numbers, not {len(numbers)}.")
        return tuple(numbers)


class Ranges(Numbers):
    """The type of a value with a number or a range for each axis of a block: `8:64 4:32`. The word 32x8 is one
    block."""

    name = "ranges"
    glue = " "

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple with the text of each axis. Fails if an axis is missing."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(" ")
        if len(words) == 1 and len(numbers := BETWEEN.split(words[0])) == self.most:
            words = numbers
        if len(words) != self.most:
            self.fail(f"{param.opts[-1] if param else 'this option'} takes {self.most} ranges, such as 8:64 4:32.")
        return tuple(words)


class Expressions(Numbers):
    """The type of a value with one to three expressions; whole numbers may be separate words (32 8), or joined by x."""

    name = "expressions"

    def __init__(self) -> None:
        super().__init__(3)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text with commas in place of x. The text is evaluated when the kernel's arguments are known."""
        return value.replace("x", ",") if re.fullmatch(r"\d+(x\d+){1,2}", str(value), re.ASCII) else value


class Finite(click.FloatRange):
    """A number in a range, neither infinite nor nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number as a float. Fails if it is infinite or nan."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Order(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The type of a value that names the order in which the simulator runs the blocks: reverse, or random:SEED."""

    name = "order"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text unchanged. Fails if it is not an order."""
        if not re.fullmatch(r"reverse|random:\d+", value):
            self.fail(f"'{value}' is not an order of blocks: use reverse or random:SEED, such as random:7.", param, ctx)
        return value


def percentage(text: str) -> float:
    """Return a percentage as a fraction: 0.05 for '5%' or '5'. Raises BadParameter for other texts, and for '0.05'."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text, re.ASCII)
    if not match:
        raise click.BadParameter(f"'{text}' is not a percentage: write it like 5%.")
    number = float(match[1])
    if not match[2] and 0 < number < 1:  # 0.05 may mean 5% or 0.05%
        raise click.BadParameter(
            f"'{text}' may be a percentage or a fraction: write {match[1]}% or {number * 100:.6g}%."
        )
    return number / 100
