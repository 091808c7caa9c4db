"""The records of a fleet: who a card is and how it was, and what a report finds out about many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

CardStatus = Literal["ok", "wrong", "unverified", "failed", "missing"]
Cause = Literal["clock", "partly clock", "not clock", "unknown"]


@dataclass(frozen=True)
class Load:
    """How a card was while the kernels ran, seen by NVML from outside twice a second."""

    sm_mhz: Annotated[float | None, "Median clock of the multiprocessors while the card was busy."] = None
    memory_mhz: Annotated[float | None, "Median clock of the memory while the card was busy."] = None
    power_w: Annotated[float | None, "Highest power."] = None
    temperature_c: Annotated[float | None, "Highest temperature of the chip."] = None
    throttle: Annotated[tuple[str, ...], "Every reason for lower clocks that was seen."] = ()
    looks: Annotated[int, "How often the card was looked at while busy."] = 0


@dataclass(frozen=True)
class Health:
    """What a card counts of its own faults, and its links."""

    ecc_corrected: Annotated[int | None, "Memory errors that ECC corrected since the driver was loaded."] = None
    ecc_uncorrected: Annotated[int | None, "Memory errors that it could not, since the driver was loaded."] = None
    ecc_corrected_ever: Annotated[int | None, "Corrected ones over the card's life."] = None
    ecc_uncorrected_ever: Annotated[int | None, "Those that could not, over the card's life."] = None
    remapped_rows: Annotated[int | None, "Rows of memory replaced for errors, corrected or not."] = None
    remap_pending: Annotated[bool | None, "Whether a row waits for a reset to be replaced."] = None
    remap_failed: Annotated[bool | None, "Whether a row could not be replaced."] = None
    nvlinks_up: Annotated[int | None, "NVLinks that are active."] = None
    nvlinks_down: Annotated[int | None, "NVLinks that the card has and that are not."] = None
    pcie_generation: Annotated[int | None, "Generation of the PCIe link, now."] = None
    pcie_width: Annotated[int | None, "Lanes of the PCIe link, now."] = None
    power_limit_w: Annotated[float | None, "Power limit in force."] = None
    max_sm_mhz: Annotated[float | None, "Highest clock of the multiprocessors that the card allows."] = None


@dataclass(frozen=True)
class Card:
    """A card of a fleet: who it is, where it stands, and what came of its run."""

    id: Annotated[str, "The GPU's UUID; a name made of the host where there is no card to ask."]
    status: Annotated[
        CardStatus,
        "ok: all its results are right. wrong: one is not. unverified: one was compared with nothing. failed: its run "
        "did not end well. missing: it should be there and is not.",
    ]
    reason: Annotated[str | None, "Why it is not ok, in a sentence."] = None
    model: Annotated[str | None, "Name of the card."] = None
    host: Annotated[str | None, "The machine, or Slurm's name of it."] = None
    rack: Annotated[str | None, "Where the machine stands: --rack, or the switch above it as Slurm has it."] = None
    pci_address: Annotated[str | None, "Where the card sits in its host."] = None
    serial: Annotated[str | None, "Serial number of the board."] = None
    exit_code: Annotated[int | None, "What the command ended with."] = None
    load: Annotated[Load | None, "How it was meanwhile; null without NVML."] = None
    health: Annotated[Health | None, "Its own counts of faults; null without NVML."] = None
    slurm: Annotated[Mapping[str, str], "Slurm's job, array task, node, partition, as it names them."] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class Measurement:
    """One kernel or ceiling over all cards of a model."""

    model: Annotated[str, "Name of the cards."]
    operation: Annotated[str, "What is computed; 'ceilings' for a ceiling."]
    kernel: Annotated[str, "Name of the kernel or ceiling."]
    problem: Annotated[str, "Size, type, block and cache state, as text."]
    unit: Annotated[str, "Unit of the values: s, or that of the ceiling."]
    less_is_better: Annotated[bool, "Whether a smaller value is the better one."]
    cards: Annotated[int, "How many have a right value."]
    median: Annotated[float, "Median over the cards."]
    mad: Annotated[
        float,
        "Median absolute deviation of the costs (time, or 1 over what is better when larger) over their median; not "
        "scaled to a standard deviation.",
    ]
    limit: Annotated[float | None, "A card whose cost is over this many medians is slow; null under three cards."]
    slow: Annotated[int, "How many cards are."]
    worst: Annotated[float, "Highest cost of a card, over the median."]
    worst_card: Annotated[str, "Which card that is."]


@dataclass(frozen=True)
class Slow:
    """A kernel or ceiling in which a card is slow."""

    operation: Annotated[str, "What is computed; 'ceilings' for a ceiling."]
    kernel: Annotated[str, "Name of the kernel or ceiling."]
    problem: Annotated[str, "Size, type, block and cache state, as text."]
    value: Annotated[float, "What the card has, in the unit of the measurement."]
    ratio: Annotated[float, "Its cost over the median of the cards of its model: 1.05 is 5% slower."]
    mads: Annotated[float | None, "How many scaled MADs it lies over the median; null where the MAD is zero."]
    at_equal_clock: Annotated[
        float | None, "The ratio that is left when the card's lower clock is taken off; null where it is not known."
    ]


@dataclass(frozen=True)
class SlowCard:
    """A card that is slow, and whether its clock says why."""

    id: Annotated[str, "Which card."]
    cause: Annotated[
        Cause,
        "clock: its clock is low and explains it. partly clock: its clock is low, and it is slow besides. not clock: "
        "slow at equal clock. unknown: no clock was seen.",
    ]
    sm_mhz: Annotated[float | None, "Its clock under load."]
    usual_sm_mhz: Annotated[float | None, "Median clock of the cards of its model."]
    throttle: Annotated[tuple[str, ...], "Reasons for lower clocks that were seen on it."]
    kernels: Annotated[tuple[Slow, ...], "In which kernels, the worst first."]
    of: Annotated[int, "How many kernels it has values of."]


@dataclass(frozen=True)
class Group:
    """The cards of one host, rack or model together."""

    kind: Annotated[Literal["host", "rack", "model"], "What they have in common."]
    name: Annotated[str, "Its name."]
    cards: Annotated[int, "How many have right values."]
    slow: Annotated[int, "How many of them are slow."]
    faulty: Annotated[int, "How many are wrong, unverified, failed or missing."]
    ratio: Annotated[
        float | None, "Median over the cards of a card's median cost over its model's; null where nothing was timed."
    ]


@dataclass(frozen=True)
class Slowing:
    """A card that gets slower against its like from folder to folder, in one kernel."""

    id: Annotated[str, "Which card."]
    operation: Annotated[str, "What is computed."]
    kernel: Annotated[str, "The kernel in which it lost most."]
    problem: Annotated[str, "Size, type, block and cache state, as text."]
    ratios: Annotated[
        tuple[float | None, ...], "Its cost over the median of its model, folder by folder; null where it is not there."
    ]
    change: Annotated[float, "The last of them over the median of those before."]


@dataclass(frozen=True)
class Damaged:
    """A file that should be a shard and is none."""

    file: Annotated[str, "Its name."]
    reason: Annotated[str, "What is wrong with it."]


@dataclass(frozen=True)
class Rule:
    """When a card is slow: its cost lies over the median by both."""

    mads: Annotated[float, "By so many MADs, each scaled by 1.4826 to the standard deviation of normal noise."]
    over: Annotated[float, "And by such a part of the median."]


@dataclass(frozen=True)
class Fleet:
    """What `cudabench fleet` adds to a results file: the card of a shard, or the findings of a report."""

    card: Annotated[Card | None, "Of a shard: its card."] = None
    rule: Annotated[Rule | None, "Of a report, as all below: when a card is slow. It must be beyond both."] = None
    folders: Annotated[tuple[str, ...], "What was read, oldest first; findings are of the last."] = ()
    cards: Annotated[tuple[Card, ...], "Every card of the last folder."] = ()
    measurements: Annotated[tuple[Measurement, ...], "Every kernel over the cards of a model."] = ()
    slow: Annotated[tuple[SlowCard, ...], "The slow cards, the worst first."] = ()
    groups: Annotated[tuple[Group, ...], "Models, racks and hosts."] = ()
    slowing: Annotated[tuple[Slowing, ...], "Cards that got slower, the worst first."] = ()
    damaged: Annotated[tuple[Damaged, ...], "Files that could not be read."] = ()
