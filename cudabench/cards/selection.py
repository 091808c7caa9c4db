"""Reads the options --on (cards) and --price (their prices)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cudabench.cards.load import NAMES, Card, card_name, load_card, package_card
from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.text import line

ALL, NONE = "all", "none"
_EXAMPLE = "as in --price h100=2.69,l4=0.7"


def names_several(text: str) -> bool:
    """Return whether the text of --on names several cards: it is 'all', or has a comma and is not the name of a
    file."""
    return text.lower() == ALL or ("," in text and not Path(text).exists())


def cards_of_option(text: str) -> tuple[Card, ...]:
    """Return the cards that the text of --on names, in the order of the text. Raises UsageError for a wrong list, and
    the errors of `load_card`."""
    if text.lower() == ALL:
        return tuple(map(package_card, NAMES))
    chosen: list[Card] = []
    for item in text.split(",") if names_several(text) else [text]:
        name = item.strip()
        meaning = {ALL: "every card", NONE: "no card"}.get(name.lower())
        refuse(
            (
                not name,
                f"--on {line(text)} has nothing between two commas: write names with one comma between them, as in "
                "--on h100,t4.",
            ),
            (meaning, f"--on {line(text)}: '{name}' means {meaning} and stands alone: write --on {name.lower()}."),
        )
        card = load_card(name)
        twice = any(earlier.key == card.key for earlier in chosen)
        refuse((twice, f"--on {line(text)} names {line(card.key)} twice: name each card once."))
        chosen.append(card)
    return tuple(chosen)


def with_prices(chosen: Sequence[Card], text: str) -> tuple[Card, ...]:
    """Return copies of the cards with the prices for an hour from the text of --price.

    Raises UsageError for a price that is not a number, and for a price of a card that --on does not name.
    """
    prices: dict[str, float] = {}
    keys = [card.key for card in chosen]
    for piece in map(str.strip, text.split(",")):
        name, equals, price = (field.strip() for field in piece.rpartition("="))
        key = name if name in keys else card_name(name) or name
        shown = line(piece) or "nothing between two commas"
        refuse(
            (
                not (name and equals and price),
                f"--price {line(text)}: {shown} is not a card with its price an hour: write it {_EXAMPLE}.",
            ),
            (
                key not in keys,
                f"--price {line(text)}: {line(name)} is not one of the cards of --on ({', '.join(map(line, keys))}): "
                f"add it there, or leave its price out.{did_you_mean(key, keys)}",
            ),
            (key in prices, f"--price {line(text)} has two prices of {line(key)}: keep one."),
        )
        try:
            prices[key] = float(price)
        except ValueError:
            raise UsageError(f"--price {line(piece)}: {line(price)} is not a number: write it {_EXAMPLE}.") from None
        if not 0 <= prices[key] < math.inf:
            raise UsageError(f"--price {line(piece)}: a price is 0 or more an hour, {_EXAMPLE}.")
    return tuple(replace(card, per_hour=prices.get(card.key)) for card in chosen)
