"""What NVML tells of a board: the energy that it has taken, and its link to the host. None where it does not."""

from __future__ import annotations

from typing import Any


def handle(uuid: str | None) -> Any:
    """Return NVML's handle of a GPU, None where NVML is not installed or does not know the card."""
    if uuid is None:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None


def link(board: Any) -> tuple[int, int] | None:
    """Return generation and lanes of the fastest PCI Express link that card and host allow."""
    generation, lanes = _ask(board, "nvmlDeviceGetMaxPcieLinkGeneration"), _ask(board, "nvmlDeviceGetMaxPcieLinkWidth")
    return (int(generation), int(lanes)) if generation and lanes else None


def energy_j(board: Any) -> float | None:
    """Return the energy that the board has taken since its driver was loaded; its steps are of some 20 ms to 100 ms."""
    millijoules = _ask(board, "nvmlDeviceGetTotalEnergyConsumption")
    return None if millijoules is None else int(millijoules) / 1e3


def _ask(board: Any, function: str) -> Any:
    if board is None:
        return None
    import pynvml

    try:
        return getattr(pynvml, function)(board)
    except (pynvml.NVMLError, AttributeError):
        return None
