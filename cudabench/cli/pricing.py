"""`--on h100,rtx4090,t4`, `--on all` and `--price`: several cards that price one kernel in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from cudabench.cards import asked
from cudabench.errors import UsageError

if TYPE_CHECKING:
    from cudabench.cards.load import Card
    from cudabench.devices import Choice


@dataclass(frozen=True)
class Several:
    """The cards, and a simulator for each architecture that they have, in the order of its first card."""

    cards: tuple[Card, ...]
    choices: tuple[Choice, ...]


def price_option() -> click.Option:
    """Return what says what cards cost."""
    return click.Option(
        ["--price"],
        metavar="CARD=N,...",
        help="With --on: what cards cost an hour, as h100=2.69,l4=0.7; the table adds what a million launches cost.",
    )


def several(given: Mapping[str, Any], *, simulated: bool = False) -> Several | None:
    """Return the cards of --on and --price, None where --on names one card or none and nothing has a price.

    simulated: the command runs in the simulator also where there is a GPU. Raises UsageError where they do not fit each
    other or the device.
    """
    on, price, device = given.get("card"), given.get("price"), given["device"]
    if on is None or on.lower() == asked.NONE:
        if price is not None:
            raise UsageError(f"--price {price} is of the cards that --on names: add them, as in --on h100,l4.")
        return None
    if price is None and not asked.is_several(on):
        return None
    from cudabench import devices

    cards = asked.cards(on)
    if price is not None:
        cards = asked.priced(cards, price)
    if device == "auto" and simulated:
        device = "sim"
    if not devices.simulates(device):
        raise UsageError(f"--on {on} prices the counts of the simulator: on a GPU use --limits, or add --device sim.")
    if given.get("limits"):
        raise UsageError("--limits is for a GPU, and --on for the simulator: keep --on.")
    architectures = list(dict.fromkeys(card.architecture for card in cards))
    if device.startswith("sim:") and architectures != [device[4:].rstrip("af")]:
        raise UsageError(
            f"--device {device} and --on {on} do not go together: the cards' code is {', '.join(architectures)}; use "
            "--device sim, or leave it out."
        )
    choices: list[Choice] = []
    left: list[str] = []
    for name in architectures:
        try:
            choices.append(devices.choose(f"sim:{name}"))
        except UsageError:  # of a card that is named
            if on.lower() != asked.ALL or len(left) + 1 == len(architectures):
                raise
            left.append(name)
    unknown = [card.key for card in cards if card.architecture in left]
    notes = [devices.choose(device).note, f"Left out, as NVRTC is older: {', '.join(unknown)}." if unknown else None]
    note = " ".join(filter(None, notes)) or None
    return Several(
        tuple(card for card in cards if card.architecture not in left),
        tuple(replace(choice, note=note) for choice in choices),
    )
