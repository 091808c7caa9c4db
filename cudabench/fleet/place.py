"""Where a process runs: its host, its rack and its place in a Slurm job."""

from __future__ import annotations

import os
import platform
import re

# Slurm's variables that a shard keeps.
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
MOST_NAME = 100  # characters of a file's name before its suffix


def slurm() -> dict[str, str]:
    """Return this process' place in a Slurm job, by Slurm's names; empty outside one."""
    return {name: os.environ[name] for name in SLURM if os.environ.get(name)}


def host() -> str:
    """Return the machine's name, as Slurm calls it in a job."""
    return os.environ.get("SLURMD_NODENAME") or platform.node() or "unknown"


def rack() -> str | None:
    """Return the switches above the node from Slurm's topology, or None."""
    names = os.environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    kinds = os.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    switches = [name for name, kind in zip(names, kinds, strict=False) if kind == "switch" and name]
    return ".".join(switches) or None


def granted() -> list[str]:
    """Return the words of CUDA_VISIBLE_DEVICES: numbers, or UUIDs; empty if all cards are visible."""
    return [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]


def stand_in(host: str) -> str:
    """Return the simulator's name in place of a card: the host and, under Slurm, the granted card, so that several
    simulators on a node have distinct names."""
    cards = granted()
    slotted = len(cards) == 1 and cards[0].isdecimal() and "SLURM_JOB_ID" in os.environ
    return f"{host}-gpu{cards[0]}" if slotted else host


def file_name(card: str) -> str:
    """Return the file name of a card's shard. Characters that are invalid or would hide the file become '_'."""
    safe = re.sub(r"[^\w.-]|^[.-]", "_", card, flags=re.ASCII)
    return f"{safe[:MOST_NAME] or '_'}.json"
