"""The errors that the simulator raises. A hazard of a kernel is not an error here: it is a `report.Hazard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudabench.errors import CudabenchError, DeviceError, UnsupportedFeature, UsageError

if TYPE_CHECKING:
    from cudabench.simulator.report import Hazard


class PtxError(CudabenchError):
    """The PTX text does not follow the PTX ISA."""


class UnsupportedKernel(UnsupportedFeature):
    """The kernel reached an instruction that the simulator does not support; the message names the instruction and
    its line."""


def remedy(feature: str) -> str:
    """Return what the user can do about a feature that the simulator lacks, such as "run it on a GPU".

    If the kernel would not run on a GPU either, the advice names the change that the kernel needs.
    """
    if "dynamic parallelism" in feature:
        return "name the kernels that it launches with --step, each with its grid and block"
    if "which has no body" in feature:
        return "give a file that defines what is called as well, such as one that includes both"
    return "run it on a GPU"


class LaunchError(UsageError):
    """The launch has a grid, a block, a shared memory size or an argument that no GPU or not this kernel accepts."""


class KernelTrap(DeviceError):
    """A failed assert or a trap instruction ended the kernel."""


class KernelAssert(KernelTrap):
    """An assert in the kernel's own code failed and ended the kernel."""


class BudgetExceeded(DeviceError):
    """The kernel used up its budget of instructions or of time; most likely it never ends.

    `hazards`: the hazards that were found before the launch was stopped; one of them may be the reason.
    """

    hazards: tuple[Hazard, ...] = ()


def time_up(kernel: str, place: str) -> BudgetExceeded:
    """Return the error for a launch that was stopped when its time was up; `place`: the file and line where it was
    stopped."""
    return BudgetExceeded(
        f"kernel {kernel} was stopped at {place} when its time was up; raise --timeout (or --budget) or use a smaller "
        "size if it is only long."
    )
