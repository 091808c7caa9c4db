"""`--on h100,rtx4090,t4`, `--on all` and `--price`: the cards whose lower bounds and costs the simulator computes."""

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
    """The devices on which a command runs, and the cards for which its counts are evaluated.

    `choices`: the devices; in the simulator one for each architecture of the cards, in the cards' order. `cards`: the
    cards for which lower bounds on the time are computed from the counts.
    """

    choices: Sequence[Choice]
    cards: tuple[Card, ...]


def places_of(
    given: Mapping[str, Any], choose: Callable[[str], Sequence[Choice]], *, simulated: bool = False
) -> Places:
    """Return the devices and the cards of a command.

    `choose` returns the devices of --device; `simulated`: see `several_cards`.
    """
    if places := several_cards(given, simulated=simulated):
        return places
    choices = choose(device_for_card(given))
    return Places(choices, cards_of_one(given, choices[0]))


def several_cards(given: Mapping[str, Any], *, simulated: bool = False) -> Places | None:
    """Return devices and cards if --on names several cards or --price is given, else None.

    `simulated`: the command uses the simulator even on a machine with a GPU. Raises UsageError if the options
    contradict each other or the device.
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
        # with --on all, a card that the simulator does not support is only left out; if the user named a card, or none
        # is left, the error is raised again
        except UsageError:
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
    """Raise UsageError if --device names the simulator of another architecture than that of the cards of --on."""
    if device.startswith("sim:") and architectures != [device[4:].rstrip("af")]:
        raise UsageError(
            f"--device {device} and --on {on} contradict each other: the code of --on is {', '.join(architectures)}; "
            "use --device sim, or leave it out."
        )


def _check_simulated(given: Mapping[str, Any], simulates: bool) -> None:
    """Raise UsageError if --on is given together with a GPU or with --limits, which is for a GPU."""
    refuse(
        (
            not simulates,
            f"--on {given['card']} prices the counts of the simulator: on a GPU use --limits, or add --device sim.",
        ),
        (given.get("limits"), "--limits is for a GPU, and --on for the simulator: keep --on."),
    )


def device_for_card(given: Mapping[str, Any]) -> str:
    """Return the value of --device; for the simulator, with the architecture of the card of --on.

    Raises UsageError if --device names another architecture.
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
    """Return a tuple with the card of --on; without --on, in the simulator, the default card of the architecture.

    The tuple is empty on a GPU, with --on none, and if the architecture has no card. Raises UsageError if --on or
    --limits does not fit the device.
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
