"""Loads cards with their ceilings: cards of the package by name, other cards from files that `cudabench ceilings`
wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cudabench.cards import KINDS, Ceiling, datasheets
from cudabench.errors import CudabenchError, UsageError, did_you_mean, no_such_file
from cudabench.records import file as files
from cudabench.records.decode import DecodeError, decode
from cudabench.records.file import ResultsFile
from cudabench.records.results import DeviceInfo
from cudabench.text import line

# The cards that were measured with `cudabench ceilings`. This package has their results files.
MEASURED = ("h200", "h100")
NAMES = (*MEASURED, *datasheets.SHEETS)
# Limits that are computed from the simulator's counts are for this card, unless the user names another card.
DEFAULT = "h100"
_MAKERS = re.compile(r"^(?:nvidia|geforce|tesla|quadro|jetson|agx)+")


@dataclass(frozen=True)
class Card:
    """A card with its ceilings by name. `file`: the file that the ceilings come from; empty for the cards of the
    package.

    `key`: the card's name for --on. `per_hour`: the price of the card for an hour, if the user gave one.
    `chosen_by_user`: whether the user chose the card.
    """

    device: DeviceInfo
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    file: str = ""
    key: str = ""
    per_hour: float | None = None
    chosen_by_user: bool = True

    @property
    def architecture(self) -> str:
        """The architecture of code for the card, such as sm_90."""
        return "sm_" + self.device.compute_capability.replace(".", "")

    @property
    def source(self) -> str:
        """Where the card's ceilings come from, as text: 'measured', 'datasheet' or 'measured in part, else
        datasheet'."""
        sources = {ceiling.source for ceiling in self.ceilings.values() if ceiling.value is not None}
        return "measured in part, else datasheet" if len(sources) > 1 else next(iter(sources), "datasheet")

    @property
    def title(self) -> str:
        """The card's name and the source of its ceilings, such as 'H100 (measured)', for headings of limits."""
        return f"{line(self.device.name).removeprefix('NVIDIA ')} ({self.source})"

    @property
    def sm_hz(self) -> float:
        """The clock of the multiprocessors in Hz; 0 if it is not known."""
        return float(self.device.clocks.get("sm_mhz", 0)) * 1e6

    def value(self, name: str) -> float | None:
        """Return the value of the ceiling `name` in its unit; None if the card lacks this ceiling or its measurement
        failed."""
        ceiling = self.ceilings.get(name)
        return ceiling.value if ceiling and ceiling.status == "ok" and ceiling.value and ceiling.value > 0 else None


def load_card(name: str) -> Card:
    """Return the card that --on names: a card of the package, or a results file with ceilings.

    A name may be in upper or lower case, with or without NVIDIA or RTX. Raises UsageError for other words, and
    CudabenchError for a file without ceilings.
    """
    key = card_name(name)
    if key:
        return package_card(key)
    path = Path(name)
    if path.exists() or name.endswith(".json") or "/" in name:
        if not path.exists():
            raise no_such_file(path, "*.json", f"--on {line(name)}")
        return card_from_document(files.document_of(files.read_text(path), line(name)), name)
    near = did_you_mean(_normalized(name), NAMES)
    raise UsageError(
        f"--on {line(name)} is not a known card.{near} Use {', '.join(NAMES)}, or a file of "
        "'cudabench ceilings --json'."
    )


def default_card(architecture: str) -> Card | None:
    """Return the default card, or None if the default card's architecture is not `architecture`."""
    card = replace(package_card(DEFAULT), chosen_by_user=False)
    return card if architecture.rstrip("af") == card.architecture else None


def _normalized(text: str) -> str:
    return _MAKERS.sub("", re.sub(r"[\s_-]", "", text.lower()))


def card_name(name: str) -> str | None:
    """Return the entry of NAMES that a user's word such as 'RTX 4090' or '4090' means, or None."""
    plain = _normalized(name)
    return next(
        (candidate for candidate in (plain, f"rtx{plain}", plain.removeprefix("rtx")) if candidate in NAMES), None
    )


def package_card(name: str) -> Card:
    """Return the card of the package with this name (an entry of NAMES)."""
    if name in MEASURED:
        return replace(
            card_from_document(json.loads(measured_file(name).read_text(encoding="utf-8")), name), file="", key=name
        )
    return Card(datasheets.SHEETS[name].device, datasheets.ceilings(name), key=name)


def measured_file(name: str) -> Path:
    """Return the path of the results file of a card in MEASURED."""
    return Path(__file__).with_name(f"{name}.json")


def card_for_device(device: DeviceInfo) -> Card:
    """Return the card for a device of a run. If the package has this card, its ceilings are taken from there; otherwise
    the only ceiling is the peak bandwidth that follows from the memory clock."""
    for name in NAMES:
        card = package_card(name)
        if card.device.name == device.name and card.device.compute_capability == device.compute_capability:
            return replace(card, device=replace(device, clocks={**card.device.clocks, **device.clocks}))
    peak = {}
    if device.peak_gbps:
        kind = KINDS["memory-read"]
        peak["memory-read"] = Ceiling(
            "memory-read", kind.group, device.peak_gbps, kind.unit, device.peak_gbps, source="datasheet",
            reason="2 * memory clock * bus width",
        )  # fmt: skip
    return Card(device, peak)


def card_from_document(document: Mapping[str, Any], name: str) -> Card:
    """Return the card of a parsed results file. Raises CudabenchError if the file has no ceilings; `name`: the file's
    name in error messages."""

    def refuse(why: str) -> CudabenchError:
        return CudabenchError(f"{line(name)} {why}: give a file of 'cudabench ceilings --json'.")

    device, rows = document.get("device"), document.get("ceilings")
    if not isinstance(device, dict) or not isinstance(rows, list) or not rows:
        raise refuse("lacks the ceilings of a card")
    clocks = device.get("clocks")
    if not isinstance(clocks, dict) or not _number(clocks.get("sm_mhz")) or not _number(device.get("sm_count")):
        raise refuse("lacks the number of its card's multiprocessors, or their clock")
    ceilings = {}
    try:
        for row in rows:
            if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                raise refuse("has a ceiling without a name")
            key, value = row["name"], row.get("value")
            if key not in KINDS:
                continue  # only a newer version of cudabench knows this ceiling
            if value is not None and not _number(value):
                raise refuse(f"has {line(str(value))[:40]} as the value of {key}, which is not a number over 0")
            ceilings[key] = decode(Ceiling, {"group": KINDS[key].group, "unit": KINDS[key].unit, **row}, key)
        info = decode(DeviceInfo, {"name": "a card", "kind": "cuda", **device}, "device")
    except DecodeError as error:
        raise refuse(f"does not follow {files.SCHEMA} ({error})") from None
    return Card(replace(info, name=line(info.name)), ceilings, name, name)


def load_file_or_card(name: str) -> ResultsFile:
    """Return a results file with ceilings. `name` is first taken as the path of a file; if no such file exists, it is
    the name of a card of the package. Raises CudabenchError as `records.file.load` does."""
    key = known_card(name)
    if key in MEASURED:
        return files.load(measured_file(key))
    if key:
        card = package_card(key)
        return ResultsFile({}, {}, {}, devices=[card.device], ceilings=[*card.ceilings.values()])
    return files.load(name)


def known_card(name: str) -> str | None:
    """Return the entry of NAMES that `name` means; None if there is none, or if a file with this name exists."""
    return None if Path(name).exists() else card_name(name)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
