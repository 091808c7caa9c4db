"""The records of a fleet: a card's identity and state, and the findings of a report on many cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

CardStatus = Literal["ok", "wrong", "unverified", "failed", "missing"]
Cause = Literal["clock", "partly clock", "not clock", "unknown"]


@dataclass(frozen=True)
class Load:
    """The state of a card while the kernels ran: NVML's readings, twice a second."""

    sm_mhz: Annotated[float | None, "Median clock of the multiprocessors while the card was busy."] = None
    memory_mhz: Annotated[float | None, "Median clock of the memory while the card was busy."] = None
    power_w: Annotated[float | None, "Highest power."] = None
    temperature_c: Annotated[float | None, "Highest temperature of the chip."] = None
    throttle: Annotated[tuple[str, ...], "Every reason for lower clocks that was seen."] = ()
    looks: Annotated[int, "How often the card was read while busy."] = 0


@dataclass(frozen=True)
class Health:
    """A card's own counts of faults, and its links."""

    ecc_corrected: Annotated[int | None, "Memory errors that ECC corrected since the driver was loaded."] = None
    ecc_uncorrected: Annotated[int | None, "Uncorrected memory errors since the driver was loaded."] = None
    ecc_corrected_ever: Annotated[int | None, "Memory errors that ECC corrected, over the card's life."] = None
    ecc_uncorrected_ever: Annotated[int | None, "Uncorrected memory errors, over the card's life."] = None
    remapped_rows: Annotated[int | None, "Rows of memory that were replaced because of errors."] = None
    remap_pending: Annotated[bool | None, "Whether a row will be replaced at the next reset."] = None
    remap_failed: Annotated[bool | None, "Whether a row could not be replaced."] = None
    nvlinks_up: Annotated[int | None, "NVLinks that are active."] = None
    nvlinks_down: Annotated[int | None, "NVLinks of the card that are not active."] = None
    pcie_generation: Annotated[int | None, "Generation of the PCIe link, now."] = None
    pcie_width: Annotated[int | None, "Lanes of the PCIe link, now."] = None
    power_limit_w: Annotated[float | None, "Power limit in force."] = None
    max_sm_mhz: Annotated[float | None, "Highest clock of the multiprocessors that the card allows."] = None


@dataclass(frozen=True)
class Card:
    """A card of a fleet: its identity, its place, and the outcome of its run."""

    id: Annotated[str, "The GPU's UUID; a name made from the host if the card cannot be read."]
    status: Annotated[
        CardStatus,
        "ok: all its results are right. wrong: a result is wrong. unverified: a result was not compared. failed: the "
        "run failed. missing: the card was expected, but its results are missing.",
    ]
    reason: Annotated[str | None, "Why the status is not ok, in a sentence."] = None
    model: Annotated[str | None, "Name of the card."] = None
    host: Annotated[str | None, "The machine's name, or Slurm's name for it."] = None
    rack: Annotated[str | None, "The machine's rack: --rack, or the network switch above it from Slurm."] = None
    pci_address: Annotated[str | None, "PCI address of the card in its host."] = None
    serial: Annotated[str | None, "Serial number of the board."] = None
    exit_code: Annotated[int | None, "Exit code of the command."] = None
    load: Annotated[Load | None, "State of the card during the run; null without NVML."] = None
    health: Annotated[Health | None, "The card's own counts of faults; null without NVML."] = None
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
    cards: Annotated[int, "How many cards have a right value."]
    median: Annotated[float, "Median over the cards."]
    mad: Annotated[
        float,
        "Median absolute deviation of the costs over their median, not scaled to a standard deviation. The cost is a "
        "time, or 1 over a value for which more is better.",
    ]
    limit: Annotated[float | None, "A card whose cost is over this many medians is slow; null under three cards."]
    slow: Annotated[int, "How many cards are slow."]
    worst: Annotated[float, "Cost of the most expensive card, divided by the median cost."]
    worst_card: Annotated[str, "The card with the highest cost."]


@dataclass(frozen=True)
class Slow:
    """A kernel or ceiling in which a card is slow."""

    operation: Annotated[str, "What is computed; 'ceilings' for a ceiling."]
    kernel: Annotated[str, "Name of the kernel or ceiling."]
    problem: Annotated[str, "Size, type, block and cache state, as text."]
    value: Annotated[float, "The card's value, in the unit of the measurement."]
    ratio: Annotated[float, "The card's cost divided by the median of its model: 1.05 is 5% slower."]
    mads: Annotated[float | None, "By how many scaled MADs the cost is over the median; null if the MAD is zero."]
    at_equal_clock: Annotated[float | None, "The ratio at the usual clock; null if it is not known."]


@dataclass(frozen=True)
class SlowCard:
    """A card that is slow, and whether its clock explains it."""

    id: Annotated[str, "Which card."]
    cause: Annotated[
        Cause,
        "clock: a low clock explains the slowness. partly clock: a low clock explains a part of it. not clock: "
        "slow at equal clock. unknown: the clock was not read.",
    ]
    sm_mhz: Annotated[float | None, "The card's clock under load."]
    usual_sm_mhz: Annotated[float | None, "Median clock of the cards of its model."]
    throttle: Annotated[tuple[str, ...], "Reasons for lower clocks that were seen on the card."]
    kernels: Annotated[tuple[Slow, ...], "The kernels in which the card is slow, the worst first."]
    of: Annotated[int, "Of how many kernels the card has values."]


@dataclass(frozen=True)
class Group:
    """The cards of one host, rack or model together."""

    kind: Annotated[Literal["host", "rack", "model"], "What the cards share."]
    name: Annotated[str, "Its name."]
    cards: Annotated[int, "How many cards have right values."]
    slow: Annotated[int, "How many of these cards are slow."]
    faulty: Annotated[int, "How many cards are wrong, unverified, failed or missing."]
    ratio: Annotated[
        float | None,
        "Median of the cards' relative costs: a card's median cost over its model's. Null if nothing was timed.",
    ]


@dataclass(frozen=True)
class Slowing:
    """A card that gets slower from folder to folder, compared with its model, in one kernel."""

    id: Annotated[str, "Which card."]
    operation: Annotated[str, "What is computed."]
    kernel: Annotated[str, "The kernel that slowed most."]
    problem: Annotated[str, "Size, type, block and cache state, as text."]
    ratios: Annotated[
        tuple[float | None, ...],
        "The card's cost over the median of its model, by folder; null if the folder lacks it.",
    ]
    change: Annotated[float, "The last ratio over the median of the earlier ratios."]


@dataclass(frozen=True)
class Damaged:
    """A file that is not a shard, although it is in the folder of shards."""

    file: Annotated[str, "Its name."]
    reason: Annotated[str, "What is wrong with the file."]


@dataclass(frozen=True)
class Rule:
    """When a card counts as slow: its cost exceeds the median of all cards by more than each of the two limits."""

    mads: Annotated[float, "Limit in MADs, each scaled by 1.4826 to the standard deviation of normal noise."]
    over: Annotated[float, "Limit as a fraction of the median."]


@dataclass(frozen=True)
class Fleet:
    """What `cudabench fleet` adds to a results file: the card of a shard, or the findings of a report."""

    card: Annotated[Card | None, "Of a shard: its card."] = None
    rule: Annotated[Rule | None, "Of a report, like all keys below: when a card is slow."] = None
    folders: Annotated[tuple[str, ...], "Folders, oldest first; the findings are of the last."] = ()
    cards: Annotated[tuple[Card, ...], "Every card of the last folder."] = ()
    measurements: Annotated[tuple[Measurement, ...], "Every kernel over the cards of a model."] = ()
    slow: Annotated[tuple[SlowCard, ...], "The slow cards, the worst first."] = ()
    groups: Annotated[tuple[Group, ...], "Models, racks and hosts."] = ()
    slowing: Annotated[tuple[Slowing, ...], "Cards that got slower, the worst first."] = ()
    damaged: Annotated[tuple[Damaged, ...], "Files that could not be read."] = ()
