"""What NVML tells of a board: the energy that it has taken, and its link to the host. None where it does not."""

from __future__ import annotations

from cudabench.devices.probe import Board


def link(board: Board | None) -> tuple[int, int] | None:
    """Return generation and lanes of the fastest PCI Express link that card and host allow."""
    if board is None:
        return None
    generation, lanes = board.ask("nvmlDeviceGetMaxPcieLinkGeneration"), board.ask("nvmlDeviceGetMaxPcieLinkWidth")
    return (int(generation), int(lanes)) if generation and lanes else None


def energy_j(board: Board | None) -> float | None:
    """Return the energy that the board has taken since its driver was loaded; its steps are of some 20 ms to 100 ms."""
    millijoules = None if board is None else board.ask("nvmlDeviceGetTotalEnergyConsumption")
    return None if millijoules is None else int(millijoules) / 1e3
