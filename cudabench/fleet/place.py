"""Where a process runs: its host, its rack and its variables of a Slurm job."""

from __future__ import annotations

import os
import platform
import re

# The environment variables of Slurm that a shard records.
SLURM = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_PARTITION",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_RESTART_COUNT",
    "SLURMD_NODENAME",
)
MOST_NAME = 100  # a shard's file name, without the suffix, has at most this many characters


def slurm() -> dict[str, str]:
    """Return the variables of SLURM that are set for this process, by name; empty outside of a Slurm job."""
    return {name: os.environ[name] for name in SLURM if os.environ.get(name)}


def host() -> str:
    """Return the machine's name; in a Slurm job, the name of the node."""
    return os.environ.get("SLURMD_NODENAME") or platform.node() or "unknown"


def rack() -> str | None:
    """Return the names of the network switches above the node, joined by '.', from Slurm's topology; None if unknown.

    Slurm lists them as SWITCH.SWITCH.NODE.
    """
    names = os.environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    kinds = os.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    switches = [name for name, kind in zip(names, kinds, strict=False) if kind == "switch" and name]
    return ".".join(switches) or None


def granted_cards() -> list[str]:
    """Return the entries of CUDA_VISIBLE_DEVICES, which are numbers or UUIDs; empty if all cards are visible."""
    return [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]


def simulator_name(host: str) -> str:
    """Return the name of a simulator that is measured instead of a card.

    It is the host's name; under Slurm, the number of the granted card is appended, so that several simulators on a node
    have distinct names.
    """
    cards = granted_cards()
    slotted = len(cards) == 1 and cards[0].isdecimal() and "SLURM_JOB_ID" in os.environ
    return f"{host}-gpu{cards[0]}" if slotted else host


def file_name(card: str) -> str:
    """Return the file name of a card's shard. Invalid characters, and a first '.' or '-', are replaced by '_'."""
    safe = re.sub(r"[^\w.-]|^[.-]", "_", card, flags=re.ASCII)
    return f"{safe[:MOST_NAME] or '_'}.json"
