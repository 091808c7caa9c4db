"""`--on h100,rtx4090,t4`, `--on all` and `--price`: the cards that price a kernel in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cudabench import devices
from cudabench.cards import load as loading
from cudabench.cards import selection
from cudabench.cards.load import Card
from cudabench.devices import Choice
from cudabench.errors import UsageError, refuse


class Places(NamedTuple):
    """The devices of a command (a simulator for each architecture of the cards, in the cards' order), and the cards
    that price its counts."""

    choices: Sequence[Choice]
    cards: tuple[Card, ...]


def places_of(
    given: Mapping[str, Any], choose: Callable[[str], Sequence[Choice]], *, simulated: bool = False
) -> Places:
    """Return the devices of a command, from `choose(--device)`, and the cards that price its counts.

    simulated: as for `several`.
    """
    if places := several_cards(given, simulated=simulated):
        return places
    choices = choose(device_for_card(given))
    return Places(choices, cards_of_one(given, choices[0]))


def several_cards(given: Mapping[str, Any], *, simulated: bool = False) -> Places | None:
    """Return the cards of --on and --price; None if --on names at most one card and --price is not given.

    simulated: the command runs in the simulator even with a GPU. Raises UsageError if the options contradict each other
    or the device.
    """
    on, price, device = given.get("card"), given.get("price"), given["device"]
    if on is None or on.lower() == selection.NONE:
        if price is not None:
            raise UsageError(f"--price {price} needs the cards of --on: add them, as in --on h100,l4.")
        return None
    if price is None and not selection.names_several(on):
        return None

    cards = selection.cards_of_option(on)
    if price is not None:
        cards = selection.with_prices(cards, price)
    if device == "auto" and simulated:
        device = "sim"
    _check_simulated(given, devices.simulates(device))
    architectures = list(dict.fromkeys(card.architecture for card in cards))
    check_architecture(device, on, architectures)
    choices: list[Choice] = []
    unsupported: list[str] = []
    for name in architectures:
        try:
            choices.append(devices.choose(f"sim:{name}"))
        except UsageError:  # for a named card
            if on.lower() != selection.ALL or len(unsupported) + 1 == len(architectures):
                raise
            unsupported.append(name)
    left_out = [card.key for card in cards if card.architecture in unsupported]
    notes = [
        devices.choose(device).note,
        f"Left out, because NVRTC is older: {', '.join(left_out)}." if left_out else None,
    ]
    note = " ".join(filter(None, notes)) or None
    priced_cards = tuple(card for card in cards if card.architecture not in unsupported)
    return Places([replace(choice, note=note) for choice in choices], priced_cards)


def check_architecture(device: str, on: str, architectures: Sequence[str]) -> None:
    """Raise UsageError if --device names the simulator of an architecture that the cards of --on do not have."""
    if device.startswith("sim:") and architectures != [device[4:].rstrip("af")]:
        raise UsageError(
            f"--device {device} and --on {on} contradict each other: the code of --on is {', '.join(architectures)}; "
            "use --device sim, or leave it out."
        )


def _check_simulated(given: Mapping[str, Any], simulates: bool) -> None:
    """Raise UsageError if --on is given with a GPU or an option for GPUs."""
    refuse(
        (
            not simulates,
            f"--on {given['card']} prices the counts of the simulator: on a GPU use --limits, or add --device sim.",
        ),
        (given.get("limits"), "--limits is for a GPU, and --on for the simulator: keep --on."),
    )


def device_for_card(given: Mapping[str, Any]) -> str:
    """Return --device; if it is the simulator without an architecture, add the architecture of the card of --on.

    Raises UsageError for another architecture.
    """
    device: str = given["device"]
    if given.get("card") in (None, selection.NONE):
        return device

    architecture = loading.load_card(given["card"]).architecture
    if device == "sim" or (device == "auto" and devices.simulates(device)):
        return device if architecture == devices.DEFAULT_SIMULATED else f"sim:{architecture}"
    check_architecture(device, given["card"], [architecture])
    return device


def cards_of_one(given: Mapping[str, Any], choice: Choice) -> tuple[Card, ...]:
    """Return the card of --on or, in the simulator, the default card of the simulated architecture; else empty.

    Raises UsageError if --on or --limits does not fit the device.
    """
    if given.get("card") == selection.NONE:
        return ()
    if given.get("card") is not None:
        _check_simulated(given, choice.kind != "cuda")
        return (loading.load_card(given["card"]),)
    if given.get("limits") and choice.kind == "sim":
        raise UsageError("--limits compares a measured time with its limits: in the simulator use --on h200.")
    card = loading.default_card(choice.architecture) if choice.kind == "sim" else None
    return () if card is None else (card,)
