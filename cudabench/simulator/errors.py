"""Errors that the simulator raises; hazards are records, not errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudabench.errors import CudabenchError, DeviceError, UnsupportedFeature, UsageError

if TYPE_CHECKING:
    from cudabench.simulator.report import Hazard


class PtxError(CudabenchError):
    """The PTX text does not follow the PTX ISA."""


class UnsupportedKernel(UnsupportedFeature):
    """The kernel reached an instruction that the simulator lacks; the message names it and its line."""


def remedy(feature: str) -> str:
    """Return the remedy for a feature that the simulator lacks: a GPU, unless no GPU could run the kernel as it is."""
    if "dynamic parallelism" in feature:
        return "name the kernels that it launches with --step, each with its grid and block"
    if "which has no body" in feature:
        return "give a file that defines what is called as well, such as one that includes both"
    return "run it on a GPU"


class LaunchError(UsageError):
    """A grid, block, shared memory size or arguments that no GPU (or not this kernel) accepts."""


class KernelTrap(DeviceError):
    """A failed assert or a trap instruction ended the kernel."""


class KernelAssert(KernelTrap):
    """A failed assert in the kernel's own code ended it."""


class BudgetExceeded(DeviceError):
    """The kernel ran through its budget of instructions or of time: most likely it never ends.

    `hazards` were found before; they may be the cause.
    """

    hazards: tuple[Hazard, ...] = ()


def time_up(kernel: str, place: str) -> BudgetExceeded:
    """Return the error of a launch that was stopped at a place when its time was up."""
    return BudgetExceeded(
        f"kernel {kernel} was stopped at {place} when its time was up; raise --timeout (or --budget) or use a smaller "
        "size if it is only long."
    )
